//! Addresses, loads and stores.

use super::emit::Emit;
use super::func::{Class, V};
use super::schedule;
use tfc_kernel::dim::Atom;
use tfc_kernel::{DType, Dim, Ix, LoopVar};

/// A sum of a register and a number of elements.
#[derive(Clone, Copy)]
pub(super) struct At {
    pub reg: Option<V>,
    pub plus: i64,
}

impl Emit<'_> {
    /// A size in a register. Sizes that depend on dims are computed once, at entry.
    pub(super) fn dim(&mut self, dim: &Dim) -> V {
        if let Some(c) = dim.as_const() {
            return self.f.int(c);
        }
        if let Some(v) = self.dims.get(dim) {
            return *v;
        }
        let mut sum: Option<V> = None;
        for (atoms, coef) in dim.terms() {
            let mut term: Option<V> = None;
            for atom in atoms {
                let v = match &atom {
                    Atom::Sym(name) => self.dim(&Dim::sym(name)),
                    Atom::FloorDiv(d, by) => self.floor_div(d, *by),
                };
                term = Some(match term {
                    Some(t) => self.f.op(Class::B64, "mul.lo.s64", &[&t, &v]),
                    None => v,
                });
            }
            let term = match term {
                None => self.f.int(coef),
                Some(t) if coef == 1 => t,
                Some(t) => self.f.op(Class::B64, "mul.lo.s64", &[&t, &coef]),
            };
            sum = Some(match sum {
                Some(s) => self.f.op(Class::B64, "add.s64", &[&s, &term]),
                None => term,
            });
        }
        let value = match sum {
            Some(v) => v,
            None => self.f.int(0),
        };
        self.dims.insert(dim.clone(), value);
        value
    }

    fn floor_div(&mut self, d: &Dim, by: i64) -> V {
        let x = self.dim(d);
        let q = self.f.op(Class::B64, "div.s64", &[&x, &by]);
        let back = self.f.op(Class::B64, "mul.lo.s64", &[&q, &by]);
        // Truncation rounds a negative inexact quotient up: one less then.
        let up = self.f.op(Class::Pred, "setp.gt.s64", &[&back, &x]);
        let less = self.f.op(Class::B64, "sub.s64", &[&q, &1]);
        self.f.op(Class::B64, "selp.b64", &[&less, &q, &up])
    }

    /// `sum + v * stride`.
    fn add_term(&mut self, sum: Option<V>, v: V, stride: &Dim) -> V {
        let stride_text = match stride.as_const() {
            Some(1) => {
                return match sum {
                    Some(s) => self.f.op(Class::B64, "add.s64", &[&s, &v]),
                    None => v,
                };
            }
            Some(c) => c.to_string(),
            None => self.dim(stride).to_string(),
        };
        match sum {
            Some(s) => self.f.op(Class::B64, "mad.lo.s64", &[&v, &stride_text, &s]),
            None => self.f.op(Class::B64, "mul.lo.s64", &[&v, &stride_text]),
        }
    }

    /// The index of lane `lane`, constants apart.
    pub(super) fn index(&mut self, ix: &Ix, lane: usize) -> At {
        let mut sum = None;
        let mut plus = 0;
        match ix.offset.as_const() {
            Some(c) => plus = c,
            None => sum = Some(self.dim(&ix.offset)),
        }
        for (var, stride) in &ix.terms {
            let v = self.vars[var];
            sum = Some(self.add_term(sum, v, stride));
            if let Some((_, by, _)) = self.round.filter(|(v, ..)| v == var) {
                match stride.as_const() {
                    Some(c) => plus += c * by,
                    None => {
                        let stride = self.dim(stride);
                        sum = sum.map(|s| self.f.op(Class::B64, "mad.lo.s64", &[&stride, &by, &s]));
                    }
                }
            }
            if self.lane_var == Some(*var) && lane > 0 {
                match stride.as_const() {
                    Some(c) => plus += c * lane as i64,
                    None => {
                        let by = self.dim(stride);
                        sum = sum.map(|s| self.f.op(Class::B64, "mad.lo.s64", &[&by, &lane, &s]));
                    }
                }
            }
        }
        for (reg, stride) in &ix.regs {
            let v = self.lane(*reg, lane);
            sum = Some(self.add_term(sum, v, stride));
        }
        At { reg: sum, plus }
    }

    /// An index as a value.
    pub(super) fn index_value(&mut self, ix: &Ix, lane: usize) -> V {
        match self.index(ix, lane) {
            At { reg: None, plus } => self.f.int(plus),
            At { reg: Some(v), plus: 0 } => v,
            At { reg: Some(v), plus } => self.f.op(Class::B64, "add.s64", &[&v, &plus]),
        }
    }

    /// Whether the lanes of a thread have different indices.
    pub(super) fn varies(&self, ix: &Ix) -> bool {
        self.lanes > 1
            && (ix.terms.iter().any(|(v, _)| Some(*v) == self.lane_var)
                || ix.regs.iter().any(|(r, _)| self.regs[r].len() > 1))
    }

    /// `[register+offset]` of an element.
    pub(super) fn address(&mut self, buf: u32, at: At) -> String {
        let size = self.kernel.bufs[buf as usize].dtype.size() as i64;
        let base = self.bufs[buf as usize];
        let base = match at.reg {
            None => base,
            Some(v) if size == 1 => self.f.op(Class::B64, "add.s64", &[&base, &v]),
            Some(v) => self.f.op(Class::B64, "mad.lo.s64", &[&v, &size, &base]),
        };
        match at.plus * size {
            0 => format!("[{base}]"),
            plus => format!("[{base}+{plus}]"),
        }
    }

    pub(super) fn load(&mut self, buf: u32, ix: &Ix) -> Vec<V> {
        let dtype = self.kernel.bufs[buf as usize].dtype;
        if !self.varies(ix) {
            let at = self.index(ix, 0);
            let place = self.address(buf, at);
            return self.load_from("global", dtype, &[place], 1);
        }
        if self.is_wide(ix) {
            let at = self.index(ix, 0);
            let places = self.wide_places(buf, at);
            return self.load_from("global", dtype, &places, self.lanes);
        }
        (0..self.lanes)
            .flat_map(|lane| {
                let at = self.index(ix, lane);
                let place = self.address(buf, at);
                self.load_from("global", dtype, &[place], 1)
            })
            .collect()
    }

    /// Whether the lanes' elements are side by side, aligned for one access.
    fn is_wide(&self, ix: &Ix) -> bool {
        let uniform = ix.regs.iter().all(|(r, _)| self.regs[r].len() == 1);
        uniform && self.lane_var.is_some_and(|v: LoopVar| schedule::wide(ix, v))
    }

    /// Where the lanes' elements are: one place, or two for eight-byte elements.
    fn wide_places(&mut self, buf: u32, at: At) -> Vec<String> {
        let size = self.kernel.bufs[buf as usize].dtype.size();
        let first = self.address(buf, at);
        if size * self.lanes <= 16 {
            return vec![first];
        }
        let second = At { plus: at.plus + self.lanes as i64 / 2, ..at };
        vec![first, self.address(buf, second)]
    }

    /// Loads `n` elements, the same number from each place.
    pub(super) fn load_from(
        &mut self,
        space: &str,
        dtype: DType,
        places: &[String],
        n: usize,
    ) -> Vec<V> {
        let (ty, class) = memory_type(dtype);
        let each = n / places.len();
        let mut out = vec![];
        for place in places {
            let regs: Vec<V> = (0..each).map(|_| self.f.reg(class)).collect();
            let vector = if each > 1 { format!(".v{each}") } else { String::new() };
            self.f.line(format_args!("ld.{space}{vector}.{ty} {}, {place}", list(&regs)));
            out.extend(regs);
        }
        out.into_iter().map(|v| self.widen(dtype, v)).collect()
    }

    /// From what is in memory to what is in registers.
    pub(super) fn widen(&mut self, dtype: DType, v: V) -> V {
        match dtype {
            DType::F16 => self.f.op(Class::F32, "cvt.f32.f16", &[&v]),
            DType::BF16 => {
                let bits = self.f.op(Class::B32, "shl.b32", &[&v, &16]);
                self.f.op(Class::F32, "mov.b32", &[&bits])
            }
            DType::Bool => self.f.op(Class::Pred, "setp.ne.u32", &[&v, &0]),
            _ => v,
        }
    }

    pub(super) fn narrow(&mut self, dtype: DType, v: V) -> V {
        match dtype {
            DType::F16 => self.f.op(Class::B16, "cvt.rn.f16.f32", &[&v]),
            DType::BF16 => self.brain_of(v),
            DType::Bool => self.f.op(Class::B32, "selp.b32", &[&1, &0, &v]),
            _ => v,
        }
    }

    /// The bits of an f32 rounded to bf16, ties to even; there is no instruction for
    /// it on older machines.
    fn brain_of(&mut self, v: V) -> V {
        let f = &mut self.f;
        let bits = f.op(Class::B32, "mov.b32", &[&v]);
        let high = f.op(Class::B32, "shr.u32", &[&bits, &16]);
        let last = f.op(Class::B32, "and.b32", &[&high, &1]);
        let half = f.op(Class::B32, "add.s32", &[&last, &0x7fff]);
        let rounded = f.op(Class::B32, "add.s32", &[&bits, &half]);
        let rounded = f.op(Class::B32, "shr.u32", &[&rounded, &16]);
        let quiet = f.op(Class::B32, "or.b32", &[&high, &0x40]);
        let nan = f.op(Class::Pred, "setp.nan.f32", &[&v, &v]);
        f.op(Class::B32, "selp.b32", &[&quiet, &rounded, &nan])
    }

    pub(super) fn store(&mut self, buf: u32, ix: &Ix, value: &[V]) {
        let dtype = self.kernel.bufs[buf as usize].dtype;
        if self.varies(ix) && self.is_wide(ix) {
            let at = self.index(ix, 0);
            let places = self.wide_places(buf, at);
            let values: Vec<V> = (0..self.lanes).map(|i| value[i % value.len()]).collect();
            self.store_to("global", dtype, &places, &values);
            return;
        }
        let lanes = if self.varies(ix) || value.len() > 1 { self.lanes } else { 1 };
        for lane in 0..lanes {
            let at = self.index(ix, lane);
            let place = self.address(buf, at);
            self.store_to("global", dtype, &[place], &[value[lane % value.len()]]);
        }
    }

    pub(super) fn store_to(&mut self, space: &str, dtype: DType, places: &[String], value: &[V]) {
        let (ty, _) = memory_type(dtype);
        let value: Vec<V> = value.iter().map(|v| self.narrow(dtype, *v)).collect();
        let guard = self.guard.map_or(String::new(), |p| format!("@{p} "));
        for (place, regs) in places.iter().zip(value.chunks(value.len() / places.len())) {
            let vector = if regs.len() > 1 { format!(".v{}", regs.len()) } else { String::new() };
            self.f.line(format_args!("{guard}st.{space}{vector}.{ty} {place}, {}", list(regs)));
        }
    }
}

/// The type in memory and the register it is loaded to.
pub(super) fn memory_type(dtype: DType) -> (&'static str, Class) {
    match dtype {
        DType::F32 => ("f32", Class::F32),
        DType::F64 => ("f64", Class::F64),
        DType::F16 => ("b16", Class::B16),
        DType::BF16 => ("u16", Class::B32),
        DType::I8 => ("s8", Class::B32),
        DType::U8 | DType::Bool => ("u8", Class::B32),
        DType::I32 => ("s32", Class::B32),
        DType::I64 => ("s64", Class::B64),
    }
}

/// Registers as an operand.
pub(super) fn list(regs: &[V]) -> String {
    match regs {
        [one] => one.to_string(),
        many => {
            let names: Vec<String> = many.iter().map(|v| v.to_string()).collect();
            format!("{{{}}}", names.join(", "))
        }
    }
}
