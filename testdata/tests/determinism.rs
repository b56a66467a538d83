//! The same input gives the same bytes.

use tfc::driver::{Timings, compile};
use tfc::emit::{Artifact, Emitter};
use tfc::link::LinkOptions;
use tfc_testdata::corpus;

fn emitted(case: &corpus::Case, artifacts: &[Artifact]) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let files = tfc::load::Files::in_dir(case.path.parent().unwrap());
    let loaded = tfc::load::parse_as(&case.name, &case.text, &files).unwrap();
    let mut timings = Timings::default();
    let options = tfc::Options::default();
    let compiled = compile(&loaded.graph, &loaded.sources, &options, &mut timings).unwrap();
    let emitter = Emitter {
        program: compiled.program(),
        graph: compiled.graph(),
        link: LinkOptions::default(),
        prefix: "m",
        cpu: tfc_codegen::Cpu::Portable,
        gpus: None,
    };
    artifacts
        .iter()
        .map(|a| {
            let path = dir.path().join(a.file_name("m"));
            emitter.write(*a, &path, &mut timings).unwrap();
            std::fs::read(&path).unwrap()
        })
        .collect()
}

#[test]
fn every_graph_compiles_to_the_same_object_twice() {
    // What is placed elsewhere is parsed and printed, but not compiled.
    for case in corpus::valid().into_iter().filter(|case| !case.text.contains(" on \"/job:")) {
        let once = emitted(&case, &[Artifact::Object, Artifact::Plan, Artifact::Header]);
        let twice = emitted(&case, &[Artifact::Object, Artifact::Plan, Artifact::Header]);
        assert!(once == twice, "{} differs between two compilations", case.path.display());
    }
}

#[test]
fn linked_outputs_are_identical_too() {
    use Artifact::{Executable, SharedLibrary, StaticLibrary};
    let case = corpus::examples().into_iter().next().expect("there are examples");
    let all = [Executable, SharedLibrary, StaticLibrary];
    assert!(emitted(&case, &all) == emitted(&case, &all));
}
