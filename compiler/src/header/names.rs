//! Names of the graph as names of C and C++.
//!
//! A name that C or C++ keeps for itself, that could be a macro, or that the
//! header uses already gets an underscore behind it; so does the second of two
//! that would be the same.

use std::collections::BTreeSet;

/// A name as a C identifier.
pub fn identifier(name: &str) -> String {
    let mut out: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if out.starts_with(|c: char| c.is_ascii_digit()) || out.is_empty() {
        out.insert(0, '_');
    }
    out
}

/// Names that are taken where another is made.
#[derive(Default)]
pub struct Taken(BTreeSet<String>);

impl Taken {
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Taken {
        Taken(names.into_iter().map(String::from).collect())
    }

    /// A parameter: alone, so it must be no word of the language and no macro.
    pub fn parameter(&mut self, name: &str) -> String {
        let id = identifier(name);
        // A leading underscore may be the compiler's own.
        let reserved = id.starts_with('_') || is_keyword(&id) || may_be_macro(&id);
        let id = if reserved { format!("{}_", id.trim_start_matches('_')) } else { id };
        self.fresh(identifier(&id))
    }

    /// What stands behind a prefix and an underscore is only to be unique.
    pub fn member(&mut self, name: &str) -> String {
        self.fresh(identifier(name))
    }

    fn fresh(&mut self, mut id: String) -> String {
        while !self.0.insert(id.clone()) {
            id.push('_');
        }
        id
    }
}

fn is_keyword(id: &str) -> bool {
    KEYWORDS.contains(&id)
}

/// Macros are written in capitals, but for some old ones.
fn may_be_macro(id: &str) -> bool {
    let capitals = id.len() > 1 && !id.contains(|c: char| c.is_ascii_lowercase());
    capitals || id == "I" || MACROS.contains(&id)
}

/// Prefixes of the functions of C's and POSIX's own libraries, and of ours: with
/// one of them an entry could be `pthread_create`.
pub const RESERVED_PREFIXES: &[&str] = &[
    "aio", "atomic", "clock", "cnd", "dl", "feature", "mq", "mtx", "nl", "omp", "operator",
    "posix", "pthread", "sched", "sem", "shm", "sig", "std", "stdc", "tcp", "tfc", "thrd", "timer",
    "tss", "uint", "va",
];

#[rustfmt::skip]
const KEYWORDS: &[&str] = &[
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break",
    "case", "catch", "char", "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return",
    "co_yield", "compl", "concept", "const", "const_cast", "consteval", "constexpr", "constinit",
    "continue", "contract_assert", "decltype", "default", "delete", "do", "double", "dynamic_cast",
    "else", "enum", "explicit", "export", "extern", "false", "float", "for", "fortran", "friend",
    "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not",
    "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public", "register",
    "reinterpret_cast", "requires", "restrict", "return", "short", "signed", "sizeof", "static",
    "static_assert", "static_cast", "struct", "switch", "template", "this", "thread_local", "throw",
    "true", "try", "typedef", "typeid", "typename", "typeof", "typeof_unqual", "union", "unsigned",
    "using", "virtual", "void", "volatile", "wchar_t", "while", "xor", "xor_eq",
    // Types the header itself uses.
    "int16_t", "int32_t", "int64_t", "int8_t", "size_t", "uint16_t", "uint32_t", "uint64_t",
    "uint8_t",
];

/// Object-like macros in small letters that some header or compiler has.
#[rustfmt::skip]
const MACROS: &[&str] = &[
    "assert", "complex", "environ", "errno", "far", "h_errno", "i386", "imaginary", "linux",
    "near", "noreturn", "offsetof", "setjmp", "small", "stderr", "stdin", "stdout", "sun", "unix",
    "vax",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_legal_c() {
        assert_eq!(identifier("mlp"), "mlp");
        assert_eq!(identifier("2d-net"), "_2d_net");
        assert_eq!(identifier(""), "_");
    }

    #[test]
    fn parameters_keep_out_of_the_way() {
        let mut taken = Taken::new(["model"]);
        for (name, want) in [
            ("x", "x"),
            ("x", "x_"),
            ("B", "B"),
            ("I", "I_"),
            ("NULL", "NULL_"),
            ("class", "class_"),
            ("requires", "requires_"),
            ("model", "model_"),
            ("_Bool", "Bool_"),
            ("errno", "errno_"),
            ("__x", "x__"),
        ] {
            assert_eq!(taken.parameter(name), want, "{name}");
        }
    }
}
