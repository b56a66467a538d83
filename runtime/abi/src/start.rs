//! The initialiser, one variable at a time: for processes that have some of a
//! program's variables, or a few rows of them.

use crate::plan::{Entry, Home, PartOf, Plan, Step, Steps};
use std::collections::BTreeSet;

impl Entry {
    /// The steps of an initialiser that a variable's first value is computed by. Other
    /// variables it is computed from are initialised, too.
    pub fn start_of(&self, var: u32) -> Entry {
        let home = |buf: &u32| self.buffers[*buf as usize].home;
        let mut needed: BTreeSet<Home> = [Home::Var(var)].into();
        let mut kept: Vec<Step> = vec![];
        // A home that is written twice is needed from its first write on.
        loop {
            let before = (kept.len(), needed.len());
            kept.clear();
            for step in self.steps.iter().rev() {
                let (mut uses, mut writes) = (vec![], step.is_barrier());
                step.buffers(&mut |buf, written| {
                    uses.push(home(&buf));
                    writes |= written && needed.contains(&home(&buf));
                });
                if writes {
                    let kept_homes = |h: &Home| !matches!(h, Home::Param(_) | Home::Const(_));
                    needed.extend(uses.into_iter().filter(kept_homes));
                    kept.push(step.clone());
                }
            }
            if (kept.len(), needed.len()) == before {
                break;
            }
        }
        kept.reverse();
        let mut writes: BTreeSet<u32> = BTreeSet::new();
        kept.iter().for_each(|s| {
            s.buffers(&mut |buf, written| match home(&buf) {
                Home::Var(v) if written => drop(writes.insert(v)),
                _ => {}
            });
        });
        Entry {
            steps: Steps::serial(kept),
            writes: writes.into_iter().collect(),
            part: Some(PartOf { whole: Some(u32::MAX), task: var }),
            ..self.clone()
        }
    }
}

impl Plan {
    /// Adds an entry for each variable that gives it its first value; those that begin
    /// with zeros need none. The numbers of the entries, by variable.
    pub fn add_starts(&mut self) -> Vec<Option<usize>> {
        let init = self.init.and_then(|i| self.entries.get(i as usize)).cloned();
        let Some(init) = init else { return vec![None; self.vars.len()] };
        let mut out = vec![];
        for v in 0..self.vars.len() {
            let start = (!self.vars[v].zero).then(|| init.start_of(v as u32));
            out.push(start.as_ref().map(|_| self.entries.len()));
            self.entries.extend(start);
        }
        out
    }
}
