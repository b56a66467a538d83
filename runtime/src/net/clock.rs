//! How far the clocks of two processes are apart.
//!
//! One asks the other for the time, several times. An answer was given at some moment
//! between its question and its arrival. For the one that came back soonest, the middle
//! between these is off by half of the time it took at most, however slow the others were.

use super::Group;
use crate::error::Result;
use std::time::{SystemTime, UNIX_EPOCH};

/// How often the time is asked for.
pub const QUESTIONS: usize = 16;

/// One question and its answer, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// When it was asked, and when the answer was here, by one clock.
    pub sent: i64,
    pub back: i64,
    /// What the other clock said.
    pub theirs: i64,
}

/// What is added to the time of one clock to have that of another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offset {
    /// Nanoseconds that the other clock is ahead.
    pub ahead: i64,
    /// By how much that may be wrong.
    pub within: i64,
}

impl Offset {
    /// Of the clock that `next` is from the one this leads to.
    pub fn then(self, next: Offset) -> Offset {
        Offset { ahead: self.ahead + next.ahead, within: self.within + next.within }
    }

    /// The other way round.
    pub fn back(self) -> Offset {
        Offset { ahead: -self.ahead, ..self }
    }
}

/// Nanoseconds since 1970, by this machine.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// What answers say; nothing of none.
pub fn offset(answers: &[Asked]) -> Offset {
    // A clock may be set meanwhile, and go backwards.
    let sound = answers.iter().filter(|a| a.back >= a.sent);
    let Some(best) = sound.min_by_key(|a| a.back - a.sent) else { return Offset::default() };
    let took = best.back - best.sent;
    Offset { ahead: best.theirs - (best.sent + took / 2), within: took - took / 2 }
}

/// Asks for the time, as often as it takes.
pub fn ask(mut their_time: impl FnMut() -> Result<i64>) -> Result<Offset> {
    let mut answers = vec![];
    for _ in 0..QUESTIONS {
        let sent = now();
        let theirs = their_time()?;
        answers.push(Asked { sent, theirs, back: now() });
    }
    Ok(offset(&answers))
}

const WHAT: &str = "what time it is";

impl Group {
    /// How far the chief's clock is ahead of this process's. All ask at the same point.
    pub fn align(&self) -> Result<Offset> {
        if !self.is_chief() {
            return ask(|| {
                let mut time = [0; 8];
                self.send(0, &[1], WHAT, "")?;
                self.recv(0, &mut time, WHAT, "")?;
                Ok(i64::from_le_bytes(time))
            });
        }
        for peer in 1..self.size() {
            for _ in 0..QUESTIONS {
                self.recv(peer, &mut [0], WHAT, "")?;
                self.send(peer, &now().to_le_bytes(), WHAT, "")?;
            }
        }
        Ok(Offset::default())
    }

    /// The chief gets what all others have, in the order of the ranks.
    pub fn hand_in(&self, own: &[u8], what: &str) -> Result<Vec<Vec<u8>>> {
        if !self.is_chief() {
            self.send(0, &(own.len() as u64).to_le_bytes(), what, "")?;
            self.send(0, own, what, "")?;
            self.flush(what)?;
            return Ok(vec![]);
        }
        let mut all = vec![];
        for peer in 1..self.size() {
            let mut len = [0; 8];
            self.recv(peer, &mut len, what, "")?;
            let len = usize::try_from(u64::from_le_bytes(len)).unwrap_or(usize::MAX);
            let mut text = vec![];
            if len > MOST || text.try_reserve_exact(len).is_err() {
                let moment = self.moment(what, "");
                return Err(super::stray(peer, &moment, "more than anybody has to say"));
            }
            text.resize(len, 0);
            self.recv(peer, &mut text, what, "")?;
            all.push(text);
        }
        Ok(all)
    }
}

/// Bytes that a process may hand in.
pub const MOST: usize = 32 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that is ahead by some time, asked over a network whose two ways take what
    /// they take.
    #[test]
    fn the_soonest_answer_says_how_far_clocks_are_apart() {
        let mut seed = 7u64;
        let mut random = |n: i64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((seed >> 33) as i64) % n
        };
        for ahead in [0, 3, -40_000_000_000, 123_456_789_012] {
            for least in [0, 20_000, 5_000_000] {
                let mut now = 1_700_000_000_000_000_000;
                let mut answers = vec![];
                for i in 0..QUESTIONS {
                    // Mostly late, in either direction; one of them is not.
                    let late = if i == 11 { 2 } else { 50_000_000 };
                    let (there, back) = (least + random(late), least + random(late));
                    let theirs = now + there + ahead;
                    answers.push(Asked { sent: now, theirs, back: now + there + back });
                    now += there + back + random(1_000_000);
                }
                let found = offset(&answers);
                assert!((found.ahead - ahead).abs() <= found.within, "{found:?} {ahead}");
                assert!(found.within <= least + 2, "{found:?} {least}");
            }
        }
        assert_eq!(offset(&[]), Offset::default());
        // A clock that was set while somebody asked says nothing.
        let backwards = Asked { sent: 100, theirs: 1_000, back: 50 };
        let fine = Asked { sent: 200, theirs: 1_205, back: 210 };
        assert_eq!(offset(&[backwards, fine]), Offset { ahead: 1_000, within: 5 });
    }

    #[test]
    fn offsets_are_added_up() {
        let to_server = Offset { ahead: 30, within: 2 };
        let of_chief = Offset { ahead: 10, within: 3 };
        assert_eq!(to_server.then(of_chief.back()), Offset { ahead: 20, within: 5 });
    }

    #[test]
    fn everybody_knows_the_chiefs_time() {
        let groups = crate::net::local::groups(3, std::time::Duration::from_secs(20));
        let offsets: Vec<(Offset, usize)> = std::thread::scope(|s| {
            let each = groups.iter().map(|g| {
                s.spawn(move || {
                    let offset = g.align().unwrap();
                    let own = format!("worker {}", g.rank());
                    let all = g.hand_in(own.as_bytes(), "names").unwrap();
                    let right =
                        |(i, t): (usize, &Vec<u8>)| t == format!("worker {}", i + 1).as_bytes();
                    assert!(all.iter().enumerate().all(right));
                    (offset, all.len())
                })
            });
            each.collect::<Vec<_>>().into_iter().map(|t| t.join().unwrap()).collect()
        });
        // They have one clock.
        assert!(offsets.iter().all(|(o, _)| o.ahead.abs() <= o.within), "{offsets:?}");
        assert_eq!(offsets.iter().map(|(_, n)| *n).collect::<Vec<_>>(), [2, 0, 0]);
    }
}
