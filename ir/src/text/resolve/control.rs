//! `if`, `while`, and other ops with regions.

use super::Resolver;
use super::ops::count;
use super::scope::{Bound, Spanned, Val};
use crate::build::NodeSpec;
use crate::diag::{Diag, Span};
use crate::text::ast::{Block, Call, IfExpr, Name, WhileExpr};
use crate::{Attrs, DType, Op, RegionId, TensorType, ValueId, VarId};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A region as it was built.
struct Built {
    region: RegionId,
    yields: Option<Vec<Spanned>>,
}

impl Resolver<'_> {
    pub(super) fn if_expr(&mut self, e: &IfExpr, span: Span) -> Val {
        let Some(op) = self.ops.get("if").copied() else { return Val::Poison };
        let cond = self.expr(&e.cond, None);
        if let Val::Bool(known) = cond {
            return self.known_if(e, known, span);
        }
        let cond = self.tensor(&cond, e.cond.span, Some(DType::Bool));
        let before = self.diags.len();
        let none = BTreeSet::new();
        let empty = Block { stmts: vec![], span };
        let els = e.els.as_ref().unwrap_or(&empty);
        let (then, written) = self.region(&e.then, &none, |_| (), &|_| None);
        let types: Vec<DType> = match &then {
            Some(b) => self.build.func.regions[b.region]
                .results
                .iter()
                .map(|v| self.build.func.ty(*v).dtype)
                .collect(),
            None => vec![],
        };
        let (other, written2) = self.region(els, &none, |_| (), &|i| types.get(i).copied());
        for var in written.into_iter().chain(written2) {
            self.build.wrote(var);
        }
        let (Some(then), Some(other), Some(cond)) = (then, other, cond) else {
            return Val::Poison;
        };
        if self.diags.len() != before {
            return Val::Poison;
        }
        let (a, b) = (then.yields.unwrap_or_default(), other.yields.unwrap_or_default());
        if a.len() != b.len() || e.els.is_none() && !a.is_empty() {
            let mut diag = Diag::error(
                "E0433",
                format!(
                    "the branches of `if` must yield the same number of values, but yield {} and {}",
                    a.len(),
                    b.len()
                ),
            )
            .at(e.then.span, format!("yields {}", count(a.len(), "value")));
            diag = match &e.els {
                Some(els) => diag.also(els.span, format!("yields {}", count(b.len(), "value"))),
                None => diag.help("add `else { yield ... }`"),
            };
            return self.error(diag);
        }
        for (i, (x, y)) in a.iter().zip(&b).enumerate() {
            let (Val::Tensor(v), Val::Tensor(w)) = (&x.val, &y.val) else { continue };
            let (tx, ty) = (self.type_of(*v), self.type_of(*w));
            if tx != ty {
                return self.error(
                    Diag::error(
                        "E0433",
                        format!(
                            "the branches of `if` must yield the same types; value {i} differs"
                        ),
                    )
                    .at(x.span, format!("this is {tx}"))
                    .also(y.span, format!("this is {ty}")),
                );
            }
        }
        let mut spec = NodeSpec::new(op, &[cond], Attrs::none(), span);
        spec.regions = vec![then.region, other.region];
        self.finish(spec, &[e.cond.span], &[], span)
    }

    /// An `if` decided while the graph is built: the branch that is taken stands
    /// in its place, and the other is not looked at.
    fn known_if(&mut self, e: &IfExpr, cond: bool, span: Span) -> Val {
        let branch = match (cond, &e.els) {
            (true, _) => &e.then,
            (false, Some(els)) => els,
            (false, None) => return Val::Tuple(Rc::new(vec![])),
        };
        let before = self.diags.len();
        self.frame().scopes.push(Default::default());
        self.yields.push(None);
        self.stmts(&branch.stmts);
        let yields = self.yields.pop().flatten().unwrap_or_default();
        self.frame().scopes.pop();
        if self.diags.len() != before {
            return Val::Poison;
        }
        match <[Spanned; 1]>::try_from(yields) {
            Ok([only]) => match only.val {
                // A later write must not change what was yielded.
                Val::Var(var) => match self.read(var, span) {
                    Some(value) => Val::Tensor(value),
                    None => Val::Poison,
                },
                val => val,
            },
            Err(several) => Val::Tuple(Rc::new(several)),
        }
    }

    /// Builds a region; its results are what its block yields, numbers taking
    /// the element types `dtype` tells. Also gives the variables written.
    fn region(
        &mut self,
        block: &Block,
        unstable: &BTreeSet<VarId>,
        params: impl FnOnce(&mut Self),
        dtype: &dyn Fn(usize) -> Option<DType>,
    ) -> (Option<Built>, Vec<VarId>) {
        let before = self.diags.len();
        let (outer, region) = self.build.open(unstable);
        self.frame().scopes.push(Default::default());
        params(self);
        self.yields.push(None);
        self.stmts(&block.stmts);
        let yields = self.yields.pop().flatten();
        let mut ok = self.diags.len() == before;
        let mut out = yields.clone();
        if let Some(values) = &mut out {
            for (i, value) in values.iter_mut().enumerate() {
                match self.tensor(&value.val, value.span, dtype(i)) {
                    Some(v) => {
                        value.val = Val::Tensor(v);
                        self.build.func.regions[region].results.push(v);
                    }
                    None => ok = false,
                }
            }
        }
        self.frame().scopes.pop();
        let written = self.build.close(outer);
        (ok.then_some(Built { region, yields: out }), written)
    }

    pub(super) fn while_expr(&mut self, e: &WhileExpr, span: Span) -> Val {
        let Some(op) = self.ops.get("while").copied() else { return Val::Poison };
        let mut carried: Vec<(Name, ValueId)> = vec![];
        let mut ok = true;
        for p in &e.carried {
            let Some(init) = &p.default else {
                self.error(
                    Diag::error("E0144", format!("`{}` needs a first value", p.name.text))
                        .at(p.name.span, "carried from iteration to iteration")
                        .help(format!("write `{} = ...`", p.name.text)),
                );
                ok = false;
                continue;
            };
            let val = match &p.ty {
                None => {
                    let val = self.expr(init, None);
                    self.tensor(&val, init.span, None)
                }
                Some(ty) => match self.concrete_type(ty) {
                    None => None,
                    Some(want) => {
                        let val = self.expr(init, Some(&want));
                        match self.checked(val, init.span, ty, &want) {
                            Val::Tensor(v) => Some(v),
                            _ => None,
                        }
                    }
                },
            };
            match val {
                Some(v) => carried.push((p.name.clone(), v)),
                None => ok = false,
            }
        }
        if !ok {
            return Val::Poison;
        }
        let types: Vec<TensorType> = carried.iter().map(|(_, v)| self.type_of(*v)).collect();
        let names: Vec<Option<std::sync::Arc<str>>> = carried
            .iter()
            .map(|(n, _)| {
                let path = self.frames.last().map(|f| f.path.to_string()).unwrap_or_default();
                self.build.unique(&if n.text.starts_with('_') {
                    n.text.to_string()
                } else {
                    format!("{path}{}", n.text)
                })
            })
            .collect();
        let mut unstable = self.block_writes(&e.cond);
        unstable.extend(self.block_writes(&e.body));
        let before = self.diags.len();
        let params = |r: &mut Self| {
            for (i, (name, _)) in carried.iter().enumerate() {
                let v = r.region_param(types[i].clone(), names[i].clone());
                let build = r.build.id;
                let bound = Bound { val: Val::Tensor(v), span: name.span, build };
                r.frame().set(name.text.clone(), bound);
            }
        };
        let (cond, w1) = self.region(&e.cond, &unstable, params, &|_| Some(DType::Bool));
        let (body, w2) =
            self.region(&e.body, &unstable, params, &|i| types.get(i).map(|t| t.dtype));
        for var in w1.into_iter().chain(w2) {
            self.build.wrote(var);
        }
        let (Some(cond), Some(body)) = (cond, body) else { return Val::Poison };
        if self.diags.len() != before {
            return Val::Poison;
        }
        if let Some(c) = cond.yields.as_ref().and_then(|y| y.first())
            && let Val::Tensor(v) = c.val
            && self.type_of(v) != TensorType::scalar(DType::Bool)
        {
            let ty = self.type_of(v);
            return self.error(
                Diag::error("E0434", "the condition of `while` must be one bool[]")
                    .at(c.span, format!("this is {ty}"))
                    .help("`all(..)` or `any(..)` make one truth value of many"),
            );
        }
        let next = body.yields.unwrap_or_default();
        if next.len() == carried.len() {
            for (i, value) in next.iter().enumerate() {
                let Val::Tensor(v) = value.val else { continue };
                let ty = self.type_of(v);
                if ty != types[i] {
                    return self.error(
                        Diag::error(
                            "E0435",
                            format!("`{}` changes its type in the loop", carried[i].0.text),
                        )
                        .at(value.span, format!("this is {ty}"))
                        .also(carried[i].0.span, format!("it starts as {}", types[i]))
                        .help("a carried value keeps its type and shape in every iteration"),
                    );
                }
            }
        }
        let values: Vec<ValueId> = carried.iter().map(|(_, v)| *v).collect();
        let spans: Vec<Span> = carried.iter().map(|(n, _)| n.span).collect();
        let mut spec = NodeSpec::new(op, &values, Attrs::none(), span);
        spec.regions = vec![cond.region, body.region];
        self.finish(spec, &spans, &[], span)
    }

    /// An op with regions in its general form, as printed.
    pub(super) fn call_region_op(&mut self, op: Op, call: &Call, span: Span) -> Val {
        let def = op.def();
        let mut operands = vec![];
        let mut spans = vec![];
        let mut ok = true;
        for arg in &call.args {
            if let Some(name) = &arg.name {
                self.attr_spec(def, &name.text, name.span);
                ok = false;
                continue;
            }
            let val = self.expr(&arg.value, None);
            match self.tensor(&val, arg.value.span, None) {
                Some(v) => operands.push(v),
                None => ok = false,
            }
            spans.push(arg.value.span);
        }
        let given: Vec<&str> = call.regions.iter().map(|r| &*r.name.text).collect();
        if given != def.regions {
            return self.error(
                Diag::error(
                    "E0129",
                    format!("`{}` takes the blocks {}", def.name, def.regions.join(", ")),
                )
                .at(call.callee.span, format!("given: {}", given.join(", "))),
            );
        }
        let mut regions = vec![];
        for r in &call.regions {
            let none = BTreeSet::new();
            let mut bad = false;
            let (built, written) = self.region(
                &r.body,
                &none,
                |s| {
                    for p in &r.params {
                        let ty = match &p.ty {
                            Some(ty) => s.concrete_type(ty),
                            None => {
                                s.error(
                                    Diag::error("E0141", "the parameter of a block needs a type")
                                        .at(p.name.span, "no type given"),
                                );
                                None
                            }
                        };
                        let val = match ty {
                            Some(ty) => {
                                let name = s.build.unique(&p.name.text);
                                Val::Tensor(s.region_param(ty, name))
                            }
                            None => {
                                bad = true;
                                Val::Poison
                            }
                        };
                        let build = s.build.id;
                        let bound = Bound { val, span: p.name.span, build };
                        s.frame().set(p.name.text.clone(), bound);
                    }
                },
                &|_| None,
            );
            for var in written {
                self.build.wrote(var);
            }
            match built {
                Some(b) if !bad => regions.push(b.region),
                _ => ok = false,
            }
        }
        if !ok {
            return Val::Poison;
        }
        let mut spec = NodeSpec::new(op, &operands, Attrs::none(), span);
        spec.regions = regions;
        self.finish(spec, &spans, &[], call.callee.span)
    }
}
