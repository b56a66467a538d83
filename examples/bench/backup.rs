//! What a slow worker costs in each mode.
//!
//!     cargo run --release -p tfc --example backup
//!
//! Five workers and a parameter server are threads of this process. Computing gradients
//! is a pause of 10 ms, so that the machine has no part in the result; one worker's is
//! five times as long in every other step, at random.

use std::time::{Duration, Instant};
use tfc::Options;
use tfc::net::job::Job;
use tfc::net::ps::server::Rule;

const WORKERS: usize = 5;
const STEPS: u64 = 200;
const PAUSE: Duration = Duration::from_millis(10);

const GRAPH: &str = "graph g
dim B
var w: f32[64, 64] = ones
func sgd(var p, grad: _[..]) { p -= 0.001 * grad }
entry train(x: f32[B, 64]) -> (loss: f32[]) {
  loss = mean((x @ w) * (x @ w))
  minimize loss over [w] with sgd()
  return loss
}
";

fn main() -> Result<(), tfc::Error> {
    println!("| mode | steps/s | of the best | gradients dropped |");
    println!("|---|---|---|---|");
    let all = Rule::Together { need: WORKERS };
    let best = row("all of 5, none slow", all, false, None)?;
    row("all of 5", all, true, Some(best))?;
    row("backup, 4 of 5", Rule::Together { need: WORKERS - 1 }, true, Some(best))?;
    row("asynchronous", Rule::Apart { staleness: None }, true, Some(best))?;
    row("asynchronous, staleness 4", Rule::Apart { staleness: Some(4) }, true, Some(best))?;
    Ok(())
}

/// Prints a line, and gives the steps in a second.
fn row(name: &str, rule: Rule, slow: bool, best: Option<f64>) -> Result<f64, tfc::Error> {
    let graph = tfc::parse(GRAPH)?;
    let options = Options::new().replicas(true).threads(1);
    let address = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr());
    let servers = vec![address.map_or(String::new(), |a| a.to_string())];
    let job = |rank: usize| Job { servers: servers.clone(), ..Job::new(rank, WORKERS, "") };
    let x = ndarray::Array2::<f32>::ones((4, 64));
    let server = tfc::compile_with(&graph, &options)?;
    let modules =
        (0..WORKERS).map(|_| tfc::compile_with(&graph, &options)).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|s| {
        let served = s.spawn(|| server.serve_variables("train", &job(0), rule, &|| false));
        let workers: Vec<_> = modules
            .into_iter()
            .enumerate()
            .map(|(rank, module)| {
                let (job, x) = (job(rank), &x);
                s.spawn(move || {
                    let mut worker = module.worker("train", &job)?;
                    let started = Instant::now();
                    let (mut done, mut dice) = (0, rank as u64 + 7);
                    while worker.next_step() < STEPS {
                        dice = dice.wrapping_mul(6364136223846793005).wrapping_add(1);
                        let late = slow && rank == WORKERS - 1 && dice >> 63 == 1;
                        std::thread::sleep(if late { PAUSE * 5 } else { PAUSE });
                        worker.step((x,), 1.0 / WORKERS as f64)?;
                        done += 1;
                    }
                    let took = started.elapsed();
                    let dropped = worker.counts()?.dropped.iter().sum::<u64>();
                    worker.finish()?;
                    Ok::<_, tfc::Error>((done, took, dropped))
                })
            })
            .collect();
        let mut rates = vec![];
        let mut dropped = 0;
        for w in workers {
            let (done, took, late) = w.join().unwrap_or(Ok((0, PAUSE, 0)))?;
            rates.push(done as f64 / took.as_secs_f64());
            dropped = dropped.max(late);
        }
        let _ = served.join();
        // Apart, every worker's step is one of the job's: a fifth of them all counts as one.
        let rate = match rule {
            Rule::Together { .. } => rates[0],
            Rule::Apart { .. } => rates.iter().sum::<f64>() / WORKERS as f64,
        };
        let share = best.map_or(1.0, |b| rate / b);
        println!("| {name} | {rate:.1} | {:.0} % | {dropped} |", share * 100.0);
        Ok(rate)
    })
}
