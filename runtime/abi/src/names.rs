//! Did you mean: the known name that a misspelt one most likely stood for.
//!
//! Every message of the compiler and of compiled programs asks here. A wrong
//! suggestion is worse than none, so a candidate must be a slip of the fingers
//! away: it starts as the word does, and few letters differ for its length.

/// The candidate nearest to `word`, if one is near enough to be a slip.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = word.trim_start_matches('-').chars().count();
    let limit = match length {
        0 => return None,
        1..=5 => 1,
        6..=9 => 2,
        _ => 3,
    };
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if candidate == word || candidate.len().abs_diff(word.len()) > limit {
            continue;
        }
        let d = distance(word, candidate);
        let likely = d == 0 || (length > 1 && d <= limit && starts_alike(word, candidate));
        if likely && best.is_none_or(|(b, c)| (d, candidate) < (b, c)) {
            best = Some((d, candidate));
        }
    }
    best.map(|(_, c)| c)
}

/// The same first letter, or the first two swapped, or one of them lost its first.
fn starts_alike(a: &str, b: &str) -> bool {
    let bare = |s: &str| s.trim_start_matches('-').to_ascii_lowercase();
    let (a, b) = (bare(a), bare(b));
    let first = |s: &str, n: usize| s.chars().nth(n);
    let lost = |long: &str, short: &str| {
        short.chars().count() >= 3 && long.chars().skip(1).eq(short.chars())
    };
    first(&a, 0) == first(&b, 0)
        || (first(&a, 0) == first(&b, 1) && first(&a, 1) == first(&b, 0))
        || lost(&a, &b)
        || lost(&b, &a)
}

/// Edits between two names; swapping neighbours is one, case does not count.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().map(|c| c.to_ascii_lowercase()).collect();
    let b: Vec<char> = b.chars().map(|c| c.to_ascii_lowercase()).collect();
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let same = a[i - 1] == b[j - 1];
            let mut d = (rows[i - 1][j] + 1)
                .min(rows[i][j - 1] + 1)
                .min(rows[i - 1][j - 1] + usize::from(!same));
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                d = d.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = d;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found() {
        let ops = ["matmul", "max", "mean", "reshape", "relu", "add", "cumsum", "sqrt"];
        for (word, want) in [
            ("matmull", "matmul"),
            ("rehsape", "reshape"),
            ("Relu", "relu"),
            ("atmul", "matmul"),
            ("mtmul", "matmul"),
            ("ad", "add"),
        ] {
            assert_eq!(nearest(word, ops), Some(want), "{word}");
        }
        assert_eq!(nearest("--bach", ["--batch", "--out"]), Some("--batch"));
        assert_eq!(nearest("predcit", ["train", "predict"]), Some("predict"));
        assert_eq!(nearest("X", ["x", "y"]), Some("x"));
    }

    // user, worst messages 9 and 10: `std` gave `add`, `--seed` gave `--feed`.
    #[test]
    fn other_words_are_not() {
        let ops = ["matmul", "max", "mean", "reshape", "relu", "add", "cumsum", "sqrt"];
        for word in ["std", "einsum", "convolve", "q", "", "def", "def_model", "tanh"] {
            assert_eq!(nearest(word, ops), None, "{word}");
        }
        assert_eq!(nearest("--seed", ["--feed", "--state"]), None);
        assert_eq!(nearest("def", ["dim", "use", "let"]), None);
    }
}
