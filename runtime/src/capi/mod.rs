//! The C interface: what generated headers wrap, and the `main` of programs.
//!
//! A library of a model exports one symbol, a [`LibraryDesc`]: the program, and
//! the [`Table`] of functions that can load it. A loaded model begins with that
//! table, so its functions are reached through it, and several runtimes live in
//! one process without knowing of each other. `compiler/src/header/tfc.h` is the
//! same, as C sees it.
//!
//! Every function that can fail returns a status: 0, [`END`], or the exit code a
//! program would end with; `last_error` then has the text, per thread. Tensors
//! belong to the caller. A model may be used from several threads at once.
//!
//! | file | functions |
//! |---|---|
//! | `call.rs` | calling entries; tensors in and out |
//! | `limit.rs` | deadlines and cancelling |
//! | `state.rs` | variables, state files, checkpoints |
//! | `queues.rs` | queues, readers, runners |
//! | `signature.rs` | what a model has |

mod call;
mod limit;
mod queues;
mod signature;
mod state;

pub use call::{Feed, Tensor};
pub use limit::Cancel;
pub use signature::Signature;

use crate::cli::jobs::Jobs;
use crate::cli::{self, Console, Program};
use crate::error::{Error, Result};
use crate::model::{Model, ModelOptions, Print};
use crate::place::Choice;
use crate::pool::Pool;
use crate::sandbox::Sandbox;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tfc_abi::plan::Plan;
use tfc_abi::{ABI_VERSION, LibraryDesc, ProgramDesc};

/// Status of a call whose input has ended: a loop is over rather than wrong.
pub const END: c_int = 5;

/// A loaded model.
#[repr(C)]
pub struct Handle {
    /// What C reaches all functions through; must stay first.
    table: &'static Table,
    model: Arc<Model>,
    runners: queues::Working,
    signature: OnceLock<signature::Owned>,
}

/// How to load a model. C zeroes it first, so zero is what one gets unasked.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// Threads of its own; 0 for the pool all models of this runtime share.
    pub threads: u32,
    /// Not 0 to go on though a loss is NaN or infinite, and save variables that are.
    pub allow_nan: u32,
    /// Where relative paths of the graph's `save` and `restore` begin, or null.
    pub directory: *const c_char,
    /// The directory that the graph's paths must not leave, or null.
    pub sandbox: *const c_char,
    /// Gets the lines that the graph prints, from any thread, or null.
    pub print: Option<unsafe extern "C" fn(data: *mut c_void, line: *const c_char)>,
    /// Handed to `print`.
    pub print_data: *mut c_void,
    /// What to run on: `cpu`, `cuda` or `cuda:1`; null for a GPU if there is one and the
    /// library has code for it.
    pub device: *const c_char,
}

/// What C wants its print function to be given.
struct PrintData(*mut c_void);

// SAFETY: the header says that `print` is called from any thread; what it makes of
// the pointer is its own business.
unsafe impl Send for PrintData {}
// SAFETY: as above.
unsafe impl Sync for PrintData {}

impl LoadOptions {
    /// As the runtime has them.
    ///
    /// # Safety
    /// Strings are null or strings; `print` can be called with `print_data` as long
    /// as the model lives.
    unsafe fn options(&self) -> Result<ModelOptions> {
        let pool = (self.threads > 0).then(|| Arc::new(Pool::new(self.threads as usize)));
        let sandbox = match self.sandbox.is_null() {
            true => Sandbox::default(),
            // SAFETY: a string, as the caller promises.
            false => Sandbox::below(Path::new(unsafe { text(self.sandbox, "the sandbox") }?))?,
        };
        let data = PrintData(self.print_data);
        let print = self.print.map(|print| -> Print {
            Arc::new(move |line: &str| {
                let data = &data;
                let line = CString::new(line.replace('\0', "?")).unwrap_or_default();
                // SAFETY: the caller's promise.
                unsafe { print(data.0, line.as_ptr()) }
            })
        });
        let device = match self.device.is_null() {
            true => Choice::Any,
            false => {
                // SAFETY: a string, as the caller promises.
                let name = unsafe { text(self.device, "the device") }?;
                Choice::parse(name).ok_or_else(|| {
                    let message = format!("`{name}` is no device");
                    Error::usage("E0914", message).help("say `cpu`, `cuda` or `cuda:1`")
                })?
            }
        };
        Ok(ModelOptions { pool, print, sandbox, device, ..ModelOptions::default() })
    }
}

macro_rules! table {
    ($($name:ident: $function:path, fn($($arg:ident: $ty:ty),*) $(-> $ret:ty)?;)*) => {
        /// The functions, in the order of `tfc_runtime` in `tfc.h`.
        #[repr(C)]
        pub struct Table {
            /// [`ABI_VERSION`].
            pub version: u32,
            /// Bytes of the table: what is behind them a newer one has.
            pub size: u32,
            $(pub $name: unsafe extern "C" fn($($arg: $ty),*) $(-> $ret)?,)*
        }

        /// The functions of this runtime. The only symbol of it that libraries
        /// of models see, under a name that is its own.
        #[unsafe(no_mangle)]
        #[allow(non_upper_case_globals)]
        pub static tfc_runtime: Table = Table {
            version: ABI_VERSION,
            size: size_of::<Table>() as u32,
            $($name: $function,)*
        };

        /// Their names, for the test that compares them with the header.
        pub const FUNCTIONS: &[&str] = &[$(stringify!($name)),*];
    };
}

table! {
    last_error: last_error, fn() -> *const c_char;
    last_error_code: last_error_code, fn() -> *const c_char;
    load: load, fn(library: *const LibraryDesc, interface: u64, options: *const LoadOptions) -> *mut Handle;
    free: free, fn(model: *mut Handle);
    signature: signature::signature, fn(model: *const Handle) -> *const Signature;
    entry: call::entry, fn(model: *const Handle, name: *const c_char) -> c_int;
    call: call::call, fn(model: *const Handle, entry: c_int, feeds: *const Feed, feed_count: usize, results: *mut Tensor, result_count: usize) -> c_int;
    result_shape: call::result_shape, fn(model: *const Handle, entry: c_int, feeds: *const Feed, feed_count: usize, result: usize, shape: *mut i64, rank: usize) -> c_int;
    var_index: state::var_index, fn(model: *const Handle, name: *const c_char) -> c_int;
    var_get: state::var_get, fn(model: *const Handle, var: c_int, data: *mut c_void, bytes: usize) -> c_int;
    var_set: state::var_set, fn(model: *const Handle, var: c_int, data: *const c_void, bytes: usize) -> c_int;
    reset: state::reset, fn(model: *const Handle) -> c_int;
    save: state::save, fn(model: *const Handle, path: *const c_char) -> c_int;
    restore: state::restore, fn(model: *const Handle, path: *const c_char) -> c_int;
    checkpoint_save: state::checkpoint_save, fn(model: *const Handle, dir: *const c_char, step: u64, keep: usize) -> c_int;
    checkpoint_restore: state::checkpoint_restore, fn(model: *const Handle, dir: *const c_char, step: *mut u64) -> c_int;
    queue_index: queues::queue_index, fn(model: *const Handle, name: *const c_char) -> c_int;
    queue_put: queues::queue_put, fn(model: *const Handle, queue: c_int, parts: *const Feed, part_count: usize) -> c_int;
    queue_take: queues::queue_take, fn(model: *const Handle, queue: c_int, count: usize, parts: *mut Tensor, part_count: usize) -> c_int;
    queue_close: queues::queue_close, fn(model: *const Handle, queue: c_int) -> c_int;
    queue_size: queues::queue_size, fn(model: *const Handle, queue: c_int) -> i64;
    reader_paths: queues::reader_paths, fn(model: *const Handle, reader: *const c_char, paths: *const *const c_char, count: usize) -> c_int;
    runners_start: queues::runners_start, fn(model: *const Handle, entry: c_int) -> c_int;
    runners_stop: queues::runners_stop, fn(model: *const Handle) -> c_int;
    cancel_new: limit::cancel_new, fn() -> *mut Cancel;
    cancel_free: limit::cancel_free, fn(cancel: *mut Cancel);
    cancel: limit::cancel, fn(cancel: *const Cancel) -> c_int;
    limit: limit::limit, fn(milliseconds: i64, cancel: *const Cancel) -> c_int;
    stale_ok: limit::stale_ok, fn(allowed: c_int);
}

thread_local! {
    static LAST: RefCell<(CString, CString)> = RefCell::new(Default::default());
}

fn remember(e: &Error) -> c_int {
    // NUL bytes could come from file names.
    let text = |s: String| CString::new(s.replace('\0', "?")).unwrap_or_default();
    LAST.with(|l| *l.borrow_mut() = (text(e.to_string()), text(e.code().to_string())));
    if e.is_end_of_input() { END } else { e.exit_code() }
}

/// Runs `f`; neither an error nor a panic leaves this function.
fn guard(f: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => 0,
        Ok(Err(e)) => remember(&e),
        Err(_) => remember(&Error::bug("the runtime panicked")),
    }
}

/// As [`guard`], for functions that return a number; -1 when they fail.
fn number<T: From<i8>>(f: impl FnOnce() -> Result<T>) -> T {
    let mut out = T::from(-1);
    guard(|| {
        out = f()?;
        Ok(())
    });
    out
}

fn null(what: &str) -> Error {
    Error::usage("E0914", format!("{what} is null"))
}

/// # Safety
/// `p` is null or points at a live `T`.
unsafe fn deref<'a, T>(p: *const T, what: &str) -> Result<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { p.as_ref() }.ok_or_else(|| null(what))
}

/// # Safety
/// `p` is null or a live model.
unsafe fn model<'a>(p: *const Handle) -> Result<&'a Handle> {
    // SAFETY: the caller's promise.
    unsafe { deref(p, "the model") }
}

/// # Safety
/// `p` is null or a NUL-terminated string.
unsafe fn text<'a>(p: *const c_char, what: &str) -> Result<&'a str> {
    if p.is_null() {
        return Err(null(what));
    }
    // SAFETY: not null, so a string.
    unsafe { CStr::from_ptr(p) }
        .to_str()
        .map_err(|_| Error::usage("E0914", format!("{what} is not UTF-8")))
}

/// Items of an array of the caller's.
///
/// # Safety
/// `p` is null or points at `count` items.
unsafe fn items<'a, T>(p: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    if count == 0 {
        return Ok(&[]);
    }
    if p.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(p, count) })
}

/// Text of this thread's last error; valid until its next one.
extern "C" fn last_error() -> *const c_char {
    LAST.with(|l| l.borrow().0.as_ptr())
}

/// Code of this thread's last error, such as `E0503`.
extern "C" fn last_error_code() -> *const c_char {
    LAST.with(|l| l.borrow().1.as_ptr())
}

/// Loads a library's program and initialises its variables; null on failure.
/// `interface` is what the caller's header was made for.
///
/// # Safety
/// `library` is a compiled library's and outlives the model; `options` is null or
/// points at options.
unsafe extern "C" fn load(
    library: *const LibraryDesc,
    interface: u64,
    options: *const LoadOptions,
) -> *mut Handle {
    let mut out = std::ptr::null_mut();
    guard(|| {
        // SAFETY: the caller's promise.
        let library = unsafe { deref(library, "the library") }?;
        if library.version != ABI_VERSION || library.interface != interface {
            return Err(Error::usage("E0807", "the header and the library do not belong together")
                .note("the header was made for another version of the graph, or by another tfc")
                .help("make both at once: `tfc compile model.graph --emit lib,header`"));
        }
        // SAFETY: as above.
        let desc = unsafe { deref(library.program, "the program") }?;
        // SAFETY: as above.
        let options = unsafe { options.as_ref() };
        let how = match options {
            // SAFETY: as above.
            Some(options) => unsafe { options.options() }?,
            None => ModelOptions::default(),
        };
        // SAFETY: as above.
        let model = unsafe { Model::load_with(desc, how) }?;
        model.allow_nan(options.is_some_and(|o| o.allow_nan != 0));
        if let Some(directory) = options.map(|o| o.directory).filter(|d| !d.is_null()) {
            // SAFETY: a string, as the options say.
            model.set_directory(Path::new(unsafe { text(directory, "the directory") }?));
        }
        let runners = queues::Working::new(&model);
        out = Box::into_raw(Box::new(Handle {
            table: &tfc_runtime,
            model: Arc::new(model),
            runners,
            signature: OnceLock::new(),
        }));
        Ok(())
    });
    out
}

/// Stops a model's runners and frees it; null is ignored.
///
/// # Safety
/// `model` came from [`load`], is not used again and not in use.
unsafe extern "C" fn free(model: *mut Handle) {
    if !model.is_null() {
        // SAFETY: made by `Box::into_raw` in `load`.
        let model = unsafe { Box::from_raw(model) };
        guard(move || {
            drop(model);
            Ok(())
        });
    }
}

/// A program as an executable carries it.
struct Linked<'a>(&'a ProgramDesc);

impl Program for Linked<'_> {
    fn plan(&self) -> Result<Plan> {
        // SAFETY: `tfc_main`'s caller promises a valid descriptor.
        unsafe { crate::model::read_plan(self.0) }
    }

    fn load(&self, options: ModelOptions) -> Result<Model> {
        // SAFETY: as above.
        unsafe { Model::load_with(self.0, options) }
    }

    fn jobs(&self) -> Option<&'static Jobs> {
        // SAFETY: as above; it names `TFC_JOBS`, or nothing.
        unsafe { self.0.jobs.cast::<Jobs>().as_ref() }
    }
}

/// `main` of a compiled program.
///
/// # Safety
/// `argv` has `argc` strings; `desc` is the program's descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_main(
    argc: c_int,
    argv: *const *const c_char,
    desc: *const ProgramDesc,
) -> c_int {
    std::panic::set_hook(Box::new(|info| {
        eprintln!("error[E0899]: the program failed inside: {info}");
        eprintln!("  = note: this is a bug in tfc, not in your graph or your data");
        std::process::exit(101);
    }));
    let words: Vec<String> = (0..usize::try_from(argc).unwrap_or(0))
        .map(|i| {
            // SAFETY: `argv` has `argc` strings.
            unsafe { CStr::from_ptr(*argv.add(i)) }.to_string_lossy().into_owned()
        })
        .collect();
    // SAFETY: the caller's promise.
    let Some(desc) = (unsafe { desc.as_ref() }) else { return 101 };
    let name = words.first().map_or("program", String::as_str);
    // Not locked: a panic in a worker must be able to write.
    let (mut out, mut err) = (std::io::stdout(), std::io::stderr());
    let shown = std::env::var_os(crate::launcher::PROGRESS).is_some_and(|shown| shown == "1");
    let terminal = err.is_terminal() || shown;
    let mut console = Console { out: &mut out, err: &mut err, terminal };
    cli::main(&Linked(desc), name, words.get(1..).unwrap_or_default(), &mut console)
}
