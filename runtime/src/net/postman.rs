//! A thread that sends what is posted to one peer, so that whoever posts goes on.

use super::link::{Link, Progress, Sending};
use super::mesh::{PAUSE, POLLOUT, poll_one};
use super::{Moment, late};
use crate::error::{Error, Result};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the letters that are left may take when the process ends.
const LAST: Duration = Duration::from_secs(3);
/// How often somebody who waits for a socket looks for what nobody tells it.
const LOOK: Duration = Duration::from_millis(100);

struct Letter {
    data: Vec<u8>,
    sequence: u64,
    deadline: Instant,
    what: String,
    place: String,
}

/// How many letters are not out yet, and what went wrong.
#[derive(Default)]
struct Bag {
    waiting: usize,
    failed: Option<Error>,
    /// Until when letters may take that nobody waits for any more.
    ends: Option<Instant>,
}

#[derive(Default)]
struct Shared {
    bag: Mutex<Bag>,
    changed: Condvar,
}

impl Shared {
    fn bag(&self) -> MutexGuard<'_, Bag> {
        self.bag.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(super) struct Postman {
    /// None when it is asked to end.
    letters: Option<Sender<Letter>>,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Postman {
    pub(super) fn new(link: Arc<Link>) -> io::Result<Postman> {
        let (letters, due) = channel();
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("tfc-post-{}", link.peer))
            .spawn(move || carry(&link, &due, &own))?;
        Ok(Postman { letters: Some(letters), shared, thread: Some(thread) })
    }

    pub(super) fn post(&self, data: Vec<u8>, moment: &Moment<'_>) -> Result<()> {
        {
            let mut bag = self.shared.bag();
            if let Some(e) = &bag.failed {
                return Err(e.clone());
            }
            bag.waiting += 1;
        }
        let letter = Letter {
            data,
            sequence: moment.sequence,
            deadline: moment.deadline,
            what: moment.what.to_owned(),
            place: moment.place.to_owned(),
        };
        // The thread is there as long as this is.
        let sent = self.letters.as_ref().is_some_and(|l| l.send(letter).is_ok());
        if sent { Ok(()) } else { Err(Error::bug("nobody carries messages")) }
    }

    /// Waits until all letters are out. Each has a deadline of its own.
    pub(super) fn flush(&self) -> Result<()> {
        let mut bag = self.shared.bag();
        while bag.waiting > 0 && bag.failed.is_none() {
            bag = self.shared.changed.wait(bag).unwrap_or_else(PoisonError::into_inner);
        }
        bag.failed.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Postman {
    fn drop(&mut self) {
        self.letters = None;
        self.shared.bag().ends = Some(Instant::now() + LAST);
        if let Some(thread) = self.thread.take() {
            // It ends with its last letter, or soon.
            let _ = thread.join();
        }
    }
}

fn carry(link: &Link, due: &Receiver<Letter>, shared: &Shared) {
    for letter in due {
        let moment = Moment {
            sequence: letter.sequence,
            deadline: letter.deadline,
            what: &letter.what,
            place: &letter.place,
        };
        let sent = deliver(link, &letter.data, &moment, shared);
        let mut bag = shared.bag();
        bag.waiting -= 1;
        let failed = sent.is_err();
        bag.failed = sent.err();
        shared.changed.notify_all();
        if failed {
            return;
        }
    }
}

fn deliver(link: &Link, data: &[u8], moment: &Moment<'_>, shared: &Shared) -> Result<()> {
    let mut sending = Sending::new(data, moment.sequence);
    loop {
        let progress = link.push(&mut sending, moment)?;
        let deadline = shared.bag().ends.map_or(moment.deadline, |at| at.min(moment.deadline));
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() && progress != Progress::Done {
            return Err(late(link.peer, moment));
        }
        match progress {
            Progress::Done => return Ok(()),
            // Whoever waits for what this peer sends hears when it takes more; if nobody
            // does, we listen.
            Progress::NeedsLeave => {
                if let Some(_reading) = link.try_reading() {
                    link.pull(None, moment)?;
                }
                std::thread::sleep(PAUSE);
            }
            _ => poll_one(link, POLLOUT, left.min(LOOK)),
        }
    }
}
