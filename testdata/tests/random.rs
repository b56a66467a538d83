//! Random graphs give the same numbers in every way of running them.
//!
//! `TFC_GRAPHS=100000 cargo test --release -p tfc-testdata --test random` tries more
//! of them; so does the example `graphs`, which can also print one.

use tfc_testdata::corpus::Case;
use tfc_testdata::generate::{Entry, check, print_graph};
use tfc_testdata::ways::{Subject, in_parallel, scratch};

/// Graphs compiled together.
const GROUP: u64 = 8;

#[test]
fn interpreter_and_compiled_code_agree_in_every_mode() {
    let count = std::env::var("TFC_GRAPHS").ok().and_then(|n| n.parse().ok()).unwrap_or(2000);
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    let (counts, failures) = check::check_many(0, count, GROUP, threads, &|_| {});
    let texts: Vec<&str> = failures.values().map(String::as_str).collect();
    assert!(texts.is_empty(), "{} of {counts:?} fail:\n{}", texts.len(), texts.join("\n\n"));
    assert_eq!(counts.graphs as u64, count);
    // A generator whose graphs say nothing would be of no use.
    assert!(counts.undecided * 20 < counts.results, "{counts:?}");
    assert!(counts.refused * 20 < counts.calls, "{counts:?}");
    assert!(counts.bits * 50 > counts.calls, "{counts:?}");
}

/// Graphs that once failed, of those beyond the ones above: sums of dropped rows, slices
/// that folding made pass, gradients of gradients that cancel.
#[test]
fn graphs_that_once_failed_agree() {
    const SEEDS: [u64; 19] = [
        9187, 11863, 15355, 17217, 17493, 19104, 20986, 21362, 22630, 22707, 23096, 28196, 28474,
        31854, 44888, 45278, 50771, 52890, 66010,
    ];
    let failures = in_parallel(&SEEDS, |seed| {
        let entry = Entry::generate(*seed);
        let checked = check::check(std::slice::from_ref(&entry), &check::MODES, 3);
        checked.map(|_| ()).map_err(|f| format!("seed {seed}, {:?}: {}", f.mode, f.what))
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The same kernels in another file: not even the last bit differs.
#[test]
fn executables_compute_the_same_bits_as_code_in_memory() {
    let dir = scratch();
    let seeds: Vec<u64> = (1_000_000..1_000_008).collect();
    let failures = in_parallel(&seeds, |seed| {
        let entry = Entry::generate(*seed);
        let Some(dims) = entry.assignments(1).pop() else { return Ok(()) };
        let text =
            format!("{}\n{}", entry.directive(&dims), print_graph(std::slice::from_ref(&entry)));
        let name = format!("random{seed}");
        let case = Case { path: format!("{name}.graph").into(), name, text };
        let fail = |e: String| format!("{e}\n{}", case.text);
        let subject = Subject::new(&case, dir.path()).map_err(&fail)?;
        let feeds = entry.feeds(&dims).ok_or("sizes it refuses")?;
        let (jit, aot) = (subject.jit(&entry.name(), &feeds), subject.aot(&entry.name(), &feeds));
        let (jit, aot) = (jit.map_err(&fail)?, aot.map_err(&fail)?);
        let all = |o: &tfc_testdata::ways::Outcome| [o.results.clone(), o.vars.clone()].concat();
        for ((name, a), (_, b)) in all(&jit).iter().zip(&all(&aot)) {
            if a.shape() != b.shape() || a.bytes() != b.bytes() {
                return Err(fail(format!("`{name}` differs")));
            }
        }
        Ok(())
    });
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A seed means the same graph for ever, and what is printed is a graph.
#[test]
fn entries_depend_on_their_seed_alone() {
    for seed in 0..50 {
        let entry = Entry::generate(seed);
        assert_eq!(entry.print(), Entry::generate(seed).print());
        let text = print_graph(&[entry]);
        tfc::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    }
}
