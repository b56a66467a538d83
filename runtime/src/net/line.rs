//! The line between a worker and the chief, beside the links that tensors go through.
//!
//! It is the call with which the worker joined, and says nothing as long as all is well.
//! A process that ends closes it, so that the chief knows at once, whatever it is at; who
//! finds that another is gone or hangs says so; and the chief tells all others.
//!
//! A word has a fixed length and is numbered as every message is.

use super::link::{Link, Progress, Receiving, Sending};
use super::mesh::{POLLIN, POLLOUT, poll_one};
use super::{Moment, lost};
use crate::error::Result;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of a word.
pub(super) const WORD: usize = 256;
/// How long a word may take to be out.
const OUT: Duration = Duration::from_secs(1);
/// Longer than any process runs.
const LONG: Duration = Duration::from_secs(3600 * 24 * 3650);

/// Who is lost to the group, and how that was found out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cause {
    /// Its number in the job.
    pub peer: usize,
    pub kind: Kind,
    pub why: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Lost,
    Late,
    /// No link to it came about.
    Unreachable,
    /// It is not lost: it comes back.
    Back,
}

/// What is said on a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// To the chief: somebody is lost. To all others: form the group again.
    Broken(Cause),
    /// To the chief: that was heard. To all others: the chief is there.
    Here,
    /// To the chief: this process is done, and not lost.
    Left,
    /// To all others: the run is over.
    Over,
    /// To the chief: is it there? It says so ([`Word::Here`]).
    Asked,
    /// To the chief: this process was asked to stop, and with it the job.
    Stop,
}

impl Word {
    pub(super) fn bytes(&self) -> [u8; WORD] {
        let mut out = [0; WORD];
        out[0] = match self {
            Word::Broken(_) => 1,
            Word::Here => 2,
            Word::Left => 3,
            Word::Over => 4,
            Word::Asked => 5,
            Word::Stop => 6,
        };
        if let Word::Broken(cause) = self {
            out[1] = match cause.kind {
                Kind::Lost => 0,
                Kind::Late => 1,
                Kind::Unreachable => 2,
                Kind::Back => 3,
            };
            out[2..6].copy_from_slice(&(cause.peer as u32).to_le_bytes());
            let mut len = cause.why.len().min(WORD - 7);
            while !cause.why.is_char_boundary(len) {
                len -= 1;
            }
            out[6] = len as u8;
            out[7..7 + len].copy_from_slice(&cause.why.as_bytes()[..len]);
        }
        out
    }

    /// None if it is no word of ours in a job of so many processes.
    pub(super) fn read(bytes: &[u8; WORD], size: usize) -> Option<Word> {
        let kind = match bytes[1] {
            0 => Kind::Lost,
            1 => Kind::Late,
            2 => Kind::Unreachable,
            3 => Kind::Back,
            _ => return None,
        };
        let peer = u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]) as usize;
        let why = bytes.get(7..7 + usize::from(bytes[6]))?;
        match bytes[0] {
            1 if peer < size => {
                let why = std::str::from_utf8(why).ok()?;
                // It goes to a terminal.
                let why = why.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
                Some(Word::Broken(Cause { peer, kind, why }))
            }
            2 => Some(Word::Here),
            3 => Some(Word::Left),
            4 => Some(Word::Over),
            5 => Some(Word::Asked),
            6 => Some(Word::Stop),
            _ => None,
        }
    }
}

pub(super) struct Line {
    /// The number of the process at the other end.
    pub peer: usize,
    /// The run of the job it belongs to.
    pub run: u64,
    link: Link,
    /// Words said so far.
    said: Mutex<u64>,
    here: AtomicBool,
    answered: AtomicBool,
    gone: AtomicBool,
    left: AtomicBool,
}

impl Line {
    pub(super) fn new(peer: usize, run: u64, link: Link) -> Arc<Line> {
        let flag = || AtomicBool::new(false);
        let (here, answered, gone, left) = (flag(), flag(), flag(), flag());
        Arc::new(Line { peer, run, link, said: Mutex::default(), here, answered, gone, left })
    }

    /// Whether it has answered since the group broke.
    pub(super) fn is_here(&self) -> bool {
        self.here.load(Ordering::Acquire)
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    pub(super) fn has_left(&self) -> bool {
        self.left.load(Ordering::Acquire)
    }

    pub(super) fn set_here(&self) {
        self.here.store(true, Ordering::Release);
    }

    /// It has said that it is there, when it was asked.
    pub(super) fn set_answered(&self) {
        self.answered.store(true, Ordering::Release);
    }

    /// Whether it has, since this was last asked for.
    pub(super) fn take_answer(&self) -> bool {
        self.answered.swap(false, Ordering::AcqRel)
    }

    pub(super) fn set_left(&self) {
        self.left.store(true, Ordering::Release);
    }

    /// Ends it, here and there.
    pub(super) fn close(&self) {
        self.gone.store(true, Ordering::Release);
        // It may have ended by itself.
        let _ = self.link.stream.tcp().shutdown(std::net::Shutdown::Both);
    }

    /// Says a word. One that cannot be is for somebody who is lost, which shows otherwise.
    pub(super) fn say(&self, word: &Word) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = word.bytes();
        let moment = moment(*said, OUT);
        let mut sending = Sending::new(&bytes, *said);
        *said += 1;
        while let Ok(progress) = self.link.push(&mut sending, &moment) {
            let left = moment.deadline.saturating_duration_since(Instant::now());
            if progress == Progress::Done || left.is_zero() || self.is_gone() {
                return;
            }
            poll_one(&self.link, POLLOUT, left.min(OUT / 10));
        }
    }

    /// Hears the words of the other end, until it ends.
    pub(super) fn listen(&self, size: usize, heard: &dyn Fn(Word)) {
        let mut count = 0;
        while let Ok(bytes) = self.next(count) {
            let Some(word) = Word::read(&bytes, size) else { break };
            heard(word);
            count += 1;
        }
        self.close();
    }

    fn next(&self, count: u64) -> Result<[u8; WORD]> {
        let mut bytes = [0; WORD];
        let moment = moment(count, LONG);
        let mut receiving = Receiving::new(&mut bytes, count);
        loop {
            let progress = self.link.pull(Some(&mut receiving), &moment)?;
            if progress == Progress::Done {
                return Ok(bytes);
            }
            self.link.push_control(&moment)?;
            if self.is_gone() {
                return Err(lost(self.peer, &moment, "it is not of the group any more"));
            }
            if progress != Progress::More {
                poll_one(&self.link, POLLIN, LONG);
            }
        }
    }
}

fn moment(sequence: u64, within: Duration) -> Moment<'static> {
    Moment { sequence, deadline: Instant::now() + within, what: "who is there", place: "" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(peer: usize, kind: Kind, why: &str) -> Word {
        Word::Broken(Cause { peer, kind, why: why.into() })
    }

    #[test]
    fn words_are_read_as_they_are_said() {
        let long = "ä".repeat(400);
        for word in [
            broken(3, Kind::Lost, "it closed the connection"),
            broken(1023, Kind::Late, ""),
            broken(0, Kind::Unreachable, "connection refused"),
            broken(7, Kind::Back, "it is back"),
            Word::Here,
            Word::Left,
            Word::Over,
            Word::Asked,
            Word::Stop,
        ] {
            assert_eq!(Word::read(&word.bytes(), 1024), Some(word));
        }
        // What is too long is cut between two letters.
        let Some(Word::Broken(cut)) = Word::read(&broken(1, Kind::Lost, &long).bytes(), 2) else {
            panic!("it was not read");
        };
        assert!(long.starts_with(&cut.why) && cut.why.len() > 240);
    }

    #[test]
    fn what_is_no_word_is_refused() {
        let good = broken(1, Kind::Late, "why").bytes();
        let changed = |at: usize, to: u8| {
            let mut bytes = good;
            bytes[at] = to;
            Word::read(&bytes, 4)
        };
        assert!(Word::read(&good, 4).is_some());
        assert_eq!(Word::read(&good, 1), None, "there is no worker 1");
        assert_eq!(changed(0, 0), None);
        assert_eq!(changed(0, 7), None);
        assert_eq!(changed(1, 4), None);
        assert_eq!(changed(3, 1), None, "worker 257");
        assert_eq!(changed(6, 255), None, "longer than the word");
        assert_eq!(changed(7, 0xff), None, "no text");
        assert_eq!(
            changed(7, 0x1b),
            Some(broken(1, Kind::Late, " hy")),
            "nothing for a terminal to obey"
        );
        // Whatever the bytes are.
        let mut seed = 5u64;
        let mut taken = 0;
        for _ in 0..50_000 {
            let mut bytes = good;
            for _ in 0..4 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                bytes[(seed >> 40) as usize % 12] = (seed >> 56) as u8;
            }
            if let Some(Word::Broken(cause)) = Word::read(&bytes, 4) {
                taken += 1;
                assert!(cause.peer < 4 && !cause.why.contains('\u{1b}'));
            }
        }
        assert!(taken > 0);
    }
}
