//! `save` and `restore`: several variables in one statement, under their names.

use super::Resolver;
use super::scope::Val;
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
        for arg in call.args.iter().filter(|a| a.name.is_none()) {
            let ExprKind::Name(name) = &arg.value.kind else {
                return self.error(
                    Diag::error("E0460", "what is saved needs a name")
                        .at(arg.value.span, "this has none")
                        .help("give it one first: `best = ..`, then `save(best, path: ..)`"),
                );
            };
            names.push(match self.known_variable(name) {
                Some(var) => self.graph.vars[var].name.clone(),
                None => name.to_string(),
            });
        }
        let mut call = call.clone();
        call.args.push(text_arg("names", names.join(","), call.callee.span));
        self.call_op(Op::Save, &call, span)
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
            let mut one = call.clone();
            one.args = vec![arg.clone()];
            one.args.extend(options.iter().map(|a| (*a).clone()));
            if let ExprKind::Name(name) = &arg.value.kind
                && let Some(var) = self.known_variable(name)
                && !named(call, "key")
            {
                let key = self.graph.vars[var].name.clone();
                one.args.push(text_arg("key", key, arg.value.span));
            }
            last = self.call_op(Op::Restore, &one, span);
        }
        last
    }

    fn known_variable(&self, name: &str) -> Option<crate::VarId> {
        match self.frames.last().and_then(|f| f.get(name)).map(|b| b.val.clone()) {
            Some(Val::Var(var)) => Some(var),
            Some(_) => None,
            None => self.modules[self.module()].vars.get(name).copied(),
        }
    }
}

fn named(call: &Call, name: &str) -> bool {
    call.args.iter().any(|a| a.name.as_ref().is_some_and(|n| &*n.text == name))
}

fn text_arg(name: &str, text: String, span: Span) -> Arg {
    let name = Some(Name { text: name.into(), span });
    Arg { name, value: Expr { kind: ExprKind::Str(text), span } }
}
