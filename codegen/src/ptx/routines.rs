//! The runtime's routines that a GPU needs kernels for: rows added or stored at indices,
//! in order.
//!
//! Each column is one thread's, which goes through the rows of the updates in order: so
//! rows that meet are added in the order the CPU adds them. Indices out of range are left
//! out: where they are errors they were checked. There must be rows to write to.

use std::sync::Arc;
use tfc_abi::plan::Func;
use tfc_kernel::{
    DType, Dim, Ix, Kernel, KernelBuf, Loop, LoopKind, LoopVar, Scalar, ScalarOp, ScalarType, Stmt,
};

/// One if the destination of a routine has rows, else zero: a factor of the blocks of its
/// launch, so that nothing is stored to a tensor without elements.
pub fn any_rows() -> Dim {
    Dim::sym("rows").ceil_div(1 << 40)
}

/// The kernel of a routine on elements and indices of these types. Its buffers are the
/// routine's; its dims are its numbers: `rows` of the destination, `ids`, the `length` of a row, and
/// for sums whether ids out of range are left out.
/// None for the others: a driver fills memory, and the rest stays on the CPU.
pub fn routine(func: Func, dtype: DType, ids: DType) -> Option<Kernel> {
    let add = match func {
        Func::ScatterAddRows => true,
        Func::ScatterSetRows => false,
        _ => return None,
    };
    let [rows, count, length] = ["rows", "ids", "length"].map(Dim::sym);
    let ty = ScalarType::of(dtype);
    let mut regs = cranelift_entity::PrimaryMap::new();
    let id = regs.push(ScalarType::of(ids));
    let [zero, last, row, low, place] = std::array::from_fn(|_| regs.push(ScalarType::I64));
    let exists = regs.push(ScalarType::Bool);
    let [old, update, sum, new] = std::array::from_fn(|_| regs.push(ty));
    let (column, i) = (LoopVar::from_u32(0), LoopVar::from_u32(1));
    let op = |dst, op, args: &[_]| Stmt::Op { dst, op, args: args.to_vec() };
    let at = Ix::reg(place).scale(&length).plus(&Ix::var(column));
    let from = Ix::var(i).scale(&length).plus(&Ix::var(column));
    let mut body = vec![
        Stmt::Load { dst: id, buf: 1, at: Ix::var(i) },
        op(row, ScalarOp::Convert, &[id]),
        // Whatever the index, nothing else is touched.
        op(low, ScalarOp::Min, &[row, last]),
        op(place, ScalarOp::Max, &[low, zero]),
        op(exists, ScalarOp::Eq, &[row, place]),
        Stmt::Load { dst: update, buf: 2, at: from },
        Stmt::Load { dst: old, buf: 0, at: at.clone() },
    ];
    let mut value = update;
    if add {
        let combine = if dtype == DType::Bool { ScalarOp::Or } else { ScalarOp::Add };
        body.push(op(sum, combine, &[old, update]));
        value = sum;
    }
    body.push(op(new, ScalarOp::Select, &[exists, value, old]));
    body.push(Stmt::Store { buf: 0, at, value: new });
    let one_loop = |var, extent: &Dim, kind, ranged, body| {
        Stmt::Loop(Loop { var, extent: extent.clone(), kind, ranged, carried: vec![], body })
    };
    let inner = one_loop(i, &count, LoopKind::Sequential, false, body);
    let last_row = Ix { offset: rows.clone() - Dim::constant(1), terms: vec![], regs: vec![] };
    let name = if add { "scatter_add_rows" } else { "scatter_set_rows" };
    Some(Kernel {
        name: format!("{name}_{dtype}_{ids}"),
        bufs: vec![
            KernelBuf::new(dtype, rows * length.clone(), true),
            KernelBuf::new(ids, count.clone(), false),
            KernelBuf::new(dtype, count * length.clone(), false),
        ],
        locals: vec![],
        dims: ["rows", "ids", "length", "drop"][..func.signature().ints]
            .iter()
            .map(|name| Arc::from(*name))
            .collect(),
        regs,
        loops: 2,
        body: vec![
            Stmt::Const { dst: zero, value: Scalar::I64(0) },
            Stmt::Index { dst: last, ix: last_row },
            one_loop(column, &length, LoopKind::Parallel, true, vec![inner]),
        ],
    })
}
