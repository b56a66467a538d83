//! Convolutions with one filter for each channel, and their gradients, without tiles:
//! there is nothing that the elements of a tile would share.
//!
//! Of an image a thread has one element, whose window it goes through. Of the filters a
//! block has one channel: each of its threads goes through some of the pixels, with a sum
//! for each place of the window, and the sums are added in a fixed tree.

use super::contract::{Finish, Gemm, begin};
use super::emit::{self, Emit};
use super::func::{Class, V};
use super::schedule::BLOCK;
use super::sides::{Which, area};
use super::tile::sum_type;
use super::{Entry, Launch};
use tfc_abi::plan::ConvKind;
use tfc_kernel::contract::Conv;
use tfc_kernel::{DType, Dim, Kernel, Scalar, ScalarOp, ScalarType};

/// Places of a window at most: they are written out one by one.
const MOST: u32 = 49;
/// Bytes of shared memory that the sums of a block may take.
const ROOM: u32 = 40 << 10;

/// Whether a convolution is done here.
pub(super) fn is_direct(c: &Conv) -> bool {
    let channels = Dim::constant(i64::from(c.groups));
    let window = c.kernel[0].saturating_mul(c.kernel[1]);
    let room = window.saturating_mul(BLOCK * sum_type(c.dtype).size() as u32);
    let fits = c.kind != ConvKind::GradFilter || room <= ROOM;
    c.groups > 1
        && c.in_channels == channels
        && c.out_channels == channels
        && window <= MOST
        && fits
}

pub(super) fn entry(
    kernel: &Kernel,
    gemm: &Gemm,
    c: &Conv,
    finish: &Finish,
    name: &str,
) -> (Entry, String) {
    match c.kind {
        ConvKind::GradFilter => filters(kernel, gemm, c, finish, name),
        ConvKind::Forward | ConvKind::GradInput => image(kernel, gemm, c, finish, name),
    }
}

fn multiply_add(dtype: DType) -> &'static str {
    match sum_type(dtype) {
        DType::F64 => "fma.rn.f64",
        DType::I64 => "mad.lo.s64",
        DType::I32 => "mad.lo.s32",
        _ => "fma.rn.f32",
    }
}

impl Emit<'_> {
    /// One element, where it is one.
    fn element_if(&mut self, dtype: DType, there: V, place: &str) -> V {
        let (ty, class) = super::memory::memory_type(dtype);
        let v = match dtype {
            // Widened in any case.
            DType::F16 | DType::BF16 => self.f.op(class, &format!("mov.{}", class.ty()), &[&0]),
            _ => self.f.reg(class),
        };
        self.f.line(format_args!("@{there} ld.global.{ty} {v}, {place}"));
        v
    }

    /// The coordinates of a pixel's window along one axis, and whether there are such.
    fn along(&mut self, c: &Conv, axis: usize, at: V) -> Vec<(V, V)> {
        let forward = c.kind != ConvKind::GradInput;
        let size = if forward { &c.in_size } else { &c.out_size };
        let size = self.dim32(&size[axis]);
        let at = match forward {
            true => self.scaled(at, c.stride[axis], c.pad[axis]),
            false => self.f.op(Class::B32, "add.s32", &[&at, &c.pad[axis]]),
        };
        let places = 0..c.kernel[axis];
        let places = places.map(|k| {
            let by = k * c.dilation[axis];
            let op = if forward { "add.s32" } else { "sub.s32" };
            let v = self.f.op(Class::B32, op, &[&at, &by]);
            if forward || c.stride[axis] == 1 {
                // Below zero is very large.
                return (v, self.f.op(Class::Pred, "setp.lt.u32", &[&v, &size]));
            }
            let (q, r) = self.parts(v, &Dim::constant(c.stride[axis].into()));
            let there = self.f.op(Class::Pred, "setp.ge.s32", &[&v, &0]);
            let there = self.f.op(Class::Pred, "setp.eq.and.u32", &[&r, &0, &there]);
            (q, self.f.op(Class::Pred, "setp.lt.and.u32", &[&q, &size, &there]))
        });
        places.collect()
    }

    /// Calls `each` with the place in the window, the element of the plane at `plane` that
    /// is there, and whether there is one.
    fn window(
        &mut self,
        c: &Conv,
        [y, x]: [V; 2],
        plane: V,
        each: &mut dyn FnMut(&mut Self, u32, V, V),
    ) {
        let size = c.dtype.size() as u32;
        let of = if c.kind == ConvKind::GradInput { &c.out_size } else { &c.in_size };
        let width = self.dim32(&of[1]);
        let columns = self.along(c, 1, x);
        let columns: Vec<(V, V)> = columns
            .into_iter()
            .map(|(x, there)| (self.f.op(Class::B64, "mul.wide.u32", &[&x, &size]), there))
            .collect();
        for (ky, (y, y_there)) in (0u32..).zip(self.along(c, 0, y)) {
            let row = self.f.op(Class::B32, "mul.lo.u32", &[&y, &width]);
            let row = self.f.op(Class::B64, "mad.wide.u32", &[&row, &size, &plane]);
            for (kx, (x, x_there)) in (0u32..).zip(&columns) {
                let there = self.f.op(Class::Pred, "and.pred", &[&y_there, x_there]);
                let at = self.f.op(Class::B64, "add.s64", &[&row, x]);
                let v = self.element_if(c.dtype, there, &format!("[{at}]"));
                each(self, ky * c.kernel[1] + kx, v, there);
            }
        }
    }
}

/// A thread for each element of the result.
fn image(kernel: &Kernel, gemm: &Gemm, c: &Conv, finish: &Finish, name: &str) -> (Entry, String) {
    let forward = c.kind == ConvKind::Forward;
    // Small planes have small blocks.
    let most = u64::from(BLOCK);
    let pixels = gemm.n.as_const().and_then(|n| u64::try_from(n).ok()).unwrap_or(most);
    let block = pixels.min(most).next_power_of_two().clamp(32, most) as u32;
    let tiles = gemm.n.ceil_div(i64::from(block));
    let mut e = begin(kernel, gemm, std::slice::from_ref(&tiles));
    let number = e.f.special("%ctaid.x");
    let (plane, tile) = e.parts(number, &tiles);
    let tid = e.f.special("%tid.x");
    let pixel = e.f.op(Class::B32, "mad.lo.u32", &[&tile, &block, &tid]);
    let col = e.f.op(Class::B64, "cvt.u64.u32", &[&pixel]);
    e.leave_unless_below(col, &gemm.n);
    let (_, channel) = e.parts(plane, &Dim::constant(gemm.groups));
    let (of, to) = match forward {
        true => (&c.in_size, &c.out_size),
        false => (&c.out_size, &c.in_size),
    };
    let (y, x) = e.parts(pixel, &to[1]);
    let size = c.dtype.size() as u32;
    let area = e.dim32(&area(of));
    let bytes = e.f.op(Class::B64, "mul.wide.u32", &[&plane, &area]);
    let from = e.bufs[gemm.param(Which::B)];
    let from = e.f.op(Class::B64, "mad.lo.s64", &[&bytes, &size, &from]);
    let filter = e.bufs[gemm.param(Which::A)];
    let bytes = size * c.kernel[0] * c.kernel[1];
    let filter = e.f.op(Class::B64, "mad.wide.u32", &[&channel, &bytes, &filter]);
    let ty = ScalarType::of(sum_type(c.dtype));
    let sum = e.f.constant(Scalar::of(ty, 0.0));
    let sum = e.f.copy(sum);
    let fma = multiply_add(c.dtype);
    e.window(c, [y, x], from, &mut |e, place, v, there| {
        let weight = e.element_if(c.dtype, there, &format!("[{filter}+{}]", place * size));
        let (v, weight) = (e.widen(c.dtype, v), e.widen(c.dtype, weight));
        e.f.line(format_args!("@{there} {fma} {sum}, {v}, {weight}, {sum}"));
    });
    let row = e.f.op(Class::B64, "cvt.u64.u32", &[&plane]);
    let n = e.dim(&gemm.n);
    e.finish_element(finish, row, col, &n, vec![sum]);
    let grid = [tiles * gemm.batch.clone(), Dim::constant(1), Dim::constant(1)];
    let launch = Launch { entry: name.into(), grid, block, shared: 0 };
    (e.f.finish(name, &emit::params(kernel), launch), "a thread for each element".into())
}

/// A block for each channel.
fn filters(kernel: &Kernel, gemm: &Gemm, c: &Conv, finish: &Finish, name: &str) -> (Entry, String) {
    let mut e = begin(kernel, gemm, &[]);
    let channel = e.f.special("%ctaid.x");
    let tid = e.f.special("%tid.x");
    let (size, window) = (c.dtype.size() as u32, c.kernel[0] * c.kernel[1]);
    let sum_type = sum_type(c.dtype);
    let ty = ScalarType::of(sum_type);
    let zero = e.f.constant(Scalar::of(ty, 0.0));
    let sums: Vec<V> = (0..window).map(|_| e.f.copy(zero)).collect();
    let [all_in, all_out] = [&c.in_size, &c.out_size].map(|s| e.dim32(&area(s)));
    let channels = e.dim32(&Dim::constant(gemm.groups));
    let end = e.dim32(&gemm.k);
    let (image, grad) = (e.bufs[gemm.param(Which::B)], e.bufs[gemm.param(Which::A)]);
    let fma = multiply_add(c.dtype);
    let i = e.f.copy(tid);
    let (again, done) = (e.f.label(), e.f.label());
    let none = e.f.op(Class::Pred, "setp.ge.u32", &[&i, &end]);
    e.f.line(format_args!("@{none} bra {done}"));
    e.f.place(&again);
    let (number, pixel) = e.parts(i, &area(&c.out_size));
    let (y, x) = e.parts(pixel, &c.out_size[1]);
    let plane = e.f.op(Class::B32, "mad.lo.u32", &[&number, &channels, &channel]);
    let at = e.f.op(Class::B64, "cvt.u64.u32", &[&pixel]);
    let at = e.f.op(Class::B64, "mad.wide.u32", &[&plane, &all_out, &at]);
    let at = e.f.op(Class::B64, "mad.lo.s64", &[&at, &size, &grad]);
    let of_result = e.load_from("global", c.dtype, &[format!("[{at}]")], 1)[0];
    let from = e.f.op(Class::B64, "mul.wide.u32", &[&plane, &all_in]);
    let from = e.f.op(Class::B64, "mad.lo.s64", &[&from, &size, &image]);
    e.window(c, [y, x], from, &mut |e, place, v, there| {
        let v = e.widen(c.dtype, v);
        let sum = sums[place as usize];
        e.f.line(format_args!("@{there} {fma} {sum}, {v}, {of_result}, {sum}"));
    });
    e.f.op_to(i, "add.u32", &[&i, &BLOCK]);
    let more = e.f.op(Class::Pred, "setp.lt.u32", &[&i, &end]);
    e.f.line(format_args!("@{more} bra {again}"));
    e.f.place(&done);
    // A line of sums for each place.
    let each = sum_type.size() as u32;
    e.f.shared(window * BLOCK * each);
    let shared = e.f.op(Class::B32, "mov.u32", &[&"shared"]);
    let at = e.f.op(Class::B32, "mad.lo.u32", &[&tid, &each, &shared]);
    let line = |place: u32, off: u32| format!("[{at}+{}]", (place * BLOCK + off) * each);
    for (place, sum) in (0..).zip(&sums) {
        e.store_to("shared", sum_type, &[line(place, 0)], &[*sum]);
    }
    let mut half = BLOCK / 2;
    while half > 0 {
        e.f.line(format_args!("bar.sync 0"));
        let skip = e.f.label();
        let out = e.f.op(Class::Pred, "setp.ge.u32", &[&tid, &half]);
        e.f.line(format_args!("@{out} bra {skip}"));
        for place in 0..window {
            let a = e.load_from("shared", sum_type, &[line(place, 0)], 1)[0];
            let b = e.load_from("shared", sum_type, &[line(place, half)], 1)[0];
            let sum = e.scalar_op(ScalarOp::Add, ty, ty, &[a, b], &[]);
            e.store_to("shared", sum_type, &[line(place, 0)], &[sum]);
        }
        e.f.place(&skip);
        half /= 2;
    }
    e.f.line(format_args!("bar.sync 0"));
    let col = e.f.op(Class::B64, "cvt.u64.u32", &[&tid]);
    e.leave_unless_below(col, &Dim::constant(i64::from(window)));
    let first = e.f.op(Class::B32, "mad.lo.u32", &[&tid, &(BLOCK * each), &shared]);
    let sum = e.load_from("shared", sum_type, &[format!("[{first}]")], 1)[0];
    let row = e.f.op(Class::B64, "cvt.u64.u32", &[&channel]);
    let n = e.dim(&gemm.n);
    e.finish_element(finish, row, col, &n, vec![sum]);
    let grid = [gemm.batch.clone(), Dim::constant(1), Dim::constant(1)];
    let launch = Launch { entry: name.into(), grid, block: BLOCK, shared: 0 };
    let how = "a block for each channel, its sums added in a tree".into();
    (e.f.finish(name, &emit::params(kernel), launch), how)
}
