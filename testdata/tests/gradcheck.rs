//! Whole networks differentiate right: against finite differences in f64.

use tfc::gradcheck::{Options, gradcheck};

#[track_caller]
fn agrees(text: &str, gradients: usize) {
    let graph = tfc::parse(text).unwrap_or_else(|e| panic!("{e}"));
    let report = gradcheck(&graph, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
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
    let report = gradcheck(&graph, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    assert!(!report.ok());
    assert!(report.table().contains("OFF"), "{}", report.table());
    let unknown = Options { entry: Some("train".into()), ..Options::default() };
    assert_eq!(gradcheck(&graph, &unknown).unwrap_err().code(), "E0911");
}
