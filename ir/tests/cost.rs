//! Costs against counts by hand.

use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::cost::{self, Cost, Size};
use tfc_ir::diag::Span;
use tfc_ir::graph::{Region, Symbol, Var};
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Graph, Op, TensorType, ValueId};

fn n(v: i64) -> Dim {
    Dim::constant(v)
}

fn b() -> Dim {
    Dim::sym("B")
}

fn f32s(shape: &[Dim]) -> TensorType {
    TensorType::new(DType::F32, shape.to_vec())
}

/// The cost of one op on float operands of these shapes.
fn of(op: Op, operands: &[TensorType], attrs: Attrs) -> Cost {
    let vars = Default::default();
    let mut func = Func::new("f");
    let mut builder = Builder::new(&mut func, &vars);
    let params: Vec<ValueId> = operands.iter().map(|ty| builder.param(ty.clone(), None)).collect();
    builder.emit(op, &params, attrs).unwrap();
    let costs = cost::per_node(&Graph::default(), &func);
    assert_eq!(costs.len(), 1);
    assert_eq!(costs[0].1, cost::total(&Graph::default(), &func));
    costs[0].1.clone()
}

fn triple(cost: Cost) -> [String; 3] {
    [cost.flops.to_string(), cost.read.to_string(), cost.written.to_string()]
}

#[test]
fn contractions() {
    // 2 m n k, however operands are stored.
    let (a, w) = (f32s(&[b(), n(784)]), f32s(&[n(784), n(512)]));
    let c = of(Op::MatMul, &[a, w], Attrs::none());
    assert_eq!(triple(c), ["802816 * B", "3136 * B + 1605632", "2048 * B"]);
    let (a, w) = (f32s(&[n(5), n(3), n(2)]), f32s(&[n(5), n(4), n(3)]));
    let both = Attrs::none().with("trans_a", Attr::Bool(true)).with("trans_b", Attr::Bool(true));
    let c = of(Op::MatMul, &[a, w], both);
    assert_eq!(c.flops, n(2 * 5 * 2 * 4 * 3));
    // 2 N O Ho Wo (C / groups) kh kw: 8 x 8 images, 16 channels in 2
    // groups to 32, windows of 3 x 5.
    let (x, f) = (f32s(&[b(), n(16), n(8), n(8)]), f32s(&[n(32), n(8), n(3), n(5)]));
    let attrs = Attrs::none().with("groups", Attr::Int(2));
    let attrs = attrs.with("pad", Attr::Ints(vec![1, 1, 2, 2]));
    let attrs = attrs.with("stride", Attr::Ints(vec![2, 1]));
    let flops = n(2 * 32 * 4 * 8 * 8 * 3 * 5) * b();
    let c = of(Op::Conv2d, &[x.clone(), f.clone()], attrs.clone());
    assert_eq!(c.flops, flops);
    assert_eq!(c.written, n(4 * 32 * 4 * 8) * b());
    // Both gradients are as much work.
    let out = f32s(&[b(), n(32), n(4), n(8)]);
    let shape = attrs.clone().with("shape", Attr::Shape(x.shape.clone()));
    assert_eq!(of(Op::Conv2dGradInput, &[out.clone(), f], shape).flops, flops);
    let kernel = attrs.with("kernel", Attr::Ints(vec![3, 5]));
    assert_eq!(of(Op::Conv2dGradFilter, &[x, out], kernel).flops, flops);
}

#[test]
fn elementwise_and_reductions() {
    let x = || f32s(&[b(), n(10)]);
    assert_eq!(triple(of(Op::Add, &[x(), x()], Attrs::none())), ["10 * B", "80 * B", "40 * B"]);
    assert_eq!(of(Op::Exp, &[x()], Attrs::none()).flops, n(100) * b());
    let narrow = Attrs::none().with("to", Attr::DType(DType::BF16));
    assert_eq!(triple(of(Op::Cast, &[x()], narrow)), ["0", "40 * B", "20 * B"]);
    let last = Attrs::none().with("axes", Attr::Ints(vec![1]));
    assert_eq!(triple(of(Op::Sum, &[x()], last.clone())), ["10 * B", "40 * B", "4 * B"]);
    let axis = Attrs::none().with("axis", Attr::Int(0));
    assert_eq!(of(Op::CumSum, &[x()], axis).flops, n(10) * b());
    // A mean is a sum and a division (or a product) for each result.
    assert_eq!(of(Op::Mean, &[x()], last).flops, n(11) * b());
}

#[test]
fn movement_is_bytes_only() {
    let x = || f32s(&[n(1000), n(8)]);
    let ids = TensorType::new(DType::I32, vec![b()]);
    assert_eq!(triple(of(Op::Gather, &[x(), ids], Attrs::none())), ["0", "36 * B", "32 * B"]);
    let first = Attrs::none()
        .with("starts", Attr::Shape(vec![n(0), n(0)]))
        .with("ends", Attr::Shape(vec![n(10), n(8)]))
        .with("strides", Attr::Ints(vec![1, 1]));
    assert_eq!(triple(of(Op::Slice, &[x()], first)), ["0", "320", "320"]);
    let flat = Attrs::none().with("shape", Attr::Shape(vec![n(8000)]));
    assert_eq!(of(Op::Reshape, &[x()], flat), Cost::zero());
    let (ids, rows) = (TensorType::new(DType::I64, vec![n(3)]), f32s(&[n(3), n(8)]));
    let scatter = of(Op::ScatterAdd, &[x(), ids, rows], Attrs::none());
    assert_eq!(triple(scatter), ["24", "32120", "32000"]);
}

#[test]
fn windows() {
    let x = || f32s(&[n(2), n(3), n(8), n(8)]);
    let attrs = || Attrs::none().with("window", Attr::Ints(vec![2, 2]));
    let image = || attrs().with("shape", Attr::Shape(x().shape));
    let out = || f32s(&[n(2), n(3), n(4), n(4)]);
    assert_eq!(of(Op::MaxPool, &[x()], attrs()).flops, n(96 * 4));
    assert_eq!(of(Op::AvgPool, &[x()], attrs()).flops, n(96 * 5));
    assert_eq!(of(Op::AvgPoolGrad, &[out()], image()).flops, n(96 * 5));
}

/// A variable of 100 rows, an optimizer's slot, and an entry that reads, adds
/// rows and branches.
#[test]
fn state_and_regions() {
    let mut graph = Graph::default();
    let mut var = |name: &str, user, shape: &[Dim]| {
        let ty = f32s(shape);
        let name = name.to_string();
        graph.vars.push(Var {
            name,
            ty,
            symbol: Symbol::Variable,
            user,
            device: None,
            span: Span::NONE,
        })
    };
    let table = var("table", true, &[n(100), n(8)]);
    let slot = var("adam.m", false, &[n(100), n(8)]);
    let unused = var("unused", true, &[n(7)]);
    let mut func = Func::new("f");
    let mut builder = Builder::new(&mut func, &graph.vars);
    let ids = builder.param(TensorType::new(DType::I32, vec![b()]), None);
    let rows = builder.param(f32s(&[b(), n(8)]), None);
    let cond = builder.param(TensorType::scalar(DType::Bool), None);
    let with_var = |b: &mut Builder<'_>, op, operands: &[ValueId], var| {
        let mut spec = NodeSpec::new(op, operands, Attrs::none(), Span::NONE);
        spec.var = Some(var);
        b.node(spec).unwrap()
    };
    let read = with_var(&mut builder, Op::Read, &[], slot);
    let read = builder.func.nodes[read].results[0];
    with_var(&mut builder, Op::ScatterAssignAdd, &[ids, rows], table);
    with_var(&mut builder, Op::AssignSub, &[read], slot);
    // One branch does nothing, the other an exponential.
    let outer = builder.region;
    let branch = |b: &mut Builder<'_>, work: bool| {
        let region = b.func.regions.push(Region::default());
        b.region = region;
        let value = if work { b.emit(Op::Exp, &[rows], Attrs::none()).unwrap() } else { rows };
        b.func.regions[region].results = vec![value];
        b.region = outer;
        region
    };
    let regions = vec![branch(&mut builder, true), branch(&mut builder, false)];
    let mut spec = NodeSpec::new(Op::If, &[cond], Attrs::none(), Span::NONE);
    spec.regions = regions;
    builder.node(spec).unwrap();
    graph.entries.push(func);
    let func = &graph.entries[0];
    let costs: Vec<[String; 3]> =
        cost::per_node(&graph, func).into_iter().map(|(_, c)| triple(c)).collect();
    assert_eq!(costs[0], ["0", "0", "0"]);
    // Rows and ids are read, rows are read and written: not the whole table.
    assert_eq!(costs[1], ["8 * B", "68 * B", "32 * B"]);
    assert_eq!(costs[2], ["800", "6400", "3200"]);
    assert_eq!(costs[3], ["80 * B", "32 * B", "32 * B"]);
    let all = cost::parameters(&graph);
    assert_eq!(all.parameters, Size { count: 807, bytes: 3228 });
    assert_eq!(all.other, Size { count: 800, bytes: 3200 });
    let used = cost::parameters_used(&graph, func);
    assert_eq!((used.parameters.count, used.other.count), (800, 800));
    assert_ne!(unused, table);
}

/// Variables of functions count where a gradient is taken by them; slots, running
/// averages and counters do not.
#[test]
fn parameters_are_what_is_trained() {
    let text = "use init\nuse optim\ndim B\n\
        model layer(x: f32[B, 3]) -> f32[B, 5] {\n var w: f32[3, 5] = init.glorot()\n\
        var seen: f32[5] = zeros\n y = x @ w\n assign(seen, mean(y, axis: 0))\n return y\n}\n\
        entry train(x: f32[B, 3]) -> (loss: f32[]) {\n loss = mean(layer(x))\n\
        minimize loss with optim.momentum()\n return loss\n}\n\
        entry use(x: f32[B, 3]) -> f32[B, 5] {\n return layer(x)\n}\n";
    let (graph, diags, _) = tfc_ir::text::load_str("g.graph", text);
    assert!(diags.is_empty(), "{diags:?}");
    let graph = graph.expect("a graph");
    let all = cost::parameters(&graph);
    assert_eq!((all.parameters.count, all.other.count), (15, 20));
    let used = cost::parameters_used(&graph, &graph.entries[1]);
    assert_eq!((used.parameters.count, used.other.count), (15, 5));
    let total = cost::total(&graph, &graph.entries[1]);
    assert_eq!(total.multiply_adds.to_string(), "15 * B");
}
