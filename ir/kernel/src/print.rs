//! Kernels as text, for people and snapshots.

use super::{Combine, Ix, Kernel, Loop, LoopKind, PARTIALS, Scalar, ScalarOp, Stmt};
use std::fmt::{self, Write};

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bufs: Vec<String> = self
            .bufs
            .iter()
            .enumerate()
            .map(|(i, b)| {
                let access = if b.written { "mut " } else { "" };
                let alias: Vec<String> = b.alias.iter().map(|a| format!(" or b{a}")).collect();
                let align = match b.align {
                    align if align as usize > b.dtype.size() => format!(" align {align}"),
                    _ => String::new(),
                };
                format!("b{i}{}: {access}{}[{}]{align}", alias.concat(), b.dtype, b.len)
            })
            .collect();
        write!(f, "kernel {}({})", self.name, bufs.join(", "))?;
        if !self.dims.is_empty() {
            write!(f, " dims {}", self.dims.join(", "))?;
        }
        f.write_str(" {\n")?;
        for (i, l) in self.locals.iter().enumerate() {
            let whole = "the call".to_string();
            let within = l.within.map_or(whole, |v| format!("each {v}"));
            write!(f, "  local b{}: {}[{}] for {within}", self.bufs.len() + i, l.dtype, l.len)?;
            writeln!(f, ", kept at b{}[{}] by {}", l.home.buf, l.home.base, l.home.stride)?;
        }
        self.stmts(f, &self.body, 1)?;
        f.write_str("}\n")
    }
}

/// Statements of a kernel, as text.
pub(crate) fn block(kernel: &Kernel, stmts: &[Stmt]) -> String {
    struct Block<'a>(&'a Kernel, &'a [Stmt]);
    impl fmt::Display for Block<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.stmts(f, self.1, 1)
        }
    }
    Block(kernel, stmts).to_string()
}

impl Kernel {
    fn stmts(&self, f: &mut fmt::Formatter<'_>, stmts: &[Stmt], depth: usize) -> fmt::Result {
        for stmt in stmts {
            write!(f, "{:1$}", "", 2 * depth)?;
            match stmt {
                Stmt::Const { dst, value } => writeln!(f, "{dst} = {value}")?,
                Stmt::Op { dst, op, args } => {
                    let name = match op {
                        ScalarOp::Elementary(function) => function.name().to_string(),
                        op => snake(&format!("{op:?}")),
                    };
                    let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
                    let ty = self.regs.get(*dst).map_or("?", |t| t.name());
                    writeln!(f, "{dst} = {name}.{ty} {}", args.join(", "))?;
                }
                Stmt::Index { dst, ix } => writeln!(f, "{dst} = index {ix}")?,
                Stmt::Load { dst, buf, at } => writeln!(f, "{dst} = load b{buf}[{at}]")?,
                Stmt::Store { buf, at, value } => writeln!(f, "store b{buf}[{at}], {value}")?,
                Stmt::Loop(l) => self.one_loop(f, l, depth)?,
            }
        }
        Ok(())
    }

    fn one_loop(&self, f: &mut fmt::Formatter<'_>, l: &Loop, depth: usize) -> fmt::Result {
        match l.kind {
            LoopKind::Parallel => write!(f, "parallel {} in ", l.var)?,
            LoopKind::Reduce { partials: true } => write!(f, "reduce/{PARTIALS} {} in ", l.var)?,
            LoopKind::Reduce { partials: false } => write!(f, "reduce {} in ", l.var)?,
            LoopKind::Scan => write!(f, "scan {} in ", l.var)?,
            LoopKind::Sequential => write!(f, "sequential {} in ", l.var)?,
        }
        if l.ranged {
            write!(f, "range of {}", l.extent)?;
        } else {
            write!(f, "0..{}", l.extent)?;
        }
        for (i, c) in l.carried.iter().enumerate() {
            f.write_str(if i == 0 { " with " } else { ", " })?;
            write!(f, "{} = {} by {}", c.acc, c.init, combine(c.combine))?;
        }
        f.write_str(" {\n")?;
        self.stmts(f, &l.body, depth + 1)?;
        write!(f, "{:1$}}}", "", 2 * depth)?;
        for (i, c) in l.carried.iter().enumerate() {
            f.write_str(if i == 0 { " gives " } else { ", " })?;
            write!(f, "{} from {}", c.result, c.next)?;
        }
        f.write_char('\n')
    }
}

impl fmt::Display for Ix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        let mut term = |f: &mut fmt::Formatter<'_>, what: String| {
            if !std::mem::take(&mut first) {
                f.write_str(" + ")?;
            }
            f.write_str(&what)
        };
        let times = |what: String, stride: &crate::Dim| {
            if stride.is_one() {
                what
            } else if stride.as_const().is_some() || stride.as_sym().is_some() {
                format!("{what}*{stride}")
            } else {
                format!("{what}*({stride})")
            }
        };
        for (var, stride) in &self.terms {
            term(f, times(var.to_string(), stride))?;
        }
        for (reg, stride) in &self.regs {
            term(f, times(reg.to_string(), stride))?;
        }
        if !self.offset.is_zero() || (self.terms.is_empty() && self.regs.is_empty()) {
            term(f, self.offset.to_string())?;
        }
        Ok(())
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::F32(bits) => write!(f, "f32 {:?}", f32::from_bits(*bits)),
            Scalar::F64(bits) => write!(f, "f64 {:?}", f64::from_bits(*bits)),
            Scalar::I32(v) => write!(f, "i32 {v}"),
            Scalar::I64(v) => write!(f, "i64 {v}"),
            Scalar::Bool(v) => write!(f, "bool {v}"),
        }
    }
}

fn combine(combine: Combine) -> &'static str {
    match combine {
        Combine::Sum => "sum",
        Combine::Prod => "prod",
        Combine::Max => "max",
        Combine::Min => "min",
        Combine::And => "and",
        Combine::Or => "or",
        Combine::Sequential => "step",
    }
}

fn snake(camel: &str) -> String {
    let mut out = String::new();
    for (i, c) in camel.char_indices() {
        if c.is_ascii_uppercase() && i > 0 {
            out.push('_');
        }
        out.push(c.to_ascii_lowercase());
    }
    out
}
