//! What a step costs that computes next to nothing: the messages of training with
//! parameter servers, in the manner of Figure 6 of the TensorFlow paper (OSDI 2016).
//!
//!     cargo run --release -p tfc --example null_step
//!
//! Two servers and 1 to 8 workers are threads of this process; messages go over the
//! loopback. A step reads one number, a dense vector, or 32 rows of a table of 64
//! floats each, spread over all of it, adds to what it has read, and waits for all
//! workers. Printed are the medians of the chief, and the memory of the whole process at
//! the end of the last column. Takes the megabytes of the vector [100] and of the larger
//! table [1000]; the smaller one has a hundredth of it. The largest has 16 times as much,
//! begins with zeros, and is memory only where it was changed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tfc::Options;
use tfc::net::job::Job;
use tfc::net::ps::server::Rule;

const SERVERS: usize = 2;
const WORKERS: [usize; 4] = [1, 2, 4, 8];

pub fn main() -> Result<(), tfc::Error> {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let of = |i: usize, default: usize| numbers.get(i).copied().unwrap_or(default).max(1);
    table(of(0, 100), of(1, 1000))
}

/// Prints the table for a vector and a table of so many megabytes.
pub fn table(dense: usize, large: usize) -> Result<(), tfc::Error> {
    let floats = |megabytes: f64| (megabytes * 1e6 / 4.0) as usize;
    let rows = |megabytes: f64| format!("[{}, 64]", floats(megabytes) / 64);
    let small = large as f64 / 100.0;
    let huge = 16 * large;
    let cases = [
        ("one number".to_owned(), String::from("[1]"), "zeros", false, 200),
        (format!("{dense} MB, dense"), format!("[{}]", floats(dense as f64)), "zeros", false, 6),
        (format!("32 rows of {small:.1} MB"), rows(small), "ones", true, 200),
        (format!("32 rows of {large} MB"), rows(large as f64), "ones", true, 200),
        (format!("32 rows of {huge} MB, virtual"), rows(huge as f64), "zeros", true, 200),
    ];
    println!(
        "| a step reads and changes | 1 worker | 2 workers | 4 workers | 8 workers | \
         sent by a worker | memory |"
    );
    println!("|---|---|---|---|---|---|---|");
    for (name, shape, first, sparse, steps) in cases {
        let read = if sparse { "gather(w, ids)" } else { "w" };
        let rows = shape.trim_matches(['[', ']']).split(',').next();
        let rows = rows.and_then(|n| n.parse().ok()).unwrap_or(1);
        let text = format!(
            "graph g
use optim
var w: f32{shape} = {first}
entry train(ids: i32[32]) -> (loss: f32[]) {{
  loss = sum({read})
  minimize loss over [w] with optim.sgd(lr: 0.1)
  return loss
}}
"
        );
        let mut line = format!("| {name} |");
        let (mut sent, mut memory) = (0, 0);
        for workers in WORKERS {
            let (median, bytes, resident) = measure(&text, workers, steps, rows)?;
            line += &format!(" {:.2} ms |", median.as_secs_f64() * 1e3);
            (sent, memory) = (bytes / steps, resident);
        }
        println!("{line} {sent} bytes | {} MB |", memory / 1_000_000);
    }
    Ok(())
}

/// The bytes of memory that the process has, where that is known.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

/// The median time of a step, the bytes that the chief has sent in all steps, and the
/// memory of the process after them.
fn measure(
    text: &str,
    workers: usize,
    steps: u64,
    rows: u64,
) -> Result<(Duration, u64, u64), tfc::Error> {
    let graph = tfc::parse(text)?;
    let options = Options::new().replicas(true).bare(true).threads(1);
    let address = || std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let servers: Vec<String> =
        (0..SERVERS).map(|_| address().map_or(String::new(), |a| a.to_string())).collect();
    let job = |rank: usize| Job { servers: servers.clone(), ..Job::new(rank, workers, "") };
    let compiled = |_| tfc::compile_with(&graph, &options);
    let keepers = (0..SERVERS).map(compiled).collect::<Result<Vec<_>, _>>()?;
    let modules = (0..workers).map(compiled).collect::<Result<Vec<_>, _>>()?;
    let rule = Rule::Together { need: workers };
    let over = AtomicBool::new(false);
    std::thread::scope(|s| {
        let over = &over;
        for (rank, keeper) in keepers.iter().enumerate() {
            let job = job(rank);
            let stop = || over.load(Ordering::Acquire);
            s.spawn(move || keeper.serve_variables("train", &job, rule, &stop));
        }
        let running: Vec<_> = modules
            .iter()
            .enumerate()
            .map(|(rank, module)| {
                let job = job(rank);
                s.spawn(move || {
                    let mut worker = module.worker("train", &job)?;
                    let mut times = vec![];
                    while worker.next_step() < steps {
                        // Other rows in every step, and for every worker.
                        let first = worker.next_step() * 131 + rank as u64 * 37;
                        let id = |i: u64| ((first + i) * 2_654_435_761 % rows) as i32;
                        let ids = ndarray::Array1::from_iter((0..32).map(id));
                        let started = Instant::now();
                        worker.step((&ids,), 1.0 / workers as f64)?;
                        times.push(started.elapsed());
                    }
                    let (sent, memory) = (worker.traffic()[0], resident());
                    worker.finish()?;
                    times.sort();
                    Ok::<_, tfc::Error>((times[times.len() / 2], sent, memory))
                })
            })
            .collect();
        let mut ends: Vec<_> =
            running.into_iter().map(|w| w.join().unwrap_or(Ok((Duration::ZERO, 0, 0)))).collect();
        over.store(true, Ordering::Release);
        ends.swap_remove(0)
    })
}
