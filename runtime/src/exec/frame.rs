//! Steps that compute: launches, contractions, routines, copies.
//!
//! They read the context and write buffers only, so that several may run at the
//! same time.

use super::Context;
use super::schedule::{Arguments, StepInfo};
use crate::calls;
use crate::conv::ConvArgs;
use crate::device::{KernelCall, Range};
use crate::error::{Error, Result};
use crate::gemm::MatMulArgs;
use crate::gemm::prepack::Stays;
use crate::model::Model;
use std::sync::atomic::Ordering;
use tfc_abi::plan::{Entry, Home, Step};

/// Whether [`Frame::step`] carries it out.
pub(super) fn computes(step: &Step) -> bool {
    matches!(
        step,
        Step::Launch(_) | Step::MatMul(_) | Step::Conv(_) | Step::Copy { .. } | Step::Call(_)
    )
}

/// What such steps see of a call.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    model: &'a Model,
    entry: &'a Entry,
    values: &'a [i64],
    ptrs: &'a [*mut u8],
    lens: &'a [usize],
    arguments: &'a Arguments,
    /// Variables that nobody writes before their last use as a right operand.
    steady: &'a [u32],
}

// SAFETY: steps that run at the same time touch different bytes, unless they only
// read (the plan is checked for that).
unsafe impl Sync for Frame<'_> {}

impl<'a> Frame<'a> {
    #[inline]
    pub fn new(
        model: &'a Model,
        entry: &'a Entry,
        ctx: &'a Context,
        steady: &'a [u32],
    ) -> Frame<'a> {
        Frame {
            model,
            entry,
            values: &ctx.values,
            ptrs: &ctx.ptrs,
            lens: &ctx.lens,
            arguments: &ctx.arguments,
            steady,
        }
    }

    /// A buffer as something that stays the same until it is written: a constant,
    /// or a variable.
    fn stays(&self, buf: u32) -> Option<Stays<'a>> {
        let (tensor, version) = match self.entry.buffers[buf as usize].home {
            Home::Const(c) => (u64::from(c) << 1, 0),
            Home::Var(v) if self.steady.binary_search(&v).is_ok() => {
                (u64::from(v) << 1 | 1, self.model.state.version(v as usize))
            }
            _ => return None,
        };
        Some(Stays { cache: &self.model.packs, tensor, version })
    }

    fn size(&self, e: u32) -> usize {
        // `geometry` refused negative sizes.
        self.values[e as usize] as usize
    }

    fn ptr(&self, buf: u32) -> *mut u8 {
        self.ptrs[buf as usize]
    }

    fn byte_len(&self, buf: u32) -> usize {
        self.lens[buf as usize] * self.entry.buffers[buf as usize].dtype.size()
    }

    /// Fills in the buffers of a step's kernel.
    #[inline]
    fn arguments(&self, kernel: u32, bufs: &[u32], info: &StepInfo) -> KernelCall {
        // Each step has its own part of these.
        let room = &self.arguments.bufs[info.bufs_at as usize..][..bufs.len()];
        for (place, b) in room.iter().zip(bufs) {
            place.store(self.ptrs[*b as usize], Ordering::Relaxed);
        }
        let dims = self.arguments.ints[info.ints_at as usize..].as_ptr();
        // An `AtomicPtr` has the layout of a pointer, and nobody stores there
        // before the step is done.
        KernelCall { kernel, bufs: room.as_ptr().cast(), dims }
    }

    #[inline]
    pub fn step(&self, step: &Step, info: &StepInfo) -> Result<()> {
        let device = &self.model.cpu;
        match step {
            Step::Launch(l) => {
                let call = self.arguments(l.kernel, &l.bufs, info);
                let extent = self.size(l.extent);
                let range = Range { extent, work: info.work, splits: l.splits };
                // SAFETY: the compiler made the kernel for these arguments, and
                // `geometry` checked the buffers.
                unsafe { device.launch(&call, range) }
            }
            Step::MatMul(m) => {
                let args = MatMulArgs {
                    dtype: m.dtype,
                    a: self.ptr(m.a),
                    b: self.ptr(m.b),
                    c: self.ptr(m.c),
                    m: self.size(m.m),
                    n: self.size(m.n),
                    k: self.size(m.k),
                    batch: self.size(m.batch),
                    a_stride: self.size(m.a_stride),
                    b_stride: self.size(m.b_stride),
                    trans_a: m.trans_a,
                    trans_b: m.trans_b,
                    b_stays: self.stays(m.b),
                };
                let epilogue = m.epilogue.as_ref();
                let epilogue = epilogue.map(|e| self.arguments(e.kernel, &e.bufs, info));
                // SAFETY: `geometry` checked that the operands are inside their
                // buffers.
                unsafe { device.matmul(&args, epilogue.as_ref()) }
            }
            Step::Conv(c) => {
                let args = ConvArgs {
                    plain: self.model.plan.strict,
                    rhs_stays: self.stays(c.rhs),
                    ..ConvArgs::new(c, |e| self.size(e), |b| self.ptr(b))
                };
                let epilogue = c.epilogue.as_ref();
                let epilogue = epilogue.map(|e| self.arguments(e.kernel, &e.bufs, info));
                // SAFETY: as for the matrix product.
                unsafe { device.conv(&args, epilogue.as_ref()) }
            }
            Step::Copy { src, dst } => {
                let bytes = self.byte_len(*src);
                // SAFETY: both buffers have that many bytes; they may be the same.
                unsafe { device.copy(self.ptr(*src), self.ptr(*dst), bytes) }
            }
            Step::Call(c) => {
                let dtype = |b: u32| self.entry.buffers[b as usize].dtype;
                let mut args = calls::Args::of(self.byte_len(c.bufs[0]));
                for (arg, b) in args.bufs.iter_mut().zip(&c.bufs) {
                    *arg = (self.ptr(*b), dtype(*b));
                }
                for (int, e) in args.ints.iter_mut().zip(&c.ints) {
                    *int = self.size(*e);
                }
                // SAFETY: `geometry` checked the sizes of all operands.
                unsafe { device.call(c.func, &args) }
            }
            _ => Err(Error::bug("a step that computes nothing among those that do")),
        }
    }
}
