//! `tfc inspect`: what a graph has and what it costs.

use super::bench::parse_dims;
use super::{Done, args};
use crate::driver::{self, Timings};
use crate::dump;
use crate::error::Result;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use tfc_abi::plan::{Entry, Plan, Step};
use tfc_ir::{Dim, Func, Graph, cost};

pub fn run(args: &args::Inspect) -> Result<Done> {
    let loaded = super::load(&args.graph, &args.codegen.source)?;
    super::warn(&loaded.warnings, &loaded.sources);
    let names: Vec<String> = args.entry.iter().cloned().collect();
    let graph = driver::select_entries(&loaded.graph, &names)?;
    let options = super::options(&args.codegen);
    let mut timings = Timings::default();
    let compiled = driver::compile(&graph, &loaded.sources, &options, &mut timings)?;
    let view = View {
        graph: &graph,
        optimized: &compiled.graph,
        plan: &compiled.program.plan,
        dims: parse_dims(&args.dims)?,
        nodes: args.nodes,
    };
    if args.codegen.timings {
        eprint!("{}", timings.table());
    }
    let text = if args.json { format!("{:#}\n", view.json()) } else { view.text() };
    Ok(text.into())
}

struct View<'a> {
    graph: &'a Graph,
    optimized: &'a Graph,
    plan: &'a Plan,
    dims: BTreeMap<String, i64>,
    nodes: bool,
}

impl View<'_> {
    /// A size as a number where the dims are known, as a formula otherwise.
    fn amount(&self, dim: &Dim) -> String {
        match dim.eval(&|name| self.dims.get(name).copied()) {
            Some(n) => grouped(n),
            None => dim.to_string(),
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

    fn vars(&self, out: &mut String) {
        if self.graph.vars.is_empty() {
            return;
        }
        let rows: Vec<[String; 3]> = self
            .graph
            .vars
            .values()
            .map(|v| {
                let n = v.ty.elements();
                let bytes = n.clone() * Dim::from(v.ty.dtype.size());
                [v.name.clone(), v.ty.to_string(), format!("{} B", self.amount(&bytes))]
            })
            .collect();
        let params = cost::parameters(self.graph);
        let _ = writeln!(
            out,
            "\nvariables: {} parameters ({} B), {} in optimizer slots and counters ({} B)",
            grouped(params.declared.count),
            grouped(params.declared.bytes),
            grouped(params.inner.count),
            grouped(params.inner.bytes)
        );
        table(out, &rows);
    }

    fn entry(&self, out: &mut String, func: &Func, entry: &Entry) {
        let _ = writeln!(out, "\nentry {}", signature(func));
        if !func.doc.is_empty() {
            let _ = writeln!(out, "  {}", func.doc.replace('\n', "\n  "));
        }
        let optimized = self.optimized.entries.iter().find(|e| e.name == func.name);
        let after = optimized.map_or(0, count_nodes);
        let total = match optimized {
            Some(func) => cost::total(self.optimized, func),
            None => cost::total(self.graph, func),
        };
        let _ = writeln!(out, "  ops      {} as written, {after} optimized", count_nodes(func));
        let _ = writeln!(out, "  flops    {}", self.amount(&total.flops));
        let counts = step_counts(&entry.steps);
        let list: Vec<String> = counts.iter().map(|(k, n)| format!("{n} {k}")).collect();
        let _ = writeln!(out, "  steps    {}", list.join(", "));
        let _ = writeln!(out, "  memory   {}", self.memory(entry));
        if self.nodes
            && let Some(func) = optimized
        {
            self.node_table(out, func);
        }
    }

    fn memory(&self, entry: &Entry) -> String {
        let names: Vec<String> = self.plan.dims.iter().map(|d| d.name.clone()).collect();
        let values: Option<Vec<i64>> = names.iter().map(|n| self.dims.get(n).copied()).collect();
        let exprs: Vec<_> =
            entry.slots.iter().filter_map(|s| entry.exprs.get(*s as usize)).collect();
        let buffers =
            entry.buffers.iter().filter(|b| matches!(b.home, tfc_abi::plan::Home::Slot(_)));
        let sizes: Option<Vec<i64>> = exprs
            .iter()
            .map(|e| match &values {
                Some(values) => e.eval(values),
                None => e.as_const(),
            })
            .collect();
        let amount = match sizes {
            Some(sizes) => format!("{} B", grouped(sizes.iter().sum())),
            None => {
                let parts: Vec<String> = exprs.iter().map(|e| dump::expr(e, &names)).collect();
                format!("{} B", parts.join(" + "))
            }
        };
        format!("{amount} in {} slots for {} buffers", exprs.len(), buffers.count())
    }

    fn node_table(&self, out: &mut String, func: &Func) {
        let mut rows = vec![["node", "op", "type", "flops", "bytes", "params"].map(String::from)];
        func.walk(&mut |_, node| {
            let value = node.results.first().map(|v| &func.values[*v]);
            let name = value.and_then(|v| v.name.as_deref()).unwrap_or("").to_string();
            let ty = value.map_or(String::new(), |v| v.ty.to_string());
            let c = cost::node(self.optimized, func, node);
            let params = node
                .var
                .map_or(String::new(), |v| self.optimized.vars[v].ty.elements().to_string());
            rows.push([
                name,
                node.op.name().to_string(),
                ty,
                self.amount(&c.flops),
                self.amount(&(c.read + c.written)),
                params,
            ]);
        });
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
                let port = |p: &tfc_abi::plan::Port| json!({"name": p.name, "type": p.text});
                let mut out = json!({
                    "name": func.name,
                    "doc": func.doc,
                    "params": entry.params.iter().map(port).collect::<Vec<_>>(),
                    "results": entry.results.iter().map(port).collect::<Vec<_>>(),
                    "ops": count_nodes(func),
                    "ops_optimized": count_nodes(optimized),
                    "flops": self.amount(&cost::total(self.optimized, optimized).flops),
                    "steps": step_counts(&entry.steps),
                    "memory": self.memory(entry),
                });
                if self.nodes {
                    let mut nodes = vec![];
                    optimized.walk(&mut |_, node| {
                        let c = cost::node(self.optimized, optimized, node);
                        let value = node.results.first().map(|v| &optimized.values[*v]);
                        nodes.push(json!({
                            "name": value.and_then(|v| v.name.as_deref()),
                            "op": node.op.name(),
                            "type": value.map(|v| v.ty.to_string()),
                            "flops": self.amount(&c.flops),
                            "bytes": self.amount(&(c.read + c.written)),
                        }));
                    });
                    out["nodes"] = nodes.into();
                }
                Some(out)
            })
            .collect();
        let vars: Vec<Json> = self
            .graph
            .vars
            .values()
            .map(|v| json!({"name": v.name, "type": v.ty.to_string(), "user": v.user}))
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
        json!({
            "name": self.graph.name,
            "doc": self.graph.doc,
            "dims": dims,
            "variables": vars,
            "entries": entries,
            "kernels": self.plan.kernels.len(),
        })
    }
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
            Step::Print { .. } => "prints",
            Step::Assert { .. } => "assertions",
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
        };
        *out.entry(kind).or_insert(0) += 1;
    }
}

/// Rows with aligned columns, indented.
fn table<const N: usize>(out: &mut String, rows: &[[String; N]]) {
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    for row in rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, w)| format!("{cell:w$}")).collect();
        let _ = writeln!(out, "  {}", cells.join("  ").trim_end());
    }
}

/// `1234567` as `1,234,567`.
fn grouped(n: i64) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1234567), "1,234,567");
        assert_eq!(grouped(-100), "-100");
    }
}
