//! The graph language, from text to graph and back.

use tfc_ir::diag::SourceMap;
use tfc_ir::op::Stage;
use tfc_ir::text::{NoFiles, load, load_str, print, same};
use tfc_ir::{Graph, verify};

/// Loads, verifies, prints, loads what was printed, compares.
fn check(text: &str) -> String {
    let graph = good(text);
    let printed = print(&graph);
    let again = good(&printed);
    if let Err(why) = same(&graph, &again) {
        panic!("printing and parsing changed the graph: {why}\n{printed}\n{}", print(&again));
    }
    assert_eq!(printed, print(&again));
    printed
}

fn good(text: &str) -> Graph {
    let (graph, diags, _) = load_str("test.graph", text);
    assert!(diags.is_empty(), "{diags:#?}\n{text}");
    let graph = graph.expect("no error, so a graph");
    let findings = verify::verify(&graph, Stage::Source);
    assert!(findings.is_empty(), "{findings:#?}\n{}", print(&graph));
    graph
}

#[test]
fn small_graphs_round_trip() {
    let text = check(
        "graph g\n dim B\n var w: f32[3, 4] = zeros\n var b: f32[4] = [1, 2, 3, 4]\n\
         entry f(x: f32[B, 3]) -> (y: f32[B, 4]) {\n h = x @ w + b\n return exp(h) / 2\n}\n",
    );
    assert!(text.contains("h: f32[B, 4] = add("), "{text}");
}

#[test]
fn examples_load() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples");
    for file in std::fs::read_dir(root).expect("examples") {
        let path = file.expect("a file").path();
        if path.extension().is_some_and(|e| e == "graph") {
            let text = std::fs::read_to_string(&path).expect("readable");
            check(&text);
        }
    }
    let mut sources = SourceMap::default();
    let file = sources.add("a", "graph a\nentry f() -> f32[] { return 1.0 }");
    assert!(load(&mut sources, file, &NoFiles).0.is_some());
}

#[test]
fn corpus_round_trips() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata");
    let mut seen = 0;
    for dir in ["ops", "parse"] {
        let Ok(files) = std::fs::read_dir(format!("{root}/{dir}")) else { continue };
        for file in files {
            let path = file.expect("a file").path();
            if path.extension().is_some_and(|e| e == "graph") {
                let text = std::fs::read_to_string(&path).expect("readable");
                println!("{}", path.display());
                check(&text);
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "{seen}");
}
