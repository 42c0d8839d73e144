//! Searches for the highest paced rate without loss.
//!
//! ```text
//!   1. from a rate that is surely sustained, × 1.5 until a round loses events
//!   2. halve the distance between the best sustained and the worst lossy rate, down to 4 %
//!   3. that rate must hold in three successive rounds; else 3 % less, again
//! ```
//!
//! A round holds if no event was lost, all were collected, and the writers were not late by more
//! than 1 %: a tracer that slows its writers down so much that they cannot offer more has not
//! sustained the rate.

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
    /// Number of rounds that did not hold during the search.
    pub(crate) lost_rounds: u32,
}

/// Runs the search; `holds` runs one round at a rate and returns whether no event
/// was lost. Returns `None` if not even the lowest rate holds.
pub(crate) fn search_rate(
    confirmations: u32,
    mut holds: impl FnMut(f64) -> Result<bool>,
) -> Result<Option<Sustained>> {
    let mut lost_rounds = 0;
    let mut holds = |rate: f64, lost: &mut u32| -> Result<bool> {
        let is_held = holds(rate)?;
        *lost += u32::from(!is_held);
        Ok(is_held)
    };
    let (mut best, mut lost) = (FIRST_RATE / STEP_UP, FIRST_RATE);
    while lost < MAX_RATE && holds(lost, &mut lost_rounds)? {
        (best, lost) = (lost, lost * STEP_UP);
    }
    while lost / best > PRECISION {
        let middle = f64::midpoint(best, lost);
        *(if holds(middle, &mut lost_rounds)? { &mut best } else { &mut lost }) = middle;
    }
    let mut rate = best;
    while rate > FIRST_RATE / 2.0 {
        let mut confirmed = 0;
        while confirmed < confirmations && holds(rate, &mut lost_rounds)? {
            confirmed += 1;
        }
        if confirmed == confirmations {
            return Ok(Some(Sustained { rate, lost_rounds }));
        }
        rate *= STEP_DOWN;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_ends_just_below_the_limit() {
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
    fn rate_that_holds_only_once_is_not_sustained() {
        let mut after = 0;
        let found = search_rate(3, |rate| {
            after += u32::from(rate > 3e6);
            Ok(rate <= 3e6 || after % 3 != 0)
        });
        assert!(found.unwrap().unwrap().rate <= 3e6);
    }

    #[test]
    fn search_finds_no_rate_if_everything_is_lost() {
        assert_eq!(search_rate(3, |_| Ok(false)).unwrap(), None);
    }
}
