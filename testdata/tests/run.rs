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

/// One compilation, three batch sizes, three ways of running: predictions,
/// losses, and the variables after a step of training.
#[test]
fn examples_at_batch_1_7_and_64() {
    let dir = scratch();
    let cases = corpus::examples();
    for name in ["mlp", "convnet", "norms"] {
        let case = cases.iter().find(|c| c.name == name).expect("an example of this name");
        let case = Case {
            text: format!("//! run; B = 1,7,64; T = 33,1,5; tol = 1e-5\n{}", case.text),
            ..case.clone()
        };
        let subject = Subject::new(&case, dir.path()).unwrap_or_else(|e| panic!("{name}: {e}"));
        let calls = subject.agree().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(calls, 3 * subject.graph.entries.len());
    }
}
