//! Convolutions with windows of 3x3 and 5x5 in fewer multiplications, after Winograd.
//!
//! The result is cut into tiles of 2x2 or 4x4 pixels. A tile, the pixels it needs and
//! the filters are transformed ([`transform`]); what was a sum over channels and
//! taps becomes one over channels, for each of 16 or 36 numbers: a product of matrices
//! each.
//!
//! | window | tile | reads | multiplications, and in the plain sum |
//! |---|---|---|---|
//! | 3x3 | 2x2 | 4x4 | 16, 36 |
//! | 3x3 | 4x4 | 6x6 | 36, 144 |
//! | 5x5 | 2x2 | 6x6 | 36, 100 |
//!
//! Rows of tiles (*strips*) are the unit of work. A few of them are transformed,
//! multiplied and brought back while they are in cache.
//!
//! A tile mixes the pixels of neighbouring windows, so an infinity, a NaN or an overflow
//! would spread to pixels that are none of its business. A strip that does not come out
//! finite is computed again by [`super::implicit`].

pub mod gradient;
mod lanes;
mod transform;

use self::transform::{Filters, Strips, Sums, Tile, Transforms};
use super::ConvArgs;
use super::field::Plan;
use super::implicit::ByWindows;
use crate::gemm::driver::{Rect, grow, k_blocks, rectangle};
use crate::gemm::kernel::{Kernels, MAX_LANES};
use crate::gemm::pack::{Strided, rows_of};
use crate::gemm::prepack::{Layout, Wholes};
use crate::gemm::{BlockFn, parts_for};
use crate::mem::Bytes;
use crate::pool::Pool;
use std::cell::RefCell;
use tfc_abi::DType;
use tfc_abi::plan::ConvKind;

thread_local! {
    /// Transformed tiles, their products, and what is needed on the way.
    static BLOCK: RefCell<[Bytes; 4]> = const {
        RefCell::new([Bytes::empty(), Bytes::empty(), Bytes::empty(), Bytes::empty()])
    };
}

/// Bytes of a block's tiles and products, roughly.
const BLOCK_BYTES: usize = 3 << 20;
/// Pictures whose rows of tiles take more than this are summed plainly: memory for a call
/// would grow with their width.
const STRIP_BYTES: usize = 64 << 20;
/// Fewer channels than this are not worth the transforms.
const LEAST_CHANNELS: usize = 16;
/// Bytes of filters that one tile more or less makes no difference to.
const FILTER_BYTES: usize = 16 << 10;
/// Channels whose pixels are laid out together.
const CHANNELS: usize = 4;

/// The sizes as they matter here. For the gradient of the input, the output's gradient
/// is what is read, and the filters are turned.
#[derive(Clone, Copy)]
struct Shape {
    /// Channels of a group of the result and of what is read.
    to: usize,
    from: usize,
    /// Rows and columns of the result.
    height: usize,
    width: usize,
    source: [usize; 2],
    pad: [usize; 2],
    window: [usize; 2],
}

impl Shape {
    /// None if this is no convolution for tiles.
    fn of(c: &ConvArgs<'_>) -> Option<Shape> {
        let fits = c.dtype == DType::F32
            && !c.plain
            && c.stride == [1, 1]
            && c.dilation == [1, 1]
            && !Tile::of(c.kernel).is_empty()
            && c.pad.iter().zip(c.kernel).all(|(pad, window)| *pad < window)
            && c.in_channels.min(c.out_channels) >= LEAST_CHANNELS * c.groups;
        let (input, output) = ([c.in_h, c.in_w], [c.out_h, c.out_w]);
        match c.kind {
            _ if !fits => None,
            ConvKind::Forward => Some(Shape {
                to: c.out_channels / c.groups,
                from: c.in_channels / c.groups,
                height: c.out_h,
                width: c.out_w,
                source: input,
                pad: c.pad,
                window: c.kernel,
            }),
            ConvKind::GradInput => Some(Shape {
                to: c.in_channels / c.groups,
                from: c.out_channels / c.groups,
                height: c.in_h,
                width: c.in_w,
                source: output,
                pad: [0, 1].map(|a| c.kernel[a] - 1 - c.pad[a]),
                window: c.kernel,
            }),
            ConvKind::GradFilter => None,
        }
    }

    /// Tiles down and across.
    fn tiles(&self, tile: Tile) -> [usize; 2] {
        [self.height.div_ceil(tile.size()), self.width.div_ceil(tile.size())]
    }

    /// Bytes of a row of tiles, transformed, with its sums.
    fn strip_bytes(&self, tile: Tile) -> usize {
        let [_, across] = self.tiles(tile);
        let numbers = (self.to + self.from).saturating_mul(tile.points() * size_of::<f32>());
        numbers.saturating_mul(across)
    }

    /// The tile that takes least time for `images` images of a group, unless the plain sum
    /// does.
    /// Numbers are thousandths of cycles of a core with vectors of 16; only their ratios
    /// matter.
    fn tile(&self, images: usize) -> Option<Tile> {
        let (to, from) = (self.to as u128, self.from as u128);
        let cost = |tile: Tile| {
            let [down, across] = self.tiles(tile);
            let tiles = (images * down * across) as u128;
            let points = tile.points() as u128;
            let (read, written) = match tile {
                Tile::TwoBy3 => (10_000, 7_000),
                Tile::FourBy3 => (22_000, 16_000),
                Tile::TwoBy5 => (20_000, 10_000),
            };
            // The filters, of which there are many for few pixels, come from far away.
            tiles * (points * to * from * 40 + from * read + to * written)
                + points * to * from * 1000
        };
        let taps = (self.window[0] * self.window[1]) as u128;
        let plain = (images * self.height * self.width) as u128 * taps * to * from * 45;
        let best = Tile::of(self.window).iter().copied().min_by_key(|tile| cost(*tile))?;
        (cost(best) < plain && self.strip_bytes(best) <= STRIP_BYTES).then_some(best)
    }
}

/// Computes the convolution, if it is one for tiles; says whether it is done.
///
/// # Safety
/// As [`super::conv`], for f32; the CPU can run `kernels`.
pub unsafe fn conv(
    kernels: &Kernels<f32>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    finished: Option<BlockFn<'_>>,
) -> bool {
    if c.kind == ConvKind::GradFilter {
        // SAFETY: passed on.
        return unsafe { gradient::conv(kernels, pool, c, finished) };
    }
    let Some(shape) = Shape::of(c) else { return false };
    let Some(tile) = shape.tile(c.batch) else { return false };
    let [down, across] = shape.tiles(tile);
    let layout = Layout {
        count: tile.points() * c.groups,
        lanes: shape.to,
        k: shape.from,
        width: kernels.nr,
        turned: true,
    };
    // SAFETY: the filters exist; they are packed before anyone else sees them.
    let fill = |to: &Wholes<f32>| unsafe { filters(kernels, pool, c, &shape, tile, to) };
    let stays = c.rhs_stays.filter(|_| c.kind == ConvKind::Forward);
    let filters =
        Wholes::kept_by(layout, stays, &fill).unwrap_or_else(|| Wholes::by(layout, &fill));
    let size = tile.size();
    let plan = Plan::forward(&ConvArgs {
        kind: ConvKind::Forward,
        in_h: shape.source[0],
        in_w: shape.source[1],
        out_h: down * size,
        out_w: across * size,
        kernel: [tile.reads(); 2],
        pad: shape.pad,
        ..*c
    });
    let each = shape.strip_bytes(tile);
    let job = Job {
        c,
        shape,
        tile,
        down,
        across,
        plan,
        filters,
        most: (BLOCK_BYTES / each).max(48 / across).max(1),
        plain: ByWindows::new(c, kernels.nr, finished),
        finished,
    };
    // Of a group: blocks have one group's filters.
    let strips = c.batch * down;
    let madds = [shape.to, shape.from, across * tile.points(), c.groups]
        .iter()
        .fold(strips as u64, |w, s| w.saturating_mul(*s as u64));
    let parts = parts_for(pool, i64::try_from(madds / 16).unwrap_or(i64::MAX));
    // A part with few tiles would read all filters for little. Channels are cut only where
    // that leaves threads without work: each part then transforms the tiles again.
    let bytes = shape.to * shape.from * tile.points() * size_of::<f32>();
    let least = (bytes / FILTER_BYTES).clamp(8, 48);
    let (parts, threads) = (parts.div_ceil(c.groups), pool.threads().div_ceil(c.groups));
    let rows = parts.min(strips).min(strips * across / least).max(1);
    let panels = shape.to.div_ceil(kernels.nr);
    let columns = parts.min(threads).div_ceil(rows).min(panels.div_ceil(2)).max(1);
    // Reading all filters for few tiles is still better than waiting.
    let rows = rows.max(parts.min(threads) / columns).min(strips);
    pool.run(c.groups * rows * columns, &|part| {
        let (group, row, column) = (part / (rows * columns), part / columns % rows, part % columns);
        let channel = |column: usize| (panels * column / columns * kernels.nr).min(shape.to);
        let strips = (strips * row / rows, strips * (row + 1) / rows);
        // SAFETY: parts are disjoint.
        unsafe { job.run(kernels, group, strips, (channel(column), channel(column + 1))) };
    });
    true
}

/// Steps whose taps are brought together at a time.
const STEPS: usize = 8;
/// Most numbers of a transformed filter.
const MOST_POINTS: usize = 36;
/// Most taps of a window.
const MOST_TAPS: usize = 25;
/// Most lanes of a panel.
const LANES: usize = 2 * MAX_LANES;

/// Transforms and packs the filters.
///
/// # Safety
/// The filters exist; nobody else uses `to`; the CPU can run `kernels`.
unsafe fn filters(
    kernels: &Kernels<f32>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    shape: &Shape,
    tile: Tile,
    to: &Wholes<f32>,
) {
    let (Some(first), Some(second)) = (to.get(0), to.get(1)) else { return };
    // SAFETY: numbers of a filter are in one piece of memory.
    let point = unsafe { second.start.offset_from(first.start) }.unsigned_abs();
    let width = first.width;
    let panels = shape.to.div_ceil(width);
    let window = tile.window() * tile.window();
    let of_group = shape.to * shape.from * window;
    let work = c.groups * shape.to * shape.from * tile.points() / 8;
    let work = i64::try_from(work).unwrap_or(i64::MAX);
    let turned = c.kind != ConvKind::Forward;
    let all = c.groups * panels;
    pool.ranges(all, 1, pool.parts_for(all, work), &|lo, hi| {
        // What is beyond the last lane stays zero.
        let mut taps = [0f32; STEPS * MOST_TAPS * LANES];
        let mut numbers = [0f32; STEPS * MOST_POINTS * LANES];
        for panel in lo..hi {
            let (group, lane) = (panel / panels, panel % panels * width);
            let Some(first) = to.get(group * tile.points()) else { return };
            // Up to the end of all groups.
            let len = (c.groups - group) * of_group;
            let lanes = width.min(shape.to - lane);
            if lanes < width {
                taps.fill(0.0);
            }
            for (k0, kc) in k_blocks(shape.from) {
                for k in (k0..k0 + kc).step_by(STEPS) {
                    let count = STEPS.min(k0 + kc - k);
                    let start = c.rhs.cast::<f32>().wrapping_add(group * of_group);
                    // SAFETY: the caller's promise; taps and panels have room.
                    unsafe {
                        // Taps of a lane, step after step, lie side by side; or, of
                        // the gradient of the input, those of a step, lane after lane.
                        let runs = if turned { count } else { 1 };
                        for r in 0..runs {
                            let at = |l: usize| match turned {
                                false => ((lane + l) * shape.from + k) * window,
                                true => ((k + r) * shape.to + lane + l) * window,
                            };
                            let rows = rows_of(lanes, at);
                            let steps = count / runs * window;
                            let slack = at(lanes - 1) + steps + MAX_LANES <= len;
                            let to = taps.as_mut_ptr().add(r * window * width);
                            (kernels.turn)(start, &rows, lanes, steps, slack, width, to);
                        }
                        let len = count * width;
                        let filters = Filters {
                            taps: taps.as_ptr(),
                            width,
                            turned,
                            count,
                            lanes: width,
                            to: numbers.as_mut_ptr(),
                            point: len,
                        };
                        Transforms::of(kernels).filters(tile, &filters);
                        // The panels are far apart: a few steps of one at a time.
                        let to = first.panel(lane, k0, kc).add((k - k0) * width).cast_mut();
                        for p in 0..tile.points() {
                            let from = numbers.as_ptr().add(p * len);
                            to.add(p * point).copy_from_nonoverlapping(from, len);
                        }
                    }
                }
            }
        }
    });
}

struct Job<'a> {
    c: &'a ConvArgs<'a>,
    shape: Shape,
    tile: Tile,
    down: usize,
    across: usize,
    plan: Plan,
    filters: Wholes<f32>,
    /// Strips of a block.
    most: usize,
    plain: ByWindows<'a, f32>,
    finished: Option<BlockFn<'a>>,
}

/// Elements between numbers of transformed tiles that take `len` each: not a multiple of
/// what a cache's ways are apart, because all the numbers of a tile are used at once.
fn apart(len: usize) -> usize {
    let lines = len.div_ceil(MAX_LANES);
    (lines + (lines + 1) % 2) * MAX_LANES
}

impl Job<'_> {
    /// The strips of a block that are of one image: which image's group, counted over all
    /// images, from where to where.
    fn runs(
        &self,
        group: usize,
        strips: (usize, usize),
    ) -> impl Iterator<Item = (usize, usize, usize)> {
        let (down, groups) = (self.down, self.c.groups);
        (strips.0 / down..strips.1.div_ceil(down)).map(move |image| {
            let from = strips.0.max(image * down) - image * down;
            let to = strips.1.min((image + 1) * down) - image * down;
            (image * groups + group, from, to)
        })
    }

    /// # Safety
    /// Nobody else computes these strips of these channels.
    unsafe fn run(
        &self,
        kernels: &Kernels<f32>,
        group: usize,
        strips: (usize, usize),
        channels: (usize, usize),
    ) {
        let all = strips.1 - strips.0;
        if all == 0 || channels.0 == channels.1 {
            return;
        }
        let blocks = all.div_ceil(self.most);
        BLOCK.with_borrow_mut(|memory| {
            for b in 0..blocks {
                let at = |b: usize| strips.0 + all * b / blocks;
                // SAFETY: the caller's promise.
                unsafe { self.block(kernels, group, (at(b), at(b + 1)), channels, memory) };
            }
        });
    }

    /// # Safety
    /// As [`Job::run`].
    unsafe fn block(
        &self,
        kernels: &Kernels<f32>,
        group: usize,
        strips: (usize, usize),
        channels: (usize, usize),
        [tiles, sums, field, scratch]: &mut [Bytes; 4],
    ) {
        let Job { shape, tile, across, .. } = *self;
        let (points, size, wide) = (tile.points(), tile.size(), channels.1 - channels.0);
        let count = (strips.1 - strips.0) * across;
        let transforms = Transforms::of(kernels);
        // A vector may be written behind the last tile of a channel.
        let step = count.next_multiple_of(MAX_LANES) + MAX_LANES;
        let tile_row = wide.next_multiple_of(MAX_LANES);
        let (tiles_apart, sums_apart) = (apart(step * shape.from), apart(tile_row * count));
        let bytes = size_of::<f32>();
        grow(tiles, (points * tiles_apart + MAX_LANES) * bytes);
        grow(sums, (points * sums_apart + MAX_LANES) * bytes);
        grow(scratch, transform::scratch(tile, strips.1 - strips.0, across) * bytes);
        let (tiles, sums) = (tiles.as_ptr().cast::<f32>(), sums.as_ptr().cast::<f32>());
        // SAFETY: the memory has room for all of it; images, strips and channels exist.
        unsafe {
            let mut lane = 0;
            for (image, from, to) in self.runs(group, strips) {
                let source = self.c.lhs.cast::<f32>();
                let source = source.add(image * shape.from * self.plan.plane());
                let rows = (to - from) * size;
                for channel in (0..shape.from).step_by(CHANNELS) {
                    let here = CHANNELS.min(shape.from - channel);
                    let planes = source.add(channel * self.plan.plane());
                    let at = (from * size, rows);
                    self.plan.build::<f32, f32>(kernels, planes, here, at, field);
                    for i in 0..here {
                        let strips = Strips {
                            source: field.as_ptr().cast::<f32>().add(i * self.plan.channel(rows)),
                            row: self.plan.row(),
                            count: to - from,
                            across,
                            scratch: scratch.as_ptr().cast(),
                        };
                        let to = tiles.add((channel + i) * step + lane);
                        transforms.tiles(tile, &strips, to, tiles_apart);
                    }
                }
                lane += (to - from) * across;
            }
            for p in 0..points {
                let Some(filters) = self.filters.get(group * points + p) else { continue };
                let rect = Rect {
                    rows: (0, count),
                    columns: channels,
                    k: shape.from,
                    a: &Strided { start: tiles.add(p * tiles_apart).cast_const(), lane: 1, step },
                    b: &filters,
                    c: sums.add(p * sums_apart),
                    c_row: tile_row,
                    add: false,
                    finished: None,
                };
                rectangle(kernels, &rect);
            }
            let mut lane = 0;
            let plane = shape.height * shape.width;
            for (image, from, to) in self.runs(group, strips) {
                let row = image * shape.to;
                for strip in from..to {
                    let (top, bottom) = (strip * size, ((strip + 1) * size).min(shape.height));
                    let pixels = (top * shape.width, bottom * shape.width);
                    let out = self.c.out.cast::<f32>();
                    let finite = transforms.sums(
                        tile,
                        &Sums {
                            start: sums.add(lane * tile_row),
                            point: sums_apart,
                            tile: tile_row,
                            across,
                            channels: wide,
                            out: out.add((row + channels.0) * plane + pixels.0),
                            plane,
                            rows: bottom - top,
                            columns: shape.width,
                        },
                    );
                    if !finite {
                        self.plain.filters::<f32>(group, &mut |filters| {
                            self.plain.compute::<f32>(kernels, filters, image, channels, pixels);
                        });
                    } else if let Some(finished) = self.finished {
                        finished(row + channels.0, row + channels.1, pixels.0, pixels.1);
                    }
                    lane += across;
                }
            }
        }
    }
}
