//! `tfc ops`: the op reference, from the table.

use super::args;
use crate::error::Result;
use std::fmt::Write;
use tfc_ir::diag::Diag;
use tfc_ir::op::{AttrSpec, Effect, Grad, Kind, OpDef, Stage};
use tfc_ir::{Attr, Op};

pub fn run(args: &args::Ops) -> Result<String> {
    match &args.name {
        Some(name) => match Op::from_name(name) {
            Some(op) if args.markdown => Ok(markdown_one(op.def())),
            Some(op) => Ok(describe(op.def())),
            None => Err(unknown(name).into()),
        },
        None if args.markdown => Ok(markdown()),
        None => Ok(list()),
    }
}

fn unknown(name: &str) -> Diag {
    let diag = Diag::error("E0902", format!("there is no op named `{name}`"));
    match super::nearest(name, Op::ALL.iter().map(|op| op.name())) {
        Some(near) => diag.help(format!("did you mean `{near}`?")),
        None => diag.help("`tfc ops` lists them"),
    }
}

fn sorted() -> Vec<&'static OpDef> {
    let mut defs: Vec<&OpDef> = Op::ALL.iter().map(|op| op.def()).collect();
    defs.sort_by_key(|d| d.name);
    defs
}

fn list() -> String {
    let defs = sorted();
    let width = defs.iter().map(|d| d.name.len()).max().unwrap_or(0);
    let mut out = String::new();
    for def in defs {
        let _ = writeln!(out, "{:width$}  {}", def.name, def.summary);
    }
    out
}

fn signature(def: &OpDef) -> String {
    let mut parts: Vec<String> = def
        .operands
        .iter()
        .map(|o| if o.variadic { format!("{}, ..", o.name) } else { o.name.to_string() })
        .collect();
    parts.extend(def.attrs.iter().map(|a| match a.default {
        Some(value) => format!("{}: {}", a.name, attr_text(&value())),
        None => format!("{}: ..", a.name),
    }));
    format!("{}({})", def.name, parts.join(", "))
}

fn describe(def: &OpDef) -> String {
    let mut out = format!("{}\n\n  {}\n", def.summary, signature(def));
    if !def.operands.is_empty() {
        out.push_str("\nOperands\n");
        let width = def.operands.iter().map(|o| o.name.len()).max().unwrap_or(0);
        for o in def.operands {
            let many = if o.variadic { ", any number" } else { "" };
            let _ = writeln!(out, "  {:width$}  {}{many}", o.name, kind(o.kind));
        }
    }
    if !def.attrs.is_empty() {
        out.push_str("\nAttributes\n");
        let width = def.attrs.iter().map(|a| a.name.len()).max().unwrap_or(0);
        for a in def.attrs {
            let _ = writeln!(out, "  {:width$}  {}{}", a.name, a.doc, default_text(a));
        }
    }
    if !def.regions.is_empty() {
        let _ = writeln!(out, "\nRegions\n  {}", def.regions.join(", "));
    }
    let _ = writeln!(out, "\n{}", facts(def).join("\n"));
    out
}

fn kind(kind: Kind) -> &'static str {
    kind.describe()
}

fn default_text(spec: &AttrSpec) -> String {
    match spec.default {
        Some(value) => format!(" (default {})", attr_text(&value())),
        None => " (required)".to_string(),
    }
}

fn facts(def: &OpDef) -> Vec<String> {
    let mut out = vec![];
    match def.effect {
        Effect::Pure => {}
        Effect::Read => out.push("Effect: reads a variable.".to_string()),
        Effect::Write => out.push("Effect: writes a variable.".to_string()),
        Effect::Io => out.push("Effect: visible outside the program.".to_string()),
        Effect::Regions => out.push("Effect: that of its regions.".to_string()),
    }
    if def.stage == Stage::Source {
        out.push("Replaced before the program is optimized.".to_string());
    }
    out.push(match &def.grad {
        Grad::Vjp(_) => "Gradient: defined.".to_string(),
        Grad::Zero(why) => format!("Gradient: zero ({why})."),
        Grad::Undefined(why) => format!("Gradient: none ({why})."),
        Grad::Structural => "Gradient: through its parts.".to_string(),
    });
    out
}

fn markdown() -> String {
    let mut out = String::from(
        "# Ops\n\nMade by `tfc ops --markdown`; a test keeps it in step with the op table.\n",
    );
    for def in sorted() {
        out.push('\n');
        out.push_str(&markdown_one(def));
    }
    out
}

fn markdown_one(def: &OpDef) -> String {
    let mut out = format!("## {}\n\n{}\n\n    {}\n\n", def.name, def.summary, signature(def));
    for o in def.operands {
        let many = if o.variadic { ", any number" } else { "" };
        let _ = writeln!(out, "- operand `{}`: {}{many}", o.name, kind(o.kind));
    }
    for a in def.attrs {
        let _ = writeln!(out, "- `{}`: {}{}", a.name, a.doc, default_text(a));
    }
    for fact in facts(def) {
        let _ = writeln!(out, "- {fact}");
    }
    out
}

/// An attribute as it is written in a graph.
fn attr_text(attr: &Attr) -> String {
    match attr {
        Attr::Int(v) => v.to_string(),
        Attr::Ints(v) => format!("{v:?}"),
        Attr::Float(bits) => format!("{:?}", f64::from_bits(*bits)),
        Attr::Bool(v) => v.to_string(),
        Attr::Str(v) => format!("{v:?}"),
        Attr::DType(v) => v.to_string(),
        Attr::Shape(dims) => {
            let dims: Vec<String> = dims.iter().map(|d| d.to_string()).collect();
            format!("[{}]", dims.join(", "))
        }
        Attr::Tensor(t) => format!("{t:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_is_listed_and_described() {
        let list = list();
        for op in Op::ALL {
            assert!(list.lines().any(|l| l.split_whitespace().next() == Some(op.name())));
            let text = describe(op.def());
            assert!(text.contains(op.def().summary) && text.contains("Gradient:"), "{text}");
        }
    }

    #[test]
    fn a_misspelt_op_gets_a_suggestion() {
        let err = run(&args::Ops { name: Some("matmull".into()), markdown: false }).unwrap_err();
        assert_eq!(err.code(), "E0902");
        assert!(err.diags[0].help[0].text.contains("matmul"));
    }
}
