//! Skeleton: controllers.

use std::path::PathBuf;

use traceweir_format::Guid;
pub use traceweir_transport::message::{
    EnableCode, EnableParams, Filter, LostByCause, Properties, ProviderEntry, SessionConfig, SessionRef, Update,
};
pub use traceweir_transport::runtime::Scope;

use crate::error::Result;

/// A link to one daemon. Every call is one request and its answer.
#[derive(Debug)]
pub struct Controller {
    _private: (),
}

impl Controller {
    /// The daemon of this scope (`None`: the named one, else the system's where permitted, else the user's), if one runs.
    pub fn find(scope: Option<Scope>) -> Result<Option<Self>> {
        let _ = scope;
        todo!()
    }

    /// As [`find`](Self::find), and starts the user's daemon where none runs.
    pub fn find_or_start(scope: Option<Scope>) -> Result<Self> {
        let _ = scope;
        todo!()
    }

    /// Starts a session. The log file is opened here, with the rights of the caller. Relative paths count from the working directory.
    pub fn start(&mut self, config: &SessionConfig) -> Result<Properties> {
        let _ = config;
        todo!()
    }

    /// How a session is.
    pub fn query(&mut self, session: &SessionRef) -> Result<Properties> {
        let _ = session;
        todo!()
    }

    /// All sessions.
    pub fn query_all(&mut self) -> Result<Vec<Properties>> {
        todo!()
    }

    /// Changes a session.
    pub fn update(&mut self, session: &SessionRef, update: &Update) -> Result<Properties> {
        let _ = (session, update);
        todo!()
    }

    /// Writes out what is buffered; a flight recorder writes its snapshot to `file` or its own.
    pub fn flush(&mut self, session: &SessionRef, file: Option<PathBuf>) -> Result<Properties> {
        let _ = (session, file);
        todo!()
    }

    /// Stops a session.
    pub fn stop(&mut self, session: &SessionRef) -> Result<Properties> {
        let _ = session;
        todo!()
    }

    /// Enables, disables or asks a provider for its state; waits for all processes at most `timeout_ms` (0: not at all).
    pub fn enable(
        &mut self,
        session: &SessionRef,
        provider: Guid,
        code: EnableCode,
        params: &EnableParams,
        timeout_ms: u32,
    ) -> Result<()> {
        let _ = (session, provider, code, params, timeout_ms);
        todo!()
    }

    /// All providers that are registered or enabled.
    pub fn providers(&mut self) -> Result<Vec<ProviderEntry>> {
        todo!()
    }
}
