//! Did you mean.

/// The candidate nearest to `word`, if one is near enough to be a slip.
pub fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<String> {
    tfc_abi::names::nearest(word, candidates).map(str::to_string)
}
