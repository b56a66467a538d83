//! PTX text to statements. Nothing is understood here but the form.

use crate::Error;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Reg(String),
    /// The bits of a number.
    Imm(u64),
    /// A label or the name of a variable.
    Name(String),
    /// `[base + offset]`
    Addr {
        base: Box<Operand>,
        offset: i64,
    },
    Vector(Vec<Operand>),
}

#[derive(Clone, Debug)]
pub(crate) struct Stmt {
    pub line: usize,
    /// Register and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// The parts of the opcode between dots.
    pub opcode: Vec<String>,
    pub operands: Vec<Operand>,
}

#[derive(Clone, Debug)]
pub(crate) enum Item {
    Stmt(Stmt),
    Label {
        line: usize,
        name: String,
    },
    /// Type, prefix, count; one register without number has no count.
    Reg {
        line: usize,
        ty: String,
        name: String,
        count: Option<u32>,
    },
    Shared {
        line: usize,
        align: usize,
        name: String,
        bytes: usize,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct EntryText {
    pub line: usize,
    pub name: String,
    /// Type and name.
    pub params: Vec<(String, String)>,
    pub max_threads: Option<u32>,
    pub items: Vec<Item>,
}

#[derive(Clone, Debug)]
pub(crate) struct ModuleText {
    pub version: String,
    pub target: String,
    pub entries: Vec<EntryText>,
}

#[derive(Clone, Debug, PartialEq)]
enum Tok {
    /// Identifiers, registers, directives, opcodes, numbers.
    Word(String),
    Punct(char),
}

struct Parser {
    toks: Vec<(usize, Tok)>,
    at: usize,
}

pub(crate) fn parse(text: &str) -> Result<ModuleText, Error> {
    let mut p = Parser { toks: tokens(text)?, at: 0 };
    p.expect_word(".version")?;
    let version = p.word()?;
    p.expect_word(".target")?;
    let target = p.word()?;
    p.expect_word(".address_size")?;
    p.expect_word("64")?;
    let mut entries = vec![];
    while p.at < p.toks.len() {
        if p.peek_word() == Some(".visible") {
            p.at += 1;
        }
        p.expect_word(".entry")?;
        entries.push(p.entry()?);
    }
    Ok(ModuleText { version, target, entries })
}

fn tokens(text: &str) -> Result<Vec<(usize, Tok)>, Error> {
    let mut out = vec![];
    for (i, line) in text.lines().enumerate() {
        let line = line.split("//").next().unwrap_or("");
        let mut rest = line.trim_start();
        while let Some(c) = rest.chars().next() {
            let is_word = |c: char| c.is_ascii_alphanumeric() || "_.%$".contains(c);
            if is_word(c) {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                out.push((i + 1, Tok::Word(rest[..end].to_string())));
                rest = &rest[end..];
            } else if ",;:(){}[]<>+-@!|".contains(c) {
                out.push((i + 1, Tok::Punct(c)));
                rest = &rest[1..];
            } else {
                return Err(Error::new(i + 1, format!("unexpected `{c}`")));
            }
            rest = rest.trim_start();
        }
    }
    Ok(out)
}

impl Parser {
    fn line(&self) -> usize {
        self.toks.get(self.at).or(self.toks.last()).map_or(0, |t| t.0)
    }

    fn fail<T>(&self, what: &str) -> Result<T, Error> {
        let found = match self.toks.get(self.at) {
            Some((_, Tok::Word(w))) => format!("`{w}`"),
            Some((_, Tok::Punct(c))) => format!("`{c}`"),
            None => "the end".into(),
        };
        Err(Error::new(self.line(), format!("expected {what}, found {found}")))
    }

    fn peek_word(&self) -> Option<&str> {
        match self.toks.get(self.at) {
            Some((_, Tok::Word(w))) => Some(w),
            _ => None,
        }
    }

    fn word(&mut self) -> Result<String, Error> {
        match self.toks.get(self.at) {
            Some((_, Tok::Word(w))) => {
                self.at += 1;
                Ok(w.clone())
            }
            _ => self.fail("a word"),
        }
    }

    fn expect_word(&mut self, word: &str) -> Result<(), Error> {
        if self.peek_word() == Some(word) {
            self.at += 1;
            return Ok(());
        }
        self.fail(&format!("`{word}`"))
    }

    fn punct(&mut self, c: char) -> bool {
        let is = matches!(self.toks.get(self.at), Some((_, Tok::Punct(p))) if *p == c);
        self.at += usize::from(is);
        is
    }

    fn expect(&mut self, c: char) -> Result<(), Error> {
        if self.punct(c) { Ok(()) } else { self.fail(&format!("`{c}`")) }
    }

    fn int(&mut self) -> Result<i64, Error> {
        let negative = self.punct('-');
        let line = self.line();
        let word = self.word()?;
        let value = match word.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).map(|v| v as i64).ok(),
            None => word.parse::<i128>().ok().and_then(|v| {
                i64::try_from(v).ok().or_else(|| u64::try_from(v).ok().map(|u| u as i64))
            }),
        };
        match value {
            Some(v) => Ok(if negative { v.wrapping_neg() } else { v }),
            None => Err(Error::new(line, format!("`{word}` is no integer"))),
        }
    }

    fn entry(&mut self) -> Result<EntryText, Error> {
        let line = self.line();
        let name = self.word()?;
        let mut params = vec![];
        self.expect('(')?;
        while !self.punct(')') {
            self.expect_word(".param")?;
            params.push((self.word()?, self.word()?));
            self.punct(',');
        }
        let mut max_threads = None;
        while !self.punct('{') {
            match self.word()?.as_str() {
                ".maxntid" | ".reqntid" => {
                    let mut n = self.int()?;
                    while self.punct(',') {
                        n *= self.int()?;
                    }
                    max_threads = Some(n as u32);
                }
                ".minnctapersm" => {
                    self.int()?;
                }
                other => {
                    return Err(Error::new(line, format!("unknown directive `{other}`")));
                }
            }
        }
        let mut items = vec![];
        while !self.punct('}') {
            if self.at >= self.toks.len() {
                return self.fail("`}`");
            }
            self.item(&mut items)?;
        }
        Ok(EntryText { line, name, params, max_threads, items })
    }

    fn item(&mut self, items: &mut Vec<Item>) -> Result<(), Error> {
        let line = self.line();
        let guard = if self.punct('@') {
            let negated = self.punct('!');
            Some((self.word()?, negated))
        } else {
            None
        };
        let word = self.word()?;
        match word.as_str() {
            ".reg" => {
                let ty = self.word()?;
                loop {
                    let name = self.word()?;
                    let mut count = None;
                    if self.punct('<') {
                        count = Some(self.int()? as u32);
                        self.expect('>')?;
                    }
                    items.push(Item::Reg { line, ty: ty.clone(), name, count });
                    if !self.punct(',') {
                        break;
                    }
                }
                return self.expect(';');
            }
            ".shared" => {
                self.expect_word(".align")?;
                let align = self.int()? as usize;
                self.expect_word(".b8")?;
                let name = self.word()?;
                self.expect('[')?;
                let bytes = self.int()? as usize;
                self.expect(']')?;
                items.push(Item::Shared { line, align, name, bytes });
                return self.expect(';');
            }
            _ if guard.is_none() && self.punct(':') => {
                items.push(Item::Label { line, name: word });
                return Ok(());
            }
            _ if word.starts_with('.') => {
                return Err(Error::new(line, format!("unknown directive `{word}`")));
            }
            _ => {}
        }
        let mut operands = vec![];
        if !self.punct(';') {
            loop {
                operands.push(self.operand()?);
                if !self.punct(',') {
                    break;
                }
            }
            self.expect(';')?;
        }
        let opcode = word.split('.').map(str::to_string).collect();
        items.push(Item::Stmt(Stmt { line, guard, opcode, operands }));
        Ok(())
    }

    fn operand(&mut self) -> Result<Operand, Error> {
        if self.punct('{') {
            let mut parts = vec![];
            loop {
                parts.push(self.operand()?);
                if !self.punct(',') {
                    break;
                }
            }
            self.expect('}')?;
            return Ok(Operand::Vector(parts));
        }
        if self.punct('[') {
            let base = Box::new(self.operand()?);
            let offset = if self.punct('+') { self.int()? } else { 0 };
            self.expect(']')?;
            return Ok(Operand::Addr { base, offset });
        }
        let line = self.line();
        let negative = matches!(self.toks.get(self.at), Some((_, Tok::Punct('-'))));
        let Some(word) = self.peek_word().map(str::to_string) else {
            return if negative {
                Ok(Operand::Imm(self.int()? as u64))
            } else {
                self.fail("an operand")
            };
        };
        if word.starts_with('%') {
            self.at += 1;
            return Ok(Operand::Reg(word));
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            for (prefix, digits) in [("0f", 8), ("0F", 8), ("0d", 16), ("0D", 16)] {
                if let Some(hex) = word.strip_prefix(prefix) {
                    self.at += 1;
                    let bits = u64::from_str_radix(hex, 16).ok().filter(|_| hex.len() == digits);
                    return match bits {
                        Some(bits) => Ok(Operand::Imm(bits)),
                        None => Err(Error::new(line, format!("`{word}` is no float"))),
                    };
                }
            }
            return Ok(Operand::Imm(self.int()? as u64));
        }
        self.at += 1;
        Ok(Operand::Name(word))
    }
}
