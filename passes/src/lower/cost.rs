//! What one element of an op costs, found by asking the op's own lowering.

use cranelift_entity::EntityRef;
use tfc_ir::kernel::{Combine, Ix, LoopVar, Reg, Scalar, ScalarOp, ScalarType};
use tfc_ir::lower::{Lower, Pull};
use tfc_ir::{Attrs, DType, Dim, Func, Node, TensorType};

/// Rough units: one is a simple vector instruction.
pub(crate) fn scalar_cost(op: ScalarOp) -> u32 {
    use ScalarOp::*;
    match op {
        Div | Sqrt | Rem => 4,
        Exp | Log | Log1p | Expm1 | Tanh | Sigmoid | Erf | Sin | Cos | Rsqrt => 16,
        Pow | RemFloat => 32,
        RoundF16 | RoundBF16 => 4,
        _ => 1,
    }
}

/// Cost of one result element.
pub(crate) struct ElementCost {
    pub ops: u32,
    /// The op runs a loop of its own per element.
    pub loops: bool,
}

pub(crate) fn element_cost(func: &Func, node: &Node) -> ElementCost {
    let mut count = Count { func, node, types: vec![], ops: 0, loops: false };
    match &node.op.def().lower {
        Lower::Map(f) => {
            let args: Vec<Reg> = node
                .operands
                .iter()
                .map(|o| count.reg(ScalarType::of(func.ty(*o).dtype)))
                .collect();
            f(&mut count, &args);
        }
        Lower::Index(f) => {
            let rank = func.ty(node.results[0]).rank();
            let at: Vec<Ix> = (0..rank).map(|i| Ix::var(LoopVar::new(i))).collect();
            f(&mut count, &at);
        }
        _ => {}
    }
    ElementCost { ops: count.ops, loops: count.loops }
}

struct Count<'a> {
    func: &'a Func,
    node: &'a Node,
    types: Vec<ScalarType>,
    ops: u32,
    loops: bool,
}

impl Count<'_> {
    fn reg(&mut self, ty: ScalarType) -> Reg {
        self.types.push(ty);
        Reg::new(self.types.len() - 1)
    }
}

impl Pull for Count<'_> {
    fn operand(&mut self, i: usize, _at: &[Ix]) -> Reg {
        let dtype = self.operand_type(i).dtype;
        self.reg(ScalarType::of(dtype))
    }

    fn operand_type(&self, i: usize) -> TensorType {
        match self.node.operands.get(i) {
            Some(v) => self.func.ty(*v).clone(),
            None => TensorType::scalar(DType::I64),
        }
    }

    fn operand_count(&self) -> usize {
        self.node.operands.len()
    }

    fn result_type(&self) -> TensorType {
        self.func.ty(self.node.results[0]).clone()
    }

    fn attrs(&self) -> &Attrs {
        &self.node.attrs
    }

    fn op(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        self.ops = self.ops.saturating_add(scalar_cost(op));
        let ty = match op {
            ScalarOp::Eq | ScalarOp::Ne | ScalarOp::Lt | ScalarOp::Le => ScalarType::Bool,
            ScalarOp::Select => self.reg_type(args[1]),
            _ => self.reg_type(args[0]),
        };
        self.reg(ty)
    }

    fn convert(&mut self, _x: Reg, to: ScalarType) -> Reg {
        self.ops = self.ops.saturating_add(1);
        self.reg(to)
    }

    fn bitcast(&mut self, _x: Reg, to: ScalarType) -> Reg {
        self.reg(to)
    }

    fn constant(&mut self, value: Scalar) -> Reg {
        self.reg(value.ty())
    }

    fn reg_type(&self, x: Reg) -> ScalarType {
        self.types.get(x.index()).copied().unwrap_or(ScalarType::F32)
    }

    fn index(&mut self, _ix: &Ix) -> Reg {
        self.reg(ScalarType::I64)
    }

    fn reduce(
        &mut self,
        _combine: Combine,
        extents: &[Dim],
        body: &mut dyn FnMut(&mut dyn Pull, &[Ix]) -> Reg,
    ) -> Reg {
        let at: Vec<Ix> = (0..extents.len()).map(|i| Ix::var(LoopVar::new(1000 + i))).collect();
        self.loops = true;
        body(self, &at)
    }
}

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
            Stmt::Op { op, .. } => own += scalar_cost(*op) as i64,
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
