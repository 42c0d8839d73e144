//! Computes figures from measured rounds.
//!
//! ```text
//!   round      1     2     3 (lossy)   4     5
//!   ours      20    21                19    20      median 20
//!   peer       2     2                 2     2      median  2
//!
//!   ratio 10, spread (10.5 − 9.5) / 10
//! ```
//!
//! Traceweir and the peer run alternately, so that a slow minute of the machine affects both. The
//! ratio is that of the medians. The spread is the difference between the highest and the lowest
//! ratio of a round, divided by the median ratio. [`Requirement`] defines whether a larger or a
//! smaller ratio is better. For the memory of reading, `peer` is the limit, and the ratio is the
//! limit divided by the used memory. For extra instructions, the ratio is the difference.

use std::fmt::Write;

/// Measurements of Traceweir and the peer, round by round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rounds {
    pairs: Vec<(f64, f64)>,
    lossy: u32,
}

impl Rounds {
    /// Adds a round; `None` means that the program lost events.
    pub(crate) fn add(&mut self, ours: Option<f64>, peer: Option<f64>) {
        match ours.zip(peer) {
            Some(pair) => self.pairs.push(pair),
            None => self.lossy += 1,
        }
    }

    /// Counts a round that was discarded and repeated.
    pub(crate) fn discard(&mut self) {
        self.lossy += 1;
    }

    /// Returns the figure; `None` without a single lossless round.
    pub(crate) fn figure(
        &self,
        name: &'static str,
        unit: FigureUnit,
        requirement: Requirement,
    ) -> Option<Figure> {
        let sorted_values = |f: fn(&(f64, f64)) -> f64| sorted(self.pairs.iter().map(f));
        let (ours, peer) =
            (median_of_sorted(&sorted_values(|p| p.0))?, median_of_sorted(&sorted_values(|p| p.1))?);
        let ratios = sorted_values(|p| p.0 / p.1);
        let middle = median_of_sorted(&ratios)?;
        let spread = if middle == 0.0 { 0.0 } else { (ratios.last()? - ratios.first()?) / middle };
        let rounds = u32::try_from(self.pairs.len()).unwrap_or(u32::MAX);
        Some(Figure {
            name,
            unit,
            requirement,
            ours,
            peer,
            ratio: ours / peer,
            spread,
            rounds,
            lossy_rounds: self.lossy,
        })
    }
}

/// Returns the median of some values; `None` if there are none.
pub(crate) fn median_of(values: impl Iterator<Item = f64>) -> Option<f64> {
    median_of_sorted(&sorted(values))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn median_of_sorted(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().saturating_sub(1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

/// The unit of `ours` and `peer`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FigureUnit {
    /// Events per second of processor time.
    EventsPerSecond,
    /// Bytes per second of processor time.
    BytesPerSecond,
    /// Memory in MiB; `peer` is the limit.
    Mebibytes,
    /// Memory in KiB; `peer` is the limit.
    Kibibytes,
    /// Milliseconds of wall time; `peer` is the limit.
    Milliseconds,
    /// Nanoseconds per event, context switch or query.
    Nanoseconds,
    /// Events per second of wall time.
    PacedEventsPerSecond,
    /// Machine instructions of one pass.
    Instructions,
    /// One cost as a multiple of another.
    Times,
    /// A plain number; `peer` is the limit.
    Count,
}

/// The ratio that a figure must reach to be accepted, and the target: a ratio that it should reach.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirement {
    better: Direction,
    accept: Option<f64>,
    target: Option<f64>,
}

/// Whether larger or smaller ratios are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Larger,
    Smaller,
}

impl Requirement {
    /// Requires at least `accept`.
    pub(crate) const fn at_least(accept: f64) -> Self {
        Self { better: Direction::Larger, accept: Some(accept), target: None }
    }

    /// Requires at most `accept`.
    pub(crate) const fn at_most(accept: f64) -> Self {
        Self { better: Direction::Smaller, accept: Some(accept), target: None }
    }

    /// Sets the target, which is at least as strict as the requirement.
    pub(crate) const fn with_target(mut self, target: f64) -> Self {
        self.target = Some(target);
        self
    }

    /// Reports the figure without a requirement or a target.
    pub(crate) const fn report_only(better: Direction) -> Self {
        Self { better, accept: None, target: None }
    }

    fn is_reached(self, ratio: f64, bound: Option<f64>) -> bool {
        bound.is_some_and(|b| if self.better == Direction::Larger { ratio >= b } else { ratio <= b })
    }

    fn verdict(self, ratio: f64) -> &'static str {
        match (self.is_reached(ratio, self.target), self.accept) {
            (true, _) => "target reached",
            (false, Some(_)) if self.is_reached(ratio, self.accept) => "accepted",
            (false, Some(_)) if self.better == Direction::Larger => "too low",
            (false, Some(_)) => "too high",
            (false, None) => "",
        }
    }

    fn show(self) -> String {
        let sign = if self.better == Direction::Larger { '≥' } else { '≤' };
        match (self.accept, self.target) {
            (Some(accept), Some(target)) => format!("{sign} {accept}/{target}"),
            (None, Some(target)) => format!("{sign} –/{target}"),
            _ => String::new(),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) unit: FigureUnit,
    pub(crate) requirement: Requirement,
    pub(crate) ours: f64,
    pub(crate) peer: f64,
    pub(crate) ratio: f64,
    pub(crate) spread: f64,
    pub(crate) rounds: u32,
    pub(crate) lossy_rounds: u32,
}

impl Figure {
    /// Returns one JSON object on one line.
    pub(crate) fn to_json(&self) -> String {
        let Self { name, ours, peer, ratio, spread, rounds, lossy_rounds, .. } = self;
        let better = if self.requirement.better == Direction::Larger { "larger" } else { "smaller" };
        let bound = |bound: Option<f64>| bound.map_or_else(|| "null".to_owned(), |bound| bound.to_string());
        let (accept, target) = (bound(self.requirement.accept), bound(self.requirement.target));
        let (ours_text, peer_text) = (self.unit.show(*ours), self.unit.show(*peer));
        format!(
            "{{\"name\":\"{name}\",\"ours\":{ours:.3},\"peer\":{peer:.3},\"ratio\":{ratio:.4},\"spread\":{spread:.4},\
             \"rounds\":{rounds},\"lossy_rounds\":{lossy_rounds},\"better\":\"{better}\",\"accept\":{accept},\
             \"target\":{target},\"ours_text\":\"{ours_text}\",\"peer_text\":\"{peer_text}\"}}"
        )
    }

    fn verdict(&self) -> &'static str {
        self.requirement.verdict(self.ratio)
    }
}

impl FigureUnit {
    fn show(self, value: f64) -> String {
        match self {
            Self::EventsPerSecond => format!("{:.2} M events/s", value / 1e6),
            Self::BytesPerSecond => format!("{:.2} GB/s", value / 1e9),
            Self::Mebibytes => format!("{value:.1} MiB"),
            Self::Kibibytes => format!("{value:.1} KiB"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Nanoseconds => format!("{value:.1} ns"),
            Self::PacedEventsPerSecond => format!("{:.2} M/s paced", value / 1e6),
            Self::Instructions => format!("{value:.2} instr."),
            Self::Times => format!("{value:.3} x"),
            Self::Count => format!("{value}"),
        }
    }
}

/// Formats the figures as a table for people.
pub(crate) fn format_table(figures: &[Figure]) -> String {
    let mut out = String::new();
    let row = |out: &mut String, cells: [&str; 8]| {
        let [name, ours, peer, ratio, spread, rounds, requirement, verdict] = cells;
        let line = format!(
            "{name:<27} {ours:>17} {peer:>17} {ratio:>8} {spread:>7} {rounds:>8} {requirement:>13}  {verdict}"
        );
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{}", line.trim_end());
    };
    row(&mut out, ["", "ours", "peer or limit", "ratio", "spread", "rounds", "accept/target", ""]);
    for f in figures {
        let rounds = match f.lossy_rounds {
            0 => f.rounds.to_string(),
            lossy => format!("{}+{lossy} lossy", f.rounds),
        };
        let (ours, peer) = (f.unit.show(f.ours), f.unit.show(f.peer));
        let (ratio, spread) = (format!("{:.2}", f.ratio), show_spread(f.spread, u64::from(f.rounds)));
        let requirement = f.requirement.show();
        row(&mut out, [f.name, &ours, &peer, &ratio, &spread, &rounds, &requirement, f.verdict()]);
    }
    out
}

/// Formats the spread of a figure's rounds. One round has none.
pub(crate) fn show_spread(spread: f64, rounds: u64) -> String {
    if rounds < 2 { "–".to_owned() } else { format!("{:.0} %", spread * 100.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUIREMENT: Requirement = Requirement::at_least(5.0).with_target(10.0);

    #[test]
    fn a_figure_is_the_ratio_of_medians_and_the_spread_of_ratios() {
        let mut rounds = Rounds::default();
        for (ours, peer) in [(20.0, 2.0), (21.0, 2.0), (19.0, 2.0)] {
            rounds.add(Some(ours), Some(peer));
        }
        let f = rounds.figure("x", FigureUnit::EventsPerSecond, REQUIREMENT).unwrap();
        assert_eq!((f.ours, f.peer, f.ratio, f.rounds), (20.0, 2.0, 10.0, 3));
        assert!((f.spread - 0.1).abs() < 1e-9);
        assert_eq!(f.verdict(), "target reached");
    }

    #[test]
    fn lossy_round_is_discarded_but_reported() {
        let mut rounds = Rounds::default();
        rounds.add(Some(1000.0), None);
        assert!(rounds.figure("x", FigureUnit::EventsPerSecond, REQUIREMENT).is_none());
        rounds.add(Some(6.0), Some(2.0));
        rounds.add(Some(8.0), Some(2.0));
        let f = rounds.figure("x", FigureUnit::EventsPerSecond, REQUIREMENT).unwrap();
        assert_eq!((f.ours, f.rounds, f.lossy_rounds), (7.0, 2, 1));
        assert_eq!(
            f.to_json(),
            concat!(
                r#"{"name":"x","ours":7.000,"peer":2.000,"ratio":3.5000,"spread":0.2857,"rounds":2,"lossy_rounds":1,"#,
                r#""better":"larger","accept":5,"target":10,"#,
                r#""ours_text":"0.00 M events/s","peer_text":"0.00 M events/s"}"#
            )
        );
        assert_eq!(f.verdict(), "too low");
    }

    #[test]
    fn small_ratio_reaches_the_target_if_smaller_is_better() {
        let requirement = Requirement::at_most(0.4).with_target(0.2);
        assert_eq!(requirement.verdict(0.2), "target reached");
        assert_eq!(requirement.verdict(0.3), "accepted");
        assert_eq!(requirement.verdict(0.41), "too high");
        assert_eq!(Requirement::report_only(Direction::Smaller).verdict(9.0), "");
        assert_eq!(
            (requirement.show(), Requirement::report_only(Direction::Smaller).show()),
            ("≤ 0.4/0.2".to_owned(), String::new())
        );
    }
}
