//! The processes a graph is cut for, from a small TOML file.
//!
//! ```toml
//! [job.ps]
//! tasks = ["10.0.0.1:7000", "10.0.0.2:7000"]   # or a number: the launcher knows where
//!
//! [job.worker]
//! tasks = ["10.0.0.3:7000"]
//! devices = ["cpu:0", "gpu:0"]                 # of each task; else a CPU, and a GPU if
//!                                              # the program is for GPUs
//!
//! [net]                                        # for the placer's estimates
//! bandwidth = "10Gbit"
//! latency = "30us"
//! ```
//!
//! Tasks are numbered through in the order of the file; the first is the chief.

use std::collections::BTreeMap;
use tfc_ir::diag::Diag;

/// The processes, and what joins them.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    pub tasks: Vec<Task>,
    /// Bytes in a nanosecond.
    pub bandwidth: f64,
    /// Nanoseconds until the first byte of a message is there.
    pub latency: f64,
}

/// One process.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    pub job: String,
    /// Its number in the job.
    pub index: usize,
    /// `HOST:PORT`; empty if only the launcher knows.
    pub address: String,
    /// `/cpu:0`, `/gpu:0` and so on; the first is where nodes go unless told. None if that
    /// was not said.
    pub devices: Vec<String>,
}

impl Task {
    /// As `on` names it.
    pub fn name(&self) -> String {
        format!("/job:{}/task:{}", self.job, self.index)
    }
}

impl Cluster {
    /// So many tasks of one job, at addresses that the launcher knows.
    pub fn of(job: &str, tasks: usize) -> Cluster {
        let task =
            |index| Task { job: job.to_string(), index, address: String::new(), devices: vec![] };
        // 10 Gbit/s, and what a message between two processes takes to be noticed.
        Cluster { tasks: (0..tasks).map(task).collect(), bandwidth: 1.25, latency: 30_000.0 }
    }

    /// With devices for the tasks that nothing was said of: the CPU, behind a GPU if the
    /// program is for GPUs.
    pub(crate) fn with_devices(&self, gpus: bool) -> Cluster {
        let usual = if gpus { &["/gpu:0", "/cpu:0"][..] } else { &["/cpu:0"] };
        let mut out = self.clone();
        for task in out.tasks.iter_mut().filter(|t| t.devices.is_empty()) {
            task.devices = usual.iter().map(|d| d.to_string()).collect();
        }
        out
    }

    /// Reads a cluster file; `file` is its name, for messages.
    pub fn parse(file: &str, text: &str) -> Result<Cluster, Diag> {
        let wrong = |line: usize, what: String| {
            let at = if line == 0 { file.to_string() } else { format!("{file}:{line}") };
            Diag::error("E0419", format!("{at}: {what}"))
        };
        let mut cluster = Cluster::of("", 0);
        for table in tables(text).map_err(|(line, what)| wrong(line, what))? {
            let wrong = |what: String| wrong(table.line, what);
            if table.name == "net" {
                cluster.net(&table).map_err(wrong)?;
                continue;
            }
            let Some(job) = table.name.strip_prefix("job.").filter(|n| is_name(n)) else {
                let what = format!("`[{}]` is neither `[job.NAME]` nor `[net]`", table.name);
                return Err(wrong(what));
            };
            cluster.job(job, &table).map_err(wrong)?;
        }
        match cluster.tasks.len() {
            0 => Err(wrong(0, "the cluster has no tasks".into())
                .help("add a job: `[job.worker]` and `tasks = [\"localhost:7000\"]`")),
            n if n > MOST_TASKS => Err(wrong(0, format!("{n} tasks are too many"))
                .note(format!("the most that a program is cut for is {MOST_TASKS}"))),
            _ => Ok(cluster),
        }
    }

    fn job(&mut self, job: &str, table: &Table) -> Result<(), String> {
        if self.tasks.iter().any(|t| t.job == job) {
            return Err(format!("the job `{job}` is there twice"));
        }
        let devices = match table.values.get("devices") {
            None => vec![],
            Some(Value::List(list)) if !list.is_empty() => {
                let named = |d: &String| format!("/{}", d.trim_start_matches('/'));
                list.iter().map(named).collect()
            }
            Some(_) => return Err("`devices` is a list such as [\"cpu:0\", \"gpu:0\"]".into()),
        };
        for device in &devices {
            tfc_ir::text::device::check(device)?;
            if tfc_ir::text::device::local(device) != Some(device) {
                return Err(format!("`{device}` is not a device of a task"));
            }
        }
        let addresses = match table.values.get("tasks") {
            Some(Value::List(list)) if !list.is_empty() => list.clone(),
            Some(Value::Number(n)) if (1..=MOST_TASKS).contains(n) => vec![String::new(); *n],
            _ => {
                return Err(format!(
                    "the job `{job}` needs `tasks`, a list of addresses \"HOST:PORT\" or a number"
                ));
            }
        };
        for (index, address) in addresses.into_iter().enumerate() {
            let port = address.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
            if !address.is_empty() && !matches!(port, Some(Ok(_))) {
                return Err(format!("`{address}` is not HOST:PORT"));
            }
            self.tasks.push(Task {
                job: job.to_string(),
                index,
                address,
                devices: devices.clone(),
            });
        }
        unknown(table, &["tasks", "devices"])
    }

    fn net(&mut self, table: &Table) -> Result<(), String> {
        for (name, value) in &table.values {
            let Value::Text(text) = value else {
                return Err(format!("`{name}` is a text such as \"10Gbit\" or \"30us\""));
            };
            match name.as_str() {
                "bandwidth" => self.bandwidth = bandwidth(text)?,
                "latency" => self.latency = latency(text)?,
                _ => {}
            }
        }
        unknown(table, &["bandwidth", "latency"])
    }
}

/// The most tasks of a cluster.
const MOST_TASKS: usize = 256;

/// `10Gbit`, `800Mbit`: bytes in a nanosecond.
pub fn bandwidth(text: &str) -> Result<f64, String> {
    let units = [("Gbit", 0.125), ("Mbit", 0.125e-3), ("Kbit", 0.125e-6)];
    measure(text, &units).ok_or_else(|| format!("`{text}` is no bandwidth such as \"10Gbit\""))
}

/// `30us`, `1ms`: nanoseconds.
pub fn latency(text: &str) -> Result<f64, String> {
    let units = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    measure(text, &units).ok_or_else(|| format!("`{text}` is no time such as \"30us\""))
}

fn measure(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let (number, scale) =
        units.iter().find_map(|(unit, scale)| Some((text.trim().strip_suffix(unit)?, *scale)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number > 0.0).then_some(number * scale)
}

fn unknown(table: &Table, known: &[&str]) -> Result<(), String> {
    match table.values.keys().find(|k| !known.contains(&k.as_str())) {
        Some(key) => Err(format!("`{key}` means nothing in `[{}]`", table.name)),
        None => Ok(()),
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

struct Table {
    name: String,
    line: usize,
    values: BTreeMap<String, Value>,
}

enum Value {
    Text(String),
    Number(usize),
    List(Vec<String>),
}

/// The tables of a TOML file, as much of it as is needed here; or a line and what is
/// wrong there.
fn tables(text: &str) -> Result<Vec<Table>, (usize, String)> {
    let mut tables: Vec<Table> = vec![];
    let mut lines = (1..).zip(text.lines());
    while let Some((line, text)) = lines.next() {
        let mut text = uncomment(text).trim().to_string();
        if text.is_empty() {
            continue;
        }
        if let Some(name) = text.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or((line, "`]` is missing".to_string()))?;
            tables.push(Table { name: name.trim().into(), line, values: BTreeMap::new() });
            continue;
        }
        // A list may go over several lines.
        while text.contains('[') && !text.ends_with(']') {
            let Some((_, more)) = lines.next() else {
                return Err((line, "the list does not end".to_string()));
            };
            text.push_str(uncomment(more).trim());
        }
        let (key, value) =
            text.split_once('=').ok_or((line, "this is not `key = value`".to_string()))?;
        let value = value.trim();
        let read = match value.strip_prefix('[').and_then(|v| v.strip_suffix(']')) {
            Some(inside) => items(inside).map(Value::List),
            None => string(value).map(Value::Text).or(value.parse().ok().map(Value::Number)),
        };
        let read = read.ok_or((line, format!("`{value}` is no text, number or list of texts")))?;
        let Some(table) = tables.last_mut() else {
            return Err((line, "this stands before the first `[job.NAME]`".to_string()));
        };
        if table.values.insert(key.trim().to_string(), read).is_some() {
            return Err((line, format!("`{}` is there twice", key.trim())));
        }
    }
    Ok(tables)
}

/// A line without its comment.
fn uncomment(line: &str) -> &str {
    let mut quoted = false;
    for (at, c) in line.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '#' if !quoted => return &line[..at],
            _ => {}
        }
    }
    line
}

fn items(inside: &str) -> Option<Vec<String>> {
    let inside = inside.trim().trim_end_matches(',');
    if inside.is_empty() {
        return Some(vec![]);
    }
    inside.split(',').map(|item| string(item.trim())).collect()
}

fn string(text: &str) -> Option<String> {
    let inside = text.strip_prefix('"')?.strip_suffix('"')?;
    (!inside.contains(['"', '\\'])).then(|| inside.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Cluster, String> {
        Cluster::parse("c.toml", text).map_err(|d| d.message)
    }

    #[test]
    fn files_are_read() {
        let text = "# who\n[job.ps]\ntasks = [\n  \"a:1\", # one\n  \"b:2\",\n]\n\n[job.w]\n\
                    tasks = 1\ndevices = [\"cpu:0\", \"gpu:1\"]\n[net]\nbandwidth = \"8Gbit\"\n\
                    latency = \"2ms\"\n";
        let cluster = read(text).unwrap();
        let names: Vec<String> = cluster.tasks.iter().map(Task::name).collect();
        assert_eq!(names, ["/job:ps/task:0", "/job:ps/task:1", "/job:w/task:0"]);
        assert_eq!(cluster.tasks[1].address, "b:2");
        assert_eq!(cluster.tasks[2].devices, ["/cpu:0", "/gpu:1"]);
        assert_eq!((cluster.bandwidth, cluster.latency), (1.0, 2e6));
    }

    #[test]
    fn what_makes_no_sense_is_said_with_its_line() {
        for (text, said) in [
            ("", "c.toml: the cluster has no tasks"),
            ("\n[ps]\n", "c.toml:2: `[ps]` is neither"),
            ("[job.a]\n", "c.toml:1: the job `a` needs `tasks`"),
            ("[job.a]\ntasks = [\"x\"]", "`x` is not HOST:PORT"),
            ("[job.a]\ntasks = [\"x:1\"", "c.toml:2: the list does not end"),
            ("[job.a]\ntasks = 9999", "needs `tasks`"),
            ("tasks = 1", "c.toml:1: this stands before"),
            ("[job.a]\ntasks = 1\ntasks = 2", "c.toml:3: `tasks` is there twice"),
            ("[job.a]\ntasks = 1\n[job.a]\ntasks = 1", "c.toml:3: the job `a` is there twice"),
            ("[job.a]\ntasks = 1\ncolour = \"red\"", "`colour` means nothing"),
            ("[job.a]\ntasks = 1\ndevices = [\"tpu:0\"]", "tpu:0"),
            ("[net]\nbandwidth = \"fast\"", "`fast` is no bandwidth"),
        ] {
            let message = read(text).unwrap_err();
            assert!(message.contains(said), "{text:?}: {message}");
        }
    }
}
