//! Reads the functions of a unit, with the functions that were inlined into them.
//!
//! ```text
//!   subprogram main            ranges ─▶ level 0       only entries with code are kept
//!     lexical block
//!       inlined subroutine     ranges ─▶ level 1       call_file, call_line: the call in main
//!         origin ─▶ subprogram add, without code ─▶ specification ─▶ its name
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{
    AttributeValue, DW_AT_MIPS_linkage_name, DW_AT_abstract_origin, DW_AT_call_file, DW_AT_call_line,
    DW_AT_linkage_name, DW_AT_name, DW_AT_specification, DW_TAG_inlined_subroutine, DW_TAG_subprogram,
    DebugInfoOffset, UnitOffset,
};

use super::super::budget::WorkBudget;
use super::super::demangle;
use super::super::table::MAX_NAME_BYTES;
use super::units::Units;
use super::{Entry, Info, Unit, is_code, read_ranges, read_text};

/// The most functions of a unit.
const MAX_FUNCTIONS: usize = 1 << 20;
/// The most address ranges of all functions of a unit.
const MAX_RANGES: usize = 4 << 20;
/// The deepest nesting of inlined functions.
const MAX_INLINING_LEVELS: usize = 64;
/// The most enclosing functions that are tracked for languages with nested functions.
const MAX_ENCLOSING: usize = 1024;
/// The most references that are followed from a function to the entry with its name.
const MAX_NAME_REFERENCES: usize = 8;
/// The most bytes of names of a unit.
const MAX_UNIT_NAME_BYTES: usize = 64 << 20;
/// The most other units that are kept open while one is read.
const MAX_OPEN_UNITS: usize = 8;
/// The number of steps that opening another unit costs.
const OPEN_UNIT_STEPS: usize = 4096;

/// A function, possibly inlined into another.
#[derive(Debug)]
pub(super) struct DwarfFunction {
    pub(super) name: Option<Arc<str>>,
    /// The number of the file with the call, if the function was inlined; `u64::MAX` if unknown.
    pub(super) call_file: u64,
    /// The line of the call, if the function was inlined.
    pub(super) call_line: Option<u32>,
}

#[derive(Debug)]
struct FunctionRange {
    begin: u64,
    end: u64,
    function: usize,
}

#[derive(Debug, Default)]
pub(super) struct DwarfFunctions {
    functions: Vec<DwarfFunction>,
    /// Address ranges of the functions, by inlining level and then by start.
    by_level: Vec<Vec<FunctionRange>>,
    range_count: usize,
    name_bytes: usize,
}

impl DwarfFunctions {
    /// Reads the functions of a unit that begins at offset `start`.
    pub(super) fn read<'a>(
        info: &Info<'a>,
        (unit, start): (&Unit<'a>, usize),
        units: &Units,
        budget: &mut WorkBudget,
    ) -> Self {
        let mut functions = Self::default();
        let names = NameResolver { info, units, names_by_offset: HashMap::new(), open_units: Vec::new() };
        let _ = functions.read_entries((unit, start), names, budget);
        for ranges in &mut functions.by_level {
            ranges.sort_by_key(|range| range.begin);
        }
        functions
    }

    fn read_entries<'a>(
        &mut self,
        (unit, start): (&Unit<'a>, usize),
        mut names: NameResolver<'_, 'a>,
        budget: &mut WorkBudget,
    ) -> Option<()> {
        let mut entries = unit.entries_raw(None).ok()?;
        let mut entry = Entry::null();
        // The enclosing functions of the entry: their depth in the tree, and their inlining level.
        let mut enclosing: Vec<(isize, usize)> = Vec::new();
        while !entries.is_empty() {
            let is_entry = entries.read_entry(&mut entry).ok()?;
            budget.spend(entry.attrs.len().saturating_add(1))?;
            let (depth, is_inlined) = (entry.depth, entry.tag == DW_TAG_inlined_subroutine);
            if !is_entry || !(is_inlined || entry.tag == DW_TAG_subprogram) {
                continue;
            }
            while enclosing.last().is_some_and(|(enclosing_depth, _)| *enclosing_depth >= depth) {
                enclosing.pop();
            }
            let level = match enclosing.last() {
                Some((_, level)) if is_inlined => level.saturating_add(1),
                _ => 0,
            };
            if level >= MAX_INLINING_LEVELS
                || enclosing.len() >= MAX_ENCLOSING
                || self.functions.len() >= MAX_FUNCTIONS
            {
                continue;
            }
            enclosing.push((depth, level));
            if self.add_ranges(names.info, unit, (&entry, level), budget)? {
                // Beyond the limit no name is resolved, because resolved names stay in the cache.
                let may_resolve = self.name_bytes <= MAX_UNIT_NAME_BYTES;
                let name = if may_resolve { names.find((unit, start), &entry, budget)? } else { None };
                let bytes = name.as_ref().map_or(0, |name| name.len());
                budget.spend(bytes)?;
                self.name_bytes = self.name_bytes.saturating_add(bytes);
                self.functions.push(DwarfFunction {
                    name,
                    call_file: read_number_attribute(&entry, DW_AT_call_file).unwrap_or(u64::MAX),
                    call_line: read_number_attribute(&entry, DW_AT_call_line)
                        .and_then(|line| u32::try_from(line).ok()),
                });
            }
        }
        Some(())
    }

    /// Adds the address ranges of the function that will be added next; returns false if it has no
    /// code, and `None` if a limit is reached.
    fn add_ranges<'a>(
        &mut self,
        info: &Info<'a>,
        unit: &Unit<'a>,
        (entry, level): (&Entry<'a>, usize),
        budget: &mut WorkBudget,
    ) -> Option<bool> {
        let Some(mut ranges) = read_ranges(info, unit, entry) else { return Some(false) };
        let (function, mut has_code) = (self.functions.len(), false);
        while let Ok(Some(range)) = ranges.next() {
            budget.spend(1)?;
            if !is_code(&range) {
                continue;
            }
            if self.range_count >= MAX_RANGES {
                return None;
            }
            if self.by_level.len() <= level {
                self.by_level.resize_with(level.saturating_add(1), Vec::new);
            }
            let level_ranges = self.by_level.get_mut(level)?;
            level_ranges.push(FunctionRange { begin: range.begin, end: range.end, function });
            self.range_count = self.range_count.saturating_add(1);
            has_code = true;
        }
        Some(has_code)
    }

    /// Returns the functions at an address, the outermost first, with the start of the range that
    /// holds the address.
    pub(super) fn find(&self, address: u64) -> Vec<(&DwarfFunction, u64)> {
        let find_in_level = |ranges: &Vec<FunctionRange>| {
            let after = ranges.partition_point(|range| range.begin <= address);
            let range = ranges.get(after.checked_sub(1)?).filter(|range| address < range.end)?;
            Some((self.functions.get(range.function)?, range.begin))
        };
        self.by_level.iter().map_while(find_in_level).collect()
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let functions = self.functions.capacity().saturating_mul(size_of::<DwarfFunction>());
        // A vector may have twice the capacity that it needs.
        let ranges = self.range_count.saturating_mul(size_of::<FunctionRange>()).saturating_mul(2);
        functions.saturating_add(ranges).saturating_add(self.name_bytes)
    }
}

fn read_number_attribute(entry: &Entry<'_>, name: gimli::DwAt) -> Option<u64> {
    match entry.attr_value(name)? {
        AttributeValue::FileIndex(index) => Some(index),
        value => value.udata_value(),
    }
}

/// Resolves names of functions, which may be in another entry or another unit.
struct NameResolver<'i, 'a> {
    info: &'i Info<'a>,
    units: &'i Units,
    /// Resolved names by the offset of the entry that was referred to.
    names_by_offset: HashMap<usize, Option<Arc<str>>>,
    open_units: Vec<(usize, Arc<Unit<'a>>)>,
}

/// The result of reading the name of an entry: the name, or the offset of the entry that may have
/// it.
enum NameSource {
    Name(Option<Arc<str>>),
    Entry(usize),
}

impl<'a> NameResolver<'_, 'a> {
    /// Returns the name of an entry of a unit, if it has one; the outer `None` means that the
    /// budget is used up.
    fn find(
        &mut self,
        (unit, start): (&Unit<'a>, usize),
        entry: &Entry<'a>,
        budget: &mut WorkBudget,
    ) -> Option<Option<Arc<str>>> {
        let mut source = self.read_name((unit, start), entry);
        let first = match &source {
            NameSource::Name(name) => return Some(name.clone()),
            NameSource::Entry(at) => *at,
        };
        if let Some(name) = self.names_by_offset.get(&first) {
            return Some(name.clone());
        }
        for _ in 0..MAX_NAME_REFERENCES {
            let NameSource::Entry(at) = source else { break };
            source = self.read_name_at((unit, start), at, budget)?;
        }
        let name = match source {
            NameSource::Name(name) => name,
            NameSource::Entry(_) => None,
        };
        self.names_by_offset.insert(first, name.clone());
        Some(name)
    }

    fn read_name(&self, (unit, start): (&Unit<'a>, usize), entry: &Entry<'a>) -> NameSource {
        for kind in [DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name] {
            let text =
                entry.attr_value(kind).and_then(|value| read_text(self.info, unit, value, MAX_NAME_BYTES));
            if let Some(text) = text {
                return NameSource::Name(Some(demangle(&text.to_string_lossy()).into()));
            }
        }
        let origin = [DW_AT_abstract_origin, DW_AT_specification].iter().find_map(|kind| {
            match entry.attr_value(*kind)? {
                AttributeValue::UnitRef(UnitOffset(at)) => start.checked_add(at),
                AttributeValue::DebugInfoRef(DebugInfoOffset(at)) => Some(at),
                _ => None,
            }
        });
        origin.map_or(NameSource::Name(None), NameSource::Entry)
    }

    fn read_name_at(
        &mut self,
        (unit, start): (&Unit<'a>, usize),
        at: usize,
        budget: &mut WorkBudget,
    ) -> Option<NameSource> {
        let offset_in_unit = UnitOffset(at.checked_sub(start).unwrap_or(usize::MAX));
        if offset_in_unit.0 != usize::MAX && offset_in_unit.is_in_bounds(&unit.header) {
            let entry = unit.entry(offset_in_unit);
            budget.spend(entry.as_ref().map_or(1, |entry| entry.attrs.len()))?;
            return Some(entry.map_or(NameSource::Name(None), |entry| self.read_name((unit, start), &entry)));
        }
        let Some((other_unit, start)) = self.open_unit_at(at, budget)? else {
            return Some(NameSource::Name(None));
        };
        let Some(offset_in_unit) = at.checked_sub(start) else { return Some(NameSource::Name(None)) };
        let entry = other_unit.entry(UnitOffset(offset_in_unit));
        budget.spend(entry.as_ref().map_or(1, |entry| entry.attrs.len()))?;
        Some(entry.map_or(NameSource::Name(None), |entry| self.read_name((&other_unit, start), &entry)))
    }

    /// Returns the unit that contains an offset, and the unit's start; the outer `None` means that
    /// the budget is used up.
    fn open_unit_at(&mut self, at: usize, budget: &mut WorkBudget) -> Option<Option<(Arc<Unit<'a>>, usize)>> {
        let Some(number) = self.units.find_by_offset(at) else { return Some(None) };
        if let Some((start, unit)) =
            self.open_units.iter().find(|(start, _)| self.units.find_by_offset(*start) == Some(number))
        {
            return Some(Some((Arc::clone(unit), *start)));
        }
        budget.check_time()?;
        budget.spend(OPEN_UNIT_STEPS)?;
        let Some((mut unit, start)) = self.units.open(self.info, number) else { return Some(None) };
        // Only names are read from this unit.
        unit.line_program = None;
        let unit = Arc::new(unit);
        if self.open_units.len() >= MAX_OPEN_UNITS {
            self.open_units.remove(0);
        }
        self.open_units.push((start, Arc::clone(&unit)));
        Some(Some((unit, start)))
    }
}
