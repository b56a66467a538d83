//! Storage: which bytes hold which value, and for how long.
//!
//! Steps are numbered in the order they run (those of a branch or a loop body
//! between their neighbours). Every storage records the steps that touch it;
//! from that follow copies that need not happen, outputs that may take the
//! place of an input, and which storages can share a slot of the arena.

use std::collections::BTreeMap;
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
    pub fn assign(&mut self) -> Vec<Vec<Dim>> {
        let mut births: BTreeMap<u32, Vec<StorageId>> = BTreeMap::new();
        let mut deaths: BTreeMap<u32, Vec<StorageId>> = BTreeMap::new();
        let mut last_use: BTreeMap<StorageId, u32> = BTreeMap::new();
        for i in 0..self.list.len() {
            let id = StorageId(i as u32);
            if self.list[i].merged.is_some() || self.list[i].home.is_some() {
                continue;
            }
            if let Some((first, last)) = self.span(id) {
                births.entry(first).or_default().push(id);
                deaths.entry(last).or_default().push(id);
                last_use.insert(id, last);
            }
        }
        let mut slots: Vec<Vec<Dim>> = vec![];
        let mut free: BTreeMap<Dim, Vec<u32>> = BTreeMap::new();
        let times: std::collections::BTreeSet<u32> =
            births.keys().chain(deaths.keys()).copied().collect();
        for time in times {
            let mut taken: Vec<StorageId> = vec![];
            for id in births.remove(&time).unwrap_or_default() {
                let bytes = self.bytes(id);
                let slot = self
                    .take_over(id, time, &last_use, &mut taken)
                    .or_else(|| take_free(&mut free, &bytes));
                let slot = slot.unwrap_or_else(|| {
                    slots.push(vec![]);
                    (slots.len() - 1) as u32
                });
                let sizes = &mut slots[slot as usize];
                if !sizes.contains(&bytes) {
                    sizes.push(bytes);
                }
                self.list[id.0 as usize].home = Some(Home::Slot(slot));
            }
            for id in deaths.remove(&time).unwrap_or_default() {
                if taken.contains(&id) {
                    continue;
                }
                if let Some(Home::Slot(slot)) = self.list[id.0 as usize].home {
                    // Filed under its largest constant size, or the first
                    // run-time one: exact matches are found first.
                    let key = slot_key(&slots[slot as usize]);
                    free.entry(key).or_default().push(slot);
                }
            }
        }
        slots
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
            if let Some(Home::Slot(slot)) = self.list[input.0 as usize].home {
                taken.push(input);
                return Some(slot);
            }
        }
        None
    }
}

fn slot_key(sizes: &[Dim]) -> Dim {
    let constant = sizes.iter().filter_map(Dim::as_const).max();
    match sizes.iter().find(|d| d.as_const().is_none()) {
        Some(d) => d.clone(),
        None => Dim::constant(constant.unwrap_or(0)),
    }
}

/// A free slot for this size: the same size, else the smallest larger constant
/// one, else the largest smaller one of the same kind (which then grows).
fn take_free(free: &mut BTreeMap<Dim, Vec<u32>>, bytes: &Dim) -> Option<u32> {
    let key = match bytes.as_const() {
        Some(_) => {
            // Constants sort before run-time sizes, by value.
            let larger =
                free.range(bytes.clone()..).map(|(k, _)| k).find(|k| k.as_const().is_some());
            match larger {
                Some(k) => Some(k.clone()),
                None => free.range(..bytes.clone()).next_back().map(|(k, _)| k.clone()),
            }
        }
        None if free.contains_key(bytes) => Some(bytes.clone()),
        None => free.keys().rev().find(|k| k.as_const().is_none()).cloned(),
    }?;
    let list = free.get_mut(&key)?;
    let slot = list.pop();
    if list.is_empty() {
        free.remove(&key);
    }
    slot
}
