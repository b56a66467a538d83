//! Updates of a few rows of a table cost by the rows, not by the table.
//!
//!     cargo run --release -p tfc --example sparse_rows
//!
//! The same 64 rows of a table of 1 million and of one of 20 million rows of 16
//! floats (1.3 GB) are updated, by `scatter_assign_add` and by a step of SGD
//! through `gather`; printed are the least times and their ratio.

use ndarray::{Array1, Array2};
use std::time::{Duration, Instant};

const ROWS: [usize; 2] = [1_000_000, 20_000_000];

fn graph(rows: usize) -> String {
    format!(
        "graph rows
use optim
var table: f32[{rows}, 16] = zeros

entry add(ids: i32[64], x: f32[64, 16]) {{
  scatter_assign_add(table, ids, x)
}}

entry look(ids: i32[64], x: f32[64, 16]) -> (y: f32[64]) {{
  return sum(gather(table, ids) * x, axis: 1)
}}

entry train(ids: i32[64], x: f32[64, 16]) -> (loss: f32[]) {{
  loss = mean((gather(table, ids) - x) ** 2)
  minimize loss over [table] with optim.sgd(lr: 0.1)
  return loss
}}
"
    )
}

fn main() -> Result<(), tfc::Error> {
    let ids = Array1::from_iter((0..64).map(|i| (i * 15_485) % 1_000_000));
    let x = Array2::from_shape_fn((64, 16), |(i, j)| (i + j) as f32 * 0.01);
    let entries = ["add", "look", "train"];
    let mut least = [[Duration::MAX; 2]; 3];
    let modules: Vec<tfc::Module> = ROWS
        .iter()
        .map(|rows| tfc::compile(&tfc::parse(&graph(*rows))?))
        .collect::<Result<_, _>>()?;
    // In turns, so that a busy machine is busy for both.
    for _ in 0..2000 {
        for (e, entry) in entries.iter().enumerate() {
            for (m, module) in modules.iter().enumerate() {
                let start = Instant::now();
                module.call(entry, (&ids, &x))?;
                least[e][m] = least[e][m].min(start.elapsed());
            }
        }
    }
    println!("64 rows of f32[N, 16]   N = {}   N = {}   ratio", ROWS[0], ROWS[1]);
    for (entry, [small, large]) in entries.iter().zip(least) {
        let ratio = large.as_secs_f64() / small.as_secs_f64();
        println!("{entry:<20}  {:>9.2} us  {:>10.2} us   {ratio:.2}", us(small), us(large));
    }
    Ok(())
}

fn us(d: Duration) -> f64 {
    d.as_secs_f64() * 1e6
}
