//! Local buffers kept in the memory of a result.

use super::{Ix, Kernel, Local, Stmt};

impl Local {
    /// The address in the home's buffer of element `at`.
    pub fn address(&self, at: &Ix) -> Ix {
        self.home.base.plus(&at.scale(&self.home.stride))
    }
}

/// Puts every local buffer where its [`super::Home`] says: for targets that have no
/// better memory at hand, and keep a row in cache anyway.
pub fn place(kernel: &mut Kernel) {
    let locals = std::mem::take(&mut kernel.locals);
    if !locals.is_empty() {
        place_in(&mut kernel.body, &locals, kernel.bufs.len() as u32);
    }
}

fn place_in(stmts: &mut [Stmt], locals: &[Local], first: u32) {
    for stmt in stmts {
        match stmt {
            Stmt::Load { buf, at, .. } | Stmt::Store { buf, at, .. } if *buf >= first => {
                let local = &locals[(*buf - first) as usize];
                *at = local.address(at);
                *buf = local.home.buf;
            }
            Stmt::Loop(l) => place_in(&mut l.body, locals, first),
            _ => {}
        }
    }
}
