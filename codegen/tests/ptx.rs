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
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn generated_kernels_give_the_interpreters_bits(
        choices in prop::collection::vec(any::<u32>(), 40..160)
    ) {
        let kernel = generate(&choices);
        prop_assume!(!sees_bits(&kernel, &kernel.body));
        check(&kernel, &[0, 1, 3, 5, 8, 17, 39, 78])?;
    }
}
