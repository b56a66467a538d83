//! Multiply-adds as fast as they come: the largest tile over operands that stay in the
//! nearest cache.

use super::kernel::{CACHE_LINE, MAX_TILE, Real};

/// Steps of a tile.
const STEPS: usize = 256;

/// Computes `rounds` tiles. Gives the multiply-adds of one, and an element of the result.
pub fn tiles(rounds: usize) -> (usize, f32) {
    let kernels = f32::kernels();
    let (rows, columns) = (kernels.mr(), kernels.nr);
    // Every step reads the same elements; what a tile asks for ahead of its use is here, too.
    let mut operands = vec![0f32; STEPS * CACHE_LINE / size_of::<f32>()];
    operands[..MAX_TILE].fill(0.5);
    let mut sums = [0f32; MAX_TILE];
    let Some(tile) = kernels.panel.last() else { return (0, 0.0) };
    for _ in 0..rounds {
        let at = operands.as_ptr();
        // SAFETY: the operands have a row and a column of a tile, the sums a tile.
        unsafe { tile(STEPS, at, 1, 0, at, 0, sums.as_mut_ptr(), columns as isize, false, at, 0) };
    }
    (STEPS * rows * columns, sums[rows * columns - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_it_does() {
        let (madds, sum) = tiles(1);
        assert_eq!(madds, STEPS * f32::kernels().mr() * f32::kernels().nr);
        assert_eq!(sum, STEPS as f32 * 0.25);
    }
}
