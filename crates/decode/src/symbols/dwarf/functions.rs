//! Reads the functions of a unit, with the functions that were inlined into them.
//!
//! ```text
//!   subprogram main            ranges ─▶ depth 0       only what has code is kept
//!     lexical block
//!       inlined subroutine     ranges ─▶ depth 1       call_file, call_line: the call in main
//!         origin ─▶ subprogram add, without code ─▶ specification ─▶ its name
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use gimli::{
    AttributeValue, DW_AT_MIPS_linkage_name, DW_AT_abstract_origin, DW_AT_call_file, DW_AT_call_line,
    DW_AT_linkage_name, DW_AT_name, DW_AT_specification, DW_TAG_inlined_subroutine, DW_TAG_subprogram,
    DebugInfoOffset, DebuggingInformationEntry, UnitOffset,
};

use super::super::demangle;
use super::super::effort::Effort;
use super::super::table::MAX_NAME;
use super::units::Units;
use super::{Info, Slice, Unit, is_code, text};

type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// The most functions of a unit.
const MAX_FUNCTIONS: usize = 1 << 20;
/// The most address ranges of all functions.
const MAX_SPANS: usize = 4 << 20;
/// The deepest nesting of inlined functions.
const MAX_DEPTH: usize = 64;
/// The most enclosing functions that are tracked for languages with nested functions.
const MAX_AROUND: usize = 1024;
/// The most references that are followed from a function to the entry with its name.
const MAX_HOPS: usize = 8;
/// The most bytes of names of a unit.
const MAX_NAMES: usize = 64 << 20;
/// The most other units that are kept open while one is read.
const MAX_OTHERS: usize = 8;
/// The number of steps that opening another unit costs.
const OTHER_STEPS: usize = 4096;

/// A function, or one that was inlined into another.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: Option<Arc<str>>,
    /// The file and line of the call, if the function was inlined.
    pub(super) call_file: u64,
    pub(super) call_line: Option<u32>,
}

#[derive(Debug)]
struct Span {
    begin: u64,
    end: u64,
    function: usize,
}

/// The functions of a unit.
#[derive(Debug, Default)]
pub(super) struct Functions {
    all: Vec<Function>,
    /// Address ranges of the functions, by depth and then by start.
    by_depth: Vec<Vec<Span>>,
    spans: usize,
    name_bytes: usize,
}

impl Functions {
    /// Reads a unit, which begins at an offset.
    pub(super) fn read<'a>(
        info: &Info<'a>,
        (unit, start): (&Unit<'a>, usize),
        units: &Units,
        effort: &mut Effort,
    ) -> Self {
        let mut functions = Self::default();
        let names = Names { info, units, known: HashMap::new(), others: Vec::new() };
        let _ = functions.gather((unit, start), names, effort);
        for spans in &mut functions.by_depth {
            spans.sort_by_key(|span| span.begin);
        }
        functions
    }

    fn gather<'a>(
        &mut self,
        (unit, start): (&Unit<'a>, usize),
        mut names: Names<'_, 'a>,
        effort: &mut Effort,
    ) -> Option<()> {
        let mut entries = unit.entries_raw(None).ok()?;
        let mut entry = Entry::null();
        // The enclosing functions of the entry: their depth in the tree, and their inlining level.
        let mut around: Vec<(isize, usize)> = Vec::new();
        while !entries.is_empty() {
            let is_entry = entries.read_entry(&mut entry).ok()?;
            effort.pay(entry.attrs.len().saturating_add(1))?;
            let (depth, is_inlined) = (entry.depth, entry.tag == DW_TAG_inlined_subroutine);
            if !is_entry || !(is_inlined || entry.tag == DW_TAG_subprogram) {
                continue;
            }
            while around.last().is_some_and(|(there, _)| *there >= depth) {
                around.pop();
            }
            let level = match around.last() {
                Some((_, level)) if is_inlined => level.saturating_add(1),
                _ => 0,
            };
            if level >= MAX_DEPTH || around.len() >= MAX_AROUND || self.all.len() >= MAX_FUNCTIONS {
                continue;
            }
            around.push((depth, level));
            if self.add_ranges(names.info, unit, (&entry, level), effort)? {
                // Beyond the limit no name is resolved, because resolved names stay in the cache.
                let has_room = self.name_bytes <= MAX_NAMES;
                let name = if has_room { names.find((unit, start), &entry, effort)? } else { None };
                let bytes = name.as_ref().map_or(0, |name| name.len());
                effort.pay(bytes)?;
                self.name_bytes = self.name_bytes.saturating_add(bytes);
                self.all.push(Function {
                    name,
                    call_file: number(&entry, DW_AT_call_file).unwrap_or(u64::MAX),
                    call_line: number(&entry, DW_AT_call_line).and_then(|line| u32::try_from(line).ok()),
                });
            }
        }
        Some(())
    }

    /// Adds the address ranges of the next function; returns false if it has no code.
    fn add_ranges<'a>(
        &mut self,
        info: &Info<'a>,
        unit: &Unit<'a>,
        (entry, level): (&Entry<'a>, usize),
        effort: &mut Effort,
    ) -> Option<bool> {
        let Ok(mut ranges) = info.die_ranges(unit, entry) else { return Some(false) };
        let (function, mut has_code) = (self.all.len(), false);
        while let Ok(Some(range)) = ranges.next() {
            effort.pay(1)?;
            if !is_code(&range) {
                continue;
            }
            if self.spans >= MAX_SPANS {
                return None;
            }
            if self.by_depth.len() <= level {
                self.by_depth.resize_with(level.saturating_add(1), Vec::new);
            }
            let spans = self.by_depth.get_mut(level)?;
            spans.push(Span { begin: range.begin, end: range.end, function });
            self.spans = self.spans.saturating_add(1);
            has_code = true;
        }
        Some(has_code)
    }

    /// Returns the functions at an address, the outermost first, with the start of the range that
    /// holds the address.
    pub(super) fn find(&self, address: u64) -> Vec<(&Function, u64)> {
        let at_depth = |spans: &Vec<Span>| {
            let after = spans.partition_point(|span| span.begin <= address);
            let span = spans.get(after.checked_sub(1)?).filter(|span| address < span.end)?;
            Some((self.all.get(span.function)?, span.begin))
        };
        self.by_depth.iter().map_while(at_depth).collect()
    }

    pub(super) fn bytes(&self) -> usize {
        let functions = self.all.capacity().saturating_mul(size_of::<Function>());
        let spans = self.spans.saturating_mul(size_of::<Span>()).saturating_mul(2);
        functions.saturating_add(spans).saturating_add(self.name_bytes)
    }
}

fn number(entry: &Entry<'_>, name: gimli::DwAt) -> Option<u64> {
    match entry.attr_value(name)? {
        AttributeValue::FileIndex(index) => Some(index),
        value => value.udata_value(),
    }
}

/// Resolves names of functions, which may be in another entry or another unit.
struct Names<'i, 'a> {
    info: &'i Info<'a>,
    units: &'i Units,
    /// Resolved names by the offset of the entry that has them.
    known: HashMap<usize, Option<Arc<str>>>,
    others: Vec<(usize, Arc<Unit<'a>>)>,
}

/// The result of reading the name of an entry: the name, or the offset of the entry that may have
/// it.
enum NameSource {
    Name(Option<Arc<str>>),
    Entry(usize),
}

impl<'a> Names<'_, 'a> {
    /// Returns the name of an entry of a unit; `None` when the effort is used up.
    fn find(
        &mut self,
        (unit, start): (&Unit<'a>, usize),
        entry: &Entry<'a>,
        effort: &mut Effort,
    ) -> Option<Option<Arc<str>>> {
        let mut source = self.read_name((unit, start), entry);
        let first = match &source {
            NameSource::Name(name) => return Some(name.clone()),
            NameSource::Entry(at) => *at,
        };
        if let Some(known) = self.known.get(&first) {
            return Some(known.clone());
        }
        for _ in 0..MAX_HOPS {
            let NameSource::Entry(at) = source else { break };
            source = self.read_name_at((unit, start), at, effort)?;
        }
        let name = match source {
            NameSource::Name(name) => name,
            NameSource::Entry(_) => None,
        };
        self.known.insert(first, name.clone());
        Some(name)
    }

    fn read_name(&self, (unit, start): (&Unit<'a>, usize), entry: &Entry<'a>) -> NameSource {
        for kind in [DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name] {
            let text = entry.attr_value(kind).and_then(|value| text(self.info, unit, value, MAX_NAME));
            if let Some(text) = text {
                return NameSource::Name(Some(demangle(&text.to_string_lossy()).into()));
            }
        }
        let elsewhere = [DW_AT_abstract_origin, DW_AT_specification].iter().find_map(|kind| {
            match entry.attr_value(*kind)? {
                AttributeValue::UnitRef(UnitOffset(at)) => start.checked_add(at),
                AttributeValue::DebugInfoRef(DebugInfoOffset(at)) => Some(at),
                _ => None,
            }
        });
        elsewhere.map_or(NameSource::Name(None), NameSource::Entry)
    }

    fn read_name_at(
        &mut self,
        (unit, start): (&Unit<'a>, usize),
        at: usize,
        effort: &mut Effort,
    ) -> Option<NameSource> {
        let here = UnitOffset(at.checked_sub(start).unwrap_or(usize::MAX));
        if here.0 != usize::MAX && here.is_in_bounds(&unit.header) {
            let entry = unit.entry(here);
            effort.pay(entry.as_ref().map_or(1, |entry| entry.attrs.len()))?;
            return Some(entry.map_or(NameSource::Name(None), |entry| self.read_name((unit, start), &entry)));
        }
        let Some((other, start)) = self.other(at, effort)? else { return Some(NameSource::Name(None)) };
        let Some(there) = at.checked_sub(start) else { return Some(NameSource::Name(None)) };
        let entry = other.entry(UnitOffset(there));
        effort.pay(entry.as_ref().map_or(1, |entry| entry.attrs.len()))?;
        Some(entry.map_or(NameSource::Name(None), |entry| self.read_name((&other, start), &entry)))
    }

    /// Returns the unit that contains an offset, and the unit's start.
    fn other(&mut self, at: usize, effort: &mut Effort) -> Option<Option<(Arc<Unit<'a>>, usize)>> {
        let Some(number) = self.units.containing(at) else { return Some(None) };
        if let Some((start, unit)) =
            self.others.iter().find(|(start, _)| self.units.containing(*start) == Some(number))
        {
            return Some(Some((Arc::clone(unit), *start)));
        }
        effort.check()?;
        effort.pay(OTHER_STEPS)?;
        let Some((mut unit, start)) = self.units.open(self.info, number) else { return Some(None) };
        // Only names are read from this unit.
        unit.line_program = None;
        let unit = Arc::new(unit);
        if self.others.len() >= MAX_OTHERS {
            self.others.remove(0);
        }
        self.others.push((start, Arc::clone(&unit)));
        Some(Some((unit, start)))
    }
}
