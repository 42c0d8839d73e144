//! Stand-ins for the parsers that a build leaves out: each fails with an error that names the
//! missing feature.

#[cfg(not(feature = "xml"))]
pub(crate) mod manifest {
    use crate::source::ProviderSchemas;
    use crate::{Error, Result};

    pub(crate) fn parse(_xml: &[u8]) -> Result<Vec<ProviderSchemas>> {
        let reason = "this program is built without the feature `xml`".to_owned();
        Err(Error::Xml { offset: 0, reason })
    }

    pub(crate) fn parse_short_schemas(
        _text: &str,
        _provider: traceweir_format::Guid,
    ) -> Result<ProviderSchemas> {
        parse(&[]).map(|_| ProviderSchemas::default())
    }
}

#[cfg(not(feature = "binaries"))]
pub(crate) mod identified {
    use std::io::{Read, Seek};

    use crate::source::ProviderSchemas;
    use crate::{Error, Result};

    /// Fails: the parser of PE and ELF files is not part of this build.
    pub fn load(_bytes: &[u8]) -> Result<Vec<ProviderSchemas>> {
        Err(Error::Binary("this program is built without the feature `binaries`".into()))
    }

    pub(crate) fn load_identified(_file: impl Read + Seek, _build_id: &str) -> Result<Vec<ProviderSchemas>> {
        load(&[])
    }
}

#[cfg(not(feature = "pdb"))]
pub(crate) mod pdb {
    use std::fs::File;

    use crate::source::wpp::ParsedFormats;
    use crate::{Error, Result};

    pub(crate) fn load_file(_file: File) -> Result<ParsedFormats> {
        Err(Error::Binary("this program is built without the feature `pdb`".to_owned()))
    }
}
