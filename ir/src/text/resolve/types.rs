//! Types as written: concrete ones, and patterns that bind names at a call.

use super::Resolver;
use super::scope::{Bound, Spanned, Val};
use crate::diag::{Diag, Span};
use crate::text::ast::{Expr, ExprKind, TypeExpr, Unary};
use crate::text::names::nearest;
use crate::{DType, Dim, TensorType};
use std::rc::Rc;

/// How a value fails its type.
pub(super) struct Mismatch {
    pub why: String,
    /// The offending part of the type, as written.
    pub at: Span,
}

/// What may follow from a wrong name in a type: reported already.
pub(super) enum Failure {
    Mismatch(Mismatch),
    Reported,
}

impl Resolver<'_> {
    /// A type in which everything is known.
    pub(super) fn concrete_type(&mut self, ty: &TypeExpr) -> Option<TensorType> {
        let dtype = self.dtype_name(ty)?;
        let mut shape = vec![];
        for dim in &ty.dims {
            match &dim.kind {
                ExprKind::Hole => {
                    self.error(
                        Diag::error("E0224", "this type must be known in full")
                            .at(dim.span, "`_` leaves a size open"),
                    );
                    return None;
                }
                ExprKind::Rest(name) => match self.rest_shape(name.as_ref().map(|n| &*n.text)) {
                    Some(dims) => shape.extend(dims),
                    None => {
                        self.error(
                            Diag::error("E0224", "this type must be known in full")
                                .at(dim.span, "`..` leaves the rank open"),
                        );
                        return None;
                    }
                },
                _ => shape.push(self.dim(dim)?),
            }
        }
        for (dim, size) in ty.dims.iter().zip(&shape) {
            if size.as_const().is_some_and(|c| c < 0) {
                self.error(
                    Diag::error("E0226", "a size cannot be negative")
                        .at(dim.span, format!("this is {size}")),
                );
                return None;
            }
        }
        let full = TensorType::new(dtype, shape);
        if !full.is_countable() {
            self.error(
                Diag::error("E0226", format!("{full} is too large"))
                    .at(ty.span, "its size in bytes does not fit in 63 bits"),
            );
            return None;
        }
        Some(full)
    }

    fn rest_shape(&mut self, name: Option<&str>) -> Option<Vec<Dim>> {
        match self.frames.last()?.get(name?)?.val.clone() {
            Val::Shape(dims) => Some(dims.to_vec()),
            _ => None,
        }
    }

    fn dtype_name(&mut self, ty: &TypeExpr) -> Option<DType> {
        if let Some(dtype) = DType::from_name(&ty.dtype.text) {
            return Some(dtype);
        }
        if let Some(Val::DType(d)) = self.lookup(&ty.dtype.text) {
            return Some(d);
        }
        if self.lookup(&ty.dtype.text).is_some_and(|v| v.is_poison()) {
            return None;
        }
        self.unknown_dtype(ty);
        None
    }

    fn unknown_dtype(&mut self, ty: &TypeExpr) {
        let name = &ty.dtype;
        if &*name.text == "_" {
            self.error(
                Diag::error("E0224", "this type must be known in full")
                    .at(name.span, "`_` leaves the element type open"),
            );
            return;
        }
        let mut diag = Diag::error("E0225", format!("there is no element type `{}`", name.text))
            .at(name.span, "not an element type");
        let known = DType::ALL.map(DType::name);
        let alias = crate::text::habits::element_type(&name.text);
        diag = match alias.map(String::from).or_else(|| nearest(&name.text, known.into_iter())) {
            Some(n) => diag.fix(format!("did you mean `{n}`?"), name.span, n),
            None => diag.help(format!("the element types are {}", known.join(", "))),
        };
        self.error(diag);
    }

    /// One size. Tensors of the same name do not hide dims here.
    pub(super) fn dim(&mut self, expr: &Expr) -> Option<Dim> {
        match &expr.kind {
            ExprKind::Int(v) => match i64::try_from(*v) {
                Ok(v) => Some(Dim::constant(v)),
                Err(_) => {
                    self.error(
                        Diag::error("E0226", "this size is too large").at(expr.span, "as a size"),
                    );
                    None
                }
            },
            ExprKind::Name(name) => {
                let bound = self.frames.last().and_then(|f| f.get(name)).map(|b| b.val.clone());
                match bound {
                    Some(Val::Dim(d)) => return Some(d),
                    Some(Val::Int(v)) => return i64::try_from(v).ok().map(Dim::constant),
                    Some(Val::Poison) => return None,
                    _ => {}
                }
                let module = self.module();
                if self.modules[module].dims.contains_key(name) {
                    return Some(Dim::sym(name));
                }
                if let Some(item) = self.modules[module].lets.get(name).cloned() {
                    let val = self.let_value(&item);
                    return self.size_of(&val, expr.span);
                }
                if let Some(val @ (Val::Ratio(_) | Val::Float(_))) = bound {
                    return self.size_of(&val, expr.span);
                }
                self.unknown_dim(name, expr.span, bound);
                None
            }
            ExprKind::Unary(Unary::Neg, inner) => {
                let inner = self.dim(inner)?;
                Some(Dim::constant(0) - inner)
            }
            ExprKind::Chain(first, rest) => {
                // Numbers alone are divided exactly, as everywhere.
                if !self.mentions_size(expr) {
                    let val = self.expr(expr, None);
                    return self.size_of(&val, expr.span);
                }
                let mut acc = self.dim(first)?;
                let mut span = first.span;
                for (op, op_span, rhs) in rest {
                    let a = Spanned { val: as_dim_val(acc), span };
                    let b = Spanned { val: as_dim_val(self.dim(rhs)?), span: rhs.span };
                    span = span.to(rhs.span);
                    acc = match self.fold(*op, &a, &b, span) {
                        Some(Val::Dim(d)) => d,
                        Some(Val::Int(v)) => Dim::constant(i64::try_from(v).ok()?),
                        // A size rounds down, whether it is known now or at run time.
                        Some(Val::Ratio(r)) => Dim::constant(i64::try_from(r.floor()).ok()?),
                        Some(Val::Poison) => return None,
                        _ => {
                            self.error(
                                Diag::error("E0227", "sizes are made with `+ - * /` only")
                                    .at(*op_span, "this does not give a size"),
                            );
                            return None;
                        }
                    };
                }
                Some(acc)
            }
            ExprKind::Call(_) => {
                let val = self.expr(expr, None);
                self.size_of(&val, expr.span)
            }
            ExprKind::Error => None,
            _ => {
                self.error(
                    Diag::error("E0227", "expected a size")
                        .at(expr.span, "a size is a number, a dim, or `+ - * /` of them"),
                );
                None
            }
        }
    }

    /// A value as a size.
    fn size_of(&mut self, val: &Val, span: Span) -> Option<Dim> {
        let diag = match val {
            Val::Dim(d) => return Some(d.clone()),
            Val::Int(v) => match i64::try_from(*v) {
                Ok(v) => return Some(Dim::constant(v)),
                Err(_) => Diag::error("E0226", "this size is too large").at(span, "as a size"),
            },
            Val::Poison => return None,
            Val::Ratio(_) | Val::Float(_) => {
                let diag = Diag::error("E0226", "a size is a whole number")
                    .at(span, format!("this is {}", val.describe()));
                self.round_it(diag, val, span)
            }
            val => Diag::error("E0227", "expected a size")
                .at(span, format!("this is {}", val.describe()))
                .help("a size is a number, a dim, or `+ - * /` of them"),
        };
        self.error(diag);
        None
    }

    /// Whether a dim, or a name that a type gave to a size, stands in it.
    fn mentions_size(&self, expr: &Expr) -> bool {
        match &expr.kind {
            ExprKind::Name(name) => {
                let bound = self.frames.last().and_then(|f| f.get(name));
                match bound.map(|b| &b.val) {
                    Some(Val::Int(_)) => self.frames.last().is_some_and(|f| f.sizes.contains(name)),
                    Some(Val::Ratio(_) | Val::Float(_) | Val::Poison) => false,
                    Some(_) => true,
                    // An unknown name is reported as a size.
                    None => !self.modules[self.module()].lets.contains_key(name),
                }
            }
            ExprKind::Unary(_, inner) => self.mentions_size(inner),
            ExprKind::Chain(first, rest) => {
                self.mentions_size(first) || rest.iter().any(|(_, _, e)| self.mentions_size(e))
            }
            _ => false,
        }
    }

    fn unknown_dim(&mut self, name: &str, span: Span, bound: Option<Val>) {
        let module = self.module();
        let mut diag = match bound {
            Some(val) => {
                let what = val.describe();
                Diag::error("E0120", format!("`{name}` is {what}, not a size"))
                    .at(span, "a size is expected here")
            }
            None => {
                Diag::error("E0120", format!("there is no dim `{name}`")).at(span, "not declared")
            }
        };
        if self.frames.last().is_some_and(|f| f.open.contains(name)) {
            diag = Diag::error("E0228", format!("the size `{name}` is not known in this call"))
                .at(span, "needed here")
                .help("give the result a type: `name: f32[2, 3] = ...`");
        } else {
            let near = {
                let dims = self.modules[module].dims.keys().map(|k| &**k);
                nearest(name, dims)
            };
            diag = match near {
                Some(n) => diag.fix(format!("did you mean `{n}`?"), span, n),
                None => diag.help(format!("declare it at the top: `dim {name}`")),
            };
        }
        self.error(diag);
    }

    /// Checks a type against a pattern; unknown names are bound if `bind`.
    pub(super) fn match_type(
        &mut self,
        pattern: &TypeExpr,
        actual: &TensorType,
        bind: bool,
    ) -> Result<(), Failure> {
        self.match_dtype(pattern, actual, bind)?;
        let rest = pattern.dims.iter().position(|d| matches!(d.kind, ExprKind::Rest(_)));
        let fixed = pattern.dims.len() - rest.is_some() as usize;
        let rank = actual.rank();
        if rank < fixed || (rest.is_none() && rank != fixed) {
            let least = if rest.is_some() { "at least " } else { "" };
            return Err(Failure::Mismatch(Mismatch {
                why: format!("rank {rank}, but {least}{fixed} axes are wanted"),
                at: pattern.span,
            }));
        }
        // Plain names first: sizes computed from them may stand before them.
        let spread = rank - fixed;
        let mut later = vec![];
        let mut axis = 0;
        for dim in &pattern.dims {
            match &dim.kind {
                ExprKind::Rest(name) => {
                    let dims = actual.shape[axis..axis + spread].to_vec();
                    axis += spread;
                    let Some(name) = name else { continue };
                    match self.frames.last().and_then(|f| f.get(&name.text)).map(|b| b.val.clone())
                    {
                        Some(Val::Shape(known)) if *known == dims => {}
                        Some(Val::Shape(known)) => {
                            return Err(Failure::Mismatch(Mismatch {
                                why: format!(
                                    "`{}` is {} here, but {} before",
                                    name.text,
                                    show(&dims),
                                    show(&known)
                                ),
                                at: name.span,
                            }));
                        }
                        Some(Val::Poison) => return Err(Failure::Reported),
                        _ if bind => self.bind(&name.text, Val::Shape(Rc::new(dims)), name.span),
                        _ => {
                            self.unknown_dim(&name.text, name.span, None);
                            return Err(Failure::Reported);
                        }
                    }
                }
                ExprKind::Hole => axis += 1,
                ExprKind::Name(name) if bind && self.is_open(name) => {
                    let size = actual.shape[axis].clone();
                    self.bind(name, as_dim_val(size), dim.span);
                    axis += 1;
                }
                _ => {
                    later.push((dim, axis));
                    axis += 1;
                }
            }
        }
        for (dim, axis) in later {
            let Some(want) = self.dim(dim) else { return Err(Failure::Reported) };
            if want != actual.shape[axis] {
                let name = match &dim.kind {
                    ExprKind::Name(n) if want.as_sym() != Some(n) => format!("`{n}` = "),
                    _ => String::new(),
                };
                return Err(Failure::Mismatch(Mismatch {
                    why: format!(
                        "axis {axis} has size {}, but {name}{want} is wanted",
                        actual.shape[axis]
                    ),
                    at: dim.span,
                }));
            }
        }
        Ok(())
    }

    fn match_dtype(
        &mut self,
        pattern: &TypeExpr,
        actual: &TensorType,
        bind: bool,
    ) -> Result<(), Failure> {
        let name = &pattern.dtype;
        let wanted = match DType::from_name(&name.text) {
            Some(d) => d,
            None if &*name.text == "_" => return Ok(()),
            None => match self.frames.last().and_then(|f| f.get(&name.text)).map(|b| b.val.clone())
            {
                Some(Val::DType(d)) => d,
                Some(Val::Poison) => return Err(Failure::Reported),
                None if bind && name.text.starts_with(|c: char| c.is_ascii_uppercase()) => {
                    self.bind(&name.text, Val::DType(actual.dtype), name.span);
                    return Ok(());
                }
                _ => {
                    self.unknown_dtype(pattern);
                    return Err(Failure::Reported);
                }
            },
        };
        if wanted == actual.dtype {
            return Ok(());
        }
        Err(Failure::Mismatch(Mismatch {
            why: format!("element type {}, but {wanted} is wanted", actual.dtype),
            at: name.span,
        }))
    }

    /// Whether a name in a function's type is bound by the call.
    fn is_open(&self, name: &str) -> bool {
        let Some(frame) = self.frames.last() else { return false };
        if frame.get(name).is_some_and(|b| {
            matches!(b.val, Val::Dim(_) | Val::Int(_) | Val::Shape(_) | Val::Poison)
        }) {
            return false;
        }
        let module = &self.modules[frame.module];
        !module.dims.contains_key(name) && !module.lets.contains_key(name)
    }

    pub(super) fn bind(&mut self, name: &str, val: Val, span: Span) {
        let build = self.build.id;
        let frame = self.frame();
        frame.open.remove(name);
        if let Val::Int(_) = val {
            frame.sizes.insert(name.into());
        }
        // At the function's own level, whatever block is open.
        if let Some(scope) = frame.scopes.first_mut() {
            scope.insert(name.into(), Bound { val, span, build });
        }
    }
}

/// A size as a value that stays a size when folded.
fn as_dim_val(dim: Dim) -> Val {
    match dim.as_const() {
        Some(c) => Val::Int(c as i128),
        None => Val::Dim(dim),
    }
}

pub(super) fn show(dims: &[Dim]) -> String {
    let dims: Vec<String> = dims.iter().map(Dim::to_string).collect();
    format!("[{}]", dims.join(", "))
}
