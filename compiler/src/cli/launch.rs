//! `tfc launch`: the processes of a job, on this machine.
//!
//! Every process runs the same command; the environment tells each its rank
//! (`tfc_runtime::net::job`). Lines of all of them come out one at a time, those of
//! the others with their rank before them. When one fails the rest are stopped; the
//! job is then started again from its last checkpoint, as often as allowed. On more
//! than one machine, `mpirun`, Slurm or Kubernetes do this.

use super::{Done, args};
use crate::error::Result;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tfc_ir::diag::Diag;

/// How long the others have to end by themselves when one has.
const GRACE: Duration = Duration::from_secs(10);
/// Exit code of a run that was asked to stop and has saved.
const INTERRUPTED: i32 = tfc_runtime::cli::INTERRUPTED;

pub fn run(args: &args::Launch) -> Result<Done> {
    let [program, rest @ ..] = args.command.as_slice() else {
        return Err(Diag::error("E0914", "there is no command to launch")
            .help("such as `tfc launch -n 2 ./model train --feed x=x.npy --batch 64`")
            .into());
    };
    tfc_runtime::cli::signals::listen();
    let mut tries = 0;
    loop {
        let mut words = rest.to_vec();
        // Only the first start may be a fresh one.
        if tries > 0 && !words.iter().any(|w| w.starts_with("--resume")) {
            words.push("--resume".into());
        }
        let code = job(args, program, &words)?;
        let saved = rest.iter().any(|w| w.starts_with("--checkpoint-dir"));
        let over = code == 0 || code == INTERRUPTED || tfc_runtime::cli::signals::raised();
        if over || tries >= args.restarts || !saved {
            if !over && args.restarts > 0 && !saved {
                super::tell(
                    "note: the job is not started again: without `--checkpoint-dir` there is \
                     nothing to go on from\n",
                );
            }
            return Ok(Done { text: String::new(), code: u8::try_from(code).unwrap_or(1) });
        }
        tries += 1;
        super::tell(&format!(
            "note: the job is started again from its last checkpoint ({tries} of {} times)\n",
            args.restarts
        ));
    }
}

/// What comes from the processes.
enum Event {
    Line {
        rank: usize,
        err: bool,
        text: Vec<u8>,
    },
    /// One of its outputs has ended.
    Closed,
}

/// Runs the processes until all have ended; the exit code of the first that failed.
fn job(args: &args::Launch, program: &str, words: &[String]) -> Result<i32> {
    let size = args.workers;
    let coordinator = match size {
        1 => String::new(),
        _ => free_address().map_err(|e| Diag::error("E0705", format!("no free port: {e}")))?,
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let threads = args.threads.unwrap_or((cores / size).max(1)).to_string();
    let token = format!("{:016x}{:016x}", random(), random());
    let (give, events) = channel();
    let mut children: Vec<Child> = vec![];
    for rank in 0..size {
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.env("TFC_RANK", rank.to_string()).env("TFC_SIZE", size.to_string());
        command.env("TFC_COORDINATOR", &coordinator).env("TFC_TOKEN", &token);
        if std::env::var_os("TFC_THREADS").is_none() || args.threads.is_some() {
            command.env("TFC_THREADS", &threads);
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) => {
                stop(&mut children, true);
                let reason = format!("cannot start `{program}`: {e}");
                let diag = Diag::error("E0804", reason);
                return Err(diag.help("name a program, as in `tfc launch -n 2 ./model ..`").into());
            }
        };
        if let Some(out) = child.stdout.take() {
            follow(rank, false, out, give.clone());
        }
        if let Some(err) = child.stderr.take() {
            follow(rank, true, err, give.clone());
        }
        children.push(child);
    }
    drop(give);
    let mut ended: Vec<Option<ExitStatus>> = vec![None; size];
    let mut first: Option<(usize, ExitStatus)> = None;
    let mut since: Option<Instant> = None;
    let mut asked = false;
    loop {
        match events.recv_timeout(Duration::from_millis(50)) {
            Ok(Event::Line { rank, err, text }) => print(rank, err, &text),
            Ok(Event::Closed) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        for (rank, child) in children.iter_mut().enumerate() {
            if ended[rank].is_none()
                && let Ok(Some(status)) = child.try_wait()
            {
                ended[rank] = Some(status);
                if !status.success() && first.is_none() {
                    first = Some((rank, status));
                    since = Some(Instant::now());
                }
            }
        }
        if ended.iter().all(Option::is_some) {
            break;
        }
        if tfc_runtime::cli::signals::raised() && !asked {
            asked = true;
            stop(&mut children, false);
        }
        if since.is_some_and(|t| t.elapsed() > GRACE) {
            stop(&mut children, true);
            since = None;
        }
    }
    // What they said last.
    while let Ok(event) = events.recv_timeout(Duration::from_millis(200)) {
        if let Event::Line { rank, err, text } = event {
            print(rank, err, &text);
        }
    }
    Ok(match first {
        None => 0,
        Some((rank, status)) => {
            let code = status.code();
            if code.is_none() {
                super::tell(&format!("error[E0701]: worker {rank} was killed: {status}\n"));
            }
            code.unwrap_or(4)
        }
    })
}

/// Asks the processes to end, or ends them.
fn stop(children: &mut [Child], at_once: bool) {
    for child in children {
        if at_once {
            // It may have ended by itself.
            let _ = child.kill();
        } else {
            #[cfg(unix)]
            tfc_runtime::cli::signals::ask_to_stop(child.id());
        }
    }
}

fn follow(rank: usize, err: bool, from: impl Read + Send + 'static, give: Sender<Event>) {
    let read = move || {
        let mut from = BufReader::new(from);
        let mut text = vec![];
        while from.read_until(b'\n', &mut text).is_ok_and(|n| n > 0) {
            if give.send(Event::Line { rank, err, text: std::mem::take(&mut text) }).is_err() {
                return;
            }
        }
        let _ = give.send(Event::Closed);
    };
    // Without a thread its output is lost, not the job.
    let _ = std::thread::Builder::new().name(format!("worker {rank}")).spawn(read);
}

/// A line as it was, but for the rank of those who are not the first.
fn print(rank: usize, err: bool, text: &[u8]) {
    let mut line = if rank == 0 { vec![] } else { format!("[{rank}] ").into_bytes() };
    line.extend_from_slice(text);
    // Nobody may be reading.
    let _ = match err {
        true => std::io::stderr().write_all(&line),
        false => std::io::stdout().write_all(&line).and_then(|()| std::io::stdout().flush()),
    };
}

fn free_address() -> std::io::Result<String> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(Instant::now())
}
