//! What can go wrong at run time, in the user's words.
//!
//! Every failure has a stable code that `tfc explain` knows, one sentence that
//! says what is wrong, notes with the facts behind it and, where there is one, a
//! help that can be applied.
//!
//! | code | about |
//! |---|---|
//! | E0501, E0502, E0520 | a feed is missing, unknown, given twice |
//! | E0503, E0504, E0505 | a feed has another element type, number of axes, size |
//! | E0506, E0507, E0517 | a run-time dim: feeds disagree, out of range, not determined by any feed |
//! | E0509 | an `assert` of the graph |
//! | E0510 | a row index out of range in an update |
//! | E0511, E0512, E0513, E0514 | a malformed .npy, .npz, literal; an unknown kind of file |
//! | E0515, E0519 | an archive lacks the array; data of a kind we cannot use |
//! | E0516 | too large for memory |
//! | E0518 | sizes that an op cannot work with |
//! | E0521, E0522 | a result that does not exist; memory that does not fit it |
//! | E0523 | an entry that cannot be run in batches |
//! | E0524, E0525 | a call was cancelled; its deadline has passed |
//! | E0526 | old variables for an entry that writes some |
//! | E0560, E0561 | the end of the input; an element for a closed queue |
//! | E0562, E0571 | a wait that would never end; stopped while waiting |
//! | E0563, E0567, E0568 | a reader: no files, records of another type, a position that is not there |
//! | E0564, E0565, E0566 | malformed CSV, IDX, TFRecord |
//! | E0569, E0570 | an element that does not fit its queue; no such queue or reader |
//! | E0580, E0581, E0582 | a checkpoint is torn, of another graph; none can be used |
//! | E0583, E0585, E0586, E0587 | checkpoints are in the way; options or data that do not go with them |
//! | E0588, E0589, E0590 | a state file's name; results that are not complete; a directory in use |
//! | E0591 | a pipeline that cannot be resumed |
//! | E0592, E0593 | a rename that renames nothing; only some of the variables |
//! | E0584 | a file to restore from has nothing that fits |
//! | E0601 | a malformed or torn .safetensors |
//! | E0603, E0604, E0605 | state: a variable is missing, of another type, unknown |
//! | E0701, E0702, E0703, E0704 | a peer is gone, is late, refused to let this process join, sent what does not fit |
//! | E0705, E0706 | the environment of a job makes no sense; plain text to other hosts |
//! | E0803, E0804 | a file cannot be written, read |
//! | E0805, E0806 | the CPU lacks something; the program is damaged or of another version |
//! | E0807 | a C header of another library |
//! | E0810 | a path in the graph leads out of the sandbox |
//! | E0840, E0841, E0842, E0843 | no GPU, one out of memory, one too old, one that failed |
//! | E0899 | a bug in tfc |
//! | E0911, E0912, E0913, E0914 | no such entry, no such option, a value is missing, is wrong |

use std::fmt;
pub use tfc_abi::ErrorCode;

pub type Result<T> = std::result::Result<T, Error>;

/// Whose problem it is; decides the exit code of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// The user's graph or data.
    Data,
    /// The command line.
    Usage,
    /// The file system or the machine.
    Io,
    /// Another process of the job.
    Peer,
    /// The compiler or the runtime.
    Bug,
}

impl ErrorKind {
    pub const fn exit_code(self) -> i32 {
        match self {
            ErrorKind::Data => 1,
            ErrorKind::Usage => 2,
            ErrorKind::Io => 3,
            ErrorKind::Peer => 4,
            ErrorKind::Bug => 101,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Inner {
    code: ErrorCode,
    kind: ErrorKind,
    message: String,
    notes: Vec<String>,
    help: Option<String>,
    /// The processes that it is about.
    about: Vec<Party>,
}

/// Another process of a job, by its number among its kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Party {
    Worker(usize),
    Server(usize),
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Worker(number) => write!(f, "worker {number}"),
            Party::Server(number) => write!(f, "server {number}"),
        }
    }
}

impl Error {
    fn new(kind: ErrorKind, code: ErrorCode, message: String) -> Error {
        let (notes, help, about) = (vec![], None, vec![]);
        Error { inner: Box::new(Inner { code, kind, message, notes, help, about }) }
    }

    /// Another process of the job is the problem.
    pub fn peer(code: impl Into<ErrorCode>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Peer, code.into(), message.into())
    }

    pub fn data(code: impl Into<ErrorCode>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Data, code.into(), message.into())
    }

    pub fn usage(code: impl Into<ErrorCode>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Usage, code.into(), message.into())
    }

    pub fn io(code: impl Into<ErrorCode>, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Io, code.into(), message.into())
    }

    /// A state no input should reach.
    pub fn bug(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Bug, ErrorCode::BUG, message.into())
            .note("this is a bug in tfc, not in your graph or your data")
    }

    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Error {
        self.inner.notes.push(note.into());
        self
    }

    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Error {
        self.inner.help = Some(help.into());
        self
    }

    /// The same, said of another process.
    #[must_use]
    pub(crate) fn concerning(mut self, party: Party) -> Error {
        self.inner.about = vec![party];
        self
    }

    /// The processes that it is about, if it is about any.
    pub fn about(&self) -> &[Party] {
        &self.inner.about
    }

    /// The same in other words.
    #[must_use]
    pub(crate) fn worded(mut self, message: &str) -> Error {
        message.clone_into(&mut self.inner.message);
        self
    }

    /// The same, with another name for whoever it is about.
    #[must_use]
    pub(crate) fn renamed(mut self, from: &str, to: &str) -> Error {
        self.inner.message = self.inner.message.replace(from, to);
        self
    }

    /// The input has ended: a run is over rather than wrong.
    pub fn is_end_of_input(&self) -> bool {
        self.inner.code == ErrorCode::END_OF_INPUT
    }

    pub fn code(&self) -> ErrorCode {
        self.inner.code
    }

    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    pub fn message(&self) -> &str {
        &self.inner.message
    }

    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    pub fn help_text(&self) -> Option<&str> {
        self.inner.help.as_deref()
    }

    pub fn exit_code(&self) -> i32 {
        self.inner.kind.exit_code()
    }

    /// The same as something the program goes on after.
    pub fn to_warning(&self, json: bool) -> String {
        if json {
            return self.json("warning");
        }
        self.to_string().replacen("error[", "warning[", 1)
    }

    /// One line of JSON, for `--message-format json`.
    pub fn to_json(&self) -> String {
        self.json("error")
    }

    fn json(&self, severity: &str) -> String {
        use crate::io::json::quote;
        let notes: Vec<String> = self.notes().iter().map(|n| quote(n)).collect();
        let help = self.help_text().map(|h| format!("{{\"text\":{}}}", quote(h)));
        // As the compiler writes its findings, which have places.
        format!(
            "{{\"severity\":\"{severity}\",\"code\":{},\"message\":{},\"labels\":[],\"notes\":[{}],\"help\":[{}],\"exit_code\":{}}}",
            quote(self.code().as_str()),
            quote(self.message()),
            notes.join(","),
            help.unwrap_or_default(),
            self.exit_code(),
        )
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code(), self.message())?;
        for n in self.notes() {
            write!(f, "\n  = note: {n}")?;
        }
        if let Some(h) = self.help_text() {
            write!(f, "\n  = help: {h}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

impl From<tfc_compute::mem::OutOfMemory> for Error {
    fn from(e: tfc_compute::mem::OutOfMemory) -> Error {
        Error::io("E0516", e.to_string())
    }
}

pub use tfc_abi::names::nearest as closest;

/// `a, b and c`, each in backticks.
pub fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|n| format!("`{n}`")).collect();
    match names.as_slice() {
        [] => "none".into(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renders_with_notes_and_help() {
        let e = Error::data("E0501", "feed `x` is missing").note("a").help("b");
        assert_eq!(e.to_string(), "error[E0501]: feed `x` is missing\n  = note: a\n  = help: b");
        assert_eq!(
            e.to_json(),
            r#"{"severity":"error","code":"E0501","message":"feed `x` is missing","labels":[],"notes":["a"],"help":[{"text":"b"}],"exit_code":1}"#
        );
    }

    #[test]
    fn suggests_only_what_is_close() {
        assert_eq!(closest("predcit", ["train", "predict"]), Some("predict"));
        assert_eq!(closest("z", ["train", "predict"]), None);
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
