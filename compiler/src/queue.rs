//! Queues of a module, from Rust: feeding a training loop, or being fed by one.

use crate::error::{Error, Result};
use crate::module::Module;
use crate::value::feed::Given;
use crate::value::outputs::Names;
use crate::value::{Arrays, Feeds, Outputs, Value, tidy};
use std::sync::Arc;
use tfc_abi::ErrorCode;
use tfc_ir::diag::Diag;
use tfc_runtime::queue::runners::Runners as RunnerThreads;
use tfc_runtime::{CallOptions, FeedView, Model};

/// A queue or a reader of a module. Clones are the same queue; any number of
/// threads may use it at once.
///
/// ```
/// use ndarray::{ArrayD, array};
/// let graph = tfc::parse(
///     "graph sums\n\
///      queue rows: fifo(f32[2], i32[], capacity: 64)\n\
///      entry next() -> (s: f32[3], n: i32[]) {\n\
///        (x, k) = dequeue_many(rows, count: 3)\n\
///        return sum(x, axis: 1), sum(k)\n\
///      }",
/// )?;
/// let module = tfc::compile(&graph)?;
/// let rows = module.queue("rows")?;
/// std::thread::scope(|scope| {
///     // Waits whenever the queue is full.
///     scope.spawn(|| {
///         for i in 0..6 {
///             rows.enqueue((&array![i as f32, 1.0], i)).unwrap();
///         }
///         rows.close();
///     });
///     let mut sums = vec![];
///     loop {
///         match module.call("next", ()) {
///             Ok(out) => sums.push(out.scalar::<i32>("n").unwrap()),
///             Err(e) if e.is_end_of_input() => break,
///             Err(e) => panic!("{e}"),
///         }
///     }
///     assert_eq!(sums, [0 + 1 + 2, 3 + 4 + 5]);
/// });
/// # Ok::<(), tfc::Error>(())
/// ```
#[derive(Clone)]
pub struct Queue {
    model: Arc<Model>,
    index: usize,
}

/// Runners at work on their own threads; dropping it stops them.
pub struct Runners(RunnerThreads);

impl Module {
    /// The queue or reader of this name.
    pub fn queue(&self, name: &str) -> Result<Queue> {
        let queues = self.model().queues().list();
        match queues.iter().position(|q| q.info().name == name) {
            Some(index) => Ok(Queue { model: self.model().clone(), index }),
            None => {
                let diag = Diag::error("E0570", format!("there is no queue `{name}`"));
                let names = || queues.iter().map(|q| q.info().name.as_str());
                Err(match crate::nearest(name, names()) {
                    Some(near) => diag.help(format!("did you mean `{near}`?")),
                    None if queues.is_empty() => diag.note("the graph has no queues"),
                    None => diag.note(format!("there are {}", crate::names(names()))),
                }
                .into())
            }
        }
    }

    /// Starts the runners that fill what an entry takes, each on a thread of its
    /// own. They stop when the result is dropped or finished.
    ///
    /// ```
    /// let graph = tfc::parse(
    ///     "graph counted\n\
    ///      var n: i64[] = 0\n\
    ///      queue numbers: fifo(i64[], capacity: 8)\n\
    ///      runner count() {\n  n += 1\n  enqueue(numbers, n)\n}\n\
    ///      entry next() -> (k: i64[]) { return dequeue(numbers) }",
    /// )?;
    /// let module = tfc::compile(&graph)?;
    /// let runners = module.start_runners("next")?;
    /// assert_eq!(module.call("next", ())?.scalar::<i64>("k")?, 1);
    /// assert_eq!(module.call("next", ())?.scalar::<i64>("k")?, 2);
    /// runners.finish()?;
    /// # Ok::<(), tfc::Error>(())
    /// ```
    pub fn start_runners(&self, entry: &str) -> Result<Runners> {
        let index = self.model().entry(entry)?;
        Ok(Runners(RunnerThreads::start(self.model(), index)?))
    }
}

impl Runners {
    /// Stops the runners; the error of the one that failed, if one did.
    pub fn finish(self) -> Result<()> {
        Ok(self.0.finish()?)
    }
}

impl Queue {
    fn queue(&self) -> &tfc_runtime::queue::Queue {
        &self.model.queues().list()[self.index]
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.queue().info().name
    }

    /// How many elements wait.
    pub fn len(&self) -> usize {
        self.queue().len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Says that nothing more is put in; what waits can still be taken.
    pub fn close(&self) {
        self.queue().close();
    }

    /// Puts an element in, one array (or number) for each part; waits while the
    /// queue is full.
    pub fn enqueue<'a>(&self, element: impl Feeds<'a>) -> Result<()> {
        self.enqueue_with(element, &CallOptions::new())
    }

    /// As [`Queue::enqueue`], waiting no longer than the options say.
    pub fn enqueue_with<'a>(&self, element: impl Feeds<'a>, options: &CallOptions) -> Result<()> {
        let info = self.queue().info();
        if self.queue().is_reader() {
            let message = format!("`{}` is a reader: its records come from files", info.name);
            return Err(Diag::error("E0569", message).into());
        }
        element.give(|given| match given {
            Given::Positional(feeds) => self.put(feeds, options),
            Given::Named(named) => {
                self.put(&named.iter().map(|(_, f)| *f).collect::<Vec<_>>(), options)
            }
        })
    }

    fn put(&self, feeds: &[FeedView<'_>], options: &CallOptions) -> Result<()> {
        let info = self.queue().info();
        let fits = |f: &FeedView<'_>, p: &tfc_abi::plan::Part| {
            let shape = f.shape.iter().map(|d| *d as i64);
            f.dtype == p.dtype && shape.eq(p.shape.iter().copied())
        };
        let all = feeds.len() == info.parts.len()
            && feeds.iter().zip(&info.parts).all(|(f, p)| fits(f, p));
        if !all {
            let text =
                |dtype: tfc_ir::DType, shape: Vec<String>| format!("{dtype}[{}]", shape.join(", "));
            let given: Vec<String> = feeds
                .iter()
                .map(|f| text(f.dtype, f.shape.iter().map(usize::to_string).collect()))
                .collect();
            let wanted: Vec<String> = info
                .parts
                .iter()
                .map(|p| text(p.dtype, p.shape.iter().map(i64::to_string).collect()))
                .collect();
            let message = format!("this is not an element of `{}`", info.name);
            return Err(Diag::error("E0569", message)
                .note(format!("its elements are ({})", wanted.join(", ")))
                .note(format!("given was ({})", given.join(", ")))
                .into());
        }
        let bytes: Vec<&[u8]> = feeds.iter().map(|f| f.data).collect();
        Ok(self.queue().put(&bytes, options)?)
    }

    /// Takes the next element out, waiting for it; none when the input has
    /// ended. `let Some((x, y)): Option<(ArrayD<f32>, ArrayD<i32>)> = q.dequeue()?`
    pub fn dequeue<R: Arrays>(&self) -> Result<Option<R>> {
        self.take(None, &CallOptions::new())
    }

    /// As [`Queue::dequeue`], waiting no longer than the options say.
    pub fn dequeue_with<R: Arrays>(&self, options: &CallOptions) -> Result<Option<R>> {
        self.take(None, options)
    }

    /// Takes `count` elements at once, each part stacked along a new first axis;
    /// none when fewer are left.
    pub fn dequeue_many<R: Arrays>(&self, count: usize) -> Result<Option<R>> {
        self.take(Some(count), &CallOptions::new())
    }

    fn take<R: Arrays>(&self, count: Option<usize>, options: &CallOptions) -> Result<Option<R>> {
        let parts = &self.queue().info().parts;
        let mut values = vec![];
        for part in parts {
            let sizes = part.shape.iter().map(|d| usize::try_from(*d).unwrap_or(0));
            let shape: Vec<usize> = count.into_iter().chain(sizes).collect();
            values.push(Value::zeros(part.dtype, &shape)?);
        }
        let places: Vec<(*mut u8, usize)> =
            values.iter_mut().map(|v| (v.bytes_mut().as_mut_ptr(), v.bytes().len())).collect();
        // SAFETY: each tensor has room for this many elements of its part.
        match unsafe { self.queue().take(count.unwrap_or(1), &places, options) } {
            Ok(()) => {}
            Err(e) if e.is_end_of_input() => return Ok(None),
            Err(e) => return Err(e.into()),
        }
        values.iter_mut().for_each(|v| tidy(v.dtype(), v.bytes_mut()));
        let results = (0..parts.len()).map(|i| i.to_string()).collect();
        let names = Arc::new(Names { entry: self.name().to_string(), results });
        R::from_outputs(Outputs { names, values }).map(Some)
    }
}

impl Error {
    /// The input has ended: a loop is over rather than wrong.
    pub fn is_end_of_input(&self) -> bool {
        self.code() == ErrorCode::END_OF_INPUT
    }
}
