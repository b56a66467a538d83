//! Groups of processes: one suite for every transport, and what happens when a peer
//! is missing, wrong or malicious.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tfc_abi::{DType, ErrorCode};
use tfc_runtime::net::collective::Reduce;
use tfc_runtime::net::job::{Job, OnLoss};
use tfc_runtime::net::{Group, Regrouped, local, tls};

#[path = "net/losses.rs"]
mod losses;
#[path = "net/mpi.rs"]
mod mpi;
#[path = "net/over_mpi.rs"]
mod over_mpi;
#[path = "../../compiler/tests/support/ports.rs"]
mod ports;

const SOON: Duration = Duration::from_secs(20);
const BRIEF: Duration = Duration::from_secs(1);
/// What is waited for in vain; what comes in time comes by then, whatever else the machine
/// does.
const IN_VAIN: Duration = Duration::from_secs(5);

fn free_address() -> String {
    ports::free_address().to_string()
}

fn job(rank: usize, size: usize, at: &str) -> Job {
    let mut job = Job::new(rank, size, at);
    job.join_timeout = SOON;
    job.timeout = SOON;
    job
}

type Ranks = Vec<Group>;
type Make = fn(usize, Duration) -> Ranks;

/// The ways to make a group of `size` that waits as long as said.
fn transports() -> Vec<(&'static str, Make)> {
    fn threads(size: usize, wait: Duration) -> Ranks {
        local::groups(size, wait)
    }
    fn grpc(size: usize, wait: Duration) -> Ranks {
        let at = free_address();
        let joining: Vec<_> = (0..size)
            .map(|rank| {
                let mut job = job(rank, size, &at);
                job.timeout = wait;
                thread::spawn(move || Group::join(&job, &[7; 32]).unwrap())
            })
            .collect();
        joining.into_iter().map(|j| j.join().unwrap()).collect()
    }
    fn encrypted(size: usize, wait: Duration) -> Ranks {
        let at = free_address();
        let joining: Vec<_> = (0..size)
            .map(|rank| {
                let mut job = job(rank, size, &at);
                job.timeout = wait;
                job.tls = certificates().map(|c| c.files("member"));
                thread::spawn(move || Group::join(&job, &[7; 32]).unwrap())
            })
            .collect();
        joining.into_iter().map(|j| j.join().unwrap()).collect()
    }
    let mut all: Vec<(&'static str, Make)> = vec![("threads", threads), ("gRPC", grpc)];
    if certificates().is_some() {
        all.push(("gRPC", encrypted));
    }
    all
}

/// Certificates of two authorities, made by the `openssl` command.
struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    fn files(&self, name: &str) -> tls::Files {
        let file = |name: String| self.dir.path().join(name);
        let authority = if name == "stranger" { "other" } else { "ca" };
        tls::Files {
            cert: file(format!("{name}.pem")),
            key: file(format!("{name}.key")),
            ca: file(format!("{authority}.pem")),
        }
    }

    fn make() -> Option<Certificates> {
        let made = Certificates { dir: tempfile::tempdir().unwrap() };
        let run = |line: &str| {
            let mut command = std::process::Command::new("openssl");
            command.args(line.split_whitespace()).current_dir(made.dir.path());
            command.stdin(std::process::Stdio::null()).output().is_ok_and(|o| o.status.success())
        };
        let authority = |name: &str| {
            run(&format!(
                "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -keyout {name}.key -out {name}.pem"
            ))
        };
        let member = |name: &str, authority: &str, valid: &str| {
            run(&format!(
                "req -newkey rsa:2048 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
            )) && run(&format!(
                "x509 -req -in {name}.csr -CA {authority}.pem -CAkey {authority}.key -CAcreateserial {valid} -out {name}.pem"
            ))
        };
        let all = authority("ca")
            && authority("other")
            && member("member", "ca", "-days 2")
            && member("stranger", "other", "-days 2")
            // Its last day was before its first.
            && (member("late", "ca", "-days -1")
                || member("late", "ca", "-not_before 20200101000000Z -not_after 20200102000000Z"));
        if !all {
            eprintln!("skipped: there is no `openssl` command to make certificates with");
        }
        all.then_some(made)
    }
}

fn certificates() -> Option<&'static Certificates> {
    static MADE: std::sync::OnceLock<Option<Certificates>> = std::sync::OnceLock::new();
    MADE.get_or_init(Certificates::make).as_ref()
}

#[test]
fn messages_arrive_in_order_and_nobody_waits_to_send() {
    for (name, make) in transports() {
        let groups = make(3, SOON);
        everywhere(&groups, |g| {
            let others = || (0..3).filter(|r| *r != g.rank());
            // All send before anybody receives: more than sockets hold.
            for round in 0..4u8 {
                for to in others() {
                    let data = vec![round * 16 + g.rank() as u8; 3_000_000];
                    g.send(to, &data, "a tensor", "").unwrap();
                    g.send(to, &[], "a signal", "").unwrap();
                }
            }
            for round in 0..4u8 {
                for from in others() {
                    let mut data = vec![0; 3_000_000];
                    g.recv(from, &mut data, "a tensor", "").unwrap();
                    let want = round * 16 + from as u8;
                    assert!(data.iter().all(|b| *b == want), "{name}");
                    g.recv(from, &mut [], "a signal", "").unwrap();
                }
            }
            g.flush("the end").unwrap();
        });
    }
}

#[test]
fn a_message_that_never_comes_names_its_peer_its_tensor_and_its_line() {
    for (_, make) in transports() {
        let groups = make(2, Duration::from_millis(80));
        let e = groups[0].recv(1, &mut [0; 8], "`h`, from /job:a/task:1", "m.graph:3:5");
        let e = e.unwrap_err();
        assert_eq!(e.code(), ErrorCode::PEER_LATE);
        let text = e.to_string();
        for said in ["worker 1", "`h`, from /job:a/task:1", "m.graph:3:5"] {
            assert!(text.contains(said), "{text}");
        }
    }
}

#[test]
fn who_has_no_right_certificate_gets_nothing() {
    let Some(certificates) = certificates() else { return };
    let meet = |tls: Option<tls::Files>, within: Duration| {
        let at = free_address();
        let join = |rank, tls| {
            let job = Job { join_timeout: within, tls, ..job(rank, 2, &at) };
            thread::spawn(move || Group::join(&job, &[7; 32]))
        };
        let both = [join(0, Some(certificates.files("member"))), join(1, tls)];
        both.map(|r| r.join().unwrap().map(drop).map_err(|e| e.to_string()))
    };
    thread::scope(|s| {
        for (who, why) in [("stranger", "certificate"), ("late", "expired")] {
            s.spawn(move || {
                let [chief, other] = meet(Some(certificates.files(who)), IN_VAIN);
                let (chief, other) = (chief.unwrap_err(), other.unwrap_err());
                assert!(chief.contains("a process was turned away"), "{who}: {chief}");
                assert!(chief.contains(why) || who == "stranger", "{who}: {chief}");
                assert!(other.contains("E0708"), "{who}: {other}");
            });
        }
        s.spawn(|| {
            // In plain text.
            let [chief, other] = meet(None, IN_VAIN);
            assert!(chief.is_err() && other.is_err(), "{chief:?} {other:?}");
        });
        // And who belongs to the job.
        let [chief, other] = meet(Some(certificates.files("member")), SOON);
        assert!(chief.is_ok() && other.is_ok(), "{chief:?} {other:?}");
    });
    // A file that is not there, and a key of another certificate.
    let mut files = certificates.files("member");
    files.cert = "missing.pem".into();
    let mut alone = job(0, 2, &free_address());
    alone.tls = Some(files);
    let Err(e) = Group::join(&alone, &[7; 32]) else { panic!("without a certificate") };
    assert!(e.code() == ErrorCode::NOT_TRUSTED && e.to_string().contains("missing.pem"), "{e}");
    alone.tls =
        Some(tls::Files { key: certificates.files("late").key, ..certificates.files("member") });
    let Err(e) = Group::join(&alone, &[7; 32]) else { panic!("with another's key") };
    assert!(e.to_string().contains("late.key"), "{e}");
}

/// Runs `task` on every rank at once; what each gave, by rank.
fn everywhere<T: Send>(groups: &[Group], task: impl Fn(&Group) -> T + Sync) -> Vec<T> {
    thread::scope(|s| {
        let running: Vec<_> = groups.iter().map(|g| s.spawn(|| task(g))).collect();
        running.into_iter().map(|r| r.join().unwrap()).collect()
    })
}

fn value(rank: usize, i: usize) -> f32 {
    ((i * 7 + rank * 13) % 101) as f32 * 0.37 - 12.0
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect()
}

#[test]
fn sums_means_and_extremes_over_all_ranks() {
    for (name, make) in transports() {
        for size in [1, 2, 3, 5] {
            let groups = make(size, SOON);
            assert!(groups.iter().all(|g| g.engine() == name && g.size() == size));
            for len in [0, 1, 5, 4099, 300_001] {
                for op in [Reduce::Sum, Reduce::Mean, Reduce::Max, Reduce::Min] {
                    let got = everywhere(&groups, |g| {
                        let mut data: Vec<u8> =
                            (0..len).flat_map(|i| value(g.rank(), i).to_ne_bytes()).collect();
                        g.set_share(1, size);
                        g.all_reduce(&mut [(DType::F32, &mut data)], op, "x", "").unwrap();
                        data
                    });
                    assert!(got.iter().all(|d| *d == got[0]), "{name} {size} {len} {op:?}: bits");
                    for (i, v) in floats(&got[0]).into_iter().enumerate() {
                        let all = (0..size).map(|r| f64::from(value(r, i)));
                        let want = match op {
                            Reduce::Sum => all.sum(),
                            Reduce::Mean => all.sum::<f64>() / size as f64,
                            Reduce::Max => all.fold(f64::NEG_INFINITY, f64::max),
                            Reduce::Min => all.fold(f64::INFINITY, f64::min),
                        };
                        assert!(
                            (f64::from(v) - want).abs() < 1e-4,
                            "{name} {size} {i}: {v} {want}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn every_element_type_is_combined() {
    for (_, make) in transports() {
        let groups = make(3, SOON);
        let got = everywhere(&groups, |g| {
            let r = g.rank() as u8 + 1;
            let mut i8s = [r, 2 * r];
            let mut i32s: Vec<u8> =
                [i32::from(r), i32::MAX].iter().flat_map(|v| v.to_ne_bytes()).collect();
            let mut f64s: Vec<u8> = (f64::from(r) / 3.0).to_ne_bytes().to_vec();
            // 1.0, 2.0 and 3.0 as f16 and bf16.
            let mut halves = ([0x3c00u16, 0x4000, 0x4200][g.rank()]).to_ne_bytes();
            let mut brains = ([0x3f80u16, 0x4000, 0x4040][g.rank()]).to_ne_bytes();
            let mut parts: Vec<(DType, &mut [u8])> = vec![
                (DType::I8, &mut i8s),
                (DType::I32, &mut i32s),
                (DType::F64, &mut f64s),
                (DType::F16, &mut halves),
                (DType::BF16, &mut brains),
            ];
            g.all_reduce(&mut parts, Reduce::Sum, "x", "").unwrap();
            (i8s, i32s, f64s, u16::from_ne_bytes(halves), u16::from_ne_bytes(brains))
        });
        for (i8s, i32s, f64s, half, brain) in got {
            assert_eq!(i8s, [6, 12]);
            let wrapped = i32::MAX.wrapping_mul(3);
            assert_eq!(i32s, [6, wrapped].iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>());
            assert_eq!(f64::from_ne_bytes(f64s.try_into().unwrap()), 2.0);
            // 6.0
            assert_eq!((half, brain), (0x4600, 0x40c0));
        }
    }
}

#[test]
fn a_mean_is_weighted_by_examples() {
    for (_, make) in transports() {
        let groups = make(2, SOON);
        let got = everywhere(&groups, |g| {
            // The second has no examples: what it computed of none does not count.
            let mine = if g.rank() == 0 { 5f32 } else { f32::NAN };
            g.set_share(if g.rank() == 0 { 3 } else { 0 }, 3);
            let mut data = mine.to_ne_bytes();
            g.all_reduce(&mut [(DType::F32, &mut data)], Reduce::Mean, "x", "").unwrap();
            f32::from_ne_bytes(data)
        });
        assert_eq!(got, [5.0, 5.0]);
    }
}

#[test]
fn the_chief_tells_everybody() {
    for (_, make) in transports() {
        let groups = make(4, SOON);
        let got = everywhere(&groups, |g| {
            let mut data = vec![g.rank() as u8 + 1; 3_000_000];
            g.broadcast(&mut data, "the variables").unwrap();
            (data.iter().all(|b| *b == 1), g.agree(g.rank() as i64 * 10, "a number").unwrap())
        });
        assert_eq!(got, [(true, 30); 4]);
        assert_eq!(
            groups.iter().map(|g| g.part(10, 20)).collect::<Vec<_>>(),
            [(10, 12), (12, 15), (15, 17), (17, 20)]
        );
    }
}

#[test]
fn a_peer_that_is_gone_is_named() {
    for (name, make) in transports() {
        let mut groups = make(3, BRIEF);
        drop(groups.pop());
        let errors = everywhere(&groups, |g| {
            let mut data = vec![0; 400_000];
            let place = "m.graph:3:5";
            g.all_reduce(&mut [(DType::F32, &mut data)], Reduce::Sum, "the gradient of `w`", place)
                .unwrap_err()
        });
        // Rank 0 receives from the one that is gone; rank 1 sends to it.
        assert!(errors.iter().any(|e| e.code() == ErrorCode::PEER_LOST), "{name}: {errors:?}");
        for e in errors.iter().filter(|e| e.code() == ErrorCode::PEER_LOST) {
            let text = e.to_string();
            assert!(text.contains("the gradient of `w`") && text.contains("m.graph:3:5"), "{text}");
            assert_eq!(e.exit_code(), 4);
        }
        assert!(errors[0].to_string().contains("worker 2"), "{}", errors[0]);
    }
}

#[test]
fn a_peer_that_does_not_answer_is_late() {
    let groups = local::groups(2, Duration::from_millis(50));
    let mut data = [0; 8];
    let e = groups[0].all_reduce(&mut [(DType::F64, &mut data)], Reduce::Sum, "x", "").unwrap_err();
    assert_eq!(e.code(), ErrorCode::PEER_LATE);
    assert!(e.to_string().contains("worker 1"), "{e}");
    let at = free_address();
    let make = |rank| {
        let at = at.clone();
        move || {
            let mut job = job(rank, 2, &at);
            job.timeout = Duration::from_millis(50);
            Group::join(&job, &[0; 32]).unwrap()
        }
    };
    let other = thread::spawn(make(1));
    let mine = make(0)();
    let other = other.join().unwrap();
    let e = mine.all_reduce(&mut [(DType::F64, &mut data)], Reduce::Sum, "x", "").unwrap_err();
    assert_eq!(e.code(), ErrorCode::PEER_LATE, "{e}");
    drop(other);
}

#[test]
fn workers_that_never_come_are_listed() {
    let at = free_address();
    let mut job = Job::new(0, 3, &at);
    job.join_timeout = Duration::from_millis(100);
    let Err(e) = Group::join(&job, &[0; 32]) else { panic!("nobody else is there") };
    assert_eq!(e.code(), ErrorCode::PEER_LATE);
    assert!(e.to_string().contains("workers 1, 2 of 3 have not joined"), "{e}");
    let mut job = Job::new(1, 3, &at);
    job.join_timeout = Duration::from_millis(100);
    let Err(e) = Group::join(&job, &[0; 32]) else { panic!("nobody listens") };
    assert!(e.to_string().contains("worker 0 cannot be reached"), "{e}");
}

#[test]
fn other_programs_may_not_join_and_disturb_nobody() {
    let at = free_address();
    let start = |rank: usize, size: usize, graph: u8, token: &str| {
        let mut job = job(rank, size, &at);
        job.token = token.to_owned();
        thread::spawn(move || Group::join(&job, &[graph; 32]))
    };
    let chief = start(0, 2, 7, "secret");
    let fails = |r: thread::JoinHandle<tfc_runtime::Result<Group>>| match r.join().unwrap() {
        Ok(_) => panic!("it was let in"),
        Err(e) => {
            assert_eq!(e.code(), ErrorCode::JOIN_REFUSED);
            e.to_string()
        }
    };
    let text = fails(start(1, 2, 8, "secret"));
    assert!(text.contains(&"08".repeat(32)) && text.contains(&"07".repeat(32)), "{text}");
    assert!(fails(start(1, 2, 7, "guess")).contains("token"));
    assert!(fails(start(1, 3, 7, "secret")).contains("expects 3 workers"));
    assert!(fails(start(9, 2, 7, "secret")).contains("worker 9 is not one"));
    let good = start(1, 2, 7, "secret");
    let groups = [chief, good].map(|g| g.join().unwrap().unwrap());
    let got = everywhere(&groups, |g| g.agree(g.rank() as i64, "x").unwrap());
    assert_eq!(got, [1, 1]);
}

/// A small generator, so that failures repeat.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }
}

#[test]
fn noise_at_the_door_changes_nothing() {
    let at = free_address();
    let join = |rank: usize| {
        let job = Job { token: "secret".into(), ..job(rank, 2, &at) };
        thread::spawn(move || Group::join(&job, &[1; 32]).unwrap())
    };
    let chief = join(0);
    // Somebody without the token, so that nothing that is changed makes a call that is taken.
    let hello = captured_hello(Job { token: "guess".into(), ..Job::new(1, 2, "") }, [1; 32]);
    let mut random = Random(5);
    for round in 0..60 {
        let Ok(mut stream) = TcpStream::connect(&at) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let mut bytes = hello.clone();
        match round % 3 {
            0 => bytes.truncate(random.next() as usize % hello.len()),
            1 => {
                for _ in 0..1 + random.next() % 8 {
                    let i = random.next() as usize % bytes.len();
                    bytes[i] ^= 1 << (random.next() % 8);
                }
            }
            _ => bytes = (0..200).map(|_| random.next() as u8).collect(),
        }
        let _ = stream.write_all(&bytes);
    }
    let groups = [chief, join(1)].map(|g| g.join().unwrap());
    assert_eq!(everywhere(&groups, |g| g.agree(3, "x").unwrap()), [3, 3]);
}

/// What a worker says first.
fn captured_hello(mut job: Job, graph: [u8; 32]) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    job.coordinator = listener.local_addr().unwrap().to_string();
    job.join_timeout = SOON;
    let caller = thread::spawn(move || Group::join(&job, &graph).is_err());
    let mut stream = listener.accept().unwrap().0;
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut bytes = vec![0; 4096];
    let n = stream.read(&mut bytes).unwrap();
    bytes.truncate(n);
    drop((stream, listener));
    assert!(caller.join().unwrap());
    bytes
}

/// A call of somebody who joins a job and says what every caller says, and nothing else.
fn joined_by_hand(job: &Job, graph: [u8; 32]) -> TcpStream {
    const ACKNOWLEDGED: [u8; 9] = [0, 0, 0, 4, 1, 0, 0, 0, 0];
    let hello = captured_hello(job.clone(), graph);
    let began = Instant::now();
    let mut stream = loop {
        match TcpStream::connect(&job.coordinator) {
            Err(_) if began.elapsed() < SOON => thread::sleep(Duration::from_millis(5)),
            stream => break stream.unwrap(),
        }
    };
    stream.write_all(&hello).unwrap();
    // The chief's settings.
    stream.set_read_timeout(Some(SOON)).unwrap();
    assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
    stream.write_all(&ACKNOWLEDGED).unwrap();
    stream
}

/// Whoever waits for the others and ends is not there: its place is free again.
#[test]
fn who_dies_while_it_waits_can_come_again() {
    let at = free_address();
    let join = |rank| {
        let job = job(rank, 3, &at);
        thread::spawn(move || Group::join(&job, &[7; 32]).unwrap())
    };
    let chief = join(0);
    let dead = joined_by_hand(&job(1, 3, &at), [7; 32]);
    thread::sleep(Duration::from_millis(200));
    drop(dead);
    let last = join(2);
    thread::sleep(Duration::from_millis(200));
    let groups = [chief, join(1), last].map(|g| g.join().unwrap());
    losses::adds_up(&groups);
}

/// Nobody waits longer than the one time for all that has to be done.
#[test]
fn joining_and_linking_take_no_longer_than_said() {
    let at = free_address();
    let chief = {
        let mut job = Job { join_timeout: IN_VAIN, ..job(0, 2, &at) };
        job.timeout = BRIEF;
        thread::spawn(move || {
            let began = Instant::now();
            let Err(e) = Group::join(&job, &[7; 32]) else { panic!("there is no link") };
            (e, began.elapsed())
        })
    };
    thread::sleep(IN_VAIN * 4 / 5);
    // It makes no link.
    let silent = joined_by_hand(&job(1, 2, &at), [7; 32]);
    let (e, took) = chief.join().unwrap();
    assert_eq!(e.code(), ErrorCode::PEER_LATE, "{e}");
    assert!(took >= IN_VAIN && took < IN_VAIN * 8 / 5, "{took:?}");
    drop(silent);
}

/// A peer between two workers that changes what goes through it.
fn tampered(
    change: impl Fn(&mut Vec<u8>, &mut Random) + Send + Sync + 'static,
    seed: u64,
    timeout: Duration,
) -> Vec<String> {
    let at = free_address();
    let relay = TcpListener::bind("127.0.0.1:0").unwrap();
    let through = relay.local_addr().unwrap().to_string();
    let to = at.clone();
    let change = Arc::new(change);
    let (stop, stopped) = mpsc::channel::<()>();
    thread::spawn(move || {
        relay.set_nonblocking(true).unwrap();
        let mut count = 0;
        while let Err(mpsc::TryRecvError::Empty) = stopped.try_recv() {
            let Ok((client, _)) = relay.accept() else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            client.set_nonblocking(false).unwrap();
            // Worker 0 may not be listening yet.
            let began = Instant::now();
            let server = loop {
                match TcpStream::connect(&to) {
                    Err(_) if began.elapsed() < SOON => thread::sleep(Duration::from_millis(1)),
                    server => break server,
                }
            };
            let Ok(server) = server else { continue };
            count += 1;
            let (client2, server2) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || pipe(server2, client2, |_| {}));
            let change = change.clone();
            // The first connection joins; the second carries data.
            let mut random = Random(seed);
            let mut first = true;
            thread::spawn(move || {
                pipe(client, server, |bytes| {
                    if count == 2 && !std::mem::take(&mut first) {
                        change(bytes, &mut random);
                    }
                });
            });
        }
    });
    let join = |rank: usize, at: String| {
        thread::spawn(move || {
            let mut job = job(rank, 2, &at);
            job.timeout = timeout;
            let group = Group::join(&job, &[1; 32]).map_err(|e| e.to_string())?;
            let mut total = 0.0;
            for _ in 0..3 {
                let mut data: Vec<u8> = (0..20_000).flat_map(|_| 1f32.to_ne_bytes()).collect();
                group
                    .all_reduce(&mut [(DType::F32, &mut data)], Reduce::Sum, "x", "")
                    .map_err(|e| e.to_string())?;
                total += f64::from(floats(&data)[0]);
            }
            Ok(format!("{total}"))
        })
    };
    let both = [join(0, at), join(1, through)];
    let said = both.map(|b| b.join().expect("no panic").unwrap_or_else(|e: String| e));
    let _ = stop.send(());
    said.into()
}

fn pipe(mut from: TcpStream, mut to: TcpStream, mut each: impl FnMut(&mut Vec<u8>)) {
    let mut buf = vec![0; 64 << 10];
    loop {
        match from.read(&mut buf) {
            Ok(0) | Err(_) => {
                let _ = to.shutdown(std::net::Shutdown::Both);
                return;
            }
            Ok(n) => {
                let mut bytes = buf[..n].to_vec();
                each(&mut bytes);
                if to.write_all(&bytes).is_err() {
                    return;
                }
            }
        }
    }
}

#[test]
fn messages_that_were_changed_are_errors() {
    let untouched = tampered(|_, _| {}, 1, SOON);
    // What is not heard of is an error, and so is what comes late.
    let brief = Duration::from_millis(400);
    assert_eq!(untouched, ["6", "6"]);
    // Headers of frames and messages; the payload itself is TCP's to protect.
    for seed in 0..12 {
        let said = tampered(
            |bytes, random| {
                let i = random.next() as usize % bytes.len().min(30);
                bytes[i] ^= 1 << (random.next() % 8);
            },
            seed,
            brief,
        );
        for text in said {
            assert!(text == "6" || text.starts_with("error[E070"), "{text}");
        }
    }
    // Said twice.
    let said = tampered(|bytes, _| bytes.extend_from_within(..), 3, brief);
    assert!(said.iter().any(|t| t.starts_with("error[E070")), "{said:?}");
    // Cut short.
    let said = tampered(|bytes, _| bytes.truncate(bytes.len() / 2), 3, brief);
    assert!(said.iter().all(|t| t.starts_with("error[E070")), "{said:?}");
}

#[test]
fn joining_takes_no_longer_than_it_may() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap().to_string();
    let started = Instant::now();
    let mut job = Job::new(1, 2, &at);
    job.join_timeout = Duration::from_millis(200);
    let Err(e) = Group::join(&job, &[0; 32]) else { panic!("nobody answered") };
    assert_eq!(e.code(), ErrorCode::PEER_LATE, "{e}");
    assert!(started.elapsed() < SOON);
    drop(silent);
}

/// Connections that say a little now and then, more of them than are let in at a time, hold
/// nobody up for long, with certificates or without.
#[test]
fn who_says_little_by_little_is_let_go() {
    const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    // The head of a frame and that of a record of TLS; what they are of is long in coming.
    let plain = [PREFACE, &[0, 0xff, 0xff, 0x7f, 0, 0, 0, 0, 0]].concat();
    let record = vec![0x16, 3, 1, 0x3e, 0x80];
    let meet = |begin: &[u8], strangers: usize, tls: Option<tls::Files>| {
        let at = free_address();
        let join = |rank| {
            let job = Job { join_timeout: 3 * SOON, tls: tls.clone(), ..job(rank, 2, &at) };
            thread::spawn(move || Group::join(&job, &[7; 32]).unwrap())
        };
        let chief = join(0);
        let began = Instant::now();
        let mut strangers: Vec<TcpStream> = (0..strangers)
            .map(|_| {
                loop {
                    match TcpStream::connect(&at) {
                        Err(_) if began.elapsed() < SOON => thread::sleep(Duration::from_millis(5)),
                        stream => break stream.unwrap(),
                    }
                }
            })
            .collect();
        strangers.iter_mut().for_each(|s| s.write_all(begin).unwrap());
        let others = || strangers.iter().map(|s| s.try_clone().unwrap()).collect::<Vec<_>>();
        let mut talking = others();
        let (stop, stopped) = mpsc::channel::<()>();
        thread::scope(|s| {
            s.spawn(move || {
                let pause = Duration::from_millis(200);
                while stopped.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout) {
                    talking.retain_mut(|s| s.write_all(&[0]).is_ok());
                }
            });
            let groups = [chief, join(1)].map(|g| g.join().unwrap());
            losses::adds_up(&groups);
            // All of them are let go, the first one too.
            strangers[0].set_read_timeout(Some(2 * SOON)).unwrap();
            let let_go = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset;
            loop {
                match (&strangers[0]).read(&mut [0; 4096]) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(e) if let_go(&e) => break,
                    Err(e) => panic!("{e}"),
                }
            }
            drop(stop);
        });
    };
    thread::scope(|s| {
        s.spawn(|| meet(&plain, 260, None));
        if let Some(certificates) = certificates() {
            s.spawn(|| meet(&record, 1, Some(certificates.files("member"))));
        }
    });
}

/// A chief that listens by name is found by all ways that lead to its host.
#[test]
fn who_listens_by_name_listens_everywhere() {
    let port = free_address().rsplit_once(':').unwrap().1.to_owned();
    let join = |rank, host: &str| {
        let job = Job { plain: true, ..job(rank, 3, &format!("{host}:{port}")) };
        thread::spawn(move || Group::join(&job, &[7; 32]).unwrap())
    };
    let six = TcpListener::bind("[::1]:0").is_ok();
    let hosts = ["gpu007.invalid", "127.0.0.1", if six { "[::1]" } else { "127.0.0.2" }];
    let joining = [0, 1, 2].map(|rank| join(rank, hosts[rank]));
    losses::adds_up(&joining.map(|g| g.join().unwrap()));
}
