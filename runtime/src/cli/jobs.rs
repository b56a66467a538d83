//! A command that several processes run together, as opposed to one by itself.
//!
//! Nothing of the command line refers to what it takes (messages, encryption, parameter
//! servers) but [`TFC_JOBS`], which only programs that can be part of a job name in their
//! descriptor, so that the others are linked without it.

use super::args::{Args, Mode};
use super::team::Team;
use super::{
    Console, End, Program, Session, call_options, destinations, served, tasks, team, trace,
};
use crate::error::{Error, ErrorCode, Result};
use crate::model::Model;
use crate::net::job::Job;

/// See above.
pub struct Jobs {
    pub(super) run: fn(&Session<'_>, &dyn Program, &mut Console<'_>) -> Result<Option<End>>,
    pub(super) attach: fn(&Session<'_>, &Model) -> Result<()>,
}

/// See [`Jobs`].
#[unsafe(export_name = "tfc_jobs")]
pub static TFC_JOBS: Jobs = Jobs { run, attach: served::attach };

/// Runs the command as part of the job there is; none if there is none.
fn run(
    session: &Session<'_>,
    program: &dyn Program,
    console: &mut Console<'_>,
) -> Result<Option<End>> {
    let Session { plan, entry, args, .. } = *session;
    let options = || call_options(args);
    if let Some(group) = tasks::join(plan, args)? {
        let session = Session { tasks: Some(group.clone()), options: options(), ..*session };
        let clock = trace::begin(args, &group)?;
        if !group.is_chief() {
            let model = session.prepared(program, session.load_options()?, console)?;
            tasks::serve(&model, group.clone())?;
            trace::end(&session, &group, clock, console)?;
            return Ok(Some(End::Done));
        }
        session.say(console, &tasks::describe(plan, &group));
        destinations::check(&session)?;
        session.advise(console);
        let end = session.execute(program, false, console)?;
        trace::end(&session, &group, clock, console)?;
        return Ok(Some(end));
    }
    if let Some(served) = served::Served::find(args)? {
        return served.run(program, plan, entry, args, console).map(Some);
    }
    let Some(team) = Team::join(plan, entry, args, session.saves())? else { return Ok(None) };
    let args = &team.own_files(args);
    let clock = team.clock(args)?;
    if !team.is_chief() {
        // The chief does the talking; errors are everybody's own.
        let helper = Team::strip(args);
        let (mut out, mut err) = (std::io::sink(), std::io::stderr());
        let mut silent = Console { out: &mut out, err: &mut err, terminal: false };
        let (args, options) = (&helper, call_options(&helper));
        let session = Session { plan, entry, args, team: &team, tasks: None, options };
        let end = session.execute(program, false, &mut silent)?;
        // Those that it leaves at work are to see that it is not there any more.
        if !team.leaves() {
            team.leave();
        }
        team.trace(&session, clock, &mut silent)?;
        return Ok(Some(end));
    }
    let session = Session { plan, entry, args, team: &team, tasks: None, options: options() };
    for text in team.found.iter().chain(&team.describe()) {
        session.say(console, text);
    }
    destinations::check(&session)?;
    session.advise(console);
    let end = session.execute(program, false, console)?;
    // All is saved.
    team.dismiss()?;
    team.trace(&session, clock, console)?;
    Ok(Some(end))
}

/// A program that was linked without jobs because it cannot be part of one is not asked to.
pub(super) fn none(session: &Session<'_>) -> Result<()> {
    let Args { mode, role, cluster, .. } = session.args;
    if *mode == Some(Mode::Local) {
        return Ok(());
    }
    if let Some(role) = role {
        return Err(tasks::not_cut(role));
    }
    if cluster.is_some() {
        let message = "no entry of this program learns with parameter servers";
        return Err(Error::usage(ErrorCode::CANNOT_SHARE, message));
    }
    match (Job::from_environment()?, mode) {
        (Some(job), _) => Err(team::nothing_to_share(session.entry(), job.size)),
        (None, Some(mode)) => Err(team::nobody(*mode)),
        (None, None) => Ok(()),
    }
}
