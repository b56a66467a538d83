//! Builds the runtime that compiled programs link, for embedding in the compiler.
//!
//! The sources are those cargo itself builds the `tfc-runtime`, `tfc-compute` and
//! `tfc-abi` dependencies from: they say where they are (`links` in their manifests).
//! See `src/runtime_object` for what is made of them, and why by `rustc` alone.
//!
//! Development builds skip LTO: the object is made again whenever the runtime
//! changes, and must not dominate the edit cycle.

#[path = "src/runtime_object/mod.rs"]
#[allow(dead_code)]
mod runtime_object;

use runtime_object::{Build, Sources, joiners, variables};
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/runtime_object");
    let target = variable("TARGET");
    println!("cargo::rustc-env=TFC_TARGET={target}");
    if env::var_os("CARGO_FEATURE_PROGRAMS").is_none() {
        return;
    }
    let dirs = ["ABI", "COMPUTE", "RUNTIME"].map(|name| variable(&format!("DEP_TFC_{name}_DIR")));
    for dir in &dirs {
        println!("cargo::rerun-if-changed={dir}/src");
    }
    let [abi, compute, runtime] = dirs;
    let native = target == variable("HOST");
    for name in variables(&target, native) {
        println!("cargo::rerun-if-env-changed={name}");
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    let rustc = env::var_os("RUSTC").expect("cargo sets it");
    let build = Build {
        sources: Sources {
            abi: abi.as_ref(),
            compute: compute.as_ref(),
            runtime: runtime.as_ref(),
        },
        version: &variable("CARGO_PKG_VERSION"),
        joiners: joiners(&rustc, &target, native),
        rustc,
        target: &target,
        quick: variable("PROFILE") == "debug",
        scratch: &out.join("runtime"),
    };
    let made = build.run().unwrap_or_else(|why| {
        panic!(
            "the runtime of compiled programs does not build: {why}\n\
             It takes rustc and a C compiler for {target}: name one in `CC`, or build tfc \
             without the feature `programs`."
        )
    });
    let object = out.join("tfc_runtime.o");
    fs::write(&object, made.bytes).unwrap_or_else(|e| panic!("{}: {e}", object.display()));
    println!("cargo::rustc-env=TFC_RUNTIME_FILE={}", object.display());
    println!("cargo::rustc-env=TFC_RUNTIME_ID={}", made.id);

    // The sources, for targets tfc is asked for later.
    let mut packed = vec![];
    pack(&mut packed, Path::new(&abi).join("src"), "abi/src");
    pack(&mut packed, Path::new(&compute).join("src"), "compute/src");
    pack(&mut packed, Path::new(&runtime).join("src"), "runtime/src");
    let sources = out.join("tfc_runtime_sources");
    fs::write(&sources, packed).unwrap_or_else(|e| panic!("{}: {e}", sources.display()));
    println!("cargo::rustc-env=TFC_RUNTIME_SOURCES={}", sources.display());
}

/// Files of a folder as lines with their name and length, each before the file
/// itself; in order, so that the same sources are the same bytes.
fn pack(out: &mut Vec<u8>, dir: PathBuf, name: &str) {
    let list = fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    let mut files: Vec<PathBuf> = list.map(|f| f.expect("a file").path()).collect();
    files.sort();
    for path in files {
        let last = path.file_name().unwrap_or_default().to_string_lossy();
        let name = format!("{name}/{last}");
        if path.is_dir() {
            pack(out, path, &name);
        } else {
            let text = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            out.extend(format!("{name}\n{}\n", text.len()).bytes());
            out.extend(text);
        }
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
