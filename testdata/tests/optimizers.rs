//! Every optimizer of the library against the same formula written here, over `f64`:
//! ten steps on a fixed problem. Learning rates and clipping, too.

use ndarray::ArrayD;
use tfc::{Module, Result};

const TARGET: [f64; 7] = [1.0, -0.5, 0.75, 0.2, -1.0, 0.4, 0.9];
const WEIGHT: [f64; 7] = [1.0, 2.0, 0.5, 3.0, 1.5, 0.8, 1.2];
const START: [f64; 7] = [0.3, 0.6, -0.4, 0.8, 0.1, -0.9, 0.5];

/// The gradient of the problem, by hand.
fn gradient(x: &[f64]) -> Vec<f64> {
    let total: f64 = x.iter().sum();
    (0..7).map(|i| WEIGHT[i] * (x[i] - TARGET[i]) + 0.2 * total + 0.2 * x[i].powi(3)).collect()
}

fn loss(x: &[f64]) -> f64 {
    let total: f64 = x.iter().sum();
    let own = |i: usize| 0.5 * WEIGHT[i] * (x[i] - TARGET[i]).powi(2) + 0.05 * x[i].powi(4);
    (0..7).map(own).sum::<f64>() + 0.1 * total * total
}

type Step = Box<dyn FnMut(&mut [f64], Vec<f64>)>;

struct Case {
    /// What stands after the loss in `minimize`.
    clause: &'static str,
    step: Step,
}

/// An optimizer that treats every element alike and keeps `N` numbers for each.
fn each<const N: usize>(
    clause: &'static str,
    mut one: impl FnMut(&mut f64, f64, &mut [f64; N], i32) + 'static,
) -> Case {
    let mut slots = [[0.0; N]; 7];
    let mut t = 0;
    let step = Box::new(move |x: &mut [f64], g: Vec<f64>| {
        t += 1;
        for i in 0..7 {
            one(&mut x[i], g[i], &mut slots[i], t);
        }
    });
    Case { clause, step }
}

fn adam(x: &mut f64, g: f64, s: &mut [f64; 2], t: i32) {
    s[0] = 0.9 * s[0] + 0.1 * g;
    s[1] = 0.999 * s[1] + 0.001 * g * g;
    let (m, v) = (s[0] / (1.0 - 0.9f64.powi(t)), s[1] / (1.0 - 0.999f64.powi(t)));
    *x -= 0.05 * m / (v.sqrt() + 1e-8);
}

fn norm(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>().sqrt()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The two-loop recursion, with the history as a list of pairs.
fn lbfgs(memory: usize) -> Step {
    let mut history: Vec<(Vec<f64>, Vec<f64>)> = vec![];
    let mut last: Option<(Vec<f64>, Vec<f64>)> = None;
    Box::new(move |x, g| {
        if let Some((lx, lg)) = &last {
            let s: Vec<f64> = x.iter().zip(lx).map(|(a, b)| a - b).collect();
            let y: Vec<f64> = g.iter().zip(lg).map(|(a, b)| a - b).collect();
            if dot(&s, &y) > 1e-10 * dot(&y, &y) {
                history.push((s, y));
                if history.len() > memory {
                    history.remove(0);
                }
            }
        }
        last = Some((x.to_vec(), g.clone()));
        let mut q = g.clone();
        let mut alphas = vec![];
        for (s, y) in history.iter().rev() {
            let alpha = dot(s, &q) / dot(s, y);
            q.iter_mut().zip(y).for_each(|(q, y)| *q -= alpha * y);
            alphas.push(alpha);
        }
        let scale = match history.last() {
            Some((s, y)) => dot(s, y) / dot(y, y),
            None => 1.0 / norm(&g).max(1.0),
        };
        q.iter_mut().for_each(|q| *q *= scale);
        for ((s, y), alpha) in history.iter().zip(alphas.iter().rev()) {
            let beta = dot(y, &q) / dot(s, y);
            q.iter_mut().zip(s).for_each(|(q, s)| *q += (alpha - beta) * s);
        }
        x.iter_mut().zip(&q).for_each(|(x, q)| *x -= q);
    })
}

fn cases() -> Vec<Case> {
    let scaled = |limit: f64, norm: f64| limit / norm.max(limit);
    vec![
        each::<0>("with optim.sgd(lr: 0.1)", |x, g, _, _| *x -= 0.1 * g),
        each::<1>("with optim.momentum(lr: 0.05, beta: 0.8)", |x, g, s, _| {
            s[0] = 0.8 * s[0] + g;
            *x -= 0.05 * s[0];
        }),
        each::<1>("with optim.nesterov(lr: 0.05, beta: 0.8)", |x, g, s, _| {
            s[0] = 0.8 * s[0] + g;
            *x -= 0.05 * (g + 0.8 * s[0]);
        }),
        each::<1>("with optim.sgdw(lr: 0.05, beta: 0.8, decay: 0.1)", |x, g, s, _| {
            *x -= 0.05 * 0.1 * *x;
            s[0] = 0.8 * s[0] + g;
            *x -= 0.05 * s[0];
        }),
        each::<1>("with optim.adagrad(lr: 0.2)", |x, g, s, _| {
            s[0] += g * g;
            *x -= 0.2 * g / ((s[0] + 0.1).sqrt() + 1e-8);
        }),
        each::<2>("with optim.adadelta(lr: 5.0, rho: 0.9)", |x, g, s, _| {
            s[0] = 0.9 * s[0] + 0.1 * g * g;
            let step = g * (s[1] + 1e-6).sqrt() / (s[0] + 1e-6).sqrt();
            s[1] = 0.9 * s[1] + 0.1 * step * step;
            *x -= 5.0 * step;
        }),
        each::<2>("with optim.rmsprop(lr: 0.02, beta: 0.5)", |x, g, s, _| {
            s[0] = 0.9 * s[0] + 0.1 * g * g;
            s[1] = 0.5 * s[1] + 0.02 * g / (s[0].sqrt() + 1e-8);
            *x -= s[1];
        }),
        each::<2>("with optim.adam(lr: 0.05)", adam),
        each::<2>("with optim.adamw(lr: 0.05, decay: 0.1)", |x, g, s, t| {
            *x -= 0.05 * 0.1 * *x;
            adam(x, g, s, t);
        }),
        Case { clause: "with optim.lbfgs(memory: 4)", step: lbfgs(4) },
        each::<0>("through optim.clip_value(limit: 0.3) with optim.sgd(lr: 0.1)", |x, g, _, _| {
            *x -= 0.1 * g.clamp(-0.3, 0.3)
        }),
        Case {
            clause: "through optim.clip_norm(limit: 0.5) with optim.sgd(lr: 0.1)",
            step: Box::new(move |x, g| {
                for part in [0..3, 3..7] {
                    let k = scaled(0.5, norm(&g[part.clone()]));
                    part.for_each(|i| x[i] -= 0.1 * k * g[i]);
                }
            }),
        },
        Case {
            clause: "through optim.clip_global_norm(limit: 0.5) with optim.sgd(lr: 0.1)",
            step: Box::new(move |x, g| {
                let k = scaled(0.5, norm(&g));
                (0..7).for_each(|i| x[i] -= 0.1 * k * g[i]);
            }),
        },
    ]
}

/// One graph with an entry and a pair of variables for each case.
fn graph(dtype: &str, cases: &[Case]) -> Result<Module> {
    let list = |v: &[f64]| v.iter().map(|x| format!("{x:?}")).collect::<Vec<_>>().join(", ");
    let mut text = format!(
        "graph optimizers\nuse optim\nfunc loss(a, b) {{\n  x = concat(a, flatten(b), axis: 0)\n  \
         d = x - [{}]\n  s = sum(x)\n  return sum([{}] * d * d * 0.5) + 0.1 * s * s + 0.05 * \
         sum(x * x * x * x)\n}}\n",
        list(&TARGET),
        list(&WEIGHT)
    );
    for (i, case) in cases.iter().enumerate() {
        text.push_str(&format!(
            "var a{i}: {dtype}[3] = {dtype}[3]({})\nvar b{i}: {dtype}[2, 2] = {dtype}[2, 2]({})\n\
             entry step{i}() -> (loss: {dtype}[]) {{\n  l = loss(a{i}, b{i})\n  minimize l over \
             [a{i}, b{i}] {}\n  return l\n}}\n",
            list(&START[..3]),
            list(&START[3..]),
            case.clause
        ));
    }
    let graph = tfc::parse(&text)?;
    // What is printed is the same graph.
    let printed = tfc_ir::text::print(&graph);
    let (again, diags, _) = tfc_ir::text::load_str("printed.graph", &printed);
    let again = again.unwrap_or_else(|| panic!("{diags:?}\n{printed}"));
    assert_eq!(tfc_ir::text::same(&graph, &again), Ok(()));
    tfc::compile(&graph)
}

fn trajectories<T: tfc::Element + Into<f64>>(dtype: &str, tolerance: f64) -> Result<()> {
    let mut cases = cases();
    let module = graph(dtype, &cases)?;
    for (i, case) in cases.iter_mut().enumerate() {
        let mut x = START.to_vec();
        for round in 0..10 {
            let had: f64 = module.call(&format!("step{i}"), ())?.scalar::<T>("loss")?.into();
            let want = loss(&x);
            assert!((had - want).abs() <= tolerance * 10.0, "{}: {had} {want}", case.clause);
            let g = gradient(&x);
            (case.step)(&mut x, g);
            let mut got: Vec<f64> = vec![];
            for var in ["a", "b"] {
                let part: ArrayD<T> = module.var(&format!("{var}{i}"))?;
                got.extend(part.iter().map(|v| (*v).into()));
            }
            for (k, (got, want)) in got.iter().zip(&x).enumerate() {
                assert!(
                    (got - want).abs() <= tolerance,
                    "{dtype} {}, step {round}, element {k}: {got} but {want}",
                    case.clause
                );
            }
        }
        assert!(loss(&x) < loss(&START), "{} goes down", case.clause);
    }
    Ok(())
}

#[test]
fn ten_steps_in_f64() -> Result<()> {
    trajectories::<f64>("f64", 1e-12)
}

#[test]
fn ten_steps_in_f32() -> Result<()> {
    trajectories::<f32>("f32", 1e-6)
}

#[test]
fn lbfgs_finds_the_minimum() -> Result<()> {
    let case = Case { clause: "with optim.lbfgs", step: lbfgs(10) };
    let module = graph("f64", &[case])?;
    for _ in 0..30 {
        module.call("step0", ())?;
    }
    let mut x: Vec<f64> = module.var::<f64>("a0")?.into_iter().collect();
    x.extend(module.var::<f64>("b0")?);
    assert!(norm(&gradient(&x)) < 1e-10, "{x:?}");
    Ok(())
}

#[test]
fn learning_rates_follow_their_formulas() -> Result<()> {
    let module = tfc::compile(&tfc::parse(
        "graph rates\nuse optim\nentry rates(s: i64[]) {\n  return \
         optim.step_decay(s, base: 0.1, every: 10, factor: 0.5, dtype: f64), \
         optim.exponential_decay(s, base: 0.1, every: 10, factor: 0.5, dtype: f64), \
         optim.inverse_decay(s, base: 0.1, every: 10, factor: 0.5, dtype: f64), \
         optim.polynomial_decay(s, base: 0.1, steps: 40, end: 0.01, power: 2, dtype: f64), \
         optim.cosine_decay(s, base: 0.1, steps: 40, end: 0.01, dtype: f64), \
         optim.warmup(s, optim.cosine_decay(s, base: 0.1, steps: 40, dtype: f64), steps: 8), \
         optim.transformer_rate(s, width: 64, steps: 12, dtype: f64)\n}\n",
    )?)?;
    for step in [0i64, 1, 7, 8, 9, 10, 25, 39, 40, 77] {
        let out = module.call("rates", (step,))?;
        let s = step as f64;
        let left = 1.0 - (s / 40.0).min(1.0);
        let cosine = |base: f64, end: f64| {
            end + (base - end) * 0.5 * (1.0 + ((1.0 - left) * std::f64::consts::PI).cos())
        };
        let want = [
            0.1 * 0.5f64.powf((s / 10.0).floor()),
            0.1 * 0.5f64.powf(s / 10.0),
            0.1 / (1.0 + 0.5 * s / 10.0),
            0.09 * left * left + 0.01,
            cosine(0.1, 0.01),
            cosine(0.1, 0.0) * ((s + 1.0) / 8.0).min(1.0),
            64f64.powf(-0.5) * (s + 1.0).powf(-0.5).min((s + 1.0) * 12f64.powf(-1.5)),
        ];
        for (name, want) in out.names().map(String::from).collect::<Vec<_>>().iter().zip(want) {
            let got = out.scalar::<f64>(name)?;
            assert!((got - want).abs() < 1e-14, "{name} at {step}: {got} but {want}");
        }
    }
    Ok(())
}

/// Rows that are used move, and no others; a table in shards is the same table.
#[test]
fn sparse_updates_touch_the_rows_used() -> Result<()> {
    let rows: Vec<f64> = (0..12).map(|i| i as f64 * 0.25 - 1.0).collect();
    let pick = |of: &dyn Fn(usize) -> bool| {
        let picked = (0..6).filter(|r| of(*r)).flat_map(|r| rows[2 * r..2 * r + 2].to_vec());
        picked.map(|v| format!("{v:?}")).collect::<Vec<_>>().join(", ")
    };
    let (all, even, odd) = (pick(&|_| true), pick(&|r| r % 2 == 0), pick(&|r| r % 2 == 1));
    let module = tfc::compile(&tfc::parse(&format!(
        "graph sparse\nuse nn\nuse optim\nvar t: f64[6, 2] = f64[6, 2]({all})\n\
         var u: f64[6, 2] = f64[6, 2]({all})\nvar even: f64[3, 2] = f64[3, 2]({even})\n\
         var odd: f64[3, 2] = f64[3, 2]({odd})\n\
         func loss(rows) {{ return sum(rows * rows * [1.0, 2.0]) }}\n\
         entry sgd(ids: i32[2, 2]) {{\n  rows = nn.embedding(t, ids)\n  \
         optim.sparse_sgd(t, ids, grad(loss(rows), wrt: rows), lr: 0.1)\n}}\n\
         entry adagrad(ids: i32[2, 2]) {{\n  rows = nn.embedding(u, ids)\n  \
         optim.sparse_adagrad(u, ids, grad(loss(rows), wrt: rows), lr: 0.1)\n}}\n\
         entry sharded(ids: i32[2, 2]) -> (e: f64[2, 2, 2]) {{\n  \
         rows = nn.shard_rows([even, odd], ids)\n  e = nn.stitch(rows, ids)\n  \
         optim.sharded_adagrad([even, odd], ids, grad(loss(e), wrt: rows), lr: 0.1)\n  \
         return e\n}}\n"
    ))?)?;
    let ids = ndarray::array![[1i32, 4], [1, 3]];
    let (mut sgd, mut ada, mut sums) = (rows.clone(), rows.clone(), vec![0.0; 12]);
    for _ in 0..3 {
        let out = module.call("sharded", (&ids,))?.array::<f64>("e")?;
        for (k, id) in ids.iter().enumerate() {
            for d in 0..2 {
                let got = out.as_slice().map(|s| s[2 * k + d]).unwrap_or(f64::NAN);
                assert!((got - ada[2 * *id as usize + d]).abs() < 1e-12);
            }
        }
        module.call("sgd", (&ids,))?;
        module.call("adagrad", (&ids,))?;
        // Row 1 is used twice.
        for (row, times) in [(1, 2.0), (3, 1.0), (4, 1.0)] {
            for d in 0..2 {
                let i = 2 * row + d;
                sgd[i] -= 0.1 * times * 2.0 * (d + 1) as f64 * sgd[i];
                let g = times * 2.0 * (d + 1) as f64 * ada[i];
                sums[i] += g * g;
                ada[i] -= 0.1 * g / ((sums[i] + 0.1f64).sqrt() + 1e-8);
            }
        }
    }
    let same = |var: &str, want: Vec<f64>| -> Result<()> {
        for (got, want) in module.var::<f64>(var)?.iter().zip(want) {
            assert!((got - want).abs() < 1e-12, "{var}: {got} but {want}");
        }
        Ok(())
    };
    let shard = |k: usize| -> Vec<f64> {
        [k, k + 2, k + 4].iter().flat_map(|r| ada[2 * r..2 * r + 2].to_vec()).collect()
    };
    same("even", shard(0))?;
    same("odd", shard(1))?;
    same("t", sgd)?;
    same("u", ada.clone())
}
