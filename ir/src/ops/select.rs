//! Choosing between two tensors.

use super::util::*;
use crate::eval::{Array, Data};
use crate::kernel::ScalarOp;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;
use crate::{OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "select",
    summary: "Takes elements of `a` where `cond` is true and of `b` elsewhere.",
    operands: &[
        Operand::one("cond", ElementKind::Bool),
        Operand::one("a", ElementKind::Any),
        Operand::one("b", ElementKind::Any),
    ],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: |cx| {
        same_shape(cx)?;
        let (a, b): (&TensorType, &TensorType) = (&cx.operands[1], &cx.operands[2]);
        if a.dtype != b.dtype {
            return Err(InferError::new("E0206", "`select` needs branches of one element type")
                .at(Blame::Operand(1), format!("this is {}", a.dtype))
                .at(Blame::Operand(2), format!("this is {}", b.dtype)));
        }
        Ok(vec![a.clone()])
    },
    // The branch not taken gets an exact zero, whatever its value was: no NaN
    // leaks from it.
    grad: Grad::Vjp(|e, n, i| {
        let cond = n.operands[0];
        let zero = e.splat_like(0.0, n.ct);
        match i {
            1 => Some(e.select(cond, n.ct, zero)),
            2 => Some(e.select(cond, zero, n.ct)),
            _ => None,
        }
    }),
    rules: RULES,
    facts: Facts { moves: Moves::Chosen, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.op(ScalarOp::Select, a)),
    eval: Eval::Pure(|cx| {
        let Data::Bool(cond) = &cx.operands[0].data else { return Err("expected bool".into()) };
        let (a, b) = (&cx.operands[1], &cx.operands[2]);
        fn pick<T: Copy>(
            c: &ndarray::ArrayD<bool>,
            a: &ndarray::ArrayD<T>,
            b: &ndarray::ArrayD<T>,
        ) -> ndarray::ArrayD<T> {
            let values =
                c.iter().zip(a.iter().zip(b.iter())).map(|(c, (a, b))| if *c { *a } else { *b });
            from_vec(c.shape(), values.collect())
        }
        let data = match (&a.data, &b.data) {
            (Data::Float(a), Data::Float(b)) => Data::Float(pick(cond, a, b)),
            (Data::Int(a), Data::Int(b)) => Data::Int(pick(cond, a, b)),
            (Data::Bool(a), Data::Bool(b)) => Data::Bool(pick(cond, a, b)),
            _ => return Err("branches of different types".into()),
        };
        Ok(vec![Array { dtype: a.dtype, data }])
    }),
};

const RULES: &[Rule] = &[
    Rule::exact("select.same", "(select c x x)", "x", "either way"),
    Rule::exact("select.not", "(select (not c) x y)", "(select c y x)", "the other way round"),
    Rule::exact(
        "select.then",
        "(select c (select c x y) z)",
        "(select c x z)",
        "the condition holds there",
    ),
    Rule::exact(
        "select.else",
        "(select c x (select c y z))",
        "(select c x z)",
        "the condition fails there",
    ),
    Rule::exact(
        "select.and",
        "(select c (select d x y) y)",
        "(select (and c d) x y)",
        "one choice instead of two",
    ),
    Rule::computed(
        "select.known",
        "(select #c x y)",
        |m| m.splat("c").map(|c| m.var(if c != 0.0 { "x" } else { "y" })),
        "a known condition",
    ),
];
