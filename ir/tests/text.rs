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

/// The case of `testdata/parse`, printed.
fn parse_case(name: &str) -> String {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../testdata/parse");
    check(&std::fs::read_to_string(format!("{root}/{name}.graph")).expect("readable"))
}

/// The text of one entry.
fn entry<'t>(printed: &'t str, name: &str) -> &'t str {
    let start = printed.find(&format!("entry {name}(")).expect("the entry");
    let rest = &printed[start..];
    &rest[..rest.find("\n}").unwrap_or(rest.len())]
}

#[test]
fn one_read_for_each_version_of_a_variable() {
    let printed = parse_case("state");
    let step = entry(&printed, "step");
    assert_eq!(step.matches("read(a)").count(), 2, "{step}");
    assert_eq!(step.matches("read(b)").count(), 1, "{step}");
    assert_eq!(step.matches("after(_print)").count(), 2, "{step}");
}

#[test]
fn loops_read_what_they_write_in_every_round() {
    let printed = parse_case("control");
    let sum = entry(&printed, "sum_to");
    let (before, inside) = sum.split_once("while").expect("a loop");
    assert!(before.contains("read(calls)") && !before.contains("read(total)"), "{sum}");
    assert!(inside.matches("read(total)").count() >= 2, "{sum}");
}

#[test]
fn variables_of_functions_belong_to_the_path_of_calls() {
    let printed = parse_case("functions");
    for name in ["counter.n", "both.counter.n", "both.counter_2.n"] {
        let line = format!("var {name}: i32[]\n");
        assert_eq!(printed.matches(&line).count(), 1, "{name} in\n{printed}");
    }
    let gradients = parse_case("gradients");
    assert!(gradients.contains("var adamw.w.adam.w.m: f32[3]\n"), "{gradients}");
}

#[test]
fn formatting_keeps_comments_and_is_stable() {
    let text = "// top\ngraph  g\n\n\n\ndim B// size\nentry f(x:f32[B],y : f32[ B ])->f32[B]{\n\
                // inside\nz=x+ -y*2   // end\n\n\n    return  z [ 0 : 1 ],\n}\n// last";
    let want = "// top\ngraph g\n\ndim B // size\nentry f(x: f32[B], y: f32[B]) -> f32[B] {\n\
                \x20 // inside\n  z = x + -y * 2 // end\n\n  return z[0:1]\n}\n// last\n";
    let format = |text: &str| {
        let mut sources = SourceMap::default();
        let file = sources.add("f.graph", text);
        tfc_ir::text::fmt(&sources, file)
    };
    assert!(format(text).is_err(), "a comma before the end is not a statement");
    let text = text.replace("],\n}", "]\n}");
    assert_eq!(format(&text).as_deref(), Ok(want));
    assert_eq!(format(want).as_deref(), Ok(want));
}

#[test]
fn names_hide_and_are_kept_apart() {
    let printed = check(
        "entry f(x: f32[3]) -> f32[3] {\n  y = x + 1\n  y = y * 2\n  _z = y - 1\n  return _z\n}\n",
    );
    for part in ["  y: f32[3] = add(", "  y_2: f32[3] = mul(y", "  _sub: f32[3] = sub(y_2"] {
        assert!(printed.contains(part), "{part} in\n{printed}");
    }
}
