//! Error codes as a type.

use std::fmt;

/// The stable code of an error, such as `E0503`; `tfc explain E0503` says what it
/// means. Compare it with the constants here rather than with text.
///
/// ```
/// use tfc_abi::ErrorCode;
/// assert_eq!(ErrorCode::DEADLINE.as_str(), "E0525");
/// assert_eq!(ErrorCode::DEADLINE.number(), 525);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(&'static str);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        impl ErrorCode {
            $($(#[$doc])* pub const $name: ErrorCode = ErrorCode($code);)*

            /// Every constant here.
            pub const NAMED: &'static [ErrorCode] = &[$(ErrorCode::$name),*];
        }
    };
}

codes! {
    /// A feed is missing.
    MISSING_FEED = "E0501";
    /// A feed that the entry has no parameter for.
    UNKNOWN_FEED = "E0502";
    /// A tensor has another element type.
    WRONG_DTYPE = "E0503";
    /// A feed has another number of axes.
    WRONG_RANK = "E0504";
    /// A feed has another size.
    WRONG_SIZE = "E0505";
    /// Feeds disagree about a run-time dim.
    DIMS_DISAGREE = "E0506";
    /// A run-time dim is outside its declared range.
    DIM_OUT_OF_RANGE = "E0507";
    /// An `assert` of the graph failed.
    ASSERTION = "E0509";
    /// Too large for memory.
    OUT_OF_MEMORY = "E0516";
    /// The kind of a file cannot be told.
    UNKNOWN_FILE_KIND = "E0514";
    /// A feed was given twice.
    REPEATED_FEED = "E0520";
    /// There is no such result.
    UNKNOWN_RESULT = "E0521";
    /// The caller's memory does not fit a result.
    WRONG_RESULT_MEMORY = "E0522";
    /// The call was cancelled.
    CANCELLED = "E0524";
    /// The call's deadline has passed.
    DEADLINE = "E0525";
    /// A call of an entry that writes variables may not use old ones.
    STALE_WRITER = "E0526";
    /// A variable to be saved is not finite.
    NOT_FINITE = "E0534";
    /// The input has ended: a run is over rather than wrong.
    END_OF_INPUT = "E0560";
    /// The queue is closed.
    QUEUE_CLOSED = "E0561";
    /// The runners were stopped.
    RUNNERS_STOPPED = "E0571";
    /// A checkpoint is torn.
    TORN_CHECKPOINT = "E0580";
    /// A process of the job is gone.
    PEER_LOST = "E0701";
    /// A process of the job did not answer in time.
    PEER_LATE = "E0702";
    /// A process may not join the job.
    JOIN_REFUSED = "E0703";
    /// A message between processes that does not fit.
    BAD_MESSAGE = "E0704";
    /// The environment's description of the job makes no sense.
    BAD_JOB = "E0705";
    /// Plain text would cross a network.
    PLAINTEXT = "E0706";
    /// A certificate is missing, expired or not of the right authority.
    NOT_TRUSTED = "E0708";
    /// An entry or its input cannot be shared among processes.
    CANNOT_SHARE = "E0707";
    /// A file cannot be read.
    UNREADABLE_FILE = "E0804";
    /// A path in the graph leads out of the sandbox.
    OUTSIDE_SANDBOX = "E0810";
    /// There is no such variable.
    UNKNOWN_VARIABLE = "E0605";
    /// The CPU lacks what the code was compiled for.
    CPU_LACKS = "E0805";
    /// A compiled program is damaged or of another version.
    DAMAGED_PROGRAM = "E0806";
    /// A saved module is damaged, or of another version.
    DAMAGED_MODULE = "E0820";
    /// There is no GPU that can be used, or no code for one.
    NO_GPU = "E0840";
    /// The GPU is out of memory.
    GPU_MEMORY = "E0841";
    /// The GPU or its driver is too old for the program.
    GPU_TOO_OLD = "E0842";
    /// The GPU failed.
    GPU_LOST = "E0843";
    /// A bug in tfc.
    BUG = "E0899";
    /// There is no such entry.
    UNKNOWN_ENTRY = "E0911";
}

impl ErrorCode {
    /// `E0503`.
    pub const fn as_str(self) -> &'static str {
        self.0
    }

    /// 503.
    pub fn number(self) -> u16 {
        self.0.get(1..).and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }
}

impl From<&'static str> for ErrorCode {
    fn from(code: &'static str) -> ErrorCode {
        ErrorCode(code)
    }
}

impl PartialEq<str> for ErrorCode {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}

impl PartialEq<&str> for ErrorCode {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}
