//! The progress bar: one line on a terminal, redrawn at most ten times a second.

use super::Console;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

const WIDTH: usize = 24;
const REDRAW: Duration = Duration::from_millis(100);

pub struct Progress {
    epoch: usize,
    epochs: Option<usize>,
    total: usize,
    done: usize,
    drawn: Option<Instant>,
    on: bool,
}

impl Progress {
    pub fn new(epoch: usize, epochs: Option<usize>, total: usize, on: bool) -> Progress {
        Progress { epoch, epochs, total, done: 0, drawn: None, on }
    }

    /// A run that counts steps rather than epochs, of which there may be a known
    /// number.
    pub fn steps(total: Option<usize>, on: bool) -> Progress {
        Progress { epoch: 0, epochs: total, total: 0, done: 0, drawn: None, on }
    }

    pub fn step(
        &mut self,
        console: &mut Console<'_>,
        scalars: &[(String, f64)],
        examples: usize,
        elapsed: Duration,
    ) {
        self.done += 1;
        if !self.on || self.drawn.is_some_and(|t| t.elapsed() < REDRAW) {
            return;
        }
        self.drawn = Some(Instant::now());
        let line = self.line(scalars, examples as f64 / elapsed.as_secs_f64().max(1e-9));
        let _ = write!(console.err, "\r{line}\x1b[K");
        let _ = console.err.flush();
    }

    fn line(&self, scalars: &[(String, f64)], rate: f64) -> String {
        let filled = WIDTH * self.done / self.total.max(1);
        let of = self.epochs.map_or(String::new(), |n| format!("/{n}"));
        if self.epoch == 0 {
            let mut line = format!("step {}{of}", self.done);
            for (name, value) in scalars {
                let _ = write!(line, "  {name} {value:.4}");
            }
            let _ = write!(line, "  {rate:.0} steps/s");
            return line;
        }
        let mut line = format!(
            "epoch {}{of} [{}{}] {}/{}",
            self.epoch,
            "=".repeat(filled),
            " ".repeat(WIDTH - filled.min(WIDTH)),
            self.done,
            self.total
        );
        for (name, value) in scalars {
            let _ = write!(line, "  {name} {value:.4}");
        }
        let _ = write!(line, "  {rate:.0} examples/s");
        line
    }

    /// Clears the line.
    pub fn finish(&mut self, console: &mut Console<'_>) {
        if self.drawn.is_some() {
            let _ = write!(console.err, "\r\x1b[K");
            let _ = console.err.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_a_line() {
        let mut p = Progress::new(1, Some(3), 4, true);
        p.done = 2;
        assert_eq!(
            p.line(&[("loss".into(), 0.5)], 1234.5),
            "epoch 1/3 [============            ] 2/4  loss 0.5000  1234 examples/s"
        );
    }
}
