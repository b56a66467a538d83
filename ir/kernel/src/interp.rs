//! An interpreter of kernels: slow, plain, checked.
//!
//! It runs one iteration after the other, but keeps the partial results of
//! reductions that [`super::PARTIALS`] speaks of, so that an expanded kernel gives
//! the bits of compiled code. Elementary functions are the C library's unless the
//! kernel was expanded.

use super::{GROUP, Ix, Kernel, Loop, LoopKind, LoopVar, PARTIALS};
use super::{Reg, Scalar, ScalarOp, ScalarType, Stmt};
use crate::DType;
use std::collections::BTreeMap;
use tfc_abi::float::round_to_odd;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An address outside its buffer.
    OutOfBounds { buf: u32, at: i64, len: i64 },
    /// A size that overflows or depends on a dim without value.
    Size(String),
    /// The kernel does not verify, or the arguments do not fit it.
    Malformed(String),
}

/// Runs `kernel` on buffers of bytes, as `tfc_abi::KernelFn` would: `dims` are the
/// values of `kernel.dims`, `range` bounds the ranged loops.
pub fn run(
    kernel: &Kernel,
    bufs: &mut [Vec<u8>],
    dims: &[i64],
    range: [i64; 4],
) -> Result<(), Fault> {
    super::verify::verify(kernel).map_err(Fault::Malformed)?;
    if bufs.len() != kernel.bufs.len() || dims.len() != kernel.dims.len() {
        return Err(Fault::Malformed("wrong number of buffers or dims".into()));
    }
    let dims = kernel.dims.iter().map(|d| d.to_string()).zip(dims.iter().copied()).collect();
    let locals = vec![BTreeMap::new(); kernel.locals.len()];
    let (regs, vars) = (BTreeMap::new(), BTreeMap::new());
    let mut m = Machine { kernel, bufs, locals, dims, range, regs, vars };
    m.stmts(&kernel.body, 0)
}

struct Machine<'a> {
    kernel: &'a Kernel,
    bufs: &'a mut [Vec<u8>],
    /// What was stored in each local buffer.
    locals: Vec<BTreeMap<i64, Vec<u8>>>,
    dims: BTreeMap<String, i64>,
    range: [i64; 4],
    regs: BTreeMap<Reg, Scalar>,
    vars: BTreeMap<LoopVar, i64>,
}

impl Machine<'_> {
    fn size(&self, dim: &crate::Dim) -> Result<i64, Fault> {
        dim.eval(&|name| self.dims.get(name).copied()).ok_or(Fault::Size(dim.to_string()))
    }

    fn reg(&self, reg: Reg) -> Result<Scalar, Fault> {
        self.regs.get(&reg).copied().ok_or_else(|| Fault::Malformed(format!("{reg} has no value")))
    }

    fn ix(&self, ix: &Ix) -> Result<i64, Fault> {
        let mut sum = self.size(&ix.offset)?;
        for (var, stride) in &ix.terms {
            let Some(i) = self.vars.get(var).copied() else {
                return Err(Fault::Malformed(format!("{var} is used outside its loop")));
            };
            sum = sum.wrapping_add(i.wrapping_mul(self.size(stride)?));
        }
        for (reg, stride) in &ix.regs {
            let Scalar::I64(v) = self.reg(*reg)? else {
                return Err(Fault::Malformed(format!("{reg} is no index")));
            };
            sum = sum.wrapping_add(v.wrapping_mul(self.size(stride)?));
        }
        Ok(sum)
    }

    /// The bytes of one element.
    fn place(&self, buf: u32, at: &Ix) -> Result<std::ops::Range<usize>, Fault> {
        let dtype = self.kernel.bufs[buf as usize].dtype;
        let len = (self.bufs[buf as usize].len() / dtype.size()) as i64;
        let at = self.ix(at)?;
        if at < 0 || at >= len {
            return Err(Fault::OutOfBounds { buf, at, len });
        }
        let start = at as usize * dtype.size();
        Ok(start..start + dtype.size())
    }

    /// The place of an element of a local buffer.
    fn local(&self, buf: u32, at: &Ix) -> Result<Option<(usize, i64)>, Fault> {
        let Some(local) = self.kernel.local(buf) else { return Ok(None) };
        let (at, len) = (self.ix(at)?, self.size(&local.len)?);
        if at < 0 || at >= len {
            return Err(Fault::OutOfBounds { buf, at, len });
        }
        Ok(Some((buf as usize - self.bufs.len(), at)))
    }

    fn load(&self, buf: u32, at: &Ix) -> Result<Scalar, Fault> {
        if let Some((local, at)) = self.local(buf, at)? {
            let nothing =
                || Fault::Malformed(format!("b{buf}[{at}] is loaded before it is stored"));
            let held = self.locals[local].get(&at).ok_or_else(nothing)?;
            return Ok(read(self.kernel.dtype(buf), held));
        }
        let place = self.place(buf, at)?;
        Ok(read(self.kernel.bufs[buf as usize].dtype, &self.bufs[buf as usize][place]))
    }

    fn store(&mut self, buf: u32, at: &Ix, value: Scalar) -> Result<(), Fault> {
        if let Some((local, at)) = self.local(buf, at)? {
            let dtype = self.kernel.dtype(buf);
            let mut bytes = vec![0; dtype.size()];
            write(dtype, value, &mut bytes);
            self.locals[local].insert(at, bytes);
            return Ok(());
        }
        let place = self.place(buf, at)?;
        let dtype = self.kernel.bufs[buf as usize].dtype;
        write(dtype, value, &mut self.bufs[buf as usize][place]);
        Ok(())
    }

    fn stmts(&mut self, stmts: &[Stmt], ranged: usize) -> Result<(), Fault> {
        for stmt in stmts {
            match stmt {
                Stmt::Const { dst, value } => {
                    self.regs.insert(*dst, *value);
                }
                Stmt::Op { dst, op, args } => {
                    let args = args.iter().map(|a| self.reg(*a)).collect::<Result<Vec<_>, _>>()?;
                    let value = apply(*op, self.kernel.regs[*dst], &args)?;
                    self.regs.insert(*dst, value);
                }
                Stmt::Index { dst, ix } => {
                    let v = self.ix(ix)?;
                    self.regs.insert(*dst, Scalar::I64(v));
                }
                Stmt::Load { dst, buf, at } => {
                    let value = self.load(*buf, at)?;
                    self.regs.insert(*dst, value);
                }
                Stmt::Store { buf, at, value } => {
                    let value = self.reg(*value)?;
                    self.store(*buf, at, value)?;
                }
                Stmt::Loop(l) => self.one_loop(l, ranged)?,
            }
        }
        Ok(())
    }

    fn one_loop(&mut self, l: &Loop, ranged: usize) -> Result<(), Fault> {
        let (lo, hi) = if l.ranged {
            (self.range[2 * ranged.min(1)], self.range[2 * ranged.min(1) + 1])
        } else {
            (0, self.size(&l.extent)?)
        };
        let mut carried = vec![];
        for c in &l.carried {
            carried.push(self.reg(c.init)?);
        }
        let ranged = ranged + usize::from(l.ranged);
        let partials = l.kind == LoopKind::Reduce { partials: true };
        let grouped = if partials { lo + (hi - lo).max(0) / GROUP * GROUP } else { lo };
        if lo < grouped {
            let tys = l.carried.iter().map(|c| self.kernel.regs[c.acc]);
            let identity: Vec<Scalar> =
                l.carried.iter().zip(tys).map(|(c, ty)| c.combine.identity(ty)).collect();
            let mut partials = vec![identity; PARTIALS as usize];
            for i in lo..grouped {
                self.iteration(l, i, &mut partials[((i - lo) % PARTIALS) as usize], ranged)?;
            }
            for (at, c) in l.carried.iter().enumerate() {
                let of = |p: usize, q: usize, partials: &[Vec<Scalar>]| {
                    let (a, b) = (partials[p][at], partials[q][at]);
                    apply(c.combine.op(), a.ty(), &[a, b])
                };
                let mut half = PARTIALS as usize / 2;
                while half > 0 {
                    for p in 0..half {
                        partials[p][at] = of(p, p + half, &partials)?;
                    }
                    half /= 2;
                }
                let (before, all) = (carried[at], partials[0][at]);
                carried[at] = apply(c.combine.op(), before.ty(), &[before, all])?;
            }
        }
        for i in grouped..hi {
            self.iteration(l, i, &mut carried, ranged)?;
        }
        for (c, v) in l.carried.iter().zip(carried) {
            self.regs.insert(c.result, v);
        }
        Ok(())
    }

    /// One iteration of a loop on these carried values.
    fn iteration(
        &mut self,
        l: &Loop,
        i: i64,
        carried: &mut [Scalar],
        ranged: usize,
    ) -> Result<(), Fault> {
        self.vars.insert(l.var, i);
        for (local, held) in self.kernel.locals.iter().zip(&mut self.locals) {
            if local.within == Some(l.var) {
                held.clear();
            }
        }
        for (c, v) in l.carried.iter().zip(carried.iter()) {
            self.regs.insert(c.acc, *v);
        }
        self.stmts(&l.body, ranged)?;
        for (c, v) in l.carried.iter().zip(carried) {
            *v = self.reg(c.next)?;
        }
        Ok(())
    }
}

fn bytes<const N: usize>(b: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(b);
    out
}

fn read(dtype: DType, b: &[u8]) -> Scalar {
    match dtype {
        DType::F32 => Scalar::F32(u32::from_le_bytes(bytes(b))),
        DType::F64 => Scalar::F64(u64::from_le_bytes(bytes(b))),
        DType::F16 => Scalar::F32(half::f16::from_le_bytes(bytes(b)).to_f32().to_bits()),
        DType::BF16 => Scalar::F32(half::bf16::from_le_bytes(bytes(b)).to_f32().to_bits()),
        DType::I8 => Scalar::I32(i32::from(b[0] as i8)),
        DType::U8 => Scalar::I32(i32::from(b[0])),
        DType::I32 => Scalar::I32(i32::from_le_bytes(bytes(b))),
        DType::I64 => Scalar::I64(i64::from_le_bytes(bytes(b))),
        DType::Bool => Scalar::Bool(b[0] != 0),
    }
}

fn write(dtype: DType, value: Scalar, b: &mut [u8]) {
    match (dtype, value) {
        (DType::F16, Scalar::F32(v)) => {
            b.copy_from_slice(&half::f16::from_f32(f32::from_bits(v)).to_le_bytes());
        }
        (DType::BF16, Scalar::F32(v)) => {
            b.copy_from_slice(&half::bf16::from_f32(f32::from_bits(v)).to_le_bytes());
        }
        (DType::I8 | DType::U8, Scalar::I32(v)) => b[0] = v as u8,
        (_, Scalar::F32(v)) => b.copy_from_slice(&v.to_le_bytes()),
        (_, Scalar::F64(v)) => b.copy_from_slice(&v.to_le_bytes()),
        (_, Scalar::I32(v)) => b.copy_from_slice(&v.to_le_bytes()),
        (_, Scalar::I64(v)) => b.copy_from_slice(&v.to_le_bytes()),
        (_, Scalar::Bool(v)) => b[0] = u8::from(v),
    }
}

/// One operation on constants; `to` is the type of the result.
pub fn apply(op: ScalarOp, to: ScalarType, args: &[Scalar]) -> Result<Scalar, Fault> {
    let ill_typed = || Fault::Malformed(format!("{op:?} of {args:?} to {to:?}"));
    let result = match (op, args) {
        (ScalarOp::Convert, [x]) => Some(convert(*x, to)),
        (ScalarOp::Bitcast, [x]) => bitcast(*x, to),
        (ScalarOp::Select, [Scalar::Bool(c), x, y]) => Some(if *c { *x } else { *y }),
        (_, [Scalar::F32(_), ..]) => {
            let mut values = [None; 3];
            for (v, arg) in values.iter_mut().zip(args) {
                let Scalar::F32(bits) = arg else { return Err(ill_typed()) };
                *v = Some(f32::from_bits(*bits));
            }
            float32(op, values)
        }
        (_, [Scalar::F64(_), ..]) => {
            let mut values = [None; 3];
            for (v, arg) in values.iter_mut().zip(args) {
                let Scalar::F64(bits) = arg else { return Err(ill_typed()) };
                *v = Some(f64::from_bits(*bits));
            }
            float64(op, values)
        }
        (_, [Scalar::I32(x)]) => int32(op, *x, None),
        (_, [Scalar::I32(x), Scalar::I32(y)]) => int32(op, *x, Some(*y)),
        (_, [Scalar::I64(x)]) => int64(op, *x, None),
        (_, [Scalar::I64(x), Scalar::I64(y)]) => int64(op, *x, Some(*y)),
        (ScalarOp::Not, [Scalar::Bool(x)]) => Some(Scalar::Bool(!x)),
        (_, [Scalar::Bool(x), Scalar::Bool(y)]) => match op {
            ScalarOp::And | ScalarOp::Min => Some(Scalar::Bool(x & y)),
            ScalarOp::Or | ScalarOp::Max => Some(Scalar::Bool(x | y)),
            ScalarOp::Xor | ScalarOp::Ne => Some(Scalar::Bool(x ^ y)),
            ScalarOp::Eq => Some(Scalar::Bool(x == y)),
            _ => None,
        },
        _ => None,
    };
    result.ok_or_else(ill_typed)
}

macro_rules! float_ops {
    ($name:ident, $t:ty, $scalar:ident) => {
        /// `None` when there is no such operation on so many of these.
        fn $name(op: ScalarOp, values: [Option<$t>; 3]) -> Option<Scalar> {
            use ScalarOp::*;
            let v = match (op, values) {
                (_, [Some(x), Some(y), None]) => match op {
                    Eq => return Some(Scalar::Bool(x == y)),
                    Ne => return Some(Scalar::Bool(x != y)),
                    Lt => return Some(Scalar::Bool(x < y)),
                    Le => return Some(Scalar::Bool(x <= y)),
                    Add => x + y,
                    Sub => x - y,
                    Mul => x * y,
                    Div => x / y,
                    Min if x.is_nan() || x < y => x,
                    Max if x.is_nan() || x > y => x,
                    Min | Max => y,
                    // A power of which both halves are numbers; the first product is exact.
                    Scale => {
                        let first = (y / 2.0).trunc();
                        x * first.exp2() * (y - first).exp2()
                    }
                    Elementary(f) if f.def().arity == 2 => {
                        (f.def().reference)(&[f64::from(x), f64::from(y)]) as $t
                    }
                    _ => return None,
                },
                (Fma, [Some(x), Some(y), Some(z)]) => x.mul_add(y, z),
                (_, [Some(x), None, None]) => match op {
                    Neg => -x,
                    Abs => x.abs(),
                    Sqrt => x.sqrt(),
                    Floor => x.floor(),
                    Ceil => x.ceil(),
                    RoundEven => x.round_ties_even(),
                    Trunc => x.trunc(),
                    Elementary(f) if f.def().arity == 1 => {
                        (f.def().reference)(&[f64::from(x)]) as $t
                    }
                    RoundF16 => half::f16::from_f32(round_to_odd(f64::from(x))).to_f64() as $t,
                    RoundBF16 => half::bf16::from_f32(round_to_odd(f64::from(x))).to_f64() as $t,
                    _ => return None,
                },
                _ => return None,
            };
            Some(Scalar::$scalar(v.to_bits()))
        }
    };
}
float_ops!(float32, f32, F32);
float_ops!(float64, f64, F64);

macro_rules! int_ops {
    ($name:ident, $t:ty, $u:ty, $scalar:ident) => {
        /// `None` when there is no such operation on so many of these.
        fn $name(op: ScalarOp, x: $t, y: Option<$t>) -> Option<Scalar> {
            use ScalarOp::*;
            let Some(y) = y else {
                return Some(Scalar::$scalar(match op {
                    Neg => x.wrapping_neg(),
                    Abs => x.wrapping_abs(),
                    Not => !x,
                    WrapI8 => x as i8 as $t,
                    WrapU8 => x as u8 as $t,
                    _ => return None,
                }));
            };
            Some(Scalar::$scalar(match op {
                Eq => return Some(Scalar::Bool(x == y)),
                Ne => return Some(Scalar::Bool(x != y)),
                Lt => return Some(Scalar::Bool(x < y)),
                Le => return Some(Scalar::Bool(x <= y)),
                Add => x.wrapping_add(y),
                Sub => x.wrapping_sub(y),
                Mul => x.wrapping_mul(y),
                Div | Rem if y == 0 => 0,
                Div => x.wrapping_div(y),
                Rem => x.wrapping_rem(y),
                Min => x.min(y),
                Max => x.max(y),
                And => x & y,
                Or => x | y,
                Xor => x ^ y,
                Shl => x.wrapping_shl(y as u32),
                ShrArith => x.wrapping_shr(y as u32),
                ShrLogic => (x as $u).wrapping_shr(y as u32) as $t,
                _ => return None,
            }))
        }
    };
}
int_ops!(int32, i32, u32, I32);
int_ops!(int64, i64, u64, I64);

fn convert(x: Scalar, to: ScalarType) -> Scalar {
    macro_rules! from {
        ($v:expr, $nonzero:expr) => {
            match to {
                ScalarType::F32 => Scalar::F32(($v as f32).to_bits()),
                ScalarType::F64 => Scalar::F64(($v as f64).to_bits()),
                ScalarType::I32 => Scalar::I32($v as i32),
                ScalarType::I64 => Scalar::I64($v as i64),
                ScalarType::Bool => Scalar::Bool($nonzero),
            }
        };
    }
    match x {
        Scalar::F32(b) => from!(f32::from_bits(b), f32::from_bits(b) != 0.0),
        Scalar::F64(b) => from!(f64::from_bits(b), f64::from_bits(b) != 0.0),
        Scalar::I32(v) => from!(v, v != 0),
        Scalar::I64(v) => from!(v, v != 0),
        Scalar::Bool(v) => from!(i32::from(v), v),
    }
}

/// `None` when the types have not the same size.
fn bitcast(x: Scalar, to: ScalarType) -> Option<Scalar> {
    Some(match (x, to) {
        (Scalar::F32(b), ScalarType::I32) => Scalar::I32(b as i32),
        (Scalar::I32(v), ScalarType::F32) => Scalar::F32(v as u32),
        (Scalar::F64(b), ScalarType::I64) => Scalar::I64(b as i64),
        (Scalar::I64(v), ScalarType::F64) => Scalar::F64(v as u64),
        (x, to) if x.ty() == to => x,
        _ => return None,
    })
}
