//! The table behind `tfc explain`: every code, what it means, how to get past
//! it.
//!
//! Invariants
//! - The list is sorted by code and has no gaps in meaning: a code is never
//!   given to something else.
//! - Where a graph alone can show the error, there is one that fails with this
//!   code and one that is fixed. Where it takes a command, there is a graph with
//!   a command that fails and one that works. All of them are run as tests.

mod gradients;
mod outside;
mod state;
mod syntax;
mod types;

/// One kind of error.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    pub code: &'static str,
    /// What went wrong, in a few words.
    pub title: &'static str,
    /// Why it is an error and what to do.
    pub text: &'static str,
    /// A graph that fails with this code; for a late code, a command.
    pub fails: Option<&'static str>,
    /// The same, put right.
    pub fixed: Option<&'static str>,
    /// Seen only after the graph is resolved: by later passes, at run time, on
    /// the command line. No graph text shows it to the front end.
    pub late: bool,
    /// The `m.graph` that the commands are about.
    pub graph: Option<&'static str>,
}

const fn graph(
    code: &'static str,
    title: &'static str,
    text: &'static str,
    fails: &'static str,
    fixed: &'static str,
) -> Code {
    Code { code, title, text, fails: Some(fails), fixed: Some(fixed), late: false, graph: None }
}

/// Shown by two lines for a shell, in a folder that holds `graph` as `m.graph`.
const fn command(
    code: &'static str,
    title: &'static str,
    text: &'static str,
    graph: &'static str,
    fails: &'static str,
    fixed: &'static str,
) -> Code {
    let graph = Some(graph);
    Code { code, title, text, fails: Some(fails), fixed: Some(fixed), late: true, graph }
}

const fn late(code: &'static str, title: &'static str, text: &'static str) -> Code {
    Code { code, title, text, fails: None, fixed: None, late: true, graph: None }
}

const TABLES: [&[Code]; 5] =
    [syntax::CODES, types::CODES, gradients::CODES, state::CODES, outside::CODES];

/// Every code, in order.
pub fn all() -> impl Iterator<Item = &'static Code> {
    TABLES.into_iter().flatten()
}

/// The code's entry; case and surrounding space do not matter.
pub fn find(code: &str) -> Option<&'static Code> {
    let code = code.trim();
    all().find(|c| c.code.eq_ignore_ascii_case(code))
}

/// What `tfc explain` prints.
pub fn explain(code: &Code) -> String {
    let mut out = format!("{}: {}\n\n{}\n", code.code, code.title, wrap(code.text));
    for (heading, lines) in examples(code) {
        out.push_str(&format!("\n{heading}\n\n"));
        out.push_str(&indented(&lines));
    }
    out
}

/// `docs/errors.md`: every code as `tfc explain` shows it.
pub fn reference() -> String {
    let mut out = String::from(
        "# Errors\n\nEvery error of tfc and of the programs it makes has a code, and `tfc explain \
         CODE` says what is on this page. The page is made from the table in `ir/src/codes`; the \
         examples are run by tests. The exit code of a command is 1 where the graph or the data is \
         wrong, 2 for wrong usage, 3 for files and the machine, 4 for a lost peer, and 101 for a \
         bug in tfc.\n",
    );
    for code in all() {
        out.push_str(&format!("\n## {}: {}\n\n{}\n", code.code, code.title, code.text));
        for (heading, lines) in examples(code) {
            out.push_str(&format!("\n{heading}\n\n{}", indented(&lines)));
        }
    }
    out
}

/// What shows the error: headings with the text below them.
fn examples(code: &Code) -> Vec<(&'static str, String)> {
    let prompt = |line: &str| if code.late { format!("$ {line}") } else { line.to_string() };
    let graph = code.graph.map(|g| ("With this `m.graph`:", g.to_string()));
    let fails = code.fails.map(|f| ("This fails:", prompt(f)));
    let fixed = code.fixed.map(|f| ("This works:", prompt(f)));
    graph.into_iter().chain(fails).chain(fixed).collect()
}

fn indented(text: &str) -> String {
    let mut out = String::new();
    for line in text.trim_end().lines() {
        out.push_str(if line.is_empty() { "" } else { "    " });
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Lines of at most 80 characters, broken at spaces.
fn wrap(text: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        if width > 0 && width + 1 + word.len() > 80 {
            out.push('\n');
            width = 0;
        }
        if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word.len();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_and_found() {
        let codes: Vec<&str> = all().map(|c| c.code).collect();
        assert!(codes.is_sorted_by(|a, b| a < b), "{codes:?}");
        assert!(codes.len() >= 40);
        let code = find(" e0203 ").expect("known");
        assert!(explain(code).contains("This works:"));
        assert!(find("E9999").is_none());
    }

    #[test]
    fn wrapping_keeps_words() {
        let text = "word ".repeat(60);
        let wrapped = wrap(&text);
        assert!(wrapped.lines().all(|l| l.len() <= 80) && wrapped.lines().count() > 3);
        assert_eq!(wrapped.split_whitespace().count(), 60);
    }
}
