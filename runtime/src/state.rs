//! Variables: their memory, and who may touch it when.
//!
//! A call takes all the variables its entry uses before its first step and gives
//! them back after its last: shared with other readers for those it only reads,
//! exclusive for those it writes. So any number of `predict` calls run side by
//! side, a `train` call waits for them and runs alone on what it writes, and
//! every call sees variables as some whole number of calls left them.
//!
//! Invariants
//! - All of a call's variables are taken at once or none: no call waits while
//!   it holds some, so calls cannot deadlock.
//! - A waiting writer holds off new calls that only read, so it gets its turn.
//! - `version` of a variable grows with every call that may have written it.

use crate::error::{Error, Result};
use crate::mem::Bytes;
use crate::tensor::{FeedView, TensorBuf, byte_len, type_text};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use tfc_abi::DType;
use tfc_abi::plan::VarInfo;

pub struct State {
    vars: Vec<Var>,
    locks: Mutex<Vec<Lock>>,
    freed: Condvar,
}

struct Var {
    memory: Bytes,
    shape: Vec<usize>,
    version: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Lock {
    readers: u32,
    writer: bool,
    waiting_writers: u32,
}

/// The variables of one call; releases them when dropped.
pub struct Held<'a> {
    state: &'a State,
    reads: &'a [u32],
    writes: &'a [u32],
}

impl State {
    pub fn new(infos: &[VarInfo]) -> Result<State> {
        let vars = infos
            .iter()
            .map(|v| {
                let shape: Option<Vec<usize>> =
                    v.shape.iter().map(|d| usize::try_from(*d).ok()).collect();
                let shape = shape.ok_or_else(|| Error::bug("a variable has a negative size"))?;
                let len = byte_len(v.dtype, &shape)
                    .ok_or_else(|| Error::bug("a variable is too large"))?;
                let memory = Bytes::zeroed(len).map_err(|e| {
                    e.note(format!("variable `{}` is {}", v.name, type_text(v.dtype, &shape)))
                })?;
                Ok(Var { memory, shape, version: AtomicU64::new(0) })
            })
            .collect::<Result<Vec<_>>>()?;
        let locks = Mutex::new(vec![Lock::default(); vars.len()]);
        Ok(State { vars, locks, freed: Condvar::new() })
    }

    /// Takes `reads` shared and `writes` exclusively; they must be disjoint and
    /// in range.
    pub fn hold<'a>(&'a self, reads: &'a [u32], writes: &'a [u32]) -> Held<'a> {
        let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
        let mut queued = false;
        loop {
            let free_to_read = reads.iter().all(|v| {
                let l = &locks[*v as usize];
                // A call that writes yields to nobody, or two such calls that
                // read what the other writes would wait for each other.
                !l.writer && (l.waiting_writers == 0 || !writes.is_empty())
            });
            let free_to_write = writes.iter().all(|v| {
                let l = &locks[*v as usize];
                !l.writer && l.readers == 0
            });
            if free_to_read && free_to_write {
                break;
            }
            if !queued {
                queued = true;
                writes.iter().for_each(|v| locks[*v as usize].waiting_writers += 1);
            }
            locks = self.freed.wait(locks).unwrap_or_else(PoisonError::into_inner);
        }
        for v in reads {
            locks[*v as usize].readers += 1;
        }
        for v in writes {
            let l = &mut locks[*v as usize];
            l.writer = true;
            l.waiting_writers -= u32::from(queued);
        }
        Held { state: self, reads, writes }
    }

    pub fn shape(&self, var: usize) -> &[usize] {
        &self.vars[var].shape
    }

    pub fn byte_len(&self, var: usize) -> usize {
        self.vars[var].memory.len()
    }

    /// The variable's memory. Whoever writes through it must hold the variable
    /// exclusively, whoever reads must hold it at all.
    pub fn ptr(&self, var: usize) -> *mut u8 {
        self.vars[var].memory.as_ptr()
    }

    pub fn version(&self, var: usize) -> u64 {
        self.vars[var].version.load(Ordering::Acquire)
    }

    /// The variables themselves, while all of them are held.
    pub fn views<'a>(
        &'a self,
        infos: &'a [VarInfo],
        held: &'a Held<'_>,
    ) -> impl Iterator<Item = FeedView<'a>> {
        debug_assert_eq!(held.reads.len(), self.vars.len());
        infos.iter().zip(&self.vars).map(|(info, var)| FeedView {
            dtype: info.dtype,
            shape: &var.shape,
            data: &var.memory,
        })
    }

    /// A copy of a variable.
    pub fn read(&self, infos: &[VarInfo], var: usize) -> Result<TensorBuf> {
        let ids = [var as u32];
        let _held = self.hold(&ids, &[]);
        TensorBuf::from_bytes(infos[var].dtype, self.shape(var), &self.vars[var].memory)
            .ok_or_else(|| Error::bug("a variable's memory has the wrong size"))
    }

    /// Overwrites a variable; the dtype and the shape must be its own.
    pub fn write(&self, infos: &[VarInfo], var: usize, value: FeedView<'_>) -> Result<()> {
        self.fill(infos, var, value.dtype, value.shape, |bytes| {
            if bytes.len() != value.data.len() {
                return Err(Error::bug("a value's memory has the wrong size"));
            }
            bytes.copy_from_slice(value.data);
            Ok(())
        })
    }

    /// As [`State::write`], by something that fills the variable's own memory.
    pub fn fill(
        &self,
        infos: &[VarInfo],
        var: usize,
        dtype: DType,
        shape: &[usize],
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let info = &infos[var];
        if dtype != info.dtype || shape != self.shape(var) {
            return Err(Error::data(
                "E0604",
                format!(
                    "variable `{}` is {}, but was given {}",
                    info.name,
                    type_text(info.dtype, self.shape(var)),
                    type_text(dtype, shape)
                ),
            ));
        }
        let ids = [var as u32];
        let _held = self.hold(&[], &ids);
        // SAFETY: the variable is held exclusively, and its memory is this long.
        fill(unsafe { std::slice::from_raw_parts_mut(self.ptr(var), self.byte_len(var)) })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut locks = self.state.locks.lock().unwrap_or_else(PoisonError::into_inner);
        for v in self.reads {
            locks[*v as usize].readers -= 1;
        }
        for v in self.writes {
            locks[*v as usize].writer = false;
            self.state.vars[*v as usize].version.fetch_add(1, Ordering::AcqRel);
        }
        drop(locks);
        self.state.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tfc_abi::DType;

    fn infos(n: usize) -> Vec<VarInfo> {
        (0..n)
            .map(|i| VarInfo {
                name: format!("v{i}"),
                dtype: DType::I64,
                shape: vec![2],
                user: true,
            })
            .collect()
    }

    #[test]
    fn reads_and_writes_check_types() {
        let infos = infos(2);
        let state = State::new(&infos).unwrap();
        let t = TensorBuf::from_slice(&[2], &[3i64, 4]).unwrap();
        state.write(&infos, 1, t.view()).unwrap();
        assert_eq!(state.read(&infos, 1).unwrap(), t);
        assert_eq!(state.version(1), 1);
        let wrong = TensorBuf::from_slice(&[1], &[3i64]).unwrap();
        let e = state.write(&infos, 1, wrong.view()).unwrap_err();
        assert_eq!(e.message(), "variable `v1` is i64[2], but was given i64[1]");
    }

    #[test]
    fn writers_exclude_everybody() {
        let infos = infos(3);
        let state = State::new(&infos).unwrap();
        std::thread::scope(|s| {
            for t in 0..4u32 {
                let state = &state;
                s.spawn(move || {
                    for i in 0..500u32 {
                        let w = [(t + i) % 3];
                        let r = [(t + i + 1) % 3];
                        let held =
                            if i % 3 == 0 { state.hold(&r, &w) } else { state.hold(&w, &[]) };
                        let p = state.ptr(w[0] as usize).cast::<i64>();
                        // SAFETY: the variable is held; it has two elements.
                        unsafe {
                            assert_eq!(*p, *p.add(1));
                            if i % 3 == 0 {
                                *p += 1;
                                std::thread::yield_now();
                                *p.add(1) += 1;
                            }
                        }
                        drop(held);
                    }
                });
            }
        });
        let sum: i64 =
            (0..3).map(|v| state.read(&infos, v).unwrap().as_slice::<i64>().unwrap()[0]).sum();
        assert_eq!(sum, 4 * 167);
    }
}
