//! The closed set of scalar operations.

use super::Elementary;

/// Register types. Narrow element types are widened on load.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ScalarType {
    F32,
    F64,
    I32,
    I64,
    Bool,
}

impl ScalarType {
    /// The register type that holds elements of `dtype`.
    pub fn of(dtype: crate::DType) -> ScalarType {
        use crate::DType::*;
        match dtype {
            F32 | F16 | BF16 => ScalarType::F32,
            F64 => ScalarType::F64,
            I8 | U8 | I32 => ScalarType::I32,
            I64 => ScalarType::I64,
            Bool => ScalarType::Bool,
        }
    }

    pub fn is_float(self) -> bool {
        matches!(self, ScalarType::F32 | ScalarType::F64)
    }

    pub fn name(self) -> &'static str {
        match self {
            ScalarType::F32 => "f32",
            ScalarType::F64 => "f64",
            ScalarType::I32 => "i32",
            ScalarType::I64 => "i64",
            ScalarType::Bool => "bool",
        }
    }
}

/// A constant; floats by their bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Scalar {
    F32(u32),
    F64(u64),
    I32(i32),
    I64(i64),
    Bool(bool),
}

impl Scalar {
    pub fn ty(self) -> ScalarType {
        match self {
            Scalar::F32(_) => ScalarType::F32,
            Scalar::F64(_) => ScalarType::F64,
            Scalar::I32(_) => ScalarType::I32,
            Scalar::I64(_) => ScalarType::I64,
            Scalar::Bool(_) => ScalarType::Bool,
        }
    }

    /// `value` as a constant of type `ty`: rounded, or truncated and wrapped.
    pub fn of(ty: ScalarType, value: f64) -> Scalar {
        match ty {
            ScalarType::F32 => Scalar::F32((value as f32).to_bits()),
            ScalarType::F64 => Scalar::F64(value.to_bits()),
            ScalarType::I32 => Scalar::I32(value as i64 as i32),
            ScalarType::I64 => Scalar::I64(value as i64),
            ScalarType::Bool => Scalar::Bool(value != 0.0),
        }
    }
}

/// Operations on registers. All operands have one type and so has the result,
/// unless said otherwise. Integer arithmetic wraps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ScalarOp {
    Add,
    Sub,
    Mul,
    /// Integers: truncates toward zero; by zero gives zero; MIN/-1 wraps.
    Div,
    /// Sign of the dividend; by zero gives zero. Integers only: `rem` of floats
    /// is expanded.
    Rem,
    Neg,
    Abs,
    /// Floats: NaN if either is NaN.
    Min,
    Max,
    /// `a * b + c`, rounded once. Floats only.
    Fma,
    Sqrt,
    Floor,
    Ceil,
    /// To nearest, ties to even.
    RoundEven,
    Trunc,
    /// Bitwise on integers, logical on bool.
    And,
    Or,
    Xor,
    Not,
    /// Shift amount is taken modulo the width. Integers only.
    Shl,
    ShrArith,
    ShrLogic,
    /// Comparisons give bool. Floats: false with NaN, but `Ne` true.
    Eq,
    Ne,
    Lt,
    Le,
    /// `(bool, T, T) -> T`
    Select,
    /// Numeric conversion to the register type of the result. Float to integer
    /// truncates and saturates, NaN gives 0; bool gives 0 or 1; to bool is
    /// `!= 0`.
    Convert,
    /// Same bits, other type of the same width.
    Bitcast,
    /// Rounds an f32 to the precision of f16 or bf16, or wraps an i32 to i8 or
    /// u8, staying in the same register type. Expanded before code generation.
    RoundF16,
    RoundBF16,
    WrapI8,
    WrapU8,
    /// `a * 2^b`, rounded once, for an integral b between -169 and 169 (f64: 1364) and an
    /// a between 1/2 and 2. Expanded for backends that have no instruction for it.
    Scale,
    /// Legal until `kernel::math::expand` replaces it by the operations above, once,
    /// for all backends.
    Elementary(Elementary),
}

impl ScalarOp {
    /// What it takes, in rough units: one is a simple vector instruction.
    pub fn cost(self) -> u32 {
        use ScalarOp::*;
        match self {
            Div | Rem => 5,
            Sqrt => 10,
            RoundF16 | RoundBF16 => 4,
            Scale => 7,
            Elementary(function) => function.def().cost,
            _ => 1,
        }
    }
}
