//! Jobs with parameter servers.

use super::certificates::certificates;
use super::ports::{free_address, free_job};
use super::{
    TRAIN, close, command, ok, project, run, saved, signal, tfc, until, variables, workers,
};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

/// The loss in the last line that reports one.
fn last_loss(text: &str) -> f64 {
    let line =
        text.lines().rev().find(|l| l.contains(" loss ")).unwrap_or_else(|| panic!("{text}"));
    let word = line.split(" loss ").nth(1).and_then(|r| r.split(',').next());
    word.and_then(|w| w.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn servers_learn_what_one_process_learns() {
    let dir = project();
    let dir = dir.path();
    let alone = ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    let one = variables(dir.join("one.safetensors"));
    // The gradients are clipped by the norm of all of them, wherever they are. One
    // worker of five has a part of another size.
    for (ps, n) in [(1, 1), (1, 2), (2, 4), (3, 5)] {
        let state = format!("{ps}-{n}.safetensors");
        let line = format!("launch --ps {ps} -n {n} {TRAIN} --mode ps-sync --state {state}");
        let together = ok(tfc(dir, &line));
        close(&one, &variables(dir.join(&state)));
        let difference = (last_loss(&alone) - last_loss(&together)).abs();
        assert!(difference < 2e-6, "the loss is that of all examples: {together}");
    }
    ok(tfc(dir, &format!("launch --ps 2 -n 4 {TRAIN} --state again.safetensors")));
    let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(bytes("2-4.safetensors"), bytes("again.safetensors"), "two runs, the same bits");
}

/// Adam without clipping: every element for itself, so that large variables are split.
const SPLIT: &str = "graph m
use nn
use optim
dim B
var w: f32[7, 5] = nn.glorot(seed: 1)
var b: f32[] = zeros
var step: i64[] = zeros
entry train(x: f32[B, 7], y: f32[B, 5], lr: f32[]) -> (loss: f32[]) {
  e = x @ w + b - y
  loss = mean(e * e)
  step += 1
  rate = lr / (1.0 + 0.01 * cast(step, to: f32))
  minimize loss over [w, b] with optim.adamw(lr: rate)
  return loss
}
entry data(seed: i64[]) -> (x: f32[40, 7], y: f32[40, 5]) {
  x = random_normal(seed, shape: [40, 7], dtype: f32)
  return x, x[:, :5] * 2.0 + 0.5
}
";

#[test]
fn rows_and_scalars_and_what_workers_are_fed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("m.graph"), SPLIT).unwrap();
    ok(tfc(dir, "compile m.graph -o m"));
    ok(run(dir, "./m data --feed seed=7 --out x=x.npy --out y=y.npy"));
    let train = "./m train --feed x=x.npy --feed y=y.npy --feed lr=0.05 --batch 20 --epochs 25";
    ok(run(dir, &format!("{train} --state one.safetensors")));
    ok(tfc(dir, &format!("launch --ps 3 -n 2 {train} --state ps.safetensors")));
    let one = variables(dir.join("one.safetensors"));
    close(&one, &variables(dir.join("ps.safetensors")));
    // Saved by a job, read by one process, and the other way round.
    let more = train.replace("--epochs 25", "--epochs 5");
    ok(run(dir, &format!("{more} --state ps.safetensors")));
    ok(run(dir, &format!("{more} --state one.safetensors")));
    ok(tfc(dir, &format!("launch --ps 2 -n 3 {more} --state one.safetensors")));
    ok(run(dir, &format!("{more} --state ps.safetensors")));
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("ps.safetensors")));
}

/// Words of a text, and which class it is of. The table is large enough to be taken by
/// rows, and is gathered from twice.
pub(crate) fn words(rows: usize, optimizer: &str) -> String {
    format!(
        "graph m
use nn
use optim
dim B
var table: f32[{rows}, 8] = nn.glorot(seed: 1)
var w: f32[8, 3] = nn.glorot(seed: 2)
var b: f32[3] = zeros
var step: i64[] = zeros
entry train(words: i32[B, 6], y: i32[B]) -> (loss: f32[]) {{
  step += 1
  noise = random_uniform(step, shape: [4], dtype: f32)
  some = cast(noise * 900.0, to: i32)
  h = mean(table[words[:, 1:]], axis: 1) + table[words[:, 0]] + mean(table[some], axis: 0)
  loss = mean(nn.softmax_xent(tanh(h) @ w + b, y))
  minimize loss over [table, w, b] {optimizer}
  return loss
}}
entry data(seed: i64[]) -> (words: i32[96, 6], y: i32[96]) {{
  words = cast(random_uniform(seed, shape: [96, 6], dtype: f32) * 1000.0, to: i32)
  return words, words[:, 0] % 3
}}
"
    )
}

/// A folder with such a program.
pub(crate) fn text(rows: usize, optimizer: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("m.graph"), words(rows, optimizer)).unwrap();
    ok(tfc(dir.path(), "compile m.graph -o m"));
    ok(run(dir.path(), "./m data --feed seed=7 --out words=x.npy --out y=y.npy"));
    dir
}

pub(crate) const READ: &str = "./m train --feed words=x.npy --feed y=y.npy --batch 24 --epochs 12";

/// Whether the update changes rows that were not used (Adam), is not told what it
/// would need alone (the norm of all gradients), or neither.
#[test]
fn tables_travel_by_rows() {
    for optimizer in [
        "with optim.sgd(lr: 0.5)",
        "with optim.adagrad(lr: 0.1)",
        "with optim.adam(lr: 1e-2)",
        "through optim.clip_global_norm(limit: 0.1) with optim.sgd(lr: 0.5)",
    ] {
        let dir = text(4000, optimizer);
        let dir = dir.path();
        ok(run(dir, &format!("{READ} --state one.safetensors")));
        ok(tfc(dir, &format!("launch --ps 2 -n 2 {READ} --state ps.safetensors")));
        let one = variables(dir.join("one.safetensors"));
        assert!(one.iter().any(|(name, v)| name == "table" && v.len() == 32000));
        close(&one, &variables(dir.join("ps.safetensors")));
        ok(tfc(dir, &format!("launch --ps 2 -n 2 {READ} --state again.safetensors")));
        let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
        assert_eq!(bytes("ps.safetensors"), bytes("again.safetensors"), "{optimizer}");
    }
}

/// The bytes that worker 0 says it has sent and got.
fn traffic(rows: usize, mode: &str) -> Vec<f64> {
    let dir = text(rows, "with optim.sgd(lr: 0.5)");
    let out = tfc(dir.path(), &format!("launch --ps 2 -n 2 {READ} --mode {mode}"));
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    ok(out);
    let line = err.lines().find(|l| l.contains("worker 0 sent")).unwrap_or_else(|| panic!("{err}"));
    let number = |after: &str| {
        let mut words = line.split(after).nth(1).unwrap().split([' ', ',']);
        let n: f64 = words.next().unwrap().parse().unwrap();
        match words.next() {
            Some("bytes") => n,
            Some("KiB") => n * 1024.0,
            unit => panic!("{unit:?} in {line}"),
        }
    };
    vec![number("sent "), number("got ")]
}

#[test]
fn messages_do_not_grow_with_the_table() {
    for mode in ["ps-sync", "ps-async"] {
        let (small, large) = (traffic(4000, mode), traffic(400_000, mode));
        for (small, large) in small.iter().zip(&large) {
            assert_eq!(small, large, "{mode}");
            // 48 steps of 12 texts, of 6 words each. The table has 128 kB.
            assert!(*small > 48.0 * 1e3 && *small < 48.0 * 6e3, "{mode}: {small}");
        }
    }
}

#[test]
fn gradients_are_applied_as_they_come() {
    let dir = project();
    let dir = dir.path();
    let line = format!("launch --ps 2 -n 3 {TRAIN} --mode ps-async --staleness 2");
    let out = tfc(dir, &format!("{line} --epochs 60 --state a.safetensors"));
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    let text = ok(out);
    assert!(last_loss(&text) < 0.3, "{text}");
    // 60 epochs of 4 batches, by 3 workers, on 2 servers.
    assert!(err.contains("1440 updates"), "{err}");
    // Each of two others may be three steps behind before, and three ahead after.
    let most = err.split(" on average and ").nth(1).and_then(|r| r.split(' ').next());
    let most: u64 = most.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{err}"));
    assert!(most <= 2 * 6, "{err}");
    // Each step reads first: nothing is lost, and nothing waits for itself.
    for mode in ["ps-async", "backup --need 2"] {
        let line = format!("launch --ps 2 -n 3 {TRAIN} --mode {mode} --consistency strong");
        let text = ok(tfc(dir, &format!("{line} --epochs 60 --checkpoint-dir {}", &mode[..6])));
        assert!(last_loss(&text) < 0.3, "{mode}: {text}");
    }
}

#[test]
fn what_servers_cannot_do_is_said() {
    let dir = project();
    let dir = dir.path();
    let fails = |line: &str, code: &str, words: &str| {
        let out = tfc(dir, line);
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            !out.status.success() && err.contains(code) && err.contains(words),
            "{line}: {err}"
        );
    };
    fails(&format!("launch --ps 1 -n 2 {TRAIN} --mode backup"), "E0914", "--need");
    fails(&format!("launch --ps 1 -n 2 {TRAIN} --mode backup --need 3"), "E0914", "2 workers");
    fails(&format!("launch --ps 1 -n 2 {TRAIN} --staleness 3"), "E0914", "ps-async");
    fails(&format!("launch --ps 1 -n 2 {TRAIN} --mode sync"), "E0705", "no use for parameter");
    fails("launch --ps 1 -n 2 ./m predict --feed x=x.npy --batch 8", "E0707", "cannot be divided");
    let strong = "--consistency strong";
    fails(
        &format!("launch -n 2 {TRAIN} --mode average --local-steps 2 {strong}"),
        "E0914",
        "strong",
    );
    fails(&format!("launch --ps 1 -n 2 {TRAIN} --consistency weak"), "E0914", "strong");
    let small = TRAIN.replace("--batch 24", "--batch 1");
    fails(&format!("launch --ps 1 -n 2 {small}"), "E0707", "a batch of 1 cannot be shared");
    let alone = run(dir, &format!("{TRAIN} --mode ps-sync"));
    assert!(String::from_utf8_lossy(&alone.stderr).contains("there are no parameter servers"));
}

pub(crate) fn launch(dir: &Path, line: &str) -> Child {
    let mut c = command(dir, env!("CARGO_BIN_EXE_tfc"), line);
    c.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Waits for the end of a job; what it said, and whether it went well.
pub(crate) fn end(mut job: Child) -> (bool, String) {
    let mut err = String::new();
    std::io::Read::read_to_string(job.stderr.as_mut().unwrap(), &mut err).unwrap();
    (job.wait().unwrap().success(), err)
}

#[test]
fn late_gradients_are_dropped_and_counted() {
    let dir = project();
    let dir = dir.path();
    let line = format!(
        "launch --ps 1 -n 3 {TRAIN} --mode backup --need 2 --epochs 1500 --checkpoint-dir ck \
         --save-every 500 --state s.safetensors"
    );
    let mut job = launch(dir, &line);
    until(&mut job, || saved(&dir.join("ck"), 2));
    // Parameter server, workers 0, 1, 2.
    let last = workers(job.id()).into_iter().next_back().unwrap();
    assert!(signal(last, "-STOP"));
    let before = std::fs::read_dir(dir.join("ck")).unwrap().count();
    until(&mut job, || saved(&dir.join("ck"), before + 2));
    assert!(signal(last, "-CONT"));
    let (good, err) = end(job);
    assert!(good && err.contains("of worker 2"), "{err}");
}

/// Which process of a job, among the launcher's children: servers first.
#[derive(Clone, Copy, Debug)]
enum Role {
    Server,
    Chief,
    Worker,
}

/// Sends signals to a process of the job once it has saved something; the job must end
/// well, whatever happens.
fn disturbed(dir: &Path, line: &str, ps: usize, role: Role, signals: &[&str], wait: u64) -> String {
    let ck = dir.join("ck");
    let _ = std::fs::remove_dir_all(&ck);
    let mut job = launch(dir, &format!("{line} --checkpoint-dir ck --save-every 20"));
    let id = job.id();
    until(&mut job, || saved(&ck, 2));
    std::thread::sleep(Duration::from_millis(wait));
    let at = match role {
        Role::Server => ps - 1,
        Role::Chief => ps,
        Role::Worker => ps + 1,
    };
    if let Some(pid) = workers(id).get(at) {
        for name in signals {
            // It may have ended.
            signal(*pid, name);
            std::thread::sleep(Duration::from_millis(30));
        }
    }
    let (good, err) = end(job);
    assert!(good, "{role:?} {signals:?} after {wait} ms: {err}");
    err
}

const KILL: &[&str] = &["-KILL"];

#[test]
fn a_job_survives_the_loss_of_any_process() {
    let dir = project();
    let dir = dir.path();
    let long = format!("{TRAIN} --steps 1500 --epochs 1000");
    ok(tfc(dir, &format!("launch --ps 2 -n 3 {long} --state whole.safetensors")));
    let whole = variables(dir.join("whole.safetensors"));
    for role in [Role::Server, Role::Chief, Role::Worker] {
        let line = format!("launch --ps 2 -n 3 --restarts 5 {long} --state s.safetensors");
        let _ = std::fs::remove_file(dir.join("s.safetensors"));
        let err = disturbed(dir, &line, 2, role, KILL, 0);
        assert!(err.contains("is started again") && err.contains("was killed"), "{err}");
        // To the bit as if nothing had happened.
        assert_eq!(whole, variables(dir.join("s.safetensors")), "{role:?}: {err}");
    }
}

/// A server is lost when worker 1 has done its part and the chief waits for worker 2:
/// who is done must still be there to say so again.
#[test]
fn a_server_that_is_lost_at_the_end_holds_nobody_up() {
    let dir = project();
    let dir = dir.path();
    for ps in [1, 2] {
        let _ = std::fs::remove_dir_all(dir.join("ck"));
        let line = format!(
            "launch --ps {ps} -n 3 --restarts 5 {TRAIN} --mode backup --need 1 --epochs 1000 \
             --peer-timeout 60s --checkpoint-dir ck --save-every 100"
        );
        let mut job = launch(dir, &line);
        until(&mut job, || saved(&dir.join("ck"), 2));
        let pids = workers(job.id());
        let last = pids[ps + 2];
        assert!(signal(last, "-STOP"));
        // About at the end, when no more checkpoints come; whenever it happens, it must
        // go well.
        let names = || {
            let all = std::fs::read_dir(dir.join("ck")).unwrap().flatten();
            all.map(|f| f.file_name()).collect::<std::collections::BTreeSet<_>>()
        };
        until(&mut job, || {
            let before = names();
            std::thread::sleep(Duration::from_millis(400));
            before == names()
        });
        assert!(signal(pids[ps - 1], "-KILL"));
        let launcher = job.id();
        until(&mut job, || !workers(launcher).contains(&pids[ps - 1]));
        assert!(signal(last, "-CONT"));
        let (good, err) = end(job);
        assert!(good && !err.contains("did not say"), "{ps}: {err}");
    }
}

#[test]
fn who_is_missing_is_named() {
    let dir = project();
    let dir = dir.path();
    let line = format!("launch --ps 1 -n 2 {TRAIN} --steps 100000 --epochs 100000");
    let mut job =
        launch(dir, &format!("{line} --peer-timeout 5s --checkpoint-dir ck --save-every 50"));
    until(&mut job, || saved(&dir.join("ck"), 2));
    let last = workers(job.id()).into_iter().next_back().unwrap();
    assert!(signal(last, "-STOP"));
    let (good, err) = end(job);
    signal(last, "-KILL");
    assert!(!good, "{err}");
    for words in ["E0702", "worker 1 did not send gradients in time", "`w1`", "m.graph:13"] {
        assert!(err.contains(words), "{words}: {err}");
    }
}

#[test]
fn a_worker_that_is_asked_to_go_leaves_the_others_alone() {
    let dir = project();
    let dir = dir.path();
    let start = |how: &str, mode: &str, ck: &str| {
        let line = format!("launch {how} {TRAIN} --steps 1000000 --epochs 1000000 {mode}");
        let mut job = launch(dir, &format!("{line} --checkpoint-dir {ck} --save-every 50"));
        until(&mut job, || saved(&dir.join(ck), 2));
        job
    };
    for (how, mode, ck) in [
        ("--ps 1 -n 3", "--mode ps-async", "async"),
        ("--ps 1 -n 3", "--mode backup --need 2", "backup"),
        ("-n 3", "--on-loss shrink", "shrink"),
    ] {
        let mut job = start(how, mode, ck);
        let launcher = job.id();
        let last = *workers(launcher).last().unwrap();
        assert!(signal(last, "-TERM"));
        until(&mut job, || !workers(launcher).contains(&last));
        // The others go on.
        let files = || {
            let all = std::fs::read_dir(dir.join(ck)).unwrap().flatten();
            all.map(|f| f.file_name()).collect::<std::collections::BTreeSet<_>>()
        };
        for _ in 0..2 {
            let before = files();
            until(&mut job, || files() != before);
        }
        // One more is one too many where a step takes two gradients; of all others, all
        // may go.
        let asked =
            if mode.contains("need 2") { *workers(launcher).last().unwrap() } else { launcher };
        assert!(signal(asked, "-TERM"));
        let (good, err) = end(job);
        assert!(!good && err.contains(&format!("which is saved in `{ck}`")), "{mode}: {err}");
        let lost = "worker 2 is lost, 2 workers are left";
        assert_eq!(err.contains(lost), ck == "shrink", "{mode}: {err}");
        assert!(!err.contains("error["), "{mode}: {err}");
    }
    // In a mode that needs all of them, all stop, and can go on.
    let job = start("--ps 1 -n 2", "", "all");
    assert!(signal(*workers(job.id()).last().unwrap(), "-TERM"));
    let (good, err) = end(job);
    assert!(!good && err.contains("which is saved in `all`"), "{err}");
}

#[test]
fn anybody_with_the_token_may_read() {
    let dir = project();
    let dir = dir.path();
    let servers = format!("{},{}", free_address(), free_address());
    let line = format!("launch --ps 2 -n 2 {TRAIN} --steps 1000000 --epochs 1000000");
    let mut c = command(
        dir,
        env!("CARGO_BIN_EXE_tfc"),
        &format!("{line} --checkpoint-dir ck --save-every 400"),
    );
    c.env("TFC_SERVERS", &servers).env("TFC_TOKEN", "secret");
    let mut job = c.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    until(&mut job, || saved(&dir.join("ck"), 2));
    let read = |token: &str| {
        let line = format!("predict --feed x=x.npy --out class=c.npy --cluster {servers}");
        command(dir, "./m", &line).env("TFC_TOKEN", token).output().unwrap()
    };
    let refused = read("guess");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("token"), "{refused:?}");
    ok(read("secret"));
    // By a cluster file, too.
    let tasks: Vec<String> = servers.split(',').map(|at| format!("{at:?}")).collect();
    let file = format!("[job.ps]\ntasks = [{}]\n", tasks.join(", "));
    std::fs::write(dir.join("c.toml"), file).unwrap();
    let line = "predict --feed x=x.npy --out class=c.npy --cluster c.toml";
    ok(command(dir, "./m", line).env("TFC_TOKEN", "secret").output().unwrap());
    let line = format!("predict --feed x=x.npy --out class=c.npy --cluster {servers}");
    let mut strong = command(dir, "./m", &format!("{line} --consistency strong"));
    ok(strong.env("TFC_TOKEN", "secret").output().unwrap());
    assert!(signal(job.id(), "-TERM"));
    let (_, err) = end(job);
    assert!(err.contains("which is saved in `ck`"), "{err}");
    let (labels, classes) = (std::fs::read(dir.join("y.npy")), std::fs::read(dir.join("c.npy")));
    let (labels, classes) = (labels.unwrap(), classes.unwrap());
    let same = labels[128..].chunks(4).zip(classes[128..].chunks(4)).filter(|(a, b)| a == b);
    let same = same.count();
    assert!(same > 80, "it has learned {same} of 96 examples");
}

/// Messages with servers are encrypted, and who has no certificate gets no variables.
#[test]
fn servers_know_their_workers_by_certificates() {
    let dir = project();
    let dir = dir.path();
    let Some(with) = certificates(dir) else { return };
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    ok(tfc(dir, &format!("launch --ps 2 -n 2 {TRAIN} {with} --state tls.safetensors")));
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("tls.safetensors")));
    let servers = format!("{},{}", free_address(), free_address());
    let line = format!("launch --ps 2 -n 2 {TRAIN} {with} --steps 1000000 --epochs 1000000");
    let line = format!("{line} --checkpoint-dir ck --save-every 400");
    let mut c = command(dir, env!("CARGO_BIN_EXE_tfc"), &line);
    c.env("TFC_SERVERS", &servers).env("TFC_TOKEN", "secret");
    let mut job = c.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    until(&mut job, || saved(&dir.join("ck"), 2));
    let read = |more: &str| {
        let line = format!("predict --feed x=x.npy --out class=c.npy --cluster {servers} {more}");
        let mut c = command(dir, "./m", &format!("{line} --join-timeout 5s --peer-timeout 5s"));
        c.env("TFC_TOKEN", "secret").output().unwrap()
    };
    let refused = read("");
    let err = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && err.contains("E07"), "{err}");
    assert!(!dir.join("c.npy").exists(), "it got nothing");
    ok(read(with));
    assert!(signal(job.id(), "-TERM"));
    let (_, err) = end(job);
    assert!(err.contains("which is saved in `ck`"), "{err}");
}

/// A job starts from the script that was printed, with a stand-in for `srun`.
#[test]
fn manifests_say_who_is_who() {
    let dir = project();
    let dir = dir.path();
    let k8s = ok(tfc(dir, "launch --ps 2 -n 3 --print k8s ./m train --batch 8"));
    for words in [
        "completions: 3",
        "completions: 2",
        "value: \"m-ps-0.m:29770,m-ps-1.m:29770\"",
        "command: [\"./m\", \"train\", \"--batch\", \"8\"]",
        "completionMode: Indexed",
    ] {
        assert!(k8s.contains(words), "{words}: {k8s}");
    }
    // Who joins knows a secret, and nothing is silently plain text.
    for words in [
        "# kubectl create secret generic m-token --from-literal=token=",
        "- name: TFC_TOKEN\n              valueFrom:\n                secretKeyRef:\n                  \
         name: m-token\n                  key: token\n",
        "# Nothing on the wire is encrypted",
    ] {
        assert!(k8s.contains(words), "{words}: {k8s}");
    }
    let again = "--restarts 3 --print k8s ./m train --checkpoint-dir ck --tls-cert me.pem";
    let again = ok(tfc(dir, &format!("launch -n 3 {again}")));
    assert!(again.contains("\"--resume\"]") && again.contains("backoffLimit: 3"), "{again}");
    assert!(!again.contains("TFC_PLAINTEXT") && !k8s.contains("--resume"), "{again}");
    let plain = ok(tfc(dir, "launch -n 3 --print k8s ./m train"));
    assert!(plain.contains("m-worker-0.m:29770") && !plain.contains("TFC_ROLE"), "{plain}");
    let script =
        ok(tfc(dir, &format!("launch --ps 2 -n 2 --print slurm {TRAIN} --state s.safetensors")));
    std::fs::write(dir.join("job.sh"), script).unwrap();
    let srun = "#!/bin/bash\ncase $1 in --ntasks*) shift;; esac\nfor i in 0 1 2 3; do\n\
                SLURM_PROCID=$i \"$@\" & pids=\"$pids $!\"\ndone\n\
                for p in $pids; do wait $p || exit 1; done\n";
    std::fs::write(dir.join("srun"), srun).unwrap();
    std::fs::write(dir.join("hostname"), "#!/bin/bash\necho 127.0.0.1\n").unwrap();
    ok(run(dir, "chmod +x srun hostname"));
    let path = format!("{}:{}", dir.display(), std::env::var("PATH").unwrap_or_default());
    // Each server has a port of its own, so that they may be on one host.
    let id = free_job(|id| vec![29770 + 2 * id, 29771 + 2 * id]);
    let mut job = command(dir, "bash", "job.sh");
    ok(job.env("PATH", path).env("SLURM_JOB_ID", id.to_string()).output().unwrap());
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("s.safetensors")));
}
