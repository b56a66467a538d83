//! Small files that ask for endless work: counted, and an error with the place.

use tfc_ir::text::load_str;

/// The codes of a text's errors.
fn codes(text: &str) -> Vec<String> {
    let (_, diags, _) = load_str("test.graph", text);
    for diag in &diags {
        assert!(diag.labels.iter().any(|l| !l.span.is_none()), "no place: {diag:?}");
    }
    diags.iter().map(|d| d.code.to_string()).collect()
}

fn lines(n: usize, line: impl Fn(usize, usize) -> String) -> String {
    (1..=n).map(|i| line(i, i - 1) + "\n").collect()
}

// faults 4: each line doubled the time of `check`.
#[test]
fn a_let_is_worked_out_once() {
    let lets = lines(60, |i, j| format!("let a{i} = a{j} + a{j}"));
    let text = format!("let a0 = 1\n{lets}entry f() -> f32[] {{ return a60 }}\n");
    assert_eq!(codes(&text), [""; 0]);
    let wrong = text.replace("let a0 = 1", "let a0 = nothing");
    assert_eq!(codes(&wrong), ["E0123"]);
}

// faults 4
#[test]
fn functions_and_defaults_that_double_stop_with_an_error() {
    let funcs = lines(40, |i, j| format!("func g{i}(x) {{ return g{j}(x) + g{j}(x) }}"));
    let text =
        format!("func g0(x) {{ return x + 1 }}\n{funcs}entry f() -> f32[] {{ return g40(1) }}\n");
    assert!(matches!(codes(&text)[0].as_str(), "E0151" | "E0220"), "{:?}", codes(&text));
    let funcs = lines(40, |i, j| format!("func g{i}(a = g{j}(), b = g{j}()) {{ return a * b }}"));
    let text = format!("func g0() {{ return 1 }}\n{funcs}entry f() -> f32[] {{ return g40() }}\n");
    assert_eq!(codes(&text), ["E0151"]);
}

// faults 4
#[test]
fn loops_in_loops_stop_with_an_error() {
    for body in ["", "y = 1"] {
        let text = format!(
            "entry f() -> f32[] {{\n for i in 0..65536 {{\n for j in 0..65536 {{\n {body}\n }}\n \
             }}\n return 1.0\n}}\n"
        );
        assert_eq!(codes(&text), ["E0151"], "{body}");
    }
    let text = "entry f() -> f32[] {\n l = [[[1 for k in 0..4000] for i in 0..4000] for j in \
                0..4000]\n return 1.0\n}\n";
    assert_eq!(codes(text), ["E0151"]);
}

// faults 4: an abort at 6 GB.
#[test]
fn lists_of_lists_stop_with_an_error() {
    let ten = ["..l"; 10].join(", ");
    let text = format!(
        "entry f() -> f32[] {{\n l = [1]\n{} return 1.0\n}}\n",
        lines(9, |_, _| format!(" l = [{ten}]"))
    );
    assert_eq!(codes(&text), ["E0152"]);
    // Shared parts: small in memory, endless to walk.
    let lets = lines(60, |i, j| format!("let a{i} = [a{j}, a{j}]"));
    let text = format!("let a0 = [1]\n{lets}entry f() -> f32[] {{ return sum(a60) }}\n");
    assert_eq!(codes(&text), ["E0152"]);
    let funcs = lines(40, |i, j| format!("func g{i}() {{\n t = g{j}()\n return t, t\n}}"));
    let text = format!(
        "func g0() {{ return 1, 1 }}\n{funcs}entry f() -> f32[] {{\n t = g40()\n return t[0]\n}}\n"
    );
    assert_eq!(codes(&text), ["E0152"]);
}

#[test]
fn sizes_that_grow_stop_with_an_error() {
    let body = lines(40, |i, j| format!(" n{i} = n{j} * n{j}"));
    let text =
        format!("dim B\nentry f(x: f32[B]) -> f32[] {{\n n0 = B + 1\n{body} return 1.0\n}}\n");
    assert_eq!(codes(&text), ["E0226"]);
}

#[test]
fn large_literals_stop_with_an_error() {
    let text = "entry f() -> f32[] { return sum(f32[4000000000](0)) }\n";
    assert_eq!(codes(text), ["E0221"]);
}
