//! What a server does with gradients: `Push`, `Shared` and `Apply`.

use super::channel::{Head, Message};
use super::layout::{Run, ServedGroup, Shape};
use super::rows::{self, Rows};
use super::server::{Answer, Rule, Server, find, misfit, number, rolled, stale, take};
use super::store::{Combined, Fresh, Grad, Push, Store, wholes};
use crate::call::CallOptions;
use crate::error::{Error, ErrorCode, Party, Result};
use crate::launcher;
use crate::tensor::{FeedView, TensorBuf};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tfc_abi::parts::Wire;

/// How long a server may be behind another before something is wrong.
const SOON: Duration = Duration::from_secs(1);

impl Server {
    /// Takes the body of a `Push` apart.
    fn gradients(&self, head: Head, mut body: &[u8]) -> Result<Push> {
        let l = &self.layout;
        let mut grads = vec![];
        let mut next = |k: u32, shape: Shape, rows: usize| {
            let whole = &l.grads[k as usize];
            Ok::<_, Error>(match l.sources[k as usize].rows {
                true => {
                    let rows = Rows::take(&mut body, whole, rows, rows::extent(whole).1)?;
                    Grad::Rows(rows, shape)
                }
                false => Grad::Whole(take(&mut body, &shape)?),
            })
        };
        for shard in l.on(self.index) {
            for &k in &l.groups[shard.group].grads {
                let shape = &l.grads[k as usize];
                grads.push(next(k, l.held(shard, shape), l.rows(shard, shape).len())?);
            }
        }
        let mut scalars = vec![];
        if self.index == 0 {
            for &k in &l.home_grads {
                let shape = &l.grads[k as usize];
                grads.push(next(k, shape.clone(), rows::extent(shape).0)?);
            }
            for _ in &l.scalars {
                scalars.push(f64::from_bits(number(&mut body)?));
            }
        }
        let mut crosses = vec![];
        for &dtype in &l.crosses {
            let rank = usize::try_from(number(&mut body)?).unwrap_or(usize::MAX);
            if rank > 32 {
                return Err(misfit("a tensor of too many axes"));
            }
            let mut sizes = vec![];
            for _ in 0..rank {
                sizes.push(usize::try_from(number(&mut body)?).unwrap_or(usize::MAX));
            }
            crosses.push(take(&mut body, &Shape { dtype, sizes })?);
        }
        if !body.is_empty() || !(0.0..=1.0).contains(&head.share) {
            return Err(misfit("these are not the gradients of this server"));
        }
        let (step, share) = (head.step, head.share);
        Ok(Push { step, share, grads, crosses, scalars, parts: vec![], shared: None })
    }

    pub(super) fn push(&self, rank: usize, head: Head, body: &[u8]) -> Result<Answer> {
        let push = self.gradients(head, body)?;
        let deadline = Instant::now() + self.timeout;
        let mut store = self.lock();
        if let Some(answer) = stale(&store, head) {
            return Ok(answer);
        }
        store.ended.remove(&rank);
        let flags = self.flags(&store);
        match self.rule {
            Rule::Apart { staleness } => {
                if store.progress.get(&rank).is_some_and(|next| head.step < *next) {
                    return Ok((
                        Head { flags, ..Head::new(Message::Late, store.age, head.step) },
                        vec![],
                    ));
                }
                // There have been as many updates, at least.
                if head.step > store.step {
                    return Ok(rolled(&store));
                }
                while let Some(slow) = staleness.and_then(|n| behind(&store, head.step, n)) {
                    store = self.wait(store, deadline, &[slow], head.step)?;
                    if let Some(answer) = stale(&store, head) {
                        return Ok(answer);
                    }
                }
                let mut push = push;
                push.parts = self.summaries(&store, &push.grads, &push.crosses, &push.scalars)?;
                let out = push.parts.clone();
                store.pushes.insert(rank, push);
                Ok((Head { flags, ..Head::new(Message::Ok, store.age, head.step) }, out))
            }
            Rule::Together { need } => {
                // Another server has done this one's next step already, and this one will
                // soon: whoever does it is on the way. If not, it is gone, and this
                // worker has it finished when it begins anew.
                let soon = Instant::now() + SOON;
                while store.step.checked_add(1) == Some(head.step) {
                    let left = soon.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(rolled(&store));
                    }
                    let waited = self.changed.wait_timeout(store, left);
                    store = waited.unwrap_or_else(PoisonError::into_inner).0;
                    if let Some(answer) = stale(&store, head) {
                        return Ok(answer);
                    }
                }
                // It knows of steps that were lost with what this server had.
                if head.step > store.step {
                    return Ok(rolled(&store));
                }
                if head.step == store.step && store.combined.is_none() {
                    store.pushes.insert(rank, push);
                    if store.pushes.len() >= need {
                        let combined = self.combine(&mut store)?;
                        // All workers of a step hear the same.
                        let flags = self.flags(&store);
                        store.answered = Some((head.step, flags, combined.parts.clone()));
                        store.combined = Some(combined);
                        self.changed.notify_all();
                    }
                } else if !store.pushes.contains_key(&rank) || head.step < store.step {
                    *store.dropped.entry(rank).or_default() += 1;
                }
                loop {
                    if let Some(answer) = stale(&store, head) {
                        return Ok(answer);
                    }
                    let left = self.workers - store.ended.len().min(self.workers);
                    let alone = store.stop && left < need;
                    let flags = self.flags(&store);
                    match &store.answered {
                        Some((step, flags, parts)) if *step == head.step => {
                            let answer = Head::new(Message::Ok, store.age, head.step);
                            return Ok((Head { flags: *flags, ..answer }, parts.clone()));
                        }
                        // The others are done with the job, too.
                        _ if store.step > head.step || alone => {
                            let answer = Head::new(Message::Late, store.age, store.step);
                            return Ok((Head { flags, ..answer }, vec![]));
                        }
                        _ => {}
                    }
                    let missing: Vec<usize> =
                        (0..self.workers).filter(|r| !store.pushes.contains_key(r)).collect();
                    store = self.wait(store, deadline, &missing, head.step)?;
                }
            }
        }
    }

    /// Waits until something changes; an error when it is too late, that says who is
    /// waited for and for what.
    pub(super) fn wait<'a>(
        &self,
        store: MutexGuard<'a, Store>,
        deadline: Instant,
        missing: &[usize],
        step: u64,
    ) -> Result<MutexGuard<'a, Store>> {
        let left = deadline.saturating_duration_since(Instant::now());
        if !left.is_zero() {
            let waited = self.changed.wait_timeout(store, left);
            return Ok(waited.unwrap_or_else(PoisonError::into_inner).0);
        }
        let names: Vec<String> = missing.iter().map(|r| format!("worker {r}")).collect();
        missing.iter().for_each(|r| launcher::accuse(Party::Worker(*r)));
        let here = missing.iter().filter(|r| store.present.contains_key(r)).count();
        let state = if here == missing.len() { "is there, but slow" } else { "is not there" };
        let mut vars: Vec<&str> = vec![];
        let learned = |v: u32| self.layout.read.contains(&v) || self.layout.by_rows(v);
        for (v, _) in self.layout.vars_on(self.index, true).into_iter().filter(|(v, _)| learned(*v))
        {
            vars.extend(self.names.get(v as usize).map(String::as_str));
        }
        let e = Error::peer(
            ErrorCode::PEER_LATE,
            format!("{} did not send gradients in time ({state})", names.join(", ")),
        )
        .note(format!("of {}, for step {step}", crate::error::list(vars)))
        .help("if it is only slow, give it longer with `--peer-timeout`");
        Err(match self.layout.place.is_empty() {
            true => e,
            false => e.note(format!("at {}", self.layout.place)),
        })
    }

    /// The mean of what the workers have sent.
    fn combine(&self, store: &mut Store) -> Result<Combined> {
        let total: f64 = store.pushes.values().map(|p| p.share).sum();
        // All of them make one, but for rounding.
        let by = if store.pushes.len() == self.workers || total <= 0.0 { 1.0 } else { total };
        let mut pushes = store.pushes.values_mut();
        let Some(first) = pushes.next() else { return Err(misfit("there are no gradients")) };
        let mut grads = std::mem::take(&mut first.grads);
        let crosses = std::mem::take(&mut first.crosses);
        let mut scalars: Vec<f64> = first.scalars.iter().map(|x| x * first.share / by).collect();
        for g in &mut grads {
            g.scale(first.share / by);
        }
        for push in pushes {
            for (sum, g) in grads.iter_mut().zip(&mut push.grads) {
                g.scale(push.share / by);
                sum.add(g);
            }
            for (sum, x) in scalars.iter_mut().zip(&push.scalars) {
                *sum += x * push.share / by;
            }
            push.grads = vec![];
        }
        let parts = self.summaries(store, &grads, &crosses, &scalars)?;
        Ok(Combined { grads, crosses, parts })
    }

    /// What the groups here are summed up to, and the scalars behind that.
    fn summaries(
        &self,
        store: &Store,
        grads: &[Grad],
        crosses: &[TensorBuf],
        scalars: &[f64],
    ) -> Result<Vec<u8>> {
        let mut out = vec![];
        let mut at = 0;
        for (shard, vars) in self.layout.on(self.index).zip(&store.vars.shards) {
            let group = &self.layout.groups[shard.group];
            let own = &grads[at..at + group.grads.len()];
            at += group.grads.len();
            let Some(run) = &group.summary else { continue };
            let own = wholes(own)?;
            let results = self.call(run, false, &|wire| match wire {
                Wire::Grad(k) => find(&group.grads, k, &own),
                Wire::Var(v) => find(&group.vars, v, vars),
                Wire::Cross(k) => crosses.get(k as usize),
                _ => None,
            })?;
            results.iter().for_each(|t| out.extend_from_slice(t.bytes()));
        }
        out.extend(scalars.iter().flat_map(|x| x.to_le_bytes()));
        Ok(out)
    }

    /// Runs a part; `flat` gives it tensors as rows of elements.
    fn call<'a>(
        &self,
        run: &Run,
        flat: bool,
        get: &dyn Fn(Wire) -> Option<&'a TensorBuf>,
    ) -> Result<Vec<TensorBuf>> {
        let values: Option<Vec<&TensorBuf>> = run.params.iter().map(|w| get(*w)).collect();
        let values = values.ok_or_else(|| misfit("the update needs what nobody has"))?;
        let rows: Vec<[usize; 1]> = values.iter().map(|t| [t.len()]).collect();
        let feeds: Vec<FeedView<'_>> = values
            .iter()
            .zip(&rows)
            .map(|(t, row)| match flat && !t.shape.is_empty() {
                true => FeedView { shape: row, ..t.view() },
                false => t.view(),
            })
            .collect();
        let mut options = CallOptions::new();
        if let Some(profile) = &self.profile {
            options = options.profile(profile);
        }
        self.model.call_with(run.entry, &feeds, &options)
    }

    /// What all groups need of each other.
    pub(super) fn shared(&self, rank: usize, head: Head, mut body: &[u8]) -> Result<Answer> {
        let mut parts = BTreeMap::new();
        if !body.is_empty() {
            for (&k, shape) in &self.layout.parts {
                parts.insert(k, take(&mut body, shape)?);
            }
        }
        let apart = matches!(self.rule, Rule::Apart { .. });
        // Where workers step together, nothing changes before `Apply`.
        let mut store = match apart {
            true => self.admitted(self.lock(), rank, head.step),
            false => self.lock(),
        };
        if let Some(answer) = stale(&store, head) {
            return Ok(answer);
        }
        let ok = Head::new(Message::Ok, store.age, head.step);
        let known = match (&store.shared, apart) {
            (Some((step, bytes, _)), false) if *step == head.step => Some(bytes.clone()),
            (_, true) => store.pushes.get(&rank).and_then(|p| p.shared.clone()),
            _ => None,
        };
        if let Some(bytes) = known {
            return Ok((ok, bytes));
        }
        let Some(run) = self.layout.shared.as_ref().filter(|_| self.index == 0) else {
            return Ok((ok, vec![]));
        };
        let (grads, crosses) = match (&store.combined, store.pushes.get(&rank)) {
            (Some(c), _) if !apart && store.step == head.step => (&c.grads, &c.crosses),
            (_, Some(p)) if apart && p.step == head.step => (&p.grads, &p.crosses),
            _ => return Ok((Head::new(Message::Late, store.age, store.step), vec![])),
        };
        let own = wholes(&grads[grads.len() - self.layout.home_grads.len()..])?;
        let results = self.call(run, false, &|wire| match wire {
            Wire::Grad(k) => find(&self.layout.home_grads, k, &own),
            Wire::Var(v) => find(&self.layout.home_vars, v, &store.vars.home),
            Wire::Cross(k) => crosses.get(k as usize),
            Wire::Part(k) => parts.get(&k),
            _ => None,
        })?;
        let mut home = store.vars.home.clone();
        let mut values: BTreeMap<u32, TensorBuf> = BTreeMap::new();
        for (wire, value) in run.results.iter().zip(results) {
            match wire {
                Wire::Var(v) => {
                    if let Some(i) = self.layout.home_vars.iter().position(|h| h == v) {
                        home[i] = Arc::new(value);
                    }
                }
                Wire::Shared(k) => drop(values.insert(*k, value)),
                _ => {}
            }
        }
        let bytes: Vec<u8> = values.values().flat_map(|t| t.bytes()).copied().collect();
        if apart {
            store.vars.home = home;
            store.begun.insert(rank, head.step.saturating_add(1));
            if let Some(p) = store.pushes.get_mut(&rank) {
                p.shared = Some(bytes.clone());
            }
        } else {
            store.shared = Some((head.step, bytes.clone(), home));
        }
        Ok((ok, bytes))
    }

    /// What becomes of the variables of a group, or of some rows of them.
    fn updated<'a>(
        &self,
        group: &ServedGroup,
        vars: &[Arc<TensorBuf>],
        grads: &'a [Grad],
        crosses: &[TensorBuf],
        shareds: &BTreeMap<u32, TensorBuf>,
    ) -> Result<Fresh<'a>> {
        let Some(run) = &group.update else { return Ok(Fresh { rows: None, values: vec![] }) };
        let rows = match grads {
            [Grad::Rows(rows, _)] if group.by_rows => Some(rows),
            _ => None,
        };
        let (own, picked) = match rows {
            Some(rows) => {
                let pick = |t: &Arc<TensorBuf>| match t.shape.is_empty() {
                    true => Ok(t.clone()),
                    false => rows.pick(t).map(Arc::new),
                };
                let vars = vars.iter().map(pick).collect::<Result<Vec<_>>>()?;
                (vec![Cow::Owned(rows.elements()?)], Some(vars))
            }
            None => (wholes(grads)?, None),
        };
        let vars = picked.as_deref().unwrap_or(vars);
        let results = self.call(run, group.flat, &|wire| match wire {
            Wire::Grad(k) | Wire::Rows(k) => find(&group.grads, k, &own),
            Wire::Var(v) => find(&group.vars, v, vars),
            Wire::Cross(k) => crosses.get(k as usize),
            Wire::Shared(k) => shareds.get(&k),
            Wire::Part(_) | Wire::Ids(_) => None,
        })?;
        Ok(Fresh { rows, values: run.results.iter().copied().zip(results).collect() })
    }

    pub(super) fn apply(&self, rank: usize, head: Head, mut body: &[u8]) -> Result<Answer> {
        let mut shareds = BTreeMap::new();
        for (&k, shape) in &self.layout.shareds {
            shareds.insert(k, take(&mut body, shape)?);
        }
        let mut guard = self.admitted(self.lock(), rank, head.step);
        let store = &mut *guard;
        if let Some(answer) = stale(store, head) {
            return Ok(answer);
        }
        let apart = matches!(self.rule, Rule::Apart { .. });
        let ready = match apart {
            true => store.pushes.get(&rank).is_some_and(|p| p.step == head.step),
            false => store.step == head.step && store.combined.is_some(),
        };
        if ready {
            let (grads, crosses) = match (&store.combined, store.pushes.get(&rank)) {
                (Some(c), _) if !apart => (&c.grads, &c.crosses),
                (_, Some(p)) => (&p.grads, &p.crosses),
                _ => return Err(misfit("there are no gradients to apply")),
            };
            let mut fresh = vec![];
            let mut at = 0;
            for (shard, vars) in self.layout.on(self.index).zip(&store.vars.shards) {
                let group = &self.layout.groups[shard.group];
                let own = &grads[at..at + group.grads.len()];
                at += group.grads.len();
                fresh.push(self.updated(group, vars, own, crosses, &shareds)?);
            }
            // All of it has worked; what is stored has the size of what was there.
            for ((shard, vars), new) in
                self.layout.on(self.index).zip(&mut store.vars.shards).zip(fresh)
            {
                let group = &self.layout.groups[shard.group];
                for (wire, value) in new.values {
                    let at = group.vars.iter().position(|v| wire == Wire::Var(*v));
                    let Some(place) = at.and_then(|i| vars.get_mut(i)) else { continue };
                    match new.rows.filter(|_| !place.shape.is_empty()) {
                        Some(rows) => rows.with(&value).put(Arc::make_mut(place))?,
                        None => *place = Arc::new(value.reshaped(&place.shape)?),
                    }
                }
            }
            match apart {
                true => {
                    drop(store.pushes.remove(&rank));
                    store.progress.insert(rank, head.step.saturating_add(1));
                    store.begun.insert(rank, head.step.saturating_add(1));
                    let age = store.step - store.read.get(&rank).copied().unwrap_or(store.step);
                    store.stale =
                        [store.stale[0] + age, store.stale[1].max(age), store.stale[2] + 1];
                }
                false => {
                    if let Some((step, _, home)) = &mut store.shared
                        && *step == head.step
                    {
                        store.vars.home = std::mem::take(home);
                    }
                    store.pushes.clear();
                    store.combined = None;
                }
            }
            store.step = store.step.saturating_add(1);
            self.changed.notify_all();
        }
        store.read.insert(rank, store.step);
        let next = if apart { head.step.saturating_add(1) } else { store.step };
        let answer = Head { flags: self.flags(store), ..Head::new(Message::Ok, store.age, next) };
        Ok((answer, self.variables(store)))
    }
}

/// A worker that is more than `most` steps behind this one.
fn behind(store: &Store, step: u64, most: u64) -> Option<usize> {
    let working = store
        .progress
        .iter()
        .filter(|(r, _)| store.present.contains_key(r) && !store.ended.contains(r));
    let slowest = working.min_by_key(|(_, next)| **next)?;
    (slowest.1.saturating_add(most) < step).then_some(*slowest.0)
}
