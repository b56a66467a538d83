//! Calling an entry again and again: one whose input comes from queues and
//! readers, until it ends, or any other `--steps` times.
//!
//! The runners the entry needs are started. Float scalars are averaged; results
//! with axes are joined along the first one where `--out` asks for them and the
//! input is a stream; of the rest the last is kept.

use super::boundary::{self, Boundary};
use super::checkpoints::Checkpoints;
use super::progress::Progress;
use super::sums::{Keep, Sums};
use super::team::After;
use super::{Console, Ran, Session, signals};
use crate::error::{Error, ErrorCode, Result};
use crate::model::Model;
use crate::queue::replay;
use crate::queue::runners::{self, Runners};
use crate::tensor::{FeedView, TensorBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tfc_abi::plan::Port;

/// Steps between two reports when their number is not known.
pub(super) const REPORT_EVERY: usize = 1000;
/// How often a waiting run looks whether it was asked to stop.
const LOOK: Duration = Duration::from_millis(50);

pub(super) fn run(
    model: &Arc<Model>,
    session: &Session<'_>,
    feeds: &[TensorBuf],
    mut checkpoints: Option<&mut Checkpoints<'_>>,
    console: &mut Console<'_>,
) -> Result<Ran> {
    not_in_batches(session)?;
    if let Some(c) = &mut checkpoints {
        can_be_resumed(session, c, console)?;
        c.identify(session, console, identity(model, session.entry)?)?;
    }
    let runners = Runners::start(model, session.entry)?;
    let over = AtomicBool::new(false);
    let result = std::thread::scope(|scope| {
        // A job stops after a step that all have done.
        if session.saves() && session.team.size() == 1 {
            // A signal is remembered rather than fatal, so a wait must end by it.
            scope.spawn(|| watch(model, &over));
        }
        let result = steps(model, session, feeds, checkpoints, console);
        over.store(true, Ordering::Release);
        result
    });
    let finished = runners.leave();
    let ran = result?;
    // Ahead of the steps that were asked for, a runner may have found something
    // wrong that these did not need.
    if ran.failed.is_none()
        && let Err(e) = finished
    {
        session.warn(console, &e);
    }
    Ok(ran)
}

/// Options that cut feeds into batches have no meaning where input comes from queues.
pub(super) fn not_in_batches(session: &Session<'_>) -> Result<()> {
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
    Ok(())
}

/// Says so where a resumed run would not get the elements that come next.
fn can_be_resumed(
    session: &Session<'_>,
    checkpoints: &Checkpoints<'_>,
    console: &mut Console<'_>,
) -> Result<()> {
    let obstacles = replay::obstacles(session.plan, session.entry);
    if obstacles.is_empty() {
        return Ok(());
    }
    let resumes = checkpoints.resumes();
    let text = match resumes {
        true => "this run cannot continue its data where it stopped",
        false => "this run cannot be resumed with the data that would have come next",
    };
    let mut e = Error::data("E0591", text);
    for what in obstacles {
        e = e.note(what);
    }
    if resumes && !session.args.resume_anyway {
        return Err(e.help(
            "`--resume-anyway` continues with the saved variables and whatever data comes; \
             `--restore` starts a new run with them",
        ));
    }
    session.warn(console, &e);
    Ok(())
}

/// What must be the same when the run is resumed: the files that are read.
pub(super) fn identity(model: &Model, entry: usize) -> Result<Vec<(String, String)>> {
    let mut out = vec![];
    for name in runners::readers(model, entry) {
        let print = model.queues().fingerprint(&name)?;
        out.push((format!("reader.{name}"), print));
    }
    Ok(out)
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
) -> Result<Ran> {
    let a = session.args;
    let views: Vec<FeedView<'_>> = feeds.iter().map(TensorBuf::view).collect();
    let at = [checkpoints.as_ref().map_or(0, |c| c.step())];
    let [first] = session.team.start(model, session, console, at)?;
    let limit = a.steps.unwrap_or(usize::MAX);
    let every = a.steps.map_or(REPORT_EVERY, |n| n.div_ceil(10));
    let bar = console.terminal && !a.quiet;
    let mut progress = Progress::steps(a.steps.map(|n| n.saturating_sub(first)), bar);
    let keep = Keep::Asked {
        checkpoints: checkpoints.as_ref().map(|c| c.dir()),
        from: checkpoints.as_ref().and_then(|c| c.results()),
    };
    let wanted = |name: &str| a.outs.iter().any(|(n, _)| n == name);
    let joins = runners::streams(model, session.entry);
    let joined = |p: &Port| joins && !p.shape.is_empty() && wanted(&p.name);
    let mut all = Sums::new(session, joined, keep)?;
    for name in &all.lost {
        session.warn(console, &lost(name, first));
    }
    let mut part = Sums::averages(session, None)?;
    let (started, mut part_started) = (Instant::now(), Instant::now());
    let mut step = first;
    let goes_back = session.saves() || session.team.is_elastic();
    let mut boundary = goes_back.then(|| Boundary::new(model, session.entry));
    let (mut interrupted, mut failed) = (false, None);
    loop {
        if step >= limit || interrupted {
            // The others wait until the chief has saved: if it is lost before, there are
            // steps to do again.
            match session.team.wait_for_chief() {
                Err(e) if session.team.outlives(&e) => {
                    match session.team.regroup(model, session, console, e, [step]) {
                        After::There([at]) => step = at,
                        After::Here => {}
                        After::Over => break,
                        After::Stopped => {
                            interrupted = true;
                            break;
                        }
                        After::Failed(why) => return Err(why),
                    }
                    interrupted = false;
                    continue;
                }
                Err(e) if !interrupted => return Err(e),
                _ => break,
            }
        }
        if let Some(b) = &mut boundary {
            b.mark(model)?;
        }
        let mut out = match model.call_with(session.entry, &views, &session.options) {
            Ok(out) => out,
            Err(e) if session.team.outlives(&e) && boundary::undone(&e) => {
                if let Some(b) = &boundary {
                    b.go_back(model)?;
                }
                match session.team.regroup(model, session, console, e, [step]) {
                    After::Here => continue,
                    After::There([at]) => {
                        step = at;
                        continue;
                    }
                    After::Over => break,
                    After::Stopped => interrupted = true,
                    After::Failed(why) => failed = Some(why),
                }
                if let Some(c) = &mut checkpoints {
                    c.record(session, &mut all)?;
                }
                break;
            }
            Err(e) => {
                // The wait was ended by a signal, or no more data comes.
                interrupted = e.code() == ErrorCode::RUNNERS_STOPPED && signals::raised();
                if !interrupted && !e.is_end_of_input() {
                    if !boundary::undone(&e) {
                        return Err(e);
                    }
                    failed = Some(e);
                }
                // A part of a step may be done: what is saved are whole ones.
                if let Some(b) = &boundary {
                    b.go_back(model)?;
                    if let Some(c) = &mut checkpoints {
                        c.set_positions(session, b.positions(), &mut all)?;
                    }
                }
                break;
            }
        };
        let asked = match session.team.after_step(model, &mut out, 1) {
            Err(e) if session.team.outlives(&e) => {
                // The chief has done the step, and so have all when they go on.
                match session.team.regroup(model, session, console, e, [step + 1]) {
                    After::Here => false,
                    After::There([at]) => {
                        step = at;
                        continue;
                    }
                    After::Over => break,
                    After::Stopped => true,
                    After::Failed(why) => {
                        failed = Some(why);
                        false
                    }
                }
            }
            asked => asked?,
        };
        step += 1;
        part.add_scalars(&out);
        all.add(out, 1)?;
        let done = step.saturating_sub(first);
        progress.step(console, &part.scalars(session), done, started.elapsed());
        interrupted = match &mut checkpoints {
            Some(c) => c.after_stream_step(model, session, console, &mut all, asked)?,
            None => asked,
        };
        if step.is_multiple_of(every) || interrupted {
            progress.finish(console);
            report(session, console, step, &part, part_started.elapsed());
            part = Sums::averages(session, None)?;
            part_started = Instant::now();
        }
        if failed.is_some() {
            if let Some(c) = &mut checkpoints {
                c.record(session, &mut all)?;
            }
            break;
        }
    }
    if !interrupted && failed.is_none() {
        session.team.finish(model)?;
    }
    progress.finish(console);
    if part.examples() > 0 {
        report(session, console, step, &part, part_started.elapsed());
    }
    let complete = step == first && !interrupted && failed.is_none();
    if complete {
        let text = match step {
            0 => "the input ended before the first step".to_owned(),
            n => format!("the run is complete: {n} steps are done"),
        };
        session.say(console, &text);
    }
    if interrupted || failed.is_some() {
        return Ok(Ran { steps: step, interrupted, failed, ..Ran::default() });
    }
    if let Some(c) = &mut checkpoints {
        c.record(session, &mut all)?;
    }
    let whole = !complete || all.lost.is_empty();
    let results = if whole { all.finish()? } else { vec![] };
    Ok(Ran { results, steps: step, complete, ..Ran::default() })
}

/// Rows from before a resume are not there.
fn lost(name: &str, from: usize) -> Error {
    Error::data("E0589", format!("result `{name}` will not be complete"))
        .note(format!(
            "it begins after step {from}: the rows before are of the run that was resumed, which \
             did not keep them"
        ))
        .help("compute it from the trained variables, by an entry that only reads them")
}

/// The averages since the last report.
pub(super) fn report(
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
