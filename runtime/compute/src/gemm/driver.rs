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
/// Bytes of packed columns that stay in L2 while rows pass by.
const NEAR: usize = 512 << 10;
/// Bytes of a left operand that stays in L2 while columns pass it by, of the columns of a
/// block then, and of their results.
const A_BYTES: usize = 512 << 10;
const B_BYTES: usize = 192 << 10;
const GATHERED_BYTES: usize = 512 << 10;
const C_BYTES: usize = 256 << 10;
/// Columns of such a block at least: lines beside each other come faster.
const LEAST_COLUMNS: usize = 128;
/// Up to this many rows the right operand is not worth packing; and up to so many where the
/// left one stays.
const DIRECT_B_ROWS: usize = 96;
const DIRECT_B_BESIDE: usize = 12;
const DIRECT_B_BYTES: usize = 12 << 10;
const LEAST_STEPS: usize = 16;
/// But a panel of it at a time is, if its steps are this many bytes apart: they are on
/// many pages, and in few sets of a cache. So many bytes, times rows, pay for the packing.
const PANEL_STEP: usize = 2 << 10;
const PANEL_PAYS: usize = 64 << 10;
/// Up to this many columns, or rows, the left operand is not worth packing.
const DIRECT_A_COLUMNS: usize = 64;
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
    /// Whether the product is added to what the result holds.
    pub add: bool,
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
    let size = size_of::<T>();
    let most = k_blocks(g.k).next().map_or(0, |(_, kc)| kc);
    // A small left operand that comes packed stays in L2, and columns pass it by: a few are
    // packed, and used at once for all rows.
    let stays = packed_a.is_some() && m * g.k * size <= A_BYTES;
    let (row_block, column_block) = if stays {
        // What is gathered is gathered again where blocks meet.
        let bytes = if g.b.direct().is_some() { B_BYTES } else { GATHERED_BYTES };
        // Finished columns of all rows are handed on from the cache, too.
        let all = if g.finished.is_some() { C_BYTES / m.max(1) } else { usize::MAX };
        let columns = (bytes / most.max(1)).min(all) / size / LEAST_COLUMNS * LEAST_COLUMNS;
        (m.next_multiple_of(mr), columns.clamp(LEAST_COLUMNS, NC))
    } else {
        // Whole tiles, so that no row block ends in a thin one.
        ((MC / mr * mr).max(mr), NC)
    };
    // A panel of few steps stays in L1 while the rows pass by, wherever it is.
    let near = most >= LEAST_STEPS && most * nr * size <= DIRECT_B_BYTES;
    let few = if stays && !near { DIRECT_B_BESIDE } else { DIRECT_B_ROWS };
    let direct_b = g.b.direct().filter(|(_, lane, _)| *lane == 1 && m <= few);
    let direct_a = g.a.direct().filter(|(_, lane, step)| match (lane, step) {
        (_, 1) => left_as_is(m, n),
        (1, _) => n <= 2 * nr || (n <= NC && *step <= DIRECT_A_STEP),
        _ => false,
    });
    let by_panel = direct_b.is_some_and(|(_, _, step)| {
        let apart = step * size;
        apart >= PANEL_STEP && m * apart >= PANEL_PAYS
    });
    // Columns that are packed from where they are in memory, if a block is worth it.
    let far_b = match (direct_b, packed_b, column_block.min(n) * most * size <= 2 * B_BYTES) {
        (None, None, true) => g.b.direct().filter(|(_, lane, _)| *lane == 1),
        _ => None,
    };
    if packed_b.is_none() {
        grow(b_panels, most * n.min(column_block).next_multiple_of(nr) * size);
    }
    let (pa, pb) = (a_panels.as_ptr().cast::<T>(), b_panels.as_ptr().cast::<T>());
    for jc in (0..n).step_by(column_block) {
        let nc = column_block.min(n - jc);
        for (k0, kc) in k_blocks(g.k) {
            let (first, last) = (k0 == 0 && !g.add, k0 + kc == g.k);
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
                    let (down, across) = (mc.div_ceil(mr), nc.div_ceil(nr));
                    let known = !stays || jc == 0 && !last;
                    let mut far = packed_a.filter(|_| known).map_or(Ahead::none(), |p| {
                        Ahead::run(p.panel(next.0, next.1, kc), mc * kc, kc, down * across)
                    });
                    // So do packed columns, the first time or if they do not stay.
                    let leaves = nc * kc * size > NEAR || (packed_b.is_some() && ic == 0);
                    // And the columns that the next block packs.
                    let next = match (ic + mc < m, last) {
                        (true, _) => None,
                        (false, false) => Some((k0 + kc, jc)),
                        (false, true) => Some((0, jc + column_block)),
                    };
                    let mut coming = match (far_b, next) {
                        (Some((b, _, step)), Some((k, j))) if j < n => {
                            let at = b.wrapping_add(k * step + g.columns.0 + j);
                            Ahead::across(at, column_block.min(n - j), step)
                        }
                        _ => Ahead::none(),
                    };
                    if direct_a.is_none() && packed_a.is_none() {
                        g.a.pack(kernels, (row, mc), (k0, kc), mr, pa);
                    }
                    for jg in (0..nc).step_by(GROUP) {
                        let width = GROUP.min(nc - jg);
                        for j in (jg..jg + width).step_by(nr) {
                            let lanes = nr.min(nc - j);
                            let as_is = direct_b.filter(|_| lanes == nr);
                            let as_is =
                                as_is.map(|(b, _, step)| (b.add(k0 * step + column + j), step));
                            if as_is.is_some() && by_panel {
                                // Its columns are in L2, asked for by the ones before.
                                g.b.pack(kernels, (column + j, nr), (k0, kc), nr, pb);
                            }
                            let (b, b_step) = match (as_is, packed_b) {
                                (Some(_), _) if by_panel => (pb.cast_const(), nr),
                                (Some(as_is), _) => as_is,
                                (_, Some(packed)) => (packed.panel(column + j, k0, kc), nr),
                                _ => (pb.add(j * kc).cast_const(), nr),
                            };
                            let mut next_b = match (as_is, j + nr < nc) {
                                (Some(_), _) if ic > 0 => Ahead::none(),
                                (Some((b, step)), _) => Ahead::across(b.wrapping_add(nr), nr, step),
                                (None, _) if !leaves => Ahead::none(),
                                (None, false) if ic + mc < m => {
                                    Ahead::run(b.wrapping_sub(j * kc), nr * kc, kc, down)
                                }
                                _ => Ahead::run(b.wrapping_add(nr * kc), nr * kc, kc, down),
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
                                let ahead =
                                    next_b.take().or_else(|| far.take()).or_else(|| coming.take());
                                let (ahead, far_step) = ahead.unwrap_or((a, 0));
                                let tile = match (lanes * 2 <= nr, a_row) {
                                    (true, _) => kernels.narrow[rows - 1],
                                    (false, 1) => kernels.panel[rows - 1],
                                    (false, _) => kernels.rows[rows - 1],
                                };
                                if lanes == nr || 2 * lanes == nr {
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
                                        far_step as isize,
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
                                        far_step as isize,
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

/// What tiles ask for while they compute, because it will be needed next: evenly, since
/// what is on its way holds up what is needed now.
struct Ahead<T> {
    at: *const T,
    /// Tiles that still ask.
    tiles: usize,
    /// Elements from one step of a tile to its next, and from tile to tile.
    step: usize,
    tile: usize,
}

/// Elements of a cache line.
const fn line<T>() -> usize {
    CACHE_LINE / size_of::<T>()
}

impl<T> Ahead<T> {
    fn none() -> Ahead<T> {
        Ahead { at: std::ptr::null(), tiles: 0, step: 0, tile: 0 }
    }

    /// `len` elements one after another, by `tiles` tiles of `steps` steps.
    fn run(at: *const T, len: usize, steps: usize, tiles: usize) -> Ahead<T> {
        let step = len.div_ceil((steps * tiles).max(1)).min(line::<T>());
        let tile = steps * step;
        Ahead { at, tiles: len.div_ceil(tile.max(1)), step, tile }
    }

    /// `len` elements of each step, which are `step` apart.
    fn across(at: *const T, len: usize, step: usize) -> Ahead<T> {
        Ahead { at, tiles: len.div_ceil(line::<T>()), step, tile: line::<T>() }
    }

    /// What the next tile asks for, and how far apart.
    fn take(&mut self) -> Option<(*const T, usize)> {
        self.tiles = self.tiles.checked_sub(1)?;
        let at = self.at;
        self.at = at.wrapping_add(self.tile);
        Some((at, self.step))
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
