//! `for` over lists and ranges, as a statement and inside lists.
//!
//! Both are written out when the graph is built: the body, or the item, once for
//! each item of the list. Nothing of them is left in the graph; loops that run
//! are `while`.

use super::Resolver;
use super::ops::count;
use super::scope::{Bound, Spanned, Val};
use crate::diag::{Diag, Span};
use crate::text::ast::{Arg, Block, Call, Each, Expr};
use std::rc::Rc;

/// Iterations of one `for`.
const MAX_ITERATIONS: i128 = 65_536;

/// Items of one list.
const MAX_ITEMS: usize = 1 << 20;

impl Resolver<'_> {
    /// The body once for each item. It is no block of its own: names given in it are
    /// seen by the next iteration and by what follows.
    pub(super) fn for_stmt(&mut self, each: &[Each], body: &Block) -> Val {
        let Some(iterations) = self.iterations(each) else { return Val::Poison };
        // Its own names mean afterwards what they meant before.
        let hidden: Vec<Option<Bound>> = each
            .iter()
            .map(|e| self.frame().scopes.last().and_then(|s| s.get(&e.name.text)).cloned())
            .collect();
        for iteration in 0..iterations.first().map_or(0, Vec::len) {
            if self.full() || !self.work(1, body.span) {
                break;
            }
            self.name_items(each, &iterations, iteration);
            let before = self.diags.len();
            self.frame().iterations.push(iteration);
            self.statements(&body.stmts, false);
            self.frame().iterations.pop();
            if self.diags.len() != before {
                break;
            }
        }
        for (each, old) in each.iter().zip(hidden) {
            match (old, self.frame().scopes.last_mut()) {
                (Some(bound), _) => self.frame().set(each.name.text.clone(), bound),
                (None, Some(scope)) => _ = scope.remove(&each.name.text),
                (None, None) => {}
            }
        }
        Val::Poison
    }

    /// `[f(x) for x in list]`. The names of the `for` are not seen outside.
    pub(super) fn every(&mut self, item: &Expr, each: &[Each]) -> Val {
        let Some(iterations) = self.iterations(each) else { return Val::Poison };
        let mut out = vec![];
        for iteration in 0..iterations.first().map_or(0, Vec::len) {
            self.frame().scopes.push(Default::default());
            self.name_items(each, &iterations, iteration);
            self.frame().iterations.push(iteration);
            let val = self.expr(item, None);
            self.frame().iterations.pop();
            self.frame().scopes.pop();
            if val.is_poison() || self.full() {
                return Val::Poison;
            }
            out.push(Spanned { val, span: item.span });
        }
        self.list(out, item.span)
    }

    /// A variable's value instead of the variable, also inside lists.
    pub(super) fn read_all(&mut self, val: &Val, span: Span) -> Val {
        match val {
            Val::Var(var) => self.read(*var, span).map_or(Val::Poison, Val::Tensor),
            Val::List(items) => Val::List(self.read_items(items)),
            Val::Tuple(items) => Val::Tuple(self.read_items(items)),
            val => val.clone(),
        }
    }

    fn read_items(&mut self, items: &Rc<Vec<Spanned>>) -> Rc<Vec<Spanned>> {
        let Some(first) = items.first() else { return items.clone() };
        if !self.work(weight(items, MAX_ITEMS), first.span) {
            return items.clone();
        }
        if items.iter().all(|i| i.val.vars().is_empty()) {
            return items.clone();
        }
        let read = |i: &Spanned| Spanned { val: self.read_all(&i.val, i.span), span: i.span };
        Rc::new(items.iter().map(read).collect())
    }

    fn name_items(&mut self, each: &[Each], iterations: &[Vec<Spanned>], iteration: usize) {
        let build = self.build.id;
        for (each, items) in each.iter().zip(iterations) {
            let bound = Bound { val: items[iteration].val.clone(), span: each.name.span, build };
            self.frame().set(each.name.text.clone(), bound);
        }
    }

    /// The items of every list, all of one length.
    fn iterations(&mut self, each: &[Each]) -> Option<Vec<Vec<Spanned>>> {
        let mut out: Vec<Vec<Spanned>> = vec![];
        // The first list that says how many iterations there are.
        let mut length: Option<(usize, Span)> = None;
        for item in each {
            let items = if item.range { self.range_items(item)? } else { self.items_of(item)? };
            let open = item.range && item.end.is_none();
            match length {
                _ if open => {}
                None => length = Some((items.len(), item.list.span)),
                Some((n, _)) if n == items.len() => {}
                Some((n, first)) => {
                    self.error(
                        Diag::error("E0470", "the lists of one `for` have different lengths")
                            .at(item.list.span, format!("{} here", count(items.len(), "item")))
                            .also(first, format!("{} here", count(n, "item"))),
                    );
                    return None;
                }
            }
            out.push(items);
        }
        let Some((n, _)) = length else {
            if let Some(first) = each.first() {
                self.error(
                    Diag::error("E0471", "this `for` never ends")
                        .at(first.list.span, "a range without an end")
                        .help(
                            "an open range counts the items of a list: `for x in list, i in 0..`",
                        ),
                );
            }
            return None;
        };
        for (item, items) in each.iter().zip(&mut out) {
            if let (true, None, Some(first)) = (item.range, &item.end, items.first().cloned())
                && let Val::Int(start) = first.val
            {
                let number = |i| Spanned { val: Val::Int(start + i as i128), span: first.span };
                *items = (0..n).map(number).collect();
            }
        }
        Some(out)
    }

    /// A list, unless it has too many items, those of the lists in it counted.
    pub(super) fn list(&mut self, items: Vec<Spanned>, span: Span) -> Val {
        let weight = weight(&items, MAX_ITEMS);
        if !self.fits_list(0, weight, span) {
            return Val::Poison;
        }
        Val::List(Rc::new(items))
    }

    /// Whether a list of `before` items may have `more`; counted as work.
    pub(super) fn fits_list(&mut self, before: usize, more: usize, span: Span) -> bool {
        if before + more > MAX_ITEMS {
            self.error(
                Diag::error("E0152", format!("a list has more than {MAX_ITEMS} items"))
                    .at(span, "it is this long with these")
                    .help("keep large constants in a file: `file(\"data.npy\")`"),
            );
            return false;
        }
        self.work(more, span)
    }

    fn items_of(&mut self, each: &Each) -> Option<Vec<Spanned>> {
        let span = each.list.span;
        match self.expr(&each.list, None) {
            Val::List(items) | Val::Tuple(items) => {
                self.work(items.len(), span).then(|| items.to_vec())
            }
            Val::Shape(dims) => {
                let sizes = dims.iter().map(|d| Spanned { val: Val::size(d.clone()), span });
                Some(sizes.collect())
            }
            Val::Poison => None,
            val => {
                self.error(
                    Diag::error("E0471", "`for` goes over a list or a range of numbers")
                        .at(span, format!("this is {}", val.describe()))
                        .help(
                            "write `for x in [a, b]` or `for i in 0..4`; loops that depend on \
                             computed values are `while`",
                        ),
                );
                None
            }
        }
    }

    /// The numbers of a range; of an open one, the first.
    fn range_items(&mut self, each: &Each) -> Option<Vec<Spanned>> {
        let span = each.list.span;
        let start = self.expr(&each.list, None);
        let (end, end_span) = match &each.end {
            Some(end) => (self.expr(end, None), end.span),
            None => (start.clone(), span),
        };
        match (start, end) {
            (Val::Poison, _) | (_, Val::Poison) => None,
            (Val::Int(a), Val::Int(_)) if each.end.is_none() => {
                Some(vec![Spanned { val: Val::Int(a), span }])
            }
            (Val::Int(a), Val::Int(b)) if b.saturating_sub(a) <= MAX_ITERATIONS => {
                if !self.work((b - a).max(0) as usize, span) {
                    return None;
                }
                Some((a..b).map(|i| Spanned { val: Val::Int(i), span }).collect())
            }
            (Val::Int(_), Val::Int(_)) => {
                self.error(
                    Diag::error(
                        "E0472",
                        format!("`for` has more than {MAX_ITERATIONS} iterations"),
                    )
                    .at(span.to(end_span), "each is written out when the graph is compiled")
                    .help("use `while` for long loops"),
                );
                None
            }
            (a, b) => {
                let (at, val) = match a {
                    Val::Int(_) => (end_span, b),
                    _ => (span, a),
                };
                let what = val.describe();
                let diag = Diag::error("E0471", "a range goes from one whole number to another")
                    .at(at, format!("this is {what}"));
                let diag = match val {
                    Val::Ratio(_) | Val::Float(_) => self.round_it(diag, &val, at),
                    _ => diag.help("loops whose length is known only at run time are `while`"),
                };
                self.error(diag);
                None
            }
        }
    }

    /// `len(list)`: how many items, as a number.
    pub(super) fn len_call(&mut self, call: &Call, span: Span) -> Val {
        let [Arg { name: None, value }] = call.args.as_slice() else {
            return self.error(
                Diag::error("E0132", "`len` takes one list").at(span, "such as `len([a, b])`"),
            );
        };
        match self.expr(value, None) {
            Val::List(items) | Val::Tuple(items) => Val::Int(items.len() as i128),
            Val::Shape(dims) => Val::Int(dims.len() as i128),
            Val::Poison => Val::Poison,
            val => self.error(
                Diag::error("E0471", "`len` counts the items of a list")
                    .at(value.span, format!("this is {}", val.describe()))
                    .help(
                        "the sizes of a tensor have names: in `func f(x: T[N, D])`, `N` is the \
                         length",
                    ),
            ),
        }
    }
}

/// How many items a list has, with those of the lists in it: lists that share their
/// parts can be large beyond what was written. Counting stops after `limit`.
pub(super) fn weight(items: &[Spanned], limit: usize) -> usize {
    let mut total = 0usize;
    for item in items {
        total += match &item.val {
            Val::List(inner) | Val::Tuple(inner) => 1 + weight(inner, limit.saturating_sub(total)),
            _ => 1,
        };
        if total > limit {
            break;
        }
    }
    total
}
