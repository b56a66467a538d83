//! A graph compiled in memory, ready to call.

use crate::driver::{self, Options};
use crate::error::{Error, Result};
use crate::value::{Arrays, Element, Feed, FeedList, Feeds, Outputs, array_of, tensor_of};
use ndarray::ArrayD;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tfc_ir::diag::Diag;
use tfc_ir::program::Program;
use tfc_ir::{Graph, Tensor};
use tfc_runtime::checkpoint::{self, Matched, Rename, Save};
use tfc_runtime::{CallOptions, FeedView, Model};

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
    model: Arc<Model>,
}

/// The checkpoint a module was restored from.
#[derive(Clone, Debug, PartialEq)]
pub struct Restored {
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

impl Module {
    pub fn from_graph(graph: &Graph, options: &Options) -> Result<Module> {
        let program = driver::lower(graph, options, &mut driver::Timings::default())?;
        Module::from_program(&program)
    }

    /// Generates code for a lowered program, and initialises its variables.
    pub fn from_program(program: &Program) -> Result<Module> {
        Module::with_pool(program, None)
    }

    /// As [`Module::from_program`], with this many threads of its own.
    pub fn with_threads(program: &Program, threads: usize) -> Result<Module> {
        Module::with_pool(program, Some(threads))
    }

    pub(crate) fn with_pool(program: &Program, threads: Option<usize>) -> Result<Module> {
        let options = tfc_runtime::Options {
            pool: threads.map(|n| Arc::new(tfc_runtime::Pool::new(n))),
            ..tfc_runtime::Options::default()
        };
        Ok(Module { model: Arc::new(load(program, options)?) })
    }

    /// The runtime's view of the module.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
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
        self.call_index(index, feeds.feeds(), options)
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
        let want = R::dtypes();
        let have: Vec<_> = match self.model.plan().entries.get(index) {
            Some(entry) => entry.results.iter().map(|p| p.dtype).collect(),
            None => vec![],
        };
        if want != have && !want.is_empty() {
            let list = |types: &[tfc_ir::DType]| {
                types.iter().map(|t| t.to_string()).collect::<Vec<_>>().join(", ")
            };
            let diag = Diag::error("E0503", format!("the results of `{name}` have other types"))
                .note(format!("they are ({}), not ({})", list(&have), list(&want)));
            return Err(diag.into());
        }
        Ok(Entry { module: self.clone(), index, results: PhantomData })
    }

    fn call_index(
        &self,
        index: usize,
        feeds: FeedList<'_>,
        options: &CallOptions,
    ) -> Result<Outputs> {
        let Some(entry) = self.model.plan().entries.get(index) else {
            return Err(Error::bug("an entry vanished"));
        };
        let feeds = match feeds {
            FeedList::Positional(feeds) => feeds,
            FeedList::Named(named) => self.by_name(entry, named)?,
        };
        let views: Vec<FeedView<'_>> = feeds.iter().map(Feed::view).collect();
        let values = self.model.call_with(index, &views, options)?;
        let names = entry.results.iter().map(|p| p.name.clone()).collect();
        Ok(Outputs { entry: entry.name.clone(), names, values })
    }

    fn by_name<'a>(
        &self,
        entry: &tfc_abi::plan::Entry,
        mut named: Vec<(String, Feed<'a>)>,
    ) -> Result<Vec<Feed<'a>>> {
        let mut out = vec![];
        for param in &entry.params {
            match named.iter().position(|(n, _)| *n == param.name) {
                Some(i) => out.push(named.swap_remove(i).1),
                None => {
                    let diag = Diag::error(
                        "E0501",
                        format!("`{}` needs a feed for `{}`", entry.name, param.name),
                    )
                    .note(format!("`{}` is {}", param.name, param.text));
                    return Err(diag.into());
                }
            }
        }
        if let Some((name, _)) = named.first() {
            let known = crate::names(entry.params.iter().map(|p| p.name.as_str()));
            let message = format!("`{}` has no parameter `{name}`", entry.name);
            return Err(Diag::error("E0502", message).note(format!("it has {known}")).into());
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

    /// Names of the variables, those of optimizers included.
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

/// Generates code and loads it.
pub(crate) fn load(program: &Program, options: tfc_runtime::Options) -> tfc_runtime::Result<Model> {
    let code = tfc_codegen::jit(program).map_err(|e| tfc_runtime::Error::bug(e.to_string()))?;
    let desc = code.desc();
    let options = tfc_runtime::Options { keep: Some(Box::new(code)), ..options };
    // SAFETY: the descriptor points into `code`, which the model keeps, and which
    // was generated from the plan in it.
    unsafe { Model::load_with(&desc, options) }
}

impl<R: Arrays> Entry<R> {
    pub fn call<'a>(&self, feeds: impl Feeds<'a>) -> Result<R> {
        self.call_with(feeds, &CallOptions::new())
    }

    /// As [`Module::call_with`].
    pub fn call_with<'a>(&self, feeds: impl Feeds<'a>, options: &CallOptions) -> Result<R> {
        let outputs = self.module.call_index(self.index, feeds.feeds(), options)?;
        R::from_outputs(&outputs)
    }
}

impl std::fmt::Debug for Module {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Module").field("entries", &self.entries()).finish_non_exhaustive()
    }
}
