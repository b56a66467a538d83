//! What is known of the addresses kernels are called with.
//!
//! Arguments and results are where the caller has them; whatever the program owns
//! is aligned. A kernel's buffer is aligned if it is so in every step that runs it.

use tfc_abi::BUFFER_ALIGN;
use tfc_abi::plan::{BufId, Entry, Epilogue, Home, Step};
use tfc_ir::kernel::Kernel;

pub(crate) fn align(kernels: &mut [Kernel], entries: &[Entry]) {
    for buf in kernels.iter_mut().flat_map(|k| &mut k.bufs) {
        buf.align = BUFFER_ALIGN as u32;
    }
    for entry in entries {
        steps(&entry.steps, entry, kernels);
    }
}

fn steps(list: &[Step], entry: &Entry, kernels: &mut [Kernel]) {
    for step in list {
        match step {
            Step::Launch(l) => call(l.kernel, &l.bufs, entry, kernels),
            Step::MatMul(m) => epilogue(&m.epilogue, entry, kernels),
            Step::Conv(c) => epilogue(&c.epilogue, entry, kernels),
            Step::If { then, otherwise, .. } => {
                steps(then, entry, kernels);
                steps(otherwise, entry, kernels);
            }
            Step::While { head, body, .. } => {
                steps(head, entry, kernels);
                steps(body, entry, kernels);
            }
            _ => {}
        }
    }
}

fn epilogue(e: &Option<Epilogue>, entry: &Entry, kernels: &mut [Kernel]) {
    if let Some(e) = e {
        call(e.kernel, &e.bufs, entry, kernels);
    }
}

fn call(kernel: u32, bufs: &[BufId], entry: &Entry, kernels: &mut [Kernel]) {
    for (buf, id) in kernels[kernel as usize].bufs.iter_mut().zip(bufs) {
        let home = entry.buffers[*id as usize].home;
        if matches!(home, Home::Param(_) | Home::Result(_)) {
            buf.align = buf.dtype.size() as u32;
        }
    }
}
