//! Puts the nodes and variables of a graph on devices at random.

use std::sync::Arc;
use tfc_ir::Graph;

/// Two GPUs and the CPU; some are left to the compiler.
const DEVICES: [Option<&str>; 5] =
    [None, Some("/cpu:0"), Some("/gpu:0"), Some("/gpu:1"), Some("/gpu:1")];

/// The same for the same seed.
pub fn scatter(graph: &mut Graph, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        DEVICES[(state >> 33) as usize % DEVICES.len()].map(Arc::from)
    };
    for var in graph.vars.values_mut().filter(|v| v.symbol.is_variable()) {
        var.device = draw();
    }
    for func in graph.entries.iter_mut().chain([&mut graph.init]) {
        for node in func.nodes.values_mut() {
            node.device = draw();
        }
    }
}
