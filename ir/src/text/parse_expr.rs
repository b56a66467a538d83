//! Expressions, by precedence climbing.
//!
//! From loose to tight: `||`, `&&`, comparisons (which do not chain), `+ -`,
//! `* / % @`, unary `- !`, `**` (right to left), calls and indexing. A call's
//! `(` and an index's `[` stand on the line of what they follow, so that the
//! next line may start with either.

use super::ast::*;
use super::lexer::Tok;
use super::parse::{Parser, Res};
use crate::DType;
use crate::diag::Diag;
use std::sync::Arc;

fn binary(tok: Tok) -> Option<(Binary, u8)> {
    Some(match tok {
        Tok::OrOr => (Binary::Or, 1),
        Tok::AndAnd => (Binary::And, 2),
        Tok::EqEq => (Binary::Eq, 3),
        Tok::NotEq => (Binary::Ne, 3),
        Tok::Lt => (Binary::Lt, 3),
        Tok::Le => (Binary::Le, 3),
        Tok::Gt => (Binary::Gt, 3),
        Tok::Ge => (Binary::Ge, 3),
        Tok::Plus => (Binary::Add, 4),
        Tok::Minus => (Binary::Sub, 4),
        Tok::Star => (Binary::Mul, 5),
        Tok::Slash => (Binary::Div, 5),
        Tok::Percent => (Binary::Rem, 5),
        Tok::At => (Binary::MatMul, 5),
        _ => return None,
    })
}

impl Parser<'_> {
    pub fn expr(&mut self) -> Res<Expr> {
        self.enter(|p| p.binary(1))
    }

    fn binary(&mut self, min: u8) -> Res<Expr> {
        let mut lhs = self.unary()?;
        let mut level = u8::MAX;
        while let Some((op, prec)) = binary(self.tok()) {
            if prec < min {
                break;
            }
            if prec == 3 && level == 3 {
                let span = self.span();
                return Err(self.report(
                    Diag::error("E0110", "comparisons do not chain")
                        .at(span, "this compares the result of another comparison")
                        .help("write `a < b && b < c`"),
                ));
            }
            let op_span = self.bump().span;
            let rhs = self.binary(prec + 1)?;
            let span = lhs.span.to(rhs.span);
            match &mut lhs.kind {
                ExprKind::Chain(_, rest) if level == prec => rest.push((op, op_span, rhs)),
                _ => {
                    let first = Box::new(std::mem::take(&mut lhs));
                    lhs.kind = ExprKind::Chain(first, vec![(op, op_span, rhs)]);
                }
            }
            lhs.span = span;
            level = prec;
        }
        Ok(lhs)
    }

    fn unary(&mut self) -> Res<Expr> {
        let op = match self.tok() {
            Tok::Minus => Unary::Neg,
            Tok::Bang => Unary::Not,
            _ => return self.power(),
        };
        let start = self.bump().span;
        let inner = self.enter(|p| p.unary())?;
        let span = start.to(inner.span);
        Ok(Expr { kind: ExprKind::Unary(op, Box::new(inner)), span })
    }

    fn power(&mut self) -> Res<Expr> {
        let base = self.postfix()?;
        if self.tok() != Tok::StarStar {
            return Ok(base);
        }
        let op_span = self.bump().span;
        let exponent = self.enter(|p| p.unary())?;
        let span = base.span.to(exponent.span);
        let rest = vec![(Binary::Pow, op_span, exponent)];
        Ok(Expr { kind: ExprKind::Chain(Box::new(base), rest), span })
    }

    fn postfix(&mut self) -> Res<Expr> {
        let mut expr = self.primary()?;
        let mut levels = 0;
        while self.tok() == Tok::LBracket && !self.token().newline {
            levels += 1;
            if levels > 16 {
                let span = self.span();
                return Err(self.report(
                    Diag::error("E0106", "this is indexed too often")
                        .at(span, "more than 16 times")
                        .help("put the indices into one pair of brackets: `x[i, j]`"),
                ));
            }
            let open = self.bump().span;
            let items = self.index_items()?;
            self.close(Tok::RBracket, open)?;
            let span = expr.span.to(self.prev_span());
            expr = Expr { kind: ExprKind::Index(Box::new(expr), items), span };
        }
        Ok(expr)
    }

    /// `x in list, y in list` after `for`.
    pub fn each(&mut self) -> Res<Vec<Each>> {
        let mut each = vec![];
        loop {
            let name = self.simple_name("a name", "after `for`")?;
            if self.tok() == Tok::Comma && self.peek(1).tok == Tok::Ident {
                let span = self.span();
                return Err(self.report(
                    Diag::error("E0104", "each name of a `for` has its own list")
                        .at(span, "expected `in LIST`")
                        .help("write `for x in list, i in 0.. { .. }`"),
                ));
            }
            if !self.eat_word("in") {
                return Err(self.expected("`in LIST`", "after the name of a `for`"));
            }
            let list = self.expr()?;
            if let Some(reported) = self.python_loop(&list) {
                return Err(reported);
            }
            let range = self.eat(Tok::DotDot);
            let open = matches!(self.tok(), Tok::Comma | Tok::LBrace | Tok::RBracket);
            let end = if range && !open { Some(self.expr()?) } else { None };
            each.push(Each { name, list, range, end });
            if !self.eat(Tok::Comma) {
                return Ok(each);
            }
        }
    }

    /// `[w, b]` after `over`.
    pub fn minimize_over(&mut self) -> Res<Vec<Name>> {
        let open = self.expect(Tok::LBracket, "after `over`")?;
        let mut over = vec![];
        while self.tok() != Tok::RBracket {
            over.push(self.dotted_name("a variable or a function", "after `over`")?);
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.close(Tok::RBracket, open)?;
        Ok(over)
    }

    fn index_items(&mut self) -> Res<Vec<IndexItem>> {
        let mut items = vec![];
        while self.tok() != Tok::RBracket {
            let start = self.span();
            if self.eat(Tok::DotDot) {
                items.push(IndexItem::Rest(start));
            } else {
                let lo = if self.tok() == Tok::Colon { None } else { Some(self.expr()?) };
                if self.eat(Tok::Colon) {
                    let hi = self.range_end()?;
                    let step = if self.eat(Tok::Colon) { self.range_end()? } else { None };
                    let step = step.map(Box::new);
                    let span = start.to(self.prev_span());
                    items.push(IndexItem::Range { lo, hi, step, span });
                } else if let Some(at) = lo {
                    items.push(IndexItem::At(at));
                }
            }
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        Ok(items)
    }

    fn range_end(&mut self) -> Res<Option<Expr>> {
        match self.tok() {
            Tok::Comma | Tok::RBracket | Tok::Colon => Ok(None),
            _ => Ok(Some(self.expr()?)),
        }
    }

    fn primary(&mut self) -> Res<Expr> {
        let start = self.span();
        let kind = match self.tok() {
            Tok::Int => self.int()?,
            Tok::Float => {
                let text = self.text_of(start).replace('_', "");
                self.bump();
                match text.parse() {
                    Ok(value) => ExprKind::Float(value),
                    Err(_) => ExprKind::Error,
                }
            }
            Tok::Str => ExprKind::Str(self.string()?.0),
            Tok::LParen => {
                self.bump();
                let mut items = self.list_items(Tok::RParen)?;
                self.close(Tok::RParen, start)?;
                let comma = self.peek_back_is_comma();
                if items.len() == 1 && !comma {
                    let Some(inner) = items.pop() else { return Ok(Expr::default()) };
                    return Ok(Expr { kind: inner.kind, span: start.to(self.prev_span()) });
                }
                ExprKind::Tuple(items)
            }
            Tok::LBracket => {
                self.bump();
                let mut items = self.list_items(Tok::RBracket)?;
                let each = match items.len() {
                    1 if self.eat_word("for") => Some(self.each()?),
                    _ => None,
                };
                self.close(Tok::RBracket, start)?;
                match (each, items.len()) {
                    (Some(each), 1) => ExprKind::Every(Box::new(items.remove(0)), each),
                    _ => ExprKind::List(items),
                }
            }
            Tok::DotDot => {
                self.bump();
                let name = if self.tok() == Tok::Ident && !self.token().newline {
                    Some(self.simple_name("a name", "after `..`")?)
                } else {
                    None
                };
                ExprKind::Rest(name)
            }
            Tok::Ident => return self.word_expr(),
            _ => return Err(self.expected("a value", "here")),
        };
        Ok(Expr { kind, span: start.to(self.prev_span()) })
    }

    /// Whether the token before the closing bracket just read is a comma.
    fn peek_back_is_comma(&self) -> bool {
        self.at >= 2 && self.tokens[self.at - 2].tok == Tok::Comma
    }

    fn int(&mut self) -> Res<ExprKind> {
        let span = self.span();
        let text = self.text_of(span).replace('_', "");
        let value = match text.split_at_checked(2) {
            Some(("0x", digits)) => i128::from_str_radix(digits, 16),
            Some(("0b", digits)) => i128::from_str_radix(digits, 2),
            _ => text.parse(),
        };
        match value {
            Ok(value) => {
                self.bump();
                Ok(ExprKind::Int(value))
            }
            Err(_) => Err(self.report(
                Diag::error("E0103", format!("`{}` is not an integer", clip(&text)))
                    .at(span, "too large, or a digit is wrong"),
            )),
        }
    }

    pub fn list_items(&mut self, close: Tok) -> Res<Vec<Expr>> {
        let mut items = vec![];
        while self.tok() != close {
            items.push(self.expr()?);
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        Ok(items)
    }

    fn word_expr(&mut self) -> Res<Expr> {
        let start = self.span();
        let word = self.word();
        let kind = match word {
            "true" | "false" => {
                let value = word == "true";
                self.bump();
                ExprKind::Bool(value)
            }
            "_" => {
                self.bump();
                ExprKind::Hole
            }
            "if" => return self.if_expr(),
            "while" => return self.while_expr(),
            "bytes" if self.peek(1).tok == Tok::Str => {
                self.bump();
                ExprKind::Bytes(self.string()?.0)
            }
            _ if DType::from_name(word).is_some() => {
                let brackets = self.peek(1).tok == Tok::LBracket;
                let ty = self.ty()?;
                if self.tok() == Tok::LParen && !self.token().newline {
                    let open = self.bump().span;
                    let items = self.list_items(Tok::RParen)?;
                    self.close(Tok::RParen, open)?;
                    ExprKind::Literal(ty, items)
                } else {
                    ExprKind::Type(ty, brackets)
                }
            }
            _ if super::parse::KEYWORDS.contains(&word) => {
                return Err(self.expected("a value", "here"));
            }
            _ => {
                let name = self.dotted_name("a value", "here")?;
                if self.tok() == Tok::LParen && !self.token().newline {
                    return self.call(name);
                }
                // `with optim.adam as first`: a call without arguments.
                if let Some(label) = self.label()? {
                    let span = start.to(self.prev_span());
                    let (args, regions) = (vec![], vec![]);
                    let call = Call { callee: name, args, regions, label: Some(label) };
                    return Ok(Expr { kind: ExprKind::Call(Box::new(call)), span });
                }
                ExprKind::Name(name.text)
            }
        };
        Ok(Expr { kind, span: start.to(self.prev_span()) })
    }

    fn call(&mut self, callee: Name) -> Res<Expr> {
        let open = self.bump().span;
        let mut args = vec![];
        while self.tok() != Tok::RParen {
            let word = self.tok() == Tok::Ident;
            if word && self.peek(1).tok == Tok::Assign {
                self.named_with_equals();
            }
            let named = word && matches!(self.peek(1).tok, Tok::Colon | Tok::Assign);
            let name = if named {
                let name = Name { text: Arc::from(self.word()), span: self.span() };
                self.bump();
                self.bump();
                Some(name)
            } else {
                None
            };
            let value = self.expr()?;
            args.push(Arg { name, value });
            if !self.eat(Tok::Comma) {
                break;
            }
        }
        self.close(Tok::RParen, open)?;
        let mut regions = vec![];
        while self.at_region() {
            let name = self.simple_name("a region", "after the call")?;
            let params = if self.tok() == Tok::LParen {
                self.params("in the parameters of a region")?
            } else {
                vec![]
            };
            let body = self.block()?;
            regions.push(RegionArg { name, params, body });
        }
        let label = self.label()?;
        let span = callee.span.to(self.prev_span());
        Ok(Expr { kind: ExprKind::Call(Box::new(Call { callee, args, regions, label })), span })
    }

    /// `as name` after a call, on its line.
    fn label(&mut self) -> Res<Option<Name>> {
        if !self.is_word("as") || self.token().newline {
            return Ok(None);
        }
        self.bump();
        self.simple_name("a name", "after `as`").map(Some)
    }

    /// `name { ..` or `name(..) { ..` on the line where the call ended.
    fn at_region(&self) -> bool {
        let taken = ["after", "on", "over", "with", "do", "as", "grad"];
        if self.tok() != Tok::Ident
            || self.token().newline
            || taken.contains(&self.word())
            || super::parse::KEYWORDS.contains(&self.word())
        {
            return false;
        }
        match self.peek(1).tok {
            Tok::LBrace => true,
            Tok::LParen => {
                let (mut depth, mut ahead) = (1, 2);
                while depth > 0 {
                    match self.peek(ahead).tok {
                        Tok::LParen => depth += 1,
                        Tok::RParen => depth -= 1,
                        Tok::Eof | Tok::LBrace | Tok::RBrace => return false,
                        _ => {}
                    }
                    ahead += 1;
                }
                self.peek(ahead).tok == Tok::LBrace
            }
            _ => false,
        }
    }

    fn if_expr(&mut self) -> Res<Expr> {
        let start = self.bump().span;
        let cond = self.expr()?;
        let then = self.block()?;
        let mut els = None;
        if self.eat_word("else") {
            els = Some(if self.is_word("if") {
                // `else if` is an `else` whose block is that `if`.
                let inner = self.enter(|p| p.if_expr())?;
                let span = inner.span;
                let yields = match &inner.kind {
                    ExprKind::If(i) => yields(&i.then),
                    _ => false,
                };
                let kind =
                    if yields { StmtKind::Yield(vec![inner]) } else { StmtKind::Expr(inner) };
                Block { stmts: vec![Stmt { kind, after: vec![], device: None, span }], span }
            } else {
                self.block()?
            });
        }
        let kind = ExprKind::If(Box::new(IfExpr { cond, then, els }));
        Ok(Expr { kind, span: start.to(self.prev_span()) })
    }

    fn while_expr(&mut self) -> Res<Expr> {
        let start = self.bump().span;
        let named = self.tok() == Tok::LParen
            && (self.peek(1).tok == Tok::RParen
                || matches!(
                    self.peek(2).tok,
                    Tok::Assign | Tok::Colon | Tok::Comma | Tok::Dot | Tok::RParen
                ));
        if !named {
            let span = self.span();
            return Err(self.report(
                Diag::error(
                    "E0104",
                    "a `while` says what it carries from one iteration to the next",
                )
                .at(span, "expected `(name = first value)`")
                .help("write `y = while (i = 0) i < 10 { yield i + 1 }`"),
            ));
        }
        let carried = self.params("in what a `while` carries")?;
        let (cond, body);
        if self.tok() == Tok::LBrace {
            cond = self.block()?;
            if !self.eat_word("do") {
                return Err(self.expected("`do`", "between the condition and the body"));
            }
            body = self.block()?;
        } else {
            let value = self.expr()?;
            let span = value.span;
            let kind = StmtKind::Yield(vec![value]);
            let stmt = Stmt { kind, after: vec![], device: None, span };
            cond = Block { stmts: vec![stmt], span };
            self.eat_word("do");
            body = self.block()?;
        }
        let kind = ExprKind::While(Box::new(WhileExpr { carried, cond, body }));
        Ok(Expr { kind, span: start.to(self.prev_span()) })
    }
}

/// Whether a block ends with a `yield` of something.
fn yields(block: &Block) -> bool {
    matches!(block.stmts.last().map(|s| &s.kind), Some(StmtKind::Yield(v)) if !v.is_empty())
}

fn clip(text: &str) -> String {
    match text.char_indices().nth(24) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text.to_string(),
    }
}
