//! Searches for the highest paced rate without loss.
//!
//! ```text
//!   1. from half a million events a second, × 1.5 until a round fails
//!   2. halve the distance between the best sustained and the lowest failed rate, down to 4 %
//!   3. confirm the best rate in successive rounds; if one fails, reduce the rate by 3 % and repeat
//! ```
//!
//! A round succeeds if no event was lost, all were collected, and the writers reached at least 99 %
//! of the rate: a tracer that slows its writers down to a lower rate has not sustained it.

use crate::error::Result;

/// First rate of the search, in events per second.
const FIRST_RATE: f64 = 500_000.0;
/// Highest rate of the search, in events per second.
const MAX_RATE: f64 = 200e6;
const STEP_UP: f64 = 1.5;
const STEP_DOWN: f64 = 0.97;
const PRECISION: f64 = 1.04;

/// The result of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sustained {
    /// Sustained rate in events per second.
    pub(crate) rate: f64,
    /// Number of rounds that failed during the search.
    pub(crate) failed_rounds: u32,
}

/// Runs the search; `run_round` runs one round at a rate and returns whether it succeeded. Returns
/// `None` if no rate above half of [`FIRST_RATE`] is confirmed.
pub(crate) fn search_rate(
    confirmations: u32,
    mut run_round: impl FnMut(f64) -> Result<bool>,
) -> Result<Option<Sustained>> {
    let mut failed_rounds = 0;
    let mut is_sustained = |rate: f64, failed_rounds: &mut u32| -> Result<bool> {
        let has_succeeded = run_round(rate)?;
        *failed_rounds += u32::from(!has_succeeded);
        Ok(has_succeeded)
    };
    let (mut best, mut failed) = (FIRST_RATE / STEP_UP, FIRST_RATE);
    while failed < MAX_RATE && is_sustained(failed, &mut failed_rounds)? {
        (best, failed) = (failed, failed * STEP_UP);
    }
    while failed / best > PRECISION {
        let middle = f64::midpoint(best, failed);
        *(if is_sustained(middle, &mut failed_rounds)? { &mut best } else { &mut failed }) = middle;
    }
    let mut rate = best;
    while rate > FIRST_RATE / 2.0 {
        let mut confirmed = 0;
        while confirmed < confirmations && is_sustained(rate, &mut failed_rounds)? {
            confirmed += 1;
        }
        if confirmed == confirmations {
            return Ok(Some(Sustained { rate, failed_rounds }));
        }
        rate *= STEP_DOWN;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_ends_just_below_the_limit() {
        for limit in [4e5, 7.3e6, 1.1e8] {
            let mut rounds = 0;
            let found = search_rate(3, |rate| {
                rounds += 1;
                Ok(rate <= limit)
            });
            let found = found.unwrap().unwrap();
            assert!(found.rate <= limit && found.rate >= limit / PRECISION, "{found:?} of {limit}");
            assert!(rounds < 30, "{rounds}");
        }
    }

    #[test]
    fn rate_that_is_not_confirmed_is_not_sustained() {
        let mut fast_rounds = 0;
        let found = search_rate(3, |rate| {
            fast_rounds += u32::from(rate > 3e6);
            Ok(rate <= 3e6 || fast_rounds % 3 != 0)
        });
        assert!(found.unwrap().unwrap().rate <= 3e6);
    }

    #[test]
    fn search_finds_no_rate_if_every_round_fails() {
        assert_eq!(search_rate(3, |_| Ok(false)).unwrap(), None);
    }
}
