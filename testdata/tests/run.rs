//! Every op and every example, run in every way, gives the same numbers.

use tfc_testdata::corpus::{self, Case};
use tfc_testdata::ways::{Subject, in_parallel, scratch};

fn all_agree(cases: Vec<Case>) {
    let dir = scratch();
    let failures = in_parallel(&cases, |case| {
        let subject =
            Subject::new(case, dir.path()).map_err(|e| format!("{}: {e}", case.path.display()))?;
        let calls = subject.agree()?;
        if calls == 0 { Err(format!("{}: nothing was run", case.name)) } else { Ok(()) }
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

#[test]
fn ops() {
    let cases: Vec<Case> =
        corpus::cases("ops").into_iter().filter(|c| c.directive().verb == "run").collect();
    assert!(cases.len() > 50, "the corpus has a case per op");
    all_agree(cases);
}

#[test]
fn programs() {
    let mut cases = corpus::cases("run");
    cases.retain(|c| c.directive().verb == "run");
    all_agree(cases);
}
