//! Running a launch: blocks one after the other, the warps of a block in turn.
//!
//! The threads of a warp that are at the same instruction run it together. Where
//! they part, those at the lower address go first, so that they meet again at the
//! end of a branch or a loop, as code laid out in order does on a GPU.

use crate::copies::Copies;
use crate::decode::{Entry, Inst, Module, Op, R, Shuffle, Space, Special, Src};
use crate::memory::{Global, Region, Stats, Who};
use crate::{Error, alu, mma};

/// A value for a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arg {
    Ptr(u64),
    I64(i64),
    U32(u32),
    F32(f32),
}

/// What to run, on how many threads.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    pub entry: &'a str,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub args: &'a [Arg],
    /// Instructions after which the launch fails.
    pub limit: u64,
}

impl Default for Launch<'_> {
    fn default() -> Self {
        Launch { entry: "", grid: [1; 3], block: [1; 3], args: &[], limit: 4_000_000_000 }
    }
}

const WARP: usize = 32;
pub(crate) type Lanes = [u64; WARP];

pub(crate) fn launch(
    global: &mut Global,
    module: &Module,
    launch: &Launch,
) -> Result<Stats, Error> {
    let result = run(global, module, launch);
    global.settle();
    result
}

fn run(global: &mut Global, module: &Module, launch: &Launch) -> Result<Stats, Error> {
    let fail = |m: String| Err(Error::new(0, m));
    let Some(entry) = module.entry(launch.entry) else {
        return fail(format!("the module has no entry `{}`", launch.entry));
    };
    let threads: u64 = launch.block.iter().map(|n| u64::from(*n)).product();
    if threads == 0 || threads > 1024 || launch.grid.contains(&0) {
        return fail(format!("a grid of {:?} blocks of {:?}", launch.grid, launch.block));
    }
    if launch.grid[1] > 65535 || launch.grid[2] > 65535 {
        return fail(format!("{:?} blocks: axes y and z end at 65535", launch.grid));
    }
    if entry.max_threads.is_some_and(|max| threads > u64::from(max)) {
        return fail(format!("{threads} threads where the entry allows fewer"));
    }
    if entry.shared > 48 * 1024 {
        return fail(format!("{} bytes of shared memory", entry.shared));
    }
    let params = pack(entry, launch.args)?;
    let mut stats = Stats::default();
    let [gx, gy, gz] = launch.grid;
    let mut number = 0;
    for z in 0..gz {
        for y in 0..gy {
            for x in 0..gx {
                let mut block = Block {
                    entry,
                    launch,
                    params: &params,
                    global,
                    shared: Region::new(entry.shared),
                    at: [x, y, z],
                    number,
                    epoch: 0,
                    stats: &mut stats,
                };
                block.run(threads as usize)?;
                number += 1;
            }
        }
    }
    Ok(stats)
}

fn pack(entry: &Entry, args: &[Arg]) -> Result<Vec<u8>, Error> {
    if args.len() != entry.params.len() {
        let (have, want) = (args.len(), entry.params.len());
        return Err(Error::new(0, format!("{have} arguments for {want} parameters")));
    }
    let mut out = vec![];
    for (i, (arg, size)) in args.iter().zip(&entry.params).enumerate() {
        let bytes = match arg {
            Arg::Ptr(p) => p.to_le_bytes().to_vec(),
            Arg::I64(v) => v.to_le_bytes().to_vec(),
            Arg::U32(v) => v.to_le_bytes().to_vec(),
            Arg::F32(v) => v.to_le_bytes().to_vec(),
        };
        if bytes.len() != *size {
            return Err(Error::new(0, format!("argument {i} does not have {size} bytes")));
        }
        out.resize(out.len().next_multiple_of(*size), 0);
        out.extend(bytes);
    }
    Ok(out)
}

pub(crate) struct Block<'a> {
    entry: &'a Entry,
    launch: &'a Launch<'a>,
    params: &'a [u8],
    pub(crate) global: &'a mut Global,
    pub(crate) shared: Region,
    at: [u32; 3],
    number: u32,
    epoch: u32,
    pub(crate) stats: &'a mut Stats,
}

pub(crate) struct Warp {
    /// Number of the first thread in the block.
    pub(crate) first: usize,
    regs: Vec<Lanes>,
    /// Lanes in which a register has a value.
    set: Vec<u32>,
    pc: u32,
    active: u32,
    /// Threads that are elsewhere: where, and which. The nearest is last.
    waiting: Vec<(u32, u32)>,
    at_barrier: bool,
    /// What its threads say at a barrier that asks them, and where the answer goes.
    vote: Option<(R, bool)>,
    done: bool,
    epoch: u32,
    /// Of each thread.
    pub(crate) copies: [Copies; WARP],
}

pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        if rest == 0 {
            return None;
        }
        let lane = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        Some(lane)
    })
}

impl Block<'_> {
    fn run(&mut self, threads: usize) -> Result<(), Error> {
        let mut warps: Vec<Warp> = (0..threads.div_ceil(WARP))
            .map(|w| {
                let here = (threads - w * WARP).min(WARP);
                Warp {
                    first: w * WARP,
                    regs: vec![[0; WARP]; self.entry.regs.len()],
                    set: vec![0; self.entry.regs.len()],
                    pc: 0,
                    active: if here == WARP { u32::MAX } else { (1 << here) - 1 },
                    waiting: vec![],
                    at_barrier: false,
                    vote: None,
                    done: false,
                    epoch: 0,
                    copies: Default::default(),
                }
            })
            .collect();
        loop {
            for warp in &mut warps {
                if !warp.done && !warp.at_barrier {
                    self.warp(warp)?;
                }
            }
            if warps.iter().all(|w| w.done) {
                return Ok(());
            }
            if let Some(gone) = warps.iter().find(|w| w.done) {
                let waits = warps.iter().find(|w| w.at_barrier).map_or(0, |w| w.pc);
                return Err(self.error(
                    waits.saturating_sub(1),
                    gone.first,
                    "has ended while others of its block wait at a barrier",
                ));
            }
            self.epoch += 1;
            self.stats.barriers += 1;
            let any = warps.iter().any(|w| w.vote.is_some_and(|(_, holds)| holds));
            if let Some(silent) = warps.iter().find(|w| w.vote.is_none())
                && warps.iter().any(|w| w.vote.is_some())
            {
                return Err(self.error(
                    silent.pc.saturating_sub(1),
                    silent.first,
                    "is at another kind of barrier than others of its block",
                ));
            }
            for warp in &mut warps {
                warp.at_barrier = false;
                if let Some((dst, _)) = warp.vote.take() {
                    warp.put(dst, warp.active, |_| u64::from(any));
                }
            }
        }
    }

    pub(crate) fn error(&self, pc: u32, thread: usize, message: &str) -> Error {
        let line = self.entry.insts.get(pc as usize).map_or(0, |i| i.line);
        let [x, y, z] = self.at;
        Error::new(
            line,
            format!("{}: thread {thread} of block ({x}, {y}, {z}) {message}", self.entry.name),
        )
    }

    pub(crate) fn who(&self, warp: &Warp, lane: usize) -> Who {
        Who {
            block: self.number,
            thread: (warp.first + lane) as u32,
            epoch: self.epoch,
            warp_epoch: warp.epoch,
        }
    }

    /// Runs a warp to its end or to a barrier of the block.
    fn warp(&mut self, w: &mut Warp) -> Result<(), Error> {
        let entry = self.entry;
        loop {
            if let Some((pc, mask)) = w.waiting.last().copied() {
                if pc == w.pc {
                    w.active |= mask;
                    w.waiting.pop();
                    continue;
                }
                if pc < w.pc {
                    w.waiting.pop();
                    let (pc, mask) =
                        (std::mem::replace(&mut w.pc, pc), std::mem::replace(&mut w.active, mask));
                    w.park(pc, mask);
                    continue;
                }
            }
            let pc = w.pc;
            let Some(inst) = entry.insts.get(pc as usize) else {
                return Err(self.error(pc.saturating_sub(1), w.first, "runs past the end"));
            };
            self.stats.instructions += 1;
            if self.stats.instructions > self.launch.limit {
                return Err(self.error(pc, w.first, "runs into the limit of instructions"));
            }
            let mut mask = w.active;
            if let Some((reg, negated)) = inst.guard {
                self.check_set(w, pc, reg, mask)?;
                let values = &w.regs[reg as usize];
                let mut on = 0;
                for lane in lanes(mask) {
                    on |= u32::from((values[lane] != 0) != negated) << lane;
                }
                mask = on;
            }
            w.pc += 1;
            match &inst.op {
                Op::Branch { to, together } => {
                    let rest = w.active & !mask;
                    if *together && rest != 0 && mask != 0 {
                        return Err(self.error(
                            pc,
                            w.first + rest.trailing_zeros() as usize,
                            "does not take a branch that is said to be taken by all or none",
                        ));
                    }
                    if rest == 0 {
                        w.pc = *to;
                    } else if mask != 0 {
                        w.active = rest;
                        w.park(*to, mask);
                    }
                }
                Op::Exit => {
                    if let Some(lane) = lanes(mask).find(|lane| !w.copies[*lane].is_empty()) {
                        let m = "ends before the copies that it started";
                        return Err(self.error(pc, w.first + lane, m));
                    }
                    w.active &= !mask;
                    if w.active == 0 {
                        match w.waiting.pop() {
                            Some((pc, mask)) => (w.pc, w.active) = (pc, mask),
                            None => {
                                w.done = true;
                                return Ok(());
                            }
                        }
                    }
                }
                op @ (Op::Barrier | Op::BarrierOr { .. }) => {
                    if mask != w.active || !w.waiting.is_empty() {
                        return Err(self.error(
                            pc,
                            w.first + mask.trailing_zeros().min(31) as usize,
                            "is at a barrier that others of its warp are not at",
                        ));
                    }
                    if let Op::BarrierOr { dst, a } = op {
                        let a = self.src(w, pc, *a, mask)?;
                        w.vote = Some((*dst, lanes(mask).any(|i| a[i] != 0)));
                    }
                    w.at_barrier = true;
                    return Ok(());
                }
                _ if mask == 0 => {}
                _ => self.step(w, pc, inst, mask)?,
            }
        }
    }

    fn check_set(&self, w: &Warp, pc: u32, reg: R, mask: u32) -> Result<(), Error> {
        let missing = mask & !w.set[reg as usize];
        if missing == 0 {
            return Ok(());
        }
        let name = &self.entry.regs[reg as usize];
        let thread = w.first + missing.trailing_zeros() as usize;
        Err(self.error(pc, thread, &format!("uses {name}, which has no value yet")))
    }

    pub(crate) fn src(&self, w: &Warp, pc: u32, src: Src, mask: u32) -> Result<Lanes, Error> {
        match src {
            Src::Imm(v) => Ok([v; WARP]),
            Src::Reg(r) => {
                self.check_set(w, pc, r, mask)?;
                Ok(w.regs[r as usize])
            }
        }
    }

    fn step(&mut self, w: &mut Warp, pc: u32, inst: &Inst, mask: u32) -> Result<(), Error> {
        match &inst.op {
            Op::One { f, dst, a } => {
                let a = self.src(w, pc, *a, mask)?;
                w.put(*dst, mask, |i| f(a[i]));
            }
            Op::Two { f, dst, a, b } => {
                let (a, b) = (self.src(w, pc, *a, mask)?, self.src(w, pc, *b, mask)?);
                w.put(*dst, mask, |i| f(a[i], b[i]));
            }
            Op::Divide { f, dst, a, b } => {
                let (a, b) = (self.src(w, pc, *a, mask)?, self.src(w, pc, *b, mask)?);
                if let Some(i) = lanes(mask).find(|i| b[*i] == 0) {
                    return Err(self.error(pc, w.first + i, "divides an integer by zero"));
                }
                w.put(*dst, mask, |i| f(a[i], b[i]));
            }
            Op::Three { f, dst, a, b, c } => {
                let (a, b) = (self.src(w, pc, *a, mask)?, self.src(w, pc, *b, mask)?);
                let c = self.src(w, pc, *c, mask)?;
                w.put(*dst, mask, |i| f(a[i], b[i], c[i]));
            }
            Op::Setp { f, dst, a, b, with } => {
                let (a, b) = (self.src(w, pc, *a, mask)?, self.src(w, pc, *b, mask)?);
                match with {
                    None => w.put(*dst, mask, |i| u64::from(f(a[i], b[i]))),
                    Some((g, p)) => {
                        let p = self.src(w, pc, *p, mask)?;
                        w.put(*dst, mask, |i| g(u64::from(f(a[i], b[i])), p[i]));
                    }
                }
            }
            Op::Selp { dst, a, b, p } => {
                let (a, b) = (self.src(w, pc, *a, mask)?, self.src(w, pc, *b, mask)?);
                let p = self.src(w, pc, *p, mask)?;
                w.put(*dst, mask, |i| if p[i] != 0 { a[i] } else { b[i] });
            }
            Op::Special { dst, which, axis } => {
                let (launch, at, first) = (self.launch, self.at, w.first);
                let [bx, by, _] = launch.block.map(|n| n as usize);
                w.put(*dst, mask, |i| {
                    let thread = first + i;
                    let tid = [thread % bx, thread / bx % by, thread / bx / by];
                    match which {
                        Special::Tid => tid[*axis] as u64,
                        Special::Ntid => u64::from(launch.block[*axis]),
                        Special::Ctaid => u64::from(at[*axis]),
                        Special::Nctaid => u64::from(launch.grid[*axis]),
                        Special::Laneid => i as u64,
                    }
                });
            }
            Op::Pack { dst, parts, bits } => {
                let mut whole = [0; WARP];
                for (n, part) in parts.iter().enumerate() {
                    let part = self.src(w, pc, *part, mask)?;
                    for i in 0..WARP {
                        whole[i] |= part[i] << (bits * n as u32);
                    }
                }
                w.put(*dst, mask, |i| whole[i]);
            }
            Op::Unpack { dst, src, bits } => {
                let src = self.src(w, pc, *src, mask)?;
                for (n, dst) in dst.iter().enumerate() {
                    w.put(*dst, mask, |i| alu::truncate(*bits, src[i] >> (bits * n as u32)));
                }
            }
            Op::WarpBarrier { members } => {
                self.together(w, pc, mask, *members)?;
                w.epoch += 1;
            }
            Op::Shuffle { how, dst, a, b, c, members } => {
                self.together(w, pc, mask, *members)?;
                let a = self.src(w, pc, *a, mask)?;
                let (b, c) = (self.src(w, pc, *b, mask)?, self.src(w, pc, *c, mask)?);
                w.put(*dst, mask, |i| {
                    let from = shuffle_from(*how, i, b[i] as usize, c[i] as usize);
                    a[from]
                });
                let ok = lanes(mask)
                    .all(|i| mask >> shuffle_from(*how, i, b[i] as usize, c[i] as usize) & 1 != 0);
                if !ok {
                    return Err(self.error(pc, w.first, "shuffles from a lane that is not there"));
                }
            }
            Op::Mma { factor, d, a, b, c } => {
                self.together(w, pc, mask, Src::Imm(u64::from(u32::MAX)))?;
                let all = |regs: &[Src]| -> Result<Vec<Lanes>, Error> {
                    regs.iter().map(|r| self.src(w, pc, *r, mask)).collect()
                };
                let out = mma::run(*factor, &all(a)?, &all(b)?, &all(c)?);
                for (dst, values) in d.iter().zip(out) {
                    w.put(*dst, mask, |i| values[i]);
                }
            }
            Op::Copy { to, from, len, size } => {
                self.start_copies(w, pc, (*to, *from), (*len, *size), mask)?;
            }
            Op::CommitCopies => self.commit_copies(w, mask),
            Op::WaitForCopies { left } => self.wait_for_copies(w, *left, mask),
            Op::LoadMatrices { dst, from, turned } => {
                self.load_matrices(w, pc, (dst, *from, *turned), mask)?;
            }
            Op::Load { .. } | Op::Store { .. } => self.access(w, pc, &inst.op, mask)?,
            Op::Branch { .. } | Op::Exit | Op::Barrier | Op::BarrierOr { .. } => {}
        }
        Ok(())
    }

    /// Whether the threads that each one names, itself among them, are here.
    pub(crate) fn together(&self, w: &Warp, pc: u32, mask: u32, members: Src) -> Result<(), Error> {
        let members = self.src(w, pc, members, mask)?;
        let alone = lanes(mask).find(|lane| {
            let named = members[*lane] as u32;
            named & !mask != 0
                || named >> lane & 1 == 0
                || lanes(named).any(|other| members[other] as u32 != named)
        });
        let Some(lane) = alone else { return Ok(()) };
        Err(self.error(
            pc,
            w.first + lane,
            "is at an instruction for several threads without those it names",
        ))
    }

    fn access(&mut self, w: &mut Warp, pc: u32, op: &Op, mask: u32) -> Result<(), Error> {
        let (space, ty, base, offset, n) = match op {
            Op::Load { space, ty, dst, base, offset, .. } => {
                (*space, *ty, *base, *offset, dst.len())
            }
            Op::Store { space, ty, src, base, offset } => (*space, *ty, *base, *offset, src.len()),
            _ => return Ok(()),
        };
        let base = self.src(w, pc, base, mask)?;
        let size = (ty.bits() / 8) as usize;
        let len = size * n;
        if space == Space::Global {
            self.stats.global_accesses += 1;
            self.stats.wide_accesses += u64::from(len == 16);
        }
        let values: Vec<Lanes> = match op {
            Op::Store { src, .. } => {
                src.iter().map(|s| self.src(w, pc, *s, mask)).collect::<Result<_, _>>()?
            }
            _ => vec![],
        };
        for lane in lanes(mask) {
            let at = base[lane].wrapping_add(offset as u64);
            let thread = w.first + lane;
            if at % len as u64 != 0 {
                let m = format!("uses address {at:#x}, no multiple of {len}");
                return Err(self.error(pc, thread, &m));
            }
            let who = self.who(w, lane);
            let mut bytes = [0u8; 32];
            let done = match op {
                Op::Load { .. } => self.load(space, at, len, who, &mut bytes),
                _ => {
                    for (i, v) in values.iter().enumerate() {
                        bytes[i * size..(i + 1) * size]
                            .copy_from_slice(&v[lane].to_le_bytes()[..size]);
                    }
                    self.store(space, at, &bytes[..len], who)
                }
            };
            if let Err(message) = done {
                let m = format!("{message} (address {at:#x})");
                return Err(self.error(pc, thread, &m));
            }
            if let Op::Load { dst, extend, .. } = op {
                for (i, dst) in dst.iter().enumerate() {
                    let mut word = [0; 8];
                    word[..size].copy_from_slice(&bytes[i * size..(i + 1) * size]);
                    let mut v = u64::from_le_bytes(word);
                    if ty.is_signed() {
                        v = alu::truncate(*extend, alu::sign_extend(ty.bits(), v));
                    }
                    w.regs[*dst as usize][lane] = v;
                }
            }
        }
        if let Op::Load { dst, .. } = op {
            for dst in dst {
                w.set[*dst as usize] |= mask;
            }
        }
        Ok(())
    }

    fn load(
        &mut self,
        space: Space,
        at: u64,
        len: usize,
        who: Who,
        to: &mut [u8],
    ) -> Result<(), String> {
        match space {
            Space::Param => to[..len].copy_from_slice(&self.params[at as usize..at as usize + len]),
            Space::Shared => {
                let at = self.in_shared(at, len)?;
                to[..len].copy_from_slice(self.shared.load(at, len, who)?);
            }
            Space::Global => {
                let (region, at) = self.global.find(at, len)?;
                to[..len].copy_from_slice(region.load(at, len, who)?);
            }
        }
        Ok(())
    }

    fn store(&mut self, space: Space, at: u64, from: &[u8], who: Who) -> Result<(), String> {
        if space == Space::Shared {
            let at = self.in_shared(at, from.len())?;
            return self.shared.store(at, from, who);
        }
        let (region, at) = self.global.find(at, from.len())?;
        region.store(at, from, who)
    }

    pub(crate) fn in_shared(&self, at: u64, len: usize) -> Result<usize, String> {
        let size = self.shared.bytes.len();
        match usize::try_from(at).ok().filter(|at| at.checked_add(len).is_some_and(|e| e <= size)) {
            Some(at) => Ok(at),
            None => Err(format!("{len} bytes at {at} are outside {size} bytes of shared memory")),
        }
    }
}

/// The lane whose value `lane` gets; its own when that is out of range.
fn shuffle_from(how: Shuffle, lane: usize, b: usize, c: usize) -> usize {
    let (clamp, segment) = (c & 31, (c >> 8) & 31);
    let (min, max) = (lane & segment, (lane & segment) | (clamp & !segment));
    let b = b & 31;
    let (from, inside) = match how {
        Shuffle::Up => (lane.wrapping_sub(b), lane >= max + b),
        Shuffle::Down => (lane + b, lane + b <= max),
        Shuffle::Bfly => (lane ^ b, (lane ^ b) <= max),
        Shuffle::Idx => {
            let from = min | (b & !segment);
            (from, from <= max)
        }
    };
    if inside { from } else { lane }
}

impl Warp {
    pub(crate) fn put(&mut self, dst: R, mask: u32, f: impl Fn(usize) -> u64) {
        let out = &mut self.regs[dst as usize];
        if mask == u32::MAX {
            for (i, v) in out.iter_mut().enumerate() {
                *v = f(i);
            }
        } else {
            for i in lanes(mask) {
                out[i] = f(i);
            }
        }
        self.set[dst as usize] |= mask;
    }

    /// Leaves threads at `pc` until the others come by.
    fn park(&mut self, pc: u32, mask: u32) {
        if let Some(group) = self.waiting.iter_mut().find(|g| g.0 == pc) {
            group.1 |= mask;
            return;
        }
        let at = self.waiting.partition_point(|g| g.0 > pc);
        self.waiting.insert(at, (pc, mask));
    }
}
