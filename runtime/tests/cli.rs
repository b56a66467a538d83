//! The command line of a program, in process.

mod common;

use common::*;
use std::path::Path;
use tfc_abi::plan::Plan;
use tfc_runtime::cli::{self, Console, Program};
use tfc_runtime::io::{self, tensor_file};
use tfc_runtime::{Model, ModelOptions, Result, TensorBuf};

struct Small;

impl Program for Small {
    fn plan(&self) -> Result<Plan> {
        Ok(small_plan())
    }

    fn load(&self, options: ModelOptions) -> Result<Model> {
        // SAFETY: the descriptor is static and right.
        unsafe { Model::load_with(describe(&small_plan(), &KERNELS, &[]), options) }
    }

    fn jobs(&self) -> Option<&'static cli::jobs::Jobs> {
        Some(&cli::jobs::TFC_JOBS)
    }
}

/// Exit code, standard output, standard error.
fn run(line: &[&str]) -> (i32, String, String) {
    let words: Vec<String> = line.iter().map(|s| (*s).to_owned()).collect();
    let (mut out, mut err) = (vec![], vec![]);
    let mut console = Console { out: &mut out, err: &mut err, terminal: false };
    let code = cli::main(&Small, "./small", &words, &mut console);
    (code, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

fn ok(line: &[&str]) -> String {
    let (code, out, err) = run(line);
    assert_eq!((code, err.as_str()), (0, ""), "{line:?}");
    out
}

#[test]
fn says_what_it_is() {
    assert_eq!(ok(&["--version"]), "small (tfc 0.1.0)\n");
    let help = ok(&["--help"]);
    assert_eq!(ok(&[]), help);
    assert!(help.contains("./small predict --feed x=x.npy --out y=y.npy"), "{help}");
    assert!(help.contains("Does train."), "{help}");
    assert!(help.contains("--shuffle SEED"), "{help}");
    assert_eq!(
        ok(&["--signature"]),
        "small (small.graph)\n\
         \n\
         run-time dims: B: 1..100000\n\
         \n\
         entry predict\n\
         \x20 Does predict.\n\
         \x20 feed     x  f32[B, 4]\n\
         \x20 result   y  f32[B, 3]\n\
         \x20 $ ./small predict --feed x=x.npy --out y=y.npy --state state.safetensors\n\
         \n\
         entry train\n\
         \x20 Does train.\n\
         \x20 feed     x  f32[B, 4]\n\
         \x20 feed     y  f32[B]\n\
         \x20 result   loss  f32[]\n\
         \x20 changes  b\n\
         \x20 $ ./small train --feed x=x.npy --feed y=y.npy --state state.safetensors\n\
         \n\
         variables\n\
         \x20 w  f32[4, 3]\n\
         \x20 b  f32[3]\n"
    );
    let json = ok(&["--signature", "--message-format", "json"]);
    let json = io::json::Json::parse(json.trim()).unwrap();
    assert_eq!(json.get("entries").unwrap().as_array().unwrap().len(), 2);
}

#[test]
fn runs_on_literals() {
    assert_eq!(ok(&["predict", "--feed", "x=[[1,2,3,4]]"]), "y: f32[1, 3] [[11.0, 11.0, 11.0]]\n");
    assert_eq!(ok(&["predict", "--feed", "x=[[1,2,3,4]]", "--quiet"]), "");
    assert_eq!(
        ok(&["predict", "--feed", "x=[[1,2,3,4]]", "--message-format=json", "--threads", "2"]),
        "{\"result\":\"y\",\"dtype\":\"f32\",\"shape\":[1,3],\"data\":[11.0,11.0,11.0]}\n"
    );
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// `n` examples whose rows are `i, 0, 0, 0`, and targets 1.
fn data(dir: &Path, n: usize) -> (String, String) {
    let x: Vec<f32> = (0..n * 4).map(|i| if i % 4 == 0 { (i / 4) as f32 } else { 0.0 }).collect();
    let x = TensorBuf::from_slice(&[n, 4], &x).unwrap();
    let y = TensorBuf::from_slice(&[n], &vec![1f32; n]).unwrap();
    io::write_tensors(&dir.join("x.npy"), &[("x", &x)]).unwrap();
    io::write_tensors(&dir.join("xy.npz"), &[("x", &x), ("y", &y)]).unwrap();
    (format!("x={}", text(&dir.join("x.npy"))), format!("y={}", text(&dir.join("xy.npz"))))
}

#[test]
fn files_in_files_out() {
    let dir = tempfile::tempdir().unwrap();
    let (x, _) = data(dir.path(), 5);
    for name in ["y.npy", "y.npz", "y.safetensors"] {
        let path = dir.path().join(name);
        let out = format!("y={}", text(&path));
        assert_eq!(ok(&["predict", "--feed", &x, "--out", &out]), "");
        let y = tensor_file(&path, None, "y", None).unwrap();
        assert_eq!(y.shape, [5, 3]);
        assert_eq!(y.get_f64(14), Some(5.0));
    }
    // The same in batches of two: rows are joined.
    let path = dir.path().join("b.npy");
    let out = format!("y={}", text(&path));
    ok(&["predict", "--feed", &x, "--out", &out, "--batch", "2"]);
    let whole = tensor_file(&dir.path().join("y.npy"), None, "y", None).unwrap();
    assert_eq!(tensor_file(&path, None, "y", None).unwrap(), whole);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 6, "temporary files are left");
}

#[test]
fn trains_in_batches_and_keeps_state() {
    let dir = tempfile::tempdir().unwrap();
    let (x, y) = data(dir.path(), 5);
    let state = dir.path().join("s.safetensors");
    let line = |extra: &[&str]| {
        let mut l = vec!["train", "--feed", &x, "--feed", &y, "--state", text(&state)];
        l.extend(extra);
        ok(&l)
    };
    let out = line(&["--batch", "2", "--epochs", "2"]);
    let lines: Vec<&str> = out.lines().collect();
    // Batches of 2, 2, 1 examples with losses 2, 2, 1: the mean by examples.
    assert!(lines[0].starts_with("epoch 1/2: loss 1.800000, 5 examples in "), "{out}");
    assert_eq!(lines.len(), 2);
    let bias = |n: &str| tensor_file(&state, Some("b"), n, None).unwrap().get_f64(0).unwrap();
    assert_eq!(bias("b"), 11.0);
    // user 6: without --batch a step takes all examples, and that is said.
    let mut all = vec!["train", "--feed", &x, "--feed", &y, "--state", text(&state)];
    all.extend(["--epochs", "2"]);
    let (code, out, err) = run(&all);
    assert_eq!(code, 0, "{err}");
    assert_eq!(err, "note: without `--batch`, every step takes all 5 examples\n");
    assert!(out.starts_with("epoch 1/2: loss 5.000000, 5 examples in "), "{out}");
    assert_eq!(bias("b"), 21.0);
    // Again, from the state.
    line(&["--batch", "5", "--shuffle", "3", "-q"]);
    assert_eq!(bias("b"), 26.0);
    line(&["--batch", "1", "--steps", "7", "-q"]);
    assert_eq!(bias("b"), 33.0);
    // An entry that writes nothing leaves the file alone.
    let before = std::fs::read(&state).unwrap();
    ok(&["predict", "--feed", &x, "--state", text(&state), "-q"]);
    assert_eq!(std::fs::read(&state).unwrap(), before);
}

#[test]
fn benches() {
    let out = ok(&["bench", "predict", "--feed", "x=[[1,2,3,4]]", "--time", "5ms"]);
    assert!(out.starts_with("predict: min ") && out.contains("median"), "{out}");
}

#[test]
fn mistakes_are_explained() {
    let dir = tempfile::tempdir().unwrap();
    let (x, y) = data(dir.path(), 5);
    let bad = dir.path().join("bad.npy");
    std::fs::write(&bad, b"nonsense").unwrap();
    let bad = format!("x={}", text(&bad));
    let torn = dir.path().join("torn.safetensors");
    std::fs::write(&torn, b"\xff\0\0\0\0\0\0\0{").unwrap();
    let other = dir.path().join("other.safetensors");
    let t = TensorBuf::from_slice(&[1], &[1f32]).unwrap();
    io::write_tensors(&other, &[("w", &t)]).unwrap();
    let no_such = format!("{}:z", text(&dir.path().join("xy.npz")));
    let no_such = format!("x={no_such}");
    let cases: &[(&[&str], i32, &str)] = &[
        (&["predcit"], 2, "error[E0911]: there is no entry `predcit`"),
        (&["bench"], 2, "error[E0911]: which entry should be run?"),
        (&["predict", "--fed"], 2, "error[E0912]: there is no option `--fed`"),
        (&["predict", "more", "--feed", "x=1"], 2, "error[E0914]: `more` is one word too many"),
        (&["predict"], 1, "error[E0501]: entry `predict` is missing feed `x`"),
        (&["predict", "--feed", "z=1"], 1, "error[E0502]: entry `predict` has no feed `z`"),
        (&["predict", "--feed", "x=1", "--feed", "x=1"], 2, "error[E0520]"),
        (&["predict", "--feed", "x=1", "--out", "z=z.npy"], 1, "error[E0521]"),
        (&["predict", "--feed", "x=none.npy"], 3, "error[E0804]: cannot read `none.npy`: No such"),
        (&["predict", "--feed", &bad], 1, "error[E0511]"),
        (&["predict", "--feed", &no_such], 1, "error[E0515]"),
        (&["predict", "--feed", "x=[[1,2]"], 1, "error[E0513]"),
        (&["predict", "--feed", "x=Cargo.toml"], 1, "error[E0514]"),
        (&["predict", "--feed", "x=1.5"], 1, "error[E0504]"),
        (&["predict", "--feed", "x=[[1,2,3,4]]", "--out", "y=y.txt"], 2, "error[E0514]"),
        (&["predict", "--feed", "x=[[1,2,3,4]]", "--out", "y=/nope/y.npy"], 3, "error[E0803]"),
        (&["predict", "--feed", &x, "--state", text(&torn)], 1, "error[E0601]"),
        (&["predict", "--feed", &x, "--state", text(&other)], 1, "error[E0604]"),
        (&["predict", "--feed", &x, "--state", "none.safetensors"], 3, "error[E0804]"),
        (&["train", "-q", "--feed", &x, "--feed", "y=[1,2]", "--batch", "2"], 1, "error[E0506]"),
        (&["train", "--feed", &x, "--feed", &y, "--batch", "x"], 2, "error[E0914]"),
    ];
    for (line, code, start) in cases {
        let (got, out, err) = run(line);
        assert_eq!(got, *code, "{line:?}: {err}");
        assert!(err.starts_with(start), "{line:?}: {err}");
        assert_eq!(out, "", "{line:?}");
    }
    let (code, _, err) = run(&["predict", "--message-format", "json"]);
    assert_eq!(code, 1);
    let json = io::json::Json::parse(err.trim()).unwrap();
    assert_eq!(json.get("code").unwrap().as_str(), Some("E0501"));
}

/// A line that fails before anything is computed: exit code and standard error.
fn refused(line: &[&str]) -> (i32, String) {
    let (code, out, err) = run(line);
    assert_eq!(out, "", "{line:?}");
    (code, err)
}

/// faults 12, user 2: destinations were looked at when the training was done.
#[test]
fn destinations_are_checked_first() {
    let dir = tempfile::tempdir().unwrap();
    let (x, y) = data(dir.path(), 5);
    let place = |name: &str| text(&dir.path().join(name)).to_owned();
    let train = |option: &str, value: &str| {
        refused(&["train", "--feed", &x, "--feed", &y, "--batch", "1", option, value])
    };
    let (code, err) = train("--state", &place("nodir/s.safetensors"));
    assert_eq!(code, 3, "{err}");
    assert!(err.starts_with("error[E0803]"), "{err}");
    assert!(err.contains("there is no directory") && err.contains("mkdir -p"), "{err}");
    let (code, err) = train("--state", &place("s.npz"));
    assert_eq!(code, 2, "{err}");
    assert!(err.starts_with("error[E0588]") && err.contains("s.safetensors`"), "{err}");
    let (code, err) = train("--out", &format!("loss={}", place("x.foo")));
    assert!(code == 2 && err.starts_with("error[E0514]"), "{err}");
    let (code, err) = train("--out", &format!("loss={}", place("nodir/l.npy")));
    assert!(code == 3 && err.starts_with("error[E0803]"), "{err}");
    let (code, err) = train("--checkpoint-dir", &place("x.npy"));
    assert!(code == 3 && err.contains("error[E0803]"), "{err}");
    // A file for both would be lost half.
    let both = place("s.safetensors");
    let out = format!("loss={both}");
    let line = ["train", "--feed", &x, "--feed", &y, "--state", &both, "--out", &out];
    assert!(refused(&line).1.starts_with("error[E0914]"));
    // Nothing is left of the asking.
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);
    // user 12: a directory is not a state.
    let ck = place("ck");
    ok(&["train", "--feed", &x, "--feed", &y, "--batch", "5", "--checkpoint-dir", &ck, "-q"]);
    let (code, err) = refused(&["predict", "--feed", &x, "--state", &ck]);
    assert!(code == 2 && err.starts_with("error[E0588]"), "{err}");
    assert!(err.contains(&format!("`--restore {ck}`")), "{err}");
}

/// user 2: what was learned was dropped, and what was not learned used, in silence.
#[test]
fn says_what_is_not_saved_and_not_trained() {
    let dir = tempfile::tempdir().unwrap();
    let (x, y) = data(dir.path(), 5);
    let train = ["train", "--feed", &x, "--feed", &y];
    let (code, _, err) = run(&train);
    assert_eq!(code, 0);
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("note: `train` changes variables, which end with this run"), "{err}");
    let state = dir.path().join("s.safetensors");
    assert_eq!(run(&[&train[..], &["--state", text(&state)]].concat()).2, "");
    assert_eq!(run(&[&train[..], &["-q"]].concat()).2, "");
    struct Random;
    impl Program for Random {
        fn plan(&self) -> Result<Plan> {
            let mut plan = small_plan();
            plan.vars[0].random = true;
            Ok(plan)
        }
        fn load(&self, options: ModelOptions) -> Result<Model> {
            Small.load(options)
        }

        fn jobs(&self) -> Option<&'static cli::jobs::Jobs> {
            Some(&cli::jobs::TFC_JOBS)
        }
    }
    let predict = |more: &[&str]| {
        let mut words = vec!["predict".to_owned(), "--feed".into(), x.clone()];
        words.extend(more.iter().map(|w| (*w).to_owned()));
        let (mut out, mut err) = (vec![], vec![]);
        let mut console = Console { out: &mut out, err: &mut err, terminal: false };
        assert_eq!(cli::main(&Random, "./small", &words, &mut console), 0);
        String::from_utf8(err).unwrap()
    };
    let err = predict(&[]);
    assert!(err.starts_with("note: `predict` uses random initial values (`w`)"), "{err}");
    assert_eq!(predict(&["--state", text(&state)]), "");
}

/// user 6, user 12, worst messages 10: help for one entry, and what other programs
/// call things.
#[test]
fn help_is_about_what_was_asked() {
    let help = ok(&["train", "--help"]);
    assert!(help.starts_with("small train: Does train.\n\nUsage:\n  ./small train"), "{help}");
    assert!(help.contains("  feed     x  f32[B, 4]\n") && !help.contains("predict"), "{help}");
    assert!(help.contains("--checkpoint-dir DIR") && !help.contains("--warmup"), "{help}");
    assert!(!ok(&["predict", "--help"]).contains("--checkpoint-dir"));
    let (code, err) = refused(&["predict", "--seed", "1"]);
    assert_eq!(code, 2);
    assert!(err.contains("are in the graph") && err.contains("`--shuffle SEED`"), "{err}");
    assert!(!err.contains("--feed"), "{err}");
    let (code, err) = refused(&["predict", "--feed", "x=abc"]);
    assert_eq!(code, 3);
    assert!(err.contains("feed `x` is f32[B, 4]") && err.contains("`--feed x=[..]`"), "{err}");
    let (_, err) = refused(&["train", "--batch-size", "3"]);
    assert!(err.contains("it is called `--batch` here"), "{err}");
}

/// faults 11: rows that nobody asked for were kept; those asked for pass through a
/// file.
#[test]
fn rows_go_to_their_file() {
    let dir = tempfile::tempdir().unwrap();
    let (x, _) = data(dir.path(), 5);
    for name in ["y.npy", "y.npz", "y.safetensors"] {
        let path = dir.path().join(name);
        let out = format!("y={}", text(&path));
        ok(&["predict", "--feed", &x, "--out", &out, "--batch", "2", "--epochs", "3", "-q"]);
        let y = tensor_file(&path, None, "y", None).unwrap();
        // Those of the last epoch.
        assert_eq!((y.shape.clone(), y.get_f64(14)), (vec![5, 3], Some(5.0)), "{name}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 5, "temporary files are left");
}
