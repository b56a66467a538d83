//! Object + runtime -> program, through the system's C compiler driver.
//!
//! Invariants
//! - The output appears under its name complete or not at all: it is linked
//!   beside its destination and renamed. It takes the place of files only: where
//!   something else is, nothing is touched.
//! - The same inputs give the same bytes: no build id, no time stamp, no path
//!   of this machine ends up in the output.

use crate::ar;
use crate::error::{Result, reason};
use crate::runtime_object;
use crate::target::{self, Target};
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};
use tfc_ir::diag::Diag;
use tfc_runtime::files;

/// Libraries the runtime needs from the system.
const SYSTEM_LIBS: &[&str] = &["-lpthread", "-ldl", "-lm"];

/// What the linker makes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Output {
    /// A program.
    Executable,
    /// A shared library.
    Shared,
    /// An archive.
    Static,
}

/// How to link.
#[derive(Clone, Debug)]
pub struct LinkOptions {
    /// The C compiler driver to link with; found on `PATH` when absent.
    pub linker: Option<String>,
    /// Keep symbol names.
    pub symbols: bool,
    /// Symbols a shared library exports.
    pub exports: Vec<String>,
    /// Executables that need no library of the machine they run on.
    pub fixed: bool,
    /// The machine it is for.
    pub target: Target,
}

impl Default for LinkOptions {
    fn default() -> LinkOptions {
        LinkOptions {
            linker: None,
            symbols: false,
            exports: vec![],
            fixed: false,
            target: Target::host(),
        }
    }
}

/// Links `object` into `out`.
pub fn link(object: &[u8], kind: Output, out: &Path, options: &LinkOptions) -> Result<()> {
    if files::is_special(out) {
        let message = format!("cannot write `{}`: it is not a file", out.display());
        let help = "a program needs a file of its own; text may go anywhere, such as `--emit asm`";
        return Err(Diag::error("E0803", message).help(help).into());
    }
    // A folder that cannot be written is better told by us than by the linker.
    let mut staged = files::Staged::new(out, files::Links::Refuse)?;
    let dir = TempDir::new()?;
    let model = dir.write("model.o", object)?;
    let runtime = dir.write("runtime.o", &options.target.runtime)?;
    match kind {
        Output::Executable => {
            executable(&dir, &model, &runtime, staged.path_for_program()?, options)?;
        }
        Output::Shared => shared(&dir, &model, &runtime, staged.path_for_program()?, out, options)?,
        Output::Static => {
            let bytes = archive(object, &options.target);
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
    if options.target.is_musl() {
        return with_musl(dir, model, runtime, out, options);
    }
    let mut args: Vec<OsString> = vec![if options.fixed { "-static-pie" } else { "-pie" }.into()];
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
    if options.target.is_musl() {
        let diag =
            Diag::error("E0809", format!("no shared library for `{}`", options.target.triple))
                .note("programs for it are linked statically, with the musl that comes with Rust")
                .help("make a static library: `--emit lib`");
        return Err(diag.into());
    }
    let mut script = String::from("{\n  global:\n");
    for pattern in &options.exports {
        script.push_str(&format!("    {pattern};\n"));
    }
    script.push_str("  local: *;\n};\n");
    let script = dir.write("exports.map", script.as_bytes())?;
    // Its threads may still run when it would be unloaded.
    let mut args: Vec<OsString> = vec!["-shared".into(), "-Wl,-z,nodelete".into()];
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
/// the runtime once: its symbol has a hash of it in its name, so that only the
/// very same runtime is shared.
fn archive(object: &[u8], target: &Target) -> Vec<u8> {
    ar::archive(&[("model.o", object), ("runtime.o", &target.runtime)])
}

fn run(_dir: &TempDir, options: &LinkOptions, args: &[OsString]) -> Result<()> {
    let linker = linker_for(options)?;
    let mut command = Command::new(&linker);
    command.args(args);
    finish_clean(command, &linker)
}

/// Runs a linker so that the environment has no part in what it makes.
fn finish_clean(mut command: Command, linker: &Path) -> Result<()> {
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

/// A static executable with the C library and the startup code that come with
/// Rust for musl targets: the linker is all it takes.
fn with_musl(
    dir: &TempDir,
    model: &Path,
    runtime: &Path,
    out: &Path,
    options: &LinkOptions,
) -> Result<()> {
    let triple = &options.target.triple;
    let Some(musl) = target::musl_folder(&options.target) else {
        let diag = Diag::error("E0809", format!("musl for `{triple}` was not found"))
            .note("it comes with Rust's library for that target")
            .help(format!("run `rustup target add {triple}`"));
        return Err(diag.into());
    };
    let own = match &options.linker {
        // A compiler for musl knows all this.
        Some(_) => None,
        None => runtime_object::rust_lld(&target::rustc()),
    };
    let Some(lld) = own else {
        let mut args: Vec<OsString> = vec!["-static-pie".into()];
        args.extend(common(options));
        args.extend(["-o".into(), out.into(), model.into(), runtime.into(), "-L".into()]);
        args.extend([musl.into(), "-lunwind".into()]);
        return run(dir, options, &args);
    };
    let mut command = Command::new(&lld);
    command.args(["-flavor", "gnu", "-static", "-pie", "--no-dynamic-linker", "-z", "text"]);
    command.args(["--gc-sections", "--build-id=none", "-z", "noexecstack", "--eh-frame-hdr"]);
    if !options.symbols {
        command.arg("-s");
    }
    command.arg("-o").arg(out);
    let part = |name: &str| musl.join(name);
    command.args([part("rcrt1.o"), part("crti.o"), part("crtbeginS.o")]);
    command.arg(model).arg(runtime).arg("-L").arg(&musl);
    command.args(["--start-group", "-lc", "-lunwind", "--end-group"]);
    command.args([part("crtendS.o"), part("crtn.o")]);
    finish_clean(command, &lld)
}

/// The C compiler driver that links for the options' target.
fn linker_for(options: &LinkOptions) -> Result<PathBuf> {
    let target = &options.target;
    if options.linker.is_some() || target.is_host() {
        return find_linker(options.linker.as_deref());
    }
    target::driver(target).ok_or_else(|| {
        let triple = &target.triple;
        let names = runtime_object::drivers(triple, false);
        Diag::error("E0801", format!("no C linker for `{triple}` found on this machine"))
            .note(format!("looked for {} on PATH", names.join(", ")))
            .help(format!(
                "install one (Debian, Ubuntu: `apt install gcc-{}`), or name it: `--linker PATH`",
                names.first().map_or("", |n| n.trim_end_matches("-gcc")).replace('_', "-")
            ))
            .into()
    })
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

pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
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

/// Makes a directory that nobody else may look into or write to. What is there
/// already, a planted link above all, is not used.
fn private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// A private directory for the linker's inputs, removed when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new() -> Result<TempDir> {
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

    pub(crate) fn path(&self) -> &Path {
        &self.0
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
