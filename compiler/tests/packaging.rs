//! tfc as others get it: unpacked from packages, outside of this workspace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const CRATES: [(&str, &str); 8] = [
    ("tfc-abi", "runtime/abi"),
    ("tfc-compute", "runtime/compute"),
    ("tfc-kernel", "ir/kernel"),
    ("tfc-ir", "ir"),
    ("tfc-passes", "passes"),
    ("tfc-codegen", "codegen"),
    ("tfc-runtime", "runtime"),
    ("tfc", "compiler"),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Cargo without the network, and without what the cargo that runs the tests
/// tells its children.
fn cargo(dir: &Path) -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(dir).arg("--offline").env_remove("RUSTFLAGS");
    cargo
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let out = command.output().unwrap();
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}\n{err}");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn a_foreign_project_builds_from_the_packages() {
    // embedding 1: the build script needed this workspace, its lock file and its
    // dev-dependencies; no crate could be packaged.
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let made = dir.join("packages");
    let mut package = cargo(&root());
    package.args(["package", "--quiet", "--no-verify", "--allow-dirty", "--target-dir"]).arg(&made);
    package.args(CRATES.iter().flat_map(|(name, _)| ["-p", name]));
    run(&mut package);
    let mut patches = String::new();
    for (name, folder) in CRATES {
        let file = format!("{name}-{}.crate", env!("CARGO_PKG_VERSION"));
        run(Command::new("tar").arg("xzf").arg(made.join("package").join(&file)).current_dir(dir));
        let unpacked = dir.join(file.strip_suffix(".crate").unwrap());
        for must in ["LICENSE-MIT", "LICENSE-APACHE", "Cargo.toml"] {
            let text = fs::read_to_string(unpacked.join(must)).unwrap();
            assert!(text.len() > 100, "{name}: {must}");
        }
        // All sources ride along, such as the standard library of the language.
        let here = count(&root().join(folder).join("src"));
        assert_eq!(count(&unpacked.join("src")), here, "{name}");
        if name != "tfc" {
            patches += &format!("{name} = {{ path = {unpacked:?} }}\n");
        }
    }
    let project = dir.join("project");
    fs::create_dir_all(project.join("src")).unwrap();
    let tfc = dir.join(format!("tfc-{}", env!("CARGO_PKG_VERSION")));
    let manifest = format!(
        "[package]\nname = \"foreign\"\nedition = \"2024\"\n\n[dependencies]\n\
         tfc = {{ path = {tfc:?}, default-features = false, features = [\"programs\"] }}\n\n\
         [patch.crates-io]\n{patches}\n[workspace]\n"
    );
    fs::write(project.join("Cargo.toml"), manifest).unwrap();
    let main = "fn main() -> Result<(), tfc::Error> {\n\
                \x20   let graph = tfc::parse(\"graph g\\nentry f(x: f32[2]) -> f32[2] { return x }\")?;\n\
                \x20   let _ = (tfc::compile(&graph)?, tfc::link::find_linker(None)?);\n\
                \x20   Ok(())\n}\n";
    fs::write(project.join("src/main.rs"), main).unwrap();
    // Kept between runs, as what others build from is the same.
    let target = root().join("target/foreign");
    run(cargo(&project).args(["check", "--quiet", "--target-dir"]).arg(&target));
    let lock = fs::read_to_string(project.join("Cargo.lock")).unwrap();
    for unwanted in ["proptest", "clap", "insta", "tempfile"] {
        assert!(
            !lock.contains(&format!("name = \"{unwanted}\"")),
            "{unwanted} is built by everyone"
        );
    }
}

fn count(dir: &Path) -> usize {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| if path.is_dir() { count(&path) } else { 1 })
        .sum()
}

#[test]
fn the_library_comes_without_the_command() {
    // embedding, features: clap was compiled into every program that embeds tfc.
    let tree = |features: &[&str]| {
        let mut cargo = cargo(&root());
        cargo.args(["tree", "--package", "tfc", "--edges", "normal", "--prefix", "none"]);
        run(cargo.args(features))
    };
    assert!(tree(&[]).contains("\nclap "));
    let library = tree(&["--no-default-features"]);
    assert!(!library.contains("clap") && library.contains("\ntfc-passes "), "{library}");
    // What compiled programs link is ours alone, so that rustc can build it
    // without cargo.
    let mut cargo = cargo(&root());
    cargo.args(["tree", "--package", "tfc-runtime", "--edges", "normal", "--prefix", "none"]);
    let runtime = run(&mut cargo);
    let names: Vec<&str> = runtime.lines().filter_map(|l| l.split(' ').next()).collect();
    assert_eq!(names, ["tfc-runtime", "tfc-abi", "tfc-compute", "tfc-abi"]);
}
