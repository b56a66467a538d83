//! What a parameter server knows: variables, gradients that have come, and how far
//! everybody is.

use super::super::collective::{self, Reduce};
use super::layout::Shape;
use super::rows::Rows;
use crate::error::Result;
use crate::tensor::TensorBuf;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use tfc_abi::parts::Wire;

/// A gradient, or what a shard has of it.
pub(super) enum Grad {
    Whole(TensorBuf),
    Rows(Rows, Shape),
}

impl Grad {
    pub fn scale(&mut self, by: f64) {
        match self {
            Grad::Whole(t) => {
                let dtype = t.dtype;
                collective::scale(t.bytes_mut(), dtype, by);
            }
            Grad::Rows(rows, _) => rows.scale(by),
        }
    }

    pub fn add(&mut self, other: &Grad) {
        match (self, other) {
            (Grad::Whole(sum), Grad::Whole(g)) => {
                collective::combine(sum.bytes_mut(), g.bytes(), g.dtype, Reduce::Sum);
            }
            (Grad::Rows(sum, _), Grad::Rows(g, _)) => *sum = sum.clone().merge(g),
            _ => {}
        }
    }

    pub fn whole(&self) -> Result<Cow<'_, TensorBuf>> {
        Ok(match self {
            Grad::Whole(t) => Cow::Borrowed(t),
            Grad::Rows(rows, shape) => Cow::Owned(rows.whole(shape)?),
        })
    }
}

/// All of some gradients, for a part that takes them so.
pub(super) fn wholes(grads: &[Grad]) -> Result<Vec<Cow<'_, TensorBuf>>> {
    grads.iter().map(Grad::whole).collect()
}

/// What an update made of a shard's variables.
pub(super) struct Fresh<'a> {
    /// Of these rows alone.
    pub rows: Option<&'a Rows>,
    pub values: Vec<(Wire, TensorBuf)>,
}

pub(super) struct Push {
    pub step: u64,
    pub share: f64,
    pub grads: Vec<Grad>,
    pub crosses: Vec<TensorBuf>,
    pub scalars: Vec<f64>,
    /// What became of its sums.
    pub parts: Vec<u8>,
    pub shared: Option<Vec<u8>>,
}

/// Gradients as updates take them.
pub(super) struct Combined {
    pub grads: Vec<Grad>,
    pub crosses: Vec<TensorBuf>,
    /// The answer to `Push`.
    pub parts: Vec<u8>,
}

/// The variables of a server. They are shared with those who look at them, and copied
/// if they are changed meanwhile.
#[derive(Clone, Default)]
pub(super) struct Vars {
    /// By shard of this server, then by variable of its group.
    pub shards: Vec<Vec<Arc<TensorBuf>>>,
    pub home: Vec<Arc<TensorBuf>>,
    /// Which of them have begun with infinities, by number, and so may have them.
    pub infinite: BTreeSet<u32>,
}

/// No update is begun while somebody looks, but those that are begun anywhere are
/// finished everywhere.
pub(super) struct Hold {
    /// By worker, or of all where they step together: updates before this are finished.
    pub limits: Vec<u64>,
    /// Whoever holds it has gone without a word.
    pub until: Instant,
}

#[derive(Default)]
pub(super) struct Store {
    /// When each worker has last asked for something.
    pub heard: BTreeMap<usize, Instant>,
    /// What workers did, as they have handed it in.
    pub traces: BTreeMap<usize, Vec<u8>>,
    /// Zero until there are variables.
    pub age: u64,
    /// Updates so far.
    pub step: u64,
    pub vars: Vars,
    /// The values of variables that are each worker's own, when the job began or went back.
    pub own: Vec<u8>,
    /// Variables that are on their way, and the age that they will have.
    pub coming: Option<(u64, Vars)>,
    /// Who looks at all variables at one moment, by connection.
    pub holds: BTreeMap<u64, Hold>,
    pub pushes: BTreeMap<usize, Push>,
    pub combined: Option<Combined>,
    /// The last step's answer to `Push` and, with the values for `home`, to `Shared`.
    pub answered: Option<(u64, u32, Vec<u8>)>,
    pub shared: Option<(u64, Vec<u8>, Vec<Arc<TensorBuf>>)>,
    /// By worker: its next step, the one after the last that has changed something here,
    /// connections, and the step it has read.
    pub progress: BTreeMap<usize, u64>,
    pub begun: BTreeMap<usize, u64>,
    pub present: BTreeMap<usize, usize>,
    pub read: BTreeMap<usize, u64>,
    pub ended: BTreeSet<usize>,
    pub released: bool,
    pub broken: u64,
    pub stop: bool,
    pub over: bool,
    pub dropped: BTreeMap<usize, u64>,
    /// Updates between a worker's reading and its writing: sum, most, how often.
    pub stale: [u64; 3],
}
