//! Compares the optimizer's cost model with what kernels take on this machine.
//!
//!     cargo run --release -p tfc --example calibrate
//!
//! Each entry of `calibrate.graph` is compiled alone and run on one thread; the
//! least time of many calls stands beside what the model says. The table in
//! docs/optimizer.md is what this printed.

use std::time::{Duration, Instant};
use tfc::{Module, Options};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/bench/calibrate.graph");
    let graph = tfc::parse(&std::fs::read_to_string(path)?)?;
    println!("| kernel | measured, us | model, us | model / measured |");
    println!("|---|---|---|---|");
    for func in &graph.entries {
        let mut alone = graph.clone();
        alone.entries.retain(|f| f.name == func.name);
        let options = tfc_passes::egraph::Rewriting::default();
        alone.init.regions[alone.init.body].nodes.clear();
        let (_, report) = tfc_passes::egraph::optimize(&alone, &options);
        let modelled = report.after.cost / 1e3;
        alone.init = graph.init.clone();
        let module = Module::from_graph(&alone, &Options::new().threads(1))?;
        let measured = least(|| module.call(&func.name, ()).map(|_| ()))?;
        println!("| {} | {measured:.2} | {modelled:.2} | {:.2} |", func.name, modelled / measured);
    }
    Ok(())
}

/// Microseconds of the fastest call.
fn least(mut call: impl FnMut() -> tfc::Result<()>) -> tfc::Result<f64> {
    let (mut best, start) = (Duration::MAX, Instant::now());
    while start.elapsed() < Duration::from_millis(400) {
        let t = Instant::now();
        call()?;
        best = best.min(t.elapsed());
    }
    Ok(best.as_secs_f64() * 1e6)
}
