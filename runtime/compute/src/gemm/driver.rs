//! The blocked product: panels in cache, tiles in registers.
//!
//! For one rectangle of the result: columns in blocks of [`NC`], `k` in equal
//! blocks of at most [`KC`], rows in blocks of [`MC`]; the right operand's block
//! is packed once per column and `k` block, the left one's once per row block. An
//! operand is used where it is when packing would cost more than it saves, or
//! when it comes packed.
//!
//! `k` is cut the same way whatever the rectangle, and never between threads, so
//! an element's bits do not depend on the rectangle it is computed in.

use super::kernel::{CACHE_LINE, Kernels, MAX_TILE, Real};
use super::pack::Operand;
use crate::mem::Bytes;
use std::cell::RefCell;

/// Steps of `k` a panel has at most: 16 columns of f32 are 24 KiB of L1.
pub const KC: usize = 384;
/// Rows of a block: with `KC` steps, a quarter of an L2.
const MC: usize = 120;
/// Columns of a block.
const NC: usize = 1024;
/// Columns after which a finished block is handed on: while it is in L2, and wide
/// enough that what its epilogue reads and writes beside it comes in long runs.
const GROUP: usize = 512;
/// Up to this many rows the right operand is not worth packing.
const DIRECT_B_ROWS: usize = 64;
/// Up to this many columns, or rows, the left operand is not worth packing.
const DIRECT_A_COLUMNS: usize = 256;
const DIRECT_A_ROWS: usize = 128;
/// Nor is one whose rows lie side by side, if the steps are no further apart than this.
const DIRECT_A_STEP: usize = 256;

/// Whether the left operand of an `m x n` result is best read where it is, if its steps
/// lie side by side.
pub fn left_as_is(m: usize, n: usize) -> bool {
    n <= DIRECT_A_COLUMNS || m <= DIRECT_A_ROWS
}

/// The blocks `k` is cut into: where each starts, and its steps. At least one,
/// of no steps if need be.
pub fn k_blocks(k: usize) -> impl Iterator<Item = (usize, usize)> {
    let blocks = k.div_ceil(KC).max(1);
    let most = k.div_ceil(blocks);
    (0..blocks).map(move |b| (b * most, most.min(k - b * most)))
}

/// A rectangle of a product. Its first row and column start a tile.
pub struct Rect<'a, T> {
    pub rows: (usize, usize),
    pub columns: (usize, usize),
    pub k: usize,
    pub a: &'a dyn Operand<T>,
    pub b: &'a dyn Operand<T>,
    /// Element `(rows.0, columns.0)` of the result, and its stride between rows.
    pub c: *mut T,
    pub c_row: usize,
    /// Called for each part of the rectangle when it is final.
    pub finished: Option<&'a dyn Fn(usize, usize, usize, usize)>,
}

thread_local! {
    static PANELS: RefCell<[Bytes; 2]> = const { RefCell::new([Bytes::empty(), Bytes::empty()]) };
}

pub(crate) fn grow(bytes: &mut Bytes, len: usize) {
    if bytes.reserve(len).is_err() {
        std::alloc::handle_alloc_error(std::alloc::Layout::new::<u64>());
    }
}

/// # Safety
/// The operands have the lanes and steps of the rectangle; `c` is valid for it
/// and overlaps neither operand.
pub unsafe fn rectangle<T: Real>(kernels: &Kernels<T>, g: &Rect<'_, T>) {
    PANELS.with_borrow_mut(|[a_panels, b_panels]| {
        let size = size_of::<T>();
        grow(a_panels, (MC + kernels.mr()) * KC * size);
        // SAFETY: passed on.
        unsafe { blocks(kernels, g, a_panels, b_panels) }
    });
}

/// # Safety
/// As [`rectangle`]; `a_panels` has room for a block.
unsafe fn blocks<T: Real>(
    kernels: &Kernels<T>,
    g: &Rect<'_, T>,
    a_panels: &mut Bytes,
    b_panels: &mut Bytes,
) {
    let (m, n) = (g.rows.1 - g.rows.0, g.columns.1 - g.columns.0);
    let (packed_a, packed_b) = (g.a.packed(), g.b.packed());
    let (mr, nr) = (packed_a.map_or_else(|| kernels.even(m), |p| p.width), kernels.nr);
    // Whole tiles, so that no row block ends in a thin one.
    let row_block = (MC / mr * mr).max(mr);
    let direct_b = g.b.direct().filter(|(_, lane, _)| *lane == 1 && m <= DIRECT_B_ROWS);
    let direct_a = g.a.direct().filter(|(_, lane, step)| match (lane, step) {
        (_, 1) => left_as_is(m, n),
        (1, _) => n <= 2 * nr || (n <= NC && *step <= DIRECT_A_STEP),
        _ => n <= 2 * nr,
    });
    if packed_b.is_none() {
        let most = k_blocks(g.k).next().map_or(0, |(_, kc)| kc);
        grow(b_panels, most * n.min(NC).next_multiple_of(nr) * size_of::<T>());
    }
    let (pa, pb) = (a_panels.as_ptr().cast::<T>(), b_panels.as_ptr().cast::<T>());
    for jc in (0..n).step_by(NC) {
        let nc = NC.min(n - jc);
        for (k0, kc) in k_blocks(g.k) {
            let (first, last) = (k0 == 0, k0 + kc == g.k);
            // SAFETY: lanes and steps are inside the rectangle; panels have room
            // for `nc` columns and `row_block` rows of `kc` steps.
            unsafe {
                let column = g.columns.0 + jc;
                if direct_b.is_some() {
                    // A last, narrow panel is always packed: loads are whole.
                    let (j, lanes) = (nc / nr * nr, nc % nr);
                    if lanes > 0 {
                        g.b.pack(kernels, (column + j, lanes), (k0, kc), nr, pb.add(j * kc));
                    }
                } else if packed_b.is_none() {
                    g.b.pack(kernels, (column, nc), (k0, kc), nr, pb);
                }
                for ic in (0..m).step_by(row_block) {
                    let mc = row_block.min(m - ic);
                    let row = g.rows.0 + ic;
                    // Packed rows come from far away: the next ones are asked for.
                    let next = match (ic + mc < m, last) {
                        (true, _) => (row + mc, k0),
                        (false, false) => (g.rows.0, k0 + kc),
                        (false, true) => (row, k0),
                    };
                    let mut far =
                        Ahead::new(packed_a.map(|p| p.panel(next.0, next.1, kc)), mc * kc);
                    if direct_a.is_none() && packed_a.is_none() {
                        g.a.pack(kernels, (row, mc), (k0, kc), mr, pa);
                    }
                    for jg in (0..nc).step_by(GROUP) {
                        let width = GROUP.min(nc - jg);
                        for j in (jg..jg + width).step_by(nr) {
                            let lanes = nr.min(nc - j);
                            let (b, b_step) = match (direct_b, packed_b) {
                                (Some((b, _, step)), _) if lanes == nr => {
                                    (b.add(k0 * step + column + j), step)
                                }
                                (_, Some(packed)) => {
                                    let panel = packed.panel(column + j, k0, kc);
                                    if ic == 0 {
                                        // So do columns; the next panel follows.
                                        far =
                                            Ahead::new(Some(panel.wrapping_add(nr * kc)), nr * kc);
                                    }
                                    (panel, nr)
                                }
                                _ => (pb.add(j * kc).cast_const(), nr),
                            };
                            for i in (0..mc).step_by(mr) {
                                let rows = mr.min(mc - i);
                                let (a, a_row, a_step) = match (direct_a, packed_a) {
                                    (Some((a, lane, step)), _) => {
                                        (a.add((row + i) * lane + k0 * step), lane, step)
                                    }
                                    (_, Some(packed)) => (packed.panel(row + i, k0, kc), 1, mr),
                                    _ => (pa.add(i * kc).cast_const(), 1, mr),
                                };
                                let c = g.c.add((ic + i) * g.c_row + jc + j);
                                let ahead = far.take(kc).unwrap_or(a);
                                let tile = match lanes * 2 <= nr {
                                    false => kernels.tiles[rows - 1],
                                    true => kernels.narrow[rows - 1],
                                };
                                if lanes == nr {
                                    tile(
                                        kc,
                                        a,
                                        a_row as isize,
                                        a_step as isize,
                                        b,
                                        b_step as isize,
                                        c,
                                        g.c_row as isize,
                                        !first,
                                        ahead,
                                    );
                                } else {
                                    let mut edge = [T::default(); MAX_TILE];
                                    tile(
                                        kc,
                                        a,
                                        a_row as isize,
                                        a_step as isize,
                                        b,
                                        b_step as isize,
                                        edge.as_mut_ptr(),
                                        nr as isize,
                                        false,
                                        ahead,
                                    );
                                    copy_edge(&edge, nr, c, g.c_row, rows, lanes, !first);
                                }
                            }
                        }
                        if last && let Some(finished) = g.finished {
                            finished(row, row + mc, column + jg, column + jg + width);
                        }
                    }
                }
            }
        }
    }
}

/// What tiles ask for while they compute, because it will be needed next.
struct Ahead<T> {
    at: *const T,
    /// Elements that are still to be asked for.
    left: usize,
}

impl<T> Ahead<T> {
    /// `len` elements, or none.
    fn new(at: Option<*const T>, len: usize) -> Ahead<T> {
        Ahead { at: at.unwrap_or(std::ptr::null()), left: if at.is_some() { len } else { 0 } }
    }

    /// What a tile of `steps` steps asks for, a line in each.
    fn take(&mut self, steps: usize) -> Option<*const T> {
        let at = (self.left > 0).then_some(self.at)?;
        let len = steps * (CACHE_LINE / size_of::<T>());
        self.at = at.wrapping_add(len);
        self.left = self.left.saturating_sub(len);
        Some(at)
    }
}

/// # Safety
/// `c` is valid for `rows` rows of `lanes` elements.
unsafe fn copy_edge<T: Real>(
    edge: &[T; MAX_TILE],
    nr: usize,
    c: *mut T,
    c_row: usize,
    rows: usize,
    lanes: usize,
    add: bool,
) {
    for r in 0..rows {
        for l in 0..lanes {
            // SAFETY: the caller's promise.
            unsafe {
                let c = c.add(r * c_row + l);
                let v = edge[r * nr + l];
                *c = if add { *c + v } else { v };
            }
        }
    }
}
