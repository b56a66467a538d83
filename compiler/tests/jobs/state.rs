//! What parameter servers keep, and what others see of it.

use super::ports::free_address;
use super::served::{READ, end, launch, text};
use super::{close, ok, run, signal, tfc, variables, workers};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use tfc::net::job::Job;
use tfc::net::ps::client::Client;
use tfc::net::ps::server::Rule;

const ADAGRAD: &str = "with optim.adagrad(lr: 0.1)";

/// The names of a directory's files.
fn files(dir: &Path) -> Vec<String> {
    let all = std::fs::read_dir(dir).unwrap().flatten();
    let mut all: Vec<String> = all.map(|f| f.file_name().to_string_lossy().into_owned()).collect();
    all.sort();
    all
}

/// Saved by four servers, restored by two, by one, and by a process without servers:
/// the same bits, and the run goes on as if it had not been interrupted.
#[test]
fn a_checkpoint_of_four_servers_is_anybodys() {
    let dir = text(4000, ADAGRAD);
    let dir = dir.path();
    ok(run(dir, &format!("{READ} --state one.safetensors")));
    let state = |name: &str| std::fs::read(dir.join(format!("{name}.safetensors"))).unwrap();
    let epochs = |n: usize| READ.replace("--epochs 12", &format!("--epochs {n}"));
    let go = |ps: usize, n: usize, name: &str| {
        let line = format!("{} --checkpoint-dir ck --resume --state {name}.safetensors", epochs(n));
        match ps {
            0 => ok(run(dir, &line)),
            _ => ok(tfc(dir, &format!("launch --ps {ps} -n 2 {line}"))),
        };
        let bytes = state(name);
        // The next run begins with the checkpoint.
        std::fs::remove_file(dir.join(format!("{name}.safetensors"))).unwrap();
        bytes
    };
    let four = go(4, 4, "four");
    // Each server has a file of its own, with its rows.
    let of_last =
        |step: &str| files(&dir.join("ck")).into_iter().filter(|f| f.contains(step)).count();
    assert_eq!(of_last("-000000000016."), 6, "four servers, the chief, the manifest");
    assert!(ok(tfc(dir, "ckpt verify ck")).contains("good"));
    // With nothing left to do, what is restored is what was saved.
    assert_eq!(four, go(2, 4, "two"));
    assert_eq!(four, go(1, 4, "one_server"));
    assert_eq!(four, go(0, 4, "alone"));
    // And each goes on from what the one before has saved.
    go(2, 6, "two");
    go(1, 8, "one_server");
    go(0, 10, "alone");
    go(3, 12, "three");
    ok(tfc(
        dir,
        &format!("launch --ps 3 -n 2 {READ} --checkpoint-dir ck --resume --state end.safetensors"),
    ));
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("end.safetensors")));
    // A checkpoint of several files is taken variables from as one of one file.
    let restored = format!("{READ} --restore ck --checkpoint-dir ck2 --save-every 1 --steps 1");
    let out = run(dir, &restored);
    assert!(String::from_utf8_lossy(&out.stderr).contains("restored 7 of 7 variables"), "{out:?}");
    let out = tfc(
        dir,
        &format!("launch --ps 2 -n 2 {} --steps 1 --restore ck --state r.safetensors", READ),
    );
    assert!(String::from_utf8_lossy(&out.stderr).contains("restored 7 of 7 variables"), "{out:?}");
    let first = variables(dir.join("ck2/step-000000000001.safetensors"));
    close(&first, &variables(dir.join("r.safetensors")));
}

/// All processes are killed while servers write: what was complete before is whole, and
/// the job goes on from it to the same bits.
#[test]
fn a_checkpoint_that_is_cut_off_leaves_the_one_before() {
    let dir = text(60_000, ADAGRAD);
    let dir = dir.path();
    let long = READ.replace("--epochs 12", "--epochs 40");
    ok(tfc(dir, &format!("launch --ps 3 -n 2 {long} --state whole.safetensors")));
    let train = format!("launch --ps 3 -n 2 {long} --checkpoint-dir ck --save-every 1 --keep 3");
    let mut cut_off = 0;
    // Six times, and until it has happened: the manifest may be written in the moment
    // between seeing that it is not and the kill.
    for round in 0..30 {
        if round >= 6 && cut_off > 0 {
            break;
        }
        let resume = if round == 0 { "" } else { " --resume" };
        let mut job = launch(dir, &format!("{train}{resume}"));
        // Somewhere between the first file of a checkpoint and its manifest.
        let unfinished = || {
            let all = std::fs::read_dir(dir.join("ck")).into_iter().flatten().flatten();
            let names: Vec<String> =
                all.map(|f| f.file_name().to_string_lossy().into_owned()).collect();
            let step = |n: &String| n.get(5..17).map(str::to_owned);
            let done = names.iter().filter(|n| n.ends_with(".json")).filter_map(step).max();
            done.is_some() && names.iter().filter_map(step).max() > done
        };
        while !unfinished() && job.try_wait().unwrap().is_none() {}
        let pids = workers(job.id());
        let _ = signal(job.id(), "-KILL");
        for pid in pids {
            let _ = signal(pid, "-KILL");
        }
        end(job);
        let names = files(&dir.join("ck"));
        let manifests: Vec<&String> = names.iter().filter(|n| n.ends_with(".json")).collect();
        let last = manifests.last().map(|m| m[..17].to_owned()).unwrap();
        cut_off += usize::from(names.iter().any(|n| n[..17.min(n.len())] > *last));
        let text = ok(tfc(dir, "ckpt verify ck"));
        assert!(text.lines().all(|l| l.contains(": good")), "{text}");
    }
    assert!(cut_off > 0, "no checkpoint was cut off in thirty runs");
    ok(tfc(dir, &format!("{train} --resume --state end.safetensors")));
    assert_eq!(variables(dir.join("whole.safetensors")), variables(dir.join("end.safetensors")));
    let left = files(&dir.join("ck"));
    assert!(left.iter().all(|n| !n.ends_with(".tmp")), "{left:?}");
    assert_eq!(left.iter().filter(|n| n.ends_with(".json")).count(), 3);
}

/// The most memory that each process of a job has had, in bytes, by its place among the
/// launcher's children: servers first.
#[cfg(target_os = "linux")]
fn memory(rows: usize) -> Vec<usize> {
    let dir = text(rows, ADAGRAD);
    let dir = dir.path();
    let line = READ.replace("--epochs 12", "--epochs 40");
    let mut job = launch(dir, &format!("launch --ps 2 -n 2 {line} --checkpoint-dir ck"));
    let mut most: BTreeMap<u32, usize> = BTreeMap::new();
    while job.try_wait().unwrap().is_none() {
        for pid in workers(job.id()) {
            let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
            let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
            let kb = line.and_then(|l| l.trim().split(' ').next()?.parse::<usize>().ok());
            let known = most.entry(pid).or_default();
            *known = (*known).max(kb.unwrap_or(0) * 1024);
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    let (good, err) = end(job);
    assert!(good && most.len() == 4, "{most:?}: {err}");
    most.into_values().collect()
}

/// A worker has room for the table, but memory for the rows it uses; so has the chief,
/// also when the table is initialised, restored and saved.
#[cfg(target_os = "linux")]
#[test]
fn a_worker_does_not_hold_the_table() {
    // 128 kB, and 96 MB: with what Adagrad keeps of it, twice that.
    let (small, large) = (memory(4000), memory(3_000_000));
    for at in [2, 3] {
        let more = large[at].saturating_sub(small[at]);
        assert!(more < 24 << 20, "worker {}: {more} bytes more", at - 2);
    }
    for at in [0, 1] {
        assert!(large[at] > small[at] + (90 << 20), "server {at} has half of everything");
    }
}

const TWO: &str = "graph g
use optim
var a: f32[1] = zeros
var b: f32[1] = zeros
entry train(x: f32[]) -> (a_seen: f32[], b_seen: f32[]) {
  a_seen = sum(a)
  b_seen = sum(b)
  minimize (a_seen + b_seen) * x over [a, b] with optim.sgd(lr: 1.0)
  return a_seen, b_seen
}
";

/// Servers of a job, and what to do meanwhile; they end with it.
fn with_servers(workers: usize, meanwhile: impl FnOnce(&dyn Fn(usize) -> (tfc::Module, Job))) {
    let graph = tfc::parse(TWO).unwrap();
    let options = tfc::Options::new().replicas(true).threads(1);
    let servers: Vec<String> = (0..2).map(|_| free_address().to_string()).collect();
    let member = |rank: usize| {
        let job = Job { servers: servers.clone(), ..Job::new(rank, workers, "") };
        (tfc::compile_with(&graph, &options).unwrap(), job)
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        for rank in 0..2 {
            let (module, job) = member(rank);
            let stop = || over.load(Ordering::Acquire);
            s.spawn(move || {
                let rule = Rule::Apart { staleness: None };
                module.serve_variables("train", &job, rule, &stop).unwrap();
            });
        }
        meanwhile(&member);
        over.store(true, Ordering::Release);
    });
}

fn seen(worker: &mut tfc::served::Worker, x: f32) -> (f32, f32) {
    let out = worker.step((&ndarray::arr0(x),), 1.0).unwrap().unwrap();
    (out.scalar("a_seen").unwrap(), out.scalar("b_seen").unwrap())
}

/// One worker's update is acknowledged before another's step begins: that sees it, which
/// it does not otherwise.
#[test]
fn a_strong_read_sees_what_was_acknowledged() {
    for strong in [false, true] {
        with_servers(2, |member| {
            let start = |rank| {
                let (module, job) = member(rank);
                let mut worker = module.worker("train", &job).unwrap();
                worker.set_strong(strong);
                worker
            };
            let (mut first, mut second) = (start(0), start(1));
            assert_eq!(seen(&mut first, 1.0), (0.0, 0.0));
            let after_one = if strong { -1.0 } else { 0.0 };
            assert_eq!(seen(&mut second, 10.0), (after_one, after_one));
            let after_both = if strong { -11.0 } else { -1.0 };
            assert_eq!(seen(&mut first, 1.0), (after_both, after_both));
            second.finish().unwrap();
            first.finish().unwrap();
        });
    }
}

/// Every update changes both variables, which are on two servers, by the same number: a
/// strong read never sees one of them changed and the other not, in whatever moment.
#[test]
fn a_strong_read_sees_whole_updates() {
    with_servers(2, |member| {
        let over = AtomicBool::new(false);
        std::thread::scope(|s| {
            let busy = |rank: usize| {
                let ((module, job), over) = (member(rank), &over);
                s.spawn(move || {
                    let mut worker = module.worker("train", &job).unwrap();
                    while !over.load(Ordering::Acquire) {
                        seen(&mut worker, 1.0);
                    }
                    worker.finish().unwrap();
                });
            };
            let (module, job) = member(0);
            busy(0);
            busy(1);
            let model = module.model();
            let mut reader = loop {
                let mut reader = Client::attach(model, &job).unwrap();
                // Not before the chief has brought the variables.
                match reader.take(model, &[0, 1], true) {
                    Ok(()) => break reader,
                    Err(e) => assert!(e.code() == "E0702" || e.code() == "E0701", "{e}"),
                }
            };
            let (mut last, mut changes) = (0.0, 0);
            while changes < 50 {
                reader.take(model, &[0, 1], true).unwrap();
                let [a, b] = [0, 1].map(|v| model.read_var(v).unwrap().get_f64(0).unwrap());
                assert_eq!(a, b, "an update in part");
                assert!(a <= last, "what was seen is not unseen");
                changes += usize::from(a < last);
                last = a;
            }
            over.store(true, Ordering::Release);
        });
    });
}

/// One trace of all processes, with one clock, made by the launcher or by the job itself;
/// and counters in a file.
#[test]
fn what_a_job_did_can_be_seen() {
    let dir = super::project();
    let dir = dir.path();
    let json = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&std::fs::read(dir.join(name)).unwrap()).unwrap()
    };
    let train = super::TRAIN;
    for (how, processes) in [("-n 2", vec![0, 1]), ("--ps 2 -n 2", vec![0, 1, 10_000, 10_001])] {
        for line in [
            format!("launch --trace t.json {how} {train} --metrics m.json"),
            format!("launch {how} {train} --metrics m.json --trace-job t.json"),
        ] {
            let _ = std::fs::remove_file(dir.join("t.json"));
            ok(tfc(dir, &line));
            let trace = json("t.json");
            let events = trace["traceEvents"].as_array().unwrap();
            let of = |pid: u64| events.iter().filter(move |e| e["pid"] == pid && e["ph"] == "X");
            let span = |pid: u64| {
                let first = of(pid).map(|e| e["ts"].as_f64().unwrap()).fold(f64::MAX, f64::min);
                let last = of(pid).map(|e| e["ts"].as_f64().unwrap() + e["dur"].as_f64().unwrap());
                (first, last.fold(0.0, f64::max))
            };
            for &pid in &processes {
                assert!(of(pid).count() > 52, "process {pid} in {how}");
                let names = events.iter().filter(|e| e["ph"] == "M" && e["pid"] == pid);
                assert_eq!(names.count(), 1);
            }
            // They all worked at the same time, and from the beginning of the trace.
            let spans: Vec<(f64, f64)> = processes.iter().map(|p| span(*p)).collect();
            let latest = spans.iter().map(|s| s.0).fold(0.0, f64::max);
            let soonest = spans.iter().map(|s| s.1).fold(f64::MAX, f64::min);
            assert!(latest < soonest, "{spans:?}");
            assert_eq!(spans.iter().map(|s| s.0).fold(f64::MAX, f64::min), 0.0);
            // Here they have one clock, which was found out within what is said.
            let clocks = trace["otherData"]["clocks"].as_object().unwrap();
            assert_eq!(clocks.len(), processes.len(), "{clocks:?}");
            for (name, clock) in clocks {
                let [added, within] = ["added_us", "within_us"].map(|k| clock[k].as_f64().unwrap());
                assert!(added.abs() <= within + 0.01, "{name}: {added} {within}");
                let known = line.contains("--trace-job") && name != "worker 0";
                assert_eq!(within > 0.0, known, "{line}: {name}");
            }
        }
        let metrics = json("m.json");
        assert_eq!((metrics["workers"].as_u64(), metrics["steps"].as_u64()), (Some(2), Some(52)));
        let peers = metrics["waited"].as_object().unwrap();
        let known =
            if processes.len() > 2 { vec!["server 0", "server 1"] } else { vec!["worker 1"] };
        assert_eq!(peers.keys().map(String::as_str).collect::<Vec<_>>(), known);
        // Gradients of 259 floats, in 52 steps.
        assert!(metrics["bytes_sent"].as_u64().unwrap() > 52 * 259 * 4 / 2, "{metrics}");
    }
    let line = format!("launch --ps 1 -n 2 {train} --mode ps-async --metrics m.json");
    ok(tfc(dir, &line));
    assert_eq!(json("m.json")["staleness"]["updates"], 2 * 52);
    assert_eq!(json("m.json")["mode"], "ps-async");
}
