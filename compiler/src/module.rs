//! A graph compiled in memory, ready to call.

use crate::driver::{self, Compiled, Device, Options};
use crate::error::{Error, Result};
use crate::value::feed::Given;
use crate::value::outputs::Names;
use crate::value::room::Info;
use crate::value::{
    Arrays, Element, Feed, Feeds, Outputs, Results, Value, array_of, rust_type, tensor_of, tidy,
};
use ndarray::ArrayD;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tfc_codegen::{CodegenError, JitProgram};
use tfc_ir::diag::Diag;
use tfc_ir::program::Program;
use tfc_ir::{DType, Graph, Tensor};
use tfc_runtime::checkpoint::{self, Matched, Rename, Save};
use tfc_runtime::{CallOptions, ErrorCode, FeedView, Model, Prepared, ResultView};

/// Compiled code with its variables. Clones share both; calls may come from any
/// number of threads (those that write variables take turns).
///
/// ```
/// let graph = tfc::parse(
///     "graph counter\n\
///      var n: i32[] = 0\n\
///      entry add(k: i32[]) -> (now: i32[]) {\n\
///        n += k\n\
///        return n\n\
///      }",
/// )?;
/// let counter = tfc::compile(&graph)?;
/// counter.call("add", (2i32,))?;
/// assert_eq!(counter.call("add", (3i32,))?.scalar::<i32>("now")?, 5);
/// counter.set_var("n", 40i32)?;
/// assert_eq!(counter.var::<i32>("n")?.first(), Some(&40));
/// # Ok::<(), tfc::Error>(())
/// ```
#[derive(Clone)]
pub struct Module {
    pub(crate) model: Arc<Model>,
    pub(crate) code: Arc<JitProgram>,
    /// By entry of the plan.
    names: Arc<[Arc<Names>]>,
}

/// The checkpoint a module was restored from.
#[derive(Clone, Debug, PartialEq)]
pub struct Restored {
    /// Of the run that saved it.
    pub step: u64,
    /// Where the run was in its data.
    pub positions: BTreeMap<String, i64>,
    /// The manifest.
    pub path: PathBuf,
    /// What was wrong with newer checkpoints.
    pub skipped: Vec<String>,
}

/// One entry of a module whose results have known types.
#[derive(Clone)]
pub struct Entry<R> {
    module: Module,
    index: usize,
    results: PhantomData<fn() -> R>,
}

/// Compiles a graph in memory with default options.
pub fn compile(graph: &Graph) -> Result<Module> {
    Module::from_graph(graph, &Options::default())
}

/// Compiles a graph in memory.
///
/// ```
/// use tfc::{Math, Options};
/// let graph = tfc::parse("graph g\nentry f(x: f32[2]) -> (y: f32[2]) { return x + 1.0 }")?;
/// let module = tfc::compile_with(&graph, &Options::new().math(Math::Strict).threads(1))?;
/// let y: Vec<f32> = module.call("f", (&[1.0f32, 2.0],))?.into_arrays()?;
/// assert_eq!(y, [2.0, 3.0]);
/// # Ok::<(), tfc::Error>(())
/// ```
pub fn compile_with(graph: &Graph, options: &Options) -> Result<Module> {
    Module::from_graph(graph, options)
}

impl Module {
    /// As [`compile_with`].
    pub fn from_graph(graph: &Graph, options: &Options) -> Result<Module> {
        let mut timings = driver::Timings::default();
        let compiled = driver::compile(graph, &graph.sources, options, &mut timings)?;
        Module::from_compiled(&compiled, options)
    }

    /// Generates code for a lowered program, and initialises its variables.
    pub fn from_compiled(compiled: &Compiled, options: &Options) -> Result<Module> {
        Module::from_compiled_for(compiled, options, tfc_codegen::Cpu::Native)
    }

    /// As [`Module::from_compiled`], with the best version an object for `cpu` would
    /// have, which this machine must be able to run.
    #[doc(hidden)]
    pub fn from_compiled_for(
        compiled: &Compiled,
        options: &Options,
        cpu: tfc_codegen::Cpu,
    ) -> Result<Module> {
        let code = tfc_codegen::jit_for(&compiled.program, cpu);
        let mut code = code.map_err(|e| Error::bug(e.to_string()))?;
        if options.device != Device::Cpu {
            add_gpu(&mut code, &compiled.program).map_err(|e| Error::bug(e.to_string()))?;
        }
        // SAFETY: the code was generated from the plan in it: nobody outside this
        // crate can put a `Compiled` together.
        unsafe { Module::from_code(code, options) }
    }

    /// # Safety
    /// The code does what the plan in it says.
    pub(crate) unsafe fn from_code(code: JitProgram, options: &Options) -> Result<Module> {
        let code = Arc::new(code);
        let runtime = tfc_runtime::ModelOptions {
            pool: options.threads.map(|n| Arc::new(tfc_runtime::Pool::new(n.max(1)))),
            print: options.print.clone(),
            sandbox: match &options.sandbox {
                Some(dir) => tfc_runtime::Sandbox::below(dir)?,
                None => tfc_runtime::Sandbox::default(),
            },
            keep: Some(Box::new(code.clone())),
            bare: options.bare,
            device: match options.device {
                Device::Cpu => tfc_runtime::Choice::Cpu,
                Device::Cuda(number) => tfc_runtime::Choice::Cuda(number),
            },
            ..tfc_runtime::ModelOptions::default()
        };
        // SAFETY: the descriptor points into `code`, which the model keeps; the
        // rest is the caller's promise.
        let model = unsafe { Model::load_with(&descriptor(&code), runtime) }?;
        let names = model.plan().entries.iter().map(|e| {
            let results = e.results.iter().map(|p| p.name.clone()).collect();
            Arc::new(Names { entry: e.name.clone(), results })
        });
        Ok(Module { names: names.collect(), model: Arc::new(model), code })
    }

    /// Why the module runs on the CPU although its graph places parts of it on GPUs; none
    /// if it does not, or if they are there.
    ///
    /// ```
    /// let text = "graph g\nentry f(x: f32[]) -> (y: f32[]) {\n  y = x + 1.0 on \"/gpu:1\"\n  return y\n}";
    /// let module = tfc::compile(&tfc::parse(text)?)?;
    /// let why = module.instead().expect("nobody asked for a GPU");
    /// assert_eq!(why, "it was told to; parts of the graph are placed on `/gpu:1`");
    /// # Ok::<(), tfc::Error>(())
    /// ```
    pub fn instead(&self) -> Option<String> {
        self.model.instead_text()
    }

    /// The runtime's view of the module.
    #[doc(hidden)]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// Frees memory that calls have left for later ones.
    ///
    /// Without it, working memory that is far too large for the calls of late is
    /// freed by itself: after 32 calls in a row that needed less than a quarter.
    pub fn trim(&self) {
        self.model.trim();
    }

    /// Bytes that calls have left for later ones.
    pub fn working_memory(&self) -> usize {
        self.model.working_memory()
    }

    /// Gives every variable its initial value again, empties queues and takes
    /// readers back to their first record.
    pub fn reset(&self) -> Result<()> {
        Ok(self.model.init()?)
    }

    /// Says where files that the graph saves and restores lie; the working
    /// directory by default.
    pub fn set_directory(&self, dir: impl AsRef<Path>) {
        self.model.set_directory(dir.as_ref());
    }

    /// Says whether losses that are minimized, and variables that are saved, may be
    /// NaN or infinite; by default they are errors E0533 and E0534.
    pub fn allow_nan(&self, allowed: bool) {
        self.model.allow_nan(allowed);
    }

    /// From now on makes calls together with the other processes (or threads) of a
    /// group: entries with `minimize` or `all_reduce` combine values over all of them.
    /// The module must have been compiled with [`Options::replicas`](crate::Options::replicas),
    /// and all members call the same entries in the same order.
    pub fn join(&self, group: std::sync::Arc<crate::net::Group>) {
        self.model.join(group);
    }

    /// From now on gradients that are on GPUs go from GPU to GPU, by NCCL, where all members
    /// of the group that the module has [joined](Module::join) can do that: one GPU in each,
    /// none of them twice, and the library. All members call this at the same time, before
    /// their first step; it gives what came of it. After
    /// [`Group::regroup`](crate::net::Group::regroup) gradients go through the CPU until all
    /// members of the new group have called it again.
    pub fn connect_gpus(&self) -> Result<crate::net::direct::Way> {
        Ok(self.model.connect_devices()?)
    }

    /// Makes this process (or thread) the chief of the tasks that the module was cut for
    /// ([`Options::cluster`](crate::Options::cluster)): its calls are made by all of
    /// them, its variables are where the graph places them. The others [`serve`](Module::serve).
    pub fn lead(&self, group: std::sync::Arc<crate::net::Group>) -> Result<()> {
        Ok(self.model.lead(group)?)
    }

    /// Does this task's part in the calls of the chief, until that calls
    /// [`dismiss`](Module::dismiss).
    pub fn serve(&self, group: std::sync::Arc<crate::net::Group>) -> Result<()> {
        Ok(self.model.serve(group)?)
    }

    /// Lets the other tasks end.
    pub fn dismiss(&self) -> Result<()> {
        Ok(self.model.dismiss()?)
    }

    /// Names of the entries.
    pub fn entries(&self) -> Vec<String> {
        self.model.entries().map(|(_, e)| e.name.clone()).collect()
    }

    /// Calls an entry. Feeds are a tuple in the order of the parameters, or a
    /// list of `(name, Feed)`.
    pub fn call<'a>(&self, entry: &str, feeds: impl Feeds<'a>) -> Result<Outputs> {
        self.call_with(entry, feeds, &CallOptions::new())
    }

    /// As [`Module::call`], with a deadline, a token that cancels it, or leave to
    /// read variables that another call is writing as they were before it.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tfc::{CallOptions, ErrorCode};
    /// let graph = tfc::parse(
    ///     "graph waiting\n\
    ///      queue q: fifo(f32[], capacity: 4)\n\
    ///      entry next() -> (x: f32[]) { return dequeue(q) }",
    /// )?;
    /// let module = tfc::compile(&graph)?;
    /// let soon = CallOptions::new().timeout(Duration::from_millis(5));
    /// let err = module.call_with("next", (), &soon).unwrap_err();
    /// assert_eq!(err.code(), ErrorCode::DEADLINE);
    /// # Ok::<(), tfc::Error>(())
    /// ```
    ///
    /// A call that was stopped has its variables as they were before it, or, if it
    /// has waited for a queue, as it left them when it began the last wait. What
    /// it took from queues stays taken.
    pub fn call_with<'a>(
        &self,
        entry: &str,
        feeds: impl Feeds<'a>,
        options: &CallOptions,
    ) -> Result<Outputs> {
        let index = self.model.entry(entry)?;
        self.call_index(index, feeds, options)
    }

    /// Calls an entry with the results in memory of the caller's: slices, vectors,
    /// arrays or numbers, in the order of the results.
    ///
    /// ```
    /// let graph = tfc::parse(
    ///     "graph g\nentry f(x: f32[3]) -> (y: f32[3], sum: f32[]) { return x * 2.0, sum(x) }",
    /// )?;
    /// let module = tfc::compile(&graph)?;
    /// let (mut y, mut sum) = ([0.0f32; 3], 0.0f32);
    /// module.call_into("f", (&[1.0f32, 2.0, 3.0],), (&mut y, &mut sum))?;
    /// assert_eq!((y, sum), ([2.0, 4.0, 6.0], 6.0));
    /// # Ok::<(), tfc::Error>(())
    /// ```
    pub fn call_into<'a, 'r>(
        &self,
        entry: &str,
        feeds: impl Feeds<'a>,
        results: impl Results<'r>,
    ) -> Result<()> {
        let index = self.model.entry(entry)?;
        self.call_index_into(index, feeds, results, &CallOptions::new())
    }

    /// An entry whose results are arrays of types known here; checked now rather
    /// than at each call.
    ///
    /// ```
    /// use ndarray::{ArrayD, array};
    /// let graph = tfc::parse("graph g\ndim N\nentry f(x: f32[N]) -> (y: f32[N]) { return x + 1.0 }")?;
    /// let module = tfc::compile(&graph)?;
    /// let f = module.entry::<ArrayD<f32>>("f")?;
    /// assert_eq!(f.call((&array![1.0f32],))?, array![2.0f32].into_dyn());
    /// assert!(module.entry::<ArrayD<i64>>("f").is_err());
    /// # Ok::<(), tfc::Error>(())
    /// ```
    pub fn entry<R: Arrays>(&self, name: &str) -> Result<Entry<R>> {
        let index = self.model.entry(name)?;
        let want = R::types();
        let have = match self.model.plan().entries.get(index) {
            Some(entry) => &entry.results[..],
            None => &[],
        };
        let fits =
            |(port, (dtype, rank)): (&tfc_abi::plan::Port, &(Option<DType>, Option<usize>))| {
                dtype.is_none_or(|d| d == port.dtype) && rank.is_none_or(|r| r == port.shape.len())
            };
        let all = want.len() == have.len() && have.iter().zip(&want).all(fits);
        if !all && !want.is_empty() {
            let have: Vec<&str> = have.iter().map(|p| p.text.as_str()).collect();
            let want: Vec<String> = want
                .iter()
                .map(|(dtype, rank)| {
                    let dtype = dtype.map_or("any".to_string(), |d| d.to_string());
                    rank.map_or(dtype.clone(), |r| format!("{dtype} with {r} axes"))
                })
                .collect();
            let diag = Diag::error("E0503", format!("the results of `{name}` have other types"))
                .note(format!("they are ({}), not ({})", have.join(", "), want.join(", ")));
            return Err(diag.into());
        }
        Ok(Entry { module: self.clone(), index, results: PhantomData })
    }

    fn call_index<'a>(
        &self,
        index: usize,
        feeds: impl Feeds<'a>,
        options: &CallOptions,
    ) -> Result<Outputs> {
        self.with_prepared(index, feeds, |prepared| {
            let mut values = prepared
                .results()
                .iter()
                .map(|p| Value::zeros(p.dtype, &prepared.shape(p)))
                .collect::<Result<Vec<Value>>>()?;
            let mut views: Vec<ResultView<'_>> =
                values.iter_mut().map(|v| ResultView { data: v.bytes_mut() }).collect();
            prepared.run(&mut views, options)?;
            values.iter_mut().for_each(|v| tidy(v.dtype(), v.bytes_mut()));
            Ok(Outputs { names: self.names[index].clone(), values })
        })
    }

    /// The worker's part of an entry that is divided: the entry's own results, and all
    /// of them as servers take them. None if a server was lost.
    pub(crate) fn call_part<'a>(
        &self,
        client: &mut tfc_runtime::net::ps::client::Client,
        feeds: impl Feeds<'a>,
    ) -> Result<Option<(Outputs, Vec<tfc_runtime::TensorBuf>)>> {
        let part = client.layout().gradients;
        let all = self.with_views(part, feeds, |views| {
            client.compute(&self.model, views, &CallOptions::new()).map_err(in_rust)
        })?;
        let Some(all) = all else { return Ok(None) };
        let mut values = vec![];
        for t in all.iter().take(client.layout().results) {
            let mut value = Value::zeros(t.dtype, &t.shape)?;
            value.bytes_mut().copy_from_slice(t.bytes());
            tidy(value.dtype(), value.bytes_mut());
            values.push(value);
        }
        let whole = self.model.plan().entries[part].replica_of;
        let names = self.names[whole.map_or(part, |e| e as usize)].clone();
        Ok(Some((Outputs { names, values }, all)))
    }

    fn call_index_into<'a, 'r>(
        &self,
        index: usize,
        feeds: impl Feeds<'a>,
        results: impl Results<'r>,
        options: &CallOptions,
    ) -> Result<()> {
        results.lend(|infos, views| {
            self.with_prepared(index, feeds, |prepared| {
                let ports = prepared.results();
                if let Some((port, info)) =
                    ports.iter().zip(infos).find(|(port, info)| !has_room(&prepared, port, info))
                {
                    return Err(no_room(&prepared, port, info));
                }
                prepared.run(views, options)?;
                let bools = views.iter_mut().zip(infos);
                bools.for_each(|(view, info)| tidy(info.dtype, view.data));
                Ok(())
            })
        })
    }

    /// Looks at the feeds and hands the call to `run`.
    fn with_prepared<'a, R>(
        &self,
        index: usize,
        feeds: impl Feeds<'a>,
        run: impl FnOnce(Prepared<'_>) -> Result<R>,
    ) -> Result<R> {
        self.with_views(index, feeds, |views| {
            run(self.model.prepare(index, views).map_err(in_rust)?)
        })
    }

    /// Feeds in the order of the parameters.
    fn with_views<'a, R>(
        &self,
        index: usize,
        feeds: impl Feeds<'a>,
        run: impl FnOnce(&[FeedView<'_>]) -> Result<R>,
    ) -> Result<R> {
        feeds.give(|given| {
            let ordered;
            let views = match given {
                Given::Positional(views) => views,
                Given::Named(named) => {
                    ordered = self.by_name(index, named)?;
                    &ordered[..]
                }
            };
            run(views)
        })
    }

    /// Named feeds in the order of the parameters.
    fn by_name<'g>(
        &self,
        index: usize,
        named: &[(&'g str, FeedView<'g>)],
    ) -> Result<Vec<FeedView<'g>>> {
        let Some(entry) = self.model.plan().entries.get(index) else {
            return Err(Error::bug("an entry vanished"));
        };
        let known = || entry.params.iter().map(|p| p.name.as_str());
        for (i, (name, _)) in named.iter().enumerate() {
            if named[..i].iter().any(|(earlier, _)| earlier == name) {
                let message = format!("`{name}` is fed twice in a call of `{}`", entry.name);
                return Err(Diag::error("E0520", message).into());
            }
            if !known().any(|k| k == *name) {
                let message = format!("`{}` has no parameter `{name}`", entry.name);
                let diag = Diag::error("E0502", message);
                return Err(match crate::nearest(name, known()) {
                    Some(near) => diag.help(format!("did you mean `{near}`?")),
                    None => diag.note(format!("it has {}", crate::names(known()))),
                }
                .into());
            }
        }
        let mut out = vec![];
        for param in &entry.params {
            match named.iter().find(|(name, _)| *name == param.name) {
                Some((_, view)) => out.push(*view),
                None => {
                    let message = format!("`{}` needs a feed for `{}`", entry.name, param.name);
                    let diag = Diag::error("E0501", message)
                        .note(format!("`{}` is {}", param.name, param.text));
                    return Err(diag.into());
                }
            }
        }
        Ok(out)
    }

    /// A copy of a variable.
    pub fn var<T: Element>(&self, name: &str) -> Result<ArrayD<T>> {
        let buf = self.model.read_var(self.find_var(name)?)?;
        if buf.dtype != T::DTYPE {
            let message = format!("`{name}` is {}, not {}", buf.dtype, T::DTYPE);
            return Err(Diag::error("E0503", message).into());
        }
        Ok(array_of(&buf))
    }

    /// A copy of a variable, whatever its element type.
    pub fn var_tensor(&self, name: &str) -> Result<Tensor> {
        Ok(tensor_of(&self.model.read_var(self.find_var(name)?)?))
    }

    /// Overwrites a variable.
    pub fn set_var<'a>(&self, name: &str, value: impl Into<Feed<'a>>) -> Result<()> {
        let feed = value.into();
        Ok(self.model.write_var(self.find_var(name)?, feed.view())?)
    }

    /// Saves all variables as the checkpoint of a step, and removes older ones
    /// beyond the five newest. Returns the path of its manifest.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let dir = dir.path();
    /// let graph = tfc::parse(
    ///     "graph counter\n\
    ///      var n: i32[] = 0\n\
    ///      entry add(k: i32[]) -> (now: i32[]) {\n n += k\n return n\n }",
    /// )?;
    /// let counter = tfc::compile(&graph)?;
    /// counter.call("add", (2i32,))?;
    /// counter.save_checkpoint(dir, 1)?;
    /// // Another process, later:
    /// let counter = tfc::compile(&graph)?;
    /// let restored = counter.restore(dir)?.expect("there is one");
    /// assert_eq!(restored.step, 1);
    /// assert_eq!(counter.call("add", (3i32,))?.scalar::<i32>("now")?, 5);
    /// # Ok::<(), tfc::Error>(())
    /// ```
    pub fn save_checkpoint(&self, dir: impl AsRef<Path>, step: u64) -> Result<PathBuf> {
        let keep = checkpoint::DEFAULT_KEEP;
        self.save_checkpoint_with(dir, &Save { step, keep, ..Save::default() })
    }

    /// As [`Module::save_checkpoint`], with where the run is in its data and how
    /// many checkpoints to keep.
    pub fn save_checkpoint_with(&self, dir: impl AsRef<Path>, what: &Save) -> Result<PathBuf> {
        Ok(checkpoint::save(&self.model, dir.as_ref(), what)?)
    }

    /// Brings all variables to where the newest good checkpoint of this graph in
    /// a directory has them. None if the directory holds no checkpoint; an error
    /// if it holds some and none can be used.
    pub fn restore(&self, dir: impl AsRef<Path>) -> Result<Option<Restored>> {
        let newest = checkpoint::newest(dir.as_ref(), self.model.plan())?;
        let Some((manifest, path)) = newest.found else { return Ok(None) };
        checkpoint::resume(&self.model, &manifest, &path)?;
        let skipped = newest.skipped.iter().map(|e| e.to_warning(false)).collect();
        Ok(Some(Restored { step: manifest.step, positions: manifest.positions, path, skipped }))
    }

    /// Takes from a .safetensors file the variables it has under the same names
    /// and with the same types: to begin from another model. Of renames, `("enc.",
    /// "bert.")` looks for the variable `enc.w` under `bert.w`.
    pub fn restore_matching(&self, file: impl AsRef<Path>, renames: &[Rename]) -> Result<Matched> {
        Ok(checkpoint::load_matching(&self.model, file.as_ref(), renames)?)
    }

    /// Names of the variables without the slots of optimizers: the weights and counters
    /// of models, and what the graph declares itself.
    pub fn weights(&self) -> Vec<String> {
        let vars = self.model.plan().vars.iter();
        vars.filter(|v| v.user).map(|v| v.name.clone()).collect()
    }

    /// Names of the variables, the slots of optimizers included.
    pub fn vars(&self) -> Vec<String> {
        self.model.plan().vars.iter().map(|v| v.name.clone()).collect()
    }

    fn find_var(&self, name: &str) -> Result<usize> {
        self.model.var(name).ok_or_else(|| {
            let diag = Diag::error("E0605", format!("there is no variable `{name}`"));
            let vars = self.vars();
            match crate::nearest(name, vars.iter().map(String::as_str)) {
                Some(near) => diag.help(format!("did you mean `{near}`?")),
                None if vars.is_empty() => diag.note("the graph has no variables"),
                None => diag.note(format!("there are {}", crate::names(vars.iter().map(|v| &**v)))),
            }
            .into()
        })
    }
}

/// Whether a result fits what the caller has for it. Its length is the runtime's
/// business.
fn has_room(prepared: &Prepared<'_>, port: &tfc_abi::plan::Port, info: &Info) -> bool {
    let same = |have: &[usize]| {
        have.len() == port.shape.len() && (0..have.len()).all(|i| prepared.size(port, i) == have[i])
    };
    info.dtype == port.dtype
        && !info.scattered
        && info.shape.as_ref().is_none_or(|shape| same(shape.sizes()))
}

#[cold]
fn no_room(prepared: &Prepared<'_>, port: &tfc_abi::plan::Port, info: &Info) -> Error {
    let name = &port.name;
    if info.dtype != port.dtype {
        let message = format!("result `{name}` is {}, not {}", port.dtype, info.dtype);
        return Diag::error("E0522", message)
            .help(format!("give it memory of `{}` elements", rust_type(port.dtype)))
            .into();
    }
    if info.scattered {
        let message = format!("the array for result `{name}` is not dense and row-major");
        return Diag::error("E0522", message)
            .help("give it an array of its own, and copy from that")
            .into();
    }
    let (is, given) = (prepared.shape(port), info.shape.as_ref().map(|s| s.sizes().to_vec()));
    let message = format!(
        "result `{name}` has the shape {is:?} here, but the array for it {:?}",
        given.unwrap_or_default()
    );
    Diag::error("E0522", message).into()
}

/// The runtime's help is for those who feed files.
#[cold]
fn in_rust(error: tfc_runtime::Error) -> Error {
    let dtype = error.code() == ErrorCode::WRONG_DTYPE;
    let mut error = Error::from(error);
    if dtype && let Some(diag) = error.diags.first_mut() {
        diag.help.clear();
        error.diags[0] = error.diags[0]
            .clone()
            .help("convert its elements first, such as with `x.mapv(|v| v as f32)`");
    }
    error
}

/// Generates code and loads it.
#[cfg(feature = "cli")]
pub(crate) fn load(
    program: &Program,
    options: tfc_runtime::ModelOptions,
) -> tfc_runtime::Result<Model> {
    let bug = |e: tfc_codegen::CodegenError| tfc_runtime::Error::bug(e.to_string());
    let mut code = tfc_codegen::jit(program).map_err(bug)?;
    if let tfc_runtime::Choice::Cuda(_) | tfc_runtime::Choice::Gpu = options.device {
        add_gpu(&mut code, program).map_err(bug)?;
    }
    let desc = descriptor(&code);
    let options = tfc_runtime::ModelOptions { keep: Some(Box::new(code)), ..options };
    // SAFETY: the descriptor points into `code`, which the model keeps, and which
    // was generated from the plan in it.
    unsafe { Model::load_with(&desc, options) }
}

/// Code for GPUs: for all that can run the program, and for those with tensor cores of
/// their own.
fn add_gpu(code: &mut JitProgram, program: &Program) -> std::result::Result<(), CodegenError> {
    let table = tfc_codegen::ptx::table(program, &[tfc_codegen::ptx::AMPERE.arch])?;
    code.set_gpu(table.encode(), gpu_driver());
    Ok(())
}

/// What describes the code, with what of the runtime it may need.
fn descriptor(code: &JitProgram) -> tfc_abi::ProgramDesc {
    let conv = (&raw const tfc_runtime::conv::TFC_CONV).cast();
    tfc_abi::ProgramDesc { conv, ..code.desc() }
}

/// What of the runtime drives GPUs.
pub(crate) fn gpu_driver() -> *const u8 {
    (&raw const tfc_runtime::cuda::nccl::TFC_NCCL).cast()
}

impl<R: Arrays> Entry<R> {
    /// Calls it; as [`Module::call`].
    pub fn call<'a>(&self, feeds: impl Feeds<'a>) -> Result<R> {
        self.call_with(feeds, &CallOptions::new())
    }

    /// As [`Module::call_with`].
    pub fn call_with<'a>(&self, feeds: impl Feeds<'a>, options: &CallOptions) -> Result<R> {
        R::from_outputs(self.module.call_index(self.index, feeds, options)?)
    }

    /// As [`Module::call_into`]. Nothing is allocated when the run-time dims are
    /// those of an earlier call.
    pub fn call_into<'a, 'r>(
        &self,
        feeds: impl Feeds<'a>,
        results: impl Results<'r>,
    ) -> Result<()> {
        self.call_into_with(feeds, results, &CallOptions::new())
    }

    /// As [`Entry::call_into`], with a deadline and the like.
    pub fn call_into_with<'a, 'r>(
        &self,
        feeds: impl Feeds<'a>,
        results: impl Results<'r>,
        options: &CallOptions,
    ) -> Result<()> {
        self.module.call_index_into(self.index, feeds, results, options)
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("entries", &self.entries()).finish_non_exhaustive()
    }
}
