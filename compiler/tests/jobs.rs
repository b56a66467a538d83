//! Several processes that train as one: the same numbers as one process, and what
//! happens when one of them is missing or dies.

#[path = "jobs/agree.rs"]
mod agree;
#[path = "jobs/beside.rs"]
mod beside;
#[path = "support/certificates.rs"]
mod certificates;
#[path = "jobs/hostile.rs"]
mod hostile;
#[path = "jobs/losses.rs"]
mod losses;
#[path = "jobs/members.rs"]
mod members;
#[path = "support/mpi.rs"]
mod mpi;
#[path = "support/ports.rs"]
mod ports;
#[path = "support/project.rs"]
mod project;
#[path = "jobs/served.rs"]
mod served;
#[path = "jobs/state.rs"]
mod state;
mod support;
#[cfg(target_os = "linux")]
#[path = "jobs/terminal.rs"]
mod terminal;

use mpi::{MPIRUN, mpirun};
use ports::free_address;
use project::{GRAPH, project};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use support::{TRAIN, close, command, ok, run, tfc, variables};

#[test]
fn workers_learn_what_one_process_learns() {
    let dir = project();
    let dir = dir.path();
    let alone = ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    let one = variables(dir.join("one.safetensors"));
    // Batches of 24 and 96 examples: five workers have parts of different sizes.
    for n in [2, 4, 5] {
        let line = format!("launch -n {n} {TRAIN} --state {n}.safetensors");
        let together = ok(tfc(dir, &line));
        close(&one, &variables(dir.join(format!("{n}.safetensors"))));
        let last =
            |text: &str| text.lines().last().unwrap_or("").split(',').next().map(str::to_owned);
        assert_eq!(last(&alone), last(&together), "the loss is that of all examples");
    }
    // Two runs give the same bits.
    ok(tfc(dir, &format!("launch -n 2 {TRAIN} --state again.safetensors")));
    let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(bytes("2.safetensors"), bytes("again.safetensors"));
}

#[test]
fn a_job_goes_on_from_its_checkpoint_with_another_number_of_workers() {
    let dir = project();
    let dir = dir.path();
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    let part = TRAIN.replace("--epochs 13", "--epochs 5");
    ok(tfc(dir, &format!("launch -n 3 {part} --checkpoint-dir ck")));
    ok(tfc(
        dir,
        &format!("launch -n 2 {TRAIN} --checkpoint-dir ck --resume --state two.safetensors"),
    ));
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("two.safetensors")));
}

#[test]
fn a_worker_that_dies_is_named_and_the_job_starts_again() {
    let dir = project();
    let dir = dir.path();
    let whole = format!("{TRAIN} --steps 4000 --epochs 1000 --state whole.safetensors");
    ok(tfc(dir, &format!("launch -n 3 {whole}")));
    let long = format!("{TRAIN} --steps 4000 --epochs 1000 --checkpoint-dir ck --save-every 20");
    let line = format!("launch -n 3 --restarts 5 {long} --state three.safetensors");
    // Once there is something to go on from, one of the workers is killed.
    let mut job = started(dir, &line, "ck", 3);
    let killed = workers(job.id()).into_iter().next_back().is_some_and(kill);
    let (status, err) = ended(&mut job);
    assert!(status.success(), "{err}");
    if killed {
        assert!(err.contains("started again") && err.contains("E0701"), "{err}");
    }
    // To the bit as if nothing had happened.
    assert_eq!(variables(dir.join("whole.safetensors")), variables(dir.join("three.safetensors")));
}

/// A job that has written `files` files to the folder of its checkpoints.
fn started(dir: &Path, line: &str, checkpoints: &str, files: usize) -> Child {
    let mut job = command(dir, env!("CARGO_BIN_EXE_tfc"), line);
    let mut job = job.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    until(&mut job, || saved(&dir.join(checkpoints), files));
    job
}

/// Whether a folder of checkpoints has so many files.
fn saved(dir: &Path, files: usize) -> bool {
    std::fs::read_dir(dir).map_or(0, |d| d.count()) >= files
}

/// Waits until something is true of a job that goes on meanwhile; otherwise shows what the
/// job said. The errors of the job are a pipe.
#[track_caller]
fn until(job: &mut Child, mut what: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !what() {
        let over = job.try_wait().unwrap().is_some();
        if over && what() {
            return;
        }
        if over || Instant::now() > give_up {
            let processes = workers(job.id()).into_iter().chain([job.id()]);
            for pid in processes {
                let _ = kill(pid);
            }
            let (status, err) = ended(job);
            let how = if over { "is over too soon" } else { "does not get there" };
            panic!("the job {how} ({status}): {err}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn kill(pid: u32) -> bool {
    signal(pid, "-KILL")
}

fn signal(pid: u32, name: &str) -> bool {
    let mut kill = Command::new("kill");
    kill.args([name, &pid.to_string()]).status().is_ok_and(|s| s.success())
}

/// How a job ended, and what it said.
fn ended(job: &mut Child) -> (ExitStatus, String) {
    let status = job.wait().unwrap();
    let mut err = String::new();
    // Somebody may be reading it already.
    if let Some(said) = &mut job.stderr {
        std::io::Read::read_to_string(said, &mut err).unwrap();
    }
    (status, err)
}

/// The processes that a process started, oldest first.
fn workers(of: u32) -> Vec<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

#[test]
fn asking_one_worker_to_stop_stops_all() {
    let dir = project();
    let dir = dir.path();
    // The signal comes at another moment of a step each time: also just after the
    // workers have asked each other.
    for round in 0..12 {
        let to = format!("ck{round}");
        let line = format!("launch -n 2 {TRAIN} --steps 1000000 --epochs 100000");
        let line = format!("{line} --checkpoint-dir {to}");
        let mut job = started(dir, &line, &to, 2);
        let worker = workers(job.id()).into_iter().next_back().unwrap();
        assert!(signal(worker, "-TERM"));
        let (status, err) = ended(&mut job);
        assert_eq!(status.code(), Some(75), "{err}");
        assert!(err.contains(&format!("which is saved in `{to}`")), "{err}");
    }
}

/// A worker hangs when all steps are done, and nobody in the job waits for it any more.
#[test]
fn a_worker_that_does_not_end_is_ended() {
    let dir = project();
    let dir = dir.path();
    let script = "\"$@\"\nif [ $TFC_RANK = 1 ]; then kill -STOP $$; fi\n";
    std::fs::write(dir.join("hang.sh"), script).unwrap();
    let line = format!("launch -n 2 bash hang.sh {TRAIN} --peer-timeout 11s --state s.safetensors");
    let out = tfc(dir, &line);
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    ok(out);
    assert!(
        err.contains("note: worker 1 has not exited within 11 s of worker 0, so it is killed"),
        "{err}"
    );
    assert!(dir.join("s.safetensors").exists());
}

#[test]
fn what_cannot_be_shared_is_said() {
    let dir = project();
    let dir = dir.path();
    let fails = |line: &str, code: &str, words: &[&str]| {
        let out = tfc(dir, line);
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success(), "{line}");
        assert!(err.contains(code), "{line}: {err}");
        words.iter().for_each(|w| assert!(err.contains(w), "{line}: {err}"));
    };
    fails("launch -n 2 ./m predict --feed x=x.npy", "E0707", &["`predict` has nothing"]);
    let small =
        "launch -n 4 ./m train --feed x=x.npy --feed y=y.npy --batch 3 --state s.safetensors";
    fails(small, "E0707", &["a batch of 3 cannot be shared by 4 workers", "at least 4"]);
    fails("launch -n 0 ./m train", "E0901", &["1 to 1024"]);
    fails("launch -n 2", "E0914", &["no command"]);
    fails("launch -n 2 ./no-such-program train", "E0804", &["no-such-program"]);
    let alone = run(dir, &format!("{TRAIN} --mode sync --state s.safetensors"));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("E0705"));
}

#[test]
fn another_program_may_not_join() {
    let dir = project();
    let dir = dir.path();
    std::fs::write(dir.join("n.graph"), GRAPH.replace("1e-2", "1e-3")).unwrap();
    ok(tfc(dir, "compile n.graph -o n"));
    let at = free_address().to_string();
    let worker = |program: &str, rank: &str, state: &str| {
        let line = TRAIN.trim_start_matches("./m ");
        let mut c = command(dir, program, &format!("{line} --join-timeout 20s --state {state}"));
        c.env("TFC_RANK", rank).env("TFC_SIZE", "2").env("TFC_COORDINATOR", &at);
        c.stdout(Stdio::piped()).stderr(Stdio::piped());
        c
    };
    let chief = worker("./m", "0", "a.safetensors").spawn().unwrap();
    let wrong = worker("./n", "1", "b.safetensors").output().unwrap();
    let err = String::from_utf8_lossy(&wrong.stderr);
    assert_eq!(wrong.status.code(), Some(4), "{err}");
    assert!(err.contains("E0703") && err.contains("another program"), "{err}");
    ok(worker("./m", "1", "c.safetensors").output().unwrap());
    ok(chief.wait_with_output().unwrap());
    assert!(!dir.join("c.safetensors").exists(), "only the chief saves");
}

#[test]
fn mpi_carries_the_messages_where_mpirun_starts_the_job() {
    let Some(mpirun) = mpirun("") else { return };
    let dir = project();
    let dir = dir.path();
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    let line = format!("{MPIRUN} -n 2 {TRAIN} --state mpi.safetensors");
    let text = ok(command(dir, &mpirun, &line).output().unwrap());
    assert!(text.contains("epoch 13/13"), "{text}");
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("mpi.safetensors")));
}

/// Readers and queues: every worker runs the pipeline and takes its share.
#[test]
fn workers_share_what_comes_out_of_a_pipeline() {
    let graph = |count: usize| {
        format!(
            "graph p
use optim
reader rows: csv(\"data.csv\", f32[3], f32[], epochs: 6)
queue mixed: shuffle(f32[3], f32[], capacity: 64, min: 20, seed: 5)
var w: f32[3] = zeros
runner fill() {{
  (x, y) = dequeue(rows)
  enqueue(mixed, x, y)
}}
entry train() -> (loss: f32[]) {{
  (x, y) = dequeue_many(mixed, count: {count})
  e = sum(x * w, axes: [1]) - y
  loss = mean(e * e)
  minimize loss over [w] with optim.adam(lr: 0.05)
  return loss
}}
"
        )
    };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let row = |i: usize| {
        let x = [i % 7, i % 5, i % 3].map(|n| n as f32 / 4.0 - 0.5);
        format!("{},{},{},{}\n", x[0], x[1], x[2], x[0] - 2.0 * x[1] + 0.5 * x[2])
    };
    std::fs::write(dir.join("data.csv"), (0..100).map(row).collect::<String>()).unwrap();
    for (name, count) in [("one", 12), ("two", 6), ("three", 4)] {
        std::fs::write(dir.join(format!("{name}.graph")), graph(count)).unwrap();
        ok(tfc(dir, &format!("compile {name}.graph -o {name}")));
    }
    ok(run(dir, "./one train --state one.safetensors"));
    let one = variables(dir.join("one.safetensors"));
    for (name, n) in [("two", 2), ("three", 3)] {
        ok(tfc(dir, &format!("launch -n {n} ./{name} train --state {name}.safetensors")));
        let shared = variables(dir.join(format!("{name}.safetensors")));
        for ((_, a), (_, b)) in one.iter().zip(&shared) {
            a.iter().zip(b).for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "{name}: {a} {b}"));
        }
    }
    // With parameter servers too, whoever dies in between.
    ok(tfc(dir, "launch --ps 2 -n 2 ./two train --state ps.safetensors"));
    let served = variables(dir.join("ps.safetensors"));
    for ((_, a), (_, b)) in one.iter().zip(&served) {
        a.iter().zip(b).for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "servers: {a} {b}"));
    }
    ok(tfc(dir, "launch --ps 2 -n 3 ./three train --mode ps-async --staleness 1"));
    ok(tfc(dir, "launch --ps 1 -n 3 ./three train --mode backup --need 2 --checkpoint-dir ckb"));
    // Saved by a job with servers, gone on with by one without, and the other way round.
    ok(tfc(dir, "launch --ps 2 -n 2 ./two train --steps 17 --checkpoint-dir ckp"));
    ok(tfc(dir, "launch -n 2 ./two train --steps 31 --checkpoint-dir ckp --resume"));
    let rest = "--checkpoint-dir ckp --resume --state both.safetensors";
    ok(tfc(dir, &format!("launch --ps 1 -n 2 ./two train {rest}")));
    for ((_, a), (_, b)) in one.iter().zip(&variables(dir.join("both.safetensors"))) {
        a.iter().zip(b).for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "both: {a} {b}"));
    }
    // It goes on where it stopped, with the examples that come next.
    ok(tfc(dir, "launch -n 2 ./two train --steps 17 --checkpoint-dir ck"));
    ok(tfc(dir, "launch -n 2 ./two train --checkpoint-dir ck --resume --state again.safetensors"));
    let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(bytes("two.safetensors"), bytes("again.safetensors"));
}

#[test]
fn workers_that_only_meet_from_time_to_time() {
    let graph = "graph f
use optim
dim B
var w: f32[4] = zeros
entry train(x: f32[B, 4], y: f32[B]) -> (loss: f32[]) {
  e = sum(x * w, axes: [1]) - y
  loss = mean(e * e)
  minimize loss over [w] with optim.sgd(lr: 0.1)
  return loss
}
entry outer(delta_w: f32[4]) { optim.sgd(w, delta_w, lr: 1.0) }
entry nesterov(delta_w: f32[4]) { optim.nesterov(w, delta_w, lr: 0.7, beta: 0.6) }
entry wrong(other: f32[4]) { w -= other }
entry data(seed: i64[]) -> (x: f32[40, 4], y: f32[40]) {
  x = random_normal(seed, shape: [40, 4], dtype: f32)
  return x, sum(x * [1.0, -2.0, 3.0, 0.5], axes: [1])
}
";
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("f.graph"), graph).unwrap();
    ok(tfc(dir, "compile f.graph -o f"));
    for r in 0..3 {
        ok(run(dir, &format!("./f data --feed seed={r} --out x=x{r}.npy --out y=y{r}.npy")));
    }
    let own = "./f train --feed x=x{rank}.npy --feed y=y{rank}.npy --batch 10 --steps 40";
    let weights = |name: &str| variables(dir.join(name)).remove(0).1;
    let right = |w: &[f32], within: f32| {
        let good = w.iter().zip([1.0f32, -2.0, 3.0, 0.5]).all(|(a, b)| (a - b).abs() < within);
        assert!(good, "{w:?}");
    };
    ok(tfc(
        dir,
        &format!("launch -n 3 {own} --mode average --local-steps 5 --state a.safetensors"),
    ));
    right(&weights("a.safetensors"), 0.01);
    // An outer step of one is the mean itself.
    let line = format!("launch -n 3 {own} --mode average --local-steps 5");
    ok(tfc(dir, &format!("{line} --outer outer --state o.safetensors")));
    for (a, o) in weights("a.safetensors").iter().zip(weights("o.safetensors")) {
        assert!((a - o).abs() < 1e-6, "{a} {o}");
    }
    ok(tfc(dir, &format!("{line} --outer nesterov --state n.safetensors")));
    right(&weights("n.safetensors"), 0.2);
    assert_ne!(weights("n.safetensors"), weights("a.safetensors"));
    // After every step, with gradient descent: the mean of gradients. The data is cut.
    let all = "./f train --feed x=x0.npy --feed y=y0.npy --batch 12 --epochs 4";
    ok(run(dir, &format!("{all} --state one.safetensors")));
    let line = format!("launch -n 3 {all} --mode average");
    ok(tfc(dir, &format!("{line} --local-steps 1 --state each.safetensors")));
    for (a, o) in weights("one.safetensors").iter().zip(weights("each.safetensors")) {
        assert!((a - o).abs() < 1e-5, "{a} {o}");
    }
    for (words, said) in [
        ("", "--local-steps"),
        ("--local-steps 3 --checkpoint-dir ck --save-every 4", "no multiple"),
        ("--local-steps 3 --outer wrong", "`other`, a parameter of `wrong`"),
    ] {
        let out = tfc(dir, &format!("{line} {words} --state no.safetensors"));
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && err.contains(said), "{words}: {err}");
    }
}
