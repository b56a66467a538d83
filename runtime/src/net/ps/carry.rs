//! What goes between files and servers: variables to begin with, and all of them when
//! they are saved or looked at.
//!
//! Nothing here ever has a whole table: it travels in pieces, or not at all, because
//! servers read and write their own files of a checkpoint.

use super::super::clock::{self, Offset};
use super::channel::{FIRST, Head, LET_GO, Message};
use super::client::{Client, SLACK, rolled};
use super::keep::PIECE;
use super::server::{OWN_TRACE, misfit, number, take};
use crate::checkpoint::{self, DataFile, Fit, Save};
use crate::error::{Error, ErrorCode, Result};
use crate::model::Model;
use crate::profile::Trace;
use crate::tensor::{FeedView, TensorBuf, byte_len};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::Duration;

/// What a job begins with, or goes back to.
pub struct Beginning {
    /// The step that is next.
    pub step: u64,
    pub from: Origin,
    /// Where queues and readers are then, as in [`super::client::positions_at`]; nothing
    /// where they stay as they are.
    pub positions: Vec<i64>,
}

/// Where servers get their variables from.
pub enum Origin {
    /// They have their initial values.
    First,
    /// The checkpoint with a manifest of this name, in the servers' own directory.
    Checkpoint(String),
    /// Files of the chief, the later ones over the earlier; what they lack has its
    /// initial value.
    Files(Vec<Fit>),
    /// The chief's model.
    Model,
}

/// Reads bytes of a variable, from some byte on; false if there is no such variable.
type Reading<'a> = dyn FnMut(usize, usize, &mut [u8]) -> Result<bool> + 'a;

impl Client {
    /// All servers get variables, of a new age.
    pub(super) fn init(&mut self, model: &Model, begin: Beginning, age: u64) -> Result<()> {
        let before = self.traffic;
        let done = self.begin(model, begin, age);
        self.set_apart(before);
        done
    }

    fn begin(&mut self, model: &Model, begin: Beginning, age: u64) -> Result<()> {
        if !begin.positions.is_empty() {
            self.positions = begin.positions;
        }
        let (flags, name) = match &begin.from {
            Origin::First | Origin::Files(_) => (FIRST, String::new()),
            Origin::Checkpoint(name) => (0, name.clone()),
            Origin::Model => (0, String::new()),
        };
        let head = Head { flags, ..Head::new(Message::Fill, age, begin.step) };
        let fills = (0..self.servers.len()).map(|s| (s, head, name.clone().into_bytes()));
        let wait = self.patience();
        self.ask(&fills.collect::<Vec<_>>(), "the variables", wait)?;
        match begin.from {
            Origin::Files(mut fits) => {
                for fit in &mut fits {
                    self.put(age, &mut |var, from, out| fit.read(var, from, out))?;
                }
            }
            Origin::Model => self.put(age, &mut |var, from, out| {
                let read = model.with_var(var, |bytes| {
                    let bytes = bytes.get(from..from + out.len());
                    bytes.map(|bytes| out.copy_from_slice(bytes)).is_some()
                })?;
                Ok(read)
            })?,
            Origin::First | Origin::Checkpoint(_) => {}
        }
        let mut all = self.everybody(Head::new(Message::Init, age, begin.step));
        if let Some((_, _, body)) = all.first_mut() {
            for v in self.layout().own() {
                model.with_var(v as usize, |bytes| body.extend_from_slice(bytes))?;
            }
            body.extend(self.positions.iter().flat_map(|n| n.to_le_bytes()));
        }
        self.ask(&all, "the variables", self.job.timeout + SLACK).map(drop)
    }

    /// Takes what the chief had of variables that are each worker's own when the job began
    /// or went back, and where the data was. The chief's own are its own to keep.
    pub(super) fn take_own(&mut self, model: &Model) -> Result<()> {
        let own = self.layout().own();
        let chief = self.rank == Some(0);
        if self.positions.is_empty() && (own.is_empty() || chief) {
            return Ok(());
        }
        let question = (0, Head::new(Message::Own, self.age, 0), vec![]);
        let answers = self.ask(&[question], "the variables", self.job.timeout + SLACK)?;
        let Some((head, body)) = answers.first() else { return Err(rolled()) };
        if head.age != self.age {
            return Err(rolled());
        }
        let (mut values, mut body) = (vec![], body.as_slice());
        for v in own {
            values.push((v as usize, take(&mut body, self.layout().var(v))?));
        }
        for n in &mut self.positions {
            *n = number(&mut body)? as i64;
        }
        if chief { Ok(()) } else { model.write_vars(values) }
    }

    /// Sends servers what `read` has of their variables, piece by piece.
    fn put(&mut self, age: u64, read: &mut Reading<'_>) -> Result<()> {
        for server in 0..self.servers.len() {
            let vars = self.layout().vars_on(server, true);
            for (at, (var, range)) in vars.into_iter().enumerate() {
                let mut from = 0;
                while from < range.len() {
                    let len = PIECE.min(range.len() - from);
                    let mut body = vec![0; 16 + len];
                    body[..8].copy_from_slice(&(at as u64).to_le_bytes());
                    body[8..16].copy_from_slice(&(from as u64).to_le_bytes());
                    if !read(var as usize, range.start + from, &mut body[16..])? {
                        break;
                    }
                    let question = (server, Head::new(Message::Put, age, 0), body);
                    self.ask(&[question], "the variables", self.job.timeout + SLACK)?;
                    from += len;
                }
            }
        }
        Ok(())
    }

    /// Time to read or write all variables, at a speed that any disk has.
    pub fn patience(&self) -> Duration {
        let bytes: usize =
            self.layout().served().iter().map(|v| self.layout().var(*v).bytes()).sum();
        self.job.timeout + SLACK + Duration::from_millis((bytes >> 13) as u64)
    }

    /// Remembers all variables as they are, for [`Client::each_piece`]; with `together`,
    /// as they were on all servers at one moment.
    pub fn look(&mut self, together: bool) -> Result<()> {
        if together {
            self.hold()?;
        }
        let head = Head::new(Message::Look, self.age, 0);
        let answers = self.ask(&self.everybody(head), "the variables", self.job.timeout + SLACK);
        if together {
            self.let_go();
        }
        let answers = answers?;
        if answers.iter().any(|(h, _)| h.age == 0) {
            return Err(Error::peer(ErrorCode::PEER_LATE, "the servers have no variables yet"));
        }
        match answers.iter().any(|(h, _)| h.age != self.age && self.rank.is_some()) {
            true => Err(rolled()),
            false => Ok(()),
        }
    }

    /// Why the variables that were looked at should not be saved.
    pub fn check_fit(&mut self) -> Result<()> {
        let all = self.everybody(Head::new(Message::Fit, self.age, 0));
        let wait = self.patience();
        self.ask(&all, "the variables", wait).map(drop)
    }

    /// Hands on the bytes of a variable that was looked at, one piece after the other.
    pub fn each_piece(
        &mut self,
        var: u32,
        use_it: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()> {
        let before = self.traffic;
        for (server, at, range) in self.layout().held_by(var) {
            let mut from = 0;
            while from < range.len() {
                let len = PIECE.min(range.len() - from);
                let body: Vec<u8> =
                    [at, from, len].iter().flat_map(|n| (*n as u64).to_le_bytes()).collect();
                let question = (server, Head::new(Message::Get, self.age, 0), body);
                let answers = self.ask(&[question], "the variables", self.job.timeout + SLACK)?;
                let bytes = answers.first().map(|(_, body)| body).filter(|b| b.len() == len);
                use_it(bytes.ok_or_else(|| misfit("a piece of another length"))?)?;
                from += len;
            }
        }
        self.set_apart(before);
        Ok(())
    }

    /// Brings variables of the servers into the model; those that are not the servers'
    /// stay as they are.
    pub fn take(&mut self, model: &Model, vars: &[u32], together: bool) -> Result<()> {
        self.look(together)?;
        let mut values = vec![];
        for var in vars {
            if self.layout().held_by(*var).is_empty() {
                continue;
            }
            let shape = self.layout().var(*var).clone();
            let mut value = TensorBuf::zeros(shape.dtype, &shape.sizes)?;
            let (mut at, room) = (0, value.bytes_mut());
            self.each_piece(*var, &mut |bytes| {
                room[at..at + bytes.len()].copy_from_slice(bytes);
                at += bytes.len();
                Ok(())
            })?;
            values.push((*var as usize, value));
        }
        model.write_vars(values)
    }

    /// Has every server save its variables as they are at one moment, each to a file of
    /// its own in the directory of the job, and completes the checkpoint. `what` is asked
    /// what to save when it is known after which step it is; none if there is nothing.
    pub fn save(
        &mut self,
        model: &Model,
        what: &mut dyn FnMut(Option<u64>) -> Option<Save>,
    ) -> Result<Option<u64>> {
        let Some(dir) = self.job.checkpoints.clone() else {
            return Err(Error::usage(ErrorCode::BAD_JOB, "there is no directory of checkpoints"));
        };
        let before = self.traffic;
        let step = self.hold()?;
        let Some(what) = what(step) else {
            self.let_go();
            return Ok(None);
        };
        let saved = self.save_held(model, &dir, &what);
        if saved.is_err() {
            self.let_go();
        }
        self.set_apart(before);
        saved.map(|()| Some(what.step))
    }

    fn save_held(&mut self, model: &Model, dir: &Path, what: &Save) -> Result<()> {
        let word = format!("{:08x}", RandomState::new().hash_one(what.step) >> 32);
        let head = Head::new(Message::Save, self.age, what.step);
        let saves = (0..self.servers.len()).map(|s| (s, head, word.clone().into_bytes()));
        let wait = self.patience();
        let answers = self.ask(&saves.collect::<Vec<_>>(), "the files of a checkpoint", wait)?;
        if answers.iter().any(|(h, _)| h.kind != Message::Ok) {
            return Err(rolled());
        }
        let mut files = vec![];
        for (server, (_, body)) in answers.iter().enumerate().filter(|(_, (_, b))| !b.is_empty()) {
            let file = data_file(body).ok_or_else(|| misfit("a file that has no name"))?;
            let found = std::fs::metadata(dir.join(&file.file)).map(|m| m.len());
            if found.ok() != Some(file.bytes) {
                let text = format!(
                    "parameter server {server} has saved its variables, but not in `{}`",
                    dir.display()
                );
                return Err(Error::io("E0803", text)
                    .note("the directory of checkpoints must be the same for all processes")
                    .help("use one that they share, such as on a network file system"));
            }
            files.push(file);
        }
        files.extend(self.save_own(model, dir, what.step, &word)?);
        checkpoint::finish(model, dir, what, files).map(drop)
    }

    /// What only workers have: that of the chief.
    fn save_own(
        &self,
        model: &Model,
        dir: &Path,
        step: u64,
        word: &str,
    ) -> Result<Option<DataFile>> {
        let own = self.layout().own();
        if own.is_empty() {
            return Ok(None);
        }
        let name = checkpoint::file_name(step, Some(("workers", word)));
        let file = model.with_some_to_save(&own, |vars| {
            let pieces =
                vars.iter().map(|(name, view)| checkpoint::Piece { name, view: *view, part: None });
            checkpoint::save_part(model.plan(), dir, &name, step, &pieces.collect::<Vec<_>>())
        });
        file.map(Some)
    }

    /// From now on no server begins an update, and those that are begun are finished by
    /// all; until [`Client::let_go`], or something that lets go by itself. The step that
    /// all servers are at, where workers step together.
    pub(super) fn hold(&mut self) -> Result<Option<u64>> {
        let held = self.try_hold();
        if held.is_err() {
            self.let_go();
        }
        held
    }

    fn try_hold(&mut self) -> Result<Option<u64>> {
        let wait = self.job.timeout + SLACK;
        let age = match self.rank {
            Some(_) => self.age,
            // Somebody who looks on does not know it yet.
            None => {
                let all = self.everybody(Head::new(Message::Status, 0, 0));
                let answers = self.ask(&all, "where the job is", wait)?;
                let ages: Vec<u64> = answers.iter().map(|(h, _)| h.age).collect();
                ages.first().copied().filter(|a| ages.iter().all(|b| a == b)).unwrap_or(0)
            }
        };
        self.age = age;
        let holds = self.everybody(Head::new(Message::Hold, age, 0));
        let answers = self.ask(&holds, "the updates that are begun", wait)?;
        if answers.iter().any(|(h, _)| h.kind != Message::Ok) {
            return Err(rolled());
        }
        let mut limits: Vec<u64> = vec![];
        for (_, body) in &answers {
            let numbers = body.as_chunks::<8>().0.iter().map(|b| u64::from_le_bytes(*b));
            for (i, n) in numbers.enumerate() {
                match limits.get_mut(i) {
                    Some(limit) => *limit = (*limit).max(n),
                    None => limits.push(n),
                }
            }
        }
        let body: Vec<u8> = limits.iter().flat_map(|n| n.to_le_bytes()).collect();
        let head = Head::new(Message::Cut, age, 0);
        let cuts = (0..self.servers.len()).map(|s| (s, head, body.clone()));
        let cut = self.ask(&cuts.collect::<Vec<_>>(), "the updates that are begun", wait)?;
        if cut.iter().any(|(h, _)| h.kind != Message::Ok) {
            return Err(rolled());
        }
        // Where workers step together, there is one number: the step all shall be at.
        let [step] = limits[..] else { return Ok(None) };
        let behind = answers.iter().any(|(h, _)| h.step < step);
        // Somebody who looks on leaves that to the workers.
        if behind && self.rank.is_some() {
            self.finish(step - 1)?;
        }
        Ok(Some(step))
    }

    /// Updates go on. A server that does not hear it will find out by itself.
    pub(super) fn let_go(&mut self) {
        let head = Head { flags: LET_GO, ..Head::new(Message::Hold, self.age, 0) };
        let _ = self.ask(&self.everybody(head), "that updates go on", self.job.timeout + SLACK);
    }
}

impl Client {
    /// How far a server's clock is ahead of this process's.
    pub fn clock(&mut self, server: usize) -> Result<Offset> {
        let before = self.traffic;
        let found = clock::ask(|| {
            let question = (server, Head::new(Message::Clock, self.age, 0), vec![]);
            let answers = self.ask(&[question], "what time it is", self.job.timeout)?;
            let mut body = answers.first().map_or(&[][..], |(_, body)| body);
            Ok(number(&mut body)? as i64)
        });
        self.set_apart(before);
        found
    }

    /// Leaves what this worker did for the chief, with its distance to the first server's
    /// clock.
    pub fn hand_in(&mut self, clock: Offset) -> Result<()> {
        let Some(rank) = self.rank else { return Ok(()) };
        let trace = Trace::of_process(rank, clock, clock::MOST).to_bytes();
        let question = (0, Head::new(Message::Trace, self.age, 0), trace);
        self.ask(&[question], "what was done", self.job.timeout + SLACK).map(drop)
    }

    /// What all processes of the job did, by this one's clock. `clocks` are those of the
    /// servers.
    pub fn traces(&mut self, clocks: &[Offset]) -> Result<Vec<Trace>> {
        let before = self.traffic;
        let mut out = vec![Trace::of_process(0, Offset::default(), usize::MAX)];
        let first = clocks.first().copied().unwrap_or_default();
        let workers = (1..self.job.size as u64).map(|r| (0, r, first.back()));
        let servers = clocks.iter().enumerate().map(|(s, c)| (s, OWN_TRACE, c.back()));
        for (server, whose, to_here) in workers.chain(servers).collect::<Vec<_>>() {
            let question = (server, Head::new(Message::Traces, self.age, whose), vec![]);
            let answers = self.ask(&[question], "what was done", self.job.timeout + SLACK)?;
            let trace = answers.first().and_then(|(_, body)| Trace::from_bytes(body));
            out.extend(trace.map(|t| Trace { clock: t.clock.then(to_here), ..t }));
        }
        self.set_apart(before);
        Ok(out)
    }
}

/// What a server answers when it has saved.
fn data_file(body: &[u8]) -> Option<DataFile> {
    let mut lines = std::str::from_utf8(body).ok()?.lines();
    let file = lines.next()?.to_owned();
    let bytes = lines.next()?.parse().ok()?;
    let hash = lines.next()?.to_owned();
    let plain = Path::new(&file).file_name().is_some_and(|name| name == file.as_str());
    plain.then_some(DataFile { file, bytes, hash })
}

/// Writes all variables to one file, as [`crate::cli::statefile::save`] does for one
/// process: those of servers pass through in pieces.
pub fn save_state(client: &mut Client, model: &Model, path: &Path) -> Result<()> {
    use crate::io::safetensors;
    use crate::io::{Array, Contents};
    client.look(false)?;
    client.check_fit().map_err(|e| match e.code() == ErrorCode::NOT_FINITE {
        true => checkpoint::files::left(e, path),
        false => e,
    })?;
    let plan = model.plan();
    let own = client.layout().own();
    let metadata = safetensors::metadata_of(plan);
    let metadata: Vec<(&str, &str)> = metadata.iter().map(|(k, v)| (*k, v.as_str())).collect();
    let client = std::cell::RefCell::new(client);
    let failed = std::cell::Cell::new(None);
    let written = model.with_some_to_save(&own, |views| {
        let shapes: Vec<Vec<usize>> = (plan.vars.iter())
            .map(|v| v.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect())
            .collect();
        let stream = |var: u32, use_it: &mut dyn FnMut(&[u8]) -> std::io::Result<()>| {
            let mut broken = None;
            let sent = client.borrow_mut().each_piece(var, &mut |bytes| {
                use_it(bytes).map_err(|e| {
                    broken = Some(e);
                    Error::bug("the file, which says it better")
                })
            });
            match (broken, sent) {
                (Some(e), _) => Err(e),
                (None, Err(e)) => {
                    let why = std::io::Error::other(e.message().to_owned());
                    failed.set(Some(e));
                    Err(why)
                }
                (None, Ok(())) => Ok(()),
            }
        };
        let arrays: Vec<Array<'_>> = (0u32..)
            .zip(plan.vars.iter().zip(&shapes))
            .map(|(i, (v, shape))| {
                let here = own.binary_search(&i).ok().and_then(|at| views.get(at));
                let len = byte_len(v.dtype, shape).unwrap_or(0) as u64;
                let data = match here {
                    Some((_, FeedView { data, .. })) => Contents::Bytes(data),
                    None => Contents::Stream(len, i, &stream),
                };
                Array { name: &v.name, dtype: v.dtype, shape, data }
            })
            .collect();
        crate::files::replace(path, |out| safetensors::write_arrays(out, &arrays, &metadata))
    });
    match failed.take() {
        Some(e) => Err(e),
        None => written,
    }
}
