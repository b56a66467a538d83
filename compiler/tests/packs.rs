//! Weights are kept packed between calls, and never used when they are old.

use tfc::ndarray::Array2;

const GRAPH: &str = "graph packs
var w: f32[64, 48] = ones

entry predict(x: f32[8, 64]) -> (y: f32[8, 48]) { return matmul(x, w) }

entry set(v: f32[64, 48]) { assign(w, v) }

/// Reads, writes, reads.
entry step(x: f32[8, 64]) -> (y: f32[8, 48], z: f32[8, 48]) {
  y = matmul(x, w)
  w += 1.0
  return y, matmul(x, w)
}

/// Reads three times, then writes.
entry learn(x: f32[8, 64]) -> (a: f32[8, 48], b: f32[8, 48], c: f32[8, 48]) {
  a = matmul(x, w)
  b = matmul(x + 1.0, w)
  c = matmul(x + 2.0, w)
  w += 1.0
  return a, b, c
}
";

#[test]
fn weights_stay_packed_until_they_are_written() {
    let module = tfc::compile(&tfc::parse(GRAPH).unwrap()).unwrap();
    let x = Array2::<f32>::ones((8, 64));
    let predict = module.entry::<Array2<f32>>("predict").unwrap();
    let value = || predict.call((&x,)).unwrap()[[7, 47]];
    assert_eq!(value(), 64.0);
    assert_eq!(module.model().packed_bytes(), 0);
    for _ in 0..3 {
        assert_eq!(value(), 64.0);
    }
    // 48 columns are whole panels on every machine, or 64 are.
    let kept = module.model().packed_bytes();
    assert!((64 * 48 * 4..=64 * 64 * 4).contains(&kept), "{kept}");
    for round in 1..4 {
        let v = Array2::<f32>::from_elem((64, 48), round as f32);
        module.entry::<()>("set").unwrap().call((&v,)).unwrap();
        for _ in 0..3 {
            assert_eq!(value(), 64.0 * round as f32);
        }
        assert_eq!(module.model().packed_bytes(), kept);
    }
    // A call that writes the variable sees its own writes.
    let step = module.entry::<(Array2<f32>, Array2<f32>)>("step").unwrap();
    for round in 3..6 {
        let (y, z) = step.call((&x,)).unwrap();
        assert_eq!((y[[0, 0]], z[[0, 0]]), (64.0 * round as f32, 64.0 * (round + 1) as f32));
        assert_eq!(value(), 64.0 * (round + 1) as f32);
    }
}

/// Where a call writes a variable last, its products use a pack of this call, in the memory of
/// the last call's.
#[test]
fn weights_stay_packed_within_a_call() {
    let module = tfc::compile(&tfc::parse(GRAPH).unwrap()).unwrap();
    let x = Array2::<f32>::ones((8, 64));
    let learn = module.entry::<(Array2<f32>, Array2<f32>, Array2<f32>)>("learn").unwrap();
    for round in 1..5 {
        let (a, b, c) = learn.call((&x,)).unwrap();
        let once = 64.0 * round as f32;
        assert_eq!([a[[0, 0]], b[[3, 9]], c[[7, 47]]], [once, 2.0 * once, 3.0 * once]);
        assert!((64 * 48 * 4..=64 * 64 * 4).contains(&module.model().packed_bytes()));
    }
}
