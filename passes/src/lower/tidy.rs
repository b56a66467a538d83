//! Finishing touches on a kernel: indices in one piece, dead code, merged loops, work done once, the
//! order of sums.
//!
//! These work on the finished loop nest, so nothing above has to foresee which
//! loops will turn out contiguous.

use cranelift_entity::EntityRef;
use tfc_ir::Dim;
use tfc_ir::kernel::{Ix, Kernel, Loop, LoopKind, LoopVar, Reg, Stmt};

pub(crate) fn tidy(kernel: &mut Kernel) {
    super::rejoin::rejoin(kernel);
    drop_dead(kernel);
    let mut body = std::mem::take(&mut kernel.body);
    for stmt in &mut body {
        if let Stmt::Loop(l) = stmt {
            collapse(l);
        }
    }
    kernel.body = body;
    if super::stash::stash(kernel) {
        drop_dead(kernel);
    }
    tfc_ir::kernel::order::set_partials(kernel);
    renumber(kernel);
}

/// Removes statements whose value nothing uses. Loops without a store or a used
/// result go too.
fn drop_dead(kernel: &mut Kernel) {
    let mut used = vec![false; kernel.regs.len()];
    sweep(&mut kernel.body, &mut used);
}

/// Backwards over `stmts`: keeps what is used, marks what it uses.
fn sweep(stmts: &mut Vec<Stmt>, used: &mut [bool]) {
    let mut kept = Vec::with_capacity(stmts.len());
    for mut stmt in std::mem::take(stmts).into_iter().rev() {
        let keep = match &mut stmt {
            Stmt::Const { dst, .. } => used[dst.index()],
            Stmt::Op { dst, args, .. } => {
                let keep = used[dst.index()];
                if keep {
                    args.iter().for_each(|r| used[r.index()] = true);
                }
                keep
            }
            Stmt::Index { dst, ix } | Stmt::Load { dst, at: ix, .. } => {
                let keep = used[dst.index()];
                if keep {
                    ix.regs.iter().for_each(|(r, _)| used[r.index()] = true);
                }
                keep
            }
            Stmt::Store { at, value, .. } => {
                used[value.index()] = true;
                at.regs.iter().for_each(|(r, _)| used[r.index()] = true);
                true
            }
            Stmt::Loop(l) => {
                // Values of loops in order may feed each other's next, or a store:
                // all or none.
                let any = l.carried.iter().any(|c| used[c.result.index()]) || has_store(&l.body);
                let all = any && !l.kind.is_free();
                l.carried.retain(|c| used[c.result.index()] || all);
                if l.carried.is_empty() && l.kind.is_free() {
                    l.kind = LoopKind::Parallel;
                }
                for c in &l.carried {
                    used[c.next.index()] = true;
                    used[c.init.index()] = true;
                }
                sweep(&mut l.body, used);
                !l.carried.is_empty() || has_store(&l.body)
            }
        };
        if keep {
            kept.push(stmt);
        }
    }
    kept.reverse();
    *stmts = kept;
}

fn has_store(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|s| match s {
        Stmt::Store { .. } => true,
        Stmt::Loop(l) => has_store(&l.body),
        _ => false,
    })
}

/// Merges perfectly nested loops that walk memory as one.
fn collapse(l: &mut Loop) {
    for stmt in &mut l.body {
        if let Stmt::Loop(inner) = stmt {
            collapse(inner);
        }
    }
    let [Stmt::Loop(inner)] = l.body.as_slice() else { return };
    // Reductions must chain straight through: inner starts from the outer's
    // running value and gives its next one.
    let chained = l.carried.len() == inner.carried.len()
        && l.carried
            .iter()
            .zip(&inner.carried)
            .all(|(o, i)| i.init == o.acc && o.next == i.result && o.combine == i.combine);
    if !chained || inner.ranged || !walks_as_one(&inner.body, l.var, inner.var, &inner.extent) {
        return;
    }
    let Some(Stmt::Loop(mut inner)) = l.body.pop() else { return };
    forget_var(&mut inner.body, l.var);
    for (i, o) in inner.carried.iter_mut().zip(&l.carried) {
        i.init = o.init;
        i.result = o.result;
    }
    l.extent = l.extent.clone() * inner.extent;
    l.var = inner.var;
    l.carried = inner.carried;
    l.body = inner.body;
}

fn walks_as_one(stmts: &[Stmt], outer: LoopVar, inner: LoopVar, extent: &Dim) -> bool {
    let one = |ix: &Ix| ix.stride(outer) == ix.stride(inner) * extent.clone();
    stmts.iter().all(|s| match s {
        Stmt::Const { .. } | Stmt::Op { .. } => true,
        Stmt::Index { ix, .. } => one(ix),
        Stmt::Load { at, .. } | Stmt::Store { at, .. } => one(at),
        Stmt::Loop(l) => walks_as_one(&l.body, outer, inner, extent),
    })
}

fn forget_var(stmts: &mut [Stmt], var: LoopVar) {
    for s in stmts {
        match s {
            Stmt::Const { .. } | Stmt::Op { .. } => {}
            Stmt::Index { ix, .. } => ix.terms.retain(|(v, _)| *v != var),
            Stmt::Load { at, .. } | Stmt::Store { at, .. } => at.terms.retain(|(v, _)| *v != var),
            Stmt::Loop(l) => forget_var(&mut l.body, var),
        }
    }
}

/// Numbers registers and loops in order of appearance, so that equal kernels
/// are equal values.
fn renumber(kernel: &mut Kernel) {
    let mut names = Names {
        regs: vec![None; kernel.regs.len()],
        vars: vec![None; kernel.loops as usize],
        types: cranelift_entity::PrimaryMap::new(),
        loops: 0,
    };
    let old = kernel.regs.clone();
    names.stmts(&mut kernel.body, &old);
    for local in &mut kernel.locals {
        local.within = local.within.and_then(|v| names.vars[v.index()]);
        names.ix(&mut local.home.base, &old);
    }
    kernel.regs = names.types;
    kernel.loops = names.loops;
}

struct Names {
    regs: Vec<Option<Reg>>,
    vars: Vec<Option<LoopVar>>,
    types: cranelift_entity::PrimaryMap<Reg, tfc_ir::kernel::ScalarType>,
    loops: u32,
}

type Types = cranelift_entity::PrimaryMap<Reg, tfc_ir::kernel::ScalarType>;

impl Names {
    fn reg(&mut self, reg: &mut Reg, old: &Types) {
        let slot = &mut self.regs[reg.index()];
        *reg = match *slot {
            Some(new) => new,
            None => {
                let new = self.types.push(old[*reg]);
                *slot = Some(new);
                new
            }
        };
    }

    fn ix(&mut self, ix: &mut Ix, old: &Types) {
        for (var, _) in &mut ix.terms {
            if let Some(new) = self.vars[var.index()] {
                *var = new;
            }
        }
        ix.terms.sort();
        for (reg, _) in &mut ix.regs {
            self.reg(reg, old);
        }
    }

    fn stmts(&mut self, stmts: &mut [Stmt], old: &Types) {
        for s in stmts {
            match s {
                Stmt::Const { dst, .. } => self.reg(dst, old),
                Stmt::Op { dst, args, .. } => {
                    args.iter_mut().for_each(|r| self.reg(r, old));
                    self.reg(dst, old);
                }
                Stmt::Index { dst, ix } => {
                    self.ix(ix, old);
                    self.reg(dst, old);
                }
                Stmt::Load { dst, at, .. } => {
                    self.ix(at, old);
                    self.reg(dst, old);
                }
                Stmt::Store { at, value, .. } => {
                    self.ix(at, old);
                    self.reg(value, old);
                }
                Stmt::Loop(l) => {
                    for c in &mut l.carried {
                        self.reg(&mut c.init, old);
                        self.reg(&mut c.acc, old);
                    }
                    let new = LoopVar::new(self.loops as usize);
                    self.loops += 1;
                    self.vars[l.var.index()] = Some(new);
                    l.var = new;
                    self.stmts(&mut l.body, old);
                    for c in &mut l.carried {
                        self.reg(&mut c.next, old);
                        self.reg(&mut c.result, old);
                    }
                }
            }
        }
    }
}
