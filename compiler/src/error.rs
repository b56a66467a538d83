//! Failures as the user sees them: coded findings and the texts they point into.

use std::fmt;
use tfc_abi::ErrorCode;
use tfc_ir::diag::{Diag, SourceMap, Style, render};

/// What can go wrong, with the findings if it does.
pub type Result<T> = std::result::Result<T, Error>;

/// One or more findings. Displays as the command line would print them.
#[derive(Clone, Debug)]
pub struct Error {
    /// What was found, the first of which decides the code.
    pub diags: Vec<Diag>,
    /// The texts the findings point into.
    pub sources: SourceMap,
}

/// What the process should exit with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// The user's graph or data is wrong.
    Graph = 1,
    /// The command line is.
    Usage = 2,
    /// A file, the disk or the toolchain failed.
    Io = 3,
    /// A peer was lost.
    Peer = 4,
    /// A bug in tfc.
    Bug = 101,
}

impl Error {
    /// Findings about texts.
    pub fn new(diags: Vec<Diag>, sources: SourceMap) -> Error {
        Error { diags, sources }
    }

    /// The code of the first finding.
    pub fn code(&self) -> ErrorCode {
        self.diags.first().map_or("", |d| d.code).into()
    }

    /// The exit code of a process that fails with this. The first finding
    /// decides: codes are grouped by whose fault it is.
    pub fn exit(&self) -> Exit {
        exit_of(self.code().as_str())
    }
}

/// Exit status for a code, by its family.
pub fn exit_of(code: &str) -> Exit {
    match code.get(1..3) {
        _ if matches!(code, "E0899" | "E0998" | "E0999") => Exit::Bug,
        Some("07") => Exit::Peer,
        Some("08") => Exit::Io,
        Some("09") => Exit::Usage,
        _ => Exit::Graph,
    }
}

impl Error {
    /// A state no input should reach: a bug in tfc, reported as one.
    pub(crate) fn bug(message: impl Into<String>) -> Error {
        Diag::error("E0899", message)
            .note("this is a bug in tfc, not in your graph or your data")
            .into()
    }
}

/// Failures of a call have no place in a source file: they are about feeds,
/// files and state.
impl From<tfc_runtime::Error> for Error {
    fn from(error: tfc_runtime::Error) -> Error {
        diag_of(&error).into()
    }
}

/// A failure of the runtime as a finding.
pub(crate) fn diag_of(error: &tfc_runtime::Error) -> Diag {
    let mut diag = Diag::error(error.code().as_str(), error.message());
    diag.notes = error.notes().to_vec();
    match error.help_text() {
        Some(help) => diag.help(help),
        None => diag,
    }
}

impl From<Diag> for Error {
    fn from(diag: Diag) -> Error {
        Error { diags: vec![diag], sources: SourceMap::default() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = render(&self.diags, &self.sources, Style::Plain);
        f.write_str(text.trim_end())
    }
}

impl std::error::Error for Error {}

/// What the system said, without its number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".into(),
        std::io::ErrorKind::PermissionDenied => "permission denied".into(),
        std::io::ErrorKind::IsADirectory => "it is a directory".into(),
        std::io::ErrorKind::NotADirectory => "part of the path is not a directory".into(),
        std::io::ErrorKind::StorageFull => "the disk is full".into(),
        std::io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only".into(),
        std::io::ErrorKind::BrokenPipe => "the reader went away".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_decide_the_exit_code() {
        assert_eq!(exit_of("E0203"), Exit::Graph);
        assert_eq!(exit_of("E0801"), Exit::Io);
        assert_eq!(exit_of("E0901"), Exit::Usage);
        assert_eq!(exit_of("E0701"), Exit::Peer);
        for bug in ["E0899", "E0998", "E0999"] {
            assert_eq!(exit_of(bug), Exit::Bug);
        }
        assert_eq!(exit_of(""), Exit::Graph);
    }
}
