//! Rows that are passed over several times: the last pass asks for the next row.
//!
//! The first pass over a row waits for memory, which the CPU's own prefetching does not
//! help: it stops at the end of a page, and rows are often a page. The last pass, which
//! finds all it needs in cache, has time to ask for what the next row begins with.

use super::Select;
use super::lir::{Inst, Op};
use tfc_kernel::{Ix, Kernel, Loop, LoopVar, Stmt};

/// Elements of a row: fewer are no wait, and more would displace the row itself.
const ROW: std::ops::RangeInclusive<i64> = 256..=8192;
/// Bytes of a cache line.
const LINE: usize = 64;

/// What a pass asks for: an element of a buffer.
#[derive(Clone)]
pub(super) struct Ahead {
    buf: u32,
    at: Ix,
}

/// The last pass in the body of `l`, and what it asks for of the next iteration.
pub(super) fn of(kernel: &Kernel, l: &Loop) -> Option<(LoopVar, Vec<Ahead>)> {
    let passes: Vec<&Loop> = l
        .body
        .iter()
        .filter_map(|stmt| match stmt {
            Stmt::Loop(inner) => Some(inner),
            _ => None,
        })
        .collect();
    let [first, .., last] = passes[..] else { return None };
    let rows = passes.iter().all(|p| p.extent.as_const().is_some_and(|n| ROW.contains(&n)));
    if !rows {
        return None;
    }
    let mut out: Vec<Ahead> = vec![];
    let mut next = |pass: &Loop, buf: u32, at: &Ix| {
        let row = at.stride(l.var);
        let apart = row.as_const().is_some_and(|r| r > 0) && at.regs.is_empty();
        if !apart || at.stride(pass.var).as_const() != Some(1) {
            return;
        }
        let mut at = at.clone();
        for (var, _) in at.terms.iter_mut().filter(|(var, _)| *var == pass.var) {
            *var = last.var;
        }
        at.offset = at.offset.clone() + row;
        let known = out.iter().any(|o| o.buf == buf && o.at == at);
        if !known && kernel.bufs.get(buf as usize).is_some() {
            out.push(Ahead { buf, at });
        }
    };
    for stmt in &first.body {
        if let Stmt::Load { buf, at, .. } = stmt {
            next(first, *buf, at);
        }
    }
    (!out.is_empty()).then_some((last.var, out))
}

impl Select<'_> {
    /// Asks for what the next row needs, beside `unroll` vectors of this one.
    pub(super) fn ask(&mut self, ahead: &[Ahead], unroll: usize) {
        for a in ahead {
            let size = self.kernel.bufs[a.buf as usize].dtype.size();
            let mem = self.address(a.buf, &a.at, size as i64);
            for byte in (0..unroll * self.lanes() * size).step_by(LINE) {
                let mem = super::lir::Mem { disp: mem.disp + byte as i32, ..mem };
                self.push(Inst { mem: Some(mem), ..Inst::new(Op::Prefetch) });
            }
        }
    }
}
