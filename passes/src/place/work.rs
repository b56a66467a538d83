//! What work and messages take, in nanoseconds; rough, and the same for all tasks.

use super::NOMINAL;
use crate::cluster::Cluster;
use tfc_ir::{Dim, Func, Graph, Node, RegionId, TensorType, cost};

/// Operations in a nanosecond, of one process on its CPU.
const FLOPS: f64 = 20.0;
/// Bytes of memory in a nanosecond.
const MEMORY: f64 = 10.0;
/// How often a loop is taken to go round.
const ROUNDS: f64 = 16.0;

pub(crate) struct Estimates<'a> {
    pub graph: &'a Graph,
    pub cluster: &'a Cluster,
}

impl Estimates<'_> {
    /// A size, with run-time dims at their nominal values.
    pub fn size(&self, dim: &Dim) -> f64 {
        nominal(self.graph, dim)
    }

    /// What a node takes, with all that is in it.
    pub fn work(&self, func: &Func, node: &Node) -> f64 {
        let cost = cost::node(self.graph, func, node);
        let flops = self.size(&cost.flops) / FLOPS;
        let bytes = (self.size(&cost.read) + self.size(&cost.written)) / MEMORY;
        let rounds = if node.regions.is_empty() { 1.0 } else { ROUNDS };
        let region = |r: &RegionId| -> f64 {
            let nodes = &func.regions[*r].nodes;
            nodes.iter().map(|id| self.work(func, &func.nodes[*id])).sum()
        };
        let inside: f64 = node.regions.iter().map(region).sum();
        // Most of what elementwise nodes read, fusion keeps in registers.
        flops.max(bytes / 4.0) + rounds * inside
    }

    /// What it takes until a tensor is at another task.
    pub fn transfer(&self, ty: &TensorType) -> f64 {
        let bytes = self.size(&ty.elements()) * ty.dtype.size() as f64;
        self.cluster.latency + bytes / self.cluster.bandwidth
    }
}

/// A size, with run-time dims at their nominal values.
pub(crate) fn nominal(graph: &Graph, dim: &Dim) -> f64 {
    let value = |name: &str| {
        let decl = graph.dims.iter().find(|d| &*d.name == name);
        Some(decl.map_or(NOMINAL, |d| NOMINAL.clamp(d.min, d.max.max(d.min))))
    };
    dim.eval(&value).map_or(f64::MAX.sqrt(), |n| n as f64)
}
