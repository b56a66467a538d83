//! `tfc fmt`: graph files in their one layout.

use super::{Done, args};
use crate::emit::write_file;
use crate::error::{Error, Result};
use crate::load;
use tfc_ir::diag::{Diag, SourceMap};
use tfc_runtime::files;

pub fn run(args: &args::Fmt) -> Result<Done> {
    let mut out = String::new();
    let mut failures = vec![];
    for path in &args.graphs {
        let (name, text) = load::read(path)?;
        let formatted = format(&name, &text)?;
        let to_stdout = path.as_os_str() == "-";
        if args.check {
            if formatted != text {
                let line = first_difference(&text, &formatted);
                failures.push(
                    Diag::error("E0113", format!("`{name}` is not formatted (line {line})"))
                        .help(format!("run `tfc fmt {name}`")),
                );
            }
        } else if to_stdout {
            out.push_str(&formatted);
        } else if formatted != text {
            // The text was read through a link, if it is one, and goes back the same way.
            write_file(&files::destination(path)?, formatted.as_bytes())?;
        }
    }
    if failures.is_empty() {
        Ok(out.into())
    } else {
        Err(Error::new(failures, SourceMap::default()))
    }
}

fn format(name: &str, text: &str) -> Result<String> {
    let mut sources = SourceMap::default();
    let file = sources.add(name, text);
    tfc_ir::text::fmt(&sources, file).map_err(|diags| Error::new(diags, sources))
}

/// Number of the first line that differs.
fn first_difference(a: &str, b: &str) -> usize {
    let same = a.lines().zip(b.lines()).take_while(|(x, y)| x == y).count();
    same + 1
}
