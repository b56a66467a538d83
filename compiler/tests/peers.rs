//! `examples/bench/peers`: every workload has a graph that checks at its sizes, every graph is
//! used, and docs/benchmarks.md has a row for each workload.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A row of workloads.py.
struct Workload {
    title: String,
    graph: String,
    lets: Vec<(String, String)>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// What stands between quotes, in order.
fn quoted(text: &str) -> Vec<String> {
    text.split('"').skip(1).step_by(2).map(str::to_string).collect()
}

fn workloads() -> Vec<Workload> {
    let text = read("examples/bench/peers/workloads.py");
    let rows = text.lines().filter_map(|l| l.trim().strip_prefix("Workload(\""));
    let parse = |row: &str| {
        let row = format!("\"{row}");
        let (head, sizes) = row.split_once('{').unwrap_or((&row, ""));
        let words = quoted(head);
        let pair = |item: &str| {
            let (name, value) = item.split_once(':')?;
            let value = value.trim().trim_end_matches(['}', ')', ',']).to_string();
            Some((name.trim().trim_matches('"').to_string(), value))
        };
        Workload {
            title: words[1].clone(),
            graph: words.get(3).cloned().unwrap_or_default(),
            lets: sizes.split(',').filter_map(pair).collect(),
        }
    };
    rows.map(parse).collect()
}

#[test]
fn graphs_of_workloads_check_at_their_sizes() {
    let all = workloads();
    assert!(all.len() >= 35, "only {} rows were found in workloads.py", all.len());
    for w in all.iter().filter(|w| !w.graph.is_empty()) {
        let path = root().join(format!("examples/bench/peers/graphs/{}.graph", w.graph));
        let mut ways = vec![w.lets.clone()];
        if w.graph.starts_with("lstm") {
            ways[0].push(("LOOP".into(), "false".into()));
            ways.push(vec![("LOOP".into(), "true".into())]);
        }
        for lets in ways {
            let lets: Vec<(&str, &str)> =
                lets.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            let graph = match tfc::load_with(&path, &lets) {
                Ok(graph) => graph,
                Err(e) => panic!("{}, {lets:?}: {e}", w.title),
            };
            let entries: Vec<&str> = graph.entries.iter().map(|e| e.name.as_str()).collect();
            assert_eq!(entries, ["run"], "{}", w.title);
        }
    }
}

#[test]
fn every_graph_is_a_workloads() {
    let used: BTreeSet<String> =
        workloads().into_iter().map(|w| w.graph).filter(|g| !g.is_empty()).collect();
    let folder = std::fs::read_dir(root().join("examples/bench/peers/graphs")).unwrap();
    let names = folder.map(|f| f.unwrap().path().file_stem().unwrap().to_owned());
    let there: BTreeSet<String> = names.map(|n| n.into_string().unwrap()).collect();
    assert_eq!(there, used);
}

#[test]
fn every_workload_has_a_row_in_the_docs() {
    let page = read("docs/benchmarks.md");
    for w in workloads() {
        assert!(page.contains(&format!("\n| {} |", w.title)), "no row for `{}`", w.title);
    }
}
