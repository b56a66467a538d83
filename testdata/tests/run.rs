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

/// One compilation, three batch sizes, three ways of running; training included,
/// with its loss and the variables after a step.
#[test]
fn examples_at_batch_1_7_and_64() {
    // A gradient of the MLP has come through sums of 784 and 512 terms in f32, whose
    // rounding may be 5e-5 of the terms, so Adam's moments are held to 1e-4. Adam divides
    // by the size of the gradient: where that is next to nothing, the new variable may be
    // off by more than the gradient is, by as much as `Subject::adam_slack` works out.
    let variants = [
        ("mlp", "B = 1,7,64; vars_tol = 1e-4; adam = 1e-3"),
        ("convnet", "B = 1,7,64"),
        ("norms", "B = 1,7,64; T = 33,1,5"),
    ];
    let examples = corpus::examples();
    let cases = variants.iter().map(|(name, options)| {
        let case = examples.iter().find(|c| c.name == *name).expect("an example of this name");
        let text = format!("//! run; tol = 1e-5; {options}\n{}", case.text);
        Case { text, ..case.clone() }
    });
    all_agree(cases.collect());
}
