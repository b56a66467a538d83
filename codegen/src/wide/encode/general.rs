//! Instructions on general registers: addresses, counters, integers one at a time.

use super::*;

impl Encode<'_> {
    pub(super) fn general_op(&mut self, inst: &Inst) -> Result<(), IcedError> {
        let wide = inst.wide;
        let pick = |narrow: Code, broad: Code| if wide { broad } else { narrow };
        let [a, b, c] = inst.src;
        let to = match inst.dst.map(|d| self.home(d)) {
            Some(Home::Reg(r)) => r,
            _ => RAX,
        };
        let reg = R(sized(to, wide));
        match inst.op {
            Op::Imm => self.immediate(to, inst.imm.unwrap_or(0))?,
            Op::Add | Op::Sub | Op::Mul | Op::And | Op::Or | Op::Xor => {
                self.two_operands(inst, to)?;
            }
            Op::Shl | Op::Sar | Op::Shr => match (a, b, inst.imm) {
                (Some(a), Some(b), _) => {
                    let by = self.general(b, RDX)?;
                    let a = sized(self.general(a, RAX)?, wide);
                    let code = match inst.op {
                        Op::Shl => pick(Code::VEX_Shlx_r32_rm32_r32, Code::VEX_Shlx_r64_rm64_r64),
                        Op::Sar => pick(Code::VEX_Sarx_r32_rm32_r32, Code::VEX_Sarx_r64_rm64_r64),
                        _ => pick(Code::VEX_Shrx_r32_rm32_r32, Code::VEX_Shrx_r64_rm64_r64),
                    };
                    self.emit(code, &[reg, R(a), R(sized(by, wide))])?;
                }
                (Some(a), None, Some(by)) => {
                    self.move_to(to, a, wide)?;
                    let code = match inst.op {
                        Op::Shl => pick(Code::Shl_rm32_imm8, Code::Shl_rm64_imm8),
                        Op::Sar => pick(Code::Sar_rm32_imm8, Code::Sar_rm64_imm8),
                        _ => pick(Code::Shr_rm32_imm8, Code::Shr_rm64_imm8),
                    };
                    self.emit(code, &[reg, I((by & if wide { 63 } else { 31 }) as i32)])?;
                }
                _ => {}
            },
            Op::Neg => {
                if let Some(a) = a {
                    self.move_to(to, a, wide)?;
                }
                self.emit(pick(Code::Neg_rm32, Code::Neg_rm64), &[reg])?;
            }
            Op::Extend => {
                if let Some(a) = a {
                    let from = self.general_or_memory(a, false)?;
                    self.emit(Code::Movsxd_r64_rm32, &[R(g(to)), from])?;
                }
            }
            Op::Div | Op::Rem => {
                if let (Some(a), Some(b)) = (a, b) {
                    self.move_to(RAX, a, wide)?;
                    let by = match self.home(b) {
                        Home::Slot(slot) => M(self.on_stack(slot)),
                        _ => R(sized(self.general(b, RDX)?, wide)),
                    };
                    self.emit(pick(Code::Cdq, Code::Cqo), &[])?;
                    self.emit(pick(Code::Idiv_rm32, Code::Idiv_rm64), &[by])?;
                }
                let from = if matches!(inst.op, Op::Div) { RAX } else { RDX };
                if from != to {
                    self.emit(Code::Mov_r64_rm64, &[R(g(to)), R(g(from))])?;
                }
            }
            Op::Set(cc) => {
                self.compare(inst)?;
                let code = match cc {
                    Cc::Eq => Code::Sete_rm8,
                    Cc::Ne => Code::Setne_rm8,
                    Cc::Lt => Code::Setl_rm8,
                    Cc::Le => Code::Setle_rm8,
                    Cc::Gt => Code::Setg_rm8,
                    Cc::Ge => Code::Setge_rm8,
                };
                self.emit(code, &[R(Register::DL)])?;
                let reg = sized(to, false);
                self.emit(Code::Movzx_r32_rm8, &[R(reg), R(Register::DL)])?;
            }
            Op::Choose => {
                if let (Some(a), Some(b), Some(c)) = (a, b, c) {
                    self.move_to(RAX, b, true)?;
                    let c = self.general(c, RDX)?;
                    let low = R(sized(c, false));
                    self.emit(Code::Test_rm32_r32, &[low, low])?;
                    let a = self.general_or_memory(a, true)?;
                    self.emit(Code::Cmovne_r64_rm64, &[R(g(RAX)), a])?;
                    if to != RAX {
                        self.emit(Code::Mov_r64_rm64, &[R(g(to)), R(g(RAX))])?;
                    }
                }
            }
            Op::ToFloat { double } => {
                let (Some(a), Some(dst)) = (a, inst.dst) else { return Ok(()) };
                // The upper lanes come from a register without a history.
                let to = self.result(dst, W::W128);
                let zero = if self.evex {
                    Code::EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32
                } else {
                    Code::VEX_Vpxor_xmm_xmm_xmmm128
                };
                self.emit(zero, &[R(to), R(to), R(to)])?;
                let from = self.general_or_memory(a, true)?;
                let code = match (self.evex, double) {
                    (false, false) => Code::VEX_Vcvtsi2ss_xmm_xmm_rm64,
                    (false, true) => Code::VEX_Vcvtsi2sd_xmm_xmm_rm64,
                    (true, false) => Code::EVEX_Vcvtsi2ss_xmm_xmm_rm64_er,
                    (true, true) => Code::EVEX_Vcvtsi2sd_xmm_xmm_rm64_er,
                };
                self.emit(code, &[R(to), R(to), from])?;
            }
            Op::FromFloat { double } => {
                let Some(a) = a else { return Ok(()) };
                let from = self.vector(a, W::W128, 1)?;
                let code = match (self.evex, double) {
                    (false, false) => Code::VEX_Vcvttss2si_r64_xmmm32,
                    (false, true) => Code::VEX_Vcvttsd2si_r64_xmmm64,
                    (true, false) => Code::EVEX_Vcvttss2si_r64_xmmm32_sae,
                    (true, true) => Code::EVEX_Vcvttsd2si_r64_xmmm64_sae,
                };
                self.emit(code, &[R(g(to)), R(from)])?;
            }
            Op::LowBits => {
                if let Some(a) = a {
                    let count = self.general(a, RDX)?;
                    self.immediate(RAX, -1)?;
                    let args = [R(sized(to, false)), R(sized(RAX, false)), R(sized(count, false))];
                    self.emit(Code::VEX_Bzhi_r32_rm32_r32, &args)?;
                }
            }
            Op::Spread => {
                if let Some(a) = a {
                    let bits = self.general(a, RDX)?;
                    self.immediate(RAX, 0x5555_5555)?;
                    let args = [R(sized(to, false)), R(sized(bits, false)), R(sized(RAX, false))];
                    self.emit(Code::VEX_Pdep_r32_r32_rm32, &args)?;
                }
            }
            Op::Lea => {
                if let Some(mem) = &inst.mem {
                    let from = self.address(mem, W::W128)?;
                    self.emit(Code::Lea_r64_m, &[R(g(to)), M(from)])?;
                }
            }
            Op::Prefetch => {
                if let Some(mem) = &inst.mem {
                    let at = self.address(mem, W::W128)?;
                    self.emit(Code::Prefetcht0_m8, &[M(at)])?;
                }
            }
            Op::LoadGeneral(cell) => {
                if let Some(mem) = &inst.mem {
                    let from = M(self.address(mem, W::W128)?);
                    let (code, wide) = match cell {
                        Cell::I8 => (Code::Movsx_r32_rm8, false),
                        Cell::U8 => (Code::Movzx_r32_rm8, false),
                        Cell::U16 => (Code::Movzx_r32_rm16, false),
                        Cell::I32 => (Code::Mov_r32_rm32, false),
                        Cell::I64 => (Code::Mov_r64_rm64, true),
                    };
                    self.emit(code, &[R(sized(to, wide)), from])?;
                }
            }
            Op::StoreGeneral(cell) => {
                let (Some(mem), Some(a)) = (&inst.mem, a) else { return Ok(()) };
                let mut place = self.address(mem, W::W128)?;
                let from = match self.home(a) {
                    Home::Reg(r) => r,
                    _ => {
                        // Both scratch registers may be in the address.
                        self.emit(Code::Lea_r64_m, &[R(g(RAX)), M(place)])?;
                        place = MemoryOperand::with_base(g(RAX));
                        self.general(a, RDX)?
                    }
                };
                let (code, from) = match cell {
                    Cell::I8 | Cell::U8 => (Code::Mov_rm8_r8, byte(from)),
                    Cell::U16 => (Code::Mov_rm16_r16, Register::AX + u32::from(from)),
                    Cell::I32 => (Code::Mov_rm32_r32, sized(from, false)),
                    Cell::I64 => (Code::Mov_rm64_r64, g(from)),
                };
                return self.emit(code, &[M(place), R(from)]);
            }
            op => unreachable!("{op:?} is no operation on general registers"),
        }
        match inst.dst {
            Some(d) => self.settle(d, W::W128),
            None => Ok(()),
        }
    }

    fn move_to(&mut self, to: u8, from: V, wide: bool) -> Result<(), IcedError> {
        let code = if wide { Code::Mov_r64_rm64 } else { Code::Mov_r32_rm32 };
        match self.home(from) {
            Home::Reg(r) if r == to => Ok(()),
            Home::Reg(r) => self.emit(code, &[R(sized(to, wide)), R(sized(r, wide))]),
            Home::Slot(slot) => {
                let from = M(self.on_stack(slot));
                self.emit(code, &[R(sized(to, wide)), from])
            }
            _ => Ok(()),
        }
    }

    fn two_operands(&mut self, inst: &Inst, to: u8) -> Result<(), IcedError> {
        let wide = inst.wide;
        let pick = |narrow: Code, broad: Code| if wide { broad } else { narrow };
        let [Some(a), b, _] = inst.src else { return Ok(()) };
        let Some(b) = b else {
            let imm = inst.imm.unwrap_or(0);
            let Ok(small) = i32::try_from(imm) else {
                self.immediate(RDX, imm)?;
                self.move_to(to, a, wide)?;
                let code = plain_code(inst.op, wide);
                return self.emit(code, &[R(sized(to, wide)), R(sized(RDX, wide))]);
            };
            match (inst.op, self.home(a)) {
                (Op::Add, Home::Reg(r)) if wide && r != to => {
                    let from = MemoryOperand::with_base_displ(g(r), imm);
                    return self.emit(Code::Lea_r64_m, &[R(g(to)), M(from)]);
                }
                (Op::Mul, _) => {
                    let a = self.general_or_memory(a, wide)?;
                    let code = pick(Code::Imul_r32_rm32_imm32, Code::Imul_r64_rm64_imm32);
                    return self.emit(code, &[R(sized(to, wide)), a, I(small)]);
                }
                _ => {}
            }
            self.move_to(to, a, wide)?;
            let code = match inst.op {
                Op::Add => pick(Code::Add_rm32_imm32, Code::Add_rm64_imm32),
                Op::Sub => pick(Code::Sub_rm32_imm32, Code::Sub_rm64_imm32),
                Op::And => pick(Code::And_rm32_imm32, Code::And_rm64_imm32),
                Op::Or => pick(Code::Or_rm32_imm32, Code::Or_rm64_imm32),
                _ => pick(Code::Xor_rm32_imm32, Code::Xor_rm64_imm32),
            };
            return self.emit(code, &[R(sized(to, wide)), I(small)]);
        };
        let code = plain_code(inst.op, wide);
        let clash = self.home(b) == Home::Reg(to) && self.home(a) != Home::Reg(to);
        if clash && !matches!(inst.op, Op::Sub) {
            let a = self.general_or_memory(a, wide)?;
            return self.emit(code, &[R(sized(to, wide)), a]);
        }
        if clash {
            self.move_to(RDX, a, wide)?;
            self.emit(code, &[R(sized(RDX, wide)), R(sized(to, wide))])?;
            return self.emit(Code::Mov_r64_rm64, &[R(g(to)), R(g(RDX))]);
        }
        if let (Op::Add, true, Home::Reg(x), Home::Reg(y)) =
            (inst.op, wide, self.home(a), self.home(b))
            && x != to
        {
            let from = MemoryOperand::with_base_index(g(x), g(y));
            return self.emit(Code::Lea_r64_m, &[R(g(to)), M(from)]);
        }
        self.move_to(to, a, wide)?;
        let b = self.general_or_memory(b, wide)?;
        self.emit(code, &[R(sized(to, wide)), b])
    }
}
