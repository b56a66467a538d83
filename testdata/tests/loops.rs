//! Training through loops: a recurrent network over sequences whose length is
//! known only when it runs.

use ndarray::{Array1, Array3};
use tfc_testdata::directive::Directive;
use tfc_testdata::ways::{Subject, scratch};

fn rnn() -> tfc_ir::Graph {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/rnn.graph");
    tfc::load::load(path).expect("the example")
}

/// Sequences of noise; the kind is the sign of what they begin with.
fn sequences(batch: usize, steps: usize, seed: &mut u64) -> (Array3<f32>, Array1<i32>) {
    let mut next = || {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    };
    let x = Array3::from_shape_fn((batch, steps, 4), |_| next());
    let y = Array1::from_shape_fn(batch, |i| (x[[i, 0, 0]] > 0.0) as i32);
    (x, y)
}

#[test]
fn a_recurrent_network_learns_sequences_of_any_length() {
    let module = tfc::compile(&rnn()).expect("the example");
    let mut seed = 7;
    let mut losses = vec![];
    for step in 0..240 {
        let (x, y) = sequences(64, [3, 6, 4][step % 3], &mut seed);
        losses.push(module.call("train", (&x, &y)).unwrap().scalar::<f32>("loss").unwrap());
    }
    let mean = |l: &[f32]| l.iter().sum::<f32>() / l.len() as f32;
    let (first, last) = (mean(&losses[..20]), mean(&losses[220..]));
    assert!(last < 0.4 * first, "the loss falls: {first} to {last}");
    // Longer than any it was trained on.
    let (x, y) = sequences(200, 9, &mut seed);
    let class = module.call("predict", (&x,)).unwrap();
    let class = class.array::<i32>("class").unwrap();
    let right = class.iter().zip(&y).filter(|(a, b)| a == b).count();
    assert!(right > 150, "{right} of 200");
}

#[test]
fn a_recurrent_network_trains_alike_in_every_way() {
    let dir = scratch();
    let directive = Directive::parse("//! run; y = int 0..2; B = 3,1,5; T = 4,1,7").unwrap();
    let subject = Subject::from_graph("rnn", directive, rnn(), dir.path()).unwrap();
    assert_eq!(subject.agree().unwrap(), 6);
}
