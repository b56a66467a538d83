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

use super::super::clock::{self, Offset};
use super::super::door::Door;
use super::super::job::Job;
use super::super::mesh;
use super::super::tls::Tls;
use super::super::{Moment, alive, hpack};
use super::channel::{
    BROKEN, Channel, FAILED_DATA, FAILED_IO, HEAD, Head, KINDS, Message, RELEASED, STOP,
};
use super::client::positions_at;
use super::keep::PIECE;
use super::layout::{Layout, Shape};
use super::rows;
use super::store::{Store, Vars};
use crate::error::{Error, ErrorCode, ErrorKind, Result};
use crate::hash::hex;
use crate::model::Model;
use crate::profile::{self, Profile, Trace};
use crate::tensor::TensorBuf;
use std::borrow::Borrow;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(super) const SERVE: &str = "/tfc.Cluster/Serve";
/// Bytes that values other than gradients may have in a message.
pub(super) const CROSS: usize = 64 << 20;
/// How long a server stays for workers that may be about to call, and a multiple of it
/// for those that do not go.
const LINGER: Duration = Duration::from_secs(1);
/// As good as no deadline: a worker says something when it has something to say.
const LONG: Duration = Duration::from_secs(365 * 24 * 3600);

/// `Traces`: the server's own.
pub(super) const OWN_TRACE: u64 = u64::MAX;

/// When gradients are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// When those of so many workers are there; later ones are dropped.
    Together { need: usize },
    /// As they come, unless the slowest worker is more than so many steps behind.
    Apart { staleness: Option<u64> },
}

pub struct Server {
    pub(super) model: Arc<Model>,
    pub(super) layout: Layout,
    pub(super) index: usize,
    pub(super) workers: usize,
    pub(super) rule: Rule,
    pub(super) timeout: Duration,
    /// Where checkpoints are.
    pub(super) dir: Option<PathBuf>,
    pub(super) names: Vec<String>,
    entry: String,
    store: Mutex<Store>,
    pub(super) changed: Condvar,
    /// Bytes of what workers have for themselves: variables, and where the data is.
    pub(super) own_bytes: usize,
    connections: AtomicU64,
    pub(super) profile: Option<Arc<Profile>>,
}

/// An answer: its head and body.
pub(super) type Answer = (Head, Vec<u8>);

/// What is known of one connection.
#[doc(hidden)]
pub struct Asker {
    /// None for somebody who looks on.
    rank: Option<usize>,
    connection: u64,
    /// The variables as they were when it looked.
    seen: Option<Vars>,
}

impl Server {
    /// Server number `job.rank` of a job, for an entry.
    pub fn new(model: Arc<Model>, entry: usize, job: &Job, rule: Rule) -> Result<Server> {
        let layout = Layout::new(model.plan(), entry, job.servers.len())?;
        let name = model.plan().entries.get(entry).map_or(String::new(), |e| e.name.clone());
        let names = model.plan().vars.iter().map(|v| v.name.clone()).collect();
        let own_bytes = layout.own_bytes() + 8 * positions_at(&model, entry, 0).len();
        Ok(Server {
            own_bytes,
            model,
            layout,
            index: job.rank,
            workers: job.size,
            rule,
            timeout: job.timeout,
            dir: job.checkpoints.clone(),
            names,
            entry: name,
            store: Mutex::default(),
            changed: Condvar::new(),
            connections: AtomicU64::new(0),
            profile: profile::of_process(),
        })
    }

    /// Serves until the chief says that the job is over, or `stop` says so and no
    /// worker is there any more. Who is left alone for longer than workers wait for each
    /// other, or for the job to begin, is left for good: an error.
    pub fn serve(self: Arc<Self>, job: &Job, stop: &dyn Fn() -> bool) -> Result<()> {
        mesh::outlive_peers();
        let graph = hex(&self.model.plan().graph_hash);
        let entry = self.entry.clone();
        let listener = job.server_listener()?;
        let tls = job.tls.as_ref().map(Tls::open).transpose()?;
        let door = Door::open(&listener, tls, None)
            .map_err(|e| Error::io(ErrorCode::BAD_JOB, crate::io::io_reason(&e)))?;
        let run = RandomState::new().hash_one(std::process::id()) >> 1;
        let mut over = None;
        let patience = self.timeout.max(job.join_timeout);
        let mut alone_since = Instant::now();
        loop {
            let store = self.lock();
            if !store.present.is_empty() {
                alone_since = Instant::now();
            }
            if alone_since.elapsed() > patience && !store.over {
                return Err(self.left_alone(patience, job));
            }
            if store.over {
                let over = *over.get_or_insert_with(Instant::now);
                // One that was started again at the end does not know who has still to
                // hear that all is done.
                let alone = store.present.is_empty() && (store.age > 0 || over.elapsed() > LINGER);
                if alone || over.elapsed() > self.timeout.min(4 * LINGER) {
                    break;
                }
            }
            if stop() && store.present.is_empty() {
                break;
            }
            drop(store);
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
            alive::watch(link.stream.tcp(), self.timeout);
            let server = self.clone();
            let talk = move || server.talk(rank, Channel::new(link));
            // Without a thread the worker tries again.
            let _ = std::thread::Builder::new().name("tfc-worker".into()).spawn(talk);
        }
        // Whoever has asked gets an answer.
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    }

    fn left_alone(&self, patience: Duration, job: &Job) -> Error {
        let at = job.servers.get(self.index).map_or("", String::as_str);
        let names: Vec<String> = (0..self.workers).map(|r| format!("worker {r}")).collect();
        let text = format!("no worker has called for {} s", patience.as_secs());
        Error::peer(ErrorCode::PEER_LATE, text)
            .note(format!("{} of the job would find this server at {at}", names.join(", ")))
            .help("if they only take long to start, wait longer with `--join-timeout`")
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one connection until it ends.
    fn talk(&self, rank: Option<usize>, mut channel: Channel) {
        if let Some(rank) = rank {
            *self.lock().present.entry(rank).or_default() += 1;
        }
        let (mut body, place) = (vec![], self.layout.place.as_str());
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let mut asker = Asker { rank, connection, seen: None };
        let limit = self.limit();
        loop {
            let moment = |wait| Moment {
                sequence: 0,
                deadline: Instant::now() + wait,
                what: "a step",
                place,
            };
            let Ok(head) = channel.receive(&mut body, limit, &moment(LONG)) else { break };
            let started = Instant::now();
            let (answer, out) = self.respond(&mut asker, head, &body);
            if let Some(profile) = &self.profile {
                profile.note(&format!("{:?}", head.kind).to_lowercase(), started);
            }
            if channel.send(answer, &out, &moment(self.timeout)).is_err() {
                break;
            }
        }
        let mut store = self.lock();
        store.holds.remove(&connection);
        if let Some(rank) = rank {
            if let Some(n) = store.present.get_mut(&rank) {
                *n = n.saturating_sub(1);
            }
            store.present.retain(|_, n| *n > 0);
        }
        drop(store);
        self.changed.notify_all();
    }

    /// The answer to a message, or why there is none.
    fn respond(&self, asker: &mut Asker, head: Head, body: &[u8]) -> Answer {
        if let Some(rank) = asker.rank {
            self.lock().heard.insert(rank, Instant::now());
        }
        self.answer(asker, head, body).unwrap_or_else(|e| {
            let flags = match e.kind() {
                ErrorKind::Data | ErrorKind::Usage => FAILED_DATA,
                ErrorKind::Io => FAILED_IO,
                ErrorKind::Peer | ErrorKind::Bug => 0,
            };
            (Head { flags, ..Head::new(Message::Failed, 0, 0) }, cut(e.to_string()))
        })
    }

    /// Somebody who asks, as if over a connection of their own. For tests.
    #[doc(hidden)]
    pub fn asker(&self, rank: Option<usize>) -> Asker {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        Asker { rank, connection, seen: None }
    }

    /// What is answered to the bytes of a message: the kind of the answer as its head has
    /// it, and the body. None where the connection would end. For tests.
    #[doc(hidden)]
    pub fn reply(
        &self,
        asker: &mut Asker,
        head: &[u8; HEAD],
        body: &[u8],
    ) -> Option<(u32, Vec<u8>)> {
        let head = Head::read(head).filter(|h| h.len == body.len() && h.len <= self.limit())?;
        let (answer, out) = self.respond(asker, head, body);
        let kind = KINDS.iter().position(|k| *k == answer.kind)?;
        Some((kind as u32, out))
    }

    /// The largest message that means anything here.
    fn limit(&self) -> usize {
        let l = &self.layout;
        let grads = l.grads_to(self.index).into_iter();
        let numbers = |rows: Option<Range<usize>>| rows.map_or(0, |r| 8 + 8 * r.len());
        let grads: usize = grads.map(|(_, bytes, rows)| bytes.len() + numbers(rows)).sum();
        let rows: usize = l.tables_on(self.index).iter().map(|(.., r)| 8 + 8 * r.len()).sum();
        let small: usize = l.parts.values().chain(l.shareds.values()).map(Shape::bytes).sum();
        HEAD + grads.max(rows).max(PIECE).max(self.own_bytes) + small + l.scalars.len() * 8 + CROSS
    }

    fn answer(&self, asker: &mut Asker, head: Head, body: &[u8]) -> Result<Answer> {
        let (rank, connection) = (asker.rank, asker.connection);
        let worker = || rank.ok_or_else(|| misfit("only workers may ask for that"));
        match head.kind {
            Message::Status => Ok(self.status(rank)),
            Message::Pull => {
                let store = self.settled(connection, head, self.lock())?;
                let answer = Head::new(Message::Ok, store.age, store.step);
                Ok((answer, self.variables(&store)))
            }
            Message::Rows => self.rows(head, body),
            Message::Look => {
                let store = self.settled(connection, head, self.lock())?;
                asker.seen = (store.age > 0).then(|| store.vars.clone());
                Ok((Head::new(Message::Ok, store.age, store.step), vec![]))
            }
            Message::Get | Message::Fit => match &asker.seen {
                None => Ok(rolled(&self.lock())),
                Some(seen) if head.kind == Message::Get => self.get(seen, body),
                Some(seen) => self.unfit(seen).map(|()| (Head::new(Message::Ok, 0, 0), vec![])),
            },
            Message::Hold => self.hold(connection, head),
            Message::Cut => self.cut(connection, head, body),
            Message::Save => {
                worker()?;
                self.save(connection, head, body)
            }
            Message::Fill => {
                worker()?;
                self.fill(head, body)
            }
            Message::Put => {
                worker()?;
                self.put(head, body)
            }
            Message::Init => {
                worker()?;
                self.init(head, body)
            }
            Message::Own => {
                let store = self.lock();
                Ok((Head::new(Message::Ok, store.age, store.step), store.own.clone()))
            }
            Message::Push => self.push(worker()?, head, body),
            Message::Shared => self.shared(worker()?, head, body),
            Message::Apply => self.apply(worker()?, head, body),
            Message::Clock => {
                let store = self.lock();
                let time = clock::now().to_le_bytes().to_vec();
                Ok((Head::new(Message::Ok, store.age, store.step), time))
            }
            Message::Trace => {
                let rank = worker()?;
                if body.len() > clock::MOST {
                    return Err(misfit("more than anybody has to say"));
                }
                self.lock().traces.insert(rank, body.to_vec());
                Ok((Head::new(Message::Ok, 0, 0), vec![]))
            }
            Message::Traces => {
                worker()?;
                let of = usize::try_from(head.step).ok();
                let known = of.and_then(|rank| self.lock().traces.get(&rank).cloned());
                let number = profile::SERVERS + self.index;
                let own = || Trace::of_process(number, Offset::default(), clock::MOST).to_bytes();
                let asked = head.step == OWN_TRACE && self.profile.is_some();
                let body = if asked { own() } else { known.unwrap_or_default() };
                Ok((Head::new(Message::Ok, 0, 0), body))
            }
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
                    // There is nothing newer to be broken.
                    Message::Broken => store.broken = store.broken.max(head.age.min(store.age)),
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

    pub(super) fn flags(&self, store: &Store) -> u32 {
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
        let silent = store.heard.get(&0).map_or(u64::MAX, |at| at.elapsed().as_millis() as u64);
        counts.push(silent);
        let body = counts.iter().flat_map(|n| n.to_le_bytes()).collect();
        let broken = if store.age > 0 && store.age <= store.broken { BROKEN } else { 0 };
        let released = if store.released || store.over { RELEASED } else { 0 };
        let flags = self.flags(&store) | broken | released;
        (Head { flags, ..Head::new(Message::Ok, store.age, step) }, body)
    }

    /// The variables that workers compute with.
    pub(super) fn variables(&self, store: &Store) -> Vec<u8> {
        let mut out = vec![];
        for (shard, vars) in self.layout.on(self.index).zip(&store.vars.shards) {
            for (v, value) in self.layout.groups[shard.group].vars.iter().zip(vars) {
                if self.layout.read.contains(v) {
                    out.extend_from_slice(value.bytes());
                }
            }
        }
        if self.index == 0 {
            for (v, value) in self.layout.home_vars.iter().zip(&store.vars.home) {
                if self.layout.read.contains(v) {
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
            let held = self.layout.on(self.index).nth(*shard).zip(store.vars.shards.get(*shard));
            let value =
                held.and_then(|(s, vars)| find(&self.layout.groups[s.group].vars, *var, vars));
            let value = value.ok_or_else(|| misfit("there is no such table"))?;
            let (_, width) = rows::extent(self.layout.var(*var));
            out.extend(rows::pick(value, ids, width)?);
        }
        Ok((Head::new(Message::Ok, store.age, store.step), out))
    }
}

/// The answer to a question about variables of another age.
pub(super) fn stale(store: &Store, head: Head) -> Option<Answer> {
    let other = store.age != head.age || store.age <= store.broken;
    other.then(|| rolled(store))
}

/// The answer to who goes on with what this server does not know of: it was started again
/// since.
pub(super) fn rolled(store: &Store) -> Answer {
    (Head::new(Message::Rolled, store.age, store.step), vec![])
}

pub(super) fn find<'a, T: Borrow<TensorBuf>>(
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
