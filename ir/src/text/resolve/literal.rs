//! Numbers and lists at compile time, and how they become tensors.

use super::Resolver;
use super::number::Ratio;
use super::scope::Val;
use crate::diag::{Diag, Span};
use crate::text::ast::{self, ExprKind};
use crate::{DType, Tensor};
use std::sync::Arc;

/// Bytes of all typed literals of a graph.
const MAX_LITERALS: usize = 1 << 30;

/// Elements of a literal before their type is known.
pub(super) enum Number {
    Int(i128),
    Ratio(Ratio),
    Float(f64),
    Bool(bool),
}

impl Number {
    pub fn of(val: &Val) -> Option<Number> {
        Some(match val {
            Val::Int(v) => Number::Int(*v),
            Val::Ratio(r) => Number::Ratio(*r),
            Val::Float(v) => Number::Float(*v),
            Val::Bool(v) => Number::Bool(*v),
            _ => return None,
        })
    }

    /// The element's bytes appended, or why it has no place in `dtype`.
    fn push(&self, dtype: DType, out: &mut Vec<u8>) -> Result<(), String> {
        match (self, dtype) {
            (Number::Bool(v), DType::Bool) => out.push(*v as u8),
            (Number::Bool(v), _) => return Err(format!("`{v}` is a bool, not {dtype}")),
            (Number::Int(0 | 1), DType::Bool)
            | (Number::Int(_) | Number::Ratio(_) | Number::Float(_), DType::Bool) => {
                return Err("a bool is `true` or `false`".into());
            }
            (Number::Int(v), _) if dtype.is_int() => {
                let fits = match dtype {
                    DType::I8 => i8::try_from(*v).is_ok(),
                    DType::U8 => u8::try_from(*v).is_ok(),
                    DType::I32 => i32::try_from(*v).is_ok(),
                    _ => i64::try_from(*v).is_ok(),
                };
                if !fits {
                    return Err(format!("{v} does not fit in {dtype}"));
                }
                out.extend_from_slice(&v.to_le_bytes()[..dtype.size()]);
            }
            (Number::Float(v), _) if dtype.is_int() => {
                return Err(match v.fract() == 0.0 {
                    true => format!("{v:?} is written as a float, but {dtype} is wanted"),
                    false => format!("{v:?} is not a whole number, but {dtype} is wanted"),
                });
            }
            (Number::Ratio(r), _) if dtype.is_int() => {
                return Err(format!("{r} is not a whole number, but {dtype} is wanted"));
            }
            (Number::Int(v), _) => push_float(*v as f64, dtype, out),
            (Number::Ratio(r), _) => push_float(r.to_f64(), dtype, out),
            (Number::Float(v), _) => push_float(*v, dtype, out),
        }
        Ok(())
    }
}

fn push_float(v: f64, dtype: DType, out: &mut Vec<u8>) {
    out.extend_from_slice(Tensor::from_f64(dtype, vec![], [v]).bytes());
}

/// The one-element tensor of a number.
pub(super) fn scalar(number: &Number, dtype: DType) -> Result<Tensor, String> {
    let mut bytes = vec![];
    number.push(dtype, &mut bytes)?;
    Tensor::from_bytes(dtype, vec![], bytes.into()).ok_or_else(|| "no such tensor".to_string())
}

impl Resolver<'_> {
    /// The element type a compile-time value takes when nothing else decides.
    pub(super) fn natural_dtype(&self, val: &Val) -> Option<DType> {
        match val {
            Val::Int(_) => Some(DType::I32),
            Val::Ratio(_) | Val::Float(_) => Some(DType::F32),
            Val::Bool(_) => Some(DType::Bool),
            Val::Const(t) => Some(t.dtype()),
            Val::List(items) => {
                let mut best = None;
                for item in items.iter() {
                    best = match (best, self.natural_dtype(&item.val)?) {
                        (None, d) => Some(d),
                        (Some(a), b) if a == b => Some(a),
                        (Some(DType::F32), DType::I32) | (Some(DType::I32), DType::F32) => {
                            Some(DType::F32)
                        }
                        (Some(a), _) => Some(a),
                    };
                }
                best.or(Some(DType::F32))
            }
            _ => None,
        }
    }

    /// A compile-time value as a tensor of `dtype`.
    pub(super) fn literal(&mut self, val: &Val, span: Span, dtype: DType) -> Option<Tensor> {
        if let Val::Const(t) = val {
            return Some((**t).clone());
        }
        if let Val::List(items) = val
            && !self.work(super::lists::weight(items, usize::MAX), span)
        {
            return None;
        }
        let mut shape = vec![];
        let mut bytes = vec![];
        self.flatten(val, span, dtype, 0, &mut shape, &mut bytes)?;
        match Tensor::from_bytes(dtype, shape, bytes.into()) {
            Some(t) => Some(t),
            None => {
                self.error(
                    Diag::error("E0218", "the rows of this literal have different lengths")
                        .at(span, "not a rectangular tensor"),
                );
                None
            }
        }
    }

    fn flatten(
        &mut self,
        val: &Val,
        span: Span,
        dtype: DType,
        depth: usize,
        shape: &mut Vec<usize>,
        out: &mut Vec<u8>,
    ) -> Option<()> {
        match val {
            Val::List(items) => {
                match shape.get(depth) {
                    None if out.is_empty() => shape.push(items.len()),
                    Some(n) if *n == items.len() => {}
                    _ => {
                        self.error(
                            Diag::error("E0218", "the rows of this literal differ in shape")
                                .at(span, super::ops::count(items.len(), "item")),
                        );
                        return None;
                    }
                }
                for item in items.iter() {
                    self.flatten(&item.val, item.span, dtype, depth + 1, shape, out)?;
                }
                Some(())
            }
            Val::Poison => None,
            other => {
                let Some(number) = Number::of(other) else {
                    let diag = Diag::error("E0219", "a literal holds numbers only")
                        .at(span, format!("this is {}", other.describe()));
                    self.error(match depth {
                        0 => diag.help(format!("to convert a tensor, `cast(.., to: {dtype})`")),
                        _ => diag.help("`stack` makes one tensor of several, `concat` joins them"),
                    });
                    return None;
                };
                if depth != shape.len() {
                    self.error(
                        Diag::error("E0218", "the rows of this literal differ in shape")
                            .at(span, "a number where a row is expected"),
                    );
                    return None;
                }
                if let Err(why) = number.push(dtype, out) {
                    let diag = Diag::error("E0220", why).at(span, format!("wanted as {dtype}"));
                    let diag = match other {
                        Val::Float(v) if dtype.is_int() && v.fract() != 0.0 => {
                            diag.help("to compute with floats, convert: `cast(.., to: f32)`")
                        }
                        _ if dtype.is_int() => self.round_it(diag, other, span),
                        _ => diag,
                    };
                    self.error(diag);
                    return None;
                }
                Some(())
            }
        }
    }

    /// `f32[2, 2](1, 2, 3, 4)`: elements in order, one for all, or bytes.
    pub(super) fn typed_literal(
        &mut self,
        ty: &ast::TypeExpr,
        items: &[ast::Expr],
        span: Span,
    ) -> Val {
        let Some(want) = self.concrete_type(ty) else { return Val::Poison };
        let Some(shape) = want.static_shape() else {
            return self.error(
                Diag::error("E0221", "a literal has a fixed shape")
                    .at(ty.span, format!("{want} depends on a size known only at run time"))
                    .help("`broadcast` a scalar, or use `full(value, shape: [..])`"),
            );
        };
        let count = shape.iter().try_fold(1usize, |n, d| n.checked_mul(*d));
        let total = count
            .and_then(|c| c.checked_mul(want.dtype.size()))
            .and_then(|bytes| bytes.checked_add(self.literal_bytes))
            .filter(|total| *total <= MAX_LITERALS);
        let (Some(count), Some(total)) = (count, total) else {
            return self.error(
                Diag::error("E0221", "this literal is too large")
                    .at(ty.span, format!("{want}, with the other literals more than 1 GiB"))
                    .help("`broadcast` a scalar, or keep the data in a file: `file(\"w.npy\")`"),
            );
        };
        self.literal_bytes = total;
        if let [ast::Expr { kind: ExprKind::Bytes(text), span }] = items {
            let bytes = super::super::print::from_base64(text);
            let tensor =
                bytes.and_then(|b| Tensor::from_bytes(want.dtype, shape.clone(), b.into()));
            return match tensor {
                Some(t) => Val::Const(Arc::new(t)),
                None => {
                    self.error(Diag::error("E0222", "these bytes do not make the tensor").at(
                        *span,
                        format!("expected base64 of {} bytes", count * want.dtype.size()),
                    ))
                }
            };
        }
        let mut bytes = Vec::with_capacity(items.len() * want.dtype.size());
        let mut flat = 0;
        for item in items {
            let val = self.expr(item, None);
            if val.is_poison() {
                return Val::Poison;
            }
            let mut shape = vec![];
            let mut own = vec![];
            if self.flatten(&val, item.span, want.dtype, 0, &mut shape, &mut own).is_none() {
                return Val::Poison;
            }
            flat += own.len() / want.dtype.size();
            bytes.append(&mut own);
        }
        if flat == 1 && count != 1 {
            bytes = bytes.repeat(count);
        } else if flat != count {
            return self.error(
                Diag::error("E0222", format!("{want} has {count} elements, {flat} are given"))
                    .at(span, "give all of them, or one for all")
                    .also(ty.span, format!("{count} elements")),
            );
        }
        match Tensor::from_bytes(want.dtype, shape, bytes.into()) {
            Some(t) => Val::Const(Arc::new(t)),
            None => Val::Poison,
        }
    }
}
