//! Storage: which bytes hold which value, and for how long.
//!
//! Steps are numbered in the order they run (those of a branch or a loop body
//! between their neighbours). Every storage records the steps that touch it;
//! from that follow copies that need not happen, outputs that may take the
//! place of an input, and which storages can share a slot of the arena.
//!
//! Steps that do not wait for each other may run at the same time, unless they
//! share a slot. So a storage takes a slot that is sure to be free by then, if
//! there is one; a slot of its own, as long as that takes little memory; and only
//! then one that makes its step wait.

use super::depend::Order;
use std::collections::{BTreeMap, BTreeSet};
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
            self.list[id.0 as usize].home = Some(Home::Slot(slot));
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
                    .take_over(id, time, &last_use, &layout.homes, &mut taken)
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
                layout.put(id, slot, bytes);
            }
            for id in deaths.remove(&time).unwrap_or_default() {
                if taken.contains(&id) {
                    continue;
                }
                if let Some(&slot) = layout.homes.get(&id) {
                    // Filed under its largest constant size, or the first
                    // run-time one: exact matches are found first.
                    let key = slot_key(&layout.slots[slot as usize]);
                    free.entry(key).or_default().push(slot);
                }
            }
        }
        layout
    }

    /// Slots for all storages, given out to the largest first: each takes the smallest
    /// slot that is free all its life. That leaves fewer holes than going by time, where
    /// a large storage may come when only small slots are free; but it asks nobody who
    /// would have to wait. None where there are too many to try.
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
                    units.push(Unit { members: vec![], first: time, last: time });
                    units.len() as u32 - 1
                });
                homes.insert(id, unit);
                let unit = &mut units[unit as usize];
                unit.members.push(id);
                unit.last = unit.last.max(last_use[&id]);
            }
        }
        let size = |unit: &Unit| at_dims(&self.bytes(unit.members[0]))[1];
        units.sort_by_key(|unit| (std::cmp::Reverse(size(unit)), unit.first));
        let mut layout = Layout::default();
        let mut busy: Vec<(i64, BTreeMap<u32, u32>)> = vec![];
        let mut tried = 0;
        for unit in &units {
            tried += busy.len();
            if tried > MOST_TRIED {
                return None;
            }
            let is_free = |(_, lives): &&(i64, BTreeMap<u32, u32>)| {
                let before = lives.range(..=unit.last).next_back();
                before.is_none_or(|(_, last)| *last < unit.first)
            };
            let free = busy.iter().enumerate().filter(|(_, slot)| is_free(slot));
            let slot = free.min_by_key(|(_, (size, _))| *size).map(|(at, _)| at);
            let slot = slot.unwrap_or_else(|| {
                busy.push((size(unit), BTreeMap::new()));
                layout.slots.push(vec![]);
                layout.last.push(unit.members[0]);
                busy.len() - 1
            });
            busy[slot].1.insert(unit.first, unit.last);
            for id in &unit.members {
                layout.put(*id, slot as u32, self.bytes(*id));
            }
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
}

/// A plan that makes more steps wait must save one part in so many, and so many bytes.
const SAVED: i64 = 16;
const WORTH_IT: i64 = 1 << 20;

/// Slots that are looked at for all storages together, at most.
const MOST_TRIED: usize = 200_000;

fn saves(packed: [i64; 2], plain: [i64; 2]) -> bool {
    let less = plain[1].saturating_sub(packed[1]);
    packed[0] <= plain[0] && less >= (plain[1] / SAVED).max(WORTH_IT)
}

/// Which storage is in which slot.
#[derive(Default)]
struct Layout {
    /// Sizes each slot must hold.
    slots: Vec<Vec<Dim>>,
    /// What was put there last.
    last: Vec<StorageId>,
    homes: BTreeMap<StorageId, u32>,
}

impl Layout {
    fn put(&mut self, id: StorageId, slot: u32, bytes: Dim) {
        self.last[slot as usize] = id;
        self.homes.insert(id, slot);
        let sizes = &mut self.slots[slot as usize];
        if !sizes.contains(&bytes) {
            sizes.push(bytes);
        }
    }

    /// The memory it takes at small and at larger run-time dims.
    fn bytes(&self) -> [i64; 2] {
        let largest = |sizes: &[Dim], at| sizes.iter().map(|d| at_dims(d)[at]).max().unwrap_or(0);
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
