//! Results over many calls.
//!
//! Float scalars are averaged, rows are joined where `--out` asks for them, and
//! of the rest the last is kept. With a checkpoint the sums so far are saved, so
//! that results of a resumed run are whole.

use super::Session;
use super::rows::Rows;
use crate::error::{Error, Result};
use crate::tensor::TensorBuf;
use std::collections::BTreeMap;
use std::path::Path;
use tfc_abi::DType;
use tfc_abi::plan::Port;

pub(super) struct Sums {
    results: Vec<Sum>,
    examples: usize,
    /// Results whose rows before the resume are not there any more.
    pub(super) lost: Vec<String>,
}

enum Sum {
    /// A float scalar: the sum of value times examples.
    Mean(DType, f64),
    Rows(Rows),
    Last(Option<TensorBuf>),
    /// Rows that nobody asked for.
    Unwanted,
}

/// A result to write.
pub(super) enum Finished {
    Tensor(TensorBuf),
    Rows(Rows),
}

/// Which rows are kept, and where.
#[derive(Clone, Copy)]
pub(super) enum Keep<'a> {
    /// None: only averages matter.
    Nothing,
    /// Those of `--out`.
    Asked {
        /// In this directory instead of beside the results.
        checkpoints: Option<&'a Path>,
        /// What [`Sums::record`] noted in the run to resume.
        from: Option<&'a BTreeMap<String, i64>>,
    },
}

impl Sums {
    /// `joined` says which results have rows.
    pub(super) fn new(
        session: &Session<'_>,
        joined: impl Fn(&Port) -> bool,
        keep: Keep<'_>,
    ) -> Result<Sums> {
        let mut out = Sums { results: vec![], examples: 0, lost: vec![] };
        let from = match keep {
            Keep::Asked { from, .. } => from,
            Keep::Nothing => None,
        };
        let at = |key: String| from.and_then(|f| f.get(&key)).copied();
        if let Some(n) = at("sum.examples".into()) {
            out.examples = usize::try_from(n).unwrap_or(0);
        }
        for p in &session.entry().results {
            let target = session.args.outs.iter().find(|(n, _)| *n == p.name);
            let sum = if p.shape.is_empty() && p.dtype.is_float() {
                let bits = at(format!("sum.{}", p.name)).unwrap_or(0);
                Sum::Mean(p.dtype, f64::from_bits(bits as u64))
            } else if !joined(p) {
                Sum::Last(None)
            } else {
                match (target, keep) {
                    (Some((_, file)), Keep::Asked { checkpoints: None, .. }) => {
                        Sum::Rows(Rows::beside(Path::new(file), p.dtype)?)
                    }
                    (Some(_), Keep::Asked { checkpoints: Some(dir), .. }) => {
                        let path = dir.join(format!("{}.rows", p.name));
                        let sizes = (0..).map_while(|i| at(format!("rows.{}.{i}", p.name)));
                        let shape: Vec<usize> =
                            sizes.map(|n| usize::try_from(n).unwrap_or(0)).collect();
                        let mut rows = None;
                        if !shape.is_empty() {
                            rows = Rows::kept(&path, p.dtype, &shape)?;
                        }
                        if from.is_some() && rows.is_none() {
                            out.lost.push(p.name.clone());
                        }
                        let rows = match rows {
                            Some(rows) => Some(rows),
                            None => Rows::kept(&path, p.dtype, &[])?,
                        };
                        Sum::Rows(rows.ok_or_else(|| Error::bug("a new file of rows is refused"))?)
                    }
                    _ => Sum::Unwanted,
                }
            };
            out.results.push(sum);
        }
        Ok(out)
    }

    /// Only averages, going on from those that [`Sums::record`] noted.
    pub(super) fn averages(
        session: &Session<'_>,
        from: Option<&BTreeMap<String, i64>>,
    ) -> Result<Sums> {
        let mut sums = Sums::new(session, |p| !p.shape.is_empty(), Keep::Nothing)?;
        if let Some(from) = from
            && let Some(n) = from.get("sum.examples")
        {
            sums.examples = usize::try_from(*n).unwrap_or(0);
            for (p, sum) in session.entry().results.iter().zip(&mut sums.results) {
                if let Sum::Mean(_, s) = sum {
                    let bits = from.get(&format!("sum.{}", p.name)).copied().unwrap_or(0);
                    *s = f64::from_bits(bits as u64);
                }
            }
        }
        Ok(sums)
    }

    /// Examples, or steps, so far.
    pub(super) fn examples(&self) -> usize {
        self.examples
    }

    pub(super) fn add(&mut self, out: Vec<TensorBuf>, examples: usize) -> Result<()> {
        self.examples += examples;
        for (sum, t) in self.results.iter_mut().zip(out) {
            match sum {
                Sum::Mean(_, s) => *s += t.get_f64(0).unwrap_or(f64::NAN) * examples as f64,
                Sum::Rows(rows) => rows.add(&t)?,
                Sum::Last(last) => *last = Some(t),
                Sum::Unwanted => {}
            }
        }
        Ok(())
    }

    /// Float scalars of one more call, by reference.
    pub(super) fn add_scalars(&mut self, out: &[TensorBuf]) {
        self.examples += 1;
        for (sum, t) in self.results.iter_mut().zip(out) {
            if let Sum::Mean(_, s) = sum {
                *s += t.get_f64(0).unwrap_or(f64::NAN);
            }
        }
    }

    /// Notes the sums so far in the positions of a checkpoint; rows so far are on
    /// disk after it.
    pub(super) fn record(
        &mut self,
        session: &Session<'_>,
        positions: &mut BTreeMap<String, i64>,
    ) -> Result<()> {
        positions.insert("sum.examples".into(), self.examples as i64);
        for (p, sum) in session.entry().results.iter().zip(&mut self.results) {
            match sum {
                Sum::Mean(_, s) => {
                    positions.insert(format!("sum.{}", p.name), s.to_bits() as i64);
                }
                Sum::Rows(rows) => {
                    rows.sync()?;
                    for (i, n) in rows.shape.iter().enumerate() {
                        positions.insert(format!("rows.{}.{i}", p.name), *n as i64);
                    }
                }
                _ => {}
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

    /// The results, where there are any.
    pub(super) fn finish(self) -> Result<Vec<Option<Finished>>> {
        let examples = self.examples;
        self.results
            .into_iter()
            .map(|s| match s {
                Sum::Mean(..) if examples == 0 => Ok(None),
                Sum::Mean(dtype, s) => {
                    let mean = format!("{:?}", s / examples as f64);
                    let t = crate::io::literal::parse("mean", dtype, &mean)?;
                    Ok(Some(Finished::Tensor(t)))
                }
                Sum::Rows(rows) if rows.shape.is_empty() => Ok(None),
                Sum::Rows(rows) => Ok(Some(Finished::Rows(rows))),
                Sum::Last(t) => Ok(t.map(Finished::Tensor)),
                Sum::Unwanted => Ok(None),
            })
            .collect()
    }
}
