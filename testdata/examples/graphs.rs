//! Random graphs in every float mode against the interpreter, as many as asked for.
//!
//!     cargo run --release -p tfc-testdata --example graphs -- 100000
//!
//! `graphs COUNT [FIRST] [THREADS]`; `graphs show SEED` prints one.

use std::time::Instant;
use tfc_testdata::generate::{Entry, check, print_graph};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: u64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    if args.first().is_some_and(|a| a == "show") {
        print!("{}", print_graph(&[Entry::generate(number(1, 0))]));
        return;
    }
    let (count, first, threads) = (number(0, 1000), number(1, 0), number(2, 2));
    std::panic::set_hook(Box::new(|_| {}));
    let start = Instant::now();
    let trace = std::env::var_os("TFC_TRACE").is_some();
    let progress = |seed: u64| {
        if trace {
            eprintln!("{seed}");
        }
    };
    let (counts, failures) =
        check::check_many(first, first + count, 8, threads as usize, &progress);
    for text in failures.values() {
        println!("{text}\n");
    }
    println!("{counts:?}, {} failures, {:.1} s", failures.len(), start.elapsed().as_secs_f64());
    std::process::exit(i32::from(!failures.is_empty()));
}
