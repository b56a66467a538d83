//! As much JSON as safetensors headers and messages need.
//!
//! Reading accepts any JSON document up to [`MAX_DEPTH`] levels deep; numbers
//! are kept as text so that 64-bit integers survive.

use std::fmt::Write as _;

/// Deepest nesting that is read.
pub const MAX_DEPTH: usize = 64;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    /// The number as written.
    Number(String),
    String(String),
    Array(Vec<Json>),
    /// In the order of the text; names may repeat.
    Object(Vec<(String, Json)>),
}

impl Json {
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut p = Parser { text: text.as_bytes(), at: 0, depth: 0 };
        let value = p.value()?;
        p.space();
        if p.at == p.text.len() { Ok(value) } else { Err(p.unexpected("the end")) }
    }

    pub fn as_str(&self) -> Option<&str> {
        if let Json::String(s) = self { Some(s) } else { None }
    }

    pub fn as_u64(&self) -> Option<u64> {
        if let Json::Number(n) = self { n.parse().ok() } else { None }
    }

    pub fn as_i64(&self) -> Option<i64> {
        if let Json::Number(n) = self { n.parse().ok() } else { None }
    }

    pub fn as_array(&self) -> Option<&[Json]> {
        if let Json::Array(a) = self { Some(a) } else { None }
    }

    pub fn as_object(&self) -> Option<&[(String, Json)]> {
        if let Json::Object(o) = self { Some(o) } else { None }
    }

    /// The first member of this name.
    pub fn get(&self, name: &str) -> Option<&Json> {
        self.as_object()?.iter().find(|(n, _)| n == name).map(|(_, v)| v)
    }
}

/// A JSON string with its quotes.
pub fn quote(s: &str) -> String {
    let mut out = String::with_capacity(s.len() + 2);
    out.push('"');
    for c in s.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if (c as u32) < 0x20 => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

type Parse<T> = Result<T, String>;

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn unexpected(&self, wanted: &str) -> String {
        format!("expected {wanted} at byte {}", self.at)
    }

    fn eat(&mut self, c: u8) -> bool {
        let found = self.peek() == Some(c);
        self.at += usize::from(found);
        found
    }

    fn word(&mut self, word: &str, value: Json) -> Parse<Json> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(value)
        } else {
            Err(self.unexpected("a value"))
        }
    }

    fn value(&mut self) -> Parse<Json> {
        self.space();
        match self.peek() {
            Some(b'{') => self.nested(Parser::object),
            Some(b'[') => self.nested(Parser::array),
            Some(b'"') => self.string().map(Json::String),
            Some(b't') => self.word("true", Json::Bool(true)),
            Some(b'f') => self.word("false", Json::Bool(false)),
            Some(b'n') => self.word("null", Json::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("a value")),
        }
    }

    fn nested(&mut self, f: fn(&mut Self) -> Parse<Json>) -> Parse<Json> {
        if self.depth == MAX_DEPTH {
            return Err(format!("nested too deeply at byte {}", self.at));
        }
        self.depth += 1;
        self.at += 1;
        let value = f(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self) -> Parse<Json> {
        let mut members = vec![];
        self.space();
        if self.eat(b'}') {
            return Ok(Json::Object(members));
        }
        loop {
            self.space();
            let name = self.string()?;
            self.space();
            if !self.eat(b':') {
                return Err(self.unexpected("`:`"));
            }
            members.push((name, self.value()?));
            self.space();
            if self.eat(b'}') {
                return Ok(Json::Object(members));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self) -> Parse<Json> {
        let mut items = vec![];
        self.space();
        if self.eat(b']') {
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value()?);
            self.space();
            if self.eat(b']') {
                return Ok(Json::Array(items));
            }
            if !self.eat(b',') {
                return Err(self.unexpected("`,` or `]`"));
            }
        }
    }

    fn number(&mut self) -> Parse<Json> {
        let start = self.at;
        while matches!(self.peek(), Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.text[start..self.at]).unwrap_or_default();
        if text.parse::<f64>().is_ok() {
            Ok(Json::Number(text.to_owned()))
        } else {
            Err(format!("a malformed number at byte {start}"))
        }
    }

    fn string(&mut self) -> Parse<String> {
        if !self.eat(b'"') {
            return Err(self.unexpected("a string"));
        }
        let mut out: Vec<u8> = vec![];
        loop {
            let c = self.peek().ok_or_else(|| self.unexpected("`\"`"))?;
            self.at += 1;
            match c {
                b'"' => return String::from_utf8(out).map_err(|_| "text is not UTF-8".into()),
                b'\\' => {
                    let c = self.escape()?;
                    let mut utf8 = [0; 4];
                    out.extend_from_slice(c.encode_utf8(&mut utf8).as_bytes());
                }
                c if c < 0x20 => return Err(format!("a control character at byte {}", self.at)),
                c => out.push(c),
            }
        }
    }

    fn escape(&mut self) -> Parse<char> {
        let c = self.peek().ok_or_else(|| self.unexpected("an escape"))?;
        self.at += 1;
        Ok(match c {
            b'"' | b'\\' | b'/' => c as char,
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let high = self.hex4()?;
                let code = if (0xd800..0xdc00).contains(&high) {
                    if !(self.eat(b'\\') && self.eat(b'u')) {
                        return Err(self.unexpected("the second half of a surrogate pair"));
                    }
                    let low = self.hex4()?;
                    0x10000 + ((high - 0xd800) << 10) + low.wrapping_sub(0xdc00) % 0x400
                } else {
                    high
                };
                char::from_u32(code).ok_or_else(|| self.unexpected("a character"))?
            }
            _ => return Err(self.unexpected("an escape")),
        })
    }

    fn hex4(&mut self) -> Parse<u32> {
        let digits = self.text.get(self.at..self.at + 4).and_then(|d| std::str::from_utf8(d).ok());
        let code = digits
            .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|d| u32::from_str_radix(d, 16).ok())
            .ok_or_else(|| self.unexpected("four hexadecimal digits"))?;
        self.at += 4;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_it_should() {
        let j = Json::parse(r#" {"a":[1,-2.5e3,true,null],"b":{"c":"x\n\u00e9\ud83d\ude00"}} "#);
        let j = j.unwrap();
        assert_eq!(j.get("a").unwrap().as_array().unwrap()[0].as_u64(), Some(1));
        assert_eq!(j.get("b").unwrap().get("c").unwrap().as_str(), Some("x\né😀"));
        assert_eq!(Json::parse("[]").unwrap(), Json::Array(vec![]));
        assert_eq!(Json::parse(&quote("a\"\\\n\u{1}é")).unwrap().as_str(), Some("a\"\\\n\u{1}é"));
    }

    #[test]
    fn refuses_the_rest() {
        for bad in [
            "",
            "{",
            "[1,]",
            "{\"a\"}",
            "{\"a\":1,}",
            "tru",
            "1 2",
            "\"",
            "\"\\q\"",
            "\"\\u12\"",
            "\"\\ud800\"",
            "--1",
            "{1:2}",
            "\"a\nb\"",
            "[1 2]",
        ] {
            assert!(Json::parse(bad).is_err(), "{bad} was accepted");
        }
        assert!(Json::parse(&"[".repeat(100_000)).unwrap_err().contains("too deeply"));
    }
}
