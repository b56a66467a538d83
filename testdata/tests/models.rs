//! The models of `examples/models`, made tiny, give the same numbers and the same
//! variables in every way of running them.

use tfc_testdata::corpus::root;
use tfc_testdata::directive::Directive;
use tfc_testdata::ways::{Subject, in_parallel, scratch};

type Tiny = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const MODELS: &[Tiny] = &[
    ("logistic", "", &[("PIXELS", "5"), ("CLASSES", "3")]),
    ("lenet", "", &[("IMAGE", "12"), ("CLASSES", "3")]),
    (
        "resnet50",
        "",
        &[("IMAGE", "24"), ("WIDTH", "2"), ("CLASSES", "3"), ("BLOCKS", "[1, 2]"), ("LR", "0.01")],
    ),
    ("autoencoder", "", &[("PIXELS", "6"), ("CODE", "2"), ("SHRINK", "50")]),
    ("gan", "", &[("PIXELS", "6"), ("NOISE", "3"), ("UNITS", "5")]),
    ("lstm_lm", "", &[("WORDS", "20"), ("UNITS", "4"), ("STEPS", "3"), ("SAMPLES", "4")]),
    (
        "gpt",
        "",
        &[("TOKENS", "12"), ("CONTEXT", "4"), ("WIDTH", "8"), ("HEADS", "2"), ("LAYERS", "2")],
    ),
    ("charlm", "N = 9", &[("CONTEXT", "4"), ("WIDTH", "8"), ("HEADS", "2"), ("LAYERS", "1")]),
    ("word2vec", "", &[("WORDS", "20"), ("WIDTH", "4"), ("SAMPLES", "4")]),
];

#[test]
fn tiny_models_agree() {
    let dir = scratch();
    let failures = in_parallel(MODELS, |(name, more, lets)| {
        let path = root().join(format!("examples/models/{name}.graph"));
        let mut graph = tfc::load_with(path, lets).map_err(|e| e.to_string())?;
        // The bias of the keys has no gradient but rounding, and Adam enlarges that.
        graph.entries.retain(|e| (*name, &*e.name) != ("gpt", "train"));
        // Optimizers that divide by the size of a gradient make much of little.
        let line = format!("//! run; B = 3; tol = 2e-3; {more}");
        let subject = Subject::from_graph(name, Directive::parse(&line)?, graph, dir.path())?;
        let calls = subject.agree()?;
        if calls == 0 { Err(format!("{name}: {calls} calls")) } else { Ok(()) }
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
