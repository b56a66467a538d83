//! Everybody else's side: calling the chief, and those of lower rank.

use super::{JOIN, LINK, LOOK, Muster, OVER, ROUNDS, STOPPED, Trouble};
use super::{described, forming, place};
use super::{refused, unreachable, worker};
use crate::error::Result;
use crate::net::Stop;
use crate::net::call::{Call, Refused};
use crate::net::door::{Door, connect_unless, wire};
use crate::net::hpack::{self, Headers};
use crate::net::job::{Job, OnLoss};
use crate::net::line::{Cause, Kind, Word};
use crate::net::link::Link;
use crate::net::mesh::Formed;
use crate::net::tls::{self, Wire};
use std::io;
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

impl Muster {
    /// Calls the chief, as often as it takes. Whoever is to stop tells it so instead, if it
    /// has a line to it.
    pub(super) fn follow(
        self: &Arc<Self>,
        first: bool,
        stop: Stop<'_>,
    ) -> std::result::Result<Arc<Formed>, Trouble> {
        let mut first = first;
        let mut chief_gone: Option<Instant> = None;
        let mut rounds = 0;
        loop {
            let before = Instant::now();
            let trouble = match self.enlist(first, stop) {
                Ok(formed) => return Ok(formed),
                Err(Trouble::Over) => return Err(Trouble::Over),
                // What it was at has failed because of that, or does not matter any more.
                Err(_) if stop() => Trouble::Stopped,
                Err(trouble) => trouble,
            };
            match trouble {
                Trouble::Stopped => {
                    let line = self.state().lines.get(&0).cloned();
                    line.inspect(|l| l.say(&Word::Stop));
                    return Err(Trouble::Stopped);
                }
                Trouble::Chief(_) if self.job.on_loss == OnLoss::Wait => {
                    // It is started again, and takes its time.
                    let since = *chief_gone.get_or_insert(before);
                    if since.elapsed() > self.job.join_timeout {
                        return Err(trouble);
                    }
                    std::thread::sleep(LOOK);
                }
                Trouble::Broke(_) if self.is_elastic() && rounds < ROUNDS => {
                    (first, chief_gone) = (false, None);
                    rounds += 1;
                }
                other => return Err(other),
            }
        }
    }

    fn enlist(
        self: &Arc<Self>,
        first: bool,
        stop: Stop<'_>,
    ) -> std::result::Result<Arc<Formed>, Trouble> {
        let job = &self.job;
        job.check_plain().map_err(Trouble::Fatal)?;
        let now = Instant::now();
        // With its line its chief may have ended, or have given up this process.
        let gone = self.state().lines.get(&0).is_some_and(|l| l.is_gone());
        let within = match gone && job.on_loss == OnLoss::Shrink {
            true => job.join_timeout.min(self.answer()),
            false => job.join_timeout,
        };
        // The chief may be at its step, and then wait for others.
        let patience = match first {
            true => job.join_timeout,
            false => job.join_timeout + job.timeout + 2 * self.answer(),
        };
        if stop() {
            return Err(Trouble::Stopped);
        }
        let stream = connect_unless(&job.coordinator, now + within, stop).map_err(|e| {
            Trouble::Chief(unreachable(0, &job.coordinator, &e).help(
                "start worker 0 as well; its address is given by the launcher, or by \
                 TFC_COORDINATOR=HOST:PORT",
            ))
        })?;
        let own = |e: io::Error| Trouble::Fatal(unreachable(job.rank, "its own address", &e));
        let listener = stream.local_addr().and_then(|at| job.worker_listener(at.ip()));
        let listener = listener.map_err(own)?;
        let until = Instant::now() + patience + self.linking();
        let door = Door::open(&listener, self.tls.clone(), Some(until)).map_err(own)?;
        let port = listener.local_addr().map_or(0, |at| at.port()).to_string();
        let (rank, size) = (job.rank.to_string(), job.size.to_string());
        let run = self.state().run;
        let again = if run == 0 { String::new() } else { run.to_string() };
        let metadata = [
            ("tfc-graph", &self.graph[..]),
            ("tfc-rank", &rank),
            ("tfc-size", &size),
            ("tfc-port", &port),
            ("tfc-token", &job.token),
            ("tfc-on-loss", job.on_loss.name()),
            ("tfc-again", &again),
        ];
        let deadline = now + patience;
        let call = wire(stream, self.tls.as_ref(), deadline)
            .map_err(Refused::Io)
            .and_then(|stream| unless(stop, stream, |s| Call::make(s, JOIN, &metadata, deadline)))
            .map_err(|e| self.turned_down(e))?;
        match hpack::get(&call.headers, OVER) {
            Some(STOPPED) => return Err(Trouble::Stopped),
            Some(_) => return Err(Trouble::Over),
            None => {}
        }
        let Some((run, mut addresses, members)) = roster(&call.headers, job) else {
            let why = Refused::Said("its list of workers is damaged".into());
            return Err(Trouble::Fatal(refused(0, why, job)));
        };
        if let Ok(chief) = call.remote() {
            addresses.iter_mut().for_each(|at| seen_from_here(at, chief.ip()));
        }
        {
            let mut state = self.state();
            (state.run, state.formed, state.cause) = (run, None, None);
            state.members = members.clone();
        }
        if self.is_elastic() {
            let line = call.into_link(0, run).and_then(|link| self.attach(0, run, link));
            let line = line.map_err(|e| Trouble::Chief(unreachable(0, "", &e)))?;
            self.state().lines.insert(0, line).inspect(|before| before.close());
        }
        let until = if self.is_elastic() { Instant::now() + self.linking() } else { deadline };
        self.make_links(run, &addresses, &members, &door, until).map_err(|e| {
            if let (true, Some(peer)) = (self.is_elastic(), worker(&e)) {
                let why = e.message().to_owned();
                self.ask_chief(run, Cause { peer, kind: Kind::Unreachable, why });
            }
            Trouble::Broke(e)
        })
    }

    /// The chief did not take the call.
    fn turned_down(&self, why: Refused) -> Trouble {
        let gone = matches!(&why, Refused::Io(e) if tls::distrust(e).is_none());
        let e = refused(0, why, &self.job);
        if gone { Trouble::Chief(e) } else { Trouble::Fatal(e) }
    }

    fn make_links(
        &self,
        run: u64,
        addresses: &[String],
        members: &[usize],
        door: &Door,
        until: Instant,
    ) -> Result<Arc<Formed>> {
        let rank = members.iter().position(|m| *m == self.job.rank).unwrap_or(0);
        let mut links: Vec<Option<Link>> = members.iter().map(|_| None).collect();
        for peer in 0..rank {
            let address = if peer == 0 { &self.job.coordinator } else { &addresses[peer] };
            links[peer] = Some(self.dial(run, members[peer], address, until)?);
        }
        loop {
            let missing: Vec<usize> = (rank + 1..members.len())
                .filter(|r| links[*r].is_none())
                .map(|r| members[r])
                .collect();
            if missing.is_empty() {
                return self.settle(run, rank, members.to_vec(), links);
            }
            if let Some((cause, _)) = &self.state().cause {
                return Err(described(cause, &forming()));
            }
            if Instant::now() >= until {
                let mut away = self.turned_away.lock().unwrap_or_else(PoisonError::into_inner);
                *away = door.turned_away().or(away.take());
                drop(away);
                return Err(self.absent(&missing, true));
            }
            if let Some(call) = door.within(LOOK) {
                let path = hpack::get(&call.headers, ":path") == Some(LINK);
                let same = hpack::get(&call.headers, "tfc-job") == Some(&run.to_string());
                match path && same {
                    true => place(call, run, members, &mut links)?,
                    false => call.refuse("this is not a worker the job waits for"),
                }
            }
        }
    }

    fn dial(&self, run: u64, peer: usize, address: &str, until: Instant) -> Result<Link> {
        let in_vain = || self.state().cause.is_some();
        let stream = connect_unless(address, until, &in_vain);
        let stream = stream.map_err(|e| unreachable(peer, address, &e))?;
        let (rank, number) = (self.job.rank.to_string(), run.to_string());
        let metadata = [("tfc-rank", rank.as_str()), ("tfc-job", &number)];
        let call = wire(stream, self.tls.as_ref(), until)
            .map_err(Refused::Io)
            .and_then(|stream| Call::make(stream, LINK, &metadata, until))
            .map_err(|e| refused(peer, e, &self.job))?;
        call.into_link(peer, run).map_err(|e| unreachable(peer, address, &e))
    }
}

/// A call whose connection ends when this process is to stop: the answer may be long in
/// coming, as whoever has called waits for all others.
fn unless(
    stop: Stop<'_>,
    stream: Wire,
    call: impl FnOnce(Wire) -> std::result::Result<Call, Refused>,
) -> std::result::Result<Call, Refused> {
    let tcp = stream.tcp().try_clone()?;
    std::thread::scope(|s| {
        let (done, over) = channel::<()>();
        let watch = move || {
            while let Err(RecvTimeoutError::Timeout) = over.recv_timeout(LOOK) {
                if stop() {
                    // It may have ended by itself.
                    let _ = tcp.shutdown(Shutdown::Both);
                    return;
                }
            }
        };
        // Without a thread the deadline ends it.
        let _ = std::thread::Builder::new().name("tfc-stop".into()).spawn_scoped(s, watch);
        let called = call(stream);
        drop(done);
        called
    })
}

/// What the chief has answered: the number of the run, who listens where, and who is in it.
fn roster(headers: &Headers, job: &Job) -> Option<(u64, Vec<String>, Vec<usize>)> {
    let text = |name: &str| hpack::get(headers, name);
    let run = text("tfc-job")?.parse().ok()?;
    let addresses: Vec<String> = text("tfc-roster")?.split(',').map(str::to_owned).collect();
    let members: Option<Vec<usize>> =
        text("tfc-members")?.split(',').map(|n| n.parse().ok()).collect();
    let members = members?;
    let sound = members.len() == addresses.len()
        && members.first() == Some(&0)
        && members.is_sorted_by(|a, b| a < b)
        && members.last().is_some_and(|last| *last < job.size)
        && members.contains(&job.rank);
    sound.then_some((run, addresses, members))
}

/// Who calls the chief from within its host is on that host: others find it where they have
/// found the chief.
fn seen_from_here(address: &mut String, chief: IpAddr) {
    let chief = chief.to_canonical();
    if let Ok(at) = address.parse::<SocketAddr>()
        && at.ip().is_loopback()
        && !chief.is_loopback()
    {
        *address = SocketAddr::new(chief, at.port()).to_string();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_on_the_chiefs_host_is_found_there() {
        let seen = |at: &str, chief: &str| {
            let mut at = at.to_owned();
            seen_from_here(&mut at, chief.parse().unwrap());
            at
        };
        assert_eq!(seen("127.0.0.1:7", "192.0.2.1"), "192.0.2.1:7");
        assert_eq!(seen("127.0.1.1:7", "::ffff:192.0.2.1"), "192.0.2.1:7");
        assert_eq!(seen("[::1]:7", "2001:db8::1"), "[2001:db8::1]:7");
        assert_eq!(seen("127.0.0.1:7", "127.0.0.1"), "127.0.0.1:7");
        assert_eq!(seen("192.0.2.2:7", "192.0.2.1"), "192.0.2.2:7");
        assert_eq!(seen("", "192.0.2.1"), "");
    }

    #[test]
    fn lists_of_workers_are_checked() {
        let job = Job::new(2, 5, "a:1");
        let read = |run: &str, addresses: &str, members: &str| {
            let pairs = [("tfc-job", run), ("tfc-roster", addresses), ("tfc-members", members)];
            let headers = pairs.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
            roster(&headers, &job)
        };
        let (run, addresses, members) = read("7", ",b:1,c:1", "0,2,4").unwrap();
        assert_eq!((run, addresses.len(), members), (7, 3, vec![0, 2, 4]));
        for (run, addresses, members) in [
            ("", ",b:1", "0,2"),
            ("-1", ",b:1", "0,2"),
            ("7", ",b:1,c:1", "0,2"),
            ("7", ",b:1", "2,4"),
            ("7", ",b:1", "0,3"),
            ("7", ",b:1,c:1", "0,2,5"),
            ("7", ",b:1,c:1", "0,3,2"),
            ("7", ",b:1,c:1", "0,2,2"),
            ("7", ",b:1", "0,x"),
            ("7", "", ""),
        ] {
            assert_eq!(read(run, addresses, members), None, "{run} {addresses} {members}");
        }
    }
}
