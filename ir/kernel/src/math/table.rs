//! The elementary functions: all there is to know about each, once.
//!
//! A new function is a row here and its expansion beside it. Kernels print, check,
//! interpret, cost and expand it from the row, and the tests of accuracy go over
//! the whole table.

use super::seq::Seq;
use super::{arc, erf, exp, hyperbolic, log, pow, round, trig};
use crate::Reg;

pub struct Def {
    pub name: &'static str,
    /// How many operands it takes, of one float type; the result has it too.
    pub arity: usize,
    /// The function in basic operations.
    pub(super) expand: fn(&mut Seq, &[Reg]) -> Reg,
    /// What it approximates, of as many operands as it takes.
    pub reference: fn(&[f64]) -> f64,
    /// Operations it counts as when a user asks what a model costs.
    pub flops: u32,
    /// What an element costs, in simple vector instructions (measured).
    pub cost: u32,
    /// Most error over all f32, in units in the last place.
    pub ulp: f64,
    /// Beyond this the f64 version gives NaN.
    pub end: f64,
}

/// Makes the fieldless [`Elementary`] enum and the table from one list.
macro_rules! functions {
    ($($variant:ident: $def:expr,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Elementary {
            $($variant,)*
        }

        impl Elementary {
            pub const ALL: &'static [Elementary] = &[$(Elementary::$variant,)*];

            pub fn def(self) -> &'static Def {
                const TABLE: &[Def] = &[$($def,)*];
                &TABLE[self as usize]
            }
        }
    };
}

functions! {
    Exp: Def {
        name: "exp",
        arity: 1,
        expand: |s, a| exp::exp(s, a[0]),
        reference: |x| x[0].exp(),
        flops: 10,
        cost: 21,
        ulp: 2.0,
        end: f64::INFINITY,
    },
    Expm1: Def {
        name: "expm1",
        arity: 1,
        expand: |s, a| exp::expm1(s, a[0]),
        reference: |x| x[0].exp_m1(),
        flops: 10,
        cost: 21,
        ulp: 2.0,
        end: f64::INFINITY,
    },
    Sigmoid: Def {
        name: "sigmoid",
        arity: 1,
        expand: |s, a| exp::sigmoid(s, a[0]),
        // Written so that neither side loses its small values.
        reference: |x| match x[0] < 0.0 {
            true => x[0].exp() / (1.0 + x[0].exp()),
            false => 1.0 / (1.0 + (-x[0]).exp()),
        },
        flops: 10,
        cost: 21,
        ulp: 2.0,
        end: f64::INFINITY,
    },
    Tanh: Def {
        name: "tanh",
        arity: 1,
        expand: |s, a| exp::tanh(s, a[0]),
        reference: |x| x[0].tanh(),
        flops: 14,
        cost: 21,
        ulp: 2.0,
        end: f64::INFINITY,
    },
    Log: Def {
        name: "log",
        arity: 1,
        expand: |s, a| log::log(s, a[0]),
        reference: |x| x[0].ln(),
        flops: 10,
        cost: 43,
        ulp: 2.0,
        end: f64::INFINITY,
    },
    Log1p: Def {
        name: "log1p",
        arity: 1,
        expand: |s, a| log::log1p(s, a[0]),
        reference: |x| x[0].ln_1p(),
        flops: 10,
        cost: 43,
        ulp: 2.0,
        end: f64::INFINITY,
    },
    Sin: Def {
        name: "sin",
        arity: 1,
        expand: |s, a| trig::sin(s, a[0]),
        reference: |x| x[0].sin(),
        flops: 14,
        cost: 150,
        ulp: 2.0,
        end: trig::END,
    },
    Cos: Def {
        name: "cos",
        arity: 1,
        expand: |s, a| trig::cos(s, a[0]),
        reference: |x| x[0].cos(),
        flops: 14,
        cost: 150,
        ulp: 2.0,
        end: trig::END,
    },
    Erf: Def {
        name: "erf",
        arity: 1,
        expand: |s, a| erf::erf(s, a[0]),
        reference: |x| libm::erf(x[0]),
        flops: 14,
        cost: 58,
        ulp: 2.0,
        end: f64::INFINITY,
    },
    Rsqrt: Def {
        name: "rsqrt",
        arity: 1,
        expand: |s, a| round::rsqrt(s, a[0]),
        reference: |x| 1.0 / x[0].sqrt(),
        flops: 1,
        cost: 10,
        ulp: 2.0,
        end: f64::INFINITY,
    },
    Pow: Def {
        name: "pow",
        arity: 2,
        expand: |s, a| pow::pow(s, a[0], a[1]),
        reference: |x| x[0].powf(x[1]),
        flops: 24,
        cost: 390,
        ulp: 2.0,
        end: f64::INFINITY,
    },
    RemFloat: Def {
        name: "rem_float",
        arity: 2,
        expand: |s, a| round::rem(s, a[0], a[1]),
        reference: |x| x[0] % x[1],
        flops: 1,
        cost: 32,
        ulp: 0.0,
        end: f64::INFINITY,
    },
    Tan: Def {
        name: "tan",
        arity: 1,
        expand: |s, a| arc::tan(s, a[0]),
        reference: |x| x[0].tan(),
        flops: 30,
        cost: 300,
        ulp: 4.0,
        end: trig::END,
    },
    Atan: Def {
        name: "atan",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, arc::atan),
        reference: |x| x[0].atan(),
        flops: 14,
        cost: 80,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Asin: Def {
        name: "asin",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, arc::asin),
        reference: |x| x[0].asin(),
        flops: 14,
        cost: 80,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Acos: Def {
        name: "acos",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, arc::acos),
        reference: |x| x[0].acos(),
        flops: 14,
        cost: 80,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Sinh: Def {
        name: "sinh",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, hyperbolic::sinh),
        reference: |x| x[0].sinh(),
        flops: 24,
        cost: 150,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Cosh: Def {
        name: "cosh",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, hyperbolic::cosh),
        reference: |x| x[0].cosh(),
        flops: 24,
        cost: 150,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Asinh: Def {
        name: "asinh",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, arc::asinh),
        reference: |x| libm::asinh(x[0]),
        flops: 24,
        cost: 250,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Acosh: Def {
        name: "acosh",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, arc::acosh),
        // The library's is not NaN for all of these.
        reference: |x| if x[0] < 1.0 { f64::NAN } else { libm::acosh(x[0]) },
        flops: 24,
        cost: 250,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Atanh: Def {
        name: "atanh",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, arc::atanh),
        reference: |x| libm::atanh(x[0]),
        flops: 14,
        cost: 150,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Erfc: Def {
        name: "erfc",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, hyperbolic::erfc),
        reference: |x| libm::erfc(x[0]),
        flops: 24,
        cost: 130,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Cbrt: Def {
        name: "cbrt",
        arity: 1,
        expand: |s, a| arc::in_f64(s, a, hyperbolic::cbrt),
        reference: |x| libm::cbrt(x[0]),
        flops: 24,
        cost: 200,
        ulp: 1.0,
        end: f64::INFINITY,
    },
    Atan2: Def {
        name: "atan2",
        arity: 2,
        expand: |s, a| arc::in_f64(s, a, arc::atan2),
        reference: |x| x[0].atan2(x[1]),
        flops: 16,
        cost: 100,
        ulp: 1.0,
        end: f64::INFINITY,
    },
}

impl Elementary {
    pub fn name(self) -> &'static str {
        self.def().name
    }
}
