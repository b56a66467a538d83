//! The `tfc` command: arguments in, text and an exit code out.
//!
//! Each subcommand is one file. They return what goes to standard output, or an
//! [`Error`]; only this file prints and decides exit codes.

pub mod args;
mod bench;
mod bug;
mod check;
mod ckpt;
mod compile;
mod devices;
mod explain;
mod fmt;
mod gradcheck;
mod inspect;
mod launch;
mod manifest;
mod memory;
mod new;
mod ops;
mod opt;
mod run;
mod simulate;

use crate::driver::{Cluster, Math, Options};
use crate::error::{Error, Exit};
use crate::load::{self, Loaded};
use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::OnceLock;
use tfc_ir::diag::{Diag, SourceMap, Style, render};
use tfc_runtime::Sandbox;

/// Runs the command line and returns the exit code.
pub fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    let args: Vec<OsString> = args.into_iter().collect();
    bug::install(&args);
    let cli = match Cli::try_parse_from(&args) {
        Ok(cli) => cli,
        Err(e) => {
            if e.kind() == clap::error::ErrorKind::DisplayHelp
                && let Some(cli) = asks_the_program(&args)
            {
                return execute(&cli);
            }
            // Help and version are not failures.
            if !e.use_stderr() {
                let _ = e.print();
                return 0;
            }
            usage(&e, &args);
            return Exit::Usage as u8;
        }
    };
    execute(&cli)
}

/// `tfc run GRAPH --help` asks the program for help; `tfc run --help` asks tfc.
fn asks_the_program(args: &[OsString]) -> Option<Cli> {
    let at = args.iter().position(|a| a == "--help" || a == "-h")?;
    let mut args = args.to_vec();
    args.insert(at, "--".into());
    let cli = Cli::try_parse_from(&args).ok()?;
    match &cli.command {
        Command::Run(run) if run.graph.as_os_str() != args[at + 1] => Some(cli),
        _ => None,
    }
}

fn execute(cli: &Cli) -> u8 {
    let _ = FORMAT.set(format(cli));
    match dispatch(cli) {
        Ok(Done { text, code }) => {
            let mut out = std::io::stdout().lock();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                Ok(()) => code,
                // `tfc ops | head` is no error.
                Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => code,
                Err(e) => {
                    let message = format!("cannot write to standard output: {e}");
                    report(cli, &Diag::error("E0803", message).into());
                    Exit::Io as u8
                }
            }
        }
        Err(error) => {
            report(cli, &error);
            error.exit() as u8
        }
    }
}

/// Writes what is wrong with the command line itself.
fn usage(error: &clap::Error, args: &[OsString]) {
    let json = args.iter().any(|a| a == "--message-format=json")
        || args.windows(2).any(|w| w[0] == "--message-format" && w[1] == "json");
    let text = error.render().to_string();
    if json {
        let message = text.strip_prefix("error: ").unwrap_or(&text);
        let message = message.split("\n\n").next().unwrap_or(message);
        let words: Vec<&str> = message.split_whitespace().collect();
        let diag = Diag::error("E0901", words.join(" "));
        return print(&[diag], &SourceMap::default(), Style::Json);
    }
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let text = if colour { error.render().ansi().to_string() } else { text };
    let text = text.replacen("error:", "error[E0901]:", 1);
    let _ = std::io::stderr().write_all(text.as_bytes());
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
    let json = cli.message_format == args::MessageFormat::Json;
    match &cli.command {
        Command::Compile(args) => compile::run(args),
        Command::Run(args) => run::run(args, json),
        Command::New(args) => new::run(args).map(Done::from),
        Command::Check(args) => check::run(args),
        Command::Opt(args) => opt::run(args),
        Command::Fmt(args) => fmt::run(args),
        Command::Explain(args) => explain::run(args).map(Done::from),
        Command::Inspect(args) => inspect::run(args),
        Command::Bench(args) => bench::run(args, json),
        Command::Launch(args) => launch::run(args),
        Command::Simulate(args) => simulate::run(args),
        Command::Ckpt(args) => ckpt::run(args, json),
        Command::Gradcheck(args) => gradcheck::run(args),
        Command::Ops(args) => ops::run(args).map(Done::from),
        Command::Devices => Ok(devices::run(json).into()),
        Command::Completions(args) => {
            let mut out = vec![];
            clap_complete::generate(args.shell, &mut Cli::command(), "tfc", &mut out);
            Ok(String::from_utf8_lossy(&out).into_owned().into())
        }
    }
}

fn report(cli: &Cli, error: &Error) {
    print(&error.diags, &error.sources, format(cli));
}

/// How this invocation writes findings; set once, for warnings on the way.
static FORMAT: OnceLock<Style> = OnceLock::new();

fn format(cli: &Cli) -> Style {
    let color = match cli.color {
        args::Color::Always => true,
        args::Color::Never => false,
        args::Color::Auto => {
            std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none()
        }
    };
    match cli.message_format {
        args::MessageFormat::Human if color => Style::Color,
        args::MessageFormat::Human => Style::Plain,
        args::MessageFormat::Short => Style::Short,
        args::MessageFormat::Json => Style::Json,
    }
}

/// Writes findings that do not stop the command.
pub(crate) fn warn(diags: &[Diag], sources: &SourceMap) {
    let format = FORMAT.get().copied().unwrap_or_default();
    print(diags, sources, format);
}

fn print(diags: &[Diag], sources: &SourceMap, format: Style) {
    tell(&render(diags, sources, format));
}

/// Writes to standard error. With that closed there is nobody to tell, and with
/// its disk full nowhere.
pub(crate) fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Reads a graph as the command line asks.
/// Refuses what an option names for output where it is a graph that was read.
fn keep_sources(
    graph: &Path,
    loaded: &Loaded,
    option: &str,
    out: Option<&Path>,
) -> crate::error::Result<()> {
    let Some(out) = out else { return Ok(()) };
    let sources = crate::load::source_files(graph, &loaded.sources);
    compile::check_destination(out, &sources, Some(option))
}

pub(crate) fn load(path: &Path, source: &args::Source) -> crate::error::Result<Loaded> {
    let mut lets = vec![];
    for text in &source.lets {
        let Some((name, value)) = text.split_once('=') else {
            let diag = Diag::error("E0914", format!("`--let {text}` gives no value"))
                .help("write `--let NAME=VALUE`, such as `--let WIDTH=64`");
            return Err(diag.into());
        };
        lets.push((name.trim().to_string(), value.trim().to_string()));
    }
    let sandbox = match &source.sandbox {
        Some(dir) => Sandbox::below(dir)?,
        None => Sandbox::default(),
    };
    let (name, text) = load::read(path)?;
    bug::remember(&name, &text);
    load::resolve(path, &name, &text, &lets, &sandbox)
}

pub(crate) fn options(args: &args::Codegen) -> crate::error::Result<Options> {
    let math = match (args.strict, args.fast_math) {
        (true, _) => Math::Strict,
        (_, true) => Math::Fast,
        _ => Math::Default,
    };
    let cluster = match &args.cluster {
        Some(path) => {
            let (name, text) = load::read(path)?;
            Some(Cluster::parse(&name, &text)?)
        }
        None => None,
    };
    Ok(Options {
        math,
        no_opt: args.no_opt,
        loop_memory: args.loop_memory,
        max_memory: args.max_memory,
        recompute: args.recompute,
        unchecked: args.unchecked,
        check_numerics: args.check_numerics,
        tf32: args.tf32,
        sandbox: args.source.sandbox.clone(),
        cluster,
        ..Options::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
