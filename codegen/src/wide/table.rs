//! The vector instructions the emitter uses, for every vector width.

use iced_x86::Code;

/// Where the operands of an instruction are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Result, operand, operand in a register or memory; maybe an immediate.
    Rvm,
    /// Result, operand in a register or memory; maybe an immediate.
    Rm,
    /// As `Rm`, but from memory with AVX-512 only.
    Ri,
    /// As `Rvm`, and a third operand in a register.
    Rvmr,
    /// Result in a register or memory, operand.
    Mr,
    /// Memory, mask, operand.
    Mvr,
    /// A vector from a general register of 32 bits, or of 64.
    Rg,
    Rg64,
    /// A general register of 32 bits, or of 64, from a vector.
    Gr,
    Gr64,
    Gather,
    Scatter,
}

/// One instruction.
#[derive(Debug)]
pub(super) struct Row {
    pub name: &'static str,
    pub form: Form,
    /// Bytes of the element that is repeated when the memory operand is a single
    /// one (AVX-512); 0 if that cannot be.
    pub broadcast: u8,
    pub commutes: bool,
    /// How often result and operands are narrower than the width asked for, by
    /// half each time, down to 128 bits.
    pub halves: [u8; 3],
    /// VEX of 128 and 256 bits, EVEX of 128, 256 and 512.
    pub codes: [Code; 5],
}

macro_rules! rows {
    ($($(#[$doc:meta])* $name:ident = $form:ident, $broadcast:literal, $commutes:literal,
       $halves:expr, [$($code:ident),*];)*) => {
        $($(#[$doc])* pub(super) static $name: Row = Row {
            name: stringify!($name),
            form: Form::$form,
            broadcast: $broadcast,
            commutes: $commutes,
            halves: $halves,
            codes: [$(Code::$code),*],
        };)*
    };
}

#[rustfmt::skip]
rows! {
    ADDPS = Rvm, 4, true, [0, 0, 0], [VEX_Vaddps_xmm_xmm_xmmm128, VEX_Vaddps_ymm_ymm_ymmm256, EVEX_Vaddps_xmm_k1z_xmm_xmmm128b32, EVEX_Vaddps_ymm_k1z_ymm_ymmm256b32, EVEX_Vaddps_zmm_k1z_zmm_zmmm512b32_er];
    ADDPD = Rvm, 8, true, [0, 0, 0], [VEX_Vaddpd_xmm_xmm_xmmm128, VEX_Vaddpd_ymm_ymm_ymmm256, EVEX_Vaddpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vaddpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vaddpd_zmm_k1z_zmm_zmmm512b64_er];
    SUBPS = Rvm, 4, false, [0, 0, 0], [VEX_Vsubps_xmm_xmm_xmmm128, VEX_Vsubps_ymm_ymm_ymmm256, EVEX_Vsubps_xmm_k1z_xmm_xmmm128b32, EVEX_Vsubps_ymm_k1z_ymm_ymmm256b32, EVEX_Vsubps_zmm_k1z_zmm_zmmm512b32_er];
    SUBPD = Rvm, 8, false, [0, 0, 0], [VEX_Vsubpd_xmm_xmm_xmmm128, VEX_Vsubpd_ymm_ymm_ymmm256, EVEX_Vsubpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vsubpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vsubpd_zmm_k1z_zmm_zmmm512b64_er];
    MULPS = Rvm, 4, true, [0, 0, 0], [VEX_Vmulps_xmm_xmm_xmmm128, VEX_Vmulps_ymm_ymm_ymmm256, EVEX_Vmulps_xmm_k1z_xmm_xmmm128b32, EVEX_Vmulps_ymm_k1z_ymm_ymmm256b32, EVEX_Vmulps_zmm_k1z_zmm_zmmm512b32_er];
    MULPD = Rvm, 8, true, [0, 0, 0], [VEX_Vmulpd_xmm_xmm_xmmm128, VEX_Vmulpd_ymm_ymm_ymmm256, EVEX_Vmulpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vmulpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vmulpd_zmm_k1z_zmm_zmmm512b64_er];
    SCALEFPS = Rvm, 4, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vscalefps_xmm_k1z_xmm_xmmm128b32, EVEX_Vscalefps_ymm_k1z_ymm_ymmm256b32, EVEX_Vscalefps_zmm_k1z_zmm_zmmm512b32_er];
    SCALEFPD = Rvm, 8, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vscalefpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vscalefpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vscalefpd_zmm_k1z_zmm_zmmm512b64_er];
    DIVPS = Rvm, 4, false, [0, 0, 0], [VEX_Vdivps_xmm_xmm_xmmm128, VEX_Vdivps_ymm_ymm_ymmm256, EVEX_Vdivps_xmm_k1z_xmm_xmmm128b32, EVEX_Vdivps_ymm_k1z_ymm_ymmm256b32, EVEX_Vdivps_zmm_k1z_zmm_zmmm512b32_er];
    DIVPD = Rvm, 8, false, [0, 0, 0], [VEX_Vdivpd_xmm_xmm_xmmm128, VEX_Vdivpd_ymm_ymm_ymmm256, EVEX_Vdivpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vdivpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vdivpd_zmm_k1z_zmm_zmmm512b64_er];
    MINPS = Rvm, 4, false, [0, 0, 0], [VEX_Vminps_xmm_xmm_xmmm128, VEX_Vminps_ymm_ymm_ymmm256, EVEX_Vminps_xmm_k1z_xmm_xmmm128b32, EVEX_Vminps_ymm_k1z_ymm_ymmm256b32, EVEX_Vminps_zmm_k1z_zmm_zmmm512b32_sae];
    MINPD = Rvm, 8, false, [0, 0, 0], [VEX_Vminpd_xmm_xmm_xmmm128, VEX_Vminpd_ymm_ymm_ymmm256, EVEX_Vminpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vminpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vminpd_zmm_k1z_zmm_zmmm512b64_sae];
    MAXPS = Rvm, 4, false, [0, 0, 0], [VEX_Vmaxps_xmm_xmm_xmmm128, VEX_Vmaxps_ymm_ymm_ymmm256, EVEX_Vmaxps_xmm_k1z_xmm_xmmm128b32, EVEX_Vmaxps_ymm_k1z_ymm_ymmm256b32, EVEX_Vmaxps_zmm_k1z_zmm_zmmm512b32_sae];
    MAXPD = Rvm, 8, false, [0, 0, 0], [VEX_Vmaxpd_xmm_xmm_xmmm128, VEX_Vmaxpd_ymm_ymm_ymmm256, EVEX_Vmaxpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vmaxpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vmaxpd_zmm_k1z_zmm_zmmm512b64_sae];
    ANDPS = Rvm, 4, true, [0, 0, 0], [VEX_Vandps_xmm_xmm_xmmm128, VEX_Vandps_ymm_ymm_ymmm256, EVEX_Vandps_xmm_k1z_xmm_xmmm128b32, EVEX_Vandps_ymm_k1z_ymm_ymmm256b32, EVEX_Vandps_zmm_k1z_zmm_zmmm512b32];
    PAND = Rvm, 4, true, [0, 0, 0], [VEX_Vpand_xmm_xmm_xmmm128, VEX_Vpand_ymm_ymm_ymmm256, EVEX_Vpandd_xmm_k1z_xmm_xmmm128b32, EVEX_Vpandd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpandd_zmm_k1z_zmm_zmmm512b32];
    ORPS = Rvm, 4, true, [0, 0, 0], [VEX_Vorps_xmm_xmm_xmmm128, VEX_Vorps_ymm_ymm_ymmm256, EVEX_Vorps_xmm_k1z_xmm_xmmm128b32, EVEX_Vorps_ymm_k1z_ymm_ymmm256b32, EVEX_Vorps_zmm_k1z_zmm_zmmm512b32];
    POR = Rvm, 4, true, [0, 0, 0], [VEX_Vpor_xmm_xmm_xmmm128, VEX_Vpor_ymm_ymm_ymmm256, EVEX_Vpord_xmm_k1z_xmm_xmmm128b32, EVEX_Vpord_ymm_k1z_ymm_ymmm256b32, EVEX_Vpord_zmm_k1z_zmm_zmmm512b32];
    XORPS = Rvm, 4, true, [0, 0, 0], [VEX_Vxorps_xmm_xmm_xmmm128, VEX_Vxorps_ymm_ymm_ymmm256, EVEX_Vxorps_xmm_k1z_xmm_xmmm128b32, EVEX_Vxorps_ymm_k1z_ymm_ymmm256b32, EVEX_Vxorps_zmm_k1z_zmm_zmmm512b32];
    PXOR = Rvm, 4, true, [0, 0, 0], [VEX_Vpxor_xmm_xmm_xmmm128, VEX_Vpxor_ymm_ymm_ymmm256, EVEX_Vpxord_xmm_k1z_xmm_xmmm128b32, EVEX_Vpxord_ymm_k1z_ymm_ymmm256b32, EVEX_Vpxord_zmm_k1z_zmm_zmmm512b32];
    XORPD = Rvm, 8, true, [0, 0, 0], [VEX_Vxorpd_xmm_xmm_xmmm128, VEX_Vxorpd_ymm_ymm_ymmm256, EVEX_Vxorpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vxorpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vxorpd_zmm_k1z_zmm_zmmm512b64];
    ANDPD = Rvm, 8, true, [0, 0, 0], [VEX_Vandpd_xmm_xmm_xmmm128, VEX_Vandpd_ymm_ymm_ymmm256, EVEX_Vandpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vandpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vandpd_zmm_k1z_zmm_zmmm512b64];
    FMADD132PS = Rvm, 4, false, [0, 0, 0], [VEX_Vfmadd132ps_xmm_xmm_xmmm128, VEX_Vfmadd132ps_ymm_ymm_ymmm256, EVEX_Vfmadd132ps_xmm_k1z_xmm_xmmm128b32, EVEX_Vfmadd132ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfmadd132ps_zmm_k1z_zmm_zmmm512b32_er];
    FMADD213PS = Rvm, 4, false, [0, 0, 0], [VEX_Vfmadd213ps_xmm_xmm_xmmm128, VEX_Vfmadd213ps_ymm_ymm_ymmm256, EVEX_Vfmadd213ps_xmm_k1z_xmm_xmmm128b32, EVEX_Vfmadd213ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfmadd213ps_zmm_k1z_zmm_zmmm512b32_er];
    FMADD231PS = Rvm, 4, false, [0, 0, 0], [VEX_Vfmadd231ps_xmm_xmm_xmmm128, VEX_Vfmadd231ps_ymm_ymm_ymmm256, EVEX_Vfmadd231ps_xmm_k1z_xmm_xmmm128b32, EVEX_Vfmadd231ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfmadd231ps_zmm_k1z_zmm_zmmm512b32_er];
    FNMADD132PS = Rvm, 4, false, [0, 0, 0], [VEX_Vfnmadd132ps_xmm_xmm_xmmm128, VEX_Vfnmadd132ps_ymm_ymm_ymmm256, EVEX_Vfnmadd132ps_xmm_k1z_xmm_xmmm128b32, EVEX_Vfnmadd132ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfnmadd132ps_zmm_k1z_zmm_zmmm512b32_er];
    FNMADD213PS = Rvm, 4, false, [0, 0, 0], [VEX_Vfnmadd213ps_xmm_xmm_xmmm128, VEX_Vfnmadd213ps_ymm_ymm_ymmm256, EVEX_Vfnmadd213ps_xmm_k1z_xmm_xmmm128b32, EVEX_Vfnmadd213ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfnmadd213ps_zmm_k1z_zmm_zmmm512b32_er];
    FNMADD231PS = Rvm, 4, false, [0, 0, 0], [VEX_Vfnmadd231ps_xmm_xmm_xmmm128, VEX_Vfnmadd231ps_ymm_ymm_ymmm256, EVEX_Vfnmadd231ps_xmm_k1z_xmm_xmmm128b32, EVEX_Vfnmadd231ps_ymm_k1z_ymm_ymmm256b32, EVEX_Vfnmadd231ps_zmm_k1z_zmm_zmmm512b32_er];
    SQRTPS = Rm, 4, false, [0, 0, 0], [VEX_Vsqrtps_xmm_xmmm128, VEX_Vsqrtps_ymm_ymmm256, EVEX_Vsqrtps_xmm_k1z_xmmm128b32, EVEX_Vsqrtps_ymm_k1z_ymmm256b32, EVEX_Vsqrtps_zmm_k1z_zmmm512b32_er];
    ROUNDPS = Rm, 4, false, [0, 0, 0], [VEX_Vroundps_xmm_xmmm128_imm8, VEX_Vroundps_ymm_ymmm256_imm8, EVEX_Vrndscaleps_xmm_k1z_xmmm128b32_imm8, EVEX_Vrndscaleps_ymm_k1z_ymmm256b32_imm8, EVEX_Vrndscaleps_zmm_k1z_zmmm512b32_imm8_sae];
    CMPPS = Rvm, 4, false, [0, 0, 0], [VEX_Vcmpps_xmm_xmm_xmmm128_imm8, VEX_Vcmpps_ymm_ymm_ymmm256_imm8, INVALID, INVALID, INVALID];
    CMPPS_K = Rvm, 4, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vcmpps_kr_k1_xmm_xmmm128b32_imm8, EVEX_Vcmpps_kr_k1_ymm_ymmm256b32_imm8, EVEX_Vcmpps_kr_k1_zmm_zmmm512b32_imm8_sae];
    BLENDVPS = Rvmr, 4, false, [0, 0, 0], [VEX_Vblendvps_xmm_xmm_xmmm128_xmm, VEX_Vblendvps_ymm_ymm_ymmm256_ymm, INVALID, INVALID, INVALID];
    BLENDMPS = Rvm, 4, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vblendmps_xmm_k1z_xmm_xmmm128b32, EVEX_Vblendmps_ymm_k1z_ymm_ymmm256b32, EVEX_Vblendmps_zmm_k1z_zmm_zmmm512b32];
    FMADD132PD = Rvm, 8, false, [0, 0, 0], [VEX_Vfmadd132pd_xmm_xmm_xmmm128, VEX_Vfmadd132pd_ymm_ymm_ymmm256, EVEX_Vfmadd132pd_xmm_k1z_xmm_xmmm128b64, EVEX_Vfmadd132pd_ymm_k1z_ymm_ymmm256b64, EVEX_Vfmadd132pd_zmm_k1z_zmm_zmmm512b64_er];
    FMADD213PD = Rvm, 8, false, [0, 0, 0], [VEX_Vfmadd213pd_xmm_xmm_xmmm128, VEX_Vfmadd213pd_ymm_ymm_ymmm256, EVEX_Vfmadd213pd_xmm_k1z_xmm_xmmm128b64, EVEX_Vfmadd213pd_ymm_k1z_ymm_ymmm256b64, EVEX_Vfmadd213pd_zmm_k1z_zmm_zmmm512b64_er];
    FMADD231PD = Rvm, 8, false, [0, 0, 0], [VEX_Vfmadd231pd_xmm_xmm_xmmm128, VEX_Vfmadd231pd_ymm_ymm_ymmm256, EVEX_Vfmadd231pd_xmm_k1z_xmm_xmmm128b64, EVEX_Vfmadd231pd_ymm_k1z_ymm_ymmm256b64, EVEX_Vfmadd231pd_zmm_k1z_zmm_zmmm512b64_er];
    FNMADD132PD = Rvm, 8, false, [0, 0, 0], [VEX_Vfnmadd132pd_xmm_xmm_xmmm128, VEX_Vfnmadd132pd_ymm_ymm_ymmm256, EVEX_Vfnmadd132pd_xmm_k1z_xmm_xmmm128b64, EVEX_Vfnmadd132pd_ymm_k1z_ymm_ymmm256b64, EVEX_Vfnmadd132pd_zmm_k1z_zmm_zmmm512b64_er];
    FNMADD213PD = Rvm, 8, false, [0, 0, 0], [VEX_Vfnmadd213pd_xmm_xmm_xmmm128, VEX_Vfnmadd213pd_ymm_ymm_ymmm256, EVEX_Vfnmadd213pd_xmm_k1z_xmm_xmmm128b64, EVEX_Vfnmadd213pd_ymm_k1z_ymm_ymmm256b64, EVEX_Vfnmadd213pd_zmm_k1z_zmm_zmmm512b64_er];
    FNMADD231PD = Rvm, 8, false, [0, 0, 0], [VEX_Vfnmadd231pd_xmm_xmm_xmmm128, VEX_Vfnmadd231pd_ymm_ymm_ymmm256, EVEX_Vfnmadd231pd_xmm_k1z_xmm_xmmm128b64, EVEX_Vfnmadd231pd_ymm_k1z_ymm_ymmm256b64, EVEX_Vfnmadd231pd_zmm_k1z_zmm_zmmm512b64_er];
    SQRTPD = Rm, 8, false, [0, 0, 0], [VEX_Vsqrtpd_xmm_xmmm128, VEX_Vsqrtpd_ymm_ymmm256, EVEX_Vsqrtpd_xmm_k1z_xmmm128b64, EVEX_Vsqrtpd_ymm_k1z_ymmm256b64, EVEX_Vsqrtpd_zmm_k1z_zmmm512b64_er];
    ROUNDPD = Rm, 8, false, [0, 0, 0], [VEX_Vroundpd_xmm_xmmm128_imm8, VEX_Vroundpd_ymm_ymmm256_imm8, EVEX_Vrndscalepd_xmm_k1z_xmmm128b64_imm8, EVEX_Vrndscalepd_ymm_k1z_ymmm256b64_imm8, EVEX_Vrndscalepd_zmm_k1z_zmmm512b64_imm8_sae];
    CMPPD = Rvm, 8, false, [0, 0, 0], [VEX_Vcmppd_xmm_xmm_xmmm128_imm8, VEX_Vcmppd_ymm_ymm_ymmm256_imm8, INVALID, INVALID, INVALID];
    CMPPD_K = Rvm, 8, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vcmppd_kr_k1_xmm_xmmm128b64_imm8, EVEX_Vcmppd_kr_k1_ymm_ymmm256b64_imm8, EVEX_Vcmppd_kr_k1_zmm_zmmm512b64_imm8_sae];
    BLENDVPD = Rvmr, 8, false, [0, 0, 0], [VEX_Vblendvpd_xmm_xmm_xmmm128_xmm, VEX_Vblendvpd_ymm_ymm_ymmm256_ymm, INVALID, INVALID, INVALID];
    BLENDMPD = Rvm, 8, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vblendmpd_xmm_k1z_xmm_xmmm128b64, EVEX_Vblendmpd_ymm_k1z_ymm_ymmm256b64, EVEX_Vblendmpd_zmm_k1z_zmm_zmmm512b64];
    PADDD = Rvm, 4, true, [0, 0, 0], [VEX_Vpaddd_xmm_xmm_xmmm128, VEX_Vpaddd_ymm_ymm_ymmm256, EVEX_Vpaddd_xmm_k1z_xmm_xmmm128b32, EVEX_Vpaddd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpaddd_zmm_k1z_zmm_zmmm512b32];
    PADDQ = Rvm, 8, true, [0, 0, 0], [VEX_Vpaddq_xmm_xmm_xmmm128, VEX_Vpaddq_ymm_ymm_ymmm256, EVEX_Vpaddq_xmm_k1z_xmm_xmmm128b64, EVEX_Vpaddq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpaddq_zmm_k1z_zmm_zmmm512b64];
    PSUBD = Rvm, 4, false, [0, 0, 0], [VEX_Vpsubd_xmm_xmm_xmmm128, VEX_Vpsubd_ymm_ymm_ymmm256, EVEX_Vpsubd_xmm_k1z_xmm_xmmm128b32, EVEX_Vpsubd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpsubd_zmm_k1z_zmm_zmmm512b32];
    PSUBQ = Rvm, 8, false, [0, 0, 0], [VEX_Vpsubq_xmm_xmm_xmmm128, VEX_Vpsubq_ymm_ymm_ymmm256, EVEX_Vpsubq_xmm_k1z_xmm_xmmm128b64, EVEX_Vpsubq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpsubq_zmm_k1z_zmm_zmmm512b64];
    PMULLD = Rvm, 4, true, [0, 0, 0], [VEX_Vpmulld_xmm_xmm_xmmm128, VEX_Vpmulld_ymm_ymm_ymmm256, EVEX_Vpmulld_xmm_k1z_xmm_xmmm128b32, EVEX_Vpmulld_ymm_k1z_ymm_ymmm256b32, EVEX_Vpmulld_zmm_k1z_zmm_zmmm512b32];
    PMINSD = Rvm, 4, true, [0, 0, 0], [VEX_Vpminsd_xmm_xmm_xmmm128, VEX_Vpminsd_ymm_ymm_ymmm256, EVEX_Vpminsd_xmm_k1z_xmm_xmmm128b32, EVEX_Vpminsd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpminsd_zmm_k1z_zmm_zmmm512b32];
    PMAXSD = Rvm, 4, true, [0, 0, 0], [VEX_Vpmaxsd_xmm_xmm_xmmm128, VEX_Vpmaxsd_ymm_ymm_ymmm256, EVEX_Vpmaxsd_xmm_k1z_xmm_xmmm128b32, EVEX_Vpmaxsd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpmaxsd_zmm_k1z_zmm_zmmm512b32];
    PMULUDQ = Rvm, 8, true, [0, 0, 0], [VEX_Vpmuludq_xmm_xmm_xmmm128, VEX_Vpmuludq_ymm_ymm_ymmm256, EVEX_Vpmuludq_xmm_k1z_xmm_xmmm128b64, EVEX_Vpmuludq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpmuludq_zmm_k1z_zmm_zmmm512b64];
    PMULLQ = Rvm, 8, true, [0, 0, 0], [INVALID, INVALID, EVEX_Vpmullq_xmm_k1z_xmm_xmmm128b64, EVEX_Vpmullq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpmullq_zmm_k1z_zmm_zmmm512b64];
    PMINSQ = Rvm, 8, true, [0, 0, 0], [INVALID, INVALID, EVEX_Vpminsq_xmm_k1z_xmm_xmmm128b64, EVEX_Vpminsq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpminsq_zmm_k1z_zmm_zmmm512b64];
    PMAXSQ = Rvm, 8, true, [0, 0, 0], [INVALID, INVALID, EVEX_Vpmaxsq_xmm_k1z_xmm_xmmm128b64, EVEX_Vpmaxsq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpmaxsq_zmm_k1z_zmm_zmmm512b64];
    PABSD = Rm, 4, false, [0, 0, 0], [VEX_Vpabsd_xmm_xmmm128, VEX_Vpabsd_ymm_ymmm256, EVEX_Vpabsd_xmm_k1z_xmmm128b32, EVEX_Vpabsd_ymm_k1z_ymmm256b32, EVEX_Vpabsd_zmm_k1z_zmmm512b32];
    PABSQ = Rm, 8, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vpabsq_xmm_k1z_xmmm128b64, EVEX_Vpabsq_ymm_k1z_ymmm256b64, EVEX_Vpabsq_zmm_k1z_zmmm512b64];
    PSLLD_I = Ri, 4, false, [0, 0, 0], [VEX_Vpslld_xmm_xmm_imm8, VEX_Vpslld_ymm_ymm_imm8, EVEX_Vpslld_xmm_k1z_xmmm128b32_imm8, EVEX_Vpslld_ymm_k1z_ymmm256b32_imm8, EVEX_Vpslld_zmm_k1z_zmmm512b32_imm8];
    PSRLD_I = Ri, 4, false, [0, 0, 0], [VEX_Vpsrld_xmm_xmm_imm8, VEX_Vpsrld_ymm_ymm_imm8, EVEX_Vpsrld_xmm_k1z_xmmm128b32_imm8, EVEX_Vpsrld_ymm_k1z_ymmm256b32_imm8, EVEX_Vpsrld_zmm_k1z_zmmm512b32_imm8];
    PSRAD_I = Ri, 4, false, [0, 0, 0], [VEX_Vpsrad_xmm_xmm_imm8, VEX_Vpsrad_ymm_ymm_imm8, EVEX_Vpsrad_xmm_k1z_xmmm128b32_imm8, EVEX_Vpsrad_ymm_k1z_ymmm256b32_imm8, EVEX_Vpsrad_zmm_k1z_zmmm512b32_imm8];
    PSLLQ_I = Ri, 8, false, [0, 0, 0], [VEX_Vpsllq_xmm_xmm_imm8, VEX_Vpsllq_ymm_ymm_imm8, EVEX_Vpsllq_xmm_k1z_xmmm128b64_imm8, EVEX_Vpsllq_ymm_k1z_ymmm256b64_imm8, EVEX_Vpsllq_zmm_k1z_zmmm512b64_imm8];
    PSRLQ_I = Ri, 8, false, [0, 0, 0], [VEX_Vpsrlq_xmm_xmm_imm8, VEX_Vpsrlq_ymm_ymm_imm8, EVEX_Vpsrlq_xmm_k1z_xmmm128b64_imm8, EVEX_Vpsrlq_ymm_k1z_ymmm256b64_imm8, EVEX_Vpsrlq_zmm_k1z_zmmm512b64_imm8];
    PSRAQ_I = Ri, 8, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vpsraq_xmm_k1z_xmmm128b64_imm8, EVEX_Vpsraq_ymm_k1z_ymmm256b64_imm8, EVEX_Vpsraq_zmm_k1z_zmmm512b64_imm8];
    PSLLVD = Rvm, 4, false, [0, 0, 0], [VEX_Vpsllvd_xmm_xmm_xmmm128, VEX_Vpsllvd_ymm_ymm_ymmm256, EVEX_Vpsllvd_xmm_k1z_xmm_xmmm128b32, EVEX_Vpsllvd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpsllvd_zmm_k1z_zmm_zmmm512b32];
    PSRLVD = Rvm, 4, false, [0, 0, 0], [VEX_Vpsrlvd_xmm_xmm_xmmm128, VEX_Vpsrlvd_ymm_ymm_ymmm256, EVEX_Vpsrlvd_xmm_k1z_xmm_xmmm128b32, EVEX_Vpsrlvd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpsrlvd_zmm_k1z_zmm_zmmm512b32];
    PSRAVD = Rvm, 4, false, [0, 0, 0], [VEX_Vpsravd_xmm_xmm_xmmm128, VEX_Vpsravd_ymm_ymm_ymmm256, EVEX_Vpsravd_xmm_k1z_xmm_xmmm128b32, EVEX_Vpsravd_ymm_k1z_ymm_ymmm256b32, EVEX_Vpsravd_zmm_k1z_zmm_zmmm512b32];
    PSLLVQ = Rvm, 8, false, [0, 0, 0], [VEX_Vpsllvq_xmm_xmm_xmmm128, VEX_Vpsllvq_ymm_ymm_ymmm256, EVEX_Vpsllvq_xmm_k1z_xmm_xmmm128b64, EVEX_Vpsllvq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpsllvq_zmm_k1z_zmm_zmmm512b64];
    PSRLVQ = Rvm, 8, false, [0, 0, 0], [VEX_Vpsrlvq_xmm_xmm_xmmm128, VEX_Vpsrlvq_ymm_ymm_ymmm256, EVEX_Vpsrlvq_xmm_k1z_xmm_xmmm128b64, EVEX_Vpsrlvq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpsrlvq_zmm_k1z_zmm_zmmm512b64];
    PSRAVQ = Rvm, 8, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vpsravq_xmm_k1z_xmm_xmmm128b64, EVEX_Vpsravq_ymm_k1z_ymm_ymmm256b64, EVEX_Vpsravq_zmm_k1z_zmm_zmmm512b64];
    PCMPEQD = Rvm, 4, true, [0, 0, 0], [VEX_Vpcmpeqd_xmm_xmm_xmmm128, VEX_Vpcmpeqd_ymm_ymm_ymmm256, INVALID, INVALID, INVALID];
    PCMPGTD = Rvm, 4, false, [0, 0, 0], [VEX_Vpcmpgtd_xmm_xmm_xmmm128, VEX_Vpcmpgtd_ymm_ymm_ymmm256, INVALID, INVALID, INVALID];
    PCMPEQQ = Rvm, 4, true, [0, 0, 0], [VEX_Vpcmpeqq_xmm_xmm_xmmm128, VEX_Vpcmpeqq_ymm_ymm_ymmm256, INVALID, INVALID, INVALID];
    PCMPGTQ = Rvm, 4, false, [0, 0, 0], [VEX_Vpcmpgtq_xmm_xmm_xmmm128, VEX_Vpcmpgtq_ymm_ymm_ymmm256, INVALID, INVALID, INVALID];
    PCMPD_K = Rvm, 4, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vpcmpd_kr_k1_xmm_xmmm128b32_imm8, EVEX_Vpcmpd_kr_k1_ymm_ymmm256b32_imm8, EVEX_Vpcmpd_kr_k1_zmm_zmmm512b32_imm8];
    PCMPQ_K = Rvm, 8, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vpcmpq_kr_k1_xmm_xmmm128b64_imm8, EVEX_Vpcmpq_kr_k1_ymm_ymmm256b64_imm8, EVEX_Vpcmpq_kr_k1_zmm_zmmm512b64_imm8];
    CVTDQ2PS = Rm, 4, false, [0, 0, 0], [VEX_Vcvtdq2ps_xmm_xmmm128, VEX_Vcvtdq2ps_ymm_ymmm256, EVEX_Vcvtdq2ps_xmm_k1z_xmmm128b32, EVEX_Vcvtdq2ps_ymm_k1z_ymmm256b32, EVEX_Vcvtdq2ps_zmm_k1z_zmmm512b32_er];
    CVTTPS2DQ = Rm, 4, false, [0, 0, 0], [VEX_Vcvttps2dq_xmm_xmmm128, VEX_Vcvttps2dq_ymm_ymmm256, EVEX_Vcvttps2dq_xmm_k1z_xmmm128b32, EVEX_Vcvttps2dq_ymm_k1z_ymmm256b32, EVEX_Vcvttps2dq_zmm_k1z_zmmm512b32_sae];
    /// W: the result.
    CVTPS2PD = Rm, 0, false, [0, 1, 0], [VEX_Vcvtps2pd_xmm_xmmm64, VEX_Vcvtps2pd_ymm_xmmm128, EVEX_Vcvtps2pd_xmm_k1z_xmmm64b32, EVEX_Vcvtps2pd_ymm_k1z_xmmm128b32, EVEX_Vcvtps2pd_zmm_k1z_ymmm256b32_sae];
    /// W: the result.
    CVTDQ2PD = Rm, 0, false, [0, 1, 0], [VEX_Vcvtdq2pd_xmm_xmmm64, VEX_Vcvtdq2pd_ymm_xmmm128, EVEX_Vcvtdq2pd_xmm_k1z_xmmm64b32, EVEX_Vcvtdq2pd_ymm_k1z_xmmm128b32, EVEX_Vcvtdq2pd_zmm_k1z_ymmm256b32_er];
    /// W: the result.
    CVTPH2PS = Rm, 0, false, [0, 1, 0], [VEX_Vcvtph2ps_xmm_xmmm64, VEX_Vcvtph2ps_ymm_xmmm128, EVEX_Vcvtph2ps_xmm_k1z_xmmm64, EVEX_Vcvtph2ps_ymm_k1z_xmmm128, EVEX_Vcvtph2ps_zmm_k1z_ymmm256_sae];
    /// W: the result.
    PMOVSXDQ = Rm, 0, false, [0, 1, 0], [VEX_Vpmovsxdq_xmm_xmmm64, VEX_Vpmovsxdq_ymm_xmmm128, EVEX_Vpmovsxdq_xmm_k1z_xmmm64, EVEX_Vpmovsxdq_ymm_k1z_xmmm128, EVEX_Vpmovsxdq_zmm_k1z_ymmm256];
    /// W: the result.
    PMOVZXWD = Rm, 0, false, [0, 1, 0], [VEX_Vpmovzxwd_xmm_xmmm64, VEX_Vpmovzxwd_ymm_xmmm128, EVEX_Vpmovzxwd_xmm_k1z_xmmm64, EVEX_Vpmovzxwd_ymm_k1z_xmmm128, EVEX_Vpmovzxwd_zmm_k1z_ymmm256];
    /// W: the result.
    CVTTPS2QQ = Rm, 0, false, [0, 1, 0], [INVALID, INVALID, EVEX_Vcvttps2qq_xmm_k1z_xmmm64b32, EVEX_Vcvttps2qq_ymm_k1z_xmmm128b32, EVEX_Vcvttps2qq_zmm_k1z_ymmm256b32_sae];
    /// W: the result.
    PMOVSXBD = Rm, 0, false, [0, 2, 0], [VEX_Vpmovsxbd_xmm_xmmm32, VEX_Vpmovsxbd_ymm_xmmm64, EVEX_Vpmovsxbd_xmm_k1z_xmmm32, EVEX_Vpmovsxbd_ymm_k1z_xmmm64, EVEX_Vpmovsxbd_zmm_k1z_xmmm128];
    /// W: the result.
    PMOVZXBD = Rm, 0, false, [0, 2, 0], [VEX_Vpmovzxbd_xmm_xmmm32, VEX_Vpmovzxbd_ymm_xmmm64, EVEX_Vpmovzxbd_xmm_k1z_xmmm32, EVEX_Vpmovzxbd_ymm_k1z_xmmm64, EVEX_Vpmovzxbd_zmm_k1z_xmmm128];
    /// W: the operand.
    CVTPD2PS = Rm, 8, false, [1, 0, 0], [VEX_Vcvtpd2ps_xmm_xmmm128, VEX_Vcvtpd2ps_xmm_ymmm256, EVEX_Vcvtpd2ps_xmm_k1z_xmmm128b64, EVEX_Vcvtpd2ps_xmm_k1z_ymmm256b64, EVEX_Vcvtpd2ps_ymm_k1z_zmmm512b64_er];
    /// W: the operand.
    CVTTPD2DQ = Rm, 8, false, [1, 0, 0], [VEX_Vcvttpd2dq_xmm_xmmm128, VEX_Vcvttpd2dq_xmm_ymmm256, EVEX_Vcvttpd2dq_xmm_k1z_xmmm128b64, EVEX_Vcvttpd2dq_xmm_k1z_ymmm256b64, EVEX_Vcvttpd2dq_ymm_k1z_zmmm512b64_sae];
    /// W: the operand.
    CVTQQ2PS = Rm, 8, false, [1, 0, 0], [INVALID, INVALID, EVEX_Vcvtqq2ps_xmm_k1z_xmmm128b64, EVEX_Vcvtqq2ps_xmm_k1z_ymmm256b64, EVEX_Vcvtqq2ps_ymm_k1z_zmmm512b64_er];
    CVTQQ2PD = Rm, 8, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vcvtqq2pd_xmm_k1z_xmmm128b64, EVEX_Vcvtqq2pd_ymm_k1z_ymmm256b64, EVEX_Vcvtqq2pd_zmm_k1z_zmmm512b64_er];
    CVTTPD2QQ = Rm, 8, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vcvttpd2qq_xmm_k1z_xmmm128b64, EVEX_Vcvttpd2qq_ymm_k1z_ymmm256b64, EVEX_Vcvttpd2qq_zmm_k1z_zmmm512b64_sae];
    /// W: the operand.
    PMOVDW = Mr, 0, false, [1, 0, 0], [INVALID, INVALID, EVEX_Vpmovdw_xmmm64_k1z_xmm, EVEX_Vpmovdw_xmmm128_k1z_ymm, EVEX_Vpmovdw_ymmm256_k1z_zmm];
    /// W: the operand.
    PMOVDB = Mr, 0, false, [2, 0, 0], [INVALID, INVALID, EVEX_Vpmovdb_xmmm32_k1z_xmm, EVEX_Vpmovdb_xmmm64_k1z_ymm, EVEX_Vpmovdb_xmmm128_k1z_zmm];
    /// W: the operand.
    PMOVQD = Mr, 0, false, [1, 0, 0], [INVALID, INVALID, EVEX_Vpmovqd_xmmm64_k1z_xmm, EVEX_Vpmovqd_xmmm128_k1z_ymm, EVEX_Vpmovqd_ymmm256_k1z_zmm];
    /// W: the operand.
    CVTPS2PH = Mr, 0, false, [1, 0, 0], [VEX_Vcvtps2ph_xmmm64_xmm_imm8, VEX_Vcvtps2ph_xmmm128_ymm_imm8, EVEX_Vcvtps2ph_xmmm64_k1z_xmm_imm8, EVEX_Vcvtps2ph_xmmm128_k1z_ymm_imm8, EVEX_Vcvtps2ph_ymmm256_k1z_zmm_imm8_sae];
    LOADPS = Rm, 0, false, [0, 0, 0], [VEX_Vmovups_xmm_xmmm128, VEX_Vmovups_ymm_ymmm256, EVEX_Vmovups_xmm_k1z_xmmm128, EVEX_Vmovups_ymm_k1z_ymmm256, EVEX_Vmovups_zmm_k1z_zmmm512];
    LOADPD = Rm, 0, false, [0, 0, 0], [VEX_Vmovupd_xmm_xmmm128, VEX_Vmovupd_ymm_ymmm256, EVEX_Vmovupd_xmm_k1z_xmmm128, EVEX_Vmovupd_ymm_k1z_ymmm256, EVEX_Vmovupd_zmm_k1z_zmmm512];
    STOREPS = Mr, 0, false, [0, 0, 0], [VEX_Vmovups_xmmm128_xmm, VEX_Vmovups_ymmm256_ymm, EVEX_Vmovups_xmmm128_k1z_xmm, EVEX_Vmovups_ymmm256_k1z_ymm, EVEX_Vmovups_zmmm512_k1z_zmm];
    STOREPD = Mr, 0, false, [0, 0, 0], [VEX_Vmovupd_xmmm128_xmm, VEX_Vmovupd_ymmm256_ymm, EVEX_Vmovupd_xmmm128_k1z_xmm, EVEX_Vmovupd_ymmm256_k1z_ymm, EVEX_Vmovupd_zmmm512_k1z_zmm];
    MOVAPS = Rm, 0, false, [0, 0, 0], [VEX_Vmovaps_xmm_xmmm128, VEX_Vmovaps_ymm_ymmm256, EVEX_Vmovaps_xmm_k1z_xmmm128, EVEX_Vmovaps_ymm_k1z_ymmm256, EVEX_Vmovaps_zmm_k1z_zmmm512];
    MASKLOADPS = Rvm, 0, false, [0, 0, 0], [VEX_Vmaskmovps_xmm_xmm_m128, VEX_Vmaskmovps_ymm_ymm_m256, INVALID, INVALID, INVALID];
    MASKLOADPD = Rvm, 0, false, [0, 0, 0], [VEX_Vmaskmovpd_xmm_xmm_m128, VEX_Vmaskmovpd_ymm_ymm_m256, INVALID, INVALID, INVALID];
    MASKSTOREPS = Mvr, 0, false, [0, 0, 0], [VEX_Vmaskmovps_m128_xmm_xmm, VEX_Vmaskmovps_m256_ymm_ymm, INVALID, INVALID, INVALID];
    MASKSTOREPD = Mvr, 0, false, [0, 0, 0], [VEX_Vmaskmovpd_m128_xmm_xmm, VEX_Vmaskmovpd_m256_ymm_ymm, INVALID, INVALID, INVALID];
    BROADCASTSS = Rm, 0, false, [0, 2, 0], [VEX_Vbroadcastss_xmm_xmm, VEX_Vbroadcastss_ymm_xmm, EVEX_Vbroadcastss_xmm_k1z_xmmm32, EVEX_Vbroadcastss_ymm_k1z_xmmm32, EVEX_Vbroadcastss_zmm_k1z_xmmm32];
    BROADCASTSS_M = Rm, 0, false, [0, 2, 0], [VEX_Vbroadcastss_xmm_m32, VEX_Vbroadcastss_ymm_m32, EVEX_Vbroadcastss_xmm_k1z_xmmm32, EVEX_Vbroadcastss_ymm_k1z_xmmm32, EVEX_Vbroadcastss_zmm_k1z_xmmm32];
    BROADCASTSD = Rm, 0, false, [0, 2, 0], [VEX_Vmovddup_xmm_xmmm64, VEX_Vbroadcastsd_ymm_xmm, EVEX_Vmovddup_xmm_k1z_xmmm64, EVEX_Vbroadcastsd_ymm_k1z_xmmm64, EVEX_Vbroadcastsd_zmm_k1z_xmmm64];
    BROADCASTSD_M = Rm, 0, false, [0, 2, 0], [VEX_Vmovddup_xmm_xmmm64, VEX_Vbroadcastsd_ymm_m64, EVEX_Vmovddup_xmm_k1z_xmmm64, EVEX_Vbroadcastsd_ymm_k1z_xmmm64, EVEX_Vbroadcastsd_zmm_k1z_xmmm64];
    PBROADCASTD = Rm, 0, false, [0, 2, 0], [VEX_Vpbroadcastd_xmm_xmmm32, VEX_Vpbroadcastd_ymm_xmmm32, EVEX_Vpbroadcastd_xmm_k1z_xmmm32, EVEX_Vpbroadcastd_ymm_k1z_xmmm32, EVEX_Vpbroadcastd_zmm_k1z_xmmm32];
    PBROADCASTQ = Rm, 0, false, [0, 2, 0], [VEX_Vpbroadcastq_xmm_xmmm64, VEX_Vpbroadcastq_ymm_xmmm64, EVEX_Vpbroadcastq_xmm_k1z_xmmm64, EVEX_Vpbroadcastq_ymm_k1z_xmmm64, EVEX_Vpbroadcastq_zmm_k1z_xmmm64];
    PBROADCASTD_G = Rg, 0, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vpbroadcastd_xmm_k1z_r32, EVEX_Vpbroadcastd_ymm_k1z_r32, EVEX_Vpbroadcastd_zmm_k1z_r32];
    PBROADCASTQ_G = Rg64, 0, false, [0, 0, 0], [INVALID, INVALID, EVEX_Vpbroadcastq_xmm_k1z_r64, EVEX_Vpbroadcastq_ymm_k1z_r64, EVEX_Vpbroadcastq_zmm_k1z_r64];
    MOVD = Rg, 0, false, [0, 0, 0], [VEX_Vmovd_xmm_rm32, INVALID, EVEX_Vmovd_xmm_rm32, INVALID, INVALID];
    MOVQ = Rg64, 0, false, [0, 0, 0], [VEX_Vmovq_xmm_rm64, INVALID, EVEX_Vmovq_xmm_rm64, INVALID, INVALID];
    MOVD_G = Gr, 0, false, [0, 0, 0], [VEX_Vmovd_rm32_xmm, INVALID, EVEX_Vmovd_rm32_xmm, INVALID, INVALID];
    MOVQ_G = Gr64, 0, false, [0, 0, 0], [VEX_Vmovq_rm64_xmm, INVALID, EVEX_Vmovq_rm64_xmm, INVALID, INVALID];
    STORESS = Mr, 0, false, [0, 0, 0], [VEX_Vmovss_m32_xmm, INVALID, EVEX_Vmovss_m32_k1_xmm, INVALID, INVALID];
    STORESD = Mr, 0, false, [0, 0, 0], [VEX_Vmovsd_m64_xmm, INVALID, EVEX_Vmovsd_m64_k1_xmm, INVALID, INVALID];
    /// The upper half; w: the operand.
    HIGH = Mr, 0, false, [1, 0, 0], [INVALID, VEX_Vextractf128_xmmm128_ymm_imm8, INVALID, EVEX_Vextractf32x4_xmmm128_k1z_ymm_imm8, EVEX_Vextractf64x4_ymmm256_k1z_zmm_imm8];
    /// A low half and another as the upper one; w: the result.
    JOIN = Rvm, 0, false, [0, 0, 1], [INVALID, VEX_Vinsertf128_ymm_ymm_xmmm128_imm8, INVALID, EVEX_Vinsertf32x4_ymm_k1z_ymm_xmmm128_imm8, EVEX_Vinsertf64x4_zmm_k1z_zmm_ymmm256_imm8];
    SHUFPS = Rvm, 4, false, [0, 0, 0], [VEX_Vshufps_xmm_xmm_xmmm128_imm8, VEX_Vshufps_ymm_ymm_ymmm256_imm8, EVEX_Vshufps_xmm_k1z_xmm_xmmm128b32_imm8, EVEX_Vshufps_ymm_k1z_ymm_ymmm256b32_imm8, EVEX_Vshufps_zmm_k1z_zmm_zmmm512b32_imm8];
    /// Blocks of 128 bits, two of each operand (256 bits: halves of both).
    BLOCKS = Rvm, 0, false, [0, 0, 0], [INVALID, VEX_Vperm2f128_ymm_ymm_ymmm256_imm8, INVALID, INVALID, EVEX_Vshuff32x4_zmm_k1z_zmm_zmmm512b32_imm8];
    PSHUFD = Rm, 4, false, [0, 0, 0], [VEX_Vpshufd_xmm_xmmm128_imm8, VEX_Vpshufd_ymm_ymmm256_imm8, EVEX_Vpshufd_xmm_k1z_xmmm128b32_imm8, EVEX_Vpshufd_ymm_k1z_ymmm256b32_imm8, EVEX_Vpshufd_zmm_k1z_zmmm512b32_imm8];
    PERMQ = Rm, 8, false, [0, 0, 0], [INVALID, VEX_Vpermq_ymm_ymmm256_imm8, INVALID, EVEX_Vpermq_ymm_k1z_ymmm256b64_imm8, INVALID];
    /// Eight bytes each, by the numbers in the first operand.
    PERMQ_V = Rvm, 8, false, [0, 0, 0], [INVALID, INVALID, INVALID, INVALID, EVEX_Vpermq_zmm_k1z_zmm_zmmm512b64];
    PACKUSDW = Rvm, 4, false, [0, 0, 0], [VEX_Vpackusdw_xmm_xmm_xmmm128, VEX_Vpackusdw_ymm_ymm_ymmm256, EVEX_Vpackusdw_xmm_k1z_xmm_xmmm128b32, EVEX_Vpackusdw_ymm_k1z_ymm_ymmm256b32, EVEX_Vpackusdw_zmm_k1z_zmm_zmmm512b32];
    PACKUSWB = Rvm, 0, false, [0, 0, 0], [VEX_Vpackuswb_xmm_xmm_xmmm128, VEX_Vpackuswb_ymm_ymm_ymmm256, EVEX_Vpackuswb_xmm_k1z_xmm_xmmm128, EVEX_Vpackuswb_ymm_k1z_ymm_ymmm256, EVEX_Vpackuswb_zmm_k1z_zmm_zmmm512];
    MOVMSKPS = Gr, 0, false, [0, 0, 0], [VEX_Vmovmskps_r32_xmm, VEX_Vmovmskps_r32_ymm, INVALID, INVALID, INVALID];
    GATHERDPS = Gather, 4, false, [0, 0, 0], [VEX_Vgatherdps_xmm_vm32x_xmm, VEX_Vgatherdps_ymm_vm32y_ymm, EVEX_Vgatherdps_xmm_k1_vm32x, EVEX_Vgatherdps_ymm_k1_vm32y, EVEX_Vgatherdps_zmm_k1_vm32z];
    /// W: the indices.
    GATHERQPS = Gather, 4, false, [1, 0, 0], [INVALID, VEX_Vgatherqps_xmm_vm64y_xmm, INVALID, EVEX_Vgatherqps_xmm_k1_vm64y, EVEX_Vgatherqps_ymm_k1_vm64z];
    GATHERQPD = Gather, 8, false, [0, 0, 0], [INVALID, VEX_Vgatherqpd_ymm_vm64y_ymm, INVALID, EVEX_Vgatherqpd_ymm_k1_vm64y, EVEX_Vgatherqpd_zmm_k1_vm64z];
    SCATTERDPS = Scatter, 4, false, [0, 0, 0], [INVALID, INVALID, INVALID, EVEX_Vscatterdps_vm32y_k1_ymm, EVEX_Vscatterdps_vm32z_k1_zmm];
}
