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
use crate::{Attrs, Dim, Func, Graph, Node, Op, TensorType};
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
    let mut out = func.needs.clone();
    let mut seen: BTreeSet<(Dim, String)> =
        out.iter().map(|r| (r.value.clone(), r.message.clone())).collect();
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

/// Notes what the entries of a graph need as they are written. Which sizes a call
/// accepts is then no matter of what passes make of its nodes: a slice of zeros is
/// zeros, but must lie within them all the same.
pub fn keep(graph: &mut Graph) {
    for func in &mut graph.entries {
        func.needs = requirements(func, &graph.dims);
    }
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

/// What an op is asked about.
pub struct NeedsCx<'a> {
    pub op: Op,
    pub operands: &'a [TensorType],
    pub attrs: &'a Attrs,
}

/// Tells each size that must not be negative, and what is wrong if it is.
pub type NeedsFn = fn(&NeedsCx<'_>, &mut dyn FnMut(Dim, String));

/// For ops that need nothing but the types they were inferred with.
pub fn nothing(_: &NeedsCx<'_>, _: &mut dyn FnMut(Dim, String)) {}

fn of_node(func: &Func, node: &Node, need: &mut dyn FnMut(Dim, String)) {
    let operands: Vec<TensorType> = node.operands.iter().map(|v| func.ty(*v).clone()).collect();
    let cx = NeedsCx { op: node.op, operands: &operands, attrs: &node.attrs };
    (node.op.def().needs)(&cx, need);
    let op = node.op.name();
    for &result in &node.results {
        for (axis, size) in func.ty(result).shape.iter().enumerate() {
            need(
                size.clone(),
                format!("`{op}` would give axis {axis} a size of {size}, below zero"),
            );
        }
    }
}

/// A box of these sizes fits the first operand.
pub fn box_fits(cx: &NeedsCx<'_>, sizes: &[Dim], need: &mut dyn FnMut(Dim, String)) {
    let op = cx.op.name();
    for (axis, (whole, part)) in cx.operands[0].shape.iter().zip(sizes).enumerate() {
        need(
            whole.clone() - part.clone(),
            format!("`{op}` needs {part} elements of axis {axis}, which has {whole}"),
        );
    }
}

/// At least one window fits the image.
pub(crate) fn window_fits(
    cx: &NeedsCx<'_>,
    window: &Window,
    image: &[Dim],
    need: &mut dyn FnMut(Dim, String),
) {
    let op = cx.op.name();
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
