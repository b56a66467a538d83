//! Elementary functions as basic operations.
//!
//! [`expand`] runs once, before code generation, so every backend computes the
//! same bits and vectorises them without knowing what they are. The expansions
//! have no branches: every lane does the same work and special cases are
//! selected at the end.
//!
//! - [`exp`]: exp, expm1, sigmoid, tanh; [`log`]: log, log1p; [`pow`]: pow;
//!   [`trig`]: sin, cos; [`arc`]: tan and inverse functions; [`hyperbolic`]: sinh, cosh,
//!   cbrt, erfc; [`erf`]: erf; [`round`]: narrow types, rsqrt, rem.
//! - [`table`]: what there is to know about each of them.
//! - [`seq`]: the little builder they are written with.
//! - `tables.rs` holds minimax coefficients made by `minimax.py`.
//!
//! Invariants
//! - f32 results are within the bound of the table, 2 ULP but for tan, for every input (docs/numerics.md has the
//!   measured maxima), f64 results within about 1e-15 relative.
//! - NaN in gives NaN out, but for `pow(x, 0)` and `pow(1, y)`, which are 1.
//! - Zeros keep their sign where the function is odd.

mod arc;
mod erf;
mod exp;
mod hyperbolic;
mod log;
mod pow;
mod round;
mod seq;
// A coefficient may happen to be near a famous number.
mod table;
#[allow(clippy::approx_constant, clippy::excessive_precision)]
mod tables;
mod trig;

use super::{Kernel, Reg, ScalarOp, ScalarType, Stmt};
use cranelift_entity::PrimaryMap;
use seq::Seq;
pub use table::{Def, Elementary};

/// Replaces every operation that backends need not know by basic ones.
pub fn expand(kernel: &mut Kernel) {
    expand_but(kernel, &|_, _| false);
}

/// As [`expand`], but for those operations on a type that a backend knows.
pub fn expand_but(kernel: &mut Kernel, known: &Known<'_>) {
    let body = std::mem::take(&mut kernel.body);
    kernel.body = expand_stmts(body, &mut kernel.regs, known);
}

/// Operations that a backend knows though others do not, by the type they are of.
pub type Known<'a> = dyn Fn(ScalarOp, ScalarType) -> bool + 'a;

fn expand_stmts(
    stmts: Vec<Stmt>,
    regs: &mut PrimaryMap<Reg, ScalarType>,
    known: &Known<'_>,
) -> Vec<Stmt> {
    let mut out = Vec::with_capacity(stmts.len());
    for stmt in stmts {
        match stmt {
            Stmt::Op { dst, op, args } => match expansion(op) {
                Some(expand) if !known(op, regs[dst]) => {
                    let ty = regs[args[0]];
                    let mut seq = Seq::new(regs, ty);
                    let result = expand(&mut seq, &args);
                    let made = seq.finish(result, dst);
                    out.extend(expand_stmts(made, regs, known));
                }
                _ => out.push(Stmt::Op { dst, op, args }),
            },
            Stmt::Loop(mut l) => {
                l.body = expand_stmts(l.body, regs, known);
                out.push(Stmt::Loop(l));
            }
            other => out.push(other),
        }
    }
    out
}

type Expand = fn(&mut Seq, &[Reg]) -> Reg;

/// What replaces an operation that backends need not know.
fn expansion(op: ScalarOp) -> Option<Expand> {
    match op {
        ScalarOp::Elementary(function) => Some(function.def().expand),
        ScalarOp::RoundF16 => Some(|s, a| round::to_f16(s, a[0])),
        ScalarOp::RoundBF16 => Some(|s, a| round::to_bf16(s, a[0])),
        ScalarOp::WrapI8 => Some(|s, a| round::wrap_i8(s, a[0])),
        ScalarOp::WrapU8 => Some(|s, a| round::wrap_u8(s, a[0])),
        ScalarOp::Scale => Some(|s, a| exp::scale(s, a[0], a[1])),
        _ => None,
    }
}
