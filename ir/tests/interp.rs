//! The interpreter and the verifier on graphs built by hand.

use std::sync::Arc;
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::diag::Span;
use tfc_ir::graph::{DimDecl, Region, Symbol, Var};
use tfc_ir::interp::{self, State};
use tfc_ir::op::Stage;
use tfc_ir::verify::verify;
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Graph, Op, Tensor, TensorType, ValueId, VarId};

fn f32s(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_f64(DType::F32, shape.to_vec(), values.iter().copied())
}

fn ty(dtype: DType, shape: &[Dim]) -> TensorType {
    TensorType::new(dtype, shape.to_vec())
}

fn graph() -> Graph {
    let dim = |name: &str, max| DimDecl { name: name.into(), min: 1, max, span: Span::NONE };
    Graph { dims: vec![dim("B", 8), dim("T", i64::MAX)], ..Graph::default() }
}

/// One entry `f`, made by `body` from its parameters.
fn with_entry(
    mut graph: Graph,
    params: &[(&str, TensorType)],
    body: impl FnOnce(&mut Builder<'_>, &[ValueId]) -> Vec<ValueId>,
) -> Graph {
    let mut func = Func::new("f");
    let mut b = Builder::new(&mut func, &graph.vars);
    let params: Vec<ValueId> =
        params.iter().map(|(n, t)| b.param(t.clone(), Some(Arc::from(*n)))).collect();
    let results = body(&mut b, &params);
    func.result_names = (0..results.len()).map(|i| format!("r{i}")).collect();
    func.regions[func.body].results = results;
    graph.entries.push(func);
    graph
}

fn effect(b: &mut Builder<'_>, op: Op, var: Option<VarId>, operands: &[ValueId], attrs: Attrs) {
    let mut spec = NodeSpec::new(op, operands, attrs, Span::NONE);
    spec.var = var;
    b.node(spec).unwrap();
}

fn run(graph: &Graph, feeds: &[Tensor]) -> Result<Vec<Tensor>, interp::Error> {
    assert_eq!(verify(graph, Stage::Core), vec![]);
    interp::run(graph, "f", feeds, &mut State::new(graph).unwrap())
}

#[test]
fn dims_come_from_feeds_and_must_agree() {
    let (b, t) = (Dim::sym("B"), Dim::sym("T"));
    let params = [
        ("x", ty(DType::F32, &[b.clone(), Dim::constant(2)])),
        ("y", ty(DType::F32, std::slice::from_ref(&b))),
        ("z", ty(DType::F32, &[b * t.clone(), t])),
    ];
    let g = with_entry(graph(), &params, |_, p| vec![p[1]]);
    let feeds = |x: &[usize], y: &[usize], z: &[usize]| {
        let feed = |s: &[usize]| Tensor::splat(DType::F32, s.to_vec(), 1.0);
        run(&g, &[feed(x), feed(y), feed(z)])
    };
    assert_eq!(feeds(&[3, 2], &[3], &[12, 4]).unwrap()[0].shape(), [3]);
    let fails = |got: Result<Vec<Tensor>, interp::Error>, code: &str, text: &str| {
        let err = got.unwrap_err();
        assert_eq!((err.code, err.message.as_str()), (code, text));
    };
    fails(
        feeds(&[3, 2], &[4], &[12, 4]),
        "E0506",
        "`B` is 3 in feed `x` (axis 0), but 4 in feed `y` (axis 0)",
    );
    fails(
        feeds(&[3, 5], &[3], &[12, 4]),
        "E0505",
        "axis 1 of feed `x` has size 5, but f32[B, 2] is expected",
    );
    fails(
        feeds(&[3, 2], &[3], &[11, 4]),
        "E0505",
        "axis 0 of feed `z` has size 11, but `B * T` is 12 (with B = 3, T = 4)",
    );
    fails(
        feeds(&[9, 2], &[9], &[9, 1]),
        "E0507",
        "`B` must be from 1 to 8, but axis 0 of feed `x` has size 9",
    );
    fails(
        feeds(&[3, 2], &[3, 1], &[12, 4]),
        "E0504",
        "feed `y` has 2 axes (its shape is [3, 1]), but f32[B] is expected",
    );
    fails(
        run(&g, &[f32s(&[], &[1.0])]),
        "E0501",
        "entry `f` takes 3 feeds (`x`, `y`, `z`), but 1 was given",
    );
    let ints = Tensor::from_i64(DType::I32, vec![3, 2], [0; 6]);
    let rest = [f32s(&[3], &[1.0; 3]), f32s(&[12, 4], &[1.0; 48])];
    let [y, z] = rest;
    fails(
        run(&g, &[ints, y, z]),
        "E0503",
        "feed `x` has elements of i32, but f32[B, 2] is expected",
    );
}

#[test]
fn state_effects_and_their_order() {
    let mut g = graph();
    let var_ty = ty(DType::F32, &[Dim::constant(3), Dim::constant(2)]);
    let var = g.vars.push(Var {
        name: "w".into(),
        ty: var_ty.clone(),
        symbol: Symbol::Variable,
        user: true,
        device: None,
        span: Span::NONE,
    });
    let mut init = Func::default();
    let mut b = Builder::new(&mut init, &g.vars);
    let ones = Tensor::splat(DType::F32, vec![3, 2], 1.0);
    let ones =
        b.emit(Op::Const, &[], Attrs::none().with("value", Attr::Tensor(ones.into()))).unwrap();
    effect(&mut b, Op::Assign, Some(var), &[ones], Attrs::none());
    g.init = init;
    let params = [
        ("ids", ty(DType::I32, &[Dim::sym("B")])),
        ("rows", ty(DType::F32, &[Dim::sym("B"), Dim::constant(2)])),
    ];
    let g = with_entry(g, &params, |b, p| {
        let read = |b: &mut Builder<'_>| {
            let mut spec = NodeSpec::new(Op::Read, &[], Attrs::none(), Span::NONE);
            spec.var = Some(var);
            let node = b.node(spec).unwrap();
            b.func.nodes[node].results[0]
        };
        let before = read(b);
        effect(b, Op::AssignAdd, Some(var), &[before], Attrs::none());
        effect(b, Op::ScatterAssignAdd, Some(var), p, Attrs::none());
        effect(b, Op::Print, None, &[p[0]], Attrs::none().with("label", Attr::Str("ids".into())));
        vec![before, read(b)]
    });
    assert_eq!(verify(&g, Stage::Core), vec![]);
    let mut state = State::new(&g).unwrap();
    let mut shown = vec![];
    let feeds = |ids: [i64; 2]| {
        [Tensor::from_i64(DType::I32, vec![2], ids), f32s(&[2, 2], &[1.0, 2.0, 10.0, 20.0])]
    };
    let out = interp::run_with(&g, "f", &feeds([2, 2]), &mut state, &mut shown).unwrap();
    assert_eq!(out[0].to_f64(), [1.0; 6]);
    assert_eq!(out[1].to_f64(), [2.0, 2.0, 2.0, 2.0, 13.0, 24.0]);
    assert_eq!(String::from_utf8(shown).unwrap(), "ids: i32[2] [2, 2]\n");
    assert_eq!(state.get(var).unwrap(), out[1]);
    let err = interp::run(&g, "f", &feeds([0, 3]), &mut state).unwrap_err();
    assert_eq!(err.code, "E0510");
    assert!(err.message.contains("index 3 is out of range"), "{err}");
    assert_eq!(interp::run(&g, "g", &[], &mut state).unwrap_err().code, "E0911");
    state.set(var, &ones_like(&out[0])).unwrap();
    assert_eq!(state.set(var, &f32s(&[], &[1.0])).unwrap_err().code, "E0604");
}

fn ones_like(t: &Tensor) -> Tensor {
    Tensor::splat(t.dtype(), t.shape().to_vec(), 1.0)
}

/// Collatz: counts steps until 1, with an `if` inside a `while`.
fn collatz() -> Graph {
    let scalar = TensorType::scalar(DType::I64);
    with_entry(graph(), &[("n", scalar.clone())], |b, p| {
        let top = b.region;
        let int = |b: &mut Builder<'_>, v: f64| {
            let t = Tensor::splat(DType::I64, vec![], v);
            b.emit(Op::Const, &[], Attrs::none().with("value", Attr::Tensor(t.into()))).unwrap()
        };
        let emit =
            |b: &mut Builder<'_>, op, args: &[ValueId]| b.emit(op, args, Attrs::none()).unwrap();
        let zero = int(b, 0.0);
        let region = |b: &mut Builder<'_>| {
            b.region = b.func.regions.push(Region::default());
            b.region
        };
        let cond = region(b);
        let (n, _) = (b.param(scalar.clone(), None), b.param(scalar.clone(), None));
        let one = int(b, 1.0);
        let more = emit(b, Op::Ne, &[n, one]);
        b.func.regions[cond].results = vec![more];
        let body = region(b);
        let (n, steps) = (b.param(scalar.clone(), None), b.param(scalar.clone(), None));
        let (one, two, three) = (int(b, 1.0), int(b, 2.0), int(b, 3.0));
        let rem = emit(b, Op::Rem, &[n, two]);
        let odd = emit(b, Op::Eq, &[rem, one]);
        let then = region(b);
        let tripled = emit(b, Op::Mul, &[n, three]);
        let next = emit(b, Op::Add, &[tripled, one]);
        b.func.regions[then].results = vec![next];
        let otherwise = region(b);
        let half = emit(b, Op::Div, &[n, two]);
        b.func.regions[otherwise].results = vec![half];
        b.region = body;
        let mut spec = NodeSpec::new(Op::If, &[odd], Attrs::none(), Span::NONE);
        spec.regions = vec![then, otherwise];
        let chosen = b.node(spec).unwrap();
        let next = b.func.nodes[chosen].results[0];
        let steps = emit(b, Op::Add, &[steps, one]);
        b.func.regions[body].results = vec![next, steps];
        b.region = top;
        let mut spec = NodeSpec::new(Op::While, &[p[0], zero], Attrs::none(), Span::NONE);
        spec.regions = vec![cond, body];
        let node = b.node(spec).unwrap();
        vec![b.func.nodes[node].results[1]]
    })
}

#[test]
fn loops_and_branches() {
    for (n, steps) in [(1, 0), (6, 8), (27, 111)] {
        let feed = Tensor::from_i64(DType::I64, vec![], [n]);
        assert_eq!(run(&collatz(), &[feed]).unwrap()[0].to_i64(), [steps]);
    }
}

#[test]
fn assertions_and_impossible_sizes() {
    let g = with_entry(graph(), &[("c", ty(DType::Bool, &[Dim::sym("B")]))], |b, p| {
        effect(b, Op::Assert, None, p, Attrs::none().with("message", Attr::Str("odd".into())));
        vec![]
    });
    let truth = |v: [i64; 2]| Tensor::from_i64(DType::Bool, vec![2], v);
    assert_eq!(run(&g, &[truth([1, 1])]).unwrap(), vec![]);
    let err = run(&g, &[truth([1, 0])]).unwrap_err();
    assert_eq!((err.code, err.message.as_str()), ("E0509", "assertion failed: odd"));

    let g = with_entry(graph(), &[("x", ty(DType::F32, &[Dim::sym("B")]))], |b, _| {
        let size = Dim::sym("B") - Dim::constant(3);
        vec![b.emit(Op::Iota, &[], Attrs::none().with("shape", Attr::Shape(vec![size]))).unwrap()]
    });
    assert_eq!(run(&g, &[f32s(&[5], &[0.0; 5])]).unwrap()[0].to_i64(), [0, 1]);
    let err = run(&g, &[f32s(&[2], &[0.0; 2])]).unwrap_err();
    assert_eq!(err.code, "E0518");
    let message = "`iota` would give axis 0 a size of B - 3, below zero (with B = 2)";
    assert_eq!(err.message, message);
}

#[test]
fn the_verifier_finds_what_is_broken() {
    let finds = |g: &Graph, text: &str| {
        let found = verify(g, Stage::Core);
        assert!(found.iter().any(|d| d.message.contains(text)), "{text}: {found:?}");
    };
    let good = with_entry(graph(), &[("x", ty(DType::F32, &[Dim::sym("B")]))], |b, p| {
        let y = b.emit(Op::Exp, p, Attrs::none()).unwrap();
        vec![b.emit(Op::Neg, &[y], Attrs::none()).unwrap()]
    });
    assert_eq!(verify(&good, Stage::Core), vec![]);

    let mut g = good.clone();
    let body = g.entries[0].body;
    g.entries[0].regions[body].nodes.reverse();
    finds(&g, "`neg` uses v1, which is not defined there");

    let mut g = good.clone();
    g.entries[0].values[ValueId::from_u32(2)].ty.dtype = DType::F64;
    finds(&g, "`neg` gives (f32[B]), but is said to give (f64[B])");

    let mut g = good.clone();
    g.dims.clear();
    finds(&g, "the dim `B` is not declared");

    let mut g = good.clone();
    let last = *g.entries[0].regions[body].nodes.last().unwrap();
    let first = g.entries[0].regions[body].nodes[0];
    g.entries[0].nodes[last].after.push(first);
    finds(&g, "`neg` has no effect, so it cannot be ordered by `after`");

    let mut g = good.clone();
    g.entries[0].nodes[last].attrs.set("axis", Attr::Int(0));
    finds(&g, "`neg` has no attribute `axis`");

    let mut g = good.clone();
    g.entries[0].regions[body].nodes.push(last);
    finds(&g, "stands in two places");

    let mut g = good.clone();
    g.entries[0].nodes[last].op = Op::Read;
    finds(&g, "`read` names no variable");

    let mut g = good;
    g.entries[0].nodes[last].op = Op::Vjp;
    finds(&g, "`vjp` is not legal at this stage");
}
