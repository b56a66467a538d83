//! One method per op, under the op's name.

use super::{Arg, Node, Operand, Shape};
use std::panic::Location;
use tfc_ir::DType;

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident)*) => {
        impl Node {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Node {
                self.graph.call(stringify!($name), &[self.into()], &[], Location::caller())
            }
        )*}
    };
}

unary! {
    /// The negative.
    neg
    /// The absolute value.
    abs
    /// -1, 0 or 1.
    sign
    /// e to this power.
    exp
    /// `exp(x) - 1`, exact near 0.
    expm1
    /// The natural logarithm.
    log
    /// `log(1 + x)`, exact near 0.
    log1p
    /// The square root.
    sqrt
    /// `1 / sqrt(x)`.
    rsqrt
    /// The cube root.
    cbrt
    /// The sine.
    sin
    /// The cosine.
    cos
    /// The tangent.
    tan
    /// The angle whose sine it is.
    asin
    /// The angle whose cosine it is.
    acos
    /// The angle whose tangent it is.
    atan
    /// The hyperbolic sine.
    sinh
    /// The hyperbolic cosine.
    cosh
    /// The hyperbolic tangent.
    tanh
    /// The number whose hyperbolic sine it is.
    asinh
    /// The number, not negative, whose hyperbolic cosine it is.
    acosh
    /// The number whose hyperbolic tangent it is.
    atanh
    /// `1 / (1 + exp(-x))`.
    sigmoid
    /// The error function.
    erf
    /// `1 - erf(x)`, exact where that is small.
    erfc
    /// `max(x, 0)`.
    relu
    /// The next integer below.
    floor
    /// The next integer above.
    ceil
    /// To the nearest integer, ties to even.
    round
    /// To the next integer toward zero.
    trunc
    /// Logical or bitwise complement.
    not
    /// Whether it is not a number.
    is_nan
    /// Whether it is neither infinite nor NaN.
    is_finite
    /// The value, through which no gradient flows.
    stop_gradient
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident)*) => {
        impl Node {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, other: impl Into<Operand>) -> Node {
                let operands = [self.into(), other.into()];
                self.graph.call(stringify!($name), &operands, &[], Location::caller())
            }
        )*}
    };
}

binary! {
    /// The sum, element by element.
    add
    /// The difference.
    sub
    /// The product.
    mul
    /// The quotient.
    div
    /// The first to the power of the second.
    pow
    /// The angle of the point (second, first), as in C.
    atan2
    /// The remainder.
    rem
    /// The larger, element by element; NaN wins.
    maximum
    /// The smaller, element by element; NaN wins.
    minimum
    /// Whether they are equal.
    eq
    /// Whether they differ.
    ne
    /// Whether the first is less.
    lt
    /// Whether the first is less or equal.
    le
    /// Whether the first is greater.
    gt
    /// Whether the first is greater or equal.
    ge
    /// Whether both hold.
    and
    /// Whether one holds.
    or
    /// Whether exactly one holds.
    xor
}

macro_rules! reduce {
    ($($(#[$doc:meta])* $name:ident $over:ident)*) => {
        impl Node {$(
            $(#[$doc])*
            /// Over all axes.
            #[track_caller]
            pub fn $name(&self) -> Node {
                self.graph.call(stringify!($name), &[self.into()], &[], Location::caller())
            }

            $(#[$doc])*
            /// Over the given axes, which disappear; negative ones count from the end.
            #[track_caller]
            pub fn $over(&self, axes: &[i64]) -> Node {
                let attrs = [("axes", Arg::from(axes))];
                self.graph.call(stringify!($name), &[self.into()], &attrs, Location::caller())
            }
        )*}
    };
}

reduce! {
    /// The sum.
    sum sum_over
    /// The mean.
    mean mean_over
    /// The product.
    prod prod_over
    /// The largest element.
    max max_over
    /// The smallest element.
    min min_over
    /// Whether any element is true.
    any any_over
    /// Whether every element is true.
    all all_over
}

macro_rules! along {
    ($($(#[$doc:meta])* $name:ident)*) => {
        impl Node {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, axis: i64) -> Node {
                let attrs = [("axis", Arg::Int(axis))];
                self.graph.call(stringify!($name), &[self.into()], &attrs, Location::caller())
            }
        )*}
    };
}

along! {
    /// Index of the largest element along an axis.
    argmax
    /// Index of the smallest element along an axis.
    argmin
    /// The indices that put the elements along an axis in order, smallest first.
    argsort
    /// The elements along an axis in order, smallest first; NaN last.
    sort
    /// Running sums along an axis.
    cumsum
    /// Running products along an axis.
    cumprod
}

impl Node {
    /// A function of a library, or an op, applied to this: a layer by its name.
    ///
    /// ```
    /// use tfc::{DType::F32, GraphBuilder};
    /// let g = GraphBuilder::new("layers");
    /// let x = g.input("x", F32, ("B", 8));
    /// let h = x.apply("layer.dense", &[("units", 16.into())]).apply("nn.gelu", &[]);
    /// assert_eq!(h.ty().unwrap().to_string(), "f32[B, 16]");
    /// ```
    #[track_caller]
    pub fn apply(&self, name: &str, attrs: &[(&str, Arg)]) -> Node {
        self.graph.op(name, &[self], attrs)
    }

    /// Matrix product of the last two axes.
    #[track_caller]
    pub fn matmul(&self, other: &Node) -> Node {
        let site = Location::caller();
        self.graph.call("matmul", &[self.into(), other.into()], &[], site)
    }

    /// Matrix product with either side transposed.
    #[track_caller]
    pub fn matmul_with(&self, other: &Node, trans_a: bool, trans_b: bool) -> Node {
        let attrs = [("trans_a", trans_a.into()), ("trans_b", trans_b.into())];
        self.graph.call("matmul", &[self.into(), other.into()], &attrs, Location::caller())
    }

    /// Converts the elements.
    #[track_caller]
    pub fn cast(&self, to: DType) -> Node {
        self.graph.call("cast", &[self.into()], &[("to", to.into())], Location::caller())
    }

    /// The elements in row-major order under another shape.
    #[track_caller]
    pub fn reshape(&self, shape: impl Into<Shape>) -> Node {
        let attrs = [("shape", Arg::from(shape.into()))];
        self.graph.call("reshape", &[self.into()], &attrs, Location::caller())
    }

    /// Repeats along axes of size one, and new leading ones, up to a shape.
    #[track_caller]
    pub fn broadcast(&self, shape: impl Into<Shape>) -> Node {
        let attrs = [("shape", Arg::from(shape.into()))];
        self.graph.call("broadcast", &[self.into()], &attrs, Location::caller())
    }

    /// Reorders axes: axis `i` of the result is axis `perm[i]` of this.
    #[track_caller]
    pub fn transpose(&self, perm: &[i64]) -> Node {
        let attrs = [("perm", Arg::from(perm))];
        self.graph.call("transpose", &[self.into()], &attrs, Location::caller())
    }

    /// Elements `starts` to `ends` (excluded) of each axis.
    #[track_caller]
    pub fn slice(&self, starts: impl Into<Shape>, ends: impl Into<Shape>) -> Node {
        let ends = ends.into();
        let strides = Arg::List(vec!["1".into(); self.ty().map_or(0, |t| t.rank())]);
        let attrs =
            [("starts", Arg::from(starts.into())), ("ends", Arg::from(ends)), ("strides", strides)];
        self.graph.call("slice", &[self.into()], &attrs, Location::caller())
    }

    /// Adds `low` zeros before and `high` after each axis.
    #[track_caller]
    pub fn pad(&self, low: impl Into<Shape>, high: impl Into<Shape>, value: f64) -> Node {
        let attrs = [
            ("low", Arg::from(low.into())),
            ("high", Arg::from(high.into())),
            ("value", value.into()),
        ];
        self.graph.call("pad", &[self.into()], &attrs, Location::caller())
    }

    /// Reverses the order along axes.
    #[track_caller]
    pub fn reverse(&self, axes: &[i64]) -> Node {
        let attrs = [("axes", Arg::from(axes))];
        self.graph.call("reverse", &[self.into()], &attrs, Location::caller())
    }

    /// The slices `ids` points at, along an axis.
    #[track_caller]
    pub fn gather(&self, ids: &Node, axis: i64) -> Node {
        let attrs = [("axis", Arg::Int(axis))];
        self.graph.call("gather", &[self.into(), ids.into()], &attrs, Location::caller())
    }

    /// Elements along an axis, by an index for each row: `take_along_axis` of NumPy.
    #[track_caller]
    pub fn take_along(&self, ids: &Node, axis: i64) -> Node {
        let attrs = [("axis", Arg::Int(axis))];
        self.graph.call("take_along", &[self.into(), ids.into()], &attrs, Location::caller())
    }

    /// The `k` largest elements along an axis, the largest first.
    #[track_caller]
    pub fn top_k(&self, k: i64, axis: i64) -> Node {
        let attrs = [("k", Arg::Int(k)), ("axis", Arg::Int(axis))];
        self.graph.call("top_k", &[self.into()], &attrs, Location::caller())
    }

    /// Where the `k` largest elements along an axis are, the largest first.
    #[track_caller]
    pub fn top_k_index(&self, k: i64, axis: i64) -> Node {
        let attrs = [("k", Arg::Int(k)), ("axis", Arg::Int(axis))];
        self.graph.call("top_k_index", &[self.into()], &attrs, Location::caller())
    }

    /// This with `updates` added to the rows `ids` points at.
    #[track_caller]
    pub fn scatter_add(&self, ids: &Node, updates: &Node) -> Node {
        let operands = [self.into(), ids.into(), updates.into()];
        self.graph.call("scatter_add", &operands, &[], Location::caller())
    }

    /// The box of `sizes` that starts where `starts` (one scalar an axis) say.
    #[track_caller]
    pub fn dynamic_slice(&self, starts: &[&Node], sizes: impl Into<Shape>) -> Node {
        let mut operands: Vec<Operand> = vec![self.into()];
        operands.extend(starts.iter().map(|n| Operand::from(*n)));
        let attrs = [("sizes", Arg::from(sizes.into()))];
        self.graph.call("dynamic_slice", &operands, &attrs, Location::caller())
    }

    /// This with `update` written where `starts` (one scalar an axis) say.
    #[track_caller]
    pub fn dynamic_update_slice(&self, update: &Node, starts: &[&Node]) -> Node {
        let mut operands: Vec<Operand> = vec![self.into(), update.into()];
        operands.extend(starts.iter().map(|n| Operand::from(*n)));
        self.graph.call("dynamic_update_slice", &operands, &[], Location::caller())
    }

    /// A new last axis that is 1 at the index and 0 elsewhere.
    #[track_caller]
    pub fn one_hot(&self, depth: i64, dtype: DType) -> Node {
        let attrs = [("depth", depth.into()), ("dtype", dtype.into())];
        self.graph.call("one_hot", &[self.into()], &attrs, Location::caller())
    }

    /// This kept within two bounds.
    #[track_caller]
    pub fn clamp(&self, lo: impl Into<Operand>, hi: impl Into<Operand>) -> Node {
        let operands = [self.into(), lo.into(), hi.into()];
        self.graph.call("clamp", &operands, &[], Location::caller())
    }

    /// `a` where this is true, `b` elsewhere.
    #[track_caller]
    pub fn select(&self, a: impl Into<Operand>, b: impl Into<Operand>) -> Node {
        let operands = [self.into(), a.into(), b.into()];
        self.graph.call("select", &operands, &[], Location::caller())
    }

    /// This followed by others along an axis.
    #[track_caller]
    pub fn concat(&self, others: &[&Node], axis: i64) -> Node {
        let mut operands: Vec<Operand> = vec![self.into()];
        operands.extend(others.iter().map(|n| Operand::from(*n)));
        self.graph.call("concat", &operands, &[("axis", axis.into())], Location::caller())
    }
}
