//! The Rust examples run, and the library is the same from Rust.

use tfc::{DType::F32, DType::I64, GraphBuilder, Init, Result};

#[path = "../../examples/bench/null_step.rs"]
#[allow(dead_code)]
mod null_step;
#[path = "../../examples/train_mlp.rs"]
mod train_mlp;
#[path = "../../examples/use_graph.rs"]
mod use_graph;

#[test]
fn the_spirals_are_learnt() -> Result<()> {
    train_mlp::main()
}

#[test]
fn steps_without_work_are_measured() -> Result<()> {
    null_step::table(1, 10)
}

#[test]
fn a_graph_file_is_used_from_several_threads() -> Result<()> {
    use_graph::main()
}

/// Entries that share a layer share its variables, in whatever order they use them.
#[test]
fn layers_belong_to_the_graph_not_to_an_entry() -> Result<()> {
    let g = GraphBuilder::new("shared");
    let x = g.input("x", F32, ("B", 3));
    let first = x.apply("layer.dense", &[("units", 4.into())]).named("first");
    let second = x.apply("layer.dense", &[("units", 4.into())]).named("second");
    g.entry("both", &[&x], &[("a", &first), ("b", &second)]);
    g.entry("last", &[&x], &[("b", &second)]);
    let h = g.input("h", F32, ("B", 2));
    let cell = g.op_many("layer.lstm_cell", &[&x, &h, &h], &[], 2);
    g.entry("step", &[&x, &h], &[("h2", &cell[0]), ("c2", &cell[1])]);
    let module = g.compile()?;
    let names = module.vars();
    assert!(names.contains(&"first.w".to_string()), "{names:?}");
    assert!(names.contains(&"second.b".to_string()), "{names:?}");
    let x = ndarray::array![[1.0f32, 2.0, 3.0]];
    let both = module.call("both", (&x,))?;
    let last = module.call("last", (&x,))?;
    assert_eq!(both.array::<f32>("b")?, last.array::<f32>("b")?);
    assert_ne!(both.array::<f32>("a")?, both.array::<f32>("b")?);
    let out = module.call("step", (&x, &ndarray::array![[0.5f32, 0.5]]))?;
    assert_eq!(out.array::<f32>("c2")?.shape(), [1, 2]);
    Ok(())
}

/// embedding 10: other nodes change neither the names nor the first values of a
/// layer's variables.
#[test]
fn names_of_layers_do_not_depend_on_other_nodes() -> Result<()> {
    let build = |other: bool| {
        let g = GraphBuilder::new("names");
        let x = g.input("x", F32, ("B", 3));
        if other {
            let _ = x.relu();
            let _ = x.apply("layer.layer_norm", &[]);
        }
        let h = x.apply("layer.dense", &[("units", 4.into())]).tanh();
        let named = h.apply("layer.dense", &[("units", 4.into())]).named("head");
        let y = named.apply("layer.dense", &[("units", 2.into())]);
        g.entry("f", &[&x], &[("y", &y)]);
        g.compile()
    };
    let (plain, more) = (build(false)?, build(true)?);
    let want = ["dense.w", "dense.b", "head.w", "head.b", "dense_2.w", "dense_2.b"];
    assert_eq!(plain.weights(), want);
    assert_eq!(more.weights(), want);
    for name in want {
        assert_eq!(plain.var::<f32>(name)?, more.var::<f32>(name)?, "{name}");
    }
    Ok(())
}

/// Two steps with one optimizer over one variable say whose state is whose.
#[test]
fn states_of_optimizers_have_names() -> Result<()> {
    let build = |names: Option<[&str; 2]>| {
        let g = GraphBuilder::new("states");
        let w = g.var("w", F32, 2, 1.0);
        let mut steps = vec![];
        for i in 0..2 {
            let step = g.minimize(&(&w * &w).sum(), &[&w], "optim.momentum", &[]);
            steps.push(match names {
                Some(names) => step.named(names[i]),
                None => step,
            });
        }
        g.entry("train", &[], &[]).with(&[&steps[0], &steps[1]]);
        g.compile()
    };
    let module = build(Some(["first", "second"]))?;
    assert_eq!(module.vars(), ["w", "first.w.v", "second.w.v"]);
    assert_eq!(module.weights(), ["w"]);
    assert_eq!(build(Some(["both", "both"]))?.vars(), ["w", "both.w.v"]);
    let error = build(None).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("E0453"), "{error}");
    Ok(())
}

/// A learning rate may be a value of the graph.
#[test]
fn optimizers_take_computed_settings() -> Result<()> {
    let g = GraphBuilder::new("rates");
    let w = g.var("w", F32, 2, 1.0);
    let step = g.var("step", I64, (), Init::zeros());
    let rate = g.op("optim.step_decay", &[&step], &[("base", 1.0.into()), ("every", 2.into())]);
    let loss = w.sum();
    let train = g.minimize(&loss, &[&w], "optim.sgd", &[("lr", (&rate).into())]);
    // In the order of the Rust calls: counted after the step.
    let count = step.assign_add(1);
    g.entry("train", &[], &[("rate", &rate)]).with(&[&train, &count]);
    let module = g.compile()?;
    for want in [0.0f32, -1.0, -1.1, -1.2, -1.21] {
        module.call("train", ())?;
        let got = module.var::<f32>("w")?[[0]];
        assert!((got - want).abs() < 1e-6, "{got} but {want}");
    }
    Ok(())
}
