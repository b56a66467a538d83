//! `save` and `restore`: several variables in one statement, under their names.

use super::Resolver;
use super::scope::{Bound, Val};
use crate::Op;
use crate::diag::{Diag, Span};
use crate::text::ast::{Arg, Call, Expr, ExprKind, Name};

impl Resolver<'_> {
    /// `save(w, b, path: "best")` is told the names of what it saves.
    pub(super) fn save(&mut self, call: &Call, span: Span) -> Val {
        if named(call, "names") {
            return self.call_op(Op::Save, call, span);
        }
        let mut names = vec![];
        let mut all = Call { args: vec![], ..call.clone() };
        for arg in &call.args {
            if arg.name.is_some() {
                all.args.push(arg.clone());
                continue;
            }
            let ExprKind::Name(name) = &arg.value.kind else {
                return self.error(
                    Diag::error("E0460", "what is saved needs a name")
                        .at(arg.value.span, "this has none")
                        .help("give it one first: `best = ..`, then `save(best, path: ..)`"),
                );
            };
            let vars = self.known_variables(name);
            if vars.is_empty() {
                names.push(name.to_string());
                all.args.push(arg.clone());
            }
            for var in vars {
                let full = self.graph.vars[var].name.clone();
                all.args.push(variable_arg(&full, arg.value.span));
                names.push(full);
            }
        }
        all.args.push(text_arg("names", names.join(","), call.callee.span));
        self.with_variables(&names, |r| r.call_op(Op::Save, &all, span))
    }

    /// `restore(w, b, path: "best")` is one `restore` for each, with its key.
    pub(super) fn restore(&mut self, call: &Call, span: Span) -> Val {
        let (given, options): (Vec<&Arg>, Vec<&Arg>) =
            call.args.iter().partition(|a| a.name.is_none());
        if given.len() > 1 && named(call, "key") {
            return self.error(
                Diag::error("E0462", format!("{} variables and one key for them", given.len()))
                    .at(call.callee.span, "restore them one by one"),
            );
        }
        if given.is_empty() {
            return self.call_op(Op::Restore, call, span);
        }
        let mut last = Val::Poison;
        for arg in given {
            let vars = match &arg.value.kind {
                ExprKind::Name(name) => self.known_variables(name),
                _ => vec![],
            };
            let mut one = Call { args: vec![arg.clone()], ..call.clone() };
            one.args.extend(options.iter().map(|a| (*a).clone()));
            if vars.is_empty() {
                last = self.call_op(Op::Restore, &one, span);
            }
            for var in vars {
                let name = self.graph.vars[var].name.clone();
                let mut one = one.clone();
                one.args[0] = variable_arg(&name, arg.value.span);
                if !named(call, "key") {
                    one.args.push(text_arg("key", name.clone(), arg.value.span));
                }
                last = self.with_variables(&[name], |r| r.call_op(Op::Restore, &one, span));
            }
        }
        last
    }

    /// The variable a name or a path stands for, or those of a model or a part of it.
    fn known_variables(&mut self, name: &str) -> Vec<crate::VarId> {
        self.lookup(name).map(|val| val.vars()).unwrap_or_default()
    }

    /// Runs with variables of the graph in scope under their full names.
    fn with_variables(&mut self, names: &[String], f: impl FnOnce(&mut Self) -> Val) -> Val {
        let build = self.build.id;
        let mut scope = std::collections::BTreeMap::new();
        for name in names {
            if let Some(var) = self.var_names.get(name) {
                let span = self.graph.vars[*var].span;
                scope.insert(name.as_str().into(), Bound { val: Val::Var(*var), span, build });
            }
        }
        self.frame().scopes.push(scope);
        let val = f(self);
        self.frame().scopes.pop();
        val
    }
}

fn named(call: &Call, name: &str) -> bool {
    call.args.iter().any(|a| a.name.as_ref().is_some_and(|n| &*n.text == name))
}

fn text_arg(name: &str, text: String, span: Span) -> Arg {
    let name = Some(Name { text: name.into(), span });
    Arg { name, value: Expr { kind: ExprKind::Str(text), span } }
}

fn variable_arg(name: &str, span: Span) -> Arg {
    Arg { name: None, value: Expr { kind: ExprKind::Name(name.into()), span } }
}
