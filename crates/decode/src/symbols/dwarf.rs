//! Finds inlined functions and lines in DWARF 2 to 5.
//!
//! ```text
//!   address ─▶ units that cover it ─▶ functions of that unit, by depth ──▶ lines
//!              (read once)            depth 0   [──────── main ────────)   main, call at line 12
//!                                     depth 1        [── add ──)           add, line 3 of its file
//! ```
//!
//! `gimli` parses the format. A unit is read when an address is in it, and dropped when all units
//! take too much memory.
//!
//! Invariants:
//! 1. Sections are in memory as given; everything else is derived from them within `Effort` and the
//!    limits below.
//! 2. A unit that is only partly readable counts as what was read, and is not tried again.
//! 3. Names and paths are cut; loops and chains of references are followed for a few steps only.

mod functions;
mod lines;
mod units;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gimli::{AttributeValue, EndianSlice, Reader, RunTimeEndian, Section, SectionId};

use self::functions::Functions;
use self::lines::Lines;
use self::units::Units;
use super::effort::Effort;

/// The most bytes of unit contents that are kept; beyond it, all units are dropped.
const MAX_KEPT: usize = 256 << 20;
/// Steps and time for reading one unit.
const UNIT_STEPS: u64 = 64 << 20;
const UNIT_TIME: Duration = Duration::from_secs(10);
/// The time for all units of a file together.
const FILE_TIME: Duration = Duration::from_secs(60);
/// The most units that may cover one address.
const MAX_CANDIDATES: usize = 8;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Info<'a> = gimli::Dwarf<Slice<'a>>;
type Unit<'a> = gimli::Unit<Slice<'a>>;

/// Returns whether a range has code: linkers set the address of removed code to 0 or 1.
fn is_code(range: &gimli::Range) -> bool {
    range.begin > 1 && range.begin < range.end
}

/// Returns a text of a unit, if it ends within `most` bytes. Text sections may have no terminator,
/// so the search stops there.
fn text<'a>(
    info: &Info<'a>,
    unit: &Unit<'a>,
    value: AttributeValue<Slice<'a>>,
    most: usize,
) -> Option<Slice<'a>> {
    let within = |section: &Slice<'a>, at: usize| {
        let rest = section.slice().get(at..)?;
        let near = rest.get(..rest.len().min(most.saturating_add(1)))?;
        Some(Slice::new(near.get(..memchr::memchr(0, near)?)?, section.endian()))
    };
    match value {
        AttributeValue::String(text) => Some(text).filter(|text| text.len() <= most),
        AttributeValue::DebugStrRef(at) => within(info.debug_str.reader(), at.0),
        AttributeValue::DebugLineStrRef(at) => within(info.debug_line_str.reader(), at.0),
        AttributeValue::DebugStrOffsetsIndex(index) => {
            within(info.debug_str.reader(), info.string_offset(unit, index).ok()?.0)
        }
        _ => None,
    }
}

/// The sections of a file that describe functions and lines.
#[derive(Debug, Default)]
pub struct Sections(Vec<(SectionId, Vec<u8>)>);

impl Sections {
    /// The sections that are read.
    pub const WANTED: [SectionId; 9] = [
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
    pub fn set(&mut self, id: SectionId, bytes: Vec<u8>) {
        self.0.push((id, bytes));
    }

    /// Returns whether any section describes functions.
    #[must_use]
    pub fn has_units(&self) -> bool {
        !self.get(SectionId::DebugInfo).is_empty()
    }

    fn get(&self, id: SectionId) -> &[u8] {
        self.0.iter().find(|(known, _)| *known == id).map_or(&[], |(_, bytes)| bytes)
    }

    fn info(&self, endian: RunTimeEndian) -> Info<'_> {
        let load = |id| Ok::<_, std::convert::Infallible>(EndianSlice::new(self.get(id), endian));
        match gimli::Dwarf::load(load) {
            Ok(info) => info,
            Err(never) => match never {},
        }
    }
}

/// One function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// The demangled name, if there is one.
    pub function: Option<Arc<str>>,
    /// The start of the function's address range that holds the address.
    pub start: u64,
    /// Path of the source file.
    pub file: Option<Arc<str>>,
    /// The line in the source file.
    pub line: Option<u32>,
    /// Whether the function was inlined into the next one.
    pub is_inlined: bool,
}

/// The functions and lines of one unit.
#[derive(Debug, Default)]
struct Contents {
    functions: Functions,
    lines: Lines,
}

impl Contents {
    fn bytes(&self) -> usize {
        self.functions.bytes().saturating_add(self.lines.memory_bytes())
    }
}

/// The functions and lines of a file.
#[derive(Debug)]
pub struct Dwarf {
    sections: Sections,
    endian: RunTimeEndian,
    units: Option<Units>,
    kept: HashMap<usize, Arc<Contents>>,
    kept_bytes: usize,
    spent: Duration,
}

impl Dwarf {
    /// Creates a reader of these sections.
    #[must_use]
    pub fn new(sections: Sections, endian: RunTimeEndian) -> Self {
        Self { sections, endian, units: None, kept: HashMap::new(), kept_bytes: 0, spent: Duration::ZERO }
    }

    /// Returns the functions at an address, the innermost first; empty if there are none. If only
    /// the source line is known, returns one entry without a name.
    pub fn find(&mut self, address: u64) -> Vec<Site> {
        if self.units.is_none() {
            self.units = Some(Units::read(&self.sections.info(self.endian)));
        }
        let candidates: Vec<usize> =
            self.units.iter().flat_map(|units| units.find(address)).take(MAX_CANDIDATES).collect();
        let mut line_only = Vec::new();
        for unit in candidates {
            let contents = self.contents(unit);
            let sites = contents.sites(address);
            if sites.first().is_some_and(|site| site.function.is_some()) {
                return sites;
            }
            if line_only.is_empty() {
                line_only = sites;
            }
        }
        line_only
    }

    fn contents(&mut self, unit: usize) -> Arc<Contents> {
        if let Some(known) = self.kept.get(&unit) {
            return Arc::clone(known);
        }
        let began = Instant::now();
        let read = self.units.as_ref().filter(|_| self.spent < FILE_TIME).and_then(|units| {
            let info = self.sections.info(self.endian);
            let mut effort = Effort::new(UNIT_STEPS, UNIT_TIME);
            let (unit, first) = units.open(&info, unit)?;
            let lines = Lines::read(&info, &unit, &mut effort);
            let functions = Functions::read(&info, (&unit, first), units, &mut effort);
            Some(Contents { functions, lines })
        });
        let contents = Arc::new(read.unwrap_or_default());
        self.spent = self.spent.saturating_add(began.elapsed());
        self.kept_bytes = self.kept_bytes.saturating_add(contents.bytes());
        if self.kept_bytes > MAX_KEPT {
            self.kept.clear();
            self.kept_bytes = contents.bytes();
        }
        self.kept.insert(unit, Arc::clone(&contents));
        contents
    }

    /// Returns the memory that this takes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sections.0.iter().fold(self.kept_bytes, |sum, (_, bytes)| sum.saturating_add(bytes.len()))
    }
}

impl Contents {
    fn sites(&self, address: u64) -> Vec<Site> {
        let mut position = self.lines.find(address);
        let mut sites = Vec::new();
        for (depth, (function, start)) in self.functions.find(address).into_iter().enumerate().rev() {
            let (file, line) = position;
            sites.push(Site { function: function.name.clone(), start, file, line, is_inlined: depth > 0 });
            position = (self.lines.file(function.call_file), function.call_line);
        }
        if sites.is_empty() && position.0.is_some() {
            let (file, line) = position;
            sites.push(Site { function: None, start: address, file, line, is_inlined: false });
        }
        sites
    }
}

#[cfg(test)]
mod tests;
