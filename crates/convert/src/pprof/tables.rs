//! The tables of a profile, each with a limit.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use crate::activity::MappingIndex;

/// The most locations and functions, and the most functions of all locations.
pub(super) const MAX_LOCATIONS: usize = 1 << 19;
pub(super) const MAX_LINES: usize = 1 << 20;
/// The most texts, and their most bytes.
pub(super) const MAX_TEXTS: usize = 1 << 18;
const MAX_TEXT_BYTES: usize = 48 << 20;
/// The number of the empty text, and the ids of the location and the function that stand for others.
/// Those of a trace follow.
pub(super) const EMPTY: u32 = 0;
pub(super) const OTHER_ID: u32 = 1;

/// A function of a location with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LineKey {
    pub(super) name: u32,
    pub(super) file: u32,
    pub(super) line: u32,
}

/// A location: address, file and functions, the innermost first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LocationKey {
    pub(super) address: u64,
    pub(super) mapping: Option<MappingIndex>,
    pub(super) lines: Vec<LineKey>,
}

/// Values of a limited table, each with a number.
#[derive(Debug)]
pub(super) struct Numbered<K> {
    pub(super) numbers: HashMap<K, u32>,
    first: u32,
    max: usize,
}

impl<K: Eq + Hash> Numbered<K> {
    /// Creates an empty table. `first` is the number of the first value.
    pub(super) fn new(first: u32, max: usize) -> Self {
        Self { numbers: HashMap::new(), first, max }
    }

    /// Returns the number of a value; `None` beyond the limit.
    pub(super) fn find_or_add(&mut self, key: K) -> Option<u32> {
        let next = self.first.checked_add(u32::try_from(self.numbers.len()).ok()?)?;
        match self.numbers.get(&key) {
            Some(number) => Some(*number),
            None if self.numbers.len() >= self.max => None,
            None => Some(*self.numbers.entry(key).or_insert(next)),
        }
    }

    /// Returns the values with their numbers, in the order of numbers.
    pub(super) fn take(&mut self) -> Vec<(K, u32)> {
        let mut list: Vec<(K, u32)> = self.numbers.drain().collect();
        list.sort_unstable_by_key(|(_, number)| *number);
        list
    }
}

/// The texts of a profile. Number 0 is the empty text.
#[derive(Debug)]
pub(super) struct TextTable {
    pub(super) numbered: Numbered<Arc<str>>,
    pub(super) bytes: usize,
}

impl TextTable {
    pub(super) fn new() -> Self {
        let mut table = Self { numbered: Numbered::new(EMPTY, MAX_TEXTS), bytes: 0 };
        table.find_or_add(&Arc::from(""));
        table
    }

    /// Returns the number of a text; `None` beyond the limits.
    pub(super) fn find_or_add(&mut self, text: &Arc<str>) -> Option<u32> {
        if let Some(number) = self.numbered.numbers.get(text) {
            return Some(*number);
        }
        let bytes = self.bytes.saturating_add(text.len());
        if bytes > MAX_TEXT_BYTES {
            return None;
        }
        let number = self.numbered.find_or_add(Arc::clone(text))?;
        self.bytes = bytes;
        Some(number)
    }
}

/// Numbers of the texts that do not come from a trace.
#[derive(Debug)]
pub(super) struct OwnTexts {
    pub(super) samples: u32,
    pub(super) count: u32,
    pub(super) cpu: u32,
    pub(super) off_cpu: u32,
    pub(super) nanoseconds: u32,
    pub(super) process: u32,
    pub(super) pid: u32,
    pub(super) thread: u32,
    pub(super) tid: u32,
    pub(super) comment: u32,
    /// The name of a function beyond a limit.
    pub(super) other: u32,
}

impl OwnTexts {
    pub(super) fn new(texts: &mut TextTable) -> Self {
        // The table is empty, so each text has a number.
        let mut add = |text: &str| texts.find_or_add(&Arc::from(text)).unwrap_or(EMPTY);
        Self {
            samples: add("samples"),
            count: add("count"),
            cpu: add("cpu"),
            off_cpu: add("off-cpu"),
            nanoseconds: add("nanoseconds"),
            process: add("process"),
            pid: add("pid"),
            thread: add("thread"),
            tid: add("tid"),
            comment: add(concat!("weir ", env!("CARGO_PKG_VERSION"))),
            other: add("(other)"),
        }
    }
}
