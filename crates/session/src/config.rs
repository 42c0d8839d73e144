//! Skeleton: validated properties.

use traceweir_transport::message::SessionConfig;

use crate::error::Result;

/// A configuration that was checked and adjusted by the published rules.
#[derive(Clone, Debug)]
pub struct Config(SessionConfig);

impl Config {
    /// Checks flag combinations (in the published order of errors) and adjusts sizes and buffer numbers for so many processors.
    pub fn new(raw: SessionConfig, cpus: u16) -> Result<Self> {
        let _ = cpus;
        Ok(Self(raw))
    }

    /// The adjusted properties.
    #[must_use]
    pub fn properties(&self) -> &SessionConfig {
        &self.0
    }
}
