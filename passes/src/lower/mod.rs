//! From a graph to a program, in stages that each run once:
//! - [`arrange`] fuses nodes into groups ([`fuse`]), puts the groups in order ([`order`],
//!   [`updates`]) and sees to it that no write comes too early ([`lives`]);
//! - [`plan`] makes kernels of the groups ([`group`], [`emit`], [`tidy`]) and gives
//!   values memory ([`storage`]);
//! - [`share`] makes one kernel of those that differ by constants, [`align`] says what
//!   is known of addresses.

pub(crate) mod align;
pub(crate) mod arrange;
pub(crate) mod depend;
pub(crate) mod emit;
pub(crate) mod exprs;
pub(crate) mod fuse;
pub(crate) mod group;
pub(crate) mod hazards;
pub(crate) mod inplace;
pub(crate) mod kernel_cost;
pub(crate) mod lives;
pub(crate) mod operands;
pub(crate) mod order;
pub(crate) mod placement;
pub(crate) mod plan;
mod rejoin;
pub(crate) mod share;
pub(crate) mod stash;
pub(crate) mod storage;
pub(crate) mod tidy;
pub(crate) mod updates;

use crate::devices::Local;
use crate::util::Stop;
use exprs::DimTable;
use std::collections::BTreeMap;
use std::sync::Arc;
use tfc_abi::plan::{BufId, ConstInfo, DimInfo, PartOf, Plan, VarInfo};
use tfc_ir::diag::{Diag, SourceMap, Span};
use tfc_ir::kernel::Kernel;
use tfc_ir::kernel::contract::Contraction;
use tfc_ir::program::Program;
use tfc_ir::{Dim, Func, Graph, Node, Symbol, Tensor, VarId};

/// What all entries of a program share while it is built.
pub(crate) struct Build {
    pub dims: DimTable,
    kernels: Vec<Kernel>,
    /// Those of the entries so far, by entry and buffer.
    contractions: BTreeMap<(u32, BufId), Contraction>,
    /// Kernels by their text without the name: equal ones are one.
    known: BTreeMap<String, u32>,
    names: BTreeMap<String, u32>,
    consts: Vec<ConstInfo>,
    const_bytes: Vec<u8>,
    const_ids: BTreeMap<Arc<Tensor>, u32>,
    sources: SourceMap,
    /// Of the first of them.
    line_ends: Vec<u32>,
    /// Where each symbol stands in the plan: among its variables, or among its
    /// queues.
    symbols: BTreeMap<VarId, u32>,
    /// See [`Plan::asked`].
    asked: Vec<Local>,
}

impl Build {
    /// The place of a variable or a queue in its table of the plan.
    fn symbol(&self, id: VarId) -> u32 {
        match self.symbols.get(&id) {
            Some(place) => *place,
            None => unreachable!("{id:?} is neither a variable nor a queue of the plan"),
        }
    }

    /// Which of the devices that were asked for this is.
    fn asked(&self, local: Option<Local>) -> Option<u32> {
        self.asked.iter().position(|a| Some(*a) == local).map(|i| i as u32)
    }

    /// The index of a kernel; an equal one is used again.
    fn kernel(&mut self, mut kernel: Kernel) -> u32 {
        let wanted = std::mem::take(&mut kernel.name);
        let text = format!("{kernel:?}");
        if let Some(id) = self.known.get(&text) {
            return *id;
        }
        let id = self.kernels.len() as u32;
        let count = self.names.entry(wanted.clone()).or_insert(0);
        *count += 1;
        kernel.name = if *count == 1 { wanted } else { format!("{wanted}_{count}") };
        self.kernels.push(kernel);
        self.known.insert(text, id);
        id
    }

    fn constant(&mut self, node: &Node) -> u32 {
        let Some(t) = node.attrs.tensor("value") else {
            unreachable!("`{}` has no value to put among the constants", node.op.name())
        };
        self.tensor(t)
    }

    /// The place of a tensor among the constants.
    fn tensor(&mut self, t: &Arc<Tensor>) -> u32 {
        if let Some(id) = self.const_ids.get(t) {
            return *id;
        }
        let align = tfc_abi::BUFFER_ALIGN;
        let offset = self.const_bytes.len().next_multiple_of(align);
        self.const_bytes.resize(offset, 0);
        self.const_bytes.extend_from_slice(t.bytes());
        let id = self.consts.len() as u32;
        self.consts.push(ConstInfo {
            dtype: t.dtype(),
            shape: t.shape().iter().map(|d| *d as i64).collect(),
            offset: offset as u64,
            len: t.bytes().len() as u64,
        });
        self.const_ids.insert(t.clone(), id);
        id
    }

    /// The line of the first of these that is in the graph's own text; 0 if none is.
    fn line(&self, spans: impl IntoIterator<Item = Span>) -> u32 {
        let own = spans.into_iter().find(|span| span.file == 0 && span.hi > 0);
        own.map_or(0, |span| self.line_ends.partition_point(|end| *end < span.lo) as u32 + 1)
    }

    /// `file:line:column`, for messages at run time.
    fn place(&self, span: Span) -> String {
        let Some(file) = self.sources.files.get(span.file as usize) else { return String::new() };
        let before = file.text.get(..span.lo as usize).unwrap_or("");
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |l| l.chars().count()) + 1;
        format!("{}:{line}:{column}", file.name)
    }
}

/// Where the lines of the graph's own text end.
fn line_ends(sources: &SourceMap) -> Vec<u32> {
    let text = sources.files.first().map_or("", |file| &file.text);
    text.bytes().zip(0u32..).filter(|(byte, _)| *byte == b'\n').map(|(_, at)| at).collect()
}

/// A size of a variable, which outlives calls and their dims.
fn fixed(dim: &Dim, name: &str) -> i64 {
    match dim.as_const() {
        Some(size) => size,
        None => unreachable!("variable `{name}` has a size that is only known at run time"),
    }
}

/// What every entry of a graph of core ops is fused into, as text: before ordering.
pub fn fused_text(graph: &Graph) -> String {
    let funcs = graph.entries.iter().chain([&graph.init]);
    funcs.map(|func| arrange::fused_text(graph, func)).collect()
}

/// The steps of every entry of a graph of core ops, as text: after fusion and
/// ordering, before kernels and memory.
pub fn steps_text(graph: &Graph) -> String {
    let funcs = graph.entries.iter().chain([&graph.init]);
    funcs.map(|func| arrange::text(func, &arrange::arrange(graph, func))).collect()
}

/// Lowers a graph of core ops to a program: steps in order ([`arrange`]), kernels and
/// memory ([`plan`]), then what is known when all entries are there ([`share`],
/// [`align`]).
pub fn lower(graph: &Graph, sources: &SourceMap) -> Result<Program, Vec<Diag>> {
    let misplaced = placement::check(graph);
    if !misplaced.is_empty() {
        return Err(misplaced);
    }
    let mut build = Build {
        dims: DimTable::default(),
        kernels: vec![],
        contractions: BTreeMap::new(),
        known: BTreeMap::new(),
        names: BTreeMap::new(),
        consts: vec![],
        const_bytes: vec![],
        const_ids: BTreeMap::new(),
        sources: sources.clone(),
        line_ends: line_ends(sources),
        symbols: BTreeMap::new(),
        asked: placement::asked(graph),
    };
    let tasks = placement::tasks(graph);
    let (mut vars, mut queues) = (vec![], vec![]);
    for (id, var) in graph.vars.iter() {
        let count = match &var.symbol {
            Symbol::Queue(info) | Symbol::Reader(info) => {
                queues.push(info.as_ref().clone());
                queues.len()
            }
            Symbol::Variable => {
                vars.push(VarInfo {
                    name: var.name.clone(),
                    dtype: var.ty.dtype,
                    shape: var.ty.shape.iter().map(|d| fixed(d, &var.name)).collect(),
                    user: var.user,
                    random: false,
                    zero: begins_with_zeros(&graph.init, id),
                    task: placement::task_of(&tasks, var.device.as_deref()),
                    asked: build.asked(Local::of(var.device.as_deref())),
                });
                vars.len()
            }
        };
        build.symbols.insert(id, count as u32 - 1);
    }
    for d in &graph.dims {
        build.dims.index(&d.name);
    }
    let mut diags = vec![];
    let mut entries = vec![];
    for func in &graph.entries {
        match plan::entry(graph, func, entries.len() as u32, &mut build) {
            Ok(entry) => entries.push(entry),
            Err(list) => diags.extend(list),
        }
    }
    let mut init = None;
    if !graph.init.regions[graph.init.body].nodes.is_empty() {
        match plan::entry(graph, &graph.init, entries.len() as u32, &mut build) {
            Ok(entry) => {
                init = Some(entries.len() as u32);
                entries.push(entry);
            }
            Err(list) => diags.extend(list),
        }
    }
    for (task, name) in (0..).zip(tasks.iter().map(|t| t.name.as_str())) {
        let Some(whole) = init else { continue };
        let part = crate::partition::start::initialiser(graph, name)
            .map_err(|Stop(diags)| diags)
            .and_then(|func| plan::entry(graph, &func, entries.len() as u32, &mut build));
        match part {
            Ok(mut entry) => {
                entry.part = Some(PartOf { whole: Some(whole), task });
                entries.push(entry);
            }
            Err(list) => diags.extend(list),
        }
    }
    if !diags.is_empty() {
        return Err(diags);
    }
    share::share(&mut build, &mut entries);
    align::align(&mut build.kernels, &entries);
    for (i, func) in graph.entries.iter().enumerate().filter(|(_, f)| f.replica) {
        let name = tfc_abi::parts::Part::of(&func.name).map_or(func.name.as_str(), |(of, _)| of);
        let alone = |f: &Func| f.name == name && !f.replica && f.task.is_none();
        entries[i].replica_of = graph.entries.iter().position(alone).map(|i| i as u32);
    }
    for (i, func) in graph.entries.iter().enumerate().filter(|(_, f)| f.task.is_some()) {
        let whole = |f: &Func| f.name == func.name && f.task.is_none() && !f.replica;
        entries[i].part = Some(PartOf {
            whole: graph.entries.iter().position(whole).map(|i| i as u32),
            task: placement::task_of(&tasks, func.task.as_deref()),
        });
    }
    let dims = build
        .dims
        .names
        .iter()
        .map(|name| {
            let decl = graph.dims.iter().find(|d| d.name == *name);
            let (min, max) = decl.map_or((0, i64::MAX), |d| (d.min, d.max));
            DimInfo { name: name.to_string(), min, max }
        })
        .collect();
    let plan = Plan {
        name: graph.name.clone(),
        graph_hash: [0; 32],
        dims,
        vars,
        consts: build.consts,
        kernels: build.kernels.iter().map(|k| k.name.clone()).collect(),
        entries,
        init,
        source: sources.files.first().map_or(String::new(), |f| f.name.clone()),
        doc: graph.doc.clone(),
        queues,
        devices: placement::devices(),
        asked: build.asked.iter().map(|a| placement::device(*a)).collect(),
        tasks,
        strict: false,
        max_memory: 0,
        recompute: false,
    };
    Ok(Program {
        plan,
        kernels: build.kernels,
        contractions: build.contractions,
        consts: build.const_bytes,
        fast: false,
        tf32: false,
    })
}

/// Whether all that the initialiser does to a variable is to make it zero.
fn begins_with_zeros(init: &Func, var: VarId) -> bool {
    let (mut writes, mut zeros) = (0, 0);
    init.walk(&mut |_, node| {
        if node.var == Some(var) && node.op.def().effect == tfc_ir::op::Effect::Write {
            writes += 1;
            let value = node.operands.last();
            let assigns = node.op == tfc_ir::Op::Assign && node.operands.len() == 1;
            zeros += usize::from(assigns && value.is_some_and(|v| crate::util::is_zero(init, *v)));
        }
    });
    (writes, zeros) == (1, 1)
}
