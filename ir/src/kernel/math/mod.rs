//! Elementary functions as basic operations.
//!
//! [`expand`] runs once, before code generation, so every backend computes the
//! same bits and vectorises them without knowing what they are. The expansions
//! have no branches: every lane does the same work and special cases are
//! selected at the end.
//!
//! - [`exp`]: exp, expm1, sigmoid, tanh; [`log`]: log, log1p; [`pow`]: pow;
//!   [`trig`]: sin, cos; [`erf`]: erf; [`round`]: narrow types, rsqrt, rem.
//! - [`seq`]: the little builder they are written with.
//! - `tables.rs` holds minimax coefficients made by `minimax.py`.
//!
//! Invariants
//! - f32 results are within 2 ULP for every input (docs/numerics.md has the
//!   measured maxima), f64 results within about 1e-15 relative.
//! - NaN in gives NaN out, but for `pow(x, 0)` and `pow(1, y)`, which are 1.
//! - Zeros keep their sign where the function is odd.

mod erf;
mod exp;
mod log;
mod pow;
mod round;
mod seq;
// A coefficient may happen to be near a famous number.
#[allow(clippy::approx_constant, clippy::excessive_precision)]
mod tables;
mod trig;

use super::{Kernel, Reg, ScalarOp, ScalarType, Stmt};
use cranelift_entity::PrimaryMap;
use seq::Seq;

/// Replaces every operation that backends need not know by basic ones.
pub fn expand(kernel: &mut Kernel) {
    let body = std::mem::take(&mut kernel.body);
    kernel.body = expand_stmts(body, &mut kernel.regs);
}

/// Whether [`expand`] replaces this operation.
pub fn is_expanded(op: ScalarOp) -> bool {
    use ScalarOp::*;
    matches!(
        op,
        RoundF16
            | RoundBF16
            | WrapI8
            | WrapU8
            | Exp
            | Log
            | Log1p
            | Expm1
            | Sin
            | Cos
            | Tanh
            | Sigmoid
            | Erf
            | Pow
            | Rsqrt
            | RemFloat
    )
}

fn expand_stmts(stmts: Vec<Stmt>, regs: &mut PrimaryMap<Reg, ScalarType>) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for stmt in stmts {
        match stmt {
            Stmt::Op { dst, op, args } if is_expanded(op) => {
                let ty = regs[args[0]];
                let mut seq = Seq::new(regs, ty);
                let result = one(&mut seq, op, &args);
                out.extend(seq.finish(result, dst));
            }
            Stmt::Loop(mut l) => {
                l.body = expand_stmts(l.body, regs);
                out.push(Stmt::Loop(l));
            }
            other => out.push(other),
        }
    }
    out
}

fn one(s: &mut Seq, op: ScalarOp, args: &[Reg]) -> Reg {
    let x = args[0];
    let y = args.get(1).copied().unwrap_or(x);
    match op {
        ScalarOp::Exp => exp::exp(s, x),
        ScalarOp::Expm1 => exp::expm1(s, x),
        ScalarOp::Sigmoid => exp::sigmoid(s, x),
        ScalarOp::Tanh => exp::tanh(s, x),
        ScalarOp::Log => log::log(s, x),
        ScalarOp::Log1p => log::log1p(s, x),
        ScalarOp::Pow => pow::pow(s, x, y),
        ScalarOp::Sin => trig::sin(s, x),
        ScalarOp::Cos => trig::cos(s, x),
        ScalarOp::Erf => erf::erf(s, x),
        ScalarOp::Rsqrt => round::rsqrt(s, x),
        ScalarOp::RemFloat => round::rem(s, x, y),
        ScalarOp::RoundF16 => round::to_f16(s, x),
        ScalarOp::RoundBF16 => round::to_bf16(s, x),
        ScalarOp::WrapI8 => round::wrap_i8(s, x),
        ScalarOp::WrapU8 => round::wrap_u8(s, x),
        _ => x,
    }
}
