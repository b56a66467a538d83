//! Layers and models: how many weights there are, what they are called, and that
//! they are the same ones wherever they are used.

use ndarray::{ArrayD, arr2};
use tfc::{Module, Result};

fn module(text: &str) -> Result<Module> {
    tfc::compile(&tfc::parse(text)?)
}

/// The variables of a graph, without the slots of optimizers.
fn weights(text: &str) -> Vec<String> {
    vars(text).into_iter().filter(|(_, user)| *user).map(|(name, _)| name).collect()
}

fn slots(text: &str) -> Vec<String> {
    vars(text).into_iter().filter(|(_, user)| !*user).map(|(name, _)| name).collect()
}

fn vars(text: &str) -> Vec<(String, bool)> {
    let graph = tfc::parse(text).unwrap_or_else(|e| panic!("{e}"));
    graph.vars.values().map(|v| (v.name.clone(), v.user)).collect()
}

fn array(module: &Module, name: &str) -> ArrayD<f32> {
    module.var::<f32>(name).unwrap_or_else(|e| panic!("{e}"))
}

/// user 1: both calls of one model see one set of weights.
#[test]
fn two_calls_of_a_model_in_one_entry_share_its_weights() -> Result<()> {
    let module = module(
        "graph s\nuse layer\ndim B\nmodel d(x: f32[N, 3]) -> f32[N, 1] { return layer.dense(x, units: 1) }\n\
         entry f(x: f32[B, 3]) -> (a: f32[B, 1], b: f32[B, 1]) { return d(x), d(x) }\n",
    )?;
    let out = module.call("f", (&arr2(&[[1.0f32, 2.0, 3.0]]),))?;
    assert_eq!(out.array::<f32>("a")?, out.array::<f32>("b")?);
    assert_eq!(module.weights(), ["d.dense.w", "d.dense.b"]);
    Ok(())
}

/// user 1: a textbook GAN, the discriminator called on real and made-up pictures.
#[test]
fn a_gan_has_one_discriminator() -> Result<()> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/models/gan.graph");
    let text = std::fs::read_to_string(path).expect("the example");
    let judged = text.lines().filter(|l| !l.starts_with("model") && l.contains("discriminator("));
    assert_eq!(judged.count(), 2, "called on real and on fake");
    let names = weights(&text);
    let of = |model: &str| names.iter().filter(|n| n.starts_with(model)).count();
    assert_eq!((of("discriminator."), of("generator."), names.len()), (6, 6, 12), "{names:?}");
    assert_eq!(slots(&text).len(), 3 * 12);
    Ok(())
}

/// user 1: one encoder for two sentences. With the same input the distance is zero,
/// and stays so while it is trained.
#[test]
fn a_siamese_encoder_is_one_encoder() -> Result<()> {
    let module = module(
        "graph pairs\nuse layer\nuse optim\ndim B\n\
         layer block(x: f32[N, I], units) { return tanh(layer.dense(x, units: units)) }\n\
         model encoder(x: f32[N, 4]) -> f32[N, 2] { return block(block(x, 3), 2) }\n\
         func distance(a, b) { return mean((encoder(a) - encoder(b)) ** 2) }\n\
         entry far(a: f32[B, 4], b: f32[B, 4]) -> (d: f32[]) { return distance(a, b) }\n\
         entry train(a: f32[B, 4], b: f32[B, 4]) -> (loss: f32[]) {\n  \
         loss = distance(a, b)\n  minimize loss over [encoder] with optim.sgd(lr: 0.1)\n  return loss\n}\n",
    )?;
    let (a, b) = (arr2(&[[1.0f32, 2.0, -1.0, 0.5]]), arr2(&[[0.5f32, -1.0, 2.0, 1.0]]));
    assert_eq!(module.call("far", (&a, &a))?.scalar::<f32>("d")?, 0.0);
    let first = module.call("train", (&a, &b))?.scalar::<f32>("loss")?;
    for _ in 0..50 {
        module.call("train", (&a, &b))?;
    }
    let last = module.call("far", (&a, &b))?.scalar::<f32>("d")?;
    assert!(last < 0.1 * first, "{first} to {last}");
    assert_eq!(module.call("far", (&b, &b))?.scalar::<f32>("d")?, 0.0);
    assert_eq!(
        module.weights(),
        [
            "encoder.block.dense.w",
            "encoder.block.dense.b",
            "encoder.block_2.dense.w",
            "encoder.block_2.dense.b"
        ]
    );
    Ok(())
}

/// user 1: validation in a training entry sees the weights that are trained, as the
/// step has left them.
#[test]
fn validation_in_a_training_entry_uses_the_trained_weights() -> Result<()> {
    let module = module(
        "graph v\nuse layer\nuse optim\ndim B\nmodel net = layer.dense(units: 1)\n\
         entry score(x: f32[B, 2]) -> (y: f32[B, 1]) { return net(x) }\n\
         entry train(x: f32[B, 2], held: f32[B, 2]) -> (before: f32[B, 1], after: f32[B, 1]) {\n  \
         before = net(held)\n  minimize mean((net(x) - 1.0) ** 2) with optim.sgd(lr: 0.1)\n  \
         return before, net(held)\n}\n",
    )?;
    let (x, held) = (arr2(&[[1.0f32, 2.0]]), arr2(&[[3.0f32, -1.0]]));
    let start = module.call("score", (&held,))?.array::<f32>("y")?;
    let out = module.call("train", (&x, &held))?;
    assert_eq!(out.array::<f32>("before")?, start);
    let end = module.call("score", (&held,))?.array::<f32>("y")?;
    assert_eq!(out.array::<f32>("after")?, end);
    assert_ne!(start, end);
    Ok(())
}

/// A validation that happens only now and then leaves the weights trainable.
#[test]
fn a_model_called_in_a_branch_is_still_trained() -> Result<()> {
    let module = module(
        "graph v\nuse layer\nuse nn\nuse optim\nmodel net = layer.dense(units: 1)\nvar step: i32[] = 0\n\
         entry train(x: f32[1, 2]) -> (seen: f32[]) {\n  loss = mean((net(x) - 1.0) ** 2)\n  step += 1\n  \
         seen = if step % 2 == 0 { yield mean(net(x)) } else { yield 0.0 }\n  \
         minimize loss with optim.sgd(lr: 0.1)\n  return seen\n}\n",
    )?;
    let before = array(&module, "net.w");
    module.call("train", (&arr2(&[[1.0f32, 2.0]]),))?;
    assert_ne!(array(&module, "net.w"), before);
    Ok(())
}

/// user 7: a target network is a second model of one layer, and follows the first
/// by path. It starts as a copy.
#[test]
fn a_target_network_follows_by_path() -> Result<()> {
    let module = module(
        "graph q\nuse layer\nuse optim\ndim B\n\
         layer critic(x: f32[N, I], units = 8) -> f32[N, 2] {\n  \
         return layer.dense(relu(layer.dense(x, units: units)), units: 2) as out\n}\n\
         model q1 = critic(units: 4)\nmodel q2 = critic(units: 4)\n\
         init { for t in q2, s in q1 { assign(t, s) } }\n\
         entry train(x: f32[B, 3], goal: f32[B, 2]) -> (loss: f32[]) {\n  \
         loss = mean((q1(x) - goal - 0.9 * stop_gradient(q2(x))) ** 2)\n  \
         minimize loss with optim.adam(lr: 0.1)\n  return loss\n}\n\
         entry sync() { assign(q2.out.w, q1.out.w) }\n\
         entry follow() { for t in q2, s in q1 { assign(t, 0.5 * t + 0.5 * s) } }\n",
    )?;
    let names = ["dense.w", "dense.b", "out.w", "out.b"];
    let both =
        |name: &str| (array(&module, &format!("q1.{name}")), array(&module, &format!("q2.{name}")));
    for name in names {
        let (a, b) = both(name);
        assert_eq!(a, b, "{name} starts as a copy");
    }
    module.call("train", (&arr2(&[[1.0f32, 2.0, 3.0]]), &arr2(&[[1.0f32, 0.0]])))?;
    let (a, b) = both("out.w");
    assert_ne!(a, b, "only the first is trained");
    module.call("sync", ())?;
    let (a, b) = both("out.w");
    assert_eq!(a, b);
    let (a, b) = both("out.b");
    assert_ne!(a, b, "only what was named");
    let half = 0.5 * &b + 0.5 * &a;
    module.call("follow", ())?;
    assert_eq!(both("out.b").1, half);
    Ok(())
}

const NET: &str = "use layer\nuse optim\ndim B\nlet DEEP = true\n\
    model net(x: f32[N, 4]) -> f32[N, 1] {\n\
    h = layer.dense(x, units: 4)\n\
    // here\n\
    g = if DEEP { yield layer.dense(h, units: 4) } else { yield h }\n\
    for i in 0..2 {\n g = g + layer.layer_norm(g)\n}\n\
    k = [layer.dense(g, units: 1) as heads for i in 0..2]\n\
    return layer.dense(relu(layer.dense(g, units: 4)), units: 1) + k[0] + k[1]\n}\n\
    entry f(x: f32[B, 4]) -> f32[B, 1] {\n // and here\n return net(x)\n}\n";

fn named(text: &str, ty: &str) -> Vec<String> {
    weights(text).into_iter().filter(|n| n.ends_with(ty)).collect()
}

/// Names come from the text, so that an unrelated change keeps checkpoints fitting.
#[test]
fn names_stay_when_unrelated_lines_change() {
    let all = weights(NET);
    let want = [
        "net.dense.w",
        "net.dense.b",
        "net.dense_2.w",
        "net.dense_2.b",
        "net.layer_norm.0.gain",
        "net.layer_norm.0.bias",
        "net.layer_norm.1.gain",
        "net.layer_norm.1.bias",
        "net.heads.0.w",
        "net.heads.0.b",
        "net.heads.1.w",
        "net.heads.1.b",
        "net.dense_3.w",
        "net.dense_3.b",
        "net.dense_4.w",
        "net.dense_4.b",
    ];
    assert_eq!(all, want);
    // What an `if` leaves out does not renumber the rest.
    let shallow = NET.replace("DEEP = true", "DEEP = false");
    let left: Vec<String> = all.iter().filter(|n| !n.contains("dense_2.")).cloned().collect();
    assert_eq!(weights(&shallow), left);
    // Values, other calls, another model, and a layer that has a name of its own.
    let ways = [
        ("// here", "h = relu(h * 2.0)"),
        ("// here", "h = layer.layer_norm(h) as first"),
        ("// here", "h = layer.dense(h, units: 4) as extra"),
        ("// and here", "y = net(x)"),
        ("// and here", "z = other(x)"),
        ("entry f", "entry g(x: f32[B, 4]) -> f32[B, 1] {\n return net(x)\n}\nentry f"),
    ];
    for (place, text) in ways {
        let other = "model other(x: f32[N, 4]) { return layer.dense(x, units: 3) }\n";
        let changed = format!("{}{other}", NET.replace(place, text));
        let mut now = weights(&changed);
        now.retain(|n| all.contains(n));
        assert_eq!(now, all, "{text}");
    }
    assert_eq!(
        named(&NET.replace("// here", "h = layer.dense(h, units: 4) as extra"), "extra.w"),
        ["net.extra.w"]
    );
}

/// user 7: slots have short names: the optimizer, the variable, the slot.
#[test]
fn slots_go_by_the_optimizer_and_the_variable() {
    let text = |minimize: &str| {
        format!(
            "use layer\nuse optim\nmodel net = layer.dense(units: 1)\nvar s: f32[] = 1.0\n\
             func twice(var p, grad) {{\n optim.momentum(p, grad)\n optim.adam(p, grad)\n optim.adam(p, grad) as more\n}}\n\
             func counted(var p, grad) {{\n var n: i64[] = zeros\n n += 1\n optim.momentum(p, grad)\n}}\n\
             func each(var ..ps, grads) {{\n for p in ps, g in grads {{ optim.momentum(p, g) }}\n}}\n\
             entry f(x: f32[1, 2]) {{\n loss = sum(net(x)) * s\n {minimize}\n}}\n"
        )
    };
    let of = |minimize: &str| slots(&text(minimize));
    assert_eq!(
        of("minimize loss over [net.w] with optim.adamw()"),
        ["adamw.net.w.m", "adamw.net.w.v", "adamw.net.w.t"]
    );
    assert_eq!(of("minimize loss over [s] with optim.sgdw as slow"), ["slow.s.v"]);
    assert_eq!(
        of("minimize loss over [s] with twice"),
        [
            "twice.s.momentum.v",
            "twice.s.adam.m",
            "twice.s.adam.v",
            "twice.s.adam.t",
            "twice.s.more.m",
            "twice.s.more.v",
            "twice.s.more.t"
        ]
    );
    assert_eq!(of("minimize loss over [s] with counted"), ["counted.s.n", "counted.s.momentum.v"]);
    assert_eq!(of("minimize loss over [net.w, s] with each"), ["each.net.w.v", "each.s.v"]);
    let lbfgs = of("minimize loss with optim.lbfgs()");
    assert_eq!(lbfgs[0], "lbfgs.steps");
}

/// values 6: the rounds of a `for` go on with one momentum.
#[test]
fn minimize_in_a_for_owns_one_state() -> Result<()> {
    let text = "graph m\nuse optim\nvar p: f32[] = 1.0\n\
         entry train() -> (p: f32[]) {\n  for i in 0..2 {\n    \
         minimize p * p over [p] with optim.momentum(lr: 0.1, beta: 0.9)\n  }\n  return p\n}\n";
    assert_eq!(slots(text), ["momentum.p.v"]);
    let out = module(text)?.call("train", ())?.scalar::<f32>("p")?;
    assert!((out - 0.46).abs() < 1e-6, "{out}");
    Ok(())
}

/// user 7: weights are read, written, tied, averaged and saved by their paths, in
/// entries that do not call the model, before those that do, and in the model.
#[test]
fn weights_are_variables_like_any_other() -> Result<()> {
    let module = module(
        "graph first_class\nuse layer\nuse nn\nuse optim\ndim B\n\
         entry early() -> (size: f32[], all: f32[]) {\n  \
         return nn.l2(net.code.w), sum(stack([sum(w * w) for w in net]))\n}\n\
         var best: f32[3, 2] = net.code.w\n\
         entry average() { assign(best, 0.5 * best + 0.5 * net.code.w) }\n\
         entry set(w: f32[3, 2]) {\n  assign(net.code.w, w)\n  net.code.b += 1.0\n}\n\
         model net(x: f32[N, 3]) -> f32[N, 3] {\n  h = layer.dense(x, units: 2) as code\n  \
         return h @ transpose(net.code.w) + sum(code.b)\n}\n\
         entry keep() { save(net, path: \"kept\") }\n\
         entry back() { restore(net, path: \"kept\") }\n\
         entry run(x: f32[B, 3]) -> (y: f32[B, 3]) { return net(x) }\n\
         entry train(x: f32[B, 3]) {\n  \
         minimize nn.mse(net(x), x) over [net.code.w] with optim.sgd(lr: 0.1)\n}\n",
    )?;
    let dir = std::env::temp_dir().join(format!("tfc-sharing-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    module.model().set_directory(&dir);
    assert_eq!(array(&module, "best"), array(&module, "net.code.w"));
    let w = arr2(&[[1.0f32, 0.0], [0.0, 2.0], [3.0, 0.0]]);
    module.call("set", (&w,))?;
    assert_eq!(array(&module, "net.code.b").as_slice(), Some(&[1.0f32, 1.0][..]));
    let out = module.call("early", ())?;
    assert_eq!(out.scalar::<f32>("size")?, 7.0);
    assert_eq!(out.scalar::<f32>("all")?, 16.0);
    let y = module.call("run", (&arr2(&[[1.0f32, 1.0, 1.0]]),))?.array::<f32>("y")?;
    // h = [4 + 1, 2 + 1]; h @ w^T + 2
    assert_eq!(y.as_slice(), Some(&[7.0f32, 8.0, 17.0][..]));
    module.call("keep", ())?;
    module.call("train", (&arr2(&[[1.0f32, 1.0, 1.0]]),))?;
    assert_ne!(array(&module, "net.code.w"), w.clone().into_dyn());
    module.call("back", ())?;
    assert_eq!(array(&module, "net.code.w"), w.into_dyn());
    std::fs::remove_dir_all(&dir).expect("removed");
    Ok(())
}

/// Models of another file go by the name the file has here.
#[test]
fn a_model_of_another_file() -> Result<()> {
    let dir = std::env::temp_dir().join(format!("tfc-nets-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("written");
    write(
        "nets.graph",
        "use layer\nmodel encoder = layer.dense(units: 2)\nlayer wide(x) { return layer.dense(x, units: 8) }\n",
    );
    write(
        "losses.graph",
        "use \"nets.graph\" as n\nfunc size(x) { return sum(n.encoder(x) ** 2) + sum(n.encoder.w) }\n",
    );
    write(
        "main.graph",
        "use \"losses.graph\" as losses\nuse \"nets.graph\" as nets\nuse optim\nmodel big = nets.wide()\n\
         entry f(x: f32[1, 3]) -> (y: f32[1, 2]) { return nets.encoder(x) }\n\
         entry g(x: f32[1, 3]) -> (y: f32[1, 8]) { return big(x) }\n\
         entry train(x: f32[1, 3]) {\n  minimize losses.size(x) over [nets.encoder] with optim.momentum()\n}\n",
    );
    let graph = tfc::load(dir.join("main.graph"))?;
    let names: Vec<&str> = graph.vars.values().map(|v| v.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "nets.encoder.w",
            "nets.encoder.b",
            "big.dense.w",
            "big.dense.b",
            "momentum.nets.encoder.w.v",
            "momentum.nets.encoder.b.v"
        ]
    );
    std::fs::remove_dir_all(&dir).expect("removed");
    Ok(())
}

/// Running averages of a model called in a loop and read there by path are those of
/// the round.
#[test]
fn what_a_model_writes_in_a_loop_is_read_in_every_round() -> Result<()> {
    let module = module(
        "graph loops\nmodel counter() -> f32[] {\n  var n: f32[] = 0.0\n  n += 1.0\n  return n\n}\n\
         entry f() -> (total: f32[]) {\n  \
         (i, total) = while (i = 0, total = 0.0) i < 3 {\n    before = counter.n\n    \
         now = counter()\n    yield i + 1, total + 10.0 * before + now\n  }\n  return total\n}\n",
    )?;
    // 10 * (0 + 1 + 2) + (1 + 2 + 3)
    assert_eq!(module.call("f", ())?.scalar::<f32>("total")?, 36.0);
    assert_eq!(module.var::<f32>("counter.n")?.sum(), 3.0);
    Ok(())
}

/// user 8: PyTorch's bias fits.
#[test]
fn the_bias_of_a_convolution_has_one_axis() -> Result<()> {
    let module = module(
        "graph c\nuse layer\nmodel conv = layer.conv(filters: 2, kernel: 1)\n\
         entry f(x: f32[1, 1, 2, 2]) -> (y: f32[1, 2, 2, 2]) { return conv(x) }\n",
    )?;
    assert_eq!(array(&module, "conv.bias").shape(), [2]);
    Ok(())
}
