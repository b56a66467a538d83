//! What one call may be told: until when to go on, and who may stop it.
//!
//! A call looks whether it should stop wherever it waits (for variables, for
//! queues), before every iteration of a loop, and, as long as it writes no
//! variable, between steps.
//!
//! What a stopped call leaves behind: its variables as they were before it, or,
//! if it has waited for a queue since, as they were when it began the last wait
//! (others may have used them meanwhile). Elements it took from queues or put
//! into them stay taken and put.

use crate::error::{Error, ErrorCode, Result};
use crate::profile::Profile;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a call is made; the default waits as long as it takes.
///
/// ```
/// use std::time::Duration;
/// use tfc_runtime::{CallOptions, CancelToken};
///
/// let stop = CancelToken::new();
/// let options = CallOptions::new().timeout(Duration::from_millis(20)).cancel(&stop);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallOptions {
    /// When to give up, with error E0525.
    pub deadline: Option<Instant>,
    /// Who may stop it, with error E0524.
    pub cancel: Option<CancelToken>,
    /// Whether the last complete version of the variables will do, where they
    /// are being written; see [`CallOptions::stale_ok`].
    pub stale_ok: bool,
    /// Where the call leaves what its steps took.
    pub profile: Option<Arc<Profile>>,
}

/// A call like any other.
pub(crate) const PLAIN: &CallOptions =
    &CallOptions { deadline: None, cancel: None, stale_ok: false, profile: None };

impl CallOptions {
    /// A call that waits as long as it takes.
    pub fn new() -> CallOptions {
        CallOptions::default()
    }

    /// Gives up at this time.
    #[must_use]
    pub fn deadline(mut self, at: Instant) -> CallOptions {
        self.deadline = Some(at);
        self
    }

    /// Gives up after this long.
    #[must_use]
    pub fn timeout(self, after: Duration) -> CallOptions {
        match Instant::now().checked_add(after) {
            Some(at) => self.deadline(at),
            None => self,
        }
    }

    /// Stops when the token is cancelled.
    #[must_use]
    pub fn cancel(mut self, token: &CancelToken) -> CallOptions {
        self.cancel = Some(token.clone());
        self
    }

    /// Reads the last complete version of variables that are being written,
    /// rather than wait for the writer. For entries that write none: serving
    /// while another thread trains.
    ///
    /// All variables of the call are still of one version: as they were between
    /// two calls. The price is a copy of the variables for each call that writes
    /// them, made only while such reads keep coming.
    #[must_use]
    pub fn stale_ok(mut self) -> CallOptions {
        self.stale_ok = true;
        self
    }

    /// Leaves there what each step takes.
    #[must_use]
    pub fn profile(mut self, profile: &Arc<Profile>) -> CallOptions {
        self.profile = Some(Arc::clone(profile));
        self
    }

    /// Whether there is anything to look out for.
    pub(crate) fn may_stop(&self) -> bool {
        self.deadline.is_some() || self.cancel.is_some()
    }

    /// Why the call should stop now, if it should.
    pub(crate) fn stopped(&self) -> Option<Error> {
        if self.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
            return Some(Error::data(ErrorCode::CANCELLED, "the call was cancelled"));
        }
        if self.deadline.is_some_and(|at| Instant::now() >= at) {
            return Some(Error::data(ErrorCode::DEADLINE, "the call's deadline has passed"));
        }
        None
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self.stopped() {
            Some(e) => Err(e),
            None => Ok(()),
        }
    }

    /// Waits on a condition variable, no longer than the deadline.
    pub(crate) fn wait<'g, T>(
        &self,
        condvar: &Condvar,
        guard: MutexGuard<'g, T>,
    ) -> MutexGuard<'g, T> {
        match self.deadline {
            None => condvar.wait(guard).unwrap_or_else(PoisonError::into_inner),
            Some(at) => {
                let left = at.saturating_duration_since(Instant::now());
                condvar.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
            }
        }
    }

    /// Has the token wake `bell` when it is cancelled, for as long as the result
    /// lives. To be called before the lock that is waited under is taken.
    pub(crate) fn watch(&self, bell: &Arc<impl Bell + 'static>) -> Option<Watch<'_>> {
        let token = self.cancel.as_ref()?;
        let id = token.0.next.fetch_add(1, Ordering::Relaxed);
        token.0.lock().push((id, bell.clone()));
        Some(Watch { token, id })
    }
}

/// Something calls wait at.
pub(crate) trait Bell: Send + Sync {
    /// Makes everyone who waits look again. Takes the lock they wait under, so
    /// that nobody is between looking and waiting.
    fn ring(&self);
}

/// Stops calls from another thread. Clones are one token; a cancelled token
/// stays cancelled.
#[derive(Clone, Default)]
pub struct CancelToken(Arc<Token>);

#[derive(Default)]
struct Token {
    cancelled: AtomicBool,
    next: AtomicU64,
    waits: Mutex<Vec<(u64, Arc<dyn Bell>)>>,
}

impl Token {
    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Arc<dyn Bell>)>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CancelToken {
    /// A token nobody has cancelled.
    pub fn new() -> CancelToken {
        CancelToken::default()
    }

    /// Stops every call made with this token, now and from now on.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::SeqCst);
        let bells: Vec<Arc<dyn Bell>> =
            self.0.lock().iter().map(|(_, bell)| bell.clone()).collect();
        bells.iter().for_each(|bell| bell.ring());
    }

    /// Whether somebody has cancelled it.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::SeqCst)
    }
}

impl std::fmt::Debug for CancelToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CancelToken").field("cancelled", &self.is_cancelled()).finish()
    }
}

pub(crate) struct Watch<'a> {
    token: &'a CancelToken,
    id: u64,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.token.0.lock().retain(|(id, _)| *id != self.id);
    }
}
