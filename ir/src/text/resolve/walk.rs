//! What a block calls, declares and names, found without building it.

use crate::text::ast::{
    Block, Call, Each, Expr, ExprKind, FuncItem, IndexItem, Param, Stmt, StmtKind, VarItem,
};

/// Something found in a block.
pub(super) enum Found<'a> {
    Call(&'a Call),
    Var(&'a VarItem),
    /// A name that is read or written.
    Name(&'a str),
}

type Seen<'s, 'a> = &'s mut dyn FnMut(Found<'a>);

/// Everything in a function: what its defaults hold, its body, its gradient.
pub(super) fn func<'a>(item: &'a FuncItem, seen: Seen<'_, 'a>) {
    params(&item.params, seen);
    block(&item.body, seen);
    if let Some(grad) = &item.grad {
        block(&grad.body, seen);
    }
    for arg in item.of.iter().flat_map(|of| &of.args) {
        expr(&arg.value, seen);
    }
}

/// In the order of the text, but what is given to a call before the call: the
/// order in which things happen.
pub(super) fn block<'a>(block: &'a Block, seen: Seen<'_, 'a>) {
    for stmt in &block.stmts {
        self::stmt(stmt, seen);
    }
}

fn stmt<'a>(stmt: &'a Stmt, seen: Seen<'_, 'a>) {
    match &stmt.kind {
        StmtKind::Bind { value, .. } | StmtKind::Expr(value) => expr(value, seen),
        StmtKind::Update { name, value, .. } => {
            expr(value, seen);
            seen(Found::Name(&name.text));
        }
        StmtKind::Return(values) | StmtKind::Yield(values) => exprs(values, seen),
        StmtKind::Minimize { loss, over, through, with } => {
            expr(loss, seen);
            for name in over.iter().flatten() {
                seen(Found::Name(&name.text));
            }
            exprs(through, seen);
            expr(with, seen);
        }
        StmtKind::For { each, body } => {
            lists(each, seen);
            block(body, seen);
        }
        StmtKind::Var(item) => {
            if let Some(init) = &item.init {
                expr(init, seen);
            }
            seen(Found::Var(item));
        }
        StmtKind::On(body) => block(body, seen),
    }
}

fn lists<'a>(each: &'a [Each], seen: Seen<'_, 'a>) {
    for each in each {
        expr(&each.list, seen);
        if let Some(end) = &each.end {
            expr(end, seen);
        }
    }
}

fn params<'a>(params: &'a [Param], seen: Seen<'_, 'a>) {
    for default in params.iter().filter_map(|p| p.default.as_ref()) {
        expr(default, seen);
    }
}

fn exprs<'a>(list: &'a [Expr], seen: Seen<'_, 'a>) {
    for item in list {
        expr(item, seen);
    }
}

pub(super) fn expr<'a>(e: &'a Expr, seen: Seen<'_, 'a>) {
    match &e.kind {
        ExprKind::Name(name) => seen(Found::Name(name)),
        ExprKind::List(items) | ExprKind::Tuple(items) | ExprKind::Literal(_, items) => {
            exprs(items, seen);
        }
        ExprKind::Every(item, each) => {
            lists(each, seen);
            expr(item, seen);
        }
        ExprKind::Call(call) => {
            for arg in &call.args {
                expr(&arg.value, seen);
            }
            for region in &call.regions {
                params(&region.params, seen);
                block(&region.body, seen);
            }
            seen(Found::Call(call));
        }
        ExprKind::Unary(_, inner) => expr(inner, seen),
        ExprKind::Chain(first, rest) => {
            expr(first, seen);
            for (_, _, item) in rest {
                expr(item, seen);
            }
        }
        ExprKind::Index(base, items) => {
            expr(base, seen);
            for item in items {
                index(item, seen);
            }
        }
        ExprKind::If(e) => {
            expr(&e.cond, seen);
            block(&e.then, seen);
            if let Some(els) = &e.els {
                block(els, seen);
            }
        }
        ExprKind::While(e) => {
            params(&e.carried, seen);
            block(&e.cond, seen);
            block(&e.body, seen);
        }
        ExprKind::Int(_)
        | ExprKind::Float(_)
        | ExprKind::Bool(_)
        | ExprKind::Str(_)
        | ExprKind::Type(..)
        | ExprKind::Bytes(_)
        | ExprKind::Hole
        | ExprKind::Rest(_)
        | ExprKind::Error => {}
    }
}

fn index<'a>(item: &'a IndexItem, seen: Seen<'_, 'a>) {
    match item {
        IndexItem::At(e) => expr(e, seen),
        IndexItem::Range { lo, hi, step, .. } => {
            for e in lo.iter().chain(hi).chain(step.as_deref()) {
                expr(e, seen);
            }
        }
        IndexItem::Rest(_) => {}
    }
}
