//! `--checkpoint-dir`: saving while an entry trains, and going on from what was
//! saved.
//!
//! A step is one call. Without `--save-every` a checkpoint is saved at the end of
//! each epoch; in any case at the end of the run, and when the program is asked
//! to stop.

use super::{Console, Session, signals};
use crate::checkpoint::{self, DEFAULT_KEEP, Manifest, Save};
use crate::error::{Error, Result};
use crate::model::Model;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) struct Checkpoints<'a> {
    dir: &'a Path,
    every: Option<u64>,
    keep: usize,
    /// Steps done, in this run and those before it.
    step: u64,
    /// Where in the data the next step begins.
    next: BTreeMap<String, i64>,
    saved: Option<u64>,
    resumed: Option<(Manifest, PathBuf)>,
    interrupted: bool,
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
    /// Checks the options, and looks for what to resume.
    pub(super) fn open(
        session: &Session<'a>,
        console: &mut Console<'_>,
    ) -> Result<Option<Checkpoints<'a>>> {
        let a = session.args;
        let Some(dir) = a.checkpoint_dir.as_deref().map(Path::new) else {
            let alone = [
                ("--save-every", a.save_every.is_some()),
                ("--keep", a.keep.is_some()),
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
            saved: None,
            resumed: None,
            interrupted: false,
        };
        signals::listen();
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
            let text = format!("`{}` was not saved to the end: it is not used", path.display());
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
            }
            None => {
                let text = format!("no checkpoint in `{}`: starting at step 0", self.dir.display());
                session.say(console, &text);
            }
        }
        Ok(())
    }

    /// The run goes on from a checkpoint.
    pub(super) fn resumes(&self) -> bool {
        self.resumed.is_some()
    }

    /// Brings the variables to where the checkpoint has them.
    pub(super) fn restore(&self, model: &Model) -> Result<()> {
        if let Some((manifest, path)) = &self.resumed {
            checkpoint::load_exact(model, &manifest.data(path))?;
            checkpoint::go_to_positions(model, manifest)?;
        }
        Ok(())
    }

    pub(super) fn step(&self) -> usize {
        usize::try_from(self.step).unwrap_or(usize::MAX)
    }

    /// Epoch and example to begin with. The data must be that of the run that is
    /// resumed, in the same order.
    pub(super) fn begin(&self, examples: usize, shuffle: Option<u64>) -> Result<(usize, usize)> {
        let at = |name: &str| self.next.get(name).copied();
        let (Some(epoch), Some(example)) = (at("epoch"), at("example")) else { return Ok((0, 0)) };
        let other = |what: String| {
            Error::data("E0586", "the data is not that of the run to resume")
                .note(what)
                .help("resume with the same feeds and `--shuffle`, or start a run with `--restore`")
        };
        if at("examples") != i64::try_from(examples).ok() {
            let had = at("examples").unwrap_or(0);
            return Err(other(format!("it had {had} examples, now there are {examples}")));
        }
        if at("shuffle") != shuffle.map(|s| s as i64) {
            let text = |s: Option<i64>| s.map_or("none".into(), |s| (s as u64).to_string());
            let (had, now) = (text(at("shuffle")), text(shuffle.map(|s| s as i64)));
            return Err(other(format!("its `--shuffle` was {had}, now it is {now}")));
        }
        let number = |n: i64| usize::try_from(n).unwrap_or(0);
        Ok((number(epoch), number(example).min(examples)))
    }

    /// After each step: saves if it is time to. True when the run should stop.
    pub(super) fn after_step(&mut self, model: &Model, at: Option<Position>) -> Result<bool> {
        self.step += 1;
        let ends_epoch = at.as_ref().is_none_or(|p| p.example == 0);
        self.next.clear();
        if let Some(p) = at {
            let mut put = |name: &str, n: i64| self.next.insert(name.to_owned(), n);
            put("epoch", p.epoch as i64);
            put("example", p.example as i64);
            put("examples", p.examples as i64);
            if let Some(seed) = p.shuffle {
                put("shuffle", seed as i64);
            }
        }
        self.interrupted = signals::raised();
        let due = match self.every {
            Some(n) => self.step.is_multiple_of(n),
            None => ends_epoch,
        };
        if due || self.interrupted {
            self.save(model)?;
        }
        Ok(self.interrupted)
    }

    /// As [`Checkpoints::after_step`], for a run without epochs: where it is in
    /// its data, the model knows.
    pub(super) fn after_stream_step(&mut self, model: &Model) -> Result<bool> {
        self.step += 1;
        self.interrupted = signals::raised();
        if self.every.is_some_and(|n| self.step.is_multiple_of(n)) || self.interrupted {
            self.save(model)?;
        }
        Ok(self.interrupted)
    }

    /// The run was asked to stop while it waited for data.
    pub(super) fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// Saves where the run is, unless that is saved.
    pub(super) fn save(&mut self, model: &Model) -> Result<()> {
        if self.saved == Some(self.step) {
            return Ok(());
        }
        let what = Save { step: self.step, positions: self.next.clone(), keep: self.keep };
        checkpoint::save(model, self.dir, &what)?;
        self.saved = Some(self.step);
        Ok(())
    }

    /// What to tell the user when the run was asked to stop.
    pub(super) fn interruption(&self) -> Option<String> {
        self.interrupted.then(|| {
            format!(
                "stopped after step {}, which is saved in `{}`: the same command with `--resume` goes on",
                self.step,
                self.dir.display()
            )
        })
    }
}
