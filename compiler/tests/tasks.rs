//! A program that was cut for a cluster: its tasks together compute what one process
//! computes; certificates and predictions.

#[path = "support/certificates.rs"]
mod certificates;
#[path = "support/mpi.rs"]
mod mpi;
#[path = "support/ports.rs"]
mod ports;
mod support;

use certificates::certificates;
use mpi::{MPIRUN, mpirun};
use ports::free_address;
use std::process::Stdio;
use support::{TRAIN, close, command, ok, run, tfc, variables};

/// The same network, its two layers on two tasks.
const CUT: &str = "graph m
use nn
use optim
dim B
var w1: f32[12, 16] = nn.glorot(seed: 1) on \"/job:front/task:0\"
var b1: f32[16] = zeros on \"/job:front\"
var w2: f32[16, 3] = nn.glorot(seed: 2) on \"/job:back/task:0\"
var b2: f32[3] = zeros on \"/job:back/task:0\"
func net(x: f32[B, 12]) -> f32[B, 3] {
  h = tanh(x @ w1 + b1) on \"/job:front/task:0\"
  o = h @ w2 + b2 on \"/job:back/task:0\"
  return o
}
entry predict(x: f32[B, 12]) -> (class: i32[B]) { return argmax(net(x), axis: 1) }
entry train(x: f32[B, 12], y: i32[B]) -> (loss: f32[]) {
  loss = mean(nn.softmax_xent(net(x), y))
  assert(loss < 90.0, message: \"the loss is small\")
  minimize loss over [w1, b1, w2, b2] through optim.clip_global_norm(limit: 1.0) with optim.adam(lr: 1e-2)
  return loss
}
entry data(seed: i64[]) -> (x: f32[96, 12], y: i32[96]) {
  x = random_normal(seed, shape: [96, 12], dtype: f32)
  return x, argmax(x[:, :3] + x[:, 3:6], axis: 1)
}
";

/// A folder with the program `m`, cut for two tasks, and data.
fn cut_project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("m.graph"), CUT).unwrap();
    let at = free_address();
    let cluster =
        format!("[job.front]\ntasks = [\"{at}\"]\n[job.back]\ntasks = [\"127.0.0.1:1\"]\n");
    std::fs::write(dir.path().join("c.toml"), cluster).unwrap();
    ok(tfc(dir.path(), "compile m.graph --cluster c.toml -o m"));
    ok(run(dir.path(), "./m data --feed seed=7 --out x=x.npy --out y=y.npy"));
    dir
}

#[test]
fn halves_of_a_network_on_two_tasks_learn_what_one_process_learns() {
    let dir = cut_project();
    let dir = dir.path();
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    let one = variables(dir.join("one.safetensors"));
    ok(tfc(dir, &format!("launch -n 2 {TRAIN} --state two.safetensors")));
    close(&one, &variables(dir.join("two.safetensors")));
    // Going on from the file: the chief sends the other task its variables.
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    ok(tfc(dir, &format!("launch -n 2 {TRAIN} --state two.safetensors")));
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("two.safetensors")));
    // By hand, each process told its role.
    let line = "train --feed x=x.npy --feed y=y.npy --batch 24 --epochs 13 --shuffle 3 --role";
    let back = command(dir, "./m", &format!("{line} /job:back/task:0"))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let front = command(dir, "./m", &format!("{line} /job:front/task:0 --state by.safetensors"));
    let mut front = front;
    ok(front.output().unwrap());
    ok(back.wait_with_output().unwrap());
    close(&one, &variables(dir.join("by.safetensors")));
    // A prediction of both tasks is that of one.
    let predict = "./m predict --feed x=x.npy --state two.safetensors --out class";
    ok(run(dir, &format!("{predict}=a.npy")));
    ok(tfc(dir, &format!("launch -n 2 {predict}=b.npy")));
    let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(bytes("a.npy"), bytes("b.npy"));
}

/// Two runs give the same bits, and one that was saved on the way and went on too.
#[test]
fn a_program_cut_in_two_resumes_where_it_was() {
    let dir = cut_project();
    let dir = dir.path();
    let train = |more: &str| ok(tfc(dir, &format!("launch -n 2 {TRAIN} {more}")));
    train("--state whole.safetensors");
    train("--epochs 6 --checkpoint-dir run");
    train("--checkpoint-dir run --resume --state rest.safetensors");
    let bytes = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert_eq!(bytes("whole.safetensors"), bytes("rest.safetensors"));
}

#[test]
fn a_task_that_is_lost_or_wrong_is_named() {
    let dir = cut_project();
    let dir = dir.path();
    // One too many.
    let out = tfc(dir, &format!("launch -n 3 {TRAIN}"));
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(err.contains("E0705") && err.contains("2 tasks"), "{err}");
    let out = run(dir, "./m predict --feed x=x.npy --role /job:nobody/task:0");
    let err = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(err.contains("there is no task `/job:nobody/task:0`"), "{err}");
    // The other task is killed in the middle of a step.
    let line = "train --feed x=x.npy --feed y=y.npy --batch 24 --epochs 100000 --shuffle 3 --role";
    let piped = |role: &str| {
        let mut c = command(dir, "./m", &format!("{line} {role}"));
        c.stderr(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    };
    for _ in 0..3 {
        let mut back = piped("/job:back/task:0");
        let mut front = piped("/job:front/task:0");
        // It trains when it says how far it is.
        let mut said = std::io::BufReader::new(front.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut said, &mut line).unwrap();
        let rest = std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        back.kill().unwrap();
        back.wait().unwrap();
        let out = front.wait_with_output().unwrap();
        rest.join().unwrap().unwrap();
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(4), "{line}: {err}");
        // Which task, what of it, and where in the graph: of what the optimizer computes,
        // where it is called.
        for words in ["E0701", "worker 1", "/job:back/task:0", "at m.graph:"] {
            assert!(err.contains(words), "{words}: {err}");
        }
    }
}

/// Every part prints and parses; the reasons for a placement are said.
#[test]
fn parts_are_printed_and_read_again() {
    let dir = cut_project();
    let dir = dir.path();
    let passes = "--passes differentiate,replicas,place,partition --cluster c.toml";
    let text = ok(tfc(dir, &format!("opt m.graph {passes} --last")));
    let parts = text.matches("entry train(").count();
    assert_eq!(parts, 3, "the whole, and a part for each task:\n{text}");
    assert!(text.contains("send(net.h, name: \"`net.h`\", to: \"/job:back/task:0\")"), "{text}");
    std::fs::write(dir.join("cut.graph"), &text).unwrap();
    ok(tfc(dir, "check cut.graph"));
    let why = ok(tfc(
        dir,
        "opt m.graph --passes differentiate,replicas,place --cluster c.toml --explain",
    ));
    assert!(why.contains("train: `net.h` on /job:front/task:0: `net.h` is on"), "{why}");
    let plan = ok(tfc(dir, "compile m.graph --cluster c.toml --emit plan -o -"));
    assert!(plan.contains("send ") && plan.contains("recv "), "{plan}");
}

/// The table is printed and the curve drawn; with `--check`, runs here are compared.
#[test]
fn simulations_say_how_far_they_are_off() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("m.graph"), CUT.replace(" on \"/job:", " //")).unwrap();
    let line = "simulate m.graph --mode ps-async --ps 17 --workers 1..200 --net 10Gbit --step 20ms \
                --straggler 0.05:5 --svg c.svg";
    let text = ok(tfc(dir, line));
    assert!(text.contains("20.000 ms of work on 64 examples"), "{text}");
    let last = text.lines().rfind(|l| l.trim_start().starts_with("200 ")).unwrap();
    assert!(last.contains(" ms"), "{text}");
    let picture = std::fs::read_to_string(dir.join("c.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("polyline"), "{picture}");
    let text = ok(tfc(dir, "simulate m.graph --workers 1..4 --batch 16 --check"));
    let (_, runs) = text.split_once("runs on this machine").unwrap();
    assert_eq!(runs.lines().filter(|l| l.trim_end().ends_with('%')).count(), 3, "{text}");
    // What is run is said where it is not what was asked for.
    assert!(!runs.contains("mode `sync`"), "{text}");
    let text = ok(tfc(dir, "simulate m.graph --mode average --workers 2..2 --batch 16 --check"));
    assert!(text.contains("runs on this machine, all in mode `sync` ("), "{text}");
    let refused = tfc(dir, "simulate m.graph --entry predict");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("E0707"));
}

/// The same over MPI, where `mpirun` is.
#[test]
fn mpi_carries_the_messages_of_parts() {
    let Some(mpirun) = mpirun("") else { return };
    let dir = cut_project();
    let dir = dir.path();
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    let line = format!("{MPIRUN} -n 2 {TRAIN} --state mpi.safetensors");
    ok(command(dir, &mpirun, &line).output().unwrap());
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("mpi.safetensors")));
}

/// Messages are encrypted from the command line; who has no certificate is told so.
#[test]
fn certificates_are_given_on_the_command_line() {
    let dir = cut_project();
    let dir = dir.path();
    let Some(with) = certificates(dir) else { return };
    ok(run(dir, &format!("{TRAIN} --state one.safetensors")));
    ok(tfc(dir, &format!("launch -n 2 {TRAIN} {with} --state tls.safetensors")));
    close(&variables(dir.join("one.safetensors")), &variables(dir.join("tls.safetensors")));
    let half = tfc(dir, &format!("launch -n 2 {TRAIN} --tls-cert me.pem"));
    assert!(String::from_utf8_lossy(&half.stderr).contains("E0708"), "{half:?}");
    // One in plain text, one not: neither gets anything from the other.
    let role = |role: &str, more: &str| {
        let line = TRAIN.trim_start_matches("./m ");
        let mut c = command(dir, "./m", &format!("{line} --join-timeout 2s --role {role} {more}"));
        c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let (front, back) = (role("/job:front/task:0", with), role("/job:back/task:0", ""));
    for out in [front, back].map(|c| c.wait_with_output().unwrap()) {
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(4), "{err}");
    }
}
