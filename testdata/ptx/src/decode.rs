//! Statements to a compact form: registers numbered, labels resolved, operand
//! types checked, each arithmetic instruction a function.

use crate::Error;
use crate::alu::{self, F1, F2, F3, Test, Ty};
use crate::copies::At;
use crate::mma::Factor;
use crate::parse::{self, EntryText, Item, Operand, Stmt};
use std::collections::BTreeMap;

pub(crate) type R = u32;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Src {
    Reg(R),
    Imm(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
    Param,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid,
    Ntid,
    Ctaid,
    Nctaid,
    Laneid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Down,
    Up,
    Bfly,
    Idx,
}

#[derive(Clone, Debug)]
pub(crate) enum Op {
    One {
        f: F1,
        dst: R,
        a: Src,
    },
    Two {
        f: F2,
        dst: R,
        a: Src,
        b: Src,
    },
    /// A division of integers: the divisor must not be zero.
    Divide {
        f: F2,
        dst: R,
        a: Src,
        b: Src,
    },
    Three {
        f: F3,
        dst: R,
        a: Src,
        b: Src,
        c: Src,
    },
    /// A comparison, then combined with a predicate by a function, if any.
    Setp {
        f: Test,
        dst: R,
        a: Src,
        b: Src,
        with: Option<(F2, Src)>,
    },
    Selp {
        dst: R,
        a: Src,
        b: Src,
        p: Src,
    },
    Special {
        dst: R,
        which: Special,
        axis: usize,
    },
    Load {
        space: Space,
        ty: Ty,
        dst: Vec<R>,
        extend: u32,
        base: Src,
        offset: i64,
    },
    Store {
        space: Space,
        ty: Ty,
        src: Vec<Src>,
        base: Src,
        offset: i64,
    },
    Pack {
        dst: R,
        parts: Vec<Src>,
        bits: u32,
    },
    Unpack {
        dst: Vec<R>,
        src: Src,
        bits: u32,
    },
    /// With `together`, all threads of the warp that are here go the same way.
    Branch {
        to: u32,
        together: bool,
    },
    Exit,
    Barrier,
    /// Whether `a` holds in any thread of the block.
    BarrierOr {
        dst: R,
        a: Src,
    },
    WarpBarrier {
        members: Src,
    },
    Shuffle {
        how: Shuffle,
        dst: R,
        a: Src,
        b: Src,
        c: Src,
        members: Src,
    },
    /// Starts a copy of `len` bytes to shared memory; of its source there may be fewer.
    Copy {
        to: At,
        from: At,
        len: usize,
        size: Option<Src>,
    },
    CommitCopies,
    WaitForCopies {
        left: usize,
    },
    LoadMatrices {
        dst: Vec<R>,
        from: At,
        turned: bool,
    },
    Mma {
        factor: Factor,
        d: Vec<R>,
        a: Vec<Src>,
        b: Vec<Src>,
        c: Vec<Src>,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Inst {
    pub line: usize,
    pub guard: Option<(R, bool)>,
    pub op: Op,
}

/// A function that can be launched.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// Size of each parameter in bytes.
    pub params: Vec<usize>,
    /// Bytes of shared memory.
    pub shared: usize,
    pub max_threads: Option<u32>,
    pub(crate) regs: Vec<String>,
    pub(crate) insts: Vec<Inst>,
}

/// A parsed PTX module.
#[derive(Clone, Debug)]
pub struct Module {
    pub version: String,
    pub target: String,
    pub entries: Vec<Entry>,
}

impl Module {
    pub fn parse(text: &str) -> Result<Module, Error> {
        let text = parse::parse(text)?;
        let entries = text.entries.iter().map(entry).collect::<Result<_, _>>()?;
        Ok(Module { version: text.version, target: text.target, entries })
    }

    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|e| e.name == name)
    }
}

struct Decoder {
    regs: BTreeMap<String, (R, Ty)>,
    names: Vec<String>,
    params: BTreeMap<String, (usize, usize)>,
    shared: BTreeMap<String, usize>,
    labels: BTreeMap<String, u32>,
}

fn entry(text: &EntryText) -> Result<Entry, Error> {
    let mut d = Decoder {
        regs: BTreeMap::new(),
        names: vec![],
        params: BTreeMap::new(),
        shared: BTreeMap::new(),
        labels: BTreeMap::new(),
    };
    let mut params = vec![];
    let mut at = 0usize;
    for (ty, name) in &text.params {
        let Some(ty) = Ty::parse(ty.trim_start_matches('.')) else {
            return Err(Error::new(text.line, format!("a parameter of type `{ty}`")));
        };
        let size = (ty.bits() / 8) as usize;
        at = at.next_multiple_of(size.max(1));
        d.params.insert(name.clone(), (at, size));
        params.push(size);
        at += size;
    }
    let (mut shared, mut index) = (0usize, 0u32);
    for item in &text.items {
        match item {
            Item::Reg { line, ty, name, count } => {
                let Some(ty) = Ty::parse(ty.trim_start_matches('.')) else {
                    return Err(Error::new(*line, format!("a register of type `{ty}`")));
                };
                match count {
                    None => d.declare(*line, name.clone(), ty)?,
                    Some(n) => {
                        for i in 0..*n {
                            d.declare(*line, format!("{name}{i}"), ty)?;
                        }
                    }
                }
            }
            Item::Shared { line, align, name, bytes } => {
                shared = shared.next_multiple_of((*align).max(1));
                if d.shared.insert(name.clone(), shared).is_some() {
                    return Err(Error::new(*line, format!("`{name}` is declared twice")));
                }
                shared += bytes;
            }
            Item::Label { line, name } => {
                if d.labels.insert(name.clone(), index).is_some() {
                    return Err(Error::new(*line, format!("the label `{name}` is there twice")));
                }
            }
            Item::Stmt(_) => index += 1,
        }
    }
    let mut insts = vec![];
    for item in &text.items {
        if let Item::Stmt(stmt) = item {
            let guard = match &stmt.guard {
                None => None,
                Some((name, negated)) => Some((d.reg(stmt.line, name, Ty::Pred)?, *negated)),
            };
            insts.push(Inst { line: stmt.line, guard, op: d.stmt(stmt)? });
        }
    }
    Ok(Entry {
        name: text.name.clone(),
        params,
        shared,
        max_threads: text.max_threads,
        regs: d.names,
        insts,
    })
}

/// Bits of the same size, and not a float where an integer is wanted.
fn fits(declared: Ty, wanted: Ty) -> bool {
    let bit_type = |t| matches!(t, Ty::B8 | Ty::B16 | Ty::B32 | Ty::B64 | Ty::Pred);
    declared.bits() == wanted.bits()
        && (bit_type(declared) || bit_type(wanted) || declared.is_float() == wanted.is_float())
}

impl Decoder {
    fn declare(&mut self, line: usize, name: String, ty: Ty) -> Result<(), Error> {
        let id = self.names.len() as R;
        self.names.push(name.clone());
        match self.regs.insert(name.clone(), (id, ty)) {
            None => Ok(()),
            Some(_) => Err(Error::new(line, format!("`{name}` is declared twice"))),
        }
    }

    fn reg(&self, line: usize, name: &str, ty: Ty) -> Result<R, Error> {
        match self.regs.get(name) {
            Some((id, declared)) if fits(*declared, ty) => Ok(*id),
            Some((_, declared)) => {
                Err(Error::new(line, format!("`{name}` is {declared:?} where {ty:?} is wanted")))
            }
            None => Err(Error::new(line, format!("`{name}` is not declared"))),
        }
    }

    fn dst(&self, line: usize, operand: &Operand, ty: Ty) -> Result<R, Error> {
        match operand {
            Operand::Reg(name) => self.reg(line, name, ty),
            _ => Err(Error::new(line, "the first operand is no register")),
        }
    }

    fn src(&self, line: usize, operand: &Operand, ty: Ty) -> Result<Src, Error> {
        match operand {
            Operand::Reg(name) => Ok(Src::Reg(self.reg(line, name, ty)?)),
            Operand::Imm(bits) => Ok(Src::Imm(alu::truncate(ty.bits().max(8), *bits))),
            Operand::Name(name) => match self.shared.get(name) {
                Some(at) if matches!(ty.bits(), 32 | 64) => Ok(Src::Imm(*at as u64)),
                _ => Err(Error::new(line, format!("`{name}` is not known here"))),
            },
            _ => Err(Error::new(line, "an address or a vector where a value is wanted")),
        }
    }

    fn many(&self, operand: &Operand) -> Vec<Operand> {
        match operand {
            Operand::Vector(parts) => parts.clone(),
            other => vec![other.clone()],
        }
    }

    /// Base and offset of `[...]`.
    fn address(
        &self,
        s: &Stmt,
        operand: &Operand,
        space: Space,
        size: usize,
    ) -> Result<(Src, i64), Error> {
        let Operand::Addr { base, offset } = operand else {
            return Err(Error::new(s.line, "the operand is no address"));
        };
        match (space, &**base) {
            (Space::Param, Operand::Name(name)) => match self.params.get(name) {
                Some((at, have)) if *offset == 0 && *have == size => Ok((Src::Imm(*at as u64), 0)),
                Some(_) => Err(Error::new(s.line, format!("not the whole of parameter `{name}`"))),
                None => Err(Error::new(s.line, format!("there is no parameter `{name}`"))),
            },
            (Space::Param, _) => Err(Error::new(s.line, "a parameter by address")),
            (Space::Shared, Operand::Reg(name)) => {
                let ty = self.regs.get(name).map_or(Ty::B32, |r| r.1);
                let ty = if ty.bits() == 64 { Ty::B64 } else { Ty::B32 };
                Ok((Src::Reg(self.reg(s.line, name, ty)?), *offset))
            }
            (Space::Shared, other) => Ok((self.src(s.line, other, Ty::B32)?, *offset)),
            (Space::Global, Operand::Reg(name)) => {
                Ok((Src::Reg(self.reg(s.line, name, Ty::B64)?), *offset))
            }
            (Space::Global, _) => Err(Error::new(s.line, "a global address that is no register")),
        }
    }

    fn stmt(&self, s: &Stmt) -> Result<Op, Error> {
        let line = s.line;
        let parts: Vec<&str> = s.opcode.iter().map(String::as_str).collect();
        let unknown = || Error::new(line, format!("unknown instruction `{}`", parts.join(".")));
        let count = |n: usize| {
            if s.operands.len() == n {
                return Ok(());
            }
            Err(Error::new(
                line,
                format!("`{}` with {} operands, not {n}", parts.join("."), s.operands.len()),
            ))
        };
        match parts[0] {
            "ld" | "st" => return self.memory(s, &parts).and_then(|op| op.ok_or_else(unknown)),
            "ret" | "exit" if parts.len() == 1 => return Ok(Op::Exit),
            "bra" if parts.len() == 1 || parts[1..] == ["uni"] => {
                count(1)?;
                let Operand::Name(name) = &s.operands[0] else { return Err(unknown()) };
                let Some(to) = self.labels.get(name) else {
                    return Err(Error::new(line, format!("there is no label `{name}`")));
                };
                return Ok(Op::Branch { to: *to, together: parts.len() > 1 });
            }
            "bar" if parts[1..] == ["sync"] => {
                return match s.operands.as_slice() {
                    [Operand::Imm(0)] => Ok(Op::Barrier),
                    _ => Err(Error::new(line, "a barrier other than 0 of the whole block")),
                };
            }
            "bar" if parts[1..] == ["red", "or", "pred"] => {
                count(3)?;
                if s.operands[1] != Operand::Imm(0) {
                    return Err(Error::new(line, "a barrier other than 0 of the whole block"));
                }
                let dst = self.dst(line, &s.operands[0], Ty::Pred)?;
                return Ok(Op::BarrierOr { dst, a: self.src(line, &s.operands[2], Ty::Pred)? });
            }
            "bar" if parts[1..] == ["warp", "sync"] => {
                count(1)?;
                return Ok(Op::WarpBarrier { members: self.src(line, &s.operands[0], Ty::B32)? });
            }
            "shfl" => return self.shuffle(s, &parts).and_then(|op| op.ok_or_else(unknown)),
            "cp" => return self.copies(s, &parts).and_then(|op| op.ok_or_else(unknown)),
            "ldmatrix" => return self.matrices(s, &parts).and_then(|op| op.ok_or_else(unknown)),
            "mma" => return self.mma(s, &parts).and_then(|op| op.ok_or_else(unknown)),
            "cvt" if parts[1..] == ["rna", "tf32", "f32"] => {
                count(2)?;
                let dst = self.dst(line, &s.operands[0], Ty::B32)?;
                let a = self.src(line, &s.operands[1], Ty::F32)?;
                return Ok(Op::One { f: alu::to_tf32, dst, a });
            }
            "cvt" => {
                let (rounding, tys) = match parts.len() {
                    3 => ("", &parts[1..]),
                    4 => (parts[1], &parts[2..]),
                    _ => return Err(unknown()),
                };
                let (Some(to), Some(from)) = (Ty::parse(tys[0]), Ty::parse(tys[1])) else {
                    return Err(unknown());
                };
                count(2)?;
                let f = alu::convert(rounding, to, from).ok_or_else(unknown)?;
                // bf16 and small integers live in wider or bit registers.
                let holder = |t: Ty| match t {
                    Ty::BF16 => Ty::B16,
                    Ty::S8 | Ty::U8 => Ty::B32,
                    t => t,
                };
                let dst = self.dst(line, &s.operands[0], holder(to))?;
                return Ok(Op::One { f, dst, a: self.src(line, &s.operands[1], holder(from))? });
            }
            "setp" => return self.setp(s, &parts).and_then(|op| op.ok_or_else(unknown)),
            _ => {}
        }
        let Some(ty) = Ty::parse(parts[parts.len() - 1]) else { return Err(unknown()) };
        let op = parts[..parts.len() - 1].join(".");
        if op == "mov" {
            count(2)?;
            return self.mov(s, ty);
        }
        if op == "selp" {
            count(4)?;
            return Ok(Op::Selp {
                dst: self.dst(line, &s.operands[0], ty)?,
                a: self.src(line, &s.operands[1], ty)?,
                b: self.src(line, &s.operands[2], ty)?,
                p: self.src(line, &s.operands[3], Ty::Pred)?,
            });
        }
        // Wide products are twice as long as their factors.
        let wide =
            if parts[1] == "wide" { if ty == Ty::S32 { Ty::S64 } else { Ty::U64 } } else { ty };
        let arg = |i: usize| {
            // Amounts of shifts and positions of fields are u32.
            let ty = match (parts[0], i) {
                ("shl" | "shr", 2) | ("bfe", 2 | 3) => Ty::U32,
                ("mad", 3) => wide,
                _ => ty,
            };
            self.src(line, &s.operands[i], ty)
        };
        if let Some(f) = alu::one(&op, ty) {
            count(2)?;
            return Ok(Op::One { f, dst: self.dst(line, &s.operands[0], ty)?, a: arg(1)? });
        }
        if let Some(f) = alu::two(&op, ty) {
            count(3)?;
            let (dst, a, b) = (self.dst(line, &s.operands[0], wide)?, arg(1)?, arg(2)?);
            return Ok(match (parts[0], ty.is_float()) {
                ("div" | "rem", false) => Op::Divide { f, dst, a, b },
                _ => Op::Two { f, dst, a, b },
            });
        }
        if let Some(f) = alu::three(&op, ty) {
            count(4)?;
            let dst = self.dst(line, &s.operands[0], wide)?;
            return Ok(Op::Three { f, dst, a: arg(1)?, b: arg(2)?, c: arg(3)? });
        }
        Err(unknown())
    }

    fn mov(&self, s: &Stmt, ty: Ty) -> Result<Op, Error> {
        let line = s.line;
        if let Operand::Reg(name) = &s.operands[1]
            && let Some((which, axis)) = special(name)
        {
            let dst = self.dst(line, &s.operands[0], Ty::U32)?;
            return Ok(Op::Special { dst, which, axis });
        }
        let half = |n: usize| match ty.bits() / n as u32 {
            16 => Some(Ty::B16),
            32 => Some(Ty::B32),
            _ => None,
        };
        let wrong = || Error::new(line, "parts that do not make up the whole");
        match (&s.operands[0], &s.operands[1]) {
            (dst, Operand::Vector(parts)) => {
                let part = half(parts.len()).ok_or_else(wrong)?;
                let parts =
                    parts.iter().map(|p| self.src(line, p, part)).collect::<Result<_, _>>()?;
                Ok(Op::Pack { dst: self.dst(line, dst, ty)?, parts, bits: part.bits() })
            }
            (Operand::Vector(parts), src) => {
                let part = half(parts.len()).ok_or_else(wrong)?;
                let dst =
                    parts.iter().map(|p| self.dst(line, p, part)).collect::<Result<_, _>>()?;
                Ok(Op::Unpack { dst, src: self.src(line, src, ty)?, bits: part.bits() })
            }
            (dst, src) => {
                Ok(Op::One { f: |a| a, dst: self.dst(line, dst, ty)?, a: self.src(line, src, ty)? })
            }
        }
    }

    fn setp(&self, s: &Stmt, parts: &[&str]) -> Result<Option<Op>, Error> {
        let (cmp, with, ty) = match parts {
            [_, cmp, ty] => (*cmp, None, Ty::parse(ty)),
            [_, cmp, with, ty] => (*cmp, Some(*with), Ty::parse(ty)),
            _ => return Ok(None),
        };
        let Some(ty) = ty else { return Ok(None) };
        let Some(f) = alu::test(cmp, ty) else { return Ok(None) };
        let want = 3 + usize::from(with.is_some());
        if s.operands.len() != want {
            return Err(Error::new(s.line, format!("`setp` with {} operands", s.operands.len())));
        }
        let with = match with {
            None => None,
            Some(op) => {
                let Some(f) = alu::two(op, Ty::Pred) else { return Ok(None) };
                Some((f, self.src(s.line, &s.operands[3], Ty::Pred)?))
            }
        };
        Ok(Some(Op::Setp {
            f,
            dst: self.dst(s.line, &s.operands[0], Ty::Pred)?,
            a: self.src(s.line, &s.operands[1], ty)?,
            b: self.src(s.line, &s.operands[2], ty)?,
            with,
        }))
    }

    fn memory(&self, s: &Stmt, parts: &[&str]) -> Result<Option<Op>, Error> {
        let space = match parts.get(1) {
            Some(&"global") => Space::Global,
            Some(&"shared") => Space::Shared,
            Some(&"param") if parts[0] == "ld" => Space::Param,
            _ => return Ok(None),
        };
        let (n, ty) = match parts[2..] {
            [ty] => (1, ty),
            ["v2", ty] => (2, ty),
            ["v4", ty] => (4, ty),
            _ => return Ok(None),
        };
        let Some(ty) = Ty::parse(ty) else { return Ok(None) };
        if s.operands.len() != 2 || ty == Ty::Pred {
            return Ok(None);
        }
        let (place, values) = match parts[0] {
            "ld" => (&s.operands[1], &s.operands[0]),
            _ => (&s.operands[0], &s.operands[1]),
        };
        let values = self.many(values);
        if values.len() != n {
            return Err(Error::new(s.line, format!("{} registers for {n} values", values.len())));
        }
        let (base, offset) = self.address(s, place, space, (ty.bits() / 8) as usize)?;
        if parts[0] == "st" {
            let src = values
                .iter()
                .map(|v| {
                    // A store may take the low part of a wider register.
                    let holder = self.holder(v, ty);
                    self.src(s.line, v, holder)
                })
                .collect::<Result<_, _>>()?;
            return Ok(Some(Op::Store { space, ty, src, base, offset }));
        }
        let mut dst = vec![];
        let mut extend = ty.bits();
        for v in &values {
            let holder = self.holder(v, ty);
            extend = holder.bits();
            dst.push(self.dst(s.line, v, holder)?);
        }
        Ok(Some(Op::Load { space, ty, dst, extend, base, offset }))
    }

    /// The type of the register a value of type `ty` is loaded to: its own, or a
    /// wider one for integers.
    fn holder(&self, operand: &Operand, ty: Ty) -> Ty {
        let Operand::Reg(name) = operand else { return ty };
        match self.regs.get(name) {
            Some((_, declared)) if declared.bits() > ty.bits() && !ty.is_float() => *declared,
            _ => ty,
        }
    }

    fn shuffle(&self, s: &Stmt, parts: &[&str]) -> Result<Option<Op>, Error> {
        let how = match parts {
            [_, "sync", "down", "b32"] => Shuffle::Down,
            [_, "sync", "up", "b32"] => Shuffle::Up,
            [_, "sync", "bfly", "b32"] => Shuffle::Bfly,
            [_, "sync", "idx", "b32"] => Shuffle::Idx,
            _ => return Ok(None),
        };
        let [d, a, b, c, members] = s.operands.as_slice() else { return Ok(None) };
        Ok(Some(Op::Shuffle {
            how,
            dst: self.dst(s.line, d, Ty::B32)?,
            a: self.src(s.line, a, Ty::B32)?,
            b: self.src(s.line, b, Ty::U32)?,
            c: self.src(s.line, c, Ty::U32)?,
            members: self.src(s.line, members, Ty::B32)?,
        }))
    }

    fn copies(&self, s: &Stmt, parts: &[&str]) -> Result<Option<Op>, Error> {
        Ok(match (parts, s.operands.as_slice()) {
            ([_, "async", "commit_group"], []) => Some(Op::CommitCopies),
            ([_, "async", "wait_group"], [Operand::Imm(left)]) => {
                Some(Op::WaitForCopies { left: *left as usize })
            }
            ([_, "async", how, "shared", "global"], [to, from, Operand::Imm(len), rest @ ..]) => {
                let len = *len as usize;
                let size = match rest {
                    [] => None,
                    [size] => Some(self.src(s.line, size, Ty::B32)?),
                    _ => return Ok(None),
                };
                if !matches!((*how, len), ("cg", 16) | ("ca", 4 | 8 | 16)) {
                    return Ok(None);
                }
                let (base, offset) = self.address(s, to, Space::Shared, len)?;
                let to = At { base, offset };
                let (base, offset) = self.address(s, from, Space::Global, len)?;
                Some(Op::Copy { to, from: At { base, offset }, len, size })
            }
            _ => None,
        })
    }

    fn matrices(&self, s: &Stmt, parts: &[&str]) -> Result<Option<Op>, Error> {
        let (n, turned) = match parts {
            [_, "sync", "aligned", "m8n8", n, "shared", "b16"] => (*n, false),
            [_, "sync", "aligned", "m8n8", n, "trans", "shared", "b16"] => (*n, true),
            _ => return Ok(None),
        };
        let [d, from] = s.operands.as_slice() else { return Ok(None) };
        let dst = self.many(d);
        if !matches!((n, dst.len()), ("x1", 1) | ("x2", 2) | ("x4", 4)) {
            return Ok(None);
        }
        let dst =
            dst.iter().map(|d| self.dst(s.line, d, Ty::B32)).collect::<Result<Vec<_>, _>>()?;
        let (base, offset) = self.address(s, from, Space::Shared, 16)?;
        Ok(Some(Op::LoadMatrices { dst, from: At { base, offset }, turned }))
    }

    fn mma(&self, s: &Stmt, parts: &[&str]) -> Result<Option<Op>, Error> {
        let [_, "sync", "aligned", shape, "row", "col", "f32", ta, tb, "f32"] = parts else {
            return Ok(None);
        };
        let factor = match (*shape, *ta) {
            ("m16n8k16", "f16") => Factor::Half(Ty::F16),
            ("m16n8k16", "bf16") => Factor::Half(Ty::BF16),
            ("m16n8k8", "tf32") => Factor::Tf32,
            _ => return Ok(None),
        };
        let [d, a, b, c] = s.operands.as_slice() else { return Ok(None) };
        let regs = |operand: &Operand, n: usize, ty: Ty| -> Result<Vec<Src>, Error> {
            let parts = self.many(operand);
            if parts.len() != n {
                return Err(Error::new(s.line, format!("{} registers, not {n}", parts.len())));
            }
            parts.iter().map(|p| self.src(s.line, p, ty)).collect()
        };
        let d = self
            .many(d)
            .iter()
            .map(|p| self.dst(s.line, p, Ty::F32))
            .collect::<Result<Vec<_>, _>>()?;
        if ta != tb || d.len() != 4 {
            return Ok(None);
        }
        Ok(Some(Op::Mma {
            factor,
            d,
            a: regs(a, 4, Ty::B32)?,
            b: regs(b, 2, Ty::B32)?,
            c: regs(c, 4, Ty::F32)?,
        }))
    }
}

fn special(name: &str) -> Option<(Special, usize)> {
    if name == "%laneid" {
        return Some((Special::Laneid, 0));
    }
    let (which, axis) = name.split_once('.')?;
    let axis = ["x", "y", "z"].iter().position(|a| *a == axis)?;
    let which = match which {
        "%tid" => Special::Tid,
        "%ntid" => Special::Ntid,
        "%ctaid" => Special::Ctaid,
        "%nctaid" => Special::Nctaid,
        _ => return None,
    };
    Some((which, axis))
}
