//! A program that was cut for a cluster, run by all its tasks.
//!
//! The first task, the chief, is who calls: before it runs its own part of an entry it
//! tells the others which entry it is and how large the feeds are, and afterwards it
//! waits until each says that its part is done. In between, the parts talk to each
//! other with the sends and receives of the plan. The others do nothing but this
//! ([`Model::serve`]). Variables are their tasks'; the chief asks for them when they
//! are saved or read, and sends those that were restored before the others joined.
//!
//! A task whose part fails says so and ends. The chief, or whoever waits for a tensor
//! of it, then fails too: a step that was not finished by all is not a step, and the
//! last checkpoint is where to go on from.

use crate::error::{Error, ErrorCode, Result};
use crate::model::Model;
use crate::net::Group;
use crate::tensor::{FeedView, TensorBuf};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tfc_abi::plan::{Message, Step};

/// What the chief asks of a task: a word, a number and the length of what follows.
const ORDER: usize = 24;
/// The longest that may follow, other than a variable.
const LONGEST: usize = 1 << 16;
/// Sizes of a feed.
const AXES: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
enum Order {
    /// Run your part of this entry; the feeds' sizes follow.
    Call = 1,
    /// Send this variable.
    Read = 2,
    /// Set this variable to what follows.
    Write = 3,
    /// There is nothing more to do.
    Leave = 4,
}

/// The tasks of a program, as one of them sees them.
#[derive(Default)]
pub(crate) struct Parts {
    group: OnceLock<Arc<Group>>,
    /// Variables of other tasks that were set here before these joined.
    restored: Mutex<BTreeSet<usize>>,
    /// One call at a time.
    turn: Mutex<()>,
    /// Why a call failed: the tasks are no longer at the same place.
    failed: OnceLock<Error>,
}

/// A call that all tasks make.
pub(crate) struct Joint<'a> {
    model: &'a Model,
    group: &'a Group,
    entry: usize,
    _turn: MutexGuard<'a, ()>,
}

impl Parts {
    /// From now on nothing is asked of the other tasks.
    pub(crate) fn fail(&self, why: &Error) {
        let _ = self.failed.set(why.clone());
    }

    /// The task this process is.
    pub(crate) fn task(&self) -> Option<usize> {
        self.group.get().map(|g| g.rank())
    }
}

impl Model {
    /// Makes this process the chief of the tasks that the program was cut for: from now
    /// on they make its calls together.
    pub fn lead(&self, group: Arc<Group>) -> Result<()> {
        self.enter(group)?;
        let restored = std::mem::take(&mut *lock(&self.parts.restored));
        for var in restored {
            let value = self.state.read(&self.plan.vars, var)?;
            self.send_var(var, value.bytes())?;
        }
        Ok(())
    }

    /// Does this process's part in the calls of the chief, until that has no more.
    pub fn serve(&self, group: Arc<Group>) -> Result<()> {
        self.enter(group.clone())?;
        let mut payload = vec![];
        loop {
            let mut order = [0; ORDER];
            group.wait_for(0, &mut order, "what the chief wants next")?;
            let [word, number, len] = words(&order);
            let number = usize::try_from(number).unwrap_or(usize::MAX);
            let is = |order: Order| word == order as u64;
            let expected = match is(Order::Write) {
                true => self.own_var(number)?,
                false => LONGEST,
            };
            let len = usize::try_from(len).ok().filter(|len| *len <= expected);
            let Some(len) = len.filter(|len| !is(Order::Write) || *len == expected) else {
                return Err(nonsense("an order that is too long"));
            };
            payload.resize(len, 0);
            if len > 0 {
                group.recv(0, &mut payload, "an order of the chief", "")?;
            }
            if is(Order::Call) {
                self.answer(&group, number, &payload)?;
            } else if is(Order::Read) {
                self.own_var(number)?;
                let value = self.state.read(&self.plan.vars, number)?;
                let what = format!("variable `{}`", self.plan.vars[number].name);
                group.send(0, value.bytes(), &what, "")?;
            } else if is(Order::Write) {
                let info = &self.plan.vars[number];
                let shape: Vec<usize> = info.shape.iter().map(|d| *d as usize).collect();
                let view = FeedView { dtype: info.dtype, shape: &shape, data: &payload };
                self.state.write(&self.plan.vars, number, view)?;
            } else if is(Order::Leave) {
                return group.flush("the last messages");
            } else {
                return Err(nonsense(&format!("order {word} does not exist")));
            }
        }
    }

    /// Tells the other tasks that there is nothing more to do.
    pub fn dismiss(&self) -> Result<()> {
        let Some(group) = self.chief_of() else { return Ok(()) };
        let _turn = lock(&self.parts.turn);
        for task in 1..group.size() {
            give(group, task, (Order::Leave, 0), &[], "the end", "")?;
        }
        group.flush("the end")
    }

    fn enter(&self, group: Arc<Group>) -> Result<()> {
        let tasks = self.plan.tasks.len();
        if tasks != group.size() {
            return Err(wrong_size(tasks, group.size()));
        }
        // The first group stays.
        let _ = self.parts.group.set(group);
        Ok(())
    }

    /// The group, if there are others and this is the process that calls.
    pub(crate) fn chief_of(&self) -> Option<&Group> {
        let group = self.parts.group.get()?;
        (group.is_chief() && group.size() > 1).then_some(group)
    }

    /// As [`Model::chief_of`], if they are all at the same place.
    fn in_step(&self) -> Result<Option<&Group>> {
        match self.chief_of() {
            Some(group) => match self.parts.failed.get() {
                Some(why) => Err(out_of_step(why)),
                None => Ok(Some(group)),
            },
            None => Ok(None),
        }
    }

    /// Begins a call of all tasks, if this process is their chief.
    pub(crate) fn summon(&self, entry: usize, feeds: &[FeedView<'_>]) -> Result<Option<Joint<'_>>> {
        let Some(group) = self.in_step()? else { return Ok(None) };
        let turn = lock(&self.parts.turn);
        let mut sizes: Vec<u8> = vec![];
        for feed in feeds {
            sizes.extend((feed.shape.len() as u64).to_le_bytes());
            sizes.extend(feed.shape.iter().flat_map(|d| (*d as u64).to_le_bytes()));
        }
        for task in 1..group.size() {
            let what = self.about_call("a call", entry, task, "to");
            let place = self.last_place(entry, task);
            give(group, task, (Order::Call, entry), &sizes, &what, place)?;
        }
        Ok(Some(Joint { model: self, group, entry, _turn: turn }))
    }

    fn about_call(&self, what: &str, entry: usize, task: usize, way: &str) -> String {
        let peer = self.plan.tasks.get(task).map_or("", |t| t.name.as_str());
        format!("{what} of `{}`, {way} {peer}", self.plan.entries[entry].name)
    }

    /// Where in the graph a task's part of an entry has its last message: what comes
    /// after it has no other place.
    fn last_place(&self, entry: usize, task: usize) -> &str {
        let part = self.plan.entries.iter().find(|e| {
            e.part.is_some_and(|p| p.whole == Some(entry as u32) && p.task == task as u32)
        });
        let messages = part.iter().flat_map(|e| e.steps.iter().rev()).filter_map(|s| match s {
            Step::Send(m) | Step::Recv(m) => Some(m.place.as_str()),
            _ => None,
        });
        messages.into_iter().find(|place| !place.is_empty()).unwrap_or("")
    }

    /// Runs this task's part of a call, and says how it went.
    fn answer(&self, group: &Group, entry: usize, sizes: &[u8]) -> Result<()> {
        let feeds = self.blanks(entry, sizes)?;
        let views: Vec<FeedView<'_>> = feeds.iter().map(TensorBuf::view).collect();
        let ran = self.run(entry, &views, &mut []);
        let text = ran.as_ref().err().map(Error::to_string).unwrap_or_default();
        let text = &text.as_bytes()[..text.len().min(LONGEST)];
        let mut head = [u64::from(ran.is_err()).to_le_bytes(), [0; 8]];
        head[1] = (text.len() as u64).to_le_bytes();
        group.send(0, head.as_flattened(), "how its part went", "")?;
        if !text.is_empty() {
            group.send(0, text, "why its part failed", "")?;
            // The chief gets to know before this process ends.
            group.flush("why its part failed")?;
        }
        ran
    }

    /// Feeds of these sizes. Nothing reads them: the tensors come in messages.
    fn blanks(&self, entry: usize, sizes: &[u8]) -> Result<Vec<TensorBuf>> {
        let known = self.plan.entries.get(entry).filter(|e| e.part.is_none());
        let e = known.ok_or_else(|| nonsense("a call of an entry that is not there"))?;
        let mut numbers = sizes.chunks_exact(8).map(|b| {
            let mut word = [0; 8];
            word.copy_from_slice(b);
            u64::from_le_bytes(word)
        });
        let bad = || nonsense("the sizes of the feeds make no sense");
        let mut feeds = vec![];
        for port in &e.params {
            let rank = numbers.next().filter(|r| *r <= AXES as u64).ok_or_else(bad)?;
            let shape: Option<Vec<usize>> =
                (0..rank).map(|_| usize::try_from(numbers.next()?).ok()).collect();
            feeds.push(TensorBuf::zeros(port.dtype, &shape.ok_or_else(bad)?)?);
        }
        match numbers.next() {
            None => Ok(feeds),
            Some(_) => Err(bad()),
        }
    }

    /// The bytes of a variable of this task.
    fn own_var(&self, var: usize) -> Result<usize> {
        let own = self.plan.vars.get(var).map(|v| v.task as usize) == self.parts.task();
        match own {
            true => Ok(self.state.byte_len(var)),
            false => Err(nonsense("a variable that is not here")),
        }
    }

    /// Whether a variable is another task's.
    pub(crate) fn is_elsewhere(&self, var: usize) -> bool {
        self.chief_of().is_some() && self.plan.vars[var].task != 0
    }

    /// Notes that a variable was set here: its task has to know.
    pub(crate) fn var_was_set(&self, var: usize) -> Result<()> {
        if self.is_elsewhere(var) {
            let value = self.state.read(&self.plan.vars, var)?;
            return self.send_var(var, value.bytes());
        }
        if self.parts.group.get().is_none() && self.plan.vars[var].task != 0 {
            lock(&self.parts.restored).insert(var);
        }
        Ok(())
    }

    fn send_var(&self, var: usize, bytes: &[u8]) -> Result<()> {
        let Some(group) = self.in_step()? else { return Ok(()) };
        let info = &self.plan.vars[var];
        if info.task == 0 {
            return Ok(());
        }
        let _turn = lock(&self.parts.turn);
        let what = self.about_var(var, "to");
        give(group, info.task as usize, (Order::Write, var), bytes, &what, "")
    }

    /// Brings variables of other tasks here, to be read or saved.
    pub(crate) fn gather(&self, vars: impl IntoIterator<Item = usize>) -> Result<()> {
        let Some(group) = self.in_step()? else { return Ok(()) };
        let _turn = lock(&self.parts.turn);
        let mut values = vec![];
        for var in vars {
            let info = &self.plan.vars[var];
            if info.task == 0 {
                continue;
            }
            let what = self.about_var(var, "from");
            give(group, info.task as usize, (Order::Read, var), &[], &what, "")?;
            let mut value = self.state.read(&self.plan.vars, var)?;
            if !value.bytes().is_empty() {
                group.recv(info.task as usize, value.bytes_mut(), &what, "")?;
            }
            values.push((var, value));
        }
        self.state.replace(&self.plan.vars, values)
    }

    fn about_var(&self, var: usize, way: &str) -> String {
        let info = &self.plan.vars[var];
        let peer = self.plan.tasks.get(info.task as usize).map_or("", |t| t.name.as_str());
        format!("variable `{}`, {way} {peer}", info.name)
    }

    /// A `Send` of the plan.
    pub(crate) fn post(&self, m: &Message, data: &[u8]) -> Result<()> {
        let what = self.about(m, "to");
        self.talk()?.send(m.peer as usize, data, &what, &m.place)
    }

    /// A `Recv` of the plan.
    pub(crate) fn take(&self, m: &Message, into: &mut [u8]) -> Result<()> {
        let what = self.about(m, "from");
        self.talk()?.recv(m.peer as usize, into, &what, &m.place)
    }

    fn about(&self, m: &Message, way: &str) -> String {
        let peer = self.plan.tasks.get(m.peer as usize).map_or("", |t| t.name.as_str());
        format!("{}, {way} {peer}", m.name)
    }

    /// The group, or one of this process alone, which hears what it says.
    fn talk(&self) -> Result<&Group> {
        let alone = || {
            let timeout = crate::net::PEER_TIMEOUT;
            crate::net::local::groups(self.plan.tasks.len().max(1), timeout).swap_remove(0)
        };
        Ok(self.parts.group.get_or_init(|| Arc::new(alone())))
    }
}

impl Joint<'_> {
    /// Waits until all tasks have done their parts.
    pub(crate) fn finish(self) -> Result<()> {
        for task in 1..self.group.size() {
            let what = self.model.about_call("the end", self.entry, task, "from");
            let place = self.model.last_place(self.entry, task);
            let mut head = [0; 16];
            self.group.recv(task, &mut head, &what, place)?;
            let [failed, len] = words(&head);
            if failed == 0 {
                continue;
            }
            let len = usize::try_from(len).unwrap_or(usize::MAX).min(LONGEST);
            let mut text = vec![0; len];
            self.group.recv(task, &mut text, &what, place)?;
            let said = String::from_utf8_lossy(&text);
            let name = &self.model.plan.entries[self.entry].name;
            let message = format!("worker {task} failed in its part of `{name}`");
            let said = said.lines().next().unwrap_or_default().to_owned();
            return Err(Error::peer(ErrorCode::PEER_LOST, message)
                .note(said)
                .help("its own output has the details"));
        }
        Ok(())
    }
}

fn give(
    group: &Group,
    task: usize,
    (order, number): (Order, usize),
    payload: &[u8],
    what: &str,
    place: &str,
) -> Result<()> {
    let head = [order as u64, number as u64, payload.len() as u64].map(u64::to_le_bytes);
    group.send(task, head.as_flattened(), what, place)?;
    match payload.is_empty() {
        true => Ok(()),
        false => group.send(task, payload, what, place),
    }
}

fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    std::array::from_fn(|i| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[i * 8..(i + 1) * 8]);
        u64::from_le_bytes(word)
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What went wrong first is why nothing can be asked of the other tasks any more.
fn out_of_step(why: &Error) -> Error {
    why.clone().note("since that call the tasks are not at the same place")
}

fn nonsense(why: &str) -> Error {
    Error::peer(
        ErrorCode::BAD_MESSAGE,
        format!("the chief sent something that does not fit: {why}"),
    )
}

pub(crate) fn wrong_size(tasks: usize, size: usize) -> Error {
    let message = format!("the program was cut for {tasks} tasks, but the job has {size}");
    Error::usage(ErrorCode::BAD_JOB, message)
        .help(format!("start {tasks} processes, or compile it for another cluster"))
}
