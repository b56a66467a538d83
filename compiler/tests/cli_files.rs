//! What the `tfc` command reads and writes: files that are no graphs, outputs that
//! would replace a source, names of every kind.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const GRAPH: &str = "graph m\nentry f(x: f32[2]) -> f32[2] {\n  return x + 1\n}\n";

fn sandbox() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("m.graph"), GRAPH).unwrap();
    dir
}

fn tfc<S: AsRef<OsStr>>(dir: &Path, args: &[S]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tfc")).args(args).current_dir(dir).output().unwrap()
}

fn stdout(output: &Output) -> String {
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The findings of a command that fails with this code and says this.
fn fails(output: &Output, code: &str, text: &str) -> String {
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{err}");
    assert!(err.contains(code) && err.contains(text), "{code}, {text}: {err}");
    assert_eq!(err.matches("error[").count(), 1, "one finding: {err}");
    err
}

// user, worst message 1: `tfc compile m.onnx` was 20 errors about characters.
#[test]
fn files_that_are_no_graphs_are_named() {
    let dir = sandbox();
    let cases: [(&str, &[u8], &str); 8] = [
        ("m.onnx", b"\x08\x07\x12\x07pytorch\x1a\x03", "an ONNX model"),
        ("m.pt", b"PK\x03\x04\0\0\x08\x08", "a PyTorch checkpoint"),
        ("w.safetensors", b"\x02\0\0\0\0\0\0\0{}", "a file of weights"),
        ("train.py", b"import torch\n", "a Python program"),
        ("x.npy", b"\x93NUMPY\x01\0", "a NumPy array"),
        ("old", b"\x7fELF\x02\x01\x01", "a compiled program"),
        ("x.csv", b"1,2\n", "a data file"),
        ("m.graph.bin", b"graph \xff\xfe", "not text"),
    ];
    for (name, bytes, what) in cases {
        fs::write(dir.path().join(name), bytes).unwrap();
        for command in ["compile", "check", "fmt", "inspect"] {
            let err = fails(&tfc(dir.path(), &[command, name]), "E0153", what);
            assert!(err.contains("help:"), "{err}");
        }
    }
}

// faults 15: `use "/dev/zero"` read until memory ran out.
#[cfg(target_os = "linux")]
#[test]
fn devices_and_directories_are_not_read() {
    let dir = sandbox();
    fails(&tfc(dir.path(), &["check", "/dev/zero"]), "E0804", "a device");
    fails(&tfc(dir.path(), &["check", "."]), "E0804", "a directory");
    let text = "use \"/dev/zero\" as z\nentry f() -> f32[] { return 1.0 }\n";
    fs::write(dir.path().join("u.graph"), text).unwrap();
    fails(&tfc(dir.path(), &["check", "u.graph"]), "E0117", "a device");
}

#[test]
fn a_file_that_is_too_large_is_not_read() {
    let dir = sandbox();
    let file = fs::File::create(dir.path().join("large.graph")).unwrap();
    // Sparse: it takes no space on the disk.
    file.set_len(300 << 20).unwrap();
    fails(&tfc(dir.path(), &["check", "large.graph"]), "E0804", "larger than 256 MiB");
}

// user 3: the executable replaced its source.
#[test]
fn an_output_never_replaces_a_source() {
    let dir = sandbox();
    fs::write(dir.path().join("lib.graph"), "func id(x) { return x }\n").unwrap();
    let user = "use \"lib.graph\" as lib\nentry f(x: f32[2]) -> f32[2] { return lib.id(x) }\n";
    fs::write(dir.path().join("user.graph"), user).unwrap();
    fs::write(dir.path().join("bare"), GRAPH).unwrap();
    fs::hard_link(dir.path().join("m.graph"), dir.path().join("hard")).unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("m.graph", dir.path().join("soft")).unwrap();
    let refused = |args: &[&str]| {
        fails(&tfc(dir.path(), args), "E0463", "overwrite");
    };
    refused(&["compile", "m.graph", "-o", "m.graph"]);
    refused(&["compile", "m.graph", "-o", "./m.graph"]);
    refused(&["compile", "m.graph", "-o", "hard"]);
    refused(&["compile", "m.graph", "--emit", "graph", "-o", "m.graph"]);
    refused(&["compile", "user.graph", "-o", "lib.graph"]);
    refused(&["compile", "bare"]);
    refused(&["inspect", "m.graph", "--memory", "m.graph"]);
    refused(&["inspect", "user.graph", "--memory", "lib.graph"]);
    refused(&["bench", "m.graph", "--trace", "./m.graph"]);
    refused(&["simulate", "m.graph", "--svg", "hard"]);
    #[cfg(unix)]
    {
        refused(&["compile", "m.graph", "-o", "soft"]);
        refused(&["compile", "soft", "-o", "m.graph"]);
    }
    assert_eq!(fs::read_to_string(dir.path().join("m.graph")).unwrap(), GRAPH);
    assert_eq!(fs::read_to_string(dir.path().join("bare")).unwrap(), GRAPH);
    fs::create_dir(dir.path().join("out")).unwrap();
    fails(&tfc(dir.path(), &["compile", "m.graph", "-o", "out"]), "E0803", "it is a directory");
}

// faults 15: the name was split at the comma into arguments of the linker.
#[test]
fn a_comma_in_a_name_is_part_of_it() {
    let dir = sandbox();
    stdout(&tfc(dir.path(), &["compile", "m.graph", "--emit", "shared", "-o", "x,y.so"]));
    let bytes = fs::read(dir.path().join("x,y.so")).unwrap();
    assert!(bytes.windows(6).any(|w| w == b"x,y.so"), "the library knows its name");
}

// faults 16: the name of the output was another.
#[cfg(target_os = "linux")]
#[test]
fn names_that_are_not_utf8_are_kept() {
    use std::os::unix::ffi::OsStringExt;
    let dir = sandbox();
    let name = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let graph = name(b"caf\xe9.graph");
    fs::write(dir.path().join(&graph), GRAPH).unwrap();
    let args =
        [OsStr::new("compile"), graph.as_os_str(), "--emit".as_ref(), "header,plan".as_ref()];
    stdout(&tfc(dir.path(), &args));
    assert!(dir.path().join(name(b"caf\xe9.h")).exists());
    assert!(dir.path().join(name(b"caf\xe9.plan")).exists());
}

// user 12: the file was taken for the format.
#[test]
fn explain_takes_no_file_for_a_format() {
    let dir = sandbox();
    let text = stdout(&tfc(dir.path(), &["opt", "--explain", "m.graph"]));
    assert_eq!(text, stdout(&tfc(dir.path(), &["opt", "m.graph", "--explain"])));
    let json = stdout(&tfc(dir.path(), &["opt", "--explain=json", "m.graph"]));
    assert!(json.starts_with('{'), "{json}");
}

// user 12: `return loss }` stayed as it was.
#[test]
fn braces_of_long_blocks_stand_alone() {
    let dir = sandbox();
    let text = "graph g\nentry f(x: f32[]) -> f32[] { y = if x > 0 { yield x } else {\n yield -x }\n \
                // why\n return y }\nfunc id(x) { return x }\n";
    fs::write(dir.path().join("g.graph"), text).unwrap();
    stdout(&tfc(dir.path(), &["fmt", "g.graph"]));
    let formatted = fs::read_to_string(dir.path().join("g.graph")).unwrap();
    assert_eq!(
        formatted,
        "graph g\nentry f(x: f32[]) -> f32[] {\n  y = if x > 0 { yield x } else {\n    yield -x\n  \
         }\n  // why\n  return y\n}\nfunc id(x) { return x }\n"
    );
    stdout(&tfc(dir.path(), &["fmt", "--check", "g.graph"]));
}

// user 11: batch_norm gave `f32[16]`, `--dim` did nothing, memory was a long sum.
#[test]
fn layers_show_what_they_give() {
    let dir = sandbox();
    let text = "\
graph net
use layer
use nn
use optim
dim B

model net(x: f32[N, 1, 8, 8]) {
  h = relu(layer.batch_norm(layer.conv(x, filters: 16), train: true))
  return layer.dense(flatten(h, axis: 1), units: 10)
}

entry train(x: f32[B, 1, 8, 8], y: i32[B]) -> (loss: f32[]) {
  loss = mean(nn.softmax_xent(net(x), y))
  minimize loss with optim.sgd(lr: 1 / 10)
  return loss
}
";
    fs::write(dir.path().join("net.graph"), text).unwrap();
    let rows = |args: &[&str]| -> Vec<Vec<String>> {
        let text = stdout(&tfc(dir.path(), args));
        text.lines().map(|l| l.split("  ").map(|c| c.trim().to_string()).collect()).collect()
    };
    let output = |rows: &[Vec<String>], layer: &str| -> String {
        let cells = rows.iter().map(|r| r.iter().filter(|c| !c.is_empty()).collect::<Vec<_>>());
        let row = cells.into_iter().find(|r| r.first().is_some_and(|c| c.ends_with(layer)));
        row.unwrap_or_else(|| panic!("no {layer} in {rows:?}"))[1].clone()
    };
    let open = rows(&["inspect", "net.graph", "--layers"]);
    assert_eq!(output(&open, "batch_norm"), "f32[B, 16, 8, 8]");
    assert_eq!(output(&open, "conv"), "f32[B, 16, 8, 8]");
    assert_eq!(output(&open, "dense"), "f32[B, 10]");
    let given = rows(&["inspect", "net.graph", "--layers", "--dim", "B=64"]);
    assert_eq!(output(&given, "batch_norm"), "f32[64, 16, 8, 8]");
    fs::write(dir.path().join("net.graph"), text.replace(", train: true", "")).unwrap();
    let fixed = rows(&["inspect", "net.graph", "--layers"]);
    assert_eq!(output(&fixed, "batch_norm"), "f32[B, 16, 8, 8]");

    let memory = |args: &[&str]| -> String {
        let text = stdout(&tfc(dir.path(), args));
        text.lines().find(|l| l.trim().starts_with("memory")).unwrap_or_default().to_string()
    };
    let open = memory(&["inspect", "net.graph"]);
    assert!(open.contains("B = 1"), "{open}");
    assert!(open.matches(" * B").count() <= 1, "one formula: {open}");
    let given = memory(&["inspect", "net.graph", "--dim", "B=64"]);
    assert!(!given.contains("* B") && given.contains('B'), "{given}");
}

// user, worst message 10, and the one about `torch.pt`.
#[test]
fn what_is_given_to_a_program_is_named() {
    let dir = sandbox();
    let feed = fails(
        &tfc(dir.path(), &["run", "m.graph", "f", "--feed", "x=abc"]),
        "E0804",
        "`abc` is no value for feed `x`",
    );
    assert!(feed.contains("help:") && feed.contains(".npy"), "{feed}");
    let option =
        fails(&tfc(dir.path(), &["run", "m.graph", "f", "--seed", "1"]), "E0912", "--seed");
    assert!(!option.contains("--feed`?"), "{option}");
    let text = "graph v\nvar w: f32[2] = zeros\nentry f() -> f32[2] {\n  return w\n}\n";
    fs::write(dir.path().join("v.graph"), text).unwrap();
    fs::write(dir.path().join("torch.pt"), b"PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0").unwrap();
    let output = tfc(dir.path(), &["run", "v.graph", "f", "--restore", "torch.pt"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("torch.save"), "{error}");
}

/// An array of 256 GB, most of it a hole: whoever reads all of it does not come back.
fn huge_array(path: &Path) {
    let shape = (1u64 << 20, 1u64 << 16);
    let mut header = format!(
        "{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}",
        shape.0, shape.1
    );
    while (10 + header.len() + 1) % 64 != 0 {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    fs::write(path, &bytes).unwrap();
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(bytes.len() as u64 + shape.0 * shape.1 * 4).unwrap();
}

/// Batches of feeds and records of readers come from files that no memory holds.
#[cfg(target_os = "linux")]
#[test]
fn arrays_larger_than_memory_are_read_in_parts() {
    let dir = sandbox();
    huge_array(&dir.path().join("huge.npy"));
    let graph = "graph h\ndim B\nreader rows: npy(\"huge.npy\", f32[65536], epochs: 1)\n\
        entry f(x: f32[B, 65536]) -> (s: f32[]) {\n  return sum(x)\n}\n\
        entry next() -> (s: f32[]) {\n  return sum(dequeue(rows))\n}\n";
    fs::write(dir.path().join("h.graph"), graph).unwrap();
    let run = ["run", "h.graph", "f", "--feed", "x=huge.npy", "--batch", "4", "--steps", "3"];
    stdout(&tfc(dir.path(), &run));
    let shuffled = [&run[..], &["--shuffle", "1", "--out", "s=s.npy"]].concat();
    stdout(&tfc(dir.path(), &shuffled));
    stdout(&tfc(dir.path(), &["run", "h.graph", "next", "--steps", "3"]));
    // All at once is too much, and is said to be.
    let all = tfc(dir.path(), &["run", "h.graph", "f", "--feed", "x=huge.npy"]);
    fails(&all, "E0516", "memory");
}

/// Each step of a call is in the table, and in the trace as often as it ran.
#[test]
fn steps_are_timed() {
    let dir = sandbox();
    let text = "graph m\nvar w: f32[8, 4] = ones\nentry f(x: f32[2, 8]) -> f32[4, 2] {\n  \
                return transpose(relu(x @ w))\n}\n";
    fs::write(dir.path().join("m.graph"), text).unwrap();
    let bench = ["bench", "m.graph", "f", "--calls", "2", "--by-step", "--trace", "t.json"];
    let table = stdout(&tfc(dir.path(), &bench));
    for word in ["GFLOP/s", "matmul 2x8x4", "transpose", "peaks of this machine"] {
        assert!(table.contains(word), "{word}: {table}");
    }
    let events = |file: &str| {
        let text = fs::read_to_string(dir.path().join(file)).unwrap();
        let trace: serde_json::Value = serde_json::from_str(&text).unwrap();
        trace["traceEvents"].as_array().unwrap().clone()
    };
    let of = |list: &[serde_json::Value], name: &str| {
        list.iter().filter(|e| e["name"].as_str().is_some_and(|n| n.starts_with(name))).count()
    };
    let list = events("t.json");
    assert!(of(&list, "matmul") > 0 && list.iter().all(|e| e["dur"].is_number()), "{list:?}");
    // A program does the same, for a run too.
    let run = ["run", "m.graph", "f", "--feed", "x=[[1,2,3,4,5,6,7,8],[1,2,3,4,5,6,7,8]]"];
    stdout(&tfc(dir.path(), &[&run[..], &["--profile", "run.json"]].concat()));
    assert_eq!(of(&events("run.json"), "matmul"), 1);
}

/// Convolution is a large part of the runtime: a program that does not convolve is linked
/// without it, and one that does gives the right numbers.
#[test]
fn programs_have_what_they_use_of_the_runtime() {
    let dir = sandbox();
    let graph = "graph c\nentry f(x: f32[1, 1, 2, 2]) -> f32[1, 1, 1, 1] {\n  \
                 return conv2d(x, ones(shape: [1, 1, 2, 2], dtype: f32))\n}\n";
    fs::write(dir.path().join("c.graph"), graph).unwrap();
    let size = |name: &str| {
        let source = format!("{name}.graph");
        stdout(&tfc(dir.path(), &["compile", source.as_str(), "-o", name]));
        fs::metadata(dir.path().join(name)).unwrap().len()
    };
    let (plain, convolving) = (size("m"), size("c"));
    assert!(convolving > plain + 50_000, "{convolving} and {plain} bytes");
    let run = Command::new(dir.path().join("c"))
        .args(["f", "--feed", "x=[[[[1, 2], [3, 4]]]]"])
        .output()
        .unwrap();
    assert!(stdout(&run).contains("10"), "{run:?}");
}

/// The memory of a call as a picture; its sizes must be known.
#[test]
fn memory_is_drawn() {
    let dir = sandbox();
    let graph = "graph m\nuse nn\ndim B\nvar w: f32[8, 8] = ones\n\
                 entry f(x: f32[B, 8]) -> f32[B, 8] {\n  return matmul(nn.softmax(matmul(x, w)), w)\n}\n";
    fs::write(dir.path().join("m.graph"), graph).unwrap();
    let open = tfc(dir.path(), &["inspect", "m.graph", "--memory", "m.svg"]);
    fails(&open, "E0914", "the memory depends on the size of B");
    let args = ["inspect", "m.graph", "--dim", "B=64", "--memory", "m.svg"];
    let said = stdout(&tfc(dir.path(), &args));
    assert!(said.starts_with("f: ") && said.contains("times the"), "{said}");
    let picture = fs::read_to_string(dir.path().join("m.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"), "{picture}");
    assert!(picture.contains("<title>f32[64, 8], "), "{picture}");
}
