//! The three ways of running a graph: interpreted, compiled in memory, and as an
//! executable.

use crate::corpus::Case;
use crate::directive::Directive;
use crate::{compare, feeds};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use tfc::Module;
use tfc::emit::{Artifact, Emitter};
use tfc::link::LinkOptions;
use tfc::load::{Files, parse_as};
use tfc_ir::{Graph, Tensor, interp};
use tfc_runtime::TensorBuf;

/// Results and final variables of one call.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub results: Vec<(String, Tensor)>,
    pub vars: Vec<(String, Tensor)>,
}

/// A graph ready to run in every way.
pub struct Subject {
    pub name: String,
    pub directive: Directive,
    pub graph: Graph,
    /// The graph with its gradients written out: the interpreter runs that.
    reference: Graph,
    state: interp::State,
    module: Module,
    exe: PathBuf,
    dir: PathBuf,
}

impl Subject {
    /// Compiles a case; its executable and files go to `dir`.
    pub fn new(case: &Case, dir: &Path) -> Result<Subject, String> {
        let directive = match case.text.starts_with("//!") {
            true => Directive::parse(&case.text)?,
            false => Directive::default(),
        };
        let files = Files::in_dir(case.path.parent().unwrap_or(Path::new("")));
        let name = case.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let graph = parse_as(&name, &case.text, &files).map_err(|e| e.to_string())?.graph;
        Subject::from_graph(&case.name, directive, graph, dir)
    }

    pub fn from_graph(
        name: &str,
        directive: Directive,
        graph: Graph,
        dir: &Path,
    ) -> Result<Subject, String> {
        let options = tfc::Options::default();
        let mut timings = tfc::driver::Timings::default();
        let compiled = tfc::driver::compile(&graph, &graph.sources, &options, &mut timings)
            .map_err(|e| e.to_string())?;
        let module = Module::from_compiled(&compiled, &options).map_err(|e| e.to_string())?;
        module.model().set_directory(dir);
        let exe = dir.join(name);
        let emitter = Emitter {
            program: compiled.program(),
            graph: compiled.graph(),
            link: LinkOptions { symbols: true, ..LinkOptions::default() },
            prefix: "graph",
            cpu: tfc_codegen::Cpu::Portable,
            gpus: None,
        };
        emitter.write(Artifact::Executable, &exe, &mut timings).map_err(|e| e.to_string())?;
        let reference =
            tfc_passes::pipeline::run_passes(&graph, &["differentiate"]).map_err(|diags| {
                diags
                    .iter()
                    .map(|d| format!("{}: {}", d.code, d.message))
                    .collect::<Vec<_>>()
                    .join("\n")
            })?;
        let state = interp::State::new(&reference).map_err(|e| e.to_string())?;
        let dir = dir.to_path_buf();
        Ok(Subject { name: name.to_string(), directive, graph, reference, state, module, exe, dir })
    }

    /// Runs every entry with every assignment of dims in all ways; the first
    /// disagreement is the error.
    pub fn agree(&self) -> Result<usize, String> {
        let mut calls = 0;
        for entry in self.graph.entries.iter().filter(|e| !e.runner) {
            let assignments = self.directive.assignments(&feeds::dims(entry));
            for (i, dims) in assignments.iter().enumerate() {
                let feeds = feeds::feeds(entry, &self.directive, dims);
                let want = self.interpret(&entry.name, &feeds);
                let context = |way: &str, what: &str| {
                    format!("{}: `{}` with {dims:?}, {way}: {what}", self.name, entry.name)
                };
                let jit = self.jit(&entry.name, &feeds);
                self.judge(&want, &jit).map_err(|e| context("in memory", &e))?;
                // The same kernels and the same runtime: where there are many
                // sizes, a process for the first and the last is enough.
                if i == 0 || i + 1 == assignments.len() || assignments.len() <= 3 {
                    let aot = self.aot(&entry.name, &feeds);
                    self.judge(&want, &aot).map_err(|e| context("executable", &e))?;
                }
                calls += 1;
            }
        }
        Ok(calls)
    }

    /// Variables that have a value, queues left out.
    fn tensors(&self) -> impl Iterator<Item = &tfc_ir::graph::Var> {
        self.graph.vars.values().filter(|v| v.symbol.is_variable())
    }

    fn judge(
        &self,
        want: &Result<Outcome, String>,
        got: &Result<Outcome, String>,
    ) -> Result<(), String> {
        let (want, got) = match (want, got) {
            (Ok(want), Ok(got)) => (want, got),
            // Both refuse: the codes must agree.
            (Err(w), Err(g)) if code(w) == code(g) => return Ok(()),
            (Ok(_), Err(g)) => return Err(format!("failed: {g}")),
            (Err(w), Ok(_)) => return Err(format!("should fail: {w}")),
            (Err(w), Err(g)) => return Err(format!("should fail with {w}, not {g}")),
        };
        let want_vars = &want.vars;
        let pairs = [("result", &want.results, &got.results), ("variable", &want.vars, &got.vars)];
        for (kind, want, got) in pairs {
            if want.len() != got.len() {
                return Err(format!("{} {kind}s, not {}", got.len(), want.len()));
            }
            for ((name, w), (_, g)) in want.iter().zip(got) {
                let given = match kind {
                    "variable" => self.directive.vars_tol.or(self.directive.tol),
                    _ => self.directive.tol,
                };
                let tol = given.unwrap_or_else(|| compare::default_tolerance(w.dtype()));
                let slack = match kind {
                    "variable" => self.adam_slack(name, want_vars, tol),
                    _ => vec![],
                };
                if let Some(difference) = compare::difference_with(w, g, tol, &slack) {
                    return Err(format!("{kind} `{name}`: {difference}"));
                }
            }
        }
        Ok(())
    }

    /// How far each element of a variable may be off after Adam's first step, given
    /// that the gradient is right to `tol`.
    ///
    /// The step is `lr * g / (|g| + eps)`. Where `g` is off by `d`, the quotient is
    /// off by at most `2 d / |g|`, and never by more than 2. `d` is what the moment
    /// `m = (1 - beta) g` is allowed, and is held to: `tol` of the gradient's
    /// typical size.
    fn adam_slack(&self, var: &str, vars: &[(String, Tensor)], tol: f64) -> Vec<f64> {
        let Some(lr) = self.directive.flags.get("adam").and_then(|lr| lr.parse::<f64>().ok())
        else {
            return vec![];
        };
        let moment = format!("adam.{var}.m");
        let Some((_, m)) = vars.iter().find(|(name, _)| *name == moment) else { return vec![] };
        let m = m.to_f64();
        let typical = m.iter().map(|v| v.abs()).sum::<f64>() / m.len().max(1) as f64;
        let slack = |m: &f64| lr * (2.0 * tol * typical.max(m.abs()) / m.abs()).min(2.0);
        m.iter().map(slack).collect()
    }

    pub fn interpret(&self, entry: &str, feeds: &[(String, Tensor)]) -> Result<Outcome, String> {
        let mut state = self.state.clone();
        let tensors: Vec<Tensor> = feeds.iter().map(|(_, t)| t.clone()).collect();
        let results =
            interp::run(&self.reference, entry, &tensors, &mut state).map_err(|e| e.to_string())?;
        let func = self.graph.entries.iter().find(|e| e.name == entry);
        let names = func.map(|f| f.result_names.clone()).unwrap_or_default();
        let vars =
            self.graph.vars.iter().filter_map(|(id, v)| Some((v.name.clone(), state.get(id)?)));
        Ok(Outcome { results: names.into_iter().zip(results).collect(), vars: vars.collect() })
    }

    pub fn jit(&self, entry: &str, feeds: &[(String, Tensor)]) -> Result<Outcome, String> {
        // Every call starts from the initial variables.
        self.module.model().init().map_err(|e| e.to_string())?;
        let outputs = self.module.call(entry, feeds).map_err(|e| e.to_string())?;
        let names: Vec<String> = outputs.names().map(str::to_string).collect();
        let results = names
            .into_iter()
            .map(|n| outputs.tensor(&n).map(|t| (n, t)).map_err(|e| e.to_string()));
        let vars = self.tensors().map(|v| {
            let value = self.module.var_tensor(&v.name).map_err(|e| e.to_string())?;
            Ok((v.name.clone(), value))
        });
        Ok(Outcome {
            results: results.collect::<Result<_, String>>()?,
            vars: vars.collect::<Result<_, String>>()?,
        })
    }

    pub fn aot(&self, entry: &str, feeds: &[(String, Tensor)]) -> Result<Outcome, String> {
        let file = |name: &str| self.dir.join(format!("{}-{entry}-{name}", self.name));
        let mut command = Command::new(&self.exe);
        command.arg(entry).current_dir(&self.dir);
        for (name, tensor) in feeds {
            let path = file(&format!("in-{name}.npy"));
            write_npy(&path, tensor)?;
            command.arg("--feed").arg(format!("{name}={}", path.display()));
        }
        let func = self.graph.entries.iter().find(|e| e.name == entry).ok_or("no such entry")?;
        for name in &func.result_names {
            let path = file(&format!("out-{name}.npy"));
            command.arg("--out").arg(format!("{name}={}", path.display()));
        }
        let state = file("state.safetensors");
        // A file left by an earlier call would be loaded.
        let _ = std::fs::remove_file(&state);
        // An entry that changes nothing writes no file: its variables are the
        // initial ones, and what it does to them is seen in memory.
        let plan = self.module.model().plan();
        let changes = plan.entries.iter().any(|e| e.name == entry && !e.writes.is_empty());
        if changes {
            command.arg("--state").arg(&state);
        }
        let output = command.output().map_err(|e| format!("cannot start: {e}"))?;
        if !output.status.success() {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{} ({})", text.trim(), output.status));
        }
        let mut results = vec![];
        for name in &func.result_names {
            let path = file(&format!("out-{name}.npy"));
            results.push((name.clone(), read(&path, None)?));
        }
        let mut vars = vec![];
        for (id, var) in self.graph.vars.iter().filter(|(_, v)| v.symbol.is_variable()) {
            let value = match changes {
                true => read(&state, Some(&var.name))?,
                false => self.state.get(id).ok_or("a variable without a value")?,
            };
            vars.push((var.name.clone(), value));
        }
        Ok(Outcome { results, vars })
    }
}

/// The first `E....` in a message.
fn code(message: &str) -> Option<&str> {
    let at = message.match_indices('E').find(|(i, _)| {
        message.get(i + 1..i + 5).is_some_and(|d| d.bytes().all(|b| b.is_ascii_digit()))
    });
    at.and_then(|(i, _)| message.get(i..i + 5))
}

fn write_npy(path: &Path, tensor: &Tensor) -> Result<(), String> {
    let buf = TensorBuf::from_bytes(tensor.dtype(), tensor.shape(), tensor.bytes())
        .ok_or("a tensor of the wrong size")?;
    tfc_runtime::io::write_tensors(path, &[("x", &buf)]).map_err(|e| e.to_string())
}

fn read(path: &Path, key: Option<&str>) -> Result<Tensor, String> {
    let buf = tfc_runtime::io::tensor_file(path, key, key.unwrap_or(""), None)
        .map_err(|e| e.to_string())?;
    Tensor::from_bytes(buf.dtype, buf.shape.clone(), buf.bytes().into())
        .ok_or_else(|| "a tensor of the wrong size".to_string())
}

/// A directory for executables and their files: in memory where there is such a
/// place, since programs flush what they write.
pub fn scratch() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let dir = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
    dir.or_else(|_| tempfile::tempdir()).expect("a directory for temporary files")
}

/// Runs `check` on every item, on as many threads as the machine has, and
/// returns all failures in order.
pub fn in_parallel<T: Sync>(
    items: &[T],
    check: impl Fn(&T) -> Result<(), String> + Sync,
) -> Vec<String> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let failures = std::sync::Mutex::new(BTreeMap::new());
    let threads = std::thread::available_parallelism().map_or(2, |n| n.get());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(item) = items.get(i) else { return };
                    if let Err(e) = check(item) {
                        failures.lock().expect("no panics inside").insert(i, e);
                    }
                }
            });
        }
    });
    failures.into_inner().expect("no panics inside").into_values().collect()
}
