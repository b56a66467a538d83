//! The way of a factor's tile from global to shared memory, through registers: loaded
//! while the tile before is computed with, stored after.

use super::contract::{Gemm, Side};
use super::emit::Emit;
use super::func::{Class, V};
use super::memory::{list, memory_type};
use super::sides::{Batch, Row, Walk, Which, even, walked};
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
    /// Where in a tile's part of the sum the thread's first elements are.
    term: V,
    /// Elements of a slot, side by side along the sum or along rows.
    wide: u32,
    along_k: bool,
    way: Way,
    walk: Option<Walk>,
    /// Rows from one slot to the next.
    apart: u32,
    /// What was loaded.
    values: Vec<V>,
}

/// How the elements of a slot are loaded.
enum Way {
    /// Each by itself, if it is there.
    Checked,
    /// All at once where that is possible, with no questions where all are there.
    ///
    /// A slot past the last row is moved to the last rows: what it loads goes to sums that
    /// nobody stores.
    Quick {
        /// Whether the elements of a slot are aligned, if that is known at run time only.
        aligned: Option<V>,
        /// Whether all rows of the tile are there, if it matters to those that are not.
        inside: Option<V>,
        /// Whether each tile has all its terms.
        whole: bool,
    },
}

/// Code that stands behind the loop it belongs to: what is seldom loaded.
pub(super) struct Detour {
    from: String,
    back: String,
}

/// The tile to load.
#[derive(Clone, Copy)]
pub(super) struct Next {
    /// Its first term, and the end of the sum.
    pub first: V,
    pub end: V,
    /// Whether all its terms are before the end.
    pub whole: V,
}

/// Whether four neighbours of a factor are side by side: `None` if not; else the sizes
/// that must be multiples of four for the first to be at a multiple of four, and for all
/// or none of them to be in range.
pub(super) fn neighbours(side: &Side, rows: &Dim, k: &Dim) -> Option<[Dim; 4]> {
    let Side::Linear { by_image, by_group, by_row, by_k } = side else { return None };
    let (near, far, length) = match side.along_k() {
        true => (by_k, by_row, k),
        false => (by_row, by_k, rows),
    };
    near.is_one().then(|| [far, length, by_image, by_group].map(Dim::clone))
}

fn four(d: &Dim) -> bool {
    d.div_exact(&Dim::constant(4)).is_some()
}

/// One load: of one element, or of neighbours.
struct Slot {
    row: Row,
    /// The first row, and whether there is such a row.
    at: V,
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
        let way = match neighbours(side, extent, &gemm.k).filter(|_| fits) {
            Some(sizes) => self.way(gemm, layout, &sizes, along_k, first, rows),
            None => Way::Checked,
        };
        let pixels = matches!(side, Side::OverPixels { pixels, .. } if four(pixels));
        let wide = if matches!(way, Way::Quick { .. }) || (fits && pixels) { 4 } else { 1 };
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
        let walk = self.walk(gemm, which, batch, k, layout.terms);
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
            let at = self.f.op(Class::B32, "add.u32", &[&first, &row]);
            let ok = self.f.op(Class::Pred, "setp.lt.u32", &[&at, &rows]);
            let row = match &way {
                Way::Checked if which == Which::A && walk.is_some() => {
                    // What is loaded for a row past the end is stored nowhere.
                    let last = self.f.op(Class::B32, "sub.u32", &[&rows, &1]);
                    self.f.op(Class::B32, "min.u32", &[&at, &last])
                }
                Way::Checked => at,
                Way::Quick { aligned, .. } => {
                    let last = if along_k { 1 } else { 4 };
                    let last = self.f.op(Class::B32, "sub.u32", &[&rows, &last]);
                    let moved = self.f.op(Class::B32, "min.u32", &[&at, &last]);
                    match aligned.filter(|_| !along_k) {
                        None => moved,
                        Some(p) => self.f.op(Class::B32, "selp.b32", &[&moved, &at, &p]),
                    }
                }
            };
            let row = match self.near(gemm, which, row, ok) {
                Some(row) => row,
                None => self.row(gemm, which, batch, row, k, layout.terms),
            };
            slots.push(Slot { row, at, ok, place });
        }
        if let Some(walk) = &walk
            && even(gemm, which, layout.rows).is_some()
        {
            self.start_from(gemm, walk, &slots[0].row);
        }
        let (_, class) = memory_type(gemm.dtype);
        let values = (0..each).map(|_| self.f.reg(class)).collect();
        let stage = Stage { which, layout, slots, term, wide, along_k, way, walk, apart, values };
        if matches!(stage.way, Way::Quick { whole: true, .. }) {
            self.zeros(&stage.values);
        }
        stage
    }

    /// How neighbours are loaded: `sizes` must be multiples of four to do it at once.
    fn way(
        &mut self,
        gemm: &Gemm,
        layout: Layout,
        sizes: &[Dim; 4],
        along_k: bool,
        first: V,
        rows: V,
    ) -> Way {
        let unknown: Vec<&Dim> = sizes.iter().filter(|d| !four(d)).collect();
        let terms = Dim::constant(i64::from(layout.terms));
        if unknown.is_empty() {
            let whole = gemm.k.div_exact(&terms).is_some();
            return Way::Quick { aligned: None, inside: None, whole };
        }
        let mut all = self.dim32(unknown[0]);
        for d in &unknown[1..] {
            let d = self.dim32(d);
            all = self.f.op(Class::B32, "or.b32", &[&all, &d]);
        }
        let rest = self.f.op(Class::B32, "and.b32", &[&all, &3]);
        let aligned = self.f.op(Class::Pred, "setp.eq.u32", &[&rest, &0]);
        let inside = (!along_k).then(|| {
            let end = self.f.op(Class::B32, "add.u32", &[&first, &layout.rows]);
            self.f.op(Class::Pred, "setp.le.u32", &[&end, &rows])
        });
        Way::Quick { aligned: Some(aligned), inside, whole: false }
    }

    fn zeros(&mut self, values: &[V]) {
        for v in values {
            let zero = match v.class {
                Class::F32 => "0f00000000",
                Class::F64 => "0d0000000000000000",
                _ => "0",
            };
            self.f.line(format_args!("mov.{} {v}, {zero}", v.class.ty()));
        }
    }

    /// Whether the slots of all tiles are aligned, if that is known at run time only.
    pub(super) fn aligned(&mut self, stages: &[Stage; 2]) -> Option<V> {
        let each = stages.iter().filter_map(|s| match s.way {
            Way::Quick { aligned, .. } => aligned,
            Way::Checked => None,
        });
        each.reduce(|a, b| self.f.op(Class::Pred, "and.pred", &[&a, &b]))
    }

    /// Loads tiles to registers; zeros where there is nothing. What is seldom done is left
    /// to [`Emit::detour`]. `aligned` is what [`Emit::aligned`] gave.
    pub(super) fn fetch(
        &mut self,
        gemm: &Gemm,
        batch: Batch,
        stages: &[Stage; 2],
        next: Next,
        aligned: Option<V>,
    ) -> Option<Detour> {
        let (ty, _) = memory_type(gemm.dtype);
        let mut detour = None;
        if stages.iter().any(Stage::may_be_partial) {
            let quick = match aligned {
                None => next.whole,
                Some(p) => self.f.op(Class::Pred, "and.pred", &[&next.whole, &p]),
            };
            let (from, back) = (self.f.label(), self.f.label());
            self.f.line(format_args!("@!{quick} bra.uni {from}"));
            for stage in stages.iter().filter(|s| s.may_be_partial()) {
                self.at_once(gemm, stage, "");
            }
            self.f.place(&back);
            detour = Some(Detour { from, back });
        }
        for stage in stages {
            match &stage.way {
                Way::Checked => {
                    let k = self.f.op(Class::B32, "add.u32", &[&next.first, &stage.term]);
                    let there = self.f.op(Class::Pred, "setp.lt.u32", &[&k, &next.end]);
                    self.zeros(&stage.values);
                    if let Some(walk) = &stage.walk {
                        let (base, bit) = self.here(gemm, walk, there);
                        for (i, (slot, vs)) in (0..).zip(stage.loads()) {
                            let ok = self.is_here(&slot.row, bit);
                            let (at, plus) = match even(gemm, stage.which, stage.layout.rows) {
                                Some(by) => (base, i * stage.apart * by * gemm.dtype.size() as u32),
                                None => (self.reached(gemm, &slot.row, base), 0),
                            };
                            let v = vs[0];
                            self.f.line(format_args!("@{ok} ld.global.{ty} {v}, [{at}+{plus}]"));
                        }
                        self.step_on(walk);
                        continue;
                    }
                    let term = self.term(gemm, stage.which, batch, k);
                    for (slot, vs) in stage.loads() {
                        let ok = self.f.op(Class::Pred, "and.pred", &[&there, &slot.ok]);
                        let (place, ok) =
                            self.element(gemm, stage.which, &slot.row, term.as_ref(), ok);
                        let v4 = if vs.len() > 1 { ".v4" } else { "" };
                        self.f.line(format_args!("@{ok} ld.global{v4}.{ty} {}, {place}", list(vs)));
                    }
                }
                Way::Quick { whole: true, .. } => {
                    self.at_once(gemm, stage, &format!("@{} ", next.whole));
                }
                Way::Quick { aligned: None, .. } => self.all_or_none(gemm, stage, next),
                Way::Quick { .. } => {}
            }
            for slot in &stage.slots {
                if let Row::Pointer { at, step } = &slot.row {
                    self.f.op_to(*at, "add.s64", &[at, step]);
                }
            }
        }
        detour
    }

    /// All elements of each slot with one load.
    fn at_once(&mut self, gemm: &Gemm, stage: &Stage, guard: &str) {
        let (ty, _) = memory_type(gemm.dtype);
        for (slot, vs) in stage.loads() {
            let Row::Pointer { at, .. } = &slot.row else { continue };
            self.f.line(format_args!("{guard}ld.global.v4.{ty} {}, [{at}]", list(vs)));
        }
    }

    /// Slots of which all is there, or nothing.
    fn all_or_none(&mut self, gemm: &Gemm, stage: &Stage, next: Next) {
        self.zeros(&stage.values);
        let k = self.f.op(Class::B32, "add.u32", &[&next.first, &stage.term]);
        let there = self.f.op(Class::Pred, "setp.lt.u32", &[&k, &next.end]);
        self.at_once(gemm, stage, &format!("@{there} "));
    }

    /// The tiles that [`Emit::fetch`] does not load at once.
    pub(super) fn detour(&mut self, gemm: &Gemm, stages: &[Stage; 2], next: Next, detour: &Detour) {
        self.f.place(&detour.from);
        for stage in stages.iter().filter(|s| s.may_be_partial()) {
            self.one_by_one(gemm, stage, next);
        }
        self.f.line(format_args!("bra.uni {}", detour.back));
    }

    /// At once if that can be done; else one by one, with no questions if all are there.
    fn one_by_one(&mut self, gemm: &Gemm, stage: &Stage, next: Next) {
        let Way::Quick { aligned, inside, .. } = &stage.way else { return };
        let (ty, _) = memory_type(gemm.dtype);
        let size = gemm.dtype.size();
        let [single, checked, done] = [(); 3].map(|()| self.f.label());
        if let Some(aligned) = aligned {
            self.f.line(format_args!("@!{aligned} bra.uni {single}"));
        }
        self.all_or_none(gemm, stage, next);
        self.f.line(format_args!("bra.uni {done}"));
        self.f.place(&single);
        let all = match inside {
            None => next.whole,
            Some(p) => self.f.op(Class::Pred, "and.pred", &[&next.whole, p]),
        };
        self.f.line(format_args!("@!{all} bra.uni {checked}"));
        for (slot, vs) in stage.loads() {
            let Row::Pointer { at, .. } = &slot.row else { continue };
            for (i, v) in vs.iter().enumerate() {
                self.f.line(format_args!("ld.global.{ty} {v}, [{at}+{}]", i * size));
            }
        }
        self.f.line(format_args!("bra.uni {done}"));
        self.f.place(&checked);
        self.zeros(&stage.values);
        let rows = if stage.which == Which::A { &gemm.m } else { &gemm.n };
        let rows = self.dim32(rows);
        let k = self.f.op(Class::B32, "add.u32", &[&next.first, &stage.term]);
        for (slot, vs) in stage.loads() {
            let Row::Pointer { at, .. } = &slot.row else { continue };
            for (i, v) in vs.iter().enumerate() {
                let [k, row] = [(k, stage.along_k), (slot.at, !stage.along_k)].map(|(v, moves)| {
                    match moves && i > 0 {
                        true => self.f.op(Class::B32, "add.u32", &[&v, &i]),
                        false => v,
                    }
                });
                let ok = self.f.op(Class::Pred, "setp.lt.u32", &[&k, &next.end]);
                let ok = self.f.op(Class::Pred, "setp.lt.and.u32", &[&row, &rows, &ok]);
                self.f.line(format_args!("@{ok} ld.global.{ty} {v}, [{at}+{}]", i * size));
            }
        }
        self.f.place(&done);
    }

    /// Says for each element of the tile before `first` whether there is one, in a
    /// tile of words that starts at `base`.
    pub(super) fn mark(
        &mut self,
        gemm: &Gemm,
        batch: Batch,
        stage: &Stage,
        [first, end]: [V; 2],
        base: u32,
    ) {
        let layout = &stage.layout;
        let k = self.f.op(Class::B32, "sub.u32", &[&first, &layout.terms]);
        let k = self.f.op(Class::B32, "add.u32", &[&k, &stage.term]);
        let walks = walked(gemm, stage.which);
        let term = match walks {
            None => self.term(gemm, stage.which, batch, k),
            Some(_) => None,
        };
        let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
        for slot in &stage.slots {
            let there = self.f.op(Class::Pred, "setp.lt.u32", &[&k, &end]);
            let ok = match walks {
                None => {
                    let ok = self.f.op(Class::Pred, "and.pred", &[&there, &slot.ok]);
                    self.element(gemm, stage.which, &slot.row, term.as_ref(), ok).1
                }
                Some((c, _)) => self.is_near(c, &slot.row, k, there),
            };
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
    pub(super) fn stash(&mut self, gemm: &Gemm, stage: &Stage, offset: V) {
        let layout = &stage.layout;
        let apart = if stage.along_k { layout.by_term } else { layout.by_row };
        // One store for all neighbours where they are neighbours in the tile too.
        let at_once = if apart == 1 { stage.wide as usize } else { 1 };
        for (slot, vs) in stage.loads() {
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

impl Stage {
    /// Slots with the registers they are loaded to.
    fn loads(&self) -> impl Iterator<Item = (&Slot, &[V])> {
        self.slots.iter().zip(self.values.chunks(self.wide as usize))
    }

    /// Whether a tile of it may have to be loaded in another way than at once.
    fn may_be_partial(&self) -> bool {
        matches!(self.way, Way::Quick { whole: false, aligned: Some(_), .. })
    }

    pub fn values(&self) -> &[V] {
        &self.values
    }
}
