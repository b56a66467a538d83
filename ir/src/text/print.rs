//! Graph to text: flat, one node a line, every result typed.
//!
//! The text parses back to the same graph (see [`super::same`]). Values without
//! a name get one that starts with `_`, which is not kept on the way back.
//! Printing is linear and depends on nothing but the graph's structure.

use super::parse::is_reserved;
use crate::graph::{Func, Graph, Node, NodeId, RegionId, Symbol, ValueId};
use crate::{Attr, DType, Dim, Tensor};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;
use tfc_abi::plan::{QueueInfo, QueueKind};

pub fn print(graph: &Graph) -> String {
    let mut out = String::new();
    doc(&mut out, &graph.doc);
    let name = if graph.name.is_empty() { "unnamed" } else { &graph.name };
    let _ = writeln!(out, "graph {name}");
    if !graph.dims.is_empty() {
        out.push('\n');
    }
    for dim in &graph.dims {
        match (dim.min, dim.max) {
            (0, i64::MAX) => _ = writeln!(out, "dim {}", dim.name),
            (min, i64::MAX) => _ = writeln!(out, "dim {}: {min}..", dim.name),
            (min, max) => _ = writeln!(out, "dim {}: {min}..{max}", dim.name),
        }
    }
    if !graph.vars.is_empty() {
        out.push('\n');
    }
    for (_, var) in graph.vars.iter() {
        let _ = match &var.symbol {
            Symbol::Variable => {
                let word = if var.user { "var" } else { "slot" };
                write!(out, "{word} {}: {}", var.name, var.ty)
            }
            Symbol::Queue(info) | Symbol::Reader(info) => write!(out, "{}", queue(info)),
        };
        if let Some(device) = &var.device {
            let _ = write!(out, " on {}", quote(device));
        }
        out.push('\n');
    }
    if !graph.init.regions[graph.init.body].nodes.is_empty() {
        out.push_str("\ninit {\n");
        Printer::new(graph, &graph.init, &mut out).block(graph.init.body, 1, None);
        out.push_str("}\n");
    }
    for entry in &graph.entries {
        out.push('\n');
        Printer::new(graph, entry, &mut out).entry();
    }
    out
}

/// One entry (or any function of the graph) by itself.
pub fn print_func(graph: &Graph, func: &Func) -> String {
    let mut out = String::new();
    Printer::new(graph, func, &mut out).entry();
    out
}

/// The name each value of a function is printed with.
pub fn value_names(graph: &Graph, func: &Func) -> BTreeMap<ValueId, String> {
    let mut out = String::new();
    Printer::new(graph, func, &mut out).names
}

fn doc(out: &mut String, text: &str) {
    if text.is_empty() {
        return;
    }
    for line in text.split('\n') {
        let _ = if line.is_empty() { writeln!(out, "///") } else { writeln!(out, "/// {line}") };
    }
}

/// The declaration of a queue or a reader.
fn queue(info: &QueueInfo) -> String {
    let strings = |list: &[String]| list.iter().map(|s| quote(s)).collect::<Vec<_>>().join(", ");
    let mut args: Vec<String> = vec![];
    let types = info.parts.iter().map(|p| {
        let sizes: Vec<String> = p.shape.iter().map(i64::to_string).collect();
        format!("{}[{}]", p.dtype, sizes.join(", "))
    });
    let (word, kind) = match &info.kind {
        QueueKind::Fifo { .. } => ("queue", "fifo"),
        QueueKind::Shuffle { .. } => ("queue", "shuffle"),
        QueueKind::Priority { .. } => ("queue", "priority"),
        QueueKind::Reader(r) => ("reader", r.format.name()),
    };
    if let QueueKind::Reader(r) = &info.kind {
        args.push(match r.paths.as_slice() {
            [one] => quote(one),
            many => format!("[{}]", strings(many)),
        });
    }
    args.extend(types);
    match &info.kind {
        QueueKind::Fifo { capacity } | QueueKind::Priority { capacity } => {
            args.push(format!("capacity: {capacity}"));
        }
        QueueKind::Shuffle { capacity, min, seed } => {
            args.push(format!("capacity: {capacity}, min: {min}, seed: {seed}"));
        }
        QueueKind::Reader(r) => {
            if !r.keys.is_empty() {
                args.push(format!("keys: [{}]", strings(&r.keys)));
            }
            args.push(format!("epochs: {}", r.epochs));
            if r.skip > 0 {
                args.push(format!("skip: {}", r.skip));
            }
        }
    }
    format!("{word} {}: {kind}({})", info.name, args.join(", "))
}

struct Printer<'a> {
    graph: &'a Graph,
    func: &'a Func,
    out: &'a mut String,
    names: BTreeMap<ValueId, String>,
    /// Names of effects that others come after.
    effects: BTreeMap<NodeId, String>,
}

impl<'a> Printer<'a> {
    fn new(graph: &'a Graph, func: &'a Func, out: &'a mut String) -> Printer<'a> {
        let mut namer = Namer {
            graph,
            func,
            used: BTreeSet::new(),
            counters: BTreeMap::new(),
            names: BTreeMap::new(),
            effects: BTreeMap::new(),
        };
        namer.run();
        Printer { graph, func, out, names: namer.names, effects: namer.effects }
    }

    fn name(&self, value: ValueId) -> &str {
        self.names.get(&value).map(String::as_str).unwrap_or("_")
    }

    fn typed(&mut self, value: ValueId) {
        let name = self.names.get(&value).map(String::as_str).unwrap_or("_");
        let _ = write!(self.out, "{name}: {}", self.func.ty(value));
    }

    fn entry(&mut self) {
        let func = self.func;
        doc(self.out, &func.doc);
        let word = match (func.runner, func.replica) {
            (true, _) => "runner",
            (_, true) => "replica",
            _ => "entry",
        };
        let _ = write!(self.out, "{word} {}(", func.name);
        self.list(func.params(), Self::typed);
        self.out.push(')');
        if !func.results().is_empty() {
            self.out.push_str(" -> (");
            for (i, value) in func.results().iter().enumerate() {
                let name = func.result_names.get(i).map(String::as_str).unwrap_or("out");
                let comma = if i > 0 { ", " } else { "" };
                let _ = write!(self.out, "{comma}{name}: {}", func.ty(*value));
            }
            self.out.push(')');
        }
        if let Some(task) = &func.task {
            let _ = write!(self.out, " on \"{task}\"");
        }
        self.out.push_str(" {\n");
        self.block(func.body, 1, Some("return"));
        self.out.push_str("}\n");
    }

    fn list(&mut self, values: &[ValueId], each: impl Fn(&mut Self, ValueId)) {
        for (i, value) in values.iter().enumerate() {
            if i > 0 {
                self.out.push_str(", ");
            }
            each(self, *value);
        }
    }

    fn plain(&mut self, value: ValueId) {
        let name = self.names.get(&value).map(String::as_str).unwrap_or("_");
        self.out.push_str(name);
    }

    fn block(&mut self, region: RegionId, depth: usize, last: Option<&str>) {
        let region = &self.func.regions[region];
        for &node in &region.nodes {
            self.node(node, depth);
        }
        if let Some(word) = last
            && !region.results.is_empty()
        {
            self.indent(depth);
            self.out.push_str(word);
            self.out.push(' ');
            self.list(&region.results, Self::plain);
            self.out.push('\n');
        }
    }

    fn indent(&mut self, depth: usize) {
        for _ in 0..depth {
            self.out.push_str("  ");
        }
    }

    fn node(&mut self, id: NodeId, depth: usize) {
        let func = self.func;
        let node = &func.nodes[id];
        self.indent(depth);
        match node.results.as_slice() {
            [] => {
                if let Some(name) = self.effects.get(&id) {
                    let _ = write!(self.out, "{name} = ");
                }
            }
            [one] => {
                self.typed(*one);
                self.out.push_str(" = ");
            }
            many => {
                self.out.push('(');
                self.list(many, Self::typed);
                self.out.push_str(") = ");
            }
        }
        match (node.op.name(), node.regions.as_slice()) {
            ("if", [then, other]) => {
                self.out.push_str("if ");
                self.list(&node.operands, Self::plain);
                self.out.push_str(" {\n");
                self.block(*then, depth + 1, Some("yield"));
                self.indent(depth);
                self.out.push_str("} else {\n");
                self.block(*other, depth + 1, Some("yield"));
                self.indent(depth);
                self.out.push('}');
            }
            ("while", [cond, body]) => {
                self.out.push_str("while (");
                for (i, p) in func.regions[*body].params.iter().enumerate() {
                    if i > 0 {
                        self.out.push_str(", ");
                    }
                    self.typed(*p);
                    if let Some(init) = node.operands.get(i) {
                        self.out.push_str(" = ");
                        self.plain(*init);
                    }
                }
                self.out.push_str(") {\n");
                self.block(*cond, depth + 1, Some("yield"));
                self.indent(depth);
                self.out.push_str("} do {\n");
                self.block(*body, depth + 1, Some("yield"));
                self.indent(depth);
                self.out.push('}');
            }
            _ => self.call(node, depth),
        }
        if !node.after.is_empty() {
            let names: Vec<&str> = node.after.iter().map(|n| self.effect_name(*n)).collect();
            let _ = write!(self.out, " after({})", names.join(", "));
        }
        if let Some(device) = &node.device {
            let _ = write!(self.out, " on {}", quote(device));
        }
        self.out.push('\n');
    }

    fn effect_name(&self, node: NodeId) -> &str {
        match self.func.nodes[node].results.first() {
            Some(v) => self.name(*v),
            None => self.effects.get(&node).map(String::as_str).unwrap_or("_"),
        }
    }

    fn call(&mut self, node: &Node, depth: usize) {
        let _ = write!(self.out, "{}(", node.op.name());
        let mut first = true;
        let mut comma = |out: &mut String| {
            if !std::mem::take(&mut first) {
                out.push_str(", ");
            }
        };
        if let Some(var) = node.var {
            comma(self.out);
            self.out.push_str(&self.graph.vars[var].name);
        }
        for v in &node.operands {
            comma(self.out);
            let name = self.names.get(v).map(String::as_str).unwrap_or("_");
            self.out.push_str(name);
        }
        for (name, attr) in node.attrs.iter() {
            comma(self.out);
            let _ = write!(self.out, "{name}: ");
            print_attr(self.out, attr);
        }
        self.out.push(')');
        for (region, name) in node.regions.iter().zip(node.op.def().regions) {
            let _ = write!(self.out, " {name}(");
            let params = &self.func.regions[*region].params;
            self.list(params, Self::typed);
            self.out.push_str(") {\n");
            self.block(*region, depth + 1, Some("yield"));
            self.indent(depth);
            self.out.push('}');
        }
    }
}

/// Chooses names: those of the source where they can be kept, others made from
/// the op.
struct Namer<'a> {
    graph: &'a Graph,
    func: &'a Func,
    used: BTreeSet<String>,
    counters: BTreeMap<String, usize>,
    names: BTreeMap<ValueId, String>,
    effects: BTreeMap<NodeId, String>,
}

impl Namer<'_> {
    fn run(&mut self) {
        // Kept names first: none of them may be lost to a made-up one.
        self.region(self.func.body, true);
        self.region(self.func.body, false);
    }

    fn region(&mut self, id: RegionId, kept: bool) {
        let func = self.func;
        for &p in &func.regions[id].params {
            self.value(p, "p", kept);
        }
        for &n in &func.regions[id].nodes {
            let node = &func.nodes[n];
            let base = match node.var {
                Some(var) if node.op.name() == "read" => {
                    self.graph.vars[var].name.replace('.', "_")
                }
                _ => node.op.name().to_string(),
            };
            if !kept {
                for &a in &node.after {
                    self.effect(a);
                }
            }
            if let ("while", [cond, body]) = (node.op.name(), node.regions.as_slice()) {
                self.shared(*cond, *body, kept);
            }
            for &r in &node.regions {
                self.region(r, kept);
            }
            for &v in &node.results {
                self.value(v, &base, kept);
            }
        }
    }

    fn effect(&mut self, node: NodeId) {
        if self.func.nodes[node].results.is_empty() && !self.effects.contains_key(&node) {
            let name = self.fresh(&format!("_{}", self.func.nodes[node].op.name()));
            self.effects.insert(node, name);
        }
    }

    /// The two regions of a `while` share the names of what is carried.
    fn shared(&mut self, cond: RegionId, body: RegionId, kept: bool) {
        let (c, b) = (&self.func.regions[cond].params, &self.func.regions[body].params);
        for (c, b) in c.iter().zip(b) {
            self.value(*b, "p", kept);
            if let Some(name) = self.names.get(b).cloned() {
                self.names.insert(*c, name);
            }
        }
    }

    fn value(&mut self, v: ValueId, base: &str, kept: bool) {
        if self.names.contains_key(&v) {
            return;
        }
        let own: Option<Arc<str>> = self.func.values[v].name.clone().filter(|n| is_path(n));
        let name = match own {
            Some(name) if !self.used.contains(&*name) => {
                self.used.insert(name.to_string());
                name.to_string()
            }
            Some(name) => self.fresh(&name),
            None if kept => return,
            None => self.fresh(&format!("_{base}")),
        };
        self.names.insert(v, name);
    }

    fn fresh(&mut self, base: &str) -> String {
        if self.used.insert(base.to_string()) {
            return base.to_string();
        }
        let counter = self.counters.entry(base.to_string()).or_insert(1);
        loop {
            *counter += 1;
            let name = format!("{base}_{counter}");
            if self.used.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// Whether a name survives printing and parsing.
fn is_path(name: &str) -> bool {
    !name.starts_with('_')
        && name.split('.').enumerate().all(|(i, part)| {
            let mut chars = part.chars();
            let number = i > 0 && part.chars().all(|c| c.is_ascii_digit());
            let word = chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
                && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
                && (i > 0 || !is_reserved(part));
            word || number && !part.is_empty()
        })
}

pub fn print_attr(out: &mut String, attr: &Attr) {
    let _ = match attr {
        Attr::Int(v) => write!(out, "{v}"),
        Attr::Ints(v) => {
            let items: Vec<String> = v.iter().map(i64::to_string).collect();
            write!(out, "[{}]", items.join(", "))
        }
        Attr::Float(bits) => {
            out.push_str(&float(f64::from_bits(*bits)));
            Ok(())
        }
        Attr::Bool(v) => write!(out, "{v}"),
        Attr::Str(s) => {
            out.push_str(&quote(s));
            Ok(())
        }
        Attr::DType(d) => write!(out, "{d}"),
        Attr::Shape(dims) => {
            let items: Vec<String> = dims.iter().map(Dim::to_string).collect();
            write!(out, "[{}]", items.join(", "))
        }
        Attr::Tensor(t) => {
            print_tensor(out, t);
            Ok(())
        }
    };
}

fn float(v: f64) -> String {
    if v.is_nan() {
        "nan".to_string()
    } else if v.is_infinite() {
        if v > 0.0 { "inf".to_string() } else { "-inf".to_string() }
    } else {
        format!("{v:?}")
    }
}

/// A string literal.
pub fn quote(s: &str) -> String {
    let mut out = String::from("\"");
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\0' => out.push_str("\\0"),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// More elements than this are printed as bytes.
const MAX_ELEMENTS: usize = 64;

/// A typed literal: elements as numbers, one number for all, or bytes.
pub fn print_tensor(out: &mut String, t: &Tensor) {
    let dims: Vec<String> = t.shape().iter().map(usize::to_string).collect();
    let _ = write!(out, "{}[{}](", t.dtype(), dims.join(", "));
    let size = t.dtype().size();
    let splat = t.len() > 1 && t.bytes().chunks_exact(size).all(|e| e == &t.bytes()[..size]);
    let shown = if splat { 1 } else { t.len() };
    if shown <= MAX_ELEMENTS {
        let bytes: Arc<[u8]> = t.bytes()[..shown * size].into();
        if let Some(part) = Tensor::from_bytes(t.dtype(), vec![shown], bytes)
            && let Some(text) = elements(&part)
        {
            out.push_str(&text);
            out.push(')');
            return;
        }
    }
    let _ = write!(out, "bytes \"{}\")", to_base64(t.bytes()));
}

/// The elements as numbers, if numbers give back the same bits.
fn elements(t: &Tensor) -> Option<String> {
    let items: Vec<String> = match t.dtype() {
        DType::Bool => {
            if t.bytes().iter().any(|b| *b > 1) {
                return None;
            }
            t.bytes().iter().map(|b| (*b != 0).to_string()).collect()
        }
        d if d.is_int() => t.to_i64().iter().map(i64::to_string).collect(),
        DType::F32 => t
            .to_f64()
            .iter()
            .map(|v| if v.is_finite() { format!("{:?}", *v as f32) } else { float(*v) })
            .collect(),
        _ => t.to_f64().iter().map(|v| float(*v)).collect(),
    };
    if t.dtype().is_float() {
        let back = items.iter().map(|s| s.parse::<f64>().unwrap_or(f64::NAN));
        let again = Tensor::from_f64(t.dtype(), t.shape().to_vec(), back);
        if again.bytes() != t.bytes() {
            return None;
        }
    }
    Some(items.join(", "))
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn to_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let get = |i: usize| chunk.get(i).copied().unwrap_or(0) as u32;
        let word = get(0) << 16 | get(1) << 8 | get(2);
        for i in 0..4 {
            if i <= chunk.len() {
                out.push(ALPHABET[(word >> (18 - 6 * i) & 63) as usize] as char);
            } else {
                out.push('=');
            }
        }
    }
    out
}

pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.trim_end_matches('=').as_bytes();
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.chunks(4) {
        let mut word = 0u32;
        for (i, c) in chunk.iter().enumerate() {
            let digit = match c {
                b'A'..=b'Z' => c - b'A',
                b'a'..=b'z' => c - b'a' + 26,
                b'0'..=b'9' => c - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            word |= (digit as u32) << (18 - 6 * i);
        }
        let bytes = word.to_be_bytes();
        match chunk.len() {
            4 => out.extend(&bytes[1..4]),
            3 => out.extend(&bytes[1..3]),
            2 => out.push(bytes[1]),
            _ => return None,
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_round_trips() {
        for n in 0..20u8 {
            let bytes: Vec<u8> = (0..n).map(|b| b.wrapping_mul(37)).collect();
            assert_eq!(from_base64(&to_base64(&bytes)).as_deref(), Some(&bytes[..]));
        }
        assert_eq!(to_base64(b"Man"), "TWFu");
        assert_eq!(from_base64("T"), None);
        assert_eq!(from_base64("é==="), None);
    }

    #[test]
    fn tensors_print_short_and_exact() {
        let mut out = String::new();
        print_tensor(&mut out, &Tensor::splat(DType::F32, vec![2, 2], 0.1));
        assert_eq!(out, "f32[2, 2](0.1)");
        let odd = f32::from_bits(0x7fc0_0001).to_le_bytes();
        let nan = Tensor::from_bytes(DType::F32, vec![], odd.to_vec().into()).unwrap();
        out.clear();
        print_tensor(&mut out, &nan);
        assert_eq!(out, "f32[](bytes \"AQDAfw==\")");
    }
}
