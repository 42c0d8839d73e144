//! The functions of stack frames.

use std::collections::HashMap;
use std::sync::Arc;

/// The most functions, and the most bytes of their names.
const MAX_FUNCTIONS: usize = 1 << 18;
const MAX_FUNCTION_BYTES: usize = 32 << 20;

/// Names and modules of functions, each with a number.
#[derive(Default)]
pub(super) struct Functions {
    pub(super) list: Vec<(Arc<str>, Option<Arc<str>>)>,
    pub(super) ids: HashMap<(Arc<str>, Option<Arc<str>>), u32>,
    pub(super) bytes: usize,
}

impl Functions {
    /// Returns the number of a function. Functions beyond the limit have the number 0.
    pub(super) fn find_or_add(&mut self, name: Arc<str>, module: Option<Arc<str>>) -> u32 {
        if self.list.is_empty() {
            self.list.push(("(other)".into(), None));
        }
        let key = (name, module);
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        self.bytes = self.bytes.saturating_add(key.0.len());
        if self.list.len() >= MAX_FUNCTIONS || self.bytes > MAX_FUNCTION_BYTES {
            return 0;
        }
        let id = u32::try_from(self.list.len()).unwrap_or(0);
        self.list.push(key.clone());
        self.ids.insert(key, id);
        id
    }
}
