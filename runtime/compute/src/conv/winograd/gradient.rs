//! The gradient of the filter by tiles.
//!
//! A tap's gradient is the sum, over all pixels of the output, of its gradient times a pixel
//! of the input: a convolution whose windows are as large as the pictures. It is cut into
//! windows of 2x2 or 4x4 pixels of the output's gradient, which take the part of the filter,
//! and whose results, 3x3 or 5x5 taps each, are added up. They are added up before they are
//! brought back: for each of the 16 or 36 numbers of a transformed tile a product of
//! matrices, whose steps are the tiles of all images.
//!
//! Tiles come in *chunks* of a few rows of them, or of a part of a long one, and a chunk's products are added to the
//! sums of those before. Chunks follow from the sizes alone, and every sum is one thread's,
//! chunk after chunk: so the number of threads changes no bit. Threads take numbers (whole
//! rows of a transformed tile) and channels, and transform what they need of every chunk.
//!
//! If something does not come out finite, all of it is computed again as a plain sum.

use super::lanes::{LANES, Place, Transforms, Turned, Windows};
use super::transform::Tile;
use super::{LEAST_CHANNELS, STRIP_BYTES, apart};
use crate::conv::ConvArgs;
use crate::gemm::driver::{Rect, grow, rectangle};
use crate::gemm::kernel::{Kernels, MAX_LANES};
use crate::gemm::pack::{Packed, Strided, rows_of};
use crate::gemm::{BlockFn, parts_for};
use crate::mem::Bytes;
use crate::pool::Pool;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use tfc_abi::DType;
use tfc_abi::plan::ConvKind;

thread_local! {
    /// The sums of a call.
    static SUMS: RefCell<Bytes> = const { RefCell::new(Bytes::empty()) };
    /// A chunk's tiles of the output's gradient and of the input, and turned pixels.
    static CHUNK: RefCell<[Bytes; 3]> = const {
        RefCell::new([Bytes::empty(), Bytes::empty(), Bytes::empty()])
    };
}

/// Most tiles of a chunk. With fewer of them sums are loaded and stored for little; with more
/// of them they lose more, and what is multiplied leaves the cache.
const TILES: usize = 56;
/// Chunks that are added up before they are added to those before: so sums lose less.
const GROUP: usize = 16;
/// Bytes of turned pixels that are transformed while in L1.
const TURNED_BYTES: usize = 24 << 10;
/// Bytes of sums. If all need more, output channels come a few at a time, and with each of
/// these slices the pictures are transformed again.
const SUMS_BYTES: usize = 32 << 20;
/// Output channels side by side, as products read them where they are.
const ROWS: usize = 15 * LANES;

type Bounds = (usize, usize);

/// The sizes as they matter here, channels being those of a group.
#[derive(Clone, Copy)]
struct Shape {
    tile: Tile,
    groups: usize,
    to: usize,
    from: usize,
    images: usize,
    /// Tiles down and across.
    down: usize,
    across: usize,
}

impl Shape {
    /// None if this is no convolution for tiles, or the plain sum is faster.
    fn of(c: &ConvArgs<'_>) -> Option<Shape> {
        let fits = c.kind == ConvKind::GradFilter
            && c.dtype == DType::F32
            && !c.plain
            && c.stride == [1, 1]
            && c.dilation == [1, 1]
            && c.pad.iter().zip(c.kernel).all(|(pad, window)| *pad < window)
            && (c.in_channels / c.groups).min(c.out_channels / c.groups) >= LEAST_CHANNELS
            && c.batch * c.in_h * c.in_w * c.out_h * c.out_w > 0;
        if !fits {
            return None;
        }
        let shapes = Tile::of(c.kernel).iter().map(|tile| Shape {
            tile: *tile,
            groups: c.groups,
            to: c.out_channels / c.groups,
            from: c.in_channels / c.groups,
            images: c.batch,
            down: c.out_h.div_ceil(tile.size()),
            across: c.out_w.div_ceil(tile.size()),
        });
        let best = shapes.min_by_key(Shape::cost)?;
        let taps = (c.kernel[0] * c.kernel[1]) as u128;
        let pixels = (c.batch * c.out_h * c.out_w) as u128;
        let plain = pixels * taps * (best.to * best.from) as u128 * 45;
        let numbers = (best.to + best.from).saturating_mul(best.tile.points() * TILES);
        let fits = numbers.saturating_mul(size_of::<f32>()) <= STRIP_BYTES;
        (best.cost() < plain && fits).then_some(best)
    }

    fn strips(&self) -> usize {
        self.images * self.down
    }

    /// Parts of a strip, and how many chunks all of them are.
    fn chunks(&self) -> (usize, usize) {
        let parts = self.across.div_ceil(TILES);
        let most = if parts > 1 { 1 } else { TILES / self.across };
        (parts, (self.strips() * parts).div_ceil(most))
    }

    /// One of the chunks.
    fn chunk(&self, chunk: usize) -> Chunk {
        let (parts, chunks) = self.chunks();
        let at = |chunk: usize| self.strips() * parts * chunk / chunks;
        let (first, end, part) = (at(chunk), at(chunk + 1), at(chunk) % parts);
        let tile = |part: usize| self.across * part / parts;
        Chunk {
            strips: (first / parts, end.div_ceil(parts)),
            tiles: (tile(part), tile(part + 1)),
            first: chunk.is_multiple_of(GROUP),
        }
    }

    /// Thousandths of cycles of a core with vectors of 16, roughly, for a group.
    fn cost(&self) -> u128 {
        let chunks = self.chunks().1 as u128;
        let tiles = (self.strips() * self.across) as u128;
        let (points, sums) = (self.tile.points() as u128, (self.to * self.from) as u128);
        let channels = (self.to + self.from) as u128;
        tiles * points * (sums * 40 + channels * 200) + points * sums * (chunks * 100 + 1000)
    }

    /// What threads take of slices of `channels`, of which `slices` are computed beside each
    /// other: parts of the rows of a tile's numbers, of the output's channels, and of the
    /// input's. Every part turns all pixels of its channels.
    fn cut(&self, channels: usize, slices: usize, threads: usize, nr: usize) -> [usize; 3] {
        let (reads, points) = (self.tile.reads(), self.tile.points());
        let (lanes, panels) = (channels.div_ceil(LANES), self.from.div_ceil(nr));
        let time = |[rows, to, from]: [usize; 3]| {
            let rounds = (rows * to * from * slices).div_ceil(threads);
            let (to, from) = (lanes.div_ceil(to) * LANES, panels.div_ceil(from) * nr);
            let points = points / rows;
            rounds * (points * (to * from * 40 + (to + from) * 150) + (to + from) * 2000)
        };
        let mut best = [1; 3];
        for rows in (1..=reads).filter(|rows| reads.is_multiple_of(*rows)) {
            for to in 1..=lanes.min(threads.div_ceil(rows)) {
                let from = panels.min(threads.div_ceil(rows * to));
                for cut in [[rows, to, 1], [rows, to, from]] {
                    if time(cut) < time(best) {
                        best = cut;
                    }
                }
            }
        }
        best
    }
}

/// Tiles whose products are added up before they are added to the sums.
#[derive(Clone, Copy)]
struct Chunk {
    /// Rows of tiles, of all images, and tiles of each of them.
    strips: Bounds,
    tiles: Bounds,
    /// Whether sums begin with it.
    first: bool,
}

impl Chunk {
    fn count(&self) -> usize {
        (self.strips.1 - self.strips.0) * (self.tiles.1 - self.tiles.0)
    }
}

/// Output channels whose sums are in memory together.
#[derive(Clone, Copy)]
struct Slice {
    group: usize,
    /// Channels of the group.
    outs: Bounds,
    /// Where its sums are, counted from the first.
    place: usize,
}

/// What a part computes: rows of numbers, output channels of a slice, and input channels.
#[derive(Clone, Copy)]
struct Part {
    slice: Slice,
    rows: Bounds,
    outs: Bounds,
    ins: Bounds,
}

/// One of the two that are multiplied: pictures with as many channels each.
struct Side {
    start: *const f32,
    /// Elements of all of it.
    len: usize,
    channels: usize,
    height: usize,
    width: usize,
    pad: [usize; 2],
    /// Pixels that a tile reads beyond its own.
    reach: usize,
    transform: unsafe fn(&Transforms, Tile, &Turned),
}

struct Job {
    shape: Shape,
    gradient: Side,
    picture: Side,
    sums: *mut f32,
    /// What the sums are added to after every [`GROUP`] chunks, if there are more of them.
    totals: Option<*mut f32>,
    /// Elements of a row of sums, from number to number, and of a slice.
    row: usize,
    point: usize,
    slice: usize,
}

// SAFETY: pictures are read only, and parts of the sums are disjoint.
unsafe impl Sync for Job {}

/// Computes the gradient of the filter, if it is one for tiles; says whether it is done.
///
/// # Safety
/// As [`crate::conv::conv`], for f32; the CPU can run `kernels`.
pub unsafe fn conv(
    kernels: &Kernels<f32>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    finished: Option<BlockFn<'_>>,
) -> bool {
    let Some(shape) = Shape::of(c) else { return false };
    let Shape { tile, groups, to, from, .. } = shape;
    let row = from.next_multiple_of(MAX_LANES);
    let several = shape.chunks().1 > GROUP;
    let channel = tile.points() * row * (1 + usize::from(several)) * size_of::<f32>();
    // Slices of a group are about as long as each other.
    let (lanes, panels) = (to.div_ceil(LANES), from.div_ceil(kernels.nr));
    let most = (SUMS_BYTES / (channel * LANES)).max(1);
    let (slices, most) = (lanes.div_ceil(most), lanes.div_ceil(lanes.div_ceil(most)) * LANES);
    let point = apart(most.min(to) * row);
    let slice = tile.points() * point;
    // So many slices at a time.
    let beside = (SUMS_BYTES / (channel * most)).clamp(1, groups * slices);
    let mut memory = SUMS.take();
    grow(&mut memory, beside * slice * (1 + usize::from(several)) * size_of::<f32>());
    let sums = memory.as_ptr().cast::<f32>();
    let job = Job {
        shape,
        gradient: Side {
            start: c.rhs.cast(),
            len: c.batch * c.out_channels * c.out_h * c.out_w,
            channels: c.out_channels,
            height: c.out_h,
            width: c.out_w,
            pad: [0, 0],
            reach: 0,
            transform: Transforms::gradients,
        },
        picture: Side {
            start: c.lhs.cast(),
            len: c.batch * c.in_channels * c.in_h * c.in_w,
            channels: c.in_channels,
            height: c.in_h,
            width: c.in_w,
            pad: c.pad,
            reach: tile.window() - 1,
            transform: Transforms::pictures,
        },
        sums,
        totals: several.then_some(sums.wrapping_add(beside * slice)),
        row,
        point,
        slice,
    };
    let madds = [tile.points(), most.min(to), from, shape.across, beside]
        .iter()
        .fold(shape.strips() as u64, |w, s| w.saturating_mul(*s as u64));
    let threads = parts_for(pool, i64::try_from(madds / 16).unwrap_or(i64::MAX));
    let cut = shape.cut(most, beside, threads.min(pool.threads()), kernels.nr);
    let columns = from * tile.window() * tile.window();
    let finite = AtomicBool::new(true);
    let at = |part: usize, of: usize, all: usize| (all * part / of, all * (part + 1) / of);
    let all: Vec<Slice> = (0..groups * slices)
        .map(|i| {
            let (low, high) = at(i % slices, slices, lanes);
            let outs = (low * LANES, (high * LANES).min(to));
            Slice { group: i / slices, outs, place: i % beside }
        })
        .collect();
    for slices in all.chunks(beside) {
        let cuts = cut.iter().product::<usize>();
        pool.run(slices.len() * cuts, &|part| {
            let slice = slices[part / cuts];
            let rows = at(part % cut[0], cut[0], tile.reads());
            let (low, high) = slice.outs;
            let outs = at(part / cut[0] % cut[1], cut[1], (high - low).div_ceil(LANES));
            let ins = at(part % cuts / (cut[0] * cut[1]), cut[2], panels);
            let part = Part {
                slice,
                rows,
                outs: (low + outs.0 * LANES, (low + outs.1 * LANES).min(high)),
                ins: (ins.0 * kernels.nr, (ins.1 * kernels.nr).min(from)),
            };
            // SAFETY: parts are disjoint.
            unsafe { job.part(kernels, &part) };
        });
        let work = slices.len() * most * from * tile.points() / 2;
        let threads = pool.parts_for(most, i64::try_from(work).unwrap_or(i64::MAX));
        pool.run(slices.len() * threads, &|part| {
            let slice = slices[part / threads];
            let channels = at(part % threads, threads, slice.outs.1 - slice.outs.0);
            // SAFETY: all sums are there; these rows of the result are the part's own.
            unsafe {
                for channel in channels.0..channels.1 {
                    let start = job.results().add(slice.place * job.slice + channel * row);
                    let out = (slice.group * to + slice.outs.0 + channel) * columns;
                    let out = c.out.cast::<f32>().add(out);
                    let windows = Windows { start, point, channels: from, out };
                    if !Transforms::of(kernels).windows(tile, &windows) {
                        finite.store(false, Ordering::Relaxed);
                    }
                }
            }
        });
    }
    SUMS.set(memory);
    if !finite.into_inner() {
        return false;
    }
    if let Some(finished) = finished {
        // Only now: what is not finite may be in any row.
        let work = i64::try_from(c.out_channels * columns).unwrap_or(i64::MAX);
        pool.ranges(c.out_channels, 1, pool.parts_for(c.out_channels, work), &|lo, hi| {
            finished(lo, hi, 0, columns);
        });
    }
    true
}

impl Side {
    /// Channels `channel..channel + lanes` of an image, turned: so many rows and columns, from
    /// `y` and `x` on, counted from the first of the padding.
    ///
    /// # Safety
    /// The channels exist; `to` has room for the pixels.
    unsafe fn turn(
        &self,
        kernels: &Kernels<f32>,
        (image, channel, lanes): (usize, usize, usize),
        (y, rows): Bounds,
        (x, columns): Bounds,
        to: *mut f32,
    ) {
        let plane = self.height * self.width;
        let sources = rows_of(lanes, |l| l * plane);
        let [top, left] = self.pad;
        let (skip, left) = (x.saturating_sub(left), left.saturating_sub(x).min(columns));
        let count = self.width.saturating_sub(skip).min(columns - left);
        // SAFETY: only pixels that are there are read; the caller promises the room.
        unsafe {
            if lanes < LANES {
                to.write_bytes(0, rows * columns * LANES);
            }
            for r in 0..rows {
                let to = to.add(r * columns * LANES);
                let there = (y + r).checked_sub(top).filter(|y| *y < self.height && count > 0);
                let Some(y) = there else {
                    to.write_bytes(0, columns * LANES);
                    continue;
                };
                let at = (image * self.channels + channel) * plane + y * self.width + skip;
                let slack = at + (lanes - 1) * plane + count + MAX_LANES <= self.len;
                to.write_bytes(0, left * LANES);
                let pixels = to.add(left * LANES);
                (kernels.turn)(self.start.add(at), &sources, lanes, count, slack, LANES, pixels);
                pixels.add(count * LANES).write_bytes(0, (columns - left - count) * LANES);
            }
        }
    }
}

impl Job {
    /// Where the sums are when all chunks are added.
    fn results(&self) -> *mut f32 {
        self.totals.unwrap_or(self.sums)
    }

    /// Where a part's sums for number `p` and output channel `o` are.
    fn place(&self, part: &Part, p: usize, o: usize) -> usize {
        let Slice { outs, place, .. } = part.slice;
        place * self.slice + p * self.point + (o - outs.0) * self.row + part.ins.0
    }

    /// # Safety
    /// Nobody else computes these rows of numbers of these channels.
    unsafe fn part(&self, kernels: &Kernels<f32>, part: &Part) {
        let (_, chunks) = self.shape.chunks();
        CHUNK.with_borrow_mut(|memory| {
            for at in 0..chunks {
                let chunk = self.shape.chunk(at);
                // SAFETY: the caller's promise.
                unsafe {
                    self.chunk(kernels, chunk, part, memory);
                    if at % GROUP == GROUP - 1 || at + 1 == chunks {
                        self.add_up(at < GROUP, part);
                    }
                }
            }
        });
    }

    /// Adds the sums to the totals, or begins them.
    ///
    /// # Safety
    /// As [`Job::part`].
    unsafe fn add_up(&self, first: bool, part: &Part) {
        let Some(totals) = self.totals else { return };
        let (reads, len) = (self.shape.tile.reads(), part.ins.1 - part.ins.0);
        for p in part.rows.0 * reads..part.rows.1 * reads {
            for o in part.outs.0..part.outs.1 {
                let at = self.place(part, p, o);
                // SAFETY: these rows are the caller's own.
                let (totals, sums) = unsafe {
                    let totals = std::slice::from_raw_parts_mut(totals.add(at), len);
                    (totals, std::slice::from_raw_parts(self.sums.add(at), len))
                };
                if first {
                    totals.copy_from_slice(sums);
                } else {
                    totals.iter_mut().zip(sums).for_each(|(t, s)| *t += *s);
                }
            }
        }
    }

    /// Adds the products of a chunk to the sums, or begins them.
    ///
    /// # Safety
    /// As [`Job::part`].
    unsafe fn chunk(
        &self,
        kernels: &Kernels<f32>,
        chunk: Chunk,
        part: &Part,
        [lefts, rights, turned]: &mut [Bytes; 3],
    ) {
        let Job { shape, .. } = self;
        let Part { slice: Slice { group, .. }, rows, outs, ins } = *part;
        let (nr, reads, bytes) = (kernels.nr, shape.tile.reads(), size_of::<f32>());
        let count = chunk.count();
        let (high, wide) = (outs.1 - outs.0, ins.1 - ins.0);
        let left_len = high.next_multiple_of(LANES);
        let right_len = wide.next_multiple_of(nr.max(LANES));
        let (left_point, right_point) = (apart(left_len * count), apart(right_len * count));
        let points = (rows.1 - rows.0) * reads;
        grow(lefts, points * left_point * bytes);
        grow(rights, points * right_point * bytes);
        let (left, right) = (lefts.as_ptr().cast::<f32>(), rights.as_ptr().cast::<f32>());
        // Where output channels begin, and how many lie side by side.
        let block = |channel: usize| {
            let first = channel / ROWS * ROWS;
            (first * count + channel - first, ROWS.min(left_len - first))
        };
        // SAFETY: the memory has room for all of it; images, strips and channels exist.
        unsafe {
            for channel in (0..high).step_by(LANES) {
                let (at, width) = block(channel);
                let start = left.add(at);
                let to = Place { start, point: left_point, tile: width, width, panel: 0 };
                let first = group * shape.to + outs.0 + channel;
                let lanes = (first, LANES.min(high - channel));
                self.transform(kernels, &self.gradient, chunk, lanes, rows, to, turned);
            }
            for channel in (0..wide).step_by(LANES) {
                let start = right.add(channel / nr * nr * count + channel % nr);
                let to =
                    Place { start, point: right_point, tile: nr, width: nr, panel: nr * count };
                let first = group * shape.from + ins.0 + channel;
                let lanes = (first, LANES.min(wide - channel));
                self.transform(kernels, &self.picture, chunk, lanes, rows, to, turned);
            }
            for p in 0..points {
                let sums = self.sums.add(self.place(part, rows.0 * reads + p, outs.0));
                let start = right.add(p * right_point).cast_const();
                for o in (0..high).step_by(ROWS) {
                    let (at, step) = block(o);
                    let start_a = left.add(p * left_point + at).cast_const();
                    let rect = Rect {
                        rows: (0, ROWS.min(high - o)),
                        columns: (0, wide),
                        k: count,
                        a: &Strided { start: start_a, lane: 1, step },
                        b: &Packed { start, lanes: wide, width: nr },
                        c: sums.add(o * self.row),
                        c_row: self.row,
                        add: !chunk.first,
                        finished: None,
                    };
                    rectangle(kernels, &rect);
                }
            }
        }
    }

    /// Transforms some channels of a chunk.
    ///
    /// # Safety
    /// They exist, and there is room for them.
    #[expect(clippy::too_many_arguments, reason = "what, how much of it, and where to")]
    unsafe fn transform(
        &self,
        kernels: &Kernels<f32>,
        side: &Side,
        chunk: Chunk,
        (channel, lanes): Bounds,
        rows: Bounds,
        to: Place,
        turned: &mut Bytes,
    ) {
        let Shape { tile, down, .. } = self.shape;
        let (strips, across) = (chunk.strips, chunk.tiles.1 - chunk.tiles.0);
        let columns = across * tile.size() + side.reach;
        // As many strips of an image as stay in L1.
        let pixels = TURNED_BYTES / (LANES * size_of::<f32>() * columns);
        let most = (pixels.saturating_sub(side.reach) / tile.size()).max(1);
        grow(turned, (most * tile.size() + side.reach) * columns * LANES * size_of::<f32>());
        let source = turned.as_ptr().cast::<f32>();
        let (mut strip, mut at) = (strips.0, 0);
        while strip < strips.1 {
            let (image, y) = (strip / down, strip % down);
            let count = most.min(down - y).min(strips.1 - strip);
            let wide = (chunk.tiles.0 * tile.size(), columns);
            let high = (y * tile.size(), count * tile.size() + side.reach);
            let start = to.start.wrapping_add(at * to.tile);
            let tiles =
                Turned { source, row: columns, count, across, rows, to: Place { start, ..to } };
            // SAFETY: the pixels have room; the caller promises the rest.
            unsafe {
                side.turn(kernels, (image, channel, lanes), high, wide, source);
                (side.transform)(Transforms::of(kernels), tile, &tiles);
            }
            strip += count;
            at += count * across;
        }
    }
}
