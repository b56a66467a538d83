//! Adding nodes: the only way a graph grows.

use crate::diag::Span;
use crate::graph::{Def, Value, Var};
use crate::op::{Blame, InferCx, InferError};
use crate::vjp::{Emit, V};
use crate::{Attrs, Func, Node, NodeId, Op, Region, RegionId, TensorType, ValueId, VarId};
use cranelift_entity::{EntityRef, PrimaryMap, SecondaryMap};
use std::cell::RefCell;
use std::collections::BTreeMap;
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
    /// As of a [`Node`].
    pub site: Span,
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
            site: Span::NONE,
        }
    }
}

/// Checks a node against its op's record and infers its result types.
pub fn infer(
    op: Op,
    operands: &[TensorType],
    attrs: &Attrs,
    var: Option<&Var>,
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
            .at(Blame::Operand(i), format!("this is {ty}"))
            .help(format!("convert it: `cast(.., to: {})`", spec.kind.example())));
        }
    }
    for spec in def.attrs {
        match attrs.get(spec.name) {
            Some(a) if spec.kind.holds(a) => {}
            Some(_) => {
                return Err(InferError::new(
                    "E0205",
                    format!("`{}` of `{}` has the wrong kind", spec.name, def.name),
                )
                .at(Blame::Attr(spec.name), format!("expected {:?}", spec.kind)));
            }
            None => {
                return Err(InferError::new(
                    "E0204",
                    format!("`{}` needs the attribute `{}`", def.name, spec.name),
                )
                .at(Blame::Op, format!("`{}` is {}", spec.name, spec.doc)));
            }
        }
    }
    let types = (def.infer)(&InferCx { op: def.name, operands, attrs, var, regions })?;
    match types.iter().find(|ty| !ty.is_countable()) {
        None => Ok(types),
        Some(ty) => Err(InferError::new("E0226", format!("{ty} is too large"))
            .at(Blame::Op, "its size in bytes does not fit in 63 bits")),
    }
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

/// Where a node comes from: its place in the text, and the device it was put on.
/// What a pass makes of a node has the node's origin, so that neither is lost.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origin {
    pub span: Span,
    /// As of a [`Node`].
    pub site: Span,
    pub device: Option<Arc<str>>,
}

impl Node {
    pub fn origin(&self) -> Origin {
        Origin { span: self.span, site: self.site, device: self.device.clone() }
    }

    /// Its place in the text that the user wrote.
    pub fn place(&self) -> Span {
        if self.site.is_none() { self.span } else { self.site }
    }
}

/// Appends nodes to one region of a function.
pub struct Builder<'a> {
    pub func: &'a mut Func,
    pub vars: &'a PrimaryMap<VarId, Var>,
    pub region: RegionId,
    /// Nodes emitted through [`Builder::emit`] come from here. Nodes that are on no
    /// device of their own are on its device.
    pub origin: Origin,
}

impl<'a> Builder<'a> {
    pub fn new(func: &'a mut Func, vars: &'a PrimaryMap<VarId, Var>) -> Builder<'a> {
        let region = func.body;
        Builder { func, vars, region, origin: Origin::default() }
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
        let var = spec.var.map(|v| &self.vars[v]);
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
            device: spec.device.or_else(|| self.origin.device.clone()),
            results,
            span: spec.span,
            site: if spec.site.is_none() { self.origin.site } else { spec.site },
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
        let node = self.node(NodeSpec::new(op, operands, attrs, self.origin.span))?;
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

/// Rebuilds a function node by node: how passes change graphs.
///
/// Nodes are visited in order. A visitor may emit other nodes and name the
/// values that replace the node's results; otherwise the node is copied with
/// its operands replaced. Regions are rebuilt the same way.
pub struct Rewriter<'a> {
    pub old: &'a Func,
    pub new: Func,
    pub vars: &'a PrimaryMap<VarId, Var>,
    /// The region of `new` being filled.
    pub region: RegionId,
    /// The regions of `new` around that one, outermost first.
    around: Vec<RegionId>,
    values: SecondaryMap<ValueId, Option<ValueId>>,
    nodes: SecondaryMap<NodeId, Option<NodeId>>,
}

/// Gives the values that replace a node's results, or none to copy the node.
pub type Visit<'v, E> =
    dyn FnMut(&mut Rewriter<'_>, NodeId) -> Result<Option<Vec<ValueId>>, E> + 'v;

impl<'a> Rewriter<'a> {
    pub fn rewrite<E: From<InferError>>(
        old: &'a Func,
        vars: &'a PrimaryMap<VarId, Var>,
        visit: &mut Visit<'_, E>,
    ) -> Result<Func, E> {
        let mut new = Func::new(&old.name);
        new.doc = old.doc.clone();
        new.result_names = old.result_names.clone();
        new.runner = old.runner;
        new.replica = old.replica;
        new.needs = old.needs.clone();
        new.task = old.task.clone();
        new.span = old.span;
        let region = new.body;
        let mut r = Rewriter {
            old,
            new,
            vars,
            region,
            around: vec![],
            values: SecondaryMap::new(),
            nodes: SecondaryMap::new(),
        };
        r.fill(old.body, visit)?;
        Ok(r.new)
    }

    /// Rebuilds a region of the old function into the current one.
    fn fill<E: From<InferError>>(
        &mut self,
        from: RegionId,
        visit: &mut Visit<'_, E>,
    ) -> Result<(), E> {
        let old = self.old;
        for &p in &old.regions[from].params {
            let value = &old.values[p];
            let new = self.builder(&Origin::default()).param(value.ty.clone(), value.name.clone());
            self.values[p] = Some(new);
        }
        let results = self.fill_nodes(from, visit)?;
        self.new.regions[self.region].results = results;
        Ok(())
    }

    /// Puts the nodes of a region of the old function here, with these values
    /// for its parameters; gives its results.
    pub fn splice<E: From<InferError>>(
        &mut self,
        from: RegionId,
        args: &[ValueId],
        visit: &mut Visit<'_, E>,
    ) -> Result<Vec<ValueId>, E> {
        let old = self.old;
        for (&p, &arg) in old.regions[from].params.iter().zip(args) {
            self.values[p] = Some(arg);
        }
        self.fill_nodes(from, visit)
    }

    /// Copies a region of the new function to where it stands now, with these
    /// values for its parameters; gives its results.
    pub fn inline(
        &mut self,
        region: RegionId,
        args: &[ValueId],
    ) -> Result<Vec<ValueId>, InferError> {
        let mut map: BTreeMap<ValueId, ValueId> = BTreeMap::new();
        self.inline_into(region, args, &mut map)
    }

    /// As [`Rewriter::inline`]; `map` says what stands for which value.
    pub fn inline_into(
        &mut self,
        region: RegionId,
        args: &[ValueId],
        map: &mut BTreeMap<ValueId, ValueId>,
    ) -> Result<Vec<ValueId>, InferError> {
        let source = self.new.regions[region].clone();
        map.extend(source.params.iter().copied().zip(args.iter().copied()));
        for id in source.nodes {
            let node = self.new.nodes[id].clone();
            let mut regions = vec![];
            for inner in node.regions {
                let to = self.new.regions.push(Region::default());
                let outer = std::mem::replace(&mut self.region, to);
                let params = self.new.regions[inner].params.clone();
                let mut fresh = vec![];
                for p in params {
                    let ty = self.new.ty(p).clone();
                    fresh.push(self.builder(&Origin::default()).param(ty, None));
                }
                let results = self.inline_into(inner, &fresh, map)?;
                self.new.regions[to].results = results;
                self.region = outer;
                regions.push(to);
            }
            let operands =
                node.operands.iter().map(|v| map.get(v).copied().unwrap_or(*v)).collect();
            let spec = NodeSpec {
                op: node.op,
                operands,
                attrs: node.attrs,
                var: node.var,
                regions,
                after: vec![],
                device: node.device,
                span: node.span,
                site: node.site,
            };
            let copy = self.builder(&Origin::default()).node(spec)?;
            map.extend(node.results.into_iter().zip(self.new.nodes[copy].results.clone()));
        }
        Ok(source.results.iter().map(|v| map.get(v).copied().unwrap_or(*v)).collect())
    }

    fn fill_nodes<E: From<InferError>>(
        &mut self,
        from: RegionId,
        visit: &mut Visit<'_, E>,
    ) -> Result<Vec<ValueId>, E> {
        let old = self.old;
        for &id in &old.regions[from].nodes {
            let results = match visit(self, id)? {
                Some(values) => values,
                None => {
                    let copy = self.copy(id, visit)?;
                    self.new.nodes[copy].results.clone()
                }
            };
            for (&old_value, new_value) in old.nodes[id].results.iter().zip(results) {
                self.replace(old_value, new_value);
            }
        }
        Ok(old.regions[from].results.iter().map(|v| self.get(*v)).collect())
    }

    /// Copies a node, its regions included, with operands replaced.
    fn copy<E: From<InferError>>(
        &mut self,
        id: NodeId,
        visit: &mut Visit<'_, E>,
    ) -> Result<NodeId, E> {
        let node = &self.old.nodes[id];
        let mut regions = vec![];
        for &from in &node.regions {
            let to = self.new.regions.push(Region::default());
            let outer = std::mem::replace(&mut self.region, to);
            self.around.push(outer);
            self.fill(from, visit)?;
            self.around.pop();
            self.region = outer;
            regions.push(to);
        }
        let spec = NodeSpec {
            op: node.op,
            operands: node.operands.iter().map(|v| self.get(*v)).collect(),
            attrs: node.attrs.clone(),
            var: node.var,
            regions,
            after: node.after.iter().filter_map(|n| self.nodes[*n]).collect(),
            device: node.device.clone(),
            span: node.span,
            site: node.site,
        };
        let new = self.builder(&Origin::default()).node(spec)?;
        self.nodes[id] = Some(new);
        Ok(new)
    }

    /// Whether a region of the new function is being filled: the current one,
    /// or one around it. What these defined so far can be used here.
    pub fn is_open(&self, region: RegionId) -> bool {
        region == self.region || self.around.contains(&region)
    }

    /// The regions being filled, outermost first.
    pub fn open_regions(&self) -> Vec<RegionId> {
        let mut out = self.around.clone();
        out.push(self.region);
        out
    }

    /// What stands for an old value. Values are defined before they are used,
    /// so there is one.
    pub fn get(&self, old: ValueId) -> ValueId {
        self.values[old].unwrap_or_else(|| unreachable!("{old} is used before it is defined"))
    }

    /// Lets `new` stand for `old`, and take its name if it has none.
    pub fn replace(&mut self, old: ValueId, new: ValueId) {
        self.values[old] = Some(new);
        if self.new.values[new].name.is_none() {
            self.new.values[new].name = self.old.values[old].name.clone();
        }
    }

    /// What stands for an old node in `after` edges.
    pub fn node(&self, old: NodeId) -> Option<NodeId> {
        self.nodes[old]
    }

    /// `new` takes the place of the old node in `after` edges.
    pub fn replace_node(&mut self, old: NodeId, new: NodeId) {
        self.nodes[old] = Some(new);
    }

    pub fn builder(&mut self, origin: &Origin) -> Builder<'_> {
        let origin = origin.clone();
        Builder { func: &mut self.new, vars: self.vars, region: self.region, origin }
    }

    /// The node of the new function that defines a value of it.
    pub fn def(&self, value: ValueId) -> Option<&Node> {
        self.new.def(value).map(|id| &self.new.nodes[id])
    }
}
