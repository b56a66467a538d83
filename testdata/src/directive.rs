//! The `//!` line at the top of a case.

use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Directive {
    /// What kind of case this is: `run`, `error`, `print`, ...
    pub verb: String,
    /// Words after the verb, such as pass names.
    pub words: Vec<String>,
    /// Values to try for each named dim.
    pub dims: BTreeMap<String, Vec<i64>>,
    /// Values to feed each named parameter.
    pub ranges: BTreeMap<String, Range>,
    /// Relative tolerance.
    pub tol: Option<f64>,
    /// Relative tolerance for variables, where it is another: gradients have come
    /// a longer way than results.
    pub vars_tol: Option<f64>,
    /// Options of no standard meaning.
    pub flags: BTreeMap<String, String>,
}

/// Bounds of generated values; the upper one is excluded for integers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Range {
    pub lo: f64,
    pub hi: f64,
}

impl Directive {
    /// Parses the directive of a case; an error names what is wrong with it.
    pub fn parse(text: &str) -> Result<Directive, String> {
        let first = text.lines().next().unwrap_or("");
        let Some(line) = first.strip_prefix("//!") else {
            return Err(format!("the first line is no directive: {first:?}"));
        };
        let mut parts = line.split(';').map(str::trim);
        let mut words = parts.next().unwrap_or("").split_whitespace().map(str::to_string);
        let verb = words.next().ok_or("the directive is empty")?;
        let mut out = Directive { verb, words: words.collect(), ..Directive::default() };
        for part in parts.filter(|p| !p.is_empty()) {
            let Some((name, value)) = part.split_once('=') else {
                out.flags.insert(part.to_string(), String::new());
                continue;
            };
            out.option(name.trim(), value.trim())?;
        }
        Ok(out)
    }

    fn option(&mut self, name: &str, value: &str) -> Result<(), String> {
        let bad = |what: &str| format!("{what} in `{name} = {value}`");
        if name == "tol" {
            self.tol = Some(value.parse().map_err(|_| bad("bad number"))?);
        } else if name == "vars_tol" {
            self.vars_tol = Some(value.parse().map_err(|_| bad("bad number"))?);
        } else if let Some(range) = value.strip_prefix("float ").or(value.strip_prefix("int ")) {
            let (lo, hi) = range.split_once("..").ok_or_else(|| bad("no `..`"))?;
            let number = |s: &str| s.trim().parse::<f64>().map_err(|_| bad("bad bound"));
            self.ranges.insert(name.to_string(), Range { lo: number(lo)?, hi: number(hi)? });
        } else if let Ok(values) =
            value.split(',').map(|v| v.trim().parse::<i64>()).collect::<Result<Vec<_>, _>>()
        {
            self.dims.insert(name.to_string(), values);
        } else {
            self.flags.insert(name.to_string(), value.to_string());
        }
        Ok(())
    }

    /// Every combination to try of the given dims: all first values, then all
    /// second values, and so on, so that the number of cases stays small. A dim
    /// without values gets a few by default.
    pub fn assignments(&self, dims: &[String]) -> Vec<BTreeMap<String, i64>> {
        const DEFAULT: &[&[i64]] = &[&[3, 1, 0, 7], &[2, 1, 5], &[4, 1, 3], &[5, 2]];
        let lists: Vec<(&String, Vec<i64>)> = dims
            .iter()
            .enumerate()
            .map(|(i, d)| {
                let given = self.dims.get(d).cloned();
                (d, given.unwrap_or_else(|| DEFAULT[i % DEFAULT.len()].to_vec()))
            })
            .collect();
        let rounds = lists.iter().map(|(_, l)| l.len()).max().unwrap_or(1);
        (0..rounds)
            .map(|r| {
                lists
                    .iter()
                    .map(|(d, l)| ((*d).clone(), l.get(r % l.len().max(1)).copied().unwrap_or(1)))
                    .collect()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_every_kind_of_option() {
        let d = Directive::parse(
            "//! run; B = 0,1,7; ids = int 0..5; x = float 0.1..2.0; tol = 1e-5; slow\ngraph g",
        )
        .unwrap();
        assert_eq!(d.verb, "run");
        assert_eq!(d.dims["B"], [0, 1, 7]);
        assert_eq!(d.ranges["ids"], Range { lo: 0.0, hi: 5.0 });
        assert_eq!(d.ranges["x"], Range { lo: 0.1, hi: 2.0 });
        assert_eq!(d.tol, Some(1e-5));
        assert!(d.flags.contains_key("slow"));
        assert!(Directive::parse("graph g").is_err());
        assert!(Directive::parse("//! run; x = float 1").is_err());
    }

    #[test]
    fn assignments_zip_the_lists() {
        let d = Directive::parse("//! run; B = 0,1,7; N = 2").unwrap();
        let all = d.assignments(&["B".into(), "N".into()]);
        let values: Vec<(i64, i64)> = all.iter().map(|a| (a["B"], a["N"])).collect();
        assert_eq!(values, [(0, 2), (1, 2), (7, 2)]);
        assert_eq!(d.assignments(&[]).len(), 1);
    }
}
