//! Edits a relocatable ELF object so that it can be linked beside anything.
//!
//! Linking `ld -r` output as it is would put every symbol of the runtime, and of
//! the Rust library inside it, before the linker: two of them, or one and a Rust
//! program, clash or, worse, silently share. Here every defined symbol becomes
//! local but those named, which get new names.
//!
//! Invariant: an object that is not what this expects is none, never a panic.

/// Sections nobody links: bitcode and notes of the compiler, debug information, and what
/// says how to unwind. The runtime aborts where it would panic, so no frame of it is ever
/// unwound; without these tables programs are 7 % smaller.
const DROPPED: &[&str] =
    &[".llvmbc", ".llvmcmd", ".comment", ".debug_", ".note.gnu.", ".eh_frame", ".gcc_except_table"];

/// Words in the name of the function that looks up the source lines of a backtrace. There
/// is nothing for it to find, as debug information and the tables for unwinding are gone;
/// where it returns at once, the reader of debug information inside the Rust library, a
/// tenth of a small program, is not linked. A Rust library without such a function is
/// linked as it is.
const SYMBOLIZER: [&str; 3] = ["backtrace_rs", "symbolize", "with_global"];

const SHT_SYMTAB: u32 = 2;
const SHT_STRTAB: u32 = 3;
const SHT_RELA: u32 = 4;
const SHT_NOBITS: u32 = 8;
const SHT_GROUP: u32 = 17;
const SHT_SYMTAB_SHNDX: u32 = 18;
const SHF_GROUP: u64 = 0x200;
const SHF_INFO_LINK: u64 = 0x40;
const SHN_UNDEF: u16 = 0;
const SHN_LORESERVE: u16 = 0xff00;
const STB_LOCAL: u8 = 0;
const STB_GLOBAL: u8 = 1;
const STT_FUNC: u8 = 2;
const STT_SECTION: u8 = 3;
const STT_FILE: u8 = 4;
const STV_HIDDEN: u8 = 2;
const HEADER: usize = 64;
const SECTION: usize = 64;
const SYMBOL: usize = 24;
const RELA: usize = 24;

struct Section<'a> {
    name: &'a [u8],
    kind: u32,
    flags: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
    data: &'a [u8],
}

#[derive(Clone)]
struct Symbol<'a> {
    name: &'a [u8],
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

/// The object with every symbol local but `exports`, given with their new names.
pub fn localize(object: &[u8], exports: &[(&str, String)]) -> Option<Vec<u8>> {
    let sections = read_sections(object)?;
    let table = sections.iter().position(|s| s.kind == SHT_SYMTAB)?;
    let symbols = read_symbols(&sections, table)?;

    // What returns at once, in place of what it did.
    let mut stubs = vec![false; sections.len()];
    let stub = return_at_once(object)?;
    for s in symbols.iter().filter(|s| s.info & 0xf == STT_FUNC && is_symbolizer(s.name)) {
        let alone = |section: &Section<'_>| s.value == 0 && s.size == section.size;
        if let Some(i) =
            Some(usize::from(s.section)).filter(|i| sections.get(*i).is_some_and(alone))
        {
            stubs[i] = !stub.is_empty();
        }
    }

    // Sections that stay, with their new numbers. Groups are only of use where
    // two objects may bring the same function; these are private from now on.
    let dropped = |s: &Section<'_>| DROPPED.iter().any(|d| s.name.starts_with(d.as_bytes()));
    let mut number = vec![0u16; sections.len()];
    let mut kept = vec![];
    for (i, s) in sections.iter().enumerate().skip(1) {
        let target = sections.get(s.info as usize);
        let gone = match s.kind {
            SHT_SYMTAB | SHT_GROUP | SHT_SYMTAB_SHNDX => true,
            SHT_STRTAB => true,
            SHT_RELA => target.is_none_or(dropped) || stubs[s.info as usize],
            0 => true,
            _ => dropped(s),
        };
        if !gone {
            kept.push(i);
            number[i] = u16::try_from(kept.len()).ok().filter(|n| *n < SHN_LORESERVE - 8)?;
        }
    }

    let mut needed = vec![false; symbols.len()];
    for &i in &kept {
        if sections[i].kind == SHT_RELA {
            for rela in sections[i].data.chunks_exact(RELA) {
                *needed.get_mut(u32_at(rela, 12)? as usize)? = true;
            }
        }
    }
    let mut local = vec![];
    let mut global = vec![];
    for (i, symbol) in symbols.iter().enumerate().skip(1) {
        let mut s = symbol.clone();
        let defined = s.section != SHN_UNDEF;
        if stubs.get(usize::from(s.section)).is_some_and(|stub| *stub) {
            s.size = stub.len() as u64;
        }
        if defined && s.section < SHN_LORESERVE {
            s.section = number[usize::from(s.section)];
            if s.section == 0 {
                // Of a section that is gone; nothing that stays may refer to it.
                if needed[i] {
                    return None;
                }
                continue;
            }
        }
        let kind = s.info & 0xf;
        let export = exports.iter().find(|(name, _)| defined && name.as_bytes() == s.name);
        if let Some((_, name)) = export {
            s.name = name.as_bytes();
            s.info = STB_GLOBAL << 4 | kind;
            s.other = s.other & !3 | STV_HIDDEN;
            global.push((i, s));
        } else if defined {
            if kind == STT_FILE || !needed[i] && kind == STT_SECTION {
                continue;
            }
            s.info = STB_LOCAL << 4 | kind;
            local.push((i, s));
        } else if needed[i] {
            global.push((i, s));
        }
    }
    if exports.iter().any(|(_, name)| !global.iter().any(|(_, s)| s.name == name.as_bytes())) {
        return None;
    }

    let mut index = vec![0u32; symbols.len()];
    let mut names = vec![0u8];
    let mut rows = vec![0u8; SYMBOL];
    for (new, (old, s)) in local.iter().chain(&global).enumerate() {
        index[*old] = new as u32 + 1;
        let name = if s.name.is_empty() { 0 } else { names.len() as u32 };
        if name > 0 {
            names.extend(s.name);
            names.push(0);
        }
        rows.extend(name.to_le_bytes());
        rows.extend([s.info, s.other]);
        rows.extend(s.section.to_le_bytes());
        rows.extend(s.value.to_le_bytes());
        rows.extend(s.size.to_le_bytes());
    }

    let mut out = Writer::new(object)?;
    let (symtab, strtab) = (kept.len() as u32 + 1, kept.len() as u32 + 2);
    for &i in &kept {
        let s = &sections[i];
        let mut row = Row { flags: s.flags & !SHF_GROUP, ..Row::of(s) };
        if s.kind == SHT_RELA {
            let mut relas = s.data.to_vec();
            for rela in relas.chunks_exact_mut(RELA) {
                let new = index[u32_at(rela, 12)? as usize];
                rela[12..16].copy_from_slice(&new.to_le_bytes());
            }
            (row.link, row.info) = (symtab, u32::from(number[s.info as usize]));
            row.flags |= SHF_INFO_LINK;
            out.section(s.name, row, &relas);
        } else if stubs[i] {
            row.size = stub.len() as u64;
            out.section(s.name, row, stub);
        } else {
            // `link` of an ordinary section is another one (SHF_LINK_ORDER).
            row.link = number.get(s.link as usize).copied().unwrap_or(0).into();
            out.section(s.name, row, s.data);
        }
    }
    let row = Row { kind: SHT_SYMTAB, align: 8, entry: SYMBOL as u64, ..Row::default() };
    let row = Row { size: rows.len() as u64, link: strtab, info: local.len() as u32 + 1, ..row };
    out.section(b".symtab", row, &rows);
    let row = Row { kind: SHT_STRTAB, align: 1, size: names.len() as u64, ..Row::default() };
    out.section(b".strtab", row, &names);
    Some(out.finish())
}

fn is_symbolizer(name: &[u8]) -> bool {
    SYMBOLIZER.iter().all(|word| name.windows(word.len()).any(|at| at == word.as_bytes()))
}

/// The instructions of a function that only returns; none for CPUs not known here.
fn return_at_once(object: &[u8]) -> Option<&'static [u8]> {
    const X86_64: u16 = 62;
    const AARCH64: u16 = 183;
    Some(match u16_at(object, 18)? {
        X86_64 => &[0xc3],
        AARCH64 => &[0xc0, 0x03, 0x5f, 0xd6],
        _ => &[],
    })
}

/// Names of the symbols an object offers to others, in order.
pub fn defined_symbols(object: &[u8]) -> Option<Vec<String>> {
    let sections = read_sections(object)?;
    let table = sections.iter().position(|s| s.kind == SHT_SYMTAB)?;
    let offered = |s: &&Symbol<'_>| s.info >> 4 != STB_LOCAL && s.section != SHN_UNDEF;
    let symbols = read_symbols(&sections, table)?;
    let names = symbols.iter().filter(offered).map(|s| s.name);
    Some(names.map(|n| String::from_utf8_lossy(n).into_owned()).collect())
}

fn read_sections(object: &[u8]) -> Option<Vec<Section<'_>>> {
    // 64-bit, little-endian, relocatable.
    if !object.starts_with(b"\x7fELF\x02\x01") || u16_at(object, 16)? != 1 {
        return None;
    }
    let start = usize::try_from(u64_at(object, 0x28)?).ok()?;
    if usize::from(u16_at(object, 0x3a)?) != SECTION {
        return None;
    }
    let header = |i: usize| {
        let at = start.checked_add(i.checked_mul(SECTION)?)?;
        object.get(at..at.checked_add(SECTION)?)
    };
    // Where there are too many for the fields, the first header has the numbers.
    let mut count = usize::from(u16_at(object, 0x3c)?);
    if count == 0 {
        count = usize::try_from(u64_at(header(0)?, 0x20)?).ok()?;
    }
    let mut names = u32::from(u16_at(object, 0x3e)?);
    if names == 0xffff {
        names = u32_at(header(0)?, 0x28)?;
    }
    let data = |h: &[u8]| {
        if u32_at(h, 4)? == SHT_NOBITS {
            return Some(&[][..]);
        }
        let at = usize::try_from(u64_at(h, 0x18)?).ok()?;
        object.get(at..at.checked_add(usize::try_from(u64_at(h, 0x20)?).ok()?)?)
    };
    let strings = data(header(names as usize)?)?;
    (0..count)
        .map(|i| {
            let h = header(i)?;
            Some(Section {
                name: if i == 0 { b"" } else { string(strings, u32_at(h, 0)?)? },
                kind: u32_at(h, 4)?,
                flags: u64_at(h, 8)?,
                size: u64_at(h, 0x20)?,
                link: u32_at(h, 0x28)?,
                info: u32_at(h, 0x2c)?,
                align: u64_at(h, 0x30)?,
                entry: u64_at(h, 0x38)?,
                data: if i == 0 { &[] } else { data(h)? },
            })
        })
        .collect()
}

fn read_symbols<'a>(sections: &[Section<'a>], table: usize) -> Option<Vec<Symbol<'a>>> {
    const SHN_XINDEX: u16 = 0xffff;
    let table = &sections[table];
    let strings = sections.get(table.link as usize)?.data;
    table
        .data
        .chunks_exact(SYMBOL)
        .map(|row| {
            let section = u16_at(row, 6)?;
            let known = usize::from(section) < sections.len() || section >= SHN_LORESERVE;
            // More sections than fit the field: nothing of ours has them.
            if section == SHN_XINDEX || !known {
                return None;
            }
            Some(Symbol {
                name: string(strings, u32_at(row, 0)?)?,
                info: row[4],
                other: row[5],
                section,
                value: u64_at(row, 8)?,
                size: u64_at(row, 16)?,
            })
        })
        .collect()
}

fn string(strings: &[u8], at: u32) -> Option<&[u8]> {
    let rest = strings.get(at as usize..)?;
    Some(&rest[..rest.iter().position(|b| *b == 0)?])
}

/// A section header to be.
#[derive(Clone, Copy, Default)]
struct Row {
    kind: u32,
    flags: u64,
    size: u64,
    link: u32,
    info: u32,
    align: u64,
    entry: u64,
}

impl Row {
    fn of(s: &Section<'_>) -> Row {
        let Section { kind, flags, size, align, entry, .. } = *s;
        Row { kind, flags, size, align, entry, link: 0, info: 0 }
    }
}

struct Writer {
    out: Vec<u8>,
    names: Vec<u8>,
    headers: Vec<u8>,
}

impl Writer {
    fn new(like: &[u8]) -> Option<Writer> {
        let out = like.get(..HEADER)?.to_vec();
        Some(Writer { out, names: vec![0], headers: vec![0; SECTION] })
    }

    fn section(&mut self, name: &[u8], row: Row, data: &[u8]) {
        let align = usize::try_from(row.align).unwrap_or(1).max(1);
        self.out.resize(self.out.len().next_multiple_of(align), 0);
        self.headers.extend((self.names.len() as u32).to_le_bytes());
        self.headers.extend(row.kind.to_le_bytes());
        for word in [row.flags, 0, self.out.len() as u64, row.size] {
            self.headers.extend(word.to_le_bytes());
        }
        self.headers.extend(row.link.to_le_bytes());
        self.headers.extend(row.info.to_le_bytes());
        self.headers.extend(row.align.to_le_bytes());
        self.headers.extend(row.entry.to_le_bytes());
        self.names.extend(name);
        self.names.push(0);
        self.out.extend(data);
    }

    fn finish(mut self) -> Vec<u8> {
        let last = self.headers.len() / SECTION;
        let names = [&self.names[..], b".shstrtab\0"].concat();
        let size = names.len() as u64;
        let row = Row { kind: SHT_STRTAB, align: 1, size, ..Row::default() };
        self.section(b".shstrtab", row, &names);
        self.out.resize(self.out.len().next_multiple_of(8), 0);
        let start = self.out.len() as u64;
        self.out.extend(&self.headers);
        self.out[0x28..0x30].copy_from_slice(&start.to_le_bytes());
        let count = (last + 1) as u16;
        self.out[0x3c..0x3e].copy_from_slice(&count.to_le_bytes());
        self.out[0x3e..0x40].copy_from_slice(&(last as u16).to_le_bytes());
        self.out
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
