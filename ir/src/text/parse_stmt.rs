//! Blocks and statements.
//!
//! A statement ends with its line. After an error the next one begins at the next
//! line of the same block, and an item where a statement should be says that a
//! block was not closed.

use super::ast::*;
use super::lexer::Tok;
use super::parse::{Parser, Reported, Res, is_reserved};
use crate::diag::{Diag, Span};

impl Parser<'_> {
    pub fn block(&mut self) -> Res<Block> {
        let open = self.expect(Tok::LBrace, "to open a block")?;
        self.enter(|p| p.block_body(open))
    }

    fn block_body(&mut self, open: Span) -> Res<Block> {
        let mut stmts = vec![];
        loop {
            while self.nested_func()? {}
            // An item where a statement should be: the closing brace is missing.
            if matches!(self.tok(), Tok::RBrace | Tok::Eof) || self.at_item() {
                break;
            }
            let (start, depth) = (self.at, self.depth);
            match self.stmt() {
                Ok(stmt) => stmts.push(stmt),
                Err(Reported) => {
                    self.depth = depth;
                    if self.at == start {
                        self.bump();
                    }
                    self.skip_to_stmt(start);
                }
            }
        }
        if self.tok() != Tok::RBrace {
            let found = self.found();
            let end = self.prev_span().hi as usize;
            let here = Span::new(self.file, end, end);
            return Err(self.report(
                Diag::error("E0105", format!("expected `}}`, found {found}"))
                    .at(here, "expected `}`")
                    .also(open, "to close this block")
                    .fix("close the block", here, "\n}"),
            ));
        }
        let close = self.bump().span;
        Ok(Block { stmts, span: open.to(close) })
    }

    /// An entry or a function starts here: no block goes on.
    fn at_item(&self) -> bool {
        self.token().newline
            && matches!(self.word(), "func" | "layer" | "model" | "entry")
            && self.peek(1).tok == Tok::Ident
    }

    /// Skips to the next line at the brace depth where the statement began.
    fn skip_to_stmt(&mut self, start: usize) {
        let mut depth = 0i64;
        for token in &self.tokens[start..self.at] {
            match token.tok {
                Tok::LBrace => depth += 1,
                Tok::RBrace => depth -= 1,
                _ => {}
            }
        }
        loop {
            let token = self.token();
            if token.tok == Tok::Eof || (depth <= 0 && token.newline && self.at > start) {
                return;
            }
            if self.at > start && self.at_item() {
                return;
            }
            match token.tok {
                Tok::LBrace => depth += 1,
                Tok::RBrace if depth <= 0 => return,
                Tok::RBrace => depth -= 1,
                _ => {}
            }
            self.bump();
        }
    }

    /// Passes over a function among statements, and says where it belongs. One that
    /// is not set in stands after a block that was not closed.
    fn nested_func(&mut self) -> Res<bool> {
        let lo = self.span().lo as usize;
        let line = self.text[..lo].rfind('\n').map_or(0, |i| i + 1);
        if !self.at_item() || self.word() == "entry" || lo == line {
            return Ok(false);
        }
        let span = self.span();
        let _ = self.report(
            Diag::error("E0104", format!("`{}` belongs at the top level", self.word()))
                .at(span, "expected a statement")
                .help("move it out; a function sees the file's variables, and what it is given"),
        );
        self.enter(|p| p.func_item())?;
        Ok(true)
    }

    fn stmt(&mut self) -> Res<Stmt> {
        let start = self.span();
        let kind = self.stmt_kind()?;
        let (mut after, mut device) = (vec![], None);
        loop {
            if self.token().newline {
                break;
            }
            if self.is_word("after") && self.peek(1).tok == Tok::LParen {
                self.bump();
                let open = self.bump().span;
                while self.tok() != Tok::RParen {
                    after.push(self.dotted_name("a name", "in `after`")?);
                    if !self.eat(Tok::Comma) {
                        break;
                    }
                }
                self.close(Tok::RParen, open)?;
            } else if self.is_word("on") && self.peek(1).tok == Tok::Str && device.is_none() {
                device = self.device()?;
            } else {
                break;
            }
        }
        let span = start.to(self.prev_span());
        self.end_of_line("the statement")?;
        Ok(Stmt { kind, after, device, span })
    }

    fn stmt_kind(&mut self) -> Res<StmtKind> {
        match self.word() {
            "return" => {
                self.bump();
                return Ok(StmtKind::Return(self.value_list()?));
            }
            "yield" => {
                self.bump();
                return Ok(StmtKind::Yield(self.value_list()?));
            }
            "var" => return Ok(StmtKind::Var(self.var_item()?)),
            "minimize" => return self.minimize(),
            "let" if self.peek(1).tok == Tok::Ident && self.peek(2).tok == Tok::Assign => {
                let (span, name) = (self.span(), self.peek(1).span);
                let cut = Span { hi: name.lo, ..span };
                return Err(self.report(
                    Diag::error("E0104", "`let` belongs at the top level")
                        .at(span, "expected a statement")
                        .fix("a statement names a value by itself", cut, ""),
                ));
            }
            "for"
                if self.peek(1).tok == Tok::Ident
                    && (self.text_of(self.peek(2).span) == "in"
                        || self.peek(2).tok == Tok::Comma) =>
            {
                self.bump();
                let each = self.each()?;
                let body = self.block()?;
                return Ok(StmtKind::For { each, body });
            }
            "on" if self.peek(1).tok == Tok::Str && self.peek(2).tok == Tok::LBrace => {
                // The device is stored on the statement by the caller's shape:
                // re-read here, because the block follows it.
                self.bump();
                let device = self.string()?;
                let body = self.block()?;
                let inner = body.stmts.into_iter().map(|s| self.placed(s, &device)).collect();
                return Ok(StmtKind::On(Block { stmts: inner, span: body.span }));
            }
            _ => {}
        }
        if self.tok() == Tok::LParen {
            if let Some(targets) = self.tuple_targets()? {
                let value = self.expr()?;
                return Ok(StmtKind::Bind { targets, tuple: true, value });
            }
        } else if self.tok() == Tok::Ident {
            let mark = self.at;
            if !is_reserved(self.word()) {
                let name = self.dotted_name("a name", "at the start of a statement")?;
                match self.tok() {
                    Tok::Assign => {
                        self.bump();
                        let value = self.expr()?;
                        let targets = vec![Target { name, ty: None }];
                        return Ok(StmtKind::Bind { targets, tuple: false, value });
                    }
                    Tok::Colon
                        if self.peek(1).tok == Tok::Assign
                            && self.peek(1).span.lo == self.span().hi =>
                    {
                        let span = self.span().to(self.peek(1).span);
                        return Err(self.report(
                            Diag::error("E0104", "a value is named with `=`")
                                .at(span, "`:=` means nothing")
                                .fix("write `=`", span, "="),
                        ));
                    }
                    Tok::Colon if self.habit().is_none() => {
                        self.bump();
                        let ty = Some(self.ty()?);
                        self.expect(Tok::Assign, "after the type of a name")?;
                        let value = self.expr()?;
                        let targets = vec![Target { name, ty }];
                        return Ok(StmtKind::Bind { targets, tuple: false, value });
                    }
                    tok => {
                        let op = match tok {
                            Tok::PlusAssign => Some(Binary::Add),
                            Tok::MinusAssign => Some(Binary::Sub),
                            Tok::StarAssign => Some(Binary::Mul),
                            Tok::SlashAssign => Some(Binary::Div),
                            _ => None,
                        };
                        if let Some(op) = op {
                            let op_span = self.bump().span;
                            let value = self.expr()?;
                            return Ok(StmtKind::Update { name, op, op_span, value });
                        }
                    }
                }
                self.at = mark;
            } else if self.peek(1).tok == Tok::Assign || self.peek(1).tok == Tok::Colon {
                // `if = 3`: say that the word is taken.
                self.simple_name("a name", "at the start of a statement")?;
            }
        }
        Ok(StmtKind::Expr(self.expr()?))
    }

    /// `on "a" { on "b" ... }`: the inner one is nearer.
    fn placed(&self, mut stmt: Stmt, device: &(String, Span)) -> Stmt {
        stmt.device = Some(match stmt.device {
            None => device.clone(),
            Some((inner, span)) => (super::device::merge(&device.0, &inner), span),
        });
        stmt
    }

    fn value_list(&mut self) -> Res<Vec<Expr>> {
        let mut values = vec![];
        if self.token().newline || self.tok() == Tok::RBrace {
            return Ok(values);
        }
        loop {
            values.push(self.expr()?);
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        // `return (a, b)` is `return a, b`.
        if values.len() == 1
            && matches!(values[0].kind, ExprKind::Tuple(_))
            && let Some(Expr { kind: ExprKind::Tuple(items), .. }) = values.pop()
        {
            return Ok(items);
        }
        Ok(values)
    }

    /// `(a, b: f32[]) =`, or nothing if the parenthesis opens an expression.
    fn tuple_targets(&mut self) -> Res<Option<Vec<Target>>> {
        let mut at = self.at + 1;
        let mut depth = 1;
        while depth > 0 {
            match self.tokens.get(at).map(|t| t.tok) {
                Some(Tok::LParen) => depth += 1,
                Some(Tok::RParen) => depth -= 1,
                None | Some(Tok::Eof | Tok::LBrace | Tok::RBrace) => return Ok(None),
                _ => {}
            }
            at += 1;
        }
        if self.tokens.get(at).map(|t| t.tok) != Some(Tok::Assign) {
            return Ok(None);
        }
        let open = self.bump().span;
        let mut targets = vec![];
        while self.tok() != Tok::RParen {
            let name = if self.is_word("_") {
                Name { text: "_".into(), span: self.bump().span }
            } else {
                self.dotted_name("a name", "on the left of `=`")?
            };
            let ty = if self.eat(Tok::Colon) { Some(self.ty()?) } else { None };
            targets.push(Target { name, ty });
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.close(Tok::RParen, open)?;
        self.expect(Tok::Assign, "after the names")?;
        Ok(Some(targets))
    }

    fn minimize(&mut self) -> Res<StmtKind> {
        self.bump();
        let loss = self.expr()?;
        let over = if self.eat_word("over") { Some(self.minimize_over()?) } else { None };
        let mut through = vec![];
        while self.eat_word("through") {
            through.push(self.expr()?);
        }
        if !self.eat_word("with") {
            let what = if over.is_some() {
                "`with OPTIMIZER`"
            } else {
                "`over [variables]` or `with OPTIMIZER`"
            };
            return Err(self.expected(what, "in `minimize`"));
        }
        let with = self.expr()?;
        Ok(StmtKind::Minimize { loss, over, through, with })
    }
}
