//! Running an entry over a data set, batch by batch.
//!
//! Feeds whose first size is the batch dim are cut along it; others go to every
//! call whole. Without `--batch` a batch is all there is. The last batch of an
//! epoch may be smaller. Over an epoch, float scalars are averaged by examples;
//! of the last one, results with the batch dim are joined where `--out` asks for
//! them, and of the rest the last is kept.

use super::boundary::{self, Boundary};
use super::checkpoints::{Checkpoints, Position};
use super::progress::Progress;
use super::sums::{Keep, Sums};
use super::team::After;
use super::{Console, Ran, Session, fingerprint};
use crate::bind::bare_dim;
use crate::error::{Error, Result};
use crate::io::Data;
use crate::model::Model;
use crate::tensor::FeedView;
use std::time::Instant;

pub(super) fn run(
    model: &Model,
    session: &Session<'_>,
    feeds: Vec<Data>,
    mut checkpoints: Option<&mut Checkpoints<'_>>,
    console: &mut Console<'_>,
) -> Result<Ran> {
    let count = feeds.len();
    let data = DataSet::new(model, session, feeds)?;
    let a = session.args;
    let batch = a.batch.unwrap_or(usize::MAX).min(data.examples);
    // With --steps alone, go round until they are done.
    let epochs = a.epochs.unwrap_or(if a.steps.is_some() { usize::MAX } else { 1 });
    let limit = a.steps.unwrap_or(usize::MAX);
    let smallest = usize::try_from(model.plan().dims[data.dim as usize].min).unwrap_or(0);
    session.team.check_batch(batch, smallest)?;
    let smallest = session.team.smallest(smallest);
    let steps = epochs.saturating_mul(data.batches(0, batch, smallest)).min(limit);
    let (epochs, limit) = match session.team.agree_steps(steps)? {
        // Data of its own: as many steps as the one with most.
        Some(all) => (usize::MAX, all),
        None => (epochs, limit),
    };
    let mut step = 0;
    let mut first = (0, 0);
    if let Some(c) = &mut checkpoints {
        step = c.step();
        first = c.begin(session, console, data.examples)?;
        c.identify(session, console, data.identity(session, batch)?)?;
    }
    let at = [step, first.0, first.1];
    let [step_at, epoch_at, example_at] = session.team.start(model, session, console, at)?;
    (step, first) = (step_at, (epoch_at, example_at));
    if a.batch.is_none() {
        let text = format!("without `--batch`, every step takes all {} examples", data.examples);
        session.say(console, &text);
    }
    let joined = |p: &tfc_abi::plan::Port| {
        let e = session.entry();
        p.shape.first().and_then(|id| bare_dim(&e.exprs[*id as usize])) == Some(data.dim)
    };
    if step >= limit || first.0 >= epochs {
        session.say(console, &format!("the run is complete: {step} steps are done"));
        // What the last part of the run did not come to write.
        let (dir, from) = (checkpoints.as_ref().map(|c| c.dir()), checkpoints.as_ref());
        let from = from.and_then(|c| c.results()).filter(|r| r.contains_key("sum.examples"));
        let keep = match from {
            Some(_) => Keep::Asked { checkpoints: dir, from },
            None => Keep::Nothing,
        };
        let sums = Sums::new(session, joined, keep)?;
        let whole = from.is_some() && sums.lost.is_empty();
        let results = if whole { sums.finish()? } else { vec![] };
        return Ok(Ran { results, steps: step, complete: true, ..Ran::default() });
    }
    let mut scratch: Vec<Vec<u8>> = vec![vec![]; count];
    let mut results = vec![];
    let goes_back = session.saves() || session.team.is_elastic();
    let mut boundary = goes_back.then(|| Boundary::new(model, session.entry));
    let mut epoch = first.0;
    let mut interrupted = false;
    loop {
        'epochs: while epoch < epochs && step < limit {
            let order = a.shuffle.map(|seed| permutation(data.examples, seed, epoch as u64));
            let resumed = epoch == first.0 && first.1 > 0;
            let mut lo = if resumed { first.1 } else { 0 };
            let batches = data.batches(lo, batch, smallest);
            // Only the results of the last epoch are written.
            let last = epoch + 1 == epochs || limit - step <= batches;
            let batches = batches.min(limit - step);
            let shown_epochs = if epochs == usize::MAX { None } else { Some(epochs) };
            let bar = console.terminal && !a.quiet;
            let mut progress = Progress::new(epoch + 1, shown_epochs, batches, bar);
            let started = Instant::now();
            let from = checkpoints.as_ref().and_then(|c| c.results()).filter(|_| resumed);
            let dir = checkpoints.as_ref().map(|c| c.dir());
            let mut sums = match (last, from) {
                (true, from) => Sums::new(session, joined, Keep::Asked { checkpoints: dir, from })?,
                (false, Some(from)) => Sums::averages(session, Some(from))?,
                (false, None) => Sums::averages(session, None)?,
            };
            for name in &sums.lost {
                session.warn(console, &lost(name, lo, epoch + 1));
            }
            while lo < data.examples && step < limit {
                let hi = (lo + batch).min(data.examples);
                let mine = session.team.part(lo, hi);
                let shapes = data.shapes(mine.1 - mine.0);
                let views = data.batch(&shapes, order.as_deref(), mine.0, mine.1, &mut scratch)?;
                if let Some(b) = &mut boundary {
                    b.mark(model)?;
                }
                let mut out = match model.call_with(session.entry, &views, &session.options) {
                    Ok(out) => out,
                    Err(e) => {
                        let Some(b) = boundary.as_ref().filter(|_| boundary::undone(&e)) else {
                            return Err(e);
                        };
                        b.go_back(model)?;
                        let here = [step, epoch, lo];
                        let failed = match session.team.regroup(model, session, console, e, here) {
                            After::Here => continue,
                            After::There(at) => {
                                (step, epoch, first) = (at[0], at[1], (at[1], at[2]));
                                continue 'epochs;
                            }
                            After::Over => break 'epochs,
                            After::Stopped => None,
                            After::Failed(why) if session.saves() => Some(why),
                            After::Failed(why) => return Err(why),
                        };
                        progress.finish(console);
                        if let Some(c) = &mut checkpoints {
                            c.record(session, &mut sums)?;
                        }
                        let interrupted = failed.is_none();
                        return Ok(Ran { steps: step, interrupted, failed, ..Ran::default() });
                    }
                };
                // The step is done but not agreed on: the last checkpoint is what counts.
                let agreed = session.team.after_step(model, &mut out, mine.1 - mine.0);
                sums.add(out, hi - lo)?;
                progress.step(console, &sums.scalars(session), sums.examples(), started.elapsed());
                step += 1;
                // A last batch smaller than the graph allows is left out.
                lo = if data.examples - hi < smallest { data.examples } else { hi };
                let mut ended = None;
                let asked = match agreed {
                    Err(e) if session.team.outlives(&e) => {
                        // The chief has done the step, and so have all when they go on.
                        let here = [step, epoch, lo];
                        match session.team.regroup(model, session, console, e, here) {
                            After::Here => false,
                            After::There(at) => {
                                (step, epoch, first) = (at[0], at[1], (at[1], at[2]));
                                continue 'epochs;
                            }
                            After::Over => break 'epochs,
                            After::Stopped => true,
                            After::Failed(why) if session.saves() => {
                                ended = Some(why);
                                false
                            }
                            After::Failed(why) => return Err(why),
                        }
                    }
                    agreed => agreed?,
                };
                let stop = match &mut checkpoints {
                    Some(c) => {
                        let over = lo == data.examples;
                        let (epoch, example) = if over { (epoch + 1, 0) } else { (epoch, lo) };
                        let (examples, shuffle) = (data.examples, a.shuffle);
                        let at = Position { epoch, example, examples, shuffle };
                        c.after_step(model, session, console, Some(at), Some(&mut sums), asked)?
                    }
                    None => asked,
                };
                if ended.is_some() {
                    progress.finish(console);
                    if let Some(c) = &mut checkpoints {
                        c.record(session, &mut sums)?;
                    }
                    return Ok(Ran { steps: step, failed: ended, ..Ran::default() });
                }
                if stop {
                    progress.finish(console);
                    interrupted = true;
                    break 'epochs;
                }
            }
            progress.finish(console);
            if !a.quiet {
                report(session, console, (epoch + 1, shown_epochs), &sums, started.elapsed());
            }
            if last && let Some(c) = &mut checkpoints {
                c.record(session, &mut sums)?;
            }
            results = sums.finish()?;
            epoch += 1;
        }
        // The others wait until the chief has saved: if it is lost before, there are steps
        // to do again.
        match session.team.wait_for_chief() {
            Err(e) if session.team.outlives(&e) => {
                let here = [step, epoch, 0];
                match session.team.regroup(model, session, console, e, here) {
                    After::There(at) => (step, epoch, first) = (at[0], at[1], (at[1], at[2])),
                    After::Here => {}
                    After::Over => break,
                    After::Stopped => {
                        interrupted = true;
                        break;
                    }
                    After::Failed(why) => return Err(why),
                }
                interrupted = false;
            }
            // Without it nothing is gone on with.
            Err(_) if interrupted => break,
            waited => break waited?,
        }
    }
    if interrupted {
        return Ok(Ran { steps: step, interrupted, ..Ran::default() });
    }
    session.team.finish(model)?;
    Ok(Ran { results, steps: step, ..Ran::default() })
}

/// Rows from before a resume are not there.
fn lost(name: &str, from: usize, epoch: usize) -> Error {
    Error::data("E0589", format!("result `{name}` will not be complete"))
        .note(format!(
            "it begins with example {from} of epoch {epoch}: the rows before are of the run that \
             was resumed, which did not keep them"
        ))
        .help("compute it from the trained variables, by an entry that only reads them")
}

pub(super) fn report(
    session: &Session<'_>,
    console: &mut Console<'_>,
    (epoch, epochs): (usize, Option<usize>),
    sums: &Sums,
    took: std::time::Duration,
) {
    let seconds = took.as_secs_f64();
    let examples = sums.examples();
    let rate = examples as f64 / seconds.max(1e-9);
    let scalars = sums.scalars(session);
    let line = if session.args.json {
        let mut line = format!("{{\"epoch\":{epoch}");
        for (name, value) in &scalars {
            let value = if value.is_finite() { value.to_string() } else { "null".into() };
            line += &format!(",{}:{value}", crate::io::json::quote(name));
        }
        line + &format!(",\"examples\":{},\"seconds\":{seconds:.3}}}", examples)
    } else {
        let of = epochs.map_or(String::new(), |n| format!("/{n}"));
        let mut line = format!("epoch {epoch}{of}:");
        for (name, value) in &scalars {
            line += &format!(" {name} {value:.6},");
        }
        line + &format!(" {} examples in {seconds:.2} s ({rate:.0} examples/s)", examples)
    };
    let _ = writeln!(console.out, "{line}");
    let _ = console.out.flush();
}

/// The feeds of an entry as examples.
pub(super) struct DataSet {
    feeds: Vec<Data>,
    /// By feed: is it cut?
    cut: Vec<bool>,
    pub(super) examples: usize,
    pub(super) dim: u32,
}

impl DataSet {
    pub(super) fn new(model: &Model, session: &Session<'_>, feeds: Vec<Data>) -> Result<DataSet> {
        let e = session.entry();
        let Some(dim) = model.batch_dim(session.entry) else {
            return Err(Error::data(
                "E0523",
                format!("entry `{}` cannot be run in batches", e.name),
            )
            .note("no run-time dim is the first size of its feeds, or two different ones are")
            .help(
                "leave out --batch, --epochs and --shuffle; `--steps N` alone calls it N times",
            ));
        };
        let cut: Vec<bool> = e
            .params
            .iter()
            .map(|p| p.shape.first().and_then(|id| bare_dim(&e.exprs[*id as usize])) == Some(dim))
            .collect();
        let mut first: Option<(usize, usize)> = None;
        for (i, f) in feeds.iter().enumerate().filter(|(i, _)| cut[*i]) {
            let port = &e.params[i];
            let Some(n) = f.shape().first().copied() else {
                return Err(Error::data(
                    "E0504",
                    format!(
                        "feed `{}` must be {}, but was given {}",
                        port.name,
                        port.text,
                        f.type_text()
                    ),
                ));
            };
            match first {
                None => first = Some((i, n)),
                Some((_, m)) if m == n => {}
                Some((j, m)) => {
                    let name = &model.plan().dims[dim as usize].name;
                    let other = &e.params[j];
                    return Err(Error::data(
                        "E0506",
                        format!(
                            "feeds `{}` and `{}` disagree about {name}: {m} and {n}",
                            other.name, port.name
                        ),
                    )
                    .note(format!("`{}` is {} and has {m} examples", other.name, other.text))
                    .note(format!("`{}` is {} and has {n} examples", port.name, port.text)));
                }
            }
        }
        let examples = first.map_or(0, |(_, n)| n);
        if examples == 0 {
            return Err(Error::data("E0523", "the feeds hold no examples"));
        }
        let feeds = feeds.into_iter().zip(&cut);
        let feeds = feeds.map(|(f, cut)| match cut {
            true => Ok(f),
            // Every call gets all of it.
            false => f.whole().map(Data::Whole),
        });
        Ok(DataSet { feeds: feeds.collect::<Result<_>>()?, cut, examples, dim })
    }

    /// Steps from an example to the end of the epoch.
    pub(super) fn batches(&self, from: usize, batch: usize, smallest: usize) -> usize {
        let left = self.examples - from;
        // A last batch smaller than the graph allows is left out.
        let whole = left / batch;
        let rest = left % batch;
        whole + usize::from(rest > 0 && (rest >= smallest || whole == 0))
    }

    /// What must be the same when the run is resumed.
    pub(super) fn identity(
        &self,
        session: &Session<'_>,
        batch: usize,
    ) -> Result<Vec<(String, String)>> {
        let mut out = vec![("batch".to_owned(), batch.to_string())];
        let ports = &session.entry().params;
        for ((port, f), _) in ports.iter().zip(&self.feeds).zip(&self.cut).filter(|(_, cut)| **cut)
        {
            let print = fingerprint(f)?;
            out.push((format!("feed.{}", port.name), format!("{} {print}", f.type_text())));
        }
        Ok(out)
    }

    /// Shapes of the feeds of a batch of `n`.
    pub(super) fn shapes(&self, n: usize) -> Vec<Vec<usize>> {
        let shape = |(f, cut): (&Data, &bool)| {
            let mut s = f.shape().to_vec();
            if *cut && let Some(first) = s.first_mut() {
                *first = n;
            }
            s
        };
        self.feeds.iter().zip(&self.cut).map(shape).collect()
    }

    /// Examples `lo..hi` of the order: a slice of the feed, or rows gathered or read.
    pub(super) fn batch<'b>(
        &'b self,
        shapes: &'b [Vec<usize>],
        order: Option<&[u32]>,
        lo: usize,
        hi: usize,
        scratch: &'b mut [Vec<u8>],
    ) -> Result<Vec<FeedView<'b>>> {
        let mut views = vec![];
        for (((f, cut), shape), rows) in
            self.feeds.iter().zip(&self.cut).zip(shapes).zip(scratch.iter_mut())
        {
            let size = f.len() / self.examples;
            let data = match order {
                _ if !cut => f.bytes(0, f.len(), rows)?,
                None => f.bytes(lo * size, (hi - lo) * size, rows)?,
                Some(order) => {
                    rows.clear();
                    for i in &order[lo..hi] {
                        f.append(*i as usize * size, size, rows)?;
                    }
                    &rows[..]
                }
            };
            views.push(FeedView { dtype: f.dtype(), shape, data });
        }
        Ok(views)
    }
}

/// A random order, the same for the same seed and epoch everywhere.
pub(super) fn permutation(n: usize, seed: u64, epoch: u64) -> Vec<u32> {
    let mut state = seed ^ epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        // splitmix64
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let mut order: Vec<u32> = (0..n as u32).collect();
    for i in (1..n).rev() {
        let j = ((u128::from(next()) * (i as u128 + 1)) >> 64) as usize;
        order.swap(i, j);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permutations_are_complete_and_differ() {
        let a = permutation(1000, 1, 0);
        let mut sorted = a.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<u32>>());
        assert_eq!(a, permutation(1000, 1, 0));
        assert_ne!(a, permutation(1000, 1, 1));
        assert_ne!(a, permutation(1000, 2, 0));
    }
}
