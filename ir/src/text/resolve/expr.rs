//! Expressions.

use super::Resolver;
use super::scope::{Spanned, Val};
use crate::diag::{Diag, Span};
use crate::text::ast::{self, Arg, Binary, Call, Expr, ExprKind, FuncKind, Unary};
use crate::text::habits;
use crate::text::names::nearest;
use crate::{DType, TensorType, ValueId};
use std::rc::Rc;

/// The type the surroundings ask for, where they do.
pub(super) type Want<'a> = Option<&'a TensorType>;

/// Names that mean something without being declared.
const BUILTINS: &[&str] = &[
    "file",
    "flatten",
    "full",
    "grad",
    "len",
    "name_seed",
    "ones",
    "split",
    "squeeze",
    "stack",
    "unsqueeze",
    "zeros",
    "zeros_like",
    "ones_like",
];

impl Resolver<'_> {
    pub(super) fn expr(&mut self, expr: &Expr, want: Want) -> Val {
        if !self.work(1, expr.span) {
            return Val::Poison;
        }
        self.nested(expr.span, |r| r.expr_inner(expr, want)).unwrap_or(Val::Poison)
    }

    fn expr_inner(&mut self, expr: &Expr, want: Want) -> Val {
        match &expr.kind {
            ExprKind::Int(v) => Val::Int(*v),
            ExprKind::Float(v) => Val::Float(*v),
            ExprKind::Bool(v) => Val::Bool(*v),
            ExprKind::Str(s) => Val::Str(s.as_str().into()),
            ExprKind::Name(name) => self.name(name, expr.span, want),
            ExprKind::List(items) => {
                let items = self.items(items);
                if items.iter().any(|i| i.val.is_poison()) {
                    return Val::Poison;
                }
                self.list(items, expr.span)
            }
            ExprKind::Every(item, each) => self.every(item, each),
            ExprKind::Tuple(items) => {
                let items = self.items(items);
                match self.list(items, expr.span) {
                    Val::List(items) => Val::Tuple(items),
                    val => val,
                }
            }
            ExprKind::Type(ty, false) => match DType::from_name(&ty.dtype.text) {
                Some(d) => Val::DType(d),
                None => Val::Poison,
            },
            ExprKind::Type(ty, true) => self.error(
                Diag::error("E0121", "a type is not a value")
                    .at(ty.span, "expected a value")
                    .help("a literal gives its elements: `f32[2](1, 2)`"),
            ),
            ExprKind::Literal(ty, items) => self.typed_literal(ty, items, expr.span),
            ExprKind::Bytes(_) => self.error(
                Diag::error("E0121", "`bytes` stands inside a typed literal only")
                    .at(expr.span, "write `f32[2](bytes \"...\")`"),
            ),
            ExprKind::Call(call) => self.call(call, expr.span, want),
            ExprKind::Unary(op, inner) => self.unary(*op, inner, expr.span),
            ExprKind::Chain(first, rest) => self.chain(first, rest, want),
            ExprKind::Index(base, items) => self.index(base, items, expr.span),
            ExprKind::If(e) => self.if_expr(e, expr.span),
            ExprKind::While(e) => self.while_expr(e, expr.span),
            ExprKind::Hole | ExprKind::Rest(None) => self.error(
                Diag::error("E0121", "there is no value here").at(expr.span, "expected a value"),
            ),
            ExprKind::Rest(Some(name)) => match self.lookup(&name.text) {
                Some(val @ (Val::Shape(_) | Val::List(_) | Val::Tuple(_) | Val::Poison)) => val,
                _ => self.error(
                    Diag::error("E0120", format!("there is no shape or list `{}`", name.text))
                        .at(expr.span, "a function's types bind shapes: `x: f32[..S]`"),
                ),
            },
            ExprKind::Error => Val::Poison,
        }
    }

    fn items(&mut self, items: &[Expr]) -> Vec<Spanned> {
        let mut out = vec![];
        for item in items {
            let val = self.expr(item, None);
            match (&item.kind, val) {
                (ExprKind::Rest(_), Val::Shape(dims)) => {
                    for d in dims.iter() {
                        out.push(Spanned { val: Val::size(d.clone()), span: item.span });
                    }
                }
                (ExprKind::Rest(_), Val::List(items) | Val::Tuple(items)) => {
                    if !self.fits_list(out.len(), items.len(), item.span) {
                        out.push(Spanned { val: Val::Poison, span: item.span });
                        return out;
                    }
                    out.extend(items.iter().cloned())
                }
                (_, val) => out.push(Spanned { val, span: item.span }),
            }
        }
        out
    }

    fn name(&mut self, name: &str, span: Span, want: Want) -> Val {
        if let Some(val) = self.lookup(name) {
            return val;
        }
        let module = self.module();
        if let Some(item) = self.modules[module].lets.get(name).cloned() {
            return self.let_value(&item);
        }
        match name {
            "inf" => return Val::Float(f64::INFINITY),
            "nan" => return Val::Float(f64::NAN),
            "pi" => return Val::Float(std::f64::consts::PI),
            "name_seed" => return self.name_seed(span),
            "zeros" | "ones" => {
                let Some(want) = want.cloned() else {
                    return self.error(
                        Diag::error("E0228", format!("the shape of `{name}` is not known here"))
                            .at(span, "no type to take it from")
                            .help(format!("write `{name}(shape: [2, 3])` or give the name a type")),
                    );
                };
                return self.fill(if name == "ones" { 1 } else { 0 }, &want, span);
            }
            _ => {}
        }
        // A function without arguments may be named for its value in initialisers.
        if self.kind_of(module, name) == Some(FuncKind::Func) {
            let call = Call {
                callee: ast::Name { text: name.into(), span },
                args: vec![],
                regions: vec![],
                label: None,
            };
            return self.call(&call, span, want);
        }
        self.unknown_value(name, span)
    }

    /// A number made of the name of the variable whose first value is computed, so
    /// that variables of one shape do not start alike.
    fn name_seed(&mut self, span: Span) -> Val {
        match self.seed {
            Some(seed) => Val::Int(i128::from(seed)),
            None => self.error(
                Diag::error("E0494", "`name_seed` stands in the first values of variables")
                    .at(span, "no variable is being initialised here")
                    .help("elsewhere, give a seed: `init.normal(seed: 1)`"),
            ),
        }
    }

    /// A top-level `let`. Numbers, lists and the like are worked out once; a tensor
    /// is computed where it is used.
    pub(super) fn let_value(&mut self, item: &Rc<ast::LetItem>) -> Val {
        let module = self.module();
        let key = (module, item.name.text.clone());
        if let Some(known) = self.let_values.get(&key) {
            return known.clone();
        }
        let before = self.diags.len();
        let val = self.compute_let(item, module);
        // What failed has been reported: once is enough.
        if val.is_constant() || (val.is_poison() && self.diags.len() > before) {
            self.let_values.insert(key, val.clone());
        }
        val
    }

    fn compute_let(&mut self, item: &Rc<ast::LetItem>, module: usize) -> Val {
        let circular = self
            .frames
            .iter()
            .any(|f| f.func.is_none() && f.module == module && *f.callee == *item.name.text);
        if circular {
            return self.error(
                Diag::error("E0122", format!("`{}` is defined in terms of itself", item.name.text))
                    .at(item.name.span, "a circle of `let`s"),
            );
        }
        let mut frame = super::Frame::new(module);
        frame.callee = (&*item.name.text).into();
        self.frames.push(frame);
        let val = match &item.ty {
            None => self.expr(&item.value, None),
            Some(ty) => match self.concrete_type(ty) {
                None => Val::Poison,
                Some(want) => {
                    let val = self.expr(&item.value, Some(&want));
                    self.checked(val, item.value.span, ty, &want)
                }
            },
        };
        self.frames.pop();
        val
    }

    fn unknown_value(&mut self, name: &str, span: Span) -> Val {
        let hidden = self.frames.last().and_then(|f| f.get(name)).map(|b| b.span);
        if let Some(defined) = hidden {
            return self.error(
                Diag::error("E0401", "an initialiser cannot use a value of a call")
                    .at(span, format!("`{name}` is known only while an entry runs"))
                    .also(defined, "defined here")
                    .help("initialisers run once, when the program starts"),
            );
        }
        if self.frames.last().is_some_and(|f| f.open.contains(name)) {
            return self.error(
                Diag::error("E0228", format!("`{name}` is not known in this call"))
                    .at(span, "taken from the type of the result")
                    .help("give the result a type: `name: f32[2, 3] = ...`"),
            );
        }
        if let Some(diag) = self.no_such_state(name, span) {
            return self.error(diag);
        }
        let mut diag = Diag::error("E0123", format!("there is no value `{name}`"))
            .at(span, "not defined here");
        if self.kind_of(self.module(), name) == Some(FuncKind::Layer) {
            return self.error(diag.help(format!("`{name}` is a layer: call it, `{name}(..)`")));
        }
        let mut candidates: Vec<String> = vec![];
        if self.diags.len() < 20
            && let Some(frame) = self.frames.last()
        {
            for scope in &frame.scopes {
                candidates.extend(scope.keys().map(|k| k.to_string()));
            }
            let module = &self.modules[frame.module];
            candidates.extend(module.vars.keys().map(|k| k.to_string()));
            candidates.extend(module.dims.keys().map(|k| k.to_string()));
            candidates.extend(module.lets.keys().map(|k| k.to_string()));
        }
        if let Some((instead, help)) = habits::value(name) {
            diag = match instead {
                Some(instead) => diag.fix(help, span, instead),
                None => diag.help(help),
            };
        } else if let Some(near) = nearest(name, candidates.iter().map(String::as_str)) {
            diag = diag.fix(format!("did you mean `{near}`?"), span, near);
        } else if self.ops.contains_key(name) {
            diag = diag.help(format!("`{name}` is an op: call it, `{name}(...)`"));
        } else if let Some((base, field)) = name.rsplit_once('.')
            && matches!(self.lookup(base), Some(Val::Tensor(_) | Val::Var(_)))
        {
            diag = diag.help(match field {
                "T" => format!("it is `transpose({base})`"),
                "shape" | "dtype" | "size" | "ndim" => {
                    "sizes and element types have names in types: `func f(x: T[N, ..S])`"
                        .to_string()
                }
                _ => format!("a tensor has no parts; ops are called: `{field}({base})`"),
            });
        }
        self.error(diag)
    }

    // Calls.

    fn call(&mut self, call: &Call, span: Span, want: Want) -> Val {
        let name = &*call.callee.text;
        if let Some((module, index)) = self.function(name) {
            // A call costs more than an expression: names, a frame, the parameters.
            if !self.work(8, span) {
                return Val::Poison;
            }
            return self.call_function(module, index, call, span, want);
        }
        if let Some(label) = &call.label {
            self.misplaced_label(label, "an op has no weights to name");
        }
        if let Some(op) = self.ops.get(name).copied() {
            // Some have a form of their own.
            if !matches!(name, "grad" | "save" | "restore") {
                return self.call_op(op, call, span);
            }
        }
        match name {
            "grad" => self.grad(call, span),
            "len" => self.len_call(call, span),
            "save" => self.save(call, span),
            "restore" => self.restore(call, span),
            "file" => self.file(call, span, want),
            "zeros" | "ones" => self.filled(call, span, if name == "ones" { 1 } else { 0 }, want),
            "zeros_like" | "ones_like" => {
                self.filled_like(call, span, (name == "ones_like") as i128)
            }
            "full" => self.full_call(call, span, want),
            "split" => self.split(call, span),
            "squeeze" => self.squeeze(call, span),
            "unsqueeze" => self.unsqueeze(call, span),
            "flatten" => self.flatten_call(call, span),
            "stack" => self.stack(call, span),
            _ => self.unknown_callee(call),
        }
    }

    /// The function a name calls from the current module.
    pub(super) fn function(&self, name: &str) -> Option<(usize, usize)> {
        self.function_in(self.module(), name)
    }

    pub(super) fn function_in(&self, module: usize, name: &str) -> Option<(usize, usize)> {
        match name.split_once('.') {
            None => self.modules[module].func_index.get(name).map(|i| (module, *i)),
            Some((library, func)) => {
                let id = *self.modules[module].uses.get(library)?;
                let module = self.modules.get(id)?;
                match module.func_index.get(func) {
                    Some(i) => Some((id, *i)),
                    // `nn` passes on what it uses: `nn.glorot` is `init.glorot`.
                    None => module.uses.values().find_map(|used| {
                        let i = self.modules.get(*used)?.func_index.get(func)?;
                        Some((*used, *i))
                    }),
                }
            }
        }
    }

    pub(super) fn unknown_callee(&mut self, call: &Call) -> Val {
        let (name, span) = (&*call.callee.text, call.callee.span);
        // Arguments may hold further errors.
        for arg in &call.args {
            self.expr(&arg.value, None);
        }
        let module = self.module();
        if let Some((library, func)) = name.split_once('.') {
            let Some(id) = self.modules[module].uses.get(library).copied() else {
                if let Some(Val::Tensor(_) | Val::Var(_) | Val::Const(_) | Val::List(_)) =
                    self.lookup(library)
                {
                    return self.method(library, func, call);
                }
                let mut diag =
                    Diag::error("E0124", format!("there is no library `{library}` here"))
                        .at(span, "not in use");
                if crate::text::lib_source(library).is_some() {
                    diag = diag.help(format!("add `use {library}` at the top"));
                } else {
                    let used: Vec<&str> = self.modules[module].uses.keys().map(|k| &**k).collect();
                    if let Some(n) = nearest(library, used.into_iter()) {
                        diag = diag.fix(
                            format!("did you mean `{n}.{func}`?"),
                            span,
                            format!("{n}.{func}"),
                        );
                    }
                }
                return self.error(diag);
            };
            let Some(lib) = self.modules.get(id) else { return Val::Poison };
            let mut diag = Diag::error("E0125", format!("`{library}` has no function `{func}`"))
                .at(span, "not there");
            let names: Vec<&str> = lib.func_index.keys().map(|k| &**k).collect();
            diag = match nearest(func, names.iter().copied()) {
                Some(n) => {
                    let full = format!("{library}.{n}");
                    diag.fix(format!("did you mean `{full}`?"), span, full)
                }
                None => diag.help(format!("it has {}", names.join(", "))),
            };
            return self.error(diag);
        }
        let mut diag = Diag::error("E0126", format!("there is no op or function `{name}`"))
            .at(span, "unknown");
        if let Some(Val::Tensor(_) | Val::Var(_)) = self.lookup(name) {
            diag = Diag::error("E0127", format!("`{name}` is a tensor and cannot be called"))
                .at(span, "expected an op or a function")
                .help(format!("elements are taken with brackets: `{name}[0]`"));
            return self.error(diag);
        }
        if let Some(dtype) = habits::element_type(name) {
            return self.conversion(name, dtype, call);
        }
        let alias = op_alias(name);
        let mut known: Vec<String> = self.ops.keys().map(|k| k.to_string()).collect();
        known.extend(BUILTINS.iter().map(|b| b.to_string()));
        known.extend(self.modules[module].func_index.keys().map(|k| k.to_string()));
        let elsewhere: Option<String> = crate::text::LIBRARIES.iter().find_map(|(lib, text)| {
            let declared = |word: &str| text.contains(&format!("{word} {name}("));
            (declared("func") || declared("layer")).then(|| format!("{lib}.{name}"))
        });
        if let Some(alias) = alias.filter(|a| known.iter().any(|k| k == a)) {
            diag = diag.fix(format!("it is called `{alias}` here"), span, alias);
        } else if let Some(help) = habits::op(name) {
            diag = diag.help(help);
        } else if let Some(full) = elsewhere {
            let library = full.split('.').next().unwrap_or("").to_string();
            diag = if self.modules[module].uses.contains_key(&*library) {
                diag.fix(format!("did you mean `{full}`?"), span, full)
            } else {
                diag.help(format!("add `use {library}` and call `{full}`"))
            };
        } else if let Some(near) = nearest(name, known.iter().map(String::as_str)) {
            diag = diag.fix(format!("did you mean `{near}`?"), span, near);
        } else {
            diag = diag.help("`tfc ops` lists the ops");
        }
        self.error(diag)
    }

    /// `x.relu()`: ops are called with the tensor first.
    fn method(&mut self, base: &str, name: &str, call: &Call) -> Val {
        let span = call.callee.span;
        let text = |e: &Expr| {
            let file = self.sources.files.get(e.span.file as usize);
            file.and_then(|f| f.text.get(e.span.lo as usize..e.span.hi as usize)).unwrap_or("..")
        };
        let args: Vec<String> = std::iter::once(base.to_string())
            .chain(call.args.iter().map(|a| match &a.name {
                Some(n) => format!("{}: {}", n.text, text(&a.value)),
                None => text(&a.value).to_string(),
            }))
            .collect();
        let alias = op_alias(name);
        let op = alias.as_deref().unwrap_or(name);
        let diag = Diag::error("E0124", format!("`{base}` is a tensor and has no methods"))
            .at(span, "not a function");
        let diag = match habits::op(name).filter(|_| alias.is_none()) {
            Some(help) => diag.help(help),
            None => diag
                .help(format!("ops are called with the tensor first: `{op}({})`", args.join(", "))),
        };
        self.error(diag)
    }

    /// `float(x)`, `f32(x)`: a conversion.
    pub(super) fn conversion(&mut self, name: &str, dtype: &str, call: &Call) -> Val {
        let diag = Diag::error("E0126", format!("there is no op or function `{name}`"))
            .at(call.callee.span, "element types are not called");
        self.error(diag.help(format!("to convert a tensor, write `cast(x, to: {dtype})`")))
    }

    // Operators.

    fn unary(&mut self, op: Unary, inner: &Expr, span: Span) -> Val {
        let val = self.expr(inner, None);
        match (op, &val) {
            (_, Val::Poison) => Val::Poison,
            (Unary::Neg, Val::Int(v)) => Val::Int(v.wrapping_neg()),
            (Unary::Neg, Val::Ratio(_)) => {
                let zero = Spanned { val: Val::Int(0), span };
                let x = Spanned { val, span: inner.span };
                self.fold(Binary::Sub, &zero, &x, span).unwrap_or(Val::Poison)
            }
            (Unary::Neg, Val::Float(v)) => Val::Float(-v),
            (Unary::Neg, Val::Dim(d)) => Val::size(crate::Dim::constant(0) - d.clone()),
            (Unary::Not, Val::Bool(v)) => Val::Bool(!v),
            _ => {
                let name = if op == Unary::Neg { "neg" } else { "not" };
                let arg = Spanned { val, span: inner.span };
                self.op_by_name(name, vec![arg], span)
            }
        }
    }

    fn chain(&mut self, first: &Expr, rest: &[(Binary, Span, Expr)], want: Want) -> Val {
        let val = self.expr(first, want.filter(|w| w.shape.is_empty()));
        let mut acc = Spanned { val, span: first.span };
        for (op, _, rhs) in rest {
            let rhs = Spanned { val: self.expr(rhs, None), span: rhs.span };
            let span = acc.span.to(rhs.span);
            let val = self.binary(*op, &acc, &rhs, span);
            acc = Spanned { val, span };
        }
        acc.val
    }

    pub(super) fn binary(&mut self, op: Binary, a: &Spanned, b: &Spanned, span: Span) -> Val {
        if a.val.is_poison() || b.val.is_poison() {
            return Val::Poison;
        }
        if let Some(val) = self.fold(op, a, b, span) {
            return val;
        }
        self.op_by_name(op.op_name(), vec![a.clone(), b.clone()], span)
    }

    /// An op applied to values, without attributes.
    pub(super) fn op_by_name(&mut self, name: &str, operands: Vec<Spanned>, span: Span) -> Val {
        match self.ops.get(name).copied() {
            Some(op) => self.apply(op, operands, vec![], span, span),
            None => self.error(
                Diag::error("E0126", format!("there is no op `{name}`")).at(span, "needed here"),
            ),
        }
    }

    // From values to nodes.

    /// The value as a tensor; variables are read, numbers take `dtype`.
    pub(super) fn tensor(
        &mut self,
        val: &Val,
        span: Span,
        dtype: Option<DType>,
    ) -> Option<ValueId> {
        match val {
            Val::Tensor(v) => Some(*v),
            Val::Var(var) => self.read(*var, span),
            Val::Poison => None,
            Val::Int(_)
            | Val::Ratio(_)
            | Val::Float(_)
            | Val::Bool(_)
            | Val::Const(_)
            | Val::List(_) => {
                let dtype = dtype.or_else(|| self.natural_dtype(val));
                let Some(dtype) = dtype else {
                    self.error(
                        Diag::error("E0219", "a literal holds numbers only")
                            .at(span, "this list holds something else"),
                    );
                    return None;
                };
                let tensor = self.literal(val, span, dtype)?;
                self.constant(tensor, span)
            }
            Val::Tuple(items) if items.len() == 1 => {
                let item = items[0].clone();
                self.tensor(&item.val, item.span, dtype)
            }
            Val::Dim(d) => self.size_value(d, span, dtype),
            _ => {
                let what = val.describe();
                let mut diag =
                    Diag::error("E0128", "expected a tensor").at(span, format!("this is {what}"));
                match val {
                    Val::Tuple(_) => diag = diag.help("give its parts names: `(a, b) = ...`"),
                    Val::Str(_) => {
                        diag = diag.help(
                            "tensors hold numbers and truth values; a string is a label: \
                             `print(x, label: \"loss\")`",
                        )
                    }
                    _ => {}
                }
                self.error(diag);
                None
            }
        }
    }

    pub(super) fn type_of(&self, value: ValueId) -> TensorType {
        self.build.func.ty(value).clone()
    }

    /// The argument of a call, by position or name; none if it is missing.
    pub(super) fn arg<'c>(&self, args: &'c [Arg], at: usize, name: &str) -> Option<&'c Expr> {
        if let Some(arg) = args.iter().find(|a| a.name.as_ref().is_some_and(|n| &*n.text == name)) {
            return Some(&arg.value);
        }
        args.iter().filter(|a| a.name.is_none()).nth(at).map(|a| &a.value)
    }
}

/// What other systems call an op.
fn op_alias(name: &str) -> Option<String> {
    Some(
        match name {
            "dot" | "mm" | "bmm" => "matmul",
            "where" => "select",
            "concatenate" | "cat" => "concat",
            "permute" => "transpose",
            "reduce_sum" => "sum",
            "reduce_mean" | "avg" | "average" => "mean",
            "reduce_max" | "amax" => "max",
            "reduce_min" | "amin" => "min",
            "multiply" => "mul",
            "subtract" | "minus" => "sub",
            "divide" => "div",
            "power" => "pow",
            "negative" => "neg",
            "equal" => "eq",
            "not_equal" => "ne",
            "less" => "lt",
            "greater" => "gt",
            "absolute" => "abs",
            "astype" | "convert" => "cast",
            "take" => "gather",
            "arange" => "iota",
            "mod" | "fmod" | "remainder" => "rem",
            "view" => "reshape",
            "t" => "transpose",
            "logical_and" => "and",
            "logical_or" => "or",
            "clip" => "clamp",
            "broadcast_to" | "expand" => "broadcast",
            "flip" => "reverse",
            "expand_dims" => "unsqueeze",
            "conv" | "conv2" => "conv2d",
            "maxpool" | "max_pool2d" => "max_pool",
            "avgpool" | "avg_pool2d" => "avg_pool",
            "detach" => "stop_gradient",
            "onehot" => "one_hot",
            "logical_not" => "not",
            "inverse_sqrt" => "rsqrt",
            "arctan" => "atan",
            "arcsin" => "asin",
            "arccos" => "acos",
            "arctan2" => "atan2",
            "arcsinh" => "asinh",
            "arccosh" => "acosh",
            "arctanh" => "atanh",
            "topk" => "top_k",
            "take_along_axis" | "take_along_dim" => "take_along",
            _ => return None,
        }
        .to_string(),
    )
}
