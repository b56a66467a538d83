//! What a node costs: arithmetic, bytes and parameters, as expressions over the
//! run-time dims.
//!
//! This is the cost of a node by itself, as it stands in the graph: fusion makes
//! most of the traffic between elementwise nodes go away. Counts are exact where
//! the word means one thing:
//! - a multiply-add is two operations, so a matmul is `2 m n k` and a convolution
//!   (and each of its gradients) `2 N O Ho Wo (C / groups) kh kw`;
//! - an elementwise op is one per element, an elementary function the number in its
//!   table, and `cast` and `select` nothing ([`crate::element`]);
//! - a reduction or scan is one per operand element;
//! - a window of a pooling op is one per element of the window;
//! - moving data is bytes, not arithmetic.

use crate::build::{Builder, GraphEmit};
use crate::element::element_cost;
use crate::graph::{Def, Var};
use crate::lower::{Contraction, Lower, StepKind};
use crate::op::Effect;
use crate::ops::window::Window;
use crate::vjp::{ExpandFn, V};
use crate::{Attrs, Dim, Func, Graph, Node, NodeId, Op, RegionId, TensorType, VarId};
use std::collections::BTreeSet;

#[derive(Clone, Debug, PartialEq)]
pub struct Cost {
    /// Operations on elements; see the module's rules.
    pub flops: Dim,
    /// Multiply-adds of matrix products and convolutions: what papers mostly give
    /// as the cost of a model. They are among the `flops`, twice.
    pub multiply_adds: Dim,
    /// Bytes read from operands and variables.
    pub read: Dim,
    /// Bytes written to results and variables.
    pub written: Dim,
}

impl Cost {
    pub fn zero() -> Cost {
        Cost::new(Dim::constant(0), Dim::constant(0), Dim::constant(0))
    }

    fn new(flops: Dim, read: Dim, written: Dim) -> Cost {
        Cost { flops, multiply_adds: Dim::constant(0), read, written }
    }

    pub fn plus(&self, other: &Cost) -> Cost {
        Cost {
            flops: self.flops.clone() + other.flops.clone(),
            multiply_adds: self.multiply_adds.clone() + other.multiply_adds.clone(),
            read: self.read.clone() + other.read.clone(),
            written: self.written.clone() + other.written.clone(),
        }
    }
}

/// What an op is asked about.
pub struct CostCx<'a> {
    pub op: Op,
    pub attrs: &'a Attrs,
    pub operands: &'a [TensorType],
    pub results: &'a [TensorType],
    /// The type of the variable it reads or writes.
    pub var: Option<&'a TensorType>,
}

/// The cost of an op by itself, its regions not counted.
pub type CostFn = fn(&CostCx<'_>) -> Cost;

impl CostCx<'_> {
    /// How many elements operand `i` has.
    pub fn elements(&self, i: usize) -> Dim {
        self.operands.get(i).map_or(none(), TensorType::elements)
    }

    pub fn result_elements(&self) -> Dim {
        self.results.first().map_or(none(), TensorType::elements)
    }

    fn read(&self) -> Dim {
        self.operands.iter().fold(none(), |sum, ty| sum + bytes(ty))
    }

    fn written(&self) -> Dim {
        self.results.iter().fold(none(), |sum, ty| sum + bytes(ty))
    }
}

/// No operations.
pub fn none() -> Dim {
    Dim::constant(0)
}

/// The cost that follows from how an op is lowered.
pub fn as_lowered(cx: &CostCx<'_>) -> Cost {
    let Some(result) = cx.results.first() else { return counted(cx, none()) };
    match &cx.op.def().lower {
        Lower::Map(_) => {
            let each = element_cost(cx.op, cx.attrs, cx.operands, result).flops;
            counted(cx, result.elements() * Dim::constant(i64::from(each)))
        }
        Lower::Index(_) => counted(cx, none()),
        Lower::Reduce(_) | Lower::Scan(_) | Lower::Call(..) => counted(cx, cx.elements(0)),
        Lower::AddRows => counted(cx, cx.elements(2)),
        Lower::Contract(kind) => {
            let multiply_adds = contraction(*kind, cx.attrs, cx.operands, result);
            let flops = multiply_adds.clone() * Dim::constant(2);
            Cost { multiply_adds, ..counted(cx, flops) }
        }
        Lower::Expand(expand) => Cost {
            read: cx.read(),
            written: cx.written(),
            ..expanded(*expand, cx.attrs, cx.operands)
        },
        // A view, a literal, a variable in its place, or gone before anything runs.
        Lower::Reshape | Lower::Constant | Lower::Step(_) | Lower::Never => Cost::zero(),
    }
}

/// So many operations, all operands read and all results written.
pub fn counted(cx: &CostCx<'_>, flops: Dim) -> Cost {
    Cost::new(flops, cx.read(), cx.written())
}

/// What is picked out of the first operand counts, not the operand.
pub fn picked(cx: &CostCx<'_>) -> Cost {
    let besides = cx.operands.iter().skip(1).fold(none(), |sum, ty| sum + bytes(ty));
    Cost::new(none(), cx.written() + besides, cx.written())
}

/// One operation for each element of so many pooling windows, and `more`.
pub fn windows(cx: &CostCx<'_>, count: Dim, more: i64) -> Cost {
    let window = Window::pool(cx.attrs);
    let each = window.size[0].saturating_mul(window.size[1]).saturating_add(more);
    counted(cx, count * Dim::constant(each))
}

/// A variable is written, and read before that if it is `updated`.
pub fn written(cx: &CostCx<'_>, flops: Dim, updated: bool) -> Cost {
    let var = cx.var.map_or(none(), bytes);
    let read = if updated { cx.read() + var.clone() } else { cx.read() };
    Cost::new(flops, read, var)
}

/// As [`written`], but by the rows touched, whatever the size of the variable.
pub fn rows_written(cx: &CostCx<'_>, updated: bool) -> Cost {
    let rows = cx.operands.get(1).map_or(none(), bytes);
    match updated {
        true => Cost::new(cx.elements(1), cx.read() + rows.clone(), rows),
        false => Cost::new(none(), cx.read(), rows),
    }
}

/// The cost of a node with its regions: of an `if` the branch that costs more
/// (both, where that depends on dims); of a `while` one iteration.
pub fn node(graph: &Graph, func: &Func, node: &Node) -> Cost {
    let types = |values: &[crate::ValueId]| -> Vec<TensorType> {
        values.iter().map(|v| func.ty(*v).clone()).collect()
    };
    let var = node.var.map(|v| &graph.vars[v].ty);
    let cx = CostCx {
        op: node.op,
        attrs: &node.attrs,
        operands: &types(&node.operands),
        results: &types(&node.results),
        var,
    };
    let own = (node.op.def().cost)(&cx);
    let inner: Vec<Cost> = node.regions.iter().map(|r| region(graph, func, *r)).collect();
    match (&node.op.def().lower, inner.as_slice()) {
        (Lower::Step(StepKind::Branch), [then, otherwise]) => {
            let more = |a: &Dim, b: &Dim| (a.clone() - b.clone()).is_never_negative();
            let larger = |a: &Cost, b: &Cost| {
                more(&a.flops, &b.flops) && more(&a.read, &b.read) && more(&a.written, &b.written)
            };
            own.plus(&match (larger(then, otherwise), larger(otherwise, then)) {
                (true, _) => then.clone(),
                (_, true) => otherwise.clone(),
                _ => then.plus(otherwise),
            })
        }
        // The gradient is not run by the function itself.
        (Lower::Never, [forward, _]) => own.plus(forward),
        (_, all) => all.iter().fold(own, |sum, cost| sum.plus(cost)),
    }
}

/// Every node of a function's body in order, regions counted with the node
/// they belong to.
pub fn per_node(graph: &Graph, func: &Func) -> Vec<(NodeId, Cost)> {
    let nodes = &func.regions[func.body].nodes;
    nodes.iter().map(|id| (*id, node(graph, func, &func.nodes[*id]))).collect()
}

pub fn total(graph: &Graph, func: &Func) -> Cost {
    region(graph, func, func.body)
}

fn region(graph: &Graph, func: &Func, region: RegionId) -> Cost {
    let nodes = &func.regions[region].nodes;
    nodes.iter().fold(Cost::zero(), |sum, id| sum.plus(&node(graph, func, &func.nodes[*id])))
}

/// Elements and bytes of variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Size {
    pub count: i64,
    pub bytes: i64,
}

/// What a program keeps between calls: its parameters, and the rest (optimizer
/// slots, running averages, counters).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Parameters {
    pub parameters: Size,
    pub other: Size,
}

/// The variables of a whole program.
pub fn parameters(graph: &Graph) -> Parameters {
    sizes(graph, &parameter_vars(graph), |_| true)
}

/// The variables a function touches, each counted once.
pub fn parameters_used(graph: &Graph, func: &Func) -> Parameters {
    let mut used = BTreeSet::new();
    func.walk(&mut |_, node| used.extend(node.var));
    sizes(graph, &parameter_vars(graph), |id| used.contains(&id))
}

/// Variables that count as parameters: floats that are declared at the top of the
/// graph, or that a gradient is taken by. In a graph without gradients, variables
/// of functions count if no entry writes them.
pub fn parameter_vars(graph: &Graph) -> BTreeSet<VarId> {
    let (mut trained, mut written) = (BTreeSet::new(), BTreeSet::new());
    for func in &graph.entries {
        func.walk(&mut |_, node| {
            if node.op.def().effect == Effect::Write {
                written.extend(node.var);
            }
            if node.op == Op::Grad {
                trained.extend(node.operands.iter().filter_map(|v| match func.values[*v].def {
                    Def::Node(id, _) if func.nodes[id].op == Op::Read => func.nodes[id].var,
                    _ => None,
                }));
            }
        });
    }
    let of_functions = |id: &VarId| match trained.is_empty() {
        true => !written.contains(id),
        false => trained.contains(id),
    };
    let counts =
        |id: &VarId, v: &Var| v.ty.dtype.is_float() && (!v.name.contains('.') || of_functions(id));
    graph.vars.iter().filter(|(id, v)| counts(id, v)).map(|(id, _)| id).collect()
}

fn sizes(
    graph: &Graph,
    parameters: &BTreeSet<VarId>,
    wanted: impl Fn(VarId) -> bool,
) -> Parameters {
    let mut out = Parameters::default();
    let tensors = graph.vars.iter().filter(|(id, var)| wanted(*id) && var.symbol.is_variable());
    for (id, var) in tensors {
        let size = if parameters.contains(&id) { &mut out.parameters } else { &mut out.other };
        let count = var.ty.elements().as_const().unwrap_or(0);
        size.count = size.count.saturating_add(count);
        size.bytes = size.bytes.saturating_add(count.saturating_mul(var.ty.dtype.size() as i64));
    }
    out
}

fn bytes(ty: &TensorType) -> Dim {
    ty.elements() * Dim::constant(ty.dtype.size() as i64)
}

/// Multiply-adds.
fn contraction(
    kind: Contraction,
    attrs: &Attrs,
    operands: &[TensorType],
    result: &TensorType,
) -> Dim {
    let [a, b] = operands else { return Dim::constant(0) };
    match kind {
        Contraction::MatMul => {
            let inner = if attrs.bool("trans_a") { 2 } else { 1 };
            let k = a.rank().checked_sub(inner).map_or(Dim::constant(1), |i| a.shape[i].clone());
            result.elements() * k
        }
        // Output elements times weights per output channel.
        Contraction::Conv2d => result.elements() * per_channel(&b.shape),
        Contraction::Conv2dGradInput => a.elements() * per_channel(&b.shape),
        Contraction::Conv2dGradFilter => b.elements() * per_channel(&result.shape),
    }
}

/// Weights of one output channel of a filter.
fn per_channel(filter: &[Dim]) -> Dim {
    Dim::product(filter.iter().skip(1))
}

/// The cost of what an op is rewritten into.
fn expanded(expand: ExpandFn, attrs: &Attrs, operands: &[TensorType]) -> Cost {
    let vars = Default::default();
    let mut func = Func::new("");
    let mut builder = Builder::new(&mut func, &vars);
    let params: Vec<_> = operands.iter().map(|ty| builder.param(ty.clone(), None)).collect();
    let emit = GraphEmit::new(&mut builder);
    let params: Vec<V> = params.iter().map(|v| emit.opaque(*v)).collect();
    expand(&emit, &params, attrs);
    total(&Graph::default(), &func)
}
