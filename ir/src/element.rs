//! What one element of an op costs, found by asking the op's own lowering: so it is
//! said nowhere else.

use crate::attr::AttrKind;
use crate::kernel::{Combine, Ix, LoopVar, Reg, Scalar, ScalarOp, ScalarType};
use crate::lower::{Lower, Pull};
use crate::op::ElementKind;
use crate::{Attr, Attrs, DType, Dim, Op, TensorType};
use cranelift_entity::EntityRef;
use std::sync::OnceLock;

/// Cost of one result element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ElementCost {
    /// In units of [`ScalarOp::cost`].
    pub ops: u32,
    /// Operations as a user would count them: an elementary function has its own
    /// number, anything else that computes is one, and moving or choosing is none.
    pub flops: u32,
    /// The op runs a loop of its own per element.
    pub loops: bool,
}

/// How one element of a result asks for an operand.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Asks {
    /// Places in the code.
    pub sites: u32,
    /// Elements, with those of loops; a loop of unknown length counts as many.
    pub elements: i64,
}

/// By operand, how an element of an op that pulls its operands from other indices
/// asks for it; once, for other ops.
pub fn asks(op: Op, attrs: &Attrs, operands: &[TensorType], result: &TensorType) -> Vec<Asks> {
    match &op.def().lower {
        Lower::Index(_) => count(op, attrs, operands, result).asks,
        _ => vec![Asks { sites: 1, elements: 1 }; operands.len()],
    }
}

/// The cost of an element of a map, or of an op that pulls its operands from other
/// indices; nothing for other ops.
pub fn element_cost(
    op: Op,
    attrs: &Attrs,
    operands: &[TensorType],
    result: &TensorType,
) -> ElementCost {
    let count = count(op, attrs, operands, result);
    ElementCost { ops: count.ops, flops: count.flops, loops: count.loops }
}

fn count<'a>(
    op: Op,
    attrs: &'a Attrs,
    operands: &'a [TensorType],
    result: &'a TensorType,
) -> Count<'a> {
    let mut count = Count {
        attrs,
        operands,
        result,
        types: vec![],
        ops: 0,
        flops: 0,
        loops: false,
        asks: vec![Asks::default(); operands.len()],
        inside: 1,
    };
    match &op.def().lower {
        Lower::Map(f) => {
            let args: Vec<Reg> =
                operands.iter().map(|ty| count.reg(ScalarType::of(ty.dtype))).collect();
            f(&mut count, &args);
        }
        Lower::Index(f) => {
            let at: Vec<Ix> = (0..result.rank()).map(|i| Ix::var(LoopVar::new(i))).collect();
            f(&mut count, &at);
        }
        _ => {}
    }
    count
}

/// The cost of an element of a map on operands of its usual types.
pub fn map_cost(op: Op) -> ElementCost {
    static TABLE: OnceLock<Vec<ElementCost>> = OnceLock::new();
    let table = TABLE.get_or_init(|| Op::ALL.iter().map(|op| usual_cost(*op)).collect());
    table[op as usize]
}

fn usual_cost(op: Op) -> ElementCost {
    let def = op.def();
    if !matches!(def.lower, Lower::Map(_)) {
        return ElementCost { ops: 0, flops: 0, loops: false };
    }
    let usual = |kind: ElementKind| match kind {
        ElementKind::Any | ElementKind::Num | ElementKind::Float => DType::F32,
        ElementKind::Int => DType::I32,
        ElementKind::Bool | ElementKind::Bits => DType::Bool,
        ElementKind::Index | ElementKind::Key => DType::I64,
    };
    let operands: Vec<TensorType> =
        def.operands.iter().map(|o| TensorType::scalar(usual(o.kind))).collect();
    let attrs = usual_attrs(op);
    let results = crate::build::infer(op, &operands, &attrs, None, &[]);
    let result = results.ok().and_then(|r| r.into_iter().next());
    element_cost(op, &attrs, &operands, &result.unwrap_or_else(|| TensorType::scalar(DType::F32)))
}

/// Attributes as they are where nothing is said; a type, where one must be given.
fn usual_attrs(op: Op) -> Attrs {
    let mut attrs = Attrs::none();
    for spec in op.def().attrs {
        match (spec.default, spec.kind) {
            (Some(default), _) => attrs.set(spec.name, default()),
            (None, AttrKind::DType) => attrs.set(spec.name, Attr::DType(DType::F32)),
            (None, _) => {}
        }
    }
    attrs
}

struct Count<'a> {
    attrs: &'a Attrs,
    operands: &'a [TensorType],
    result: &'a TensorType,
    types: Vec<ScalarType>,
    ops: u32,
    flops: u32,
    loops: bool,
    asks: Vec<Asks>,
    /// Iterations of the loops around, for one element.
    inside: i64,
}

impl Count<'_> {
    fn reg(&mut self, ty: ScalarType) -> Reg {
        self.types.push(ty);
        Reg::new(self.types.len() - 1)
    }
}

impl Pull for Count<'_> {
    fn operand(&mut self, i: usize, _at: &[Ix]) -> Reg {
        if let Some(asks) = self.asks.get_mut(i) {
            asks.sites += 1;
            asks.elements = asks.elements.saturating_add(self.inside);
        }
        let dtype = self.operand_type(i).dtype;
        self.reg(ScalarType::of(dtype))
    }

    fn guarded(&mut self, i: usize, at: &[Ix], _sizes: &[Dim]) -> Reg {
        self.operand(i, at)
    }

    fn operand_type(&self, i: usize) -> TensorType {
        self.operands.get(i).cloned().unwrap_or_else(|| TensorType::scalar(DType::I64))
    }

    fn operand_count(&self) -> usize {
        self.operands.len()
    }

    fn result_type(&self) -> TensorType {
        self.result.clone()
    }

    fn attrs(&self) -> &Attrs {
        self.attrs
    }

    fn op(&mut self, op: ScalarOp, args: &[Reg]) -> Reg {
        self.ops = self.ops.saturating_add(op.cost());
        self.flops = match op {
            ScalarOp::Elementary(function) => self.flops.max(function.def().flops),
            ScalarOp::Select | ScalarOp::Convert | ScalarOp::Bitcast => self.flops,
            _ => self.flops.max(1),
        };
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
        let outside = self.inside;
        for extent in extents {
            self.inside = self.inside.saturating_mul(extent.as_const().unwrap_or(1 << 20));
        }
        let out = body(self, &at);
        self.inside = outside;
        out
    }
}
