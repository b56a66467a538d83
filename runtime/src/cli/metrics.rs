//! What the messages of a job came to: in a line for people, and in the file of
//! `--metrics`.

use super::{Console, Session};
use crate::error::Result;
use crate::files;
use crate::io::json::quote;
use crate::mem::human_bytes;
use std::path::Path;
use std::time::Duration;

/// Counters of the chief, and what servers have counted of all workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    pub mode: &'static str,
    pub workers: usize,
    pub servers: usize,
    pub steps: usize,
    pub time: Duration,
    /// Bytes, in steps.
    pub sent: u64,
    pub received: u64,
    /// For whom, and how long.
    pub waits: Vec<(String, Duration)>,
    /// Gradients that came too late, by worker.
    pub dropped: Vec<u64>,
    /// Workers that were lost, how often the group was formed again, and calls of processes
    /// that were not let in.
    pub lost: u64,
    pub regrouped: u64,
    pub refused: u64,
    /// Updates between a worker's reading and writing: sum, most, how often.
    pub stale: [u64; 3],
}

impl Metrics {
    /// Says it, and writes it where that was asked for.
    pub(super) fn report(&self, session: &Session<'_>, console: &mut Console<'_>) -> Result<()> {
        let waits: Vec<String> = self
            .waits
            .iter()
            .map(|(who, d)| format!("{:.2} s for {who}", d.as_secs_f64()))
            .collect();
        let (sent, received) = (human_bytes(self.sent), human_bytes(self.received));
        session.say(
            console,
            &format!("worker 0 sent {sent}, got {received}, and waited {}", waits.join(", ")),
        );
        let Some(path) = &session.args.metrics else { return Ok(()) };
        let text = self.json();
        files::replace(Path::new(path), |out| std::io::Write::write_all(out, text.as_bytes()))
    }

    fn json(&self) -> String {
        let pairs = |list: Vec<(String, String)>| {
            let all: Vec<String> =
                list.into_iter().map(|(k, v)| format!("{}: {v}", quote(&k))).collect();
            format!("{{{}}}", all.join(", "))
        };
        let waits = self.waits.iter().map(|(who, d)| (who.clone(), format!("{}", d.as_secs_f64())));
        let dropped = self.dropped.iter().enumerate();
        let dropped = dropped.map(|(r, n)| (format!("worker {r}"), n.to_string()));
        let [sum, most, updates] = self.stale;
        let mean = if updates == 0 { 0.0 } else { sum as f64 / updates as f64 };
        format!(
            "{{\n  \"mode\": {},\n  \"workers\": {},\n  \"servers\": {},\n  \"steps\": {},\n  \
             \"seconds\": {},\n  \"bytes_sent\": {},\n  \"bytes_received\": {},\n  \
             \"waited\": {},\n  \"dropped\": {},\n  \
             \"losses\": {{\"workers\": {}, \"regrouped\": {}, \"refused\": {}}},\n  \
             \"staleness\": {{\"updates\": {updates}, \"mean\": {mean}, \"most\": {most}}}\n}}\n",
            quote(self.mode),
            self.workers,
            self.servers,
            self.steps,
            self.time.as_secs_f64(),
            self.sent,
            self.received,
            pairs(waits.collect()),
            pairs(dropped.collect()),
            self.lost,
            self.regrouped,
            self.refused,
        )
    }
}
