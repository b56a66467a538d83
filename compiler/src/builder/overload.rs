//! `+ - * / % -` and `!` on nodes.

use super::{Node, Operand, Piece};
use std::ops;
use std::panic::Location;

macro_rules! infix {
    ($($trait:ident $method:ident $sign:literal;)*) => {$(
        impl<R: Into<Operand>> ops::$trait<R> for &Node {
            type Output = Node;
            #[track_caller]
            fn $method(self, rhs: R) -> Node {
                binary(self.into(), $sign, rhs.into())
            }
        }

        impl<R: Into<Operand>> ops::$trait<R> for Node {
            type Output = Node;
            #[track_caller]
            fn $method(self, rhs: R) -> Node {
                binary(self.into(), $sign, rhs.into())
            }
        }

        infix!(@numbers $trait $method $sign f32 f64 i32 i64);
    )*};
    (@numbers $trait:ident $method:ident $sign:literal $($t:ty)*) => {$(
        impl ops::$trait<&Node> for $t {
            type Output = Node;
            #[track_caller]
            fn $method(self, rhs: &Node) -> Node {
                binary(self.into(), $sign, rhs.into())
            }
        }

        impl ops::$trait<Node> for $t {
            type Output = Node;
            #[track_caller]
            fn $method(self, rhs: Node) -> Node {
                binary(self.into(), $sign, rhs.into())
            }
        }
    )*};
}

infix! {
    Add add "+";
    Sub sub "-";
    Mul mul "*";
    Div div "/";
    Rem rem "%";
}

#[track_caller]
pub(super) fn binary(lhs: Operand, sign: &str, rhs: Operand) -> Node {
    let graph = match (&lhs, &rhs) {
        (Operand::Node(n), _) | (_, Operand::Node(n)) => n.graph.clone(),
        // One side of every operator above is a node.
        _ => unreachable!("an operator of two numbers is Rust's own"),
    };
    let text = vec![lhs.piece(&graph), Piece::Text(format!(" {sign} ")), rhs.piece(&graph)];
    graph.expression(text, Location::caller())
}

impl ops::Neg for &Node {
    type Output = Node;
    #[track_caller]
    fn neg(self) -> Node {
        Node::neg(self)
    }
}

impl ops::Neg for Node {
    type Output = Node;
    #[track_caller]
    fn neg(self) -> Node {
        Node::neg(&self)
    }
}

impl ops::Not for &Node {
    type Output = Node;
    #[track_caller]
    fn not(self) -> Node {
        Node::not(self)
    }
}

impl ops::Not for Node {
    type Output = Node;
    #[track_caller]
    fn not(self) -> Node {
        Node::not(&self)
    }
}
