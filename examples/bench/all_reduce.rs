//! How fast the workers of a job sum up a large tensor.
//!
//!     cargo build --release -p tfc --example all_reduce
//!     tfc launch -n 2 target/release/examples/all_reduce
//!     mpirun -n 2 target/release/examples/all_reduce
//!
//! Takes the number of megabytes [100] and of repetitions [10].

use std::time::Instant;
use tfc::DType;
use tfc::net::Group;
use tfc::net::collective::Reduce;
use tfc::net::job::Job;

fn main() -> Result<(), tfc::Error> {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let bytes = numbers.first().copied().unwrap_or(100) * 1_000_000 / 4 * 4;
    let rounds = numbers.get(1).copied().unwrap_or(10).max(1);
    let Some(job) = Job::from_environment()? else {
        println!("start it with `tfc launch -n 2` or `mpirun -n 2`");
        return Ok(());
    };
    let group = Group::join(&job, &[0; 32])?;
    let mut data: Vec<u8> = vec![0; bytes];
    let mut best = f64::INFINITY;
    for _ in 0..rounds {
        let started = Instant::now();
        group.all_reduce(&mut [(DType::F32, &mut data)], Reduce::Sum, "the tensor", "")?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    if group.is_chief() {
        let rate = bytes as f64 / best / 1e9;
        let (engine, n) = (group.engine(), group.size());
        println!("{engine}, {n} workers: {bytes} bytes in {:.1} ms, {rate:.2} GB/s", best * 1e3);
    }
    Ok(())
}
