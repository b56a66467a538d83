//! What this machine can do at best, measured: multiply-adds in registers, and a
//! copy that no cache holds. Reports say how far from it a step is.

use crate::mem::Bytes;
use crate::pool::Pool;
use crate::profile::Peaks;
use std::hint::black_box;
use std::time::Instant;

/// Bytes each thread copies: more than its share of any cache.
const COPIED: usize = 64 << 20;
const ROUNDS: usize = 20_000;
/// Multiply-adds of single numbers in a round.
const ROUND: usize = 12 * 16;

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
    let gflops = best(2 * ROUND * ROUNDS, &|_| {
        black_box(multiply_adds(black_box(ROUNDS)));
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

/// Twelve chains of sixteen lanes each: enough to hide the latency.
fn multiply_adds(rounds: usize) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f") {
            // SAFETY: the CPU has the instructions.
            return unsafe { with_avx512(rounds) };
        }
        if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
            // SAFETY: as above.
            return unsafe { with_avx2(rounds) };
        }
    }
    plain(rounds)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn with_avx512(rounds: usize) -> f32 {
    use std::arch::x86_64::*;
    let (a, b) = (_mm512_set1_ps(0.999), _mm512_set1_ps(0.001));
    let mut sums = [b; ROUND / 16];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, a, b);
        }
    }
    sums.iter().fold(0.0, |all, sum| all + _mm512_reduce_add_ps(*sum))
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
fn with_avx2(rounds: usize) -> f32 {
    use std::arch::x86_64::*;
    let (a, b) = (_mm256_set1_ps(0.999), _mm256_set1_ps(0.001));
    let mut sums = [b; 12];
    // Half as wide: twice as often.
    for _ in 0..2 * rounds {
        for sum in &mut sums {
            *sum = _mm256_fmadd_ps(*sum, a, b);
        }
    }
    sums.iter().fold(0.0, |all, sum| all + _mm256_cvtss_f32(*sum))
}

fn plain(rounds: usize) -> f32 {
    let mut sums = [0.001f32; ROUND];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = *sum * 0.999 + 0.001;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_machine_does_something() {
        let peaks = measure(&Pool::new(1));
        assert!(peaks.gflops > 0.1 && peaks.gbytes > 0.01, "{peaks:?}");
        // Whatever the instructions, the sums go to 1.
        for sum in [multiply_adds(ROUNDS), plain(ROUNDS)] {
            assert!(sum.is_finite() && sum > 0.0);
        }
    }
}
