//! Printing, parsing and formatting over the whole corpus.

use tfc_ir::diag::SourceMap;
use tfc_ir::op::Stage;
use tfc_ir::{Graph, text, verify};
use tfc_passes::pipeline::{self, PASSES};
use tfc_testdata::corpus::{self, Case};

fn load(case: &Case) -> Graph {
    let files = tfc::load::Files::in_dir(case.path.parent().unwrap());
    match tfc::load::parse_as(&case.name, &case.text, &files) {
        Ok(loaded) => loaded.graph,
        Err(e) => panic!("{}:\n{e}", case.path.display()),
    }
}

/// Printing and parsing back gives the same graph, and printing that the same
/// text.
fn round_trip(what: &str, graph: &Graph) {
    let printed = text::print(graph);
    let (back, diags, _) = text::load_str(what, &printed);
    let Some(back) = back else { panic!("{what}: {diags:#?}\n{printed}") };
    if let Err(difference) = text::same(graph, &back) {
        panic!("{what}: {difference}\n{printed}");
    }
    assert_eq!(printed, text::print(&back), "{what}");
}

#[test]
fn every_stage_prints_and_parses_back() {
    let cases = corpus::valid();
    assert!(cases.len() > 50);
    let passes: Vec<&pipeline::Pass> = PASSES.iter().collect();
    for case in &cases {
        let graph = load(case);
        round_trip(&case.name, &graph);
        let mut stage = Stage::Source;
        let result = pipeline::run_each(graph, &passes, &Default::default(), &mut |ran, graph| {
            let what = format!("{} after {}", case.name, ran.name);
            // Gradient terms are written out by the e-graph.
            if ran.name == "egraph" {
                stage = Stage::Core;
            }
            let findings = verify::verify(graph, stage);
            assert!(findings.is_empty(), "{what}: {findings:#?}");
            round_trip(&what, graph);
        });
        if let Err(diags) = result {
            panic!("{}: {diags:#?}", case.path.display());
        }
    }
}

#[test]
fn formatting_is_stable_and_changes_nothing() {
    for case in corpus::valid() {
        let format = |text: &str| {
            let mut sources = SourceMap::default();
            let file = sources.add(case.name.clone(), text);
            text::fmt(&sources, file).unwrap_or_else(|d| panic!("{}: {d:#?}", case.name))
        };
        let once = format(&case.text);
        assert_eq!(once, format(&once), "{}", case.path.display());
        let comments = |t: &str| t.matches("//").count();
        assert_eq!(comments(&case.text), comments(&once), "{} lost a comment", case.name);
        let formatted = Case { text: once, ..case.clone() };
        if let Err(difference) = text::same(&load(&case), &load(&formatted)) {
            panic!("{}: formatting changed the graph: {difference}", case.name);
        }
    }
}

#[test]
fn examples_are_formatted() {
    for case in corpus::examples() {
        let mut sources = SourceMap::default();
        let file = sources.add(case.name.clone(), case.text.clone());
        let formatted = text::fmt(&sources, file).unwrap_or_default();
        assert!(formatted == case.text, "run `tfc fmt {}`", case.path.display());
    }
}
