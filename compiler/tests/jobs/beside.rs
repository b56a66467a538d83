//! Exchanges that go on beside the rest of the backward pass: the numbers are the same,
//! and a step that fails in the middle has changed nothing.

use super::{command, ended, ok, run, started, tfc, variables, workers};
use crate::support::close;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tfc::net::Group;
use tfc::net::collective::Reduce;
use tfc::net::local;

/// The gradients of both weights are large: each is an exchange, that of `w2` the first.
const LARGE: &str = "graph m
use init
use optim
dim B
var w1: f32[550, 500] = init.glorot(seed: 1)
var w2: f32[500, 600] = init.glorot(seed: 2)
var c: f32[600] = zeros
entry train(x: f32[B, 550], y: f32[B, 600]) -> (loss: f32[]) {
  d = tanh(x @ w1) @ w2 + c - y
  loss = mean(d * d)
  minimize loss over [w1, w2] with optim.momentum(lr: 0.5)
  return loss
}
entry data(seed: i64[]) -> (x: f32[24, 550], y: f32[24, 600]) {
  x = random_normal(seed, shape: [24, 550], dtype: f32)
  return x, tanh(pad(x, low: [0, 0], high: [0, 50]))
}
";

fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("m.graph"), LARGE).unwrap();
    ok(tfc(dir.path(), "compile m.graph -o m"));
    ok(run(dir.path(), "./m data --feed seed=7 --out x=x.npy --out y=y.npy"));
    dir
}

const STEPS: &str = "./m train --feed x=x.npy --feed y=y.npy --batch 12 --epochs 10 --shuffle 3";

fn job(dir: &Path, beside: &str, n: usize, state: &str) -> Vec<(String, Vec<f32>)> {
    let state = &format!("{n}-{state}");
    let line = format!("launch -n {n} {STEPS} --state {state}");
    let mut job = command(dir, env!("CARGO_BIN_EXE_tfc"), &line);
    ok(job.env("TFC_OVERLAP", beside).output().unwrap());
    variables(dir.join(state))
}

#[test]
fn the_same_bits_whether_exchanges_overlap_or_not() {
    let dir = project();
    let dir = dir.path();
    ok(run(dir, &format!("{STEPS} --state one.safetensors")));
    let one = variables(dir.join("one.safetensors"));
    for n in [2, 3] {
        let beside = job(dir, "1", n, "beside.safetensors");
        close(&one, &beside);
        assert_eq!(beside, job(dir, "1", n, "again.safetensors"), "{n} workers, twice");
        assert_eq!(beside, job(dir, "0", n, "after.safetensors"), "{n} workers, one by one");
    }
}

#[test]
fn a_job_whose_worker_dies_in_an_exchange_ends_as_if_nothing_had_happened() {
    let dir = project();
    let dir = dir.path();
    let long = format!("{STEPS} --steps 300 --epochs 1000");
    ok(tfc(dir, &format!("launch -n 3 {long} --state whole.safetensors")));
    for kill in [1, 2] {
        let ck = format!("ck{kill}");
        let kept = format!("{long} --checkpoint-dir {ck} --save-every 10");
        let line = format!("launch -n 3 --restarts 5 {kept} --state {kill}.safetensors");
        let mut job = started(dir, &line, &ck, 3);
        let worker = workers(job.id()).get(kill).copied();
        let killed = worker.is_some_and(|pid| {
            Command::new("kill").args(["-9", &pid.to_string()]).status().is_ok_and(|s| s.success())
        });
        let (status, err) = ended(&mut job);
        assert!(status.success(), "{err}");
        assert!(!killed || err.contains("E0701"), "{err}");
        let after = variables(dir.join(format!("{kill}.safetensors")));
        assert_eq!(variables(dir.join("whole.safetensors")), after);
    }
}

/// Runs one step as worker 0 of two, of which the other does the first exchange and then
/// what is said; gives what the step came to.
fn half_a_step(wait: Duration, then: impl FnOnce(Group) -> Option<Group> + Send) -> String {
    let graph = tfc::parse(LARGE).unwrap();
    let options = tfc::Options::new().replicas(true).threads(1);
    let module = tfc::compile_with(&graph, &options).unwrap();
    let mut groups = local::groups(2, wait);
    let other = groups.pop().unwrap();
    module.join(Arc::new(groups.pop().unwrap()));
    let before = ["w1", "w2"].map(|name| module.var::<f32>(name).unwrap());
    let (x, y) = (ndarray::Array2::<f32>::ones((4, 550)), ndarray::Array2::<f32>::ones((4, 600)));
    let error = std::thread::scope(|s| {
        let helper = s.spawn(move || {
            let mut gradient = vec![0; 500 * 600 * 4];
            let part = &mut [(tfc::DType::F32, &mut gradient[..])];
            other.all_reduce(part, Reduce::Mean, "the gradient of `w2`", "").unwrap();
            then(other)
        });
        let error = module.call("train", (&x, &y)).unwrap_err().to_string();
        // Nothing is taken up again by a group that has failed.
        let again = module.call("train", (&x, &y)).unwrap_err().to_string();
        assert!(again.contains("E070"), "{again}");
        drop(helper.join().unwrap());
        error
    });
    for (name, old) in ["w1", "w2"].iter().zip(before) {
        assert_eq!(module.var::<f32>(name).unwrap(), old, "{name} was changed by half a step");
    }
    error
}

#[test]
fn a_step_that_fails_between_two_exchanges_changes_nothing() {
    let error = half_a_step(Duration::from_secs(20), |group| {
        drop(group);
        None
    });
    assert!(error.contains("E0701") && error.contains("worker 1"), "{error}");
}

#[test]
fn a_deadline_that_passes_beside_a_step_names_peer_tensor_and_line() {
    let error = half_a_step(Duration::from_secs(5), Some);
    for part in ["E0702", "worker 1", "w1", ":11:"] {
        assert!(error.contains(part), "{part}: {error}");
    }
}
