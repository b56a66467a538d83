//! Placements go through every pass, and what nothing can honour is an error.

use tfc_ir::{Graph, text};
use tfc_passes::pipeline::{PASSES, Pass, Ran, run_each};
use tfc_passes::{Options, compile};

fn load(source: &str) -> Graph {
    let (graph, diags, _) = text::load_str("placed.graph", source);
    let found: Vec<String> = diags.iter().map(|d| d.message.clone()).collect();
    graph.unwrap_or_else(|| panic!("{found:?}"))
}

fn run_all(graph: Graph, after: &mut dyn FnMut(&Ran, &Graph)) -> Graph {
    let all: Vec<&Pass> = PASSES.iter().collect();
    run_each(graph, &all, &Options::default(), after).unwrap_or_else(|d| panic!("{d:?}"))
}

/// Softmax, reductions and movement, their gradients, a loop and a branch: all on
/// one device.
const PLACED: &str = "graph placed
use nn
dim B
entry f(x: f32[B, 8], y: i32[B]) -> (dw: f32[8, 3], total: f32[]) {
  on \"/gpu:3\" {
    w = full(0.5, shape: [8, 3])
    h = transpose(reshape(transpose(tanh(x)), [8, B])) @ w
    loss = mean(nn.softmax_xent(h, y))
    dw = grad(loss, wrt: w)
    (_i, total) = while (i = 0, t = loss) i < 3 {
      yield i + 1, if t > 1.0 { yield t / 2.0 } else { yield t + sum(dw) }
    }
    dt = grad(total, wrt: x)
    total = total + mean(dt)
  }
  return dw, total
}
";

/// review 2: `on` was accepted, and lost in canonicalize, differentiate and expand.
#[test]
fn every_pass_keeps_placements() {
    let mut checked = 0;
    run_all(load(PLACED), &mut |ran, graph| {
        for func in &graph.entries {
            func.walk(&mut |_, node| {
                checked += 1;
                assert_eq!(
                    node.device.as_deref(),
                    Some("/gpu:3"),
                    "after `{}`, a `{}` is not where it was placed:\n{}",
                    ran.name,
                    node.op.name(),
                    text::print(graph)
                );
            });
        }
    });
    assert!(checked > 200, "{checked}");
}

/// What stands for two devices is computed on each of them.
#[test]
fn equal_nodes_on_two_devices_stay_two() {
    let source = "graph two
entry f(x: f32[4]) -> (a: f32[4], b: f32[4]) {
  a = exp(x) on \"/gpu:0\"
  b = exp(x) on \"/gpu:1\"
  return a, b
}
";
    let graph = run_all(load(source), &mut |_, _| {});
    let mut devices = vec![];
    graph.entries[0].walk(&mut |_, node| devices.push(node.device.as_deref().map(str::to_string)));
    devices.sort();
    assert_eq!(devices, [Some("/gpu:0".to_string()), Some("/gpu:1".to_string())]);
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    for (source, what) in [
        (PLACED, "/gpu:3"),
        (
            "graph v\nvar w: f32[2] = zeros on \"/job:ps/task:1\"\nentry f() -> f32[2] {\n  return w\n}\n",
            "/job:ps/task:1",
        ),
        (
            "graph q\nqueue q: fifo(f32[], capacity: 2) on \"/cpu:1\"\nentry f() {\n  enqueue(q, 1.0)\n}\n",
            "/cpu:1",
        ),
    ] {
        let diags = compile(&load(source), &Options::default()).expect_err("nothing can honour it");
        assert_eq!(diags.len(), 1, "{diags:?}");
        assert_eq!(diags[0].code, "E0415");
        assert!(diags[0].message.contains(what), "{}", diags[0].message);
    }
}

#[test]
fn the_cpu_is_there() {
    let source = "graph c\nentry f(x: f32[2]) -> (y: f32[2]) {\n  y = x + 1.0 on \"/cpu:0\"\n  return y\n}\n";
    let program = compile(&load(source), &Options::default()).expect("it is the CPU's");
    assert_eq!(program.kernels.len(), 1);
}
