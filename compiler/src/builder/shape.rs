//! What may stand for a shape, an operand, an attribute or an initial value in a
//! call of the builder.

use super::{GraphBuilder, Node, Piece};
use crate::value::{Element, Feed};
use ndarray::{ArrayBase, Data, Dimension};
use std::fmt;
use tfc_ir::{DType, Dim, Tensor};

/// One size: a number or a run-time dim.
#[derive(Clone, Debug)]
pub struct Size(Result<Dim, String>);

impl Size {
    /// The size as an expression.
    pub fn dim(&self) -> Result<Dim, String> {
        self.0.clone()
    }
}

impl From<&str> for Size {
    fn from(name: &str) -> Size {
        Size(if is_name(name) { Ok(Dim::sym(name)) } else { Err(format!("{name:?} is no dim")) })
    }
}

impl From<Dim> for Size {
    fn from(dim: Dim) -> Size {
        Size(Ok(dim))
    }
}

impl From<&Size> for Size {
    fn from(size: &Size) -> Size {
        size.clone()
    }
}

macro_rules! size_from_int {
    ($($t:ty),*) => {$(
        impl From<$t> for Size {
            fn from(value: $t) -> Size {
                Size(match i64::try_from(value) {
                    Ok(v) if v >= 0 => Ok(Dim::constant(v)),
                    _ => Err(format!("{value} is no size")),
                })
            }
        }
        impl From<$t> for Shape {
            fn from(value: $t) -> Shape {
                Shape(vec![value.into()])
            }
        }
    )*};
}
size_from_int!(i32, i64, u32, u64, usize);

/// A list of sizes: from `()`, a size, a tuple or an array of sizes.
#[derive(Clone, Debug)]
pub struct Shape(Vec<Size>);

impl Shape {
    pub(super) fn dims(&self) -> Result<Vec<Dim>, String> {
        self.0.iter().map(Size::dim).collect()
    }
}

impl From<()> for Shape {
    fn from((): ()) -> Shape {
        Shape(vec![])
    }
}

impl From<&str> for Shape {
    fn from(name: &str) -> Shape {
        Shape(vec![name.into()])
    }
}

impl From<Size> for Shape {
    fn from(size: Size) -> Shape {
        Shape(vec![size])
    }
}

impl From<&Size> for Shape {
    fn from(size: &Size) -> Shape {
        Shape(vec![size.clone()])
    }
}

impl From<Vec<Dim>> for Shape {
    fn from(dims: Vec<Dim>) -> Shape {
        Shape(dims.into_iter().map(Size::from).collect())
    }
}

impl<T: Into<Size> + Clone> From<&[T]> for Shape {
    fn from(sizes: &[T]) -> Shape {
        Shape(sizes.iter().cloned().map(Into::into).collect())
    }
}

impl<T: Into<Size>, const N: usize> From<[T; N]> for Shape {
    fn from(sizes: [T; N]) -> Shape {
        Shape(sizes.into_iter().map(Into::into).collect())
    }
}

macro_rules! shape_from_tuple {
    ($($name:ident)+) => {
        impl<$($name: Into<Size>),+> From<($($name,)+)> for Shape {
            #[allow(non_snake_case)]
            fn from(($($name,)+): ($($name,)+)) -> Shape {
                Shape(vec![$($name.into()),+])
            }
        }
    };
}
shape_from_tuple!(A);
shape_from_tuple!(A B);
shape_from_tuple!(A B C);
shape_from_tuple!(A B C D);
shape_from_tuple!(A B C D E);
shape_from_tuple!(A B C D E F);

/// An operand: a node or a number, which takes the other operand's type.
#[derive(Clone)]
pub enum Operand {
    /// A value of the graph.
    Node(Node),
    /// A number.
    Float(f64),
    /// An integer.
    Int(i64),
    /// True or false.
    Bool(bool),
}

impl Operand {
    pub(super) fn piece(&self, graph: &GraphBuilder) -> Piece {
        match self {
            Operand::Node(node) => graph.piece(node),
            Operand::Float(v) => Piece::Text(float(*v)),
            Operand::Int(v) => Piece::Text(v.to_string()),
            Operand::Bool(v) => Piece::Text(v.to_string()),
        }
    }
}

impl From<&Node> for Operand {
    fn from(node: &Node) -> Operand {
        Operand::Node(node.clone())
    }
}

impl From<Node> for Operand {
    fn from(node: Node) -> Operand {
        Operand::Node(node)
    }
}

macro_rules! operand_from {
    ($($t:ty => $variant:ident),*) => {$(
        impl From<$t> for Operand {
            fn from(value: $t) -> Operand {
                Operand::$variant(value.into())
            }
        }
    )*};
}
operand_from!(f32 => Float, f64 => Float, i32 => Int, i64 => Int, bool => Bool);

/// An attribute's value.
#[derive(Clone, Debug)]
pub enum Arg {
    /// An integer.
    Int(i64),
    /// A number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A string.
    Str(String),
    /// Numbers or sizes, as text.
    List(Vec<String>),
    /// An element type.
    DType(DType),
    /// A value of the graph: a learning rate that changes.
    Node(Node),
    /// A list of values of the graph.
    Nodes(Vec<Node>),
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Int(v) => write!(f, "{v}"),
            Arg::Float(v) => f.write_str(&float(*v)),
            Arg::Bool(v) => write!(f, "{v}"),
            Arg::Str(v) => f.write_str(&tfc_ir::text::print::quote(v)),
            Arg::List(v) => write!(f, "[{}]", v.join(", ")),
            Arg::DType(v) => write!(f, "{v}"),
            Arg::Node(v) => f.write_str(&v.name()),
            Arg::Nodes(v) => {
                write!(f, "[{}]", v.iter().map(Node::name).collect::<Vec<_>>().join(", "))
            }
        }
    }
}

macro_rules! arg_from {
    ($($t:ty => |$v:ident| $e:expr),* $(,)?) => {$(
        impl From<$t> for Arg {
            fn from($v: $t) -> Arg {
                $e
            }
        }
    )*};
}
arg_from! {
    i32 => |v| Arg::Int(v.into()),
    i64 => |v| Arg::Int(v),
    f32 => |v| Arg::Float(v.into()),
    f64 => |v| Arg::Float(v),
    bool => |v| Arg::Bool(v),
    &str => |v| Arg::Str(v.to_string()),
    DType => |v| Arg::DType(v),
    Vec<i64> => |v| Arg::List(v.iter().map(i64::to_string).collect()),
    &[i64] => |v| Arg::List(v.iter().map(i64::to_string).collect()),
}

impl From<&Node> for Arg {
    fn from(node: &Node) -> Arg {
        Arg::Node(node.clone())
    }
}

impl From<&[&Node]> for Arg {
    fn from(nodes: &[&Node]) -> Arg {
        Arg::Nodes(nodes.iter().map(|n| (*n).clone()).collect())
    }
}

impl From<Vec<Node>> for Arg {
    fn from(nodes: Vec<Node>) -> Arg {
        Arg::Nodes(nodes)
    }
}

impl<const N: usize> From<[i64; N]> for Arg {
    fn from(values: [i64; N]) -> Arg {
        Arg::List(values.iter().map(i64::to_string).collect())
    }
}

/// Sizes as an attribute, where an op takes a shape. What is no size is written
/// as it is, for the front end to point at.
impl From<Shape> for Arg {
    fn from(shape: Shape) -> Arg {
        let text = |s: Size| s.0.map_or_else(|bad| format!("{bad:?}"), |d| d.to_string());
        Arg::List(shape.0.into_iter().map(text).collect())
    }
}

/// The first value of a variable.
#[derive(Clone, Debug)]
pub enum Init {
    /// An expression of the graph language: `zeros`, `init.glorot(seed: 1)`.
    Expr(String),
    /// Every element.
    Number(f64),
    /// Every element, exactly.
    Int(i64),
    /// The elements.
    Data(Tensor),
}

impl Init {
    /// An expression of the graph language.
    pub fn expr(text: &str) -> Init {
        Init::Expr(text.to_string())
    }

    /// All zero.
    pub fn zeros() -> Init {
        Init::expr("zeros")
    }
}

impl From<i32> for Init {
    fn from(value: i32) -> Init {
        Init::Int(value.into())
    }
}

impl From<i64> for Init {
    fn from(value: i64) -> Init {
        Init::Int(value)
    }
}

impl From<f64> for Init {
    fn from(value: f64) -> Init {
        Init::Number(value)
    }
}

impl From<Tensor> for Init {
    fn from(tensor: Tensor) -> Init {
        Init::Data(tensor)
    }
}

impl<T: Element, S: Data<Elem = T>, D: Dimension> From<&ArrayBase<S, D>> for Init {
    fn from(array: &ArrayBase<S, D>) -> Init {
        Init::Data(Feed::from(array).to_tensor())
    }
}

/// A number as a literal of `dtype`.
pub(super) fn literal(dtype: DType, value: f64) -> String {
    match dtype {
        DType::Bool => (value != 0.0).to_string(),
        d if d.is_float() => float(value),
        _ => (value as i64).to_string(),
    }
}

/// A float with a point or an exponent, so that it reads as one.
fn float(value: f64) -> String {
    match value {
        v if v.is_nan() => "nan".into(),
        f64::INFINITY => "inf".into(),
        f64::NEG_INFINITY => "-inf".into(),
        v => format!("{v:?}"),
    }
}

pub(super) fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
