//! Whole programs on the simulated GPU: every step of a plan that computes, from the
//! initial variables to a training step, against the interpreter of graphs.
//!
//! What a runtime with a driver would do is done here by the test: memory for each
//! buffer, launches in the order of the plan.

use std::collections::BTreeMap;
use std::path::Path;
use tfc::load::{Files, parse_as};
use tfc_abi::plan::{BufId, Entry, Func, Home, Step, Steps};
use tfc_codegen::ptx;
use tfc_ir::{Tensor, interp};
use tfc_kernel::Kernel;
use tfc_kernel::program::Program;
use tfc_ptx_sim::{Arg, Device, Launch, Module as Code};
use tfc_testdata::corpus::{self, Case};
use tfc_testdata::directive::Directive;
use tfc_testdata::ways::in_parallel;
use tfc_testdata::{compare, feeds};

/// Instructions of one launch, counted once for a warp: what takes more is left out.
const LIMIT: u64 = 3_000_000;

/// Why a program was not run to its end.
enum Stop {
    /// It has something that is not for a GPU, or is too large.
    LeftOut(String),
    Failed(String),
}

impl From<String> for Stop {
    fn from(message: String) -> Stop {
        if message.contains("limit of instructions") {
            return Stop::LeftOut("large".into());
        }
        Stop::Failed(message)
    }
}

impl From<tfc_ptx_sim::Error> for Stop {
    fn from(e: tfc_ptx_sim::Error) -> Stop {
        e.to_string().into()
    }
}

struct Machine<'a> {
    program: &'a Program,
    code: ptx::Compiled,
    module: Code,
    device: Device,
    vars: Vec<u64>,
    consts: Vec<u64>,
    dims: Vec<i64>,
}

/// Memory of this size, of which even nothing may be read a little.
fn alloc(device: &mut Device, bytes: usize) -> u64 {
    if bytes == 0 { device.upload(&[0; 16]) } else { device.alloc(bytes) }
}

fn upload(device: &mut Device, bytes: &[u8]) -> u64 {
    device.upload(if bytes.is_empty() { &[0; 16] } else { bytes })
}

/// One call of an entry.
struct Call<'a> {
    number: u32,
    entry: &'a Entry,
    exprs: Vec<i64>,
    bufs: Vec<u64>,
    stacks: BTreeMap<u32, Vec<Vec<u8>>>,
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program) -> Result<Machine<'a>, Stop> {
        let code = ptx::compile(program, 70).map_err(|e| e.to_string())?;
        let module = Code::parse(&code.text()).map_err(|e| e.to_string())?;
        let mut device = Device::new();
        let plan = &program.plan;
        let size = |shape: &[i64]| shape.iter().product::<i64>() as usize;
        let vars =
            plan.vars.iter().map(|v| alloc(&mut device, size(&v.shape) * v.dtype.size())).collect();
        let consts = plan
            .consts
            .iter()
            .map(|c| {
                let at = c.offset as usize;
                upload(&mut device, &program.consts[at..at + c.len as usize])
            })
            .collect();
        let mut machine =
            Machine { program, code, module, device, vars, consts, dims: vec![0; plan.dims.len()] };
        if let Some(init) = plan.init {
            machine.call(init, &[], &BTreeMap::new())?;
        }
        Ok(machine)
    }

    fn call(
        &mut self,
        number: u32,
        feeds: &[Vec<u8>],
        dims: &BTreeMap<String, i64>,
    ) -> Result<Vec<Vec<u8>>, Stop> {
        let program = self.program;
        let entry = &program.plan.entries[number as usize];
        self.dims =
            program.plan.dims.iter().map(|d| dims.get(&d.name).copied().unwrap_or(0)).collect();
        let exprs: Vec<i64> = entry.exprs.iter().map(|e| e.eval(&self.dims).unwrap_or(0)).collect();
        let before = self.device.live();
        let feeds: Vec<u64> = feeds.iter().map(|f| upload(&mut self.device, f)).collect();
        let slots: Vec<u64> = entry
            .slots
            .iter()
            .map(|s| alloc(&mut self.device, exprs[*s as usize] as usize))
            .collect();
        let lengths: Vec<usize> =
            entry.buffers.iter().map(|b| exprs[b.len as usize] as usize * b.dtype.size()).collect();
        let results: Vec<u64> = entry
            .results
            .iter()
            .map(|r| alloc(&mut self.device, lengths[r.buf as usize]))
            .collect();
        let bufs = entry
            .buffers
            .iter()
            .map(|b| match b.home {
                Home::Param(i) => feeds[i as usize],
                Home::Result(i) => results[i as usize],
                Home::Var(i) => self.vars[i as usize],
                Home::Const(i) => self.consts[i as usize],
                Home::Slot(i) => slots[i as usize],
            })
            .collect();
        let mut call = Call { number, entry, exprs, bufs, stacks: BTreeMap::new() };
        self.steps(&mut call, &entry.steps)?;
        let mut out = vec![];
        for (port, ptr) in entry.results.iter().zip(&results) {
            let at = call.bufs[port.buf as usize];
            // A result may be another buffer: a variable, or a parameter.
            let from = if matches!(entry.buffers[port.buf as usize].home, Home::Result(_)) {
                *ptr
            } else {
                at
            };
            out.push(self.device.read(from, lengths[port.buf as usize])?);
        }
        for ptr in feeds.into_iter().chain(slots).chain(results) {
            self.device.free(ptr)?;
        }
        assert_eq!(self.device.live(), before, "memory of the device is left over");
        Ok(out)
    }

    fn steps(&mut self, call: &mut Call, steps: &Steps) -> Result<(), Stop> {
        for step in steps.iter() {
            self.step(call, step)?;
        }
        Ok(())
    }

    fn bytes(&self, call: &Call, buf: BufId) -> Result<Vec<u8>, Stop> {
        let b = &call.entry.buffers[buf as usize];
        let len = call.exprs[b.len as usize] as usize * b.dtype.size();
        Ok(self.device.read(call.bufs[buf as usize], len)?)
    }

    fn step(&mut self, call: &mut Call, step: &Step) -> Result<(), Stop> {
        let left_out = |what: &str| Err(Stop::LeftOut(what.into()));
        match step {
            Step::Launch(l) => {
                let kernel = &self.program.kernels[l.kernel as usize];
                let dims: Vec<i64> = l.dims.iter().map(|d| call.exprs[*d as usize]).collect();
                let args: Vec<u64> = l.bufs.iter().map(|b| call.bufs[*b as usize]).collect();
                let launch = self.code.kernels[l.kernel as usize].launch.clone();
                let names: Vec<&str> = kernel.dims.iter().map(|d| &**d).collect();
                self.launch(None, &launch, &args, &names, &dims)?;
            }
            Step::MatMul(m) => self.contract(call, [m.a, m.b], m.c, m.epilogue.as_ref())?,
            Step::Conv(c) => self.contract(call, [c.lhs, c.rhs], c.out, c.epilogue.as_ref())?,
            Step::Copy { src, dst } => {
                let bytes = self.bytes(call, *src)?;
                self.device.write(call.bufs[*dst as usize], &bytes)?;
            }
            Step::Call(c) => match c.func {
                Func::Zero => {
                    let b = &call.entry.buffers[c.bufs[0] as usize];
                    let len = call.exprs[b.len as usize] as usize * b.dtype.size();
                    self.device.write(call.bufs[c.bufs[0] as usize], &vec![0; len])?;
                }
                func => {
                    let ty = |i: usize| call.entry.buffers[c.bufs[i] as usize].dtype;
                    let Some(kernel) = ptx::routine(func, ty(0), ty(1)) else {
                        return left_out("a routine of the CPU");
                    };
                    let args: Vec<u64> = c.bufs.iter().map(|b| call.bufs[*b as usize]).collect();
                    let dims: Vec<i64> = c.ints.iter().map(|d| call.exprs[*d as usize]).collect();
                    self.routine(&kernel, &args, &dims)?;
                }
            },
            Step::If { cond, then, otherwise } => {
                let yes = self.bytes(call, *cond)?[0] != 0;
                self.steps(call, if yes { then } else { otherwise })?;
            }
            Step::While { head, cond, body } => loop {
                self.steps(call, head)?;
                if self.bytes(call, *cond)?[0] == 0 {
                    break;
                }
                self.steps(call, body)?;
            },
            Step::Push { stack, src } => {
                let bytes = self.bytes(call, *src)?;
                call.stacks.entry(*stack).or_default().push(bytes);
            }
            Step::Pop { stack, dst, .. } => {
                let top = call.stacks.entry(*stack).or_default().pop();
                let bytes = top.ok_or("an empty stack".to_string())?;
                self.device.write(call.bufs[*dst as usize], &bytes)?;
            }
            // The CPU's: they look, and change nothing.
            Step::Print { .. }
            | Step::Assert { .. }
            | Step::CheckIndex(_)
            | Step::CheckFinite(_) => {}
            _ => return left_out("files or queues"),
        }
        Ok(())
    }

    fn contract(
        &mut self,
        call: &Call,
        factors: [BufId; 2],
        product: BufId,
        epilogue: Option<&tfc_abi::plan::Epilogue>,
    ) -> Result<(), Stop> {
        let code = &self.code.contractions[&(call.number, product)];
        let (entries, workspace) = (code.entries.clone(), code.workspace.clone());
        let of: &[BufId] = epilogue.map_or(std::slice::from_ref(&product), |e| &e.bufs);
        let mut args: Vec<u64> = factors.iter().chain(of).map(|b| call.bufs[*b as usize]).collect();
        let names: Vec<&str> = self.program.plan.dims.iter().map(|d| d.name.as_str()).collect();
        let dims = self.dims.clone();
        let size = |name: &str| names.iter().position(|n| *n == name).map(|i| dims[i]);
        let extra = match workspace {
            Some(bytes) => {
                let bytes = bytes.eval(&size).ok_or("a size without value".to_string())?;
                Some(alloc(&mut self.device, bytes as usize))
            }
            None => None,
        };
        args.extend(extra);
        for entry in &entries {
            self.launch(None, &entry.launch, &args, &names, &dims)?;
        }
        if let Some(extra) = extra {
            self.device.free(extra)?;
        }
        Ok(())
    }

    fn routine(&mut self, kernel: &Kernel, args: &[u64], dims: &[i64]) -> Result<(), Stop> {
        let (entry, _) = ptx::kernel(kernel).map_err(|e| e.to_string())?;
        let module = Code::parse(&ptx::module(std::slice::from_ref(&entry)))?;
        let names: Vec<&str> = kernel.dims.iter().map(|d| &**d).collect();
        self.launch(Some(&module), &entry.launch, args, &names, dims)
    }

    fn launch(
        &mut self,
        module: Option<&Code>,
        launch: &ptx::Launch,
        ptrs: &[u64],
        names: &[&str],
        dims: &[i64],
    ) -> Result<(), Stop> {
        let size = |name: &str| names.iter().position(|n| *n == name).map(|i| dims[i]);
        let mut grid = [0; 3];
        for (n, of) in grid.iter_mut().zip(&launch.grid) {
            let blocks = of.eval(&size).ok_or("a size without value".to_string())?;
            *n = u32::try_from(blocks).map_err(|e| e.to_string())?;
        }
        if grid.contains(&0) {
            return Ok(());
        }
        let args: Vec<Arg> =
            ptrs.iter().map(|p| Arg::Ptr(*p)).chain(dims.iter().map(|d| Arg::I64(*d))).collect();
        let block = [launch.block, 1, 1];
        let launch = Launch { entry: &launch.entry, grid, block, args: &args, limit: LIMIT };
        self.device.launch(module.unwrap_or(&self.module), &launch)?;
        Ok(())
    }
}

/// Runs every entry of a case both ways; gives how many calls were compared.
fn agree(case: &Case) -> Result<usize, Stop> {
    let directive = match case.text.starts_with("//!") {
        true => Directive::parse(&case.text)?,
        false => Directive::default(),
    };
    let files = Files::in_dir(case.path.parent().unwrap_or(Path::new("")));
    let name = case.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let graph = parse_as(&name, &case.text, &files).map_err(|e| e.to_string())?.graph;
    let options = tfc::Options::default();
    let mut timings = tfc::driver::Timings::default();
    let compiled = tfc::driver::compile(&graph, &graph.sources, &options, &mut timings)
        .map_err(|e| e.to_string())?;
    let program = compiled.program();
    if !program.plan.queues.is_empty() {
        return Err(Stop::LeftOut("queues".into()));
    }
    let reference = tfc_passes::pipeline::run_passes(&graph, &["differentiate"])
        .map_err(|diags| format!("{} findings", diags.len()))?;
    let initial = interp::State::new(&reference).map_err(|e| e.to_string())?;
    let mut calls = 0;
    for entry in graph.entries.iter().filter(|e| !e.runner) {
        let Some(number) = program.plan.entries.iter().position(|e| e.name == entry.name) else {
            continue;
        };
        for dims in directive.assignments(&feeds::dims(entry)) {
            let feeds = feeds::feeds(entry, &directive, &dims);
            let tensors: Vec<Tensor> = feeds.iter().map(|(_, t)| t.clone()).collect();
            let mut state = initial.clone();
            // What is refused is refused before it gets to a GPU.
            let Ok(want) = interp::run(&reference, &entry.name, &tensors, &mut state) else {
                continue;
            };
            let mut machine = Machine::new(program)?;
            let bytes: Vec<Vec<u8>> = feeds.iter().map(|(_, t)| t.bytes().to_vec()).collect();
            let context = |what: String| {
                Stop::from(format!("{}: `{}` with {dims:?}: {what}", case.name, entry.name))
            };
            let got = match machine.call(number as u32, &bytes, &dims) {
                Err(Stop::Failed(e)) => return Err(context(e)),
                other => other?,
            };
            for ((name, w), got) in entry.result_names.iter().zip(&want).zip(got) {
                let g = Tensor::from_bytes(w.dtype(), w.shape().to_vec(), got.into())
                    .ok_or("a tensor of another size".to_string())?;
                let tol = directive.tol.unwrap_or(compare::default_tolerance(w.dtype()));
                if let Some(d) = compare::difference(w, &g, tol) {
                    return Err(context(format!("result `{name}`: {d}")));
                }
            }
            for (var, ptr) in program.plan.vars.iter().zip(machine.vars.clone()) {
                let of = graph.vars.iter().find(|(_, v)| v.name == var.name);
                let Some(w) = of.and_then(|(id, _)| state.get(id)) else { continue };
                let bytes = machine.device.read(ptr, w.bytes().len())?;
                let g = Tensor::from_bytes(w.dtype(), w.shape().to_vec(), bytes.into())
                    .ok_or("a tensor of another size".to_string())?;
                let tol = directive.vars_tol.or(directive.tol);
                let tol = tol.unwrap_or(compare::default_tolerance(w.dtype()));
                // Adam's first step is the learning rate times the sign of the gradient: where
                // that is next to nothing the two may go different ways. Its moments are held
                // to the tolerance.
                let moment = format!("adam.{}.m", var.name);
                let slack = match directive.flags.get("adam").map(|lr| lr.parse::<f64>()) {
                    Some(Ok(lr)) if program.plan.vars.iter().any(|v| v.name == moment) => {
                        vec![2.0 * lr; w.to_f64().len()]
                    }
                    _ => vec![],
                };
                if let Some(d) = compare::difference_with(&w, &g, tol, &slack) {
                    return Err(context(format!("variable `{}`: {d}", var.name)));
                }
            }
            calls += 1;
        }
    }
    Ok(calls)
}

fn all_agree(cases: &[Case], least: usize) {
    let counts = std::sync::Mutex::new((0, BTreeMap::<String, usize>::new()));
    let failures = in_parallel(cases, |case| match agree(case) {
        Ok(calls) => {
            counts.lock().expect("no panics").0 += calls;
            Ok(())
        }
        Err(Stop::LeftOut(why)) => {
            *counts.lock().expect("no panics").1.entry(why).or_default() += 1;
            Ok(())
        }
        Err(Stop::Failed(e)) => Err(format!("{}: {e}", case.name)),
    });
    let (calls, left_out) = counts.into_inner().expect("no panics");
    println!("{calls} calls agree; left out: {left_out:?}");
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert!(calls >= least, "only {calls} calls; left out: {left_out:?}");
}

#[test]
fn ops() {
    let cases: Vec<Case> =
        corpus::cases("ops").into_iter().filter(|c| c.directive().verb == "run").collect();
    all_agree(&cases, 300);
}

#[test]
fn programs() {
    let cases: Vec<Case> =
        corpus::cases("run").into_iter().filter(|c| c.directive().verb == "run").collect();
    all_agree(&cases, 20);
}

/// Inference and training steps of the examples, with few rows.
#[test]
fn examples() {
    let variants = [
        ("mlp", "B = 2,9; vars_tol = 1e-4; adam = 1e-3"),
        ("convnet", "B = 2"),
        ("norms", "B = 3; T = 33,1"),
        ("rnn", "B = 2; T = 4; vars_tol = 1e-4"),
    ];
    let examples = corpus::examples();
    let cases: Vec<Case> = variants
        .iter()
        .map(|(name, options)| {
            let case = examples.iter().find(|c| c.name == *name).expect("an example of this name");
            let text = format!("//! run; tol = 1e-5; {options}\n{}", case.text);
            Case { text, ..case.clone() }
        })
        .collect();
    all_agree(&cases, 8);
}

/// A transformer's inference and training step, smaller than the one it is the model of.
#[test]
fn a_small_transformer() {
    let path = corpus::root().join("examples/models/gpt.graph");
    let mut text = std::fs::read_to_string(&path).expect("the model");
    for (name, value) in
        [("TOKENS", 50), ("CONTEXT", 6), ("WIDTH", 16), ("HEADS", 2), ("LAYERS", 2)]
    {
        let line = text.lines().find(|l| l.starts_with(&format!("let {name} ="))).expect("a let");
        text = text.replace(&line.to_string(), &format!("let {name} = {value}"));
    }
    text = text.replace("optim.adamw(lr: LR)", "optim.sgd(lr: 0.1)");
    assert!(text.contains("optim.sgd"));
    let head = "//! run; tol = 1e-4; B = 2; tokens = int 0..50; text = int 0..50";
    let case = Case { path, name: "gpt".into(), text: format!("{head}\n{text}") };
    all_agree(&[case], 2);
}
