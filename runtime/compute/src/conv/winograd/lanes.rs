//! Transforms whose vectors are of channels: for the gradient of the filter.
//!
//! Pictures come turned, [`LANES`] channels of a pixel side by side, so that nothing is
//! moved about within vectors, and what is transformed lies as the products read it: a
//! tile after the other, channels side by side.

use super::transform::{Tile, back, filter, into};
use crate::gemm::arch;
use crate::gemm::kernel::{Kernels, MAX_LANES, Simd};
use crate::gemm::portable;

/// Channels of a turned picture, on every machine.
pub const LANES: usize = MAX_LANES;
/// Most numbers along a side of a transformed tile.
const MOST: usize = 6;

/// Tiles of a turned picture, some rows of them.
#[derive(Clone, Copy)]
pub struct Turned {
    /// The first tile's first pixel, and pixels from row to row; rows of tiles.
    pub source: *const f32,
    pub row: usize,
    pub count: usize,
    /// Tiles in a row of them.
    pub across: usize,
    /// The rows of a transformed tile that are asked for.
    pub rows: (usize, usize),
    pub to: Place,
}

/// Where numbers of tiles go.
#[derive(Clone, Copy)]
pub struct Place {
    /// The first number of the first tile; elements from number to number and tile to tile.
    pub start: *mut f32,
    pub point: usize,
    pub tile: usize,
    /// Channels of a panel, and elements from panel to panel.
    pub width: usize,
    pub panel: usize,
}

impl Place {
    /// Where the first number of tile `at` goes, of channels from `v` on.
    #[inline(always)]
    fn of(&self, at: usize, v: usize) -> *mut f32 {
        let panels = v / self.width * self.panel + v % self.width;
        self.start.wrapping_add(at * self.tile + panels)
    }
}

/// Sums of one output channel and several input channels, and where the windows go.
#[derive(Clone, Copy)]
pub struct Windows {
    /// The first number, and elements from number to number.
    pub start: *const f32,
    pub point: usize,
    pub channels: usize,
    pub out: *mut f32,
}

type TurnedFn = unsafe fn(&Turned);
type WindowsFn = unsafe fn(&Windows) -> bool;

/// Transforms for one instruction set, by [`Tile`]: that is a tile of the output's
/// gradient here, which takes the part of the filter, and the window is the result.
pub struct Transforms {
    pictures: [TurnedFn; 3],
    gradients: [TurnedFn; 3],
    windows: [WindowsFn; 3],
}

impl Transforms {
    /// Those that go with `kernels`.
    pub fn of(kernels: &Kernels<f32>) -> &'static Transforms {
        match kernels.name {
            #[cfg(target_arch = "x86_64")]
            "avx512" => &AVX512,
            #[cfg(target_arch = "x86_64")]
            "avx2" => &AVX2,
            #[cfg(target_arch = "aarch64")]
            "neon" => &NEON,
            _ => &PORTABLE,
        }
    }

    /// What the input's tiles are transformed to.
    ///
    /// # Safety
    /// The pixels exist, and room for the numbers; the CPU can run these kernels.
    pub unsafe fn pictures(&self, tile: Tile, turned: &Turned) {
        // SAFETY: the caller's promise.
        unsafe { self.pictures[tile as usize](turned) }
    }

    /// And those of the output's gradient.
    ///
    /// # Safety
    /// As [`Transforms::pictures`].
    pub unsafe fn gradients(&self, tile: Tile, turned: &Turned) {
        // SAFETY: the caller's promise.
        unsafe { self.gradients[tile as usize](turned) }
    }

    /// Brings sums back to windows; says whether all came out finite.
    ///
    /// # Safety
    /// Sums, with a vector behind them, and windows exist; the CPU can run these kernels.
    pub unsafe fn windows(&self, tile: Tile, windows: &Windows) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.windows[tile as usize](windows) }
    }
}

macro_rules! transforms {
    ($table:ident, $simd:ty $(, $features:literal)?) => {
        static $table: Transforms = {
            $(#[target_feature(enable = $features)])?
            unsafe fn pictures<const M: usize, const N: usize>(t: &Turned) {
                // SAFETY: the caller's promise.
                unsafe { pictures_in::<$simd, M, N>(t) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn gradients<const M: usize, const N: usize>(t: &Turned) {
                // SAFETY: the caller's promise.
                unsafe { gradients_in::<$simd, M, N>(t) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn windows<const K: usize, const N: usize>(w: &Windows) -> bool {
                // SAFETY: the caller's promise.
                unsafe { windows_out::<$simd, K, N>(w) }
            }
            Transforms {
                pictures: [pictures::<2, 4>, pictures::<4, 6>, pictures::<2, 6>],
                gradients: [gradients::<2, 4>, gradients::<4, 6>, gradients::<2, 6>],
                windows: [windows::<3, 4>, windows::<3, 6>, windows::<5, 6>],
            }
        };
    };
}

#[cfg(target_arch = "x86_64")]
transforms!(AVX512, arch::F32x16, "avx512f");
#[cfg(target_arch = "x86_64")]
transforms!(AVX2, arch::F32x8, "avx2,fma");
#[cfg(target_arch = "aarch64")]
transforms!(NEON, arch::F32x4, "neon");
transforms!(PORTABLE, portable::F32x4);

/// # Safety
/// As [`Transforms::pictures`].
#[inline(always)]
unsafe fn pictures_in<S: Simd<T = f32>, const M: usize, const N: usize>(t: &Turned) {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = S::splat(0.0);
        for at in 0..t.count * t.across {
            let (strip, x) = (at / t.across, at % t.across);
            for v in (0..LANES).step_by(S::LANES) {
                let source = t.source.add((strip * M * t.row + x * M) * LANES + v);
                let to = t.to.of(at, v);
                let mut columns = [[zero; N]; N];
                for (x, column) in columns.iter_mut().enumerate() {
                    let mut d = [zero; N];
                    for (y, d) in d.iter_mut().enumerate() {
                        *d = S::load(source.add((y * t.row + x) * LANES));
                    }
                    *column = into::<S, N>(d);
                }
                for i in t.rows.0..t.rows.1.min(MOST) {
                    let mut d = [zero; N];
                    for (d, column) in d.iter_mut().zip(&columns) {
                        *d = column[i];
                    }
                    let to = to.add((i - t.rows.0) * N * t.to.point);
                    for (j, w) in into::<S, N>(d).iter().enumerate() {
                        S::store(to.add(j * t.to.point), *w);
                    }
                }
            }
        }
    }
}

/// # Safety
/// As [`Transforms::gradients`].
#[inline(always)]
unsafe fn gradients_in<S: Simd<T = f32>, const M: usize, const N: usize>(t: &Turned) {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = S::splat(0.0);
        for at in 0..t.count * t.across {
            let (strip, x) = (at / t.across, at % t.across);
            for v in (0..LANES).step_by(S::LANES) {
                let source = t.source.add((strip * M * t.row + x * M) * LANES + v);
                let to = t.to.of(at, v);
                let mut columns = [[zero; N]; M];
                for (x, column) in columns.iter_mut().enumerate() {
                    let mut g = [zero; M];
                    for (y, g) in g.iter_mut().enumerate() {
                        *g = S::load(source.add((y * t.row + x) * LANES));
                    }
                    *column = filter::<S, M, N>(g);
                }
                for i in t.rows.0..t.rows.1.min(MOST) {
                    let mut g = [zero; M];
                    for (g, column) in g.iter_mut().zip(&columns) {
                        *g = column[i];
                    }
                    let to = to.add((i - t.rows.0) * N * t.to.point);
                    for (j, u) in filter::<S, M, N>(g).iter().enumerate() {
                        S::store(to.add(j * t.to.point), *u);
                    }
                }
            }
        }
    }
}

/// # Safety
/// As [`Transforms::windows`].
#[inline(always)]
unsafe fn windows_out<S: Simd<T = f32>, const K: usize, const N: usize>(w: &Windows) -> bool {
    let rows: [usize; MAX_LANES] = std::array::from_fn(|l| l * S::LANES);
    // The taps, and room to read whole vectors of them.
    let mut taps = [0f32; 32 * MAX_LANES];
    // SAFETY: the caller's promise; there is room for a vector of each tap.
    unsafe {
        // Zero times what is not finite is NaN, which stays.
        let zero = S::splat(0.0);
        let mut seen = zero;
        for c in (0..w.channels).step_by(S::LANES) {
            let channels = S::LANES.min(w.channels - c);
            let mut half = [[zero; K]; N];
            for (i, half) in half.iter_mut().enumerate() {
                let mut m = [zero; N];
                for (j, m) in m.iter_mut().enumerate() {
                    let at = w.start.add((i * N + j) * w.point + c);
                    *m = if channels == S::LANES {
                        S::load(at)
                    } else {
                        S::load_first(at, channels)
                    };
                }
                *half = back::<S, K, N>(m);
            }
            for x in 0..K {
                let mut column = [zero; N];
                for (m, half) in column.iter_mut().zip(&half) {
                    *m = half[x];
                }
                for (y, v) in back::<S, K, N>(column).iter().enumerate() {
                    seen = S::fma(*v, zero, seen);
                    S::store(taps.as_mut_ptr().add((y * K + x) * S::LANES), *v);
                }
            }
            for tap in (0..K * K).step_by(S::LANES) {
                let block = (channels, S::LANES.min(K * K - tap));
                let out = w.out.add(c * K * K + tap);
                let from = taps.as_ptr().add(tap * S::LANES);
                S::turn_block(from, rows.as_ptr(), block, out, K * K);
            }
        }
        let mut lanes = [0f32; MAX_LANES];
        S::store(lanes.as_mut_ptr(), seen);
        lanes.iter().all(|l| *l == 0.0)
    }
}
