//! Static libraries: objects in an `ar` archive with a symbol index.
//!
//! Written here rather than by `ar`, so that only a linker is needed, the bytes
//! are the same everywhere, and no plugin of the system's `ar` looks inside.

use crate::runtime_object::elf;

/// An archive of objects. Objects that are not 64-bit little-endian ELF add no
/// symbols to the index.
pub fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let symbols: Vec<Vec<String>> = members.iter().map(|(_, o)| defined_symbols(o)).collect();
    let count: usize = symbols.iter().map(Vec::len).sum();
    let names: usize = symbols.iter().flatten().map(|s| s.len() + 1).sum();
    let index_len = 4 + 4 * count + names;
    let mut offset = 8 + 60 + index_len + index_len % 2;
    let mut index = (count as u32).to_be_bytes().to_vec();
    for ((_, object), symbols) in members.iter().zip(&symbols) {
        for _ in symbols {
            index.extend((offset as u32).to_be_bytes());
        }
        offset += 60 + object.len() + object.len() % 2;
    }
    for name in symbols.iter().flatten() {
        index.extend(name.as_bytes());
        index.push(0);
    }
    let mut out = b"!<arch>\n".to_vec();
    member(&mut out, "/", &index);
    for (name, object) in members {
        member(&mut out, &format!("{name}/"), object);
    }
    out
}

fn member(out: &mut Vec<u8>, name: &str, data: &[u8]) {
    let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, "644", data.len());
    out.extend(header.as_bytes());
    out.extend(data);
    if data.len() % 2 == 1 {
        out.push(b'\n');
    }
}

/// Names of the global symbols an ELF object defines, in order.
fn defined_symbols(object: &[u8]) -> Vec<String> {
    elf::defined_symbols(object).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout_is_that_of_ar() {
        let bytes = archive(&[("a.o", b"xyz"), ("b.o", b"12")]);
        assert!(bytes.starts_with(b"!<arch>\n/ "));
        assert_eq!(bytes.len() % 2, 0);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("a.o/") && text.contains("b.o/") && text.contains("xyz\n"));
    }

    #[test]
    fn no_object_is_too_strange() {
        for len in 0..80 {
            let mut object = b"\x7fELF\x02\x01".to_vec();
            object.resize(6 + len, 0xff);
            assert!(defined_symbols(&object).is_empty());
        }
    }
}
