//! Rewrites by default round differently and nothing else: what is finite as
//! written stays finite, in every element type.

use tfc::driver::Math;
use tfc::load::{Files, parse_as};
use tfc::{Options, compile_with};
use tfc_ir::{DType, Tensor};

/// Results of the entry `f` in one mode.
fn results(text: &str, math: Math, feeds: &[(&str, DType, &[usize], &[f64])]) -> Vec<Vec<f64>> {
    let graph = parse_as("finite.graph", text, &Files::in_dir(std::path::Path::new("")));
    let graph = graph.unwrap_or_else(|e| panic!("{e}\n{text}")).graph;
    let mut options = Options::default();
    options.math = math;
    let module = compile_with(&graph, &options).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let feeds: Vec<(String, Tensor)> = feeds
        .iter()
        .map(|(name, dtype, shape, values)| {
            let values = values.iter().copied();
            (name.to_string(), Tensor::from_f64(*dtype, shape.to_vec(), values))
        })
        .collect();
    let outputs = module.call("f", feeds.as_slice()).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let names: Vec<String> = outputs.names().map(str::to_string).collect();
    names.iter().map(|n| outputs.tensor(n).map_or(vec![], |t| t.to_f64())).collect()
}

/// By default and strictly the results are these, to a tolerance.
fn gives(text: &str, tol: f64, feeds: &[(&str, DType, &[usize], &[f64])], want: &[&[f64]]) {
    for math in [Math::Default, Math::Strict] {
        let got = results(text, math, feeds);
        assert_eq!(got.len(), want.len(), "{text}");
        for (got, want) in got.iter().zip(want) {
            let near = |(g, w): (&f64, &f64)| (g - w).abs() <= tol * w.abs();
            let same = got.len() == want.len() && got.iter().zip(*want).all(near);
            assert!(same, "{math:?}: {got:?}, not {want:?}\n{text}");
        }
    }
}

const F16: DType = DType::F16;

#[test]
fn values_2_products_with_constants_do_not_overflow() {
    let text = "graph g\nentry f(x: f16[1]) -> (y) { return x * 300 * 300 / 300 / 300 }\n";
    gives(text, 5e-3, &[("x", F16, &[1], &[0.1])], &[&[0.1]]);
    let text = "graph g\nentry f(x: f16[2]) -> (y) { return x / 1e-5 }\n";
    gives(text, 1e-2, &[("x", F16, &[2], &[0.0, 1e-5])], &[&[0.0, 1.0]]);
    let text = "graph g\nentry f(x: f32[2]) -> (y) { return x / 1e-40 }\n";
    gives(text, 1e-5, &[("x", DType::F32, &[2], &[0.0, 1e-38])], &[&[0.0, 100.0]]);
}

#[test]
fn values_2_sums_and_products_are_scaled_before_they_overflow() {
    let text = "graph g\nentry f(x: f16[100]) -> (y) { return sum(x / 100.0) }\n";
    gives(text, 5e-3, &[("x", F16, &[100], &[1000.0; 100])], &[&[1000.0]]);
    let text = "graph g\nentry f(q: f16[1, 64], k: f16[64, 1]) -> (y) { return (q * 0.125) @ k }\n";
    let feeds: [(&str, DType, &[usize], &[f64]); 2] =
        [("q", F16, &[1, 64], &[60.0; 64]), ("k", F16, &[64, 1], &[40.0; 64])];
    gives(text, 5e-3, &feeds, &[&[19200.0]]);
}

#[test]
fn values_2_quotients_of_small_and_large_numbers() {
    let text =
        "graph g\nentry f(x: f16[1, 3]) -> (y) { return x / sum(abs(x), axis: 1, keep: true) }\n";
    let x = [1e-5, 2e-6, 0.0];
    gives(text, 2e-2, &[("x", F16, &[1, 3], &x)], &[&[0.8333, 0.1667, 0.0]]);
    let text = "graph g\nentry f(x: f16[1], y: f16[1], z: f16[1]) -> (a, b) {\n  a = x / y / z\n  b = y / (x / z)\n  return a, b\n}\n";
    let feeds: [(&str, DType, &[usize], &[f64]); 3] =
        [("x", F16, &[1], &[6e4]), ("y", F16, &[1], &[300.0]), ("z", F16, &[1], &[300.0])];
    gives(text, 5e-3, &feeds, &[&[0.6667], &[1.5]]);
}

#[test]
fn values_2_unrelated_constants_do_not_meet_at_infinity() {
    let text = "graph g\nentry f(x: f32[1]) -> (a, b, c) {\n  a = x * 1e20 * 1e20\n  b = x * 1e30 * 1e30 * 1e-30\n  c = x * 1e30 * 1e30 * 1e-30 * 1e-30\n  return a, b, c\n}\n";
    gives(text, 1e-5, &[("x", DType::F32, &[1], &[1e-25])], &[&[1e15], &[1e5], &[1e-25]]);
}

#[test]
fn values_4_pieces_with_two_forms_of_one_constant() {
    let text = "graph m\nentry f(x: f32[3], s: f32[3]) -> (r0) {\n  (_i, u) = while (i = 0, u = x) i < 4 { yield i + 1, tanh(u) / cast(i + 1, to: f32) }\n  return grad(u, wrt: x, ct: s)\n}\n";
    let feeds: [(&str, DType, &[usize], &[f64]); 2] =
        [("x", DType::F32, &[3], &[0.3, -0.2, 1.0]), ("s", DType::F32, &[3], &[1.0, 2.0, 0.5])];
    let want = results(text, Math::Strict, &feeds);
    let got = results(text, Math::Fast, &feeds);
    for (w, g) in want[0].iter().zip(&got[0]) {
        assert!((w - g).abs() <= 1e-5 * w.abs(), "{got:?}, not {want:?}");
    }
}

/// values 9: sums with constants are regrouped with `--fast-math` alone, so the
/// old way of rounding to whole numbers works.
#[test]
fn values_9_sums_as_written_keep_their_rounding() {
    let text = "graph g\nentry f(x: f32[2]) -> (y) { return (x + 12582912.0) - 12582912.0 }\n";
    gives(text, 0.0, &[("x", DType::F32, &[2], &[2.3, -7.6])], &[&[2.0, -8.0]]);
    let got = results(text, Math::Fast, &[("x", DType::F32, &[2], &[2.5, -7.5])]);
    assert_eq!(got, [[2.5, -7.5]]);
}
