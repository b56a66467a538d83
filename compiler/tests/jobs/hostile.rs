//! Messages to a parameter server that no worker of ours would send: of every kind, changed,
//! cut short, too long, repeated, out of order, of other steps and ages. Nothing of it ends
//! the server, and nothing that it refuses changes a variable.

use super::served::words;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tfc::net::job::Job;
use tfc::net::ps::server::{Asker, Rule, Server};

/// A small generator, so that failures repeat.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// A message: kind, flags, age, step and share of its head, and its body.
#[derive(Clone, Debug)]
struct Message {
    kind: u32,
    flags: u32,
    age: u64,
    step: u64,
    share: f64,
    body: Vec<u8>,
}

impl Message {
    fn head(&self) -> [u8; 40] {
        let mut head = [0; 40];
        head[..4].copy_from_slice(&self.kind.to_le_bytes());
        head[4..8].copy_from_slice(&self.flags.to_le_bytes());
        head[8..16].copy_from_slice(&self.age.to_le_bytes());
        head[16..24].copy_from_slice(&self.step.to_le_bytes());
        head[24..32].copy_from_slice(&self.share.to_le_bytes());
        head[32..].copy_from_slice(&(self.body.len() as u64).to_le_bytes());
        head
    }
}

// As `channel.rs` numbers them.
const FILL: u32 = 1;
const INIT: u32 = 3;
const PUSH: u32 = 5;
const SHARED: u32 = 6;
const APPLY: u32 = 7;
const PULL: u32 = 8;
const LOOK: u32 = 10;
const GET: u32 = 11;
const SHUTDOWN: u32 = 20;
const QUESTIONS: u32 = 24;
const OK: u32 = 24;

struct Victim {
    server: Server,
    worker: Asker,
}

impl Victim {
    fn ask(&mut self, m: &Message) -> Option<(u32, Vec<u8>)> {
        self.server.reply(&mut self.worker, &m.head(), &m.body)
    }

    /// The variables that it has, whole tables too, or that workers are sent.
    fn variables(&mut self) -> Vec<Vec<u8>> {
        let simple = |kind, body| Message { kind, flags: 0, age: 0, step: 0, share: 0.0, body };
        let mut out = vec![self.ask(&simple(PULL, vec![])).map_or(vec![], |(_, b)| b)];
        let mut reader = self.server.asker(None);
        let look = simple(LOOK, vec![]);
        self.server.reply(&mut reader, &look.head(), &[]);
        for at in 0..16u64 {
            // The last bytes of each: what is there, however long it is.
            for len in [4u64, 64] {
                let body: Vec<u8> = [at, 0, len].iter().flat_map(|n| n.to_le_bytes()).collect();
                let get = simple(GET, body);
                if let Some((OK, bytes)) = self.server.reply(&mut reader, &get.head(), &get.body) {
                    out.push(bytes);
                }
            }
        }
        out
    }
}

fn victim(graph: &str, rule: Rule, dir: &std::path::Path) -> Victim {
    let graph = tfc::parse(graph).unwrap();
    let options = tfc::Options::new().replicas(true).threads(1);
    let module = tfc::compile_with(&graph, &options).unwrap();
    let mut job = Job::new(0, 2, "");
    job.servers = vec!["127.0.0.1:1".into()];
    // Whoever would wait is refused.
    job.timeout = Duration::ZERO;
    job.checkpoints = Some(dir.to_owned());
    let entry = module.model().entry("train").unwrap();
    let server = Server::new(module.model().clone(), entry, &job, rule).unwrap();
    let worker = server.asker(Some(0));
    Victim { server, worker }
}

/// The variables begin, with an age and a step.
fn begin(v: &mut Victim, age: u64, good: &BTreeMap<u32, usize>) {
    let head =
        |kind, flags, len| Message { kind, flags, age, step: 3, share: 1.0, body: vec![0; len] };
    assert_eq!(v.ask(&head(FILL, 1, 0)).map(|a| a.0), Some(OK));
    let own = good.get(&INIT).copied().unwrap_or(0);
    assert_eq!(v.ask(&head(INIT, 0, own)).map(|a| a.0), Some(OK));
}

/// How long a body of zeros must be for a question to be answered, by its kind.
fn lengths(v: &mut Victim) -> BTreeMap<u32, usize> {
    let mut good = BTreeMap::new();
    for len in 0..400 {
        v.ask(&Message { kind: FILL, flags: 1, age: 1, step: 3, share: 1.0, body: vec![] });
        let init =
            Message { kind: INIT, flags: 0, age: 1, step: 3, share: 1.0, body: vec![0; len] };
        if v.ask(&init).is_some_and(|a| a.0 == OK) {
            good.insert(INIT, len);
            break;
        }
    }
    for kind in (0..QUESTIONS).filter(|k| ![FILL, INIT].contains(k)) {
        for len in 0..5000 {
            let m = Message { kind, flags: 0, age: 1, step: 3, share: 1.0, body: vec![0; len] };
            if v.ask(&m).is_some_and(|a| a.0 == OK) {
                good.insert(kind, len);
                break;
            }
        }
    }
    good
}

#[test]
fn messages_of_any_kind_are_answered_or_refused() {
    let rules = [Rule::Together { need: 1 }, Rule::Apart { staleness: Some(u64::MAX) }];
    let graphs =
        [words(40, "with optim.adam(lr: 1e-2)"), words(3000, "with optim.adagrad(lr: 0.1)")];
    let (mut asked, mut answered, mut kinds) = (0, 0, BTreeSet::new());
    for (case, (graph, rule)) in graphs.iter().flat_map(|g| rules.map(|r| (g, r))).enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let mut v = victim(graph, rule, dir.path());
        let good = lengths(&mut v);
        assert!(good.contains_key(&PUSH) && good.contains_key(&INIT), "{good:?}");
        let mut random = Random(0x9e37_79b9_7f4a_7c15 + case as u64);
        let mut age = 1;
        let mut before = v.variables();
        let mut earlier: Vec<Message> = vec![];
        for round in 0..30_000 {
            let kind = random.below(QUESTIONS as usize + 8) as u32;
            let right = good.get(&kind).copied().unwrap_or(0);
            let len = match random.below(4) {
                0 => random.below(200),
                1 => right.saturating_sub(random.below(9)),
                _ => right + 8 * random.below(2) * random.below(3),
            };
            let mut body = vec![0; len];
            if random.below(2) == 0 && len > 0 {
                for _ in 0..1 + random.below(8) {
                    let at = random.below(len);
                    body[at] = random.next() as u8;
                }
            }
            let near = |random: &mut Random, n: u64| match random.below(6) {
                0 => [random.next() << 11, u64::MAX][random.below(2)],
                1 => n.saturating_add(1),
                2 => n.saturating_sub(1),
                _ => n,
            };
            let mut m = Message {
                kind,
                flags: random.below(16) as u32 * random.below(2) as u32,
                age: near(&mut random, age),
                step: near(&mut random, 3),
                share: [1.0, 0.5, -1.0, f64::NAN, 1e300][random.below(5)],
                body,
            };
            // Said again, and later than it should be.
            if random.below(5) == 0 && !earlier.is_empty() {
                m = earlier[random.below(earlier.len())].clone();
            } else if earlier.len() < 500 {
                earlier.push(m.clone());
            }
            asked += 1;
            let answer = v.ask(&m);
            let taken = answer.is_some_and(|a| a.0 == OK);
            if taken {
                answered += 1;
                kinds.insert(m.kind);
            }
            // What may change variables, when it is answered; `Shared` has a counter.
            let changes = taken && [INIT, APPLY, SHARED].contains(&m.kind);
            if changes || round % 7 == 0 {
                let now = v.variables();
                assert!(changes || now == before, "{round}: {m:?}");
                before = now;
            }
            // A new beginning, now and then, whatever age was made up.
            if changes && m.kind == INIT || round % 1000 == 999 {
                if changes && m.kind == INIT && m.age > age {
                    age = m.age;
                }
                age = if age < 1 << 62 { age + 1 } else { 1 };
                begin(&mut v, age, &good);
                before = v.variables();
            }
        }
        // It still does what it should.
        age = if age < 1 << 62 { age + 1 } else { 1 };
        begin(&mut v, age, &good);
        for kind in [PUSH, SHARED, APPLY] {
            let body = vec![0; good.get(&kind).copied().unwrap_or(0)];
            let m = Message { kind, flags: 0, age, step: 3, share: 1.0, body };
            assert_eq!(v.ask(&m).map(|a| a.0), Some(OK), "{m:?}");
        }
        let files = std::fs::read_dir(dir.path()).unwrap().flatten();
        let names: Vec<String> =
            files.map(|f| f.file_name().to_string_lossy().into_owned()).collect();
        assert!(names.iter().all(|n| n.starts_with("step-")), "{names:?}");
    }
    assert!(asked >= 100_000 && answered > 10_000, "{asked} {answered}");
    assert!(kinds.len() >= 16 && kinds.contains(&SHUTDOWN), "{kinds:?}");
}
