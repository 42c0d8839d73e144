//! A parsed manifest. The generators ([`rust`](crate::rust), [`c`](crate::c)) add the methods that
//! generate code from it.

use std::io::Read;
use std::path::{Path, PathBuf};

use traceweir_decode::source::manifest::{self, ProviderDefinition};
use traceweir_decode::source::{binary, wevt};

use crate::ident;
use crate::{Error, Result};

/// The culture whose texts are used by default.
const DEFAULT_CULTURE: &str = "en-US";

/// The maximum number of bytes read from a file: one more than the manifest parser accepts, so that
/// it rejects a longer file instead of parsing only its start.
const MAX_FILE_BYTES: u64 = (64 << 20) + 1;

/// A manifest without mistakes.
#[derive(Debug)]
pub struct Manifest {
    name: String,
    /// The name of generated files without extension, if the caller set one.
    base_name: Option<String>,
    providers: Vec<ProviderDefinition>,
}

impl Manifest {
    /// Reads a manifest from a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_in(path, DEFAULT_CULTURE)
    }

    /// Reads a manifest from a file, with the texts of a culture such as `de-DE`; missing texts are
    /// taken from other cultures.
    pub fn open_in(path: impl AsRef<Path>, culture: &str) -> Result<Self> {
        let path = path.as_ref();
        let mut bytes = Vec::new();
        let result =
            std::fs::File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
        result.map_err(|source| Error::File { path: path.to_owned(), source })?;
        Self::parse(&path.to_string_lossy(), &bytes, culture)
    }

    /// Parses a manifest. Mistakes are reported under `name`, and the file stem of `name` names the
    /// generated files.
    pub fn parse(name: &str, bytes: &[u8], culture: &str) -> Result<Self> {
        let providers = manifest::read_definitions(bytes, culture)
            .map_err(|mistakes| Error::Manifest { name: name.to_owned(), mistakes })?;
        Ok(Self { name: name.to_owned(), base_name: None, providers })
    }

    /// Sets the name of generated files without extension; by default it is that of the manifest.
    #[must_use]
    pub fn with_base_name(mut self, name: &str) -> Self {
        self.base_name = Some(name.to_owned());
        self
    }

    /// Returns the name of generated files without extension.
    #[must_use]
    pub fn stem(&self) -> String {
        if let Some(name) = &self.base_name {
            return ident::to_c_name(name);
        }
        let stem = Path::new(&self.name).file_stem().unwrap_or_default().to_string_lossy();
        ident::to_c_name(&stem)
    }

    /// Returns the file name of the manifest, for comments.
    pub(crate) fn file_name(&self) -> String {
        Path::new(&self.name).file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Returns the providers that the manifest defines.
    #[must_use]
    pub fn providers(&self) -> &[ProviderDefinition] {
        &self.providers
    }

    /// Returns the decoding resource: the content of section `.etw_manifest` of a program.
    pub fn resource(&self) -> Result<Vec<u8>> {
        let compiled = wevt::compile(&self.providers)
            .map_err(|source| Error::Compile { name: self.name.clone(), source })?;
        Ok(binary::encode_elf_section(&compiled))
    }
}

/// Writes a generated file and returns its path.
pub(crate) fn write_file(path: PathBuf, bytes: &[u8]) -> Result<PathBuf> {
    match std::fs::write(&path, bytes) {
        Ok(()) => Ok(path),
        Err(source) => Err(Error::File { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::COptions;

    #[test]
    fn events_with_long_symbols_stay_distinct() {
        let symbols = ["A", "B"].map(|end| format!("{}{end}", "Symbol".repeat(50)));
        let text = format!(
            r#"<instrumentationManifest xmlns="http://schemas.microsoft.com/win/2004/08/events"><instrumentation><events>
            <provider name="P" guid="{{0b9c8e2a-58f7-5d7c-9b1e-3f3a1c2d4e5f}}" symbol="P_ID" resourceFileName="p" messageFileName="p"><events>
            <event value="1" symbol="{}"/><event value="2" symbol="{}"/>
            </events></provider></events></instrumentation></instrumentationManifest>"#,
            symbols[0], symbols[1]
        );
        let manifest = Manifest::parse("long.man", text.as_bytes(), DEFAULT_CULTURE).unwrap();
        let header = manifest.c_header(&COptions::default());
        for symbol in &symbols {
            let declared = format!("static const EVENT_DESCRIPTOR {symbol} ");
            assert_eq!(header.matches(&declared).count(), 1, "{symbol}");
        }
        let module = manifest.rust_module("long.etw").unwrap();
        let functions: Vec<_> = module.lines().filter(|line| line.contains("fn symbol_symbol")).collect();
        assert!(functions.len() >= 2);
        assert!(functions.iter().all(|line| module.matches(*line).count() == 1), "{functions:?}");
    }
}
