//! Whole networks differentiate right: against finite differences in f64.

use tfc::gradcheck::{GradcheckOptions, gradcheck};
use tfc_ir::{DType, Tensor};

#[track_caller]
fn agrees(text: &str, gradients: usize) {
    let graph = tfc::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let report = gradcheck(&graph, &GradcheckOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    assert!(report.ok(), "{}", report.table());
    assert_eq!(report.rows.len(), gradients, "{}", report.table());
    assert!(report.rows.iter().all(|r| r.checked > 0), "{}", report.table());
}

#[test]
fn mlp() {
    agrees(
        "graph g\nuse nn\nuse optim\ndim B\n\
         var w1: f32[4, 5] = nn.glorot(seed: 1)\nvar b1: f32[5] = zeros\n\
         var w2: f32[5, 3] = nn.glorot(seed: 2)\nvar b2: f32[3] = zeros\n\
         entry train(x: f32[B, 4], y: i32[B]) -> (loss: f32[]) {\n\
           h = relu(x @ w1 + b1)\n\
           loss = mean(nn.softmax_xent(h @ w2 + b2, y))\n\
           minimize loss over [w1, b1, w2, b2] with optim.adam(lr: 1e-3)\n\
           return loss\n}\n",
        4,
    );
}

#[test]
fn convnet() {
    agrees(
        "graph g\nuse nn\ndim B\n\
         var k: f32[2, 1, 3, 3] = f32[2, 1, 3, 3](0.1)\n\
         var w: f32[18, 3] = nn.glorot(seed: 2)\n\
         entry slope(x: f32[B, 1, 6, 6], y: i32[B]) -> (dk: f32[2, 1, 3, 3], dw: f32[18, 3], dx: f32[B, 1, 6, 6]) {\n\
           h = tanh(conv2d(x, k, pad: [1, 1, 1, 1]))\n\
           p = max_pool(h, window: [2, 2])\n\
           loss = mean(nn.softmax_xent(reshape(p, [B, 18]) @ w, y))\n\
           (dk, dw, dx) = grad(loss, wrt: [k, w, x])\n\
           return dk, dw, dx\n}\n",
        3,
    );
}

#[test]
fn layer_norm_and_a_residual() {
    agrees(
        "graph g\ndim B\n\
         var gain: f64[6] = ones\nvar shift: f64[6] = zeros\n\
         var w: f64[6, 6] = f64[6, 6](0.1)\n\
         func norm(x) {\n\
           c = x - mean(x, axis: -1, keep: true)\n\
           return c * rsqrt(mean(c * c, axis: -1, keep: true) + 1e-5) * gain + shift\n}\n\
         entry slope(x: f64[B, 6]) -> (a: f64[6], b: f64[6], c: f64[6, 6], d: f64[B, 6]) {\n\
           h1 = x + tanh(norm(x) @ w)\n\
           h2 = h1 + tanh(norm(h1) @ w)\n\
           (a, b, c, d) = grad(mean(h2 * h2 * h2), wrt: [gain, shift, w, x])\n\
           return a, b, c, d\n}\n",
        4,
    );
}

#[test]
fn attention() {
    agrees(
        "graph g\nuse nn\ndim T\n\
         var q: f32[4, 4] = nn.glorot(seed: 1)\nvar k: f32[4, 4] = nn.glorot(seed: 2)\n\
         var v: f32[4, 4] = nn.glorot(seed: 3)\n\
         entry slope(x: f32[T, 4]) -> (dq: f32[4, 4], dk: f32[4, 4], dv: f32[4, 4]) {\n\
           p = nn.softmax((x @ q) @ transpose(x @ k) * 0.5)\n\
           y = x + p @ (x @ v)\n\
           (dq, dk, dv) = grad(mean(y * y * y), wrt: [q, k, v])\n\
           return dq, dk, dv\n}\n",
        3,
    );
}

#[test]
fn second_derivatives_stopped_values_and_cotangents() {
    agrees(
        "graph g\nvar w: f32[3] = ones\n\
         entry f(x: f32[3], ct: f32[3]) -> (a: f32[3], b: f32[3], c: f32[3]) {\n\
           inner = grad(sum(tanh(x * w) * w), wrt: x)\n\
           a = grad(sum(inner * inner), wrt: w)\n\
           b = grad(sum(x * stop_gradient(x * x)), wrt: x)\n\
           c = grad(exp(x * w), wrt: x, ct: ct)\n\
           return a, b, c\n}\n",
        4,
    );
}

/// A gradient the user wrote, and wrote wrong.
#[test]
fn a_wrong_gradient_is_found() {
    let text = "graph g\n\
        func cube(x) { return x * x * x } grad(x, out, ct) { return ct * 2.0 * x * x }\n\
        entry f(x: f32[3]) -> (d: f32[3]) { return grad(sum(cube(x)), wrt: x) }\n";
    let graph = tfc::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let report = gradcheck(&graph, &GradcheckOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    assert!(!report.ok());
    assert!(report.table().contains("OFF"), "{}", report.table());
    let unknown = GradcheckOptions { entry: Some("train".into()), ..GradcheckOptions::default() };
    assert_eq!(gradcheck(&graph, &unknown).unwrap_err().code(), "E0911");
}

/// Gradients inside loops and branches, in the runs these make: by what a loop
/// carries, by what is outside, by a variable the loop writes.
#[test]
fn inside_control_flow() {
    let text = "graph g\ndim T\nvar w: f32[3] = ones\n\
        entry fit(x: f32[T, 3], steps: i32[]) -> (z: f32[3]) {\n\
          h = tanh(x)\n\
          (_i, z) = while (i = 0, z = zeros([3])) i < steps {\n\
            loss = mean((sum(h * z, axis: 1) - 1.0) ** 2) + sum(stop_gradient(z) * z) * 0.01\n\
            yield i + 1, z - 0.1 * grad(loss, wrt: z)\n  }\n\
          return z\n}\n\
        entry outside(x: f32[3], steps: i32[]) -> (g: f32[3]) {\n\
          h = exp(x)\n\
          (_i, g, _s) = while (i = 0, g = zeros([3]), s = h) i < steps {\n\
            (dx, ds) = grad(sum(s * h * x), wrt: [x, s])\n\
            yield i + 1, g + dx, tanh(ds + s)\n  }\n\
          return g\n}\n\
        entry trains(x: f32[3], steps: i32[]) -> (l: f32[]) {\n\
          (_i, l) = while (i = 0, l = 0.0) i < steps {\n\
            loss = sum(tanh(w * x) * w)\n\
            g = grad(loss, wrt: w)\n\
            w -= 0.1 * g\n\
            yield i + 1, loss\n  }\n\
          return l\n}\n\
        entry branch(x: f32[3], on: bool[]) -> (y: f32[3]) {\n\
          y = if on { yield grad(sum(x * x * x), wrt: x) } else { yield grad(exp(x), wrt: x, ct: x) }\n\
          return y\n}\n\
        entry nested(x: f32[3], steps: i32[]) -> (y: f32[3]) {\n\
          (_i, y) = while (i = 0, y = x) i < steps {\n\
            n = if i > 0 {\n\
              (_j, k) = while (j = 0, k = y) j < 2 {\n\
                yield j + 1, k - 0.05 * grad(sum(k * k * y * x), wrt: k)\n      }\n\
              yield k\n\
            } else { yield y * 1.1 }\n\
            yield i + 1, n\n  }\n\
          return y\n}\n";
    let graph = tfc::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let feeds = [("steps".to_string(), Tensor::from_i64(DType::I32, vec![], [5]))].into();
    let report = gradcheck(&graph, &GradcheckOptions { feeds, ..GradcheckOptions::default() })
        .unwrap_or_else(|e| panic!("{e}"));
    assert!(report.ok() && report.unchecked.is_empty(), "{}", report.table());
    let runs: Vec<_> = report.rows.iter().map(|r| (r.by.as_str(), r.runs, r.checked)).collect();
    assert_eq!(
        runs,
        [
            ("z", Some(3), 12),
            ("x", Some(3), 12),
            ("s", Some(3), 12),
            ("w", Some(3), 12),
            ("x", Some(1), 4),
            ("x", Some(1), 4),
            ("k", Some(3), 12),
        ],
        "{}",
        report.table()
    );
    assert!(report.table().contains("ok, in 3 runs of its block"), "{}", report.table());
}

#[test]
fn a_wrong_gradient_in_a_loop_is_found() {
    let text = "graph g\n\
        func cube(x) { return x * x * x } grad(x, out, ct) { return ct * 2.0 * x * x }\n\
        entry f(x: f32[3]) -> (y: f32[3]) {\n\
          (_i, y) = while (i = 0, y = x) i < 2 {\n\
            yield i + 1, y - 0.1 * grad(sum(cube(y)), wrt: y)\n  }\n\
          return y\n}\n";
    let graph = tfc::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let report = gradcheck(&graph, &GradcheckOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!((report.ok(), report.rows[0].runs), (false, Some(2)), "{}", report.table());
}

/// What is not checked is listed with the reason.
#[test]
fn what_is_not_checked_says_why() {
    let text = "graph g\nvar w: f32[3] = ones\n\
        entry never(x: f32[3]) -> (y: f32[3]) {\n\
          y = if any(x > 100.0) { yield grad(sum(x * x), wrt: x) } else { yield x }\n\
          return y\n}\n\
        entry cond(x: f32[]) -> (y: f32[]) {\n\
          y = while (z = x) grad(z * z, wrt: z) > 0.1 { yield z * 0.5 }\n\
          return y\n}\n\
        entry state(x: f32[3]) -> (y: f32[3]) {\n\
          (_i, y) = while (i = 0, y = x) i < 3 {\n\
            v = if i > 0 {\n      w += 1.0\n      yield w * y\n    } else { yield y }\n\
            yield i + 1, y - 0.1 * grad(sum(v * v), wrt: y)\n  }\n\
          return y\n}\n";
    let graph = tfc::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let report = gradcheck(&graph, &GradcheckOptions::default()).unwrap_or_else(|e| panic!("{e}"));
    let mut why: Vec<&str> = report.unchecked.iter().map(|u| u.entry.as_str()).collect();
    why.sort();
    assert_eq!((why, report.rows.len()), (vec!["cond", "never", "state"], 0));
    let table = report.table();
    for reason in [
        "never: the gradient of sum is not checked: its block never runs",
        "cond: the gradient of mul is not checked: it stands in the condition of a loop",
        "state: the gradient of sum is not checked: its value reads variables or queues",
    ] {
        assert!(table.contains(reason), "{table}");
    }
    assert_eq!(report.json().matches("unchecked").count(), 3);
    // With feeds that get there, it is.
    let x = Tensor::from_f64(DType::F32, vec![3], [1.0, 101.0, -2.0]);
    let options = GradcheckOptions {
        entry: Some("never".into()),
        feeds: [("x".to_string(), x)].into(),
        ..GradcheckOptions::default()
    };
    let report = gradcheck(&graph, &options).unwrap_or_else(|e| panic!("{e}"));
    assert!(report.ok() && report.rows.len() == 1, "{}", report.table());
}
