//! The machines programs are made for.
//!
//! For its own target tfc carries the runtime as an object. For another one it
//! carries the sources, and makes the object when it is first asked for: that
//! takes `rustc` and Rust's library for the target. What was made is kept in the
//! user's cache folder.

use crate::error::{Result, reason};
use crate::link::{TempDir, find_program};
use crate::runtime_object::{self, Build, Sources, elf};
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};
use tfc_ir::diag::Diag;
use tfc_runtime::files;

/// The target tfc itself was built for.
pub const HOST: &str = env!("TFC_TARGET");

static RUNTIME: &[u8] = include_bytes!(env!("TFC_RUNTIME_FILE"));
static SOURCES: &[u8] = include_bytes!(env!("TFC_RUNTIME_SOURCES"));

/// What is in the names of the symbols of tfc's own runtime. It changes with
/// the runtime, so it stands for the version of that everywhere.
pub(crate) const RUNTIME_ID: &str = env!("TFC_RUNTIME_ID");

/// A machine, and what is needed to make programs for it.
#[derive(Clone, Debug)]
pub struct Target {
    /// As Rust calls it.
    pub triple: String,
    /// The runtime as a relocatable object.
    pub(crate) runtime: Cow<'static, [u8]>,
    /// What is in the names of its symbols.
    pub(crate) id: String,
}

impl Target {
    /// The one tfc runs on.
    pub fn host() -> Target {
        let (triple, id) = (HOST.to_string(), RUNTIME_ID.to_string());
        Target { triple, runtime: RUNTIME.into(), id }
    }

    /// The one of this name, as Rust calls it: `aarch64-unknown-linux-gnu`. Makes
    /// its runtime if that was not done before.
    pub fn named(triple: &str) -> Result<Target> {
        if triple == HOST {
            return Ok(Target::host());
        }
        let parts: Vec<&str> = triple.split('-').collect();
        let known = matches!(parts[..], ["x86_64" | "aarch64", _, "linux", "gnu" | "musl"]);
        if !known {
            let diag = Diag::error("E0809", format!("no programs can be made for `{triple}`"))
                .note("targets are x86_64 and aarch64, with -unknown-linux-gnu or -unknown-linux-musl")
                .help("say it as Rust does: `--target aarch64-unknown-linux-gnu`");
            return Err(diag.into());
        }
        let cache = cache_folder();
        let found = cache.as_deref().and_then(|dir| cached(dir, triple));
        let (bytes, id) = match found {
            Some(found) => found,
            None => make(triple, cache.as_deref())?,
        };
        Ok(Target { triple: triple.to_string(), runtime: bytes.into(), id })
    }

    /// Whether it is this machine.
    pub fn is_host(&self) -> bool {
        self.triple == HOST
    }

    /// Whether it is linked with musl, which comes with Rust.
    pub(crate) fn is_musl(&self) -> bool {
        self.triple.ends_with("-musl")
    }
}

/// `~/.cache/tfc`, for runtimes made of these very sources.
fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
    Some(base.join("tfc").join(format!("runtime-{}-{RUNTIME_ID}", env!("CARGO_PKG_VERSION"))))
}

/// What an earlier run left: a whole object, for it was renamed to its name.
fn cached(dir: &Path, triple: &str) -> Option<(Vec<u8>, String)> {
    let bytes = fs::read(dir.join(format!("{triple}.o"))).ok()?;
    let name = elf::defined_symbols(&bytes)?
        .into_iter()
        .find_map(|n| n.strip_prefix(runtime_object::TABLE)?.strip_prefix('_').map(String::from))?;
    Some((bytes, name))
}

pub(crate) fn rustc() -> OsString {
    env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

fn make(triple: &str, cache: Option<&Path>) -> Result<(Vec<u8>, String)> {
    let rustc = rustc();
    let missing = |message: String| Diag::error("E0809", message);
    let print =
        Command::new(&rustc).args(["--print", "target-libdir", "--target", triple]).output();
    let print = print.map_err(|e| {
        missing(format!("the runtime for `{triple}` takes a Rust compiler to make"))
            .note(format!("cannot start `{}`: {}", rustc.to_string_lossy(), reason(&e)))
            .help("install Rust (https://rustup.rs), or name its compiler in `RUSTC`")
    })?;
    let libraries = PathBuf::from(String::from_utf8_lossy(&print.stdout).trim());
    let has_std = fs::read_dir(&libraries).is_ok_and(|files| {
        let is_std = |name: &OsStr| name.to_string_lossy().starts_with("libstd-");
        files.flatten().any(|f| is_std(&f.file_name()))
    });
    if !has_std {
        return Err(missing(format!("Rust's library for `{triple}` is not installed"))
            .note("the runtime of programs for it is made with it, once")
            .help(format!("run `rustup target add {triple}`"))
            .into());
    }
    let scratch = TempDir::new()?;
    let dir = scratch.path();
    let sources = Sources {
        abi: &dir.join("abi"),
        compute: &dir.join("compute"),
        runtime: &dir.join("runtime"),
    };
    let object = unpack(SOURCES, dir)
        .map_err(|e| reason(&e))
        .and_then(|()| {
            let build = Build {
                sources,
                version: env!("CARGO_PKG_VERSION"),
                joiners: runtime_object::joiners(&rustc, triple, false),
                rustc,
                target: triple,
                quick: cfg!(debug_assertions),
                scratch: &dir.join("build"),
            };
            build.run()
        })
        .map_err(|why| {
            let mut diag = missing(format!("the runtime for `{triple}` cannot be made"));
            for line in why.lines().filter(|l| !l.trim().is_empty()).take(8) {
                diag = diag.note(line.trim().to_string());
            }
            diag
        })?;
    if let Some(dir) = cache {
        // Without a place to keep it, it is made again.
        let _ = fs::create_dir_all(dir);
        let _ = files::replace(&dir.join(format!("{triple}.o")), |f| f.write_all(&object.bytes));
    }
    Ok((object.bytes, object.id))
}

/// Writes the sources below `dir`, from the form the build script packs them in.
fn unpack(mut packed: &[u8], dir: &Path) -> io::Result<()> {
    let damaged = || io::Error::other("the sources in tfc are damaged");
    let line = |packed: &mut &[u8]| {
        let end = packed.iter().position(|b| *b == b'\n').ok_or_else(damaged)?;
        let line = String::from_utf8_lossy(&packed[..end]).into_owned();
        *packed = &packed[end + 1..];
        Ok::<String, io::Error>(line)
    };
    while !packed.is_empty() {
        let path = dir.join(line(&mut packed)?);
        let len: usize = line(&mut packed)?.parse().map_err(|_| damaged())?;
        let text = packed.get(..len).ok_or_else(damaged)?;
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&path, text)?;
        packed = &packed[len..];
    }
    Ok(())
}

/// The C compiler that links for a target, if there is one on `PATH`.
pub(crate) fn driver(target: &Target) -> Option<PathBuf> {
    let names = runtime_object::drivers(&target.triple, target.is_host());
    names.iter().find_map(|name| find_program(name))
}

/// Where Rust keeps musl for a target, with what programs begin and end with.
pub(crate) fn musl_folder(target: &Target) -> Option<PathBuf> {
    let print = Command::new(rustc())
        .args(["--print", "target-libdir", "--target", &target.triple])
        .output()
        .ok()?;
    let dir = PathBuf::from(String::from_utf8_lossy(&print.stdout).trim()).join("self-contained");
    dir.join("libc.a").exists().then_some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_are_whole() {
        let dir = tempfile::tempdir().unwrap();
        unpack(SOURCES, dir.path()).unwrap();
        for file in [
            "abi/src/lib.rs",
            "compute/src/lib.rs",
            "runtime/src/lib.rs",
            "runtime/src/capi/mod.rs",
        ] {
            assert!(fs::metadata(dir.path().join(file)).unwrap().len() > 500, "{file}");
        }
        for cut in [1, 20, SOURCES.len() / 2, SOURCES.len() - 1] {
            assert!(unpack(&SOURCES[..cut], dir.path()).is_err(), "{cut}");
        }
    }

    #[test]
    fn targets_are_named_as_rust_does() {
        assert!(Target::named(HOST).unwrap().is_host());
        for name in ["arm64", "", "aarch64-apple-darwin", "x86_64-linux-gnu", "a-b-linux-gnu"] {
            assert_eq!(Target::named(name).unwrap_err().code(), "E0809", "{name}");
        }
    }
}
