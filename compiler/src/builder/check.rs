//! Checking what a builder was told: one call alone, then the whole.

use super::write::{call_text, libraries_of, model, models, operands, owns_variables, render};
use super::{GraphBuilder, ItemKind, Piece, Site, State, site};
use crate::error::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::ops::Range;
use tfc_ir::diag::{Diag, Severity, SourceMap, Span};
use tfc_ir::text::{self, Loader, Refusal};
use tfc_ir::{Graph, Tensor, TensorType};

impl GraphBuilder {
    /// The result types of a call, by asking the front end about a graph of just
    /// this call. `None` when an operand is wrong already, or when this call is,
    /// which is then reported at `site`.
    pub(super) fn check(
        &self,
        call: &[Piece],
        results: usize,
        site: Site,
    ) -> Option<Vec<TensorType>> {
        if call.iter().any(|p| matches!(p, Piece::Foreign)) {
            return None;
        }
        let mut state = self.state.borrow_mut();
        if operands(call).any(|i| state.items.get(i).is_none_or(|item| item.ty.is_none())) {
            return None;
        }
        let probe = Probe::new(&state, call, results);
        let answer = match state.checked.get(&probe.text) {
            Some(answer) => answer.clone(),
            None => {
                let answer = probe.ask(&Given(&state.data));
                state.checked.insert(probe.text.clone(), answer.clone());
                answer
            }
        };
        match answer {
            Ok(types) => Some(types),
            Err(diags) => {
                for diag in diags {
                    let sites = probe.sites(&state, &diag, site);
                    state.errors.push((diag, sites));
                }
                None
            }
        }
    }
}

/// A graph of one call on parameters of the operands' types.
struct Probe {
    text: String,
    /// Where each operand stands in the text: in the call, then declared.
    operands: Vec<(Range<usize>, usize)>,
}

impl Probe {
    fn new(state: &State, call: &[Piece], results: usize) -> Probe {
        let mut text = String::from("graph probe\n");
        let mut libraries = BTreeSet::new();
        libraries_of(call, &mut libraries);
        state.functions.iter().for_each(|f| libraries_of(&f.text, &mut libraries));
        for library in libraries {
            let _ = writeln!(text, "use {library}");
        }
        let shared = state.functions.iter().flat_map(|f| f.vars.iter().copied());
        let used: BTreeSet<usize> = operands(call).chain(shared).collect();
        let mut dims = BTreeSet::new();
        for ty in used.iter().filter_map(|i| state.items[*i].ty.as_ref()) {
            dims.extend(ty.shape.iter().flat_map(|d| d.syms()));
        }
        // Attributes may name dims no operand has.
        for (name, _) in &state.dims {
            let named = call
                .iter()
                .any(|p| matches!(p, Piece::Text(t) | Piece::Fixed(t) if mentions(t, name)));
            if named {
                dims.insert(name.as_str().into());
            }
        }
        for dim in &dims {
            let range = state.dims.iter().find(|(n, _)| **n == **dim).and_then(|(_, r)| *r);
            let _ = match range {
                Some((lo, hi)) => writeln!(text, "dim {dim}: {lo}..{hi}"),
                None => writeln!(text, "dim {dim}"),
            };
        }
        let mut spots = vec![];
        // Every dim is bound by a parameter of its own, so that no operand's
        // shape needs to.
        let mut params: Vec<String> =
            dims.iter().map(|d| format!("size_of_{d}: f32[{d}]")).collect();
        for &i in &used {
            let item = &state.items[i];
            let Some(ty) = &item.ty else { continue };
            if matches!(item.kind, ItemKind::Var { .. }) {
                let at = text.len() + "var ".len();
                spots.push((at..at + item.name.len(), i));
                let _ = writeln!(text, "var {}: {ty} = zeros", item.name);
            } else {
                params.push(format!("{}: {ty}", item.name));
            }
        }
        for function in &state.functions {
            let _ = writeln!(text, "{}", render(state, &function.text));
        }
        // Layers called in a block are models of the whole graph.
        let all = models(state);
        for (i, name) in &all {
            let functions = state.functions.iter().flat_map(|f| &f.text);
            if call.iter().chain(functions).any(|p| matches!(p, Piece::Model(m) if m == i))
                && let Some(layer) = call_text(&state.items[*i])
            {
                let _ = writeln!(text, "{}", model(name, layer));
            }
        }
        // Blocks are statements; a single call is an expression.
        let starts =
            |word: &str| matches!(call.first(), Some(Piece::Text(t)) if t.starts_with(word));
        let named = results > 1 || results == 1 && (starts("if ") || starts("while "));
        // A layer's weights live in a model.
        let names = || {
            let items = operands(call).collect::<BTreeSet<_>>();
            items.iter().map(|i| &*state.items[*i].name).collect::<Vec<_>>().join(", ")
        };
        let probed = owns_variables(call);
        if probed {
            let _ = write!(text, "model probed({}) {{\n  return ", names());
        } else {
            Probe::open_entry(&mut text, &params, results, named);
        }
        for piece in call {
            let at = text.len();
            match piece {
                Piece::Text(t) | Piece::Fixed(t) => text.push_str(t),
                Piece::Foreign => {}
                Piece::Model(i) => text.push_str(all.get(i).map_or("_", String::as_str)),
                Piece::Item(i) => {
                    text.push_str(&state.items[*i].name);
                    spots.push((at..text.len(), *i));
                }
            }
        }
        if probed {
            text.push_str("\n}\n");
            Probe::open_entry(&mut text, &params, results, named);
            let _ = write!(text, "probed({})", names());
        }
        if named {
            let names: Vec<String> = (0..results).map(|i| format!("result{i}")).collect();
            let _ = write!(text, "\n  return {}", names.join(", "));
        }
        text.push_str("\n}\n");
        Probe { text, operands: spots }
    }

    fn open_entry(text: &mut String, params: &[String], results: usize, named: bool) {
        let _ = write!(text, "entry probe({}) {{\n  ", params.join(", "));
        if results == 1 {
            text.push_str(if named { "result0 = " } else { "return " });
        } else if results > 1 {
            let names: Vec<String> = (0..results).map(|i| format!("result{i}")).collect();
            let _ = write!(text, "({}) = ", names.join(", "));
        }
    }

    fn ask(&self, loader: &dyn Loader) -> std::result::Result<Vec<TensorType>, Vec<Diag>> {
        let mut sources = SourceMap::default();
        let file = sources.add("probe", self.text.clone());
        let (graph, mut diags) = text::load(&mut sources, file, loader);
        diags.retain(|d| d.severity == Severity::Error);
        match graph.as_ref().and_then(|g| g.entries.first()) {
            Some(entry) if diags.is_empty() => {
                Ok(entry.results().iter().map(|v| entry.ty(*v).clone()).collect())
            }
            _ => Err(diags),
        }
    }

    /// Where in the Rust code the parts of a finding are.
    fn sites(&self, state: &State, diag: &Diag, call: Site) -> site::Sites {
        let mut out = site::Sites::one(call);
        for label in &diag.labels {
            match self.operand_at(label.span) {
                Some(i) if state.items[i].site != call => {
                    let text = format!("`{}`: {}", state.items[i].name, label.text);
                    out.also.push((state.items[i].site, text));
                }
                _ if out.text.is_empty() => out.text = label.text.clone(),
                _ => {
                    out.text.push_str("; ");
                    out.text.push_str(&label.text);
                }
            }
        }
        out
    }

    fn operand_at(&self, span: Span) -> Option<usize> {
        let (lo, hi) = (span.lo as usize, span.hi as usize);
        let hit = self.operands.iter().find(|(at, _)| at.start <= lo && hi <= at.end);
        hit.map(|(_, i)| *i)
    }
}

fn mentions(text: &str, name: &str) -> bool {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).any(|word| word == name)
}

/// Resolves the finished text; findings point at the Rust calls that made the
/// lines they are about.
pub(super) fn whole(state: &State, source: &str, lines: &[Option<Site>]) -> Result<Graph> {
    let mut sources = SourceMap::default();
    let file = sources.add(format!("{} (built in Rust)", state.name), source);
    let (graph, mut diags) = text::load(&mut sources, file, &Given(&state.data));
    diags.retain(|d| d.severity == Severity::Error);
    if let Some(graph) = graph.filter(|_| diags.is_empty()) {
        return Ok(graph);
    }
    let site_of = |span: Span| {
        let line = source.get(..span.lo as usize)?.matches('\n').count();
        if span.file == file { lines.get(line).copied().flatten() } else { None }
    };
    let mut mistakes = vec![];
    let mut others = vec![];
    for diag in diags {
        let mut places = diag.labels.iter().map(|l| (site_of(l.span), l));
        let Some((Some(at), first)) =
            places.clone().find(|(s, l)| s.is_some() && l.primary).or_else(|| places.next())
        else {
            others.push(diag);
            continue;
        };
        let also = diag
            .labels
            .iter()
            .filter(|l| *l != first)
            .filter_map(|l| site_of(l.span).map(|s| (s, l.text.clone())))
            .collect();
        let sites = site::Sites { at, text: first.text.clone(), also };
        mistakes.push((diag, sites));
    }
    // Findings about the text itself are rarer and shown with it.
    Err(if mistakes.is_empty() { Error::new(others, sources) } else { site::error(&mistakes) })
}

/// Tensors given from Rust, as the files the text says they are.
struct Given<'a>(&'a BTreeMap<String, Tensor>);

impl Loader for Given<'_> {
    fn tensor(&self, path: &str, key: Option<&str>) -> std::result::Result<Tensor, Refusal> {
        match self.0.get(path) {
            Some(tensor) => Ok(tensor.clone()),
            None => crate::load::Files::here().tensor(path, key),
        }
    }

    fn source(&self, path: &str) -> std::result::Result<String, Refusal> {
        crate::load::Files::here().source(path)
    }
}
