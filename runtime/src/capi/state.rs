//! Variables, state files and checkpoints.

use super::{END, Handle, guard, model, null, number, text};
use crate::checkpoint::{self, Save};
use crate::cli::statefile;
use crate::error::{Error, Result};
use crate::model::Model;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

/// Number of the variable of this name, or -1.
///
/// # Safety
/// `handle` is live, `name` a string.
pub unsafe extern "C" fn var_index(handle: *const Handle, name: *const c_char) -> c_int {
    number(|| {
        // SAFETY: the caller's promise.
        let (m, name) = unsafe { (model(handle)?, text(name, "the name")?) };
        let unknown = || Error::data("E0605", format!("there is no variable `{name}`"));
        Ok(m.model.var(name).ok_or_else(unknown)? as c_int)
    })
}

fn var_at(var: c_int) -> usize {
    usize::try_from(var).unwrap_or(usize::MAX)
}

/// Copies a variable to `data`, which has `bytes` bytes: exactly its size.
///
/// # Safety
/// `handle` is live; `data` has `bytes` bytes.
pub unsafe extern "C" fn var_get(
    handle: *const Handle,
    var: c_int,
    data: *mut c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let m = &unsafe { model(handle) }?.model;
        let t = m.read_var(var_at(var))?;
        check_memory(m, var, t.bytes().len(), data, bytes)?;
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
/// `handle` is live; `data` has `bytes` bytes.
pub unsafe extern "C" fn var_set(
    handle: *const Handle,
    var: c_int,
    data: *const c_void,
    bytes: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise, here and below.
        let m = &unsafe { model(handle) }?.model;
        let mut t = m.read_var(var_at(var))?;
        check_memory(m, var, t.bytes().len(), data, bytes)?;
        if bytes > 0 {
            // SAFETY: as above.
            let given = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes) };
            t.bytes_mut().copy_from_slice(given);
        }
        m.write_var(var_at(var), t.view())
    })
}

fn check_memory(m: &Model, var: c_int, is: usize, data: *const c_void, given: usize) -> Result<()> {
    let name = m.plan().vars.get(var_at(var)).map_or("?", |v| v.name.as_str());
    if is != given {
        let message = format!("variable `{name}` has {is} bytes, but {given} were given");
        return Err(Error::data("E0604", message));
    }
    if data.is_null() && is > 0 {
        return Err(null(&format!("the memory for variable `{name}`")));
    }
    Ok(())
}

/// Gives every variable its initial value, empties queues and takes readers back
/// to their first record. Stops the runners.
///
/// # Safety
/// `handle` is live.
pub unsafe extern "C" fn reset(handle: *const Handle) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let m = unsafe { model(handle) }?;
        m.runners.stop()?;
        m.model.init()
    })
}

/// Writes every variable to a safetensors file, atomically.
///
/// # Safety
/// `handle` is live, `path` a string.
pub unsafe extern "C" fn save(handle: *const Handle, path: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (m, path) = unsafe { (model(handle)?, text(path, "the path")?) };
        statefile::save(&m.model, Path::new(path))
    })
}

/// Reads every variable from a safetensors file.
///
/// # Safety
/// `handle` is live, `path` a string.
pub unsafe extern "C" fn restore(handle: *const Handle, path: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (m, path) = unsafe { (model(handle)?, text(path, "the path")?) };
        checkpoint::load_exact(&m.model, Path::new(path)).map(drop)
    })
}

/// Saves all variables, and how far the data was used, as the checkpoint of a
/// step. Of older ones, the newest `keep` in all are kept (0: five).
///
/// # Safety
/// `handle` is live, `dir` a string.
pub unsafe extern "C" fn checkpoint_save(
    handle: *const Handle,
    dir: *const c_char,
    step: u64,
    keep: usize,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (m, dir) = unsafe { (model(handle)?, text(dir, "the directory")?) };
        let keep = if keep == 0 { checkpoint::DEFAULT_KEEP } else { keep };
        let what = Save { step, keep, ..Save::default() };
        checkpoint::save(&m.model, Path::new(dir), &what).map(drop)
    })
}

/// Goes back to the newest good checkpoint of this graph in a directory, and
/// writes its step to `step` unless that is null. Stops the runners. [`END`] if
/// the directory holds no checkpoint.
///
/// # Safety
/// `handle` is live, `dir` a string, `step` null or a place for a number.
pub unsafe extern "C" fn checkpoint_restore(
    handle: *const Handle,
    dir: *const c_char,
    step: *mut u64,
) -> c_int {
    let mut none = false;
    let status = guard(|| {
        // SAFETY: the caller's promise, here and below.
        let (m, dir) = unsafe { (model(handle)?, text(dir, "the directory")?) };
        let newest = checkpoint::newest(Path::new(dir), m.model.plan())?;
        let Some((manifest, path)) = newest.found else {
            none = true;
            return Ok(());
        };
        m.runners.stop()?;
        checkpoint::resume(&m.model, &manifest, &path)?;
        if !step.is_null() {
            // SAFETY: as above.
            unsafe { *step = manifest.step };
        }
        Ok(())
    });
    if none { END } else { status }
}
