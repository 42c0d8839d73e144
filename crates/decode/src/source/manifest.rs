//! Reads instrumentation manifests as XML: files of providers, and the text that EventSource writes
//! into its traces.
//!
//! ```text
//! instrumentationManifest                       (or assembly)
//! ├─ instrumentation / events
//! │  └─ provider  name guid
//! │     ├─ levels     level    name value message         ┐
//! │     ├─ tasks      task     name value message         │ names for the numbers
//! │     │             └─ opcodes / opcode                 │ of a descriptor
//! │     ├─ opcodes    opcode   name value message         │
//! │     ├─ keywords   keyword  name mask message          │
//! │     ├─ channels   channel  chid name value            ┘
//! │     ├─ maps       valueMap, bitMap  name ── map  value message
//! │     ├─ templates  template tid ── data  name inType outType map count length
//! │     │                          └─ struct name count ── data …
//! │     ├─ events     event    value version level opcode task keywords template message
//! │     │                      symbol channel
//! │     └─ filters    filter   name value version tid message
//! └─ localization / resources culture / stringTable / string  id value        for "$(string.id)"
//! ```
//!
//! ```text
//!   bytes ──encoding──▶ text ──reader──▶ raw definitions ──resolve, layout──▶ ProviderSchemas
//! ```
//!
//! Parts may come in any order, so everything is read first and resolved afterwards. Elements and
//! attributes that the picture does not show are ignored, except `importChannel`, which is read
//! like `channel`. Elements of foreign namespaces are ignored, too.
//!
//! Invariants, because the input may be hostile:
//! - Memory and time are bounded: the size of the input, its nesting, attributes and number of
//!   definitions are limited. So are the copies of one definition (a template in many events, a
//!   text in many maps).
//! - Document type declarations and entities beyond the five predefined ones are errors; nothing
//!   outside the text is opened.
//! - A name that is used and not defined is an error with its offset, except a map (the number is
//!   shown), a text (left out) and an out type (the default is used).
//!
//! [`read_definitions`] reads manifests for a compiler, which needs more and tolerates less. Not
//! supported: message files (`$(mc.…)` resolves to nothing), pattern maps, the XML shape of
//! `UserData`.
//!
//! Source: Documented ("EventManifest Schema"). Source of the text of EventSource: Observed in
//! traces of .NET Framework programs.

mod definitions;
mod encoding;
mod layout;
mod raw;
mod reader;
mod resolve;
mod rules;
mod short;
mod tag;
#[cfg(test)]
mod tests;
mod winmeta;

pub use self::definitions::{
    EventDefinition, ManifestMistake, MapDefinition, NameDefinition, ProviderDefinition, read_definitions,
};
use self::encoding::{Document, as_offset};
pub(crate) use self::short::parse_short_schemas;
use super::provider::ProviderSchemas;
use crate::{Error, Result};

/// Keywords that every provider has without declaring them, with their bits.
pub const WELL_KNOWN_KEYWORDS: &[(&str, u64)] = winmeta::KEYWORDS;

/// The size limit of a manifest, in bytes. A manifest of 187 events has 170 KiB.
const MAX_MANIFEST_BYTES: usize = 64 << 20;

/// Maximum length of an error's reason in characters. The reason may quote the manifest.
const MAX_REASON_CHARS: usize = 200;

/// Reads a manifest: one entry for each provider, in the order of the text.
///
/// The bytes are UTF-8 or UTF-16 with or without byte order mark, or in the encoding that the XML
/// declaration names. Errors have the byte offset of the faulty element.
///
/// ```
/// let manifest = br#"
///   <instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events">
///     <instrumentation><events>
///       <provider name="Example" guid="{b3864c38-4273-58c5-545b-8b3608343471}">
///         <events><event value="7" symbol="Ready" level="win:Verbose"/></events>
///       </provider>
///     </events></instrumentation>
///   </instrumentationManifest>"#;
/// let providers = traceweir_decode::source::manifest::parse(manifest)?;
/// let event = &providers[0].events[0];
/// assert_eq!((event.descriptor.id, event.descriptor.level), (7, 5));
/// assert_eq!(event.schema.names.level.as_deref(), Some("Verbose"));
/// # Ok::<(), traceweir_decode::Error>(())
/// ```
pub fn parse(xml: &[u8]) -> Result<Vec<ProviderSchemas>> {
    if xml.len() > MAX_MANIFEST_BYTES {
        return Err(manifest_error(as_offset(MAX_MANIFEST_BYTES), "the manifest is larger than 64 MiB"));
    }
    let document = Document::decode(xml)?;
    let providers =
        reader::read(&document.text).and_then(|manifest| resolve::resolve_providers(&manifest, xml.len()));
    providers.map_err(|error| match error {
        Error::Xml { offset, reason } => Error::Xml { offset: document.source_offset(offset), reason },
        other => other,
    })
}

/// Creates the error of a manifest, with the reason cut to a readable length.
fn manifest_error(offset: u64, reason: impl AsRef<str>) -> Error {
    let reason = reason.as_ref();
    let shortened = reason.char_indices().nth(MAX_REASON_CHARS).and_then(|(end, _)| reason.get(..end));
    Error::Xml { offset, reason: shortened.map_or_else(|| reason.to_owned(), |start| format!("{start}…")) }
}
