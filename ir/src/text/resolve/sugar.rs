//! Surface forms that are several nodes, or none of the table's.

use super::Resolver;
use super::expr::Want;
use super::literal::{Number, scalar};
use super::scope::{Spanned, Val};
use crate::build::NodeSpec;
use crate::diag::{Diag, Span};
use crate::text::ast::{Arg, Call, Expr, IndexItem};
use crate::{Attr, Attrs, DType, Dim, Op, TensorType, ValueId};
use std::rc::Rc;
use std::sync::Arc;

impl Resolver<'_> {
    /// A tensor of one number.
    pub(super) fn fill(&mut self, number: i128, ty: &TensorType, span: Span) -> Val {
        let number = match ty.dtype {
            DType::Bool => Number::Bool(number != 0),
            _ => Number::Int(number),
        };
        let Ok(tensor) = scalar(&number, ty.dtype) else { return Val::Poison };
        let value = self.constant(tensor, span);
        match value.and_then(|v| self.broadcast_to(v, &ty.shape, span)) {
            Some(v) => Val::Tensor(v),
            None => Val::Poison,
        }
    }

    /// Only these arguments, by name or in this order.
    fn known_args(&mut self, call: &Call, names: &[&str]) -> bool {
        let mut position = 0;
        for arg in &call.args {
            match &arg.name {
                None => position += 1,
                Some(n) if names.contains(&&*n.text) => {}
                Some(n) => {
                    self.error(
                        Diag::error(
                            "E0133",
                            format!("`{}` has no parameter `{}`", call.callee.text, n.text),
                        )
                        .at(n.span, "unknown")
                        .help(format!("it takes {}", names.join(", "))),
                    );
                    return false;
                }
            }
        }
        if position > names.len() {
            self.error(
                Diag::error(
                    "E0132",
                    format!("`{}` takes {} arguments", call.callee.text, names.len()),
                )
                .at(call.callee.span, format!("{position} are given")),
            );
            return false;
        }
        true
    }

    fn missing(&mut self, call: &Call, name: &str) -> Val {
        self.error(
            Diag::error("E0132", format!("`{}` needs `{name}`", call.callee.text))
                .at(call.callee.span, "an argument is missing"),
        )
    }

    /// `zeros(shape: [2, 3], dtype: f64)`.
    pub(super) fn filled(&mut self, call: &Call, span: Span, number: i128, want: Want) -> Val {
        if !self.known_args(call, &["shape", "dtype"]) {
            return Val::Poison;
        }
        match self.fill_type(&call.args, 0, want) {
            Some(Some(ty)) => self.fill(number, &ty, span),
            Some(None) => self.missing(call, "shape"),
            None => Val::Poison,
        }
    }

    fn fill_type(&mut self, args: &[Arg], at: usize, want: Want) -> Option<Option<TensorType>> {
        let shape = match self.arg(args, at, "shape") {
            Some(e) => self.shape_attr(e, None)?,
            None => match want {
                Some(want) => want.shape.clone(),
                None => return Some(None),
            },
        };
        let dtype = match self.arg(args, at + 1, "dtype") {
            Some(e) => match self.expr(e, None) {
                Val::DType(d) => d,
                Val::Poison => return None,
                _ => {
                    self.error(
                        Diag::error("E0205", "`dtype` must be an element type such as `f32`")
                            .at(e.span, "not one"),
                    );
                    return None;
                }
            },
            None => want.map(|w| w.dtype).unwrap_or(DType::F32),
        };
        Some(Some(TensorType::new(dtype, shape)))
    }

    pub(super) fn filled_like(&mut self, call: &Call, span: Span, number: i128) -> Val {
        if !self.known_args(call, &["x"]) {
            return Val::Poison;
        }
        let Some(e) = self.arg(&call.args, 0, "x") else { return self.missing(call, "x") };
        let val = self.expr(e, None);
        match self.tensor(&val, e.span, None) {
            Some(v) => {
                let ty = self.type_of(v);
                self.fill(number, &ty, span)
            }
            None => Val::Poison,
        }
    }

    /// `full(0.5, shape: [2, 3])`.
    pub(super) fn full_call(&mut self, call: &Call, span: Span, want: Want) -> Val {
        if !self.known_args(call, &["value", "shape", "dtype"]) {
            return Val::Poison;
        }
        let Some(e) = self.arg(&call.args, 0, "value") else { return self.missing(call, "value") };
        let val = self.expr(e, None);
        let ty = match self.fill_type(&call.args, 1, want) {
            Some(Some(ty)) => ty,
            Some(None) => return self.missing(call, "shape"),
            None => return Val::Poison,
        };
        let given = self.arg(&call.args, 2, "dtype").is_some() || want.is_some();
        let dtype = if given { Some(ty.dtype) } else { None };
        let value = self.tensor(&val, e.span, dtype);
        match value.and_then(|v| self.broadcast_to(v, &ty.shape, span)) {
            Some(v) => Val::Tensor(v),
            None => Val::Poison,
        }
    }

    /// `file("w.npy")`, `file("w.safetensors", key: "w1")`.
    pub(super) fn file(&mut self, call: &Call, span: Span, want: Want) -> Val {
        if !self.known_args(call, &["path", "key"]) {
            return Val::Poison;
        }
        let text = |r: &mut Self, at, name| -> Result<Option<(Rc<str>, Span)>, ()> {
            match r.arg(&call.args, at, name) {
                None => Ok(None),
                Some(e) => match r.expr(e, None) {
                    Val::Str(s) => Ok(Some((s, e.span))),
                    Val::Poison => Err(()),
                    _ => {
                        r.error(
                            Diag::error("E0205", format!("`{name}` of `file` must be a string"))
                                .at(e.span, "not a string"),
                        );
                        Err(())
                    }
                },
            }
        };
        let (Ok(path), Ok(key)) = (text(self, 0, "path"), text(self, 1, "key")) else {
            return Val::Poison;
        };
        let Some((path, path_span)) = path else { return self.missing(call, "path") };
        match self.loader.tensor(&path, key.as_ref().map(|(k, _)| &**k)) {
            Ok(tensor) => {
                if let Some(want) = want
                    && want.static_shape().as_deref() == Some(tensor.shape())
                    && want.dtype != tensor.dtype()
                {
                    return self.error(
                        Diag::error(
                            "E0530",
                            format!("\"{path}\" holds {}, but {want} is wanted", tensor.dtype()),
                        )
                        .at(path_span, format!("element type {}", tensor.dtype()))
                        .help(format!("convert it: `cast(file(..), to: {})`", want.dtype)),
                    );
                }
                let _ = span;
                Val::Const(Arc::new(tensor))
            }
            Err(refusal) => {
                self.error(refusal.at("E0531", format!("cannot read \"{path}\""), path_span))
            }
        }
    }

    /// `grad(y, wrt: [a, b], ct: c)`.
    pub(super) fn grad(&mut self, call: &Call, span: Span) -> Val {
        let Some(op) = self.ops.get("grad").copied() else { return Val::Poison };
        let plain = call.args.iter().filter(|a| a.name.is_none()).count();
        if plain > 1
            || call.args.iter().any(|a| a.name.as_ref().is_some_and(|n| &*n.text == "seeded"))
        {
            return self.call_op(op, call, span);
        }
        if !self.known_args(call, &["y", "wrt", "ct"]) {
            return Val::Poison;
        }
        let Some(y) = self.arg(&call.args, 0, "y") else { return self.missing(call, "y") };
        let Some(wrt) = self.arg(&call.args, 9, "wrt") else { return self.missing(call, "wrt") };
        let y_val = self.expr(y, None);
        let (items, many) = match self.expr(wrt, None) {
            Val::List(items) | Val::Tuple(items) => (items.to_vec(), true),
            val => (vec![Spanned { val, span: wrt.span }], false),
        };
        let mut operands = vec![];
        let mut spans = vec![y.span];
        let mut ok = true;
        match self.tensor(&y_val, y.span, None) {
            Some(v) => operands.push(v),
            None => ok = false,
        }
        let ct = self.arg(&call.args, 9, "ct");
        if let Some(e) = ct {
            let val = self.expr(e, None);
            let dtype = operands.first().map(|v| self.type_of(*v).dtype);
            match self.tensor(&val, e.span, dtype) {
                Some(v) => operands.push(v),
                None => ok = false,
            }
            spans.push(e.span);
        }
        if items.is_empty() {
            return self.error(
                Diag::error("E0314", "`grad` needs something to differentiate by")
                    .at(wrt.span, "the list is empty"),
            );
        }
        for item in items {
            match self.tensor(&item.val, item.span, None) {
                Some(v) => {
                    let ty = self.type_of(v);
                    if !ty.dtype.is_float() {
                        self.error(
                            Diag::error(
                                "E0315",
                                format!("there is no gradient with respect to {ty}"),
                            )
                            .at(item.span, "gradients need floats"),
                        );
                        ok = false;
                    }
                    operands.push(v);
                }
                None => ok = false,
            }
            spans.push(item.span);
        }
        if !ok {
            return Val::Poison;
        }
        let attrs = Attrs::none().with("seeded", Attr::Bool(ct.is_some()));
        let spec = NodeSpec::new(op, &operands, attrs, span);
        match self.finish(spec, &spans, &[], call.callee.span) {
            Val::Tensor(v) if many => {
                Val::Tuple(Rc::new(vec![Spanned { val: Val::Tensor(v), span }]))
            }
            val => val,
        }
    }

    // Movement.

    fn operand(&mut self, call: &Call, at: usize, name: &str) -> Option<(ValueId, TensorType)> {
        let Some(e) = self.arg(&call.args, at, name) else {
            self.missing(call, name);
            return None;
        };
        let val = self.expr(e, None);
        let v = self.tensor(&val, e.span, None)?;
        Some((v, self.type_of(v)))
    }

    /// An axis argument, counted from the end if negative.
    fn axis(&mut self, e: &Expr, rank: usize) -> Option<usize> {
        let val = self.expr(e, None);
        let rank = rank as i128;
        match val {
            Val::Int(v) if v >= -rank && v < rank => {
                Some(if v < 0 { v + rank } else { v } as usize)
            }
            Val::Poison => None,
            Val::Int(v) => {
                self.error(
                    Diag::error("E0207", format!("axis {v} is out of range for rank {rank}"))
                        .at(e.span, "no such axis"),
                );
                None
            }
            other => {
                let what = other.describe();
                let diag = Diag::error("E0205", "an axis is a whole number")
                    .at(e.span, format!("this is {what}"));
                let diag = self.round_it(diag, &other, e.span);
                self.error(diag);
                None
            }
        }
    }

    fn slice_axis(
        &mut self,
        x: ValueId,
        axis: usize,
        lo: Dim,
        hi: Dim,
        span: Span,
    ) -> Option<ValueId> {
        let ty = self.type_of(x);
        let mut starts = vec![Dim::constant(0); ty.rank()];
        let mut ends = ty.shape.clone();
        starts[axis] = lo;
        ends[axis] = hi;
        self.slice(x, starts, ends, vec![1; ty.rank()], span)
    }

    fn slice(
        &mut self,
        x: ValueId,
        starts: Vec<Dim>,
        ends: Vec<Dim>,
        strides: Vec<i64>,
        span: Span,
    ) -> Option<ValueId> {
        let ty = self.type_of(x);
        if starts.iter().all(Dim::is_zero) && ends == ty.shape && strides.iter().all(|s| *s == 1) {
            return Some(x);
        }
        let attrs = Attrs::none()
            .with("starts", Attr::Shape(starts))
            .with("ends", Attr::Shape(ends))
            .with("strides", Attr::Ints(strides));
        self.emit(Op::from_name("slice")?, &[x], attrs, span)
    }

    /// `split(x, parts: 3, axis: 1)` or `split(x, sizes: [1, 2], axis: 1)`.
    pub(super) fn split(&mut self, call: &Call, span: Span) -> Val {
        if !self.known_args(call, &["x", "parts", "axis", "sizes"]) {
            return Val::Poison;
        }
        let Some((x, ty)) = self.operand(call, 0, "x") else { return Val::Poison };
        let axis = match self.arg(&call.args, 2, "axis") {
            Some(e) => match self.axis(e, ty.rank()) {
                Some(a) => a,
                None => return Val::Poison,
            },
            None => 0,
        };
        let Some(size) = ty.shape.get(axis).cloned() else {
            return self.error(
                Diag::error("E0207", "a scalar cannot be split").at(span, format!("this is {ty}")),
            );
        };
        let sizes = if let Some(e) = self.arg(&call.args, 3, "sizes") {
            let Some(sizes) = self.shape_attr(e, None) else { return Val::Poison };
            let total = sizes.iter().fold(Dim::constant(0), |a, d| a + d.clone());
            if total != size {
                return self.error(
                    Diag::error(
                        "E0143",
                        format!("the parts have {total} in all, axis {axis} has {size}"),
                    )
                    .at(e.span, format!("{total} in all"))
                    .also(span, format!("axis {axis} of {ty}")),
                );
            }
            sizes
        } else {
            let Some(e) = self.arg(&call.args, 1, "parts") else {
                return self.missing(call, "parts");
            };
            let parts = match self.expr(e, None) {
                Val::Int(v) if (1..=65536).contains(&v) => v as i64,
                Val::Poison => return Val::Poison,
                val => {
                    let diag = Diag::error("E0205", "`parts` must be a positive whole number")
                        .at(e.span, format!("this is {}", val.describe()));
                    let diag = self.round_it(diag, &val, e.span);
                    return self.error(diag);
                }
            };
            match size.div_exact(&Dim::constant(parts)) {
                Some(part) => vec![part; parts as usize],
                None => {
                    return self.error(
                        Diag::error(
                            "E0143",
                            format!("axis {axis} of size {size} has no {parts} equal parts"),
                        )
                        .at(e.span, format!("{parts} parts"))
                        .help("give the sizes: `sizes: [..]`"),
                    );
                }
            }
        };
        let mut at = Dim::constant(0);
        let mut out = vec![];
        for size in sizes {
            let end = at.clone() + size;
            match self.slice_axis(x, axis, at, end.clone(), span) {
                Some(v) => out.push(Spanned { val: Val::Tensor(v), span }),
                None => return Val::Poison,
            }
            at = end;
        }
        Val::Tuple(Rc::new(out))
    }

    /// Removes axes of size one.
    pub(super) fn squeeze(&mut self, call: &Call, span: Span) -> Val {
        if !self.known_args(call, &["x", "axis"]) {
            return Val::Poison;
        }
        let Some((x, ty)) = self.operand(call, 0, "x") else { return Val::Poison };
        let mut shape = ty.shape.clone();
        match self.arg(&call.args, 1, "axis") {
            None => shape.retain(|d| !d.is_one()),
            Some(e) => {
                let Some(axis) = self.axis(e, ty.rank()) else { return Val::Poison };
                if !shape[axis].is_one() {
                    return self.error(
                        Diag::error(
                            "E0143",
                            format!("axis {axis} of {ty} has more than one element"),
                        )
                        .at(e.span, format!("its size is {}", shape[axis])),
                    );
                }
                shape.remove(axis);
            }
        }
        self.reshape(x, shape, span).map(Val::Tensor).unwrap_or(Val::Poison)
    }

    /// Adds an axis of size one.
    pub(super) fn unsqueeze(&mut self, call: &Call, span: Span) -> Val {
        if !self.known_args(call, &["x", "axis"]) {
            return Val::Poison;
        }
        let Some((x, ty)) = self.operand(call, 0, "x") else { return Val::Poison };
        let Some(e) = self.arg(&call.args, 1, "axis") else { return self.missing(call, "axis") };
        let Some(axis) = self.axis(e, ty.rank() + 1) else { return Val::Poison };
        let mut shape = ty.shape.clone();
        shape.insert(axis, Dim::constant(1));
        self.reshape(x, shape, span).map(Val::Tensor).unwrap_or(Val::Poison)
    }

    /// Joins all axes from `axis` on into one.
    pub(super) fn flatten_call(&mut self, call: &Call, span: Span) -> Val {
        if !self.known_args(call, &["x", "axis"]) {
            return Val::Poison;
        }
        let Some((x, ty)) = self.operand(call, 0, "x") else { return Val::Poison };
        let axis = match self.arg(&call.args, 1, "axis") {
            None => 0,
            Some(e) => match self.axis(e, ty.rank()) {
                Some(a) => a,
                None => return Val::Poison,
            },
        };
        let mut shape = ty.shape[..axis].to_vec();
        shape.push(Dim::product(&ty.shape[axis..]));
        self.reshape(x, shape, span).map(Val::Tensor).unwrap_or(Val::Poison)
    }

    /// Joins tensors of one type along a new axis.
    pub(super) fn stack(&mut self, call: &Call, span: Span) -> Val {
        let axis_arg =
            call.args.iter().find(|a| a.name.as_ref().is_some_and(|n| &*n.text == "axis"));
        let mut parts = vec![];
        for arg in call.args.iter().filter(|a| a.name.is_none()) {
            let val = self.expr(&arg.value, None);
            let items = match val {
                Val::List(items) | Val::Tuple(items) => items.to_vec(),
                val => vec![Spanned { val, span: arg.value.span }],
            };
            for item in items {
                match self.tensor(&item.val, item.span, None) {
                    Some(v) => parts.push(v),
                    None => return Val::Poison,
                }
            }
        }
        let Some(first) = parts.first().map(|v| self.type_of(*v)) else {
            return self.missing(call, "x");
        };
        let axis = match axis_arg {
            None => 0,
            Some(a) => match self.axis(&a.value, first.rank() + 1) {
                Some(a) => a,
                None => return Val::Poison,
            },
        };
        let mut rows = vec![];
        for part in parts {
            let mut shape = self.type_of(part).shape;
            shape.insert(axis.min(shape.len()), Dim::constant(1));
            match self.reshape(part, shape, span) {
                Some(v) => rows.push(v),
                None => return Val::Poison,
            }
        }
        let Some(op) = Op::from_name("concat") else { return Val::Poison };
        let attrs = Attrs::none().with("axis", Attr::Int(axis as i64));
        self.emit(op, &rows, attrs, span).map(Val::Tensor).unwrap_or(Val::Poison)
    }

    /// `x[0, 1:3, .., -1]`.
    pub(super) fn index(&mut self, base: &Expr, items: &[IndexItem], span: Span) -> Val {
        let val = self.expr(base, None);
        // Lists and tuples are picked from when the graph is compiled.
        if let (Val::List(list) | Val::Tuple(list), [IndexItem::At(at)]) = (&val, items) {
            let n = list.len() as i128;
            return match self.expr(at, None) {
                Val::Int(i) if i >= -n && i < n => {
                    let i = if i < 0 { i + n } else { i };
                    list[i as usize].val.clone()
                }
                Val::Poison => Val::Poison,
                _ => self.error(
                    Diag::error("E0145", format!("there are {n} items"))
                        .at(at.span, "expected the number of one of them"),
                ),
            };
        }
        let Some(x) = self.tensor(&val, base.span, None) else { return Val::Poison };
        let ty = self.type_of(x);
        let named = items.iter().filter(|i| !matches!(i, IndexItem::Rest(_))).count();
        let rests = items.len() - named;
        if named > ty.rank() || rests > 1 {
            return self.error(
                Diag::error("E0145", format!("{named} indices for a tensor of rank {}", ty.rank()))
                    .at(span, format!("this is {ty}"))
                    .help("`..` stands for all axes not named, once"),
            );
        }
        let mut starts = vec![Dim::constant(0); ty.rank()];
        let mut ends = ty.shape.clone();
        let mut strides = vec![1; ty.rank()];
        let mut dropped = vec![];
        // Axes indexed by a tensor, to be gathered from the last to the first.
        let mut gathers: Vec<(usize, ValueId, Span)> = vec![];
        let mut axis = 0;
        for item in items {
            match item {
                IndexItem::Rest(_) => axis += ty.rank() - named,
                IndexItem::At(e) => {
                    let size = ty.shape[axis].clone();
                    let val = self.expr(e, None);
                    match &val {
                        Val::Poison => return Val::Poison,
                        Val::Tensor(_) | Val::Var(_) | Val::Const(_) | Val::List(_) => {
                            let Some(v) = self.tensor(&val, e.span, None) else {
                                return Val::Poison;
                            };
                            if self.type_of(v).dtype == DType::Bool {
                                return self.mask_as_index(base, e);
                            }
                            gathers.push((axis, v, e.span));
                        }
                        _ => {
                            let Some(at) = self.position(&val, e.span, &size) else {
                                return Val::Poison;
                            };
                            ends[axis] = at.clone() + Dim::constant(1);
                            starts[axis] = at;
                            dropped.push(axis);
                        }
                    }
                    axis += 1;
                }
                IndexItem::Range { lo, hi, step, .. } => {
                    let size = ty.shape[axis].clone();
                    for (bound, slot) in [(lo, &mut starts[axis]), (hi, &mut ends[axis])] {
                        if let Some(e) = bound {
                            let val = self.expr(e, None);
                            match self.position(&val, e.span, &size) {
                                Some(d) => *slot = d,
                                None => return Val::Poison,
                            }
                        }
                    }
                    if let Some(e) = step {
                        match self.expr(e, None) {
                            Val::Int(v) if v >= 1 && v <= i64::MAX as i128 => {
                                strides[axis] = v as i64;
                            }
                            Val::Poison => return Val::Poison,
                            val => {
                                let diag =
                                    Diag::error("E0233", "a step is a positive whole number")
                                        .at(e.span, format!("this is {}", val.describe()));
                                return match val {
                                    Val::Int(_) => {
                                        self.error(diag.help("to walk backwards, use `reverse`"))
                                    }
                                    val => {
                                        let diag = self.round_it(diag, &val, e.span);
                                        self.error(diag)
                                    }
                                };
                            }
                        }
                    }
                    axis += 1;
                }
            }
        }
        let Some(mut y) = self.slice(x, starts, ends, strides, span) else { return Val::Poison };
        for (axis, ids, at) in gathers.into_iter().rev() {
            let Some(op) = Op::from_name("gather") else { return Val::Poison };
            let attrs = Attrs::none().with("axis", Attr::Int(axis as i64));
            let spec = NodeSpec::new(op, &[y, ids], attrs, span);
            match self.finish(spec, &[base.span, at], &[], span) {
                Val::Tensor(v) => {
                    // Indices of more axes push the later ones along.
                    let grown = self.type_of(v).rank() as i64 - self.type_of(y).rank() as i64;
                    for d in dropped.iter_mut().filter(|d| **d > axis) {
                        *d = (*d as i64 + grown).max(0) as usize;
                    }
                    y = v;
                }
                _ => return Val::Poison,
            }
        }
        let mut shape = self.type_of(y).shape;
        for axis in dropped.into_iter().rev() {
            if axis < shape.len() {
                shape.remove(axis);
            }
        }
        self.reshape(y, shape, span).map(Val::Tensor).unwrap_or(Val::Poison)
    }

    /// `x[x > 0]`: how many elements that is would be known only at run time.
    fn mask_as_index(&mut self, base: &Expr, mask: &Expr) -> Val {
        let text = |e: &Expr, other: &'static str| {
            let file = self.sources.files.get(e.span.file as usize);
            let text = file.and_then(|f| f.text.get(e.span.lo as usize..e.span.hi as usize));
            text.filter(|t| t.len() < 40 && !t.contains('\n')).unwrap_or(other).to_string()
        };
        let (x, mask_text) = (text(base, "x"), text(mask, "mask"));
        self.error(
            Diag::error("E0145", "a mask is not an index")
                .at(mask.span, "how many elements it picks is known only at run time")
                .help(format!(
                    "keep the shape and put something else where the mask is false: \
                     `select({mask_text}, {x}, 0)`"
                )),
        )
    }

    /// An index on an axis, counted from the end if negative.
    fn position(&mut self, val: &Val, span: Span, size: &Dim) -> Option<Dim> {
        match val {
            Val::Int(v) => {
                let v = Dim::constant(i64::try_from(*v).ok()?);
                Some(if v.is_always_negative() { size.clone() + v } else { v })
            }
            Val::Dim(d) => Some(d.clone()),
            Val::Poison => None,
            Val::Ratio(_) | Val::Float(_) => {
                let diag = Diag::error("E0145", "an index is a whole number")
                    .at(span, format!("this is {}", val.describe()));
                let diag = self.round_it(diag, val, span);
                self.error(diag);
                None
            }
            _ => {
                self.error(
                    Diag::error("E0145", "the bounds of a slice are known when it is compiled")
                        .at(span, format!("this is {}", val.describe()))
                        .help("`dynamic_slice` takes bounds computed at run time"),
                );
                None
            }
        }
    }
}
