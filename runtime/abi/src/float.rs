//! Rounding between float types.

/// The neighbour of `x` among the `f32`s whose last bit is set, or `x` itself if
/// it is one of them.
///
/// What is rounded to nearest afterwards, to a type with at least two bits fewer
/// (`f16`, `bf16`), is what `x` itself would have been rounded to: a tie can no
/// longer come about on the way.
pub fn round_to_odd(x: f64) -> f32 {
    let near = x as f32;
    let back = f64::from(near);
    if back == x || x.is_nan() {
        return near;
    }
    let away = u32::from(back.abs() > x.abs());
    f32::from_bits((near.to_bits() - away) | 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_values_stay() {
        for x in [0.0, -0.0, 1.0, -2.5, f64::from(f32::MAX), f64::INFINITY, 1e-45f32.into()] {
            assert_eq!(f64::from(round_to_odd(x)).to_bits(), x.to_bits());
        }
        assert!(round_to_odd(f64::NAN).is_nan());
    }

    #[test]
    fn others_end_in_a_one_and_lie_next_to_them() {
        for x in [0.1, -0.1, 1.0 + 2f64.powi(-40), 1e-60, -1e-60, 1e60, -1e60, 16777217.0] {
            let y = round_to_odd(x);
            assert_eq!(y.to_bits() & 1, 1, "{x}");
            let (below, above) = (y.next_down(), y.next_up());
            assert!(f64::from(below) <= x && x <= f64::from(above), "{x} {y}");
        }
    }
}
