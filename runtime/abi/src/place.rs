//! A plan for one device as a plan for several: each step that computes goes to the
//! device it is given, and copies are put in where a value is needed elsewhere than it
//! is.
//!
//! A program carries the plan for the CPU alone, which it can run anywhere. Where there
//! is a GPU, [`place`] makes of it the plan that uses it, when the program is loaded;
//! the compiler does the same to print it.
//!
//! What is kept track of is not buffers but the memory behind them ([`Home`]): on which
//! devices it holds the present value. A value is copied when a step reads it where it is
//! not, once for each device and value. Around `if` and `while`, what the branches and
//! the rounds of a loop disagree about is copied so that they agree; what a loop only
//! reads is copied before it.
//!
//! Where `on` placed a step it goes to that device, if it can be done there at all; the
//! others go to the first GPU.
//!
//! Invariants
//! - The steps of the plan stay in their order, and waits are worked out anew.
//! - A variable is on one device. What another device writes to it is copied there at
//!   once, so that it can be given back at any time.
//! - Params and results are on the CPU, as is every step that does more than compute, but
//!   for exchanges: with one GPU, those that its library can do are steps of it. Which
//!   they are follows from the plan alone, so that all processes of a job agree.
//! - A stack is on one device: where what is first put on it was computed, or with several
//!   GPUs on the CPU. The CPU counts what is on it, and has the elements copied there.

use crate::depend::order;
use crate::plan::*;
use std::collections::BTreeMap;

/// A plan for several devices.
#[derive(Clone, Debug, PartialEq)]
pub struct Placed {
    pub plan: Plan,
    /// For each entry and each of its buffers, the buffer it stands for in the plan this
    /// was made from.
    pub origins: Vec<Vec<BufId>>,
}

/// Whether a GPU can carry out a step that computes, given the number of the entry.
pub type Runs<'a> = dyn Fn(u32, &Step) -> bool + 'a;

/// Where a step of an entry runs, given which of [`Plan::asked`] it was placed on.
type RunsOn<'a> = dyn Fn(&Step, Option<u32>) -> DeviceId + 'a;

impl Plan {
    /// The GPUs that a program uses, by their numbers in `on`: those it names, or the
    /// first.
    pub fn gpus(&self) -> Vec<u32> {
        let named = self.asked.iter().filter(|d| d.kind == DeviceKind::Cuda);
        let mut numbers: Vec<u32> = named.map(Device::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() { vec![0] } else { numbers }
    }

    /// The device that stands for one that was asked for; of those that were not said, the
    /// first besides the CPU.
    fn device_for(&self, asked: Option<u32>) -> DeviceId {
        match asked.and_then(|a| self.asked.get(a as usize)) {
            Some(device) if device.kind == DeviceKind::Cpu => HOST,
            Some(device) => {
                let number = device.number();
                let place = self.gpus().iter().position(|n| *n == number);
                place.map_or(1, |p| p as DeviceId + 1)
            }
            None => 1,
        }
    }
}

/// Places a plan that is all on the CPU on GPUs besides it: those that it names, or one.
/// `/gpu:0` is the GPU number `first`.
pub fn place(plan: &Plan, first: u32, runs: &Runs<'_>) -> Placed {
    let mut out = Plan { devices: vec![Device::host()], entries: vec![], ..plan.clone() };
    out.devices.extend(plan.gpus().iter().map(|n| Device::cuda(first + n)));
    let one = plan.gpus().len() == 1;
    let computes_on = |entry: u32, step: &Step, asked: Option<u32>| match step {
        Step::Push { .. } | Step::Pop { .. } => HOST,
        Step::Exchange(x) if !one || !by_gpus(x, &plan.entries[entry as usize]) => HOST,
        _ if runs(entry, step) => plan.device_for(asked),
        _ => HOST,
    };
    let of_entries = (0u32..).zip(&plan.entries);
    let stacks: Vec<BTreeMap<u32, DeviceId>> =
        of_entries.map(|(i, e)| stack_homes(e, &|s, asked| computes_on(i, s, asked))).collect();
    // Of several GPUs none has all that a loop keeps: then it is the CPU.
    let runs_on = |entry: u32, step: &Step, asked: Option<u32>| match step {
        Step::Push { stack, .. } | Step::Pop { stack, .. } => {
            stacks[entry as usize].get(stack).copied().filter(|_| one).unwrap_or(HOST)
        }
        _ => computes_on(entry, step, asked),
    };
    let homes = var_homes(plan, &runs_on);
    let mut origins = vec![];
    for (i, entry) in (0u32..).zip(&plan.entries) {
        let mut placer = Placer {
            entry,
            vars: &homes,
            plan,
            runs_on: &|s, asked| runs_on(i, s, asked),
            out: Entry { buffers: vec![], slots: vec![], steps: Steps::default(), ..entry.clone() },
            origin: vec![],
            buffers: BTreeMap::new(),
            slots: BTreeMap::new(),
            firsts: BTreeMap::new(),
        };
        placer.run();
        origins.push(placer.origin);
        out.entries.push(placer.out);
    }
    Placed { plan: out, origins }
}

/// Whether NCCL combines tensors as the CPU does. The larger of two floats is a NaN here if
/// either is, and there the other one. Tensors that are not of one size everywhere are found
/// by messages between CPUs alone, so those whose sizes calls decide stay with them.
fn by_gpus(x: &Exchange, entry: &Entry) -> bool {
    let float = |b: &BufId| entry.buffers[*b as usize].dtype.is_float();
    let len = |b: &BufId| entry.exprs[entry.buffers[*b as usize].len as usize].as_const();
    let sums = matches!(x.combine, Combine::Mean | Combine::Sum);
    (sums || !x.bufs.iter().any(float)) && x.bufs.iter().all(|b| len(b).is_some())
}

/// A stack is where what is first put on it was computed.
fn stack_homes(entry: &Entry, runs_on: &RunsOn<'_>) -> BTreeMap<u32, DeviceId> {
    let mut computed = BTreeMap::new();
    visit(&entry.steps, runs_on, &mut |buf, writes, device| {
        if writes && device != HOST {
            computed.entry(buf).or_insert(device);
        }
    });
    let mut homes = BTreeMap::new();
    pushes(&entry.steps, &mut |stack, src| {
        homes.entry(stack).or_insert(computed.get(&src).copied().unwrap_or(HOST));
    });
    homes
}

fn pushes(steps: &Steps, push: &mut dyn FnMut(u32, BufId)) {
    for step in steps.iter() {
        match step {
            Step::Push { stack, src } => push(*stack, *src),
            Step::If { then: a, otherwise: b, .. } | Step::While { head: a, body: b, .. } => {
                pushes(a, push);
                pushes(b, push);
            }
            _ => {}
        }
    }
}

/// A variable is where it was placed, or on the first device besides the CPU that has to
/// do with it.
fn var_homes(plan: &Plan, runs_on: &dyn Fn(u32, &Step, Option<u32>) -> DeviceId) -> Vec<DeviceId> {
    let placed = plan.vars.iter().map(|v| v.asked.map(|_| plan.device_for(v.asked)));
    let placed: Vec<Option<DeviceId>> = placed.collect();
    let mut homes: Vec<DeviceId> = placed.iter().map(|p| p.unwrap_or(HOST)).collect();
    for (i, entry) in (0u32..).zip(&plan.entries) {
        visit(&entry.steps, &|s, asked| runs_on(i, s, asked), &mut |buf, _, device| {
            if let Home::Var(v) = entry.buffers[buf as usize].home
                && placed[v as usize].is_none()
                && homes[v as usize] == HOST
            {
                homes[v as usize] = device;
            }
        });
    }
    homes
}

/// Where a step runs; copies are wherever their source is.
fn device_of(step: &Step, asked: Option<u32>, runs_on: &RunsOn<'_>) -> DeviceId {
    match step {
        Step::Launch(_)
        | Step::MatMul(_)
        | Step::Conv(_)
        | Step::Copy { .. }
        | Step::Call(_)
        | Step::Exchange(_)
        | Step::Push { .. }
        | Step::Pop { .. } => runs_on(step, asked),
        _ => HOST,
    }
}

/// Every use of a buffer in a list and the lists inside: whether it is written, and where.
fn visit(steps: &Steps, runs_on: &RunsOn<'_>, use_of: &mut dyn FnMut(BufId, bool, DeviceId)) {
    for (step, dispatch) in steps.iter().zip(steps.dispatch()) {
        match step {
            Step::If { cond, then: a, otherwise: b } | Step::While { cond, head: a, body: b } => {
                use_of(*cond, false, HOST);
                visit(a, runs_on, use_of);
                visit(b, runs_on, use_of);
            }
            _ => {
                let device = device_of(step, dispatch.asked, runs_on);
                step.buffers(&mut |b, writes| use_of(b, writes, device));
            }
        }
    }
}

/// The devices that hold the present value of some memory, a bit each; what has none yet
/// is in no map.
#[derive(Clone, Default)]
struct Values {
    at: BTreeMap<Home, u32>,
    /// The buffer it was last written as: what there is to copy.
    as_buffer: BTreeMap<Home, BufId>,
}

impl Values {
    /// What was in slots that something else is written to is gone.
    fn forget(&mut self, written: Home) {
        let Home::Slot(first, count) = written else { return };
        // What is known of slots has none in common, so all but the first of those that
        // are gone begin in what is written.
        let before = self.at.range(..Home::Slot(first, 0)).next_back();
        let inside = self.at.range(Home::Slot(first, 0)..Home::Slot(first + count, 0));
        let gone: Vec<Home> = before
            .into_iter()
            .chain(inside)
            .map(|(home, _)| *home)
            .filter(|home| home.meets(written))
            .collect();
        for home in gone {
            self.at.remove(&home);
            self.as_buffer.remove(&home);
        }
    }
}

fn bit(device: DeviceId) -> u32 {
    1 << device.min(31)
}

type List = Vec<(Step, DeviceId)>;

struct Placer<'a> {
    plan: &'a Plan,
    entry: &'a Entry,
    vars: &'a [DeviceId],
    runs_on: &'a RunsOn<'a>,
    out: Entry,
    origin: Vec<BufId>,
    buffers: BTreeMap<(BufId, DeviceId), BufId>,
    /// Slots that stand for what is no slot in the plan.
    slots: BTreeMap<(Home, DeviceId), Home>,
    /// The first of the slots that stand for those of the plan, in their order.
    firsts: BTreeMap<DeviceId, u32>,
}

impl Placer<'_> {
    fn run(&mut self) {
        let mut values = Values::default();
        for (i, b) in (0u32..).zip(&self.entry.buffers) {
            let device = match b.home {
                Home::Param(_) => HOST,
                Home::Var(v) => self.vars[v as usize],
                _ => continue,
            };
            values.at.insert(b.home, bit(device));
            values.as_buffer.insert(b.home, i);
        }
        for p in 0..self.entry.params.len() {
            self.out.params[p].buf = self.at(self.entry.params[p].buf, HOST);
        }
        let mut list = self.list(&self.entry.steps, &mut values);
        for r in 0..self.entry.results.len() {
            let buf = self.entry.results[r].buf;
            self.out.results[r].buf = self.at(buf, HOST);
            self.bring(buf, HOST, &mut values, &mut list);
        }
        self.out.steps = self.steps(list);
        self.drop_slots();
    }

    fn home(&self, buf: BufId) -> Home {
        self.entry.buffers[buf as usize].home
    }

    /// The buffer on a device that stands for one of the plan.
    fn at(&mut self, buf: BufId, device: DeviceId) -> BufId {
        if let Some(known) = self.buffers.get(&(buf, device)) {
            return *known;
        }
        let b = &self.entry.buffers[buf as usize];
        let own = match b.home {
            Home::Param(_) | Home::Result(_) => device == HOST,
            Home::Var(v) => self.vars[v as usize] == device,
            Home::Const(_) => true,
            Home::Slot(..) => false,
        };
        let home = if own { b.home } else { self.slots(b.home, buf, device) };
        let id = self.out.buffers.len() as BufId;
        self.out.buffers.push(Buffer { home, device, ..b.clone() });
        self.origin.push(buf);
        self.buffers.insert((buf, device), id);
        id
    }

    /// The slots of a device that stand for some memory.
    fn slots(&mut self, home: Home, buf: BufId, device: DeviceId) -> Home {
        let next = self.out.slots.len() as u32;
        if let Home::Slot(first, count) = home {
            // All that there are, so that what follows each other does so here, too.
            let start = *self.firsts.entry(device).or_insert(next);
            if start == next {
                self.out.slots.extend(&self.entry.slots);
            }
            return Home::Slot(start + first, count);
        }
        if let Some(known) = self.slots.get(&(home, device)) {
            return *known;
        }
        // Some buffers may be only the beginning of the memory.
        let buf = match home {
            Home::Param(i) => self.entry.params[i as usize].buf,
            Home::Result(i) => self.entry.results[i as usize].buf,
            _ => buf,
        };
        let b = &self.entry.buffers[buf as usize];
        let mut ops = self.entry.exprs[b.len as usize].0.clone();
        if let Home::Var(v) = home {
            let shape = &self.plan.vars[v as usize].shape;
            ops = vec![ExprOp::Const(shape.iter().product())];
        }
        ops.extend([ExprOp::Const(b.dtype.size() as i64), ExprOp::Mul]);
        self.out.exprs.push(Expr(ops));
        self.out.slots.push(self.out.exprs.len() as u32 - 1);
        self.slots.insert((home, device), Home::slot(next));
        Home::slot(next)
    }

    /// Drops the slots that nothing is in.
    fn drop_slots(&mut self) {
        let mut used = vec![false; self.out.slots.len()];
        for b in &self.out.buffers {
            if let Home::Slot(first, count) = b.home {
                used[first as usize..(first + count) as usize].fill(true);
            }
        }
        let mut number = 0;
        let numbers: Vec<u32> = used
            .iter()
            .map(|used| {
                number += u32::from(*used);
                number - u32::from(*used)
            })
            .collect();
        let kept = std::mem::take(&mut self.out.slots).into_iter().zip(used);
        self.out.slots = kept.filter(|(_, used)| *used).map(|(size, _)| size).collect();
        for b in &mut self.out.buffers {
            if let Home::Slot(first, _) = &mut b.home {
                *first = numbers[*first as usize];
            }
        }
    }

    /// Copies a value to a device, unless it is there.
    fn bring(&mut self, buf: BufId, device: DeviceId, values: &mut Values, list: &mut List) {
        let home = self.home(buf);
        let Some(present) = values.at.get_mut(&home) else { return };
        if matches!(home, Home::Const(_)) || *present & bit(device) != 0 {
            return;
        }
        let from = present.trailing_zeros();
        *present |= bit(device);
        // All of it, though a buffer may be only its beginning.
        let whole = values.as_buffer.get(&home).copied().unwrap_or(buf);
        let (src, dst) = (self.at(whole, from), self.at(whole, device));
        list.push((Step::Copy { src, dst }, if device == HOST { from } else { device }));
    }

    fn written(&mut self, buf: BufId, device: DeviceId, values: &mut Values, list: &mut List) {
        let home = self.home(buf);
        values.forget(home);
        values.at.insert(home, bit(device));
        values.as_buffer.insert(home, buf);
        if let Home::Var(v) = home {
            self.bring(buf, self.vars[v as usize], values, list);
        }
    }

    fn steps(&self, list: List) -> Steps {
        let (steps, devices): (Vec<Step>, Vec<DeviceId>) = list.into_iter().unzip();
        let (after, _) = order(&steps, &|b| self.out.buffers[b as usize].home);
        let dispatch = devices.into_iter().zip(after);
        let pairs = steps.into_iter().zip(dispatch);
        Steps::from_pairs(
            pairs
                .map(|(s, (device, after))| (s, Dispatch { device, after, ..Dispatch::default() })),
        )
    }

    fn list(&mut self, steps: &Steps, values: &mut Values) -> List {
        let mut list = vec![];
        for (step, dispatch) in steps.iter().zip(steps.dispatch()) {
            match step {
                Step::If { cond, then, otherwise } => {
                    self.branch(*cond, then, otherwise, values, &mut list);
                }
                Step::While { head, cond, body } => {
                    self.repeat(head, *cond, body, values, &mut list);
                }
                Step::Copy { src, dst } => {
                    let device = self.wanted(*src, step, dispatch.asked, values);
                    self.copy(*src, *dst, device, values, &mut list);
                }
                _ => {
                    let mut device = device_of(step, dispatch.asked, self.runs_on);
                    let stack = matches!(step, Step::Push { .. } | Step::Pop { .. });
                    if dispatch.asked.is_none() && device != HOST && !stack {
                        device = self.owner(step).unwrap_or(device);
                    }
                    self.plain(step, device, values, &mut list);
                }
            }
        }
        list
    }

    /// Where a copy is made, if it may be anywhere: where it was placed, or on a GPU that
    /// has what is copied.
    fn wanted(&self, src: BufId, step: &Step, asked: Option<u32>, values: &Values) -> DeviceId {
        let at = values.at.get(&self.home(src)).map_or(0, |present| present & !bit(HOST));
        match asked {
            None if at != 0 => at.trailing_zeros(),
            _ => (self.runs_on)(step, asked),
        }
    }

    /// Straight from where the value is to where it is wanted.
    fn copy(
        &mut self,
        src: BufId,
        dst: BufId,
        device: DeviceId,
        values: &mut Values,
        list: &mut List,
    ) {
        let wanted = match self.home(dst) {
            Home::Result(_) => HOST,
            Home::Var(v) => self.vars[v as usize],
            _ => device,
        };
        let from = match values.at.get(&self.home(src)) {
            Some(present) if present & bit(wanted) == 0 => present.trailing_zeros(),
            _ => wanted,
        };
        if self.home(src) == self.home(dst) {
            // Nothing moves; what the memory holds is what it held.
            return;
        }
        let (src, to) = (self.at(src, from), self.at(dst, wanted));
        list.push((Step::Copy { src, dst: to }, if wanted == HOST { from } else { wanted }));
        self.written(dst, wanted, values, list);
    }

    fn plain(&mut self, step: &Step, device: DeviceId, values: &mut Values, list: &mut List) {
        if device != HOST
            && let Step::Call(c) = step
            && c.func.signature().may_fail
        {
            self.check_rows(c, values, list);
        }
        let mut uses = vec![];
        step.buffers(&mut |b, writes| uses.push((b, writes)));
        let fresh = self.fresh(step);
        for (b, _) in &uses {
            if !fresh.contains(&self.home(*b)) {
                self.bring(*b, device, values, list);
            }
        }
        let mut placed = step.clone();
        placed.map_buffers(&mut |b| self.at(b, device));
        // Stacks are the CPU's to keep, wherever they are.
        let stack = matches!(step, Step::Push { .. } | Step::Pop { .. });
        list.push((placed, if stack { HOST } else { device }));
        for (b, _) in uses.iter().filter(|(_, writes)| *writes) {
            self.written(*b, device, values, list);
        }
        if matches!(step, Step::Queue(_)) {
            // Variables are given back while it waits: only they are up to date then.
            for (home, present) in &mut values.at {
                if let Home::Var(v) = home {
                    *present = bit(self.vars[*v as usize]);
                }
            }
        }
    }

    /// The GPU with the variable that a step writes.
    fn owner(&self, step: &Step) -> Option<DeviceId> {
        let mut owner = None;
        step.buffers(&mut |b, writes| {
            if let (true, Home::Var(v)) = (writes, self.home(b)) {
                owner = owner.or(Some(self.vars[v as usize]).filter(|d| *d != HOST));
            }
        });
        owner
    }

    /// What a step writes without having read it, all of it: the value before is not needed.
    fn fresh(&self, step: &Step) -> Vec<Home> {
        let product = |c: BufId, factors: [BufId; 2], epilogue: &Option<Epilogue>| {
            let bufs = epilogue.as_ref().map_or(&[][..], |e| &e.bufs);
            let outputs = epilogue.as_ref().map_or(0, |e| e.outputs as usize);
            let (written, read) = bufs.split_at(outputs.min(bufs.len()));
            // The product itself is there by then.
            let read = read.iter().filter(|b| self.home(**b) != self.home(c)).chain(&factors);
            ([&[c], written].concat(), read.copied().collect())
        };
        let (written, read): (Vec<BufId>, Vec<BufId>) = match step {
            Step::Launch(l) if !l.partial => {
                let (written, read) = l.bufs.split_at((l.outputs as usize).min(l.bufs.len()));
                (written.to_vec(), read.to_vec())
            }
            Step::MatMul(m) => product(m.c, [m.a, m.b], &m.epilogue),
            Step::Conv(c) => product(c.out, [c.lhs, c.rhs], &c.epilogue),
            Step::Call(Call { func: Func::Zero, bufs, .. }) => (bufs.clone(), vec![]),
            Step::Pop { dst: b, .. } | Step::Restore { buf: b, .. } => (vec![*b], vec![]),
            Step::Recv(m) => (Vec::from_iter(m.buf), vec![]),
            Step::Queue(q) if !q.action.gives() => (q.bufs.clone(), vec![]),
            _ => (vec![], vec![]),
        };
        let read: Vec<Home> = read.iter().map(|b| self.home(*b)).collect();
        written.iter().map(|b| self.home(*b)).filter(|h| !read.contains(h)).collect()
    }

    /// Updates of rows fail on an index that is out of range; elsewhere than on the CPU,
    /// who checks that is the CPU.
    fn check_rows(&mut self, call: &Call, values: &mut Values, list: &mut List) {
        let [_, ids, ..] = call.bufs[..] else { return };
        // Sums may leave out what is out of range.
        let drops = call.ints.get(3).and_then(|e| self.entry.exprs.get(*e as usize)?.as_const());
        if drops == Some(1) {
            return;
        }
        self.out.exprs.push(Expr(vec![ExprOp::Const(1)]));
        let width = self.out.exprs.len() as u32 - 1;
        self.bring(ids, HOST, values, list);
        let check = CheckIndex {
            ids: self.at(ids, HOST),
            size: call.ints[0],
            width,
            axis: 0,
            name: String::new(),
            user: call.func.signature().name.into(),
            place: String::new(),
        };
        list.push((Step::CheckIndex(check), HOST));
    }

    fn branch(
        &mut self,
        cond: BufId,
        then: &Steps,
        otherwise: &Steps,
        values: &mut Values,
        list: &mut List,
    ) {
        self.bring(cond, HOST, values, list);
        let mut other = values.clone();
        let mut yes = self.list(then, values);
        let mut no = self.list(otherwise, &mut other);
        let used = self.users(&[then, otherwise]);
        for home in other.at.keys().copied().collect::<Vec<_>>() {
            let (Some(a), Some(b)) = (values.at.get(&home), other.at.get(&home)) else { continue };
            let both = a & b;
            let to = used.get(&home).map_or(HOST, Users::preferred);
            match values.as_buffer.get(&home).copied() {
                Some(buf) if both == 0 => {
                    self.bring(buf, to, values, &mut yes);
                    self.bring(buf, to, &mut other, &mut no);
                    values.at.insert(home, bit(to));
                }
                _ => drop(values.at.insert(home, both)),
            }
        }
        // What one branch alone has written is nobody's afterwards, and may not be there.
        values.at.retain(|home, _| other.at.contains_key(home));
        values.as_buffer.retain(|home, _| other.as_buffer.contains_key(home));
        let cond = self.at(cond, HOST);
        let (then, otherwise) = (self.steps(yes), self.steps(no));
        list.push((Step::If { cond, then, otherwise }, HOST));
    }

    fn repeat(
        &mut self,
        head: &Steps,
        cond: BufId,
        body: &Steps,
        values: &mut Values,
        list: &mut List,
    ) {
        let used = self.users(&[head, body]);
        // What holds at the beginning of every round: written memory is where it is used
        // most, and what is only read has come before.
        let agree = |this: &mut Self, values: &mut Values, list: &mut List| {
            for (home, users) in &used {
                let Some(buf) = values.as_buffer.get(home).copied() else { continue };
                if users.written {
                    this.bring(buf, users.preferred(), values, list);
                    values.at.insert(*home, bit(users.preferred()));
                } else {
                    let devices = (0..32).filter(|d| users.devices & bit(*d) != 0);
                    devices.for_each(|d| this.bring(buf, d, values, list));
                }
            }
        };
        agree(self, values, list);
        let defined: Vec<Home> = values.at.keys().copied().collect();
        let mut first = self.list(head, values);
        self.bring(cond, HOST, values, &mut first);
        let after = values.clone();
        let mut rest = self.list(body, values);
        // What a round leaves behind for nobody need not be brought anywhere.
        values.at.retain(|home, _| defined.contains(home));
        values.as_buffer.retain(|home, _| defined.contains(home));
        agree(self, values, &mut rest);
        *values = after;
        let (head, cond, body) = (self.steps(first), self.at(cond, HOST), self.steps(rest));
        list.push((Step::While { head, cond, body }, HOST));
    }

    /// Who has to do with which memory in these lists.
    fn users(&self, lists: &[&Steps]) -> BTreeMap<Home, Users> {
        let mut out: BTreeMap<Home, Users> = BTreeMap::new();
        for list in lists {
            visit(list, self.runs_on, &mut |buf, writes, device| {
                let home = self.home(buf);
                let users = out.entry(home).or_default();
                users.written |= writes;
                users.devices |= bit(device);
                if let Home::Var(v) = home {
                    users.owner = Some(self.vars[v as usize]);
                }
            });
        }
        out
    }
}

#[derive(Default)]
struct Users {
    devices: u32,
    written: bool,
    owner: Option<DeviceId>,
}

impl Users {
    /// Where it is best kept: with whoever owns it, or a device that computes.
    fn preferred(&self) -> DeviceId {
        let others = self.devices & !bit(HOST);
        let computes = if others == 0 { HOST } else { others.trailing_zeros() };
        self.owner.unwrap_or(computes)
    }
}

impl Step {
    /// Replaces every buffer of a step that has no lists inside.
    pub fn map_buffers(&mut self, new: &mut dyn FnMut(BufId) -> BufId) {
        let mut map = |bufs: &mut [BufId]| bufs.iter_mut().for_each(|b| *b = new(*b));
        match self {
            Step::Launch(l) => map(&mut l.bufs),
            Step::MatMul(m) => {
                for b in [&mut m.a, &mut m.b, &mut m.c] {
                    map(std::slice::from_mut(b));
                }
                m.epilogue.iter_mut().for_each(|e| map(&mut e.bufs));
            }
            Step::Conv(c) => {
                for b in [&mut c.lhs, &mut c.rhs, &mut c.out] {
                    map(std::slice::from_mut(b));
                }
                c.epilogue.iter_mut().for_each(|e| map(&mut e.bufs));
            }
            Step::Copy { src, dst } => {
                map(std::slice::from_mut(src));
                map(std::slice::from_mut(dst));
            }
            Step::Call(c) => map(&mut c.bufs),
            Step::Print { buf: b, .. }
            | Step::Assert { cond: b, .. }
            | Step::Push { src: b, .. }
            | Step::Pop { dst: b, .. }
            | Step::Restore { buf: b, .. } => map(std::slice::from_mut(b)),
            Step::CheckIndex(c) => map(std::slice::from_mut(&mut c.ids)),
            Step::CheckFinite(c) => map(&mut c.bufs),
            Step::Save { bufs, .. } => map(bufs),
            Step::Queue(q) => map(&mut q.bufs),
            Step::Exchange(x) => map(&mut x.bufs),
            Step::Send(m) | Step::Recv(m) => map(m.buf.as_mut_slice()),
            Step::If { .. } | Step::While { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
