//! A link from every process of a job to every other.
//!
//! [`Muster`] says who they are. When the group breaks, its links end; the one that is
//! formed then has links of its own.

use super::job::{Job, OnLoss};
use super::link::{Link, Progress, Receiving, Sending};
use super::muster::{Muster, Regrouped};
use super::postman::Postman;
use super::{Moment, Stop, Transport, late};
use crate::error::{Error, ErrorCode, Result};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{c_int, c_short, c_ulong};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long somebody waits who cannot be told when there is something to do.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

pub(super) struct Mesh {
    muster: Arc<Muster>,
    /// How many there were when the job began, and what becomes of it when one is lost.
    size: usize,
    on_loss: OnLoss,
    now: Mutex<Arc<Formed>>,
}

/// A group as it was formed.
pub(super) struct Formed {
    /// Its number.
    pub run: u64,
    pub rank: usize,
    /// The processes by rank: their numbers in the job.
    pub members: Vec<usize>,
    /// By rank; none for this process.
    links: Vec<Option<Arc<Link>>>,
    /// One exchange at a time.
    turn: Mutex<()>,
    /// Who sends what was posted, by rank.
    postmen: Mutex<BTreeMap<usize, Postman>>,
}

impl Formed {
    pub(super) fn new(
        run: u64,
        rank: usize,
        members: Vec<usize>,
        links: Vec<Option<Link>>,
    ) -> Formed {
        let links = links.into_iter().map(|l| l.map(Arc::new)).collect();
        Formed { run, rank, members, links, turn: Mutex::default(), postmen: Mutex::default() }
    }

    /// Ends its links: whoever waits for one hears of it.
    pub(super) fn close(&self) {
        for link in self.links.iter().flatten() {
            // It may have ended by itself.
            let _ = link.stream.tcp().shutdown(std::net::Shutdown::Both);
        }
    }

    /// Waits until what was posted to a peer is out.
    fn flush_to(&self, peer: usize) -> Result<()> {
        let postmen = self.postmen.lock().unwrap_or_else(PoisonError::into_inner);
        postmen.get(&peer).map_or(Ok(()), Postman::flush)
    }

    fn link(&self, peer: usize) -> Result<&Arc<Link>> {
        let link = self.links.get(peer).and_then(Option::as_ref);
        link.ok_or_else(|| Error::bug(format!("there is no link to worker {peer}")))
    }
}

impl Mesh {
    pub(super) fn join(job: &Job, graph: &[u8; 32]) -> Result<Mesh> {
        let (muster, formed) = Muster::join(job, graph)?;
        Ok(Mesh { muster, size: job.size, on_loss: job.on_loss, now: Mutex::new(formed) })
    }

    fn now(&self) -> Arc<Formed> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// An error of the present group, in words of the whole group.
    fn known<T>(&self, formed: &Formed, done: Result<T>, moment: &Moment<'_>) -> Result<T> {
        match self.on_loss {
            OnLoss::Stop => done,
            _ => done.map_err(|e| self.muster.explain(formed.run, e, moment)),
        }
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        self.muster.close();
    }
}

/// From now on a peer that is gone is an error of the call that writes to it, not the
/// end of the process.
pub(super) fn outlive_peers() {
    // SAFETY: ignoring a signal touches no memory.
    unsafe { signal(SIGPIPE, SIG_IGN) };
}

impl Formed {
    pub(super) fn exchange(
        &self,
        out: Option<(usize, &[u8])>,
        into: Option<(usize, &mut [u8])>,
        moment: &Moment<'_>,
    ) -> Result<()> {
        // Two messages to one peer do not mix.
        if let Some((to, _)) = &out {
            self.flush_to(*to)?;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = match out {
            Some((to, data)) => Some((self.link(to)?, Sending::new(data, moment.sequence))),
            None => None,
        };
        let mut into = match into {
            Some((from, data)) => {
                let link = self.link(from)?;
                Some((link, Receiving::new(data, moment.sequence), link.reading()))
            }
            None => None,
        };
        loop {
            // What is waited for where something is sent, and how long at most.
            let (mut events, mut most) = (Some(POLLOUT), Duration::MAX);
            let (mut leave, mut awaited) = (false, POLLIN);
            if let Some((link, s)) = &mut out {
                match link.push(s, moment)? {
                    Progress::Done => out = None,
                    progress => leave = progress == Progress::NeedsLeave,
                }
            }
            if let Some((link, r, _)) = &mut into {
                let progress = link.pull(Some(r), moment)?;
                // A peer that only sends must be told that it may send more.
                if link.push_control(moment)? == Progress::Blocked {
                    awaited |= POLLOUT;
                }
                match progress {
                    Progress::Done => into = None,
                    Progress::More => most = Duration::ZERO,
                    _ => {}
                }
            }
            if let Some((link, s)) = out.as_mut().filter(|_| leave) {
                events = Some(POLLIN);
                // A peer that only takes says when it takes more.
                if into.as_ref().is_none_or(|(from, ..)| from.peer != link.peer) {
                    let _reading = link.reading();
                    match link.pull(None, moment)? {
                        Progress::More => most = Duration::ZERO,
                        // It has said it behind what nobody asks for now.
                        Progress::Full => (events, most) = (None, PAUSE),
                        _ => {}
                    }
                }
                // It may have said so just now, and then says nothing more.
                if link.push(s, moment)? != Progress::NeedsLeave {
                    most = Duration::ZERO;
                }
            }
            if out.is_none() && into.is_none() {
                return Ok(());
            }
            let wait = |link: &Link, events: c_short| PollFd {
                fd: link.stream.as_raw_fd(),
                events,
                revents: 0,
            };
            let mut fds: Vec<PollFd> = vec![];
            fds.extend(out.as_ref().zip(events).map(|((l, _), events)| wait(l, events)));
            fds.extend(into.as_ref().map(|(l, ..)| wait(l, awaited)));
            let left = moment.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The one that owes us something is more likely to blame.
                let peer = into.map(|(l, ..)| l.peer).or(out.map(|(l, _)| l.peer)).unwrap_or(0);
                return Err(late(peer, moment));
            }
            let millis = match most.is_zero() {
                true => 0,
                false => c_int::try_from(left.min(most).as_millis() + 1).unwrap_or(c_int::MAX),
            };
            // SAFETY: the descriptors are open, and the list is as long as said.
            // Errors show when the sockets are used again.
            unsafe { poll(fds.as_mut_ptr(), fds.len() as c_ulong, millis) };
        }
    }

    pub(super) fn post(&self, to: usize, data: Vec<u8>, moment: &Moment<'_>) -> Result<()> {
        let link = self.link(to)?;
        let mut postmen = self.postmen.lock().unwrap_or_else(PoisonError::into_inner);
        let postman = match postmen.entry(to) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Postman::new(link.clone()).map_err(|e| {
                let why = crate::io::io_reason(&e);
                Error::io(ErrorCode::BAD_JOB, format!("nobody can carry messages: {why}"))
            })?),
        };
        postman.post(data, moment)
    }

    fn flush(&self) -> Result<()> {
        let postmen = self.postmen.lock().unwrap_or_else(PoisonError::into_inner);
        postmen.values().try_for_each(Postman::flush)
    }
}

impl Transport for Mesh {
    fn name(&self) -> &'static str {
        "gRPC"
    }

    fn rank(&self) -> usize {
        self.now().rank
    }

    fn size(&self) -> usize {
        self.now().members.len()
    }

    fn most(&self) -> usize {
        self.size
    }

    fn number(&self, rank: usize) -> usize {
        self.now().members.get(rank).copied().unwrap_or(rank)
    }

    fn exchange(
        &self,
        out: Option<(usize, &[u8])>,
        into: Option<(usize, &mut [u8])>,
        moment: &Moment<'_>,
    ) -> Result<()> {
        let formed = self.now();
        self.known(&formed, formed.exchange(out, into, moment), moment)
    }

    fn here(&self) -> usize {
        let near = |l: &&Arc<Link>| {
            l.stream.tcp().peer_addr().is_ok_and(|a| a.ip().to_canonical().is_loopback())
        };
        1 + self.now().links.iter().flatten().filter(near).count()
    }

    fn gone(&self) -> Option<usize> {
        let closed =
            |l: &Option<Arc<Link>>| l.as_ref().is_some_and(|l| is_closed(l.stream.as_raw_fd()));
        let formed = self.now();
        // When a group breaks, links end that are not of the one that is lost.
        let lost = self.muster.lost(formed.run);
        let lost = lost.and_then(|number| formed.members.iter().position(|m| *m == number));
        lost.filter(|r| *r != formed.rank).or_else(|| formed.links.iter().position(closed))
    }

    fn post(&self, to: usize, data: Vec<u8>, moment: &Moment<'_>) -> Result<()> {
        let formed = self.now();
        self.known(&formed, formed.post(to, data, moment), moment)
    }

    fn flush(&self, moment: &Moment<'_>) -> Result<()> {
        let formed = self.now();
        self.known(&formed, formed.flush(), moment)
    }

    fn outlives(&self) -> OnLoss {
        self.on_loss
    }

    fn regroup(
        &self,
        _moment: &Moment<'_>,
        stop: Stop<'_>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Regrouped> {
        let before = self.now();
        let (formed, what) = self.muster.regroup(&before, stop, say)?;
        if let Some(formed) = formed {
            *self.now.lock().unwrap_or_else(PoisonError::into_inner) = formed;
        }
        Ok(what)
    }

    fn check(&self, moment: &Moment<'_>) -> Result<()> {
        match self.on_loss {
            OnLoss::Stop => Ok(()),
            _ => self.muster.check(moment),
        }
    }

    fn farewell(&self, moment: &Moment<'_>) -> Result<()> {
        match self.on_loss {
            OnLoss::Stop => Ok(()),
            _ => self.muster.farewell(moment),
        }
    }

    fn leave(&self) {
        self.muster.leave();
    }

    fn refused(&self) -> u64 {
        self.muster.refused()
    }
}

/// Whether the other end of a connection, an open descriptor, is closed, with what it has
/// sent perhaps not yet read.
pub(super) fn is_closed(fd: RawFd) -> bool {
    let mut fd = PollFd { fd, events: CLOSED, revents: 0 };
    // SAFETY: the descriptor is open, and there is one; it does not wait.
    unsafe { poll(&mut fd, 1, 0) };
    fd.revents & (CLOSED | POLLERR | POLLHUP) != 0
}

/// Waits until a link's socket is ready for something.
pub(super) fn poll_one(link: &Link, events: c_short, left: Duration) {
    poll_fd(link.stream.as_raw_fd(), events, left);
}

/// Waits until an open descriptor is ready for something.
pub(super) fn poll_fd(fd: RawFd, events: c_short, left: Duration) {
    let mut fd = PollFd { fd, events, revents: 0 };
    let millis = c_int::try_from(left.as_millis() + 1).unwrap_or(c_int::MAX);
    // SAFETY: the descriptor is open, and there is one. Errors show when it is used.
    unsafe { poll(&mut fd, 1, millis) };
}

/// Waits until a link can be read from, or written to; false when it is too late.
pub(super) fn ready(link: &Link, read: bool, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    let events = if read { POLLIN } else { POLLOUT };
    let mut fd = PollFd { fd: link.stream.as_raw_fd(), events, revents: 0 };
    let millis = c_int::try_from(left.as_millis() + 1).unwrap_or(c_int::MAX);
    // SAFETY: the descriptor is open, and the list has one member. Errors show when
    // the socket is used again.
    unsafe { poll(&mut fd, 1, millis) };
    true
}

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

pub(super) const POLLIN: c_short = 1;
pub(super) const POLLOUT: c_short = 4;
const POLLERR: c_short = 8;
const POLLHUP: c_short = 16;
/// The other end has said that nothing more will come (`POLLRDHUP`).
const CLOSED: c_short = if cfg!(target_os = "linux") { 0x2000 } else { 0 };

const SIGPIPE: c_int = 13;
const SIG_IGN: usize = 1;

unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
    fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
}
