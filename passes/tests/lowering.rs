//! Programs made from graphs compute what the interpreter says.

mod support;

use cranelift_entity::EntityRef;
use std::sync::Arc;
use support::check;
use tfc_abi::plan::Step;
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::diag::Span;
use tfc_ir::graph::{DimDecl, Symbol, Var};
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Graph, Op, TensorType, ValueId, VarId};

/// Builds graphs in few words.
struct Make {
    graph: Graph,
}

struct Body<'a> {
    b: Builder<'a>,
}

impl Body<'_> {
    fn op(&mut self, op: Op, operands: &[ValueId], attrs: Attrs) -> ValueId {
        self.b.emit(op, operands, attrs).unwrap_or_else(|e| panic!("{}: {e:?}", op.name()))
    }
    fn map(&mut self, op: Op, operands: &[ValueId]) -> ValueId {
        self.op(op, operands, Attrs::none())
    }
    fn scalar(&mut self, v: f64) -> ValueId {
        let t = tfc_ir::Tensor::splat(DType::F32, vec![], v);
        self.op(Op::Const, &[], Attrs::none().with("value", Attr::Tensor(Arc::new(t))))
    }
    fn broadcast(&mut self, x: ValueId, shape: &[Dim], axes: &[i64]) -> ValueId {
        let attrs = Attrs::none()
            .with("shape", Attr::Shape(shape.to_vec()))
            .with("axes", Attr::Ints(axes.to_vec()));
        self.op(Op::Broadcast, &[x], attrs)
    }
    fn splat(&mut self, v: f64, like: ValueId) -> ValueId {
        let s = self.scalar(v);
        let shape = self.b.func.ty(like).shape.clone();
        self.broadcast(s, &shape, &[])
    }
    fn reduce(&mut self, op: Op, x: ValueId, axes: &[i64], keep: bool) -> ValueId {
        let attrs =
            Attrs::none().with("axes", Attr::Ints(axes.to_vec())).with("keep", Attr::Bool(keep));
        self.op(op, &[x], attrs)
    }
    fn matmul(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.op(Op::MatMul, &[a, b], Attrs::none())
    }
    fn read(&mut self, var: VarId) -> ValueId {
        let spec =
            NodeSpec { var: Some(var), ..NodeSpec::new(Op::Read, &[], Attrs::none(), Span::NONE) };
        let node = self.b.node(spec).expect("a read");
        self.b.func.nodes[node].results[0]
    }
    fn assign(&mut self, var: VarId, value: ValueId) {
        let spec = NodeSpec {
            var: Some(var),
            ..NodeSpec::new(Op::Assign, &[value], Attrs::none(), Span::NONE)
        };
        self.b.node(spec).expect("an assignment");
    }
    fn grad(&mut self, y: ValueId, wrt: &[ValueId]) -> Vec<ValueId> {
        let mut operands = vec![y];
        operands.extend(wrt);
        let node = self
            .b
            .node(NodeSpec::new(Op::Grad, &operands, Attrs::none(), Span::NONE))
            .expect("grad");
        self.b.func.nodes[node].results.clone()
    }
    fn param(&mut self, name: &str, ty: TensorType) -> ValueId {
        self.b.param(ty, Some(name.into()))
    }
    fn shape(&self, v: ValueId) -> Vec<Dim> {
        self.b.func.ty(v).shape.clone()
    }
}

impl Make {
    fn new(dims: &[&str]) -> Make {
        let mut graph = Graph { name: "test".into(), ..Graph::default() };
        for d in dims {
            graph.dims.push(DimDecl { name: (*d).into(), min: 0, max: i64::MAX, span: Span::NONE });
        }
        Make { graph }
    }

    fn var(&mut self, name: &str, shape: &[i64], value: f64) -> VarId {
        let ty = f32(shape);
        let id = self.graph.vars.push(Var {
            name: name.into(),
            ty: ty.clone(),
            symbol: Symbol::Variable,
            user: true,
            device: None,
            span: Span::NONE,
        });
        let vars = self.graph.vars.clone();
        let mut body = Body { b: Builder::new(&mut self.graph.init, &vars) };
        let s = body.scalar(value);
        let v = body.broadcast(s, &ty.shape, &[]);
        let i = body.op(
            Op::Iota,
            &[],
            Attrs::none()
                .with("shape", Attr::Shape(ty.shape.clone()))
                .with("axis", Attr::Int(ty.rank() as i64 - 1))
                .with("dtype", Attr::DType(DType::F32)),
        );
        let scale = body.splat(0.01, v);
        let i = body.map(Op::Mul, &[i, scale]);
        let v = body.map(Op::Add, &[v, i]);
        body.assign(id, v);
        id
    }

    fn entry(&mut self, name: &str, make: impl FnOnce(&mut Body<'_>) -> Vec<ValueId>) {
        let mut func = Func::new(name);
        let vars = self.graph.vars.clone();
        let mut body = Body { b: Builder::new(&mut func, &vars) };
        let results = make(&mut body);
        let region = func.body;
        func.result_names = (0..results.len()).map(|i| format!("r{i}")).collect();
        func.regions[region].results = results;
        self.graph.entries.push(func);
    }
}

fn f32(shape: &[i64]) -> TensorType {
    TensorType::new(DType::F32, shape.iter().map(|d| Dim::constant(*d)).collect::<Vec<_>>())
}

fn batch(rest: &[i64]) -> TensorType {
    let mut shape = vec![Dim::sym("B")];
    shape.extend(rest.iter().map(|d| Dim::constant(*d)));
    TensorType::new(DType::F32, shape)
}

#[test]
fn elementwise_chain_is_one_launch() {
    let mut m = Make::new(&["B"]);
    m.entry("f", |b| {
        let x = b.param("x", batch(&[7]));
        let y = b.param("y", batch(&[7]));
        let s = b.map(Op::Add, &[x, y]);
        let e = b.map(Op::Exp, &[s]);
        let two = b.splat(2.0, e);
        vec![b.map(Op::Mul, &[e, two])]
    });
    for n in [0, 1, 5] {
        let p = check(&m.graph, &[("B", n)]);
        assert_eq!(p.plan.entries[0].steps.len(), 1, "{}", p.plan_text());
        assert_eq!(p.kernels.len(), 1);
        assert!(p.plan.entries[0].slots.is_empty());
    }
}

#[test]
fn bias_and_broadcasts() {
    let mut m = Make::new(&["B"]);
    let w = m.var("w", &[7], 0.5);
    m.entry("f", |b| {
        let x = b.param("x", batch(&[7]));
        let w = b.read(w);
        let shape = b.shape(x);
        let wb = b.broadcast(w, &shape, &[1]);
        let s = b.map(Op::Add, &[x, wb]);
        let t = b.op(Op::Transpose, &[s], Attrs::none().with("perm", Attr::Ints(vec![1, 0])));
        vec![s, t]
    });
    check(&m.graph, &[("B", 4)]);
}

#[test]
fn reductions_by_rows_columns_and_all() {
    let mut m = Make::new(&["B"]);
    m.entry("f", |b| {
        let x = b.param("x", batch(&[3, 5]));
        let e = b.map(Op::Exp, &[x]);
        let rows = b.reduce(Op::Sum, e, &[1, 2], false);
        let cols = b.reduce(Op::Sum, e, &[0], false);
        let mid = b.reduce(Op::ReduceMax, x, &[1], true);
        let all = b.reduce(Op::Sum, e, &[0, 1, 2], false);
        let arg = b.op(Op::ArgMax, &[x], Attrs::none().with("axis", Attr::Int(2)));
        vec![rows, cols, mid, all, arg]
    });
    for n in [0, 1, 4] {
        check(&m.graph, &[("B", n)]);
    }
}

fn softmax(b: &mut Body<'_>, x: ValueId, axis: i64) -> ValueId {
    let shape = b.shape(x);
    let all: Vec<i64> = (0..shape.len() as i64).collect();
    let max = b.reduce(Op::ReduceMax, x, &[axis], true);
    let max = b.broadcast(max, &shape, &all);
    let d = b.map(Op::Sub, &[x, max]);
    let e = b.map(Op::Exp, &[d]);
    let s = b.reduce(Op::Sum, e, &[axis], true);
    let s = b.broadcast(s, &shape, &all);
    b.map(Op::Div, &[e, s])
}

#[test]
fn softmax_is_one_row_kernel() {
    for axis in [0, 1, 2] {
        let mut m = Make::new(&["B"]);
        m.entry("f", |b| {
            let x = b.param("x", batch(&[6, 5]));
            vec![softmax(b, x, axis)]
        });
        let p = check(&m.graph, &[("B", 3)]);
        assert_eq!(p.plan.entries[0].steps.len(), 1, "{}", p.plan_text());
    }
}

fn layer_norm(b: &mut Body<'_>, x: ValueId, n: f64) -> ValueId {
    let shape = b.shape(x);
    let last = shape.len() as i64 - 1;
    let kept: Vec<i64> = (0..last).collect();
    let sum = b.reduce(Op::Sum, x, &[last], false);
    let count = b.splat(n, sum);
    let mean = b.map(Op::Div, &[sum, count]);
    let mean = b.broadcast(mean, &shape, &kept);
    let d = b.map(Op::Sub, &[x, mean]);
    let sq = b.map(Op::Mul, &[d, d]);
    let var = b.reduce(Op::Sum, sq, &[last], false);
    let var = b.map(Op::Div, &[var, count]);
    let eps = b.splat(1e-5, var);
    let var = b.map(Op::Add, &[var, eps]);
    let r = b.map(Op::Rsqrt, &[var]);
    let r = b.broadcast(r, &shape, &kept);
    b.map(Op::Mul, &[d, r])
}

#[test]
fn layer_norm_is_one_row_kernel() {
    let mut m = Make::new(&["B"]);
    m.entry("f", |b| {
        let x = b.param("x", batch(&[16]));
        vec![layer_norm(b, x, 16.0)]
    });
    let p = check(&m.graph, &[("B", 5)]);
    assert_eq!(p.plan.entries[0].steps.len(), 1, "{}", p.plan_text());
}

/// A two-layer classifier with gradients and updates.
fn mlp(optimizer: fn(&mut Body<'_>, &mut Vec<(VarId, ValueId, ValueId)>)) -> Graph {
    let mut m = Make::new(&["B"]);
    let w1 = m.var("w1", &[6, 8], 0.1);
    let b1 = m.var("b1", &[8], 0.0);
    let w2 = m.var("w2", &[8, 3], -0.1);
    for (name, shape) in [("w1", &[6, 8][..]), ("b1", &[8]), ("w2", &[8, 3])] {
        m.var(&format!("{name}.m"), shape, 0.0);
        m.var(&format!("{name}.v"), shape, 0.0);
    }
    let logits = |b: &mut Body<'_>, x: ValueId| {
        let (w1, b1, w2) = (b.read(w1), b.read(b1), b.read(w2));
        let h = b.matmul(x, w1);
        let shape = b.shape(h);
        let bias = b.broadcast(b1, &shape, &[1]);
        let h = b.map(Op::Add, &[h, bias]);
        let h = b.map(Op::Relu, &[h]);
        (b.matmul(h, w2), vec![w1, b1, w2])
    };
    m.entry("predict", |b| {
        let x = b.param("x", batch(&[6]));
        let (z, _) = logits(b, x);
        let class = b.op(Op::ArgMax, &[z], Attrs::none().with("axis", Attr::Int(1)));
        vec![class, z]
    });
    m.entry("train", |b| {
        let x = b.param("x", batch(&[6]));
        let y = b.param("y", batch(&[3]));
        let (z, params) = logits(b, x);
        let p = softmax(b, z, 1);
        let l = b.map(Op::Log, &[p]);
        let l = b.map(Op::Mul, &[l, y]);
        let loss = b.op(Op::Mean, &[l], Attrs::none().with("axes", Attr::Ints(vec![0, 1])));
        let loss = b.map(Op::Neg, &[loss]);
        let grads = b.grad(loss, &params);
        let mut list: Vec<(VarId, ValueId, ValueId)> =
            [w1, b1, w2].into_iter().zip(params).zip(grads).map(|((v, p), g)| (v, p, g)).collect();
        optimizer(b, &mut list);
        vec![loss]
    });
    m.graph
}

fn sgd(b: &mut Body<'_>, list: &mut Vec<(VarId, ValueId, ValueId)>) {
    for (var, w, g) in list.drain(..) {
        let lr = b.splat(0.1, w);
        let step = b.map(Op::Mul, &[g, lr]);
        let new = b.map(Op::Sub, &[w, step]);
        b.assign(var, new);
    }
}

#[test]
fn training_updates_in_place() {
    let graph = mlp(sgd);
    let p = check(&graph, &[("B", 4)]);
    let train = &p.plan.entries[1];
    let copies = train.steps.iter().filter(|s| matches!(s, Step::Copy { .. })).count();
    assert_eq!(copies, 0, "{}", p.plan_text());
    check(&graph, &[("B", 1)]);
    if std::env::var_os("SHOW").is_some() {
        println!("{}", p.plan_text());
    }
}

fn adam(b: &mut Body<'_>, list: &mut Vec<(VarId, ValueId, ValueId)>) {
    // The slots are the first variables declared; see `adam_is_one_kernel`.
    let slots: Vec<VarId> = (3..).map(VarId::new).take(2 * list.len()).collect();
    for (i, (var, w, g)) in list.drain(..).enumerate() {
        let (m, v) = (slots[2 * i], slots[2 * i + 1]);
        let mix = |b: &mut Body<'_>, slot: VarId, x: ValueId, beta: f64| {
            let old = b.read(slot);
            let (keep, take) = (b.splat(beta, x), b.splat(1.0 - beta, x));
            let (old, x) = (b.map(Op::Mul, &[old, keep]), b.map(Op::Mul, &[x, take]));
            let new = b.map(Op::Add, &[old, x]);
            b.assign(slot, new);
            new
        };
        let m = mix(b, m, g, 0.9);
        let gg = b.map(Op::Mul, &[g, g]);
        let v = mix(b, v, gg, 0.99);
        let root = b.map(Op::Sqrt, &[v]);
        let eps = b.splat(1e-3, root);
        let root = b.map(Op::Add, &[root, eps]);
        let step = b.map(Op::Div, &[m, root]);
        let lr = b.splat(0.01, step);
        let step = b.map(Op::Mul, &[step, lr]);
        let new = b.map(Op::Sub, &[w, step]);
        b.assign(var, new);
    }
}

#[test]
fn adam_updates_in_place() {
    let graph = mlp(adam);
    let p = check(&graph, &[("B", 4)]);
    let train = &p.plan.entries[1];
    let copies = train.steps.iter().filter(|s| matches!(s, Step::Copy { .. })).count();
    assert_eq!(copies, 0, "{}", p.plan_text());
    if std::env::var_os("SHOW").is_some() {
        println!("{}", p.plan_text());
    }
}

#[test]
fn old_and_new_values_of_a_variable() {
    let mut m = Make::new(&[]);
    let w = m.var("w", &[5], 1.0);
    m.entry("f", |b| {
        let old = b.read(w);
        let two = b.splat(2.0, old);
        let new = b.map(Op::Mul, &[old, two]);
        b.assign(w, new);
        let now = b.read(w);
        // The old value is needed after the write.
        let both = b.map(Op::Sub, &[now, old]);
        vec![both, old, now]
    });
    check(&m.graph, &[]);
}

#[test]
fn reversing_a_variable_needs_a_copy() {
    let mut m = Make::new(&[]);
    let w = m.var("w", &[5], 1.0);
    m.entry("f", |b| {
        let old = b.read(w);
        let r = b.op(Op::Reverse, &[old], Attrs::none().with("axes", Attr::Ints(vec![0])));
        b.assign(w, r);
        vec![]
    });
    m.entry("swap", |b| {
        let old = b.read(w);
        let r = b.op(Op::Reverse, &[old], Attrs::none().with("axes", Attr::Ints(vec![0])));
        let s = b.map(Op::Add, &[old, r]);
        b.assign(w, s);
        vec![s]
    });
    check(&m.graph, &[]);
}

#[test]
fn narrow_types_round_after_every_op() {
    for dtype in [DType::F16, DType::BF16, DType::I8, DType::U8] {
        let mut m = Make::new(&["B"]);
        m.entry("f", |b| {
            let ty = TensorType::new(dtype, vec![Dim::sym("B"), Dim::constant(3)]);
            let x = b.param("x", ty);
            let y = b.map(Op::Mul, &[x, x]);
            let y = b.map(Op::Mul, &[y, y]);
            let z = b.map(Op::Sub, &[y, x]);
            let s = b.reduce(Op::Sum, z, &[0], false);
            vec![z, s]
        });
        check(&m.graph, &[("B", 5)]);
    }
}

#[test]
fn second_derivatives() {
    let mut m = Make::new(&["B"]);
    m.entry("f", |b| {
        let x = b.param("x", batch(&[3]));
        let e = b.map(Op::Exp, &[x]);
        let y = b.map(Op::Mul, &[e, x]);
        let s = b.reduce(Op::Sum, y, &[0, 1], false);
        let g = b.grad(s, &[x])[0];
        let gs = b.reduce(Op::Sum, g, &[0, 1], false);
        let gg = b.grad(gs, &[x])[0];
        vec![g, gg]
    });
    check(&m.graph, &[("B", 2)]);
}

#[test]
fn programs_are_the_same_every_time() {
    let graph = mlp(sgd);
    let options = tfc_passes::PassOptions::default();
    let a = tfc_passes::compile(&graph, &options).expect("compiles");
    let b = tfc_passes::compile(&graph, &options).expect("compiles");
    assert_eq!(a.plan.encode(), b.plan.encode());
    assert_eq!(format!("{:?}", a.kernels), format!("{:?}", b.kernels));
}

impl Body<'_> {
    /// A region of a node to come; `make` gets its parameters.
    fn region(
        &mut self,
        params: &[ValueId],
        make: impl FnOnce(&mut Body<'_>, &[ValueId]) -> Vec<ValueId>,
    ) -> tfc_ir::RegionId {
        let types: Vec<TensorType> = params.iter().map(|v| self.b.func.ty(*v).clone()).collect();
        let region = self.b.func.regions.push(Default::default());
        let mut inner = Body {
            b: Builder { func: self.b.func, vars: self.b.vars, region, origin: Default::default() },
        };
        let values: Vec<ValueId> = types.into_iter().map(|t| inner.b.param(t, None)).collect();
        let results = make(&mut inner, &values);
        self.b.func.regions[region].results = results;
        region
    }

    fn structured(
        &mut self,
        op: Op,
        operands: &[ValueId],
        regions: Vec<tfc_ir::RegionId>,
    ) -> Vec<ValueId> {
        let spec = NodeSpec { regions, ..NodeSpec::new(op, operands, Attrs::none(), Span::NONE) };
        let node = self.b.node(spec).unwrap_or_else(|e| panic!("{e:?}"));
        self.b.func.nodes[node].results.clone()
    }

    fn at_most(&mut self, x: ValueId, limit: f64) -> ValueId {
        let l = self.scalar(limit);
        self.map(Op::Le, &[x, l])
    }
}

#[test]
fn branches() {
    let mut m = Make::new(&["B"]);
    let w = m.var("w", &[3], 1.0);
    m.entry("f", |b| {
        let x = b.param("x", batch(&[3]));
        let s = b.reduce(Op::Sum, x, &[0, 1], false);
        let small = b.at_most(s, 0.3);
        let e = b.map(Op::Exp, &[x]);
        let then = b.region(&[], |b, _| {
            let y = b.map(Op::Add, &[e, x]);
            let old = b.read(w);
            let new = b.map(Op::Add, &[old, old]);
            b.assign(w, new);
            vec![y, s]
        });
        let other = b.region(&[], |b, _| {
            let t = b.map(Op::Neg, &[s]);
            vec![x, t]
        });
        let r = b.structured(Op::If, &[small], vec![then, other]);
        let z = b.map(Op::Mul, &[r[0], e]);
        vec![z, r[1]]
    });
    for n in [1, 2, 5] {
        check(&m.graph, &[("B", n)]);
    }
}

#[test]
fn loops_carry_and_swap() {
    let mut m = Make::new(&[]);
    let w = m.var("w", &[4], 1.0);
    m.entry("fibonacci", |b| {
        let x = b.param("x", f32(&[4]));
        let y = b.param("y", f32(&[4]));
        let i = b.scalar(0.0);
        let carried = [i, x, y, x];
        let cond = b.region(&carried, |b, c| vec![b.at_most(c[0], 6.0)]);
        let body = b.region(&carried, |b, c| {
            let one = b.scalar(1.0);
            let i = b.map(Op::Add, &[c[0], one]);
            let s = b.map(Op::Add, &[c[1], c[2]]);
            // Two values change places, one is summed, outside values are used.
            let t = b.map(Op::Mul, &[s, y]);
            vec![i, c[2], c[1], t]
        });
        b.structured(Op::While, &carried, vec![cond, body])
    });
    m.entry("state", |b| {
        let old = b.read(w);
        let i = b.scalar(0.0);
        let acc = b.splat(0.0, old);
        let carried = [i, acc];
        let cond = b.region(&carried, |b, c| vec![b.at_most(c[0], 3.0)]);
        let body = b.region(&carried, |b, c| {
            let one = b.scalar(1.0);
            let i = b.map(Op::Add, &[c[0], one]);
            let now = b.read(w);
            // `old` is the value from before the loop in every round.
            let sum = b.map(Op::Add, &[now, old]);
            let acc = b.map(Op::Add, &[c[1], sum]);
            let half = b.splat(0.5, now);
            let new = b.map(Op::Mul, &[now, half]);
            b.assign(w, new);
            vec![i, acc]
        });
        b.structured(Op::While, &carried, vec![cond, body])
    });
    check(&m.graph, &[]);
}

#[test]
fn nested_loops_and_branches() {
    let mut m = Make::new(&[]);
    m.entry("f", |b| {
        let x = b.param("x", f32(&[3]));
        let i = b.scalar(0.0);
        let carried = [i, x];
        let cond = b.region(&carried, |b, c| vec![b.at_most(c[0], 4.0)]);
        let body = b.region(&carried, |b, c| {
            let one = b.scalar(1.0);
            let next = b.map(Op::Add, &[c[0], one]);
            let early = b.at_most(c[0], 1.5);
            let then = b.region(&[], |b, _| {
                let j = b.scalar(0.0);
                let inner = [j, c[1]];
                let cond = b.region(&inner, |b, k| {
                    // The inner bound is the outer counter.
                    vec![b.map(Op::Lt, &[k[0], c[0]])]
                });
                let body = b.region(&inner, |b, k| {
                    let one = b.scalar(1.0);
                    let j = b.map(Op::Add, &[k[0], one]);
                    let s = b.map(Op::Add, &[k[1], x]);
                    vec![j, s]
                });
                vec![b.structured(Op::While, &inner, vec![cond, body])[1]]
            });
            let other = b.region(&[], |b, _| vec![b.map(Op::Neg, &[c[1]])]);
            let y = b.structured(Op::If, &[early], vec![then, other])[0];
            let y = b.map(Op::Mul, &[y, x]);
            vec![next, y]
        });
        b.structured(Op::While, &carried, vec![cond, body])
    });
    let p = check(&m.graph, &[]);
    if std::env::var_os("SHOW").is_some() {
        println!("{}", p.plan_text());
    }
}

#[test]
fn a_function_with_its_own_gradient() {
    let mut m = Make::new(&["B"]);
    m.entry("f", |b| {
        let x = b.param("x", batch(&[3]));
        let forward = b.region(&[x], |b, p| vec![b.map(Op::Exp, &[p[0]])]);
        // Three times the true one.
        let backward = b.region(&[x, x, x], |b, p| {
            let three = b.splat(3.0, p[0]);
            let t = b.map(Op::Mul, &[p[1], p[2]]);
            vec![b.map(Op::Mul, &[t, three])]
        });
        let y = b.structured(Op::CustomGrad, &[x], vec![forward, backward])[0];
        let s = b.reduce(Op::Sum, y, &[0, 1], false);
        let g = b.grad(s, &[x])[0];
        vec![y, g]
    });
    let p = check(&m.graph, &[("B", 2)]);
    let x = support::feed(DType::F32, &[2, 3], 5);
    let out = support::Machine::new(&p).call(&p, "f", &[x]);
    for (y, g) in out[0].to_f64().into_iter().zip(out[1].to_f64()) {
        assert!((g - 3.0 * y).abs() < 1e-5 * g.abs());
    }
}

fn load(text: &str) -> Graph {
    let (graph, diags, _) = tfc_ir::text::load_str("test.graph", text);
    graph.unwrap_or_else(|| panic!("{:?}", diags.iter().map(|d| &d.message).collect::<Vec<_>>()))
}

#[test]
fn the_mlp_example() {
    let text = include_str!("../../examples/mlp.graph");
    // Smaller, for the interpreter's sake.
    let text = text.replace("784", "20").replace("512", "16");
    let graph = load(&text);
    for n in [1, 7] {
        let p = check(&graph, &[("B", n)]);
        if std::env::var_os("SHOW").is_some() {
            println!("{}", p.plan_text());
        }
    }
}
