//! `tfc inspect`: what a graph has and what it costs.
//!
//! Costs are those of [`tfc_ir::cost`]. An entry without gradients is counted as it
//! is written, so that its numbers do not depend on the optimizer; one that trains
//! is counted after gradients are made and the graph is optimized.

use super::bench::{known_dims, parse_dims};
use super::memory::{self, Memory};
use super::{Done, args};
use crate::driver::{self, Timings};
use crate::error::Result;
use args::NodeOrder;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tfc_abi::plan::{Entry, Expr, ExprOp, Plan, Step};
use tfc_ir::cost::{self, Cost, Size};
use tfc_ir::graph::Var;
use tfc_ir::{Dim, Func, Graph, Op, TensorType, ValueId, VarId};

/// Variables listed unless `--nodes` asks for all.
const SHOWN_VARS: usize = 24;

pub fn run(args: &args::Inspect) -> Result<Done> {
    let loaded = super::load(&args.graph, &args.codegen.source)?;
    super::warn(&loaded.warnings, &loaded.sources);
    super::keep_sources(&args.graph, &loaded, "--memory", args.memory.as_deref())?;
    let names: Vec<String> = args.entry.iter().cloned().collect();
    // Which variables are trained is known from the whole graph only.
    let parameters = cost::parameter_vars(&loaded.graph);
    let parameters = parameters.iter().map(|v| loaded.graph.vars[*v].name.clone()).collect();
    let graph = driver::select_entries(&loaded.graph, &names)?;
    let options = super::options(&args.codegen)?;
    let mut timings = Timings::default();
    let compiled = driver::compile(&graph, &loaded.sources, &options, &mut timings)?;
    let dims = parse_dims(&args.dims)?;
    known_dims(&compiled.program.plan, &dims)?;
    let view = View {
        whole: &loaded.graph,
        graph: &graph,
        parameters,
        optimized: &compiled.graph,
        plan: &compiled.program.plan,
        dims,
        nodes: args.nodes,
        layers: args.layers,
        sort: args.sort,
    };
    if args.codegen.timings {
        super::tell(&timings.table());
    }
    if let Some(path) = &args.memory {
        return view.draw(path);
    }
    let text = if args.json { format!("{:#}\n", view.json()) } else { view.text() };
    Ok(text.into())
}

struct View<'a> {
    /// All that the file has; `graph` has the entries asked for.
    whole: &'a Graph,
    graph: &'a Graph,
    /// Names of the variables that count as parameters.
    parameters: BTreeSet<String>,
    optimized: &'a Graph,
    plan: &'a Plan,
    dims: BTreeMap<String, i64>,
    nodes: bool,
    layers: bool,
    sort: NodeOrder,
}

/// A node's row.
struct NodeRow {
    name: String,
    op: &'static str,
    ty: String,
    cost: Cost,
    parameters: Dim,
}

/// What belongs to one set of variables: those of one call.
struct Layer {
    name: String,
    output: String,
    parameters: i64,
    multiply_adds: Dim,
}

impl View<'_> {
    /// A type, with numbers for the dims that are given.
    fn shown(&self, ty: &TensorType) -> String {
        let sizes: Vec<String> = ty
            .shape
            .iter()
            .map(|d| self.value(d).map_or_else(|| d.to_string(), |n| n.to_string()))
            .collect();
        format!("{}[{}]", ty.dtype, sizes.join(", "))
    }

    fn value(&self, dim: &Dim) -> Option<i64> {
        dim.eval(&|name| self.dims.get(name).copied())
    }

    /// A size as a number where the dims are known, as a formula otherwise.
    fn amount(&self, dim: &Dim) -> String {
        match self.value(dim) {
            Some(n) => grouped(n),
            None => group_digits(&dim.to_string()),
        }
    }

    fn amount_json(&self, dim: &Dim) -> Json {
        match self.value(dim) {
            Some(n) => n.into(),
            None => dim.to_string().into(),
        }
    }

    fn text(&self) -> String {
        let mut out = format!("graph {}\n", self.graph.name);
        if !self.graph.doc.is_empty() {
            let _ = writeln!(out, "  {}", self.graph.doc.replace('\n', "\n  "));
        }
        for dim in &self.graph.dims {
            let range = match (dim.min, dim.max) {
                (min, i64::MAX) => format!("{min} or more"),
                (min, max) => format!("{min} to {max}"),
            };
            let _ = writeln!(out, "dim {}: {range}", dim.name);
        }
        self.vars(&mut out);
        for func in &self.graph.entries {
            let Some(entry) = self.plan.entries.iter().find(|e| e.name == func.name) else {
                continue;
            };
            self.entry(&mut out, func, entry);
        }
        out
    }

    fn is_parameter(&self, var: &Var) -> bool {
        self.parameters.contains(&var.name)
    }

    /// Parameters and other state, of the variables given.
    fn sizes<'v>(&self, vars: impl Iterator<Item = &'v Var>) -> (Size, Size) {
        let (mut parameters, mut other) = (Size::default(), Size::default());
        for var in vars {
            let size = if self.is_parameter(var) { &mut parameters } else { &mut other };
            let count = elements(var);
            size.count = size.count.saturating_add(count);
            size.bytes =
                size.bytes.saturating_add(count.saturating_mul(var.ty.dtype.size() as i64));
        }
        (parameters, other)
    }

    fn vars(&self, out: &mut String) {
        if tensors(self.whole).next().is_none() {
            return;
        }
        let (parameters, other) = self.sizes(tensors(self.whole));
        let _ = writeln!(
            out,
            "\nvariables: {} parameters ({}), {} numbers of other state ({})",
            grouped(parameters.count),
            bytes(parameters.bytes),
            grouped(other.count),
            bytes(other.bytes)
        );
        // Parameters first: slots and averages come after what they are about.
        let mut vars: Vec<&Var> = tensors(self.whole).collect();
        vars.sort_by_key(|v| !self.is_parameter(v));
        let shown = if self.nodes { vars.len() } else { vars.len().min(SHOWN_VARS) };
        let rows: Vec<[String; 4]> = vars[..shown]
            .iter()
            .map(|v| {
                let count = elements(v);
                let kind = if self.is_parameter(v) { "" } else { "state" };
                let size = bytes(count.saturating_mul(v.ty.dtype.size() as i64));
                [v.name.clone(), v.ty.to_string(), size, kind.to_string()]
            })
            .collect();
        table(out, &rows);
        if shown < vars.len() {
            let _ = writeln!(
                out,
                "  and {} more; --layers sums them up by layer, --nodes lists them",
                vars.len() - shown
            );
        }
    }

    /// The graph whose nodes an entry's cost is summed over, and the entry in it.
    fn counted<'f>(&'f self, func: &'f Func) -> (&'f Graph, &'f Func) {
        let mut trains = false;
        func.walk(&mut |_, node| trains |= node.op == Op::Grad);
        match self.optimized.entries.iter().find(|e| e.name == func.name) {
            Some(optimized) if trains => (self.optimized, optimized),
            _ => (self.graph, func),
        }
    }

    /// The smallest size a dim may have, but for none.
    fn least(&self, name: &str) -> i64 {
        let decl = self.graph.dims.iter().find(|d| &*d.name == name);
        decl.map_or(1, |d| d.min.max(1))
    }

    /// Multiply-adds and flops, for one example if only one dim is open.
    fn cost_line(&self, func: &Func) -> String {
        let (graph, func) = self.counted(func);
        let total = cost::total(graph, func);
        let open: BTreeSet<_> = [&total.flops, &total.multiply_adds]
            .into_iter()
            .flat_map(|d| d.syms())
            .filter(|name| !self.dims.contains_key(&**name))
            .collect();
        let mut open = open.iter();
        let one = match (open.next(), open.next()) {
            (Some(name), None) => Some((name, self.least(name))),
            _ => None,
        };
        let place = match one {
            Some((name, 1)) => format!(" per example ({name} = 1)"),
            Some((name, n)) => format!(" ({name} = {n})"),
            None => String::new(),
        };
        let get = |dim: &Dim| {
            let known = dim.eval(&|name| match one {
                Some((open, n)) if **open == *name => Some(n),
                _ => self.dims.get(name).copied(),
            });
            match known {
                Some(n) => (grouped(n), format!(" ({})", scaled(n))),
                None => (group_digits(&dim.to_string()), String::new()),
            }
        };
        let ((adds, short), (flops, _)) = (get(&total.multiply_adds), get(&total.flops));
        format!("{adds} multiply-adds{short}, {flops} flops{place}")
    }

    fn entry(&self, out: &mut String, func: &Func, entry: &Entry) {
        let _ =
            writeln!(out, "\n{} {}", if func.runner { "runner" } else { "entry" }, signature(func));
        if !func.doc.is_empty() {
            let _ = writeln!(out, "  {}", func.doc.replace('\n', "\n  "));
        }
        let optimized = self.optimized.entries.iter().find(|e| e.name == func.name);
        let after = optimized.map_or(0, count_nodes);
        let (parameters, other) = self.sizes(self.used(func).into_iter());
        let _ = writeln!(out, "  cost     {}", self.cost_line(func));
        let _ = writeln!(
            out,
            "  uses     {} parameters, {} numbers of other state",
            grouped(parameters.count),
            grouped(other.count)
        );
        let _ = writeln!(out, "  ops      {} as written, {after} optimized", count_nodes(func));
        let counts = step_counts(&entry.steps);
        let list: Vec<String> = counts.iter().map(|(k, n)| format!("{n} {k}")).collect();
        let _ = writeln!(out, "  steps    {}", list.join(", "));
        let _ = writeln!(out, "  memory   {}", self.memory(entry));
        if self.layers {
            self.layer_table(out, func);
        }
        if self.nodes
            && let Some(func) = optimized
        {
            self.node_table(out, func);
        }
    }

    /// The variables an entry reads or writes.
    fn used(&self, func: &Func) -> Vec<&Var> {
        let mut used = BTreeSet::new();
        func.walk(&mut |_, node| used.extend(node.var));
        used.into_iter().map(|id| &self.graph.vars[id]).collect()
    }

    /// Draws the memory of every entry, and says how good the plan is.
    fn draw(&self, path: &std::path::Path) -> Result<Done> {
        let open = self.plan.dims.iter().find(|d| !self.dims.contains_key(&d.name));
        if let Some(dim) = open {
            let message = format!("the memory depends on the size of {}", dim.name);
            let help = format!("give one: `--dim {}=64`", dim.name);
            return Err(tfc_ir::diag::Diag::error("E0914", message).help(help).into());
        }
        let dims: Vec<i64> = self.plan.dims.iter().map(|d| self.dims[&d.name]).collect();
        let (mut out, mut drawn) = (String::new(), vec![]);
        let takes = |e: &&Entry| e.is_for_users() && !e.slots.is_empty();
        for entry in self.plan.entries.iter().filter(takes) {
            let memory = Memory::of(entry, &dims)?;
            let (total, (peak, _)) = (memory.total(), memory.peak());
            let _ = writeln!(
                out,
                "{}: {}, {:.2} times the {} that are alive at once",
                entry.name,
                bytes(total),
                total as f64 / peak.max(1) as f64,
                bytes(peak)
            );
            drawn.push((entry.name.clone(), memory));
        }
        crate::emit::write_file(path, memory::svg(&drawn).as_bytes())?;
        let _ = writeln!(out, "drawn in `{}`", path.display());
        Ok(out.into())
    }

    /// Bytes of the slots of an entry's arena, where the dims are known.
    fn memory_bytes(&self, entry: &Entry) -> Option<i64> {
        memory(entry, &|dim| {
            let decl = self.plan.dims.get(dim)?;
            self.dims.get(&decl.name).copied()
        })
    }

    /// The memory a call takes: a number, or a formula and what it is at the
    /// smallest sizes.
    fn memory(&self, entry: &Entry) -> String {
        let buffers =
            entry.buffers.iter().filter(|b| matches!(b.home, tfc_abi::plan::Home::Slot(..)));
        let place = format!("in {} slots for {} buffers", entry.slots.len(), buffers.count());
        if let Some(n) = self.memory_bytes(entry) {
            return format!("{} {place}", bytes(n));
        }
        let open: Vec<&str> = self
            .plan
            .dims
            .iter()
            .map(|d| d.name.as_str())
            .filter(|n| !self.dims.contains_key(*n))
            .collect();
        let size = |name: &str| self.dims.get(name).copied().unwrap_or_else(|| self.least(name));
        let least = memory(entry, &|dim| self.plan.dims.get(dim).map(|d| size(&d.name)));
        let least = least.map_or(String::new(), |n| {
            let sizes: Vec<String> = open.iter().map(|d| format!("{d} = {}", size(d))).collect();
            format!("{} where {}", bytes(n), sizes.join(", "))
        });
        match self.memory_formula(entry) {
            Some(formula) => format!("{formula} bytes ({least}) {place}"),
            None => format!("{least}, more for larger sizes (give --dim) {place}"),
        }
    }

    /// The sum of all slots as one formula; none if it is not a short one.
    fn memory_formula(&self, entry: &Entry) -> Option<String> {
        let mut total = Dim::constant(0);
        for slot in &entry.slots {
            total = total + self.formula(entry.exprs.get(*slot as usize)?)?;
        }
        (total.terms().len() <= 6).then(|| group_digits(&total.to_string()))
    }

    /// A size of the plan as a formula; of two that overlap, the one that is larger
    /// for every size.
    fn formula(&self, expr: &Expr) -> Option<Dim> {
        let mut stack: Vec<Dim> = vec![];
        for op in &expr.0 {
            let value = match *op {
                ExprOp::Const(c) => Dim::constant(c),
                ExprOp::Dim(i) => {
                    let name = &self.plan.dims.get(i as usize)?.name;
                    match self.dims.get(name) {
                        Some(n) => Dim::constant(*n),
                        None => Dim::sym(name),
                    }
                }
                ExprOp::Add => stack.pop()? + stack.pop()?,
                ExprOp::Mul => stack.pop()? * stack.pop()?,
                ExprOp::FloorDiv(by) => stack.pop()?.floor_div(by),
                ExprOp::Max => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    let larger = |x: &Dim, y: &Dim| {
                        (x.clone() - y.clone()).terms().iter().all(|(_, c)| *c >= 0)
                    };
                    match (larger(&a, &b), larger(&b, &a)) {
                        (true, _) => a,
                        (_, true) => b,
                        _ => return None,
                    }
                }
            };
            stack.push(value);
        }
        stack.pop().filter(|_| stack.is_empty())
    }

    /// What each call that owns variables has and does, in the order of the text.
    ///
    /// A parameter may be reshaped, repeated or scaled before it meets data: what a
    /// layer gives is the last value where one of its parameters and data come
    /// together.
    fn layer_rows(&self, func: &Func) -> Vec<Layer> {
        let mut layers: Vec<Layer> = vec![];
        let mut seen = BTreeSet::new();
        // Parameters each value is made of, for values made of nothing else.
        let mut made_of: BTreeMap<ValueId, BTreeSet<VarId>> = BTreeMap::new();
        func.walk(&mut |_, node| {
            if node.op == Op::Grad {
                return;
            }
            if let (Op::Read, Some(var)) = (node.op, node.var) {
                if self.is_parameter(&self.graph.vars[var])
                    && let Some(result) = node.results.first()
                {
                    made_of.insert(*result, [var].into());
                }
                return;
            }
            let data = node.operands.iter().any(|v| !made_of.contains_key(v));
            let params: BTreeSet<VarId> = node
                .operands
                .iter()
                .filter_map(|v| Some((v, made_of.get(v)?)))
                // A penalty on the weights (`sum(w * w)`) is no layer's output.
                .filter(|(v, vars)| {
                    !data
                        || func.ty(**v).rank() > 0
                        || vars.iter().all(|var| self.graph.vars[*var].ty.rank() == 0)
                })
                .flat_map(|(_, vars)| vars.iter().copied())
                .collect();
            if !data {
                // Constants are made of no parameters.
                if let ([result], None) = (node.results.as_slice(), node.var) {
                    made_of.insert(*result, params);
                }
                return;
            }
            let mut counted: BTreeSet<usize> = BTreeSet::new();
            for id in params {
                let var = &self.graph.vars[id];
                let name = var.name.rsplit_once('.').map_or(&*var.name, |(path, _)| path);
                let at = layers.iter().position(|l| l.name == name).unwrap_or_else(|| {
                    layers.push(Layer {
                        name: name.to_string(),
                        output: String::new(),
                        parameters: 0,
                        multiply_adds: Dim::constant(0),
                    });
                    layers.len() - 1
                });
                let layer = &mut layers[at];
                if seen.insert(id) {
                    layer.parameters = layer.parameters.saturating_add(elements(var));
                }
                if let Some(result) = node.results.first() {
                    layer.output = self.shown(func.ty(*result));
                }
                if counted.insert(at) {
                    let adds = cost::node(self.graph, func, node).multiply_adds;
                    layer.multiply_adds = layer.multiply_adds.clone() + adds;
                }
            }
        });
        layers
    }

    fn layer_table(&self, out: &mut String, func: &Func) {
        let mut layers = self.layer_rows(func);
        match self.sort {
            NodeOrder::Text => {}
            NodeOrder::Params | NodeOrder::Bytes => {
                layers.sort_by_key(|l| std::cmp::Reverse(l.parameters))
            }
            NodeOrder::Flops => {
                layers.sort_by_key(|l| std::cmp::Reverse(size_of(&l.multiply_adds)))
            }
        }
        let total: i64 = layers.iter().map(|l| l.parameters).sum();
        let adds = layers.iter().fold(Dim::constant(0), |sum, l| sum + l.multiply_adds.clone());
        let mut rows = vec![["layer", "output", "parameters", "multiply-adds"].map(String::from)];
        rows.extend(
            layers
                .into_iter()
                .map(|l| [l.name, l.output, grouped(l.parameters), self.amount(&l.multiply_adds)]),
        );
        rows.push(["total".into(), String::new(), grouped(total), self.amount(&adds)]);
        table(out, &rows);
    }

    fn node_rows(&self, func: &Func) -> Vec<NodeRow> {
        let mut rows = vec![];
        func.walk(&mut |_, node| {
            let value = node.results.first().map(|v| &func.values[*v]);
            let var = node.var.map(|v| &self.optimized.vars[v]);
            rows.push(NodeRow {
                name: value.and_then(|v| v.name.as_deref()).unwrap_or("").to_string(),
                op: node.op.name(),
                ty: value.map_or(String::new(), |v| self.shown(&v.ty)),
                cost: cost::node(self.optimized, func, node),
                parameters: match var {
                    Some(var) if node.op == Op::Read && self.is_parameter(var) => var.ty.elements(),
                    _ => Dim::constant(0),
                },
            });
        });
        let key = |row: &NodeRow| match self.sort {
            NodeOrder::Text => 0,
            NodeOrder::Flops => size_of(&row.cost.flops),
            NodeOrder::Bytes => size_of(&moved(&row.cost)),
            NodeOrder::Params => size_of(&row.parameters),
        };
        rows.sort_by_key(|row| std::cmp::Reverse(key(row)));
        rows
    }

    fn node_table(&self, out: &mut String, func: &Func) {
        let mut rows = vec![["node", "op", "type", "flops", "bytes", "params"].map(String::from)];
        let (mut all, mut parameters) = (Cost::zero(), Dim::constant(0));
        for row in self.node_rows(func) {
            all = all.plus(&row.cost);
            parameters = parameters + row.parameters.clone();
            let params = match row.parameters.as_const() {
                Some(0) => String::new(),
                _ => self.amount(&row.parameters),
            };
            rows.push([
                row.name,
                row.op.to_string(),
                row.ty,
                self.amount(&row.cost.flops),
                self.amount(&moved(&row.cost)),
                params,
            ]);
        }
        rows.push([
            "total".into(),
            String::new(),
            String::new(),
            self.amount(&all.flops),
            self.amount(&moved(&all)),
            self.amount(&parameters),
        ]);
        table(out, &rows);
    }

    fn json(&self) -> Json {
        let entries: Vec<Json> = self
            .graph
            .entries
            .iter()
            .filter_map(|func| {
                let entry = self.plan.entries.iter().find(|e| e.name == func.name)?;
                let optimized = self.optimized.entries.iter().find(|e| e.name == func.name)?;
                Some(self.entry_json(func, entry, optimized))
            })
            .collect();
        let vars: Vec<Json> = self
            .whole
            .vars
            .values()
            .map(|v| {
                json!({
                    "name": v.name,
                    "type": v.ty.to_string(),
                    "user": v.user,
                    "parameter": self.is_parameter(v),
                })
            })
            .collect();
        let dims: Vec<Json> = self
            .graph
            .dims
            .iter()
            .map(|d| {
                let max = (d.max != i64::MAX).then_some(d.max);
                json!({"name": *d.name, "min": d.min, "max": max})
            })
            .collect();
        let (parameters, other) = self.sizes(tensors(self.whole));
        json!({
            "name": self.graph.name,
            "doc": self.graph.doc,
            "dims": dims,
            "parameters": parameters.count,
            "other_state": other.count,
            "variables": vars,
            "entries": entries,
            "kernels": self.plan.kernels.len(),
        })
    }

    fn entry_json(&self, func: &Func, entry: &Entry, optimized: &Func) -> Json {
        let port = |p: &tfc_abi::plan::Port| json!({"name": p.name, "type": p.text});
        let (graph, counted) = self.counted(func);
        let total = cost::total(graph, counted);
        let (parameters, other) = self.sizes(self.used(func).into_iter());
        let mut out = json!({
            "name": func.name,
            "doc": func.doc,
            "params": entry.params.iter().map(port).collect::<Vec<_>>(),
            "results": entry.results.iter().map(port).collect::<Vec<_>>(),
            "ops": count_nodes(func),
            "ops_optimized": count_nodes(optimized),
            "parameters": parameters.count,
            "other_state": other.count,
            "multiply_adds": self.amount_json(&total.multiply_adds),
            "flops": self.amount_json(&total.flops),
            "cost": self.cost_line(func),
            "steps": step_counts(&entry.steps),
            "memory": self.memory(entry),
            "memory_bytes": self.memory_bytes(entry),
        });
        if self.layers {
            let layer = |l: Layer| {
                json!({
                    "name": l.name,
                    "output": l.output,
                    "parameters": l.parameters,
                    "multiply_adds": self.amount_json(&l.multiply_adds),
                })
            };
            out["layers"] = self.layer_rows(func).into_iter().map(layer).collect();
        }
        if self.nodes {
            let node = |row: NodeRow| {
                json!({
                    "name": Some(row.name).filter(|n| !n.is_empty()),
                    "op": row.op,
                    "type": row.ty,
                    "multiply_adds": self.amount_json(&row.cost.multiply_adds),
                    "flops": self.amount_json(&row.cost.flops),
                    "bytes": self.amount_json(&moved(&row.cost)),
                    "params": self.amount_json(&row.parameters),
                })
            };
            out["nodes"] = self.node_rows(optimized).into_iter().map(node).collect();
        }
        out
    }
}

/// Bytes of the slots of an entry's arena, where the dims it asks for are known.
fn memory(entry: &Entry, dim: &dyn Fn(usize) -> Option<i64>) -> Option<i64> {
    let mut total = 0i64;
    for slot in &entry.slots {
        let expr = entry.exprs.get(*slot as usize)?;
        let largest = expr.0.iter().filter_map(|op| match op {
            ExprOp::Dim(i) => Some(*i as usize),
            _ => None,
        });
        let count = largest.max().map_or(0, |i| i + 1);
        let used = |i: usize| expr.0.contains(&ExprOp::Dim(i as u32));
        let values: Option<Vec<i64>> =
            (0..count).map(|i| if used(i) { dim(i) } else { Some(0) }).collect();
        total = total.checked_add(expr.eval(&values?)?)?;
    }
    Some(total)
}

fn moved(cost: &Cost) -> Dim {
    cost.read.clone() + cost.written.clone()
}

/// For sorting: the value with every dim at a size that is neither tiny nor odd.
fn size_of(dim: &Dim) -> i64 {
    dim.eval(&|_| Some(64)).unwrap_or(i64::MAX)
}

fn elements(var: &Var) -> i64 {
    var.ty.elements().as_const().unwrap_or(0)
}

/// `predict(x: f32[B, 784]) -> (class: i32[B])`
pub(super) fn signature(func: &Func) -> String {
    let params: Vec<String> = func
        .params()
        .iter()
        .map(|p| {
            let value = &func.values[*p];
            format!("{}: {}", value.name.as_deref().unwrap_or("_"), value.ty)
        })
        .collect();
    let results: Vec<String> = func
        .results()
        .iter()
        .zip(&func.result_names)
        .map(|(v, name)| format!("{name}: {}", func.ty(*v)))
        .collect();
    format!("{}({}) -> ({})", func.name, params.join(", "), results.join(", "))
}

/// Variables that are tensors, not queues.
fn tensors(graph: &Graph) -> impl Iterator<Item = &Var> {
    graph.vars.values().filter(|v| v.symbol.is_variable())
}

fn count_nodes(func: &Func) -> usize {
    let mut n = 0;
    func.walk(&mut |_, _| n += 1);
    n
}

fn step_counts(steps: &[Step]) -> BTreeMap<&'static str, usize> {
    let mut out = BTreeMap::new();
    count_steps(steps, &mut out);
    out
}

fn count_steps(steps: &[Step], out: &mut BTreeMap<&'static str, usize>) {
    for step in steps {
        let kind = match step {
            Step::Launch(_) => "kernel launches",
            Step::MatMul(_) => "matrix products",
            Step::Conv(_) => "convolutions",
            Step::Copy { .. } => "copies",
            Step::Call(_) => "runtime calls",
            Step::Save { .. } | Step::Restore { .. } => "files",
            Step::Print { .. } => "prints",
            Step::Assert { .. } | Step::CheckIndex(_) | Step::CheckFinite(_) => "assertions",
            Step::Push { .. } | Step::Pop { .. } => "stack operations",
            Step::If { then, otherwise, .. } => {
                count_steps(then, out);
                count_steps(otherwise, out);
                "branches"
            }
            Step::While { head, body, .. } => {
                count_steps(head, out);
                count_steps(body, out);
                "loops"
            }
            Step::Queue(_) => "queue operations",
            Step::Exchange(_) => "exchanges",
            Step::Send(_) | Step::Recv(_) => "messages",
        };
        *out.entry(kind).or_insert(0) += 1;
    }
}

/// Rows with aligned columns, indented; numbers to the right.
fn table<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, w)| {
                let number =
                    !cell.is_empty() && cell.chars().all(|c| c.is_ascii_digit() || c == ',');
                if number { format!("{cell:>w$}") } else { format!("{cell:w$}") }
            })
            .collect();
        let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
    }
}

/// `1234567` as `1,234,567`.
pub(super) fn grouped(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if n < 0 { format!("-{out}") } else { out }
}

/// The numbers of a formula, grouped.
fn group_digits(formula: &str) -> String {
    let mut out = String::new();
    let mut rest = formula;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, digits) = rest.split_at(at);
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        // Not the digits of a name: `h2`.
        let named = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        out.push_str(before);
        match digits[..end].parse::<i64>() {
            Ok(n) if !named => out.push_str(&grouped(n)),
            _ => out.push_str(&digits[..end]),
        }
        rest = &digits[end..];
    }
    out + rest
}

/// Three digits and a letter: `714 M`.
fn scaled(n: i64) -> String {
    let units = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let x = n as f64;
    match units.iter().find(|(size, _)| x.abs() >= *size) {
        Some((size, unit)) => {
            let y = x / size;
            let digits = if y.abs() < 10.0 {
                2
            } else if y.abs() < 100.0 {
                1
            } else {
                0
            };
            format!("{y:.digits$} {unit}")
        }
        None => n.to_string(),
    }
}

pub(super) fn bytes(n: i64) -> String {
    if n.abs() < 10_000 { format!("{} B", grouped(n)) } else { format!("{}B", scaled(n)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1234567), "1,234,567");
        assert_eq!(grouped(-100), "-100");
        assert_eq!(group_digits("1430160208 * B + h2000 + 12"), "1,430,160,208 * B + h2000 + 12");
        assert_eq!(scaled(714_188_480), "714 M");
        assert_eq!(scaled(4_089_184_256), "4.09 G");
        assert_eq!((bytes(512), bytes(244_403_360)), ("512 B".into(), "244 MB".into()));
    }
}
