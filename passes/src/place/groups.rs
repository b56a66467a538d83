//! What must be together, and where `on` lets it be.

use super::{Cluster, units};
use std::collections::BTreeMap;
use tfc_ir::diag::{Diag, Span};
use tfc_ir::{Func, Graph, Node, NodeId, VarId, stacks};

/// A top-level node of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    pub entry: usize,
    pub node: NodeId,
}

/// Groups are numbered; a union-find made them.
pub(crate) struct Groups {
    pub units: BTreeMap<(usize, NodeId), usize>,
    pub vars: BTreeMap<VarId, usize>,
    /// The tasks that are allowed, by group.
    pub allowed: Vec<Vec<usize>>,
    /// The only one of them, if there is only one.
    pub fixed: Vec<Option<usize>>,
    /// What holds a group together, or where it has to be, in words.
    pub because: Vec<String>,
}

/// Something that says where a group is.
struct Claim {
    device: String,
    span: Span,
    what: String,
    /// Inside of a loop or a branch.
    inside: bool,
}

impl Groups {
    pub fn of(graph: &Graph, cluster: &Cluster) -> Result<Groups, Vec<Diag>> {
        let units = units(graph);
        let mut sets = Sets::default();
        let var_sets: BTreeMap<VarId, usize> = graph.vars.keys().map(|v| (v, sets.add())).collect();
        let mut unit_sets = BTreeMap::new();
        let mut stack_sets: BTreeMap<(usize, String), usize> = BTreeMap::new();
        for unit in &units {
            let set = sets.add();
            unit_sets.insert((unit.entry, unit.node), set);
            let func = &graph.entries[unit.entry];
            each(func, unit.node, &mut |node, _| {
                if let Some(var) = node.var {
                    sets.join(set, var_sets[&var]);
                }
                if let Some(stack) = stacks::name(node) {
                    let key = (unit.entry, stack.to_string());
                    let other = *stack_sets.entry(key).or_insert(set);
                    sets.join(set, other);
                }
            });
        }
        // Numbered by their first members.
        let mut numbers: BTreeMap<usize, usize> = BTreeMap::new();
        let mut number = |set: usize| {
            let next = numbers.len();
            *numbers.entry(sets.find(set)).or_insert(next)
        };
        let vars: BTreeMap<VarId, usize> = var_sets.iter().map(|(v, s)| (*v, number(*s))).collect();
        let unit_groups: BTreeMap<(usize, NodeId), usize> =
            unit_sets.iter().map(|(u, s)| (*u, number(*s))).collect();
        let count = numbers.len();
        let mut claims: Vec<Vec<Claim>> = (0..count).map(|_| vec![]).collect();
        let mut because = vec![String::new(); count];
        for (id, var) in graph.vars.iter() {
            let group = vars[&id];
            if because[group].is_empty() {
                because[group] = format!("`{}`", var.name);
            }
            let chief = (!var.symbol.is_variable()).then(|| cluster.tasks[0].name());
            let asked = var.device.as_deref().map(str::to_string);
            for device in asked.into_iter().chain(chief) {
                let what = format!("`{}` is on `{device}`", var.name);
                claims[group].push(Claim { device, span: var.span, what, inside: false });
            }
        }
        for unit in &units {
            let func = &graph.entries[unit.entry];
            let group = unit_groups[&(unit.entry, unit.node)];
            if because[group].is_empty() {
                because[group] = describe(func, &func.nodes[unit.node]);
            }
            each(func, unit.node, &mut |node, inside| {
                if let Some(device) = &node.device {
                    let what = format!("{} is on `{device}`", describe(func, node));
                    let device = device.to_string();
                    claims[group].push(Claim { device, span: node.span, what, inside });
                }
            });
            if func.runner {
                let device = cluster.tasks[0].name();
                let what = format!("the runner `{}` is the chief's, on `{device}`", func.name);
                claims[group].push(Claim { device, span: func.span, what, inside: false });
            }
        }
        let (mut allowed, mut fixed, mut diags) = (vec![], vec![], vec![]);
        for (group, claims) in claims.iter().enumerate() {
            match settle(cluster, claims) {
                Ok(tasks) => {
                    fixed.push((tasks.len() == 1).then(|| tasks[0]));
                    if tasks.len() == 1 {
                        because[group] = match claims.first() {
                            Some(claim) => claim.what.clone(),
                            None => "there is no other task".to_string(),
                        };
                    }
                    allowed.push(tasks);
                }
                Err(diag) => diags.push(*diag),
            }
        }
        match diags.is_empty() {
            true => Ok(Groups { units: unit_groups, vars, allowed, fixed, because }),
            false => Err(diags),
        }
    }
}

/// The tasks that all claims allow; or which two cannot both be true.
fn settle(cluster: &Cluster, claims: &[Claim]) -> Result<Vec<usize>, Box<Diag>> {
    let mut tasks: Vec<usize> = (0..cluster.tasks.len()).collect();
    for (i, claim) in claims.iter().enumerate() {
        let fits = |t: &usize| fits(cluster, *t, &claim.device);
        let left: Vec<usize> = tasks.iter().copied().filter(fits).collect();
        if !left.is_empty() {
            tasks = left;
            continue;
        }
        if !(0..cluster.tasks.len()).any(|t| fits(&t)) {
            let names: Vec<String> =
                cluster.tasks.iter().map(|t| format!("`{}`", t.name())).collect();
            let message = format!("the cluster has no `{}`", claim.device);
            return Err(Box::new(
                Diag::error("E0416", message)
                    .at(claim.span, claim.what.clone())
                    .note(format!("it has {}", names.join(", "))),
            ));
        }
        // The latest of the others that does not agree says most.
        let other = claims[..i].iter().rev().find(|o| {
            let both = |t: usize| fits_both(cluster, t, &claim.device, &o.device);
            !(0..cluster.tasks.len()).any(both)
        });
        let other = other.unwrap_or(&claims[0]);
        let diag = match claim.inside || other.inside {
            true => Diag::error("E0417", "a loop or a branch is on two tasks")
                .help("compute it on one of them; what it uses and gives is sent automatically"),
            false => Diag::error("E0416", "what must be on one task is placed on two"),
        };
        return Err(Box::new(
            diag.at(claim.span, claim.what.clone()).also(other.span, other.what.clone()),
        ));
    }
    Ok(tasks)
}

fn fits_both(cluster: &Cluster, task: usize, a: &str, b: &str) -> bool {
    fits(cluster, task, a) && fits(cluster, task, b)
}

/// Whether a task is, or has, what a partial device name says.
fn fits(cluster: &Cluster, task: usize, name: &str) -> bool {
    let task = &cluster.tasks[task];
    name.split('/').filter(|p| !p.is_empty()).all(|part| match part.split_once(':') {
        Some(("job", job)) => task.job == job,
        Some(("task", index)) => index.parse() == Ok(task.index),
        _ => {
            let part = format!("/{part}");
            let kind = |d: &String| d.split(':').next() == Some(&part);
            task.devices.iter().any(|d| *d == part || !part.contains(':') && kind(d))
        }
    })
}

/// What people call a node.
pub(crate) fn describe(func: &Func, node: &Node) -> String {
    let name = node.results.first().and_then(|v| func.values[*v].name.clone());
    match name {
        Some(name) => format!("`{name}`"),
        None => format!("a `{}`", node.op.name()),
    }
}

/// A node and all that is in it, and whether it is inside.
fn each(func: &Func, id: NodeId, visit: &mut dyn FnMut(&Node, bool)) {
    fn walk(func: &Func, id: NodeId, inside: bool, visit: &mut dyn FnMut(&Node, bool)) {
        let node = &func.nodes[id];
        visit(node, inside);
        for region in &node.regions {
            for inner in &func.regions[*region].nodes {
                walk(func, *inner, true, visit);
            }
        }
    }
    walk(func, id, false, visit);
}

/// Sets that are joined.
#[derive(Default)]
struct Sets(Vec<usize>);

impl Sets {
    fn add(&mut self) -> usize {
        self.0.push(self.0.len());
        self.0.len() - 1
    }

    fn find(&self, mut set: usize) -> usize {
        while self.0[set] != set {
            set = self.0[set];
        }
        set
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}
