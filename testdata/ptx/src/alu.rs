//! What the arithmetic instructions compute, on the bits of registers.
//!
//! Floats follow IEEE 754 with subnormals; an f32 that is not a number comes out
//! as the one NaN that GPUs give. What PTX needs a modifier for (`.ftz`,
//! `.approx`, `.sat`) is not here, so such an instruction is unknown.

use half::{bf16, f16};

pub(crate) type F1 = fn(u64) -> u64;
pub(crate) type F2 = fn(u64, u64) -> u64;
pub(crate) type F3 = fn(u64, u64, u64) -> u64;
pub(crate) type Test = fn(u64, u64) -> bool;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ty {
    Pred,
    B8,
    U8,
    S8,
    B16,
    U16,
    S16,
    F16,
    BF16,
    B32,
    U32,
    S32,
    F32,
    B64,
    U64,
    S64,
    F64,
}

impl Ty {
    pub fn parse(name: &str) -> Option<Ty> {
        Some(match name {
            "pred" => Ty::Pred,
            "b8" => Ty::B8,
            "u8" => Ty::U8,
            "s8" => Ty::S8,
            "b16" => Ty::B16,
            "u16" => Ty::U16,
            "s16" => Ty::S16,
            "f16" => Ty::F16,
            "bf16" => Ty::BF16,
            "b32" => Ty::B32,
            "u32" => Ty::U32,
            "s32" => Ty::S32,
            "f32" => Ty::F32,
            "b64" => Ty::B64,
            "u64" => Ty::U64,
            "s64" => Ty::S64,
            "f64" => Ty::F64,
            _ => return None,
        })
    }

    /// Size in bits.
    pub fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::B8 | Ty::U8 | Ty::S8 => 8,
            Ty::B16 | Ty::U16 | Ty::S16 | Ty::F16 | Ty::BF16 => 16,
            Ty::B32 | Ty::U32 | Ty::S32 | Ty::F32 => 32,
            Ty::B64 | Ty::U64 | Ty::S64 | Ty::F64 => 64,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, Ty::F16 | Ty::BF16 | Ty::F32 | Ty::F64)
    }

    pub fn is_signed(self) -> bool {
        matches!(self, Ty::S8 | Ty::S16 | Ty::S32 | Ty::S64)
    }
}

/// A value's low `bits` bits.
pub(crate) fn truncate(bits: u32, v: u64) -> u64 {
    if bits == 64 { v } else { v & ((1 << bits) - 1) }
}

pub(crate) fn sign_extend(bits: u32, v: u64) -> u64 {
    ((v << (64 - bits)) as i64 >> (64 - bits)) as u64
}

fn f(v: u64) -> f32 {
    f32::from_bits(v as u32)
}

fn d(v: u64) -> f64 {
    f64::from_bits(v)
}

fn rf(v: f32) -> u64 {
    u64::from(if v.is_nan() { 0x7fff_ffff } else { v.to_bits() })
}

/// The nearest number of 10 bits behind the point, of two the one that is larger.
pub(crate) fn to_tf32(a: u64) -> u64 {
    let v = f(a);
    match v.is_finite() {
        true => w((a as u32).wrapping_add(0x1000) & !0x1fff),
        false => rf(v),
    }
}

/// What an approximate instruction may give: the number next to the right one.
fn near(v: f32) -> u64 {
    rf(if v.is_normal() { f32::from_bits(v.to_bits() ^ 1) } else { v })
}

fn rd(v: f64) -> u64 {
    v.to_bits()
}

fn w(v: u32) -> u64 {
    u64::from(v)
}

/// Instructions of one operand: the opcode without its type, joined by dots.
pub(crate) fn one(op: &str, ty: Ty) -> Option<F1> {
    use Ty::*;
    Some(match (op, ty) {
        ("mov", _) => |a| a,
        ("neg", S32) => |a| w((a as u32).wrapping_neg()),
        ("neg", S64) => |a| a.wrapping_neg(),
        ("neg", F32) => |a| a ^ 0x8000_0000,
        ("neg", F64) => |a| a ^ (1 << 63),
        ("abs", S32) => |a| w((a as i32).wrapping_abs() as u32),
        ("abs", S64) => |a| (a as i64).wrapping_abs() as u64,
        ("abs", F32) => |a| a & 0x7fff_ffff,
        ("abs", F64) => |a| a & !(1 << 63),
        ("not", Pred) => |a| a ^ 1,
        ("not", B16) => |a| truncate(16, !a),
        ("not", B32) => |a| w(!(a as u32)),
        ("not", B64) => |a| !a,
        ("sqrt.rn", F32) => |a| rf(f(a).sqrt()),
        ("sqrt.rn", F64) => |a| rd(d(a).sqrt()),
        ("sqrt.approx", F32) => |a| near(f(a).sqrt()),
        ("ex2.approx", F32) => |a| near(f64::from(f(a)).exp2() as f32),
        ("lg2.approx", F32) => |a| near(f64::from(f(a)).log2() as f32),
        _ => return None,
    })
}

pub(crate) fn two(op: &str, ty: Ty) -> Option<F2> {
    use Ty::*;
    Some(match (op, ty) {
        ("add", S32 | U32) => |a, b| w((a as u32).wrapping_add(b as u32)),
        ("add", S64 | U64) => |a, b| a.wrapping_add(b),
        ("sub", S32 | U32) => |a, b| w((a as u32).wrapping_sub(b as u32)),
        ("sub", S64 | U64) => |a, b| a.wrapping_sub(b),
        ("mul.lo", S32 | U32) => |a, b| w((a as u32).wrapping_mul(b as u32)),
        ("mul.lo", S64 | U64) => |a, b| a.wrapping_mul(b),
        ("mul.wide", U32) => |a, b| a * b,
        ("mul.wide", S32) => |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64,
        ("mul.hi", U32) => |a, b| (a * b) >> 32,
        ("mul.hi", S32) => |a, b| w(((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32),
        ("mul.hi", U64) => |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64,
        ("mul.hi", S64) => |a, b| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64,
        ("div.full", F32) => |a, b| near(f(a) / f(b)),
        ("div", S32) => |a, b| w((a as i32).wrapping_div(b as i32) as u32),
        ("div", U32) => |a, b| w(a as u32 / b as u32),
        ("div", S64) => |a, b| (a as i64).wrapping_div(b as i64) as u64,
        ("div", U64) => |a, b| a / b,
        ("rem", S32) => |a, b| w((a as i32).wrapping_rem(b as i32) as u32),
        ("rem", U32) => |a, b| w(a as u32 % b as u32),
        ("rem", S64) => |a, b| (a as i64).wrapping_rem(b as i64) as u64,
        ("rem", U64) => |a, b| a % b,
        ("min", S32) => |a, b| w((a as i32).min(b as i32) as u32),
        ("min", U32) => |a, b| w((a as u32).min(b as u32)),
        ("min", S64) => |a, b| (a as i64).min(b as i64) as u64,
        ("min", U64) => |a, b| a.min(b),
        ("max", S32) => |a, b| w((a as i32).max(b as i32) as u32),
        ("max", U32) => |a, b| w((a as u32).max(b as u32)),
        ("max", S64) => |a, b| (a as i64).max(b as i64) as u64,
        ("max", U64) => |a, b| a.max(b),
        ("and", Pred | B16 | B32 | B64) => |a, b| a & b,
        ("or", Pred | B16 | B32 | B64) => |a, b| a | b,
        ("xor", Pred | B16 | B32 | B64) => |a, b| a ^ b,
        // The amount is a u32 and is clamped to the width.
        ("shl", B32) => |a, b| if b > 31 { 0 } else { w((a as u32) << b) },
        ("shl", B64) => |a, b| if b > 63 { 0 } else { a << b },
        ("shr", U32 | B32) => |a, b| if b > 31 { 0 } else { w(a as u32 >> b) },
        ("shr", U64 | B64) => |a, b| if b > 63 { 0 } else { a >> b },
        ("shr", S32) => |a, b| w((a as i32 >> b.min(31)) as u32),
        ("shr", S64) => |a, b| (a as i64 >> b.min(63)) as u64,
        ("add.rn", F32) => |a, b| rf(f(a) + f(b)),
        ("add.rn", F64) => |a, b| rd(d(a) + d(b)),
        ("sub.rn", F32) => |a, b| rf(f(a) - f(b)),
        ("sub.rn", F64) => |a, b| rd(d(a) - d(b)),
        ("mul.rn", F32) => |a, b| rf(f(a) * f(b)),
        ("mul.rn", F64) => |a, b| rd(d(a) * d(b)),
        ("div.rn", F32) => |a, b| rf(f(a) / f(b)),
        ("div.rn", F64) => |a, b| rd(d(a) / d(b)),
        ("min" | "min.NaN", F32) => {
            if op == "min" {
                |a, b| rf(minimum(f(a), f(b), false))
            } else {
                |a, b| rf(minimum(f(a), f(b), true))
            }
        }
        ("max" | "max.NaN", F32) => {
            if op == "max" {
                |a, b| rf(-minimum(-f(a), -f(b), false))
            } else {
                |a, b| rf(-minimum(-f(a), -f(b), true))
            }
        }
        _ => return None,
    })
}

/// The smaller; -0 is below +0. NaN loses unless `nan`.
fn minimum(a: f32, b: f32, nan: bool) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, true) => f32::NAN,
        (true, false) => {
            if nan {
                a
            } else {
                b
            }
        }
        (false, true) => {
            if nan {
                b
            } else {
                a
            }
        }
        _ if a == b => {
            if a.is_sign_negative() {
                a
            } else {
                b
            }
        }
        _ => {
            if a < b {
                a
            } else {
                b
            }
        }
    }
}

pub(crate) fn three(op: &str, ty: Ty) -> Option<F3> {
    use Ty::*;
    Some(match (op, ty) {
        ("fma.rn", F32) => |a, b, c| rf(f(a).mul_add(f(b), f(c))),
        ("fma.rn", F64) => |a, b, c| rd(d(a).mul_add(d(b), d(c))),
        ("mad.lo", S32 | U32) => {
            |a, b, c| w((a as u32).wrapping_mul(b as u32).wrapping_add(c as u32))
        }
        ("mad.lo", S64 | U64) => |a, b, c| a.wrapping_mul(b).wrapping_add(c),
        ("mad.wide", U32) => |a, b, c| (a * b).wrapping_add(c),
        ("mad.wide", S32) => {
            |a, b, c| ((i64::from(a as i32) * i64::from(b as i32)) as u64).wrapping_add(c)
        }
        ("bfe", U32) => |a, b, c| {
            let (at, len) = ((b & 255).min(32), (c & 255).min(32));
            truncate(len as u32, if at > 31 { 0 } else { a >> at })
        },
        ("shf.l.wrap", B32) => |a, b, c| ((b << 32 | a) << (c & 31)) >> 32,
        ("shf.r.wrap", B32) => |a, b, c| w(((b << 32 | a) >> (c & 31)) as u32),
        _ => return None,
    })
}

/// `setp` and its comparison.
pub(crate) fn test(op: &str, ty: Ty) -> Option<Test> {
    use Ty::*;
    Some(match (op, ty) {
        ("eq", B16 | U16 | S16 | B32 | U32 | S32 | B64 | U64 | S64) => |a, b| a == b,
        ("ne", B16 | U16 | S16 | B32 | U32 | S32 | B64 | U64 | S64) => |a, b| a != b,
        ("lt", S32) => |a, b| (a as i32) < (b as i32),
        ("le", S32) => |a, b| (a as i32) <= (b as i32),
        ("gt", S32) => |a, b| (a as i32) > (b as i32),
        ("ge", S32) => |a, b| (a as i32) >= (b as i32),
        ("lt", S64) => |a, b| (a as i64) < (b as i64),
        ("le", S64) => |a, b| (a as i64) <= (b as i64),
        ("gt", S64) => |a, b| (a as i64) > (b as i64),
        ("ge", S64) => |a, b| (a as i64) >= (b as i64),
        ("lt", U32 | U64) => |a, b| a < b,
        ("le", U32 | U64) => |a, b| a <= b,
        ("gt", U32 | U64) => |a, b| a > b,
        ("ge", U32 | U64) => |a, b| a >= b,
        ("eq", F32) => |a, b| f(a) == f(b),
        ("ne", F32) => |a, b| f(a) < f(b) || f(a) > f(b),
        ("neu", F32) => |a, b| f(a) != f(b),
        ("lt", F32) => |a, b| f(a) < f(b),
        ("le", F32) => |a, b| f(a) <= f(b),
        ("gt", F32) => |a, b| f(a) > f(b),
        ("ge", F32) => |a, b| f(a) >= f(b),
        ("nan", F32) => |a, b| f(a).is_nan() || f(b).is_nan(),
        ("num", F32) => |a, b| !f(a).is_nan() && !f(b).is_nan(),
        ("eq", F64) => |a, b| d(a) == d(b),
        ("ne", F64) => |a, b| d(a) < d(b) || d(a) > d(b),
        ("neu", F64) => |a, b| d(a) != d(b),
        ("lt", F64) => |a, b| d(a) < d(b),
        ("le", F64) => |a, b| d(a) <= d(b),
        ("gt", F64) => |a, b| d(a) > d(b),
        ("ge", F64) => |a, b| d(a) >= d(b),
        ("nan", F64) => |a, b| d(a).is_nan() || d(b).is_nan(),
        ("num", F64) => |a, b| !d(a).is_nan() && !d(b).is_nan(),
        _ => return None,
    })
}

/// `cvt`: the rounding, if any, to and from.
pub(crate) fn convert(rounding: &str, to: Ty, from: Ty) -> Option<F1> {
    use Ty::*;
    Some(match (rounding, to, from) {
        // Between floats.
        ("", F64, F32) => |a| rd(f64::from(f(a))),
        ("rn", F32, F64) => |a| rf(d(a) as f32),
        ("", F32, F16) => |a| rf(f16::from_bits(a as u16).to_f32()),
        ("", F32, BF16) => |a| rf(bf16::from_bits(a as u16).to_f32()),
        ("rn", F16, F32) => |a| {
            let v = f(a);
            u64::from(if v.is_nan() { 0x7fff } else { f16::from_f32(v).to_bits() })
        },
        ("rn", BF16, F32) => |a| {
            let v = f(a);
            u64::from(if v.is_nan() { 0x7fff } else { bf16::from_f32(v).to_bits() })
        },
        ("rni", F32, F32) => |a| rf(f(a).round_ties_even()),
        ("rmi", F32, F32) => |a| rf(f(a).floor()),
        ("rpi", F32, F32) => |a| rf(f(a).ceil()),
        ("rzi", F32, F32) => |a| rf(f(a).trunc()),
        ("rni", F64, F64) => |a| rd(d(a).round_ties_even()),
        ("rmi", F64, F64) => |a| rd(d(a).floor()),
        ("rpi", F64, F64) => |a| rd(d(a).ceil()),
        ("rzi", F64, F64) => |a| rd(d(a).trunc()),
        // Integers to floats.
        ("rn", F32, S32) => |a| rf(a as i32 as f32),
        ("rn", F32, U32) => |a| rf(a as u32 as f32),
        ("rn", F32, S64) => |a| rf(a as i64 as f32),
        ("rn", F32, U64) => |a| rf(a as f32),
        ("rn", F64, S32) => |a| rd(f64::from(a as i32)),
        ("rn", F64, U32) => |a| rd(f64::from(a as u32)),
        ("rn", F64, S64) => |a| rd(a as i64 as f64),
        ("rn", F64, U64) => |a| rd(a as f64),
        // Floats to integers: out of range gives the nearest; NaN gives 0 only
        // from f32 to 32 bits, else the top bit alone.
        ("rzi", S32, F32) => |a| w(f(a) as i32 as u32),
        ("rzi", S64, F32) => |a| if f(a).is_nan() { 1 << 63 } else { f(a) as i64 as u64 },
        ("rzi", S32, F64) => |a| if d(a).is_nan() { 1 << 31 } else { w(d(a) as i32 as u32) },
        ("rzi", S64, F64) => |a| if d(a).is_nan() { 1 << 63 } else { d(a) as i64 as u64 },
        // Integers: the source is extended by its own sign.
        ("", S64, S32) => |a| a as i32 as i64 as u64,
        ("", U64 | S64, U32) => |a| a & 0xffff_ffff,
        ("", U32 | S32, U64 | S64) => |a| a & 0xffff_ffff,
        ("", U16 | S16, U32 | S32 | U64 | S64) => |a| a & 0xffff,
        ("", U32 | S32 | U64 | S64, U16) => |a| a & 0xffff,
        ("", S32, S16) => |a| w(a as i16 as i32 as u32),
        ("", S32, S8) => |a| w(a as i8 as i32 as u32),
        ("", U32, U8) => |a| a & 0xff,
        _ => return None,
    })
}
