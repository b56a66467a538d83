//! What is copied where, on a GPU that is made up.

use super::*;
use crate::DType;

/// Buffers: 0 a param, 1 a result, 2 a variable, 3 to 6 slots, 7 a condition in a slot.
fn plan(steps: Vec<Step>) -> Plan {
    plan_with([0, 1, 2, 3, 4].map(Home::slot), steps)
}

fn plan_with(slots: [Home; 5], steps: Vec<Step>) -> Plan {
    let homes = [Home::Param(0), Home::Result(0), Home::Var(0)];
    let homes: Vec<Home> = homes.into_iter().chain(slots).collect();
    let buffer = |(i, home): (usize, &Home)| Buffer {
        dtype: if i == 7 { DType::Bool } else { DType::F32 },
        len: if i == 7 { 1 } else { 0 },
        shape: if i == 7 { vec![] } else { vec![0] },
        home: *home,
        device: HOST,
    };
    let port = |buf| Port {
        name: "p".into(),
        dtype: DType::F32,
        shape: vec![0],
        buf,
        text: "f32[4]".into(),
    };
    let (after, _) = order(&steps, &|b| homes[b as usize]);
    let pairs = steps.into_iter().zip(after);
    let entry = Entry {
        name: "f".into(),
        params: vec![port(0)],
        results: vec![port(1)],
        exprs: [4, 1, 16].map(|n| Expr(vec![ExprOp::Const(n)])).to_vec(),
        buffers: homes.iter().enumerate().map(buffer).collect(),
        slots: vec![2; 5],
        steps: Steps::from_pairs(
            pairs.map(|(s, after)| (s, Dispatch { after, ..Dispatch::default() })),
        ),
        writes: vec![0],
        ..Entry::default()
    };
    let var = VarInfo {
        name: "v".into(),
        dtype: DType::F32,
        shape: vec![4],
        user: true,
        random: false,
        zero: false,
        task: 0,
        asked: None,
    };
    let plan = Plan {
        vars: vec![var],
        kernels: vec!["k".into()],
        entries: vec![entry],
        ..Plan::default()
    };
    plan.check().unwrap();
    plan
}

fn launch(dst: u32, src: u32) -> Step {
    let (kernel, outputs, dims, extent, cost, splits) = (0, 1, vec![], 0, 0, true);
    let (bufs, partial) = (vec![dst, src], false);
    Step::Launch(Launch { kernel, bufs, outputs, dims, extent, cost, splits, partial })
}

fn print(buf: u32) -> Step {
    Step::Print { label: String::new(), buf }
}

/// The placed steps as letters: `k` a kernel on the GPU, `u` and `d` copies up and
/// down, `p` a print, lists in brackets.
fn placed(steps: Vec<Step>) -> String {
    letters(&plan(steps)).0
}

/// The letters, and how many slots there are then.
fn letters(plan: &Plan) -> (String, usize) {
    let placed = place(plan, 0, &|_, _| true);
    placed.plan.check().unwrap();
    let entry = &placed.plan.entries[0];
    let var = |b: &Buffer| matches!(b.home, Home::Var(_));
    assert!(entry.buffers.iter().filter(|b| var(b)).all(|b| b.device == 1));
    fn text(entry: &Entry, steps: &Steps) -> String {
        let on = |b: u32| entry.buffers[b as usize].device;
        let letters = steps.iter().map(|s| match s {
            Step::Launch(_) => "k".into(),
            Step::Copy { src, dst } => match (on(*src), on(*dst)) {
                (HOST, _) => "u".to_string(),
                (_, HOST) => "d".into(),
                _ => "c".into(),
            },
            Step::Print { .. } => "p".into(),
            Step::If { then: a, otherwise: b, .. } | Step::While { head: a, body: b, .. } => {
                format!("[{}|{}]", text(entry, a), text(entry, b))
            }
            _ => "?".into(),
        });
        letters.collect()
    }
    (text(entry, &entry.steps), entry.slots.len())
}

/// What is written into some slots of a value is another value: nothing is copied down
/// for what was there.
#[test]
fn values_may_take_several_slots() {
    let homes = [Home::Slot(1, 2), Home::Slot(2, 2), Home::slot(3), Home::slot(0), Home::slot(4)];
    let steps = vec![launch(3, 0), print(3), launch(4, 0), print(4), launch(1, 4)];
    // On either side slots 1 to 3; for the param and the result one each on the GPU.
    assert_eq!(letters(&plan_with(homes, steps)), ("ukdpkdpkd".into(), 3 + 3 + 2));
    let branch = |then, otherwise| Step::If { cond: 7, then, otherwise };
    let list = |steps: Vec<Step>| -> Steps {
        let (after, _) = order(&steps, &|b| homes.get(b as usize - 3).copied().unwrap());
        let pairs = steps.into_iter().zip(after);
        let dispatch = |after| Dispatch { after, ..Dispatch::default() };
        Steps::from_pairs(pairs.map(|(s, after)| (s, dispatch(after))))
    };
    let both = branch(list(vec![print(3), launch(4, 5)]), list(vec![launch(5, 4), print(5)]));
    let steps = vec![launch(3, 0), launch(6, 0), both, print(6)];
    let (text, _) = letters(&plan_with(homes, steps));
    assert_eq!(text.matches('k').count(), 4, "{text}");
}

#[test]
fn values_are_copied_once_and_only_where_they_are_needed() {
    // Up once for two kernels, down once for two prints and the result.
    assert_eq!(placed(vec![launch(3, 0), launch(4, 0), launch(1, 3)]), "ukkkd");
    let twice = vec![launch(2, 0), print(2), print(2), launch(1, 2)];
    assert_eq!(placed(twice), "ukdppkd");
    // A new value is a new copy.
    let again = vec![launch(2, 0), print(2), launch(2, 0), print(2), launch(1, 2)];
    assert_eq!(placed(again), "ukdpkdpkd");
    // A copy to the result goes straight there.
    let copy = Step::Copy { src: 2, dst: 1 };
    assert_eq!(placed(vec![launch(2, 0), copy]), "ukd");
}

#[test]
fn exchanges_are_where_their_tensors_are_unless_nccl_would_lose_a_nan() {
    let exchange = |combine| {
        let (name, place) = (String::new(), String::new());
        Step::Exchange(Exchange { combine, bufs: vec![3], name, place })
    };
    let on = |combine| {
        let steps = vec![launch(3, 0), exchange(combine), launch(1, 3)];
        let placed = place(&plan(steps), 0, &|_, _| true).plan;
        placed.check().unwrap();
        let steps = &placed.entries[0].steps;
        let at = steps.iter().position(|s| matches!(s, Step::Exchange(_))).unwrap();
        (steps.dispatch()[at].device, steps.len())
    };
    // Up, the kernel, the exchange, the kernel, down; or down and up around it.
    assert_eq!([Combine::Mean, Combine::Sum].map(on), [(1, 5); 2]);
    assert_eq!([Combine::Max, Combine::Min].map(on), [(HOST, 7); 2]);
}

/// Two processes may have them in different sizes, which NCCL does not notice.
#[test]
fn exchanges_of_tensors_whose_sizes_calls_decide_stay_on_the_cpu() {
    let exchange = |bufs| {
        let (name, place) = (String::new(), String::new());
        Step::Exchange(Exchange { combine: Combine::Sum, bufs, name, place })
    };
    let on = |bufs: Vec<u32>| {
        let mut plan = plan(vec![launch(3, 0), launch(4, 0), exchange(bufs), launch(1, 3)]);
        plan.dims.push(DimInfo { name: "B".into(), min: 1, max: i64::MAX });
        let entry = &mut plan.entries[0];
        entry.exprs.push(Expr(vec![ExprOp::Const(3), ExprOp::Dim(0), ExprOp::Mul]));
        (entry.buffers[4].len, entry.buffers[4].shape) = (3, vec![3]);
        let placed = place(&plan, 0, &|_, _| true).plan;
        let steps = &placed.entries[0].steps;
        let at = steps.iter().position(|s| matches!(s, Step::Exchange(_))).unwrap();
        steps.dispatch()[at].device
    };
    assert_eq!([vec![3], vec![4], vec![3, 4]].map(on), [1, HOST, HOST]);
}

/// A plan whose steps are placed: 0 on the CPU, 1 on `/gpu:0`, 2 on `/gpu:3`.
fn apart(steps: Vec<(Step, u32)>, var: Option<u32>) -> Plan {
    let (steps, asked): (Vec<Step>, Vec<u32>) = steps.into_iter().unzip();
    let mut plan = plan(steps);
    plan.asked = vec![Device::host(), Device::cuda(0), Device::cuda(3)];
    plan.vars[0].asked = var;
    for (d, a) in plan.entries[0].steps.dispatch_mut().iter_mut().zip(asked) {
        d.asked = Some(a);
    }
    plan.check().unwrap();
    let placed = place(&plan, 2, &|_, _| true).plan;
    placed.check().unwrap();
    placed
}

/// Each step as its device and those of its buffers.
fn devices(plan: &Plan) -> String {
    let entry = &plan.entries[0];
    let on = |b: u32| entry.buffers[b as usize].device;
    let steps = entry.steps.iter().zip(entry.steps.dispatch()).map(|(s, d)| match s {
        Step::Copy { src, dst } => format!("{}>{}", on(*src), on(*dst)),
        _ => format!("k{}", d.device),
    });
    steps.collect::<Vec<_>>().join(" ")
}

#[test]
fn steps_are_where_they_were_placed() {
    // The CPU, then two GPUs; the result comes straight from the second.
    let plan = apart(vec![(launch(3, 0), 0), (launch(4, 3), 1), (launch(1, 4), 2)], None);
    assert_eq!(devices(&plan), "k0 0>1 k1 1>2 k2 2>0");
    let numbers: Vec<u32> = plan.devices[1..].iter().map(Device::number).collect();
    assert_eq!(numbers, [2, 5], "counted from the GPU that was chosen");
    // What a slot held before is not copied to where it is written next.
    let reuse = vec![(launch(3, 0), 1), (launch(4, 3), 1), (launch(3, 4), 2), (launch(1, 3), 2)];
    assert_eq!(devices(&apart(reuse, None)), "0>1 k1 k1 1>2 k2 k2 2>0");
}

#[test]
fn a_variable_is_where_it_was_placed() {
    // Written on the other GPU, it goes home.
    let steps = vec![(launch(2, 0), 1), (launch(1, 2), 1)];
    let plan = apart(steps.clone(), Some(2));
    assert_eq!(devices(&plan), "0>1 k1 1>2 k1 1>0");
    assert_eq!(plan.var_devices().unwrap(), [2]);
    // On the CPU.
    assert_eq!(devices(&apart(steps.clone(), Some(0))), "0>1 k1 1>0 k1 1>0");
    // Nobody said: it is where it is used.
    assert_eq!(apart(steps, None).var_devices().unwrap(), [1]);
}

#[test]
fn what_a_loop_only_reads_is_copied_before_it() {
    let head = Steps::serial(vec![launch(7, 2)]);
    let body = Steps::serial(vec![launch(2, 0), print(0)]);
    let loops = Step::While { head, cond: 7, body };
    // The condition comes down each time.
    assert_eq!(placed(vec![loops, launch(1, 2)]), "u[kd|kp]kd");
}

#[test]
fn branches_agree_about_where_values_are() {
    let pop = |dst| Step::Pop { stack: 0, dst, name: "s".into() };
    let then = Steps::serial(vec![launch(3, 0)]);
    let otherwise = Steps::serial(vec![pop(3)]);
    let branch = Step::If { cond: 7, then, otherwise };
    // What only one of them has on the GPU goes up at the end of the other.
    let push = Step::Push { stack: 0, src: 0 };
    assert_eq!(placed(vec![launch(7, 2), push, branch, launch(1, 3)]), "k?d[uk|?u]kd");
}

#[test]
fn what_one_branch_alone_has_written_is_not_copied_later() {
    let (push, pop) =
        (Step::Push { stack: 0, src: 0 }, Step::Pop { stack: 0, dst: 4, name: "s".into() });
    let (then, otherwise) = (Steps::serial(vec![launch(4, 0)]), Steps::serial(vec![]));
    let branch = Step::If { cond: 7, then, otherwise };
    let head = Steps::serial(vec![launch(7, 2)]);
    let body = Steps::serial(vec![pop, print(4)]);
    let loops = Step::While { head, cond: 7, body };
    // The loop uses the same memory on the CPU for values of its own.
    let steps = vec![launch(7, 2), push, branch, loops, launch(1, 2)];
    assert_eq!(placed(steps), "k?d[uk|][kd|?p]kd");
}

#[test]
fn a_stack_is_where_its_items_are_computed() {
    let push = |src| Step::Push { stack: 0, src };
    let pop = |dst| Step::Pop { stack: 0, dst, name: "s".into() };
    // Nothing comes down but the result.
    assert_eq!(placed(vec![launch(2, 0), push(2), pop(3), launch(1, 3)]), "uk??kd");
}
