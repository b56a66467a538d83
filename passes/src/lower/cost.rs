//! What a kernel costs, for deciding how to cut it up among threads.

use tfc_ir::Dim;

/// Cost of one iteration of the ranged loop, and whether there is one.
pub(crate) fn kernel_cost(kernel: &tfc_ir::kernel::Kernel) -> (Dim, bool) {
    use tfc_ir::kernel::Stmt;
    for s in &kernel.body {
        if let Stmt::Loop(l) = s
            && l.ranged
        {
            let total = body_cost(&l.body, l.mode == tfc_ir::kernel::LoopMode::Vector);
            return ((total + Dim::constant(7)).floor_div(8), true);
        }
    }
    (Dim::constant(0), false)
}

/// In eighths of a nanosecond, very roughly: vector instructions do four
/// elements each.
fn body_cost(stmts: &[tfc_ir::kernel::Stmt], vector: bool) -> Dim {
    use tfc_ir::kernel::{LoopMode, Stmt};
    let mut own = 0i64;
    let mut total = Dim::constant(0);
    for s in stmts {
        match s {
            Stmt::Const { .. } => {}
            Stmt::Op { op, .. } => own += i64::from(op.cost()),
            Stmt::Index { .. } => own += 1,
            Stmt::Load { .. } | Stmt::Store { .. } => own += 1,
            Stmt::Loop(l) => {
                let inner = body_cost(&l.body, vector || l.mode == LoopMode::Vector);
                total = total + l.extent.clone() * inner;
            }
        }
    }
    total + Dim::constant(if vector { own } else { own * 4 })
}
