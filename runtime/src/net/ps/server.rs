//! A parameter server: it keeps some of the variables, and does to them what the graph
//! says is to be done with gradients.
//!
//! A step is three questions of each worker. `Push` brings gradients; the answer comes
//! when those of enough workers are there, and is what the server's groups are summed
//! up to. `Shared`, to the first server alone, makes of all sums what every group needs.
//! `Apply` runs the update and is answered with the new variables. In a synchronous
//! mode a step is combined and applied once, whoever asks first, so that it does not
//! matter which worker dies when. In the asynchronous one every worker's gradients are
//! a step of their own.
//!
//! Invariants
//! - Gradients of one worker and step are used once at most, and only with the
//!   variables of the age they were computed with.
//! - Sums are formed in the order of the ranks.

use super::super::collective::{self, Reduce};
use super::super::job::Job;
use super::super::mesh::{self, Door};
use super::super::tls::Tls;
use super::super::{Moment, hpack};
use super::channel::{ALL, BROKEN, Channel, HEAD, Head, Message, RELEASED, STOP};
use super::layout::{Layout, Run, ServedGroup, Shape};
use super::rows::{self, Rows};
use crate::error::{Error, ErrorCode, Result};
use crate::hash::hex;
use crate::model::Model;
use crate::tensor::{FeedView, TensorBuf};
use std::borrow::{Borrow, Cow};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tfc_abi::parts::Wire;

pub(super) const SERVE: &str = "/tfc.Cluster/Serve";
/// Bytes that values other than gradients may have in a message.
pub(super) const CROSS: usize = 64 << 20;
/// As good as no deadline: a worker says something when it has something to say.
const LONG: Duration = Duration::from_secs(365 * 24 * 3600);

/// When gradients are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// When those of so many workers are there; later ones are dropped.
    Together { need: usize },
    /// As they come, unless the slowest worker is more than so many steps behind.
    Apart { staleness: Option<u64> },
}

/// A gradient, or what a shard has of it.
enum Grad {
    Whole(TensorBuf),
    Rows(Rows, Shape),
}

impl Grad {
    fn scale(&mut self, by: f64) {
        match self {
            Grad::Whole(t) => {
                let dtype = t.dtype;
                collective::scale(t.bytes_mut(), dtype, by);
            }
            Grad::Rows(rows, _) => rows.scale(by),
        }
    }

    fn add(&mut self, other: &Grad) {
        match (self, other) {
            (Grad::Whole(sum), Grad::Whole(g)) => {
                collective::combine(sum.bytes_mut(), g.bytes(), g.dtype, Reduce::Sum);
            }
            (Grad::Rows(sum, _), Grad::Rows(g, _)) => *sum = sum.clone().merge(g),
            _ => {}
        }
    }

    fn whole(&self) -> Result<Cow<'_, TensorBuf>> {
        Ok(match self {
            Grad::Whole(t) => Cow::Borrowed(t),
            Grad::Rows(rows, shape) => Cow::Owned(rows.whole(shape)?),
        })
    }
}

/// All of some gradients, for a part that takes them so.
fn wholes(grads: &[Grad]) -> Result<Vec<Cow<'_, TensorBuf>>> {
    grads.iter().map(Grad::whole).collect()
}

/// What an update made of a shard's variables.
struct Fresh<'a> {
    /// Of these rows alone.
    rows: Option<&'a Rows>,
    values: Vec<(Wire, TensorBuf)>,
}

struct Push {
    step: u64,
    share: f64,
    grads: Vec<Grad>,
    crosses: Vec<TensorBuf>,
    scalars: Vec<f64>,
    /// What became of its sums.
    parts: Vec<u8>,
    shared: Option<Vec<u8>>,
}

/// Gradients as updates take them.
struct Combined {
    grads: Vec<Grad>,
    crosses: Vec<TensorBuf>,
    /// The answer to `Push`.
    parts: Vec<u8>,
}

#[derive(Default)]
struct Store {
    /// Zero until there are variables.
    age: u64,
    /// Updates so far.
    step: u64,
    /// By shard of this server, then by variable of its group.
    shards: Vec<Vec<TensorBuf>>,
    home: Vec<TensorBuf>,
    pushes: BTreeMap<usize, Push>,
    combined: Option<Combined>,
    /// The last step's answer to `Push` and, with the values for `home`, to `Shared`.
    answered: Option<(u64, u32, Vec<u8>)>,
    shared: Option<(u64, Vec<u8>, Vec<TensorBuf>)>,
    /// By worker: its next step, connections, and the step it has read.
    progress: BTreeMap<usize, u64>,
    present: BTreeMap<usize, usize>,
    read: BTreeMap<usize, u64>,
    ended: BTreeSet<usize>,
    released: bool,
    broken: u64,
    stop: bool,
    over: bool,
    dropped: BTreeMap<usize, u64>,
    /// Updates between a worker's reading and its writing: sum, most, how often.
    stale: [u64; 3],
}

pub struct Server {
    model: Arc<Model>,
    layout: Layout,
    index: usize,
    workers: usize,
    rule: Rule,
    timeout: Duration,
    names: Vec<String>,
    entry: String,
    store: Mutex<Store>,
    changed: Condvar,
}

/// An answer: its head and body.
type Answer = (Head, Vec<u8>);

impl Server {
    /// Server number `job.rank` of a job, for an entry.
    pub fn new(model: Arc<Model>, entry: usize, job: &Job, rule: Rule) -> Result<Server> {
        let layout = Layout::new(model.plan(), entry, job.servers.len())?;
        let name = model.plan().entries.get(entry).map_or(String::new(), |e| e.name.clone());
        let names = model.plan().vars.iter().map(|v| v.name.clone()).collect();
        Ok(Server {
            model,
            layout,
            index: job.rank,
            workers: job.size,
            rule,
            timeout: job.timeout,
            names,
            entry: name,
            store: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Serves until the chief says that the job is over, or `stop` says so and no
    /// worker is there any more.
    pub fn serve(self: Arc<Self>, job: &Job, stop: &dyn Fn() -> bool) -> Result<()> {
        mesh::outlive_peers();
        let graph = hex(&self.model.plan().graph_hash);
        let entry = self.entry.clone();
        let listener = job.server_listener()?;
        let tls = job.tls.as_ref().map(Tls::open).transpose()?;
        let door = Door::open(&listener, tls, Instant::now() + LONG)
            .map_err(|e| Error::io(ErrorCode::BAD_JOB, crate::io::io_reason(&e)))?;
        let run = RandomState::new().hash_one(std::process::id()) >> 1;
        let leaves = |store: &Store| store.over || stop() && store.present.is_empty();
        while !leaves(&self.lock()) {
            let Some(mut call) = door.within(Duration::from_millis(50)) else { continue };
            let text = |name: &str| hpack::get(&call.headers, name).unwrap_or("").to_owned();
            let rank = text("tfc-rank").parse::<usize>().ok();
            let why = if text(":path") != SERVE {
                Some("there is no such method".to_owned())
            } else if text("tfc-token") != job.token {
                Some("the job's token is another one".to_owned())
            } else if text("tfc-graph") != graph {
                let other = text("tfc-graph");
                Some(format!("it runs another program: graph {other}, the job's is {graph}"))
            } else if text("tfc-servers") != job.servers.len().to_string() {
                Some(format!("the job has {} parameter servers", job.servers.len()))
            } else {
                rank.filter(|r| *r >= self.workers).map(|r| format!("there is no worker {r}"))
            };
            if let Some(why) = why {
                call.refuse(&why);
                continue;
            }
            let linked = call
                .answer(&[("tfc-job", &run.to_string()), ("tfc-entry", &entry)])
                .and_then(|()| call.into_link(rank.unwrap_or(self.workers), run));
            let Ok(link) = linked else { continue };
            let server = self.clone();
            let talk = move || server.talk(rank, Channel::new(link));
            // Without a thread the worker tries again.
            let _ = std::thread::Builder::new().name("tfc-worker".into()).spawn(talk);
        }
        // Whoever has asked gets an answer.
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one connection until it ends.
    fn talk(&self, rank: Option<usize>, mut channel: Channel) {
        if let Some(rank) = rank {
            *self.lock().present.entry(rank).or_default() += 1;
        }
        let (mut body, place) = (vec![], self.layout.place.as_str());
        let limit = self.limit();
        loop {
            let moment = |wait| Moment {
                sequence: 0,
                deadline: Instant::now() + wait,
                what: "a step",
                place,
            };
            let Ok(head) = channel.receive(&mut body, limit, &moment(LONG)) else { break };
            let (answer, out) = match self.answer(rank, head, &body) {
                Ok(answer) => answer,
                Err(e) => (Head::new(Message::Failed, 0, 0), cut(e.to_string())),
            };
            if channel.send(answer, &out, &moment(self.timeout)).is_err() {
                break;
            }
        }
        if let Some(rank) = rank {
            let mut store = self.lock();
            if let Some(n) = store.present.get_mut(&rank) {
                *n = n.saturating_sub(1);
            }
            store.present.retain(|_, n| *n > 0);
        }
        self.changed.notify_all();
    }

    /// The largest message that means anything here.
    fn limit(&self) -> usize {
        let l = &self.layout;
        let grads = l.grads_to(self.index).into_iter();
        let numbers = |rows: Option<Range<usize>>| rows.map_or(0, |r| 8 + 8 * r.len());
        let grads: usize = grads.map(|(_, bytes, rows)| bytes.len() + numbers(rows)).sum();
        let vars: usize = l.vars_on(self.index, true).iter().map(|(_, r)| r.len()).sum();
        let small: usize = l.parts.values().chain(l.shareds.values()).map(Shape::bytes).sum();
        HEAD + grads.max(vars) + small + l.scalars.len() * 8 + CROSS
    }

    fn answer(&self, rank: Option<usize>, head: Head, body: &[u8]) -> Result<Answer> {
        let worker = || rank.ok_or_else(|| misfit("only workers may ask for that"));
        match head.kind {
            Message::Status => Ok(self.status(rank)),
            Message::Pull => {
                let store = self.lock();
                let answer = Head::new(Message::Ok, store.age, store.step);
                Ok((answer, self.variables(&store, head.flags & ALL != 0)))
            }
            Message::Rows => self.rows(head, body),
            Message::Init => {
                worker()?;
                self.init(head, body)
            }
            Message::Push => self.push(worker()?, head, body),
            Message::Shared => self.shared(worker()?, head, body),
            Message::Apply => self.apply(worker()?, head, body),
            Message::Done
            | Message::Release
            | Message::Stop
            | Message::Broken
            | Message::Shutdown => {
                let rank = worker()?;
                let mut store = self.lock();
                match head.kind {
                    Message::Done => drop(store.ended.insert(rank)),
                    Message::Release => store.released = true,
                    Message::Stop => store.stop = true,
                    Message::Broken => store.broken = store.broken.max(head.age),
                    _ => store.over = true,
                }
                let answer = Head::new(Message::Ok, store.age, store.step);
                drop(store);
                self.changed.notify_all();
                Ok((answer, vec![]))
            }
            _ => Err(misfit("that is an answer, not a question")),
        }
    }

    fn flags(&self, store: &Store) -> u32 {
        if store.stop { STOP } else { 0 }
    }

    /// Where the job is, and what was counted.
    fn status(&self, rank: Option<usize>) -> Answer {
        let store = self.lock();
        let step = match (self.rule, rank) {
            (Rule::Apart { .. }, Some(rank)) => store.progress.get(&rank).copied().unwrap_or(0),
            _ => store.step,
        };
        let mut counts: Vec<u64> =
            (0..self.workers).map(|r| store.dropped.get(&r).copied().unwrap_or(0)).collect();
        counts.extend(store.stale);
        counts.extend((0..self.workers).map(|r| u64::from(store.ended.contains(&r))));
        counts.extend((0..self.workers).map(|r| u64::from(store.present.contains_key(&r))));
        let body = counts.iter().flat_map(|n| n.to_le_bytes()).collect();
        let broken = if store.age > 0 && store.age <= store.broken { BROKEN } else { 0 };
        let released = if store.released { RELEASED } else { 0 };
        let flags = self.flags(&store) | broken | released;
        (Head { flags, ..Head::new(Message::Ok, store.age, step) }, body)
    }

    fn variables(&self, store: &Store, all: bool) -> Vec<u8> {
        let mut out = vec![];
        let wanted = |v: &u32| all || self.layout.read.contains(v);
        for (shard, vars) in self.layout.on(self.index).zip(&store.shards) {
            for (v, value) in self.layout.groups[shard.group].vars.iter().zip(vars) {
                if wanted(v) {
                    out.extend_from_slice(value.bytes());
                }
            }
        }
        if self.index == 0 {
            for (v, value) in self.layout.home_vars.iter().zip(&store.home) {
                if wanted(v) {
                    out.extend_from_slice(value.bytes());
                }
            }
        }
        out
    }

    /// The rows of tables that a worker asks for.
    fn rows(&self, head: Head, mut body: &[u8]) -> Result<Answer> {
        let tables = self.layout.tables_on(self.index);
        let mut wanted = vec![];
        for (_, _, rows) in &tables {
            wanted.push(rows::numbers(&mut body, rows.len())?);
        }
        if !body.is_empty() {
            return Err(misfit("these are not the tables of this server"));
        }
        let store = self.lock();
        if let Some(answer) = stale(&store, head) {
            return Ok(answer);
        }
        let mut out = vec![];
        for ((var, shard, _), ids) in tables.iter().zip(&wanted) {
            let held = self.layout.on(self.index).nth(*shard).zip(store.shards.get(*shard));
            let value =
                held.and_then(|(s, vars)| find(&self.layout.groups[s.group].vars, *var, vars));
            let value = value.ok_or_else(|| misfit("there is no such table"))?;
            let (_, width) = rows::extent(self.layout.var(*var));
            out.extend(rows::pick(value, ids, width)?);
        }
        Ok((Head::new(Message::Ok, store.age, store.step), out))
    }

    /// All variables are those of the chief.
    fn init(&self, head: Head, mut body: &[u8]) -> Result<Answer> {
        let mut shards = vec![];
        for shard in self.layout.on(self.index) {
            let vars = &self.layout.groups[shard.group].vars;
            let held = vars.iter().map(|v| self.layout.held(shard, self.layout.var(*v)));
            shards.push(held.map(|s| take(&mut body, &s)).collect::<Result<Vec<_>>>()?);
        }
        let mut home = vec![];
        if self.index == 0 {
            for v in &self.layout.home_vars {
                home.push(take(&mut body, self.layout.var(*v))?);
            }
        }
        if !body.is_empty() || head.age == 0 {
            return Err(misfit("these are not the variables of this server"));
        }
        let mut store = self.lock();
        if head.age > store.age {
            let progress = (0..self.workers).map(|r| (r, head.step)).collect();
            let (present, dropped) =
                (std::mem::take(&mut store.present), std::mem::take(&mut store.dropped));
            let broken = store.broken;
            *store = Store {
                age: head.age,
                step: head.step,
                shards,
                home,
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

    fn push(&self, rank: usize, head: Head, body: &[u8]) -> Result<Answer> {
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
                if head.step > store.step {
                    return Err(misfit("the gradients are of a step that is not yet"));
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
    fn wait<'a>(
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
        for (shard, vars) in self.layout.on(self.index).zip(&store.shards) {
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
        self.model.call(run.entry, &feeds)
    }

    /// What all groups need of each other.
    fn shared(&self, rank: usize, head: Head, mut body: &[u8]) -> Result<Answer> {
        let mut parts = BTreeMap::new();
        if !body.is_empty() {
            for (&k, shape) in &self.layout.parts {
                parts.insert(k, take(&mut body, shape)?);
            }
        }
        let mut store = self.lock();
        if let Some(answer) = stale(&store, head) {
            return Ok(answer);
        }
        let ok = Head::new(Message::Ok, store.age, head.step);
        let apart = matches!(self.rule, Rule::Apart { .. });
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
            Wire::Var(v) => find(&self.layout.home_vars, v, &store.home),
            Wire::Cross(k) => crosses.get(k as usize),
            Wire::Part(k) => parts.get(&k),
            _ => None,
        })?;
        let mut home = store.home.clone();
        let mut values: BTreeMap<u32, TensorBuf> = BTreeMap::new();
        for (wire, value) in run.results.iter().zip(results) {
            match wire {
                Wire::Var(v) => {
                    if let Some(i) = self.layout.home_vars.iter().position(|h| h == v) {
                        home[i] = value;
                    }
                }
                Wire::Shared(k) => drop(values.insert(*k, value)),
                _ => {}
            }
        }
        let bytes: Vec<u8> = values.values().flat_map(|t| t.bytes()).copied().collect();
        if apart {
            store.home = home;
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
        vars: &[TensorBuf],
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
                let pick = |t: &TensorBuf| match t.shape.is_empty() {
                    true => Ok(t.clone()),
                    false => rows.pick(t),
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

    fn apply(&self, rank: usize, head: Head, mut body: &[u8]) -> Result<Answer> {
        let mut shareds = BTreeMap::new();
        for (&k, shape) in &self.layout.shareds {
            shareds.insert(k, take(&mut body, shape)?);
        }
        let mut guard = self.lock();
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
            for (shard, vars) in self.layout.on(self.index).zip(&store.shards) {
                let group = &self.layout.groups[shard.group];
                let own = &grads[at..at + group.grads.len()];
                at += group.grads.len();
                fresh.push(self.updated(group, vars, own, crosses, &shareds)?);
            }
            // All of it has worked; what is stored has the size of what was there.
            for ((shard, vars), new) in self.layout.on(self.index).zip(&mut store.shards).zip(fresh)
            {
                let group = &self.layout.groups[shard.group];
                for (wire, value) in new.values {
                    let at = group.vars.iter().position(|v| wire == Wire::Var(*v));
                    let Some(place) = at.and_then(|i| vars.get_mut(i)) else { continue };
                    match new.rows.filter(|_| !place.shape.is_empty()) {
                        Some(rows) => rows.with(&value).put(place)?,
                        None => *place = value.reshaped(&place.shape)?,
                    }
                }
            }
            match apart {
                true => {
                    drop(store.pushes.remove(&rank));
                    store.progress.insert(rank, head.step + 1);
                    let age = store.step - store.read.get(&rank).copied().unwrap_or(store.step);
                    store.stale =
                        [store.stale[0] + age, store.stale[1].max(age), store.stale[2] + 1];
                }
                false => {
                    if let Some((step, _, home)) = &mut store.shared
                        && *step == head.step
                    {
                        store.home = std::mem::take(home);
                    }
                    store.pushes.clear();
                    store.combined = None;
                }
            }
            store.step += 1;
            self.changed.notify_all();
        }
        store.read.insert(rank, store.step);
        let next = if apart { head.step + 1 } else { store.step };
        let answer = Head { flags: self.flags(store), ..Head::new(Message::Ok, store.age, next) };
        Ok((answer, self.variables(store, false)))
    }
}

/// The answer to a question about variables of another age.
fn stale(store: &Store, head: Head) -> Option<Answer> {
    let other = store.age != head.age || store.age <= store.broken;
    other.then(|| (Head::new(Message::Rolled, store.age, store.step), vec![]))
}

/// A worker that is more than `most` steps behind this one.
fn behind(store: &Store, step: u64, most: u64) -> Option<usize> {
    let working = store
        .progress
        .iter()
        .filter(|(r, _)| store.present.contains_key(r) && !store.ended.contains(r));
    let slowest = working.min_by_key(|(_, next)| **next)?;
    (*slowest.1 + most < step).then_some(*slowest.0)
}

fn find<'a, T: Borrow<TensorBuf>>(
    numbers: &[u32],
    number: u32,
    values: &'a [T],
) -> Option<&'a TensorBuf> {
    values.get(numbers.iter().position(|n| *n == number)?).map(T::borrow)
}

/// The next tensor of a body.
pub(super) fn take(body: &mut &[u8], shape: &Shape) -> Result<TensorBuf> {
    let len = crate::tensor::byte_len(shape.dtype, &shape.sizes);
    let Some((bytes, rest)) = len.and_then(|n| body.split_at_checked(n)) else {
        return Err(misfit("a message is cut short"));
    };
    *body = rest;
    TensorBuf::from_bytes(shape.dtype, &shape.sizes, bytes)
        .ok_or_else(|| misfit("a tensor of the wrong size"))
}

pub(super) fn number(body: &mut &[u8]) -> Result<u64> {
    let Some((bytes, rest)) = body.split_at_checked(8) else {
        return Err(misfit("a message is cut short"));
    };
    *body = rest;
    let mut word = [0; 8];
    word.copy_from_slice(bytes);
    Ok(u64::from_le_bytes(word))
}

pub(super) fn misfit(why: &str) -> Error {
    Error::peer(ErrorCode::BAD_MESSAGE, format!("a message that does not fit: {why}"))
}

/// A reason as the body of an answer.
fn cut(text: String) -> Vec<u8> {
    text.chars().take(1000).collect::<String>().into_bytes()
}
