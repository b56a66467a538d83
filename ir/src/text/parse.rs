//! Tokens to tree, by recursive descent.
//!
//! Invariants
//! - A tree always comes back: what could not be read is left out or is an
//!   [`ExprKind::Error`], and a diagnostic says so.
//! - After an error the parser skips to the next statement or item, so that one
//!   run finds several errors. An error that adds nothing (at the place of the
//!   previous one) is dropped.
//! - Nesting is bounded by [`MAX_DEPTH`]: no input overflows the stack. Chains
//!   of operators are flat, and so do not count.

use super::ast::*;
use super::lexer::{Comment, Lexed, Tok, Token};
use crate::DType;
use crate::diag::{Diag, Span};
use std::sync::Arc;

/// Parentheses, blocks and unary operators inside each other.
pub const MAX_DEPTH: usize = 96;

/// Words that cannot name a value.
pub const KEYWORDS: &[&str] = &[
    "var", "func", "entry", "return", "yield", "if", "else", "while", "minimize", "true", "false",
];

/// Whether a word cannot name a value.
pub fn is_reserved(word: &str) -> bool {
    KEYWORDS.contains(&word) || DType::from_name(word).is_some()
}

pub fn parse(text: &str, file: u32, lexed: &Lexed, diags: &mut Vec<Diag>) -> File {
    let mut parser = Parser {
        text,
        file,
        tokens: &lexed.tokens,
        comments: &lexed.comments,
        at: 0,
        depth: 0,
        last_error: usize::MAX,
        diags,
    };
    parser.file()
}

pub(super) struct Parser<'a> {
    pub text: &'a str,
    pub file: u32,
    pub tokens: &'a [Token],
    pub comments: &'a [Comment],
    pub at: usize,
    pub depth: usize,
    /// Token index of the last reported error.
    pub last_error: usize,
    pub diags: &'a mut Vec<Diag>,
}

/// Marks that an error was reported; the caller recovers.
pub(super) struct Reported;
pub(super) type Res<T> = Result<T, Reported>;

impl Parser<'_> {
    // Looking at tokens.

    pub fn token(&self) -> Token {
        self.peek(0)
    }

    pub fn peek(&self, ahead: usize) -> Token {
        let last = self.tokens.len() - 1;
        self.tokens[(self.at + ahead).min(last)]
    }

    pub fn tok(&self) -> Tok {
        self.token().tok
    }

    pub fn span(&self) -> Span {
        self.token().span
    }

    pub fn prev_span(&self) -> Span {
        match self.at {
            0 => Span::new(self.file, 0, 0),
            at => self.tokens[at - 1].span,
        }
    }

    pub fn text_of(&self, span: Span) -> &str {
        self.text.get(span.lo as usize..span.hi as usize).unwrap_or("")
    }

    pub fn word(&self) -> &str {
        if self.tok() == Tok::Ident { self.text_of(self.span()) } else { "" }
    }

    pub fn is_word(&self, word: &str) -> bool {
        self.tok() == Tok::Ident && self.word() == word
    }

    pub fn bump(&mut self) -> Token {
        let token = self.token();
        if self.at < self.tokens.len() - 1 {
            self.at += 1;
        }
        token
    }

    pub fn eat(&mut self, tok: Tok) -> bool {
        let hit = self.tok() == tok;
        if hit {
            self.bump();
        }
        hit
    }

    pub fn eat_word(&mut self, word: &str) -> bool {
        let hit = self.is_word(word);
        if hit {
            self.bump();
        }
        hit
    }

    // Errors.

    /// Reports unless the lexer or an earlier error already spoke about this place.
    pub fn report(&mut self, diag: Diag) -> Reported {
        if self.tok() != Tok::Error && self.last_error != self.at {
            self.diags.push(diag);
        }
        self.last_error = self.at;
        Reported
    }

    pub fn expected(&mut self, what: &str, context: &str) -> Reported {
        if let Some(habit) = self.habit() {
            return self.report(habit);
        }
        let found = self.found();
        let span = if self.tok() == Tok::Eof {
            let end = self.prev_span().hi as usize;
            Span::new(self.file, end, end)
        } else {
            self.span()
        };
        self.report(
            Diag::error("E0104", format!("expected {what} {context}, found {found}"))
                .at(span, format!("expected {what}")),
        )
    }

    pub fn found(&self) -> String {
        match self.tok() {
            Tok::Ident => format!("`{}`", self.word()),
            Tok::Int | Tok::Float => format!("`{}`", self.text_of(self.span())),
            tok => tok.describe().to_string(),
        }
    }

    pub fn expect(&mut self, tok: Tok, context: &str) -> Res<Span> {
        if self.tok() == tok {
            return Ok(self.bump().span);
        }
        Err(self.expected(tok.describe(), context))
    }

    /// A closing bracket; the error also shows what it would close.
    pub fn close(&mut self, tok: Tok, open: Span) -> Res<Span> {
        if self.tok() == tok {
            return Ok(self.bump().span);
        }
        if let Some(habit) = self.habit() {
            return Err(self.report(habit));
        }
        let found = self.found();
        let end = self.prev_span().hi as usize;
        let here = Span::new(self.file, end, end);
        let closer = tok.describe().trim_matches('`').to_string();
        let diag = Diag::error("E0105", format!("expected {}, found {found}", tok.describe()))
            .at(here, format!("expected {} or a comma", tok.describe()))
            .also(open, "to close this");
        let another = matches!(
            self.tok(),
            Tok::Ident | Tok::Int | Tok::Float | Tok::Str | Tok::LParen | Tok::LBracket
        );
        let diag = match self.hidden_by_comment(&closer) {
            Some(comment) => diag
                .also(comment, "this is a comment")
                .help("`//` starts a comment; a division that rounds down is `floor(a / b)`"),
            None if another && !self.token().newline => {
                diag.fix("separate them with a comma", here, ",")
            }
            None => diag.fix(format!("add {}", tok.describe()), here, closer),
        };
        Err(self.report(diag))
    }

    /// The comment right before the current token that holds `closer`: a division
    /// that was meant to round down (`n // 2)`) has swallowed it.
    fn hidden_by_comment(&self, closer: &str) -> Option<Span> {
        let start = self.comments.partition_point(|c| c.before < self.at);
        let comment = self.comments.get(start).filter(|c| c.before == self.at)?;
        self.text_of(comment.span).contains(closer).then_some(comment.span)
    }

    pub fn enter<T>(&mut self, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        if self.depth >= MAX_DEPTH {
            let span = self.span();
            let error = self.report(
                Diag::error("E0106", "this is nested too deep")
                    .at(span, format!("more than {MAX_DEPTH} levels"))
                    .help("name a part of it and use the name"),
            );
            // Nothing after this point would make sense.
            self.at = self.tokens.len() - 1;
            self.last_error = self.at;
            return Err(error);
        }
        self.depth += 1;
        let result = f(self);
        self.depth -= 1;
        result
    }

    // Names.

    pub fn simple_name(&mut self, what: &str, context: &str) -> Res<Name> {
        if self.tok() != Tok::Ident {
            return Err(self.expected(what, context));
        }
        let word = self.word();
        if is_reserved(word) {
            let (word, span) = (word.to_string(), self.span());
            return Err(self.report(
                Diag::error("E0107", format!("`{word}` cannot be a name"))
                    .at(span, format!("expected {what}; `{word}` is a word of the language"))
                    .fix("choose another name", span, format!("{word}_")),
            ));
        }
        let name = Arc::from(word);
        let span = self.bump().span;
        Ok(Name { text: name, span })
    }

    /// `a` or `a.b.c`, on one line.
    pub fn dotted_name(&mut self, what: &str, context: &str) -> Res<Name> {
        let first = self.simple_name(what, context)?;
        if self.tok() != Tok::Dot || self.token().newline {
            return Ok(first);
        }
        let mut text = first.text.to_string();
        let mut span = first.span;
        while self.tok() == Tok::Dot && !self.token().newline {
            self.bump();
            // Calls in a `for` are numbered: `net.block.0.w`.
            if !matches!(self.tok(), Tok::Ident | Tok::Int) {
                return Err(self.expected("a name", "after `.`"));
            }
            text.push('.');
            text.push_str(self.text_of(self.span()));
            span = span.to(self.bump().span);
        }
        Ok(Name { text: text.into(), span })
    }

    /// The `///` lines right before the current token, without their marks.
    pub fn doc(&self) -> String {
        let start = self.comments.partition_point(|c| c.before < self.at);
        let mut lines = vec![];
        for comment in self.comments[start..].iter().take_while(|c| c.before == self.at) {
            if let Some(line) = self.text_of(comment.span).strip_prefix("///") {
                lines.push(line.strip_prefix(' ').unwrap_or(line));
            }
        }
        lines.join("\n")
    }

    // Items.

    fn file(&mut self) -> File {
        let mut file = File::default();
        while self.tok() != Tok::Eof {
            let (start, depth) = (self.at, self.depth);
            if self.item(&mut file).is_err() {
                self.depth = depth;
                if self.at == start {
                    self.bump();
                }
                self.skip_to_item();
            }
        }
        file
    }

    fn skip_to_item(&mut self) {
        while self.tok() != Tok::Eof {
            let starts = self.token().newline
                && matches!(
                    self.word(),
                    "graph"
                        | "use"
                        | "dim"
                        | "var"
                        | "queue"
                        | "reader"
                        | "func"
                        | "layer"
                        | "model"
                        | "slot"
                        | "entry"
                        | "runner"
                        | "replica"
                        | "init"
                        | "let"
                );
            if starts && self.starts_item() {
                return;
            }
            // What would be a declaration elsewhere, at the start of a line.
            let lo = self.span().lo as usize;
            let at_margin = self.text[..lo].ends_with('\n');
            let foreign = super::habits::declaration(self.word()).is_some();
            if at_margin && (foreign || self.tok() == Tok::At) && self.peek(1).tok == Tok::Ident {
                return;
            }
            self.bump();
        }
    }

    /// Tells an item from a statement that starts with the same word.
    fn starts_item(&self) -> bool {
        match self.word() {
            "init" => self.peek(1).tok == Tok::LBrace,
            "use" => matches!(self.peek(1).tok, Tok::Ident | Tok::Str),
            _ => self.peek(1).tok == Tok::Ident,
        }
    }

    fn item(&mut self, file: &mut File) -> Res<()> {
        match self.word() {
            "graph" => {
                let doc = self.doc();
                let span = self.bump().span;
                let name = self.dotted_name("the graph's name", "after `graph`")?;
                if let Some(first) = &file.name {
                    let diag = Diag::error("E0108", "a file has one `graph` line")
                        .at(span.to(name.span), "this is the second")
                        .also(first.span, "the first is here");
                    self.diags.push(diag);
                } else {
                    file.doc = doc;
                    file.name = Some(name);
                }
            }
            "use" => {
                let item = self.use_item()?;
                file.items.push(Item::Use(item));
            }
            "dim" => {
                let start = self.bump().span;
                loop {
                    let item = self.dim_item(start)?;
                    file.items.push(Item::Dim(item));
                    if !self.eat(Tok::Comma) {
                        break;
                    }
                }
            }
            "var" => {
                let item = self.var_item()?;
                file.items.push(Item::Var(item));
            }
            "slot" if self.peek(1).tok == Tok::Ident => {
                let item = self.var_item()?;
                file.items.push(Item::Var(VarItem { slot: true, ..item }));
            }
            "let" => {
                self.bump();
                let name = self.simple_name("a name", "after `let`")?;
                let ty = if self.eat(Tok::Colon) { Some(self.ty()?) } else { None };
                self.expect(Tok::Assign, "in a `let`")?;
                let value = self.expr()?;
                file.items.push(Item::Let(LetItem { name, ty, value }));
            }
            "func" => {
                let item = self.func_item()?;
                file.items.push(Item::Func(item));
            }
            "layer" | "model" if self.peek(1).tok == Tok::Ident => {
                let item = self.func_item()?;
                file.items.push(Item::Func(item));
            }
            "queue" | "reader" => {
                let item = self.queue_item()?;
                file.items.push(Item::Queue(item));
            }
            "entry" | "runner" | "replica" => {
                let item = self.entry_item()?;
                file.items.push(Item::Entry(item));
            }
            "init" if self.peek(1).tok == Tok::LBrace => {
                self.bump();
                let body = self.block()?;
                file.items.push(Item::Init(body));
            }
            word => {
                let known = [
                    "graph", "use", "dim", "var", "queue", "reader", "func", "layer", "model",
                    "entry", "runner", "let", "init",
                ];
                let near = super::names::nearest(word, known.into_iter());
                let (span, found) = (self.span(), self.found());
                let mut diag = Diag::error(
                    "E0109",
                    format!("expected a declaration at the top level, found {found}"),
                )
                .at(
                    span,
                    "expected `use`, `dim`, `var`, `let`, `func`, `layer`, `model` or `entry`",
                );
                let habit = super::habits::declaration(word);
                if let Some((instead, help)) = habit {
                    diag = match instead {
                        Some(instead) => diag.fix(help, span, instead),
                        None => diag.help(help),
                    };
                } else if let Some(near) = near {
                    diag = diag.fix(format!("did you mean `{near}`?"), span, near);
                } else if self.tok() == Tok::At {
                    diag = diag.help("there are no decorators; leave it out");
                } else if self.tok() == Tok::Ident {
                    diag = diag.help("statements stand inside an `entry` or a `func`");
                }
                return Err(self.report(diag));
            }
        }
        self.end_of_line("a declaration")
    }

    /// The next thing must start on a new line (or close a block).
    pub fn end_of_line(&mut self, what: &str) -> Res<()> {
        let token = self.token();
        if token.newline || matches!(token.tok, Tok::Eof | Tok::RBrace) {
            return Ok(());
        }
        if let Some(habit) = self.habit() {
            return Err(self.report(habit));
        }
        let found = self.found();
        Err(self.report(
            Diag::error("E0104", format!("expected the end of {what}, found {found}"))
                .at(token.span, "this does not continue what stands before it")
                .help("start it on a new line"),
        ))
    }

    fn use_item(&mut self) -> Res<Use> {
        self.bump();
        if self.tok() == Tok::Str {
            let path = self.string()?;
            if !self.eat_word("as") {
                return Err(self.expected("`as NAME`", "after the file to use"));
            }
            let name = self.simple_name("a name", "after `as`")?;
            return Ok(Use { name, path: Some(path) });
        }
        Ok(Use { name: self.simple_name("a library", "after `use`")?, path: None })
    }

    fn dim_item(&mut self, start: Span) -> Res<DimItem> {
        let name = self.simple_name("a name", "after `dim`")?;
        let mut range = None;
        if self.tok() == Tok::Assign && !self.token().newline {
            let span = self.span();
            return Err(self.report(
                Diag::error("E0104", "a dim has no value of its own")
                    .at(span, "it is known when an entry is called")
                    .fix("a fixed size is named with `let`", start, "let")
                    .help(format!("a range is given with `dim {}: 1..64`", name.text)),
            ));
        }
        if self.eat(Tok::Colon) {
            let lo_span = self.span();
            let lo = self.small_int("the smallest size")?;
            self.expect(Tok::DotDot, "in the range of a dim")?;
            self.eat(Tok::Assign);
            let hi = if self.tok() == Tok::Int && !self.token().newline {
                self.small_int("the largest size")?
            } else {
                i64::MAX
            };
            range = Some((lo, hi, lo_span.to(self.prev_span())));
        }
        Ok(DimItem { name, range })
    }

    fn small_int(&mut self, what: &str) -> Res<i64> {
        if self.tok() != Tok::Int {
            return Err(self.expected(what, "here"));
        }
        match self.text_of(self.span()).replace('_', "").parse() {
            Ok(value) => {
                self.bump();
                Ok(value)
            }
            Err(_) => {
                let span = self.span();
                Err(self.report(
                    Diag::error("E0103", "this number is too large").at(span, "for a size"),
                ))
            }
        }
    }

    pub fn string(&mut self) -> Res<(String, Span)> {
        let span = self.expect(Tok::Str, "here")?;
        let raw = self.text_of(span);
        let raw = raw.get(1..raw.len().saturating_sub(1)).unwrap_or("");
        let mut out = String::new();
        let mut chars = raw.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some('n') => out.push('\n'),
                    Some('t') => out.push('\t'),
                    Some('r') => out.push('\r'),
                    Some('0') => out.push('\0'),
                    Some(other) => out.push(other),
                    None => {}
                },
                c => out.push(c),
            }
        }
        Ok((out, span))
    }

    pub fn var_item(&mut self) -> Res<VarItem> {
        let start = self.bump().span;
        let name = self.dotted_name("a name", "after `var`")?;
        if self.tok() != Tok::Colon {
            let span = self.span();
            let found = self.found();
            return Err(self.report(
                Diag::error("E0104", format!("expected `:` and a type, found {found}"))
                    .at(span, "a variable says its type")
                    .help(format!("write `var {}: f32[..] = ...`", name.text)),
            ));
        }
        self.bump();
        let ty = self.ty()?;
        let init = if self.eat(Tok::Assign) { Some(self.expr()?) } else { None };
        let device = self.device()?;
        Ok(VarItem { name, slot: false, ty, init, device, span: start.to(self.prev_span()) })
    }

    fn queue_item(&mut self) -> Res<QueueItem> {
        let word = self.word().to_string();
        let start = self.bump().span;
        let name = self.simple_name("a name", &format!("after `{word}`"))?;
        self.expect(Tok::Colon, &format!("after the name of a {word}"))?;
        let value = self.expr()?;
        let ExprKind::Call(kind) = value.kind else {
            let example = match word.as_str() {
                "queue" => format!("queue {}: fifo(f32[2], capacity: 64)", name.text),
                _ => format!("reader {}: csv(\"data.csv\", f32[2])", name.text),
            };
            return Err(self.report(
                Diag::error("E0104", format!("expected what kind of {word} this is"))
                    .at(value.span, "expected a kind with its element types")
                    .help(format!("write `{example}`")),
            ));
        };
        let device = self.device()?;
        let span = start.to(self.prev_span());
        Ok(QueueItem { name, reader: word == "reader", kind: *kind, device, span })
    }

    pub fn device(&mut self) -> Res<Option<(String, Span)>> {
        if self.is_word("on") && self.peek(1).tok == Tok::Str && !self.token().newline {
            self.bump();
            return Ok(Some(self.string()?));
        }
        Ok(None)
    }

    /// A `func`, a `layer` or a `model`.
    pub fn func_item(&mut self) -> Res<FuncItem> {
        let doc = self.doc();
        let kind = match self.word() {
            "layer" => FuncKind::Layer,
            "model" => FuncKind::Model,
            _ => FuncKind::Func,
        };
        let word = self.bump().span;
        let name = self.simple_name("a name", &format!("after `{}`", kind.word()))?;
        if kind == FuncKind::Model && self.tok() == Tok::Assign {
            return self.instance(name, doc, word);
        }
        let params = self.params("in the parameters of a function")?;
        let results = self.results()?;
        let body = self.block()?;
        let mut grad = None;
        if self.is_word("grad") && self.peek(1).tok == Tok::LParen {
            let start = self.bump().span;
            let open = self.expect(Tok::LParen, "after `grad`")?;
            let mut params = vec![];
            while self.tok() != Tok::RParen {
                params.push(self.simple_name("a name", "in the parameters of a gradient")?);
                if !self.eat(Tok::Comma) {
                    break;
                }
            }
            self.close(Tok::RParen, open)?;
            let span = start.to(self.prev_span());
            let body = self.block()?;
            grad = Some(GradClause { params, body, span });
        }
        Ok(FuncItem { kind, word, of: None, name, doc, params, results, body, grad })
    }

    /// `= critic(units: 64)` after `model q1`.
    fn instance(&mut self, name: Name, doc: String, word: Span) -> Res<FuncItem> {
        self.bump();
        let value = self.expr()?;
        let call = match value.kind {
            ExprKind::Call(call) => *call,
            ExprKind::Name(text) => {
                let callee = Name { text, span: value.span };
                Call { callee, args: vec![], regions: vec![], label: None }
            }
            _ => {
                return Err(self.report(
                    Diag::error("E0104", "expected a layer after `=`")
                        .at(value.span, "not a layer with what is given to it")
                        .help(format!("write `model {} = layer.dense(units: 10)`", name.text)),
                ));
            }
        };
        Ok(FuncItem {
            kind: FuncKind::Model,
            word,
            of: Some(call),
            name,
            doc,
            params: vec![],
            results: Results::default(),
            body: Block::default(),
            grad: None,
        })
    }

    fn entry_item(&mut self) -> Res<EntryItem> {
        let doc = self.doc();
        let (runner, replica) = (self.is_word("runner"), self.is_word("replica"));
        let word = self.bump().span;
        let after = format!("after `{}`", self.text_of(word));
        let name = self.simple_name("a name", &after)?;
        let params = self.params("in the parameters of an entry")?;
        let results = self.results()?;
        let task = self.device()?;
        let body = self.block()?;
        Ok(EntryItem { name, doc, params, results, body, runner, replica, task })
    }

    pub fn params(&mut self, context: &str) -> Res<Vec<Param>> {
        let open = self.expect(Tok::LParen, context)?;
        let mut params = vec![];
        while self.tok() != Tok::RParen {
            let var = self.eat_word("var");
            let many = var && self.eat(Tok::DotDot);
            let name = self.dotted_name("a parameter", context)?;
            let ty = if self.eat(Tok::Colon) { Some(self.ty()?) } else { None };
            let default = if self.eat(Tok::Assign) { Some(self.expr()?) } else { None };
            params.push(Param { name, var, many, ty, default });
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.close(Tok::RParen, open)?;
        Ok(params)
    }

    fn results(&mut self) -> Res<Results> {
        if self.tok() != Tok::Arrow {
            return Ok(Results::default());
        }
        let start = self.bump().span;
        let mut items = vec![];
        if self.tok() == Tok::LParen {
            let open = self.bump().span;
            while self.tok() != Tok::RParen {
                items.push(self.result_item()?);
                if !self.eat(Tok::Comma) {
                    break;
                }
            }
            self.close(Tok::RParen, open)?;
        } else {
            let ty = self.ty()?;
            items.push(ResultItem { name: None, span: ty.span, ty: Some(ty) });
        }
        Ok(Results { items, span: start.to(self.prev_span()), given: true })
    }

    fn result_item(&mut self) -> Res<ResultItem> {
        let start = self.span();
        let next = self.peek(1).tok;
        let is_type = DType::from_name(self.word()).is_some() || self.is_word("_");
        if self.tok() == Tok::Ident && next != Tok::LBracket && !is_type {
            let name = self.simple_name("a result's name", "after `->`")?;
            let ty = if self.eat(Tok::Colon) { Some(self.ty()?) } else { None };
            return Ok(ResultItem { name: Some(name), ty, span: start.to(self.prev_span()) });
        }
        let ty = self.ty()?;
        Ok(ResultItem { name: None, span: ty.span, ty: Some(ty) })
    }

    pub fn ty(&mut self) -> Res<TypeExpr> {
        if self.tok() != Tok::Ident {
            return Err(self.expected("a type such as `f32[2, 3]`", "here"));
        }
        let dtype = Name { text: Arc::from(self.word()), span: self.span() };
        self.bump();
        let mut dims = vec![];
        if self.tok() == Tok::LBracket {
            let open = self.bump().span;
            dims = self.list_items(Tok::RBracket)?;
            self.close(Tok::RBracket, open)?;
        }
        Ok(TypeExpr { span: dtype.span.to(self.prev_span()), dtype, dims })
    }
}
