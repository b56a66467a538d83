//! Cutting a graph along the tasks that [`crate::place`] chose.
//!
//! Every entry stays as it is, for a program that runs by itself; beside it come its
//! *parts*, one for each task, under the same name. A part has the nodes of its task,
//! a `send` behind each node that another task needs the result of, and a `recv` in
//! front of the first node that uses what another task computes. However many nodes of
//! a task use a tensor, it is sent there once. Where only the order of effects matters
//! (`after`, or a check before a write), an empty message keeps it.
//!
//! All parts have the params of the entry, because these say what the run-time dims
//! are; the tensors themselves are the chief's, as are the results.
//!
//! Invariants
//! - Between two tasks, tensors are received in the order they are sent in.
//! - No task waits for another that waits for it: a `send` does not wait, and stands
//!   before its `recv` in the order of the text, which all parts keep.

mod messages;
pub(crate) mod start;

use crate::pipeline::{PassOptions, Passed};
use crate::place::{is_everywhere, uses};
use crate::util::Stop;
use messages::{Message, Messages};
use std::collections::BTreeMap;
use std::sync::Arc;
use tfc_ir::build::{Builder, NodeSpec, Origin};
use tfc_ir::diag::Diag;
use tfc_ir::op::Stage;
use tfc_ir::text::device;
use tfc_ir::{Attr, Attrs, Func, Graph, Node, NodeId, Op, Region, RegionId, ValueId};

pub fn partition(graph: Graph, options: &PassOptions) -> Result<Passed, Vec<Diag>> {
    let Some(cluster) = &options.cluster else { return Ok(Passed::new(graph, false)) };
    if graph.entries.iter().any(|f| f.task.is_some()) {
        return Ok(Passed::new(graph, false));
    }
    let tasks: Vec<String> = cluster.tasks.iter().map(|t| t.name()).collect();
    let mut entries = graph.entries.clone();
    for func in graph.entries.iter().filter(|f| !f.runner && !f.replica) {
        let cut = Cut::new(&graph, func, &tasks)?;
        for task in 0..tasks.len() {
            entries.push(cut.part(task).map_err(|Stop(diags)| diags)?);
        }
    }
    let changed = entries.len() != graph.entries.len();
    Ok(Passed::new(Graph { entries, ..graph }, changed))
}

/// The tasks that a graph was cut for, the chief first.
pub(crate) fn tasks(graph: &Graph) -> Vec<Arc<str>> {
    let mut out: Vec<Arc<str>> = vec![];
    for task in graph.entries.iter().filter_map(|f| f.task.as_ref()) {
        if !out.contains(task) {
            out.push(task.clone());
        }
    }
    out
}

/// Where everything of an entry is, and what travels.
struct Cut<'a> {
    graph: &'a Graph,
    func: &'a Func,
    tasks: &'a [String],
    /// The task of each top-level node; none for what every task makes for itself.
    homes: BTreeMap<NodeId, usize>,
    messages: Messages,
}

impl<'a> Cut<'a> {
    fn new(graph: &'a Graph, func: &'a Func, tasks: &'a [String]) -> Result<Cut<'a>, Vec<Diag>> {
        let mut homes = BTreeMap::new();
        let mut diags = vec![];
        for &id in &func.regions[func.body].nodes {
            let node = &func.nodes[id];
            if node.op.def().stage == Stage::Source {
                diags.push(
                    Diag::error("E0416", format!("`{}` cannot be cut", node.op.name()))
                        .at(node.span, "the gradients it stands for are on several tasks")
                        .help("run `differentiate` and `replicas` before `partition`"),
                );
                continue;
            }
            if is_everywhere(func, node) {
                continue;
            }
            let task = node.device.as_deref().and_then(device::task);
            match task.and_then(|name| tasks.iter().position(|t| *t == name)) {
                Some(task) => drop(homes.insert(id, task)),
                None => diags.push(
                    Diag::error("E0416", format!("`{}` is on no task", node.op.name()))
                        .at(node.span, "this node")
                        .help("run `place` before `partition`"),
                ),
            }
        }
        if !diags.is_empty() {
            return Err(diags);
        }
        let messages = Messages::of(func, &homes, tasks.len());
        Ok(Cut { graph, func, tasks, homes, messages })
    }

    fn part(&self, task: usize) -> Result<Func, Stop> {
        let old = self.func;
        let mut new = Func::new(&old.name);
        new.doc = old.doc.clone();
        new.needs = old.needs.clone();
        new.span = old.span;
        new.task = Some(Arc::from(self.tasks[task].as_str()));
        let mut part =
            Part { cut: self, task, new, values: BTreeMap::new(), nodes: BTreeMap::new() };
        for &p in old.params() {
            let value = &old.values[p];
            let body = part.new.body;
            let new =
                part.builder(body, &Origin::default()).param(value.ty.clone(), value.name.clone());
            part.values.insert(p, new);
        }
        let nodes = &old.regions[old.body].nodes;
        for message in self.messages.sent_at(task, 0) {
            part.send(message)?;
        }
        for (at, &id) in nodes.iter().enumerate() {
            for message in self.messages.received_at(task, at) {
                part.recv(message)?;
            }
            if self.homes.get(&id) == Some(&task) {
                let body = part.new.body;
                part.copy(id, body)?;
            }
            for message in self.messages.sent_at(task, at + 1) {
                part.send(message)?;
            }
        }
        for message in self.messages.received_at(task, nodes.len()) {
            part.recv(message)?;
        }
        if task == 0 {
            let mut results = vec![];
            for &v in old.results() {
                let body = part.new.body;
                results.push(part.value(v, body)?);
            }
            let body = part.new.body;
            part.new.regions[body].results = results;
            part.new.result_names = old.result_names.clone();
        }
        Ok(part.new)
    }
}

/// The part of one task under construction.
struct Part<'a> {
    cut: &'a Cut<'a>,
    task: usize,
    new: Func,
    /// What stands for the values of the whole.
    values: BTreeMap<ValueId, ValueId>,
    /// And for its nodes.
    nodes: BTreeMap<NodeId, NodeId>,
}

impl Part<'_> {
    fn builder(&mut self, region: RegionId, origin: &Origin) -> Builder<'_> {
        let vars = &self.cut.graph.vars;
        Builder { func: &mut self.new, vars, region, origin: origin.clone() }
    }

    /// What stands for a value here. What every task makes for itself is made at its
    /// first use, at the top so that all may use it.
    fn value(&mut self, old: ValueId, region: RegionId) -> Result<ValueId, Stop> {
        if let Some(new) = self.values.get(&old) {
            return Ok(*new);
        }
        let Some(id) = self.cut.func.def(old) else {
            unreachable!("{old} of `{}` is not there", self.new.name)
        };
        let body = self.new.body;
        debug_assert!(region == body || is_everywhere(self.cut.func, &self.cut.func.nodes[id]));
        self.copy(id, body)?;
        Ok(self.values[&old])
    }

    fn copy(&mut self, id: NodeId, region: RegionId) -> Result<(), Stop> {
        let old = self.cut.func;
        let node = &old.nodes[id];
        // What its regions use from outside is made before them.
        for v in uses(old, node) {
            if !self.values.contains_key(&v) {
                self.value(v, region)?;
            }
        }
        let mut regions = vec![];
        for &from in &node.regions {
            let to = self.new.regions.push(Region::default());
            for &p in &old.regions[from].params {
                let value = &old.values[p];
                let new = self
                    .builder(to, &Origin::default())
                    .param(value.ty.clone(), value.name.clone());
                self.values.insert(p, new);
            }
            for &inner in &old.regions[from].nodes {
                self.copy(inner, to)?;
            }
            let results = old.regions[from].results.iter().map(|v| self.values[v]).collect();
            self.new.regions[to].results = results;
            regions.push(to);
        }
        let spec = NodeSpec {
            op: node.op,
            operands: node.operands.iter().map(|v| self.values[v]).collect(),
            attrs: node.attrs.clone(),
            var: node.var,
            regions,
            after: node.after.iter().filter_map(|n| self.nodes.get(n).copied()).collect(),
            device: self.local(node),
            span: node.span,
            site: node.site,
        };
        let new = self.builder(region, &Origin::default()).node(spec)?;
        self.nodes.insert(id, new);
        let results = self.new.nodes[new].results.clone();
        for (&old_value, new_value) in node.results.iter().zip(results) {
            self.new.values[new_value].name = old.values[old_value].name.clone();
            self.values.insert(old_value, new_value);
        }
        Ok(())
    }

    /// The device within the task: which task, the part says.
    fn local(&self, node: &Node) -> Option<Arc<str>> {
        node.device.as_deref().and_then(device::local).map(Arc::from)
    }

    fn send(&mut self, message: &Message) -> Result<(), Stop> {
        let body = self.new.body;
        let operands = match message.value {
            Some(v) => vec![self.value(v, body)?],
            None => vec![],
        };
        let attrs = Attrs::none()
            .with("to", Attr::Str(self.cut.tasks[message.to].clone()))
            .with("name", Attr::Str(message.name.clone()));
        let spec = NodeSpec::new(Op::Send, &operands, attrs, message.span);
        let node = self.builder(body, &Origin::default()).node(spec)?;
        self.new.nodes[node].after =
            message.after.iter().filter_map(|n| self.nodes.get(n).copied()).collect();
        Ok(())
    }

    fn recv(&mut self, message: &Message) -> Result<(), Stop> {
        let body = self.new.body;
        let mut attrs = Attrs::none()
            .with("from", Attr::Str(self.cut.tasks[message.from].clone()))
            .with("name", Attr::Str(message.name.clone()));
        match message.value {
            Some(v) => {
                let ty = self.cut.func.ty(v);
                attrs.set("shape", Attr::Shape(ty.shape.clone()));
                attrs.set("dtype", Attr::DType(ty.dtype));
            }
            None => attrs.set("signal", Attr::Bool(true)),
        }
        let spec = NodeSpec::new(Op::Recv, &[], attrs, message.span);
        let node = self.builder(body, &Origin::default()).node(spec)?;
        if let (Some(old), Some(&new)) = (message.value, self.new.nodes[node].results.first()) {
            // A part has the params of the whole, under their names.
            if self.cut.func.def(old).is_some() {
                self.new.values[new].name = self.cut.func.values[old].name.clone();
            }
            self.values.insert(old, new);
        }
        debug_assert_eq!(message.to, self.task);
        Ok(())
    }
}
