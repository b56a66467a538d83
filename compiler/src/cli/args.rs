//! The command line, declared.

use clap::{Args, Parser, Subcommand, ValueEnum};

#[derive(Parser, Debug)]
#[command(
    name = "tfc",
    version,
    about = "Compiles dataflow graphs - models, their gradients, optimizers and state - into native programs.",
    after_help = "Try it:\n  tfc compile mlp.graph -o mlp && ./mlp --help\n\nExit codes: 1 the graph or the data is wrong, 2 usage, 3 input/output, 4 a peer was lost, 101 a bug in tfc.",
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,

    /// How errors are written
    #[arg(long, global = true, value_enum, value_name = "FORMAT", default_value = "human")]
    pub message_format: MessageFormat,

    /// When to use colour
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum MessageFormat {
    /// With the source lines they are about
    Human,
    /// One line each: file:line:col: error[code]: message
    Short,
    /// One JSON object a line, for editors
    Json,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// List the ops, or describe one
    Ops(Ops),
    /// Print a completion script for a shell
    Completions(Completions),
}

#[derive(Args, Debug)]
pub struct Ops {
    /// The op to describe
    #[arg(value_name = "NAME")]
    pub name: Option<String>,

    /// As markdown: the op reference
    #[arg(long)]
    pub markdown: bool,
}

#[derive(Args, Debug)]
pub struct Completions {
    #[arg(value_enum, value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}
