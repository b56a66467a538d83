//! The chief's side: who is let in, and who the group is.

use super::{JOIN, LINK, LOOK, Muster, ROUNDS, State, Waiting, described, forming, place};
use super::{unreachable, worker, workers};
use crate::error::Result;
use crate::net::Stop;
use crate::net::call::Call;
use crate::net::door::Door;
use crate::net::hpack;
use crate::net::job::OnLoss;
use crate::net::line::{Cause, Kind, Word};
use crate::net::link::Link;
use crate::net::mesh::Formed;
use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Instant;

impl Muster {
    /// Opens the door, for as long as there is a job.
    pub(super) fn receive(self: &Arc<Self>) -> Result<()> {
        let listener = self.job.listener()?;
        let door = Door::open(&listener, self.tls.clone(), None);
        let door = door.map_err(|e| unreachable(0, "", &e))?;
        let muster = self.clone();
        let receive = move || {
            while !muster.state().closed {
                if let Some(call) = door.within(LOOK) {
                    muster.take(call);
                }
                if let Some(why) = door.turned_away() {
                    *muster.turned_away.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
                }
            }
        };
        std::thread::Builder::new()
            .name("tfc-muster".into())
            .spawn(receive)
            .map_err(|e| unreachable(0, "", &e))?;
        Ok(())
    }

    fn take(&self, call: Call) {
        let mut state = self.state();
        if let Some((why, call)) = self.judge(&mut state, call) {
            state.refused += 1;
            drop(state);
            call.refuse(&why);
            return;
        }
        // A group that could be larger is formed again.
        let new = state.joining.keys().find(|r| !state.members.contains(r)).copied();
        let run = state.run;
        let whole = state.formed.is_some() && state.cause.is_none();
        self.changed.notify_all();
        drop(state);
        if let Some(peer) = new.filter(|_| whole) {
            let why = format!("worker {peer} is back");
            self.break_up(run, Cause { peer, kind: Kind::Back, why });
        }
    }

    /// Takes a call, or gives it back with the reason why not.
    fn judge(&self, state: &mut State, mut call: Call) -> Option<(String, Call)> {
        let text = |name: &str| hpack::get(&call.headers, name).unwrap_or("").to_owned();
        let job = &self.job;
        if text(":path") == LINK {
            return match text("tfc-job") == state.run.to_string() && state.formed.is_none() {
                true => {
                    call.busy = None;
                    state.linking.push(call);
                    None
                }
                false => Some(("this is not a worker the job waits for".into(), call)),
            };
        }
        let rank = text("tfc-rank").parse::<usize>().ok().filter(|r| (1..job.size).contains(r));
        let address = call.remote().ok().zip(text("tfc-port").parse::<u16>().ok());
        let why = if text(":path") != JOIN {
            "there is no such method".to_owned()
        } else if text("tfc-token") != job.token {
            "the job's token is another one".to_owned()
        } else if text("tfc-graph") != self.graph {
            format!(
                "it runs another program: graph {}, the job's is {}",
                text("tfc-graph"),
                self.graph
            )
        } else if text("tfc-size").parse() != Ok(job.size) {
            format!("it expects {} workers, the job has {}", text("tfc-size"), job.size)
        } else if text("tfc-on-loss") != job.on_loss.name() {
            let (theirs, ours) = (text("tfc-on-loss"), job.on_loss.name());
            format!("its `--on-loss` is `{theirs}`, the job's is `{ours}`")
        } else if state.over {
            // What is left of a run that has ended may end, too.
            call.dismiss(&state.over());
            return None;
        } else if let (Some(rank), Some((at, port))) = (rank, address) {
            let again = text("tfc-again");
            let stale = state.run > 0 && !again.is_empty() && again != state.run.to_string();
            let taken = state.joining.get(&rank).is_some_and(|w| !w.call.is_gone());
            let member = state.members.contains(&rank) && state.cause.is_none();
            let shunned = state.blamed.get(&rank).is_some_and(|n| *n > 1);
            if shunned && job.on_loss == OnLoss::Shrink {
                format!("the others cannot reach worker {rank}")
            } else if taken || stale && member {
                format!("worker {rank} is not one the job waits for")
            } else {
                let address = SocketAddr::new(at.ip().to_canonical(), port).to_string();
                // However many there are, they are no strangers.
                call.busy = None;
                state.joining.insert(rank, Waiting { call, address });
                return None;
            }
        } else {
            format!("worker {} is not one the job waits for", text("tfc-rank"))
        };
        Some((why, call))
    }

    /// Forms the group, for the first time or again; none if this process is to stop.
    pub(super) fn call_together(
        self: &Arc<Self>,
        first: bool,
        stop: Stop<'_>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Option<Arc<Formed>>> {
        let mut first = first;
        let mut rounds = 0;
        // However often it breaks meanwhile.
        let deadline = Instant::now() + self.job.join_timeout;
        loop {
            let Some(joined) = self.gather(first, deadline, stop, say)? else { return Ok(None) };
            first = false;
            rounds += 1;
            match self.form(joined, deadline) {
                Ok(formed) => return Ok(Some(formed)),
                Err(e) if !self.is_elastic() || rounds == ROUNDS => return Err(e),
                Err(_) => {}
            }
        }
    }

    /// Waits for those who are to be in the group, where all are needed until the deadline.
    /// None if somebody was asked to stop.
    fn gather(
        &self,
        first: bool,
        deadline: Instant,
        stop: Stop<'_>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Option<BTreeMap<usize, Waiting>>> {
        let began = Instant::now();
        let all_needed = first || self.job.on_loss == OnLoss::Wait;
        let mut told: Vec<usize> = vec![];
        let mut state = self.state();
        loop {
            state.stopping |= stop();
            if state.stopping {
                return Ok(None);
            }
            state.joining.retain(|_, w| !w.call.is_gone());
            let now = Instant::now();
            let (mut missing, mut away, mut until) = (vec![], vec![], None);
            for r in (1..self.job.size).filter(|r| !state.joining.contains_key(r)) {
                let line = state.lines.get(&r).filter(|l| !l.is_gone() && !l.has_left());
                // As long as it may still be at its step, or has not had time to answer.
                let patience = match line {
                    Some(line) if line.is_here() => began + self.job.timeout,
                    Some(_) => began + self.answer(),
                    None => began,
                };
                let patient = !first && state.members.contains(&r) && now < patience;
                if !patient {
                    away.push(r);
                    // It holds its place for nobody.
                    line.inspect(|l| {
                        l.close();
                        crate::net::accuse(r);
                    });
                }
                let needed = all_needed && now < deadline;
                if patient || all_needed {
                    missing.push(r);
                    let mine = if needed { patience.max(deadline) } else { patience };
                    until = until.max(Some(mine));
                }
            }
            if missing.is_empty() {
                let joined = std::mem::take(&mut state.joining);
                return Ok(Some(joined));
            }
            if until.is_none_or(|u| now >= u) {
                drop(state);
                return Err(self.absent(&missing, first));
            }
            if !first && all_needed && away != told {
                let text = format!(
                    "waiting for {} to come back, for {} s at most",
                    workers(&away),
                    deadline.saturating_duration_since(now).as_secs_f64().ceil()
                );
                told = away;
                if !told.is_empty() {
                    drop(state);
                    say(&text);
                    state = self.state();
                    continue;
                }
            }
            state = self.wait(state, LOOK);
        }
    }

    /// Tells those who have called who the group is, and makes the chief's links.
    fn form(
        self: &Arc<Self>,
        joined: BTreeMap<usize, Waiting>,
        deadline: Instant,
    ) -> Result<Arc<Formed>> {
        let run = RandomState::new().hash_one(std::process::id()) >> 1;
        let members: Vec<usize> = std::iter::once(0).chain(joined.keys().copied()).collect();
        {
            let mut state = self.state();
            (state.run, state.formed, state.cause) = (run, None, None);
            state.members = members.clone();
            state.linking.clear();
        }
        let addresses: Vec<&str> =
            std::iter::once("").chain(joined.values().map(|w| w.address.as_str())).collect();
        let names: Vec<String> = members.iter().map(usize::to_string).collect();
        let (list, names, number) = (addresses.join(","), names.join(","), run.to_string());
        let head = [("tfc-roster", &list[..]), ("tfc-members", &names), ("tfc-job", &number)];
        // Calls that nothing more is said on stay open until everybody has called again: one
        // that is closed at once may take its answer with it, if that is lost on its way.
        let mut answered = vec![];
        let mut failed = None;
        for (peer, Waiting { mut call, .. }) in joined {
            let made = call.answer(&head).and_then(|()| call.into_link(peer, run));
            match made {
                Ok(link) if !self.is_elastic() => answered.push(link),
                Ok(link) => match self.attach(peer, run, link) {
                    Ok(line) => {
                        let before = self.state().lines.insert(peer, line);
                        before.inspect(|l| l.close());
                    }
                    Err(e) => failed = Some(unreachable(peer, "", &e)),
                },
                Err(e) => failed = Some(unreachable(peer, "", &e)),
            }
        }
        // Who was answered after somebody else was lost has not heard of it.
        let (broken, lines) = {
            let state = self.state();
            (state.cause.clone(), state.lines.values().cloned().collect::<Vec<_>>())
        };
        if let Some((cause, _)) = broken {
            lines.iter().for_each(|l| l.say(&Word::Broken(cause.clone())));
        }
        let until = self.linked_by(deadline);
        let linked = match failed {
            Some(e) => Err(e),
            None => self.take_links(run, &members, until),
        };
        drop(answered);
        let links = linked.inspect_err(|e| {
            let why = e.message().to_owned();
            self.break_up(run, Cause { peer: worker(e).unwrap_or(0), kind: Kind::Lost, why });
        })?;
        self.settle(run, 0, members, links)
    }

    /// The calls of those who make a link to the chief.
    fn take_links(&self, run: u64, members: &[usize], until: Instant) -> Result<Vec<Option<Link>>> {
        let mut links: Vec<Option<Link>> = members.iter().map(|_| None).collect();
        let mut state = self.state();
        loop {
            for call in std::mem::take(&mut state.linking) {
                place(call, run, members, &mut links)?;
            }
            let missing: Vec<usize> =
                (1..members.len()).filter(|r| links[*r].is_none()).map(|r| members[r]).collect();
            if missing.is_empty() {
                return Ok(links);
            }
            if let Some((cause, _)) = &state.cause {
                return Err(described(cause, &forming()));
            }
            if Instant::now() >= until {
                drop(state);
                return Err(self.absent(&missing, true));
            }
            state = self.wait(state, LOOK);
        }
    }
}
