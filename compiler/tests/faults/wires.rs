//! Networks that fail: the processes of a job are on two hosts, and the cable between them
//! is bad, pulled and put back, or pulled for good.

use super::job::{self, Process, Random, Weights, beside, weights};
use super::network::{AT, Hosts};
use super::project::project;
use super::support::{TRAIN, close, command, ok, run};
use std::path::Path;
use std::time::Duration;

/// What kind of job it is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Two workers.
    Sync,
    /// Two workers and two servers, one of each on each host.
    Served(&'static str),
    /// A program in two parts.
    Cut,
}

/// The processes of a job on two hosts, the chief first.
fn start(hosts: &Hosts, dir: &Path, kind: Kind, steps: usize, more: &str) -> Vec<Process> {
    let member = |rank, role| start_one(hosts, dir, kind, steps, more, (rank, role));
    let mut all = vec![member(0, "worker"), member(1, "worker")];
    if let Kind::Served(_) = kind {
        all.extend([member(0, "ps"), member(1, "ps")]);
    }
    all
}

/// One of them, on the host of its number.
fn start_one(
    hosts: &Hosts,
    dir: &Path,
    kind: Kind,
    steps: usize,
    more: &str,
    (rank, role): (usize, &str),
) -> Process {
    let mode =
        if let Kind::Served(mode) = kind { format!(" --mode {mode}") } else { String::new() };
    let train = format!(
        "{TRAIN} --steps {steps} --epochs 100000 --checkpoint-dir ck --save-every 20 {more}{mode}"
    );
    let mut c = command(dir, "ip", &hosts.on(rank, &train));
    c.env("TFC_RANK", rank.to_string()).env("TFC_SIZE", "2").env("TFC_PLAINTEXT", "1");
    match kind {
        Kind::Served(_) => {
            let servers = AT.map(|at| format!("{at}:7000")).join(",");
            c.env("TFC_SERVERS", servers).env("TFC_ROLE", role);
        }
        Kind::Sync | Kind::Cut => {
            c.env("TFC_COORDINATOR", format!("{}:7171", AT[0]));
        }
    }
    Process::start(c)
}

/// The programs.
struct Programs {
    whole: tempfile::TempDir,
    cut: tempfile::TempDir,
}

impl Programs {
    fn new() -> Programs {
        Programs { whole: project(), cut: job::cut_project() }
    }

    /// A folder for a job.
    fn folder(&self, kind: Kind) -> std::path::PathBuf {
        beside(if kind == Kind::Cut { self.cut.path() } else { self.whole.path() })
    }

    /// What one process learns.
    fn alone(&self, steps: usize) -> Weights {
        let dir = self.folder(Kind::Sync);
        ok(run(&dir, &format!("{TRAIN} --steps {steps} --epochs 100000 --state one.safetensors")));
        weights(&dir.join("one.safetensors"))
    }
}

fn until_saved(dir: &Path, processes: &mut [Process]) {
    until(&mut processes[0], |_| !job::checkpoints(&dir.join("ck")).is_empty());
}

fn until(chief: &mut Process, what: impl Fn(&str) -> bool) {
    let since = std::time::Instant::now();
    while !what(&chief.said()) && !chief.is_over() {
        assert!(since.elapsed() < Duration::from_secs(60), "{}", chief.said());
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn right(kind: Kind, one: &Weights, dir: &Path, said: &str) {
    let now = weights(&dir.join("s.safetensors"));
    if let Kind::Served("ps-async" | "backup --need 1") = kind {
        assert!(now.iter().all(|(_, v)| v.iter().all(|x| x.is_finite())), "{said}");
    } else {
        close(one, &now);
    }
}

const KINDS: [Kind; 5] = [
    Kind::Sync,
    Kind::Served("ps-sync"),
    Kind::Served("ps-async"),
    Kind::Served("backup --need 1"),
    Kind::Cut,
];

/// Packets are late, and some never come.
#[test]
fn cables_that_are_bad() {
    let Some(hosts) = Hosts::new() else { return };
    let programs = Programs::new();
    let one = programs.alone(60);
    for (kind, one_of) in KINDS.into_iter().zip([50, 50, 50, 50, 100]) {
        let dir = programs.folder(kind);
        hosts.line.worsen(Duration::from_millis(1), one_of);
        let before = hosts.line.counts();
        let mut job = start(&hosts, &dir, kind, 60, "--state s.safetensors");
        job::all_ok(&mut job);
        let (carried, lost) = hosts.line.counts();
        assert!(carried > before.0 + 100 && lost > before.1, "{kind:?}: {carried} {lost}");
        right(kind, &one, &dir, &job[0].said());
    }
}

/// What processes say before they train is lost once, each thing in its turn: whoever said
/// it may have nothing more to say, and must still see that it arrives.
#[test]
fn words_that_are_lost() {
    let Some(hosts) = Hosts::new() else { return };
    let programs = Programs::new();
    let one = programs.alone(20);
    for kind in [Kind::Sync, Kind::Served("ps-sync"), Kind::Cut] {
        // Servers are not told who the others are.
        let served = matches!(kind, Kind::Served(_));
        for word in ["PRI * HTTP/2.0", "tfc-graph", if served { "tfc-entry" } else { "tfc-roster" }]
        {
            let dir = programs.folder(kind);
            hosts.line.lose(word);
            let mut job = start(&hosts, &dir, kind, 20, "--state s.safetensors");
            job::all_ok(&mut job);
            assert!(hosts.line.has_lost(), "{kind:?}: nobody has said {word}");
            right(kind, &one, &dir, &job[0].said());
        }
    }
    // The reason why somebody is not let in.
    let dir = programs.folder(Kind::Sync);
    let member = |rank, more| {
        let more = format!("--state s.safetensors {more}");
        start_one(&hosts, &dir, Kind::Sync, 20, &more, (rank, "worker"))
    };
    hosts.line.lose("grpc-message");
    let (chief, mut other) = (member(0, ""), member(1, "--on-loss wait"));
    other.end();
    assert!(hosts.line.has_lost() && other.code == Some(4), "{}", other.said());
    assert!(other.said().contains("its `--on-loss` is `wait`"), "{}", other.said());
    let mut job = [chief, member(1, "")];
    job::all_ok(&mut job);
    right(Kind::Sync, &one, &dir, &job[0].said());
}

/// Pulled at some step, in one direction or in both, and put back.
#[test]
fn cables_that_are_put_back() {
    let Some(hosts) = Hosts::new() else { return };
    let programs = Programs::new();
    let one = programs.alone(500);
    let mut random = Random::new(4242);
    for round in 0..2 {
        for kind in KINDS {
            let dir = programs.folder(kind);
            let mut job =
                start(&hosts, &dir, kind, 500, "--state s.safetensors --peer-timeout 30s");
            until_saved(&dir, &mut job);
            std::thread::sleep(Duration::from_millis(random.below(60)));
            hosts.line.cut(1 + random.below(3));
            std::thread::sleep(Duration::from_millis(50 + random.below(500)));
            hosts.line.cut(0);
            job::all_ok(&mut job);
            right(kind, &one, &dir, &format!("{round}: {}", job[0].said()));
        }
    }
}

/// Pulled for good: every process ends in time, and names one on the other host. When it
/// is put back the job goes on from its last checkpoint.
#[test]
fn cables_that_stay_out() {
    let programs = Programs::new();
    let stays_out = |kind: Kind| {
        let Some(hosts) = Hosts::new() else { return };
        let dir = programs.folder(kind);
        let brief = "--peer-timeout 10s --join-timeout 15s";
        let mut job = start(&hosts, &dir, kind, 1_000_000, brief);
        until_saved(&dir, &mut job);
        hosts.line.cut(3);
        let saved = job::checkpoints(&dir.join("ck")).last().copied();
        for (at, process) in job.iter_mut().enumerate() {
            process.end();
            let said = process.said();
            assert_eq!(process.code, Some(4), "{kind:?} {at}: {said}");
            let other = if at % 2 == 0 { 1 } else { 0 };
            let names = [format!("worker {other}"), format!("server {other}")];
            assert!(said.contains("error[E070"), "{kind:?} {at}: {said}");
            assert!(names.iter().any(|n| said.contains(n)), "{kind:?} {at}: {said}");
        }
        hosts.line.cut(0);
        let last = *job::checkpoints(&dir.join("ck")).last().unwrap();
        assert!(Some(last) >= saved);
        // On from there, to the same numbers as if nothing had happened.
        let mut job =
            start(&hosts, &dir, kind, last as usize + 100, "--resume --state s.safetensors");
        job::all_ok(&mut job);
        let whole = programs.alone(last as usize + 100);
        right(kind, &whole, &dir, &job[0].said());
    };
    // Side by side, each on hosts of its own: what takes long is the wait.
    std::thread::scope(|s| {
        let stays_out = &stays_out;
        for kind in [Kind::Sync, Kind::Served("ps-sync"), Kind::Cut] {
            s.spawn(move || stays_out(kind));
        }
    });
}

/// Jobs that outlive losses. A cable that is out for longer than a step may take is a loss;
/// with `wait` the others are there when it is put back, and with `shrink` the chief goes on
/// alone, and who is cut off ends.
#[test]
fn cables_that_are_outlived() {
    let Some(hosts) = Hosts::new() else { return };
    let programs = Programs::new();
    let one = programs.alone(500);
    for policy in ["wait", "shrink"] {
        let dir = programs.folder(Kind::Sync);
        let more = format!(
            "--state s.safetensors --on-loss {policy} --peer-timeout 2s --join-timeout 20s"
        );
        // Long before the last step: each takes four of them at least.
        hosts.line.cut_after(1000);
        let mut job = start(&hosts, &dir, Kind::Sync, 500, &more);
        until(&mut job[0], |_| hosts.line.is_cut());
        assert!(hosts.line.is_cut(), "{}", job[0].said());
        if policy == "wait" {
            until(&mut job[0], |said| said.contains("waiting for worker 1 to come back"));
            hosts.line.cut(0);
            job::all_ok(&mut job);
            assert!(job[0].said().contains("2 workers are there again"), "{}", job[0].said());
        } else {
            job.iter_mut().for_each(Process::end);
            hosts.line.cut(0);
            assert_eq!(job[0].code, Some(0), "{}", job[0].said());
            assert_eq!(job[1].code, Some(4), "{}", job[1].said());
            assert!(job[1].said().contains("worker 0"), "{}", job[1].said());
            let said = job[0].said();
            assert!(said.contains("worker 1 is lost, one worker is left"), "{said}");
        }
        right(Kind::Sync, &one, &dir, &job[0].said());
    }
}
