//! Where the paths that a graph names may lead.
//!
//! Without a sandbox, anywhere the user may go. With one, only to what lies below
//! its directory, once links and `..` have been followed. Paths that the user gives
//! (feeds, results, state, `--data`) are the user's own and do not come here.
//!
//! Invariants
//! - A path is judged before it is opened (opening a pipe waits, opening a device
//!   acts), and what was opened is judged again: swapping a folder for a link
//!   between the two opens nothing outside.
//! - Nothing is written to a new file before the file is known to lie inside.
//! - A hard link or a mount below the directory is a part of it: neither leads
//!   anywhere that a path could tell.

use crate::error::{Error, ErrorCode, Result};
use crate::files::{self, Links};
use crate::io::{cannot_read, cannot_write};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory that the paths of a graph must stay in; the default is none.
#[derive(Clone, Debug, Default)]
pub struct Sandbox(Option<Arc<Root>>);

#[derive(Debug)]
struct Root {
    /// As the user named it.
    given: PathBuf,
    /// Absolute, without links.
    real: PathBuf,
}

/// As many links as Linux follows.
const MAX_LINKS: usize = 40;

/// Longer paths lead nowhere.
const MAX_PATH: usize = 4096;

impl Sandbox {
    /// Allows what lies below a directory, which must exist.
    pub fn below(dir: &Path) -> Result<Sandbox> {
        let real = dir.canonicalize().map_err(|e| unusable(dir, &e))?;
        if !real.is_dir() {
            return Err(unusable(dir, &io::Error::other("it is not a directory")));
        }
        Ok(Sandbox(Some(Arc::new(Root { given: dir.to_path_buf(), real }))))
    }

    /// Whether a path leads to something that may be used, or could be made.
    pub fn admit(&self, path: &Path) -> Result<()> {
        let Some(root) = &self.0 else { return Ok(()) };
        match resolve(path) {
            Some(real) if real.starts_with(&root.real) => Ok(()),
            real => Err(root.outside(path, real.as_deref())),
        }
    }

    /// Whether what was opened under this path is what was admitted.
    pub fn confirm(&self, path: &Path, file: &File) -> Result<()> {
        let Some(root) = &self.0 else { return Ok(()) };
        match real_path(path, file) {
            Ok(real) if real.starts_with(&root.real) => Ok(()),
            Ok(real) => Err(root.outside(path, Some(&real))),
            Err(_) => Err(root.outside(path, None)),
        }
    }

    /// [`files::open`], inside.
    pub fn open(&self, path: &Path) -> Result<File> {
        self.opened(path, files::open)
    }

    /// [`files::open_stream`], inside.
    pub fn open_stream(&self, path: &Path) -> Result<File> {
        self.opened(path, files::open_stream)
    }

    fn opened(&self, path: &Path, open: fn(&Path) -> Result<File>) -> Result<File> {
        self.admit(path)?;
        let file = open(path)?;
        self.confirm(path, &file)?;
        Ok(file)
    }

    /// [`files::replace`], inside; the folders above the file are made.
    pub fn replace(
        &self,
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        self.admit(path)?;
        let mut place = path.to_path_buf();
        // Where the folder really is, so that none is made behind a link. The last
        // name stays as it is: a link there is refused.
        if self.0.is_some()
            && let (Some(dir), Some(name)) = (path.parent(), path.file_name())
            && let Some(real) = resolve(dir)
        {
            place = real.join(name);
        }
        if let Some(dir) = place.parent().filter(|d| !d.as_os_str().is_empty()) {
            std::fs::create_dir_all(dir).map_err(|e| cannot_write(dir, &e))?;
        }
        let inside = |file: &File| self.confirm(&place, file);
        files::replace_checked(&place, Links::Refuse, &inside, write)
    }
}

impl Root {
    fn outside(&self, path: &Path, real: Option<&Path>) -> Error {
        let (shown, dir) = (path.display(), self.given.display());
        let text = format!("`{shown}` is outside the sandbox `{dir}`");
        let error = Error::io(ErrorCode::OUTSIDE_SANDBOX, text);
        let error = match real {
            Some(real) if real != path => error.note(format!("it leads to `{}`", real.display())),
            Some(_) => error,
            None => error.note("it leads nowhere that could be told"),
        };
        error.help(format!("put the file below `{dir}`, or allow a directory that holds both"))
    }
}

fn unusable(dir: &Path, e: &io::Error) -> Error {
    cannot_read(dir, e).help("a sandbox is a directory that exists: `--sandbox DIR`")
}

/// Where a path leads, links and `..` followed, whether there is something or not.
/// None if that cannot be told.
fn resolve(path: &Path) -> Option<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        if path.as_os_str().len() > MAX_PATH {
            return None;
        }
        if let Ok(real) = path.canonicalize() {
            return Some(real);
        }
        // What is not there is named by what is, and the names that follow.
        let mut names: Vec<&OsStr> = vec![];
        let mut here: &Path = &path;
        let mut link = None;
        let found = loop {
            if let Ok(to) = here.read_link() {
                // It leads to nothing yet; where that would be is what counts.
                link = Some(here.parent().unwrap_or(Path::new("")).join(to));
                break None;
            }
            // No name: `..` below what is not there.
            names.push(here.file_name()?);
            here = match here.parent()? {
                p if p.as_os_str().is_empty() => Path::new("."),
                p => p,
            };
            if let Ok(real) = here.canonicalize() {
                break Some(real);
            }
        };
        match (found, link) {
            (Some(real), _) => return Some(names.iter().rev().fold(real, |p, name| p.join(name))),
            (None, Some(to)) => path = names.iter().rev().fold(to, |p, name| p.join(name)),
            (None, None) => return None,
        }
    }
    None
}

/// The path of an open file, without links.
fn real_path(path: &Path, file: &File) -> io::Result<PathBuf> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        if let Ok(real) = std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())) {
            return Ok(real);
        }
    }
    let real = path.canonicalize()?;
    match files::same(&file.metadata()?, &real.metadata()?) {
        true => Ok(real),
        false => Err(io::Error::other("it changed while it was opened")),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// `box/` with a file and links, and `secret` beside it.
    fn folders() -> (tempfile::TempDir, Sandbox) {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path();
        fs::create_dir_all(at.join("box/sub")).unwrap();
        fs::create_dir(at.join("out")).unwrap();
        fs::write(at.join("box/file"), "inside").unwrap();
        fs::write(at.join("out/secret"), "outside").unwrap();
        symlink("../out/secret", at.join("box/link")).unwrap();
        symlink("../out", at.join("box/folder")).unwrap();
        symlink("../out/none", at.join("box/nowhere")).unwrap();
        symlink("round", at.join("box/round")).unwrap();
        symlink("file", at.join("box/within")).unwrap();
        symlink(at.join("box"), at.join("alias")).unwrap();
        let sandbox = Sandbox::below(&at.join("box")).unwrap();
        (dir, sandbox)
    }

    #[test]
    fn what_lies_inside_is_opened() {
        let (dir, sandbox) = folders();
        for path in ["box/file", "box/sub/../file", "box/within", "alias/file", "out/../box/file"] {
            sandbox.open(&dir.path().join(path)).unwrap();
            sandbox.open_stream(&dir.path().join(path)).unwrap();
        }
        let e = sandbox.open(&dir.path().join("box/sub/none")).unwrap_err();
        assert_eq!(e.code(), "E0804", "{e}");
        // The directory may be named through a link, too.
        let alias = Sandbox::below(&dir.path().join("alias")).unwrap();
        alias.open(&dir.path().join("box/file")).unwrap();
    }

    #[test]
    fn what_leads_out_is_not() {
        let (dir, sandbox) = folders();
        let paths = [
            "out/secret",
            "box/../out/secret",
            "box/link",
            "box/folder/secret",
            "box/folder/none/deep",
            "box/nowhere",
            "box/nowhere/deep",
            "box/none/../../out/secret",
            "box/round",
            "boxes",
        ];
        for path in paths {
            let path = dir.path().join(path);
            for e in [
                sandbox.open(&path).unwrap_err(),
                sandbox.open_stream(&path).unwrap_err(),
                sandbox.replace(&path, |out| out.write_all(b"x")).unwrap_err(),
            ] {
                assert_eq!(e.code(), ErrorCode::OUTSIDE_SANDBOX, "{}: {e}", path.display());
            }
        }
        assert_eq!(fs::read_to_string(dir.path().join("out/secret")).unwrap(), "outside");
        assert_eq!(fs::read_dir(dir.path().join("out")).unwrap().count(), 1);
        let long = PathBuf::from("x/".repeat(100_000));
        assert_eq!(sandbox.open(&long).unwrap_err().code(), ErrorCode::OUTSIDE_SANDBOX);
    }

    /// The second look: a file that was opened although it lies outside.
    #[test]
    fn what_was_opened_is_judged_again() {
        let (dir, sandbox) = folders();
        let outside = File::open(dir.path().join("out/secret")).unwrap();
        let e = sandbox.confirm(&dir.path().join("box/file"), &outside).unwrap_err();
        assert_eq!(e.code(), ErrorCode::OUTSIDE_SANDBOX);
        assert!(e.to_string().contains("out/secret"), "{e}");
    }

    #[test]
    fn files_are_written_inside() {
        let (dir, sandbox) = folders();
        let put = |path: &str| sandbox.replace(&dir.path().join(path), |out| out.write_all(b"new"));
        put("box/new/deep/file").unwrap();
        put("alias/file").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("box/new/deep/file")).unwrap(), "new");
        assert_eq!(fs::read_to_string(dir.path().join("box/file")).unwrap(), "new");
        // Inside, but no write follows a link.
        let e = put("box/within").unwrap_err();
        assert_eq!(e.code(), "E0803", "{e}");
    }

    #[test]
    fn a_sandbox_is_a_directory() {
        let (dir, _) = folders();
        for path in ["box/file", "none"] {
            assert_eq!(Sandbox::below(&dir.path().join(path)).unwrap_err().code(), "E0804");
        }
    }
}
