//! The e-graph pass as a whole: what comes out is right, is never more expensive than
//! what went in, says where it came from, and does not grow unnoticed.

mod common;

use common::{Net, mlp, resnet, transformer};
use tfc_ir::diag::SourceMap;
use tfc_ir::op::Stage;
use tfc_ir::vjp::V;
use tfc_ir::{DType, Dim, Graph, Op, Tensor, interp, verify};
use tfc_passes::egraph::{
    FloatMode, Report, Rewriting, explain, extract::Problem, optimize, region,
};

fn options(mode: FloatMode) -> Rewriting {
    Rewriting { mode, explain: true, ..Rewriting::default() }
}

/// Gradient terms written out and nothing else.
fn plain(graph: &Graph) -> Graph {
    let (out, report) = optimize(graph, &Rewriting { expand_only: true, ..Rewriting::default() });
    assert_eq!(report.conflicts, Vec::<String>::new());
    out
}

fn optimized(graph: &Graph, mode: FloatMode) -> (Graph, Report) {
    let (out, report) = optimize(graph, &options(mode));
    assert_eq!(report.conflicts, Vec::<String>::new());
    let diags = verify::verify(&out, Stage::Core);
    assert!(diags.is_empty(), "{diags:?}");
    assert!(
        report.after.cost <= report.before.cost * (1.0 + 1e-9),
        "more expensive than the source: {:?} {:?}",
        report.before,
        report.after
    );
    (out, report)
}

fn feeds(graph: &Graph) -> Vec<Tensor> {
    let func = &graph.entries[0];
    let mut state = 7u64;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    };
    let feed = |v: &tfc_ir::ValueId| {
        let ty = func.ty(*v);
        let shape: Vec<usize> =
            ty.shape.iter().map(|d| d.as_const().unwrap_or(5) as usize).collect();
        let n: usize = shape.iter().product();
        match ty.dtype.is_float() {
            true => {
                let scale = 1.0 / (n as f64).sqrt().max(1.0) * 3.0;
                let values: Vec<f64> = (0..n).map(|_| (next() - 0.5) * scale.max(0.2)).collect();
                Tensor::from_f64(ty.dtype, shape, values)
            }
            false => {
                let values: Vec<i64> = (0..n).map(|_| (next() * 3.0) as i64).collect();
                Tensor::from_i64(ty.dtype, shape, values)
            }
        }
    };
    func.params().iter().map(feed).collect()
}

fn run(graph: &Graph) -> Vec<Tensor> {
    let mut state = interp::State::zeros(graph).unwrap();
    interp::run(graph, "train", &feeds(graph), &mut state).unwrap()
}

fn assert_close(a: &[Tensor], b: &[Tensor], tolerance: f64) {
    assert_eq!(a.len(), b.len());
    for (i, (a, b)) in a.iter().zip(b).enumerate() {
        assert_eq!(a.shape(), b.shape());
        for (x, y) in a.to_f64().into_iter().zip(b.to_f64()) {
            let off = (x - y).abs() / (1.0 + x.abs().max(y.abs()));
            assert!(off <= tolerance, "result {i}: {x} and {y} differ by {off}");
        }
    }
}

fn ops(graph: &Graph) -> Vec<&'static str> {
    let mut out = vec![];
    let literal = |n: &tfc_ir::Node| {
        n.op == Op::Const
            || n.op == Op::Broadcast && graph.entries[0].ty(n.operands[0]).shape.is_empty()
    };
    graph.entries[0].walk(&mut |_, n| {
        if !literal(n) {
            out.push(n.op.name());
        }
    });
    out
}

#[test]
fn optimized_networks_compute_the_same() {
    let nets = [
        mlp(DType::F64, 3, 8, 4),
        transformer(DType::F64, 1, 8, 2, 3),
        resnet(DType::F64, 1, 3, 4),
    ];
    for net in &nets {
        let want = run(&plain(net));
        assert_close(&run(&optimized(net, FloatMode::Strict).0), &want, 0.0);
        assert_close(&run(&optimized(net, FloatMode::Rounding).0), &want, 1e-12);
        assert_close(&run(&optimized(net, FloatMode::Fast).0), &want, 1e-11);
    }
    let net = mlp(DType::F32, 3, 8, 4);
    assert_close(&run(&optimized(&net, FloatMode::Rounding).0), &run(&plain(&net)), 1e-5);
}

/// One rule at a time, on a whole network: a wrong one is named.
#[test]
fn every_rule_alone_keeps_a_network_right() {
    let net = mlp(DType::F64, 2, 5, 4);
    let want = run(&plain(&net));
    let names: Vec<&str> =
        tfc_passes::egraph::rules::table().iter().map(|r| r.name.as_str()).collect();
    let mut wrong = vec![];
    for name in &names {
        let disabled = names.iter().filter(|n| *n != name && !n.starts_with("vjp."));
        let disabled = disabled.map(|n| n.to_string()).collect();
        let (out, _) =
            optimize(&net, &Rewriting { disabled, mode: FloatMode::Fast, ..Rewriting::default() });
        let same = run(&out)
            .iter()
            .zip(&want)
            .all(|(a, b)| a.to_f64().iter().zip(b.to_f64()).all(|(x, y)| (x - y).abs() <= 1e-9));
        if !same {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_second_run_changes_nothing_and_the_first_is_repeatable() {
    let net = mlp(DType::F32, 3, 8, 4);
    let (once, _) = optimized(&net, FloatMode::Rounding);
    let (again, _) = optimized(&net, FloatMode::Rounding);
    assert_eq!(format!("{once:?}"), format!("{again:?}"));
    let (twice, _) = optimized(&once, FloatMode::Rounding);
    assert_eq!(ops(&once).len(), ops(&twice).len());
}

/// Logits, labels and the gradient of the cross-entropy of `log_p(logits)`.
fn cross_entropy(log_p: fn(&Net, V) -> V) -> Graph {
    let net = Net::new(DType::F32);
    let z = net.param(&[Dim::from(6i64), Dim::from(4i64)]);
    let labels = net.param_of(DType::I32, &[Dim::from(6i64)]);
    let loss = net.cross_entropy(log_p(&net, z), labels);
    let grad = net.gradients(loss, &[z]);
    net.finish(&grad)
}

#[test]
fn softmax_cross_entropy_has_the_textbook_gradient() {
    // (softmax(z) - one_hot(y)) / 6, from either way to write the loss.
    let two_steps = cross_entropy(|net, z| net.log(net.softmax(z)));
    let one_step = cross_entropy(|net, z| net.log_softmax(z));
    for net in [&two_steps, &one_step] {
        let (out, report) = optimized(net, FloatMode::Fast);
        let list = ops(&out);
        let explained = explain::text(&report.explanations, &SourceMap::default());
        for gone in ["log", "neg"] {
            assert!(!list.contains(&gone), "{gone} in {list:?}\n{explained}");
        }
        let count = |name: &str| list.iter().filter(|n| **n == name).count();
        assert_eq!(count("exp"), 1, "{list:?}");
        assert_eq!(count("one_hot"), 1, "{list:?}");
        assert_eq!(count("sum"), 1, "only the softmax sums: {list:?}\n{explained}");
        assert!(list.len() <= 13, "{} ops: {list:?}\n{explained}", list.len());
        assert_close(&run(&out), &run(&plain(net)), 1e-6);
    }
    // From log(softmax), the rewrites between gradient terms are part of it.
    let (_, report) = optimized(&two_steps, FloatMode::Fast);
    let all: Vec<&str> = report.explanations.iter().flat_map(|e| e.steps.clone()).collect();
    assert!(all.iter().any(|s| s.starts_with("vjp.")), "{all:?}");
    // Without assuming that labels are in range the rows' weight stays, but
    // neither logarithm nor division by a probability does.
    let (out, _) = optimized(&two_steps, FloatMode::Rounding);
    assert!(!ops(&out).contains(&"log"), "{:?}", ops(&out));
    assert_close(&run(&out), &run(&plain(&two_steps)), 1e-6);
}

/// Cross-entropy in four ways a user may write it, `log(softmax(z))` among them.
const LOSSES: [&str; 4] = [
    "-mean(sum(one_hot(y, depth: 4, dtype: f32) * nn.log_softmax(z), axis: 1))",
    "-mean(sum(one_hot(y, depth: 4, dtype: f32) * log(nn.softmax(z)), axis: 1))",
    "-mean(sum(one_hot(y, depth: 4, dtype: f32) * log(naive(z)), axis: 1))",
    "-mean(gather(reshape(log(nn.softmax(z)), [24]), iota(shape: [6]) * 4 + y))",
];

/// Nothing is divided but by the sum of exponentials, so that a probability of
/// zero gives no NaN: neither by default nor with `--fast-math`.
#[test]
fn no_gradient_divides_by_a_probability() {
    let mut z = vec![0.0; 24];
    // exp(-300) is zero in f32.
    for (i, v) in z.iter_mut().enumerate() {
        *v = if i % 4 == i / 4 % 4 { 0.0 } else { -300.0 * (i % 3) as f64 };
    }
    let labels = [1, 2, 0, 3, 1, 2];
    let feeds = [
        Tensor::from_f64(DType::F32, vec![6, 4], z.clone()),
        Tensor::from_i64(DType::I32, vec![6], labels),
    ];
    let mut want = vec![];
    for (row, label) in z.chunks(4).zip(labels) {
        let top = row.iter().fold(f64::MIN, |a, b| a.max(*b));
        let total: f64 = row.iter().map(|v| (v - top).exp()).sum();
        let one = |i: usize| if i as i64 == label { 1.0 } else { 0.0 };
        want.extend(row.iter().enumerate().map(|(i, v)| ((v - top).exp() / total - one(i)) / 6.0));
    }
    for loss in LOSSES {
        let text = format!(
            "graph g\nuse nn\n\
             func naive(z) {{\n  e = exp(z - max(z, axis: 1, keep: true))\n  return e / sum(e, axis: 1, keep: true)\n}}\n\
             entry train(z: f32[6, 4], y: i32[6]) -> (dz: f32[6, 4]) {{\n  loss = {loss}\n  return grad(loss, wrt: z)\n}}\n"
        );
        let (graph, diags, _) = tfc_ir::text::load_str("g.graph", &text);
        let graph = graph.unwrap_or_else(|| panic!("{diags:?}"));
        for mode in [FloatMode::Rounding, FloatMode::Fast] {
            let egraph = Rewriting { mode, ..Rewriting::default() };
            let options = tfc_passes::PassOptions { egraph, ..Default::default() };
            let names = ["canonicalize", "fold", "cse", "differentiate", "egraph", "dce"];
            let passes = tfc_passes::pipeline::PASSES.iter().filter(|p| names.contains(&p.name));
            let passes: Vec<_> = passes.collect();
            let out =
                tfc_passes::pipeline::run_each(graph.clone(), &passes, &options, &mut |_, _| {});
            let out = out.unwrap_or_else(|d| panic!("{d:?}"));
            let func = &out.entries[0];
            let shown = tfc_ir::text::print(&out);
            func.walk(&mut |_, n| {
                assert!(n.op != Op::Log && n.op != Op::Eq, "{loss}: {shown}");
                if n.op == Op::Div {
                    let mut by = func.def(n.operands[1]).map(|d| &func.nodes[d]);
                    while let Some(n) = by.filter(|n| matches!(n.op, Op::Broadcast | Op::Reshape)) {
                        by = func.def(n.operands[0]).map(|d| &func.nodes[d]);
                    }
                    assert_eq!(by.map(|n| n.op), Some(Op::Sum), "{loss}: {shown}");
                }
            });
            let mut state = interp::State::zeros(&out).unwrap();
            let got = interp::run(&out, "train", &feeds, &mut state).unwrap()[0].to_f64();
            for (g, w) in got.iter().zip(&want) {
                assert!((g - w).abs() < 1e-6, "{loss}: {got:?}\n{want:?}\n{shown}");
            }
        }
    }
}

#[test]
fn the_derivative_of_sigmoid_reuses_the_forward_value() {
    let net = Net::new(DType::F32);
    let x = net.fixed(&[8]);
    let y = net.unary(Op::Sigmoid, x);
    let loss = net.mean_all(y);
    let grads = net.gradients(loss, &[x]);
    let graph = net.finish(&[loss, grads[0]]);
    let (out, report) = optimized(&graph, FloatMode::Rounding);
    let list = ops(&out);
    assert_eq!(list.iter().filter(|n| **n == "sigmoid").count(), 1, "{list:?}");
    assert!(!list.contains(&"exp"), "{list:?}");
    let text = explain::text(&report.explanations, &SourceMap::default());
    assert!(text.contains("train: sigmoid: f32[8] <- sigmoid: as written"), "{text}");
    assert!(text.contains("vjp.sigmoid.0"), "{text}");
    let json = explain::json(&report.explanations, &SourceMap::default());
    assert!(json.lines().all(|l| l.starts_with('{') && l.ends_with('}')), "{json}");
}

#[test]
fn nothing_unwanted_happens_in_strict_mode() {
    let net = Net::new(DType::F32);
    let x = net.fixed(&[8]);
    let e = net.e();
    let y = e.sub(e.mul(x, e.splat_like(3.0, x)), e.mul(x, e.splat_like(5.0, x)));
    let y = e.add(y, e.splat_like(0.0, y));
    let y = e.div(y, e.splat_like(3.0, y));
    let graph = net.finish(&[y]);
    let (out, _) = optimized(&graph, FloatMode::Strict);
    assert_eq!(ops(&out), ops(&graph));
    let (out, _) = optimized(&graph, FloatMode::Rounding);
    assert!(ops(&out).len() < ops(&graph).len(), "{:?}", ops(&out));
}

/// What is proved of an operand does not make a rule exact that rounds.
#[test]
fn powers_of_what_is_not_negative_keep_their_bits_in_strict_mode() {
    let net = Net::new(DType::F32);
    let x = net.fixed(&[8]);
    let e = net.e();
    let base = e.add(e.unary(Op::Abs, x), e.splat_like(1.0, x));
    let powers = [0.75, 0.25, 1.5, -1.75].map(|p| e.binary(Op::Pow, base, e.splat_like(p, base)));
    let graph = net.finish(&powers);
    let roots = |graph: &Graph| {
        let root = |op: &&&str| ["sqrt", "rsqrt"].contains(*op);
        ops(graph).iter().filter(root).count()
    };
    let (out, _) = optimized(&graph, FloatMode::Strict);
    assert_eq!((ops(&out), roots(&out)), (ops(&graph), 0));
    let (out, _) = optimized(&graph, FloatMode::Rounding);
    assert!(roots(&out) > 0, "{:?}", ops(&out));
    // What keeps every bit of such operands is still done.
    let net = Net::new(DType::F32);
    let e = net.e();
    let y = e.unary(Op::Relu, e.unary(Op::Abs, net.fixed(&[8])));
    let graph = net.finish(&[y]);
    assert_eq!(ops(&optimized(&graph, FloatMode::Strict).0), ["abs"]);
}

/// Extraction against trying every combination.
#[test]
fn extraction_is_close_to_the_best_there_is() {
    let nets: Vec<Graph> = vec![
        {
            let net = Net::new(DType::F32);
            let (x, b) = (net.fixed(&[64, 32]), net.fixed(&[32]));
            let y = net.mul_last(net.mul_last(x, b), b);
            net.finish(&[y])
        },
        {
            let net = Net::new(DType::F32);
            let e = net.e();
            let (x, y) = (net.fixed(&[64]), net.fixed(&[64]));
            let z = e.neg(e.sub(e.mul(x, y), e.mul(x, e.neg(y))));
            net.finish(&[z])
        },
        {
            let net = Net::new(DType::F32);
            let e = net.e();
            let x = net.fixed(&[16, 16]);
            let y = e.transpose(e.transpose(e.neg(x), &[1, 0]), &[1, 0]);
            let z = e.add(y, e.mul(y, e.splat_like(2.0, y)));
            let total = e.sum(z, &[0]);
            net.finish(&[z, total])
        },
    ];
    let mut tried = 0;
    for net in nets {
        let func = &net.entries[0];
        for (_, mut s) in region::seed(func, func.body) {
            let limits =
                tfc_passes::egraph::saturate::Limits { nodes: 200, rounds: 20, matches: 1000 };
            let groups = [tfc_ir::rule::Search::Whole, tfc_ir::rule::Search::Broadcasts];
            let rules = tfc_passes::egraph::rules::ids(&groups);
            tfc_passes::egraph::saturate::saturate(&mut s.g, &rules, FloatMode::Fast, limits);
            let problem = Problem::new(&s.g, &s.root_ids(), s.seed, Default::default());
            let found = problem.solve();
            assert!(found.after.cost <= found.before.cost);
            if let Some(best) = problem.exhaustive(2_000_000) {
                tried += 1;
                assert!(found.after.cost <= best * 1.02, "{} but {best}", found.after.cost);
                assert!(found.after.cost >= best * (1.0 - 1e-9));
            }
        }
    }
    assert!(tried >= 2, "only {tried} were small enough to try everything");
}

/// A runner that is rewritten is still a runner.
#[test]
fn runners_stay_runners() {
    let text = "graph g\nqueue q: fifo(f32[2], capacity: 4)\n\
        runner fill() {\n  x = f32[2](1, 2) * 1.0\n  enqueue(q, x * (f32[2](3, 4) + x) + x * x)\n}\n\
        entry take() -> (x: f32[2]) { return dequeue(q) }\n";
    let (graph, diags, _) = tfc_ir::text::load_str("g.graph", text);
    let graph = graph.unwrap_or_else(|| panic!("{diags:?}"));
    for mode in [FloatMode::Rounding, FloatMode::Fast] {
        let (out, report) = optimize(&graph, &options(mode));
        assert!(report.changed);
        let runners = |g: &Graph| g.entries.iter().map(|e| e.runner).collect::<Vec<_>>();
        assert_eq!(runners(&out), runners(&graph));
        assert!(runners(&out).contains(&true));
    }
}

/// E-nodes of whole networks, pinned: a rule that makes the search grow shows
/// up here.
#[test]
fn the_search_stays_small() {
    let cases = [
        ("mlp-50", mlp(DType::F32, 50, 64, 10), 1_400),
        ("transformer-12", transformer(DType::F32, 12, 64, 4, 16), 5_400),
        ("resnet-8", resnet(DType::F32, 8, 16, 16), 2_200),
    ];
    for (name, net, most) in cases {
        let (_, report) = optimized(&net, FloatMode::Rounding);
        let stats = &report.stats;
        println!("{name}: {}", report.timings());
        assert!(stats.nodes <= most, "{name}: {} e-nodes\n{}", stats.nodes, report.timings());
        let saturated = tfc_passes::egraph::saturate::Stop::Saturated;
        assert_eq!(stats.stops.keys().collect::<Vec<_>>(), [&saturated], "{name}");
    }
}

/// The same with pieces: what they cost together is pinned too, and layers that
/// repeat are searched once.
#[test]
fn the_search_of_pieces_stays_small() {
    let cases = [
        ("mlp-50", mlp(DType::F32, 50, 64, 10), 100),
        ("transformer-12", transformer(DType::F32, 12, 64, 4, 16), 16_000),
        ("resnet-8", resnet(DType::F32, 8, 16, 16), 4_000),
    ];
    for (name, net, most) in cases {
        let (_, report) = optimized(&net, FloatMode::Fast);
        let found: usize = report.explored.rules.values().map(|s| s.found).sum();
        let nodes = report.explored.nodes;
        assert!(2 * report.repeated > report.pieces, "{name}: {} again", report.repeated);
        assert!(nodes <= most, "{name}: {nodes} e-nodes\n{}", report.timings());
        assert!(found <= 20 * most, "{name}: {found} instances\n{}", report.timings());
    }
}

fn load(text: &str) -> Graph {
    let (graph, diags, _) = tfc_ir::text::load_str("g.graph", text);
    graph.unwrap_or_else(|| panic!("{diags:?}"))
}

/// One entry of many lines.
fn lines(count: usize, line: fn(usize) -> String) -> Graph {
    let body: String = (0..count).map(line).collect();
    load(&format!("graph g\nentry train(x: f32[8]) -> (y: f32[8]) {{\n{body}  return x\n}}\n"))
}

/// Fast math relies on indices being in range where they are checked, not where the
/// graph says what to do with others.
#[test]
fn indices_that_are_dropped_are_not_taken_for_good_ones() {
    for (bounds, left) in [("check", 0), ("trust", 0), ("drop", 1)] {
        let graph = load(&format!(
            "graph g\nentry f(ids: i32[5]) -> (y: f32[5]) {{\n  \
             return sum(one_hot(ids, depth: 4, bounds: \"{bounds}\"), axis: 1)\n}}\n"
        ));
        let graph = tfc_passes::pipeline::run_passes(&graph, &["checks"]).expect("passes");
        let egraph = Rewriting { mode: FloatMode::Fast, ..Rewriting::default() };
        let (out, _) = optimize(&graph, &egraph);
        let mut sums = 0;
        out.entries[0].walk(&mut |_, node| sums += usize::from(node.op == tfc_ir::Op::Sum));
        assert_eq!(sums, left, "{bounds}");
    }
}

/// faults 4: what constants of a chain add up to travels along it, a line a round, and
/// each round rebuilt the whole e-graph.
#[test]
fn faults_4_rebuilding_grows_with_the_program() {
    let egraph = Rewriting { mode: FloatMode::Fast, ..Rewriting::default() };
    let rebuilt = |count: usize| {
        let (_, report) = optimize(&lines(count, |i| format!("  x = x + {i}.0\n")), &egraph);
        assert_eq!(report.after.ops, 1);
        report.stats.rebuilt
    };
    let (small, large) = (rebuilt(800), rebuilt(3200));
    assert!(large <= 5 * small, "{small} {large}");
}

/// faults 4: long chains with constants were quadratic. E-nodes, rounds and
/// instances of rules grow with the program and no faster.
#[test]
fn faults_4_long_chains_stay_linear() {
    type Chain = fn(usize) -> String;
    let chains: [(&str, Chain); 4] = [
        ("add", |i| format!("  x = x + {i}.0\n")),
        ("mul", |i| format!("  x = x * 1.{i:04}\n")),
        ("both", |i| format!("  x = x * 0.999 + {i}.5\n")),
        ("self", |_| "  x = x + x\n".to_string()),
    ];
    for (name, line) in chains {
        for mode in [FloatMode::Rounding, FloatMode::Fast] {
            let egraph = Rewriting { mode, ..Rewriting::default() };
            let effort = |count: usize| {
                let (_, report) = optimize(&lines(count, line), &egraph);
                assert_eq!(report.conflicts, Vec::<String>::new());
                let found: usize = report.stats.rules.values().map(|r| r.found).sum();
                (report.stats.nodes + found, report.stats.nodes)
            };
            let (small, large) = (effort(100), effort(400));
            assert!(large.0 <= 5 * small.0 + 200, "{name}, {mode:?}: {small:?} {large:?}");
            assert!(large.1 <= 400 * 8, "{name}, {mode:?}: {large:?}");
        }
    }
}

/// The kernels the cost model counts are roughly those that fusion makes: the e-graph
/// compares programs by them.
#[test]
fn the_model_counts_the_kernels_that_come_out() {
    let nets = [
        ("mlp", mlp(DType::F32, 6, 64, 10), 5),
        ("transformer", transformer(DType::F32, 2, 32, 2, 16), 6),
        // Fusion makes one kernel of the sums of a normalisation.
        ("resnet", resnet(DType::F32, 2, 8, 8), 7),
    ];
    for (name, net, most) in nets {
        let (out, report) = optimized(&net, FloatMode::Rounding);
        let passes = ["expand", "simplify", "mincut", "dce"];
        let graph = tfc_passes::run_passes(&out, &passes).expect("the nets compile");
        let program = tfc_passes::lower(&graph, &SourceMap::default()).expect("the nets compile");
        let made: usize = program.plan.entries.iter().map(|e| e.steps.len()).sum();
        let counted = report.after.kernels;
        // Never fewer, and at most so many quarters.
        let near = counted >= made && 4 * counted <= most * made;
        assert!(near, "{name}: {counted} counted, {made} made");
    }
}
