//! `--trace-job`: what all processes of a job did, in one file, whoever started them.
//!
//! Each process notes what it does by its own clock. When the job begins they find out how
//! far their clocks are apart; when it ends the chief gets what the others noted.

use super::args::Args;
use super::{Console, Session};
use crate::error::Result;
use crate::net::Group;
use crate::net::clock::{MOST, Offset};
use crate::profile::{self, Trace};
use std::path::Path;

/// How far this process's clock is off, if anybody wants to know.
pub(super) fn begin(args: &Args, group: &Group) -> Result<Offset> {
    match args.trace_job {
        Some(_) => group.align(),
        None => Ok(Offset::default()),
    }
}

/// Hands in what this process did; the chief writes it.
pub(super) fn end(
    session: &Session<'_>,
    group: &Group,
    clock: Offset,
    console: &mut Console<'_>,
) -> Result<()> {
    if session.args.trace_job.is_none() {
        return Ok(());
    }
    let own = Trace::of_process(group.rank(), clock, MOST - 100);
    let others = group.hand_in(&own.to_bytes(), "what was done")?;
    if !group.is_chief() {
        return Ok(());
    }
    let others = others.iter().filter_map(|bytes| Trace::from_bytes(bytes));
    write(session, std::iter::once(own).chain(others).collect(), console)
}

/// A process that runs by itself is a job of one.
pub(super) fn alone(session: &Session<'_>, console: &mut Console<'_>) -> Result<()> {
    if session.args.trace_job.is_none() {
        return Ok(());
    }
    let own = Trace::of_process(0, Offset::default(), usize::MAX);
    write(session, vec![own], console)
}

pub(super) fn write(
    session: &Session<'_>,
    all: Vec<Trace>,
    console: &mut Console<'_>,
) -> Result<()> {
    let Some(file) = &session.args.trace_job else { return Ok(()) };
    let count = all.len();
    let text = profile::join(all);
    crate::files::replace(Path::new(file), |out| out.write_all(text.as_bytes()))?;
    session.say(console, &format!("`{file}` shows {count} processes"));
    Ok(())
}
