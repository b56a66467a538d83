//! Jobs of several processes, each with a simulated GPU: gradients that go from GPU to GPU
//! through the simulated NCCL (`testdata/nccl`) are those that go through the CPU, and what
//! happens when a process is lost or the library is not there.

use super::{Device, Options, driver, text};
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};
use tfc::emit::{Artifact, Emitter};
use tfc::link::LinkOptions;

/// The gradients of `b` and `c` are large: all together they are two exchanges.
const TRAIN: &str = "graph m
use optim
dim B
var b: f64[131100] = random_normal(2, shape: [131100], dtype: f64) * 0.01
var c: f64[131100] = ones
var w: f32[3, 2] = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
var h: f16[3] = [0.5, 0.25, 0.75]
var g: bf16[3] = [0.5, 0.25, 0.75]
var d: f64[2] = [1.0, 0.5]
entry train(x: f32[B, 3], y: f32[B, 2]) -> (loss: f32[], most: i32[], least: f32[]) {
  s = cast(mean(b * b * c * (1.0 + cast(mean(x), to: f64))), to: f32)
  z = (x * cast(h, to: f32) + x * cast(g, to: f32)) @ w * cast(d, to: f32) + s
  loss = mean((z - y) * (z - y))
  most = all_reduce(cast(max(x), to: i32), op: \"max\")
  least = all_reduce(min(x), op: \"min\")
  minimize loss over [b, c, w, h, g, d] with optim.momentum(lr: 0.125)
  return loss, most, least
}
";

/// Without the large ones, for many steps.
const SMALL: &str = "graph m
use optim
dim B
var w: f32[3, 2] = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]
entry train(x: f32[B, 3], y: f32[B, 2]) -> (loss: f32[]) {
  z = x @ w
  loss = mean((z - y) * (z - y))
  minimize loss over [w] with optim.sgd(lr: 0.01)
  return loss
}
";

/// The simulated library, beside this test.
pub(super) fn library() -> PathBuf {
    // So that it is built, though nothing of it is called here.
    let _ = tfc_nccl_sim::ncclGroupStart as *const ();
    let here = driver().with_file_name("libtfc_nccl_sim.so");
    assert!(here.exists(), "{} is missing", here.display());
    here
}

fn program(graph: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let exe = dir.path().join("m");
    let file = dir.path().join("m.graph");
    std::fs::write(&file, graph).expect("it is written");
    let files = tfc::load::Files::in_dir(dir.path());
    let graph = tfc::load::parse_as("m.graph", graph, &files).expect("a graph").graph;
    let mut timings = tfc::driver::Timings::default();
    let options = Options::new().device(Device::Cuda(0)).replicas(true);
    let compiled =
        tfc::driver::compile(&graph, &graph.sources, &options, &mut timings).expect("a program");
    let emitter = Emitter {
        program: compiled.program(),
        graph: compiled.graph(),
        link: LinkOptions::default(),
        prefix: "m",
        cpu: tfc_codegen::Cpu::Portable,
        gpus: Some(vec![]),
    };
    emitter.write(Artifact::Executable, &exe, &mut timings).expect("it links");
    (dir, exe)
}

/// How a job is run, beside its command.
#[derive(Clone)]
struct Setting {
    workers: usize,
    nccl: String,
    debug: &'static str,
    cuda: PathBuf,
    /// Of each worker: what the simulated library is told, and what the program runs on.
    simulated: fn(usize) -> &'static str,
    log: Option<PathBuf>,
    device: fn(usize) -> &'static str,
}

impl Setting {
    fn new(workers: usize) -> Setting {
        Setting {
            workers,
            nccl: library().to_string_lossy().into_owned(),
            debug: "",
            cuda: driver(),
            simulated: |_| "",
            log: None,
            device: |_| "cuda",
        }
    }
}

/// A job; what is left of it ends with it.
struct Job(Vec<Child>);

impl Drop for Job {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(exe: &Path, setting: &Setting, args: &str) -> Job {
    start_at(exe, setting, args, free_port())
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port()
}

/// Where the chief waits for the others, so that one may come back.
fn start_at(exe: &Path, setting: &Setting, args: &str, port: u16) -> Job {
    Job((0..setting.workers).map(|rank| worker(exe, setting, args, port, rank)).collect())
}

fn worker(exe: &Path, setting: &Setting, args: &str, port: u16, rank: usize) -> Child {
    let mut command = Command::new(exe);
    command.args(args.split_whitespace()).args(["--device", (setting.device)(rank)]);
    command.current_dir(exe.parent().expect("in a folder"));
    command.env("TFC_RANK", rank.to_string()).env("TFC_SIZE", setting.workers.to_string());
    command.env("TFC_COORDINATOR", format!("127.0.0.1:{port}"));
    command.env("TFC_CUDA", &setting.cuda).env("NCCL_DEBUG", setting.debug);
    command.env("TFC_SIM", format!("devices={}", setting.workers));
    command.env("TFC_NCCL", &setting.nccl).env("TFC_NCCL_SIM", (setting.simulated)(rank));
    if let Some(log) = &setting.log {
        command.env("TFC_SIM_LOG", log);
    }
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// What came of each worker: its exit code, and what it said.
fn ended(job: &mut Job) -> Vec<(Option<i32>, String)> {
    let one = |child: &mut Child| {
        let (mut out, mut err) = (vec![], vec![]);
        child.stdout.take().expect("it was piped").read_to_end(&mut out).expect("it is read");
        child.stderr.take().expect("it was piped").read_to_end(&mut err).expect("it is read");
        let code = child.wait().expect("it ends").code();
        (code, text(&out) + &text(&err))
    };
    job.0.iter_mut().map(one).collect()
}

/// Runs a job to its good end; gives what the chief said.
fn ok(exe: &Path, setting: &Setting, args: &str) -> String {
    let all = ended(&mut start(exe, setting, args));
    assert!(all.iter().all(|(code, _)| *code == Some(0)), "{all:?}");
    all.into_iter().next().expect("a chief").1
}

fn bytes(exe: &Path, name: &str) -> Vec<u8> {
    std::fs::read(exe.with_file_name(name)).expect("a state")
}

const DATA: &str = "train --feed x=x.npy --feed y=y.npy";

/// A folder with the program and data: as many rows as are said.
fn project(graph: &str, rows: usize) -> (tempfile::TempDir, PathBuf) {
    let (dir, exe) = program(graph);
    for (name, width) in [("x", 3), ("y", 2)] {
        let numbers: Vec<u8> = (0..rows * width)
            .flat_map(|i| ((i * 7 % 13) as f32 * 0.25 - 1.0).to_le_bytes())
            .collect();
        let head =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {width}), }}");
        let head = format!("{head:<117}\n");
        let magic = [&b"\x93NUMPY\x01\x00"[..], &(head.len() as u16).to_le_bytes()].concat();
        let all = [&magic, head.as_bytes(), &numbers].concat();
        std::fs::write(dir.path().join(format!("{name}.npy")), all).expect("it is written");
    }
    (dir, exe)
}

fn counted(log: &Path, name: &str) -> Vec<u64> {
    let counts = std::fs::read_to_string(log).expect("the simulator's counts");
    let number = |line: &str| {
        let word = line.split(' ').find_map(|w| w.strip_prefix(name)?.strip_prefix('='));
        word.and_then(|n| n.parse().ok()).expect("a number")
    };
    counts.lines().map(number).collect()
}

/// Two workers add the same two numbers either way: the same bits, for every type of
/// elements, with shares that are not the same, and through the last, smaller batch.
#[test]
fn two_workers_learn_the_same_bits_as_through_the_cpu() {
    let (dir, exe) = project(TRAIN, 8);
    let train = format!("{DATA} --batch 5");
    let log = dir.path().join("log");
    let direct = Setting { log: Some(log.clone()), ..Setting::new(2) };
    let said = ok(&exe, &direct, &format!("{train} --state direct.safetensors"));
    assert!(said.contains("2 workers train together over gRPC"), "{said}");
    assert!(said.contains("gradients go from GPU to GPU by NCCL 2.21.5"), "{said}");
    // In each of two steps two of gradients, and one of `most`; `least` is not for NCCL.
    assert_eq!(counted(&log, "together"), [6, 6]);
    std::fs::remove_file(&log).expect("it is removed");
    let around = Setting { nccl: "0".into(), ..direct };
    let said = ok(&exe, &around, &format!("{train} --state around.safetensors"));
    assert!(said.contains("through the CPU: worker 0 was told so by TFC_NCCL=0"), "{said}");
    assert_eq!(counted(&log, "together"), [0, 0]);
    assert_eq!(bytes(&exe, "direct.safetensors"), bytes(&exe, "around.safetensors"));
    assert!(!bytes(&exe, "direct.safetensors").is_empty());
}

/// The small sums of four workers are made in one order, too. One of the batches has an
/// example for three of them.
#[test]
fn four_workers_learn_the_same_bits_as_through_the_cpu() {
    let (_dir, exe) = project(SMALL, 11);
    let train = format!("{DATA} --batch 8 --epochs 3");
    let direct = Setting::new(4);
    let said = ok(&exe, &direct, &format!("{train} --state direct.safetensors"));
    assert!(said.contains("from GPU to GPU"), "{said}");
    let around = Setting { nccl: "0".into(), ..direct };
    ok(&exe, &around, &format!("{train} --state around.safetensors"));
    assert_eq!(bytes(&exe, "direct.safetensors"), bytes(&exe, "around.safetensors"));
}

/// Whatever keeps one of them from it, all exchange through the CPU, and it is said once.
#[test]
fn without_the_library_gradients_go_through_the_cpu() {
    let (_dir, exe) = project(SMALL, 8);
    let train = format!("{DATA} --batch 4 --state s.safetensors");
    let on_cpu = |rank| if rank == 1 { "cpu" } else { "cuda" };
    // Both take the same GPU, which NCCL refuses.
    let same = |_| "cuda:0";
    let all = Setting::new(2);
    for (setting, why) in [
        (Setting { nccl: "/nowhere/libnccl.so.2".into(), ..all.clone() }, "has no NCCL"),
        (Setting { simulated: |_| "old", ..all.clone() }, "older than 2.14"),
        (
            Setting { nccl: driver().to_string_lossy().into_owned(), ..all.clone() },
            "the library of worker 0 is not NCCL",
        ),
        (Setting { simulated: |_| "no-start", ..all.clone() }, "NCCL does not start on worker 0: "),
        (Setting { device: on_cpu, ..all.clone() }, "worker 1 runs on the CPU"),
        (Setting { device: same, ..all.clone() }, "NCCL does not start"),
    ] {
        let all = ended(&mut start(&exe, &setting, &train));
        assert!(all.iter().all(|(code, _)| *code == Some(0)), "{why}: {all:?}");
        let note = "gradients go through the CPU: ";
        assert_eq!(all[0].1.matches(note).count(), 1, "{why}: {all:?}");
        assert!(all[0].1.contains(why) && !all[1].1.contains(note), "{why}: {all:?}");
        // A reason is given, or where it can be found.
        assert!(all[0].1.matches("does not start").count() <= 1, "{why}: {all:?}");
        assert!(!all[0].1.contains("NCCL_DEBUG"), "{why}: {all:?}");
    }
}

/// What NCCL has no part in, `NCCL_DEBUG` says all the same, as the note promises.
#[test]
fn what_the_driver_refuses_is_said_where_nccl_would_say_it() {
    let (dir, exe) = project(SMALL, 8);
    let cuda = dir.path().join("libcuda.so");
    // The program's code is loaded first, then what multiplies by shares.
    let source = "#define _GNU_SOURCE\n#include <dlfcn.h>\n\
        typedef int Load(void **, const void *, unsigned, int *, void **);\n\
        int cuModuleLoadDataEx(void **m, const void *p, unsigned n, int *o, void **v) {\n\
          static int loads;\n\
          if (++loads == 2) return 222;\n\
          return ((Load *)dlsym(RTLD_NEXT, \"cuModuleLoadDataEx\"))(m, p, n, o, v);\n}\n";
    std::fs::write(cuda.with_extension("c"), source).expect("it is written");
    let cc = tfc::link::find_linker(None).expect("a C compiler");
    let mut cc = Command::new(cc);
    cc.args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"]).arg(&cuda);
    let built = cc.arg(cuda.with_extension("c")).arg(driver()).arg("-ldl").output();
    let built = built.expect("it runs");
    assert!(built.status.success(), "{}", text(&built.stderr));
    let setting = Setting { cuda, ..Setting::new(2) };
    for (debug, said) in [("", false), ("WARN", true)] {
        let setting = Setting { debug, ..setting.clone() };
        let all = ended(&mut start(&exe, &setting, &format!("{DATA} --batch 4")));
        assert!(all[0].1.contains("NCCL does not start on worker 0; NCCL_DEBUG=WARN"), "{all:?}");
        for (code, output) in &all {
            assert_eq!(*code, Some(0), "{output}");
            let why = output.contains("CUDA_ERROR_UNSUPPORTED_PTX_VERSION");
            assert_eq!(why, said, "{debug}: {output}");
        }
    }
}

/// A worker that dies in an exchange is named by the others, whether NCCL notices or not,
/// and whether it has connected the GPUs by then; and one that hangs, when the time is over.
#[test]
fn a_worker_that_is_lost_or_hangs_is_named() {
    let (_dir, exe) = project(SMALL, 8);
    let long = format!("{DATA} --batch 4 --epochs 100000 --peer-timeout");
    let first: fn(usize) -> &'static str = |rank| if rank == 2 { "dies=1" } else { "" };
    let dies: fn(usize) -> &'static str = |rank| if rank == 2 { "dies=8" } else { "" };
    let noticed: fn(usize) -> &'static str = |rank| if rank == 2 { "dies=8" } else { "notices" };
    let stops: fn(usize) -> &'static str = |rank| if rank == 2 { "stops=8" } else { "" };
    for (simulated, timeout, code) in [
        (first, "60s", "E0701"),
        (dies, "60s", "E0701"),
        (noticed, "60s", "E0701"),
        (stops, "4s", "E0702"),
    ] {
        let setting = Setting { simulated, ..Setting::new(3) };
        let begun = Instant::now();
        let mut job = start(&exe, &setting, &format!("{long} {timeout}"));
        let all = ended(&mut Job(job.0.drain(..2).collect()));
        let took = begun.elapsed();
        for (status, said) in &all {
            assert_eq!(*status, Some(4), "{said}");
            for part in [code, "worker 2", "the gradient of `w`", "m.graph:8:"] {
                assert!(said.contains(part), "{part}: {said}");
            }
        }
        assert!(took < Duration::from_secs(40), "{took:?}");
    }
}

/// An exchange that NCCL gives up is an error in its words, and a job goes on from its
/// checkpoint as if nothing had happened.
#[test]
fn a_step_that_fails_in_an_exchange_changes_nothing() {
    let (_dir, exe) = project(SMALL, 8);
    let train = format!("{DATA} --batch 4 --epochs 6");
    let log = exe.with_file_name("log");
    let setting = Setting { log: Some(log.clone()), ..Setting::new(2) };
    ok(&exe, &setting, &format!("{train} --state whole.safetensors"));
    // What stands between exchanges is recorded, these are not.
    assert_eq!(counted(&log, "together"), [12, 12]);
    assert!(counted(&log, "graphs").iter().all(|n| *n >= 12), "{:?}", counted(&log, "graphs"));
    let broken = Setting { simulated: |_| "fail=8", ..setting.clone() };
    let kept = format!("{train} --peer-timeout 8s --checkpoint-dir ck");
    let all = ended(&mut start(&exe, &broken, &kept));
    for (status, said) in &all {
        assert_eq!(*status, Some(4), "{said}");
        let nccl = "NCCL says: remote process exited or there was a network error";
        assert!(said.contains(nccl) && said.contains("E0701"), "{said}");
    }
    // The chief has saved the last whole step, which is the seventh.
    let said = ok(&exe, &setting, &format!("{kept} --resume --state resumed.safetensors"));
    assert!(said.contains("from GPU to GPU"), "{said}");
    assert_eq!(bytes(&exe, "whole.safetensors"), bytes(&exe, "resumed.safetensors"));
}

const WHOLE: &str = "the run goes on from the last whole step";

/// What the chief says, until that has some words in it; all there is otherwise. A job that
/// forms its group again and again does not go on.
fn heard(chief: &mut BufReader<ChildStderr>, said: &mut String, words: &str) {
    while !said.contains(words) && chief.read_line(said).expect("it is read") > 0 {
        assert!(said.matches(WHOLE).count() < 4, "{said}");
    }
}

/// Those that are left find each other anew, and their tensors stay on the GPUs. Who is lost
/// is named, though the group's own connections end with its.
#[test]
fn workers_that_are_left_exchange_by_their_gpus() {
    let (dir, exe) = project(SMALL, 8);
    let log = dir.path().join("log");
    let setting = Setting {
        simulated: |rank| if rank == 2 { "dies=8" } else { "" },
        log: Some(log.clone()),
        ..Setting::new(3)
    };
    let train = format!("{DATA} --batch 4 --epochs 10 --on-loss shrink --metrics m.json");
    let mut job = start(&exe, &setting, &train);
    let all = ended(&mut Job(job.0.drain(..2).collect()));
    assert!(all.iter().all(|(code, _)| *code == Some(0)), "{all:?}");
    let said = &all[0].1;
    let words = format!("worker 2 is lost, 2 workers are left: {WHOLE}");
    assert!(said.contains(&words) && said.contains("worker 2 is gone"), "{said}");
    assert!(!said.contains("worker 1 is gone"), "{said}");
    assert_eq!(said.matches("gradients go").count(), 1, "{said}");
    assert!(said.contains("from GPU to GPU"), "{said}");
    // In each of 20 steps one, whether with all or with two; and one that failed.
    assert!(counted(&log, "together").iter().all(|n| [20, 21].contains(n)), "{said}");
}

/// One that comes back without the library has all exchange through the CPU from there on,
/// with the same bits.
#[test]
fn a_worker_that_comes_back_without_nccl_takes_all_through_the_cpu() {
    let (dir, exe) = project(SMALL, 8);
    let train = format!("{DATA} --batch 4 --epochs 10");
    let whole = Setting::new(2);
    ok(&exe, &whole, &format!("{train} --state whole.safetensors"));
    let log = dir.path().join("log");
    let setting = Setting {
        simulated: |rank| if rank == 1 { "dies=8" } else { "" },
        log: Some(log.clone()),
        ..whole.clone()
    };
    let train = format!("{train} --on-loss wait --join-timeout 60s --state s.safetensors");
    let port = free_port();
    let mut job = start_at(&exe, &setting, &train, port);
    let mut chief = BufReader::new(job.0[0].stderr.take().expect("it was piped"));
    let mut said = String::new();
    heard(&mut chief, &mut said, "waiting for worker 1 to come back");
    let without = Setting { nccl: "0".into(), log: None, ..whole };
    job.0.push(worker(&exe, &without, &train, port, 1));
    heard(&mut chief, &mut said, "the end of it");
    assert_eq!(job.0[0].wait().expect("it ends").code(), Some(0), "{said}");
    assert!(said.contains("gradients go from GPU to GPU"), "{said}");
    let why = "gradients go through the CPU: worker 1 was told so by TFC_NCCL=0";
    assert_eq!(said.matches(why).count(), 1, "{said}");
    assert!(counted(&log, "together").iter().all(|n| *n <= 8), "{said}");
    assert_eq!(bytes(&exe, "whole.safetensors"), bytes(&exe, "s.safetensors"));
}

/// Without the worker that has none, those that are left exchange by their GPUs.
#[test]
fn gradients_leave_the_cpu_with_the_last_worker_that_needs_it() {
    let (dir, exe) = project(SMALL, 8);
    let log = dir.path().join("log");
    let setting = Setting {
        device: |rank| if rank == 2 { "cpu" } else { "cuda" },
        log: Some(log.clone()),
        ..Setting::new(3)
    };
    let long = format!("{DATA} --batch 4 --epochs 1000000 --on-loss shrink --checkpoint-dir ck");
    let mut job = start(&exe, &setting, &format!("{long} --save-every 2"));
    let mut chief = BufReader::new(job.0[0].stderr.take().expect("it was piped"));
    let mut said = String::new();
    heard(&mut chief, &mut said, "gradients go through the CPU: worker 2 runs on the CPU");
    let begun = Instant::now();
    while !dir.path().join("ck").exists() && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    job.0[2].kill().expect("it is there");
    heard(&mut chief, &mut said, "gradients go from GPU to GPU by NCCL");
    // Some steps later.
    let saved = || -> std::collections::BTreeSet<_> {
        let files = std::fs::read_dir(dir.path().join("ck")).into_iter().flatten();
        files.filter_map(|f| f.ok().map(|f| f.file_name())).collect()
    };
    let (begun, before) = (Instant::now(), saved());
    while saved() == before && begun.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let chief_id = job.0[0].id().to_string();
    assert!(Command::new("kill").arg(chief_id).status().expect("it runs").success());
    heard(&mut chief, &mut said, "the end of it");
    assert_eq!(job.0[0].wait().expect("it ends").code(), Some(75), "{said}");
    assert_eq!(job.0[1].wait().expect("it ends").code(), Some(75), "{said}");
    let words = format!("worker 2 is lost, 2 workers are left: {WHOLE}");
    assert!(said.contains(&words), "{said}");
    assert!(counted(&log, "together").iter().all(|n| *n > 0), "{said}");
}

/// From Rust: a group that is formed again exchanges through the CPU until all have
/// connected their GPUs again.
#[test]
fn modules_connect_their_gpus_again_after_a_loss() {
    use tfc::net::direct::Way;
    use tfc::net::job::{Job, OnLoss};
    super::use_simulator();
    let graph = tfc::parse(SMALL).expect("a graph");
    let at = format!("127.0.0.1:{}", free_port());
    let learn = |rank: usize| -> Vec<f32> {
        let job = Job { on_loss: OnLoss::Shrink, ..Job::new(rank, 3, &at) };
        let group = std::sync::Arc::new(tfc::net::Group::join(&job, &[0; 32]).expect("a group"));
        let options = Options::new().device(Device::Cuda(rank as u32)).replicas(true).threads(1);
        let module = tfc::compile_with(&graph, &options).expect("a module");
        module.join(group.clone());
        let connect = || module.connect_gpus().expect("all answer");
        assert!(matches!(connect(), Way::Direct(_)));
        let (x, y) = (ndarray::Array2::<f32>::ones((4, 3)), ndarray::Array2::<f32>::ones((4, 2)));
        let step = || {
            group.set_share(1, group.size());
            module.call("train", (&x, &y))
        };
        step().expect("a step");
        if rank == 2 {
            return vec![];
        }
        let e = step().expect_err("one is lost");
        assert_eq!(e.code(), tfc::ErrorCode::PEER_LOST, "{e}");
        let what = group.regroup(&mut |_| {}).expect("two are left");
        assert_eq!(what.lost, [2]);
        step().expect("a step through the CPU");
        assert!(matches!(connect(), Way::Direct(_)));
        step().expect("a step by the GPUs");
        let w = module.var::<f32>("w").expect("w");
        group.farewell().expect("both are done");
        w.iter().copied().collect()
    };
    let learned: Vec<Vec<f32>> = std::thread::scope(|s| {
        let all: Vec<_> = (0..3).map(|rank| s.spawn(move || learn(rank))).collect();
        all.into_iter().map(|t| t.join().expect("no panic")).collect()
    });
    // As one would, three times: all have the same examples.
    let module = tfc::compile(&graph).expect("a module");
    let (x, y) = (ndarray::Array2::<f32>::ones((4, 3)), ndarray::Array2::<f32>::ones((4, 2)));
    for _ in 0..3 {
        module.call("train", (&x, &y)).expect("a step");
    }
    let alone = module.var::<f32>("w").expect("w");
    assert_eq!(learned[0], learned[1]);
    assert!(learned[0].iter().zip(alone.iter()).all(|(a, b)| (a - b).abs() < 1e-5), "{learned:?}");
}

/// Tensors of other sizes in other processes are found, as they are between CPUs.
#[test]
fn tensors_whose_sizes_batches_decide_go_through_the_cpu() {
    let graph = SMALL.replace("z = x @ w\n", "z = all_reduce(x, op: \"sum\") @ w\n");
    let (dir, exe) = project(&graph, 10);
    let log = dir.path().join("log");
    let setting = Setting { log: Some(log.clone()), ..Setting::new(2) };
    ok(&exe, &setting, &format!("{DATA} --batch 2"));
    // The gradients alone.
    assert_eq!(counted(&log, "together"), [5, 5]);
    // Of five rows one has two and the other has three.
    let all = ended(&mut start(&exe, &setting, &format!("{DATA} --batch 5")));
    assert!(all.iter().all(|(code, _)| *code == Some(4)), "{all:?}");
    // One of them may hear first that the other has ended.
    assert!(all.iter().any(|(_, said)| said.contains("E0704")), "{all:?}");
}

/// From Rust, with threads for processes: one GPU each, and none of them twice.
#[test]
fn modules_of_one_process_exchange_by_their_gpus() {
    use tfc::net::direct::Way;
    super::use_simulator();
    let graph = tfc::parse(SMALL).expect("a graph");
    let learn = |gpus: [u32; 2], direct: bool| -> Vec<(Option<Way>, Vec<f32>)> {
        let groups = tfc::net::local::groups(2, Duration::from_secs(30));
        let one = |(rank, group): (usize, tfc::net::Group)| {
            let device = Device::Cuda(gpus[rank]);
            let options = Options::new().device(device).replicas(true).threads(1);
            let module = tfc::compile_with(&graph, &options).expect("a module");
            module.join(std::sync::Arc::new(group));
            let way = direct.then(|| module.connect_gpus().expect("all answer"));
            let x = ndarray::Array2::from_elem((4, 3), rank as f32 + 0.5);
            for _ in 0..3 {
                let y = ndarray::Array2::<f32>::ones((4, 2));
                module.call("train", (&x, &y)).expect("a step");
            }
            let w = module.var::<f32>("w").expect("w");
            (way, w.iter().copied().collect())
        };
        std::thread::scope(|s| {
            let both: Vec<_> =
                groups.into_iter().enumerate().map(|g| s.spawn(move || one(g))).collect();
            both.into_iter().map(|t| t.join().expect("no panic")).collect()
        })
    };
    let around = learn([0, 1], false);
    let direct = learn([0, 1], true);
    assert_eq!(direct[0].0, Some(Way::Direct("NCCL 2.21.5".into())));
    let twice = learn([1, 1], true);
    assert!(matches!(&twice[1].0, Some(Way::ThroughCpu(why)) if why.contains("does not start")));
    for (_, w) in around.iter().chain(&direct).chain(&twice) {
        assert_eq!(*w, around[0].1);
    }
}

/// While a step waits for another process, calls that exchange nothing do not, though their
/// sizes are new.
#[test]
fn a_step_that_waits_holds_no_other_call_up() {
    super::use_simulator();
    let other = "entry twice(x: f32[B]) -> (y: f32[B]) { return x + x }\n";
    let graph = tfc::parse(&format!("{SMALL}{other}")).expect("a graph");
    let module = |(rank, group): (usize, tfc::net::Group)| {
        let device = Device::Cuda(rank as u32);
        let options = Options::new().device(device).replicas(true).threads(1);
        let module = tfc::compile_with(&graph, &options).expect("a module");
        module.join(std::sync::Arc::new(group));
        module
    };
    let groups = tfc::net::local::groups(2, Duration::from_secs(30));
    let modules: Vec<tfc::Module> = groups.into_iter().enumerate().map(module).collect();
    std::thread::scope(|s| {
        for m in &modules {
            s.spawn(|| m.connect_gpus().expect("all answer"));
        }
    });
    let train = |m: &tfc::Module| {
        let (x, y) = (ndarray::Array2::<f32>::ones((4, 3)), ndarray::Array2::<f32>::ones((4, 2)));
        m.call("train", (&x, &y)).expect("a step");
    };
    let (done, calls) = std::sync::mpsc::channel();
    std::thread::scope(|s| {
        s.spawn(|| train(&modules[0]));
        s.spawn(|| {
            // Until the step is sure to wait.
            let begun = Instant::now();
            for size in (1..).take_while(|_| begun.elapsed() < Duration::from_secs(2)) {
                modules[0].call("twice", (&ndarray::Array1::<f32>::ones(size),)).expect("a call");
            }
            done.send(()).expect("somebody listens");
        });
        let all = calls.recv_timeout(Duration::from_secs(15));
        train(&modules[1]);
        all.expect("calls that do not wait");
    });
}

/// The kernels that multiply by a share round as the CPU does, for every value of 16 bits,
/// and for every type.
#[test]
fn shares_are_multiplied_as_on_the_cpu() {
    use tfc::DType;
    use tfc_ptx_sim::{Arg, Launch, Module};
    use tfc_runtime::cuda::nccl::scale::{PTX, entry};
    let module = Module::parse(PTX).expect("the simulator reads it");
    let values = |dtype: DType| -> Vec<u8> {
        match dtype.size() {
            2 => (0..=u16::MAX).flat_map(u16::to_le_bytes).collect(),
            4 => (0..3000u32)
                .flat_map(|i| f32::from_bits(i.wrapping_mul(1_432_099)).to_le_bytes())
                .collect(),
            _ => (0..3000u64)
                .flat_map(|i| f64::from_bits(i.wrapping_mul(6_148_914_691_236_517)).to_le_bytes())
                .collect(),
        }
    };
    for dtype in [DType::F64, DType::F32, DType::F16, DType::BF16] {
        for share in [1.0 / 3.0, 0.625, 1.0, 1e-3] {
            let input = values(dtype);
            let mut want = input.clone();
            tfc_compute::combine::scale(&mut want, dtype, share);
            let mut device = tfc_ptx_sim::Device::new();
            let at = device.upload(&input);
            let n = input.len() / dtype.size();
            let launch = Launch {
                entry: entry(dtype).expect("a float").to_str().expect("a name"),
                grid: [n.div_ceil(256) as u32, 1, 1],
                block: [256, 1, 1],
                args: &[Arg::Ptr(at), Arg::I64(n as i64), Arg::I64(share.to_bits() as i64)],
                limit: 100_000_000,
            };
            device.launch(&module, &launch).expect("it runs");
            let got = device.read(at, input.len()).expect("memory");
            let number = |b: &[u8]| -> f64 {
                match dtype {
                    DType::F16 => half::f16::from_le_bytes([b[0], b[1]]).to_f64(),
                    DType::BF16 => half::bf16::from_le_bytes([b[0], b[1]]).to_f64(),
                    DType::F32 => f32::from_le_bytes([b[0], b[1], b[2], b[3]]).into(),
                    _ => f64::from_le_bytes(b.try_into().expect("eight bytes")),
                }
            };
            for (g, w) in got.chunks(dtype.size()).zip(want.chunks(dtype.size())) {
                // Any NaN is as good as another.
                assert!(
                    g == w || number(g).is_nan() && number(w).is_nan(),
                    "{dtype:?} {g:?} {w:?}"
                );
            }
        }
    }
}
