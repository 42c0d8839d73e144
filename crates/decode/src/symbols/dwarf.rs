//! Finds inlined functions and lines in DWARF 2 to 5.
//!
//! ```text
//!   address ─▶ units that cover it ─▶ functions of that unit, by level ──▶ lines
//!              (read once)            level 0   [──────── main ────────)   main, call at line 12
//!                                     level 1        [── add ──)           add, line 3 of its file
//! ```
//!
//! `gimli` parses the format. A unit is read when an address in it is first looked up. When the
//! units together take too much memory, all are dropped.
//!
//! Invariants:
//! 1. Sections are in memory unchanged; everything else is derived from them within `WorkBudget`
//!    and the limits below.
//! 2. A unit that is only partly readable keeps the entries that were read, and is not read again.
//! 3. Overlong names and paths are cut or left out; loops and chains of references are followed for
//!    a few steps only.

mod functions;
mod lines;
mod units;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gimli::{
    AttributeValue, DebuggingInformationEntry, EndianSlice, RangeIter, Reader, RunTimeEndian, Section,
    SectionId,
};

use self::functions::DwarfFunctions;
use self::lines::LineTable;
use self::units::Units;
use super::budget::WorkBudget;

/// The most bytes of unit contents that are kept; beyond this limit, all units are dropped.
const MAX_CACHED_BYTES: usize = 256 << 20;
/// The most steps for reading one unit.
const MAX_UNIT_STEPS: u64 = 64 << 20;
/// The most time for reading one unit.
const MAX_UNIT_TIME: Duration = Duration::from_secs(10);
/// The most time for all units of a file together.
const MAX_FILE_TIME: Duration = Duration::from_secs(60);
/// The most units that are searched for one address.
const MAX_CANDIDATE_UNITS: usize = 8;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Info<'a> = gimli::Dwarf<Slice<'a>>;
type Unit<'a> = gimli::Unit<Slice<'a>>;
type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// Returns whether a range has code: linkers set the address of removed code to 0 or 1.
fn is_code(range: &gimli::Range) -> bool {
    range.begin > 1 && range.begin < range.end
}

/// Returns the address ranges of an entry; `None` if they are damaged.
///
/// `gimli` adds the size of a range to its start without a check, so the check is here. An entry
/// may repeat an attribute, and `gimli` may use any of the values, so the largest ones are checked.
fn read_ranges<'a>(info: &Info<'a>, unit: &Unit<'a>, entry: &Entry<'a>) -> Option<RangeIter<Slice<'a>>> {
    let (mut last_start, mut largest_size) = (0_u64, 0_u64);
    for attribute in entry.attrs() {
        match (attribute.name(), attribute.value()) {
            (gimli::DW_AT_low_pc, start) => {
                last_start = last_start.max(info.attr_address(unit, start).ok()??);
            }
            (gimli::DW_AT_high_pc, AttributeValue::Udata(size)) => largest_size = largest_size.max(size),
            _ => {}
        }
    }
    last_start.checked_add(largest_size)?;
    info.die_ranges(unit, entry).ok()
}

/// Returns a text of a unit, if it ends within `max_bytes` bytes. A section without a terminator is
/// not searched further.
fn read_text<'a>(
    info: &Info<'a>,
    unit: &Unit<'a>,
    value: AttributeValue<Slice<'a>>,
    max_bytes: usize,
) -> Option<Slice<'a>> {
    let read_terminated = |section: &Slice<'a>, at: usize| {
        let tail = section.slice().get(at..)?;
        let bytes = tail.get(..tail.len().min(max_bytes.saturating_add(1)))?;
        Some(Slice::new(bytes.get(..memchr::memchr(0, bytes)?)?, section.endian()))
    };
    match value {
        AttributeValue::String(text) => Some(text).filter(|text| text.len() <= max_bytes),
        AttributeValue::DebugStrRef(at) => read_terminated(info.debug_str.reader(), at.0),
        AttributeValue::DebugLineStrRef(at) => read_terminated(info.debug_line_str.reader(), at.0),
        AttributeValue::DebugStrOffsetsIndex(index) => {
            read_terminated(info.debug_str.reader(), info.string_offset(unit, index).ok()?.0)
        }
        _ => None,
    }
}

/// The sections of a file that describe functions and lines.
#[derive(Debug, Default)]
pub struct Sections(Vec<(SectionId, Vec<u8>)>);

impl Sections {
    /// The sections that are read.
    pub const IDS: [SectionId; 9] = [
        SectionId::DebugInfo,
        SectionId::DebugAbbrev,
        SectionId::DebugLine,
        SectionId::DebugStr,
        SectionId::DebugLineStr,
        SectionId::DebugStrOffsets,
        SectionId::DebugAddr,
        SectionId::DebugRanges,
        SectionId::DebugRngLists,
    ];

    /// Adds a section.
    pub fn add(&mut self, id: SectionId, bytes: Vec<u8>) {
        self.0.push((id, bytes));
    }

    /// Returns whether any section describes functions.
    #[must_use]
    pub fn has_units(&self) -> bool {
        !self.get(SectionId::DebugInfo).is_empty()
    }

    fn get(&self, id: SectionId) -> &[u8] {
        self.0.iter().find(|(section_id, _)| *section_id == id).map_or(&[], |(_, bytes)| bytes)
    }

    fn parse_info(&self, endian: RunTimeEndian) -> Info<'_> {
        let load = |id| Ok::<_, std::convert::Infallible>(EndianSlice::new(self.get(id), endian));
        match gimli::Dwarf::load(load) {
            Ok(info) => info,
            Err(never) => match never {},
        }
    }
}

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionSite {
    /// The demangled name, if there is one.
    pub function: Option<Arc<str>>,
    /// The start of the function's address range that holds the address; the address itself if only
    /// the line is known.
    pub start: u64,
    /// Path of the source file.
    pub file: Option<Arc<str>>,
    /// The line in the source file.
    pub line: Option<u32>,
    /// Whether the function was inlined into the next function of the list.
    pub is_inlined: bool,
}

#[derive(Debug, Default)]
struct UnitContents {
    functions: DwarfFunctions,
    lines: LineTable,
}

impl UnitContents {
    fn memory_bytes(&self) -> usize {
        self.functions.memory_bytes().saturating_add(self.lines.memory_bytes())
    }
}

/// The functions and lines of a file.
#[derive(Debug)]
pub struct Dwarf {
    sections: Sections,
    endian: RunTimeEndian,
    units: Option<Units>,
    cached_units: HashMap<usize, Arc<UnitContents>>,
    cached_bytes: usize,
    spent_time: Duration,
}

impl Dwarf {
    /// Creates a reader of these sections.
    #[must_use]
    pub fn new(sections: Sections, endian: RunTimeEndian) -> Self {
        Self {
            sections,
            endian,
            units: None,
            cached_units: HashMap::new(),
            cached_bytes: 0,
            spent_time: Duration::ZERO,
        }
    }

    /// Returns the functions at an address, the innermost first; empty if there are none. If only
    /// the source line is known, returns one entry without a name.
    pub fn find(&mut self, address: u64) -> Vec<FunctionSite> {
        if self.units.is_none() {
            self.units = Some(Units::read(&self.sections.parse_info(self.endian)));
        }
        let candidates: Vec<usize> =
            self.units.iter().flat_map(|units| units.find(address)).take(MAX_CANDIDATE_UNITS).collect();
        let mut line_only = Vec::new();
        for unit in candidates {
            let contents = self.unit_contents(unit);
            let sites = contents.sites_at(address);
            if sites.first().is_some_and(|site| site.function.is_some()) {
                return sites;
            }
            if line_only.is_empty() {
                line_only = sites;
            }
        }
        line_only
    }

    fn unit_contents(&mut self, unit: usize) -> Arc<UnitContents> {
        if let Some(contents) = self.cached_units.get(&unit) {
            return Arc::clone(contents);
        }
        let start = Instant::now();
        let contents = self.units.as_ref().filter(|_| self.spent_time < MAX_FILE_TIME).and_then(|units| {
            let info = self.sections.parse_info(self.endian);
            let mut budget = WorkBudget::new(MAX_UNIT_STEPS, MAX_UNIT_TIME);
            let (unit, unit_start) = units.open(&info, unit)?;
            let lines = LineTable::read(&info, &unit, &mut budget);
            let functions = DwarfFunctions::read(&info, (&unit, unit_start), units, &mut budget);
            Some(UnitContents { functions, lines })
        });
        let contents = Arc::new(contents.unwrap_or_default());
        self.spent_time = self.spent_time.saturating_add(start.elapsed());
        self.cached_bytes = self.cached_bytes.saturating_add(contents.memory_bytes());
        if self.cached_bytes > MAX_CACHED_BYTES {
            self.cached_units.clear();
            self.cached_bytes = contents.memory_bytes();
        }
        self.cached_units.insert(unit, Arc::clone(&contents));
        contents
    }

    /// Returns the memory that the sections and the units take, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sections.0.iter().fold(self.cached_bytes, |sum, (_, bytes)| sum.saturating_add(bytes.len()))
    }
}

impl UnitContents {
    fn sites_at(&self, address: u64) -> Vec<FunctionSite> {
        let mut position = self.lines.find(address);
        let mut sites = Vec::new();
        for (level, (function, start)) in self.functions.find(address).into_iter().enumerate().rev() {
            let (file, line) = position;
            sites.push(FunctionSite {
                function: function.name.clone(),
                start,
                file,
                line,
                is_inlined: level > 0,
            });
            position = (self.lines.file(function.call_file), function.call_line);
        }
        if sites.is_empty() && position.0.is_some() {
            let (file, line) = position;
            sites.push(FunctionSite { function: None, start: address, file, line, is_inlined: false });
        }
        sites
    }
}

#[cfg(test)]
mod tests;
