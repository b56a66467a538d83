//! What a module has: its entries with their parameters and results, its
//! variables, run-time dims and queues.

use crate::module::Module;
use std::fmt;
use tfc_abi::plan::{ExprOp, Plan, Port, QueueKind};
use tfc_ir::DType;

/// Everything a caller needs to know of a module.
///
/// ```
/// let graph = tfc::parse(
///     "/// Adds one.\n\
///      graph g\n\
///      dim B: 1..64\n\
///      var n: i64[] = 0\n\
///      /// A row for each row.\n\
///      entry f(x: f32[B, 2]) -> (y: f32[B]) {\n\
///        n += 1\n\
///        return sum(x, axis: 1)\n\
///      }",
/// )?;
/// let signature = tfc::compile(&graph)?.signature();
/// let f = &signature.entries[0];
/// assert_eq!((f.name.as_str(), f.doc.as_str()), ("f", "A row for each row."));
/// assert_eq!(f.params[0].to_string(), "x: f32[B, 2]");
/// assert_eq!(f.params[0].dtype, tfc::DType::F32);
/// assert_eq!(f.params[0].shape[1].fixed(), Some(2));
/// assert_eq!(f.writes, ["n"]);
/// assert_eq!((signature.dims[0].min, signature.dims[0].max), (1, Some(64)));
/// # Ok::<(), tfc::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Signature {
    /// The graph's name.
    pub name: String,
    /// Its documentation.
    pub doc: String,
    /// What can be called, in the order of the text.
    pub entries: Vec<EntryInfo>,
    /// State, those of optimizers included.
    pub vars: Vec<VarInfo>,
    /// Sizes that are known only when an entry is called.
    pub dims: Vec<DimInfo>,
    /// Queues and readers.
    pub queues: Vec<QueueInfo>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct EntryInfo {
    /// What it is called by.
    pub name: String,
    /// Its documentation.
    pub doc: String,
    /// What it is fed, in order.
    pub params: Vec<PortInfo>,
    /// What it gives, in order.
    pub results: Vec<PortInfo>,
    /// Variables it reads and does not write.
    pub reads: Vec<String>,
    /// Variables it writes: calls take turns on them.
    pub writes: Vec<String>,
}

/// A parameter or a result. Displays as `x: f32[B, 784]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PortInfo {
    /// Its name.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The sizes.
    pub shape: Vec<SizeInfo>,
}

/// One size of a tensor.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SizeInfo {
    /// Always the same.
    Fixed(usize),
    /// A run-time dim.
    Dim(String),
    /// Computed from run-time dims, as the graph writes it: `2*B`.
    Computed(String),
}

/// A run-time dim.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DimInfo {
    /// Its name.
    pub name: String,
    /// The least it may be.
    pub min: u64,
    /// The most it may be, if there is a limit.
    pub max: Option<u64>,
}

/// A variable.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VarInfo {
    /// Its name, also in checkpoints.
    pub name: String,
    /// The element type.
    pub dtype: DType,
    /// The sizes.
    pub shape: Vec<usize>,
    /// Whether the graph declares it; false for what optimizers keep.
    pub declared: bool,
}

/// A queue or a reader.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct QueueInfo {
    /// Its name.
    pub name: String,
    /// Whether its elements are records of files.
    pub reader: bool,
    /// Elements it holds at most; zero for a reader.
    pub capacity: u64,
    /// The tensors of each element.
    pub parts: Vec<(DType, Vec<usize>)>,
}

impl SizeInfo {
    /// The size, if it is always the same.
    pub fn fixed(&self) -> Option<usize> {
        if let SizeInfo::Fixed(size) = self { Some(*size) } else { None }
    }
}

impl fmt::Display for SizeInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeInfo::Fixed(size) => write!(f, "{size}"),
            SizeInfo::Dim(name) | SizeInfo::Computed(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for PortInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(SizeInfo::to_string).collect();
        write!(f, "{}: {}[{}]", self.name, self.dtype, shape.join(", "))
    }
}

impl Signature {
    /// The entry of this name.
    pub fn entry(&self, name: &str) -> Option<&EntryInfo> {
        self.entries.iter().find(|e| e.name == name)
    }
}

impl Module {
    /// What can be called and with what.
    pub fn signature(&self) -> Signature {
        let plan = self.model().plan();
        let names =
            |vars: &[u32]| vars.iter().map(|v| plan.vars[*v as usize].name.clone()).collect();
        let entries = self.model().entries().map(|(i, e)| EntryInfo {
            name: e.name.clone(),
            doc: e.doc.clone(),
            params: e.params.iter().map(|p| port(plan, e, p)).collect(),
            results: e.results.iter().map(|p| port(plan, e, p)).collect(),
            reads: names(self.model().reads(i)),
            writes: names(&e.writes),
        });
        Signature {
            name: plan.name.clone(),
            doc: plan.doc.clone(),
            entries: entries.collect(),
            vars: plan
                .vars
                .iter()
                .map(|v| VarInfo {
                    name: v.name.clone(),
                    dtype: v.dtype,
                    shape: sizes(&v.shape),
                    declared: v.user,
                })
                .collect(),
            dims: plan
                .dims
                .iter()
                .map(|d| DimInfo {
                    name: d.name.clone(),
                    min: u64::try_from(d.min).unwrap_or(0),
                    max: (d.max != i64::MAX).then(|| u64::try_from(d.max).unwrap_or(0)),
                })
                .collect(),
            queues: plan.queues.iter().map(queue).collect(),
        }
    }
}

fn sizes(shape: &[i64]) -> Vec<usize> {
    shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect()
}

fn port(plan: &Plan, entry: &tfc_abi::plan::Entry, port: &Port) -> PortInfo {
    let inside = port.text.split_once('[').map_or("", |(_, rest)| rest.trim_end_matches(']'));
    let texts: Vec<&str> = inside.split(", ").collect();
    let size = |(axis, id): (usize, &u32)| {
        let expr = &entry.exprs[*id as usize];
        match (expr.as_const().and_then(|c| usize::try_from(c).ok()), &expr.0[..]) {
            (Some(size), _) => SizeInfo::Fixed(size),
            (None, [ExprOp::Dim(d)]) => SizeInfo::Dim(plan.dims[*d as usize].name.clone()),
            _ => SizeInfo::Computed(texts.get(axis).copied().unwrap_or("?").to_string()),
        }
    };
    let shape = port.shape.iter().enumerate().map(size).collect();
    PortInfo { name: port.name.clone(), dtype: port.dtype, shape }
}

fn queue(q: &tfc_abi::plan::QueueInfo) -> QueueInfo {
    let capacity = match &q.kind {
        QueueKind::Fifo { capacity }
        | QueueKind::Shuffle { capacity, .. }
        | QueueKind::Priority { capacity } => *capacity,
        QueueKind::Reader(_) => 0,
    };
    QueueInfo {
        name: q.name.clone(),
        reader: matches!(q.kind, QueueKind::Reader(_)),
        capacity,
        parts: q.parts.iter().map(|p| (p.dtype, sizes(&p.shape))).collect(),
    }
}
