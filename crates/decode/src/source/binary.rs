//! Reads event metadata from programs: PE files of Windows and ELF files of Linux.
//!
//! ```text
//!   PE   resource directory   type "WEVT_TEMPLATE" ▸ name 1 ▸ any language     compiled manifest
//!                             type 11              ▸ name 1 ▸ English, or any  message table
//!
//!   ELF  section .etw_manifest
//!        CRIM … as long as its size field says │ padding to 4 bytes
//!        │ message table, if there is one │ padding │ CRIM …
//! ```
//!
//! Both hold the same two structures, which [`wevt`](super::wevt) and [`messages`](super::messages)
//! read. The message compiler produces the PE form; language files (`.mui`) use the same resource
//! ids. This project defines the ELF form: the bytes of the two PE resources, one after the other,
//! little-endian on every machine. A message table that begins with a zero is empty, so padding at
//! the end of the section does no harm. If several parts of a program have manifests, the linker
//! concatenates their sections.
//!
//! Files are only read, never loaded or run. The `object` crate reads the containers. Their
//! contents may be hostile, as any input may be.
//!
//! Source: Documented ("PE Format": the .rsrc section), Observed on the CLR's event resources; the
//! section's layout is defined here.

#[cfg(feature = "binaries")]
mod containers;

#[cfg(feature = "binaries")]
pub use containers::load;
#[cfg(feature = "binaries")]
pub(super) use containers::{read_section_providers, unreadable_binary};

/// The ELF section with the compiled manifest and its messages.
pub const ELF_SECTION: &str = ".etw_manifest";

/// The kinds of files that may hold schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProviderFileKind {
    /// A Windows program or library.
    Pe,
    /// A Linux program or library.
    Elf,
    /// Text that may be a manifest.
    Xml,
    /// Any other file.
    Other,
}

/// Guesses the kind of a file from its first bytes.
#[must_use]
pub fn detect_file_kind(bytes: &[u8]) -> ProviderFileKind {
    let without_mark =
        [&b"\xEF\xBB\xBF"[..], b"\xFF\xFE", b"\xFE\xFF"].iter().find_map(|bom| bytes.strip_prefix(*bom));
    // In UTF-16 every second byte of markup is NUL; skipping NULs lets one test serve all three
    // encodings.
    let first_visible =
        without_mark.unwrap_or(bytes).iter().find(|b| !matches!(b, 0 | b' ' | b'\t' | b'\r' | b'\n'));
    match bytes {
        [0x7F, b'E', b'L', b'F', ..] => ProviderFileKind::Elf,
        [b'M', b'Z', ..] => ProviderFileKind::Pe,
        _ if first_visible == Some(&b'<') => ProviderFileKind::Xml,
        _ => ProviderFileKind::Other,
    }
}

#[cfg(not(feature = "binaries"))]
pub use super::absent::identified::load;

/// Returns the content of section [`ELF_SECTION`] for a compiled manifest.
#[cfg(feature = "xml")]
#[must_use]
pub fn encode_elf_section(compiled: &super::wevt::CompiledManifest) -> Vec<u8> {
    let mut section = compiled.template.clone();
    // Pads the template and appends the messages; the empty part only pads the messages.
    for part in [&compiled.messages[..], &[]] {
        section.resize(section.len().next_multiple_of(4), 0);
        section.extend_from_slice(part);
    }
    section
}

#[cfg(test)]
pub(in crate::source) mod tests;
