//! A compiled program before code generation: kernels, and the plan that runs
//! them.

use crate::Kernel;
use crate::contract::Contraction;
use std::collections::BTreeMap;
use std::fmt::{self, Write};
use tfc_abi::plan::{
    BufId, Combine, ConvKind, Dispatch, Entry, Epilogue, Expr, ExprId, ExprOp, HOST, Home, Plan,
    Port, QueueAction, Step, Steps,
};

#[derive(Clone, Debug, Default)]
pub struct Program {
    pub plan: Plan,
    /// In the order of `plan.kernels`.
    pub kernels: Vec<Kernel>,
    /// The contractions of the plan, by the number of the entry and the buffer of
    /// the product.
    pub contractions: BTreeMap<(u32, BufId), Contraction>,
    /// Bytes `plan.consts` points into; each constant is 64-byte aligned.
    pub consts: Vec<u8>,
    /// Whether a target may use instructions that only come near the result.
    pub fast: bool,
    /// Whether products of f32 may be of factors rounded to TF32, 10 bits behind the point.
    pub tf32: bool,
}

impl Program {
    /// Kernels and contractions as text, for people: `--emit kernels`.
    pub fn kernels_text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        for kernel in &self.kernels {
            let _ = writeln!(out, "{kernel}");
        }
        for ((entry, buf), contraction) in &self.contractions {
            let entry = self.plan.entries.get(*entry as usize).map_or("?", |e| e.name.as_str());
            let text = contraction.text(&self.kernels);
            let _ = writeln!(out, "buffer {buf} of {entry}: {text}\n");
        }
        out
    }

    /// The plan as text, for people: `--emit plan`.
    pub fn plan_text(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = print(&self.plan, &mut out);
        out
    }
}

fn print(plan: &Plan, out: &mut String) -> fmt::Result {
    writeln!(out, "program {}", plan.name)?;
    for (i, d) in plan.devices.iter().enumerate() {
        writeln!(out, "device {i}: {} {}", d.kind.name(), d.placement)?;
    }
    for d in &plan.dims {
        match d.max {
            i64::MAX => writeln!(out, "dim {}: {}..", d.name, d.min)?,
            max => writeln!(out, "dim {}: {}..{max}", d.name, d.min)?,
        }
    }
    for v in &plan.vars {
        let slot = if v.user { "" } else { " (slot)" };
        writeln!(out, "var {}: {}{:?}{slot}", v.name, v.dtype, v.shape)?;
    }
    for q in &plan.queues {
        writeln!(out, "queue {}: {} parts", q.name, q.parts.len())?;
    }
    for (i, c) in plan.consts.iter().enumerate() {
        writeln!(out, "const {i}: {}{:?}, {} bytes", c.dtype, c.shape, c.len)?;
    }
    for (i, entry) in plan.entries.iter().enumerate() {
        out.push('\n');
        if plan.init == Some(i as u32) {
            writeln!(out, "initialise {{")?;
        } else {
            let ports = |ports: &[Port]| {
                ports
                    .iter()
                    .map(|p| format!("{}: {}", p.name, p.text))
                    .collect::<Vec<_>>()
                    .join(", ")
            };
            writeln!(
                out,
                "{} {}({}) -> ({}) {{",
                match (entry.runner, entry.replica_of) {
                    (true, _) => "runner",
                    (_, Some(_)) => "replica",
                    _ if entry.part.is_some() => "part",
                    _ => "entry",
                },
                entry.name,
                ports(&entry.params),
                ports(&entry.results)
            )?;
        }
        let p = Printer { plan, entry };
        for (i, size) in entry.slots.iter().enumerate() {
            writeln!(out, "  slot {i}: {} bytes", p.expr(*size))?;
        }
        p.steps(&entry.steps, 1, out)?;
        writeln!(out, "}}")?;
    }
    Ok(())
}

struct Printer<'a> {
    plan: &'a Plan,
    entry: &'a Entry,
}

impl Printer<'_> {
    fn expr(&self, id: ExprId) -> String {
        match self.entry.exprs.get(id as usize) {
            Some(e) => infix(e, self.plan),
            None => "?".into(),
        }
    }

    fn task(&self, task: u32) -> &str {
        self.plan.tasks.get(task as usize).map_or("?", |t| &t.name)
    }

    fn exprs(&self, ids: &[ExprId]) -> String {
        ids.iter().map(|e| self.expr(*e)).collect::<Vec<_>>().join(", ")
    }

    fn buf(&self, id: BufId) -> String {
        let Some(b) = self.entry.buffers.get(id as usize) else { return "?".into() };
        let name = |list: &[Port], i: u32| {
            list.get(i as usize).map_or("?".to_string(), |p| p.name.clone())
        };
        let home = match b.home {
            Home::Param(i) => name(&self.entry.params, i),
            Home::Result(i) => format!("result {}", name(&self.entry.results, i)),
            Home::Var(i) => {
                let var = self.plan.vars.get(i as usize).map_or("?", |v| v.name.as_str());
                format!("var {var}")
            }
            Home::Const(i) => format!("const {i}"),
            Home::Slot(i, 1) => format!("slot {i}"),
            Home::Slot(i, count) => format!("slots {i} to {}", i + count.saturating_sub(1)),
        };
        let on = if b.device == HOST { String::new() } else { format!(" on {}", b.device) };
        format!("{home}: {}[{}]{on}", b.dtype, self.exprs(&b.shape))
    }

    fn bufs(&self, ids: &[BufId]) -> String {
        ids.iter().map(|b| self.buf(*b)).collect::<Vec<_>>().join(", ")
    }

    fn kernel(&self, id: u32) -> &str {
        self.plan.kernels.get(id as usize).map_or("?", |k| k.as_str())
    }

    fn epilogue(&self, e: &Option<Epilogue>) -> String {
        match e {
            Some(e) => format!(" then {}({})", self.kernel(e.kernel), self.bufs(&e.bufs)),
            None => String::new(),
        }
    }

    /// Each step with its number and those it waits for: `3 (1, 2): ...`.
    fn steps(&self, steps: &Steps, depth: usize, out: &mut String) -> fmt::Result {
        let pad = "  ".repeat(depth);
        for (i, (step, dispatch)) in steps.iter().zip(steps.dispatch()).enumerate() {
            let Dispatch { device, after, asked, .. } = dispatch;
            write!(out, "{pad}{i}")?;
            if !after.is_empty() {
                let list: Vec<String> = after.iter().map(u32::to_string).collect();
                write!(out, " ({})", list.join(", "))?;
            }
            if *device != HOST {
                write!(out, " on {device}")?;
            }
            if let Some(asked) = asked.and_then(|a| self.plan.asked.get(a as usize)) {
                write!(out, " for {}", asked.placement)?;
            }
            out.push_str(": ");
            match step {
                Step::Launch(l) => {
                    write!(out, "launch {}({})", self.kernel(l.kernel), self.bufs(&l.bufs))?;
                    let (extent, cost) = (self.expr(l.extent), self.expr(l.cost));
                    let whole = if l.splits { "" } else { ", whole" };
                    writeln!(out, " over {extent}, cost {cost}{whole}")?;
                }
                Step::MatMul(m) => {
                    let t = |t: bool| if t { "ᵀ" } else { "" };
                    writeln!(
                        out,
                        "matmul {} = {}{} · {}{}, batch {}, m {}, n {}, k {}{}",
                        self.buf(m.c),
                        self.buf(m.a),
                        t(m.trans_a),
                        self.buf(m.b),
                        t(m.trans_b),
                        self.expr(m.batch),
                        self.expr(m.m),
                        self.expr(m.n),
                        self.expr(m.k),
                        self.epilogue(&m.epilogue),
                    )?;
                }
                Step::Conv(c) => {
                    let kind = match c.kind {
                        ConvKind::Forward => "conv",
                        ConvKind::GradInput => "conv_grad_input",
                        ConvKind::GradFilter => "conv_grad_filter",
                    };
                    writeln!(
                        out,
                        "{kind} {} = {}, {}, kernel {:?}, stride {:?}, dilation {:?}, pad {:?}, groups {}{}",
                        self.buf(c.out),
                        self.buf(c.lhs),
                        self.buf(c.rhs),
                        c.kernel,
                        c.stride,
                        c.dilation,
                        c.pad,
                        c.groups,
                        self.epilogue(&c.epilogue),
                    )?;
                }
                Step::Copy { src, dst } => {
                    writeln!(out, "copy {} = {}", self.buf(*dst), self.buf(*src))?;
                }
                Step::Call(c) => {
                    let name = c.func.signature().name;
                    writeln!(out, "call {name}({}) [{}]", self.bufs(&c.bufs), self.exprs(&c.ints))?;
                }
                Step::Save { path, names, bufs, .. } => {
                    writeln!(out, "save {path:?} {} [{}]", names.join(","), self.bufs(bufs))?;
                }
                Step::Restore { path, key, buf, .. } => {
                    writeln!(out, "restore {} from {path:?} {key:?}", self.buf(*buf))?;
                }
                Step::Print { label, buf } => {
                    writeln!(out, "print {label:?} {}", self.buf(*buf))?;
                }
                Step::Assert { cond, message, .. } => {
                    writeln!(out, "assert {} {message:?}", self.buf(*cond))?;
                }
                Step::CheckFinite(c) => {
                    writeln!(out, "check_finite [{}]", self.bufs(&c.bufs))?;
                }
                Step::Exchange(x) => {
                    let how = match x.combine {
                        Combine::Mean => "mean",
                        Combine::Sum => "sum",
                        Combine::Max => "max",
                        Combine::Min => "min",
                    };
                    writeln!(out, "exchange {how} [{}]", self.bufs(&x.bufs))?;
                }
                Step::Send(m) => {
                    let what = m.buf.map_or("a signal".to_string(), |b| self.buf(b));
                    writeln!(out, "send {what} to {}", self.task(m.peer))?;
                }
                Step::Recv(m) => {
                    let what = m.buf.map_or("a signal".to_string(), |b| self.buf(b));
                    writeln!(out, "recv {what} from {}", self.task(m.peer))?;
                }
                Step::CheckIndex(c) => {
                    let [size, width] = [c.size, c.width].map(|e| self.exprs(&[e]));
                    writeln!(out, "check_index {} size {size} width {width}", self.buf(c.ids))?;
                }
                Step::Push { stack, src } => {
                    writeln!(out, "push stack{stack} {}", self.buf(*src))?;
                }
                Step::Pop { stack, dst, .. } => {
                    writeln!(out, "pop {} = stack{stack}", self.buf(*dst))?;
                }
                Step::If { cond, then, otherwise } => {
                    writeln!(out, "if {} {{", self.buf(*cond))?;
                    self.steps(then, depth + 1, out)?;
                    writeln!(out, "{pad}}} else {{")?;
                    self.steps(otherwise, depth + 1, out)?;
                    writeln!(out, "{pad}}}")?;
                }
                Step::While { head, cond, body } => {
                    writeln!(out, "loop {{")?;
                    self.steps(head, depth + 1, out)?;
                    writeln!(out, "{pad}  while {}", self.buf(*cond))?;
                    self.steps(body, depth + 1, out)?;
                    writeln!(out, "{pad}}}")?;
                }
                Step::Queue(s) => {
                    let queue = self.plan.queues.get(s.queue as usize);
                    let queue = queue.map_or("?", |q| q.name.as_str());
                    let (name, many) = match s.action {
                        QueueAction::Enqueue => ("enqueue", false),
                        QueueAction::EnqueueMany => ("enqueue", true),
                        QueueAction::Dequeue => ("dequeue", false),
                        QueueAction::DequeueMany => ("dequeue", true),
                        QueueAction::Close => ("close", false),
                        QueueAction::Size => ("queue_size", false),
                    };
                    let count =
                        if many { format!(", {} of", self.expr(s.count)) } else { String::new() };
                    writeln!(out, "{name} {queue}{count} [{}]", self.bufs(&s.bufs))?;
                }
            }
        }
        Ok(())
    }
}

fn infix(e: &Expr, plan: &Plan) -> String {
    // Text and whether it is a sum, which a product must put in parentheses.
    let mut stack: Vec<(String, bool)> = vec![];
    for op in &e.0 {
        let atom = |(text, sum): (String, bool)| if sum { format!("({text})") } else { text };
        let item = match op {
            ExprOp::Const(c) => (c.to_string(), false),
            ExprOp::Dim(i) => {
                let name = plan.dims.get(*i as usize).map_or("?", |d| d.name.as_str());
                (name.to_string(), false)
            }
            ExprOp::FloorDiv(d) => match stack.pop() {
                Some(a) => (format!("{} / {d}", atom(a)), false),
                None => return "?".into(),
            },
            ExprOp::Add | ExprOp::Mul | ExprOp::Max => {
                let (Some(b), Some(a)) = (stack.pop(), stack.pop()) else { return "?".into() };
                match op {
                    ExprOp::Add => (format!("{} + {}", a.0, b.0), true),
                    ExprOp::Mul => (format!("{} * {}", atom(a), atom(b)), false),
                    _ => (format!("max({}, {})", a.0, b.0), false),
                }
            }
        };
        stack.push(item);
    }
    stack.pop().map_or("?".into(), |s| s.0)
}
