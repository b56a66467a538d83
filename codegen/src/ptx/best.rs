//! The largest or smallest element of a row and where it is, found by a team.
//!
//! The loop goes through a row in order and keeps the best element so far with its index:
//! the first of equal ones, and of floats the first NaN. Each thread of a team does so for
//! its own elements. Of the results of two threads the better one is taken, and of equal
//! ones that with the lower index, so the order in which they meet does not matter.

use super::emit::Emit;
use super::func::{Class, V};
use super::rows::{Team, kept};
use super::schedule::TEAM;
use tfc_kernel::{Carried, Ix, Loop, LoopKind, Reg, ScalarOp, ScalarType, Stmt};

/// A loop that finds the best element: what it carries, and how elements compare.
pub(super) struct Best<'a> {
    value: &'a Carried,
    /// Whether the largest is sought, not the smallest.
    largest: bool,
    /// Whether NaN is better than a number.
    nan: bool,
}

/// What a loop looks for, if it is such a loop.
pub(super) fn best(l: &Loop) -> Option<Best<'_>> {
    let [value, index] = &l.carried[..] else { return None };
    let def = |reg: Reg| {
        l.body.iter().find_map(|s| match s {
            Stmt::Op { dst, op, args } if *dst == reg => Some((*op, args.as_slice())),
            _ => None,
        })
    };
    if l.kind != LoopKind::Sequential {
        return None;
    }
    let (ScalarOp::Select, &[better, x, kept]) = def(value.next)? else { return None };
    let (ScalarOp::Select, &[same, here, kept_at]) = def(index.next)? else { return None };
    if same != better || kept != value.acc || kept_at != index.acc {
        return None;
    }
    // What may look at the values that are carried.
    let mut ours = vec![better, value.next, index.next];
    let (less, nan) = match def(better)? {
        (ScalarOp::Lt, args) => (args, false),
        (ScalarOp::Or, &[less, first]) => {
            let (ScalarOp::And, &[odd, number]) = def(first)? else { return None };
            let odd_is = def(odd)? == (ScalarOp::Ne, &[x, x][..]);
            let number_is = def(number)? == (ScalarOp::Eq, &[value.acc, value.acc][..]);
            let (ScalarOp::Lt, args) = def(less)? else { return None };
            ours.extend([less, first, odd, number]);
            (args, (odd_is && number_is).then_some(true)?)
        }
        _ => return None,
    };
    let largest = match less {
        [a, b] if (*a, *b) == (value.acc, x) => true,
        [a, b] if (*a, *b) == (x, value.acc) => false,
        _ => return None,
    };
    let carried = |reg: Reg| [value.acc, index.acc].contains(&reg);
    let looks = |ix: &Ix| ix.regs.iter().any(|(r, _)| carried(*r));
    let alone = l.body.iter().all(|s| match s {
        Stmt::Op { dst, args, .. } => ours.contains(dst) || !args.iter().any(|a| carried(*a)),
        Stmt::Index { dst, ix } => !looks(ix) && (*dst != here || grows(ix, l)),
        // Elements far apart are better left to a thread for each row: neighbours load
        // neighbours then.
        Stmt::Load { at, .. } => !looks(at) && (at.stride(l.var).is_one() || !varies(at, l)),
        Stmt::Const { .. } => true,
        Stmt::Store { .. } | Stmt::Loop(_) => false,
    });
    let counted = l.body.iter().any(|s| matches!(s, Stmt::Index { dst, .. } if *dst == here));
    (alone && counted).then_some(Best { value, largest, nan })
}

fn varies(ix: &Ix, l: &Loop) -> bool {
    !ix.stride(l.var).is_zero()
}

/// Whether an index is larger in each iteration than in the one before.
fn grows(ix: &Ix, l: &Loop) -> bool {
    ix.stride(l.var).as_const().is_some_and(|s| s > 0)
}

impl Emit<'_> {
    /// A loop that finds the best element, its iterations spread over the team.
    pub(super) fn spread_best(&mut self, l: &Loop, best: &Best, team: Team) {
        let mine = self.inits(l);
        match self.kept.as_ref().map(|k| k.length) {
            Some(length) => self.alone(|e| {
                e.rounds(l, team, 0..length, &mut |e, _| e.iteration(l, &mine));
            }),
            None => {
                let n = self.dim(&l.extent);
                self.alone(|e| e.counted(l, &mine, team.lane, n, i64::from(team.size)));
            }
        }
        let mut found = [mine[0][0], mine[1][0]];
        self.best_of_team(best, &mut found, team);
        if team.size > TEAM {
            // One for each 16 threads, which all have then.
            let types = [self.kernel.regs[best.value.acc], ScalarType::I64].map(kept);
            self.f.share(16 * (team.size / TEAM));
            let shared = self.f.op(Class::B32, "mov.u32", &[&"shared"]);
            let tid = self.f.special("%tid.x");
            let lane = self.f.op(Class::B32, "and.b32", &[&tid, &(TEAM - 1)]);
            let number = self.f.op(Class::B32, "shr.u32", &[&tid, &TEAM.trailing_zeros()]);
            let to = self.f.op(Class::B32, "mad.lo.u32", &[&number, &16, &shared]);
            let from = self.f.op(Class::B32, "mad.lo.u32", &[&lane, &16, &shared]);
            let first = self.f.op(Class::Pred, "setp.eq.u32", &[&lane, &0]);
            let guard = self.guard.replace(first);
            for (i, v) in found.iter().enumerate() {
                self.store_to("shared", types[i], &[format!("[{to}+{}]", 8 * i)], &[*v]);
            }
            self.guard = guard;
            self.f.line(format_args!("bar.sync 0"));
            for (i, v) in found.iter_mut().enumerate() {
                *v = self.load_from("shared", types[i], &[format!("[{from}+{}]", 8 * i)], 1)[0];
            }
            self.best_of_team(best, &mut found, team);
            // The next loop may use the same memory.
            self.f.line(format_args!("bar.sync 0"));
        }
        for (to, v) in mine.iter().zip(found) {
            self.f.mov(to[0], v);
        }
        self.results(l, &mine);
    }

    /// The best of 16 threads, in all of them.
    fn best_of_team(&mut self, best: &Best, found: &mut [V; 2], team: Team) {
        let mut half = TEAM / 2;
        while half > 0 {
            let other = found.map(|v| self.shuffle("down", v, half, team));
            let take = self.is_better(best, *found, other);
            let types = [self.kernel.regs[best.value.acc], ScalarType::I64];
            for ((v, other), ty) in found.iter_mut().zip(other).zip(types) {
                *v = self.scalar_op(ScalarOp::Select, ty, ty, &[take, other, *v], &[]);
            }
            half /= 2;
        }
        *found = found.map(|v| self.shuffle("idx", v, 0, team));
    }

    /// Whether another element is better than one, or as good and before it.
    fn is_better(&mut self, best: &Best, one: [V; 2], other: [V; 2]) -> V {
        let before = self.f.op(Class::Pred, "setp.lt.s64", &[&other[1], &one[1]]);
        let [beats, beaten] = [(other[0], one[0]), (one[0], other[0])].map(|(new, old)| {
            let ty = self.kernel.regs[best.value.acc];
            let pair = if best.largest { [old, new] } else { [new, old] };
            let less = self.scalar_op(ScalarOp::Lt, ScalarType::Bool, ty, &pair, &[]);
            if !best.nan {
                return less;
            }
            let ty = new.class.ty();
            let odd = self.f.op(Class::Pred, &format!("setp.nan.{ty}"), &[&new, &new]);
            let odd = self.f.op(Class::Pred, &format!("setp.num.and.{ty}"), &[&old, &old, &odd]);
            self.f.op(Class::Pred, "or.pred", &[&less, &odd])
        });
        let stays = self.f.op(Class::Pred, "not.pred", &[&beaten]);
        let first = self.f.op(Class::Pred, "and.pred", &[&stays, &before]);
        self.f.op(Class::Pred, "or.pred", &[&beats, &first])
    }
}
