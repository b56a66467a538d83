//! The models that matter, small: the same numbers after 50 steps whoever computes them, and
//! the same bits when they are computed again in the same way.

use super::mpi::{MPIRUN, mpirun};
use super::{command, ok, run, tfc, variables};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tfc::ndarray::{ArrayD, Axis};
use tfc::net::local;

const MLP: &str = "graph m
use init
use nn
use optim
dim B
var w1: f32[20, 16] = init.glorot(seed: 1)
var b1: f32[16] = zeros
var w2: f32[16, 3] = init.glorot(seed: 2)
var b2: f32[3] = zeros
entry train(a: f32[B, 20], y: i32[B]) -> (loss: f32[]) {
  loss = mean(nn.softmax_xent(relu(a @ w1 + b1) @ w2 + b2, y))
  minimize loss through optim.clip_global_norm(limit: 1.0) with optim.adam(lr: 0.01)
  return loss
}
entry data(seed: i64[]) -> (a: f32[48, 20], y: i32[48]) {
  a = random_normal(seed, shape: [48, 20], dtype: f32)
  return a, argmax(a[:, :3], axis: 1)
}
";

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

const BATCH: usize = 16;
const STEPS: usize = 50;

type Weights = BTreeMap<String, Vec<f32>>;

/// `T` is what the first feed is made of.
fn agrees<T: tfc::Element>(graph: &str) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    std::fs::write(dir.join("m.graph"), graph).unwrap();
    ok(tfc(dir, "compile m.graph -o m"));
    ok(run(dir, "./m data --feed seed=3 --out a=a.npy --out y=y.npy"));
    let train =
        format!("train --feed a=a.npy --feed y=y.npy --batch {BATCH} --steps {STEPS} --epochs 20");
    let learned = |program: &str, line: &str| {
        let _ = std::fs::remove_file(dir.join("s.safetensors"));
        let line = format!("{line} ./m {train} --state s.safetensors");
        ok(command(dir, program, &line).output().unwrap());
        variables(dir.join("s.safetensors")).into_iter().collect::<Weights>()
    };
    ok(run(dir, &format!("./m {train} --state one.safetensors")));
    let one: Weights = variables(dir.join("one.safetensors")).into_iter().collect();
    let check = |how: &str, learn: &dyn Fn() -> Weights| {
        let other = learn();
        assert!(one.len() >= 9 && one.keys().eq(other.keys()), "{how}: {:?}", other.keys());
        for (name, x) in &one {
            let most = x.iter().zip(&other[name]).fold(0f32, |m, (p, q)| m.max((p - q).abs()));
            assert!(most < 1e-5, "{how}: {name} differs by {most}");
        }
        assert!(other == learn(), "{how}: two runs, the same bits");
    };
    for how in ["-n 2", "-n 4", "--ps 2 -n 2", "--ps 3 -n 4"] {
        check(how, &|| learned(env!("CARGO_BIN_EXE_tfc"), &format!("launch {how}")));
    }
    for size in [2, 4] {
        check(&format!("{size} threads"), &|| threads::<T>(graph, size));
    }
    let Some(mpirun) = mpirun("") else { return };
    for size in [2, 4] {
        check(&format!("{size} by MPI"), &|| learned(&mpirun, &format!("{MPIRUN} -n {size}")));
    }
}

/// What workers learn that are threads of this process.
fn threads<T: tfc::Element>(graph: &str, size: usize) -> Weights {
    let graph = tfc::parse(graph).unwrap();
    let options = tfc::Options::new().replicas(true).threads(1);
    let work = |group: tfc::net::Group| {
        let group = Arc::new(group);
        let module = tfc::compile_with(&graph, &options).unwrap();
        let data = module.entry::<(ArrayD<T>, ArrayD<i32>)>("data").unwrap();
        let (a, y) = data.call((3i64,)).unwrap();
        module.join(group.clone());
        for step in 0..STEPS {
            let lo = step * BATCH % y.len();
            let (lo, hi) = group.part(lo, lo + BATCH);
            let part = (lo..hi).into();
            let (a, y) = (a.slice_axis(Axis(0), part), y.slice_axis(Axis(0), part));
            module.call("train", (&a, &y)).unwrap();
        }
        let all = module.vars().into_iter();
        all.filter_map(|name| Some((module.var::<f32>(&name).ok()?, name)))
            .map(|(value, name)| (name, value.into_iter().collect()))
            .collect::<Weights>()
    };
    let learned = std::thread::scope(|s| {
        let groups = local::groups(size, Duration::from_secs(60)).into_iter();
        let work = &work;
        let all: Vec<_> = groups.map(|group| s.spawn(move || work(group))).collect();
        all.into_iter().map(|w| w.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(learned.iter().all(|l| *l == learned[0]), "all workers have the same bits");
    learned.into_iter().next().unwrap()
}

#[test]
fn an_mlp() {
    agrees::<f32>(MLP);
}

#[test]
fn an_lstm_with_a_sharded_embedding_and_sampled_softmax() {
    agrees::<i32>(LSTM);
}

#[test]
fn a_convnet() {
    agrees::<f32>(CONVNET);
}
