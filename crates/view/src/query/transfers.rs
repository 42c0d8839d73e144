//! The files and connections of transfers, and the events of each.

use std::collections::HashSet;
use std::sync::Arc;

use crate::index::{Index, Transfer};

/// Index of the row of the event in a row of [`Index::transfers`].
const ROW_COLUMN: usize = 6;

/// A file or a connection by its index in the table of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferTarget {
    pub(super) is_connection: bool,
    pub(super) file: u32,
}

impl TransferTarget {
    /// Returns the type of links to the target, which is also the option of the filter.
    pub(super) const fn link_type(self) -> &'static str {
        if self.is_connection { "connection" } else { "file" }
    }

    /// Returns the name of the target; all unknown ones share one.
    pub(super) fn label(self, index: &Index) -> String {
        name_of(index, self.file).map_or_else(|| "(unknown)".to_owned(), |name| name.to_string())
    }
}

pub(super) fn name_of(index: &Index, file: u32) -> Option<Arc<str>> {
    index.files.names.get(file as usize).cloned().flatten()
}

/// Returns the target of a transfer by the values of its row.
fn target_of(values: &[u64]) -> Option<TransferTarget> {
    let &[_, _, _, _, file, transfer, ..] = values else { return None };
    let is_connection = Transfer::from_number(transfer)?.is_network();
    Some(TransferTarget { is_connection, file: u32::try_from(file).unwrap_or(0) })
}

/// Returns the number of the first transfer whose event is not before a row. Transfers are in the
/// order of their events.
fn find_transfer(index: &Index, row: u64) -> u64 {
    let (mut low, mut high) = (0, index.transfers.rows());
    while low < high {
        let middle = low + (high - low) / 2;
        let values = index.transfers.row(middle, &index.store);
        let is_before =
            values.is_some_and(|values| values.get(ROW_COLUMN).is_some_and(|number| *number < row));
        if is_before {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the file or connection of an event; `None` if the event is no transfer.
pub(super) fn find_target(index: &Index, row: u64) -> Option<TransferTarget> {
    let values = index.transfers.row(find_transfer(index, row), &index.store)?;
    target_of(&values).filter(|_| values.get(ROW_COLUMN) == Some(&row))
}

/// The files and connections that a filter accepts, with all of the same names: a file has a key for
/// each time that it was opened.
#[derive(Debug, Default)]
pub(super) struct ChosenTransfers {
    files: HashSet<u32>,
    connections: HashSet<u32>,
}

impl ChosenTransfers {
    pub(super) fn new(targets: &[TransferTarget], index: &Index) -> Self {
        let mut chosen = Self::default();
        for target in targets {
            let name = name_of(index, target.file);
            let same = (0_u32..).zip(&index.files.names).filter(|(_, other)| **other == name);
            let list = if target.is_connection { &mut chosen.connections } else { &mut chosen.files };
            list.insert(target.file);
            list.extend(same.map(|(file, _)| file));
        }
        chosen
    }

    /// Returns the events from `row` to before `end` that are transfers of the chosen files and
    /// connections.
    pub(super) fn find_rows(&self, index: &Index, row: u64, end: u64) -> Vec<u64> {
        let (first, last) = (find_transfer(index, row), find_transfer(index, end));
        let mut rows = Vec::new();
        index.transfers.for_rows(first, last, &index.store, |_, values| {
            let is_chosen = target_of(values).is_some_and(|target| {
                let list = if target.is_connection { &self.connections } else { &self.files };
                list.contains(&target.file)
            });
            rows.extend(values.get(ROW_COLUMN).filter(|number| is_chosen && (row..end).contains(*number)));
            true
        });
        rows
    }
}
