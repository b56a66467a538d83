//! Queues in the interpreter: what pipelines mean, without threads.
//!
//! There is one thread, so nothing waits: when an element is wanted and none is
//! there, a runner that fills the queue is run once, and again, until there is.
//! Runners may overfill a queue; how full it is has no meaning, the order is
//! that of [`Line`].
//!
//! Invariant: what would wait without end is an error (`E0562`), and the end of
//! the input is `E0560`, as in compiled programs.

use super::{Error, Machine, State, bug, concrete, run_func};
use crate::eval::Array;
use crate::graph::{Func, Graph, Node, Symbol, VarId};
use crate::{Op, Tensor, TensorType};
use cranelift_entity::SecondaryMap;
use std::collections::BTreeSet;
use tfc_abi::order::Line;
use tfc_abi::plan::{QueueAction, QueueInfo, QueueKind};

/// The queues of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Queues {
    list: SecondaryMap<VarId, Option<Queue>>,
    /// Runners whose input has ended.
    ended: BTreeSet<String>,
    /// Runners that are being run.
    running: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq)]
struct Queue {
    line: Line<Vec<Array>>,
    closed: bool,
    /// A reader whose records nobody gave.
    unread: bool,
}

impl Queues {
    pub(super) fn new(graph: &Graph) -> Queues {
        let mut queues = Queues::default();
        for (id, var) in graph.vars.iter() {
            let Some(info) = var.symbol.elements() else { continue };
            let unread = matches!(var.symbol, Symbol::Reader(_));
            queues.list[id] = Some(Queue { line: Line::new(&info.kind), closed: unread, unread });
        }
        queues
    }
}

impl State {
    /// Gives a reader its records, all epochs of them. The interpreter reads no
    /// files.
    pub fn set_records(&mut self, reader: VarId, records: &[Vec<Tensor>]) {
        if let Some(queue) = self.queues.list[reader].as_mut() {
            queue.line.clear();
            queue.unread = false;
            for record in records {
                queue.line.push(0, record.iter().map(Array::from_tensor).collect());
            }
        }
    }
}

impl Machine<'_> {
    pub(super) fn queue_op(
        &mut self,
        action: QueueAction,
        node: &Node,
        operands: Vec<Array>,
    ) -> Result<Vec<Array>, Error> {
        let var = node.var.ok_or_else(|| bug("a queue's op without a queue".into()))?;
        match action {
            QueueAction::Enqueue => self.enqueue(var, operands),
            QueueAction::EnqueueMany => {
                let rows = operands.first().and_then(|a| a.shape().first().copied()).unwrap_or(0);
                for row in 0..rows {
                    let parts = operands.iter().map(|a| slice(a, row)).collect::<Result<_, _>>()?;
                    self.enqueue(var, parts)?;
                }
                Ok(vec![])
            }
            QueueAction::Dequeue => Ok(self.dequeue(var, 1)?.pop().unwrap_or_default()),
            QueueAction::DequeueMany => {
                let types: Vec<TensorType> = node
                    .results
                    .iter()
                    .map(|v| concrete(self.func.ty(*v), &self.dims))
                    .collect::<Result<_, _>>()?;
                let count = types.first().and_then(|t| t.static_shape()).unwrap_or_default();
                let count = count.first().copied().unwrap_or(0);
                let info = self.info(var)?;
                let size = crate::Dim::constant(count as i64);
                if count > 0
                    && let Err(why) = crate::ops::queue::check_count(&info, &size)
                {
                    return Err(Error::new("E0562", why.message));
                }
                let elements = self.dequeue(var, count)?;
                types
                    .iter()
                    .enumerate()
                    .map(|(i, ty)| stack(ty, elements.iter().filter_map(|e| e.get(i))))
                    .collect()
            }
            QueueAction::Close => {
                self.queue(var)?.closed = true;
                Ok(vec![])
            }
            QueueAction::Size => {
                let len = self.queue(var)?.line.len();
                Ok(vec![Array::from_tensor(&Tensor::splat(crate::DType::I64, vec![], len as f64))])
            }
        }
    }

    fn queue(&mut self, var: VarId) -> Result<&mut Queue, Error> {
        self.state.queues.list[var].as_mut().ok_or_else(|| bug("there is no such queue".into()))
    }

    fn info(&self, var: VarId) -> Result<std::sync::Arc<QueueInfo>, Error> {
        let info = self.graph.vars.get(var).and_then(|v| v.symbol.elements().cloned());
        info.ok_or_else(|| bug("there is no such queue".into()))
    }

    fn enqueue(&mut self, var: VarId, parts: Vec<Array>) -> Result<Vec<Array>, Error> {
        let info = self.info(var)?;
        let taken = self.graph.entries.iter().any(|f| f.runner && uses(f, var, takes));
        let may_overfill = self.func.runner || taken;
        let (runner, name) = (self.func.runner, &info.name);
        let queue = self.queue(var)?;
        if queue.closed {
            return Err(match runner {
                true => Error::new("E0560", format!("`{name}` takes no more")),
                false => Error::new("E0561", format!("the queue `{name}` is closed")),
            });
        }
        let capacity = match info.kind {
            QueueKind::Fifo { capacity }
            | QueueKind::Priority { capacity }
            | QueueKind::Shuffle { capacity, .. } => capacity,
            QueueKind::Reader(_) => 0,
        };
        if !may_overfill && queue.line.len() as u64 >= capacity {
            return Err(Error::new(
                "E0562",
                format!(
                    "this would wait forever: the queue `{name}` is full, and no runner takes from it"
                ),
            ));
        }
        let rank = match parts.first().filter(|a| a.shape().is_empty()).map(|a| &a.data) {
            Some(crate::eval::Data::Int(a)) => a.iter().next().copied().unwrap_or(0),
            _ => 0,
        };
        queue.line.push(rank, parts);
        Ok(vec![])
    }

    fn dequeue(&mut self, var: VarId, count: usize) -> Result<Vec<Vec<Array>>, Error> {
        let name = self.info(var)?.name.clone();
        loop {
            let queue = self.queue(var)?;
            if queue.unread {
                let why = format!("the interpreter was given no records for the reader `{name}`");
                return Err(Error::new("E0563", why));
            }
            if queue.line.ready(count, queue.closed) {
                return Ok((0..count).map_while(|_| queue.line.pop()).collect());
            }
            if queue.closed {
                return Err(Error::new("E0560", format!("the input from `{name}` has ended")));
            }
            if !self.fill(var)? {
                return Err(Error::new(
                    "E0562",
                    format!(
                        "this would wait forever: the queue `{name}` has too few elements, and no runner fills it"
                    ),
                ));
            }
        }
    }

    /// Runs a runner that fills the queue once; false if there is none.
    fn fill(&mut self, var: VarId) -> Result<bool, Error> {
        let graph = self.graph;
        let runners = || graph.entries.iter().filter(|f| f.runner);
        let Some(runner) = runners().find(|f| {
            let queues = &self.state.queues;
            uses(f, var, gives)
                && !queues.ended.contains(&f.name)
                && !queues.running.contains(&f.name)
        }) else {
            return Ok(false);
        };
        self.state.queues.running.insert(runner.name.clone());
        let result = run_func(graph, runner, &[], self.state, self.out);
        self.state.queues.running.remove(&runner.name);
        match result {
            Ok(_) => Ok(true),
            Err(e) if e.code == tfc_abi::ErrorCode::END_OF_INPUT.as_str() => {
                // The last runner that fills a queue closes it.
                self.state.queues.ended.insert(runner.name.clone());
                for (id, _) in graph.vars.iter().filter(|(_, v)| !v.symbol.is_variable()) {
                    let done = |f: &Func| self.state.queues.ended.contains(&f.name);
                    if uses(runner, id, gives) && runners().filter(|f| uses(f, id, gives)).all(done)
                    {
                        self.queue(id)?.closed = true;
                    }
                }
                Ok(true)
            }
            Err(mut e) => {
                e.message = format!("in the runner `{}`: {}", runner.name, e.message);
                Err(e)
            }
        }
    }
}

fn gives(op: Op) -> bool {
    crate::ops::queue::fills(op)
}

fn takes(op: Op) -> bool {
    crate::ops::queue::action(op).is_some_and(QueueAction::takes)
}

/// Whether a function does such a thing with a queue.
fn uses(func: &Func, var: VarId, what: fn(Op) -> bool) -> bool {
    let mut found = false;
    func.walk(&mut |_, node| found |= node.var == Some(var) && what(node.op));
    found
}

/// Row `row` of an array.
fn slice(array: &Array, row: usize) -> Result<Array, Error> {
    let tensor = array.to_tensor();
    let shape = tensor.shape().get(1..).unwrap_or_default().to_vec();
    let width = shape.iter().product::<usize>() * tensor.dtype().size();
    let bytes = tensor.bytes().get(row * width..(row + 1) * width).unwrap_or_default();
    Tensor::from_bytes(tensor.dtype(), shape, bytes.into())
        .map(|t| Array::from_tensor(&t))
        .ok_or_else(|| bug("a row out of range".into()))
}

/// Arrays one after the other along a new first axis.
fn stack<'a>(ty: &TensorType, rows: impl Iterator<Item = &'a Array>) -> Result<Array, Error> {
    let bytes: Vec<u8> = rows.flat_map(|a| a.to_tensor().bytes().to_vec()).collect();
    Tensor::from_bytes(ty.dtype, ty.static_shape().unwrap_or_default(), bytes.into())
        .map(|t| Array::from_tensor(&t))
        .ok_or_else(|| bug("elements of other sizes".into()))
}
