//! No compiled graph reads or writes outside its buffers.
//!
//! The corpus runs with pages that nobody may touch behind every buffer, then
//! before every buffer, with every run-time dim at 0, 1, 2, 7 and 64. That goes
//! on in child processes, which say what they are about to do, so that a crash
//! is reported with the graph, the entry and the sizes.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use tfc::Module;
use tfc::load::{Files, parse_as};
use tfc_ir::{Func, Graph};
use tfc_runtime::guard::{self, Guard};
use tfc_runtime::{FeedView, TensorBuf};
use tfc_testdata::corpus::{self, Case};
use tfc_testdata::directive::Directive;
use tfc_testdata::feeds;
use tfc_testdata::ways::scratch;

const SIZES: [i64; 5] = [0, 1, 2, 7, 64];

/// Set in children: the guard, the first case and the first call of it.
const CHILD: &str = "TFC_GUARD_CHILD";

/// Graphs of the reports that had no case of their own.
const REPORTED: &[(&str, &str)] = &[
    // faults 1: the address of an empty slice was loaded.
    (
        "reported_tiny",
        "graph tiny\ndim A\ndim C: 1..\n\
         entry last(x: f32[A, C]) -> (y: f32[A + 1, 1]) {\n\
         \x20 return pad(x[:, -1:], low: [1, 0], high: [0, 0])\n}\n\
         entry square(x: f32[A, C]) -> (y) {\n  z = x[1:, -1:]\n\
         \x20 return pad(z * z, low: [1, C - 1], high: [0, 0])\n}\n\
         entry turn(x: f32[A]) -> (y) { return concat([x[1:] * 2.0, x[:1]], axis: 0) }\n",
    ),
    // Guards inside guards, over several buffers and through reductions.
    (
        "reported_nested",
        "graph nested\ndim A\ndim C\n\
         entry rows(x: f32[A, C], b: f32[C]) -> (y) {\n\
         \x20 z = concat([x[1:] + b, x[:1] * b], axis: 0)\n\
         \x20 return pad(z[1:], low: [1, 2], high: [0, 1])\n}\n\
         entry sums(x: f32[A, C]) -> (y) {\n\
         \x20 z = pad(sum(x[1:], axes: [1]), low: [2], high: [1])\n\
         \x20 return concat([z, max(x[:, 1:], axes: [1], keep: false)[1:]], axis: 0)\n}\n\
         entry turned(x: f32[A, C]) -> (y) {\n\
         \x20 z = reverse(x[1:, 1:], axes: [0, 1])\n\
         \x20 return pad(transpose(z, perm: [1, 0]), low: [1, 1], high: [1, 1])\n}\n\
         entry flat(x: f32[A, C]) -> (y) {\n\
         \x20 return pad(reshape(x[1:, 1:], shape: [(A - 1) * (C - 1)]), low: [1], high: [1])\n}\n\
         entry halves(x: f16[A], y: i8[A], z: bool[A]) -> (a, b, c) {\n\
         \x20 return concat([x[1:], x], axis: 0), concat([y[1:], y], axis: 0), concat([z[1:], z], axis: 0)\n}\n",
    ),
];

fn cases() -> Vec<Case> {
    let mut out: Vec<Case> =
        ["ops", "run", "fuse", "plan"].iter().flat_map(|d| corpus::cases(d)).collect();
    out.retain(|c| c.directive().verb == "run" || !c.text.starts_with("//! run"));
    out.extend(REPORTED.iter().map(|(name, text)| Case {
        path: format!("{name}.graph").into(),
        name: name.to_string(),
        text: text.to_string(),
    }));
    let small = ["convnet", "norms", "rnn", "mlp"];
    out.extend(corpus::examples().into_iter().filter(|c| small.contains(&&*c.name)));
    out
}

/// Every combination of [`SIZES`] for up to two dims; for more, all equal and
/// each in turn set to each size while the others are 2 or 7.
fn assignments(dims: &[String]) -> Vec<BTreeMap<String, i64>> {
    let all = |value: &dyn Fn(usize) -> i64| -> BTreeMap<String, i64> {
        dims.iter().enumerate().map(|(i, d)| (d.clone(), value(i))).collect()
    };
    let mut out: Vec<BTreeMap<String, i64>> = SIZES.iter().map(|s| all(&|_| *s)).collect();
    if dims.len() == 2 {
        out = SIZES.iter().flat_map(|a| SIZES.map(|b| all(&|i| [*a, b][i]))).collect();
    } else if dims.len() > 2 {
        for at in 0..dims.len() {
            for size in SIZES {
                out.extend([2, 7].map(|rest| all(&|i| if i == at { size } else { rest })));
            }
        }
    }
    out.dedup();
    if dims.is_empty() { vec![BTreeMap::new()] } else { out }
}

fn directive(case: &Case) -> Directive {
    match Directive::parse(&case.text) {
        Ok(d) if d.verb == "run" => d,
        _ => Directive::default(),
    }
}

/// Elements of the largest parameter; `None` when a size is negative.
fn largest(func: &Func, dims: &BTreeMap<String, i64>) -> Option<i64> {
    let mut most = 0;
    for param in func.params() {
        let mut elements = 1i64;
        for dim in &func.ty(*param).shape {
            let size = dim.eval(&|name| dims.get(name).copied()).filter(|s| *s >= 0)?;
            elements = elements.saturating_mul(size);
        }
        most = most.max(elements);
    }
    Some(most)
}

/// The calls of a graph, in order.
fn calls<'g>(graph: &'g Graph, directive: &Directive) -> Vec<(&'g Func, BTreeMap<String, i64>)> {
    // A queue may be too small for other sizes than those it was written for.
    let queues = graph.vars.values().any(|v| !v.symbol.is_variable());
    let mut out = vec![];
    for func in graph.entries.iter().filter(|e| !e.runner) {
        let dims = feeds::dims(func);
        let sizes = if queues { directive.assignments(&dims) } else { assignments(&dims) };
        let possible = sizes.into_iter().filter(|d| largest(func, d).is_some_and(|n| n <= 1 << 20));
        out.extend(possible.map(|d| (func, d)));
    }
    out
}

/// Results of a call, or the code of its error.
fn outcome(
    module: &Module,
    func: &Func,
    feeds: &[(String, tfc_ir::Tensor)],
) -> Result<Vec<Vec<u8>>, String> {
    let model = module.model();
    model.init().map_err(|e| e.to_string())?;
    let entry = model.entry(&func.name).map_err(|e| e.to_string())?;
    let owned: Vec<TensorBuf> = feeds
        .iter()
        .map(|(_, t)| TensorBuf::from_bytes(t.dtype(), t.shape(), t.bytes()))
        .collect::<Option<_>>()
        .ok_or("a feed of the wrong size")?;
    let views: Vec<FeedView<'_>> = owned.iter().map(TensorBuf::view).collect();
    let results = model.call(entry, &views).map_err(|e| e.code().to_string())?;
    Ok(results.iter().map(|r| r.bytes().to_vec()).collect())
}

/// Runs cases from the given one on, announcing every call.
fn child(mode: Guard, first_case: usize, first_call: usize) -> Result<(), String> {
    let dir = scratch();
    let (mut done, mut refused) = (0, 0);
    for (index, case) in cases().iter().enumerate().skip(first_case) {
        let directive = directive(case);
        let files = Files::in_dir(case.path.parent().unwrap_or(std::path::Path::new("")));
        let graph = parse_as(&case.name, &case.text, &files).map_err(|e| e.to_string())?.graph;
        let options = tfc::Options::default();
        let mut timings = tfc::driver::Timings::default();
        let compiled = tfc::driver::compile(&graph, &graph.sources, &options, &mut timings)
            .map_err(|e| e.to_string())?;
        // Variables and constants are allocated while it is loaded.
        guard::set(mode);
        let module = Module::from_compiled(&compiled, &options).map_err(|e| e.to_string())?;
        module.model().set_directory(dir.path());
        let skip = if index == first_case { first_call } else { 0 };
        for (call, (func, dims)) in calls(&graph, &directive).into_iter().enumerate().skip(skip) {
            let feeds = feeds::feeds(func, &directive, &dims);
            println!("call {index} {call} {} `{}` with {dims:?}", case.name, func.name);
            std::io::stdout().flush().map_err(|e| e.to_string())?;
            guard::set(Guard::Off);
            let want = outcome(&module, func, &feeds);
            guard::set(mode);
            let got = outcome(&module, func, &feeds);
            if want != got {
                let name = &case.name;
                return Err(format!("{name} `{}` with {dims:?} gives other bits", func.name));
            }
            done += 1;
            refused += usize::from(got.is_err());
        }
        guard::set(Guard::Off);
    }
    println!("done {done} {refused}");
    Ok(())
}

/// Runs children until all cases are through; what crashed, and how many calls
/// were made and refused.
fn watch(mode: &str) -> (Vec<String>, usize, usize) {
    let (mut crashes, mut from) = (vec![], (0, 0));
    let (mut done, mut refused) = (0, 0);
    while crashes.len() < 20 {
        let exe = std::env::current_exe().expect("this test");
        let mut child = Command::new(exe)
            .args(["--exact", "the_corpus_stays_inside_its_buffers", "--nocapture"])
            .env(CHILD, format!("{mode} {} {}", from.0, from.1))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a child");
        let mut last = String::new();
        let mut made = 0;
        let out = BufReader::new(child.stdout.take().expect("its output"));
        for line in out.lines().map_while(Result::ok) {
            if let Some(call) = line.strip_prefix("call ") {
                last = call.to_string();
                made += 1;
            } else if let Some(counts) = line.strip_prefix("done ") {
                let mut counts = counts.split(' ').map_while(|n| n.parse::<usize>().ok());
                made = counts.next().unwrap_or(0);
                refused += counts.next().unwrap_or(0);
            }
        }
        done += made;
        let end = child.wait_with_output().expect("it ended");
        if end.status.success() {
            break;
        }
        let how = match end.status.signal() {
            Some(signal) => format!("signal {signal}"),
            None => String::from_utf8_lossy(&end.stderr).trim().to_string(),
        };
        crashes.push(format!("guard at the {mode}: {last}: {how}"));
        let mut numbers = last.split(' ').map_while(|n| n.parse::<usize>().ok());
        match (numbers.next(), numbers.next()) {
            (Some(case), Some(call)) => from = (case, call + 1),
            _ => break,
        }
    }
    (crashes, done, refused)
}

#[test]
fn the_corpus_stays_inside_its_buffers() {
    if let Ok(what) = std::env::var(CHILD) {
        let mut words = what.split(' ');
        let mode = if words.next() == Some("end") { Guard::End } else { Guard::Start };
        let mut number = || words.next().and_then(|n| n.parse().ok()).expect("a number");
        let result = child(mode, number(), number());
        if let Err(why) = &result {
            eprintln!("{why}");
        }
        std::process::exit(i32::from(result.is_err()));
    }
    let watched = std::thread::scope(|s| {
        ["end", "start"].map(|mode| s.spawn(move || watch(mode))).map(|t| t.join().expect("it ran"))
    });
    for (crashes, done, refused) in watched {
        assert!(crashes.is_empty(), "{} crashes:\n{}", crashes.len(), crashes.join("\n"));
        assert!(done > 1500 && refused * 4 < done, "{done} calls, {refused} refused");
    }
}

/// The guard itself: a child that reads one byte too far does not survive.
#[test]
fn a_byte_too_far_is_caught() {
    const FAR: &str = "TFC_GUARD_FAR";
    if let Ok(what) = std::env::var(FAR) {
        let (mode, offset) = if what == "end" { (Guard::End, 12) } else { (Guard::Start, -1) };
        guard::set(mode);
        let bytes = tfc_runtime::mem::Bytes::zeroed(12).expect("memory");
        // SAFETY: not at all: the read ends this process.
        let byte = unsafe { std::ptr::read_volatile(bytes.as_ptr().offset(offset)) };
        std::process::exit(i32::from(byte));
    }
    for what in ["end", "start"] {
        let exe = std::env::current_exe().expect("this test");
        let status = Command::new(exe)
            .args(["--exact", "a_byte_too_far_is_caught"])
            .env(FAR, what)
            .stdout(Stdio::null())
            .status()
            .expect("a child");
        assert_eq!(status.signal(), Some(11), "{what}: {status}");
    }
}
