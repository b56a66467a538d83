//! Operands of a product, and how they are brought into panels.
//!
//! Both operands look alike from the product: *lanes* (rows of the left one,
//! columns of the right one) by steps of `k`. A panel holds `width` lanes, step
//! after step, zeros beyond the last lane. Transposition, conversion from
//! half-precision and the gathering of convolution windows all happen here.

use crate::half::{bf16, f16};

pub trait Operand<T>: Sync {
    /// Writes lanes `lane..lane + lanes` and steps `step..step + steps` to
    /// `panel`, `width` elements a step.
    ///
    /// # Safety
    /// The lanes and steps exist, `lanes <= width`, and `panel` is valid for
    /// `steps * width` elements.
    unsafe fn pack(
        &self,
        lane: usize,
        lanes: usize,
        step: usize,
        steps: usize,
        width: usize,
        panel: *mut T,
    );

    /// Address of the first element, stride of lanes, stride of steps, when the
    /// elements can be used where they are.
    fn direct(&self) -> Option<(*const T, usize, usize)> {
        None
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

impl<E: Copy> Strided<E> {
    /// # Safety
    /// As [`Operand::pack`].
    unsafe fn pack_as<T: Copy + Default>(
        &self,
        [lane, lanes, step, steps, width]: [usize; 5],
        panel: *mut T,
        convert: impl Fn(E) -> T + Copy,
    ) {
        // SAFETY: the caller's promise covers every access below.
        unsafe {
            let start = self.start.add(lane * self.lane + step * self.step);
            if self.lane == 1 {
                for p in 0..steps {
                    let (src, dst) = (start.add(p * self.step), panel.add(p * width));
                    for l in 0..lanes {
                        *dst.add(l) = convert(*src.add(l));
                    }
                }
            } else {
                // Eight steps at a time, so that the lines written stay close.
                let mut p = 0;
                while p + 8 <= steps {
                    for l in 0..lanes {
                        let src = start.add(l * self.lane + p * self.step);
                        let dst = panel.add(p * width + l);
                        for q in 0..8 {
                            *dst.add(q * width) = convert(*src.add(q * self.step));
                        }
                    }
                    p += 8;
                }
                for p in p..steps {
                    for l in 0..lanes {
                        *panel.add(p * width + l) =
                            convert(*start.add(l * self.lane + p * self.step));
                    }
                }
            }
            pad(panel, lanes, steps, width);
        }
    }
}

/// Zeros in lanes `lanes..width`.
///
/// # Safety
/// `panel` is valid for `steps * width` elements.
pub unsafe fn pad<T: Copy + Default>(panel: *mut T, lanes: usize, steps: usize, width: usize) {
    if lanes < width {
        for p in 0..steps {
            for l in lanes..width {
                // SAFETY: `p < steps`, `l < width`.
                unsafe { *panel.add(p * width + l) = T::default() };
            }
        }
    }
}

macro_rules! same_type {
    ($($t:ty),*) => {$(
        impl Operand<$t> for Strided<$t> {
            unsafe fn pack(
                &self, lane: usize, lanes: usize, step: usize, steps: usize, width: usize,
                panel: *mut $t,
            ) {
                // SAFETY: the caller's promise. The width is a constant in the
                // first arms so that whole panels become vector copies.
                unsafe {
                    match (lanes == width, width) {
                        (true, 16) => {
                            self.pack_as([lane, 16, step, steps, 16], panel, |x| x);
                        }
                        (true, 8) => self.pack_as([lane, 8, step, steps, 8], panel, |x| x),
                        (true, 6) => self.pack_as([lane, 6, step, steps, 6], panel, |x| x),
                        _ => self.pack_as([lane, lanes, step, steps, width], panel, |x| x),
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
                &self, lane: usize, lanes: usize, step: usize, steps: usize, width: usize,
                panel: *mut f32,
            ) {
                // SAFETY: the caller's promise.
                unsafe {
                    self.pack_as([lane, lanes, step, steps, width], panel, <$t>::to_f32);
                }
            }
        }
    )*};
}

half_type!(f16, bf16);
