//! The library as a Rust program that embeds it sees it.

#[path = "support/ports.rs"]
mod ports;

use ports::free_address;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use tfc::ndarray::{Array0, Array1, Array2, ArrayD, array, s};
use tfc::{DType, ErrorCode, Feed, Module, Options};

/// Counts what this thread allocates.
struct Counting;

thread_local! {
    static COUNT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

// SAFETY: as the system's allocator, which does the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set((COUNT.get().0 + 1, COUNT.get().1 + layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        COUNT.set((COUNT.get().0 + 1, COUNT.get().1 + layout.size()));
        // SAFETY: the caller's promise.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations and bytes of `work`.
fn allocated<R>(work: impl FnOnce() -> R) -> (usize, usize) {
    let before = COUNT.get();
    drop(work());
    (COUNT.get().0 - before.0, COUNT.get().1 - before.1)
}

const GRAPH: &str = "graph api
dim B: 1..4096
dim N
var count: i64[] = 0
var w: f32[4] = [1.0, 2.0, 3.0, 4.0]

/// Fixed sizes.
entry fixed(x: f32[4], k: f32[]) -> (y: f32[4], sum: f32[]) { return x * k, sum(x) }

/// Reads a variable.
entry weighted(x: f32[4]) -> (y: f32[4]) { return x * w }

entry rows(x: f32[B, 2], flags: bool[B]) -> (y: f32[B], same: bool[B]) {
  count += 1
  return sum(x, axis: 1), flags
}

entry big(x: f32[N, N]) -> (y: f32[N, N]) { return x + 1.0 }

entry checked(x: f32[4]) {
  assert(x > 0.0, message: \"positive\")
}
";

fn module() -> Module {
    tfc::compile(&tfc::parse(GRAPH).unwrap()).unwrap()
}

#[test]
fn results_go_where_the_caller_wants_them() {
    let module = module();
    let x = [1.0f32, 2.0, 3.0, 4.0];
    let (mut y, mut sum) = (vec![0.0f32; 4], 0.0f32);
    module.call_into("fixed", (&x, 2.0f32), (&mut y, &mut sum)).unwrap();
    assert_eq!((y, sum), (vec![2.0, 4.0, 6.0, 8.0], 10.0));

    let mut y = Array1::<f32>::zeros(3);
    let mut same = [false; 3];
    let rows = array![[1.0f32, 2.0], [3.0, 4.0], [5.0, 6.0]];
    let flags = [true, false, true];
    module.call_into("rows", (&rows, &flags), (&mut y, &mut same)).unwrap();
    assert_eq!((y, same), (array![3.0, 7.0, 11.0], flags));

    // What does not fit is said.
    let entry = module.entry::<()>("rows").unwrap();
    let mut wrong = Array1::<f32>::zeros(2);
    let e = entry.call_into((&rows, &flags), (&mut wrong, &mut same)).unwrap_err();
    assert_eq!(e.code(), ErrorCode::WRONG_RESULT_MEMORY);
    assert!(e.to_string().contains("[3] here, but the array for it [2]"), "{e}");
    let mut wrong = vec![0.0f64; 3];
    let e = entry.call_into((&rows, &flags), (&mut wrong, &mut same)).unwrap_err();
    assert!(e.to_string().contains("result `y` is f32, not f64"), "{e}");
    let mut matrix = Array2::<f32>::zeros((3, 2));
    let mut column = matrix.slice_mut(s![.., 0]);
    let e = entry.call_into((&rows, &flags), (&mut column, &mut same)).unwrap_err();
    assert!(e.to_string().contains("not dense"), "{e}");
    let mut short = vec![0.0f32; 2];
    let e = entry.call_into((&rows, &flags), (&mut short, &mut same)).unwrap_err();
    assert_eq!(e.code(), ErrorCode::WRONG_RESULT_MEMORY);
}

#[test]
fn calls_into_own_memory_allocate_nothing() {
    let module = module();
    let (fixed, weighted) =
        (module.entry::<()>("fixed").unwrap(), module.entry::<()>("weighted").unwrap());
    let rows = module.entry::<()>("rows").unwrap();
    let x = [1.0f32, 2.0, 3.0, 4.0];
    let (mut y, mut sum) = ([0.0f32; 4], 0.0f32);
    let (r, flags) = (Array2::<f32>::ones((3, 2)), [true; 3]);
    let (mut s, mut f) = ([0.0f32; 3], [false; 3]);
    let mut all = || {
        fixed.call_into((&x, 2.0f32), (&mut y, &mut sum)).unwrap();
        weighted.call_into((&x,), (&mut y,)).unwrap();
        rows.call_into((&r, &flags), (&mut s, &mut f)).unwrap();
    };
    all();
    assert_eq!(allocated(all), (0, 0));
}

// embedding 14: results and feeds in another layout were copied twice.
#[test]
fn large_arrays_are_copied_no_more_than_needed() {
    const N: usize = 512;
    const BYTES: usize = N * N * 4;
    let module = module();
    let big = module.entry::<Array2<f32>>("big").unwrap();
    let x = Array2::<f32>::ones((N, N));
    drop(big.call((&x,)).unwrap());
    // The result, and some names and lists.
    let (_, bytes) = allocated(|| big.call((&x,)).unwrap());
    assert!((BYTES..BYTES + 4096).contains(&bytes), "{bytes} for a result of {BYTES}");
    // The result, and one copy of the feed.
    let (_, bytes) = allocated(|| big.call((&x.t(),)).unwrap());
    assert!((2 * BYTES..2 * BYTES + 4096).contains(&bytes), "{bytes} for {BYTES} twice");
    // The copy is right.
    let x = Array2::from_shape_fn((3, 3), |(i, j)| (3 * i + j) as f32);
    assert_eq!(big.call((&x.t(),)).unwrap(), x.t().mapv(|v| v + 1.0));
}

#[test]
fn results_have_the_types_that_are_asked_for() {
    let module = module();
    let x = array![1.0f32, 2.0, 3.0, 4.0];
    let call = || module.call("fixed", (&x, 2.0f32)).unwrap();
    let (y, sum): (Array1<f32>, f32) = call().into_arrays().unwrap();
    assert_eq!((y, sum), (array![2.0, 4.0, 6.0, 8.0], 10.0));
    let (y, sum): (Vec<f32>, Array0<f32>) = call().into_arrays().unwrap();
    assert_eq!((y.len(), sum.into_scalar()), (4, 10.0));
    assert_eq!(call().view::<f32>("y").unwrap()[[3]], 8.0);
    let e = call().into_arrays::<(Array2<f32>, f32)>().unwrap_err();
    assert!(e.to_string().contains("`y` has 1 axes, not 2"), "{e}");
    let e = call().into_arrays::<(ArrayD<f64>, f32)>().unwrap_err();
    assert_eq!(e.code(), ErrorCode::WRONG_DTYPE);
    let e = call().into_arrays::<Vec<f32>>().unwrap_err();
    assert_eq!(e.code(), ErrorCode::UNKNOWN_RESULT);
    // Entries are checked when they are looked up.
    assert!(module.entry::<(Array1<f32>, f32)>("fixed").is_ok());
    for wrong in [
        module.entry::<(Array2<f32>, f32)>("fixed").map(drop).unwrap_err(),
        module.entry::<(Array1<i32>, f32)>("fixed").map(drop).unwrap_err(),
        module.entry::<Array1<f32>>("fixed").map(drop).unwrap_err(),
    ] {
        assert_eq!(wrong.code(), ErrorCode::WRONG_DTYPE, "{wrong}");
    }
}

#[test]
fn any_number_of_feeds_goes_by_position() {
    let names: Vec<String> = (0..20).map(|i| format!("x{i}")).collect();
    let params: Vec<String> = names.iter().map(|n| format!("{n}: i64[]")).collect();
    let text = format!(
        "graph many\nentry f({}) -> (s: i64[]) {{ return {} }}",
        params.join(", "),
        names.join(" + ")
    );
    let module = tfc::compile(&tfc::parse(&text).unwrap()).unwrap();
    let feeds: Vec<Feed<'_>> = (0..20i64).map(Feed::from).collect();
    assert_eq!(module.call("f", feeds).unwrap().scalar::<i64>("s").unwrap(), 190);
}

// embedding 15: feeds given twice and unknown feeds were not named.
#[test]
fn wrong_feeds_are_named() {
    let module = module();
    let x = [1.0f32; 4];
    let call = |feeds: Vec<(&str, Feed<'_>)>| module.call("fixed", feeds).unwrap_err();
    let e = call(vec![("x", Feed::from(&x)), ("x", Feed::from(&x)), ("k", 1.0f32.into())]);
    assert_eq!(e.code(), ErrorCode::REPEATED_FEED);
    assert!(e.to_string().contains("`x` is fed twice in a call of `fixed`"), "{e}");
    let e = call(vec![("xs", Feed::from(&x)), ("k", 1.0f32.into())]);
    assert_eq!(e.code(), ErrorCode::UNKNOWN_FEED);
    assert!(e.to_string().contains("no parameter `xs`"), "{e}");
    assert!(e.to_string().contains("did you mean `x`?"), "{e}");
    let e = call(vec![("x", Feed::from(&x))]);
    assert_eq!(e.code(), ErrorCode::MISSING_FEED);
    // In words of Rust, not of Python.
    let e = module.call("fixed", (&[1.0f64; 4], 1.0f32)).unwrap_err();
    assert_eq!(e.code(), ErrorCode::WRONG_DTYPE);
    assert!(!e.to_string().contains("astype"), "{e}");
    assert!(e.to_string().contains("mapv"), "{e}");
}

// embedding 12: places were lost.
#[test]
fn failures_at_run_time_name_their_line() {
    let e = module().call("checked", (&[1.0f32, 2.0, -1.0, 4.0],)).unwrap_err();
    assert_eq!(e.code(), ErrorCode::ASSERTION);
    assert!(e.to_string().contains("<string>:21:3"), "{e}");
    // And what only the passes find.
    let text = "graph g\nentry f(x: i32[2]) -> (y: i32[2]) {\n  return grad(sum(x), wrt: x)\n}";
    let e = tfc::parse(text).and_then(|g| tfc::compile(&g)).unwrap_err();
    assert!(e.to_string().contains("<string>:3:"), "{e}");
}

#[test]
fn a_signature_says_it_all() {
    let signature = module().signature();
    assert_eq!(signature.name, "api");
    let names: Vec<&str> = signature.entries.iter().map(|e| e.name.as_str()).collect();
    assert_eq!(names, ["fixed", "weighted", "rows", "big", "checked"]);
    let rows = signature.entry("rows").unwrap();
    let ports: Vec<String> =
        rows.params.iter().chain(&rows.results).map(|p| p.to_string()).collect();
    assert_eq!(ports, ["x: f32[B, 2]", "flags: bool[B]", "y: f32[B]", "same: bool[B]"]);
    assert_eq!(rows.writes, ["count"]);
    assert_eq!(signature.entry("weighted").unwrap().reads, ["w"]);
    assert_eq!(signature.entry("fixed").unwrap().doc, "Fixed sizes.");
    let b = signature.dims.iter().find(|d| d.name == "B").unwrap();
    assert_eq!((b.min, b.max), (1, Some(4096)));
    let w = signature.vars.iter().find(|v| v.name == "w").unwrap();
    assert_eq!((w.dtype, &w.shape[..], w.declared), (DType::F32, &[4][..], true));
}

#[test]
fn a_saved_module_is_the_same_module() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("api.tfcm");
    let module = module();
    module.save(&path).unwrap();
    // SAFETY: written by `save` just now.
    let again = unsafe { Module::load(&path) }.unwrap();
    assert_eq!(again.signature(), module.signature());
    let x = [1.0f32, 2.0, 3.0, 4.0];
    for entry in ["fixed", "weighted"] {
        let call = |m: &Module| -> Vec<tfc::Value> {
            let feeds = [Feed::from(&x), Feed::from(3.0f32)];
            let count = m.signature().entry(entry).unwrap().params.len();
            m.call(entry, feeds[..count].to_vec()).unwrap().into_values()
        };
        assert_eq!(call(&again), call(&module));
    }
    // And can be saved again, byte for byte.
    let copy = dir.path().join("copy.tfcm");
    again.save(&copy).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(std::fs::read(&copy).unwrap(), bytes);

    // Whatever is changed or missing, it is noticed.
    let bad = dir.path().join("bad.tfcm");
    let load = |bytes: &[u8]| {
        std::fs::write(&bad, bytes).unwrap();
        // SAFETY: no code of it is run unless it is as `save` wrote it.
        unsafe { Module::load(&bad) }.map(drop).unwrap_err().code()
    };
    for at in (0..bytes.len()).step_by(bytes.len() / 97 + 1) {
        let mut changed = bytes.clone();
        changed[at] ^= 0x40;
        assert_eq!(load(&changed), ErrorCode::DAMAGED_MODULE, "byte {at}");
        assert_eq!(load(&bytes[..at]), ErrorCode::DAMAGED_MODULE, "cut at {at}");
    }
    assert_eq!(load(&[&bytes[..], b"more"].concat()), ErrorCode::DAMAGED_MODULE);
    // SAFETY: there is no such file.
    let missing = unsafe { Module::load(dir.path().join("none")) }.unwrap_err();
    assert_eq!(missing.code(), "E0804");
}

#[test]
fn options_say_how_many_threads_and_where_to_print() {
    let text = "graph g\nentry f(x: f32[2]) {\n  print(x, label: \"x\")\n}";
    let lines = std::sync::Arc::new(std::sync::Mutex::new(vec![]));
    let sink = lines.clone();
    let options = Options::new().threads(1).print(move |line| {
        sink.lock().unwrap().push(line.to_string());
    });
    let module = tfc::compile_with(&tfc::parse(text).unwrap(), &options).unwrap();
    module.call("f", (&[1.0f32, 2.0],)).unwrap();
    assert_eq!(*lines.lock().unwrap(), ["x: f32[2] [1.0, 2.0]"]);
}

// embedding 15: working memory never shrank.
#[test]
fn working_memory_shrinks_after_a_large_call() {
    let text = "graph g\ndim N\nentry f(x: f32[N, 8], w: f32[8, 8]) -> (y: f32[]) {\n  \
                return sum(matmul(matmul(x, w), w))\n}";
    let module = tfc::compile(&tfc::parse(text).unwrap()).unwrap();
    let w = Array2::<f32>::ones((8, 8));
    let call = |n: usize| {
        let x = Array2::<f32>::ones((n, 8));
        module.call("f", (&x, &w)).unwrap().scalar::<f32>("y").unwrap()
    };
    assert_eq!(call(100_000), 8.0 * 8.0 * 8.0 * 100_000.0);
    let large = module.working_memory();
    assert!(large >= 100_000 * 8 * 4, "{large}");
    (0..40).for_each(|_| assert_eq!(call(2), 1024.0));
    assert!(module.working_memory() < large / 100, "{}", module.working_memory());
    call(100_000);
    module.trim();
    assert_eq!(module.working_memory(), 0);
    assert_eq!(call(2), 1024.0);
}

/// A step of two members of a group is that of one with all examples; a combination
/// the graph asks for, and the gradient of one, are over both.
#[test]
fn members_of_a_group_train_together() {
    let text = "graph g\ndim B\nvar w: f32[2] = ones\nfunc sgd(var p, grad: _[..]) { p -= 0.5 * grad }\n\
                entry train(x: f32[B, 2], y: f32[B]) -> (loss: f32[], most: f32[]) {\n  \
                e = x @ w - y\n  scale = all_reduce(mean(e * e))\n  loss = mean(e * e) + 0.1 * scale\n  \
                minimize loss over [w] with sgd()\n  return loss, all_reduce(max(y), op: \"max\")\n}";
    let graph = tfc::parse(text).unwrap();
    let options = Options::new().replicas(true).threads(1);
    let x = ndarray::array![[1.0f32, 2.0], [-0.5, 1.0], [0.25, 0.75], [2.0, -1.0]];
    let y = ndarray::array![1.0f32, 0.0, 5.0, 2.0];
    let alone = tfc::compile_with(&graph, &options).unwrap();
    for _ in 0..5 {
        alone.call("train", (&x, &y)).unwrap();
    }
    let groups = tfc::net::local::groups(2, std::time::Duration::from_secs(20));
    let learned: Vec<Vec<f32>> = std::thread::scope(|s| {
        let members: Vec<_> = groups
            .into_iter()
            .map(|group| {
                let module = tfc::compile_with(&graph, &options).unwrap();
                let (lo, hi) = group.part(0, 4);
                let (x, y) = (x.slice(ndarray::s![lo..hi, ..]), y.slice(ndarray::s![lo..hi]));
                let (x, y) = (x.to_owned(), y.to_owned());
                module.join(std::sync::Arc::new(group));
                s.spawn(move || {
                    for _ in 0..5 {
                        let out = module.call("train", (&x, &y)).unwrap();
                        assert_eq!(out.scalar::<f32>("most").unwrap(), 5.0);
                    }
                    module.var::<f32>("w").unwrap().into_iter().collect()
                })
            })
            .collect();
        members.into_iter().map(|m| m.join().unwrap()).collect()
    });
    assert_eq!(learned[0], learned[1]);
    let want = alone.var::<f32>("w").unwrap();
    for (a, b) in learned[0].iter().zip(want) {
        assert!((a - b).abs() < 1e-5, "{learned:?}");
    }
}

/// A recurrent network on two tasks, threads here: its loop and its gradient on one, the
/// rest on the other. The numbers are those of one.
#[test]
fn a_recurrent_network_on_two_tasks_learns_what_one_learns() {
    let text = "graph g\nuse optim\ndim B\nvar wx: f32[3, 4] = 0.1 on \"/job:a/task:1\"\n\
                var wh: f32[4, 4] = 0.2\nvar wo: f32[4] = 0.3 on \"/job:a/task:0\"\n\
                entry train(x: f32[5, B, 3], y: f32[B]) -> (loss: f32[]) {\n  \
                zero = zeros(shape: [B, 4])\n  \
                (_t, h) = while (t = 0, h = zero) t < 5 {\n    \
                  n = tanh(x[t] @ wx + h @ wh)\n    yield t + 1, n\n  }\n  \
                e = h @ wo - y\n  loss = mean(e * e)\n  \
                minimize loss over [wx, wh, wo] with optim.adam(lr: 0.05)\n  return loss\n}";
    let graph = tfc::parse(text).unwrap();
    let options = Options::new().threads(1).cluster(tfc::Cluster::of("a", 2));
    let x = ndarray::Array3::from_shape_fn((5, 4, 3), |(t, b, i)| {
        ((t * 7 + b * 5 + i * 3) % 11) as f32 * 0.2 - 1.0
    });
    let y = ndarray::array![0.5f32, -0.25, 1.0, 0.0];
    let alone = tfc::compile_with(&graph, &options).unwrap();
    let mut groups = tfc::net::local::groups(2, std::time::Duration::from_secs(20)).into_iter();
    let (first, second) = (groups.next().unwrap(), groups.next().unwrap());
    let chief = tfc::compile_with(&graph, &options).unwrap();
    let other = tfc::compile_with(&graph, &options).unwrap();
    let serving = std::thread::spawn(move || {
        let served = other.serve(std::sync::Arc::new(second));
        // What it has, it has for itself.
        (served, other.var::<f32>("wx").unwrap())
    });
    chief.lead(std::sync::Arc::new(first)).unwrap();
    let mut losses = vec![];
    for _ in 0..20 {
        let want = alone.call("train", (&x, &y)).unwrap().scalar::<f32>("loss").unwrap();
        let got = chief.call("train", (&x, &y)).unwrap().scalar::<f32>("loss").unwrap();
        assert!((want - got).abs() <= 1e-5 * want.abs().max(1e-3), "{want} {got}");
        losses.push(got);
    }
    assert!(losses[19] < losses[0] * 0.5, "{losses:?}");
    for name in ["wx", "wh", "wo"] {
        let (a, b) = (alone.var::<f32>(name).unwrap(), chief.var::<f32>(name).unwrap());
        for (a, b) in a.iter().zip(&b) {
            assert!((a - b).abs() < 1e-5, "{name}: {a} {b}");
        }
    }
    // Set at the chief, there at its task.
    let mine = chief.var::<f32>("wx").unwrap();
    chief.set_var("wx", &(&mine * 0.0)).unwrap();
    chief.dismiss().unwrap();
    let (served, wx) = serving.join().unwrap();
    served.unwrap();
    assert!(wx.iter().all(|v| *v == 0.0), "{wx}");
}

/// Two workers and two servers, each a thread: the numbers of one module with all
/// examples.
#[test]
fn workers_and_parameter_servers_from_rust() {
    use tfc::net::job::Job;
    use tfc::net::ps::server::Rule;
    let text = "graph g\nuse optim\ndim B\nvar w: f32[2, 3] = ones\nvar b: f32[3] = zeros\n\
                entry train(x: f32[B, 2], y: f32[B, 3]) -> (loss: f32[]) {\n  e = x @ w + b - y\n  \
                loss = mean(e * e)\n  minimize loss over [w, b] with optim.adagrad(lr: 0.1)\n  \
                return loss\n}";
    let graph = tfc::parse(text).unwrap();
    let options = Options::new().replicas(true).threads(1);
    let x = ndarray::Array2::from_shape_fn((6, 2), |(i, j)| (i * 2 + j) as f32 / 5.0 - 1.0);
    let y = ndarray::Array2::from_shape_fn((6, 3), |(i, j)| (i + j) as f32 / 7.0);
    let alone = tfc::compile_with(&graph, &options).unwrap();
    for _ in 0..10 {
        alone.call("train", (&x, &y)).unwrap();
    }
    let servers = vec![free_address().to_string(), free_address().to_string()];
    let job = |rank: usize| Job { servers: servers.clone(), ..Job::new(rank, 2, "") };
    let module = || tfc::compile_with(&graph, &options).unwrap();
    let learned = std::thread::scope(|s| {
        for rank in 0..2 {
            let (module, job) = (module(), job(rank));
            s.spawn(move || {
                module
                    .serve_variables("train", &job, Rule::Together { need: 2 }, &|| false)
                    .unwrap();
            });
        }
        let workers: Vec<_> = (0..2)
            .map(|rank| {
                let (module, job) = (module(), job(rank));
                let rows = ndarray::s![rank * 3..rank * 3 + 3, ..];
                let (x, y) = (x.slice(rows).to_owned(), y.slice(rows).to_owned());
                s.spawn(move || {
                    let mut worker = module.worker("train", &job).unwrap();
                    while worker.next_step() < 10 {
                        let out = worker.step((&x, &y), 0.5).unwrap().unwrap();
                        assert!(out.scalar::<f32>("loss").unwrap().is_finite());
                    }
                    worker.finish().unwrap();
                    module.var::<f32>("w").unwrap()
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).next().unwrap()
    });
    for (a, b) in learned.iter().zip(alone.var::<f32>("w").unwrap().iter()) {
        assert!((a - b).abs() < 1e-5, "{a} {b}");
    }
}

/// What a call may take is limited: when it is compiled if all sizes are known, else when
/// it is called; the message says where most is in use.
#[test]
fn memory_is_limited() {
    let text = |size: &str| {
        format!(
            "graph m\ndim B\nvar w: f32[16, 16] = ones\n\
             entry f(x: f32[{size}, 16]) -> (y: f32[{size}, 16]) {{\n  \
             h = x @ w\n  t = cumsum(h, axis: 0)\n  return t @ w\n}}\n"
        )
    };
    let options = tfc::Options::new().threads(1).max_memory(100_000);
    let error = |e: tfc::Error| (e.diags[0].code.to_string(), e.to_string());
    let fixed = tfc::parse(&text("4096")).unwrap();
    let (code, said) = error(tfc::compile_with(&fixed, &options).unwrap_err());
    assert_eq!(code, "E0594", "{said}");
    assert!(said.contains("`f` needs ") && said.contains("97.7 KiB"), "{said}");
    assert!(said.contains("variables take 1.0 KiB"), "{said}");
    assert!(said.contains(":6, in ") || said.contains(":5, in "), "{said}");

    // It trains nothing.
    assert!(said.contains("compute on less at a time or allow more"), "{said}");

    let module = tfc::compile_with(&tfc::parse(&text("B")).unwrap(), &options).unwrap();
    let zeros = |rows: usize| ndarray::Array2::<f32>::zeros((rows, 16));
    module.call("f", (&zeros(64),)).unwrap();
    let (code, said) = error(module.call("f", (&zeros(4096),)).unwrap_err());
    assert_eq!(code, "E0594", "{said}");
    module.call("f", (&zeros(64),)).unwrap();
}

/// Twelve layers with a way around each, so that much is used across the whole step.
const DEEP: &str = "graph deep\nuse layer\nuse nn\nuse optim\nlet B = 256\n\
     layer block(x) {\n  \
       h = nn.gelu(layer.layer_norm(layer.dense(x, units: 64)))\n  \
       return x + tanh(layer.dense(h, units: 64)) * sigmoid(h)\n}\n\
     model net(x: f32[B, 64]) -> f32[B, 64] {\n  \
       h = x\n  for i in 0..12 {\n    h = block(h)\n  }\n  return h\n}\n\
     entry train(x: f32[B, 64]) -> (loss: f32[]) {\n  \
       loss = mean((net(x) - 0.5) ** 2)\n  minimize loss with optim.adam(lr: 0.01)\n  \
       return loss\n}\n\
     entry predict(x: f32[B, 64]) -> (y: f32[B, 64]) {\n  return net(x)\n}\n";

/// Losses of five steps, the weights after them, and what the calls take.
fn train_deep(options: &tfc::Options) -> (Vec<u32>, Vec<u32>, usize) {
    let graph = tfc::parse(DEEP).unwrap();
    let module = tfc::compile_with(&graph, options).unwrap();
    let x = ndarray::Array2::from_shape_fn((256, 64), |(i, j)| ((i * 7 + j) % 23) as f32 / 23.0);
    let losses = (0..5).map(|_| {
        let out = module.call("train", (&x,)).unwrap();
        out.scalar::<f32>("loss").unwrap().to_bits()
    });
    let losses = losses.collect();
    let mut weights = vec![];
    for w in module.weights() {
        weights.extend(module.var::<f32>(&w).unwrap().iter().map(|v| v.to_bits()));
    }
    (losses, weights, module.working_memory())
}

/// Computing the forward pass again changes no bit, and saves memory.
#[test]
fn what_is_computed_again_has_the_same_bits() {
    let options = tfc::Options::new().threads(1);
    let (losses, weights, memory) = train_deep(&options);
    let (again, same, less) = train_deep(&options.clone().recompute(true));
    assert!(losses.windows(2).all(|w| w[0] != w[1]), "it learns: {losses:?}");
    assert!(!weights.is_empty());
    assert_eq!((losses, weights), (again, same));
    assert!(less * 2 < memory, "{less} bytes instead of {memory}");
}

/// How many steps training and predicting have.
fn steps(graph: &tfc::Graph, options: &tfc::Options) -> Result<(usize, usize), tfc::Error> {
    let program = tfc::driver::compile(
        graph,
        &tfc_ir::diag::SourceMap::default(),
        options,
        &mut tfc::driver::Timings::default(),
    )?;
    let of = |name: &str| {
        let entry = program.program().plan.entries.iter().find(|e| e.name == name);
        entry.map_or(0, |e| e.steps.len())
    };
    Ok((of("train"), of("predict")))
}

/// With a limit, only as much is computed again as it takes; what cannot be kept to is the
/// error it would be without.
#[test]
fn as_little_is_computed_again_as_a_limit_takes() {
    let graph = tfc::parse(DEEP).unwrap();
    let options = tfc::Options::new().threads(1).recompute(true);
    let steps = |options: &tfc::Options| steps(&graph, options);
    let (most, predict) = steps(&options).unwrap();
    let (none, also) = steps(&options.clone().recompute(false)).unwrap();
    assert!(most > none && predict == also, "{most} and {none} steps, {predict} and {also}");
    let (all, variables) = (train_deep(&options.clone().recompute(false)).2 as u64, 1_250_000);
    let allowed = |part: u64| steps(&options.clone().max_memory(variables + all * part / 100));
    let few = allowed(80).unwrap().0;
    assert!(few > none && few < most, "{few} steps, between {none} and {most}");
    assert_eq!(allowed(200).unwrap().0, none);
    let e = allowed(3).unwrap_err();
    assert_eq!(e.diags[0].code.to_string(), "E0594", "{e}");
    // It is advised where it was not asked for.
    assert!(!e.to_string().contains("--recompute"), "{e}");
    let plain = options.recompute(false).max_memory(variables + all / 33);
    let e = tfc::compile_with(&graph, &plain).unwrap_err();
    assert!(e.to_string().contains("compile with `--recompute`"), "{e}");
}

/// Where sizes are known only at a call, what is computed again is what the largest call
/// takes; if there is no largest, all there is. Calls that do not train have no part in it.
#[test]
fn calls_of_many_sizes_are_computed_again_for_the_largest() {
    let options = tfc::Options::new().threads(1).recompute(true);
    let (all, variables) = (train_deep(&options.clone().recompute(false)).2 as u64, 1_250_000);
    let limited = |part: u64| options.clone().max_memory(variables + all * part / 100);
    let sized = |dim: &str| tfc::parse(&DEEP.replace("let B = 256", dim)).unwrap();
    let open = sized("dim B");
    let most = steps(&open, &options).unwrap();
    assert_eq!(steps(&open, &limited(200)).unwrap(), most);
    let module = tfc::compile_with(&open, &limited(60)).unwrap();
    module.call("train", (&ndarray::Array2::<f32>::zeros((256, 64)),)).unwrap();

    let bounded = sized("dim B: 1..256");
    let none = steps(&bounded, &options.clone().recompute(false)).unwrap();
    let few = steps(&bounded, &limited(80)).unwrap();
    assert!(few.0 > none.0 && few.0 < most.0, "{few:?} steps, between {none:?} and {most:?}");
    assert_eq!(steps(&bounded, &limited(200)).unwrap(), none);
    // What is too much for the largest call is not for a smaller one.
    assert_eq!(steps(&bounded, &limited(3)).unwrap(), most);
}
