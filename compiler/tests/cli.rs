//! The `tfc` command from outside: output, files, exit codes.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const GRAPH: &str = "\
graph small
dim B
var n: i32[] = 0

/// Doubles.
entry twice(x: f32[B]) -> (y: f32[B]) {
  h = x + x
  z = h * 1.0
  return z
}

entry count() -> (now: i32[]) {
  n += 1
  return n
}
";

struct Sandbox {
    dir: tempfile::TempDir,
}

impl Sandbox {
    fn new() -> Sandbox {
        let sandbox = Sandbox { dir: tempfile::tempdir().unwrap() };
        sandbox.write("small.graph", GRAPH);
        sandbox
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn tfc(&self, args: &[&str]) -> Output {
        self.tfc_with(args, "")
    }

    fn tfc_with(&self, args: &[&str], input: &str) -> Output {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tfc"))
            .args(args)
            .current_dir(self.dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }
}

fn out(o: &Output) -> String {
    String::from_utf8_lossy(&o.stdout).into_owned()
}

fn err(o: &Output) -> String {
    String::from_utf8_lossy(&o.stderr).into_owned()
}

#[track_caller]
fn ok(o: &Output) -> String {
    assert!(o.status.success(), "{}{}", out(o), err(o));
    out(o)
}

#[track_caller]
fn fails(o: &Output, code: i32, error: &str) -> String {
    assert_eq!(o.status.code(), Some(code), "{}{}", out(o), err(o));
    let text = err(o);
    assert!(text.contains(error), "{text}");
    text
}

#[test]
fn compile_makes_an_executable_that_runs() {
    let s = Sandbox::new();
    ok(&s.tfc(&["compile", "small.graph", "-o", "small"]));
    let run = |args: &[&str]| {
        Command::new(s.path("small")).args(args).current_dir(s.dir.path()).output().unwrap()
    };
    let text = ok(&run(&["twice", "--feed", "x=[1, 2.5]"]));
    assert!(text.contains('2') && text.contains('5'), "{text}");
    assert!(ok(&run(&["--help"])).contains("twice"));
    assert!(ok(&run(&["--signature"])).contains("f32[B]"));
    fails(&run(&["nope"]), 2, "E09");
    fails(&run(&["twice", "--feed", "x=[[1]]"]), 1, "E05");
    // What is left behind is the executable alone.
    let mut names: Vec<String> = std::fs::read_dir(s.dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["small", "small.graph"]);
}

/// user 7: the weights of layers are listed, the slots of optimizers are not.
#[test]
fn a_signature_lists_the_weights_of_models() {
    let s = Sandbox::new();
    let text = "graph net\nuse layer\nuse optim\nvar step: i32[] = 0\n\
                model net(x: f32[1, 3]) { return layer.dense(x, units: 2) as head }\n\
                entry train(x: f32[1, 3]) {\n  step += 1\n  minimize sum(net(x)) with optim.adamw()\n}\n";
    std::fs::write(s.path("net.graph"), text).unwrap();
    let shown = ok(&s.tfc(&["run", "net.graph", "--signature"]));
    let variables = shown.split("\nvariables\n").nth(1).unwrap_or_default();
    let rows: Vec<Vec<&str>> = variables.lines().map(|l| l.split_whitespace().collect()).collect();
    let names: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert_eq!(names, ["step", "net.head.w", "net.head.b"], "{shown}");
    assert!(shown.contains("changes  step, net.*\n"), "{shown}");
    let json = ok(&s.tfc(&["run", "net.graph", "--signature", "--message-format", "json"]));
    assert!(json.contains("\"adamw.net.head.w.m\""), "{json}");
}

#[test]
fn run_behaves_as_the_executable() {
    let s = Sandbox::new();
    ok(&s.tfc(&["compile", "small.graph", "-o", "small"]));
    for args in [
        vec!["twice", "--feed", "x=[1, 2.5]"],
        vec!["count"],
        vec!["twice"],
        vec!["twice", "--feed", "x=[true]"],
        vec!["nope"],
    ] {
        let exe =
            Command::new(s.path("small")).args(&args).current_dir(s.dir.path()).output().unwrap();
        let mut with = vec!["run", "small.graph"];
        with.extend(&args);
        let jit = s.tfc(&with);
        assert_eq!(out(&exe), out(&jit), "{args:?}: {}", err(&jit));
        assert_eq!(exe.status.code(), jit.status.code(), "{args:?}");
        let first = |t: String| t.lines().next().unwrap_or("").to_string();
        assert_eq!(first(err(&exe)), first(err(&jit)), "{args:?}");
    }
}

#[test]
fn any_named_node_can_be_fetched_and_fed() {
    let s = Sandbox::new();
    let text = ok(&s.tfc(&["run", "small.graph", "twice", "--feed", "x=[3]", "--fetch", "h"]));
    assert!(text.contains('h') && text.contains('6'), "{text}");
    // Feeding `h` makes `x` unneeded.
    let text = ok(&s.tfc(&["run", "small.graph", "twice", "--feed", "h=[5]"]));
    assert!(text.contains('5'), "{text}");
    let o = s.tfc(&["run", "small.graph", "twice", "--feed", "x=[3]", "--fetch", "nope"]);
    assert!(!o.status.success());
    assert!(err(&o).contains("nope"), "{}", err(&o));
}

#[test]
fn every_emit_kind_writes_its_file() {
    let s = Sandbox::new();
    let all = "exe,lib,shared,obj,header,graph,fused,steps,kernels,plan,clif,asm,ptx,gpu-schedule";
    ok(&s.tfc(&["compile", "small.graph", "--emit", all]));
    for name in [
        "small",
        "libsmall.a",
        "libsmall.so",
        "small.o",
        "small.h",
        "small.opt.graph",
        "small.fused",
        "small.steps",
        "small.kernels",
        "small.plan",
        "small.clif",
        "small.s",
        "small.ptx",
        "small.gpu-schedule",
    ] {
        let len = std::fs::metadata(s.path(name)).unwrap_or_else(|e| panic!("{name}: {e}")).len();
        assert!(len > 40, "{name} has {len} bytes");
    }
    // Text can go to standard output, and what is printed compiles again.
    let graph = ok(&s.tfc(&["compile", "small.graph", "--emit", "graph", "-o", "-"]));
    let fused = ok(&s.tfc(&["compile", "small.graph", "--emit", "fused", "-o", "-"]));
    assert!(fused.contains("kernel "), "{fused}");
    let again = s.tfc_with(&["check", "-"], &graph);
    assert!(ok(&again).contains("twice"));
    fails(&s.tfc(&["compile", "small.graph", "-o", "-"]), 2, "E0903");
}

#[test]
fn the_commands_of_the_page_about_gpus_run() {
    let s = Sandbox::new();
    s.write("mlp.graph", include_str!("../../examples/mlp.graph"));
    let page = include_str!("../../docs/gpu.md");
    let halves = page.split("```graph\n").find(|part| part.starts_with("graph halves"));
    let halves = halves.and_then(|part| part.split("```").next()).expect("the graph on the page");
    s.write("halves.graph", halves);
    let commands: Vec<&str> = page.lines().filter_map(|l| l.strip_prefix("$ tfc ")).collect();
    let shows = [
        ("compile mlp.graph --target cuda -o mlp", ""),
        ("devices", "cpu "),
        ("opt halves.graph --last", "copy(h) on \"/gpu:1\""),
        ("compile halves.graph --target cuda --emit plan -o -", "/gpu:1"),
        ("compile mlp.graph --emit ptx -o -", ".entry tfc_"),
        ("compile mlp.graph --emit gpu-schedule -o -", "a team of 16 threads"),
    ];
    assert_eq!(commands, shows.map(|(command, _)| command));
    for (command, of) in shows {
        let args: Vec<&str> = command.split(' ').collect();
        let text = ok(&s.tfc(&args));
        assert!(text.contains(of), "{command}: {text}");
    }
    assert!(s.path("mlp").exists());
    // What is only done when it is asked for.
    for (option, of) in [("--tf32", "tf32"), ("--fast-math", "ex2.approx")] {
        let emit = ["compile", "mlp.graph", "--emit", "ptx", "-o", "-"];
        assert!(!ok(&s.tfc(&emit)).contains(of), "{option}");
        assert!(ok(&s.tfc(&[&emit[..], &[option]].concat())).contains(of), "{option}");
    }
}

#[test]
fn an_estimate_needs_no_gpu_and_says_what_it_is() {
    let s = Sandbox::new();
    s.write(
        "m.graph",
        "graph m\ndim B\nvar w: f16[256, 256] = ones\n\
         entry f(x: f16[B, 256], n: i32[]) -> (y: f16[B, 256]) {\n  \
         y = if n > 0 { yield x @ w } else { yield x }\n  return y\n}\n",
    );
    let args = ["bench", "m.graph", "--device", "cuda", "--dim", "B=512", "--estimate"];
    let on = |gpu: &str, more: &[&str]| s.tfc(&[&args[..], &[gpu], more].concat());
    let text = ok(&on("a100", &[]));
    for word in ["an estimate", "nothing was run", "A100", "matmul 512x256x256", "Not in it"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let step = |gpu: &str, name: &str| -> (u64, u64, u64) {
        let json = ok(&on(gpu, &["--message-format", "json"]));
        let line: serde_json::Value = serde_json::from_str(&json).unwrap();
        let steps = line["steps"].as_array().unwrap();
        let found = steps.iter().find(|s| s["step"].as_str().unwrap().starts_with(name));
        let of = |key: &str| found.unwrap()[key].as_u64().unwrap();
        (of("ns"), of("flops"), of("bytes"))
    };
    // Two for each multiply-add; two factors and the result, of two bytes each.
    let (ns, flops, bytes) = step("a100", "matmul");
    assert_eq!(flops, 512 * 256 * 2 * 256);
    assert_eq!(bytes, 2 * (512 * 256 + 256 * 256 + 512 * 256));
    // The memory is slower than tensor cores here: 2039 bytes a nanosecond.
    assert_eq!(ns, bytes / 2039);
    assert!(step("h100", "matmul").0 < ns && ns < step("rtx4090", "matmul").0);
    fails(&on("b17", &[]), 2, "`a100`, `h100` and `rtx4090`");
    let cpu = ["bench", "m.graph", "--device", "cpu", "--estimate", "a100"];
    fails(&s.tfc(&cpu), 2, "E0903");
}

#[test]
fn errors_have_codes_places_and_exit_codes() {
    let s = Sandbox::new();
    s.write("bad.graph", "graph bad\nentry e(x: f32[2]) -> (y: f32[2]) {\n  return x + nope\n}\n");
    let text = fails(&s.tfc(&["check", "bad.graph"]), 1, "error[E01");
    assert!(text.contains("bad.graph:3"), "{text}");
    fails(&s.tfc(&["check", "absent.graph"]), 3, "E0804");
    fails(&s.tfc(&["compile"]), 2, "Usage");
    fails(&s.tfc(&["compile", "small.graph", "-o", "no/such/dir/m"]), 3, "E08");
    fails(&s.tfc(&["compile", "small.graph", "--linker", "/no/such/cc"]), 3, "E0801");
    fails(&s.tfc(&["compile", "small.graph", "--linker", "false"]), 3, "E0802");
    fails(&s.tfc(&["explain", "E9999"]), 2, "E0902");
    fails(&s.tfc(&["opt", "small.graph", "--passes", "csee"]), 2, "cse");
    fails(&s.tfc(&["compile", "small.graph", "--entry", "twcie"]), 2, "twice");
    std::fs::write(s.path("binary.graph"), [0xff, 0xfe, 0x00]).unwrap();
    fails(&s.tfc(&["check", "binary.graph"]), 1, "UTF-8");
    let json = s.tfc(&["check", "bad.graph", "--message-format", "json"]);
    let line = err(&json);
    assert!(line.starts_with('{') && line.contains("\"code\":\"E01"), "{line}");
    let short = s.tfc(&["--message-format", "short", "check", "bad.graph"]);
    assert!(err(&short).starts_with("bad.graph:3:"), "{}", err(&short));
}

#[test]
fn the_number_of_threads_from_outside_must_be_one() {
    let s = Sandbox::new();
    let with = |threads: &str, args: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_tfc"))
            .args(args)
            .env("TFC_THREADS", threads)
            .current_dir(s.dir.path())
            .output()
            .unwrap()
    };
    let run = ["run", "small.graph", "twice", "--feed", "x=[1, 2.5]"];
    let bench = ["bench", "small.graph", "twice", "--calls", "1"];
    for args in [&run[..], &bench[..]] {
        ok(&with("2", args));
        ok(&with("", args));
        fails(&with("many", args), 2, "`many` is not a value for `TFC_THREADS`");
        fails(&with("0", args), 2, "E0914");
    }
}

#[test]
fn without_a_linker_the_error_says_what_to_do() {
    let s = Sandbox::new();
    let o = Command::new(env!("CARGO_BIN_EXE_tfc"))
        .args(["compile", "small.graph"])
        .env("PATH", "")
        .current_dir(s.dir.path())
        .output()
        .unwrap();
    let text = fails(&o, 3, "E0801");
    assert!(text.contains("apt install gcc") && text.contains("--linker"), "{text}");
}

#[test]
fn fmt_formats_and_checks() {
    let s = Sandbox::new();
    ok(&s.tfc(&["fmt", "--check", "small.graph"]));
    let ugly = GRAPH.replace("  h = x + x", "      h   =  x+x   // sum");
    s.write("ugly.graph", &ugly);
    fails(&s.tfc(&["fmt", "--check", "ugly.graph"]), 1, "ugly.graph");
    assert_eq!(std::fs::read_to_string(s.path("ugly.graph")).unwrap(), ugly);
    ok(&s.tfc(&["fmt", "ugly.graph"]));
    ok(&s.tfc(&["fmt", "--check", "ugly.graph"]));
    let text = std::fs::read_to_string(s.path("ugly.graph")).unwrap();
    assert!(text.contains("h = x + x") && text.contains("// sum"), "{text}");
    assert_eq!(ok(&s.tfc_with(&["fmt", "-"], &ugly)), text);
}

#[test]
fn reference_commands_answer() {
    let s = Sandbox::new();
    assert!(ok(&s.tfc(&["ops"])).contains("matmul"));
    assert!(ok(&s.tfc(&["ops", "matmul"])).contains("trans_a"));
    assert!(ok(&s.tfc(&["explain", "e0203"])).contains("E0203"));
    assert!(ok(&s.tfc(&["explain"])).lines().count() >= 40);
    assert!(ok(&s.tfc(&["completions", "bash"])).contains("complete"));
    assert!(ok(&s.tfc(&["opt", "--list"])).contains("cse"));
    assert!(ok(&s.tfc(&["--version"])).starts_with("tfc "));
    let text = ok(&s.tfc(&["inspect", "small.graph", "--dim", "B=10", "--nodes"]));
    assert!(text.contains("entry twice(x: f32[B]) -> (y: f32[B])"), "{text}");
    let json = ok(&s.tfc(&["inspect", "small.graph", "--json"]));
    assert!(json.trim_start().starts_with('{') && json.contains("\"twice\""), "{json}");
    let o = s.tfc(&["compile", "small.graph", "--timings"]);
    ok(&o);
    assert!(err(&o).contains("link"), "{}", err(&o));
}

/// A graph and its program are measured with the same options, and say it alike.
#[test]
fn benches_agree() {
    let s = Sandbox::new();
    ok(&s.tfc(&["compile", "small.graph", "-o", "small"]));
    let options = ["--calls", "3", "--warmup", "1", "--time", "5ms", "--threads", "1"];
    let json = ["--message-format", "json"];
    let program = |args: &[&str]| {
        Command::new(s.path("small"))
            .args(["bench", "twice", "--feed", "x=[1]"])
            .args(args)
            .output()
    };
    let mut keys = vec![];
    for outcome in [
        s.tfc(&[&["bench", "small.graph", "twice"][..], &options, &json].concat()),
        s.tfc(
            &[&["run", "small.graph", "bench", "twice", "--feed", "x=[1]"][..], &options, &json]
                .concat(),
        ),
        program(&[&options[..], &json].concat()).unwrap(),
    ] {
        let line: serde_json::Value = serde_json::from_str(&ok(&outcome)).unwrap();
        assert_eq!(line["bench"], "twice");
        assert_eq!(line["calls"], 3);
        assert_eq!(line["threads"], 1);
        let mut found: Vec<String> = line.as_object().unwrap().keys().cloned().collect();
        found.retain(|k| k != "dims");
        keys.push(found);
    }
    assert_eq!(keys[0], keys[1]);
    assert_eq!(keys[0], keys[2]);
    let text =
        ok(&s.tfc(&[&["bench", "small.graph", "twice", "--dim", "B=7"][..], &options].concat()));
    assert!(text.contains("twice") && text.contains("median"), "{text}");
    assert!(ok(&program(&options).unwrap()).contains("3 calls, 1 thread)"));
    let old = s.tfc(&["bench", "small.graph", "--seconds", "1"]);
    fails(&old, 2, "E0901");
    fails(&s.tfc(&["bench", "small.graph", "--time", "soon"]), 2, "500ms");
}

#[test]
fn opt_prints_the_graph_after_each_pass() {
    let s = Sandbox::new();
    let text = ok(&s.tfc(&["opt", "small.graph", "--passes", "canonicalize,dce"]));
    assert!(text.contains("// after canonicalize"), "{text}");
    assert!(text.contains("// after dce"), "{text}");
    let last = ok(&s.tfc(&["opt", "small.graph", "--last"]));
    assert!(ok(&s.tfc_with(&["check", "-"], &last)).contains("twice"));
}

const SLOPE: &str = "\
graph slope
entry step(x: f32[8]) -> (y: f32[8], dx: f32[8]) {
  y = sigmoid(x)
  return y, grad(sum(y), wrt: x)
}
";

#[test]
fn opt_explains_every_node_that_comes_out() {
    let s = Sandbox::new();
    s.write("slope.graph", SLOPE);
    let text = ok(&s.tfc(&["opt", "slope.graph", "--explain"]));
    assert_eq!(
        text,
        "step: y = sigmoid: f32[8] <- sigmoid at slope.graph:3:7: as written\n\
         step: sub: f32[8] <- vjp.sigmoid.0 at slope.graph:3:7: vjp.sigmoid.0\n\
         step: mul: f32[8] <- vjp.sigmoid.0 at slope.graph:3:7: vjp.sigmoid.0 > mul.one\n"
    );
    let without = ok(&s.tfc(&["opt", "slope.graph", "--explain", "--without", "mul.one"]));
    assert!(!without.contains("mul.one"), "{without}");
    assert_eq!(without.lines().filter(|l| l.contains(": mul: ")).count(), 2, "{without}");
}

#[test]
fn explanations_as_json_are_one_object_a_line() {
    let s = Sandbox::new();
    s.write("slope.graph", SLOPE);
    let text = ok(&s.tfc(&["opt", "slope.graph", "--explain=json"]));
    let objects: Vec<serde_json::Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}")))
        .collect();
    assert_eq!(objects.len(), 3, "{text}");
    for o in &objects {
        let mut keys: Vec<&str> = o.as_object().unwrap().keys().map(String::as_str).collect();
        keys.sort();
        assert_eq!(keys, ["at", "entry", "from", "name", "node", "rules"], "{o}");
        assert_eq!(o["entry"], "step");
        assert_eq!(o["at"], "slope.graph:3:7");
    }
    assert_eq!((&objects[0]["name"], &objects[0]["from"]), (&"y".into(), &"sigmoid".into()));
    assert_eq!(objects[0]["rules"], serde_json::json!([]));
    assert_eq!(objects[2]["node"], "mul: f32[8]");
    assert_eq!(objects[2]["rules"], serde_json::json!(["vjp.sigmoid.0", "mul.one"]));
    fails(&s.tfc(&["opt", "slope.graph", "--explain=yaml"]), 2, "json");
}

#[test]
fn a_rule_that_is_not_there_cannot_be_left_out() {
    let s = Sandbox::new();
    let text = fails(&s.tfc(&["opt", "small.graph", "--without", "add.facter"]), 2, "E0902");
    assert!(text.contains("there is no rewrite rule `add.facter`"), "{text}");
    assert!(text.contains("did you mean `add.factor`?"), "{text}");
    let text = fails(&s.tfc(&["opt", "small.graph", "--without", "qqqqq"]), 2, "E0902");
    assert!(text.contains("--explain"), "{text}");
    // One wrong name among right ones is still wrong.
    fails(&s.tfc(&["opt", "small.graph", "--without", "mul.one,mul.onee"]), 2, "`mul.one`?");
    let json = s.tfc(&["opt", "small.graph", "--without", "x.y", "--message-format", "json"]);
    let line = err(&json);
    let diag: serde_json::Value = serde_json::from_str(line.lines().next().unwrap()).unwrap();
    assert_eq!(diag["code"], "E0902", "{line}");
}

#[test]
fn checkpoints_are_listed_checked_and_compared() {
    let s = Sandbox::new();
    for _ in 0..2 {
        let line = ["run", "small.graph", "count", "--checkpoint-dir", "c", "--resume", "-q"];
        ok(&s.tfc(&line));
    }
    let list = ok(&s.tfc(&["ckpt", "ls", "c"]));
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(lines[0].contains("step") && lines[2].trim_start().starts_with("2 "), "{list}");
    assert!(lines[1].contains("small ("), "{list}");
    let json = ok(&s.tfc(&["ckpt", "ls", "c/step-000000000002.safetensors", "--json"]));
    assert!(json.starts_with("{\"step\":2,"), "{json}");
    assert_eq!(ok(&s.tfc(&["ckpt", "verify", "c"])).matches(": good").count(), 2);
    assert!(ok(&s.tfc(&["ckpt", "diff", "c", "c/step-000000000002.json"])).contains("n: equal"));
    let first = "c/step-000000000001.safetensors";
    let o = s.tfc(&["ckpt", "diff", first, "c"]);
    assert_eq!(o.status.code(), Some(1));
    assert_eq!(out(&o), "n: 1 of 1 elements differ, by at most 1e0\n0 of 1 tensors are equal\n");
    let bytes = std::fs::read(s.path(first)).unwrap();
    std::fs::write(s.path(first), &bytes[..bytes.len() - 1]).unwrap();
    let o = s.tfc(&["ckpt", "verify", "c"]);
    assert_eq!(o.status.code(), Some(1));
    let text = out(&o);
    assert!(text.contains("torn: `c/step-000000000001.safetensors`: it is cut short"), "{text}");
    assert!(text.contains("step-000000000002: good"), "{text}");
    let o = s.tfc(&["ckpt", "ls", "nowhere"]);
    assert_eq!(o.status.code(), Some(3));
}

#[test]
fn what_is_no_checkpoint_is_an_error() {
    let s = Sandbox::new();
    for command in ["ls", "verify"] {
        let text = fails(&s.tfc(&["ckpt", command, "small.graph"]), 1, "E0582");
        assert!(text.contains("`small.graph` is not a checkpoint"), "{text}");
        fails(&s.tfc(&["ckpt", command, "none.json"]), 3, "E0804");
        fails(&s.tfc(&["ckpt", command, "."]), 1, "E0582");
    }
    s.write("other.json", "{}");
    fails(&s.tfc(&["ckpt", "ls", "other.json"]), 1, "E0580");
    for _ in 0..2 {
        let line = ["run", "small.graph", "count", "--checkpoint-dir", "c", "--resume", "-q"];
        ok(&s.tfc(&line));
    }
    // One that can be used is listed; the other is a warning, in the form asked for.
    s.write("c/step-000000000001.json", "not a manifest");
    let o = s.tfc(&["--message-format", "json", "ckpt", "ls", "c"]);
    assert_eq!(ok(&o).lines().count(), 2);
    let warning: serde_json::Value = serde_json::from_str(&err(&o)).unwrap();
    assert_eq!((&warning["severity"], &warning["code"]), (&"warning".into(), &"E0580".into()));
    s.write("c/step-000000000002.json", "not a manifest");
    let text = fails(&s.tfc(&["ckpt", "ls", "c"]), 1, "E0582");
    assert!(text.contains("none of the 2 checkpoints"), "{text}");
}

/// `tfc run` takes a line apart as the program does.
#[test]
fn lines_are_read_as_the_program_reads_them() {
    let s = Sandbox::new();
    let x = ["--feed", "x=[1,2]"];
    let twice = "y: f32[2] [2.0, 4.0]\n";
    // Options may come before the entry.
    let line = [&["run", "small.graph", "--threads", "1"][..], &x, &["twice"]].concat();
    assert_eq!(ok(&s.tfc(&line)), twice);
    let line = [&["run", "small.graph", "--threads", "1"][..], &x, &["twice", "--fetch", "h"]];
    assert_eq!(ok(&s.tfc(&line.concat())), "h: f32[2] [2.0, 4.0]\n");
    // A result can be fed by its name, though the value has another.
    let line = ["run", "small.graph", "twice", "--feed", "y=[5]"];
    assert_eq!(ok(&s.tfc(&line)), "y: f32[1] [5.0]\n");
    // A feed of the entry that is not needed any more is let go.
    let line = [&["run", "small.graph", "twice", "--feed", "h=[3]"][..], &x].concat();
    assert_eq!(ok(&s.tfc(&line)), "y: f32[1] [3.0]\n");
    let line = [&["run", "small.graph", "twice", "--feed", "nope=[3]"][..], &x].concat();
    fails(&s.tfc(&line), 2, "E0902");
    // Help is the program's own, behind the graph.
    for line in [&["run", "small.graph", "--help"][..], &["run", "--no-opt", "small.graph", "-h"]] {
        assert!(ok(&s.tfc(line)).contains("tfc run small.graph twice --feed x=x.npy"));
    }
    assert!(ok(&s.tfc(&["run", "--help"])).contains("Usage: tfc run"));
    // Before the command or behind it, the format is the program's, too.
    for line in [
        ["--message-format", "json", "run", "small.graph", "twice"],
        ["run", "small.graph", "twice", "--message-format", "json"],
    ] {
        let error: serde_json::Value = serde_json::from_str(&err(&s.tfc(&line))).unwrap();
        assert_eq!((&error["code"], &error["exit_code"]), (&"E0501".into(), &1.into()));
        assert_eq!(error["help"][0]["text"], "add `--feed x=x.npy`");
    }
}

/// What a loop carries and what it gives may have one name.
#[test]
fn names_that_are_used_again_can_be_fetched() {
    let s = Sandbox::new();
    s.write(
        "loop.graph",
        "dim B\nentry e(x: f32[B]) -> (y: f32[B]) {\n  \
         (i, t) = while (i = 0, t = x) i < 3 { yield i + 1, t * 2.0 }\n  \
         return t + cast(i, to: f32)\n}\n",
    );
    let line = ["run", "loop.graph", "e", "--feed", "x=[1]", "--fetch", "t", "--fetch", "i"];
    assert_eq!(ok(&s.tfc(&line)), "t: f32[1] [8.0]\ni: i32[] 3\n");
    let line = ["run", "loop.graph", "e", "--feed", "t=[1]", "--feed", "i=9"];
    assert_eq!(ok(&s.tfc(&line)), "y: f32[1] [10.0]\n");
}

/// A link is not written through, whoever put it there; a pipe or a device is
/// written to. Only `fmt`, which has read the text through the link, goes back.
/// faults 15: writes followed links.
#[cfg(unix)]
#[test]
fn links_are_refused_and_pipes_written_to() {
    let s = Sandbox::new();
    std::fs::create_dir(s.path("data")).unwrap();
    let links = ["prog", "text.plan", "y.npy", "n.safetensors"];
    for link in links {
        s.write(&format!("data/{link}"), "precious");
        std::os::unix::fs::symlink(format!("data/{link}"), s.path(link)).unwrap();
    }
    let text = fails(&s.tfc(&["compile", "small.graph", "-o", "prog"]), 3, "E0803");
    assert!(text.contains("symbolic link") && text.contains("`data/prog` itself"), "{text}");
    fails(&s.tfc(&["compile", "small.graph", "--emit", "plan", "-o", "text.plan"]), 3, "E0803");
    fails(
        &s.tfc(&["run", "small.graph", "twice", "--feed", "x=[1]", "--out", "y=y.npy"]),
        3,
        "E0803",
    );
    for link in links {
        assert!(s.path(link).is_symlink(), "{link} was replaced");
        let text = std::fs::read_to_string(s.path("data").join(link)).unwrap();
        assert_eq!(text, "precious", "{link} was written through");
    }
    s.write("data/untidy.graph", "entry  e(x: f32[]) -> (y: f32[]) { return x }\n");
    std::os::unix::fs::symlink("data/untidy.graph", s.path("link.graph")).unwrap();
    ok(&s.tfc(&["fmt", "link.graph"]));
    assert!(s.path("link.graph").is_symlink());
    let text = std::fs::read_to_string(s.path("data/untidy.graph")).unwrap();
    assert!(text.starts_with("entry e("), "{text}");
    let pipe = s.path("pipe.npy");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    fails(&s.tfc(&["compile", "small.graph", "-o", "pipe.npy"]), 3, "E0803");
    let reader = std::thread::spawn({
        let pipe = pipe.clone();
        move || std::fs::read(pipe).unwrap()
    });
    ok(&s.tfc(&["run", "small.graph", "twice", "--feed", "x=[1]", "--out", "y=pipe.npy"]));
    assert!(reader.join().unwrap().starts_with(b"\x93NUMPY"));
    use std::os::unix::fs::FileTypeExt;
    assert!(std::fs::metadata(&pipe).unwrap().file_type().is_fifo());
}

/// Results that cannot be written are not taken for written.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told() {
    let s = Sandbox::new();
    ok(&s.tfc(&["compile", "small.graph", "-o", "small"]));
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let program = s.path("small");
    let tfc = PathBuf::from(env!("CARGO_BIN_EXE_tfc"));
    for (command, line) in [
        (&program, &["twice", "--feed", "x=[1]"][..]),
        (&program, &["--help"]),
        (&program, &["--signature"]),
        (&tfc, &["run", "small.graph", "twice", "--feed", "x=[1]"]),
        (&tfc, &["ops"]),
    ] {
        let o = Command::new(command)
            .args(line)
            .current_dir(s.dir.path())
            .stdout(full())
            .output()
            .unwrap();
        fails(&o, 3, "E0803");
    }
}

#[test]
fn sizes_are_given_to_dims_that_exist() {
    let s = Sandbox::new();
    for command in ["inspect", "bench"] {
        let text = fails(&s.tfc(&[command, "small.graph", "--dim", "C=3"]), 2, "E0902");
        assert!(text.contains("it has `B`"), "{text}");
    }
}

/// Sizes that cannot be multiplied are the data's fault, also where nothing is left
/// of the product.
#[test]
fn sizes_beside_an_empty_axis_are_counted() {
    let s = Sandbox::new();
    s.write(
        "wide.graph",
        "dim B, C\nentry e(x: f32[B, C]) -> (y: f32[B, B, C]) {\n  \
         return broadcast(x, shape: [B, B, C], axes: [1, 2]) + 1\n}\n",
    );
    let mut header =
        format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, 0), }}", 1i64 << 40);
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    std::fs::write(s.path("x.npy"), bytes).unwrap();
    fails(&s.tfc(&["run", "wide.graph", "e", "--feed", "x=x.npy"]), 1, "E0516");
    let empty = s.tfc(&["run", "wide.graph", "e", "--feed", "x=[[], []]"]);
    assert_eq!(ok(&empty), "y: f32[2, 2, 0] [[[],\n  []],\n [[],\n  []]]\n");
}

const LOOKUP: &str = "use nn\nuse optim\ndim B\nvar seen: i32[] = 0\nvar w: f32[3, 2] = ones\n\
    entry look(ids: i32[B]) -> (y: f32[B, 2], n: i32[]) {\n  seen += 1\n  return w[ids], seen\n}\n\
    entry xent(z: f32[B, 3], labels: i64[B]) -> (l: f32[]) {\n  \
    return mean(nn.softmax_xent(z, labels))\n}\n\
    entry train(x: f32[B, 3]) -> (loss: f32[]) {\n  loss = mean((x @ w) ** 2)\n  \
    minimize loss over [w] with optim.sgd(lr: 0.1)\n  return loss\n}\n\
    entry spoil(x: f32[]) {\n  w += x\n}\n";

/// user 5, faults 5: a label of 99 gave a loss of 0, ids were clamped.
#[test]
fn indices_out_of_range_are_told() {
    let s = Sandbox::new();
    s.write("l.graph", LOOKUP);
    ok(&s.tfc(&["compile", "l.graph", "-o", "l"]));
    let program = |line: &[&str]| {
        Command::new(s.path("l")).args(line).current_dir(s.dir.path()).output().unwrap()
    };
    let line = ["look", "--feed", "ids=[0, 2, 99]", "--state", "s.safetensors"];
    let text = fails(&program(&line), 1, "E0510");
    assert!(text.contains("index 99 is out of range: axis 0 has size 3"), "{text}");
    assert!(text.contains("`ids[2]`, a feed") && text.contains("l.graph:8:10"), "{text}");
    let line = ["run", "l.graph", "xent", "--feed", "z=[[1, 2, 3]]", "--feed", "labels=[-1]"];
    let text = fails(&s.tfc(&line), 1, "E0510");
    assert!(text.contains("there are 3 classes") && text.contains("`labels[0]`"), "{text}");
    // The user's call of the loss, not the line of the library.
    assert!(text.contains("l.graph:11:15") && !text.contains("<nn>"), "{text}");
    // The call that failed did not count itself.
    let text = ok(&program(&["look", "--feed", "ids=[2]", "--state", "s.safetensors"]));
    assert!(text.contains("n: i32[] 1"), "{text}");
    let line = ["run", "--unchecked", "l.graph", "look", "--feed", "ids=[99]"];
    assert!(ok(&s.tfc(&line)).contains("y: f32[1, 2] [[1.0, 1.0]]"));
}

/// user 2: one NaN in the input overwrote a good state.
#[test]
fn a_good_state_is_not_overwritten_by_nan() {
    let s = Sandbox::new();
    s.write("l.graph", LOOKUP);
    let run = |entry: &str, x: &str, more: &[&str]| {
        let feed = format!("x={x}");
        let line = ["run", "l.graph", entry, "--feed", &feed, "--state", "s.safetensors"];
        s.tfc(&[&line, more].concat())
    };
    ok(&run("train", "[[1, 2, 3]]", &[]));
    let good = std::fs::read(s.path("s.safetensors")).unwrap();
    let state = || std::fs::read(s.path("s.safetensors")).unwrap();
    let text = fails(&run("train", "[[1, nan, 3]]", &[]), 1, "E0533");
    assert!(text.contains("the loss is NaN") && text.contains("l.graph:"), "{text}");
    assert_eq!(state(), good);
    let text = fails(&run("spoil", "inf", &[]), 1, "E0534");
    assert!(text.contains("variable `w` is inf at [0, 0]"), "{text}");
    assert!(text.contains("`s.safetensors` was left as it was"), "{text}");
    assert_eq!(state(), good);
    ok(&run("train", "[[1, nan, 3]]", &["--allow-nan"]));
    assert_ne!(state(), good);
    let line = ["run", "--check-numerics", "l.graph", "train", "--feed", "x=[[1e30, 2, 3]]"];
    let text = fails(&s.tfc(&line), 1, "E0535");
    assert!(text.contains("l.graph:14") && text.contains("infinite"), "{text}");
}
