//! Which variables a block may write, found without building it.
//!
//! A `while` needs to know before its body is built: what the body writes has
//! another value in the second iteration, so it cannot be read outside. Too many is
//! safe, too few is not.

use super::Resolver;
use super::walk;
use crate::op::Effect;
use crate::text::ast::{Block, Call, Each, Expr, ExprKind, FuncKind, IndexItem, Stmt, StmtKind};
use crate::{Op, VarId};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What calling a function may write.
#[derive(Clone, Default)]
pub(crate) struct Writes {
    vars: BTreeSet<VarId>,
    /// Parameters whose variable is written.
    params: BTreeSet<usize>,
    /// Variables of the body itself that are written.
    locals: BTreeSet<Arc<str>>,
    /// Models that are called, by the prefix of their variables.
    models: BTreeSet<String>,
    /// Something is written by a path whose variable is not known.
    unknown: bool,
}

/// How names are understood while scanning.
enum Names<'f> {
    /// The scope of the current frame.
    Frame,
    /// The parameters and variables of a function of a module.
    Params(&'f [Arc<str>], &'f BTreeSet<Arc<str>>, usize),
}

impl Resolver<'_> {
    pub(super) fn block_writes(&mut self, block: &Block) -> BTreeSet<VarId> {
        let mut out = Writes::default();
        let module = self.module();
        self.scan_block(block, module, &Names::Frame, &mut out);
        for model in &out.models {
            let vars = self.vars_under(model);
            out.vars.extend(vars.into_iter().filter(|var| self.self_written.contains(var)));
        }
        if out.unknown {
            out.vars.extend(self.graph.vars.keys());
        }
        out.vars
    }

    /// Whether a function writes a variable that it declares.
    pub(super) fn writes_local(&mut self, (module, index): (usize, usize), name: &str) -> bool {
        self.func_writes(module, index).locals.contains(name)
    }

    fn func_writes(&mut self, module: usize, index: usize) -> Writes {
        if let Some(known) = self.writes.get(&(module, index)) {
            return known.clone();
        }
        // Recursion is an error elsewhere; here it just ends.
        self.writes.insert((module, index), Writes::default());
        let func = self.modules[module].funcs[index].clone();
        let params: Vec<_> = func.params.iter().map(|p| p.name.text.clone()).collect();
        let mut locals = BTreeSet::new();
        walk::func(&func, &mut |found| {
            if let walk::Found::Var(item) = found {
                locals.insert(item.name.text.clone());
            }
        });
        let mut out = Writes::default();
        self.scan_block(&func.body, module, &Names::Params(&params, &locals, module), &mut out);
        self.writes.insert((module, index), out.clone());
        out
    }

    fn wrote_name(&mut self, name: &str, names: &Names<'_>, out: &mut Writes) {
        match names {
            Names::Frame => {
                if let Some(bound) = self.frames.last().and_then(|f| f.get(name)) {
                    out.vars.extend(bound.val.vars());
                }
                if let Some(val) = self.lookup(name) {
                    out.vars.extend(val.vars());
                }
            }
            Names::Params(params, locals, module) => {
                if let Some(i) = params.iter().position(|p| &**p == name) {
                    out.params.insert(i);
                } else if let Some(local) = locals.get(name) {
                    out.locals.insert(local.clone());
                } else if let Some(var) = self.modules[*module].vars.get(name) {
                    out.vars.insert(*var);
                } else if let Some(vars) = self.vars_at(*module, name) {
                    out.vars.extend(vars);
                } else {
                    // A path from inside a layer, or an item of a list.
                    out.unknown |= name.contains('.');
                }
            }
        }
    }

    /// The variables an argument names, alone or in a list.
    fn wrote_expr(&mut self, expr: &Expr, names: &Names<'_>, out: &mut Writes) {
        match &expr.kind {
            ExprKind::Name(name) => self.wrote_name(name, names, out),
            ExprKind::List(items) => {
                for item in items {
                    self.wrote_expr(item, names, out);
                }
            }
            _ => {}
        }
    }

    /// What the body of a `for` writes may be an item of its lists.
    fn scan_each(&mut self, each: &[Each], module: usize, names: &Names<'_>, out: &mut Writes) {
        for each in each {
            self.scan_expr(&each.list, module, names, out);
            self.wrote_expr(&each.list, names, out);
        }
    }

    fn scan_block(&mut self, block: &Block, module: usize, names: &Names<'_>, out: &mut Writes) {
        for stmt in &block.stmts {
            self.scan_stmt(stmt, module, names, out);
        }
    }

    fn scan_stmt(&mut self, stmt: &Stmt, module: usize, names: &Names<'_>, out: &mut Writes) {
        match &stmt.kind {
            StmtKind::Bind { value, .. } | StmtKind::Expr(value) => {
                self.scan_expr(value, module, names, out)
            }
            StmtKind::Update { name, value, .. } => {
                self.wrote_name(&name.text, names, out);
                self.scan_expr(value, module, names, out);
            }
            StmtKind::Return(values) | StmtKind::Yield(values) => {
                for v in values {
                    self.scan_expr(v, module, names, out);
                }
            }
            StmtKind::Minimize { loss, over, through, with } => {
                match over {
                    Some(over) => {
                        for name in over {
                            self.wrote_name(&name.text, names, out);
                        }
                    }
                    // Any of them: too many is safe.
                    None => out.vars.extend(self.graph.vars.keys()),
                }
                self.scan_expr(loss, module, names, out);
                self.scan_expr(with, module, names, out);
                for call in through {
                    self.scan_expr(call, module, names, out);
                }
            }
            StmtKind::For { each, body } => {
                self.scan_each(each, module, names, out);
                self.scan_block(body, module, names, out);
            }
            StmtKind::Var(_) => {}
            StmtKind::On(block) => self.scan_block(block, module, names, out),
        }
    }

    fn scan_expr(&mut self, expr: &Expr, module: usize, names: &Names<'_>, out: &mut Writes) {
        match &expr.kind {
            ExprKind::Call(call) => self.scan_call(call, module, names, out),
            ExprKind::List(items) | ExprKind::Tuple(items) | ExprKind::Literal(_, items) => {
                for item in items {
                    self.scan_expr(item, module, names, out);
                }
            }
            ExprKind::Every(item, each) => {
                self.scan_each(each, module, names, out);
                self.scan_expr(item, module, names, out);
            }
            ExprKind::Unary(_, inner) => self.scan_expr(inner, module, names, out),
            ExprKind::Chain(first, rest) => {
                self.scan_expr(first, module, names, out);
                for (_, _, e) in rest {
                    self.scan_expr(e, module, names, out);
                }
            }
            ExprKind::Index(base, items) => {
                self.scan_expr(base, module, names, out);
                for item in items {
                    if let IndexItem::At(e) = item {
                        self.scan_expr(e, module, names, out);
                    }
                }
            }
            ExprKind::If(e) => {
                self.scan_expr(&e.cond, module, names, out);
                self.scan_block(&e.then, module, names, out);
                if let Some(els) = &e.els {
                    self.scan_block(els, module, names, out);
                }
            }
            ExprKind::While(e) => {
                for p in &e.carried {
                    if let Some(init) = &p.default {
                        self.scan_expr(init, module, names, out);
                    }
                }
                self.scan_block(&e.cond, module, names, out);
                self.scan_block(&e.body, module, names, out);
            }
            _ => {}
        }
    }

    /// The function whose body a call runs; notes the model it belongs to.
    fn layer_of(&self, module: usize, index: usize, out: &mut Writes) -> (usize, usize) {
        let func = &self.modules[module].funcs[index];
        if func.kind == FuncKind::Model {
            out.models.insert(format!("{}{}.", self.modules[module].prefix, func.name.text));
        }
        let of = func.of.as_ref().and_then(|of| self.function_in(module, &of.callee.text));
        of.unwrap_or((module, index))
    }

    fn scan_call(&mut self, call: &Call, module: usize, names: &Names<'_>, out: &mut Writes) {
        for arg in &call.args {
            self.scan_expr(&arg.value, module, names, out);
        }
        for region in &call.regions {
            self.scan_block(&region.body, module, names, out);
        }
        if let Some((m, i)) = self.function_in(module, &call.callee.text) {
            let (m, i) = self.layer_of(m, i, out);
            let inner = self.func_writes(m, i);
            out.vars.extend(inner.vars.iter().copied());
            out.models.extend(inner.models.iter().cloned());
            out.unknown |= inner.unknown;
            if inner.params.is_empty() {
                return;
            }
            // Which argument is which parameter does not matter enough to tell.
            for arg in &call.args {
                self.wrote_expr(&arg.value, names, out);
            }
        } else if let Some(op) = self.ops.get(&*call.callee.text)
            && op.def().effect == Effect::Write
        {
            // `restore` takes several variables, the others one.
            let count = if *op == Op::Restore { usize::MAX } else { 1 };
            for arg in call.args.iter().filter(|a| a.name.is_none()).take(count) {
                self.wrote_expr(&arg.value, names, out);
            }
        }
    }
}
