//! A thread that sends what is posted to one peer, so that whoever posts goes on.

use super::link::{Link, Progress, Sending};
use super::mesh::{POLLOUT, poll_one};
use super::{Moment, late};
use crate::error::{Error, Result};
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
    /// `turn` is held by whoever receives on the links of the process.
    pub(super) fn new(link: Arc<Link>, turn: Arc<Mutex<()>>) -> io::Result<Postman> {
        let (letters, due) = channel();
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("tfc-post-{}", link.peer))
            .spawn(move || carry(&link, &turn, &due, &own))?;
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
        if let Some(thread) = self.thread.take() {
            // It ends with its last letter, or that one's deadline.
            let _ = thread.join();
        }
    }
}

fn carry(link: &Link, turn: &Mutex<()>, due: &Receiver<Letter>, shared: &Shared) {
    for letter in due {
        let moment = Moment {
            sequence: letter.sequence,
            deadline: letter.deadline,
            what: &letter.what,
            place: &letter.place,
        };
        let sent = deliver(link, turn, &letter.data, &moment);
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

fn deliver(link: &Link, turn: &Mutex<()>, data: &[u8], moment: &Moment<'_>) -> Result<()> {
    let mut sending = Sending::new(data, moment.sequence);
    loop {
        let progress = link.push(&mut sending, moment)?;
        let left = moment.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() && progress != Progress::Done {
            return Err(late(link.peer, moment));
        }
        match progress {
            Progress::Done => return Ok(()),
            Progress::Blocked => poll_one(link, POLLOUT, left),
            // Whoever receives hears when the peer takes more; if nobody does, we listen.
            Progress::NeedsLeave => {
                if let Ok(_turn) = turn.try_lock() {
                    link.pull(None, moment)?;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
