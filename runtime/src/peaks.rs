//! What this machine can do at best, measured: multiply-adds of operands in the nearest
//! cache, and a copy that no cache holds. Reports say how far from it a step is.

use crate::gemm::peak;
use crate::mem::Bytes;
use crate::pool::Pool;
use crate::profile::Peaks;
use std::hint::black_box;
use std::time::Instant;

/// Bytes each thread copies: more than its share of any cache.
const COPIED: usize = 64 << 20;
/// Tiles that each thread multiplies.
const ROUNDS: usize = 500;

/// Measures with all threads of the pool; takes some tens of milliseconds.
pub fn measure(pool: &Pool) -> Peaks {
    let threads = pool.threads();
    let best = |amount: usize, work: &(dyn Fn(usize) + Sync)| {
        let times = (0..5).map(|_| {
            let started = Instant::now();
            pool.run(threads, work);
            started.elapsed().as_nanos().max(1)
        });
        (threads * amount) as f64 / times.min().unwrap_or(1) as f64
    };
    let (round, _) = peak::tiles(1);
    let gflops = best(2 * round * ROUNDS, &|_| {
        black_box(peak::tiles(black_box(ROUNDS)));
    });
    let memory: Option<Vec<Bytes>> = (0..2 * threads).map(|_| Bytes::zeroed(COPIED).ok()).collect();
    let gbytes = memory.map_or(0.0, |memory| {
        let ends: Vec<[usize; 2]> =
            memory.chunks(2).map(|pair| [0, 1].map(|i| pair[i].as_ptr().addr())).collect();
        let at = |addr: usize| memory[0].as_ptr().with_addr(addr);
        best(2 * COPIED, &|i| {
            let [from, to] = ends[i];
            // SAFETY: each part has two buffers of this size to itself.
            unsafe { at(to).copy_from_nonoverlapping(at(from), COPIED) }
        })
    });
    Peaks { gflops, gbytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_does_something() {
        let peaks = measure(&Pool::new(1));
        assert!(peaks.gflops > 0.1 && peaks.gbytes > 0.01, "{peaks:?}");
    }
}
