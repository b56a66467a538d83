//! How the parts of an entry are called that workers and parameter servers run.
//!
//! A training entry is there in parts, too, for jobs with parameter servers. They
//! are entries of their own, and how they fit together is in their names and the
//! names of their ports:
//!
//! | part | runs on | params | results |
//! |---|---|---|---|
//! | `E__used` | workers | those of `E` | `var_V`: which rows of a table `E__gradients` reads |
//! | `E__gradients` | workers | those of `E` | those of `E`, then `grad_K` and `cross_K` |
//! | `E__summary_G` | the servers of group `G` | `grad_K`, `var_V`, `cross_K` | `part_K` |
//! | `E__shared` | the first server | `part_K`, `grad_K`, `var_V`, `cross_K` | `shared_K`, `var_V` |
//! | `E__update_G` | the servers of group `G` | `grad_K`, `var_V`, `cross_K`, `shared_K` | `var_V` |
//!
//! `V` is the number of a variable in the plan; the variables of a group and their
//! gradients are together on a server. An update whose tensors have the one dim
//! [`ELEMENTS`] works on each element by itself: a server may have any rows of them.
//!
//! A gradient that is zero but for some rows is `ids_K` and `rows_K` among the results
//! of the worker's part: the numbers of rows, which may repeat, and the rows. An update
//! that takes `rows_K` leaves all other rows as they are, and is to be given none of
//! them; one that takes `grad_K` is given the whole gradient.

use crate::plan::Entry;

/// The dim of updates that work on any number of elements.
pub const ELEMENTS: &str = "elements__";

/// Which part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Used,
    Gradients,
    Summary(u32),
    Shared,
    Update(u32),
}

/// What goes through a port of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wire {
    /// A gradient.
    Grad(u32),
    /// The numbers of the rows in which a gradient is not zero, and these rows.
    Ids(u32),
    Rows(u32),
    /// What a worker computes of its feeds for the update.
    Cross(u32),
    /// What all of a group comes to, such as the square of a norm.
    Part(u32),
    /// What all groups come to, such as the factor of a clipped gradient.
    Shared(u32),
    /// A variable of the plan.
    Var(u32),
}

impl Part {
    pub fn name(self, entry: &str) -> String {
        match self {
            Part::Used => format!("{entry}__used"),
            Part::Gradients => format!("{entry}__gradients"),
            Part::Shared => format!("{entry}__shared"),
            Part::Summary(g) => format!("{entry}__summary_{g}"),
            Part::Update(g) => format!("{entry}__update_{g}"),
        }
    }

    /// The entry and the part of it that a name is of; none for an entry itself.
    pub fn of(name: &str) -> Option<(&str, Part)> {
        let (entry, part) = name.rsplit_once("__")?;
        let part = match part.split_once('_') {
            None if part == "used" => Part::Used,
            None if part == "gradients" => Part::Gradients,
            None if part == "shared" => Part::Shared,
            Some(("summary", g)) => Part::Summary(g.parse().ok()?),
            Some(("update", g)) => Part::Update(g.parse().ok()?),
            _ => return None,
        };
        Some((entry, part)).filter(|(entry, _)| !entry.is_empty())
    }
}

impl crate::plan::Plan {
    /// The version of an entry that several processes run as one.
    pub fn replica(&self, entry: usize) -> Option<usize> {
        let name = &self.entries.get(entry)?.name;
        let of = Some(entry as u32);
        self.entries.iter().position(|e| e.replica_of == of && e.name == *name)
    }

    /// Whether several processes can run the program together: it was cut for a cluster, an
    /// entry has a replica, or one changes variables, which may be averaged.
    pub fn fits_a_job(&self) -> bool {
        let writes = |(i, e): (usize, &Entry)| {
            self.init != Some(i as u32) && e.is_for_users() && !e.writes.is_empty()
        };
        self.tasks.len() > 1
            || self.entries.iter().any(|e| e.replica_of.is_some())
            || self.entries.iter().enumerate().any(writes)
    }

    /// A part of an entry.
    pub fn part(&self, entry: usize, part: Part) -> Option<usize> {
        let name = part.name(&self.entries.get(entry)?.name);
        let of = Some(entry as u32);
        self.entries.iter().position(|e| e.replica_of == of && e.name == name)
    }
}

impl Wire {
    pub fn name(self) -> String {
        match self {
            Wire::Grad(k) => format!("grad_{k}"),
            Wire::Ids(k) => format!("ids_{k}"),
            Wire::Rows(k) => format!("rows_{k}"),
            Wire::Cross(k) => format!("cross_{k}"),
            Wire::Part(k) => format!("part_{k}"),
            Wire::Shared(k) => format!("shared_{k}"),
            Wire::Var(v) => format!("var_{v}"),
        }
    }

    pub fn of(name: &str) -> Option<Wire> {
        let (kind, number) = name.split_once('_')?;
        let number = number.parse().ok()?;
        Some(match kind {
            "grad" => Wire::Grad(number),
            "ids" => Wire::Ids(number),
            "rows" => Wire::Rows(number),
            "cross" => Wire::Cross(number),
            "part" => Wire::Part(number),
            "shared" => Wire::Shared(number),
            "var" => Wire::Var(number),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_they_name() {
        for part in [Part::Used, Part::Gradients, Part::Summary(3), Part::Shared, Part::Update(0)] {
            assert_eq!(Part::of(&part.name("train")), Some(("train", part)));
            assert_eq!(Part::of(&part.name("my__train")), Some(("my__train", part)));
        }
        for other in ["train", "my__train", "__shared", "a__update_", "a__update_x"] {
            assert_eq!(Part::of(other), None, "{other}");
        }
        let grads = [Wire::Grad(1), Wire::Ids(4), Wire::Rows(4)];
        let others = [Wire::Cross(0), Wire::Part(2), Wire::Shared(7), Wire::Var(9)];
        for wire in grads.into_iter().chain(others) {
            assert_eq!(Wire::of(&wire.name()), Some(wire));
        }
        assert_eq!(Wire::of("loss"), None);
        assert_eq!(Wire::of("grad_"), None);
    }
}
