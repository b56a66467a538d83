//! Copies from global to shared memory that a thread starts and waits for later, and
//! matrices that a warp loads together.
//!
//! A copy reads its source when it starts. Until its thread has waited for the group it is
//! in, nobody may touch what it writes; after that it is as if the thread had stored it
//! just then, so that others need a barrier.

use crate::decode::R;
use crate::exec::{Block, Warp, lanes};
use crate::{Error, decode::Src};
use std::collections::VecDeque;

/// `[base+offset]`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub base: Src,
    pub offset: i64,
}

/// What is on its way to shared memory.
struct Copy {
    at: usize,
    bytes: Vec<u8>,
}

/// The copies of one thread.
#[derive(Default)]
pub(crate) struct Copies {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

impl Copies {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.groups.iter().all(Vec::is_empty)
    }
}

impl Block<'_> {
    /// Starts copies of `len` bytes, of which the last are zeros if there are fewer to copy.
    pub fn start_copies(
        &mut self,
        w: &mut Warp,
        pc: u32,
        (to, from): (At, At),
        (len, size): (usize, Option<Src>),
        mask: u32,
    ) -> Result<(), Error> {
        let (tos, froms) = (self.src(w, pc, to.base, mask)?, self.src(w, pc, from.base, mask)?);
        let sizes = self.src(w, pc, size.unwrap_or(Src::Imm(len as u64)), mask)?;
        self.stats.global_accesses += 1;
        self.stats.wide_accesses += u64::from(len == 16);
        for lane in lanes(mask) {
            let thread = w.first + lane;
            let (to, from) = (
                tos[lane].wrapping_add(to.offset as u64),
                froms[lane].wrapping_add(from.offset as u64),
            );
            for at in [to, from] {
                if at % len as u64 != 0 {
                    let m = format!("uses address {at:#x}, no multiple of {len}");
                    return Err(self.error(pc, thread, &m));
                }
            }
            let size = sizes[lane] as u32 as usize;
            if size > len {
                return Err(self.error(pc, thread, "copies more bytes than it has room for"));
            }
            let who = self.who(w, lane);
            let copied = self.copy(to, from, len, size, who);
            let copy = copied.map_err(|m| self.error(pc, thread, &format!("{m} ({from:#x})")))?;
            w.copies[lane].open.push(copy);
        }
        Ok(())
    }

    fn copy(
        &mut self,
        to: u64,
        from: u64,
        len: usize,
        size: usize,
        who: crate::memory::Who,
    ) -> Result<Copy, String> {
        let mut bytes = vec![0; len];
        if size > 0 {
            let (region, at) = self.global.find(from, size)?;
            bytes[..size].copy_from_slice(region.load(at, size, who)?);
        }
        let at = self.in_shared(to, len)?;
        self.shared.promise(at, len, who)?;
        Ok(Copy { at, bytes })
    }

    /// What was started since the last time is a group.
    pub fn commit_copies(&self, w: &mut Warp, mask: u32) {
        for lane in lanes(mask) {
            let copies = &mut w.copies[lane];
            let group = std::mem::take(&mut copies.open);
            copies.groups.push_back(group);
        }
    }

    /// All groups but the last few are there.
    pub fn wait_for_copies(&mut self, w: &mut Warp, left: usize, mask: u32) {
        for lane in lanes(mask) {
            let who = self.who(w, lane);
            while w.copies[lane].groups.len() > left {
                for copy in w.copies[lane].groups.pop_front().unwrap_or_default() {
                    self.shared.keep_promise(copy.at, &copy.bytes, who);
                }
            }
        }
    }

    /// Loads matrices of 8 by 8 elements of 16 bits, of which the lanes give the rows.
    pub fn load_matrices(
        &mut self,
        w: &mut Warp,
        pc: u32,
        (dst, from, turned): (&[R], At, bool),
        mask: u32,
    ) -> Result<(), Error> {
        self.together(w, pc, mask, Src::Imm(u64::from(u32::MAX)))?;
        let base = self.src(w, pc, from.base, mask)?;
        for (n, dst) in dst.iter().enumerate() {
            let mut rows = [[0u16; 8]; 8];
            for (i, row) in rows.iter_mut().enumerate() {
                let lane = 8 * n + i;
                let at = base[lane].wrapping_add(from.offset as u64);
                let thread = w.first + lane;
                if at % 16 != 0 {
                    let m = format!("uses address {at:#x}, no multiple of 16");
                    return Err(self.error(pc, thread, &m));
                }
                let who = self.who(w, lane);
                let bytes = self.in_shared(at, 16).and_then(|at| self.shared.load(at, 16, who));
                match bytes {
                    Ok(bytes) => {
                        for (v, two) in row.iter_mut().zip(bytes.chunks(2)) {
                            *v = u16::from_le_bytes([two[0], two[1]]);
                        }
                    }
                    Err(m) => {
                        let m = format!("{m} (address {at:#x})");
                        return Err(self.error(pc, thread, &m));
                    }
                }
            }
            w.put(*dst, mask, |lane| {
                let (row, col) = (lane / 4, lane % 4 * 2);
                let [low, high] = match turned {
                    false => [rows[row][col], rows[row][col + 1]],
                    true => [rows[col][row], rows[col + 1][row]],
                };
                u64::from(low) | u64::from(high) << 16
            });
        }
        Ok(())
    }
}
