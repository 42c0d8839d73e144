//! The files and connections of an index.

use std::collections::HashMap;
use std::sync::Arc;

/// The most files and connections. Further ones are merged into one without a name.
pub(super) const MAX_FILES: usize = 1 << 17;
const MAX_NAME_CHARS: usize = 400;
/// The memory for all names.
const MAX_TOTAL_NAME_BYTES: usize = 16 << 20;

/// The files and connections of transfers. Keys of files are reused, so a key can stand for several files.
#[derive(Debug)]
pub(crate) struct Files {
    pub(crate) names: Vec<Option<Arc<str>>>,
    by_key: HashMap<u64, u32>,
    connections: HashMap<Arc<str>, u32>,
    name_bytes: usize,
    max_files: usize,
    /// How often a file or connection beyond the limits was named.
    pub(crate) merged: u64,
}

impl Default for Files {
    fn default() -> Self {
        Self::with_limit(MAX_FILES)
    }
}

impl Files {
    /// Creates a table of at most this many files and connections.
    pub(super) fn with_limit(max_files: usize) -> Self {
        Self {
            names: vec![None],
            by_key: HashMap::new(),
            connections: HashMap::new(),
            name_bytes: 0,
            max_files,
            merged: 0,
        }
    }

    /// Returns the file of the first key that is known, and else adds the first key that is not 0.
    pub(super) fn find_or_add(&mut self, keys: [u64; 2]) -> u32 {
        let used = keys.into_iter().filter(|key| *key != 0);
        if let Some(file) = used.clone().find_map(|key| self.by_key.get(&key)) {
            return *file;
        }
        used.clone().next().map_or(0, |key| self.add(key, None))
    }

    fn add(&mut self, key: u64, name: Option<Arc<str>>) -> u32 {
        if self.names.len() >= self.max_files {
            self.merged = self.merged.saturating_add(1);
            return 0;
        }
        let file = u32::try_from(self.names.len()).unwrap_or(0);
        self.names.push(name);
        self.by_key.insert(key, file);
        file
    }

    pub(super) fn find_or_add_connection(&mut self, name: &str) -> u32 {
        if let Some(file) = self.connections.get(name) {
            return *file;
        }
        if self.names.len() >= self.max_files {
            self.merged = self.merged.saturating_add(1);
            return 0;
        }
        let file = u32::try_from(self.names.len()).unwrap_or(0);
        let Some(name) = self.keep_name(name) else { return 0 };
        self.names.push(Some(Arc::clone(&name)));
        self.connections.insert(name, file);
        file
    }

    pub(super) fn set_name(&mut self, key: u64, name: &str) {
        if key == 0 || name.is_empty() {
            return;
        }
        let known = self.by_key.get(&key).copied();
        let known_name = known.and_then(|file| self.names.get(file as usize));
        if known_name.is_some_and(|known| known.as_deref().is_some_and(|known| known == name)) {
            return;
        }
        let is_unnamed = known_name.is_some_and(Option::is_none);
        let Some(name) = self.keep_name(name) else { return };
        match known.and_then(|file| self.names.get_mut(file as usize)).filter(|_| is_unnamed) {
            Some(unnamed) => *unnamed = Some(name),
            None => {
                self.add(key, Some(name));
            }
        }
    }

    /// Forgets what only additions need.
    pub(super) fn end_additions(&mut self) {
        (self.by_key, self.connections) = (HashMap::new(), HashMap::new());
    }

    /// Returns a bounded copy of a name; `None` if all names take too much memory.
    fn keep_name(&mut self, name: &str) -> Option<Arc<str>> {
        let name: Arc<str> = name.chars().take(MAX_NAME_CHARS).collect::<String>().into();
        self.name_bytes = self.name_bytes.saturating_add(name.len());
        let is_kept = self.name_bytes <= MAX_TOTAL_NAME_BYTES;
        self.merged = self.merged.saturating_add((!is_kept).into());
        is_kept.then_some(name)
    }
}

#[cfg(test)]
mod tests;
