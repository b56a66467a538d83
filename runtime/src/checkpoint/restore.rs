//! Finding a checkpoint that can be used, and taking variables from files.

use super::{Manifest, list, verify};
use crate::error::{Error, Result, list as names};
use crate::hash::hex;
use crate::io::safetensors::Archive;
use crate::io::{Fault, Format, cannot_read};
use crate::model::Model;
use crate::tensor::{TensorBuf, type_text};
use std::fs::File;
use std::path::{Path, PathBuf};
use tfc_abi::plan::{Plan, VarInfo};

/// The newest checkpoint of a directory that can be used.
#[derive(Debug, Default)]
pub struct Newest {
    pub found: Option<(Manifest, PathBuf)>,
    /// What is wrong with newer ones.
    pub skipped: Vec<Error>,
    /// Saves that were not finished.
    pub unfinished: Vec<PathBuf>,
}

/// Looks for a checkpoint of this graph. None at all is no error; some but none
/// that can be used is one.
pub fn newest(dir: &Path, plan: &Plan) -> Result<Newest> {
    let listing = list(dir)?;
    let mut out = Newest {
        unfinished: listing.unfinished.into_iter().map(|(_, p)| p).collect(),
        ..Newest::default()
    };
    for (_, path) in listing.checkpoints.iter().rev() {
        match verify(path).and_then(|m| same_graph(&m, path, plan).map(|()| m)) {
            Ok(manifest) => {
                out.found = Some((manifest, path.clone()));
                return Ok(out);
            }
            Err(e) => out.skipped.push(e),
        }
    }
    if out.skipped.is_empty() {
        return Ok(out);
    }
    let mut e = Error::data(
        "E0582",
        format!("none of the {} checkpoints in `{}` can be used", out.skipped.len(), dir.display()),
    );
    for skipped in &out.skipped {
        e = e.note(skipped.message());
        for note in skipped.notes() {
            e = e.note(note.clone());
        }
    }
    let other_graph = out.skipped.iter().find_map(Error::help_text);
    Err(e.help(other_graph.unwrap_or("to start again, choose another directory")))
}

fn same_graph(m: &Manifest, path: &Path, plan: &Plan) -> Result<()> {
    let hash = hex(&plan.graph_hash);
    if m.graph_hash == hash {
        return Ok(());
    }
    let name = path.with_extension("");
    let short = |h: &str| h.get(..12).unwrap_or(h).to_owned();
    Err(Error::data("E0581", format!("checkpoint `{}` is of another graph", name.display()))
        .note(format!(
            "it was saved by graph `{}` ({}), this is `{}` ({})",
            m.graph,
            short(&m.graph_hash),
            plan.name,
            short(&hash)
        ))
        .help(format!(
            "`--restore {}` takes the variables that fit, and starts at step 0",
            m.data(path).display()
        )))
}

/// Variables whose names start with the first are stored under the second.
pub type Rename = (String, String);

/// What a file has for the variables of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matched {
    /// Variables taken.
    pub taken: Vec<String>,
    /// Variables the file has not.
    pub missing: Vec<String>,
    /// Variables of another type in the file, with both types.
    pub different: Vec<(String, String, String)>,
    /// Tensors of the file that are no variables.
    pub unused: Vec<String>,
}

impl Matched {
    /// A sentence for each kind of finding.
    pub fn report(&self, path: &Path) -> Vec<String> {
        let total = self.taken.len() + self.missing.len() + self.different.len();
        let mut out = vec![format!(
            "restored {} of {total} variables from `{}`",
            self.taken.len(),
            path.display()
        )];
        let list = |items: &[String]| names(items.iter().map(String::as_str));
        if !self.missing.is_empty() {
            out.push(format!("not in the file, so as initialised: {}", list(&self.missing)));
        }
        for (name, want, found) in &self.different {
            out.push(format!("`{name}` is {want}, but {found} in the file: as initialised"));
        }
        if !self.unused.is_empty() {
            out.push(format!("in the file but not in the graph: {}", list(&self.unused)));
        }
        out
    }
}

/// Overwrites every variable with the file's. Nothing is changed unless
/// everything fits. Returns what else the file holds.
pub fn load_exact(model: &Model, path: &Path) -> Result<Vec<String>> {
    load_some(model, path, |_| true)
}

/// As [`load_exact`], for calls of one entry that changes nothing: the variables
/// it does not read are neither read from the file nor missed there.
pub fn load_for(model: &Model, path: &Path, entry: usize) -> Result<Vec<String>> {
    let reads = model.reads(entry);
    load_some(model, path, |var| reads.contains(&(var as u32)))
}

fn load_some(model: &Model, path: &Path, needed: impl Fn(usize) -> bool) -> Result<Vec<String>> {
    let (mut archive, mut matched, mut places) = open(model, path, &[])?;
    let of_name = |name: &String| model.var(name).is_some_and(&needed);
    places.retain(|(var, _)| needed(*var));
    matched.missing.retain(of_name);
    matched.different.retain(|(name, ..)| of_name(name));
    if let Some((name, want, found)) = matched.different.first() {
        let what =
            format!("variable `{name}` is {want}, but `{}` has {found} for it", path.display());
        return Err(Error::data("E0604", what)
            .help("use the state of this graph, or `--restore` to take only what fits"));
    }
    if !matched.missing.is_empty() {
        let missing = names(matched.missing.iter().map(String::as_str));
        let e = Error::data("E0603", format!("`{}` lacks variable {missing}", path.display()))
            .help("use the state of this graph, or `--restore` to begin with what the file has");
        let graph = archive.metadata.iter().find(|(k, _)| k == "graph");
        return Err(match graph {
            Some((_, g)) if *g != model.plan().name => {
                e.note(format!("it was written by graph `{g}`, this is `{}`", model.plan().name))
            }
            _ => e,
        });
    }
    take(model, path, &mut archive, &places)?;
    Ok(matched.unused)
}

/// Overwrites the variables the file has under their names (or under what
/// `renames` makes of them) and with their types; others stay as they are. A
/// file that has none is an error.
pub fn load_matching(model: &Model, path: &Path, renames: &[Rename]) -> Result<Matched> {
    let (mut archive, matched, places) = open(model, path, renames)?;
    if places.is_empty() {
        let mut e = Error::data(
            "E0584",
            format!(
                "`{}` has nothing for the variables of `{}`",
                path.display(),
                model.plan().name
            ),
        );
        for line in matched.report(path).into_iter().skip(1) {
            e = e.note(line);
        }
        return Err(e.help("`--restore-map NEW=OLD` looks for `NEW..` under the name `OLD..`"));
    }
    take(model, path, &mut archive, &places)?;
    Ok(matched)
}

/// Variables and the tensors that fit them.
type Places = Vec<(usize, usize)>;

fn open(model: &Model, path: &Path, renames: &[Rename]) -> Result<(Archive, Matched, Places)> {
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    let archive = Archive::open(file).map_err(|f| f.about(path, Format::Safetensors))?;
    let mut matched = Matched::default();
    let mut places = vec![];
    let mut used = vec![false; archive.tensors.len()];
    for (i, v) in model.plan().vars.iter().enumerate() {
        let wanted = stored_name(v, renames);
        let Some(at) = archive.tensors.iter().position(|t| t.name == wanted) else {
            matched.missing.push(v.name.clone());
            continue;
        };
        used[at] = true;
        let t = &archive.tensors[at];
        let same_shape = t.shape.len() == v.shape.len()
            && t.shape.iter().zip(&v.shape).all(|(a, b)| i64::try_from(*a) == Ok(*b));
        if t.dtype == Some(v.dtype) && same_shape {
            matched.taken.push(v.name.clone());
            places.push((i, at));
            continue;
        }
        let shape: Vec<usize> = v.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0)).collect();
        let found = match t.dtype {
            Some(d) => type_text(d, &t.shape),
            None => format!("{}{:?}", t.dtype_text, t.shape),
        };
        matched.different.push((v.name.clone(), type_text(v.dtype, &shape), found));
    }
    let unused = archive.tensors.iter().zip(&used).filter(|(_, used)| !**used);
    matched.unused = unused.map(|(t, _)| t.name.clone()).collect();
    Ok((archive, matched, places))
}

fn stored_name(v: &VarInfo, renames: &[Rename]) -> String {
    for (new, old) in renames {
        if let Some(rest) = v.name.strip_prefix(new.as_str()) {
            return format!("{old}{rest}");
        }
    }
    v.name.clone()
}

/// Reads everything first: a bad file changes nothing, and no call sees some
/// variables of the file and some of before.
fn take(model: &Model, path: &Path, archive: &mut Archive, places: &Places) -> Result<()> {
    let mut values = vec![];
    for (var, at) in places {
        let about = |f: Fault| f.about(path, Format::Safetensors);
        // Only tensors of the variables' own types have a place.
        let Some((dtype, shape)) =
            archive.tensors.get(*at).and_then(|t| Some((t.dtype?, t.shape.clone())))
        else {
            return Err(Error::bug("a place without a tensor"));
        };
        let mut value = TensorBuf::zeros(dtype, &shape)?;
        archive.read_into(*at, value.bytes_mut()).map_err(about)?;
        values.push((*var, value));
    }
    model.write_vars(values)
}
