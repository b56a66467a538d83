//! A job that something happens to.

use super::support::{command, ok, run, tfc, variables};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Longer than any job here may take, whatever else this machine does.
const TOO_LONG: Duration = Duration::from_secs(150);

/// A small generator, so that failures repeat.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// The same network, its two layers on two tasks.
pub(crate) fn cut_project() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let (front, back) = (" on \"/job:front/task:0\"", " on \"/job:back/task:0\"");
    let mut graph = super::project::GRAPH.to_owned();
    for (line, place) in [
        ("var w1: f32[12, 16] = nn.glorot(seed: 1)", front),
        ("var b1: f32[16] = zeros", front),
        ("var w2: f32[16, 3] = nn.glorot(seed: 2)", back),
        ("var b2: f32[3] = zeros", back),
    ] {
        graph = graph.replace(line, &format!("{line}{place}"));
    }
    std::fs::write(dir.path().join("m.graph"), graph).unwrap();
    let cluster = "[job.front]\ntasks = 1\n[job.back]\ntasks = 1\n";
    std::fs::write(dir.path().join("c.toml"), cluster).unwrap();
    ok(tfc(dir.path(), "compile m.graph --cluster c.toml -o m"));
    ok(run(dir.path(), "./m data --feed seed=7 --out x=x.npy --out y=y.npy"));
    dir
}

/// A folder of programs that take rows from a file: through a queue that shuffles them, and
/// as they come.
pub(crate) fn pipeline() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let graph = |queue: &str, take: &str| {
        format!(
            "graph p\nuse optim\n\
                 reader rows: csv(\"data.csv\", f32[3], f32[], epochs: 400)\n{queue}\
                 var w: f32[3] = zeros\n\
                 entry train() -> (loss: f32[]) {{\n  (x, y) = dequeue_many({take}, count: 10)\n  \
                 e = sum(x * w, axes: [1]) - y\n  loss = mean(e * e)\n  \
                 minimize loss over [w] with optim.adam(lr: 0.01)\n  return loss\n}}\n"
        )
    };
    let mixed = "queue mixed: shuffle(f32[3], f32[], capacity: 64, min: 20, seed: 5)\n\
                     runner fill() {\n  (x, y) = dequeue(rows)\n  enqueue(mixed, x, y)\n}\n";
    for (name, queue, take) in [("queue", mixed, "mixed"), ("reader", "", "rows")] {
        std::fs::write(dir.path().join(format!("{name}.graph")), graph(queue, take)).unwrap();
        ok(tfc(dir.path(), &format!("compile {name}.graph -o {name}")));
    }
    let row = |i: usize| {
        let x = [i % 7, i % 5, i % 3].map(|n| n as f32 / 4.0 - 0.5);
        format!("{},{},{},{}\n", x[0], x[1], x[2], x[0] - 2.0 * x[1] + 0.5 * x[2])
    };
    let rows: String = (0..100).map(row).collect();
    std::fs::write(dir.path().join("data.csv"), rows).unwrap();
    dir
}

/// A folder of a job's own, with the program and the data of another.
pub(crate) fn beside(project: &Path) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let dir = project.join(format!("job{}", NEXT.fetch_add(1, Ordering::Relaxed)));
    std::fs::create_dir(&dir).unwrap();
    for entry in std::fs::read_dir(project).unwrap().flatten() {
        if entry.file_type().is_ok_and(|t| t.is_file()) {
            std::fs::hard_link(entry.path(), dir.join(entry.file_name())).unwrap();
        }
    }
    dir
}

/// A process, what it says meanwhile, and how it ended.
pub(crate) struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
    listeners: Vec<std::thread::JoinHandle<()>>,
    pub(crate) code: Option<i32>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = Arc::new(Mutex::new(String::new()));
        let out = child.stdout.take().map(|o| Box::new(o) as Box<dyn Read + Send>);
        let err = child.stderr.take().map(|e| Box::new(e) as Box<dyn Read + Send>);
        let listen = |mut from: Box<dyn Read + Send>| {
            let said = said.clone();
            std::thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(n @ 1..) = from.read(&mut bytes) {
                    said.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
                }
            })
        };
        let listeners = [out, err].into_iter().flatten().map(listen).collect();
        Process { child, said, listeners, code: None }
    }

    pub(crate) fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for its end; it must come.
    pub(crate) fn end(&mut self) {
        let since = Instant::now();
        while !self.is_over() {
            if since.elapsed() > TOO_LONG {
                self.kill_children();
                let _ = self.child.kill();
                panic!("it has not ended in {TOO_LONG:?}: {}", self.said());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        self.code = self.child.wait().unwrap().code();
        // Whoever was killed together with its launcher may still hold its output.
        let until = Instant::now() + Duration::from_secs(2);
        while self.listeners.iter().any(|l| !l.is_finished()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn kill_children(&self) {
        for pid in children(self.id()) {
            signal(pid, "-KILL");
        }
    }
}

/// All of them end, and well. What they said is shown together otherwise: the one that
/// fails first may not be the one to blame.
pub(crate) fn all_ok(processes: &mut [Process]) {
    processes.iter_mut().for_each(Process::end);
    let said: Vec<String> =
        processes.iter().map(|p| format!("{:?}: {}", p.code, p.said())).collect();
    assert!(processes.iter().all(|p| p.code == Some(0)), "{}", said.join("\n"));
}

impl Drop for Process {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind.
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill_children();
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A job of `tfc launch`.
pub(crate) struct Job {
    process: Process,
    dir: PathBuf,
    /// The step of the last checkpoint that was complete before something happened.
    saved: Option<u64>,
}

impl Job {
    /// In a folder beside that of a program.
    pub(crate) fn launch(project: &Path, line: &str) -> Job {
        let dir = beside(project);
        Job::start(dir.clone(), command(&dir, env!("CARGO_BIN_EXE_tfc"), line))
    }

    pub(crate) fn start(dir: PathBuf, command: Command) -> Job {
        Job { process: Process::start(command), dir, saved: None }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn said(&self) -> String {
        self.process.said()
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.process.code
    }

    pub(crate) fn children(&self) -> Vec<u32> {
        children(self.id())
    }

    pub(crate) fn end(&mut self) {
        self.process.end();
    }

    pub(crate) fn is_over(&mut self) -> bool {
        self.process.is_over()
    }

    /// Steps of which there are complete checkpoints.
    pub(crate) fn checkpoints(&self) -> Vec<u64> {
        checkpoints(&self.dir.join("ck"))
    }

    pub(crate) fn until(&mut self, what: impl Fn(&Job) -> bool) {
        let since = Instant::now();
        while !what(self) && !self.process.is_over() {
            assert!(since.elapsed() < TOO_LONG, "{}", self.said());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn until_saved(&mut self, count: usize) {
        self.until(|job| job.checkpoints().len() >= count);
    }

    pub(crate) fn remember_saved(&mut self) {
        self.saved = self.checkpoints().last().copied();
    }

    /// Signals to one of its processes in some step, after something was saved.
    pub(crate) fn disturb(&mut self, at: usize, signals: &[&str], random: &mut Random) {
        self.until_saved(1);
        std::thread::sleep(Duration::from_millis(random.below(60)));
        self.remember_saved();
        if let Some(pid) = self.children().get(at) {
            for name in signals {
                // It may have ended.
                signal(*pid, name);
                std::thread::sleep(Duration::from_millis(30));
            }
        }
    }

    /// It ended well, lost nothing that was saved, and said who was missing.
    pub(crate) fn went_well(&self) {
        let said = self.said();
        assert_eq!(self.code(), Some(0), "{said}");
        for words in ["resuming from step ", "the job goes on from step "] {
            for after in said.split(words).skip(1) {
                let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
                let step: u64 = digits.parse().unwrap();
                assert!(
                    Some(step) >= self.saved,
                    "back to {step}, {:?} was saved: {said}",
                    self.saved
                );
            }
        }
        self.errors_name_peers();
    }

    /// Every error about a process says which.
    pub(crate) fn errors_name_peers(&self) {
        let said = self.said();
        for block in said.split("error[E070").skip(1) {
            let about = block.split("\nerror").next().unwrap_or("");
            let peer = ["worker ", "workers ", "server "].iter().any(|w| about.contains(w));
            assert!(peer, "an error without a peer: {said}");
        }
    }

    /// What it saved tells most of the examples apart.
    pub(crate) fn has_learned(&self) {
        let line = "./m predict --feed x=x.npy --state s.safetensors --out class=c.npy";
        ok(run(&self.dir, line));
        let read = |name: &str| std::fs::read(self.dir.join(name)).unwrap();
        let (labels, classes) = (read("y.npy"), read("c.npy"));
        let pairs = labels[128..].chunks(4).zip(classes[128..].chunks(4));
        let right = pairs.filter(|(a, b)| a == b).count();
        assert!(right > 80, "{right} of 96 are right: {}", self.said());
    }
}

/// Steps of which a folder has complete checkpoints.
pub(crate) fn checkpoints(dir: &Path) -> Vec<u64> {
    let all = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let names = all.map(|f| f.file_name().to_string_lossy().into_owned());
    let step = |n: String| n.strip_prefix("step-")?.strip_suffix(".json")?.parse().ok();
    let mut steps: Vec<u64> = names.filter_map(step).collect();
    steps.sort_unstable();
    steps
}

pub(crate) type Weights = Vec<(String, Vec<f32>)>;

pub(crate) fn weights(file: &Path) -> Weights {
    variables(file.to_owned())
}

/// To the bit as if nothing had happened.
#[track_caller]
pub(crate) fn same(whole: &Weights, now: &Weights, said: &str) {
    assert!(whole.len() >= 4);
    assert_eq!(whole, now, "{said}");
}

pub(crate) fn signal(pid: u32, name: &str) -> bool {
    Command::new("kill")
        .args([name, &pid.to_string()])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|s| s.success())
}

/// The processes that a process started, oldest first.
pub(crate) fn children(of: u32) -> Vec<u32> {
    let path = format!("/proc/{of}/task/{of}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

/// Whether a process is there, and not only waits for somebody to hear of its end.
pub(crate) fn runs(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|s| s.chars().next());
    state.is_some_and(|s| !"ZX".contains(s))
}

pub(crate) fn until(what: impl Fn() -> bool) {
    let since = Instant::now();
    while !what() && since.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(2));
    }
}
