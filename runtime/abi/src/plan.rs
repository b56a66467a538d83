//! The plan: what a compiled program does, step by step, as plain data.
//!
//! The compiler decides order, buffers and kernels ahead of time; the runtime
//! walks the steps. Run-time dimensions enter only through [`Expr`]s: when an
//! entry is called the runtime binds its dims from the feeds, evaluates every
//! expression of the entry once, and from then on steps refer to values by
//! index.
//!
//! A list of steps may always be run from its first to its last. What must not
//! change places is said beside it ([`Dispatch`]), so that a runtime may do more
//! at a time; [`crate::depend`] says what that follows from.

use crate::DType;
pub use crate::routine::Func;

/// Index into [`Entry::exprs`] (and the values computed from them).
pub type ExprId = u32;
/// Index into [`Entry::buffers`].
pub type BufId = u32;
/// Index into [`Plan::devices`].
pub type DeviceId = u32;

/// The CPU of the process.
pub const HOST: DeviceId = 0;

#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub name: String,
    /// blake-like content hash of the source graph; checkpoints carry it.
    pub graph_hash: [u8; 32],
    pub dims: Vec<DimInfo>,
    pub vars: Vec<VarInfo>,
    pub consts: Vec<ConstInfo>,
    /// Kernel symbol names, in table order.
    pub kernels: Vec<String>,
    pub entries: Vec<Entry>,
    /// Index of the entry that initialises variables (no params, no results).
    pub init: Option<u32>,
    /// Source text file name, for messages.
    pub source: String,
    /// The documentation of the graph.
    pub doc: String,
    /// Queues and readers.
    pub queues: Vec<QueueInfo>,
    /// What the program runs on; the first is the CPU of the process, which has
    /// every param, result and queue. A constant is wherever it is used; a variable, and
    /// a stack, is on one device.
    pub devices: Vec<Device>,
    /// What parts of the program were placed on with `on`, when some of them were. A plan
    /// for the CPU alone says so and no more; see [`crate::place`].
    pub asked: Vec<Device>,
    /// The processes that the program can be run by as a whole, each with its part of
    /// every entry; none if the program was not compiled for a cluster.
    pub tasks: Vec<Task>,
    /// Convolutions are the sums they are written as, without ways around that round
    /// differently.
    pub strict: bool,
    /// Bytes that the variables and the working memory of a call may take together; 0 if
    /// any number.
    pub max_memory: u64,
    /// Training steps were compiled to compute their forward pass again, to save memory.
    pub recompute: bool,
}

/// A process of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// As `on` names it, without a device: `/job:ps/task:1`.
    pub name: String,
    /// `HOST:PORT`; empty if only the launcher knows.
    pub address: String,
}

impl Default for Plan {
    /// A program that does nothing, on the CPU.
    fn default() -> Plan {
        Plan {
            name: String::new(),
            graph_hash: [0; 32],
            dims: vec![],
            vars: vec![],
            consts: vec![],
            kernels: vec![],
            entries: vec![],
            init: None,
            source: String::new(),
            doc: String::new(),
            queues: vec![],
            devices: vec![Device::host()],
            asked: vec![],
            tasks: vec![],
            strict: false,
            max_memory: 0,
            recompute: false,
        }
    }
}

/// Something that has memory of its own and carries out steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    pub kind: DeviceKind,
    /// As `on` names it.
    pub placement: String,
}

impl Device {
    /// The CPU of the process.
    pub fn host() -> Device {
        Device { kind: DeviceKind::Cpu, placement: "/cpu:0".into() }
    }

    /// A GPU, by its number.
    pub fn cuda(number: u32) -> Device {
        Device { kind: DeviceKind::Cuda, placement: format!("/gpu:{number}") }
    }

    /// The number in its placement; 0 without one.
    pub fn number(&self) -> u32 {
        self.placement.rsplit(':').next().and_then(|n| n.parse().ok()).unwrap_or(0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum DeviceKind {
    Cpu = 0,
    /// An NVIDIA GPU, by its number as the driver counts them.
    Cuda = 1,
}

impl DeviceKind {
    pub fn from_code(code: u8) -> Option<DeviceKind> {
        [DeviceKind::Cpu, DeviceKind::Cuda].into_iter().find(|k| *k as u8 == code)
    }

    pub fn name(self) -> &'static str {
        match self {
            DeviceKind::Cpu => "cpu",
            DeviceKind::Cuda => "cuda",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct DimInfo {
    pub name: String,
    pub min: i64,
    /// Inclusive; `i64::MAX` when unbounded.
    pub max: i64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct VarInfo {
    pub name: String,
    pub dtype: DType,
    pub shape: Vec<i64>,
    /// False for the slots of optimizers.
    pub user: bool,
    /// Its initial value is drawn at random: it means nothing before it is trained.
    pub random: bool,
    /// Its initial value is zero, which fresh memory is.
    pub zero: bool,
    /// Which of [`Plan::tasks`] has it, when they run the program together.
    pub task: u32,
    /// Which of [`Plan::asked`] it was placed on.
    pub asked: Option<u32>,
}

/// A queue of elements, each a tuple of tensors of fixed shapes; or a reader,
/// which gives the records of files as a queue gives its elements.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueInfo {
    pub name: String,
    pub kind: QueueKind,
    pub parts: Vec<Part>,
}

/// One tensor of every element.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    pub dtype: DType,
    pub shape: Vec<i64>,
}

impl Part {
    /// Elements of the tensor; `None` when the product overflows.
    pub fn len(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?))
    }

    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    pub fn bytes(&self) -> Option<usize> {
        self.len()?.checked_mul(self.dtype.size())
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum QueueKind {
    /// Elements leave in the order they came; see [`crate::order`].
    Fifo {
        capacity: u64,
    },
    /// The next element is drawn among the `min` oldest.
    Shuffle {
        capacity: u64,
        min: u64,
        seed: i64,
    },
    /// The smallest first part leaves first, among equals the oldest.
    Priority {
        capacity: u64,
    },
    Reader(ReaderInfo),
}

/// Where a reader's records come from.
#[derive(Clone, Debug, PartialEq)]
pub struct ReaderInfo {
    pub format: Format,
    /// Files, folders or patterns with `*` and `?`.
    pub paths: Vec<String>,
    /// Names of the arrays or features the parts come from, for formats that
    /// have names.
    pub keys: Vec<String>,
    /// How often the records are gone through; zero: without end.
    pub epochs: u64,
    /// Lines to leave out at the start of every text file.
    pub skip: u64,
}

/// Formats of data files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Format {
    /// Rows of arrays, one path for each part.
    Npy = 0,
    /// Rows of the arrays of archives, by key.
    Npz = 1,
    /// Lines of numbers, parts side by side.
    Csv = 2,
    /// Rows of IDX files (MNIST), one path for each part.
    Idx = 3,
    /// TFRecord files: raw bytes, or features of `tf.train.Example` by key.
    TfRecord = 4,
    /// Whole files, one record each.
    Files = 5,
}

impl Format {
    pub const ALL: [Format; 6] =
        [Format::Npy, Format::Npz, Format::Csv, Format::Idx, Format::TfRecord, Format::Files];

    pub fn from_code(code: u8) -> Option<Format> {
        Format::ALL.into_iter().find(|f| *f as u8 == code)
    }

    /// How the language and messages call it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Npy => "npy",
            Format::Npz => "npz",
            Format::Csv => "csv",
            Format::Idx => "idx",
            Format::TfRecord => "tfrecord",
            Format::Files => "files",
        }
    }

    /// Every part has a path of its own.
    pub fn path_per_part(self) -> bool {
        matches!(self, Format::Npy | Format::Idx)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct ConstInfo {
    pub dtype: DType,
    pub shape: Vec<i64>,
    pub offset: u64,
    pub len: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entry {
    pub name: String,
    pub doc: String,
    pub params: Vec<Port>,
    pub results: Vec<Port>,
    pub exprs: Vec<Expr>,
    pub buffers: Vec<Buffer>,
    /// Size in bytes of each arena slot; buffers with disjoint lives share one, or several
    /// that follow each other.
    pub slots: Vec<ExprId>,
    pub steps: Steps,
    /// Variables this entry writes, for locking.
    pub writes: Vec<u32>,
    /// What must hold for the dims, checked when they are bound.
    pub conditions: Vec<Condition>,
    /// Runs on a thread of its own, again and again, while a program needs what
    /// it puts into queues.
    pub runner: bool,
    /// The entry that this is the version of for several processes that run together.
    pub replica_of: Option<u32>,
    /// Whose part of an entry this is.
    pub part: Option<PartOf>,
}

impl Entry {
    /// Whether a user may call it: it is no runner, and no version of another.
    pub fn is_for_users(&self) -> bool {
        let part = self.part.is_some_and(|p| p.whole.is_some());
        !self.runner && self.replica_of.is_none() && !part
    }
}

/// One task's part of an entry: what it computes, and what it sends and receives.
/// It has the params of the whole, for their sizes; the first task alone has them,
/// and the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOf {
    /// The entry as one process runs it; none if there is only this part.
    pub whole: Option<u32>,
    /// Index into [`Plan::tasks`].
    pub task: u32,
}

/// Something about run-time dims that types cannot say and that the steps rely
/// on, such as that a window fits an image.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// Must be at least zero.
    pub value: ExprId,
    /// What is wrong if it is not, in the user's words.
    pub message: String,
    /// Where in the source, as `file:line:column`, if known.
    pub place: String,
}

/// A named input or output.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    pub name: String,
    pub dtype: DType,
    /// One expression per axis. For a parameter each is a constant, a bare
    /// dim, or a compound checked after the bare dims are bound.
    pub shape: Vec<ExprId>,
    pub buf: BufId,
    /// How the type reads in the source, e.g. `f32[B, 784]`.
    pub text: String,
}

/// An integer expression over run-time dims, in postfix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Expr(pub Vec<ExprOp>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ExprOp {
    Const(i64),
    /// Index into [`Plan::dims`].
    Dim(u32),
    Add,
    Mul,
    /// Floor division by a positive constant.
    FloorDiv(i64),
    Max,
}

/// An evaluation's values; allocates only for very deep expressions, so that
/// calls do not.
struct Stack {
    shallow: [i64; 8],
    len: usize,
    deep: Vec<i64>,
}

impl Stack {
    fn push(&mut self, value: i64) {
        match self.shallow.get_mut(self.len) {
            Some(place) => *place = value,
            None => self.deep.push(value),
        }
        self.len += 1;
    }

    fn pop(&mut self) -> Option<i64> {
        self.len = self.len.checked_sub(1)?;
        self.shallow.get(self.len).copied().or_else(|| self.deep.pop())
    }
}

impl Expr {
    /// Value under the given dims; `None` on overflow or a malformed expression.
    pub fn eval(&self, dims: &[i64]) -> Option<i64> {
        let mut stack = Stack { shallow: [0; 8], len: 0, deep: Vec::new() };
        for op in &self.0 {
            let value = match *op {
                ExprOp::Const(c) => c,
                ExprOp::Dim(i) => *dims.get(i as usize)?,
                ExprOp::Add => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    a.checked_add(b)?
                }
                ExprOp::Mul => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    a.checked_mul(b)?
                }
                ExprOp::FloorDiv(d) => stack.pop()?.checked_div_euclid(d)?,
                ExprOp::Max => {
                    let (b, a) = (stack.pop()?, stack.pop()?);
                    a.max(b)
                }
            };
            stack.push(value);
        }
        if stack.len == 1 { stack.pop() } else { None }
    }

    /// The value if no dim takes part.
    pub fn as_const(&self) -> Option<i64> {
        if self.0.iter().any(|o| matches!(o, ExprOp::Dim(_))) { None } else { self.eval(&[]) }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    pub dtype: DType,
    /// Number of elements.
    pub len: ExprId,
    pub shape: Vec<ExprId>,
    pub home: Home,
    /// Whose memory that is in.
    pub device: DeviceId,
}

impl Entry {
    /// Says of each slot that a buffer is in how many bytes it takes there, when sizes are
    /// those that `value` gives.
    pub fn in_slots(
        &self,
        buffer: &Buffer,
        value: impl Fn(ExprId) -> u64,
        mut say: impl FnMut(u32, u64),
    ) {
        let Home::Slot(first, count) = buffer.home else { return };
        let mut left = value(buffer.len).saturating_mul(buffer.dtype.size() as u64);
        for slot in first..first.saturating_add(count) {
            let here = self.slots.get(slot as usize).map_or(0, |s| value(*s).min(left));
            say(slot, here);
            left -= here;
        }
    }
}

/// Where a buffer's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Home {
    /// The caller's array for `Entry::params[i]`; read only.
    Param(u32),
    /// The caller's array for `Entry::results[i]`.
    Result(u32),
    /// `Plan::vars[i]`.
    Var(u32),
    /// `Plan::consts[i]`; read only.
    Const(u32),
    /// So many slots of the arena that follow each other, from the start of
    /// `Entry::slots[i]`.
    Slot(u32, u32),
}

impl Home {
    /// `Entry::slots[i]` alone.
    pub const fn slot(i: u32) -> Home {
        Home::Slot(i, 1)
    }

    /// Whether two homes have bytes in common.
    pub fn meets(self, other: Home) -> bool {
        match (self, other) {
            (Home::Slot(a, many), Home::Slot(b, more)) => {
                a < b.saturating_add(more) && b < a.saturating_add(many)
            }
            _ => self == other,
        }
    }
}

/// Steps in an order that is always right, and for each what of that order
/// matters: the earlier steps it must wait for. Steps of which neither waits for
/// the other, directly or through others, may run at the same time.
///
/// The lists inside an `If` or a `While` have an order of their own; in the list
/// around it, such a step is one step.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Steps {
    list: Vec<Step>,
    /// As many as there are steps.
    dispatch: Vec<Dispatch>,
}

/// Where and when a step runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dispatch {
    /// Who carries it out. A copy between two devices is carried out by either.
    pub device: DeviceId,
    /// Which of [`Plan::asked`] it was placed on.
    pub asked: Option<u32>,
    /// Steps of the same list that must be done before, in ascending order and
    /// without those that others of them wait for already.
    pub after: Vec<u32>,
    /// The line of the graph's text that it comes from; 0 if it is from no one line.
    pub line: u32,
}

impl Steps {
    /// One step after the other, on the CPU.
    pub fn serial(list: Vec<Step>) -> Steps {
        let previous = |i: usize| i.checked_sub(1).map(|i| i as u32);
        let dispatch = (0..list.len())
            .map(|i| Dispatch { after: Vec::from_iter(previous(i)), ..Dispatch::default() })
            .collect();
        Steps { list, dispatch }
    }

    pub fn from_pairs(pairs: impl IntoIterator<Item = (Step, Dispatch)>) -> Steps {
        let (list, dispatch) = pairs.into_iter().unzip();
        Steps { list, dispatch }
    }

    pub fn into_list(self) -> Vec<Step> {
        self.list
    }

    /// One for each step.
    pub fn dispatch(&self) -> &[Dispatch] {
        &self.dispatch
    }

    pub fn dispatch_mut(&mut self) -> &mut [Dispatch] {
        &mut self.dispatch
    }

    /// Adds a step that waits for the one before it.
    pub fn push(&mut self, step: Step) {
        let after = Vec::from_iter(self.list.len().checked_sub(1).map(|i| i as u32));
        self.list.push(step);
        self.dispatch.push(Dispatch { after, ..Dispatch::default() });
    }

    /// Each step with its dispatch.
    pub fn into_pairs(self) -> impl Iterator<Item = (Step, Dispatch)> {
        self.list.into_iter().zip(self.dispatch)
    }
}

impl std::ops::Deref for Steps {
    type Target = [Step];

    fn deref(&self) -> &[Step] {
        &self.list
    }
}

impl std::ops::DerefMut for Steps {
    fn deref_mut(&mut self) -> &mut [Step] {
        &mut self.list
    }
}

impl<'a> IntoIterator for &'a Steps {
    type Item = &'a Step;
    type IntoIter = std::slice::Iter<'a, Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.iter()
    }
}

impl From<Vec<Step>> for Steps {
    fn from(list: Vec<Step>) -> Steps {
        Steps::serial(list)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Launch(Launch),
    MatMul(MatMul),
    Conv(Conv),
    /// Copies `src` onto `dst`, which may be on another device; both have the
    /// same dtype and length.
    Copy {
        src: BufId,
        dst: BufId,
    },
    Call(Call),
    /// Writes `label` and the tensor to standard error.
    Print {
        label: String,
        buf: BufId,
    },
    /// Fails the call with `message` unless every element of `cond` is true.
    Assert {
        cond: BufId,
        message: String,
        place: String,
    },
    CheckIndex(CheckIndex),
    CheckFinite(CheckFinite),
    /// Puts the elements of `src` on a stack of the call.
    Push {
        stack: u32,
        src: BufId,
    },
    /// Takes the elements last put there off it.
    Pop {
        stack: u32,
        dst: BufId,
        /// The stack's name, for messages.
        name: String,
    },
    /// Writes tensors to a file, each under its name.
    Save {
        path: String,
        names: Vec<String>,
        bufs: Vec<BufId>,
        place: String,
    },
    /// Replaces a variable by what a file has under `key`.
    Restore {
        path: String,
        key: String,
        buf: BufId,
        place: String,
    },
    If {
        cond: BufId,
        then: Steps,
        otherwise: Steps,
    },
    /// Runs `head`, tests `cond`, runs `body`, and again.
    While {
        head: Steps,
        cond: BufId,
        body: Steps,
    },
    Queue(QueueStep),
    Exchange(Exchange),
    Send(Message),
    Recv(Message),
}

/// A tensor on its way from one task to another. Between two tasks, messages arrive in
/// the order they are sent in; each `Send` of a plan has its `Recv` at the other task,
/// in the same order.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// The other task: an index into [`Plan::tasks`].
    pub peer: u32,
    /// What is sent, or where it is put; none for a message that only says that
    /// something has happened.
    pub buf: Option<BufId>,
    /// What it is, in the user's words.
    pub name: String,
    /// Where in the source, as `file:line:column`, if known.
    pub place: String,
}

/// Replaces each buffer by its combination with the same buffer of the other processes
/// of the job.
#[derive(Clone, Debug, PartialEq)]
pub struct Exchange {
    pub combine: Combine,
    pub bufs: Vec<BufId>,
    /// What it is, in the user's words.
    pub name: String,
    /// Where in the source, as `file:line:column`, if known.
    pub place: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Combine {
    /// Weighted by the examples each process has.
    Mean = 0,
    Sum = 1,
    Max = 2,
    Min = 3,
}

impl Combine {
    pub fn from_code(code: u8) -> Option<Combine> {
        [Combine::Mean, Combine::Sum, Combine::Max, Combine::Min]
            .into_iter()
            .find(|c| *c as u8 == code)
    }
}

/// Fails the call unless every index `i` in `ids` has `0 <= i` and
/// `i + width <= size`.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckIndex {
    pub ids: BufId,
    pub size: ExprId,
    pub width: ExprId,
    /// The number of the axis.
    pub axis: u32,
    /// What the indices are called in the source, if anything.
    pub name: String,
    /// The op that uses them.
    pub user: String,
    /// Where in the source, as `file:line:column`, if known.
    pub place: String,
}

/// Fails the call if the first buffer holds a NaN or an infinity that the others do
/// not explain; if there are no others, if it holds any.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckFinite {
    /// What is checked, and what it was computed from: floats all.
    pub bufs: Vec<BufId>,
    /// What it is called in the source, if anything.
    pub name: String,
    /// The op that computed it; none for a loss.
    pub user: String,
    /// What the others are called, with commas between.
    pub names: String,
    /// Where in the source, as `file:line:column`, if known.
    pub place: String,
}

/// Something done with a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueStep {
    pub action: QueueAction,
    /// Index into [`Plan::queues`].
    pub queue: u32,
    /// One buffer for each part; for `Size` the result; for `Close` none.
    pub bufs: Vec<BufId>,
    /// Number of elements, for `EnqueueMany` and `DequeueMany`; else one.
    pub count: ExprId,
    /// Where in the source, as `file:line:column`, if known.
    pub place: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum QueueAction {
    Enqueue = 0,
    /// Buffers have one more axis in front, as long as `count`.
    EnqueueMany = 1,
    Dequeue = 2,
    /// As `EnqueueMany`.
    DequeueMany = 3,
    Close = 4,
    Size = 5,
}

impl QueueAction {
    pub fn from_code(code: u8) -> Option<QueueAction> {
        use QueueAction::*;
        [Enqueue, EnqueueMany, Dequeue, DequeueMany, Close, Size]
            .into_iter()
            .find(|a| *a as u8 == code)
    }

    /// Takes elements out.
    pub fn takes(self) -> bool {
        matches!(self, QueueAction::Dequeue | QueueAction::DequeueMany)
    }

    /// Puts elements in.
    pub fn gives(self) -> bool {
        matches!(self, QueueAction::Enqueue | QueueAction::EnqueueMany)
    }
}

/// One kernel over a range the pool may split.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    pub kernel: u32,
    pub bufs: Vec<BufId>,
    /// So many of `bufs`, from the first, are written; the rest is only read.
    pub outputs: u32,
    pub dims: Vec<ExprId>,
    /// Iterations of the kernel's outermost loop.
    pub extent: ExprId,
    /// Rough cost of one iteration in nanoseconds-ish units: the pool splits only
    /// when `extent * cost` is worth it, and steps run side by side only when
    /// they are not worth splitting.
    pub cost: ExprId,
    /// Parts of the range may run at the same time.
    pub splits: bool,
    /// Some elements of its outputs stay as they are.
    pub partial: bool,
}

/// `c[b] = op(a[b]) · op(b[b])`, row-major, then `epilogue` per finished block.
#[derive(Clone, Debug, PartialEq)]
pub struct MatMul {
    pub dtype: DType,
    pub a: BufId,
    pub b: BufId,
    pub c: BufId,
    pub m: ExprId,
    pub n: ExprId,
    pub k: ExprId,
    pub batch: ExprId,
    /// Elements between consecutive matrices; zero broadcasts one matrix.
    pub a_stride: ExprId,
    pub b_stride: ExprId,
    /// `a` is stored `[k, m]` / `b` is stored `[n, k]`.
    pub trans_a: bool,
    pub trans_b: bool,
    pub epilogue: Option<Epilogue>,
}

/// A kernel with two ranged loops (rows of all batches, columns), run on each
/// output block while it is in cache. It reads and rewrites the block in `c`.
#[derive(Clone, Debug, PartialEq)]
pub struct Epilogue {
    pub kernel: u32,
    pub bufs: Vec<BufId>,
    /// So many of `bufs`, from the first, are written; the rest is only read.
    pub outputs: u32,
    pub dims: Vec<ExprId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ConvKind {
    /// `out[n,o,y,x] = sum in[n,c,..] * w[o,c,..]`
    Forward = 0,
    /// Gradient with respect to the input, from (output gradient, filter).
    GradInput = 1,
    /// Gradient with respect to the filter, from (input, output gradient).
    GradFilter = 2,
}

impl ConvKind {
    pub fn from_code(code: u8) -> Option<ConvKind> {
        [ConvKind::Forward, ConvKind::GradInput, ConvKind::GradFilter]
            .into_iter()
            .find(|k| *k as u8 == code)
    }
}

/// Two-dimensional convolution, NCHW images, OIHW filters. The geometry is
/// always that of the forward convolution.
#[derive(Clone, Debug, PartialEq)]
pub struct Conv {
    pub kind: ConvKind,
    pub dtype: DType,
    pub lhs: BufId,
    pub rhs: BufId,
    pub out: BufId,
    pub batch: ExprId,
    pub in_channels: ExprId,
    pub in_h: ExprId,
    pub in_w: ExprId,
    pub out_channels: ExprId,
    pub out_h: ExprId,
    pub out_w: ExprId,
    pub kernel: [u32; 2],
    pub stride: [u32; 2],
    pub dilation: [u32; 2],
    /// Zero padding before the first row and column.
    pub pad: [u32; 2],
    pub groups: u32,
    /// Rows are output channels of all images, columns are pixels (Forward
    /// only).
    pub epilogue: Option<Epilogue>,
}

/// A routine of the runtime that is not worth generating. What `bufs` and `ints` are,
/// [`Func::signature`] says.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub func: Func,
    pub bufs: Vec<BufId>,
    pub ints: Vec<ExprId>,
}
