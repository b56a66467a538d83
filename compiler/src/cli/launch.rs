//! `tfc launch`: the processes of a job, on this machine.
//!
//! Every process runs the same command; the environment tells each its rank
//! (`tfc_runtime::net::job`). Lines of all of them come out one at a time, those of
//! the others with their rank before them. When one fails the rest are stopped; the
//! job is then started again from its last checkpoint, as often as allowed. A job that
//! outlives the loss of a process (one with parameter servers, or with `--on-loss shrink`
//! or `wait`) goes on, and what died is started again by itself. On more than one machine,
//! `mpirun`, Slurm or Kubernetes do this.

pub(super) mod ports;
mod screen;

use super::{Done, args};
use crate::error::Result;
use ports::Reserved;
use screen::{Said, tell};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tfc_ir::diag::Diag;
use tfc_runtime::cli::signals;
use tfc_runtime::error::Party;
use tfc_runtime::files::{Links, Staged};
use tfc_runtime::launcher::{self, LAUNCHED, LIFELINE, PROGRESS};
use tfc_runtime::net::PEER_TIMEOUT;
use tfc_runtime::net::job::OnLoss;

/// How long the others have to end by themselves when one has.
const GRACE: Duration = Duration::from_secs(10);
/// How long a process is too new to be the one that somebody has waited for.
const FRESH: Duration = Duration::from_secs(5);
/// How long what a process said may be on its way when it has ended.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// Exit code of a process that another one was lost to, or that waited for it too long.
const PEER_LOST: i32 = 4;
/// Exit code of a run that was asked to stop and has saved.
const INTERRUPTED: i32 = tfc_runtime::cli::INTERRUPTED;

pub fn run(args: &args::Launch) -> Result<Done> {
    let [program, rest @ ..] = args.command.as_slice() else {
        return Err(Diag::error("E0914", "there is no command to launch")
            .help("such as `tfc launch -n 2 ./model train --feed x=x.npy --batch 64`")
            .into());
    };
    if let Some(to) = args.print {
        let text = match to {
            args::Manifest::K8s => super::manifest::kubernetes(args),
            args::Manifest::Slurm => super::manifest::slurm(args),
        };
        return Ok(Done { text, code: 0 });
    }
    signals::listen();
    let Some(file) = &args.trace else { return started(args, program, rest, None) };
    // Before the job has run for hours.
    drop(Staged::new(file, Links::Refuse)?);
    let dir = std::env::temp_dir().join(format!("tfc-trace-{:016x}", random()));
    let unusable = |e: std::io::Error| tfc_runtime::io::cannot_write(&dir, &e);
    std::fs::create_dir(&dir).map_err(unusable)?;
    let done = started(args, program, rest, Some(&dir));
    let merged = tfc_runtime::profile::merge(&dir).map_err(unusable);
    let _ = std::fs::remove_dir_all(&dir);
    let (text, processes) = merged?;
    tfc_runtime::files::replace(file, |out| out.write_all(text.as_bytes()))?;
    tell(&format!("note: `{}` shows {processes} processes\n", file.display()));
    done
}

/// Starts the job, again and again if need be.
fn started(
    args: &args::Launch,
    program: &str,
    rest: &[String],
    trace: Option<&Path>,
) -> Result<Done> {
    let mut tries = 0;
    if args.ps > 0 {
        let code = lasting_job(args, program, rest, trace, Kind::Served, &mut tries)?;
        return Ok(Done { text: String::new(), code: u8::try_from(code).unwrap_or(1) });
    }
    loop {
        let mut words = rest.to_vec();
        // Only the first start may be a fresh one.
        if tries > 0 && !words.iter().any(|w| w.starts_with("--resume")) {
            words.push("--resume".into());
        }
        let code = match on_loss(rest) {
            OnLoss::Stop => job(args, program, &words, trace)?,
            kind => lasting_job(args, program, &words, trace, Kind::Elastic(kind), &mut tries)?,
        };
        let saved = saves(rest);
        let over = code == 0 || code == INTERRUPTED || signals::raised();
        if over || tries >= args.restarts || !saved {
            if !over && args.restarts > 0 && !saved {
                tell(
                    "note: the job is not started again: without `--checkpoint-dir` there is \
                     nothing to continue from\n",
                );
            }
            return Ok(Done { text: String::new(), code: u8::try_from(code).unwrap_or(1) });
        }
        tries += 1;
        tell(&format!(
            "note: the job is started again from its last checkpoint ({tries} of {} times)\n",
            args.restarts
        ));
    }
}

/// What comes from the processes.
enum Event {
    Line {
        who: Party,
        err: bool,
        text: Vec<u8>,
    },
    /// How far the chief is.
    Progress(Vec<u8>),
    /// A process has waited too long for another one.
    Late(Accusation),
    /// One of its outputs has ended.
    Closed,
}

/// A process that has waited too long, and the one it has waited for.
#[derive(Clone, Copy)]
struct Accusation {
    by: Party,
    of: Party,
}

/// Of processes as they are: what was said by or about one that is started again is void.
#[derive(Default)]
struct Accusations(Vec<Accusation>);

impl Accusations {
    /// Takes out those to blame for the end of this process: whoever it has waited for itself,
    /// or a server has, which waits for all workers.
    fn take_those_of(&mut self, by: Party) -> Vec<Party> {
        let counts =
            |a: &Accusation| a.of != by && (a.by == by || matches!(a.by, Party::Server(_)));
        self.0.extract_if(.., |a| counts(a)).map(|a| a.of).collect()
    }

    fn take_all(&mut self) -> Vec<Party> {
        self.0.drain(..).map(|a| a.of).collect()
    }

    fn name(&self, who: Party) -> bool {
        self.0.iter().any(|a| a.of == who)
    }

    fn forget(&mut self, who: Party) {
        self.0.retain(|a| a.by != who && a.of != who);
    }
}

/// What the processes of a job have in common.
struct Plan<'a> {
    program: &'a str,
    threads: Option<String>,
    token: String,
    size: usize,
    coordinator: String,
    /// Where parameter servers listen.
    servers: Vec<String>,
    /// Where processes leave what they did.
    trace: Option<&'a Path>,
    /// The ports of this machine among these addresses, also for who is started again.
    _ports: Vec<Reserved>,
}

impl<'a> Plan<'a> {
    fn new(args: &args::Launch, program: &'a str) -> Result<Plan<'a>> {
        let no_port = |e: std::io::Error| Diag::error("E0705", format!("no free port: {e}"));
        let size = args.workers;
        let mut ports = vec![];
        let mut free = || {
            let port = Reserved::any().map_err(no_port)?;
            let at = port.address().to_string();
            ports.push(port);
            Ok::<String, Diag>(at)
        };
        // Others can read from servers whose addresses and token they know.
        let servers = match std::env::var("TFC_SERVERS") {
            Ok(list) if list.split(',').count() == args.ps => {
                list.split(',').map(|at| at.trim().to_owned()).collect()
            }
            _ => (0..args.ps).map(|_| free()).collect::<std::result::Result<_, _>>()?,
        };
        let coordinator = match size == 1 || args.ps > 0 {
            true => String::new(),
            false => free()?,
        };
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let threads = args.threads.unwrap_or((cores / (size + args.ps)).max(1)).to_string();
        let ours = std::env::var_os("TFC_THREADS").is_none() || args.threads.is_some();
        let token = match std::env::var("TFC_TOKEN") {
            Ok(token) if !token.is_empty() => token,
            _ => format!("{:016x}{:016x}", random(), random()),
        };
        let threads = ours.then_some(threads);
        Ok(Plan { program, threads, token, size, coordinator, servers, trace: None, _ports: ports })
    }

    /// Starts one process; `server` is the number of a parameter server.
    fn start(&self, who: Party, words: &[String], give: &Sender<Event>) -> Result<Child> {
        let mut command = Command::new(self.program);
        command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let no_line = |e: std::io::Error| Diag::error("E0804", format!("no line to it: {e}"));
        let line = Lifeline::give(&mut command).map_err(no_line)?;
        command.env(LAUNCHED, "1");
        #[cfg(unix)]
        signals::die_together(&mut command);
        let (Party::Worker(rank) | Party::Server(rank)) = who;
        command.env("TFC_RANK", rank.to_string()).env("TFC_SIZE", self.size.to_string());
        command.env("TFC_COORDINATOR", &self.coordinator).env("TFC_TOKEN", &self.token);
        if !self.servers.is_empty() {
            let role = if matches!(who, Party::Server(_)) { "ps" } else { "worker" };
            command.env("TFC_SERVERS", self.servers.join(",")).env("TFC_ROLE", role);
        }
        match who == Party::Worker(0) && screen::is_watched() {
            true => command.env(PROGRESS, "1"),
            false => command.env_remove(PROGRESS),
        };
        if let Some(dir) = self.trace {
            command.env("TFC_TRACE", dir);
        }
        if let Some(threads) = &self.threads {
            command.env("TFC_THREADS", threads);
        }
        let mut child = command.spawn().map_err(|e| {
            let reason = format!("cannot start `{}`: {e}", self.program);
            Diag::error("E0804", reason).help("name a program, as in `tfc launch -n 2 ./model ..`")
        })?;
        // What it was given must not be held open here.
        drop(command);
        line.hold(who, &mut child, give);
        if let Some(out) = child.stdout.take() {
            follow(who, false, out, give.clone());
        }
        if let Some(err) = child.stderr.take() {
            follow(who, true, err, give.clone());
        }
        Ok(child)
    }
}

/// What a process is called.
fn name(who: Party) -> String {
    match who {
        Party::Worker(rank) => format!("worker {rank}"),
        Party::Server(number) => format!("parameter server {number}"),
    }
}

/// The standard input of a process: it ends when the launcher does, and brings what the
/// process has to say to the launcher.
struct Lifeline {
    #[cfg(unix)]
    own: std::os::unix::net::UnixStream,
}

impl Lifeline {
    #[cfg(unix)]
    fn give(command: &mut Command) -> std::io::Result<Lifeline> {
        let (own, theirs) = std::os::unix::net::UnixStream::pair()?;
        command.stdin(std::os::fd::OwnedFd::from(theirs));
        Ok(Lifeline { own })
    }

    #[cfg(not(unix))]
    fn give(command: &mut Command) -> std::io::Result<Lifeline> {
        command.stdin(Stdio::piped());
        Ok(Lifeline {})
    }

    /// Held open as long as this process is there; who does not read it does not mind.
    #[cfg(unix)]
    fn hold(mut self, who: Party, _: &mut Child, give: &Sender<Event>) {
        let _ = self.own.write_all(LIFELINE);
        let give = give.clone();
        let read = move || {
            for line in BufReader::new(self.own).lines().map_while(std::io::Result::ok) {
                if let Some(of) = launcher::accused(&line) {
                    // The job may be over.
                    let _ = give.send(Event::Late(Accusation { by: who, of }));
                }
            }
        };
        // Without a thread the process takes this one for gone, and ends.
        let _ = std::thread::Builder::new().name(format!("{who} hangs")).spawn(read);
    }

    #[cfg(not(unix))]
    fn hold(self, _: Party, child: &mut Child, _: &Sender<Event>) {
        if let Some(line) = child.stdin.as_mut() {
            let _ = line.write_all(LIFELINE);
        }
    }
}

/// Shows what the processes say, for a moment; who is said to hang.
fn show(events: &Receiver<Event>, wait: Duration) -> Option<Accusation> {
    match events.recv_timeout(wait) {
        Ok(Event::Line { who, err, text }) => screen::line(who, err, &text),
        Ok(Event::Progress(text)) => screen::progress(&text),
        Ok(Event::Late(accusation)) => return Some(accusation),
        Ok(Event::Closed) | Err(RecvTimeoutError::Timeout) => {}
        Err(RecvTimeoutError::Disconnected) => std::thread::sleep(Duration::from_millis(5)),
    }
    None
}

/// Runs the processes until all have ended; the exit code of the first that failed.
fn job(args: &args::Launch, program: &str, words: &[String], trace: Option<&Path>) -> Result<i32> {
    let plan = Plan { trace, ..Plan::new(args, program)? };
    let (give, events) = channel();
    let mut children: Vec<Child> = vec![];
    for rank in 0..plan.size {
        match plan.start(Party::Worker(rank), words, &give) {
            Ok(child) => children.push(child),
            Err(e) => {
                stop(&mut children, true);
                return Err(e);
            }
        }
    }
    drop(give);
    let mut ended: Vec<Option<ExitStatus>> = vec![None; plan.size];
    let mut first: Option<(usize, ExitStatus)> = None;
    let mut since: Option<Instant> = None;
    // Until when the others may go on without the chief; and who has not ended by then.
    let (patience, mut alone, mut hung) = (patience(words), None::<Instant>, None);
    let mut asked = false;
    loop {
        show(&events, Duration::from_millis(50));
        for (rank, child) in children.iter_mut().enumerate() {
            if ended[rank].is_none()
                && let Ok(Some(status)) = child.try_wait()
            {
                ended[rank] = Some(status);
                if !status.success() && first.is_none() && hung.is_none() {
                    first = Some((rank, status));
                    since = Some(Instant::now());
                }
                if rank == 0 {
                    alone = Some(Instant::now());
                }
            }
        }
        if ended.iter().all(Option::is_some) {
            break;
        }
        if signals::raised() && !asked {
            asked = true;
            stop(&mut children, false);
        }
        if since.is_some_and(|t| t.elapsed() > GRACE) {
            stop(&mut children, true);
            since = None;
        }
        if let (Some(t), Some(patience), None) = (alone, patience, hung)
            && first.is_none()
            && t.elapsed() > patience
        {
            hung = ended.iter().position(Option::is_none);
            tell(&format!(
                "note: worker {} has not exited within {} s of worker 0, so it is killed\n",
                hung.unwrap_or(0),
                patience.as_secs_f64()
            ));
            stop(&mut children, true);
        }
    }
    last_words(&events);
    Ok(match first {
        None => 0,
        Some((rank, status)) => {
            let code = status.code();
            if code.is_none() {
                tell(&format!("error[E0701]: worker {rank} was killed: {status}\n"));
            }
            code.unwrap_or(4)
        }
    })
}

/// What they said last.
fn last_words(events: &Receiver<Event>) {
    while let Ok(event) = events.recv_timeout(LAST_WORDS) {
        if let Event::Line { who, err, text } = event {
            screen::line(who, err, &text);
        }
    }
    screen::progress(&[]);
}

/// How a job goes on when one of its processes dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// It has parameter servers, which are first among the processes.
    Served,
    /// What `--on-loss` says.
    Elastic(OnLoss),
}

/// A job that goes on when one of its processes dies, which is started again by itself; it
/// is over when the chief is. `restarts` counts how often that was done.
fn lasting_job(
    args: &args::Launch,
    program: &str,
    words: &[String],
    trace: Option<&Path>,
    kind: Kind,
    restarts: &mut usize,
) -> Result<i32> {
    let plan = Plan { trace, ..Plan::new(args, program)? };
    let (give, events) = channel();
    let who: Vec<Party> =
        (0..args.ps).map(Party::Server).chain((0..plan.size).map(Party::Worker)).collect();
    let mut children: Vec<Child> = vec![];
    for &who in &who {
        match plan.start(who, words, &give) {
            Ok(child) => children.push(child),
            Err(e) => {
                stop(&mut children, true);
                return Err(e);
            }
        }
    }
    let chief = args.ps;
    let mut gone = vec![false; who.len()];
    // When those were that were started again, which nobody waits for yet.
    let mut since: Vec<Option<Instant>> = vec![None; who.len()];
    let mut asked = false;
    let saved = saves(words);
    // Without one of them the steps come to an end.
    let all_needed = kind == Kind::Served && needs_all(words);
    // Workers that have waited in vain for somebody; and since when nothing can come of it.
    let (mut in_vain, mut doomed) = (0, None::<Instant>);
    // Who was waited for too long, and by whom.
    let mut accused = Accusations::default();
    let code = 'job: loop {
        accused.0.extend(show(&events, Duration::from_millis(20)));
        if doomed.is_some_and(|since| since.elapsed() > GRACE) {
            break PEER_LOST;
        }
        if signals::raised() && !asked {
            asked = true;
            // The servers stay for the workers.
            stop(&mut children[chief..], false);
        }
        if kind != Kind::Served && *restarts < args.restarts && !asked {
            // The others have given it up, and nobody else ends it.
            for of in accused.take_all() {
                end_late(of, &who, &gone, &since, &mut children);
            }
        }
        for at in 0..who.len() {
            let status = match children[at].try_wait() {
                Ok(Some(status)) if !gone[at] => status,
                _ => continue,
            };
            gone[at] = true;
            let code = status.code();
            if at == chief && matches!(code, Some(0 | INTERRUPTED)) {
                break 'job code.unwrap_or(0);
            }
            match code {
                Some(0 | INTERRUPTED) => continue,
                // Its own fault: it would be again.
                Some(code @ (1..=3 | 101)) => break 'job code,
                _ => {}
            }
            let why = match code {
                Some(code) => format!("{} ended with code {code}", name(who[at])),
                None => format!("error[E0701]: {} was killed: {status}", name(who[at])),
            };
            // The chief alone has what its run began with, where nobody else keeps it.
            let for_good = at == chief
                && match kind {
                    Kind::Served => false,
                    Kind::Elastic(OnLoss::Wait) => !saved,
                    Kind::Elastic(_) => true,
                };
            if *restarts < args.restarts && !asked && !for_good {
                *restarts += 1;
                // What hangs would hold up the one that is started again as well. Its last
                // words say who that is.
                let until = Instant::now() + LAST_WORDS;
                while code == Some(PEER_LOST) && Instant::now() < until {
                    accused.0.extend(show(&events, LAST_WORDS / 4));
                }
                if code == Some(PEER_LOST) {
                    for of in accused.take_those_of(who[at]) {
                        end_late(of, &who, &gone, &since, &mut children);
                    }
                }
                accused.forget(who[at]);
                tell(&format!(
                    "{why}\nnote: {} is started again ({restarts} of {} times)\n",
                    name(who[at]),
                    args.restarts
                ));
                let mut words = words.to_vec();
                if at == chief && saved && !words.iter().any(|w| w.starts_with("--resume")) {
                    words.push("--resume".into());
                }
                children[at] = plan.start(who[at], &words, &give)?;
                gone[at] = false;
                since[at] = Some(Instant::now()).filter(|_| kind != Kind::Served);
            } else if at > chief {
                in_vain += usize::from(code == Some(PEER_LOST));
                // Where they are all needed, or the chief is the one that hangs, the others
                // have until now to say so.
                let over = all_needed || kind == Kind::Served && in_vain + 1 == plan.size;
                let goes = match over || kind == Kind::Elastic(OnLoss::Wait) {
                    true => "cannot go",
                    false => "goes",
                };
                tell(&format!("{why}\nnote: the job {goes} on without {}\n", name(who[at])));
                if over {
                    doomed.get_or_insert_with(Instant::now);
                }
            } else {
                tell(&format!("{why}\n"));
                break 'job code.unwrap_or(4);
            }
        }
    };
    let ending = Instant::now();
    if code != 0 {
        stop(&mut children, false);
    }
    let hang = |at: usize| accused.name(who[at]);
    let forsaken = (0..who.len()).filter(|at| kind != Kind::Served && hang(*at));
    forsaken.for_each(|at| stop(std::slice::from_mut(&mut children[at]), true));
    while children.iter_mut().any(|c| matches!(c.try_wait(), Ok(None))) {
        show(&events, Duration::from_millis(20));
        if ending.elapsed() > GRACE / if code == 0 { 1 } else { 5 } {
            stop(&mut children, true);
        }
    }
    drop(give);
    last_words(&events);
    Ok(code)
}

/// Ends a process that others have waited for too long, unless it is a new one since.
fn end_late(
    of: Party,
    who: &[Party],
    gone: &[bool],
    since: &[Option<Instant>],
    children: &mut [Child],
) {
    let Some(at) = who.iter().position(|w| *w == of) else { return };
    if !gone[at] && since[at].is_none_or(|s| s.elapsed() > FRESH) {
        tell(&format!("note: {} does not answer, so it is killed\n", name(of)));
        stop(std::slice::from_mut(&mut children[at]), true);
    }
}

/// Whether the job leaves something to go on from.
fn saves(words: &[String]) -> bool {
    words.iter().any(|w| w.starts_with("--checkpoint-dir"))
}

/// The value of an option of the program, the last one that is given.
fn option<'a>(words: &'a [String], name: &str) -> Option<&'a str> {
    words.iter().enumerate().rev().find_map(|(i, w)| match w.strip_prefix(name) {
        Some("") => words.get(i + 1).map(String::as_str),
        Some(rest) => rest.strip_prefix('='),
        None => None,
    })
}

/// How long a job waits for the others when the chief has ended well: as long as they would
/// have waited for it. Where they do not train together they may go on for as long as they
/// like.
fn patience(words: &[String]) -> Option<Duration> {
    let given = option(words, "--peer-timeout").and_then(tfc_runtime::cli::args::duration);
    let together = option(words, "--mode") != Some("local");
    together.then(|| given.unwrap_or(PEER_TIMEOUT).max(GRACE))
}

/// What the job is to do when it loses a worker.
fn on_loss(words: &[String]) -> OnLoss {
    option(words, "--on-loss").and_then(OnLoss::from_name).unwrap_or_default()
}

/// Whether a step of a job with parameter servers takes the gradients of all workers.
fn needs_all(words: &[String]) -> bool {
    option(words, "--mode").is_none_or(|m| m == "ps-sync")
}

/// Asks the processes to end, or ends them.
fn stop(children: &mut [Child], at_once: bool) {
    for child in children {
        if at_once {
            // It may have ended by itself.
            let _ = child.kill();
        } else {
            #[cfg(unix)]
            signals::ask_to_stop(child.id());
        }
    }
}

fn follow(who: Party, err: bool, from: impl Read + Send + 'static, give: Sender<Event>) {
    let read = move || {
        screen::read(from, |said| {
            let event = match said {
                Said::Line(text) => Event::Line { who, err, text },
                Said::Progress(text) if who == Party::Worker(0) => Event::Progress(text),
                // Nobody has asked for it.
                Said::Progress(_) => return true,
            };
            give.send(event).is_ok()
        });
        let _ = give.send(Event::Closed);
    };
    // Without a thread its output is lost, not the job.
    let _ = std::thread::Builder::new().name(who.to_string()).spawn(read);
}

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(Instant::now())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_need_all() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(needs_all(&words("train --batch 8")));
        assert!(needs_all(&words("train --mode ps-sync")));
        assert!(needs_all(&words("train --mode backup --mode=ps-sync")));
        assert!(!needs_all(&words("train --mode ps-async")));
        assert!(!needs_all(&words("train --mode=backup --need 2")));
        assert_eq!(on_loss(&words("train --mode sync")), OnLoss::Stop);
        assert_eq!(on_loss(&words("train --on-loss=stop --on-loss wait")), OnLoss::Wait);
        assert_eq!(on_loss(&words("train --on-loss wait --on-loss=shrink")), OnLoss::Shrink);
        assert_eq!(on_loss(&words("train --on-loss")), OnLoss::Stop);
        assert_eq!(patience(&words("train --batch 8")), Some(PEER_TIMEOUT));
        assert_eq!(patience(&words("train --peer-timeout 1s")), Some(GRACE));
        assert_eq!(patience(&words("train --peer-timeout=20s")), Some(Duration::from_secs(20)));
        assert_eq!(patience(&words("train --mode local")), None);
    }

    #[test]
    fn accusations_are_of_processes_as_they_are() {
        let [one, two, server] = [Party::Worker(1), Party::Worker(2), Party::Server(0)];
        let said = |by: Party, of: Party| Accusation { by, of };
        let all = || Accusations(vec![said(server, one), said(one, two), said(two, server)]);
        // A server has waited for worker 1, which is then started again; nobody is to blame
        // when worker 2 ends later.
        let mut accused = all();
        accused.forget(one);
        assert_eq!(accused.take_those_of(two), [server]);
        assert_eq!(accused.take_those_of(two), []);
        // What another worker has said is its own affair, and so is what is said of oneself.
        let mut accused = all();
        assert_eq!(accused.take_those_of(one), [two]);
        assert!(accused.name(one) && accused.name(server) && !accused.name(two));
        assert_eq!(accused.take_those_of(server), [one]);
        assert_eq!(accused.take_all(), [server]);
    }
}
