//! Groups that lose members and go on, over connections of their own.

use super::*;

/// Member `rank` of a job that goes on after a loss.
fn member(rank: usize, size: usize, at: &str, on_loss: OnLoss, encrypted: bool) -> Job {
    let tls = certificates().filter(|_| encrypted).map(|c| c.files("member"));
    Job { on_loss, tls, ..job(rank, size, at) }
}

/// Such a group, on threads.
fn elastic(size: usize, on_loss: OnLoss, at: &str, change: impl Fn(&mut Job)) -> Vec<Group> {
    let joining: Vec<_> = (0..size)
        .map(|rank| {
            let mut job = member(rank, size, at, on_loss, false);
            change(&mut job);
            thread::spawn(move || Group::join(&job, &[7; 32]).unwrap())
        })
        .collect();
    joining.into_iter().map(|j| j.join().unwrap()).collect()
}

/// Exchanges until somebody is lost, or comes; what became of the group.
fn until_it_breaks(group: &Group) -> Regrouped {
    let began = Instant::now();
    loop {
        match group.total(1, "workers") {
            Ok(n) => assert_eq!(n, group.size() as u64),
            Err(e) => {
                assert!(group.outlives(&e), "{e}");
                assert!(e.to_string().contains("worker "), "{e}");
                return group.regroup(&mut |_| {}).unwrap();
            }
        }
        assert!(began.elapsed() < SOON, "nobody was lost");
    }
}

/// The group adds up, small and large tensors, and all have the chief's.
pub fn adds_up(groups: &[Group]) {
    everywhere(groups, |g| {
        assert_eq!(g.size(), groups.len());
        assert_eq!(g.total(1, "workers").unwrap(), groups.len() as u64);
        let mut large = vec![1u8; 3 << 20];
        large.chunks_exact_mut(4).for_each(|b| b.copy_from_slice(&1f32.to_ne_bytes()));
        g.all_reduce(&mut [(DType::F32, &mut large)], Reduce::Sum, "x", "").unwrap();
        let sum = (groups.len() as f32).to_ne_bytes();
        assert!(large.chunks_exact(4).all(|b| b == sum));
        let mut told = [g.rank() as u8 + 7];
        g.broadcast(&mut told, "a number").unwrap();
        assert_eq!(told, [7]);
    });
}

/// All that are left regroup, on threads of their own.
fn regrouped(groups: &[Group]) -> Vec<Regrouped> {
    thread::scope(|s| {
        let each: Vec<_> = groups.iter().map(|g| s.spawn(|| until_it_breaks(g))).collect();
        each.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn lost(numbers: &[usize]) -> Regrouped {
    Regrouped { lost: numbers.to_vec(), ..Regrouped::default() }
}

#[test]
fn those_that_are_left_go_on_one_after_the_other() {
    for encrypted in [false, certificates().is_some()] {
        let at = free_address();
        let mut groups = elastic(4, OnLoss::Shrink, &at, |job| {
            job.tls = certificates().filter(|_| encrypted).map(|c| c.files("member"));
        });
        adds_up(&groups);
        for (at, number) in [(2, 2), (1, 1), (1, 3)] {
            drop(groups.remove(at));
            assert!(regrouped(&groups).iter().all(|r| *r == lost(&[number])));
            assert!(groups.iter().enumerate().all(|(rank, g)| g.rank() == rank));
            adds_up(&groups);
        }
        // The chief alone is a group, too.
        let counters = groups[0].counters();
        assert_eq!((counters.lost, counters.regrouped), (3, 3));
    }
}

#[test]
fn two_at_a_time_and_one_while_the_group_is_formed() {
    let mut groups = elastic(5, OnLoss::Shrink, &free_address(), |_| {});
    // Two at once.
    drop(groups.split_off(3));
    assert_eq!(groups.len(), 3);
    let all = regrouped(&groups);
    // The second may have been lost while the first one was being left out.
    let of = |r: &[Regrouped]| r[0].lost.clone();
    if of(&all) != [3, 4] {
        regrouped(&groups);
    }
    adds_up(&groups);
    // One is lost, and another one when it hears of it.
    let third = groups.remove(2);
    let second = groups.remove(1);
    let dies = thread::spawn(move || {
        let e = loop {
            if let Err(e) = second.total(1, "workers") {
                break e;
            }
        };
        assert!(second.outlives(&e));
    });
    drop(third);
    while groups[0].size() > 1 {
        until_it_breaks(&groups[0]);
    }
    dies.join().unwrap();
    adds_up(&groups);
}

#[test]
fn who_comes_back_is_taken_in_again() {
    let at = free_address();
    let mut groups = elastic(3, OnLoss::Shrink, &at, |_| {});
    drop(groups.remove(1));
    assert!(regrouped(&groups).iter().all(|r| *r == lost(&[1])));
    let job = member(1, 3, &at, OnLoss::Shrink, false);
    let joining = thread::spawn(move || Group::join(&job, &[7; 32]).unwrap());
    let back = Regrouped { back: vec![1], ..Regrouped::default() };
    assert!(regrouped(&groups).iter().all(|r| *r == back));
    groups.insert(1, joining.join().unwrap());
    assert_eq!(groups.iter().map(Group::rank).collect::<Vec<_>>(), [0, 1, 2]);
    adds_up(&groups);
    // One that is left alone hears of it, too.
    drop(groups.split_off(1));
    while groups[0].size() > 1 {
        until_it_breaks(&groups[0]);
    }
    let job = member(2, 3, &at, OnLoss::Shrink, false);
    let joining = thread::spawn(move || Group::join(&job, &[7; 32]).unwrap());
    assert_eq!(until_it_breaks(&groups[0]).back, [2]);
    groups.push(joining.join().unwrap());
    adds_up(&groups);
}

/// It does not answer for longer than it may, is left out, and wakes up.
#[test]
fn who_hangs_is_left_out() {
    // The others have as long to answer as it has, whatever else the machine does.
    let patience = 2 * IN_VAIN;
    let mut groups = elastic(3, OnLoss::Shrink, &free_address(), |job| {
        (job.timeout, job.answer) = (patience, patience);
    });
    let hangs = groups.remove(1);
    let all = regrouped(&groups);
    assert!(all.iter().all(|r| *r == lost(&[1])), "{all:?}");
    adds_up(&groups);
    let wakes = thread::spawn(move || {
        let e = hangs.total(1, "workers").unwrap_err();
        assert!(hangs.outlives(&e), "{e}");
        hangs.regroup(&mut |_| {}).unwrap();
        hangs
    });
    assert!(regrouped(&groups).iter().all(|r| r.back == [1]));
    groups.insert(1, wakes.join().unwrap());
    adds_up(&groups);
}

#[test]
fn a_group_that_waits_is_whole_again() {
    for encrypted in [false, certificates().is_some()] {
        let at = free_address();
        let mut groups = elastic(3, OnLoss::Wait, &at, |job| {
            job.tls = certificates().filter(|_| encrypted).map(|c| c.files("member"));
        });
        // Worker 2, worker 1, the chief, and worker 2 once more.
        for number in [2, 1, 0, 2] {
            drop(groups.remove(number));
            let job = member(number, 3, &at, OnLoss::Wait, encrypted);
            let joining = thread::spawn(move || {
                thread::sleep(Duration::from_millis(100));
                Group::join(&job, &[7; 32]).unwrap()
            });
            assert!(regrouped(&groups).iter().all(|r| *r == Regrouped::default()));
            groups.insert(number, joining.join().unwrap());
            adds_up(&groups);
        }
    }
}

#[test]
fn who_does_not_come_back_is_named() {
    let mut groups = elastic(3, OnLoss::Wait, &free_address(), |job| job.join_timeout = IN_VAIN);
    drop(groups.remove(1));
    let mut said = vec![];
    thread::scope(|s| {
        let other = groups.pop().unwrap();
        s.spawn(move || {
            let e = other.total(1, "workers").unwrap_err();
            assert!(other.outlives(&e), "{e}");
            let e = other.regroup(&mut |_| {}).unwrap_err();
            assert!(e.message().contains("worker 0"), "{e}");
        });
        let chief = groups.pop().unwrap();
        let e = chief.total(1, "workers").unwrap_err();
        assert!(chief.outlives(&e), "{e}");
        let e = chief.regroup(&mut |text| said.push(text.to_owned())).unwrap_err();
        assert_eq!(e.code(), ErrorCode::PEER_LATE);
        assert_eq!(e.message(), "worker 1 has not come back within 5 s");
    });
    assert_eq!(said, ["waiting for worker 1 to come back, for 5 s at most"]);
}

/// Without the chief those that are left do not go on.
#[test]
fn a_chief_that_is_lost_is_named() {
    let mut groups = elastic(3, OnLoss::Shrink, &free_address(), |_| {});
    drop(groups.remove(0));
    everywhere(&groups, |g| {
        let e = g.total(1, "workers").unwrap_err();
        assert!(g.outlives(&e), "{e}");
        let e = g.regroup(&mut |_| {}).unwrap_err();
        assert_eq!(e.code(), ErrorCode::PEER_LOST);
        assert!(e.message().contains("worker 0 is gone"), "{e}");
    });
}

#[test]
fn nobody_leaves_before_the_chief_has_saved() {
    let mut groups = elastic(3, OnLoss::Shrink, &free_address(), |_| {});
    let saved = AtomicBool::new(false);
    everywhere(&groups, |g| {
        if g.is_chief() {
            thread::sleep(Duration::from_millis(200));
            saved.store(true, Ordering::Release);
        }
        g.farewell().unwrap();
        assert!(saved.load(Ordering::Acquire));
        g.leave();
    });
    // One that is lost at the end changes nothing.
    drop(groups.pop());
    groups[1].farewell().unwrap();
    // But the chief's loss before does.
    let mut groups = elastic(2, OnLoss::Shrink, &free_address(), |_| {});
    drop(groups.remove(0));
    let e = groups[0].farewell().unwrap_err();
    assert!(groups[0].outlives(&e) && e.message().contains("worker 0"), "{e}");
}

/// Who waits for the chief's last word asks from time to time whether it is there.
#[test]
fn a_chief_that_saves_is_waited_for_and_one_that_hangs_is_not() {
    let timeout = 2 * BRIEF;
    let pair = |blocked: &Arc<AtomicBool>| {
        let at = free_address();
        let through = relay(at.clone(), blocked.clone());
        let joining = [(0, at), (1, through)].map(|(rank, at)| {
            let job = Job { timeout, ..member(rank, 2, &at, OnLoss::Wait, false) };
            thread::spawn(move || Group::join(&job, &[7; 32]).unwrap())
        });
        joining.map(|g| g.join().unwrap())
    };
    let blocked = Arc::new(AtomicBool::new(false));
    let [chief, other] = pair(&blocked);
    thread::scope(|s| {
        let waits = s.spawn(|| other.farewell());
        // Longer than a step may take, and an answer.
        thread::sleep(5 * BRIEF);
        chief.farewell().unwrap();
        waits.join().unwrap().unwrap();
    });
    let [chief, other] = pair(&blocked);
    blocked.store(true, Ordering::Release);
    let e = other.farewell().unwrap_err();
    assert_eq!((e.code(), e.message()), (ErrorCode::PEER_LATE, "worker 0 did not answer in time"));
    assert!(other.outlives(&e));
    drop(chief);
}

/// Where calls for somebody else come in, and go on unless the way is blocked.
fn relay(to: String, blocked: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            // Nobody may listen there yet.
            let Ok(server) = TcpStream::connect(&to) else { continue };
            let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
            for (from, to) in [(client, server), back] {
                let blocked = blocked.clone();
                let hold = move |_: &mut Vec<u8>| {
                    while blocked.load(Ordering::Acquire) {
                        thread::sleep(Duration::from_millis(5));
                    }
                };
                thread::spawn(move || pipe(from, to, hold));
            }
        }
    });
    at
}

/// Whoever calls when the run is over has its answer before the chief ends.
#[test]
fn who_comes_last_is_told_before_the_chief_ends() {
    let told = |time: Duration| {
        let at = free_address();
        let groups = elastic(2, OnLoss::Shrink, &at, |_| {});
        let mut last = joined_by_hand(&member(1, 2, &at, OnLoss::Shrink, false), [7; 32]);
        thread::sleep(time);
        groups[0].farewell().unwrap();
        let mut said = vec![0; 4096];
        last.set_nonblocking(true).unwrap();
        let n = last.read(&mut said).unwrap_or(0);
        said[..n].windows(8).any(|w| w == b"tfc-over")
    };
    // That the call was taken before that nobody says: it has more and more time for it.
    assert!((0..4).any(|round| told(BRIEF / 4 * (1 << (2 * round)))));
}

/// Being asked to stop ends the wait for who does not come back, for all, whoever is asked.
#[test]
fn who_is_to_stop_waits_for_nobody() {
    for asked in [0, 2] {
        let mut groups = elastic(3, OnLoss::Wait, &free_address(), |_| {});
        drop(groups.remove(1));
        let stop = AtomicBool::new(false);
        let stops = |g: &Group, asked: bool| {
            let e = g.total(1, "workers").unwrap_err();
            assert!(g.outlives(&e), "{e}");
            let what = g.regroup_unless(&|| asked && stop.load(Ordering::Acquire), &mut |_| {});
            assert_eq!(what.unwrap(), Regrouped { stopped: true, ..Regrouped::default() });
        };
        let began = Instant::now();
        thread::scope(|s| {
            s.spawn(|| {
                stops(&groups[0], asked == 0);
                // It has saved.
                groups[0].farewell().unwrap();
            });
            s.spawn(|| stops(&groups[1], asked == 2));
            thread::sleep(BRIEF);
            stop.store(true, Ordering::Release);
        });
        assert!(began.elapsed() < SOON);
    }
}

/// Strangers, other programs and noise do not disturb a group that goes on; they are
/// counted.
#[test]
fn strangers_are_refused_while_the_group_works() {
    let at = free_address();
    let mut groups = elastic(3, OnLoss::Shrink, &at, |_| {});
    drop(groups.pop());
    assert!(regrouped(&groups).iter().all(|r| *r == lost(&[2])));
    let refused = |job: &Job, graph: [u8; 32]| {
        let Err(e) = Group::join(job, &graph) else { panic!("it was let in") };
        assert_eq!(e.code(), ErrorCode::JOIN_REFUSED, "{e}");
        e.message().to_owned()
    };
    let job = member(2, 3, &at, OnLoss::Shrink, false);
    let said = refused(&job, [8; 32]);
    assert!(said.contains(&"07".repeat(32)) && said.contains(&"08".repeat(32)), "{said}");
    let said = refused(&Job { token: "another".into(), ..job.clone() }, [7; 32]);
    assert!(said.contains("token"), "{said}");
    let said = refused(&Job { on_loss: OnLoss::Wait, ..job.clone() }, [7; 32]);
    assert!(said.contains("`--on-loss` is `wait`, the job's is `shrink`"), "{said}");
    let said = refused(&Job { size: 4, ..job }, [7; 32]);
    assert!(said.contains("expects 4 workers"), "{said}");
    let mut noise = TcpStream::connect(&at).unwrap();
    noise.write_all(&[0x5a; 500]).unwrap();
    adds_up(&groups);
    assert_eq!(groups[0].counters().refused, 4);
}
