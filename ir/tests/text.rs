//! The graph language, from text to graph and back.

use tfc_ir::diag::SourceMap;
use tfc_ir::op::Stage;
use tfc_ir::text::{NoFiles, load, load_str, load_with, print, same};
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
fn variables_belong_to_models_and_the_calls_in_them() {
    let printed = parse_case("functions");
    for name in ["lone.n", "both.counter.n", "both.counter_2.n"] {
        let line = format!("var {name}: i32[]\n");
        assert_eq!(printed.matches(&line).count(), 1, "{name} in\n{printed}");
    }
    let gradients = parse_case("gradients");
    assert!(gradients.contains("slot adamw.w.m: f32[3]\n"), "{gradients}");
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

const TWO_NETS: &str = "use init\nuse optim\ndim B\n\
    layer layer(x: f32[N, I], units) {\n\
    var w: f32[I, units] = init.glorot()\n var steps: i64[] = zeros\n var drift: f32[] = zeros\n\
    steps += 1\n drift += 0.5\n return x @ w\n}\n\
    model maker(x) {\n return layer(layer(x, 3), 3)\n}\n\
    model judge(x) {\n return layer(x, 1)\n}\n\
    entry f(x: f32[B, 3]) -> (loss: f32[]) {\n loss = mean(judge(maker(x)))\n MINIMIZE\n return loss\n}\n";

/// The variables that `sgd` changes.
fn trained(minimize: &str) -> Vec<String> {
    let printed = check(&TWO_NETS.replace("MINIMIZE", minimize));
    let lines = printed.lines().filter_map(|l| l.trim().strip_prefix("assign_sub("));
    lines.filter_map(|l| l.split(',').next()).map(str::to_string).collect()
}

#[test]
fn minimize_finds_the_variables_the_loss_depends_on() {
    let all = trained("minimize loss with optim.sgd()");
    assert_eq!(all, ["maker.layer.w", "maker.layer_2.w", "judge.layer.w"]);
    assert_eq!(trained("minimize loss over [judge] with optim.sgd()"), ["judge.layer.w"]);
    assert_eq!(trained("minimize loss over [maker] with optim.sgd()"), all[..2]);
    assert_eq!(trained("minimize loss over [maker.layer_2] with optim.sgd()"), all[1..2]);
    let stopped = "minimize mean(judge(stop_gradient(maker(x)))) with optim.sgd()";
    assert_eq!(trained(stopped), ["judge.layer.w"]);
}

#[test]
fn variables_without_a_seed_start_differently() {
    let printed = check(&TWO_NETS.replace("MINIMIZE", ""));
    let seeds: Vec<&str> = printed.lines().filter(|l| l.contains("value: i64[](")).collect();
    let mut values: Vec<&str> = seeds.iter().filter_map(|l| l.split("i64[](").nth(1)).collect();
    values.sort();
    values.dedup();
    assert!(values.len() > 3, "{seeds:?}");
}

#[test]
fn conditions_known_while_building_choose_a_branch() {
    let printed = check(
        "func layer(x: f32[N], wide) {\n  y = if wide {\n    yield concat(x, x, axis: 0)\n  } else {\n    yield double(x)\n  }\n  return y\n}\n\
         func double(x) {\n  return x * 2\n}\n\
         entry f(x: f32[3]) -> (a: f32[6], b: f32[3]) {\n  return layer(x, true), layer(x, 3 == 4)\n}\n",
    );
    assert!(!printed.contains("if("), "{printed}");
    assert!(printed.contains("concat(x, x"), "{printed}");
}

#[test]
fn lets_can_be_given_from_outside() {
    let text = "let WIDTH = 4\nlet SHAPE = [WIDTH, 2]\nentry f() -> (y: f32[WIDTH]) {\n  return zeros(shape: [WIDTH])\n}\n";
    let load = |lets: &[(&str, &str)]| {
        let mut sources = SourceMap::default();
        let file = sources.add("f.graph", text);
        let lets: Vec<_> = lets.iter().map(|(n, v)| (n.to_string(), v.to_string())).collect();
        load_with(&mut sources, file, &NoFiles, &lets)
    };
    let (graph, diags) = load(&[("WIDTH", "2 * 3")]);
    assert!(diags.is_empty(), "{diags:?}");
    let graph = graph.expect("a graph");
    assert_eq!(graph.entries[0].ty(graph.entries[0].results()[0]).to_string(), "f32[6]");
    for (lets, code, help) in [
        ([("WIDHT", "3")], "E0491", "WIDTH"),
        ([("WIDTH", "3\ndim B")], "E0492", ""),
        ([("WIDTH", "3 +")], "E0104", ""),
        ([("WIDTH", "OTHER")], "E0123", ""),
    ] {
        let (graph, diags) = load(&lets);
        assert!(graph.is_none());
        assert_eq!(diags[0].code, code, "{diags:?}");
        let helps: Vec<&str> = diags[0].help.iter().map(|h| h.text.as_str()).collect();
        assert!(helps.concat().contains(help), "{helps:?}");
    }
}
