//! Files a path stands for.
//!
//! `*` and `?` match within one name, `*` any number of characters, `?` one.
//! Names that start with a dot are matched only by patterns that do.

use crate::error::{Error, Result};
use crate::io::cannot_read;
use crate::sandbox::Sandbox;
use std::path::{Path, PathBuf};

/// The files, in the order of their names; at least one. A match that leads out of
/// the sandbox is an error rather than no match: nobody should train on less than
/// they think.
pub fn expand(pattern: &str, sandbox: &Sandbox) -> Result<Vec<PathBuf>> {
    let path = Path::new(pattern);
    let files = if !pattern.contains(['*', '?']) {
        sandbox.admit(path)?;
        match path.is_dir() {
            true => list(path, "*", true)?,
            false => vec![path.to_owned()],
        }
    } else {
        let mut found = vec![PathBuf::new()];
        let parts: Vec<_> = path.components().collect();
        for (i, part) in parts.iter().enumerate() {
            let text = part.as_os_str().to_string_lossy();
            let last = i + 1 == parts.len();
            let mut next = vec![];
            for folder in &found {
                if !text.contains(['*', '?']) {
                    let path = folder.join(part);
                    if !last || path.is_file() {
                        next.push(path);
                    }
                } else {
                    let here = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
                    sandbox.admit(here)?;
                    for name in list(here, &text, last)? {
                        // Without the `.` that stands for here.
                        next.push(name.strip_prefix("./").map_or(name.clone(), Path::to_owned));
                    }
                }
            }
            found = next;
        }
        found
    };
    if files.is_empty() {
        return Err(Error::io("E0563", format!("no file matches `{pattern}`"))
            .help("paths are relative to where the program is started"));
    }
    files.iter().try_for_each(|file| sandbox.admit(file))?;
    Ok(files)
}

/// What in a folder matches: files, or folders to go on in.
fn list(folder: &Path, pattern: &str, files: bool) -> Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        // A folder that is not there has no files.
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(_) if !folder.is_dir() => return Ok(vec![]),
        Err(e) => return Err(cannot_read(folder, &e)),
    };
    let mut names = vec![];
    for entry in entries {
        let path = entry.map_err(|e| cannot_read(folder, &e))?.path();
        let Some(name) = path.file_name().map(|n| n.to_string_lossy().into_owned()) else {
            continue;
        };
        let hidden = name.starts_with('.') && !pattern.starts_with('.');
        if !hidden && matches(pattern, &name) && path.is_dir() != files {
            names.push(path);
        }
    }
    names.sort();
    Ok(names)
}

/// Whether a name matches a pattern.
fn matches(pattern: &str, name: &str) -> bool {
    let (p, n): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut i, mut j) = (0, 0);
    // Where to go on when the last `*` takes one character more.
    let mut star: Option<(usize, usize)> = None;
    while j < n.len() {
        match p.get(i) {
            Some('*') => {
                star = Some((i, j));
                i += 1;
            }
            Some(c) if *c == '?' || *c == n[j] => {
                i += 1;
                j += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (i, j) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    p[i..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_and_question_marks() {
        for (pattern, name, yes) in [
            ("*.csv", "a.csv", true),
            ("*.csv", "a.csvx", false),
            ("a*b*c", "aXbXbc", true),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*", "", true),
            ("train-*-of-?.rec", "train-00-of-4.rec", true),
        ] {
            assert_eq!(matches(pattern, name), yes, "{pattern} {name}");
        }
    }

    #[test]
    fn folders_and_patterns_give_sorted_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.csv", "a.csv", ".hidden", "c.txt"] {
            std::fs::write(dir.path().join(name), "1").unwrap();
        }
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/d.csv"), "1").unwrap();
        let names = |pattern: &str| -> Vec<String> {
            let full = format!("{}/{pattern}", dir.path().display());
            let files = expand(&full, &Sandbox::default()).unwrap();
            files.iter().map(|f| f.file_name().unwrap().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names("*.csv"), ["a.csv", "b.csv"]);
        assert_eq!(names(""), ["a.csv", "b.csv", "c.txt"]);
        assert_eq!(names("*/*.csv"), ["d.csv"]);
        let nothing = format!("{}/*.none", dir.path().display());
        assert_eq!(expand(&nothing, &Sandbox::default()).unwrap_err().code(), "E0563");
    }
}
