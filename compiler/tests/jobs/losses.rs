//! Workers that are lost: those that are left go on, or wait until they are back.

use super::mpi::{MPIRUN, mpirun};
use super::ports::free_address;
use super::{close, ended, kill, ok, project, run, saved, signal, started, tfc, until, workers};
use crate::support::{TRAIN, command, variables};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// So that processes can outlive one that is lost.
const ULFM: &str = "--with-ft ulfm";
const STEPS: &str = "--steps 1000 --epochs 1000";

/// The process of a job that has this rank, by what its launcher told it.
fn worker(launcher: u32, rank: usize) -> Option<u32> {
    let told = format!("OMPI_COMM_WORLD_RANK={rank}");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|p| p.file_name().to_str()?.parse().ok()).find(|pid: &u32| {
        let read = |name: &str| std::fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let status = String::from_utf8_lossy(&read("status")).into_owned();
        status.contains(&format!("PPid:\t{launcher}\n"))
            && read("environ").split(|b| *b == 0).any(|v| v == told.as_bytes())
    })
}

/// A job of three of which one is killed once there are checkpoints: how it ended.
fn loses(mpirun: &str, dir: &Path, policy: &str, rank: usize) -> (bool, String) {
    let ck = format!("ck-{policy}-{rank}");
    let line = format!(
        "{MPIRUN} {ULFM} -n 3 {TRAIN} --steps 1500 --epochs 1000 --on-loss {policy} \
         --checkpoint-dir {ck} --save-every 20 --state {policy}-{rank}.safetensors"
    );
    let mut job = command(dir, mpirun, &line);
    let mut job = job.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    until(&mut job, || saved(&dir.join(&ck), 3));
    assert!(worker(job.id(), rank).is_some_and(kill), "there is no worker {rank}");
    let (status, err) = ended(&mut job);
    (status.success(), err)
}

/// As many steps of the same batches: the same weights but for rounding.
#[track_caller]
fn nearly(dir: &Path, whole: &str, now: &str) {
    let (whole, now) = (variables(dir.join(whole)), variables(dir.join(now)));
    assert!(whole.len() == now.len() && whole.len() >= 4);
    for ((name, a), (_, b)) in whole.iter().zip(&now) {
        let most = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(most < 0.02, "{name} is off by {most}");
    }
}

#[test]
fn those_that_are_left_go_on_or_stop_by_policy() {
    let Some(mpirun) = mpirun(ULFM) else { return };
    let dir = project();
    let dir = dir.path();
    ok(run(dir, &format!("{TRAIN} --steps 1500 --epochs 1000 --state whole.safetensors")));
    for rank in [1, 2] {
        let (_, err) = loses(&mpirun, dir, "shrink", rank);
        let words = format!("worker {rank} is lost, 2 workers are left");
        assert!(err.contains("E0701") && err.contains(&words), "{err}");
        nearly(dir, "whole.safetensors", &format!("shrink-{rank}.safetensors"));
    }
    let (success, err) = loses(&mpirun, dir, "stop", 1);
    assert!(!success && err.contains("E0701"), "{err}");
    // The chief has the files: without it nobody goes on.
    let (success, err) = loses(&mpirun, dir, "shrink", 0);
    assert!(!success && err.contains("worker 0 is gone"), "{err}");
}

/// The last step of which a folder has a checkpoint.
fn last_step(dir: &Path) -> usize {
    let names = std::fs::read_dir(dir).unwrap().flatten().map(|f| f.file_name());
    let step = |n: std::ffi::OsString| n.to_str()?.strip_prefix("step-")?.get(..12)?.parse().ok();
    names.filter_map(step).max().unwrap_or(0)
}

/// A job over gRPC of which processes are killed, one after the other, each the one at that
/// place among those that are left; it happens long before the last step.
fn disturbed(dir: &Path, line: &str, ck: &str, kills: &[usize]) -> (Option<i32>, String) {
    let steps: usize =
        line.split("--steps ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    'job: for _ in 0..20 {
        let _ = std::fs::remove_dir_all(dir.join(ck));
        let mut job = started(dir, &format!("{line} --checkpoint-dir {ck} --save-every 10"), ck, 3);
        let launcher = job.id();
        for at in kills {
            let pids = workers(launcher);
            // Nobody is more than a step ahead of a chief that is stopped, and the last
            // checkpoint is of a step not long ago.
            let stopped = pids.first().is_some_and(|chief| signal(*chief, "-STOP"));
            if !stopped || last_step(&dir.join(ck)) + 60 > steps {
                let _ = kill(launcher);
                ended(&mut job);
                continue 'job;
            }
            assert!(kill(pids[*at]), "{line}");
            if *at > 0 {
                assert!(signal(pids[0], "-CONT"), "{line}");
            }
            until(&mut job, || !workers(launcher).contains(&pids[*at]));
        }
        let (status, err) = ended(&mut job);
        return (status.code(), err);
    }
    panic!("the job is over before anything can happen to it: {line}");
}

#[test]
fn over_grpc_those_that_are_left_go_on() {
    let dir = project();
    let dir = dir.path();
    ok(run(dir, &format!("{TRAIN} {STEPS} --state whole.safetensors")));
    for (at, overlap) in [(0, "0"), (1, "1")] {
        let line = format!(
            "launch -n 3 env TFC_OVERLAP={overlap} {TRAIN} {STEPS} --on-loss shrink \
             --metrics m.json --state s{at}.safetensors"
        );
        let (code, err) = disturbed(dir, &line, &format!("ck{at}"), &[1 + at]);
        assert_eq!(code, Some(0), "{err}");
        nearly(dir, "whole.safetensors", &format!("s{at}.safetensors"));
        let rank = 1 + at;
        for words in [
            format!("the job goes on without worker {rank}"),
            format!("worker {rank} is lost, 2 workers are left: the run goes on"),
            "warning[E0701]".into(),
        ] {
            assert!(err.contains(&words), "{words}: {err}");
        }
        let text = std::fs::read_to_string(dir.join("m.json")).unwrap();
        let metrics: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(metrics["losses"]["workers"], 1, "{text}");
        assert_eq!(metrics["losses"]["regrouped"], 1, "{text}");
    }
    // What was saved then is anybody's.
    ok(tfc(
        dir,
        &format!("launch -n 2 {TRAIN} --steps 1020 --epochs 1000 --checkpoint-dir ck0 --resume"),
    ));
    // Two of three.
    let line = format!("launch -n 3 {TRAIN} {STEPS} --on-loss shrink --state two.safetensors");
    let (code, err) = disturbed(dir, &line, "cktwo", &[1, 1]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("one worker is left"), "{err}");
    nearly(dir, "whole.safetensors", "two.safetensors");
    let long = "--steps 1000000 --epochs 1000000";
    // The chief has the files: without it nobody goes on.
    let line = format!("launch -n 3 {TRAIN} {long} --on-loss shrink --state no.safetensors");
    let (code, err) = disturbed(dir, &line, "ckchief", &[0]);
    assert_eq!(code, Some(4), "{err}");
    assert!(err.contains("worker 0 is gone") && !dir.join("no.safetensors").exists(), "{err}");
}

/// The job goes on until the worker is seen, however long it takes to start.
#[test]
fn over_grpc_who_is_started_again_is_let_in() {
    let dir = project();
    let dir = dir.path();
    let line = format!(
        "launch -n 3 --restarts 1 {TRAIN} --steps 1000000 --epochs 1000000 --on-loss shrink \
         --checkpoint-dir ck --save-every 10"
    );
    let mut job = started(dir, &line, "ck", 3);
    assert!(workers(job.id()).get(2).copied().is_some_and(kill));
    let mut said = BufReader::new(job.stderr.take().unwrap());
    let mut err = String::new();
    let back = ["worker 2 is back, 3 workers are there", "3 workers are there again"];
    while !back.iter().any(|b| err.contains(b)) {
        assert_ne!(said.read_line(&mut err).unwrap(), 0, "the job has ended: {err}");
    }
    assert!(err.contains("worker 2 is started again (1 of 1 times)"), "{err}");
    assert!(signal(workers(job.id())[0], "-TERM"));
    said.read_to_string(&mut err).unwrap();
    assert_eq!(job.wait().unwrap().code(), Some(75), "{err}");
    assert!(err.contains("which is saved in `ck`"), "{err}");
}

/// To the bit as if nothing had happened, whoever is lost.
#[test]
fn over_grpc_those_that_are_left_wait() {
    let dir = project();
    let dir = dir.path();
    ok(tfc(dir, &format!("launch -n 3 {TRAIN} {STEPS} --state whole.safetensors")));
    for (at, kills) in [&[1][..], &[2, 1], &[0], &[2, 0]].into_iter().enumerate() {
        let line = format!(
            "launch -n 3 --restarts 5 {TRAIN} {STEPS} --on-loss wait --state s{at}.safetensors"
        );
        let (code, err) = disturbed(dir, &line, &format!("ck{at}"), kills);
        assert_eq!(code, Some(0), "{kills:?}: {err}");
        let now = variables(dir.join(format!("s{at}.safetensors")));
        assert_eq!(variables(dir.join("whole.safetensors")), now, "{kills:?}: {err}");
        // Nobody but who died.
        assert!(!err.contains("the job is started again"), "{err}");
        let again = format!("is started again ({} of 5 times)", kills.len());
        assert!(err.contains("was killed") && err.contains(&again), "{kills:?}: {err}");
    }
}

#[test]
fn a_worker_that_does_not_come_back_ends_the_job() {
    let dir = project();
    let dir = dir.path();
    let long =
        format!("{TRAIN} --steps 1000000 --epochs 1000000 --on-loss wait --join-timeout 20s");
    let (code, err) = disturbed(dir, &format!("launch -n 3 {long}"), "ck", &[1]);
    assert_eq!(code, Some(4), "{err}");
    for words in [
        "the job cannot go on without worker 1",
        "note: waiting for worker 1 to come back, for 20 s at most",
        "error[E0702]: worker 1 has not come back within 20 s",
        "are in `ck`",
    ] {
        assert!(err.contains(words), "{words}: {err}");
    }
    // All that it had done is saved, and can be gone on with.
    let more = format!("{TRAIN} --steps {} --epochs 1000000", saved_steps(&err) + 20);
    ok(tfc(
        dir,
        &format!("launch -n 3 {more} --checkpoint-dir ck --resume --state on.safetensors"),
    ));
    ok(tfc(dir, &format!("launch -n 3 {more} --state whole.safetensors")));
    close(&variables(dir.join("whole.safetensors")), &variables(dir.join("on.safetensors")));
}

/// How many steps a job that has failed has saved, as it says.
#[track_caller]
fn saved_steps(err: &str) -> usize {
    let said = err.split("the ").filter_map(|t| t.split_once(" steps before it are in `ck"));
    said.last().and_then(|s| s.0.parse().ok()).unwrap_or_else(|| panic!("nothing is saved: {err}"))
}

/// The same of an entry that takes no batches, wherever in a step the worker is lost.
#[test]
fn what_a_job_without_batches_had_done_is_saved() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let graph = "graph s\nuse optim\nvar w: f32[3] = ones\n\
                 entry train() -> (loss: f32[]) {\n  loss = sum(w * w)\n  \
                 minimize loss over [w] with optim.sgd(lr: 1e-4)\n  return loss\n}\n";
    std::fs::write(dir.join("s.graph"), graph).unwrap();
    ok(tfc(dir, "compile s.graph -o s"));
    let lost = |round: usize| {
        let ck = format!("ck{round}");
        // Seldom saved: where workers are most of the time is where they meet after a step.
        let line = format!(
            "launch -n 3 ./s train --steps 100000000 --on-loss wait --join-timeout 20s \
             --checkpoint-dir {ck} --save-every 1000"
        );
        let mut job = started(dir, &line, &ck, 2);
        std::thread::sleep(Duration::from_millis(50));
        assert!(kill(workers(job.id())[1]));
        let (status, err) = ended(&mut job);
        assert_eq!(status.code(), Some(4), "{err}");
        assert!(err.contains("error[E0702]: worker 1 has not come back within 20 s"), "{err}");
        let step = saved_steps(&err);
        let last = dir.join(format!("{ck}/step-{step:012}.json"));
        assert!(last.exists(), "{}: {err}", last.display());
    };
    // Each takes as long as a worker is waited for.
    std::thread::scope(|s| (0..3).for_each(|round| drop(s.spawn(move || lost(round)))));
}

/// While a worker is waited for, a signal ends the job as at any other time: to the chief, or
/// to another one.
#[test]
fn a_job_that_waits_can_be_stopped() {
    let dir = project();
    let dir = dir.path();
    for (ck, asked) in [("ck0", 0), ("ck1", 2)] {
        let line = format!(
            "launch -n 3 {TRAIN} --steps 1000000 --epochs 1000000 --on-loss wait \
             --join-timeout 300s --checkpoint-dir {ck} --save-every 10"
        );
        let mut job = started(dir, &line, ck, 3);
        let pids = workers(job.id());
        assert!(kill(pids[1]));
        let mut said = BufReader::new(job.stderr.take().unwrap());
        let mut err = String::new();
        while !err.contains("waiting for worker 1 to come back") {
            assert_ne!(said.read_line(&mut err).unwrap(), 0, "the job has ended: {err}");
        }
        assert!(signal(pids[asked], "-TERM"));
        said.read_to_string(&mut err).unwrap();
        assert_eq!(job.wait().unwrap().code(), Some(75), "{err}");
        assert!(err.contains(&format!("which is saved in `{ck}`")), "{err}");
    }
}

/// A chief that was asked to stop is lost while it saves: those that have heard of the request
/// do not leave, as there are steps to do again.
#[test]
fn a_chief_that_is_lost_while_it_stops_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // What is not trained is saved, too, which takes a moment.
    let graph = "graph s\nuse optim\nvar w: f32[3] = ones\nvar large: f32[16000000] = zeros\n\
                 entry all() -> (sum: f32[]) { return sum(large) }\n\
                 entry train() -> (loss: f32[]) {\n  loss = sum(w * w)\n  \
                 minimize loss over [w] with optim.sgd(lr: 1e-4)\n  return loss\n}\n";
    std::fs::write(dir.join("s.graph"), graph).unwrap();
    ok(tfc(dir, "compile s.graph -o s"));
    let line = "launch -n 3 --restarts 1 ./s train --steps 100000000 --on-loss wait \
                --join-timeout 20s --checkpoint-dir ck --save-every 3000";
    let written = || {
        let files = std::fs::read_dir(dir.join("ck")).unwrap().flatten().map(|f| f.file_name());
        files.collect::<std::collections::BTreeSet<_>>()
    };
    let mut job = started(dir, line, "ck", 2);
    let chief = workers(job.id())[0];
    let before = written();
    assert!(signal(chief, "-TERM"));
    until(&mut job, || written() != before);
    assert!(kill(chief));
    let mut said = BufReader::new(job.stderr.take().unwrap());
    let mut err = String::new();
    while !err.contains("3 workers are there again") && !err.contains("resuming from step") {
        assert_ne!(said.read_line(&mut err).unwrap(), 0, "the job has ended: {err}");
    }
    // It goes on, until it is asked once more.
    let before = written();
    until(&mut job, || written() != before);
    assert!(signal(workers(job.id())[0], "-TERM"));
    said.read_to_string(&mut err).unwrap();
    assert_eq!(job.wait().unwrap().code(), Some(75), "{err}");
}

#[test]
fn what_cannot_be_outlived_is_said() {
    let dir = project();
    let dir = dir.path();
    let refused = |line: &str, why: &str| {
        let out = tfc(dir, &format!("launch -n 2 {line}"));
        let err = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{line}: {err}");
        assert!(err.contains("E0705") && err.contains(why), "{line}: {err}");
    };
    for policy in ["shrink", "wait"] {
        let average = format!("{TRAIN} --mode average --local-steps 2 --on-loss {policy}");
        refused(&average, "mode `average`");
        let own = TRAIN.replace("x=x.npy", "x=x{rank}.npy");
        refused(&format!("{own} --on-loss {policy}"), "data of its own");
        let once = format!("./m train --feed x=x.npy --feed y=y.npy --on-loss {policy}");
        refused(&once, "called once");
        refused(&format!("{TRAIN} --trace-job t.json --on-loss {policy}"), "--trace-job");
    }
    let out = run(dir, &format!("{TRAIN} --on-loss pause"));
    assert!(String::from_utf8_lossy(&out.stderr).contains("stop, shrink or wait"));
    // Nor can they have different ideas of it.
    let at = free_address().to_string();
    let member = |rank: &str, policy: &str| {
        let line = TRAIN.trim_start_matches("./m ");
        let more = format!("{line} --on-loss {policy} --join-timeout 20s");
        let mut c = command(dir, "./m", &more);
        c.env("TFC_RANK", rank).env("TFC_SIZE", "2").env("TFC_COORDINATOR", &at);
        c.stdout(Stdio::piped()).stderr(Stdio::piped());
        c
    };
    let chief = member("0", "wait").spawn().unwrap();
    let wrong = member("1", "shrink").output().unwrap();
    let err = String::from_utf8_lossy(&wrong.stderr);
    assert!(err.contains("E0703") && err.contains("the job's is `wait`"), "{err}");
    ok(member("1", "wait").output().unwrap());
    ok(chief.wait_with_output().unwrap());
}
