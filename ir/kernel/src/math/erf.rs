//! erf: a polynomial near zero, `1 - exp(log erfc)` further out, where erfc is
//! small and its error with it.

use super::exp::exp_bounded;
use super::seq::Seq;
use super::tables::*;
use crate::Reg;

pub(super) fn erf(s: &mut Seq, x: Reg) -> Reg {
    let z = s.mul(x, x);
    let near = if s.is_f32() { s.poly(z, &ERF_NEAR_32) } else { s.poly(z, &ERF_NEAR_64) };
    let near = s.fma(x, near, x);
    let a = s.abs(x);
    let log_erfc = if s.is_f32() {
        let t = s.at_most(a, 4.0);
        s.poly(t, &ERF_FAR_32)
    } else {
        let t = s.at_most(a, 6.0);
        let three = s.c(3.0);
        let u = s.sub(t, three);
        s.poly(u, &ERF_FAR_64)
    };
    let erfc = exp_bounded(s, log_erfc, None);
    let one = s.c(1.0);
    let far = s.sub(one, erfc);
    let far = s.with_sign(far, x);
    let edge = s.pick(0.945, 1.0);
    let is_near = s.lt(a, edge);
    s.select(is_near, near, far)
}
