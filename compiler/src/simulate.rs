//! How long a step takes with many processes: a model of it, not a run.
//!
//! A step of a worker is its computation, which may be slowed at random, and the
//! messages of the mode. What is known of the machine is a few numbers ([`Machine`]);
//! what is known of the graph is how long its step takes on one process and how many
//! bytes its gradients have. Each mode is a few lines ([`Job::step`]).
//!
//! Random numbers come from a generator with a seed, so that a table is the same each
//! time.

/// How processes train together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Gradients are averaged over all workers, who pass them around a ring.
    Sync,
    /// Parameter servers; a step waits for all workers.
    PsSync,
    /// Parameter servers; each worker goes on by itself.
    PsAsync,
    /// As `PsSync`, with the first gradients that come: so many more workers than needed.
    Backup {
        /// Workers beyond those that a step waits for.
        spare: usize,
    },
    /// So many steps by oneself, then an average of all.
    Average {
        /// Steps between averages.
        every: usize,
    },
}

/// What processes run on.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Bytes in a second, each way, of one process's network.
    pub bandwidth: f64,
    /// Seconds until a message is noticed.
    pub latency: f64,
    /// Bytes of parameters that a server updates in a second.
    pub update: f64,
    /// Processes that compute at the same time before they share a core; none if
    /// each has its own.
    pub cores: Option<usize>,
}

/// Now and then a worker is slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Straggler {
    /// How often: a share of all steps of each worker.
    pub chance: f64,
    /// How many times as long its step takes then.
    pub factor: f64,
}

/// What is trained.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    /// How workers train together.
    pub mode: Mode,
    /// Parameter servers, for the modes that have them.
    pub servers: usize,
    /// Seconds that a worker computes in a step.
    pub compute: f64,
    /// Bytes of all gradients.
    pub bytes: f64,
    /// Messages that the gradients of a step travel as.
    pub messages: usize,
    /// Examples that one worker has in a step.
    pub batch: usize,
    /// Slow workers, if any.
    pub straggler: Option<Straggler>,
}

/// A row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// How many workers there are.
    pub workers: usize,
    /// Seconds, in the middle of all steps.
    pub median: f64,
    /// Seconds that nine of ten steps stay below.
    pub slow: f64,
    /// Examples in a second, of all workers.
    pub throughput: f64,
}

/// Steps that are drawn for each row.
const STEPS: usize = 400;

impl Job {
    /// What a run with this many workers would come to.
    pub fn predict(&self, machine: &Machine, workers: usize) -> Prediction {
        let n = workers.max(1);
        let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ n as u64);
        let mut steps: Vec<f64> = (0..STEPS).map(|_| self.step(machine, n, &mut random)).collect();
        let mean = steps.iter().sum::<f64>() / STEPS as f64;
        steps.sort_by(f64::total_cmp);
        let counted = match self.mode {
            Mode::Backup { spare } => n.saturating_sub(spare).max(1),
            _ => n,
        };
        Prediction {
            workers: n,
            median: steps[STEPS / 2],
            slow: steps[STEPS * 9 / 10],
            throughput: (counted * self.batch) as f64 / mean,
        }
    }

    /// Seconds of one step: of all workers together, or for `PsAsync` of each.
    fn step(&self, machine: &Machine, n: usize, random: &mut Random) -> f64 {
        // Who shares a core is slower by as many as share it.
        let crowd = machine.cores.map_or(1.0, |c| (n as f64 / c.max(1) as f64).max(1.0));
        let mut times: Vec<f64> = (0..n)
            .map(|_| {
                let slow = self.straggler.filter(|s| random.unit() < s.chance);
                self.compute * crowd * slow.map_or(1.0, |s| s.factor)
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let slowest = times[n - 1];
        match self.mode {
            Mode::Sync => slowest + self.ring(machine, n, crowd),
            Mode::Average { every } => slowest + self.ring(machine, n, crowd) / every.max(1) as f64,
            Mode::PsSync => slowest + self.servers(machine, n),
            Mode::Backup { spare } => {
                let needed = n.saturating_sub(spare).max(1);
                times[needed - 1] + self.servers(machine, needed)
            }
            // Each for itself, until the servers cannot keep up.
            Mode::PsAsync => {
                let one = times[random.below(n)] + self.servers(machine, 1);
                one.max(self.servers_busy(machine, n))
            }
        }
    }

    /// Twice around a ring, in pieces.
    fn ring(&self, machine: &Machine, n: usize, crowd: f64) -> f64 {
        if n < 2 {
            return 0.0;
        }
        let rounds = 2.0 * (n - 1) as f64;
        let bytes = rounds / n as f64 * self.bytes / machine.bandwidth * crowd;
        bytes + rounds * machine.latency * crowd * self.messages.max(1) as f64
    }

    /// Parameters there and gradients back, when `n` workers want them at once.
    fn servers(&self, machine: &Machine, n: usize) -> f64 {
        let own = self.bytes / machine.bandwidth;
        2.0 * (machine.latency + own.max(self.one_way(machine, n)))
            + self.bytes_of_one() / machine.update
    }

    /// What the busiest part of the servers is taken for by a step of each worker.
    fn servers_busy(&self, machine: &Machine, n: usize) -> f64 {
        self.one_way(machine, n).max(n as f64 * self.bytes_of_one() / machine.update)
    }

    fn one_way(&self, machine: &Machine, n: usize) -> f64 {
        n as f64 * self.bytes_of_one() / machine.bandwidth
    }

    /// Bytes of the parameters that one server has.
    fn bytes_of_one(&self) -> f64 {
        self.bytes / self.servers.max(1) as f64
    }
}

/// Xorshift.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 11) as usize % n.max(1)
    }
}

/// The throughput over the number of workers, and the step time, as a picture.
pub fn svg(title: &str, rows: &[Prediction]) -> String {
    const SIZE: [f64; 2] = [720.0, 420.0];
    const LEFT: f64 = 80.0;
    const BOTTOM: f64 = 50.0;
    const TOP: f64 = 40.0;
    let most = rows.iter().map(|r| r.workers).max().unwrap_or(1) as f64;
    let fastest = rows.iter().map(|r| r.throughput).fold(1e-9, f64::max) * 1.05;
    let x = |n: usize| LEFT + (SIZE[0] - LEFT - 20.0) * n as f64 / most;
    let y = |t: f64| SIZE[1] - BOTTOM - (SIZE[1] - BOTTOM - TOP) * t / fastest;
    let escape = |t: &str| t.replace('&', "&amp;").replace('<', "&lt;");
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" \
         viewBox=\"0 0 {0} {1}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\">{2}</text>\n",
        SIZE[0],
        SIZE[1],
        escape(title)
    );
    for i in 0..=4 {
        let (t, n) = (fastest * f64::from(i) / 4.0, most * f64::from(i) / 4.0);
        let (at, along) = (y(t), LEFT + (SIZE[0] - LEFT - 20.0) * f64::from(i) / 4.0);
        out += &format!(
            "<line x1=\"{LEFT}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\n\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\n\
             <text x=\"{along:.1}\" y=\"{}\" text-anchor=\"middle\">{n:.0}</text>\n",
            SIZE[0] - 20.0,
            LEFT - 8.0,
            at + 4.0,
            short(t),
            SIZE[1] - BOTTOM + 18.0
        );
    }
    let points: Vec<String> =
        rows.iter().map(|r| format!("{:.1},{:.1}", x(r.workers), y(r.throughput))).collect();
    out += &format!(
        "<polyline points=\"{}\" fill=\"none\" stroke=\"#1f5fa8\" stroke-width=\"2\"/>\n",
        points.join(" ")
    );
    if let Some(first) = rows.first() {
        let each = first.throughput / first.workers as f64;
        let end = (fastest / each).min(most);
        out += &format!(
            "<line x1=\"{LEFT}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#999\" \
             stroke-dasharray=\"4 4\"/>\n",
            y(0.0),
            LEFT + (SIZE[0] - LEFT - 20.0) * end / most,
            y(each * end)
        );
    }
    out += &format!(
        "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">workers</text>\n\
         <text x=\"16\" y=\"{:.1}\" transform=\"rotate(-90 16 {:.1})\" text-anchor=\"middle\">\
         examples/s</text>\n</svg>\n",
        (SIZE[0] + LEFT) / 2.0,
        SIZE[1] - 10.0,
        SIZE[1] / 2.0,
        SIZE[1] / 2.0
    );
    out
}

/// `12.3k`.
pub fn short(n: f64) -> String {
    match n {
        n if n >= 1e9 => format!("{:.1}G", n / 1e9),
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n if n >= 1e4 => format!("{:.1}k", n / 1e3),
        n => format!("{n:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Machine = Machine { bandwidth: 1.25e9, latency: 3e-5, update: 1e9, cores: None };

    fn job(mode: Mode) -> Job {
        Job { mode, servers: 16, compute: 0.1, bytes: 1e8, messages: 1, batch: 32, straggler: None }
    }

    #[test]
    fn one_worker_computes_and_a_ring_costs_twice_the_bytes() {
        let one = job(Mode::Sync).predict(&MACHINE, 1);
        assert!((one.median - 0.1).abs() < 1e-9 && (one.throughput - 320.0).abs() < 1e-6);
        let many = job(Mode::Sync).predict(&MACHINE, 100);
        let ring = 2.0 * 0.99 * 1e8 / 1.25e9 + 198.0 * 3e-5;
        assert!((many.median - 0.1 - ring).abs() < 1e-9, "{many:?}");
    }

    /// The shape of asynchronous training: linear until the servers are busy, then flat.
    #[test]
    fn servers_saturate() {
        let at = |n| job(Mode::PsAsync).predict(&MACHINE, n).throughput;
        assert!(at(20) > 19.0 * at(1));
        assert!((at(2000) / at(1000) - 1.0).abs() < 0.01);
        // As many servers more, as much faster.
        let twice = Job { servers: 32, ..job(Mode::PsAsync) }.predict(&MACHINE, 2000);
        assert!((twice.throughput / at(2000) - 2.0).abs() < 0.05);
    }

    /// A slow worker in twenty steps: waiting for all loses most of the time, waiting for
    /// all but a few does not.
    #[test]
    fn spare_workers_hide_stragglers() {
        let straggler = Some(Straggler { chance: 0.05, factor: 5.0 });
        // Computing takes long beside the messages.
        let job = |mode| Job { compute: 1.0, ..job(mode) };
        let with = |mode| Job { straggler, ..job(mode) }.predict(&MACHINE, 50);
        let all = with(Mode::PsSync);
        let most = with(Mode::Backup { spare: 8 });
        let calm = job(Mode::PsSync).predict(&MACHINE, 50);
        assert!(all.median > 3.0 * calm.median, "{all:?} {calm:?}");
        assert!(most.median < 1.1 * calm.median, "{most:?}");
        assert!(most.throughput > 1.5 * all.throughput);
    }

    #[test]
    fn processes_that_share_a_core_take_turns() {
        let two = Machine { cores: Some(2), ..MACHINE };
        let at = |n| Job { bytes: 0.0, messages: 0, ..job(Mode::Sync) }.predict(&two, n).median;
        assert!((at(4) / at(2) - 2.0).abs() < 0.01);
    }

    #[test]
    fn pictures_are_well_formed() {
        let rows: Vec<Prediction> = (1..=9).map(|n| job(Mode::Sync).predict(&MACHINE, n)).collect();
        let picture = svg("a < b", &rows);
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
        assert!(picture.contains("a &lt; b") && !picture.contains("NaN"));
        assert_eq!(picture.matches(',').count(), 9, "a point for each row");
    }
}
