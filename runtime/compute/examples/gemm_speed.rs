//! Speed of products on one thread, beside matrixmultiply's.
//!
//! `cargo run --release -p tfc-compute --example gemm_speed`

#[path = "clock/mod.rs"]
mod clock;

use clock::now;
use tfc_abi::DType;
use tfc_compute::Pool;
use tfc_compute::gemm::{MatMulArgs, matmul};

/// Best time of a call, in seconds, over about `budget` seconds.
fn best(threads: usize, budget: f64, mut call: impl FnMut()) -> f64 {
    call();
    let (start, mut best) = (now(threads), f64::MAX);
    while now(threads) - start < budget {
        let t = now(threads);
        call();
        best = best.min(now(threads) - t);
    }
    best
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|t| t.parse().ok()).unwrap_or(1);
    let pool = Pool::new(threads);
    println!(
        "{:>20} {:>6} {:>10} {:>10} {:>6}",
        "m x n x k", "trans", "GFLOP/s", "matrixmul", "ratio"
    );
    let sizes = [
        (1, 512, 784),
        (1, 4096, 4096),
        (4, 512, 784),
        (7, 512, 784),
        (16, 512, 512),
        (64, 512, 784),
        (64, 10, 512),
        (64, 512, 512),
        (128, 384, 384),
        (128, 1536, 384),
        (128, 384, 1536),
        (64, 128, 784),
        (128, 128, 128),
        (256, 256, 256),
        (512, 512, 512),
        (1024, 1024, 1024),
        (2048, 2048, 2048),
    ];
    for (m, n, k) in sizes {
        for (trans_a, trans_b) in [(false, false), (false, true), (true, false)] {
            let a: Vec<f32> = (0..m * k).map(|i| (i % 7) as f32).collect();
            let b: Vec<f32> = (0..k * n).map(|i| (i % 5) as f32).collect();
            let mut c = vec![0f32; m * n];
            let args = MatMulArgs {
                dtype: DType::F32,
                a: a.as_ptr().cast(),
                b: b.as_ptr().cast(),
                c: c.as_mut_ptr().cast(),
                m,
                n,
                k,
                batch: 1,
                a_stride: 0,
                b_stride: 0,
                trans_a,
                trans_b,
                b_stays: None,
            };
            // SAFETY: the operands have these sizes.
            let ours = best(threads, 0.1, || unsafe { matmul(&pool, &args, None) });
            let (rsa, csa) = if trans_a { (1, m) } else { (k, 1) };
            let (rsb, csb) = if trans_b { (1, k) } else { (n, 1) };
            // SAFETY: as above.
            let theirs = best(threads, 0.1, || unsafe {
                matrixmultiply::sgemm(
                    m,
                    k,
                    n,
                    1.0,
                    a.as_ptr(),
                    rsa as isize,
                    csa as isize,
                    b.as_ptr(),
                    rsb as isize,
                    csb as isize,
                    0.0,
                    c.as_mut_ptr(),
                    n as isize,
                    1,
                );
            });
            let flops = 2.0 * m as f64 * n as f64 * k as f64 * 1e-9;
            let trans = ["nn", "nt", "tn"][usize::from(trans_b) + 2 * usize::from(trans_a)];
            println!(
                "{:>20} {trans:>6} {:>10.1} {:>10.1} {:>6.2}",
                format!("{m} x {n} x {k}"),
                flops / ours,
                flops / theirs,
                theirs / ours
            );
        }
    }
}
