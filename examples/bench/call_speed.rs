//! What a call costs besides its work: small entries, results in the caller's
//! memory. `cargo run --release -p tfc --example call_speed`

use std::time::Instant;
use tfc::Entry;
use tfc::value::{Feeds, Results};

const GRAPH: &str = "graph small
var w: f32[4] = [1.0, 2.0, 3.0, 4.0]
dim B
entry nothing() { }
entry fixed(x: f32[4]) -> (y: f32[4]) { return x * 2.0 }
entry weighted(x: f32[4]) -> (y: f32[4]) { return x * w }
entry written(x: f32[4]) { w += x }
entry sized(x: f32[B]) -> (y: f32[B]) { return x * 2.0 }
";

fn main() -> Result<(), tfc::Error> {
    let module = tfc::compile(&tfc::parse(GRAPH)?)?;
    let entry = |name: &str| module.entry::<()>(name);
    let x = [1.0f32, 2.0, 3.0, 4.0];
    let mut y = [0.0f32; 4];
    println!("| entry | ns a call |\n|---|---|");
    let f = entry("nothing")?;
    time("nothing", || call(&f, (), ()));
    let f = entry("fixed")?;
    time("fixed, f32[4]", || call(&f, (&x,), (&mut y,)));
    let f = entry("weighted")?;
    time("reads a variable", || call(&f, (&x,), (&mut y,)));
    let f = entry("written")?;
    time("writes a variable", || call(&f, (&x,), ()));
    let f = entry("sized")?;
    time("a run-time dim", || call(&f, (&x,), (&mut y,)));
    let f = module.entry::<Vec<f32>>("fixed")?;
    time("fixed, a new vector", || drop(f.call((&x,))));
    Ok(())
}

fn call<'a, 'r>(entry: &Entry<()>, feeds: impl Feeds<'a>, results: impl Results<'r>) {
    if let Err(e) = entry.call_into(feeds, results) {
        eprintln!("{e}");
    }
}

/// The fastest of some runs, for each call of one.
fn time(what: &str, mut work: impl FnMut()) {
    const CALLS: u32 = 200_000;
    let least = (0..7)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(|_| work());
            start.elapsed()
        })
        .min()
        .unwrap_or_default();
    println!("| {what} | {:.0} |", least.as_secs_f64() * 1e9 / f64::from(CALLS));
}
