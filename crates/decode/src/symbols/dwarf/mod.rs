//! Inlined functions and lines, as compilers describe them (DWARF 2 to 5).
//!
//! ```text
//!   address ──▶ units: which covers it? ──▶ functions of that unit, by depth ──▶ lines
//!               read once for all              depth 0   [──────── main ────────)      main, called inlined functions at line 12
//!                                              depth 1        [── add ──)              add, which stands in line 3 of its file
//! ```
//!
//! The reading of the format is `gimli`'s. Units are looked into when an address lies in them, and forgotten when they take too much memory.
//!
//! Invariants:
//! 1. Sections lie in memory as they were given; everything else is made of them within `Effort` and the bounds below.
//! 2. A unit that cannot be read whole is as good as what was read of it, and is not tried again.
//! 3. Names and paths are cut; neither loops nor chains of references are followed for more than a few steps.

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

/// Memory for what was found in units; past it, they are forgotten.
const MAX_KEPT: usize = 256 << 20;
/// Steps and time for one unit.
const UNIT_STEPS: u64 = 64 << 20;
const UNIT_TIME: Duration = Duration::from_secs(10);
/// Time for all units of a file together.
const FILE_TIME: Duration = Duration::from_secs(60);
/// Units that may cover one address.
const MAX_CANDIDATES: usize = 8;

type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
type Info<'a> = gimli::Dwarf<Slice<'a>>;
type Unit<'a> = gimli::Unit<Slice<'a>>;

/// Whether there is code in a range: linkers leave those at 0 or 1 that they left out of the file.
fn is_code(range: &gimli::Range) -> bool {
    range.begin > 1 && range.begin < range.end
}

/// A text of a unit, if it ends within `most` bytes. Sections of texts may have no end in them: it is not looked for further.
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

/// The sections of a file that tell of functions and lines.
#[derive(Debug, Default)]
pub struct Sections(Vec<(SectionId, Vec<u8>)>);

impl Sections {
    /// Those that are looked at.
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

    /// Takes a section in.
    pub fn set(&mut self, id: SectionId, bytes: Vec<u8>) {
        self.0.push((id, bytes));
    }

    /// Whether there is anything about functions.
    #[must_use]
    pub fn has_units(&self) -> bool {
        !self.get(SectionId::DebugInfo).is_empty()
    }

    fn get(&self, id: SectionId) -> &[u8] {
        self.0.iter().find(|(it, _)| *it == id).map_or(&[], |(_, bytes)| bytes)
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
    /// Its name as people wrote it, where it has one.
    pub function: Option<Arc<str>>,
    /// Where it begins: the part of it that the address lies in.
    pub start: u64,
    /// The source.
    pub file: Option<Arc<str>>,
    /// The line in it.
    pub line: Option<u32>,
    /// Whether it was made part of the next one.
    pub is_inlined: bool,
}

/// What was found in one unit.
#[derive(Debug, Default)]
struct Contents {
    functions: Functions,
    lines: Lines,
}

impl Contents {
    fn bytes(&self) -> usize {
        self.functions.bytes().saturating_add(self.lines.bytes())
    }
}

/// Functions and lines of a file.
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
    /// What the sections tell.
    #[must_use]
    pub fn new(sections: Sections, endian: RunTimeEndian) -> Self {
        Self { sections, endian, units: None, kept: HashMap::new(), kept_bytes: 0, spent: Duration::ZERO }
    }

    /// The functions at an address, the innermost first; empty where none is told. Where a source is told but no function, one without name.
    pub fn find(&mut self, address: u64) -> Vec<Site> {
        if self.units.is_none() {
            self.units = Some(Units::read(&self.sections.info(self.endian)));
        }
        let candidates: Vec<usize> =
            self.units.iter().flat_map(|units| units.at(address)).take(MAX_CANDIDATES).collect();
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

    /// Memory that it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.sections.0.iter().fold(self.kept_bytes, |sum, (_, bytes)| sum.saturating_add(bytes.len()))
    }
}

impl Contents {
    fn sites(&self, address: u64) -> Vec<Site> {
        let mut place = self.lines.at(address);
        let mut sites = Vec::new();
        for (depth, (function, start)) in self.functions.at(address).into_iter().enumerate().rev() {
            let (file, line) = place;
            sites.push(Site { function: function.name.clone(), start, file, line, is_inlined: depth > 0 });
            place = (self.lines.file(function.call_file), function.call_line);
        }
        if sites.is_empty() && place.0.is_some() {
            let (file, line) = place;
            sites.push(Site { function: None, start: address, file, line, is_inlined: false });
        }
        sites
    }
}

#[cfg(test)]
mod tests;
