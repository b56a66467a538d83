//! The worker's side of parameter servers.
//!
//! Questions go to all servers before the answers are taken, so that servers work at
//! the same time. A server that is gone is called again until the deadline; when it
//! comes back without variables, the chief gives all of them those of the last
//! checkpoint, and everybody goes on from there.

use super::super::call::{Call, Refused};
use super::super::job::Job;
use super::super::muster::TRUSTED;
use super::super::tls::{self, Tls};
use super::super::{Moment, door, hpack, mesh};
use super::carry::Beginning;
use super::channel::{BROKEN, Channel, FAILED_DATA, FAILED_IO, Head, Message, RELEASED, STOP};
use super::layout::{Layout, Shape};
use super::rows::{self, Rows};
use super::server::{CROSS, SERVE, misfit, take};
use crate::call::CallOptions;
use crate::error::{Error, ErrorCode, ErrorKind, Party, Result};
use crate::hash::hex;
use crate::model::Model;
use crate::profile::{self, Profile};
use crate::tensor::{FeedView, TensorBuf};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Heads and bodies of answers, in the order of the questions.
type Answers = Vec<(Head, Vec<u8>)>;
/// What groups are summed up to, and averages of scalars.
type Sums = (Vec<u8>, Vec<f64>);

/// Time that an answer may take beyond the time that the server may.
pub(super) const SLACK: Duration = Duration::from_secs(5);

/// Bytes of a table's rows that a worker keeps beyond those of a step, and of a page.
const KEPT: usize = 4 << 20;
const PAGE: usize = 4096;

/// What a step came to.
#[derive(Clone, Debug, PartialEq)]
pub enum Stepped {
    /// The next step, and the averages of the float scalars if all workers' are known.
    Done { next: u64, scalars: Option<Vec<f64>>, stop: bool },
    /// The job went back, or a server was gone for a while: begin with [`Client::sync`].
    Lost,
}

/// What servers have counted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    /// Gradients that came too late, by worker.
    pub dropped: Vec<u64>,
    /// Updates by others between a worker's reading and writing: sum, most, how often.
    pub stale: [u64; 3],
    /// Workers that have not said to all servers that they are done, but the chief.
    pub working: Vec<usize>,
    /// Workers that are connected to some server.
    pub present: BTreeSet<usize>,
    /// The chief has what came out.
    pub released: bool,
    /// How long no server has heard of the chief; none if none ever has.
    pub silent: Option<Duration>,
}

pub struct Client {
    layout: Layout,
    pub(super) servers: Vec<String>,
    /// None for a client that only reads.
    pub(super) rank: Option<usize>,
    pub(super) job: Job,
    graph: String,
    /// The entry that the servers serve.
    entry: String,
    channels: Vec<Option<Channel>>,
    pub(super) age: u64,
    /// Every step computes with the variables as they are when it begins, on all servers
    /// at one moment.
    pub strong: bool,
    /// Where queues and readers were at some step, which is the first number, when the job
    /// began or went back; nothing if the entry does not take from any.
    pub positions: Vec<i64>,
    /// Bytes of tables that steps have brought here.
    touched: BTreeMap<u32, usize>,
    /// Bytes sent and taken in steps.
    pub traffic: [u64; 2],
    /// The same outside of steps: all variables, from files and to them, and how the job goes
    /// on.
    pub carried: [u64; 2],
    pub waited: Vec<Duration>,
    tls: Option<Arc<Tls>>,
    profile: Option<Arc<Profile>>,
}

impl Client {
    /// A worker of a job, or without a `rank` somebody who looks on. Servers are called
    /// when they are first needed.
    pub fn new(model: &Model, entry: usize, job: &Job, rank: Option<usize>) -> Result<Client> {
        mesh::outlive_peers();
        let servers = job.servers.clone();
        Ok(Client {
            layout: Layout::new(model.plan(), entry, servers.len())?,
            channels: servers.iter().map(|_| None).collect(),
            waited: vec![Duration::ZERO; servers.len()],
            tls: job.tls.as_ref().map(Tls::open).transpose()?,
            servers,
            rank,
            job: job.clone(),
            graph: hex(&model.plan().graph_hash),
            entry: String::new(),
            age: 0,
            strong: false,
            positions: positions_at(model, entry, 0),
            touched: BTreeMap::new(),
            traffic: [0; 2],
            carried: [0; 2],
            profile: profile::of_process(),
        })
    }

    /// Somebody who is no worker, and reads the variables of a job that is running.
    pub fn attach(model: &Model, job: &Job) -> Result<Client> {
        let plan = model.plan();
        // Until it is known what the servers serve, any entry that learns will do.
        let learns = |e: &usize| plan.part(*e, tfc_abi::parts::Part::Gradients).is_some();
        let Some(first) = (0..plan.entries.len()).find(learns) else {
            return Err(Error::usage(
                ErrorCode::CANNOT_SHARE,
                "no entry of this program learns with parameter servers",
            ));
        };
        let mut client = Client::new(model, first, job, None)?;
        client.call(0, Instant::now() + job.join_timeout)?;
        let served = plan.entries.iter().position(|e| e.name == client.entry);
        if let Some(entry) = served.filter(|e| *e != first) {
            client.layout = Layout::new(plan, entry, job.servers.len())?;
        }
        Ok(client)
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn call(&mut self, server: usize, deadline: Instant) -> Result<()> {
        if self.channels[server].is_some() {
            return Ok(());
        }
        let at = &self.servers[server];
        self.job.check_plain_to(at)?;
        let gone = |e: &std::io::Error| {
            if let Some(why) = tls::distrust(e) {
                let message = format!(
                    "parameter server {server} and this process do not trust each other: {why}"
                );
                return Error::peer(ErrorCode::NOT_TRUSTED, message).help(TRUSTED);
            }
            let why = crate::io::io_reason(e);
            let message = format!("parameter server {server} cannot be reached at {at}: {why}");
            let error = Error::peer(ErrorCode::PEER_LOST, message);
            match &self.tls {
                Some(_) => {
                    error.note("if it turned this process away, it does not trust its certificate")
                }
                None => error,
            }
        };
        let stream = door::connect(at, deadline).map_err(|e| gone(&e))?;
        let rank = self.rank.map_or(String::new(), |r| r.to_string());
        let count = self.servers.len().to_string();
        let metadata = [
            ("tfc-graph", self.graph.as_str()),
            ("tfc-rank", &rank),
            ("tfc-servers", &count),
            ("tfc-token", &self.job.token),
        ];
        let wire = door::wire(stream, self.tls.as_ref(), deadline).map_err(|e| gone(&e))?;
        let call = Call::make(wire, SERVE, &metadata, deadline).map_err(|e| match e {
            Refused::Io(e) => gone(&e),
            Refused::Said(why) => Error::peer(
                ErrorCode::JOIN_REFUSED,
                format!("parameter server {server} refused this process: {why}"),
            )
            .help("start every process of a job with the same program and the same options"),
        })?;
        let run = hpack::get(&call.headers, "tfc-job").and_then(|n| n.parse().ok()).unwrap_or(0);
        self.entry = hpack::get(&call.headers, "tfc-entry").unwrap_or("").to_owned();
        let link = call.into_link(server, run).map_err(|e| gone(&e))?;
        self.channels[server] = Some(Channel::new(link));
        Ok(())
    }

    /// Asks some servers; their answers in the same order. A failed one is not asked
    /// again over the same connection.
    pub(super) fn ask(
        &mut self,
        questions: &[(usize, Head, Vec<u8>)],
        what: &str,
        wait: Duration,
    ) -> Result<Answers> {
        let place = self.layout.place.clone();
        let asked = Instant::now();
        let deadline = asked + wait;
        let moment = Moment { sequence: 0, deadline, what, place: &place };
        let mut failed: Option<Error> = None;
        for (server, head, body) in questions {
            let sent = self
                .call(*server, deadline)
                .and_then(|()| self.channel(*server)?.send(*head, body, &moment));
            self.traffic[0] += body.len() as u64;
            if let Err(e) = sent {
                self.channels[*server] = None;
                fail(&mut failed, named(e, *server));
            }
        }
        let mut answers = vec![];
        for (server, ..) in questions {
            if self.channels[*server].is_none() {
                continue;
            }
            let started = Instant::now();
            let mut body = vec![];
            let limit = self.limit(*server);
            let got = self.channel(*server).and_then(|c| c.receive(&mut body, limit, &moment));
            self.waited[*server] += started.elapsed();
            match got {
                // It has not what this process knows it had.
                Ok(head) if head.kind == Message::Rolled => fail(&mut failed, rolled()),
                Ok(head) if head.kind == Message::Failed => {
                    fail(&mut failed, said(*server, head.flags, &String::from_utf8_lossy(&body)));
                }
                Ok(head) => {
                    self.traffic[1] += body.len() as u64;
                    answers.push((head, body));
                }
                Err(e) => {
                    self.channels[*server] = None;
                    fail(&mut failed, named(e, *server));
                }
            }
        }
        if let Some(profile) = &self.profile {
            profile.note(what, asked);
        }
        match failed {
            Some(e) => Err(e),
            None => Ok(answers),
        }
    }

    fn channel(&mut self, server: usize) -> Result<&mut Channel> {
        self.channels[server].as_mut().ok_or_else(|| misfit("there is no connection"))
    }

    fn limit(&self, server: usize) -> usize {
        let vars: usize = self.layout.vars_on(server, true).iter().map(|(_, r)| r.len()).sum();
        let small: usize =
            self.layout.parts.values().chain(self.layout.shareds.values()).map(Shape::bytes).sum();
        vars.max(self.layout.own_bytes() + 8 * self.positions.len()) + small + CROSS
    }

    pub(super) fn everybody(&self, head: Head) -> Vec<(usize, Head, Vec<u8>)> {
        (0..self.servers.len()).map(|s| (s, head, vec![])).collect()
    }

    /// Brings this worker to where the servers are: gives the next step, with the
    /// variables in the model. The chief's `give` says with which step and with which
    /// variables to begin where servers have none. If the chief has saved what came out,
    /// it is the last step there could be.
    pub fn sync(
        &mut self,
        model: &Model,
        mut give: Option<&mut dyn FnMut() -> Result<Beginning>>,
        wait: Duration,
    ) -> Result<u64> {
        let deadline = Instant::now() + wait;
        let mut pause = Duration::from_millis(5);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let asked = self.everybody(Head::new(Message::Status, 0, 0));
            let patience = left.min(self.job.timeout).max(Duration::from_millis(1));
            let result = self.ask_aside(&asked, "where the job is", patience).and_then(|answers| {
                let ages: Vec<u64> = answers.iter().map(|(h, _)| h.age).collect();
                let newest = ages.iter().copied().max().unwrap_or(0);
                let broken = answers.iter().any(|(h, _)| h.flags & BROKEN != 0);
                let released = answers.iter().any(|(h, _)| h.flags & RELEASED != 0);
                // What a server has lost since the chief has saved is of no use to anybody.
                if released && self.rank.is_some_and(|r| r > 0) {
                    return Ok(Some(u64::MAX));
                }
                if ages.iter().any(|a| *a != newest) || newest == 0 || broken {
                    if let Some(give) = give.as_mut() {
                        self.init(model, give()?, age_after(ages.iter().chain([&self.age])))?;
                    } else if newest > 0 && newest == self.age && !broken {
                        // A server has lost what this worker knows it had: nobody shall
                        // wait for the step, so that the chief notices.
                        let broken = Head::new(Message::Broken, newest, 0);
                        self.ask_aside(&self.everybody(broken), "where the job is", patience)?;
                    }
                    return Ok(None);
                }
                let news = std::mem::replace(&mut self.age, newest) != newest;
                if news && self.rank.is_some() {
                    self.take_own(model)?;
                }
                let steps: Vec<u64> = answers.iter().map(|(h, _)| h.step).collect();
                let (least, most) = (
                    steps.iter().copied().min().unwrap_or(0),
                    steps.iter().copied().max().unwrap_or(0),
                );
                // Whoever applied the step to some servers is gone.
                if least < most && self.rank.is_some() {
                    self.finish(least)?;
                }
                self.pull(model)?;
                Ok(Some(most))
            });
            match result {
                Ok(Some(step)) => return Ok(step),
                Ok(None) => {}
                Err(e) if !again(&e) => return Err(e),
                Err(e) if Instant::now() + pause >= deadline => return Err(e),
                Err(_) => {}
            }
            if Instant::now() + pause >= deadline {
                return Err(Error::peer(
                    ErrorCode::PEER_LATE,
                    "the parameter servers did not get their variables in time",
                )
                .note("worker 0, the chief, brings them")
                .help("its own output says why it did not"));
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(200));
        }
    }

    /// As [`Client::ask`], about what is not part of a step.
    fn ask_aside(
        &mut self,
        questions: &[(usize, Head, Vec<u8>)],
        what: &str,
        wait: Duration,
    ) -> Result<Answers> {
        let before = self.traffic;
        let answers = self.ask(questions, what, wait);
        self.set_apart(before);
        answers
    }

    /// What was sent and taken since then was not part of a step.
    pub(super) fn set_apart(&mut self, before: [u64; 2]) {
        for (i, was) in before.into_iter().enumerate() {
            self.carried[i] += self.traffic[i] - was;
            self.traffic[i] = was;
        }
    }

    /// The variables that workers compute with, as the servers have them, into the model.
    pub fn pull(&mut self, model: &Model) -> Result<()> {
        let head = Head::new(Message::Pull, self.age, 0);
        let wait = self.job.timeout + SLACK;
        let answers = self.ask(&self.everybody(head), "the variables", wait)?;
        if answers.iter().any(|(h, _)| h.age != self.age) {
            return Err(rolled());
        }
        let bodies: Vec<Vec<u8>> = answers.into_iter().map(|(_, body)| body).collect();
        self.store(model, &bodies)
    }

    fn store(&self, model: &Model, bodies: &[Vec<u8>]) -> Result<()> {
        let mut values: BTreeMap<u32, TensorBuf> = BTreeMap::new();
        for (s, body) in bodies.iter().enumerate() {
            let mut body = body.as_slice();
            for (v, range) in self.layout.vars_on(s, false) {
                let shape = self.layout.var(v);
                let piece =
                    Shape { dtype: shape.dtype, sizes: vec![range.len() / shape.dtype.size()] };
                let piece = take(&mut body, &piece)?;
                if let std::collections::btree_map::Entry::Vacant(place) = values.entry(v) {
                    place.insert(TensorBuf::zeros(shape.dtype, &shape.sizes)?);
                }
                if let Some(whole) = values.get_mut(&v) {
                    whole.bytes_mut()[range].copy_from_slice(piece.bytes());
                }
            }
            if !body.is_empty() {
                return Err(misfit("a server has other variables"));
            }
        }
        model.write_vars(values.into_iter().map(|(v, t)| (v as usize, t)).collect())
    }

    /// Runs the worker's part, with the rows of tables that it reads as the servers have
    /// them; none if a server was lost, as in [`Stepped::Lost`].
    pub fn compute(
        &mut self,
        model: &Model,
        feeds: &[FeedView<'_>],
        options: &CallOptions,
    ) -> Result<Option<Vec<TensorBuf>>> {
        let mut ready = || {
            if !self.strong {
                return self.fetch(model, feeds, options);
            }
            self.hold()?;
            let read = self.pull(model).and_then(|()| self.fetch(model, feeds, options));
            self.let_go();
            read
        };
        match ready() {
            Err(e) if again(&e) => return Ok(None),
            other => other?,
        }
        model.call_with(self.layout.gradients, feeds, options).map(Some)
    }

    /// Keeps what is here of a table small: rows of earlier steps are of no use, and are
    /// forgotten before they come to much.
    fn make_room(&mut self, model: &Model, var: u32, rows: usize) -> Result<()> {
        if !model.is_bare() || !self.layout.by_rows(var) {
            return Ok(());
        }
        let (_, width) = rows::extent(self.layout.var(var));
        let touched = self.touched.entry(var).or_default();
        // Each row is on a page of its own, at worst.
        let more = rows.saturating_mul(width.next_multiple_of(PAGE) + PAGE);
        if *touched > 0 && *touched + more > KEPT {
            model.forget(var as usize)?;
            *touched = 0;
        }
        *touched += more;
        Ok(())
    }

    /// Brings the rows of tables that a step reads into the model.
    fn fetch(
        &mut self,
        model: &Model,
        feeds: &[FeedView<'_>],
        options: &CallOptions,
    ) -> Result<()> {
        let Some(used) = self.layout.used else { return Ok(()) };
        let results = model.call_with(used, feeds, options)?;
        let mut wanted: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (var, ids) in self.layout.tables.clone().into_iter().zip(&results) {
            let last = rows::extent(self.layout.var(var)).0.saturating_sub(1) as i64;
            let ids = ids.as_slice::<i64>().unwrap_or(&[]);
            // One out of range means the nearest, or is an error of the step itself.
            let ids: BTreeSet<usize> = ids.iter().map(|i| (*i).clamp(0, last) as usize).collect();
            self.make_room(model, var, ids.len())?;
            wanted.insert(var, ids.into_iter().collect());
        }
        let of = |var: u32, within: &Range<usize>| {
            let ids = wanted.get(&var).map_or(&[][..], Vec::as_slice);
            let at = |row: usize| ids.partition_point(|id| *id < row);
            &ids[at(within.start)..at(within.end)]
        };
        let mut questions = vec![];
        for s in 0..self.servers.len() {
            let mut body = vec![];
            for (var, _, rows) in self.layout.tables_on(s) {
                let ids = of(var, &rows);
                body.extend((ids.len() as u64).to_le_bytes());
                body.extend(ids.iter().flat_map(|id| ((id - rows.start) as u64).to_le_bytes()));
            }
            if !body.is_empty() {
                questions.push((s, Head::new(Message::Rows, self.age, 0), body));
            }
        }
        let wait = self.job.timeout + SLACK;
        let answers = self.ask(&questions, "the rows of tables", wait)?;
        if answers.iter().any(|(h, _)| h.kind != Message::Ok || h.age != self.age) {
            return Err(rolled());
        }
        for ((s, ..), (_, body)) in questions.iter().zip(&answers) {
            let mut body = body.as_slice();
            for (var, _, rows) in self.layout.tables_on(*s) {
                let ids = of(var, &rows);
                let (_, width) = rows::extent(self.layout.var(var));
                let Some((data, rest)) = body.split_at_checked(ids.len() * width) else {
                    return Err(misfit("a message is cut short"));
                };
                body = rest;
                model.write_rows(var as usize, ids, data)?;
            }
            if !body.is_empty() {
                return Err(misfit("a server has other tables"));
            }
        }
        Ok(())
    }

    /// One step: `results` are those of the worker's part, `share` is how much of the
    /// step's examples they are of. The new variables are in the model afterwards.
    pub fn step(
        &mut self,
        model: &Model,
        step: u64,
        share: f64,
        results: &[TensorBuf],
    ) -> Result<Stepped> {
        match self.try_step(model, step, share, results) {
            Err(e) if again(&e) => Ok(Stepped::Lost),
            other => other,
        }
    }

    fn try_step(
        &mut self,
        model: &Model,
        step: u64,
        share: f64,
        results: &[TensorBuf],
    ) -> Result<Stepped> {
        let wait = self.job.timeout + SLACK;
        let head = Head { share, ..Head::new(Message::Push, self.age, step) };
        let sparse = self.sparse(results)?;
        let pushes: Vec<_> = (0..self.servers.len())
            .map(|s| (s, head, self.gradients(s, results, &sparse)))
            .collect();
        let answers = self.ask(&pushes, "the gradients", wait)?;
        drop(pushes);
        // The first server's word: all workers of a step must hear the same.
        let stop = answers.first().is_some_and(|(h, _)| h.flags & STOP != 0);
        let (parts, scalars) = match self.sums(&answers)? {
            Some(sums) => sums,
            // Too late: the others were enough.
            None => {
                self.pull(model)?;
                let next = answers.iter().map(|(h, _)| h.step).max().unwrap_or(step);
                return Ok(Stepped::Done { next: next.max(step + 1), scalars: None, stop });
            }
        };
        let Some(answers) = self.apply(step, parts)? else {
            self.pull(model)?;
            return Ok(Stepped::Done { next: step + 1, scalars: Some(scalars), stop });
        };
        let next = answers.iter().map(|(h, _)| h.step).max().unwrap_or(step + 1);
        let bodies: Vec<Vec<u8>> = answers.into_iter().map(|(_, body)| body).collect();
        self.store(model, &bodies)?;
        Ok(Stepped::Done { next, scalars: Some(scalars), stop })
    }

    /// Has a step applied to the servers that are behind.
    pub(super) fn finish(&mut self, step: u64) -> Result<()> {
        self.apply(step, vec![]).map(drop)
    }

    /// What all groups need, and then the update; none if that is done already, and
    /// the step after it begun.
    fn apply(&mut self, step: u64, parts: Vec<u8>) -> Result<Option<Answers>> {
        let wait = self.job.timeout + SLACK;
        let mut shared = vec![];
        if self.layout.shared.is_some() {
            let question = (0, Head::new(Message::Shared, self.age, step), parts);
            let mut answers = self.ask(&[question], "what the gradients come to", wait)?;
            let Some((head, body)) = answers.pop() else { return Err(rolled()) };
            match head.kind {
                Message::Ok => shared = body,
                Message::Late => return Ok(None),
                _ => return Err(rolled()),
            }
        }
        let head = Head::new(Message::Apply, self.age, step);
        let all: Vec<_> = (0..self.servers.len()).map(|s| (s, head, shared.clone())).collect();
        let answers = self.ask(&all, "the new variables", wait)?;
        match answers.iter().all(|(h, _)| h.kind == Message::Ok) {
            true => Ok(Some(answers)),
            false => Err(rolled()),
        }
    }

    /// The sums of all groups in their order, and averages; none if the step is over.
    fn sums(&self, answers: &[(Head, Vec<u8>)]) -> Result<Option<Sums>> {
        if answers.iter().any(|(h, _)| h.kind == Message::Late) {
            return Ok(None);
        }
        let mut parts: BTreeMap<u32, TensorBuf> = BTreeMap::new();
        let mut scalars = vec![];
        for (s, (_, body)) in answers.iter().enumerate() {
            let mut body = body.as_slice();
            for k in self.layout.parts_on(s) {
                let shape = self.layout.parts.get(&k).ok_or_else(|| misfit("an unknown sum"))?;
                parts.insert(k, take(&mut body, shape)?);
            }
            if s == 0 {
                let numbers = body.chunks_exact(8);
                scalars = numbers
                    .map(|b| {
                        let mut word = [0; 8];
                        word.copy_from_slice(b);
                        f64::from_le_bytes(word)
                    })
                    .collect();
            }
        }
        Ok(Some((parts.values().flat_map(|t| t.bytes()).copied().collect(), scalars)))
    }

    /// The gradients that are zero but for some rows.
    fn sparse(&self, results: &[TensorBuf]) -> Result<BTreeMap<u32, Rows>> {
        let mut out = BTreeMap::new();
        for (k, (source, shape)) in (0u32..).zip(self.layout.sources.iter().zip(&self.layout.grads))
        {
            if source.rows
                && let (Some(ids), Some(rows)) =
                    (results.get(source.at - 1), results.get(source.at))
            {
                out.insert(k, Rows::collect(ids, rows, shape)?);
            }
        }
        Ok(out)
    }

    /// The body of a `Push`.
    fn gradients(
        &self,
        server: usize,
        results: &[TensorBuf],
        sparse: &BTreeMap<u32, Rows>,
    ) -> Vec<u8> {
        let l = &self.layout;
        let mut body = vec![];
        for (k, bytes, rows) in l.grads_to(server) {
            let whole = results.get(l.sources[k as usize].at);
            match (sparse.get(&k), rows) {
                (Some(sparse), Some(rows)) => sparse.write(rows, &mut body),
                _ => {
                    body.extend_from_slice(whole.and_then(|g| g.bytes().get(bytes)).unwrap_or(&[]))
                }
            }
        }
        if server == 0 {
            for &i in &l.scalars {
                let x = results.get(i).and_then(|t| t.get_f64(0)).unwrap_or(0.0);
                body.extend(x.to_le_bytes());
            }
        }
        let crosses = results.len().saturating_sub(l.crosses.len());
        for cross in &results[crosses..] {
            body.extend((cross.shape.len() as u64).to_le_bytes());
            body.extend(cross.shape.iter().flat_map(|n| (*n as u64).to_le_bytes()));
            body.extend_from_slice(cross.bytes());
        }
        body
    }

    fn tell(&mut self, kind: Message) -> Result<()> {
        let all = self.everybody(Head::new(kind, self.age, 0));
        self.ask_aside(&all, "how the job goes on", self.job.timeout.min(SLACK * 2)).map(drop)
    }

    /// The variables are safe: who is done may go.
    pub fn release(&mut self) -> Result<()> {
        self.tell(Message::Release)
    }

    /// This worker has done all its steps, or goes.
    pub fn leave(&mut self) -> Result<()> {
        self.tell(Message::Done)
    }

    /// All workers shall stop after the present step.
    pub fn stop(&mut self) -> Result<()> {
        self.tell(Message::Stop)
    }

    /// The servers may end.
    pub fn shutdown(&mut self) -> Result<()> {
        self.tell(Message::Shutdown)
    }

    /// Who is still at work, and what was counted.
    pub fn status(&mut self) -> Result<Counts> {
        let all = self.everybody(Head::new(Message::Status, 0, 0));
        let answers = self.ask_aside(&all, "where the job is", self.job.timeout)?;
        let mut counts = Counts { dropped: vec![0; self.job.size], ..Counts::default() };
        let mut working = BTreeSet::new();
        for (_, body) in &answers {
            let numbers: Vec<u64> = body
                .chunks_exact(8)
                .map(|b| {
                    let mut word = [0; 8];
                    word.copy_from_slice(b);
                    u64::from_le_bytes(word)
                })
                .collect();
            let (dropped, stale) = numbers.split_at_checked(self.job.size).unwrap_or((&[], &[]));
            for (sum, n) in counts.dropped.iter_mut().zip(dropped) {
                *sum = (*sum).max(*n);
            }
            if let [sum, most, times, who @ ..] = stale {
                let c = &mut counts.stale;
                *c = [c[0] + sum, c[1].max(*most), c[2] + times];
                let (ended, rest) = who.split_at_checked(self.job.size).unwrap_or_default();
                let (present, rest) = rest.split_at_checked(self.job.size).unwrap_or_default();
                let silent = rest.first().filter(|ms| **ms < u64::MAX);
                let silent = silent.map(|ms| Duration::from_millis(*ms));
                counts.silent = counts.silent.into_iter().chain(silent).min();
                let set = |list: &[u64], on: bool| -> BTreeSet<usize> {
                    let each = list.iter().enumerate().filter(|(_, n)| (**n != 0) == on);
                    each.map(|(r, _)| r).collect()
                };
                working.extend(set(ended, false));
                counts.present.extend(set(present, true));
            }
        }
        working.remove(&0);
        counts.working = working.into_iter().collect();
        counts.released = answers.iter().any(|(h, _)| h.flags & RELEASED != 0);
        let other = |h: &Head| h.age != self.age || h.flags & BROKEN != 0;
        if self.rank.is_some() && answers.iter().any(|(h, _)| other(h)) {
            return Err(rolled());
        }
        Ok(counts)
    }
}

/// Ages from here on are made up: what has one is as good as without any.
pub(super) const AGES: u64 = 1 << 62;

/// The age of variables that are newer than those of these ages.
fn age_after<'a>(ages: impl IntoIterator<Item = &'a u64>) -> u64 {
    ages.into_iter().copied().filter(|age| *age < AGES).max().unwrap_or(0) + 1
}

/// Of several reasons, one that trying again may do away with: that a server was lost is why
/// another one has waited in vain.
fn fail(failed: &mut Option<Error>, e: Error) {
    if !failed.as_ref().is_some_and(again) {
        *failed = Some(e);
    }
}

/// Where a model's queues and readers are, behind the step that is next; nothing for an entry
/// that does not take from any. There are as many numbers at every step.
pub fn positions_at(model: &Model, entry: usize, step: u64) -> Vec<i64> {
    if !crate::queue::runners::streams(model, entry) {
        return vec![];
    }
    let positions = model.queues().positions();
    std::iter::once(step as i64).chain(positions.into_iter().flat_map(|(_, p)| p)).collect()
}

/// Whether trying again may help: a server is gone, or the job went back.
pub(crate) fn again(e: &Error) -> bool {
    e.kind() == ErrorKind::Peer && e.code() == ErrorCode::PEER_LOST
}

pub(super) fn rolled() -> Error {
    Error::peer(ErrorCode::PEER_LOST, "the job went back to its last checkpoint")
}

/// Links speak of workers; these are to servers.
fn named(e: Error, server: usize) -> Error {
    e.renamed(&format!("worker {server}"), &format!("parameter server {server}"))
        .concerning(Party::Server(server))
}

/// What a server said, as it said it.
fn said(server: usize, flags: u32, text: &str) -> Error {
    let line = text.lines().next().unwrap_or("").trim_start_matches("error");
    let (code, message) = match line.split_once("]: ") {
        Some((code, message)) => (code.trim_start_matches('['), message),
        None => ("", line),
    };
    let known = ErrorCode::NAMED.iter().copied().find(|c| *c == code);
    let mut e = match (flags, known) {
        (FAILED_DATA, Some(code)) => Error::data(code, message.to_owned()),
        (FAILED_IO, known) => {
            Error::io(known.unwrap_or(ErrorCode::from("E0803")), message.to_owned())
        }
        (_, known) => {
            let code = known.unwrap_or(ErrorCode::BAD_MESSAGE);
            // What is the server's own trouble is none of the connection.
            let code = if code == ErrorCode::PEER_LOST { ErrorCode::BAD_MESSAGE } else { code };
            Error::peer(code, message.to_owned())
        }
    };
    for note in text.lines().skip(1) {
        let note = note.trim().trim_start_matches("= ");
        match note.split_once(": ") {
            Some(("help", help)) => e = e.help(help.to_owned()),
            Some(("note", note)) => e = e.note(note.to_owned()),
            _ => {}
        }
    }
    e.note(format!("says parameter server {server}"))
}
