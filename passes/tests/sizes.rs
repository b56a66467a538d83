//! How large programs come out: kernels grow with the graph, and no work is
//! repeated that could be stored. Everything is counted, nothing timed.

mod support;

use support::check;
use tfc_ir::Graph;
use tfc_ir::kernel::{Elementary, Kernel, ScalarOp, Stmt};
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

/// faults 4: an element of a join is looked for among all operands, so that joining many
/// at once is code for all of them, and work for all of them at every element.
#[test]
fn faults_4_joins_of_many_grow_with_their_number() {
    let make = |count: usize| {
        let parts: Vec<String> = (0..count).map(|i| format!("x * {i}.5")).collect();
        load(&format!(
            "graph g\nentry f(x: f32[3]) -> (y: f32[{}]) {{\n  return concat([{}], axis: 0)\n}}\n",
            3 * count,
            parts.join(", ")
        ))
    };
    let (few, many) = (check(&make(60), &[]), check(&make(240), &[]));
    assert!(size(&many) <= 4 * size(&few) + 60, "{} and {}", size(&few), size(&many));
    let chosen: i64 = many.kernels.iter().map(|k| runs(&k.body, ScalarOp::Select)).sum();
    // Two levels of up to 16 for 720 elements.
    assert!(chosen <= 2 * 16 * 720, "{chosen}");
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

/// What a program's operations cost, all loops counted, but for those below `least`.
fn work(program: &Program, least: u32) -> i64 {
    fn of(body: &[Stmt], least: u32) -> i64 {
        let one = |s: &Stmt| match s {
            Stmt::Loop(l) => l.extent.as_const().expect("a known size") * of(&l.body, least),
            Stmt::Op { op, .. } if op.cost() >= least => i64::from(op.cost()),
            _ => 0,
        };
        body.iter().map(one).sum()
    }
    program.kernels.iter().map(|k| of(&k.body, least)).sum()
}

/// A graph of one entry, with the layers at hand.
fn graph(signature: &str, body: &str) -> Graph {
    load(&format!("graph g\nuse nn\nentry f{signature} {{\n{body}}}\n"))
}

fn entry(signature: &str, body: &str) -> Program {
    check(&graph(signature, body), &[])
}

/// A pool over normalised channels asks for most of them more than once.
#[test]
fn pooling_does_not_repeat_what_it_pools() {
    let x = "(x: f32[1, 6, 9, 9]) -> (y: f32[1, 6";
    let lrn = "  x = nn.lrn(x, radius: 2, k: 2.0, alpha: 0.5, beta: 0.75)\n";
    let alone = entry(&format!("{x}, 9, 9])"), &format!("{lrn}  return x\n"));
    assert!(work(&alone, 4) > 0);
    for (stride, size) in [(2, 4), (1, 7)] {
        let pool = format!("  x = max_pool(x, window: [3, 3], stride: [{stride}, {stride}])\n");
        let both = entry(&format!("{x}, {size}, {size}])"), &format!("{lrn}{pool}  return x\n"));
        // A single multiplication may be done again, a power or a division not.
        assert_eq!(work(&both, 4), work(&alone, 4), "stride {stride}");
    }
}

/// The backward pass of a pool with stride 1 asks for each window nine times; which
/// element of the window was the largest is found once.
#[test]
fn the_gradient_of_a_pool_searches_each_window_once() {
    let geometry = "window: [3, 3], stride: [1, 1], pad: [1, 1, 1, 1]";
    let index = format!("  i = max_pool_index(x, max_pool(x, {geometry}), {geometry})\n");
    let grad = format!("  return max_pool_grad(ct, i, {geometry}, shape: [1, 2, 6, 6])\n");
    let shape = "f32[1, 2, 6, 6]";
    let signature = format!("(x: {shape}) -> (i: i32[1, 2, 6, 6])");
    let searched = work(&entry(&signature, &format!("{index}  return i\n")), 0);
    // Not run: any numbers are not such indices.
    let indices = graph(&format!("(ct: {shape}, i: i32[1, 2, 6, 6]) -> (y: {shape})"), &grad);
    let spread =
        tfc_passes::compile(&indices, &tfc_passes::PassOptions::default()).expect("compiles");
    let spread = work(&spread, 0);
    let signature = format!("(ct: {shape}, x: {shape}) -> (y: {shape})");
    let both = work(&entry(&signature, &format!("{index}{grad}")), 0);
    assert!(both <= searched + spread, "{both} for {searched} and {spread}");
}

/// Kernels that differ by seeds, scales and lengths are one; so is an optimizer.
#[test]
fn kernels_that_differ_by_constants_are_one() {
    let graph = load(
        "graph g\nuse init\nuse optim\n\
         var a: f32[6, 4] = init.normal(std: 0.5)\nvar b: f32[3] = init.normal(std: 0.25)\n\
         var c: f32[2, 5] = init.normal(std: 0.125)\n\
         entry f() -> (y: f32[]) {\n  y = sum(a * a) + sum(b * b) + sum(c * c)\n  \
         minimize y over [a, b, c] with optim.adam(lr: 1e-2)\n  return y\n}\n",
    );
    let program = check(&graph, &[]);
    let text = program.kernels_text();
    let roots = |k: &&Kernel| k.to_string().contains("sqrt.f32");
    let (large, small): (Vec<&Kernel>, Vec<&Kernel>) =
        program.kernels.iter().filter(roots).partition(|k| statements(&k.body) > 60);
    assert_eq!(large.len(), 1, "one generator of random numbers\n{text}");
    assert_eq!(small.len(), 1, "one optimizer\n{text}");
}

/// Which sizes a call accepts is what the text says, whatever passes make of it: a
/// slice of zeros was zeros, also where it began before them.
#[test]
fn what_calls_need_is_what_the_text_needs() {
    let graph = load(
        "graph g\ndim B\nentry f(x: f32[B]) -> (y: f32[1]) {\n  \
         z = zeros(shape: [B], dtype: f32)\n  return z[B - 1:] * 2.0\n}\n",
    );
    let program =
        tfc_passes::compile(&graph, &tfc_passes::PassOptions::default()).expect("compiles");
    let conditions = &program.plan.entries[0].conditions;
    assert!(conditions.iter().any(|c| c.message.contains("B - 1..B")), "{conditions:?}");
}
