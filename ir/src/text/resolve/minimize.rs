//! `minimize`: which variables are trained, and the optimizer's calls.

use super::Resolver;
use super::call::ArgVal;
use super::scope::{Spanned, Val};
use crate::build::NodeSpec;
use crate::diag::{Diag, Span};
use crate::graph::Def;
use crate::text::ast::{Call, Expr, ExprKind, Name};
use crate::{Attr, Attrs, Op, RegionId, ValueId, VarId};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

impl Resolver<'_> {
    pub(super) fn minimize(
        &mut self,
        loss: &Expr,
        over: Option<&[Name]>,
        through: &[Expr],
        with: &Expr,
        span: Span,
    ) -> Val {
        let loss_val = self.expr(loss, None);
        let loss_value = match &loss_val {
            Val::Poison => None,
            val => self.tensor(val, loss.span, None),
        };
        let vars = match over {
            Some(names) => self.named_vars(names, loss_value, span),
            None => self.all_vars(loss_value, loss.span),
        };
        let Some(call) = as_call(with) else {
            return self.error(
                Diag::error("E0414", "expected an optimizer after `with`")
                    .at(with.span, "such as `optim.sgd(lr: 0.1)`"),
            );
        };
        let Some((module, index)) = self.function(&call.callee.text) else {
            return self.unknown_callee(&call);
        };
        let func = self.modules[module].funcs[index].clone();
        if func.params.len() < 2 || !func.params[0].var {
            return self.error(
                Diag::error("E0414", format!("`{}` is not an optimizer", call.callee.text))
                    .at(call.callee.span, "expected a function of a variable and its gradient")
                    .also(func.name.span, "declared here")
                    .help("an optimizer is `func name(var p, grad: _[..], ...) { p -= ... }`"),
            );
        }
        let extra = self.args(&call);
        let (Some(loss_value), Some(vars)) = (loss_value, vars) else { return Val::Poison };
        let ty = self.build.func.ty(loss_value).clone();
        if ty.rank() > 0 {
            return self.error(
                Diag::error("E0330", "`minimize` makes one number smaller")
                    .at(loss.span, format!("this is {ty}, not a scalar"))
                    .help("reduce it first: `minimize mean(..)`"),
            );
        }
        self.check_loss(loss_value, &loss_val, loss.span);
        let mut operands = vec![loss_value];
        let mut spans = vec![loss.span];
        for (var, at) in &vars {
            match self.read(*var, *at) {
                Some(v) => operands.push(v),
                None => return Val::Poison,
            }
            spans.push(*at);
        }
        let Some(op) = self.ops.get("grad").copied() else { return Val::Poison };
        let spec = NodeSpec::new(op, &operands, Attrs::none(), span);
        let mut grads = match self.finish(spec, &spans, &[], loss.span) {
            Val::Tuple(items) => items.to_vec(),
            Val::Poison => return Val::Poison,
            val => vec![Spanned { val, span }],
        };
        grads = self.averaged(&vars, grads, span);
        for call in through {
            match self.through(call, grads) {
                Some(changed) => grads = changed,
                None => return Val::Poison,
            }
        }
        if func.params[0].many {
            let vars = vars.iter().map(|(var, at)| Spanned { val: Val::Var(*var), span: *at });
            let mut args = vec![
                ArgVal { name: None, val: Val::List(Rc::new(vars.collect())), span },
                ArgVal { name: None, val: Val::List(Rc::new(grads)), span },
            ];
            args.extend(extra);
            self.call_with(
                (module, index),
                &call.callee,
                call.label.as_ref(),
                args,
                with.span,
                None,
            );
            return Val::Poison;
        }
        for ((var, at), grad) in vars.iter().zip(grads) {
            let mut args = vec![
                ArgVal { name: None, val: Val::Var(*var), span: *at },
                ArgVal { name: None, val: grad.val, span: *at },
            ];
            args.extend(extra.iter().cloned());
            self.call_with(
                (module, index),
                &call.callee,
                call.label.as_ref(),
                args,
                with.span,
                None,
            );
        }
        Val::Poison
    }

    /// The gradients as means over all processes that train together; before anything
    /// looks at them, so that clipping sees whole gradients.
    fn averaged(
        &mut self,
        vars: &[(VarId, Span)],
        grads: Vec<Spanned>,
        span: Span,
    ) -> Vec<Spanned> {
        let Some(op) = self.ops.get("all_reduce").copied() else { return grads };
        let mut out = vec![];
        for (grad, (var, at)) in grads.into_iter().zip(vars) {
            let Val::Tensor(value) = grad.val else {
                out.push(grad);
                continue;
            };
            let name = format!("the gradient of `{}`", self.graph.vars[*var].name);
            let attrs = Attrs::none().with("name", Attr::Str(name));
            let spec = NodeSpec::new(op, &[value], attrs, span);
            out.push(Spanned { val: self.finish(spec, &[*at], &[], span), span: grad.span });
        }
        out
    }

    /// A loss that is not finite fails the call, before anything is changed by it.
    fn check_loss(&mut self, loss: ValueId, val: &Val, span: Span) {
        let Some(op) = self.ops.get("check_finite").copied() else { return };
        let name = match val {
            Val::Tensor(v) => self.build.func.values[*v].name.as_deref().unwrap_or("").to_string(),
            _ => String::new(),
        };
        let attrs = Attrs::none().with("name", Attr::Str(name));
        self.finish(NodeSpec::new(op, &[loss], attrs, span), &[span], &[], span);
    }

    /// The gradients as a function of the list of them gives them back.
    fn through(&mut self, expr: &Expr, grads: Vec<Spanned>) -> Option<Vec<Spanned>> {
        let Some(call) = as_call(expr) else {
            self.error(
                Diag::error("E0473", "expected a function of gradients after `through`")
                    .at(expr.span, "such as `optim.clip_global_norm(limit: 1.0)`"),
            );
            return None;
        };
        let Some((module, index)) = self.function(&call.callee.text) else {
            self.unknown_callee(&call);
            return None;
        };
        let count = grads.len();
        let first = ArgVal { name: None, val: Val::List(Rc::new(grads)), span: expr.span };
        let mut args = vec![first];
        args.extend(self.args(&call));
        match self.call_with(
            (module, index),
            &call.callee,
            call.label.as_ref(),
            args,
            expr.span,
            None,
        ) {
            Val::Poison => None,
            Val::List(items) | Val::Tuple(items) if items.len() == count => Some(items.to_vec()),
            val => {
                let got = match &val {
                    Val::List(items) | Val::Tuple(items) => format!("{} of them", items.len()),
                    val => val.describe(),
                };
                self.error(
                    Diag::error(
                        "E0473",
                        format!("`{}` must return a list of {count}", call.callee.text),
                    )
                    .at(expr.span, format!("returns {got}"))
                    .help(
                        "it takes the list of gradients and returns one for each: \
                         `return [g * 0.5 for g in grads]`",
                    ),
                );
                None
            }
        }
    }

    /// The variables a list names, each with its place in the list.
    fn named_vars(
        &mut self,
        over: &[Name],
        loss: Option<ValueId>,
        span: Span,
    ) -> Option<Vec<(VarId, Span)>> {
        let mut vars = vec![];
        let mut seen = BTreeMap::new();
        let mut ok = true;
        for name in over {
            for var in self.vars_of(name, loss)? {
                let (label, ty) = (&self.graph.vars[var].name, &self.graph.vars[var].ty);
                if let Some(first) = seen.insert(var, name.span) {
                    let diag = Diag::error("E0409", format!("`{label}` is trained twice"))
                        .at(name.span, "named again")
                        .also(first, "named here");
                    self.error(diag);
                    ok = false;
                } else if !ty.dtype.is_float() {
                    let diag =
                        Diag::error("E0410", format!("`{label}` is {ty} and cannot be trained"))
                            .at(name.span, "gradients need floats")
                            .also(self.graph.vars[var].span, "declared here");
                    self.error(diag);
                    ok = false;
                }
                vars.push((var, name.span));
            }
        }
        if over.is_empty() {
            self.error(
                Diag::error("E0411", "`minimize` needs variables to change")
                    .at(span, "the list is empty")
                    .help("without `over`, all variables the loss depends on are trained"),
            );
            ok = false;
        }
        ok.then_some(vars)
    }

    /// A variable by its name or path; of a model or a part of one, those variables
    /// that the loss depends on.
    fn vars_of(&mut self, name: &Name, loss: Option<ValueId>) -> Option<Vec<VarId>> {
        let vars = match self.lookup(&name.text) {
            Some(val @ Val::List(_)) => val.vars(),
            None if self.function(&name.text).is_some() => vec![],
            _ => return self.variable_name(&name.text, name.span).map(|var| vec![var]),
        };
        if vars.is_empty() {
            let diag = match self.no_such_state(&name.text, name.span) {
                Some(diag) => diag,
                None => Diag::error("E0493", format!("`{}` has no variables", name.text))
                    .at(name.span, "nothing here to train")
                    .help("`over` lists variables, models and parts of models: `[w, net.dense]`"),
            };
            self.error(diag);
            return None;
        }
        let used = self.trainable(loss?);
        let vars: Vec<VarId> = vars.into_iter().filter(|var| used.contains(var)).collect();
        if vars.is_empty() {
            self.error(
                Diag::error("E0493", format!("the loss depends on no variable of `{}`", name.text))
                    .at(name.span, "nothing here to train")
                    .help("gradients do not pass `stop_gradient` and integers"),
            );
            return None;
        }
        Some(vars)
    }

    /// Every variable the loss depends on, in the order of their declaration.
    fn all_vars(&mut self, loss: Option<ValueId>, at: Span) -> Option<Vec<(VarId, Span)>> {
        let used = self.trainable(loss?);
        if used.is_empty() {
            self.error(
                Diag::error("E0411", "`minimize` needs variables to change")
                    .at(at, "this depends on none")
                    .help("gradients do not pass `stop_gradient` and integers"),
            );
            return None;
        }
        Some(used.into_iter().map(|var| (var, at)).collect())
    }

    /// Variables whose present value a gradient reaches from `loss`. Those written
    /// since they were read (running averages) are not among them.
    fn trainable(&self, loss: ValueId) -> BTreeSet<VarId> {
        let func = &self.build.func;
        let mut out = BTreeSet::new();
        let mut seen = BTreeSet::new();
        let mut work = vec![loss];
        while let Some(value) = work.pop() {
            if !func.ty(value).dtype.is_float() || !seen.insert(value) {
                continue;
            }
            let Def::Node(id, _) = func.values[value].def else { continue };
            let node = &func.nodes[id];
            match (node.op, node.var) {
                (Op::StopGradient, _) => continue,
                (Op::Read, Some(var)) if self.build.version(var).read == Some(value) => {
                    out.insert(var);
                }
                _ => {}
            }
            work.extend(&node.operands);
            let mut regions: Vec<RegionId> = node.regions.clone();
            while let Some(region) = regions.pop() {
                for inner in &func.regions[region].nodes {
                    work.extend(&func.nodes[*inner].operands);
                    regions.extend(&func.nodes[*inner].regions);
                }
                work.extend(&func.regions[region].results);
            }
        }
        out
    }
}

/// A call, or a name as a call without arguments.
fn as_call(expr: &Expr) -> Option<Call> {
    match &expr.kind {
        ExprKind::Call(call) => Some((**call).clone()),
        ExprKind::Name(name) => Some(Call {
            callee: Name { text: name.clone(), span: expr.span },
            args: vec![],
            regions: vec![],
            label: None,
        }),
        _ => None,
    }
}
