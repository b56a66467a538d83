//! Programs that are stopped at any moment go on with the same bits.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tfc::emit::{Artifact, Emitter};
use tfc::link::LinkOptions;
use tfc_runtime::{TensorBuf, checkpoint, io};
use tfc_testdata::ways::scratch;

/// Adam's slots, its step counter and the key of the dropout masks all decide
/// what comes next; `slow` has one long step.
const GRAPH: &str = "\
graph stopped
use init
use optim
dim B

var key: i64[] = 7
var w1: f32[8, 32] = init.glorot(seed: 1)
var b1: f32[32] = zeros
var w2: f32[32, 1] = init.glorot(seed: 2)

entry train(x: f32[B, 8], y: f32[B, 1]) -> (loss: f32[]) {
  key += 1
  h = tanh(x @ w1 + b1)
  kept = cast(random_bernoulli(key, shape: [B, 32], p: 0.8), to: f32)
  loss = mean(((h * kept / 0.8) @ w2 - y) ** 2)
  minimize loss over [w1, b1, w2] with optim.adam(lr: 0.01)
  return loss
}

entry slow(n: i64[]) {
  key += while (i = n) i > 0 { yield i - 1 }
}
";

struct Program {
    _keep: tempfile::TempDir,
    dir: PathBuf,
}

impl Program {
    fn new() -> Program {
        let keep = scratch();
        let dir = keep.path().to_path_buf();
        std::fs::write(dir.join("stopped.graph"), GRAPH).unwrap();
        let graph = tfc::load(dir.join("stopped.graph")).unwrap();
        let mut timings = tfc::driver::Timings::default();
        let options = tfc::Options::default();
        let compiled =
            tfc::driver::compile(&graph, &graph.sources, &options, &mut timings).unwrap();
        let link = LinkOptions { symbols: false, ..LinkOptions::default() };
        let cpu = tfc_codegen::Cpu::Portable;
        let emitter = Emitter {
            program: compiled.program(),
            graph: compiled.graph(),
            link,
            prefix: "m",
            cpu,
            gpus: None,
        };
        emitter.write(Artifact::Executable, &dir.join("stopped"), &mut timings).unwrap();
        let wave = |n: usize| (0..n).map(|i| (i as f32 * 0.37).sin()).collect::<Vec<f32>>();
        let x = TensorBuf::from_slice(&[50, 8], &wave(400)).unwrap();
        let y = TensorBuf::from_slice(&[50, 1], &wave(50)).unwrap();
        io::write_tensors(&dir.join("x.npy"), &[("x", &x)]).unwrap();
        io::write_tensors(&dir.join("y.npy"), &[("y", &y)]).unwrap();
        Program { _keep: keep, dir }
    }

    /// The command line of a training run up to a step of the whole run.
    fn line(&self, checkpoints: &str, steps: u64, every: u64) -> Vec<String> {
        let file = |name: &str| self.dir.join(name).display().to_string();
        let mut line = vec!["train".to_owned()];
        for name in ["x", "y"] {
            line.extend(["--feed".into(), format!("{name}={}", file(&format!("{name}.npy")))]);
        }
        line.extend(
            ["--batch", "8", "--shuffle", "3", "--threads", "1", "--resume"].map(str::to_owned),
        );
        line.extend(["--steps".into(), steps.to_string(), "--keep".into(), "2".into()]);
        line.extend(["--save-every".into(), every.to_string()]);
        line.extend(["--checkpoint-dir".into(), file(checkpoints)]);
        line
    }

    fn start(&self, line: &[String]) -> Child {
        let mut command = Command::new(self.dir.join("stopped"));
        command.args(line).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn finish(&self, line: &[String]) {
        let out = self.start(line).wait_with_output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }

    /// The newest checkpoint's step; all there are must be whole.
    fn newest(&self, checkpoints: &str) -> u64 {
        let list = checkpoint::list(&self.dir.join(checkpoints)).unwrap().checkpoints;
        for (_, path) in &list {
            checkpoint::verify(path).unwrap();
        }
        list.last().map_or(0, |c| c.0)
    }

    fn data(&self, checkpoints: &str, step: u64) -> Vec<u8> {
        let name = format!("step-{step:012}.safetensors");
        std::fs::read(self.dir.join(checkpoints).join(name)).unwrap()
    }

    /// What an uninterrupted run has after so many steps.
    fn uninterrupted(&self, checkpoints: &str, steps: u64) -> Vec<u8> {
        self.finish(&self.line(checkpoints, steps, 1 << 40));
        self.data(checkpoints, steps)
    }
}

const NEVER: u64 = 1 << 40;

/// Waits until there is a checkpoint of a later step.
fn wait_for_progress(dir: &Path, than: u64) {
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        let list = checkpoint::list(dir).unwrap_or_default();
        if list.checkpoints.last().is_some_and(|c| c.0 > than) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no checkpoint after half a minute");
}

fn signal(child: &Child, name: &str) {
    let done = Command::new("kill").args([name, &child.id().to_string()]).status().unwrap();
    assert!(done.success());
}

#[test]
fn killed_twenty_times() {
    let p = Program::new();
    let dir = p.dir.join("killed");
    let mut random = 12345u64;
    for round in 0..20 {
        let before = p.newest("killed");
        // Every save is of one or of three steps: kills hit saves and steps.
        let mut child = p.start(&p.line("killed", NEVER, 1 + 2 * (round % 2)));
        if round % 4 != 3 {
            wait_for_progress(&dir, before);
        }
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        std::thread::sleep(Duration::from_micros((random >> 33) % 20_000));
        child.kill().unwrap();
        let out = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), None, "it was killed, it did not end: {said}");
        assert!(!said.contains("warning"), "nothing was torn: {said}");
        assert!(p.newest("killed") >= before, "a checkpoint was lost");
    }
    let steps = p.newest("killed") + 4;
    p.finish(&p.line("killed", steps, 3));
    assert!(p.data("killed", steps) == p.uninterrupted("whole", steps), "after {steps} steps");
    // At most two checkpoints, and nothing else.
    assert!(std::fs::read_dir(&dir).unwrap().count() <= 4);
}

#[test]
fn asked_to_stop() {
    let p = Program::new();
    let child = p.start(&p.line("asked", NEVER, 1));
    wait_for_progress(&p.dir.join("asked"), 0);
    signal(&child, "-TERM");
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    let step = p.newest("asked");
    assert_eq!(out.status.code(), Some(75), "{said}");
    assert!(said.contains(&format!("stopped after step {step}, which is saved in")), "{said}");
    assert!(said.contains("`--resume` goes on"), "{said}");
    // `tfc run` is the same program, so it can go on too.
    let mut line = vec!["tfc".to_owned(), "run".to_owned()];
    line.push(p.dir.join("stopped.graph").display().to_string());
    line.extend(p.line("asked", step + 3, 1));
    line.push("--quiet".into());
    assert_eq!(tfc::cli::main(line.into_iter().map(Into::into)), 0);
    assert!(p.data("asked", step + 3) == p.uninterrupted("whole", step + 3));
}

/// Waits until a program catches interrupts.
#[cfg(target_os = "linux")]
fn wait_until_it_listens(child: &Child) {
    let status = format!("/proc/{}/status", child.id());
    let start = Instant::now();
    loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let fields: BTreeMap<&str, &str> =
            text.lines().filter_map(|l| l.split_once(":\t")).collect();
        let mask = fields.get("SigCgt").and_then(|m| u64::from_str_radix(m, 16).ok());
        if mask.is_some_and(|m| m >> 1 & 1 == 1) {
            return;
        }
        assert!(start.elapsed() < Duration::from_secs(30), "{text}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A second request, after a moment, ends the program at once.
#[test]
#[cfg(target_os = "linux")]
fn asked_twice() {
    use std::os::unix::process::ExitStatusExt;
    let p = Program::new();
    let dir = p.dir.join("slow").display().to_string();
    let line = ["slow", "--feed", "n=1000000000000", "--checkpoint-dir", &dir].map(str::to_owned);
    let mut child = p.start(&line);
    wait_until_it_listens(&child);
    signal(&child, "-INT");
    std::thread::sleep(tfc_runtime::cli::signals::GRACE * 2);
    assert!(child.try_wait().unwrap().is_none(), "the step goes on");
    signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().signal(), Some(2));
}

/// faults 6: `timeout` sends its signal twice, and the second one lost the save.
#[test]
#[cfg(target_os = "linux")]
fn asked_twice_at_once() {
    let p = Program::new();
    for round in 0..5u64 {
        let before = p.newest("twice");
        let child = p.start(&p.line("twice", NEVER, NEVER));
        wait_until_it_listens(&child);
        std::thread::sleep(Duration::from_millis(3 * round));
        signal(&child, "-TERM");
        // It may be gone already.
        let _ = Command::new("kill").args(["-TERM", &child.id().to_string()]).output().unwrap();
        let out = child.wait_with_output().unwrap();
        assert_eq!(out.status.code(), Some(75), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(p.newest("twice") > before, "nothing was saved");
    }
}

/// user 2: Ctrl-C with `--state` alone lost everything.
#[test]
#[cfg(target_os = "linux")]
fn asked_to_stop_with_a_state_file() {
    let p = Program::new();
    let state = p.dir.join("s.safetensors").display().to_string();
    let mut line = p.line("none", NEVER, NEVER);
    let at = line.iter().position(|w| w == "--resume").unwrap();
    line.truncate(at);
    line.extend(["--steps".into(), NEVER.to_string(), "--state".into(), state.clone()]);
    let child = p.start(&line);
    wait_until_it_listens(&child);
    signal(&child, "-INT");
    let out = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(75), "{said}");
    assert!(said.contains("the variables are saved in `"), "{said}");
    let key = io::tensor_file(Path::new(&state), Some("key"), "key", None).unwrap();
    let steps = key.get_f64(0).unwrap() - 7.0;
    assert!(steps >= 1.0 && said.contains(&format!("stopped after step {steps}:")), "{said}");
}

#[test]
fn damaged_by_hand() {
    let p = Program::new();
    p.finish(&p.line("torn", 6, 1));
    let good = p.data("torn", 6);
    for (ending, cut) in
        [("safetensors", true), ("json", true), ("safetensors", false), ("json", false)]
    {
        let path = p.dir.join(format!("torn/step-000000000006.{ending}"));
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        match cut {
            true => bytes.truncate(middle),
            false => bytes[middle] ^= 1,
        }
        std::fs::write(&path, bytes).unwrap();
        let out = p.start(&p.line("torn", 6, 1)).wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "{said}");
        assert!(
            said.contains("warning[E0580]") && said.contains(&format!(".{ending}`: it ")),
            "{said}"
        );
        assert!(said.contains("resuming from step 5"), "{said}");
        assert!(p.data("torn", 6) == good, "the step is done again");
    }
}
