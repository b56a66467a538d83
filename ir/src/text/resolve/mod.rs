//! Tree to graph.
//!
//! One walk per entry: names are looked up, calls inlined, expressions turned
//! into nodes whose types are inferred as they are added. What cannot be
//! resolved is reported once and becomes [`Val::Poison`], which silences all
//! that depends on it.
//!
//! Code map
//! - [`scope`]: values of names, functions under construction;
//! - `expr`, `stmt`, `control`: the walk;
//! - `ops`, `attrs`: calls of ops: literals, broadcasting, attributes;
//! - `call`: calls of functions; `types`: type patterns and what they bind;
//! - `number`: arithmetic between numbers; `literal`: how they become tensors;
//! - `lists`: `for`, and lists made by it;
//! - `queue`: declarations of queues and readers;
//! - `weights`: layers, models and the names of their variables; `walk`: what stands
//!   in a block;
//! - `state`: variables, reads, initialisers; `writes`: who writes what;
//! - `sugar`: `zeros`, `split`, indexing, `grad`; `minimize`: training.

mod attrs;
mod call;
mod control;
mod expr;
mod files;
mod lists;
mod literal;
mod minimize;
mod number;
mod ops;
mod queue;
pub(crate) mod scope;
mod state;
mod stmt;
mod sugar;
mod types;
mod walk;
mod weights;
mod writes;

use super::Loader;
use super::ast;
use super::names::nearest;
use crate::diag::{Diag, Severity, SourceMap, Span};
use crate::graph::DimDecl;
use crate::{Dim, Graph, Op, VarId};
use scope::{Build, Frame, Val};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

/// Nodes of one graph: a bound on what inlining may make of a small file.
const MAX_NODES: usize = 500_000;
/// Expressions, blocks and calls inside each other, over all inlined functions.
const MAX_DEPTH: usize = 400;
/// Expressions looked at, iterations of `for` and items of lists put together: a bound
/// on what `let`s and functions of numbers may make of a small file.
const MAX_WORK: usize = 4_000_000;
/// Errors after which nothing more is looked for.
const MAX_ERRORS: usize = 200;

/// Walks over the graph until all paths of variables are known: each walk finds
/// more of them, and two are enough for most graphs.
const MAX_WALKS: usize = 8;

pub fn resolve(
    sources: &mut SourceMap,
    file: u32,
    tree: ast::File,
    loader: &dyn Loader,
    diags: &mut Vec<Diag>,
) -> Option<Graph> {
    let files = sources.files.len();
    let mut known = vec![];
    for walk in 1.. {
        sources.files.truncate(files);
        let mut r = Resolver::new(sources, file, loader);
        r.run(file, &tree, std::mem::take(&mut known));
        if walk < MAX_WALKS
            && !r.full()
            && let Some(found) = r.found_late()
        {
            known = found;
            continue;
        }
        let failed = !r.diags.is_empty();
        diags.append(&mut r.diags);
        return (!failed).then_some(r.graph);
    }
    None
}

/// One file's declarations.
#[derive(Default)]
pub(crate) struct Module {
    pub dims: BTreeMap<Arc<str>, Span>,
    pub vars: BTreeMap<Arc<str>, VarId>,
    pub funcs: Vec<Rc<ast::FuncItem>>,
    pub func_index: BTreeMap<Arc<str>, usize>,
    pub lets: BTreeMap<Arc<str>, Rc<ast::LetItem>>,
    /// Libraries in reach: index of the module, `usize::MAX` if it is broken.
    pub uses: BTreeMap<Arc<str>, usize>,
    /// The same in the order of the text.
    pub use_order: Vec<(Arc<str>, usize)>,
    /// What the names of its models' variables start with: `nets.`.
    pub prefix: Rc<str>,
}

pub(crate) struct Resolver<'a> {
    pub sources: &'a mut SourceMap,
    pub loader: &'a dyn Loader,
    /// The user's own file.
    root: u32,
    pub diags: Vec<Diag>,
    pub graph: Graph,
    pub modules: Vec<Module>,
    libraries: BTreeMap<String, usize>,
    pub ops: BTreeMap<&'static str, Op>,
    pub frames: Vec<Frame>,
    /// The function being built; the initialiser has id 0.
    pub build: Build,
    /// Builds set aside while another is worked on.
    other: Vec<Build>,
    /// Every variable by its full name.
    pub var_names: BTreeMap<String, VarId>,
    pub sites: weights::Sites,
    /// Variables of models, in the order in which they came to be.
    pub weights: Vec<VarId>,
    /// Declared, but their first value is not there yet.
    pub pending: BTreeSet<VarId>,
    /// The call that brought a variable of a model or an optimizer about.
    pub first_sites: BTreeMap<VarId, Span>,
    /// Variables that the body that declares them writes.
    pub self_written: BTreeSet<VarId>,
    /// Models whose variables were looked up, and how many they were then.
    pub asked: Vec<(String, usize)>,
    /// Variables whose declaration is in error.
    pub poisoned_vars: BTreeMap<Arc<str>, scope::Bound>,
    /// What the open regions yield, innermost last.
    pub yields: Vec<Option<Vec<scope::Spanned>>>,
    /// Variables the initialiser has assigned so far.
    pub assigned: BTreeSet<VarId>,
    /// What `name_seed` stands for: the variable being initialised has one.
    pub seed: Option<u32>,
    pub depth: usize,
    nodes: usize,
    work: usize,
    literal_bytes: usize,
    /// Top-level `let`s whose value is known: module and name.
    pub let_values: BTreeMap<(usize, Arc<str>), Val>,
    too_large: bool,
    pub writes: BTreeMap<(usize, usize), writes::Writes>,
}

impl<'a> Resolver<'a> {
    fn new(sources: &'a mut SourceMap, root: u32, loader: &'a dyn Loader) -> Resolver<'a> {
        Resolver {
            sources,
            loader,
            root,
            diags: vec![],
            graph: Graph::default(),
            modules: vec![],
            libraries: BTreeMap::new(),
            ops: Op::ALL.iter().map(|op| (op.name(), *op)).collect(),
            frames: vec![],
            build: Build::new(0, "init"),
            other: vec![],
            var_names: BTreeMap::new(),
            sites: weights::Sites::default(),
            weights: vec![],
            pending: BTreeSet::new(),
            first_sites: BTreeMap::new(),
            self_written: BTreeSet::new(),
            asked: vec![],
            poisoned_vars: BTreeMap::new(),
            yields: vec![],
            assigned: BTreeSet::new(),
            seed: None,
            depth: 0,
            nodes: 0,
            work: 0,
            literal_bytes: 0,
            let_values: BTreeMap::new(),
            too_large: false,
            writes: BTreeMap::new(),
        }
    }
}

impl Resolver<'_> {
    fn run(&mut self, file: u32, tree: &ast::File, known: Vec<weights::Known>) {
        self.graph.name = match &tree.name {
            Some(name) => name.text.to_string(),
            None => stem(&self.sources.files[file as usize].name),
        };
        self.graph.doc = tree.doc.clone();
        self.graph.init.name = "init".to_string();
        self.modules.push(Module::default());
        let mut stack = vec![];
        self.declare(0, tree, &mut stack);
        self.name_modules();
        self.check_weights(tree);
        self.frames.push(Frame::new(0));
        for item in &tree.items {
            match item {
                ast::Item::Var(var) => self.top_var(var),
                ast::Item::Queue(queue) => self.top_queue(queue),
                _ => {}
            }
        }
        self.declare_known(known);
        self.first_values(tree, false);
        self.frames.pop();
        let mut names: BTreeMap<(Arc<str>, bool, Option<String>), Span> = BTreeMap::new();
        let mut id = 0;
        for item in &tree.items {
            let ast::Item::Entry(entry) = item else { continue };
            // An entry, its replica and its parts have one name.
            let task = entry.task.as_ref().map(|(task, _)| task.clone());
            let name = (entry.name.text.clone(), entry.replica, task);
            if let Some(first) = names.insert(name, entry.name.span) {
                self.twice("entry", &entry.name, first);
                continue;
            }
            if self.full() {
                break;
            }
            id += 1;
            self.entry(entry, id);
        }
        self.frames.push(Frame::new(0));
        self.first_values(tree, true);
        self.frames.pop();
        if !self.full() {
            self.check_initialised();
        }
        if names.is_empty() && self.diags.is_empty() {
            let at = tree.name.as_ref().map_or(Span::new(file, 0, 0), |n| n.span);
            self.diags.push(
                Diag::error("E0112", "the graph has no `entry`, so there is nothing to run")
                    .at(at, "nothing in this graph can be called")
                    .help("add `entry main() -> f32[] { return 1.0 }`"),
            );
        }
        let init = std::mem::replace(&mut self.build, Build::new(0, "init"));
        self.graph.init = init.func;
    }

    /// First values of the file's own variables, in the order of the text. Those that
    /// take something from a model come last, when the entries have called it.
    fn first_values(&mut self, tree: &ast::File, of_models: bool) {
        for item in &tree.items {
            if let ast::Item::Var(var) = item
                && var.init.as_ref().is_some_and(|e| self.expr_mentions_model(e)) == of_models
            {
                self.in_build(0, |r| r.top_init(var));
            }
        }
        for item in &tree.items {
            if let ast::Item::Init(block) = item
                && self.block_mentions_model(block) == of_models
            {
                self.in_build(0, |r| r.init_block(block));
            }
        }
    }

    /// Collects what a file declares, so that order in the text does not matter.
    fn declare(&mut self, module: usize, tree: &ast::File, stack: &mut Vec<String>) {
        let mut seen: BTreeMap<Arc<str>, (&str, Span)> = BTreeMap::new();
        for item in &tree.items {
            let (what, name) = match item {
                ast::Item::Dim(d) => ("dim", &d.name),
                ast::Item::Var(v) => ("var", &v.name),
                ast::Item::Queue(q) => (if q.reader { "reader" } else { "queue" }, &q.name),
                ast::Item::Func(f) => (f.kind.word(), &f.name),
                ast::Item::Let(l) => ("let", &l.name),
                ast::Item::Use(u) => ("use", &u.name),
                ast::Item::Entry(_) | ast::Item::Init(_) => continue,
            };
            // A library and a function may share a name: one is before a dot.
            let key: Arc<str> =
                if what == "use" { format!("use {}", name.text).into() } else { name.text.clone() };
            if let Some((_, first)) = seen.insert(key, (what, name.span)) {
                self.twice(what, name, first);
                continue;
            }
            match item {
                ast::Item::Dim(d) => self.declare_dim(module, d),
                ast::Item::Func(f) => {
                    let m = &mut self.modules[module];
                    m.func_index.insert(f.name.text.clone(), m.funcs.len());
                    m.funcs.push(Rc::new(f.clone()));
                }
                ast::Item::Let(l) => {
                    let m = &mut self.modules[module];
                    m.lets.insert(l.name.text.clone(), Rc::new(l.clone()));
                }
                ast::Item::Use(u) => {
                    let id = self.use_library(u, stack);
                    self.modules[module].uses.insert(u.name.text.clone(), id);
                    self.modules[module].use_order.push((u.name.text.clone(), id));
                }
                _ => {}
            }
        }
        if module != 0 {
            for item in &tree.items {
                let (what, span) = match item {
                    ast::Item::Entry(e) if e.runner => ("a runner", e.name.span),
                    ast::Item::Entry(e) => ("an entry", e.name.span),
                    ast::Item::Queue(q) => ("a queue or a reader", q.name.span),
                    ast::Item::Var(v) => ("a variable at the top level", v.name.span),
                    ast::Item::Init(b) => ("an `init` block", b.span),
                    _ => continue,
                };
                self.diags.push(Diag::error("E0146", format!("a library cannot have {what}")).at(
                    span,
                    "only `use`, `let`, `dim`, `func`, `layer` and `model` stand in libraries",
                ));
            }
        }
    }

    fn declare_dim(&mut self, module: usize, item: &ast::DimItem) {
        let (mut min, mut max) = (0, i64::MAX);
        if let Some((lo, hi, span)) = item.range {
            (min, max) = (lo, hi);
            if lo > hi {
                self.diags.push(
                    Diag::error("E0114", format!("the range {lo}..{hi} is empty"))
                        .at(span, "the smallest size comes first, and both ends are included"),
                );
            }
        }
        self.modules[module].dims.insert(item.name.text.clone(), item.name.span);
        if module == 0 {
            let name = item.name.text.clone();
            self.graph.dims.push(DimDecl { name, min, max, span: item.name.span });
        }
    }

    fn use_library(&mut self, item: &ast::Use, stack: &mut Vec<String>) -> usize {
        let broken = usize::MAX;
        let key = match &item.path {
            Some((path, _)) => format!("\"{path}\""),
            None => item.name.text.to_string(),
        };
        if stack.contains(&key) {
            self.diags.push(
                Diag::error("E0115", "libraries use each other in a circle")
                    .at(item.name.span, format!("{} -> {key}", stack.join(" -> "))),
            );
            return broken;
        }
        if let Some(id) = self.libraries.get(&key) {
            return *id;
        }
        let text = match &item.path {
            None => match super::lib_source(&item.name.text) {
                Some(text) => text.to_string(),
                None => {
                    let known: Vec<&str> = super::LIBRARIES.iter().map(|(n, _)| *n).collect();
                    let mut diag =
                        Diag::error("E0116", format!("there is no library `{}`", item.name.text))
                            .at(item.name.span, "not a library of tfc");
                    diag = match nearest(&item.name.text, known.iter().copied()) {
                        Some(n) => diag.fix(format!("did you mean `{n}`?"), item.name.span, n),
                        None => diag.help(format!(
                            "the libraries are {}; a file is used with `use \"file.graph\" as \
                             name`",
                            known.join(", ")
                        )),
                    };
                    self.diags.push(diag);
                    return broken;
                }
            },
            Some((path, span)) => match self.loader.source(path) {
                Ok(text) => text,
                Err(refusal) => {
                    let what = format!("cannot use \"{path}\"");
                    self.diags.push(refusal.at("E0117", what, *span));
                    return broken;
                }
            },
        };
        let name = match &item.path {
            Some((path, _)) => path.clone(),
            None => format!("<{}>", item.name.text),
        };
        let file = self.sources.add(name, text);
        let mut diags = vec![];
        let tree = super::tree(self.sources, file, &mut diags);
        diags.retain(|d| d.severity == Severity::Error);
        let id = self.modules.len();
        self.modules.push(Module::default());
        self.libraries.insert(key.clone(), id);
        if !diags.is_empty() {
            self.diags.append(&mut diags);
            self.libraries.insert(key, broken);
            return broken;
        }
        stack.push(key);
        self.declare(id, &tree, stack);
        stack.pop();
        id
    }

    fn twice(&mut self, what: &str, name: &ast::Name, first: Span) {
        self.diags.push(
            Diag::error("E0118", format!("`{}` is declared twice", name.text))
                .at(name.span, format!("this {what} has a name that is taken"))
                .also(first, "declared here before"),
        );
    }

    /// Runs with another build current.
    pub fn in_build<T>(&mut self, id: u32, f: impl FnOnce(&mut Self) -> T) -> T {
        if self.build.id == id {
            return f(self);
        }
        let Some(at) = self.other.iter().position(|b| b.id == id) else { return f(self) };
        let wanted = self.other.swap_remove(at);
        let old = std::mem::replace(&mut self.build, wanted);
        let old_id = old.id;
        self.other.push(old);
        let result = f(self);
        if let Some(at) = self.other.iter().position(|b| b.id == old_id) {
            let old = self.other.swap_remove(at);
            let done = std::mem::replace(&mut self.build, old);
            self.other.push(done);
        }
        result
    }

    /// Runs with a new build current and gives back what was built.
    pub fn with_build(&mut self, new: Build, f: impl FnOnce(&mut Self)) -> Build {
        let old = std::mem::replace(&mut self.build, new);
        let old_id = old.id;
        self.other.push(old);
        f(self);
        let Some(at) = self.other.iter().position(|b| b.id == old_id) else {
            return Build::new(u32::MAX, "");
        };
        let old = self.other.swap_remove(at);
        std::mem::replace(&mut self.build, old)
    }

    pub fn frame(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::new(0));
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    pub fn module(&self) -> usize {
        self.frames.last().map(|f| f.module).unwrap_or(0)
    }

    /// Enough errors were found.
    pub fn full(&self) -> bool {
        self.diags.len() >= MAX_ERRORS || self.too_large
    }

    /// Reports, adding the calls that led here.
    pub fn error(&mut self, mut diag: Diag) -> Val {
        if self.diags.len() >= MAX_ERRORS {
            return Val::Poison;
        }
        let mut sites: Vec<(Span, Rc<str>)> = vec![];
        for frame in self.frames.iter().rev() {
            if !frame.site.is_none() {
                sites.push((frame.site, frame.callee.clone()));
            }
        }
        // Inside a library the user's own line matters most.
        let root = self.root;
        let in_library = |s: Span| s.file != root && !s.is_none();
        let primary_in_library =
            diag.labels.iter().find(|l| l.primary).is_some_and(|l| in_library(l.span));
        for (i, (span, callee)) in sites.iter().enumerate() {
            if i < 4 || i + 1 == sites.len() {
                diag = diag.also(*span, format!("in this call of `{callee}`"));
            }
        }
        if primary_in_library
            && let Some(user) = diag.labels.iter().rposition(|l| !in_library(l.span))
        {
            for label in &mut diag.labels {
                label.primary = false;
            }
            diag.labels[user].primary = true;
        }
        // The same mistake seen through two calls of one function is one.
        if !self.diags.contains(&diag) {
            self.diags.push(diag);
        }
        Val::Poison
    }

    /// Counts nesting; an error when there is too much of it.
    pub fn nested<T>(&mut self, span: Span, f: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.depth >= MAX_DEPTH {
            if !self.too_large {
                self.error(
                    Diag::error("E0106", "this is nested too deep")
                        .at(span, "calls and expressions inside each other")
                        .help("name a part of it and use the name"),
                );
            }
            self.too_large = true;
            return None;
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        Some(result)
    }

    /// Counts what the graph takes to build; false when it is too much to go on.
    pub fn work(&mut self, amount: usize, span: Span) -> bool {
        self.work = self.work.saturating_add(amount);
        if self.work > MAX_WORK && !self.too_large {
            self.error(
                Diag::error("E0151", "this graph takes too long to work out")
                    .at(span, format!("after {MAX_WORK} steps, the compiler was here"))
                    .help(
                        "functions that call functions twice, and `for` inside `for`, multiply; \
                         name a result and use the name",
                    ),
            );
            self.too_large = true;
        }
        !self.too_large
    }

    /// Counts a node; false when the graph is too large to go on.
    pub fn count_node(&mut self, span: Span) -> bool {
        self.nodes += 1;
        if self.nodes > MAX_NODES && !self.too_large {
            self.error(
                Diag::error("E0119", format!("the graph has more than {MAX_NODES} nodes"))
                    .at(span, "functions calling functions make it this large")
                    .help("use `while` for repetition"),
            );
            self.too_large = true;
        }
        !self.too_large
    }

    /// What a name stands for in the current scope.
    pub fn lookup(&mut self, name: &str) -> Option<Val> {
        let build = self.build.id;
        let module = self.module();
        if let Some(bound) = self.frames.last().and_then(|f| f.get(name)) {
            if bound.build != build && matches!(bound.val, Val::Tensor(_) | Val::Effect(_)) {
                return None;
            }
            return Some(bound.val.clone());
        }
        if self.modules[module].dims.contains_key(name) {
            return Some(Val::size(Dim::sym(name)));
        }
        if let Some(var) = self.modules[module].vars.get(name) {
            return Some(Val::Var(*var));
        }
        if module == 0 && self.poisoned_vars.contains_key(name) {
            return Some(Val::Poison);
        }
        self.state_at(name)
    }
}

/// The file's name without folder and ending, as a graph's name.
fn stem(path: &str) -> String {
    let file = path.rsplit(['/', '\\']).next().unwrap_or(path);
    let stem = file.split('.').next().unwrap_or(file);
    let clean: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    match clean.chars().next() {
        Some(c) if c.is_ascii_alphabetic() && !super::parse::is_reserved(&clean) => clean,
        _ => format!("g_{clean}"),
    }
}
