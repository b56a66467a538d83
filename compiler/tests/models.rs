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
    // With one pixel left at the end, batches this small are normalised to noise.
    small(
        "inception_v3",
        &[("IMAGE", "107"), CLASSES, SHRINK, DROPOUT, ("AUXILIARY", "false"), ("LR", "0.05")],
    ),
    // Deeper, with batches this small, the loss jumps about whatever the first weights are.
    small(
        "resnet50",
        &[("IMAGE", "64"), CLASSES, ("WIDTH", "4"), ("BLOCKS", "[1, 2, 1, 1]"), ("LR", "0.01")],
    ),
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
    let mut graph = tfc::load_with(path(model.file), model.lets).map_err(|e| e.to_string())?;
    graph.entries.retain(|e| e.name == model.entry);
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
    // Two at a time: most of it is compiling.
    let half = |first: usize| {
        let mut wrong = String::new();
        for model in MODELS.iter().skip(first).step_by(2) {
            let result = train(model);
            let falls = |l: &Vec<f32>| l.iter().all(|l| l.is_finite()) && l[4] < l[0];
            if !result.as_ref().is_ok_and(falls) {
                let _ = writeln!(wrong, "{} {}: {result:?}", model.file, model.entry);
            }
        }
        wrong
    };
    let wrong = std::thread::scope(|s| {
        let other = s.spawn(|| half(1));
        half(0) + &other.join().expect("no panic")
    });
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn every_model_is_trained_above() {
    for entry in std::fs::read_dir(models()).expect("models").flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|e| e != "graph") {
            continue;
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        assert!(MODELS.iter().any(|m| m.file == name), "{name} is not in the list");
    }
}

fn tfc(args: &[&str], dir: &Path) -> String {
    let tfc = std::process::Command::new(env!("CARGO_BIN_EXE_tfc"))
        .args(args)
        .current_dir(dir)
        .output()
        .expect("tfc runs");
    let error = String::from_utf8_lossy(&tfc.stderr).into_owned();
    assert!(tfc.status.success(), "tfc {}: {error}", args.join(" "));
    String::from_utf8_lossy(&tfc.stdout).into_owned()
}

/// What `tfc inspect` says about a graph and one entry.
fn inspect(file: &Path, entry: &str) -> serde_json::Value {
    let file = file.display().to_string();
    let text = tfc(&["inspect", &file, "--json", "--entry", entry], &models());
    serde_json::from_str(&text).expect("JSON")
}

fn entry<'a>(graph: &'a serde_json::Value, name: &str) -> &'a serde_json::Value {
    let entries = graph["entries"].as_array().expect("entries");
    entries.iter().find(|e| e["name"] == name).expect("an entry")
}

/// `1234567` as `1,234,567`.
fn grouped(n: i64) -> String {
    let digits = n.to_string();
    let parts: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|c| std::str::from_utf8(c).expect("digits"))
        .collect();
    parts.join(",")
}

/// Parameters and multiply-adds (in millions) as published: by torchvision's
/// documentation of its weights; of Overfeat by the layers of its paper's table; of
/// GPT-2 by its published weights.
const PUBLISHED: &[(&str, i64, f64)] = &[
    ("alexnet", 61_100_840, 714.0),
    ("overfeat", 145_920_872, 2801.0),
    ("vgg_a", 132_863_336, 7609.0),
    ("googlenet", 6_624_904, 1498.0),
    ("inception_v3", 27_161_264, 5713.0),
    ("resnet50", 25_557_032, 4089.0),
    ("gpt", 124_439_808, 145_824.0),
];

/// The entry whose cost a graph's comment tells: it ends with `N parameters.
/// `ENTRY` costs COST.`
fn told(file: &Path) -> String {
    let text = std::fs::read_to_string(file).expect("a graph");
    let before = text.split("` costs\n").next().unwrap_or_default();
    before.rsplit('`').next().unwrap_or_default().to_string()
}

#[test]
fn comments_say_what_inspect_prints_and_others_published() {
    let mut files: Vec<PathBuf> = MODELS.iter().map(|m| path(m.file)).collect();
    files.dedup();
    files.push(models().join("../mlp.graph"));
    files.push(models().join("../convnet.graph"));
    let mut wrong = String::new();
    let mut compared = 0;
    for file in files {
        let name = told(&file);
        let graph = inspect(&file, &name);
        let doc = graph["doc"].as_str().unwrap_or_default().replace('\n', " ");
        let parameters = graph["parameters"].as_i64().expect("a number");
        let entry = entry(&graph, &name);
        let cost = entry["cost"].as_str().expect("a text").to_string();
        let want = format!("{} parameters. `{name}` costs {cost}.", grouped(parameters));
        if !doc.ends_with(&want) {
            let _ = writeln!(wrong, "{}: the comment should end with\n  {want}", file.display());
        }
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if let Some((_, published, millions)) = PUBLISHED.iter().find(|(m, ..)| *m == stem) {
            let adds = cost.split(' ').next().unwrap_or_default().replace(',', "");
            let adds: f64 = adds.parse().expect("a number");
            assert_eq!((parameters, (adds / 1e6).floor()), (*published, *millions), "{stem}");
            compared += 1;
        }
        // Without the second classifier, which only training uses.
        if stem == "inception_v3" {
            assert_eq!(entry["parameters"], 23_834_568);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert_eq!(compared, PUBLISHED.len());
}

#[test]
fn digits_are_told_apart() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = path("digits8").display().to_string();
    let data = models().join("../data").display().to_string();
    let run = |entry: &str, set: &str, more: &[&str]| {
        let (x, y) = (format!("x={data}/digits_{set}.npz"), format!("y={data}/digits_{set}.npz"));
        let mut args = vec!["run", &file, entry, "--feed", &x, "--feed", &y];
        args.extend(["--state", "digits.safetensors"]);
        args.extend(more);
        tfc(&args, dir.path())
    };
    run("train", "train", &["--batch", "32", "--epochs", "8", "--shuffle", "1"]);
    let text = run("evaluate", "test", &[]);
    let accuracy: f64 = text.trim().rsplit(' ').next().unwrap_or_default().parse().expect(&text);
    assert!(accuracy >= 0.97, "{text}");
}

/// The table of docs/models.md has every model, with the numbers of its comment.
#[test]
fn the_page_about_models_is_up_to_date() {
    let page = std::fs::read_to_string(models().join("../../docs/models.md")).expect("a page");
    for model in MODELS {
        let text = std::fs::read_to_string(path(model.file)).expect("a graph");
        let doc: Vec<&str> = text.lines().map_while(|l| l.strip_prefix("///")).collect();
        let doc = doc.join("");
        let parameters = doc.split(" parameters. ").next().and_then(|b| b.rsplit(' ').next());
        let adds = doc.split(" costs ").last().and_then(|c| c.split(' ').next());
        let (parameters, adds) = (parameters.unwrap_or_default(), adds.unwrap_or_default());
        let row =
            format!("| {} | {parameters} | `{}` | {adds} |", model.file, told(&path(model.file)));
        assert!(page.contains(&row), "no `{row}`: run examples/models/table");
    }
}
