//! Makes the object that compiled programs link: the runtime, whole and private.
//!
//! `rustc` alone compiles the three crates, which depend on nothing else, from
//! wherever their sources are: no workspace, lock file, registry or network has
//! a part in it. The archive is joined into one relocatable object (`ld -r`),
//! and all its symbols made local but six, which have a hash of the object in
//! their names: whatever else is linked beside it, another version of itself
//! included, neither clashes nor is mistaken for it.
//!
//! The build script uses this for tfc's own target, and tfc itself for others.

pub mod elf;

use std::ffi::OsString;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the runtime exports, as its sources call them.
pub const TABLE: &str = "tfc_runtime";
pub const MAIN: &str = "tfc_main";
/// What drives GPUs; only programs that name it have it linked.
pub const CUDA: &str = "tfc_cuda";
/// What drives GPUs that exchange tensors with those of other processes; likewise.
pub const NCCL: &str = "tfc_nccl";
/// What convolves; likewise.
pub const CONV: &str = "tfc_conv";
/// What makes a program part of a job; likewise.
pub const JOBS: &str = "tfc_jobs";
const EXPORTS: [&str; 6] = [TABLE, MAIN, CUDA, NCCL, CONV, JOBS];

/// Where the sources are.
pub struct Sources<'a> {
    pub abi: &'a Path,
    pub compute: &'a Path,
    pub runtime: &'a Path,
}

/// What a program computes with is made for speed, the rest for size. Neither needs the
/// inlining that LLVM does by itself (limits of 225 and 50): with these the MLP's program
/// is a tenth smaller, and steps take as long.
const FAST: [&str; 4] = ["-C", "opt-level=3", "-C", "llvm-args=-inline-threshold=60"];
const SMALL: [&str; 4] = ["-C", "opt-level=s", "-C", "llvm-args=-inline-threshold=25"];

pub struct Build<'a> {
    pub sources: Sources<'a>,
    pub version: &'a str,
    pub rustc: OsString,
    pub target: &'a str,
    /// Commands that may join objects, best first: a C compiler, then a linker.
    pub joiners: Vec<Vec<OsString>>,
    /// For working on the runtime: built quickly, and again only where changed.
    pub quick: bool,
    pub scratch: &'a Path,
}

/// The object, and the hash in the names of its symbols.
pub struct Object {
    pub bytes: Vec<u8>,
    pub id: String,
}

/// Name of an exported symbol of the object with this id.
pub fn symbol(name: &str, id: &str) -> String {
    format!("{name}_{id}")
}

impl Build<'_> {
    pub fn run(&self) -> Result<Object, String> {
        fs::create_dir_all(self.scratch)
            .map_err(|e| format!("cannot make {}: {e}", self.scratch.display()))?;
        let archive = self.compile()?;
        let joined = self.join(&archive)?;
        let bytes = fs::read(&joined).map_err(|e| format!("{}: {e}", joined.display()))?;
        let id = format!("{:016x}", fingerprint(&bytes));
        let exports = EXPORTS.map(|name| (name, symbol(name, &id)));
        match elf::localize(&bytes, &exports) {
            Some(bytes) => Ok(Object { bytes, id }),
            None => Err("the joined object is not as expected".into()),
        }
    }

    fn compile(&self) -> Result<PathBuf, String> {
        let abi = ("tfc_abi", self.scratch.join("libtfc_abi.rlib"));
        let compute = ("tfc_compute", self.scratch.join("libtfc_compute.rlib"));
        let archive = self.scratch.join("libtfc_runtime.a");
        let mut rustc = self.rustc(abi.0, self.sources.abi, &[], SMALL);
        run(rustc.args(["--crate-type", "rlib", "-o"]).arg(&abi.1))?;
        let mut rustc = self.rustc(compute.0, self.sources.compute, &[&abi], FAST);
        run(rustc.args(["--crate-type", "rlib", "-o"]).arg(&compute.1))?;
        let mut rustc = self.rustc(TABLE, self.sources.runtime, &[&abi, &compute], SMALL);
        if !self.quick {
            rustc.args(["-C", "lto=fat"]);
        }
        run(rustc.args(["--crate-type", "staticlib", "-o"]).arg(&archive))?;
        Ok(archive)
    }

    fn rustc(
        &self,
        name: &str,
        dir: &Path,
        dependencies: &[&(&str, PathBuf)],
        level: [&str; 4],
    ) -> Command {
        let mut rustc = Command::new(&self.rustc);
        rustc.args(["--crate-name", name, "--edition", "2024"]);
        for (name, file) in dependencies {
            rustc.arg("--extern").arg(with(&format!("{name}="), file));
        }
        rustc.args(["--target", self.target, "--cap-lints", "allow"]);
        rustc.args(["-C", "panic=abort", "-C", "strip=debuginfo"]);
        if self.quick {
            let cache = self.scratch.join("incremental");
            rustc.args(["-C", "opt-level=1", "-C", "codegen-units=16", "-C"]);
            rustc.arg(with("incremental=", &cache));
        } else {
            rustc.args(level).args(["-C", "codegen-units=1"]);
        }
        // Nothing of the machine that builds it is in the object.
        let mut remap = with("--remap-path-prefix=", dir);
        remap.push(format!("={name}"));
        rustc.arg(remap);
        rustc.env("CARGO_PKG_VERSION", self.version);
        for flags in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"] {
            rustc.env_remove(flags);
        }
        rustc.arg(dir.join("src").join("lib.rs"));
        rustc
    }

    /// Links the archive into one relocatable object, keeping what the exported
    /// symbols reach.
    fn join(&self, archive: &Path) -> Result<PathBuf, String> {
        let object = self.scratch.join("joined.o");
        let mut tried = String::new();
        for joiner in &self.joiners {
            let Some((program, first)) = joiner.split_first() else { continue };
            // A compiler driver hands on what the linker is to know.
            let driver = is_driver(Path::new(program), first);
            let mut command = Command::new(program);
            command.args(first).arg("-r");
            if driver {
                command.arg("-nostdlib");
            }
            let mut options: Vec<String> = vec!["--gc-sections".into(), "-S".into()];
            for name in EXPORTS {
                options.extend(["-u".into(), name.into()]);
            }
            options.extend(["-e".into(), TABLE.into()]);
            for option in options {
                command.arg(if driver { format!("-Wl,{option}") } else { option });
            }
            // Or the object of an earlier try would be taken for this one's.
            let _ = fs::remove_file(&object);
            match run(command.arg("-o").arg(&object).arg(archive)) {
                Ok(()) if object.exists() => return Ok(object),
                Ok(()) => drop(writeln!(tried, "  {command:?} wrote nothing")),
                Err(e) => drop(writeln!(tried, "  {e}")),
            }
        }
        Err(format!("no linker could join the runtime's objects for {}:\n{tried}", self.target))
    }
}

/// Linkers are called by their own names; all else drives one.
fn is_driver(program: &Path, first: &[OsString]) -> bool {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let linker = name == "ld" || name.ends_with("-ld") || name.ends_with("lld");
    !(linker || first.first().is_some_and(|a| a == "-flavor"))
}

/// What can join objects for `target`, best first: what the user says, the
/// target's own compiler, and the linker that comes with Rust.
pub fn joiners(rustc: &OsString, target: &str, native: bool) -> Vec<Vec<OsString>> {
    let mut out = vec![];
    for name in variables(target, native) {
        let words: Vec<OsString> = env::var(&name)
            .map(|text| text.split_whitespace().map(OsString::from).collect())
            .unwrap_or_default();
        if !words.is_empty() {
            out.push(words);
        }
    }
    if let Some(linker) = env::var_os("RUSTC_LINKER") {
        out.push(vec![linker]);
    }
    out.extend(drivers(target, native).into_iter().map(|name| vec![name.into()]));
    if let Some(lld) = rust_lld(rustc) {
        out.push(vec![lld.into(), "-flavor".into(), "gnu".into()]);
    }
    out.push(vec!["ld.lld".into()]);
    out
}

/// Variables of the environment that may name a C compiler for `target`.
pub fn variables(target: &str, native: bool) -> Vec<String> {
    let mut out = vec![format!("CC_{target}"), format!("CC_{}", target.replace('-', "_"))];
    out.push(if native { "HOST_CC".into() } else { "TARGET_CC".into() });
    if native {
        out.push("CC".into());
    }
    out
}

/// C compiler drivers for a target under their usual names.
pub fn drivers(target: &str, native: bool) -> Vec<String> {
    if native {
        return ["cc", "gcc", "clang"].map(String::from).to_vec();
    }
    let parts: Vec<&str> = target.split('-').collect();
    match parts.as_slice() {
        // aarch64-unknown-linux-gnu is aarch64-linux-gnu to everybody else.
        [arch, _, system, abi] => {
            let mut out = vec![format!("{arch}-{system}-{abi}-gcc")];
            if *abi == "musl" && *arch == env::consts::ARCH {
                out.push("musl-gcc".into());
            }
            out
        }
        _ => vec![],
    }
}

/// The linker in Rust's own tool folder; it knows every target.
pub fn rust_lld(rustc: &OsString) -> Option<PathBuf> {
    let print = |what: &str| {
        let out = Command::new(rustc).args(["--print", what]).output().ok()?;
        Some(String::from_utf8(out.stdout).ok()?.trim().to_string())
    };
    let host = print("host-tuple")?;
    let lld = Path::new(&print("sysroot")?).join("lib/rustlib").join(host).join("bin/rust-lld");
    lld.exists().then_some(lld)
}

fn run(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let out = command.output().map_err(|e| format!("cannot start {name}: {e}"))?;
    if out.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&out.stderr);
    let lines: Vec<&str> = text.lines().filter(|l| !l.trim().is_empty()).take(6).collect();
    Err(format!("{name}: {}: {}", out.status, lines.join("; ")))
}

fn with(option: &str, path: &Path) -> OsString {
    let mut out = OsString::from(option);
    out.push(path);
    out
}

/// FNV-1a: names apart what differs by accident, not on purpose.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3))
}
