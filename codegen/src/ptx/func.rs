//! The text of one entry.

use super::{BASELINE, Entry, Launch, Needs};
use std::fmt::{self, Write};
use tfc_kernel::{Scalar, ScalarType};

/// Kinds of registers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    F32,
    F64,
    B32,
    B64,
    Pred,
    B16,
}

impl Class {
    const ALL: [Class; 6] =
        [Class::F32, Class::F64, Class::B32, Class::B64, Class::Pred, Class::B16];

    pub fn of(ty: ScalarType) -> Class {
        match ty {
            ScalarType::F32 => Class::F32,
            ScalarType::F64 => Class::F64,
            ScalarType::I32 => Class::B32,
            ScalarType::I64 => Class::B64,
            ScalarType::Bool => Class::Pred,
        }
    }

    fn prefix(self) -> &'static str {
        match self {
            Class::F32 => "%f",
            Class::F64 => "%d",
            Class::B32 => "%r",
            Class::B64 => "%l",
            Class::Pred => "%p",
            Class::B16 => "%h",
        }
    }

    /// How registers of this kind are declared and moved.
    pub fn ty(self) -> &'static str {
        match self {
            Class::F32 => "f32",
            Class::F64 => "f64",
            Class::B32 => "b32",
            Class::B64 => "b64",
            Class::Pred => "pred",
            Class::B16 => "b16",
        }
    }
}

/// A register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct V {
    pub class: Class,
    pub n: u32,
}

impl fmt::Display for V {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.class.prefix(), self.n)
    }
}

pub(super) struct Func {
    body: String,
    counts: [u32; 6],
    labels: u32,
    shared: u32,
    resident: u32,
    needs: Needs,
}

impl Func {
    pub fn new() -> Func {
        Func {
            body: String::new(),
            counts: [0; 6],
            labels: 0,
            shared: 0,
            resident: 0,
            needs: BASELINE,
        }
    }

    pub fn reg(&mut self, class: Class) -> V {
        let n = &mut self.counts[class as usize];
        *n += 1;
        V { class, n: *n - 1 }
    }

    pub fn label(&mut self) -> String {
        self.labels += 1;
        format!("L{}", self.labels)
    }

    /// One instruction.
    pub fn line(&mut self, text: fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.body, "  {text};");
    }

    pub fn place(&mut self, label: &str) {
        let _ = writeln!(self.body, "{label}:");
    }

    pub fn need(&mut self, needs: Needs) {
        self.needs = self.needs.and(needs);
    }

    /// So many blocks must fit on a multiprocessor at once: a bound for registers.
    pub fn resident(&mut self, blocks: u32) {
        self.resident = blocks;
    }

    /// `bytes` of shared memory; its offset from `shared`.
    pub fn shared(&mut self, bytes: u32) -> u32 {
        let at = self.shared.next_multiple_of(16);
        self.shared = at + bytes;
        at
    }

    /// At least `bytes` of shared memory, which whoever asks uses in turn.
    pub fn share(&mut self, bytes: u32) {
        self.shared = self.shared.max(bytes);
    }

    /// `op dst, args` with a new register for the result.
    pub fn op(&mut self, class: Class, op: &str, args: &[&dyn fmt::Display]) -> V {
        let dst = self.reg(class);
        self.op_to(dst, op, args);
        dst
    }

    pub fn op_to(&mut self, dst: V, op: &str, args: &[&dyn fmt::Display]) {
        let _ = write!(self.body, "  {op} {dst}");
        for a in args {
            let _ = write!(self.body, ", {a}");
        }
        self.body.push_str(";\n");
    }

    pub fn mov(&mut self, dst: V, src: V) {
        self.line(format_args!("mov.{} {dst}, {src}", dst.class.ty()));
    }

    pub fn copy(&mut self, src: V) -> V {
        let dst = self.reg(src.class);
        self.mov(dst, src);
        dst
    }

    pub fn int(&mut self, value: i64) -> V {
        self.op(Class::B64, "mov.b64", &[&value])
    }

    pub fn constant(&mut self, value: Scalar) -> V {
        let imm = immediate(value);
        match value {
            Scalar::Bool(v) => self.op(Class::Pred, "setp.ne.u32", &[&u32::from(v), &0]),
            _ => {
                let class = Class::of(value.ty());
                self.op(class, &format!("mov.{}", class.ty()), &[&imm])
            }
        }
    }

    /// A number of the thread or block, in 32 bits.
    pub fn special(&mut self, name: &str) -> V {
        self.op(Class::B32, "mov.u32", &[&name])
    }

    /// The whole entry.
    pub fn finish(mut self, name: &str, params: &[(String, &str)], mut launch: Launch) -> Entry {
        launch.shared = self.shared;
        self.line(format_args!("ret"));
        let mut text = format!(".visible .entry {name}(\n");
        for (i, (param, ty)) in params.iter().enumerate() {
            let comma = if i + 1 < params.len() { "," } else { "" };
            let _ = writeln!(text, "  .param .{ty} {param}{comma}");
        }
        let _ = writeln!(text, ")\n.maxntid {}, 1, 1", launch.block);
        if self.resident > 0 {
            let _ = writeln!(text, ".minnctapersm {}", self.resident);
        }
        text.push_str("{\n");
        for class in Class::ALL {
            let n = self.counts[class as usize];
            if n > 0 {
                let _ = writeln!(text, "  .reg .{} {}<{n}>;", class.ty(), class.prefix());
            }
        }
        if self.shared > 0 {
            let _ = writeln!(text, "  .shared .align 16 .b8 shared[{}];", self.shared);
        }
        text.push_str(&self.body);
        text.push_str("}\n");
        Entry { text, launch, needs: self.needs }
    }
}

/// A constant as an operand.
pub(super) fn immediate(value: Scalar) -> String {
    match value {
        Scalar::F32(bits) => format!("0f{bits:08X}"),
        Scalar::F64(bits) => format!("0d{bits:016X}"),
        Scalar::I32(v) => v.to_string(),
        // The smallest number does not parse as the negative of one.
        Scalar::I64(i64::MIN) => "0x8000000000000000".into(),
        Scalar::I64(v) => v.to_string(),
        Scalar::Bool(v) => u32::from(v).to_string(),
    }
}
