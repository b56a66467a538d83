//! What a kernel costs, for deciding how to cut it up among threads.

use tfc_ir::Dim;
use tfc_ir::kernel::order::runs_across;
use tfc_ir::kernel::{Kernel, Loop, Stmt};

/// Cost of one iteration of the ranged loop, and whether there is one; if not, of
/// all of the kernel.
pub(crate) fn kernel_cost(kernel: &Kernel) -> (Dim, bool) {
    for s in &kernel.body {
        if let Stmt::Loop(l) = s
            && l.ranged
        {
            let total = body_cost(&l.body, side_by_side(kernel, l), kernel);
            return ((total + Dim::constant(7)).floor_div(8), true);
        }
    }
    ((body_cost(&kernel.body, false, kernel) + Dim::constant(7)).floor_div(8), false)
}

/// Whether several iterations of a loop cost little more than one: those of the
/// innermost free loops, or of the loop around them that memory is walked along.
fn side_by_side(kernel: &Kernel, l: &Loop) -> bool {
    l.kind.is_free() && l.is_leaf() || runs_across(kernel, l)
}

/// In eighths of a nanosecond, very roughly: iterations side by side go four at a
/// time.
fn body_cost(stmts: &[Stmt], vector: bool, kernel: &Kernel) -> Dim {
    let mut own = 0i64;
    let mut total = Dim::constant(0);
    for s in stmts {
        match s {
            Stmt::Const { .. } => {}
            Stmt::Op { op, .. } => own += i64::from(op.cost()),
            Stmt::Index { .. } => own += 1,
            Stmt::Load { .. } | Stmt::Store { .. } => own += 1,
            Stmt::Loop(l) => {
                let inner = body_cost(&l.body, vector || side_by_side(kernel, l), kernel);
                total = total + l.extent.clone() * inner;
            }
        }
    }
    total + Dim::constant(if vector { own } else { own * 4 })
}
