//! Uses a graph file as a library: parse, compile, call from several threads,
//! read a variable.
//!
//!     cargo run --release -p tfc --example use_graph

use ndarray::{Array2, ArrayD};
use std::path::Path;

pub fn main() -> Result<(), tfc::Error> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/mlp.graph");
    let graph = tfc::load(&path)?;
    let module = tfc::compile(&graph)?;
    for entry in module.entries() {
        println!("entry {entry}");
    }

    // The batch size is a run-time dim: any number of rows will do.
    let rows = std::thread::scope(|scope| {
        let calls: Vec<_> = [1usize, 7, 64]
            .into_iter()
            .map(|batch| {
                let module = &module;
                scope.spawn(move || -> Result<usize, tfc::Error> {
                    let x = Array2::<f32>::from_elem((batch, 784), 0.5);
                    let (class, logits): (ArrayD<i32>, ArrayD<f32>) =
                        module.call("predict", (&x,))?.into_arrays()?;
                    assert_eq!(logits.shape(), [batch, 10]);
                    Ok(class.len())
                })
            })
            .collect();
        calls.into_iter().map(|c| c.join().expect("no panics")).collect::<Result<Vec<_>, _>>()
    })?;
    println!("classified {rows:?} rows");

    let w1 = module.var::<f32>("w1")?;
    println!("w1 has {} parameters", w1.len());

    // Mistakes are errors that say what to do, not panics.
    let wrong = Array2::<f32>::zeros((3, 783));
    match module.call("predict", (&wrong,)) {
        Err(e) => println!("as expected:\n{e}"),
        Ok(_) => unreachable!("783 is not 784"),
    }
    Ok(())
}
