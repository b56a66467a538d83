//! Graph text from files, standard input or strings, to a resolved graph.

use crate::error::{Error, Result};
use crate::source;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tfc_ir::diag::{Diag, Severity, SourceMap};
use tfc_ir::text::{self, Loader};
use tfc_ir::{Graph, Tensor};

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
    load_path(path.as_ref()).map(|loaded| loaded.graph)
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
    load_path_with(path.as_ref(), &lets).map(|loaded| loaded.graph)
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

/// Reads, parses and resolves; `-` is standard input.
pub fn load_path(path: &Path) -> Result<Loaded> {
    load_path_with(path, &[])
}

/// [`load_path`], with other values for some `let`s.
pub fn load_path_with(path: &Path, lets: &[Let]) -> Result<Loaded> {
    let (name, text) = read(path)?;
    let files = match path.parent() {
        Some(dir) if path.as_os_str() != "-" => Files::in_dir(dir),
        _ => Files::here(),
    };
    parse_with(&name, &text, &files, lets)
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

/// The graph read last, for the report of a crash.
static INPUT: Mutex<Option<(String, String)>> = Mutex::new(None);

fn remember(name: &str, text: &str) {
    if let Ok(mut input) = INPUT.lock() {
        *input = Some((name.to_string(), text.to_string()));
    }
}

/// Name and text of the graph read last. None while it is being changed.
pub fn last_input() -> Option<(String, String)> {
    INPUT.try_lock().ok()?.clone()
}

/// Parses and resolves text under a name.
pub fn parse_as(name: &str, text: &str, loader: &dyn Loader) -> Result<Loaded> {
    parse_with(name, text, loader, &[])
}

fn parse_with(name: &str, text: &str, loader: &dyn Loader, lets: &[Let]) -> Result<Loaded> {
    remember(name, text);
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
}

impl Files {
    /// Relative to the current directory.
    pub fn here() -> Files {
        Files { dir: PathBuf::new() }
    }

    /// Relative to a directory.
    pub fn in_dir(dir: &Path) -> Files {
        Files { dir: dir.to_path_buf() }
    }
}

impl Loader for Files {
    fn tensor(&self, path: &str, key: Option<&str>) -> std::result::Result<Tensor, String> {
        let full = self.dir.join(path);
        // Without a key, an archive must hold one array.
        let buf = tfc_runtime::io::tensor_file(&full, key, key.unwrap_or(""), None)
            // The path as the graph has it.
            .map_err(|e| e.message().replace(&full.display().to_string(), path))?;
        Ok(crate::value::tensor_of(&buf))
    }

    fn source(&self, path: &str) -> std::result::Result<String, String> {
        source::read_file(&self.dir.join(path)).map_err(|refusal| refusal.in_words(path))
    }
}
