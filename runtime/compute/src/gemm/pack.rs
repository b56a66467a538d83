//! Operands of a product, and how they are brought into panels.
//!
//! Both operands look alike from the product: *lanes* (rows of the left one,
//! columns of the right one) by steps of `k`. A panel holds `width` lanes, step
//! after step, zeros beyond the last lane. Transposition, conversion from
//! half-precision and the gathering of convolution windows all happen here.
//!
//! The loops are written over [`Simd`] and reached through [`Kernels`].

use super::kernel::{Kernels, MAX_LANES, Real, Simd};
use crate::half::{bf16, f16};

/// Panels filled together by [`copy`], so that what is read comes in long runs.
const TOGETHER: usize = 4;
/// Steps ahead that [`copy`] asks for.
const AHEAD: usize = 8;

pub trait Operand<T>: Sync {
    /// Writes lanes `lane..lane + lanes` and steps `step..step + steps` to
    /// panels of `width` lanes, which follow each other.
    ///
    /// # Safety
    /// The lanes and steps exist, and `panels` is valid for
    /// `steps * lanes.next_multiple_of(width)` elements.
    unsafe fn pack(
        &self,
        kernels: &Kernels<T>,
        lanes: (usize, usize),
        steps: (usize, usize),
        width: usize,
        panels: *mut T,
    );

    /// Address of the first element, stride of lanes, stride of steps, when the
    /// elements can be used where they are.
    fn direct(&self) -> Option<(*const T, usize, usize)> {
        None
    }

    /// The operand in panels, when that is what it is.
    fn packed(&self) -> Option<Packed<T>> {
        None
    }
}

/// An operand that is in panels already: blocks of `k` one after another, each
/// with all its panels.
#[derive(Clone, Copy)]
pub struct Packed<T> {
    pub start: *const T,
    pub lanes: usize,
    pub width: usize,
}

// SAFETY: only read.
unsafe impl<T: Sync> Sync for Packed<T> {}

impl<T> Packed<T> {
    /// Elements that an operand of `lanes` and `k` takes.
    pub fn len(lanes: usize, k: usize, width: usize) -> usize {
        lanes.next_multiple_of(width) * k
    }

    /// The panel that starts with `lane`, for `steps` steps from `step`, where a
    /// block of `k` starts.
    pub fn panel(&self, lane: usize, step: usize, steps: usize) -> *const T {
        debug_assert!(lane.is_multiple_of(self.width));
        self.start.wrapping_add(step * self.lanes.next_multiple_of(self.width) + lane * steps)
    }
}

impl<T: Real> Operand<T> for Packed<T> {
    unsafe fn pack(
        &self,
        _: &Kernels<T>,
        (lane, lanes): (usize, usize),
        (step, steps): (usize, usize),
        width: usize,
        panels: *mut T,
    ) {
        debug_assert_eq!(width, self.width);
        let len = steps * lanes.next_multiple_of(width);
        // SAFETY: the caller's promise.
        unsafe { panels.copy_from_nonoverlapping(self.panel(lane, step, steps), len) };
    }

    fn packed(&self) -> Option<Packed<T>> {
        Some(*self)
    }
}

/// A matrix in memory, of elements `E`.
#[derive(Clone, Copy)]
pub struct Strided<E> {
    pub start: *const E,
    pub lane: usize,
    pub step: usize,
}

// SAFETY: only read.
unsafe impl<E: Sync> Sync for Strided<E> {}

/// Runs `pack` for each panel of `width` lanes: its first lane, its lanes, where
/// it goes.
#[inline(always)]
pub fn each_panel<T: Copy + Default>(
    (lane, lanes): (usize, usize),
    steps: usize,
    width: usize,
    panels: *mut T,
    mut pack: impl FnMut(usize, usize, *mut T),
) {
    for l in (0..lanes).step_by(width) {
        let (here, panel) = (width.min(lanes - l), panels.wrapping_add(l * steps));
        pack(lane + l, here, panel);
        if here < width {
            for p in 0..steps {
                for l in here..width {
                    // SAFETY: `panels` is valid for `steps` of `width` lanes.
                    unsafe { *panel.add(p * width + l) = T::default() };
                }
            }
        }
    }
}

impl<E: Copy> Strided<E> {
    /// Element by element, with a conversion.
    ///
    /// # Safety
    /// As [`Operand::pack`].
    unsafe fn pack_as<T: Copy + Default>(
        &self,
        lanes: (usize, usize),
        (step, steps): (usize, usize),
        width: usize,
        panels: *mut T,
        convert: impl Fn(E) -> T + Copy,
    ) {
        each_panel(lanes, steps, width, panels, |lane, lanes, panel| {
            for p in 0..steps {
                for l in 0..lanes {
                    let at = (lane + l) * self.lane + (step + p) * self.step;
                    // SAFETY: the caller's promise.
                    unsafe { *panel.add(p * width + l) = convert(*self.start.add(at)) };
                }
            }
        });
    }
}

/// Where the lanes of a panel start, for [`turn`]: beyond the last lane, the last
/// lane again.
pub fn rows_of(lanes: usize, at: impl Fn(usize) -> usize) -> [usize; 2 * MAX_LANES] {
    std::array::from_fn(|l| at(l.min(lanes.saturating_sub(1))))
}

macro_rules! same_type {
    ($($t:ty),*) => {$(
        impl Operand<$t> for Strided<$t> {
            unsafe fn pack(
                &self,
                kernels: &Kernels<$t>,
                lanes: (usize, usize),
                (step, steps): (usize, usize),
                width: usize,
                panels: *mut $t,
            ) {
                let start = self.start.wrapping_add(step * self.step);
                // SAFETY: the caller's promise.
                unsafe {
                    if self.lane == 1 {
                        let start = start.add(lanes.0);
                        (kernels.copy)(start, self.step, lanes.1, steps, width, panels);
                    } else if self.step == 1 {
                        each_panel(lanes, steps, width, panels, |lane, lanes, panel| {
                            let rows = rows_of(lanes, |l| (lane + l) * self.lane);
                            (kernels.turn)(start, &rows, lanes, steps, false, width, panel);
                        });
                    } else {
                        self.pack_as(lanes, (step, steps), width, panels, |x| x);
                    }
                }
            }

            fn direct(&self) -> Option<(*const $t, usize, usize)> {
                Some((self.start, self.lane, self.step))
            }
        }
    )*};
}

same_type!(f32, f64);

macro_rules! half_type {
    ($($t:ty),*) => {$(
        impl Operand<f32> for Strided<$t> {
            unsafe fn pack(
                &self,
                _: &Kernels<f32>,
                lanes: (usize, usize),
                steps: (usize, usize),
                width: usize,
                panels: *mut f32,
            ) {
                // SAFETY: the caller's promise.
                unsafe { self.pack_as(lanes, steps, width, panels, <$t>::to_f32) };
            }
        }
    )*};
}

half_type!(f16, bf16);

/// Panels of a matrix whose lanes lie side by side, `step` elements from step to
/// step. Lanes beyond the last are zeros.
///
/// # Safety
/// The matrix exists; `panels` has room for `steps` of `lanes`, rounded up to
/// `width`.
#[inline(always)]
pub unsafe fn copy<S: Simd>(
    src: *const S::T,
    step: usize,
    lanes: usize,
    steps: usize,
    width: usize,
    panels: *mut S::T,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        let whole = if width == 2 * S::LANES { lanes / width } else { 0 };
        let mut done = 0;
        while done < whole {
            let group = TOGETHER.min(whole - done);
            let (src, panels) = (src.add(done * width), panels.add(done * width * steps));
            for p in 0..steps {
                let src = src.add(p * step);
                for q in 0..group {
                    let src = src.add(q * width);
                    S::prefetch(src.wrapping_add(AHEAD * step));
                    let dst = panels.add((q * steps + p) * width);
                    let (low, high) = (S::load(src), S::load(src.add(S::LANES)));
                    S::store(dst, low);
                    S::store(dst.add(S::LANES), high);
                }
            }
            done += group;
        }
        let mut l = whole * width;
        while l < lanes {
            let (here, panel) = (width.min(lanes - l), panels.add(l * steps));
            for p in 0..steps {
                let (src, dst) = (src.add(l + p * step), panel.add(p * width));
                let mut v = 0;
                while v < width {
                    let have = S::LANES.min(here.saturating_sub(v));
                    let room = S::LANES.min(width - v);
                    // `have` may be none, and then `src` is not touched.
                    let x = S::load_first(src.wrapping_add(v), have);
                    S::store_first(dst.add(v), x, room);
                    v += S::LANES;
                }
            }
            l += width;
        }
    }
}

/// A panel of a matrix whose steps lie side by side; lane `l` starts at
/// `rows[l]`. With `slack`, a vector can be read wherever a step can.
///
/// # Safety
/// The lanes have `steps` steps; `rows` has a vector's worth of entries for every
/// vector of lanes begun, each the start of some lane; `panel` has room for
/// `steps` steps.
#[inline(always)]
pub unsafe fn turn<S: Simd>(
    base: *const S::T,
    rows: &[usize],
    lanes: usize,
    steps: usize,
    slack: bool,
    width: usize,
    panel: *mut S::T,
) {
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        if steps < S::LANES && !slack {
            for s in 0..steps {
                for (l, row) in rows.iter().enumerate().take(lanes) {
                    *panel.add(s * width + l) = *base.add(row + s);
                }
            }
            return;
        }
        let mut s = 0;
        while s < steps {
            // Without slack the last block begins early, among steps done.
            let at = if slack { s } else { s.min(steps - S::LANES) };
            let here = S::LANES.min(steps - at);
            let (base, panel) = (base.add(at), panel.add(at * width));
            let mut l = 0;
            while l < lanes {
                let block = (here, S::LANES.min(lanes - l));
                S::turn_block(base, rows.as_ptr().add(l), block, panel.add(l), width);
                l += S::LANES;
            }
            s += S::LANES;
        }
    }
}

/// A panel by whole vectors: for step `p` and every `(from, to)` of `moves`, a
/// vector from `base[steps[p] + from]` to lane `to`. Later moves and steps
/// overwrite what earlier ones left behind their last lane.
///
/// # Safety
/// A vector can be read at each of these places; `panel` has room for the steps.
#[inline(always)]
pub unsafe fn moves<S: Simd>(
    base: *const S::T,
    moves: &[(usize, usize)],
    steps: &[usize],
    width: usize,
    panel: *mut S::T,
) {
    let Some((last, steps)) = steps.split_last() else { return };
    // SAFETY: the caller's promise covers every access below.
    unsafe {
        match moves {
            [a, b] => some_moves::<S, 2>(base, &[*a, *b], steps, width, panel),
            [a, b, c] => some_moves::<S, 3>(base, &[*a, *b, *c], steps, width, panel),
            [a, b, c, d] => some_moves::<S, 4>(base, &[*a, *b, *c, *d], steps, width, panel),
            _ => {
                for (p, step) in steps.iter().enumerate() {
                    let (src, dst) = (base.add(*step), panel.add(p * width));
                    for (from, to) in moves {
                        S::store(dst.add(*to), S::load(src.add(*from)));
                    }
                }
            }
        }
        // Behind the last step is no room.
        let (src, dst) = (base.add(*last), panel.add(steps.len() * width));
        for (from, to) in moves {
            S::store_first(dst.add(*to), S::load(src.add(*from)), S::LANES.min(width - to));
        }
    }
}

/// # Safety
/// As [`moves`], but for the last step.
#[inline(always)]
unsafe fn some_moves<S: Simd, const N: usize>(
    base: *const S::T,
    moves: &[(usize, usize); N],
    steps: &[usize],
    width: usize,
    panel: *mut S::T,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for (p, step) in steps.iter().enumerate() {
            let (src, dst) = (base.add(*step), panel.add(p * width));
            for (from, to) in moves {
                S::store(dst.add(*to), S::load(src.add(*from)));
            }
        }
    }
}

/// Packs lanes `lanes.0..lanes.0 + lanes.1` of an operand into what will be all
/// of it, `whole`.
///
/// # Safety
/// As [`Operand::pack`], for all steps of these lanes; `whole` has room for
/// [`Packed::len`] elements, and nobody else uses these lanes of it.
pub unsafe fn pack_whole<T: Real>(
    kernels: &Kernels<T>,
    operand: &dyn Operand<T>,
    lanes: (usize, usize),
    k: usize,
    whole: &Packed<T>,
) {
    for (k0, kc) in super::driver::k_blocks(k) {
        let at = whole.panel(lanes.0, k0, kc).cast_mut();
        // SAFETY: the caller's promise.
        unsafe { operand.pack(kernels, lanes, (k0, kc), whole.width, at) };
    }
}
