//! The order in which elements leave a queue.
//!
//! [`Line`] is what the interpreter and the runtime share: which element is
//! next, and whether there is one. Waiting, threads and bytes are the runtime's.
//!
//! Invariants
//! - What leaves, and in which order, depends on the order of arrivals alone,
//!   never on how full the queue happens to be: a shuffle draws its k-th element
//!   among the `min` oldest, and waits for as many to be there.
//! - Nothing is lost and nothing comes twice: every element pushed is popped
//!   once, cleared, or still in line.

use crate::plan::QueueKind;
use std::collections::VecDeque;

/// Elements in line; `rank` orders them in a priority queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Line<T> {
    rule: Rule,
    items: VecDeque<(i64, T)>,
    /// Elements that have left, drops included.
    left: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Fifo,
    Shuffle { window: usize, seed: u64 },
    Priority,
}

impl<T> Line<T> {
    /// An empty line; a reader's is as a first-in-first-out queue's.
    pub fn new(kind: &QueueKind) -> Line<T> {
        let rule = match *kind {
            QueueKind::Shuffle { min, seed, .. } => {
                let window = usize::try_from(min.max(1)).unwrap_or(usize::MAX);
                Rule::Shuffle { window, seed: seed as u64 }
            }
            QueueKind::Priority { .. } => Rule::Priority,
            QueueKind::Fifo { .. } | QueueKind::Reader(_) => Rule::Fifo,
        };
        Line { rule, items: VecDeque::new(), left: 0 }
    }

    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many elements have left since the start.
    pub fn left(&self) -> u64 {
        self.left
    }

    pub fn push(&mut self, rank: i64, item: T) {
        match self.rule {
            Rule::Fifo | Rule::Shuffle { .. } => self.items.push_back((rank, item)),
            Rule::Priority => {
                let at = self.items.partition_point(|(other, _)| *other <= rank);
                self.items.insert(at, (rank, item));
            }
        }
    }

    /// How many elements must be in line for `count` to be taken while more may
    /// still come.
    pub fn needed(&self, count: usize) -> usize {
        match self.rule {
            _ if count == 0 => 0,
            Rule::Fifo | Rule::Priority => count,
            Rule::Shuffle { window, .. } => window.saturating_add(count - 1),
        }
    }

    /// Whether `count` elements can be taken now.
    pub fn ready(&self, count: usize, closed: bool) -> bool {
        self.items.len() >= if closed { count } else { self.needed(count) }
    }

    /// Takes the next element, of whatever is there.
    pub fn pop(&mut self) -> Option<T> {
        let (_, item) = match self.rule {
            Rule::Fifo | Rule::Priority => self.items.pop_front(),
            Rule::Shuffle { window, seed } => {
                let among = window.min(self.items.len());
                self.items.swap_remove_front(draw(seed, self.left, among))
            }
        }?;
        self.left += 1;
        Some(item)
    }

    /// Begins where `left` elements have left and these are in line.
    pub fn go_on(&mut self, left: u64, items: impl IntoIterator<Item = T>) {
        self.items = items.into_iter().map(|item| (0, item)).collect();
        self.left = left;
    }

    /// Forgets everything, also what has left.
    pub fn clear(&mut self) {
        self.items.clear();
        self.left = 0;
    }
}

/// A number below `among` (or zero), the same for the same seed and turn.
fn draw(seed: u64, turn: u64, among: usize) -> usize {
    // splitmix64 of two words.
    let mix = |mut z: u64| {
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let golden = 0x9e37_79b9_7f4a_7c15u64;
    let word = mix(mix(seed.wrapping_add(golden)) ^ turn.wrapping_add(1).wrapping_mul(golden));
    ((u128::from(word) * among as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(mut line: Line<i64>, items: i64, ahead: usize) -> Vec<i64> {
        let mut out = vec![];
        for i in 0..items {
            line.push(-i, i);
            // A producer that is `ahead` elements in front.
            while line.len() > ahead && line.ready(1, false) {
                out.extend(line.pop());
            }
        }
        while line.ready(1, true) {
            out.extend(line.pop());
        }
        out
    }

    #[test]
    fn a_shuffle_does_not_depend_on_how_far_the_producer_is_ahead() {
        let line = || Line::new(&QueueKind::Shuffle { capacity: 64, min: 16, seed: 7 });
        let tight = drain(line(), 1000, 0);
        assert_eq!(tight, drain(line(), 1000, 40));
        assert_ne!(tight[..100], (0..100).collect::<Vec<i64>>()[..]);
        let mut sorted = tight;
        sorted.sort_unstable();
        assert_eq!(sorted, (0..1000).collect::<Vec<i64>>());
    }

    #[test]
    fn fifo_and_priority_keep_their_orders() {
        assert_eq!(
            drain(Line::new(&QueueKind::Fifo { capacity: 8 }), 5, 3),
            [0, 1, 2, 3, 4].to_vec()
        );
        let mut line = Line::new(&QueueKind::Priority { capacity: 8 });
        for (rank, item) in [(3, 'a'), (1, 'b'), (3, 'c'), (1, 'd')] {
            line.push(rank, item);
        }
        let order: Vec<char> = std::iter::from_fn(|| line.pop()).collect();
        assert_eq!(order, ['b', 'd', 'a', 'c']);
        assert_eq!(line.left(), 4);
    }
}
