//! The natural logarithm.

use super::util::*;
use crate::OpDef;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::op::*;
use crate::rule::Rule;

pub const DEF: OpDef = OpDef {
    name: "log",
    summary: "Takes the natural logarithm of every element; of 0 it is -inf, of a negative number NaN.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| Some(e.div(n.ct, n.operands[0]))),
    rules: RULES,
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Log, a)),
    eval: Eval::Pure(|cx| eval_float(cx, libm::log)),
};

const RULES: &[Rule] = &[
    Rule::exact("log.exp", "(log (exp x))", "x", "logarithms undo exponentials").refine(),
    Rule::exact(
        "log.quotient",
        "(log (div (exp x) y))",
        "(sub x (log y))",
        "log-softmax from softmax, without overflow",
    )
    .refine(),
    Rule::exact(
        "log.bcast_quotient",
        "(log (div (exp x) (broadcast:b y)))",
        "(sub x (broadcast:b (log y)))",
        "log-softmax from softmax, without overflow",
    )
    .refine(),
    Rule::exact(
        "log.sqrt",
        "(log (sqrt x))",
        "(mul (log x) 0.5)",
        "a product is cheaper than a root",
    )
    .round(),
    Rule::exact(
        "log.one_plus",
        "(log (add x 1))",
        "(log1p x)",
        "keeps small x, which 1 + x rounds away",
    )
    .round(),
];
