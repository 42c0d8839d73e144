//! Finds the unit that covers an address.

use std::time::Duration;

use gimli::{
    AttributeValue, DW_AT_stmt_list, DebugAbbrev, DebugInfoOffset, DebugLineOffset, Reader, Section,
    UnitHeader,
};

use super::super::effort::Effort;
use super::{Info, Slice, Unit, is_code};

/// The most units of a file; a browser has some ten thousand.
const MAX_UNITS: usize = 1 << 18;
/// The most address ranges of all units.
const MAX_SPANS: usize = 4 << 20;
/// Steps and time for reading all units.
const STEPS: u64 = 64 << 20;
const TIME: Duration = Duration::from_secs(20);
/// The number of steps that a unit costs besides its ranges.
const UNIT_STEPS: usize = 256;
/// The number of ranges before the nearest one that are checked, because ranges of units may
/// overlap.
const LOOK_BACK: usize = 64;

/// The size limit of a unit's abbreviations in bytes: a compiler writes some thousands, which
/// expand to a few hundred times as much.
const MAX_SHAPES: usize = 1 << 20;
/// The size limit of the list of a unit's source files in bytes; each byte may expand to a hundred.
const MAX_SOURCES: usize = 2 << 20;

#[derive(Debug)]
struct Span {
    begin: u64,
    end: u64,
    unit: usize,
}

/// The units of a file.
#[derive(Debug, Default)]
pub(super) struct Units {
    /// Start offsets of the units, ascending.
    starts: Vec<usize>,
    /// Address ranges sorted by start.
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
            // An unreadable unit does not prevent reading the others.
            let Some(parsed) = parse(info, header) else { continue };
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

    /// Returns the units that cover an address.
    pub(super) fn find(&self, address: u64) -> impl Iterator<Item = usize> {
        let after = self.spans.partition_point(|span| span.begin <= address);
        let before = self.spans.get(..after).unwrap_or_default().iter().rev().take(LOOK_BACK);
        before.filter(move |span| address < span.end).map(|span| span.unit)
    }

    /// Opens a unit by its number; also returns its start.
    pub(super) fn open<'a>(&self, info: &Info<'a>, unit: usize) -> Option<(Unit<'a>, usize)> {
        let start = *self.starts.get(unit)?;
        let header = info.unit_header(DebugInfoOffset(start)).ok()?;
        Some((parse(info, header)?, start))
    }

    /// Returns the number of the unit that contains an offset.
    pub(super) fn containing(&self, offset: usize) -> Option<usize> {
        self.starts.partition_point(|start| *start <= offset).checked_sub(1)
    }
}

/// Opens a unit, unless it would take too much memory.
fn parse<'a>(info: &Info<'a>, header: UnitHeader<Slice<'a>>) -> Option<Unit<'a>> {
    let start = header.debug_abbrev_offset();
    let end = start.0.saturating_add(MAX_SHAPES);
    let shapes = info.debug_abbrev.reader().slice();
    let shapes = shapes.get(..end.min(shapes.len()))?;
    let shapes = DebugAbbrev::from(Slice::new(shapes, info.debug_abbrev.reader().endian()));
    let shapes = shapes.abbreviations(start).ok()?;
    let mut entries = header.entries(&shapes);
    let root = entries.next_dfs().ok()??;
    if let Some(AttributeValue::DebugLineRef(at)) = root.attr_value(DW_AT_stmt_list)
        && source_bytes(info, at)? > MAX_SOURCES
    {
        return None;
    }
    Unit::new_with_abbreviations(info, header, shapes.into()).ok()
}

/// Returns the length of a line program's header, with its folders and files.
fn source_bytes(info: &Info<'_>, at: DebugLineOffset) -> Option<usize> {
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
