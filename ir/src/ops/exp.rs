//! The exponential.

use super::util::*;
use crate::OpDef;
use crate::facts::{NONNEG, RangeCx};
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::{Fact, Rule, Search};

pub const DEF: OpDef = OpDef {
    name: "exp",
    summary: "Raises e to every element.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.mul(n.ct, n.out))),
    rules: RULES,
    facts: Facts { range, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Exp, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::exp)),
};

/// `e^x` is less than `2^(1.5 x)`.
fn range(cx: &dyn RangeCx) -> Range {
    let size = match cx.size(0).hi {
        _ if cx.has(0, Fact::NonPos) => Magnitude::at_most(0),
        e if e <= 9 => {
            let most = (1.5 * 2f64.powi(e as i32)).ceil() as i16;
            Magnitude { lo: -most, hi: most }
        }
        _ => Magnitude::ANY,
    };
    Range::new(NONNEG, size)
}

const RULES: &[Rule] = &[
    Rule::exact("exp.log", "(exp (log x))", "x", "exponentials undo logarithms").refine(),
    Rule::exact(
        "exp.minus_log",
        "(exp (sub x (log y)))",
        "(div (exp x) y)",
        "one division instead of a logarithm",
    )
    .within(|m| m.has("x", Fact::NonPos) && m.magnitude("y").lo >= 0)
    .assume("y", Fact::NonNeg)
    .round(),
    Rule::exact(
        "exp.minus_bcast_log",
        "(exp (sub x (broadcast:b (log y))))",
        "(div (exp x) (broadcast:b y))",
        "softmax from its logarithm",
    )
    .within(|m| m.has("x", Fact::NonPos) && m.magnitude("y").lo >= 0)
    .assume("y", Fact::NonNeg)
    .round(),
    Rule::exact("vjp.exp_of_log", "(vjp.exp.0 x e (div ct e))", "ct", "d log(exp(x)) / dx is one")
        .search(Search::Gradients)
        .refine(),
    Rule::exact(
        "vjp.exp_of_log_sum",
        "(vjp.exp.0 x e (add (div ct e) r))",
        "(add ct (mul r e))",
        "d log(exp(x)) / dx is one",
    )
    .search(Search::Gradients)
    .refine(),
];
