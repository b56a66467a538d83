//! The versions of a program for different CPUs give the same bits.
//!
//! The corpus runs with the kernels for SSE4.1, for AVX2 and for AVX-512, as far as
//! this machine has them. Any NaN is as good as another.

use std::collections::BTreeMap;
use tfc::driver::{self, Timings};
use tfc::load::{Files, parse_as};
use tfc::{Module, Options};
use tfc_codegen::Cpu;
use tfc_ir::{DType, Tensor};
use tfc_testdata::corpus::{self, Case};
use tfc_testdata::directive::Directive;
use tfc_testdata::feeds;
use tfc_testdata::ways::{in_parallel, scratch};

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

fn is_nan(dtype: DType, b: &[u8]) -> bool {
    match (dtype, b) {
        (DType::F32, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).is_nan(),
        (DType::F64, b) => b.try_into().is_ok_and(|b| f64::from_le_bytes(b).is_nan()),
        (DType::F16, &[a, b]) => half::f16::from_le_bytes([a, b]).is_nan(),
        (DType::BF16, &[a, b]) => half::bf16::from_le_bytes([a, b]).is_nan(),
        _ => false,
    }
}

fn difference(want: &Tensor, got: &Tensor) -> Option<String> {
    let (dtype, size) = (want.dtype(), want.dtype().size());
    let pairs = want.bytes().chunks(size).zip(got.bytes().chunks(size));
    let mut differ =
        pairs.enumerate().filter(|(_, (w, g))| w != g && !(is_nan(dtype, w) && is_nan(dtype, g)));
    let (at, (w, g)) = differ.next()?;
    Some(format!("element {at} is {g:?}, not {w:?}"))
}

type Values = Vec<(String, Tensor)>;

/// Results and variables of one call from the initial state.
fn call(
    module: &Module,
    entry: &str,
    feeds: &[(String, Tensor)],
    vars: &[String],
) -> Result<Values, String> {
    module.model().init().map_err(|e| e.to_string())?;
    let outputs = module.call(entry, feeds).map_err(|e| e.to_string())?;
    let mut out = vec![];
    for name in outputs.names() {
        out.push((name.to_string(), outputs.tensor(name).map_err(|e| e.to_string())?));
    }
    for name in vars {
        out.push((name.clone(), module.var_tensor(name).map_err(|e| e.to_string())?));
    }
    Ok(out)
}

fn same_bits(case: &Case) -> Result<(), String> {
    let name = &case.name;
    let failed = |e: String| format!("{name}: {e}");
    let files = Files::in_dir(case.path.parent().unwrap_or("".as_ref()));
    let graph = parse_as(name, &case.text, &files).map_err(|e| failed(e.to_string()))?.graph;
    let directive = match case.text.starts_with("//!") {
        true => Directive::parse(&case.text).map_err(failed)?,
        false => Directive::default(),
    };
    let options = Options::default();
    let compiled = driver::compile(&graph, &graph.sources, &options, &mut Timings::default())
        .map_err(|e| failed(e.to_string()))?;
    let dir = scratch();
    let modules: Vec<(Cpu, Module)> = cpus()
        .into_iter()
        .map(|cpu| {
            let module = Module::from_compiled_for(&compiled, &options, cpu)
                .map_err(|e| failed(e.to_string()))?;
            module.model().set_directory(dir.path());
            Ok((cpu, module))
        })
        .collect::<Result<_, String>>()?;
    let vars: Vec<String> =
        graph.vars.values().filter(|v| v.symbol.is_variable()).map(|v| v.name.clone()).collect();
    for entry in graph.entries.iter().filter(|e| !e.runner) {
        for dims in directive.assignments(&feeds::dims(entry)) {
            let feeds = feeds::feeds(entry, &directive, &dims);
            let want = call(&modules[0].1, &entry.name, &feeds, &vars);
            for (cpu, module) in &modules[1..] {
                let got = call(module, &entry.name, &feeds, &vars);
                let at = format!("{name}: `{}` with {dims:?} on {cpu:?}", entry.name);
                match (&want, &got) {
                    (Ok(want), Ok(got)) => {
                        for ((name, w), (_, g)) in want.iter().zip(got) {
                            if let Some(d) = difference(w, g) {
                                return Err(format!("{at}: `{name}`: {d}"));
                            }
                        }
                    }
                    (Err(w), Err(g)) if w == g => {}
                    (w, g) => {
                        let (w, g) = (w.as_ref().err(), g.as_ref().err());
                        return Err(format!("{at}: {g:?}, not {w:?}"));
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn the_corpus_has_the_same_bits_on_every_cpu() {
    let mut cases: Vec<Case> = ["ops", "run"].iter().flat_map(|d| corpus::cases(d)).collect();
    cases.retain(|c| c.directive().verb == "run");
    let small = ["convnet", "norms", "rnn", "mlp"];
    cases.extend(corpus::examples().into_iter().filter(|c| small.contains(&&*c.name)));
    assert!(cases.len() > 50);
    let failures = in_parallel(&cases, same_bits);
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}

/// Large sums are split among threads: their bits depend on the sizes alone, not on the
/// vectors, the threads, or what else is computed in the same loop.
#[test]
fn a_sum_has_the_same_bits_at_any_thread_count_alone_and_fused() {
    let text = "graph g\ndim N\ndim M\n\
                entry square(x: f32[300, 512]) -> (s: f32[]) { return sum(x) }\n\
                entry square2(x: f32[300, 512]) -> (s: f32[], t: f32[], u: f32[]) {\n\
                \x20 return sum(x), sum(sin(x) * exp(x) + erf(x)), max(x * x)\n}\n\
                entry flat(x: f32[70003]) -> (s: f32[]) { return sum(x) }\n\
                entry flat2(x: f32[70003]) -> (s: f32[], t: f32[]) {\n\
                \x20 return sum(x), sum(exp(x) * x)\n}\n\
                entry run(x: f32[N, 512]) -> (s: f32[]) { return sum(x) }\n\
                entry run2(x: f32[N, 512]) -> (s: f32[], t: f32[]) {\n\
                \x20 return sum(x), sum(tanh(x) * x)\n}\n\
                entry long(x: f32[N]) -> (s: f32[]) { return sum(x) }\n\
                entry long2(x: f32[N]) -> (s: f32[], t: f32[]) {\n\
                \x20 return sum(x), sum(exp(x) * x)\n}\n\
                entry few(x: f32[N, 10]) -> (s: f32[]) { return sum(x) }\n\
                entry few2(x: f32[N, 10]) -> (s: f32[], t: f32[]) {\n\
                \x20 return sum(x), sum(exp(x) * x)\n}\n\
                entry grid(x: f32[N, M]) -> (s: f32[]) { return sum(x) }\n\
                entry grid2(x: f32[N, M]) -> (s: f32[], t: f32[]) {\n\
                \x20 return sum(x), sum(exp(x) * x)\n}\n";
    let graph = tfc::parse(text).expect("a graph");
    let mut sums: BTreeMap<&str, Vec<(String, Tensor)>> = BTreeMap::new();
    for threads in 1..=3 {
        let options = Options::new().threads(threads);
        let compiled = driver::compile(&graph, &graph.sources, &options, &mut Timings::default())
            .expect("a program");
        for cpu in cpus() {
            let module = Module::from_compiled_for(&compiled, &options, cpu).expect("a module");
            for (entry, shape) in [
                ("square", &[300, 512][..]),
                ("flat", &[70003]),
                ("run", &[300, 512]),
                ("long", &[70003]),
                ("few", &[7001, 10]),
                ("grid", &[301, 211]),
            ] {
                let count: usize = shape.iter().product();
                let values: Vec<f64> =
                    (0..count).map(|i| 1.0 / (i as f64 % 977.0 + 1.7) - 0.2).collect();
                let feeds =
                    [("x".to_string(), Tensor::from_f64(DType::F32, shape.to_vec(), values))];
                for fused in [false, true] {
                    let name = if fused { format!("{entry}2") } else { entry.to_string() };
                    let outputs = module.call(&name, &feeds[..]).expect("a call");
                    let at = format!("`{name}` with {threads} threads on {cpu:?}");
                    sums.entry(entry).or_default().push((at, outputs.tensor("s").expect("a sum")));
                }
            }
        }
    }
    for sums in sums.values() {
        let (first, want) = &sums[0];
        for (at, sum) in &sums[1..] {
            assert_eq!(sum.bytes(), want.bytes(), "{at}, not as {first}");
        }
    }
}

/// Of the kernels with a vector loop, nine tenths and more have a wide version. The
/// reasons of the others are printed.
#[test]
fn most_kernels_have_wide_versions() {
    let mut cases: Vec<Case> = ["ops", "run"].iter().flat_map(|d| corpus::cases(d)).collect();
    cases.retain(|c| c.directive().verb == "run");
    cases.extend(corpus::examples());
    let (mut all, mut wide) = (0, 0);
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for case in &cases {
        let files = Files::in_dir(case.path.parent().unwrap_or("".as_ref()));
        let Ok(parsed) = parse_as(&case.name, &case.text, &files) else { continue };
        let graph = parsed.graph;
        let mut timings = Timings::default();
        let compiled = driver::compile(&graph, &graph.sources, &Options::default(), &mut timings);
        let Ok(compiled) = compiled else { continue };
        for kernel in tfc_codegen::coverage(compiled.program()).unwrap() {
            for result in [kernel.avx2, kernel.avx512] {
                match result {
                    Err("no vector loop") => continue,
                    Err(why) => *reasons.entry(why.to_string()).or_default() += 1,
                    Ok(_) => wide += 1,
                }
                all += 1;
            }
        }
    }
    println!("{wide} of {all} kernels are wide; not: {reasons:?}");
    assert!(wide * 10 > all * 9, "{wide} of {all} kernels are wide; not: {reasons:?}");
}

/// A tensor whose size is known only when it runs is reduced by all threads, too.
#[test]
fn threads_share_reductions_of_any_size() {
    let text = "graph g\ndim N\n\
                entry sums(x: f32[N]) -> f32[] { return sum(x) }\n\
                entry most(x: f32[N, 10]) -> f32[] { return max(x) }\n\
                entry mean_square(x: f32[N]) -> f32[] { return mean(x * x) }\n";
    let module = tfc::compile(&tfc::parse(text).expect("a graph")).expect("a module");
    for entry in module.model().plan().entries.iter().filter(|e| e.is_for_users()) {
        let widest = entry.steps.iter().find_map(|step| match step {
            tfc_abi::plan::Step::Launch(l) if l.splits => Some(l.extent),
            _ => None,
        });
        let extent = &entry.exprs[widest.expect("a launch that threads share") as usize];
        assert_eq!(extent.eval(&[0]), Some(0), "{}", entry.name);
        assert!(extent.eval(&[1 << 20]).unwrap_or(0) >= 256, "{}", entry.name);
    }
    // Whole rows, none, and some that are left over.
    for n in [0, 1, 4095, 4096, 4097, 3 * 4096 + 5] {
        let values: Vec<f64> = (0..n).map(|i| (i % 7) as f64 - 2.0).collect();
        let feeds = [("x".to_string(), Tensor::from_f64(DType::F32, vec![n], values.clone()))];
        let got = module.call("sums", &feeds[..]).expect("a call").tensor("out").expect("a sum");
        assert_eq!(got.to_f64()[0], values.iter().sum::<f64>(), "{n}");
    }
    let feeds = [("x".to_string(), Tensor::from_f64(DType::F32, vec![0, 10], vec![]))];
    let most = module.call("most", &feeds[..]).expect("a call").tensor("out").expect("a result");
    assert_eq!(most.to_f64()[0], f64::NEG_INFINITY);
}
