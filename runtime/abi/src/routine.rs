//! The routines of the runtime that a plan may call.
//!
//! A routine is a row here and a function in `runtime/src/calls`: plans are printed,
//! decoded and checked from the row, and `calls::call` has a match without a wildcard.
//!
//! Invariant: a routine is only called with buffers of the element types and sizes its
//! row says ([`crate::plan::Plan::check`], and the runtime's check of sizes when an
//! entry is called).

use crate::DType;

pub struct Signature {
    /// Its name in a plan that is printed.
    pub name: &'static str,
    /// The first is written, or changed; the others are read.
    pub bufs: &'static [Buffer],
    /// How many numbers it is told, sizes first.
    pub ints: usize,
    /// It may refuse what it is given, before it writes anything.
    pub may_fail: bool,
}

pub struct Buffer {
    pub elements: Elements,
    /// The numbers whose product is how many elements it has; `None` for any.
    pub sizes: Option<&'static [usize]>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Elements {
    Any,
    /// Any but `bool`.
    Number,
    /// Those of the first buffer.
    AsFirst,
    /// `i32` or `i64`.
    Index,
    /// This type.
    Only(DType),
}

impl Elements {
    pub fn admits(self, dtype: DType, first: DType) -> bool {
        match self {
            Elements::Any => true,
            Elements::Number => dtype != DType::Bool,
            Elements::AsFirst => dtype == first,
            Elements::Index => matches!(dtype, DType::I32 | DType::I64),
            Elements::Only(only) => dtype == only,
        }
    }
}

/// Most buffers, and most numbers, of any routine.
pub const MOST: usize = 4;

/// Makes the fieldless [`Func`] enum and the table from one list.
macro_rules! routines {
    ($($(#[$doc:meta])* $variant:ident = $code:literal: $signature:expr,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Func {
            $($(#[$doc])* $variant = $code,)*
        }

        impl Func {
            pub const ALL: &'static [Func] = &[$(Func::$variant,)*];

            pub fn signature(self) -> &'static Signature {
                match self {
                    $(Func::$variant => {
                        const SIGNATURE: Signature = $signature;
                        const { assert!(SIGNATURE.bufs.len() <= MOST && SIGNATURE.ints <= MOST) };
                        &SIGNATURE
                    })*
                }
            }

            pub fn from_code(code: u8) -> Option<Func> {
                Func::ALL.iter().copied().find(|f| *f as u8 == code)
            }
        }
    };
}

const fn buffer(elements: Elements, sizes: &'static [usize]) -> Buffer {
    Buffer { elements, sizes: Some(sizes) }
}

routines! {
    /// `dst[ids[i], :] += upd[i, :]`, rows in order. Buffers: dst, ids, upd; numbers:
    /// rows of dst, number of ids, row length, and whether ids out of range are left
    /// out; otherwise they fail.
    ScatterAddRows = 0: Signature {
        name: "scatter_add_rows",
        bufs: &[
            buffer(Elements::Any, &[0, 2]),
            buffer(Elements::Index, &[1]),
            buffer(Elements::AsFirst, &[1, 2]),
        ],
        ints: 4,
        may_fail: true,
    },
    /// `dst[ids[i], :] = upd[i, :]`, the last one wins. As above, but ids out of range
    /// always fail.
    ScatterSetRows = 1: Signature {
        name: "scatter_set_rows",
        bufs: &[
            buffer(Elements::Any, &[0, 2]),
            buffer(Elements::Index, &[1]),
            buffer(Elements::AsFirst, &[1, 2]),
        ],
        ints: 3,
        may_fail: true,
    },
    /// Fills with zero bytes. Buffers: dst.
    Zero = 2: Signature {
        name: "zero",
        bufs: &[Buffer { elements: Elements::Any, sizes: None }],
        ints: 0,
        may_fail: false,
    },
    /// The order of the elements of each row. Buffers: dst, x; numbers: the product of
    /// the sizes before the axis, its own, the product of those after it, and whether
    /// the largest is first.
    ArgSort = 3: Signature {
        name: "argsort",
        bufs: &[buffer(Elements::Only(DType::I32), &[0, 1, 2]), buffer(Elements::Number, &[0, 1, 2])],
        ints: 4,
        may_fail: false,
    },
}
