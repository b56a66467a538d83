//! The C interface: what generated headers wrap, and the `main` of programs.
//!
//! Every function that can fail returns a status: 0, or the exit code a program
//! would end with; [`tfc_last_error`] then has the text, per thread. Tensors
//! belong to the caller. A model may be used from several threads at once.

use crate::cli::{self, Console, Program, statefile};
use crate::error::{Error, Result};
use crate::model::{Model, Options};
use crate::pool::Pool;
use crate::tensor::{FeedView, ResultView, byte_len};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use tfc_abi::plan::Plan;
use tfc_abi::{ABI_VERSION, DType, ProgramDesc};

/// Most axes a tensor of the C interface has.
const MAX_RANK: usize = 64;

/// A tensor of the caller's: dense, row-major, native byte order.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TfcTensor {
    /// A [`DType`] code: f32 0, f64 1, f16 2, bf16 3, i8 4, u8 5, i32 6, i64 7,
    /// bool 8.
    pub dtype: u32,
    pub rank: u32,
    /// `rank` sizes. Of a result: filled in by the call, unless null.
    pub shape: *mut i64,
    pub data: *mut c_void,
    /// Size of `data`. Of a result: room, at least what it needs.
    pub bytes: usize,
}

thread_local! {
    static LAST: RefCell<(CString, CString)> = RefCell::new(Default::default());
}

fn remember(e: &Error) -> c_int {
    // NUL bytes could come from file names.
    let text = |s: String| CString::new(s.replace('\0', "?")).unwrap_or_default();
    LAST.with(|l| *l.borrow_mut() = (text(e.to_string()), text(e.code().to_string())));
    e.exit_code()
}

/// Runs `f`; neither an error nor a panic leaves this function.
fn guard(f: impl FnOnce() -> Result<()>) -> c_int {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => 0,
        Ok(Err(e)) => remember(&e),
        Err(_) => remember(&Error::bug("the runtime panicked")),
    }
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

/// Version of the calling conventions.
#[unsafe(no_mangle)]
pub extern "C" fn tfc_abi_version() -> u32 {
    ABI_VERSION
}

/// Text of this thread's last error; valid until its next one.
#[unsafe(no_mangle)]
pub extern "C" fn tfc_last_error() -> *const c_char {
    LAST.with(|l| l.borrow().0.as_ptr())
}

/// Code of this thread's last error, such as `E0503`.
#[unsafe(no_mangle)]
pub extern "C" fn tfc_last_error_code() -> *const c_char {
    LAST.with(|l| l.borrow().1.as_ptr())
}

/// Loads a program and initialises its variables; null on failure. `threads` is
/// 0 for the process's own pool.
///
/// # Safety
/// `desc` is a compiled program's descriptor and outlives the model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_model_new(desc: *const ProgramDesc, threads: u32) -> *mut Model {
    let mut model = std::ptr::null_mut();
    guard(|| {
        // SAFETY: the caller's promise.
        let desc = unsafe { deref(desc, "the program") }?;
        let pool = (threads > 0).then(|| Arc::new(Pool::new(threads as usize)));
        // SAFETY: as above.
        let m = unsafe { Model::load_with(desc, Options { pool, ..Options::default() }) }?;
        model = Box::into_raw(Box::new(m));
        Ok(())
    });
    model
}

/// Frees a model; null is ignored.
///
/// # Safety
/// `model` came from [`tfc_model_new`], is not used again and not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_model_free(model: *mut Model) {
    if !model.is_null() {
        // SAFETY: made by `Box::into_raw` in `tfc_model_new`.
        let model = unsafe { Box::from_raw(model) };
        guard(move || {
            drop(model);
            Ok(())
        });
    }
}

/// Number of an entry, or -1.
///
/// # Safety
/// `model` is live, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_model_entry(model: *const Model, name: *const c_char) -> c_int {
    let mut entry = -1;
    guard(|| {
        // SAFETY: the caller's promise.
        let (m, name) = unsafe { (deref(model, "the model")?, text(name, "the name")?) };
        entry = m.entry(name)? as c_int;
        Ok(())
    });
    entry
}

/// The feeds of a call, with their shapes kept beside.
///
/// # Safety
/// `tensors` points at `count` tensors whose `shape` and `data` are as large as
/// they say.
unsafe fn with_feeds<R>(
    tensors: *const TfcTensor,
    count: usize,
    f: impl FnOnce(&[FeedView<'_>]) -> Result<R>,
) -> Result<R> {
    if tensors.is_null() && count > 0 {
        return Err(null("the array of feeds"));
    }
    let tensors: &[TfcTensor] = if count == 0 {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { std::slice::from_raw_parts(tensors, count) }
    };
    let mut shapes = Vec::with_capacity(count);
    for t in tensors {
        // SAFETY: the caller's promise.
        shapes.push(unsafe { shape_of(t) }?);
    }
    let mut views = Vec::with_capacity(count);
    for (t, shape) in tensors.iter().zip(&shapes) {
        let dtype = dtype_of(t)?;
        let data: &[u8] = if t.bytes == 0 || t.data.is_null() {
            &[]
        } else {
            // SAFETY: the caller's promise.
            unsafe { std::slice::from_raw_parts(t.data.cast::<u8>(), t.bytes) }
        };
        // A roomier buffer than the shape needs is no mistake.
        let need = byte_len(dtype, shape).unwrap_or(usize::MAX);
        views.push(FeedView { dtype, shape, data: data.get(..need).unwrap_or(data) });
    }
    f(&views)
}

fn dtype_of(t: &TfcTensor) -> Result<DType> {
    u8::try_from(t.dtype)
        .ok()
        .and_then(DType::from_code)
        .ok_or_else(|| Error::usage("E0914", format!("there is no element type {}", t.dtype)))
}

/// # Safety
/// `t.shape` points at `t.rank` sizes.
unsafe fn shape_of(t: &TfcTensor) -> Result<Vec<usize>> {
    let rank = t.rank as usize;
    if rank > MAX_RANK {
        return Err(Error::usage("E0914", format!("a tensor has {rank} axes")));
    }
    if rank > 0 && t.shape.is_null() {
        return Err(null("a tensor's shape"));
    }
    (0..rank)
        .map(|i| {
            // SAFETY: the caller's promise.
            let size = unsafe { *t.shape.add(i) };
            usize::try_from(size)
                .map_err(|_| Error::usage("E0914", format!("a tensor has the size {size}")))
        })
        .collect()
}

/// Calls an entry. Feeds are in the order of its params; results are written to
/// the caller's memory, their shapes filled in.
///
/// # Safety
/// `model` is live; the arrays have the lengths given; every tensor's `shape`
/// has `rank` sizes and its `data` has `bytes` bytes; results overlap nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_model_call(
    model: *const Model,
    entry: c_int,
    feeds: *const TfcTensor,
    feed_count: usize,
    results: *mut TfcTensor,
    result_count: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let m = unsafe { deref(model, "the model") }?;
        let entry = usize::try_from(entry).unwrap_or(usize::MAX);
        if results.is_null() && result_count > 0 {
            return Err(null("the array of results"));
        }
        let results: &mut [TfcTensor] = if result_count == 0 {
            &mut []
        } else {
            // SAFETY: as above.
            unsafe { std::slice::from_raw_parts_mut(results, result_count) }
        };
        let mut memory: Vec<ResultView<'_>> = results
            .iter()
            .map(|t| ResultView {
                data: if t.bytes == 0 || t.data.is_null() {
                    &mut []
                } else {
                    // SAFETY: as above.
                    unsafe { std::slice::from_raw_parts_mut(t.data.cast::<u8>(), t.bytes) }
                },
            })
            .collect();
        let run = |feeds: &[FeedView<'_>]| {
            let wants_shapes = results.iter().any(|t| !t.shape.is_null());
            let shapes = if wants_shapes { m.result_shapes(entry, feeds)? } else { vec![] };
            m.run(entry, feeds, &mut memory)?;
            Ok(shapes)
        };
        // SAFETY: as above.
        let shapes = unsafe { with_feeds(feeds, feed_count, run) }?;
        for (t, shape) in results.iter_mut().zip(shapes) {
            if !t.shape.is_null() && t.rank as usize >= shape.len() {
                for (i, d) in shape.iter().enumerate() {
                    // SAFETY: `shape` has `rank` places.
                    unsafe { *t.shape.add(i) = *d as i64 };
                }
            }
            t.rank = shape.len() as u32;
        }
        Ok(())
    })
}

/// The shape result number `result` would have: writes up to `rank` sizes and
/// returns their number, or -1.
///
/// # Safety
/// As [`tfc_model_call`]; `shape` has room for `rank` sizes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_model_result_shape(
    model: *const Model,
    entry: c_int,
    feeds: *const TfcTensor,
    feed_count: usize,
    result: usize,
    shape: *mut i64,
    rank: usize,
) -> c_int {
    let mut found = -1;
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let m = unsafe { deref(model, "the model") }?;
        let entry = usize::try_from(entry).unwrap_or(usize::MAX);
        // SAFETY: as above.
        let shapes = unsafe { with_feeds(feeds, feed_count, |f| m.result_shapes(entry, f)) }?;
        let s = shapes
            .get(result)
            .ok_or_else(|| Error::usage("E0521", format!("there is no result number {result}")))?;
        for (i, d) in s.iter().enumerate().take(if shape.is_null() { 0 } else { rank }) {
            // SAFETY: `i < rank`.
            unsafe { *shape.add(i) = *d as i64 };
        }
        found = s.len() as c_int;
        Ok(())
    });
    found
}

/// Number of variables.
///
/// # Safety
/// `model` is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_var_count(model: *const Model) -> usize {
    // SAFETY: the caller's promise.
    unsafe { model.as_ref() }.map_or(0, |m| m.plan().vars.len())
}

/// Number of the variable of this name, or -1.
///
/// # Safety
/// `model` is live, `name` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_var_index(model: *const Model, name: *const c_char) -> c_int {
    let mut var = -1;
    guard(|| {
        // SAFETY: the caller's promise.
        let (m, name) = unsafe { (deref(model, "the model")?, text(name, "the name")?) };
        var = m
            .var(name)
            .ok_or_else(|| Error::data("E0605", format!("there is no variable `{name}`")))?
            as c_int;
        Ok(())
    });
    var
}

fn var_at(var: c_int) -> usize {
    usize::try_from(var).unwrap_or(usize::MAX)
}

/// Copies a variable to `data`, which has `bytes` bytes: exactly its size.
///
/// # Safety
/// `model` is live; `data` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_var_get(
    model: *const Model,
    var: c_int,
    data: *mut c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let m = unsafe { deref(model, "the model") }?;
        let t = m.read_var(var_at(var))?;
        check_size(m, var, t.bytes().len(), bytes)?;
        if bytes > 0 {
            // SAFETY: as above; the sizes are equal.
            unsafe { data.cast::<u8>().copy_from_nonoverlapping(t.bytes().as_ptr(), bytes) };
        }
        Ok(())
    })
}

/// Overwrites a variable from `data`, which has `bytes` bytes: exactly its size.
///
/// # Safety
/// `model` is live; `data` has `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_var_set(
    model: *const Model,
    var: c_int,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let m = unsafe { deref(model, "the model") }?;
        let mut t = m.read_var(var_at(var))?;
        check_size(m, var, t.bytes().len(), bytes)?;
        if bytes > 0 {
            // SAFETY: as above.
            let given = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
            t.bytes_mut().copy_from_slice(given);
        }
        m.write_var(var_at(var), t.view())
    })
}

fn check_size(m: &Model, var: c_int, is: usize, given: usize) -> Result<()> {
    if is == given {
        return Ok(());
    }
    let name = m.plan().vars.get(var_at(var)).map_or("?", |v| v.name.as_str());
    Err(Error::data("E0604", format!("variable `{name}` has {is} bytes, but {given} were given")))
}

/// Writes every variable to a safetensors file, atomically.
///
/// # Safety
/// `model` is live, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_model_save(model: *const Model, path: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (m, path) = unsafe { (deref(model, "the model")?, text(path, "the path")?) };
        statefile::save(m, Path::new(path))
    })
}

/// Reads every variable from a safetensors file.
///
/// # Safety
/// `model` is live, `path` a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tfc_model_restore(model: *const Model, path: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (m, path) = unsafe { (deref(model, "the model")?, text(path, "the path")?) };
        crate::checkpoint::load_exact(m, Path::new(path)).map(drop)
    })
}

/// A program as an executable carries it.
struct Linked<'a>(&'a ProgramDesc);

impl Program for Linked<'_> {
    fn plan(&self) -> Result<Plan> {
        // SAFETY: `tfc_main`'s caller promises a valid descriptor.
        unsafe { crate::model::read_plan(self.0) }
    }

    fn load(&self, options: Options) -> Result<Model> {
        // SAFETY: as above.
        unsafe { Model::load_with(self.0, options) }
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
    let terminal = err.is_terminal();
    let mut console = Console { out: &mut out, err: &mut err, terminal };
    cli::main(&Linked(desc), name, words.get(1..).unwrap_or_default(), &mut console)
}
