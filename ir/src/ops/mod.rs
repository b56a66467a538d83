//! The op list. A new op is one file here, one line below, and one
//! `testdata/ops/<op>.graph`.

mod conv;
pub mod doc;
pub mod philox;
mod pull;
pub mod queue;
mod sizes;
mod state;
pub mod util;
pub(crate) mod window;

use crate::OpDef;
// What updates of variables mean, for the interpreter.
pub(crate) use scatter_add::scatter;
// Where updates in place go, for lowering.
pub use dynamic_update_slice::place as update_place;

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
    sin: Sin,
    cos: Cos,
    tanh: Tanh,
    sigmoid: Sigmoid,
    erf: Erf,
    relu: Relu,
    floor: Floor,
    ceil: Ceil,
    round: Round,
    not: Not,
    is_nan: IsNan,
    is_finite: IsFinite,
    cast: Cast,
    stop_gradient: StopGradient,
    // Elementwise, several operands
    add: Add,
    sub: Sub,
    mul: Mul,
    div: Div,
    pow: Pow,
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
    // Contractions
    matmul: MatMul,
    scatter_add: ScatterAdd,
    conv2d: Conv2d,
    conv2d_grad_input: Conv2dGradInput,
    conv2d_grad_filter: Conv2dGradFilter,
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
