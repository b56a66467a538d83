//! A link from every process of a job to every other.
//!
//! Process 0 listens where the job says. The others call it (`Join`), and when all
//! have, each is told where the rest listen; then every process calls those of lower
//! rank (`Link`). Whoever runs another program, or claims a rank that is taken, is
//! refused and told why; it does not disturb the others.

use super::job::Job;
use super::link::{Call, Link, Progress, Receiving, Refused, Sending, limit};
use super::postman::Postman;
use super::tls::{self, Tls, Wire};
use super::{Moment, Transport, alive, hpack, late};
use crate::error::{Error, ErrorCode, Result};
use crate::hash::hex;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::{c_int, c_short, c_ulong};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const JOIN: &str = "/tfc.Cluster/Join";
const LINK: &str = "/tfc.Cluster/Link";
/// A connection that says nothing useful for so long is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that may be shaking hands at a time.
const STRANGERS: usize = 256;

pub(super) struct Mesh {
    rank: usize,
    /// By rank; none for this process.
    links: Vec<Option<Arc<Link>>>,
    /// One exchange at a time.
    turn: Arc<Mutex<()>>,
    /// Who sends what was posted, by rank.
    postmen: Mutex<BTreeMap<usize, Postman>>,
}

impl Mesh {
    pub(super) fn join(job: &Job, graph: &[u8; 32]) -> Result<Mesh> {
        outlive_peers();
        let deadline = Instant::now() + job.join_timeout;
        let graph = hex(graph);
        let tls = job.tls.as_ref().map(Tls::open).transpose()?;
        let (door, roster) = match job.rank {
            0 => chief(job, &graph, tls.clone(), deadline)?,
            _ => member(job, &graph, tls.clone(), deadline)?,
        };
        let mut links: Vec<Option<Link>> = (0..job.size).map(|_| None).collect();
        for (peer, link) in links.iter_mut().enumerate().take(job.rank) {
            *link = Some(dial(job, &roster, peer, tls.as_ref(), deadline)?);
        }
        let (rank, incarnation) = (job.rank, roster.incarnation);
        while links.iter().skip(rank + 1).any(Option::is_none) {
            let missing: Vec<usize> =
                (rank + 1..job.size).filter(|r| links[*r].is_none()).collect();
            let mut call = door.next().ok_or_else(|| absent(job, &missing, &door))?;
            let who = number(&call, "tfc-rank").filter(|r| missing.contains(r));
            let same = hpack::get(&call.headers, "tfc-job") == Some(&incarnation.to_string());
            match who {
                Some(peer) if same && hpack::get(&call.headers, ":path") == Some(LINK) => {
                    let linked = call.answer(&[]).and_then(|()| call.into_link(peer, incarnation));
                    links[peer] = Some(linked.map_err(|e| unreachable(peer, "", &e))?);
                }
                _ => call.refuse("this is not a worker the job waits for"),
            }
        }
        links.iter().flatten().for_each(|l| alive::watch(l.stream.tcp(), job.timeout));
        let links = links.into_iter().map(|l| l.map(Arc::new)).collect();
        Ok(Mesh { rank, links, turn: Arc::default(), postmen: Mutex::default() })
    }

    /// Waits until what was posted to a peer is out.
    fn flush_to(&self, peer: usize) -> Result<()> {
        let postmen = self.postmen.lock().unwrap_or_else(PoisonError::into_inner);
        postmen.get(&peer).map_or(Ok(()), Postman::flush)
    }

    fn link(&self, peer: usize) -> Result<&Arc<Link>> {
        let link = self.links.get(peer).and_then(Option::as_ref);
        link.ok_or_else(|| Error::bug(format!("there is no link to worker {peer}")))
    }
}

/// Who is where, and which run of the job this is.
struct Roster {
    incarnation: u64,
    addresses: Vec<String>,
}

fn chief(
    job: &Job,
    graph: &str,
    tls: Option<Arc<Tls>>,
    deadline: Instant,
) -> Result<(Door, Roster)> {
    let door = Door::open(&job.listener()?, tls, deadline).map_err(|e| unreachable(0, "", &e))?;
    let incarnation = RandomState::new().hash_one(std::process::id()) >> 1;
    let mut joined: BTreeMap<usize, (Call, String)> = BTreeMap::new();
    while joined.len() + 1 < job.size {
        let missing = || (1..job.size).filter(|r| !joined.contains_key(r)).collect::<Vec<_>>();
        let call = door.next().ok_or_else(|| absent(job, &missing(), &door))?;
        let text = |name: &str| hpack::get(&call.headers, name).unwrap_or("");
        let rank = number(&call, "tfc-rank");
        let address = call.remote().ok().zip(number(&call, "tfc-port")).map(|(at, port)| {
            SocketAddr::new(at.ip(), u16::try_from(port).unwrap_or(0)).to_string()
        });
        let why = if text(":path") != JOIN {
            "there is no such method".to_owned()
        } else if text("tfc-token") != job.token {
            "the job's token is another one".to_owned()
        } else if text("tfc-graph") != graph {
            format!("it runs another program: graph {}, the job's is {graph}", text("tfc-graph"))
        } else if number(&call, "tfc-size") != Some(job.size) {
            format!("it expects {} workers, the job has {}", text("tfc-size"), job.size)
        } else {
            match (rank, address) {
                (Some(rank), Some(address))
                    if (1..job.size).contains(&rank) && !joined.contains_key(&rank) =>
                {
                    joined.insert(rank, (call, address));
                    continue;
                }
                _ => format!("worker {} is not one the job waits for", text("tfc-rank")),
            }
        };
        call.refuse(&why);
    }
    let mut addresses = vec![String::new()];
    addresses.extend(joined.values().map(|(_, address)| address.clone()));
    let (list, number) = (addresses.join(","), incarnation.to_string());
    for (rank, (call, _)) in &mut joined {
        call.answer(&[("tfc-roster", &list), ("tfc-job", &number)])
            .map_err(|e| unreachable(*rank, "", &e))?;
    }
    Ok((door, Roster { incarnation, addresses }))
}

fn member(
    job: &Job,
    graph: &str,
    tls: Option<Arc<Tls>>,
    deadline: Instant,
) -> Result<(Door, Roster)> {
    job.check_plain()?;
    let stream = connect(&job.coordinator, deadline).map_err(|e| {
        unreachable(0, &job.coordinator, &e).help(
            "start worker 0 as well; its address is given by the launcher, or by \
             TFC_COORDINATOR=HOST:PORT",
        )
    })?;
    let own = stream.local_addr().and_then(|at| TcpListener::bind((at.ip(), 0)));
    let listener = own.map_err(|e| unreachable(job.rank, "its own address", &e))?;
    let door = Door::open(&listener, tls.clone(), deadline);
    let door = door.map_err(|e| unreachable(job.rank, "its own address", &e))?;
    let port = listener.local_addr().map_or(0, |at| at.port()).to_string();
    let (rank, size) = (job.rank.to_string(), job.size.to_string());
    let metadata = [
        ("tfc-graph", graph),
        ("tfc-rank", &rank),
        ("tfc-size", &size),
        ("tfc-port", &port),
        ("tfc-token", &job.token),
    ];
    let call = wire(stream, tls.as_ref(), deadline)
        .map_err(Refused::Io)
        .and_then(|stream| Call::make(stream, JOIN, &metadata, deadline))
        .map_err(|e| refused(0, e, job))?;
    let roster = hpack::get(&call.headers, "tfc-roster").unwrap_or("");
    let addresses: Vec<String> = roster.split(',').map(str::to_owned).collect();
    let incarnation = hpack::get(&call.headers, "tfc-job").and_then(|n| n.parse().ok());
    match incarnation.filter(|_| addresses.len() == job.size) {
        Some(incarnation) => Ok((door, Roster { incarnation, addresses })),
        None => Err(refused(0, Refused::Said("its list of workers is damaged".into()), job)),
    }
}

fn dial(
    job: &Job,
    roster: &Roster,
    peer: usize,
    tls: Option<&Arc<Tls>>,
    deadline: Instant,
) -> Result<Link> {
    let address = if peer == 0 { &job.coordinator } else { &roster.addresses[peer] };
    let stream = connect(address, deadline).map_err(|e| unreachable(peer, address, &e))?;
    let (rank, number) = (job.rank.to_string(), roster.incarnation.to_string());
    let metadata = [("tfc-rank", rank.as_str()), ("tfc-job", &number)];
    let call = wire(stream, tls, deadline)
        .map_err(Refused::Io)
        .and_then(|stream| Call::make(stream, LINK, &metadata, deadline))
        .map_err(|e| refused(peer, e, job))?;
    call.into_link(peer, roster.incarnation).map_err(|e| unreachable(peer, address, &e))
}

/// Encrypts a connection that was made, if that is asked for.
pub(super) fn wire(
    stream: TcpStream,
    tls: Option<&Arc<Tls>>,
    deadline: Instant,
) -> io::Result<Wire> {
    match tls {
        None => Ok(Wire::Plain(stream)),
        Some(tls) => {
            limit(&stream, deadline)?;
            tls.connect(stream)
        }
    }
}

/// From now on a peer that is gone is an error of the call that writes to it, not the
/// end of the process.
pub(super) fn outlive_peers() {
    // SAFETY: ignoring a signal touches no memory.
    unsafe { signal(SIGPIPE, SIG_IGN) };
}

/// Tries until the deadline: the other side may not be there yet.
pub(super) fn connect(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut pause = Duration::from_millis(10);
    loop {
        let tried = address.to_socket_addrs().and_then(|mut list| {
            let at = list.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
            let left = deadline.saturating_duration_since(Instant::now());
            TcpStream::connect_timeout(&at, left.max(Duration::from_millis(1)))
        });
        match tried {
            Err(_) if Instant::now() + pause < deadline => std::thread::sleep(pause),
            other => return other,
        }
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

/// Where calls come in: each shakes hands on a thread of its own, so that one who
/// says nothing holds nobody up.
pub(super) struct Door {
    calls: Receiver<Call>,
    closed: Arc<AtomicBool>,
    deadline: Instant,
    /// Why somebody was not let in, of late.
    turned_away: Arc<Mutex<Option<String>>>,
}

impl Door {
    pub(super) fn open(
        listener: &TcpListener,
        tls: Option<Arc<Tls>>,
        deadline: Instant,
    ) -> io::Result<Door> {
        let (give, calls) = channel();
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let closed = Arc::new(AtomicBool::new(false));
        let shut = closed.clone();
        let turned_away = Arc::new(Mutex::new(None));
        let away = turned_away.clone();
        let greet = move || {
            let busy = Arc::new(());
            while Instant::now() < deadline && !shut.load(Ordering::Acquire) {
                match listener.accept() {
                    Ok((stream, _)) if Arc::strong_count(&busy) <= STRANGERS => {
                        let (give, busy) = (give.clone(), busy.clone());
                        let (tls, away) = (tls.clone(), away.clone());
                        let until = deadline.min(Instant::now() + HANDSHAKE);
                        let shake = move || {
                            match let_in(stream, tls.as_ref(), until) {
                                // Perhaps nobody waits for it any more.
                                Ok(call) => drop(give.send(call)),
                                Err(e) => {
                                    if let Some(why) = tls::distrust(&e) {
                                        let mut away =
                                            away.lock().unwrap_or_else(PoisonError::into_inner);
                                        *away = Some(why.to_owned());
                                    }
                                }
                            }
                            drop(busy);
                        };
                        // Without a thread to spare the caller is turned away.
                        let _ = std::thread::Builder::new().spawn(shake);
                    }
                    Ok(_) => {}
                    Err(_) => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        };
        std::thread::Builder::new().name("tfc-door".into()).spawn(greet)?;
        Ok(Door { calls, closed, deadline, turned_away })
    }

    /// The next call; none when the deadline has passed.
    fn next(&self) -> Option<Call> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        self.calls.recv_timeout(left).ok()
    }

    /// The next call, if it comes within this time.
    pub(super) fn within(&self, wait: Duration) -> Option<Call> {
        self.calls.recv_timeout(wait).ok()
    }
}

/// Takes a call from whoever has the right certificate, if one is needed.
fn let_in(stream: TcpStream, tls: Option<&Arc<Tls>>, until: Instant) -> io::Result<Call> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    limit(&stream, until)?;
    let stream = match tls {
        Some(tls) => tls.accept(stream)?,
        None => Wire::Plain(stream),
    };
    Call::take(stream, until)
}

impl Drop for Door {
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
    }
}

fn number(call: &Call, name: &str) -> Option<usize> {
    hpack::get(&call.headers, name)?.parse().ok()
}

fn absent(job: &Job, missing: &[usize], door: &Door) -> Error {
    let names: Vec<String> = missing.iter().map(usize::to_string).collect();
    let (workers, have) = match missing {
        [_] => ("worker", "has"),
        _ => ("workers", "have"),
    };
    let message = format!(
        "{workers} {} of {} {have} not joined within {} s",
        names.join(", "),
        job.size,
        job.join_timeout.as_secs()
    );
    let away = door.turned_away.lock().unwrap_or_else(PoisonError::into_inner);
    let e = Error::peer(ErrorCode::PEER_LATE, message)
        .note(format!("this is worker {}; the job meets at {}", job.rank, job.coordinator));
    match &*away {
        Some(why) => e.note(format!("a process was turned away: {why}")),
        None => e,
    }
    .help("start them, or give them longer with `--join-timeout`")
}

fn unreachable(peer: usize, address: &str, e: &io::Error) -> Error {
    let at = if address.is_empty() { String::new() } else { format!(" at {address}") };
    let why = crate::io::io_reason(e);
    Error::peer(ErrorCode::PEER_LOST, format!("worker {peer} cannot be reached{at}: {why}"))
}

/// What makes processes trust each other.
pub(super) const TRUSTED: &str = "give every process a valid certificate of the same authority: \
                                  `--tls-cert`, `--tls-key`, `--tls-ca`";

fn refused(peer: usize, why: Refused, job: &Job) -> Error {
    match why {
        Refused::Io(e)
            if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) =>
        {
            let message = format!("worker {peer} did not let worker {} join in time", job.rank);
            Error::peer(ErrorCode::PEER_LATE, message)
                .note("it waits until all workers of the job are there")
                .help("start the others, or give them longer with `--join-timeout`")
        }
        Refused::Io(e) => match tls::distrust(&e) {
            Some(why) => {
                let message =
                    format!("worker {peer} and worker {} do not trust each other: {why}", job.rank);
                Error::peer(ErrorCode::NOT_TRUSTED, message).help(TRUSTED)
            }
            None => unreachable(peer, "", &e),
        },
        Refused::Said(why) => {
            let message = format!("worker {peer} refused worker {}: {why}", job.rank);
            Error::peer(ErrorCode::JOIN_REFUSED, message)
                .help("start every worker of a job with the same program and the same options")
        }
    }
}

impl Transport for Mesh {
    fn name(&self) -> &'static str {
        "gRPC"
    }

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.links.len()
    }

    fn exchange(
        &self,
        out: Option<(usize, &[u8])>,
        into: Option<(usize, &mut [u8])>,
        moment: &Moment<'_>,
    ) -> Result<()> {
        // Two messages to one peer do not mix.
        if let Some((to, _)) = &out {
            self.flush_to(*to)?;
        }
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = match out {
            Some((to, data)) => Some((self.link(to)?, Sending::new(data, moment.sequence))),
            None => None,
        };
        let mut into = match into {
            Some((from, data)) => Some((self.link(from)?, Receiving::new(data, moment.sequence))),
            None => None,
        };
        loop {
            let mut leave = false;
            if let Some((link, s)) = &mut out {
                match link.push(s, moment)? {
                    Progress::Done => out = None,
                    Progress::NeedsLeave => leave = true,
                    Progress::Blocked => {}
                }
            }
            if let Some((link, r)) = &mut into {
                if link.pull(Some(r), moment)? == Progress::Done {
                    into = None;
                } else {
                    // A peer that only sends must be told that it may send more.
                    link.push_control(moment)?;
                }
            }
            // A peer that only takes says when it takes more.
            if leave
                && let Some((link, _)) = &out
                && into.as_ref().is_none_or(|(from, _)| from.peer != link.peer)
            {
                link.pull(None, moment)?;
            }
            if out.is_none() && into.is_none() {
                return Ok(());
            }
            let wait = |link: &Link, events: c_short| PollFd {
                fd: link.stream.as_raw_fd(),
                events,
                revents: 0,
            };
            let mut fds: Vec<PollFd> = vec![];
            fds.extend(out.as_ref().map(|(l, _)| wait(l, if leave { POLLIN } else { POLLOUT })));
            fds.extend(into.as_ref().map(|(l, _)| wait(l, POLLIN)));
            let left = moment.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The one that owes us something is more likely to blame.
                let peer = into.map(|(l, _)| l.peer).or(out.map(|(l, _)| l.peer)).unwrap_or(0);
                return Err(late(peer, moment));
            }
            let millis = c_int::try_from(left.as_millis() + 1).unwrap_or(c_int::MAX);
            // SAFETY: the descriptors are open, and the list is as long as said.
            // Errors show when the sockets are used again.
            unsafe { poll(fds.as_mut_ptr(), fds.len() as c_ulong, millis) };
        }
    }

    fn here(&self) -> usize {
        let near = |l: &&Arc<Link>| l.stream.tcp().peer_addr().is_ok_and(|a| a.ip().is_loopback());
        1 + self.links.iter().flatten().filter(near).count()
    }

    fn post(&self, to: usize, data: Vec<u8>, moment: &Moment<'_>) -> Result<()> {
        let link = self.link(to)?;
        let mut postmen = self.postmen.lock().unwrap_or_else(PoisonError::into_inner);
        let postman = match postmen.entry(to) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(
                Postman::new(link.clone(), self.turn.clone())
                    .map_err(|e| unreachable(to, "", &e))?,
            ),
        };
        postman.post(data, moment)
    }

    fn flush(&self, _moment: &Moment<'_>) -> Result<()> {
        let postmen = self.postmen.lock().unwrap_or_else(PoisonError::into_inner);
        postmen.values().try_for_each(Postman::flush)
    }
}

/// Waits until a link's socket is ready for something.
pub(super) fn poll_one(link: &Link, events: c_short, left: Duration) {
    let mut fd = PollFd { fd: link.stream.as_raw_fd(), events, revents: 0 };
    let millis = c_int::try_from(left.as_millis() + 1).unwrap_or(c_int::MAX);
    // SAFETY: the descriptor is open, and there is one. Errors show when it is used.
    unsafe { poll(&mut fd, 1, millis) };
}

/// Waits until a link can be read from, or written to; false when it is too late.
pub(super) fn ready(link: &Link, read: bool, deadline: Instant) -> bool {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return false;
    }
    let events = if read { POLLIN } else { POLLOUT };
    let mut fd = PollFd { fd: link.stream.as_raw_fd(), events, revents: 0 };
    let millis = c_int::try_from(left.as_millis() + 1).unwrap_or(c_int::MAX);
    // SAFETY: the descriptor is open, and the list has one member. Errors show when
    // the socket is used again.
    unsafe { poll(&mut fd, 1, millis) };
    true
}

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: c_short,
    revents: c_short,
}

const POLLIN: c_short = 1;
pub(super) const POLLOUT: c_short = 4;

const SIGPIPE: c_int = 13;
const SIG_IGN: usize = 1;

unsafe extern "C" {
    fn signal(number: c_int, handler: usize) -> usize;
    fn poll(fds: *mut PollFd, count: c_ulong, timeout: c_int) -> c_int;
}
