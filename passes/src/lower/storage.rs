//! Storage: which bytes hold which value, and for how long.
//!
//! Steps are numbered in the order they run (those of a branch or a loop body
//! between their neighbours). Every storage records the steps that touch it;
//! from that follow copies that need not happen, outputs that may take the
//! place of an input, and which storages can share slots of the arena.
//!
//! Steps that do not wait for each other may run at the same time, unless they
//! share a slot. So a storage takes a slot that is sure to be free by then, if
//! there is one; a slot of its own, as long as that takes little memory; and only
//! then one that makes its step wait. Where much memory is saved by it, storages
//! are packed instead: then one may take several slots that follow each other.

use super::depend::Order;
use std::collections::{BTreeMap, BTreeSet};
use tfc_abi::BUFFER_ALIGN;
use tfc_abi::plan::Home;
use tfc_ir::{DType, Dim};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct StorageId(pub u32);

#[derive(Clone, Debug)]
pub(crate) struct Storage {
    pub dtype: DType,
    pub len: Dim,
    /// Given from outside, or decided by [`Storages::assign`].
    pub home: Option<Home>,
    /// Shares another storage's bytes.
    merged: Option<StorageId>,
    /// Steps that touch it, in order; true for writes.
    touches: Vec<(u32, bool)>,
    /// Region its first write is in.
    pub region: u32,
}

/// A copy that vanishes if both sides can be one storage.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    pub time: u32,
    pub src: StorageId,
    pub dst: StorageId,
    pub region: u32,
}

#[derive(Default)]
pub(crate) struct Storages {
    pub list: Vec<Storage>,
    /// Per step: outputs that may take the bytes of an input.
    in_place: BTreeMap<u32, Vec<(StorageId, StorageId)>>,
}

impl Storages {
    pub fn new_storage(
        &mut self,
        dtype: DType,
        len: Dim,
        home: Option<Home>,
        region: u32,
    ) -> StorageId {
        self.list.push(Storage { dtype, len, home, merged: None, touches: vec![], region });
        StorageId((self.list.len() - 1) as u32)
    }

    pub fn touch(&mut self, id: StorageId, time: u32, write: bool) {
        self.list[id.0 as usize].touches.push((time, write));
    }

    pub fn allow_in_place(&mut self, time: u32, out: StorageId, input: StorageId) {
        self.in_place.entry(time).or_default().push((out, input));
    }

    /// Everything touched in a loop but written before it lives through it.
    pub fn add_loop(&mut self, first: u32, last: u32) {
        for s in &mut self.list {
            let enters = s.touches.first().is_some_and(|(t, _)| *t < first);
            let inside = s.touches.iter().any(|(t, _)| *t >= first && *t <= last);
            if enters && inside {
                s.touches.push((last, false));
            }
        }
    }

    pub fn resolve(&self, mut id: StorageId) -> StorageId {
        while let Some(next) = self.list[id.0 as usize].merged {
            id = next;
        }
        id
    }

    pub fn home(&self, id: StorageId) -> Option<Home> {
        self.list[self.resolve(id).0 as usize].home
    }

    fn span(&self, id: StorageId) -> Option<(u32, u32)> {
        let t = &self.list[id.0 as usize].touches;
        Some((t.iter().map(|x| x.0).min()?, t.iter().map(|x| x.0).max()?))
    }

    /// Makes `src` and `dst` of a copy one storage, if nothing can tell.
    pub fn coalesce(&mut self, copy: &Copy) {
        let (src, dst) = (self.resolve(copy.src), self.resolve(copy.dst));
        if src == dst {
            return;
        }
        let (s, d) = (&self.list[src.0 as usize], &self.list[dst.0 as usize]);
        if s.home.is_some() || s.region != copy.region || s.dtype != d.dtype || s.len != d.len {
            return;
        }
        let Some((first, last)) = self.span(src) else { return };
        // A source that was itself merged into a place that is written again would take
        // the copy's value with it.
        let Some((_, end)) = self.span(dst) else { return };
        if s.touches.iter().any(|&(t, write)| write && t > copy.time && t <= end) {
            return;
        }
        for &(t, write) in &d.touches {
            if t == copy.time {
                continue;
            }
            if t > first && t < copy.time {
                return;
            }
            if t == first {
                let allowed = !write
                    && self.in_place.get(&t).is_some_and(|pairs| {
                        pairs
                            .iter()
                            .any(|(o, i)| self.resolve(*o) == src && self.resolve(*i) == dst)
                    });
                if !allowed {
                    return;
                }
            }
            if write && t > copy.time && t <= last {
                return;
            }
        }
        // A loop around the copy but not around the first write, or the other
        // way round, would repeat one without the other; regions are equal, so
        // neither happens.
        let touches = std::mem::take(&mut self.list[src.0 as usize].touches);
        self.list[src.0 as usize].merged = Some(dst);
        let d = &mut self.list[dst.0 as usize].touches;
        d.extend(touches);
        d.sort();
        d.dedup();
    }

    /// Puts `inner` (a contraction's raw result) where `outer` (what its
    /// epilogue makes of it) goes, unless the step reads that place.
    pub fn share_result(&mut self, inner: StorageId, outer: StorageId, time: u32) {
        let (inner, outer) = (self.resolve(inner), self.resolve(outer));
        if inner == outer || self.list[inner.0 as usize].home.is_some() {
            return;
        }
        let (i, o) = (&self.list[inner.0 as usize], &self.list[outer.0 as usize]);
        let only_here = i.touches.iter().all(|(t, _)| *t == time);
        let read = o.touches.iter().any(|(t, w)| *t == time && !w);
        if !only_here || read || i.dtype != o.dtype || i.len != o.len {
            return;
        }
        self.list[inner.0 as usize].merged = Some(outer);
        // The raw product fills the place before the epilogue reads anything:
        // it can be no other operand's place too.
        if let Some(mut pairs) = self.in_place.remove(&time) {
            pairs.retain(|(o, _)| self.resolve(*o) != outer);
            self.in_place.insert(time, pairs);
        }
    }

    /// Gives every storage without a home a slot. Returns, per slot, the sizes
    /// in bytes it must hold.
    pub fn assign(&mut self, order: &Order) -> Vec<Vec<Dim>> {
        let mut least = self.layout(order, [0; 2]);
        if let Some(packed) = self.packed().filter(|p| saves(p.bytes(), least.bytes())) {
            least = packed;
        }
        let room = least.bytes().map(|n| (n / MORE).max(LITTLE));
        let mut layout = self.layout(order, room);
        // Other slots for some may also have led to larger slots for others.
        let most = |at: usize| least.bytes()[at].saturating_add(room[at]);
        if (0..2).any(|at| layout.bytes()[at] > most(at)) {
            layout = least;
        }
        for (id, slot) in layout.homes {
            self.list[id.0 as usize].home = Some(Home::Slot(slot.0, slot.1));
        }
        layout.slots
    }

    /// Storages that need a slot, with their lives.
    fn homeless(&self) -> impl Iterator<Item = (StorageId, (u32, u32))> + '_ {
        let list = (0u32..).map(StorageId).zip(&self.list);
        let needs = list.filter(|(_, s)| s.merged.is_none() && s.home.is_none());
        needs.filter_map(|(id, _)| Some((id, self.span(id)?)))
    }

    /// Slots for all storages, with so many bytes more than necessary (at two
    /// sizes of run-time dims) to let steps run at the same time.
    fn layout(&self, order: &Order, mut room: [i64; 2]) -> Layout {
        let mut births: BTreeMap<u32, Vec<StorageId>> = BTreeMap::new();
        let mut deaths: BTreeMap<u32, Vec<StorageId>> = BTreeMap::new();
        let mut last_use: BTreeMap<StorageId, u32> = BTreeMap::new();
        for (id, (first, last)) in self.homeless() {
            births.entry(first).or_default().push(id);
            deaths.entry(last).or_default().push(id);
            last_use.insert(id, last);
        }
        let whole = room;
        let mut layout = Layout::default();
        let mut homes: BTreeMap<StorageId, u32> = BTreeMap::new();
        let mut free: BTreeMap<Dim, Vec<u32>> = BTreeMap::new();
        let times: BTreeSet<u32> = births.keys().chain(deaths.keys()).copied().collect();
        for time in times {
            let mut taken: Vec<StorageId> = vec![];
            for id in births.remove(&time).unwrap_or_default() {
                let bytes = self.bytes(id);
                let careful = affordable(&bytes, whole);
                // Neither a wait nor a place that larger ones could have.
                let ready = |slot: &u32| {
                    let sizes = &layout.slots[*slot as usize];
                    order.follows(id, layout.last[*slot as usize]) && !much_larger(sizes, &bytes)
                };
                let slot = self
                    .take_over(id, time, &last_use, &homes, &mut taken)
                    .or_else(|| careful.then(|| take_free(&mut free, &bytes, &ready)).flatten())
                    .or_else(|| match careful && spend(&mut room, &bytes) {
                        true => None,
                        false => take_free(&mut free, &bytes, &|_| true),
                    });
                let slot = slot.unwrap_or_else(|| {
                    layout.slots.push(vec![]);
                    layout.last.push(id);
                    (layout.slots.len() - 1) as u32
                });
                homes.insert(id, slot);
                layout.put(id, slot, bytes);
            }
            for id in deaths.remove(&time).unwrap_or_default() {
                if taken.contains(&id) {
                    continue;
                }
                if let Some(&slot) = homes.get(&id) {
                    // Filed under its largest constant size, or the first
                    // run-time one: exact matches are found first.
                    let key = slot_key(&layout.slots[slot as usize]);
                    free.entry(key).or_default().push(slot);
                }
            }
        }
        layout
    }

    /// Slots for all storages, given out to the largest first: each goes as low as it can
    /// among those that are alive with it, wherever others begin and end. That leaves hardly
    /// any holes, where going by time a large storage may come when only small slots are free;
    /// but it asks nobody who would have to wait. None where there are too many to try.
    fn packed(&self) -> Option<Layout> {
        let mut births: BTreeMap<u32, Vec<StorageId>> = BTreeMap::new();
        let mut last_use: BTreeMap<StorageId, u32> = BTreeMap::new();
        for (id, (first, last)) in self.homeless() {
            births.entry(first).or_default().push(id);
            last_use.insert(id, last);
        }
        // What takes another's place goes where that is.
        let mut units: Vec<Unit> = vec![];
        let mut homes: BTreeMap<StorageId, u32> = BTreeMap::new();
        for (time, ids) in births {
            let mut taken = vec![];
            for id in ids {
                let unit = self.take_over(id, time, &last_use, &homes, &mut taken);
                let unit = unit.unwrap_or_else(|| {
                    let (bytes, size) = in_units(&self.bytes(id));
                    units.push(Unit { members: vec![], first: time, last: time, bytes, size });
                    units.len() as u32 - 1
                });
                homes.insert(id, unit);
                let unit = &mut units[unit as usize];
                unit.members.push(id);
                unit.last = unit.last.max(last_use[&id]);
            }
        }
        // Sizes that are multiples of one and the same are packed together; nobody knows
        // which of two others is larger.
        let mut kinds: BTreeMap<Dim, Vec<Unit>> = BTreeMap::new();
        for unit in units {
            kinds.entry(unit.bytes.clone()).or_default().push(unit);
        }
        if kinds.values().any(|units| units.len() > MOST_PACKED) {
            return None;
        }
        let mut layout = Layout::default();
        for (bytes, units) in kinds {
            // Sizes that nobody can count are left to who reports them.
            units.iter().try_fold(0i64, |sum, unit| sum.checked_add(unit.size))?;
            layout.stack(&bytes, units);
        }
        Some(layout)
    }

    fn bytes(&self, id: StorageId) -> Dim {
        let s = &self.list[id.0 as usize];
        s.len.clone() * Dim::constant(s.dtype.size() as i64)
    }

    /// The slot of an operand that dies here and may be overwritten.
    fn take_over(
        &self,
        id: StorageId,
        time: u32,
        last_use: &BTreeMap<StorageId, u32>,
        homes: &BTreeMap<StorageId, u32>,
        taken: &mut Vec<StorageId>,
    ) -> Option<u32> {
        for (out, input) in self.in_place.get(&time)? {
            let (out, input) = (self.resolve(*out), self.resolve(*input));
            if out != id || input == id || taken.contains(&input) {
                continue;
            }
            if last_use.get(&input) != Some(&time) || self.bytes(id) != self.bytes(input) {
                continue;
            }
            if let Some(&slot) = homes.get(&input) {
                taken.push(input);
                return Some(slot);
            }
        }
        None
    }
}

/// Of the memory that is necessary, one part in so many may be added, and in any
/// case so many bytes.
const MORE: i64 = 64;
const LITTLE: i64 = 64 << 10;

/// Storages of which each takes the place of the one before.
struct Unit {
    members: Vec<StorageId>,
    first: u32,
    last: u32,
    /// So many times `bytes` are its bytes.
    bytes: Dim,
    size: i64,
}

/// A plan that makes more steps wait must save one part in so many, and so many bytes.
const SAVED: i64 = 16;
const WORTH_IT: i64 = 1 << 20;

/// Storages of a kind that are packed, at most: each is compared with all others.
const MOST_PACKED: usize = 4_000;

/// A size as a multiple of something that has no factor of its own: of so many bytes that
/// all begin where vectors may, if it is constant, else of a product of run-time dims. What
/// is no such product is one of itself.
fn in_units(bytes: &Dim) -> (Dim, i64) {
    if let Some(n) = bytes.as_const() {
        let count = (n.max(1) as u64).div_ceil(BUFFER_ALIGN as u64);
        return (Dim::constant(BUFFER_ALIGN as i64), count as i64);
    }
    match bytes.terms().as_slice() {
        [(_, factor)] if *factor > 0 => match bytes.div_exact(&Dim::constant(*factor)) {
            Some(product) => (product, *factor),
            None => (bytes.clone(), 1),
        },
        _ => (bytes.clone(), 1),
    }
}

fn saves(packed: [i64; 2], plain: [i64; 2]) -> bool {
    let less = plain[1].saturating_sub(packed[1]);
    packed[0] <= plain[0].saturating_add(LITTLE) && less >= (plain[1] / SAVED).max(WORTH_IT)
}

/// Which storage is in which slot.
#[derive(Default)]
struct Layout {
    /// Sizes each slot must hold.
    slots: Vec<Vec<Dim>>,
    /// What was put there last.
    last: Vec<StorageId>,
    /// The first slot of each, and how many it takes.
    homes: BTreeMap<StorageId, (u32, u32)>,
}

impl Layout {
    /// Gives storages whose sizes are multiples of `bytes` slots of their own, so that
    /// those that are alive at the same time lie beside each other.
    fn stack(&mut self, bytes: &Dim, mut units: Vec<Unit>) {
        units.sort_by_key(|unit| (std::cmp::Reverse(unit.size), unit.first));
        let mut starts: Vec<i64> = vec![];
        let mut beside: Vec<(i64, i64)> = vec![];
        for (i, unit) in units.iter().enumerate() {
            let placed = units[..i].iter().zip(&starts);
            let meet = placed.filter(|(o, _)| o.first <= unit.last && unit.first <= o.last);
            beside.clear();
            beside.extend(meet.map(|(other, start)| (*start, start + other.size)));
            beside.sort_unstable();
            // The tightest gap that is large enough, or behind them all.
            let (mut best, mut end) = (None::<(i64, i64)>, 0);
            for (from, to) in &beside {
                let gap = from - end;
                if gap >= unit.size && best.is_none_or(|(least, _)| gap < least) {
                    best = Some((gap, end));
                }
                end = end.max(*to);
            }
            starts.push(best.map_or(end, |(_, start)| start));
        }
        // A slot begins wherever a storage begins or ends.
        let ends = units.iter().zip(&starts).map(|(unit, start)| start + unit.size);
        let bounds: BTreeSet<i64> = starts.iter().copied().chain(ends).collect();
        let bounds: Vec<i64> = bounds.into_iter().collect();
        let base = self.slots.len() as u32;
        for pair in bounds.windows(2) {
            self.slots.push(vec![Dim::constant(pair[1] - pair[0]) * bytes.clone()]);
        }
        let number = |at: i64| bounds.partition_point(|bound| *bound < at) as u32;
        for (unit, start) in units.iter().zip(starts) {
            let (first, end) = (number(start), number(start + unit.size));
            for id in &unit.members {
                self.homes.insert(*id, (base + first, end - first));
            }
        }
    }

    fn put(&mut self, id: StorageId, slot: u32, bytes: Dim) {
        self.last[slot as usize] = id;
        self.homes.insert(id, (slot, 1));
        let sizes = &mut self.slots[slot as usize];
        if !sizes.contains(&bytes) {
            sizes.push(bytes);
        }
    }

    /// The memory it takes at small and at larger run-time dims; a slot begins where vectors
    /// may.
    fn bytes(&self) -> [i64; 2] {
        let align = BUFFER_ALIGN as i64;
        let rounded = |n: i64| n.checked_add(align - 1).map_or(n, |n| n / align * align);
        let largest =
            |sizes: &[Dim], at| rounded(sizes.iter().map(|d| at_dims(d)[at]).max().unwrap_or(0));
        [0, 1].map(|at| {
            self.slots.iter().fold(0i64, |sum, sizes| sum.saturating_add(largest(sizes, at)))
        })
    }
}

/// A size where every run-time dim is 1, and where every one is 64.
fn at_dims(size: &Dim) -> [i64; 2] {
    [1, 64].map(|n| size.eval(&|_| Some(n)).unwrap_or(i64::MAX))
}

/// Whether a storage is small enough for its steps' sake to count: no one may
/// take most of the memory that may be added.
fn affordable(bytes: &Dim, room: [i64; 2]) -> bool {
    at_dims(bytes).iter().zip(room).all(|(bytes, room)| *bytes <= room / 2)
}

/// Takes the bytes off what is left, if they are there.
fn spend(room: &mut [i64; 2], bytes: &Dim) -> bool {
    let fits = at_dims(bytes).iter().zip(*room).all(|(bytes, room)| *bytes <= room);
    if fits {
        let [small, large] = at_dims(bytes);
        *room = [room[0] - small, room[1] - large];
    }
    fits
}

/// Whether a slot has more than four times the bytes.
fn much_larger(sizes: &[Dim], bytes: &Dim) -> bool {
    let wanted = at_dims(bytes);
    sizes.iter().any(|s| at_dims(s).iter().zip(wanted).any(|(s, w)| *s / 4 > w))
}

fn slot_key(sizes: &[Dim]) -> Dim {
    let constant = sizes.iter().filter_map(Dim::as_const).max();
    match sizes.iter().find(|d| d.as_const().is_none()) {
        Some(d) => d.clone(),
        None => Dim::constant(constant.unwrap_or(0)),
    }
}

/// A free slot for this size that is also `ready`: the same size, else the
/// smallest larger constant one, else the largest smaller one of the same kind
/// (which then grows).
fn take_free(
    free: &mut BTreeMap<Dim, Vec<u32>>,
    bytes: &Dim,
    ready: &dyn Fn(&u32) -> bool,
) -> Option<u32> {
    let has = |key: &&Dim| free.get(key).is_some_and(|list| list.iter().any(ready));
    let constant = |key: &&Dim| key.as_const().is_some();
    let key = match bytes.as_const() {
        Some(_) => {
            // Constants sort before run-time sizes, by value.
            let larger = free.range(bytes.clone()..).map(|(k, _)| k).filter(constant).find(has);
            larger.or_else(|| free.range(..bytes.clone()).map(|(k, _)| k).rev().find(has))
        }
        None => {
            let mut others = free.keys().rev().filter(|k| k.as_const().is_none());
            free.get_key_value(bytes).map(|(k, _)| k).filter(has).or_else(|| others.find(has))
        }
    }?;
    let key = key.clone();
    let list = free.get_mut(&key)?;
    let slot = list.remove(list.iter().rposition(ready)?);
    if list.is_empty() {
        free.remove(&key);
    }
    Some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Storages with random lives and sizes: constant ones, and two kinds of run-time ones.
    fn random(seed: u64) -> Storages {
        let mut state = seed.wrapping_mul(2) | 1;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        };
        let mut all = Storages::default();
        for _ in 0..below(60) + 2 {
            let len = Dim::constant(below(5000) as i64 + 1);
            let len = match below(4) {
                0 => len * Dim::sym("B"),
                1 => len * Dim::sym("B") * Dim::sym("C"),
                _ => len,
            };
            let id = all.new_storage(DType::F32, len, None, 0);
            let first = below(40) as u32;
            all.touch(id, first, true);
            all.touch(id, first + below(12) as u32, false);
        }
        all
    }

    #[test]
    fn packed_storages_never_meet_while_alive() {
        for seed in 0..500 {
            let all = random(seed);
            let layout = all.packed().expect("a layout");
            let homes: Vec<(StorageId, Home)> =
                layout.homes.iter().map(|(id, (at, n))| (*id, Home::Slot(*at, *n))).collect();
            for (i, (id, home)) in homes.iter().enumerate() {
                let (first, last) = all.span(*id).expect("a life");
                for (other, place) in &homes[..i] {
                    let (from, to) = all.span(*other).expect("a life");
                    let together = from <= last && first <= to;
                    assert!(!(together && home.meets(*place)), "seed {seed}: {id:?}, {other:?}");
                }
                let Home::Slot(at, count) = *home else { unreachable!() };
                for n in [0, 1, 64] {
                    let size = |d: &Dim| d.eval(&|_| Some(n)).expect("a size");
                    let slots = &layout.slots[at as usize..(at + count) as usize];
                    let room: i64 = slots.iter().map(|s| size(&s[0])).sum();
                    assert!(room >= size(&all.bytes(*id)), "seed {seed}: {id:?} has {room}");
                }
            }
        }
    }

    /// A hole between two that are alive is filled by two smaller ones side by side.
    #[test]
    fn holes_are_filled() {
        let mut all = Storages::default();
        for (len, first, last) in [(64, 0, 1), (48, 2, 3), (16, 2, 3), (32, 4, 5), (32, 4, 4)] {
            let id = all.new_storage(DType::F32, Dim::constant(len), None, 0);
            all.touch(id, first, true);
            all.touch(id, last, false);
        }
        let layout = all.packed().expect("a layout");
        assert_eq!(layout.bytes(), [256; 2]);
        let homes: Vec<_> = layout.homes.values().copied().collect();
        assert_eq!(homes, [(0, 3), (0, 2), (2, 1), (0, 1), (1, 2)]);
    }
}
