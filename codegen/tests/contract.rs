//! Matrix products and convolutions on the simulated GPU against plain loops. The
//! factors are small whole numbers, so every order of the sums gives the same bits.

use std::sync::Arc;
use tfc_abi::plan::ConvKind;
use tfc_codegen::ptx::{self, Contracted, Request};
use tfc_kernel::contract::{Conv, Epilogue, MatMul, Product};
use tfc_kernel::*;
use tfc_ptx_sim::{Arg, Device, Launch, Module};

fn number(dtype: DType, v: i64) -> Vec<u8> {
    match dtype {
        DType::F32 => (v as f32).to_le_bytes().to_vec(),
        DType::F64 => (v as f64).to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f32(v as f32).to_le_bytes().to_vec(),
        DType::BF16 => half::bf16::from_f32(v as f32).to_le_bytes().to_vec(),
        DType::I32 => (v as i32).to_le_bytes().to_vec(),
        DType::I64 => v.to_le_bytes().to_vec(),
        DType::I8 | DType::U8 | DType::Bool => vec![v as u8],
    }
}

fn bytes(dtype: DType, values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|v| number(dtype, *v)).collect()
}

/// Small whole numbers.
fn values(len: i64, seed: i64) -> Vec<i64> {
    (0..len).map(|i| (i * 7 + seed * 5 + i / 11 * 3) % 5 - 2).collect()
}

/// Runs the entries; buffers are the inputs and then the results, of which the content
/// is given back.
fn run(
    c: &Contracted,
    dims: &[(&str, i64)],
    inputs: &[Vec<u8>],
    results: &[usize],
) -> Result<Vec<Vec<u8>>, String> {
    let module = Module::parse(&ptx::module(&c.entries)).map_err(|e| e.to_string())?;
    let size = |name: &str| dims.iter().find(|d| d.0 == name).map(|d| d.1);
    let mut device = Device::new();
    let mut ptrs: Vec<u64> = inputs.iter().map(|b| device.upload(b)).collect();
    let outs: Vec<u64> = results.iter().map(|n| device.alloc(*n)).collect();
    ptrs.extend(&outs);
    if let Some(bytes) = &c.workspace {
        ptrs.push(device.alloc(bytes.eval(&size).unwrap_or(0) as usize));
    }
    let args: Vec<Arg> =
        ptrs.iter().map(|p| Arg::Ptr(*p)).chain(dims.iter().map(|d| Arg::I64(d.1))).collect();
    for entry in &c.entries {
        let grid: Vec<u32> =
            entry.launch.grid.iter().map(|g| g.eval(&size).unwrap_or(0) as u32).collect();
        if grid.contains(&0) {
            continue;
        }
        let launch = Launch {
            entry: &entry.launch.entry,
            grid: [grid[0], grid[1], grid[2]],
            block: [entry.launch.block, 1, 1],
            args: &args,
            ..Launch::default()
        };
        device.launch(&module, &launch).map_err(|e| e.to_string())?;
    }
    outs.iter().zip(results).map(|(p, n)| device.read(*p, *n).map_err(|e| e.to_string())).collect()
}

struct Sizes {
    m: i64,
    n: i64,
    k: i64,
    batch: i64,
}

/// A matrix product; with `named`, of run-time sizes. `a` is one matrix for all batches
/// when `broadcast`.
fn matmul(dtype: DType, s: &Sizes, trans: (bool, bool), broadcast: bool, named: bool, arch: u32) {
    let dim = |name: &str, v: i64| if named { Dim::sym(name) } else { Dim::constant(v) };
    let (m, n, k, batch) = (dim("M", s.m), dim("N", s.n), dim("K", s.k), dim("Z", s.batch));
    let product = Product::MatMul(MatMul {
        dtype,
        a_stride: if broadcast { Dim::constant(0) } else { m.clone() * k.clone() },
        b_stride: k.clone() * n.clone(),
        m,
        n,
        k,
        batch,
        trans_a: trans.0,
        trans_b: trans.1,
    });
    let dims: Vec<Arc<str>> = ["K", "M", "N", "Z"].map(Arc::from).to_vec();
    let request = Request {
        name: "product",
        product: &product,
        epilogue: None,
        dims: &dims,
        arch,
        fast: false,
        tf32: arch >= 80,
    };
    let c = ptx::contraction(&request);
    let a = values(s.m * s.k * if broadcast { 1 } else { s.batch }, 1);
    let b = values(s.k * s.n * s.batch, 2);
    let mut want = vec![];
    for z in 0..s.batch {
        for i in 0..s.m {
            for j in 0..s.n {
                let mut sum = 0;
                for t in 0..s.k {
                    let pa = if trans.0 { t * s.m + i } else { i * s.k + t };
                    let pb = if trans.1 { j * s.k + t } else { t * s.n + j };
                    let za = if broadcast { 0 } else { z };
                    sum += a[(za * s.m * s.k + pa) as usize] * b[(z * s.k * s.n + pb) as usize];
                }
                want.push(sum);
            }
        }
    }
    let want = bytes(dtype, &want);
    let dims = [("K", s.k), ("M", s.m), ("N", s.n), ("Z", s.batch)];
    let got = run(&c, &dims, &[bytes(dtype, &a), bytes(dtype, &b)], &[want.len()]);
    let Sizes { m, n, k, batch } = s;
    let what = format!("{dtype} {m} x {n} over {k}, {batch} of them, {trans:?}\n{}", c.text);
    match got {
        Err(e) => panic!("{e}\n{what}"),
        Ok(got) => assert!(got[0] == want, "other numbers: {what}"),
    }
}

#[test]
fn products_of_every_size_and_transposition() {
    for (i, trans) in
        [(false, false), (true, false), (false, true), (true, true)].into_iter().enumerate()
    {
        for (m, n, k) in [(1, 1, 1), (7, 65, 33), (64, 64, 16), (70, 5, 40), (3, 130, 17)] {
            matmul(DType::F32, &Sizes { m, n, k, batch: 1 }, trans, false, i % 2 == 0, 70);
        }
        // Sizes known at run time only: aligned, aligned for one factor, not aligned; with
        // tiles that are whole and tiles that are not.
        for (m, n, k) in [(64, 128, 32), (68, 72, 20), (132, 65, 36), (129, 131, 37), (66, 68, 18)]
        {
            matmul(DType::F32, &Sizes { m, n, k, batch: 2 }, trans, false, true, 70);
        }
        // Large tiles.
        matmul(DType::F32, &Sizes { m: 130, n: 132, k: 19, batch: 1 }, trans, false, false, 70);
        matmul(DType::F32, &Sizes { m: 5, n: 6, k: 7, batch: 3 }, trans, i % 2 == 1, true, 70);
    }
}

#[test]
fn products_of_every_type() {
    for dtype in [DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64, DType::I8] {
        matmul(dtype, &Sizes { m: 9, n: 70, k: 21, batch: 2 }, (false, false), false, true, 70);
        matmul(dtype, &Sizes { m: 9, n: 72, k: 21, batch: 1 }, (true, true), false, false, 70);
        // Four neighbours at a time.
        for trans in [(false, false), (true, true)] {
            let s = Sizes { m: 68, n: 72, k: 20, batch: 2 };
            matmul(dtype, &s, trans, false, false, 70);
        }
    }
}

#[test]
fn products_on_tensor_cores() {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        for trans in [(false, false), (true, true), (false, true), (true, false)] {
            for (m, n, k) in [(1, 1, 1), (64, 64, 16), (70, 37, 50), (72, 40, 88)] {
                matmul(dtype, &Sizes { m, n, k, batch: 2 }, trans, false, true, 80);
            }
            let s = Sizes { m: 68, n: 72, k: 36, batch: 2 };
            matmul(dtype, &s, trans, false, false, 80);
            // Large tiles, with and without an end that is not full.
            for (m, n, k) in [(128, 136, 64), (130, 20, 33), (24, 136, 40)] {
                matmul(dtype, &Sizes { m, n, k, batch: 1 }, trans, false, false, 80);
            }
        }
    }
}

#[test]
fn long_sums_are_cut() {
    let s = Sizes { m: 5, n: 12, k: 3001, batch: 1 };
    matmul(DType::F32, &s, (true, false), false, false, 70);
    matmul(DType::F64, &s, (false, false), false, false, 70);
    let s = Sizes { m: 6, n: 3, k: 2050, batch: 2 };
    matmul(DType::I32, &s, (false, true), false, false, 70);
    matmul(DType::BF16, &Sizes { m: 5, n: 12, k: 2100, batch: 1 }, (true, false), false, false, 80);
}

/// Whether sums are cut may be known at run time only: then the same code does both.
#[test]
fn long_sums_of_run_time_sizes_are_cut() {
    for (m, n, k) in [(5, 12, 2047), (5, 12, 2048), (1, 3, 2201)] {
        let s = Sizes { m, n, k, batch: 1 };
        matmul(DType::F32, &s, (true, false), false, true, 70);
    }
    for k in [40, 2100] {
        let s = Sizes { m: 4, n: 70, k, batch: 2 };
        matmul(DType::BF16, &s, (false, true), false, true, 80);
        matmul(DType::I64, &s, (false, false), false, true, 70);
    }
    // What is launched.
    let [m, n, k] = ["M", "N", "K"].map(Dim::sym);
    let product = Product::MatMul(MatMul {
        dtype: DType::F32,
        m,
        n,
        k,
        batch: Dim::constant(1),
        a_stride: Dim::constant(0),
        b_stride: Dim::constant(0),
        trans_a: false,
        trans_b: false,
    });
    let dims: Vec<Arc<str>> = ["K", "M", "N"].map(Arc::from).to_vec();
    let request = Request {
        name: "product",
        product: &product,
        epilogue: None,
        dims: &dims,
        arch: 70,
        fast: false,
        tf32: false,
    };
    let c = ptx::contraction(&request);
    let blocks = |m: i64, n: i64, k: i64| {
        let size = |name: &str| dims.iter().position(|d| &**d == name).map(|i| [k, m, n][i]);
        let of = |d: &Dim| d.eval(&size).expect("a size");
        let workspace = c.workspace.as_ref().map(of).unwrap_or(0);
        (of(&c.entries[0].launch.grid[0]), of(&c.entries[1].launch.grid[0]), workspace)
    };
    assert_eq!(blocks(64, 64, 2047), (1, 0, 0));
    assert_eq!(blocks(64, 64, 2048), (8, 16, 64 * 64 * 4 * 8));
    assert_eq!(blocks(2048, 64, 1 << 20), (256, 512, 2048 * 64 * 4 * 8));
    assert_eq!(blocks(2049, 64, 1 << 20), (33, 0, 0));
    assert_eq!(blocks(0, 64, 1 << 20).0, 0);
}

/// `max(product + bias, 0)`, the bias along rows.
fn bias_relu(m: &Dim, n: &Dim, dims: &[Arc<str>]) -> Kernel {
    let len = m.clone() * n.clone();
    let buf = |len: &Dim, written| KernelBuf::new(DType::F32, len.clone(), written);
    let mut regs = cranelift_entity::PrimaryMap::new();
    let [zero, x, bias, sum, out] = std::array::from_fn(|_| regs.push(ScalarType::F32));
    let (i, j) = (LoopVar::from_u32(0), LoopVar::from_u32(1));
    let at = Ix::var(i).scale(n).plus(&Ix::var(j));
    let body = vec![
        Stmt::Const { dst: zero, value: Scalar::F32(0) },
        Stmt::Load { dst: x, buf: 1, at: at.clone() },
        Stmt::Load { dst: bias, buf: 2, at: Ix::var(j) },
        Stmt::Op { dst: sum, op: ScalarOp::Add, args: vec![x, bias] },
        Stmt::Op { dst: out, op: ScalarOp::Max, args: vec![sum, zero] },
        Stmt::Store { buf: 0, at, value: out },
    ];
    let one_loop = |var, extent: &Dim, body| {
        let (kind, extent) = (LoopKind::Parallel, extent.clone());
        Stmt::Loop(Loop { var, extent, kind, ranged: true, carried: vec![], body })
    };
    let inner = one_loop(j, n, body);
    Kernel {
        name: "bias_relu".into(),
        bufs: vec![buf(&len, true), buf(&len, false), buf(n, false)],
        locals: vec![],
        dims: dims.to_vec(),
        regs,
        loops: 2,
        body: vec![one_loop(i, m, vec![inner])],
    }
}

#[test]
fn the_epilogue_is_run_on_sums_in_registers() {
    for (m, n, k, named) in [
        (9, 70, 21, true),
        (9, 70, 2049, true),
        (130, 132, 9, false),
        (9, 72, 21, false),
        (33, 8, 3000, false),
    ] {
        let dim = |name: &str, v: i64| if named { Dim::sym(name) } else { Dim::constant(v) };
        let (dm, dn, dk) = (dim("M", m), dim("N", n), dim("K", k));
        let names: Vec<Arc<str>> = ["K", "M", "N"].map(Arc::from).to_vec();
        let kernel = bias_relu(&dm, &dn, &names);
        let epilogue = Epilogue::of(&kernel, 0, 1).expect("two loops");
        let zero = Dim::constant(0);
        let product = Product::MatMul(MatMul {
            dtype: DType::F32,
            m: dm,
            n: dn,
            k: dk,
            batch: Dim::constant(1),
            a_stride: zero.clone(),
            b_stride: zero,
            trans_a: false,
            trans_b: false,
        });
        let request = Request {
            name: "product",
            product: &product,
            epilogue: Some((&epilogue, &kernel)),
            dims: &names,
            arch: 70,
            fast: false,
            tf32: false,
        };
        let c = ptx::contraction(&request);
        let (a, b, bias) = (values(m * k, 1), values(k * n, 2), values(n, 3));
        let mut want = vec![];
        for i in 0..m {
            for j in 0..n {
                let sum: i64 =
                    (0..k).map(|t| a[(i * k + t) as usize] * b[(t * n + j) as usize]).sum();
                want.push((sum + bias[j as usize]).max(0));
            }
        }
        let want = bytes(DType::F32, &want);
        // The result comes first among the kernel's buffers: it is an input here, whose
        // content is looked at by running on it.
        let mut device = Device::new();
        let module = Module::parse(&ptx::module(&c.entries)).expect("parses");
        let dims = [("K", k), ("M", m), ("N", n)];
        let size = |name: &str| dims.iter().find(|d| d.0 == name).map(|d| d.1);
        let out = device.alloc(want.len());
        let mut ptrs = vec![
            device.upload(&bytes(DType::F32, &a)),
            device.upload(&bytes(DType::F32, &b)),
            out,
            // The product itself is nowhere.
            device.alloc(0),
            device.upload(&bytes(DType::F32, &bias)),
        ];
        if let Some(bytes) = &c.workspace {
            ptrs.push(device.alloc(bytes.eval(&size).expect("a size") as usize));
        }
        let args: Vec<Arg> =
            ptrs.iter().map(|p| Arg::Ptr(*p)).chain(dims.iter().map(|d| Arg::I64(d.1))).collect();
        for entry in &c.entries {
            let grid: Vec<u32> =
                entry.launch.grid.iter().map(|g| g.eval(&size).expect("a size") as u32).collect();
            if grid.contains(&0) {
                continue;
            }
            let launch = Launch {
                entry: &entry.launch.entry,
                grid: [grid[0], grid[1], grid[2]],
                block: [entry.launch.block, 1, 1],
                args: &args,
                ..Launch::default()
            };
            device.launch(&module, &launch).unwrap_or_else(|e| panic!("{e}\n{}", c.text));
        }
        assert_eq!(device.read(out, want.len()), Ok(want), "{}", c.text);
    }
}

/// The places an output pixel and a place of the window meet, and the input pixel there.
fn meetings(c: &Conv, h: i64, w: i64, oh: i64, ow: i64) -> Vec<(i64, i64, i64)> {
    let mut out = vec![];
    for oy in 0..oh {
        for ox in 0..ow {
            for ky in 0..i64::from(c.kernel[0]) {
                for kx in 0..i64::from(c.kernel[1]) {
                    let at = |o: i64, k: i64, axis: usize| {
                        o * i64::from(c.stride[axis]) + k * i64::from(c.dilation[axis])
                            - i64::from(c.pad[axis])
                    };
                    let (y, x) = (at(oy, ky, 0), at(ox, kx, 1));
                    if (0..h).contains(&y) && (0..w).contains(&x) {
                        out.push((oy * ow + ox, ky * i64::from(c.kernel[1]) + kx, y * w + x));
                    }
                }
            }
        }
    }
    out
}

#[test]
fn convolutions_and_their_gradients() {
    convolutions(DType::F32, 70, false);
    convolutions(DType::F32, 80, false);
}

/// A weight that is NaN is in the sums that it is part of, and in no others: padding is
/// nothing, not zeros.
#[test]
fn padding_is_not_multiplied() {
    convolutions(DType::F32, 70, true);
    convolutions(DType::F32, 80, true);
    convolutions(DType::F64, 70, true);
    convolutions(DType::BF16, 70, true);
    convolutions(DType::F16, 80, true);
    convolutions(DType::BF16, 80, true);
}

/// `special` puts a NaN into the filters, and into the gradient where that is a factor.
fn convolutions(dtype: DType, arch: u32, special: bool) {
    let one = [1, 1];
    // Window, stride, dilation, padding, groups, channels in and out.
    let shapes = [
        ([1, 1], one, one, [0, 0], 1, 3, 5),
        ([3, 3], one, one, [1, 1], 1, 2, 70),
        ([3, 2], [2, 1], one, [1, 0], 1, 3, 4),
        ([3, 3], [2, 3], [2, 1], [2, 1], 1, 2, 3),
        ([3, 3], one, one, [1, 1], 2, 4, 6),
        ([3, 3], [2, 2], one, [1, 1], 5, 5, 5),
        ([3, 5], one, [1, 2], [1, 4], 4, 4, 4),
        ([1, 1], one, one, [0, 0], 2, 8, 4),
        ([1, 1], [2, 1], one, [0, 0], 1, 3, 4),
    ];
    for (i, (kernel, stride, dilation, pad, groups, ci, co)) in shapes.into_iter().enumerate() {
        let (images, h, w) = (2i64, 7i64, 9i64);
        let out = |size: i64, axis: usize| {
            let window = i64::from(dilation[axis]) * (i64::from(kernel[axis]) - 1) + 1;
            (size + 2 * i64::from(pad[axis]) - window) / i64::from(stride[axis]) + 1
        };
        let (oh, ow) = (out(h, 0), out(w, 1));
        let named = i % 2 == 0;
        let dim = |name: &str, v: i64| if named { Dim::sym(name) } else { Dim::constant(v) };
        let mut conv = Conv {
            kind: ConvKind::Forward,
            dtype,
            batch: dim("B", images),
            in_channels: Dim::constant(ci),
            in_size: [dim("H", h), dim("W", w)],
            out_channels: Dim::constant(co),
            out_size: [dim("P", oh), dim("Q", ow)],
            kernel,
            stride,
            dilation,
            pad,
            groups,
        };
        let dims = [("B", images), ("H", h), ("P", oh), ("Q", ow), ("W", w)];
        let names: Vec<Arc<str>> = dims.iter().map(|d| Arc::from(d.0)).collect();
        let g = i64::from(groups);
        let (cig, cog) = (ci / g, co / g);
        let window = i64::from(kernel[0]) * i64::from(kernel[1]);
        let (pi, po) = (h * w, oh * ow);
        let floats = |len, seed| values(len, seed).into_iter().map(|v| v as f64);
        let image: Vec<f64> = floats(images * ci * pi, 1).collect();
        let mut filter: Vec<f64> = floats(co * cig * window, 2).collect();
        let grad: Vec<f64> = floats(images * co * po, 3).collect();
        let mut factor = grad.clone();
        if special {
            *filter.last_mut().expect("a weight") = f64::NAN;
            let middle = factor.len() / 2;
            factor[middle] = f64::NAN;
        }
        let meet = meetings(&conv, h, w, oh, ow);
        let mut forward = vec![0.0; (images * co * po) as usize];
        let mut grad_input = vec![0.0; image.len()];
        let mut grad_filter = vec![0.0; filter.len()];
        for b in 0..images {
            for o in 0..co {
                for c in 0..cig {
                    let channel = o / cog * cig + c;
                    for (p, k, q) in &meet {
                        let at_out = ((b * co + o) * po + p) as usize;
                        let at_in = ((b * ci + channel) * pi + q) as usize;
                        let at_filter = ((o * cig + c) * window + k) as usize;
                        forward[at_out] += image[at_in] * filter[at_filter];
                        grad_input[at_in] += grad[at_out] * filter[at_filter];
                        grad_filter[at_filter] += factor[at_out] * image[at_in];
                    }
                }
            }
        }
        for (kind, inputs, want) in [
            (ConvKind::Forward, [&image, &filter], &forward),
            (ConvKind::GradInput, [&grad, &filter], &grad_input),
            (ConvKind::GradFilter, [&image, &factor], &grad_filter),
        ] {
            conv.kind = kind;
            let product = Product::Conv(conv.clone());
            let request = Request {
                name: "conv",
                product: &product,
                epilogue: None,
                dims: &names,
                arch,
                fast: false,
                tf32: arch >= 80,
            };
            let c = ptx::contraction(&request);
            let stored =
                |v: &[f64]| -> Vec<u8> { v.iter().flat_map(|v| float(dtype, *v)).collect() };
            let inputs = inputs.map(|v| stored(v));
            let want = stored(want);
            match run(&c, &dims, &inputs, &[want.len()]) {
                Err(e) => panic!("{e}\n{}", c.text),
                Ok(got) => {
                    let size = dtype.size();
                    let pairs = got[0].chunks(size).zip(want.chunks(size)).enumerate();
                    for (at, (g, w)) in pairs {
                        let same = g == w || (is_nan(dtype, g) && is_nan(dtype, w));
                        assert!(same, "{dtype}: {g:?} for {w:?} at {at}: {}", c.text);
                    }
                }
            }
        }
    }
}

fn float(dtype: DType, v: f64) -> Vec<u8> {
    match dtype {
        DType::F32 => (v as f32).to_le_bytes().to_vec(),
        DType::F64 => v.to_le_bytes().to_vec(),
        DType::F16 => half::f16::from_f64(v).to_le_bytes().to_vec(),
        _ => half::bf16::from_f64(v).to_le_bytes().to_vec(),
    }
}

fn is_nan(dtype: DType, b: &[u8]) -> bool {
    match dtype {
        DType::F32 => f32::from_le_bytes(b.try_into().expect("four")).is_nan(),
        DType::F64 => f64::from_le_bytes(b.try_into().expect("eight")).is_nan(),
        DType::F16 => half::f16::from_le_bytes(b.try_into().expect("two")).is_nan(),
        _ => half::bf16::from_le_bytes(b.try_into().expect("two")).is_nan(),
    }
}

/// TF32 is only used where it was asked for, and keeps the factors' leading bits.
#[test]
fn f32_goes_to_tensor_cores_only_when_asked_to() {
    let d = Dim::constant;
    let product = Product::MatMul(MatMul {
        dtype: DType::F32,
        m: d(16),
        n: d(32),
        k: d(8),
        batch: d(1),
        a_stride: d(0),
        b_stride: d(0),
        trans_a: false,
        trans_b: false,
    });
    let of = |arch, tf32| {
        let fast = false;
        let request =
            Request { name: "p", product: &product, epilogue: None, dims: &[], arch, fast, tf32 };
        ptx::contraction(&request)
    };
    for (arch, tf32) in [(80, false), (70, true)] {
        assert!(!of(arch, tf32).entries[0].text.contains("mma"), "sm_{arch}, {tf32}");
    }
    let c = of(80, true);
    assert!(c.entries[0].text.contains("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"));
    // One and a bit that is too small for TF32, which rounds it away; and one that is not.
    let a: Vec<u8> = [1.0f32 + 1.0 / 8192.0; 128].iter().flat_map(|v| v.to_le_bytes()).collect();
    let b: Vec<u8> = [1.0f32 + 1.0 / 1024.0; 256].iter().flat_map(|v| v.to_le_bytes()).collect();
    let got = run(&c, &[], &[a, b], &[4 * 16 * 32]).expect("it runs");
    let want = 8.0f32 + 8.0 / 1024.0;
    assert!(got[0].chunks(4).all(|g| g == want.to_le_bytes()), "{:?}", &got[0][..4]);
}
