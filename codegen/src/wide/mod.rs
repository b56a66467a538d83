//! Kernel IR to AVX2 and AVX-512 machine code.
//!
//! Cranelift's vectors have 128 bits. For kernels whose time is in vector loops
//! this emitter writes 256 and 512 bits wide code through an assembler
//! (`iced-x86`); the program has it as further versions of those kernels. The
//! pieces, in the order of work:
//! - this file and [`loops`], [`tiles`], [`memory`], [`guards`], [`ops`], [`convert`], [`each`], [`value`]:
//!   kernel IR to instructions on virtual registers ([`lir`]);
//! - before that, on kernel IR itself: [`windows`], [`insides`], by means of [`copy`];
//! - [`alloc`]: machine registers; [`encode`]: bytes; [`table`]: the instructions.
//!
//! Invariants
//! - Every version of a kernel gives the same bits (any NaN is as good as another):
//!   each element is computed by the operations kernel IR names, and reductions
//!   have the partial results of [`tfc_kernel::PARTIALS`].
//! - What this emitter cannot do is [`Unsupported`], never a wrong answer:
//!   the kernel is then Cranelift's in this version too.
//! - Values that are the same in every lane stay scalar: integers in general
//!   registers, floats repeated in all lanes of a 128-bit vector.
//! - No access reaches beyond the lanes that are asked for: the last, incomplete
//!   vector of a loop is masked.

mod ahead;
mod alloc;
mod clamps;
mod convert;
mod copy;
mod each;
mod encode;
mod guards;
mod insides;
mod lir;
mod loops;
mod memory;
mod ops;
mod table;
mod tiles;
mod value;
mod windows;

use crate::emit::divergence;
use crate::schedule::Schedule;
use lir::{Base, Cc, Cell, Class, Func, Inst, Mem, Op, V, W};
use std::collections::{BTreeMap, BTreeSet};
use tfc_kernel::dim::Atom;
use tfc_kernel::{Dim, Ix, Kernel, LoopVar, Reg, Scalar, ScalarType, Stmt};
use value::Val;

/// Instruction sets wider than Cranelift's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wide {
    /// AVX2 with FMA, F16C, BMI1 and BMI2.
    Avx2,
    /// AVX-512 F, DQ, BW and VL.
    Avx512,
}

/// Why a kernel is left to Cranelift.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Unsupported(pub &'static str);

type Result<T> = std::result::Result<T, Unsupported>;

/// Where the bytes of [`function`] may be placed: at multiples of this.
pub(crate) const ALIGN: u64 = encode::ALIGN;

/// The machine code of `kernel`, which must be verified and have its elementary
/// functions expanded, with the calling convention of System V. It refers to
/// nothing outside.
pub(crate) fn function(kernel: &Kernel, wide: Wide) -> Result<Vec<u8>> {
    let unscaled = (wide == Wide::Avx2).then(|| crate::unscaled(kernel));
    let kernel = unscaled.as_deref().unwrap_or(kernel);
    let lanes = if wide == Wide::Avx512 { 16 } else { 8 };
    let mut schedule = Schedule::new(kernel, lanes);
    if !kernel.body.iter().any(|s| worth_it(&schedule, s)) {
        return Err(Unsupported("no vector loop"));
    }
    let written_out = windows::write_out(kernel, &mut schedule);
    let kernel = written_out.as_ref().unwrap_or(kernel);
    let parted = insides::part(kernel, &mut schedule);
    let kernel = parted.as_ref().unwrap_or(kernel);
    let mut func = Select::new(kernel, schedule, wide == Wide::Avx512).function()?;
    func.drop_unused();
    let (machine, evex) = match wide {
        Wide::Avx2 => (encode::AVX2, false),
        Wide::Avx512 => (encode::AVX512, true),
    };
    let homes = alloc::allocate(&func, &machine);
    // The assembler refuses operands that an instruction does not have.
    encode::encode(&func, &homes, evex).map_err(|_| Unsupported("the assembler refused it"))
}

/// Whether there is a loop that wide vectors make faster.
fn worth_it(schedule: &Schedule, stmt: &Stmt) -> bool {
    match stmt {
        Stmt::Loop(l) if schedule.vector(l.var).is_some() => {
            l.ranged || l.extent.as_const().is_none_or(|n| n > 4)
        }
        Stmt::Loop(l) => l.body.iter().any(|s| worth_it(schedule, s)),
        _ => false,
    }
}

/// What is known inside a loop, or of the whole function.
#[derive(Default)]
struct Scope {
    /// Where instructions go that are to run once before the loop.
    before: usize,
    /// Addresses and indices that do not change in the loop.
    sums: BTreeMap<(Option<u32>, Ix), V>,
}

/// The iterations of a vector loop that run at the same time.
struct Group {
    var: LoopVar,
    varying: BTreeSet<Reg>,
    /// Vectors of [`Select::lanes`] iterations, side by side.
    unroll: usize,
    /// The lanes that count, for each of those vectors; all if there are none.
    tail: Vec<V>,
    /// The iterations that are left, then.
    left: Option<V>,
    /// The same for vectors of eight-byte lanes.
    tail8: BTreeMap<(usize, usize), V>,
    /// The scope of the loop.
    scope: usize,
    /// Registers from this one on are defined in the loop.
    first: u32,
    /// Vectors made before the loop: of constants, of what is the same in all lanes.
    constants: BTreeMap<u32, V>,
    splats: BTreeMap<(V, ScalarType), V>,
}

struct Select<'a> {
    kernel: &'a Kernel,
    schedule: Schedule,
    evex: bool,
    f: Func,
    bufs: V,
    dim_values: V,
    range: V,
    ranged: u32,
    dims: BTreeMap<Dim, V>,
    regs: BTreeMap<Reg, Val>,
    vars: BTreeMap<LoopVar, V>,
    /// Loops around the current place, outermost first; the scopes of the function
    /// and of these loops.
    nest: Vec<LoopVar>,
    scopes: Vec<Scope>,
    /// Registers made by `Index`, so that addresses see through them.
    indices: BTreeMap<Reg, Ix>,
    group: Option<Group>,
    /// Ends of the code proper where code to be hoisted is being made.
    marks: Vec<usize>,
    /// What is known of registers.
    known: BTreeMap<V, Scalar>,
    guards: guards::Guards,
    clamps: clamps::Clamps,
    /// What vector loops ask for beside their work.
    ahead: BTreeMap<LoopVar, Vec<ahead::Ahead>>,
}

impl<'a> Select<'a> {
    fn new(kernel: &'a Kernel, schedule: Schedule, evex: bool) -> Select<'a> {
        let mut f = Func::default();
        let [bufs, dim_values, range] = [0, 1, 2].map(|i| {
            let dst = f.reg(Class::General);
            f.code.push(Inst { dst: Some(dst), ..Inst::new(Op::Param(i)) });
            dst
        });
        let scope = Scope { before: f.code.len(), ..Scope::default() };
        Select {
            kernel,
            schedule,
            evex,
            f,
            bufs,
            dim_values,
            range,
            ranged: 0,
            dims: BTreeMap::new(),
            regs: BTreeMap::new(),
            vars: BTreeMap::new(),
            nest: vec![],
            scopes: vec![scope],
            indices: BTreeMap::new(),
            group: None,
            marks: vec![],
            known: BTreeMap::new(),
            guards: guards::Guards::new(kernel),
            clamps: clamps::Clamps::new(kernel),
            ahead: BTreeMap::new(),
        }
    }

    fn function(mut self) -> Result<Func> {
        self.stmts(&self.kernel.body.clone())?;
        self.f.code.push(Inst::new(Op::Return));
        Ok(self.f)
    }

    /// The widest vectors there are.
    fn width(&self) -> W {
        if self.evex { W::W512 } else { W::W256 }
    }

    /// Four-byte lanes of such a vector.
    fn lanes(&self) -> usize {
        if self.evex { 16 } else { 8 }
    }

    fn push(&mut self, inst: Inst) {
        self.f.code.push(inst);
    }

    /// Adds an instruction before the loop of `scope`.
    fn push_before(&mut self, scope: usize, inst: Inst) {
        self.f.code.insert(self.scopes[scope].before, inst);
        for s in &mut self.scopes[scope..] {
            s.before += 1;
        }
        for mark in &mut self.marks {
            *mark += 1;
        }
    }

    /// Runs `make`, and moves the code it adds to before the loop of `scope`.
    fn hoist<T>(&mut self, scope: usize, make: impl FnOnce(&mut Self) -> T) -> T {
        self.marks.push(self.f.code.len());
        let result = make(self);
        let from = self.marks.pop().unwrap_or(self.f.code.len());
        for inst in self.f.code.split_off(from) {
            self.push_before(scope, inst);
        }
        result
    }

    fn general(&mut self, op: Op, wide: bool, a: V, b: Option<V>, imm: Option<i64>) -> V {
        let dst = self.f.reg(Class::General);
        let src = [Some(a), b, None];
        self.push(Inst { dst: Some(dst), src, imm, wide, ..Inst::new(op) });
        dst
    }

    fn imm(&mut self, value: i64) -> V {
        let dst = self.f.reg(Class::General);
        self.push(Inst { dst: Some(dst), imm: Some(value), ..Inst::new(Op::Imm) });
        dst
    }

    fn copy(&mut self, from: V, w: W) -> V {
        let dst = self.f.reg(self.f.classes[from.0 as usize]);
        self.assign(dst, from, w);
        dst
    }

    fn assign(&mut self, dst: V, from: V, w: W) {
        let src = [Some(from), None, None];
        self.push(Inst { dst: Some(dst), src, w, ..Inst::new(Op::Move) });
    }

    fn load_word(&mut self, base: V, at: usize) -> V {
        let dst = self.f.reg(Class::General);
        let mem = Mem { base: Base::Reg(base), disp: 8 * at as i32, ..Mem::default() };
        let op = Op::LoadGeneral(Cell::I64);
        self.push(Inst { dst: Some(dst), mem: Some(mem), ..Inst::new(op) });
        dst
    }

    fn jump(&mut self, cc: Cc, a: V, b: Option<V>, imm: Option<i64>, to: lir::Label) {
        let src = [Some(a), b, None];
        self.push(Inst { src, imm, ..Inst::new(Op::Jump(Some(cc), to)) });
    }

    fn here(&mut self, label: lir::Label) {
        self.push(Inst::new(Op::Here(label)));
    }

    /// A size, computed once at the function's entry.
    fn dim(&mut self, dim: &Dim) -> V {
        if let Some(v) = self.dims.get(dim) {
            return *v;
        }
        let value = self.hoist(0, |s| s.dim_here(dim));
        self.dims.insert(dim.clone(), value);
        value
    }

    fn dim_here(&mut self, dim: &Dim) -> V {
        if let Some(c) = dim.as_const() {
            return self.imm(c);
        }
        if let Some(name) = dim.as_sym() {
            let at = self.kernel.dims.iter().position(|d| d == name).unwrap_or(0);
            return self.load_word(self.dim_values, at);
        }
        let mut sum: Option<V> = None;
        for (atoms, coef) in dim.terms() {
            let mut term: Option<V> = None;
            for atom in atoms {
                let v = match &atom {
                    Atom::Sym(name) => self.dim_part(&Dim::sym(name)),
                    Atom::FloorDiv(d, by) => self.floor_div(d, *by),
                };
                term = Some(match term {
                    Some(t) => self.general(Op::Mul, true, t, Some(v), None),
                    None => v,
                });
            }
            let term = match term {
                None => self.imm(coef),
                Some(t) if coef == 1 => t,
                Some(t) => self.general(Op::Mul, true, t, None, Some(coef)),
            };
            sum = Some(match sum {
                Some(s) => self.general(Op::Add, true, s, Some(term), None),
                None => term,
            });
        }
        sum.unwrap_or_else(|| self.imm(0))
    }

    fn dim_part(&mut self, dim: &Dim) -> V {
        match self.dims.get(dim) {
            Some(v) => *v,
            None => self.dim_here(dim),
        }
    }

    fn floor_div(&mut self, d: &Dim, by: i64) -> V {
        let x = self.dim_part(d);
        let divisor = self.imm(by.max(1));
        let q = self.general(Op::Div, true, x, Some(divisor), None);
        let back = self.general(Op::Mul, true, q, None, Some(by.max(1)));
        // Truncation rounds a negative inexact quotient up: one less then.
        let up = self.general(Op::Set(Cc::Gt), true, back, Some(x), None);
        self.general(Op::Sub, true, q, Some(up), None)
    }

    fn stmts(&mut self, stmts: &[Stmt]) -> Result<()> {
        stmts.iter().try_for_each(|s| self.stmt(s))
    }

    fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        match stmt {
            Stmt::Const { dst, value } => {
                self.regs.insert(*dst, Val::Const(*value));
            }
            Stmt::Op { dst, .. } if self.clamps.is_unneeded(*dst) => {}
            Stmt::Op { dst, op, args } => {
                if let Some(clamp) = self.clamps.get(*dst) {
                    let v = self.clamp(clamp)?;
                    self.regs.insert(*dst, v);
                    return Ok(());
                }
                let to = self.kernel.regs[*dst];
                let tys: Vec<ScalarType> = args.iter().map(|a| self.kernel.regs[*a]).collect();
                let vals: Vec<Val> = args.iter().map(|a| self.reg(*a)).collect();
                let v = self.op(*op, to, &tys, &vals)?;
                self.regs.insert(*dst, v);
            }
            Stmt::Index { dst, ix } => {
                let ix = self.see_through(ix);
                let v = self.index_value(&ix)?;
                self.indices.insert(*dst, ix);
                self.regs.insert(*dst, v);
            }
            Stmt::Load { dst, buf, at } => {
                let v = self.load_for(*dst, *buf, at)?;
                self.regs.insert(*dst, v);
            }
            Stmt::Store { buf, at, value } => {
                let v = self.reg(*value);
                self.store(*buf, at, &v)?;
            }
            Stmt::Loop(l) => self.one_loop(l)?,
        }
        Ok(())
    }

    fn reg(&self, reg: Reg) -> Val {
        self.regs[&reg].clone()
    }
}
