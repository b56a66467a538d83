//! Text to tokens.
//!
//! Comments are kept beside the tokens (the formatter needs every one); doc
//! comments (`///`) are tokens' business of the parser, which looks them up by
//! position. Newlines are not tokens: each token knows whether one precedes it.
//!
//! The lexer never fails: what it cannot read becomes an [`Tok::Error`] token
//! and a diagnostic.

use crate::diag::{Diag, Span};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tok {
    Ident,
    Int,
    Float,
    Str,
    LParen,
    RParen,
    LBracket,
    RBracket,
    LBrace,
    RBrace,
    Comma,
    Colon,
    Dot,
    DotDot,
    Arrow,
    Assign,
    PlusAssign,
    MinusAssign,
    StarAssign,
    SlashAssign,
    Plus,
    Minus,
    Star,
    StarStar,
    Slash,
    Percent,
    At,
    EqEq,
    NotEq,
    Lt,
    Le,
    Gt,
    Ge,
    AndAnd,
    OrOr,
    Bang,
    Error,
    Eof,
}

impl Tok {
    /// How messages name the token.
    pub fn describe(self) -> &'static str {
        match self {
            Tok::Ident => "a name",
            Tok::Int => "an integer",
            Tok::Float => "a number",
            Tok::Str => "a string",
            Tok::LParen => "`(`",
            Tok::RParen => "`)`",
            Tok::LBracket => "`[`",
            Tok::RBracket => "`]`",
            Tok::LBrace => "`{`",
            Tok::RBrace => "`}`",
            Tok::Comma => "`,`",
            Tok::Colon => "`:`",
            Tok::Dot => "`.`",
            Tok::DotDot => "`..`",
            Tok::Arrow => "`->`",
            Tok::Assign => "`=`",
            Tok::PlusAssign => "`+=`",
            Tok::MinusAssign => "`-=`",
            Tok::StarAssign => "`*=`",
            Tok::SlashAssign => "`/=`",
            Tok::Plus => "`+`",
            Tok::Minus => "`-`",
            Tok::Star => "`*`",
            Tok::StarStar => "`**`",
            Tok::Slash => "`/`",
            Tok::Percent => "`%`",
            Tok::At => "`@`",
            Tok::EqEq => "`==`",
            Tok::NotEq => "`!=`",
            Tok::Lt => "`<`",
            Tok::Le => "`<=`",
            Tok::Gt => "`>`",
            Tok::Ge => "`>=`",
            Tok::AndAnd => "`&&`",
            Tok::OrOr => "`||`",
            Tok::Bang => "`!`",
            Tok::Error => "an unreadable character",
            Tok::Eof => "the end of the file",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub tok: Tok,
    pub span: Span,
    /// A line break stands between the previous token and this one.
    pub newline: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Comment {
    pub span: Span,
    /// Index of the token that follows.
    pub before: usize,
}

pub struct Lexed {
    /// Ends with an `Eof` token.
    pub tokens: Vec<Token>,
    pub comments: Vec<Comment>,
}

pub fn lex(text: &str, file: u32, diags: &mut Vec<Diag>) -> Lexed {
    let mut lexer = Lexer {
        text,
        bytes: text.as_bytes(),
        at: 0,
        file,
        newline: false,
        tokens: vec![],
        comments: vec![],
        diags,
    };
    if text.starts_with('\u{feff}') {
        lexer.at = '\u{feff}'.len_utf8();
    }
    lexer.run();
    Lexed { tokens: lexer.tokens, comments: lexer.comments }
}

struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    file: u32,
    newline: bool,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
    diags: &'a mut Vec<Diag>,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn span(&self, lo: usize) -> Span {
        Span::new(self.file, lo, self.at)
    }

    fn push(&mut self, tok: Tok, lo: usize) {
        let span = self.span(lo);
        self.tokens.push(Token { tok, span, newline: self.newline });
        self.newline = false;
    }

    fn run(&mut self) {
        while self.at < self.bytes.len() {
            let lo = self.at;
            match self.bytes[lo] {
                b'\n' => {
                    self.newline = true;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if self.peek(1) == b'/' => self.comment(),
                b'"' => self.string(),
                b'.' if self.in_path(lo) && self.peek(1).is_ascii_digit() => {
                    self.at += 1;
                    self.push(Tok::Dot, lo);
                    let digits = self.at;
                    while self.peek(0).is_ascii_digit() {
                        self.at += 1;
                    }
                    self.push(Tok::Int, digits);
                }
                b'0'..=b'9' => self.number(),
                b'.' if self.peek(1).is_ascii_digit() => self.number(),
                b'a'..=b'z' | b'A'..=b'Z' | b'_' => {
                    while matches!(self.peek(0), b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_') {
                        self.at += 1;
                    }
                    self.push(Tok::Ident, lo);
                }
                _ => self.punct(),
            }
        }
        self.push(Tok::Eof, self.at);
    }

    fn comment(&mut self) {
        let lo = self.at;
        while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
            self.at += 1;
        }
        let text = &self.text[lo..self.at];
        let hi = lo + text.trim_end().len();
        let span = Span::new(self.file, lo, hi);
        self.looks_like_division(span);
        self.comments.push(Comment { span, before: self.tokens.len() });
    }

    /// `n // 2` divides in Python; here it is `n` and a comment.
    fn looks_like_division(&mut self, comment: Span) {
        let text = &self.text[comment.lo as usize..comment.hi as usize];
        let number = text.strip_prefix("//").unwrap_or("").trim();
        let after_value = !self.newline
            && self.tokens.last().is_some_and(|t| {
                matches!(t.tok, Tok::Ident | Tok::Int | Tok::Float | Tok::RParen | Tok::RBracket)
            });
        if after_value && number.parse::<f64>().is_ok_and(f64::is_finite) {
            self.diags.push(
                Diag::warning("E0154", format!("`// {number}` is a comment, not a division"))
                    .at(comment, "this is passed over")
                    .help(format!("a division that rounds down is `floor(a / {number})`")),
            );
        }
    }

    fn string(&mut self) {
        let lo = self.at;
        self.at += 1;
        loop {
            match self.peek(0) {
                b'"' => {
                    self.at += 1;
                    return self.push(Tok::Str, lo);
                }
                b'\\' if self.at + 1 < self.bytes.len() && self.peek(1) != b'\n' => {
                    let escape = self.at;
                    self.at += 1;
                    let known = matches!(self.peek(0), b'n' | b't' | b'r' | b'0' | b'"' | b'\\');
                    self.skip_char();
                    if !known {
                        let shown = &self.text[escape..self.at];
                        let message = format!("`{shown}` means nothing in a string");
                        self.diags.push(
                            Diag::error("E0101", message)
                                .at(self.span(escape), "not an escape")
                                .help("strings know `\\n \\t \\r \\0 \\\" \\\\`; a backslash is `\\\\`"),
                        );
                    }
                }
                b'\n' | 0 if self.at >= self.bytes.len() || self.peek(0) == b'\n' => {
                    let span = self.span(lo);
                    self.diags.push(
                        Diag::error("E0102", "this string has no end")
                            .at(span, "the closing `\"` is missing on this line")
                            .fix("close the string", Span::new(self.file, self.at, self.at), "\""),
                    );
                    return self.push(Tok::Error, lo);
                }
                _ => self.skip_char(),
            }
        }
    }

    fn skip_char(&mut self) {
        self.at += 1;
        while self.at < self.bytes.len() && !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
    }

    /// Whether a dot here goes on with a path, as in `net.block.0.w`: it touches a
    /// name, or a number after a dot.
    fn in_path(&self, at: usize) -> bool {
        let touches = |token: Option<&Token>, at: usize, tok: Tok| {
            token.is_some_and(|t| t.tok == tok && t.span.hi as usize == at)
        };
        let mut before = self.tokens.iter().rev();
        let last = before.next();
        touches(last, at, Tok::Ident)
            || touches(last, at, Tok::Int)
                && last.is_some_and(|l| touches(before.next(), l.span.lo as usize, Tok::Dot))
    }

    fn number(&mut self) {
        let lo = self.at;
        let mut float = false;
        if self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'b') {
            self.at += 2;
            while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'_' {
                self.at += 1;
            }
            return self.push(Tok::Int, lo);
        }
        self.digits();
        // `1..5` is a range, not `1.` and `.5`.
        let after = self.peek(1);
        let named = after.is_ascii_alphabetic() || after == b'_';
        if self.peek(0) == b'.' && after != b'.' && !named {
            float = true;
            self.at += 1;
            self.digits();
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = matches!(self.peek(1), b'+' | b'-') as usize;
            if self.peek(1 + sign).is_ascii_digit() {
                float = true;
                self.at += 1 + sign;
                self.digits();
            }
        }
        if self.peek(0).is_ascii_alphabetic() || self.peek(0) == b'_' {
            let end = self.at;
            while self.peek(0).is_ascii_alphanumeric() || self.peek(0) == b'_' {
                self.at += 1;
            }
            self.diags.push(
                Diag::error("E0103", format!("`{}` is not a number", &self.text[lo..self.at]))
                    .at(self.span(lo), "a number cannot run into a name")
                    .fix("to multiply, write `*`", Span::new(self.file, end, end), " * "),
            );
            return self.push(Tok::Error, lo);
        }
        self.push(if float { Tok::Float } else { Tok::Int }, lo);
    }

    fn digits(&mut self) {
        while self.peek(0).is_ascii_digit()
            || (self.peek(0) == b'_' && self.peek(1).is_ascii_digit())
        {
            self.at += 1;
        }
    }

    /// `/* .. */`: told, and passed over as what it was meant to be.
    fn block_comment(&mut self) {
        let lo = self.at;
        let rest = &self.text[lo..];
        let line = rest.find('\n').unwrap_or(rest.len());
        let end = rest.find("*/").map_or(line, |i| i + 2);
        self.at = lo + end;
        self.diags.push(
            Diag::error("E0101", "`/*` means nothing here")
                .at(Span::new(self.file, lo, lo + 2), "not part of the language")
                .help("comments start with `//` and end with the line"),
        );
    }

    fn punct(&mut self) {
        let lo = self.at;
        if (self.peek(0), self.peek(1)) == (b'/', b'*') {
            return self.block_comment();
        }
        let two = match (self.peek(0), self.peek(1)) {
            (b'.', b'.') => Some(Tok::DotDot),
            (b'-', b'>') => Some(Tok::Arrow),
            (b'+', b'=') => Some(Tok::PlusAssign),
            (b'-', b'=') => Some(Tok::MinusAssign),
            (b'*', b'=') => Some(Tok::StarAssign),
            (b'/', b'=') => Some(Tok::SlashAssign),
            (b'*', b'*') => Some(Tok::StarStar),
            (b'=', b'=') => Some(Tok::EqEq),
            (b'!', b'=') => Some(Tok::NotEq),
            (b'<', b'=') => Some(Tok::Le),
            (b'>', b'=') => Some(Tok::Ge),
            (b'&', b'&') => Some(Tok::AndAnd),
            (b'|', b'|') => Some(Tok::OrOr),
            _ => None,
        };
        if let Some(tok) = two {
            self.at += 2;
            return self.push(tok, lo);
        }
        let one = match self.peek(0) {
            b'(' => Tok::LParen,
            b')' => Tok::RParen,
            b'[' => Tok::LBracket,
            b']' => Tok::RBracket,
            b'{' => Tok::LBrace,
            b'}' => Tok::RBrace,
            b',' => Tok::Comma,
            b':' => Tok::Colon,
            b'.' => Tok::Dot,
            b'=' => Tok::Assign,
            b'+' => Tok::Plus,
            b'-' => Tok::Minus,
            b'*' => Tok::Star,
            b'/' => Tok::Slash,
            b'%' => Tok::Percent,
            b'@' => Tok::At,
            b'<' => Tok::Lt,
            b'>' => Tok::Gt,
            b'!' => Tok::Bang,
            _ => Tok::Error,
        };
        self.skip_char();
        if one == Tok::Error {
            self.unreadable(lo);
        }
        self.push(one, lo);
    }

    /// `'text'`: said once, and passed over as the string it was meant to be.
    fn single_quoted(&mut self, diag: Diag, lo: usize) -> Diag {
        let line = self.text[self.at..].lines().next().unwrap_or("");
        match line.find('\'') {
            Some(end) => {
                let inner = &line[..end];
                self.at += end + 1;
                let quoted = format!("\"{inner}\"");
                diag.fix("strings use double quotes", self.span(lo), quoted)
            }
            None => diag.fix("strings use double quotes", self.span(lo), "\""),
        }
    }

    fn unreadable(&mut self, lo: usize) {
        // One finding for a run of them: binary files should not flood.
        while self.at < self.bytes.len() && !self.bytes[self.at].is_ascii() {
            self.skip_char();
        }
        let text = &self.text[lo..self.at];
        let shown: String = text.chars().take(8).flat_map(char::escape_debug).collect();
        let mut diag = Diag::error("E0101", format!("`{shown}` means nothing here"))
            .at(self.span(lo), "not part of the language");
        diag = match text {
            ";" => diag.fix("statements end with the line; remove it", self.span(lo), ""),
            "&" => diag.fix("`and` of two bools is `&&`", self.span(lo), "&&"),
            "|" => diag.fix("`or` of two bools is `||`", self.span(lo), "||"),
            "#" => diag.fix("comments start with `//`", self.span(lo), "//"),
            "^" => diag.fix("powers are written `**`", self.span(lo), "**"),
            "'" => self.single_quoted(diag, lo),
            "?" => diag.help(super::habits::CHOOSE),
            "$" => diag.help("names are letters, digits and `_`"),
            "~" => diag.fix("true where `a` is not: `!a`", self.span(lo), "!"),
            _ => diag,
        };
        // A habit is said once, not on every line.
        let again = matches!(text, ";" | "#")
            && self.diags.iter().any(|d| d.code == diag.code && d.message == diag.message);
        if !again {
            self.diags.push(diag);
        }
        if text == "#" {
            // Passed over as what it was meant to be.
            while self.at < self.bytes.len() && self.bytes[self.at] != b'\n' {
                self.skip_char();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[Tok]) {
        let mut diags = vec![];
        let lexed = lex(text, 0, &mut diags);
        let toks: Vec<Tok> = lexed.tokens.iter().map(|t| t.tok).collect();
        assert_eq!(toks[..toks.len() - 1], *expected, "{text}: {diags:?}");
    }

    #[test]
    fn tokens() {
        use Tok::*;
        check("1..5", &[Int, DotDot, Int]);
        check("1e-3 1.5 .5 2. 0x1f", &[Float, Float, Float, Float, Int]);
        check("a.b(c) -> d", &[Ident, Dot, Ident, LParen, Ident, RParen, Arrow, Ident]);
        check("x += y ** 2 // note", &[Ident, PlusAssign, Ident, StarStar, Int]);
        check("\"a\\\"b\" \"open", &[Str, Error]);
        check("1x é", &[Error, Error]);
        check("\u{feff}dim", &[Ident]);
    }

    #[test]
    fn comments_and_newlines_are_remembered() {
        let lexed = lex("a // one\n// two\nb", 0, &mut vec![]);
        assert_eq!(lexed.comments.len(), 2);
        assert_eq!(lexed.comments[1].before, 1);
        assert!(!lexed.tokens[0].newline && lexed.tokens[1].newline);
    }
}
