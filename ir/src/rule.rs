//! Rewrite rules, as data an op lists in its record.

/// A rewrite that holds for every well-typed instance of its left-hand side.
pub struct Rule {
    pub name: &'static str,
}
