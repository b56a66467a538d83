//! A program that was cut for a cluster, started as one of its tasks.
//!
//! Which one is said by `--role`, or by the launcher: its processes are the tasks, in
//! the order of the cluster file. The first task, the chief, does what the command line
//! says. The others read no feeds and write no files: they do their parts.

use super::args::{Args, Mode};
use super::signals;
use crate::error::{Error, ErrorCode, Result, list};
use crate::model::Model;
use crate::net::Group;
use crate::net::job::Job;
use std::sync::Arc;
use tfc_abi::plan::Plan;

/// The group of the tasks; none if this process is to do everything.
pub(super) fn join(plan: &Plan, args: &Args) -> Result<Option<Arc<Group>>> {
    if plan.tasks.len() < 2 || args.mode == Some(Mode::Local) {
        return match &args.role {
            Some(role) if plan.tasks.is_empty() => Err(not_cut(role)),
            _ => Ok(None),
        };
    }
    let from_env = std::env::var("TFC_ROLE").ok().filter(|r| !r.is_empty());
    let job = match args.role.as_deref().or(from_env.as_deref()) {
        Some(role) => Some(named(plan, role)?),
        None => Job::from_environment()?,
    };
    let Some(mut job) = job else { return Ok(None) };
    if job.size != plan.tasks.len() {
        return Err(crate::parts::wrong_size(plan.tasks.len(), job.size));
    }
    job.timeout = args.peer_timeout.unwrap_or(job.timeout);
    job.join_timeout = args.join_timeout.unwrap_or(job.join_timeout);
    args.encrypt(&mut job)?;
    Ok(Some(Arc::new(Group::join(&job, &plan.graph_hash)?)))
}

/// The task of this name. The chief listens where the cluster file says.
fn named(plan: &Plan, role: &str) -> Result<Job> {
    let names = || plan.tasks.iter().map(|t| t.name.as_str());
    let Some(rank) = names().position(|n| n == role) else {
        return Err(Error::usage(ErrorCode::BAD_JOB, format!("there is no task `{role}`"))
            .note(format!("the program was cut for {}", list(names()))));
    };
    let own = std::env::var("TFC_COORDINATOR").ok().filter(|at| !at.is_empty());
    let at = own.unwrap_or_else(|| plan.tasks[0].address.clone());
    if at.is_empty() {
        let message = format!("nobody knows where {} listens", plan.tasks[0].name);
        return Err(Error::usage(ErrorCode::BAD_JOB, message)
            .help("give its address in the cluster file, or with TFC_COORDINATOR=HOST:PORT"));
    }
    Job::of_task(rank, plan.tasks.len(), at)
}

pub(super) fn not_cut(role: &str) -> Error {
    Error::usage(ErrorCode::BAD_JOB, format!("the program has no task `{role}`"))
        .note("it was not cut for a cluster")
        .help("compile it with `tfc compile --cluster FILE.toml`")
}

/// What the chief says about the run.
pub(super) fn describe(plan: &Plan, group: &Group) -> String {
    let names = list(plan.tasks.iter().map(|t| t.name.as_str())).replace('`', "");
    format!("{names} run the program together over {}, each its part", group.engine())
}

/// Does a task's part until the chief ends.
pub(super) fn serve(model: &Model, group: Arc<Group>) -> Result<()> {
    // The chief is asked to stop as well, and decides when.
    signals::listen();
    model.serve(group)
}
