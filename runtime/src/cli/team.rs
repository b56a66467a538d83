//! One command, run by several processes at once.
//!
//! Each takes its part of every batch; the gradients are averaged in the step itself.
//! The first process, the chief, is the one that reads and writes files, and reports:
//! it sends the variables it starts with to the others, and says where in the data
//! the run begins. A signal to one of them stops all after the same step.

use super::args::{Args, Mode};
use super::signals;
use crate::error::{Error, ErrorCode, Result};
use crate::model::Model;
use crate::net::Group;
use crate::net::collective::Reduce;
use crate::net::job::Job;
use crate::tensor::TensorBuf;
use std::sync::Arc;
use tfc_abi::DType;
use tfc_abi::plan::{Entry, Plan};

pub(super) struct Team {
    group: Option<Arc<Group>>,
    /// The run is saved, by the chief.
    pub(super) saves: bool,
}

impl Team {
    /// Nobody else.
    pub(super) fn alone() -> Team {
        Team { group: None, saves: false }
    }

    /// Joins the job that the environment describes, if there is one.
    pub(super) fn join(plan: &Plan, entry: usize, args: &Args, saves: bool) -> Result<Team> {
        if args.mode == Some(Mode::Local) {
            return Ok(Team::alone());
        }
        let Some(mut job) = Job::from_environment()? else {
            if args.mode == Some(Mode::Sync) {
                return Err(Error::usage(ErrorCode::BAD_JOB, "there is nobody to train with")
                    .note("`--mode sync` needs the environment of a launcher")
                    .help("start the processes with `tfc launch -n 2 ..`, `mpirun` or `srun`"));
            }
            return Ok(Team::alone());
        };
        job.timeout = args.peer_timeout.unwrap_or(job.timeout);
        job.join_timeout = args.join_timeout.unwrap_or(job.join_timeout);
        args.encrypt(&mut job)?;
        let e = &plan.entries[entry];
        if replica(plan, entry).is_none() {
            return Err(nothing_to_share(e, job.size));
        }
        let group = Group::join(&job, &plan.graph_hash)?;
        Ok(Team { group: Some(Arc::new(group)), saves })
    }

    pub(super) fn size(&self) -> usize {
        self.group.as_ref().map_or(1, |g| g.size())
    }

    pub(super) fn is_chief(&self) -> bool {
        self.group.as_ref().is_none_or(|g| g.is_chief())
    }

    /// What the run is, in a line for people.
    pub(super) fn describe(&self) -> Option<String> {
        let g = self.group.as_ref()?;
        Some(format!(
            "{} workers train together over {}: each takes its part of every batch",
            g.size(),
            g.engine()
        ))
    }

    /// What is left to a process that is not the chief: it neither reads nor writes
    /// the files of the run.
    pub(super) fn strip(args: &Args) -> Args {
        Args {
            quiet: true,
            state: None,
            restore: None,
            restore_map: vec![],
            checkpoint_dir: None,
            save_every: None,
            keep: None,
            resume: false,
            resume_anyway: false,
            outs: vec![],
            ..args.clone()
        }
    }

    /// Lets the model's steps use the group, and gives everybody the chief's
    /// variables.
    pub(super) fn begin(&self, model: &Model) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        model.join(group.clone());
        let mut values = vec![];
        for var in 0..model.plan().vars.len() {
            let mut value = model.read_var(var)?;
            let what = format!("variable `{}`", model.plan().vars[var].name);
            group.broadcast(value.bytes_mut(), &what)?;
            values.push((var, value));
        }
        if !self.is_chief() {
            model.write_vars(values)?;
        }
        Ok(())
    }

    /// Numbers of the chief's, for everybody.
    pub(super) fn tell<const N: usize>(&self, numbers: [usize; N]) -> Result<[usize; N]> {
        let Some(group) = &self.group else { return Ok(numbers) };
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|n| (*n as u64).to_ne_bytes()).collect();
        group.broadcast(&mut bytes, "where the run begins")?;
        let mut out = [0; N];
        for (n, b) in out.iter_mut().zip(bytes.chunks_exact(8)) {
            let mut word = [0; 8];
            word.copy_from_slice(b);
            *n = u64::from_ne_bytes(word) as usize;
        }
        Ok(out)
    }

    /// Examples a batch must have so that everybody gets as many as the graph needs.
    pub(super) fn smallest(&self, each: usize) -> usize {
        if self.size() == 1 { each } else { each.max(1) * self.size() }
    }

    pub(super) fn check_batch(&self, batch: usize, each: usize) -> Result<()> {
        let least = self.smallest(each);
        if batch >= least || self.size() == 1 {
            return Ok(());
        }
        Err(Error::data(
            ErrorCode::CANNOT_SHARE,
            format!("a batch of {batch} cannot be shared by {} workers", self.size()),
        )
        .help(format!("take at least {least}, or fewer workers")))
    }

    /// The part of the examples `lo..hi` of a step that is ours.
    pub(super) fn part(&self, lo: usize, hi: usize) -> (usize, usize) {
        let Some(group) = &self.group else { return (lo, hi) };
        let (mine_lo, mine_hi) = group.part(lo, hi);
        group.set_share(mine_hi - mine_lo, hi - lo);
        (mine_lo, mine_hi)
    }

    /// After a step: its float scalars become those of all examples, and a signal to
    /// one process is one to all.
    pub(super) fn after_step(&self, results: &mut [TensorBuf]) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        let mut scalars: Vec<&mut TensorBuf> =
            results.iter_mut().filter(|t| t.shape.is_empty() && t.dtype.is_float()).collect();
        let mut parts: Vec<(DType, &mut [u8])> = vec![];
        for t in &mut scalars {
            parts.push((t.dtype, t.bytes_mut()));
        }
        group.all_reduce(&mut parts, Reduce::Mean, "the results of the step", "")?;
        if group.agree(signals::raised().into(), "whether to stop")? > 0 {
            signals::remember();
        }
        Ok(())
    }
}

/// The version of an entry that several processes run.
pub(super) fn replica(plan: &Plan, entry: usize) -> Option<usize> {
    plan.entries.iter().position(|e| e.replica_of == Some(entry as u32))
}

fn nothing_to_share(e: &Entry, size: usize) -> Error {
    Error::usage(
        ErrorCode::CANNOT_SHARE,
        format!("`{}` has nothing that {size} workers could do together", e.name),
    )
    .note("it trains nothing: there are no gradients to average, and no `all_reduce`")
    .help("run it by itself, or with `--mode local` in every process")
}
