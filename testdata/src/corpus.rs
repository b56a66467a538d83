//! Finding the files of the corpus.

use crate::directive::Directive;
use std::fs;
use std::path::{Path, PathBuf};

/// One `.graph` file.
#[derive(Clone, Debug)]
pub struct Case {
    pub path: PathBuf,
    /// File name without its ending.
    pub name: String,
    pub text: String,
}

impl Case {
    pub fn directive(&self) -> Directive {
        Directive::parse(&self.text).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()))
    }
}

/// The root of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("testdata is in the workspace").to_path_buf()
}

/// The cases of one directory of the corpus (such as `ops`), sorted by name.
pub fn cases(dir: &str) -> Vec<Case> {
    graphs(&root().join("testdata").join(dir))
}

/// The graphs of `examples/`.
pub fn examples() -> Vec<Case> {
    graphs(&root().join("examples"))
}

/// Every graph of the corpus and the examples that is meant to compile.
pub fn valid() -> Vec<Case> {
    let mut out = vec![];
    for dir in directories() {
        if dir != "error" {
            out.extend(cases(&dir));
        }
    }
    out.extend(examples());
    out
}

/// Directories of the corpus that hold cases.
pub fn directories() -> Vec<String> {
    let mut out = vec![];
    for entry in fs::read_dir(root().join("testdata")).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_corpus = entry.path().is_dir() && !["src", "tests", "snapshots"].contains(&&*name);
        if is_corpus && !graphs(&entry.path()).is_empty() {
            out.push(name);
        }
    }
    out.sort();
    out
}

fn graphs(dir: &Path) -> Vec<Case> {
    let mut out = vec![];
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|e| e == "graph") {
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            out.push(Case { path, name, text });
        }
    }
    out.sort_by(|a, b| a.path.cmp(&b.path));
    out
}
