//! Generated kernels on the simulated GPU: the bytes of the kernel interpreter.

mod kernels;

use kernels::{fill, generate, is_nan};
use proptest::prelude::*;
use tfc_codegen::ptx;
use tfc_kernel::*;
use tfc_ptx_sim::{Arg, Device, Launch, Module};

/// Runs a kernel over all its iterations.
fn simulate(kernel: &Kernel, bufs: &mut [Vec<u8>], dims: &[i64]) -> Result<(), String> {
    let (entry, _) = ptx::kernel(kernel).map_err(|e| e.to_string())?;
    let text = ptx::module(std::slice::from_ref(&entry));
    let module = Module::parse(&text).map_err(|e| format!("{e}\n{text}"))?;
    let mut device = Device::new();
    let value = |name: &str| kernel.dims.iter().position(|d| &**d == name).map(|i| dims[i]);
    let mut grid = [0; 3];
    for (n, size) in grid.iter_mut().zip(&entry.launch.grid) {
        *n = size.eval(&value).ok_or("a size without value")? as u32;
    }
    if grid.contains(&0) {
        return Ok(());
    }
    // Even an empty buffer has some bytes that may be read.
    let ptrs: Vec<u64> =
        bufs.iter().map(|b| device.upload(if b.is_empty() { &[0; 16] } else { b })).collect();
    let args: Vec<Arg> =
        ptrs.iter().map(|p| Arg::Ptr(*p)).chain(dims.iter().map(|d| Arg::I64(*d))).collect();
    let launch = Launch {
        entry: &entry.launch.entry,
        grid,
        block: [entry.launch.block, 1, 1],
        args: &args,
        ..Launch::default()
    };
    device.launch(&module, &launch).map_err(|e| format!("{e}\n{text}"))?;
    for (buf, ptr) in bufs.iter_mut().zip(&ptrs) {
        *buf = device.read(*ptr, buf.len()).map_err(|e| e.to_string())?;
    }
    Ok(())
}

/// Whether the bits of a NaN could be seen: those are not the CPU's.
fn sees_bits(kernel: &Kernel, stmts: &[Stmt]) -> bool {
    stmts.iter().any(|s| match s {
        Stmt::Op { op: ScalarOp::Bitcast, args, .. } => kernel.regs[args[0]].is_float(),
        Stmt::Loop(l) => sees_bits(kernel, &l.body),
        _ => false,
    })
}

fn check(kernel: &Kernel, sizes: &[i64]) -> Result<(), TestCaseError> {
    let mut expanded = kernel.clone();
    math::expand(&mut expanded);
    for &n in sizes {
        let dims: Vec<i64> = kernel.dims.iter().map(|_| n).collect();
        let mut want: Vec<Vec<u8>> = kernel
            .bufs
            .iter()
            .enumerate()
            .map(|(i, b)| {
                let len = b.len.eval(&|_| Some(n)).unwrap_or(0) as usize;
                fill(b.dtype, len, i as u32)
            })
            .collect();
        let mut got = want.clone();
        let outer = match kernel.body.last() {
            Some(Stmt::Loop(l)) => l.extent.eval(&|_| Some(n)).unwrap_or(0),
            _ => 0,
        };
        interp::run(&expanded, &mut want, &dims, [0, outer, 0, n])
            .map_err(|e| TestCaseError::fail(format!("{e:?}")))?;
        simulate(kernel, &mut got, &dims)
            .map_err(|e| TestCaseError::fail(format!("N = {n}: {e}\n{kernel}")))?;
        for (i, (want, got)) in want.iter().zip(&got).enumerate() {
            let dtype = kernel.bufs[i].dtype;
            let elements = want.chunks(dtype.size()).zip(got.chunks(dtype.size()));
            for (at, (w, g)) in elements.enumerate() {
                let same = w == g || (is_nan(dtype, w) && is_nan(dtype, g));
                prop_assert!(same, "N = {n}: b{i}[{at}] is {g:?}, not {w:?}\n{kernel}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_kernels_give_the_interpreters_bits(
        choices in prop::collection::vec(any::<u32>(), 40..160)
    ) {
        let kernel = generate(&choices);
        prop_assume!(!sees_bits(&kernel, &kernel.body));
        check(&kernel, &[0, 1, 5, 17, 78])?;
    }
}

/// Rows that meet are added in order: floats for which that can be seen.
#[test]
fn rows_are_scattered_in_order() {
    use tfc_abi::plan::Func;
    let (rows, length) = (3usize, 5usize);
    // One that is out of range on either side is left out.
    let ids: Vec<i32> = vec![1, 0, 1, 1, 2, 3, -1, 1];
    let start: Vec<f32> = (0..rows * length).map(|i| i as f32).collect();
    let updates: Vec<f32> =
        (0..ids.len() * length).map(|i| [1e8, 1.0, -1e8, 0.5][i / length % 4]).collect();
    let as_bytes = |v: &[f32]| v.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    for func in [Func::ScatterAddRows, Func::ScatterSetRows] {
        let kernel = ptx::routine(func, DType::F32, DType::I32).expect("has a kernel");
        let mut want = start.clone();
        for (i, id) in ids.iter().enumerate().filter(|(_, id)| (0..rows as i32).contains(id)) {
            for j in 0..length {
                let (to, from) = (&mut want[*id as usize * length + j], updates[i * length + j]);
                *to = if func == Func::ScatterAddRows { *to + from } else { from };
            }
        }
        let mut bufs = vec![
            as_bytes(&start),
            ids.iter().flat_map(|v| v.to_le_bytes()).collect(),
            as_bytes(&updates),
        ];
        let dims = [rows as i64, ids.len() as i64, length as i64, 1];
        simulate(&kernel, &mut bufs, &dims[..func.signature().ints])
            .unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(bufs[0], as_bytes(&want), "{func:?}");
    }
    assert_eq!(ptx::routine(Func::Zero, DType::F32, DType::I32), None);
}

/// `softmax` of rows, as the compiler makes it.
fn softmax(t: Dim) -> Kernel {
    let mut regs = cranelift_entity::PrimaryMap::new();
    let mut reg = || regs.push(ScalarType::F32);
    let [low, zero, one] = [reg(), reg(), reg()];
    let [acc, x, next, top] = [reg(), reg(), reg(), reg()];
    let [acc2, x2, less, power, next2, sum] = [reg(), reg(), reg(), reg(), reg(), reg()];
    let [factor, y, out] = [reg(), reg(), reg()];
    let vars: Vec<LoopVar> = (0..4).map(LoopVar::from_u32).collect();
    let at = |v: LoopVar| Ix::var(vars[0]).scale(&t).plus(&Ix::var(v));
    let op = |dst, op, args: &[Reg]| Stmt::Op { dst, op, args: args.to_vec() };
    let value = |dst, v: f32| Stmt::Const { dst, value: Scalar::F32(v.to_bits()) };
    let one_loop = |var, extent: &Dim, kind, carried: Vec<Carried>, body| {
        let ranged = var == vars[0];
        Stmt::Loop(Loop { var, extent: extent.clone(), kind, ranged, carried, body })
    };
    let reduce = LoopKind::Reduce { partials: true };
    let carried =
        |init, acc, next, result, combine| vec![Carried { init, acc, next, result, combine }];
    let body = vec![
        one_loop(
            vars[1],
            &t,
            reduce,
            carried(low, acc, next, top, Combine::Max),
            vec![
                Stmt::Load { dst: x, buf: 1, at: at(vars[1]) },
                op(next, ScalarOp::Max, &[acc, x]),
            ],
        ),
        one_loop(
            vars[2],
            &t,
            reduce,
            carried(zero, acc2, next2, sum, Combine::Sum),
            vec![
                Stmt::Load { dst: x2, buf: 1, at: at(vars[2]) },
                op(less, ScalarOp::Sub, &[x2, top]),
                op(power, ScalarOp::Elementary(Elementary::Exp), &[less]),
                Stmt::Store { buf: 0, at: at(vars[2]), value: power },
                op(next2, ScalarOp::Add, &[acc2, power]),
            ],
        ),
        op(factor, ScalarOp::Div, &[one, sum]),
        one_loop(
            vars[3],
            &t,
            LoopKind::Parallel,
            vec![],
            vec![
                Stmt::Load { dst: y, buf: 0, at: at(vars[3]) },
                op(out, ScalarOp::Mul, &[y, factor]),
                Stmt::Store { buf: 0, at: at(vars[3]), value: out },
            ],
        ),
    ];
    let rows = Dim::sym("B");
    let len = rows.clone() * t.clone();
    Kernel {
        name: "softmax".into(),
        bufs: vec![
            KernelBuf::new(DType::F32, len.clone(), true),
            KernelBuf::new(DType::F32, len, false),
        ],
        locals: vec![],
        dims: vec!["B".into(), "T".into()],
        loops: 4,
        body: vec![
            value(low, f32::NEG_INFINITY),
            value(zero, 0.0),
            value(one, 1.0),
            one_loop(vars[0], &rows, LoopKind::Parallel, vec![], body),
        ],
        regs,
    }
}

/// One result of all of `x`: sums of products, or a plain combination.
fn whole(dtype: DType, combine: Combine, fma: bool) -> Kernel {
    let ty = ScalarType::of(dtype);
    let mut regs = cranelift_entity::PrimaryMap::new();
    let [init, acc, x, next, result] = std::array::from_fn(|_| regs.push(ty));
    let (i, n) = (LoopVar::from_u32(0), Dim::sym("N"));
    let (op, args) = match fma {
        true => (ScalarOp::Fma, vec![x, x, acc]),
        false => (combine.op(), vec![acc, x]),
    };
    let body =
        vec![Stmt::Load { dst: x, buf: 1, at: Ix::var(i) }, Stmt::Op { dst: next, op, args }];
    let carried = vec![Carried { init, acc, next, result, combine }];
    let kind = LoopKind::Reduce { partials: true };
    Kernel {
        name: "whole".into(),
        bufs: vec![
            KernelBuf::new(dtype, Dim::constant(1), true),
            KernelBuf::new(dtype, n.clone(), false),
        ],
        locals: vec![],
        dims: vec!["N".into()],
        regs,
        loops: 1,
        body: vec![
            Stmt::Const { dst: init, value: combine.identity(ty) },
            Stmt::Loop(Loop { var: i, extent: n, kind, ranged: false, carried, body }),
            Stmt::Store { buf: 0, at: Ix::constant(0), value: result },
        ],
    }
}

/// Where rows are long a block shares them, chunk by chunk.
#[test]
fn long_rows_give_the_interpreters_bits() {
    let wholes = [
        (DType::F32, Combine::Sum, false),
        (DType::F32, Combine::Sum, true),
        (DType::F64, Combine::Prod, false),
        (DType::F16, Combine::Max, false),
        (DType::I64, Combine::Sum, false),
        (DType::Bool, Combine::And, false),
    ];
    for (dtype, combine, fma) in wholes {
        let kernel = whole(dtype, combine, fma);
        let (_, schedule) = ptx::kernel(&kernel).expect("a kernel");
        assert_eq!(schedule.shape, ptx::schedule::Shape::Rows { team: ptx::schedule::BLOCK });
        check(&kernel, &[0, 1, 3, 4, 18, 1000, 1024, 1031, 2500]).unwrap_or_else(|e| panic!("{e}"));
    }
    for t in [600, 1500] {
        let mut kernel = softmax(Dim::constant(t));
        kernel.dims.pop();
        check(&kernel, &[1, 3]).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// Where the largest or smallest element of each row of `x` is, as `argmax` is lowered.
fn extreme(dtype: DType, t: Dim, largest: bool) -> Kernel {
    let ty = ScalarType::of(dtype);
    let mut regs = cranelift_entity::PrimaryMap::new();
    let [init, acc, x, next, result] = std::array::from_fn(|_| regs.push(ty));
    let [zero, at, here, next_at, result_at] = std::array::from_fn(|_| regs.push(ScalarType::I64));
    let [less, odd, number, first, better] = std::array::from_fn(|_| regs.push(ScalarType::Bool));
    let (i, j, rows) = (LoopVar::from_u32(0), LoopVar::from_u32(1), Dim::sym("R"));
    let op = |dst, op, args: &[Reg]| Stmt::Op { dst, op, args: args.to_vec() };
    let less_than = if largest { [acc, x] } else { [x, acc] };
    let mut body = vec![
        Stmt::Load { dst: x, buf: 1, at: Ix::var(i).scale(&t).plus(&Ix::var(j)) },
        op(less, ScalarOp::Lt, &less_than),
    ];
    let choice = if dtype.is_float() { better } else { less };
    if dtype.is_float() {
        body.extend([
            op(odd, ScalarOp::Ne, &[x, x]),
            op(number, ScalarOp::Eq, &[acc, acc]),
            op(first, ScalarOp::And, &[odd, number]),
            op(better, ScalarOp::Or, &[less, first]),
        ]);
    }
    body.extend([
        Stmt::Index { dst: here, ix: Ix::var(j) },
        op(next, ScalarOp::Select, &[choice, x, acc]),
        op(next_at, ScalarOp::Select, &[choice, here, at]),
    ]);
    let combine = Combine::Sequential;
    let carried = vec![
        Carried { init, acc, next, result, combine },
        Carried { init: zero, acc: at, next: next_at, result: result_at, combine },
    ];
    let worst = if largest { Combine::Max } else { Combine::Min };
    let kind = LoopKind::Sequential;
    let inner = Loop { var: j, extent: t.clone(), kind, ranged: false, carried, body };
    let body = vec![
        Stmt::Const { dst: init, value: worst.identity(ty) },
        Stmt::Const { dst: zero, value: Scalar::I64(0) },
        Stmt::Loop(inner),
        Stmt::Store { buf: 0, at: Ix::var(i), value: result_at },
    ];
    let kind = LoopKind::Parallel;
    let outer = Loop { var: i, extent: rows.clone(), kind, ranged: true, carried: vec![], body };
    let mut dims: Vec<std::sync::Arc<str>> = vec!["R".into()];
    dims.extend(t.as_sym().cloned());
    Kernel {
        name: "extreme".into(),
        bufs: vec![
            KernelBuf::new(DType::I64, rows.clone(), true),
            KernelBuf::new(dtype, rows * t, false),
        ],
        locals: vec![],
        dims,
        regs,
        loops: 2,
        body: vec![Stmt::Loop(outer)],
    }
}

/// Running combinations of `x` along rows, before and after each element.
fn running(dtype: DType, combine: Combine, t: Dim) -> Kernel {
    let ty = ScalarType::of(dtype);
    let mut regs = cranelift_entity::PrimaryMap::new();
    let [init, acc, x, twice, next, result] = std::array::from_fn(|_| regs.push(ty));
    let (i, j, rows) = (LoopVar::from_u32(0), LoopVar::from_u32(1), Dim::sym("R"));
    let at = Ix::var(i).scale(&t).plus(&Ix::var(j));
    let body = vec![
        Stmt::Load { dst: x, buf: 2, at: at.clone() },
        Stmt::Op { dst: twice, op: ScalarOp::Add, args: vec![x, x] },
        Stmt::Op { dst: next, op: combine.op(), args: vec![acc, twice] },
        Stmt::Store { buf: 0, at: at.clone(), value: next },
        Stmt::Store { buf: 1, at, value: acc },
    ];
    let carried = vec![Carried { init, acc, next, result, combine }];
    let kind = LoopKind::Scan;
    let inner = Loop { var: j, extent: t.clone(), kind, ranged: false, carried, body };
    let body = vec![
        Stmt::Const { dst: init, value: combine.identity(ty) },
        Stmt::Loop(inner),
        Stmt::Store { buf: 3, at: Ix::var(i), value: result },
    ];
    let kind = LoopKind::Parallel;
    let outer = Loop { var: i, extent: rows.clone(), kind, ranged: true, carried: vec![], body };
    let all = rows.clone() * t;
    let buf = |len: &Dim, written| KernelBuf::new(dtype, len.clone(), written);
    Kernel {
        name: "running".into(),
        bufs: vec![buf(&all, true), buf(&all, true), buf(&all, false), buf(&rows, true)],
        locals: vec![],
        dims: vec!["R".into(), "T".into()],
        regs,
        loops: 2,
        body: vec![Stmt::Loop(outer)],
    }
}

/// A team computes what is combined; the order is that of the row.
#[test]
fn running_sums_have_the_interpreters_bits() {
    for (dtype, combine) in [
        (DType::F32, Combine::Sum),
        (DType::F64, Combine::Prod),
        (DType::BF16, Combine::Sum),
        (DType::F16, Combine::Max),
        (DType::I32, Combine::Min),
        (DType::I64, Combine::Sum),
    ] {
        let kernel = running(dtype, combine, Dim::sym("T"));
        let (_, schedule) = ptx::kernel(&kernel).expect("a kernel");
        assert_eq!(schedule.shape, ptx::schedule::Shape::Rows { team: ptx::schedule::TEAM });
        check(&kernel, &[0, 1, 2, 5, 16, 17, 40, 100]).unwrap_or_else(|e| panic!("{e}"));
    }
}

/// A team finds the element that the CPU finds: the first of equal ones, the first NaN.
#[test]
fn the_best_element_of_a_row_is_found_by_a_team() {
    for (dtype, largest) in [
        (DType::F32, true),
        (DType::F32, false),
        (DType::F64, true),
        (DType::BF16, false),
        (DType::I32, true),
        (DType::I64, false),
        (DType::U8, true),
    ] {
        let kernel = extreme(dtype, Dim::sym("T"), largest);
        let (_, schedule) = ptx::kernel(&kernel).expect("a kernel");
        assert_eq!(schedule.shape, ptx::schedule::Shape::Rows { team: ptx::schedule::TEAM });
        check(&kernel, &[1, 2, 5, 16, 17, 40, 100]).unwrap_or_else(|e| panic!("{e}"));
        for t in [40, 512, 1100] {
            let kernel = extreme(dtype, Dim::constant(t), largest);
            let (_, schedule) = ptx::kernel(&kernel).expect("a kernel");
            let team = if t < 512 { ptx::schedule::TEAM } else { ptx::schedule::BLOCK };
            assert_eq!(schedule.shape, ptx::schedule::Shape::Rows { team });
            check(&kernel, &[1, 5]).unwrap_or_else(|e| panic!("{e}"));
        }
    }
    // Nothing but infinities of the worse kind: the first.
    let kernel = extreme(DType::F32, Dim::constant(20), true);
    let mut bufs = vec![vec![9; 8], f32::NEG_INFINITY.to_le_bytes().repeat(20)];
    simulate(&kernel, &mut bufs, &[1]).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(bufs[0], vec![0; 8]);
}

/// `out[i, j] = x[j, i] * 2`.
fn transpose(dtype: DType) -> Kernel {
    let ty = ScalarType::of(dtype);
    let mut regs = cranelift_entity::PrimaryMap::new();
    let [x, out] = [regs.push(ty), regs.push(ty)];
    let (i, j) = (LoopVar::from_u32(0), LoopVar::from_u32(1));
    let (m, n) = (Dim::sym("M"), Dim::sym("N"));
    let body = vec![
        Stmt::Load { dst: x, buf: 1, at: Ix::var(i).plus(&Ix::var(j).scale(&m)) },
        Stmt::Op { dst: out, op: ScalarOp::Add, args: vec![x, x] },
        Stmt::Store { buf: 0, at: Ix::var(i).scale(&n).plus(&Ix::var(j)), value: out },
    ];
    let one_loop = |var, extent: &Dim, ranged, body| {
        let (kind, extent) = (LoopKind::Parallel, extent.clone());
        Stmt::Loop(Loop { var, extent, kind, ranged, carried: vec![], body })
    };
    let inner = one_loop(j, &n, false, body);
    let len = m.clone() * n.clone();
    Kernel {
        name: "transpose".into(),
        bufs: vec![KernelBuf::new(dtype, len.clone(), true), KernelBuf::new(dtype, len, false)],
        locals: vec![],
        dims: vec!["M".into(), "N".into()],
        regs,
        loops: 2,
        body: vec![one_loop(i, &m, true, vec![inner])],
    }
}

/// `out[i] = x[i] + x[i]`.
fn twice() -> Kernel {
    let mut regs = cranelift_entity::PrimaryMap::new();
    let [x, out] = [regs.push(ScalarType::F32), regs.push(ScalarType::F32)];
    let (i, n) = (LoopVar::from_u32(0), Dim::sym("N"));
    let body = vec![
        Stmt::Load { dst: x, buf: 1, at: Ix::var(i) },
        Stmt::Op { dst: out, op: ScalarOp::Add, args: vec![x, x] },
        Stmt::Store { buf: 0, at: Ix::var(i), value: out },
    ];
    let kind = LoopKind::Parallel;
    Kernel {
        name: "twice".into(),
        bufs: vec![
            KernelBuf::new(DType::F32, n.clone(), true),
            KernelBuf::new(DType::F32, n.clone(), false),
        ],
        locals: vec![],
        dims: vec!["N".into()],
        regs,
        loops: 1,
        body: vec![Stmt::Loop(Loop {
            var: i,
            extent: n,
            kind,
            ranged: true,
            carried: vec![],
            body,
        })],
    }
}

#[test]
fn small_kernels_as_text() {
    let (entry, schedule) = ptx::kernel(&twice()).expect("a kernel");
    let text = ptx::module(std::slice::from_ref(&entry));
    assert!(text.contains("ld.global.v4.f32") && text.contains("st.global.v4.f32"));
    insta::assert_snapshot!("twice", format!("{schedule}\n{text}"));
    let (_, short) = ptx::kernel(&softmax(Dim::sym("T"))).expect("a kernel");
    let (_, transpose) = ptx::kernel(&transpose(DType::F32)).expect("a kernel");
    let scatter = tfc_abi::plan::Func::ScatterAddRows;
    let scatter = ptx::routine(scatter, DType::F32, DType::I32).expect("a kernel");
    let (_, scatter) = ptx::kernel(&scatter).expect("a kernel");
    let mut long = softmax(Dim::constant(1000));
    long.dims.pop();
    long.name = "long_rows".into();
    let (_, long) = ptx::kernel(&long).expect("a kernel");
    let (_, extreme) = ptx::kernel(&extreme(DType::F32, Dim::sym("T"), true)).expect("a kernel");
    let running = running(DType::F32, Combine::Sum, Dim::sym("T"));
    let (_, running) = ptx::kernel(&running).expect("a kernel");
    insta::assert_snapshot!(
        "schedules",
        format!("{short}\n{long}\n{transpose}\n{scatter}\n{extreme}\n{running}")
    );
}

#[test]
fn rows_and_tiles_give_the_interpreters_bits() {
    let mut kernels: Vec<Kernel> = DType::ALL.iter().map(|d| transpose(*d)).collect();
    kernels.retain(|k| k.bufs[0].dtype != DType::Bool);
    kernels.push(softmax(Dim::sym("T")));
    for kernel in &kernels {
        let mut expanded = kernel.clone();
        math::expand(&mut expanded);
        for dims in [[1i64, 1], [3, 40], [33, 17], [70, 66]] {
            let size = |name: &str| kernel.dims.iter().position(|d| &**d == name).map(|i| dims[i]);
            let mut want: Vec<Vec<u8>> = kernel
                .bufs
                .iter()
                .map(|b| fill(b.dtype, b.len.eval(&size).unwrap_or(0) as usize, 7))
                .collect();
            let mut got = want.clone();
            interp::run(&expanded, &mut want, &dims, [0, dims[0], 0, dims[1]]).expect("runs");
            simulate(kernel, &mut got, &dims).unwrap_or_else(|e| panic!("{dims:?}: {e}"));
            let dtype = kernel.bufs[0].dtype;
            for (w, g) in want[0].chunks(dtype.size()).zip(got[0].chunks(dtype.size())) {
                assert!(w == g || (is_nan(dtype, w) && is_nan(dtype, g)), "{dims:?}\n{kernel}");
            }
        }
    }
}

/// `exp(x) / log(x)`, near enough with the instructions that fast math may use.
#[test]
fn fast_math_uses_approximate_instructions() {
    let n = Dim::sym("N");
    let mut regs = cranelift_entity::PrimaryMap::new();
    let [x, e, l, r, out] = std::array::from_fn(|_| regs.push(ScalarType::F32));
    let i = LoopVar::from_u32(0);
    let op = |dst, op, args: &[_]| Stmt::Op { dst, op, args: args.to_vec() };
    let body = vec![
        Stmt::Load { dst: x, buf: 1, at: Ix::var(i) },
        op(e, ScalarOp::Elementary(Elementary::Exp), &[x]),
        op(l, ScalarOp::Elementary(Elementary::Log), &[x]),
        op(r, ScalarOp::Sqrt, &[l]),
        op(out, ScalarOp::Div, &[e, r]),
        Stmt::Store { buf: 0, at: Ix::var(i), value: out },
    ];
    let kind = LoopKind::Parallel;
    let l = Loop { var: i, extent: n.clone(), kind, ranged: true, carried: vec![], body };
    let buf = |written| KernelBuf::new(DType::F32, n.clone(), written);
    let kernel = Kernel {
        name: "near".into(),
        bufs: vec![buf(true), buf(false)],
        locals: vec![],
        dims: vec!["N".into()],
        regs,
        loops: 1,
        body: vec![Stmt::Loop(l)],
    };
    let near = ["ex2.approx.f32", "lg2.approx.f32", "sqrt.approx.f32", "div.full.f32"];
    let (exact, _) = ptx::kernel(&kernel).expect("a kernel");
    assert!(near.iter().all(|n| !exact.text.contains(n)), "{}", exact.text);
    let (fast, _) = ptx::kernel_for(&kernel, true).expect("a kernel");
    assert!(near.iter().all(|n| fast.text.contains(n)), "{}", fast.text);
    let module = Module::parse(&ptx::module(std::slice::from_ref(&fast))).expect("it parses");
    let xs: Vec<f32> = (0..9).map(|i| 1.25 + i as f32).collect();
    let mut device = Device::new();
    let to = device.alloc(4 * xs.len());
    let from = device.upload(&xs.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
    let launch = Launch {
        entry: &fast.launch.entry,
        grid: [1, 1, 1],
        block: [fast.launch.block, 1, 1],
        args: &[Arg::Ptr(to), Arg::Ptr(from), Arg::I64(xs.len() as i64)],
        ..Launch::default()
    };
    device.launch(&module, &launch).unwrap_or_else(|e| panic!("{e}\n{}", fast.text));
    let got = device.read(to, 4 * xs.len()).expect("read");
    for (x, got) in xs.iter().zip(got.chunks(4)) {
        let got = f32::from_le_bytes(got.try_into().expect("four bytes"));
        let want = x.exp() / x.ln().sqrt();
        assert!((got - want).abs() < 1e-5 * want, "{x}: {got} for {want}");
    }
}
