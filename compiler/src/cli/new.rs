//! `tfc new`: a project to start from.
//!
//! A project is one graph that makes its own data, and a README whose commands
//! train it in under a minute. The templates are graphs too; `NAME` in them is
//! replaced by the project's name.

use super::args;
use super::args::Template;
use crate::error::Result;
use crate::error::reason;
use std::fs;
use std::path::Path;
use tfc_ir::diag::Diag;

/// What a template is made of.
struct Project {
    graph: &'static str,
    summary: &'static str,
    epochs: &'static str,
    /// A feed for `predict`.
    example: &'static str,
    /// The `let` to play with first.
    size: &'static str,
}

const README: &str = include_str!("../../templates/README.md");

fn project(template: Template) -> Project {
    match template {
        Template::Mlp => Project {
            graph: include_str!("../../templates/mlp.graph"),
            summary: "A network of dense layers that tells which points of the plane lie inside a ring.",
            epochs: "25",
            example: "[[0.0, 1.2], [0.1, 0.1]]",
            size: "UNITS",
        },
        Template::Convnet => Project {
            graph: include_str!("../../templates/convnet.graph"),
            summary: "A convolutional network that tells lying from standing bars in noisy pictures.",
            epochs: "5",
            example: "test_x.npy",
            size: "FILTERS",
        },
        Template::Rnn => Project {
            graph: include_str!("../../templates/rnn.graph"),
            summary: "A recurrent network (LSTM) that remembers the symbol a sequence began with.",
            epochs: "10",
            example: "[[3, 0, 1, 2, 0, 0, 1, 1, 2, 0, 1, 2]]",
            size: "UNITS",
        },
        Template::Transformer => Project {
            graph: include_str!("../../templates/transformer.graph"),
            summary: "A small transformer that learns how sequences of digits go on.",
            epochs: "10",
            example: "[[3, 6, 9, 2, 5, 8, 1, 4]]",
            size: "WIDTH",
        },
    }
}

pub fn run(args: &args::New) -> Result<String> {
    let name = graph_name(&args.path)?;
    let dir = &args.path;
    refuse_what_exists(dir)?;
    let project = project(args.template);
    let file = format!("{name}.graph");
    let readme = README
        .replace("SUMMARY", project.summary)
        .replace("EPOCHS", project.epochs)
        .replace("EXAMPLE", project.example)
        .replace("LET", project.size)
        .replace("NAME", &name);
    let write = |file: &str, text: &str| {
        let path = dir.join(file);
        fs::write(&path, text).map_err(|e| {
            Diag::error("E0803", format!("cannot write `{}`: {}", path.display(), reason(&e)))
        })
    };
    fs::create_dir_all(dir).map_err(|e| {
        Diag::error("E0803", format!("cannot make `{}`: {}", dir.display(), reason(&e)))
    })?;
    write(&file, &project.graph.replace("NAME", &name))?;
    write("README.md", &readme)?;
    Ok(format!(
        "made `{}` with {file} and README.md\n\nNext:\n  cd {}\n  tfc run {file} data --feed seed=1 --out x=x.npy --out y=y.npy\n  and what README.md says\n",
        dir.display(),
        dir.display()
    ))
}

/// The name of the directory as a graph's name.
fn graph_name(path: &Path) -> Result<String> {
    let last = path.file_name().map(|n| n.to_string_lossy().replace('-', "_")).unwrap_or_default();
    let starts = last.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = last.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if starts && rest {
        return Ok(last);
    }
    let shown = path.display();
    Err(Diag::error("E0914", format!("`{shown}` cannot be the name of a project"))
        .note("a name is made of letters, digits, `-` and `_`, and does not start with a digit")
        .help("try `tfc new my-model`")
        .into())
}

fn refuse_what_exists(dir: &Path) -> Result<()> {
    let taken = match fs::read_dir(dir) {
        // An empty directory is as good as none.
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => dir.exists(),
    };
    if !taken {
        return Ok(());
    }
    let shown = dir.display();
    Err(Diag::error("E0903", format!("`{shown}` exists, and `tfc new` overwrites nothing"))
        .help("choose another name, or remove it first")
        .into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_projects() {
        assert_eq!(graph_name(Path::new("a/my-net")).unwrap(), "my_net");
        for bad in ["", "..", "3d", "a b", "net.graph"] {
            assert!(graph_name(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
