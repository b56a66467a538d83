//! Tells the compiler where cargo has put these sources: it builds them once more
//! for the programs it makes.

fn main() {
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    println!("cargo::metadata=dir={here}");
    println!("cargo::rerun-if-changed=build.rs");
}
