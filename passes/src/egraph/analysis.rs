//! What is known of every class: its type, the value of all its elements if they
//! are one, and proved properties.
//!
//! Equal values have equal types, so a merge of two types is an unsound rule:
//! the first one is kept in [`TensorAnalysis::conflict`] with the rule that did
//! it, and the region is left as it was.

use super::lang::{AttrId, Interner, Node, NodeKind};
use super::range::{self, Range};
use egg::{Analysis, DidMerge, EGraph, Id, Language};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use tfc_ir::eval::Array;
use tfc_ir::facts::Moves;
use tfc_ir::lower::Lower;
use tfc_ir::magnitude::Magnitude;
use tfc_ir::op::{Eval, InferError};
use tfc_ir::rule::{Fact, Rewrite};
use tfc_ir::vjp::{Emit, V};
use tfc_ir::{Attr, Attrs, DType, Op, Tensor, TensorType};

pub type Graph = EGraph<Node, TensorAnalysis>;

#[derive(Clone, Debug)]
pub struct Data {
    pub ty: Arc<TensorType>,
    /// The scalar every element is equal to.
    pub splat: Option<Tensor>,
    pub range: Range,
    /// The class has the literal form of its splat.
    folded: bool,
    /// Some node of the class was written by the user, rather than being part of
    /// a gradient.
    pub user: bool,
}

impl Data {
    pub fn has(&self, fact: Fact) -> bool {
        self.range.facts & fact.bit() != 0
    }
}

/// Two nodes became equal, and why.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    pub from: Id,
    pub to: Id,
    pub rule: RuleId,
}

/// Number of a rule in [`super::rules::table`], or one of the reasons below.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RuleId(pub u16);

impl RuleId {
    /// Part of the program as written.
    pub const SOURCE: RuleId = RuleId(u16::MAX);
    /// Evaluated by the compiler.
    pub const FOLD: RuleId = RuleId(u16::MAX - 1);
}

#[derive(Debug)]
pub struct TensorAnalysis {
    pub attrs: Interner,
    /// Type of the node being added.
    next: Option<Arc<TensorType>>,
    /// Classes that changed since the last search.
    pub dirty: Vec<Id>,
    pub events: Vec<Event>,
    /// Rule at work and the node it started from.
    pub rule: RuleId,
    pub at: Id,
    /// By node: the rule that made it and where it was applied.
    pub made_by: Vec<(RuleId, Id)>,
    pub conflict: Option<String>,
}

impl Default for TensorAnalysis {
    fn default() -> TensorAnalysis {
        TensorAnalysis {
            attrs: Interner::default(),
            next: None,
            dirty: vec![],
            events: vec![],
            rule: RuleId::SOURCE,
            at: Id::from(0),
            made_by: vec![],
            conflict: None,
        }
    }
}

impl Analysis<Node> for TensorAnalysis {
    type Data = Data;

    fn make(g: &mut Graph, node: &Node, id: Id) -> Data {
        // `add` checks types first and leaves the result here.
        let ty = g.analysis.next.take().unwrap_or_else(|| Arc::new(TensorType::scalar(DType::F32)));
        let made_by = &mut g.analysis.made_by;
        made_by.resize(usize::from(id), (RuleId::SOURCE, Id::from(0)));
        made_by.push((g.analysis.rule, g.analysis.at));
        derive(g, node, ty)
    }

    fn remake(g: &mut Graph, node: &Node, id: Id) -> Data {
        let ty = g[id].data.ty.clone();
        derive(g, node, ty)
    }

    fn merge(&mut self, a: &mut Data, b: Data) -> DidMerge {
        if a.ty != b.ty && self.conflict.is_none() {
            let by = super::rules::name(self.rule);
            self.conflict = Some(format!("{by} made {} equal to {}", a.ty, b.ty));
        }
        let range = a.range.and(b.range);
        let mut did = DidMerge(range != a.range, range != b.range);
        a.range = range;
        match (&a.splat, b.splat) {
            (None, Some(b)) => {
                a.splat = Some(b);
                did.0 = true;
            }
            (Some(_), None) => did.1 = true,
            (Some(x), Some(y)) if *x != y => {
                did.1 = true;
                if self.conflict.is_none() && !close(x, &y) {
                    let by = super::rules::name(self.rule);
                    self.conflict = Some(format!("{by} made {x:?} equal to {y:?}"));
                }
            }
            _ => {}
        }
        a.folded |= b.folded;
        a.user |= b.user;
        did
    }

    fn modify(g: &mut Graph, id: Id) {
        g.analysis.dirty.push(id);
        let data = &g[id].data;
        let Some(value) = data.splat.clone().filter(|_| !data.folded) else { return };
        let shape = data.ty.shape.clone();
        g[id].data.folded = true;
        let (rule, at) = (g.analysis.rule, g.analysis.at);
        (g.analysis.rule, g.analysis.at) = (RuleId::FOLD, id);
        let literal = Attrs::none().with("value", Attr::Tensor(Arc::new(value)));
        if let Ok(scalar) = add(g, Op::Const, literal, &[]) {
            let like = Attrs::none()
                .with("shape", Attr::Shape(shape.clone()))
                .with("axes", Attr::Ints(vec![]));
            let full = match shape.is_empty() {
                true => Ok(scalar),
                false => add(g, Op::Broadcast, like, &[scalar]),
            };
            if let Ok(full) = full
                && g.find(full) != g.find(id)
            {
                g.analysis.events.push(Event { from: id, to: full, rule: RuleId::FOLD });
                g.union(id, full);
            }
        }
        (g.analysis.rule, g.analysis.at) = (rule, at);
    }
}

/// Rounding variants of one constant may meet; anything else is unsound.
fn close(a: &Tensor, b: &Tensor) -> bool {
    match (a.to_f64().first(), b.to_f64().first()) {
        (Some(a), Some(b)) if a.is_finite() && b.is_finite() => {
            (a - b).abs() <= 0.02 * a.abs().max(b.abs()).max(1e-30)
        }
        _ => true,
    }
}

fn derive(g: &Graph, node: &Node, ty: Arc<TensorType>) -> Data {
    let mut splat = None;
    let mut range = Range::NOTHING;
    let mut folded = false;
    if let Node::Op { op, attrs, args } = node {
        let attrs = g.analysis.attrs.get(*attrs);
        splat = splat_of(g, *op, attrs, args, &ty);
        range = range::of_node(g, *op, attrs, args, &ty);
        // Already in the form `modify` would add.
        let scalar = |data: &Data| data.folded && data.ty.shape.is_empty();
        folded = match op.def().facts.moves {
            Moves::Repeated => scalar(&g[args[0]].data),
            _ => *op == Op::Const && ty.shape.is_empty(),
        };
    }
    if let Some(v) = splat.as_ref().and_then(|t| t.to_f64().first().copied()) {
        range = range.and(Range::of_splat(v));
    }
    Data { ty, splat, range, folded, user: false }
}

fn splat_of(g: &Graph, op: Op, attrs: &Attrs, args: &[Id], ty: &TensorType) -> Option<Tensor> {
    let def = op.def();
    if op == Op::Const {
        let t = attrs.tensor("value")?;
        let first = t.bytes().get(..t.dtype().size())?;
        t.splat_value()?;
        return Tensor::from_bytes(t.dtype(), vec![], first.into());
    }
    if def.facts.moves.is_move() {
        return g[*args.first()?].data.splat.clone();
    }
    if !matches!(def.lower, Lower::Map(_)) {
        return None;
    }
    let operands: Option<Vec<Array>> =
        args.iter().map(|a| g[*a].data.splat.as_ref().map(Array::from_tensor)).collect();
    let Eval::Pure(eval) = def.eval else { return None };
    let results = [TensorType::scalar(ty.dtype)];
    Some(crate::fold::evaluated(eval, &operands?, attrs, &results)?.to_tensor())
}

/// Adds a node after checking it; fills in default attributes.
pub fn add(g: &mut Graph, op: Op, mut attrs: Attrs, args: &[Id]) -> Result<Id, InferError> {
    for spec in op.def().attrs {
        if attrs.get(spec.name).is_none()
            && let Some(default) = spec.default
        {
            attrs.set(spec.name, default());
        }
    }
    let attrs = g.analysis.attrs.intern(attrs);
    add_interned(g, op, attrs, args)
}

pub fn add_interned(g: &mut Graph, op: Op, attrs: AttrId, args: &[Id]) -> Result<Id, InferError> {
    let node = Node::Op { op, attrs, args: args.into() };
    if g.lookup(node.clone()).is_none() {
        // The other order of a commutative op is the same node.
        if op.def().facts.commutes
            && let [a, b] = *args
            && let swapped = (Node::Op { op, attrs, args: [b, a].into() })
            && g.lookup(swapped.clone()).is_some()
        {
            return Ok(g.add_uncanonical(swapped));
        }
        let types: Vec<TensorType> = args.iter().map(|a| (*g[*a].data.ty).clone()).collect();
        let attrs = g.analysis.attrs.get(attrs);
        let mut ty = tfc_ir::build::infer(op, &types, attrs, None, &[])?;
        if ty.len() != 1 {
            return Err(InferError::new("E0201", "expected one result"));
        }
        g.analysis.next = ty.pop().map(Arc::new);
    }
    Ok(g.add_uncanonical(node))
}

/// `None` if the op has no gradient or the operand does not exist.
pub fn add_vjp(g: &mut Graph, op: Op, wrt: usize, attrs: AttrId, args: &[Id]) -> Option<Id> {
    let ty = g[*args.get(wrt)?].data.ty.clone();
    let node = Node::Vjp { op, wrt: u8::try_from(wrt).ok()?, attrs, args: args.into() };
    if g.lookup(node.clone()).is_none() {
        g.analysis.next = Some(ty);
    }
    Some(g.add_uncanonical(node))
}

pub fn add_input(g: &mut Graph, number: u32, ty: &TensorType) -> Id {
    let node = Node::Input(number);
    if g.lookup(node.clone()).is_none() {
        g.analysis.next = Some(Arc::new(ty.clone()));
    }
    g.add_uncanonical(node)
}

/// An input of which something is known.
pub fn add_input_within(g: &mut Graph, number: u32, ty: &TensorType, range: Range) -> Id {
    let id = add_input(g, number, ty);
    let class = g.find(id);
    g[class].data.range = range;
    id
}

/// Lets gradients and rules build e-nodes.
pub struct Building<'g> {
    g: RefCell<&'g mut Graph>,
    failed: Cell<bool>,
}

impl<'g> Building<'g> {
    pub fn new(g: &'g mut Graph) -> Building<'g> {
        Building { g: RefCell::new(g), failed: Cell::new(false) }
    }

    /// Whether some request was ill-typed: what was built must not be used.
    pub fn failed(&self) -> bool {
        self.failed.get()
    }

    pub fn id(v: V) -> Id {
        Id::from(v.0 as usize)
    }

    pub fn value(id: Id) -> V {
        V(usize::from(id) as u32)
    }
}

impl Emit for Building<'_> {
    fn emit(&self, op: Op, operands: &[V], attrs: Attrs) -> V {
        let args: Vec<Id> = operands.iter().map(|v| Building::id(*v)).collect();
        match add(&mut self.g.borrow_mut(), op, attrs, &args) {
            Ok(id) => Building::value(id),
            Err(_) => {
                self.failed.set(true);
                operands.first().copied().unwrap_or(V(0))
            }
        }
    }

    fn ty(&self, v: V) -> TensorType {
        (*self.g.borrow()[Building::id(v)].data.ty).clone()
    }
}

impl Rewrite for Building<'_> {
    fn splat_of(&self, v: V) -> Option<Tensor> {
        self.g.borrow()[Building::id(v)].data.splat.clone()
    }

    fn has(&self, v: V, fact: Fact) -> bool {
        self.g.borrow()[Building::id(v)].data.has(fact)
    }

    fn magnitude(&self, v: V) -> Magnitude {
        self.g.borrow()[Building::id(v)].data.range.size
    }

    fn is_broadcast(&self, v: V) -> bool {
        let g = self.g.borrow();
        let class = &g[Building::id(v)];
        let repeats =
            |n: &Node| matches!(n, Node::Op { op, .. } if op.def().facts.moves == Moves::Repeated);
        class.data.splat.is_some() || class.nodes.iter().any(repeats)
    }

    fn takes_constant(&self, v: V, op: Op) -> bool {
        let g = self.g.borrow();
        let class = g.find(Building::id(v));
        let literal = |a: &Id| g[*a].data.splat.is_some();
        // `x * 1` is `x` itself.
        let other = |n: &&Node| !n.children().iter().any(|a| g.find(*a) == class);
        let takes = |n: &Node| n.children().iter().any(literal);
        nodes_of(&g, class, NodeKind::Op(op)).filter(other).any(takes)
    }

    fn vjp(&self, op: Op, i: usize, attrs: Attrs, operands: &[V], out: V, ct: V) -> V {
        let mut args: Vec<Id> = operands.iter().map(|v| Building::id(*v)).collect();
        args.extend([Building::id(out), Building::id(ct)]);
        let mut g = self.g.borrow_mut();
        let attrs = g.analysis.attrs.intern(attrs);
        match add_vjp(&mut g, op, i, attrs, &args) {
            Some(id) => Building::value(id),
            None => {
                self.failed.set(true);
                ct
            }
        }
    }
}

/// Nodes of one kind in a class.
pub fn nodes_of(g: &Graph, class: Id, kind: NodeKind) -> impl Iterator<Item = &Node> {
    g[class].nodes.iter().filter(move |n| n.kind() == kind)
}
