//! The models that matter, small: the same numbers after 50 steps whoever computes them.

use super::{ok, run, tfc, variables};

/// Embedding and output weights are large enough to be spread over servers, and to be
/// taken by rows there. All workers draw the same sample.
const LSTM: &str = "graph m
use init
use layer
use nn
use optim
dim B
let V = 3000
let H = 8
var embedding: f32[V, H] = init.normal(std: 0.3, seed: 1)
var out_w: f32[V, H] = init.normal(std: 0.3, seed: 2)
var out_b: f32[V] = zeros
var step: i64[] = zeros
model lstm = layer.lstm(units: H)
entry train(a: i32[B, 6], y: i32[B]) -> (loss: f32[]) {
  step += 1
  sample = cast(random_uniform(step, shape: [20], dtype: f32) * 2999.0, to: i32)
  x = embedding[transpose(a)]
  h = lstm(x)
  last = h[5]
  loss = mean(nn.sampled_softmax(
    last, y, out_w[y], out_b[y], sample, out_w[sample], out_b[sample], range: V))
  minimize loss with optim.adagrad(lr: 0.2)
  return loss
}
entry data(seed: i64[]) -> (a: i32[48, 6], y: i32[48]) {
  a = cast(random_uniform(seed, shape: [48, 6], dtype: f32) * 2999.0, to: i32)
  return a, a[:, 0] % 50
}
";

const CONVNET: &str = "graph m
use init
use nn
use optim
dim B
var k1: f32[4, 1, 3, 3] = init.conv_he(seed: 1)
var c1: f32[4, 1, 1] = zeros
var k2: f32[6, 4, 3, 3] = init.conv_he(seed: 2)
var c2: f32[6, 1, 1] = zeros
var w: f32[54, 3] = init.glorot(seed: 3)
var b: f32[3] = zeros
func model(x: f32[B, 1, 12, 12]) -> f32[B, 3] {
  h1 = max_pool(relu(conv2d(x, k1, pad: [1, 1, 1, 1]) + c1), window: [2, 2])
  h2 = max_pool(relu(conv2d(h1, k2, pad: [1, 1, 1, 1]) + c2), window: [2, 2])
  return flatten(h2, axis: 1) @ w + b
}
entry train(a: f32[B, 1, 12, 12], y: i32[B]) -> (loss: f32[]) {
  loss = mean(nn.softmax_xent(model(a), y))
  minimize loss with optim.momentum(lr: 0.05)
  return loss
}
entry data(seed: i64[]) -> (a: f32[48, 1, 12, 12], y: i32[48]) {
  a = random_normal(seed, shape: [48, 1, 12, 12], dtype: f32)
  return a, argmax(flatten(a, axis: 1)[:, :3], axis: 1)
}
";

fn agrees(graph: &str) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("m.graph"), graph).unwrap();
    ok(tfc(dir, "compile m.graph -o m"));
    ok(run(dir, "./m data --feed seed=3 --out a=a.npy --out y=y.npy"));
    let train = "./m train --feed a=a.npy --feed y=y.npy --batch 16 --steps 50 --epochs 20";
    ok(run(dir, &format!("{train} --state one.safetensors")));
    let one = variables(dir.join("one.safetensors"));
    for how in ["-n 2", "-n 4", "--ps 2 -n 2", "--ps 3 -n 4"] {
        let _ = std::fs::remove_file(dir.join("s.safetensors"));
        ok(tfc(dir, &format!("launch {how} {train} --state s.safetensors")));
        let other = variables(dir.join("s.safetensors"));
        assert!(one.len() >= 9 && one.len() == other.len());
        for ((name, x), (_, y)) in one.iter().zip(&other) {
            let most = x.iter().zip(y).fold(0f32, |m, (p, q)| m.max((p - q).abs()));
            assert!(most < 1e-5, "{how}: {name} differs by {most}");
        }
    }
}

#[test]
fn an_lstm_with_an_embedding_on_servers_and_sampled_softmax() {
    agrees(LSTM);
}

#[test]
fn a_convnet() {
    agrees(CONVNET);
}
