//! `--mode average`: workers that train by themselves for a while, and then agree.
//!
//! Every worker does some steps alone, on its part of the data or on data of its own.
//! Then the weights become their mean over the workers, weighted by the examples each
//! has seen since. With `--outer ENTRY` the mean is not taken as it is: the entry is
//! given how far the weights have come, as `delta_w` for the variable `w`, with the
//! weights as they were before, and does with it what it wants. Federated averaging is
//! this mode without an outer entry; DiLoCo is one with Nesterov's momentum in it.
//!
//! What an optimizer keeps for a weight (moments) is each worker's own.

use super::args::Args;
use crate::error::{Error, ErrorCode, Result};
use crate::model::Model;
use crate::net::Group;
use crate::net::collective::Reduce;
use crate::tensor::{FeedView, TensorBuf};
use std::sync::{Mutex, PoisonError};
use tfc_abi::plan::{Entry, Plan};

pub(super) struct Average {
    every: usize,
    outer: Option<usize>,
    /// Variables that are averaged.
    vars: Vec<usize>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    steps: usize,
    /// Since the last time.
    examples: u64,
    /// The weights of all workers, as they were then.
    last: Vec<TensorBuf>,
}

impl Average {
    pub(super) fn new(plan: &Plan, entry: usize, args: &Args) -> Result<Average> {
        let usage = |text: String| Error::usage("E0914", text);
        let every = args
            .local_steps
            .ok_or_else(|| usage("`--mode average` needs `--local-steps`, such as 10".into()))?;
        if let Some(n) = args.save_every.filter(|n| !n.is_multiple_of(every)) {
            return Err(usage(format!(
                "`--save-every {n}` is no multiple of `--local-steps {every}`"
            ))
            .note("between two averages every worker has variables of its own"));
        }
        let e = &plan.entries[entry];
        let written = |v: &usize| e.writes.contains(&(*v as u32));
        let weights = |v: &usize| plan.vars[*v].user && plan.vars[*v].dtype.is_float();
        let vars: Vec<usize> = (0..plan.vars.len()).filter(written).filter(weights).collect();
        if vars.is_empty() {
            return Err(Error::usage(
                ErrorCode::CANNOT_SHARE,
                format!("`{}` changes no weights that could be averaged", e.name),
            ));
        }
        let outer = match &args.outer {
            Some(name) => Some(outer(plan, name, &vars)?),
            None => None,
        };
        Ok(Average { every, outer, vars, inner: Mutex::default() })
    }

    pub(super) fn describe(&self, size: usize) -> String {
        format!(
            "{size} workers train by themselves, and average their weights every {} steps",
            self.every
        )
    }

    /// The weights that all begin with.
    pub(super) fn begin(&self, model: &Model) -> Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.last = self.weights(model)?;
        Ok(())
    }

    fn weights(&self, model: &Model) -> Result<Vec<TensorBuf>> {
        self.vars.iter().map(|v| model.read_var(*v)).collect()
    }

    /// After a step of so many examples; true if the workers have met.
    pub(super) fn step(&self, model: &Model, group: &Group, examples: usize) -> Result<bool> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.steps += 1;
        inner.examples += examples as u64;
        if !inner.steps.is_multiple_of(self.every) {
            return Ok(false);
        }
        self.meet(model, group, &mut inner)?;
        Ok(true)
    }

    /// At the end of a run: what was done since the last time counts, too.
    pub(super) fn finish(&self, model: &Model, group: &Group) -> Result<()> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.steps.is_multiple_of(self.every) {
            true => Ok(()),
            false => self.meet(model, group, &mut inner),
        }
    }

    fn meet(&self, model: &Model, group: &Group, inner: &mut Inner) -> Result<()> {
        let all = group.total(inner.examples, "the examples of this round")?;
        group.set_share(
            usize::try_from(inner.examples).unwrap_or(usize::MAX),
            usize::try_from(all).unwrap_or(usize::MAX),
        );
        let mut mean = self.weights(model)?;
        for (value, var) in mean.iter_mut().zip(&self.vars) {
            let dtype = value.dtype;
            let what = format!("variable `{}`", model.plan().vars[*var].name);
            group.all_reduce(&mut [(dtype, value.bytes_mut())], Reduce::Mean, &what, "")?;
        }
        let Some(outer) = self.outer else {
            let values = self.vars.iter().copied().zip(mean.iter().cloned()).collect();
            model.write_vars(values)?;
            (inner.last, inner.examples) = (mean, 0);
            return Ok(());
        };
        let mut deltas = vec![];
        for (old, new) in inner.last.iter().zip(&mean) {
            deltas.push(difference(old, new)?);
        }
        let old = self.vars.iter().copied().zip(inner.last.iter().cloned()).collect();
        model.write_vars(old)?;
        let plan = model.plan();
        let mut feeds: Vec<FeedView<'_>> = vec![];
        for port in &plan.entries[outer].params {
            let named = |v: &usize| port.name == format!("delta_{}", plan.vars[*v].name);
            let at = self.vars.iter().position(named);
            let at = at.ok_or_else(|| Error::bug("an outer entry has another param"))?;
            feeds.push(deltas[at].view());
        }
        // Weights without a delta take the mean.
        let given: Vec<&str> = plan.entries[outer].params.iter().map(|p| p.name.as_str()).collect();
        let plain =
            self.vars.iter().zip(&mean).filter(|(v, _)| {
                !given.contains(&format!("delta_{}", plan.vars[**v].name).as_str())
            });
        model.write_vars(plain.map(|(v, t)| (*v, t.clone())).collect())?;
        model.call(outer, &feeds)?;
        (inner.last, inner.examples) = (self.weights(model)?, 0);
        Ok(())
    }
}

/// `old - new`: which way a step of the outer optimizer goes back.
fn difference(old: &TensorBuf, new: &TensorBuf) -> Result<TensorBuf> {
    let mut out = old.clone();
    let mut less = new.clone();
    let dtype = new.dtype;
    crate::net::collective::negate(less.bytes_mut(), dtype);
    crate::net::collective::add(out.bytes_mut(), less.bytes(), dtype);
    Ok(out)
}

/// The entry of `--outer`: its params are differences of weights.
fn outer(plan: &Plan, name: &str, vars: &[usize]) -> Result<usize> {
    let at = super::find_entry(plan, name)?;
    let e: &Entry = &plan.entries[at];
    let known = |name: &str| vars.iter().any(|v| name == format!("delta_{}", plan.vars[*v].name));
    match e.params.iter().find(|p| !known(&p.name)) {
        None if !e.writes.is_empty() => Ok(at),
        None => {
            Err(Error::usage("E0914", format!("`{name}` changes nothing, so it is no outer step")))
        }
        Some(p) => Err(Error::usage(
            "E0914",
            format!("`{}`, a parameter of `{name}`, is not the change of a weight", p.name),
        )
        .help("call it `delta_w` for the variable `w`")),
    }
}
