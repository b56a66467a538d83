//! Workers that are lost where MPI can live with it: those that are left go on.

use super::{ended, ok, project, run, tfc};
use crate::support::{TRAIN, command, variables};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MPIRUN: &str = "--allow-run-as-root --oversubscribe --with-ft ulfm";

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
fn loses(dir: &Path, policy: &str, rank: usize) -> (bool, String) {
    let ck = format!("ck-{policy}-{rank}");
    let line = format!(
        "{MPIRUN} -n 3 {TRAIN} --steps 1500 --epochs 1000 --on-loss {policy} \
         --checkpoint-dir {ck} --save-every 20 --state {policy}-{rank}.safetensors"
    );
    let mut job = command(dir, "mpirun", &line);
    let mut job = job.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let give_up = Instant::now() + Duration::from_secs(60);
    let written = || std::fs::read_dir(dir.join(&ck)).map_or(0, |d| d.count());
    while written() < 3 && Instant::now() < give_up {
        std::thread::sleep(Duration::from_millis(2));
    }
    let pid = worker(job.id(), rank);
    let killed = pid.is_some_and(|pid| {
        Command::new("kill").args(["-9", &pid.to_string()]).status().is_ok_and(|s| s.success())
    });
    assert!(killed, "there is no worker {rank}");
    let (status, err) = ended(&mut job);
    (status.success(), err)
}

#[test]
fn those_that_are_left_go_on_or_stop_by_policy() {
    let able = Command::new("mpirun").args(MPIRUN.split(' ')).args(["-n", "1", "true"]).output();
    if !able.is_ok_and(|o| o.status.success()) {
        eprintln!("skipped: there is no mpirun with ULFM here");
        return;
    }
    let dir = project();
    let dir = dir.path();
    let whole = format!("{TRAIN} --steps 1500 --epochs 1000 --state whole.safetensors");
    ok(run(dir, &whole));
    let whole = variables(dir.join("whole.safetensors"));
    for rank in [1, 2] {
        let (_, err) = loses(dir, "shrink", rank);
        assert!(err.contains("E0701") && err.contains("2 workers are left"), "{err}");
        // As many steps of the same batches: the same weights but for rounding.
        let left = variables(dir.join(format!("shrink-{rank}.safetensors")));
        for ((name, a), (_, b)) in whole.iter().zip(&left) {
            let most = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0f32, f32::max);
            assert!(most < 0.02, "{name} is off by {most} after worker {rank} was lost");
        }
    }
    let (success, err) = loses(dir, "stop", 1);
    assert!(!success && err.contains("E0701"), "{err}");
    // The chief has the files: without it nobody goes on.
    let (success, err) = loses(dir, "shrink", 0);
    assert!(!success && err.contains("worker 0 is gone"), "{err}");
}

#[test]
fn engines_that_cannot_shrink_say_so() {
    let dir = project();
    let out = tfc(dir.path(), &format!("launch -n 2 {TRAIN} --on-loss shrink"));
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && err.contains("E0705"), "{err}");
    assert!(err.contains("--with-ft ulfm") && err.contains("gRPC"), "{err}");
    let out = run(dir.path(), &format!("{TRAIN} --on-loss wait"));
    assert!(String::from_utf8_lossy(&out.stderr).contains("stop or shrink"));
}
