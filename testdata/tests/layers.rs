//! Every layer and loss of the library against plain loops written here: the result,
//! and the gradient by every input against central differences of the loops.

use ndarray::{ArrayD, IxDyn};
use tfc::{Feed, Result};

type Forward = Box<dyn Fn(&[Vec<f64>]) -> Vec<f64>>;

struct Layer {
    name: &'static str,
    inputs: &'static [(&'static str, &'static [usize])],
    /// Statements of the graph that make `y`.
    body: &'static str,
    forward: Forward,
}

fn layer(
    name: &'static str,
    inputs: &'static [(&'static str, &'static [usize])],
    body: &'static str,
    forward: impl Fn(&[Vec<f64>]) -> Vec<f64> + 'static,
) -> Layer {
    Layer { name, inputs, body, forward: Box::new(forward) }
}

/// One input of eight numbers, element by element.
fn map(name: &'static str, body: &'static str, f: fn(f64) -> f64) -> Layer {
    layer(name, &[("x", &[8])], body, move |a| a[0].iter().map(|x| f(*x)).collect())
}

/// Two inputs of eight numbers, element by element.
fn zip(name: &'static str, body: &'static str, f: fn(f64, f64) -> f64) -> Layer {
    layer(name, &[("x", &[8]), ("t", &[8])], body, move |a| {
        a[0].iter().zip(&a[1]).map(|(x, t)| f(*x, *t)).collect()
    })
}

// Plain loops.

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// The integral of the normal density from 0, by Simpson's rule.
fn normal_cdf(x: f64) -> f64 {
    let n = 2000;
    let h = x / n as f64;
    let density = |t: f64| (-0.5 * t * t).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let weight = |i: usize| if i == 0 || i == n { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 };
    0.5 + (0..=n).map(|i| weight(i) * density(i as f64 * h)).sum::<f64>() * h / 3.0
}

/// [m, k] by [k, n].
fn matmul(a: &[f64], b: &[f64], m: usize, k: usize, n: usize) -> Vec<f64> {
    let mut out = vec![0.0; m * n];
    for i in 0..m {
        for j in 0..n {
            out[i * n + j] = (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
        }
    }
    out
}

fn softmax(row: &[f64]) -> Vec<f64> {
    let total: f64 = row.iter().map(|v| v.exp()).sum();
    row.iter().map(|v| v.exp() / total).collect()
}

fn rows(x: &[f64], width: usize, f: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    x.chunks(width).flat_map(f).collect()
}

/// Brought to mean 0 and variance 1.
fn normal(row: &[f64], eps: f64) -> Vec<f64> {
    let n = row.len() as f64;
    let mean = row.iter().sum::<f64>() / n;
    let variance = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n;
    row.iter().map(|v| (v - mean) / (variance + eps).sqrt()).collect()
}

/// Images [b, i, 4, 4], filters [o, i, 3, 3], padding 1.
fn conv(
    x: &[f64],
    f: &[f64],
    bias: &[f64],
    b: usize,
    i: usize,
    o: usize,
    stride: usize,
) -> Vec<f64> {
    let side = (4 + 2 - 3) / stride + 1;
    let mut out = vec![];
    for n in 0..b {
        for c in 0..o {
            for r in 0..side {
                for s in 0..side {
                    let mut total = bias[c];
                    for k in 0..i {
                        for u in 0..3 {
                            for v in 0..3 {
                                let (y, z) = (r * stride + u, s * stride + v);
                                if (1..5).contains(&y) && (1..5).contains(&z) {
                                    total += x[((n * i + k) * 4 + y - 1) * 4 + z - 1]
                                        * f[((c * i + k) * 3 + u) * 3 + v];
                                }
                            }
                        }
                    }
                    out.push(total);
                }
            }
        }
    }
    out
}

/// Windows of 2 by 2 over images [planes, 4, 4].
fn pool(x: &[f64], f: fn([f64; 4]) -> f64) -> Vec<f64> {
    let mut out = vec![];
    for plane in x.chunks(16) {
        for r in [0, 2] {
            for s in [0, 2] {
                let at = |u: usize, v: usize| plane[(r + u) * 4 + s + v];
                out.push(f([at(0, 0), at(0, 1), at(1, 0), at(1, 1)]));
            }
        }
    }
    out
}

/// [q, d] to keys [k, d] and values [k, e].
fn attention(q: &[f64], k: &[f64], v: &[f64], d: usize, e: usize, causal: bool) -> Vec<f64> {
    let (nq, nk) = (q.len() / d, k.len() / d);
    let mut out = vec![];
    for i in 0..nq {
        let seen = if causal { i + 1 + nk - nq } else { nk };
        let score =
            |j: usize| (0..d).map(|l| q[i * d + l] * k[j * d + l]).sum::<f64>() / (d as f64).sqrt();
        let p = softmax(&(0..seen).map(score).collect::<Vec<_>>());
        out.extend((0..e).map(|l| (0..seen).map(|j| p[j] * v[j * e + l]).sum::<f64>()));
    }
    out
}

/// [batch 2, time 3, width 4] in two heads, causal.
fn multi_head(a: &[Vec<f64>]) -> Vec<f64> {
    let project = |w: &[f64]| matmul(&a[0], w, 6, 4, 4);
    let (q, k, v) = (project(&a[1]), project(&a[2]), project(&a[3]));
    let mut joined = vec![0.0; 24];
    for b in 0..2 {
        for head in 0..2 {
            let part = |x: &[f64]| -> Vec<f64> {
                (0..3)
                    .flat_map(|t| (0..2).map(move |j| (b * 3 + t) * 4 + head * 2 + j))
                    .map(|i| x[i])
                    .collect()
            };
            let y = attention(&part(&q), &part(&k), &part(&v), 2, 2, true);
            for t in 0..3 {
                for j in 0..2 {
                    joined[(b * 3 + t) * 4 + head * 2 + j] = y[t * 2 + j];
                }
            }
        }
    }
    matmul(&joined, &a[4], 6, 4, 4)
}

/// x [2, 3] and h [2, 2] side by side.
fn beside(x: &[f64], h: &[f64]) -> Vec<f64> {
    (0..2).flat_map(|i| [&x[3 * i..3 * i + 3], &h[2 * i..2 * i + 2]].concat()).collect()
}

fn affine(x: &[f64], w: &[f64], b: &[f64], k: usize) -> Vec<f64> {
    let n = b.len();
    let y = matmul(x, w, x.len() / k, k, n);
    y.iter().enumerate().map(|(i, v)| v + b[i % n]).collect()
}

fn lstm(a: &[Vec<f64>]) -> Vec<f64> {
    let z = affine(&beside(&a[0], &a[1]), &a[3], &a[4], 5);
    let mut out = vec![];
    for i in 0..2 {
        let gate = |g: usize, j: usize| z[i * 8 + g * 2 + j];
        let c: Vec<f64> = (0..2)
            .map(|j| {
                sigmoid(gate(1, j) + 1.0) * a[2][i * 2 + j]
                    + sigmoid(gate(0, j)) * gate(2, j).tanh()
            })
            .collect();
        out.extend((0..2).map(|j| sigmoid(gate(3, j)) * c[j].tanh()));
        out.extend(c);
    }
    out
}

fn gru(a: &[Vec<f64>]) -> Vec<f64> {
    let (x, h) = (&a[0], &a[1]);
    let z: Vec<f64> = affine(&beside(x, h), &a[2], &a[3], 5).into_iter().map(sigmoid).collect();
    let reset: Vec<f64> = (0..4).map(|k| z[k / 2 * 4 + k % 2] * h[k]).collect();
    let candidate = affine(&beside(x, &reset), &a[4], &a[5], 5);
    (0..4)
        .map(|k| {
            let u = z[k / 2 * 4 + 2 + k % 2];
            u * h[k] + (1.0 - u) * candidate[k].tanh()
        })
        .collect()
}

/// Logits of the label and of the sample for three rows of width 2, less the
/// logarithm of how often each class is expected.
fn sampled_logits(a: &[Vec<f64>]) -> Vec<(f64, Vec<f64>)> {
    let (labels, sample) = ([2usize, 0, 5], [1usize, 2, 7, 0]);
    let expected = |c: usize| {
        let p = ((c as f64 + 2.0) / (c as f64 + 1.0)).ln() / 11f64.ln();
        (p * 4.0).ln()
    };
    (0..3)
        .map(|i| {
            let dot = |w: &[f64], r: usize| a[0][2 * i] * w[2 * r] + a[0][2 * i + 1] * w[2 * r + 1];
            let hit = dot(&a[1], i) + a[2][i] - expected(labels[i]);
            let miss = (0..4).map(|j| dot(&a[3], j) + a[4][j] - expected(sample[j])).collect();
            (hit, miss)
        })
        .collect()
}

const IMAGE: &[usize] = &[2, 3, 4, 4];
const SAMPLED: &[(&str, &[usize])] =
    &[("x", &[3, 2]), ("tw", &[3, 2]), ("tb", &[3]), ("sw", &[4, 2]), ("sb", &[4])];

fn channel(i: usize) -> usize {
    i / 16 % 3
}

fn layers() -> Vec<Layer> {
    let log_softmax = |x: &[f64]| rows(x, 4, |r| softmax(r).iter().map(|p| p.ln()).collect());
    let logsumexp = |x: &[f64]| rows(x, 4, |r| vec![r.iter().map(|v| v.exp()).sum::<f64>().ln()]);
    vec![
        layer(
            "dense",
            &[("x", &[2, 3]), ("w", &[3, 4]), ("b", &[4])],
            "y = nn.dense(x, w, b)",
            |a| affine(&a[0], &a[1], &a[2], 3),
        ),
        layer(
            "conv",
            &[("x", IMAGE), ("f", &[2, 3, 3, 3]), ("b", &[2])],
            "y = nn.conv(x, f, b, pad: 1)",
            |a| conv(&a[0], &a[1], &a[2], 2, 3, 2, 1),
        ),
        layer(
            "conv_stride",
            &[("x", IMAGE), ("f", &[2, 3, 3, 3]), ("b", &[2])],
            "y = nn.conv(x, f, b, stride: 2, pad: 1)",
            |a| conv(&a[0], &a[1], &a[2], 2, 3, 2, 2),
        ),
        layer("pool_max", &[("x", IMAGE)], "y = nn.pool_max(x)", |a| {
            pool(&a[0], |w| w.into_iter().fold(f64::MIN, f64::max))
        }),
        layer("pool_avg", &[("x", IMAGE)], "y = nn.pool_avg(x)", |a| {
            pool(&a[0], |w| w.iter().sum::<f64>() / 4.0)
        }),
        layer("global_avg_pool", &[("x", IMAGE)], "y = nn.global_avg_pool(x)", |a| {
            rows(&a[0], 16, |p| vec![p.iter().sum::<f64>() / 16.0])
        }),
        layer("embedding", &[("t", &[5, 3])], "y = nn.embedding(t, i32[2, 2](4, 0, 2, 4))", |a| {
            [4, 0, 2, 4].iter().flat_map(|i| a[0][3 * i..3 * i + 3].to_vec()).collect()
        }),
        layer(
            "sharded_embedding",
            &[("s", &[2, 3]), ("t", &[2, 3]), ("u", &[2, 3])],
            "y = nn.sharded_embedding([s, t, u], i32[4](4, 0, 2, 4))",
            |a| {
                [4, 0, 2, 4]
                    .iter()
                    .flat_map(|i| a[i % 3][i / 3 * 3..i / 3 * 3 + 3].to_vec())
                    .collect()
            },
        ),
        layer("softmax", &[("x", &[2, 4])], "y = nn.softmax(x)", |a| rows(&a[0], 4, softmax)),
        layer("log_softmax", &[("x", &[2, 4])], "y = nn.log_softmax(x)", move |a| {
            log_softmax(&a[0])
        }),
        layer("logsumexp", &[("x", &[2, 4])], "y = nn.logsumexp(x)", move |a| logsumexp(&a[0])),
        map("gelu", "y = nn.gelu(x)", |x| x * normal_cdf(x)),
        map("silu", "y = nn.silu(x)", |x| x * sigmoid(x)),
        map("softplus", "y = nn.softplus(x)", |x| x.exp().ln_1p()),
        map(
            "leaky_relu",
            "y = nn.leaky_relu(x, slope: 0.1)",
            |x| if x > 0.0 { x } else { 0.1 * x },
        ),
        map("elu", "y = nn.elu(x, alpha: 0.7)", |x| if x > 0.0 { x } else { 0.7 * x.exp_m1() }),
        layer(
            "layer_norm",
            &[("x", &[2, 4]), ("g", &[4]), ("b", &[4])],
            "y = nn.layer_norm(x, g, b)",
            |a| {
                let y = rows(&a[0], 4, |r| normal(r, 1e-5));
                y.iter().enumerate().map(|(i, v)| v * a[1][i % 4] + a[2][i % 4]).collect()
            },
        ),
        layer("rms_norm", &[("x", &[2, 4]), ("g", &[4])], "y = nn.rms_norm(x, g)", |a| {
            rows(&a[0], 4, |r| {
                let scale = (r.iter().map(|v| v * v).sum::<f64>() / 4.0 + 1e-6).sqrt();
                r.iter().zip(&a[1]).map(|(v, g)| v / scale * g).collect()
            })
        }),
        layer(
            "group_norm",
            &[("x", &[2, 4, 2, 2]), ("g", &[4]), ("b", &[4])],
            "y = nn.group_norm(x, g, b, groups: 2)",
            |a| {
                let y = rows(&a[0], 8, |r| normal(r, 1e-5));
                y.iter().enumerate().map(|(i, v)| v * a[1][i / 4 % 4] + a[2][i / 4 % 4]).collect()
            },
        ),
        layer(
            "batch_norm_train",
            &[("x", IMAGE), ("g", &[3]), ("b", &[3])],
            "y = nn.batch_norm_train(x, g, b, running_mean, running_variance)",
            |a| {
                let mut y = vec![0.0; 96];
                for c in 0..3 {
                    let own: Vec<usize> = (0..96).filter(|i| channel(*i) == c).collect();
                    let row = normal(&own.iter().map(|i| a[0][*i]).collect::<Vec<_>>(), 1e-5);
                    own.iter().zip(row).for_each(|(i, v)| y[*i] = v * a[1][c] + a[2][c]);
                }
                y
            },
        ),
        layer(
            "batch_norm",
            &[("x", IMAGE), ("g", &[3]), ("b", &[3]), ("m", &[3]), ("w", &[3])],
            "y = nn.batch_norm(x, g, b, m, w * w)",
            |a| {
                let one = |(i, v): (usize, &f64)| {
                    let c = channel(i);
                    (v - a[3][c]) / (a[4][c].powi(2) + 1e-5).sqrt() * a[1][c] + a[2][c]
                };
                a[0].iter().enumerate().map(one).collect()
            },
        ),
        layer(
            "batch_norm_rows_train",
            &[("x", &[4, 3]), ("g", &[3]), ("b", &[3])],
            "y = nn.batch_norm_rows_train(x, g, b, rows_mean, rows_variance)",
            |a| {
                let mut y = vec![0.0; 12];
                for c in 0..3 {
                    let row = normal(&(0..4).map(|i| a[0][3 * i + c]).collect::<Vec<_>>(), 1e-5);
                    (0..4).for_each(|i| y[3 * i + c] = row[i] * a[1][c] + a[2][c]);
                }
                y
            },
        ),
        layer(
            "batch_norm_rows",
            &[("x", &[4, 3]), ("g", &[3]), ("b", &[3]), ("m", &[3]), ("w", &[3])],
            "y = nn.batch_norm_rows(x, g, b, m, w * w)",
            |a| {
                let one = |(i, v): (usize, &f64)| {
                    let c = i % 3;
                    (v - a[3][c]) / (a[4][c].powi(2) + 1e-5).sqrt() * a[1][c] + a[2][c]
                };
                a[0].iter().enumerate().map(one).collect()
            },
        ),
        layer(
            "lrn",
            &[("x", &[2, 5, 1, 2])],
            "y = nn.lrn(x, radius: 1, k: 2.0, alpha: 0.5, beta: 0.75)",
            |a| {
                let at = |n: usize, c: usize, s: usize| a[0][(n * 5 + c) * 2 + s];
                let mut y = vec![];
                for n in 0..2 {
                    for c in 0..5usize {
                        for s in 0..2 {
                            let near = c.saturating_sub(1)..=(c + 1).min(4);
                            let total: f64 = near.map(|k| at(n, k, s).powi(2)).sum();
                            y.push(at(n, c, s) / (2.0 + 0.5 * total).powf(0.75));
                        }
                    }
                }
                y
            },
        ),
        layer(
            "attention",
            &[("q", &[3, 2]), ("k", &[4, 2]), ("v", &[4, 3])],
            "y = nn.attention(q, k, v)",
            |a| attention(&a[0], &a[1], &a[2], 2, 3, false),
        ),
        layer(
            "attention_causal",
            &[("q", &[3, 2]), ("k", &[4, 2]), ("v", &[4, 3])],
            "y = nn.attention(q, k, v, causal: true)",
            |a| attention(&a[0], &a[1], &a[2], 2, 3, true),
        ),
        layer(
            "multi_head_attention",
            &[("x", &[2, 3, 4]), ("q", &[4, 4]), ("k", &[4, 4]), ("v", &[4, 4]), ("o", &[4, 4])],
            "y = nn.multi_head_attention(x, x, q, k, v, o, heads: 2, causal: true)",
            multi_head,
        ),
        layer(
            "lstm_cell",
            &[("x", &[2, 3]), ("h", &[2, 2]), ("c", &[2, 2]), ("w", &[5, 8]), ("b", &[8])],
            "(h2, c2) = nn.lstm_cell(x, h, c, w, b)\n  y = concat(h2, c2, axis: 1)",
            lstm,
        ),
        layer(
            "gru_cell",
            &[
                ("x", &[2, 3]),
                ("h", &[2, 2]),
                ("w", &[5, 4]),
                ("b", &[4]),
                ("u", &[5, 2]),
                ("v", &[2]),
            ],
            "y = nn.gru_cell(x, h, w, b, u, v)",
            gru,
        ),
        layer(
            "lstm",
            &[("x", &[3, 2, 3]), ("h", &[2, 2]), ("c", &[2, 2]), ("w", &[5, 8]), ("b", &[8])],
            "(all, h2, c2) = nn.lstm(x, h, c, w, b)\n  y = concat(flatten(all), flatten(h2), \
             flatten(c2), axis: 0)",
            |a| {
                let (mut h, mut c, mut y) = (a[1].clone(), a[2].clone(), vec![]);
                for x in a[0].chunks(6) {
                    let out = lstm(&[x.to_vec(), h, c, a[3].clone(), a[4].clone()]);
                    h = [&out[0..2], &out[4..6]].concat();
                    c = [&out[2..4], &out[6..8]].concat();
                    y.extend(h.clone());
                }
                [y, h, c].concat()
            },
        ),
        layer(
            "gru",
            &[
                ("x", &[3, 2, 3]),
                ("h", &[2, 2]),
                ("w", &[5, 4]),
                ("b", &[4]),
                ("u", &[5, 2]),
                ("v", &[2]),
            ],
            "(all, h2) = nn.gru(x, h, w, b, u, v)\n  y = concat(flatten(all), flatten(h2), axis: 0)",
            |a| {
                let (mut h, mut y) = (a[1].clone(), vec![]);
                for x in a[0].chunks(6) {
                    let rest = a[2..].iter().cloned();
                    h = gru(&[x.to_vec(), h].into_iter().chain(rest).collect::<Vec<_>>());
                    y.extend(h.clone());
                }
                [y, h].concat()
            },
        ),
        layer("softmax_xent", &[("x", &[3, 4])], "y = nn.softmax_xent(x, i32[3](2, 0, 3))", |a| {
            a[0].chunks(4).zip([2, 0, 3]).map(|(r, l)| -softmax(r)[l].ln()).collect()
        }),
        layer(
            "softmax_xent_with",
            &[("x", &[2, 4]), ("t", &[2, 4])],
            "y = nn.softmax_xent_with(x, t)",
            move |a| {
                let log = log_softmax(&a[0]);
                let rows = log.chunks(4).zip(a[1].chunks(4));
                rows.map(|(l, t)| -l.iter().zip(t).map(|(l, t)| l * t).sum::<f64>()).collect()
            },
        ),
        zip("sigmoid_xent", "y = nn.sigmoid_xent(x, t)", |x, t| {
            -t * sigmoid(x).ln() - (1.0 - t) * sigmoid(-x).ln()
        }),
        layer("mse", &[("x", &[8]), ("t", &[8])], "y = nn.mse(x, t)", |a| {
            vec![a[0].iter().zip(&a[1]).map(|(x, t)| (x - t).powi(2)).sum::<f64>() / 8.0]
        }),
        zip("square_error", "y = nn.square_error(x, t)", |x, t| (x - t).powi(2)),
        zip("huber", "y = nn.huber(x, t, delta: 0.5)", |x, t| {
            let d = (x - t).abs();
            if d <= 0.5 { 0.5 * d * d } else { 0.5 * (d - 0.25) }
        }),
        zip("hinge", "y = nn.hinge(x, t)", |x, t| (1.0 - x * t).max(0.0)),
        layer(
            "kl_divergence",
            &[("x", &[2, 4]), ("t", &[2, 4])],
            "y = nn.kl_divergence(x, t)",
            |a| {
                let pair = |(p, q): (&[f64], &[f64])| {
                    let (p, q) = (softmax(p), softmax(q));
                    p.iter().zip(&q).map(|(p, q)| p * (p / q).ln()).sum()
                };
                a[0].chunks(4).zip(a[1].chunks(4)).map(pair).collect()
            },
        ),
        layer("l2", &[("x", &[8])], "y = nn.l2(x)", |a| {
            vec![0.5 * a[0].iter().map(|x| x * x).sum::<f64>()]
        }),
        layer(
            "sampled_softmax",
            SAMPLED,
            "y = nn.sampled_softmax(x, i32[3](2, 0, 5), tw, tb, i64[4](1, 2, 7, 0), sw, sb, range: 10)",
            |a| {
                let hits = [[1], [3], [9]];
                let one = |(i, (hit, miss)): (usize, (f64, Vec<f64>))| {
                    // The sample that is the label does not count.
                    let others = (0..4).filter(|j| !hits[i].contains(j)).map(|j| miss[j].exp());
                    (hit.exp() + others.sum::<f64>()).ln() - hit
                };
                sampled_logits(a).into_iter().enumerate().map(one).collect()
            },
        ),
        layer(
            "nce",
            SAMPLED,
            "y = nn.nce(x, i32[3](2, 0, 5), tw, tb, i64[4](1, 2, 7, 0), sw, sb, range: 10)",
            |a| {
                let one = |(hit, miss): (f64, Vec<f64>)| {
                    -sigmoid(hit).ln() - miss.iter().map(|m| sigmoid(-m).ln()).sum::<f64>()
                };
                sampled_logits(a).into_iter().map(one).collect()
            },
        ),
    ]
}

/// Numbers between -1 and 1 that do not repeat.
fn numbers(n: usize, seed: usize) -> Vec<f64> {
    (0..n)
        .map(|i| ((i * 7919 + seed * 104_729 + 13) as f64 * 0.618_033_988_75).fract() * 2.0 - 1.0)
        .collect()
}

fn array(shape: &[usize], data: &[f64]) -> ArrayD<f64> {
    ArrayD::from_shape_vec(IxDyn(shape), data.to_vec()).expect("as many as the shape has")
}

/// What the gradient is taken of: the elements of the result, each with a weight.
fn weighted(y: &[f64]) -> f64 {
    y.iter().enumerate().map(|(i, v)| v * (i as f64 * 1.7).cos()).sum()
}

#[test]
fn results_and_gradients() -> Result<()> {
    let layers = layers();
    let mut text = String::from(
        "graph layers\nuse nn\nvar running_mean: f64[3] = zeros\n\
         var running_variance: f64[3] = ones\nvar rows_mean: f64[3] = zeros\n\
         var rows_variance: f64[3] = ones\n\
         func weights(x: T[N]) { return cos(iota(shape: [N], axis: 0, dtype: T) * 1.7) }\n",
    );
    for layer in &layers {
        let typed = |(name, shape): &(&str, &[usize])| format!("{name}: f64{shape:?}");
        let params: Vec<String> = layer.inputs.iter().map(typed).collect();
        let names: Vec<&str> = layer.inputs.iter().map(|(name, _)| *name).collect();
        text.push_str(&format!(
            "entry {}({}) {{\n  {}\n  flat = flatten(y)\n  \
             return y, grad(sum(flat * weights(flat)), wrt: [{}])\n}}\n",
            layer.name,
            params.join(", "),
            layer.body,
            names.join(", ")
        ));
    }
    let module = tfc::compile(&tfc::parse(&text)?)?;
    for layer in &layers {
        let mut inputs: Vec<Vec<f64>> = layer
            .inputs
            .iter()
            .enumerate()
            .map(|(i, (_, shape))| numbers(shape.iter().product(), i))
            .collect();
        let arrays: Vec<ArrayD<f64>> =
            layer.inputs.iter().zip(&inputs).map(|((_, shape), x)| array(shape, x)).collect();
        let feeds: Vec<(&str, Feed)> =
            layer.inputs.iter().zip(&arrays).map(|((name, _), x)| (*name, x.into())).collect();
        let out = module.call(layer.name, feeds)?;
        let names: Vec<String> = out.names().map(String::from).collect();
        assert_eq!(names.len(), 1 + inputs.len(), "{}", layer.name);
        let want = (layer.forward)(&inputs);
        let got = out.array::<f64>(&names[0])?;
        assert_eq!(got.len(), want.len(), "{}", layer.name);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!((got - want).abs() < 1e-12, "{}: y[{i}] is {got}, not {want}", layer.name);
        }
        for k in 0..inputs.len() {
            let gradient = out.array::<f64>(&names[k + 1])?;
            for (i, got) in gradient.iter().enumerate() {
                let x = inputs[k][i];
                let mut at = |x: f64| {
                    inputs[k][i] = x;
                    weighted(&(layer.forward)(&inputs))
                };
                let want = (at(x + 1e-5) - at(x - 1e-5)) / 2e-5;
                inputs[k][i] = x;
                assert!(
                    (got - want).abs() < 1e-8 * (1.0 + want.abs()),
                    "{}: the gradient by {}[{i}] is {got}, not {want}",
                    layer.name,
                    layer.inputs[k].0
                );
            }
        }
    }
    // Batch normalisation has moved its running statistics, once, by a tenth.
    let x = numbers(96, 0);
    for c in 0..3 {
        let own: Vec<f64> = (0..96).filter(|i| channel(*i) == c).map(|i| x[i]).collect();
        let mean = own.iter().sum::<f64>() / 32.0;
        let variance = own.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 32.0;
        assert!((module.var::<f64>("running_mean")?[[c]] - 0.1 * mean).abs() < 1e-12);
        let got = module.var::<f64>("running_variance")?[[c]];
        assert!((got - (0.9 + 0.1 * variance)).abs() < 1e-12);
    }
    Ok(())
}

#[test]
fn dropout_keeps_a_share_and_its_sum() -> Result<()> {
    let module = tfc::compile(&tfc::parse(
        "graph drop\nuse nn\nentry f(x: f64[4000], key: i64[]) {\n  \
         y = nn.dropout(x, key, rate: 0.3, stream: 2)\n  return y, grad(sum(y), wrt: x)\n}\n",
    )?)?;
    let x = array(&[4000], &numbers(4000, 3));
    let (y, g): (ArrayD<f64>, ArrayD<f64>) = module.call("f", (&x, 5i64))?.into_arrays()?;
    let mut kept = 0;
    for ((x, y), g) in x.iter().zip(&y).zip(&g) {
        let keeps = *g != 0.0;
        kept += keeps as usize;
        let scale = if keeps { 1.0 / 0.7 } else { 0.0 };
        assert!((g - scale).abs() < 1e-15 && (y - x * scale).abs() < 1e-15);
    }
    assert!((2700..2900).contains(&kept), "{kept} of 4000 kept at rate 0.3");
    let (again, _): (ArrayD<f64>, ArrayD<f64>) = module.call("f", (&x, 5i64))?.into_arrays()?;
    let (other, _): (ArrayD<f64>, ArrayD<f64>) = module.call("f", (&x, 6i64))?.into_arrays()?;
    assert!(again == y && other != y);
    Ok(())
}

/// Layers that own their variables do what the functions do with them, and two
/// entries that call one model share it.
#[test]
fn layers_with_variables() -> Result<()> {
    let module = tfc::compile(&tfc::parse(
        "graph own\nuse nn\nuse layer\nuse optim\n\
         model net(x: f64[2, 3, 4, 4], train) {\n  \
         h = layer.batch_norm(layer.conv(x, 2), train: train)\n  \
         h = layer.dropout(h, rate: 0.25, train: train)\n  \
         return layer.dense(nn.global_avg_pool(h), 5)\n}\n\
         entry predict(x: f64[2, 3, 4, 4]) -> (y: f64[2, 5]) { return net(x, false) }\n\
         entry train(x: f64[2, 3, 4, 4]) -> (loss: f64[]) {\n  \
         loss = mean(nn.softmax_xent(net(x, true), i32[2](1, 3)))\n  \
         minimize loss with optim.adam(lr: 0.05)\n  return loss\n}\n\
         model reader(x: f64[2, 3, 4]) {\n  h = zeros(shape: [2, 2], dtype: f64)\n  c = h\n  \
         a = layer.attention(layer.layer_norm(x), heads: 2, causal: true)\n  \
         for i in 0..3 { (h, c) = layer.lstm_cell(a[:, i], h, c) }\n  \
         return layer.gru_cell(x[:, 0], h), layer.embedding(i32[2](1, 2), rows: 4, width: 3)\n}\n\
         entry sequence(x: f64[2, 3, 4]) {\n  return reader(x)\n}\n",
    )?)?;
    let data = numbers(96, 0);
    let x = array(IMAGE, &data);
    let var = |name: &str| -> Result<Vec<f64>> {
        Ok(module.var::<f64>(&format!("net.{name}"))?.into_iter().collect())
    };
    let check = || -> Result<()> {
        let y = module.call("predict", (&x,))?.array::<f64>("y")?;
        let h = conv(&data, &var("conv.filter")?, &var("conv.bias")?, 2, 3, 2, 1);
        let (gain, bias) = (var("batch_norm.gain")?, var("batch_norm.bias")?);
        let (m, v) = (var("batch_norm.running_mean")?, var("batch_norm.running_variance")?);
        let normal = h.iter().enumerate().map(|(i, h)| {
            let c = i / 16 % 2;
            (h - m[c]) / (v[c] + 1e-5).sqrt() * gain[c] + bias[c]
        });
        let pooled = rows(&normal.collect::<Vec<_>>(), 16, |p| vec![p.iter().sum::<f64>() / 16.0]);
        let want = affine(&pooled, &var("dense.w")?, &var("dense.b")?, 2);
        for (got, want) in y.iter().zip(&want) {
            assert!((got - want).abs() < 1e-12, "{got} but {want}");
        }
        Ok(())
    };
    check()?;
    let first = module.call("train", (&x,))?.scalar::<f64>("loss")?;
    let mut last = first;
    for _ in 0..30 {
        last = module.call("train", (&x,))?.scalar::<f64>("loss")?;
    }
    assert!(last < 0.7 * first, "the loss falls: {first} to {last}");
    check()?;
    let out = module.call("sequence", (&array(&[2, 3, 4], &numbers(24, 2)),))?;
    assert_eq!(out.len(), 2);
    // Two places in a model start their dropout, and their weights, differently.
    assert_ne!(
        module.var::<f64>("reader.attention.wq")?,
        module.var::<f64>("reader.attention.wk")?
    );
    assert!(module.vars().contains(&"reader.lstm_cell.2.w".to_string()));
    Ok(())
}

#[test]
fn samples_follow_zipf() -> Result<()> {
    let module = tfc::compile(&tfc::parse(
        "graph sample\nuse nn\nentry f(key: i64[]) -> (ids: i64[20000]) {\n  \
         return nn.log_uniform_sample(key, samples: 20000, range: 10)\n}\n",
    )?)?;
    let ids = module.call("f", (9i64,))?.array::<i64>("ids")?;
    for c in 0..10i64 {
        let p = ((c as f64 + 2.0) / (c as f64 + 1.0)).ln() / 11f64.ln();
        let share = ids.iter().filter(|i| **i == c).count() as f64 / 20000.0;
        assert!((share - p).abs() < 0.015, "class {c}: {share} of the sample, {p} expected");
    }
    assert!(ids.iter().all(|i| (0..10).contains(i)));
    Ok(())
}
