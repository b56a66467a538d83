//! `bench ENTRY`: how long a call takes.

use super::{Console, Session};
use crate::error::Result;
use crate::model::Model;
use crate::queue::runners::Runners;
use crate::tensor::{FeedView, ResultView, TensorBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEFAULT_TIME: Duration = Duration::from_secs(1);
/// Calls before the clock counts: caches, threads, frequency.
const WARM_UP: usize = 3;

pub(super) fn run(
    model: &Arc<Model>,
    session: &Session<'_>,
    feeds: &[TensorBuf],
    console: &mut Console<'_>,
) -> Result<()> {
    let views: Vec<FeedView<'_>> = feeds.iter().map(TensorBuf::view).collect();
    let runners = Runners::start(model, session.entry)?;
    let mut results = model.call(session.entry, &views)?;
    let mut call = || {
        let mut out: Vec<ResultView<'_>> =
            results.iter_mut().map(|r| ResultView { data: r.bytes_mut() }).collect();
        model.run(session.entry, &views, &mut out)
    };
    for _ in 0..WARM_UP {
        call()?;
    }
    let limit = session.args.time.unwrap_or(DEFAULT_TIME);
    let started = Instant::now();
    let mut times = vec![];
    while times.is_empty() || started.elapsed() < limit {
        let t = Instant::now();
        match call() {
            Ok(()) => times.push(t.elapsed()),
            Err(e) if e.is_end_of_input() && !times.is_empty() => break,
            Err(e) => return Err(e),
        }
    }
    runners.finish()?;
    times.sort_unstable();
    let (min, median) = (times[0], times[times.len() / 2]);
    let name = &session.entry().name;
    let line = if session.args.json {
        format!(
            "{{\"bench\":{},\"calls\":{},\"min_ns\":{},\"median_ns\":{},\"threads\":{}}}",
            crate::io::json::quote(name),
            times.len(),
            min.as_nanos(),
            median.as_nanos(),
            model.pool().threads()
        )
    } else {
        format!(
            "{name}: min {}, median {} ({} calls, {} threads)",
            human(min),
            human(median),
            times.len(),
            model.pool().threads()
        )
    };
    let _ = writeln!(console.out, "{line}");
    Ok(())
}

fn human(d: Duration) -> String {
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
