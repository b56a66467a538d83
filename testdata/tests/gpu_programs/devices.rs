//! Programs with `on`: several simulated GPUs and the CPU in one process.

use super::*;

/// Graphs that say where their nodes are.
#[test]
fn placed_graphs() {
    let cases = corpus::cases("devices");
    all_agree(&cases, 13);
}

/// Graphs of the corpus with every node and variable on a device that is drawn.
#[test]
fn graphs_on_devices_at_random() {
    let mut cases = corpus::cases("run");
    cases.extend(corpus::cases("devices"));
    cases.retain(|c| c.directive().verb == "run");
    let seeded: Vec<(&Case, Option<u64>)> =
        cases.iter().flat_map(|c| (1..=6).map(move |seed| (c, Some(seed)))).collect();
    all_agree_scattered(&seeded, 100);
}

fn model_parallel() -> (tempfile::TempDir, PathBuf) {
    let cases = corpus::cases("devices");
    let case = cases.iter().find(|c| c.name.ends_with("model_parallel")).expect("the case");
    executable_of(&case.text, "parallel")
}

fn train<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut args = vec!["train", "--steps", "6"];
    args.extend(["--feed", "x=[[1, 2, 3, 4, 5, 6, 7, 8], [1, 0, 1, 0, 1, 0, 1, 0]]"]);
    args.extend(["--feed", "t=[1, 3]"]);
    args.extend(more);
    args
}

/// Two halves of a network on two GPUs learn what they learn on the CPU, whichever GPUs
/// they are and in whatever order these get on.
#[test]
fn an_executable_learns_on_two_gpus() {
    let (_dir, exe) = model_parallel();
    let cpu = run(&exe, false, "", &train(&["--device", "cpu"]));
    assert!(cpu.status.success(), "{}", text(&cpu.stderr));
    // It was told to: nothing to say.
    assert!(!text(&cpu.stderr).contains("CPU"), "{}", text(&cpu.stderr));
    for (settings, device) in [
        ("devices=2", "cuda"),
        ("devices=2,seed=3", "cuda"),
        ("devices=2,seed=4", "cuda:0"),
        ("devices=4,seed=5", "cuda:2"),
    ] {
        let gpu = run(&exe, true, settings, &train(&["--device", device]));
        assert!(gpu.status.success(), "{settings}: {}", text(&gpu.stderr));
        assert_eq!(losses(&gpu), losses(&cpu), "{settings}");
    }
}

/// A GPU that is not there is an error where one was demanded, and else said.
#[test]
fn a_gpu_that_is_missing_is_said() {
    let (_dir, exe) = model_parallel();
    let cpu = run(&exe, false, "", &train(&["--device", "cpu"]));
    for (settings, device, number) in [("devices=1", "cuda", 1), ("devices=2", "cuda:1", 2)] {
        let out = run(&exe, true, settings, &train(&["--device", device]));
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(3), "{said}");
        assert!(said.contains(&format!("E0840]: there is no GPU number {number}")), "{said}");
        assert!(said.contains("parts of the graph are placed on `/gpu:0`, `/gpu:1`"), "{said}");
    }
    for simulated in [true, false] {
        let out = run(&exe, simulated, "devices=1", &train(&[]));
        let said = text(&out.stderr);
        assert!(out.status.success(), "{said}");
        assert!(said.contains("note: this runs on the CPU: "), "{said}");
        assert!(said.contains("; parts of the graph are placed on `/gpu:0`, `/gpu:1`"), "{said}");
        assert_eq!(losses(&out), losses(&cpu));
    }
}

/// The copies of the printed graph are those of the plan.
#[test]
fn copies_are_in_the_graph() {
    let text = "graph g\ndim B\nvar w: f32[8] = ones on \"/gpu:1\"\n\
        entry f(x: f32[B, 8]) -> (y: f32[B, 8], s: f32[]) {\n\
          a = exp(x) on \"/gpu:0\"\n\
          b = a * w on \"/gpu:1\"\n\
          y = sin(b) + a on \"/cpu:0\"\n\
          s = sum(b * a) on \"/gpu:1\"\n\
          print(s, label: \"s\")\n\
          return y, s\n\
        }\n";
    let graph = tfc::parse(text).expect("a graph");
    let mut timings = tfc::driver::Timings::default();
    let options = Options::new().device(Device::Cuda(0));
    let compiled =
        tfc::driver::compile(&graph, &graph.sources, &options, &mut timings).expect("a program");
    let mut nodes: Vec<String> = vec![];
    compiled.graph().entries[0].walk(&mut |_, node| {
        if node.op.name() == "copy" {
            nodes.push(node.device.as_deref().unwrap_or("nowhere").to_string());
        }
    });
    let plan = tfc_codegen::ptx::on_gpu(&compiled.program().plan);
    let entry = &plan.entries[0];
    let mut steps: Vec<String> = vec![];
    for step in &entry.steps {
        if let tfc_abi::plan::Step::Copy { dst, .. } = step {
            let device = entry.buffers[*dst as usize].device;
            steps.push(plan.devices[device as usize].placement.clone());
        }
    }
    nodes.sort();
    steps.sort();
    // x up, a across and down, b down, s down.
    assert_eq!(nodes, ["/cpu:0", "/cpu:0", "/cpu:0", "/gpu:0", "/gpu:1"]);
    assert_eq!(steps, nodes, "{}", tfc_ir::text::print(compiled.graph()));
}

/// GPUs of the tasks of a cluster: one process that is all of them, and one for each.
#[test]
fn tasks_have_gpus_of_their_own() {
    use std::sync::Arc;
    use std::time::Duration;
    use_simulator();
    let text = "graph g\nvar w: f32[3] = ones on \"/job:w/task:1/gpu:1\"\n\
        entry f(x: f32[3]) -> (y: f32[3]) {\n\
          a = exp(x) on \"/job:w/task:0/gpu:0\"\n\
          b = a * w on \"/job:w/task:1/gpu:0\"\n\
          assign(w, b)\n\
          y = b + a on \"/job:w/task:1/cpu:0\"\n\
          return y * 2.0\n\
        }\n";
    let cluster = "[job.w]\ntasks = 2\ndevices = [\"gpu:0\", \"gpu:1\", \"cpu:0\"]\n";
    let cluster = tfc::Cluster::parse("c.toml", cluster).expect("a cluster");
    let graph = tfc::parse(text).expect("a graph");
    let options = Options::new().cluster(cluster).device(Device::Cuda(0));
    let make = || tfc::compile_with(&graph, &options).expect("a module");
    let x = ndarray::array![0.0f32, 1.0, -1.0];
    let call = |module: &Module| -> Vec<f32> {
        let rounds = (0..2).map(|_| {
            let out = module.call("f", (&x,)).expect("it runs");
            out.array::<f32>("y").expect("a result").iter().copied().collect::<Vec<f32>>()
        });
        rounds.flatten().collect()
    };
    let plain = tfc::compile(
        &tfc::parse(&text.replace("/job:w/task:1", "").replace("/job:w/task:0", ""))
            .expect("a graph"),
    )
    .expect("a module");
    assert!(plain.instead().is_some());
    let want = call(&plain);
    let alone = make();
    assert_eq!(alone.instead(), None);
    assert_eq!(call(&alone), want);
    let (first, second) = (make(), make());
    let mut groups = tfc::net::local::groups(2, Duration::from_secs(60)).into_iter();
    let (one, two) = (groups.next().expect("two"), groups.next().expect("two"));
    let helper = std::thread::spawn(move || second.serve(Arc::new(two)));
    first.lead(Arc::new(one)).expect("a group");
    assert_eq!(call(&first), want);
    first.dismiss().expect("they go");
    helper.join().expect("no panic").expect("no error");
}
