//! More than may be on its way at once: windows that close and open again, sockets that are
//! full, and data that nobody has asked for.

use super::Moment;
use super::h2::{self, Allowed, Head, flag, kind};
use super::hpack::Decoder;
use super::link::{Link, Progress, Receiving, Room, Sending};
use super::mesh::Formed;
use super::tls::{Pace, Pipe, Wire};
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const JOB: u64 = 77;
pub(super) const SOON: Duration = Duration::from_secs(20);
/// As much as may be on its way at first.
pub(super) const WINDOW: usize = h2::WINDOW_AT_FIRST as usize;
const SMALL: Room = Room { consumed: WINDOW / 4, early: WINDOW / 2 };

pub(super) fn moment(sequence: u64) -> Moment<'static> {
    Moment { sequence, deadline: Instant::now() + SOON, what: "x", place: "" }
}

pub(super) fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8).collect()
}

/// Two ends of a connection, each as the process there has it.
pub(super) fn pair(here: usize, there: usize) -> [Link; 2] {
    let door = TcpListener::bind("127.0.0.1:0").unwrap();
    let one = TcpStream::connect(door.local_addr().unwrap()).unwrap();
    let other = door.accept().unwrap().0;
    [(there, one), (here, other)].map(|(peer, stream)| {
        stream.set_nonblocking(true).unwrap();
        let (allowed, decoder) = Default::default();
        Link::new(peer, JOB, Wire::Plain(stream), allowed, decoder).with_room(SMALL)
    })
}

fn group(size: usize) -> Vec<Formed> {
    let mut links: BTreeMap<(usize, usize), Link> = BTreeMap::new();
    for a in 0..size {
        for b in a + 1..size {
            links.extend([(a, b), (b, a)].into_iter().zip(pair(a, b)));
        }
    }
    let formed = |rank| {
        let own = (0..size).map(|peer| links.remove(&(rank, peer))).collect();
        Formed::new(JOB, rank, (0..size).collect(), own)
    };
    (0..size).map(formed).collect()
}

/// The middle of a pipeline hears that the next process takes more while it waits for the one
/// before it.
#[test]
fn who_waits_for_one_peer_is_still_heard_by_another() {
    const LETTERS: u64 = 12;
    let group = group(3);
    let letter = data(4 * WINDOW);
    std::thread::scope(|s| {
        let middle = s.spawn(|| {
            for n in 0..LETTERS {
                group[1].post(2, letter.clone(), &moment(n)).unwrap();
            }
            let mut word = [0; 4];
            group[1].exchange(None, Some((0, &mut word)), &moment(0)).unwrap();
            word
        });
        for n in 0..LETTERS {
            let mut into = vec![0; letter.len()];
            group[2].exchange(None, Some((1, &mut into)), &moment(n)).unwrap();
            assert!(into == letter);
        }
        group[0].exchange(Some((1, b"done")), None, &moment(0)).unwrap();
        assert_eq!(middle.join().unwrap(), *b"done");
    });
}

/// Two processes send each other more than either may before one of them receives, and a
/// third is in the circle.
#[test]
fn large_tensors_go_round() {
    for size in [2, 3] {
        let group = group(size);
        std::thread::scope(|s| {
            for (rank, formed) in group.iter().enumerate() {
                s.spawn(move || {
                    let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
                    for n in 0..4 {
                        let mine = vec![rank as u8 + 1; 5 * WINDOW];
                        let mut theirs = vec![0; 5 * WINDOW];
                        let into = Some((before, &mut theirs[..]));
                        formed.exchange(Some((next, &mine)), into, &moment(n)).unwrap();
                        assert!(theirs.iter().all(|b| *b == before as u8 + 1));
                    }
                });
            }
        });
    }
}

/// A process that ends does not stay for who takes nothing.
#[test]
fn letters_that_nobody_takes_hold_up_no_end() {
    let mut group = group(2);
    let formed = group.remove(0);
    let long = Moment { deadline: Instant::now() + 100 * SOON, ..moment(0) };
    formed.post(1, data(4 * WINDOW), &long).unwrap();
    let (give, take) = channel();
    std::thread::spawn(move || {
        drop(formed);
        give.send(()).unwrap();
    });
    take.recv_timeout(SOON).unwrap();
}

/// What comes before anybody asks for it is kept up to a point, and the rest waits.
#[test]
fn what_nobody_has_asked_for_waits() {
    let [one, other] = pair(0, 1);
    let sent = data(6 * WINDOW);
    let mut sending = Sending::new(&sent, 1);
    let began = Instant::now();
    while other.pull(None, &moment(1)).unwrap() != Progress::Full {
        one.push(&mut sending, &moment(1)).unwrap();
        assert!(began.elapsed() < SOON);
    }
    assert_eq!(other.pull(None, &moment(1)).unwrap(), Progress::Full);
    let mut into = vec![0; sent.len()];
    let mut receiving = Receiving::new(&mut into, 1);
    loop {
        let progress = other.pull(Some(&mut receiving), &moment(1)).unwrap();
        if progress == Progress::Done {
            break;
        }
        other.push_control(&moment(1)).unwrap();
        one.pull(None, &moment(1)).unwrap();
        one.push(&mut sending, &moment(1)).unwrap();
        assert!(began.elapsed() < SOON);
    }
    assert!(into == sent);
}

/// Small messages that were kept are given out one by one.
#[test]
fn what_was_kept_is_given_out_in_order() {
    let [one, other] = pair(0, 1);
    for n in 0..100u64 {
        let data = [n as u8; 20];
        let mut sending = Sending::new(&data, n);
        assert_eq!(one.push(&mut sending, &moment(n)).unwrap(), Progress::Done);
    }
    let mut last = [0; 20];
    for n in 0..100 {
        // Some of them are kept while others have been asked for.
        other.pull(None, &moment(n)).unwrap();
        let mut receiving = Receiving::new(&mut last, n);
        let began = Instant::now();
        while other.pull(Some(&mut receiving), &moment(n)).unwrap() != Progress::Done {
            assert!(began.elapsed() < SOON);
        }
        assert_eq!(last, [n as u8; 20]);
    }
}

/// The frames of what was written: messages, and answers to pings.
fn frames(mut bytes: &[u8]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut messages, mut answers) = (vec![], vec![]);
    while let Some((head, rest)) = bytes.split_first_chunk() {
        let head = Head::read(head);
        let (payload, rest) = rest.split_at(head.len);
        match head.kind {
            kind::DATA => {
                messages.extend_from_slice(&head.bytes());
                messages.extend_from_slice(payload);
            }
            kind::PING if head.flags == flag::ACK => answers.push(payload.to_vec()),
            _ => panic!("{head:?}"),
        }
        bytes = rest;
    }
    assert_eq!(bytes, [], "a frame is cut short");
    (messages, answers)
}

/// However little a connection takes at a time, nothing comes between the bytes of a frame,
/// and what an encrypted one has been given is given to it again.
#[test]
fn frames_stay_whole_where_every_write_blocks() {
    const PINGS: u8 = 20;
    for (every, pace) in [1, 3, 8].into_iter().flat_map(|every| {
        [Pace::Bytes(false), Pace::Bytes(true), Pace::Encrypted(None)].map(|pace| (every, pace))
    }) {
        let wire = Wire::memory(Pipe { pace, ..Pipe::default() });
        let link = Link::new(1, JOB, wire, Allowed::default(), Decoder::default());
        let sent = data(60);
        let (mut step, mut pings) = (0, 0..PINGS);
        // Pings come in at any time, and whoever receives answers them.
        let mut meanwhile = || {
            step += 1;
            if step % every == 0
                && let Some(n) = pings.next()
            {
                link.stream.say(&h2::frame(kind::PING, 0, 0, &[n; 8]));
            }
            link.pull(None, &moment(0)).unwrap();
            link.push_control(&moment(0)).unwrap();
        };
        for n in 0..3 {
            let mut sending = Sending::new(&sent, n);
            while link.push(&mut sending, &moment(n)).unwrap() != Progress::Done {
                meanwhile();
            }
        }
        (0..900).for_each(|_| meanwhile());
        let (messages, answers) = frames(&link.stream.written());
        assert_eq!(answers, (0..PINGS).map(|n| vec![n; 8]).collect::<Vec<_>>());
        let input = messages.into_iter().collect();
        let wire = Wire::memory(Pipe { input, ..Pipe::default() });
        let link = Link::new(0, JOB, wire, Allowed::default(), Decoder::default());
        for n in 0..3 {
            let mut into = vec![0; sent.len()];
            let mut receiving = Receiving::new(&mut into, n);
            assert_eq!(link.pull(Some(&mut receiving), &moment(n)).unwrap(), Progress::Done);
            assert_eq!(into, sent);
        }
    }
}
