//! What a register of the kernel is in the machine.
//!
//! `Uniform` floats are 128-bit vectors with the value in every lane; integers and
//! bools (0 or 1) are general registers. `Lanes` hold one vector after the other;
//! eight-byte types take two vectors for as many lanes as four-byte types have in
//! one. A bool in lanes is a mask register with a bit for each four-byte lane or,
//! without AVX-512, a vector of four-byte lanes of all ones or zeros.

use super::lir::{Base, Class, Inst, Mem, Op, Pooled, V, W};
use super::table::{self, Row};
use super::{Result, Select, Unsupported};
use tfc_kernel::{Scalar, ScalarType};

#[derive(Clone, Debug)]
pub(super) enum Val {
    Const(Scalar),
    Uniform(V),
    Lanes(Vec<V>),
}

/// Vectors for as many lanes as a four-byte type has in one.
pub(super) fn parts(ty: ScalarType) -> usize {
    match ty {
        ScalarType::F64 | ScalarType::I64 => 2,
        ScalarType::F32 | ScalarType::I32 | ScalarType::Bool => 1,
    }
}

pub(super) fn pooled(value: Scalar) -> Pooled {
    match value {
        Scalar::F32(bits) => Pooled::Lane4(bits),
        Scalar::I32(v) => Pooled::Lane4(v as u32),
        Scalar::F64(bits) => Pooled::Lane8(bits),
        Scalar::I64(v) => Pooled::Lane8(v as u64),
        Scalar::Bool(v) => Pooled::Lane4(if v { u32::MAX } else { 0 }),
    }
}

impl Select<'_> {
    pub(super) fn unroll(&self) -> usize {
        self.group.as_ref().map_or(1, |g| g.unroll)
    }

    /// A vector instruction.
    pub(super) fn row(&mut self, row: &'static Row, w: W, src: &[V], imm: Option<i64>) -> V {
        let class = match row.form {
            table::Form::Gr | table::Form::Gr64 => Class::General,
            _ if row.name.ends_with("_K") => Class::Mask,
            _ => Class::Vector,
        };
        let dst = self.f.reg(class);
        let src = std::array::from_fn(|i| src.get(i).copied());
        self.push(Inst { dst: Some(dst), src, imm, w, ..Inst::new(Op::Row(row)) });
        dst
    }

    /// As [`Select::row`], of masks and general registers.
    pub(super) fn plain(&mut self, op: Op, class: Class, src: &[V], imm: Option<i64>) -> V {
        let dst = self.f.reg(class);
        let src = std::array::from_fn(|i| src.get(i).copied());
        self.push(Inst { dst: Some(dst), src, imm, ..Inst::new(op) });
        dst
    }

    /// A constant in every lane. In a vector loop it is made before that.
    pub(super) fn constant(&mut self, value: Scalar, w: W) -> V {
        let v = self.pool_vector(pooled(value), w);
        self.known.insert(v, value);
        v
    }

    pub(super) fn pool_vector(&mut self, value: Pooled, w: W) -> V {
        let at = self.f.pooled(value);
        let make = |s: &mut Self, w| {
            let dst = s.f.reg(Class::Vector);
            s.push(Inst { dst: Some(dst), w, ..Inst::new(Op::Const(at)) });
            dst
        };
        let Some(group) = &self.group else { return make(self, w) };
        if let Some(v) = group.constants.get(&at) {
            return *v;
        }
        let (scope, wide) = (group.scope, self.width());
        let v = self.hoist(scope, |s| make(s, wide));
        if let Some(group) = &mut self.group {
            group.constants.insert(at, v);
        }
        v
    }

    /// An integer or bool in a general register.
    pub(super) fn in_general(&mut self, val: &Val) -> Result<V> {
        match val {
            Val::Const(Scalar::I32(v)) => Ok(self.imm(i64::from(*v))),
            Val::Const(Scalar::I64(v)) => Ok(self.imm(*v)),
            Val::Const(Scalar::Bool(v)) => Ok(self.imm(i64::from(*v))),
            Val::Uniform(v) => Ok(*v),
            Val::Const(Scalar::F32(_) | Scalar::F64(_)) | Val::Lanes(_) => {
                Err(Unsupported("lanes where a number is needed"))
            }
        }
    }

    /// A float that is the same in every lane, as a vector of 128 bits.
    pub(super) fn in_vector(&mut self, val: &Val) -> Result<V> {
        match val {
            Val::Const(c) => Ok(self.constant(*c, W::W128)),
            Val::Uniform(v) => Ok(*v),
            Val::Lanes(_) => Err(Unsupported("lanes where a number is needed")),
        }
    }

    /// The value in lanes.
    pub(super) fn in_lanes(&mut self, ty: ScalarType, val: &Val) -> Result<Vec<V>> {
        let count = self.unroll() * parts(ty);
        match val {
            Val::Lanes(parts) => Ok(parts.clone()),
            Val::Const(c) if ty == ScalarType::Bool && self.evex => {
                let all = *c == Scalar::Bool(true);
                let bits = self.imm(if all { 0xffff } else { 0 });
                let v = self.plain(Op::KFromGeneral, Class::Mask, &[bits], None);
                Ok(vec![v; count])
            }
            Val::Const(c) => {
                let v = self.constant(*c, self.width());
                Ok(vec![v; count])
            }
            Val::Uniform(v) => {
                let v = self.splat(ty, *v);
                Ok(vec![v; count])
            }
        }
    }

    /// What is the same in every lane, in every lane: made before the vector loop
    /// if it is known there.
    fn splat(&mut self, ty: ScalarType, v: V) -> V {
        let Some(group) = &self.group else { return self.splat_here(ty, v) };
        // The loop's own counter is made before it, and changes in it.
        if v.0 >= group.first || self.vars.get(&group.var) == Some(&v) {
            return self.splat_here(ty, v);
        }
        if let Some(found) = group.splats.get(&(v, ty)) {
            return *found;
        }
        let scope = group.scope;
        let made = self.hoist(scope, |s| s.splat_here(ty, v));
        if let Some(group) = &mut self.group {
            group.splats.insert((v, ty), made);
        }
        made
    }

    fn splat_here(&mut self, ty: ScalarType, v: V) -> V {
        let w = self.width();
        match ty {
            ScalarType::F32 => self.row(&table::BROADCASTSS, w, &[v], None),
            ScalarType::F64 => self.row(&table::BROADCASTSD, w, &[v], None),
            ScalarType::I32 => self.splat_int(v, w, false),
            ScalarType::I64 => self.splat_int(v, w, true),
            ScalarType::Bool => {
                let ones = self.general(Op::Neg, false, v, None, None);
                if self.evex {
                    self.plain(Op::KFromGeneral, Class::Mask, &[ones], None)
                } else {
                    self.splat_int(ones, w, false)
                }
            }
        }
    }

    /// A general register in every lane of a vector.
    pub(super) fn splat_int(&mut self, v: V, w: W, wide: bool) -> V {
        if self.evex {
            let row = if wide { &table::PBROADCASTQ_G } else { &table::PBROADCASTD_G };
            return self.row(row, w, &[v], None);
        }
        let (to, row) = if wide {
            (&table::MOVQ, &table::PBROADCASTQ)
        } else {
            (&table::MOVD, &table::PBROADCASTD)
        };
        let low = self.row(to, W::W128, &[v], None);
        self.row(row, w, &[low], None)
    }

    /// A bool (0 or 1) as a mask of a 128-bit vector.
    pub(super) fn uniform_mask(&mut self, v: V) -> V {
        let ones = self.general(Op::Neg, false, v, None, None);
        if self.evex {
            self.plain(Op::KFromGeneral, Class::Mask, &[ones], None)
        } else {
            self.splat_int(ones, W::W128, false)
        }
    }

    /// The bool in the lowest lane of a mask of a 128-bit vector.
    pub(super) fn mask_to_bool(&mut self, mask: V) -> V {
        let bits = if self.evex {
            self.plain(Op::KToGeneral, Class::General, &[mask], None)
        } else {
            self.row(&table::MOVD_G, W::W128, &[mask], None)
        };
        self.general(Op::And, false, bits, None, Some(1))
    }

    /// The masks of the two vectors of eight-byte lanes that a mask is for.
    pub(super) fn split_mask(&mut self, mask: V) -> [V; 2] {
        if self.evex {
            [mask, self.plain(Op::KShiftRight, Class::Mask, &[mask], Some(8))]
        } else {
            let w = self.width();
            let high = self.row(&table::HIGH, w, &[mask], Some(1));
            [mask, high].map(|half| self.row(&table::PMOVSXDQ, w, &[half], None))
        }
    }

    /// The mask of four-byte lanes from those of two vectors of eight-byte lanes.
    pub(super) fn join_masks(&mut self, low: V, high: V) -> V {
        if self.evex {
            self.plain(Op::KJoin, Class::Mask, &[low, high], None)
        } else {
            self.low_words(low, high)
        }
    }

    /// The lower halves of eight-byte lanes (AVX2).
    pub(super) fn low_words(&mut self, low: V, high: V) -> V {
        let w = self.width();
        let mixed = self.row(&table::SHUFPS, w, &[low, high], Some(0x88));
        self.row(&table::PERMQ, w, &[mixed], Some(0xd8))
    }

    /// Two halves as one vector.
    pub(super) fn join(&mut self, low: V, high: V) -> V {
        let w = self.width();
        self.row(&table::JOIN, w, &[low, high], Some(1))
    }

    pub(super) fn high(&mut self, v: V) -> V {
        let w = self.width();
        self.row(&table::HIGH, w, &[v], Some(1))
    }

    /// A vector instruction that reads memory.
    pub(super) fn load_row(&mut self, row: &'static Row, w: W, mem: Mem, mask: Option<V>) -> V {
        let dst = self.f.reg(Class::Vector);
        let zero = mask.is_some();
        self.push(Inst {
            dst: Some(dst),
            mem: Some(mem),
            w,
            mask,
            zero,
            ..Inst::new(Op::Row(row))
        });
        dst
    }

    pub(super) fn store_row(
        &mut self,
        row: &'static Row,
        w: W,
        v: V,
        mem: Mem,
        mask: Option<V>,
        imm: Option<i64>,
    ) {
        let src = [Some(v), None, None];
        self.push(Inst { src, mem: Some(mem), w, mask, imm, ..Inst::new(Op::Row(row)) });
    }

    pub(super) fn frame(place: u32, disp: i32) -> Mem {
        Mem { base: Base::Frame(place), disp, ..Mem::default() }
    }
}
