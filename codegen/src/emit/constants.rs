//! Constants of long vector loops, kept in memory.
//!
//! Cranelift moves vector constants out of loops. A long loop has more of them
//! than there are registers, and each is then spilled and loaded again before its
//! use, by an instruction of its own. x86 could read it from memory as part of the
//! instruction that uses it; but only a load that stays in the loop, beside its
//! only use, becomes such an operand. So these constants are written to a table on
//! the stack at entry and loaded where they are used.
//!
//! Invariants
//! - Only constants with one use in the loop's body are in the table: others are
//!   better off in registers, and their loads would stand between a load and the
//!   instruction it could be part of.
//! - The table is written in the entry block and nowhere else, so a load from it is
//!   free to move. It must not leave the loop, and cannot: its address is made from
//!   the loop's variable, see [`Emit::table_base`].

use super::Emit;
use cranelift_codegen::cursor::{Cursor, FuncCursor};
use cranelift_codegen::ir::{
    Block, ConstantData, Function, InstBuilder, MemFlagsData, StackSlot, StackSlotData,
    StackSlotKind, Type, Value, types,
};
use std::collections::{BTreeMap, BTreeSet};
use tfc_kernel::{Kernel, Loop, Reg, Scalar, ScalarOp, ScalarType, Stmt};

/// Bytes of an entry.
const ENTRY: usize = 16;

/// What the loops of a function have asked for.
#[derive(Default)]
pub(super) struct Table {
    slot: Option<StackSlot>,
    entries: Vec<[u8; ENTRY]>,
}

impl Table {
    fn slot(&mut self, func: &mut Function) -> StackSlot {
        // The size is known at the end.
        *self.slot.get_or_insert_with(|| {
            func.create_sized_stack_slot(StackSlotData::new(StackSlotKind::ExplicitSlot, 0, 4))
        })
    }

    /// The offset of an entry.
    fn place(&mut self, bytes: [u8; ENTRY]) -> i32 {
        let at = self.entries.iter().position(|e| *e == bytes).unwrap_or_else(|| {
            self.entries.push(bytes);
            self.entries.len() - 1
        });
        (at * ENTRY) as i32
    }

    /// Adds the code that writes the table to the entry block.
    pub(super) fn write(self, func: &mut Function, entry: Block) {
        let Some(slot) = self.slot else { return };
        func.sized_stack_slots[slot].size = (self.entries.len() * ENTRY).max(ENTRY) as u32;
        let mut pos = FuncCursor::new(func).at_first_insertion_point(entry);
        let flags = MemFlagsData::new().with_notrap().with_aligned();
        let base = pos.ins().stack_addr(types::I64, slot, 0);
        for (i, bytes) in self.entries.iter().enumerate() {
            let data = pos.func.dfg.constants.insert(ConstantData::from(bytes.as_slice()));
            let value = pos.ins().vconst(types::I8X16, data);
            pos.ins().store(flags, value, base, (i * ENTRY) as i32);
        }
    }
}

/// What [`ScalarOp::Abs`] keeps of a float.
pub(super) fn abs_mask(ty: ScalarType) -> Scalar {
    if ty == ScalarType::F64 { Scalar::I64(i64::MAX) } else { Scalar::I32(i32::MAX) }
}

/// The constants that one operation of `l`'s body uses, once.
pub(super) fn used_once(kernel: &Kernel, l: &Loop) -> BTreeSet<Scalar> {
    fn known(stmts: &[Stmt], out: &mut BTreeMap<Reg, Scalar>) {
        for stmt in stmts {
            match stmt {
                Stmt::Const { dst, value } => {
                    out.insert(*dst, *value);
                }
                Stmt::Loop(l) => known(&l.body, out),
                _ => {}
            }
        }
    }
    fn count(
        kernel: &Kernel,
        stmts: &[Stmt],
        consts: &BTreeMap<Reg, Scalar>,
        out: &mut BTreeMap<Scalar, u32>,
    ) {
        for stmt in stmts {
            match stmt {
                Stmt::Op { op, args, .. } => {
                    if *op == ScalarOp::Abs && kernel.regs[args[0]].is_float() {
                        *out.entry(abs_mask(kernel.regs[args[0]])).or_default() += 1;
                    }
                    for value in args.iter().filter_map(|a| consts.get(a)) {
                        *out.entry(*value).or_default() += 1;
                    }
                }
                Stmt::Loop(l) => count(kernel, &l.body, consts, out),
                _ => {}
            }
        }
    }
    let (mut consts, mut uses) = (BTreeMap::new(), BTreeMap::new());
    known(&kernel.body, &mut consts);
    count(kernel, &l.body, &consts, &mut uses);
    uses.into_iter().filter(|(_, n)| *n == 1).map(|(c, _)| c).collect()
}

fn lanes(value: Scalar) -> [u8; ENTRY] {
    fn repeat<const N: usize>(lane: [u8; N]) -> [u8; ENTRY] {
        std::array::from_fn(|i| lane[i % N])
    }
    match value {
        Scalar::F32(bits) => repeat(bits.to_le_bytes()),
        Scalar::F64(bits) => repeat(bits.to_le_bytes()),
        Scalar::I32(v) => repeat(v.to_le_bytes()),
        Scalar::I64(v) => repeat(v.to_le_bytes()),
        Scalar::Bool(v) => [if v { 0xff } else { 0 }; ENTRY],
    }
}

impl Emit<'_> {
    /// The table's address in the body of the loop whose variable is `i`.
    pub(super) fn table_base(&mut self, i: Value) -> Value {
        let slot = self.table.slot(self.b.func);
        let base = self.b.ins().stack_addr(types::I64, slot, 0);
        // Zero, as no variable is negative: but Cranelift does not know that, and
        // keeps in the loop what depends on it.
        let zero = self.b.ins().sshr_imm_s(i, 63);
        self.b.ins().iadd(base, zero)
    }

    /// `v` in every lane of a vector.
    pub(super) fn splat(&mut self, to: Type, v: Value) -> Value {
        let known = self.constants.get(&v).copied();
        if let (Some(group), Some(value)) = (&self.group, known)
            && let Some(base) = group.table
            && group.once.contains(&value)
        {
            let at = self.table.place(lanes(value));
            let flags =
                MemFlagsData::new().with_notrap().with_aligned().with_readonly().with_can_move();
            return self.b.ins().load(to, flags, base, at);
        }
        self.b.ins().splat(to, v)
    }
}
