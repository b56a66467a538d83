//! Layers and models: who may make weights, and what the weights are called.
//!
//! A `layer` makes new weights at each call, a `model` has one set, a `func` has
//! none. Layers are called in the bodies of layers and models only, so a variable's
//! path is the name of a model and then call sites, each of which has a label fixed
//! by the text of the body it stands in: its own (`as fc1`), or the layer's name and
//! its number among the sites of that name. What a call meets at compile time
//! (an `if` that drops a branch, another call before it) does not change names.
//!
//! Variables come to be when a model is first called. A path that names some before
//! that makes the whole graph resolve again, with all of them declared from the
//! start (see [`Known`]).

use super::Resolver;
use super::scope::{Frame, Owner, Slots, Spanned, Val};
use super::walk::{self, Found};
use crate::VarId;
use crate::diag::{Diag, Span};
use crate::graph::Var;
use crate::text::ast::{self, Block, Call, Expr, FuncItem, FuncKind, Name};
use crate::text::names::nearest;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// A variable of a model as an earlier walk over the entries found it.
pub(crate) struct Known {
    pub var: Var,
    pub written: bool,
}

/// What the text alone says about layers and models.
#[derive(Default)]
pub(crate) struct Sites {
    /// The label of each call site in a body that owns variables, by the place of
    /// the callee.
    labels: BTreeMap<(u32, u32), Arc<str>>,
    /// Optimizers that do no more than pass their variable on to another: the
    /// slots go by the name of the outer one alone.
    wrappers: BTreeSet<(usize, usize)>,
}

/// What a call site means for the variables under it.
pub(super) struct CallSite {
    /// Prefix of the names of values.
    pub path: Rc<str>,
    pub owner: Owner,
}

impl Resolver<'_> {
    // What the text says.

    /// The alias by which the graph reaches each library; shortest first.
    pub(super) fn name_modules(&mut self) {
        let mut queue = std::collections::VecDeque::from([0]);
        let mut seen = BTreeSet::from([0]);
        while let Some(id) = queue.pop_front() {
            for (alias, used) in self.modules[id].use_order.clone() {
                if used < self.modules.len() && seen.insert(used) {
                    self.modules[used].prefix =
                        format!("{}{alias}.", self.modules[id].prefix).into();
                    queue.push_back(used);
                }
            }
        }
    }

    /// Checks where layers are called and variables declared, and labels the calls.
    pub(super) fn check_weights(&mut self, tree: &ast::File) {
        for module in 0..self.modules.len() {
            for index in 0..self.modules[module].funcs.len() {
                let func = self.modules[module].funcs[index].clone();
                self.check_func(module, index, &func);
            }
            for item in self.modules[module].lets.values().cloned().collect::<Vec<_>>() {
                let calls = self.layer_calls(module, |seen| walk::expr(&item.value, seen));
                self.refuse_layers(module, calls);
            }
        }
        for item in &tree.items {
            let calls = match item {
                ast::Item::Entry(e) => self.layer_calls(0, |seen| walk::block(&e.body, seen)),
                ast::Item::Init(b) => self.layer_calls(0, |seen| walk::block(b, seen)),
                ast::Item::Var(v) => match &v.init {
                    Some(init) => self.layer_calls(0, |seen| walk::expr(init, seen)),
                    None => continue,
                },
                _ => continue,
            };
            self.refuse_layers(0, calls);
        }
    }

    fn check_func(&mut self, module: usize, index: usize, func: &FuncItem) {
        if let Some(of) = &func.of {
            self.check_instance(module, func, of);
            let calls = self.layer_calls(module, |seen| walk::func(func, seen));
            return self.refuse_layers(module, calls);
        }
        let slots = takes_variables(func);
        if func.kind != FuncKind::Func || slots {
            self.label_calls(module, index, func);
        }
        if func.kind != FuncKind::Func {
            return;
        }
        let mut var = None;
        walk::func(func, &mut |found| {
            if let Found::Var(item) = found {
                var = var.or(Some(item.name.span));
            }
        });
        if let (Some(span), false) = (var, slots) {
            let diag = Diag::error(
                "E0147",
                format!("`{}` is a `func` and has no variables of its own", func.name.text),
            )
            .at(span, "declared here")
            .also(func.word, "in this function")
            .help(kinds(&func.name));
            self.diags.push(diag);
        }
        for call in self.layer_calls(module, |seen| walk::func(func, seen)) {
            let diag = Diag::error(
                "E0148",
                format!(
                    "`{}` is a layer, and a `func` has no weights to give it",
                    call.callee.text
                ),
            )
            .at(call.callee.span, "each call of a layer makes new weights")
            .also(func.word, "in this function")
            .help(kinds(&func.name));
            self.diags.push(diag);
        }
    }

    /// `model q = critic(units: 64)` is made of a layer.
    fn check_instance(&mut self, module: usize, item: &FuncItem, of: &Call) {
        let span = of.callee.span;
        if let Some(label) = &of.label {
            self.misplaced_label(label, "a model has its name already");
        }
        let Some((m, i)) = self.function_in(module, &of.callee.text) else {
            self.frames.push(Frame::new(module));
            self.unknown_callee(&Call { args: vec![], ..of.clone() });
            self.frames.pop();
            return;
        };
        let layer = self.modules[m].funcs[i].clone();
        if layer.kind == FuncKind::Layer {
            return;
        }
        let name = &of.callee.text;
        let diag = Diag::error(
            "E0451",
            format!(
                "`{}` cannot be made of `{name}`, which is a `{}`",
                item.name.text,
                layer.kind.word()
            ),
        )
        .at(span, "expected a layer")
        .also(layer.word, "declared here");
        let diag = match layer.kind {
            FuncKind::Model => diag.help(format!(
                "a model has one set of weights; write `layer {}` there, and `model` for each set \
                 of weights",
                layer.name.text
            )),
            _ => diag.help("a function has no weights: call it as it is"),
        };
        self.diags.push(diag);
    }

    /// The calls of layers in a piece of text.
    fn layer_calls<'a>(
        &self,
        module: usize,
        walk: impl FnOnce(&mut dyn FnMut(Found<'a>)),
    ) -> Vec<&'a Call> {
        let mut out = vec![];
        walk(&mut |found| {
            if let Found::Call(call) = found
                && self.kind_of(module, &call.callee.text) == Some(FuncKind::Layer)
            {
                out.push(call);
            }
        });
        out
    }

    /// Layers called where nothing owns weights, such as in an entry.
    fn refuse_layers(&mut self, module: usize, calls: Vec<&Call>) {
        for call in calls {
            let name = &*call.callee.text;
            let short = name.rsplit('.').next().unwrap_or(name);
            let text_of = |span: Span, r: &Self| {
                let text = &r.sources.files.get(span.file as usize)?.text;
                Some(text.get(span.lo as usize..span.hi as usize)?.to_string())
            };
            let (mut fixed, mut rest) = (vec![], vec![]);
            for arg in &call.args {
                let text = text_of(arg.value.span, self).unwrap_or_else(|| "..".into());
                match &arg.name {
                    Some(name) => fixed.push(format!("{}: {text}", name.text)),
                    None => rest.push(text),
                }
            }
            let taken = self.modules[module].func_index.contains_key(short);
            let model = match &call.label {
                Some(label) => label.text.to_string(),
                None if taken => "net".to_string(),
                None => short.to_string(),
            };
            let mut declared = format!("model {model} = {name}({})", fixed.join(", "));
            let mut here = format!("{model}({})", rest.join(", "));
            if declared.len() + here.len() > 100 || declared.contains('\n') || here.contains('\n') {
                declared = format!("model {model} = {name}(..)");
                here = format!("{model}(..)");
            }
            self.diags.push(
                Diag::error(
                    "E0148",
                    format!("`{name}` is a layer, and its weights need a model to live in"),
                )
                .at(call.callee.span, "called here, each call of a layer would make new weights")
                .help(format!(
                    "declare the model at the top level, `{declared}`, and call `{here}` here; \
                         a model of several layers is `model net(x) {{ .. }}`"
                )),
            );
        }
    }

    pub(super) fn kind_of(&self, module: usize, name: &str) -> Option<FuncKind> {
        let (module, index) = self.function_in(module, name)?;
        Some(self.modules[module].funcs[index].kind)
    }

    /// Gives each call of a layer (in an optimizer: of another optimizer) its label.
    /// A call that is named by `as` does not count, so that one put in later leaves
    /// the others' names alone.
    fn label_calls(&mut self, module: usize, index: usize, func: &FuncItem) {
        let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        let mut labels = vec![];
        let (mut optimizers, mut declares) = (0, false);
        walk::func(func, &mut |found| {
            let call = match found {
                Found::Call(call) => call,
                Found::Var(_) => return declares = true,
                Found::Name(_) => return,
            };
            let Some((m, i)) = self.function_in(module, &call.callee.text) else { return };
            let callee = &self.modules[m].funcs[i];
            let optimizer = callee.kind == FuncKind::Func && takes_variables(callee);
            optimizers += optimizer as usize;
            if !(optimizer || callee.kind == FuncKind::Layer) {
                return;
            }
            let label = match &call.label {
                Some(label) => label.text.clone(),
                None => {
                    let n = counts.entry(callee.name.text.clone()).or_insert(0);
                    *n += 1;
                    match *n {
                        1 => callee.name.text.clone(),
                        n => format!("{}_{n}", callee.name.text).into(),
                    }
                }
            };
            labels.push((key(call.callee.span), label));
        });
        self.sites.labels.extend(labels);
        if func.kind == FuncKind::Func && optimizers == 1 && !declares {
            self.sites.wrappers.insert((module, index));
        }
    }

    // Calls.

    /// Where the variables of a call belong. `args` are the arguments for the
    /// parameters of `func`.
    pub(super) fn place(
        &mut self,
        called: &Called,
        callee: &Name,
        label: Option<&Name>,
        args: &[Option<super::call::ArgVal>],
        span: Span,
    ) -> Option<CallSite> {
        let func = &called.func;
        match called.kind {
            FuncKind::Model => {
                if let Some(label) = label {
                    self.misplaced_label(label, "all calls of a model share its weights");
                    return None;
                }
                let path: Rc<str> = called.path.as_str().into();
                Some(CallSite { path: path.clone(), owner: Owner::Weights { path, model: true } })
            }
            FuncKind::Layer => {
                let Owner::Weights { path, .. } = self.frame().owner.clone() else {
                    // Reported when the text was looked through.
                    return None;
                };
                let mut element = self.label_of(callee, label, func);
                self.frame().iterations.iter().for_each(|n| element.push_str(&format!(".{n}")));
                self.claim(&element, callee.span)?;
                let path: Rc<str> = format!("{path}{element}.").into();
                Some(CallSite { path: path.clone(), owner: Owner::Weights { path, model: false } })
            }
            FuncKind::Func => {
                let path = self.path_element(func, args).into();
                if !takes_variables(func) {
                    if let Some(label) = label {
                        self.misplaced_label(label, "a function has no weights to name");
                        return None;
                    }
                    return Some(CallSite { path, owner: Owner::Nobody });
                }
                let slots = self.slots(called, callee, label, args, span);
                Some(CallSite { path, owner: Owner::Slots(Rc::new(slots)) })
            }
        }
    }

    fn label_of(&self, callee: &Name, label: Option<&Name>, func: &FuncItem) -> String {
        match (label, self.sites.labels.get(&key(callee.span))) {
            (Some(label), _) => label.text.to_string(),
            (None, Some(label)) => label.to_string(),
            (None, None) => func.name.text.to_string(),
        }
    }

    /// Slots belong to an optimizer's name and a variable.
    fn slots(
        &mut self,
        called: &Called,
        callee: &Name,
        label: Option<&Name>,
        args: &[Option<super::call::ArgVal>],
        span: Span,
    ) -> Slots {
        let first = called.func.params.iter().zip(args).find(|(p, _)| p.var);
        let vars = first.and_then(|(_, a)| a.as_ref()).map(|a| a.val.vars()).unwrap_or_default();
        let about = match (first, vars.as_slice()) {
            (Some((p, _)), [var]) if !p.many => format!("{}.", self.graph.vars[*var].name),
            _ => String::new(),
        };
        let element = self.label_of(callee, label, &called.func);
        let frame = self.frames.last();
        let outer = frame.and_then(|f| match &f.owner {
            Owner::Slots(outer) => Some((outer.clone(), f.func)),
            _ => None,
        });
        let Some((outer, func)) = outer else {
            let path = format!("{element}.{about}");
            return Slots { path, vars, site: span, named: label.is_some() };
        };
        let passes_on = label.is_none() && func.is_some_and(|f| self.sites.wrappers.contains(&f));
        let element = if passes_on { String::new() } else { format!("{element}.") };
        let about = if vars == outer.vars { String::new() } else { about };
        Slots { path: format!("{}{element}{about}", outer.path), vars, ..(*outer).clone() }
    }

    /// Takes a name among the parts of the layer or model being built.
    pub(super) fn claim(&mut self, element: &str, span: Span) -> Option<()> {
        let first = *self.frame().labels.entry(element.to_string()).or_insert(span);
        if first == span {
            return Some(());
        }
        let name = element.split('.').next().unwrap_or(element);
        self.error(
            Diag::error("E0149", format!("two parts of one body are called `{name}`"))
                .at(span, "this one is the second")
                .also(first, "the first is here")
                .help("name a call of a layer with `as`: `layer.dense(x, units: 10) as head`"),
        );
        None
    }

    pub(super) fn misplaced_label(&mut self, label: &Name, why: &str) {
        self.error(
            Diag::error("E0455", format!("`as {}` names nothing here", label.text))
                .at(label.span, why)
                .help("`as` names the weights of a layer's call, or the state of an optimizer"),
        );
    }

    // Paths.

    /// The prefix of the variables of the model a path starts with.
    fn model_path(&self, module: usize, name: &str) -> Option<(String, String)> {
        let (first, rest) = match name.split_once('.') {
            Some((first, rest)) => (first, Some(rest)),
            None => (name, None),
        };
        let is_model = |module: usize, name: &str| {
            let i = *self.modules[module].func_index.get(name)?;
            (self.modules[module].funcs[i].kind == FuncKind::Model).then_some(())
        };
        if is_model(module, first).is_some() {
            let prefix = &self.modules[module].prefix;
            return Some((format!("{prefix}{first}."), format!("{prefix}{name}")));
        }
        let used = *self.modules[module].uses.get(first)?;
        let library = self.modules.get(used)?;
        let model = rest?.split('.').next()?;
        is_model(used, model)?;
        Some((format!("{}{model}.", library.prefix), format!("{}{}", library.prefix, rest?)))
    }

    /// The variable a path names, or the list of those under it: `net.dense.w`,
    /// `net.dense`, `net`; inside a layer or a model also from there on, `dense.w`.
    pub(super) fn state_at(&mut self, name: &str) -> Option<Val> {
        let inside = match self.frames.last().map(|f| &f.owner) {
            Some(Owner::Weights { path, .. }) => Some((path.to_string(), format!("{path}{name}"))),
            _ => None,
        };
        let module = self.module();
        for (prefix, full) in inside.into_iter().chain(self.model_path(module, name)) {
            if let Some(var) = self.var_names.get(&full) {
                return Some(Val::Var(*var));
            }
            self.asked.push((prefix.clone(), self.vars_under(&prefix).len()));
            let vars = self.vars_under(&format!("{full}."));
            if !vars.is_empty() {
                let span = Span::NONE;
                let items = vars.into_iter().map(|v| Spanned { val: Val::Var(v), span });
                return Some(Val::List(Rc::new(items.collect())));
            }
        }
        None
    }

    /// The variables a path names from a file's top level.
    pub(super) fn vars_at(&self, module: usize, name: &str) -> Option<Vec<VarId>> {
        let (_, full) = self.model_path(module, name)?;
        let one = self.var_names.get(&full).copied();
        let vars = one.map_or_else(|| self.vars_under(&format!("{full}.")), |var| vec![var]);
        (!vars.is_empty()).then_some(vars)
    }

    /// Variables of models by the start of their names, in the order of declaration.
    pub(super) fn vars_under(&self, prefix: &str) -> Vec<VarId> {
        let from = self.var_names.range(prefix.to_string()..);
        let mut out: Vec<VarId> = from
            .take_while(|(name, _)| name.starts_with(prefix))
            .map(|(_, var)| *var)
            .filter(|var| self.graph.vars[*var].user)
            .collect();
        out.sort();
        out
    }

    /// What to say about a path that starts with a model and names nothing.
    pub(super) fn no_such_state(&self, name: &str, span: Span) -> Option<Diag> {
        let (prefix, full) = self.model_path(self.module(), name)?;
        let vars = self.vars_under(&prefix);
        let model = &name[..name.len() - (full.len() - (prefix.len() - 1))];
        if vars.is_empty() {
            return Some(
                Diag::error("E0454", format!("`{model}` has no variables"))
                    .at(span, "no entry calls this model, or it declares none")
                    .help("a model's variables exist only if an entry calls the model"),
            );
        }
        let part = &full[prefix.len().min(full.len())..];
        let known: Vec<&str> =
            vars.iter().map(|v| &self.graph.vars[*v].name[prefix.len()..]).collect();
        // Parts have names, too: those of the variables up to a dot.
        let parts = known.iter().flat_map(|n| n.match_indices('.').map(|(at, _)| &n[..at]));
        let near: BTreeSet<&str> = parts.chain(known.iter().copied()).collect();
        let diag = Diag::error("E0454", format!("`{model}` has no variable `{part}`"))
            .at(span, "not there");
        Some(match nearest(part, near.iter().copied()) {
            Some(near) => {
                let near = format!("{model}.{near}");
                diag.fix(format!("did you mean `{near}`?"), span, near)
            }
            None => {
                let more = if known.len() > 8 { ", .." } else { "" };
                let shown: Vec<&str> = known.into_iter().take(8).collect();
                diag.help(format!("it has {}{more}", shown.join(", ")))
            }
        })
    }

    // Walking again.

    /// Declares the variables an earlier walk found.
    pub(super) fn declare_known(&mut self, known: Vec<Known>) {
        for Known { var, written } in known {
            if self.var_names.contains_key(&var.name) {
                continue;
            }
            let name = var.name.clone();
            let id = self.graph.vars.push(var);
            self.var_names.insert(name, id);
            self.pending.insert(id);
            if written {
                self.self_written.insert(id);
            }
        }
    }

    /// The variables of models, if some path was looked up before all of them were
    /// there.
    pub(super) fn found_late(&self) -> Option<Vec<Known>> {
        let late = self.asked.iter().any(|(prefix, n)| self.vars_under(prefix).len() != *n);
        let known = |id: &VarId| Known {
            var: self.graph.vars[*id].clone(),
            written: self.self_written.contains(id),
        };
        late.then(|| self.weights.iter().map(known).collect())
    }

    /// Whether a piece of text reads, writes or calls a model: then it can run only
    /// when the models have their variables.
    pub(super) fn mentions_model<'a>(&self, walk: impl FnOnce(&mut dyn FnMut(Found<'a>))) -> bool {
        let mut found_one = false;
        walk(&mut |found| {
            let name = match found {
                Found::Name(name) => name,
                Found::Call(call) => &call.callee.text,
                Found::Var(_) => return,
            };
            found_one |= self.model_path(0, name).is_some();
        });
        found_one
    }

    pub(super) fn block_mentions_model(&self, block: &Block) -> bool {
        self.mentions_model(|seen| walk::block(block, seen))
    }

    pub(super) fn expr_mentions_model(&self, expr: &Expr) -> bool {
        self.mentions_model(|seen| walk::expr(expr, seen))
    }
}

/// A function as it is called: of a model made of a layer, the layer's body under
/// the model's name.
pub(super) struct Called {
    pub module: usize,
    pub index: usize,
    pub func: Rc<FuncItem>,
    pub kind: FuncKind,
    /// Of a model: the prefix of its variables.
    pub path: String,
}

pub(super) fn takes_variables(func: &FuncItem) -> bool {
    func.params.iter().any(|p| p.var)
}

fn key(span: Span) -> (u32, u32) {
    (span.file, span.lo)
}

fn kinds(name: &Name) -> String {
    format!(
        "write `layer {0}` for new weights at each call, or `model {0}` for one set of weights",
        name.text
    )
}
