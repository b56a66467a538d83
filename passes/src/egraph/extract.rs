//! Choosing one node per class: the program that comes out.
//!
//! The search starts from the source program itself and swaps one class's node
//! at a time whenever the whole program gets cheaper under the cost model, with
//! fusion taken into account. So the result is never more expensive than the source,
//! and where nothing is gained the source form stays. A swap re-costs only the
//! kernels it touches.
//!
//! Invariants
//! - The chosen nodes form a graph without cycles that reaches from the roots.
//! - No gradient term is chosen.
//! - The sum of `kernel_cost` is the cost of the solution: after a swap, that of
//!   the kernels it touched is what costing them all anew would give.

use super::analysis::Graph;
use super::lang::Node;
use crate::cost_model::{CostModel, MAX_MEMBERS, Role, role, within};
use egg::{Id, Language};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use tfc_ir::TensorType;
use tfc_ir::op::Moves;

/// What the chosen program looks like, class by class.
pub struct Solution {
    /// Canonical class to the chosen node and its number in the e-graph.
    pub nodes: BTreeMap<Id, (Node, Id)>,
    pub before: Totals,
    pub after: Totals,
    pub swaps: usize,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Totals {
    pub cost: f64,
    pub kernels: usize,
    /// Ops that compute or move something: no literals, no views.
    pub ops: usize,
}

#[derive(Clone, Debug)]
struct Choice {
    node: Node,
    id: Id,
    args: Vec<u32>,
    role: Role,
    work: f64,
    broadcast: bool,
}

struct Class {
    id: Id,
    choices: Vec<Choice>,
    elements: f64,
    bytes: f64,
    literal: bool,
}

pub struct Problem {
    classes: Vec<Class>,
    roots: Vec<u32>,
    model: CostModel,
    /// Choice to fall back on for classes the source does not use.
    default: Vec<u32>,
    source: Vec<Option<u32>>,
}

struct State<'p> {
    p: &'p Problem,
    choice: Vec<u32>,
    used: Vec<bool>,
    /// Classes whose chosen node reads this one, once per edge.
    uses: Vec<Vec<u32>>,
    root: Vec<bool>,
    level: Vec<u64>,
    kernel_cost: Vec<f64>,
    /// The kernel a class is computed in.
    member: Vec<u32>,
    journal: Vec<Saved>,
    touched: Vec<bool>,
    /// Classes looked at so far, and how many may be.
    effort: Cell<usize>,
    most: usize,
}

/// What one kernel computes.
struct Kernel {
    /// The class it ends at, first.
    members: Vec<u32>,
    /// What it reads that other kernels leave in memory.
    inputs: Vec<u32>,
    cost: f64,
}

struct Saved {
    class: u32,
    choice: u32,
    used: bool,
    uses: Vec<u32>,
}

const NONE: u32 = u32::MAX;
/// Between levels at the start, so that a swap seldom moves more than itself.
const ROOM: u64 = 1 << 16;
/// A swap must gain more than this share of the cost, so that rounding in the
/// sums never decides.
const GAIN: f64 = 1e-9;

/// Classes the search may look at: so many, and so many more for each there is.
/// Long chains have swaps that touch all of them.
const EFFORT: usize = 2_000_000;
const EFFORT_PER_CLASS: usize = 400;

impl Problem {
    /// `seed` is how many nodes the source program has in `g`.
    pub fn new(g: &Graph, roots: &[Id], seed: usize, model: CostModel) -> Problem {
        let mut index: BTreeMap<Id, u32> = BTreeMap::new();
        let mut classes: Vec<Class> = vec![];
        let mut ids: Vec<Id> = g.classes().map(|c| c.id).collect();
        ids.sort();
        for id in ids {
            let data = &g[id].data;
            index.insert(id, classes.len() as u32);
            classes.push(Class {
                id,
                choices: vec![],
                elements: model.elements(&data.ty),
                bytes: model.bytes_of(&data.ty),
                literal: data.splat.is_some(),
            });
        }
        let mut source = vec![None; classes.len()];
        for (i, node) in g.nodes().iter().enumerate() {
            let id = Id::from(i);
            let class_id = g.find(id);
            let node = node.clone().map_children(|a| g.find(a));
            if node.is_vjp() || node.children().contains(&class_id) {
                continue;
            }
            let Some(&at) = index.get(&class_id) else { continue };
            let class = &mut classes[at as usize];
            if class.choices.iter().any(|c| c.node == node) {
                continue;
            }
            let args: Vec<u32> = node.children().iter().map(|a| index[a]).collect();
            let (role, work, broadcast) = match &node {
                Node::Op { op, attrs, args } => {
                    let types: Vec<&TensorType> = args.iter().map(|a| &*g[*a].data.ty).collect();
                    let attrs = g.analysis.attrs.get(*attrs);
                    let work = model.work(*op, attrs, &types, &g[class_id].data.ty);
                    (role(*op), work, op.def().facts.moves == Moves::Repeated)
                }
                _ => (Role::Leaf, 0.0, false),
            };
            if i < seed && source[at as usize].is_none() {
                source[at as usize] = Some(class.choices.len() as u32);
            }
            class.choices.push(Choice { node, id, args, role, work, broadcast });
        }
        let mut seen = BTreeSet::new();
        let roots = roots.iter().filter_map(|r| index.get(&g.find(*r)).copied());
        let roots = roots.filter(|r| seen.insert(*r)).collect();
        let mut p = Problem { classes, roots, model, default: vec![], source };
        p.default = p.tree_choice();
        p
    }

    /// For each class the choice of least cost as a tree; without cycles.
    fn tree_choice(&self) -> Vec<u32> {
        let n = self.classes.len();
        let mut best = vec![(f64::INFINITY, 0u32); n];
        // By class: the choices that read it, once per edge.
        let mut readers: Vec<Vec<(u32, u32)>> = vec![vec![]; n];
        // By choice: operands without a cost yet.
        let mut missing: Vec<Vec<usize>> = vec![];
        let mut open: BTreeSet<(u64, u32)> = BTreeSet::new();
        for (c, class) in self.classes.iter().enumerate() {
            missing.push(class.choices.iter().map(|choice| choice.args.len()).collect());
            for (k, choice) in class.choices.iter().enumerate() {
                for a in &choice.args {
                    readers[*a as usize].push((c as u32, k as u32));
                }
            }
        }
        // A choice costs more than any of its operands, so the cheapest class that
        // is open can become no cheaper, and choices cannot circle.
        let offer = |c: u32, k: u32, best: &mut Vec<(f64, u32)>, open: &mut BTreeSet<_>| {
            let class = &self.classes[c as usize];
            let choice = &class.choices[k as usize];
            let own = match choice.role {
                Role::Leaf => 0.0,
                Role::Literal | Role::View => 1e-3,
                Role::Contract => 1e3 + choice.work / self.model.contraction,
                _ => 1.0 + (choice.work + 0.1) * class.elements / self.model.scalar,
            };
            let own = if class.literal { own.min(1e-3) } else { own };
            let args: f64 = choice.args.iter().map(|a| best[*a as usize].0).sum();
            // As a tree a chain of squares has no end of ops.
            let cost = (own + args * (1.0 + 1e-12) + 1e-6).min(f64::MAX);
            let (old, _) = best[c as usize];
            if cost < old {
                open.remove(&(old.to_bits(), c));
                open.insert((cost.to_bits(), c));
                best[c as usize] = (cost, k);
            }
        };
        for (c, class) in self.classes.iter().enumerate() {
            for (k, choice) in class.choices.iter().enumerate() {
                if choice.args.is_empty() {
                    offer(c as u32, k as u32, &mut best, &mut open);
                }
            }
        }
        let mut done = vec![false; n];
        // Costs are positive, so their bits are in their order.
        while let Some((_, c)) = open.pop_first() {
            if std::mem::replace(&mut done[c as usize], true) {
                continue;
            }
            for &(reader, k) in &readers[c as usize] {
                let left = &mut missing[reader as usize][k as usize];
                *left -= 1;
                if *left == 0 && !done[reader as usize] {
                    offer(reader, k, &mut best, &mut open);
                }
            }
        }
        best.into_iter().map(|(_, k)| k).collect()
    }

    /// The choice that computes nothing: the literal form of a class whose
    /// elements are one known value, or a value that is in memory already.
    fn free_choice(&self, c: usize) -> Option<u32> {
        let class = &self.classes[c];
        let holds_literal =
            |a: &u32| self.classes[*a as usize].choices.iter().any(|c| c.role == Role::Literal);
        let is_free = |choice: &Choice| match &choice.node {
            Node::Op { .. } if choice.broadcast => {
                class.literal && choice.args.iter().all(holds_literal)
            }
            _ => matches!(choice.role, Role::Leaf | Role::Literal),
        };
        class.choices.iter().position(is_free).map(|k| k as u32)
    }

    /// The cheapest program single swaps lead to.
    pub fn solve(&self) -> Solution {
        let mut state = State::new(self);
        let before = state.totals();
        let swaps = state.climb();
        debug_assert!(state.costs_hold(), "costs after swaps are not those of the program");
        self.solution(&state, before, swaps)
    }

    /// The source program itself.
    pub fn source(&self) -> Solution {
        let state = State::new(self);
        self.solution(&state, state.totals(), 0)
    }

    fn solution(&self, state: &State<'_>, before: Totals, swaps: usize) -> Solution {
        let after = state.totals();
        let mut nodes = BTreeMap::new();
        let mut stack = self.roots.clone();
        while let Some(c) = stack.pop() {
            let choice = state.chosen(c);
            if nodes.insert(self.classes[c as usize].id, (choice.node.clone(), choice.id)).is_none()
            {
                stack.extend(&choice.args);
            }
        }
        Solution { nodes, before, after, swaps }
    }

    /// The least cost over every combination of choices; for tests on small
    /// problems only. `None` above `limit` combinations.
    pub fn exhaustive(&self, limit: usize) -> Option<f64> {
        let free: Vec<usize> = (0..self.classes.len())
            .filter(|c| self.classes[*c].choices.len() > 1 && self.free_choice(*c).is_none())
            .collect();
        let mut combinations = 1usize;
        for c in &free {
            combinations = combinations.checked_mul(self.classes[*c].choices.len())?;
        }
        if combinations > limit {
            return None;
        }
        let mut best = f64::INFINITY;
        let start = State::new(self);
        for mut n in 0..combinations {
            let mut choice = start.choice.clone();
            for c in &free {
                let k = self.classes[*c].choices.len();
                choice[*c] = (n % k) as u32;
                n /= k;
            }
            if let Some(state) = State::with(self, choice) {
                best = best.min(state.totals().cost);
            }
        }
        Some(best)
    }
}

impl<'p> State<'p> {
    fn new(p: &'p Problem) -> State<'p> {
        let choice = (0..p.classes.len())
            .map(|c| p.free_choice(c).or(p.source[c]).unwrap_or(p.default[c]))
            .collect();
        // The source program has no cycles: the first node of each class only
        // reads classes with an earlier first node.
        State::with(p, choice).unwrap_or_else(|| unreachable!("the source program is a DAG"))
    }

    /// `None` if the choices circle.
    fn with(p: &'p Problem, choice: Vec<u32>) -> Option<State<'p>> {
        let n = p.classes.len();
        let mut s = State {
            p,
            choice,
            used: vec![false; n],
            uses: vec![vec![]; n],
            root: vec![false; n],
            level: vec![0; n],
            kernel_cost: vec![0.0; n],
            member: vec![NONE; n],
            journal: vec![],
            touched: vec![false; n],
            effort: Cell::new(0),
            most: EFFORT + EFFORT_PER_CLASS * n,
        };
        if !s.acyclic() {
            return None;
        }
        for &r in &p.roots {
            s.root[r as usize] = true;
        }
        for &r in &p.roots {
            if !s.used[r as usize] {
                s.start_using(r);
            }
        }
        s.forget();
        let kernels = s.kernels(p.roots.iter().copied());
        s.settle(kernels);
        s.relevel();
        Some(s)
    }

    fn acyclic(&self) -> bool {
        // 1 on the path, 2 done.
        let mut mark = vec![0u8; self.choice.len()];
        let mut stack: Vec<(u32, usize)> = vec![];
        for &r in &self.p.roots {
            stack.push((r, 0));
            while let Some((c, next)) = stack.pop() {
                if next == 0 {
                    if mark[c as usize] == 2 {
                        continue;
                    }
                    mark[c as usize] = 1;
                }
                match self.chosen(c).args.get(next) {
                    None => mark[c as usize] = 2,
                    Some(&a) => {
                        stack.push((c, next + 1));
                        match mark[a as usize] {
                            0 => stack.push((a, 0)),
                            1 => return false,
                            _ => {}
                        }
                    }
                }
            }
        }
        true
    }

    fn chosen(&self, c: u32) -> &'p Choice {
        &self.p.classes[c as usize].choices[self.choice[c as usize] as usize]
    }

    /// In memory or in the code without any kernel: not tracked.
    fn is_free(&self, c: u32) -> bool {
        self.p.classes[c as usize].literal
            || self.chosen(c).role == Role::Leaf
            || self.chosen(c).role == Role::Literal
    }

    fn touch(&mut self, c: u32) {
        if !std::mem::replace(&mut self.touched[c as usize], true) {
            self.spend(1);
            let i = c as usize;
            let (choice, used, uses) = (self.choice[i], self.used[i], self.uses[i].clone());
            self.journal.push(Saved { class: c, choice, used, uses });
        }
    }

    fn start_using(&mut self, c: u32) {
        self.touch(c);
        self.used[c as usize] = true;
        for &a in &self.chosen(c).args {
            self.add_use(a, c);
        }
    }

    fn add_use(&mut self, a: u32, by: u32) {
        let mut work = vec![(a, by)];
        while let Some((a, by)) = work.pop() {
            if self.is_free(a) {
                continue;
            }
            self.touch(a);
            self.uses[a as usize].push(by);
            if !std::mem::replace(&mut self.used[a as usize], true) {
                work.extend(self.chosen(a).args.iter().map(|b| (*b, a)));
            }
        }
    }

    fn remove_use(&mut self, a: u32, by: u32) {
        let mut work = vec![(a, by)];
        while let Some((a, by)) = work.pop() {
            if self.is_free(a) {
                continue;
            }
            self.touch(a);
            let uses = &mut self.uses[a as usize];
            if let Some(at) = uses.iter().position(|u| *u == by) {
                uses.swap_remove(at);
            }
            if uses.is_empty() && !self.root[a as usize] && self.used[a as usize] {
                self.used[a as usize] = false;
                work.extend(self.chosen(a).args.iter().map(|b| (*b, a)));
            }
        }
    }

    /// Whether the kernel of a reader can compute `c` on the way.
    fn computed_within(&self, c: u32, reader: u32) -> bool {
        let next = self.chosen(reader);
        let grows = self.p.classes[reader as usize].elements > self.p.classes[c as usize].elements;
        within(self.chosen(c).role, next.role, next.broadcast, grows)
    }

    /// How many elements a member of a kernel is computed for, asked for by one
    /// that is computed `asked` times; a reduction counts those it reads.
    fn space(&self, c: u32, asked: f64) -> f64 {
        let choice = self.chosen(c);
        let of = |c: u32| self.p.classes[c as usize].elements;
        match (choice.role, choice.args.first()) {
            (Role::Reduce, Some(a)) => of(*a).max(of(c)),
            _ => of(c).max(asked),
        }
    }

    /// The kernel that ends at `root`: every value all of whose readers are in it
    /// is computed in it too; what else it reads is in memory.
    fn kernel(&self, root: u32) -> Kernel {
        let model = &self.p.model;
        let end = self.chosen(root);
        let out = &self.p.classes[root as usize];
        let mut members = vec![root];
        // How often each member is computed.
        let mut spaces = vec![self.space(root, 0.0)];
        // Readers inside, by value; the bytes read.
        let mut read: BTreeMap<u32, (usize, f64)> = BTreeMap::new();
        let (mut work, mut contraction, mut contractions) = (0.0, 0.0, 0);
        let mut bytes = out.bytes;
        let mut launches = 1.0;
        let mut at = 0;
        while at < members.len() {
            let (c, space) = (members[at], spaces[at]);
            at += 1;
            let choice = self.chosen(c);
            if choice.role == Role::Contract {
                contractions += 1;
                contraction += choice.work;
                if contractions > 1 {
                    // Only one can have this epilogue; the others stand alone.
                    launches += 1.0;
                    bytes += 2.0 * self.p.classes[c as usize].bytes;
                }
            } else {
                work += choice.work * space;
            }
            for &a in &choice.args {
                let class = &self.p.classes[a as usize];
                if class.literal {
                    continue;
                }
                // A slice or a gather reads no more than it gives.
                let moved = match choice.role {
                    Role::Index => class.bytes.min(
                        class.bytes / class.elements.max(1.0) * self.p.classes[c as usize].elements,
                    ),
                    _ => class.bytes,
                };
                let (readers, most) = read.entry(a).or_default();
                *readers += 1;
                *most = most.max(moved);
                let uses = &self.uses[a as usize];
                let all_here = *readers == uses.len() && !self.root[a as usize];
                if all_here
                    && members.len() < MAX_MEMBERS
                    && !self.is_free(a)
                    && uses.iter().all(|u| self.computed_within(a, *u))
                {
                    read.remove(&a);
                    members.push(a);
                    spaces.push(self.space(a, space));
                }
            }
        }
        let inputs = read.keys().copied().filter(|a| !self.is_free(*a)).collect();
        // A view of something in memory is nothing at all.
        if end.role == Role::View && members.len() == 1 {
            return Kernel { members, inputs, cost: 0.0 };
        }
        bytes += read.values().map(|(_, b)| b).sum::<f64>();
        let (contraction, work) = (contraction / model.contraction, work / model.scalar);
        Kernel { members, inputs, cost: model.kernel(launches, contraction, work, bytes) }
    }

    /// The kernels that come of the classes given, each the end of one before or
    /// a root: those that changed, those that are new, and as `None` those that
    /// became part of another.
    fn kernels(&self, from: impl IntoIterator<Item = u32>) -> BTreeMap<u32, Option<Kernel>> {
        let mut out: BTreeMap<u32, Option<Kernel>> = BTreeMap::new();
        let mut work: Vec<u32> = from.into_iter().collect();
        while let Some(r) = work.pop() {
            if out.contains_key(&r) {
                continue;
            }
            if !self.used[r as usize] || self.is_free(r) {
                out.insert(r, None);
                continue;
            }
            let kernel = self.kernel(r);
            self.spend(kernel.members.len() + kernel.inputs.len());
            for m in &kernel.members[1..] {
                // It ended one, or was thought to.
                if self.member[*m as usize] == *m || out.contains_key(m) {
                    out.insert(*m, None);
                }
            }
            let ends = |i: &u32| self.member[*i as usize] == *i;
            work.extend(kernel.inputs.iter().filter(|i| !ends(i)));
            out.insert(r, Some(kernel));
        }
        out
    }

    fn settle(&mut self, kernels: BTreeMap<u32, Option<Kernel>>) {
        for root in kernels.keys() {
            self.kernel_cost[*root as usize] = 0.0;
        }
        for (root, kernel) in kernels {
            let Some(kernel) = kernel else { continue };
            for m in kernel.members {
                self.member[m as usize] = root;
            }
            self.kernel_cost[root as usize] = kernel.cost;
        }
    }

    /// Numbers that grow from operands to users, for the cycle check: the
    /// longest way down to a leaf, with room between.
    fn relevel(&mut self) {
        let mut done = vec![false; self.choice.len()];
        let mut stack: Vec<(u32, bool)> = self.p.roots.iter().map(|r| (*r, false)).collect();
        while let Some((c, ready)) = stack.pop() {
            if done[c as usize] {
                continue;
            }
            let args = &self.chosen(c).args;
            if ready {
                done[c as usize] = true;
                self.level[c as usize] =
                    args.iter().map(|a| self.level[*a as usize] + ROOM).max().unwrap_or(0);
            } else {
                stack.push((c, true));
                stack.extend(args.iter().filter(|a| !done[**a as usize]).map(|a| (*a, false)));
            }
        }
    }

    /// Puts levels right after the choice of some classes changed: what is too
    /// low is raised, and what uses it.
    fn raise(&mut self, changed: Vec<u32>) {
        let mut work = changed;
        while let Some(c) = work.pop() {
            let args = &self.chosen(c).args;
            let least = args.iter().map(|a| self.level[*a as usize] + 1).max().unwrap_or(0);
            if self.level[c as usize] < least {
                self.level[c as usize] = least;
                work.extend(&self.uses[c as usize]);
            }
        }
    }

    /// Whether `target` can be reached from `from` by the current choices.
    fn reaches(&self, from: &[u32], target: u32) -> bool {
        let mut seen = BTreeSet::new();
        let mut stack = from.to_vec();
        while let Some(c) = stack.pop() {
            if c == target {
                return true;
            }
            // Below the target's level nothing used can lead back up to it.
            if self.used[c as usize] && self.level[c as usize] <= self.level[target as usize] {
                continue;
            }
            if seen.insert(c) {
                self.spend(1);
                stack.extend(&self.chosen(c).args);
            }
        }
        false
    }

    /// Tries another node for `c`; keeps it if the program gets cheaper.
    fn attempt(&mut self, c: u32, k: u32, total: f64) -> Option<f64> {
        let new = &self.p.classes[c as usize].choices[k as usize];
        let old = self.chosen(c);
        if self.reaches(&new.args, c) {
            return None;
        }
        self.touch(c);
        self.choice[c as usize] = k;
        for &a in &new.args {
            self.add_use(a, c);
        }
        for &a in &old.args {
            self.remove_use(a, c);
        }
        let mut changed_kernels = BTreeSet::new();
        for saved in &self.journal {
            let now = &self.uses[saved.class as usize];
            let near = [saved.class].into_iter().chain(saved.uses.iter().chain(now).copied());
            self.spend(1 + saved.uses.len() + now.len());
            changed_kernels.extend(near.map(|c| self.member[c as usize]));
        }
        changed_kernels.remove(&NONE);
        let kernels = self.kernels(changed_kernels);
        let mut gain = 0.0;
        for (r, kernel) in &kernels {
            gain += self.kernel_cost[*r as usize];
            gain -= kernel.as_ref().map_or(0.0, |k| k.cost);
        }
        if gain <= total * GAIN {
            self.roll_back();
            return None;
        }
        let mut changed = vec![c];
        for saved in &self.journal {
            let now = self.used[saved.class as usize];
            if !now {
                self.member[saved.class as usize] = NONE;
            } else if !saved.used {
                changed.push(saved.class);
            }
        }
        self.settle(kernels);
        self.forget();
        self.raise(changed);
        Some(gain)
    }

    fn spend(&self, effort: usize) {
        self.effort.set(self.effort.get().saturating_add(effort));
    }

    fn forget(&mut self) {
        for saved in self.journal.drain(..) {
            self.touched[saved.class as usize] = false;
        }
    }

    fn roll_back(&mut self) {
        for saved in std::mem::take(&mut self.journal) {
            let i = saved.class as usize;
            self.choice[i] = saved.choice;
            self.used[i] = saved.used;
            self.uses[i] = saved.uses;
            self.touched[i] = false;
        }
    }

    /// Swaps until no single swap helps. Returns how many were made.
    fn climb(&mut self) -> usize {
        let mut total = self.totals().cost;
        let mut swaps = 0;
        let mut work: BTreeSet<u32> = (0..self.choice.len() as u32)
            .filter(|c| self.p.classes[*c as usize].choices.len() > 1)
            .collect();
        // Each swap lowers the cost, so this ends; the count is a backstop.
        let most = 64 * (self.choice.len() + 1);
        while let Some(c) = work.pop_first() {
            if !self.used[c as usize] || self.is_free(c) {
                continue;
            }
            for k in 0..self.p.classes[c as usize].choices.len() as u32 {
                if k == self.choice[c as usize] {
                    continue;
                }
                if let Some(gain) = self.attempt(c, k, total) {
                    total -= gain;
                    swaps += 1;
                    // Neighbours may now have something to gain.
                    let mut near = vec![c];
                    near.extend(&self.uses[c as usize]);
                    near.extend(&self.chosen(c).args);
                    for n in near.clone() {
                        near.extend(&self.uses[n as usize]);
                        near.extend(&self.chosen(n).args);
                    }
                    work.extend(
                        near.iter().filter(|n| self.p.classes[**n as usize].choices.len() > 1),
                    );
                }
            }
            if swaps > most || self.effort.get() > self.most {
                break;
            }
        }
        swaps
    }

    /// Whether costing everything anew gives the same.
    fn costs_hold(&self) -> bool {
        let (now, again) = (self.totals(), State::with(self.p, self.choice.clone()));
        again.is_some_and(|s| (s.totals().cost - now.cost).abs() <= 1e-6 * now.cost.max(1.0))
    }

    fn totals(&self) -> Totals {
        let mut t = Totals::default();
        for c in 0..self.choice.len() as u32 {
            if !self.used[c as usize] || self.is_free(c) {
                continue;
            }
            t.ops += (self.chosen(c).role != Role::View) as usize;
            if self.member[c as usize] == c {
                t.cost += self.kernel_cost[c as usize];
                t.kernels += (self.kernel_cost[c as usize] > 0.0) as usize;
            }
        }
        t
    }
}
