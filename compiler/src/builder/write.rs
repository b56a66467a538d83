//! The graph under construction as text.

use super::site::Sites;
use super::{EntryDecl, Item, ItemKind, Piece, Site, State};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tfc_ir::diag::Diag;

/// The text, and for each of its lines (from 0) the Rust call that made it.
pub(super) fn text(state: &State) -> (String, Vec<Option<Site>>) {
    let mut out = Writer { text: String::new(), lines: vec![] };
    out.doc(&state.doc, "");
    out.line(format!("graph {}", state.name), None);
    for library in libraries(state) {
        out.line(format!("use {library}"), None);
    }
    for (name, range) in &state.dims {
        match range {
            Some((lo, hi)) => out.line(format!("dim {name}: {lo}..{hi}"), None),
            None => out.line(format!("dim {name}"), None),
        }
    }
    for &var in &state.vars {
        let item = &state.items[var];
        if let (ItemKind::Var { init }, Some(ty)) = (&item.kind, &item.ty) {
            out.line(format!("var {}: {ty} = {init}", item.name), Some(item.site));
        }
    }
    for item in &state.items {
        if let ItemKind::Queue { decl } = &item.kind {
            out.line(format!("queue {}: {decl}", item.name), Some(item.site));
        }
    }
    for function in &state.functions {
        out.line(String::new(), None);
        for line in render(state, &function.text).lines() {
            out.line(line.to_string(), Some(function.site));
        }
    }
    for (i, name) in &models(state) {
        if let Some(text) = call_text(&state.items[*i]) {
            out.line(model(name, text), Some(state.items[*i].site));
        }
    }
    for entry in &state.entries {
        out.line(String::new(), None);
        out.doc(&entry.doc, "");
        let params: Vec<String> = entry.inputs.iter().map(|i| typed(&state.items[*i])).collect();
        let results: Vec<String> = entry
            .outputs
            .iter()
            .map(|(name, i)| match &state.items[*i].ty {
                Some(ty) => format!("{name}: {ty}"),
                None => name.clone(),
            })
            .collect();
        let arrow = if results.is_empty() { "" } else { " -> (" };
        let close = if results.is_empty() { "" } else { ")" };
        out.line(
            format!(
                "{} {}({}){arrow}{}{close} {{",
                if entry.runner { "runner" } else { "entry" },
                entry.name,
                params.join(", "),
                results.join(", ")
            ),
            Some(entry.site),
        );
        for i in needed(state, &roots(entry)) {
            if let Some(statement) = statement(state, i) {
                for line in statement.lines() {
                    out.line(format!("  {line}"), Some(state.items[i].site));
                }
            }
        }
        let results: Vec<&str> =
            entry.outputs.iter().map(|(_, i)| &*state.items[*i].name).collect();
        if !results.is_empty() {
            out.line(format!("  return {}", results.join(", ")), Some(entry.site));
        }
        out.line("}".into(), None);
    }
    (out.text, out.lines)
}

struct Writer {
    text: String,
    lines: Vec<Option<Site>>,
}

impl Writer {
    fn line(&mut self, line: String, site: Option<Site>) {
        let _ = writeln!(self.text, "{line}");
        self.lines.push(site);
    }

    fn doc(&mut self, doc: &str, indent: &str) {
        for line in doc.lines() {
            self.line(format!("{indent}/// {line}"), None);
        }
    }
}

fn typed(item: &Item) -> String {
    match &item.ty {
        Some(ty) => format!("{}: {ty}", item.name),
        None => item.name.clone(),
    }
}

/// Inputs that entries need and do not list.
pub(super) fn missing_inputs(state: &State) -> Vec<(Diag, Sites)> {
    let mut out = vec![];
    for entry in &state.entries {
        for i in needed(state, &roots(entry)) {
            let item = &state.items[i];
            if matches!(item.kind, ItemKind::Carried) {
                let diag = Diag::error("E0123", "a value of a block is used outside it")
                    .help("let the loop or function give it as a result");
                let mut sites = Sites::one(entry.site);
                sites.also.push((item.site, "the block is made here".into()));
                out.push((diag, sites));
                continue;
            }
            if !matches!(item.kind, ItemKind::Input) || entry.inputs.contains(&i) {
                continue;
            }
            let message = format!("`{}` needs `{}`, which it does not list", entry.name, item.name);
            let diag = Diag::error("E0123", message).help("add it to the inputs of the entry");
            let mut sites = Sites::one(entry.site);
            sites.also.push((item.site, format!("`{}` is made here", item.name)));
            out.push((diag, sites));
        }
    }
    out
}

fn roots(entry: &EntryDecl) -> Vec<usize> {
    entry.outputs.iter().map(|(_, i)| *i).chain(entry.updates.iter().copied()).collect()
}

/// Items the roots depend on, in the order they were made.
pub(super) fn needed(state: &State, roots: &[usize]) -> BTreeSet<usize> {
    let mut out = BTreeSet::new();
    let mut todo = roots.to_vec();
    while let Some(i) = todo.pop() {
        if !out.insert(i) {
            continue;
        }
        match &state.items[i].kind {
            ItemKind::Input | ItemKind::Carried | ItemKind::Var { .. } | ItemKind::Queue { .. } => {
            }
            ItemKind::Part { of } => todo.push(*of),
            ItemKind::Call { text } | ItemKind::Many { text, .. } | ItemKind::Effect { text } => {
                todo.extend(operands(text));
            }
        }
    }
    out
}

pub(super) fn operands(text: &[Piece]) -> impl Iterator<Item = usize> {
    text.iter().filter_map(|p| match p {
        Piece::Item(i) => Some(*i),
        Piece::Text(_) | Piece::Fixed(_) | Piece::Model(_) | Piece::Foreign => None,
    })
}

/// Whether a call makes variables of its own: layers do.
pub(super) fn owns_variables(text: &[Piece]) -> bool {
    matches!(text.first(), Some(Piece::Text(t)) if t.starts_with("layer."))
}

pub(super) fn call_text(item: &Item) -> Option<&[Piece]> {
    match &item.kind {
        ItemKind::Call { text } | ItemKind::Many { text, .. } => Some(text),
        _ => None,
    }
}

/// The calls of layers, and the name of the model that each is: the name of its
/// result if that was chosen, else the layer's, numbered. What else is in the graph
/// does not change them, as they are the names of variables in checkpoints.
pub(super) fn models(state: &State) -> BTreeMap<usize, String> {
    let calls: Vec<(usize, &[Piece])> = (0..state.items.len())
        .filter_map(|i| Some((i, call_text(&state.items[i]).filter(|t| owns_variables(t))?)))
        .collect();
    let chosen = |i: usize| {
        let item = match &state.items[i].kind {
            ItemKind::Many { parts, .. } => &state.items[*parts.first()?],
            _ => &state.items[i],
        };
        item.named.then(|| item.name.clone())
    };
    let declared =
        |item: &&Item| matches!(item.kind, ItemKind::Var { .. } | ItemKind::Queue { .. });
    let mut taken: BTreeSet<String> =
        state.items.iter().filter(declared).map(|item| item.name.clone()).collect();
    taken.extend(calls.iter().filter_map(|(i, _)| chosen(*i)));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut out = BTreeMap::new();
    for (i, text) in calls {
        let name = chosen(i).unwrap_or_else(|| {
            let Some(Piece::Text(start)) = text.first() else { return String::new() };
            let layer = start.trim_start_matches("layer.").trim_end_matches('(');
            let count = counts.entry(layer).or_insert(0);
            loop {
                *count += 1;
                let name = if *count == 1 { layer.into() } else { format!("{layer}_{count}") };
                if !taken.contains(&name) {
                    return name;
                }
            }
        });
        out.insert(i, name);
    }
    out
}

/// `model dense_2 = layer.dense(units: 64)`: what is known is given for good.
pub(super) fn model(name: &str, text: &[Piece]) -> String {
    let Some(Piece::Text(layer)) = text.first() else { return String::new() };
    let fixed: Vec<&str> = text
        .iter()
        .filter_map(|p| match p {
            Piece::Fixed(arg) => Some(&**arg),
            _ => None,
        })
        .collect();
    format!("model {name} = {layer}{})", fixed.join(", "))
}

/// What stands on the right of a call's statement.
fn right_side(i: usize, text: &[Piece]) -> Vec<Piece> {
    if !owns_variables(text) {
        return text.to_vec();
    }
    // Operands and computed arguments, without the commas between those left out.
    let mut out = vec![Piece::Model(i), Piece::Text("(".into())];
    let mut named = None;
    let mut first = true;
    for piece in text.iter().skip(1) {
        match piece {
            Piece::Text(t) if t == ", " || t == ")" => {}
            Piece::Text(t) if t.ends_with(": ") => named = Some(piece.clone()),
            Piece::Fixed(_) => {}
            piece => {
                out.extend((!first).then(|| Piece::Text(", ".into())));
                out.extend(named.take());
                out.push(piece.clone());
                first = false;
            }
        }
    }
    out.push(Piece::Text(")".into()));
    out
}

/// The statement that makes an item, if it takes one.
pub(super) fn statement_pieces(state: &State, i: usize) -> Option<Vec<Piece>> {
    let item = &state.items[i];
    let (left, right) = match &item.kind {
        ItemKind::Input
        | ItemKind::Carried
        | ItemKind::Var { .. }
        | ItemKind::Queue { .. }
        | ItemKind::Part { .. } => {
            return None;
        }
        ItemKind::Call { text } => (item.name.clone(), right_side(i, text)),
        ItemKind::Many { text, parts } => {
            let names: Vec<&str> = parts.iter().map(|p| &*state.items[*p].name).collect();
            let (open, close) = if names.len() == 1 { ("", "") } else { ("(", ")") };
            (format!("{open}{}{close}", names.join(", ")), right_side(i, text))
        }
        ItemKind::Effect { text } => return Some(text.clone()),
    };
    Some(std::iter::once(Piece::Text(format!("{left} = "))).chain(right).collect())
}

fn statement(state: &State, i: usize) -> Option<String> {
    statement_pieces(state, i).map(|pieces| render(state, &pieces))
}

pub(super) fn render(state: &State, text: &[Piece]) -> String {
    let layers = text.iter().any(|p| matches!(p, Piece::Model(_)));
    let models = if layers { models(state) } else { BTreeMap::new() };
    text.iter()
        .map(|p| match p {
            Piece::Model(i) => models.get(i).map_or("_", String::as_str),
            Piece::Text(t) | Piece::Fixed(t) => t.as_str(),
            Piece::Foreign => "_",
            Piece::Item(i) => &state.items[*i].name,
        })
        .collect()
}

/// Libraries whose functions the graph calls.
fn libraries(state: &State) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    state.functions.iter().for_each(|f| libraries_of(&f.text, &mut out));
    for item in &state.items {
        match &item.kind {
            ItemKind::Var { init } => used(init, &mut out),
            ItemKind::Call { text } | ItemKind::Many { text, .. } | ItemKind::Effect { text } => {
                libraries_of(text, &mut out);
            }
            ItemKind::Input
            | ItemKind::Carried
            | ItemKind::Queue { .. }
            | ItemKind::Part { .. } => {}
        }
    }
    out
}

pub(super) fn libraries_of(text: &[Piece], out: &mut BTreeSet<String>) {
    for piece in text {
        if let Piece::Text(text) | Piece::Fixed(text) = piece {
            used(text, out);
        }
    }
}

/// Adds the `lib` of every `lib.name(` in the text, strings left out.
pub(super) fn used(text: &str, out: &mut BTreeSet<String>) {
    for part in text.split('"').step_by(2) {
        for (dot, _) in part.match_indices('.') {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let start = part[..dot].rfind(|c| !is_word(c)).map_or(0, |i| i + 1);
            let name = &part[start..dot];
            let follows = part[dot + 1..].chars().next();
            let called = follows.is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
            if called && super::shape::is_name(name) {
                out.insert(name.to_string());
            }
        }
    }
}
