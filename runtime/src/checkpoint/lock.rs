//! One process at a time saves to a directory.
//!
//! The lock is the operating system's, on the directory itself: it goes with the
//! process that holds it, so that none is ever left behind.

use crate::error::{Error, Result};
use crate::files::{Links, Staged, sync_dir};
use crate::io::cannot_write;
use std::fs::{File, TryLockError};
use std::path::Path;

/// Held until dropped.
#[derive(Debug)]
pub struct Lock {
    _dir: File,
}

/// Makes the directory if need be, checks that files can be written to it, and
/// keeps other processes from saving there. None where the file system knows no
/// locks.
pub fn lock(dir: &Path) -> Result<Option<Lock>> {
    if !dir.is_dir() {
        let made = std::fs::create_dir_all(dir).and_then(|()| sync_dir(dir));
        made.map_err(|e| cannot_write(dir, &e))?;
    }
    Staged::new(&dir.join("step-probe"), Links::Replace).map(drop)?;
    let Ok(file) = File::open(dir) else { return Ok(None) };
    match file.try_lock() {
        Ok(()) => Ok(Some(Lock { _dir: file })),
        Err(TryLockError::WouldBlock) => {
            let text = format!("another run saves its checkpoints in `{}`", dir.display());
            Err(Error::io("E0590", text)
                .note("two runs would overwrite and remove each other's")
                .help("wait for it, or stop it, or choose another directory"))
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}
