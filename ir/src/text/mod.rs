//! The graph language: text to [`Graph`] and back.
//!
//! Code map
//! - [`lexer`], [`parse`], `parse_stmt`, `parse_expr`, [`ast`]: text to tree, with
//!   recovery;
//! - `habits`: hints for what other languages write;
//! - [`resolve`]: tree to graph: names, inlining, types, sugar, effects;
//! - [`mod@print`]: graph to flat, typed text that parses back to the same graph;
//! - [`mod@fmt`]: source to source, keeping lines and comments;
//! - [`lib_source`], [`library`]: the libraries shipped inside the compiler.
//!
//! Invariants
//! - No input panics or overflows the stack; time is linear in the input and in
//!   the graph it makes.
//! - `load(print(g))` is `g`, spans aside (see [`same::same`]).
//! - No file is read here: data and source files come through a [`Loader`].

pub mod ast;
pub mod device;
pub mod fmt;
mod habits;
pub mod lexer;
pub mod library;
pub(crate) mod names;
pub mod parse;
mod parse_expr;
mod parse_stmt;
pub mod print;
pub mod resolve;
pub mod same;

pub use fmt::fmt;
pub use print::print;
pub use same::same;

use crate::diag::{Diag, Severity, SourceMap, Span};
use crate::{Graph, Tensor};

/// Why a file of a graph is not used.
#[derive(Clone, Debug)]
pub enum Refusal {
    /// In the user's words.
    Why(String),
    /// A finding of its own, which gets the place that names the file.
    Finding(Box<Diag>),
}

impl Refusal {
    /// The finding about a file named here: `what` failed, unless it says more.
    pub(crate) fn at(self, code: &'static str, what: String, span: Span) -> Diag {
        match self {
            Refusal::Why(why) => Diag::error(code, what).at(span, why),
            Refusal::Finding(diag) => diag.at(span, "named here"),
        }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Why(why)
    }
}

/// How a graph reaches files: `file("w.npy")`, `use "layers.graph" as layers`.
pub trait Loader {
    /// The array in a file, or the one named `key` in it.
    fn tensor(&self, path: &str, key: Option<&str>) -> Result<Tensor, Refusal>;

    /// The text of another graph file.
    fn source(&self, path: &str) -> Result<String, Refusal>;
}

/// A loader that refuses every file.
pub struct NoFiles;

impl Loader for NoFiles {
    fn tensor(&self, path: &str, _key: Option<&str>) -> Result<Tensor, Refusal> {
        Err(format!("`{path}` cannot be read here: no files are available").into())
    }

    fn source(&self, path: &str) -> Result<String, Refusal> {
        Err(format!("`{path}` cannot be read here: no files are available").into())
    }
}

/// Parses and resolves a file of the map. The graph is there unless a
/// diagnostic is an error.
pub fn load(sources: &mut SourceMap, file: u32, loader: &dyn Loader) -> (Option<Graph>, Vec<Diag>) {
    load_with(sources, file, loader, &[])
}

/// [`load`], with other values for some of the file's `let`s: names and the text
/// of expressions.
pub fn load_with(
    sources: &mut SourceMap,
    file: u32,
    loader: &dyn Loader,
    lets: &[(String, String)],
) -> (Option<Graph>, Vec<Diag>) {
    let mut diags = vec![];
    let mut tree = tree(sources, file, &mut diags);
    for (name, value) in lets {
        replace_let(sources, &mut tree, name, value, &mut diags);
    }
    let syntax = diags.iter().filter(|d| d.severity == Severity::Error).count();
    let found = diags.len();
    let graph = resolve::resolve(sources, file, tree, loader, &mut diags);
    // A name whose definition could not be parsed would be reported as unknown:
    // with syntax errors, only those count that have nothing to do with names.
    if syntax > 0 {
        diags.truncate(found);
    }
    sort(&mut diags);
    let failed = diags.iter().any(|d| d.severity == Severity::Error);
    (graph.filter(|_| !failed), diags)
}

/// [`load`] of a text by itself, for tests and tools.
pub fn load_str(name: &str, text: &str) -> (Option<Graph>, Vec<Diag>, SourceMap) {
    let mut sources = SourceMap::default();
    let file = sources.add(name, text);
    let (graph, diags) = load(&mut sources, file, &NoFiles);
    (graph, diags, sources)
}

/// The tree of one file.
pub fn tree(sources: &SourceMap, file: u32, diags: &mut Vec<Diag>) -> ast::File {
    let Some(source) = sources.files.get(file as usize) else { return ast::File::default() };
    if u32::try_from(source.text.len()).is_err() {
        diags.push(
            Diag::error("E0111", "the file is larger than 4 GiB")
                .at(Span::new(file, 0, 0), "keep large constants in .npy or .safetensors files"),
        );
        return ast::File::default();
    }
    let lexed = lexer::lex(&source.text, file, diags);
    parse::parse(&source.text, file, &lexed, diags)
}

/// Puts another expression in the place of a top-level `let`'s.
fn replace_let(
    sources: &mut SourceMap,
    file: &mut ast::File,
    name: &str,
    value: &str,
    diags: &mut Vec<Diag>,
) {
    let mut lets: Vec<&mut ast::LetItem> = file
        .items
        .iter_mut()
        .filter_map(|item| match item {
            ast::Item::Let(item) => Some(item),
            _ => None,
        })
        .collect();
    let names: Vec<String> = lets.iter().map(|l| l.name.text.to_string()).collect();
    let Some(item) = lets.iter_mut().find(|l| &*l.name.text == name) else {
        let diag = Diag::error("E0491", format!("the graph has no `let {name}` to replace"));
        diags.push(match names::nearest(name, names.iter().map(String::as_str)) {
            Some(near) => diag.help(format!("did you mean `{near}`?")),
            None if names.is_empty() => {
                diag.help(format!("give the number a name at the top: `let {name} = 64`"))
            }
            None => diag.help(format!("its `let`s are {}", names.join(", "))),
        });
        return;
    };
    // On a line of its own, the value is where the reader expects it in messages.
    let text = format!("let {name} = {value}");
    let length = text.len();
    let given = sources.add(format!("<let {name}>"), text);
    let before = diags.len();
    let tree = tree(sources, given, diags);
    match tree.items.as_slice() {
        [ast::Item::Let(new)] => item.value = new.value.clone(),
        _ if diags.len() > before => {}
        _ => diags.push(
            Diag::error("E0492", format!("the value given for `{name}` is not one expression"))
                .at(Span::new(given, 0, length), "expected a number, a list or a truth value"),
        ),
    }
}

/// By place, so that the order does not tell how the compiler works.
fn sort(diags: &mut [Diag]) {
    diags.sort_by_key(|d| {
        let at = d.labels.iter().find(|l| l.primary).or(d.labels.first());
        at.map(|l| (l.span.file, l.span.lo)).unwrap_or((u32::MAX, 0))
    });
}

/// The text of a library shipped inside the compiler.
pub fn lib_source(name: &str) -> Option<&'static str> {
    LIBRARIES.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}

/// Every shipped library: name and text.
pub const LIBRARIES: &[(&str, &str)] = &[
    ("init", include_str!("../../std/init.graph")),
    ("layer", include_str!("../../std/layer.graph")),
    ("nn", include_str!("../../std/nn.graph")),
    ("optim", include_str!("../../std/optim.graph")),
];
