//! Contexts between calls.
//!
//! One lies where a call takes it and puts it back with one atomic operation each,
//! which is all there is while calls of an entry come one after the other. When
//! several are made at once, the others' contexts are in a list.

use super::Context;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Contexts of an entry that nobody uses at the moment.
#[derive(Default)]
pub(crate) struct Idle {
    /// From `Box::into_raw`, or null.
    first: AtomicPtr<Context>,
    #[expect(clippy::vec_box, reason = "a call moves a pointer rather than a large context")]
    more: Mutex<Vec<Box<Context>>>,
}

impl Idle {
    #[expect(clippy::vec_box, reason = "as `more`")]
    fn lock(&self) -> MutexGuard<'_, Vec<Box<Context>>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn first(&self) -> Option<Box<Context>> {
        let first = self.first.swap(std::ptr::null_mut(), Ordering::Acquire);
        // SAFETY: what is not null was a box, and whoever takes it leaves null.
        (!first.is_null()).then(|| unsafe { Box::from_raw(first) })
    }

    /// One of an earlier call, or a new one.
    #[inline]
    pub fn take(&self) -> Box<Context> {
        match self.first() {
            Some(context) => context,
            None => self.another(),
        }
    }

    #[cold]
    fn another(&self) -> Box<Context> {
        let listed = self.lock().pop();
        listed.unwrap_or_default()
    }

    #[inline]
    pub fn give_back(&self, mut context: Box<Context>) {
        context.shrink();
        let context = Box::into_raw(context);
        let null = std::ptr::null_mut();
        let put = self.first.compare_exchange(null, context, Ordering::Release, Ordering::Relaxed);
        if put.is_err() {
            // SAFETY: it was a box a moment ago, and nobody else has seen it.
            self.list(unsafe { Box::from_raw(context) });
        }
    }

    #[cold]
    fn list(&self, context: Box<Context>) {
        self.lock().push(context);
    }

    /// Frees them.
    pub fn clear(&self) {
        drop(self.first());
        self.lock().clear();
    }

    /// Bytes of working memory they have.
    pub fn kept(&self) -> usize {
        // A call that begins meanwhile finds none there, and makes one.
        let first = self.first();
        let kept = first.as_ref().map_or(0, |context| context.kept());
        let listed = self.lock().iter().map(|context| context.kept()).sum::<usize>();
        if let Some(context) = first {
            self.list(context);
        }
        kept + listed
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_come_back_one_or_several_at_a_time() {
        let idle = Idle::default();
        let [a, b] = [idle.take(), idle.take()];
        let places = [&raw const *a, &raw const *b];
        idle.give_back(a);
        idle.give_back(b);
        assert_eq!(idle.kept(), 0);
        let [c, d] = [idle.take(), idle.take()];
        let mut again = [&raw const *c, &raw const *d];
        again.sort_unstable();
        let mut first = places;
        first.sort_unstable();
        assert_eq!(first, again);
        idle.give_back(c);
        idle.clear();
        assert!(idle.first().is_none() && idle.lock().is_empty());
    }
}
