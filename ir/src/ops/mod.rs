//! The op list. A new op is one file here, one line below, and one
//! `testdata/ops/<op>.graph`.

pub mod util;

use crate::OpDef;

/// Makes the modules, the fieldless [`Op`] enum and the table from one list.
macro_rules! ops {
    ($($module:ident: $variant:ident,)*) => {
        $(mod $module;)*

        /// Every tensor op.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u16)]
        pub enum Op {
            $($variant,)*
        }

        impl Op {
            pub const ALL: &'static [Op] = &[$(Op::$variant,)*];

            pub const fn def(self) -> &'static OpDef {
                const TABLE: &[OpDef] = &[$($module::DEF,)*];
                &TABLE[self as usize]
            }
        }
    };
}

ops! {
    // Structure and state
    constant: Const,
    vjp: Vjp,
    // Elementwise
    add: Add,
    sub: Sub,
    mul: Mul,
    div: Div,
    neg: Neg,
    exp: Exp,
    select: Select,
    cast: Cast,
    // Reductions
    sum: Sum,
    // Movement
    broadcast: Broadcast,
    reshape: Reshape,
    transpose: Transpose,
    // Contractions
    matmul: MatMul,
}

impl Op {
    pub fn name(self) -> &'static str {
        self.def().name
    }

    pub fn from_name(name: &str) -> Option<Op> {
        Op::ALL.iter().copied().find(|op| op.name() == name)
    }

    pub fn is_pure(self) -> bool {
        self.def().effect == crate::op::Effect::Pure
    }
}
