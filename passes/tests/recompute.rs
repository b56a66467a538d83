//! What is computed a second time to save memory (`recompute`, `mincut`), and of which
//! entries.

use tfc_ir::text;
use tfc_passes::PassOptions;
use tfc_passes::mincut::Saved;
use tfc_passes::pipeline::{Details, PASSES, Pass, run_each};

/// What a pass did when asked for all it can do, after those before it.
fn saved(source: &str, pass: &str) -> Vec<Saved> {
    let (graph, diags, _) = text::load_str("g.graph", source);
    let graph = graph.unwrap_or_else(|| panic!("{diags:?}"));
    let last = PASSES.iter().position(|p| p.name == pass).expect("a pass");
    let passes: Vec<&Pass> = PASSES[..=last].iter().collect();
    let recompute = tfc_passes::recompute::ALL;
    let options = PassOptions { recompute, replicas: true, ..PassOptions::default() };
    let mut saved = vec![];
    run_each(graph, &passes, &options, &mut |ran, _| {
        if let (true, Details::Saved(s)) = (ran.name == pass, &ran.details) {
            saved.clone_from(s);
        }
    })
    .unwrap_or_else(|d| panic!("{d:?}"));
    saved
}

/// With parameter servers a worker holds what the backward pass needs, and writes nothing:
/// its part is a training step all the same, whatever the optimizer. The parts of servers,
/// and entries that only look, are none.
#[test]
fn workers_of_servers_compute_again_what_the_whole_step_does() {
    let layers: String =
        (1..=12).map(|i| format!("  h{i} = tanh(h{} @ w) + h{0}\n", i - 1)).collect();
    for optimizer in ["sgd(lr: 0.1)", "adam(lr: 0.1)"] {
        let source = format!(
            "graph g\nuse optim\nvar w: f32[64, 64] = ones\n\
             entry train(h0: f32[256, 64]) -> (loss: f32[]) {{\n{layers}  \
             loss = mean(h12 * h12)\n  minimize loss over [w] with optim.{optimizer}\n  \
             return loss\n}}\n\
             entry predict(h0: f32[256, 64]) -> (y: f32[256, 64]) {{\n{layers}  return h12\n}}\n"
        );
        let saved = saved(&source, "recompute");
        let again = |s: &&Saved| s.repeated > 0 && s.after * 3 < s.before * 2;
        let again: Vec<&str> = saved.iter().filter(again).map(|s| s.entry.as_str()).collect();
        assert_eq!(again, ["train", "train", "train__gradients"], "{optimizer}: {saved:?}");
    }
}

/// Each tensor has a number of bytes; what several have together may be none.
#[test]
fn sums_of_the_largest_tensors_do_not_overflow() {
    let chain: String = (1..=12).map(|i| format!("  h{i} = tanh(h{} * s)\n", i - 1)).collect();
    for shape in ["[1152921504606846976]", "[B, B, B, B, B, B, B, B, B, B, B, B]"] {
        let source = format!(
            "graph g\nuse optim\ndim B\nvar s: f32[] = 1.0\n\
             entry train(h0: f32{shape}) -> (loss: f32[]) {{\n{chain}  \
             loss = sum(h12 * h12)\n  minimize loss over [s] with optim.sgd(lr: 0.1)\n  \
             return loss\n}}\n"
        );
        for pass in ["mincut", "recompute"] {
            let saved = saved(&source, pass);
            assert!(saved.iter().all(|s| s.after <= s.before), "{shape}, {pass}: {saved:?}");
            assert!(saved[0].before > 0, "{shape}, {pass}: {saved:?}");
        }
    }
}
