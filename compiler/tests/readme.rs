//! The commands of the README and of the tutorial, run.
//!
//! Blocks marked `console` are run in order, in one directory, with `tfc` on the
//! path; that of the README has the `examples/` of a clone. Output lines are
//! compared with what the page shows; `[..]` stands for anything within a line, a
//! line `...` for any lines. A block marked `graph NAME` is saved under that name.

use std::path::{Path, PathBuf};
use std::process::Command;

struct Step {
    line: usize,
    /// To run; nothing for a file to save.
    command: String,
    expected: Vec<String>,
    /// Name and text.
    file: Option<(String, String)>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn steps(readme: &str) -> Vec<Step> {
    let mut out: Vec<Step> = vec![];
    let (mut inside, mut saving) = (false, false);
    for (i, line) in readme.lines().enumerate() {
        if line.starts_with("```") {
            let name = line.strip_prefix("```graph ").filter(|_| !saving);
            saving = name.is_some();
            if let Some(name) = name {
                let file = Some((name.trim().to_string(), String::new()));
                out.push(Step { line: i + 1, command: String::new(), expected: vec![], file });
            }
            inside = !inside && line.trim_end() == "```console";
        } else if saving && let Some(Step { file: Some((_, text)), .. }) = out.last_mut() {
            text.push_str(line);
            text.push('\n');
        } else if inside && let Some(command) = line.strip_prefix("$ ") {
            let command = command.to_string();
            out.push(Step { line: i + 1, command, expected: vec![], file: None });
        } else if inside && let Some(step) = out.last_mut() {
            step.expected.push(line.trim_end().to_string());
        }
    }
    out
}

/// Whether the lines of two streams match a pattern of lines, in some order that is theirs.
fn matches(expected: &[String], out: &[&str], err: &[&str]) -> bool {
    let Some((e, rest)) = expected.split_first() else { return out.is_empty() && err.is_empty() };
    let some = e == "...";
    let next = |line: &&str, out: &[&str], err: &[&str]| match some {
        true => matches(expected, out, err),
        false => line_matches(e, line.trim_end()) && matches(rest, out, err),
    };
    some && matches(rest, out, err)
        || out.split_first().is_some_and(|(line, out)| next(line, out, err))
        || err.split_first().is_some_and(|(line, err)| next(line, out, err))
}

fn line_matches(expected: &str, got: &str) -> bool {
    let mut parts = expected.split("[..]");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = got.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.rfind(part).filter(|_| part.is_empty()).or_else(|| rest.find(part))
        else {
            return false;
        };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last == Some("")
}

#[test]
fn commands_of_the_readme_do_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    // As in a clone: what the page needs of it.
    let examples = dir.path().join("examples");
    std::fs::create_dir(&examples).unwrap();
    for entry in std::fs::read_dir(root().join("examples")).unwrap().flatten() {
        if entry.path().is_file() {
            std::fs::copy(entry.path(), examples.join(entry.file_name())).unwrap();
        }
    }
    run_page("README.md", dir.path());
}

#[test]
fn commands_of_the_page_on_several_processes_do_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    let examples = dir.path().join("examples");
    std::fs::create_dir(&examples).unwrap();
    for name in ["mlp.graph", "digits.graph"] {
        std::fs::copy(root().join("examples").join(name), examples.join(name)).unwrap();
    }
    run_page("docs/distributed.md", dir.path());
}

#[test]
fn commands_of_the_tutorial_do_what_it_says() {
    let dir = tempfile::tempdir().unwrap();
    run_page("docs/tutorial.md", dir.path());
}

/// Does what a page says, in a directory.
fn run_page(page: &str, dir: &Path) {
    let text = std::fs::read_to_string(root().join(page)).unwrap();
    assert!(steps(&text).len() >= 3, "{page} shows the tool at work");
    let tfc = Path::new(env!("CARGO_BIN_EXE_tfc")).parent().unwrap();
    let path = std::env::join_paths(
        std::iter::once(tfc.to_path_buf())
            .chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    )
    .unwrap();
    for step in steps(&text) {
        if let Some((name, text)) = &step.file {
            std::fs::write(dir.join(name), text).unwrap();
            continue;
        }
        // Building and testing are what brought us here.
        if step.command.starts_with("cargo ")
            || step.command.starts_with("./test")
            || step.command.starts_with("./demo")
        {
            continue;
        }
        // Of a job, the launcher's two streams come as they do.
        let job = step.command.starts_with("tfc launch");
        let together = if job { "" } else { " 2>&1" };
        let output = Command::new("bash")
            .args(["-c", &format!("{}{together}", step.command)])
            .env("PATH", &path)
            .current_dir(dir)
            .output()
            .unwrap();
        let streams = [&output.stdout, &output.stderr].map(|s| String::from_utf8_lossy(s));
        let got = streams.each_ref().map(|text| text.trim_end().lines().collect::<Vec<_>>());
        let mut expected = step.expected;
        while expected.last().is_some_and(|l| l.is_empty()) {
            expected.pop();
        }
        assert!(
            matches(&expected, &got[0], &got[1]),
            "{page}:{}: `{}` gives\n{}instead of\n{}",
            step.line,
            step.command,
            streams.concat(),
            expected.join("\n")
        );
    }
}

#[test]
fn links_lead_somewhere() {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    for entry in std::fs::read_dir(root().join("docs")).unwrap().flatten() {
        pages.push(entry.path());
    }
    let mut links = 0;
    for page in pages.iter().filter(|p| p.extension().is_some_and(|e| e == "md")) {
        let text = std::fs::read_to_string(page).unwrap();
        // Code is not text: `x[i](y)` is no link.
        let prose = text.lines().filter(|l| !l.starts_with("    ")).collect::<Vec<_>>().join("\n");
        let plain: String = prose.split('`').step_by(2).collect();
        for part in plain.split("](").skip(1) {
            let target = part.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = page.parent().unwrap().join(target);
            assert!(path.exists(), "{}: there is no `{target}`", page.display());
            links += 1;
        }
    }
    assert!(links >= 8, "{links}");
}

#[test]
fn patterns_match_what_they_should() {
    let lines = |t: &str| t.lines().map(str::to_string).collect::<Vec<_>>();
    assert!(matches(&lines("a\n...\nz"), &["a", "b", "c", "z"], &[]));
    assert!(matches(&lines("loss [..] at step 3"), &["loss 0.25 at step 3"], &[]));
    assert!(matches(&lines("took [..]"), &["took 5 ms"], &[]));
    assert!(!matches(&lines("a"), &["b"], &[]));
    assert!(!matches(&lines("a [..] c"), &["a b d"], &[]));
    assert!(!matches(&lines("a"), &["a", "b"], &[]));
    assert!(matches(&lines("a\nb\nc"), &["b", "c"], &["a"]));
    assert!(matches(&lines("a\n...\nc"), &["c"], &["a", "b"]));
    assert!(!matches(&lines("a\nb\nc"), &["c", "b"], &["a"]));
    assert!(!matches(&lines("a\nb"), &["a"], &["b", "c"]));
}

// user 12: text ran over two boxes of the picture.
#[test]
fn text_fits_into_the_boxes_of_the_picture() {
    let svg = std::fs::read_to_string(root().join("docs/pipeline.svg")).unwrap();
    let number = |tag: &str, name: &str| -> Option<f64> {
        let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
        rest.split_once('"')?.0.parse().ok()
    };
    let boxes: Vec<[f64; 4]> = svg
        .split("<rect")
        .skip(2)
        .map(|r| ["x", "y", "width", "height"].map(|n| number(r, n).expect("a size")))
        .collect();
    let mut checked = 0;
    for tag in svg.split("<text").skip(1) {
        let (x, y) = (number(tag, "x").unwrap(), number(tag, "y").unwrap());
        let text = tag.split_once('>').unwrap().1.split_once('<').unwrap().0;
        let inside = |b: &&[f64; 4]| x > b[0] && x < b[0] + b[2] && y > b[1] && y < b[1] + b[3];
        let Some(around) = boxes.iter().find(inside) else { continue };
        // Letters of Helvetica are half as wide as high, bold ones a little more.
        let letter = if tag.contains("bold") { 14.0 * 0.56 } else { 12.0 * 0.53 };
        let width = text.chars().count() as f64 * letter;
        assert!(width + 8.0 <= around[2], "`{text}` is {width} wide in a box of {}", around[2]);
        checked += 1;
    }
    assert!(checked >= 12, "{checked}");
}
