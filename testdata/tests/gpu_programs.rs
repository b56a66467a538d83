//! Whole programs on the simulated GPU, as users run them: the runtime loads a simulated
//! driver (`testdata/cuda`) instead of NVIDIA's and does the rest as on hardware. Results
//! and variables are compared with the interpreter of graphs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use tfc::emit::{Artifact, Emitter};
use tfc::link::LinkOptions;
use tfc::load::{Files, parse_as};
use tfc::{Device, ErrorCode, Module, Options};
use tfc_ir::{Tensor, interp};
use tfc_runtime::FeedView;
use tfc_testdata::corpus::{self, Case};
use tfc_testdata::directive::Directive;
use tfc_testdata::generate::{Entry, check, print_graph};
use tfc_testdata::scatter::scatter;
use tfc_testdata::ways::in_parallel;
use tfc_testdata::{compare, feeds};

/// Why a program was not run to its end.
enum Stop {
    /// It has something that is not for a GPU, or is too large.
    LeftOut(String),
    Failed(String),
}

impl From<String> for Stop {
    fn from(message: String) -> Stop {
        // What the simulator would take too long for.
        if message.contains("CUDA_ERROR_LAUNCH_TIMEOUT") {
            return Stop::LeftOut("large".into());
        }
        Stop::Failed(message)
    }
}

/// The simulated driver, beside this test: its crate is one of the test's dependencies.
fn driver() -> PathBuf {
    // So that it is built, though nothing of it is called here.
    let _ = tfc_cuda_sim::cuInit as *const ();
    let here = std::env::current_exe().expect("a test has a file");
    let deps = here.parent().expect("in a folder");
    let library = deps.join("libtfc_cuda_sim.so");
    assert!(library.exists(), "{} is missing", library.display());
    library
}

/// Has this process load the simulated driver.
fn use_simulator() {
    static SET: OnceLock<()> = OnceLock::new();
    SET.get_or_init(|| {
        // SAFETY: nothing here reads the environment but through Rust's own lock.
        unsafe {
            std::env::set_var("TFC_CUDA", driver());
            std::env::set_var("TFC_NCCL", jobs::library());
            std::env::set_var("TFC_SIM", "limit=3000000,devices=3");
        }
    });
}

/// Runs every entry of a case both ways; gives how many calls were compared. Nodes and
/// variables are on devices at random, if there is a seed for that.
fn agree(case: &Case, scattered: Option<u64>) -> Result<usize, Stop> {
    use_simulator();
    let directive = match case.text.starts_with("//!") {
        true => Directive::parse(&case.text)?,
        false => Directive::default(),
    };
    let files = Files::in_dir(case.path.parent().unwrap_or(Path::new("")));
    let name = case.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let graph = parse_as(&name, &case.text, &files).map_err(|e| e.to_string())?.graph;
    let options = Options::new().device(Device::Cuda(0)).print(|_| {}).threads(1);
    let mut timings = tfc::driver::Timings::default();
    let mut placed = graph.clone();
    if let Some(seed) = scattered {
        scatter(&mut placed, seed);
    }
    let compiled = tfc::driver::compile(&placed, &graph.sources, &options, &mut timings)
        .map_err(|e| e.to_string())?;
    let reference = tfc_passes::pipeline::run_passes(&graph, &["differentiate"])
        .map_err(|diags| format!("{} findings", diags.len()))?;
    let initial = interp::State::new(&reference).map_err(|e| e.to_string())?;
    let module = Module::from_compiled(&compiled, &options).map_err(|e| e.to_string())?;
    // A wait that nobody could end is an error.
    module.model().queues().use_alone();
    let dir = tempfile::tempdir().map_err(|e| e.to_string())?;
    module.set_directory(dir.path());
    let mut calls = 0;
    for entry in graph.entries.iter().filter(|e| !e.runner) {
        let Ok(number) = module.model().entry(&entry.name) else { continue };
        for dims in directive.assignments(&feeds::dims(entry)) {
            let feeds = feeds::feeds(entry, &directive, &dims);
            let tensors: Vec<Tensor> = feeds.iter().map(|(_, t)| t.clone()).collect();
            let mut state = initial.clone();
            let context = |what: String| {
                Stop::from(format!("{}: `{}` with {dims:?}: {what}", case.name, entry.name))
            };
            let views: Vec<FeedView<'_>> = feeds
                .iter()
                .map(|(_, t)| FeedView { dtype: t.dtype(), shape: t.shape(), data: t.bytes() })
                .collect();
            module.reset().map_err(|e| context(e.to_string()))?;
            let got = module.model().call(number, &views);
            let Ok(want) = interp::run(&reference, &entry.name, &tensors, &mut state) else {
                if got.is_ok() {
                    return Err(context("only the interpreter refuses it".into()));
                }
                continue;
            };
            let got = got.map_err(|e| context(e.to_string()))?;
            for ((name, w), got) in entry.result_names.iter().zip(&want).zip(got) {
                let g = Tensor::from_bytes(w.dtype(), w.shape().to_vec(), got.bytes().into())
                    .ok_or("a tensor of another size".to_string())?;
                let tol = directive.tol.unwrap_or(compare::default_tolerance(w.dtype()));
                if let Some(d) = compare::difference(w, &g, tol) {
                    return Err(context(format!("result `{name}`: {d}")));
                }
            }
            let vars = &module.model().plan().vars;
            for (i, var) in vars.iter().enumerate() {
                let of = graph.vars.iter().find(|(_, v)| v.name == var.name);
                let Some(w) = of.and_then(|(id, _)| state.get(id)) else { continue };
                let got = module.model().read_var(i).map_err(|e| context(e.to_string()))?;
                let g = Tensor::from_bytes(w.dtype(), w.shape().to_vec(), got.bytes().into())
                    .ok_or("a tensor of another size".to_string())?;
                let tol = directive.vars_tol.or(directive.tol);
                let tol = tol.unwrap_or(compare::default_tolerance(w.dtype()));
                // Adam's first step is the learning rate times the sign of the gradient: where
                // that is next to nothing the two may go different ways. Its moments are held
                // to the tolerance.
                let moment = format!("adam.{}.m", var.name);
                let slack = match directive.flags.get("adam").map(|lr| lr.parse::<f64>()) {
                    Some(Ok(lr)) if vars.iter().any(|v| v.name == moment) => {
                        vec![2.0 * lr; w.to_f64().len()]
                    }
                    _ => vec![],
                };
                if let Some(d) = compare::difference_with(&w, &g, tol, &slack) {
                    return Err(context(format!("variable `{}`: {d}", var.name)));
                }
            }
            calls += 1;
        }
    }
    Ok(calls)
}

fn all_agree(cases: &[Case], least: usize) {
    let cases: Vec<(&Case, Option<u64>)> = cases.iter().map(|c| (c, None)).collect();
    all_agree_scattered(&cases, least);
}

fn all_agree_scattered(cases: &[(&Case, Option<u64>)], least: usize) {
    let counts = std::sync::Mutex::new((0, BTreeMap::<String, usize>::new()));
    let failures = in_parallel(cases, |(case, seed)| match agree(case, *seed) {
        Ok(calls) => {
            counts.lock().expect("no panics").0 += calls;
            Ok(())
        }
        Err(Stop::LeftOut(why)) => {
            *counts.lock().expect("no panics").1.entry(why).or_default() += 1;
            Ok(())
        }
        Err(Stop::Failed(e)) => Err(format!("{}, {seed:?}: {e}", case.name)),
    });
    let (calls, left_out) = counts.into_inner().expect("no panics");
    println!("{calls} calls agree; left out: {left_out:?}");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(calls >= least, "only {calls} calls; left out: {left_out:?}");
}

#[test]
fn ops() {
    let cases: Vec<Case> =
        corpus::cases("ops").into_iter().filter(|c| c.directive().verb == "run").collect();
    all_agree(&cases, 300);
}

#[test]
fn programs() {
    let cases: Vec<Case> =
        corpus::cases("run").into_iter().filter(|c| c.directive().verb == "run").collect();
    all_agree(&cases, 20);
}

/// Inference and training steps of the examples, with few rows.
#[test]
fn examples() {
    let variants = [
        ("mlp", "B = 2,9; vars_tol = 1e-4; adam = 1e-3"),
        ("convnet", "B = 2"),
        ("norms", "B = 3; T = 33,1"),
        ("rnn", "B = 2; T = 4; vars_tol = 1e-4"),
    ];
    let examples = corpus::examples();
    let cases: Vec<Case> = variants
        .iter()
        .map(|(name, options)| {
            let case = examples.iter().find(|c| c.name == *name).expect("an example of this name");
            let text = format!("//! run; tol = 1e-5; {options}\n{}", case.text);
            Case { text, ..case.clone() }
        })
        .collect();
    all_agree(&cases, 8);
}

/// A transformer's inference and training step, smaller than the one it is the model of.
#[test]
fn a_small_transformer() {
    let path = corpus::root().join("examples/models/gpt.graph");
    let mut text = std::fs::read_to_string(&path).expect("the model");
    for (name, value) in
        [("TOKENS", 50), ("CONTEXT", 6), ("WIDTH", 16), ("HEADS", 2), ("LAYERS", 2)]
    {
        let line = text.lines().find(|l| l.starts_with(&format!("let {name} ="))).expect("a let");
        text = text.replace(&line.to_string(), &format!("let {name} = {value}"));
    }
    text = text.replace("optim.adamw(lr: LR)", "optim.sgd(lr: 0.1)");
    assert!(text.contains("optim.sgd"));
    let head = "//! run; tol = 1e-4; B = 2; tokens = int 0..50; text = int 0..50";
    let case = Case { path, name: "gpt".into(), text: format!("{head}\n{text}") };
    all_agree(&[case], 2);
}

/// Random graphs, as in `random.rs`, on the simulated GPU. `TFC_GPU_GRAPHS=10000` tries
/// more of them, `TFC_GPU_FIRST=5000` others.
#[test]
fn random_graphs() {
    random_graphs_on(240, |_| None);
}

/// The same with every node on a device that is drawn, too.
#[test]
fn random_graphs_on_two_gpus() {
    random_graphs_on(120, |seed| Some(seed + 1));
}

fn random_graphs_on(usual: u64, scattered: fn(u64) -> Option<u64>) {
    use_simulator();
    let number = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let (count, first) =
        (number("TFC_GPU_GRAPHS").unwrap_or(usual), number("TFC_GPU_FIRST").unwrap_or(0));
    let groups: Vec<u64> = (0..count.div_ceil(RANDOM)).map(|g| first + g * RANDOM).collect();
    let counts = std::sync::Mutex::new((check::Counts::default(), 0));
    let run = |entries: &[Entry]| {
        let sizes: Vec<_> = entries.iter().map(|e| e.assignments(2)).collect();
        // A mode of floats for each group: the kernels are made by the same code.
        let mode = check::MODES[(entries[0].seed / RANDOM % 3) as usize];
        check::check_on(Device::Cuda(0), scattered(entries[0].seed), entries, &[mode], &sizes)
    };
    let failures = in_parallel(&groups, |seed| {
        let entries: Vec<Entry> = (*seed..seed + RANDOM).map(Entry::generate).collect();
        match run(&entries) {
            Ok(more) => {
                counts.lock().expect("no panics").0 += more;
                Ok(())
            }
            Err(f) if f.what.contains("CUDA_ERROR_LAUNCH_TIMEOUT") => {
                counts.lock().expect("no panics").1 += 1;
                Ok(())
            }
            Err(f) => Err(format!(
                "seed {} at {:?}, {:?}: {}\n{}",
                f.seed,
                f.dims,
                f.mode,
                f.what,
                print_graph(&[Entry::generate(f.seed)])
            )),
        }
    });
    let (counts, large) = counts.into_inner().expect("no panics");
    println!("{counts:?}, {large} groups too large");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(counts.graphs as u64 * 10 > count * 9 && counts.bits > 0, "{counts:?}");
    assert!(counts.undecided * 20 < counts.results, "{counts:?}");
}

/// Random graphs that are compiled together.
const RANDOM: u64 = 4;

#[path = "gpu_programs/devices.rs"]
mod devices;
#[path = "gpu_programs/jobs.rs"]
mod jobs;

/// The program that people build first is small, with code for two kinds of GPUs.
#[test]
fn an_executable_for_gpus_is_small() {
    let text = corpus::examples().into_iter().find(|c| c.name == "mlp").expect("the MLP").text;
    let (_dir, exe) = executable_of(&text, "mlp");
    let size = exe.metadata().expect("a file").len();
    assert!(size < 4 << 20, "{size} bytes");
}

/// With TF32 a product is near that of f32, and not the same.
#[test]
fn products_are_rounded_to_tf32_when_asked_to() {
    use_simulator();
    let text = "graph g\nentry f(x: f32[20, 40], y: f32[40, 24]) -> (z: f32[20, 24]) {\n  \
                return relu(x @ y) }";
    let graph = tfc::parse(text).expect("a graph");
    let on = |tf32| {
        let options = Options::new().device(Device::Cuda(0)).tf32(tf32);
        let module = Module::from_graph(&graph, &options).expect("a GPU");
        let x = ndarray::Array2::from_shape_fn((20, 40), |(i, j)| (i * 7 + j) as f32 * 0.013);
        let y = ndarray::Array2::from_shape_fn((40, 24), |(i, j)| (i + j * 3) as f32 * 0.017);
        let z: Vec<f32> = module.call("f", (&x, &y)).expect("z").into_arrays().expect("an array");
        z
    };
    let (near, exact) = (on(true), on(false));
    assert_ne!(near, exact);
    for (n, e) in near.iter().zip(&exact) {
        assert!((n - e).abs() < 1e-3 * e.abs() + 1e-3, "{n} for {e}");
    }
}

/// A module with code for GPUs, saved and loaded again.
#[test]
fn a_saved_module_runs_on_the_gpu() {
    use_simulator();
    let graph = tfc::parse(LEARN).expect("a graph");
    let dir = tempfile::tempdir().expect("a folder");
    let (with, without) = (dir.path().join("with.tfcm"), dir.path().join("without.tfcm"));
    let options = |device| Options::new().device(device).print(|_| {});
    let gpu = Module::from_graph(&graph, &options(Device::Cuda(0))).expect("a GPU");
    gpu.save(&with).expect("it is saved");
    let cpu = Module::from_graph(&graph, &options(Device::Cpu)).expect("a CPU");
    cpu.save(&without).expect("it is saved");
    let x = ndarray::array![[1.0f32, 2.0, 3.0]];
    let load = |path: &Path, device| {
        // SAFETY: the files were written just now, by `save`.
        unsafe { Module::load_with(path, &options(device)) }
    };
    let predict = |m: &Module| -> Vec<f32> {
        m.call("predict", (&x,)).expect("a result").into_arrays().expect("an array")
    };
    let want = predict(&gpu);
    for device in [Device::Cuda(0), Device::Cpu] {
        assert_eq!(predict(&load(&with, device).expect("it loads")), want);
    }
    assert_eq!(predict(&load(&without, Device::Cpu).expect("it loads")), want);
    // What was compiled for the CPU alone has nothing for a GPU.
    let e = load(&without, Device::Cuda(0)).map(drop).expect_err("no code for it");
    assert_eq!(e.code(), ErrorCode::NO_GPU);
    assert!(
        std::fs::metadata(&with).expect("a file").len() > {
            std::fs::metadata(&without).expect("a file").len()
        }
    );
}

const LEARN: &str = "graph learn\ndim B\n\
    use optim\n\
    var w: f32[3, 2] = [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]\n\
    entry train(x: f32[B, 3], y: f32[B, 2]) -> (loss: f32[]) {\n\
      loss = mean((x @ w - y) * (x @ w - y))\n\
      print(loss, label: \"loss\")\n\
      minimize loss over [w] with optim.sgd(lr: 0.01)\n\
      return loss\n\
    }\n\
    entry predict(x: f32[B, 3]) -> (y: f32[B, 2]) { return x @ w }\n";

/// An executable with code for GPUs, in a folder of its own.
fn executable() -> (tempfile::TempDir, PathBuf) {
    executable_of(LEARN, "learn")
}

fn executable_of(text: &str, name: &str) -> (tempfile::TempDir, PathBuf) {
    let graph = tfc::parse(text).expect("a graph");
    let mut timings = tfc::driver::Timings::default();
    let options = Options::new().device(Device::Cuda(0));
    let compiled =
        tfc::driver::compile(&graph, &graph.sources, &options, &mut timings).expect("a program");
    let dir = tempfile::tempdir().expect("a folder");
    let exe = dir.path().join(name);
    let emitter = Emitter {
        program: compiled.program(),
        graph: compiled.graph(),
        link: LinkOptions::default(),
        prefix: "m",
        cpu: tfc_codegen::Cpu::Portable,
        gpus: Some(vec![80]),
    };
    emitter.write(Artifact::Executable, &exe, &mut timings).expect("it links");
    (dir, exe)
}

const FEEDS: [&str; 4] = ["--feed", "x=[[1, 2, 3], [4, 5, 6]]", "--feed", "y=[[1, 0], [0, 1]]"];

/// Runs an executable on a simulated machine.
fn run(exe: &Path, simulated: bool, settings: &str, args: &[&str]) -> Output {
    let mut command = Command::new(exe);
    command.args(args).current_dir(exe.parent().expect("in a folder"));
    match simulated {
        true => command.env("TFC_CUDA", driver()),
        false => command.env("TFC_CUDA", "/nonexistent/libcuda.so.1"),
    };
    command.env("TFC_SIM", settings).output().expect("it starts")
}

/// What was printed, without how long it took.
fn losses(out: &Output) -> Vec<String> {
    let before = |line: &str| line.split(", ").next().unwrap_or_default().to_string();
    let lines: Vec<String> = text(&out.stdout).lines().map(before).collect();
    assert!(lines.len() >= 4 && lines[0].contains("loss"), "{lines:?}");
    lines
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The same executable on a machine with a GPU and on one without, with checkpoints.
#[test]
fn an_executable_uses_the_gpu_there_is() {
    let (dir, exe) = executable();
    let train = |device: &str, simulated: bool, log: &str, dir: &str| {
        let mut args = vec!["train", "--steps", "5", "--device", device];
        args.extend(["--checkpoint-dir", dir]);
        args.extend(FEEDS);
        let mut command = Command::new(&exe);
        command.args(args).current_dir(exe.parent().expect("in a folder"));
        let library = if simulated { driver() } else { "/nonexistent".into() };
        command.env("TFC_CUDA", library).env("TFC_SIM_LOG", log).output().expect("it starts")
    };
    let log = dir.path().join("log");
    let gpu = train("cuda", true, &log.to_string_lossy(), "on_gpu");
    assert!(gpu.status.success(), "{}", text(&gpu.stderr));
    let cpu = train("cpu", false, "", "on_cpu");
    assert!(cpu.status.success(), "{}", text(&cpu.stderr));
    // Sums of three terms are made in one order: the same losses to the last digit shown.
    assert_eq!(losses(&gpu), losses(&cpu));
    assert_eq!(text(&gpu.stderr), text(&cpu.stderr));
    let counts = std::fs::read_to_string(&log).expect("the simulator's counts");
    let count = |name: &str| -> u64 {
        let word = counts.split_whitespace().find_map(|w| w.strip_prefix(name));
        word.and_then(|n| n.strip_prefix('=')).and_then(|n| n.parse().ok()).expect(name)
    };
    assert!(count("launches") >= 5 && count("graphs") >= 3, "{counts}");
    // A run that was saved on the GPU goes on without one, and says so.
    let mut args = vec!["train", "--steps", "6", "--resume", "--checkpoint-dir", "on_gpu"];
    args.extend(FEEDS);
    let resumed = run(&exe, false, "", &args);
    assert!(resumed.status.success(), "{}", text(&resumed.stderr));
    assert!(text(&resumed.stderr).contains("note: this runs on the CPU"), "{resumed:?}");
}

/// What can go wrong with a GPU is said in our words, and nothing is left half done.
#[test]
fn faults_are_errors_that_say_what_to_do() {
    let (_dir, exe) = executable();
    let mut args = vec!["train", "--steps", "4", "--device", "cuda"];
    args.extend(FEEDS);
    for (simulated, settings, code, says) in [
        (false, "", "E0840", "cannot be loaded"),
        (true, "no-device", "E0840", "finds no GPU"),
        (true, "old-driver", "E0842", "NVIDIA's driver is too old"),
        (true, "old-gpu", "E0842", "the GPU is too old"),
        (true, "bad-ptx", "E0842", "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
        (true, "memory=300", "E0841", "the GPU is out of memory"),
        (true, "lost=3", "E0843", "the GPU failed"),
    ] {
        let out = run(&exe, simulated, settings, &args);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{settings}: {said}");
        assert!(said.contains(code) && said.contains(says), "{settings}: {said}");
        assert!(said.contains("help:") && said.contains("--device cpu"), "{settings}: {said}");
        if code != "E0841" && code != "E0843" {
            // Unless it was demanded, the program runs on the CPU.
            let args: Vec<&str> =
                args.iter().copied().filter(|a| !["--device", "cuda"].contains(a)).collect();
            let out = run(&exe, simulated, settings, &args);
            assert!(out.status.success(), "{settings}: {}", text(&out.stderr));
            assert!(text(&out.stderr).contains("this runs on the CPU"), "{settings}");
        }
    }
    let mut args = vec!["predict", "--device", "cuda:7"];
    args.extend(&FEEDS[..2]);
    let said = text(&run(&exe, true, "devices=2", &args).stderr);
    assert!(said.contains("there is no GPU number 7: there are 2 GPUs"), "{said}");
}

/// Whatever the order in which streams get on, and on whichever GPU.
#[test]
fn the_order_of_streams_does_not_matter() {
    let (_dir, exe) = executable();
    let mut args = vec!["train", "--steps", "4", "--device", "cuda:1"];
    args.extend(FEEDS);
    let outs: Vec<Vec<String>> = (1..6)
        .map(|seed| {
            let out = run(&exe, true, &format!("devices=2,order={seed}"), &args);
            assert!(out.status.success(), "{}", text(&out.stderr));
            losses(&out)
        })
        .collect();
    assert!(outs.iter().all(|o| *o == outs[0]), "{outs:?}");
}

/// Readers, runners and queues are the CPU's; what an entry makes of their elements is the
/// GPU's. A run that was interrupted goes on with the same elements.
#[test]
fn a_pipeline_feeds_the_gpu() {
    let examples = corpus::examples();
    let graph = &examples.iter().find(|c| c.name == "pipeline").expect("the pipeline").text;
    let (dir, exe) = executable_of(graph, "pipeline");
    let ok = |device: &str, line: &str| -> Vec<f64> {
        let mut args: Vec<&str> = line.split(' ').collect();
        args.extend(["--device", device]);
        let out = run(&exe, true, "", &args);
        assert!(out.status.success(), "{line}: {}", text_of(&out));
        let number = |l: &str| l.split("\"loss\":").nth(1)?.split(',').next()?.parse().ok();
        text(&out.stdout).lines().filter_map(number).collect()
    };
    ok("cpu", "make --feed seed=1 --out images=images.npy --out labels=labels.npy");
    let train = "train --steps 4 --message-format json";
    let (gpu, cpu) = (ok("cuda", train), ok("cpu", train));
    assert!(gpu.len() == 4 && cpu.len() == 4, "{gpu:?} {cpu:?}");
    for (g, c) in gpu.iter().zip(&cpu) {
        assert!((g - c).abs() < 1e-3 * c.abs(), "{gpu:?} {cpu:?}");
    }
    ok("cuda", "train --steps 2 --checkpoint-dir ck");
    let resumed = ok("cuda", &format!("{train} --checkpoint-dir ck --resume"));
    assert_eq!(resumed, gpu[2..]);
    drop(dir);
}

fn text_of(out: &Output) -> String {
    text(&out.stdout) + &text(&out.stderr)
}

/// Each step of the GPU is in the table and in the trace, copies too.
#[test]
fn steps_of_a_gpu_are_timed_one_by_one() {
    let (dir, exe) = executable();
    let mut args = vec!["bench", "train", "--calls", "3", "--by-step", "--device", "cuda"];
    args.extend(FEEDS);
    let out = run(&exe, true, "", &args);
    let said = text(&out.stdout);
    assert!(out.status.success(), "{}", text(&out.stderr));
    for word in ["matmul 2x3x2", "copy", "each step of the GPU alone"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("peaks of this machine"), "{said}");
    let mut args = vec!["train", "--steps", "2", "--device", "cuda", "--profile", "t.json"];
    args.extend(FEEDS);
    let out = run(&exe, true, "", &args);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let trace = std::fs::read_to_string(dir.path().join("t.json")).expect("a trace");
    let products = trace.matches("matmul 2x3x2").count();
    assert!(products >= 2, "{trace}");
}

/// From Rust: variables are the module's wherever they are.
#[test]
fn a_module_on_a_gpu_is_called_as_any_other() {
    use_simulator();
    let graph = tfc::parse(LEARN).expect("a graph");
    let on = |device| Module::from_graph(&graph, &Options::new().device(device).print(|_| {}));
    let (gpu, cpu) = (on(Device::Cuda(0)).expect("a GPU"), on(Device::Cpu).expect("a CPU"));
    let (x, y) = (ndarray::array![[1.0f32, 2.0, 3.0]], ndarray::array![[1.0f32, 0.0]]);
    for _ in 0..4 {
        let loss = |m: &Module| -> f32 {
            m.call("train", (&x, &y)).expect("a step").scalar("loss").expect("a loss")
        };
        assert_eq!(loss(&gpu), loss(&cpu));
    }
    assert_eq!(gpu.var::<f32>("w").expect("w"), cpu.var::<f32>("w").expect("w"));
    gpu.set_var("w", &ndarray::array![[1.0f32, 0.0], [0.0, 1.0], [0.0, 0.0]]).expect("w is set");
    let out: Vec<Vec<f32>> = (0..3)
        .map(|_| gpu.call("predict", (&x,)).expect("a result").into_arrays().expect("an array"))
        .collect();
    assert_eq!(out, vec![vec![1.0, 2.0]; 3]);
    let e = on(Device::Cuda(9)).map(drop).expect_err("there is one GPU");
    assert_eq!(e.code(), ErrorCode::NO_GPU);
}
