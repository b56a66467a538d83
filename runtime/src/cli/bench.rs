//! `bench ENTRY`: how long a call takes. `tfc bench` measures with the same code
//! and takes the same options.

use super::{Console, Session};
use crate::call::CallOptions;
use crate::error::Result;
use crate::io::json::quote;
use crate::model::Model;
use crate::peaks;
use crate::profile::Profile;
use crate::queue::runners::Runners;
use crate::tensor::{FeedView, ResultView, TensorBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub const DEFAULT_TIME: Duration = Duration::from_secs(1);
/// Calls before the clock counts: caches, pages, threads, frequency.
pub const DEFAULT_WARMUP: usize = 3;
/// More are not kept, however short they are.
const MAX_CALLS: usize = 1_000_000;

/// How long to go on.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    pub time: Duration,
    /// Instead of `time`.
    pub calls: Option<usize>,
    pub warmup: usize,
}

/// What calls took, the shortest first; at least one.
#[derive(Clone, Debug)]
pub struct Times(Vec<Duration>);

impl Times {
    pub fn calls(&self) -> usize {
        self.0.len()
    }

    pub fn min(&self) -> Duration {
        self.0.first().copied().unwrap_or_default()
    }

    pub fn median(&self) -> Duration {
        self.0.get(self.0.len() / 2).copied().unwrap_or_default()
    }

    pub fn mean(&self) -> Duration {
        self.0.iter().sum::<Duration>() / self.0.len().max(1) as u32
    }

    /// One line of JSON; `more` are further members.
    pub fn json(&self, entry: &str, threads: usize, more: &[(&str, String)]) -> String {
        let more: String = more.iter().map(|(k, v)| format!(",{}:{v}", quote(k))).collect();
        format!(
            "{{\"bench\":{},\"calls\":{},\"min_ns\":{},\"median_ns\":{},\"mean_ns\":{},\"threads\":{threads}{more}}}",
            quote(entry),
            self.calls(),
            self.min().as_nanos(),
            self.median().as_nanos(),
            self.mean().as_nanos(),
        )
    }
}

/// Calls again and again. An input that ends, ends it.
pub fn measure(effort: Effort, mut call: impl FnMut() -> Result<()>) -> Result<Times> {
    for _ in 0..effort.warmup {
        call()?;
    }
    let started = Instant::now();
    let mut times = vec![];
    loop {
        let t = Instant::now();
        match call() {
            Ok(()) => times.push(t.elapsed()),
            Err(e) if e.is_end_of_input() && !times.is_empty() => break,
            Err(e) => return Err(e),
        }
        let done = match effort.calls {
            Some(calls) => times.len() >= calls,
            None => started.elapsed() >= effort.time || times.len() >= MAX_CALLS,
        };
        if done {
            break;
        }
    }
    times.sort_unstable();
    Ok(Times(times))
}

pub(super) fn run(
    model: &Arc<Model>,
    session: &Session<'_>,
    feeds: &[TensorBuf],
    console: &mut Console<'_>,
) -> Result<()> {
    let views: Vec<FeedView<'_>> = feeds.iter().map(TensorBuf::view).collect();
    let runners = Runners::start(model, session.entry)?;
    let mut results = model.call(session.entry, &views)?;
    let args = session.args;
    let effort = Effort {
        time: args.time.unwrap_or(DEFAULT_TIME),
        calls: args.calls,
        warmup: args.warmup.unwrap_or(DEFAULT_WARMUP),
    };
    let mut out: Vec<ResultView<'_>> =
        results.iter_mut().map(|r| ResultView { data: r.bytes_mut() }).collect();
    let times = measure(effort, || model.run(session.entry, &views, &mut out))?;
    runners.finish()?;
    let (name, threads) = (&session.entry().name, model.pool().threads());
    let line = if args.json {
        times.json(name, threads, &[])
    } else {
        format!(
            "{name}: min {}, median {}, mean {} ({}, {})",
            human(times.min()),
            human(times.median()),
            human(times.mean()),
            count(times.calls(), "call"),
            count(threads, "thread"),
        )
    };
    console.say(&line)?;
    if !args.by_step && args.profile.is_none() {
        return Ok(());
    }
    let profile = match &session.options.profile {
        Some(profile) => Arc::clone(profile),
        None => Arc::new(Profile::new()),
    };
    let options = CallOptions::new().profile(&profile);
    let calls = profiled_calls(&times);
    for _ in 0..calls {
        model.run_with(session.entry, &views, &mut out, &options)?;
    }
    if args.by_step {
        // What the CPU can do says nothing about a GPU.
        let peaks = model.accelerator.is_none().then(|| peaks::measure(model.pool()));
        console.say(profile.table(calls, peaks).trim_end())?;
    }
    session.write_profile()
}

/// How many calls a table of steps is made of: about a quarter of a second.
pub fn profiled_calls(times: &Times) -> usize {
    let ns = times.median().as_nanos().max(1);
    (250_000_000 / ns).clamp(1, 1000) as usize
}

/// `1 call`, `2 calls`.
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

pub fn human(d: Duration) -> String {
    let ns = d.as_nanos() as f64;
    match ns {
        n if n < 1e3 => format!("{n} ns"),
        n if n < 1e6 => format!("{:.2} us", n / 1e3),
        n if n < 1e9 => format!("{:.2} ms", n / 1e6),
        n => format!("{:.2} s", n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        assert_eq!(human(Duration::from_nanos(999)), "999 ns");
        assert_eq!(human(Duration::from_nanos(1500)), "1.50 us");
        assert_eq!(human(Duration::from_millis(2500)), "2.50 s");
    }
}
