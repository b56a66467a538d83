//! Adding nodes: the only way a graph grows.

use crate::diag::Span;
use crate::graph::{Def, Value, Var};
use crate::op::{InferCx, InferError, Place};
use crate::vjp::{Emit, V};
use crate::{Attrs, Func, Node, NodeId, Op, RegionId, TensorType, ValueId, VarId};
use cranelift_entity::{EntityRef, PrimaryMap};
use std::cell::RefCell;
use std::sync::Arc;

/// Everything about a node but its results.
#[derive(Clone, Debug)]
pub struct NodeSpec {
    pub op: Op,
    pub operands: Vec<ValueId>,
    pub attrs: Attrs,
    pub var: Option<VarId>,
    pub regions: Vec<RegionId>,
    pub after: Vec<NodeId>,
    pub device: Option<Arc<str>>,
    pub span: Span,
}

impl NodeSpec {
    pub fn new(op: Op, operands: &[ValueId], attrs: Attrs, span: Span) -> NodeSpec {
        NodeSpec {
            op,
            operands: operands.to_vec(),
            attrs,
            var: None,
            regions: vec![],
            after: vec![],
            device: None,
            span,
        }
    }
}

/// Checks a node against its op's record and infers its result types.
pub fn infer(
    op: Op,
    operands: &[TensorType],
    attrs: &Attrs,
    var: Option<&TensorType>,
    regions: &[Vec<TensorType>],
) -> Result<Vec<TensorType>, InferError> {
    let def = op.def();
    check_arity(op, operands.len())?;
    for (i, ty) in operands.iter().enumerate() {
        let spec = def.operands[i.min(def.operands.len() - 1)];
        if !spec.kind.admits(ty.dtype) {
            return Err(InferError::new(
                "E0202",
                format!("`{}` takes {} for `{}`", def.name, spec.kind.describe(), spec.name),
            )
            .at(Place::Operand(i), format!("this is {ty}")));
        }
    }
    for spec in def.attrs {
        match attrs.get(spec.name) {
            Some(a) if a.kind() == spec.kind => {}
            Some(_) => {
                return Err(InferError::new(
                    "E0205",
                    format!("`{}` of `{}` has the wrong kind", spec.name, def.name),
                )
                .at(Place::Attr(spec.name), format!("expected {:?}", spec.kind)));
            }
            None => {
                return Err(InferError::new(
                    "E0204",
                    format!("`{}` needs the attribute `{}`", def.name, spec.name),
                )
                .at(Place::Op, format!("`{}` is {}", spec.name, spec.doc)));
            }
        }
    }
    (def.infer)(&InferCx { op: def.name, operands, attrs, var, regions })
}

fn check_arity(op: Op, given: usize) -> Result<(), InferError> {
    let def = op.def();
    let variadic = def.operands.last().is_some_and(|o| o.variadic);
    let fixed = def.operands.len() - variadic as usize;
    if given == fixed || (variadic && given >= fixed) {
        return Ok(());
    }
    let names: Vec<&str> = def.operands.iter().map(|o| o.name).collect();
    let takes = match (fixed, variadic) {
        (n, true) => format!("{n} or more operands"),
        (1, false) => "1 operand".to_string(),
        (n, false) => format!("{n} operands"),
    };
    let mut err =
        InferError::new("E0201", format!("`{}` takes {takes}, but {given} were given", def.name));
    if !names.is_empty() {
        err = err.help(format!("the operands are: {}", names.join(", ")));
    }
    Err(err)
}

/// Appends nodes to one region of a function.
pub struct Builder<'a> {
    pub func: &'a mut Func,
    pub vars: &'a PrimaryMap<VarId, Var>,
    pub region: RegionId,
    /// Span given to nodes emitted through [`Builder::emit`].
    pub span: Span,
}

impl<'a> Builder<'a> {
    pub fn new(func: &'a mut Func, vars: &'a PrimaryMap<VarId, Var>) -> Builder<'a> {
        let region = func.body;
        Builder { func, vars, region, span: Span::NONE }
    }

    /// Adds a node; fills in default attributes and infers result types.
    pub fn node(&mut self, mut spec: NodeSpec) -> Result<NodeId, InferError> {
        let def = spec.op.def();
        for attr in def.attrs {
            if spec.attrs.get(attr.name).is_none()
                && let Some(default) = attr.default
            {
                spec.attrs.set(attr.name, default());
            }
        }
        let operands: Vec<TensorType> =
            spec.operands.iter().map(|v| self.func.ty(*v).clone()).collect();
        let regions: Vec<Vec<TensorType>> = spec
            .regions
            .iter()
            .map(|r| {
                let results = &self.func.regions[*r].results;
                results.iter().map(|v| self.func.ty(*v).clone()).collect()
            })
            .collect();
        let var = spec.var.map(|v| &self.vars[v].ty);
        let types = infer(spec.op, &operands, &spec.attrs, var, &regions)?;
        let id = self.func.nodes.next_key();
        let results = types
            .into_iter()
            .enumerate()
            .map(|(i, ty)| {
                self.func.values.push(Value { ty, def: Def::Node(id, i as u32), name: None })
            })
            .collect();
        self.func.nodes.push(Node {
            op: spec.op,
            operands: spec.operands,
            attrs: spec.attrs,
            var: spec.var,
            regions: spec.regions,
            after: spec.after,
            device: spec.device,
            results,
            span: spec.span,
        });
        self.func.regions[self.region].nodes.push(id);
        Ok(id)
    }

    /// Adds a pure node with one result.
    pub fn emit(
        &mut self,
        op: Op,
        operands: &[ValueId],
        attrs: Attrs,
    ) -> Result<ValueId, InferError> {
        let node = self.node(NodeSpec::new(op, operands, attrs, self.span))?;
        Ok(self.func.nodes[node].results[0])
    }

    pub fn param(&mut self, ty: TensorType, name: Option<Arc<str>>) -> ValueId {
        let index = self.func.regions[self.region].params.len() as u32;
        let value = self.func.values.push(Value { ty, def: Def::Param(self.region, index), name });
        self.func.regions[self.region].params.push(value);
        value
    }
}

/// Lets gradients and expansions emit into a graph.
pub struct GraphEmit<'b, 'a> {
    inner: RefCell<(&'b mut Builder<'a>, Option<InferError>)>,
}

impl<'b, 'a> GraphEmit<'b, 'a> {
    pub fn new(builder: &'b mut Builder<'a>) -> GraphEmit<'b, 'a> {
        GraphEmit { inner: RefCell::new((builder, None)) }
    }

    /// The first ill-typed request, if any.
    pub fn finish(self) -> Result<(), InferError> {
        match self.inner.into_inner().1 {
            Some(err) => Err(err),
            None => Ok(()),
        }
    }

    pub fn value(&self, v: V) -> ValueId {
        ValueId::new(v.0 as usize)
    }

    pub fn opaque(&self, v: ValueId) -> V {
        V(v.index() as u32)
    }
}

impl Emit for GraphEmit<'_, '_> {
    fn emit(&self, op: Op, operands: &[V], attrs: Attrs) -> V {
        let (builder, error) = &mut *self.inner.borrow_mut();
        let ids: Vec<ValueId> = operands.iter().map(|v| ValueId::new(v.0 as usize)).collect();
        match builder.emit(op, &ids, attrs) {
            Ok(value) => V(value.index() as u32),
            Err(err) => {
                error.get_or_insert(err);
                // Poison: any existing value; the driver reports the error.
                operands.first().copied().unwrap_or(V(0))
            }
        }
    }

    fn ty(&self, v: V) -> TensorType {
        self.inner.borrow().0.func.ty(ValueId::new(v.0 as usize)).clone()
    }
}
