//! Numbers in the text have a value and no type of their own.

use tfc_ir::diag::Severity;
use tfc_ir::interp::{self, State};
use tfc_ir::text::load_str;
use tfc_ir::{Attr, DType, Graph, Tensor};

fn good(text: &str) -> Graph {
    let (graph, diags, _) = load_str("test.graph", text);
    assert!(diags.is_empty(), "{diags:#?}\n{text}");
    graph.expect("no error, so a graph")
}

fn run(text: &str, feeds: &[Tensor]) -> Vec<f64> {
    let graph = good(text);
    let mut state = State::new(&graph).expect("initial values");
    let results = interp::run(&graph, "f", feeds, &mut state).expect("runs");
    results[0].to_f64()
}

/// One entry that returns the expression as an `f64`.
fn value(expr: &str) -> f64 {
    run(&format!("entry f() -> f64[] {{\n  y: f64[] = {expr}\n  return y\n}}\n"), &[])[0]
}

/// The error of a text: code, message, and the text its fix puts in place.
fn bad(text: &str) -> (String, String, String) {
    let (_, diags, _) = load_str("test.graph", text);
    let diag = diags.iter().find(|d| d.severity == Severity::Error).expect("an error");
    let fix = diag.help.iter().find_map(|h| h.edit.as_ref()).map(|(_, text)| text.clone());
    let fix = fix.unwrap_or_default();
    (diag.code.to_string(), diag.message.clone(), fix)
}

// user 4: `1/10` was 0.
#[test]
fn quotients_are_exact_where_a_float_is_wanted() {
    assert_eq!(value("1 / 10"), 0.1);
    assert_eq!(value("1 / 3 * 3"), 1.0);
    assert_eq!(value("-7 / 2"), -3.5);
    assert_eq!(value("7 / 2 / 2"), 1.75);
    assert_eq!(value("2 ** -2"), 0.25);
    assert_eq!(value("(1 / 2) ** 3"), 0.125);
    assert_eq!(value("7 % 2 + 1 / 4"), 1.25);
    assert_eq!(value("-(1 / 4)"), -0.25);
    assert_eq!(value("0.5 * (1 / 2)"), 0.25);
    assert_eq!(value("maximum(1 / 3, 1 / 2)"), 0.5);
    assert_eq!(value("sqrt(1 / 4)"), 0.5);
}

// user 4
#[test]
fn quotients_stay_exact_through_lets_defaults_and_functions() {
    let text = "
        let LR = 1 / 10
        let HALF = LR * 5
        func scale(x, by = 1 / 4) { return x * by }
        func ratio(a, b) { return a / b }
        entry f(x: f32[]) -> f32[4] {
            return stack(x * LR, x * HALF, scale(x), x * ratio(3, 4))
        }";
    let x = Tensor::from_f64(DType::F32, vec![], [2.0]);
    assert_eq!(run(text, &[x]), [f64::from(0.2f32), 1.0, 0.5, 1.5]);
}

// user 4: `optim.sgd(lr: 1/10)` trained with a rate of 0.
#[test]
fn a_learning_rate_may_be_a_quotient() {
    let text = "
        use optim
        var w: f32[] = 1
        entry f() -> f32[] {
            loss = w * w
            minimize loss with optim.sgd(lr: 1 / 10)
            return w
        }";
    let graph = good(text);
    let constants: Vec<f64> = (graph.entries[0].nodes.iter())
        .filter_map(|(_, n)| match n.attrs.get("value") {
            Some(Attr::Tensor(t)) => Some(t.to_f64()),
            _ => None,
        })
        .flatten()
        .collect();
    assert!(constants.contains(&f64::from(0.1f32)), "{constants:?}");
}

#[test]
fn whole_numbers_are_asked_for() {
    assert_eq!(value("floor(7 / 2)"), 3.0);
    assert_eq!(value("floor(-7 / 2)"), -4.0);
    assert_eq!(value("ceil(7 / 2)"), 4.0);
    assert_eq!(value("round(5 / 2)"), 2.0);
    assert_eq!(value("6 / 3"), 2.0);
    // The result is a number: it can be a size, an index, an attribute.
    let text = "
        let K = 5
        func half(n) { return floor(n / 2) }
        entry f(x: f32[floor(K / 2), half(7)]) -> f32[2] {
            return sum(x[:, : floor(K / 2)], axis: floor(3 / 2))
        }";
    let x = Tensor::from_f64(DType::F32, vec![2, 3], (0..6).map(f64::from));
    assert_eq!(run(text, &[x]), [1.0, 7.0]);
}

#[test]
fn a_broken_number_where_a_whole_one_is_wanted_is_an_error() {
    let entry = |body: &str| format!("let K = 5\nentry f(x: f32[6]) -> f32[_] {{ {body} }}\n");
    let cases = [
        ("return x[: K / 2]", "E0145", "floor(K / 2)"),
        ("return sum(x, axis: 1 / 2)", "E0205", "floor(1 / 2)"),
        ("return x + zeros(shape: [K / 2])", "E0226", "floor(K / 2)"),
        ("for i in 0..K / 2 { y = x }  return x", "E0471", "floor(K / 2)"),
        ("(a, b) = split(x, parts: K / 2)  return a", "E0205", "floor(K / 2)"),
        ("i = iota(6) + 1 / 2  return x", "E0220", "floor(1 / 2)"),
        ("i = iota(6) + 2.0  return x", "E0220", "2"),
        ("return x[::1 / 2]", "E0233", "floor(1 / 2)"),
    ];
    for (body, code, fix) in cases {
        let body = body.replace("  ", "\n");
        let found = bad(&entry(&body));
        assert_eq!((found.0.as_str(), found.2.as_str()), (code, fix), "{body}: {}", found.1);
    }
    let (code, message, fix) = bad("var w: f32[5 / 2] = zeros\nentry f() -> f32[] { return 1 }\n");
    assert_eq!((code.as_str(), fix.as_str()), ("E0226", "floor(5 / 2)"), "{message}");
}

#[test]
fn sizes_round_down_in_types_whether_known_now_or_at_run_time() {
    let text = |n: &str| {
        format!(
            "dim B\nfunc half(x: f32[N]) -> f32[N / 2] {{ return reshape(x[: floor(N / 2)], \
             [N / 2]) }}\nentry f(x: f32[{n}]) -> f32[{n} / 2] {{ return half(x) }}\n"
        )
    };
    let x = Tensor::from_f64(DType::F32, vec![5], (0..5).map(f64::from));
    assert_eq!(run(&text("B"), std::slice::from_ref(&x)), [0.0, 1.0]);
    assert_eq!(run(&text("5").replace("f32[5 / 2]", "f32[2]"), &[x]), [0.0, 1.0]);
}

#[test]
fn tensors_divide_as_their_element_type_does() {
    let text = "entry f(x: i32[4]) -> i32[4] { return x / 2 }";
    let x = Tensor::from_f64(DType::I32, vec![4], [7.0, -7.0, 6.0, 1.0]);
    assert_eq!(run(text, &[x]), [3.0, -3.0, 3.0, 0.0]);
}

#[test]
fn division_of_numbers_by_zero_is_an_error() {
    for expr in ["1 / 0", "1 % 0", "0 ** -1", "(1 / 2) / (1 - 1)"] {
        let (code, ..) = bad(&format!("entry f(x: f32[]) -> f32[] {{ return x * ({expr}) }}\n"));
        assert_eq!(code, "E0150", "{expr}");
    }
}

#[test]
fn a_division_that_is_a_comment_is_told_and_changes_nothing() {
    let text = |comment: &str| {
        format!(
            "let N = 9\nentry f(x: f32[N]) -> f32[N] {{\n  k = N {comment}\n  return x * k\n}}\n"
        )
    };
    let (graph, diags, _) = load_str("test.graph", &text("// 2"));
    assert!(graph.is_some());
    assert_eq!(diags.iter().map(|d| d.code).collect::<Vec<_>>(), ["E0154"]);
    for comment in ["// 2 of them", "// half", "", "//"] {
        let (graph, diags, _) = load_str("test.graph", &text(comment));
        assert!(graph.is_some() && diags.is_empty(), "{comment}: {diags:?}");
    }
    // A warning hides no error.
    let (graph, diags, _) = load_str("test.graph", &text("// 2").replace("return x", "return z"));
    assert!(graph.is_none());
    assert_eq!(diags.iter().map(|d| d.code).collect::<Vec<_>>(), ["E0154", "E0123"]);
}
