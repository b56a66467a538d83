//! Whether two graphs are the same: structure, attributes, names, order of
//! effects; not ids, not spans.

use crate::graph::{Func, Graph, NodeId, RegionId, ValueId};
use std::collections::BTreeMap;

/// The first difference, in words.
pub fn same(a: &Graph, b: &Graph) -> Result<(), String> {
    check("name", &a.name, &b.name)?;
    check("doc", &a.doc, &b.doc)?;
    let dims =
        |g: &Graph| g.dims.iter().map(|d| (d.name.clone(), d.min, d.max)).collect::<Vec<_>>();
    check("dims", dims(a), dims(b))?;
    let vars = |g: &Graph| {
        let all = g.vars.values();
        all.map(|v| (v.name.clone(), v.ty.clone(), v.symbol.clone(), v.user, v.device.clone()))
            .collect::<Vec<_>>()
    };
    check("variables", vars(a), vars(b))?;
    same_func(&a.init, &b.init).map_err(|e| format!("init: {e}"))?;
    check("number of entries", a.entries.len(), b.entries.len())?;
    for (x, y) in a.entries.iter().zip(&b.entries) {
        check("entry", &x.name, &y.name)?;
        check("doc", &x.doc, &y.doc)?;
        check("runner", x.runner, y.runner)?;
        check("replica", x.replica, y.replica)?;
        check("task", &x.task, &y.task)?;
        check("result names", &x.result_names, &y.result_names)?;
        same_func(x, y).map_err(|e| format!("entry {}: {e}", x.name))?;
    }
    Ok(())
}

fn check<T: PartialEq + std::fmt::Debug>(what: &str, a: T, b: T) -> Result<(), String> {
    if a == b { Ok(()) } else { Err(format!("{what}: {a:?} and {b:?}")) }
}

/// Two functions, over the same variables.
pub fn same_func(a: &Func, b: &Func) -> Result<(), String> {
    let mut same = Same { a, b, values: BTreeMap::new(), nodes: BTreeMap::new() };
    same.region(a.body, b.body)
}

struct Same<'g> {
    a: &'g Func,
    b: &'g Func,
    values: BTreeMap<ValueId, ValueId>,
    nodes: BTreeMap<NodeId, NodeId>,
}

impl Same<'_> {
    fn define(&mut self, x: ValueId, y: ValueId) -> Result<(), String> {
        let (v, w) = (&self.a.values[x], &self.b.values[y]);
        check("type", &v.ty, &w.ty)?;
        check("name", &v.name, &w.name)?;
        self.values.insert(x, y);
        Ok(())
    }

    fn uses(&self, what: &str, x: &[ValueId], y: &[ValueId]) -> Result<(), String> {
        check(what, x.len(), y.len())?;
        for (x, y) in x.iter().zip(y) {
            check(what, self.values.get(x), Some(y))?;
        }
        Ok(())
    }

    fn region(&mut self, x: RegionId, y: RegionId) -> Result<(), String> {
        let (r, s) = (&self.a.regions[x], &self.b.regions[y]);
        check("parameters", r.params.len(), s.params.len())?;
        for (p, q) in r.params.iter().zip(&s.params) {
            self.define(*p, *q)?;
        }
        check("number of nodes", r.nodes.len(), s.nodes.len())?;
        for (n, m) in r.nodes.iter().zip(&s.nodes) {
            self.node(*n, *m).map_err(|e| format!("{} {n}: {e}", self.a.nodes[*n].op.name()))?;
        }
        self.uses("results", &r.results, &s.results)
    }

    fn node(&mut self, x: NodeId, y: NodeId) -> Result<(), String> {
        let (n, m) = (&self.a.nodes[x], &self.b.nodes[y]);
        check("op", n.op, m.op)?;
        self.uses("operands", &n.operands, &m.operands)?;
        check("attributes", &n.attrs, &m.attrs)?;
        check("variable", n.var, m.var)?;
        check("device", &n.device, &m.device)?;
        let after: Vec<Option<&NodeId>> = n.after.iter().map(|n| self.nodes.get(n)).collect();
        check("after", after, m.after.iter().map(Some).collect())?;
        check("regions", n.regions.len(), m.regions.len())?;
        for (r, s) in n.regions.iter().zip(&m.regions) {
            self.region(*r, *s)?;
        }
        check("results", n.results.len(), m.results.len())?;
        for (v, w) in n.results.iter().zip(&m.results) {
            self.define(*v, *w)?;
        }
        self.nodes.insert(x, y);
        Ok(())
    }
}
