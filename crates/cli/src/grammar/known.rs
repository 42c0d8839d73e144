//! Names that manifests give: of providers and of their keywords.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use traceweir::Guid;
use traceweir_decode::source::manifest::WELL_KNOWN_KEYWORDS;
use traceweir_decode::source::read_manifest;

use super::Wanted;
use super::filters::Filters;
use super::mistake::Mistake;
use super::scan::Piece;
use super::spelling::{Bits, Id, Spelled};
use crate::traces::{manifest_files, read_schema_file};

/// Names of one provider that are listed: each of 64 bits, twice.
const MAX_NAMES: usize = 128;

/// What the manifests at hand say about providers.
#[derive(Debug, Default)]
pub(crate) struct Known {
    providers: Vec<Provider>,
}

#[derive(Debug)]
struct Provider {
    id: Guid,
    name: Option<Arc<str>>,
    keywords: Vec<(u64, Arc<str>)>,
}

impl Known {
    /// What these manifests say: XML, PE or ELF files, or folders of them.
    pub(crate) fn load(paths: &[PathBuf]) -> Result<Self> {
        let mut providers = Vec::new();
        for path in paths {
            let is_folder = path.is_dir();
            for file in manifest_files(path)? {
                match read_manifest(&read_schema_file(&file)?) {
                    Ok(read) => {
                        let read = read.into_iter();
                        providers.extend(read.map(|p| Provider {
                            id: p.id,
                            name: p.name,
                            keywords: p.keywords,
                        }));
                    }
                    // A folder may hold binaries without any metadata.
                    Err(_) if is_folder => {}
                    Err(e) => {
                        return Err(e)
                            .with_context(|| format!("cannot use {} as a manifest", file.display()));
                    }
                }
            }
        }
        Ok(Self { providers })
    }

    fn guid_of(&self, name: &str) -> Option<Guid> {
        let is_meant =
            |p: &&Provider| p.name.as_deref().is_some_and(|n| n.to_lowercase() == name.to_lowercase());
        self.providers.iter().find(is_meant).map(|p| p.id)
    }

    fn keywords_of(&self, guid: Guid) -> impl Iterator<Item = (u64, &str)> {
        self.providers.iter().filter(move |p| p.id == guid).flat_map(|p| &p.keywords).map(|(b, n)| (*b, &**n))
    }

    fn bits(&self, guid: Guid, bits: &Bits, text: &str) -> Result<u64, Mistake> {
        bits.names.iter().try_fold(bits.bits, |all, name| Ok(all | self.keyword(guid, name, text)?))
    }

    fn keyword(&self, guid: Guid, name: &Piece, text: &str) -> Result<u64, Mistake> {
        let wanted = without_prefix(&name.text).to_lowercase();
        let common = WELL_KNOWN_KEYWORDS.iter().map(|(name, bits)| (*bits, *name));
        let mut all = self.keywords_of(guid).chain(common);
        let found = all.find(|(_, name)| without_prefix(name).to_lowercase() == wanted);
        found
            .map(|(bits, _)| bits)
            .ok_or_else(|| Mistake::new(text, name.at.clone(), self.unknown(guid, name, text)))
    }

    /// What is said about a keyword that nobody knows.
    fn unknown(&self, guid: Guid, name: &Piece, text: &str) -> String {
        let own = self.keywords_of(guid).map(|(bits, name)| format!("{name} ({bits:#x})"));
        let own: Vec<_> = own.take(MAX_NAMES).collect();
        let own = if own.is_empty() {
            "names of its own come from its manifest (--manifest FILE)".to_owned()
        } else {
            format!("this provider has {}", own.join(", "))
        };
        let is_told = |name: &&str| !name.contains("Reserved") && !name.contains("Any");
        let common: Vec<_> =
            WELL_KNOWN_KEYWORDS.iter().map(|(name, _)| without_prefix(name)).filter(is_told).collect();
        // What was meant may be a name of two words.
        let is_column = text.get(..name.at.start).is_some_and(|before| before.ends_with(char::is_whitespace));
        let hint = if is_column { "; the name of a provider that has blanks stands in quotes" } else { "" };
        format!(
            "there is no keyword {:?}: expected bits (0x10) or a name; {own}; all providers have {}{hint}",
            name.text,
            common.join(", ")
        )
    }
}

/// A name as people know it.
fn without_prefix(name: &str) -> &str {
    name.strip_prefix("win:").unwrap_or(name)
}

impl Spelled {
    /// Looks up the names.
    pub(crate) fn resolve(&self, known: &Known) -> Result<Wanted, Mistake> {
        let (name, guid) = match &self.id {
            Id::Guid(guid) => (None, *guid),
            Id::Hash(name) => (Some(name), Guid::from_provider_name(name)),
            Id::Name(name) => {
                let guid = known.guid_of(name).unwrap_or_else(|| Guid::from_provider_name(name));
                (Some(name), guid)
            }
        };
        let bits =
            |bits: &Option<Bits>| bits.as_ref().map(|bits| known.bits(guid, bits, &self.text)).transpose();
        Ok(Wanted {
            name: name.map_or_else(|| format!("{{{guid}}}"), Clone::clone),
            guid,
            keywords: bits(&self.any)?.unwrap_or(0),
            all: bits(&self.all)?.unwrap_or(0),
            level: self.level.unwrap_or(0),
            property: self.property,
            source: self.source.unwrap_or_default(),
            filters: Filters { stack_keywords: bits(&self.stack_keywords)?, ..self.filters.clone() },
        })
    }
}
