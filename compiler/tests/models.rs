//! The models of `examples/`: what their comments say is what `tfc inspect`
//! prints, and all of them learn.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use tfc::{DType, Graph, Tensor};

/// A model, and how a test makes it small.
struct Small {
    file: &'static str,
    entry: &'static str,
    loss: &'static str,
    lets: &'static [(&'static str, &'static str)],
    batch: usize,
    /// Integers fed are below this.
    classes: i64,
}

const fn small(file: &'static str, lets: &'static [(&'static str, &'static str)]) -> Small {
    Small { file, entry: "train", loss: "loss", lets, batch: 4, classes: 4 }
}

const CLASSES: (&str, &str) = ("CLASSES", "4");
const SHRINK: (&str, &str) = ("SHRINK", "16");
const DROPOUT: (&str, &str) = ("DROPOUT", "0.0");

const MODELS: &[Small] = &[
    small("logistic", &[]),
    small("lenet", &[]),
    small("alexnet", &[("IMAGE", "67"), CLASSES, SHRINK, DROPOUT]),
    small("overfeat", &[("IMAGE", "71"), CLASSES, SHRINK, DROPOUT]),
    small("vgg_a", &[("IMAGE", "32"), CLASSES, SHRINK, DROPOUT]),
    small("googlenet", &[("IMAGE", "32"), CLASSES, ("SHRINK", "8"), DROPOUT]),
    small("inception_v3", &[("IMAGE", "75"), CLASSES, SHRINK, DROPOUT, ("AUXILIARY", "false")]),
    small("resnet50", &[("IMAGE", "32"), CLASSES, ("WIDTH", "4")]),
    small("autoencoder", &[("SHRINK", "10"), ("PIXELS", "64"), ("LR", "0.01")]),
    small("lstm_lm", &[("WORDS", "50"), ("UNITS", "16"), ("STEPS", "6"), ("SAMPLES", "8")]),
    Small {
        entry: "train_sampled",
        ..small("lstm_lm", &[("WORDS", "50"), ("UNITS", "16"), ("STEPS", "6"), ("SAMPLES", "40")])
    },
    small(
        "gpt",
        &[
            ("TOKENS", "50"),
            ("CONTEXT", "8"),
            ("WIDTH", "16"),
            ("HEADS", "2"),
            ("LAYERS", "2"),
            ("LR", "0.01"),
        ],
    ),
    small("charlm", &[("CONTEXT", "8"), ("WIDTH", "16"), ("LAYERS", "1")]),
    Small { batch: 16, ..small("word2vec", &[("WORDS", "40"), ("WIDTH", "8"), ("SAMPLES", "8")]) },
    small("dqn", &[("SCREEN", "44"), ("UNITS", "16")]),
    Small {
        loss: "d_loss",
        ..small("gan", &[("PIXELS", "16"), ("NOISE", "4"), ("UNITS", "32"), ("LR", "0.01")])
    },
    Small { batch: 16, classes: 10, ..small("digits8", &[]) },
];

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/models")
}

fn path(model: &str) -> PathBuf {
    models().join(format!("{model}.graph"))
}

/// The same numbers every time, in 0..1.
fn numbers() -> impl FnMut() -> f64 {
    let mut state = 1u64;
    move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / (1u64 << 24) as f64
    }
}

/// Made-up feeds for an entry, every run-time dim at `batch`.
fn feeds(graph: &Graph, model: &Small) -> Vec<(String, Tensor)> {
    let func = graph.entries.iter().find(|e| e.name == model.entry).expect("the entry");
    let mut next = numbers();
    let param = |value: &tfc_ir::ValueId| {
        let ty = func.ty(*value);
        let size = |d: &tfc::Dim| d.eval(&|_| Some(model.batch as i64)).expect("a size") as usize;
        let shape: Vec<usize> = ty.shape.iter().map(size).collect();
        let n: usize = shape.iter().product();
        let tensor = match ty.dtype {
            DType::F32 => Tensor::from_f64(DType::F32, shape, (0..n).map(|_| next())),
            dtype => {
                let ids = (0..n).map(|_| (next() * model.classes as f64) as i64);
                Tensor::from_i64(dtype, shape, ids)
            }
        };
        (func.values[*value].name.as_deref().unwrap_or_default().to_string(), tensor)
    };
    func.params().iter().map(param).collect()
}

fn train(model: &Small) -> Result<Vec<f32>, String> {
    let graph = tfc::load_with(path(model.file), model.lets).map_err(|e| e.to_string())?;
    let feeds = feeds(&graph, model);
    let module = tfc::compile(&graph).map_err(|e| e.to_string())?;
    let mut losses = vec![];
    for _ in 0..5 {
        let out = module.call(model.entry, feeds.as_slice()).map_err(|e| e.to_string())?;
        losses.push(out.scalar::<f32>(model.loss).map_err(|e| e.to_string())?);
    }
    Ok(losses)
}

#[test]
fn five_steps_make_the_loss_smaller() {
    let mut wrong = String::new();
    for model in MODELS {
        match train(model) {
            Err(e) => {
                let _ = writeln!(wrong, "{} {}: {e}", model.file, model.entry);
            }
            Ok(losses) => {
                let falls = losses.iter().all(|l| l.is_finite()) && losses[4] < losses[0];
                if !falls {
                    let _ = writeln!(wrong, "{} {}: {losses:?}", model.file, model.entry);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_model_is_trained_above() {
    for entry in std::fs::read_dir(models()).expect("models").flatten() {
        let name = entry.path().file_stem().unwrap_or_default().to_string_lossy().into_owned();
        assert!(MODELS.iter().any(|m| m.file == name), "{name} is not in the list");
    }
}
