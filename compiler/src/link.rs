//! Object + runtime -> program, through the system's C compiler driver.
//!
//! Invariants
//! - The output appears under its name complete or not at all: it is linked
//!   beside its destination and renamed. It takes the place of files only: where
//!   something else is, nothing is touched.
//! - The same inputs give the same bytes: no build id, no time stamp, no path
//!   of this machine ends up in the output.

use crate::ar;
use crate::error::Result;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};
use tfc_ir::diag::Diag;
use tfc_runtime::files;

/// The runtime every program links: one relocatable object (or an archive,
/// where the machine that built tfc could not pre-link it).
static RUNTIME: &[u8] = include_bytes!(env!("TFC_RUNTIME_FILE"));
const RUNTIME_KIND: &str = env!("TFC_RUNTIME_KIND");

/// Libraries the runtime needs from the system.
const SYSTEM_LIBS: &[&str] = &["-lpthread", "-ldl", "-lm"];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    Executable,
    Shared,
    Static,
}

#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// The C compiler driver to link with; found on `PATH` when absent.
    pub linker: Option<String>,
    /// Keep symbol names.
    pub symbols: bool,
    /// Symbols a shared library exports: patterns of a version script.
    pub exports: Vec<String>,
}

/// Links `object` into `out`.
pub fn link(object: &[u8], kind: Output, out: &Path, options: &LinkOptions) -> Result<()> {
    if files::is_special(out) {
        let message = format!("cannot write `{}`: it is not a file", out.display());
        let help = "a program needs a file of its own; text may go anywhere, such as `--emit asm`";
        return Err(Diag::error("E0803", message).help(help).into());
    }
    // A folder that cannot be written is better told by us than by the linker.
    let staged = files::Staged::new(out, files::Links::Refuse)?;
    let dir = TempDir::new()?;
    let model = dir.write("model.o", object)?;
    let runtime = dir.write(&format!("runtime.{RUNTIME_KIND}"), RUNTIME)?;
    match kind {
        Output::Executable => executable(&dir, &model, &runtime, staged.path(), options)?,
        Output::Shared => shared(&dir, &model, &runtime, staged.path(), out, options)?,
        Output::Static => {
            let bytes = archive(object)?;
            staged.file().write_all(&bytes).map_err(|e| cannot_write(out, &e))?;
            return Ok(staged.commit()?);
        }
    }
    Ok(staged.commit_executable()?)
}

fn executable(
    dir: &TempDir,
    model: &Path,
    runtime: &Path,
    out: &Path,
    options: &LinkOptions,
) -> Result<()> {
    let mut args: Vec<OsString> = vec!["-pie".into()];
    args.extend(common(options));
    args.extend(["-o".into(), out.into(), model.into(), runtime.into()]);
    args.extend(SYSTEM_LIBS.iter().map(OsString::from));
    run(dir, options, &args)
}

fn shared(
    dir: &TempDir,
    model: &Path,
    runtime: &Path,
    out: &Path,
    final_name: &Path,
    options: &LinkOptions,
) -> Result<()> {
    let mut script = String::from("{\n  global:\n");
    for pattern in &options.exports {
        script.push_str(&format!("    {pattern};\n"));
    }
    script.push_str("  local: *;\n};\n");
    let script = dir.write("exports.map", script.as_bytes())?;
    let mut args: Vec<OsString> = vec!["-shared".into()];
    args.extend(common(options));
    if let Some(name) = final_name.file_name() {
        // One argument each: `-Wl` would split a name at its commas.
        args.extend(["-Xlinker".into(), "-soname".into(), "-Xlinker".into(), name.into()]);
    }
    let mut version = OsString::from("--version-script=");
    version.push(&script);
    args.extend(["-Xlinker".into(), version]);
    args.extend(["-o".into(), out.into(), model.into(), runtime.into()]);
    args.extend(SYSTEM_LIBS.iter().map(OsString::from));
    run(dir, options, &args)
}

fn common(options: &LinkOptions) -> Vec<OsString> {
    let mut args: Vec<OsString> =
        ["-Wl,--gc-sections", "-Wl,--build-id=none", "-Wl,-z,noexecstack", "-static-libgcc"]
            .iter()
            .map(OsString::from)
            .collect();
    if !options.symbols {
        args.push("-s".into());
    }
    args
}

/// An archive of the two objects, so that programs using several models link
/// the runtime once.
fn archive(object: &[u8]) -> Result<Vec<u8>> {
    if RUNTIME_KIND != "o" {
        let diag = Diag::error("E0802", "this tfc cannot make static libraries")
            .note("it was built on a machine whose linker cannot join objects (`ld -r`)")
            .help("use a shared library (`--emit shared`), or build tfc with GNU ld or lld");
        return Err(diag.into());
    }
    Ok(ar::archive(&[("model.o", object), ("runtime.o", RUNTIME)]))
}

fn run(_dir: &TempDir, options: &LinkOptions, args: &[OsString]) -> Result<()> {
    let linker = find_linker(options.linker.as_deref())?;
    let mut command = Command::new(&linker);
    command.args(args);
    // A reproducible link, whatever the caller's environment says.
    for name in ["LD_RUN_PATH", "LDFLAGS", "LIBRARY_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH"] {
        command.env_remove(name);
    }
    command.env("LC_ALL", "C").env("SOURCE_DATE_EPOCH", "0");
    finish(command, &linker.display().to_string())
}

fn finish(mut command: Command, name: &str) -> Result<()> {
    let output = command.output().map_err(|e| {
        Diag::error("E0801", format!("cannot start the linker `{name}`: {}", reason(&e)))
            .help("pass the C compiler to link with: `--linker /path/to/cc`")
    })?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let mut diag = Diag::error("E0802", format!("the linker `{name}` failed ({})", output.status));
    for line in text.lines().filter(|l| !l.trim().is_empty()).take(8) {
        diag = diag.note(line.trim().to_string());
    }
    Err(diag
        .help("check that `cc` links a C program on this machine, or choose another: `--linker`")
        .into())
}

/// The C compiler driver to link with.
pub fn find_linker(wanted: Option<&str>) -> Result<PathBuf> {
    if let Some(name) = wanted {
        return find_program(name).ok_or_else(|| {
            Diag::error("E0801", format!("the linker `{name}` was not found"))
                .help("give the name of a program on PATH, or a path to one")
                .into()
        });
    }
    ["cc", "gcc", "clang"].iter().find_map(|name| find_program(name)).ok_or_else(|| {
        Diag::error("E0801", "no C linker found on this machine")
            .note("looked for cc, gcc and clang on PATH")
            .note("`tfc run` needs no linker; neither does `tfc compile --emit obj`")
            .help("install one (Debian, Ubuntu: `apt install gcc`), or name it: `--linker PATH`")
            .into()
    })
}

fn find_program(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        return is_executable(&path).then_some(path);
    }
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(name)).find(|p| is_executable(p))
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

pub(crate) fn cannot_write(path: &Path, error: &io::Error) -> Diag {
    Diag::error("E0803", format!("cannot write `{}`: {}", path.display(), reason(error)))
}

/// What the system said, without its number.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file or directory".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        io::ErrorKind::IsADirectory => "it is a directory".into(),
        io::ErrorKind::NotADirectory => "part of the path is not a directory".into(),
        io::ErrorKind::StorageFull => "the disk is full".into(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".into(),
        io::ErrorKind::BrokenPipe => "the reader went away".into(),
        _ => error.to_string(),
    }
}

/// Makes a directory that nobody else may look into or write to. What is there
/// already, a planted link above all, is not used.
fn private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// A private directory for the linker's inputs, removed when dropped.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Result<TempDir> {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = env::temp_dir();
        loop {
            let n = NEXT.fetch_add(1, Ordering::Relaxed);
            let dir = base.join(format!("tfc-{}-{n}", std::process::id()));
            match private_dir(&dir) {
                Ok(()) => return Ok(TempDir(dir)),
                // Left by a killed process that had our id.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists && n < 10_000 => continue,
                Err(e) => return Err(cannot_write(&dir, &e).into()),
            }
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::write(&path, bytes).map_err(|e| cannot_write(&path, &e))?;
        Ok(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
