//! The way of a factor's tile from global to shared memory, through registers: loaded
//! while the tile before is computed with, stored after.

use super::contract::{Gemm, Side};
use super::emit::Emit;
use super::func::{Class, V};
use super::memory::{list, memory_type};
use super::sides::{Batch, Row, Which};
use tfc_kernel::{DType, Dim};

/// How a tile lies in shared memory.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    /// Rows of the tile, and terms of the sum.
    pub rows: u32,
    pub terms: u32,
    /// Elements from one row, or one term, to the next.
    pub by_row: u32,
    pub by_term: u32,
    /// The type of its elements.
    pub dtype: DType,
    /// Where the first of the two tiles starts.
    pub base: u32,
    pub threads: u32,
}

impl Layout {
    /// Bytes of one tile.
    pub fn bytes(&self) -> u32 {
        let last = (self.rows - 1) * self.by_row + (self.terms - 1) * self.by_term;
        ((last + 1) * self.dtype.size() as u32).next_multiple_of(16)
    }
}

/// What a thread loads of every tile.
pub(super) struct Stage {
    which: Which,
    layout: Layout,
    slots: Vec<Slot>,
    /// The place in the sum, the same for all loads of a thread; moves.
    k: V,
    /// Elements of a load, side by side along the sum or along rows.
    wide: u32,
    along_k: bool,
}

/// Whether four neighbours of a factor can be loaded at once: they are side by side, the
/// first at a multiple of four, and all or none of them are in range.
fn wide(side: &Side, rows: &Dim, k: &Dim) -> bool {
    let four = |d: &Dim| d.div_exact(&Dim::constant(4)).is_some();
    let Side::Linear { by_image, by_group, by_row, by_k } = side else {
        return matches!(side, Side::OverPixels { pixels, .. } if four(pixels));
    };
    let (near, far, length) = match side.along_k() {
        true => (by_k, by_row, k),
        false => (by_row, by_k, rows),
    };
    near.is_one() && [far, length, by_image, by_group].into_iter().all(four)
}

/// One load: of one element, or of neighbours.
struct Slot {
    row: Row,
    ok: V,
    /// Where it goes, in the first tile.
    place: V,
}

impl Emit<'_> {
    /// Prepares the loads of a tile that starts at row `first` of `rows`, from place
    /// `k` of the sum on.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn stage(
        &mut self,
        gemm: &Gemm,
        which: Which,
        batch: Batch,
        layout: Layout,
        first: V,
        rows: V,
        k: V,
    ) -> Stage {
        let side = if which == Which::A { &gemm.a } else { &gemm.b };
        let tid = self.f.special("%tid.x");
        let along_k = side.along_k();
        let each = layout.rows * layout.terms / layout.threads;
        let extent = if which == Which::A { &gemm.m } else { &gemm.n };
        let fits = each.is_multiple_of(4) && gemm.dtype.size() <= 4;
        let wide = if fits && wide(side, extent, &gemm.k) { 4 } else { 1 };
        // Neighbouring threads load neighbours, and each thread stays at one term.
        let across = if along_k { layout.terms / wide } else { layout.threads / layout.terms };
        let low = self.f.op(Class::B32, "and.b32", &[&tid, &(across - 1)]);
        let high = self.f.op(Class::B32, "shr.u32", &[&tid, &across.trailing_zeros()]);
        let mut low = low;
        if wide > 1 {
            low = self.f.op(Class::B32, "shl.b32", &[&low, &wide.trailing_zeros()]);
        }
        let (term, first_row) = if along_k { (low, high) } else { (high, low) };
        let apart = if along_k { layout.threads / across } else { across * wide };
        let k = self.f.op(Class::B32, "add.u32", &[&k, &term]);
        let by_term = self.f.op(Class::B32, "mul.lo.u32", &[&term, &layout.by_term]);
        let mut slots = vec![];
        for r in 0..each / wide {
            let row = match r {
                0 => first_row,
                r => self.f.op(Class::B32, "add.u32", &[&first_row, &(r * apart)]),
            };
            let place = self.f.op(Class::B32, "mad.lo.u32", &[&row, &layout.by_row, &by_term]);
            let size = layout.dtype.size();
            let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
            let place = self.f.op(Class::B32, "mad.lo.u32", &[&place, &size, &shared]);
            let row = self.f.op(Class::B32, "add.u32", &[&first, &row]);
            let ok = self.f.op(Class::Pred, "setp.lt.u32", &[&row, &rows]);
            let row = self.row(gemm, which, batch, row, k, layout.terms);
            slots.push(Slot { row, ok, place });
        }
        Stage { which, layout, slots, k, wide, along_k }
    }

    /// Loads the next tile to registers; zeros where there is nothing.
    pub(super) fn fetch(&mut self, gemm: &Gemm, batch: Batch, stage: &Stage, end: V) -> Vec<V> {
        let (ty, class) = memory_type(gemm.dtype);
        let mut out = vec![];
        let term = self.term(gemm, stage.which, batch, stage.k);
        for slot in &stage.slots {
            let ok = self.f.op(Class::Pred, "setp.lt.and.u32", &[&stage.k, &end, &slot.ok]);
            let (place, ok) = self.element(gemm, stage.which, &slot.row, term.as_ref(), ok);
            let zero = match class {
                Class::F32 => "0f00000000",
                Class::F64 => "0d0000000000000000",
                _ => "0",
            };
            let vs: Vec<V> = (0..stage.wide)
                .map(|_| self.f.op(class, &format!("mov.{}", class.ty()), &[&zero]))
                .collect();
            let v4 = if stage.wide > 1 { ".v4" } else { "" };
            self.f.line(format_args!("@{ok} ld.global{v4}.{ty} {}, {place}", list(&vs)));
            if let Row::Pointer { at, step } = &slot.row {
                self.f.op_to(*at, "add.s64", &[at, step]);
            }
            out.extend(vs);
        }
        self.f.op_to(stage.k, "add.u32", &[&stage.k, &stage.layout.terms]);
        out
    }

    /// Says for each element of the tile that was loaded last whether there is one, in a
    /// tile of words that starts at `base`.
    pub(super) fn mark(&mut self, gemm: &Gemm, batch: Batch, stage: &Stage, end: V, base: u32) {
        let layout = &stage.layout;
        let k = self.f.op(Class::B32, "sub.u32", &[&stage.k, &layout.terms]);
        let term = self.term(gemm, stage.which, batch, k);
        let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
        for slot in &stage.slots {
            let ok = self.f.op(Class::Pred, "setp.lt.and.u32", &[&k, &end, &slot.ok]);
            let (_, ok) = self.element(gemm, stage.which, &slot.row, term.as_ref(), ok);
            let v = self.f.op(Class::B32, "selp.b32", &[&1, &0, &ok]);
            // Words, whatever the elements are.
            let at = self.f.op(Class::B32, "sub.u32", &[&slot.place, &shared]);
            let shift = layout.dtype.size().trailing_zeros();
            let at = self.f.op(Class::B32, "shr.u32", &[&at, &shift]);
            let at = self.f.op(Class::B32, "mad.lo.u32", &[&at, &4, &shared]);
            self.f.line(format_args!("st.shared.b32 [{at}+{base}], {v}"));
        }
    }

    /// Stores what was loaded to the tile at `offset`.
    pub(super) fn stash(&mut self, gemm: &Gemm, stage: &Stage, values: &[V], offset: V) {
        let layout = &stage.layout;
        let apart = if stage.along_k { layout.by_term } else { layout.by_row };
        // One store for all neighbours where they are neighbours in the tile too.
        let at_once = if apart == 1 { stage.wide as usize } else { 1 };
        for (slot, vs) in stage.slots.iter().zip(values.chunks(stage.wide as usize)) {
            let at = self.f.op(Class::B32, "add.u32", &[&slot.place, &offset]);
            for (i, vs) in vs.chunks(at_once).enumerate() {
                let step = i as u32 * apart * layout.dtype.size() as u32;
                let place = format!("[{at}+{}]", layout.base + step);
                if layout.dtype == gemm.dtype {
                    // As it is in memory.
                    let (ty, _) = memory_type(gemm.dtype);
                    let v4 = if vs.len() > 1 { ".v4" } else { "" };
                    self.f.line(format_args!("st.shared{v4}.{ty} {place}, {}", list(vs)));
                    continue;
                }
                let vs: Vec<V> = vs.iter().map(|v| self.widen(gemm.dtype, *v)).collect();
                self.store_to("shared", layout.dtype, &[place], &vs);
            }
        }
    }
}
