//! Which unit covers an address.

use std::time::Duration;

use gimli::DebugInfoOffset;

use super::super::effort::Effort;
use super::{Info, Unit, is_code};

/// Units of a file; a browser has some ten thousand.
const MAX_UNITS: usize = 1 << 18;
/// Ranges of addresses of all units.
const MAX_SPANS: usize = 4 << 20;
/// Steps and time for a look at all units.
const STEPS: u64 = 64 << 20;
const TIME: Duration = Duration::from_secs(20);
/// What a unit costs before its ranges are counted.
const UNIT_STEPS: usize = 256;
/// Ranges before the nearest one that are looked at: those of units may lie within each other.
const LOOK_BACK: usize = 64;

#[derive(Debug)]
struct Span {
    begin: u64,
    end: u64,
    unit: usize,
}

/// The units of a file.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// Where each begins, in rising order.
    starts: Vec<usize>,
    /// By their begin.
    spans: Vec<Span>,
}

impl Units {
    pub(super) fn read(info: &Info<'_>) -> Self {
        let mut units = Self::default();
        let mut effort = Effort::new(STEPS, TIME);
        let _ = units.gather(info, &mut effort);
        units.spans.sort_unstable_by_key(|span| (span.begin, span.end));
        units
    }

    fn gather(&mut self, info: &Info<'_>, effort: &mut Effort) -> Option<()> {
        let mut headers = info.units();
        while let Some(header) = headers.next().ok()? {
            let Some(DebugInfoOffset(start)) = header.debug_info_offset() else { continue };
            if self.starts.len() >= MAX_UNITS {
                return None;
            }
            let unit = self.starts.len();
            self.starts.push(start);
            effort.check()?;
            effort.pay(UNIT_STEPS)?;
            // A unit that cannot be read does not keep the others from it.
            let Ok(parsed) = info.unit(header) else { continue };
            let Ok(mut ranges) = info.unit_ranges(&parsed) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                effort.pay(1)?;
                if is_code(&range) && self.spans.len() < MAX_SPANS {
                    self.spans.push(Span { begin: range.begin, end: range.end, unit });
                }
            }
        }
        Some(())
    }

    /// The units that cover an address.
    pub(super) fn at(&self, address: u64) -> impl Iterator<Item = usize> {
        let behind = self.spans.partition_point(|span| span.begin <= address);
        let before = self.spans.get(..behind).unwrap_or_default().iter().rev().take(LOOK_BACK);
        before.filter(move |span| address < span.end).map(|span| span.unit)
    }

    /// A unit by its number, and where it begins.
    pub(super) fn open<'a>(&self, info: &Info<'a>, unit: usize) -> Option<(Unit<'a>, usize)> {
        let start = *self.starts.get(unit)?;
        let header = info.unit_header(DebugInfoOffset(start)).ok()?;
        Some((info.unit(header).ok()?, start))
    }

    /// The number of the unit around an offset.
    pub(super) fn around(&self, offset: usize) -> Option<usize> {
        self.starts.partition_point(|start| *start <= offset).checked_sub(1)
    }
}
