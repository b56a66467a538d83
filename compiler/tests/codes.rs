//! The commands that show an error: one fails with its code, one works.

use std::path::Path;
use std::process::Command;
use tfc_ir::codes::{self, Code};

/// Output and exit code of a line, in a folder with `m.graph`.
fn run(line: &str, graph: &str) -> (String, i32) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("m.graph"), graph).unwrap();
    let tfc = Path::new(env!("CARGO_BIN_EXE_tfc")).parent().unwrap().to_path_buf();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(tfc).chain(std::env::split_paths(&path));
    let output = Command::new("bash")
        .args(["-c", &format!("{{ {line}; }} 2>&1")])
        .env("PATH", std::env::join_paths(path).unwrap())
        .current_dir(dir.path())
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code().unwrap_or(-1))
}

/// What is not as the code's entry says.
fn wrong(code: &Code) -> Option<String> {
    let (graph, fails, fixed) = (code.graph?, code.fails?, code.fixed?);
    let (text, exit) = run(fails, graph);
    if !text.contains(&format!("error[{}]", code.code)) {
        return Some(format!("{}: `{fails}` should fail with it:\n{text}", code.code));
    }
    if ![1, 2, 3].contains(&exit) {
        return Some(format!("{}: `{fails}` exits with {exit}", code.code));
    }
    let (text, exit) = run(fixed, graph);
    (exit != 0).then(|| format!("{}: `{fixed}` should work:\n{text}", code.code))
}

#[test]
fn commands_of_codes_fail_and_work_as_they_say() {
    // Lost peers, other machines, damaged programs and bugs cannot be shown.
    let late: Vec<&Code> = codes::all().filter(|c| c.late).collect();
    let shown = late.iter().filter(|c| c.graph.is_some()).count();
    assert!(shown >= 35, "only {shown} codes show a command that fails");
    let (left, right) = late.split_at(late.len() / 2);
    let found: Vec<String> = std::thread::scope(|scope| {
        let check = |part: &[&Code]| part.iter().filter_map(|c| wrong(c)).collect::<Vec<_>>();
        let other = scope.spawn(move || check(left));
        let mut found = check(right);
        found.extend(other.join().unwrap());
        found
    });
    assert!(found.is_empty(), "{}", found.join("\n"));
}
