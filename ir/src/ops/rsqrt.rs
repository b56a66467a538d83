//! The reciprocal square root.

use super::util::*;
use crate::OpDef;
use crate::facts::RangeCx;
use crate::kernel::Elementary;
use crate::lower::Lower;
use crate::magnitude::Magnitude;
use crate::op::*;
use crate::rule::Fact;

pub const DEF: OpDef = OpDef {
    name: "rsqrt",
    summary: "Computes 1 / sqrt(x) for every element.",
    operands: &[Operand::one("x", ElementKind::Float)],
    attrs: &[],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: same,
    grad: Grad::Vjp(|e, n, _| {
        // d x^(-1/2) = -1/2 x^(-3/2) = -1/2 out^3
        let cube = e.mul(n.out, e.mul(n.out, n.out));
        Some(e.mul(n.ct, e.mul(e.splat_like(-0.5, n.out), cube)))
    }),
    rules: &[],
    facts: Facts { range, ..Facts::NONE },
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Map(|k, a| k.call(Elementary::Rsqrt, a)),
    eval: Eval::Pure(|cx| eval_float(cx, |x| 1.0 / x.sqrt())),
};

fn range(cx: &dyn RangeCx) -> Range {
    let size = match cx.has(0, Fact::NonZero) {
        true => cx.size(0).sqrt().reciprocal(),
        false => Magnitude::ANY,
    };
    Range::new(0, size)
}
