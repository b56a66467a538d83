//! Calls of functions: inlined, generic over shapes and element types.

use super::Resolver;
use super::expr::Want;
use super::ops::count;
use super::scope::{Bound, Frame, Owner, Spanned, Val};
use super::types::Failure;
use super::weights::Called;
use crate::build::NodeSpec;
use crate::diag::{Diag, Span};
use crate::text::ast::{Block, Call, ExprKind, FuncItem, FuncKind, GradClause, Name, TypeExpr};
use crate::text::names::nearest;
use crate::{Attrs, DType, Op, ValueId};
use std::rc::Rc;

/// An argument whose value is known.
#[derive(Clone)]
pub(super) struct ArgVal {
    pub name: Option<Name>,
    pub val: Val,
    pub span: Span,
}

impl Resolver<'_> {
    pub(super) fn call_function(
        &mut self,
        module: usize,
        index: usize,
        call: &Call,
        span: Span,
        want: Want,
    ) -> Val {
        if let Some(region) = call.regions.first() {
            return self.error(
                Diag::error("E0129", "a function takes no blocks")
                    .at(region.name.span, "not expected here"),
            );
        }
        let args = self.args(call);
        self.call_with((module, index), &call.callee, call.label.as_ref(), args, span, want)
    }

    pub(super) fn args(&mut self, call: &Call) -> Vec<ArgVal> {
        let mut out = vec![];
        for arg in &call.args {
            let val = self.expr(&arg.value, None);
            out.push(ArgVal { name: arg.name.clone(), val, span: arg.value.span });
        }
        out
    }

    /// The function behind a name, and, of a model made of a layer, what the layer is
    /// given for good.
    fn called(&mut self, (module, index): (usize, usize)) -> Option<(Called, Vec<ArgVal>)> {
        let func = self.modules[module].funcs[index].clone();
        let path = match func.kind {
            FuncKind::Model => format!("{}{}.", self.modules[module].prefix, func.name.text),
            _ => String::new(),
        };
        let Some(of) = &func.of else {
            let kind = func.kind;
            return Some((Called { module, index, func, kind, path }, vec![]));
        };
        // A layer, or reported already.
        let (m, i) = self.function_in(module, &of.callee.text)?;
        let layer = self.modules[m].funcs[i].clone();
        if layer.kind != FuncKind::Layer {
            return None;
        }
        let mut frame = Frame::new(module);
        frame.owner = Owner::Nobody;
        self.frames.push(frame);
        let fixed = self.args(of);
        self.frames.pop();
        Some((Called { module: m, index: i, func: layer, kind: FuncKind::Model, path }, fixed))
    }

    pub(super) fn call_with(
        &mut self,
        target: (usize, usize),
        callee: &Name,
        label: Option<&Name>,
        args: Vec<ArgVal>,
        span: Span,
        want: Want,
    ) -> Val {
        let Some((called, fixed)) = self.called(target) else { return Val::Poison };
        let (module, index, func) = (called.module, called.index, called.func.clone());
        if self.frames.iter().any(|f| f.func == Some((module, index))) {
            let chain: Vec<String> = self
                .frames
                .iter()
                .filter(|f| f.func.is_some())
                .map(|f| format!("`{}`", f.callee))
                .collect();
            return self.error(
                Diag::error("E0131", format!("`{}` calls itself", func.name.text))
                    .at(span, format!("{} -> `{}`", chain.join(" -> "), func.name.text))
                    .help("functions are inlined; use `while` for repetition"),
            );
        }
        let Some(mut slots) = self.match_args(&func, callee, fixed, args) else {
            return Val::Poison;
        };
        // Values are read before the call, in the caller's scope.
        for (param, slot) in func.params.iter().zip(&mut slots) {
            let Some(arg) = slot else { continue };
            if param.var {
                let fits = match &arg.val {
                    Val::Poison => true,
                    Val::Var(_) => !param.many,
                    Val::List(items) | Val::Tuple(items) => {
                        param.many && items.iter().all(|i| matches!(i.val, Val::Var(_)))
                    }
                    _ => false,
                };
                if !fits {
                    let what = arg.val.describe();
                    return self.error(
                        Diag::error(
                            "E0402",
                            format!(
                                "`{}` takes {} for `{}`",
                                callee.text,
                                if param.many { "a list of variables" } else { "a variable" },
                                param.name.text
                            ),
                        )
                        .at(arg.span, format!("this is {what}"))
                        .also(param.name.span, "asked for here"),
                    );
                }
            } else {
                arg.val = self.read_all(&arg.val, arg.span);
            }
        }
        let Some(place) = self.place(&called, callee, label, &slots, span) else {
            return Val::Poison;
        };
        let mut frame = Frame::new(module);
        frame.path = place.path;
        frame.owner = place.owner;
        frame.func = Some((module, index));
        frame.site = span;
        frame.callee = (&*callee.text).into();
        self.frames.push(frame);
        // The blocks around the call are not around the function's body.
        let yields = std::mem::take(&mut self.yields);
        let val =
            self.nested(span, |r| r.run_call(&func, slots, want, span)).unwrap_or(Val::Poison);
        self.yields = yields;
        self.frames.pop();
        val
    }

    /// Arguments in the order of the parameters. Those given without a name are for
    /// the parameters that `fixed` leaves open.
    fn match_args(
        &mut self,
        func: &FuncItem,
        callee: &Name,
        fixed: Vec<ArgVal>,
        args: Vec<ArgVal>,
    ) -> Option<Vec<Option<ArgVal>>> {
        let mut slots: Vec<Option<ArgVal>> = vec![None; func.params.len()];
        let mut given = vec![false; func.params.len()];
        let count_fixed = fixed.len();
        let mut position = 0;
        for (i, arg) in fixed.into_iter().chain(args).enumerate() {
            if i == count_fixed {
                given = slots.iter().map(Option::is_some).collect();
                position = 0;
            }
            let slot = match &arg.name {
                None => {
                    while given.get(position) == Some(&true) {
                        position += 1;
                    }
                    position += 1;
                    position - 1
                }
                Some(name) => match func.params.iter().position(|p| p.name.text == name.text) {
                    Some(slot) => slot,
                    None => {
                        let names: Vec<&str> = func.params.iter().map(|p| &*p.name.text).collect();
                        let mut diag = Diag::error(
                            "E0133",
                            format!("`{}` has no parameter `{}`", callee.text, name.text),
                        )
                        .at(name.span, "unknown")
                        .also(func.name.span, "the function is here");
                        diag = match nearest(&name.text, names.iter().copied()) {
                            Some(n) => diag.fix(format!("did you mean `{n}`?"), name.span, n),
                            None => diag.help(format!("it takes {}", names.join(", "))),
                        };
                        self.error(diag);
                        return None;
                    }
                },
            };
            match slots.get_mut(slot) {
                None => {
                    self.error(
                        Diag::error(
                            "E0132",
                            format!(
                                "`{}` takes {}",
                                callee.text,
                                count(given.iter().filter(|g| !**g).count(), "argument")
                            ),
                        )
                        .at(arg.span, "this is one too many")
                        .also(func.name.span, "the function is here"),
                    );
                    return None;
                }
                Some(Some(first)) => {
                    let name = &func.params[slot].name.text;
                    let diag = Diag::error("E0130", format!("`{name}` is given twice"))
                        .at(arg.span, "the second time");
                    let diag = match given[slot] {
                        true => diag.also(first.span, "given for good where the model is declared"),
                        false => diag,
                    };
                    self.error(diag);
                    return None;
                }
                Some(empty) => *empty = Some(arg),
            }
        }
        for (param, slot) in func.params.iter().zip(&slots) {
            if slot.is_none() && param.default.is_none() {
                self.error(
                    Diag::error("E0132", format!("`{}` needs `{}`", callee.text, param.name.text))
                        .at(callee.span, "an argument is missing")
                        .also(param.name.span, "declared here, without a default"),
                );
                return None;
            }
        }
        Some(slots)
    }

    /// What a call of a function adds to the names of the values inside: the
    /// function, and the variable it is about, numbered if repeated.
    pub(super) fn path_element(&mut self, func: &FuncItem, slots: &[Option<ArgVal>]) -> String {
        let mut element = func.name.text.to_string();
        let mut about = String::new();
        for arg in slots.iter().flatten() {
            if let Val::Var(var) = arg.val {
                about = format!(".{}", self.graph.vars[var].name);
                break;
            }
        }
        let frame = self.frame();
        let n = frame.calls.entry(format!("{element}{about}")).or_insert(0);
        *n += 1;
        if *n > 1 {
            element = format!("{element}_{n}");
        }
        format!("{}{element}{about}.", frame.path)
    }

    fn run_call(
        &mut self,
        func: &Rc<FuncItem>,
        slots: Vec<Option<ArgVal>>,
        want: Want,
        span: Span,
    ) -> Val {
        // Tensors first: numbers take the element types they bind.
        let mut late = vec![];
        for (param, slot) in func.params.iter().zip(slots) {
            match slot {
                Some(arg) if matches!(arg.val, Val::Tensor(_) | Val::Var(_) | Val::Const(_)) => {
                    if !self.bind_param(&param.name, param.ty.as_ref(), &arg.val, arg.span) {
                        return Val::Poison;
                    }
                }
                Some(arg) => late.push((param, Some(arg))),
                None => late.push((param, None)),
            }
        }
        // Then what the caller's type tells: `T` in `std: T[] = 1` is known from it.
        self.bind_wanted(func, want);
        for (param, arg) in late {
            let (val, at) = match (arg, &param.default) {
                (Some(arg), _) => (arg.val, arg.span),
                (None, Some(default)) => (self.expr(default, None), default.span),
                (None, None) => (Val::Poison, span),
            };
            if !self.bind_param(&param.name, param.ty.as_ref(), &val, at) {
                return Val::Poison;
            }
        }
        self.find_open(func);
        match &func.grad {
            Some(grad) => self.run_custom(func, grad, span),
            None => {
                if !self.run_body(&func.body) {
                    return Val::Poison;
                }
                self.results(func, span)
            }
        }
    }

    /// Gives a parameter its value, checked against its type.
    fn bind_param(&mut self, name: &Name, ty: Option<&TypeExpr>, val: &Val, span: Span) -> bool {
        let mut val = val.clone();
        if let Some(ty) = ty {
            let actual = match &val {
                Val::Poison => None,
                Val::Var(var) => Some(self.graph.vars[*var].ty.clone()),
                _ => {
                    let dtype = DType::from_name(&ty.dtype.text).or_else(|| {
                        match self.lookup(&ty.dtype.text) {
                            Some(Val::DType(d)) => Some(d),
                            _ => None,
                        }
                    });
                    match self.tensor(&val, span, dtype) {
                        Some(v) => {
                            val = Val::Tensor(v);
                            Some(self.type_of(v))
                        }
                        None => {
                            val = Val::Poison;
                            None
                        }
                    }
                }
            };
            if let Some(actual) = actual {
                match self.match_type(ty, &actual, true) {
                    Ok(()) => {}
                    Err(Failure::Reported) => val = Val::Poison,
                    Err(Failure::Mismatch(m)) => {
                        let mut diag = Diag::error(
                            "E0229",
                            format!("`{}` cannot be {actual}: {}", name.text, m.why),
                        )
                        .at(span, format!("this is {actual}"))
                        .also(m.at, "wanted here");
                        if let Val::Tensor(v) = val {
                            diag = self.origins(diag, &[v]);
                        }
                        val = self.error(diag);
                    }
                }
            }
        } else if let Val::Const(_) = val {
            val = match self.tensor(&val, span, None) {
                Some(v) => Val::Tensor(v),
                None => Val::Poison,
            };
        }
        let poison = val.is_poison();
        let build = self.build.id;
        self.frame().set(name.text.clone(), Bound { val, span: name.span, build });
        !poison
    }

    /// Names in the result's type that only the caller's type can tell.
    fn bind_wanted(&mut self, func: &FuncItem, want: Want) {
        let [result] = func.results.items.as_slice() else { return };
        let Some(ty) = &result.ty else { return };
        if let Some(want) = want {
            let before = self.diags.len();
            // What does not fit is reported when the result is checked.
            let _ = self.match_type(ty, want, true);
            self.diags.truncate(before);
        }
    }

    /// Names in the result's type that nothing tells, for messages about them.
    fn find_open(&mut self, func: &FuncItem) {
        let [result] = func.results.items.as_slice() else { return };
        let Some(ty) = &result.ty else { return };
        let mut names = vec![];
        if DType::from_name(&ty.dtype.text).is_none() {
            names.push(ty.dtype.text.clone());
        }
        for dim in &ty.dims {
            match &dim.kind {
                ExprKind::Name(n) => names.push(n.clone()),
                ExprKind::Rest(Some(n)) => names.push(n.text.clone()),
                _ => {}
            }
        }
        for name in names {
            if self.lookup(&name).is_none() {
                self.frame().open.insert(name);
            }
        }
    }

    /// Runs the statements of a function; false if something in it failed.
    fn run_body(&mut self, body: &Block) -> bool {
        let before = self.diags.len();
        self.stmts(&body.stmts);
        self.diags.len() == before
    }

    fn results(&mut self, func: &FuncItem, span: Span) -> Val {
        let returned = self.frame().returned.take().unwrap_or_default();
        self.check_results(func, returned, span)
    }

    /// Checks what was returned against the signature.
    fn check_results(&mut self, func: &FuncItem, mut returned: Vec<Spanned>, span: Span) -> Val {
        let declared = &func.results;
        if declared.given && declared.items.len() != returned.len() {
            return self.error(
                Diag::error(
                    "E0134",
                    format!(
                        "`{}` returns {}, but declares {}",
                        func.name.text,
                        count(returned.len(), "value"),
                        declared.items.len()
                    ),
                )
                .at(func.name.span, "in this function")
                .also(declared.span, "declared here"),
            );
        }
        for (item, value) in declared.items.iter().zip(&mut returned) {
            let Some(ty) = &item.ty else { continue };
            let dtype = DType::from_name(&ty.dtype.text);
            let Some(v) = self.tensor(&value.val, value.span, dtype) else { return Val::Poison };
            value.val = Val::Tensor(v);
            let actual = self.type_of(v);
            match self.match_type(ty, &actual, true) {
                Ok(()) => {}
                Err(Failure::Reported) => return Val::Poison,
                Err(Failure::Mismatch(m)) => {
                    let diag = Diag::error(
                        "E0217",
                        format!(
                            "the result of `{}` is {actual}, not as declared: {}",
                            func.name.text, m.why
                        ),
                    )
                    .at(value.span, format!("this is {actual}"))
                    .also(m.at, "declared here");
                    let diag = self.origins(diag, &[v]);
                    return self.error(diag);
                }
            }
        }
        match returned.len() {
            1 => returned.remove(0).val,
            _ => Val::Tuple(Rc::new(
                returned.into_iter().map(|r| Spanned { val: r.val, span }).collect(),
            )),
        }
    }

    // Functions with a gradient of their own.

    /// The body and the gradient become regions of one node, so that
    /// differentiation finds both.
    fn run_custom(&mut self, func: &Rc<FuncItem>, grad: &GradClause, span: Span) -> Val {
        let Some(op) = Op::from_name("custom_grad") else { return Val::Poison };
        let mut operands: Vec<(Name, ValueId)> = vec![];
        for param in &func.params {
            if let Some(Val::Tensor(v)) = self.lookup(&param.name.text) {
                operands.push((param.name.clone(), v));
            }
        }
        let extra: Vec<&Name> = grad
            .params
            .iter()
            .filter(|g| !func.params.iter().any(|p| p.name.text == g.text))
            .collect();
        let [out, ct] = extra.as_slice() else {
            return self.error(
                Diag::error("E0310", "a gradient gets the result and the gradient flowing into it")
                    .at(grad.span, "expected two names besides the function's parameters")
                    .help("write `grad(x, out, ct) { return ... }`"),
            );
        };
        let none = Default::default();
        let before = self.diags.len();
        // Forward.
        let (outer, forward) = self.build.open(&none);
        self.region_params(&operands, &[]);
        self.stmts(&func.body.stmts);
        let returned = self.frame().returned.take().unwrap_or_default();
        let result = match self.check_results(func, returned, span) {
            Val::Tuple(_) if self.diags.len() == before => self.error(
                Diag::error("E0311", "a function with its own gradient has one result")
                    .at(func.name.span, "this one has none or several"),
            ),
            val => val,
        };
        let result = self.tensor(&result, span, None);
        self.frame().scopes.pop();
        let written = self.build.close(outer);
        let Some(result) = result else { return Val::Poison };
        self.build.func.regions[forward].results = vec![result];
        let ty = self.type_of(result);
        if !written.is_empty() {
            return self.error(
                Diag::error("E0312", "a function with its own gradient cannot write variables")
                    .at(func.name.span, "this one does"),
            );
        }
        // Backward.
        let (outer, backward) = self.build.open(&none);
        self.region_params(&operands, &[((*out).clone(), ty.clone()), ((*ct).clone(), ty)]);
        self.stmts(&grad.body.stmts);
        let returned = self.frame().returned.take().unwrap_or_default();
        let results = self.custom_results(func, grad, &operands, returned);
        self.frame().scopes.pop();
        self.build.close(outer);
        let Some(results) = results else { return Val::Poison };
        self.build.func.regions[backward].results = results;
        if self.diags.len() != before {
            return Val::Poison;
        }
        let values: Vec<ValueId> = operands.iter().map(|(_, v)| *v).collect();
        let mut spec = NodeSpec::new(op, &values, Attrs::none(), span);
        spec.regions = vec![forward, backward];
        let spans = vec![span; values.len()];
        self.finish(spec, &spans, &[], span)
    }

    /// A scope in which the function's parameters are those of the region.
    fn region_params(&mut self, operands: &[(Name, ValueId)], more: &[(Name, crate::TensorType)]) {
        self.frame().scopes.push(Default::default());
        let mut all: Vec<(Name, crate::TensorType)> = vec![];
        for (name, v) in operands {
            all.push((name.clone(), self.type_of(*v)));
        }
        all.extend(more.iter().cloned());
        for (name, ty) in all {
            let label = format!("{}{}", self.frame().path, name.text);
            let label = self.build.unique(&label);
            let value = self.region_param(ty, label);
            let build = self.build.id;
            self.frame().set(name.text, Bound { val: Val::Tensor(value), span: name.span, build });
        }
    }

    fn custom_results(
        &mut self,
        func: &FuncItem,
        grad: &GradClause,
        operands: &[(Name, ValueId)],
        returned: Vec<Spanned>,
    ) -> Option<Vec<ValueId>> {
        let float: Vec<&(Name, ValueId)> =
            operands.iter().filter(|(_, v)| self.type_of(*v).dtype.is_float()).collect();
        if returned.len() != float.len() {
            let names: Vec<&str> = float.iter().map(|(n, _)| &*n.text).collect();
            self.error(
                Diag::error(
                    "E0313",
                    format!(
                        "the gradient of `{}` returns {}, but needs one for each of: {}",
                        func.name.text,
                        count(returned.len(), "value"),
                        names.join(", ")
                    ),
                )
                .at(grad.span, "in this gradient"),
            );
            return None;
        }
        let mut out = vec![];
        let mut values = returned.into_iter();
        for (name, v) in operands {
            let want = self.type_of(*v);
            if !want.dtype.is_float() {
                continue;
            }
            let value = values.next()?;
            let mut got = self.tensor(&value.val, value.span, Some(want.dtype))?;
            let ty = self.type_of(got);
            let number = matches!(value.val, Val::Int(_) | Val::Float(_));
            if number && ty.dtype == want.dtype {
                got = self.broadcast_to(got, &want.shape, value.span)?;
            } else if ty != want {
                self.error(
                    Diag::error(
                        "E0313",
                        format!("the gradient for `{}` is {ty}, but must be {want}", name.text),
                    )
                    .at(value.span, format!("this is {ty}"))
                    .also(name.span, format!("`{}` is {want}", name.text)),
                );
                return None;
            }
            out.push(got);
        }
        Some(out)
    }
}
