//! Calls of ops: operands, literals, broadcasting, inference.
//!
//! Everything comes from the op's record; an op named here has a surface form
//! the record cannot express (`matmul` of different ranks).

use super::Resolver;
use super::scope::{Spanned, Val};
use crate::build::{Builder, NodeSpec};
use crate::diag::{Diag, Span};
use crate::graph::Symbol;
use crate::lower::{Lower, StepKind};
use crate::op::{Blame, Effect, ElementKind, InferError};
use crate::ops::bounds;
use crate::text::ast::{Call, Expr, ExprKind};
use crate::{Attr, Attrs, DType, Dim, NodeId, Op, OpDef, Tensor, TensorType, ValueId, VarId};
use std::rc::Rc;

/// A named argument that is an attribute, not evaluated yet.
pub(super) struct AttrArg<'e> {
    pub name: &'e str,
    pub name_span: Span,
    pub value: &'e Expr,
}

impl Resolver<'_> {
    pub(super) fn call_op(&mut self, op: Op, call: &Call, span: Span) -> Val {
        let def = op.def();
        if !def.regions.is_empty() {
            return self.call_region_op(op, call, span);
        }
        if let Some(region) = call.regions.first() {
            return self.error(
                Diag::error("E0129", format!("`{}` takes no blocks", def.name))
                    .at(region.name.span, "not expected here"),
            );
        }
        let mut args = call.args.iter().collect::<Vec<_>>();
        let mut var = None;
        if matches!(def.effect, Effect::Read | Effect::Write) {
            let Some(at) = args.iter().position(|a| a.name.is_none()) else {
                return self.error(
                    Diag::error("E0402", format!("`{}` needs a variable", def.name))
                        .at(call.callee.span, "give it first"),
                );
            };
            let arg = args.remove(at);
            match self.variable(&arg.value) {
                Some(v) if self.fits_symbol(def, v, arg.value.span) => var = Some(v),
                _ => return Val::Poison,
            }
        }
        let mut operands: Vec<Option<Spanned>> = vec![None; def.operands.len()];
        let mut many: Vec<Spanned> = vec![];
        let mut attrs: Vec<AttrArg> = vec![];
        let variadic = def.operands.last().is_some_and(|o| o.variadic);
        let fixed = def.operands.len() - variadic as usize;
        let mut position = 0;
        for arg in args {
            match &arg.name {
                Some(name) => {
                    match def.operands[..fixed].iter().position(|o| o.name == &*name.text) {
                        Some(slot) => {
                            if operands[slot].is_some() {
                                return self.given_twice(&name.text, name.span);
                            }
                            let val = self.expr(&arg.value, None);
                            operands[slot] = Some(Spanned { val, span: arg.value.span });
                        }
                        None => attrs.push(AttrArg {
                            name: &name.text,
                            name_span: name.span,
                            value: &arg.value,
                        }),
                    }
                }
                None if position < fixed => {
                    let mut val = self.expr(&arg.value, None);
                    // `concat(parts)`: the first is the fixed one.
                    if let Val::List(items) = &val
                        && variadic
                        && position + 1 == fixed
                        && items.iter().all(|i| matches!(i.val, Val::Tensor(_) | Val::Var(_)))
                        && let Some((first, rest)) = items.clone().split_first()
                    {
                        many.extend(rest.iter().cloned());
                        val = first.val.clone();
                    }
                    operands[position] = Some(Spanned { val, span: arg.value.span });
                    position += 1;
                }
                None if variadic => {
                    let val = self.expr(&arg.value, None);
                    match (&arg.value.kind, val) {
                        (ExprKind::List(_) | ExprKind::Every(..), Val::List(items)) => {
                            many.extend(items.iter().cloned())
                        }
                        (_, Val::Tuple(items)) => many.extend(items.iter().cloned()),
                        (_, val) => many.push(Spanned { val, span: arg.value.span }),
                    }
                }
                None => match def.attrs.get(position - fixed) {
                    // `reshape(x, [2, 3])`, `cast(x, f32)`: attributes in order.
                    Some(spec) => {
                        attrs.push(AttrArg {
                            name: spec.name,
                            name_span: arg.value.span,
                            value: &arg.value,
                        });
                        position += 1;
                    }
                    None => {
                        return self.error(
                            Diag::error(
                                "E0201",
                                format!("`{}` takes {}", def.name, count(fixed, "operand")),
                            )
                            .at(arg.value.span, "this is one too many")
                            .help(signature(def)),
                        );
                    }
                },
            }
        }
        let given: Vec<Spanned> = operands.iter().take(fixed).flatten().cloned().collect();
        if given.len() < fixed {
            let missing: Vec<&str> = def.operands[..fixed]
                .iter()
                .zip(&operands)
                .filter(|(_, given)| given.is_none())
                .map(|(o, _)| o.name)
                .collect();
            return self.error(
                Diag::error("E0201", format!("`{}` needs `{}`", def.name, missing.join("`, `")))
                    .at(call.callee.span, "an operand is missing")
                    .help(signature(def)),
            );
        }
        let all: Vec<Spanned> = given.into_iter().chain(many).collect();
        match var {
            None => self.apply(op, all, attrs, call.callee.span, span),
            Some(var) => self.apply_to_var(op, var, all, attrs, call.callee.span, span),
        }
    }

    fn given_twice(&mut self, name: &str, span: Span) -> Val {
        self.error(
            Diag::error("E0130", format!("`{name}` is given twice"))
                .at(span, "this is the second time, by position or by name"),
        )
    }

    /// A pure op (or one of print and assert) on values.
    pub(super) fn apply(
        &mut self,
        op: Op,
        operands: Vec<Spanned>,
        attrs: Vec<AttrArg>,
        op_span: Span,
        span: Span,
    ) -> Val {
        if attrs.is_empty()
            && let Some(number) = self.fold_op(op, &operands)
        {
            return number;
        }
        let Some((mut values, spans)) = self.operand_values(op, &operands, None) else {
            return Val::Poison;
        };
        if op.name() == "matmul" && values.len() == 2 && attrs.is_empty() {
            return self.matmul(values[0], values[1], &spans, span);
        }
        if broadcasts(op.def()) && values.len() > 1 {
            match self.broadcast_all(op, &values, &spans, span) {
                Some(new) => values = new,
                None => return Val::Poison,
            }
        }
        let first = values.first().map(|v| self.type_of(*v));
        let Some((attrs, attr_spans)) = self.attributes(op, attrs, first.as_ref(), span) else {
            return Val::Poison;
        };
        let spec = NodeSpec::new(op, &values, attrs, span);
        self.finish(spec, &spans, &attr_spans, op_span)
    }

    pub(super) fn apply_to_var(
        &mut self,
        op: Op,
        var: VarId,
        operands: Vec<Spanned>,
        attrs: Vec<AttrArg>,
        op_span: Span,
        span: Span,
    ) -> Val {
        if let Some(info) = self.graph.vars[var].symbol.elements().cloned() {
            return self.apply_to_queue(op, var, &info, operands, attrs, op_span, span);
        }
        let ty = self.graph.vars[var].ty.clone();
        let Some((mut values, spans)) = self.operand_values(op, &operands, Some(ty.dtype)) else {
            return Val::Poison;
        };
        // A smaller value is repeated to the variable's shape.
        if matches!(op.name(), "assign" | "assign_add" | "assign_sub")
            && let [value] = values.as_slice()
        {
            let from = self.type_of(*value);
            if from.shape != ty.shape
                && broadcast_shape(&[&ty.shape, &from.shape]).as_ref() == Ok(&ty.shape)
            {
                match self.broadcast_to(*value, &ty.shape, spans[0]) {
                    Some(v) => values = vec![v],
                    None => return Val::Poison,
                }
            }
        }
        let Some((attrs, attr_spans)) = self.attributes(op, attrs, Some(&ty), span) else {
            return Val::Poison;
        };
        let mut spec = NodeSpec::new(op, &values, attrs, span);
        spec.var = Some(var);
        let val = self.finish(spec, &spans, &attr_spans, op_span);
        match op.def().effect {
            Effect::Write => {
                self.build.wrote(var);
                if self.build.id == 0 {
                    self.assigned.insert(var);
                }
            }
            _ => {
                // An explicit read is the one `wrt: w` means from here on.
                if let Val::Tensor(v) = val {
                    let home = self.build.version(var).home;
                    if home == self.build.region {
                        let version = super::scope::Version { home, read: Some(v) };
                        self.build.versions.insert(var, version);
                    }
                }
            }
        }
        val
    }

    /// Operands as tensors: numbers take the element type of their peers.
    fn operand_values(
        &mut self,
        op: Op,
        operands: &[Spanned],
        like: Option<DType>,
    ) -> Option<(Vec<ValueId>, Vec<Span>)> {
        let def = op.def();
        if operands.iter().any(|o| o.val.is_poison()) {
            return None;
        }
        let kind = |i: usize| {
            let last = def.operands.len().saturating_sub(1);
            def.operands.get(i.min(last)).map(|o| o.kind).unwrap_or(ElementKind::Any)
        };
        let mut values: Vec<Option<ValueId>> = vec![];
        for o in operands {
            values.push(match &o.val {
                Val::Tensor(_) | Val::Var(_) => Some(self.tensor(&o.val, o.span, None)?),
                Val::Const(_) => Some(self.tensor(&o.val, o.span, None)?),
                _ => None,
            });
        }
        let spans = operands.iter().map(|o| o.span).collect();
        let mut out = vec![];
        for (i, o) in operands.iter().enumerate() {
            if let Some(v) = values[i] {
                out.push(v);
                continue;
            }
            let peer = (0..operands.len())
                .filter(|j| kind(*j) == kind(i))
                .find_map(|j| values[j])
                .map(|v| self.type_of(v).dtype)
                .or(like.filter(|d| {
                    kind(i).admits(*d) && !matches!(kind(i), ElementKind::Index | ElementKind::Key)
                }));
            let natural = self.literal_default(&o.val, operands, kind(i));
            out.push(self.tensor(&o.val, o.span, peer.or(natural))?);
        }
        Some((out, spans))
    }

    /// The type of a number whose peers are all numbers too.
    fn literal_default(&self, val: &Val, peers: &[Spanned], kind: ElementKind) -> Option<DType> {
        let mut natural = self.natural_dtype(val)?;
        if natural == DType::I32 && kind == ElementKind::Key {
            return Some(DType::I64);
        }
        let float = peers.iter().any(|p| matches!(p.val, Val::Float(_) | Val::Ratio(_)));
        if natural == DType::I32 && (float && kind != ElementKind::Index) {
            natural = DType::F32;
        }
        if natural == DType::I32 && kind == ElementKind::Float {
            natural = DType::F32;
        }
        Some(natural)
    }

    pub(super) fn attributes(
        &mut self,
        op: Op,
        given: Vec<AttrArg>,
        x: Option<&TensorType>,
        span: Span,
    ) -> Option<(Attrs, Vec<(&'static str, Span)>)> {
        let def = op.def();
        let mut attrs = Attrs::none();
        let mut spans = vec![];
        let mut ok = true;
        // A gradient term carries the attributes of the op it is about.
        let about = given.iter().filter(|a| def.name == "vjp" && a.name == "of").find_map(|a| {
            match &a.value.kind {
                ExprKind::Str(name) => Op::from_name(name),
                _ => None,
            }
        });
        for arg in given {
            let own = def.attrs.iter().any(|a| a.name == arg.name);
            let carried = about
                .filter(|_| !own)
                .and_then(|op| op.def().attrs.iter().find(|a| a.name == arg.name));
            let spec = match carried {
                Some(spec) => Some(spec),
                None => self.attr_spec(def, arg.name, arg.name_span),
            };
            let Some(spec) = spec else {
                ok = false;
                continue;
            };
            if attrs.get(spec.name).is_some() {
                self.given_twice(arg.name, arg.name_span);
                ok = false;
                continue;
            }
            match self.attr_value(def, spec, arg.value, x) {
                Some(attr) => attrs.set(spec.name, attr),
                None => ok = false,
            }
            spans.push((spec.name, arg.value.span));
        }
        if !ok {
            return None;
        }
        for spec in def.attrs {
            if attrs.get(spec.name).is_some() || spec.default.is_some() {
                continue;
            }
            let rank = x.map(|x| x.rank() as i64).unwrap_or(0);
            let reduces = def.attrs.iter().any(|a| a.name == "keep");
            match spec.name {
                "axes" if reduces => attrs.set("axes", Attr::Ints((0..rank).collect())),
                "perm" => attrs.set("perm", Attr::Ints((0..rank).rev().collect())),
                // NumPy's rule: the last axes.
                "axes" if def.name == "broadcast" => {
                    let to = attrs.shape("shape").len() as i64;
                    attrs.set("axes", Attr::Ints((to - rank..to).collect()));
                }
                _ => {
                    self.error(
                        Diag::error("E0204", format!("`{}` needs `{}`", def.name, spec.name))
                            .at(span, format!("`{}`: {}", spec.name, spec.doc))
                            .help(format!("write `{}: ...`", spec.name)),
                    );
                    return None;
                }
            }
        }
        Some((attrs, spans))
    }

    /// Adds the node, or says in the user's words why it cannot be.
    pub(super) fn finish(
        &mut self,
        mut spec: NodeSpec,
        operands: &[Span],
        attrs: &[(&'static str, Span)],
        op_span: Span,
    ) -> Val {
        let span = spec.span;
        if !self.count_node(span) {
            return Val::Poison;
        }
        spec.device = self.build.device.clone();
        if self.build.func.task.is_none()
            && matches!(spec.op.def().lower, Lower::Step(StepKind::Send | StepKind::Recv))
        {
            self.error(
                Diag::error("E0418", format!("`{}` outside of the part of a task", spec.op.name()))
                    .at(op_span, "between which processes?")
                    .help(
                        "leave messages to the compiler: say `on \"/job:a/task:1\"` where a value \
                         is computed, and compile with `--cluster`",
                    ),
            );
            return Val::Poison;
        }
        let site = self.in_users_text(span);
        if site != span {
            spec.site = site;
        }
        // What may fail when it runs says where in the user's own text.
        if bounds::otherwise(spec.op).is_some() || spec.op.def().effect == Effect::Io {
            spec.span = site;
        }
        let values = spec.operands.clone();
        let region = self.build.region;
        let mut builder = Builder::new(&mut self.build.func, &self.graph.vars);
        builder.region = region;
        match builder.node(spec) {
            Ok(id) => self.node_val(id, span),
            Err(err) => self.infer_error(err, &values, operands, attrs, op_span, span),
        }
    }

    /// Of a place in a library that comes with the compiler, the call that led there.
    fn in_users_text(&self, span: Span) -> Span {
        let ours = |span: Span| {
            let file = self.sources.files.get(span.file as usize);
            let name = file.and_then(|f| f.name.strip_prefix('<')?.strip_suffix('>'));
            name.is_some_and(|name| crate::text::lib_source(name).is_some())
        };
        if !ours(span) {
            return span;
        }
        let sites = self.frames.iter().rev().map(|f| f.site);
        sites.into_iter().find(|s| !s.is_none() && !ours(*s)).unwrap_or(span)
    }

    pub(super) fn node_val(&self, id: NodeId, span: Span) -> Val {
        let results = &self.build.func.nodes[id].results;
        match results.as_slice() {
            [] => Val::Effect(id),
            [one] => Val::Tensor(*one),
            many => Val::Tuple(Rc::new(
                many.iter().map(|v| Spanned { val: Val::Tensor(*v), span }).collect(),
            )),
        }
    }

    fn infer_error(
        &mut self,
        err: InferError,
        values: &[ValueId],
        operands: &[Span],
        attrs: &[(&'static str, Span)],
        op_span: Span,
        span: Span,
    ) -> Val {
        let mut diag = Diag::error(err.code, err.message);
        let mut first = true;
        for (place, text) in &err.labels {
            let at = match place {
                Blame::Operand(i) => operands.get(*i).copied().unwrap_or(span),
                Blame::Attr(name) => {
                    attrs.iter().find(|(n, _)| n == name).map(|(_, s)| *s).unwrap_or(op_span)
                }
                Blame::Op => op_span,
            };
            diag = if first { diag.at(at, text.clone()) } else { diag.also(at, text.clone()) };
            first = false;
        }
        if err.labels.is_empty() {
            diag = diag.at(span, "here");
        }
        if let Some(help) = err.help {
            diag = diag.help(help);
        }
        let diag = self.origins(diag, values);
        self.error(diag)
    }

    /// Says where the operands' shapes come from: declarations of parameters,
    /// variables and dims.
    pub(super) fn origins(&self, mut diag: Diag, values: &[ValueId]) -> Diag {
        let mut dims = std::collections::BTreeSet::new();
        for value in values {
            let v = &self.build.func.values[*value];
            for d in &v.ty.shape {
                dims.extend(d.syms());
            }
            if let crate::graph::Def::Node(node, _) = v.def {
                let node = &self.build.func.nodes[node];
                if let Some(var) = node.var {
                    let var = &self.graph.vars[var];
                    if !var.span.is_none() && !diag.labels.iter().any(|l| l.span == var.span) {
                        diag = diag.also(
                            var.span,
                            match &var.symbol {
                                Symbol::Variable => {
                                    format!("`{}` is declared {}", var.name, var.ty)
                                }
                                Symbol::Queue(_) | Symbol::Reader(_) => {
                                    format!("`{}` is where it comes from", var.name)
                                }
                            },
                        );
                    }
                }
            } else if let Some(name) = &v.name
                && let Some(frame) = self.frames.first()
                && let Some(bound) = frame.scopes.first().and_then(|s| s.get(name))
                && !diag.labels.iter().any(|l| l.span == bound.span)
            {
                diag = diag.also(bound.span, format!("`{name}` is declared {}", v.ty));
            }
        }
        for dim in dims.iter().take(3) {
            if let Some(decl) = self.graph.dims.iter().find(|d| d.name == *dim) {
                diag = diag.also(decl.span, format!("`{dim}` comes from here"));
            }
        }
        diag
    }

    // Nodes the sugar needs.

    pub(super) fn emit(
        &mut self,
        op: Op,
        operands: &[ValueId],
        attrs: Attrs,
        span: Span,
    ) -> Option<ValueId> {
        let spans = vec![span; operands.len()];
        let spec = NodeSpec::new(op, operands, attrs, span);
        match self.finish(spec, &spans, &[], span) {
            Val::Tensor(v) => Some(v),
            _ => None,
        }
    }

    pub(super) fn constant(&mut self, tensor: Tensor, span: Span) -> Option<ValueId> {
        let attrs = Attrs::none().with("value", Attr::Tensor(tensor.into()));
        self.emit(Op::Const, &[], attrs, span)
    }

    pub(super) fn reshape(&mut self, x: ValueId, shape: Vec<Dim>, span: Span) -> Option<ValueId> {
        if self.type_of(x).shape == shape {
            return Some(x);
        }
        self.emit(Op::Reshape, &[x], Attrs::none().with("shape", Attr::Shape(shape)), span)
    }

    /// NumPy's rule: the operand's axes are the last ones.
    pub(super) fn broadcast_to(
        &mut self,
        x: ValueId,
        shape: &[Dim],
        span: Span,
    ) -> Option<ValueId> {
        let from = self.type_of(x);
        if from.shape == shape {
            return Some(x);
        }
        let offset = shape.len() as i64 - from.rank() as i64;
        let attrs = Attrs::none()
            .with("shape", Attr::Shape(shape.to_vec()))
            .with("axes", Attr::Ints((0..from.rank() as i64).map(|i| i + offset).collect()));
        self.emit(Op::Broadcast, &[x], attrs, span)
    }

    fn broadcast_all(
        &mut self,
        op: Op,
        values: &[ValueId],
        spans: &[Span],
        span: Span,
    ) -> Option<Vec<ValueId>> {
        let types: Vec<TensorType> = values.iter().map(|v| self.type_of(*v)).collect();
        let shapes: Vec<&[Dim]> = types.iter().map(|t| t.shape.as_slice()).collect();
        match broadcast_shape(&shapes) {
            Ok(shape) => {
                values.iter().zip(spans).map(|(v, s)| self.broadcast_to(*v, &shape, *s)).collect()
            }
            Err((i, j, axis)) => {
                let (a, b) = (&types[i], &types[j]);
                let size = |t: &TensorType| t.shape[t.rank() - 1 - axis].to_string();
                let mut diag = Diag::error(
                    "E0203",
                    format!(
                        "`{}` cannot join these shapes: sizes {} and {} differ",
                        op.name(),
                        size(a),
                        size(b)
                    ),
                )
                .at(spans[i], format!("this is {a}"))
                .also(spans[j], format!("this is {b}"));
                diag = diag.help(
                    "shapes are aligned at the last axis; sizes must be equal, or one of them 1",
                );
                let diag = self.origins(diag, &[values[i], values[j]]);
                let _ = span;
                self.error(diag);
                None
            }
        }
    }

    /// `@`: vectors, matrices and batches, as NumPy has it.
    fn matmul(&mut self, a: ValueId, b: ValueId, spans: &[Span], span: Span) -> Val {
        let (ta, tb) = (self.type_of(a), self.type_of(b));
        let done = |r: &mut Self, a, b| {
            let spec = NodeSpec::new(Op::MatMul, &[a, b], Attrs::none(), span);
            r.finish(spec, spans, &[], span)
        };
        if ta.rank() == 0 || tb.rank() == 0 || (ta.rank() == tb.rank() && ta.rank() > 1) {
            let same = ta.rank() > 1
                && tb.rank() > 1
                && ta.shape[..ta.rank() - 2] == tb.shape[..tb.rank() - 2];
            if same || ta.rank() == 0 || tb.rank() == 0 {
                return done(self, a, b);
            }
        }
        let result = self.matmul_ranks(a, b, &ta, &tb, spans, span, &done);
        result.unwrap_or(Val::Poison)
    }

    #[allow(clippy::too_many_arguments)]
    fn matmul_ranks(
        &mut self,
        mut a: ValueId,
        mut b: ValueId,
        ta: &TensorType,
        tb: &TensorType,
        spans: &[Span],
        span: Span,
        done: &dyn Fn(&mut Self, ValueId, ValueId) -> Val,
    ) -> Option<Val> {
        let one = Dim::constant(1);
        let (row, column) = (ta.rank() == 1, tb.rank() == 1);
        let mut sa = ta.shape.clone();
        let mut sb = tb.shape.clone();
        // Sizes that do not meet are the op's own error, about the user's shapes.
        let inner_b = if column { &sb[0] } else { &sb[sb.len() - 2] };
        if sa.last() != Some(inner_b) {
            let (ka, kb) = (sa.last().cloned().unwrap_or(one), inner_b.clone());
            let diag = Diag::error(
                "E0213",
                format!("`matmul` cannot join these shapes: inner sizes {ka} and {kb} differ"),
            )
            .at(spans[0], format!("this is {ta}, inner size {ka}"))
            .also(spans[1], format!("this is {tb}, inner size {kb}"));
            let diag = self.origins(diag, &[a, b]);
            return Some(self.error(diag));
        }
        if row {
            sa.insert(0, one.clone());
            a = self.reshape(a, sa.clone(), span)?;
        }
        if column {
            sb.push(one);
            b = self.reshape(b, sb.clone(), span)?;
        }
        let (la, lb) = (&sa[..sa.len() - 2], &sb[..sb.len() - 2]);
        let mut out: Vec<Dim>;
        let result;
        if lb.is_empty() && !la.is_empty() {
            // Many rows against one matrix: one large product.
            let k = sa[sa.len() - 1].clone();
            let rows = Dim::product(&sa[..sa.len() - 1]);
            a = self.reshape(a, vec![rows, k], span)?;
            out = sa[..sa.len() - 1].to_vec();
            out.push(sb[1].clone());
            result = done(self, a, b);
        } else {
            let lead = match broadcast_shape(&[la, lb]) {
                Ok(lead) => lead,
                Err(_) => {
                    let diag =
                        Diag::error("E0214", "`matmul` needs leading (batch) axes that agree")
                            .at(spans[0], format!("this is {ta}"))
                            .also(spans[1], format!("this is {tb}"));
                    let diag = self.origins(diag, &[a, b]);
                    return Some(self.error(diag));
                }
            };
            let full = |s: &[Dim]| [lead.as_slice(), &s[s.len() - 2..]].concat();
            let (fa, fb) = (full(&sa), full(&sb));
            a = self.broadcast_to(a, &fa, spans[0])?;
            b = self.broadcast_to(b, &fb, spans[1])?;
            out = lead.clone();
            out.extend([sa[sa.len() - 2].clone(), sb[sb.len() - 1].clone()]);
            result = done(self, a, b);
        }
        let Val::Tensor(y) = result else { return Some(result) };
        if column {
            out.pop();
        }
        if row {
            let at = out.len() - 1 - !column as usize;
            out.remove(at);
        }
        self.reshape(y, out, span).map(Val::Tensor)
    }
}

/// Whether operands of different shapes are made equal.
pub(super) fn broadcasts(def: &OpDef) -> bool {
    matches!(def.lower, Lower::Map(_)) || matches!(def.name, "clamp" | "pow" | "rem" | "select")
}

/// The common shape, or two operands and the axis (from the last) that clash.
pub(super) fn broadcast_shape(shapes: &[&[Dim]]) -> Result<Vec<Dim>, (usize, usize, usize)> {
    let rank = shapes.iter().map(|s| s.len()).max().unwrap_or(0);
    let mut out = vec![Dim::constant(1); rank];
    for axis in 0..rank {
        let mut from = None;
        for (i, shape) in shapes.iter().enumerate() {
            let Some(size) = shape.len().checked_sub(axis + 1).map(|at| &shape[at]) else {
                continue;
            };
            let slot = &mut out[rank - 1 - axis];
            if size.is_one() || size == slot {
                if from.is_none() && !size.is_one() {
                    from = Some(i);
                }
                continue;
            }
            match from {
                None => {
                    *slot = size.clone();
                    from = Some(i);
                }
                Some(other) => return Err((other, i, axis)),
            }
        }
    }
    Ok(out)
}

pub(super) fn count(n: usize, what: &str) -> String {
    match n {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// `clamp(x, lo, hi)`, as help.
fn signature(def: &OpDef) -> String {
    let mut parts: Vec<String> = vec![];
    if matches!(def.effect, Effect::Read | Effect::Write) {
        parts.push("variable".to_string());
    }
    for o in def.operands {
        parts.push(if o.variadic { format!("{}, ..", o.name) } else { o.name.to_string() });
    }
    for a in def.attrs {
        parts.push(format!("{}:", a.name));
    }
    format!("it is `{}({})`", def.name, parts.join(", "))
}
