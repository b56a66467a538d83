//! The `tfc` command: arguments in, text and an exit code out.
//!
//! Each subcommand is one file. They return what goes to standard output, or an
//! [`Error`]; only this file prints and decides exit codes.

pub mod args;
mod bug;
mod ops;

use crate::error::{Error, Exit};
use crate::report;
use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};

/// Runs the command line and returns the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    bug::install(&args);
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are not failures.
            let code = if e.use_stderr() { Exit::Usage as u8 } else { 0 };
            let _ = e.print();
            return code;
        }
    };
    match dispatch(&cli) {
        Ok(Done { text, code }) => {
            let mut out = std::io::stdout().lock();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Ok(()) => code,
                // `tfc ops | head` is no error.
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => code,
                Err(_) => Exit::Io as u8,
            }
        }
        Err(error) => {
            report(&cli, &error);
            error.exit() as u8
        }
    }
}

/// What a subcommand did.
pub(crate) struct Done {
    text: String,
    code: u8,
}

impl From<String> for Done {
    fn from(text: String) -> Done {
        Done { text, code: 0 }
    }
}

fn dispatch(cli: &Cli) -> Result<Done, Error> {
    match &cli.command {
        Command::Ops(args) => ops::run(args).map(Done::from),
        Command::Completions(args) => {
            let mut out = vec![];
            clap_complete::generate(args.shell, &mut Cli::command(), "tfc", &mut out);
            Ok(String::from_utf8_lossy(&out).into_owned().into())
        }
    }
}

fn report(cli: &Cli, error: &Error) {
    let color = match cli.color {
        args::Color::Always => true,
        args::Color::Never => false,
        args::Color::Auto => {
            std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
        }
    };
    let format = match cli.message_format {
        args::MessageFormat::Human => report::Format::Human { color },
        args::MessageFormat::Short => report::Format::Short,
        args::MessageFormat::Json => report::Format::Json,
    };
    let text = report::render(&error.diags, &error.sources, format);
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The known name a misspelt one most likely meant.
pub(crate) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = 1 + name.chars().count() / 4;
    known
        .into_iter()
        .map(|k| (distance(name, k), k))
        .filter(|(d, _)| *d <= limit)
        .min()
        .map(|(_, k)| k)
}

/// Edits (insert, delete, replace) between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let replace = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = replace.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nearest_finds_small_slips_only() {
        assert_eq!(nearest("matmull", ["add", "matmul"]), Some("matmul"));
        assert_eq!(nearest("qqqq", ["add", "matmul"]), None);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
