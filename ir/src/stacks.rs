//! Stacks of a call, by name: `stack_push` and `stack_pop`.
//!
//! A stack is declared by its use. What is put on one stack has one type, so
//! that its items have one size wherever the program runs.

use crate::diag::{Diag, Span};
use crate::{Func, Node, Op, TensorType};
use std::collections::BTreeMap;

/// The stack a node works on.
pub fn name(node: &Node) -> Option<&str> {
    matches!(node.op, Op::StackPush | Op::StackPop).then(|| node.attrs.str("stack"))
}

/// The type of what the node puts on its stack, or takes off it.
pub fn item<'a>(func: &'a Func, node: &Node) -> Option<&'a TensorType> {
    name(node)?;
    node.operands.iter().chain(&node.results).next().map(|v| func.ty(*v))
}

/// Stacks whose uses do not agree on a type.
pub fn check(func: &Func) -> Vec<Diag> {
    let mut first: BTreeMap<String, (TensorType, Span)> = BTreeMap::new();
    let mut out = vec![];
    func.walk(&mut |_, node| {
        let (Some(name), Some(ty)) = (name(node), item(func, node)) else { return };
        match first.get(name) {
            None => {
                first.insert(name.to_string(), (ty.clone(), node.span));
            }
            Some((known, _)) if known == ty => {}
            Some((known, span)) => out.push(
                Diag::error("E0316", format!("the stack `{name}` holds {known} and {ty}"))
                    .at(node.span, format!("{ty} here"))
                    .also(*span, format!("{known} here"))
                    .help("use another name for the other type"),
            ),
        }
    });
    out
}
