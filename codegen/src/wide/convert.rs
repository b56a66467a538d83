//! Conversions between register types, and the half floats of memory.

use super::lir::{Cc, Class, Op, V, W};
use super::table;
use super::value::Val;
use super::{Result, Select};
use tfc_kernel::{Scalar, ScalarOp, ScalarType};

impl Select<'_> {
    pub(super) fn convert_uniform(
        &mut self,
        from: ScalarType,
        to: ScalarType,
        x: &Val,
    ) -> Result<Val> {
        use ScalarType::*;
        let w = W::W128;
        if from == to {
            return Ok(x.clone());
        }
        let v = match (from, to) {
            (F32, F64) => {
                let v = self.in_vector(x)?;
                self.row(&table::CVTPS2PD, w, &[v], None)
            }
            (F64, F32) => {
                let v = self.in_vector(x)?;
                let low = self.row(&table::CVTPD2PS, w, &[v], None);
                self.row(&table::BROADCASTSS, w, &[low], None)
            }
            (I32, I64) => {
                let v = self.in_general(x)?;
                self.plain(Op::Extend, Class::General, &[v], None)
            }
            // The low half is there already.
            (I64, I32) => self.in_general(x)?,
            (Bool, I32 | I64) => self.in_general(x)?,
            (I32 | I64 | Bool, F32 | F64) => {
                let mut v = self.in_general(x)?;
                if from == I32 {
                    v = self.plain(Op::Extend, Class::General, &[v], None);
                }
                let double = to == F64;
                let low = self.plain(Op::ToFloat { double }, Class::Vector, &[v], None);
                let row = if double { &table::BROADCASTSD } else { &table::BROADCASTSS };
                self.row(row, w, &[low], None)
            }
            (I32 | I64, Bool) => {
                let v = self.in_general(x)?;
                self.general(Op::Set(Cc::Ne), from == I64, v, None, Some(0))
            }
            (F32 | F64, Bool) => {
                let zero = Val::Const(Scalar::of(from, 0.0));
                return self.op(ScalarOp::Ne, Bool, &[from, from], &[x.clone(), zero]);
            }
            (F32 | F64, I32 | I64) => self.float_to_int(from, to, x)?,
            (F32, F32) | (F64, F64) | (I32, I32) | (I64, I64) | (Bool, Bool) => {
                return Ok(x.clone());
            }
        };
        Ok(Val::Uniform(v))
    }

    /// Truncated and saturated; the machine gives the smallest number for what is
    /// out of range.
    fn float_to_int(&mut self, from: ScalarType, to: ScalarType, x: &Val) -> Result<V> {
        let v = self.in_vector(x)?;
        let double = from == ScalarType::F64;
        let int = self.plain(Op::FromFloat { double }, Class::General, &[v], None);
        let (bool, limit) = (ScalarType::Bool, Val::Const(Scalar::of(from, 2f64.powi(63))));
        let high = self.op(ScalarOp::Le, bool, &[from, from], &[limit, x.clone()])?;
        let number = self.op(ScalarOp::Eq, bool, &[from, from], &[x.clone(), x.clone()])?;
        let (high, number) = (self.in_general(&high)?, self.in_general(&number)?);
        let (most, zero) = (self.imm(i64::MAX), self.imm(0));
        let mut int = self.plain(Op::Choose, Class::General, &[most, int, high], None);
        int = self.plain(Op::Choose, Class::General, &[int, zero, number], None);
        if to == ScalarType::I32 {
            for (limit, cc) in [(i32::MAX, Cc::Gt), (i32::MIN, Cc::Lt)] {
                let limit = self.imm(i64::from(limit));
                let beyond = self.general(Op::Set(cc), true, int, Some(limit), None);
                int = self.plain(Op::Choose, Class::General, &[limit, int, beyond], None);
            }
        }
        Ok(int)
    }

    pub(super) fn convert_lanes(
        &mut self,
        from: ScalarType,
        to: ScalarType,
        args: &[Val],
    ) -> Result<Val> {
        use ScalarType::*;
        if from == to {
            return Ok(args[0].clone());
        }
        let w = self.width();
        let x = self.in_lanes(from, &args[0])?;
        let mut out = vec![];
        match (from, to) {
            (F32, F64) => x.iter().for_each(|x| out.extend(self.widen(&table::CVTPS2PD, *x))),
            (I32, I64) => x.iter().for_each(|x| out.extend(self.widen(&table::PMOVSXDQ, *x))),
            (I32, F64) => x.iter().for_each(|x| out.extend(self.widen(&table::CVTDQ2PD, *x))),
            (F64, F32) => x.chunks(2).for_each(|x| {
                let [a, b] = [x[0], x[1]].map(|x| self.row(&table::CVTPD2PS, w, &[x], None));
                out.push(self.join(a, b));
            }),
            (I64, I32) => x.chunks(2).for_each(|x| {
                out.push(if self.evex {
                    let [a, b] = [x[0], x[1]].map(|x| self.row(&table::PMOVQD, w, &[x], None));
                    self.join(a, b)
                } else {
                    self.low_words(x[0], x[1])
                });
            }),
            (I32, F32) => {
                x.iter().for_each(|x| out.push(self.row(&table::CVTDQ2PS, w, &[*x], None)));
            }
            (F32, I32) => {
                x.iter().for_each(|x| out.push(self.row(&table::CVTTPS2DQ, w, &[*x], None)));
                return self.saturate(F32, I32, args, out);
            }
            (F64, I32) => {
                x.chunks(2).for_each(|x| {
                    let [a, b] = [x[0], x[1]].map(|x| self.row(&table::CVTTPD2DQ, w, &[x], None));
                    out.push(self.join(a, b));
                });
                return self.saturate(F64, I32, args, out);
            }
            (F64, I64) if self.evex => {
                x.iter().for_each(|x| out.push(self.row(&table::CVTTPD2QQ, w, &[*x], None)));
                return self.saturate(F64, I64, args, out);
            }
            (F32, I64) if self.evex => {
                x.iter().for_each(|x| out.extend(self.widen(&table::CVTTPS2QQ, *x)));
                return self.saturate(F32, I64, args, out);
            }
            (I64, F64) if self.evex => {
                x.iter().for_each(|x| out.push(self.row(&table::CVTQQ2PD, w, &[*x], None)));
            }
            (I64, F32) if self.evex => x.chunks(2).for_each(|x| {
                let [a, b] = [x[0], x[1]].map(|x| self.row(&table::CVTQQ2PS, w, &[x], None));
                out.push(self.join(a, b));
            }),
            // Only AVX-512 has these.
            (F32 | F64, I64) | (I64, F32 | F64) => {
                return self.by_lane(ScalarOp::Convert, to, &[from], args);
            }
            (Bool, to) => {
                let one = self.in_lanes(to, &Val::Const(Scalar::of(to, 1.0)))?;
                let zero = self.in_lanes(to, &Val::Const(Scalar::of(to, 0.0)))?;
                return self.select_lanes(to, &x, &one, &zero);
            }
            (_, Bool) => {
                let zero = Val::Const(Scalar::of(from, 0.0));
                return self.compare_lanes(ScalarOp::Ne, from, &[args[0].clone(), zero]);
            }
            (F32, F32) | (F64, F64) | (I32, I32) | (I64, I64) => out = x,
        }
        Ok(Val::Lanes(out))
    }

    fn widen(&mut self, row: &'static table::Row, x: V) -> [V; 2] {
        let (w, high) = (self.width(), self.high(x));
        [x, high].map(|half| self.row(row, w, &[half], None))
    }

    /// What the machine made of floats, with its answer for numbers out of range
    /// (the smallest integer) put right: the greatest where they are too great,
    /// zero for NaN.
    fn saturate(
        &mut self,
        from: ScalarType,
        to: ScalarType,
        x: &[Val],
        out: Vec<V>,
    ) -> Result<Val> {
        let (limit, most) = if to == ScalarType::I64 {
            (2f64.powi(63), Scalar::I64(i64::MAX))
        } else {
            (2f64.powi(31), Scalar::I32(i32::MAX))
        };
        let (bool, limit) = (ScalarType::Bool, Val::Const(Scalar::of(from, limit)));
        let choose = [bool, to, to];
        let args = [limit, x[0].clone()];
        let high = self.op(ScalarOp::Le, bool, &[from, from], &args)?;
        let args = [high, Val::Const(most), Val::Lanes(out)];
        let out = self.op(ScalarOp::Select, to, &choose, &args)?;
        let args = [x[0].clone(), x[0].clone()];
        let number = self.op(ScalarOp::Eq, bool, &[from, from], &args)?;
        let args = [number, out, Val::Const(Scalar::of(to, 0.0))];
        self.op(ScalarOp::Select, to, &choose, &args)
    }

    /// The bits of an f32 rounded to bf16, ties to even, in four-byte lanes.
    pub(super) fn float_to_brain(&mut self, w: W, x: V) -> V {
        let high = self.row(&table::PSRLD_I, w, &[x], Some(16));
        let one = self.constant(Scalar::I32(1), w);
        let last = self.row(&table::PAND, w, &[high, one], None);
        let half = self.constant(Scalar::I32(0x7fff), w);
        let rounded = self.row(&table::PADDD, w, &[x, half], None);
        let rounded = self.row(&table::PADDD, w, &[rounded, last], None);
        let rounded = self.row(&table::PSRLD_I, w, &[rounded], Some(16));
        let quiet = self.constant(Scalar::I32(0x40), w);
        let quiet = self.row(&table::POR, w, &[high, quiet], None);
        let row = if self.evex { &table::CMPPS_K } else { &table::CMPPS };
        let unordered = self.row(row, w, &[x, x], Some(3));
        self.blend(ScalarType::F32, w, unordered, quiet, rounded)
    }
}
