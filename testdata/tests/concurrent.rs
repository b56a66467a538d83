//! Calls of one program from several threads, on variables they share.

use ndarray::{Array1, array};
use std::sync::atomic::{AtomicBool, Ordering};

const GRAPH: &str = "graph shared
dim T
var a: f64[512] = zeros
var b: f64[512] = zeros
var count: i64[] = 0

/// Both variables, or neither.
entry bump(x: f64[]) {
  a += x
  b += x
  count += 1
}

entry look() -> (a: f64[512], b: f64[512], n: i64[]) {
  return a, b, count
}

/// Each reads what the other writes.
entry a_from_b() { assign(a, b * 1.0) }
entry b_from_a() { assign(b, a * 1.0) }

/// Touches the variables in every iteration, and keeps iterations for its gradient.
entry iterations(x: f64[T]) -> (s: f64[], dx: f64[T]) {
  (_t, s) = while (t = 0, s = f64[](0)) t < T {
    count += 0
    yield t + 1, sin(s) + x[t] * (a[0] - b[511] + 1.0)
  }
  return s, grad(s, wrt: x)
}
";

/// Threads that read never see half a call, threads that write lose nothing, and
/// calls that need each other's variables do not wait for each other forever.
#[test]
fn calls_see_whole_calls() {
    const WRITERS: usize = 4;
    const CALLS: usize = 300;
    let module = tfc::compile(&tfc::parse(GRAPH).unwrap()).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|w| {
                let module = &module;
                s.spawn(move || {
                    for i in 0..CALLS {
                        module.call("bump", (1.0f64,)).unwrap();
                        let entry = if (i + w) % 2 == 0 { "a_from_b" } else { "b_from_a" };
                        module.call(entry, ()).unwrap();
                    }
                })
            })
            .collect();
        for reader in 0..3 {
            let (module, done) = (&module, &done);
            s.spawn(move || {
                let mut seen = 0;
                while !done.load(Ordering::Acquire) {
                    let out = module.call("look", ()).unwrap();
                    let (a, b) = (out.array::<f64>("a").unwrap(), out.array::<f64>("b").unwrap());
                    let n = out.scalar::<i64>("n").unwrap();
                    assert!(a.iter().chain(&b).all(|v| *v == a[0]), "half a call was seen");
                    assert_eq!(a[0], n as f64, "all of `bump`, or nothing");
                    assert!(n >= seen, "what was seen stays");
                    seen = n;
                    let x = Array1::from_elem(1 + reader, 0.5f64);
                    let out = module.call("iterations", (&x,)).unwrap();
                    let mut want = 0.0f64;
                    (0..1 + reader).for_each(|_| want = want.sin() + 0.5);
                    assert!((out.scalar::<f64>("s").unwrap() - want).abs() < 1e-12);
                    assert_eq!(out.array::<f64>("dx").unwrap()[reader], 1.0);
                }
            });
        }
        writers.into_iter().for_each(|w| w.join().unwrap());
        done.store(true, Ordering::Release);
    });
    let out = module.call("look", ()).unwrap();
    assert_eq!(out.scalar::<i64>("n").unwrap(), (WRITERS * CALLS) as i64);
    assert_eq!(out.array::<f64>("a").unwrap()[0], (WRITERS * CALLS) as f64);
}

/// Variables can be read and written from outside while calls run.
#[test]
fn variables_are_read_and_set_whole() {
    let module = tfc::compile(&tfc::parse(GRAPH).unwrap()).unwrap();
    std::thread::scope(|s| {
        let writer = s.spawn(|| {
            for i in 0..400 {
                let value = Array1::from_elem(512, i as f64);
                module.set_var("a", &value).unwrap();
            }
        });
        while !writer.is_finished() {
            let a = module.var::<f64>("a").unwrap();
            assert!(a.iter().all(|v| *v == a[0]), "half a value was read");
        }
        writer.join().unwrap();
    });
    let out = module.call("iterations", (&array![0.25f64],)).unwrap();
    assert_eq!(out.scalar::<f64>("s").unwrap(), 0.25 * 400.0);
}

/// An assertion that fails keeps the writes after it in the text from happening.
#[test]
fn assertions_guard_the_writes_behind_them() {
    let graph = "graph guarded
var w: f32[3] = [1, 2, 3]

entry train(x: f32[3]) -> (loss: f32[]) {
  loss = sum(w * x)
  assert(loss < 100.0, message: \"diverged\")
  w -= 0.5 * grad(loss, wrt: w)
  return loss
}

entry look() -> (w: f32[3]) { return w }
";
    let module = tfc::compile(&tfc::parse(graph).unwrap()).unwrap();
    module.call("train", (&array![1.0f32, 1.0, 1.0],)).unwrap();
    let failed = module.call("train", (&array![300.0f32, 1.0, 1.0],)).unwrap_err();
    assert!(failed.to_string().contains("diverged"), "{failed}");
    let found = module.call("look", ()).unwrap();
    let w = found.array::<f32>("w").unwrap();
    assert_eq!(w.iter().copied().collect::<Vec<f32>>(), [0.5, 1.5, 2.5]);
}
