//! The kernels of the corpus and of the examples as PTX: on the simulated GPU they
//! give the bits of the kernel interpreter, and NVIDIA's assembler takes them for
//! every architecture we name, with hardly a register spilled.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use tfc::load::{Files, parse_as};
use tfc_codegen::ptx;
use tfc_kernel::program::Program;
use tfc_kernel::{DType, Kernel, Stmt, interp, math};
use tfc_ptx_sim::{Arg, Device, Launch, Module};
use tfc_testdata::corpus::{self, Case};
use tfc_testdata::ways::{in_parallel, scratch};

fn compile(case: &Case) -> Result<Program, String> {
    let files = Files::in_dir(case.path.parent().unwrap_or(Path::new("")));
    let name = case.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let graph = parse_as(&name, &case.text, &files).map_err(|e| e.to_string())?.graph;
    let mut timings = tfc::driver::Timings::default();
    let compiled =
        tfc::driver::compile(&graph, &graph.sources, &tfc::Options::default(), &mut timings)
            .map_err(|e| e.to_string())?;
    Ok(compiled.program().clone())
}

fn cases() -> Vec<Case> {
    let mut cases = corpus::cases("ops");
    cases.extend(corpus::cases("run"));
    cases.extend(corpus::examples());
    cases
}

/// Numbers of all sizes, whole ones among them; the same for the same seed.
fn fill(dtype: DType, len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let mut out = vec![];
    for _ in 0..len {
        let raw = next();
        let float = (raw % 2001) as f32 / 400.0 - 2.5;
        let int = (raw % 23) as i32 - 3;
        match dtype {
            DType::F32 => out.extend(float.to_le_bytes()),
            DType::F64 => out.extend(f64::from(float).to_le_bytes()),
            DType::F16 => out.extend(half::f16::from_f32(float).to_le_bytes()),
            DType::BF16 => out.extend(half::bf16::from_f32(float).to_le_bytes()),
            DType::I8 | DType::U8 => out.push(int as u8),
            DType::I32 => out.extend(int.to_le_bytes()),
            DType::I64 => out.extend(i64::from(int).to_le_bytes()),
            DType::Bool => out.push(u8::from(raw % 3 == 0)),
        }
    }
    out
}

fn is_nan(dtype: DType, b: &[u8]) -> bool {
    match (dtype, b) {
        (DType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).is_nan(),
        (DType::F64, b) => b.try_into().is_ok_and(|b| f64::from_le_bytes(b).is_nan()),
        (DType::F16, &[a, b]) => half::f16::from_le_bytes([a, b]).is_nan(),
        (DType::BF16, &[a, b]) => half::bf16::from_le_bytes([a, b]).is_nan(),
        _ => false,
    }
}

/// Statements the interpreter would run, roughly; what is more than `LIMIT` is left to
/// the generated kernels, which have the same shapes and small sizes.
fn work(stmts: &[Stmt], size: &dyn Fn(&str) -> Option<i64>) -> i64 {
    stmts
        .iter()
        .map(|s| match s {
            Stmt::Loop(l) => l.extent.eval(size).unwrap_or(0).saturating_mul(work(&l.body, size)),
            _ => 1,
        })
        .fold(0, i64::saturating_add)
}
const LIMIT: i64 = 2_000;
/// Elements of all buffers of a kernel.
const MOST: i64 = 100_000;

/// Bounds of the loops that a call bounds.
fn ranges(kernel: &Kernel, size: &dyn Fn(&str) -> Option<i64>) -> [i64; 4] {
    let mut out = [0; 4];
    let (mut body, mut at) = (&kernel.body, 0);
    while let Some(Stmt::Loop(l)) = body.iter().find(|s| matches!(s, Stmt::Loop(l) if l.ranged)) {
        out[2 * at + 1] = l.extent.eval(size).unwrap_or(0);
        (body, at) = (&l.body, at + 1);
    }
    out
}

/// Whether the kernel was small enough to be compared.
fn same_bits(
    kernel: &Kernel,
    device_text: &str,
    launch: &ptx::Launch,
    at: i64,
) -> Result<bool, String> {
    let dims: Vec<i64> = (0..kernel.dims.len() as i64).map(|i| at + 2 * i).collect();
    let size = |name: &str| kernel.dims.iter().position(|d| &**d == name).map(|i| dims[i]);
    let mut expanded = kernel.clone();
    math::expand(&mut expanded);
    if work(&expanded.body, &size) > LIMIT {
        return Ok(false);
    }
    // Looking up a row of a large table is little work, and a large table.
    let lens = kernel.bufs.iter().map(|b| b.len.eval(&size).unwrap_or(0));
    if lens.fold(0i64, i64::saturating_add) > MOST {
        return Ok(false);
    }
    let mut want: Vec<Vec<u8>> = vec![];
    for (i, b) in kernel.bufs.iter().enumerate() {
        let len = b.len.eval(&size).ok_or("a length without value")?;
        want.push(fill(b.dtype, len as usize, i as u32));
    }
    let start = want.clone();
    let range = ranges(kernel, &size);
    // Sizes that a call would refuse are nothing to compare.
    if interp::run(&expanded, &mut want, &dims, range).is_err() {
        return Ok(false);
    }
    let module = Module::parse(device_text).map_err(|e| e.to_string())?;
    let mut device = Device::new();
    let ptrs: Vec<u64> =
        start.iter().map(|b| device.upload(if b.is_empty() { &[0; 16] } else { b })).collect();
    let grid: Vec<u32> = launch.grid.iter().map(|g| g.eval(&size).unwrap_or(0) as u32).collect();
    let grid = [grid[0], grid[1], grid[2]];
    let args: Vec<Arg> =
        ptrs.iter().map(|p| Arg::Ptr(*p)).chain(dims.iter().map(|d| Arg::I64(*d))).collect();
    if !grid.contains(&0) {
        let block = [launch.block, 1, 1];
        let launch = Launch { entry: &launch.entry, grid, block, args: &args, ..Launch::default() };
        device.launch(&module, &launch).map_err(|e| e.to_string())?;
    }
    for (i, (want, ptr)) in want.iter().zip(&ptrs).enumerate() {
        let got = device.read(*ptr, want.len()).map_err(|e| e.to_string())?;
        let dtype = kernel.bufs[i].dtype;
        let elements = want.chunks(dtype.size()).zip(got.chunks(dtype.size()));
        for (at, (w, g)) in elements.enumerate() {
            if w != g && !(is_nan(dtype, w) && is_nan(dtype, g)) {
                return Err(format!("dims {dims:?}: b{i}[{at}] is {g:?}, not {w:?}"));
            }
        }
    }
    Ok(true)
}

#[test]
fn kernels_give_the_interpreters_bits() {
    let compared = std::sync::Mutex::new(BTreeMap::<String, usize>::new());
    let failures = in_parallel(&cases(), |case| {
        let program = compile(case).map_err(|e| format!("{}: {e}", case.name))?;
        // A few of each: the simulator takes its time.
        for kernel in program.kernels.iter().take(24) {
            let fail = |e: String| format!("{}: {}: {e}\n{kernel}", case.name, kernel.name);
            let (entry, schedule) = ptx::kernel(kernel).map_err(|e| fail(e.to_string()))?;
            let text = ptx::module(std::slice::from_ref(&entry));
            if same_bits(kernel, &text, &entry.launch, 9).map_err(fail)? {
                let shape = format!("{:?}", schedule.shape);
                let shape = shape.split_whitespace().next().unwrap_or("").to_string();
                *compared.lock().expect("no panics").entry(shape).or_default() += 1;
            }
        }
        Ok(())
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    let compared = compared.into_inner().expect("no panics");
    println!("compared: {compared:?}");
    assert!(compared.values().sum::<usize>() > 150, "{compared:?}");
    assert_eq!(compared.len(), 3, "kernels of every shape: {compared:?}");
}

/// NVIDIA's assembler. In CI it must be there.
fn ptxas() -> Option<PathBuf> {
    let path = match std::env::var_os("TFC_PTXAS") {
        Some(path) => PathBuf::from(path),
        None => corpus::root().join("target/ptxas/ptxas"),
    };
    if path.is_file() {
        return Some(path);
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "there is no {}: `.ci/ptxas` fetches it",
        path.display()
    );
    println!("left out: there is no {}; `.ci/ptxas` fetches it", path.display());
    None
}

/// Bytes a kernel may spill: the assembler leaves a number of the loop's frame on the
/// stack in some ten of two thousand, on the oldest and on the newest GPU.
const SPILL: u32 = 8;

/// Assembles a module; kernels that spill more are failures.
fn assemble(ptxas: &Path, dir: &Path, name: &str, least: u32, text: &str) -> Result<(), String> {
    let file = dir.join(format!("{name}.ptx"));
    std::fs::write(&file, text).map_err(|e| e.to_string())?;
    for arch in [75, 80, 90, 120].into_iter().filter(|a| *a >= least) {
        let arch = &format!("sm_{arch}");
        let output = Command::new(ptxas)
            .args(["-v", "-arch", arch, "-o", "/dev/null"])
            .arg(&file)
            .output()
            .map_err(|e| format!("cannot start ptxas: {e}"))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(format!("{name} for {arch}: {}", said.trim()));
        }
        let spilled = |line: &str| -> u32 {
            let number = |word: &str| word.parse::<u32>().unwrap_or(0);
            let words: Vec<&str> = line.split_whitespace().collect();
            words.windows(3).filter(|w| w[2] == "spill").map(|w| number(w[0])).max().unwrap_or(0)
        };
        if let Some(line) = said.lines().find(|l| spilled(l) > SPILL) {
            return Err(format!("{name} for {arch} spills: {line}"));
        }
    }
    let _ = std::fs::remove_file(&file);
    Ok(())
}

#[test]
fn nvidias_assembler_takes_every_kernel() {
    let Some(ptxas) = ptxas() else { return };
    let dir = scratch();
    // Many cases have the same kernels: each text once.
    let mut texts = BTreeSet::new();
    let mut modules: Vec<(String, u32, Vec<ptx::Entry>)> = vec![];
    for case in cases() {
        let program = compile(&case).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let mut entries = vec![];
        for arch in [70, 80] {
            let all = ptx::compile(&program, arch).unwrap_or_else(|e| panic!("{}: {e}", case.name));
            for (i, entry) in all.entries().cloned().enumerate() {
                let body = entry.text.split_once('(').map_or("", |t| t.1).to_string();
                if texts.insert(body) {
                    // The same names may come for another GPU.
                    let name = format!("{}_{arch}_{i}", entry.launch.entry);
                    let text = entry.text.replacen(&entry.launch.entry, &name, 1);
                    entries.push((arch, ptx::Entry { text, ..entry }));
                }
            }
        }
        for arch in [70, 80] {
            let of = entries.iter().filter(|e| e.0 == arch).map(|e| e.1.clone());
            let of: Vec<ptx::Entry> = of.collect();
            if !of.is_empty() {
                modules.push((format!("{}-{arch}", case.name), arch, of));
            }
        }
    }
    let failures = in_parallel(&modules, |(name, arch, entries)| {
        assemble(&ptxas, dir.path(), name, *arch, &ptx::module(entries))
    });
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    // The kernels of the runtime itself.
    let scale = tfc_runtime::cuda::nccl::scale::PTX;
    assemble(&ptxas, dir.path(), "scale", 70, scale).unwrap_or_else(|e| panic!("{e}"));
}

/// What the assembler makes of the main kinds of kernels, for each GPU: nothing is spilled,
/// products and convolutions are multiply-adds for the most part, and elementwise kernels
/// load 128 bits at a time.
#[test]
fn main_kernels_are_as_good_as_the_page_says() {
    let Some(ptxas) = ptxas() else { return };
    if !ptxas.with_file_name("nvdisasm").exists() {
        assert!(std::env::var_os("CI").is_none(), "there is no nvdisasm: `.ci/ptxas nvdisasm`");
        println!("left out: there is no nvdisasm; `.ci/ptxas nvdisasm` fetches it");
        return;
    }
    let path = corpus::root().join(".ci/kernels.graph");
    let text = std::fs::read_to_string(&path).expect("the kernels");
    let program = compile(&Case { path, name: "kernels".into(), text }).expect("it compiles");
    let dir = scratch();
    let all = ptx::compile(&program, 80).expect("it has PTX");
    for (version, gpu) in [(70, "sm_75"), (80, "sm_80"), (80, "sm_90"), (80, "sm_120")] {
        let compiled = ptx::compile(&program, version).expect("it has PTX");
        let file = dir.path().join("kernels.ptx");
        std::fs::write(&file, compiled.text()).expect("written");
        let table = Command::new(corpus::root().join(".ci/gpu-table"))
            .arg(&file)
            .arg(gpu)
            .output()
            .expect("it starts");
        let text = String::from_utf8_lossy(&table.stdout).into_owned();
        assert!(table.status.success(), "{}", String::from_utf8_lossy(&table.stderr));
        println!("{gpu}\n{text}");
        let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
        let mut elementwise = 0;
        for line in text.lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, _, spilled, ..] = words[..] else { panic!("{line}") };
            assert_eq!(spilled, "0", "{gpu}: {line}");
            let least = [("tfc_product", 85), ("tfc_conv", 80), ("tfc_half", 30)];
            // Halves are multiplied as f32 where there are no tensor cores for them.
            let least = least.iter().filter(|(kind, _)| version >= 80 || *kind != "tfc_half");
            let at = words.iter().position(|w| *w == "%");
            if let (Some((kind, least)), Some(at)) =
                (least.clone().find(|(kind, _)| name.starts_with(kind)), at)
            {
                let share: u32 = words[at - 1].parse().expect("a number");
                assert!(share >= *least, "{gpu}: {line}");
                *shares.entry(kind).or_default() += 1;
            }
            if ["tfc_mul_add_relu", "tfc_tanh_mul"].contains(&name) {
                let loads = line.rsplit("  ").next().unwrap_or_default();
                assert!(loads.ends_with("x 128") && !loads.contains(','), "{gpu}: {line}");
                elementwise += 1;
            }
        }
        let seen = |kind| shares.get(kind).copied().unwrap_or(0);
        let halves = if version >= 80 { 2 } else { 0 };
        let counts = (seen("tfc_product"), seen("tfc_conv"), seen("tfc_half"), elementwise);
        assert_eq!(counts, (7, 1, halves, 2), "{gpu}\n{text}");
    }
    // On tensor cores, when asked for.
    let tf32 = Program { tf32: true, ..program.clone() };
    let tf32 = ptx::compile(&tf32, 80).expect("it has PTX").text();
    assert!(tf32.contains("tf32") && !all.text().contains("tf32"));
    assemble(&ptxas, dir.path(), "tf32", 80, &tf32).unwrap_or_else(|e| panic!("{e}"));
    // With fast math the same, with instructions that only come near.
    let fast = ptx::compile(&Program { fast: true, ..program }, 80).expect("it has PTX").text();
    assert!(fast.contains("div.full.f32") && fast.contains("ex2.approx.f32"));
    assert!(!all.text().contains(".approx") && !all.text().contains(".full"));
    assemble(&ptxas, dir.path(), "fast", 80, &fast).unwrap_or_else(|e| panic!("{e}"));
}

/// Layers that are alike have the same code.
#[test]
fn equal_products_share_their_entries() {
    let text = "graph layers\ndim B\nvar w: f32[64, 64] = ones\nvar v: f32[64, 64] = ones\n\
                entry f(x: f32[B, 64]) -> (y: f32[B, 64]) {\n  \
                a = tanh(x @ w)\n  return tanh(a @ v)\n}\n";
    let case = Case { path: "layers.graph".into(), name: "layers".into(), text: text.into() };
    let program = compile(&case).expect("it compiles");
    let all = ptx::compile(&program, 70).expect("it has PTX");
    assert_eq!(all.contractions.len(), 2, "{}", all.schedule_text());
    let products = all.text().matches(".entry tfc_f_").count();
    assert_eq!(products, 1, "{}", all.schedule_text());
    // The program launches what is there.
    let table = ptx::table(&program, &[]).expect("a table");
    let launched: BTreeSet<&str> = (table.versions[0].contractions.iter())
        .flat_map(|c| c.launches.iter().map(|l| l.name.as_str()))
        .collect();
    assert_eq!(launched.len(), 1, "{launched:?}");
}
