//! Questions and answers between a worker and a server, over one link.
//!
//! Either is a head of a fixed size and a body whose length the head says; how long
//! a body may be is known before it is taken.

use super::super::link::{Link, Progress, Receiving, Sending};
use super::super::{Moment, stray, wait_for};
use crate::error::{Error, Result};
use std::time::Instant;

/// What is asked, or how it was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    Status,
    /// Variables to begin with: initial ones, or those of a checkpoint.
    Fill,
    /// A piece of a variable to begin with.
    Put,
    /// Begin with these. The first server is also told what workers have for themselves.
    Init,
    /// What workers have for themselves when they begin.
    Own,
    Push,
    Shared,
    Apply,
    Pull,
    /// Some rows of tables.
    Rows,
    /// Remember the variables as they are now, for `Get`.
    Look,
    /// A piece of a variable that was looked at.
    Get,
    /// Whether the variables may be saved.
    Fit,
    /// Begin no update until further notice: which are begun?
    Hold,
    /// But finish these.
    Cut,
    /// Write the variables to a file, once these are finished; others may go on then.
    Save,
    Done,
    /// The chief has what came out: who is done may go.
    Release,
    Stop,
    /// A server has lost its variables: nobody shall wait for this step.
    Broken,
    Shutdown,
    /// What time it is here.
    Clock,
    /// What a worker did, for the chief.
    Trace,
    /// What a worker did that has handed it in, or what this server did.
    Traces,
    /// Answers.
    Ok,
    /// The gradients came too late for their step.
    Late,
    /// The variables are those of another time: begin with `Status` again.
    Rolled,
    /// The body says why not.
    Failed,
}

pub(super) const KINDS: [Message; 28] = [
    Message::Status,
    Message::Fill,
    Message::Put,
    Message::Init,
    Message::Own,
    Message::Push,
    Message::Shared,
    Message::Apply,
    Message::Pull,
    Message::Rows,
    Message::Look,
    Message::Get,
    Message::Fit,
    Message::Hold,
    Message::Cut,
    Message::Save,
    Message::Done,
    Message::Release,
    Message::Stop,
    Message::Broken,
    Message::Shutdown,
    Message::Clock,
    Message::Trace,
    Message::Traces,
    Message::Ok,
    Message::Late,
    Message::Rolled,
    Message::Failed,
];

/// The head of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Head {
    pub kind: Message,
    /// Whose variables these are: grows when a job goes back to a checkpoint.
    pub age: u64,
    pub step: u64,
    /// A worker's share of the examples of a step.
    pub share: f64,
    pub flags: u32,
    pub len: usize,
}

/// Bytes of a head.
pub const HEAD: usize = 40;
/// `Fill`: with the initial values. `Hold`: no longer.
pub(super) const FIRST: u32 = 1;
pub(super) const LET_GO: u32 = 1;
/// `Failed`: because of the user's data, or of files.
pub(super) const FAILED_DATA: u32 = 1;
pub(super) const FAILED_IO: u32 = 2;
/// The job is to stop after this step.
pub(super) const STOP: u32 = 2;
/// Who is done may go.
pub(super) const RELEASED: u32 = 4;
/// The variables here do not go with those of another server any more.
pub(super) const BROKEN: u32 = 8;

impl Head {
    pub(super) fn new(kind: Message, age: u64, step: u64) -> Head {
        Head { kind, age, step, share: 0.0, flags: 0, len: 0 }
    }

    fn bytes(self) -> [u8; HEAD] {
        let kind = KINDS.iter().position(|k| *k == self.kind).unwrap_or(0) as u32;
        let mut out = [0; HEAD];
        out[..4].copy_from_slice(&kind.to_le_bytes());
        out[4..8].copy_from_slice(&self.flags.to_le_bytes());
        out[8..16].copy_from_slice(&self.age.to_le_bytes());
        out[16..24].copy_from_slice(&self.step.to_le_bytes());
        out[24..32].copy_from_slice(&self.share.to_le_bytes());
        out[32..].copy_from_slice(&(self.len as u64).to_le_bytes());
        out
    }

    pub(super) fn read(bytes: &[u8; HEAD]) -> Option<Head> {
        let word = |at: usize| {
            let mut w = [0; 8];
            w.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(w)
        };
        let low = word(0);
        Some(Head {
            kind: *KINDS.get((low & 0xffff_ffff) as usize)?,
            flags: (low >> 32) as u32,
            age: word(8),
            step: word(16),
            share: f64::from_bits(word(24)),
            len: usize::try_from(word(32)).ok()?,
        })
    }
}

pub(super) struct Channel {
    link: Link,
    sent: u64,
    taken: u64,
}

impl Channel {
    pub(super) fn new(link: Link) -> Channel {
        Channel { link, sent: 0, taken: 0 }
    }

    pub(super) fn send(&mut self, head: Head, body: &[u8], moment: &Moment<'_>) -> Result<()> {
        let head = Head { len: body.len(), ..head };
        self.write(&head.bytes(), moment)?;
        if body.is_empty() { Ok(()) } else { self.write(body, moment) }
    }

    fn write(&mut self, bytes: &[u8], moment: &Moment<'_>) -> Result<()> {
        self.sent += 1;
        let mut s = Sending::new(bytes, self.sent);
        loop {
            match self.link.push(&mut s, moment)? {
                Progress::Done => return Ok(()),
                Progress::NeedsLeave => {
                    let pulled = self.link.pull(None, moment)?;
                    if pulled == Progress::Full {
                        // Questions and answers take turns.
                        return Err(stray(self.link.peer, moment, "more data than is due"));
                    }
                    // It may have said so just now, and then says nothing more.
                    let pushed = self.link.push(&mut s, moment)?;
                    let more = pulled == Progress::More && Instant::now() < moment.deadline;
                    if pushed == Progress::NeedsLeave && !more {
                        wait_for(&self.link, true, moment)?;
                    }
                }
                _ => wait_for(&self.link, false, moment)?,
            }
        }
    }

    fn read(&mut self, into: &mut [u8], moment: &Moment<'_>) -> Result<()> {
        self.taken += 1;
        let mut r = Receiving::new(into, self.taken);
        loop {
            let progress = self.link.pull(Some(&mut r), moment)?;
            if progress == Progress::Done {
                return Ok(());
            }
            // A peer that only sends must be told that it may send more.
            self.link.push_control(moment)?;
            match progress {
                Progress::More if Instant::now() < moment.deadline => {}
                _ => wait_for(&self.link, true, moment)?,
            }
        }
    }

    /// The next message, with at most so many bytes.
    pub(super) fn receive(
        &mut self,
        body: &mut Vec<u8>,
        limit: usize,
        moment: &Moment<'_>,
    ) -> Result<Head> {
        let mut bytes = [0; HEAD];
        self.read(&mut bytes, moment)?;
        let head = Head::read(&bytes);
        let Some(head) = head.filter(|h| h.len <= limit.max(REASON)) else {
            return Err(stray(self.link.peer, moment, "a message of an unknown kind or length"));
        };
        body.clear();
        body.try_reserve_exact(head.len)
            .map_err(|_| Error::io("E0807", "there is no memory for a message"))?;
        body.resize(head.len, 0);
        if head.len > 0 {
            self.read(body, moment)?;
        }
        Ok(head)
    }
}

/// Bytes a reason may have.
const REASON: usize = 4096;

#[cfg(test)]
mod tests {
    use super::super::super::flow::{WINDOW, data, moment, pair};
    use super::*;

    #[test]
    fn bodies_are_larger_than_a_window() {
        let [mut worker, mut server] = pair(0, 1).map(Channel::new);
        let body = data(20 * WINDOW);
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..2 {
                    let mut asked = vec![];
                    let head = server.receive(&mut asked, usize::MAX, &moment(0)).unwrap();
                    server.send(head, &asked, &moment(0)).unwrap();
                }
            });
            for step in 0..2 {
                let head = Head::new(Message::Push, 1, step);
                worker.send(head, &body, &moment(0)).unwrap();
                let mut answer = vec![];
                let head = worker.receive(&mut answer, usize::MAX, &moment(0)).unwrap();
                assert!(head.step == step && answer == body);
            }
        });
    }

    #[test]
    fn heads_are_read_as_they_are_written() {
        for kind in KINDS {
            let head = Head { share: 0.25, flags: STOP, len: 77, ..Head::new(kind, 3, 1 << 40) };
            assert_eq!(Head::read(&head.bytes()), Some(head));
        }
        assert_eq!(Head::read(&[0xff; HEAD]), None);
    }
}
