//! The executor on hand-made plans.

mod common;

use common::*;
use tfc_abi::plan::*;
use tfc_abi::{DType, Version, cpu};
use tfc_runtime::{ErrorKind, FeedView, Model, ResultView, TensorBuf};

fn small() -> Model {
    load(&small_plan(), &KERNELS, 2).unwrap()
}

fn floats(shape: &[usize], values: &[f32]) -> TensorBuf {
    TensorBuf::from_slice(shape, values).unwrap()
}

fn only(model: &Model, entry: &str, feeds: &[&TensorBuf]) -> Vec<f32> {
    let entry = model.entry(entry).unwrap();
    let views: Vec<FeedView<'_>> = feeds.iter().map(|t| t.view()).collect();
    let out = model.call(entry, &views).unwrap();
    out[0].as_slice::<f32>().unwrap().to_vec()
}

fn failure(model: &Model, entry: &str, feeds: &[&TensorBuf]) -> String {
    let entry = model.entry(entry).unwrap();
    let views: Vec<FeedView<'_>> = feeds.iter().map(|t| t.view()).collect();
    model.call(entry, &views).unwrap_err().to_string()
}

#[test]
fn predicts_trains_and_initialises() {
    let m = small();
    let x = floats(&[2, 4], &[1., 2., 3., 4., -9., 0., 0., 0.]);
    assert_eq!(only(&m, "predict", &[&x]), [11., 11., 11., 0., 0., 0.]);
    let y = floats(&[2], &[0.5, 1.0]);
    assert_eq!(only(&m, "train", &[&x, &y]), [1.5]);
    assert_eq!(only(&m, "predict", &[&x])[0], 12.5);
    assert_eq!(m.read_var(1).unwrap().as_slice::<f32>().unwrap(), [2.5; 3]);
    m.write_var(1, floats(&[3], &[0., 1., 2.]).view()).unwrap();
    assert_eq!(only(&m, "predict", &[&x])[..3], [10., 11., 12.]);
    m.init().unwrap();
    assert_eq!(only(&m, "predict", &[&x])[0], 11.0);
}

#[test]
fn sizes_follow_the_feeds() {
    let m = small();
    for b in [1usize, 7, 3, 64, 1] {
        let x = floats(&[b, 4], &vec![1.0; b * 4]);
        assert_eq!(only(&m, "predict", &[&x]), vec![5.0; b * 3]);
    }
    let x = floats(&[9, 4], &[0.0; 36]);
    assert_eq!(m.result_shapes(0, &[x.view()]).unwrap(), [vec![9, 3]]);
}

#[test]
fn writes_into_the_callers_memory() {
    let m = small();
    let x = floats(&[2, 4], &[1.0; 8]);
    let mut out = vec![0f32; 6];
    // SAFETY: six floats are 24 bytes.
    let bytes = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), 24) };
    m.run(0, &[x.view()], &mut [ResultView { data: &mut *bytes }]).unwrap();
    let e = m.run(0, &[x.view()], &mut [ResultView { data: &mut bytes[..20] }]).unwrap_err();
    assert_eq!(e.message(), "result `y` is f32[2, 3] here: 24 bytes, but memory for 20 was given");
    assert_eq!(m.run(0, &[x.view()], &mut []).unwrap_err().code(), "E0522");
    assert_eq!(out, [5.0; 6]);
}

#[test]
fn feeds_need_not_be_aligned() {
    let m = small();
    let x = floats(&[2, 4], &[1., 2., 3., 4., 5., 6., 7., 8.]);
    let mut shifted = vec![0u8];
    shifted.extend_from_slice(x.bytes());
    let view = FeedView { dtype: DType::F32, shape: &[2, 4], data: &shifted[1..] };
    let out = m.call(0, &[view]).unwrap();
    assert_eq!(out[0].as_slice::<f32>().unwrap(), [11., 11., 11., 27., 27., 27.]);
}

#[test]
fn wrong_feeds_are_explained() {
    let m = small();
    let x = floats(&[2, 4], &[0.0; 8]);
    assert_eq!(failure(&m, "train", &[&x]), "error[E0501]: entry `train` is missing feed `y`");
    assert_eq!(
        failure(&m, "predict", &[&x, &x]),
        "error[E0502]: entry `predict` takes 1 feed (`x`), but was given 2"
    );
    let doubles = TensorBuf::from_slice(&[2, 4], &[0f64; 8]).unwrap();
    assert_eq!(
        failure(&m, "predict", &[&doubles]),
        "error[E0503]: feed `x` must be f32[B, 4], but was given f64[2, 4]\n  \
         = note: the elements are f64, not f32\n  \
         = help: give f32 data; in NumPy, `x.astype(\"float32\")` converts"
    );
    assert_eq!(
        failure(&m, "predict", &[&floats(&[4], &[0.0; 4])]),
        "error[E0504]: feed `x` must be f32[B, 4], but was given f32[4]\n  \
         = note: the number of axes is 1 instead of 2\n  \
         = help: a single example still needs its batch axis: add one of size 1"
    );
    assert_eq!(
        failure(&m, "predict", &[&floats(&[2, 5], &[0.0; 10])]),
        "error[E0505]: feed `x` must be f32[B, 4], but was given f32[2, 5]\n  \
         = note: the second size is 5, but must be 4 here"
    );
    assert_eq!(
        failure(&m, "train", &[&x, &floats(&[3], &[0.0; 3])]),
        "error[E0506]: feeds `x` and `y` disagree about B: 2 and 3\n  \
         = note: feed `x` is f32[B, 4] and was given f32[2, 4], so B = 2\n  \
         = note: feed `y` is f32[B] and was given f32[3], so B = 3"
    );
    assert_eq!(
        failure(&m, "predict", &[&floats(&[0, 4], &[])]),
        "error[E0507]: B is 0, but the graph declares it as 1 to 100000\n  \
         = note: feed `x` is f32[B, 4] and was given f32[0, 4], so B = 0"
    );
    let lying = FeedView { dtype: DType::F32, shape: &[2, 4], data: &[0; 31] };
    assert_eq!(m.call(0, &[lying]).unwrap_err().code(), "E0505");
    let e = m.entry("predcit").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Usage);
    assert_eq!(e.help_text(), Some("did you mean `predict`?"));
}

#[test]
fn compound_sizes_are_checked_or_solved() {
    let plan = |with_bare: bool| {
        let mut e = Make::new("f");
        if with_bare {
            e.param("a", DType::F32, &[S::D(0)], "f32[B]");
        }
        e.param("c", DType::F32, &[S::Times(0, 3)], "f32[3*B]");
        Plan { dims: vec![dim("B", 0, i64::MAX)], entries: vec![e.entry], ..Plan::default() }
    };
    let m = load(&plan(true), &[], 1).unwrap();
    let (a, c) = (floats(&[2], &[0.0; 2]), floats(&[6], &[0.0; 6]));
    m.call(0, &[a.view(), c.view()]).unwrap();
    assert_eq!(
        failure(&m, "f", &[&a, &floats(&[7], &[0.0; 7])]),
        "error[E0505]: feed `c` must be f32[3*B], but was given f32[7]\n  \
         = note: the first size is 7, but must be 6 here\n  \
         = note: feed `a` is f32[B] and was given f32[2], so B = 2"
    );
    let m = load(&plan(false), &[], 1).unwrap();
    m.call(0, &[c.view()]).unwrap();
    assert!(failure(&m, "f", &[&floats(&[7], &[0.0; 7])]).contains("no size of B makes"));
}

#[test]
fn conditions_on_dims_are_checked_first() {
    let mut e = Make::new("f");
    e.param("x", DType::F32, &[S::D(0)], "f32[N]");
    let value = e.e(Expr(vec![ExprOp::Dim(0), ExprOp::Const(-3), ExprOp::Add]));
    // This buffer has a negative size when the condition does not hold.
    e.entry.slots.push(value);
    e.entry.conditions.push(Condition {
        value,
        message: "the window of 3 does not fit an image of N".into(),
        place: "f.graph:2:7".into(),
    });
    let plan =
        Plan { dims: vec![dim("N", 0, i64::MAX)], entries: vec![e.entry], ..Plan::default() };
    let m = load(&plan, &[], 1).unwrap();
    m.call(0, &[floats(&[3], &[0.0; 3]).view()]).unwrap();
    assert_eq!(
        failure(&m, "f", &[&floats(&[2], &[0.0; 2])]),
        "error[E0518]: the window of 3 does not fit an image of N\n  \
         = note: at f.graph:2:7\n  \
         = note: feed `x` is f32[N] and was given f32[2], so N = 2"
    );
}

#[test]
fn a_dim_no_feed_tells_is_an_error() {
    let mut e = Make::new("f");
    e.result("r", DType::F32, &[S::D(0)], "f32[B]");
    let plan = Plan { dims: vec![dim("B", 0, 9)], entries: vec![e.entry], ..Plan::default() };
    let m = load(&plan, &[], 1).unwrap();
    assert!(failure(&m, "f", &[]).starts_with("error[E0517]: the size of B cannot be told"));
}

#[test]
fn control_flow_runs() {
    // i = 0; while i < x { i += step }; if i < big { r = i } else { r = x }
    let mut e = Make::new("f");
    let x = e.param("x", DType::F32, &[], "f32[]");
    let step = e.param("step", DType::F32, &[], "f32[]");
    let big = e.param("big", DType::F32, &[], "f32[]");
    let r = e.result("r", DType::F32, &[], "f32[]");
    let i = e.slot(DType::F32, &[]);
    let flag = e.slot(DType::Bool, &[]);
    e.step(Step::Call(Call { func: Func::Zero, bufs: vec![i], ints: vec![] }));
    let head = e.launch(LESS, &[flag, i, x], &[], S::N(1), 0);
    let body = e.launch(ADD_SCALAR, &[i, step], &[], S::N(1), 0);
    e.step(Step::While { head: vec![head].into(), cond: flag, body: vec![body].into() });
    let test = e.launch(LESS, &[flag, i, big], &[], S::N(1), 0);
    e.step(test);
    e.step(Step::If {
        cond: flag,
        then: vec![Step::Copy { src: i, dst: r }].into(),
        otherwise: vec![Step::Copy { src: x, dst: r }].into(),
    });
    e.step(Step::Assert { cond: flag, message: "i is small".into(), place: "f.graph:1:2".into() });
    let plan = Plan { kernels: small_plan().kernels, entries: vec![e.entry], ..Plan::default() };
    let m = load(&plan, &KERNELS, 1).unwrap();
    let s = |v| floats(&[], &[v]);
    assert_eq!(only(&m, "f", &[&s(5.0), &s(2.0), &s(10.0)]), [6.0]);
    assert_eq!(
        failure(&m, "f", &[&s(5.0), &s(2.0), &s(1.0)]),
        "error[E0509]: assertion failed: i is small\n  = note: at f.graph:1:2"
    );
}

#[test]
fn results_do_not_depend_on_threads() {
    let mut e = Make::new("f");
    let n = S::D(0);
    let x = e.param("x", DType::F32, &[n], "f32[N]");
    let t = e.slot(DType::F32, &[n]);
    let r = e.result("r", DType::F32, &[n], "f32[N]");
    let s = e.launch(DOUBLE, &[t, x], &[], n, 1000);
    e.step(s);
    let s = e.launch(DOUBLE, &[r, t], &[], n, 1000);
    e.step(s);
    let plan = Plan {
        dims: vec![dim("N", 0, i64::MAX)],
        kernels: small_plan().kernels,
        entries: vec![e.entry],
        ..Plan::default()
    };
    for n in [0usize, 1, 63, 1000, 4097] {
        let x = floats(&[n], &(0..n).map(|i| i as f32).collect::<Vec<_>>());
        let want: Vec<f32> = (0..n).map(|i| i as f32 * 4.0).collect();
        for threads in [1, 2, 5] {
            let m = load(&plan, &KERNELS, threads).unwrap();
            assert_eq!(only(&m, "f", &[&x]), want);
        }
    }
}

#[test]
fn readers_and_writers_from_many_threads() {
    let m = small();
    let x = floats(&[1, 4], &[0.0; 4]);
    let y = floats(&[1], &[1.0]);
    std::thread::scope(|s| {
        for t in 0..4 {
            let (m, x, y) = (&m, &x, &y);
            s.spawn(move || {
                for _ in 0..200 {
                    if t == 0 {
                        only(m, "train", &[x, y]);
                    } else {
                        let out = only(m, "predict", &[x]);
                        assert!(out[0] == out[1] && out[1] == out[2], "torn read: {out:?}");
                    }
                }
            });
        }
    });
    assert_eq!(only(&m, "predict", &[&x]), [201.0; 3]);
}

#[test]
fn bad_programs_are_refused() {
    let mut desc = *describe(&small_plan(), &KERNELS, &[]);
    // SAFETY: the descriptor is valid but for what each line damages, which is
    // found before it is used.
    let code = |desc| unsafe { Model::load(&desc).map(drop).unwrap_err() };
    desc.version += 1;
    assert!(code(desc).to_string().contains("compile the graph again"));
    desc.version -= 1;
    // SAFETY: a descriptor has one version at least.
    let plain = unsafe { *desc.versions };
    let newer = Version { features: 1 << 31 | cpu::AVX, ..plain };
    desc.versions = &raw const newer;
    let e = code(desc);
    assert_eq!((e.code().as_str(), e.exit_code()), ("E0805", 3));
    assert!(e.message().contains("features newer than this runtime"));
    desc.versions = &raw const plain;
    desc.kernel_count -= 1;
    assert_eq!(code(desc).code(), "E0806");
    desc.kernel_count += 1;
    desc.plan_len -= 3;
    assert_eq!(code(desc).code(), "E0806");
    // A version for plainer CPUs steps in for one without the features.
    let mut desc = *describe(&small_plan(), &KERNELS, &[]);
    let versions = [Version { kernels: std::ptr::null(), ..newer }, plain];
    desc.versions = versions.as_ptr();
    desc.version_count = 2;
    // SAFETY: the kernels of the plain version are those of the plan.
    assert!(unsafe { Model::load(&desc) }.is_ok());
    desc.version_count = 0;
    assert_eq!(code(desc).code(), "E0806");
}

#[test]
fn inconsistent_plans_are_bugs_not_crashes() {
    let mut plan = small_plan();
    let Step::MatMul(mm) = &mut plan.entries[0].steps[0] else { panic!("the first step") };
    std::mem::swap(&mut mm.m, &mut mm.k);
    mm.n = mm.m;
    let m = load(&plan, &KERNELS, 1).unwrap();
    let x = floats(&[9, 4], &[0.0; 36]);
    let text = failure(&m, "predict", &[&x]);
    assert!(text.contains("is inconsistent") && text.contains("bug in tfc"), "{text}");
}

#[test]
fn sizes_that_overflow_are_errors() {
    let mut e = Make::new("f");
    let x = e.param("x", DType::Bool, &[S::D(0), S::N(0)], "bool[N, 0]");
    let t = e.slot(DType::F64, &[S::D(0), S::D(0)]);
    e.step(Step::Print { label: "t".into(), buf: t });
    let _ = x;
    let plan =
        Plan { dims: vec![dim("N", 0, i64::MAX)], entries: vec![e.entry], ..Plan::default() };
    let m = load(&plan, &[], 1).unwrap();
    for n in [1usize << 28, 1 << 40, usize::MAX >> 1] {
        let view = FeedView { dtype: DType::Bool, shape: &[n, 0], data: &[] };
        assert_eq!(m.call(0, &[view]).unwrap_err().code(), "E0516", "{n}");
    }
}
