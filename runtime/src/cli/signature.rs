//! What a program says about itself.

use super::args::OPTIONS;
use super::user_entries;
use crate::io::json::quote;
use crate::queue::uses_queue;
use std::fmt::Write as _;
use tfc_abi::plan::{Entry, Home, Plan, Port, QueueAction, QueueKind, ReaderInfo, VarInfo};

/// `--help`.
pub fn help(plan: &Plan, program: &str) -> String {
    let about = if plan.doc.is_empty() { "a program compiled by tfc" } else { &plan.doc };
    let mut s = format!("{}: {about}\n\nUsage:\n", plan.name);
    for (_, e) in user_entries(plan) {
        let _ = writeln!(s, "  {}", line(e, program));
    }
    let _ = writeln!(s, "  {program} bench ENTRY --feed ... [--time 1s]");
    let _ = writeln!(s, "  {program} --signature\n\nEntries:");
    let width = user_entries(plan).map(|(_, e)| e.name.len()).max().unwrap_or(0);
    for (_, e) in user_entries(plan) {
        let doc = e.doc.lines().next().unwrap_or_default();
        let _ = writeln!(s, "  {:width$}  {}", e.name, if doc.is_empty() { "-" } else { doc });
    }
    s.push_str("\nOptions:\n");
    for (name, takes, does) in OPTIONS {
        let _ = writeln!(s, "  {:28}  {does}", format!("{name} {takes}").trim_end());
    }
    s
}

/// `ENTRY --help`.
pub fn entry_help(plan: &Plan, e: &Entry, program: &str) -> String {
    let mut s = format!("{} {}", plan.name, e.name);
    if let Some(doc) = e.doc.lines().next() {
        let _ = write!(s, ": {doc}");
    }
    let _ = write!(s, "\n\nUsage:\n  {}\n\n", line(e, program));
    for doc in e.doc.lines().skip(1) {
        let _ = writeln!(s, "  {doc}");
    }
    entry(&mut s, plan, e);
    let trains = !e.writes.is_empty();
    s.push_str("\nOptions:\n");
    for (name, takes, does) in OPTIONS {
        let about_bench = matches!(*name, "--time" | "--calls" | "--warmup");
        let about_training = matches!(
            *name,
            "--checkpoint-dir" | "--save-every" | "--keep" | "--resume" | "--resume-anyway"
        );
        if about_bench || about_training && !trains {
            continue;
        }
        let _ = writeln!(s, "  {:28}  {does}", format!("{name} {takes}").trim_end());
    }
    s
}

/// `--signature`.
pub fn text(plan: &Plan, program: &str) -> String {
    let mut s = plan.name.clone();
    if !plan.source.is_empty() {
        let _ = write!(s, " ({})", plan.source);
    }
    s.push('\n');
    for doc in plan.doc.lines() {
        let _ = writeln!(s, "{doc}");
    }
    let dims: Vec<String> = plan
        .dims
        .iter()
        .map(|d| match (d.min, d.max) {
            (0, i64::MAX) => d.name.clone(),
            (min, i64::MAX) => format!("{}: {min}..", d.name),
            (min, max) => format!("{}: {min}..{max}", d.name),
        })
        .collect();
    if !dims.is_empty() {
        let _ = writeln!(s, "\nrun-time dims: {}", dims.join(", "));
    }
    for (_, e) in user_entries(plan) {
        let _ = writeln!(s, "\nentry {}", e.name);
        for doc in e.doc.lines() {
            let _ = writeln!(s, "  {doc}");
        }
        entry(&mut s, plan, e);
        let _ = writeln!(s, "  $ {}", line(e, program));
    }
    let readers: Vec<(&str, &ReaderInfo)> = plan
        .queues
        .iter()
        .filter_map(|q| match &q.kind {
            QueueKind::Reader(r) => Some((q.name.as_str(), r)),
            _ => None,
        })
        .collect();
    if !readers.is_empty() {
        s.push_str("\nreaders (--data NAME=PATH reads other files)\n");
        let width = readers.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, r) in readers {
            let _ = writeln!(s, "  {name:width$}  {} {}", r.format.name(), r.paths.join(", "));
        }
    }
    let vars: Vec<&VarInfo> = plan.vars.iter().filter(|v| v.user).collect();
    if !vars.is_empty() {
        s.push_str("\nvariables\n");
        let width = vars.iter().map(|v| v.name.len()).max().unwrap_or(0);
        for v in vars {
            let _ = writeln!(s, "  {:width$}  {}", v.name, var_type(v));
        }
    }
    s
}

/// What goes in, what comes out and what changes.
fn entry(s: &mut String, plan: &Plan, e: &Entry) {
    ports(s, "feed", &e.params);
    ports(s, "result", &e.results);
    let taken: Vec<&str> = plan
        .queues
        .iter()
        .enumerate()
        .filter(|(i, _)| uses_queue(e, *i as u32, QueueAction::takes))
        .map(|(_, q)| q.name.as_str())
        .collect();
    if !taken.is_empty() {
        let _ = writeln!(s, "  takes    {}", taken.join(", "));
    }
    // The many weights of a model in a word: `net.*`.
    let mut writes: Vec<String> = vec![];
    for var in e.writes.iter().filter_map(|v| plan.vars.get(*v as usize)).filter(|v| v.user) {
        let name = match var.name.split_once('.') {
            Some((model, _)) => format!("{model}.*"),
            None => var.name.clone(),
        };
        if !writes.contains(&name) {
            writes.push(name);
        }
    }
    if !writes.is_empty() {
        let _ = writeln!(s, "  changes  {}", writes.join(", "));
    }
}

fn ports(s: &mut String, what: &str, ports: &[Port]) {
    let width = ports.iter().map(|p| p.name.len()).max().unwrap_or(0);
    for p in ports {
        let _ = writeln!(s, "  {what:7}  {:width$}  {}", p.name, p.text);
    }
}

fn var_type(v: &VarInfo) -> String {
    let sizes: Vec<String> = v.shape.iter().map(|d| d.to_string()).collect();
    format!("{}[{}]", v.dtype, sizes.join(", "))
}

/// A command that runs the entry, ready to paste.
fn line(e: &Entry, program: &str) -> String {
    let mut s = format!("{program} {}", e.name);
    for p in &e.params {
        if p.shape.is_empty() {
            let _ = write!(s, " --feed {}=1", p.name);
        } else {
            let _ = write!(s, " --feed {0}={0}.npy", p.name);
        }
    }
    for p in e.results.iter().filter(|p| !p.shape.is_empty()) {
        let _ = write!(s, " --out {0}={0}.npy", p.name);
    }
    let variables = e.buffers.iter().any(|b| matches!(b.home, Home::Var(_)));
    if !e.writes.is_empty() || variables {
        s.push_str(" --state state.safetensors");
    }
    s
}

/// `--signature --message-format json`.
pub fn json(plan: &Plan) -> String {
    let port = |p: &Port| {
        format!(
            "{{\"name\":{},\"dtype\":\"{}\",\"type\":{}}}",
            quote(&p.name),
            p.dtype,
            quote(&p.text)
        )
    };
    let join = |items: Vec<String>| items.join(",");
    let dims = plan
        .dims
        .iter()
        .map(|d| {
            let max = if d.max == i64::MAX { "null".into() } else { d.max.to_string() };
            format!("{{\"name\":{},\"min\":{},\"max\":{max}}}", quote(&d.name), d.min)
        })
        .collect();
    let entries = user_entries(plan)
        .map(|(_, e)| {
            format!(
                "{{\"name\":{},\"doc\":{},\"feeds\":[{}],\"results\":[{}],\"changes_state\":{}}}",
                quote(&e.name),
                quote(&e.doc),
                join(e.params.iter().map(port).collect()),
                join(e.results.iter().map(port).collect()),
                !e.writes.is_empty()
            )
        })
        .collect();
    let vars = plan
        .vars
        .iter()
        .map(|v| {
            format!(
                "{{\"name\":{},\"type\":{},\"user\":{}}}",
                quote(&v.name),
                quote(&var_type(v)),
                v.user
            )
        })
        .collect();
    format!(
        "{{\"name\":{},\"dims\":[{}],\"entries\":[{}],\"variables\":[{}]}}\n",
        quote(&plan.name),
        join(dims),
        join(entries),
        join(vars)
    )
}
