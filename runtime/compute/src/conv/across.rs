//! Convolutions with vectors of channels, whose pixels are read where they lie.
//!
//! A tile is a few neighbouring pixels by two vectors of channels. Its right operand are the
//! packed filters, which pass by once, in order: where pictures are small, they are most of
//! what is read. Its left one are pixels of the whole picture's [`field`](super::field),
//! laid out once for all channels and by all threads, and never copied to panels; or the
//! picture itself, if windows are single pixels. Rows of seven, fourteen, twenty-eight ..
//! pixels are whole tiles. What comes out, pixel by pixel, is turned while it is in cache.

use super::implicit::{ByWindows, Result};
use crate::gemm::driver::{grow, k_blocks};
use crate::gemm::kernel::{CACHE_LINE, GatherFn, Kernels, MAX_LANES, Real};
use crate::gemm::pack::{Operand, Packed, Strided};
use crate::gemm::prepack::Wholes;
use crate::mem::Bytes;
use crate::pool::{MAX_PARTS, Pool};
use std::cell::RefCell;

thread_local! {
    /// Fields of pictures, in the thread that called.
    static FIELDS: RefCell<Bytes> = const { RefCell::new(Bytes::empty()) };
    /// Sums of a vector or two of channels.
    static SUMS: RefCell<Bytes> = const { RefCell::new(Bytes::empty()) };
}

/// Rows of fewer pixels, unless two of them make a tile, leave too much to each step.
const LEAST_RUN: usize = 4;
/// Bytes of fields laid out together, and of one at most.
const FIELDS_BYTES: usize = 4 << 20;
const MOST_FIELD: usize = 16 << 20;
/// Pixels whose sums stay in cache while `k` passes by.
const PIXELS: usize = 448;
/// Elements that are handed on together, if there are as many.
const TOGETHER: usize = 8192;
/// What it takes to turn a sum, in multiply-adds; and to bring a pixel into a panel, or one
/// of a window, for each step of `k`.
const TURNING: usize = 22;
const PACKING: usize = 10;
const GATHERING: usize = 28;
/// Elements laid out in a nanosecond, roughly.
const LAID_PER_NS: usize = 4;

/// Pixels computed together.
struct Tile<T: 'static> {
    run: [GatherFn<T>; 2],
    /// The first pixel, and where it and the second run of pixels are in a channel.
    pixel: usize,
    at: usize,
    second: usize,
    pixels: usize,
}

/// What a job reads, and how it is cut.
pub struct Across<T: 'static> {
    tiles: Vec<Tile<T>>,
    /// Where each step of `k` is in a field.
    steps: Vec<usize>,
    /// Elements of a field.
    field: usize,
    /// Pictures are their own fields.
    as_is: bool,
}

/// Tiles that cover `height` rows of `width` pixels, which are `row` elements apart.
fn tiles<T>(kernels: &Kernels<T>, [height, width]: [usize; 2], row: usize) -> Option<Vec<Tile<T>>> {
    let pair = kernels.pairs.iter().find(|(w, _)| *w == width && height > 1);
    if pair.is_none() && width < LEAST_RUN {
        return None;
    }
    let runs = width.div_ceil(kernels.gather.len());
    let (mut tiles, mut y) = (vec![], 0);
    while y < height {
        let (pixel, at) = (y * width, y * row);
        if let (Some((_, run)), true) = (pair, y + 1 < height) {
            tiles.push(Tile { run: *run, pixel, at, second: row, pixels: 2 * width });
            y += 2;
            continue;
        }
        for r in 0..runs {
            let (x, end) = (width * r / runs, width * (r + 1) / runs);
            let run = *kernels.gather.get(end - x - 1)?;
            tiles.push(Tile { run, pixel: pixel + x, at: at + x, second: 0, pixels: end - x });
        }
        y += 1;
    }
    Some(tiles)
}

/// Whether vectors of channels take less time than vectors of pixels, for sums of `k`
/// products: both in multiply-adds of lanes, as measured.
fn worth((channels, pixels, k): (usize, usize, usize), nr: usize, row: usize, whole: bool) -> bool {
    let half = (nr / 2).max(1);
    if 2 * channels < half {
        // Most of each vector would be empty.
        return false;
    }
    // Sums are turned afterwards. Pixels are packed before.
    let across = channels.next_multiple_of(half) * pixels * (k + TURNING);
    // Panels of short rows are put together from more pieces.
    let packing = if whole { PACKING } else { GATHERING * (1 + nr / row) };
    across < pixels.next_multiple_of(half) * k * (channels + packing) + channels * pixels * 4
}

impl<T: Real> Across<T> {
    /// How a job is computed this way, if that is a good one.
    pub fn of<E: Result<T>>(kernels: &Kernels<T>, job: &ByWindows<'_, E>) -> Option<Across<T>>
    where
        Strided<E>: Operand<T>,
    {
        let plan = &job.plan;
        let (height, width) = (plan.y.grid, plan.x.grid);
        let source = Strided { start: job.c.lhs.cast::<E>(), lane: 1, step: 1 };
        let as_is = job.whole() && source.direct().is_some();
        let channel = plan.channel(height);
        let field = job.from * channel;
        let sizes = (job.to, plan.pixels(), job.from * plan.taps());
        if (!as_is && field * size_of::<T>() > MOST_FIELD)
            || !worth(sizes, kernels.nr, width.max(1), job.whole())
        {
            return None;
        }
        // Rows without anything between them are one.
        let grid = if plan.row() == width { [1, height * width] } else { [height, width] };
        let tiles = tiles(kernels, grid, plan.row())?;
        let offsets = plan.offsets(height);
        let steps = (0..job.from).flat_map(|c| offsets.iter().map(move |at| c * channel + at));
        Some(Across { tiles, steps: steps.collect(), field, as_is })
    }

    /// # Safety
    /// As [`super::conv`], for the job that `self` is of; `filters` are its filters in
    /// panels of `kernels.nr` lanes.
    pub unsafe fn conv<E: Result<T>>(
        &self,
        kernels: &Kernels<T>,
        pool: &Pool,
        job: &ByWindows<'_, E>,
        filters: &Wholes<T>,
        parts: usize,
    ) where
        Strided<E>: Operand<T>,
    {
        let (plan, matrices) = (&job.plan, job.c.batch * job.c.groups);
        let source =
            |matrix: usize| job.c.lhs.cast::<E>().wrapping_add(matrix * job.from * plan.plane());
        let some = match self.as_is {
            true => matrices,
            false => (FIELDS_BYTES / (self.field * size_of::<T>()).max(1)).clamp(1, matrices),
        };
        let mut fields = FIELDS.take();
        if !self.as_is {
            grow(&mut fields, some * self.field * size_of::<T>());
        }
        let start = Start(fields.as_ptr().cast::<T>());
        for first in (0..matrices).step_by(some) {
            let count = some.min(matrices - first);
            if !self.as_is {
                let channels = count * job.from;
                let ns = i64::try_from(count * self.field / LAID_PER_NS).unwrap_or(i64::MAX);
                let (rows, channel) = ((0, plan.y.grid), plan.channel(plan.y.grid));
                pool.ranges(channels, 1, pool.parts_for(channels, ns), &|lo, hi| {
                    // Channels of all pictures follow each other, here and there.
                    let from = source(first).wrapping_add(lo * plan.plane());
                    let to = start.at(lo * channel).cast_mut();
                    // SAFETY: these channels exist, and the field has room for them.
                    unsafe { plan.build_at::<T, E>(kernels, from, hi - lo, rows, to) };
                });
            }
            let cut = Cut::new(parts, count, (job.to, kernels.nr), self.tiles.len());
            cut.run(pool, &|i, channels, tiles| {
                let matrix = first + i;
                let Some(filters) = filters.get(matrix % job.c.groups) else { return };
                let image = Strided { start: source(matrix), lane: 1, step: 1 };
                let image = match image.direct() {
                    Some((image, ..)) if self.as_is => image,
                    _ => start.at(i * self.field),
                };
                // SAFETY: parts are disjoint; the picture or its field is there.
                unsafe { self.part(kernels, job, matrix, (image, filters), channels, tiles) };
            });
        }
        FIELDS.set(fields);
    }

    /// Some channels of some tiles of one picture.
    ///
    /// # Safety
    /// They exist, and nobody else computes them; `image` is the field.
    unsafe fn part<E: Result<T>>(
        &self,
        kernels: &Kernels<T>,
        job: &ByWindows<'_, E>,
        matrix: usize,
        (image, filters): (*const T, Packed<T>),
        channels: (usize, usize),
        tiles: (usize, usize),
    ) where
        Strided<E>: Operand<T>,
    {
        let (nr, n, k) = (kernels.nr, job.plan.pixels(), self.steps.len());
        let out = job.c.out.cast::<E>().wrapping_add(matrix * job.to * n);
        SUMS.with_borrow_mut(|sums| {
            let tiles = &self.tiles[tiles.0..tiles.1];
            let most = tiles.iter().map(|t| t.pixels).max().unwrap_or(0);
            grow(sums, (PIXELS + most + MAX_LANES) * nr * size_of::<T>());
            // The pixels turned at once; of the last ones, some are none.
            let rows: [usize; MAX_LANES] = std::array::from_fn(|l| l * nr);
            let sums = sums.as_ptr().cast::<T>();
            let blocks: Vec<&[Tile<T>]> = chunks(tiles).collect();
            // Channels that are not handed on yet.
            let mut waiting = channels.0;
            let mut lane = channels.0;
            while lane < channels.1 {
                let (panel, end) = (lane / nr * nr, (lane / nr + 1) * nr);
                let end = end.min(channels.1);
                let narrow = usize::from(end - lane <= nr / 2);
                for (i, tiles) in blocks.iter().enumerate() {
                    let Some(first) = tiles.first() else { continue };
                    for (k0, kc) in k_blocks(k) {
                        let b = filters.panel(panel, k0, kc).wrapping_add(lane - panel);
                        // The filters of the next step, and of the next panel, are asked for.
                        let next = match k_blocks(k).find(|(at, _)| *at == k0 + kc) {
                            Some((at, steps)) if i == 0 => {
                                (filters.panel(panel, at, steps), steps * nr)
                            }
                            None if i + 1 == blocks.len() && panel + nr < filters.lanes => {
                                let steps = k_blocks(k).next().map_or(0, |(_, kc)| kc);
                                (filters.panel(panel + nr, 0, steps), steps * nr)
                            }
                            _ => (b, 0),
                        };
                        let step = next.1.div_ceil((kc * tiles.len()).max(1));
                        let step = step.min(CACHE_LINE / size_of::<T>());
                        let mut ahead = next.0;
                        for tile in *tiles {
                            let c = sums.wrapping_add((tile.pixel - first.pixel) * nr);
                            let a = image.wrapping_add(tile.at);
                            let steps = &self.steps[k0..k0 + kc];
                            // SAFETY: every step of the tile's pixels is in the field, and
                            // the sums have room for them.
                            unsafe {
                                (tile.run[narrow])(
                                    steps,
                                    a,
                                    tile.second,
                                    b,
                                    nr,
                                    c,
                                    nr,
                                    k0 > 0,
                                    ahead,
                                    step,
                                );
                            }
                            ahead = ahead.wrapping_add(kc * step);
                        }
                    }
                    let end_pixel = tiles.last().map_or(0, |t| t.pixel + t.pixels);
                    for p in (first.pixel..end_pixel).step_by(MAX_LANES) {
                        let lanes = MAX_LANES.min(end_pixel - p);
                        let sums = sums.wrapping_add((p - first.pixel) * nr);
                        let out = out.wrapping_add(lane * n + p);
                        // SAFETY: the sums are there, with a vector beyond the last; these
                        // pixels of these channels are the part's own.
                        unsafe { E::turn_out(kernels, sums, &rows, (lanes, end - lane), out, n) };
                    }
                }
                lane = end;
                if let (Some(first), Some(last)) = (tiles.first(), tiles.last()) {
                    let pixels = (first.pixel, last.pixel + last.pixels);
                    let elements = (lane - waiting) * (pixels.1 - pixels.0);
                    if elements >= TOGETHER || lane == channels.1 {
                        // SAFETY: these were just computed, and are this thread's.
                        unsafe { job.hand_on::<T>(matrix, (waiting, lane), pixels) };
                        waiting = lane;
                    }
                }
            }
        });
    }
}

/// Runs of tiles of about [`PIXELS`] pixels each.
fn chunks<T>(tiles: &[Tile<T>]) -> impl Iterator<Item = &[Tile<T>]> {
    let pixels: usize = tiles.iter().map(|t| t.pixels).sum();
    let count = pixels.div_ceil(PIXELS).max(1);
    let each = tiles.len().div_ceil(count).max(1);
    tiles.chunks(each)
}

struct Start<T>(*const T);

// SAFETY: who uses the address says why that may be.
unsafe impl<T> Sync for Start<T> {}

impl<T> Start<T> {
    fn at(&self, offset: usize) -> *const T {
        self.0.wrapping_add(offset)
    }
}

/// How results are cut: matrices, then channels and tiles of each.
struct Cut {
    matrices: usize,
    channels: usize,
    /// Lanes of a panel, and of which bounds are multiples.
    unit: usize,
    tiles: usize,
    parts: (usize, usize),
}

impl Cut {
    /// About `parts` parts, of which none is much larger than another: of channels, so that
    /// filters are read once, unless tiles come out more even.
    fn new(parts: usize, matrices: usize, (channels, nr): (usize, usize), tiles: usize) -> Cut {
        let each = parts.div_ceil(matrices.max(1)).max(1);
        let half = (nr / 2).max(1);
        let (panels, halves) = (channels.div_ceil(nr).max(1), channels.div_ceil(half).max(1));
        let mut best = (usize::MAX, nr, (1, 1));
        for down in (1..=each).filter(|d| each.is_multiple_of(*d)) {
            let across = each / down;
            if across > tiles {
                continue;
            }
            let some = tiles.div_ceil(across);
            // Half panels cost a little more than their share.
            let whole = (2 * panels.div_ceil(down) * some * 16, nr);
            let by_half = (halves.div_ceil(down) * some * 17, half);
            let least = if down == 1 { whole } else { whole.min(by_half) };
            if least.0 <= best.0 {
                best = (least.0, least.1, (down, across));
            }
        }
        Cut { matrices, channels, unit: best.1, tiles, parts: best.2 }
    }

    /// `task(matrix, channels, tiles)` for every part.
    fn run(&self, pool: &Pool, task: &(dyn Fn(usize, (usize, usize), (usize, usize)) + Sync)) {
        let (down, across) = self.parts;
        let total = self.matrices * down * across;
        let units = self.channels.div_ceil(self.unit);
        let one = |part: usize| {
            let (matrix, rest) = (part / (down * across), part % (down * across));
            let (d, a) = (rest / across, rest % across);
            let lane = |d: usize| (units * d / down * self.unit).min(self.channels);
            let (channels, tiles) =
                ((lane(d), lane(d + 1)), (self.tiles * a / across, self.tiles * (a + 1) / across));
            if channels.0 < channels.1 && tiles.0 < tiles.1 {
                task(matrix, channels, tiles);
            }
        };
        // More parts than a region can have go in runs.
        let runs = total.min(MAX_PARTS);
        pool.run(runs, &|t| (total * t / runs..total * (t + 1) / runs).for_each(one));
    }
}
