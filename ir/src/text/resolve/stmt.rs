//! Statements.

use super::Resolver;
use super::ops::count;
use super::scope::{Bound, Spanned, Val};
use super::types::Failure;
use crate::diag::{Diag, Span};
use crate::graph::Def;
use crate::text::ast::{Binary, Expr, ExprKind, Name, Stmt, StmtKind, Target, TypeExpr};
use crate::text::device;
use crate::{DType, NodeId, TensorType, ValueId};
use std::sync::Arc;

impl Resolver<'_> {
    pub(super) fn stmts(&mut self, stmts: &[Stmt]) {
        self.statements(stmts, true)
    }

    /// The statements of a block; `ends` if what they compute last could be its value.
    pub(super) fn statements(&mut self, stmts: &[Stmt], ends: bool) {
        for (i, stmt) in stmts.iter().enumerate() {
            if self.full() {
                return;
            }
            let ended =
                self.frame().returned.is_some() || self.yields.last().is_some_and(|y| y.is_some());
            if ended {
                self.error(
                    Diag::error("E0135", "this never runs")
                        .at(stmt.span, "it stands after the end of its block"),
                );
                return;
            }
            let last = ends && i + 1 == stmts.len();
            self.nested(stmt.span, |r| r.stmt(stmt, last));
        }
    }

    fn stmt(&mut self, stmt: &Stmt, last: bool) {
        let old = self.build.device.clone();
        if let Some((text, span)) = &stmt.device {
            match device::check(text) {
                Ok(()) => {
                    let merged = match &old {
                        Some(outer) => device::merge(outer, text),
                        None => text.clone(),
                    };
                    self.build.device = Some(Arc::from(merged.as_str()));
                }
                Err(why) => {
                    self.error(Diag::error("E0413", why).at(*span, "not a device"));
                }
            }
        }
        let after = self.after_nodes(&stmt.after);
        let val = self.stmt_kind(stmt, last);
        if !after.is_empty() && !val.is_poison() {
            self.add_after(&val, after, stmt);
        }
        self.build.device = old;
    }

    fn stmt_kind(&mut self, stmt: &Stmt, last: bool) -> Val {
        match &stmt.kind {
            StmtKind::Bind { targets, tuple, value } => self.bind_stmt(targets, *tuple, value),
            StmtKind::Expr(expr) => {
                let val = self.expr(expr, None);
                self.check_used(&val, expr, last);
                val
            }
            StmtKind::Update { name, op, op_span, value } => {
                self.update(name, *op, *op_span, value, stmt.span)
            }
            StmtKind::Return(values) => {
                if !self.yields.is_empty() {
                    return self.error(
                        Diag::error("E0136", "`return` belongs at the end of a function or entry")
                            .at(stmt.span, "inside a block")
                            .help("a block gives its values with `yield`"),
                    );
                }
                let values = self.values(values);
                self.frame().returned = Some(values);
                Val::Poison
            }
            StmtKind::Yield(values) => {
                if self.yields.is_empty() {
                    return self.error(
                        Diag::error("E0137", "`yield` belongs in the blocks of `if` and `while`")
                            .at(stmt.span, "not inside one")
                            .help("functions and entries give their values with `return`"),
                    );
                }
                let values = self.values(values);
                if let Some(top) = self.yields.last_mut() {
                    *top = Some(values);
                }
                Val::Poison
            }
            StmtKind::Minimize { loss, over, through, with } => {
                self.minimize(loss, over.as_deref(), through, with, stmt.span)
            }
            StmtKind::For { each, body } => self.for_stmt(each, body),
            StmtKind::Var(item) => {
                self.local_var(item);
                Val::Poison
            }
            StmtKind::On(block) => {
                self.stmts(&block.stmts);
                Val::Poison
            }
        }
    }

    fn values(&mut self, exprs: &[Expr]) -> Vec<Spanned> {
        let mut out = vec![];
        for e in exprs {
            match self.expr(e, None) {
                Val::Tuple(items) => {
                    if !self.fits_list(out.len(), items.len(), e.span) {
                        return out;
                    }
                    out.extend(items.iter().cloned())
                }
                Val::Var(var) => {
                    let val = self.read(var, e.span).map(Val::Tensor).unwrap_or(Val::Poison);
                    out.push(Spanned { val, span: e.span });
                }
                val => out.push(Spanned { val, span: e.span }),
            }
        }
        out
    }

    fn check_used(&mut self, val: &Val, expr: &Expr, last: bool) {
        let value = match val {
            Val::Poison | Val::Effect(_) => return,
            Val::Tuple(items) if items.is_empty() => return,
            // A call of a function may be for its effects.
            _ => match &expr.kind {
                ExprKind::Call(call) if self.function(&call.callee.text).is_some() => return,
                ExprKind::If(_) | ExprKind::While(_) => return,
                _ => val,
            },
        };
        if let Val::Tensor(v) = value
            && let Def::Node(node, _) = self.build.func.values[*v].def
            && !self.build.func.nodes[node].op.is_pure()
        {
            return;
        }
        let diag =
            Diag::error("E0138", "this value is not used").at(expr.span, "computed for nothing");
        let start = Span { hi: expr.span.lo, ..expr.span };
        let diag = match (last, self.yields.is_empty()) {
            (false, _) => diag.help("give it a name: `name = ...`"),
            (true, true) => diag.fix("to give it back, `return` it", start, "return "),
            (true, false) => {
                diag.fix("to make it the value of the block, `yield` it", start, "yield ")
            }
        };
        self.error(diag);
    }

    fn bind_stmt(&mut self, targets: &[Target], tuple: bool, value: &Expr) -> Val {
        let want = match targets {
            [Target { ty: Some(ty), .. }] if !tuple && is_full(ty) => self.concrete_type(ty),
            _ => None,
        };
        if let [Target { ty: Some(ty), .. }] = targets
            && !tuple
            && is_full(ty)
            && want.is_none()
        {
            // The type is in error; the value may be, too.
            self.expr(value, None);
            self.poison(targets);
            return Val::Poison;
        }
        let val = self.expr(value, want.as_ref());
        if val.is_poison() {
            self.poison(targets);
            return Val::Poison;
        }
        // One name for several values: taken apart later, `s[0]`.
        let whole = matches!(&val, Val::Tuple(items) if items.len() > 1)
            && matches!(targets, [Target { ty: None, .. }])
            && !tuple;
        let items: Vec<Spanned> = match (&val, tuple) {
            _ if whole => vec![Spanned { val: val.clone(), span: value.span }],
            (Val::Tuple(items), _) => items.to_vec(),
            (Val::List(items), true) => items.to_vec(),
            _ => vec![Spanned { val: val.clone(), span: value.span }],
        };
        if items.len() != targets.len() {
            self.error(
                Diag::error(
                    "E0139",
                    format!(
                        "{} on the left, {} on the right",
                        count(targets.len(), "name"),
                        count(items.len(), "value")
                    ),
                )
                .at(value.span, format!("gives {}", count(items.len(), "value")))
                .also(
                    targets.first().map(|t| t.name.span).unwrap_or(value.span),
                    count(targets.len(), "name"),
                ),
            );
            self.poison(targets);
            return Val::Poison;
        }
        let mut last = Val::Poison;
        for (target, item) in targets.iter().zip(items) {
            last = self.bind_target(target, item);
        }
        last
    }

    fn poison(&mut self, targets: &[Target]) {
        let build = self.build.id;
        for t in targets {
            let bound = Bound { val: Val::Poison, span: t.name.span, build };
            self.frame().set(t.name.text.clone(), bound);
        }
    }

    fn bind_target(&mut self, target: &Target, item: Spanned) -> Val {
        let name = &target.name;
        if target.ty.is_none() && &*name.text != "_" {
            let shadowed =
                self.frames.last().and_then(|f| f.get(&name.text)).map(|b| b.val.clone());
            let module = self.module();
            let is_var = match shadowed {
                Some(Val::Var(_)) => true,
                Some(_) => false,
                None if self.modules[module].vars.contains_key(&name.text) => true,
                None => name.text.contains('.') && self.state_at(&name.text).is_some(),
            };
            if is_var {
                return self.error(
                    Diag::error("E0407", format!("`{}` is a variable", name.text))
                        .at(name.span, "`=` names a value, it does not write a variable")
                        .help(format!(
                            "write `assign({}, ...)`, or choose another name",
                            name.text
                        )),
                );
            }
        }
        let val = match &target.ty {
            Some(ty) => {
                let dtype = DType::from_name(&ty.dtype.text);
                match self.tensor(&item.val, item.span, dtype) {
                    None => Val::Poison,
                    Some(v) => self.checked_value(v, item.span, ty, Some(name)),
                }
            }
            None => match item.val {
                Val::Var(_) | Val::Const(_) => match self.tensor(&item.val, item.span, None) {
                    Some(v) => Val::Tensor(v),
                    None => Val::Poison,
                },
                val => val,
            },
        };
        if &*name.text == "_" {
            return val;
        }
        if let Val::Tensor(v) = val {
            self.name_value(v, &name.text);
        }
        let build = self.build.id;
        self.frame().set(name.text.clone(), Bound { val: val.clone(), span: name.span, build });
        val
    }

    /// A value of a known type, as [`Resolver::checked_value`] has it.
    pub(super) fn checked(
        &mut self,
        val: Val,
        span: Span,
        ty: &TypeExpr,
        want: &TensorType,
    ) -> Val {
        match self.tensor(&val, span, Some(want.dtype)) {
            Some(v) => self.checked_value(v, span, ty, None),
            None => Val::Poison,
        }
    }

    fn checked_value(&mut self, v: ValueId, span: Span, ty: &TypeExpr, name: Option<&Name>) -> Val {
        let actual = self.type_of(v);
        match self.match_type(ty, &actual, false) {
            Ok(()) => Val::Tensor(v),
            Err(Failure::Reported) => Val::Poison,
            Err(Failure::Mismatch(m)) => {
                let what = match name {
                    Some(n) => format!("`{}`", n.text),
                    None => "the value".to_string(),
                };
                let diag =
                    Diag::error("E0217", format!("{what} is {actual}, not as declared: {}", m.why))
                        .at(span, format!("this is {actual}"))
                        .also(m.at, "declared here");
                let diag = self.origins(diag, &[v]);
                self.error(diag)
            }
        }
    }

    /// Gives a value its name, for printing, feeding and fetching. The outermost
    /// function that names it decides.
    pub(super) fn name_value(&mut self, v: ValueId, name: &str) {
        let depth = self.frames.len();
        if let Def::Param(..) = self.build.func.values[v].def {
            return;
        }
        let named = self.build.named_at.get(&v).copied();
        if self.build.func.values[v].name.is_some() && named.is_none_or(|d| d <= depth) {
            return;
        }
        let full = if name.starts_with('_') {
            name.to_string()
        } else {
            format!("{}{name}", self.frame().path)
        };
        if let Some(unique) = self.build.unique(&full) {
            self.build.func.values[v].name = Some(unique);
            self.build.named_at.insert(v, depth);
        }
    }

    fn update(&mut self, name: &Name, op: Binary, op_span: Span, value: &Expr, span: Span) -> Val {
        let bound = self.frames.last().and_then(|f| f.get(&name.text)).map(|b| b.val.clone());
        if let Some(val) = bound.filter(|v| !matches!(v, Val::Var(_) | Val::Poison)) {
            let sign = match op {
                Binary::Add => "+",
                Binary::Sub => "-",
                Binary::Mul => "*",
                _ => "/",
            };
            let n = &name.text;
            return self.error(
                Diag::error("E0402", format!("`{n}` is a value, and values do not change"))
                    .at(name.span, format!("this is {}, not a variable", val.describe()))
                    .fix("name a new value", op_span, format!("= {n} {sign}")),
            );
        }
        let Some(var) = self.variable_name(&name.text, name.span) else {
            self.expr(value, None);
            return Val::Poison;
        };
        let rhs = Spanned { val: self.expr(value, None), span: value.span };
        let direct = match op {
            Binary::Add => Some("assign_add"),
            Binary::Sub => Some("assign_sub"),
            _ => None,
        };
        if let Some(op) = direct.and_then(|n| self.ops.get(n).copied()) {
            return self.apply_to_var(op, var, vec![rhs], vec![], op_span, span);
        }
        let lhs = Spanned { val: Val::Var(var), span: name.span };
        let val = self.binary(op, &lhs, &rhs, span);
        match self.ops.get("assign").copied() {
            Some(op) => {
                self.apply_to_var(op, var, vec![Spanned { val, span }], vec![], op_span, span)
            }
            None => Val::Poison,
        }
    }

    // Order and effects.

    fn after_nodes(&mut self, names: &[Name]) -> Vec<NodeId> {
        let mut out = vec![];
        for name in names {
            let node = match self.lookup(&name.text) {
                Some(Val::Effect(node)) => Some(node),
                Some(Val::Tensor(v)) => {
                    self.build.func.def(v).filter(|n| !self.build.func.nodes[*n].op.is_pure())
                }
                Some(Val::Poison) => continue,
                Some(_) => None,
                None => {
                    self.error(
                        Diag::error("E0123", format!("there is no value `{}`", name.text))
                            .at(name.span, "not defined here"),
                    );
                    continue;
                }
            };
            match node {
                Some(node) if self.build.func.regions[self.build.region].nodes.contains(&node) => {
                    out.push(node);
                }
                Some(_) => {
                    self.error(
                        Diag::error("E0408", "`after` orders effects of one block")
                            .at(name.span, "this is in another block"),
                    );
                }
                None => {
                    self.error(
                        Diag::error("E0408", format!("`{}` has no effect to wait for", name.text))
                            .at(name.span, "a pure value")
                            .help("name an effect: `p = print(x)`, then `after(p)`"),
                    );
                }
            }
        }
        out.sort();
        out.dedup();
        out
    }

    fn add_after(&mut self, val: &Val, after: Vec<NodeId>, stmt: &Stmt) {
        let node = match val {
            Val::Effect(node) => Some(*node),
            Val::Tensor(v) => self.build.func.def(*v),
            _ => None,
        };
        match node {
            Some(node) if !self.build.func.nodes[node].op.is_pure() => {
                self.build.func.nodes[node].after = after;
            }
            _ => {
                self.error(
                    Diag::error("E0408", "`after` stands on effects only")
                        .at(stmt.span, "nothing here writes, prints or asserts")
                        .help("pure values have no moment at which they happen"),
                );
            }
        }
    }
}

/// Whether a type leaves nothing open.
fn is_full(ty: &TypeExpr) -> bool {
    &*ty.dtype.text != "_"
        && !ty.dims.iter().any(|d| matches!(d.kind, ExprKind::Hole | ExprKind::Rest(None)))
}
