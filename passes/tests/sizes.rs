//! How large programs come out: kernels grow with the graph, and no work is
//! repeated that could be stored. Everything is counted, nothing timed.

mod support;

use support::check;
use tfc_ir::Graph;
use tfc_ir::kernel::{Elementary, ScalarOp, Stmt};
use tfc_ir::program::Program;

fn load(text: &str) -> Graph {
    let (graph, diags, _) = tfc_ir::text::load_str("test.graph", text);
    graph.unwrap_or_else(|| panic!("{:?}", diags.iter().map(|d| &d.message).collect::<Vec<_>>()))
}

fn statements(body: &[Stmt]) -> usize {
    body.iter().map(|s| if let Stmt::Loop(l) = s { 1 + statements(&l.body) } else { 1 }).sum()
}

fn size(program: &Program) -> usize {
    program.kernels.iter().map(|k| statements(&k.body)).sum()
}

/// How often an operation runs, all loops counted; sizes must be known.
fn runs(body: &[Stmt], op: ScalarOp) -> i64 {
    let one = |s: &Stmt| match s {
        Stmt::Loop(l) => l.extent.as_const().expect("a known size") * runs(&l.body, op),
        Stmt::Op { op: o, .. } => (*o == op) as i64,
        _ => 0,
    };
    body.iter().map(one).sum()
}

fn stencil(steps: usize) -> Graph {
    load(&format!(
        "graph g\nentry f(u: f32[9]) -> (v: f32[9]) {{\n  for i in 0..{steps} {{\n    \
         l = concat([u[-1:], u[:-1]], axis: 0)\n    r = concat([u[1:], u[:1]], axis: 0)\n    \
         u = u + 0.1 * (l - 2.0 * u + r)\n  }}\n  return u\n}}\n"
    ))
}

/// faults 4: each step of a periodic stencil asked for every element at five
/// times as many places as the one after it.
#[test]
fn faults_4_stencils_grow_with_their_steps() {
    let (few, many) = (check(&stencil(4), &[]), check(&stencil(16), &[]));
    assert!(size(&many) <= 4 * size(&few) + 50, "{} and {}", size(&few), size(&many));
}

/// The same in other forms: shifts, transposes, reversals, tables.
#[test]
fn faults_4_other_movement_grows_with_its_steps() {
    let lines = [
        "x = concat([x[1:], x[:1]], axis: 0) * x",
        "x = reverse(x, axes: [0]) + 0.5 * x",
        "x = transpose(x, perm: [1, 0]) + tanh(x)",
        "x = gather(x, i) + x",
        "x = pad(x[1:], low: [1, 0], high: [0, 0]) * 0.5 + x",
        "x = x - mean(x, axis: 0, keep: true)",
    ];
    for line in lines {
        let make = |n: usize| {
            let body = format!("  {line}\n").repeat(n);
            load(&format!(
                "graph g\nentry f(x: f32[4, 4], i: i32[4]) -> (y: f32[4, 4]) {{\n{body}  return x\n}}\n"
            ))
        };
        let (few, many) = (check(&make(5), &[]), check(&make(20), &[]));
        let (few, many) = (size(&few), size(&many));
        assert!(many <= 4 * few + 60, "{line}: {few} and {many}");
    }
}

/// Windows that overlap store what they read, if it is more than a little work.
#[test]
fn faults_4_overlapping_windows_repeat_no_work() {
    let graph = load(
        "graph g\nentry f(x: f32[1, 2, 8, 8]) -> (y: f32[1, 2, 6, 6]) {\n  \
         return max_pool(exp(x) + sigmoid(x), window: [3, 3], stride: [1, 1], pad: [0, 0, 0, 0])\n}\n",
    );
    let program = check(&graph, &[]);
    let exponentials: i64 =
        program.kernels.iter().map(|k| runs(&k.body, ScalarOp::Elementary(Elementary::Exp))).sum();
    assert_eq!(exponentials, 2 * 8 * 8);
    // Windows that do not overlap compute it on the way.
    let graph = load(
        "graph g\nentry f(x: f32[1, 2, 8, 8]) -> (y: f32[1, 2, 4, 4]) {\n  \
         return max_pool(tanh(x), window: [2, 2], stride: [2, 2], pad: [0, 0, 0, 0])\n}\n",
    );
    assert_eq!(check(&graph, &[]).kernels.len(), 1);
}
