//! Names from manifests: of providers, keywords and levels, and the fields of events.

use std::path::PathBuf;

use anyhow::{Context, Result};
use traceweir::Guid;
use traceweir_analysis::schema_files::{list_manifest_files, read_schema_file};
use traceweir_decode::source::manifest::WELL_KNOWN_KEYWORDS;
use traceweir_decode::source::{EventSchema, ProviderSchemas, read_manifest};
use traceweir_format::kernel::providers::kernel_provider_named;
use traceweir_format::spec::system::{SYSTEM_KEYWORDS, SYSTEM_PROVIDERS};

use super::argument_error::ArgumentError;
use super::filters::EnableFilters;
use super::payload;
use super::scan::TextSpan;
use super::spelling::{KeywordBits, LevelSpelling, ParsedProvider, ProviderSpelling};
use super::{EnableRequest, KeywordMask, LevelOption};
use crate::text::EXPECTED_LEVEL;

/// Maximum number of names that an error lists: two for each of the 64 keyword bits of a provider.
const MAX_LISTED_NAMES: usize = 128;

/// The names that manifests define.
#[derive(Debug, Default)]
pub(crate) struct ManifestNames {
    providers: Vec<ProviderSchemas>,
    /// Names and GUIDs of the providers that the session enables. With them, a name resolves to the
    /// GUID with which it was enabled, even if the manifest is not given.
    pub(crate) enabled: Vec<(String, Guid)>,
}

impl ManifestNames {
    /// Reads these manifests: XML, PE or ELF files, or folders of them.
    pub(crate) fn load(paths: &[PathBuf]) -> Result<Self> {
        let mut providers = Vec::new();
        for path in paths {
            let is_folder = path.is_dir();
            for file in list_manifest_files(path)? {
                match read_manifest(&read_schema_file(&file)?) {
                    Ok(schemas) => providers.extend(schemas),
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

    /// Returns the GUID of a name: from a manifest, or else that of a provider that the session
    /// enables, or else that of a provider of the kernel, or else the hash of the name.
    fn find_guid(&self, name: &str, text: &str) -> Result<Guid, ArgumentError> {
        let folded = name.to_lowercase();
        let has_name = |p: &&ProviderSchemas| p.name.as_deref().is_some_and(|n| n.to_lowercase() == folded);
        if let Some(provider) = self.providers.iter().find(has_name) {
            return Ok(provider.id);
        }
        let mut enabled: Vec<Guid> = self
            .enabled
            .iter()
            .filter(|(enabled_name, _)| enabled_name.to_lowercase() == folded)
            .map(|(_, id)| *id)
            .collect();
        enabled.sort_unstable();
        enabled.dedup();
        match &enabled[..] {
            [] => {
                let of_kernel = find_system_provider(&folded).or_else(|| kernel_provider_named(name));
                Ok(of_kernel.unwrap_or_else(|| Guid::from_provider_name(name)))
            }
            [guid] => Ok(*guid),
            guids => {
                let ids: Vec<_> = guids.iter().take(MAX_LISTED_NAMES).map(|id| format!("{{{id}}}")).collect();
                let reason =
                    format!("the session enables several providers of this name: use {}", ids.join(" or "));
                Err(ArgumentError::new(text, 0..text.len(), reason))
            }
        }
    }

    fn provider_keywords(&self, guid: Guid) -> impl Iterator<Item = (u64, &str)> {
        let system = SYSTEM_PROVIDERS.iter().find(|(_, id)| *id == guid).map(|(name, _)| *name);
        let system_keywords = SYSTEM_KEYWORDS.iter().filter(move |keyword| Some(keyword.provider) == system);
        let manifest_keywords =
            self.providers.iter().filter(move |p| p.id == guid).flat_map(ProviderSchemas::keywords);
        manifest_keywords.chain(system_keywords.map(|keyword| (keyword.bit, keyword.name)))
    }

    fn provider_events(&self, guid: Guid) -> impl Iterator<Item = &EventSchema> {
        self.providers.iter().filter(move |p| p.id == guid).flat_map(|p| &p.events)
    }

    /// Returns the levels that the provider's manifest defines.
    fn provider_levels(&self, guid: Guid) -> impl Iterator<Item = (u8, &str)> {
        let levels = self.providers.iter().filter(move |p| p.id == guid).flat_map(ProviderSchemas::levels);
        levels.filter_map(|(level, name)| Some((u8::try_from(level).ok()?, name)))
    }

    fn resolve_level(&self, guid: Guid, level: &LevelSpelling, text: &str) -> Result<u8, ArgumentError> {
        let name = match level {
            LevelSpelling::Number(number) => return Ok(*number),
            LevelSpelling::Name(name) => name,
        };
        let has_name = |(_, known): &(u8, &str)| known.to_lowercase() == name.text.to_lowercase();
        if let Some((level, _)) = self.provider_levels(guid).find(has_name) {
            return Ok(level);
        }
        let provider_levels: Vec<_> = self
            .provider_levels(guid)
            .take(MAX_LISTED_NAMES)
            .map(|(level, name)| format!("{name} ({level})"))
            .collect();
        let provider_levels = if provider_levels.is_empty() {
            String::new()
        } else {
            format!("; this provider has {}", provider_levels.join(", "))
        };
        let reason = format!("{:?} is not a level: {EXPECTED_LEVEL}{provider_levels}", name.text);
        Err(ArgumentError::new(text, name.range.clone(), reason))
    }

    /// Encodes the payload filter, if there are conditions.
    fn encode_payload_filter(
        &self,
        guid: Guid,
        conditions: &[TextSpan],
        text: &str,
    ) -> Result<Option<Vec<u8>>, ArgumentError> {
        if conditions.is_empty() {
            return Ok(None);
        }
        let events: Vec<_> = self.provider_events(guid).collect();
        let encoded = payload::encode(&events, conditions.iter().map(|condition| condition.text.as_str()));
        encoded.map(Some).map_err(|(number, reason)| {
            let range = conditions.get(number).map_or(0..text.len(), |condition| condition.range.clone());
            ArgumentError::new(text, range, reason)
        })
    }

    fn resolve_keyword_bits(&self, guid: Guid, bits: &KeywordBits, text: &str) -> Result<u64, ArgumentError> {
        bits.names.iter().try_fold(bits.bits, |all, name| Ok(all | self.find_keyword(guid, name, text)?))
    }

    fn find_keyword(&self, guid: Guid, name: &TextSpan, text: &str) -> Result<u64, ArgumentError> {
        let key = strip_win_prefix(&name.text).to_lowercase();
        let common = WELL_KNOWN_KEYWORDS.iter().map(|(name, bits)| (*bits, *name));
        let mut keywords = self.provider_keywords(guid).chain(common);
        let keyword = keywords.find(|(_, name)| strip_win_prefix(name).to_lowercase() == key);
        keyword.map(|(bits, _)| bits).ok_or_else(|| {
            ArgumentError::new(text, name.range.clone(), self.unknown_keyword_message(guid, name, text))
        })
    }

    fn unknown_keyword_message(&self, guid: Guid, name: &TextSpan, text: &str) -> String {
        let names = self.provider_keywords(guid).map(|(bits, name)| format!("{name} ({bits:#x})"));
        let names: Vec<_> = names.take(MAX_LISTED_NAMES).collect();
        let provider_names = if names.is_empty() {
            "its own names need its manifest (--manifest FILE)".to_owned()
        } else {
            format!("this provider has {}", names.join(", "))
        };
        let is_listed = |name: &&str| !name.contains("Reserved") && !name.contains("Any");
        let common: Vec<_> =
            WELL_KNOWN_KEYWORDS.iter().map(|(name, _)| strip_win_prefix(name)).filter(is_listed).collect();
        // The word may be the second word of a provider name without quotes.
        let is_column =
            text.get(..name.range.start).is_some_and(|before| before.ends_with(char::is_whitespace));
        let hint = if is_column { "; a provider name with blanks must be quoted" } else { "" };
        format!(
            "unknown keyword {:?}: expected bits (0x10) or a name; {provider_names}; all providers have {}{hint}",
            name.text,
            common.join(", ")
        )
    }

    /// Returns the keyword bits of an option for this provider.
    pub(crate) fn resolve_mask(&self, guid: Guid, mask: &KeywordMask) -> Result<u64, ArgumentError> {
        self.resolve_keyword_bits(guid, &mask.bits, &mask.text)
    }

    /// Returns the level of an option for this provider.
    pub(crate) fn resolve_level_option(&self, guid: Guid, option: &LevelOption) -> Result<u8, ArgumentError> {
        self.resolve_level(guid, &option.level, &option.text)
    }
}

/// Returns the system provider of a name in lower case: `systemprocess`, `systemprocessprovider`.
fn find_system_provider(folded: &str) -> Option<Guid> {
    let name = folded.strip_prefix("system")?;
    let name = name.strip_suffix("provider").unwrap_or(name);
    SYSTEM_PROVIDERS.iter().find(|(known, _)| known.to_lowercase() == name).map(|(_, guid)| *guid)
}

/// Returns a keyword name without the prefix `win:`.
fn strip_win_prefix(name: &str) -> &str {
    name.strip_prefix("win:").unwrap_or(name)
}

impl ParsedProvider {
    /// Resolves the names of provider, keywords and levels.
    pub(crate) fn resolve(&self, names: &ManifestNames) -> Result<EnableRequest, ArgumentError> {
        let (name, guid) = match &self.id {
            ProviderSpelling::Guid(guid) => (None, *guid),
            ProviderSpelling::Hash(name) => (Some(name), Guid::from_provider_name(name)),
            ProviderSpelling::Name(name) => (Some(name), names.find_guid(name, &self.text)?),
        };
        let name = name.or(self.label.as_ref());
        let resolve_bits = |bits: &Option<KeywordBits>| {
            bits.as_ref().map(|bits| names.resolve_keyword_bits(guid, bits, &self.text)).transpose()
        };
        let resolve_level = |level: &Option<LevelSpelling>| {
            level.as_ref().map(|level| names.resolve_level(guid, level, &self.text)).transpose()
        };
        let mut filters = EnableFilters {
            stack_keywords: resolve_bits(&self.stack_keywords)?,
            stack_level: resolve_level(&self.stack_level)?,
            ..self.filters.clone()
        };
        if let Some(filter) = names.encode_payload_filter(guid, &self.payloads, &self.text)? {
            filters.payload = filter;
        }
        Ok(EnableRequest {
            name: name.map_or_else(|| format!("{{{guid}}}"), Clone::clone),
            guid,
            keywords: resolve_bits(&self.any)?.unwrap_or(0),
            all_keywords: resolve_bits(&self.all)?.unwrap_or(0),
            level: resolve_level(&self.level)?.unwrap_or(0),
            property: self.property,
            source: self.source.unwrap_or_default(),
            filters,
        })
    }
}
