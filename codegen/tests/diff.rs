//! Generated kernels, run by the kernel interpreter and as compiled code, for new
//! and for old CPUs: the same bytes must come out, of sums of floats too.

mod kernels;

use cranelift_entity::PrimaryMap;
use kernels::{fill, generate, is_nan};
use proptest::prelude::*;
use std::sync::Arc;
use tfc_codegen::{Cpu, coverage, jit_for};
use tfc_kernel::program::Program;
use tfc_kernel::*;
use tfc_kernel::{DType, Dim};

fn program(kernel: &Kernel) -> Program {
    let mut program = Program { kernels: vec![kernel.clone()], ..Program::default() };
    program.plan.kernels = vec![kernel.name.clone()];
    program
}

/// The versions of code this machine can run.
fn cpus() -> Vec<Cpu> {
    let mut cpus = vec![Cpu::Baseline];
    #[cfg(target_arch = "x86_64")]
    {
        use std::is_x86_feature_detected as has;
        if has!("avx2") && has!("fma") && has!("f16c") && has!("bmi2") {
            cpus.push(Cpu::Avx2);
        }
        if has!("avx512f") && has!("avx512dq") && has!("avx512bw") && has!("avx512vl") {
            cpus.push(Cpu::Avx512);
        }
    }
    cpus
}

/// Runs the kernel both ways for every `n` and compares all buffers.
fn check(kernel: &Kernel, sizes: &[i64]) -> Result<(), TestCaseError> {
    verify::verify(kernel).map_err(TestCaseError::fail)?;
    let mut expanded = kernel.clone();
    math::expand(&mut expanded);
    verify::verify(&expanded).map_err(TestCaseError::fail)?;
    for cpu in cpus() {
        let jit = jit_for(&program(kernel), cpu).map_err(|e| TestCaseError::fail(e.to_string()))?;
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
            // Two calls, as the pool would cut.
            let cut = outer / 3;
            for (lo, hi) in [(0, cut), (cut, outer)] {
                let range = [lo, hi, 0, n];
                interp::run(&expanded, &mut want, &dims, range)
                    .map_err(|e| TestCaseError::fail(format!("{e:?}")))?;
                let bufs: Vec<*mut u8> = got.iter_mut().map(|b| b.as_mut_ptr()).collect();
                // SAFETY: the interpreter has just shown that all accesses with
                // these sizes are in bounds.
                unsafe { jit.kernels()[0](bufs.as_ptr(), dims.as_ptr(), range.as_ptr()) };
            }
            for (i, (want, got)) in want.iter().zip(&got).enumerate() {
                let dtype = kernel.bufs[i].dtype;
                let elements = want.chunks(dtype.size()).zip(got.chunks(dtype.size()));
                for (at, (w, g)) in elements.enumerate() {
                    let same = w == g || (is_nan(dtype, w) && is_nan(dtype, g));
                    prop_assert!(
                        same,
                        "{cpu:?}, N = {n}: b{i}[{at}] is {g:?}, not {w:?}\n{kernel}"
                    );
                }
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_kernels_agree(choices in prop::collection::vec(any::<u32>(), 40..160)) {
        check(&generate(&choices), &[0, 1, 2, 3, 5, 8, 17, 39, 78])?;
    }
}

/// The wide versions would prove nothing if they were left out.
#[test]
fn generated_kernels_have_wide_versions() {
    let mut state = 1u32;
    let (mut all, mut wide) = (0, 0);
    for _ in 0..200 {
        let choices: Vec<u32> = (0..100)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state >> 8
            })
            .collect();
        let program = program(&generate(&choices));
        let [coverage] = tfc_codegen::coverage(&program).unwrap()[..] else { panic!("one kernel") };
        for version in [coverage.avx2, coverage.avx512] {
            all += usize::from(version != Err("no vector loop"));
            wide += usize::from(version.is_ok());
            if let Err(why) = version {
                println!("{why}");
            }
        }
    }
    assert!(wide * 10 > all * 9, "{wide} of {all}");
}

/// `out[0] = sum of x`, over a vector loop: with whole numbers it is exact.
fn total(dtype: DType, combine: Combine, op: ScalarOp) -> Kernel {
    let ty = ScalarType::of(dtype);
    let mut regs = PrimaryMap::new();
    let [init, acc, x, next, result] = std::array::from_fn(|_| regs.push(ty));
    let (outer, i) = (LoopVar::from_u32(0), LoopVar::from_u32(1));
    let n = Dim::sym("N");
    let inner = Stmt::Loop(Loop {
        var: i,
        extent: n.clone(),
        kind: LoopKind::Reduce { partials: true },
        ranged: false,
        carried: vec![Carried { init, acc, next, result, combine }],
        body: vec![
            Stmt::Load { dst: x, buf: 0, at: Ix::var(i) },
            Stmt::Op { dst: next, op, args: vec![acc, x] },
        ],
    });
    Kernel {
        name: "total".into(),
        bufs: vec![KernelBuf::new(dtype, n, false), KernelBuf::new(dtype, Dim::constant(1), true)],
        locals: vec![],
        dims: vec![Arc::from("N")],
        regs,
        loops: 2,
        body: vec![Stmt::Loop(Loop {
            var: outer,
            extent: Dim::constant(1),
            kind: LoopKind::Parallel,
            ranged: true,
            carried: vec![],
            body: vec![
                Stmt::Const { dst: init, value: Scalar::of(ty, 0.0) },
                inner,
                Stmt::Store { buf: 1, at: Ix::constant(0), value: result },
            ],
        })],
    }
}

#[test]
fn float_sums_are_exact_where_they_can_be() {
    for n in 0..=70i64 {
        for cpu in cpus() {
            let jit =
                jit_for(&program(&total(DType::F32, Combine::Sum, ScalarOp::Add)), cpu).unwrap();
            let x: Vec<f32> = (0..n).map(|i| (i * i) as f32).collect();
            let mut out = [f32::NAN];
            let bufs = [x.as_ptr().cast_mut().cast::<u8>(), out.as_mut_ptr().cast()];
            // SAFETY: the arrays hold `n` and one elements.
            unsafe { jit.kernels()[0](bufs.as_ptr(), [n].as_ptr(), [0, 1, 0, 0].as_ptr()) };
            assert_eq!(out[0], (0..n).map(|i| (i * i) as f32).sum::<f32>(), "N = {n}");
        }
    }
}

/// As `total` of f32, with so much else in the loop that it is unrolled less.
/// The loop's size is known if there is one.
fn heavy_total(extra: usize, size: Option<i64>) -> Kernel {
    let mut kernel = total(DType::F32, Combine::Sum, ScalarOp::Add);
    let Stmt::Loop(outer) = &mut kernel.body[0] else { panic!("a loop") };
    let Stmt::Loop(inner) = &mut outer.body[1] else { panic!("a loop inside") };
    let Stmt::Load { dst: x, .. } = inner.body[0] else { panic!("a load") };
    inner.extent = size.map_or(Dim::sym("N"), Dim::constant);
    let mut y = x;
    for _ in 0..extra {
        let dst = kernel.regs.push(ScalarType::F32);
        inner.body.push(Stmt::Op { dst, op: ScalarOp::Mul, args: vec![y, x] });
        y = dst;
    }
    kernel.bufs.push(KernelBuf::new(DType::F32, Dim::sym("N"), true));
    inner.body.push(Stmt::Store { buf: 2, at: Ix::var(inner.var), value: y });
    kernel
}

// review 3: the number of partial sums followed the weight of the loop's body.
#[test]
fn a_sum_has_the_same_bits_whatever_else_its_loop_does() {
    for n in (0..=70i64).chain([1000, 1003]) {
        let x: Vec<f32> = (0..n).map(|i| 1.0 / (i + 3) as f32).collect();
        let mut sums = vec![];
        for (extra, size) in [0, 14, 40].into_iter().flat_map(|e| [(e, None), (e, Some(n))]) {
            for cpu in cpus() {
                let jit = jit_for(&program(&heavy_total(extra, size)), cpu).unwrap();
                let (mut out, mut rest) = ([f32::NAN], vec![0f32; n as usize]);
                let bufs = [
                    x.as_ptr().cast_mut().cast::<u8>(),
                    out.as_mut_ptr().cast(),
                    rest.as_mut_ptr().cast(),
                ];
                // SAFETY: the arrays hold `n`, one and `n` elements.
                unsafe { jit.kernels()[0](bufs.as_ptr(), [n].as_ptr(), [0, 1, 0, 0].as_ptr()) };
                sums.push(out[0]);
            }
        }
        // The order that `PARTIALS` describes.
        let (groups, rest) = x.split_at(n as usize / 4 * 4);
        let mut partials = [-0f32; 16];
        groups.iter().enumerate().for_each(|(i, v)| partials[i % 16] += v);
        for half in [8, 4, 2, 1] {
            (0..half).for_each(|p| partials[p] += partials[p + half]);
        }
        let want = rest.iter().fold(0.0 + partials[0], |sum, v| sum + v);
        assert!(sums.iter().all(|s| s.to_bits() == want.to_bits()), "N = {n}: {sums:?} {want}");
    }
}

/// The counter of a vector loop was once taken for the same in every iteration.
#[test]
fn an_index_counts_on_from_vector_to_vector() {
    let mut regs = PrimaryMap::new();
    let (index, number) = (regs.push(ScalarType::I64), regs.push(ScalarType::F32));
    let i = LoopVar::from_u32(0);
    let mut kernel = total(DType::F32, Combine::Sum, ScalarOp::Add);
    kernel.regs = regs;
    kernel.bufs = vec![KernelBuf::new(DType::F32, Dim::sym("N"), true)];
    kernel.body = vec![Stmt::Loop(Loop {
        var: i,
        extent: Dim::sym("N"),
        kind: LoopKind::Parallel,
        ranged: true,
        carried: vec![],
        body: vec![
            Stmt::Index { dst: index, ix: Ix::var(i) },
            Stmt::Op { dst: number, op: ScalarOp::Convert, args: vec![index] },
            Stmt::Store { buf: 0, at: Ix::var(i), value: number },
        ],
    })];
    check(&kernel, &[0, 1, 7, 100, 333]).unwrap();
}

/// Over all powers it is for: results that are subnormal, zero and infinite among them.
#[test]
fn scaling_by_powers_of_two_is_the_same_everywhere() {
    for (dtype, most) in [(DType::F32, 169), (DType::F64, 1364)] {
        let ty = ScalarType::of(dtype);
        let i = LoopVar::from_u32(0);
        let mut b = Body::default();
        let index = b.regs.push(ScalarType::I64);
        b.out.push(Stmt::Index { dst: index, ix: Ix::var(i) });
        let number = |b: &mut Body, op, by: i64| {
            let by = b.constant(Scalar::I64(by));
            let n = b.op(ScalarType::I64, op, &[index, by]);
            b.op(ty, ScalarOp::Convert, &[n])
        };
        let power = number(&mut b, ScalarOp::Sub, most);
        let part = number(&mut b, ScalarOp::Rem, 97);
        let [step, least] = [1.5 / 97.0, 0.5].map(|c| b.constant(Scalar::of(ty, c)));
        let x = b.op(ty, ScalarOp::Fma, &[part, step, least]);
        let value = b.op(ty, ScalarOp::Scale, &[x, power]);
        b.out.push(Stmt::Store { buf: 0, at: Ix::var(i), value });
        let mut kernel = total(dtype, Combine::Sum, ScalarOp::Add);
        kernel.bufs = vec![KernelBuf::new(dtype, Dim::sym("N"), true)];
        kernel.regs = b.regs;
        kernel.body = vec![Stmt::Loop(Loop {
            var: i,
            extent: Dim::sym("N"),
            kind: LoopKind::Parallel,
            ranged: true,
            carried: vec![],
            body: b.out,
        })];
        check(&kernel, &[0, 5, 2 * most + 1]).unwrap();
        let wide = coverage(&program(&kernel)).unwrap();
        assert!(wide[0].avx2.is_ok() && wide[0].avx512.is_ok(), "{wide:?}");
    }
}

#[test]
fn nan_goes_through_maxima() {
    for at in 0..40usize {
        let jit = jit_for(&program(&total(DType::F32, Combine::Max, ScalarOp::Max)), Cpu::Native)
            .unwrap();
        let mut x = vec![1f32; 40];
        x[at] = f32::NAN;
        let mut out = [0f32];
        let bufs = [x.as_mut_ptr().cast::<u8>(), out.as_mut_ptr().cast()];
        // SAFETY: the arrays hold 40 and one elements.
        unsafe { jit.kernels()[0](bufs.as_ptr(), [40i64].as_ptr(), [0, 1, 0, 0].as_ptr()) };
        assert!(out[0].is_nan(), "lost the NaN at {at}");
    }
}

#[test]
fn malformed_kernels_are_errors() {
    let good = total(DType::F32, Combine::Sum, ScalarOp::Add);
    assert_eq!(verify::verify(&good), Ok(()));
    type Breakage = fn(&mut Kernel);
    let bad: [(&str, Breakage); 8] = [
        ("no dim", |k| k.dims.clear()),
        ("not marked as written", |k| k.bufs[1].written = false),
        ("no buffer", |k| k.bufs.truncate(1)),
        ("not this loop's own", |k| k.loops = 1),
        ("used before", |k| {
            let Stmt::Loop(l) = &mut k.body[0] else { return };
            l.body.remove(0);
        }),
        ("is not parallel", |k| {
            let Stmt::Loop(l) = &mut k.body[0] else { return };
            l.kind = LoopKind::Sequential;
        }),
        ("carries values", |k| {
            let Stmt::Loop(l) = &mut k.body[0] else { return };
            let Stmt::Loop(l) = &mut l.body[1] else { return };
            l.kind = LoopKind::Parallel;
        }),
        ("not a plain reduction", |k| {
            let Stmt::Loop(l) = &mut k.body[0] else { return };
            let Stmt::Loop(l) = &mut l.body[1] else { return };
            l.carried[0].combine = Combine::Max;
        }),
    ];
    for (message, spoil) in bad {
        let mut kernel = good.clone();
        spoil(&mut kernel);
        let error = verify::verify(&kernel).unwrap_err();
        assert!(error.contains(message), "{error}");
        assert!(jit_for(&program(&kernel), Cpu::Native).is_err());
    }
}

/// A parallel loop.
fn parallel(var: LoopVar, extent: i64, ranged: bool, body: Vec<Stmt>) -> Stmt {
    let (extent, kind) = (Dim::constant(extent), LoopKind::Parallel);
    Stmt::Loop(Loop { var, extent, kind, ranged, carried: vec![], body })
}

/// Makes the registers of a body.
#[derive(Default)]
struct Body {
    regs: PrimaryMap<Reg, ScalarType>,
    out: Vec<Stmt>,
}

impl Body {
    fn constant(&mut self, value: Scalar) -> Reg {
        let dst = self.regs.push(value.ty());
        self.out.push(Stmt::Const { dst, value });
        dst
    }

    fn op(&mut self, ty: ScalarType, op: ScalarOp, args: &[Reg]) -> Reg {
        let dst = self.regs.push(ty);
        self.out.push(Stmt::Op { dst, op, args: args.to_vec() });
        dst
    }

    fn load(&mut self, ty: ScalarType, buf: u32, at: Ix) -> Reg {
        let dst = self.regs.push(ty);
        self.out.push(Stmt::Load { dst, buf, at });
        dst
    }
}

/// A pool: `out[i, j]` is the maximum, or the sum, of a window of a row of `x`, with
/// the padding that `pad` says on the left, and as much as need be on the right.
fn pool(width: i64, out: i64, [window, stride, pad]: [i64; 3], dtype: DType, sum: bool) -> Kernel {
    let ty = ScalarType::of(dtype);
    let [row, j, k] = [0, 1, 2].map(LoopVar::from_u32);
    let mut b = Body::default();
    let nothing = b.constant(Scalar::of(ty, if sum { 0.0 } else { -1e30 }));
    let [zero, last, end] = [0, width - 1, width].map(|n| b.constant(Scalar::I64(n)));
    let head = std::mem::take(&mut b.out);
    let acc = b.regs.push(ty);
    let at = Ix::var(j).scale(&Dim::constant(stride)).plus(&Ix::var(k)).plus(&Ix::constant(-pad));
    let base = Ix::var(row).scale(&Dim::constant(width));
    let x = if pad == 0 && (out - 1) * stride + window <= width {
        b.load(ty, 1, base.plus(&at))
    } else {
        let i = b.regs.push(ScalarType::I64);
        b.out.push(Stmt::Index { dst: i, ix: at });
        let from = b.op(ScalarType::Bool, ScalarOp::Le, &[zero, i]);
        let to = b.op(ScalarType::Bool, ScalarOp::Lt, &[i, end]);
        let inside = b.op(ScalarType::Bool, ScalarOp::And, &[from, to]);
        let most = b.op(ScalarType::I64, ScalarOp::Min, &[i, last]);
        let forced = b.op(ScalarType::I64, ScalarOp::Max, &[most, zero]);
        let x = b.load(ty, 1, base.plus(&Ix::reg(forced)));
        let twice = b.op(ty, ScalarOp::Add, &[x, x]);
        b.op(ty, ScalarOp::Select, &[inside, twice, nothing])
    };
    let (op, combine) = match sum {
        true => (ScalarOp::Add, Combine::Sum),
        false => (ScalarOp::Max, Combine::Max),
    };
    let next = b.op(ty, op, &[acc, x]);
    let result = b.regs.push(ty);
    let windows = Stmt::Loop(Loop {
        var: k,
        extent: Dim::constant(window),
        kind: LoopKind::Reduce { partials: false },
        ranged: false,
        carried: vec![Carried { init: nothing, acc, next, result, combine }],
        body: b.out,
    });
    let to = Ix::var(row).scale(&Dim::constant(out)).plus(&Ix::var(j));
    let store = Stmt::Store { buf: 0, at: to, value: result };
    let rows = 3;
    let body = parallel(row, rows, true, vec![parallel(j, out, false, vec![windows, store])]);
    Kernel {
        name: "pool".into(),
        bufs: vec![
            KernelBuf::new(dtype, Dim::constant(rows * out), true),
            KernelBuf::new(dtype, Dim::constant(rows * width), false),
        ],
        locals: vec![],
        dims: vec![],
        regs: b.regs,
        loops: 3,
        body: [head, vec![body]].concat(),
    }
}

#[test]
fn windows_run_in_vectors() {
    let mut wide = 0;
    for out in [4, 7, 8, 13, 15, 16, 17, 27, 31, 33, 55, 112] {
        for [window, stride, pad] in [[3, 1, 1], [3, 2, 0], [3, 2, 1], [2, 2, 0], [5, 3, 2]] {
            // As wide as need be, or so that the last windows reach beyond it.
            let least = (out - 1) * stride + window - pad;
            for width in [least, least - pad, least + 3] {
                for (dtype, sum) in [(DType::F32, false), (DType::I32, true), (DType::F64, true)] {
                    let kernel = pool(width, out, [window, stride, pad], dtype, sum);
                    check(&kernel, &[1]).unwrap();
                    let coverage = tfc_codegen::coverage(&program(&kernel)).unwrap();
                    wide += usize::from(coverage[0].avx2.is_ok() && coverage[0].avx512.is_ok());
                }
            }
        }
    }
    assert!(wide > 400, "only {wide} kernels have wide versions");
}

/// `out[i, j] = (x[j, i] + y[i]) * z[i, j]`
fn transposed(rows: i64, columns: i64, dtype: DType) -> Kernel {
    let ty = ScalarType::of(dtype);
    let [i, j] = [0, 1].map(LoopVar::from_u32);
    let mut b = Body::default();
    let y = b.load(ty, 2, Ix::var(i));
    let head = std::mem::take(&mut b.out);
    let by = |var: LoopVar, n: i64| Ix::var(var).scale(&Dim::constant(n));
    let x = b.load(ty, 1, by(j, rows).plus(&Ix::var(i)));
    let z = b.load(ty, 3, by(i, columns).plus(&Ix::var(j)));
    let sum = b.op(ty, ScalarOp::Add, &[x, y]);
    let value = b.op(ty, ScalarOp::Mul, &[sum, z]);
    b.out.push(Stmt::Store { buf: 0, at: by(i, columns).plus(&Ix::var(j)), value });
    let inner = parallel(j, columns, false, b.out);
    let len = Dim::constant(rows * columns);
    Kernel {
        name: "transposed".into(),
        bufs: vec![
            KernelBuf::new(dtype, len.clone(), true),
            KernelBuf::new(dtype, len.clone(), false),
            KernelBuf::new(dtype, Dim::constant(rows), false),
            KernelBuf::new(dtype, len, false),
        ],
        locals: vec![],
        dims: vec![],
        regs: b.regs,
        loops: 2,
        body: vec![parallel(i, rows, true, [head, vec![inner]].concat())],
    }
}

#[test]
fn tiles_are_turned() {
    for rows in [2, 8, 15, 16, 17, 31, 48, 50] {
        for columns in [4, 8, 9, 16, 23, 32, 47, 64] {
            for dtype in [DType::F32, DType::I32, DType::F64] {
                check(&transposed(rows, columns, dtype), &[1]).unwrap();
            }
        }
    }
}
