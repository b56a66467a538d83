//! Running an entry whose input comes from queues and readers, until it ends.
//!
//! The runners the entry needs are started, and the entry is called again and
//! again: `--steps` times, or until its input ends. Float scalars are averaged;
//! results with axes are joined along the first one where `--out` asks for them;
//! of the rest the last is kept.

use super::batches::Sums;
use super::checkpoints::Checkpoints;
use super::progress::Progress;
use super::{Console, Session, signals};
use crate::error::{Error, ErrorCode, Result};
use crate::model::Model;
use crate::queue::runners::Runners;
use crate::tensor::{FeedView, TensorBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps between two reports when their number is not known.
const REPORT_EVERY: usize = 1000;
/// How often a waiting run looks whether it was asked to stop.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn run(
    model: &Arc<Model>,
    session: &Session<'_>,
    feeds: &[TensorBuf],
    checkpoints: Option<&mut Checkpoints<'_>>,
    console: &mut Console<'_>,
) -> Result<Vec<TensorBuf>> {
    let a = session.args;
    if a.batch.is_some() || a.epochs.is_some() || a.shuffle.is_some() {
        return Err(Error::usage(
            "E0523",
            format!("entry `{}` takes its input from queues", session.entry().name),
        )
        .note("--batch, --epochs and --shuffle cut feeds into batches")
        .help(
            "batches are made by `dequeue_many`, epochs by a reader's `epochs:`, another order by \
             a `shuffle` queue; `--steps N` stops after N calls",
        ));
    }
    let runners = Runners::start(model, session.entry)?;
    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        if checkpoints.is_some() {
            // A signal is remembered rather than fatal, so a wait must end by it.
            scope.spawn(|| watch(model, &over));
        }
        let result = steps(model, session, feeds, checkpoints, console);
        over.store(true, Ordering::Release);
        result
    });
    let finished = runners.leave();
    let results = result?;
    finished.map(|()| results)
}

fn watch(model: &Model, over: &AtomicBool) {
    while !over.load(Ordering::Acquire) {
        if signals::raised() {
            model.queues().stop(&Error::data("E0571", "the run was asked to stop"));
            return;
        }
        std::thread::sleep(LOOK);
    }
}

fn steps(
    model: &Arc<Model>,
    session: &Session<'_>,
    feeds: &[TensorBuf],
    mut checkpoints: Option<&mut Checkpoints<'_>>,
    console: &mut Console<'_>,
) -> Result<Vec<TensorBuf>> {
    let a = session.args;
    let views: Vec<FeedView<'_>> = feeds.iter().map(TensorBuf::view).collect();
    let first = checkpoints.as_ref().map_or(0, |c| c.step());
    let limit = a.steps.unwrap_or(usize::MAX);
    let every = a.steps.map_or(REPORT_EVERY, |n| n.div_ceil(10));
    let wanted = |name: &str| a.outs.iter().any(|(n, _)| n == name);
    let bar = console.terminal && !a.quiet;
    let mut progress = Progress::steps(a.steps.map(|n| n.saturating_sub(first)), bar);
    let mut all = Sums::of(session, wanted);
    let mut part = Sums::of(session, |_| false);
    let (started, mut part_started) = (Instant::now(), Instant::now());
    let mut step = first;
    while step < limit {
        let out = match model.call(session.entry, &views) {
            Ok(out) => out,
            Err(e) if e.is_end_of_input() => break,
            // The wait was ended by a signal.
            Err(e) if e.code() == ErrorCode::RUNNERS_STOPPED && signals::raised() => {
                if let Some(c) = &mut checkpoints {
                    c.interrupt();
                }
                break;
            }
            Err(e) => return Err(e),
        };
        step += 1;
        all.add(&out, 1)?;
        part.add(&out, 1)?;
        progress.step(console, &part.scalars(session), step - first, started.elapsed());
        let stop = match &mut checkpoints {
            Some(c) => c.after_stream_step(model)?,
            None => false,
        };
        if step.is_multiple_of(every) || stop {
            progress.finish(console);
            report(session, console, step, &part, part_started.elapsed());
            part = Sums::of(session, |_| false);
            part_started = Instant::now();
        }
        if stop {
            break;
        }
    }
    progress.finish(console);
    if part.examples() > 0 {
        report(session, console, step, &part, part_started.elapsed());
    }
    if step == first {
        session.say(console, "the input ended before the first step");
        return Ok(vec![]);
    }
    all.finish()
}

/// The averages since the last report.
fn report(
    session: &Session<'_>,
    console: &mut Console<'_>,
    step: usize,
    sums: &Sums,
    took: Duration,
) {
    if session.args.quiet {
        return;
    }
    let scalars = sums.scalars(session);
    let seconds = took.as_secs_f64();
    let line = if session.args.json {
        let mut line = format!("{{\"step\":{step}");
        for (name, value) in &scalars {
            let value = if value.is_finite() { value.to_string() } else { "null".into() };
            line += &format!(",{}:{value}", crate::io::json::quote(name));
        }
        line + &format!(",\"steps\":{},\"seconds\":{seconds:.3}}}", sums.examples())
    } else {
        let mut line = format!("step {step}:");
        for (name, value) in &scalars {
            line += &format!(" {name} {value:.6},");
        }
        let rate = sums.examples() as f64 / seconds.max(1e-9);
        line + &format!(" {} steps in {seconds:.2} s ({rate:.0} steps/s)", sums.examples())
    };
    let _ = writeln!(console.out, "{line}");
    let _ = console.out.flush();
}
