//! The Rust builder: mistakes are told at the Rust line that made them, and
//! nothing panics.

use ndarray::{Array2, array, s};
use tfc::{Arg, DType::*, GraphBuilder, Init, Node, Result};

/// The codes of what is wrong, and the message.
fn refused(g: &GraphBuilder) -> (Vec<&'static str>, String) {
    let error = match g.compile() {
        Ok(_) => panic!("this compiles:\n{}", g.to_text()),
        Err(e) => e,
    };
    (error.diags.iter().map(|d| d.code).collect(), error.to_string())
}

fn only(g: &GraphBuilder, code: &str) -> String {
    let (codes, text) = refused(g);
    assert_eq!(codes, [code], "{text}");
    assert!(text.contains("tests/builder.rs:"), "no line of Rust: {text}");
    text
}

/// A graph with more nodes than `own`, and its last one.
fn larger(init: impl Fn(&GraphBuilder, &str) -> Node) -> Node {
    let g = GraphBuilder::new("larger");
    (0..20).map(|i| init(&g, &format!("p{i}"))).last().unwrap()
}

#[test]
fn nodes_of_another_graph_are_refused() {
    type Use = fn(&GraphBuilder, &Node, &Node, &Node);
    let uses: &[Use] = &[
        |g, x, other, _| drop(g.entry("e", &[x], &[("y", &(x + other))])),
        |g, x, other, _| drop(g.entry("e", &[x], &[("y", &(other + x))])),
        |g, x, other, _| drop(g.entry("e", &[x], &[("y", &x.matmul(other))])),
        |g, x, other, _| drop(g.entry("e", &[x], &[("y", &x.sum().grad(&[other])[0])])),
        |g, x, other, _| drop(g.entry("e", &[x, other], &[("y", other)])),
        |g, x, other, _| {
            let attrs = [("w", Arg::from(other))];
            drop(g.entry("e", &[x], &[("y", &g.op("nn.dense", &[x], &attrs))]))
        },
        |g, _, _, other| drop(g.entry("e", &[], &[]).with(&[&other.assign(1.0)])),
        |g, _, _, other| {
            let w = g.var("w", F32, 3, 0.0);
            drop(g.entry("e", &[], &[]).with(&[&w.assign(other)]))
        },
        |g, _, _, other| {
            let w = g.var("w", F32, 3, 0.0);
            let step = g.minimize(&w.sum(), &[&w, other], "optim.sgd", &[]);
            drop(g.entry("e", &[], &[]).with(&[&step]))
        },
        |g, _, _, other| {
            let w = g.var("w", F32, 3, 0.0);
            let step = g.minimize(&other.sum(), &[&w], "optim.sgd", &[]);
            drop(g.entry("e", &[], &[]).with(&[&step]))
        },
    ];
    for (i, of) in uses.iter().enumerate() {
        // The other graph's nodes have numbers this one has, and numbers it has not.
        for far in [false, true] {
            let g = GraphBuilder::new("g");
            let x = g.input("x", F32, 3);
            let near = GraphBuilder::new("near");
            let (input, var) = match far {
                true => (
                    larger(|g, name| g.input(name, F32, 3)),
                    larger(|g, name| g.var(name, F32, 3, 0.0)),
                ),
                false => (near.input("a", F32, 3), near.var("b", F32, 3, 0.0)),
            };
            of(&g, &x, &input, &var);
            let (codes, text) = refused(&g);
            assert!(codes.contains(&"E0123"), "{i}: {text}");
            assert!(text.contains("of another graph"), "{i}: {text}");
        }
    }
}

#[test]
fn words_of_the_language_are_no_names() {
    for name in ["if", "f32", "entry", "true"] {
        let g = GraphBuilder::new("g");
        let x = g.input(name, F32, 3);
        g.entry("e", &[&x], &[("y", &(&x + 1.0))]);
        let text = only(&g, "E0107");
        assert!(text.contains(&format!("such as `{name}_`")), "{text}");

        let g = GraphBuilder::new("g");
        let x = g.input("x", F32, 3);
        g.entry(name, &[&x], &[("y", &x)]);
        only(&g, "E0107");

        let g = GraphBuilder::new("g");
        let x = g.input("x", F32, 3);
        g.entry("e", &[&x], &[(name, &x)]);
        only(&g, "E0107");
    }
    for name in ["", "a b", "é", "x.y", "1st"] {
        let g = GraphBuilder::new(name);
        let x = g.input("x", F32, 3);
        g.entry("e", &[&x], &[("y", &x)]);
        only(&g, "E0104");
    }
}

#[test]
fn a_suggested_edit_never_cuts_into_rust() {
    let g = GraphBuilder::new("g");
    let x = g.input("x", F32, 3);
    let y = g.op("rleu", &[&x], &[]);
    g.entry("e", &[&x], &[("y", &y)]);
    let text = only(&g, "E0126");
    assert!(text.contains("did you mean `relu`?"), "{text}");
    assert!(!text.contains(" + "), "{text}");
}

#[test]
fn inputs_are_listed_and_made_to_be_fed() {
    let g = GraphBuilder::new("g");
    let x = g.input("x", F32, 3);
    let y = &x + 1.0;
    g.entry("e", &[], &[("y", &y)]);
    let text = only(&g, "E0123");
    assert!(text.contains("`e` needs `x`"), "{text}");

    let g = GraphBuilder::new("g");
    let x = g.input("x", F32, 3);
    let y = &x + 1.0;
    g.entry("e", &[&x, &y], &[("y", &y)]);
    only(&g, "E0140");
}

#[test]
fn ranges_of_dims_are_checked() {
    #[allow(clippy::reversed_empty_ranges)]
    for range in [5..=2, -1..=4] {
        let g = GraphBuilder::new("g");
        let b = g.dim("B", range);
        let x = g.input("x", F32, b);
        g.entry("e", &[&x], &[("y", &x)]);
        only(&g, "E0114");
    }
    let g = GraphBuilder::new("g");
    g.dim("if", 1..=2);
    g.entry("e", &[], &[("y", &g.constant(&array![1.0f32]))]);
    only(&g, "E0107");
}

#[test]
fn strings_arrive_as_they_were_given() -> Result<()> {
    let g = GraphBuilder::new("g");
    g.doc("a \"doc\"\nof two lines // and slashes");
    let x = g.input("x", F32, 1);
    let told = "é \"b\\c\n\t\u{7} u{7} \u{7f}";
    let positive = x.gt(0.0).assert(told);
    g.entry("e", &[&x], &[("y", &x)]).with(&[&positive]);
    let module = g.compile()?;
    let error = module.call("e", (&array![-1.0f32],)).unwrap_err();
    assert_eq!(error.code(), "E0509");
    assert!(error.to_string().contains("u{7}"), "{error}");
    assert!(error.diags[0].message.contains(told), "{:?}", error.diags[0].message);
    Ok(())
}

#[test]
fn any_layout_is_fed_and_numbers_take_the_type_they_meet() -> Result<()> {
    let g = GraphBuilder::new("g");
    let x = g.input("x", F32, ("B", 3));
    let y = 2 * &x + 1.0 - &x / 2.0f32;
    g.entry("e", &[&x], &[("y", &y)]);
    let module = g.compile()?;
    let big = Array2::from_shape_fn((4, 6), |(i, j)| (i * 10 + j) as f32);
    let tall = Array2::from_shape_fn((3, 5), |(i, j)| (i * 10 + j) as f32);
    for view in [big.slice(s![..;-1, ..;2]), tall.t(), big.slice(s![4.., ..3])] {
        let want = view.mapv(|v| 1.5 * v + 1.0);
        let got = module.call("e", (&view,))?.array::<f32>("y")?;
        assert_eq!(got, want.into_dyn());
    }
    let code = |e: tfc::Error| e.code().to_string();
    assert_eq!(module.call("e", (&array![[1f64, 2., 3.]],)).map_err(code).unwrap_err(), "E0503");
    assert_eq!(module.call("e", (&array![1f32, 2., 3.],)).map_err(code).unwrap_err(), "E0504");
    assert_eq!(module.call("e", (&array![[1f32, 2.]],)).map_err(code).unwrap_err(), "E0505");
    assert_eq!(module.call("e", ()).map_err(code).unwrap_err(), "E0501");
    assert_eq!(module.var::<f32>("w").map_err(code).unwrap_err(), "E0605");
    Ok(())
}

/// A runner fills a queue from another, and an entry takes batches from it.
#[test]
fn queues_and_runners_are_built() -> Result<()> {
    let g = GraphBuilder::new("pipeline");
    let raw =
        g.queue("raw", "fifo", &[(F32, 2.into()), (I32, ().into())], &[("capacity", 4.into())]);
    let done = g.queue("done", "fifo", &[(F32, 2.into())], &[("capacity", 4.into())]);
    let element = raw.dequeue();
    let scaled = &element[0] * 2.0 + element[1].cast(F32);
    g.runner("scale").with(&[&done.enqueue(&[&scaled])]);
    let batch = done.dequeue_many(3);
    assert_eq!(batch[0].ty().unwrap().to_string(), "f32[3, 2]");
    g.entry("next", &[], &[("rows", &batch[0])]);
    let rows = g.input("rows", F32, ("B", 2));
    let ids = g.input("ids", I32, "B");
    g.entry("fill", &[&rows, &ids], &[]).with(&[&raw.enqueue_many(&[&rows, &ids])]);
    g.entry("waiting", &[], &[("n", &raw.size())]);
    g.entry("end", &[], &[]).with(&[&raw.close()]);

    let module = g.compile()?;
    module.call("fill", (&array![[1f32, 2.], [3., 4.], [5., 6.]], &array![0i32, 1, 2]))?;
    assert_eq!(module.call("waiting", ())?.scalar::<i64>("n")?, 3);
    module.call("end", ())?;
    let runners = module.start_runners("next")?;
    let rows = module.call("next", ())?.array::<f32>("rows")?;
    assert_eq!(rows, array![[2f32, 4.], [7., 9.], [12., 14.]].into_dyn());
    assert!(module.call("next", ()).unwrap_err().is_end_of_input());
    runners.finish()?;
    Ok(())
}

#[test]
fn a_queue_is_told_what_is_wrong_with_it() {
    let g = GraphBuilder::new("g");
    let q = g.queue("q", "fifo", &[(F32, 2.into())], &[("capacity", 4.into())]);
    let x = g.input("x", F32, 3);
    g.entry("e", &[&x], &[]).with(&[&q.enqueue(&[&x])]);
    only(&g, "E0445");

    let g = GraphBuilder::new("g");
    let q = g.queue("q", "lifo", &[(F32, 2.into())], &[("capacity", 4.into())]);
    g.entry("e", &[], &[("y", &q.dequeue()[0])]);
    let (codes, text) = refused(&g);
    assert_eq!(codes[0], "E0442", "{text}");

    let g = GraphBuilder::new("g");
    let w = g.var("w", F32, 2, Init::zeros());
    g.runner("r").with(&[&w.assign_add(1.0)]);
    g.entry("e", &[], &[("w", &w)]);
    only(&g, "E0450");
}

#[test]
fn branches_and_loops_are_built_from_closures() -> Result<()> {
    let g = GraphBuilder::new("flow");
    let x = g.input("x", F32, "N");
    let n = g.input("n", I64, ());
    let calls = g.var("calls", I64, (), 0);
    let big = g.var("big", I64, (), Init::from(1i64 << 60));
    let zero = g.constant(0i64);
    // A branch inside a loop, an update inside the branch, and names from outside.
    let out = g.while_loop(
        &[&zero, &x],
        |v| v[0].lt(&n),
        |v| {
            let odd = (&v[0] % 2).eq(1);
            let next = g.if_else(
                &odd,
                || {
                    calls.assign_add(1);
                    vec![&v[1] + &x]
                },
                || vec![&v[1] * 2.0],
            );
            vec![&v[0] + 1, next[0].clone()]
        },
    );
    let count = g.when(&n.gt(3), || {
        big.assign_add(1);
    });
    g.entry("run", &[&x, &n], &[("rounds", &out[0]), ("y", &out[1])]).with(&[&count]);
    let module = g.compile()?;
    let out = module.call("run", (&array![1.0f32, 10.0], 4i64))?;
    // ((x * 2 + x) * 2) + x
    assert_eq!(out.array::<f32>("y")?, array![7.0, 70.0].into_dyn());
    assert_eq!(out.scalar::<i64>("rounds")?, 4);
    assert_eq!(module.var::<i64>("calls")?.first(), Some(&2));
    // Exact, where a float would not be.
    assert_eq!(module.var::<i64>("big")?.first(), Some(&((1i64 << 60) + 1)));
    module.call("run", (&array![1.0f32], 3i64))?;
    assert_eq!(module.var::<i64>("big")?.first(), Some(&((1i64 << 60) + 1)));
    Ok(())
}

#[test]
fn functions_are_defined_once_and_called_often() -> Result<()> {
    let g = GraphBuilder::new("functions");
    let scale = g.var("scale", F32, (), 3.0);
    g.func("scaled", &[("value", F32, "N".into())], |p| vec![&p[0] * &scale]);
    g.define("func total(parts) { return parts[0] + parts[1] }");
    let (x, y) = (g.input("x", F32, "N"), g.input("y", F32, 2));
    let a = g.op("scaled", &[&x], &[]);
    let b = g.op("scaled", &[], &[("value", (&y).into())]);
    let both = g.op("total", &[], &[("parts", vec![a.sum(), b.sum()].into())]);
    g.entry("f", &[&x, &y], &[("s", &both)]);
    assert!(g.to_text().contains("func scaled(value)"), "{}", g.to_text());
    let s: f32 = g.compile()?.call("f", (&array![1.0f32], &array![2.0f32, 3.0]))?.into_arrays()?;
    assert_eq!(s, 18.0);
    Ok(())
}

#[test]
fn mistakes_in_blocks_are_told_at_their_line() {
    let g = GraphBuilder::new("wrong");
    let x = g.input("x", F32, ());
    let y = g.if_else(&x.gt(0.0), || vec![x.clone()], Vec::new);
    assert!(y.is_empty());
    only(&g, "E0433");

    let g = GraphBuilder::new("wrong");
    let x = g.input("x", F32, ());
    let y = g.if_else(&x.gt(0.0), || vec![x.clone()], || vec![x.gt(1.0)]);
    g.entry("f", &[&x], &[("y", &y[0])]);
    only(&g, "E0433");

    let g = GraphBuilder::new("wrong");
    let x = g.input("x", F32, ());
    let mut inner = None;
    g.while_loop(
        &[&x],
        |v| v[0].gt(0.0),
        |v| {
            inner = Some(&v[0] + 1.0);
            vec![&v[0] - 1.0]
        },
    );
    g.entry("f", &[&x], &[("y", &inner.unwrap())]);
    only(&g, "E0123");

    let g = GraphBuilder::new("wrong");
    let x = g.input("x", F32, ());
    g.func("f", &[("a", F32, ().into())], |p| vec![&p[0] + &x]);
    only(&g, "E0123");
}
