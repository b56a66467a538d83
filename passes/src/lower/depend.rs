//! What must wait for what, before and after storages are given memory.
//!
//! Before, [`Order`] says which steps are bound to come after which by what they
//! compute, so that storages are put in one slot where that makes nobody wait who
//! would not anyway. After, [`dispatch`] writes the waits into the plan, those
//! that shared memory adds included: nothing relies on the order of a list alone.

use super::storage::StorageId;
use std::collections::BTreeMap;
use tfc_abi::depend::{self, Reach};
use tfc_abi::plan::{BufId, Dispatch, Home, Step, Steps};

/// A step: its number in the outermost list, then in the list inside that step,
/// and so on, each with the number of the list.
type Path = Vec<(u32, u32)>;

/// The order that values impose on steps.
#[derive(Default)]
pub(crate) struct Order {
    lists: Vec<Reach>,
    /// The steps that touch each storage, as they stand in the lists.
    touches: BTreeMap<StorageId, Vec<Path>>,
}

impl Order {
    /// `storage` says what a buffer is kept in, and the home of that if it has one
    /// from outside.
    pub fn of(steps: &[Step], storage: &dyn Fn(BufId) -> (StorageId, Option<Home>)) -> Order {
        let mut order = Order::default();
        order.list(steps, &mut vec![], storage);
        order
    }

    fn list(
        &mut self,
        steps: &[Step],
        path: &mut Path,
        storage: &dyn Fn(BufId) -> (StorageId, Option<Home>),
    ) {
        let own = |b: BufId| {
            let (id, home) = storage(b);
            home.unwrap_or(Home::slot(id.0))
        };
        let number = self.lists.len() as u32;
        self.lists.push(depend::order(steps, &own).1);
        for (i, step) in (0u32..).zip(steps) {
            path.push((number, i));
            let mut touch = |buf: BufId| {
                let list = self.touches.entry(storage(buf).0).or_default();
                if list.last() != Some(path) {
                    list.push(path.clone());
                }
            };
            match step {
                Step::If { cond, then: a, otherwise: b } => {
                    touch(*cond);
                    self.list(a, path, storage);
                    self.list(b, path, storage);
                }
                Step::While { head: a, cond, body: b } => {
                    touch(*cond);
                    self.list(a, path, storage);
                    self.list(b, path, storage);
                }
                _ => step.buffers(&mut |buf, _| touch(buf)),
            }
            path.pop();
        }
    }

    /// Whether everything that touches `old` is done before `new` is first
    /// touched, wherever they are kept.
    pub fn follows(&self, new: StorageId, old: StorageId) -> bool {
        let Some(first) = self.touches.get(&new).and_then(|list| list.first()) else { return true };
        self.touches.get(&old).is_none_or(|list| list.iter().all(|path| self.before(path, first)))
    }

    fn before(&self, a: &Path, b: &Path) -> bool {
        for ((list, x), (other, y)) in a.iter().zip(b) {
            // Lists inside one step run one after the other, if both run at all.
            if list != other {
                return true;
            }
            if x != y {
                return self.lists[*list as usize].before(*x, *y);
            }
        }
        // The condition of a step with lists, and a step of one of them.
        a.len() != b.len()
    }
}

/// The lists of an entry with what each step waits for.
pub(crate) fn dispatch(steps: Steps, home: &dyn Fn(BufId) -> Home) -> Steps {
    let (after, _) = depend::order(&steps, home);
    let inner = |list: &mut Steps| *list = dispatch(std::mem::take(list), home);
    Steps::from_pairs(steps.into_pairs().zip(after).map(|((mut step, dispatch), after)| {
        if let Step::If { then: a, otherwise: b, .. } | Step::While { head: a, body: b, .. } =
            &mut step
        {
            inner(a);
            inner(b);
        }
        (step, Dispatch { after, ..dispatch })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(src: u32, dst: u32) -> Step {
        Step::Copy { src, dst }
    }

    fn order(steps: &[Step]) -> Order {
        Order::of(steps, &|b| (StorageId(b), None))
    }

    #[test]
    fn only_what_is_done_for_sure_makes_room() {
        // Two chains, 0 -> 1 -> 2 and 3 -> 4 -> 5.
        let o = order(&[copy(0, 1), copy(1, 2), copy(3, 4), copy(4, 5), copy(2, 6)]);
        let s = StorageId;
        assert!(o.follows(s(6), s(1)));
        assert!(!o.follows(s(2), s(1)), "the step that makes 2 reads 1");
        assert!(!o.follows(s(5), s(1)), "the other chain may still run");
        assert!(o.follows(s(9), s(1)), "nobody touches 9");
    }

    #[test]
    fn steps_in_lists_are_compared_where_their_lists_meet() {
        let inner =
            |body: Vec<Step>| Step::While { head: vec![].into(), cond: 9, body: body.into() };
        let list =
            [copy(0, 1), inner(vec![copy(1, 2), copy(2, 3), copy(0, 4)]), copy(0, 5), copy(3, 6)];
        let o = order(&list);
        let s = StorageId;
        assert!(o.follows(s(6), s(2)));
        assert!(!o.follows(s(5), s(2)));
        assert!(!o.follows(s(4), s(2)), "beside it in the loop");
    }

    #[test]
    fn shared_memory_adds_waits() {
        let list = vec![copy(0, 1), copy(1, 2), copy(3, 4), copy(4, 5)];
        let own = dispatch(list.clone().into(), &Home::slot);
        assert_eq!(own.dispatch()[2].after, [] as [u32; 0]);
        // 4 where 1 is.
        let shared = dispatch(list.into(), &|b| Home::slot(if b == 4 { 1 } else { b }));
        assert_eq!(shared.dispatch()[2].after, [1]);
    }
}
