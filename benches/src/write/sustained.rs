//! Searches for the highest paced rates without loss, of several tracers in turn.
//!
//! ```text
//!   1. from one million events a second, doubled until a round fails
//!   2. halve the distance between the best sustained and the lowest failed rate, down to 8 %
//!   3. confirm the best rate in successive rounds; if one fails, reduce the rate, by 3 %, 6 %, 12 % …
//!
//!   ours 1 M ─ LTTng 1 M ─ ours 2 M ─ LTTng 2 M ─ …        one round of each tracer in turn
//! ```
//!
//! A round succeeds if no event was lost, all were collected, and the writers reached at least 99 %
//! of the rate: a tracer that slows its writers down to a lower rate has not sustained it. Each round
//! begins when everything written before is on the disk. A round that failed while the disk stalled
//! (see [`DiskProbe`]) is repeated. A search ends without a rate after [`MAX_ROUNDS`], or if the disk has
//! spoiled more than [`MAX_SPOILED_ROUNDS`]: the disk would be measured then, not the tracer.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::error::{Error, Result};
use crate::figure::median_of;

/// First rate of a search, in events per second.
const FIRST_RATE: f64 = 1e6;
/// Highest rate of a search, in events per second.
const MAX_RATE: f64 = 256e6;
const STEP_UP: f64 = 2.0;
const FIRST_STEP_DOWN: f64 = 0.03;
const PRECISION: f64 = 1.08;
/// The most rounds of one search, without those that the disk has spoiled.
const MAX_ROUNDS: u32 = 36;
/// The most rounds of one search that are repeated because the disk stalled.
const MAX_SPOILED_ROUNDS: u32 = 12;

/// A search for one tracer.
#[derive(Clone, Debug)]
pub(crate) struct RateSearch {
    confirmations: u32,
    stage: Stage,
    rounds: u32,
    spoiled_rounds: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// The rate doubles; `next` was not tried yet.
    Up {
        next: f64,
    },
    Halve {
        best: f64,
        failed: f64,
    },
    Confirm {
        rate: f64,
        confirmed: u32,
        step_down: f64,
    },
    Found(f64),
    NothingFound,
}

impl RateSearch {
    /// Starts a search that accepts a rate after `confirmations` rounds in succession.
    pub(crate) const fn new(confirmations: u32) -> Self {
        Self { confirmations, stage: Stage::Up { next: FIRST_RATE }, rounds: 0, spoiled_rounds: 0 }
    }

    /// Returns the rate of the next round; `None` at the end of the search.
    pub(crate) fn next_rate(&self) -> Option<f64> {
        match self.stage {
            Stage::Up { next } => Some(next),
            Stage::Halve { best, failed } => Some(f64::midpoint(best, failed)),
            Stage::Confirm { rate, .. } => Some(rate),
            Stage::Found(_) | Stage::NothingFound => None,
        }
    }

    /// Returns the rate that was found, in events per second.
    pub(crate) fn found(&self) -> Option<f64> {
        if let Stage::Found(rate) = self.stage { Some(rate) } else { None }
    }

    /// Returns how many rounds were repeated because the disk stalled.
    pub(crate) const fn spoiled_rounds(&self) -> u32 {
        self.spoiled_rounds
    }

    /// Notes that the disk stalled in a round.
    fn add_spoiled_round(&mut self) {
        self.spoiled_rounds += 1;
        if self.spoiled_rounds > MAX_SPOILED_ROUNDS {
            self.stage = Stage::NothingFound;
        }
    }

    /// Takes the result of a round at [`next_rate`](Self::next_rate).
    fn add_round(&mut self, is_sustained: bool) {
        self.rounds += 1;
        self.stage = match self.stage {
            Stage::Up { next } if is_sustained && next < MAX_RATE => Stage::Up { next: next * STEP_UP },
            Stage::Up { next } => Self::halve(next / STEP_UP, next),
            Stage::Halve { best, failed } => {
                let middle = f64::midpoint(best, failed);
                if is_sustained { Self::halve(middle, failed) } else { Self::halve(best, middle) }
            }
            Stage::Confirm { rate, confirmed, step_down } if is_sustained => {
                if confirmed + 1 == self.confirmations {
                    Stage::Found(rate)
                } else {
                    Stage::Confirm { rate, confirmed: confirmed + 1, step_down }
                }
            }
            Stage::Confirm { rate, step_down, .. } => Stage::Confirm {
                rate: rate * (1.0 - step_down),
                confirmed: 0,
                step_down: (step_down * 2.0).min(0.5),
            },
            end => end,
        };
        if self.next_rate().is_some_and(|rate| self.rounds >= MAX_ROUNDS || rate < FIRST_RATE / 4.0) {
            self.stage = Stage::NothingFound;
        }
    }

    /// Returns the stage after the second, if the distance is already small enough.
    fn halve(best: f64, failed: f64) -> Stage {
        if failed / best > PRECISION {
            Stage::Halve { best, failed }
        } else {
            Stage::Confirm { rate: best, confirmed: 0, step_down: FIRST_STEP_DOWN }
        }
    }
}

/// Runs one round of each search in turn until all have ended. `run_round` gets the index of the
/// search and the rate, and returns whether the tracer sustained it; `None` if the disk stalled.
pub(crate) fn run_searches(
    searches: &mut [RateSearch],
    mut run_round: impl FnMut(usize, f64) -> Result<Option<bool>>,
) -> Result<()> {
    while searches.iter().any(|search| search.next_rate().is_some()) {
        for (index, search) in searches.iter_mut().enumerate() {
            let Some(rate) = search.next_rate() else { continue };
            match run_round(index, rate)? {
                Some(is_sustained) => search.add_round(is_sustained),
                None => search.add_spoiled_round(),
            }
        }
    }
    Ok(())
}

/// Measures how fast the disk of a folder is, without any tracer.
#[derive(Debug)]
pub(crate) struct DiskProbe {
    file: PathBuf,
    usual_rate: f64,
}

const PROBE_BYTES: usize = 64 << 20;
/// A disk below this fraction of its usual rate stalls.
const STALLED_FRACTION: f64 = 0.5;

impl DiskProbe {
    /// Measures the usual rate.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        let mut probe = Self { file: folder.join("probe"), usual_rate: 0.0 };
        let mut rates = Vec::new();
        for _ in 0..5 {
            rates.push(probe.measure()?);
        }
        probe.usual_rate = median_of(rates.into_iter()).unwrap_or(0.0);
        eprintln!("the disk writes {:.0} MB a second", probe.usual_rate / 1e6);
        Ok(probe)
    }

    /// Returns whether the disk is much slower than usual, when it has nothing else to write.
    pub(crate) fn is_stalled(&self) -> Result<bool> {
        nix::unistd::sync();
        Ok(self.measure()? < self.usual_rate * STALLED_FRACTION)
    }

    /// Returns the bytes per second of a file that is written and then on the disk.
    #[allow(clippy::cast_precision_loss)] // The size is far below 2⁵³.
    fn measure(&self) -> Result<f64> {
        let bytes = vec![0x5a; PROBE_BYTES];
        let started = Instant::now();
        File::create(&self.file)
            .and_then(|mut file| file.write_all(&bytes).and_then(|()| file.sync_data()))
            .map_err(Error::file(&self.file))?;
        let time = started.elapsed();
        std::fs::remove_file(&self.file).map_err(Error::file(&self.file))?;
        Ok(PROBE_BYTES as f64 / time.as_secs_f64().max(1e-9))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one search; returns the rate and the number of rounds.
    fn search(confirmations: u32, mut is_sustained: impl FnMut(f64) -> bool) -> (Option<f64>, u32) {
        let mut search = [RateSearch::new(confirmations)];
        run_searches(&mut search, |_, rate| Ok(Some(is_sustained(rate)))).unwrap();
        (search[0].found(), search[0].rounds)
    }

    #[test]
    fn search_ends_just_below_the_limit() {
        for limit in [4e5, 7.3e6, 1.1e8] {
            let (found, rounds) = search(3, |rate| rate <= limit);
            let found = found.unwrap();
            // Below the first rate, the search goes down in steps that double.
            let precision = if limit < FIRST_RATE { 2.0 } else { PRECISION };
            assert!(found <= limit && found >= limit / precision, "{found} of {limit}");
            assert!(rounds < MAX_ROUNDS, "{rounds}");
        }
    }

    #[test]
    fn rate_that_is_not_confirmed_is_not_sustained() {
        let mut fast_rounds = 0;
        let (found, _) = search(3, |rate| {
            fast_rounds += u32::from(rate > 3e6);
            rate <= 3e6 || fast_rounds % 3 != 0
        });
        assert!(found.unwrap() <= 3e6);
    }

    #[test]
    fn search_ends_if_every_round_fails_or_none_can_be_confirmed() {
        assert_eq!(search(3, |_| false).0, None);
        let mut rounds = 0;
        let (found, count) = search(3, |_| {
            rounds += 1;
            rounds % 3 != 0
        });
        assert_eq!(found, None);
        assert!(count <= MAX_ROUNDS);
    }

    #[test]
    fn search_on_a_disk_that_keeps_stalling_finds_nothing() {
        let mut search = [RateSearch::new(1)];
        run_searches(&mut search, |_, rate| Ok((rate < 5e6).then_some(true))).unwrap();
        assert_eq!((search[0].found(), search[0].spoiled_rounds()), (None, MAX_SPOILED_ROUNDS + 1));
    }

    #[test]
    fn searches_take_turns_and_repeat_rounds_that_do_not_count() {
        let mut searches = [RateSearch::new(1), RateSearch::new(1)];
        let mut turns = Vec::new();
        run_searches(&mut searches, |index, rate| {
            turns.push(index);
            Ok((turns.len() != 3).then_some(rate <= [5e6, 2e6][index]))
        })
        .unwrap();
        assert_eq!(turns[..6], [0, 1, 0, 1, 0, 1]);
        assert!(searches.iter().all(|search| search.found().is_some()));
    }

    #[test]
    fn disk_is_measured() {
        let folder = tempfile::tempdir().unwrap();
        let probe = DiskProbe::new(folder.path()).unwrap();
        assert!(probe.usual_rate > 0.0);
        assert!(!DiskProbe { usual_rate: 0.0, ..probe }.is_stalled().unwrap());
    }
}
