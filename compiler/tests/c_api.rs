//! C, C++ and Rust programs use compiled models, linked statically and dynamically.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../testdata/c")
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}\n{err}");
    assert!(err.is_empty(), "{command:?}\n{err}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn fails(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert!(!status.success(), "{command:?}");
    String::from_utf8_lossy(&stderr).into_owned()
}

fn tfc(dir: &Path, args: &[&str]) -> Command {
    let mut tfc = Command::new(env!("CARGO_BIN_EXE_tfc"));
    tfc.arg("compile").args(args).current_dir(dir);
    tfc
}

fn compiled(graph: &str, emit: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let graph = sources().join(graph);
    run(&mut tfc(dir.path(), &[graph.to_str().unwrap(), "--emit", emit]));
    dir
}

/// Strict C, so that the header is clean everywhere.
const STRICT: [&str; 6] = ["-Wall", "-Wextra", "-Wcast-qual", "-Werror", "-pedantic", "-I."];
const LIBS: [&str; 3] = ["-lpthread", "-ldl", "-lm"];

fn cc(dir: &Path, source: &Path, out: &str) -> Command {
    let mut cc = Command::new("cc");
    cc.arg("-std=c99").args(STRICT).arg("-o").arg(out).arg(source).current_dir(dir);
    cc
}

fn program(dir: &Path, name: &str) -> Command {
    let mut program = Command::new(dir.join(name));
    program.current_dir(dir).env("LD_LIBRARY_PATH", dir);
    program
}

#[test]
fn static_library() {
    // embedding 15: types, sizes and memory are checked.
    let dir = compiled("affine.graph", "lib");
    run(cc(dir.path(), &sources().join("predict.c"), "predict").arg("libaffine.a").args(LIBS));
    assert_eq!(run(&mut program(dir.path(), "predict")), "ok\n");
}

#[test]
fn shared_library() {
    let dir = compiled("affine.graph", "shared");
    run(cc(dir.path(), &sources().join("predict.c"), "predict").args(["-L.", "-laffine"]));
    assert_eq!(run(&mut program(dir.path(), "predict")), "ok\n");
}

#[test]
fn queues_and_runners() {
    // embedding 7: an entry that takes from runners waited for ever.
    let dir = compiled("numbers.graph", "lib");
    run(cc(dir.path(), &sources().join("queues.c"), "queues").arg("libnumbers.a").args(LIBS));
    assert_eq!(run(&mut program(dir.path(), "queues")), "ok\n");
}

#[test]
fn options_of_loading() {
    let dir = tempfile::tempdir().unwrap();
    // What the graph writes beside its folder ends up in a folder of the test's.
    let here = dir.path().join("here");
    std::fs::create_dir(&here).unwrap();
    let graph = sources().join("options.graph");
    run(&mut tfc(&here, &[graph.to_str().unwrap(), "--emit", "lib"]));
    run(cc(&here, &sources().join("options.c"), "options").arg("liboptions.a").args(LIBS));
    assert_eq!(run(&mut program(&here, "options")), "ok\n");
}

/// Two graphs called `net` that differ in a number, each with a C file that
/// prints what it makes of 1.
fn twins(dir: &Path, emit: &str, prefixes: [&str; 2]) {
    for (i, (folder, add)) in [("a", "1.0"), ("b", "1000.0")].iter().enumerate() {
        let dir = dir.join(folder);
        std::fs::create_dir(&dir).unwrap();
        let graph = format!("graph net\nentry f(x: f32[]) -> (y: f32[]) {{ return x + {add} }}\n");
        std::fs::write(dir.join("net.graph"), graph).unwrap();
        let p = prefixes[i];
        run(&mut tfc(&dir, &["net.graph", "--emit", emit, "--prefix", p]));
        let c = format!(
            "#include \"{folder}/net.h\"\n\
             float use_{folder}(void);\n\
             float use_{folder}(void) {{\n\
             \x20   float y = -1;\n\
             \x20   {p}_model *m = {p}_load();\n\
             \x20   {p}_f(m, 1, &y);\n\
             \x20   {p}_free(m);\n\
             \x20   return y;\n}}\n"
        );
        std::fs::write(dir.join("use.c"), c).unwrap();
    }
    let main = "#include <stdio.h>\n\
                float use_a(void);\nfloat use_b(void);\n\
                int main(void) { printf(\"%g %g\\n\", use_a(), use_b()); return 0; }\n";
    std::fs::write(dir.join("main.c"), main).unwrap();
}

#[test]
fn two_models_of_one_name() {
    // embedding 2: both calls went to the first model, silently.
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    twins(dir, "lib,shared,header", ["net", "net"]);
    let build = |args: &[&str]| {
        let mut cc = cc(dir, Path::new("main.c"), "both");
        cc.args(["a/use.c", "b/use.c"]).args(args).args(LIBS);
        cc
    };
    // Static: the name clashes, and the linker says so.
    let error = fails(&mut build(&["a/libnet.a", "b/libnet.a"]));
    assert!(error.contains("multiple definition of `net_library'"), "{error}");
    // Shared under one file name: the linker takes them for the same, and misses
    // the second.
    let error = fails(&mut build(&["a/libnet.so", "b/libnet.so"]));
    assert!(error.contains("undefined reference to `net_library_"), "{error}");
    // Under two, and one of each kind: each finds its own.
    run(&mut tfc(
        &dir.join("b"),
        &["net.graph", "--emit", "shared", "-o", "../libother.so", "--prefix", "net"],
    ));
    for first in ["a/libnet.so", "a/libnet.a"] {
        run(build(&[first, "libother.so"]).arg("-Wl,-rpath,$ORIGIN/a:$ORIGIN"));
        assert_eq!(run(&mut program(dir, "both")), "2 1001\n", "{first}");
    }
    // In one file: an error rather than the first of them.
    std::fs::write(dir.join("one.c"), "#include \"a/net.h\"\n#include \"b/net.h\"\n").unwrap();
    let error = fails(cc(dir, Path::new("one.c"), "one.o").arg("-c"));
    assert!(error.contains("two different models are both called `net`"), "{error}");
}

#[test]
fn two_models_of_two_names() {
    // embedding 2, with a prefix each: in one program, and each in a library of
    // the user's own.
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    twins(dir, "lib,shared,header", ["one", "other"]);
    run(cc(dir, Path::new("main.c"), "both")
        .args(["a/use.c", "b/use.c", "a/libnet.a", "b/libnet.a"])
        .args(LIBS));
    assert_eq!(run(&mut program(dir, "both")), "2 1001\n");
    for folder in ["a", "b"] {
        let source = PathBuf::from(format!("{folder}/use.c"));
        let mut cc = cc(dir, &source, &format!("libuse_{folder}.so"));
        run(cc.args(["-shared", "-fPIC", &format!("{folder}/libnet.a")]).args(LIBS));
    }
    run(cc(dir, Path::new("main.c"), "both").args(["-L.", "-luse_a", "-luse_b"]));
    assert_eq!(run(&mut program(dir, "both")), "2 1001\n");
}

#[test]
fn a_stale_header_does_not_link() {
    // embedding 5: entries were numbers, and the header had those of another
    // graph.
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let f = "entry f(x: f32[]) -> (y: f32[]) { return x + 1.0 }\n";
    let g = "entry g(x: f32[]) -> (y: f32[]) { return x * 5.0 }\n";
    std::fs::write(dir.join("net.graph"), format!("graph net\n{f}{g}")).unwrap();
    run(&mut tfc(dir, &["net.graph", "--emit", "header"]));
    std::fs::write(dir.join("net.graph"), format!("graph net\n{g}{f}")).unwrap();
    run(&mut tfc(dir, &["net.graph", "--emit", "lib", "-o", "libnet.a"]));
    let c = "#include \"net.h\"\nint main(void) { return net_f(net_load(), 1, NULL); }\n";
    std::fs::write(dir.join("main.c"), c).unwrap();
    let error = fails(cc(dir, Path::new("main.c"), "main").arg("libnet.a").args(LIBS));
    assert!(error.contains("undefined reference to `net_library_"), "{error}");
    // Opened by name it links, and loading is what refuses.
    let c = "#include \"net.h\"\n#include <stdio.h>\n\
             extern const tfc_library net_library;\n\
             int main(void) {\n\
             \x20   if (net_load_from(&net_library, NULL)) return 1;\n\
             \x20   puts(net_library.runtime->last_error_code());\n\
             \x20   return 0;\n}\n";
    std::fs::write(dir.join("main.c"), c).unwrap();
    run(cc(dir, Path::new("main.c"), "main").arg("libnet.a").args(LIBS));
    assert_eq!(run(&mut program(dir, "main")), "E0807\n");
}

/// Names that C or C++ has other uses for.
const ODD: &str = "graph tfc
dim NULL
dim I
dim int64_t
var get: f32[2] = zeros([2])
var w: f32[2] = zeros([2])
/// /* A comment */ within one.
entry load(feeds_shape0: f32[NULL, I], requires: f32[int64_t]) -> (decltype: f32[NULL, I]) {
  return feeds_shape0 * sum(requires)
}
entry error(model: f32[2], tfc_feeds: f32[2]) -> (errno: f32[2], tfc_results: f32[2]) {
  return model, tfc_feeds
}
entry free(tfc_feeds_shape0: f32[2], class: f32[]) -> (linux: f32[2]) {
  return tfc_feeds_shape0 * class
}
entry get_w(size_t: f32[2], feeds: f32[2], results: f32[2]) -> (NULL: f32[2], co_await: f32[2]) {
  return size_t + feeds, results + w
}
entry library(x: f32[2]) -> (x: f32[2]) {
  return x + get
}
";

#[test]
fn odd_names_give_clean_headers() {
    // embedding 9, faults 16: names of C, of its libraries and of our own.
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("odd.graph"), ODD).unwrap();
    let names = ["abs", "div", "select", "class", "main", "net-2"];
    let includes =
        ["complex", "errno", "math", "stdio", "stdlib", "string", "unistd", "sys/select"];
    let mut source: String = includes.iter().map(|i| format!("#include <{i}.h>\n")).collect();
    for name in names {
        let header = format!("{name}.h");
        run(&mut tfc(dir, &["odd.graph", "--emit", "header", "-o", &header]));
        source += &format!("#include \"{header}\"\n");
    }
    std::fs::write(dir.join("all.c"), &source).unwrap();
    run(cc(dir, Path::new("all.c"), "all.o").arg("-c"));
    run(cc(dir, Path::new("all.c"), "all.o").args(["-c", "-std=gnu17"]));
    if Command::new("c++").arg("--version").output().is_ok() {
        let source = source.replace("#include <complex.h>\n", "");
        std::fs::write(dir.join("all.cc"), source).unwrap();
        for std in ["-std=c++11", "-std=c++20"] {
            run(Command::new("c++").args(STRICT).args([std, "-c", "all.cc"]).current_dir(dir));
        }
    } else {
        eprintln!("no C++ compiler here: the headers were compiled as C only");
    }
    // The library takes the header as it is.
    run(&mut tfc(dir, &["odd.graph", "--emit", "lib,header", "-o", "odd"]));
    let c = "#include \"odd.h\"\n#include <stdio.h>\n\
             int main(void) {\n\
             \x20   float x[2] = {1, 2}, y[2] = {0, 0};\n\
             \x20   odd_model *m = odd_load();\n\
             \x20   if (odd_free_(m, x, 3, y)) return 1;\n\
             \x20   printf(\"%g %g\\n\", y[0], y[1]);\n\
             \x20   odd_free(m);\n\
             \x20   return 0;\n}\n";
    std::fs::write(dir.join("main.c"), c).unwrap();
    run(cc(dir, Path::new("main.c"), "main").arg("libodd.a").args(LIBS));
    assert_eq!(run(&mut program(dir, "main")), "3 6\n");
}

#[test]
fn a_rust_program_links_the_static_library() {
    // embedding 6: rust_eh_personality was there twice.
    let dir = compiled("affine.graph", "lib");
    let rust = "#[repr(C)]\nstruct Library { version: u32, reserved: u32, interface: u64, runtime: *const u8, program: *const u8 }\n\
                unsafe extern \"C\" { static affine_library: Library; }\n\
                fn main() {\n\
                \x20   let caught = std::panic::catch_unwind(|| panic!(\"ours\"));\n\
                \x20   let runtime = unsafe { affine_library.runtime };\n\
                \x20   println!(\"{} {}\", caught.is_err(), !runtime.is_null());\n}\n";
    std::fs::write(dir.path().join("main.rs"), rust).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    run(Command::new(rustc)
        .args(["--edition", "2024", "-A", "warnings", "main.rs", "-L", ".", "-l", "static=affine"])
        .current_dir(dir.path()));
    let out = program(dir.path(), "main").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&out.stdout), "true true\n");
}

#[test]
fn libraries_export_little() {
    // embedding 11: nm, ar and ranlib gave up on the bitcode in the library.
    let dir = compiled("affine.graph", "lib,shared");
    let Ok(_) = Command::new("nm").arg("--version").output() else {
        return eprintln!("no binutils here: the symbols were not looked at");
    };
    let names = |text: String| -> Vec<String> {
        let symbols = text.lines().filter_map(|l| l.split_whitespace().nth(2)).map(String::from);
        let mut names: Vec<String> = symbols.collect();
        names.sort();
        names
    };
    let expect = |names: &[String], prefixes: &[&str]| {
        assert_eq!(names.len(), prefixes.len(), "{names:?}");
        assert!(names.iter().zip(prefixes).all(|(n, p)| n.starts_with(p)), "{names:?}");
    };
    let nm = |args: &[&str]| names(run(Command::new("nm").args(args).current_dir(dir.path())));
    let in_archive = nm(&["-g", "--defined-only", "libaffine.a"]);
    let own = ["affine_library", "affine_library_"];
    let runtime = ["tfc_conv_", "tfc_cuda_", "tfc_jobs_", "tfc_main_", "tfc_nccl_", "tfc_runtime_"];
    expect(&in_archive, &[own.as_slice(), &runtime].concat());
    let in_shared = nm(&["-D", "--defined-only", "libaffine.so"]);
    expect(&in_shared, &own);
    run(Command::new("ranlib").arg("libaffine.a").current_dir(dir.path()));
    let members = run(Command::new("ar").args(["t", "libaffine.a"]).current_dir(dir.path()));
    assert_eq!(members, "model.o\nruntime.o\n");
    let sections = run(Command::new("objdump").args(["-h", "libaffine.a"]).current_dir(dir.path()));
    assert!(!sections.contains(".llvmbc"), "{sections}");
}

#[test]
fn the_guide_compiles_and_runs() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/c.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let block = |kind: &str| {
        let start = guide.split(&format!("\n```{kind}\n")).nth(1).expect(kind);
        start.split("```").next().unwrap().to_string()
    };
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("spam.graph"), block("graph")).unwrap();
    std::fs::write(dir.join("main.c"), block("c")).unwrap();
    let commands = block("sh");
    for command in commands.lines().filter(|l| !l.starts_with("./")) {
        let mut words = command.split_whitespace();
        match words.next() {
            Some("tfc") => {
                let mut tfc = Command::new(env!("CARGO_BIN_EXE_tfc"));
                run(tfc.args(words).current_dir(dir));
            }
            Some(other) => drop(run(Command::new(other).args(words).current_dir(dir))),
            None => {}
        }
    }
    let output = run(&mut program(dir, "main"));
    assert_eq!(output, block("text"), "what the guide shows");
}
