//! Scalar operations on values, uniform or in lanes.

use super::lir::{Cc, Class, Inst, Op, V, W};
use super::table::{self, Row};
use super::value::{Val, parts};
use super::{Result, Select, Unsupported};
use tfc_kernel::{Scalar, ScalarOp, ScalarType};

/// Comparisons as `cmpps` numbers them (ordered but for `Ne`), and `pcmpd`.
fn float_predicate(op: ScalarOp) -> i64 {
    match op {
        ScalarOp::Eq => 0x00,
        ScalarOp::Lt => 0x11,
        ScalarOp::Le => 0x12,
        _ => 0x04,
    }
}

fn int_predicate(op: ScalarOp) -> i64 {
    match op {
        ScalarOp::Eq => 0,
        ScalarOp::Lt => 1,
        ScalarOp::Le => 2,
        _ => 4,
    }
}

const UNORDERED: i64 = 3;
const ORDERED: i64 = 7;

impl Select<'_> {
    /// `op` of `args`, whose register types are `tys`; `to` is that of the result.
    pub(super) fn op(
        &mut self,
        op: ScalarOp,
        to: ScalarType,
        tys: &[ScalarType],
        args: &[Val],
    ) -> Result<Val> {
        let scalars: Option<Vec<Scalar>> = args
            .iter()
            .map(|a| match a {
                Val::Const(c) => Some(*c),
                _ => None,
            })
            .collect();
        if let Some(scalars) = scalars
            && let Ok(value) = tfc_kernel::interp::apply(op, to, &scalars)
        {
            return Ok(Val::Const(value));
        }
        if !args.iter().any(|a| matches!(a, Val::Lanes(_))) {
            return self.uniform_op(op, to, tys, args);
        }
        match op {
            ScalarOp::Convert => self.convert_lanes(tys[0], to, args),
            ScalarOp::Bitcast => Ok(args[0].clone()),
            ScalarOp::Select => {
                let mask = self.in_lanes(ScalarType::Bool, &args[0])?;
                let (x, y) = (self.in_lanes(to, &args[1])?, self.in_lanes(to, &args[2])?);
                self.select_lanes(to, &mask, &x, &y)
            }
            ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le
                if tys[0] != ScalarType::Bool =>
            {
                self.compare_lanes(op, tys[0], args)
            }
            ScalarOp::Shl | ScalarOp::ShrArith | ScalarOp::ShrLogic => {
                self.shift_lanes(op, to, args)
            }
            ScalarOp::Div | ScalarOp::Rem if !to.is_float() => match power_of_two(&args[1]) {
                Some(power) => self.divide_by_power(op, to, &args[0], power),
                // No machine divides integers in lanes.
                None => self.by_lane(op, to, tys, args),
            },
            _ => {
                let lanes: Vec<Vec<V>> = args
                    .iter()
                    .zip(tys)
                    .map(|(a, ty)| self.in_lanes(*ty, a))
                    .collect::<Result<_>>()?;
                let w = self.width();
                let count = lanes.iter().map(Vec::len).max().unwrap_or(0);
                let mut out = vec![];
                for i in 0..count {
                    let v: Vec<V> = lanes.iter().map(|l| l[i]).collect();
                    let made = if tys[0] == ScalarType::Bool {
                        self.mask_op(op, &v)?
                    } else {
                        self.vector_op(op, tys[0], w, &v)?
                    };
                    out.push(made);
                }
                Ok(Val::Lanes(out))
            }
        }
    }

    pub(super) fn uniform_op(
        &mut self,
        op: ScalarOp,
        to: ScalarType,
        tys: &[ScalarType],
        args: &[Val],
    ) -> Result<Val> {
        let w = W::W128;
        match op {
            ScalarOp::Convert => return self.convert_uniform(tys[0], to, &args[0]),
            ScalarOp::Bitcast => {
                let v = match (tys[0], to) {
                    (ScalarType::F32, ScalarType::I32) => {
                        let v = self.in_vector(&args[0])?;
                        self.row(&table::MOVD_G, w, &[v], None)
                    }
                    (ScalarType::F64, ScalarType::I64) => {
                        let v = self.in_vector(&args[0])?;
                        self.row(&table::MOVQ_G, w, &[v], None)
                    }
                    (ScalarType::I32, ScalarType::F32) => {
                        let v = self.in_general(&args[0])?;
                        self.splat_int(v, w, false)
                    }
                    (ScalarType::I64, ScalarType::F64) => {
                        let v = self.in_general(&args[0])?;
                        self.splat_int(v, w, true)
                    }
                    _ => return Ok(args[0].clone()),
                };
                return Ok(Val::Uniform(v));
            }
            ScalarOp::Select => {
                let c = self.in_general(&args[0])?;
                if to.is_float() {
                    let mask = self.uniform_mask(c);
                    let (x, y) = (self.in_vector(&args[1])?, self.in_vector(&args[2])?);
                    return Ok(Val::Uniform(self.blend(to, w, mask, x, y)));
                }
                let (x, y) = (self.in_general(&args[1])?, self.in_general(&args[2])?);
                return Ok(Val::Uniform(self.plain(Op::Choose, Class::General, &[x, y, c], None)));
            }
            _ => {}
        }
        if tys[0].is_float() {
            let v: Vec<V> = args.iter().map(|a| self.in_vector(a)).collect::<Result<_>>()?;
            if matches!(op, ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le) {
                let mask = self.compare_floats(tys[0], w, v[0], v[1], float_predicate(op));
                return Ok(Val::Uniform(self.mask_to_bool(mask)));
            }
            return Ok(Val::Uniform(self.vector_op(op, tys[0], w, &v)?));
        }
        self.int_op(op, tys[0], args).map(Val::Uniform)
    }

    /// Integers and bools in general registers.
    fn int_op(&mut self, op: ScalarOp, ty: ScalarType, args: &[Val]) -> Result<V> {
        use ScalarOp::*;
        let wide = ty == ScalarType::I64;
        let small = match args.get(1) {
            Some(Val::Const(Scalar::I32(v))) => Some(i64::from(*v)),
            Some(Val::Const(Scalar::I64(v))) => i32::try_from(*v).ok().map(i64::from),
            Some(Val::Const(Scalar::Bool(v))) => Some(i64::from(*v)),
            _ => None,
        };
        let x = self.in_general(&args[0])?;
        let two = |s: &mut Self, op: Op| -> Result<V> {
            Ok(match small {
                Some(imm) => s.general(op, wide, x, None, Some(imm)),
                None => {
                    let y = s.in_general(&args[1])?;
                    s.general(op, wide, x, Some(y), None)
                }
            })
        };
        match op {
            Add => two(self, Op::Add),
            Sub => two(self, Op::Sub),
            Mul => two(self, Op::Mul),
            And => two(self, Op::And),
            Or => two(self, Op::Or),
            Xor => two(self, Op::Xor),
            Shl => two(self, Op::Shl),
            ShrArith => two(self, Op::Sar),
            ShrLogic => two(self, Op::Shr),
            Eq => two(self, Op::Set(Cc::Eq)),
            Ne => two(self, Op::Set(Cc::Ne)),
            Lt => two(self, Op::Set(Cc::Lt)),
            Le => two(self, Op::Set(Cc::Le)),
            Min | Max => {
                let y = self.in_general(&args[1])?;
                let cc = if op == Min { Cc::Lt } else { Cc::Gt };
                let c = self.general(Op::Set(cc), wide, x, Some(y), None);
                Ok(self.plain(Op::Choose, Class::General, &[x, y, c], None))
            }
            Not if ty == ScalarType::Bool => Ok(self.general(Op::Xor, false, x, None, Some(1))),
            Not => Ok(self.general(Op::Xor, wide, x, None, Some(-1))),
            Neg => Ok(self.general(Op::Neg, wide, x, None, None)),
            Abs => {
                let sign = self.general(Op::Sar, wide, x, None, Some(63));
                let flipped = self.general(Op::Xor, wide, x, Some(sign), None);
                Ok(self.general(Op::Sub, wide, flipped, Some(sign), None))
            }
            Div | Rem => self.divide(op, wide, x, small, &args[1]),
            _ => Err(Unsupported("an operation on integers")),
        }
    }

    fn divide(
        &mut self,
        op: ScalarOp,
        wide: bool,
        x: V,
        known: Option<i64>,
        by: &Val,
    ) -> Result<V> {
        let machine = if op == ScalarOp::Div { Op::Div } else { Op::Rem };
        let y = self.in_general(by)?;
        if known.is_some_and(|c| c != 0 && c != -1) {
            return Ok(self.general(machine, wide, x, Some(y), None));
        }
        // By zero gives zero; by -1 may overflow.
        let zero = self.general(Op::Set(Cc::Eq), wide, y, None, Some(0));
        let minus = self.general(Op::Set(Cc::Eq), wide, y, None, Some(-1));
        let special = self.general(Op::Or, false, zero, Some(minus), None);
        let one = self.imm(1);
        let safe = self.plain(Op::Choose, Class::General, &[one, y, special], None);
        let q = self.general(machine, wide, x, Some(safe), None);
        if op == ScalarOp::Rem {
            return Ok(q);
        }
        let negated = self.general(Op::Neg, wide, x, None, None);
        let q = self.plain(Op::Choose, Class::General, &[negated, q, minus], None);
        let none = self.imm(0);
        Ok(self.plain(Op::Choose, Class::General, &[none, q, zero], None))
    }

    /// A blend: `x` where the mask is set, else `y`.
    pub(super) fn blend(&mut self, ty: ScalarType, w: W, mask: V, x: V, y: V) -> V {
        let wide = parts(ty) == 2;
        if self.evex {
            let row = if wide { &table::BLENDMPD } else { &table::BLENDMPS };
            let dst = self.f.reg(Class::Vector);
            let src = [Some(y), Some(x), None];
            let mask = Some(mask);
            self.push(Inst { dst: Some(dst), src, w, mask, ..Inst::new(Op::Row(row)) });
            return dst;
        }
        let row = if wide { &table::BLENDVPD } else { &table::BLENDVPS };
        self.row(row, w, &[y, x, mask], None)
    }

    pub(super) fn select_lanes(
        &mut self,
        ty: ScalarType,
        mask: &[V],
        x: &[V],
        y: &[V],
    ) -> Result<Val> {
        let w = self.width();
        let mut out = vec![];
        for (i, mask) in mask.iter().enumerate() {
            match ty {
                ScalarType::Bool if self.evex => {
                    let yes = self.plain(Op::KAnd, Class::Mask, &[*mask, x[i]], None);
                    let no = self.plain(Op::KAndNot, Class::Mask, &[*mask, y[i]], None);
                    out.push(self.plain(Op::KOr, Class::Mask, &[yes, no], None));
                }
                ScalarType::F32 | ScalarType::I32 | ScalarType::Bool => {
                    out.push(self.blend(ScalarType::F32, w, *mask, x[i], y[i]));
                }
                ScalarType::F64 | ScalarType::I64 => {
                    let halves = self.split_mask(*mask);
                    for (j, half) in halves.into_iter().enumerate() {
                        let at = 2 * i + j;
                        out.push(self.blend(ty, w, half, x[at], y[at]));
                    }
                }
            }
        }
        Ok(Val::Lanes(out))
    }

    /// A comparison of floats as a mask of their width.
    fn compare_floats(&mut self, ty: ScalarType, w: W, x: V, y: V, predicate: i64) -> V {
        let row = match (self.evex, ty) {
            (true, ScalarType::F64) => &table::CMPPD_K,
            (true, _) => &table::CMPPS_K,
            (false, ScalarType::F64) => &table::CMPPD,
            (false, _) => &table::CMPPS,
        };
        self.row(row, w, &[x, y], Some(predicate))
    }

    pub(super) fn compare_lanes(
        &mut self,
        op: ScalarOp,
        ty: ScalarType,
        args: &[Val],
    ) -> Result<Val> {
        let (x, y) = (self.in_lanes(ty, &args[0])?, self.in_lanes(ty, &args[1])?);
        let w = self.width();
        let mut masks = vec![];
        for (x, y) in x.into_iter().zip(y) {
            masks.push(if ty.is_float() {
                self.compare_floats(ty, w, x, y, float_predicate(op))
            } else if self.evex {
                let row = if parts(ty) == 2 { &table::PCMPQ_K } else { &table::PCMPD_K };
                self.row(row, w, &[x, y], Some(int_predicate(op)))
            } else {
                self.compare_ints(op, ty, x, y)
            });
        }
        if parts(ty) == 2 {
            masks = masks.chunks(2).map(|m| self.join_masks(m[0], m[1])).collect();
        }
        Ok(Val::Lanes(masks))
    }

    /// Without AVX-512 there are but two comparisons of integers.
    fn compare_ints(&mut self, op: ScalarOp, ty: ScalarType, x: V, y: V) -> V {
        let w = self.width();
        let (equal, greater) = if parts(ty) == 2 {
            (&table::PCMPEQQ, &table::PCMPGTQ)
        } else {
            (&table::PCMPEQD, &table::PCMPGTD)
        };
        let (row, pair, negate): (&'static Row, _, _) = match op {
            ScalarOp::Eq => (equal, [x, y], false),
            ScalarOp::Ne => (equal, [x, y], true),
            ScalarOp::Lt => (greater, [y, x], false),
            _ => (greater, [x, y], true),
        };
        let mask = self.row(row, w, &pair, None);
        if negate { self.invert(mask) } else { mask }
    }

    fn invert(&mut self, v: V) -> V {
        let w = self.width();
        let ones = self.constant(Scalar::I32(-1), w);
        self.row(&table::PXOR, w, &[v, ones], None)
    }

    /// The quotient by `2^power`, or the remainder; quotients are rounded to zero, so
    /// negative numbers get all but one of the divisor added first.
    fn divide_by_power(
        &mut self,
        op: ScalarOp,
        ty: ScalarType,
        x: &Val,
        power: u32,
    ) -> Result<Val> {
        let number = |n: i64| match ty {
            ScalarType::I32 => Val::Const(Scalar::I32(n as i32)),
            _ => Val::Const(Scalar::I64(n)),
        };
        let bits = if ty == ScalarType::I32 { 31 } else { 63 };
        let tys = [ty, ty];
        let sign = self.op(ScalarOp::ShrArith, ty, &tys, &[x.clone(), number(bits)])?;
        let bias = self.op(ScalarOp::And, ty, &tys, &[sign, number((1 << power) - 1)])?;
        let sum = self.op(ScalarOp::Add, ty, &tys, &[x.clone(), bias])?;
        let shift = number(i64::from(power));
        let quotient = self.op(ScalarOp::ShrArith, ty, &tys, &[sum, shift.clone()])?;
        if op == ScalarOp::Div {
            return Ok(quotient);
        }
        let back = self.op(ScalarOp::Shl, ty, &tys, &[quotient, shift])?;
        self.op(ScalarOp::Sub, ty, &tys, &[x.clone(), back])
    }

    /// Logic on masks.
    pub(super) fn mask_op(&mut self, op: ScalarOp, v: &[V]) -> Result<V> {
        use ScalarOp::*;
        if self.evex {
            let k = |s: &mut Self, op: Op, src: &[V]| s.plain(op, Class::Mask, src, None);
            return Ok(match op {
                Not => k(self, Op::KNot, v),
                And | Min | Mul => k(self, Op::KAnd, v),
                Or | Max | Add => k(self, Op::KOr, v),
                Xor | Ne => k(self, Op::KXor, v),
                Eq => {
                    let differ = k(self, Op::KXor, v);
                    k(self, Op::KNot, &[differ])
                }
                _ => return Err(Unsupported("an operation on bools")),
            });
        }
        let w = self.width();
        Ok(match op {
            Not => self.invert(v[0]),
            And | Min | Mul => self.row(&table::ANDPS, w, v, None),
            Or | Max | Add => self.row(&table::ORPS, w, v, None),
            Xor | Ne => self.row(&table::XORPS, w, v, None),
            Eq => {
                let differ = self.row(&table::XORPS, w, v, None);
                self.invert(differ)
            }
            _ => return Err(Unsupported("an operation on bools")),
        })
    }

    /// An operation on vectors of numbers of one type.
    pub(super) fn vector_op(&mut self, op: ScalarOp, ty: ScalarType, w: W, v: &[V]) -> Result<V> {
        if ty.is_float() { self.float_op(op, ty, w, v) } else { self.int_lanes(op, ty, w, v) }
    }

    fn float_op(&mut self, op: ScalarOp, ty: ScalarType, w: W, v: &[V]) -> Result<V> {
        use ScalarOp::*;
        let double = ty == ScalarType::F64;
        let pick = |single: &'static Row, both: &'static Row| if double { both } else { single };
        let (row, imm) = match op {
            Add => (pick(&table::ADDPS, &table::ADDPD), None),
            Sub => (pick(&table::SUBPS, &table::SUBPD), None),
            Mul => (pick(&table::MULPS, &table::MULPD), None),
            Div => (pick(&table::DIVPS, &table::DIVPD), None),
            Sqrt => (pick(&table::SQRTPS, &table::SQRTPD), None),
            Scale => (pick(&table::SCALEFPS, &table::SCALEFPD), None),
            // Rounding modes; inexact results raise nothing.
            RoundEven => (pick(&table::ROUNDPS, &table::ROUNDPD), Some(8)),
            Floor => (pick(&table::ROUNDPS, &table::ROUNDPD), Some(9)),
            Ceil => (pick(&table::ROUNDPS, &table::ROUNDPD), Some(10)),
            Trunc => (pick(&table::ROUNDPS, &table::ROUNDPD), Some(11)),
            Fma => {
                let dst = self.f.reg(Class::Vector);
                let src = [Some(v[0]), Some(v[1]), Some(v[2])];
                let op = Op::Fma { double, negated: false };
                self.push(Inst { dst: Some(dst), src, w, ..Inst::new(op) });
                return Ok(dst);
            }
            Neg | Abs => {
                let mask = match (op, double) {
                    (Neg, false) => Scalar::I32(i32::MIN),
                    (Neg, true) => Scalar::I64(i64::MIN),
                    (_, false) => Scalar::I32(i32::MAX),
                    (_, true) => Scalar::I64(i64::MAX),
                };
                let mask = self.constant(mask, w);
                let row = match (op, double) {
                    (Neg, false) => &table::XORPS,
                    (Neg, true) => &table::XORPD,
                    (_, false) => &table::ANDPS,
                    (_, true) => &table::ANDPD,
                };
                return Ok(self.row(row, w, &[v[0], mask], None));
            }
            Min | Max => return Ok(self.extreme(op, ty, w, v[0], v[1])),
            _ => return Err(Unsupported("an operation on floats")),
        };
        Ok(self.row(row, w, v, imm))
    }

    /// The smaller or greater of two: NaN if either is, the second of equal ones.
    /// The machine's gives the second if either is NaN.
    fn extreme(&mut self, op: ScalarOp, ty: ScalarType, w: W, x: V, y: V) -> V {
        let row = match (op, ty) {
            (ScalarOp::Min, ScalarType::F64) => &table::MINPD,
            (ScalarOp::Min, _) => &table::MINPS,
            (_, ScalarType::F64) => &table::MAXPD,
            (_, _) => &table::MAXPS,
        };
        let number = |s: &Self, v: V| match s.known.get(&v) {
            Some(Scalar::F32(bits)) => Some(f64::from(f32::from_bits(*bits))),
            Some(Scalar::F64(bits)) => Some(f64::from_bits(*bits)),
            _ => None,
        };
        if number(self, x).is_some_and(|c| !c.is_nan()) {
            return self.row(row, w, &[x, y], None);
        }
        // Equal numbers but zeros are the same, so that the order does not matter.
        if number(self, y).is_some_and(|c| !c.is_nan() && c != 0.0) {
            return self.row(row, w, &[y, x], None);
        }
        if self.evex {
            let numbers = self.compare_floats(ty, w, x, x, ORDERED);
            let dst = self.copy(x, w);
            let src = [Some(x), Some(y), None];
            let mask = Some(numbers);
            let inst = Inst::new(Op::Row(row));
            self.push(Inst { dst: Some(dst), src, w, mask, updates: true, ..inst });
            return dst;
        }
        let picked = self.row(row, w, &[x, y], None);
        let nan = self.compare_floats(ty, w, x, x, UNORDERED);
        self.blend(ty, w, nan, x, picked)
    }

    fn int_lanes(&mut self, op: ScalarOp, ty: ScalarType, w: W, v: &[V]) -> Result<V> {
        use ScalarOp::*;
        let wide = parts(ty) == 2;
        let pick = |four: &'static Row, eight: &'static Row| if wide { eight } else { four };
        let row = match op {
            Add => pick(&table::PADDD, &table::PADDQ),
            Sub => pick(&table::PSUBD, &table::PSUBQ),
            And => &table::PAND,
            Or => &table::POR,
            Xor => &table::PXOR,
            Mul if !wide => &table::PMULLD,
            Mul if self.evex => &table::PMULLQ,
            Mul => return Ok(self.multiply(w, v[0], v[1])),
            Min if !wide => &table::PMINSD,
            Max if !wide => &table::PMAXSD,
            Abs if !wide => &table::PABSD,
            Min if self.evex => &table::PMINSQ,
            Max if self.evex => &table::PMAXSQ,
            Abs if self.evex => &table::PABSQ,
            Min | Max => {
                let pair = if op == Min { [v[1], v[0]] } else { [v[0], v[1]] };
                let take = self.row(&table::PCMPGTQ, w, &pair, None);
                return Ok(self.blend(ty, w, take, v[0], v[1]));
            }
            Abs => {
                let zero = self.constant(Scalar::I64(0), w);
                let sign = self.row(&table::PCMPGTQ, w, &[zero, v[0]], None);
                let flipped = self.row(&table::PXOR, w, &[v[0], sign], None);
                return Ok(self.row(&table::PSUBQ, w, &[flipped, sign], None));
            }
            Neg => {
                let zero = self.constant(Scalar::of(ty, 0.0), w);
                let row = pick(&table::PSUBD, &table::PSUBQ);
                return Ok(self.row(row, w, &[zero, v[0]], None));
            }
            Not => {
                let ones = self.constant(Scalar::I32(-1), w);
                return Ok(self.row(&table::PXOR, w, &[v[0], ones], None));
            }
            _ => return Err(Unsupported("an operation on integers in lanes")),
        };
        Ok(self.row(row, w, v, None))
    }

    /// Products of eight-byte lanes, of those of four bytes.
    fn multiply(&mut self, w: W, x: V, y: V) -> V {
        let low = self.row(&table::PMULUDQ, w, &[x, y], None);
        let (xh, yh) = (
            self.row(&table::PSRLQ_I, w, &[x], Some(32)),
            self.row(&table::PSRLQ_I, w, &[y], Some(32)),
        );
        let a = self.row(&table::PMULUDQ, w, &[xh, y], None);
        let b = self.row(&table::PMULUDQ, w, &[x, yh], None);
        let cross = self.row(&table::PADDQ, w, &[a, b], None);
        let cross = self.row(&table::PSLLQ_I, w, &[cross], Some(32));
        self.row(&table::PADDQ, w, &[low, cross], None)
    }

    fn shift_lanes(&mut self, op: ScalarOp, ty: ScalarType, args: &[Val]) -> Result<Val> {
        use ScalarOp::*;
        let (w, wide) = (self.width(), parts(ty) == 2);
        let x = self.in_lanes(ty, &args[0])?;
        let known = match args[1] {
            Val::Const(Scalar::I32(v)) => Some(i64::from(v) & 31),
            Val::Const(Scalar::I64(v)) => Some(v & 63),
            _ => None,
        };
        let without = wide && op == ShrArith && !self.evex;
        if let (Some(by), false) = (known, without) {
            let row = match (op, wide) {
                (Shl, false) => &table::PSLLD_I,
                (Shl, true) => &table::PSLLQ_I,
                (ShrLogic, false) => &table::PSRLD_I,
                (ShrLogic, true) => &table::PSRLQ_I,
                (_, false) => &table::PSRAD_I,
                (_, true) => &table::PSRAQ_I,
            };
            return Ok(Val::Lanes(x.iter().map(|x| self.row(row, w, &[*x], Some(by))).collect()));
        }
        let by = self.in_lanes(ty, &args[1])?;
        let width = self.constant(Scalar::of(ty, if wide { 63.0 } else { 31.0 }), w);
        let mut out = vec![];
        for (x, by) in x.into_iter().zip(by) {
            let by = self.row(&table::PAND, w, &[by, width], None);
            let row = match (op, wide) {
                (Shl, false) => &table::PSLLVD,
                (Shl, true) => &table::PSLLVQ,
                (ShrLogic, false) => &table::PSRLVD,
                (ShrLogic, true) => &table::PSRLVQ,
                (_, false) => &table::PSRAVD,
                (_, true) if self.evex => &table::PSRAVQ,
                (_, true) => {
                    // The shifted sign bit, taken off and put back, fills up.
                    let sign = self.constant(Scalar::I64(i64::MIN), w);
                    let sign = self.row(&table::PSRLVQ, w, &[sign, by], None);
                    let moved = self.row(&table::PSRLVQ, w, &[x, by], None);
                    let moved = self.row(&table::PXOR, w, &[moved, sign], None);
                    out.push(self.row(&table::PSUBQ, w, &[moved, sign], None));
                    continue;
                }
            };
            out.push(self.row(row, w, &[x, by], None));
        }
        Ok(Val::Lanes(out))
    }
}

/// The power that a positive constant is of two.
fn power_of_two(value: &Val) -> Option<u32> {
    let n = match value {
        Val::Const(Scalar::I32(n)) => i64::from(*n),
        Val::Const(Scalar::I64(n)) => *n,
        _ => return None,
    };
    (n > 0 && n.count_ones() == 1).then(|| n.trailing_zeros())
}
