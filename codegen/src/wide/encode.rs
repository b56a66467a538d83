//! Machine code of a function whose registers are chosen.
//!
//! What lives in memory is read as a memory operand where the instruction has one
//! and through scratch registers elsewhere. The constants follow the code, and are
//! addressed relative to it.
//!
//! The frame, from the stack pointer up: slots of spilled registers, then the
//! places the function asked for. It is aligned to a cache line, so `rbp` holds
//! the way back.

mod general;

use super::alloc::{Allocation, Home, Machine};
use super::lir::{Base, Cc, Cell, Class, Func, Inst, Label, Mem, Op, Pooled, V, W};
use super::table::{self, Form, Row};
use iced_x86::{Code, Encoder, IcedError, Instruction, MemoryOperand, Register};

const RAX: u8 = 0;
const RDX: u8 = 2;
const RSP: u8 = 4;
const RBP: u8 = 5;

/// Everything but the stack and frame pointers and the scratch registers `rax` and
/// `rdx`; those a callee may spoil first.
const GENERAL: &[u8] = &[1, 6, 7, 8, 9, 10, 11, 3, 12, 13, 14, 15];
const SAVED: &[u8] = &[3, 12, 13, 14, 15];

pub(super) const AVX2: Machine = Machine {
    general: GENERAL,
    vector: &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
    mask: &[],
    params: [7, 6, 8],
};

pub(super) const AVX512: Machine = Machine {
    general: GENERAL,
    vector: &[
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24,
        25, 26, 27, 28,
    ],
    // k0 cannot mask; k7 is a scratch register.
    mask: &[1, 2, 3, 4, 5, 6],
    params: [7, 6, 8],
};

/// Scratch vectors, with and without AVX-512.
const SCRATCH_512: [u8; 3] = [31, 30, 29];
const SCRATCH_256: [u8; 3] = [15, 14, 13];
const SCRATCH_MASKS: [u8; 2] = [7, 0];

/// The bytes of the function: code, then constants; to be placed at a multiple of
/// [`ALIGN`].
pub(super) fn encode(func: &Func, homes: &Allocation, evex: bool) -> Result<Vec<u8>, IcedError> {
    let mut e = Encode::new(func, homes, evex);
    e.prologue()?;
    for inst in &func.code {
        e.inst(inst)?;
    }
    Ok(e.finish())
}

pub(super) const ALIGN: u64 = 64;

#[derive(Clone, Copy)]
enum Arg {
    R(Register),
    M(MemoryOperand),
    I(i32),
}
use Arg::{I, M, R};

struct Encode<'a> {
    func: &'a Func,
    homes: &'a Allocation,
    evex: bool,
    encoder: Encoder,
    at: usize,
    labels: Vec<Option<usize>>,
    /// Where four bytes of distance are, where the instruction ends, and to what.
    jumps: Vec<(usize, usize, Label)>,
    constants: Vec<(usize, usize, u32)>,
    /// Offsets of slots and places from the stack pointer.
    slots: Vec<i32>,
    places: Vec<i32>,
    frame: i32,
    saved: Vec<u8>,
    /// The constant the next instruction reads, if any.
    reads: Option<u32>,
}

impl<'a> Encode<'a> {
    fn new(func: &'a Func, homes: &'a Allocation, evex: bool) -> Encode<'a> {
        let line = 64;
        let mut offset = 0;
        let mut room = |bytes: i32| {
            let align = bytes.min(line);
            offset = (offset + align - 1) / align * align;
            offset += bytes;
            offset - bytes
        };
        let vector = if evex { 64 } else { 32 };
        let slots = homes
            .slots
            .iter()
            .map(|c| room(if *c == Class::Vector { vector } else { 8 }))
            .collect();
        let places = func.frame.iter().map(|bytes| room((*bytes as i32).max(8))).collect();
        let saved = SAVED
            .iter()
            .copied()
            .filter(|r| {
                homes
                    .homes
                    .iter()
                    .zip(&func.classes)
                    .any(|(home, class)| *class == Class::General && *home == Home::Reg(*r))
            })
            .collect();
        Encode {
            func,
            homes,
            evex,
            encoder: Encoder::new(64),
            at: 0,
            labels: vec![None; func.labels as usize],
            jumps: vec![],
            constants: vec![],
            slots,
            places,
            frame: (offset + line - 1) / line * line,
            saved,
            reads: None,
        }
    }

    fn write(&mut self, instruction: &Instruction) -> Result<(), IcedError> {
        let len = self.encoder.encode(instruction, self.at as u64)?;
        let offsets = self.encoder.get_constant_offsets();
        let end = self.at + len;
        if let Some(constant) = self.reads.take() {
            self.constants.push((self.at + offsets.displacement_offset(), end, constant));
        }
        self.at = end;
        Ok(())
    }

    fn emit(&mut self, code: Code, args: &[Arg]) -> Result<(), IcedError> {
        self.emit_masked(code, args, Register::None, false)
    }

    fn emit_masked(
        &mut self,
        code: Code,
        args: &[Arg],
        mask: Register,
        zero: bool,
    ) -> Result<(), IcedError> {
        let mut i = match *args {
            [] => Instruction::with(code),
            [R(a)] => Instruction::with1(code, a)?,
            [M(a)] => Instruction::with1(code, a)?,
            [R(a), R(b)] => Instruction::with2(code, a, b)?,
            [R(a), M(b)] => Instruction::with2(code, a, b)?,
            [R(a), I(b)] => Instruction::with2(code, a, b)?,
            [M(a), R(b)] => Instruction::with2(code, a, b)?,
            [M(a), I(b)] => Instruction::with2(code, a, b)?,
            [R(a), R(b), R(c)] => Instruction::with3(code, a, b, c)?,
            [R(a), R(b), M(c)] => Instruction::with3(code, a, b, c)?,
            [R(a), R(b), I(c)] => Instruction::with3(code, a, b, c)?,
            [R(a), M(b), R(c)] => Instruction::with3(code, a, b, c)?,
            [R(a), M(b), I(c)] => Instruction::with3(code, a, b, c)?,
            [M(a), R(b), R(c)] => Instruction::with3(code, a, b, c)?,
            [M(a), R(b), I(c)] => Instruction::with3(code, a, b, c)?,
            [R(a), R(b), R(c), R(d)] => Instruction::with4(code, a, b, c, d)?,
            [R(a), R(b), R(c), I(d)] => Instruction::with4(code, a, b, c, d)?,
            [R(a), R(b), M(c), R(d)] => Instruction::with4(code, a, b, c, d)?,
            [R(a), R(b), M(c), I(d)] => Instruction::with4(code, a, b, c, d)?,
            _ => unreachable!("no instruction has these operands"),
        };
        if mask != Register::None {
            i.set_op_mask(mask);
            i.set_zeroing_masking(zero);
        }
        self.write(&i)
    }

    fn prologue(&mut self) -> Result<(), IcedError> {
        self.emit(Code::Push_r64, &[R(g(RBP))])?;
        self.emit(Code::Mov_rm64_r64, &[R(g(RBP)), R(g(RSP))])?;
        for reg in self.saved.clone() {
            self.emit(Code::Push_r64, &[R(g(reg))])?;
        }
        if self.frame > 0 {
            self.emit(Code::And_rm64_imm8, &[R(g(RSP)), I(-64)])?;
            self.emit(Code::Sub_rm64_imm32, &[R(g(RSP)), I(self.frame)])?;
        }
        Ok(())
    }

    fn epilogue(&mut self) -> Result<(), IcedError> {
        let saved = self.saved.clone();
        if self.frame > 0 {
            let back = -8 * saved.len() as i64;
            let from = MemoryOperand::with_base_displ(g(RBP), back);
            self.emit(Code::Lea_r64_m, &[R(g(RSP)), M(from)])?;
        }
        for reg in saved.iter().rev() {
            self.emit(Code::Pop_r64, &[R(g(*reg))])?;
        }
        self.emit(Code::Pop_r64, &[R(g(RBP))])?;
        self.emit(Code::VEX_Vzeroupper, &[])?;
        self.emit(Code::Retnq, &[])
    }

    /// Fills in distances and adds the constants.
    fn finish(mut self) -> Vec<u8> {
        let mut bytes = self.encoder.take_buffer();
        let put = |bytes: &mut Vec<u8>, at: usize, end: usize, target: usize| {
            let distance = target as i32 - end as i32;
            bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        };
        for (at, end, label) in &self.jumps {
            if let Some(target) = self.labels[label.0 as usize] {
                put(&mut bytes, *at, *end, target);
            }
        }
        self.constants.sort_by_key(|(_, _, constant)| *constant);
        let mut placed: Vec<Option<usize>> = vec![None; self.func.pool.len()];
        for (at, end, constant) in &self.constants {
            let target = *placed[*constant as usize].get_or_insert_with(|| {
                let data = self.image(*constant);
                let align = data.len().next_power_of_two().min(64);
                bytes.resize(bytes.len().next_multiple_of(align), 0xcc);
                bytes.extend(&data);
                bytes.len() - data.len()
            });
            put(&mut bytes, *at, *end, target);
        }
        bytes
    }

    /// A constant as it stands in memory: AVX-512 repeats one lane by itself.
    fn image(&self, constant: u32) -> Vec<u8> {
        match &self.func.pool[constant as usize] {
            Pooled::Lane4(v) if self.evex => v.to_le_bytes().to_vec(),
            Pooled::Lane8(v) if self.evex => v.to_le_bytes().to_vec(),
            Pooled::Lane4(v) => v.to_le_bytes().repeat(8),
            Pooled::Lane8(v) => v.to_le_bytes().repeat(4),
            Pooled::Bytes(bytes) => bytes.clone(),
        }
    }

    fn home(&self, v: V) -> Home {
        self.homes.homes[v.0 as usize]
    }

    fn class(&self, v: V) -> Class {
        self.func.classes[v.0 as usize]
    }

    fn on_stack(&self, slot: u32) -> MemoryOperand {
        MemoryOperand::with_base_displ(g(RSP), i64::from(self.slots[slot as usize]))
    }

    /// The constant as a memory operand of the next instruction.
    fn in_pool(&mut self, constant: u32, broadcast: bool) -> MemoryOperand {
        self.reads = Some(constant);
        let near = self.at as i64 + 64;
        MemoryOperand::new(Register::RIP, Register::None, 1, near, 8, broadcast, Register::None)
    }

    fn code(&self, row: &Row, w: W) -> Code {
        row.codes[w as usize + if self.evex { 2 } else { 0 }]
    }

    fn scratch(&self, which: usize) -> u8 {
        if self.evex { SCRATCH_512[which] } else { SCRATCH_256[which] }
    }

    /// Loads a constant into a vector register.
    fn load_constant(&mut self, reg: u8, constant: u32, w: W) -> Result<(), IcedError> {
        let row = match &self.func.pool[constant as usize] {
            Pooled::Lane4(_) if self.evex => &table::BROADCASTSS_M,
            Pooled::Lane8(_) if self.evex => &table::BROADCASTSD_M,
            _ => &table::LOADPS,
        };
        // A narrow load of a long vector is fine, the other way is not.
        let w = match &self.func.pool[constant as usize] {
            Pooled::Bytes(bytes) if bytes.len() < w.bytes() => W::W128,
            _ => w,
        };
        let from = self.in_pool(constant, false);
        self.emit(self.code(row, w), &[R(x(reg, w)), M(from)])
    }

    /// The vector in a register, the scratch register if it is in memory.
    fn vector(&mut self, v: V, w: W, scratch: usize) -> Result<Register, IcedError> {
        let reg = self.scratch(scratch);
        match self.home(v) {
            Home::Reg(r) => return Ok(x(r, w)),
            Home::Slot(slot) => {
                let from = self.on_stack(slot);
                self.emit(self.code(&table::LOADPS, w), &[R(x(reg, w)), M(from)])?;
            }
            Home::Pool(constant) => self.load_constant(reg, constant, w)?,
            Home::Nowhere => {}
        }
        Ok(x(reg, w))
    }

    /// Whether an instruction of this row can read the register where it is.
    fn readable(&self, v: V, row: &Row) -> bool {
        match self.home(v) {
            Home::Reg(_) => true,
            Home::Slot(_) => row.form != Form::Ri || self.evex,
            Home::Pool(constant) => match &self.func.pool[constant as usize] {
                Pooled::Lane4(_) if self.evex => row.broadcast == 4,
                Pooled::Lane8(_) if self.evex => row.broadcast == 8,
                _ => row.form != Form::Ri || self.evex,
            },
            Home::Nowhere => false,
        }
    }

    fn in_register(&self, v: V) -> bool {
        matches!(self.home(v), Home::Reg(_))
    }

    fn vector_or_memory(
        &mut self,
        v: V,
        row: &Row,
        w: W,
        scratch: usize,
    ) -> Result<Arg, IcedError> {
        if !self.readable(v, row) {
            return Ok(R(self.vector(v, w, scratch)?));
        }
        Ok(match self.home(v) {
            Home::Slot(slot) => M(self.on_stack(slot)),
            Home::Pool(constant) => {
                let whole = matches!(self.func.pool[constant as usize], Pooled::Bytes(_));
                M(self.in_pool(constant, self.evex && !whole))
            }
            _ => R(self.vector(v, w, scratch)?),
        })
    }

    fn mask(&mut self, v: V, which: usize) -> Result<Register, IcedError> {
        match self.home(v) {
            Home::Reg(r) => Ok(k(r)),
            Home::Slot(slot) => {
                let (reg, from) = (k(SCRATCH_MASKS[which]), self.on_stack(slot));
                self.emit(Code::VEX_Kmovw_kr_km16, &[R(reg), M(from)])?;
                Ok(reg)
            }
            _ => Ok(k(SCRATCH_MASKS[which])),
        }
    }

    fn general(&mut self, v: V, scratch: u8) -> Result<u8, IcedError> {
        match self.home(v) {
            Home::Reg(r) => Ok(r),
            Home::Slot(slot) => {
                let from = self.on_stack(slot);
                self.emit(Code::Mov_r64_rm64, &[R(g(scratch)), M(from)])?;
                Ok(scratch)
            }
            _ => Ok(scratch),
        }
    }

    fn general_or_memory(&mut self, v: V, wide: bool) -> Result<Arg, IcedError> {
        match self.home(v) {
            Home::Slot(slot) => Ok(M(self.on_stack(slot))),
            _ => Ok(R(sized(self.general(v, RDX)?, wide))),
        }
    }

    fn address(&mut self, mem: &Mem, w: W) -> Result<MemoryOperand, IcedError> {
        let mut disp = i64::from(mem.disp);
        let base = match mem.base {
            Base::None => Register::None,
            Base::Reg(v) => g(self.general(v, RAX)?),
            Base::Frame(place) => {
                disp += i64::from(self.places[place as usize]);
                g(RSP)
            }
        };
        let index = match mem.index {
            None => Register::None,
            Some(v) if self.class(v) == Class::Vector => self.vector(v, w, 2)?,
            Some(v) => g(self.general(v, RDX)?),
        };
        let size = if disp == 0 { 0 } else { 1 };
        let scale = u32::from(mem.scale.max(1));
        Ok(MemoryOperand::new(base, index, scale, disp, size, false, Register::None))
    }

    /// The register an instruction writes; [`Encode::settle`] puts it where it
    /// belongs.
    fn result(&mut self, v: V, w: W) -> Register {
        match (self.home(v), self.class(v)) {
            (Home::Reg(r), Class::General) => g(r),
            (Home::Reg(r), Class::Vector) => x(r, w),
            (Home::Reg(r), Class::Mask) => k(r),
            (_, Class::General) => g(RAX),
            (_, Class::Vector) => x(self.scratch(0), w),
            (_, Class::Mask) => k(SCRATCH_MASKS[0]),
        }
    }

    fn settle(&mut self, v: V, w: W) -> Result<(), IcedError> {
        let Home::Slot(slot) = self.home(v) else { return Ok(()) };
        let (to, reg) = (M(self.on_stack(slot)), self.result(v, w));
        match self.class(v) {
            Class::General => self.emit(Code::Mov_rm64_r64, &[to, R(reg)]),
            Class::Mask => self.emit(Code::VEX_Kmovw_m16_kr, &[to, R(reg)]),
            // All of it: what reads it back may be wider.
            Class::Vector => self.emit(self.code(&table::STOREPS, w), &[to, R(reg)]),
        }
    }

    fn inst(&mut self, inst: &Inst) -> Result<(), IcedError> {
        match inst.op {
            Op::Row(row) => self.row(inst, row),
            Op::Fma { double, negated } => self.fma(inst, double, negated),
            Op::Move => self.copy(inst),
            Op::Const(constant) => match (inst.dst, inst.dst.map(|d| self.home(d))) {
                (Some(_), Some(Home::Reg(r))) => self.load_constant(r, constant, inst.w),
                _ => Ok(()),
            },
            Op::KAnd
            | Op::KOr
            | Op::KXor
            | Op::KNot
            | Op::KAndNot
            | Op::KJoin
            | Op::KShiftRight
            | Op::KFromGeneral
            | Op::KToGeneral => self.mask_op(inst),
            Op::Param(2) => {
                let Some(dst) = inst.dst else { return Ok(()) };
                let to = self.result(dst, W::W128);
                self.emit(Code::Mov_r64_rm64, &[R(to), R(g(RDX))])
            }
            Op::Param(_) => Ok(()),
            Op::Jump(cc, label) => self.jump(inst, cc, label),
            Op::Here(label) => {
                self.labels[label.0 as usize] = Some(self.at);
                Ok(())
            }
            Op::Begin => self.align(16),
            Op::End => Ok(()),
            Op::Return => self.epilogue(),
            _ => self.general_op(inst),
        }
    }

    /// Long no-ops up to a multiple of `to`.
    fn align(&mut self, to: usize) -> Result<(), IcedError> {
        const NOPS: [&[u8]; 8] = [
            &[0x90],
            &[0x66, 0x90],
            &[0x0f, 0x1f, 0x00],
            &[0x0f, 0x1f, 0x40, 0x00],
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x66, 0x0f, 0x1f, 0x44, 0x00, 0x00],
            &[0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00],
            &[0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00],
        ];
        let mut left = self.at.next_multiple_of(to) - self.at;
        while left > 0 {
            let nop = NOPS[left.min(8) - 1];
            nop.iter().for_each(|b| self.encoder.write_u8(*b));
            self.at += nop.len();
            left -= nop.len();
        }
        Ok(())
    }

    fn jump(&mut self, inst: &Inst, cc: Option<Cc>, label: Label) -> Result<(), IcedError> {
        let code = match cc {
            None => Code::Jmp_rel32_64,
            Some(cc) => {
                self.compare(inst)?;
                match cc {
                    Cc::Eq => Code::Je_rel32_64,
                    Cc::Ne => Code::Jne_rel32_64,
                    Cc::Lt => Code::Jl_rel32_64,
                    Cc::Le => Code::Jle_rel32_64,
                    Cc::Gt => Code::Jg_rel32_64,
                    Cc::Ge => Code::Jge_rel32_64,
                }
            }
        };
        self.write(&Instruction::with_branch(code, self.at as u64)?)?;
        self.jumps.push((self.at - 4, self.at, label));
        Ok(())
    }

    /// Sets the flags by the first operand and the second or the immediate.
    fn compare(&mut self, inst: &Inst) -> Result<(), IcedError> {
        let Some(a) = inst.src[0] else { return Ok(()) };
        let wide = inst.wide;
        match (inst.src[1], inst.imm) {
            (Some(b), _) => {
                let a = sized(self.general(a, RAX)?, wide);
                let b = self.general_or_memory(b, wide)?;
                let code = if wide { Code::Cmp_r64_rm64 } else { Code::Cmp_r32_rm32 };
                self.emit(code, &[R(a), b])
            }
            (None, Some(0)) if self.in_register(a) => {
                let a = sized(self.general(a, RAX)?, wide);
                let code = if wide { Code::Test_rm64_r64 } else { Code::Test_rm32_r32 };
                self.emit(code, &[R(a), R(a)])
            }
            (None, Some(imm)) => match i32::try_from(imm) {
                Ok(small) => {
                    let a = self.general_or_memory(a, wide)?;
                    let code = if wide { Code::Cmp_rm64_imm32 } else { Code::Cmp_rm32_imm32 };
                    self.emit(code, &[a, I(small)])
                }
                Err(_) => {
                    let a = g(self.general(a, RAX)?);
                    self.immediate(RDX, imm)?;
                    self.emit(Code::Cmp_r64_rm64, &[R(a), R(g(RDX))])
                }
            },
            (None, None) => Ok(()),
        }
    }

    fn immediate(&mut self, reg: u8, value: i64) -> Result<(), IcedError> {
        if value == 0 {
            let reg = R(Register::EAX + u32::from(reg));
            self.emit(Code::Xor_r32_rm32, &[reg, reg])
        } else if let Ok(small) = i32::try_from(value) {
            self.emit(Code::Mov_rm64_imm32, &[R(g(reg)), I(small)])
        } else {
            self.write(&Instruction::with2(Code::Mov_r64_imm64, g(reg), value)?)
        }
    }

    fn copy(&mut self, inst: &Inst) -> Result<(), IcedError> {
        let (Some(dst), Some(src)) = (inst.dst, inst.src[0]) else { return Ok(()) };
        if self.home(dst) == self.home(src) {
            return Ok(());
        }
        match self.class(dst) {
            Class::General => {
                let from = self.general_or_memory(src, true)?;
                match self.home(dst) {
                    Home::Slot(slot) => {
                        let from = R(g(self.general(src, RAX)?));
                        let to = M(self.on_stack(slot));
                        self.emit(Code::Mov_rm64_r64, &[to, from])
                    }
                    _ => {
                        let to = self.result(dst, inst.w);
                        self.emit(Code::Mov_r64_rm64, &[R(to), from])
                    }
                }
            }
            Class::Mask => {
                let from = self.mask(src, 0)?;
                match self.home(dst) {
                    Home::Reg(r) => self.emit(Code::VEX_Kmovw_kr_km16, &[R(k(r)), R(from)]),
                    Home::Slot(slot) => {
                        let to = M(self.on_stack(slot));
                        self.emit(Code::VEX_Kmovw_m16_kr, &[to, R(from)])
                    }
                    _ => Ok(()),
                }
            }
            Class::Vector => match (self.home(dst), self.home(src)) {
                (Home::Reg(r), Home::Pool(constant)) => self.load_constant(r, constant, inst.w),
                (Home::Reg(r), _) => {
                    let from = self.vector_or_memory(src, &table::MOVAPS, inst.w, 0)?;
                    let row = if matches!(from, R(_)) { &table::MOVAPS } else { &table::LOADPS };
                    self.emit(self.code(row, inst.w), &[R(x(r, inst.w)), from])
                }
                (Home::Slot(slot), _) => {
                    let from = self.vector(src, inst.w, 0)?;
                    let to = M(self.on_stack(slot));
                    self.emit(self.code(&table::STOREPS, inst.w), &[to, R(from)])
                }
                _ => Ok(()),
            },
        }
    }

    fn row(&mut self, inst: &Inst, row: &'static Row) -> Result<(), IcedError> {
        let (w, code) = (inst.w, self.code(row, inst.w));
        let [dw, aw, bw] = row.halves.map(|times| w.halved(times));
        let mask = match inst.mask {
            Some(v) if self.class(v) == Class::Mask => self.mask(v, 0)?,
            _ => Register::None,
        };
        let imm = inst.imm.map(|v| I(v as i32));
        let dst = inst.dst.map(|d| self.result(d, dw));
        if let (Some(d), true) = (inst.dst, inst.updates)
            && self.class(d) == Class::Vector
        {
            self.vector(d, dw, 0)?;
        }
        let [a, b, c] = inst.src;
        let mut args: Vec<Arg> = vec![];
        match row.form {
            Form::Rvm | Form::Rvmr => {
                args.extend(dst.map(R));
                let Some(mut a) = a else { return Ok(()) };
                let mut b = b;
                if let Some(other) = b
                    && row.commutes
                    && !self.in_register(a)
                    && self.in_register(other)
                {
                    (a, b) = (other, Some(a));
                }
                args.push(R(self.vector(a, aw, 1)?));
                if let Some(c) = c {
                    // Before the constant, which is for the next instruction.
                    self.vector(c, w, 0)?;
                }
                match (b, &inst.mem) {
                    (Some(b), _) => {
                        let b = self.vector_or_memory(b, row, bw, 2)?;
                        args.push(b);
                    }
                    (None, Some(mem)) => args.push(M(self.address(mem, w)?)),
                    (None, None) => {}
                }
                if let Some(c) = c {
                    let c = match self.home(c) {
                        Home::Reg(r) => r,
                        _ => self.scratch(0),
                    };
                    args.push(R(x(c, w)));
                }
            }
            Form::Rm | Form::Ri => {
                args.extend(dst.map(R));
                match (a, &inst.mem) {
                    (Some(a), _) => {
                        let plain = self.in_register(a) || row.halves == [0, 0, 0];
                        let a = if plain {
                            self.vector_or_memory(a, row, aw, 1)?
                        } else {
                            R(self.vector(a, aw, 1)?)
                        };
                        args.push(a);
                    }
                    (None, Some(mem)) => args.push(M(self.address(mem, w)?)),
                    (None, None) => {}
                }
            }
            Form::Mr => {
                let Some(a) = a else { return Ok(()) };
                match (dst, &inst.mem) {
                    (Some(dst), _) => {
                        args.push(R(dst));
                        args.push(R(self.vector(a, aw, 1)?));
                    }
                    (None, Some(mem)) => {
                        let a = self.vector(a, aw, 1)?;
                        args.extend([M(self.address(mem, w)?), R(a)]);
                    }
                    (None, None) => {}
                }
            }
            Form::Mvr => {
                let (Some(a), Some(b), Some(mem)) = (a, b, &inst.mem) else { return Ok(()) };
                let (a, b) = (self.vector(a, w, 0)?, self.vector(b, w, 1)?);
                args.extend([M(self.address(mem, w)?), R(a), R(b)]);
            }
            Form::Rg | Form::Rg64 => {
                let Some(a) = a else { return Ok(()) };
                args.extend(dst.map(R));
                args.push(R(sized(self.general(a, RDX)?, row.form == Form::Rg64)));
            }
            Form::Gr | Form::Gr64 => {
                let (Some(a), Some(d)) = (a, inst.dst) else { return Ok(()) };
                let to = match self.home(d) {
                    Home::Reg(r) => r,
                    _ => RAX,
                };
                let a = self.vector(a, w, 1)?;
                args.extend([R(sized(to, row.form == Form::Gr64)), R(a)]);
            }
            Form::Gather => {
                // The mask is used up: it is a copy.
                let (Some(dst), Some(mem)) = (dst, &inst.mem) else { return Ok(()) };
                let from = M(self.address(mem, w)?);
                args.extend([R(dst), from]);
                if !self.evex
                    && let Some(a) = a
                {
                    let lanes = self.vector(a, dw, 1)?;
                    args.push(R(lanes));
                }
            }
            Form::Scatter => {
                let (Some(a), Some(mem)) = (a, &inst.mem) else { return Ok(()) };
                let a = self.vector(a, aw, 1)?;
                args.extend([M(self.address(mem, w)?), R(a)]);
            }
        }
        args.extend(imm);
        let masked = mask != Register::None;
        self.emit_masked(code, &args, mask, masked && inst.zero)?;
        match inst.dst {
            Some(d) => self.settle(d, dw),
            None => Ok(()),
        }
    }

    fn fma(&mut self, inst: &Inst, double: bool, negated: bool) -> Result<(), IcedError> {
        let (Some(dst), [Some(mut a), Some(mut b), Some(c)]) = (inst.dst, inst.src) else {
            return Ok(());
        };
        let w = inst.w;
        let rows: [&'static Row; 3] = match (double, negated) {
            (false, false) => [&table::FMADD132PS, &table::FMADD213PS, &table::FMADD231PS],
            (true, false) => [&table::FMADD132PD, &table::FMADD213PD, &table::FMADD231PD],
            (false, true) => [&table::FNMADD132PS, &table::FNMADD213PS, &table::FNMADD231PS],
            (true, true) => [&table::FNMADD132PD, &table::FNMADD213PD, &table::FNMADD231PD],
        };
        let mask = match inst.mask {
            Some(v) => self.mask(v, 0)?,
            None => Register::None,
        };
        let d = self.result(dst, w);
        let is = |e: &Self, v: V| matches!(e.home(v), Home::Reg(r) if x(r, w) == d);
        // The factor that may come from memory is `b`.
        if !self.in_register(a) && self.in_register(b) {
            std::mem::swap(&mut a, &mut b);
        }
        if inst.updates || is(self, c) || !(is(self, a) || is(self, b)) {
            // The sum is the result's own: 231.
            if !is(self, c) {
                // Neither factor is in that register.
                match self.home(c) {
                    Home::Reg(r) => {
                        let from = R(x(r, w));
                        self.emit(self.code(&table::MOVAPS, w), &[R(d), from])?;
                    }
                    Home::Slot(slot) => {
                        let from = M(self.on_stack(slot));
                        self.emit(self.code(&table::LOADPS, w), &[R(d), from])?;
                    }
                    Home::Pool(constant) => {
                        let to = match self.home(dst) {
                            Home::Reg(r) => r,
                            _ => self.scratch(0),
                        };
                        self.load_constant(to, constant, w)?;
                    }
                    Home::Nowhere => {}
                }
            }
            let a = self.vector(a, w, 1)?;
            let b = self.vector_or_memory(b, rows[2], w, 2)?;
            self.emit_masked(self.code(rows[2], w), &[R(d), R(a), b], mask, false)?;
        } else {
            if !is(self, a) {
                std::mem::swap(&mut a, &mut b);
            }
            if self.in_register(b) {
                let b = self.vector(b, w, 1)?;
                let c = self.vector_or_memory(c, rows[1], w, 2)?;
                self.emit(self.code(rows[1], w), &[R(d), R(b), c])?;
            } else {
                let c = self.vector(c, w, 1)?;
                let b = self.vector_or_memory(b, rows[0], w, 2)?;
                self.emit(self.code(rows[0], w), &[R(d), R(c), b])?;
            }
        }
        self.settle(dst, w)
    }

    fn mask_op(&mut self, inst: &Inst) -> Result<(), IcedError> {
        let Some(dst) = inst.dst else { return Ok(()) };
        let [a, b, _] = inst.src;
        let Some(a) = a else { return Ok(()) };
        if matches!(inst.op, Op::KFromGeneral) {
            let from = sized(self.general(a, RDX)?, false);
            let to = self.result(dst, inst.w);
            self.emit(Code::VEX_Kmovw_kr_r32, &[R(to), R(from)])?;
            return self.settle(dst, inst.w);
        }
        let a = self.mask(a, 0)?;
        if matches!(inst.op, Op::KToGeneral) {
            let to = match self.home(dst) {
                Home::Reg(r) => r,
                _ => RAX,
            };
            self.emit(Code::VEX_Kmovw_r32_kr, &[R(sized(to, false)), R(a)])?;
            return self.settle(dst, inst.w);
        }
        let b = match b {
            Some(b) => self.mask(b, 1)?,
            None => a,
        };
        let to = self.result(dst, inst.w);
        match inst.op {
            Op::KNot => self.emit(Code::VEX_Knotw_kr_kr, &[R(to), R(a)])?,
            Op::KShiftRight => {
                let by = I(inst.imm.unwrap_or(0) as i32);
                self.emit(Code::VEX_Kshiftrw_kr_kr_imm8, &[R(to), R(a), by])?;
            }
            Op::KJoin => self.emit(Code::VEX_Kunpckbw_kr_kr_kr, &[R(to), R(b), R(a)])?,
            op => {
                let code = match op {
                    Op::KAnd => Code::VEX_Kandw_kr_kr_kr,
                    Op::KOr => Code::VEX_Korw_kr_kr_kr,
                    Op::KAndNot => Code::VEX_Kandnw_kr_kr_kr,
                    _ => Code::VEX_Kxorw_kr_kr_kr,
                };
                self.emit(code, &[R(to), R(a), R(b)])?;
            }
        }
        self.settle(dst, inst.w)
    }
}

fn plain_code(op: Op, wide: bool) -> Code {
    let pick = |narrow: Code, broad: Code| if wide { broad } else { narrow };
    match op {
        Op::Add => pick(Code::Add_r32_rm32, Code::Add_r64_rm64),
        Op::Sub => pick(Code::Sub_r32_rm32, Code::Sub_r64_rm64),
        Op::Mul => pick(Code::Imul_r32_rm32, Code::Imul_r64_rm64),
        Op::And => pick(Code::And_r32_rm32, Code::And_r64_rm64),
        Op::Or => pick(Code::Or_r32_rm32, Code::Or_r64_rm64),
        _ => pick(Code::Xor_r32_rm32, Code::Xor_r64_rm64),
    }
}

/// A general register.
fn g(reg: u8) -> Register {
    Register::RAX + u32::from(reg)
}

fn sized(reg: u8, wide: bool) -> Register {
    if wide { g(reg) } else { Register::EAX + u32::from(reg) }
}

/// The low byte of a general register.
fn byte(reg: u8) -> Register {
    match reg {
        0..=3 => Register::AL + u32::from(reg),
        // Those that need a REX prefix to be named.
        _ => Register::SPL + u32::from(reg - 4),
    }
}

fn x(reg: u8, w: W) -> Register {
    let first = match w {
        W::W128 => Register::XMM0,
        W::W256 => Register::YMM0,
        W::W512 => Register::ZMM0,
    };
    first + u32::from(reg)
}

fn k(reg: u8) -> Register {
    Register::K0 + u32::from(reg)
}
