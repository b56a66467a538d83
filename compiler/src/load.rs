//! Graph text from files, standard input or strings, to a resolved graph.

use crate::error::{Error, Result, diag_of};
use crate::source;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tfc_ir::diag::{Diag, Severity, SourceMap};
use tfc_ir::text::{self, Loader, Refusal};
use tfc_ir::{Graph, Tensor};
use tfc_runtime::{ErrorCode, Sandbox};

/// A graph with the text it came from.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The graph.
    pub graph: Graph,
    /// The texts it came from.
    pub sources: SourceMap,
    /// Findings that do not stop compilation.
    pub warnings: Vec<Diag>,
}

/// Parses graph text. `file("...")` is relative to the current directory.
///
/// ```
/// let g = tfc::parse("graph g\ndim B\nentry double(x: f32[B]) -> (y: f32[B]) { return x * 2.0 }")?;
/// assert_eq!(g.entries[0].name, "double");
///
/// let err = tfc::parse("graph g\nentry e(x: f32[2]) { return y }").unwrap_err();
/// assert!(err.code().as_str().starts_with("E01"), "{err}");
/// # Ok::<(), tfc::Error>(())
/// ```
pub fn parse(text: &str) -> Result<Graph> {
    parse_as("<string>", text, &Files::here()).map(|loaded| loaded.graph)
}

/// Parses and resolves a graph file; its data files are relative to it.
pub fn load(path: impl AsRef<Path>) -> Result<Graph> {
    load_path(path.as_ref(), &[], &Sandbox::default()).map(|loaded| loaded.graph)
}

/// [`load`], with other values for some of the file's top-level `let`s, written as
/// in the language.
///
/// ```no_run
/// let small = tfc::load_with("resnet50.graph", &[("IMAGE", "64"), ("WIDTH", "8")])?;
/// # Ok::<(), tfc::Error>(())
/// ```
pub fn load_with(path: impl AsRef<Path>, lets: &[(&str, &str)]) -> Result<Graph> {
    let lets: Vec<Let> = lets.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
    load_path(path.as_ref(), &lets, &Sandbox::default()).map(|loaded| loaded.graph)
}

/// [`load`], of a graph that is not trusted: what it names (`use`, `file(..)`) must
/// lie below a directory, or is error E0810. The graph file itself may lie anywhere.
///
/// What it names when it runs is confined by [`Options::sandbox`](crate::Options::sandbox).
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
/// let text = "graph g\nvar w: f32[2] = file(\"../w.npy\")\nentry f() -> (w: f32[2]) { return w }";
/// std::fs::write(dir.join("g.graph"), text).unwrap();
/// let error = tfc::load_inside(dir.join("g.graph"), dir).unwrap_err();
/// assert_eq!(error.code(), tfc::ErrorCode::OUTSIDE_SANDBOX);
/// ```
pub fn load_inside(path: impl AsRef<Path>, sandbox: impl AsRef<Path>) -> Result<Graph> {
    let sandbox = Sandbox::below(sandbox.as_ref())?;
    load_path(path.as_ref(), &[], &sandbox).map(|loaded| loaded.graph)
}

/// [`parse`], confined as by [`load_inside`].
pub fn parse_inside(text: &str, sandbox: impl AsRef<Path>) -> Result<Graph> {
    let sandbox = Sandbox::below(sandbox.as_ref())?;
    let files = Files { dir: PathBuf::new(), sandbox };
    parse_as("<string>", text, &files).map(|loaded| loaded.graph)
}

/// Another value for a top-level `let`: its name and an expression.
pub type Let = (String, String);

/// Reads a file, or standard input for `-`: the name to show, and the text.
pub fn read(path: &Path) -> Result<(String, String)> {
    let (name, text) = match path.as_os_str() == "-" {
        true => ("<stdin>".to_string(), source::read_stdin()),
        false => (path.display().to_string(), source::read_file(path)),
    };
    match text {
        Ok(text) => Ok((name, text)),
        Err(refusal) => Err(refusal.into_diag(&name).into()),
    }
}

/// Reads, parses and resolves, with other values for some `let`s; `-` is standard
/// input.
pub fn load_path(path: &Path, lets: &[Let], sandbox: &Sandbox) -> Result<Loaded> {
    let (name, text) = read(path)?;
    resolve(path, &name, &text, lets, sandbox)
}

/// [`load_path`], of a file that was read: its name and its text.
pub fn resolve(
    path: &Path,
    name: &str,
    text: &str,
    lets: &[Let],
    sandbox: &Sandbox,
) -> Result<Loaded> {
    let dir = match path.parent() {
        Some(dir) if path.as_os_str() != "-" => dir.to_path_buf(),
        _ => PathBuf::new(),
    };
    parse_with(name, text, &Files { dir, sandbox: sandbox.clone() }, lets)
}

/// The graph files that were read: the one named, and those it uses.
pub fn source_files(path: &Path, sources: &SourceMap) -> Vec<PathBuf> {
    let mut files = vec![];
    let mut dir = PathBuf::new();
    if path.as_os_str() != "-" {
        files.push(path.to_path_buf());
        dir = path.parent().map(Path::to_path_buf).unwrap_or_default();
    }
    // `<nn>` and `<let N>` are no files.
    let used = sources.files.iter().skip(1).filter(|f| !f.name.starts_with('<'));
    files.extend(used.map(|f| dir.join(&f.name)));
    files
}

/// Parses and resolves text under a name.
pub fn parse_as(name: &str, text: &str, loader: &dyn Loader) -> Result<Loaded> {
    parse_with(name, text, loader, &[])
}

fn parse_with(name: &str, text: &str, loader: &dyn Loader, lets: &[Let]) -> Result<Loaded> {
    let mut sources = SourceMap::default();
    let file = sources.add(name, text);
    let (graph, diags) = text::load_with(&mut sources, file, loader, lets);
    match graph {
        Some(mut graph) => {
            graph.sources = Arc::new(sources.clone());
            Ok(Loaded { graph, sources, warnings: diags })
        }
        None if diags.iter().any(|d| d.severity == Severity::Error) => {
            Err(Error::new(diags, sources))
        }
        None => Err(Error::bug("the front end made no graph and gave no reason")),
    }
}

/// Data and source files of a graph, relative to a directory.
pub struct Files {
    dir: PathBuf,
    sandbox: Sandbox,
}

impl Files {
    /// Relative to the current directory, and anywhere.
    pub fn here() -> Files {
        Files::in_dir(Path::new(""))
    }

    /// Relative to a directory, and anywhere.
    pub fn in_dir(dir: &Path) -> Files {
        Files { dir: dir.to_path_buf(), sandbox: Sandbox::default() }
    }
}

impl Loader for Files {
    fn tensor(&self, path: &str, key: Option<&str>) -> std::result::Result<Tensor, Refusal> {
        let full = self.dir.join(path);
        // Without a key, an archive must hold one array.
        let name = key.unwrap_or("");
        let file = self.sandbox.open(&full);
        let buf = file.and_then(|f| tfc_runtime::io::tensor_in(&full, f, key, name, None));
        match buf {
            Ok(buf) => Ok(crate::value::tensor_of(&buf)),
            Err(e) if e.code() == ErrorCode::OUTSIDE_SANDBOX => {
                Err(Refusal::Finding(Box::new(diag_of(&e))))
            }
            // The path as the graph has it.
            Err(e) => Err(e.message().replace(&full.display().to_string(), path).into()),
        }
    }

    fn source(&self, path: &str) -> std::result::Result<String, Refusal> {
        let text = source::read_inside(&self.dir.join(path), &self.sandbox);
        text.map_err(|refusal| refusal.in_graph(path))
    }
}
