//! Steps that run at the same time leave the same bits as steps that run one
//! after the other, whatever the number of threads.

mod common;

use common::*;
use tfc_abi::plan::*;
use tfc_abi::{DType, KernelFn, depend};
use tfc_runtime::{Model, ResultView};

const LEN: i64 = 96;
const SLOTS: u32 = 12;
const VARS: u32 = 4;

/// `out[i] = out[i] * 0.5 + a[i] * 1.25 - b[i] + i`. bufs: out, a, b; dims: length.
/// What it leaves depends on the order of any two that write one place.
///
/// # Safety
/// As [`KernelFn`].
unsafe extern "C" fn mix(bufs: *const *mut u8, dims: *const i64, _range: *const i64) {
    // SAFETY: three buffers of this length.
    unsafe {
        let [out, a, b] = [0, 1, 2].map(|i| (*bufs.add(i)).cast::<f32>());
        for i in 0..*dims as usize {
            *out.add(i) = (*out.add(i) * 0.5 + *a.add(i) * 1.25 - *b.add(i) + i as f32) % 1e6;
        }
    }
}

/// `flag = counter < 5; counter += 1`. bufs: flag, counter.
///
/// # Safety
/// As [`KernelFn`].
unsafe extern "C" fn count(bufs: *const *mut u8, _dims: *const i64, _range: *const i64) {
    // SAFETY: a flag and a number.
    unsafe {
        let counter = (*bufs.add(1)).cast::<f32>();
        **bufs = u8::from(*counter < 5.0);
        *counter += 1.0;
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % n
    }
}

/// An entry with random steps over the same few places.
struct Graph {
    make: Make,
    places: Vec<BufId>,
    counters: Vec<[BufId; 2]>,
    random: Random,
}

impl Graph {
    fn mix(&mut self) -> Step {
        let pick = |g: &mut Graph| g.places[g.random.below(g.places.len())];
        let bufs = [pick(self), pick(self), pick(self)];
        if self.random.below(8) == 0 {
            return Step::Copy { src: bufs[1], dst: bufs[0] };
        }
        // Claims to be worth twenty microseconds, so that it is worth a thread.
        let mut step = self.make.launch(0, &bufs, &[S::N(LEN)], S::N(1), 20_000);
        if let Step::Launch(l) = &mut step {
            l.splits = false;
        }
        step
    }

    fn list(&mut self, depth: usize) -> Steps {
        let mut steps = vec![];
        for _ in 0..4 + self.random.below(40) {
            steps.push(match self.random.below(30) {
                0 if depth < 2 && !self.counters.is_empty() => self.repeat(depth),
                _ => self.mix(),
            });
        }
        let home = |b: BufId| self.make.entry.buffers[b as usize].home;
        let (after, _) = depend::order(&steps, &home);
        let pairs = steps.into_iter().zip(after);
        Steps::from_pairs(
            pairs.map(|(step, after)| (step, Dispatch { after, ..Dispatch::default() })),
        )
    }

    fn repeat(&mut self, depth: usize) -> Step {
        let Some([flag, counter]) = self.counters.pop() else { return self.mix() };
        let mut head = self.make.launch(1, &[flag, counter], &[], S::N(1), 1);
        if let Step::Launch(l) = &mut head {
            l.outputs = 2;
        }
        let body = self.list(depth + 1);
        Step::While { head: vec![head].into(), cond: flag, body }
    }
}

fn plan(seed: u64) -> Plan {
    let mut make = Make::new("mixed");
    let x = make.param("x", DType::F32, &[S::N(LEN)], "f32[96]");
    let y = make.result("y", DType::F32, &[S::N(LEN)], "f32[96]");
    make.entry.writes.extend(0..VARS);
    let mut places: Vec<BufId> =
        (0..VARS).map(|v| make.buffer(DType::F32, &[S::N(LEN)], Home::Var(v))).collect();
    places.extend((0..SLOTS).map(|_| make.slot(DType::F32, &[S::N(LEN)])));
    let counters: Vec<[BufId; 2]> =
        (0..4).map(|_| [make.slot(DType::Bool, &[]), make.slot(DType::F32, &[])]).collect();
    let start: Vec<Step> = places.iter().map(|p| Step::Copy { src: x, dst: *p }).collect();
    let zero: Vec<Step> = counters
        .iter()
        .map(|[_, c]| Step::Call(Call { func: Func::Zero, bufs: vec![*c], ints: vec![] }))
        .collect();
    let mut graph = Graph { make, places, counters, random: Random(seed) };
    let body = graph.list(0);
    let ends = graph.places.clone();
    let mut steps: Vec<Step> = start.into_iter().chain(zero).chain(body.into_list()).collect();
    steps.push(Step::Call(Call { func: Func::Zero, bufs: vec![y], ints: vec![] }));
    for p in ends {
        steps.push(graph.make.launch(0, &[y, p, x], &[S::N(LEN)], S::N(1), 20_000));
    }
    let Make { mut entry } = graph.make;
    let home = |b: BufId| entry.buffers[b as usize].home;
    let (after, _) = depend::order(&steps, &home);
    let pairs = steps.into_iter().zip(after);
    entry.steps = Steps::from_pairs(
        pairs.map(|(step, after)| (step, Dispatch { after, ..Dispatch::default() })),
    );
    let vars = (0..VARS).map(|v| var(&format!("v{v}"), &[LEN])).collect();
    let kernels = vec!["mix".into(), "count".into()];
    Plan { name: "mixed".into(), vars, kernels, entries: vec![entry], ..Plan::default() }
}

fn bits(model: &Model, x: &[f32]) -> Vec<Vec<u8>> {
    let x = tfc_runtime::TensorBuf::from_slice(&[x.len()], x).unwrap();
    let mut y = tfc_runtime::TensorBuf::from_slice(&[x.shape[0]], &vec![0f32; x.shape[0]]).unwrap();
    model.run(0, &[x.view()], &mut [ResultView { data: y.bytes_mut() }]).unwrap();
    let vars = (0..VARS as usize).map(|v| model.read_var(v).unwrap().bytes().to_vec());
    vars.chain([y.bytes().to_vec()]).collect()
}

#[test]
fn random_graphs_of_steps_give_the_bits_of_serial_execution() {
    const KERNELS: [KernelFn; 2] = [mix, count];
    let x: Vec<f32> = (0..LEN).map(|i| i as f32 * 0.37 - 5.0).collect();
    for seed in 0..40 {
        let plan = plan(seed * 7919 + 1);
        plan.check().unwrap();
        let serial = {
            let mut serial = plan.clone();
            serial.entries[0].steps = plan.entries[0].steps.clone().into_list().into();
            bits(&load(&serial, &KERNELS, 1).unwrap(), &x)
        };
        for threads in [1, 2, 4] {
            let model = load(&plan, &KERNELS, threads).unwrap();
            for _ in 0..10 {
                assert_eq!(bits(&model, &x), serial, "seed {seed}, {threads} threads");
            }
        }
    }
}
