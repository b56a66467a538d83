//! Where the elements of a contraction's factors are.
//!
//! A thread loads the same rows in every step; only its place in the sum moves. What
//! depends on the row alone is computed once ([`Emit::row`]), the rest for each
//! element ([`Emit::element`]).

use super::contract::{Gemm, Image, Side};
use super::emit::Emit;
use super::func::{Class, V};
use tfc_abi::plan::ConvKind;
use tfc_kernel::Dim;
use tfc_kernel::contract::Conv;

/// The product a block works on: its number, and image and group of it.
#[derive(Clone, Copy)]
pub(super) struct Batch {
    pub number: V,
    image: V,
    group: V,
}

/// What is known of a row of a factor.
pub(super) enum Row {
    /// The address of the next element, and bytes to the one after.
    Pointer { at: V, step: V },
    /// Of the filter's gradient: the first channel times pixels.
    Channel(V),
    /// A pixel, as two coordinates with the padding taken off or added.
    Pixel { y: V, x: V },
    /// A channel and a place in the window, as coordinates.
    Place { channel: V, y: V, x: V },
    /// A channel.
    Plain(V),
}

/// Which factor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    A,
    B,
}

impl Gemm {
    /// The number of the parameter that is a factor.
    fn param(&self, which: Which) -> usize {
        (self.a_is ^ which as u32) as usize
    }
}

impl Emit<'_> {
    pub(super) fn batch(&mut self, gemm: &Gemm, number: V) -> Batch {
        if gemm.groups == 1 {
            let group = self.f.op(Class::B32, "mov.b32", &[&0]);
            return Batch { number, image: number, group };
        }
        let image = self.f.op(Class::B32, "div.u32", &[&number, &gemm.groups]);
        let back = self.f.op(Class::B32, "mul.lo.u32", &[&image, &gemm.groups]);
        let group = self.f.op(Class::B32, "sub.u32", &[&number, &back]);
        Batch { number, image, group }
    }

    /// `a * b + c` in 64 bits, of values of 32.
    fn wide(&mut self, a: V, b: V, c: V) -> V {
        self.f.op(Class::B64, "mad.wide.u32", &[&a, &b, &c])
    }

    /// Quotient and remainder.
    fn parts(&mut self, v: V, by: &dyn std::fmt::Display) -> (V, V) {
        let q = self.f.op(Class::B32, "div.u32", &[&v, by]);
        let back = self.f.op(Class::B32, "mul.lo.u32", &[&q, by]);
        (q, self.f.op(Class::B32, "sub.u32", &[&v, &back]))
    }

    /// What is known of row `row`, at the place `k` of the sum; `step` is how far the
    /// sum goes at a time.
    pub(super) fn row(
        &mut self,
        gemm: &Gemm,
        which: Which,
        batch: Batch,
        row: V,
        k: V,
        step: u32,
    ) -> Row {
        let side = if which == Which::A { &gemm.a } else { &gemm.b };
        let buf = self.bufs[gemm.param(which)];
        let size = gemm.dtype.size() as i64;
        match side.clone() {
            Side::Linear { by_image, by_group, by_row, by_k } => {
                let mut at = self.f.int(0);
                let terms = [
                    (batch.image, by_image),
                    (batch.group, by_group),
                    (row, by_row),
                    (k, by_k.clone()),
                ];
                for (v, stride) in terms {
                    if stride.is_zero() {
                        continue;
                    }
                    let v = self.f.op(Class::B64, "cvt.u64.u32", &[&v]);
                    let stride = self.dim(&stride);
                    at = self.f.op(Class::B64, "mad.lo.s64", &[&v, &stride, &at]);
                }
                let at = self.f.op(Class::B64, "mad.lo.s64", &[&at, &size, &buf]);
                let by_k = self.dim(&by_k);
                let step = self.f.op(Class::B64, "mul.lo.s64", &[&by_k, &(size * i64::from(step))]);
                Row::Pointer { at, step }
            }
            Side::OverPixels { per_group, .. } => {
                let per_group = self.dim32(&per_group);
                Row::Channel(self.f.op(Class::B32, "mad.lo.u32", &[&batch.group, &per_group, &row]))
            }
            Side::Image(Image::Scatter, _) if which == Which::A => Row::Plain(row),
            Side::Image(Image::Filter, c) => {
                let window = c.kernel[0] * c.kernel[1];
                let (channel, place) = self.parts(row, &window);
                let (ky, kx) = self.parts(place, &c.kernel[1]);
                let per_group = self.dim32(&channels_in(&c));
                let channel =
                    self.f.op(Class::B32, "mad.lo.u32", &[&batch.group, &per_group, &channel]);
                let y = self.scaled(ky, c.dilation[0], c.pad[0]);
                let x = self.scaled(kx, c.dilation[1], c.pad[1]);
                Row::Place { channel, y, x }
            }
            Side::Image(image, c) => {
                let width = if image == Image::Window { &c.out_size[1] } else { &c.in_size[1] };
                let width = self.dim32(width);
                let (y, x) = self.parts(row, &width);
                if image == Image::Window {
                    let y = self.scaled(y, c.stride[0], c.pad[0]);
                    let x = self.scaled(x, c.stride[1], c.pad[1]);
                    return Row::Pixel { y, x };
                }
                let y = self.f.op(Class::B32, "add.s32", &[&y, &c.pad[0]]);
                let x = self.f.op(Class::B32, "add.s32", &[&x, &c.pad[1]]);
                Row::Pixel { y, x }
            }
        }
    }

    /// `v * by - pad`.
    fn scaled(&mut self, v: V, by: u32, pad: u32) -> V {
        let v = if by == 1 { v } else { self.f.op(Class::B32, "mul.lo.u32", &[&v, &by]) };
        if pad == 0 { v } else { self.f.op(Class::B32, "sub.s32", &[&v, &pad]) }
    }

    /// The address of the element at place `k` of the sum, and whether it is one: `ok`
    /// says whether row and place are in range.
    pub(super) fn element(
        &mut self,
        gemm: &Gemm,
        which: Which,
        batch: Batch,
        row: &Row,
        k: V,
        ok: V,
    ) -> (String, V) {
        let side = if which == Which::A { &gemm.a } else { &gemm.b };
        let (at, ok) = match (row, side) {
            (Row::Pointer { at, .. }, _) => return (format!("[{at}]"), ok),
            (Row::Channel(channel), Side::OverPixels { channels, pixels, .. }) => {
                let (channels, pixels) = (self.dim32(channels), self.dim32(pixels));
                let (image, pixel) = self.parts(k, &pixels);
                let row = self.f.op(Class::B32, "mad.lo.u32", &[&image, &channels, channel]);
                let pixel = self.f.op(Class::B64, "cvt.u64.u32", &[&pixel]);
                (self.wide(row, pixels, pixel), ok)
            }
            (Row::Plain(channel), Side::Image(_, c)) => {
                // The filter, rows and sum exchanged.
                let window = c.kernel[0] * c.kernel[1];
                let (out, place) = self.parts(k, &window);
                let (per_out, per_in) = (self.dim32(&channels_out(c)), self.dim32(&channels_in(c)));
                let out = self.f.op(Class::B32, "mad.lo.u32", &[&batch.group, &per_out, &out]);
                let row = self.f.op(Class::B32, "mad.lo.u32", &[&out, &per_in, channel]);
                let place = self.f.op(Class::B64, "cvt.u64.u32", &[&place]);
                (self.f.op(Class::B64, "mad.wide.u32", &[&row, &window, &place]), ok)
            }
            (Row::Pixel { y, x }, Side::Image(image, c)) => {
                let window = c.kernel[0] * c.kernel[1];
                let (channel, place) = self.parts(k, &window);
                let (ky, kx) = self.parts(place, &c.kernel[1]);
                self.pixel(*image, c, batch, channel, [*y, *x], [ky, kx], ok)
            }
            (Row::Place { channel, y, x }, Side::Image(_, c)) => {
                let pixels = c.out_size[0].clone() * c.out_size[1].clone();
                let (pixels, width) = (self.dim32(&pixels), self.dim32(&c.out_size[1]));
                let (image, pixel) = self.parts(k, &pixels);
                let (oy, ox) = self.parts(pixel, &width);
                let y = self.f.op(Class::B32, "mad.lo.u32", &[&oy, &c.stride[0], y]);
                let x = self.f.op(Class::B32, "mad.lo.u32", &[&ox, &c.stride[1], x]);
                let channels = self.dim32(&c.in_channels);
                let plane = self.f.op(Class::B32, "mad.lo.u32", &[&image, &channels, channel]);
                self.in_plane(plane, y, x, &c.in_size, ok)
            }
            _ => unreachable!("a row of another factor"),
        };
        let buf = self.bufs[gemm.param(which)];
        let size = gemm.dtype.size();
        let at = self.f.op(Class::B64, "mad.lo.s64", &[&at, &size, &buf]);
        (format!("[{at}]"), ok)
    }

    /// The element of an image that meets place `window` of the filter.
    #[allow(clippy::too_many_arguments)]
    fn pixel(
        &mut self,
        image: Image,
        c: &Conv,
        batch: Batch,
        channel: V,
        at: [V; 2],
        window: [V; 2],
        ok: V,
    ) -> (V, V) {
        debug_assert!(c.kind != ConvKind::GradFilter);
        let forward = image == Image::Window;
        let (all, per) = match forward {
            true => (&c.in_channels, channels_in(c)),
            false => (&c.out_channels, channels_out(c)),
        };
        let (all, per) = (self.dim32(all), self.dim32(&per));
        let channel = self.f.op(Class::B32, "mad.lo.u32", &[&batch.group, &per, &channel]);
        let plane = self.f.op(Class::B32, "mad.lo.u32", &[&batch.image, &all, &channel]);
        let mut ok = ok;
        let mut place = vec![];
        for axis in 0..2 {
            let off = match c.dilation[axis] {
                1 => window[axis],
                d => self.f.op(Class::B32, "mul.lo.u32", &[&window[axis], &d]),
            };
            if forward {
                place.push(self.f.op(Class::B32, "add.s32", &[&at[axis], &off]));
                continue;
            }
            let v = self.f.op(Class::B32, "sub.s32", &[&at[axis], &off]);
            if c.stride[axis] == 1 {
                place.push(v);
                continue;
            }
            // Between the steps of the window there is nothing.
            ok = self.f.op(Class::Pred, "setp.ge.and.s32", &[&v, &0, &ok]);
            let (q, r) = self.parts(v, &c.stride[axis]);
            ok = self.f.op(Class::Pred, "setp.eq.and.u32", &[&r, &0, &ok]);
            place.push(q);
        }
        let size = if forward { &c.in_size } else { &c.out_size };
        self.in_plane(plane, place[0], place[1], size, ok)
    }

    /// Element (y, x) of a plane, if it is in it.
    fn in_plane(&mut self, plane: V, y: V, x: V, size: &[Dim; 2], ok: V) -> (V, V) {
        let (h, w) = (self.dim32(&size[0]), self.dim32(&size[1]));
        // Below zero is very large.
        let ok = self.f.op(Class::Pred, "setp.lt.and.u32", &[&y, &h, &ok]);
        let ok = self.f.op(Class::Pred, "setp.lt.and.u32", &[&x, &w, &ok]);
        let row = self.f.op(Class::B64, "cvt.u64.u32", &[&y]);
        let row = self.wide(plane, h, row);
        let width = self.dim(&size[1]);
        let x = self.f.op(Class::B64, "cvt.u64.u32", &[&x]);
        (self.f.op(Class::B64, "mad.lo.s64", &[&row, &width, &x]), ok)
    }
}

fn channels_in(c: &Conv) -> Dim {
    c.in_channels
        .div_exact(&Dim::constant(i64::from(c.groups.max(1))))
        .unwrap_or(c.in_channels.clone())
}

fn channels_out(c: &Conv) -> Dim {
    c.out_channels
        .div_exact(&Dim::constant(i64::from(c.groups.max(1))))
        .unwrap_or(c.out_channels.clone())
}
