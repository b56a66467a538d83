//! What a model has: entries, dims, variables and queues, as C reads them.
//!
//! Made once a model, when first asked for; all pointers live as long as it.

use super::{Handle, guard, model};
use crate::queue::runners;
use std::ffi::{CString, c_char, c_int};
use tfc_abi::plan::{self, Plan, QueueKind};

/// A tensor of an entry, or of the elements of a queue.
#[repr(C)]
pub struct Port {
    pub name: *const c_char,
    /// As the graph writes it, such as `f32[B, 784]`.
    pub type_text: *const c_char,
    pub dtype: u32,
    pub rank: u32,
    /// `rank` sizes; -1 where a size depends on run-time dims.
    pub shape: *const i64,
}

#[repr(C)]
pub struct EntryInfo {
    pub name: *const c_char,
    pub doc: *const c_char,
    /// What `call` takes.
    pub index: c_int,
    /// Runners its calls start.
    pub runner_count: u32,
    pub params: *const Port,
    pub param_count: usize,
    pub results: *const Port,
    pub result_count: usize,
}

#[repr(C)]
pub struct DimInfo {
    pub name: *const c_char,
    pub min: i64,
    /// Inclusive.
    pub max: i64,
}

#[repr(C)]
pub struct VarInfo {
    pub name: *const c_char,
    pub dtype: u32,
    pub rank: u32,
    pub shape: *const i64,
    pub bytes: usize,
    /// 0 for optimizer slots and counters.
    pub user: u32,
    pub reserved: u32,
}

#[repr(C)]
pub struct QueueInfo {
    pub name: *const c_char,
    /// 0 first in, first out; 1 shuffled; 2 by priority; 3 a reader.
    pub kind: u32,
    pub reserved: u32,
    pub capacity: u64,
    pub parts: *const Port,
    pub part_count: usize,
}

#[repr(C)]
pub struct Signature {
    pub name: *const c_char,
    pub doc: *const c_char,
    pub entries: *const EntryInfo,
    pub entry_count: usize,
    pub dims: *const DimInfo,
    pub dim_count: usize,
    pub vars: *const VarInfo,
    pub var_count: usize,
    pub queues: *const QueueInfo,
    pub queue_count: usize,
}

/// A signature with all it points at.
pub struct Owned {
    signature: Signature,
    _entries: Vec<EntryInfo>,
    _dims: Vec<DimInfo>,
    _vars: Vec<VarInfo>,
    _queues: Vec<QueueInfo>,
    _parts: Parts,
}

// SAFETY: the pointers are to what it owns, which is never written again.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

/// What the lists point at. Boxes stay where they are when the lists grow.
#[derive(Default)]
struct Parts {
    texts: Vec<CString>,
    shapes: Vec<Box<[i64]>>,
    ports: Vec<Box<[Port]>>,
}

impl Parts {
    fn text(&mut self, text: &str) -> *const c_char {
        self.texts.push(CString::new(text.replace('\0', "?")).unwrap_or_default());
        self.texts.last().map_or(std::ptr::null(), |t| t.as_ptr())
    }

    fn shape(&mut self, shape: Vec<i64>) -> *const i64 {
        self.shapes.push(shape.into());
        self.shapes.last().map_or(std::ptr::null(), |s| s.as_ptr())
    }

    fn ports(&mut self, ports: Vec<Port>) -> *const Port {
        self.ports.push(ports.into());
        self.ports.last().map_or(std::ptr::null(), |p| p.as_ptr())
    }

    fn port(&mut self, entry: &plan::Entry, port: &plan::Port) -> Port {
        let size = |e: &u32| entry.exprs.get(*e as usize).and_then(|e| e.as_const()).unwrap_or(-1);
        Port {
            name: self.text(&port.name),
            type_text: self.text(&port.text),
            dtype: u32::from(port.dtype as u8),
            rank: port.shape.len() as u32,
            shape: self.shape(port.shape.iter().map(size).collect()),
        }
    }

    fn part(&mut self, part: &plan::Part) -> Port {
        let sizes: Vec<usize> = part.shape.iter().map(|d| *d as usize).collect();
        Port {
            name: self.text(""),
            type_text: self.text(&crate::tensor::type_text(part.dtype, &sizes)),
            dtype: u32::from(part.dtype as u8),
            rank: part.shape.len() as u32,
            shape: self.shape(part.shape.clone()),
        }
    }
}

impl Owned {
    fn new(m: &Handle) -> Owned {
        let plan: &Plan = m.model.plan();
        let mut parts = Parts::default();
        let mut entries = vec![];
        for (index, e) in m.model.entries() {
            let params: Vec<Port> = e.params.iter().map(|p| parts.port(e, p)).collect();
            let results: Vec<Port> = e.results.iter().map(|p| parts.port(e, p)).collect();
            entries.push(EntryInfo {
                name: parts.text(&e.name),
                doc: parts.text(&e.doc),
                index: index as c_int,
                runner_count: runners::needed(plan, index).len() as u32,
                param_count: params.len(),
                params: parts.ports(params),
                result_count: results.len(),
                results: parts.ports(results),
            });
        }
        let mut dims = vec![];
        for d in &plan.dims {
            dims.push(DimInfo { name: parts.text(&d.name), min: d.min, max: d.max });
        }
        let mut vars = vec![];
        for v in &plan.vars {
            let part = plan::Part { dtype: v.dtype, shape: v.shape.clone() };
            vars.push(VarInfo {
                name: parts.text(&v.name),
                dtype: u32::from(v.dtype as u8),
                rank: v.shape.len() as u32,
                shape: parts.shape(v.shape.clone()),
                bytes: part.bytes().unwrap_or(0),
                user: u32::from(v.user),
                reserved: 0,
            });
        }
        let mut queues = vec![];
        for q in &plan.queues {
            let (kind, capacity) = match q.kind {
                QueueKind::Fifo { capacity } => (0, capacity),
                QueueKind::Shuffle { capacity, .. } => (1, capacity),
                QueueKind::Priority { capacity } => (2, capacity),
                QueueKind::Reader(_) => (3, 0),
            };
            let list: Vec<Port> = q.parts.iter().map(|p| parts.part(p)).collect();
            queues.push(QueueInfo {
                name: parts.text(&q.name),
                kind,
                reserved: 0,
                capacity,
                part_count: list.len(),
                parts: parts.ports(list),
            });
        }
        let signature = Signature {
            name: parts.text(&plan.name),
            doc: parts.text(&plan.doc),
            entries: entries.as_ptr(),
            entry_count: entries.len(),
            dims: dims.as_ptr(),
            dim_count: dims.len(),
            vars: vars.as_ptr(),
            var_count: vars.len(),
            queues: queues.as_ptr(),
            queue_count: queues.len(),
        };
        Owned {
            signature,
            _entries: entries,
            _dims: dims,
            _vars: vars,
            _queues: queues,
            _parts: parts,
        }
    }
}

/// What the model has; valid as long as the model.
///
/// # Safety
/// `handle` is live.
pub unsafe extern "C" fn signature(handle: *const Handle) -> *const Signature {
    let mut out = std::ptr::null();
    guard(|| {
        // SAFETY: the caller's promise.
        let m = unsafe { model(handle) }?;
        out = &m.signature.get_or_init(|| Owned::new(m)).signature;
        Ok(())
    });
    out
}
