//! Instructions on virtual registers.
//!
//! The code of a function is a list in the order of execution, with loops marked
//! by [`Op::Begin`] and [`Op::End`]. A virtual register may be written more than
//! once; one that keeps its value from one iteration of a loop to the next has a
//! definition before the loop, which is what [`super::alloc`] goes by.

use super::table::Row;

/// A virtual register.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct V(pub u32);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    General,
    Vector,
    Mask,
}

/// The width of a vector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum W {
    W128,
    W256,
    W512,
}

impl W {
    pub(super) fn bytes(self) -> usize {
        16 << self as usize
    }

    /// Half as wide, so many times, but at least 128 bits.
    pub(super) fn halved(self, times: u8) -> W {
        match (self as u8).saturating_sub(times) {
            0 => W::W128,
            1 => W::W256,
            _ => W::W512,
        }
    }
}

/// Conditions after a comparison of signed integers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cc {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Label(pub u32);

/// A constant of the function's pool.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Pooled {
    /// The same four bytes in every lane.
    Lane4(u32),
    /// The same eight bytes in every lane.
    Lane8(u64),
    /// A whole vector, or several.
    Bytes(Vec<u8>),
}

/// An element of memory, of a general register's width or less.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cell {
    I8,
    U8,
    U16,
    /// To and from the low half of a register.
    I32,
    I64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Op {
    /// A vector instruction.
    Row(&'static Row),
    /// `a * b + c`, or `c - a * b`, of doubles or singles.
    Fma {
        double: bool,
        negated: bool,
    },
    Move,
    /// The constant with this number in the pool, in every lane.
    Const(u32),
    KAnd,
    KOr,
    KXor,
    KNot,
    /// `!a & b`
    KAndNot,
    /// The low bytes of `a` and, above it, of `b`.
    KJoin,
    /// Shifted right by the immediate.
    KShiftRight,
    KFromGeneral,
    KToGeneral,
    /// The function's parameter with this number.
    Param(u8),
    /// The immediate.
    Imm,
    /// Of two registers, or a register and the immediate.
    Add,
    Sub,
    Mul,
    And,
    Or,
    Xor,
    /// By a register's low bits or by the immediate.
    Shl,
    Sar,
    Shr,
    Neg,
    /// Sign extension of the low half.
    Extend,
    /// The quotient or the remainder of a division that cannot fail.
    Div,
    Rem,
    /// Whether two registers (or a register and the immediate) compare so.
    Set(Cc),
    /// `a` if `c` is not zero, else `b`.
    Choose,
    /// A 64-bit integer as a float, in the lowest lane.
    ToFloat {
        double: bool,
    },
    /// The float in the lowest lane as a 64-bit integer, truncated.
    FromFloat {
        double: bool,
    },
    /// The low bits of all ones, as many as `a` says.
    LowBits,
    /// Bit `i` of `a` as bit `2 i`.
    Spread,
    Lea,
    /// Asks for the cache line at an address, which need not exist.
    Prefetch,
    LoadGeneral(Cell),
    StoreGeneral(Cell),
    /// To the label, if two registers (or a register and the immediate) compare so.
    Jump(Option<Cc>, Label),
    Here(Label),
    Begin,
    End,
    Return,
}

/// `base + index * scale + disp`
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mem {
    pub base: Base,
    /// A vector in gathers and scatters.
    pub index: Option<V>,
    pub scale: u8,
    pub disp: i32,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Base {
    #[default]
    None,
    Reg(V),
    /// A place in the function's frame.
    Frame(u32),
}

#[derive(Clone, Debug)]
pub(super) struct Inst {
    pub op: Op,
    pub w: W,
    /// 64 bits, of an operation on general registers; else 32.
    pub wide: bool,
    pub dst: Option<V>,
    pub src: [Option<V>; 3],
    pub mem: Option<Mem>,
    pub imm: Option<i64>,
    /// The lanes that are computed; the others keep what they were, or become
    /// zero.
    pub mask: Option<V>,
    pub zero: bool,
    /// The result is also an operand.
    pub updates: bool,
    /// The result must not share a register with an operand.
    pub early: bool,
}

impl Inst {
    pub(super) fn new(op: Op) -> Inst {
        Inst {
            op,
            w: W::W128,
            wide: true,
            dst: None,
            src: [None; 3],
            mem: None,
            imm: None,
            mask: None,
            zero: false,
            updates: false,
            early: false,
        }
    }

    /// Every register that is read.
    pub(super) fn reads(&self) -> impl Iterator<Item = V> + '_ {
        let mem = self.mem.iter().flat_map(|m| {
            let base = match m.base {
                Base::Reg(v) => Some(v),
                _ => None,
            };
            [base, m.index]
        });
        let dst = self.dst.filter(|_| self.updates);
        self.src.iter().copied().chain(mem).chain([self.mask, dst]).flatten()
    }
}

/// A function before registers are chosen.
#[derive(Default)]
pub(super) struct Func {
    pub code: Vec<Inst>,
    pub classes: Vec<Class>,
    pub labels: u32,
    pub pool: Vec<Pooled>,
    /// Sizes of the places in the frame.
    pub frame: Vec<u32>,
    /// Registers to keep out of memory as long as possible: the accumulators.
    pub precious: Vec<V>,
}

impl Func {
    pub(super) fn reg(&mut self, class: Class) -> V {
        self.classes.push(class);
        V(self.classes.len() as u32 - 1)
    }

    /// Removes what makes registers that nothing reads: of an index that was forced into
    /// range, say, where a masked load needs only the index as it is.
    pub(super) fn drop_unused(&mut self) {
        let mut uses = vec![0u32; self.classes.len()];
        let mut made: Vec<Vec<u32>> = vec![vec![]; self.classes.len()];
        for (at, inst) in self.code.iter().enumerate() {
            // What only updates itself is no use.
            inst.reads().filter(|v| inst.dst != Some(*v)).for_each(|v| uses[v.0 as usize] += 1);
            match inst.dst {
                Some(dst) if !matches!(inst.op, Op::Param(_)) => {
                    made[dst.0 as usize].push(at as u32);
                }
                _ => {}
            }
        }
        let mut unused: Vec<u32> =
            (0..uses.len() as u32).filter(|v| uses[*v as usize] == 0).collect();
        let mut dropped = vec![false; self.code.len()];
        while let Some(v) = unused.pop() {
            for at in std::mem::take(&mut made[v as usize]) {
                dropped[at as usize] = true;
                for read in self.code[at as usize].reads().filter(|r| r.0 != v) {
                    let left = &mut uses[read.0 as usize];
                    *left -= 1;
                    if *left == 0 {
                        unused.push(read.0);
                    }
                }
            }
        }
        let mut at = 0;
        self.code.retain(|_| {
            at += 1;
            !dropped[at - 1]
        });
    }

    pub(super) fn label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    pub(super) fn pooled(&mut self, value: Pooled) -> u32 {
        let at = self.pool.iter().position(|p| *p == value).unwrap_or_else(|| {
            self.pool.push(value);
            self.pool.len() - 1
        });
        at as u32
    }

    pub(super) fn place(&mut self, bytes: u32) -> u32 {
        self.frame.push(bytes);
        self.frame.len() as u32 - 1
    }
}
