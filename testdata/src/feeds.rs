//! Deterministic inputs for an entry.

use crate::directive::{Directive, Range};
use std::collections::BTreeMap;
use tfc_ir::{DType, Func, Tensor, TensorType};

/// A small generator of our own: the corpus must see the same numbers forever.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A stream named by what it is for.
    pub fn named(name: &str) -> Rng {
        let mut h = 0xcbf2_9ce4_8422_2325u64;
        for b in name.bytes() {
            h = (h ^ b as u64).wrapping_mul(0x100_0000_01b3);
        }
        Rng(h)
    }

    pub fn bits(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n.max(1)
    }
}

/// Run-time dims of an entry's parameters, in order of first appearance.
pub fn dims(func: &Func) -> Vec<String> {
    let mut out: Vec<String> = vec![];
    for &param in func.params() {
        for dim in &func.ty(param).shape {
            for sym in dim.syms() {
                if !out.iter().any(|d| **d == *sym) {
                    out.push(sym.to_string());
                }
            }
        }
    }
    out
}

/// One tensor per parameter of the entry.
pub fn feeds(
    func: &Func,
    directive: &Directive,
    dims: &BTreeMap<String, i64>,
) -> Vec<(String, Tensor)> {
    func.params()
        .iter()
        .enumerate()
        .map(|(i, &param)| {
            let name = func.values[param].name.as_deref().unwrap_or("").to_string();
            let ty = func.ty(param);
            let key = format!("{}/{name}/{i}/{dims:?}", func.name);
            let value = tensor(&mut Rng::named(&key), ty, dims, directive.ranges.get(&name));
            (name, value)
        })
        .collect()
}

/// A tensor of the given type: floats in -2..2, integers in 0..3, bools mixed,
/// unless a range is given.
pub fn tensor(
    rng: &mut Rng,
    ty: &TensorType,
    dims: &BTreeMap<String, i64>,
    range: Option<&Range>,
) -> Tensor {
    let shape: Vec<usize> = ty
        .shape
        .iter()
        .map(|d| {
            let size = d.eval(&|name| dims.get(name).copied());
            size.and_then(|s| usize::try_from(s).ok())
                .unwrap_or_else(|| panic!("no size for {d} in {ty} with {dims:?}"))
        })
        .collect();
    let n: usize = shape.iter().product();
    if ty.dtype.is_float() {
        let Range { lo, hi } = range.copied().unwrap_or(Range { lo: -2.0, hi: 2.0 });
        // Exact in every float type, so that all ways of running start equal.
        Tensor::from_f64(ty.dtype, shape, (0..n).map(|_| lo + (hi - lo) * rng.unit()))
    } else if ty.dtype == DType::Bool {
        Tensor::from_i64(ty.dtype, shape, (0..n).map(|_| rng.below(2) as i64))
    } else {
        let Range { lo, hi } = range.copied().unwrap_or(Range { lo: 0.0, hi: 3.0 });
        let span = ((hi - lo) as i64).max(1) as u64;
        Tensor::from_i64(ty.dtype, shape, (0..n).map(|_| lo as i64 + rng.below(span) as i64))
    }
}
