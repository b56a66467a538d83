//! A small network that is trained in a moment, and data for it.

use super::support::{ok, run, tfc};

pub(crate) const GRAPH: &str = "graph m
use nn
use optim
dim B
var w1: f32[12, 16] = nn.glorot(seed: 1)
var b1: f32[16] = zeros
var w2: f32[16, 3] = nn.glorot(seed: 2)
var b2: f32[3] = zeros
func net(x: f32[B, 12]) -> f32[B, 3] { return tanh(x @ w1 + b1) @ w2 + b2 }
entry predict(x: f32[B, 12]) -> (class: i32[B]) { return argmax(net(x), axis: 1) }
entry train(x: f32[B, 12], y: i32[B]) -> (loss: f32[]) {
  loss = mean(nn.softmax_xent(net(x), y))
  minimize loss over [w1, b1, w2, b2] through optim.clip_global_norm(limit: 1.0) with optim.adam(lr: 1e-2)
  return loss
}
entry data(seed: i64[]) -> (x: f32[96, 12], y: i32[96]) {
  x = random_normal(seed, shape: [96, 12], dtype: f32)
  return x, argmax(x[:, :3] + x[:, 3:6], axis: 1)
}
";

/// A folder with the program `m`, and data.
pub(crate) fn project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("m.graph"), GRAPH).unwrap();
    ok(tfc(dir.path(), "compile m.graph -o m"));
    ok(run(dir.path(), "./m data --feed seed=7 --out x=x.npy --out y=y.npy"));
    dir
}
