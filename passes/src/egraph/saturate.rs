//! Applying rules until nothing new comes out, or a count says stop.
//!
//! Each round searches every rule, then applies what was found, in a fixed
//! order. Only classes that changed since the last round, and those above them
//! as far as a pattern can see, are searched again, so a scalar that travels
//! down a deep network one layer a round costs what it touches. Rebuilding the
//! e-graph costs what there is of it, so it waits until enough has changed: until
//! then equal nodes may be in two classes, and a match may be missed, so what has
//! changed is searched again after it. No clock takes part in any decision: times
//! are only reported.

use super::analysis::{Event, Graph, RuleId};
use super::lang::NodeKind;
use super::rules::{self, FloatMode, Found};
use egg::{Id, Language};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub nodes: usize,
    pub rounds: usize,
    /// Instances of one rule in one round before it is banned for a while.
    pub matches: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stop {
    /// No rule adds anything.
    Saturated,
    NodeLimit,
    RoundLimit,
}

impl Stop {
    pub fn describe(self) -> &'static str {
        match self {
            Stop::Saturated => "saturated",
            Stop::NodeLimit => "node limit",
            Stop::RoundLimit => "round limit",
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub struct RuleStats {
    /// Instances found.
    pub found: usize,
    /// Instances that told the e-graph something new.
    pub applied: usize,
    pub time: Duration,
}

#[derive(Clone, Debug, Default)]
pub struct Stats {
    pub rules: BTreeMap<RuleId, RuleStats>,
    pub rounds: usize,
    pub stops: BTreeMap<Stop, usize>,
    pub nodes: usize,
    pub classes: usize,
    /// Classes that were looked at to rebuild e-graphs, all times counted.
    pub rebuilt: usize,
    pub time: Duration,
}

impl Stats {
    pub fn absorb(&mut self, other: &Stats) {
        for (rule, s) in &other.rules {
            let mine = self.rules.entry(*rule).or_default();
            mine.found += s.found;
            mine.applied += s.applied;
            mine.time += s.time;
        }
        for (stop, n) in &other.stops {
            *self.stops.entry(*stop).or_default() += n;
        }
        self.rounds += other.rounds;
        self.nodes += other.nodes;
        self.classes += other.classes;
        self.rebuilt += other.rebuilt;
        self.time += other.time;
    }
}

/// A rule that found too much sits out, longer each time.
#[derive(Clone, Copy, Default)]
struct Ban {
    times: u32,
    until: usize,
    /// Everything it was told of is searched: not so at first, nor after it sat
    /// out.
    caught_up: bool,
}

pub fn saturate(g: &mut Graph, rules: &[RuleId], mode: FloatMode, limits: Limits) -> Stats {
    let start = Instant::now();
    let mut stats = Stats::default();
    let mut bans = vec![Ban::default(); rules.len()];
    g.rebuild();
    g.analysis.dirty.clear();
    let mut levels = vec![];
    // What changed since the e-graph was last rebuilt, but for the last round.
    let mut stale: Vec<Id> = vec![];
    let mut stop = Stop::RoundLimit;
    for round in 0..limits.rounds {
        stats.rounds += 1;
        let mut found: Vec<Found> = vec![];
        let mut banned = false;
        // Made when a rule needs it.
        let mut everywhere: Option<[Level; 1]> = None;
        for (at, &rule) in rules.iter().enumerate() {
            let clock = Instant::now();
            let ban = &mut bans[at];
            if ban.until > round {
                banned = true;
                continue;
            }
            let before = found.len();
            let limit = limits.matches.saturating_mul(1 << ban.times.min(16));
            let levels: &[Level] = match ban.caught_up {
                true => &levels,
                false => everywhere
                    .get_or_insert_with(|| [Level::of(g, g.classes().map(|c| c.id))])
                    .as_slice(),
            };
            search(g, rule, levels, limit, &mut found);
            ban.caught_up = true;
            let entry = stats.rules.entry(rule).or_default();
            if found.len() - before >= limit {
                found.truncate(before);
                ban.times += 1;
                ban.until = round + 1 + 3 * ban.times as usize;
                ban.caught_up = false;
                banned = true;
            }
            entry.found += found.len() - before;
            entry.time += clock.elapsed();
        }
        let changed = apply(g, &found, mode, limits, &mut stats);
        let goes_on = g.nodes().len() < limits.nodes && g.analysis.conflict.is_none();
        let little = (stale.len() + g.analysis.dirty.len()) * STALE < g.number_of_classes();
        if changed && goes_on && little {
            levels = upward(g, &g.analysis.dirty);
            stale.append(&mut g.analysis.dirty);
            continue;
        }
        g.rebuild();
        stats.rebuilt += g.number_of_classes();
        if g.analysis.conflict.is_some() {
            break;
        }
        if g.nodes().len() >= limits.nodes {
            stop = Stop::NodeLimit;
            break;
        }
        if !changed && !banned && stale.is_empty() {
            stop = Stop::Saturated;
            break;
        }
        stale.append(&mut g.analysis.dirty);
        levels = upward(g, &stale);
        stale.clear();
    }
    if !stale.is_empty() {
        g.rebuild();
    }
    *stats.stops.entry(stop).or_default() += 1;
    stats.nodes = g.total_number_of_nodes();
    stats.classes = g.number_of_classes();
    stats.time = start.elapsed();
    stats
}

/// An e-graph is rebuilt when one in this many of its classes has changed.
const STALE: usize = 64;

/// Deepest pattern a rule may have, in ops.
const DEEPEST: usize = 6;

/// Classes to search, by the kinds of their nodes, each list in order. Known
/// values need no rewriting.
struct Level(BTreeMap<NodeKind, BTreeSet<Id>>);

impl Level {
    fn of(g: &Graph, classes: impl Iterator<Item = Id>) -> Level {
        let mut out: BTreeMap<NodeKind, BTreeSet<Id>> = BTreeMap::new();
        for id in classes.filter(|id| g[*id].data.splat.is_none()) {
            let mut last = None;
            // Nodes of a class are sorted by kind.
            for kind in g[id].nodes.iter().map(|n| n.kind()) {
                if last != Some(kind) {
                    out.entry(kind).or_default().insert(id);
                    last = Some(kind);
                }
            }
        }
        Level(out)
    }
}

/// The changed classes, then those one step above, and so on: cumulative.
fn upward(g: &Graph, changed: &[Id]) -> Vec<Level> {
    let mut level: BTreeSet<Id> = changed.iter().map(|id| g.find(*id)).collect();
    let mut out = vec![Level::of(g, level.iter().copied())];
    let mut edge: Vec<Id> = level.iter().copied().collect();
    for _ in 0..DEEPEST {
        let mut next = vec![];
        for id in edge {
            for parent in g[id].parents() {
                let parent = g.find(parent);
                if level.insert(parent) {
                    next.push(parent);
                }
            }
        }
        out.push(Level::of(g, level.iter().copied()));
        edge = next;
    }
    out
}

fn search(g: &Graph, rule: RuleId, levels: &[Level], limit: usize, found: &mut Vec<Found>) {
    let compiled = &rules::table()[rule.0 as usize];
    let level = &levels[compiled.depth.min(levels.len() - 1)];
    let end = found.len().saturating_add(limit);
    let kinds = compiled.roots.iter().filter_map(|kind| level.0.get(kind));
    let classes: BTreeSet<Id> = kinds.flatten().copied().collect();
    for class in classes {
        rules::search(g, rule, class, end - found.len(), found);
        if found.len() >= end {
            break;
        }
    }
}

/// Returns whether anything was learnt.
fn apply(
    g: &mut Graph,
    found: &[Found],
    mode: FloatMode,
    limits: Limits,
    stats: &mut Stats,
) -> bool {
    let mut changed = false;
    let mut at = 0;
    while at < found.len() {
        let clock = Instant::now();
        let rule = found[at].rule;
        let mut applied = 0;
        while let Some(f) = found.get(at).filter(|f| f.rule == rule) {
            applied += apply_one(g, f, mode) as usize;
            at += 1;
            if g.nodes().len() >= limits.nodes {
                break;
            }
        }
        let entry = stats.rules.entry(rule).or_default();
        entry.applied += applied;
        entry.time += clock.elapsed();
        changed |= applied > 0;
        if g.nodes().len() >= limits.nodes || g.analysis.conflict.is_some() {
            return changed;
        }
    }
    changed
}

/// Applies one instance; returns whether the e-graph changed.
pub fn apply_one(g: &mut Graph, f: &Found, mode: FloatMode) -> bool {
    // The node exists, so this only finds its number.
    let node = f.node.clone().map_children(|id| g.find(id));
    if g.lookup(node.clone()).is_none() {
        return false;
    }
    let from = g.add_uncanonical(node);
    (g.analysis.rule, g.analysis.at) = (f.rule, from);
    let before = g.nodes().len();
    let mut changed = false;
    if let Some(to) = rules::instantiate(g, f, Some(mode))
        && g.find(to) != g.find(from)
    {
        g.analysis.events.push(Event { from, to, rule: f.rule });
        g.union(from, to);
        changed = true;
    }
    g.analysis.rule = RuleId::SOURCE;
    changed || g.nodes().len() > before
}
