//! Modules of a private session's providers (TraceProviderBinaryTracking, the only information
//! class of private sessions).
//!
//! ```text
//!   track_binaries ─▶ registrations that the session has enabled ─┐
//!   enable ─────────▶ registrations of the provider ──────────────┼─▶ a record of the module
//!   register ───────▶ the new registration, if enabled ───────────┘
//! ```
//!
//! For other sessions, a daemon requests the records (`ReportModules`); for a private session, the
//! calling thread writes them. Modules are found without the client's lock: finding one takes the
//! loader's lock, which a library that registers while it is loaded holds already.

use traceweir_format::info::Set;
use traceweir_format::spec::info::InfoClass;
use traceweir_format::spec::status::Status;

use super::PrivateSession;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::process::outlets::SessionOwner;
use crate::registration::Handle;

impl PrivateSession {
    /// Sets whether the session records the modules that contain its providers: those that it has
    /// enabled, and those that it enables later.
    ///
    /// `false` does not remove modules that were already recorded.
    pub fn track_binaries(&self, on: bool) -> Result<()> {
        let client = self.client()?;
        let mut shared = client.lock();
        let open = shared.find_private(self.id)?;
        open.tracks_binaries = on;
        drop(shared);
        if on {
            client.send_modules(self.id, |_| true);
        }
        Ok(())
    }

    /// Sets an information class of the session. Only the class of
    /// [`track_binaries`](Self::track_binaries) is supported; all others fail with
    /// `ERROR_NOT_SUPPORTED`.
    pub fn set_information(&self, set: &Set) -> Result<()> {
        match set {
            Set::ProviderBinaryTracking(on) => self.track_binaries(*on),
            set => Err(unsupported_class_error(set.class())),
        }
    }
}

/// Returns the error for an information class that private sessions do not support.
pub(crate) fn unsupported_class_error(class: InfoClass) -> Error {
    Error::refused(Status::ERROR_NOT_SUPPORTED, format!("{} is not for private sessions", class.name()))
}

impl Client {
    /// Sends a private session the modules of the selected registrations that it has enabled,
    /// except registrations that send their module to all sessions.
    pub(crate) fn send_modules(&self, session: u64, is_selected: impl Fn(&Handle) -> bool) {
        let outlet = self.lock().outlets.find(SessionOwner::Private, session).map(|open| open.outlet);
        let Some(outlet) = outlet else { return };
        let is_missing = |handle: &Handle| {
            !handle.slot().is_module_tracked() && handle.slot().find_enable(outlet).is_some()
        };
        for handle in Handle::iter_current().filter(|handle| is_selected(handle) && is_missing(handle)) {
            let module = handle.find_module();
            // Under the lock the outlet still belongs to the session.
            let mut shared = self.lock();
            if let Some(open) = shared.outlets.find(SessionOwner::Private, session) {
                handle.slot().send_module_to(open.outlet, &module);
            }
        }
    }

    /// Sends the module of a new registration to all private sessions that track binaries and
    /// enable it.
    pub(crate) fn send_module_to_private(&self, handle: Handle) {
        let provider = handle.slot().provider();
        let shared = self.lock();
        let tracking = shared.outlets.sessions.iter().filter(|open| {
            open.tracks_binaries && open.enables.iter().any(|(enabled, _)| *enabled == provider)
        });
        let sessions: Vec<u64> = tracking.map(|open| open.session).collect();
        drop(shared);
        for session in sessions {
            self.send_modules(session, |candidate| candidate.number() == handle.number());
        }
    }
}
