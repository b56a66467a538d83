//! Did you mean.

/// The candidate nearest to `word`, if one is near enough to be a typo.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    let limit = match word.chars().count() {
        0 => return None,
        1..=2 => 1,
        3..=5 => 2,
        _ => 3,
    };
    let mut best: Option<(usize, &str)> = None;
    for candidate in candidates {
        if candidate.len().abs_diff(word.len()) > limit || candidate == word {
            continue;
        }
        let d = distance(word, candidate);
        // A short word all of whose letters changed is another word.
        if d <= limit
            && d < candidate.chars().count()
            && best.is_none_or(|(b, c)| (d, candidate) < (b, c))
        {
            best = Some((d, candidate));
        }
    }
    best.map(|(_, c)| c.to_string())
}

/// Edit distance where swapping neighbours counts once; case counts half.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let same = a[i - 1].eq_ignore_ascii_case(&b[j - 1]);
            let mut d = (rows[i - 1][j] + 1)
                .min(rows[i][j - 1] + 1)
                .min(rows[i - 1][j - 1] + !same as usize);
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
    fn near_words_are_found_and_far_ones_are_not() {
        let ops = ["matmul", "max", "mean", "reshape", "relu"];
        assert_eq!(nearest("matmull", ops.into_iter()).as_deref(), Some("matmul"));
        assert_eq!(nearest("rehsape", ops.into_iter()).as_deref(), Some("reshape"));
        assert_eq!(nearest("Relu", ops.into_iter()).as_deref(), Some("relu"));
        assert_eq!(nearest("convolve", ops.into_iter()), None);
        assert_eq!(nearest("q", ops.into_iter()), None);
    }
}
