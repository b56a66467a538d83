//! Disks that are full while a checkpoint is saved.

use super::job::{self, Job, Weights, beside, same, weights};
use super::project::project;
use super::support::{TRAIN, command, ok, tfc};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A small disk.
struct Disk {
    at: PathBuf,
}

impl Disk {
    /// None, with a message, where that is not permitted.
    fn mount(at: &Path) -> Option<Disk> {
        std::fs::create_dir(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=160k", "none"]).arg(at);
        if mount.output().is_ok_and(|o| o.status.success()) {
            return Some(Disk { at: at.to_owned() });
        }
        eprintln!("skipped: disks of its own are not permitted here");
        None
    }

    /// Takes all the room there is until `over`, looks around, and gives it back.
    fn fill(&self, over: impl Fn() -> bool, look: impl FnOnce()) {
        let ballast = self.at.join("ballast");
        let mut file = std::fs::File::create(&ballast).unwrap();
        while !over() {
            while file.write_all(&[1; 4096]).is_ok() {}
            std::thread::sleep(Duration::from_millis(1));
        }
        look();
        drop(file);
        std::fs::remove_file(ballast).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

const LONG: &str = "--steps 1500 --epochs 1000";

fn undisturbed(project: &Path, how: &str) -> Weights {
    let dir = beside(project);
    ok(tfc(&dir, &format!("launch {how} {TRAIN} {LONG} --state whole.safetensors")));
    weights(&dir.join("whole.safetensors"))
}

/// The run goes on without checkpoints, says so, and saves again when there is room; a
/// process that is killed meanwhile goes on from the last one that is complete.
#[test]
fn disks_that_are_full_for_a_while() {
    let (whole, cut) = (project(), job::cut_project());
    let (whole, cut) = (whole.path(), cut.path());
    for (project, how, killed) in [
        (whole, "-n 2", None),
        (whole, "--ps 2 -n 2", None),
        (cut, "-n 2", None),
        (whole, "--ps 2 -n 2", Some(1)),
        (whole, "-n 2", Some(1)),
    ] {
        let right = undisturbed(project, how);
        let dir = beside(project);
        let Some(disk) = Disk::mount(&dir.join("ck")) else { return };
        let line = format!(
            "launch {how} --restarts 5 {TRAIN} {LONG} --state s.safetensors --checkpoint-dir ck \
             --save-every 10 --keep 2"
        );
        let mut job = Job::start(dir.clone(), command(&dir, env!("CARGO_BIN_EXE_tfc"), &line));
        job.until_saved(2);
        let over = |job: &Job| job.said().contains("is not saved") || !job::runs(job.id());
        let look = || {
            let text = ok(tfc(&dir, "ckpt verify ck"));
            let good = text.lines().count() > 0 && text.lines().all(|l| l.contains(": good"));
            assert!(good, "{text}");
        };
        disk.fill(|| over(&job), look);
        job.remember_saved();
        let said = job.said();
        let told = said.contains("is not saved") && said.contains("the last good checkpoint");
        assert!(told, "{said}");
        if let Some(at) = killed
            && let Some(pid) = job.children().get(at)
        {
            job::signal(*pid, "-KILL");
        }
        job.end();
        job.went_well();
        same(&right, &weights(&dir.join("s.safetensors")), &job.said());
        let last = *job.checkpoints().last().unwrap();
        assert_eq!(last, 1500, "it saved again: {}", job.said());
        let left = std::fs::read_dir(dir.join("ck")).unwrap().flatten();
        let left: Vec<_> = left.map(|f| f.file_name().into_string().unwrap()).collect();
        assert!(left.iter().all(|n| !n.ends_with(".tmp")), "{left:?}");
    }
}

/// No room for the last checkpoint is an error; the one before stays, and is enough.
#[test]
fn disks_that_stay_full() {
    let project = project();
    let project = project.path();
    for (how, who) in [("-n 2", "ck"), ("--ps 2 -n 2", "parameter server")] {
        let right = undisturbed(project, how);
        let dir = beside(project);
        let begun = format!("{TRAIN} --steps 50 --epochs 1000 --checkpoint-dir ck");
        ok(tfc(&dir, &format!("launch {how} {begun}")));
        let saved = job::checkpoints(&dir.join("ck"));
        // No file may become longer than this, as if there were no room for more.
        let limited = format!(
            "trap '' XFSZ; ulimit -f 1; exec {} launch {how} {TRAIN} --steps 200 --epochs 1000 \
             --checkpoint-dir ck --resume",
            env!("CARGO_BIN_EXE_tfc")
        );
        let mut shell = command(&dir, "bash", "-c");
        shell.arg(limited);
        let mut job = Job::start(dir.clone(), shell);
        job.end();
        let said = job.said();
        assert_eq!(job.code(), Some(3), "{said}");
        assert!(said.contains("error[E08") && said.contains(who), "{said}");
        assert_eq!(job::checkpoints(&dir.join("ck")), saved, "{said}");
        assert!(ok(tfc(&dir, "ckpt verify ck")).lines().all(|l| l.contains(": good")));
        let rest = format!("{TRAIN} {LONG} --checkpoint-dir ck --resume --state s.safetensors");
        ok(tfc(&dir, &format!("launch {how} {rest}")));
        same(&right, &weights(&dir.join("s.safetensors")), &said);
    }
}
