//! Variables: declarations, initialisers, reads; and entries, which share them.

use super::Resolver;
use super::ops::count;
use super::scope::{Bound, Build, Frame, Owner, Slots, Spanned, Val, Version};
use super::types::Failure;
use crate::build::{Builder, NodeSpec};
use crate::diag::{Diag, Span};
use crate::graph::{Symbol, Var};
use crate::text::ast::{Block, EntryItem, Expr, ExprKind, TypeExpr, VarItem};
use crate::text::device;
use crate::text::names::nearest;
use crate::{Attrs, Dim, Op, TensorType, ValueId, VarId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Two statements ask one optimizer to train the same variable.
const TRAINED_TWICE: &str = "E0453";

impl Resolver<'_> {
    /// A variable of the whole graph.
    pub(super) fn top_var(&mut self, item: &VarItem) {
        if self.modules[0].vars.contains_key(&item.name.text) {
            return;
        }
        let Some(id) = self.declare_var(item, item.name.text.to_string(), !item.slot) else {
            // The name is known, what it is is not.
            let build = self.build.id;
            let bound = Bound { val: Val::Poison, span: item.name.span, build };
            self.poisoned_vars.insert(item.name.text.clone(), bound);
            return;
        };
        self.modules[0].vars.insert(item.name.text.clone(), id);
    }

    /// Its first value: after all are declared, in the order of the text.
    pub(super) fn top_init(&mut self, item: &VarItem) {
        if let Some(id) = self.modules[0].vars.get(&item.name.text).copied()
            && self.graph.vars[id].span == item.name.span
        {
            self.initialise(id, item);
        }
    }

    /// A variable of a body: of a layer's call, a model, an optimizer, an entry.
    pub(super) fn local_var(&mut self, item: &VarItem) {
        let frame = self.frame();
        let mut element = item.name.text.to_string();
        frame.iterations.iter().for_each(|n| element.push_str(&format!(".{n}")));
        let (owner, func) = (frame.owner.clone(), frame.func);
        let prefix = match &owner {
            Owner::Body => format!("{}.", self.build.func.name),
            Owner::Weights { path, .. } => path.to_string(),
            Owner::Slots(slots) => slots.path.clone(),
            // Reported when the text was looked through.
            Owner::Nobody => return self.poison_name(item),
        };
        if self.claim(&element, item.name.span).is_none() {
            return self.poison_name(item);
        }
        let name = format!("{prefix}{element}");
        let site = self.owner_site(&owner);
        let id = match self.var_names.get(&name).copied() {
            Some(id) => {
                if !self.same_var(id, item, site) {
                    return self.poison_name(item);
                }
                id
            }
            None => {
                let user = !matches!(owner, Owner::Slots(_));
                let Some(id) = self.declare_var(item, name, user) else {
                    return self.poison_name(item);
                };
                if func.is_some_and(|f| self.writes_local(f, &item.name.text)) {
                    self.self_written.insert(id);
                }
                self.pending.insert(id);
                id
            }
        };
        if self.pending.remove(&id) {
            self.first_sites.insert(id, site);
            if let Owner::Weights { .. } = owner {
                self.weights.push(id);
            }
            self.in_build(0, |r| r.initialise(id, item));
        }
        if let Owner::Slots(slots) = &owner
            && !self.one_state(id, slots)
        {
            return self.poison_name(item);
        }
        let written = func.is_none() || self.self_written.contains(&id);
        if written && !self.build.saved.is_empty() {
            self.build.wrote(id);
        }
        let build = self.build.id;
        self.frame()
            .set(item.name.text.clone(), Bound { val: Val::Var(id), span: item.name.span, build });
    }

    /// The call that variables declared now belong to, as far as the user sees one.
    fn owner_site(&self, owner: &Owner) -> Span {
        match owner {
            Owner::Slots(slots) => slots.site,
            Owner::Weights { .. } => {
                let model = |f: &&Frame| matches!(f.owner, Owner::Weights { model: true, .. });
                self.frames.iter().rev().find(model).map_or(Span::NONE, |f| f.site)
            }
            Owner::Body | Owner::Nobody => Span::NONE,
        }
    }

    /// Whether a declaration reached again is that of a variable known by this name.
    fn same_var(&mut self, id: VarId, item: &VarItem, site: Span) -> bool {
        let Some(ty) = self.var_type(item) else { return false };
        let known = self.graph.vars[id].clone();
        if known.span != item.name.span {
            self.error(
                Diag::error("E0118", format!("two variables are called `{}`", known.name))
                    .at(item.name.span, "this one is the second")
                    .also(known.span, "the first is declared here")
                    .help("give a call of a layer or of an optimizer a name of its own with `as`"),
            );
            return false;
        }
        if known.ty == ty {
            return true;
        }
        let first = self.first_sites.get(&id).copied().unwrap_or(Span::NONE);
        let mut diag =
            Diag::error("E0412", format!("`{}` has two types: {} and {ty}", known.name, known.ty));
        diag = match (site.is_none(), first.is_none() || first == site) {
            (true, _) => diag.at(item.name.span, format!("this time, it would be {ty}")),
            (false, true) => diag.at(site, format!("this call makes it {ty}")),
            (false, false) => diag
                .at(site, format!("this call makes it {ty}"))
                .also(first, format!("this call has made it {}", known.ty)),
        };
        let diag = diag.help(
            "a model has one set of weights; for two, declare a `layer`, and a model of it for \
             each: `model a = net(..)`",
        );
        if !self.diags.contains(&diag) {
            self.diags.push(diag);
        }
        false
    }

    /// Whether only one place of the entry asks for an optimizer's state.
    fn one_state(&mut self, id: VarId, slots: &Slots) -> bool {
        let here = (slots.site, slots.named);
        let first = *self.build.slot_sites.entry(id).or_insert(here);
        if first.0 == here.0 || first.1 && here.1 {
            return true;
        }
        // Once for all variables of the two.
        let told = |d: &Diag| {
            d.code == TRAINED_TWICE && d.labels.iter().any(|l| l.primary && l.span == here.0)
        };
        if self.diags.iter().any(told) {
            return false;
        }
        let name = slots.path.split('.').next().unwrap_or_default().to_string();
        let what = match slots.vars.as_slice() {
            [var] => format!("`{}`", self.graph.vars[*var].name),
            _ => "these variables".to_string(),
        };
        let diag = Diag::error(TRAINED_TWICE, format!("`{name}` is asked twice to train {what}"))
            .at(here.0, "should this go on with the state of the first, or have its own?")
            .also(first.0, "the first is here")
            .help(format!(
                "name the states: `as {name}_a` and `as {name}_b` for two, the same name at both \
                 for one"
            ));
        self.diags.push(diag);
        false
    }

    fn poison_name(&mut self, item: &VarItem) {
        let build = self.build.id;
        self.frame()
            .set(item.name.text.clone(), Bound { val: Val::Poison, span: item.name.span, build });
    }

    fn var_type(&mut self, item: &VarItem) -> Option<TensorType> {
        let ty = self.concrete_type(&item.ty)?;
        if ty.static_shape().is_none() {
            let mut diag = Diag::error(
                "E0403",
                format!("the variable `{}` needs a fixed shape", item.name.text),
            )
            .at(item.ty.span, format!("{ty} depends on a size known only at run time"));
            for decl in &self.graph.dims {
                if ty.shape.iter().any(|d| d.syms().contains(&decl.name)) {
                    diag = diag.also(decl.span, format!("`{}` comes from here", decl.name));
                }
            }
            diag = diag.help("a variable outlives the calls whose sizes differ");
            self.error(diag);
            return None;
        }
        Some(ty)
    }

    /// The device of a declaration; `Err` if what is written is not one.
    pub(super) fn declared_device(
        &mut self,
        written: &Option<(String, Span)>,
    ) -> Result<Option<Arc<str>>, ()> {
        let Some((text, span)) = written else { return Ok(None) };
        match device::check(text) {
            Ok(()) => Ok(Some(Arc::from(text.as_str()))),
            Err(why) => {
                self.error(Diag::error("E0413", why).at(*span, "not a device"));
                Err(())
            }
        }
    }

    /// The task of a part: a whole one, and no device of it.
    fn declared_task(&mut self, written: &Option<(String, Span)>) -> Option<Arc<str>> {
        let task = self.declared_device(written).ok().flatten()?;
        if device::task(&task).is_none_or(|name| *name != *task) {
            let span = written.as_ref().map_or(Span::NONE, |(_, span)| *span);
            self.error(
                Diag::error("E0413", "an entry is on a task, as in \"/job:ps/task:0\"")
                    .at(span, "not a task"),
            );
        }
        Some(task)
    }

    fn declare_var(&mut self, item: &VarItem, name: String, user: bool) -> Option<VarId> {
        let ty = self.var_type(item)?;
        let device = self.declared_device(&item.device).ok()?;
        let span = item.name.span;
        let id = self.graph.vars.push(Var {
            name: name.clone(),
            ty,
            symbol: Symbol::Variable,
            user,
            device,
            span,
        });
        self.var_names.insert(name, id);
        Some(id)
    }

    /// Adds a variable's first value to the initialiser, which is current.
    fn initialise(&mut self, id: VarId, item: &VarItem) {
        let Some(init) = &item.init else { return };
        let ty = self.graph.vars[id].ty.clone();
        let name = self.graph.vars[id].name.clone();
        let outer = self.seed.replace(name_seed(&name));
        let val = self.expr(init, Some(&ty));
        self.seed = outer;
        // Assigned even if its value is in error: no second finding.
        let fits = self.fitted(&val, init.span, &ty);
        self.assigned.insert(id);
        let Some(value) = fits else { return };
        let actual = self.type_of(value);
        if actual != ty {
            let diag = Diag::error(
                "E0404",
                format!("`{}` is declared {ty}, but its initial value is {actual}", item.name.text),
            )
            .at(init.span, format!("this is {actual}"))
            .also(item.ty.span, format!("declared {ty}"));
            self.error(diag);
            return;
        }
        let Some(op) = self.ops.get("assign").copied() else { return };
        let mut spec = NodeSpec::new(op, &[value], Attrs::none(), item.span);
        spec.var = Some(id);
        self.finish(spec, &[init.span], &[], item.span);
        self.build.wrote(id);
    }

    /// The value as a tensor, repeated to `ty` if it is smaller.
    fn fitted(&mut self, val: &Val, span: Span, ty: &TensorType) -> Option<ValueId> {
        let value = self.tensor(val, span, Some(ty.dtype))?;
        let actual = self.type_of(value);
        if actual.rank() == 0 && actual.dtype == ty.dtype {
            return self.broadcast_to(value, &ty.shape, span);
        }
        Some(value)
    }

    pub(super) fn init_block(&mut self, block: &Block) {
        self.stmts(&block.stmts);
        if let Some(returned) = self.frame().returned.take()
            && !returned.is_empty()
        {
            self.error(
                Diag::error("E0134", "`init` returns nothing").at(returned[0].span, "not here"),
            );
        }
    }

    pub(super) fn check_initialised(&mut self) {
        let missing: Vec<VarId> = self
            .graph
            .vars
            .iter()
            .filter(|(id, var)| var.symbol.is_variable() && !self.assigned.contains(id))
            .map(|(id, _)| id)
            .collect();
        for id in missing {
            let (name, span) = (self.graph.vars[id].name.clone(), self.graph.vars[id].span);
            self.diags.push(
                Diag::error("E0405", format!("`{name}` has no initial value"))
                    .at(span, "declared without one")
                    .help("write `= zeros`, `= ones`, `= init.normal(seed: 1)` or `= file(\"w.npy\")`"),
            );
        }
    }

    /// The variable an expression names.
    pub(super) fn variable(&mut self, expr: &Expr) -> Option<VarId> {
        let ExprKind::Name(name) = &expr.kind else {
            let val = self.expr(expr, None);
            if !val.is_poison() {
                let what = val.describe();
                self.error(
                    Diag::error("E0402", "expected a variable")
                        .at(expr.span, format!("this is {what}")),
                );
            }
            return None;
        };
        self.variable_name(name, expr.span)
    }

    pub(super) fn variable_name(&mut self, name: &str, span: Span) -> Option<VarId> {
        let bound = self.frames.last().and_then(|f| f.get(name)).map(|b| b.val.clone());
        match bound {
            Some(Val::Var(var)) => return Some(var),
            Some(Val::Poison) => return None,
            _ => {}
        }
        let module = self.module();
        if let Some(var) = self.modules[module].vars.get(name) {
            return Some(*var);
        }
        if self.poisoned_vars.contains_key(name) {
            return None;
        }
        if bound.is_none() {
            match self.state_at(name) {
                Some(Val::Var(var)) => return Some(var),
                Some(val) => {
                    self.error(
                        Diag::error("E0402", format!("`{name}` is {} variables", val.vars().len()))
                            .at(span, "expected one variable")
                            .help(format!(
                                "name one of them, or go through all: `for v in {name} {{ .. }}`"
                            )),
                    );
                    return None;
                }
                None => {}
            }
            if let Some(diag) = self.no_such_state(name, span) {
                self.error(diag);
                return None;
            }
        }
        let mut diag = match bound {
            Some(val) => Diag::error("E0402", format!("`{name}` is not a variable"))
                .at(span, format!("this is {}", val.describe())),
            None => Diag::error("E0402", format!("there is no variable `{name}`"))
                .at(span, "not declared"),
        };
        let names: Vec<String> = self.modules[module].vars.keys().map(|k| k.to_string()).collect();
        diag = match nearest(name, names.iter().map(String::as_str)) {
            Some(n) => diag.fix(format!("did you mean `{n}`?"), span, n),
            None => diag.help(format!("declare it at the top: `var {name}: f32[..] = zeros`")),
        };
        self.error(diag);
        None
    }

    /// The variable's value here: one read for each version.
    pub(super) fn read(&mut self, var: VarId, span: Span) -> Option<ValueId> {
        if !self.graph.vars[var].symbol.is_variable() {
            self.queue_as_value(var, span);
            return None;
        }
        let version = self.build.version(var);
        if let Some(value) = version.read {
            return Some(value);
        }
        if self.build.id == 0 && !self.assigned.contains(&var) {
            let (name, declared) = (self.graph.vars[var].name.clone(), self.graph.vars[var].span);
            self.error(
                Diag::error("E0406", format!("`{name}` is read before it has a value"))
                    .at(span, "used here")
                    .also(declared, "declared here")
                    .help("initialisers run in the order of the text"),
            );
            return None;
        }
        let op = self.ops.get("read").copied()?;
        let here = std::mem::replace(&mut self.build.region, version.home);
        let device = self.build.device.take();
        let mut spec = NodeSpec::new(op, &[], Attrs::none(), span);
        spec.var = Some(var);
        let val = self.finish(spec, &[], &[], span);
        self.build.region = here;
        self.build.device = device;
        let Val::Tensor(value) = val else { return None };
        self.build.versions.insert(var, Version { home: version.home, read: Some(value) });
        Some(value)
    }

    /// A parameter of the region under construction.
    pub(super) fn region_param(&mut self, ty: TensorType, name: Option<Arc<str>>) -> ValueId {
        let region = self.build.region;
        let mut builder = Builder::new(&mut self.build.func, &self.graph.vars);
        builder.region = region;
        builder.param(ty, name)
    }

    // Entries.

    pub(super) fn entry(&mut self, item: &EntryItem, id: u32) {
        let mut build = Build::new(id, &item.name.text);
        build.func.doc = item.doc.clone();
        build.func.runner = item.runner;
        build.func.replica = item.replica;
        build.func.task = self.declared_task(&item.task);
        build.func.span = item.name.span;
        self.frames.push(Frame::new(0));
        let built = self.with_build(build, |r| r.entry_body(item));
        self.frames.pop();
        self.graph.entries.push(built.func);
    }

    fn entry_body(&mut self, item: &EntryItem) {
        if item.runner && !self.check_runner(item) {
            return;
        }
        let mut seen = BTreeSet::new();
        for param in &item.params {
            if param.var || param.default.is_some() {
                self.error(
                    Diag::error("E0140", "an entry takes plain tensors")
                        .at(param.name.span, "no `var`, no default: values are fed by name"),
                );
            }
            if !seen.insert(param.name.text.clone()) {
                self.error(
                    Diag::error("E0118", format!("`{}` is declared twice", param.name.text))
                        .at(param.name.span, "a parameter of this name stands before"),
                );
                continue;
            }
            let mut val = Val::Poison;
            match &param.ty {
                None => {
                    self.error(
                        Diag::error(
                            "E0141",
                            format!("the parameter `{}` needs a type", param.name.text),
                        )
                        .at(param.name.span, "what may be fed here?")
                        .help(format!("write `{}: f32[..]`", param.name.text)),
                    );
                }
                Some(ty) => {
                    if let Some(ty) = self.concrete_type(ty) {
                        let name = self.build.unique(&param.name.text);
                        val = Val::Tensor(self.region_param(ty, name));
                    }
                }
            }
            let build = self.build.id;
            let span = param.ty.as_ref().map(|t| param.name.span.to(t.span));
            let span = span.unwrap_or(param.name.span);
            self.frame().set(param.name.text.clone(), Bound { val, span, build });
        }
        let before = self.diags.len();
        self.stmts(&item.body.stmts);
        let returned = self.frame().returned.take();
        let failed = self.diags.len() != before;
        self.entry_results(item, returned.unwrap_or_default(), failed);
        if self.diags.len() == before {
            self.check_dims(item);
            for diag in crate::stacks::check(&self.build.func) {
                self.error(diag);
            }
            self.check_filled(item);
        }
    }

    fn entry_results(&mut self, item: &EntryItem, returned: Vec<Spanned>, failed: bool) {
        let declared = &item.results;
        if declared.given && declared.items.len() != returned.len() {
            // A return lost to an error is not one that was forgotten.
            if !(failed && returned.is_empty()) {
                let mut diag = Diag::error(
                    "E0134",
                    format!(
                        "`{}` returns {}, but declares {}",
                        item.name.text,
                        count(returned.len(), "value"),
                        declared.items.len()
                    ),
                );
                diag = match returned.first() {
                    Some(first) => diag.at(first.span, "returned here"),
                    None => diag.at(item.name.span, "nothing is returned"),
                };
                self.error(diag.also(declared.span, "declared here"));
            }
            return;
        }
        let mut names = BTreeSet::new();
        for (i, value) in returned.iter().enumerate() {
            let slot = declared.items.get(i);
            let ty = slot.and_then(|s| s.ty.as_ref());
            let dtype = ty.and_then(|t| crate::DType::from_name(&t.dtype.text));
            let Some(v) = self.tensor(&value.val, value.span, dtype) else { continue };
            if let Some(ty) = ty {
                self.result_type(item, v, value.span, ty);
            }
            let own = self.build.func.values[v].name.clone();
            let base = match slot.and_then(|s| s.name.as_ref()) {
                Some(name) => name.text.to_string(),
                None => own.map(|n| n.replace('.', "_")).unwrap_or_else(|| "out".to_string()),
            };
            let mut name = base.clone();
            let mut n = 1;
            while !names.insert(name.clone()) {
                if slot.is_some_and(|s| s.name.is_some()) {
                    self.error(
                        Diag::error("E0118", format!("two results are named `{base}`"))
                            .at(slot.map(|s| s.span).unwrap_or_default(), "this one is the second"),
                    );
                    break;
                }
                n += 1;
                name = format!("{base}_{n}");
            }
            let body = self.build.func.body;
            self.build.func.regions[body].results.push(v);
            self.build.func.result_names.push(name);
        }
    }

    fn result_type(&mut self, item: &EntryItem, v: ValueId, span: Span, ty: &TypeExpr) {
        let actual = self.type_of(v);
        if let Err(Failure::Mismatch(m)) = self.match_type(ty, &actual, false) {
            let diag = Diag::error(
                "E0217",
                format!(
                    "the result of `{}` is {actual}, not as declared: {}",
                    item.name.text, m.why
                ),
            )
            .at(span, format!("this is {actual}"))
            .also(m.at, "declared here");
            let diag = self.origins(diag, &[v]);
            self.error(diag);
        }
    }

    /// Every size the entry uses must be told by a parameter.
    fn check_dims(&mut self, item: &EntryItem) {
        let func = &self.build.func;
        let mut known = BTreeSet::new();
        for p in func.params() {
            known.extend(func.ty(*p).shape.iter().filter_map(Dim::as_sym).cloned());
        }
        let mut unknown: Option<(Arc<str>, Span)> = None;
        let mut look = |dims: &[Dim], span: Span| {
            for d in dims.iter().filter(|d| d.as_const().is_none()) {
                for sym in d.syms() {
                    if !known.contains(&sym) && unknown.is_none() {
                        unknown = Some((sym, span));
                    }
                }
            }
        };
        func.walk(&mut |_, node| {
            for result in &node.results {
                look(&func.ty(*result).shape, node.span);
            }
            for (_, attr) in node.attrs.iter() {
                if let crate::Attr::Shape(dims) = attr {
                    look(dims, node.span);
                }
            }
        });
        for p in func.params() {
            look(&func.ty(*p).shape, item.name.span);
        }
        if let Some((sym, span)) = unknown {
            let decl = self.graph.dims.iter().find(|d| d.name == sym).map(|d| d.span);
            let mut diag = Diag::error(
                "E0142",
                format!("`{}` cannot tell how large `{sym}` is", item.name.text),
            )
            .at(span, format!("`{sym}` is needed here"))
            .also(item.name.span, format!("no parameter has an axis of size `{sym}`"));
            if let Some(decl) = decl {
                diag = diag.also(decl, format!("`{sym}` comes from here"));
            }
            self.error(diag);
        }
    }

    /// A size as a scalar.
    pub(super) fn size_value(
        &mut self,
        dim: &Dim,
        span: Span,
        dtype: Option<crate::DType>,
    ) -> Option<ValueId> {
        let op = Op::from_name("dim_size")?;
        let dtype = dtype.filter(|d| *d != crate::DType::Bool).unwrap_or(crate::DType::I32);
        let attrs = Attrs::none()
            .with("size", crate::Attr::Shape(vec![dim.clone()]))
            .with("dtype", crate::Attr::DType(dtype));
        self.emit(op, &[], attrs, span)
    }
}

/// A number of 31 bits that differs from name to name (FNV-1a).
fn name_seed(name: &str) -> u32 {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    name.bytes().fold(0x811c_9dc5, step) >> 1
}
