//! What the machine cannot do to all lanes at once: one lane after the other.
//!
//! The lanes go to the frame, a small loop takes them from there one by one, does
//! what it has to as with values that are not in lanes, and leaves the results in
//! the frame. Only lanes that count take part: the addresses of others lead
//! nowhere.

use super::lir::{Base, Cc, Cell, Class, Inst, Mem, Op, V, W};
use super::memory::cell;
use super::table;
use super::value::{Val, parts};
use super::{Result, Select};
use tfc_kernel::{DType, Scalar, ScalarOp, ScalarType};

/// How lanes of this type stand in the frame; bools as integers.
fn stored(ty: ScalarType) -> DType {
    match ty {
        ScalarType::F32 => DType::F32,
        ScalarType::F64 => DType::F64,
        ScalarType::I32 | ScalarType::Bool => DType::I32,
        ScalarType::I64 => DType::I64,
    }
}

fn at(place: u32, ty: ScalarType, lane: V) -> Mem {
    let scale = stored(ty).size() as u8;
    Mem { base: Base::Frame(place), index: Some(lane), scale, disp: 0 }
}

impl Select<'_> {
    /// An operation on one lane after the other.
    pub(super) fn by_lane(
        &mut self,
        op: ScalarOp,
        to: ScalarType,
        tys: &[ScalarType],
        args: &[Val],
    ) -> Result<Val> {
        let mut places = vec![];
        for (arg, ty) in args.iter().zip(tys) {
            places.push(match arg {
                Val::Lanes(lanes) => Some(self.park(*ty, lanes)?),
                _ => None,
            });
        }
        let out = self.room(to);
        self.each_lane(self.lanes(), |s, lane| {
            let mut values = vec![];
            for ((arg, ty), place) in args.iter().zip(tys).zip(&places) {
                values.push(match place {
                    Some(place) => Val::Uniform(s.load_one(stored(*ty), at(*place, *ty, lane))?),
                    None => arg.clone(),
                });
            }
            let value = s.uniform_op(op, to, tys, &values)?;
            s.store_one(stored(to), at(out, to, lane), &value)
        })?;
        self.unpark(to, out)
    }

    /// Loads the elements at `mem` plus distances in bytes, of eight bytes if `far`.
    pub(super) fn load_each(
        &mut self,
        dtype: DType,
        mem: Mem,
        distances: &[V],
        far: bool,
    ) -> Result<Val> {
        let (ty, base) = (ScalarType::of(dtype), self.flat(mem));
        let distance = if far { ScalarType::I64 } else { ScalarType::I32 };
        let (from, out) = (self.park(distance, distances)?, self.room(ty));
        self.each_lane(self.lanes(), |s, lane| {
            let there = s.there(base, from, distance, lane)?;
            let value = Val::Uniform(s.load_one(dtype, there)?);
            s.store_one(stored(ty), at(out, ty, lane), &value)
        })?;
        self.unpark(ty, out)
    }

    pub(super) fn store_each(
        &mut self,
        dtype: DType,
        mem: Mem,
        distances: &[V],
        far: bool,
        value: &Val,
    ) -> Result<()> {
        let (ty, base) = (ScalarType::of(dtype), self.flat(mem));
        let distance = if far { ScalarType::I64 } else { ScalarType::I32 };
        let from = self.park(distance, distances)?;
        let lanes = self.in_lanes(ty, value)?;
        let values = self.park(ty, &lanes)?;
        self.each_lane(self.lanes(), |s, lane| {
            let there = s.there(base, from, distance, lane)?;
            let value = Val::Uniform(s.load_one(stored(ty), at(values, ty, lane))?);
            s.store_one(dtype, there, &value)
        })
    }

    /// The address of one lane.
    fn there(&mut self, base: V, distances: u32, ty: ScalarType, lane: V) -> Result<Mem> {
        let mut distance = self.load_one(stored(ty), at(distances, ty, lane))?;
        if ty == ScalarType::I32 {
            distance = self.plain(Op::Extend, Class::General, &[distance], None);
        }
        Ok(Mem { base: Base::Reg(base), index: Some(distance), scale: 1, disp: 0 })
    }

    /// A place in the frame for all lanes.
    fn room(&mut self, ty: ScalarType) -> u32 {
        let bytes = self.unroll() * self.lanes() * stored(ty).size();
        self.f.place(bytes as u32)
    }

    fn park(&mut self, ty: ScalarType, lanes: &[V]) -> Result<u32> {
        let place = self.room(ty);
        let lanes = match ty {
            ScalarType::Bool => {
                let int = ScalarType::I32;
                let numbers = [Val::Lanes(lanes.to_vec())];
                let numbers = self.convert_lanes(ty, int, &numbers)?;
                self.in_lanes(int, &numbers)?
            }
            _ => lanes.to_vec(),
        };
        let w = self.width();
        for (i, v) in lanes.into_iter().enumerate() {
            let to = Self::frame(place, (i * w.bytes()) as i32);
            self.store_row(&table::STOREPS, w, v, to, None, None);
        }
        Ok(place)
    }

    fn unpark(&mut self, ty: ScalarType, place: u32) -> Result<Val> {
        let w = self.width();
        let lanes = (0..self.unroll() * parts(ty))
            .map(|i| {
                let from = Self::frame(place, (i * w.bytes()) as i32);
                self.load_row(&table::LOADPS, w, from, None)
            })
            .collect();
        let lanes = Val::Lanes(lanes);
        if ty != ScalarType::Bool {
            return Ok(lanes);
        }
        let zero = Val::Const(Scalar::I32(0));
        self.compare_lanes(ScalarOp::Ne, ScalarType::I32, &[lanes, zero])
    }

    /// Code for each lane that counts, in a loop; vectors have `lanes` of them.
    fn each_lane(
        &mut self,
        lanes: usize,
        each: impl FnOnce(&mut Self, V) -> Result<()>,
    ) -> Result<()> {
        let most = (self.unroll() * lanes) as i64;
        let left = self.group.as_ref().and_then(|g| g.left);
        let end = left.map(|left| self.at_most(left, most));
        let lane = self.imm(0);
        let top = self.f.label();
        self.push(Inst::new(Op::Begin));
        self.here(top);
        each(self, lane)?;
        self.advance(lane, 1);
        match end {
            Some(end) => self.jump(Cc::Lt, lane, Some(end), None, top),
            None => self.jump(Cc::Lt, lane, None, Some(most), top),
        }
        self.push(Inst::new(Op::End));
        Ok(())
    }

    fn at_most(&mut self, v: V, most: i64) -> V {
        let most = self.imm(most);
        let fits = self.general(Op::Set(Cc::Lt), true, v, Some(most), None);
        self.plain(Op::Choose, Class::General, &[v, most, fits], None)
    }

    /// Copies the elements of a vector's lanes that count between memory and the
    /// frame, for types that have no masked loads and stores (AVX2).
    pub(super) fn copy_elements(
        &mut self,
        dtype: DType,
        instance: usize,
        mem: Mem,
        frame: Mem,
        out: bool,
    ) {
        let Some(left) = self.group.as_ref().and_then(|g| g.left) else { return };
        let lanes = self.lanes() as i64;
        let count = self.general(Op::Add, true, left, None, Some(-(instance as i64) * lanes));
        let count = self.at_most(count, lanes);
        let (there, size) = (self.flat(mem), dtype.size() as u8);
        let (top, done) = (self.f.label(), self.f.label());
        let lane = self.imm(0);
        self.jump(Cc::Le, count, None, Some(0), done);
        self.push(Inst::new(Op::Begin));
        self.here(top);
        let outside = Mem { base: Base::Reg(there), index: Some(lane), scale: size, disp: 0 };
        let inside = Mem { index: Some(lane), scale: size, ..frame };
        let (from, to) = if out { (inside, outside) } else { (outside, inside) };
        self.move_element(cell(dtype), from, to);
        self.advance(lane, 1);
        self.jump(Cc::Lt, lane, Some(count), None, top);
        self.push(Inst::new(Op::End));
        self.here(done);
    }

    fn move_element(&mut self, cell: Cell, from: Mem, to: Mem) {
        let v = self.f.reg(Class::General);
        let load = Inst::new(Op::LoadGeneral(cell));
        self.push(Inst { dst: Some(v), mem: Some(from), w: W::W128, ..load });
        let store = Inst::new(Op::StoreGeneral(cell));
        self.push(Inst { src: [Some(v), None, None], mem: Some(to), ..store });
    }
}
