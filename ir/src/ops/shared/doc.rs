//! The op reference, generated from the op table.
//!
//! `docs/ops.md` is [`reference()`], kept up to date by a test.

use crate::attr::AttrKind;
use crate::lower::Lower;
use crate::op::{AttrSpec, Effect, Grad, Operand, Stage};
use crate::{Attr, Op};
use std::fmt::Write;

/// Headings of the reference, in order.
const SECTIONS: &[&str] = &[
    "Elementwise",
    "Reductions and scans",
    "Shapes and movement",
    "Contractions and windows",
    "Random numbers",
    "State and effects",
    "Control flow",
    "Gradients",
];

/// The whole reference, as Markdown.
pub fn reference() -> String {
    let mut out = String::from(
        "# Op reference\n\n\
         Generated from the op table; do not edit.\n\n\
         Operands come first, by position; attributes by name. In source text shapes broadcast \
         as in NumPy, axes may be negative, and attributes with a default may be left out. \
         Integers wrap. `f16` and `bf16` compute in `f32` and round after every op.\n",
    );
    for section in SECTIONS {
        let mut ops: Vec<Op> =
            Op::ALL.iter().copied().filter(|op| self::section(*op) == *section).collect();
        ops.sort_by_key(|op| op.name());
        let _ = write!(out, "\n## {section}\n");
        for op in ops {
            let _ = write!(out, "\n{}", entry(op));
        }
    }
    out
}

/// The heading an op stands under.
pub fn section(op: Op) -> &'static str {
    let def = op.def();
    let has = |name: &str| def.attrs.iter().any(|a| a.name == name);
    let at = match def.lower {
        _ if def.stage == Stage::Source => 7,
        _ if !def.regions.is_empty() => 6,
        _ if def.effect != Effect::Pure => 5,
        _ if has("stream") => 4,
        Lower::Contract(_) | Lower::AddRows => 3,
        _ if has("window") => 3,
        Lower::Reduce(_) | Lower::Scan(_) => 1,
        Lower::Expand(_) if has("axes") => 1,
        Lower::Map(_) => 0,
        _ => 2,
    };
    SECTIONS[at]
}

/// What there is to know about one op, as Markdown.
pub fn entry(op: Op) -> String {
    let def = op.def();
    let mut out = format!("### `{}`\n\n{}\n", signature(op), def.summary);
    if !def.operands.is_empty() || !def.attrs.is_empty() {
        out.push('\n');
    }
    for Operand { name, kind, variadic } in def.operands {
        let many = if *variadic { ", any number" } else { "" };
        let _ = writeln!(out, "- `{name}`: {}{many}", kind.describe());
    }
    for AttrSpec { name, kind, default, doc } in def.attrs {
        let default = match default {
            Some(value) => format!(" (default `{}`)", show(&value())),
            None => String::new(),
        };
        let _ = writeln!(out, "- `{name}:` {doc}; {}{default}", describe(*kind));
    }
    let gradient = match def.grad {
        Grad::Vjp(_) => return out,
        Grad::Zero(why) => format!("Gradients stop here: {why}."),
        Grad::Undefined(why) => format!("Not differentiable: {why}."),
        Grad::Structural => return out,
    };
    let _ = write!(out, "\n{gradient}\n");
    out
}

/// `sum(x, axes:, keep:)`.
pub fn signature(op: Op) -> String {
    let def = op.def();
    let operands =
        def.operands.iter().map(|o| format!("{}{}", o.name, if o.variadic { ".." } else { "" }));
    let attrs = def.attrs.iter().map(|a| format!("{}:", a.name));
    let var = matches!(def.effect, Effect::Read | Effect::Write).then(|| "var".to_string());
    let args: Vec<String> = var.into_iter().chain(operands).chain(attrs).collect();
    let regions: Vec<String> = def.regions.iter().map(|r| format!(" {r} {{ .. }}")).collect();
    format!("{}({}){}", def.name, args.join(", "), regions.concat())
}

fn describe(kind: AttrKind) -> &'static str {
    match kind {
        AttrKind::Int => "an integer",
        AttrKind::Ints => "a list of integers",
        AttrKind::Float => "a float",
        AttrKind::Bool => "true or false",
        AttrKind::Str => "a string",
        AttrKind::DType => "an element type",
        AttrKind::Shape => "a list of sizes",
        AttrKind::Offsets => "a list of sizes, which may be negative",
        AttrKind::Tensor => "a tensor",
    }
}

fn show(attr: &Attr) -> String {
    let list = |items: Vec<String>| format!("[{}]", items.join(", "));
    match attr {
        Attr::Int(v) => v.to_string(),
        Attr::Ints(v) => list(v.iter().map(i64::to_string).collect()),
        Attr::Float(bits) => format!("{:?}", f64::from_bits(*bits)),
        Attr::Bool(v) => v.to_string(),
        Attr::Str(v) => format!("{v:?}"),
        Attr::DType(v) => v.to_string(),
        Attr::Shape(v) => list(v.iter().map(|d| d.to_string()).collect()),
        Attr::Tensor(v) => format!("{v:?}"),
    }
}
