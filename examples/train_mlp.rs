//! Trains a small network on two spirals, all from Rust: build the graph, compile
//! it in memory, call it.
//!
//!     cargo run --release -p tfc --example train_mlp

use ndarray::{Array1, Array2, ArrayD};
use tfc::{DType::F32, DType::I32, GraphBuilder, Init};

fn main() -> Result<(), tfc::Error> {
    let g = GraphBuilder::new("spirals");
    let x = g.input("x", F32, ("B", 2));
    let y = g.input("y", I32, "B");

    // Two hidden layers, written as one would write them on a board.
    let w1 = g.var("w1", F32, [2, 32], Init::expr("init.glorot(seed: 1)"));
    let b1 = g.var("b1", F32, 32, 0.0);
    let w2 = g.var("w2", F32, [32, 32], Init::expr("init.glorot(seed: 2)"));
    let b2 = g.var("b2", F32, 32, 0.0);
    let w3 = g.var("w3", F32, [32, 2], Init::expr("init.glorot(seed: 3)"));
    let b3 = g.var("b3", F32, 2, 0.0);
    let h = x.matmul(&w1).add(&b1).tanh();
    let h = h.matmul(&w2).add(&b2).tanh();
    let logits = (h.matmul(&w3) + &b3).named("logits");

    let loss = g.op("nn.softmax_xent", &[&logits, &y], &[]).mean();
    let params = [&w1, &b1, &w2, &b2, &w3, &b3];
    let step = g.minimize(&loss, &params, "optim.adam", &[("lr", 0.01.into())]);
    let hits = logits.argmax(1).eq(&y).cast(F32).mean();

    g.entry("train", &[&x, &y], &[("loss", &loss)]).with(&[&step]);
    g.entry("accuracy", &[&x, &y], &[("rate", &hits)]);
    let module = g.compile()?;

    let (points, labels) = spirals(256);
    let train = module.entry::<ArrayD<f32>>("train")?;
    for i in 0..400 {
        let loss = train.call((&points, &labels))?;
        if i % 100 == 0 {
            println!("step {i:3}  loss {:.3}", loss.sum());
        }
    }
    let rate = module.call("accuracy", (&points, &labels))?.scalar::<f32>("rate")?;
    println!("accuracy {:.0} %", rate * 100.0);
    assert!(rate > 0.9, "the spirals are learnt");
    Ok(())
}

/// Points of two interleaved spirals, and which one each is of.
fn spirals(n: usize) -> (Array2<f32>, Array1<i32>) {
    let labels = Array1::from_shape_fn(n, |i| (i % 2) as i32);
    let points = Array2::from_shape_fn((n, 2), |(i, axis)| {
        let t = i as f32 / n as f32 * 6.0;
        let turn = t + std::f32::consts::PI * (i % 2) as f32;
        let r = 0.2 + t / 6.0;
        if axis == 0 { r * turn.cos() } else { r * turn.sin() }
    });
    (points, labels)
}
