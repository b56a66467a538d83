//! The transforms of [`super::winograd`]: tiles of a picture, filters, and sums.
//!
//! A tile of the result is `M x M` pixels and, with windows of `K x K`, needs `N x N` of
//! the source, `N` being `M + K - 1`. Transformed, it is `N * N` numbers for each channel,
//! and a convolution is a product of matrices for each of them.
//!
//! | `N` | the polynomials are evaluated at |
//! |---|---|
//! | 4 | 0, 1, -1 and infinity |
//! | 6 | 0, `±A`, `±B` and infinity |
//!
//! How pictures are transformed depends on `N` alone. The points keep the numbers of about
//! one size, so that little is lost: with six of them the error is two to three times that
//! of the plain sum, and with four it is smaller than that. All coefficients of pictures
//! are exact.

use crate::gemm::arch;
use crate::gemm::kernel::{Kernels, MAX_LANES, Simd};
use crate::gemm::portable;

const A: f32 = 0.75;
const B: f32 = 1.5;

/// Rows and columns of a tile of the result, and of the windows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tile {
    TwoBy3,
    FourBy3,
    TwoBy5,
}

impl Tile {
    /// Those for windows of so many rows and columns.
    pub fn of(window: [usize; 2]) -> &'static [Tile] {
        match window {
            [3, 3] => &[Tile::TwoBy3, Tile::FourBy3],
            [5, 5] => &[Tile::TwoBy5],
            _ => &[],
        }
    }

    /// Pixels of the result along a side.
    pub fn size(self) -> usize {
        match self {
            Tile::TwoBy3 | Tile::TwoBy5 => 2,
            Tile::FourBy3 => 4,
        }
    }

    /// Taps of the windows along a side.
    pub fn window(self) -> usize {
        match self {
            Tile::TwoBy3 | Tile::FourBy3 => 3,
            Tile::TwoBy5 => 5,
        }
    }

    /// Pixels of the source along a side.
    pub fn reads(self) -> usize {
        self.size() + self.window() - 1
    }

    /// Numbers of a transformed tile.
    pub fn points(self) -> usize {
        self.reads() * self.reads()
    }
}

/// Rows of tiles of one channel of the source.
#[derive(Clone, Copy)]
pub struct Strips {
    /// The first pixel of the first tile, and elements from row to row.
    pub source: *const f32,
    pub row: usize,
    pub count: usize,
    /// Tiles in a row of them.
    pub across: usize,
    /// [`scratch`] elements.
    pub scratch: *mut f32,
}

/// Elements that [`Transforms::tiles`] needs beside its operands.
pub fn scratch(tile: Tile, strips: usize, across: usize) -> usize {
    let (size, reads) = (tile.size(), tile.reads());
    let copies = reads.div_ceil(size);
    copies * reads * lane_row(size, strips * across) + reads
}

/// Elements for the pixels of one row of every tile, with room for a vector of tiles
/// behind them.
fn lane_row(size: usize, tiles: usize) -> usize {
    size * (tiles + MAX_LANES) + 2 * MAX_LANES
}

/// Sums of a row of tiles, and where the pixels go.
#[derive(Clone, Copy)]
pub struct Sums {
    /// The first tile's first channel; elements from number to number of a transformed
    /// tile, and from tile to tile.
    pub start: *const f32,
    pub point: usize,
    pub tile: usize,
    pub across: usize,
    pub channels: usize,
    /// The first pixel of the first channel, and elements from channel to channel.
    pub out: *mut f32,
    pub plane: usize,
    /// Rows and columns there are.
    pub rows: usize,
    pub columns: usize,
}

/// Filters of one panel, a tap of all of them after the other.
#[derive(Clone, Copy)]
pub struct Filters {
    pub taps: *const f32,
    /// Elements from tap to tap.
    pub width: usize,
    /// Whether the last tap comes first.
    pub turned: bool,
    /// Steps, each of all taps of a window.
    pub count: usize,
    /// Lanes of the panel, where number `p` of a filter goes `p * point` behind the first.
    pub lanes: usize,
    pub to: *mut f32,
    pub point: usize,
}

/// Transforms the tiles of a channel. Number `p` of tile `t` goes to `p * point + t` of
/// what is given, a vector more may be written.
type TilesFn = unsafe fn(&Strips, *mut f32, usize);
/// Brings sums back to pixels; says whether all are finite.
type SumsFn = unsafe fn(&Sums) -> bool;
/// Transforms filters.
type FiltersFn = unsafe fn(&Filters);

/// Transforms for one instruction set.
pub struct Transforms {
    /// By tile; here and below.
    tiles: [TilesFn; 3],
    sums: [SumsFn; 3],
    filters: [FiltersFn; 3],
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

    /// # Safety
    /// The rows of the strips exist, with a vector behind them, and the scratch memory;
    /// `to` has room for the tiles and a vector; the CPU can run these kernels.
    pub unsafe fn tiles(&self, tile: Tile, strips: &Strips, to: *mut f32, point: usize) {
        // SAFETY: the caller's promise.
        unsafe { self.tiles[tile as usize](strips, to, point) }
    }

    /// Whether every pixel came out finite.
    ///
    /// # Safety
    /// Sums and pixels exist; the CPU can run these kernels.
    pub unsafe fn sums(&self, tile: Tile, sums: &Sums) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.sums[tile as usize](sums) }
    }

    /// # Safety
    /// The taps exist, and room for the panels; the CPU can run these kernels.
    pub unsafe fn filters(&self, tile: Tile, filters: &Filters) {
        // SAFETY: the caller's promise.
        unsafe { self.filters[tile as usize](filters) }
    }
}

macro_rules! transforms {
    ($table:ident, $simd:ty $(, $features:literal)?) => {
        static $table: Transforms = {
            $(#[target_feature(enable = $features)])?
            unsafe fn tiles<const M: usize, const N: usize>(s: &Strips, to: *mut f32, p: usize) {
                // SAFETY: the caller's promise.
                unsafe { tiles_in::<$simd, M, N>(s, to, p) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn sums<const M: usize, const N: usize>(s: &Sums) -> bool {
                // SAFETY: the caller's promise.
                unsafe { tiles_out::<$simd, M, N>(s) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn filters<const K: usize, const N: usize>(f: &Filters) {
                // SAFETY: the caller's promise.
                unsafe { filters_in::<$simd, K, N>(f) }
            }
            Transforms {
                tiles: [tiles::<2, 4>, tiles::<4, 6>, tiles::<2, 6>],
                sums: [sums::<2, 4>, sums::<4, 6>, sums::<2, 6>],
                filters: [filters::<3, 4>, filters::<3, 6>, filters::<5, 6>],
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

/// `a - b`
///
/// # Safety
/// The CPU has `S`; here and below.
#[inline(always)]
unsafe fn sub<S: Simd<T = f32>>(a: S::V, b: S::V) -> S::V {
    // SAFETY: passed on.
    unsafe { S::fma(S::splat(-1.0), b, a) }
}

/// `x * b + c`
#[inline(always)]
unsafe fn times<S: Simd<T = f32>>(x: f32, b: S::V, c: S::V) -> S::V {
    // SAFETY: passed on.
    unsafe { S::fma(S::splat(x), b, c) }
}

/// A row or column of a tile of the source, transformed.
#[inline(always)]
pub unsafe fn into<S: Simd<T = f32>, const N: usize>(d: [S::V; N]) -> [S::V; N] {
    let mut w = d;
    // SAFETY: passed on.
    unsafe {
        if N == 4 {
            w[0] = sub::<S>(d[0], d[2]);
            w[1] = S::add(d[1], d[2]);
            w[2] = sub::<S>(d[2], d[1]);
            w[3] = sub::<S>(d[1], d[3]);
        } else {
            let (a, b) = (A * A, B * B);
            w[0] = times::<S>(a * b, d[0], times::<S>(-(a + b), d[2], d[4]));
            let (even, odd) = (times::<S>(-b, d[2], d[4]), times::<S>(-b, d[1], d[3]));
            w[1] = times::<S>(A, odd, even);
            w[2] = times::<S>(-A, odd, even);
            let (even, odd) = (times::<S>(-a, d[2], d[4]), times::<S>(-a, d[1], d[3]));
            w[3] = times::<S>(B, odd, even);
            w[4] = times::<S>(-B, odd, even);
            w[5] = times::<S>(a * b, d[1], times::<S>(-(a + b), d[3], d[5]));
        }
    }
    w
}

/// A row or column of sums, brought back to pixels.
#[inline(always)]
pub unsafe fn back<S: Simd<T = f32>, const M: usize, const N: usize>(m: [S::V; N]) -> [S::V; M] {
    // SAFETY: passed on.
    unsafe {
        let mut y = [m[0]; M];
        let (even, odd) = (S::add(m[1], m[2]), sub::<S>(m[1], m[2]));
        if N == 4 {
            y[0] = S::add(m[0], even);
            for (i, y) in y.iter_mut().enumerate().skip(1) {
                *y = if i % 2 == 0 { even } else { odd };
            }
            y[M - 1] = sub::<S>(y[M - 1], m[3]);
            return y;
        }
        let (even_b, odd_b) = (S::add(m[3], m[4]), sub::<S>(m[3], m[4]));
        y[0] = S::add(m[0], S::add(even, even_b));
        // Pixel `i` is the sum of the powers `i` of the points.
        let (mut a, mut b) = (1.0, 1.0);
        for (i, y) in y.iter_mut().enumerate().skip(1) {
            (a, b) = (a * A, b * B);
            let (own, others) = if i % 2 == 0 { (even, even_b) } else { (odd, odd_b) };
            let last = if i + 1 == M { m[5] } else { S::splat(0.0) };
            *y = times::<S>(a, own, times::<S>(b, others, last));
        }
        y
    }
}

/// # Safety
/// As [`Transforms::tiles`].
#[inline(always)]
unsafe fn tiles_in<S: Simd<T = f32>, const M: usize, const N: usize>(
    strips: &Strips,
    to: *mut f32,
    point: usize,
) {
    let Strips { source, row, count, across, scratch } = *strips;
    let (wide, tiles) = (across * M, count * across);
    // For each row of a transformed tile the pixels of all tiles, side by side; and
    // once more from the next tile on, whose first pixels are among the last of this one,
    // and so on.
    let (each, copies) = (lane_row(M, tiles), N.div_ceil(M));
    // SAFETY: the caller's promise. Vectors are written from the last strip to the
    // first, so that what a vector holds before its strip is overwritten; what it holds
    // behind is not written.
    unsafe {
        let first = scratch.add(N);
        for s in (0..count).rev() {
            for x in (0..wide + N - M).step_by(S::LANES) {
                let mut d = [S::splat(0.0); N];
                for (y, d) in d.iter_mut().enumerate() {
                    *d = S::load(source.add((s * M + y) * row + x));
                }
                let w = into::<S, N>(d);
                for copy in 0..copies {
                    // Pixels of this strip that are left, as this copy has them.
                    let ahead = wide + (copy * M).min(N - M);
                    let here = ahead.saturating_sub(x).min(S::LANES);
                    let to = first.add(copy * N * each + s * wide + x).sub(copy * M);
                    for (i, w) in w.iter().enumerate() {
                        if here == S::LANES {
                            S::store(to.add(i * each), *w);
                        } else {
                            S::store_first(to.add(i * each), *w, here);
                        }
                    }
                }
            }
        }
        for i in 0..N {
            let pixels = first.add(i * each);
            for t in (0..tiles).step_by(S::LANES) {
                let mut d = [S::splat(0.0); N];
                for (copy, d) in d.chunks_mut(M).enumerate() {
                    let own = S::every::<M>(pixels.add(copy * N * each + M * t));
                    d.copy_from_slice(&own[..d.len()]);
                }
                for (j, w) in into::<S, N>(d).iter().enumerate() {
                    S::store(to.add((i * N + j) * point + t), *w);
                }
            }
        }
    }
}

/// # Safety
/// As [`Transforms::sums`].
#[inline(always)]
unsafe fn tiles_out<S: Simd<T = f32>, const M: usize, const N: usize>(sums: &Sums) -> bool {
    // Tiles whose pixels fill a vector.
    let group = S::LANES / M;
    let rows: [usize; MAX_LANES] = std::array::from_fn(|l| l * S::LANES);
    let mut pixels = [0f32; 4 * 16 * 16];
    let side = S::LANES * S::LANES;
    // SAFETY: the caller's promise; a row of pixels has room for a group of tiles.
    unsafe {
        // Zero times what is not finite is NaN, which stays.
        let zero = S::splat(0.0);
        let mut seen = zero;
        for c in (0..sums.channels).step_by(S::LANES) {
            let channels = S::LANES.min(sums.channels - c);
            for t in (0..sums.across).step_by(group) {
                let tiles = group.min(sums.across - t);
                for g in 0..tiles {
                    let start = sums.start.add((t + g) * sums.tile + c);
                    let mut half = [[zero; M]; N];
                    for (i, half) in half.iter_mut().enumerate() {
                        let mut m = [zero; N];
                        for (j, m) in m.iter_mut().enumerate() {
                            let at = start.add((i * N + j) * sums.point);
                            *m = if channels == S::LANES {
                                S::load(at)
                            } else {
                                S::load_first(at, channels)
                            };
                        }
                        *half = back::<S, M, N>(m);
                    }
                    for x in 0..M {
                        let mut column = [zero; N];
                        for (i, half) in half.iter().enumerate() {
                            column[i] = half[x];
                        }
                        for (y, v) in back::<S, M, N>(column).iter().enumerate() {
                            seen = S::fma(*v, zero, seen);
                            let at = y * side + (g * M + x) * S::LANES;
                            S::store(pixels.as_mut_ptr().add(at), *v);
                        }
                    }
                }
                let wide = (tiles * M).min(sums.columns - t * M);
                for y in 0..sums.rows {
                    let out = sums.out.add(c * sums.plane + y * sums.columns + t * M);
                    let from = pixels.as_ptr().add(y * side);
                    S::turn_block(from, rows.as_ptr(), (channels, wide), out, sums.plane);
                }
            }
        }
        let mut lanes = [0f32; MAX_LANES];
        S::store(lanes.as_mut_ptr(), seen);
        lanes.iter().all(|l| *l == 0.0)
    }
}

/// A row or column of filters, transformed.
///
/// # Safety
/// The CPU has `S`.
#[inline(always)]
pub unsafe fn filter<S: Simd<T = f32>, const K: usize, const N: usize>(g: [S::V; K]) -> [S::V; N] {
    let (a, b) = (A * A, B * B);
    // The first point, and those that are two of one size, with what divides them.
    let (first, pairs): (f32, &[(f32, f32)]) = match N {
        4 => (1.0, &[(1.0, 0.5)]),
        _ => (1.0 / (a * b), &[(A, 0.5 / (a * (a - b))), (B, 0.5 / (b * (b - a)))]),
    };
    // SAFETY: passed on.
    unsafe {
        let zero = S::splat(0.0);
        let mut u = [zero; N];
        u[0] = times::<S>(first, g[0], zero);
        u[N - 1] = g[K - 1];
        for (i, (at, scale)) in pairs.iter().enumerate() {
            let (mut even, mut odd) = (zero, zero);
            // The factors of even taps, and of odd ones.
            let (mut factor, mut tap) = ([*scale, scale * at], 0);
            while tap < K {
                let sum = if tap % 2 == 0 { &mut even } else { &mut odd };
                *sum = times::<S>(factor[tap % 2], g[tap], *sum);
                factor[tap % 2] *= at * at;
                tap += 1;
            }
            u[1 + 2 * i] = S::add(even, odd);
            u[2 + 2 * i] = sub::<S>(even, odd);
        }
        u
    }
}

/// # Safety
/// As [`Transforms::filters`].
#[inline(always)]
unsafe fn filters_in<S: Simd<T = f32>, const K: usize, const N: usize>(f: &Filters) {
    // SAFETY: the caller's promise.
    unsafe {
        let zero = S::splat(0.0);
        for k in 0..f.count {
            for l in (0..f.lanes).step_by(S::LANES) {
                let taps = f.taps.add(k * K * K * f.width + l);
                let mut columns = [[zero; N]; K];
                for (x, column) in columns.iter_mut().enumerate() {
                    let mut g = [zero; K];
                    for (y, g) in g.iter_mut().enumerate() {
                        let tap = if f.turned { K * K - 1 - y * K - x } else { y * K + x };
                        *g = S::load(taps.add(tap * f.width));
                    }
                    *column = filter::<S, K, N>(g);
                }
                for i in 0..N {
                    let mut g = [zero; K];
                    for (g, column) in g.iter_mut().zip(&columns) {
                        *g = column[i];
                    }
                    for (j, u) in filter::<S, K, N>(g).iter().enumerate() {
                        S::store(f.to.add((i * N + j) * f.point + k * f.lanes + l), *u);
                    }
                }
            }
        }
    }
}
