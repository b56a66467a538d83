//! Programs with input pipelines: what they compute, how they end, how they go
//! on.

use std::path::Path;
use std::process::{Command, Output};
use tfc::emit::{Artifact, Emitter};
use tfc::link::LinkOptions;
use tfc::load::{Files, parse_as};
use tfc_ir::{Graph, Tensor, interp};
use tfc_testdata::ways::scratch;

fn executable(graph: &Graph, path: &Path) {
    let mut timings = tfc::driver::Timings::default();
    let options = tfc::Options::default();
    let compiled = tfc::driver::compile(graph, &graph.sources, &options, &mut timings).unwrap();
    let link = LinkOptions { symbols: true, ..LinkOptions::default() };
    let cpu = tfc_codegen::Cpu::Portable;
    let emitter = Emitter {
        program: compiled.program(),
        graph: compiled.graph(),
        link,
        prefix: "m",
        cpu,
        gpus: None,
    };
    emitter.write(Artifact::Executable, path, &mut timings).unwrap();
}

fn graph(text: &str) -> Graph {
    let files = Files::in_dir(Path::new(""));
    match parse_as("test.graph", text, &files) {
        Ok(loaded) => loaded.graph,
        Err(e) => panic!("{e}"),
    }
}

fn example() -> Graph {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/pipeline.graph");
    graph(&std::fs::read_to_string(path).unwrap())
}

fn run(dir: &Path, line: &str) -> Output {
    let exe = dir.join("program");
    Command::new(exe).current_dir(dir).args(line.split_whitespace()).output().unwrap()
}

fn ok(output: Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{}: {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The numbers of `"loss":` in lines of JSON.
fn losses(text: &str) -> Vec<f64> {
    text.lines()
        .filter_map(|l| l.split("\"loss\":").nth(1)?.split(',').next()?.parse().ok())
        .collect()
}

#[test]
fn the_example_trains_and_resumes_to_the_same_bits() {
    let dir = scratch();
    let dir = dir.path();
    executable(&example(), &dir.join("program"));
    ok(run(dir, "make --feed seed=1 --out images=images.npy --out labels=labels.npy"));
    let out = ok(run(dir, "train --steps 120 --state whole.safetensors --message-format json"));
    let all = losses(&out);
    assert!(all.len() == 10 && all[9] < all[0] / 2.0, "{out}");
    // Without --steps: until the records are used up, then a clean end.
    let out = ok(run(dir, "train"));
    assert!(out.contains("step 256:"), "{out}");
    // Twice half the way is the whole way.
    ok(run(dir, "train --steps 50 --checkpoint-dir ck --save-every 20"));
    ok(run(dir, "train --steps 120 --checkpoint-dir ck --resume --state half.safetensors"));
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    assert!(read("whole.safetensors") == read("half.safetensors"), "resumed to other weights");
    // Other files by option; mistakes in runners are the program's.
    let output = run(dir, "train --data records=images.npy,absent.npy");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{text}");
    assert!(text.contains("absent.npy") && text.contains("in the runner `decode`"), "{text}");
    let output = run(dir, "train --batch 8");
    assert_eq!(output.status.code(), Some(2));
    let output = run(dir, "decode");
    assert!(String::from_utf8_lossy(&output.stderr).contains("is a runner"));
}

/// The interpreter has no threads, the runtime has three: the same losses.
#[test]
fn the_interpreter_agrees_on_a_pipeline() {
    let dir = scratch();
    let graph = example();
    let module = tfc::compile(&graph).unwrap();
    let data = module.call("make", (3i64,)).unwrap();
    let (images, labels) = (data.tensor("images").unwrap(), data.tensor("labels").unwrap());
    let paths = ["images", "labels"].map(|name| {
        let t = data.tensor(name).unwrap();
        let buf = tfc_runtime::TensorBuf::from_bytes(t.dtype(), t.shape(), t.bytes()).unwrap();
        let path = dir.path().join(format!("{name}.npy"));
        tfc_runtime::io::write_tensors(&path, &[(name, &buf)]).unwrap();
        path.display().to_string()
    });
    module.model().queues().set_paths("records", paths.to_vec()).unwrap();
    let runners = module.start_runners("train").unwrap();
    let steps = 12;
    let compiled: Vec<f32> = (0..steps)
        .map(|_| module.call("train", ()).unwrap().scalar::<f32>("loss").unwrap())
        .collect();
    runners.finish().unwrap();

    let reference = tfc_passes::pipeline::run_passes(&graph, &["differentiate"]).unwrap();
    let mut state = interp::State::new(&reference).unwrap();
    let row = |t: &Tensor, i: usize| {
        let width = t.bytes().len() / t.shape()[0];
        let bytes = t.bytes()[i * width..(i + 1) * width].into();
        Tensor::from_bytes(t.dtype(), t.shape()[1..].to_vec(), bytes).unwrap()
    };
    let records: Vec<Vec<Tensor>> =
        (0..1024).map(|i| vec![row(&images, i), row(&labels, i)]).collect();
    let reader = reference.vars.iter().find(|(_, v)| v.name == "records").unwrap().0;
    state.set_records(reader, &records);
    for (i, got) in compiled.iter().enumerate() {
        let want = interp::run(&reference, "train", &[], &mut state).unwrap()[0].to_f64()[0];
        assert!((want - f64::from(*got)).abs() < 1e-3, "step {i}: {want} and {got}");
    }
}

/// Ctrl-C while everything waits: the program is gone at once, and had used no
/// processor.
#[test]
#[cfg(target_os = "linux")]
fn a_waiting_program_sleeps_and_dies_at_once() {
    use std::os::unix::process::ExitStatusExt;
    let dir = scratch();
    let dir = dir.path();
    let text = "graph waits\nvar n: f32[] = 0\nreader r: csv(\"pipe\", f32[])\n\
                queue q: fifo(f32[], capacity: 4)\nrunner fill() {\n  enqueue(q, dequeue(r))\n}\n\
                entry next() -> (x: f32[]) {\n  x = dequeue(q)\n  n += x\n  return n\n}\n";
    executable(&graph(text), &dir.join("program"));
    assert!(Command::new("mkfifo").arg(dir.join("pipe")).status().unwrap().success());
    for (options, code) in [("next", None), ("next --checkpoint-dir ck", Some(75))] {
        let mut child = Command::new(dir.join("program"))
            .current_dir(dir)
            .args(options.split_whitespace())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let stat = format!("/proc/{}/stat", child.id());
        let state =
            || std::fs::read_to_string(&stat).unwrap().rsplit(')').next().unwrap().to_string();
        // Until it is asleep with its second thread started.
        let tasks = format!("/proc/{}/task", child.id());
        let mut tries = 0;
        while std::fs::read_dir(&tasks).unwrap().count() < 2 || !state().starts_with(" S") {
            std::thread::sleep(std::time::Duration::from_millis(20));
            tries += 1;
            assert!(tries < 500, "it does not wait");
        }
        let ticks = || -> u64 {
            let text = state();
            let fields: Vec<&str> = text.split_whitespace().collect();
            fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
        };
        let before = ticks();
        std::thread::sleep(std::time::Duration::from_millis(400));
        assert!(ticks() - before <= 4, "a waiting program works");
        // Who is started in the background may be deaf to interrupts, and so are its children.
        let (word, signal) = if hears_interrupts() { ("-INT", 2) } else { ("-TERM", 15) };
        Command::new("kill").args([word, &child.id().to_string()]).status().unwrap();
        let status = child.wait().unwrap();
        match code {
            None => assert_eq!(status.signal(), Some(signal)),
            code => assert_eq!(status.code(), code),
        }
    }
}

fn hears_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|l| l.strip_prefix("SigIgn:")).unwrap_or_default();
    u64::from_str_radix(ignored.trim(), 16).unwrap_or(0) & 1 << (2 - 1) == 0
}

/// A reader that an entry takes from itself: batches until the end, rows joined.
#[test]
fn an_entry_reads_by_itself() {
    let dir = scratch();
    let dir = dir.path();
    let text = "graph sums\nreader r: csv(\"*.csv\", f32[2], skip: 1)\n\
                entry sums() -> (s: f32[2], mean: f32[]) {\n  x = dequeue_many(r, count: 2)\n  \
                return sum(x, axis: 1), mean(x)\n}\n";
    executable(&graph(text), &dir.join("program"));
    std::fs::write(dir.join("a.csv"), "x,y\n1,2\n3,4\n5,6\n").unwrap();
    std::fs::write(dir.join("b.csv"), "x,y\n7,8\n9,10\n").unwrap();
    let out = ok(run(dir, "sums --out s=s.npy"));
    assert!(out.contains("step 2: mean 4.5"), "{out}");
    let s = tfc_runtime::io::tensor_file(&dir.join("s.npy"), None, "", None).unwrap();
    assert_eq!(s.as_slice::<f32>().unwrap(), [3.0, 7.0, 11.0, 15.0]);
    std::fs::write(dir.join("b.csv"), "x,y\n7,8\n9,ten\n").unwrap();
    let output = run(dir, "sums");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(text.contains("error[E0564]: b.csv:3: `ten` is not f32"), "{text}");
}
