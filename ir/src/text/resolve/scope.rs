//! What names stand for while a graph is being built.

use super::number::Ratio;
use crate::diag::Span;
use crate::graph::Func;
use crate::{DType, Dim, NodeId, RegionId, Tensor, ValueId, VarId};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// What an expression stands for. Numbers, lists and types live at compile
/// time: they become nodes only where a tensor is needed, and take the element
/// type the place asks for.
#[derive(Clone, Debug)]
pub enum Val {
    Tensor(ValueId),
    Int(i128),
    /// A number that is not whole, exactly.
    Ratio(Ratio),
    Float(f64),
    Bool(bool),
    Str(Rc<str>),
    DType(DType),
    /// A size that is not a constant.
    Dim(Dim),
    /// What `..S` stands for.
    Shape(Rc<Vec<Dim>>),
    Const(Arc<Tensor>),
    List(Rc<Vec<Spanned>>),
    /// Several results.
    Tuple(Rc<Vec<Spanned>>),
    /// A variable not read yet.
    Var(VarId),
    /// A node without results, for `after`.
    Effect(NodeId),
    /// Reported already: silences everything it touches.
    Poison,
}

impl Val {
    pub fn size(dim: Dim) -> Val {
        match dim.as_const() {
            Some(c) => Val::Int(c as i128),
            None => Val::Dim(dim),
        }
    }

    pub fn is_poison(&self) -> bool {
        matches!(self, Val::Poison)
    }

    /// Whether it means the same everywhere: no tensor, variable or effect is in it.
    pub fn is_constant(&self) -> bool {
        match self {
            Val::Tensor(_) | Val::Var(_) | Val::Effect(_) | Val::Poison => false,
            Val::List(items) | Val::Tuple(items) => items.iter().all(|i| i.val.is_constant()),
            _ => true,
        }
    }

    /// The variables this is, or is a list of.
    pub fn vars(&self) -> Vec<VarId> {
        match self {
            Val::Var(var) => vec![*var],
            Val::List(items) | Val::Tuple(items) => {
                items.iter().flat_map(|i| i.val.vars()).collect()
            }
            _ => vec![],
        }
    }

    /// How messages name what this is.
    pub fn describe(&self) -> String {
        match self {
            Val::Tensor(_) | Val::Const(_) => "a tensor".into(),
            Val::Int(v) => format!("the number {v}"),
            Val::Ratio(r) => format!("{r}, which is not a whole number"),
            Val::Float(v) => format!("the number {v:?}"),
            Val::Bool(v) => format!("`{v}`"),
            Val::Str(_) => "a string".into(),
            Val::DType(d) => format!("the element type `{d}`"),
            Val::Dim(d) => format!("the size `{d}`"),
            Val::Shape(_) => "a shape".into(),
            Val::List(_) => "a list".into(),
            Val::Tuple(items) => format!("{} values", items.len()),
            Val::Var(_) => "a variable".into(),
            Val::Effect(_) => "an effect without a result".into(),
            Val::Poison => "an error".into(),
        }
    }
}

#[derive(Clone, Debug)]
pub struct Spanned {
    pub val: Val,
    pub span: Span,
}

#[derive(Clone, Debug)]
pub struct Bound {
    pub val: Val,
    /// Where the name was given.
    pub span: Span,
    /// The function under construction the value belongs to.
    pub build: u32,
}

/// To whom the variables belong that a body declares.
#[derive(Clone)]
pub enum Owner {
    /// The entry (or the initialiser) whose body it is.
    Body,
    /// A layer's call or a model, by the prefix of the names: `net.dense.`.
    Weights { path: Rc<str>, model: bool },
    /// An optimizer and the variable it is called for.
    Slots(Rc<Slots>),
    /// A function: it declares none.
    Nobody,
}

#[derive(Clone)]
pub struct Slots {
    /// `adam.net.dense.w.`
    pub path: String,
    /// What the optimizer is called for.
    pub vars: Vec<VarId>,
    /// The `minimize` or the call that asks for it.
    pub site: Span,
    /// It was given a name with `as`.
    pub named: bool,
}

/// One inlined call, or the body of an entry.
pub struct Frame {
    pub module: usize,
    /// Innermost block last.
    pub scopes: Vec<BTreeMap<Arc<str>, Bound>>,
    /// Prefix of the names of values and variables: `logits.`, `adam.w1.`.
    pub path: Rc<str>,
    pub owner: Owner,
    /// Which iteration of each `for` around this place it is, outermost first.
    pub iterations: Vec<usize>,
    /// Layers called and variables declared here so far: name and place.
    pub labels: BTreeMap<String, Span>,
    /// Calls of functions made from here so far, by path element.
    pub calls: BTreeMap<String, usize>,
    /// The call being inlined: module and index of the function, call site.
    pub func: Option<(usize, usize)>,
    pub site: Span,
    pub callee: Rc<str>,
    /// Names that stand for sizes of the call's tensors.
    pub sizes: BTreeSet<Arc<str>>,
    /// Names of the result type still unknown at the call.
    pub open: BTreeSet<Arc<str>>,
    /// Values returned, once `return` was seen.
    pub returned: Option<Vec<Spanned>>,
}

impl Frame {
    pub fn new(module: usize) -> Frame {
        Frame {
            module,
            scopes: vec![BTreeMap::new()],
            path: "".into(),
            owner: Owner::Body,
            iterations: vec![],
            labels: BTreeMap::new(),
            calls: BTreeMap::new(),
            func: None,
            site: Span::NONE,
            callee: "".into(),
            sizes: BTreeSet::new(),
            open: BTreeSet::new(),
            returned: None,
        }
    }

    pub fn get(&self, name: &str) -> Option<&Bound> {
        self.scopes.iter().rev().find_map(|s| s.get(name))
    }

    pub fn set(&mut self, name: Arc<str>, bound: Bound) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, bound);
        }
    }
}

/// Which reading of a variable is current.
#[derive(Clone, Copy, Debug)]
pub struct Version {
    /// Region in which this version began: a read may stand there.
    pub home: RegionId,
    pub read: Option<ValueId>,
}

/// A function (entry or initialiser) under construction.
pub struct Build {
    pub id: u32,
    pub func: Func,
    pub region: RegionId,
    pub device: Option<Arc<str>>,
    pub versions: BTreeMap<VarId, Version>,
    /// Per open region: versions to put back when it ends.
    pub saved: Vec<BTreeMap<VarId, Option<Version>>>,
    /// Which `minimize` or call asked for a slot first, and whether by a name.
    pub slot_sites: BTreeMap<VarId, (Span, bool)>,
    names: BTreeSet<Arc<str>>,
    counters: BTreeMap<Arc<str>, usize>,
    /// Depth of inlining at which a value got its name.
    pub named_at: BTreeMap<ValueId, usize>,
}

impl Build {
    pub fn new(id: u32, name: &str) -> Build {
        let func = Func::new(name);
        Build {
            id,
            region: func.body,
            func,
            device: None,
            versions: BTreeMap::new(),
            saved: vec![],
            slot_sites: BTreeMap::new(),
            names: BTreeSet::new(),
            counters: BTreeMap::new(),
            named_at: BTreeMap::new(),
        }
    }

    /// A name no other value of the function has. Names that start with `_` are
    /// not kept.
    pub fn unique(&mut self, name: &str) -> Option<Arc<str>> {
        if name.starts_with('_') {
            return None;
        }
        if !self.names.contains(name) {
            let name: Arc<str> = name.into();
            self.names.insert(name.clone());
            return Some(name);
        }
        let counter = self.counters.entry(name.into()).or_insert(1);
        loop {
            *counter += 1;
            let next: Arc<str> = format!("{name}_{counter}").into();
            if self.names.insert(next.clone()) {
                return Some(next);
            }
        }
    }

    pub fn version(&self, var: VarId) -> Version {
        let fresh = Version { home: self.func.body, read: None };
        self.versions.get(&var).copied().unwrap_or(fresh)
    }

    /// A write happened (or may have): later reads read again.
    pub fn wrote(&mut self, var: VarId) {
        let old = self.versions.insert(var, Version { home: self.region, read: None });
        if let Some(saved) = self.saved.last_mut() {
            saved.entry(var).or_insert(old);
        }
    }

    /// Starts a region; `unstable` are variables whose value at its start is not
    /// the one outside.
    pub fn open(&mut self, unstable: &BTreeSet<VarId>) -> (RegionId, RegionId) {
        let outer = self.region;
        let region = self.func.regions.push(Default::default());
        self.region = region;
        self.saved.push(BTreeMap::new());
        for var in unstable {
            self.wrote(*var);
        }
        (outer, region)
    }

    /// Ends the region; gives the variables written in it.
    pub fn close(&mut self, outer: RegionId) -> Vec<VarId> {
        self.region = outer;
        let saved = self.saved.pop().unwrap_or_default();
        let mut written = vec![];
        for (var, old) in saved {
            written.push(var);
            match old {
                Some(version) => self.versions.insert(var, version),
                None => self.versions.remove(&var),
            };
        }
        written
    }
}
