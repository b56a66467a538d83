//! The gradient of a filter that reads few channels.
//!
//! As a product of matrices it is narrow: gathering the windows would take as long as
//! multiplying them. So nothing is gathered. Vectors are of output channels, and what they are
//! multiplied by, a pixel for each tap, is read where it is in a [`super::field`]. The output's
//! gradient has rows as long as the field's, with zeros behind them, so that a tap's pixels
//! are as far apart in one as in the other, row after row.
//!
//! The rows of all images are cut into chunks, which follow from the sizes alone and are added
//! up in order. Threads take chunks.
//!
//! If something does not come out finite, all of it is computed again as a product: behind the
//! rows, zeros meet pixels that may be infinite.

use super::ConvArgs;
use super::field::Plan;
use crate::gemm::driver::grow;
use crate::gemm::kernel::{Kernels, MAX_LANES, Simd};
use crate::gemm::pack::rows_of;
use crate::gemm::{BlockFn, arch, portable};
use crate::mem::Bytes;
use crate::pool::Pool;
use std::cell::RefCell;
use tfc_abi::DType;
use tfc_abi::plan::ConvKind;

thread_local! {
    /// The sums of all chunks.
    static SUMS: RefCell<Bytes> = const { RefCell::new(Bytes::empty()) };
    /// Some rows of the output's gradient, turned, and their field.
    static BLOCK: RefCell<[Bytes; 2]> = const { RefCell::new([Bytes::empty(), Bytes::empty()]) };
}

/// More input channels than these are gathered.
const MOST_CHANNELS: usize = 4;
/// Fewer output channels leave vectors half empty.
const LEAST_CHANNELS: usize = 16;
/// Most weights of an output channel, and pixels of a row.
const MOST_WEIGHTS: usize = 512;
const MOST_COLUMNS: usize = 4096;
/// Steps of a block, whose gradients stay in L1 while taps pass by.
const STEPS: usize = 160;
/// Steps of a chunk at least, and chunks at most.
const LEAST_STEPS: usize = 2048;
const MOST_CHUNKS: usize = 32;

/// `sums[r][l] (+)= sum of a[offsets[r] + s] * b[s][l]` for `l` in two vectors: `a`, its
/// offsets, `b` and its steps, the sums, and whether they are added to.
type SumFn = unsafe fn(*const f32, &[usize], *const f32, usize, *mut f32, bool);

/// The function that goes with `kernels`.
fn sum_of(kernels: &Kernels<f32>) -> SumFn {
    match kernels.name {
        #[cfg(target_arch = "x86_64")]
        "avx512" => avx512,
        #[cfg(target_arch = "x86_64")]
        "avx2" => avx2,
        #[cfg(target_arch = "aarch64")]
        "neon" => neon,
        _ => plainly,
    }
}

macro_rules! sums {
    ($name:ident, $simd:ty, $most:literal $(, $features:literal)?) => {
        $(#[target_feature(enable = $features)])?
        unsafe fn $name(
            a: *const f32, offsets: &[usize], b: *const f32, steps: usize, sums: *mut f32,
            add: bool,
        ) {
            // SAFETY: the caller's promise.
            unsafe { all::<$simd, $most>(a, offsets, b, steps, sums, add) }
        }
    };
}

// As many rows at a time as there are registers for.
#[cfg(target_arch = "x86_64")]
sums!(avx512, arch::F32x16, 9, "avx512f");
#[cfg(target_arch = "x86_64")]
sums!(avx2, arch::F32x8, 5, "avx2,fma");
#[cfg(target_arch = "aarch64")]
sums!(neon, arch::F32x4, 9, "neon");
sums!(plainly, portable::F32x4, 5);

/// # Safety
/// What is read and written exists; the CPU has `S`; here and below.
#[inline(always)]
unsafe fn all<S: Simd<T = f32>, const MOST: usize>(
    a: *const f32,
    offsets: &[usize],
    b: *const f32,
    steps: usize,
    sums: *mut f32,
    add: bool,
) {
    let (count, parts) = (offsets.len(), offsets.len().div_ceil(MOST));
    for part in 0..parts {
        let (from, to) = (count * part / parts, count * (part + 1) / parts);
        // SAFETY: passed on.
        unsafe {
            let (offsets, sums) = (&offsets[from..to], sums.add(from * 2 * S::LANES));
            match to - from {
                1 => some::<S, 1>(a, offsets, b, steps, sums, add),
                2 => some::<S, 2>(a, offsets, b, steps, sums, add),
                3 => some::<S, 3>(a, offsets, b, steps, sums, add),
                4 => some::<S, 4>(a, offsets, b, steps, sums, add),
                5 => some::<S, 5>(a, offsets, b, steps, sums, add),
                6 => some::<S, 6>(a, offsets, b, steps, sums, add),
                7 => some::<S, 7>(a, offsets, b, steps, sums, add),
                8 => some::<S, 8>(a, offsets, b, steps, sums, add),
                _ => some::<S, 9>(a, offsets, b, steps, sums, add),
            }
        }
    }
}

/// `R` rows of [`all`].
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn some<S: Simd<T = f32>, const R: usize>(
    a: *const f32,
    offsets: &[usize],
    b: *const f32,
    steps: usize,
    sums: *mut f32,
    add: bool,
) {
    // SAFETY: passed on.
    unsafe {
        let mut rows = [a; R];
        for (row, offset) in rows.iter_mut().zip(offsets) {
            *row = a.add(*offset);
        }
        let mut totals = [[S::splat(0.0); 2]; R];
        for s in 0..steps {
            let b = b.add(s * 2 * S::LANES);
            let (low, high) = (S::load(b), S::load(b.add(S::LANES)));
            for (row, total) in rows.iter().zip(&mut totals) {
                let x = S::splat(*row.add(s));
                total[0] = S::fma(x, low, total[0]);
                total[1] = S::fma(x, high, total[1]);
            }
        }
        for (r, total) in totals.iter().enumerate() {
            for (v, total) in total.iter().enumerate() {
                let to = sums.add((2 * r + v) * S::LANES);
                S::store(to, if add { S::add(S::load(to), *total) } else { *total });
            }
        }
    }
}

struct Job<'a> {
    c: &'a ConvArgs<'a>,
    plan: Plan,
    /// Rows of the output of all images, and the chunks they are cut into.
    rows: usize,
    chunks: usize,
    /// Weights of an output channel, and panels of these.
    weights: usize,
    panels: usize,
    /// Sums of every chunk, [`Job::each`] of them.
    sums: *mut f32,
}

// SAFETY: operands are read only, and chunks have sums of their own.
unsafe impl Sync for Job<'_> {}

/// Computes the gradient of a filter, if it is one of these; says whether it is done.
///
/// # Safety
/// As [`super::conv`], for f32; the CPU can run `kernels`.
pub unsafe fn conv(
    kernels: &Kernels<f32>,
    pool: &Pool,
    c: &ConvArgs<'_>,
    finished: Option<BlockFn<'_>>,
) -> bool {
    let weights = c.in_channels * c.kernel[0] * c.kernel[1];
    let fits = c.kind == ConvKind::GradFilter
        && c.dtype == DType::F32
        && !c.plain
        && c.groups == 1
        && c.in_channels <= MOST_CHANNELS
        && c.out_channels >= LEAST_CHANNELS
        && (1..=MOST_WEIGHTS).contains(&weights)
        && c.batch * c.in_h * c.in_w * c.out_h * c.out_w > 0;
    if !fits {
        return false;
    }
    let plan = Plan::forward(c);
    if plan.row() > MOST_COLUMNS {
        return false;
    }
    let rows = c.batch * c.out_h;
    let chunks = (rows * plan.row() / LEAST_STEPS).clamp(1, MOST_CHUNKS.min(rows));
    let panels = c.out_channels.div_ceil(kernels.nr);
    let mut memory = SUMS.take();
    let each = panels * weights * kernels.nr;
    grow(&mut memory, chunks * each * size_of::<f32>());
    let sums = memory.as_ptr().cast();
    let job = Job { c, plan, rows, chunks, weights, panels, sums };
    let work = rows * job.plan.row() * weights * c.out_channels / 16;
    let parts = pool.parts_for(chunks, i64::try_from(work).unwrap_or(i64::MAX));
    // SAFETY: every chunk is one part's.
    pool.ranges(chunks, 1, parts, &|lo, hi| unsafe {
        (lo..hi).for_each(|chunk| job.chunk(kernels, chunk));
    });
    // SAFETY: the sums are there.
    let finite = unsafe { job.add_up(kernels.nr) };
    SUMS.set(memory);
    if let Some(finished) = finished.filter(|_| finite) {
        finished(0, c.out_channels, 0, weights);
    }
    finite
}

impl Job<'_> {
    /// Sums of a chunk.
    fn each(&self, nr: usize) -> usize {
        self.panels * self.weights * nr
    }

    /// # Safety
    /// Nobody else computes this chunk.
    unsafe fn chunk(&self, kernels: &Kernels<f32>, chunk: usize) {
        let Job { c, plan, rows, chunks, weights, .. } = self;
        let (nr, sum) = (kernels.nr, sum_of(kernels));
        let at = |chunk: usize| rows * chunk / chunks;
        let (mut row, end) = (at(chunk), at(chunk + 1));
        let most = (STEPS / plan.row()).max(1);
        let plane = c.out_h * c.out_w;
        let sums = self.sums.wrapping_add(chunk * self.each(nr));
        let mut first = true;
        BLOCK.with_borrow_mut(|[turned, field]| {
            grow(turned, most * plan.row() * nr * size_of::<f32>());
            let turned = turned.as_ptr().cast::<f32>();
            while row < end {
                let (image, y) = (row / c.out_h, row % c.out_h);
                let count = most.min(end - row).min(c.out_h - y);
                let source = c.lhs.cast::<f32>().wrapping_add(image * c.in_channels * plan.plane());
                let taps = plan.offsets(count);
                let channel = plan.channel(count);
                let mut offsets = [0; MOST_WEIGHTS];
                for (w, offset) in offsets.iter_mut().enumerate().take(*weights) {
                    *offset = w / taps.len() * channel + taps[w % taps.len()];
                }
                // SAFETY: rows and channels exist; what is turned has room, and the field
                // is as long for every tap.
                unsafe {
                    plan.build::<f32, f32>(kernels, source, c.in_channels, (y, count), field);
                    for panel in 0..self.panels {
                        let lanes = nr.min(c.out_channels - panel * nr);
                        let from = (image * c.out_channels + panel * nr) * plane + y * c.out_w;
                        self.turn(kernels, (from, lanes), count, turned);
                        sum(
                            field.as_ptr().cast(),
                            &offsets[..*weights],
                            turned,
                            (count - 1) * plan.row() + c.out_w,
                            sums.add(panel * weights * nr),
                            !first,
                        );
                    }
                }
                first = false;
                row += count;
            }
        });
    }

    /// Rows of the output's gradient from element `from` on, so many channels side by side.
    ///
    /// # Safety
    /// They exist, and `to` has room for them.
    unsafe fn turn(
        &self,
        kernels: &Kernels<f32>,
        (from, lanes): (usize, usize),
        count: usize,
        to: *mut f32,
    ) {
        let Job { c, plan, .. } = self;
        let (nr, plane) = (kernels.nr, c.out_h * c.out_w);
        let (len, start) = (c.batch * c.out_channels * plane, c.rhs.cast::<f32>());
        let sources = rows_of(lanes, |l| l * plane);
        // SAFETY: the caller's promise.
        unsafe {
            if lanes < nr {
                to.write_bytes(0, count * plan.row() * nr);
            }
            for y in 0..count {
                let (at, to) = (from + y * c.out_w, to.add(y * plan.row() * nr));
                let slack = at + (lanes - 1) * plane + c.out_w + MAX_LANES <= len;
                (kernels.turn)(start.add(at), &sources, lanes, c.out_w, slack, nr, to);
                to.add(c.out_w * nr).write_bytes(0, (plan.row() - c.out_w) * nr);
            }
        }
    }

    /// Adds up the chunks; says whether all came out finite.
    ///
    /// # Safety
    /// All of them are computed.
    unsafe fn add_up(&self, nr: usize) -> bool {
        let each = self.each(nr);
        // SAFETY: the memory has so many sums, which nobody else uses any more.
        let (first, others) = unsafe {
            std::slice::from_raw_parts_mut(self.sums, self.chunks * each).split_at_mut(each)
        };
        for chunk in others.chunks_exact(each) {
            first.iter_mut().zip(chunk).for_each(|(sum, more)| *sum += *more);
        }
        let mut finite = true;
        for o in 0..self.c.out_channels {
            for w in 0..self.weights {
                let sum = first[(o / nr * self.weights + w) * nr + o % nr];
                finite &= sum.is_finite();
                // SAFETY: the result has this weight.
                unsafe { *self.c.out.cast::<f32>().add(o * self.weights + w) = sum };
            }
        }
        finite
    }
}
