//! `--checkpoint-dir`: saving while an entry trains, and going on from what was
//! saved.
//!
//! A step is one call. Without `--save-every` a checkpoint is saved at the end of
//! each epoch; in any case at the end of the run, and when the program is asked
//! to stop. A save that fails on the way is reported and tried again with the next
//! one; a last one that fails is an error.

use super::sums::Sums;
use super::{Console, Session};
use crate::checkpoint::{self, DEFAULT_KEEP, Manifest, Save};
use crate::error::{Error, ErrorKind, Result};
use crate::model::Model;
use crate::net::ps::client::Client;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) struct Checkpoints<'a> {
    dir: &'a Path,
    every: Option<u64>,
    keep: usize,
    /// Steps done, in this run and those before it.
    step: u64,
    /// Where in the data the next step begins, and the results so far.
    next: BTreeMap<String, i64>,
    /// What must be the same when the run is resumed.
    run: BTreeMap<String, String>,
    saved: Option<u64>,
    resumed: Option<(Manifest, PathBuf)>,
    /// Nobody else saves here meanwhile.
    _lock: Option<checkpoint::Lock>,
}

/// Where in the data a run in batches is.
pub(super) struct Position {
    pub epoch: usize,
    /// Number of the next example, in the order of the epoch.
    pub example: usize,
    pub examples: usize,
    pub shuffle: Option<u64>,
}

impl<'a> Checkpoints<'a> {
    /// Checks the options and the directory, and looks for what to resume.
    pub(super) fn open(
        session: &Session<'a>,
        console: &mut Console<'_>,
    ) -> Result<Option<Checkpoints<'a>>> {
        let a = session.args;
        let Some(dir) = a.checkpoint_dir.as_deref().map(Path::new) else {
            let alone = [
                ("--save-every", a.save_every.is_some()),
                ("--keep", a.keep.is_some()),
                ("--resume-anyway", a.resume_anyway),
                ("--resume", a.resume),
            ];
            return match alone.iter().find(|(_, given)| *given) {
                Some((name, _)) => {
                    Err(Error::usage("E0585", format!("`{name}` needs `--checkpoint-dir`"))
                        .help("say where checkpoints are: `--checkpoint-dir DIR`"))
                }
                None => Ok(None),
            };
        };
        if session.entry().writes.is_empty() {
            let name = &session.entry().name;
            let e = Error::usage("E0585", format!("`{name}` changes no variables"));
            return Err(e.note("there is nothing to save").help("leave out `--checkpoint-dir`"));
        }
        let mut out = Checkpoints {
            dir,
            every: a.save_every.map(|n| n as u64),
            keep: a.keep.unwrap_or(DEFAULT_KEEP),
            step: 0,
            next: BTreeMap::new(),
            run: [("entry".to_owned(), session.entry().name.clone())].into(),
            saved: None,
            resumed: None,
            _lock: checkpoint::lock(dir)?,
        };
        if a.resume {
            out.find(session, console)?;
        } else if let Some((step, _)) = checkpoint::list(dir)?.checkpoints.last() {
            let text = format!("`{}` holds checkpoints already, up to step {step}", dir.display());
            return Err(Error::data("E0583", text)
                .help("add `--resume` to go on from there, or choose another directory"));
        }
        Ok(Some(out))
    }

    fn find(&mut self, session: &Session<'_>, console: &mut Console<'_>) -> Result<()> {
        let newest = checkpoint::newest(self.dir, session.plan)?;
        for e in &newest.skipped {
            session.warn(console, e);
        }
        for path in &newest.unfinished {
            let text = format!("`{}` was not saved completely, so it is not used", path.display());
            session.say(console, &text);
        }
        match newest.found {
            Some((manifest, path)) => {
                let text = format!("resuming from step {} (`{}`)", manifest.step, path.display());
                session.say(console, &text);
                self.step = manifest.step;
                self.saved = Some(manifest.step);
                self.next = manifest.positions.clone();
                self.resumed = Some((manifest, path));
                self.same_run(session, console)?;
            }
            None => {
                let text = format!("no checkpoint in `{}`: starting at step 0", self.dir.display());
                session.say(console, &text);
            }
        }
        Ok(())
    }

    /// Adds what identifies the run, and holds it against the one to resume.
    pub(super) fn identify(
        &mut self,
        session: &Session<'_>,
        console: &mut Console<'_>,
        facts: impl IntoIterator<Item = (String, String)>,
    ) -> Result<()> {
        self.run.extend(facts);
        self.same_run(session, console)
    }

    fn same_run(&self, session: &Session<'_>, console: &mut Console<'_>) -> Result<()> {
        let Some((manifest, _)) = &self.resumed else { return Ok(()) };
        for (key, now) in &self.run {
            let Some(had) = manifest.run.get(key).filter(|had| *had != now) else { continue };
            let what = match key.split_once('.') {
                None if key == "entry" => format!("it ran entry `{had}`, now it is `{now}`"),
                None => format!("its `--{key}` was {had}, now it is {now}"),
                Some(("feed", name)) => {
                    format!("the contents of feed `{name}` differ: {}", describe(had, now))
                }
                Some((_, name)) => {
                    format!("the files of reader `{name}` differ: {}", describe(had, now))
                }
            };
            self.differs(session, console, what)?;
        }
        Ok(())
    }

    /// The run is not the one that was saved: an error, unless that is wanted.
    fn differs(
        &self,
        session: &Session<'_>,
        console: &mut Console<'_>,
        what: String,
    ) -> Result<()> {
        let e = Error::data("E0586", "this is not the run that was saved").note(what);
        if session.args.resume_anyway {
            session.warn(console, &e);
            return Ok(());
        }
        Err(e.help(
            "resume with the same entry, feeds, `--batch` and `--shuffle`; start a run with \
             `--restore`; or go on with what there is now: `--resume-anyway`",
        ))
    }

    /// The run goes on from a checkpoint.
    pub(super) fn resumes(&self) -> bool {
        self.resumed.is_some()
    }

    pub(super) fn dir(&self) -> &'a Path {
        self.dir
    }

    /// What the checkpoint that is resumed says of the results.
    pub(super) fn results(&self) -> Option<&BTreeMap<String, i64>> {
        self.resumed.as_ref().map(|(manifest, _)| &manifest.positions)
    }

    /// The checkpoint that the run goes on from.
    pub(super) fn resumed(&self) -> Option<&(Manifest, PathBuf)> {
        self.resumed.as_ref()
    }

    /// Brings variables and data to where the checkpoint has them.
    pub(super) fn restore(&self, model: &Model) -> Result<()> {
        match &self.resumed {
            Some((manifest, path)) => checkpoint::resume(model, manifest, path),
            None => Ok(()),
        }
    }

    pub(super) fn step(&self) -> usize {
        usize::try_from(self.step).unwrap_or(usize::MAX)
    }

    /// Epoch and example to begin with. The data must be that of the run that is
    /// resumed, in the same order.
    pub(super) fn begin(
        &self,
        session: &Session<'_>,
        console: &mut Console<'_>,
        examples: usize,
    ) -> Result<(usize, usize)> {
        let at = |name: &str| self.next.get(name).copied();
        let (Some(epoch), Some(example)) = (at("epoch"), at("example")) else { return Ok((0, 0)) };
        let had = at("examples").unwrap_or(0);
        if i64::try_from(examples).ok() != Some(had) {
            let what = format!("it had {had} examples, now there are {examples}");
            self.differs(session, console, what)?;
        }
        let shuffle = session.args.shuffle.map(|s| s as i64);
        if at("shuffle") != shuffle {
            let text = |s: Option<i64>| s.map_or("none".into(), |s| (s as u64).to_string());
            let (had, now) = (text(at("shuffle")), text(shuffle));
            self.differs(session, console, format!("its `--shuffle` was {had}, now it is {now}"))?;
        }
        match (usize::try_from(epoch), usize::try_from(example)) {
            (Ok(epoch), Ok(example)) if example < examples => Ok((epoch, example)),
            // An epoch of fewer examples is over.
            (Ok(epoch), Ok(_)) if session.args.resume_anyway => Ok((epoch + 1, 0)),
            _ => {
                let text = format!("`{}` has no possible position", self.dir.display());
                Err(Error::data("E0580", text)
                    .note(format!("epoch {epoch}, example {example} of {examples}"))
                    .note("the manifest of its newest checkpoint was changed by hand"))
            }
        }
    }

    /// After each step: saves if it is time to, or if the run was `asked` to stop.
    /// True when it should stop.
    pub(super) fn after_step(
        &mut self,
        model: &Model,
        session: &Session<'_>,
        console: &mut Console<'_>,
        at: Option<Position>,
        sums: Option<&mut Sums>,
        asked: bool,
    ) -> Result<bool> {
        let ends_epoch = at.as_ref().is_none_or(|p| p.example == 0);
        self.note_position(at.as_ref());
        self.stepped(model, session, console, ends_epoch, sums, asked)
    }

    /// As [`Checkpoints::after_step`], in a job with parameter servers, which save their
    /// variables themselves. A step may have been several; `at` says where in the data
    /// each begins.
    #[expect(clippy::too_many_arguments, reason = "what a step is")]
    pub(super) fn after_served_step(
        &mut self,
        model: &Model,
        session: &Session<'_>,
        console: &mut Console<'_>,
        (from, to): (u64, u64),
        at: &mut dyn FnMut(u64) -> Result<Option<Position>>,
        last: bool,
        client: &mut Client,
    ) -> Result<()> {
        let here = at(to)?;
        let due = match self.every {
            Some(n) => from / n != to / n,
            None => here.as_ref().is_some_and(|p| p.example == 0),
        };
        self.step = to;
        self.note_position(here.as_ref());
        // The last one is saved when all workers have ended.
        if !due || last {
            return Ok(());
        }
        match self.save_served(model, client, at) {
            // The next step will find out what is wrong with a server.
            Err(e) if e.kind() == ErrorKind::Peer => Ok(()),
            Err(e) if e.kind() == ErrorKind::Io => {
                self.unsaved(session, console, e);
                Ok(())
            }
            other => other,
        }
    }

    /// As [`Checkpoints::save`], in a job with parameter servers: what is saved is of the
    /// step that these are at.
    pub(super) fn save_served(
        &mut self,
        model: &Model,
        client: &mut Client,
        at: &mut dyn FnMut(u64) -> Result<Option<Position>>,
    ) -> Result<()> {
        if self.saved == Some(self.step) || self.step == 0 {
            return Ok(());
        }
        let mut nowhere = Ok(());
        let saved = client.save(model, &mut |step| {
            let step = step.unwrap_or(self.step);
            match at(step) {
                Ok(here) => {
                    self.step = step;
                    self.note_position(here.as_ref());
                }
                Err(e) => {
                    nowhere = Err(e);
                    return None;
                }
            }
            (self.saved != Some(self.step)).then(|| self.what())
        })?;
        nowhere?;
        self.saved = saved.or(self.saved);
        Ok(())
    }

    /// Where the run is; what takes from queues and readers knows it by itself.
    fn note_position(&mut self, p: Option<&Position>) {
        self.next.clear();
        let Some(p) = p else { return };
        let mut put = |name: &str, n: i64| self.next.insert(name.to_owned(), n);
        put("epoch", p.epoch as i64);
        put("example", p.example as i64);
        put("examples", p.examples as i64);
        if let Some(seed) = p.shuffle {
            put("shuffle", seed as i64);
        }
    }

    fn unsaved(&self, session: &Session<'_>, console: &mut Console<'_>, e: Error) {
        let last = match self.saved {
            Some(step) => format!("the last good checkpoint is of step {step}"),
            None => "there is no checkpoint yet".into(),
        };
        session.warn(
            console,
            &e.note(format!("step {} is not saved; {last}", self.step))
                .note("the run goes on, and saves again when the next one is due"),
        );
    }

    /// As [`Checkpoints::after_step`], for a run without epochs: where it is in
    /// its data, the model knows.
    pub(super) fn after_stream_step(
        &mut self,
        model: &Model,
        session: &Session<'_>,
        console: &mut Console<'_>,
        sums: &mut Sums,
        asked: bool,
    ) -> Result<bool> {
        self.next.clear();
        self.stepped(model, session, console, false, Some(sums), asked)
    }

    fn stepped(
        &mut self,
        model: &Model,
        session: &Session<'_>,
        console: &mut Console<'_>,
        ends_epoch: bool,
        sums: Option<&mut Sums>,
        stop: bool,
    ) -> Result<bool> {
        self.step += 1;
        let due = match self.every {
            Some(n) => self.step.is_multiple_of(n),
            None => ends_epoch,
        };
        if !due && !stop {
            return Ok(false);
        }
        let recorded = sums.map_or(Ok(()), |s| s.record(session, &mut self.next));
        match recorded.and_then(|()| self.save(model)) {
            // Asked to stop, it is the last one: the end of the run tries again.
            Err(e) if e.kind() == ErrorKind::Io && !stop => self.unsaved(session, console, e),
            other => other?,
        }
        Ok(stop)
    }

    /// The state is that before a step which was not finished.
    pub(super) fn set_positions(
        &mut self,
        session: &Session<'_>,
        positions: &[(String, Vec<i64>)],
        sums: &mut Sums,
    ) -> Result<()> {
        for (name, numbers) in positions {
            for (i, n) in numbers.iter().enumerate() {
                self.next.insert(format!("data.{name}.{i}"), *n);
            }
        }
        sums.record(session, &mut self.next)
    }

    /// Notes results at the end of a run, for the last save.
    pub(super) fn record(&mut self, session: &Session<'_>, sums: &mut Sums) -> Result<()> {
        sums.record(session, &mut self.next)
    }

    /// Saves where the run is, unless that is saved or there is nothing yet.
    pub(super) fn save(&mut self, model: &Model) -> Result<()> {
        if self.saved == Some(self.step) || self.step == 0 {
            return Ok(());
        }
        checkpoint::save(model, self.dir, &self.what())?;
        self.saved = Some(self.step);
        Ok(())
    }

    fn what(&self) -> Save {
        Save {
            step: self.step,
            positions: self.next.clone(),
            run: self.run.clone(),
            keep: self.keep,
        }
    }

    /// What to tell the user when the run was asked to stop.
    pub(super) fn interruption(&self) -> String {
        match self.step {
            0 => "stopped before the first step: there is nothing to save".into(),
            step => format!(
                "stopped after step {step}, which is saved in `{}`: the same command with \
                 `--resume` goes on",
                self.dir.display()
            ),
        }
    }
}

/// Two fingerprints, the types first where those differ.
fn describe(had: &str, now: &str) -> String {
    let size = |text: &str| text.rsplit_once(' ').map_or(text.to_owned(), |(size, _)| size.into());
    match size(had) == size(now) {
        true => format!("{}, but not the same bytes", size(now)),
        false => format!("{} then, {} now", size(had), size(now)),
    }
}
