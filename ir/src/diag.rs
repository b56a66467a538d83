//! Diagnostics: a code, the cause, the places, a way out.

pub mod render;

pub use render::{Style, render};

/// A byte range of one source file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Span {
    /// Index into [`SourceMap::files`]; `u32::MAX` for synthetic nodes.
    pub file: u32,
    pub lo: u32,
    pub hi: u32,
}

impl Span {
    pub const NONE: Span = Span { file: u32::MAX, lo: 0, hi: 0 };

    pub fn new(file: u32, lo: usize, hi: usize) -> Span {
        Span { file, lo: lo as u32, hi: hi as u32 }
    }

    pub fn is_none(self) -> bool {
        self.file == u32::MAX
    }

    /// The smallest span covering both.
    pub fn to(self, other: Span) -> Span {
        if self.is_none() {
            return other;
        }
        if other.is_none() || other.file != self.file {
            return self;
        }
        Span { file: self.file, lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }
}

impl Default for Span {
    fn default() -> Span {
        Span::NONE
    }
}

/// The texts diagnostics point into.
#[derive(Clone, Debug, Default)]
pub struct SourceMap {
    pub files: Vec<SourceFile>,
}

#[derive(Clone, Debug)]
pub struct SourceFile {
    /// As the user named it.
    pub name: String,
    pub text: String,
}

impl SourceMap {
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> u32 {
        self.files.push(SourceFile { name: name.into(), text: text.into() });
        (self.files.len() - 1) as u32
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    Error,
    Warning,
}

/// One finding. Every code has an entry in the table behind `tfc explain`.
#[derive(Clone, Debug, PartialEq)]
pub struct Diag {
    pub code: &'static str,
    pub severity: Severity,
    pub message: String,
    pub labels: Vec<Label>,
    pub notes: Vec<String>,
    pub help: Vec<Help>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    pub span: Span,
    pub text: String,
    pub primary: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Help {
    pub text: String,
    /// Replace this span by this text to apply the help.
    pub edit: Option<(Span, String)>,
}

impl Diag {
    pub fn error(code: &'static str, message: impl Into<String>) -> Diag {
        Diag {
            code,
            severity: Severity::Error,
            message: message.into(),
            labels: vec![],
            notes: vec![],
            help: vec![],
        }
    }

    pub fn warning(code: &'static str, message: impl Into<String>) -> Diag {
        Diag { severity: Severity::Warning, ..Diag::error(code, message) }
    }

    pub fn at(mut self, span: Span, text: impl Into<String>) -> Diag {
        self.labels.push(Label { span, text: text.into(), primary: true });
        self
    }

    pub fn also(mut self, span: Span, text: impl Into<String>) -> Diag {
        self.labels.push(Label { span, text: text.into(), primary: false });
        self
    }

    pub fn note(mut self, text: impl Into<String>) -> Diag {
        self.notes.push(text.into());
        self
    }

    pub fn help(mut self, text: impl Into<String>) -> Diag {
        self.help.push(Help { text: text.into(), edit: None });
        self
    }

    pub fn fix(
        mut self,
        text: impl Into<String>,
        span: Span,
        replacement: impl Into<String>,
    ) -> Diag {
        self.help.push(Help { text: text.into(), edit: Some((span, replacement.into())) });
        self
    }
}
