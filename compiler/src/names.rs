//! Lists of names in messages.

/// `` `a`, `b` and `c` ``; `nothing` for an empty list.
pub fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.into_iter().map(|n| format!("`{n}`")).collect();
    match names.as_slice() {
        [] => "nothing".into(),
        [one] => one.clone(),
        [head @ .., last] => format!("{} and {last}", head.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_read_as_sentences() {
        assert_eq!(names([]), "nothing");
        assert_eq!(names(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}
