//! Encoding of a [`Plan`] as bytes.
//!
//! A magic word, [`crate::ABI_VERSION`], then every field in declaration order:
//! integers as LEB128 (signed ones zig-zagged), strings and lists with a length
//! in front, enums as one byte. The encoding of a plan is unique, so equal plans
//! give equal bytes.
//!
//! Invariants
//! - Decoding never panics and never allocates more than a small multiple of the
//!   input's length: a list of `n` items is refused unless `n` bytes are left.
//! - Nesting of `if` and `while` is bounded by [`MAX_NESTING`].

use crate::gpu::{Gpu, GpuContraction, GpuEntry, GpuRoutine, GpuVersion};
use crate::plan::*;
use crate::{ABI_VERSION, DType};

const MAGIC: [u8; 4] = *b"tfcp";
const GPU_MAGIC: [u8; 4] = *b"tfcg";

/// Deepest nesting of `If` and `While` steps a plan may have.
pub const MAX_NESTING: u32 = 128;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// Not an encoded plan at all.
    Magic,
    /// Written by another version of the compiler.
    Version(u32),
    /// The bytes end too early.
    Truncated,
    /// Bytes are left over after the plan.
    Trailing(usize),
    /// A value that no encoder writes; the text names it.
    Invalid(&'static str),
}

impl std::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            DecodeError::Magic => f.write_str("these bytes are not a plan"),
            DecodeError::Version(v) => {
                write!(f, "the plan has version {v}, this runtime reads version {ABI_VERSION}")
            }
            DecodeError::Truncated => f.write_str("the plan ends too early"),
            DecodeError::Trailing(n) => write!(f, "{n} bytes follow the plan"),
            DecodeError::Invalid(what) => write!(f, "the plan holds an invalid {what}"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl Plan {
    pub fn encode(&self) -> Vec<u8> {
        encode(MAGIC, self)
    }

    pub fn decode(bytes: &[u8]) -> Result<Plan, DecodeError> {
        decode(MAGIC, bytes)
    }
}

impl Gpu {
    pub fn encode(&self) -> Vec<u8> {
        encode(GPU_MAGIC, self)
    }

    pub fn decode(bytes: &[u8]) -> Result<Gpu, DecodeError> {
        decode(GPU_MAGIC, bytes)
    }
}

fn encode<T: Wire>(magic: [u8; 4], value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(&magic);
    out.extend_from_slice(&ABI_VERSION.to_le_bytes());
    value.put(&mut out);
    out
}

fn decode<T: Wire>(magic: [u8; 4], bytes: &[u8]) -> Result<T, DecodeError> {
    let mut r = Reader { bytes, depth: 0 };
    if r.take(4).map_err(|_| DecodeError::Magic)? != magic {
        return Err(DecodeError::Magic);
    }
    let v = r.take(4)?;
    let version = u32::from_le_bytes([v[0], v[1], v[2], v[3]]);
    if version != ABI_VERSION {
        return Err(DecodeError::Version(version));
    }
    let value = T::get(&mut r)?;
    if !r.bytes.is_empty() {
        return Err(DecodeError::Trailing(r.bytes.len()));
    }
    Ok(value)
}

struct Reader<'a> {
    bytes: &'a [u8],
    depth: u32,
}

type Get<T> = Result<T, DecodeError>;

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Get<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(n).ok_or(DecodeError::Truncated)?;
        self.bytes = tail;
        Ok(head)
    }

    fn byte(&mut self) -> Get<u8> {
        Ok(self.take(1)?[0])
    }

    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Get<T>) -> Get<T> {
        if self.depth == MAX_NESTING {
            return Err(DecodeError::Invalid("nesting depth"));
        }
        self.depth += 1;
        let value = f(self);
        self.depth -= 1;
        value
    }
}

/// A value with one encoding.
trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(r: &mut Reader<'_>) -> Get<Self>;
}

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        let mut v = *self;
        while v >= 0x80 {
            out.push(v as u8 | 0x80);
            v >>= 7;
        }
        out.push(v as u8);
    }

    fn get(r: &mut Reader<'_>) -> Get<u64> {
        let mut v = 0u64;
        for shift in (0..64).step_by(7) {
            let b = r.byte()?;
            let part = u64::from(b & 0x7f);
            if shift == 63 && part > 1 {
                return Err(DecodeError::Invalid("integer"));
            }
            v |= part << shift;
            if b & 0x80 == 0 {
                // A zero last byte would be a second encoding of the same number.
                return if b == 0 && shift != 0 {
                    Err(DecodeError::Invalid("integer"))
                } else {
                    Ok(v)
                };
            }
        }
        Err(DecodeError::Invalid("integer"))
    }
}

impl Wire for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        (((*self << 1) ^ (*self >> 63)) as u64).put(out);
    }

    fn get(r: &mut Reader<'_>) -> Get<i64> {
        let v = u64::get(r)?;
        Ok((v >> 1) as i64 ^ -((v & 1) as i64))
    }
}

impl Wire for u32 {
    fn put(&self, out: &mut Vec<u8>) {
        u64::from(*self).put(out);
    }

    fn get(r: &mut Reader<'_>) -> Get<u32> {
        u32::try_from(u64::get(r)?).map_err(|_| DecodeError::Invalid("index"))
    }
}

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn get(r: &mut Reader<'_>) -> Get<bool> {
        match r.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Invalid("truth value")),
        }
    }
}

impl Wire for u8 {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }

    fn get(r: &mut Reader<'_>) -> Get<u8> {
        r.byte()
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn get(r: &mut Reader<'_>) -> Get<String> {
        let n = length(r)?;
        let bytes = r.take(n)?;
        Ok(std::str::from_utf8(bytes).map_err(|_| DecodeError::Invalid("text"))?.to_owned())
    }
}

/// A list's length, at most the bytes that are left.
fn length(r: &mut Reader<'_>) -> Get<usize> {
    let n = u64::get(r)?;
    usize::try_from(n).ok().filter(|n| *n <= r.bytes.len()).ok_or(DecodeError::Truncated)
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        for item in self {
            item.put(out);
        }
    }

    fn get(r: &mut Reader<'_>) -> Get<Vec<T>> {
        let n = length(r)?;
        // Items are larger than their bytes; let hostile lengths grow the list
        // only as items really arrive.
        let mut items = Vec::with_capacity(n.min(256));
        for _ in 0..n {
            items.push(T::get(r)?);
        }
        Ok(items)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(v) = self {
            v.put(out);
        }
    }

    fn get(r: &mut Reader<'_>) -> Get<Option<T>> {
        Ok(if bool::get(r)? { Some(T::get(r)?) } else { None })
    }
}

impl Wire for [u8; 32] {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }

    fn get(r: &mut Reader<'_>) -> Get<[u8; 32]> {
        let mut hash = [0; 32];
        hash.copy_from_slice(r.take(32)?);
        Ok(hash)
    }
}

impl Wire for [u32; 2] {
    fn put(&self, out: &mut Vec<u8>) {
        self[0].put(out);
        self[1].put(out);
    }

    fn get(r: &mut Reader<'_>) -> Get<[u32; 2]> {
        Ok([u32::get(r)?, u32::get(r)?])
    }
}

/// Enums whose `as u8` is their code.
macro_rules! wire_code {
    ($($ty:ident, $what:literal;)*) => {$(
        impl Wire for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(*self as u8);
            }

            fn get(r: &mut Reader<'_>) -> Get<$ty> {
                $ty::from_code(r.byte()?).ok_or(DecodeError::Invalid($what))
            }
        }
    )*};
}

wire_code! {
    DType, "element type";
    ConvKind, "convolution kind";
    Func, "routine";
    DeviceKind, "kind of device";
    Format, "file format";
    QueueAction, "queue action";
    Combine, "way to combine";
}

/// Structs, field by field. The compiler refuses a forgotten field.
macro_rules! wire_struct {
    ($($ty:ident { $($field:ident),* $(,)? })*) => {$(
        impl Wire for $ty {
            fn put(&self, out: &mut Vec<u8>) {
                let $ty { $($field),* } = self;
                $($field.put(out);)*
            }

            fn get(r: &mut Reader<'_>) -> Get<$ty> {
                $(let $field = Wire::get(r)?;)*
                Ok($ty { $($field),* })
            }
        }
    )*};
}

wire_struct! {
    Plan {
        name, graph_hash, dims, vars, consts, kernels, entries, init, source, doc, queues, devices,
        asked, tasks, strict, max_memory, recompute,
    }
    Device { kind, placement }
    Task { name, address }
    PartOf { whole, task }
    Message { peer, buf, name, place }
    DimInfo { name, min, max }
    VarInfo { name, dtype, shape, user, random, zero, task, asked }
    ConstInfo { dtype, shape, offset, len }
    Entry { name, doc, params, results, exprs, buffers, slots, steps, writes, conditions, runner, replica_of, part }
    Condition { value, message, place }
    Port { name, dtype, shape, buf, text }
    Buffer { dtype, len, shape, home, device }
    Dispatch { device, asked, after, line }
    Launch { kernel, bufs, outputs, dims, extent, cost, splits, partial }
    MatMul {
        dtype, a, b, c, m, n, k, batch, a_stride, b_stride, trans_a, trans_b, epilogue,
    }
    Epilogue { kernel, bufs, outputs, dims }
    Conv {
        kind, dtype, lhs, rhs, out, batch, in_channels, in_h, in_w, out_channels, out_h, out_w,
        kernel, stride, dilation, pad, groups, epilogue,
    }
    Call { func, bufs, ints }
    QueueInfo { name, kind, parts }
    Part { dtype, shape }
    ReaderInfo { format, paths, keys, epochs, skip }
    Exchange { combine, bufs, name, place }
    QueueStep { action, queue, bufs, count, place }
    CheckIndex { ids, size, width, axis, name, user, place }
    CheckFinite { bufs, name, user, names, place }
    Gpu { versions }
    GpuVersion { arch, ptx, text, text_len, kernels, contractions, routines }
    GpuEntry { name, grid, block }
    GpuContraction { entry, product, launches, workspace }
    GpuRoutine { func, dtype, ids, launch }
}

impl Wire for QueueKind {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            QueueKind::Fifo { capacity } => {
                out.push(0);
                capacity.put(out);
            }
            QueueKind::Shuffle { capacity, min, seed } => {
                out.push(1);
                capacity.put(out);
                min.put(out);
                seed.put(out);
            }
            QueueKind::Priority { capacity } => {
                out.push(2);
                capacity.put(out);
            }
            QueueKind::Reader(info) => {
                out.push(3);
                info.put(out);
            }
        }
    }

    fn get(r: &mut Reader<'_>) -> Get<QueueKind> {
        Ok(match r.byte()? {
            0 => QueueKind::Fifo { capacity: Wire::get(r)? },
            1 => QueueKind::Shuffle {
                capacity: Wire::get(r)?,
                min: Wire::get(r)?,
                seed: Wire::get(r)?,
            },
            2 => QueueKind::Priority { capacity: Wire::get(r)? },
            3 => QueueKind::Reader(Wire::get(r)?),
            _ => return Err(DecodeError::Invalid("queue kind")),
        })
    }
}

impl Wire for Expr {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn get(r: &mut Reader<'_>) -> Get<Expr> {
        Ok(Expr(Wire::get(r)?))
    }
}

impl Wire for ExprOp {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            ExprOp::Const(c) => {
                out.push(0);
                c.put(out);
            }
            ExprOp::Dim(d) => {
                out.push(1);
                d.put(out);
            }
            ExprOp::Add => out.push(2),
            ExprOp::Mul => out.push(3),
            ExprOp::FloorDiv(d) => {
                out.push(4);
                d.put(out);
            }
            ExprOp::Max => out.push(5),
        }
    }

    fn get(r: &mut Reader<'_>) -> Get<ExprOp> {
        Ok(match r.byte()? {
            0 => ExprOp::Const(Wire::get(r)?),
            1 => ExprOp::Dim(Wire::get(r)?),
            2 => ExprOp::Add,
            3 => ExprOp::Mul,
            4 => ExprOp::FloorDiv(Wire::get(r)?),
            5 => ExprOp::Max,
            _ => return Err(DecodeError::Invalid("size expression")),
        })
    }
}

impl Wire for Home {
    fn put(&self, out: &mut Vec<u8>) {
        let (code, index, count) = match *self {
            Home::Param(i) => (0, i, None),
            Home::Result(i) => (1, i, None),
            Home::Var(i) => (2, i, None),
            Home::Const(i) => (3, i, None),
            Home::Slot(i, count) => (4, i, Some(count)),
        };
        out.push(code);
        index.put(out);
        if let Some(count) = count {
            count.put(out);
        }
    }

    fn get(r: &mut Reader<'_>) -> Get<Home> {
        let code = r.byte()?;
        let index = u32::get(r)?;
        Ok(match code {
            0 => Home::Param(index),
            1 => Home::Result(index),
            2 => Home::Var(index),
            3 => Home::Const(index),
            4 => Home::Slot(index, Wire::get(r)?),
            _ => return Err(DecodeError::Invalid("buffer home")),
        })
    }
}

/// Each step with its dispatch behind it.
impl Wire for Steps {
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u64).put(out);
        for (step, dispatch) in self.iter().zip(self.dispatch()) {
            step.put(out);
            dispatch.put(out);
        }
    }

    fn get(r: &mut Reader<'_>) -> Get<Steps> {
        let pairs: Vec<(Step, Dispatch)> = Wire::get(r)?;
        Ok(Steps::from_pairs(pairs))
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }

    fn get(r: &mut Reader<'_>) -> Get<(A, B)> {
        Ok((A::get(r)?, B::get(r)?))
    }
}

impl Wire for Step {
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Step::Launch(launch) => {
                out.push(0);
                launch.put(out);
            }
            Step::MatMul(matmul) => {
                out.push(1);
                matmul.put(out);
            }
            Step::Conv(conv) => {
                out.push(2);
                conv.put(out);
            }
            Step::Copy { src, dst } => {
                out.push(3);
                src.put(out);
                dst.put(out);
            }
            Step::Call(call) => {
                out.push(4);
                call.put(out);
            }
            Step::Print { label, buf } => {
                out.push(5);
                label.put(out);
                buf.put(out);
            }
            Step::Assert { cond, message, place } => {
                out.push(6);
                cond.put(out);
                message.put(out);
                place.put(out);
            }
            Step::CheckIndex(check) => {
                out.push(22);
                check.put(out);
            }
            Step::CheckFinite(check) => {
                out.push(23);
                check.put(out);
            }
            Step::Save { path, names, bufs, place } => {
                out.push(20);
                path.put(out);
                names.put(out);
                bufs.put(out);
                place.put(out);
            }
            Step::Restore { path, key, buf, place } => {
                out.push(21);
                path.put(out);
                key.put(out);
                buf.put(out);
                place.put(out);
            }
            Step::If { cond, then, otherwise } => {
                out.push(7);
                cond.put(out);
                then.put(out);
                otherwise.put(out);
            }
            Step::While { head, cond, body } => {
                out.push(8);
                head.put(out);
                cond.put(out);
                body.put(out);
            }
            Step::Push { stack, src } => {
                out.push(9);
                stack.put(out);
                src.put(out);
            }
            Step::Pop { stack, dst, name } => {
                out.push(10);
                stack.put(out);
                dst.put(out);
                name.put(out);
            }
            Step::Queue(step) => {
                out.push(16);
                step.put(out);
            }
            Step::Exchange(step) => {
                out.push(24);
                step.put(out);
            }
            Step::Send(message) => {
                out.push(25);
                message.put(out);
            }
            Step::Recv(message) => {
                out.push(26);
                message.put(out);
            }
        }
    }

    fn get(r: &mut Reader<'_>) -> Get<Step> {
        Ok(match r.byte()? {
            0 => Step::Launch(Wire::get(r)?),
            1 => Step::MatMul(Wire::get(r)?),
            2 => Step::Conv(Wire::get(r)?),
            3 => Step::Copy { src: Wire::get(r)?, dst: Wire::get(r)? },
            4 => Step::Call(Wire::get(r)?),
            5 => Step::Print { label: Wire::get(r)?, buf: Wire::get(r)? },
            6 => Step::Assert { cond: Wire::get(r)?, message: Wire::get(r)?, place: Wire::get(r)? },
            22 => Step::CheckIndex(Wire::get(r)?),
            23 => Step::CheckFinite(Wire::get(r)?),
            20 => Step::Save {
                path: Wire::get(r)?,
                names: Wire::get(r)?,
                bufs: Wire::get(r)?,
                place: Wire::get(r)?,
            },
            21 => Step::Restore {
                path: Wire::get(r)?,
                key: Wire::get(r)?,
                buf: Wire::get(r)?,
                place: Wire::get(r)?,
            },
            7 => r.nested(|r| {
                Ok(Step::If { cond: Wire::get(r)?, then: Wire::get(r)?, otherwise: Wire::get(r)? })
            })?,
            8 => r.nested(|r| {
                Ok(Step::While { head: Wire::get(r)?, cond: Wire::get(r)?, body: Wire::get(r)? })
            })?,
            9 => Step::Push { stack: Wire::get(r)?, src: Wire::get(r)? },
            10 => Step::Pop { stack: Wire::get(r)?, dst: Wire::get(r)?, name: Wire::get(r)? },
            16 => Step::Queue(Wire::get(r)?),
            24 => Step::Exchange(Wire::get(r)?),
            25 => Step::Send(Wire::get(r)?),
            26 => Step::Recv(Wire::get(r)?),
            _ => return Err(DecodeError::Invalid("step")),
        })
    }
}
