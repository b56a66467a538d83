//! Attributes of a call: from values to what the op's record asks for.

use super::Resolver;
use super::scope::Val;
use crate::attr::AttrKind;
use crate::diag::{Diag, Span};
use crate::op::AttrSpec;
use crate::text::ast::{Expr, ExprKind};
use crate::text::names::nearest;
use crate::{Attr, Dim, OpDef, TensorType};

impl Resolver<'_> {
    /// The attribute a written name means: itself, or `axis` for `axes`.
    pub(super) fn attr_spec(
        &mut self,
        def: &'static OpDef,
        name: &str,
        span: Span,
    ) -> Option<&'static AttrSpec> {
        let found = def.attrs.iter().find(|a| a.name == name).or_else(|| {
            let other = match name {
                "axis" => "axes",
                "axes" => "axis",
                "keepdims" | "keep_dims" => "keep",
                "dtype" => "to",
                _ => return None,
            };
            def.attrs.iter().find(|a| a.name == other)
        });
        if found.is_some() {
            return found;
        }
        let names: Vec<&str> =
            def.attrs.iter().map(|a| a.name).chain(def.operands.iter().map(|o| o.name)).collect();
        let mut diag = Diag::error("E0204", format!("`{}` has no attribute `{name}`", def.name))
            .at(span, "unknown attribute");
        diag = match nearest(name, names.iter().copied()) {
            Some(n) => diag.fix(format!("did you mean `{n}`?"), span, n),
            None if names.is_empty() => diag.help("it takes no attributes"),
            None => diag.help(format!("it takes {}", names.join(", "))),
        };
        self.error(diag);
        None
    }

    /// The value of an attribute. `x` is the first operand's type.
    pub(super) fn attr_value(
        &mut self,
        def: &'static OpDef,
        spec: &'static AttrSpec,
        expr: &Expr,
        x: Option<&TensorType>,
    ) -> Option<Attr> {
        if spec.kind == AttrKind::Shape {
            // Positions and paddings may be negative, sizes may not.
            let sizes = matches!(spec.name, "shape" | "size" | "sizes");
            let mut dims = self.shape_like(expr, x, !sizes)?;
            if def.name == "slice"
                && let Some(x) = x
            {
                for (d, size) in dims.iter_mut().zip(&x.shape) {
                    if d.as_const().is_some_and(|c| c < 0) {
                        *d = size.clone() + d.clone();
                    }
                }
            }
            return Some(Attr::Shape(dims));
        }
        if spec.kind == AttrKind::Offsets {
            return self.offsets_attr(expr).map(Attr::Shape);
        }
        let val = self.expr(expr, None);
        self.coerce(def, spec, &val, expr.span, x)
    }

    fn coerce(
        &mut self,
        def: &'static OpDef,
        spec: &'static AttrSpec,
        val: &Val,
        span: Span,
        x: Option<&TensorType>,
    ) -> Option<Attr> {
        let is_axis = matches!(spec.name, "axis" | "axes" | "perm") && def.name != "broadcast";
        let rank = x.map(|x| x.rank() as i64);
        let int = |v: &Val| match v {
            Val::Int(v) => i64::try_from(*v).ok(),
            _ => None,
        };
        let axis = |v: i64| match rank {
            Some(rank) if is_axis && v < 0 && v >= -rank => v + rank,
            _ => v,
        };
        let attr = match (spec.kind, val) {
            (_, Val::Poison) => return None,
            (AttrKind::Int, v) => int(v).map(|v| Attr::Int(axis(v))),
            (AttrKind::Ints, Val::List(items)) => items
                .iter()
                .map(|i| int(&i.val).map(axis))
                .collect::<Option<Vec<i64>>>()
                .map(Attr::Ints),
            (AttrKind::Ints, v) => int(v).map(|v| Attr::Ints(vec![axis(v)])),
            (AttrKind::Float, v) => super::number::to_f64(v).map(Attr::float),
            (AttrKind::Bool, Val::Bool(v)) => Some(Attr::Bool(*v)),
            (AttrKind::Str, Val::Str(s)) => Some(Attr::Str(s.to_string())),
            (AttrKind::DType, Val::DType(d)) => Some(Attr::DType(*d)),
            (AttrKind::Tensor, Val::Const(t)) => Some(Attr::Tensor(t.clone())),
            (AttrKind::Tensor, v) => {
                let dtype = self.natural_dtype(v);
                match dtype {
                    Some(dtype) => {
                        return self.literal(v, span, dtype).map(|t| Attr::Tensor(t.into()));
                    }
                    None => None,
                }
            }
            _ => None,
        };
        if attr.is_none() {
            let what = val.describe();
            let wanted = match spec.kind {
                AttrKind::Int => "a whole number",
                AttrKind::Ints => "a list of whole numbers",
                AttrKind::Float => "a number",
                AttrKind::Bool => "`true` or `false`",
                AttrKind::Str => "a string",
                AttrKind::DType => "an element type such as `f32`",
                AttrKind::Shape => "a shape such as `[B, 10]`",
                AttrKind::Offsets => "a list such as `[0, B - 1]`",
                AttrKind::Tensor => "a literal",
            };
            let mut diag =
                Diag::error("E0205", format!("`{}` of `{}` must be {wanted}", spec.name, def.name))
                    .at(span, format!("this is {what}"));
            if matches!(val, Val::Tensor(_) | Val::Var(_)) {
                diag = diag.help("attributes are known when the graph is compiled");
            }
            if matches!(spec.kind, AttrKind::Int | AttrKind::Ints) {
                let (val, span) = match val {
                    Val::List(items) => match items.iter().find(|i| int(&i.val).is_none()) {
                        Some(item) => (&item.val, item.span),
                        None => (val, span),
                    },
                    val => (val, span),
                };
                diag = self.round_it(diag, val, span);
            }
            self.error(diag);
        }
        attr
    }

    /// A shape; one size may be `_`, worked out from the operand.
    pub(super) fn shape_attr(&mut self, expr: &Expr, x: Option<&TensorType>) -> Option<Vec<Dim>> {
        self.shape_like(expr, x, false)
    }

    fn shape_like(
        &mut self,
        expr: &Expr,
        x: Option<&TensorType>,
        negative: bool,
    ) -> Option<Vec<Dim>> {
        let ExprKind::List(items) = &expr.kind else {
            return match self.expr(expr, None) {
                Val::Shape(dims) => Some(dims.to_vec()),
                Val::List(items) => {
                    let mut dims = vec![];
                    for item in items.iter() {
                        match &item.val {
                            Val::Int(v) if *v >= 0 || negative => {
                                dims.push(Dim::constant(i64::try_from(*v).ok()?))
                            }
                            Val::Dim(d) => dims.push(d.clone()),
                            val => return self.bad_shape(val, item.span),
                        }
                    }
                    Some(dims)
                }
                Val::Int(v) if v >= 0 => Some(vec![Dim::constant(i64::try_from(v).ok()?)]),
                Val::Dim(d) => Some(vec![d]),
                Val::Poison => None,
                val => self.bad_shape(&val, expr.span),
            };
        };
        let mut dims = vec![];
        let mut hole = None;
        for item in items {
            match &item.kind {
                ExprKind::Hole => {
                    if hole.replace((dims.len(), item.span)).is_some() {
                        self.error(
                            Diag::error("E0215", "only one size may be left open")
                                .at(item.span, "this is the second `_`"),
                        );
                        return None;
                    }
                    dims.push(Dim::constant(1));
                }
                ExprKind::Rest(Some(name)) => match self.lookup(&name.text) {
                    Some(Val::Shape(s)) => dims.extend(s.iter().cloned()),
                    Some(Val::Poison) => return None,
                    _ => {
                        self.expr(item, None);
                        return None;
                    }
                },
                _ => {
                    let dim = self.dim(item)?;
                    if !negative && dim.as_const().is_some_and(|c| c < 0) {
                        let mut diag = Diag::error("E0226", "a size cannot be negative")
                            .at(item.span, format!("this is {dim}"));
                        if dim.as_const() == Some(-1) {
                            diag = diag.fix("to have it worked out, write `_`", item.span, "_");
                        }
                        self.error(diag);
                        return None;
                    }
                    dims.push(dim);
                }
            }
        }
        if let Some((at, span)) = hole {
            let total = x.map(|x| x.elements());
            let known = Dim::product(&dims);
            match total.as_ref().and_then(|t| t.div_exact(&known)) {
                Some(d) => dims[at] = d,
                None => {
                    let total = total.map(|t| t.to_string()).unwrap_or_default();
                    self.error(
                        Diag::error("E0216", "the open size cannot be worked out")
                            .at(span, format!("{total} elements do not divide by {known}")),
                    );
                    return None;
                }
            }
        }
        Some(dims)
    }

    /// As a shape, but of indices or amounts.
    fn offsets_attr(&mut self, expr: &Expr) -> Option<Vec<Dim>> {
        let ExprKind::List(items) = &expr.kind else {
            return match self.expr(expr, None) {
                Val::Int(v) => Some(vec![Dim::constant(i64::try_from(v).ok()?)]),
                Val::Dim(d) => Some(vec![d]),
                Val::Shape(dims) => Some(dims.to_vec()),
                Val::Poison => None,
                val => self.bad_shape(&val, expr.span),
            };
        };
        items.iter().map(|item| self.dim(item)).collect()
    }

    fn bad_shape(&mut self, val: &Val, span: Span) -> Option<Vec<Dim>> {
        let diag = match val {
            Val::Ratio(_) | Val::Float(_) => Diag::error("E0226", "a size is a whole number")
                .at(span, format!("this is {}", val.describe())),
            _ => Diag::error("E0205", "expected a shape")
                .at(span, "a shape is a list such as `[B, 10]`"),
        };
        let diag = self.round_it(diag, val, span);
        self.error(diag);
        None
    }
}
