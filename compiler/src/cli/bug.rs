//! What happens when tfc itself is wrong: say so, leave a repro, exit 101.

use std::ffi::OsString;
use std::fmt::Write;
use std::panic::PanicHookInfo;
use std::sync::Mutex;

/// Name and text of the graph that is being worked on.
static INPUT: Mutex<Option<(String, String)>> = Mutex::new(None);

/// Keeps the graph that was read, for a report.
pub fn remember(name: &str, text: &str) {
    if let Ok(mut input) = INPUT.lock() {
        *input = Some((name.to_string(), text.to_string()));
    }
}

/// Replaces Rust's panic message by ours, and ends the process.
pub fn install(args: &[OsString]) {
    let command: Vec<String> = args.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    let command = command.join(" ");
    std::panic::set_hook(Box::new(move |info| {
        eprint!("{}", report(info, &command));
        std::process::exit(101);
    }));
}

fn report(info: &PanicHookInfo<'_>, command: &str) -> String {
    let what = info
        .payload()
        .downcast_ref::<&str>()
        .map(|s| s.to_string())
        .or_else(|| info.payload().downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "unknown cause".to_string());
    let place = info.location().map(|l| format!("{}:{}", l.file(), l.line())).unwrap_or_default();
    let mut out = format!("error: this is a bug in tfc: {what}\n");
    let repro = write_repro(&what, &place, command);
    if let Some(path) = repro {
        let _ = writeln!(out, "note: a file that repeats it was written to `{path}`");
        let _ = writeln!(out, "help: please report it, with that file");
    }
    let _ = writeln!(out, "note: tfc {} at {place}", env!("CARGO_PKG_VERSION"));
    out
}

/// Writes the command, the cause and the input where the user can find them.
fn write_repro(what: &str, place: &str, command: &str) -> Option<String> {
    // Not waited for: whoever holds it may be the one that failed.
    let (name, text) = INPUT.try_lock().ok()?.clone()?;
    let mut out = String::new();
    let _ = writeln!(out, "// tfc {} failed here: {place}", env!("CARGO_PKG_VERSION"));
    for line in what.lines() {
        let _ = writeln!(out, "// {line}");
    }
    let _ = writeln!(out, "// command: {command}\n// input: {name}\n");
    out.push_str(&text);
    let path = format!("tfc-bug-{}.graph", std::process::id());
    let beside = std::path::PathBuf::from(&path);
    for candidate in [beside, std::env::temp_dir().join(&path)] {
        if tfc_runtime::files::replace(&candidate, |f| f.write_all(out.as_bytes())).is_ok() {
            return Some(candidate.display().to_string());
        }
    }
    None
}
