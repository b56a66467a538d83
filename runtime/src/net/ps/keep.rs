//! Where a server's variables come from, and who may look at all of them.
//!
//! To begin with, a server fills its variables by itself, with initial values or with
//! its rows of a checkpoint; or the chief puts them there, piece by piece. Nothing
//! counts until `Init`.
//!
//! Whoever wants the variables of all servers as they were at one moment *holds* them:
//! no server begins an update then. Updates that have begun on some server are told to
//! all (`Cut`), and finished there. What is saved after that is one set, although each
//! server writes its own file, and while it writes updates go on: they leave what is
//! being written alone.

use super::channel::{FIRST, Head, LET_GO, Message};
use super::client::AGES;
use super::layout::Shard;
use super::server::{Answer, Rule, Server, misfit, number, rolled, stale};
use super::store::{Hold, Store, Vars};
use crate::checkpoint::{self, DataFile, Fit, Piece};
use crate::error::{Error, ErrorCode, Result};
use crate::numerics;
use crate::tensor::{FeedView, TensorBuf};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Instant;

/// Bytes of a piece of a variable.
pub(super) const PIECE: usize = 4 << 20;

/// A variable that a server has: its number, its shard (none for what `shared` has), and
/// which bytes of it.
type Place<'a> = (u32, Option<&'a Shard>, Range<usize>);

impl Server {
    /// Its variables, in the order of [`Vars`].
    fn places(&self) -> Vec<Place<'_>> {
        let l = &self.layout;
        let mut out = vec![];
        for shard in l.on(self.index) {
            let vars = l.groups[shard.group].vars.iter();
            out.extend(vars.map(|&v| (v, Some(shard), l.range(shard, l.var(v)))));
        }
        if self.index == 0 {
            out.extend(l.home_vars.iter().map(|&v| (v, None, 0..l.var(v).bytes())));
        }
        out
    }

    /// Variables to begin with, all zero.
    fn zeros(&self) -> Result<Vars> {
        let l = &self.layout;
        let mut vars = Vars::default();
        for shard in l.on(self.index) {
            let held = l.groups[shard.group].vars.iter().map(|v| l.held(shard, l.var(*v)));
            let zeros = held.map(|s| TensorBuf::untouched(s.dtype, &s.sizes).map(Arc::new));
            vars.shards.push(zeros.collect::<Result<_>>()?);
        }
        if self.index == 0 {
            let home = l.home_vars.iter().map(|v| l.var(*v));
            let zeros = home.map(|s| TensorBuf::zeros(s.dtype, &s.sizes).map(Arc::new));
            vars.home = zeros.collect::<Result<_>>()?;
        }
        Ok(vars)
    }

    /// Begins to fill the variables: with their initial values, with those of a
    /// checkpoint, or with what will be put there.
    pub(super) fn fill(&self, head: Head, body: &[u8]) -> Result<Answer> {
        let mut vars = self.zeros()?;
        let name = std::str::from_utf8(body).map_err(|_| misfit("a name that is no text"))?;
        let mut fit = match name.is_empty() {
            true => None,
            false => Some(self.checkpoint(name)?),
        };
        if fit.is_some() || head.flags & FIRST != 0 {
            for (i, (v, _, range)) in self.places().into_iter().enumerate() {
                let Some(place) = vars.nth(i).map(Arc::make_mut) else { continue };
                let finite = match &mut fit {
                    Some(fit) => {
                        if !fit.read(v as usize, range.start, place.bytes_mut())? {
                            return Err(misfit("a variable that the checkpoint does not have"));
                        }
                        numerics::all_finite(place.dtype, place.bytes())
                    }
                    None => self.first(v, range, place)?,
                };
                if !finite {
                    vars.infinite.insert(v);
                }
            }
        }
        let mut store = self.lock();
        store.coming = Some((head.age, vars));
        Ok((Head::new(Message::Ok, store.age, store.step), vec![]))
    }

    /// A checkpoint of this server's directory.
    fn checkpoint(&self, name: &str) -> Result<Fit> {
        let dir = self.dir()?;
        if Path::new(name).file_name().is_none_or(|n| n != name) {
            return Err(misfit("a checkpoint that is not in the directory"));
        }
        let mine = self.places();
        let has = |v: usize| mine.iter().any(|(var, ..)| *var as usize == v);
        checkpoint::fit_exactly(self.model.plan(), &dir.join(name), has).map_err(|e| {
            e.note("every parameter server must see the directory of `--checkpoint-dir`")
        })
    }

    fn dir(&self) -> Result<&Path> {
        self.dir.as_deref().ok_or_else(|| {
            let text = "this parameter server was not told where checkpoints are";
            Error::usage(ErrorCode::BAD_JOB, text)
                .help("start all processes of a job with the same `--checkpoint-dir`")
        })
    }

    /// A variable's initial value; whether it is finite.
    fn first(&self, var: u32, range: Range<usize>, place: &mut TensorBuf) -> Result<bool> {
        let v = var as usize;
        let bare = self.model.is_bare();
        if bare && self.model.plan().vars[v].zero {
            return Ok(true);
        }
        if bare {
            self.model.start(v)?;
        }
        self.model.with_var(v, |bytes| match bytes.get(range) {
            Some(bytes) => place.bytes_mut().copy_from_slice(bytes),
            None => debug_assert!(false, "a variable is as large as its type"),
        })?;
        if bare {
            // Also what it was computed from.
            for other in 0..self.model.plan().vars.len() {
                self.model.forget(other)?;
            }
        }
        Ok(numerics::all_finite(place.dtype, place.bytes()))
    }

    /// A piece of a variable: its place among the server's, where it begins, its bytes.
    pub(super) fn put(&self, head: Head, mut body: &[u8]) -> Result<Answer> {
        let (at, from) = (number(&mut body)? as usize, number(&mut body)? as usize);
        let var = self.places().get(at).map(|(v, ..)| *v);
        let mut store = self.lock();
        let coming = store.coming.as_mut().filter(|(age, _)| *age == head.age);
        let Some((_, vars)) = coming else { return Ok(rolled(&store)) };
        let place = vars.nth(at).map(Arc::make_mut);
        let end = from.checked_add(body.len());
        let Some((place, end, var)) = place.zip(end).zip(var).map(|((p, e), v)| (p, e, v)) else {
            return Err(misfit("there is no such variable"));
        };
        let dtype = place.dtype;
        match place.bytes_mut().get_mut(from..end) {
            Some(to) => to.copy_from_slice(body),
            None => return Err(misfit("a piece that is not of its variable")),
        }
        if !numerics::all_finite(dtype, body) {
            vars.infinite.insert(var);
        }
        Ok((Head::new(Message::Ok, store.age, store.step), vec![]))
    }

    /// The variables are those that were filled.
    pub(super) fn init(&self, head: Head, own: &[u8]) -> Result<Answer> {
        if own.len() != if self.index == 0 { self.own_bytes } else { 0 } {
            return Err(misfit("these are not the workers' own variables"));
        }
        let mut store = self.lock();
        let made_up = store.age >= AGES && head.age != store.age && head.age > 0;
        if head.age > store.age || made_up {
            let coming = store.coming.take().filter(|(age, _)| *age == head.age);
            let Some((_, vars)) = coming else { return Ok(rolled(&store)) };
            let progress = (0..self.workers).map(|r| (r, head.step)).collect();
            let (present, dropped) =
                (std::mem::take(&mut store.present), std::mem::take(&mut store.dropped));
            let broken = if store.broken < head.age { store.broken } else { 0 };
            let traces = std::mem::take(&mut store.traces);
            let heard = std::mem::take(&mut store.heard);
            *store = Store {
                heard,
                traces,
                age: head.age,
                step: head.step,
                vars,
                own: own.to_vec(),
                progress,
                present,
                dropped,
                broken,
                ..Store::default()
            };
        }
        let answer = Head::new(Message::Ok, store.age, store.step);
        drop(store);
        self.changed.notify_all();
        Ok((answer, vec![]))
    }

    /// A piece of a variable that was looked at: its place among the server's, where it
    /// begins, how long it is.
    pub(super) fn get(&self, seen: &Vars, mut body: &[u8]) -> Result<Answer> {
        let (at, from) = (number(&mut body)? as usize, number(&mut body)? as usize);
        let len = number(&mut body)? as usize;
        let value = seen.all().nth(at);
        let end = from.checked_add(len).filter(|_| len <= PIECE);
        let bytes = value.zip(end).and_then(|(v, end)| v.bytes().get(from..end));
        let bytes = bytes.ok_or_else(|| misfit("a piece that is not there"))?;
        Ok((Head::new(Message::Ok, 0, 0), bytes.to_vec()))
    }

    /// Why some variable should not be saved.
    pub(super) fn unfit(&self, vars: &Vars) -> Result<()> {
        if self.model.allows_nan() {
            return Ok(());
        }
        let each = self.places().into_iter().zip(vars.all());
        let bad = each.into_iter().find_map(|((v, ..), value)| {
            let (shape, bytes) = (value.shape.clone(), value.bytes());
            let tensor = numerics::Tensor { dtype: value.dtype, shape, bytes };
            let name = self.names.get(v as usize).map_or("", String::as_str);
            numerics::unfit(name, &tensor, vars.infinite.contains(&v))
        });
        bad.map_or(Ok(()), Err)
    }

    /// How far updates have begun here: of each worker, or of all together.
    fn begun(&self, store: &Store) -> Vec<u64> {
        match self.rule {
            Rule::Together { .. } => vec![store.step],
            Rule::Apart { .. } => {
                let of = |map: &std::collections::BTreeMap<usize, u64>, r: usize| {
                    map.get(&r).copied().unwrap_or(0)
                };
                let each =
                    (0..self.workers).map(|r| of(&store.begun, r).max(of(&store.progress, r)));
                each.collect()
            }
        }
    }

    /// No update is begun from now on, until this connection lets go.
    pub(super) fn hold(&self, connection: u64, head: Head) -> Result<Answer> {
        let mut store = self.lock();
        if head.flags & LET_GO != 0 {
            store.holds.remove(&connection);
            self.changed.notify_all();
            return Ok((Head::new(Message::Ok, store.age, store.step), vec![]));
        }
        if let Some(answer) = stale(&store, head) {
            return Ok(answer);
        }
        let limits = self.begun(&store);
        let body = limits.iter().flat_map(|n| n.to_le_bytes()).collect();
        let until = Instant::now() + self.timeout;
        store.holds.insert(connection, Hold { limits, until });
        Ok((Head::new(Message::Ok, store.age, store.step), body))
    }

    /// What has begun on any server is to be finished here.
    pub(super) fn cut(&self, connection: u64, head: Head, mut body: &[u8]) -> Result<Answer> {
        let mut store = self.lock();
        if let Some(answer) = stale(&store, head) {
            return Ok(answer);
        }
        let Some(hold) = store.holds.get_mut(&connection) else { return Ok(rolled(&store)) };
        for limit in &mut hold.limits {
            *limit = (*limit).max(number(&mut body)?);
        }
        self.changed.notify_all();
        Ok((Head::new(Message::Ok, store.age, store.step), vec![]))
    }

    /// Waits until what has begun is finished, if this connection holds the variables.
    pub(super) fn settled<'a>(
        &self,
        connection: u64,
        head: Head,
        mut store: MutexGuard<'a, Store>,
    ) -> Result<MutexGuard<'a, Store>> {
        loop {
            let Some(hold) = store.holds.get(&connection) else { return Ok(store) };
            let missing: Vec<usize> = match self.rule {
                // Whoever works finishes the step.
                Rule::Together { .. } => {
                    let behind = hold.limits.first().is_some_and(|limit| store.step < *limit);
                    if behind { (0..self.workers).collect() } else { vec![] }
                }
                Rule::Apart { .. } => {
                    let behind = |r: &usize| {
                        store.present.contains_key(r)
                            && !store.ended.contains(r)
                            && store.progress.get(r) < hold.limits.get(*r)
                    };
                    (0..self.workers).filter(behind).collect()
                }
            };
            if missing.is_empty() || store.age != head.age {
                return Ok(store);
            }
            let until = hold.until;
            store = self.wait(store, until, &missing, head.step)?;
        }
    }

    /// Waits until a worker may change something; everybody may who is not held up.
    pub(super) fn admitted<'a>(
        &self,
        mut store: MutexGuard<'a, Store>,
        rank: usize,
        step: u64,
    ) -> MutexGuard<'a, Store> {
        loop {
            let now = Instant::now();
            store.holds.retain(|_, hold| hold.until > now);
            let own = match self.rule {
                Rule::Together { .. } => 0,
                Rule::Apart { .. } => rank,
            };
            let held = |h: &&Hold| h.limits.get(own).is_some_and(|limit| step >= *limit);
            let Some(until) = store.holds.values().filter(held).map(|h| h.until).max() else {
                return store;
            };
            let waited = self.changed.wait_timeout(store, until.saturating_duration_since(now));
            store = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes this server's file of a checkpoint; the answer is its name, length and hash.
    pub(super) fn save(&self, connection: u64, head: Head, body: &[u8]) -> Result<Answer> {
        let dir = self.dir()?;
        let word = std::str::from_utf8(body).ok();
        let word = word.filter(|w| w.len() <= 32 && w.bytes().all(|b| b.is_ascii_alphanumeric()));
        let word = word.ok_or_else(|| misfit("a word that is none"))?;
        let mut store = self.settled(connection, head, self.lock())?;
        if let Some(answer) = stale(&store, head) {
            return Ok(answer);
        }
        let vars = store.vars.clone();
        let answer = Head::new(Message::Ok, store.age, store.step);
        store.holds.remove(&connection);
        drop(store);
        self.changed.notify_all();
        self.unfit(&vars)?;
        let file = self.write(dir, word, head.step, &vars)?;
        let text = file.map(|f| format!("{}\n{}\n{}", f.file, f.bytes, f.hash));
        Ok((answer, text.unwrap_or_default().into_bytes()))
    }

    fn write(&self, dir: &Path, word: &str, step: u64, vars: &Vars) -> Result<Option<DataFile>> {
        let l = &self.layout;
        let mut shapes: Vec<Vec<usize>> = vec![];
        for (v, shard, _) in self.places() {
            let shape = l.var(v);
            let rows = shard.map(|s| l.rows(s, shape).len());
            let mut sizes = shape.sizes.clone();
            if let (Some(rows), Some(first)) = (rows, sizes.first_mut()) {
                *first = rows;
            }
            shapes.push(sizes);
        }
        let places = self.places();
        let held = places.iter().zip(&shapes).zip(vars.all());
        let pieces: Vec<Piece<'_>> = held
            // Several servers have a scalar of a group that is split; the first saves it.
            .filter(|(((v, shard, _), _), _)| shard.is_none_or(|s| l.saves(s, l.var(*v))))
            .map(|(((v, shard, _), shape), value)| {
                let whole = l.var(*v);
                let first = shard.map_or(0, |s| l.rows(s, whole).start);
                let total = whole.sizes.first().copied().unwrap_or(1);
                let part = shape.first().is_some_and(|rows| *rows < total);
                Piece {
                    name: self.names.get(*v as usize).map_or("", String::as_str),
                    view: FeedView { dtype: value.dtype, shape, data: value.bytes() },
                    part: part.then_some((first, total)),
                }
            })
            .collect();
        if pieces.is_empty() {
            return Ok(None);
        }
        let who = self.index.to_string();
        let name = checkpoint::file_name(step, Some((&who, word)));
        checkpoint::save_part(self.model.plan(), dir, &name, step, &pieces).map(Some)
    }
}

impl Vars {
    /// All of them: those of shards, then those that `shared` has.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<TensorBuf>> {
        self.shards.iter().flatten().chain(&self.home)
    }

    fn nth(&mut self, at: usize) -> Option<&mut Arc<TensorBuf>> {
        self.shards.iter_mut().flatten().chain(&mut self.home).nth(at)
    }
}
