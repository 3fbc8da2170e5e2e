//! How long to leave a backend alone.

use std::time::Duration;

/// A backend that fails is asked this many times more rarely, at most.
const RAREST: u32 = 4;
/// By this part of itself a pause may be longer or shorter, so that nobody goes in step.
const JITTER: f64 = 0.1;

/// The pause from the beginning of one poll to that of the next: longer after `failures` in a row, and
/// never quite the same. `chance` is from 0 to 1.
pub(super) fn pause(interval: Duration, failures: u32, chance: f64) -> Duration {
    let factor = 2_u32.saturating_pow(failures.saturating_sub(1)).min(RAREST);
    match failures {
        // The pace that was asked for is kept.
        0 => interval,
        _ => (interval * factor).mul_f64(1.0 + JITTER * (2.0 * chance - 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::all_is_well(0, 0.0, 10.0)]
    #[case::failed_once(1, 0.5, 10.0)]
    #[case::failed_twice(2, 0.5, 20.0)]
    #[case::failed_often(200, 0.5, 40.0)]
    #[case::at_the_earliest(2, 0.0, 18.0)]
    #[case::at_the_latest(2, 1.0, 22.0)]
    fn a_backend_that_fails_is_left_alone(#[case] failures: u32, #[case] chance: f64, #[case] seconds: f64) {
        let pause = pause(Duration::from_secs(10), failures, chance);
        assert!((pause.as_secs_f64() - seconds).abs() < 1e-6, "{pause:?}");
    }
}
