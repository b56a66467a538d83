//! What a kernel does at given sizes: operations of floats, and elements that it loads
//! and stores. Counted, not measured; what a select drops is counted too.

use crate::{Kernel, ScalarOp, ScalarType, Stmt};

/// What one launch of a kernel does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Work {
    /// Operations on f32, a multiply-add being two. The narrower floats are computed
    /// with as f32.
    pub f32: u64,
    pub f64: u64,
    /// Elements of each buffer that are loaded and stored, none of them twice.
    pub loads: Vec<u64>,
    pub stores: Vec<u64>,
}

impl Kernel {
    /// The work of a launch with these dims, in the order of [`Kernel::dims`]; none if
    /// a size cannot be worked out. Elementary functions count as what they are written
    /// with, if they have been expanded.
    pub fn work(&self, dims: &[i64]) -> Option<Work> {
        let zeros = vec![0; self.bufs.len()];
        let mut work = Work { f32: 0, f64: 0, loads: zeros.clone(), stores: zeros };
        let lookup = |name: &str| {
            let at = self.dims.iter().position(|d| &**d == name)?;
            dims.get(at).copied()
        };
        self.count(&self.body, 1, &lookup, &mut work)?;
        for (i, buf) in self.bufs.iter().enumerate() {
            let len = u64::try_from(buf.len.eval(&lookup)?).unwrap_or(0);
            work.loads[i] = work.loads[i].min(len);
            work.stores[i] = work.stores[i].min(len);
        }
        Some(work)
    }

    fn count(
        &self,
        stmts: &[Stmt],
        times: u64,
        lookup: &dyn Fn(&str) -> Option<i64>,
        work: &mut Work,
    ) -> Option<()> {
        for stmt in stmts {
            match stmt {
                Stmt::Const { .. } | Stmt::Index { .. } => {}
                Stmt::Op { dst, op, args } => {
                    // A comparison is of what it compares.
                    let ty = args.last().map_or(self.regs[*dst], |a| self.regs[*a]);
                    let n = times.saturating_mul(operations(*op));
                    match ty {
                        ScalarType::F32 => work.f32 = work.f32.saturating_add(n),
                        ScalarType::F64 => work.f64 = work.f64.saturating_add(n),
                        ScalarType::I32 | ScalarType::I64 | ScalarType::Bool => {}
                    }
                }
                // Local buffers stay where they are made.
                Stmt::Load { buf, .. } => add(&mut work.loads, *buf, times),
                Stmt::Store { buf, .. } => add(&mut work.stores, *buf, times),
                Stmt::Loop(l) => {
                    let extent = u64::try_from(l.extent.eval(lookup)?).unwrap_or(0);
                    self.count(&l.body, times.saturating_mul(extent), lookup, work)?;
                }
            }
        }
        Some(())
    }
}

fn add(counts: &mut [u64], buf: u32, times: u64) {
    if let Some(count) = counts.get_mut(buf as usize) {
        *count = count.saturating_add(times);
    }
}

/// Operations of floats, as data sheets count them; moving bits is none.
fn operations(op: ScalarOp) -> u64 {
    use ScalarOp::*;
    match op {
        Fma => 2,
        Select | Bitcast | Convert | RoundF16 | RoundBF16 | WrapI8 | WrapU8 => 0,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Dim, Ix, KernelBuf, Loop, LoopKind, LoopVar};

    #[test]
    fn elements_are_counted_once_and_operations_each_time() {
        let mut regs = cranelift_entity::PrimaryMap::new();
        let [a, b, c] = std::array::from_fn(|_| regs.push(ScalarType::F32));
        let i = LoopVar::from_u32(0);
        let n = Dim::sym("N");
        let body = vec![
            Stmt::Load { dst: a, buf: 1, at: Ix::var(i) },
            // One number for all.
            Stmt::Load { dst: b, buf: 2, at: Ix::constant(0) },
            Stmt::Op { dst: c, op: ScalarOp::Fma, args: vec![a, a, b] },
            Stmt::Store { buf: 0, at: Ix::var(i), value: c },
        ];
        let kind = LoopKind::Parallel;
        let l = Loop { var: i, extent: n.clone(), kind, ranged: true, carried: vec![], body };
        let kernel = Kernel {
            name: "k".into(),
            bufs: vec![
                KernelBuf::new(DType::F32, n.clone(), true),
                KernelBuf::new(DType::F32, n, false),
                KernelBuf::new(DType::F32, Dim::constant(1), false),
            ],
            locals: vec![],
            dims: vec!["N".into()],
            regs,
            loops: 1,
            body: vec![Stmt::Loop(l)],
        };
        let work = kernel.work(&[10]).expect("its sizes are known");
        assert_eq!(work, Work { f32: 20, f64: 0, loads: vec![0, 10, 1], stores: vec![10, 0, 0] });
        assert_eq!(kernel.work(&[]), None);
    }
}
