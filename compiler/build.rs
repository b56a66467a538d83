//! Builds the runtime archive that compiled programs link, and prepares it for
//! embedding in the compiler.
//!
//! A nested cargo builds `tfc-runtime` as a static library under its own
//! profile (`runtime`: small, aborting, one LTO unit) in its own target
//! directory, from the same lock file. The archive is then pre-linked into one
//! relocatable object without debug information, which is what makes a
//! program's link cheap; if this machine's `cc` cannot do that, the archive is
//! embedded as it is.
//!
//! Development builds skip LTO: the archive is rebuilt whenever the runtime
//! changes, and must not dominate the edit cycle.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The symbols generated objects, and C callers of them, refer to.
const ROOT_PREFIX: &str = "tfc_";

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = here.parent().expect("the crate is in the workspace").to_path_buf();
    for watched in [
        "runtime/src",
        "runtime/Cargo.toml",
        "runtime/abi/src",
        "runtime/abi/Cargo.toml",
        "Cargo.lock",
        "Cargo.toml",
    ] {
        println!("cargo:rerun-if-changed={}", root.join(watched).display());
    }
    println!("cargo:rerun-if-changed=build.rs");
    let target = env::var("TARGET").expect("cargo sets TARGET");
    println!("cargo:rustc-env=TFC_TARGET={target}");

    let archive = build(&root, &out, &target);
    let object = out.join("tfc_runtime.o");
    let linked = prelink(&archive, &object);
    let embedded = if linked { object } else { archive };
    println!("cargo:rustc-env=TFC_RUNTIME_FILE={}", embedded.display());
    println!("cargo:rustc-env=TFC_RUNTIME_KIND={}", if linked { "o" } else { "a" });
}

fn build(root: &Path, out: &Path, target: &str) -> PathBuf {
    let target_dir = out.join("runtime");
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo.current_dir(root);
    cargo.args(["rustc", "--quiet", "--frozen", "--package", "tfc-runtime", "--lib"]);
    cargo.args(["--profile", "runtime", "--crate-type", "staticlib", "--target", target]);
    cargo.arg("--target-dir").arg(&target_dir);
    if env::var("PROFILE").as_deref() == Ok("debug") {
        cargo.args(["--config", "profile.runtime.lto='off'"]);
        cargo.args(["--config", "profile.runtime.codegen-units=16"]);
        cargo.args(["--config", "profile.runtime.opt-level=1"]);
        cargo.args(["--config", "profile.runtime.incremental=true"]);
    }
    // The archive must not depend on who builds the compiler, nor how: no
    // wrapper (clippy), no flags (coverage, `target-cpu=native`), no paths.
    for name in ["RUSTC_WORKSPACE_WRAPPER", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        cargo.env_remove(name);
    }
    let cargo_home = env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cargo")));
    let mut flags = format!("--remap-path-prefix={}=tfc", root.display());
    if let Some(home) = cargo_home {
        flags.push_str(&format!("\u{1f}--remap-path-prefix={}=cargo", home.display()));
    }
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags).env_remove("RUSTFLAGS");
    let status = cargo.status().unwrap_or_else(|e| panic!("cannot start cargo: {e}"));
    assert!(status.success(), "the runtime archive does not build");
    target_dir.join(target).join("runtime").join("libtfc_runtime.a")
}

/// Links the archive into one relocatable object, keeping what the exported
/// functions reach. Returns whether that worked.
fn prelink(archive: &Path, object: &Path) -> bool {
    let Some(roots) = exported(archive) else { return false };
    if roots.is_empty() {
        return false;
    }
    let mut cc = Command::new(env::var_os("CC").unwrap_or_else(|| "cc".into()));
    cc.args(["-r", "-nostdlib", "-Wl,--gc-sections", "-Wl,-S"]);
    cc.arg(format!("-Wl,-e,{}", roots[0]));
    cc.args(roots.iter().map(|name| format!("-Wl,-u,{name}")));
    cc.arg("-o").arg(object).arg(archive);
    cc.output().is_ok_and(|o| o.status.success()) && object.exists()
}

/// Names of the global functions with our prefix an archive defines, sorted.
fn exported(archive: &Path) -> Option<Vec<String>> {
    // The names are in the archive's symbol index: its first member, `/`, holds
    // a big-endian count, that many offsets, then NUL-terminated names.
    let bytes = fs::read(archive).ok()?;
    let member = bytes.strip_prefix(b"!<arch>\n")?;
    if !member.starts_with(b"/ ") {
        return None;
    }
    let len: usize = std::str::from_utf8(member.get(48..58)?).ok()?.trim().parse().ok()?;
    let index = member.get(60..60 + len)?;
    let count = u32::from_be_bytes(index.get(..4)?.try_into().ok()?) as usize;
    let names = index.get(4 + 4 * count..)?;
    let mut out: Vec<String> = names
        .split(|b| *b == 0)
        .filter_map(|name| std::str::from_utf8(name).ok())
        .filter(|name| name.starts_with(ROOT_PREFIX))
        .map(str::to_string)
        .collect();
    out.sort();
    out.dedup();
    Some(out)
}
