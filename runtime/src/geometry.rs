//! Checks of a plan that need the values of run-time dims.
//!
//! [`check`] runs whenever an entry's dims change, before anything is executed.
//! After it, every step that the runtime itself carries out stays inside its
//! buffers. A failure is a bug in the compiler, not a user's mistake.

use crate::exec::Context;
use crate::model::Model;
use tfc_abi::plan::{Buffer, Call, Conv, Entry, Home, MatMul, Port, QueueAction, QueueStep, Step};
use tfc_abi::routine::MOST;

type Check = Result<(), String>;

pub(crate) fn check(model: &Model, entry: usize, ctx: &Context) -> Check {
    let entry = &model.plan.entries[entry];
    let g = Geometry { model, entry, ctx };
    for (i, b) in entry.buffers.iter().enumerate() {
        g.buffer(i, b).map_err(|e| format!("buffer {i}: {e}"))?;
    }
    entry.params.iter().chain(&entry.results).try_for_each(|p| g.port(p))?;
    g.steps(&entry.steps)
}

struct Geometry<'a> {
    model: &'a Model,
    entry: &'a Entry,
    ctx: &'a Context,
}

impl Geometry<'_> {
    fn size(&self, e: u32) -> Result<usize, String> {
        let v = self.ctx.values[e as usize];
        usize::try_from(v).map_err(|_| format!("a size is {v}"))
    }

    fn len(&self, buf: u32) -> usize {
        self.ctx.lens[buf as usize]
    }

    fn product(&self, sizes: &[usize]) -> Result<usize, String> {
        sizes.iter().try_fold(1usize, |n, s| n.checked_mul(*s)).ok_or("a size overflows".into())
    }

    fn buffer(&self, i: usize, b: &Buffer) -> Check {
        let bytes = self.ctx.lens[i].checked_mul(b.dtype.size()).ok_or("its size overflows")?;
        let shape = b.shape.iter().map(|e| self.size(*e)).collect::<Result<Vec<_>, _>>()?;
        if self.product(&shape)? != self.ctx.lens[i] {
            return Err("its length is not its shape's".into());
        }
        let room = match b.home {
            Home::Param(_) | Home::Result(_) => return Ok(()),
            Home::Var(v) => self.model.state.byte_len(v as usize),
            Home::Const(c) => self.model.plan.consts[c as usize].len as usize,
            Home::Slot(s, count) => self.ctx.slot_len(self.entry, s, count),
        };
        if bytes <= room { Ok(()) } else { Err(format!("{bytes} bytes in a place for {room}")) }
    }

    fn port(&self, p: &Port) -> Check {
        let shape = p.shape.iter().map(|e| self.size(*e)).collect::<Result<Vec<_>, _>>()?;
        if self.product(&shape)? == self.len(p.buf) {
            Ok(())
        } else {
            Err(format!("`{}` and its buffer differ in size", p.name))
        }
    }

    fn steps(&self, steps: &[Step]) -> Check {
        steps.iter().try_for_each(|s| self.step(s))
    }

    fn step(&self, step: &Step) -> Check {
        match step {
            Step::Launch(l) => {
                self.size(l.extent)?;
                self.size(l.cost).map(drop)
            }
            Step::MatMul(m) => self.matmul(m),
            Step::Conv(c) => self.conv(c),
            Step::Copy { src, dst } => {
                if self.len(*src) == self.len(*dst) {
                    Ok(())
                } else {
                    Err("a copy changes the size".into())
                }
            }
            Step::Call(c) => self.call(c),
            Step::Print { .. }
            | Step::Assert { .. }
            | Step::CheckIndex(_)
            | Step::CheckFinite(_)
            | Step::Exchange(_)
            | Step::Send(_)
            | Step::Recv(_)
            | Step::Save { .. }
            | Step::Restore { .. } => Ok(()),
            Step::Push { stack, src: buf } | Step::Pop { stack, dst: buf, .. } => {
                let buffer = &self.entry.buffers[*buf as usize];
                let bytes = self.len(*buf) * buffer.dtype.size();
                match self.ctx.stacks.get(*stack as usize) {
                    Some(s) if s.device() != buffer.device => {
                        Err("a stack is on two devices".into())
                    }
                    Some(s) if s.item() == bytes => Ok(()),
                    _ => Err("a stack holds values of two sizes".into()),
                }
            }
            Step::If { then, otherwise, .. } => {
                self.steps(then)?;
                self.steps(otherwise)
            }
            Step::While { head, body, .. } => {
                self.steps(head)?;
                self.steps(body)
            }
            Step::Queue(s) => self.queue(s),
        }
    }

    /// Buffers have the sizes that the routine's signature says.
    fn call(&self, c: &Call) -> Check {
        for (buf, wanted) in c.bufs.iter().zip(c.func.signature().bufs) {
            let Some(sizes) = wanted.sizes else { continue };
            let mut shape = [1; MOST];
            for (size, i) in shape.iter_mut().zip(sizes) {
                *size = self.size(c.ints[*i])?;
            }
            self.fits(*buf, &shape[..sizes.len()])?;
        }
        Ok(())
    }

    /// Buffers hold exactly the elements that move, and at least one moves.
    fn queue(&self, s: &QueueStep) -> Check {
        let parts = &self.model.plan.queues[s.queue as usize].parts;
        let count = self.size(s.count)?;
        match s.action {
            QueueAction::Close => Ok(()),
            QueueAction::Size => match s.bufs[..] {
                [b] if self.len(b) == 1 => Ok(()),
                _ => Err("a queue's size is not one number".into()),
            },
            _ => {
                for (b, part) in s.bufs.iter().zip(parts) {
                    let one = part.len().ok_or("an element is too large")?;
                    if self.product(&[count, one])? != self.len(*b) {
                        return Err(format!("buffer {b} does not hold {count} elements"));
                    }
                }
                Ok(())
            }
        }
    }

    fn fits(&self, buf: u32, sizes: &[usize]) -> Check {
        if self.product(sizes)? <= self.len(buf) {
            Ok(())
        } else {
            Err(format!("buffer {buf} is too small for {sizes:?}"))
        }
    }

    /// `batch` matrices of `elements`, `stride` apart, are inside `buf`.
    fn batched(&self, buf: u32, batch: usize, stride: usize, elements: usize) -> Check {
        if batch == 0 || elements == 0 {
            return Ok(());
        }
        let last = self.product(&[batch - 1, stride])?;
        let end = last.checked_add(elements).ok_or("a size overflows")?;
        self.fits(buf, &[end])
    }

    fn matmul(&self, s: &MatMul) -> Check {
        let [m, n, k] = [self.size(s.m)?, self.size(s.n)?, self.size(s.k)?];
        let batch = self.size(s.batch)?;
        let (mk, kn, mn) = (self.product(&[m, k])?, self.product(&[k, n])?, self.product(&[m, n])?);
        self.batched(s.a, batch, self.size(s.a_stride)?, mk)?;
        self.batched(s.b, batch, self.size(s.b_stride)?, kn)?;
        self.batched(s.c, batch, mn, mn)
    }

    fn conv(&self, s: &Conv) -> Check {
        let batch = self.size(s.batch)?;
        let [ci, co] = [self.size(s.in_channels)?, self.size(s.out_channels)?];
        let [ih, iw] = [self.size(s.in_h)?, self.size(s.in_w)?];
        let [oh, ow] = [self.size(s.out_h)?, self.size(s.out_w)?];
        let groups = s.groups as usize;
        if ci % groups != 0 || co % groups != 0 {
            return Err("a convolution's channels do not divide into its groups".into());
        }
        let image = [batch, ci, ih, iw];
        let filter = [co, ci / groups, s.kernel[0] as usize, s.kernel[1] as usize];
        let output = [batch, co, oh, ow];
        use tfc_abi::plan::ConvKind::*;
        let (lhs, rhs, out) = match s.kind {
            Forward => (image, filter, output),
            GradInput => (output, filter, image),
            GradFilter => (image, output, filter),
        };
        self.fits(s.lhs, &lhs)?;
        self.fits(s.rhs, &rhs)?;
        self.fits(s.out, &out)
    }
}
