//! Weighted sums of small planes, where they are: no padding is laid out, and no stride.
//!
//! A plane's result is covered by vectors, of which as many lanes are of use as can be: where
//! rows of the source are as long as those of the result, vectors run on from row to row. For
//! each vector and tap it is known beforehand which lanes the source has; the others are zero.
//! That is found out once, and is the same for all channels.

use super::kernel::{MAX_LANES, Simd};

/// Vectors computed at once: enough to hide the latency of a multiply-add.
const AT_ONCE: usize = 4;
/// Longest rows over whose ends vectors run.
const LONGEST: usize = 64;

/// A plane that is read or written: its rows and columns.
pub type Size = [usize; 2];

/// Lanes of a vector that the source has for some tap: in the first half and the second, if
/// neighbours are two elements apart, or else all together.
type Which = [u16; 2];

/// A vector of the result: where the first half goes and the second, or all of it; and where
/// they would be read for a tap right there.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    to: [isize; 2],
    which: Which,
    from: [isize; 2],
}

/// How a plane's result is covered.
pub struct Cover {
    step: usize,
    /// How far from there the taps are.
    taps: Vec<isize>,
    /// The vectors, rounded up to those computed at once.
    places: Vec<Place>,
    /// By vectors computed at once, then taps, then the vector.
    spots: Vec<Which>,
}

/// Bits of the lanes from `low` to `high`.
fn lanes(low: usize, high: usize) -> u16 {
    ((1u32 << high.max(low)) - (1u32 << low)) as u16
}

/// Bits of every second lane, those at even places, of `low` to `high` among all such.
fn evens(low: usize, high: usize) -> u32 {
    (((1u64 << (2 * high.max(low))) - (1u64 << (2 * low))) & 0x5555_5555) as u32
}

/// Of `count` places that are `step` apart, from `first` on, those inside of `size`.
fn inside(first: isize, step: usize, count: usize, size: usize) -> (usize, usize) {
    let entries = |room: isize| (room.max(0) as usize).div_ceil(step).min(count);
    let low = entries(-first);
    (low, entries(size as isize - first).max(low))
}

impl Cover {
    /// For taps that are so many rows down and columns to the right, and vectors of `width`
    /// lanes; none if it would take more than `most` vectors times taps.
    pub fn new(
        source: Size,
        result: Size,
        step: usize,
        taps: &[(isize, isize)],
        width: usize,
        most: usize,
    ) -> Option<Cover> {
        let mut cover = Cover {
            step,
            taps: taps.iter().map(|(y, x)| y * source[1] as isize + x).collect(),
            places: vec![],
            spots: vec![],
        };
        if taps.is_empty() || result[0] * result[1] == 0 {
            return None;
        }
        let run_on = step == 1 && source[1] == result[1] && result[1] <= LONGEST;
        let each = if run_on { result[0] * result[1] } else { result[1] };
        let vectors = result[0] * result[1] / each * each.div_ceil(width);
        if vectors * taps.len() > most {
            return None;
        }
        match step {
            1 if run_on => cover.run_on(source, result, taps, width),
            1 => cover.rows(source, result, taps, width),
            2 => cover.apart(source, result, taps, width),
            _ => return None,
        }
        Some(cover)
    }

    /// Adds vectors with their spots, which come vector by vector.
    fn finish(&mut self, places: Vec<Place>, spots: &[Which]) {
        let count = places.len().next_multiple_of(AT_ONCE);
        self.spots = Vec::with_capacity(count * self.taps.len());
        for group in (0..count).step_by(AT_ONCE) {
            for tap in 0..self.taps.len() {
                for v in group..group + AT_ONCE {
                    self.spots
                        .push(spots.get(v * self.taps.len() + tap).copied().unwrap_or_default());
                }
            }
        }
        self.places = places;
        self.places.resize(count, Place::default());
    }

    fn run_on(&mut self, [height, row]: Size, result: Size, taps: &[(isize, isize)], width: usize) {
        let n = result[0] * row;
        // By tap, which pixels have their column in the source: a bit for each.
        let mut columns: Vec<(isize, Vec<u64>)> = vec![];
        for (_, x) in taps {
            if columns.iter().any(|(known, _)| known == x) {
                continue;
            }
            let (low, high) = inside(*x, 1, row, row);
            let mut bits = vec![0u64; n / 64 + 2];
            let line = ((1u128 << high) - (1u128 << low)) as u64;
            for first in (0..n).step_by(row) {
                bits[first / 64] |= line << (first % 64);
                if first % 64 > 0 {
                    bits[first / 64 + 1] |= line >> (64 - first % 64);
                }
            }
            columns.push((*x, bits));
        }
        let (mut places, mut spots) = (vec![], vec![]);
        for first in (0..n).step_by(width) {
            let count = width.min(n - first);
            let at = [first as isize; 2];
            places.push(Place { to: at, which: [lanes(0, count), 0], from: at });
            for (y, x) in taps {
                let bits = columns.iter().find(|(known, _)| known == x).map_or(0, |(_, bits)| {
                    let (low, high) = (bits[first / 64], bits[first / 64 + 1]);
                    (u128::from(high) << 64 | u128::from(low)) >> (first % 64)
                });
                // Rows of the source are a run of pixels.
                let start = first as isize + y * row as isize;
                let (low, high) = inside(start, 1, count, height * row);
                spots.push([bits as u16 & lanes(low, high), 0]);
            }
        }
        self.finish(places, &spots);
    }

    fn rows(&mut self, source: Size, result: Size, taps: &[(isize, isize)], width: usize) {
        let (mut places, mut spots) = (vec![], vec![]);
        for (y, x) in
            (0..result[0]).flat_map(|y| (0..result[1]).step_by(width).map(move |x| (y, x)))
        {
            let count = width.min(result[1] - x);
            let (to, from) = (y * result[1] + x, y * source[1] + x);
            let (to, from) = ([to as isize; 2], [from as isize; 2]);
            places.push(Place { to, which: [lanes(0, count), 0], from });
            for (down, right) in taps {
                let (y, x) = (y as isize + down, x as isize + right);
                let (low, high) = inside(x, 1, count, source[1]);
                let there = (0..source[0] as isize).contains(&y);
                spots.push([if there { lanes(low, high) } else { 0 }, 0]);
            }
        }
        self.finish(places, &spots);
    }

    /// Neighbours are two elements apart. Short rows come two at a time.
    fn apart(&mut self, source: Size, result: Size, taps: &[(isize, isize)], width: usize) {
        let (mut places, mut spots) = (vec![], vec![]);
        let half = width / 2;
        let pairs = result[1] <= half;
        let down = if pairs { 2 } else { 1 };
        let across = if pairs { half } else { width };
        for y in (0..result[0]).step_by(down) {
            for x in (0..result[1]).step_by(across) {
                // Row, column and lanes of each half.
                let left = result[1] - x;
                let halves = match pairs {
                    true => [(y, x, left), (y + 1, x, if y + 1 < result[0] { left } else { 0 })],
                    false => {
                        [(y, x, left.min(half)), (y, x + half, left.saturating_sub(half).min(half))]
                    }
                };
                let mut place = Place::default();
                for (h, (y, x, count)) in halves.into_iter().enumerate() {
                    let to = (y * result[1] + x) as isize - (h * half) as isize;
                    (place.to[h], place.which[h]) = (to, lanes(h * half, h * half + count));
                    place.from[h] = 2 * (y * source[1] + x) as isize;
                }
                if !pairs {
                    // They lie side by side.
                    place.which = [place.which[0] | place.which[1], 0];
                }
                places.push(place);
                for (down, right) in taps {
                    let mut which = Which::default();
                    for (h, (y, x, count)) in halves.into_iter().enumerate() {
                        let (y, x) = (2 * y as isize + down, 2 * x as isize + right);
                        let (low, high) = inside(x, 2, count, source[1]);
                        if (0..source[0] as isize).contains(&y) {
                            which[h] = evens(low, high) as u16;
                        }
                    }
                    spots.push(which);
                }
            }
        }
        self.finish(places, &spots);
    }
}

/// The plane of weighted sums: of every tap in order, the weight times the element there,
/// or zero where the source has none.
///
/// # Safety
/// The planes are those that `cover` was made for, for vectors of `S`; there are as many
/// weights as taps. The CPU has `S`.
#[inline(always)]
pub unsafe fn plane<S: Simd>(
    src: *const S::T,
    cover: &Cover,
    weights: *const S::T,
    out: *mut S::T,
) {
    // SAFETY: passed on.
    unsafe {
        match cover.step {
            1 => plane_by::<S, false>(src, cover, weights, out),
            _ => plane_by::<S, true>(src, cover, weights, out),
        }
    }
}

/// # Safety
/// As [`plane`].
#[inline(always)]
unsafe fn plane_by<S: Simd, const APART: bool>(
    src: *const S::T,
    cover: &Cover,
    weights: *const S::T,
    out: *mut S::T,
) {
    let all = lanes(0, S::LANES);
    let (places, _) = cover.places.as_chunks::<AT_ONCE>();
    let (spots, _) = cover.spots.as_chunks::<AT_ONCE>();
    for (places, spots) in places.iter().zip(spots.chunks_exact(cover.taps.len())) {
        // SAFETY: only lanes that the cover names are touched, and it names only those
        // that the planes have.
        unsafe {
            let mut sums = [S::splat(S::T::default()); AT_ONCE];
            let from = places.map(|place| place.from.map(|at| src.wrapping_offset(at)));
            for (t, (tap, spots)) in cover.taps.iter().zip(spots).enumerate() {
                let w = S::splat(*weights.add(t));
                for ((sum, from), which) in sums.iter_mut().zip(&from).zip(spots) {
                    let mut x = S::load_some(from[0].wrapping_offset(*tap), which[0]);
                    if APART {
                        let second = from[1].wrapping_offset(*tap);
                        x = S::evens(x, S::load_some(second, which[1]));
                    }
                    *sum = S::fma(w, x, *sum);
                }
            }
            for (sum, place) in sums.iter().zip(places) {
                if place.which[0] == all {
                    S::store(out.offset(place.to[0]), *sum);
                    continue;
                }
                S::store_some(out.wrapping_offset(place.to[0]), *sum, place.which[0]);
                if APART && place.which[1] != 0 {
                    S::store_some(out.wrapping_offset(place.to[1]), *sum, place.which[1]);
                }
            }
        }
    }
}

// A bit for each lane.
const _: () = assert!(MAX_LANES <= u16::BITS as usize);
