//! Running an entry over a data set, batch by batch.
//!
//! Feeds whose first size is the batch dim are cut along it; others go to every
//! call whole. The last batch of an epoch may be smaller. Over an epoch, float
//! scalars are averaged by examples, results with the batch dim are joined, and
//! of the rest the last is kept.

use super::checkpoints::{Checkpoints, Position};
use super::progress::Progress;
use super::{Console, Session};
use crate::bind::bare_dim;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::tensor::{FeedView, TensorBuf, byte_len};
use std::time::Instant;
use tfc_abi::DType;
use tfc_abi::plan::Port;

/// Examples per call when only `--epochs` or `--steps` is given.
const DEFAULT_BATCH: usize = 64;

pub(super) fn run(
    model: &Model,
    session: &Session<'_>,
    feeds: &[TensorBuf],
    mut checkpoints: Option<&mut Checkpoints<'_>>,
    console: &mut Console<'_>,
) -> Result<Vec<TensorBuf>> {
    let data = DataSet::new(model, session, feeds)?;
    let a = session.args;
    let batch = a.batch.unwrap_or(DEFAULT_BATCH).min(data.examples.max(1));
    // With --steps alone, go round until they are done.
    let epochs = a.epochs.unwrap_or(if a.steps.is_some() { usize::MAX } else { 1 });
    let limit = a.steps.unwrap_or(usize::MAX);
    let smallest = usize::try_from(model.plan().dims[data.dim as usize].min).unwrap_or(0);
    let mut step = 0;
    let mut first = (0, 0);
    if let Some(c) = &checkpoints {
        step = c.step();
        first = c.begin(data.examples, a.shuffle)?;
    }
    if step >= limit || first.0 >= epochs {
        session.say(console, &format!("the run is complete: {step} steps are done"));
    }
    let mut scratch: Vec<Vec<u8>> = vec![vec![]; feeds.len()];
    let mut results = vec![];
    for epoch in first.0..epochs {
        if step >= limit {
            break;
        }
        let order = a.shuffle.map(|seed| permutation(data.examples, seed, epoch as u64));
        let mut lo = if epoch == first.0 { first.1 } else { 0 };
        let batches = (data.examples - lo).div_ceil(batch).min(limit - step);
        let shown_epochs = if epochs == usize::MAX { None } else { Some(epochs) };
        let bar = console.terminal && !a.quiet;
        let mut progress = Progress::new(epoch + 1, shown_epochs, batches, bar);
        let started = Instant::now();
        let mut sums = Sums::new(session, data.dim);
        while lo < data.examples && step < limit {
            let hi = (lo + batch).min(data.examples);
            let shapes = data.shapes(hi - lo);
            let views = data.batch(&shapes, order.as_deref(), lo, hi, &mut scratch);
            let out = model.call(session.entry, &views)?;
            sums.add(&out, hi - lo)?;
            progress.step(console, &sums.scalars(session), sums.examples, started.elapsed());
            step += 1;
            // A last batch smaller than the graph allows is left out.
            lo = if data.examples - hi < smallest { data.examples } else { hi };
            if let Some(c) = &mut checkpoints {
                let over = lo == data.examples;
                let (epoch, example) = if over { (epoch + 1, 0) } else { (epoch, lo) };
                let (examples, shuffle) = (data.examples, a.shuffle);
                let at = Position { epoch, example, examples, shuffle };
                if c.after_step(model, Some(at))? {
                    progress.finish(console);
                    return Ok(vec![]);
                }
            }
        }
        progress.finish(console);
        if !a.quiet {
            report(session, console, (epoch + 1, shown_epochs), &sums, started.elapsed());
        }
        results = sums.finish()?;
    }
    Ok(results)
}

fn report(
    session: &Session<'_>,
    console: &mut Console<'_>,
    (epoch, epochs): (usize, Option<usize>),
    sums: &Sums,
    took: std::time::Duration,
) {
    let seconds = took.as_secs_f64();
    let rate = sums.examples as f64 / seconds.max(1e-9);
    let scalars = sums.scalars(session);
    let line = if session.args.json {
        let mut line = format!("{{\"epoch\":{epoch}");
        for (name, value) in &scalars {
            let value = if value.is_finite() { value.to_string() } else { "null".into() };
            line += &format!(",{}:{value}", crate::io::json::quote(name));
        }
        line + &format!(",\"examples\":{},\"seconds\":{seconds:.3}}}", sums.examples)
    } else {
        let of = epochs.map_or(String::new(), |n| format!("/{n}"));
        let mut line = format!("epoch {epoch}{of}:");
        for (name, value) in &scalars {
            line += &format!(" {name} {value:.6},");
        }
        line + &format!(" {} examples in {seconds:.2} s ({rate:.0} examples/s)", sums.examples)
    };
    let _ = writeln!(console.out, "{line}");
    let _ = console.out.flush();
}

/// The feeds of an entry as examples.
struct DataSet<'a> {
    feeds: &'a [TensorBuf],
    /// By feed: is it cut?
    cut: Vec<bool>,
    examples: usize,
    dim: u32,
}

impl<'a> DataSet<'a> {
    fn new(model: &Model, session: &Session<'_>, feeds: &'a [TensorBuf]) -> Result<DataSet<'a>> {
        let e = session.entry();
        let Some(dim) = model.batch_dim(session.entry) else {
            return Err(Error::data(
                "E0523",
                format!("entry `{}` cannot be run in batches", e.name),
            )
            .note("no run-time dim is the first size of its feeds, or two different ones are")
            .help("leave out --batch, --epochs, --steps and --shuffle"));
        };
        let cut: Vec<bool> = e
            .params
            .iter()
            .map(|p| p.shape.first().and_then(|id| bare_dim(&e.exprs[*id as usize])) == Some(dim))
            .collect();
        let mut first: Option<(usize, usize)> = None;
        for (i, f) in feeds.iter().enumerate().filter(|(i, _)| cut[*i]) {
            let port = &e.params[i];
            let Some(n) = f.shape.first().copied() else {
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
        Ok(DataSet { feeds, cut, examples, dim })
    }

    /// Shapes of the feeds of a batch of `n`.
    fn shapes(&self, n: usize) -> Vec<Vec<usize>> {
        let shape = |(f, cut): (&TensorBuf, &bool)| {
            let mut s = f.shape.clone();
            if *cut && let Some(first) = s.first_mut() {
                *first = n;
            }
            s
        };
        self.feeds.iter().zip(&self.cut).map(shape).collect()
    }

    /// Examples `lo..hi` of the order: a slice of the feed, or rows gathered.
    fn batch<'b>(
        &'b self,
        shapes: &'b [Vec<usize>],
        order: Option<&[u32]>,
        lo: usize,
        hi: usize,
        scratch: &'b mut [Vec<u8>],
    ) -> Vec<FeedView<'b>> {
        let mut views = vec![];
        for (((f, cut), shape), rows) in
            self.feeds.iter().zip(&self.cut).zip(shapes).zip(scratch.iter_mut())
        {
            let size = f.bytes().len() / self.examples;
            let data = match order {
                _ if !cut => f.bytes(),
                None => &f.bytes()[lo * size..hi * size],
                Some(order) => {
                    rows.clear();
                    for i in &order[lo..hi] {
                        let at = *i as usize * size;
                        rows.extend_from_slice(&f.bytes()[at..at + size]);
                    }
                    &rows[..]
                }
            };
            views.push(FeedView { dtype: f.dtype, shape, data });
        }
        views
    }
}

/// A random order, the same for the same seed and epoch everywhere.
fn permutation(n: usize, seed: u64, epoch: u64) -> Vec<u32> {
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

/// Results over an epoch.
pub(super) struct Sums {
    results: Vec<Sum>,
    examples: usize,
}

enum Sum {
    /// A float scalar: the sum of value times examples.
    Mean(DType, f64),
    /// Rows: joined.
    Rows(Option<(DType, Vec<usize>)>, Vec<u8>),
    Last(Option<TensorBuf>),
}

impl Sums {
    fn new(session: &Session<'_>, dim: u32) -> Sums {
        let e = session.entry();
        Sums::joining(session, |p| {
            p.shape.first().and_then(|id| bare_dim(&e.exprs[*id as usize])) == Some(dim)
        })
    }

    /// Joins results along their first axis where `wanted` says so by name.
    pub(super) fn of(session: &Session<'_>, wanted: impl Fn(&str) -> bool) -> Sums {
        Sums::joining(session, |p| !p.shape.is_empty() && wanted(&p.name))
    }

    fn joining(session: &Session<'_>, rows: impl Fn(&Port) -> bool) -> Sums {
        let results = session
            .entry()
            .results
            .iter()
            .map(|p| {
                if p.shape.is_empty() && p.dtype.is_float() {
                    Sum::Mean(p.dtype, 0.0)
                } else if rows(p) {
                    Sum::Rows(None, vec![])
                } else {
                    Sum::Last(None)
                }
            })
            .collect();
        Sums { results, examples: 0 }
    }

    /// Examples, or steps, so far.
    pub(super) fn examples(&self) -> usize {
        self.examples
    }

    pub(super) fn add(&mut self, out: &[TensorBuf], examples: usize) -> Result<()> {
        self.examples += examples;
        for (sum, t) in self.results.iter_mut().zip(out) {
            match sum {
                Sum::Mean(_, s) => *s += t.get_f64(0).unwrap_or(f64::NAN) * examples as f64,
                Sum::Rows(kind, bytes) => {
                    let (_, shape) = kind.get_or_insert_with(|| {
                        let mut shape = t.shape.clone();
                        shape[0] = 0;
                        (t.dtype, shape)
                    });
                    shape[0] += t.shape[0];
                    bytes.extend_from_slice(t.bytes());
                }
                Sum::Last(last) => *last = Some(t.clone()),
            }
        }
        Ok(())
    }

    /// Names and averages so far.
    pub(super) fn scalars(&self, session: &Session<'_>) -> Vec<(String, f64)> {
        let ports = &session.entry().results;
        let n = self.examples.max(1) as f64;
        ports
            .iter()
            .zip(&self.results)
            .filter_map(|(p, s)| match s {
                Sum::Mean(_, s) => Some((p.name.clone(), s / n)),
                _ => None,
            })
            .collect()
    }

    pub(super) fn finish(self) -> Result<Vec<TensorBuf>> {
        let n = self.examples.max(1) as f64;
        let odd = || Error::bug("a batch's results do not fit together");
        self.results
            .into_iter()
            .map(|s| match s {
                Sum::Mean(dtype, s) => {
                    crate::io::literal::parse("mean", dtype, &format!("{:?}", s / n))
                }
                Sum::Rows(Some((dtype, shape)), bytes)
                    if byte_len(dtype, &shape) == Some(bytes.len()) =>
                {
                    TensorBuf::from_bytes(dtype, &shape, &bytes).ok_or_else(odd)
                }
                Sum::Last(Some(t)) => Ok(t),
                _ => Err(odd()),
            })
            .collect()
    }
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
