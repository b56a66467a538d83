//! Where the elements of a contraction's factors are.
//!
//! A thread loads the same rows in every step, all at one place in the sum; only that
//! moves. What depends on the row alone is computed once ([`Emit::row`]), what depends on
//! the place alone once for each step ([`Emit::term`]); where the two meet is the
//! element ([`Emit::element`]).

use super::contract::{Gemm, Image, Side};
use super::emit::Emit;
use super::func::{Class, V};
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
    /// An address, to which the place in the sum adds. Of an image also coordinates:
    /// with those of the place they say whether there is an element.
    Fixed { at: V, yx: Option<[V; 2]> },
    /// A pixel that windows may step over, as coordinates.
    Strided { yx: [V; 2] },
    /// Elements from where a [`Walk`] is. With a window, bits say which of its places are
    /// in the image.
    Near { off: V, mask: Option<V> },
}

/// Where the sum is, when it goes over channels and a window: from tile to tile it moves
/// by additions alone.
pub(super) struct Walk {
    /// The place in the window.
    place: V,
    window: u32,
    /// The first element of the channel, in bytes of the first row.
    at: V,
    /// Bytes that a tile, and the next channel, are further.
    tile: Option<V>,
    channel: V,
    /// Where shared memory has how many elements a place of the window adds; by itself as
    /// many as its number.
    table: Option<u32>,
    terms: u32,
}

/// Places of a window that has a bit for each.
const BITS: u32 = 32;

/// The convolution of a factor that a [`Walk`] goes through: its second one, if windows
/// step over no pixel; or the filter of its input's gradient.
pub(super) fn walked(gemm: &Gemm, which: Which) -> Option<(&Conv, Image)> {
    let side = if which == Which::A { &gemm.a } else { &gemm.b };
    match side {
        Side::Image(Image::Scatter, c) if which == Which::A => Some((c, Image::Scatter)),
        Side::Image(Image::Filter, _) => None,
        Side::Image(image, c) => {
            let small = c.kernel[0] * c.kernel[1] <= BITS;
            let steps = *image == Image::Window || c.stride == [1, 1];
            (small && steps).then_some((c, *image))
        }
        _ => None,
    }
}

/// What is known of a place in the sum: the same for all rows.
pub(super) struct Term {
    /// Bytes from a row's address to the element.
    bytes: V,
    /// What is added to its coordinates.
    yx: Option<[V; 2]>,
}

/// Which factor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Which {
    A,
    B,
}

/// Elements from one row of a factor that is [`walked`] to the next, if always as many. Of
/// the filter that is so where tiles of so many rows have all of them.
pub(super) fn even(gemm: &Gemm, which: Which, rows: u32) -> Option<u32> {
    let (c, image) = walked(gemm, which)?;
    match (which, image) {
        (Which::A, _) => {
            let whole = gemm.m.div_exact(&Dim::constant(i64::from(rows))).is_some();
            whole.then_some(c.kernel[0] * c.kernel[1])
        }
        (_, Image::Window) if c.stride != [1, 1] => None,
        _ => (c.in_size[1] == c.out_size[1]).then_some(1),
    }
}

impl Gemm {
    /// The number of the parameter that is a factor.
    pub fn param(&self, which: Which) -> usize {
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

    /// Quotient and remainder of a number below 2^31. The assembler does not make a
    /// product of a division by a constant; this does.
    pub(super) fn parts(&mut self, v: V, by: &Dim) -> (V, V) {
        let known = by.as_const().and_then(|by| u32::try_from(by).ok());
        let (q, by) = match known.and_then(reciprocal) {
            Some((_, 0)) => return (v, self.f.op(Class::B32, "mov.b32", &[&0])),
            Some((factor, shift)) => {
                let high = self.f.op(Class::B32, "mul.hi.u32", &[&v, &factor]);
                let q = self.f.op(Class::B32, "shr.u32", &[&high, &(shift - 1)]);
                (q, known.unwrap_or(1).to_string())
            }
            None => {
                let by = self.dim32(by);
                (self.f.op(Class::B32, "div.u32", &[&v, &by]), by.to_string())
            }
        };
        let back = self.f.op(Class::B32, "mul.lo.u32", &[&q, &by]);
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
            Side::OverPixels { per_group, pixels, .. } => {
                let (per_group, pixels) = (self.dim32(&per_group), self.dim32(&pixels));
                let channel =
                    self.f.op(Class::B32, "mad.lo.u32", &[&batch.group, &per_group, &row]);
                let at = self.f.op(Class::B64, "mul.wide.u32", &[&channel, &pixels]);
                Row::Fixed {
                    at: self.f.op(Class::B64, "mad.lo.s64", &[&at, &size, &buf]),
                    yx: None,
                }
            }
            Side::Image(Image::Filter, c) => {
                let (channel, place) = self.parts(row, &window(&c));
                let (ky, kx) = self.parts(place, &Dim::constant(c.kernel[1].into()));
                let per_group = self.dim32(&channels_in(&c));
                let channel =
                    self.f.op(Class::B32, "mad.lo.u32", &[&batch.group, &per_group, &channel]);
                let y = self.scaled(ky, c.dilation[0], c.pad[0]);
                let x = self.scaled(kx, c.dilation[1], c.pad[1]);
                let pixels = self.dim32(&area(&c.in_size));
                let plane = self.f.op(Class::B64, "mul.wide.u32", &[&channel, &pixels]);
                let at = self.pixel(plane, [y, x], &c.in_size);
                let at = self.f.op(Class::B64, "mad.lo.s64", &[&at, &size, &buf]);
                Row::Fixed { at, yx: Some([y, x]) }
            }
            Side::Image(image, c) => {
                let forward = image == Image::Window;
                let width = if forward { &c.out_size[1] } else { &c.in_size[1] };
                let (y, x) = self.parts(row, width);
                let yx = match forward {
                    true => [
                        self.scaled(y, c.stride[0], c.pad[0]),
                        self.scaled(x, c.stride[1], c.pad[1]),
                    ],
                    false => [
                        self.f.op(Class::B32, "add.s32", &[&y, &c.pad[0]]),
                        self.f.op(Class::B32, "add.s32", &[&x, &c.pad[1]]),
                    ],
                };
                if !forward && c.stride != [1, 1] {
                    return Row::Strided { yx };
                }
                let zero = self.f.int(0);
                let at = self.pixel(zero, yx, if forward { &c.in_size } else { &c.out_size });
                let at = self.f.op(Class::B64, "mad.lo.s64", &[&at, &size, &buf]);
                Row::Fixed { at, yx: Some(yx) }
            }
        }
    }

    /// The way through the sum of a factor that is [`walked`], from its place `k` on,
    /// `terms` at a time. All threads of the block come by here.
    pub(super) fn walk(
        &mut self,
        gemm: &Gemm,
        which: Which,
        batch: Batch,
        k: V,
        terms: u32,
    ) -> Option<Walk> {
        let (c, image) = walked(gemm, which)?;
        let size = gemm.dtype.size() as i64;
        let count = c.kernel[0] * c.kernel[1];
        let (channel, place) = self.parts(k, &window(c));
        let place = self.f.copy(place);
        let buf = self.bufs[gemm.param(which)];
        // Elements of a channel, and the number of the first.
        let (plane, first) = match (which, image) {
            (Which::A, _) => {
                let plane = self.dim(&(channels_in(c) * window(c)));
                let per = self.dim32(&channels_out(c));
                (plane, self.f.op(Class::B32, "mul.lo.u32", &[&batch.group, &per]))
            }
            _ => {
                let (all, per, size) = match image {
                    Image::Window => (&c.in_channels, channels_in(c), &c.in_size),
                    _ => (&c.out_channels, channels_out(c), &c.out_size),
                };
                let plane = self.dim(&area(size));
                let (all, per) = (self.dim32(all), self.dim32(&per));
                let first = self.f.op(Class::B32, "mul.lo.u32", &[&batch.group, &per]);
                (plane, self.f.op(Class::B32, "mad.lo.u32", &[&batch.image, &all, &first]))
            }
        };
        let first = self.f.op(Class::B32, "add.u32", &[&first, &channel]);
        let first = self.f.op(Class::B64, "cvt.u64.u32", &[&first]);
        let channel = self.f.op(Class::B64, "mul.lo.s64", &[&plane, &size]);
        let at = self.f.op(Class::B64, "mad.lo.s64", &[&first, &channel, &buf]);
        let whole = terms / count;
        let tile = (whole > 0).then(|| self.f.op(Class::B64, "mul.lo.s64", &[&channel, &whole]));
        let table = (which == Which::B).then(|| self.places(c, image));
        Some(Walk { place, window: count, at, tile, channel, table, terms })
    }

    /// Writes down in shared memory how many elements each place of the window adds.
    fn places(&mut self, c: &Conv, image: Image) -> u32 {
        let (count, forward) = (c.kernel[0] * c.kernel[1], image == Image::Window);
        let table = self.f.shared(4 * count);
        let tid = self.f.special("%tid.x");
        let skip = self.f.label();
        let none = self.f.op(Class::Pred, "setp.ge.u32", &[&tid, &count]);
        self.f.line(format_args!("@{none} bra {skip}"));
        let (ky, kx) = self.parts(tid, &Dim::constant(c.kernel[1].into()));
        let width = self.dim32(if forward { &c.in_size[1] } else { &c.out_size[1] });
        let [y, x] = [(ky, 0), (kx, 1)].map(|(v, axis)| self.scaled(v, c.dilation[axis], 0));
        let mut off = self.f.op(Class::B32, "mad.lo.s32", &[&y, &width, &x]);
        if !forward {
            off = self.f.op(Class::B32, "neg.s32", &[&off]);
        }
        let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
        let to = self.f.op(Class::B32, "mad.lo.u32", &[&tid, &4, &shared]);
        self.f.line(format_args!("st.shared.b32 [{to}+{table}], {off}"));
        self.f.place(&skip);
        self.f.line(format_args!("bar.sync 0"));
        table
    }

    /// The address that what a row adds to is counted from, and the bit of the place in the
    /// window, which is zero unless `there`.
    pub(super) fn here(&mut self, gemm: &Gemm, walk: &Walk, there: V) -> (V, V) {
        let off = match walk.table {
            None => walk.place,
            Some(table) => {
                let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
                let at = self.f.op(Class::B32, "mad.lo.u32", &[&walk.place, &4, &shared]);
                self.f.op(Class::B32, "ld.shared.b32", &[&format!("[{at}+{table}]")])
            }
        };
        let size = gemm.dtype.size();
        let base = self.f.op(Class::B64, "mad.wide.s32", &[&off, &size, &walk.at]);
        (base, self.bit(walk.place, there))
    }

    fn bit(&mut self, place: V, there: V) -> V {
        let bit = self.f.op(Class::B32, "shl.b32", &[&1, &place]);
        self.f.op(Class::B32, "selp.b32", &[&bit, &0, &there])
    }

    /// On to the next tile.
    pub(super) fn step_on(&mut self, walk: &Walk) {
        let Walk { place, window, at, channel, .. } = walk;
        if let Some(tile) = &walk.tile {
            self.f.op_to(*at, "add.s64", &[at, tile]);
        }
        let rest = walk.terms % window;
        if rest == 0 {
            return;
        }
        self.f.op_to(*place, "add.u32", &[place, &rest]);
        let over = self.f.op(Class::Pred, "setp.ge.u32", &[place, window]);
        self.f.line(format_args!("@{over} sub.u32 {place}, {place}, {window}"));
        self.f.line(format_args!("@{over} add.s64 {at}, {at}, {channel}"));
    }

    /// What is known of row `row` of a factor that is [`walked`]; `ok` says whether there is
    /// such a row.
    pub(super) fn near(&mut self, gemm: &Gemm, which: Which, row: V, ok: V) -> Option<Row> {
        let (c, image) = walked(gemm, which)?;
        if which == Which::A {
            let count = c.kernel[0] * c.kernel[1];
            let off = self.f.op(Class::B32, "mul.lo.u32", &[&row, &count]);
            return Some(Row::Near { off, mask: None });
        }
        let forward = image == Image::Window;
        let (from, to) =
            if forward { (&c.out_size, &c.in_size) } else { (&c.in_size, &c.out_size) };
        let (y, x) = self.parts(row, &from[1]);
        let yx = [(y, 0), (x, 1)].map(|(v, axis): (V, usize)| match forward {
            true => self.scaled(v, c.stride[axis], c.pad[axis]),
            false => self.f.op(Class::B32, "add.s32", &[&v, &c.pad[axis]]),
        });
        let width = self.dim32(&to[1]);
        let off = self.f.op(Class::B32, "mad.lo.s32", &[&yx[0], &width, &yx[1]]);
        // A bit for each column of the window that is inside, then a copy for each row.
        let mut bits = [self.f.op(Class::B32, "mov.b32", &[&0]); 2];
        for axis in [1, 0] {
            let length = self.dim32(&to[axis]);
            for place in 0..c.kernel[axis] {
                let by = i64::from(place * c.dilation[axis]) * if forward { 1 } else { -1 };
                let v = self.f.op(Class::B32, "add.s32", &[&yx[axis], &by]);
                let inside = self.f.op(Class::Pred, "setp.lt.u32", &[&v, &length]);
                let more = match axis {
                    1 => self.f.op(Class::B32, "or.b32", &[&bits[1], &(1u32 << place)]),
                    _ => {
                        let line = place * c.kernel[1];
                        let line = self.f.op(Class::B32, "shl.b32", &[&bits[1], &line]);
                        self.f.op(Class::B32, "or.b32", &[&bits[0], &line])
                    }
                };
                let old = bits[axis];
                bits[axis] = self.f.op(Class::B32, "selp.b32", &[&more, &old, &inside]);
            }
        }
        let mask = self.f.op(Class::B32, "selp.b32", &[&bits[0], &0, &ok]);
        Some(Row::Near { off, mask: Some(mask) })
    }

    /// Has a [`Walk`] count from this row on.
    pub(super) fn start_from(&mut self, gemm: &Gemm, walk: &Walk, row: &Row) {
        let at = self.reached(gemm, row, walk.at);
        self.f.mov(walk.at, at);
    }

    /// The address of the element of a row from where a [`Walk`] is.
    pub(super) fn reached(&mut self, gemm: &Gemm, row: &Row, base: V) -> V {
        let Row::Near { off, .. } = row else { unreachable!("a row of another factor") };
        self.f.op(Class::B64, "mad.wide.s32", &[off, &gemm.dtype.size(), &base])
    }

    /// Whether there is an element of a row where a [`Walk`] is.
    pub(super) fn is_here(&mut self, row: &Row, bit: V) -> V {
        let Row::Near { mask, .. } = row else { unreachable!("a row of another factor") };
        let here = match mask {
            None => bit,
            Some(mask) => self.f.op(Class::B32, "and.b32", &[mask, &bit]),
        };
        self.f.op(Class::Pred, "setp.ne.u32", &[&here, &0])
    }

    /// Whether there is an element of a row at place `k` of a sum that is [`walked`].
    pub(super) fn is_near(&mut self, c: &Conv, row: &Row, k: V, there: V) -> V {
        let Row::Near { mask: Some(mask), .. } = row else { return there };
        let (_, place) = self.parts(k, &window(c));
        let bit = self.bit(place, there);
        let here = self.f.op(Class::B32, "and.b32", &[mask, &bit]);
        self.f.op(Class::Pred, "setp.ne.u32", &[&here, &0])
    }

    /// `plane + y * width + x`; coordinates may be negative.
    fn pixel(&mut self, plane: V, [y, x]: [V; 2], size: &[Dim; 2]) -> V {
        let width = self.dim32(&size[1]);
        let at = self.f.op(Class::B32, "mad.lo.s32", &[&y, &width, &x]);
        let at = self.f.op(Class::B64, "cvt.s64.s32", &[&at]);
        self.f.op(Class::B64, "add.s64", &[&plane, &at])
    }

    /// `v * by - pad`.
    pub(super) fn scaled(&mut self, v: V, by: u32, pad: u32) -> V {
        let v = if by == 1 { v } else { self.f.op(Class::B32, "mul.lo.u32", &[&v, &by]) };
        if pad == 0 { v } else { self.f.op(Class::B32, "sub.s32", &[&v, &pad]) }
    }

    /// What is known of place `k` of the sum; nothing where rows have pointers.
    pub(super) fn term(&mut self, gemm: &Gemm, which: Which, batch: Batch, k: V) -> Option<Term> {
        let side = if which == Which::A { &gemm.a } else { &gemm.b };
        let (at, yx) = match side {
            Side::Linear { .. } => return None,
            Side::OverPixels { channels, pixels, .. } => {
                let (image, pixel) = self.parts(k, pixels);
                let (channels, pixels) = (self.dim32(channels), self.dim32(pixels));
                let row = self.f.op(Class::B32, "mul.lo.u32", &[&image, &channels]);
                let pixel = self.f.op(Class::B64, "cvt.u64.u32", &[&pixel]);
                (self.wide(row, pixels, pixel), None)
            }
            Side::Image(Image::Filter, c) => {
                let (image, pixel) = self.parts(k, &area(&c.out_size));
                let (oy, ox) = self.parts(pixel, &c.out_size[1]);
                let yx = [self.scaled(oy, c.stride[0], 0), self.scaled(ox, c.stride[1], 0)];
                let channels = self.dim32(&c.in_channels);
                let plane = self.f.op(Class::B32, "mul.lo.u32", &[&image, &channels]);
                let pixels = self.dim32(&area(&c.in_size));
                let plane = self.f.op(Class::B64, "mul.wide.u32", &[&plane, &pixels]);
                (self.pixel(plane, yx, &c.in_size), Some(yx))
            }
            Side::Image(image, c) => {
                let forward = *image == Image::Window;
                let (channel, place) = self.parts(k, &window(c));
                let (ky, kx) = self.parts(place, &Dim::constant(c.kernel[1].into()));
                let (all, per, size) = match forward {
                    true => (&c.in_channels, channels_in(c), &c.in_size),
                    false => (&c.out_channels, channels_out(c), &c.out_size),
                };
                let (all, per) = (self.dim32(all), self.dim32(&per));
                let channel = self.f.op(Class::B32, "mad.lo.u32", &[&batch.group, &per, &channel]);
                let plane = self.f.op(Class::B32, "mad.lo.u32", &[&batch.image, &all, &channel]);
                let pixels = self.dim32(&area(size));
                let plane = self.f.op(Class::B64, "mul.wide.u32", &[&plane, &pixels]);
                let mut yx = [self.scaled(ky, c.dilation[0], 0), self.scaled(kx, c.dilation[1], 0)];
                if !forward {
                    yx = yx.map(|v| self.f.op(Class::B32, "neg.s32", &[&v]));
                }
                match !forward && c.stride != [1, 1] {
                    true => (plane, Some(yx)),
                    false => (self.pixel(plane, yx, size), Some(yx)),
                }
            }
        };
        let bytes = self.f.op(Class::B64, "mul.lo.s64", &[&at, &gemm.dtype.size()]);
        Some(Term { bytes, yx })
    }

    /// The address of the element where a row meets a place of the sum, and whether it
    /// is one: `ok` says whether row and place are in range.
    pub(super) fn element(
        &mut self,
        gemm: &Gemm,
        which: Which,
        row: &Row,
        term: Option<&Term>,
        ok: V,
    ) -> (String, V) {
        let side = if which == Which::A { &gemm.a } else { &gemm.b };
        let size = match side {
            Side::Image(Image::Scatter, c) => Some((&c.out_size, c.stride)),
            Side::Image(_, c) => Some((&c.in_size, [1, 1])),
            _ => None,
        };
        match (row, term, size) {
            (Row::Fixed { at, yx: None }, Some(term), _) => {
                let at = self.f.op(Class::B64, "add.s64", &[at, &term.bytes]);
                (format!("[{at}]"), ok)
            }
            (
                Row::Fixed { at, yx: Some(yx) },
                Some(Term { bytes, yx: Some(by) }),
                Some((size, _)),
            ) => {
                let at = self.f.op(Class::B64, "add.s64", &[at, bytes]);
                let mut ok = ok;
                for axis in 0..2 {
                    let v = self.f.op(Class::B32, "add.s32", &[&yx[axis], &by[axis]]);
                    ok = self.inside(v, &size[axis], ok);
                }
                (format!("[{at}]"), ok)
            }
            (Row::Strided { yx }, Some(Term { bytes, yx: Some(by) }), Some((size, stride))) => {
                let mut ok = ok;
                let mut place = *yx;
                for axis in 0..2 {
                    let mut v = self.f.op(Class::B32, "add.s32", &[&yx[axis], &by[axis]]);
                    if stride[axis] > 1 {
                        // Between the steps of the window there is nothing.
                        ok = self.f.op(Class::Pred, "setp.ge.and.s32", &[&v, &0, &ok]);
                        let (q, r) = self.parts(v, &Dim::constant(stride[axis].into()));
                        ok = self.f.op(Class::Pred, "setp.eq.and.u32", &[&r, &0, &ok]);
                        v = q;
                    }
                    ok = self.inside(v, &size[axis], ok);
                    place[axis] = v;
                }
                let zero = self.f.int(0);
                let at = self.pixel(zero, place, size);
                let buf = self.bufs[gemm.param(which)];
                let at = self.f.op(Class::B64, "mad.lo.s64", &[&at, &gemm.dtype.size(), &buf]);
                let at = self.f.op(Class::B64, "add.s64", &[&at, bytes]);
                (format!("[{at}]"), ok)
            }
            (Row::Pointer { at, .. }, ..) => (format!("[{at}]"), ok),
            _ => unreachable!("a row of another factor"),
        }
    }

    /// Whether a coordinate is inside, and `ok`.
    fn inside(&mut self, v: V, size: &Dim, ok: V) -> V {
        let size = self.dim32(size);
        // Below zero is very large.
        self.f.op(Class::Pred, "setp.lt.and.u32", &[&v, &size, &ok])
    }
}

/// What to multiply by, and how far to shift, to divide a number below 2^31: the upper
/// half of the product, shifted by one less. Nothing to do for a shift of zero.
fn reciprocal(by: u32) -> Option<(u32, u32)> {
    let bits = by.checked_next_power_of_two()?.trailing_zeros();
    let factor = (1u64 << (31 + bits)).checked_div(u64::from(by))? + 1;
    Some((u32::try_from(factor).unwrap_or(0), bits))
}

/// Pixels of an image.
pub(super) fn area([h, w]: &[Dim; 2]) -> Dim {
    h.clone() * w.clone()
}

/// Places of a window.
fn window(c: &Conv) -> Dim {
    Dim::constant(i64::from(c.kernel[0]) * i64::from(c.kernel[1]))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_divides() {
        let most = (1u32 << 31) - 1;
        for by in (2..=130).chain([784, 3136, 50_176, 65_537, 1 << 20, (1 << 30) + 1, most]) {
            let (factor, shift) = reciprocal(by).expect("it has one");
            let near = (0..4).flat_map(|i| [i * by.min(1 << 28), i * by.min(1 << 28) + by - 1]);
            let ends = [0, 1, most, most - 1, most / by * by, (most / by * by).saturating_sub(1)];
            for v in near.chain(ends).filter(|v| *v <= most) {
                let high = ((u64::from(v) * u64::from(factor)) >> 32) as u32;
                assert_eq!(high >> (shift - 1), v / by, "{v} / {by}");
            }
        }
        assert_eq!(reciprocal(0), None);
    }
}
