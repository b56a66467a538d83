//! Normally distributed random floats.

use super::philox;
use super::util::*;
use crate::eval::Array;
use crate::lower::Lower;
use crate::op::*;
use crate::vjp::{Emit, V};
use crate::{Attr, Attrs, DType, Op, OpDef, TensorType};

pub const DEF: OpDef = OpDef {
    name: "random_normal",
    summary: "Normally distributed floats with mean 0 and variance 1 (Box-Muller).",
    operands: &[Operand::one("key", ElementKind::Key)],
    attrs: &[philox::SHAPE, philox::FLOAT, philox::STREAM],
    regions: &[],
    effect: Effect::Pure,
    stage: Stage::Core,
    infer: philox::floats,
    grad: philox::NO_GRAD,
    rules: &[],
    facts: Facts::NONE,
    indices: Indices::None,
    needs: crate::require::nothing,
    cost: crate::cost::as_lowered,
    lower: Lower::Expand(|e, operands, attrs| {
        let dtype = attrs.dtype("dtype").unwrap_or(DType::F32);
        let wide = widened(dtype);
        let (u, v) =
            (uniform(e, operands[0], attrs, wide, 1), uniform(e, operands[0], attrs, wide, 2));
        // sqrt(-2 log(1 - u)) cos(2 pi v); 1 - u is exact and never 0.
        let one = e.splat_like(1.0, u);
        let log = e.unary(Op::Log, e.sub(one, u));
        let radius = e.unary(Op::Sqrt, e.mul(e.splat_like(-2.0, u), log));
        let angle = e.mul(e.splat_like(std::f64::consts::TAU, v), v);
        e.cast(e.mul(radius, e.unary(Op::Cos, angle)), dtype)
    }),
    eval: Eval::Pure(|cx| {
        let dtype = cx.results[0].dtype;
        let wide = widened(dtype);
        let draw = |lane: i64| {
            let attrs =
                cx.attrs.clone().with("lane", Attr::Int(lane)).with("dtype", Attr::DType(wide));
            let results = [TensorType::new(wide, cx.results[0].shape.clone())];
            let cx =
                EvalCx { operands: cx.operands, attrs: &attrs, results: &results, dims: cx.dims };
            match Op::RandomUniform.def().eval {
                Eval::Pure(eval) => eval(&cx),
                _ => Err("no uniform numbers".to_string()),
            }
        };
        let (u, v) = (draw(1)?, draw(2)?);
        let normal = |u: f64, v: f64| {
            (-2.0 * libm::log(1.0 - u)).sqrt() * libm::cos(std::f64::consts::TAU * v)
        };
        match (u.first().map(|a| &a.data), v.first().map(|a| &a.data)) {
            (Some(crate::eval::Data::Float(u)), Some(crate::eval::Data::Float(v))) => {
                let wide = Array::float(wide, zip(u, v, normal));
                Ok(vec![map_floats(dtype, &wide, |x| x)])
            }
            _ => Err("no uniform numbers".into()),
        }
    }),
};

fn uniform(e: &dyn Emit, key: V, attrs: &Attrs, dtype: DType, lane: i64) -> V {
    let attrs = attrs.clone().with("lane", Attr::Int(lane)).with("dtype", Attr::DType(dtype));
    e.emit(Op::RandomUniform, &[key], attrs)
}
