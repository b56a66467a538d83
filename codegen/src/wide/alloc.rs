//! Machine registers for virtual ones: a linear scan.
//!
//! Each virtual register lives from its first definition to its last use; where a
//! loop uses what was defined before it, to the end of that loop. It has one place
//! all its life: a machine register, a slot of the frame, or, if it is a constant,
//! the pool. The encoder reads slots and constants as memory operands where the
//! instruction has one, and goes through scratch registers elsewhere.
//!
//! When there are too few registers, the one that is used least for how long it
//! lives goes to memory.

use super::lir::{Class, Func, Inst, Op, V};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Home {
    /// The machine register with this number in its class.
    Reg(u8),
    /// A slot of the frame.
    Slot(u32),
    /// A constant of the pool.
    Pool(u32),
    /// Never used.
    Nowhere,
}

/// The machine registers to choose from, by class, best first.
pub(super) struct Machine {
    pub general: &'static [u8],
    pub vector: &'static [u8],
    pub mask: &'static [u8],
    /// Where the parameters arrive, and then stay.
    pub params: [u8; 3],
}

pub(super) struct Allocation {
    pub homes: Vec<Home>,
    /// The class of each slot.
    pub slots: Vec<Class>,
}

#[derive(Clone)]
struct Interval {
    reg: V,
    /// Twice the position; the result of an instruction is one later than its
    /// operands.
    start: usize,
    end: usize,
    weight: f64,
    /// Whose register it would like to have.
    hints: Vec<V>,
    fixed: Option<u8>,
    pool: Option<u32>,
}

pub(super) fn allocate(func: &Func, machine: &Machine) -> Allocation {
    let mut intervals = intervals(func, machine);
    intervals.sort_by_key(|i| (i.start, i.reg));
    let mut out = Allocation { homes: vec![Home::Nowhere; func.classes.len()], slots: vec![] };
    for class in [Class::General, Class::Vector, Class::Mask] {
        let regs = match class {
            Class::General => machine.general,
            Class::Vector => machine.vector,
            Class::Mask => machine.mask,
        };
        let of: Vec<&Interval> =
            intervals.iter().filter(|i| func.classes[i.reg.0 as usize] == class).collect();
        scan(&of, regs, class, &mut out);
    }
    out
}

fn scan(intervals: &[&Interval], regs: &[u8], class: Class, out: &mut Allocation) {
    let mut active: Vec<(&Interval, u8)> = vec![];
    // Slots whose last user is gone, with the place where that was.
    let mut slots: Vec<(u32, usize)> = vec![];
    for now in intervals {
        active.retain(|(i, _)| i.end >= now.start);
        let free: Vec<u8> =
            regs.iter().copied().filter(|r| active.iter().all(|(_, a)| a != r)).collect();
        let hinted = now.fixed.filter(|r| free.contains(r)).or_else(|| {
            now.hints.iter().find_map(|h| match out.homes[h.0 as usize] {
                Home::Reg(r) if free.contains(&r) => Some(r),
                _ => None,
            })
        });
        let mut chosen = hinted.or(free.first().copied());
        let mut evicted = None;
        if chosen.is_none() {
            let least = active
                .iter()
                .enumerate()
                .filter(|(_, (i, _))| i.weight < now.weight)
                .min_by(|(_, (a, _)), (_, (b, _))| a.weight.total_cmp(&b.weight));
            if let Some((at, _)) = least {
                let (interval, reg) = active.swap_remove(at);
                evicted = Some(interval);
                chosen = Some(reg);
            }
        }
        match chosen {
            Some(reg) => {
                out.homes[now.reg.0 as usize] = Home::Reg(reg);
                active.push((now, reg));
            }
            None => evicted = Some(now),
        }
        if let Some(interval) = evicted {
            out.homes[interval.reg.0 as usize] = match interval.pool {
                Some(at) => Home::Pool(at),
                None => Home::Slot(slot(interval, class, &mut slots, &mut out.slots)),
            };
        }
    }
}

/// A slot that nobody else uses while the interval lives.
fn slot(
    interval: &Interval,
    class: Class,
    free: &mut Vec<(u32, usize)>,
    slots: &mut Vec<Class>,
) -> u32 {
    if let Some(found) = free.iter_mut().find(|(_, until)| *until < interval.start) {
        found.1 = interval.end;
        return found.0;
    }
    slots.push(class);
    let new = slots.len() as u32 - 1;
    free.push((new, interval.end));
    new
}

fn intervals(func: &Func, machine: &Machine) -> Vec<Interval> {
    let ends = loop_ends(&func.code);
    let mut of: Vec<Option<Interval>> = vec![None; func.classes.len()];
    // The loops around the current place: start and end.
    let mut open: Vec<(usize, usize)> = vec![];
    for (at, inst) in func.code.iter().enumerate() {
        match inst.op {
            Op::Begin => open.push((at, ends[at])),
            Op::End => {
                open.pop();
            }
            _ => {}
        }
        let depth = 8f64.powi(open.len().min(6) as i32);
        let touch = |interval: &mut Interval, position: usize| {
            interval.end = interval.end.max(position);
            interval.weight += depth;
            // Outermost loop that it was defined before.
            if let Some((_, end)) = open.iter().find(|(start, _)| 2 * start > interval.start) {
                interval.end = interval.end.max(2 * end);
            }
        };
        for v in inst.reads() {
            if let Some(interval) = &mut of[v.0 as usize] {
                touch(interval, 2 * at);
            }
        }
        let Some(dst) = inst.dst else { continue };
        let position = if inst.early { 2 * at } else { 2 * at + 1 };
        match &mut of[dst.0 as usize] {
            Some(interval) => touch(interval, position),
            none => {
                let fixed = match inst.op {
                    Op::Param(i) => Some(machine.params[usize::from(i)]),
                    _ => None,
                };
                let pool = match inst.op {
                    Op::Const(at) => Some(at),
                    _ => None,
                };
                *none = Some(Interval {
                    reg: dst,
                    start: position,
                    end: position,
                    weight: depth,
                    hints: hints(inst),
                    fixed,
                    pool,
                });
            }
        }
    }
    let mut out: Vec<Interval> = of.into_iter().flatten().collect();
    for interval in &mut out {
        let length = (interval.end - interval.start + 8) as f64;
        // A constant costs nothing to load again.
        let kind = if interval.pool.is_some() {
            0.25
        } else if func.precious.contains(&interval.reg) {
            8.0
        } else {
            1.0
        };
        interval.weight *= kind / length;
        if interval.fixed.is_some() {
            interval.weight = f64::INFINITY;
        }
    }
    out
}

/// Operands whose register suits the result.
fn hints(inst: &Inst) -> Vec<V> {
    match inst.op {
        // The sum first: it takes the product to itself.
        Op::Fma { .. } => [inst.src[2], inst.src[0], inst.src[1]].into_iter().flatten().collect(),
        _ => inst.src.iter().copied().flatten().take(2).collect(),
    }
}

/// For each `Begin`, the place of its `End`.
fn loop_ends(code: &[Inst]) -> Vec<usize> {
    let mut ends = vec![0; code.len()];
    let mut open = vec![];
    for (at, inst) in code.iter().enumerate() {
        match inst.op {
            Op::Begin => open.push(at),
            Op::End => {
                if let Some(begin) = open.pop() {
                    ends[begin] = at;
                }
            }
            _ => {}
        }
    }
    ends
}
