//! Dividing an update into groups of variables, and what they have in common.

use super::{Update, rows, spreads_scalar};
use crate::util::Stop;
use std::collections::{BTreeMap, BTreeSet};
use tfc_abi::parts::{ELEMENTS, Part, Wire};
use tfc_ir::build::{Builder, NodeSpec};
use tfc_ir::lower::Lower;
use tfc_ir::{Attr, Dim, Func, Graph, NodeId, TensorType, ValueId, VarId};

/// Who computes a value of the update.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Home {
    /// Whoever needs it: it depends on literals and what workers send.
    Anywhere,
    Group(usize),
    Shared,
}

/// Sets of things that belong together.
struct Sets(Vec<usize>);

impl Sets {
    fn find(&self, mut i: usize) -> usize {
        while self.0[i] != i {
            i = self.0[i];
        }
        i
    }

    fn unite(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.0[a.max(b)] = a.min(b);
    }
}

/// Where each value of the update is computed.
struct Homes {
    homes: BTreeMap<ValueId, Home>,
}

impl Homes {
    /// `together` puts all into one group.
    fn find(u: &Update, together: bool) -> Homes {
        let func = &u.func;
        let atoms: Vec<ValueId> =
            u.vars.values().copied().chain(u.grads.iter().map(|(_, p)| *p)).collect();
        let number: BTreeMap<ValueId, usize> =
            atoms.iter().enumerate().map(|(i, v)| (*v, i)).collect();
        let dense = |v: ValueId| together || func.ty(v).rank() > 0;
        let mut sets = Sets((0..atoms.len()).collect());
        // Tensors that are computed of tensors.
        let mut of: BTreeMap<ValueId, usize> =
            atoms.iter().filter(|v| dense(**v)).map(|v| (*v, number[v])).collect();
        for &id in &func.regions[func.body].nodes {
            let node = &func.nodes[id];
            let from: Vec<usize> =
                node.operands.iter().filter_map(|v| of.get(v).copied()).collect();
            for pair in from.windows(2) {
                sets.unite(pair[0], pair[1]);
            }
            for &result in node.results.iter().filter(|v| dense(**v)) {
                of.extend(from.first().map(|set| (result, *set)));
            }
        }
        for (var, value) in &u.written {
            if let (Some(&a), Some(&b)) = (of.get(&u.vars[var]), of.get(value)) {
                sets.unite(a, b);
            }
        }
        if together {
            (1..atoms.len()).for_each(|i| sets.unite(0, i));
        }
        // Scalars: of what they are computed.
        let mut sources: BTreeMap<ValueId, BTreeSet<usize>> = BTreeMap::new();
        for (&v, &i) in &number {
            sources.insert(v, [sets.find(i)].into());
        }
        for &id in &func.regions[func.body].nodes {
            let node = &func.nodes[id];
            for &result in &node.results {
                let all = match of.get(&result) {
                    Some(set) => [sets.find(*set)].into(),
                    None => node
                        .operands
                        .iter()
                        .filter_map(|v| sources.get(v))
                        .flatten()
                        .copied()
                        .collect(),
                };
                sources.insert(result, all);
            }
        }
        // A scalar variable or gradient that one group alone uses is that group's.
        let is_scalar = |i: usize| !of.contains_key(&atoms[i]);
        let groups: BTreeSet<usize> = of.values().map(|i| sets.find(*i)).collect();
        let mut home: BTreeMap<usize, Option<usize>> = BTreeMap::new();
        for i in (0..atoms.len()).filter(|i| is_scalar(*i)) {
            let mut users: BTreeSet<usize> = BTreeSet::new();
            for &id in &func.regions[func.body].nodes {
                let node = &func.nodes[id];
                for (group, _) in node
                    .results
                    .iter()
                    .filter_map(|r| of.get(r).map(|s| sets.find(*s)))
                    .flat_map(|g| node.operands.iter().map(move |v| (g, *v)))
                    .filter(|(_, v)| {
                        !of.contains_key(v) && sources.get(v).is_some_and(|s| s.contains(&i))
                    })
                {
                    users.insert(group);
                }
            }
            home.insert(i, users.first().copied().filter(|_| users.len() == 1));
        }
        // Unless it meets something else.
        loop {
            let place = |i: usize, home: &BTreeMap<usize, Option<usize>>| match groups.contains(&i)
            {
                true => Some(i),
                false => home.get(&i).copied().flatten(),
            };
            let meets = sources.iter().filter(|(v, _)| !of.contains_key(v)).map(|(_, s)| s.clone());
            let stores = u.written.iter().filter_map(|(var, value)| {
                let own = sources.get(&u.vars[var])?;
                let new = sources.get(value).cloned().unwrap_or_default();
                Some(own.union(&new).copied().collect::<BTreeSet<usize>>())
            });
            let mut changed = false;
            for set in meets.chain(stores) {
                let places: BTreeSet<Option<usize>> =
                    set.iter().map(|i| place(*i, &home)).collect();
                if places.len() > 1 {
                    for i in set.iter().filter(|i| !groups.contains(i)) {
                        changed |= home.insert(*i, None).flatten().is_some();
                    }
                }
            }
            if !changed {
                break;
            }
        }
        let place = |i: usize| match groups.contains(&i) {
            true => Home::Group(i),
            false => home.get(&i).copied().flatten().map_or(Home::Shared, Home::Group),
        };
        let mut homes = BTreeMap::new();
        for (&value, set) in &sources {
            let mut places: Vec<Home> = set.iter().map(|i| place(*i)).collect();
            places.dedup();
            homes.insert(
                value,
                match places.as_slice() {
                    [] => Home::Anywhere,
                    [one] => *one,
                    _ => Home::Shared,
                },
            );
        }
        Homes { homes }
    }

    fn at(&self, value: ValueId) -> Home {
        self.homes.get(&value).copied().unwrap_or(Home::Anywhere)
    }

    /// What one place needs of another: of groups for `shared` or another group, of
    /// `shared` for groups.
    fn wires(&self, u: &Update) -> (Vec<ValueId>, Vec<ValueId>) {
        let (mut parts, mut shared) = (BTreeSet::new(), BTreeSet::new());
        let mut need = |value: ValueId, at: Home| {
            let value = unrepeated(&u.func, value);
            match (self.at(value), at) {
                (Home::Group(a), Home::Group(b)) if a != b => {
                    parts.insert(value);
                    shared.insert(value);
                }
                (Home::Group(_), Home::Shared) => drop(parts.insert(value)),
                (Home::Shared, Home::Group(_)) => drop(shared.insert(value)),
                _ => {}
            }
        };
        for &id in &u.func.regions[u.func.body].nodes {
            let node = &u.func.nodes[id];
            for &result in &node.results {
                node.operands.iter().for_each(|v| need(*v, self.at(result)));
            }
        }
        for (var, value) in &u.written {
            need(*value, self.at(u.vars[var]));
        }
        (parts.into_iter().collect(), shared.into_iter().collect())
    }

    /// Whether what groups are summed up to does not depend on what all of them come
    /// to: one round is enough.
    fn one_round(&self, u: &Update, parts: &[ValueId]) -> bool {
        let mut late: BTreeSet<ValueId> = BTreeSet::new();
        for &id in &u.func.regions[u.func.body].nodes {
            let node = &u.func.nodes[id];
            for &result in &node.results {
                let here = self.at(result);
                let foreign = |v: &ValueId| match (self.at(*v), here) {
                    (Home::Shared, Home::Group(_)) => true,
                    (Home::Group(a), Home::Group(b)) => a != b,
                    _ => false,
                };
                if matches!(here, Home::Group(_))
                    && node.operands.iter().any(|v| foreign(v) || late.contains(v))
                {
                    late.insert(result);
                }
            }
        }
        !parts.iter().any(|v| late.contains(v))
    }
}

/// The servers' parts.
pub(super) fn groups(
    graph: &Graph,
    func: &Func,
    u: &Update,
    sparse: &BTreeSet<u32>,
) -> Result<Vec<Func>, Stop> {
    let mut homes = Homes::find(u, false);
    let (mut parts, mut shared) = homes.wires(u);
    if !homes.one_round(u, &parts) {
        homes = Homes::find(u, true);
        (parts, shared) = homes.wires(u);
    }
    let name = |value: &ValueId, list: &[ValueId], wire: fn(u32) -> Wire| {
        list.iter().position(|v| v == value).map(|k| (*value, wire(k as u32).name()))
    };
    let var_name = |var: VarId| Wire::Var(plan_index(graph, var)).name();
    // What every part may be given.
    let mut given: Vec<(ValueId, String)> = vec![];
    for (k, (_, param)) in (0u32..).zip(&u.grads) {
        given.push((*param, Wire::Grad(k).name()));
    }
    given.extend(u.vars.iter().map(|(var, param)| (*param, var_name(*var))));
    for (k, (_, param)) in (0u32..).zip(&u.crosses) {
        given.push((*param, Wire::Cross(k).name()));
    }
    let members: BTreeSet<usize> = u
        .vars
        .values()
        .chain(u.grads.iter().map(|(_, p)| p))
        .filter_map(|p| match homes.at(*p) {
            Home::Group(g) => Some(g),
            _ => None,
        })
        .collect();
    let results_at = |home: Home| -> Vec<(ValueId, String)> {
        let here = u.written.iter().filter(|(var, _)| homes.at(u.vars[var]) == home);
        here.map(|(var, value)| (*value, var_name(*var))).collect()
    };
    let mut out = vec![];
    for (g, &home) in (0u32..).zip(&members) {
        let sums: Vec<(ValueId, String)> = parts
            .iter()
            .filter(|v| homes.at(**v) == Home::Group(home))
            .filter_map(|v| name(v, &parts, Wire::Part))
            .collect();
        if !sums.is_empty() {
            out.push(slice(graph, u, &Part::Summary(g).name(&func.name), &given, &sums)?);
        }
        let results = results_at(Home::Group(home));
        if !results.is_empty() {
            let foreign = shared.iter().filter(|v| homes.at(**v) != Home::Group(home));
            let mut stops = given.clone();
            stops.extend(foreign.filter_map(|v| name(v, &shared, Wire::Shared)));
            let part = slice(graph, u, &Part::Update(g).name(&func.name), &stops, &results)?;
            out.push(match any_elements(graph, &part)? {
                Some(flat) => rows::alone(flat, sparse),
                None => part,
            });
        }
    }
    let mut results: Vec<(ValueId, String)> =
        shared.iter().filter_map(|v| name(v, &shared, Wire::Shared)).collect();
    results.extend(results_at(Home::Shared));
    if !results.is_empty() {
        let mut stops = given;
        stops.extend(parts.iter().filter_map(|v| name(v, &parts, Wire::Part)));
        out.push(slice(graph, u, &Part::Shared.name(&func.name), &stops, &results)?);
    }
    Ok(out)
}

/// The number a variable has in the plan.
pub(super) fn plan_index(graph: &Graph, var: VarId) -> u32 {
    graph.vars.iter().filter(|(id, v)| *id < var && v.symbol.is_variable()).count() as u32
}

/// What computes these values of the update, given those.
fn slice(
    graph: &Graph,
    u: &Update,
    name: &str,
    given: &[(ValueId, String)],
    results: &[(ValueId, String)],
) -> Result<Func, Stop> {
    let old = &u.func;
    let stops: BTreeMap<ValueId, &str> = given.iter().map(|(v, n)| (*v, n.as_str())).collect();
    let mut used: BTreeSet<ValueId> = BTreeSet::new();
    let mut needed: BTreeSet<NodeId> = BTreeSet::new();
    let mut stack: Vec<ValueId> = results.iter().map(|(v, _)| *v).collect();
    while let Some(value) = stack.pop() {
        match (stops.contains_key(&value), old.def(value)) {
            (false, Some(id)) if needed.insert(id) => stack.extend(&old.nodes[id].operands),
            (true, _) => drop(used.insert(value)),
            _ => {}
        }
    }
    let mut new = Func::new(name);
    let mut values: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut b = Builder::new(&mut new, &graph.vars);
    for (value, name) in given.iter().filter(|(v, _)| used.contains(v)) {
        values.insert(*value, b.param(old.ty(*value).clone(), Some(name.as_str().into())));
    }
    for &id in old.regions[old.body].nodes.iter().filter(|id| needed.contains(id)) {
        let node = &old.nodes[id];
        let operands: Vec<ValueId> = node.operands.iter().map(|v| values[v]).collect();
        let new = b.node(NodeSpec::new(node.op, &operands, node.attrs.clone(), node.span))?;
        let made = b.func.nodes[new].results.clone();
        values.extend(node.results.iter().copied().zip(made));
    }
    let body = new.body;
    new.regions[body].results = results.iter().map(|(v, _)| values[v]).collect();
    new.result_names = results.iter().map(|(_, n)| n.clone()).collect();
    Ok(new)
}

/// An update in which each element is computed by itself, for any number of them;
/// none if it is not such.
fn any_elements(graph: &Graph, func: &Func) -> Result<Option<Func>, Stop> {
    let shapes: BTreeSet<&[Dim]> =
        func.values.values().map(|v| v.ty.shape.as_slice()).filter(|s| !s.is_empty()).collect();
    let whole =
        shapes.len() == 1 && shapes.iter().all(|s| s.iter().all(|d| d.as_const().is_some()));
    let alone = func.nodes.values().all(|node| match node.op.def().lower {
        Lower::Map(_) => true,
        Lower::Constant => node.results.iter().all(|v| func.ty(*v).rank() == 0),
        _ => spreads_scalar(func, node),
    });
    // A scalar that is stored is stored by each server that has some rows.
    if !whole || !alone {
        return Ok(None);
    }
    let dims = vec![Dim::sym(ELEMENTS)];
    let flat = |ty: &TensorType| match ty.rank() {
        0 => ty.clone(),
        _ => TensorType::new(ty.dtype, dims.clone()),
    };
    let mut new = Func::new(&func.name);
    let mut values: BTreeMap<ValueId, ValueId> = BTreeMap::new();
    let mut b = Builder::new(&mut new, &graph.vars);
    for &p in func.params() {
        let param = b.param(flat(func.ty(p)), func.values[p].name.clone());
        values.insert(p, param);
    }
    for &id in &func.regions[func.body].nodes {
        let node = &func.nodes[id];
        let operands: Vec<ValueId> = node.operands.iter().map(|v| values[v]).collect();
        let mut attrs = node.attrs.clone();
        if spreads_scalar(func, node) {
            attrs.set("shape", Attr::Shape(dims.clone()));
        }
        let made = b.node(NodeSpec::new(node.op, &operands, attrs, node.span))?;
        let results = b.func.nodes[made].results.clone();
        values.extend(node.results.iter().copied().zip(results));
    }
    let body = new.body;
    new.regions[body].results = func.results().iter().map(|v| values[v]).collect();
    new.result_names = func.result_names.clone();
    Ok(Some(new))
}

/// The scalar that a value repeats, or the value: who needs it can repeat it.
fn unrepeated(func: &Func, value: ValueId) -> ValueId {
    match func.def(value).map(|id| &func.nodes[id]) {
        Some(node) if spreads_scalar(func, node) => node.operands[0],
        _ => value,
    }
}
