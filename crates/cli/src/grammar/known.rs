//! Names from manifests: of providers, keywords and levels, and the fields of events.

use std::path::PathBuf;

use anyhow::{Context, Result};
use traceweir::Guid;
use traceweir_decode::source::manifest::WELL_KNOWN_KEYWORDS;
use traceweir_decode::source::{EventSchema, ProviderSchemas, read_manifest};
use traceweir_format::spec::system::{SYSTEM_KEYWORDS, SYSTEM_PROVIDERS};

use super::filters::Filters;
use super::mistake::Mistake;
use super::payload;
use super::scan::Piece;
use super::spelling::{Bits, Id, Level, Spelled};
use super::{EnableRequest, Mask, Severity};
use crate::schema_files::{manifest_files, read_schema_file};
use crate::text::EXPECTED_LEVEL;

/// Maximum number of names of one provider to list: each of 64 bits, twice.
const MAX_NAMES: usize = 128;

/// The names that manifests define.
#[derive(Debug, Default)]
pub(crate) struct ManifestNames {
    providers: Vec<ProviderSchemas>,
    /// Names and GUIDs of providers that a session enables: a name keeps the meaning it was enabled
    /// with, also without the manifest.
    pub(crate) enabled: Vec<(String, Guid)>,
}

impl ManifestNames {
    /// Reads these manifests: XML, PE or ELF files, or folders of them.
    pub(crate) fn load(paths: &[PathBuf]) -> Result<Self> {
        let mut providers = Vec::new();
        for path in paths {
            let is_folder = path.is_dir();
            for file in manifest_files(path)? {
                match read_manifest(&read_schema_file(&file)?) {
                    Ok(read) => providers.extend(read),
                    // A folder may contain binaries without any metadata.
                    Err(_) if is_folder => {}
                    Err(e) => {
                        return Err(e)
                            .with_context(|| format!("cannot use {} as a manifest", file.display()));
                    }
                }
            }
        }
        Ok(Self { providers, enabled: Vec::new() })
    }

    /// Returns the GUID of a name: from a manifest, else of what the session enables, else the
    /// hash.
    fn guid_of(&self, name: &str, text: &str) -> Result<Guid, Mistake> {
        let folded = name.to_lowercase();
        let has_name = |p: &&ProviderSchemas| p.name.as_deref().is_some_and(|n| n.to_lowercase() == folded);
        if let Some(found) = self.providers.iter().find(has_name) {
            return Ok(found.id);
        }
        let mut enabled: Vec<Guid> = self
            .enabled
            .iter()
            .filter(|(known, _)| known.to_lowercase() == folded)
            .map(|(_, id)| *id)
            .collect();
        enabled.sort_unstable();
        enabled.dedup();
        match &enabled[..] {
            [] => Ok(system_provider(&folded).unwrap_or_else(|| Guid::from_provider_name(name))),
            [one] => Ok(*one),
            several => {
                let ids: Vec<_> = several.iter().take(MAX_NAMES).map(|id| format!("{{{id}}}")).collect();
                let reason =
                    format!("the session enables several providers of this name: use {}", ids.join(" or "));
                Err(Mistake::new(text, 0..text.len(), reason))
            }
        }
    }

    fn keywords_of(&self, guid: Guid) -> impl Iterator<Item = (u64, &str)> {
        let system = SYSTEM_PROVIDERS.iter().find(|(_, id)| *id == guid).map(|(name, _)| *name);
        let system_keywords = SYSTEM_KEYWORDS.iter().filter(move |keyword| Some(keyword.provider) == system);
        let manifest_keywords =
            self.providers.iter().filter(move |p| p.id == guid).flat_map(ProviderSchemas::keywords);
        manifest_keywords.chain(system_keywords.map(|keyword| (keyword.bit, keyword.name)))
    }

    fn events_of(&self, guid: Guid) -> impl Iterator<Item = &EventSchema> {
        self.providers.iter().filter(move |p| p.id == guid).flat_map(|p| &p.events)
    }

    /// Returns the levels that the provider names itself.
    fn levels_of(&self, guid: Guid) -> impl Iterator<Item = (u8, &str)> {
        let all = self.providers.iter().filter(move |p| p.id == guid).flat_map(ProviderSchemas::levels);
        all.filter_map(|(level, name)| Some((u8::try_from(level).ok()?, name)))
    }

    fn level(&self, guid: Guid, level: &Level, text: &str) -> Result<u8, Mistake> {
        let name = match level {
            Level::Number(number) => return Ok(*number),
            Level::Name(name) => name,
        };
        let has_name = |(_, known): &(u8, &str)| known.to_lowercase() == name.text.to_lowercase();
        if let Some((level, _)) = self.levels_of(guid).find(has_name) {
            return Ok(level);
        }
        let own: Vec<_> =
            self.levels_of(guid).take(MAX_NAMES).map(|(level, name)| format!("{name} ({level})")).collect();
        let own =
            if own.is_empty() { String::new() } else { format!("; this provider has {}", own.join(", ")) };
        let reason = format!("{:?} is not a level: {EXPECTED_LEVEL}{own}", name.text);
        Err(Mistake::new(text, name.at.clone(), reason))
    }

    /// Encodes the payload filter, if there are conditions.
    fn payload(&self, guid: Guid, conditions: &[Piece], text: &str) -> Result<Option<Vec<u8>>, Mistake> {
        if conditions.is_empty() {
            return Ok(None);
        }
        let events: Vec<_> = self.events_of(guid).collect();
        let encoded = payload::encode(&events, conditions.iter().map(|condition| condition.text.as_str()));
        encoded.map(Some).map_err(|(number, reason)| {
            let at = conditions.get(number).map_or(0..text.len(), |condition| condition.at.clone());
            Mistake::new(text, at, reason)
        })
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
            .ok_or_else(|| Mistake::new(text, name.at.clone(), self.unknown_keyword(guid, name, text)))
    }

    /// Returns the message for an unknown keyword.
    fn unknown_keyword(&self, guid: Guid, name: &Piece, text: &str) -> String {
        let own = self.keywords_of(guid).map(|(bits, name)| format!("{name} ({bits:#x})"));
        let own: Vec<_> = own.take(MAX_NAMES).collect();
        let own = if own.is_empty() {
            "its own names need its manifest (--manifest FILE)".to_owned()
        } else {
            format!("this provider has {}", own.join(", "))
        };
        let is_listed = |name: &&str| !name.contains("Reserved") && !name.contains("Any");
        let common: Vec<_> =
            WELL_KNOWN_KEYWORDS.iter().map(|(name, _)| without_prefix(name)).filter(is_listed).collect();
        // The word may be the second part of a name.
        let is_column = text.get(..name.at.start).is_some_and(|before| before.ends_with(char::is_whitespace));
        let hint = if is_column { "; a provider name with blanks must be quoted" } else { "" };
        format!(
            "unknown keyword {:?}: expected bits (0x10) or a name; {own}; all providers have {}{hint}",
            name.text,
            common.join(", ")
        )
    }
}

impl ManifestNames {
    /// Returns the keyword bits of an option for this provider.
    pub(crate) fn mask(&self, guid: Guid, mask: &Mask) -> Result<u64, Mistake> {
        self.bits(guid, &mask.bits, &mask.text)
    }

    /// Returns the level of an option for this provider.
    pub(crate) fn severity(&self, guid: Guid, severity: &Severity) -> Result<u8, Mistake> {
        self.level(guid, &severity.level, &severity.text)
    }
}

/// Returns the system provider of a name in lower case: `systemprocess`, `systemprocessprovider`.
fn system_provider(folded: &str) -> Option<Guid> {
    let name = folded.strip_prefix("system")?;
    let name = name.strip_suffix("provider").unwrap_or(name);
    SYSTEM_PROVIDERS.iter().find(|(known, _)| known.to_lowercase() == name).map(|(_, guid)| *guid)
}

/// Returns a keyword name without the prefix `win:`.
fn without_prefix(name: &str) -> &str {
    name.strip_prefix("win:").unwrap_or(name)
}

impl Spelled {
    /// Resolves the names.
    pub(crate) fn resolve(&self, known: &ManifestNames) -> Result<EnableRequest, Mistake> {
        let (name, guid) = match &self.id {
            Id::Guid(guid) => (None, *guid),
            Id::Hash(name) => (Some(name), Guid::from_provider_name(name)),
            Id::Name(name) => (Some(name), known.guid_of(name, &self.text)?),
        };
        let name = name.or(self.label.as_ref());
        let bits =
            |bits: &Option<Bits>| bits.as_ref().map(|bits| known.bits(guid, bits, &self.text)).transpose();
        let level = |level: &Option<Level>| {
            level.as_ref().map(|level| known.level(guid, level, &self.text)).transpose()
        };
        let mut filters = Filters {
            stack_keywords: bits(&self.stack_keywords)?,
            stack_level: level(&self.stack_level)?,
            ..self.filters.clone()
        };
        if let Some(filter) = known.payload(guid, &self.payloads, &self.text)? {
            filters.payload = filter;
        }
        Ok(EnableRequest {
            name: name.map_or_else(|| format!("{{{guid}}}"), Clone::clone),
            guid,
            keywords: bits(&self.any)?.unwrap_or(0),
            all: bits(&self.all)?.unwrap_or(0),
            level: level(&self.level)?.unwrap_or(0),
            property: self.property,
            source: self.source.unwrap_or_default(),
            filters,
        })
    }
}
