//! A call whose dims did not change allocates nothing. Alone in its file: the
//! allocator counts for the whole process.

mod common;

use common::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use tfc_abi::DType;
use tfc_abi::plan::{Dispatch, Plan, Step, Steps};
use tfc_runtime::{ResultView, TensorBuf};

struct Counting;

static COUNT: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Four steps that nothing makes wait for each other, each said to be worth a
/// thread.
fn side_by_side() -> Plan {
    let mut e = Make::new("four");
    let n = S::N(64);
    let x = e.param("x", DType::F32, &[n], "f32[64]");
    let mut steps = vec![];
    for i in 0..4 {
        let y = e.result(&format!("y{i}"), DType::F32, &[n], "f32[64]");
        let mut step = e.launch(DOUBLE, &[y, x], &[], n, 1000);
        if let Step::Launch(l) = &mut step {
            l.splits = false;
        }
        steps.push((step, Dispatch::default()));
    }
    e.entry.steps = Steps::from_pairs(steps);
    let kernels = (0..KERNELS.len()).map(|i| format!("k{i}")).collect();
    Plan { name: "four".into(), kernels, entries: vec![e.entry], ..Plan::default() }
}

#[test]
fn a_repeated_call_allocates_nothing() {
    let model = load(&small_plan(), &KERNELS, 1).unwrap();
    let x = TensorBuf::from_slice(&[64, 4], &[1f32; 256]).unwrap();
    let mut y = TensorBuf::from_slice(&[64, 3], &[0f32; 192]).unwrap();
    let mut call = || {
        let before = COUNT.load(Ordering::Relaxed);
        model.run(0, &[x.view()], &mut [ResultView { data: y.bytes_mut() }]).unwrap();
        COUNT.load(Ordering::Relaxed) - before
    };
    let first = call();
    assert!(first > 0, "the first call makes a context");
    // The test harness has threads of its own: most calls must be free of
    // allocations, whatever those do meanwhile.
    let free = (0..100).filter(|_| call() == 0).count();
    assert!(free >= 95, "only {free} of 100 calls allocated nothing");
    assert_eq!(y.get_f64(0), Some(5.0));

    // Nor where steps run at the same time.
    let model = load(&side_by_side(), &KERNELS, 2).unwrap();
    let x = TensorBuf::from_slice(&[64], &[1f32; 64]).unwrap();
    let mut y = [[0f32; 64]; 4];
    let mut call = || {
        let before = COUNT.load(Ordering::Relaxed);
        let mut views =
            // SAFETY: any bytes are floats.
            y.each_mut().map(|y| ResultView { data: unsafe { y.align_to_mut::<u8>().1 } });
        model.run(0, &[x.view()], &mut views).unwrap();
        COUNT.load(Ordering::Relaxed) - before
    };
    let free = (0..100).filter(|_| call() == 0).count();
    assert!(free >= 90, "only {free} of 100 calls allocated nothing");
    assert_eq!(y, [[2.0; 64]; 4]);
}
