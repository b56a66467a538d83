//! Which server has what of an entry's variables.
//!
//! Workers and servers work this out for themselves, from the program and the number
//! of servers: nothing of it travels. Groups go to the server that has least so far,
//! the largest first; one that is larger than a server's fair share, and whose update
//! takes any number of elements, is split by rows over all of them.

use crate::error::{Error, ErrorCode, Result};
use crate::tensor::byte_len;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use tfc_abi::DType;
use tfc_abi::parts::{ELEMENTS, Part, Wire};
use tfc_abi::plan::{Plan, Port, Step};

/// A tensor of a fixed size.
#[derive(Clone, Debug, PartialEq)]
pub struct Shape {
    pub dtype: DType,
    pub sizes: Vec<usize>,
}

impl Shape {
    pub fn bytes(&self) -> usize {
        byte_len(self.dtype, &self.sizes).unwrap_or(0)
    }

    pub fn elements(&self) -> usize {
        self.sizes.iter().product()
    }
}

/// A part that servers run: the entry, and what its ports are.
#[derive(Clone, Debug)]
pub struct Run {
    pub entry: usize,
    pub params: Vec<Wire>,
    pub results: Vec<Wire>,
}

/// Where a gradient is among the results of the worker's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    pub at: usize,
    pub rows: bool,
}

/// Tables up to this many bytes are taken whole: asking for rows is a message more.
const SMALL: usize = 64 << 10;

/// Variables that are together on a server, with what becomes of them.
#[derive(Clone, Debug)]
pub struct ServedGroup {
    pub summary: Option<Run>,
    pub update: Option<Run>,
    /// The update takes tensors as rows of elements, any number of them.
    pub flat: bool,
    /// It is given rows of its gradient alone, and the same rows of its variables.
    pub by_rows: bool,
    /// So that a server may have some rows alone.
    pub splits: bool,
    /// Variables of the plan.
    pub vars: Vec<u32>,
    pub grads: Vec<u32>,
}

/// A group, or some rows of it, on one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Shard {
    pub group: usize,
    pub server: usize,
    /// Elements of each of its tensors; scalars are everywhere.
    pub elements: Option<Range<usize>>,
}

/// How one entry is divided between workers and servers.
#[derive(Clone, Debug)]
pub struct Layout {
    /// What workers run.
    pub gradients: usize,
    /// And before it: which rows of tables it reads.
    pub used: Option<usize>,
    /// Results of the entry itself; gradients and the like come after them.
    pub results: usize,
    pub shared: Option<Run>,
    /// Variables and gradients that `shared` has for itself, on the first server.
    pub home_vars: Vec<u32>,
    pub home_grads: Vec<u32>,
    pub groups: Vec<ServedGroup>,
    pub shards: Vec<Shard>,
    pub servers: usize,
    /// By number.
    pub grads: Vec<Shape>,
    /// Where they are among the worker's results. Those that come as rows have the
    /// numbers of these before them.
    pub sources: Vec<Source>,
    /// What else workers send: element types, by number.
    pub crosses: Vec<DType>,
    /// Float scalars among the results of the entry.
    pub scalars: Vec<usize>,
    pub parts: BTreeMap<u32, Shape>,
    pub shareds: BTreeMap<u32, Shape>,
    /// Variables workers compute with, and take whole.
    pub read: BTreeSet<u32>,
    /// Variables of which they take some rows, in the order of the results of `used`.
    pub tables: Vec<u32>,
    /// Where in the graph gradients are combined, for messages.
    pub place: String,
    vars: Vec<Shape>,
}

impl Layout {
    pub fn new(plan: &Plan, entry: usize, servers: usize) -> Result<Layout> {
        let Some(gradients) = plan.part(entry, Part::Gradients) else {
            return Err(cannot(plan, entry));
        };
        let vars = plan.vars.iter().map(|v| Shape {
            dtype: v.dtype,
            sizes: v.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect(),
        });
        let worker = &plan.entries[gradients];
        let results = plan.entries[entry].results.len();
        let shape = |e: usize, port: &Port| fixed(plan, e, port);
        let mut out = Layout {
            gradients,
            used: plan.part(entry, Part::Used),
            results,
            shared: plan.part(entry, Part::Shared).map(|e| run(plan, e)),
            home_vars: vec![],
            home_grads: vec![],
            groups: vec![],
            shards: vec![],
            servers,
            grads: vec![],
            sources: vec![],
            crosses: vec![],
            scalars: vec![],
            parts: BTreeMap::new(),
            shareds: BTreeMap::new(),
            read: BTreeSet::new(),
            tables: vec![],
            place: place(plan, entry),
            vars: vars.collect(),
        };
        for (at, port) in worker.results.iter().enumerate().skip(results) {
            match Wire::of(&port.name) {
                Some(Wire::Grad(_)) => {
                    out.grads.push(shape(gradients, port).ok_or_else(|| cannot(plan, entry))?);
                    out.sources.push(Source { at, rows: false });
                }
                Some(Wire::Ids(_)) => {}
                Some(Wire::Rows(_)) => {
                    // Of which tensor they are rows, its update says.
                    out.grads.push(Shape { dtype: port.dtype, sizes: vec![] });
                    out.sources.push(Source { at, rows: true });
                }
                _ => out.crosses.push(port.dtype),
            }
        }
        let scalar = |p: &Port| p.shape.is_empty() && p.dtype.is_float();
        out.scalars = (0..results).filter(|i| scalar(&worker.results[*i])).collect();
        for b in &worker.buffers {
            if let tfc_abi::plan::Home::Var(v) = b.home {
                out.read.insert(v);
            }
        }
        for g in 0.. {
            let summary = plan.part(entry, Part::Summary(g)).map(|e| run(plan, e));
            let update = plan.part(entry, Part::Update(g)).map(|e| run(plan, e));
            if summary.is_none() && update.is_none() {
                break;
            }
            let flat = update.as_ref().is_some_and(|u| {
                let any = |p: &Port| p.text.contains(ELEMENTS);
                plan.entries[u.entry].params.iter().any(any)
            });
            let splits = flat && summary.is_none();
            let mut wires: BTreeSet<Wire> = BTreeSet::new();
            for r in summary.iter().chain(&update) {
                wires.extend(r.params.iter().chain(&r.results));
            }
            let vars =
                wires.iter().filter_map(|w| if let Wire::Var(v) = w { Some(*v) } else { None });
            let grads: BTreeSet<u32> = wires
                .iter()
                .filter_map(|w| match w {
                    Wire::Grad(k) | Wire::Rows(k) => Some(*k),
                    _ => None,
                })
                .collect();
            let by_rows = flat && wires.iter().any(|w| matches!(w, Wire::Rows(_)));
            let (vars, grads) = (vars.collect(), grads.into_iter().collect());
            out.groups.push(ServedGroup { summary, update, flat, by_rows, splits, vars, grads });
        }
        // The tensors of an update for any number of elements are all of one shape.
        let tensors: Vec<(Vec<u32>, Shape)> = out
            .groups
            .iter()
            .filter(|g| g.flat)
            .filter_map(|g| {
                let vars = g.vars.iter().filter_map(|v| out.vars.get(*v as usize));
                let shape = vars.clone().find(|s| !s.sizes.is_empty())?;
                Some((g.grads.clone(), shape.clone()))
            })
            .collect();
        for (grads, shape) in tensors {
            out.know(&grads, &shape);
        }
        let taken: BTreeSet<u32> = out.groups.iter().flat_map(|g| &g.vars).copied().collect();
        let runs = out.groups.iter().flat_map(|g| g.summary.iter().chain(&g.update));
        let runs: Vec<Run> = runs.chain(&out.shared).cloned().collect();
        for r in &runs {
            let e = &plan.entries[r.entry];
            let ports = e.params.iter().zip(&r.params).chain(e.results.iter().zip(&r.results));
            for (port, wire) in ports {
                let Some(shape) = shape(r.entry, port) else { continue };
                match wire {
                    Wire::Grad(k) => out.know(&[*k], &shape),
                    Wire::Part(k) => drop(out.parts.insert(*k, shape)),
                    Wire::Shared(k) => drop(out.shareds.insert(*k, shape)),
                    _ => {}
                }
            }
        }
        if let Some(r) = &out.shared {
            let mut home: BTreeSet<Wire> = r.params.iter().chain(&r.results).copied().collect();
            home.retain(|w| !matches!(w, Wire::Var(v) if taken.contains(v)));
            for w in home {
                match w {
                    Wire::Var(v) => out.home_vars.push(v),
                    Wire::Grad(k) => out.home_grads.push(k),
                    _ => {}
                }
            }
        }
        let known = |v: &u32| (*v as usize) < out.vars.len();
        let fits = out.groups.iter().all(|g| g.vars.iter().all(known))
            && out.home_vars.iter().all(known)
            && out.groups.iter().flat_map(|g| &g.grads).all(|k| (*k as usize) < out.grads.len())
            && out.home_grads.iter().all(|k| (*k as usize) < out.grads.len());
        let sized = out.sources.iter().zip(&out.grads);
        let sized =
            sized.filter(|(s, _)| s.rows).all(|(s, g)| s.at > results && !g.sizes.is_empty());
        if !fits || !sized {
            return Err(cannot(plan, entry));
        }
        out.place_groups();
        out.find_tables(plan);
        Ok(out)
    }

    /// The shape of gradients that come as rows.
    fn know(&mut self, grads: &[u32], shape: &Shape) {
        for &k in grads {
            let source = self.sources.get(k as usize);
            let grad = self.grads.get_mut(k as usize);
            if let Some(grad) = grad.filter(|_| source.is_some_and(|s| s.rows)) {
                grad.sizes = shape.sizes.clone();
            }
        }
    }

    /// Which variables workers take some rows of: large ones that servers have.
    fn find_tables(&mut self, plan: &Plan) {
        let Some(used) = self.used else { return };
        let held: BTreeSet<u32> = self.groups.iter().flat_map(|g| &g.vars).copied().collect();
        let mut all = vec![];
        for port in &plan.entries[used].results {
            match Wire::of(&port.name) {
                Some(Wire::Var(v)) if held.contains(&v) => all.push(v),
                // Not what it should be: everything is taken whole.
                _ => return self.used = None,
            }
        }
        let large = |v: &&u32| self.var(**v).bytes() > SMALL;
        let large: BTreeSet<u32> = all.iter().filter(large).copied().collect();
        if large.is_empty() {
            return self.used = None;
        }
        self.read.retain(|v| !large.contains(v));
        self.tables = all;
    }

    /// Whether workers take some rows of a variable at a time.
    pub fn by_rows(&self, var: u32) -> bool {
        self.tables.contains(&var) && !self.read.contains(&var)
    }

    /// The variables a server has of which workers take rows, with the number of its
    /// shard there and the rows it has.
    pub fn tables_on(&self, server: usize) -> Vec<(u32, usize, Range<usize>)> {
        let mut out = vec![];
        for (i, shard) in self.on(server).enumerate() {
            let vars = self.groups[shard.group].vars.iter().filter(|v| self.by_rows(**v));
            out.extend(vars.map(|&v| (v, i, self.rows(shard, self.var(v)))));
        }
        out
    }

    /// The rows of a tensor of this shape that a shard has.
    pub fn rows(&self, shard: &Shard, shape: &Shape) -> Range<usize> {
        let (rows, width) = super::rows::extent(shape);
        let bytes = self.range(shard, shape);
        let at = |byte: usize| byte.checked_div(width).unwrap_or(rows).min(rows);
        at(bytes.start)..at(bytes.end)
    }

    fn place_groups(&mut self) {
        let size = |g: &ServedGroup| g.vars.iter().map(|v| self.var(*v).bytes()).sum::<usize>();
        let mut order: Vec<(usize, usize)> =
            self.groups.iter().enumerate().map(|(i, g)| (size(g), i)).collect();
        order.sort_by_key(|(bytes, i)| (std::cmp::Reverse(*bytes), *i));
        let fair = order.iter().map(|(bytes, _)| bytes).sum::<usize>() / self.servers;
        let mut load = vec![0usize; self.servers];
        let mut shards = vec![];
        for (bytes, i) in order {
            let g = &self.groups[i];
            let largest = g.vars.iter().map(|v| self.var(*v)).max_by_key(|s| s.elements());
            let rows = largest.and_then(|s| s.sizes.first().copied()).unwrap_or(1);
            let elements = largest.map_or(0, |s| s.elements());
            if g.splits && self.servers > 1 && bytes > fair && rows >= self.servers {
                let row = elements / rows;
                for (server, load) in load.iter_mut().enumerate() {
                    let at = |s: usize| rows * s / self.servers * row;
                    let range = at(server)..at(server + 1);
                    *load += bytes / elements.max(1) * range.len();
                    shards.push(Shard { group: i, server, elements: Some(range) });
                }
            } else {
                let server = (0..self.servers).min_by_key(|s| (load[*s], *s)).unwrap_or(0);
                load[server] += bytes;
                let elements = g.splits.then_some(0..elements);
                shards.push(Shard { group: i, server, elements });
            }
        }
        shards.sort_by_key(|s| (s.server, s.group));
        self.shards = shards;
    }

    pub fn var(&self, var: u32) -> &Shape {
        &self.vars[var as usize]
    }

    pub fn on(&self, server: usize) -> impl Iterator<Item = &Shard> {
        self.shards.iter().filter(move |s| s.server == server)
    }

    /// The bytes of a tensor of this shape that a shard has.
    pub fn range(&self, shard: &Shard, shape: &Shape) -> Range<usize> {
        match &shard.elements {
            Some(r) if !shape.sizes.is_empty() => {
                let size = shape.dtype.size();
                r.start * size..r.end * size
            }
            _ => 0..shape.bytes(),
        }
    }

    /// Whether a shard saves what it has of a tensor of this shape: not if it is a scalar
    /// that an earlier shard of its group has, too.
    pub fn saves(&self, shard: &Shard, shape: &Shape) -> bool {
        let first = self.shards.iter().find(|s| s.group == shard.group);
        !shape.sizes.is_empty() || shard.elements.is_none() || first == Some(shard)
    }

    /// Where all of a variable is: on which servers, at which place among the variables
    /// of each, and which bytes of it they have. None for a worker's own.
    pub fn held_by(&self, var: u32) -> Vec<(usize, usize, Range<usize>)> {
        let mut out: Vec<(usize, usize, Range<usize>)> = vec![];
        for server in 0..self.servers {
            for (at, (v, range)) in self.vars_on(server, true).into_iter().enumerate() {
                let known = out.last().map_or(0, |(.., r)| r.end);
                if v == var && (range.start >= known || range.is_empty()) {
                    out.push((server, at, range));
                }
            }
        }
        out
    }

    /// Variables that servers do not have: each worker has them for itself.
    pub fn own(&self) -> Vec<u32> {
        let served = self.served();
        (0..self.vars.len() as u32).filter(|v| !served.contains(v)).collect()
    }

    /// The bytes of these.
    pub fn own_bytes(&self) -> usize {
        self.own().iter().map(|v| self.var(*v).bytes()).sum()
    }

    /// Variables that servers have.
    pub fn served(&self) -> BTreeSet<u32> {
        self.groups.iter().flat_map(|g| &g.vars).chain(&self.home_vars).copied().collect()
    }

    /// What a server has of a tensor, as the update takes it.
    pub fn held(&self, shard: &Shard, shape: &Shape) -> Shape {
        match &shard.elements {
            Some(r) if !shape.sizes.is_empty() => {
                Shape { dtype: shape.dtype, sizes: vec![r.len()] }
            }
            _ => shape.clone(),
        }
    }

    /// Variables on a server with the bytes it has of them: all, or those that workers
    /// read. A scalar that several servers have counts for the first.
    pub fn vars_on(&self, server: usize, all: bool) -> Vec<(u32, Range<usize>)> {
        let mut out = vec![];
        for shard in self.on(server) {
            for &v in &self.groups[shard.group].vars {
                out.push((v, self.range(shard, self.var(v))));
            }
        }
        if server == 0 {
            out.extend(self.home_vars.iter().map(|&v| (v, 0..self.var(v).bytes())));
        }
        out.retain(|(v, _)| all || self.read.contains(v));
        out
    }

    /// Bytes of the gradients that go to a server, in the order they are sent, and of
    /// those that come as rows which.
    pub fn grads_to(&self, server: usize) -> Vec<(u32, Range<usize>, Option<Range<usize>>)> {
        let mut out = vec![];
        let sparse = |k: u32| self.sources[k as usize].rows;
        for shard in self.on(server) {
            for &k in &self.groups[shard.group].grads {
                let shape = &self.grads[k as usize];
                let rows = sparse(k).then(|| self.rows(shard, shape));
                out.push((k, self.range(shard, shape), rows));
            }
        }
        if server == 0 {
            for &k in &self.home_grads {
                let shape = &self.grads[k as usize];
                let rows = sparse(k).then(|| 0..super::rows::extent(shape).0);
                out.push((k, 0..shape.bytes(), rows));
            }
        }
        out
    }

    /// The parts that a server sums its groups up to.
    pub fn parts_on(&self, server: usize) -> Vec<u32> {
        let runs = self.on(server).filter_map(|s| self.groups[s.group].summary.as_ref());
        runs.flat_map(|r| &r.results)
            .filter_map(|w| if let Wire::Part(k) = w { Some(*k) } else { None })
            .collect()
    }
}

fn run(plan: &Plan, entry: usize) -> Run {
    let e = &plan.entries[entry];
    // A port without such a name is a variable there is not: it does not fit.
    let wires = |ports: &[Port]| {
        ports.iter().map(|p| Wire::of(&p.name).unwrap_or(Wire::Var(u32::MAX))).collect()
    };
    Run { entry, params: wires(&e.params), results: wires(&e.results) }
}

/// The type of a port without run-time dims.
fn fixed(plan: &Plan, entry: usize, port: &Port) -> Option<Shape> {
    let e = &plan.entries[entry];
    let size = |id: &u32| usize::try_from(e.exprs.get(*id as usize)?.as_const()?).ok();
    let sizes = port.shape.iter().map(size).collect::<Option<Vec<usize>>>()?;
    Some(Shape { dtype: port.dtype, sizes })
}

fn place(plan: &Plan, entry: usize) -> String {
    let steps = plan.replica(entry).map(|r| &plan.entries[r].steps);
    let exchange = steps.and_then(|s| {
        s.iter().find_map(|s| match s {
            Step::Exchange(x) => Some(x.place.clone()),
            _ => None,
        })
    });
    exchange.unwrap_or_default()
}

fn cannot(plan: &Plan, entry: usize) -> Error {
    let name = plan.entries.get(entry).map_or("", |e| e.name.as_str());
    Error::usage(
        ErrorCode::CANNOT_SHARE,
        format!("`{name}` cannot be divided between workers and parameter servers"),
    )
    .note(
        "an entry can be divided if it learns by `minimize` outside of branches and loops, and \
         its other values neither see what it learned in the same step nor are combined by \
         `all_reduce`",
    )
    .help("`--mode sync` trains it with several workers")
}
