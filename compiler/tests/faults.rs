//! Whatever happens to the processes of a job, to their network and to their disk,
//! training ends with the right answer, nothing is lost beyond the last checkpoint that
//! was complete, nobody waits longer than said, and every error names its peer.
//!
//! | what fails | runs |
//! |---|---|
//! | parameter servers, chief or workers are killed or stopped for a while, in each mode | 36 |
//! | the same of workers that train in `sync`, and of a program cut in two | 16 |
//! | the same of jobs that outlive losses, twice in a row, and while a checkpoint is saved | 23 |
//! | workers that only meet from time to time are killed | 2 |
//! | the same of a job whose data comes from readers and queues, to servers | 12 |
//! | a process hangs for good: the job ends, or it is started again | 8 |
//! | the disk is full while a checkpoint is saved | 7 |
//! | the network loses packets, any or those that matter, is slow, is cut and healed, or cut for good | 30 |
//! | the launcher is killed | 4 |

#[path = "faults/disk.rs"]
mod disk;
#[path = "faults/job.rs"]
mod job;
#[path = "faults/network.rs"]
mod network;
#[path = "support/project.rs"]
mod project;
mod support;
#[path = "faults/wires.rs"]
mod wires;

use job::{Job, Random, same, weights};
use project::project;
use std::path::Path;
use std::time::Duration;
use support::{TRAIN, ok, tfc};

/// Which process of a job, among the launcher's children: servers first.
#[derive(Clone, Copy, Debug)]
enum Role {
    Server,
    Chief,
    Worker,
}

impl Role {
    fn at(self, servers: usize) -> usize {
        match self {
            Role::Server => servers - 1,
            Role::Chief => servers,
            Role::Worker => servers + 1,
        }
    }
}

const SIGNALS: [&[&str]; 2] = [&["-KILL"], &["-STOP", "-CONT"]];
const STEPS: usize = 500;

/// A job of which one process gets signals in some step, after something was saved.
fn disturbed(project: &Path, line: &str, at: usize, signals: &[&str], random: &mut Random) -> Job {
    let mut job = Job::launch(project, &format!("{line} --checkpoint-dir ck --save-every 20"));
    job.disturb(at, signals, random);
    job.end();
    job.went_well();
    job
}

#[test]
fn processes_of_jobs_with_servers() {
    let long = format!("{TRAIN} --steps {STEPS} --epochs 1000");
    let dir = project();
    let dir = dir.path();
    ok(tfc(dir, &format!("launch --ps 2 -n 3 {long} --state ps.safetensors")));
    let whole = weights(&dir.join("ps.safetensors"));
    let mut random = Random::new(12345);
    for mode in ["ps-sync", "backup --need 2", "ps-async --staleness 20"] {
        for role in [Role::Server, Role::Chief, Role::Worker] {
            for signals in SIGNALS {
                for _ in 0..2 {
                    let line = format!(
                        "launch --ps 2 -n 3 --restarts 5 {long} --mode {mode} --state s.safetensors"
                    );
                    let job = disturbed(dir, &line, role.at(2), signals, &mut random);
                    let now = weights(&job.dir().join("s.safetensors"));
                    if mode == "ps-sync" {
                        same(&whole, &now, &job.said());
                    } else {
                        job.has_learned();
                    }
                }
            }
        }
    }
}

#[test]
fn processes_of_jobs_without_servers() {
    let long = format!("{TRAIN} --steps {STEPS} --epochs 1000");
    let dir = project();
    let dir = dir.path();
    ok(tfc(dir, &format!("launch -n 3 {long} --state sync.safetensors")));
    let whole = weights(&dir.join("sync.safetensors"));
    let cut = job::cut_project();
    let cut = cut.path();
    let halves = weights(&{
        ok(tfc(cut, &format!("launch -n 2 {long} --state cut.safetensors")));
        cut.join("cut.safetensors")
    });
    let mut random = Random::new(99);
    for at in [0, 1] {
        for signals in SIGNALS {
            for _ in 0..2 {
                let line = format!("launch -n 3 --restarts 5 {long} --state s.safetensors");
                let job = disturbed(dir, &line, at, signals, &mut random);
                same(&whole, &weights(&job.dir().join("s.safetensors")), &job.said());
                // Two halves of the network, on two tasks.
                let line = format!("launch -n 2 --restarts 5 {long} --state s.safetensors");
                let job = disturbed(cut, &line, at, signals, &mut random);
                same(&halves, &weights(&job.dir().join("s.safetensors")), &job.said());
            }
        }
    }
}

/// To rounding as if nothing had happened: sums over fewer workers are in another order.
#[track_caller]
fn near(whole: &job::Weights, now: &job::Weights, said: &str) {
    assert_eq!(whole.len(), now.len());
    for ((name, a), (_, b)) in whole.iter().zip(now) {
        let most = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
        assert!(most < 0.02, "{name} is off by {most}: {said}");
    }
}

/// Whoever is lost: with `wait` it is started again by itself and training ends with the
/// same bits, with `shrink` the others go on without a worker.
#[test]
fn processes_of_jobs_that_outlive_losses() {
    let dir = project();
    let dir = dir.path();
    let long = format!("{TRAIN} --steps {STEPS} --epochs 1000");
    ok(tfc(dir, &format!("launch -n 3 {long} --state sync.safetensors")));
    let whole = weights(&dir.join("sync.safetensors"));
    let mut random = Random::new(2026);
    let check = |policy: &str, job: &Job| {
        let now = weights(&job.dir().join("s.safetensors"));
        match policy {
            "wait" => same(&whole, &now, &job.said()),
            _ => near(&whole, &now, &job.said()),
        }
    };
    for (policy, roles) in [("wait", &[0, 1, 2][..]), ("shrink", &[1, 2])] {
        let line = format!(
            "launch -n 3 --restarts 5 {long} --on-loss {policy} --join-timeout 30s \
             --state s.safetensors"
        );
        for at in roles {
            for signals in SIGNALS {
                check(policy, &disturbed(dir, &line, *at, signals, &mut random));
            }
        }
        // Two of them: at once, while the group is formed again, and a little later.
        for (round, pause) in [0, 8, 25, 80].into_iter().enumerate() {
            let mut job = Job::launch(dir, &format!("{line} --checkpoint-dir ck --save-every 20"));
            job.until_saved(1);
            job.remember_saved();
            let pids = job.children();
            let other = if policy == "wait" { round % 2 } else { 2 - round % 2 };
            for at in [1 + round % 2, other] {
                // It may have ended.
                pids.get(at).map(|pid| job::signal(*pid, "-KILL"));
                std::thread::sleep(Duration::from_millis(pause));
            }
            job.end();
            job.went_well();
            check(policy, &job);
        }
    }
    // While a checkpoint is saved, as one always is.
    for at in [0, 1] {
        let line = format!("launch -n 3 --restarts 5 {long} --on-loss wait --state s.safetensors");
        let mut job = Job::launch(dir, &format!("{line} --checkpoint-dir ck --save-every 1"));
        job.disturb(at, SIGNALS[0], &mut random);
        job.end();
        job.went_well();
        check("wait", &job);
    }
}

/// A job of which one process hangs for good in some step before the last ones.
fn hung(project: &Path, line: &str, at: usize, random: &mut Random) -> Job {
    for _ in 0..20 {
        let mut job = Job::launch(project, &format!("{line} --checkpoint-dir ck --save-every 20"));
        job.disturb(at, &["-STOP"], random);
        // Nobody is more than a step ahead of one that is stopped.
        let early = job.checkpoints().last().is_some_and(|s| *s + 40 < STEPS as u64);
        job.end();
        job.went_well();
        if early {
            return job;
        }
    }
    panic!("the job is over before anything can happen to it");
}

/// Hangs for good: the others wait for it no longer than said. With `wait` the launcher ends
/// it and starts it again, with `shrink` they go on without.
#[test]
fn processes_that_hang_are_outlived() {
    let dir = project();
    let dir = dir.path();
    let long = format!("{TRAIN} --steps {STEPS} --epochs 1000 --peer-timeout 5s");
    ok(tfc(dir, &format!("launch -n 3 {long} --state sync.safetensors")));
    let whole = weights(&dir.join("sync.safetensors"));
    let outlived = |(policy, restarts, at): (&str, usize, usize)| {
        let line = format!(
            "launch -n 3 --restarts {restarts} {long} --on-loss {policy} --join-timeout 30s \
             --state s.safetensors"
        );
        let job = hung(dir, &line, at, &mut Random::new(7 + at as u64));
        let now = weights(&job.dir().join("s.safetensors"));
        let said = job.said();
        let lost = format!("worker {at}");
        if policy == "wait" {
            same(&whole, &now, &said);
            assert!(said.contains(&format!("{lost} does not answer, so it is killed")), "{said}");
        } else {
            near(&whole, &now, &said);
            assert!(said.contains(&format!("{lost} is lost, 2 workers are left")), "{said}");
        }
    };
    side_by_side(outlived, [("wait", 5, 0), ("wait", 5, 1), ("shrink", 0, 2)]);
}

/// Between two averages each worker has weights of its own: what is lost with it is what it
/// learned since the last one.
#[test]
fn processes_that_meet_from_time_to_time() {
    let dir = project();
    let mut random = Random::new(5);
    let long = format!("{TRAIN} --steps {STEPS} --epochs 1000 --mode average --local-steps 5");
    for at in [0, 1] {
        let line = format!("launch -n 2 --restarts 5 {long} --state s.safetensors");
        disturbed(dir.path(), &line, at, SIGNALS[0], &mut random).has_learned();
    }
}

/// Who is started again, or goes back, finds its place in readers and queues.
#[test]
fn processes_that_take_from_queues() {
    let dir = job::pipeline();
    let dir = dir.path();
    let mut random = Random::new(31);
    for program in ["queue", "reader"] {
        let line = format!("launch --ps 2 -n 2 --restarts 5 ./{program} train");
        let whole = weights(&{
            ok(tfc(dir, &format!("{line} --state {program}.safetensors")));
            dir.join(format!("{program}.safetensors"))
        });
        for role in [Role::Server, Role::Chief, Role::Worker] {
            for signals in SIGNALS {
                let line = format!("{line} --state s.safetensors");
                let job = disturbed(dir, &line, role.at(2), signals, &mut random);
                let now = weights(&job.dir().join("s.safetensors"));
                assert_eq!(whole, now, "{program} {role:?} {signals:?}: {}", job.said());
            }
        }
    }
}

/// A process that is stopped and never goes on is named when its time is over, and the job
/// ends.
#[test]
fn processes_that_hang() {
    let dir = project();
    let hangs = |(how, more, at, name): (&str, &str, usize, &str)| {
        let endless = format!("{TRAIN} --steps 1000000 --epochs 1000000 --peer-timeout 5s {more}");
        let line = format!("launch {how} {endless} --checkpoint-dir ck --save-every 20");
        let mut job = Job::launch(dir.path(), &line);
        job.until_saved(1);
        let pid = job.children().get(at).copied();
        let stopped = pid.is_some_and(|pid| job::signal(pid, "-STOP"));
        assert!(stopped && !job.is_over(), "{how}: {}", job.said());
        job.end();
        let said = job.said();
        assert_eq!(job.code(), Some(4), "{how}: {said}");
        assert!(said.contains("error[E0702]") && said.contains(name), "{how}: {said}");
        job.errors_name_peers();
    };
    // Side by side: what takes long is the wait.
    side_by_side(
        hangs,
        [
            ("-n 2", "", 1, "worker 1"),
            ("--ps 1 -n 2", "", 2, "worker 1"),
            ("--ps 2 -n 2", "", 1, "server 1"),
            ("--ps 1 -n 2", "", 1, "worker 0"),
            // Only at the end anybody waits for the chief.
            ("--ps 1 -n 3", "--mode ps-async --steps 3000", 1, "worker 0"),
        ],
    );
}

fn side_by_side<T: Send, const N: usize>(what: impl Fn(T) + Sync, of: [T; N]) {
    std::thread::scope(|s| {
        let what = &what;
        of.into_iter().for_each(|of| drop(s.spawn(move || what(of))));
    });
}

/// With restarts, a process that hangs is ended by the launcher when its time is over, and
/// the job goes on.
#[test]
fn processes_that_hang_are_started_again() {
    let dir = project();
    let dir = dir.path();
    let long = format!("{TRAIN} --steps {STEPS} --epochs 1000 --peer-timeout 5s");
    ok(tfc(dir, &format!("launch --ps 2 -n 2 {long} --state ps.safetensors")));
    let whole = weights(&dir.join("ps.safetensors"));
    let hangs = |(role, seed): (Role, u64)| {
        let line = format!("launch --ps 2 -n 2 --restarts 9 {long} --state s.safetensors");
        let job = disturbed(dir, &line, role.at(2), &["-STOP"], &mut Random::new(seed));
        same(&whole, &weights(&job.dir().join("s.safetensors")), &job.said());
    };
    side_by_side(hangs, [(Role::Server, 77), (Role::Chief, 78), (Role::Worker, 79)]);
}

/// A launcher that is killed, in whatever way, takes its processes with it: also one that
/// is stopped, one behind a shell, and one that was started again.
#[test]
fn launchers() {
    let dir = project();
    let dir = dir.path();
    let endless = format!("{TRAIN} --steps 1000000 --epochs 1000000");
    for (how, restarted) in [("-n 2", None), ("--ps 2 -n 2", None), ("--ps 2 -n 2", Some(0))] {
        let line =
            format!("launch {how} --restarts 2 {endless} --checkpoint-dir ck --save-every 20");
        let mut job = Job::launch(dir, &line);
        job.until_saved(1);
        if let Some(at) = restarted {
            let pid = job.children()[at];
            assert!(job::signal(pid, "-KILL"));
            job.until(|job| job.said().contains("is started again"));
        }
        let pids = job.children();
        assert!(job::signal(pids[1], "-STOP"));
        assert!(job::signal(job.id(), "-KILL"));
        job.end();
        let left = || pids.iter().copied().filter(|p| job::runs(*p)).collect::<Vec<u32>>();
        job::until(|| left().is_empty());
        assert_eq!(left(), [], "of {pids:?}, {how}");
    }
    // What a shell starts is no child of the launcher's.
    std::fs::write(dir.join("train.sh"), format!("{endless} --checkpoint-dir $1\ntrue\n")).unwrap();
    let mut job = Job::launch(dir, "launch -n 2 bash train.sh ck");
    job.until_saved(1);
    let shells = job.children();
    let pids: Vec<u32> = shells.iter().flat_map(|s| job::children(*s)).collect();
    assert_eq!(pids.len(), 2, "{shells:?}");
    assert!(job::signal(job.id(), "-KILL"));
    job.end();
    job::until(|| !pids.iter().any(|p| job::runs(*p)));
    assert!(!pids.iter().any(|p| job::runs(*p)), "{pids:?}");
}
