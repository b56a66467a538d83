//! The reference of the shipped libraries, from their own doc comments.

use super::{LIBRARIES, ast, tree};
use crate::diag::SourceMap;
use std::fmt::Write;

/// A function of a library, for readers.
pub struct Function {
    pub library: &'static str,
    /// With the library: `nn.dense`.
    pub name: String,
    /// As declared, on one line: `nn.dense(x, w, b)`.
    pub signature: String,
    pub doc: String,
}

/// Every function of the libraries, in the order of their text. Names that start
/// with `_` are the libraries' own business.
pub fn functions() -> Vec<Function> {
    let mut out = vec![];
    for (library, text) in LIBRARIES {
        for item in parsed(library, text).items {
            let ast::Item::Func(func) = item else { continue };
            if func.name.text.starts_with('_') {
                continue;
            }
            let head = &text[func.name.span.lo as usize..func.body.span.lo as usize];
            let words: Vec<&str> = head.split_whitespace().collect();
            let signature = words.join(" ").replace("( ", "(").replace(" )", ")");
            out.push(Function {
                library,
                name: format!("{library}.{}", func.name.text),
                signature: format!("{library}.{signature}"),
                doc: func.doc,
            });
        }
    }
    out
}

/// What a library says about itself.
pub fn about(library: &str) -> String {
    super::lib_source(library).map(|text| parsed(library, text).doc).unwrap_or_default()
}

/// All libraries as markdown: `docs/library.md`.
pub fn reference() -> String {
    let mut out = String::from(
        "# The library\n\nGenerated from the doc comments of the libraries; do not edit.\n\nThe \
         libraries are written in the graph language and shipped inside the compiler: `use nn` \
         makes `nn.softmax(x)` available. `tfc ops nn` lists a library, `tfc ops nn.softmax` \
         describes a function. A parameter with `=` may be left out. [Your own](your-own.md) \
         layers, losses and optimizers are written the same way.\n",
    );
    let functions = functions();
    for (library, _) in LIBRARIES {
        let _ = write!(out, "\n## `{library}`\n\n{}\n", paragraph(&about(library)));
        for func in functions.iter().filter(|f| f.library == *library) {
            let _ = write!(out, "\n### `{}`\n\n{}\n", func.signature, paragraph(&func.doc));
        }
    }
    out
}

/// Lines of a comment as one paragraph; `[name]` in it is just a name.
pub fn paragraph(doc: &str) -> String {
    doc.lines().collect::<Vec<_>>().join(" ").replace("[`", "`").replace("`]", "`")
}

fn parsed(library: &str, text: &str) -> ast::File {
    let mut sources = SourceMap::default();
    let file = sources.add(format!("<{library}>"), text);
    tree(&sources, file, &mut vec![])
}
