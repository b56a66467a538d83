//! Building one kernel: statements land in the outermost loop they can.
//!
//! A statement's place follows from what it uses: a load or an operation is put
//! in the innermost open loop among those its registers and indices depend on.
//! So loop-invariant code is never emitted inside the loop, and equal
//! statements have equal places: value numbering needs no dominance check.
//!
//! Invariants
//! - `scope` is the innermost open loop; every register used in it was defined
//!   in it or in a loop around it.
//! - No kernel reads back what it stores: loads may move and merge freely.

use cranelift_entity::{EntityRef, PrimaryMap};
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::kernel::{
    Carried, Combine, Ix, Kernel, KernelBuf, Loop, LoopKind, LoopVar, Reg, Scalar, ScalarOp,
    ScalarType, Stmt,
};
use tfc_ir::{DType, Dim};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScopeId(usize);

struct Scope {
    parent: Option<ScopeId>,
    depth: u32,
    stmts: Vec<Stmt>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Const(Scalar),
    Op(ScalarOp, ScalarType, Vec<Reg>),
    Index(Ix),
    Load(u32, Ix),
}

pub(crate) struct KernelBuilder {
    pub bufs: Vec<KernelBuf>,
    regs: PrimaryMap<Reg, ScalarType>,
    reg_scope: Vec<ScopeId>,
    var_scope: Vec<ScopeId>,
    /// Iterations of each loop.
    extents: Vec<Dim>,
    scopes: Vec<Scope>,
    pub scope: ScopeId,
    known: BTreeMap<Key, Reg>,
}

/// A reduction variable of a loop being opened.
pub(crate) struct Accumulator {
    pub init: Reg,
    pub acc: Reg,
    pub combine: Combine,
}

pub(crate) struct OpenLoop {
    pub var: LoopVar,
    scope: ScopeId,
    outer: ScopeId,
    extent: Dim,
    kind: LoopKind,
    ranged: bool,
}

impl KernelBuilder {
    pub fn new() -> KernelBuilder {
        let root = Scope { parent: None, depth: 0, stmts: vec![] };
        KernelBuilder {
            bufs: vec![],
            regs: PrimaryMap::new(),
            reg_scope: vec![],
            var_scope: vec![],
            extents: vec![],
            scopes: vec![root],
            scope: ScopeId(0),
            known: BTreeMap::new(),
        }
    }

    pub fn buffer(&mut self, dtype: DType, len: Dim, written: bool) -> u32 {
        self.bufs.push(KernelBuf::new(dtype, len, written));
        (self.bufs.len() - 1) as u32
    }

    pub fn ty(&self, reg: Reg) -> ScalarType {
        self.regs[reg]
    }

    fn fresh(&mut self, ty: ScalarType, scope: ScopeId) -> Reg {
        self.reg_scope.push(scope);
        self.regs.push(ty)
    }

    fn deeper(&self, a: ScopeId, b: ScopeId) -> ScopeId {
        if self.scopes[b.0].depth > self.scopes[a.0].depth { b } else { a }
    }

    fn scope_of_regs(&self, regs: &[Reg]) -> ScopeId {
        regs.iter().fold(ScopeId(0), |s, r| self.deeper(s, self.reg_scope[r.index()]))
    }

    /// The innermost loop an index depends on.
    pub fn scope_of_ix(&self, ix: &Ix) -> ScopeId {
        let mut scope = ScopeId(0);
        for (var, _) in &ix.terms {
            scope = self.deeper(scope, self.var_scope[var.index()]);
        }
        for (reg, _) in &ix.regs {
            scope = self.deeper(scope, self.reg_scope[reg.index()]);
        }
        scope
    }

    /// Whether an index stays inside an axis whatever else happens: it counts a
    /// loop of the axis's size, or is the only one there is.
    pub fn walks(&self, ix: &Ix, size: &Dim) -> bool {
        if !ix.regs.is_empty() || !ix.offset.is_zero() {
            return false;
        }
        match ix.terms.as_slice() {
            [] => size.is_one(),
            [(var, one)] => one.is_one() && self.extents[var.index()] == *size,
            _ => false,
        }
    }

    pub fn scope_of_all<'a>(&self, at: impl IntoIterator<Item = &'a Ix>) -> ScopeId {
        at.into_iter().fold(ScopeId(0), |s, ix| self.deeper(s, self.scope_of_ix(ix)))
    }

    fn numbered(
        &mut self,
        key: Key,
        ty: ScalarType,
        scope: ScopeId,
        make: impl FnOnce(Reg) -> Stmt,
    ) -> Reg {
        if let Some(reg) = self.known.get(&key) {
            return *reg;
        }
        let reg = self.fresh(ty, scope);
        self.scopes[scope.0].stmts.push(make(reg));
        self.known.insert(key, reg);
        reg
    }

    pub fn constant(&mut self, value: Scalar) -> Reg {
        self.numbered(Key::Const(value), value.ty(), ScopeId(0), |dst| Stmt::Const { dst, value })
    }

    pub fn op(&mut self, op: ScalarOp, args: &[Reg], ty: ScalarType) -> Reg {
        let scope = self.scope_of_regs(args);
        let args = args.to_vec();
        self.numbered(Key::Op(op, ty, args.clone()), ty, scope, |dst| Stmt::Op { dst, op, args })
    }

    pub fn index(&mut self, ix: &Ix) -> Reg {
        if let ([], [(reg, one)]) = (ix.terms.as_slice(), ix.regs.as_slice())
            && one.is_one()
            && ix.offset.is_zero()
            && self.regs[*reg] == ScalarType::I64
        {
            return *reg;
        }
        let scope = self.scope_of_ix(ix);
        let ix = ix.clone();
        self.numbered(Key::Index(ix.clone()), ScalarType::I64, scope, |dst| Stmt::Index { dst, ix })
    }

    pub fn load(&mut self, buf: u32, at: &Ix) -> Reg {
        let ty = ScalarType::of(self.bufs[buf as usize].dtype);
        let scope = self.scope_of_ix(at);
        let at = at.clone();
        self.numbered(Key::Load(buf, at.clone()), ty, scope, |dst| Stmt::Load { dst, buf, at })
    }

    pub fn store(&mut self, buf: u32, at: &Ix, value: Reg) {
        self.scopes[self.scope.0].stmts.push(Stmt::Store { buf, at: at.clone(), value });
    }

    /// Opens a loop inside the current scope, which becomes the loop's body. Its
    /// iterations are independent.
    pub fn open(&mut self, extent: &Dim, ranged: bool) -> OpenLoop {
        self.open_as(LoopKind::Parallel, extent, ranged)
    }

    /// A loop of reductions. Whether they keep partial results is known when the
    /// nest is finished.
    pub fn open_reduce(&mut self, extent: &Dim) -> OpenLoop {
        self.open_as(LoopKind::Reduce { partials: false }, extent, false)
    }

    pub fn open_as(&mut self, kind: LoopKind, extent: &Dim, ranged: bool) -> OpenLoop {
        let outer = self.scope;
        let depth = self.scopes[outer.0].depth + 1;
        self.scopes.push(Scope { parent: Some(outer), depth, stmts: vec![] });
        let scope = ScopeId(self.scopes.len() - 1);
        let var = LoopVar::new(self.var_scope.len());
        self.var_scope.push(scope);
        self.extents.push(extent.clone());
        self.scope = scope;
        OpenLoop { var, scope, outer, extent: extent.clone(), kind, ranged }
    }

    /// A running value of the current (just opened) loop.
    pub fn accumulator(&mut self, init: Reg, combine: Combine) -> Accumulator {
        let acc = self.fresh(self.regs[init], self.scope);
        Accumulator { init, acc, combine }
    }

    /// Closes the loop; gives the final value of each accumulator.
    pub fn close(&mut self, open: OpenLoop, carried: Vec<(Accumulator, Reg)>) -> Vec<Reg> {
        let mut results = vec![];
        let carried = carried
            .into_iter()
            .map(|(a, next)| {
                let result = self.fresh(self.regs[a.acc], open.outer);
                results.push(result);
                Carried { init: a.init, acc: a.acc, next, result, combine: a.combine }
            })
            .collect();
        let body = std::mem::take(&mut self.scopes[open.scope.0].stmts);
        debug_assert_eq!(self.scopes[open.scope.0].parent, Some(open.outer));
        self.scopes[open.outer.0].stmts.push(Stmt::Loop(Loop {
            var: open.var,
            extent: open.extent,
            kind: open.kind,
            ranged: open.ranged,
            carried,
            body,
        }));
        self.scope = open.outer;
        results
    }

    pub fn finish(mut self, name: String) -> Kernel {
        let body = std::mem::take(&mut self.scopes[0].stmts);
        let mut kernel = Kernel {
            name,
            bufs: self.bufs,
            locals: vec![],
            dims: vec![],
            regs: self.regs,
            loops: self.var_scope.len() as u32,
            body,
        };
        super::tidy::tidy(&mut kernel);
        let mut dims = BTreeSet::new();
        collect_dims(&kernel.body, &mut dims);
        for buf in &kernel.bufs {
            dims.extend(buf.len.syms());
        }
        for local in &kernel.locals {
            dims.extend(local.len.syms());
            dims.extend(local.home.stride.syms());
            dims.extend(local.home.base.offset.syms());
            dims.extend(local.home.base.terms.iter().flat_map(|(_, s)| s.syms()));
        }
        kernel.dims = dims.into_iter().collect();
        // Memory is planned with local buffers in the place they have on a CPU.
        let mut placed = kernel.clone();
        tfc_ir::kernel::locals::place(&mut placed);
        for (output, input) in super::inplace::pairs(&placed) {
            kernel.bufs[output].alias.push(input as u32);
        }
        kernel
    }
}

fn collect_dims(stmts: &[Stmt], out: &mut BTreeSet<std::sync::Arc<str>>) {
    let mut ix_dims = |ix: &Ix| {
        out.extend(ix.offset.syms());
        for (_, s) in &ix.terms {
            out.extend(s.syms());
        }
        for (_, s) in &ix.regs {
            out.extend(s.syms());
        }
    };
    for stmt in stmts {
        match stmt {
            Stmt::Const { .. } | Stmt::Op { .. } => {}
            Stmt::Index { ix, .. } => ix_dims(ix),
            Stmt::Load { at, .. } | Stmt::Store { at, .. } => ix_dims(at),
            Stmt::Loop(_) => {}
        }
    }
    for stmt in stmts {
        if let Stmt::Loop(l) = stmt {
            out.extend(l.extent.syms());
            collect_dims(&l.body, out);
        }
    }
}
