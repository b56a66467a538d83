//! Limits: `select(a < b, a, b)` and the like.
//!
//! That is what the machine's own minimum and maximum give, bit for bit: the second
//! operand if either is NaN or both are equal. One instruction takes the place of a
//! comparison and a blend, whose way through a mask register is long. Elementary
//! functions begin with such limits.

use super::lir::W;
use super::table;
use super::value::Val;
use super::{Result, Select};
use std::collections::{BTreeMap, BTreeSet};
use tfc_kernel::{Kernel, Reg, ScalarOp, ScalarType, Stmt};

/// The limits of a kernel.
#[derive(Default)]
pub(super) struct Clamps {
    /// By the select: whether it is the smaller, and its operands.
    found: BTreeMap<Reg, Clamp>,
    /// Comparisons that nothing else needs.
    unneeded: BTreeSet<Reg>,
}

#[derive(Clone, Copy)]
pub(super) struct Clamp {
    smaller: bool,
    operands: [Reg; 2],
    ty: ScalarType,
}

impl Clamps {
    pub(super) fn new(kernel: &Kernel) -> Clamps {
        let mut less = BTreeMap::new();
        let mut clamps = Clamps::default();
        let mut uses = BTreeMap::new();
        clamps.look(kernel, &kernel.body, &mut less, &mut uses);
        for (reg, (selects, all)) in uses {
            if selects == all && less.contains_key(&reg) {
                clamps.unneeded.insert(reg);
            }
        }
        clamps
    }

    /// `uses` counts, of each register, those as the condition of a limit, and all.
    fn look(
        &mut self,
        kernel: &Kernel,
        stmts: &[Stmt],
        less: &mut BTreeMap<Reg, [Reg; 2]>,
        uses: &mut BTreeMap<Reg, (u32, u32)>,
    ) {
        let mut used = |reg: Reg| uses.entry(reg).or_insert((0, 0)).1 += 1;
        for stmt in stmts {
            match stmt {
                Stmt::Op { args, .. } => args.iter().for_each(|a| used(*a)),
                Stmt::Index { ix, .. } | Stmt::Load { at: ix, .. } => {
                    ix.regs.iter().for_each(|(r, _)| used(*r));
                }
                Stmt::Store { at, value, .. } => {
                    at.regs.iter().for_each(|(r, _)| used(*r));
                    used(*value);
                }
                Stmt::Loop(l) => {
                    for c in &l.carried {
                        [c.init, c.acc, c.next].into_iter().for_each(&mut used);
                    }
                }
                Stmt::Const { .. } => {}
            }
        }
        for stmt in stmts {
            match stmt {
                Stmt::Op { dst, op: ScalarOp::Lt, args } if kernel.regs[args[0]].is_float() => {
                    less.insert(*dst, [args[0], args[1]]);
                }
                Stmt::Op { dst, op: ScalarOp::Select, args } => {
                    let Some([a, b]) = less.get(&args[0]).copied() else { continue };
                    let chosen = [args[1], args[2]];
                    if chosen != [a, b] && chosen != [b, a] {
                        continue;
                    }
                    let clamp = Clamp {
                        smaller: chosen == [a, b],
                        operands: chosen,
                        ty: kernel.regs[*dst],
                    };
                    self.found.insert(*dst, clamp);
                    uses.entry(args[0]).or_insert((0, 0)).0 += 1;
                }
                Stmt::Loop(l) => self.look(kernel, &l.body, less, uses),
                _ => {}
            }
        }
    }

    /// The limit that a select is.
    pub(super) fn get(&self, select: Reg) -> Option<Clamp> {
        self.found.get(&select).copied()
    }

    /// Whether a comparison is part of limits alone.
    pub(super) fn is_unneeded(&self, comparison: Reg) -> bool {
        self.unneeded.contains(&comparison)
    }
}

impl Select<'_> {
    pub(super) fn clamp(&mut self, clamp: Clamp) -> Result<Val> {
        let Clamp { smaller, operands, ty } = clamp;
        let [x, y] = operands.map(|r| self.reg(r));
        if let (Val::Const(a), Val::Const(b)) = (&x, &y) {
            let pair = if smaller { [*a, *b] } else { [*b, *a] };
            let less = tfc_kernel::interp::apply(ScalarOp::Lt, ScalarType::Bool, &pair);
            let less = less.map_err(|_| super::Unsupported("a limit of constants"))?;
            return Ok(if less == tfc_kernel::Scalar::Bool(true) { x } else { y });
        }
        let row = match (smaller, ty) {
            (true, ScalarType::F64) => &table::MINPD,
            (true, _) => &table::MINPS,
            (false, ScalarType::F64) => &table::MAXPD,
            (false, _) => &table::MAXPS,
        };
        if !matches!(x, Val::Lanes(_)) && !matches!(y, Val::Lanes(_)) {
            let pair = [self.in_vector(&x)?, self.in_vector(&y)?];
            return Ok(Val::Uniform(self.row(row, W::W128, &pair, None)));
        }
        let (x, y, w) = (self.in_lanes(ty, &x)?, self.in_lanes(ty, &y)?, self.width());
        let pairs = x.into_iter().zip(y);
        Ok(Val::Lanes(pairs.map(|(x, y)| self.row(row, w, &[x, y], None)).collect()))
    }
}
