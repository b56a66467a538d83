//! Trains a small network on two spirals, all from Rust: build the graph from the
//! library's layers, compile it in memory, call it, watch it learn.
//!
//!     cargo run --release -p tfc --example train_mlp

use ndarray::{Array1, Array2, ArrayD};
use tfc::{DType::F32, DType::I32, GraphBuilder};

pub fn main() -> Result<(), tfc::Error> {
    let g = GraphBuilder::new("spirals");
    let x = g.input("x", F32, ("B", 2));
    let y = g.input("y", I32, "B");
    let mut h = x.clone();
    for _ in 0..2 {
        h = h.apply("layer.dense", &[("units", 32.into())]).tanh();
    }
    let logits = h.apply("layer.dense", &[("units", 2.into())]).named("logits");
    let loss = g.op("nn.softmax_xent", &[&logits, &y], &[]).mean();
    let step = g.minimize(&loss, &[], "optim.adam", &[("lr", 0.01.into())]);
    let rate = g.op("nn.accuracy", &[&logits, &y], &[]);
    g.entry("train", &[&x, &y], &[("loss", &loss), ("rate", &rate)]).with(&[&step]);
    g.entry("test", &[&x, &y], &[("rate", &rate)]);
    let module = g.compile()?;

    let (points, labels) = spirals(256);
    let train = module.entry::<(ArrayD<f32>, ArrayD<f32>)>("train")?;
    for i in 0..=400 {
        let (loss, rate) = train.call((&points, &labels))?;
        if i % 50 == 0 {
            println!("step {i:3}  loss {:.3}  right {:3.0} %", loss.sum(), 100.0 * rate.sum());
        }
    }
    let rate = module.call("test", (&points, &labels))?.scalar::<f32>("rate")?;
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
