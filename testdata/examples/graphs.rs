//! Random graphs in every float mode against the interpreter, as many as asked for.
//!
//!     cargo run --release -p tfc-testdata --example graphs -- 100000
//!
//! `graphs COUNT [FIRST] [THREADS]`; `graphs show SEED` prints one; `graphs dump DIR
//! COUNT [FIRST]` writes graphs, feeds and what compiled code makes of them, for
//! `testdata/oracle/graphs.py` to compare with JAX; `graphs passes SEED B N` interprets
//! one after each pass and shows the first numbers of every result, to find the pass
//! that changes them.

use std::path::Path;
use std::time::Instant;
use tfc_runtime::TensorBuf;
use tfc_testdata::generate::{Entry, check, print_graph};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, or: u64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(or);
    if args.first().is_some_and(|a| a == "show") {
        print!("{}", print_graph(&[Entry::generate(number(1, 0))]));
        return;
    }
    if args.first().is_some_and(|a| a == "passes") {
        passes(number(1, 0), number(2, 7), number(3, 7));
        return;
    }
    if args.first().is_some_and(|a| a == "dump") {
        let dir = std::path::PathBuf::from(args.get(1).map_or(".", String::as_str));
        let from = number(3, 0);
        for seed in from..from + number(2, 100) {
            if let Err(e) = dump(&dir, seed) {
                eprintln!("{seed}: {e}");
            }
        }
        return;
    }
    let (count, first, threads) = (number(0, 1000), number(1, 0), number(2, 2));
    std::panic::set_hook(Box::new(|_| {}));
    let start = Instant::now();
    let trace = std::env::var_os("TFC_TRACE").is_some();
    let progress = |seed: u64| {
        if trace {
            eprintln!("{seed}");
        }
    };
    let (counts, failures) =
        check::check_many(first, first + count, 8, threads as usize, &progress);
    for text in failures.values() {
        println!("{text}\n");
    }
    println!("{counts:?}, {} failures, {:.1} s", failures.len(), start.elapsed().as_secs_f64());
    std::process::exit(i32::from(!failures.is_empty()));
}

/// `SEED.graph`, the graph with one op a line, and `SEED.safetensors`, what goes in and
/// comes out.
fn dump(dir: &Path, seed: u64) -> Result<(), String> {
    let entry = Entry::generate(seed);
    let dims = entry.assignments(1).pop().ok_or("sizes it refuses")?;
    let feeds = entry.feeds(&dims).ok_or("sizes it refuses")?;
    let graph =
        tfc::parse(&print_graph(std::slice::from_ref(&entry))).map_err(|e| e.to_string())?;
    let module = tfc::compile(&graph).map_err(|e| e.to_string())?;
    let outputs = module.call(&entry.name(), &feeds[..]).map_err(|e| e.to_string())?;
    let names: Vec<String> = outputs.names().map(str::to_string).collect();
    let mut tensors: Vec<(String, tfc_ir::Tensor)> =
        feeds.into_iter().map(|(name, t)| (format!("in.{name}"), t)).collect();
    for name in names {
        let tensor = outputs.tensor(&name).map_err(|e| e.to_string())?;
        tensors.push((format!("out.{name}"), tensor));
    }
    let buffers: Vec<(&str, TensorBuf)> = tensors
        .iter()
        .filter_map(|(name, t)| {
            Some((name.as_str(), TensorBuf::from_bytes(t.dtype(), t.shape(), t.bytes())?))
        })
        .collect();
    let all: Vec<(&str, &TensorBuf)> = buffers.iter().map(|(n, b)| (*n, b)).collect();
    let file = |ending: &str| dir.join(format!("{seed}.{ending}"));
    std::fs::write(file("graph"), tfc_ir::text::print(&graph)).map_err(|e| e.to_string())?;
    tfc_runtime::io::write_tensors(&file("safetensors"), &all).map_err(|e| e.to_string())
}

/// Interprets a graph after each pass.
fn passes(seed: u64, b: u64, n: u64) {
    use tfc_passes::pipeline::{PASSES, Pass, run_each, run_passes};
    let entry = Entry::generate(seed);
    let dims = [("B", b), ("N", n)].map(|(name, size)| (name.to_string(), size as i64)).into();
    let Some(feeds) = entry.feeds(&dims) else { return println!("sizes it refuses") };
    let feeds: Vec<_> = feeds.into_iter().map(|(_, t)| t).collect();
    let graph = tfc::parse(&print_graph(std::slice::from_ref(&entry))).expect("a graph");
    let show = |name: &str, graph: &tfc_ir::Graph| {
        let graph = run_passes(graph, &["differentiate"]).expect("gradients");
        let state = tfc_ir::interp::State::new(&graph);
        let run = |mut state| tfc_ir::interp::run(&graph, &entry.name(), &feeds, &mut state);
        match state.and_then(run) {
            Err(e) => println!("{name}: {e}"),
            Ok(results) => {
                let first = |t: &tfc_ir::Tensor| t.to_f64().into_iter().take(2).collect::<Vec<_>>();
                println!("{name}: {:?}", results.iter().map(first).collect::<Vec<_>>());
            }
        }
    };
    show("source", &graph);
    let all: Vec<&Pass> = PASSES.iter().collect();
    let options = tfc_passes::PassOptions::default();
    let _ = run_each(graph, &all, &options, &mut |ran, graph| show(ran.name, graph));
}
