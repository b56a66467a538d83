//! Calls that wait, are stopped, or run while others write.

use ndarray::{ArrayD, array};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tfc::{CallOptions, CancelToken, ErrorCode, Module};

fn module(text: &str) -> Module {
    tfc::compile(&tfc::parse(text).unwrap()).unwrap()
}

/// Calls an entry that says on `started` when it has begun and then waits for
/// `q`; sets `v` to fives while it waits. Gives its first result.
fn with_a_write_meanwhile(module: &Module, entry: &str) -> ArrayD<f32> {
    std::thread::scope(|s| {
        let call = s.spawn(|| module.call(entry, ()).unwrap().array::<f32>("a").unwrap());
        let started = module.queue("started").unwrap();
        started.dequeue::<ArrayD<f32>>().unwrap().unwrap();
        // Waits until the call has given its variables back.
        module.set_var("v", &array![5.0f32, 5.0]).unwrap();
        module.queue("q").unwrap().enqueue((1.0f32,)).unwrap();
        call.join().unwrap()
    })
}

const WAITS: &str = "graph waits
var v: f32[2] = [1.0, 1.0]
queue q: fifo(f32[], capacity: 4)
queue started: fifo(f32[], capacity: 4)
queue full: fifo(f32[2], capacity: 1)

entry read() -> (a: f32[2], x: f32[]) {
  a = v
  enqueue(started, 1.0)
  x = dequeue(q)
  return a, x
}

entry computed() -> (a: f32[2], x: f32[]) {
  a = v
  enqueue(started, 1.0)
  x = dequeue(q)
  return a * 2.0 + x - x, x
}

entry written() -> (a: f32[2], x: f32[]) {
  b = v + 1.0
  assign(v, b)
  enqueue(started, 1.0)
  x = dequeue(q)
  return b, x
}

entry looped() -> (a: f32[2], x: f32[]) {
  a = v
  enqueue(started, 1.0)
  (_n, x, s) = while (n = 0, x = f32[](0), s = f32[2](0)) n < 1 {
    y = dequeue(q)
    yield n + 1, y, s + a
  }
  return s, x
}

/// What is read after the wait is what others left.
entry after() -> (a: f32[2], x: f32[]) {
  enqueue(started, 1.0)
  x = dequeue(q)
  return v, x
}

/// The element is the one read before, however long there is no room for it.
entry put() {
  a = v
  enqueue(started, 1.0)
  enqueue(full, a)
}
";

// review 1: one value was two when a call waited.
#[test]
fn what_was_read_before_a_wait_stays_the_same() {
    for (entry, want) in
        [("read", 1.0), ("computed", 2.0), ("written", 2.0), ("looped", 1.0), ("after", 5.0)]
    {
        let module = module(WAITS);
        let a = with_a_write_meanwhile(&module, entry);
        assert_eq!(a, array![want, want].into_dyn(), "{entry}");
        // Nothing that was computed for the call has landed in the variable.
        assert_eq!(module.var::<f32>("v").unwrap(), array![5.0, 5.0].into_dyn(), "{entry}");
    }
}

#[test]
fn an_element_that_waits_for_room_stays_the_same() {
    let module = module(WAITS);
    let full = module.queue("full").unwrap();
    full.enqueue((&array![0.0f32, 0.0],)).unwrap();
    std::thread::scope(|s| {
        let call = s.spawn(|| module.call("put", ()).map(drop));
        module.queue("started").unwrap().dequeue::<ArrayD<f32>>().unwrap().unwrap();
        module.set_var("v", &array![5.0f32, 5.0]).unwrap();
        full.dequeue::<ArrayD<f32>>().unwrap().unwrap();
        call.join().unwrap().unwrap();
    });
    let put: ArrayD<f32> = full.dequeue().unwrap().unwrap();
    assert_eq!(put, array![1.0, 1.0].into_dyn());
}

const LOOPS: &str = "graph loops
var v: f32[] = 1.0
var w: f32[2] = zeros
queue q: fifo(f32[], capacity: 4)

/// Never ends by itself.
entry forever(limit: f32[]) -> (n: f32[]) {
  v += 1.0
  n = while (n = f32[](0)) n < limit {
    v += 1.0
    yield n + 1.0 - 1.0
  }
  return n
}

entry commits() -> (x: f32[]) {
  assign(v, 10.0)
  x = dequeue(q)
  assign(v, 20.0)
  y = dequeue(q)
  return x + y
}

entry read() -> (v: f32[]) { return v }
entry hold_q() -> (x: f32[]) { return dequeue(q) }
";

#[test]
fn a_deadline_ends_waits_and_loops() {
    let module = module(LOOPS);
    let soon = || CallOptions::new().timeout(Duration::from_millis(20));
    let err = module.call_with("hold_q", (), &soon()).unwrap_err();
    assert_eq!(err.code(), ErrorCode::DEADLINE);
    let err = module.call_with("forever", (1.0f32,), &soon()).unwrap_err();
    assert_eq!(err.code(), ErrorCode::DEADLINE);
    // As before the call.
    assert_eq!(module.call("read", ()).unwrap().scalar::<f32>("v").unwrap(), 1.0);
    // One that is over before it begins does nothing.
    let past = CallOptions::new().deadline(Instant::now());
    let err = module.call_with("read", (), &past).unwrap_err();
    assert_eq!(err.code(), ErrorCode::DEADLINE);
    let far = CallOptions::new().timeout(Duration::from_secs(3600));
    assert_eq!(module.call_with("read", (), &far).unwrap().scalar::<f32>("v").unwrap(), 1.0);
    let q = module.queue("q").unwrap();
    assert_eq!(q.dequeue_with::<ArrayD<f32>>(&soon()).unwrap_err().code(), ErrorCode::DEADLINE);
}

#[test]
fn a_cancelled_call_leaves_what_it_waited_with() {
    let module = module(LOOPS);
    let token = CancelToken::new();
    std::thread::scope(|s| {
        let options = CallOptions::new().cancel(&token);
        let module = &module;
        let call = s.spawn(move || module.call_with("commits", (), &options).map(drop));
        module.queue("q").unwrap().enqueue((1.0f32,)).unwrap();
        // The variable is free when the call waits; the second wait is the last.
        while module.var::<f32>("v").unwrap().first() != Some(&20.0) {
            std::thread::yield_now();
        }
        token.cancel();
        let err = call.join().unwrap().unwrap_err();
        assert_eq!(err.code(), ErrorCode::CANCELLED);
    });
    assert_eq!(module.var::<f32>("v").unwrap().first(), Some(&20.0));
    // A cancelled token stays cancelled.
    let options = CallOptions::new().cancel(&token);
    let err = module.call_with("read", (), &options).unwrap_err();
    assert_eq!(err.code(), ErrorCode::CANCELLED);
}

#[test]
fn a_call_that_waits_for_variables_can_be_cancelled() {
    let module = module(LOOPS);
    let (stop_writer, stop_reader) = (CancelToken::new(), CancelToken::new());
    std::thread::scope(|s| {
        let module = &module;
        let options = CallOptions::new().cancel(&stop_writer);
        let writer = s.spawn(move || module.call_with("forever", (1.0f32,), &options).map(drop));
        let options = CallOptions::new().cancel(&stop_reader);
        // Before or after the writer has begun: it does not come back by itself.
        let reader = s.spawn(move || {
            loop {
                match module.call_with("read", (), &options) {
                    Ok(_) => std::thread::yield_now(),
                    Err(e) => return e,
                }
            }
        });
        stop_reader.cancel();
        assert_eq!(reader.join().unwrap().code(), ErrorCode::CANCELLED);
        stop_writer.cancel();
        assert_eq!(writer.join().unwrap().unwrap_err().code(), ErrorCode::CANCELLED);
    });
    assert_eq!(module.var::<f32>("v").unwrap().first(), Some(&1.0));
}

/// Serving while training: reads go on while a call writes for ever.
#[test]
fn stale_reads_do_not_wait_for_writers() {
    let module = module(LOOPS);
    let stale = CallOptions::new().stale_ok();
    let v = |module: &Module, options: &CallOptions| {
        module.call_with("read", (), options).unwrap().scalar::<f32>("v").unwrap()
    };
    // The first makes writers leave the old value behind.
    assert_eq!(v(&module, &stale), 1.0);
    let token = CancelToken::new();
    std::thread::scope(|s| {
        let module = &module;
        let options = CallOptions::new().cancel(&token);
        let writer = s.spawn(move || module.call_with("forever", (1.0f32,), &options).map(drop));
        for _ in 0..200 {
            assert_eq!(v(module, &stale), 1.0);
        }
        token.cancel();
        writer.join().unwrap().unwrap_err();
    });
    module.set_var("v", 3.0f32).unwrap();
    assert_eq!(v(&module, &stale), 3.0);
    assert_eq!(v(&module, &CallOptions::new()), 3.0);
    let err = module.call_with("commits", (), &stale).unwrap_err();
    assert_eq!(err.code(), ErrorCode::STALE_WRITER);
}

const PAIR: &str = "graph pair
var a: f32[4096] = zeros
var b: f32[4096] = zeros
entry difference() -> (d: f32[]) { return max(abs(a - b)) }
entry set(x: f32[]) {
  assign(a, x)
  assign(b, x)
}
entry load() { restore(a, b, path: \"state\") }
entry store() { save(a, b, path: \"state\") }
";

// embedding 3: restoring was seen half done.
#[test]
fn restoring_is_seen_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let module = module(PAIR);
    let dirs = [1.0f32, 2.0].map(|x| {
        module.call("set", (x,)).unwrap();
        let dir = dir.path().join(x.to_string());
        module.save_checkpoint(&dir, 1).unwrap();
        dir
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    let out = module.call("difference", ()).unwrap();
                    assert_eq!(out.scalar::<f32>("d").unwrap(), 0.0, "two checkpoints mixed");
                }
            });
        }
        for i in 0..200 {
            module.restore(&dirs[i % 2]).unwrap().unwrap();
        }
        done.store(true, Ordering::Release);
    });
}

// embedding 3: nothing changes when the file is bad.
#[test]
fn a_bad_file_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let other = module(
        "graph other\nvar a: f32[4096] = ones\nvar b: f32[7] = ones\n\
         entry store() { save(a, b, path: \"state\") }",
    );
    other.model().set_directory(dir.path());
    other.call("store", ()).unwrap();
    let module = module(PAIR);
    module.model().set_directory(dir.path());
    module.call("set", (3.0f32,)).unwrap();
    // `a` fits and is read first, `b` does not.
    module.call("load", ()).unwrap_err();
    for name in ["a", "b"] {
        assert!(module.var::<f32>(name).unwrap().iter().all(|x| *x == 3.0), "{name}");
    }
}
