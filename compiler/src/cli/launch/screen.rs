//! What a job shows: the lines of its processes, and where they go to a terminal one more
//! below them that says how far the chief is.
//!
//! The chief draws that line as it does on a terminal of its own (`tfc_runtime::cli`): a
//! return, the text, and the code that clears the rest of the line. It is drawn again below
//! each line that comes, so that lines stay whole.

use std::io::{BufRead, BufReader, IsTerminal, Read, Write};
use std::sync::{Mutex, PoisonError};
use tfc_runtime::error::Party;

const RETURN: u8 = b'\r';
/// Clears the line behind the cursor.
const CLEAR: &[u8] = b"\x1b[K";

/// What the line about progress shows; nothing if there is none.
static BAR: Mutex<Vec<u8>> = Mutex::new(vec![]);

/// Whether there is somebody to look at a line that changes.
pub(super) fn is_watched() -> bool {
    std::io::stderr().is_terminal()
}

/// A part of what a process says.
#[derive(Debug, PartialEq)]
pub(super) enum Said {
    Line(Vec<u8>),
    /// How far it is; nothing if it takes that back.
    Progress(Vec<u8>),
}

/// Reads what a process says until its output ends, or `give` has heard enough.
pub(super) fn read(from: impl Read, mut give: impl FnMut(Said) -> bool) {
    let mut from = BufReader::new(from);
    let mut text = vec![];
    loop {
        // Up to the end of a line, or of the code that ends a line about progress.
        let Ok(bytes) = from.fill_buf() else { return };
        let end =
            bytes.iter().position(|b| matches!(b, b'\n' | b'K')).map_or(bytes.len(), |at| at + 1);
        if end == 0 {
            break;
        }
        text.extend_from_slice(&bytes[..end]);
        from.consume(end);
        let drawn = text.strip_prefix(&[RETURN]).and_then(|t| t.strip_suffix(CLEAR));
        let said = match drawn {
            Some(drawn) if !drawn.contains(&RETURN) => Said::Progress(drawn.to_vec()),
            _ if text.ends_with(b"\n") => Said::Line(std::mem::take(&mut text)),
            _ => continue,
        };
        text.clear();
        if !give(said) {
            return;
        }
    }
    if !text.is_empty() {
        give(Said::Line(text));
    }
}

/// A line as it was, but for the rank of those who are not the first worker.
pub(super) fn line(who: Party, err: bool, text: &[u8]) {
    let mut line = match who {
        Party::Worker(0) => vec![],
        Party::Worker(rank) => format!("[{rank}] ").into_bytes(),
        Party::Server(number) => format!("[ps {number}] ").into_bytes(),
    };
    line.extend_from_slice(text);
    show(err, &line);
}

/// What the launcher itself has to say.
pub(super) fn tell(text: &str) {
    show(true, text.as_bytes());
}

/// The line about progress is now this.
pub(super) fn progress(text: &[u8]) {
    let mut bar = BAR.lock().unwrap_or_else(PoisonError::into_inner);
    if bar.as_slice() != text {
        *bar = text.to_vec();
        draw(&bar);
    }
}

fn show(err: bool, text: &[u8]) {
    let bar = BAR.lock().unwrap_or_else(PoisonError::into_inner);
    if !bar.is_empty() {
        draw(&[]);
    }
    // Nobody may be reading.
    let _ = match err {
        true => std::io::stderr().write_all(text),
        false => std::io::stdout().write_all(text).and_then(|()| std::io::stdout().flush()),
    };
    if !bar.is_empty() && text.ends_with(b"\n") {
        draw(&bar);
    }
}

fn draw(bar: &[u8]) {
    let _ = std::io::stderr().write_all(&[&[RETURN], bar, CLEAR].concat());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives as many bytes at once.
    struct Slow<'a>(&'a [u8], usize);

    impl Read for Slow<'_> {
        fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
            let n = self.1.min(self.0.len()).min(to.len());
            to[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn lines_and_progress_are_told_apart() {
        let text = b"OK\n\r1/4 K\x1b[K\r2/4\x1b[K\r\x1b[Kepoch K\n\rown 10%\rown 20%\nlast";
        let (line, drawn) =
            (|t: &[u8]| Said::Line(t.to_vec()), |t: &[u8]| Said::Progress(t.to_vec()));
        for at_once in [1, 2, 3, 7, 100] {
            let mut all = vec![];
            read(Slow(text, at_once), |said| {
                all.push(said);
                true
            });
            let want = [
                line(b"OK\n"),
                drawn(b"1/4 K"),
                drawn(b"2/4"),
                drawn(b""),
                line(b"epoch K\n"),
                line(b"\rown 10%\rown 20%\n"),
                line(b"last"),
            ];
            assert_eq!(all, want, "{at_once}");
        }
    }
}
