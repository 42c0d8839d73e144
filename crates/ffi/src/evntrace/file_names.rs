//! The log-file names that this process gave to sessions, as it spelled them.
//!
//! Sessions have absolute file names. A program that gave a relative name gets it back as it
//! spelled it. So the name fits even if the program's block of properties has space for exactly
//! this name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use traceweir::controller::Properties;

/// The most names that are stored. A session that ends by itself does not remove its name. Beyond
/// this number, the name of the lowest session id is removed.
const MAX_NAMES: usize = 256;

/// A file name of a session, and how this process spelled it.
struct SpelledName {
    absolute: PathBuf,
    spelled: PathBuf,
}

static NAMES: Mutex<BTreeMap<u64, SpelledName>> = Mutex::new(BTreeMap::new());

fn lock() -> MutexGuard<'static, BTreeMap<u64, SpelledName>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Stores the name that this process gave to the log file of a session.
pub(super) fn store(session: &Properties, spelled: Option<&Path>) {
    let (Some(absolute), Some(spelled)) = (&session.config.log_file, spelled) else { return };
    let mut names = lock();
    if absolute == spelled {
        names.remove(&session.id);
        return;
    }
    names.insert(session.id, SpelledName { absolute: absolute.clone(), spelled: spelled.to_owned() });
    if names.len() > MAX_NAMES {
        names.pop_first();
    }
}

/// Returns the name of a session's log file, as this process spelled it if it gave the name.
pub(super) fn name_for(session: &Properties) -> Option<PathBuf> {
    let absolute = session.config.log_file.as_ref()?;
    let names = lock();
    let name = names.get(&session.id).filter(|name| name.absolute == *absolute);
    Some(name.map_or(absolute, |name| &name.spelled).clone())
}

/// Removes the name of a session that has ended.
pub(super) fn forget(session: &Properties) {
    lock().remove(&session.id);
}
