//! Partial execution: an entry cut down to what some of its nodes need.
//!
//! Fetching replaces an entry's results by named nodes; feeding replaces nodes by
//! parameters. What remains is what the fetched nodes depend on, through values
//! and through variables written before they are read; nothing else is compiled.
//! Without a fetch the entry keeps its results and its effects.

use crate::util::{Stop, rewrite};
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::diag::Diag;
use tfc_ir::op::Effect;
use tfc_ir::{Func, Graph, NodeId, RegionId, ValueId, VarId};

/// The graph with one entry cut down. `feeds` are names of nodes that become
/// parameters.
pub fn restrict(
    graph: &Graph,
    entry: &str,
    fetches: &[String],
    feeds: &[String],
) -> Result<Graph, Vec<Diag>> {
    let Some(index) = graph.entries.iter().position(|e| e.name == entry) else {
        return Err(vec![Diag::error("E0911", format!("there is no entry `{entry}`"))]);
    };
    let old = &graph.entries[index];
    let names = names(old);
    let mut diags = vec![];
    let mut find = |wanted: &[String]| -> Vec<ValueId> {
        let mut out = vec![];
        for name in wanted {
            match look_up(&names, name) {
                Some(value) => out.push(value),
                None => diags.push(unknown(entry, name, &names)),
            }
        }
        out
    };
    let (fetched, fed) = (find(fetches), find(feeds));
    if !diags.is_empty() {
        return Err(diags);
    }
    // What is fed goes by the name it was asked for.
    let mut renamed = old.clone();
    for (name, value) in feeds.iter().zip(&fed) {
        renamed.values[*value].name = Some(name.as_str().into());
    }
    let new = fetch(graph, &renamed, fetches, &fetched, &fed).map_err(|Stop(diags)| diags)?;
    let mut out = graph.clone();
    out.entries[index] = new;
    Ok(out)
}

/// Values that can be fetched and fed by name: those of the body and the results.
fn names(func: &Func) -> BTreeMap<&str, ValueId> {
    let mut out = BTreeMap::new();
    let body = &func.regions[func.body];
    let defined = body.nodes.iter().flat_map(|n| &func.nodes[*n].results);
    for &v in body.params.iter().chain(defined) {
        if let Some(name) = &func.values[v].name {
            out.entry(&**name).or_insert(v);
        }
    }
    for (name, &v) in func.result_names.iter().zip(func.results()) {
        out.entry(name).or_insert(v);
    }
    out
}

/// The value of a name. One that is used again, as of what a loop carries and
/// then gives, is numbered in the graph: it means the first of those.
fn look_up(names: &BTreeMap<&str, ValueId>, name: &str) -> Option<ValueId> {
    let numbered = |known: &&str| known.strip_prefix(name)?.strip_prefix('_')?.parse::<u32>().ok();
    let first = || names.iter().filter_map(|(k, v)| Some((numbered(k)?, *v))).min();
    names.get(name).copied().or_else(|| first().map(|(_, v)| v))
}

fn unknown(entry: &str, name: &str, names: &BTreeMap<&str, ValueId>) -> Diag {
    let known: Vec<String> = names.keys().take(20).map(|n| format!("`{n}`")).collect();
    let more = if names.len() > 20 { ", ..." } else { "" };
    Diag::error("E0902", format!("`{entry}` has no node named `{name}`"))
        .note(format!("it has {}{more}", known.join(", ")))
        .help("name a node by assigning it: `h = relu(x)`")
}

/// A function cut down to some of its values, under new names; `fed` become
/// parameters.
pub(crate) fn fetch(
    graph: &Graph,
    old: &Func,
    names: &[String],
    fetched: &[ValueId],
    fed: &[ValueId],
) -> Result<Func, Stop> {
    let mut func = old.clone();
    let body = func.body;
    if !fetched.is_empty() {
        func.regions[body].results = fetched.to_vec();
        func.result_names = names.to_vec();
    }
    let mut need = Need {
        func: old,
        used: func.regions[body].results.iter().copied().collect(),
        vars: BTreeSet::new(),
        // Whoever asks for nodes wants these and nothing done to the world.
        effects: fetched.is_empty(),
        stacks: BTreeSet::new(),
    };
    let fed: BTreeSet<ValueId> = fed.iter().copied().collect();
    let mut live = vec![];
    for &id in old.regions[body].nodes.iter().rev() {
        let results = &old.nodes[id].results;
        let given = !results.is_empty() && results.iter().all(|v| fed.contains(v));
        if !given && need.wants(id) {
            need.take(id);
            live.push(id);
        }
    }
    live.reverse();
    let mut params: Vec<ValueId> = old.params().to_vec();
    params.retain(|p| need.used.contains(p) || fed.contains(p));
    params.extend(fed.iter().filter(|v| !old.params().contains(v)));
    func.regions[body].params = params;
    func.regions[body].nodes = live;
    rewrite(graph, &func, &mut |_, _| Ok(None))
}

/// What is needed so far, walking backwards.
struct Need<'a> {
    func: &'a Func,
    used: BTreeSet<ValueId>,
    /// Variables whose value matters.
    vars: BTreeSet<VarId>,
    effects: bool,
    /// Stacks something needed is taken off.
    stacks: BTreeSet<String>,
}

impl Need<'_> {
    fn wants(&self, id: NodeId) -> bool {
        let node = &self.func.nodes[id];
        node.results.iter().any(|v| self.used.contains(v))
            || self.any(id, &|need, id| {
                let node = &need.func.nodes[id];
                match node.op.def().effect {
                    Effect::Write => {
                        need.effects || node.var.is_some_and(|v| need.vars.contains(&v))
                    }
                    Effect::Io => need.effects,
                    // What is taken off a stack must be the last put there.
                    Effect::Stack => {
                        let name = tfc_ir::stacks::name(node).unwrap_or_default();
                        need.effects || need.stacks.contains(name)
                    }
                    _ => false,
                }
            })
    }

    fn any(&self, id: NodeId, test: &dyn Fn(&Self, NodeId) -> bool) -> bool {
        let inside = |r: &RegionId| self.func.regions[*r].nodes.iter().any(|n| self.any(*n, test));
        test(self, id) || self.func.nodes[id].regions.iter().any(inside)
    }

    fn take(&mut self, id: NodeId) {
        let node = &self.func.nodes[id];
        self.used.extend(&node.operands);
        // A write may keep part of the old value, and so needs it.
        self.vars.extend(node.var);
        self.stacks.extend(tfc_ir::stacks::name(node).map(str::to_string));
        for &region in &node.regions {
            let region = &self.func.regions[region];
            self.used.extend(&region.results);
            for &inner in &region.nodes {
                self.take(inner);
            }
        }
    }
}
