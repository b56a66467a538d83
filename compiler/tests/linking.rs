//! Programs carry of the runtime what they can use.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const PREDICT: &str = "var w: f32[4] = ones\n\
                       entry predict(x: f32[4]) -> f32[4] { return x * w }\n";
const TRAIN: &str = "entry train(x: f32[4]) -> (loss: f32[]) {\n\
                     \x20 loss = sum(w * w * x)\n\
                     \x20 assign(w, w - 0.1 * grad(loss, w))\n\
                     \x20 return loss\n}\n";
const CONV: &str = "entry blur(x: f32[1, 1, 4, 4], k: f32[1, 1, 3, 3]) -> f32[1, 1, 4, 4] {\n\
                    \x20 return conv2d(x, k, pad: [1, 1, 1, 1])\n}\n";

/// The bytes of the program of these entries.
fn program(dir: &Path, name: &str, entries: &[&str]) -> Vec<u8> {
    let graph = dir.join(format!("{name}.graph"));
    fs::write(&graph, format!("graph g\n{}", entries.concat())).unwrap();
    let mut tfc = Command::new(env!("CARGO_BIN_EXE_tfc"));
    let out = tfc
        .args(["compile", "--symbols"])
        .arg(&graph)
        .arg("-o")
        .arg(dir.join(name))
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    fs::read(dir.join(name)).unwrap()
}

fn has(program: &[u8], text: &str) -> bool {
    program.windows(text.len()).any(|w| w == text.as_bytes())
}

/// NCCL is for programs that have both: code for GPUs, and others to train with.
#[test]
fn only_jobs_on_gpus_carry_nccl() {
    let dir = tempfile::tempdir().unwrap();
    let program = |name: &str, entries: &[&str], target: &[&str]| {
        let graph = dir.path().join(format!("{name}.graph"));
        fs::write(&graph, format!("graph g\n{}", entries.concat())).unwrap();
        let mut tfc = Command::new(env!("CARGO_BIN_EXE_tfc"));
        tfc.args(["compile", "--symbols"]).args(target).arg(&graph);
        let out = tfc.arg("-o").arg(dir.path().join(name)).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        fs::read(dir.path().join(name)).unwrap()
    };
    let cuda = &["--target", "cuda"];
    let both = program("both", &[PREDICT, TRAIN], cuda);
    let alone = program("alone", &[PREDICT], cuda);
    let cpu = program("cpu", &[PREDICT, TRAIN], &[]);
    for (text, in_alone) in [("ncclCommInitRankConfig", false), ("cuLaunchKernel", true)] {
        assert!(has(&both, text), "{text}");
        assert_eq!(has(&alone, text), in_alone, "{text}");
        assert!(!has(&cpu, text), "{text}");
    }
}

#[test]
fn only_programs_that_train_can_be_part_of_a_job() {
    let dir = tempfile::tempdir().unwrap();
    let alone = program(dir.path(), "alone", &[PREDICT]);
    let trains = program(dir.path(), "trains", &[PREDICT, TRAIN]);
    let convolves = program(dir.path(), "convolves", &[PREDICT, CONV]);
    for module in ["3net4link", "3net6muster", "3net3tls", "2ps6server"] {
        assert!(has(&trains, module), "{module}");
        assert!(!has(&alone, module) && !has(&convolves, module), "{module}");
    }
    // The Rust library's reader of debug information, which tfc itself has.
    let reader = "9addr2line8function9Functions";
    assert!(has(&fs::read(env!("CARGO_BIN_EXE_tfc")).unwrap(), reader));
    assert!(!has(&trains, reader) && !has(&alone, reader));
    assert!(alone.len() + 100_000 < trains.len(), "{} {}", alone.len(), trains.len());
    assert!(alone.len() + 50_000 < convolves.len(), "{} {}", alone.len(), convolves.len());

    let run = |line: &[&str], job: &[(&str, &str)]| -> Output {
        let mut command = Command::new(dir.path().join("alone"));
        command.args(["predict", "--feed", "x=[1, 2, 3, 4]"]).args(line);
        command.envs(job.iter().copied()).output().unwrap()
    };
    let job = [("TFC_RANK", "0"), ("TFC_SIZE", "2"), ("TFC_COORDINATOR", "127.0.0.1:1")];
    for (line, job) in [(&[][..], &[][..]), (&["--mode", "local"], &job)] {
        let out = run(line, job);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(String::from_utf8_lossy(&out.stdout).contains("[1.0, 2.0, 3.0, 4.0]"));
    }
    for (line, job, code, text) in [
        (&[][..], &job[..], "E0707", "nothing that 2 workers could do"),
        (&["--mode", "sync"], &[], "E0705", "there is nobody to train with"),
        (&["--mode", "ps-async"], &[], "E0705", "there are no parameter servers"),
        (&["--role", "/job:worker/task:0"], &[], "E0705", "was not cut for a cluster"),
        (&["--cluster", "127.0.0.1:1"], &[], "E0707", "learns with parameter servers"),
    ] {
        let out = run(line, job);
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success() && err.contains(code) && err.contains(text), "{err}");
    }
}
