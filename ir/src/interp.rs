//! The interpreter: what a graph means, one node at a time.
//!
//! It is the oracle every backend is compared with, so it is plain rather than
//! fast: every value is an [`Array`] of the reference semantics, every node runs
//! its op's `eval`.
//!
//! Invariants
//! - On a graph that [`crate::verify`] accepts, everything that goes wrong is an
//!   [`Error`] with a code: feeds that do not fit, sizes that come out negative,
//!   indices out of range, assertions.
//! - A code means what it means in compiled programs: the runtime reports the
//!   same mistakes under the same codes.
//! - Nodes run in the order of their region, which is the order of effects.

mod queues;

use crate::eval::{Array, Data};
use crate::graph::{Func, Graph, Node, RegionId, ValueId, VarId};
use crate::lower::{Lower, StepKind};
use crate::op::{Eval, EvalCx};
use crate::ops::Op;
use crate::require::requirements;
use crate::{Dim, Tensor, TensorType, diag::Span};
use cranelift_entity::SecondaryMap;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io::Write;
use std::sync::Arc;

/// More elements than this in one tensor is refused rather than attempted.
const MAX_ELEMENTS: usize = 1 << 28;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Error {
    pub code: &'static str,
    pub message: String,
    /// The node that failed, where there is one.
    pub span: Span,
}

impl Error {
    fn new(code: &'static str, message: impl Into<String>) -> Error {
        Error { code, message: message.into(), span: Span::NONE }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

impl std::error::Error for Error {}

/// The values of a program's variables, and what waits in its queues.
#[derive(Clone, Debug, PartialEq)]
pub struct State {
    vars: SecondaryMap<VarId, Option<Array>>,
    queues: queues::Queues,
    /// What `save` wrote, by path: the interpreter touches no disk.
    files: BTreeMap<String, BTreeMap<String, Array>>,
}

impl State {
    /// Runs the initialiser.
    pub fn new(graph: &Graph) -> Result<State, Error> {
        let mut state = State::zeros(graph)?;
        run_func(graph, &graph.init, &[], &mut state, &mut std::io::sink())?;
        Ok(state)
    }

    /// Every variable zero, whatever its initialiser says.
    pub fn zeros(graph: &Graph) -> Result<State, Error> {
        let mut vars = SecondaryMap::new();
        for (id, var) in graph.vars.iter().filter(|(_, var)| var.symbol.is_variable()) {
            let ty = concrete(&var.ty, &BTreeMap::new())?;
            let shape = ty.static_shape().unwrap_or_default();
            vars[id] = Some(Array::from_tensor(&Tensor::splat(ty.dtype, shape, 0.0)));
        }
        Ok(State { vars, queues: queues::Queues::new(graph), files: BTreeMap::new() })
    }

    pub fn get(&self, var: VarId) -> Option<Tensor> {
        self.vars[var].as_ref().map(Array::to_tensor)
    }

    /// Replaces the value of a variable; the type must be the variable's.
    pub fn set(&mut self, var: VarId, value: &Tensor) -> Result<(), Error> {
        let old = self.vars[var]
            .as_ref()
            .ok_or_else(|| Error::new("E0605", "the program has no such variable"))?;
        if old.dtype != value.dtype() || old.shape() != value.shape() {
            return Err(Error::new(
                "E0604",
                format!(
                    "the variable is {}{:?}, but the value is {}{:?}",
                    old.dtype,
                    old.shape(),
                    value.dtype(),
                    value.shape()
                ),
            ));
        }
        self.vars[var] = Some(Array::from_tensor(value));
        Ok(())
    }
}

/// Runs an entry. What `print` shows goes nowhere; see [`run_with`].
pub fn run(
    graph: &Graph,
    entry: &str,
    feeds: &[Tensor],
    state: &mut State,
) -> Result<Vec<Tensor>, Error> {
    run_with(graph, entry, feeds, state, &mut std::io::sink())
}

/// Runs an entry, with `print` writing to `out`.
pub fn run_with(
    graph: &Graph,
    entry: &str,
    feeds: &[Tensor],
    state: &mut State,
    out: &mut dyn Write,
) -> Result<Vec<Tensor>, Error> {
    let Some(func) = graph.entries.iter().find(|f| f.name == entry) else {
        let names: Vec<String> = graph.entries.iter().map(|f| format!("`{}`", f.name)).collect();
        return Err(Error::new(
            "E0911",
            format!("there is no entry `{entry}`; the graph has {}", list(&names)),
        ));
    };
    run_func(graph, func, feeds, state, out)
}

/// Sees each value as soon as it is computed, and may change its elements.
pub type Watch<'a> = &'a mut dyn FnMut(ValueId, &mut Array);

/// Runs one function of a graph.
pub fn run_func(
    graph: &Graph,
    func: &Func,
    feeds: &[Tensor],
    state: &mut State,
    out: &mut dyn Write,
) -> Result<Vec<Tensor>, Error> {
    run_watched(graph, func, feeds, state, out, &mut |_, _| {})
}

/// Runs one function of a graph and shows every value of it to `watch`.
pub fn run_watched(
    graph: &Graph,
    func: &Func,
    feeds: &[Tensor],
    state: &mut State,
    out: &mut dyn Write,
    watch: Watch<'_>,
) -> Result<Vec<Tensor>, Error> {
    let dims = bind(graph, func, feeds)?;
    for need in requirements(func, &graph.dims) {
        let value = need.value.eval(&|name| dims.get(name).copied());
        if value.is_none_or(|v| v < 0) {
            let message = format!("{}{}", need.message, given(&need.value, &dims));
            return Err(Error { span: need.span, ..Error::new("E0518", message) });
        }
    }
    let (stacks, sent) = (BTreeMap::new(), VecDeque::new());
    let env = SecondaryMap::new();
    let mut machine = Machine { graph, func, state, dims, env, stacks, sent, out, watch };
    let args = feeds.iter().map(Array::from_tensor).collect();
    let results = machine.region(func.body, args)?;
    Ok(results.iter().map(Array::to_tensor).collect())
}

/// Values of the run-time dims, from the shapes of the feeds.
pub fn bind(
    graph: &Graph,
    func: &Func,
    feeds: &[Tensor],
) -> Result<BTreeMap<Arc<str>, i64>, Error> {
    let params = func.params();
    let name = |i: usize| match &func.values[params[i]].name {
        Some(name) => name.to_string(),
        None => format!("#{i}"),
    };
    if feeds.len() != params.len() {
        let names: Vec<String> = (0..params.len()).map(|i| format!("`{}`", name(i))).collect();
        return Err(Error::new(
            if feeds.len() < params.len() { "E0501" } else { "E0502" },
            format!(
                "entry `{}` takes {} ({}), but {} {} given",
                func.name,
                count(params.len(), "feed"),
                list(&names),
                feeds.len(),
                if feeds.len() == 1 { "was" } else { "were" },
            ),
        ));
    }
    let mut dims: BTreeMap<Arc<str>, i64> = BTreeMap::new();
    let mut origin: BTreeMap<Arc<str>, (usize, usize)> = BTreeMap::new();
    let mut compound = vec![];
    for (i, (param, feed)) in params.iter().zip(feeds).enumerate() {
        let ty = func.ty(*param);
        if feed.dtype() != ty.dtype {
            return Err(Error::new(
                "E0503",
                format!(
                    "feed `{}` has elements of {}, but {ty} is expected",
                    name(i),
                    feed.dtype()
                ),
            ));
        }
        if feed.shape().len() != ty.rank() {
            return Err(Error::new(
                "E0504",
                format!(
                    "feed `{}` has {} (its shape is {:?}), but {ty} is expected",
                    name(i),
                    count_axes(feed.shape().len()),
                    feed.shape()
                ),
            ));
        }
        for (axis, (dim, size)) in ty.shape.iter().zip(feed.shape()).enumerate() {
            let size = *size as i64;
            if let Some(want) = dim.as_const() {
                if want != size {
                    return Err(Error::new(
                        "E0505",
                        format!(
                            "axis {axis} of feed `{}` has size {size}, but {ty} is expected",
                            name(i)
                        ),
                    ));
                }
            } else if let Some(sym) = dim.as_sym() {
                match dims.get(sym) {
                    None => {
                        dims.insert(sym.clone(), size);
                        origin.insert(sym.clone(), (i, axis));
                    }
                    Some(known) if *known != size => {
                        let (j, other) = origin[sym];
                        return Err(Error::new(
                            "E0506",
                            format!(
                                "`{sym}` is {known} in feed `{}` (axis {other}), but {size} in \
                                 feed `{}` (axis {axis})",
                                name(j),
                                name(i)
                            ),
                        ));
                    }
                    Some(_) => {}
                }
            } else {
                compound.push((i, axis, dim.clone(), size));
            }
        }
    }
    for decl in &graph.dims {
        if let Some(size) = dims.get(&decl.name)
            && (*size < decl.min || *size > decl.max)
        {
            let (i, axis) = origin[&decl.name];
            let range = match decl.max {
                i64::MAX => format!("at least {}", decl.min),
                max => format!("from {} to {max}", decl.min),
            };
            return Err(Error::new(
                "E0507",
                format!(
                    "`{}` must be {range}, but axis {axis} of feed `{}` has size {size}",
                    decl.name,
                    name(i)
                ),
            ));
        }
    }
    for (i, axis, dim, size) in compound {
        let want = eval_dim(&dim, &dims)?;
        if want != size {
            return Err(Error::new(
                "E0505",
                format!(
                    "axis {axis} of feed `{}` has size {size}, but `{dim}` is {want}{}",
                    name(i),
                    given(&dim, &dims)
                ),
            ));
        }
    }
    Ok(dims)
}

struct Machine<'a> {
    graph: &'a Graph,
    func: &'a Func,
    state: &'a mut State,
    dims: BTreeMap<Arc<str>, i64>,
    env: SecondaryMap<ValueId, Option<Array>>,
    stacks: BTreeMap<String, Vec<Array>>,
    /// Messages on their way, from this process to itself.
    sent: VecDeque<Option<Array>>,
    out: &'a mut dyn Write,
    watch: Watch<'a>,
}

impl Machine<'_> {
    fn region(&mut self, region: RegionId, args: Vec<Array>) -> Result<Vec<Array>, Error> {
        let region = &self.func.regions[region];
        for (param, arg) in region.params.iter().zip(args) {
            self.env[*param] = Some(arg);
        }
        for id in &region.nodes {
            let node = &self.func.nodes[*id];
            let results = self.node(node).map_err(|mut err| {
                // The innermost node is the one to show.
                if err.span.is_none() {
                    err.span = node.span;
                }
                err
            })?;
            for (value, mut array) in node.results.iter().zip(results) {
                (self.watch)(*value, &mut array);
                self.env[*value] = Some(array);
            }
        }
        region.results.iter().map(|v| self.value(*v)).collect()
    }

    fn value(&self, v: ValueId) -> Result<Array, Error> {
        self.env[v].clone().ok_or_else(|| bug(format!("{v} is used before it is defined")))
    }

    fn node(&mut self, node: &Node) -> Result<Vec<Array>, Error> {
        let def = node.op.def();
        let operands: Vec<Array> =
            node.operands.iter().map(|v| self.value(*v)).collect::<Result<_, _>>()?;
        let results: Vec<TensorType> = node
            .results
            .iter()
            .map(|v| concrete(self.func.ty(*v), &self.dims))
            .collect::<Result<_, _>>()?;
        let values = match def.eval {
            Eval::Pure(eval) => {
                let dims = |name: &str| self.dims.get(name).copied();
                let cx = EvalCx {
                    operands: &operands,
                    attrs: &node.attrs,
                    results: &results,
                    dims: &dims,
                };
                eval(&cx).map_err(|why| Error::new("E0510", format!("`{}`: {why}", def.name)))?
            }
            Eval::Interpreter => self.special(node, operands)?,
            Eval::Never => {
                return Err(bug(format!("`{}` should be gone before anything runs", def.name)));
            }
        };
        for (value, ty) in values.iter().zip(&results) {
            if value.dtype != ty.dtype || Some(value.shape()) != ty.static_shape().as_deref() {
                return Err(bug(format!(
                    "`{}` gave {}{:?} instead of {ty}",
                    def.name,
                    value.dtype,
                    value.shape()
                )));
            }
        }
        if values.len() != results.len() {
            return Err(bug(format!("`{}` gave {} results", def.name, values.len())));
        }
        Ok(values)
    }

    /// Ops that need state, regions or the outside.
    fn special(&mut self, node: &Node, mut operands: Vec<Array>) -> Result<Vec<Array>, Error> {
        let Lower::Step(kind) = node.op.def().lower else {
            // Any other op with a body means its body.
            return match node.regions.first() {
                Some(region) => self.region(*region, operands),
                None => Err(bug(format!("the interpreter does not know `{}`", node.op.name()))),
            };
        };
        match kind {
            StepKind::Read => Ok(vec![self.var(node)?.clone()]),
            StepKind::Assign => {
                let [value] = take(node, operands)?;
                *self.var(node)? = value;
                Ok(vec![])
            }
            StepKind::Update(op) => {
                let [value] = take(node, operands)?;
                let sign = if op == Op::Sub { -1 } else { 1 };
                let var = self.var(node)?;
                *var = match (&var.data, &value.data) {
                    (Data::Float(a), Data::Float(b)) => {
                        Array::float(var.dtype, a + &(b * sign as f64))
                    }
                    (Data::Int(a), Data::Int(b)) => {
                        let sum = |a: i64, b: i64| a.wrapping_add(b.wrapping_mul(sign));
                        Array::int(var.dtype, crate::ops::util::zip(a, b, sum))
                    }
                    _ => return Err(bug("an update of another type".into())),
                };
                Ok(vec![])
            }
            StepKind::ScatterRows { add } => {
                let [ids, updates] = take(node, operands)?;
                let name = node.op.name();
                let var = self.var(node)?;
                *var = scatter(var, &ids, &updates, add)
                    .map_err(|why| Error::new("E0510", format!("`{name}`: {why}")))?;
                Ok(vec![])
            }
            StepKind::Save => {
                let names = node.attrs.str("names").split(',').map(str::to_string);
                let tensors = names.zip(operands).collect();
                self.state.files.insert(node.attrs.str("path").to_string(), tensors);
                Ok(vec![])
            }
            StepKind::Restore => {
                let (path, key) = (node.attrs.str("path"), node.attrs.str("key"));
                let file = self.state.files.get(path);
                let file =
                    file.ok_or_else(|| Error::new("E0804", format!("there is no file `{path}`")))?;
                let value = file.get(key).cloned().ok_or_else(|| {
                    Error::new("E0603", format!("`{path}` lacks variable `{key}`"))
                })?;
                let var = self.var(node)?;
                if var.dtype != value.dtype || var.shape() != value.shape() {
                    let message = format!("`{path}` has another type for `{key}`");
                    return Err(Error::new("E0604", message));
                }
                *var = value;
                Ok(vec![])
            }
            StepKind::Print => {
                let [x] = take(node, operands)?;
                let label = node.attrs.str("label");
                let colon = if label.is_empty() { "" } else { ": " };
                let line = format!("{label}{colon}{}", show(&x));
                writeln!(self.out, "{line}")
                    .map_err(|e| Error::new("E0519", format!("cannot print: {e}")))?;
                Ok(vec![])
            }
            StepKind::Assert => {
                let [cond] = take(node, operands)?;
                let Data::Bool(cond) = &cond.data else { return Err(bug("assert".into())) };
                if cond.iter().all(|c| *c) {
                    return Ok(vec![]);
                }
                let message = match node.attrs.str("message") {
                    "" => "assertion failed".to_string(),
                    text => format!("assertion failed: {text}"),
                };
                Err(Error::new("E0509", message))
            }
            StepKind::CheckFinite => {
                let Some((x, from)) = operands.split_first() else {
                    return Err(bug("a check of nothing".into()));
                };
                if !crate::ops::is_not_finite(x, from) {
                    return Ok(vec![]);
                }
                Err(match node.attrs.str("user") {
                    "" => Error::new("E0533", "the loss is not finite"),
                    op => Error::new("E0535", format!("`{op}` made a NaN or an infinity")),
                })
            }
            // The interpreter is alone.
            StepKind::Exchange => Ok(operands),
            // And hears what it says itself.
            StepKind::Send => {
                self.sent.push_back(operands.into_iter().next());
                Ok(vec![])
            }
            StepKind::Recv => match (self.sent.pop_front(), node.results.is_empty()) {
                (Some(Some(x)), false) => Ok(vec![x]),
                (Some(None), true) => Ok(vec![]),
                _ => Err(Error::new("E0704", "nothing was sent that fits this `recv`")),
            },
            StepKind::Push => {
                let [x] = take(node, operands)?;
                self.stacks.entry(node.attrs.str("stack").to_string()).or_default().push(x);
                Ok(vec![])
            }
            StepKind::Pop => {
                let name = node.attrs.str("stack");
                let x = self.stacks.get_mut(name).and_then(Vec::pop);
                Ok(vec![x.ok_or_else(|| {
                    Error::new("E0550", format!("nothing is left on the stack `{name}`"))
                })?])
            }
            StepKind::Branch => {
                // Regions are `then`, `else`.
                let taken = if operands.first().is_some_and(truth) { 0 } else { 1 };
                match node.regions.get(taken) {
                    Some(region) => self.region(*region, vec![]),
                    None => Err(bug("`if` without a branch".into())),
                }
            }
            StepKind::Loop => {
                let [cond, body] = node.regions[..] else {
                    return Err(bug("`while` without its regions".into()));
                };
                loop {
                    let more = self.region(cond, operands.clone())?;
                    if !more.first().is_some_and(truth) {
                        return Ok(operands);
                    }
                    operands = self.region(body, operands)?;
                }
            }
            StepKind::Queue(action) => self.queue_op(action, node, operands),
            StepKind::CheckIndex => Err(bug("`check_index` is evaluated like a pure op".into())),
        }
    }

    fn var(&mut self, node: &Node) -> Result<&mut Array, Error> {
        node.var
            .and_then(|var| self.state.vars[var].as_mut())
            .ok_or_else(|| bug(format!("`{}` without a variable", node.op.name())))
    }
}

/// `base` with rows replaced or increased, in order.
fn scatter(base: &Array, ids: &Array, updates: &Array, add: bool) -> Result<Array, String> {
    use crate::ops::scatter;
    let Data::Int(ids) = &ids.data else { return Err("expected indices".into()) };
    Ok(match (&base.data, &updates.data) {
        (Data::Float(b), Data::Float(u)) => Array::float(
            base.dtype,
            scatter(b, ids, u, false, |a, b| *a = if add { *a + b } else { b })?,
        ),
        (Data::Int(b), Data::Int(u)) => Array::int(
            base.dtype,
            scatter(b, ids, u, false, |a, b| *a = if add { a.wrapping_add(b) } else { b })?,
        ),
        (Data::Bool(b), Data::Bool(u)) => Array::bool(scatter(b, ids, u, false, |a, b| *a = b)?),
        _ => return Err("expected updates of the variable's type".into()),
    })
}

/// `f32[2, 2] [[1, 2], [3, 4]]`, as `print` shows it.
fn show(x: &Array) -> String {
    let elements: Vec<String> = match &x.data {
        Data::Float(a) => a.iter().map(f64::to_string).collect(),
        Data::Int(a) => a.iter().map(i64::to_string).collect(),
        Data::Bool(a) => a.iter().map(bool::to_string).collect(),
    };
    fn nest(out: &mut String, shape: &[usize], elements: &[String]) {
        let Some((rows, inner)) = shape.split_first() else {
            return out.push_str(elements.first().map_or("", String::as_str));
        };
        let width: usize = inner.iter().product();
        out.push('[');
        for row in 0..*rows {
            if row > 0 {
                out.push_str(", ");
            }
            nest(out, inner, elements.get(row * width..(row + 1) * width).unwrap_or_default());
        }
        out.push(']');
    }
    let mut out = format!("{}{:?} ", x.dtype, x.shape());
    nest(&mut out, x.shape(), &elements);
    out
}

fn truth(x: &Array) -> bool {
    matches!(&x.data, Data::Bool(a) if a.iter().all(|v| *v))
}

fn take<const N: usize>(node: &Node, operands: Vec<Array>) -> Result<[Array; N], Error> {
    operands.try_into().map_err(|_| bug(format!("`{}` with other operands", node.op.name())))
}

/// A type with every size replaced by its value.
fn concrete(ty: &TensorType, dims: &BTreeMap<Arc<str>, i64>) -> Result<TensorType, Error> {
    let mut shape = vec![];
    for dim in &ty.shape {
        let size = eval_dim(dim, dims)?;
        if size < 0 {
            return Err(Error::new(
                "E0518",
                format!(
                    "`{dim}` comes out as {size}, but a size cannot be negative{}",
                    given(dim, dims)
                ),
            ));
        }
        shape.push(size);
    }
    let elements = shape.iter().try_fold(1usize, |n, d| n.checked_mul(usize::try_from(*d).ok()?));
    if elements.is_none_or(|n| n > MAX_ELEMENTS) {
        return Err(Error::new("E0516", format!("a tensor of type {ty} is too large: {shape:?}")));
    }
    Ok(TensorType::new(ty.dtype, shape.into_iter().map(Dim::constant).collect::<Vec<_>>()))
}

fn eval_dim(dim: &Dim, dims: &BTreeMap<Arc<str>, i64>) -> Result<i64, Error> {
    dim.eval(&|name| dims.get(name).copied()).ok_or_else(|| {
        let unknown: Vec<String> = dim
            .syms()
            .into_iter()
            .filter(|s| !dims.contains_key(s))
            .map(|s| format!("`{s}`"))
            .collect();
        if unknown.is_empty() {
            Error::new("E0516", format!("the size `{dim}` is too large{}", given(dim, dims)))
        } else {
            Error::new("E0517", format!("no feed tells the value of {}", list(&unknown)))
        }
    })
}

/// " (with B = 3, T = 4)".
fn given(dim: &Dim, dims: &BTreeMap<Arc<str>, i64>) -> String {
    let known: Vec<String> =
        dim.syms().into_iter().filter_map(|s| dims.get(&s).map(|v| format!("{s} = {v}"))).collect();
    if known.is_empty() { String::new() } else { format!(" (with {})", known.join(", ")) }
}

fn bug(what: String) -> Error {
    Error::new("E0999", format!("this is a bug in tfc: {what}"))
}

fn list(names: &[String]) -> String {
    match names {
        [] => "none".to_string(),
        names => names.join(", "),
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

fn count_axes(n: usize) -> String {
    format!("{n} {}", if n == 1 { "axis" } else { "axes" })
}
