//! Prints the table of docs/optimizer.md: what the e-graph does to whole
//! training graphs.
//!
//!     cargo run --release -p tfc-passes --example optimizer_table
//!
//! `--rules` adds what each rule cost; `--without a,b` leaves rules out;
//! `--fast` allows everything `--fast-math` does; `--small` takes small nets.

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::Instant;
use tfc_ir::{DType, Graph};
use tfc_passes::egraph::{FloatMode, Rewriting, optimize};
use tfc_passes::mincut;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let flag = |name: &str| args.iter().any(|a| a == name);
    let without = args.iter().position(|a| a == "--without").and_then(|i| args.get(i + 1));
    let mut options = Rewriting::default();
    if let Some(list) = without {
        options.disabled = list.split(',').map(String::from).collect();
    }
    if flag("--fast") {
        options.mode = FloatMode::Fast;
    }
    let nets: Vec<(&str, Graph)> = if flag("--small") {
        vec![
            ("MLP-4", common::mlp(DType::F32, 4, 16, 10)),
            ("transformer-1", common::transformer(DType::F32, 1, 16, 2, 4)),
            ("ResNet-1", common::resnet(DType::F32, 1, 4, 4)),
        ]
    } else {
        vec![
            ("MLP-50", common::mlp(DType::F32, 50, 512, 10)),
            ("transformer-12", common::transformer(DType::F32, 12, 256, 4, 128)),
            ("ResNet (8 blocks)", common::resnet(DType::F32, 8, 32, 32)),
        ]
    };
    println!(
        "| graph | nodes before | e-nodes | rounds | stopped | seconds | ops | kernels | model us | kept MB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, net) in &nets {
        let (plain, _) = optimize(net, &Rewriting { expand_only: true, ..Rewriting::default() });
        let start = Instant::now();
        let (out, report) = optimize(net, &options);
        let seconds = start.elapsed().as_secs_f64();
        let saved = |g: &Graph| mincut::run(g.clone()).1[0].clone();
        let (naive, cut) = (saved(&plain), saved(&out));
        let stops: Vec<&str> = report.stats.stops.keys().map(|s| s.describe()).collect();
        println!(
            "| {name} | {} | {} | {} | {} | {seconds:.2} | {} -> {} | {} -> {} | {:.0} -> {:.0} | {:.2} -> {:.2} |",
            report.seed,
            report.stats.nodes + report.explored.nodes,
            report.stats.rounds,
            stops.join(", "),
            report.before.ops,
            report.after.ops,
            kernels(&plain, &["expand", "simplify", "dce"]),
            kernels(&out, &["expand", "simplify", "mincut", "dce"]),
            report.before.cost / 1e3,
            report.after.cost / 1e3,
            naive.before as f64 / 1e6,
            cut.after as f64 / 1e6,
        );
        if flag("--rules") {
            println!("{}", report.timings());
        }
        for conflict in &report.conflicts {
            println!("unsound: {conflict}");
        }
    }
}

/// Launches and products of the lowered program: what fusion leaves.
fn kernels(graph: &Graph, passes: &[&str]) -> usize {
    let graph = tfc_passes::run_passes(graph, passes).expect("the nets compile");
    let program = tfc_passes::lower(&graph, &Default::default()).expect("the nets compile");
    program.plan.entries.iter().map(|e| e.steps.len()).sum()
}
