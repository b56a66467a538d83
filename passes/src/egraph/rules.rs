//! The rule table the search uses, made from the op records, and matching.
//!
//! Every op with a gradient also gives one rule per operand, `vjp.<op>.<i>`,
//! which expands the gradient term by calling the op's own gradient function.
//! Operands of commutative ops match in either order, so no rule is written
//! twice.

use super::analysis::{Building, Data, Graph, RuleId, nodes_of};
use super::lang::{AttrId, Node, NodeKind};
use egg::{Id, Language};
use std::sync::LazyLock;
use tfc_ir::op::{Grad, Stage};
use tfc_ir::rule::{Class, Fact, Head, Match, Pat, PatHead, Pattern, Rhs, Rule, Search};
use tfc_ir::vjp::{Emit, V, VjpArgs, VjpFn};
use tfc_ir::{Attrs, DType, Op};

/// How far rewrites may change float results.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum FloatMode {
    /// Bit for bit what was written.
    Strict,
    /// Up to rounding and the sign of zero.
    #[default]
    Rounding,
    /// Special values may change, facts that rules name are assumed, and sums
    /// and products may be reassociated.
    Fast,
}

pub struct Compiled {
    pub name: String,
    pub search: Search,
    pub why: &'static str,
    pub body: Body,
    /// Kinds of node the left-hand side can start at.
    pub roots: Vec<NodeKind>,
    /// How many steps from the root a match depends on.
    pub depth: usize,
}

pub enum Body {
    Rule { rule: &'static Rule, lhs: Box<Pattern>, rhs: Option<Box<Pattern>> },
    Expand,
}

impl Compiled {
    pub fn class(&self) -> Class {
        match &self.body {
            Body::Rule { rule, .. } => rule.class,
            // The expansion is what a gradient term means.
            Body::Expand => Class::Exact,
        }
    }
}

/// Every rule, in the order of the op list. Ill-formed records are left out
/// here; a test over all records refuses them.
pub fn table() -> &'static [Compiled] {
    static TABLE: LazyLock<Vec<Compiled>> = LazyLock::new(compile);
    &TABLE
}

pub fn ids(searches: &[Search]) -> Vec<RuleId> {
    let of_search = |(_, r): &(usize, &Compiled)| searches.contains(&r.search);
    table().iter().enumerate().filter(of_search).map(|(i, _)| RuleId(i as u16)).collect()
}

pub fn name(rule: RuleId) -> &'static str {
    match rule {
        RuleId::SOURCE => "source",
        RuleId::FOLD => "fold",
        RuleId(i) => table().get(i as usize).map_or("?", |r| &r.name),
    }
}

fn compile() -> Vec<Compiled> {
    let mut out = vec![];
    for &op in Op::ALL {
        let def = op.def();
        // What is gone after differentiation is written out there.
        if let (Grad::Vjp(_), Stage::Core) = (&def.grad, def.stage) {
            for (i, operand) in def.operands.iter().enumerate() {
                let (name, roots) = if operand.variadic {
                    let all = i as u8..=u8::MAX;
                    (format!("vjp.{}.*", def.name), all.map(|i| NodeKind::Vjp(op, i)).collect())
                } else {
                    (format!("vjp.{}.{i}", def.name), vec![NodeKind::Vjp(op, i as u8)])
                };
                let why = "the gradient the op declares";
                let body = Body::Expand;
                out.push(Compiled { name, search: Search::Gradients, why, body, roots, depth: 1 });
            }
        }
        for rule in def.rules {
            let Ok(lhs) = Pattern::parse(rule.lhs) else { continue };
            let rhs = match rule.rhs {
                Rhs::Text(text) => match Pattern::parse_template(text, &lhs) {
                    Ok(rhs) => Some(Box::new(rhs)),
                    Err(_) => continue,
                },
                Rhs::Fn(_) => None,
            };
            let Pat::Op { head, .. } = &lhs.root else { continue };
            let roots = match head {
                PatHead::Vjp(op, i) => vec![NodeKind::Vjp(*op, *i as u8)],
                _ => head.ops().into_iter().map(NodeKind::Op).collect(),
            };
            let depth = lhs.depth();
            out.push(Compiled {
                name: rule.name.to_string(),
                search: rule.search,
                why: rule.why,
                body: Body::Rule { rule, lhs: Box::new(lhs), rhs },
                roots,
                depth,
            });
        }
    }
    out
}

/// One instance of a left-hand side in the e-graph.
#[derive(Clone, Debug)]
pub struct Found {
    pub rule: RuleId,
    pub class: Id,
    /// The node at the root, as matched.
    pub node: Node,
    vars: Box<[Id]>,
    heads: Box<[(Op, AttrId)]>,
}

/// Appends the instances of a rule in one class, at most `limit`.
pub fn search(g: &Graph, id: RuleId, class: Id, limit: usize, out: &mut Vec<Found>) {
    let Some(compiled) = table().get(id.0 as usize) else { return };
    let end = out.len().saturating_add(limit);
    let kinds = &compiled.roots;
    for node in g[class].nodes.iter().filter(|n| kinds.contains(&n.kind()) && !circular(n, class)) {
        match &compiled.body {
            Body::Expand => out.push(Found {
                rule: id,
                class,
                node: node.clone(),
                vars: [].into(),
                heads: [].into(),
            }),
            Body::Rule { lhs, .. } => {
                let mut m = Matcher {
                    g,
                    vars: vec![None; lhs.vars.len()],
                    heads: vec![None; lhs.labels.len()],
                    todo: vec![],
                    out,
                    found: (id, class, node),
                    end,
                };
                m.node(&lhs.root, node);
            }
        }
        if out.len() >= end {
            break;
        }
    }
}

/// Whether a node reads the class it is in: `x` as `x * x / x`. Nothing can be
/// computed by it, and rules would make longer and longer ones of it.
fn circular(node: &Node, class: Id) -> bool {
    matches!(node, Node::Op { .. }) && node.children().contains(&class)
}

/// Backtracking over the nodes of classes; patterns are a few ops deep.
struct Matcher<'a, 'p> {
    g: &'a Graph,
    vars: Vec<Option<Id>>,
    heads: Vec<Option<(Op, AttrId)>>,
    todo: Vec<(&'p Pat, Id)>,
    out: &'a mut Vec<Found>,
    found: (RuleId, Id, &'a Node),
    end: usize,
}

impl<'p> Matcher<'_, 'p> {
    fn go(&mut self) {
        if self.out.len() >= self.end {
            return;
        }
        let Some((pat, id)) = self.todo.pop() else {
            let (rule, class, node) = self.found;
            // Every name of a pattern is bound once all of it matched.
            let vars: Option<Box<[Id]>> = self.vars.iter().copied().collect();
            let heads: Option<Box<[(Op, AttrId)]>> = self.heads.iter().copied().collect();
            if let (Some(vars), Some(heads)) = (vars, heads) {
                self.out.push(Found { rule, class, node: node.clone(), vars, heads });
            }
            return;
        };
        match pat {
            Pat::Var(i) => self.bind(*i, id),
            Pat::Splat(i) => {
                if self.g[id].data.splat.is_some() {
                    self.bind(*i, id);
                }
            }
            Pat::Lit(value) => {
                if is_splat(&self.g[id].data, *value) {
                    self.go();
                }
            }
            // A known value needs no rewriting, and has no end of forms.
            Pat::Op { .. } if self.g[id].data.splat.is_some() => {}
            Pat::Op { head, .. } => {
                let g = self.g;
                match head {
                    PatHead::Op(op) => {
                        for node in nodes_of(g, id, NodeKind::Op(*op)).filter(|n| !circular(n, id))
                        {
                            self.node(pat, node);
                        }
                    }
                    PatHead::Vjp(op, i) => {
                        for node in nodes_of(g, id, NodeKind::Vjp(*op, *i as u8)) {
                            self.node(pat, node);
                        }
                    }
                    PatHead::Elementwise(n) => {
                        let fits = |node: &&Node| matches!(node, Node::Op { op, .. } if tfc_ir::rule::is_elementwise(*op, *n));
                        for node in g[id].nodes.iter().filter(fits) {
                            self.node(pat, node);
                        }
                    }
                }
            }
        }
        self.todo.push((pat, id));
    }

    fn bind(&mut self, i: usize, id: Id) {
        match self.vars[i] {
            Some(bound) if bound == id => self.go(),
            Some(_) => {}
            None => {
                self.vars[i] = Some(id);
                self.go();
                self.vars[i] = None;
            }
        }
    }

    /// Matches an application against one node of the right kind.
    fn node(&mut self, pat: &'p Pat, node: &Node) {
        let Pat::Op { label, args: pats, .. } = pat else { return };
        let (op, attrs) = match node {
            Node::Op { op, attrs, .. } | Node::Vjp { op, attrs, .. } => (*op, *attrs),
            Node::Input(_) => return,
        };
        let args = node.children();
        if pats.len() != args.len() {
            return;
        }
        let mut undo = None;
        if let Some(label) = label {
            match self.heads[*label] {
                Some(bound) if bound == (op, attrs) => {}
                Some(_) => return,
                None => {
                    self.heads[*label] = Some((op, attrs));
                    undo = Some(*label);
                }
            }
        }
        let base = self.todo.len();
        self.todo.extend(pats.iter().zip(args.iter().copied()).rev());
        self.go();
        self.todo.truncate(base);
        let swap = op.def().facts.commutes && matches!(node, Node::Op { .. }) && pats.len() == 2;
        if swap && args[0] != args[1] {
            self.todo.extend([(&pats[1], args[0]), (&pats[0], args[1])]);
            self.go();
            self.todo.truncate(base);
        }
        if let Some(label) = undo {
            self.heads[label] = None;
        }
    }
}

fn is_splat(data: &Data, value: f64) -> bool {
    let Some(splat) = &data.splat else { return false };
    // A bool is never meant by a number.
    if splat.dtype() == DType::Bool {
        return false;
    }
    splat.to_f64().first().is_some_and(|v| v.to_bits() == value.to_bits())
}

/// Builds the right-hand side; `None` if the rule does not apply. Without a
/// mode the float class is not asked.
pub fn instantiate(g: &mut Graph, found: &Found, mode: Option<FloatMode>) -> Option<Id> {
    let compiled = &table()[found.rule.0 as usize];
    match &compiled.body {
        Body::Expand => expand_vjp(g, &found.node),
        Body::Rule { rule, lhs, rhs } => {
            if mode.is_some_and(|mode| !admitted(g, rule, lhs, found, mode)) {
                return None;
            }
            let heads: Vec<Head> = found
                .heads
                .iter()
                .map(|(op, attrs)| Head { op: *op, attrs: g.analysis.attrs.get(*attrs).clone() })
                .collect();
            let vars: Vec<V> = found.vars.iter().map(|v| Building::value(g.find(*v))).collect();
            let root = Building::value(g.find(found.class));
            let e = Building::new(g);
            let m = Match { e: &e, root, pattern: lhs, vars: &vars, heads: &heads };
            if rule.guard.is_some_and(|guard| !guard(&m)) {
                return None;
            }
            let asked = mode != Some(FloatMode::Fast);
            if asked && rule.within.is_some_and(|proof| !proof(&m)) {
                return None;
            }
            let value = match (&rule.rhs, rhs) {
                (Rhs::Fn(f), _) => f(&m)?,
                (_, Some(rhs)) => template(&m, &rhs.root)?,
                (_, None) => return None,
            };
            (!e.failed()).then(|| Building::id(value))
        }
    }
}

/// Writes out a gradient term of the e-graph.
pub fn expand_vjp(g: &mut Graph, node: &Node) -> Option<Id> {
    let Node::Vjp { op, wrt, attrs, args } = node else { return None };
    let Grad::Vjp(expand) = op.def().grad else { return None };
    let attrs = g.analysis.attrs.get(*attrs).clone();
    let values: Vec<V> = args.iter().map(|a| Building::value(*a)).collect();
    let e = Building::new(g);
    let value = expand_term(&e, expand, *wrt as usize, &attrs, &values)?;
    (!e.failed()).then(|| Building::id(value))
}

/// The rule that expands operand `wrt` of an op.
pub fn vjp_rule(op: Op, wrt: usize) -> Option<RuleId> {
    let kind = NodeKind::Vjp(op, u8::try_from(wrt).ok()?);
    let at =
        table().iter().position(|r| matches!(r.body, Body::Expand) && r.roots.contains(&kind))?;
    Some(RuleId(at as u16))
}

/// Writes out a gradient term: `args` are operands, result, cotangent. Where no
/// gradient flows the term is zero.
pub fn expand_term(
    e: &dyn Emit,
    expand: VjpFn,
    wrt: usize,
    attrs: &Attrs,
    args: &[V],
) -> Option<V> {
    let (operands, rest) = args.split_at_checked(args.len().checked_sub(2)?)?;
    let [out, ct] = *rest else { return None };
    let n = VjpArgs { operands, out, ct, attrs };
    Some(expand(e, &n, wrt).unwrap_or_else(|| e.splat_like(0.0, operands[wrt])))
}

/// Whether the mode lets the rule act on these values.
fn admitted(g: &Graph, rule: &Rule, lhs: &Pattern, found: &Found, mode: FloatMode) -> bool {
    // What fast math promises: no NaN, no infinity, no index out of range. Everything else
    // must be known.
    let known = |var: &str, fact: Fact| {
        let bound = lhs.vars.iter().position(|v| v == var).and_then(|i| found.vars.get(i));
        let promised = matches!(fact, Fact::Finite | Fact::InRange);
        bound.is_some_and(|id| g[*id].data.has(fact) || mode == FloatMode::Fast && promised)
    };
    if rule.assumes.is_some_and(|(var, fact)| !known(var, fact)) {
        return false;
    }
    let by_class = match rule.class {
        Class::Exact => true,
        Class::Round => mode >= FloatMode::Rounding,
        Class::Refine => {
            // Gradients that users write are told by the terms they read.
            let gradient = || !g[found.class].data.user || lhs.root.mentions_vjp();
            mode == FloatMode::Fast || mode == FloatMode::Rounding && gradient()
        }
        Class::Special => mode == FloatMode::Fast,
    };
    let by_search = rule.search != Search::Pieces || mode == FloatMode::Fast;
    // On integers every rule is exact.
    let integers = || {
        let float = |id: &Id| g[*id].data.ty.dtype.is_float();
        !float(&found.class) && !found.vars.iter().any(float)
    };
    by_class && by_search || integers()
}

/// Builds a template from what its left-hand side bound.
pub fn template(m: &Match<'_>, pat: &Pat) -> Option<V> {
    template_like(m, pat, m.root)
}

fn template_like(m: &Match<'_>, pat: &Pat, like: V) -> Option<V> {
    match pat {
        Pat::Var(i) | Pat::Splat(i) => m.vars.get(*i).copied(),
        Pat::Lit(value) => Some(m.emit().splat_like(*value, like)),
        Pat::Op { head, label, args } => {
            let mut values: Vec<Option<V>> = vec![];
            for arg in args {
                values.push(match arg {
                    Pat::Lit(_) => None,
                    _ => Some(template_like(m, arg, like)?),
                });
            }
            // A literal has the type of the operand beside it.
            let beside = values.iter().flatten().last().copied().unwrap_or(like);
            let operands: Option<Vec<V>> = args
                .iter()
                .zip(values)
                .map(|(arg, v)| v.or_else(|| template_like(m, arg, beside)))
                .collect();
            let operands = operands?;
            let bound = label.and_then(|l| m.heads.get(l));
            let attrs = bound.map_or(Attrs::none(), |h| h.attrs.clone());
            match head {
                PatHead::Op(op) => Some(m.e.emit(*op, &operands, attrs)),
                PatHead::Elementwise(_) => Some(m.e.emit(bound?.op, &operands, attrs)),
                PatHead::Vjp(op, i) => {
                    let (operands, rest) = operands.split_at(operands.len().checked_sub(2)?);
                    Some(m.e.vjp(*op, *i, attrs, operands, rest[0], rest[1]))
                }
            }
        }
    }
}
