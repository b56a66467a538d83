//! Placements go through every pass, and what nothing can honour is an error.

use tfc_ir::diag::Diag;
use tfc_ir::lower::{Lower, StepKind};
use tfc_ir::{Graph, text};
use tfc_passes::cluster::Cluster;
use tfc_passes::pipeline::{Details, PASSES, Pass, Ran, run_each};
use tfc_passes::place::Reason;
use tfc_passes::{PassOptions, compile};

fn load(source: &str) -> Graph {
    let (graph, diags, _) = text::load_str("placed.graph", source);
    let found: Vec<String> = diags.iter().map(|d| d.message.clone()).collect();
    graph.unwrap_or_else(|| panic!("{found:?}"))
}

fn run_all(graph: Graph, after: &mut dyn FnMut(&Ran, &Graph)) -> Graph {
    let all: Vec<&Pass> = PASSES.iter().collect();
    run_each(graph, &all, &PassOptions::default(), after).unwrap_or_else(|d| panic!("{d:?}"))
}

/// Softmax, reductions and movement, their gradients, a loop and a branch: all on
/// one device.
const PLACED: &str = "graph placed
use nn
dim B
entry f(x: f32[B, 8], y: i32[B]) -> (dw: f32[8, 3], total: f32[]) {
  on \"/gpu:3\" {
    w = full(0.5, shape: [8, 3])
    h = transpose(reshape(transpose(tanh(x)), [8, B])) @ w
    loss = mean(nn.softmax_xent(h, y))
    dw = grad(loss, wrt: w)
    (_i, total) = while (i = 0, t = loss) i < 3 {
      yield i + 1, if t > 1.0 { yield t / 2.0 } else { yield t + sum(dw) }
    }
    dt = grad(total, wrt: x)
    total = total + mean(dt)
  }
  return dw, total
}
";

/// review 2: `on` was accepted, and lost in canonicalize, differentiate and expand.
#[test]
fn every_pass_keeps_placements() {
    let mut checked = 0;
    run_all(load(PLACED), &mut |ran, graph| {
        if ran.name == "devices" {
            return;
        }
        for func in &graph.entries {
            func.walk(&mut |_, node| {
                checked += 1;
                assert_eq!(
                    node.device.as_deref(),
                    Some("/gpu:3"),
                    "after `{}`, a `{}` is not where it was placed:\n{}",
                    ran.name,
                    node.op.name(),
                    text::print(graph)
                );
            });
        }
    });
    assert!(checked > 200, "{checked}");
}

/// What stands for two devices is computed on each of them.
#[test]
fn equal_nodes_on_two_devices_stay_two() {
    let source = "graph two
entry f(x: f32[4]) -> (a: f32[4], b: f32[4]) {
  a = exp(x) on \"/gpu:0\"
  b = exp(x) on \"/gpu:1\"
  return a, b
}
";
    let graph = run_all(load(source), &mut |_, _| {});
    let mut devices = vec![];
    graph.entries[0].walk(&mut |_, node| {
        let device = node.device.as_deref().unwrap_or("nowhere");
        devices.push(format!("{} {device}", node.op.name()));
    });
    devices.sort();
    // With the param copied to both, and both results to the CPU.
    let copies = ["copy /cpu:0", "copy /cpu:0", "copy /gpu:0", "copy /gpu:1"];
    assert_eq!(devices, [&copies[..], &["exp /gpu:0", "exp /gpu:1"]].concat());
}

/// All passes, then those of devices once more: they find nothing to do.
fn settled(source: &str, gpus: bool) -> Graph {
    let all: Vec<&Pass> = PASSES.iter().collect();
    let options = PassOptions { gpus, ..PassOptions::default() };
    let graph = run_each(load(source), &all, &options, &mut |_, _| {}).unwrap();
    let last: Vec<&Pass> = PASSES.iter().filter(|p| p.name == "devices").collect();
    let mut changed = true;
    let again = run_each(graph.clone(), &last, &options, &mut |ran, _| changed = ran.changed);
    assert!(!changed, "{}", text::print(&graph));
    text::same(&graph, &again.unwrap()).unwrap();
    let printed = text::print(&graph);
    text::same(&graph, &load(&printed)).unwrap_or_else(|e| panic!("{e}\n{printed}"));
    graph
}

/// The device of every node that computes, by the op's name, and of every variable.
fn places(graph: &Graph, entry: &str) -> Vec<String> {
    let mut out = vec![];
    let func = graph.entries.iter().find(|f| f.name == entry).unwrap();
    func.walk(&mut |_, node| {
        if let Some(device) = &node.device {
            out.push(format!("{} {device}", node.op.name()));
        }
    });
    out
}

/// What only the CPU does stays there, and all operands of a node are where it is.
#[test]
fn the_cpu_keeps_what_only_it_does() {
    let graph = settled(
        "graph g
queue q: fifo(f32[3], capacity: 2)
entry f(x: f32[3]) -> (y: f32[3]) {
  on \"/gpu:0\" {
    enqueue(q, x)
    z = dequeue(q)
    y = tanh(z)
    print(y, label: \"y\")
    s = argsort(y, axis: 0)
    y = y + cast(s, to: f32)
  }
  return y
}
",
        true,
    );
    let found = places(&graph, "f");
    for wanted in [
        "enqueue /cpu:0",
        "dequeue /cpu:0",
        "tanh /gpu:0",
        "print /cpu:0",
        "argsort /cpu:0",
        "add /gpu:0",
    ] {
        assert!(found.iter().any(|f| f == wanted), "{wanted}: {found:?}");
    }
    let func = &graph.entries[0];
    func.walk(&mut |_, node| {
        for v in &node.operands {
            let from = func.def(*v).and_then(|d| func.nodes[d].device.clone());
            let from = from.or_else(|| func.def(*v).is_none().then(|| "/cpu:0".into()));
            let same = from.is_none() || from == node.device || node.op.name() == "copy";
            assert!(same, "{} on {:?}: {from:?}", node.op.name(), node.device);
        }
    });
}

/// Variables that nobody placed are with what computes with them; slots of optimizers
/// with their variables. A part on the CPU of a program for GPUs is one.
#[test]
fn variables_are_with_their_users() {
    let source = "graph g
use optim
var v: f32[4] = ones
var w: f32[4] = ones
var n: i64[] = 0
entry f(x: f32[4]) -> (loss: f32[]) {
  a = x * v on \"FIRST\"
  b = a * w on \"SECOND\"
  loss = sum(b * b)
  minimize loss over [v, w] with optim.momentum(lr: 0.1)
  assign(n, n + 1)
  return loss
}
";
    let on = |graph: &Graph, name: &str| {
        let var = graph.vars.values().find(|v| v.name == name).unwrap();
        var.device.as_deref().map(str::to_string).unwrap_or_default()
    };
    let gpus = source.replace("FIRST", "/gpu:2").replace("SECOND", "/gpu:1");
    let graph = settled(&gpus, true);
    assert_eq!((&*on(&graph, "v"), &*on(&graph, "momentum.v.v")), ("/gpu:2", "/gpu:2"));
    assert_eq!((&*on(&graph, "w"), &*on(&graph, "momentum.w.v")), ("/gpu:1", "/gpu:1"));
    assert_eq!(on(&graph, "n"), "/gpu:0");
    let mixed = source.replace("FIRST", "/cpu:0").replace("SECOND", "/cpu");
    let graph = settled(&mixed, true);
    let found = places(&graph, "f");
    assert!(
        found.iter().any(|f| f == "mul /cpu:0") && found.iter().any(|f| f == "sum /gpu:0"),
        "{found:?}"
    );
    // For the CPU alone there is nothing to say.
    let plain = settled(&mixed, false);
    assert!(!text::print(&plain).contains("copy"));
    let program = compile(&load(&mixed), &PassOptions::default()).unwrap();
    assert!(program.plan.asked.is_empty());
}

#[test]
fn a_device_that_is_not_there_is_an_error() {
    for (source, what) in [
        (&*PLACED.replace("/gpu:3", "/cpu:3"), "/cpu:3"),
        (
            "graph q\nqueue q: fifo(f32[], capacity: 2) on \"/gpu:0\"\nentry f() {\n  enqueue(q, 1.0)\n}\n",
            "`q` cannot be on a GPU",
        ),
        (
            "graph v\nvar w: f32[2] = zeros on \"/job:ps/task:1\"\nentry f() -> f32[2] {\n  return w\n}\n",
            "/job:ps/task:1",
        ),
        (
            "graph q\nqueue q: fifo(f32[], capacity: 2) on \"/cpu:1\"\nentry f() {\n  enqueue(q, 1.0)\n}\n",
            "/cpu:1",
        ),
    ] {
        let diags =
            compile(&load(source), &PassOptions::default()).expect_err("nothing can honour it");
        assert_eq!(diags.len(), 1, "{diags:?}");
        assert_eq!(diags[0].code, "E0415");
        assert!(diags[0].message.contains(what), "{}", diags[0].message);
    }
}

#[test]
fn the_cpu_is_there() {
    let source = "graph c\nentry f(x: f32[2]) -> (y: f32[2]) {\n  y = x + 1.0 on \"/cpu:0\"\n  return y\n}\n";
    let program = compile(&load(source), &PassOptions::default()).expect("it is the CPU's");
    assert_eq!(program.kernels.len(), 1);
}

/// All passes, for a cluster of so many tasks of the job `a`.
fn cut(source: &str, tasks: usize) -> Result<(Graph, Vec<Reason>), Vec<Diag>> {
    let all: Vec<&Pass> = PASSES.iter().collect();
    let options = PassOptions { cluster: Some(Cluster::of("a", tasks)), ..PassOptions::default() };
    let mut reasons = vec![];
    let graph = run_each(load(source), &all, &options, &mut |ran, _| {
        if let Details::Placed(list) = &ran.details {
            reasons = list.clone();
        }
    })?;
    Ok((graph, reasons))
}

/// What the part of a task sends to (or receives from) each other, in order.
fn messages(graph: &Graph, entry: &str, task: usize, kind: StepKind) -> Vec<(String, String)> {
    let task = format!("/job:a/task:{task}");
    let part = graph
        .entries
        .iter()
        .find(|f| f.name == entry && f.task.as_deref() == Some(&*task))
        .expect("a part for each task");
    let mut out = vec![];
    part.walk(&mut |_, node| {
        if matches!(node.op.def().lower, Lower::Step(k) if k == kind) {
            let peer = node.attrs.str(if kind == StepKind::Send { "to" } else { "from" });
            out.push((peer.to_string(), node.attrs.str("name").to_string()));
        }
    });
    out
}

/// Every message that one task sends to another, the other receives, in that order.
fn check_messages(graph: &Graph, entry: &str, tasks: usize) -> usize {
    let name = |t: usize| format!("/job:a/task:{t}");
    let mut count = 0;
    for from in 0..tasks {
        for to in 0..tasks {
            let between = |list: Vec<(String, String)>, peer: usize| -> Vec<String> {
                list.into_iter().filter(|(p, _)| *p == name(peer)).map(|(_, n)| n).collect()
            };
            let sent = between(messages(graph, entry, from, StepKind::Send), to);
            let received = between(messages(graph, entry, to, StepKind::Recv), from);
            assert_eq!(sent, received, "from {from} to {to}:\n{}", text::print(graph));
            count += sent.len();
        }
    }
    count
}

/// However many nodes of a task use a tensor, it is sent there once.
#[test]
fn a_tensor_is_sent_once_to_each_task_that_uses_it() {
    let source = "graph g
dim B
entry f(x: f32[B]) -> (y: f32[]) {
  h = exp(x) on \"/job:a/task:1\"
  p = sin(h) on \"/job:a/task:2\"
  q = cos(h) on \"/job:a/task:2\"
  r = h + 1.0 on \"/job:a/task:0\"
  return sum(p * q * r)
}
";
    let (graph, _) = cut(source, 3).unwrap();
    assert!(check_messages(&graph, "f", 3) >= 4);
    let sent = messages(&graph, "f", 1, StepKind::Send);
    let h = |to: &str| sent.iter().filter(|(t, n)| t == to && n == "`h`").count();
    assert_eq!((h("/job:a/task:0"), h("/job:a/task:2")), (1, 1), "{sent:?}");
    // Sizes are known from params alone: a part with none of the tensors can be compiled.
    compile(&graph, &PassOptions::default()).unwrap();
}

/// The order that `after` asks for, and that of a check before a write, hold over tasks.
/// What the library computes on the way, such as the norm of all gradients, has no place in
/// the user's text but that of the call.
#[test]
fn messages_name_places_in_the_users_text() {
    let source = "graph m
use optim
var w: f32[4] = ones on \"/job:a/task:0\"
var v: f32[4] = ones on \"/job:a/task:1\"
entry train(x: f32[4]) -> (loss: f32[]) {
  h = w * x on \"/job:a/task:0\"
  loss = sum(h * v) on \"/job:a/task:1\"
  minimize loss over [w, v] through optim.clip_global_norm(limit: 1.0) with optim.adam(lr: 0.1)
  return loss
}
";
    let (graph, _) = cut(source, 2).unwrap_or_else(|d| panic!("{d:?}"));
    let mut of_calls = 0;
    for func in graph.entries.iter().filter(|f| f.task.is_some()) {
        func.walk(&mut |_, node| {
            let lower = &node.op.def().lower;
            if !matches!(lower, Lower::Step(StepKind::Send | StepKind::Recv)) {
                return;
            }
            let name = node.attrs.str("name");
            assert_eq!(node.span.file, 0, "{name} is not in the user's text");
            let text = &source[node.span.lo as usize..node.span.hi as usize];
            of_calls += usize::from(text.contains("optim."));
        });
    }
    assert!(of_calls > 0, "something of the optimizer travels");
}

#[test]
fn order_is_kept_by_empty_messages() {
    let source = "graph g
var a: f32[] = 0 on \"/job:a/task:0\"
var b: f32[] = 0 on \"/job:a/task:1\"
var c: f32[] = 0 on \"/job:a/task:2\"
entry f(x: f32[]) {
  s = assign(a, x)
  assign(b, 2.0) after(s)
}
entry g(x: f32[]) {
  assert(x > 0.0, message: \"positive\") on \"/job:a/task:0\"
  assign(c, 3.0)
}
";
    let (graph, _) = cut(source, 3).unwrap();
    for (entry, to) in [("f", 1), ("g", 2)] {
        assert_eq!(check_messages(&graph, entry, 3), 1, "{}", text::print(&graph));
        assert!(messages(&graph, entry, to, StepKind::Recv)[0].1.starts_with("the news of"));
    }
}

#[test]
fn what_cannot_be_is_an_error_with_both_places() {
    let var = "graph g\nvar w: f32[] = 0 on \"/job:a/task:0\"\n";
    for (source, code, labels) in [
        (format!("{var}entry f(x: f32[]) {{\n  assign(w, x) on \"/job:a/task:1\"\n}}\n"), "E0416", 2),
        (format!("{var}entry f(x: f32[]) {{\n  assign(w, x) on \"/job:b\"\n}}\n"), "E0416", 1),
        (format!("{var}entry f(x: f32[]) {{\n  assign(w, x) on \"/gpu:0\"\n}}\n"), "E0416", 1),
        (
            "graph g\nentry f(x: f32[]) -> (y: f32[]) {\n  (_i, y) = while (i = 0, y = x) i < 3 {\n    \
             z = exp(y) on \"/job:a/task:0\"\n    w = sin(z) on \"/job:a/task:1\"\n    \
             yield i + 1, w\n  }\n  return y\n}\n"
                .to_string(),
            "E0417",
            2,
        ),
        (
            "graph g\nqueue q: fifo(f32[], capacity: 2) on \"/job:a/task:1\"\n\
             entry f() {\n  enqueue(q, 1.0)\n}\n"
                .to_string(),
            "E0416",
            2,
        ),
    ] {
        let diags = cut(&source, 2).err().unwrap_or_else(|| panic!("{source}"));
        assert_eq!(diags[0].code, code, "{source} {diags:?}");
        assert_eq!(diags[0].labels.len(), labels, "{diags:?}");
    }
}

/// A loop or a branch on two tasks, however deep inside and whether or not a gradient is
/// taken of it: both places are named, by what is there and by the task.
#[test]
fn loops_and_branches_on_two_tasks_are_errors_with_both() {
    let (a, b) = ("on \"/job:a/task:0\"", "on \"/job:a/task:1\"");
    let bodies = [
        // The body of a loop.
        format!(
            "(_i, y) = while (i = 0, y = x) i < 3 {{\n z = exp(y) {a}\n w = sin(z) {b}\n \
             yield i + 1, w\n }}"
        ),
        // Its condition and its body.
        format!("(_i, y) = while (i = 0, y = x) low(y) {{\n w = sin(y) {b}\n yield i + 1, w\n }}"),
        // Two branches.
        format!(
            "y = if sum(x) > 0.0 {{\n p = exp(x) {a}\n yield p\n }} else {{\n q = sin(x) {b}\n yield q\n }}"
        ),
        // A branch in a loop, a loop in a branch.
        format!(
            "(_i, y) = while (i = 0, y = x) i < 3 {{\n z = exp(y) {a}\n w = if sum(z) > 0.0 {{\n \
             q = sin(z) {b}\n yield q\n }} else {{ yield z }}\n yield i + 1, w\n }}"
        ),
        format!(
            "y = if sum(x) > 0.0 {{\n p = exp(x) {a}\n (_i, r) = while (i = 0, r = p) i < 3 {{\n \
             w = sin(r) {b}\n yield i + 1, w\n }}\n yield r\n }} else {{ yield x }}"
        ),
    ];
    for body in bodies {
        for gradient in ["sum(y)", "sum(y) + sum(grad(sum(y), wrt: x))"] {
            let source = format!(
                "graph g\nfunc low(y: f32[4]) -> bool[] {{\n s = sin(y) {a}\n return sum(s) < 3.0\n}}\n\
                 entry f(x: f32[4]) -> (t: f32[]) {{\n {body}\n return {gradient}\n}}\n"
            );
            let diags = cut(&source, 2).err().unwrap_or_else(|| panic!("{source}"));
            assert_eq!(diags[0].code, "E0417", "{source} {diags:?}");
            assert_eq!(diags[0].labels.len(), 2, "{source} {diags:?}");
            let said: String = diags[0].labels.iter().map(|l| l.text.as_str()).collect();
            for task in ["/job:a/task:0", "/job:a/task:1"] {
                assert!(said.contains(task), "{source} {said}");
            }
        }
    }
}

/// Without a word from the user: work that can be done at the same time is, when it is
/// worth the messages, and stays together when it is not; the reasons are said.
#[test]
fn unconstrained_nodes_go_where_they_are_done_first() {
    let towers = |n: usize| {
        format!(
            "graph g
dim B: 64..64
var v: f32[{n}, {n}] = 0.5
var w: f32[{n}, {n}] = 0.5
entry f(x: f32[B, {n}]) -> (y: f32[]) {{
  a = tanh(tanh(x @ v) @ v)
  b = tanh(tanh(x @ w) @ w)
  return sum(a) + sum(b)
}}
"
        )
    };
    let (large, reasons) = cut(&towers(1024), 2).unwrap();
    let on = |graph: &Graph, name: &str| {
        graph.vars.values().find(|v| v.name == name).and_then(|v| v.device.clone()).unwrap()
    };
    assert_ne!(on(&large, "v"), on(&large, "w"), "{reasons:#?}");
    let said = reasons.iter().map(Reason::to_string).collect::<Vec<_>>().join("\n");
    assert!(said.contains("of work, done at") && said.contains("on /job:a/task:1"), "{said}");
    let (small, reasons) = cut(&towers(8), 2).unwrap();
    assert_eq!(on(&small, "v"), on(&small, "w"), "{reasons:#?}");
    // `on` wins, whatever it costs.
    let told = towers(8).replace("var w: f32[8, 8] = 0.5", "var w: f32[8, 8] = 0.5 on \"/task:1\"");
    let (told, reasons) = cut(&told, 2).unwrap();
    assert_eq!(&*on(&told, "w"), "/job:a/task:1/cpu:0");
    assert!(reasons.iter().any(|r| r.why == "`w` is on `/task:1`"), "{reasons:#?}");
}

/// Many nodes on random tasks: the parts agree on what they send each other.
#[test]
fn random_placements_are_cut_consistently() {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut random = |n: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % n
    };
    for _ in 0..40 {
        let mut body = String::new();
        let mut names = vec!["x".to_string()];
        for i in 0..20 {
            let pick = |r: u64| names[r as usize % names.len()].clone();
            let (a, b) = (pick(random(99)), pick(random(99)));
            let task = random(4);
            body += &format!("  v{i} = {a} * {b} + {i}.5 on \"/job:a/task:{task}\"\n");
            if random(4) == 0 {
                body += &format!("  assign(w{task}, v{i})\n");
            }
            names.push(format!("v{i}"));
        }
        let vars: String =
            (0..4).map(|t| format!("var w{t}: f32[3] = 0 on \"/job:a/task:{t}\"\n")).collect();
        let source = format!(
            "graph g\n{vars}entry f(x: f32[3]) -> (y: f32[3]) {{\n{body}  return v19\n}}\n"
        );
        let (graph, _) = cut(&source, 4).unwrap();
        assert!(check_messages(&graph, "f", 4) > 0);
        let printed = text::print(&graph);
        text::same(&graph, &load(&printed)).unwrap_or_else(|e| panic!("{e}\n{printed}"));
        compile(&graph, &PassOptions::default()).unwrap();
    }
}
