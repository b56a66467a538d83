//! Variables: their memory, and who may touch it when.
//!
//! A call takes all the variables its entry uses before its first step and gives
//! them back after its last: shared with other readers for those it only reads,
//! exclusive for those it writes. So any number of `predict` calls run side by
//! side, a `train` call waits for them and runs alone on what it writes, and
//! every call sees variables as some whole number of calls left them.
//!
//! Calls that cannot run at once wait in line. Nobody overtakes a call that
//! waits for the same variables, unless both only read them: readers and writers
//! take turns, and a call waits for no more calls than were there before it.
//!
//! A call may also ask for *images*: copies of variables as they were between
//! two calls. It then holds nothing while it runs, and waits for nobody but the
//! copying. A call that writes a variable leaves an image of the old value while
//! somebody has asked for one lately.
//!
//! Invariants
//! - All of a call's variables are taken at once or none: no call waits while
//!   it holds some, so calls cannot deadlock.
//! - Lists of variables are sorted, and no variable is in both.
//! - `version` of a variable grows with every call that may have written it; an
//!   image is of the version it says.

use crate::call::{Bell, CallOptions, PLAIN};
use crate::device::{Accelerator, Memory};
use crate::error::{Error, Result};
use crate::mem::Bytes;
use crate::numerics;
use crate::tensor::{FeedView, TensorBuf, byte_len, type_text};
use std::borrow::Cow;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use tfc_abi::DType;
use tfc_abi::plan::{DeviceId, HOST, Plan, VarInfo};

/// How many writes of a variable leave an image after somebody asked for one.
const WANTED: u32 = 64;

pub struct State {
    vars: Vec<Var>,
    /// Who has the variables that are not here.
    accelerator: Option<Arc<dyn Accelerator>>,
    gate: Arc<Gate>,
    /// Grows when variables get other memory.
    moves: AtomicU64,
}

struct Var {
    /// Looked at by those who hold the variable, replaced by whoever holds it
    /// exclusively.
    memory: UnsafeCell<Storage>,
    bytes: usize,
    shape: Vec<usize>,
    /// It began with an infinity, or was restored with one, so that it may have one.
    infinite: AtomicBool,
}

/// Where a variable is.
enum Storage {
    Here(Bytes),
    /// On another device.
    There(DeviceId, Box<dyn Memory>),
}

// SAFETY: see `memory`; the lock table keeps holders apart.
unsafe impl Sync for Var {}

/// What calls wait at.
struct Gate {
    table: Mutex<Table>,
    freed: Condvar,
}

struct Table {
    locks: Vec<Lock>,
    /// In the order they came.
    line: VecDeque<Waiting>,
    next: u64,
}

#[derive(Default)]
struct Lock {
    readers: u32,
    writer: bool,
    version: u64,
    image: Option<(u64, Arc<Bytes>)>,
    /// Writes that still leave an image.
    wanted: u32,
}

struct Waiting {
    number: u64,
    reads: Vec<u32>,
    writes: Vec<u32>,
}

/// The variables of one call; releases them when dropped.
pub struct Held<'a> {
    state: &'a State,
    reads: &'a [u32],
    writes: &'a [u32],
}

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bell for Gate {
    fn ring(&self) {
        drop(self.lock());
        self.freed.notify_all();
    }
}

/// Memory for a variable, all zeros.
fn zeros(
    accelerator: Option<&Arc<dyn Accelerator>>,
    device: DeviceId,
    len: usize,
) -> Result<Storage> {
    let Some(accelerator) = accelerator.filter(|_| device != HOST) else {
        return Ok(Storage::Here(Bytes::zeroed(len)?));
    };
    let memory = accelerator.allocate(device, len)?;
    // SAFETY: the memory is new, and has this many bytes.
    unsafe { accelerator.write(device, &vec![0; len], memory.start()) }?;
    Ok(Storage::There(device, memory))
}

/// Whether two sorted lists share a member.
fn meet(a: &[u32], b: &[u32]) -> bool {
    let (mut i, mut j) = (0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        match x.cmp(y) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => return true,
        }
    }
    false
}

impl Table {
    /// Whether call number `me` may have these now: they are free, and nobody who
    /// came earlier waits for them.
    fn grants(&self, me: u64, reads: &[u32], writes: &[u32]) -> bool {
        reads.iter().all(|v| !self.locks[*v as usize].writer)
            && writes.iter().all(|v| {
                let l = &self.locks[*v as usize];
                !l.writer && l.readers == 0
            })
            && self.line.iter().take_while(|w| w.number < me).all(|w| {
                !meet(&w.writes, reads) && !meet(&w.writes, writes) && !meet(&w.reads, writes)
            })
    }

    /// Marks them as taken. Says whether some need an image first.
    fn take(&mut self, reads: &[u32], writes: &[u32]) -> bool {
        for v in reads {
            self.locks[*v as usize].readers += 1;
        }
        let mut images = false;
        for v in writes {
            let l = &mut self.locks[*v as usize];
            l.writer = true;
            if l.wanted > 0 {
                l.wanted -= 1;
                if l.wanted == 0 {
                    l.image = None;
                }
                images |= l.wanted > 0 && !l.pictured();
            }
        }
        images
    }

    fn leave_line(&mut self, number: u64) {
        self.line.retain(|w| w.number != number);
    }
}

impl Lock {
    /// There is an image of the last complete version.
    fn pictured(&self) -> bool {
        self.image.as_ref().is_some_and(|(version, _)| *version == self.version)
    }
}

impl State {
    /// `bare` is for programs of whose variables little will be used here.
    pub(crate) fn new(
        plan: &Plan,
        accelerator: Option<&Arc<dyn Accelerator>>,
        bare: bool,
    ) -> Result<State> {
        let devices = plan.var_devices().map_err(Error::bug)?;
        let vars = (plan.vars.iter().zip(devices))
            .map(|(v, device)| {
                let shape: Option<Vec<usize>> =
                    v.shape.iter().map(|d| usize::try_from(*d).ok()).collect();
                let shape = shape.ok_or_else(|| Error::bug("a variable has a negative size"))?;
                let len = byte_len(v.dtype, &shape)
                    .ok_or_else(|| Error::bug("a variable is too large"))?;
                let memory = match bare && device == HOST {
                    true => Bytes::untouched(len).map(Storage::Here).map_err(Error::from),
                    false => zeros(accelerator, device, len),
                };
                let memory = memory.map_err(|e| {
                    e.note(format!("variable `{}` is {}", v.name, type_text(v.dtype, &shape)))
                })?;
                let infinite = AtomicBool::new(false);
                Ok(Var { memory: UnsafeCell::new(memory), bytes: len, shape, infinite })
            })
            .collect::<Result<Vec<_>>>()?;
        let locks = vars.iter().map(|_| Lock::default()).collect();
        let table = Mutex::new(Table { locks, line: VecDeque::new(), next: 0 });
        let gate = Arc::new(Gate { table, freed: Condvar::new() });
        let accelerator = accelerator.cloned();
        Ok(State { vars, accelerator, gate, moves: AtomicU64::new(0) })
    }

    /// Takes `reads` shared and `writes` exclusively; they must be disjoint,
    /// sorted and in range. Fails only if the call is stopped meanwhile.
    pub fn hold<'a>(
        &'a self,
        reads: &'a [u32],
        writes: &'a [u32],
        options: &CallOptions,
    ) -> Result<Held<'a>> {
        match self.acquire(reads, writes, options) {
            None => Ok(Held { state: self, reads, writes }),
            Some(e) => Err(e),
        }
    }

    /// As [`State::hold`], for as long as it takes.
    pub fn hold_plain<'a>(&'a self, reads: &'a [u32], writes: &'a [u32]) -> Held<'a> {
        // Nobody stops a plain call.
        let _ = self.acquire(reads, writes, PLAIN);
        Held { state: self, reads, writes }
    }

    /// Why the variables were not taken; none if they were.
    fn acquire(&self, reads: &[u32], writes: &[u32], options: &CallOptions) -> Option<Error> {
        if reads.is_empty() && writes.is_empty() {
            return None;
        }
        let mut table = self.gate.lock();
        if table.grants(u64::MAX, reads, writes) {
            if table.take(reads, writes) {
                self.picture(table, writes);
            }
            return None;
        }
        drop(table);
        let _watch = options.watch(&self.gate);
        let mut table = self.gate.lock();
        let number = table.next;
        table.next += 1;
        table.line.push_back(Waiting { number, reads: reads.to_vec(), writes: writes.to_vec() });
        while !table.grants(number, reads, writes) {
            if let Some(e) = options.stopped() {
                table.leave_line(number);
                drop(table);
                // Somebody may have waited for this call alone.
                self.gate.freed.notify_all();
                return Some(e);
            }
            table = options.wait(&self.gate.freed, table);
        }
        table.leave_line(number);
        if table.take(reads, writes) {
            self.picture(table, writes);
        }
        None
    }

    /// Leaves images of variables that are about to be written. Without memory
    /// for them there are none, and who wants them waits.
    #[cold]
    fn picture(&self, table: MutexGuard<'_, Table>, writes: &[u32]) {
        let wanted = |l: &Lock| l.wanted > 0 && !l.pictured();
        let list: Vec<usize> =
            writes.iter().map(|v| *v as usize).filter(|v| wanted(&table.locks[*v])).collect();
        drop(table);
        let images: Vec<_> = list.iter().map(|v| self.copy_of(*v)).collect();
        let mut table = self.gate.lock();
        for (v, image) in list.into_iter().zip(images) {
            let l = &mut table.locks[v];
            l.image = image.ok().map(|bytes| (l.version, bytes));
        }
        drop(table);
        self.gate.freed.notify_all();
    }

    /// The variable is held.
    fn copy_of(&self, var: usize) -> Result<Arc<Bytes>> {
        Ok(Arc::new(Bytes::from_slice(&self.contents(var)?)?))
    }

    /// Images of these variables, all as they were at one moment between two
    /// calls. Waits for a writer only if it left no image.
    pub fn images(&self, vars: &[u32], options: &CallOptions) -> Result<Vec<Arc<Bytes>>> {
        let _watch = options.watch(&self.gate);
        let mut table = self.gate.lock();
        for v in vars {
            table.locks[*v as usize].wanted = WANTED;
        }
        loop {
            let ready = |l: &Lock| !l.writer || l.pictured();
            if vars.iter().all(|v| ready(&table.locks[*v as usize])) {
                break;
            }
            options.check()?;
            table = options.wait(&self.gate.freed, table);
        }
        let mut out: Vec<Option<Arc<Bytes>>> = vec![];
        let mut copied: Vec<u32> = vec![];
        for v in vars {
            let l = &mut table.locks[*v as usize];
            let known = l.pictured();
            out.push(l.image.as_ref().filter(|_| known).map(|(_, bytes)| bytes.clone()));
            if !known {
                l.readers += 1;
                copied.push(*v);
            }
        }
        drop(table);
        let copies = Held { state: self, reads: &copied, writes: &[] };
        for (v, place) in vars.iter().zip(&mut out).filter(|(_, place)| place.is_none()) {
            let image = self.copy_of(*v as usize)?;
            let mut table = self.gate.lock();
            let l = &mut table.locks[*v as usize];
            l.image = Some((l.version, image.clone()));
            *place = Some(image);
        }
        drop(copies);
        Ok(out.into_iter().flatten().collect())
    }

    /// Calls that wait for variables.
    #[cfg(test)]
    fn in_line(&self) -> usize {
        self.gate.lock().line.len()
    }

    pub fn shape(&self, var: usize) -> &[usize] {
        &self.vars[var].shape
    }

    pub fn byte_len(&self, var: usize) -> usize {
        self.vars[var].bytes
    }

    /// The variable's memory, for whoever holds the variable; to write through
    /// it, exclusively. It is another one when [`State::moves`] has grown. Of a variable
    /// on another device, it is an address of that device.
    pub fn ptr(&self, var: usize) -> *mut u8 {
        match self.place(var) {
            Storage::Here(bytes) => bytes.as_ptr(),
            Storage::There(_, memory) => memory.start(),
        }
    }

    /// As [`State::ptr`].
    fn place(&self, var: usize) -> &Storage {
        // SAFETY: the caller holds the variable, so nobody replaces its memory.
        unsafe { &*self.vars[var].memory.get() }
    }

    /// The variable's value, for whoever holds the variable; copied if it is elsewhere.
    pub(crate) fn contents(&self, var: usize) -> Result<Cow<'_, [u8]>> {
        match (self.place(var), &self.accelerator) {
            (Storage::Here(bytes), _) => Ok(Cow::Borrowed(bytes)),
            (Storage::There(device, memory), Some(accelerator)) => {
                let mut bytes = vec![0; self.byte_len(var)];
                // SAFETY: the memory has this many bytes, and who holds it does not write.
                unsafe { accelerator.read(*device, memory.start(), &mut bytes) }?;
                Ok(Cow::Owned(bytes))
            }
            _ => Err(Error::bug("a variable is on a device that is not there")),
        }
    }

    /// Replaces the variable's value, for whoever holds it exclusively.
    pub(crate) fn put(&self, var: usize, value: &[u8]) -> Result<()> {
        if value.len() != self.byte_len(var) {
            return Err(Error::bug("a value's memory has the wrong size"));
        }
        match (self.place(var), &self.accelerator) {
            (Storage::Here(bytes), _) => {
                // SAFETY: the memory has this many bytes, and is the holder's alone.
                unsafe { bytes.as_ptr().copy_from_nonoverlapping(value.as_ptr(), value.len()) };
                Ok(())
            }
            (Storage::There(device, memory), Some(accelerator)) => {
                // SAFETY: as above.
                unsafe { accelerator.write(*device, value, memory.start()) }
            }
            _ => Err(Error::bug("a variable is on a device that is not there")),
        }
    }

    /// How often variables got other memory.
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// How many calls may have written the variable so far.
    pub fn version(&self, var: usize) -> u64 {
        self.gate.lock().locks[var].version
    }

    /// Remembers which variables hold infinities as they are: those mean something.
    pub(crate) fn accept_infinities(
        &self,
        infos: &[VarInfo],
        of: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let all: Vec<u32> = (0..self.vars.len() as u32).collect();
        let _held = self.hold_plain(&all, &[]);
        for (i, (info, var)) in infos.iter().zip(&self.vars).enumerate().filter(|(i, _)| of(*i)) {
            let finite = numerics::all_finite(info.dtype, &self.contents(i)?);
            var.infinite.store(!finite, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Why some of these variables should not be saved, which hold this.
    pub(crate) fn unfit(
        &self,
        infos: &[VarInfo],
        vars: &[u32],
        views: &[(&str, FeedView<'_>)],
    ) -> Option<Error> {
        vars.iter().zip(views).find_map(|(v, (_, view))| {
            let (info, var) = (&infos[*v as usize], &self.vars[*v as usize]);
            let (shape, bytes) = (var.shape.clone(), view.data);
            let tensor = numerics::Tensor { dtype: info.dtype, shape, bytes };
            numerics::unfit(&info.name, &tensor, var.infinite.load(Ordering::Relaxed))
        })
    }

    /// A copy of a variable.
    pub fn read(&self, infos: &[VarInfo], var: usize) -> Result<TensorBuf> {
        let ids = [var as u32];
        let _held = self.hold_plain(&ids, &[]);
        TensorBuf::from_bytes(infos[var].dtype, self.shape(var), &self.contents(var)?)
            .ok_or_else(|| Error::bug("a variable's memory has the wrong size"))
    }

    /// Overwrites a variable; the dtype and the shape must be its own.
    pub fn write(&self, infos: &[VarInfo], var: usize, value: FeedView<'_>) -> Result<()> {
        self.check(&infos[var], var, value.dtype, value.shape)?;
        let ids = [var as u32];
        let _held = self.hold_plain(&[], &ids);
        self.put(var, value.data)
    }

    /// Makes a variable zero, and gives back its memory if it was made to be used in
    /// part.
    pub fn forget(&self, var: usize) -> Result<()> {
        let ids = [var as u32];
        let _held = self.hold_plain(&[], &ids);
        // SAFETY: the variable is held exclusively, so nobody looks at its memory.
        match unsafe { &mut *self.vars[var].memory.get() } {
            Storage::Here(bytes) => {
                bytes.forget();
                Ok(())
            }
            Storage::There(..) => self.put(var, &vec![0; self.byte_len(var)]),
        }
    }

    /// Lends a variable.
    pub fn with<T>(&self, var: usize, use_it: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let ids = [var as u32];
        let _held = self.hold_plain(&ids, &[]);
        Ok(use_it(&self.contents(var)?))
    }

    /// Overwrites some rows of a variable.
    pub fn write_rows(&self, var: usize, rows: &[usize], data: &[u8]) -> Result<()> {
        let all = self.shape(var).first().copied().unwrap_or(0);
        let width = self.byte_len(var).checked_div(all).unwrap_or(0);
        if rows.iter().any(|r| *r >= all) || rows.len().checked_mul(width) != Some(data.len()) {
            return Err(Error::data("E0604", "these are not rows of the variable"));
        }
        let ids = [var as u32];
        let _held = self.hold_plain(&[], &ids);
        let each = rows.iter().enumerate().map(|(i, r)| (r * width, i * width));
        if let Storage::Here(bytes) = self.place(var) {
            for (to, from) in each {
                // SAFETY: the row is within the memory, which is the holder's alone.
                unsafe {
                    let to = bytes.as_ptr().add(to);
                    to.copy_from_nonoverlapping(data[from..].as_ptr(), width);
                }
            }
            return Ok(());
        }
        let mut whole = self.contents(var)?.into_owned();
        for (to, from) in each {
            whole[to..to + width].copy_from_slice(&data[from..from + width]);
        }
        self.put(var, &whole)
    }

    /// Overwrites several variables at once: no call sees some of them old and
    /// some new. Nothing changes unless all values fit. The values' memory becomes
    /// the variables'.
    pub fn replace(&self, infos: &[VarInfo], values: Vec<(usize, TensorBuf)>) -> Result<()> {
        for (var, value) in &values {
            self.check(&infos[*var], *var, value.dtype, &value.shape)?;
        }
        let mut ids: Vec<u32> = values.iter().map(|(var, _)| *var as u32).collect();
        ids.sort_unstable();
        ids.dedup();
        let _held = self.hold_plain(&[], &ids);
        for (var, value) in values {
            if let Storage::There(..) = self.place(var) {
                self.put(var, value.bytes())?;
                continue;
            }
            // SAFETY: the variable is held exclusively: nobody looks at its
            // memory. The new one has as many bytes, being of the same type.
            unsafe { *self.vars[var].memory.get() = Storage::Here(value.into_bytes()) };
        }
        self.moves.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    fn check(&self, info: &VarInfo, var: usize, dtype: DType, shape: &[usize]) -> Result<()> {
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
        Ok(())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.reads.is_empty() && self.writes.is_empty() {
            return;
        }
        let mut table = self.state.gate.lock();
        for v in self.reads {
            table.locks[*v as usize].readers -= 1;
        }
        let mut wanted = !table.line.is_empty();
        for v in self.writes {
            let l = &mut table.locks[*v as usize];
            l.writer = false;
            l.version += 1;
            wanted |= l.wanted > 0;
        }
        drop(table);
        if wanted {
            self.state.gate.freed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tfc_abi::DType;

    fn state_of(infos: &[VarInfo]) -> State {
        State::new(&Plan { vars: infos.to_vec(), ..Plan::default() }, None, false).unwrap()
    }

    fn infos(n: usize) -> Vec<VarInfo> {
        (0..n)
            .map(|i| VarInfo {
                name: format!("v{i}"),
                dtype: DType::I64,
                shape: vec![2],
                user: true,
                random: false,
                zero: false,
                task: 0,
                asked: None,
            })
            .collect()
    }

    #[test]
    fn reads_and_writes_check_types() {
        let infos = infos(2);
        let state = state_of(&infos);
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
        let state = state_of(&infos);
        std::thread::scope(|s| {
            for t in 0..4u32 {
                let state = &state;
                s.spawn(move || {
                    for i in 0..500u32 {
                        let w = [(t + i) % 3];
                        let r = [(t + i + 1) % 3];
                        let held = if i % 3 == 0 {
                            state.hold_plain(&r, &w)
                        } else {
                            state.hold_plain(&w, &[])
                        };
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

    /// Waits until so many calls are in line.
    fn until_in_line(state: &State, count: usize) {
        while state.in_line() < count {
            std::thread::yield_now();
        }
    }

    // embedding 4: writers starved readers.
    #[test]
    fn calls_get_their_turn_in_the_order_they_came() {
        let state = state_of(&infos(1));
        let (v, none) = ([0u32], []);
        // A writer, two readers, a writer and a reader come while another writes.
        let writes = [true, false, false, true, false];
        let order = Mutex::new(vec![]);
        let first = state.hold_plain(&none, &v);
        std::thread::scope(|s| {
            for (i, write) in writes.into_iter().enumerate() {
                let (state, order) = (&state, &order);
                s.spawn(move || {
                    let (reads, writes) =
                        if write { (&none[..], &v[..]) } else { (&v[..], &none[..]) };
                    let held = state.hold_plain(reads, writes);
                    order.lock().unwrap().push(i);
                    drop(held);
                });
                until_in_line(state, i + 1);
            }
            drop(first);
        });
        let mut order = order.into_inner().unwrap();
        // The two readers run side by side.
        order[1..3].sort_unstable();
        assert_eq!(order, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn who_does_not_compete_does_not_wait() {
        let state = state_of(&infos(2));
        let first = state.hold_plain(&[], &[0]);
        std::thread::scope(|s| {
            s.spawn(|| drop(state.hold_plain(&[0], &[])));
            until_in_line(&state, 1);
            drop(state.hold_plain(&[], &[1]));
            drop(first);
        });
        assert_eq!((state.version(0), state.version(1)), (1, 1));
    }

    #[test]
    fn a_cancelled_wait_leaves_the_line() {
        let state = state_of(&infos(1));
        let token = crate::call::CancelToken::new();
        let first = state.hold_plain(&[0], &[]);
        std::thread::scope(|s| {
            let options = CallOptions::new().cancel(&token);
            let state = &state;
            let waits = s.spawn(move || state.hold(&[], &[0], &options).map(drop));
            until_in_line(state, 1);
            // Behind the writer, and free when that gives up.
            let reads = s.spawn(|| drop(state.hold_plain(&[0], &[])));
            until_in_line(state, 2);
            token.cancel();
            assert_eq!(waits.join().unwrap().unwrap_err().code(), "E0524");
            reads.join().unwrap();
        });
        drop(first);
        let past = CallOptions::new().deadline(std::time::Instant::now());
        let _reader = state.hold_plain(&[0], &[]);
        assert_eq!(state.hold(&[], &[0], &past).map(drop).unwrap_err().code(), "E0525");
        assert_eq!(state.in_line(), 0);
    }

    #[test]
    fn images_are_the_last_complete_version() {
        let infos = infos(2);
        let state = state_of(&infos);
        let seven = TensorBuf::from_slice(&[2], &[7i64, 7]).unwrap();
        assert_eq!(state.images(&[0, 1], PLAIN).unwrap().len(), 2);
        let held = state.hold_plain(&[], &[0]);
        // SAFETY: the variable is held exclusively; it has two elements.
        unsafe { *state.ptr(0).cast::<i64>() = 3 };
        // Being written: the version before. Not being written: the present one.
        state.write(&infos, 1, seven.view()).unwrap();
        let images = state.images(&[0, 1], PLAIN).unwrap();
        assert_eq!(images[0][..], [0; 16]);
        assert_eq!(images[1][..], *seven.bytes());
        drop(held);
        let images = state.images(&[0], PLAIN).unwrap();
        assert_eq!(images[0][..8], 3i64.to_ne_bytes());
        // When nobody asks any more, nothing is copied any more.
        for _ in 0..=WANTED {
            drop(state.hold_plain(&[], &[0, 1]));
        }
        assert!(state.gate.lock().locks.iter().all(|l| l.image.is_none() && l.wanted == 0));
    }
}
