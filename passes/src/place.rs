//! Which task of a cluster computes what.
//!
//! What `on` says is kept. A variable and everything that touches it is on one task,
//! and so is a loop or a branch with all that is in it, and the loops that share a
//! stack. Of such groups, those that nothing constrains go where they would be done
//! first, in the order of the text: when the task is free, its operands are there
//! (messages take time), and the work is done. A literal, or one repeated, is nowhere:
//! each task makes its own.
//!
//! Estimates take run-time dims to be [`NOMINAL`]; nothing but the choice depends on
//! them, and the choice is the same each time.
//!
//! Invariants
//! - Afterwards every variable and every node that is not such a literal has a whole
//!   device name, `/job:a/task:1/cpu:0`.
//! - Params, results and queues are on the first task, the chief.

mod groups;
mod work;

use crate::cluster::Cluster;
use crate::pipeline::{Details, PassOptions, Passed};
use groups::{Groups, Unit};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use tfc_ir::diag::Diag;
use tfc_ir::lower::Lower;
use tfc_ir::text::device;
use tfc_ir::{Func, Graph, Node, NodeId, RegionId, ValueId};
use work::Estimates;

pub(crate) use work::nominal;

/// What a run-time dim is taken to be, within its bounds.
pub(crate) const NOMINAL: i64 = 64;

/// Why something is where it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Reason {
    pub entry: String,
    /// What was placed, in the user's words.
    pub what: String,
    pub task: String,
    pub why: String,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {} on {}: {}", self.entry, self.what, self.task, self.why)
    }
}

pub fn place(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    let Some(cluster) = &options.cluster else { return Ok(Passed::new(graph, false)) };
    if graph.entries.iter().any(|f| f.task.is_some()) {
        // It has been cut already.
        return Ok(Passed::new(graph, false));
    }
    let cluster = &cluster.with_devices(options.gpus);
    let groups = Groups::of(&graph, cluster)?;
    let mut placer = Placer {
        cluster,
        estimates: Estimates { graph: &graph, cluster },
        chosen: groups.fixed.clone(),
        groups: &groups,
        reasons: vec![],
    };
    for (index, func) in graph.entries.iter().enumerate() {
        placer.entry(index, func);
    }
    let (chosen, reasons) = (placer.chosen, placer.reasons);
    let task_of = |group: usize| chosen[group].unwrap_or(0);
    let placed = graph.clone();
    let entries = placed.entries.iter().enumerate().map(|(index, func)| {
        let mut func = func.clone();
        for &id in &graph.entries[index].regions[func.body].nodes {
            if let Some(group) = groups.units.get(&(index, id)) {
                settle(&mut func, id, cluster, task_of(*group));
            }
        }
        func
    });
    let entries: Vec<Func> = entries.collect();
    let mut vars = placed.vars;
    for (id, var) in vars.iter_mut() {
        // Queues are the CPU's, whatever else a task has.
        let kept = (!var.symbol.is_variable()).then_some("/cpu:0");
        let name = whole(cluster, task_of(groups.vars[&id]), var.device.as_deref().or(kept));
        var.device = Some(name);
    }
    let changed = entries.iter().zip(&graph.entries).any(|(a, b)| differs(a, b))
        || vars.values().zip(graph.vars.values()).any(|(a, b)| a.device != b.device);
    let graph = Graph { entries, vars, ..graph };
    Ok(Passed { graph, changed, details: Details::Placed(reasons) })
}

fn differs(a: &Func, b: &Func) -> bool {
    a.nodes.values().zip(b.nodes.values()).any(|(x, y)| x.device != y.device)
}

/// Puts a node, and all that is in it, on a task.
fn settle(func: &mut Func, id: NodeId, cluster: &Cluster, task: usize) {
    let node = &mut func.nodes[id];
    node.device = Some(whole(cluster, task, node.device.as_deref()));
    for region in node.regions.clone() {
        for inner in func.regions[region].nodes.clone() {
            settle(func, inner, cluster, task);
        }
    }
}

/// The whole name of a device of a task: the one that was asked for, or its first.
fn whole(cluster: &Cluster, task: usize, asked: Option<&str>) -> Arc<str> {
    let task = &cluster.tasks[task];
    let local = asked.and_then(device::local);
    let exact = local.filter(|l| l.contains(':'));
    let local = match (exact, local) {
        (Some(exact), _) => exact,
        (None, Some(kind)) => {
            task.devices.iter().find(|d| d.starts_with(kind)).map_or(kind, |d| d.as_str())
        }
        (None, None) => task.devices.first().map_or("/cpu:0", |d| d.as_str()),
    };
    Arc::from(format!("{}{local}", task.name()))
}

/// Whether every task that needs a node makes its own: a literal, a size, a number that
/// follows from them, or one of these laid out in another way.
pub(crate) fn is_everywhere(func: &Func, node: &Node) -> bool {
    let def = node.op.def();
    let plain = node.op.is_pure() && node.regions.is_empty() && node.var.is_none();
    let source = |v: &ValueId| func.def(*v).is_some_and(|d| is_everywhere(func, &func.nodes[d]));
    let number =
        matches!(def.lower, Lower::Map(_)) && node.results.iter().all(|v| func.ty(*v).rank() == 0);
    plain
        && match node.operands.len() {
            0 => true,
            1 if def.facts.moves.sources(1).is_some() => node.operands.iter().all(source),
            _ => number && node.operands.iter().all(source),
        }
}

/// The values from outside that a node uses, in its regions too.
pub(crate) fn uses(func: &Func, node: &Node) -> BTreeSet<ValueId> {
    fn inside(func: &Func, region: RegionId, own: &mut BTreeSet<ValueId>, out: &mut Vec<ValueId>) {
        own.extend(&func.regions[region].params);
        for id in &func.regions[region].nodes {
            let node = &func.nodes[*id];
            out.extend(&node.operands);
            for r in &node.regions {
                inside(func, *r, own, out);
            }
            own.extend(&node.results);
        }
        out.extend(&func.regions[region].results);
    }
    let (mut own, mut out) = (BTreeSet::new(), node.operands.clone());
    for region in &node.regions {
        inside(func, *region, &mut own, &mut out);
    }
    out.into_iter().filter(|v| !own.contains(v)).collect()
}

struct Placer<'a> {
    cluster: &'a Cluster,
    estimates: Estimates<'a>,
    groups: &'a Groups,
    /// By group.
    chosen: Vec<Option<usize>>,
    reasons: Vec<Reason>,
}

/// When and where a value is there.
#[derive(Clone, Copy)]
struct Made {
    task: usize,
    at: f64,
}

impl Placer<'_> {
    fn entry(&mut self, index: usize, func: &Func) {
        let mut made: BTreeMap<ValueId, Made> = BTreeMap::new();
        made.extend(func.params().iter().map(|p| (*p, Made { task: 0, at: 0.0 })));
        let mut sent: BTreeMap<(ValueId, usize), f64> = BTreeMap::new();
        let mut free = vec![0.0; self.cluster.tasks.len()];
        // Values of variables that are nowhere yet: they cost nothing to have.
        let mut undecided: BTreeMap<ValueId, usize> = BTreeMap::new();
        for &id in &func.regions[func.body].nodes {
            let Some(&group) = self.groups.units.get(&(index, id)) else { continue };
            let node = &func.nodes[id];
            let fixed = self.groups.fixed[group];
            if self.chosen[group].is_none() && node.var.is_some() && node.operands.is_empty() {
                undecided.extend(node.results.iter().map(|v| (*v, group)));
                continue;
            }
            let used = uses(func, node);
            let work = self.estimates.work(func, node);
            let ready = |task: usize| {
                used.iter().filter_map(|v| Some((v, made.get(v)?))).fold(0.0, |latest, (v, m)| {
                    let there = match sent.get(&(*v, task)) {
                        _ if m.task == task => m.at,
                        Some(at) => *at,
                        None => m.at + self.estimates.transfer(func.ty(*v)),
                    };
                    f64::max(latest, there)
                })
            };
            let done = |task: usize| f64::max(free[task], ready(task)) + work;
            let task = match self.chosen[group] {
                Some(task) => task,
                None => {
                    let may = &self.groups.allowed[group];
                    let first = |a: &usize, b: &usize| done(*a).total_cmp(&done(*b));
                    may.iter().copied().min_by(first).unwrap_or(0)
                }
            };
            let why = match (fixed, self.chosen[group]) {
                (Some(_), _) => self.groups.because[group].clone(),
                (None, Some(_)) => format!("with {}", self.groups.because[group]),
                (None, None) => self.compare(task, group, work, &done),
            };
            self.reasons.push(Reason {
                entry: func.name.clone(),
                what: groups::describe(func, node),
                task: self.cluster.tasks[task].name(),
                why,
            });
            let end = done(task);
            self.chosen[group] = Some(task);
            for value in &used {
                if let Some(group) = undecided.remove(value) {
                    self.chosen[group].get_or_insert(task);
                    let at = self.chosen[group].unwrap_or(task);
                    made.insert(*value, Made { task: at, at: 0.0 });
                }
                if let Some(m) = made.get(value).filter(|m| m.task != task) {
                    let at = m.at + self.estimates.transfer(func.ty(*value));
                    sent.entry((*value, task)).or_insert(at);
                }
            }
            free[task] = end;
            made.extend(node.results.iter().map(|v| (*v, Made { task, at: end })));
        }
    }

    /// Why one task rather than another.
    fn compare(&self, task: usize, group: usize, work: f64, done: &dyn Fn(usize) -> f64) -> String {
        let micros = |ns: f64| format!("{:.1} µs", ns / 1e3);
        let mut out = format!("{} of work, done at {}", micros(work), micros(done(task)));
        let others = self.groups.allowed[group].iter().copied().filter(|t| *t != task);
        match others.min_by(|a, b| done(*a).total_cmp(&done(*b))) {
            Some(next) => {
                let name = self.cluster.tasks[next].name();
                let _ = write!(out, "; on {name} at {}", micros(done(next)));
            }
            None => out.push_str("; nowhere else is allowed"),
        }
        out
    }
}

/// The top-level nodes of every entry, by entry and node.
pub(crate) fn units(graph: &Graph) -> Vec<Unit> {
    let mut out = vec![];
    for (entry, func) in graph.entries.iter().enumerate() {
        for &node in &func.regions[func.body].nodes {
            if !is_everywhere(func, &func.nodes[node]) {
                out.push(Unit { entry, node });
            }
        }
    }
    out
}
