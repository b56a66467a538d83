//! Source to source: one layout, every comment kept.
//!
//! Works on tokens: lines stay where their author broke them, what changes is
//! indentation, the space between tokens, runs of blank lines, and braces: those
//! of a block that is not on one line end a line and stand on their own. Only
//! text that parses is touched, and it parses to the same tree afterwards.

use super::lexer::{Lexed, Tok, Token, lex};
use super::parse;
use crate::diag::{Diag, Severity, SourceMap};

/// The file in its one layout, or why it does not parse.
pub fn fmt(sources: &SourceMap, file: u32) -> Result<String, Vec<Diag>> {
    let Some(source) = sources.files.get(file as usize) else { return Ok(String::new()) };
    let mut diags = vec![];
    if u32::try_from(source.text.len()).is_err() {
        super::tree(sources, file, &mut diags);
        return Err(diags);
    }
    let lexed = lex(&source.text, file, &mut diags);
    parse::parse(&source.text, file, &lexed, &mut diags);
    diags.retain(|d| d.severity == Severity::Error);
    if !diags.is_empty() {
        return Err(diags);
    }
    Ok(layout(&source.text, &lexed))
}

/// A piece of a line: a token or a comment.
#[derive(Clone, Copy)]
enum Piece {
    Token(usize),
    Comment(usize),
}

fn layout(text: &str, lexed: &Lexed) -> String {
    let mut writer = Writer { text, lexed, out: String::new(), depth: 0, opened: vec![] };
    for (line, blank) in lines(text, lexed) {
        writer.line(&line, blank);
    }
    writer.out
}

/// The pieces line by line, and whether a blank line stood before each.
fn lines(text: &str, lexed: &Lexed) -> Vec<(Vec<Piece>, bool)> {
    let mut out: Vec<(Vec<Piece>, bool)> = vec![];
    let mut comments = lexed.comments.iter().enumerate().peekable();
    let mut end = 0usize;
    let apart = apart(&lexed.tokens);
    let mut place = |piece: Piece, lo: usize, hi: usize, out: &mut Vec<(Vec<Piece>, bool)>| {
        let gap = text.get(end..lo).unwrap_or("");
        let breaks = gap.matches('\n').count();
        let starts_line = matches!(piece, Piece::Token(i) if apart[i]);
        match out.last_mut() {
            Some((line, _)) if breaks == 0 && !starts_line => line.push(piece),
            _ => out.push((vec![piece], breaks > 1)),
        }
        end = hi;
    };
    for (i, token) in lexed.tokens.iter().enumerate() {
        while let Some((c, comment)) = comments.next_if(|(_, c)| c.before <= i) {
            let (lo, hi) = (comment.span.lo as usize, comment.span.hi as usize);
            place(Piece::Comment(c), lo, hi, &mut out);
        }
        if token.tok != Tok::Eof {
            let (lo, hi) = (token.span.lo as usize, token.span.hi as usize);
            place(Piece::Token(i), lo, hi, &mut out);
        }
    }
    out
}

/// Tokens that start a line of their own: a brace that closes a block begun on
/// another line, and what follows the brace that opens one.
fn apart(tokens: &[Token]) -> Vec<bool> {
    let mut out = vec![false; tokens.len()];
    let mut open: Vec<(usize, usize)> = vec![];
    let mut line = 0;
    for (i, token) in tokens.iter().enumerate() {
        line += token.newline as usize;
        match token.tok {
            Tok::LBrace => open.push((i, line)),
            Tok::RBrace => {
                if let Some((at, first)) = open.pop()
                    && first != line
                {
                    out[i] = true;
                    out[at + 1] = true;
                }
            }
            _ => {}
        }
    }
    out
}

struct Writer<'a> {
    text: &'a str,
    lexed: &'a Lexed,
    out: String,
    /// Lines are indented by the number of lines that opened a bracket.
    depth: usize,
    /// For every open bracket, whether its line indented what follows.
    opened: Vec<bool>,
}

impl Writer<'_> {
    fn tok(&self, i: usize) -> Token {
        self.lexed.tokens[i]
    }

    fn source(&self, piece: Piece) -> &str {
        let span = match piece {
            Piece::Token(i) => self.tok(i).span,
            Piece::Comment(i) => self.lexed.comments[i].span,
        };
        self.text.get(span.lo as usize..span.hi as usize).unwrap_or("")
    }

    fn line(&mut self, pieces: &[Piece], blank: bool) {
        // A one-line block with several statements is not broken up here: the
        // author's lines stand.
        let mut leading = 0;
        for piece in pieces {
            match piece {
                Piece::Token(i) if closes(self.tok(*i).tok) => leading += 1,
                _ => break,
            }
        }
        let mut depth = self.depth;
        for opened in self.opened.iter().rev().take(leading) {
            depth -= *opened as usize;
        }
        let continues = self.continues(pieces);
        let first_closes = leading > 0;
        if blank && !self.out.is_empty() && !first_closes && !self.out.ends_with("{\n") {
            self.out.push('\n');
        }
        for _ in 0..depth + (continues && !first_closes) as usize {
            self.out.push_str("  ");
        }
        for (at, piece) in pieces.iter().enumerate() {
            if at > 0 && self.space(pieces[at - 1], *piece) {
                self.out.push(' ');
            }
            let text = self.source(*piece).to_string();
            self.out.push_str(&text);
        }
        self.out.push('\n');
        self.brackets(pieces);
    }

    /// Updates the open brackets; a line indents once, however many it opens.
    fn brackets(&mut self, pieces: &[Piece]) {
        let before = self.opened.len();
        let mut lowest = before;
        for piece in pieces {
            let Piece::Token(i) = piece else { continue };
            let tok = self.tok(*i).tok;
            if opens(tok) {
                self.opened.push(false);
            } else if closes(tok)
                && let Some(opened) = self.opened.pop()
            {
                self.depth -= opened as usize;
                lowest = lowest.min(self.opened.len());
            }
        }
        if self.opened.len() > lowest
            && let Some(last) = self.opened.last_mut()
        {
            *last = true;
            self.depth += 1;
        }
    }

    /// Whether a line goes on with the statement of the line before: it starts
    /// with an operator, or that one ends with one, outside brackets.
    fn continues(&self, pieces: &[Piece]) -> bool {
        let Some(Piece::Token(first)) = pieces.first() else { return false };
        let tok = self.tok(*first).tok;
        if infix(tok) || matches!(tok, Tok::Arrow | Tok::Assign) {
            return true;
        }
        *first > 0 && {
            let before = self.tok(*first - 1).tok;
            (infix(before) || before == Tok::Assign) && !opens(before)
        }
    }

    /// Whether a space stands between two pieces of a line.
    fn space(&self, left: Piece, right: Piece) -> bool {
        let (Piece::Token(l), Piece::Token(r)) = (left, right) else { return true };
        let (a, b) = (self.tok(l).tok, self.tok(r).tok);
        match (a, b) {
            (Tok::LParen | Tok::LBracket, _) | (_, Tok::RParen | Tok::RBracket) => false,
            (Tok::LBrace, Tok::RBrace) => false,
            (_, Tok::Comma) => false,
            (Tok::Comma, _) => true,
            // A slice `x[1:2]` has none, a type `x: f32[]` has one after.
            (_, Tok::Colon) => false,
            (Tok::Colon, _) => !self.in_slice(l),
            (Tok::Dot, _) | (_, Tok::Dot) => false,
            // A range without an end, before its block.
            (Tok::DotDot, Tok::LBrace) => true,
            // `var ..params` is a list of variables, `0..4` a range.
            (Tok::Ident, Tok::DotDot) => self.source(Piece::Token(l)) == "var",
            (Tok::DotDot, _) | (_, Tok::DotDot) => false,
            // Calls, indexing and types touch what they follow.
            (Tok::Ident | Tok::RParen | Tok::RBracket, Tok::LParen | Tok::LBracket) => {
                !self.touches(l, r)
            }
            (Tok::Bang, _) => false,
            (Tok::Minus, _) if self.is_unary(l) => false,
            _ => true,
        }
    }

    /// Whether a bracket belongs to the word before it.
    fn touches(&self, l: usize, r: usize) -> bool {
        let word = self.source(Piece::Token(l));
        if self.tok(l).tok != Tok::Ident {
            return self.tok(r).tok == Tok::LParen || self.tok(r).tok == Tok::LBracket;
        }
        !matches!(word, "return" | "yield" | "if" | "while" | "over" | "minimize" | "else" | "in")
    }

    fn is_unary(&self, i: usize) -> bool {
        if i == 0 {
            return true;
        }
        let before = self.tok(i - 1);
        match before.tok {
            Tok::Ident => {
                let word = self.source(Piece::Token(i - 1));
                matches!(word, "return" | "yield" | "if" | "in" | "minimize")
                    && !self.tok(i).newline
            }
            Tok::Int | Tok::Float | Tok::Str | Tok::RParen | Tok::RBracket | Tok::RBrace => false,
            _ => true,
        }
    }

    /// Whether a colon separates the bounds of a slice: inside brackets, not a
    /// parenthesis, and not after a parameter's name.
    fn in_slice(&self, colon: usize) -> bool {
        let mut depth = 0i64;
        for i in (0..colon).rev() {
            let tok = self.tok(i).tok;
            if closes(tok) {
                depth += 1;
            } else if opens(tok) {
                if depth == 0 {
                    return tok == Tok::LBracket;
                }
                depth -= 1;
            }
            if self.tok(i).newline && depth == 0 && i + 64 < colon {
                return false;
            }
        }
        false
    }
}

fn opens(tok: Tok) -> bool {
    matches!(tok, Tok::LParen | Tok::LBracket | Tok::LBrace)
}

fn closes(tok: Tok) -> bool {
    matches!(tok, Tok::RParen | Tok::RBracket | Tok::RBrace)
}

fn infix(tok: Tok) -> bool {
    matches!(
        tok,
        Tok::Plus
            | Tok::Minus
            | Tok::Star
            | Tok::StarStar
            | Tok::Slash
            | Tok::Percent
            | Tok::At
            | Tok::EqEq
            | Tok::NotEq
            | Tok::Lt
            | Tok::Le
            | Tok::Gt
            | Tok::Ge
            | Tok::AndAnd
            | Tok::OrOr
    )
}
