//! Finds the unit that covers an address.

use std::time::Duration;

use gimli::{
    AttributeValue, DW_AT_stmt_list, DebugAbbrev, DebugInfoOffset, DebugLineOffset, Reader, Section,
    UnitHeader,
};

use super::super::budget::WorkBudget;
use super::{Info, Slice, Unit, is_code, read_ranges};

/// The most units of a file; a browser has about 10,000.
const MAX_UNITS: usize = 1 << 18;
/// The most address ranges of all units.
const MAX_RANGES: usize = 4 << 20;
/// The most steps for reading all units.
const MAX_STEPS: u64 = 64 << 20;
/// The most time for reading all units.
const MAX_TIME: Duration = Duration::from_secs(20);
/// The number of steps that a unit costs besides its ranges.
const UNIT_STEPS: usize = 256;
/// The most ranges that a lookup checks, backwards from the nearest, because ranges of units may
/// overlap.
const MAX_OVERLAPPING_RANGES: usize = 64;

/// The size limit of a unit's abbreviations in bytes. Compilers write a few thousand bytes; parsed,
/// they take a few hundred times as much memory.
const MAX_ABBREVIATION_BYTES: usize = 1 << 20;
/// The size limit of the list of a unit's source files in bytes. Parsed, the list may take a
/// hundred times as much memory.
const MAX_SOURCE_LIST_BYTES: usize = 2 << 20;

#[derive(Debug)]
struct UnitRange {
    begin: u64,
    end: u64,
    unit: usize,
}

#[derive(Debug, Default)]
pub(super) struct Units {
    /// Start offsets of the units, ascending.
    starts: Vec<usize>,
    /// Address ranges sorted by start.
    ranges: Vec<UnitRange>,
}

impl Units {
    pub(super) fn read(info: &Info<'_>) -> Self {
        let mut units = Self::default();
        let mut budget = WorkBudget::new(MAX_STEPS, MAX_TIME);
        // At a limit or an error, the units read so far are kept.
        let _ = units.read_all(info, &mut budget);
        units.ranges.sort_unstable_by_key(|range| (range.begin, range.end));
        units
    }

    fn read_all(&mut self, info: &Info<'_>, budget: &mut WorkBudget) -> Option<()> {
        let mut headers = info.units();
        while let Some(header) = headers.next().ok()? {
            let Some(DebugInfoOffset(start)) = header.debug_info_offset() else { continue };
            if self.starts.len() >= MAX_UNITS {
                return None;
            }
            let unit = self.starts.len();
            self.starts.push(start);
            budget.check_time()?;
            budget.spend(UNIT_STEPS)?;
            // An unreadable unit does not prevent reading the others.
            let Some(parsed) = open_bounded_unit(info, header) else { continue };
            let mut entries = parsed.entries();
            let Ok(Some(root)) = entries.next_dfs() else { continue };
            let Some(mut ranges) = read_ranges(info, &parsed, root) else { continue };
            while let Ok(Some(range)) = ranges.next() {
                budget.spend(1)?;
                if is_code(&range) && self.ranges.len() < MAX_RANGES {
                    self.ranges.push(UnitRange { begin: range.begin, end: range.end, unit });
                }
            }
        }
        Some(())
    }

    /// Returns the units that cover an address.
    pub(super) fn find(&self, address: u64) -> impl Iterator<Item = usize> {
        let after = self.ranges.partition_point(|range| range.begin <= address);
        let candidates =
            self.ranges.get(..after).unwrap_or_default().iter().rev().take(MAX_OVERLAPPING_RANGES);
        candidates.filter(move |range| address < range.end).map(|range| range.unit)
    }

    /// Opens a unit by its number; also returns its start.
    pub(super) fn open<'a>(&self, info: &Info<'a>, unit: usize) -> Option<(Unit<'a>, usize)> {
        let start = *self.starts.get(unit)?;
        let header = info.unit_header(DebugInfoOffset(start)).ok()?;
        Some((open_bounded_unit(info, header)?, start))
    }

    /// Returns the number of the unit that contains an offset.
    pub(super) fn find_by_offset(&self, offset: usize) -> Option<usize> {
        self.starts.partition_point(|start| *start <= offset).checked_sub(1)
    }
}

/// Opens a unit, unless it would take too much memory.
fn open_bounded_unit<'a>(info: &Info<'a>, header: UnitHeader<Slice<'a>>) -> Option<Unit<'a>> {
    let abbreviations_at = header.debug_abbrev_offset();
    let end = abbreviations_at.0.saturating_add(MAX_ABBREVIATION_BYTES);
    let abbreviations = info.debug_abbrev.reader().slice();
    let abbreviations = abbreviations.get(..end.min(abbreviations.len()))?;
    let abbreviations = DebugAbbrev::from(Slice::new(abbreviations, info.debug_abbrev.reader().endian()));
    let abbreviations = abbreviations.abbreviations(abbreviations_at).ok()?;
    let mut entries = header.entries(&abbreviations);
    let root = entries.next_dfs().ok()??;
    if let Some(AttributeValue::DebugLineRef(at)) = root.attr_value(DW_AT_stmt_list)
        && line_header_bytes(info, at)? > MAX_SOURCE_LIST_BYTES
    {
        return None;
    }
    Unit::new_with_abbreviations(info, header, abbreviations.into()).ok()
}

/// Returns the length of a line program's header, with its folders and files.
fn line_header_bytes(info: &Info<'_>, at: DebugLineOffset) -> Option<usize> {
    let mut input = *info.debug_line.reader();
    input.skip(at.0).ok()?;
    let (_, format) = input.read_initial_length().ok()?;
    let version = input.read_u16().ok()?;
    if version >= 5 {
        // Skips the sizes of addresses and of segments.
        input.skip(2).ok()?;
    }
    input.read_length(format).ok()
}
