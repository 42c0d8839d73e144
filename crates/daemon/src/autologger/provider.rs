//! The enable of one provider by an autologger: a section of its definition file.

use traceweir_format::Guid;
use traceweir_format::spec::enable::EVENT_FILTER_TYPE_NONE;
use traceweir_transport::message::{EnableParams, Filter, MAX_FILTERS, MAX_PROVIDER_NAME_UNITS};

use super::filters;
use crate::conf::{ConfEntry, ConfSection, ConfigError};

/// Describes a value that could not be used, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correction(pub String);

/// The enable of a provider by an autologger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AutologgerProvider {
    /// The section heading: GUID or name.
    pub heading: String,
    /// The provider's GUID, or the hash of its name.
    pub guid: Guid,
    /// Whether the provider is enabled (Enabled).
    pub enabled: bool,
    /// The highest level; 0: all (EnableLevel).
    pub level: u32,
    /// The `EVENT_ENABLE_PROPERTY_…` bits (EnableProperty).
    pub property: u32,
    /// Any of these keyword bits; 0: those of `flags`, or all (MatchAnyKeyword).
    pub match_any: u64,
    /// All of these keyword bits; unused if `match_any` selects all (MatchAllKeyword).
    pub match_all: u64,
    /// The flags of a classic provider, used if `match_any` is 0 (EnableFlags).
    pub flags: u32,
    /// Filters of events, stacks and processes.
    pub filters: Vec<Filter>,
}

impl AutologgerProvider {
    /// Creates an enable of all events of the provider with this name or GUID.
    pub fn new(heading: &str) -> Result<Self, String> {
        let guid = parse_guid_or_name(heading)?;
        Ok(Self {
            heading: heading.to_owned(),
            guid,
            enabled: true,
            level: 0,
            property: 0,
            match_any: 0,
            match_all: 0,
            flags: 0,
            filters: Vec::new(),
        })
    }

    /// Takes over the parameters of an enable call, except its source; fails for a filter that a
    /// file cannot hold.
    pub fn with_params(self, params: &EnableParams) -> Result<Self, String> {
        let (level, property) = (u32::from(params.level), params.property);
        let filters = params.filters.clone();
        if let Some(filter) = filters.iter().find(|filter| filters::format_filter(filter).is_none()) {
            return Err(format!("an autologger cannot have a filter of type {:#x}", filter.kind));
        }
        Ok(Self {
            level,
            property,
            match_any: params.match_any,
            match_all: params.match_all,
            filters,
            ..self
        })
    }

    pub(super) fn parse_section(section: &ConfSection) -> Result<Self, ConfigError> {
        let mut provider =
            Self::new(&section.heading).map_err(|reason| ConfigError::new(section.line, reason))?;
        provider.enabled = false;
        for entry in &section.entries {
            provider.set(entry)?;
        }
        if provider.filters.len() > MAX_FILTERS {
            return Err(ConfigError::new(
                section.line,
                format!("a provider has at most {MAX_FILTERS} filters"),
            ));
        }
        Ok(provider)
    }

    fn set(&mut self, entry: &ConfEntry) -> Result<(), ConfigError> {
        match entry.name.as_str() {
            "Enabled" => self.enabled = entry.as_number(1)? == 1,
            "EnableLevel" => self.level = entry.as_u32()?,
            "EnableProperty" => self.property = entry.as_u32()?,
            "MatchAnyKeyword" => self.match_any = entry.as_number(u64::MAX)?,
            "MatchAllKeyword" => self.match_all = entry.as_number(u64::MAX)?,
            "EnableFlags" => self.flags = entry.as_u32()?,
            "Status" => drop(entry.as_u32()?),
            other => {
                let Some(filter) = filters::parse_filter(entry)? else {
                    return Err(entry.error(format!("{other} is not a value of a provider")));
                };
                if self.filters.iter().any(|existing| existing.kind == filter.kind) {
                    return Err(entry.error(format!("{other} contradicts another filter of its kind")));
                }
                self.filters.push(filter);
            }
        }
        Ok(())
    }

    pub(super) fn to_lines(&self) -> Vec<String> {
        let mut lines = vec![format!("[{}]", self.heading), format!("Enabled = {}", u8::from(self.enabled))];
        if self.level != 0 {
            lines.push(format!("EnableLevel = {}", self.level));
        }
        for (name, value) in [
            ("MatchAnyKeyword", self.match_any),
            ("MatchAllKeyword", self.match_all),
            ("EnableProperty", self.property.into()),
            ("EnableFlags", self.flags.into()),
        ] {
            if value != 0 {
                lines.push(format!("{name} = {value:#x}"));
            }
        }
        lines.extend(self.filters.iter().filter_map(filters::format_filter));
        lines
    }

    pub(super) fn correct(&mut self) -> Option<Correction> {
        let corrected = self.level.min(255);
        let note =
            format!("EnableLevel {} of {} cannot be used: it becomes {corrected}", self.level, self.heading);
        (std::mem::replace(&mut self.level, corrected) != corrected).then_some(Correction(note))
    }

    /// Returns the provider name; empty if the heading is a GUID, or a name that the protocol
    /// cannot carry.
    #[must_use]
    pub fn name(&self) -> String {
        let is_name = self.heading.parse::<Guid>().is_err()
            && self.heading.encode_utf16().count() <= MAX_PROVIDER_NAME_UNITS
            && !self.heading.contains(char::is_control);
        if is_name { self.heading.clone() } else { String::new() }
    }

    /// Returns the parameters of the enable call. Without a keyword mask, the flags of a classic
    /// provider are the low keywords.
    #[must_use]
    pub fn params(&self) -> EnableParams {
        let match_any = if self.match_any == 0 { self.flags.into() } else { self.match_any };
        EnableParams {
            level: u8::try_from(self.level).unwrap_or(u8::MAX),
            match_any,
            // Unlike in an enable call, the mask is documented as unused if all keywords are
            // selected.
            match_all: if match_any == 0 { 0 } else { self.match_all },
            property: self.property,
            source: Guid::NULL,
            filters: self
                .filters
                .iter()
                .filter(|filter| filter.kind != EVENT_FILTER_TYPE_NONE)
                .cloned()
                .collect(),
        }
    }
}

/// Returns the GUID itself, or the hash of a name as EventSource and TraceLogging compute it.
fn parse_guid_or_name(heading: &str) -> Result<Guid, String> {
    if let Ok(guid) = heading.parse::<Guid>() {
        return if guid.is_null() { Err("the null GUID is not a provider".to_owned()) } else { Ok(guid) };
    }
    if heading.is_empty()
        || heading.contains(['{', '}', '*', '?', '[', ']', '"'])
        || heading.chars().any(char::is_control)
    {
        return Err(format!("{heading:?} is neither a GUID nor the name of a provider"));
    }
    Ok(Guid::from_provider_name(heading))
}
