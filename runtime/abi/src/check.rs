//! Validation of a [`Plan`]: after [`Plan::check`] every index in it is in range,
//! and no two steps that may run at the same time touch the same bytes, unless
//! both only read them.
//!
//! What depends on run-time dims (does a buffer fit its slot, does a matmul stay
//! inside its buffers) is checked by the runtime when it binds them.

use crate::codec::MAX_NESTING;
use crate::depend;
use crate::plan::*;
use crate::{BUFFER_ALIGN, DType};

/// What is wrong, and where. A plan that fails is a bug in the compiler or
/// damage to the program file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckError {
    /// The entry, when the fault is in one.
    pub entry: Option<String>,
    pub message: String,
}

impl std::fmt::Display for CheckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.entry {
            Some(e) => write!(f, "in entry `{e}`: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for CheckError {}

type Check = Result<(), String>;

/// The most GPUs of a program.
pub const MOST_GPUS: usize = 30;

impl Plan {
    /// Checks every index, every expression and the agreement of element types.
    pub fn check(&self) -> Result<(), CheckError> {
        let at_top = |message| CheckError { entry: None, message };
        self.check_tables().map_err(at_top)?;
        self.var_devices().map_err(at_top)?;
        for entry in &self.entries {
            EntryCheck { plan: self, entry }
                .run()
                .map_err(|message| CheckError { entry: Some(entry.name.clone()), message })?;
        }
        if let Some(i) = self.init {
            let init = self.entries.get(i as usize);
            match init {
                None => return Err(at_top(format!("entry {i} that initialises is missing"))),
                Some(e) if !e.params.is_empty() || !e.results.is_empty() => {
                    return Err(at_top("the initialiser takes or gives tensors".into()));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// Where each variable is: on the CPU, if nothing uses it.
    pub fn var_devices(&self) -> Result<Vec<DeviceId>, String> {
        let mut found: Vec<Option<DeviceId>> = vec![None; self.vars.len()];
        for b in self.entries.iter().flat_map(|e| &e.buffers) {
            let Home::Var(v) = b.home else { continue };
            let place = found.get_mut(v as usize).ok_or(format!("variable {v} is missing"))?;
            if *place.get_or_insert(b.device) != b.device {
                return Err(format!("variable {v} is on two devices"));
            }
        }
        Ok(found.into_iter().map(|d| d.unwrap_or(HOST)).collect())
    }

    fn check_tables(&self) -> Check {
        if self.devices.first().is_none_or(|d| d.kind != DeviceKind::Cpu) {
            return Err("the first device is not the CPU".into());
        }
        for d in &self.dims {
            if d.min < 0 || d.max < d.min {
                return Err(format!("dim `{}` has the range {}..{}", d.name, d.min, d.max));
            }
        }
        // Where values are is a bit for each device.
        if self.gpus().len() > MOST_GPUS || self.gpus().iter().any(|n| *n > i32::MAX as u32) {
            return Err("the program asks for too many GPUs".into());
        }
        for v in &self.vars {
            if v.asked.is_some_and(|a| a as usize >= self.asked.len()) {
                return Err(format!("variable `{}` asks for a device that is missing", v.name));
            }
            byte_size(v.dtype, &v.shape).ok_or(format!("variable `{}` is too large", v.name))?;
            if v.task as usize >= self.tasks.len().max(1) {
                return Err(format!("variable `{}` is nowhere", v.name));
            }
        }
        for q in &self.queues {
            q.parts.iter().try_for_each(|p| {
                byte_size(p.dtype, &p.shape).map(drop).ok_or(format!("queue `{}`", q.name))
            })?;
            let wrong = match &q.kind {
                QueueKind::Fifo { capacity } => *capacity == 0,
                QueueKind::Shuffle { capacity, min, .. } => *min == 0 || capacity < min,
                QueueKind::Priority { capacity } => {
                    *capacity == 0
                        || !q
                            .parts
                            .first()
                            .is_some_and(|p| p.dtype == DType::I64 && p.shape.is_empty())
                }
                QueueKind::Reader(r) => {
                    r.paths.is_empty()
                        || r.format.path_per_part() && r.paths.len() != q.parts.len()
                        || !r.keys.is_empty() && r.keys.len() != q.parts.len()
                }
            };
            if wrong || q.parts.is_empty() {
                return Err(format!("queue `{}` is declared wrong", q.name));
            }
        }
        for (i, c) in self.consts.iter().enumerate() {
            let size = byte_size(c.dtype, &c.shape);
            if size != Some(c.len) || c.offset.checked_add(c.len).is_none() {
                return Err(format!("constant {i} has the wrong length"));
            }
            if c.offset % BUFFER_ALIGN as u64 != 0 {
                return Err(format!("constant {i} is not aligned"));
            }
        }
        Ok(())
    }
}

/// Bytes of a tensor; `None` when a size is negative or the product overflows.
fn byte_size(dtype: DType, shape: &[i64]) -> Option<u64> {
    shape.iter().try_fold(dtype.size() as u64, |n, d| n.checked_mul(u64::try_from(*d).ok()?))
}

struct EntryCheck<'a> {
    plan: &'a Plan,
    entry: &'a Entry,
}

impl EntryCheck<'_> {
    fn run(&self) -> Check {
        for (i, e) in self.entry.exprs.iter().enumerate() {
            self.expr(i, e)?;
        }
        for (i, b) in self.entry.buffers.iter().enumerate() {
            self.buffer(b).map_err(|e| format!("buffer {i}: {e}"))?;
        }
        for s in &self.entry.slots {
            self.expr_id(*s)?;
        }
        let mut slots = vec![None; self.entry.slots.len()];
        for b in &self.entry.buffers {
            let Home::Slot(first, count) = b.home else { continue };
            for s in first..first + count {
                if *slots[s as usize].get_or_insert(b.device) != b.device {
                    return Err(format!("slot {s} is on two devices"));
                }
            }
        }
        self.ports("param", &self.entry.params, Home::Param)?;
        self.ports("result", &self.entry.results, Home::Result)?;
        for v in &self.entry.writes {
            if *v as usize >= self.plan.vars.len() {
                return Err(format!("variable {v} is missing"));
            }
        }
        for c in &self.entry.conditions {
            self.expr_id(c.value)?;
        }
        if let Some(part) = self.entry.part {
            self.task(part.task)?;
            if part.whole.is_some_and(|w| w as usize >= self.plan.entries.len()) {
                return Err("it is a part of nothing".into());
            }
        }
        self.steps(&self.entry.steps, 0)
    }

    fn expr(&self, i: usize, e: &Expr) -> Check {
        let mut depth = 0i64;
        for op in &e.0 {
            let need = match *op {
                ExprOp::Const(_) => 0,
                ExprOp::Dim(d) if (d as usize) < self.plan.dims.len() => 0,
                ExprOp::Dim(d) => return Err(format!("expression {i} uses dim {d}")),
                ExprOp::Add | ExprOp::Mul | ExprOp::Max => 2,
                ExprOp::FloorDiv(d) if d > 0 => 1,
                ExprOp::FloorDiv(d) => return Err(format!("expression {i} divides by {d}")),
            };
            if depth < need {
                return Err(format!("expression {i} is malformed"));
            }
            depth += 1 - need;
        }
        if depth == 1 { Ok(()) } else { Err(format!("expression {i} is malformed")) }
    }

    fn expr_id(&self, id: ExprId) -> Check {
        if (id as usize) < self.entry.exprs.len() {
            Ok(())
        } else {
            Err(format!("expression {id} is missing"))
        }
    }

    fn buf(&self, id: BufId) -> Result<&Buffer, String> {
        self.entry.buffers.get(id as usize).ok_or(format!("buffer {id} is missing"))
    }

    fn writable(&self, id: BufId) -> Result<&Buffer, String> {
        let b = self.buf(id)?;
        match b.home {
            Home::Param(_) | Home::Const(_) => Err(format!("buffer {id} is read only")),
            Home::Var(v) if !self.entry.writes.contains(&v) => {
                Err(format!("variable {v} is written but not listed"))
            }
            _ => Ok(b),
        }
    }

    fn buffer(&self, b: &Buffer) -> Check {
        self.expr_id(b.len)?;
        b.shape.iter().try_for_each(|e| self.expr_id(*e))?;
        if b.device as usize >= self.plan.devices.len() {
            return Err(format!("device {} is missing", b.device));
        }
        if b.device != HOST && matches!(b.home, Home::Param(_) | Home::Result(_)) {
            return Err("what the caller owns is on another device".into());
        }
        let (index, count, what) = match b.home {
            Home::Param(i) => (i, self.entry.params.len(), "param"),
            Home::Result(i) => (i, self.entry.results.len(), "result"),
            Home::Var(i) => (i, self.plan.vars.len(), "variable"),
            Home::Const(i) => (i, self.plan.consts.len(), "constant"),
            // The last of them; no slot at all is one that is missing.
            Home::Slot(i, count) => {
                let last = count.checked_sub(1).and_then(|more| i.checked_add(more));
                (last.unwrap_or(u32::MAX), self.entry.slots.len(), "slot")
            }
        };
        if index as usize >= count {
            return Err(format!("{what} {index} is missing"));
        }
        let dtype = match b.home {
            Home::Param(i) => Some(self.entry.params[i as usize].dtype),
            Home::Result(i) => Some(self.entry.results[i as usize].dtype),
            Home::Var(i) => Some(self.plan.vars[i as usize].dtype),
            Home::Const(i) => Some(self.plan.consts[i as usize].dtype),
            Home::Slot(..) => None,
        };
        if dtype.is_some_and(|d| d != b.dtype) {
            return Err(format!("{what} {index} has another element type"));
        }
        Ok(())
    }

    fn ports(&self, what: &str, ports: &[Port], home: fn(u32) -> Home) -> Check {
        for (i, p) in ports.iter().enumerate() {
            let b = self.buf(p.buf)?;
            if b.home != home(i as u32) || b.dtype != p.dtype || b.shape.len() != p.shape.len() {
                return Err(format!("{what} `{}` does not match its buffer", p.name));
            }
            p.shape.iter().try_for_each(|e| self.expr_id(*e))?;
        }
        Ok(())
    }

    fn kernel(&self, kernel: u32, bufs: &[BufId], outputs: u32, dims: &[ExprId]) -> Check {
        if kernel as usize >= self.plan.kernels.len() {
            return Err(format!("kernel {kernel} is missing"));
        }
        if outputs as usize > bufs.len() {
            return Err(format!("kernel {kernel} writes more buffers than it has"));
        }
        let (written, read) = bufs.split_at(outputs as usize);
        written.iter().try_for_each(|b| self.writable(*b).map(drop))?;
        read.iter().try_for_each(|b| self.buf(*b).map(drop))?;
        dims.iter().try_for_each(|e| self.expr_id(*e))
    }

    fn epilogue(&self, e: &Option<Epilogue>) -> Check {
        match e {
            Some(e) => self.kernel(e.kernel, &e.bufs, e.outputs, &e.dims),
            None => Ok(()),
        }
    }

    fn same_dtype(&self, what: &str, dtype: DType, bufs: &[&Buffer]) -> Check {
        if bufs.iter().all(|b| b.dtype == dtype) {
            Ok(())
        } else {
            Err(format!("{what} mixes element types"))
        }
    }

    fn steps(&self, steps: &Steps, depth: u32) -> Check {
        if depth > MAX_NESTING {
            return Err("control flow is nested too deeply".into());
        }
        for (i, (step, dispatch)) in steps.iter().zip(steps.dispatch()).enumerate() {
            self.step(step, depth)?;
            self.dispatch(i, dispatch)?;
            self.device(step, dispatch.device)?;
        }
        let after = |i: usize| steps.dispatch()[i].after.clone();
        let home = |b: BufId| self.entry.buffers[b as usize].home;
        match depend::unordered(steps, &after, &home) {
            Some((a, b)) => Err(format!("step {b} does not wait for step {a}, but must")),
            None => Ok(()),
        }
    }

    /// A step waits for earlier ones, each named once.
    fn dispatch(&self, i: usize, dispatch: &Dispatch) -> Check {
        if dispatch.asked.is_some_and(|a| a as usize >= self.plan.asked.len()) {
            return Err(format!("step {i} asks for a device that is missing"));
        }
        let ascending = dispatch.after.is_sorted_by(|a, b| a < b);
        match dispatch.after.last() {
            Some(last) if *last as usize >= i => {
                Err(format!("step {i} waits for step {last}, which is not before it"))
            }
            _ if ascending => Ok(()),
            _ => Err(format!("the steps that step {i} waits for are out of order")),
        }
    }

    /// A step's buffers are where it runs; a copy's, one of them.
    fn device(&self, step: &Step, device: DeviceId) -> Check {
        if device as usize >= self.plan.devices.len() {
            return Err(format!("device {device} is missing"));
        }
        let on = |b: BufId| self.buf(b).map(|b| b.device);
        let here = match step {
            Step::Launch(_)
            | Step::MatMul(_)
            | Step::Conv(_)
            | Step::Call(_)
            | Step::Exchange(_) => {
                let mut here = true;
                step.buffers(&mut |b, _| here &= on(b) == Ok(device));
                here
            }
            Step::Copy { src, dst } => on(*src)? == device || on(*dst)? == device,
            Step::If { cond, .. } | Step::While { cond, .. } => {
                device == HOST && on(*cond)? == HOST
            }
            // A stack may be on any device.
            Step::Push { src: buf, .. } | Step::Pop { dst: buf, .. } => {
                device == HOST && on(*buf).is_ok()
            }
            _ => {
                let mut here = device == HOST;
                step.buffers(&mut |b, _| here &= on(b) == Ok(HOST));
                here
            }
        };
        if here { Ok(()) } else { Err(format!("a step on device {device} has others' buffers")) }
    }

    fn step(&self, step: &Step, depth: u32) -> Check {
        match step {
            Step::Launch(l) => {
                self.kernel(l.kernel, &l.bufs, l.outputs, &l.dims)?;
                self.expr_id(l.extent)?;
                self.expr_id(l.cost)
            }
            Step::MatMul(m) => {
                let bufs = [self.buf(m.a)?, self.buf(m.b)?, self.writable(m.c)?];
                self.same_dtype("a matrix product", m.dtype, &bufs)?;
                [m.m, m.n, m.k, m.batch, m.a_stride, m.b_stride]
                    .iter()
                    .try_for_each(|e| self.expr_id(*e))?;
                self.epilogue(&m.epilogue)
            }
            Step::Conv(c) => {
                let bufs = [self.buf(c.lhs)?, self.buf(c.rhs)?, self.writable(c.out)?];
                self.same_dtype("a convolution", c.dtype, &bufs)?;
                if [c.kernel, c.stride, c.dilation].concat().contains(&0) || c.groups == 0 {
                    return Err("a convolution has a zero in its geometry".into());
                }
                if c.epilogue.is_some() && c.kind != ConvKind::Forward {
                    return Err("a convolution's gradient has an epilogue".into());
                }
                [c.batch, c.in_channels, c.in_h, c.in_w, c.out_channels, c.out_h, c.out_w]
                    .iter()
                    .try_for_each(|e| self.expr_id(*e))?;
                self.epilogue(&c.epilogue)
            }
            Step::Copy { src, dst } => {
                let src = self.buf(*src)?;
                self.same_dtype("a copy", src.dtype, &[self.writable(*dst)?])
            }
            Step::Call(c) => self.call(c),
            Step::Save { names, bufs, .. } => {
                if names.len() != bufs.len() {
                    return Err("a file has more tensors than names".into());
                }
                bufs.iter().try_for_each(|b| self.buf(*b).map(drop))
            }
            Step::Restore { buf, .. } => self.writable(*buf).map(drop),
            Step::Print { buf, .. } => self.buf(*buf).map(drop),
            Step::Assert { cond, .. } => self.condition(*cond),
            Step::CheckFinite(c) => {
                let float = |b: &u32| match self.buf(*b)?.dtype.is_float() {
                    true => Ok(()),
                    false => Err("a check of what is no float".into()),
                };
                c.bufs.iter().try_for_each(float)
            }
            Step::CheckIndex(c) => {
                [c.size, c.width].iter().try_for_each(|e| self.expr_id(*e))?;
                match self.buf(c.ids)?.dtype.is_int() {
                    true => Ok(()),
                    false => Err("indices are not integers".into()),
                }
            }
            Step::Push { src, .. } => self.buf(*src).map(drop),
            Step::Pop { dst, .. } => self.writable(*dst).map(drop),
            Step::If { cond, then, otherwise } => {
                self.condition(*cond)?;
                self.steps(then, depth + 1)?;
                self.steps(otherwise, depth + 1)
            }
            Step::While { head, cond, body } => {
                self.condition(*cond)?;
                self.steps(head, depth + 1)?;
                self.steps(body, depth + 1)
            }
            Step::Queue(s) => self.queue(s),
            Step::Exchange(x) => x.bufs.iter().try_for_each(|b| self.writable(*b).map(drop)),
            Step::Send(m) => {
                self.task(m.peer)?;
                m.buf.map_or(Ok(()), |b| self.buf(b).map(drop))
            }
            Step::Recv(m) => {
                self.task(m.peer)?;
                m.buf.map_or(Ok(()), |b| self.writable(b).map(drop))
            }
        }
    }

    /// The number of elements moved is the runtime's to check: it depends on
    /// dims.
    fn queue(&self, s: &QueueStep) -> Check {
        let queue = self
            .plan
            .queues
            .get(s.queue as usize)
            .ok_or_else(|| format!("queue {} is missing", s.queue))?;
        self.expr_id(s.count)?;
        let wanted: Vec<DType> = match s.action {
            QueueAction::Close => vec![],
            QueueAction::Size => vec![DType::I64],
            _ => queue.parts.iter().map(|p| p.dtype).collect(),
        };
        let mut given = vec![];
        for &b in &s.bufs {
            let buf = if s.action.gives() { self.buf(b)? } else { self.writable(b)? };
            given.push(buf.dtype);
        }
        let reader = matches!(queue.kind, QueueKind::Reader(_));
        if given != wanted || reader && !s.action.takes() {
            return Err(format!("queue `{}` is used wrong", queue.name));
        }
        Ok(())
    }

    fn task(&self, task: u32) -> Check {
        match (task as usize) < self.plan.tasks.len() {
            true => Ok(()),
            false => Err(format!("there is no task {task}")),
        }
    }

    fn condition(&self, cond: BufId) -> Check {
        self.same_dtype("a condition", DType::Bool, &[self.buf(cond)?])
    }

    fn call(&self, c: &Call) -> Check {
        let wanted = c.func.signature();
        if c.bufs.len() != wanted.bufs.len() || c.ints.len() != wanted.ints {
            return Err(format!("{:?} has the wrong number of operands", c.func));
        }
        c.ints.iter().try_for_each(|e| self.expr_id(*e))?;
        let first = self.writable(c.bufs[0])?.dtype;
        for (i, (buf, wanted)) in c.bufs.iter().zip(wanted.bufs).enumerate() {
            let dtype = self.buf(*buf)?.dtype;
            if !wanted.elements.admits(dtype, first) {
                return Err(format!("operand {i} of {:?} is {dtype}", c.func));
            }
        }
        Ok(())
    }
}
