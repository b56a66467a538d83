//! What a worker of a job with parameter servers computes its steps on.
//!
//! Where it is in the data follows from the step alone: the examples of a batch are
//! numbered, and what comes out of queues and readers is taken by all workers in the same
//! numbers. So a worker that was restarted, comes late, or goes back finds its data again.

use super::batches::{self, DataSet, permutation};
use super::checkpoints::Position;
use super::progress::Progress;
use super::stream::{self, REPORT_EVERY};
use super::sums::Sums;
use super::{Console, Session, whole};
use crate::error::{Error, ErrorCode, Result};
use crate::io::Data;
use crate::model::Model;
use crate::queue::replay::{obstacles, taken_by, variables_of_runners};
use crate::queue::runners::{Runners, streams};
use crate::tensor::{FeedView, TensorBuf};
use std::sync::Arc;
use std::time::Duration;

pub(super) enum Input {
    Batches(Batches),
    Stream(Stream),
}

/// Feeds, cut into batches of which each worker has a part.
pub(super) struct Batches {
    data: DataSet,
    batch: usize,
    per_epoch: u64,
    epochs: u64,
    limit: u64,
    shuffle: Option<u64>,
    /// Which worker of how many.
    place: (usize, usize),
    order: Option<(u64, Vec<u32>)>,
    shapes: Vec<Vec<usize>>,
    scratch: Vec<Vec<u8>>,
}

/// What comes out of queues and readers, of which each worker takes its share.
pub(super) struct Stream {
    model: Arc<Model>,
    /// The worker's part of the entry.
    gradients: usize,
    /// Feeds that every step gets.
    feeds: Vec<TensorBuf>,
    /// Elements that a step of all workers takes, by queue.
    takes: Vec<(usize, u64)>,
    workers: usize,
    limit: u64,
    /// Steps between two reports.
    every: u64,
    runners: Option<Runners>,
    /// The step whose data comes next.
    at: Option<u64>,
}

impl Input {
    /// Worker `place.0` of `place.1`; `gradients` is its part of the entry.
    pub(super) fn new(
        model: &Arc<Model>,
        session: &Session<'_>,
        gradients: usize,
        feeds: Vec<Data>,
        place: (usize, usize),
    ) -> Result<Input> {
        match streams(model, session.entry) {
            true => Stream::new(model, session, gradients, feeds, place).map(Input::Stream),
            false => Batches::new(model, session, feeds, place).map(Input::Batches),
        }
    }

    /// The number of examples, where they are numbered.
    pub(super) fn examples(&self) -> Option<usize> {
        match self {
            Input::Batches(b) => Some(b.data.examples),
            Input::Stream(_) => None,
        }
    }

    /// What must be the same when the run is resumed.
    pub(super) fn identity(&self, session: &Session<'_>) -> Result<Vec<(String, String)>> {
        match self {
            Input::Batches(b) => b.data.identity(session, b.batch),
            Input::Stream(s) => stream::identity(&s.model, session.entry),
        }
    }

    /// How many steps there are, if the data does not end before.
    pub(super) fn steps(&self) -> u64 {
        match self {
            Input::Batches(b) => b.epochs.saturating_mul(b.per_epoch).min(b.limit),
            Input::Stream(s) => s.limit,
        }
    }

    /// Which of the parts of a run that are reported a step belongs to.
    pub(super) fn part(&self, step: u64) -> u64 {
        match self {
            Input::Batches(b) => step / b.per_epoch,
            Input::Stream(s) => step / s.every,
        }
    }

    pub(super) fn progress(
        &self,
        session: &Session<'_>,
        step: u64,
        console: &Console<'_>,
    ) -> Progress {
        let bar = console.terminal && !session.args.quiet;
        match self {
            Input::Batches(b) => {
                let left =
                    (b.per_epoch - step % b.per_epoch).min(self.steps().saturating_sub(step));
                Progress::new((step / b.per_epoch) as usize + 1, b.shown(), left as usize, bar)
            }
            Input::Stream(_) => {
                let left = session.args.steps.map(|n| n.saturating_sub(step as usize));
                Progress::steps(left, bar)
            }
        }
    }

    /// Says what the steps since the last report came to; the last of them was `from`, and
    /// `to` is next.
    pub(super) fn report(
        &self,
        session: &Session<'_>,
        console: &mut Console<'_>,
        (from, to): (u64, u64),
        sums: &Sums,
        took: Duration,
    ) {
        if session.args.quiet {
            return;
        }
        match self {
            Input::Batches(b) => {
                let epoch = ((from / b.per_epoch) as usize + 1, b.shown());
                batches::report(session, console, epoch, sums, took);
            }
            Input::Stream(_) => stream::report(session, console, to as usize, sums, took),
        }
    }

    /// Stops what reads ahead, so that positions can be changed.
    pub(super) fn rest(&mut self) {
        if let Input::Stream(s) = self {
            s.runners = None;
            s.at = None;
        }
    }

    /// The data of a step comes next. `positions` are those of queues and readers at some
    /// step before.
    pub(super) fn go_to(&mut self, model: &Model, step: u64, positions: &[i64]) -> Result<()> {
        match self {
            Input::Stream(s) if s.at != Some(step) => s.go_to(model, step, positions),
            _ => Ok(()),
        }
    }

    /// Where a step begins, for a checkpoint; of queues and readers the model knows it.
    pub(super) fn position(
        &mut self,
        model: &Model,
        step: u64,
        positions: &[i64],
    ) -> Result<Option<Position>> {
        self.go_to(model, step, positions)?;
        let Input::Batches(b) = self else { return Ok(None) };
        Ok(Some(Position {
            epoch: (step / b.per_epoch) as usize,
            example: (step % b.per_epoch) as usize * b.batch,
            examples: b.data.examples,
            shuffle: b.shuffle,
        }))
    }

    /// What this worker feeds in a step, how much of the step's examples that is, and how
    /// many these are.
    pub(super) fn take(&mut self, step: u64) -> Result<(Vec<FeedView<'_>>, f64, usize)> {
        match self {
            Input::Batches(b) => b.take(step),
            Input::Stream(s) => {
                s.at = Some(step + 1);
                let views = s.feeds.iter().map(TensorBuf::view).collect();
                Ok((views, 1.0 / s.workers as f64, 1))
            }
        }
    }
}

impl Batches {
    fn new(
        model: &Model,
        session: &Session<'_>,
        feeds: Vec<Data>,
        place: (usize, usize),
    ) -> Result<Batches> {
        let a = session.args;
        let count = feeds.len();
        let data = DataSet::new(model, session, feeds)?;
        let batch = a.batch.unwrap_or(usize::MAX).min(data.examples);
        let least = usize::try_from(model.plan().dims[data.dim as usize].min).unwrap_or(0);
        let smallest = least.max(1) * place.1;
        if batch < smallest {
            return Err(Error::data(
                ErrorCode::CANNOT_SHARE,
                format!("a batch of {batch} cannot be shared by {} workers", place.1),
            )
            .help(format!("use at least {smallest}, or fewer workers")));
        }
        Ok(Batches {
            per_epoch: data.batches(0, batch, smallest).max(1) as u64,
            epochs: a.epochs.unwrap_or(if a.steps.is_some() { usize::MAX } else { 1 }) as u64,
            limit: a.steps.unwrap_or(usize::MAX) as u64,
            shuffle: a.shuffle,
            data,
            batch,
            place,
            order: None,
            shapes: vec![],
            scratch: vec![vec![]; count],
        })
    }

    /// The number of epochs, where there is one.
    fn shown(&self) -> Option<usize> {
        (self.epochs < u64::MAX).then_some(self.epochs as usize)
    }

    fn take(&mut self, step: u64) -> Result<(Vec<FeedView<'_>>, f64, usize)> {
        let Batches { data, batch, per_epoch, shuffle, order, shapes, scratch, .. } = self;
        let (epoch, index) = (step / *per_epoch, step % *per_epoch);
        if let Some(seed) = *shuffle
            && order.as_ref().is_none_or(|(of, _)| *of != epoch)
        {
            *order = Some((epoch, permutation(data.examples, seed, epoch)));
        }
        let lo = index as usize * *batch;
        let hi = (lo + *batch).min(data.examples);
        let ((r, n), len) = (self.place, hi - lo);
        let mine = (lo + len * r / n, lo + len * (r + 1) / n);
        *shapes = data.shapes(mine.1 - mine.0);
        let rows = order.as_ref().map(|(_, rows)| rows.as_slice());
        let views = data.batch(shapes, rows, mine.0, mine.1, scratch)?;
        Ok((views, (mine.1 - mine.0) as f64 / len as f64, len))
    }
}

impl Stream {
    fn new(
        model: &Arc<Model>,
        session: &Session<'_>,
        gradients: usize,
        feeds: Vec<Data>,
        (rank, workers): (usize, usize),
    ) -> Result<Stream> {
        stream::not_in_batches(session)?;
        let name = &session.entry().name;
        let refused = |why: &str| {
            Error::data(
                ErrorCode::CANNOT_SHARE,
                format!("what `{name}` takes from queues and readers cannot be found again"),
            )
            .note("with parameter servers, where a worker is in the data follows from the step")
            .note(why.to_owned())
            .help("train with `--mode sync` and no servers, or on feeds with `--batch`")
        };
        if let Some(why) = obstacles(session.plan, session.entry).first() {
            return Err(refused(why));
        }
        let part = session.plan.entries.get(gradients);
        let Some(takes) = part.and_then(taken_by) else {
            return Err(refused("it takes other numbers of elements in other steps"));
        };
        let takes = takes.into_iter().map(|(q, n)| (q, n * workers as u64)).collect();
        model.share_data(rank, workers);
        let a = session.args;
        Ok(Stream {
            model: model.clone(),
            gradients,
            feeds: whole(feeds)?,
            takes,
            workers,
            limit: a.steps.map_or(u64::MAX, |n| n as u64),
            every: a.steps.map_or(REPORT_EVERY, |n| n.div_ceil(10)).max(1) as u64,
            runners: None,
            at: None,
        })
    }

    fn go_to(&mut self, model: &Model, step: u64, positions: &[i64]) -> Result<()> {
        self.runners = None;
        self.at = None;
        let [from, numbers @ ..] = positions else {
            return Err(Error::bug("nobody knows where the data is"));
        };
        let steps = step.saturating_sub(u64::try_from(*from).unwrap_or(0));
        let mut known = model.queues().positions();
        let places = known.iter_mut().flat_map(|(_, p)| p);
        places.zip(numbers).for_each(|(place, n)| *place = *n);
        let further: Vec<(usize, u64)> =
            self.takes.iter().map(|(q, n)| (*q, n.saturating_mul(steps))).collect();
        // What runners keep for themselves begins anew, as their work does.
        for var in variables_of_runners(model.plan()) {
            model.start(var as usize)?;
        }
        model.queues().set_positions_after(&known, &further)?;
        self.runners = Some(Runners::start(&self.model, self.gradients)?);
        self.at = Some(step);
        Ok(())
    }
}
