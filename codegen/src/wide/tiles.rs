//! Transposed reads, tile by tile.
//!
//! In `for i { for j { .. x[j * n + i] .. } }` the lanes of a vector of `j` lie a
//! row of `x` apart: each is a cache line of its own, of which the next `i` wants the
//! next four bytes, long after it has left the cache. So such a nest is run in
//! tiles of as many `i` as `j`, a vector of each: the tile of `x` is read row by row,
//! turned in registers, and left in the frame; then the body runs for each `i` of
//! the tile and reads its vector there.
//!
//! Elements are computed as ever, only in another order, which parallel loops allow.

use super::lir::{Base, Cc, Inst, Mem, Op, V};
use super::loops::{Bounds, End};
use super::table;
use super::value::Val;
use super::{Group, Result, Select, divergence};
use std::collections::BTreeMap;
use tfc_kernel::{DType, Ix, Loop, LoopKind, Reg, Stmt};

/// Bodies with more statements are busy with something else.
const MAX_BODY: usize = 48;
/// Reads of one body that are turned; each is a tile in the frame.
const MAX_READS: usize = 4;

/// Rows of a tile that are so many bytes apart are on pages of their own, which the CPU's own
/// prefetching does not cross.
const FAR: i32 = 2 << 10;

/// A nest to be run in tiles: the inner loop, and what of it is read across.
pub(super) struct Tiled<'k> {
    inner: &'k Loop,
    reads: Vec<Read>,
}

struct Read {
    dst: Reg,
    buf: u32,
    at: Ix,
    /// Bytes between the rows of the tile.
    stride: i32,
}

impl Select<'_> {
    /// Whether `outer` is the outer loop of such a nest.
    pub(super) fn tiled<'k>(&self, outer: &'k Loop) -> Option<Tiled<'k>> {
        let lanes = self.lanes() as i64;
        let (last, before) = outer.body.split_last()?;
        let Stmt::Loop(inner) = last else { return None };
        let plain = |l: &Loop| l.kind == LoopKind::Parallel && l.carried.is_empty();
        let long = |l: &Loop| l.ranged || l.extent.as_const().is_none_or(|n| n >= lanes);
        let fits = self.group.is_none()
            && [outer, inner].iter().all(|l| plain(l) && long(l))
            && !inner.ranged
            && inner.is_leaf()
            && self.schedule.vector(inner.var).is_some()
            && before.len() + inner.body.len() <= MAX_BODY
            && !before.iter().any(|s| matches!(s, Stmt::Loop(_) | Stmt::Store { .. }));
        if !fits {
            return None;
        }
        let reads: Vec<Read> = inner
            .body
            .iter()
            .filter_map(|stmt| {
                let Stmt::Load { dst, buf, at } = stmt else { return None };
                let of = &self.kernel.bufs[*buf as usize];
                let across = at.regs.is_empty()
                    && !of.written
                    && matches!(of.dtype, DType::F32 | DType::I32)
                    && at.stride(outer.var).is_one();
                let stride = at.stride(inner.var).as_const().filter(|s| *s > 1 && across)?;
                let stride = i32::try_from(stride).ok().filter(|s| *s < 1 << 20)? * 4;
                Some(Read { dst: *dst, buf: *buf, at: at.clone(), stride })
            })
            .collect();
        (!reads.is_empty() && reads.len() <= MAX_READS).then_some(Tiled { inner, reads })
    }

    /// Runs the nest: whole blocks of rows, then what is left as it was written.
    pub(super) fn tiled_loop(
        &mut self,
        outer: &Loop,
        tiled: &Tiled<'_>,
        bounds: Bounds,
    ) -> Result<()> {
        let lanes = self.lanes() as i64;
        let columns = match tiled.inner.extent.as_const() {
            Some(n) => End::Known(n),
            None => End::At(self.dim(&tiled.inner.extent)),
        };
        let block = self.start(bounds);
        let last = self.less(bounds.hi, lanes);
        let (top, done) = (self.f.label(), self.f.label());
        self.jump_to(Cc::Gt, block, last, done);
        self.push(Inst::new(Op::Begin));
        self.here(top);
        self.block(outer, tiled, block, columns)?;
        self.advance(block, lanes);
        self.jump_to(Cc::Le, block, last, top);
        self.push(Inst::new(Op::End));
        self.here(done);
        if (bounds.lo, bounds.known().map(|n| n % lanes)) == (None, Some(0)) {
            return Ok(());
        }
        self.serial_loop(outer, Bounds { lo: Some(block), hi: bounds.hi })
    }

    fn less(&mut self, end: End, by: i64) -> End {
        match end {
            End::Known(n) => End::Known(n - by),
            End::At(v) => End::At(self.general(Op::Add, true, v, None, Some(-by))),
        }
    }

    /// The rows from `block` on, as many as a vector has lanes, of all columns.
    fn block(&mut self, outer: &Loop, tiled: &Tiled<'_>, block: V, columns: End) -> Result<()> {
        let (l, lanes) = (tiled.inner, self.lanes() as i64);
        let column = self.imm(0);
        self.open(l);
        self.vars.insert(l.var, column);
        self.group = Some(Group {
            var: l.var,
            varying: divergence::varying(l),
            unroll: 1,
            tail: vec![],
            left: None,
            tail8: BTreeMap::new(),
            scope: self.scopes.len() - 1,
            first: self.f.classes.len() as u32,
            constants: BTreeMap::new(),
            splats: BTreeMap::new(),
        });
        let last = self.less(columns, lanes);
        let (top, done) = (self.f.label(), self.f.label());
        self.jump_to(Cc::Gt, column, last, done);
        self.push(Inst::new(Op::Begin));
        self.here(top);
        let mut tiles = BTreeMap::new();
        for read in &tiled.reads {
            tiles.insert(read.dst, self.turned(read, outer, block));
        }
        self.rows(outer, l, block, &tiles)?;
        self.advance(column, lanes);
        self.jump_to(Cc::Le, column, last, top);
        self.push(Inst::new(Op::End));
        self.here(done);
        // The last columns fill no vector.
        let whole = matches!(columns, End::Known(n) if n % lanes == 0);
        if !whole {
            let none = self.f.label();
            self.jump_to(Cc::Ge, column, columns, none);
            let all = match columns {
                End::Known(n) => self.imm(n),
                End::At(v) => v,
            };
            let left = self.general(Op::Sub, true, all, Some(column), None);
            let mask = self.first_lanes(left, 0);
            if let Some(group) = &mut self.group {
                group.tail = vec![mask];
                group.left = Some(left);
            }
            self.rows(outer, l, block, &BTreeMap::new())?;
            self.here(none);
        }
        self.group = None;
        self.close(l);
        Ok(())
    }

    /// The body for one vector of columns, row by row. Reads in `tiles` are there.
    fn rows(&mut self, outer: &Loop, l: &Loop, block: V, tiles: &BTreeMap<Reg, u32>) -> Result<()> {
        let (w, lanes) = (self.width(), self.lanes() as i64);
        let row = self.copy(block, w);
        let end = self.general(Op::Add, true, block, None, Some(lanes));
        let offset = self.imm(0);
        self.open(outer);
        self.vars.insert(outer.var, row);
        let top = self.f.label();
        self.push(Inst::new(Op::Begin));
        self.here(top);
        let before = outer.body.iter().filter(|s| !matches!(s, Stmt::Loop(_)));
        for stmt in before.chain(&l.body) {
            let tile = match stmt {
                Stmt::Load { dst, .. } => tiles.get(dst).map(|tile| (*dst, *tile)),
                _ => None,
            };
            let Some((dst, tile)) = tile else {
                self.stmt(stmt)?;
                continue;
            };
            let from =
                Mem { base: Base::Frame(tile), index: Some(offset), scale: 1, ..Mem::default() };
            let v = self.load_row(&table::LOADPS, w, from, None);
            self.regs.insert(dst, Val::Lanes(vec![v]));
        }
        self.advance(offset, w.bytes() as i64);
        self.advance(row, 1);
        self.jump(Cc::Lt, row, Some(end), None, top);
        self.push(Inst::new(Op::End));
        self.close(outer);
        Ok(())
    }

    /// Reads a tile and leaves it in the frame with rows for columns.
    fn turned(&mut self, read: &Read, outer: &Loop, block: V) -> u32 {
        let (w, lanes) = (self.width(), self.lanes());
        let mut at = read.at.clone();
        at.terms.retain(|(var, _)| *var != outer.var);
        let first = self.address(read.buf, &at, 4);
        let first = self.flat(first);
        let across = self.general(Op::Shl, true, block, None, Some(2));
        let first = self.general(Op::Add, true, first, Some(across), None);
        let rows: Vec<V> = (0..lanes as i32)
            .map(|r| {
                let disp = r * read.stride;
                let from = Mem { base: Base::Reg(first), disp, ..Mem::default() };
                self.load_row(&table::LOADPS, w, from, None)
            })
            .collect();
        // Those of the tile after the next one are asked for.
        if read.stride >= FAR {
            for r in 0..lanes as i32 {
                let disp = (r + 2 * lanes as i32) * read.stride;
                let mem = Mem { base: Base::Reg(first), disp, ..Mem::default() };
                self.push(Inst { mem: Some(mem), ..Inst::new(Op::Prefetch) });
            }
        }
        let tile = self.f.place((lanes * w.bytes()) as u32);
        for (column, v) in self.turn(&rows) {
            let to = Self::frame(tile, (column * w.bytes()) as i32);
            self.store_row(&table::STOREPS, w, v, to, None, None);
        }
        tile
    }

    /// The columns of a square of vectors.
    fn turn(&mut self, rows: &[V]) -> Vec<(usize, V)> {
        let w = self.width();
        // Within blocks of four lanes: `four[g][c]` has column `4 b + c` of the rows
        // `4 g ..` in its block `b`.
        let mut four: Vec<[V; 4]> = vec![];
        for r in rows.chunks(4) {
            let mut shuffle =
                |a: V, b: V, imm: i64| self.row(&table::SHUFPS, w, &[a, b], Some(imm));
            let (low, low2) = (shuffle(r[0], r[1], 0x44), shuffle(r[2], r[3], 0x44));
            let (high, high2) = (shuffle(r[0], r[1], 0xee), shuffle(r[2], r[3], 0xee));
            four.push([
                shuffle(low, low2, 0x88),
                shuffle(low, low2, 0xdd),
                shuffle(high, high2, 0x88),
                shuffle(high, high2, 0xdd),
            ]);
        }
        let mut out = vec![];
        for c in 0..4 {
            let mut blocks = |a: V, b: V, imm: i64| self.row(&table::BLOCKS, w, &[a, b], Some(imm));
            if let [a, b] = &four[..] {
                out.push((c, blocks(a[c], b[c], 0x20)));
                out.push((4 + c, blocks(a[c], b[c], 0x31)));
            } else if let [p, q, r, s] = &four[..] {
                let (even, even2) = (blocks(p[c], q[c], 0x88), blocks(r[c], s[c], 0x88));
                let (odd, odd2) = (blocks(p[c], q[c], 0xdd), blocks(r[c], s[c], 0xdd));
                out.push((c, blocks(even, even2, 0x88)));
                out.push((4 + c, blocks(odd, odd2, 0x88)));
                out.push((8 + c, blocks(even, even2, 0xdd)));
                out.push((12 + c, blocks(odd, odd2, 0xdd)));
            }
        }
        out
    }
}
