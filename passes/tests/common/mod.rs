//! Networks to optimize: forward, loss, gradients and updates, built in Rust.

#![allow(dead_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::build::Builder;
use tfc_ir::op::Grad;
use tfc_ir::vjp::{Emit, V, term_attrs};
use tfc_ir::{Attr, Attrs, DType, Dim, Func, Graph, Op, TensorType, ValueId};

// Between opaque values and the ids of a function.

fn value(v: V) -> ValueId {
    ValueId::from_u32(v.0)
}

fn index(v: ValueId) -> V {
    V(v.as_u32())
}

/// A function under construction.
pub struct Net {
    func: RefCell<Func>,
    vars: Graph,
    dtype: DType,
}

impl Emit for Net {
    fn emit(&self, op: Op, operands: &[V], attrs: Attrs) -> V {
        let operands: Vec<ValueId> = operands.iter().map(|v| value(*v)).collect();
        let mut func = self.func.borrow_mut();
        let mut b = Builder::new(&mut func, &self.vars.vars);
        match b.emit(op, &operands, attrs) {
            Ok(v) => index(v),
            Err(e) => panic!("{}: {e:?}", op.name()),
        }
    }

    fn ty(&self, v: V) -> TensorType {
        self.func.borrow().ty(value(v)).clone()
    }
}

impl Net {
    pub fn new(dtype: DType) -> Net {
        Net { func: RefCell::new(Func::new("train")), vars: Graph::default(), dtype }
    }

    pub fn e(&self) -> &dyn Emit {
        self
    }

    pub fn param(&self, shape: &[Dim]) -> V {
        self.param_of(self.dtype, shape)
    }

    pub fn param_of(&self, dtype: DType, shape: &[Dim]) -> V {
        let mut func = self.func.borrow_mut();
        let mut b = Builder::new(&mut func, &self.vars.vars);
        index(b.param(TensorType::new(dtype, shape.to_vec()), None))
    }

    /// A parameter of static shape.
    pub fn fixed(&self, shape: &[i64]) -> V {
        let shape: Vec<Dim> = shape.iter().map(|d| Dim::from(*d)).collect();
        self.param(&shape)
    }

    pub fn matmul(&self, a: V, b: V, trans_b: bool) -> V {
        let attrs =
            Attrs::none().with("trans_a", Attr::Bool(false)).with("trans_b", Attr::Bool(trans_b));
        self.emit(Op::MatMul, &[a, b], attrs)
    }

    /// `x + b` along the last axis.
    pub fn bias(&self, x: V, b: V) -> V {
        let shape = self.ty(x).shape;
        let last = shape.len() as i64 - 1;
        self.e().add(x, self.e().broadcast(b, &shape, &[last]))
    }

    pub fn mul_last(&self, x: V, b: V) -> V {
        let shape = self.ty(x).shape;
        let last = shape.len() as i64 - 1;
        self.e().mul(x, self.e().broadcast(b, &shape, &[last]))
    }

    /// Puts a reduced last axis back.
    fn spread(&self, x: V, like: V) -> V {
        let shape = self.ty(like).shape;
        let last = shape.len() as i64 - 1;
        self.e().unreduce(x, &shape, &[last])
    }

    fn reduce(&self, op: Op, x: V) -> V {
        let last = self.ty(x).rank() as i64 - 1;
        let attrs =
            Attrs::none().with("axes", Attr::Ints(vec![last])).with("keep", Attr::Bool(false));
        self.emit(op, &[x], attrs)
    }

    fn shifted(&self, z: V) -> V {
        let top = self.reduce(Op::ReduceMax, z);
        let top = self.emit(Op::StopGradient, &[top], Attrs::none());
        self.e().sub(z, self.spread(top, z))
    }

    /// Over the last axis.
    pub fn softmax(&self, z: V) -> V {
        let e = self.emit(Op::Exp, &[self.shifted(z)], Attrs::none());
        let total = self.reduce(Op::Sum, e);
        self.e().div(e, self.spread(total, e))
    }

    pub fn log_softmax(&self, z: V) -> V {
        let s = self.shifted(z);
        let total = self.reduce(Op::Sum, self.emit(Op::Exp, &[s], Attrs::none()));
        let log = self.emit(Op::Log, &[total], Attrs::none());
        self.e().sub(s, self.spread(log, s))
    }

    pub fn log(&self, x: V) -> V {
        self.emit(Op::Log, &[x], Attrs::none())
    }

    pub fn unary(&self, op: Op, x: V) -> V {
        self.emit(op, &[x], Attrs::none())
    }

    pub fn one_hot(&self, ids: V, depth: i64) -> V {
        let attrs =
            Attrs::none().with("depth", Attr::Int(depth)).with("dtype", Attr::DType(self.dtype));
        self.emit(Op::OneHot, &[ids], attrs)
    }

    /// Mean over rows of minus the log-probability of the label.
    pub fn cross_entropy(&self, log_p: V, labels: V) -> V {
        let ty = self.ty(log_p);
        let depth = ty.shape[ty.rank() - 1].as_const().unwrap();
        let picked = self.e().mul(self.one_hot(labels, depth), log_p);
        let rows = self.e().neg(self.reduce(Op::Sum, picked));
        self.mean_all(rows)
    }

    pub fn mean_all(&self, x: V) -> V {
        let axes = (0..self.ty(x).rank() as i64).collect();
        let attrs = Attrs::none().with("axes", Attr::Ints(axes)).with("keep", Attr::Bool(false));
        self.emit(Op::Mean, &[x], attrs)
    }

    /// Gradients of a scalar, as `vjp` nodes (or zeros).
    pub fn gradients(&self, loss: V, wrt: &[V]) -> Vec<V> {
        let nodes: Vec<_> = {
            let func = self.func.borrow();
            func.regions[func.body].nodes.clone()
        };
        let way = self.on_the_way(wrt);
        let mut ct: BTreeMap<V, V> = BTreeMap::from([(loss, self.e().splat_like(1.0, loss))]);
        for id in nodes.into_iter().rev() {
            let node = self.func.borrow().nodes[id].clone();
            let out = index(node.results[0]);
            let Some(&d) = ct.get(&out) else { continue };
            let Grad::Vjp(_) = node.op.def().grad else { continue };
            for (i, v) in node.operands.iter().enumerate() {
                let operand = index(*v);
                if !self.ty(operand).dtype.is_float() || !way.contains(&operand) {
                    continue;
                }
                let mut args: Vec<V> = node.operands.iter().map(|v| index(*v)).collect();
                args.extend([out, d]);
                let term = self.emit(Op::Vjp, &args, term_attrs(node.op, i, &node.attrs));
                let sum = match ct.get(&operand) {
                    Some(before) => self.e().add(*before, term),
                    None => term,
                };
                ct.insert(operand, sum);
            }
        }
        wrt.iter()
            .map(|v| ct.get(v).copied().unwrap_or_else(|| self.e().splat_like(0.0, *v)))
            .collect()
    }

    /// Values a gradient with respect to `wrt` passes through.
    fn on_the_way(&self, wrt: &[V]) -> BTreeSet<V> {
        let func = self.func.borrow();
        let mut out: BTreeSet<V> = wrt.iter().copied().collect();
        for id in &func.regions[func.body].nodes {
            let node = &func.nodes[*id];
            if matches!(node.op.def().grad, Grad::Vjp(_))
                && node.operands.iter().any(|v| out.contains(&index(*v)))
            {
                out.insert(index(node.results[0]));
            }
        }
        out
    }

    /// `w - rate * g` for every parameter.
    pub fn sgd(&self, loss: V, weights: &[V]) -> Vec<V> {
        let grads = self.gradients(loss, weights);
        let step =
            |(w, g): (&V, V)| self.e().sub(*w, self.e().mul(g, self.e().splat_like(0.01, g)));
        weights.iter().zip(grads).map(step).collect()
    }

    pub fn finish(self, results: &[V]) -> Graph {
        let mut func = self.func.into_inner();
        let body = func.body;
        func.regions[body].results = results.iter().map(|v| value(*v)).collect();
        func.result_names = (0..results.len()).map(|i| format!("r{i}")).collect();
        let mut graph = Graph { name: "net".into(), ..Graph::default() };
        graph.dims.push(tfc_ir::graph::DimDecl {
            name: "B".into(),
            min: 1,
            max: i64::MAX,
            span: tfc_ir::diag::Span::NONE,
        });
        graph.entries.push(func);
        graph
    }
}

/// `layers` dense layers with relu, softmax cross-entropy, SGD.
pub fn mlp(dtype: DType, layers: usize, width: i64, classes: i64) -> Graph {
    let net = Net::new(dtype);
    let batch = Dim::constant(32);
    let mut x = net.param(&[batch.clone(), Dim::from(width)]);
    let labels = net.param_of(DType::I32, &[batch]);
    let mut weights = vec![];
    for i in 0..layers {
        let out = if i + 1 == layers { classes } else { width };
        let (w, b) = (net.fixed(&[width, out]), net.fixed(&[out]));
        weights.extend([w, b]);
        x = net.bias(net.matmul(x, w, false), b);
        if i + 1 < layers {
            x = net.unary(Op::Relu, x);
        }
    }
    let loss = net.cross_entropy(net.log_softmax(x), labels);
    let mut results = vec![loss];
    results.extend(net.sgd(loss, &weights));
    net.finish(&results)
}

fn layer_norm(net: &Net, x: V, gain: V, shift: V) -> V {
    let e = net.e();
    let mean = net.reduce(Op::Mean, x);
    let centred = e.sub(x, net.spread(mean, x));
    let var = net.reduce(Op::Mean, e.mul(centred, centred));
    let var = e.add(var, e.splat_like(1e-5, var));
    let scale = net.unary(Op::Rsqrt, var);
    let normal = e.mul(centred, net.spread(scale, x));
    net.bias(net.mul_last(normal, gain), shift)
}

/// A stack of encoder blocks on `[B, T, D]` with a token loss.
pub fn transformer(dtype: DType, layers: usize, d: i64, heads: i64, t: i64) -> Graph {
    let net = Net::new(dtype);
    let e = net.e();
    let (b, hd) = (4i64, d / heads);
    let dims = |s: &[i64]| -> Vec<Dim> { s.iter().map(|d| Dim::from(*d)).collect() };
    let mut x = net.fixed(&[b, t, d]);
    let labels = net.param_of(DType::I32, &dims(&[b * t]));
    let mut weights = vec![];
    let mut weight = |net: &Net, shape: &[i64]| {
        let w = net.fixed(shape);
        weights.push(w);
        w
    };
    let dense = |net: &Net, x: V, w: V, bias: V| {
        let shape = net.ty(x).shape;
        let out = net.ty(w).shape[1].clone();
        let n = shape.len();
        let rows = Dim::product(&shape[..n - 1]);
        let flat = net.e().reshape(x, &[rows, shape[n - 1].clone()]);
        let y = net.bias(net.matmul(flat, w, false), bias);
        let mut full = shape[..n - 1].to_vec();
        full.push(out);
        net.e().reshape(y, &full)
    };
    for _ in 0..layers {
        let (g1, s1) = (weight(&net, &[d]), weight(&net, &[d]));
        let h = layer_norm(&net, x, g1, s1);
        let mut heads_of = |net: &Net| {
            let (w, bias) = (weight(net, &[d, d]), weight(net, &[d]));
            let y = dense(net, h, w, bias);
            let y = net.e().reshape(y, &dims(&[b, t, heads, hd]));
            net.e().transpose(y, &[0, 2, 1, 3])
        };
        let (q, k, v) = (heads_of(&net), heads_of(&net), heads_of(&net));
        let scores = net.matmul(q, k, true);
        let scores = e.mul(scores, e.splat_like(1.0 / (hd as f64).sqrt(), scores));
        let attended = net.matmul(net.softmax(scores), v, false);
        let joined = e.reshape(e.transpose(attended, &[0, 2, 1, 3]), &dims(&[b, t, d]));
        let (wo, bo) = (weight(&net, &[d, d]), weight(&net, &[d]));
        x = e.add(x, dense(&net, joined, wo, bo));
        let (g2, s2) = (weight(&net, &[d]), weight(&net, &[d]));
        let h = layer_norm(&net, x, g2, s2);
        let (w1, b1) = (weight(&net, &[d, 4 * d]), weight(&net, &[4 * d]));
        let (w2, b2) = (weight(&net, &[4 * d, d]), weight(&net, &[d]));
        let h = dense(&net, h, w1, b1);
        let h = e.mul(h, net.unary(Op::Sigmoid, e.mul(h, e.splat_like(1.702, h))));
        x = e.add(x, dense(&net, h, w2, b2));
    }
    let (w, bias) = (weight(&net, &[d, 64]), weight(&net, &[64]));
    let logits = e.reshape(dense(&net, x, w, bias), &dims(&[b * t, 64]));
    let loss = net.cross_entropy(net.log_softmax(logits), labels);
    let mut results = vec![loss];
    results.extend(net.sgd(loss, &weights));
    net.finish(&results)
}

/// Convolutions with batch normalisation and shortcuts.
pub fn resnet(dtype: DType, blocks: usize, channels: i64, size: i64) -> Graph {
    let net = Net::new(dtype);
    let e = net.e();
    let n = 8i64;
    let mut weights = vec![];
    let mut weight = |net: &Net, shape: &[i64]| {
        let w = net.fixed(shape);
        weights.push(w);
        w
    };
    let conv = |net: &Net, x: V, w: V| {
        let attrs = Attrs::none().with("pad", Attr::Ints(vec![1, 1, 1, 1]));
        net.emit(Op::Conv2d, &[x, w], attrs)
    };
    let per_channel = |net: &Net, v: V, like: V| {
        let shape = net.ty(like).shape;
        net.e().broadcast(v, &shape, &[1])
    };
    let norm = |net: &Net, x: V, gain: V, shift: V| {
        let e = net.e();
        let attrs =
            Attrs::none().with("axes", Attr::Ints(vec![0, 2, 3])).with("keep", Attr::Bool(false));
        let mean = net.emit(Op::Mean, &[x], attrs.clone());
        let centred = e.sub(x, per_channel(net, mean, x));
        let var = net.emit(Op::Mean, &[e.mul(centred, centred)], attrs);
        let scale = net.unary(Op::Rsqrt, e.add(var, e.splat_like(1e-5, var)));
        let y = e.mul(centred, per_channel(net, scale, x));
        e.add(e.mul(y, per_channel(net, gain, x)), per_channel(net, shift, x))
    };
    let image = net.fixed(&[n, 3, size, size]);
    let labels = net.param_of(DType::I32, &[Dim::from(n)]);
    let stem = weight(&net, &[channels, 3, 3, 3]);
    let mut x = net.unary(Op::Relu, conv(&net, image, stem));
    for _ in 0..blocks {
        let mut y = x;
        for half in 0..2 {
            let w = weight(&net, &[channels, channels, 3, 3]);
            let (gain, shift) = (weight(&net, &[channels]), weight(&net, &[channels]));
            y = norm(&net, conv(&net, y, w), gain, shift);
            if half == 0 {
                y = net.unary(Op::Relu, y);
            }
        }
        x = net.unary(Op::Relu, e.add(x, y));
    }
    let attrs = Attrs::none().with("axes", Attr::Ints(vec![2, 3])).with("keep", Attr::Bool(false));
    let pooled = net.emit(Op::Mean, &[x], attrs);
    let (w, bias) = (weight(&net, &[channels, 10]), weight(&net, &[10]));
    let logits = net.bias(net.matmul(pooled, w, false), bias);
    let loss = net.cross_entropy(net.log_softmax(logits), labels);
    let mut results = vec![loss];
    results.extend(net.sgd(loss, &weights));
    net.finish(&results)
}
