//! Plans survive encoding, and no bytes make decoding or checking panic.

use tfc_abi::DType;
use tfc_abi::codec::{DecodeError, MAX_NESTING};
use tfc_abi::plan::*;

/// A plan with at least one of everything.
fn sample() -> Plan {
    let exprs = vec![
        Expr(vec![ExprOp::Const(4)]),
        Expr(vec![ExprOp::Dim(0)]),
        Expr(vec![ExprOp::Dim(0), ExprOp::Const(4), ExprOp::Mul]),
        Expr(vec![
            ExprOp::Dim(0),
            ExprOp::Const(-3),
            ExprOp::Add,
            ExprOp::FloorDiv(2),
            ExprOp::Const(1),
            ExprOp::Max,
        ]),
        Expr(vec![ExprOp::Const(16), ExprOp::Dim(0), ExprOp::Mul]),
        Expr(vec![ExprOp::Const(1)]),
    ];
    let f32 =
        |shape: Vec<u32>, home| Buffer { dtype: DType::F32, len: 2, shape, home, device: HOST };
    let buffers = vec![
        f32(vec![1, 0], Home::Param(0)),
        f32(vec![1, 0], Home::Result(0)),
        Buffer { dtype: DType::F32, len: 0, shape: vec![0], home: Home::Var(0), device: HOST },
        Buffer { dtype: DType::F32, len: 0, shape: vec![0], home: Home::Const(0), device: HOST },
        f32(vec![1, 0], Home::slot(0)),
        Buffer { dtype: DType::Bool, len: 5, shape: vec![], home: Home::slot(1), device: HOST },
        Buffer { dtype: DType::I32, len: 1, shape: vec![1], home: Home::slot(0), device: HOST },
    ];
    let epilogue = Some(Epilogue { kernel: 0, bufs: vec![4, 3], outputs: 1, dims: vec![1] });
    let steps = vec![
        Step::Launch(Launch {
            kernel: 0,
            bufs: vec![4, 0],
            outputs: 1,
            dims: vec![1],
            extent: 1,
            cost: 0,
            splits: true,
            partial: false,
        }),
        Step::MatMul(MatMul {
            dtype: DType::F32,
            a: 0,
            b: 3,
            c: 4,
            m: 1,
            n: 0,
            k: 0,
            batch: 5,
            a_stride: 5,
            b_stride: 5,
            trans_a: false,
            trans_b: true,
            epilogue: epilogue.clone(),
        }),
        Step::Conv(Conv {
            kind: ConvKind::Forward,
            dtype: DType::F32,
            lhs: 0,
            rhs: 3,
            out: 4,
            batch: 5,
            in_channels: 5,
            in_h: 0,
            in_w: 0,
            out_channels: 5,
            out_h: 0,
            out_w: 0,
            kernel: [1, 3],
            stride: [2, 1],
            dilation: [1, 1],
            pad: [0, 7],
            groups: 1,
            epilogue,
        }),
        Step::If {
            cond: 5,
            then: vec![Step::Copy { src: 4, dst: 1 }].into(),
            otherwise: vec![Step::While {
                head: vec![Step::Print { label: "x".into(), buf: 0 }].into(),
                cond: 5,
                body: vec![Step::Assert {
                    cond: 5,
                    message: "x is small".into(),
                    place: "m.graph:3:4".into(),
                }]
                .into(),
            }]
            .into(),
        },
        Step::Call(Call {
            func: Func::ScatterAddRows,
            bufs: vec![2, 6, 4],
            ints: vec![0, 1, 0, 1],
        }),
        Step::Call(Call { func: Func::Zero, bufs: vec![1], ints: vec![] }),
        Step::CheckIndex(CheckIndex {
            ids: 6,
            size: 0,
            width: 1,
            axis: 2,
            name: "ids".into(),
            user: "gather".into(),
            place: "m.graph:5:6".into(),
        }),
        Step::Exchange(Exchange {
            combine: Combine::Max,
            bufs: vec![1],
            name: "the gradient of `w`".into(),
            place: "m.graph:3:1".into(),
        }),
        Step::Send(Message {
            peer: 1,
            buf: Some(0),
            name: "`h`".into(),
            place: "m.graph:3:2".into(),
        }),
        Step::Recv(Message { peer: 0, buf: None, name: "a signal".into(), place: "".into() }),
        Step::CheckFinite(CheckFinite {
            bufs: vec![0, 1],
            name: "loss".into(),
            user: "exp".into(),
            names: "x".into(),
            place: "m.graph:7:6".into(),
        }),
        Step::Push { stack: 3, src: 0 },
        Step::Pop { stack: 3, dst: 1, name: "loop.h".into() },
        Step::Queue(QueueStep {
            action: QueueAction::DequeueMany,
            queue: 1,
            bufs: vec![2],
            count: 0,
            place: "sample.graph:3:1".into(),
        }),
    ];
    let port = |name: &str, buf| Port {
        name: name.into(),
        dtype: DType::F32,
        shape: vec![1, 0],
        buf,
        text: "f32[B, 4]".into(),
    };
    Plan {
        name: "sample".into(),
        doc: "About it.".into(),
        graph_hash: std::array::from_fn(|i| i as u8 * 7),
        dims: vec![DimInfo { name: "B".into(), min: 0, max: i64::MAX }],
        vars: vec![VarInfo {
            name: "w".into(),
            dtype: DType::F32,
            shape: vec![4],
            user: true,
            random: false,
            zero: false,
            task: 1,
            asked: Some(1),
        }],
        consts: vec![ConstInfo { dtype: DType::F32, shape: vec![4], offset: 64, len: 16 }],
        kernels: vec!["k0".into()],
        entries: vec![
            Entry {
                name: "predict".into(),
                doc: "Does it.".into(),
                params: vec![port("x", 0)],
                results: vec![port("y", 1)],
                exprs,
                buffers,
                slots: vec![4, 5],
                steps: steps.into(),
                writes: vec![0],
                conditions: vec![Condition {
                    value: 0,
                    message: "too small".into(),
                    place: "sample.graph:1:1".into(),
                }],
                runner: true,
                replica_of: Some(0),
                part: Some(PartOf { whole: Some(1), task: 0 }),
            },
            Entry { name: "init".into(), ..Entry::default() },
        ],
        init: Some(1),
        source: "sample.graph".into(),
        queues: vec![
            QueueInfo {
                name: "examples".into(),
                kind: QueueKind::Shuffle { capacity: 8, min: 4, seed: -1 },
                parts: vec![Part { dtype: DType::F32, shape: vec![4] }],
            },
            QueueInfo {
                name: "records".into(),
                kind: QueueKind::Reader(ReaderInfo {
                    format: Format::Csv,
                    paths: vec!["*.csv".into()],
                    keys: vec![],
                    epochs: 2,
                    skip: 1,
                }),
                parts: vec![Part { dtype: DType::F32, shape: vec![4] }],
            },
        ],
        devices: vec![Device::host(), Device { placement: "/cpu:1".into(), ..Device::host() }],
        asked: vec![Device::host(), Device::cuda(1)],
        strict: true,
        max_memory: 1 << 40,
        recompute: true,
        tasks: vec![
            Task { name: "/job:a/task:0".into(), address: "a:1".into() },
            Task { name: "/job:a/task:1".into(), address: String::new() },
        ],
    }
}

#[test]
fn a_plan_survives() {
    let plan = sample();
    plan.check().unwrap();
    let bytes = plan.encode();
    assert_eq!(Plan::decode(&bytes).unwrap(), plan);
    assert_eq!(plan.encode(), bytes);
    assert_eq!(Plan::decode(&Plan::default().encode()).unwrap(), Plan::default());
    assert!(bytes.len() < 800, "{} bytes is not compact", bytes.len());
}

#[test]
fn integers_of_every_size_survive() {
    for shift in 0..64 {
        for v in [1i64 << shift, (1i64 << shift).wrapping_sub(1), -(1i64 << shift.min(62))] {
            let mut plan = sample();
            plan.entries[0].exprs.push(Expr(vec![ExprOp::Const(v)]));
            assert_eq!(Plan::decode(&plan.encode()).unwrap(), plan);
        }
    }
}

#[test]
fn every_prefix_is_refused() {
    let bytes = sample().encode();
    for n in 0..bytes.len() {
        assert!(Plan::decode(&bytes[..n]).is_err(), "{n} bytes were accepted");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(Plan::decode(&longer), Err(DecodeError::Trailing(1)));
}

#[test]
fn other_versions_and_files_are_named() {
    let mut bytes = sample().encode();
    bytes[4] += 1;
    assert!(matches!(Plan::decode(&bytes), Err(DecodeError::Version(_))));
    assert_eq!(Plan::decode(b"\x7fELF...."), Err(DecodeError::Magic));
    assert_eq!(Plan::decode(b""), Err(DecodeError::Magic));
}

/// Any accepted bytes are the encoding of what they decode to.
fn poke(bytes: &[u8]) {
    if let Ok(plan) = Plan::decode(bytes) {
        assert_eq!(plan.encode(), bytes);
        let _ = plan.check();
    }
}

#[test]
fn mutations_never_panic() {
    let bytes = sample().encode();
    for at in 0..bytes.len() {
        for value in [0, 1, 2, 5, 0x7f, 0x80, 0xfe, 0xff, bytes[at] ^ 1, bytes[at] ^ 0x40] {
            let mut b = bytes.clone();
            b[at] = value;
            poke(&b);
        }
        let mut shorter = bytes.clone();
        shorter.remove(at);
        poke(&shorter);
        let mut longer = bytes.clone();
        longer.insert(at, 0xff);
        poke(&longer);
    }
    let mut seed = 0x9e37_79b9_7f4a_7c15u64;
    for _ in 0..20_000 {
        let mut b = bytes.clone();
        for _ in 0..4 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (seed >> 33) as usize % b.len();
            b[at] = (seed >> 20) as u8;
        }
        poke(&b);
    }
}

#[test]
fn hostile_nesting_is_refused() {
    let mut step = Step::Copy { src: 0, dst: 0 };
    for _ in 0..=MAX_NESTING {
        step = Step::If { cond: 0, then: vec![step].into(), otherwise: vec![].into() };
    }
    let entry = Entry { steps: vec![step].into(), ..Entry::default() };
    let plan = Plan { entries: vec![entry], ..Plan::default() };
    assert_eq!(Plan::decode(&plan.encode()), Err(DecodeError::Invalid("nesting depth")));
}

/// Applies `damage` to a good plan and returns what `check` says.
fn damaged(damage: impl FnOnce(&mut Plan)) -> String {
    let mut plan = sample();
    damage(&mut plan);
    plan.check().expect_err("the damage went unnoticed").to_string()
}

#[test]
fn check_finds_each_fault() {
    let e = |f: fn(&mut Entry)| damaged(|p| f(&mut p.entries[0]));
    assert_eq!(e(|e| e.slots.push(99)), "in entry `predict`: expression 99 is missing");
    assert_eq!(
        e(|e| e.buffers[4].home = Home::slot(9)),
        "in entry `predict`: buffer 4: slot 9 is missing"
    );
    for (home, missing) in [
        (Home::Slot(0, 3), 2),
        (Home::Slot(1, 2), 2),
        (Home::Slot(0, 0), u32::MAX),
        (Home::Slot(2, u32::MAX), u32::MAX),
        (Home::Slot(u32::MAX, 2), u32::MAX),
    ] {
        let mut plan = sample();
        plan.entries[0].buffers[4].home = home;
        let err = plan.check().expect_err("a slot that is missing");
        assert!(err.message.ends_with(&format!("slot {missing} is missing")), "{home:?}: {err}");
    }
    assert!(e(|e| e.writes.clear()).contains("is written but not listed"));
    assert!(e(|e| e.writes.push(9)).contains("variable 9 is missing"));
    assert!(e(|e| e.exprs[1] = Expr(vec![ExprOp::Dim(7)])).contains("uses dim 7"));
    assert!(e(|e| e.exprs[1] = Expr(vec![ExprOp::Add])).contains("malformed"));
    assert!(e(|e| e.exprs[1] = Expr(vec![])).contains("malformed"));
    assert!(e(|e| e.exprs[3].0[3] = ExprOp::FloorDiv(0)).contains("divides by 0"));
    assert!(e(|e| e.params[0].buf = 1).contains("does not match its buffer"));
    assert!(e(|e| e.steps.push(Step::Copy { src: 0, dst: 3 })).contains("read only"));
    assert!(e(|e| e.steps.push(Step::Copy { src: 0, dst: 5 })).contains("mixes"));
    assert!(
        e(|e| e.steps.push(Step::Assert { cond: 0, message: "".into(), place: "".into() }))
            .contains("a condition")
    );
    assert!(e(|e| e.steps.push(check(0, 0))).contains("indices are not integers"));
    assert!(e(|e| e.steps.push(check(6, 99))).contains("expression 99 is missing"));
    assert!(e(|e| e.steps.push(finite(6))).contains("a check of what is no float"));
    assert!(e(|e| e.steps.push(finite(99))).contains("missing"));
    assert!(damaged(|p| p.init = Some(0)).contains("initialiser"));
    assert!(damaged(|p| p.init = Some(7)).contains("missing"));
    assert!(damaged(|p| p.kernels.clear()).contains("kernel 0 is missing"));
    assert!(damaged(|p| p.consts[0].len = 15).contains("wrong length"));
    assert!(damaged(|p| p.vars[0].shape = vec![i64::MAX, 2]).contains("too large"));
    assert!(damaged(|p| p.dims[0].max = -1).contains("range"));
}

#[test]
fn waits_are_for_earlier_steps_and_cover_every_conflict() {
    let after = |step: usize, list: Vec<u32>| {
        damaged(|p| p.entries[0].steps.dispatch_mut()[step].after = list)
    };
    assert!(after(1, vec![1]).contains("step 1 waits for step 1, which is not before it"));
    assert!(after(1, vec![5]).contains("which is not before it"));
    assert!(after(1, vec![u32::MAX]).contains("which is not before it"));
    assert!(after(2, vec![1, 0]).contains("out of order"));
    assert!(after(2, vec![1, 1]).contains("out of order"));
    // Both write buffer 4.
    assert!(after(1, vec![]).contains("step 1 does not wait for step 0, but must"));
    // More than needed is no fault.
    let mut plan = sample();
    plan.entries[0].steps.dispatch_mut()[2].after = vec![0, 1];
    plan.check().unwrap();
    // In a list inside a step.
    let inner = damaged(|p| {
        let Step::If { then, .. } = &mut p.entries[0].steps[3] else { panic!("a branch") };
        then.push(Step::Copy { src: 0, dst: 4 });
        then.dispatch_mut()[1].after.clear();
    });
    assert!(inner.contains("step 1 does not wait for step 0"), "{inner}");
}

#[test]
fn steps_run_where_their_buffers_are() {
    let on =
        |step: usize, device| damaged(|p| p.entries[0].steps.dispatch_mut()[step].device = device);
    assert!(on(0, 1).contains("has others' buffers"));
    assert!(on(6, 1).contains("has others' buffers"));
    assert!(on(0, 2).contains("device 2 is missing"));
    assert!(damaged(|p| p.entries[0].buffers[4].device = 2).contains("device 2 is missing"));
    assert!(damaged(|p| p.entries[0].buffers[4].device = 1).contains("is on two devices"));
    assert!(damaged(|p| p.entries[0].buffers[0].device = 1).contains("another device"));
    assert!(damaged(|p| p.devices.clear()).contains("not the CPU"));
    let mut plan = sample();
    let remote = Buffer { device: 1, ..plan.entries[0].buffers[4].clone() };
    plan.entries[0].buffers.push(Buffer { home: Home::slot(2), ..remote });
    plan.entries[0].slots.push(4);
    // A copy may be between two devices.
    plan.entries[0].steps.push(Step::Copy { src: 0, dst: 7 });
    plan.check().unwrap();
    assert_eq!(Plan::decode(&plan.encode()).unwrap(), plan);
}

fn check(ids: u32, size: u32) -> Step {
    let (name, user, place) = Default::default();
    Step::CheckIndex(CheckIndex { ids, size, width: 1, axis: 0, name, user, place })
}

fn finite(buf: u32) -> Step {
    let (name, user, names, place) = Default::default();
    Step::CheckFinite(CheckFinite { bufs: vec![buf], name, user, names, place })
}

#[test]
fn deep_expressions_evaluate() {
    for depth in 1..40i64 {
        let mut ops: Vec<ExprOp> = (1..=depth).map(ExprOp::Const).collect();
        ops.extend(std::iter::repeat_n(ExprOp::Add, depth as usize - 1));
        assert_eq!(Expr(ops.clone()).eval(&[]), Some(depth * (depth + 1) / 2));
        ops.push(ExprOp::Add);
        assert_eq!(Expr(ops).eval(&[]), None);
    }
    assert_eq!(Expr(vec![ExprOp::Const(-7), ExprOp::FloorDiv(2)]).eval(&[]), Some(-4));
    assert_eq!(Expr(vec![ExprOp::Dim(1)]).eval(&[3]), None);
    assert_eq!(Expr(vec![ExprOp::Const(i64::MAX), ExprOp::Const(2), ExprOp::Mul]).eval(&[]), None);
}
