//! `docs/cli.md` shows the help texts as they are, `docs/gpu.md` an estimate.
//!
//! A line `<!-- help: COMMAND -->` is followed by a block with what the command
//! prints, run where the examples are. `UPDATE_DOCS=1` writes the blocks.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn help(command: &str) -> String {
    let args: Vec<&str> = command.split_whitespace().collect();
    assert_eq!(args[0], "tfc", "{command}");
    let output = Command::new(env!("CARGO_BIN_EXE_tfc"))
        .args(&args[1..])
        .current_dir(root().join("examples"))
        .env_remove("TFC_THREADS")
        .env("NO_COLOR", "1")
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {error}");
    String::from_utf8_lossy(&output.stdout).trim_end().to_string()
}

/// The page with every block as the commands have it.
fn filled(page: &str) -> (String, Vec<String>) {
    let mut out = String::new();
    let mut commands = vec![];
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        let _ = writeln!(out, "{line}");
        let marker = line.strip_prefix("<!-- help: ").and_then(|l| l.strip_suffix(" -->"));
        let Some(command) = marker else { continue };
        if lines.peek() == Some(&"```text") {
            lines.next();
            for line in lines.by_ref() {
                if line == "```" {
                    break;
                }
            }
        }
        let text: Vec<String> = help(command).lines().map(|l| l.trim_end().to_string()).collect();
        let _ = writeln!(out, "```text\n{}\n```", text.join("\n"));
        commands.push(command.to_string());
    }
    (out, commands)
}

#[test]
fn the_command_line_page_is_up_to_date() {
    let path = root().join("docs/cli.md");
    let have = std::fs::read_to_string(&path).unwrap();
    let (want, commands) = filled(&have);
    // Every subcommand has its place.
    let listed = help("tfc --help");
    let all = listed.lines().skip_while(|l| *l != "Commands:").skip(1);
    for line in all.take_while(|l| !l.is_empty()) {
        let name = line.split_whitespace().next().unwrap_or_default();
        let command = format!("tfc {name} --help");
        assert!(commands.contains(&command), "docs/cli.md does not show `{command}`");
    }
    same(&path, &have, &want);
}

/// Numbers of a data sheet against the sizes of an example: the same everywhere.
#[test]
fn the_estimate_on_the_page_about_gpus_is_up_to_date() {
    let path = root().join("docs/gpu.md");
    let have = std::fs::read_to_string(&path).unwrap();
    let (want, commands) = filled(&have);
    assert!(commands.iter().any(|c| c.contains("--estimate")), "{commands:?}");
    same(&path, &have, &want);
}

/// Writes the page if it is asked to, or compares it.
fn same(path: &Path, have: &str, want: &str) {
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, want).unwrap();
        return;
    }
    let differs = want.lines().zip(have.lines()).position(|(a, b)| a != b);
    assert!(
        have == want,
        "{} differs from the commands (line {}): run UPDATE_DOCS=1 cargo test -p tfc \
         --test cli_docs",
        path.display(),
        differs.map_or(0, |i| i + 1)
    );
}
