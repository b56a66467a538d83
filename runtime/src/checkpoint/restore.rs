//! Finding a checkpoint that can be used, and taking variables from files.

use super::{Manifest, Source, list, verify};
use crate::error::{Error, Result, closest, list as names};
use crate::hash::hex;
use crate::model::Model;
use crate::tensor::{TensorBuf, type_text};
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
            m.paths(path).first().filter(|_| m.files.len() == 1).map_or(path, |p| p).display()
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

/// What files have for the variables of a program, to be taken when it is known where
/// they go.
#[derive(Debug)]
pub struct Fit {
    source: Source,
    pub matched: Matched,
    /// Variables and the tensors that fit them.
    pub places: Vec<(usize, usize)>,
}

/// Overwrites every variable with the file's. Nothing is changed unless
/// everything fits. Returns what else the file holds.
pub fn load_exact(model: &Model, path: &Path) -> Result<Vec<String>> {
    check_whole(path)?;
    load_some(model, path, |_| true)
}

/// What is a checkpoint, or lies beside its manifest, must be what that says.
pub fn check_whole(path: &Path) -> Result<()> {
    if let Some(manifest) = super::manifest_of(path) {
        verify(&manifest)?;
    } else if path.extension().is_some_and(|e| e == super::MANIFEST) {
        verify(path)?;
    }
    Ok(())
}

/// As [`load_exact`], for calls of one entry that changes nothing: the variables
/// it does not read are neither read from the file nor missed there.
pub fn load_for(model: &Model, path: &Path, entry: usize) -> Result<Vec<String>> {
    check_whole(path)?;
    let reads = model.reads(entry);
    load_some(model, path, |var| reads.contains(&(var as u32)))
}

fn load_some(model: &Model, path: &Path, needed: impl Fn(usize) -> bool) -> Result<Vec<String>> {
    let mut fit = fit_exactly(model.plan(), path, needed)?;
    fit.take(model, |_| true)?;
    Ok(fit.matched.unused)
}

/// What a file has for the variables that are needed: all of them, or it is an error.
pub fn fit_exactly(plan: &Plan, path: &Path, needed: impl Fn(usize) -> bool) -> Result<Fit> {
    let mut fit = open(plan, path, &[])?;
    let of_name = |name: &String| {
        let at = plan.vars.iter().position(|v| v.name == *name);
        at.is_some_and(&needed)
    };
    fit.places.retain(|(var, _)| needed(*var));
    fit.matched.missing.retain(of_name);
    fit.matched.different.retain(|(name, ..)| of_name(name));
    if let Some((name, want, found)) = fit.matched.different.first() {
        let what =
            format!("variable `{name}` is {want}, but `{}` has {found} for it", path.display());
        return Err(Error::data("E0604", what)
            .help("use the state of this graph, or `--restore` to take only what fits"));
    }
    if !fit.matched.missing.is_empty() {
        let missing = names(fit.matched.missing.iter().map(String::as_str));
        let e = Error::data("E0603", format!("`{}` lacks variable {missing}", path.display()))
            .help("use the state of this graph, or `--restore` to begin with what the file has");
        let graph = fit.source.metadata.iter().find(|(k, _)| k == "graph");
        return Err(match graph {
            Some((_, g)) if *g != plan.name => {
                e.note(format!("it was written by graph `{g}`, this is `{}`", plan.name))
            }
            _ => e,
        });
    }
    Ok(fit)
}

/// Overwrites the variables the file has under their names (or under what
/// `renames` makes of them) and with their types; others stay as they are. A
/// file that has none is an error. Axes of size one do not matter.
pub fn load_matching(model: &Model, path: &Path, renames: &[Rename]) -> Result<Matched> {
    load_needed(model, path, renames, None)
}

/// As [`load_matching`]; everything that an entry reads must be there.
pub fn load_needed(
    model: &Model,
    path: &Path,
    renames: &[Rename],
    entry: Option<usize>,
) -> Result<Matched> {
    let mut fit = fit_some(model.plan(), path, renames, entry.map(|e| (e, model.reads(e))))?;
    fit.take(model, |_| true)?;
    Ok(fit.matched)
}

/// What a file has for the variables of a program, under the names that `renames` makes
/// of theirs. All that an entry reads must be there, if one is given.
pub fn fit_some(
    plan: &Plan,
    path: &Path,
    renames: &[Rename],
    entry: Option<(usize, &[u32])>,
) -> Result<Fit> {
    check_whole(path)?;
    for (new, old) in renames {
        if !plan.vars.iter().any(|v| renamed(&v.name, new).is_some()) {
            let e = Error::usage("E0592", format!("`--restore-map {new}={old}` renames nothing"))
                .note(format!("no variable is called `{new}` or `{new}.` and something"));
            let known = plan.vars.iter().map(|v| v.name.as_str());
            let parts = known.clone().filter_map(|n| n.split('.').next());
            return Err(match closest(new, known.chain(parts)) {
                Some(near) => e.help(format!("did you mean `{near}`?")),
                None => e.help("`--signature` lists the variables"),
            });
        }
    }
    let fit = open(plan, path, renames)?;
    let matched = &fit.matched;
    let shown = path.display();
    if fit.places.is_empty() {
        let mut e = Error::data(
            "E0584",
            format!("`{shown}` has nothing for the variables of `{}`", plan.name),
        );
        for line in matched.report(path).into_iter().skip(1) {
            e = e.note(line);
        }
        return Err(e.help("`--restore-map NEW=OLD` looks for `NEW..` under the name `OLD..`"));
    }
    if let Some((entry, reads)) = entry {
        let number = |name: &String| plan.vars.iter().position(|v| v.name == *name);
        let absent = |name: &String| number(name).is_some_and(|v| reads.contains(&(v as u32)));
        let lacking = matched.missing.iter().chain(matched.different.iter().map(|d| &d.0));
        let lacking: Vec<&str> = lacking.filter(|n| absent(n)).map(String::as_str).collect();
        if !lacking.is_empty() {
            let name = &plan.entries[entry].name;
            let text = format!("`{shown}` has only a part of the variables that `{name}` uses");
            let mut e = Error::data("E0593", text).note(format!("it lacks {}", names(lacking)));
            for (name, want, found) in &matched.different {
                e = e.note(format!("`{name}` is {want}, but {found} in the file"));
            }
            if !matched.unused.is_empty() {
                let unused = names(matched.unused.iter().map(String::as_str));
                e = e.note(format!("the file also has {unused}"));
            }
            return Err(e.help(
                "`--restore-map NEW=OLD` maps names; `--partial` leaves the rest as \
                 initialised",
            ));
        }
    }
    Ok(fit)
}

fn open(plan: &Plan, path: &Path, renames: &[Rename]) -> Result<Fit> {
    let source = Source::open(path)?;
    let mut matched = Matched::default();
    let mut places = vec![];
    let mut used = vec![false; source.tensors.len()];
    for (i, v) in plan.vars.iter().enumerate() {
        let wanted = stored_name(v, renames);
        let Some(at) = source.tensors.iter().position(|t| t.name == wanted) else {
            matched.missing.push(v.name.clone());
            continue;
        };
        used[at] = true;
        let t = &source.tensors[at];
        // A bias of PyTorch is [8] where it is [8, 1, 1] here.
        let theirs = t.shape.iter().filter(|d| **d != 1).map(|d| i64::try_from(*d).ok());
        let ours = v.shape.iter().filter(|d| **d != 1).map(|d| Some(*d));
        let same_shape = theirs.eq(ours);
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
    let unused = source.tensors.iter().zip(&used).filter(|(_, used)| !**used);
    matched.unused = unused.map(|(t, _)| t.name.clone()).collect();
    Ok(Fit { source, matched, places })
}

/// What the file calls a variable: the longest rename that fits decides.
fn stored_name(v: &VarInfo, renames: &[Rename]) -> String {
    let fits = renames.iter().filter_map(|(new, old)| Some((new, old, renamed(&v.name, new)?)));
    match fits.max_by_key(|(new, ..)| new.len()) {
        Some((_, old, rest)) => format!("{old}{rest}"),
        None => v.name.clone(),
    }
}

/// The rest of a name that begins with `new`, which ends where a part of the name
/// does: `conv` is the beginning of `conv.w`, not of `conv_2.w`.
fn renamed<'a>(name: &'a str, new: &str) -> Option<&'a str> {
    let rest = name.strip_prefix(new)?;
    let ends = new.is_empty() || new.ends_with(['.', '/']);
    (ends || rest.is_empty() || rest.starts_with(['.', '/'])).then_some(rest)
}

impl Fit {
    /// Overwrites those of the variables that are `wanted`. Everything is read first: a
    /// bad file changes nothing, and no call sees some variables of the file and some of
    /// before.
    pub fn take(&mut self, model: &Model, wanted: impl Fn(usize) -> bool) -> Result<()> {
        let mut values = vec![];
        for (var, at) in self.places.iter().filter(|(var, _)| wanted(*var)) {
            // Only tensors of the variables' own types have a place.
            let Some(dtype) = self.source.tensors.get(*at).and_then(|t| t.dtype) else {
                return Err(Error::bug("a place without a tensor"));
            };
            let shape = model.plan().vars[*var].shape.iter();
            let shape: Vec<usize> = shape.map(|d| usize::try_from(*d).unwrap_or(0)).collect();
            let mut value = TensorBuf::zeros(dtype, &shape)?;
            self.source.read_into(*at, 0, value.bytes_mut())?;
            values.push((*var, value));
        }
        model.write_vars(values)?;
        model.state.accept_infinities(&model.plan().vars, wanted)
    }

    /// Reads bytes of a variable, from byte `from` on; false if the file does not have it.
    pub fn read(&mut self, var: usize, from: usize, out: &mut [u8]) -> Result<bool> {
        let Some((_, at)) = self.places.iter().find(|(v, _)| *v == var) else {
            return Ok(false);
        };
        self.source.read_into(*at, from, out).map(|()| true)
    }
}
