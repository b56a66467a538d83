//! The one way files are written, and what may be opened to be read.
//!
//! Every file that tfc or a program it made writes goes through here: it is
//! written beside its destination under a name nobody can foresee, flushed to
//! disk and renamed, so that a reader sees the old file or the whole new one.
//!
//! Invariants
//! - No write follows a symbolic link. The temporary file is made exclusively
//!   (nothing of its name may exist), and a rename replaces a link rather than
//!   what it leads to. Where a *user* named the destination and it is a link, the
//!   write is refused and says so; checkpoint files, whose names are ours, take the
//!   place of whatever link somebody put there.
//! - A file that is replaced hands its permissions on: 0600 stays 0600, and at no
//!   time can more people read the new contents. A read-only file is refused, also
//!   to root.
//! - Pipes and devices are written to; nothing takes their place.
//! - Any number of threads and processes may write to one destination: each has
//!   a temporary file of its own, and the last rename wins.

use crate::error::{Error, Result};
use crate::io::{cannot_read, cannot_write};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// What to do about a destination that is a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// An error: the user named it, and may mean what it leads to.
    Refuse,
    /// The file takes the link's place: the name is one we made.
    Replace,
}

/// A file under a temporary name beside its destination. It is removed when
/// dropped, so making one and dropping it asks whether the destination can be
/// written, without touching it.
#[derive(Debug)]
pub struct Staged {
    target: PathBuf,
    temporary: PathBuf,
    file: File,
    /// Permissions of the file that will be replaced.
    mode: Option<u32>,
    renamed: bool,
}

impl Staged {
    pub fn new(path: &Path, links: Links) -> Result<Staged> {
        let mode = match std::fs::symlink_metadata(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(cannot_write(path, &e)),
            Ok(m) if m.is_symlink() => match links {
                Links::Refuse => return Err(is_a_link(path)),
                Links::Replace => None,
            },
            Ok(m) if m.is_file() => Some(writable(path, &m)?),
            Ok(m) => return Err(not_a_file(path, &m)),
        };
        if path.file_name().is_none() {
            let e = io::Error::new(io::ErrorKind::InvalidInput, "it does not name a file");
            return Err(cannot_write(path, &e));
        }
        // A name that is taken is somebody else's, by chance or on purpose.
        for _ in 0..100 {
            let temporary = unique_name(path);
            match create_new(&temporary, mode) {
                Ok(file) => {
                    let target = path.to_path_buf();
                    return Ok(Staged { target, temporary, file, mode, renamed: false });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(cannot_write(path, &e)),
            }
        }
        let e = io::Error::other("no free name for a temporary file beside it");
        Err(cannot_write(path, &e))
    }

    /// Where the new contents are.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// As [`Staged::path`], for a program such as a linker that writes them. From now
    /// on we have the file open to be read at most: processes that other threads
    /// start inherit what is open, and what is open to be written cannot be run.
    pub fn path_for_program(&mut self) -> Result<&Path> {
        self.file = File::open(&self.temporary).map_err(|e| cannot_write(&self.target, &e))?;
        Ok(&self.temporary)
    }

    pub fn file(&self) -> &File {
        &self.file
    }

    /// Flushes the contents to disk and gives them their name.
    pub fn commit(self) -> Result<()> {
        let synced = self.file.sync_all();
        synced.map_err(|e| cannot_write(&self.target, &e))?;
        let mode = self.mode;
        self.rename(mode)
    }

    /// As [`Staged::commit`], where another program wrote the file anew. It is as
    /// executable as it is readable.
    pub fn commit_executable(self) -> Result<()> {
        let synced = File::open(&self.temporary).and_then(|f| f.sync_all());
        synced.map_err(|e| cannot_write(&self.target, &e))?;
        let mode = self.mode.map(|m| m | (m & 0o444) >> 2);
        self.rename(mode)
    }

    fn rename(mut self, mode: Option<u32>) -> Result<()> {
        let done = set_mode(&self.temporary, mode)
            .and_then(|()| std::fs::rename(&self.temporary, &self.target));
        done.map_err(|e| cannot_write(&self.target, &e))?;
        self.renamed = true;
        sync_dir(&self.target).map_err(|e| cannot_write(&self.target, &e))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.renamed {
            // Best effort: there is nobody to tell.
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Replaces the file a user named, whole or not at all. A pipe or a device is
/// written to.
pub fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    replace_with(path, Links::Refuse, write)
}

pub fn replace_with(
    path: &Path,
    links: Links,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    replace_checked(path, links, &|_| Ok(()), write)
}

/// As [`replace_with`]; `look` may refuse the file that was opened, before anything
/// is written to it.
pub(crate) fn replace_checked(
    path: &Path,
    links: Links,
    look: &dyn Fn(&File) -> Result<()>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    if links == Links::Refuse
        && let Some(special) = open_special(path)?
    {
        look(&special)?;
        return fill(&special, write).map_err(|e| cannot_write(path, &e));
    }
    let staged = Staged::new(path, links)?;
    look(&staged.file)?;
    fill(&staged.file, write).map_err(|e| cannot_write(path, &e))?;
    staged.commit()
}

fn fill(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 16, file);
    write(&mut out)?;
    out.flush()
}

/// Whether a path names a pipe or a device (`/dev/stdout`), rather than a file, a
/// directory or nothing.
pub fn is_special(path: &Path) -> bool {
    looked_at(path).is_ok_and(|m| !m.is_file() && !m.is_dir() && !m.is_symlink())
}

/// What is at a path. Links are looked through only under `/dev`, where nobody
/// but the system makes them: `/dev/stdout` is one.
fn looked_at(path: &Path) -> io::Result<Metadata> {
    if path.starts_with("/dev") || path.starts_with("/proc/self/fd") {
        std::fs::metadata(path)
    } else {
        std::fs::symlink_metadata(path)
    }
}

fn open_special(path: &Path) -> Result<Option<File>> {
    if !is_special(path) {
        return Ok(None);
    }
    let opened = OpenOptions::new().write(true).open(path).and_then(|file| {
        // Between the look and the opening a link may have taken its place.
        if same(&file.metadata()?, &looked_at(path)?) {
            Ok(file)
        } else {
            Err(io::Error::other("it changed while it was opened"))
        }
    });
    opened.map(Some).map_err(|e| cannot_write(path, &e))
}

/// Opens a file of data to read. Devices and pipes are refused: what they give
/// has no end, or comes only once.
pub fn open(path: &Path) -> Result<File> {
    // Before it is opened: that would wait for whoever writes to a pipe.
    let look = std::fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
    if !look.is_file() {
        return Err(not_readable(path, &look));
    }
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    let opened = file.metadata().map_err(|e| cannot_read(path, &e))?;
    if opened.is_file() { Ok(file) } else { Err(not_readable(path, &opened)) }
}

/// As [`open`], for data that is read record by record, once: a pipe is as good as a
/// file, but a device is not.
pub fn open_stream(path: &Path) -> Result<File> {
    let look = std::fs::metadata(path).map_err(|e| cannot_read(path, &e))?;
    match is_pipe(&look) {
        true => File::open(path).map_err(|e| cannot_read(path, &e)),
        false => open(path),
    }
}

#[cfg(unix)]
fn is_pipe(m: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_fifo(&m.file_type())
}

#[cfg(not(unix))]
fn is_pipe(_: &Metadata) -> bool {
    false
}

fn not_readable(path: &Path, m: &Metadata) -> Error {
    let e = io::Error::other(format!("it is {}, not a file", kind_of(m)));
    cannot_read(path, &e)
}

fn is_a_link(path: &Path) -> Error {
    let e = io::Error::other("it is a symbolic link, and those are not written through");
    let error = cannot_write(path, &e);
    match std::fs::read_link(path) {
        Ok(to) => {
            let to = path.parent().unwrap_or(Path::new("")).join(to);
            let to = to.display();
            error
                .note(format!("it leads to `{to}`"))
                .help(format!("write to `{to}` itself, or remove the link"))
        }
        Err(_) => error.help("remove the link, or write under another name"),
    }
}

fn not_a_file(path: &Path, m: &Metadata) -> Error {
    cannot_write(path, &io::Error::other(format!("it is {}", kind_of(m))))
}

fn kind_of(m: &Metadata) -> &'static str {
    if m.is_dir() {
        return "a directory";
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if m.file_type().is_fifo() {
            return "a pipe";
        }
        if m.file_type().is_socket() {
            return "a socket";
        }
    }
    "a device"
}

/// The permissions of a file that is to be replaced, if it may be.
fn writable(path: &Path, m: &Metadata) -> Result<u32> {
    let mode = mode_of(m);
    let refused = if m.permissions().readonly() {
        true
    } else {
        // Somebody else's file in a directory of ours. A program that runs cannot
        // be opened to write, but can be replaced.
        let opened = OpenOptions::new().write(true).open(path);
        opened.is_err_and(|e| e.kind() == io::ErrorKind::PermissionDenied)
    };
    if refused {
        let e = io::Error::other("it is read-only");
        let shown = path.display();
        return Err(cannot_write(path, &e)
            .help(format!("`chmod u+w {shown}`, if it may be replaced, or write elsewhere")));
    }
    Ok(mode)
}

/// A name nobody can foresee, beside `path`. It ends in `.tmp` and begins as `path`
/// does, so that whoever finds one left by a killed process knows whose it was.
fn unique_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    // Keys of the standard library's hasher come from the system's randomness.
    let chance = RandomState::new().hash_one((std::process::id(), count));
    let name = path.file_name().unwrap_or_default();
    // File systems take 255 bytes.
    let mut unique: OsString = if name.len() <= 200 {
        name.to_os_string()
    } else {
        name.to_string_lossy().chars().take(60).collect::<String>().into()
    };
    unique.push(format!(".{}-{count}-{chance:016x}.tmp", std::process::id()));
    path.with_file_name(unique)
}

#[cfg(unix)]
fn create_new(path: &Path, mode: Option<u32>) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    // Never more than what is replaced allowed, not even before the last `chmod`.
    OpenOptions::new().write(true).create_new(true).mode(mode.unwrap_or(0o666)).open(path)
}

#[cfg(not(unix))]
fn create_new(path: &Path, _mode: Option<u32>) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(unix)]
fn mode_of(m: &Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    m.permissions().mode() & 0o777
}

#[cfg(not(unix))]
fn mode_of(_m: &Metadata) -> u32 {
    0
}

#[cfg(unix)]
fn set_mode(path: &Path, mode: Option<u32>) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    match mode {
        Some(mode) => std::fs::set_permissions(path, PermissionsExt::from_mode(mode)),
        None => Ok(()),
    }
}

#[cfg(not(unix))]
fn set_mode(_path: &Path, _mode: Option<u32>) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
pub(crate) fn same(a: &Metadata, b: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (a.dev(), a.ino(), a.rdev()) == (b.dev(), b.ino(), b.rdev())
}

#[cfg(not(unix))]
pub(crate) fn same(a: &Metadata, b: &Metadata) -> bool {
    a.file_type() == b.file_type()
}

/// Makes a rename last: the directory is what has changed.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match File::open(dir)?.sync_all() {
        // Some file systems do not know how to, and do not need to.
        Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
        other => other,
    }
}

/// What a path names in the end, for the one kind of write that follows links: an
/// edit of a file that was just read through the same link (`tfc fmt`).
pub fn destination(path: &Path) -> Result<PathBuf> {
    let mut at = path.to_path_buf();
    // Links may go round in circles.
    for _ in 0..40 {
        match std::fs::read_link(&at) {
            Ok(to) => at = at.parent().unwrap_or(Path::new("")).join(to),
            Err(_) => return Ok(at),
        }
    }
    Err(cannot_write(path, &io::Error::other("too many symbolic links")))
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn put(path: &Path, text: &str) -> Result<()> {
        replace(path, |out| out.write_all(text.as_bytes()))
    }

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// faults 15: writes followed planted links.
    #[test]
    fn links_are_not_written_through() {
        let dir = tempfile::tempdir().unwrap();
        let (victim, link) = (dir.path().join("victim"), dir.path().join("out.npy"));
        std::fs::write(&victim, "precious").unwrap();
        symlink("victim", &link).unwrap();
        let e = put(&link, "new").unwrap_err();
        assert_eq!((e.code().as_str(), e.kind()), ("E0803", ErrorKind::Io));
        assert!(e.help_text().unwrap().contains(&victim.display().to_string()), "{e}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        // One that leads nowhere, and one to a device, are links all the same.
        for to in ["nothing", "/dev/null"] {
            std::fs::remove_file(&link).unwrap();
            symlink(to, &link).unwrap();
            assert_eq!(put(&link, "new").unwrap_err().code(), "E0803");
        }
        assert_eq!(names(dir.path()), ["out.npy", "victim"]);
        // A name of our own takes the link's place.
        replace_with(&link, Links::Replace, |out| out.write_all(b"new")).unwrap();
        assert!(!link.is_symlink());
        assert_eq!(std::fs::read_to_string(&link).unwrap(), "new");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
    }

    /// faults 15: rewriting a file made it readable by everybody.
    #[test]
    fn permissions_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.safetensors");
        let mode = |m: u32| std::fs::set_permissions(&path, PermissionsExt::from_mode(m)).unwrap();
        put(&path, "a").unwrap();
        for m in [0o600, 0o640, 0o666] {
            mode(m);
            let staged = Staged::new(&path, Links::Refuse).unwrap();
            let during = mode_of(&std::fs::metadata(&staged.temporary).unwrap());
            assert_eq!(during & !m, 0, "{during:o} is more than {m:o}");
            drop(staged);
            put(&path, "b").unwrap();
            assert_eq!(mode_of(&std::fs::metadata(&path).unwrap()), m);
        }
        mode(0o444);
        let e = put(&path, "c").unwrap_err();
        assert_eq!(e.code(), "E0803");
        assert!(e.message().contains("read-only"), "{e}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "b");
        assert_eq!(names(dir.path()), ["state.safetensors"]);
    }

    #[test]
    fn programs_stay_executable() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("prog");
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let mut staged = Staged::new(&path, Links::Refuse).unwrap();
        std::fs::write(staged.path_for_program().unwrap(), "new").unwrap();
        staged.commit_executable().unwrap();
        assert_eq!(mode_of(&std::fs::metadata(&path).unwrap()), 0o750);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    /// faults 3: writers of one path shared a temporary name.
    #[test]
    fn writers_of_one_path_do_not_meet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        put(&path, &"0".repeat(10_000)).unwrap();
        std::thread::scope(|s| {
            for t in 0..8 {
                let path = &path;
                s.spawn(move || {
                    for _ in 0..20 {
                        put(path, &t.to_string().repeat(10_000)).unwrap();
                        let text = std::fs::read_to_string(path).unwrap();
                        assert_eq!(text.len(), 10_000);
                        assert!(text.bytes().all(|b| b == text.as_bytes()[0]));
                    }
                });
            }
        });
        assert_eq!(names(dir.path()), ["x"]);
    }

    #[test]
    fn a_failed_write_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        put(&path, "old").unwrap();
        let e = replace(&path, |_| Err(io::Error::other("no"))).unwrap_err();
        assert_eq!(e.code(), "E0803");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(dir.path()), ["x"]);
        let e = put(dir.path(), "a directory").unwrap_err();
        assert!(e.message().contains("it is a directory"), "{e}");
        assert_eq!(put(&dir.path().join("none/x"), "x").unwrap_err().code(), "E0803");
        let long = dir.path().join("n".repeat(250));
        put(&long, "long").unwrap();
        assert_eq!(std::fs::read_to_string(long).unwrap(), "long");
    }

    /// faults 15: a device given as data was read without end.
    #[test]
    fn devices_and_pipes_are_not_data() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("zeros.csv");
        symlink("/dev/zero", &link).unwrap();
        for path in [Path::new("/dev/zero"), &link] {
            let e = open(path).unwrap_err();
            assert_eq!(e.code(), "E0804");
            assert!(e.message().contains("it is a device, not a file"), "{e}");
        }
        assert_eq!(open(dir.path()).unwrap_err().code(), "E0804");
        assert_eq!(open(&dir.path().join("none")).unwrap_err().code(), "E0804");
        put(&dir.path().join("file"), "text").unwrap();
        assert!(open(&dir.path().join("file")).is_ok());
    }
}
