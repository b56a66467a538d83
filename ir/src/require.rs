//! What must hold for run-time dims, beyond what types can say.
//!
//! Inference refuses what is wrong for every value of a dim. What is wrong only
//! for some (a slice `0..3` of an axis of size `B`, a window over an image of
//! height `H`) becomes a [`Requirement`]: it is checked once when an entry is
//! called, before anything runs, so that no kernel needs to check its indices.

use crate::diag::Span;
use crate::dim::Atom;
use crate::graph::DimDecl;
use crate::ops::window::Window;
use crate::{Dim, Func, Node, Op, TensorType};
use std::collections::BTreeSet;

/// `value` must not be negative.
#[derive(Clone, Debug, PartialEq)]
pub struct Requirement {
    pub value: Dim,
    /// What is wrong if it is, in the user's words.
    pub message: String,
    pub span: Span,
}

/// What a call of `func` needs besides the declared ranges of dims, in the
/// order of the nodes that need it.
pub fn requirements(func: &Func, dims: &[DimDecl]) -> Vec<Requirement> {
    let mut out = vec![];
    let mut seen = BTreeSet::new();
    func.walk(&mut |_, node| {
        let mut need = |value: Dim, message: String| {
            if !never_negative(&value, dims) && seen.insert((value.clone(), message.clone())) {
                out.push(Requirement { value, message, span: node.span });
            }
        };
        of_node(func, node, &mut need);
    });
    out
}

/// Whether a size cannot be negative, given the declared ranges of dims.
pub fn never_negative(value: &Dim, dims: &[DimDecl]) -> bool {
    if value.is_never_negative() {
        return true;
    }
    // Count each dim from its smallest value up, or where more of it makes the
    // value smaller, from its largest value down.
    let shrinks = |name: &str| {
        value.terms().iter().any(|(atoms, factor)| {
            let named = |atom: &Atom| match atom {
                Atom::Sym(n) => &**n == name,
                Atom::FloorDiv(d, _) => d.syms().iter().any(|n| &**n == name),
            };
            *factor < 0 && atoms.iter().any(named)
        })
    };
    let shifted = value.substitute(&|name| {
        let decl = dims.iter().find(|d| &*d.name == name)?;
        if shrinks(name) && decl.max < i64::MAX {
            Some(Dim::constant(decl.max) - Dim::sym(name))
        } else {
            Some(Dim::constant(decl.min) + Dim::sym(name))
        }
    });
    shifted.is_never_negative()
}

fn of_node(func: &Func, node: &Node, need: &mut dyn FnMut(Dim, String)) {
    let op = node.op.name();
    let operand = |i: usize| func.ty(node.operands[i]);
    match node.op {
        Op::Slice => slice(node, operand(0), need),
        Op::DynamicSlice => fits(op, operand(0), node.attrs.shape("sizes"), need),
        Op::DynamicUpdateSlice => fits(op, operand(0), &operand(1).shape, need),
        Op::Conv2d | Op::Conv2dGradInput => {
            let size = [2, 3].map(|a| operand(1).shape[a].as_const().unwrap_or(1));
            let image =
                if node.op == Op::Conv2d { &operand(0).shape } else { node.attrs.shape("shape") };
            window(op, &Window::conv(&node.attrs, size), image, need);
        }
        Op::Conv2dGradFilter => {
            let size = match *node.attrs.ints("kernel") {
                [h, w] => [h, w],
                _ => [1, 1],
            };
            window(op, &Window::conv(&node.attrs, size), &operand(0).shape, need);
        }
        Op::MaxPool | Op::MaxPoolIndex | Op::MaxPoolTake | Op::AvgPool => {
            window(op, &Window::pool(&node.attrs), &operand(0).shape, need);
        }
        Op::MaxPoolGrad | Op::AvgPoolGrad => {
            window(op, &Window::pool(&node.attrs), node.attrs.shape("shape"), need);
        }
        _ => {}
    }
    for &result in &node.results {
        for (axis, size) in func.ty(result).shape.iter().enumerate() {
            need(
                size.clone(),
                format!("`{op}` would give axis {axis} a size of {size}, below zero"),
            );
        }
    }
}

fn slice(node: &Node, x: &TensorType, need: &mut dyn FnMut(Dim, String)) {
    for (axis, size) in x.shape.iter().enumerate() {
        let (start, end) = (&node.attrs.shape("starts")[axis], &node.attrs.shape("ends")[axis]);
        let stride = node.attrs.ints("strides")[axis];
        let what = format!("slice {start}..{end} of axis {axis}, which has size {size}");
        need(start.clone(), format!("{what}, starts before the first element"));
        // The index after the last element taken: `end`, or less with strides.
        let count = (end.clone() - start.clone()).ceil_div(stride);
        let last = start.clone() + (count - Dim::constant(1)) * Dim::constant(stride);
        let room = size.clone() - last - Dim::constant(1);
        // Where `end` itself fits there is nothing to ask, and rounding may
        // hide that.
        if !(size.clone() - end.clone()).is_never_negative() {
            need(room, format!("{what}, ends behind the last element"));
        }
    }
}

fn fits(op: &str, x: &TensorType, sizes: &[Dim], need: &mut dyn FnMut(Dim, String)) {
    for (axis, (whole, part)) in x.shape.iter().zip(sizes).enumerate() {
        need(
            whole.clone() - part.clone(),
            format!("`{op}` needs {part} elements of axis {axis}, which has {whole}"),
        );
    }
}

fn window(op: &str, window: &Window, image: &[Dim], need: &mut dyn FnMut(Dim, String)) {
    for axis in 0..2 {
        let what = ["height", "width"][axis];
        let size = &image[2 + axis];
        need(
            window.room(axis, size),
            format!(
                "a window of {what} {} of `{op}` does not fit an image of {what} {size}, padding \
                 included",
                window.reach(axis)
            ),
        );
    }
}
