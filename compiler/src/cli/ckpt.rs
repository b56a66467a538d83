//! `tfc ckpt`: what checkpoints hold, whether they are whole, how two differ.

use super::{Done, args};
use crate::error::Result;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use tfc_runtime::checkpoint::{self, Manifest, Source};
use tfc_runtime::io::json::quote;
use tfc_runtime::mem::human_bytes;
use tfc_runtime::{Error, ErrorCode, TensorBuf};

/// `json_errors` is how warnings are written; results have an option of their own.
pub fn run(args: &args::Ckpt, json_errors: bool) -> Result<Done> {
    match &args.action {
        args::CkptAction::Ls { path, json } => ls(path, *json, json_errors),
        args::CkptAction::Verify { path, json } => verify(path, *json),
        args::CkptAction::Diff { a, b, json } => diff(a, b, *json),
    }
}

/// Manifests of a directory, or the one that is named.
fn manifests(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![checkpoint::find(path)?]);
    }
    let listing = checkpoint::list(path)?;
    for (_, file) in &listing.unfinished {
        super::tell(&format!("note: `{}` was not saved completely\n", file.display()));
    }
    if listing.checkpoints.is_empty() {
        checkpoint::find(path)?;
    }
    Ok(listing.checkpoints.into_iter().map(|(_, p)| p).collect())
}

fn ls(path: &Path, json: bool, json_errors: bool) -> Result<Done> {
    let manifests = manifests(path)?;
    let mut torn = vec![];
    let mut rows = vec![["step", "saved (UTC)", "size", "tfc", "graph"].map(str::to_string)];
    let mut out = String::new();
    for path in &manifests {
        let m = match Manifest::read(path) {
            Ok(m) => m,
            Err(e) if e.code() == ErrorCode::TORN_CHECKPOINT => {
                torn.push(e);
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        if json {
            let positions: Vec<String> =
                m.positions.iter().map(|(k, v)| format!("{}:{v}", quote(k))).collect();
            let paths = m.paths(path);
            let files: Vec<String> =
                paths.iter().map(|p| quote(&p.display().to_string())).collect();
            let _ = writeln!(
                out,
                "{{\"step\":{},\"time\":{},\"bytes\":{},\"tfc\":{},\"graph\":{},\"graph_hash\":{},\"positions\":{{{}}},\"files\":[{}]}}",
                m.step,
                m.time,
                m.bytes(),
                quote(&m.version),
                quote(&m.graph),
                quote(&m.graph_hash),
                positions.join(","),
                files.join(",")
            );
        } else {
            let graph = format!("{} ({})", m.graph, m.graph_hash.get(..12).unwrap_or_default());
            rows.push([m.step.to_string(), utc(m.time), human_bytes(m.bytes()), m.version, graph]);
        }
    }
    // Where some can be used, the others are worth a warning (`verify` says more).
    if manifests.len() == 1
        && let Some(e) = torn.pop()
    {
        return Err(e.into());
    }
    if torn.len() == manifests.len() {
        let message = format!("none of the {} checkpoints can be used", torn.len());
        let mut e = Error::data("E0582", message).help("`tfc ckpt verify` says more");
        for why in torn.iter().flat_map(Error::notes) {
            e = e.note(why);
        }
        return Err(e.into());
    }
    for e in &torn {
        super::tell(&format!("{}\n", e.to_warning(json || json_errors)));
    }
    if !json {
        out = table(&rows);
    }
    Ok(out.into())
}

fn table(rows: &[[String; 5]]) -> String {
    let width = |c: usize| rows.iter().map(|r| r[c].chars().count()).max().unwrap_or(0);
    let mut out = String::new();
    for row in rows {
        let mut line = format!("{:>w$}", row[0], w = width(0));
        for (c, cell) in row.iter().enumerate().skip(1) {
            let _ = write!(line, "  {cell:w$}", w = width(c));
        }
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out
}

/// `2026-03-01 12:34:56` of seconds since 1970.
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in cycles of 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (h, m, s) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {h:02}:{m:02}:{s:02}")
}

fn verify(path: &Path, json: bool) -> Result<Done> {
    let mut out = String::new();
    let mut code = 0;
    for path in manifests(path)? {
        let name = path.with_extension("").display().to_string();
        let found = match checkpoint::verify(&path) {
            Err(e) if e.code() != ErrorCode::TORN_CHECKPOINT => return Err(e.into()),
            found => found,
        };
        code |= u8::from(found.is_err());
        let _ = match found {
            Ok(m) if json => {
                writeln!(
                    out,
                    "{{\"checkpoint\":{},\"step\":{},\"good\":true}}",
                    quote(&name),
                    m.step
                )
            }
            Ok(m) => writeln!(out, "{name}: good ({})", human_bytes(m.bytes())),
            Err(e) if json => {
                let why: Vec<String> = e.notes().iter().map(|n| quote(n)).collect();
                let (name, why) = (quote(&name), why.join(","));
                writeln!(out, "{{\"checkpoint\":{name},\"good\":false,\"why\":[{why}]}}")
            }
            Err(e) => writeln!(out, "{name}: torn: {}", e.notes().join("; ")),
        };
    }
    Ok(Done { text: out, code })
}

/// Compares tensor by tensor; as `diff`, it exits with 1 when they differ.
fn diff(a: &Path, b: &Path, json: bool) -> Result<Done> {
    let (mut left, mut right) = (open(a)?, open(b)?);
    let mut lines: Vec<(String, &str, String)> = vec![];
    for i in 0..left.tensors.len() {
        let name = left.tensors[i].name.clone();
        let Some(j) = right.tensors.iter().position(|t| t.name == name) else {
            lines.push((name, "only", format!("only in {}", a.display())));
            continue;
        };
        let (t, u) = (left.tensor(i)?, right.tensor(j)?);
        let (what, text) = compare(&t, &u);
        lines.push((name, what, text));
    }
    for t in &right.tensors {
        if !left.tensors.iter().any(|l| l.name == t.name) {
            lines.push((t.name.clone(), "only", format!("only in {}", b.display())));
        }
    }
    let equal = lines.iter().filter(|l| l.1 == "equal").count();
    let mut out = String::new();
    for (name, what, text) in &lines {
        let _ = match json {
            true => {
                writeln!(
                    out,
                    "{{\"tensor\":{},\"is\":\"{what}\",\"text\":{}}}",
                    quote(name),
                    quote(text)
                )
            }
            false => writeln!(out, "{name}: {text}"),
        };
    }
    if !json {
        let _ = writeln!(out, "{equal} of {} tensors are equal", lines.len());
    }
    Ok(Done { text: out, code: u8::from(equal != lines.len()) })
}

fn open(path: &Path) -> Result<Source> {
    let path = match path.is_dir() || path.extension().is_some_and(|e| e == "json") {
        true => checkpoint::find(path)?,
        false => path.to_path_buf(),
    };
    Ok(Source::open(&path)?)
}

fn compare(a: &TensorBuf, b: &TensorBuf) -> (&'static str, String) {
    if a.dtype != b.dtype || a.shape != b.shape {
        return ("type", format!("{} and {}", a.type_text(), b.type_text()));
    }
    if a.bytes() == b.bytes() {
        return ("equal", "equal".into());
    }
    let (mut most, mut count, mut nans) = (0f64, 0usize, 0usize);
    for i in 0..a.len() {
        let (x, y) = (a.get_f64(i).unwrap_or(f64::NAN), b.get_f64(i).unwrap_or(f64::NAN));
        if x.to_bits() == y.to_bits() {
            continue;
        }
        count += 1;
        match (x - y).abs() {
            d if d.is_nan() => nans += 1,
            d => most = most.max(d),
        }
    }
    let mut text = format!("{count} of {} elements differ, by at most {most:e}", a.len());
    if nans > 0 {
        let _ = write!(text, ", {nans} of them NaN or infinite");
    }
    ("different", text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_right() {
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(utc(4_102_444_799), "2099-12-31 23:59:59");
    }
}
