//! Runs that are stopped, fail or end in the middle of a step leave whole steps.

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tfc::emit::{Artifact, Emitter};
use tfc::link::LinkOptions;
use tfc::load::{Files, parse_as};
use tfc_ir::Graph;
use tfc_runtime::{TensorBuf, checkpoint, io};
use tfc_testdata::ways::scratch;

fn graph(text: &str) -> Graph {
    match parse_as("test.graph", text, &Files::in_dir(Path::new(""))) {
        Ok(loaded) => loaded.graph,
        Err(e) => panic!("{e}"),
    }
}

fn executable(text: &str, path: &Path) {
    let mut timings = tfc::driver::Timings::default();
    let (graph, options) = (graph(text), tfc::Options::default());
    let compiled = tfc::driver::compile(&graph, &graph.sources, &options, &mut timings).unwrap();
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

fn start(dir: &Path, line: &str) -> Child {
    let mut command = Command::new(dir.join("program"));
    command.current_dir(dir).args(line.split_whitespace());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn run(dir: &Path, line: &str) -> Output {
    start(dir, line).wait_with_output().unwrap()
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

fn number(dir: &Path, file: &str, name: &str) -> f64 {
    io::tensor_file(&dir.join(file), Some(name), name, None).unwrap().get_f64(0).unwrap()
}

/// faults 2: a step that waited for its second element was saved half done, and
/// every pair after the resume was made of the wrong halves.
#[test]
#[cfg(target_os = "linux")]
fn a_step_stopped_between_two_elements_is_not_saved() {
    let dir = scratch();
    let dir = dir.path();
    // A number above 500 takes an age to come.
    let text = "graph pairs\nvar w: f32[] = 0\n\
                reader r: csv(\"xs.csv\", f32[])\nreader s: csv(\"ys.csv\", f32[])\n\
                queue xs: fifo(f32[], capacity: 2)\nqueue ys: fifo(f32[], capacity: 2)\n\
                runner fill_x() {\n  enqueue(xs, dequeue(r))\n}\n\
                runner fill_y() {\n  y = dequeue(s)\n  \
                  rounds = maximum(y - 500.0, 0.0) * 1000000000000.0\n  \
                  n = while (i = 0.0) i < rounds { yield i + 1.0 }\n  \
                  enqueue(ys, y + 0.0 * n)\n}\n\
                entry train() -> (now: f32[]) {\n  x = dequeue(xs)\n  y = dequeue(ys)\n  \
                  assign(w, w * 2.0 + x * y)\n  return w\n}\n";
    executable(text, &dir.join("program"));
    let write = |name: &str, values: &[i32]| {
        let lines: Vec<String> = values.iter().map(i32::to_string).collect();
        std::fs::write(dir.join(name), lines.join("\n")).unwrap();
    };
    write("xs.csv", &[1, 2, 3, 4, 5, 6]);
    write("ys.csv", &[1, 2, 1, 2, 1, 2]);
    assert!(run(dir, "train --state whole.safetensors").status.success());
    write("ys.csv", &[1, 2, 1, 999, 1, 2]);
    let child = start(dir, "train --checkpoint-dir ck --save-every 1");
    let started = Instant::now();
    while !dir.join("ck/step-000000000003.json").exists() {
        assert!(started.elapsed() < Duration::from_secs(60), "it does not come to step 3");
        std::thread::sleep(Duration::from_millis(10));
    }
    // Time to take the fourth `x` and to wait for its `y`.
    std::thread::sleep(Duration::from_millis(300));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let out = child.wait_with_output().unwrap();
    assert_eq!(out.status.code(), Some(75), "{}", said(&out));
    assert!(said(&out).contains("stopped after step 3, which is saved"), "{}", said(&out));
    let manifest = checkpoint::Manifest::read(&dir.join("ck/step-000000000003.json")).unwrap();
    assert_eq!((manifest.positions["data.xs.0"], manifest.positions["data.ys.0"]), (3, 3));
    write("ys.csv", &[1, 2, 1, 2, 1, 2]);
    let out = run(dir, "train --checkpoint-dir ck --resume-anyway --state half.safetensors");
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!(number(dir, "half.safetensors", "w"), number(dir, "whole.safetensors", "w"));
}

/// faults 2: gradients gathered over several elements were saved in the middle.
/// The same happens when the input ends there.
#[test]
fn a_step_that_ends_in_the_middle_is_undone() {
    let dir = scratch();
    let dir = dir.path();
    let text = "graph gather\nvar w: f32[] = 0\nvar n: f32[] = 0\n\
                reader r: csv(\"x.csv\", f32[])\n\
                entry train() -> (sum: f32[]) {\n  n += 1.0\n  \
                  (i, g) = while (i = 0.0, g = 0.0) i < 3.0 { yield i + 1.0, g + dequeue(r) }\n  \
                  w += g\n  return w\n}\n";
    executable(text, &dir.join("program"));
    // Two whole steps and two thirds of one.
    std::fs::write(dir.join("x.csv"), "1\n2\n3\n4\n5\n6\n7\n8\n").unwrap();
    let out = run(dir, "train --checkpoint-dir ck --state s.safetensors");
    assert!(out.status.success(), "{}", said(&out));
    for file in ["s.safetensors", "ck/step-000000000002.safetensors"] {
        assert_eq!((number(dir, file, "w"), number(dir, file, "n")), (21.0, 2.0), "{file}");
    }
    // More data: the third step begins with its first element.
    std::fs::write(dir.join("x.csv"), "1\n2\n3\n4\n5\n6\n7\n8\n9\n").unwrap();
    let out = run(dir, "train --checkpoint-dir ck --resume-anyway --state s.safetensors");
    assert!(out.status.success(), "{}", said(&out));
    assert_eq!((number(dir, "s.safetensors", "w"), number(dir, "s.safetensors", "n")), (45.0, 3.0));
    // A record that is wrong: what came before it is saved, and that is said.
    std::fs::write(dir.join("x.csv"), "1\n2\n3\n4\n5\nsix\n").unwrap();
    let out = run(dir, "train --state bad.safetensors");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("error[E0564]"), "{}", said(&out));
    assert!(
        said(&out).contains("the 1 steps before it are in `bad.safetensors`"),
        "{}",
        said(&out)
    );
    assert_eq!(number(dir, "bad.safetensors", "n"), 1.0);
}

/// faults 7: rows of a resumed run began with the resume.
#[test]
fn rows_of_a_resumed_run_are_whole() {
    let dir = scratch();
    let dir = dir.path();
    let text = "graph rows\ndim B\nvar n: f32[] = 0\n\
                entry train(x: f32[B, 2], most: f32[]) -> (y: f32[B, 2], mean: f32[]) {\n  \
                  assert(sum(x) < most, \"too much\")\n  n += sum(x)\n  return x + n, mean(x)\n}\n";
    executable(text, &dir.join("program"));
    let x: Vec<f32> = (0..20).map(|i| i as f32).collect();
    let x = TensorBuf::from_slice(&[10, 2], &x).unwrap();
    io::write_tensors(&dir.join("x.npy"), &[("x", &x)]).unwrap();
    let line = "train --feed x=x.npy --batch 3 --out y=y.npy --out mean=mean.npy --feed most=";
    assert!(run(dir, &format!("{line}999")).status.success());
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap();
    let (y, mean) = (read("y.npy"), read("mean.npy"));
    let remove = |name: &str| std::fs::remove_file(dir.join(name)).unwrap();
    // It fails in the third of four steps; the two before it are saved.
    let out = run(dir, &format!("{line}60 --checkpoint-dir ck"));
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("the 2 steps before it are in `ck`"), "{}", said(&out));
    remove("y.npy");
    let out = run(dir, &format!("{line}999 --checkpoint-dir ck --resume"));
    assert!(out.status.success(), "{}", said(&out));
    assert!(read("y.npy") == y && read("mean.npy") == mean);
    assert!(!dir.join("ck/y.rows").exists(), "what is written is not kept twice");
    // Nothing is left to do, so there is nothing to write.
    let out = run(dir, &format!("{line}999 --checkpoint-dir ck --resume"));
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("error[E0589]: there is no `y` to write"), "{}", said(&out));
    // Rows that are gone are missed.
    let out = run(dir, &format!("{line}60 --checkpoint-dir ck2"));
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    remove("ck2/y.rows");
    let out = run(dir, &format!("{line}999 --checkpoint-dir ck2 --resume"));
    assert!(
        said(&out).contains("warning[E0589]: result `y` will not be complete"),
        "{}",
        said(&out)
    );
    assert!(said(&out).contains("it begins with example 6 of epoch 1"), "{}", said(&out));
}

/// faults 8: an entry and its runners that waited for each other hung.
#[test]
fn deadlocks_are_told() {
    let dir = scratch();
    let dir = dir.path();
    let unequal = "graph unequal\nqueue a: fifo(f32[], capacity: 4)\nqueue b: fifo(f32[], capacity: 4)\n\
                   runner fill() {\n  enqueue(a, 1.0)\n  enqueue(b, 2.0)\n}\n\
                   entry next() -> (x: f32[]) {\n  return dequeue(a)\n}\n";
    let circle = "graph circle\nqueue a: fifo(f32[], capacity: 4)\nqueue b: fifo(f32[], capacity: 4)\n\
                  queue c: fifo(f32[], capacity: 4)\n\
                  runner one() {\n  x = dequeue(a)\n  enqueue(b, x)\n  enqueue(c, x)\n}\n\
                  runner two() {\n  enqueue(a, dequeue(b))\n}\n\
                  entry next() -> (x: f32[]) {\n  return dequeue(c)\n}\n";
    for (text, who, what) in [
        (unequal, "`next` and `fill` wait for each other", "for room in `b`, which is full with 4"),
        (
            circle,
            "`next`, `one` and `two` wait for each other",
            "for an element of `b`, which holds nothing",
        ),
    ] {
        std::fs::write(dir.join("m.graph"), text).unwrap();
        executable(text, &dir.join("program"));
        let out = run(dir, "next");
        assert_eq!(out.status.code(), Some(1), "{}", said(&out));
        assert!(said(&out).contains("error[E0562]") && said(&out).contains(who), "{}", said(&out));
        assert!(said(&out).contains(what) && said(&out).contains("help: "), "{}", said(&out));
        let out = run(dir, "bench next");
        assert!(said(&out).contains("error[E0562]"), "{}", said(&out));
        // `tfc bench` hung where the program had an error.
        let file = dir.join("m.graph").display().to_string();
        let line = ["tfc", "bench", &file, "--calls", "20"].map(std::ffi::OsString::from);
        assert_eq!(tfc::cli::main(line.into_iter()), 1);
    }
}

/// user 6: an entry without feeds could be called once.
#[test]
fn steps_of_an_entry_without_feeds() {
    let dir = scratch();
    let dir = dir.path();
    let text = "graph count\nvar n: i64[] = 0\n\
                entry step(by: i64[]) -> (n: i64[], half: f32[]) {\n  n += by\n  \
                  return n, cast(n, to: f32) / 2.0\n}\n";
    let text = text.replace("(n: i64[], half", "(now: i64[], half");
    executable(&text, &dir.join("program"));
    let out = run(dir, "step --feed by=2 --steps 100 --state s.safetensors");
    assert!(out.status.success(), "{}", said(&out));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("step 100: half") && text.ends_with("now: i64[] 200\n"), "{text}");
    assert_eq!(number(dir, "s.safetensors", "n"), 200.0);
    // Stopped half way, it goes on.
    assert!(run(dir, "step --feed by=2 --steps 40 --checkpoint-dir ck").status.success());
    assert!(run(dir, "step --feed by=2 --steps 100 --checkpoint-dir ck --resume").status.success());
    assert_eq!(number(dir, "ck/step-000000000100.safetensors", "n"), 200.0);
    let out = run(dir, "step --feed by=2 --epochs 3");
    assert!(said(&out).contains("error[E0523]") && said(&out).contains("`--steps N` alone"));
    // faults 16: a run that is complete said that its input had ended.
    let out = run(dir, "step --feed by=2 --steps 100 --checkpoint-dir ck --resume");
    assert!(said(&out).contains("the run is complete: 100 steps are done"), "{}", said(&out));
}

/// faults 9: runners with variables of their own went on with other data; priority
/// queues are told.
#[test]
fn pipelines_with_a_memory_are_resumed_or_refused() {
    let dir = scratch();
    let dir = dir.path();
    let text = "graph memory\nvar k: i64[] = 0\nvar sum: i64[] = 0\n\
                queue q: fifo(i64[], capacity: 8)\n\
                runner fill() {\n  k += 1\n  enqueue(q, k)\n}\n\
                entry train() {\n  sum += dequeue(q)\n}\n";
    executable(text, &dir.join("program"));
    assert!(run(dir, "train --steps 100 --state whole.safetensors").status.success());
    assert!(run(dir, "train --steps 30 --checkpoint-dir ck").status.success());
    let out = run(dir, "train --steps 100 --checkpoint-dir ck --resume");
    assert!(out.status.success(), "{}", said(&out));
    assert!(!said(&out).contains("E0591"), "{}", said(&out));
    assert_eq!(number(dir, "whole.safetensors", "sum"), 5050.0);
    assert_eq!(number(dir, "ck/step-000000000100.safetensors", "sum"), 5050.0);
    let text = text.replace("queue q: fifo", "queue q: priority");
    executable(&text, &dir.join("program"));
    let out = run(dir, "train --steps 30 --checkpoint-dir ck2");
    assert!(out.status.success() && said(&out).contains("warning[E0591]"), "{}", said(&out));
    let out = run(dir, "train --steps 40 --checkpoint-dir ck2 --resume");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("error[E0591]") && said(&out).contains("priority queue"));
    let out = run(dir, "train --steps 40 --checkpoint-dir ck2 --resume-anyway");
    assert!(out.status.success(), "{}", said(&out));
}

/// faults 10: a resumed pipeline was computed again from its first record.
///
/// Early records are poisoned after the fact: were they looked at, the `assert`
/// would fail.
#[test]
fn what_is_done_with_is_not_computed_again() {
    let text = "graph chain\n\
                reader r: csv(\"x.csv\", f32[], epochs: 3)\n\
                queue mixed: shuffle(f32[], capacity: 32, min: 8, seed: 5)\n\
                queue pairs: fifo(f32[], capacity: 4)\nqueue out: shuffle(f32[], capacity: 16, min: 4, seed: 9)\n\
                runner read() {\n  x = dequeue(r)\n  assert(x >= 0.0, \"poison\")\n  enqueue(mixed, x)\n}\n\
                runner pair() {\n  x = dequeue_many(mixed, count: 2)\n  enqueue_many(pairs, concat([x, x + 0.5, x[:1]], axis: 0))\n}\n\
                runner last() {\n  enqueue(out, dequeue(pairs))\n}\n\
                entry next() -> (x: f32[]) {\n  return dequeue(out)\n}\n";
    let dir = scratch();
    let path = dir.path().join("x.csv");
    let text = text.replace("x.csv", &path.display().to_string());
    let records = 101;
    let file = |poison: usize| {
        let lines: Vec<String> =
            (0..records).map(|i| if i < poison { "-1".into() } else { i.to_string() }).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
    };
    let module = tfc::compile(&graph(&text)).unwrap();
    let all = |taken: i64| -> Result<Vec<f32>, tfc::Error> {
        let positions = [("out".to_owned(), vec![taken])];
        module.model().queues().set_positions(&positions)?;
        let runners = module.start_runners("next")?;
        let mut out = vec![];
        loop {
            match module.call("next", ()) {
                Ok(o) => out.push(o.scalar::<f32>("x")?),
                Err(e) if e.is_end_of_input() => break,
                Err(e) => return Err(e),
            }
        }
        runners.finish()?;
        Ok(out)
    };
    file(0);
    let whole = all(0).unwrap();
    // 303 records are 151 pairs, of five elements each.
    assert_eq!(whole.len(), 755);
    for taken in [1, 4, 5, 37, 250, 251, 252, 253, 254, 255, 400, 700, 740, 751, 754, 755] {
        assert_eq!(all(taken).unwrap(), whole[taken as usize..], "after {taken}");
    }
    // In the third epoch, only the last records are looked at again.
    let late = 740;
    let want = whole[late..].to_vec();
    file(40);
    assert_eq!(all(late as i64).unwrap(), want);
    assert!(all(0).unwrap_err().to_string().contains("poison"));
}

/// faults 11: rows that nobody asked for were kept until memory ran out.
#[test]
#[cfg(target_os = "linux")]
fn rows_that_nobody_asked_for_take_no_memory() {
    let dir = scratch();
    let dir = dir.path();
    let text = "graph wide\ndim B\nentry f(x: f32[B]) -> (y: f32[B, 1000], mean: f32[]) {\n  \
                  return broadcast(x, shape: [B, 1000], axes: [0]), mean(x)\n}\n";
    executable(text, &dir.join("program"));
    let x = TensorBuf::from_slice(&[200_000], &vec![1f32; 200_000]).unwrap();
    io::write_tensors(&dir.join("x.npy"), &[("x", &x)]).unwrap();
    // The rows are 800 MB, the program may have 500.
    let line = "ulimit -v 500000; exec ./program f --feed x=x.npy --batch 1000 --threads 1";
    let out = Command::new("bash").args(["-c", line]).current_dir(dir).output().unwrap();
    assert!(out.status.success(), "{}: {}", out.status, said(&out));
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("mean 1.000000, 200000 examples"), "{text}");
}

/// user 2: predictions of weights that nothing has trained looked like any others.
#[test]
fn random_weights_are_told() {
    let dir = scratch();
    let dir = dir.path();
    let text = "graph net\nuse init\ndim B\nvar b: f32[2] = zeros\n\
                var w: f32[3, 2] = init.glorot(seed: 1)\n\
                entry bias() -> (y: f32[2]) {\n  return b * 2.0\n}\n\
                entry predict(x: f32[B, 3]) -> (y: f32[B, 2]) {\n  return x @ w + b\n}\n\
                entry train(x: f32[B, 3]) {\n  w += sum(x)\n}\n";
    executable(text, &dir.join("program"));
    let note = "note: `predict` uses random initial values (`w`)";
    let out = run(dir, "predict --feed x=[[1,2,3]]");
    assert!(out.status.success() && said(&out).contains(note), "{}", said(&out));
    assert_eq!(said(&run(dir, "bias")), "");
    assert_eq!(said(&run(dir, "train --feed x=[[1,2,3]] --state s.safetensors")), "");
    assert_eq!(said(&run(dir, "predict --feed x=[[1,2,3]] --state s.safetensors")), "");
    // `tfc run`, which compiles only the one entry, knows it too.
    let graph = graph(text);
    let cut = tfc::driver::select_entries(&graph, &["predict".to_owned()]).unwrap();
    let module = tfc::compile(&cut).unwrap();
    let random: Vec<bool> = module.model().plan().vars.iter().map(|v| v.random).collect();
    assert_eq!(random, [false, true]);
}

/// user 2: a NaN in the data lost what was learned before it. The step that meets it
/// is undone, also what it wrote before.
#[test]
fn a_loss_that_is_not_finite_keeps_the_steps_before() {
    let dir = scratch();
    let dir = dir.path();
    let text = "graph nan\nuse optim\ndim B\nvar n: f32[] = 0\nvar w: f32[] = 1\n\
                entry train(x: f32[B]) -> (loss: f32[]) {\n  n += 1.0\n  \
                  loss = mean((w * x) ** 2)\n  minimize loss over [w] with optim.sgd(lr: 0.1)\n  \
                  return loss\n}\n";
    executable(text, &dir.join("program"));
    let x = TensorBuf::from_slice(&[4], &[1f32, 2.0, f32::NAN, 1.0]).unwrap();
    io::write_tensors(&dir.join("x.npy"), &[("x", &x)]).unwrap();
    let out = run(dir, "train --feed x=x.npy --batch 1 --state s.safetensors");
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("error[E0533]"), "{}", said(&out));
    assert!(said(&out).contains("the 2 steps before it are in `s.safetensors`"), "{}", said(&out));
    assert_eq!(number(dir, "s.safetensors", "n"), 2.0);
    assert!(number(dir, "s.safetensors", "w").is_finite());
}
