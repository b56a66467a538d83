//! The op list. A new op is one file here, its name in the two lists below, and one
//! `testdata/ops/<op>.graph`.

mod shared;

pub(crate) use shared::window;
pub use shared::{bounds, doc, philox, queue, util};
use shared::{conv, pull, sizes, state};

// The ops, in alphabetical order. They are declared here rather than by the macro
// below because rustfmt does not look for modules inside macros.
mod abs;
mod acos;
mod acosh;
mod add;
mod all;
mod all_reduce;
mod and;
mod any;
mod argmax;
mod argmin;
mod argsort;
mod asin;
mod asinh;
mod assert;
mod assign;
mod assign_add;
mod assign_sub;
mod atan;
mod atan2;
mod atanh;
mod avg_pool;
mod avg_pool_grad;
mod broadcast;
mod cast;
mod cbrt;
mod ceil;
mod check_finite;
mod check_index;
mod clamp;
mod close;
mod concat;
mod constant;
mod conv2d;
mod conv2d_grad_filter;
mod conv2d_grad_input;
mod copy;
mod cos;
mod cosh;
mod cumprod;
mod cumsum;
mod custom_grad;
mod dequeue;
mod dequeue_many;
mod dim_size;
mod div;
mod dynamic_slice;
mod dynamic_update_slice;
mod enqueue;
mod enqueue_many;
mod eq;
mod erf;
mod erfc;
mod exchange;
mod exp;
mod expm1;
mod floor;
mod gather;
mod ge;
mod grad;
mod gt;
mod if_op;
mod iota;
mod is_finite;
mod is_nan;
mod le;
mod log;
mod log1p;
mod lt;
mod matmul;
mod max;
mod max_pool;
mod max_pool_grad;
mod max_pool_index;
mod max_pool_take;
mod maximum;
mod mean;
mod min;
mod minimum;
mod mul;
mod ne;
mod neg;
mod not;
mod one_hot;
mod or;
mod pad;
mod pow;
mod print;
mod prod;
mod queue_size;
mod random_bernoulli;
mod random_bits;
mod random_normal;
mod random_permutation;
mod random_truncated_normal;
mod random_uniform;
mod read;
mod recv;
mod relu;
mod rem;
mod reshape;
mod restore;
mod reverse;
mod round;
mod rsqrt;
mod save;
mod scatter_add;
mod scatter_assign;
mod scatter_assign_add;
mod select;
mod send;
mod sigmoid;
mod sign;
mod sin;
mod sinh;
mod slice;
mod sort;
mod sqrt;
mod stack_pop;
mod stack_push;
mod stop_gradient;
mod sub;
mod sum;
mod take_along;
mod tan;
mod tanh;
mod top_k;
mod top_k_index;
mod transpose;
mod trunc;
mod vjp;
mod while_op;
mod xor;

use crate::OpDef;
// What updates of variables mean, for the interpreter.
pub(crate) use check_finite::fails as is_not_finite;
pub(crate) use scatter_add::scatter;
// Where updates in place go, for lowering.
pub use dynamic_update_slice::place as update_place;

/// Makes the fieldless [`Op`] enum and the table from one list.
macro_rules! ops {
    ($($module:ident: $variant:ident,)*) => {
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
    read: Read,
    assign: Assign,
    assign_add: AssignAdd,
    assign_sub: AssignSub,
    scatter_assign: ScatterAssign,
    scatter_assign_add: ScatterAssignAdd,
    save: Save,
    restore: Restore,
    print: Print,
    assert: Assert,
    check_finite: CheckFinite,
    check_index: CheckIndex,
    enqueue: Enqueue,
    enqueue_many: EnqueueMany,
    dequeue: Dequeue,
    dequeue_many: DequeueMany,
    close: Close,
    queue_size: QueueSize,
    if_op: If,
    while_op: While,
    stack_push: StackPush,
    stack_pop: StackPop,
    grad: Grad,
    custom_grad: CustomGrad,
    // Elementwise, one operand
    neg: Neg,
    abs: Abs,
    sign: Sign,
    exp: Exp,
    expm1: Expm1,
    log: Log,
    log1p: Log1p,
    sqrt: Sqrt,
    rsqrt: Rsqrt,
    cbrt: Cbrt,
    sin: Sin,
    cos: Cos,
    tan: Tan,
    asin: Asin,
    acos: Acos,
    atan: Atan,
    sinh: Sinh,
    cosh: Cosh,
    tanh: Tanh,
    asinh: Asinh,
    acosh: Acosh,
    atanh: Atanh,
    sigmoid: Sigmoid,
    erf: Erf,
    erfc: Erfc,
    relu: Relu,
    floor: Floor,
    trunc: Trunc,
    ceil: Ceil,
    round: Round,
    not: Not,
    is_nan: IsNan,
    is_finite: IsFinite,
    cast: Cast,
    stop_gradient: StopGradient,
    copy: Copy,
    // Elementwise, several operands
    add: Add,
    sub: Sub,
    mul: Mul,
    div: Div,
    pow: Pow,
    atan2: Atan2,
    rem: Rem,
    maximum: Maximum,
    minimum: Minimum,
    clamp: Clamp,
    eq: Eq,
    ne: Ne,
    lt: Lt,
    le: Le,
    gt: Gt,
    ge: Ge,
    and: And,
    or: Or,
    xor: Xor,
    select: Select,
    // Reductions and scans
    sum: Sum,
    mean: Mean,
    prod: Prod,
    max: ReduceMax,
    min: ReduceMin,
    any: Any,
    all: All,
    argmax: ArgMax,
    argmin: ArgMin,
    cumsum: CumSum,
    cumprod: CumProd,
    // Sizes
    dim_size: DimSize,
    // Random numbers
    random_bits: RandomBits,
    random_uniform: RandomUniform,
    random_normal: RandomNormal,
    random_permutation: RandomPermutation,
    random_truncated_normal: RandomTruncatedNormal,
    random_bernoulli: RandomBernoulli,
    // Movement
    broadcast: Broadcast,
    reshape: Reshape,
    transpose: Transpose,
    slice: Slice,
    concat: Concat,
    pad: Pad,
    reverse: Reverse,
    iota: Iota,
    gather: Gather,
    dynamic_slice: DynamicSlice,
    dynamic_update_slice: DynamicUpdateSlice,
    one_hot: OneHot,
    take_along: TakeAlong,
    // Sorting
    argsort: ArgSort,
    sort: Sort,
    top_k: TopK,
    top_k_index: TopKIndex,
    // Contractions
    matmul: MatMul,
    scatter_add: ScatterAdd,
    conv2d: Conv2d,
    conv2d_grad_input: Conv2dGradInput,
    conv2d_grad_filter: Conv2dGradFilter,
    // Several processes
    all_reduce: AllReduce,
    exchange: Exchange,
    send: Send,
    recv: Recv,
    // Pooling
    max_pool: MaxPool,
    max_pool_index: MaxPoolIndex,
    max_pool_grad: MaxPoolGrad,
    max_pool_take: MaxPoolTake,
    avg_pool: AvgPool,
    avg_pool_grad: AvgPoolGrad,
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
