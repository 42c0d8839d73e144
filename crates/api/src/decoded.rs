//! Decoded events of files and live sessions.
//!
//! ```
//! use traceweir::{Session, Trace};
//!
//! traceweir::define_provider!(SHOP, "Contoso.Shop");
//!
//! # let folder = tempfile::tempdir()?;
//! # let file = folder.path().join("lunch.etl");
//! let session = Session::builder("lunch").log_file(&file).in_process().start()?;
//! session.enable("Contoso.Shop").apply()?;
//! // SAFETY: the provider is a static of the program, which is never unloaded.
//! unsafe { SHOP.register() };
//! traceweir::write_event!(SHOP, "Served", str8("dish", "soup"), u32("guests", &2));
//! session.stop()?;
//!
//! for event in Trace::open(&file)?.decoded() {
//!     let event = event?;
//!     println!("{} {}/{} dish={}", event.time(), event.provider(), event.name(), event.field("dish")?);
//!     assert_eq!(event.name(), "Served");
//!     assert_eq!(event.field("dish")?.as_str(), Some("soup"));
//!     assert_eq!(event.get::<u32>("guests")?, 2);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Self-describing events, kernel events, and events whose schema the trace carries decode without
//! further files; [`Schemas`] adds manifests and message formats for others. An event that cannot be
//! decoded is delivered too: [`DecodedEvent::undecoded`] returns the reason, and
//! [`payload`](DecodedEvent::payload) the bytes.
//!
//! Each decoded event owns its fields. Programs that read millions of events a second use
//! [`consumer::process`](crate::consumer::process), which lends each record.

mod event;
mod read;
mod value;

pub use event::DecodedEvent;
pub use read::Decoded;
pub use value::{Field, Value};

use std::path::Path;

use traceweir_decode::Decoder;

use crate::consumer::Trace;
use crate::error::{Error, Result};

/// Schemas of events that neither describe themselves nor are described by their trace.
///
/// ```no_run
/// use traceweir::Trace;
/// use traceweir::decoded::Schemas;
///
/// let schemas = Schemas::new().manifest("Shop.man")?;
/// for event in Trace::open("shop.etl")?.decoded_with(schemas) {
///     println!("{}", event?.name());
/// }
/// # Ok::<(), traceweir::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Schemas {
    decoder: Decoder,
}

impl Schemas {
    /// Creates an empty collection.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an instrumentation manifest: an XML file, or a PE or ELF file with a compiled one.
    pub fn manifest(mut self, path: impl AsRef<Path>) -> Result<Self> {
        self.decoder.add_manifest(&read_file(path.as_ref())?)?;
        Ok(self)
    }

    /// Adds the message formats of a TMF file, for WPP messages.
    pub fn tmf(mut self, path: impl AsRef<Path>) -> Result<Self> {
        self.decoder.add_tmf(&read_file(path.as_ref())?)?;
        Ok(self)
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

impl Trace {
    /// Returns the events of the trace, decoded, in time order.
    ///
    /// A live session is read until it stops. Events about the trace itself are left out: its
    /// header, and the schemas that it carries.
    #[must_use]
    pub fn decoded(self) -> Decoded {
        self.decoded_with(Schemas::new())
    }

    /// Returns the events of the trace like [`decoded`](Self::decoded), with further schemas.
    #[must_use]
    pub fn decoded_with(self, schemas: Schemas) -> Decoded {
        Decoded::new(vec![self], schemas.decoder)
    }
}

/// Returns the events of several traces, merged in time order.
///
/// If files and live sessions are mixed, the first item is an error.
#[must_use]
pub fn merge(traces: Vec<Trace>, schemas: Schemas) -> Decoded {
    Decoded::new(traces, schemas.decoder)
}
