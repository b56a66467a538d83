//! Gradients that are zero but for some rows, on their way to servers and there.
//!
//! Rows are in the order of their numbers, none of which is there twice: whoever sends
//! them has added up those that were.

use super::super::collective::{self, Reduce};
use super::layout::Shape;
use super::server::{misfit, number};
use crate::error::Result;
use crate::tensor::TensorBuf;
use std::ops::Range;
use tfc_abi::DType;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rows {
    dtype: DType,
    /// Bytes of a row.
    width: usize,
    pub ids: Vec<usize>,
    pub data: Vec<u8>,
}

/// How many rows a tensor has, and the bytes of each.
pub(super) fn extent(shape: &Shape) -> (usize, usize) {
    let rows = shape.sizes.first().copied().unwrap_or(1);
    (rows, shape.bytes().checked_div(rows).unwrap_or(0))
}

impl Rows {
    fn empty(shape: &Shape) -> Rows {
        Rows { dtype: shape.dtype, width: extent(shape).1, ids: vec![], data: vec![] }
    }

    /// The rows of a tensor of this shape that a worker's part has computed. Rows of
    /// one number are added up in their order.
    pub fn collect(ids: &TensorBuf, rows: &TensorBuf, shape: &Shape) -> Result<Rows> {
        let mut out = Rows::empty(shape);
        let (count, width) = extent(shape);
        let numbers = ids.as_slice::<i64>().unwrap_or(&[]);
        let mut order: Vec<(usize, usize)> = vec![];
        for (at, id) in numbers.iter().enumerate() {
            // As scattering has it: a row out of range is left out.
            let id = usize::try_from(*id).ok().filter(|id| *id < count);
            order.extend(id.map(|id| (id, at)));
        }
        let len = numbers.len().checked_mul(width);
        if rows.dtype != shape.dtype || Some(rows.bytes().len()) != len {
            return Err(misfit("a row for each number"));
        }
        order.sort_unstable();
        for (id, at) in order {
            out.add(id, &rows.bytes()[at * width..(at + 1) * width]);
        }
        Ok(out)
    }

    /// The next row; numbers never fall.
    fn add(&mut self, id: usize, row: &[u8]) {
        if self.ids.last() == Some(&id) {
            let last = self.data.len() - self.width;
            collective::combine(&mut self.data[last..], row, self.dtype, Reduce::Sum);
        } else {
            self.ids.push(id);
            self.data.extend_from_slice(row);
        }
    }

    pub fn scale(&mut self, by: f64) {
        collective::scale(&mut self.data, self.dtype, by);
    }

    /// The sum of both, those of `self` first.
    pub fn merge(self, other: &Rows) -> Rows {
        let mut out = Rows { ids: vec![], data: vec![], ..self };
        let row = |r: &Rows, i: usize| i * r.width..(i + 1) * r.width;
        let mut theirs = other.ids.iter().copied().enumerate().peekable();
        for (i, id) in self.ids.iter().copied().enumerate() {
            while let Some((j, before)) = theirs.next_if(|(_, t)| *t < id) {
                out.add(before, &other.data[row(other, j)]);
            }
            out.add(id, &self.data[i * out.width..(i + 1) * out.width]);
        }
        for (j, id) in theirs {
            out.add(id, &other.data[row(other, j)]);
        }
        out
    }

    /// As part of a message: those of some rows, numbered from the first of them.
    pub fn write(&self, within: Range<usize>, body: &mut Vec<u8>) {
        let at = |row: usize| self.ids.partition_point(|id| *id < row);
        let (lo, hi) = (at(within.start), at(within.end));
        body.extend(((hi - lo) as u64).to_le_bytes());
        for id in &self.ids[lo..hi] {
            body.extend(((id - within.start) as u64).to_le_bytes());
        }
        body.extend_from_slice(&self.data[lo * self.width..hi * self.width]);
    }

    /// The next rows of a message, of a tensor of this shape.
    pub fn take(body: &mut &[u8], shape: &Shape, count: usize, width: usize) -> Result<Rows> {
        let ids = numbers(body, count)?;
        let len = ids.len().checked_mul(width);
        let Some((data, rest)) = len.and_then(|n| body.split_at_checked(n)) else {
            return Err(misfit("a message is cut short"));
        };
        *body = rest;
        Ok(Rows { dtype: shape.dtype, width, ids, data: data.to_vec() })
    }

    /// The tensor of which these are all rows that are not zero.
    pub fn whole(&self, shape: &Shape) -> Result<TensorBuf> {
        let mut out = TensorBuf::zeros(shape.dtype, &shape.sizes)?;
        self.put(&mut out)?;
        Ok(out)
    }

    /// The rows as a tensor of elements.
    pub fn elements(&self) -> Result<TensorBuf> {
        let len = self.data.len() / self.dtype.size();
        TensorBuf::from_bytes(self.dtype, &[len], &self.data)
            .ok_or_else(|| misfit("a tensor of the wrong size"))
    }

    /// The rows of these numbers out of a tensor of as wide ones, as elements.
    pub fn pick(&self, from: &TensorBuf) -> Result<TensorBuf> {
        let data = pick(from, &self.ids, self.width)?;
        Rows { dtype: from.dtype, width: self.width, ids: vec![], data }.elements()
    }

    /// Puts the rows into a tensor.
    pub fn put(&self, into: &mut TensorBuf) -> Result<()> {
        for (i, id) in self.ids.iter().enumerate() {
            let to = into.bytes_mut().get_mut(id * self.width..(id + 1) * self.width);
            let from = self.data.get(i * self.width..(i + 1) * self.width);
            let (Some(to), Some(from)) = (to, from) else {
                return Err(misfit("there is no such row"));
            };
            to.copy_from_slice(from);
        }
        Ok(())
    }

    /// Other rows of the same numbers.
    pub fn with(&self, elements: &TensorBuf) -> Rows {
        let (dtype, data) = (elements.dtype, elements.bytes().to_vec());
        Rows { dtype, width: self.width, ids: self.ids.clone(), data }
    }
}

/// Rows of a tensor, one after the other.
pub(super) fn pick(from: &TensorBuf, ids: &[usize], width: usize) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(ids.len() * width);
    for id in ids {
        let row = from.bytes().get(id * width..(id + 1) * width);
        out.extend_from_slice(row.ok_or_else(|| misfit("there is no such row"))?);
    }
    Ok(out)
}

/// Numbers of rows in a message: below `count`, and each larger than the one before.
pub(super) fn numbers(body: &mut &[u8], count: usize) -> Result<Vec<usize>> {
    let len = usize::try_from(number(body)?).ok().filter(|n| *n <= count);
    let len = len.ok_or_else(|| misfit("more rows than there are"))?;
    let mut out: Vec<usize> = vec![];
    for _ in 0..len {
        let id = usize::try_from(number(body)?).unwrap_or(usize::MAX);
        if id >= count || out.last().is_some_and(|last| *last >= id) {
            return Err(misfit("rows that are not there, or out of order"));
        }
        out.push(id);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> Shape {
        Shape { dtype: DType::F32, sizes: vec![6, 2] }
    }

    fn rows(ids: &[i64], data: &[f32]) -> Rows {
        let ids = TensorBuf::from_slice(&[ids.len()], ids).unwrap();
        let data = TensorBuf::from_slice(&[data.len() / 2, 2], data).unwrap();
        Rows::collect(&ids, &data, &shape()).unwrap()
    }

    fn floats(r: &Rows) -> Vec<f32> {
        r.elements().unwrap().as_slice::<f32>().unwrap().to_vec()
    }

    #[test]
    fn rows_of_one_number_are_added_up() {
        let a = rows(&[4, 1, 4], &[1.0, 2.0, 3.0, 4.0, 10.0, 20.0]);
        assert_eq!((a.ids.as_slice(), floats(&a)), (&[1, 4][..], vec![3.0, 4.0, 11.0, 22.0]));
        let b = rows(&[0, 4, 5], &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]);
        let both = a.merge(&b);
        assert_eq!(both.ids, [0, 1, 4, 5]);
        assert_eq!(floats(&both), [1.0, 1.0, 3.0, 4.0, 13.0, 24.0, 3.0, 3.0]);
        let whole = both.whole(&shape()).unwrap();
        assert_eq!(whole.as_slice::<f32>().unwrap()[8..], [13.0, 24.0, 3.0, 3.0]);
        assert_eq!(floats(&both.with(&both.pick(&whole).unwrap())), floats(&both));
    }

    #[test]
    fn a_server_gets_its_rows_and_nothing_out_of_place() {
        let a = rows(&[1, 3, 4], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let mut body = vec![];
        a.write(3..6, &mut body);
        let got = Rows::take(&mut body.as_slice(), &shape(), 3, 8).unwrap();
        assert_eq!((got.ids.as_slice(), floats(&got)), (&[0, 1][..], vec![3.0, 4.0, 5.0, 6.0]));
        assert!(Rows::take(&mut body.as_slice(), &shape(), 1, 8).is_err(), "no such row");
        assert!(Rows::take(&mut &body[..body.len() - 1], &shape(), 3, 8).is_err(), "cut short");
        body[16] = 0;
        assert!(Rows::take(&mut body.as_slice(), &shape(), 3, 8).is_err(), "twice the same");
        assert_eq!(rows(&[6, -1, 2], &[1.0, 1.0, 2.0, 2.0, 3.0, 3.0]).ids, [2]);
    }
}
