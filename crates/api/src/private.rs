//! Skeleton: sessions inside this process.

use traceweir_format::Guid;
use traceweir_transport::message::{EnableParams, Properties, SessionConfig};

use crate::error::Result;

/// A session in this process: needs no daemon. Finalised by `stop`, on drop, or at the exit of the process.
#[derive(Debug)]
pub struct PrivateSession {
    _private: (),
}

impl PrivateSession {
    /// Starts it; PRIVATE_LOGGER_MODE | PRIVATE_IN_PROC are added to the mode. At most three in a process.
    pub fn start(config: &SessionConfig) -> Result<Self> {
        let _ = config;
        todo!()
    }

    /// Enables a provider of this process, registered or to be registered.
    pub fn enable(&self, provider: Guid, params: &EnableParams) -> Result<()> {
        let _ = (provider, params);
        todo!()
    }

    /// Disables it.
    pub fn disable(&self, provider: Guid) -> Result<()> {
        let _ = provider;
        todo!()
    }

    /// How it is.
    #[must_use]
    pub fn query(&self) -> Properties {
        todo!()
    }

    /// Writes out what is buffered.
    pub fn flush(&self) -> Result<Properties> {
        todo!()
    }

    /// Collects everything and finalises the file.
    pub fn stop(self) -> Result<Properties> {
        todo!()
    }
}
