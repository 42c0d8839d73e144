//! The syntax of providers on the command line.
//!
//! ```text
//!   PROVIDERS =  PROVIDER { ("+" | "," | ";") PROVIDER }
//!   PROVIDER  =  id [ ":" keywords [ ":" level ] ] { "@" option }
//!             |  id blanks keywords [ blanks level [ blanks name ] ] { "@" option }
//!                                the columns of logman; a name may follow only a GUID
//!   id        =  NAME            see below; several words must be quoted or followed by a colon
//!             |  *NAME           only step 4 below
//!             |  PATTERN         all registered names that match: Contoso.*, *.Shop, *
//!             |  {GUID} | GUID | #GUID
//!   keywords  =  term { "|" term } | "(" term { "," term } ")"; empty: all
//!   term      =  0x… | decimal | name of a keyword
//!   level     =  0 to 255, critical, error, warning, info, verbose and short forms
//!             |  name of a level; empty: all
//!   option    =  word [ "=" value ]                                          see `option`
//! ```
//!
//! A NAME stands for the GUID that the first successful step finds:
//!
//! 1. the provider with this name in a given manifest;
//! 2. the provider that the session enables by this name;
//! 3. the system provider or kernel provider with this name;
//! 4. the hash of the name, as EventSource and TraceLogging compute it, and in addition all GUIDs
//!    that are registered under the name.
//!
//! ```text
//!   text ──spelling, option──▶ ParsedProvider ──names in manifests──▶ EnableRequest
//!   EnableRequest ──filters──▶ Enable
//!                 ──print──▶ text that parses to an equal request
//! ```
//!
//! Rules:
//!
//! 1. Between quotes, only these characters are special: the closing quote; a backslash, which
//!    makes the next character an ordinary one; and in a list, commas and semicolons.
//! 2. After an option with numbers, a comma continues the list while numbers follow. After an
//!    option with names, a comma is an error, because it could begin a name or another provider.
//! 3. An error shows its position.

mod argument_error;
mod file;
mod filters;
mod kernel;
mod manifest_names;
mod option;
mod payload;
mod print;
mod provider;
mod scan;
mod spelling;
#[cfg(test)]
mod tests;

use std::path::Path;

use traceweir::session::{Enable, Filter, MAX_PROVIDER_NAME_UNITS, ProviderId};
use traceweir::{EnableProperties, Guid, Keywords, Level, Session};
use traceweir_format::header::Record;
use traceweir_format::kernel::providers::kernel_provider_name;
use traceweir_format::name_pattern;
use traceweir_format::spec::enable::{
    EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0, EVENT_ENABLE_PROPERTY_STACK_TRACE,
};
use traceweir_format::spec::event::ExtType;
use traceweir_format::spec::system::is_system_provider;
use traceweir_format::tracelogging::Traits;

pub(crate) use argument_error::ArgumentError;
pub(crate) use filters::EnableFilters;
pub(crate) use kernel::{
    KernelSelection, StackSelection, default_stacks, describe_absent_groups, event_names, group_names,
    parse_kernel, parse_stacks,
};
pub(crate) use manifest_names::ManifestNames;
pub(crate) use print::quote as quote_provider_text;
pub(crate) use spelling::ParsedProvider;

/// Keywords of a command-line option; names are not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeywordMask {
    text: String,
    bits: spelling::KeywordBits,
}

/// A level of a command-line option; a name is not resolved yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LevelOption {
    text: String,
    level: spelling::LevelSpelling,
}

/// Parses the keywords of an option: bits, names, or both joined by |.
pub(crate) fn parse_keywords(text: &str) -> Result<KeywordMask, String> {
    let bits = spelling::parse_only_keyword_bits(text).map_err(|error| error.to_string())?;
    Ok(KeywordMask { text: text.to_owned(), bits })
}

/// Parses the level of an option: a number, or a name.
pub(crate) fn parse_level_option(text: &str) -> Result<LevelOption, String> {
    let level = spelling::parse_only_level(text).map_err(|error| error.to_string())?;
    Ok(LevelOption { text: text.to_owned(), level })
}

/// The syntax of providers, for help pages.
pub(crate) const PROVIDER_SYNTAX: &str = "\
PROVIDER is NAME[:KEYWORDS[:LEVEL]][@OPTION…]; several are joined by '+', ',' or ';'
  MyCompany.App               by name: from a manifest, else every provider registered under it
  *MyCompany.App              by name, ignoring manifests
  'MyCompany.*', '*'          every registered name that matches, now and later; * : every provider
  {b3864c38-…}, #b3864c38-…   by GUID
  \"My App\", My App:0x10       a name with blanks is quoted, or followed by a colon
  MyCompany.App:0x10          only events with any of these keyword bits; 0 or nothing: all
  MyCompany.App:Net|Disk      keywords by name, with --manifest FILE
  MyCompany.App:0x10:warning  and of this level or more severe: 0 to 255, critical, error, warning,
                              info, verbose, or a name in the manifest
  MyCompany.App@ids=1,2-5     only these events; also not-ids, and names, not-names for TraceLogging
  MyCompany.App@exe=app       only in these programs; also pid, package, app, container
  MyCompany.App@stack         with call stacks; stack-ids, stack-names, stack-level select events
  @sid @tsid @key @start-key @event-key @container      add details of the writer to each event
  @level= @any= @all= @ignore-keyword-0 @group @source=GUID
  MyCompany.App@payload=\"5: Port == 443\"    by field values, with --manifest FILE; the event by
                              id or name; operators: == != < <= > >=, % (is a multiple of), in,
                              contains, not in, not contains; conditions are joined by 'and'
                              or by 'or', not both
  @schematized=ID:HEX         a filter that the provider itself interprets
  @names=\"Start,Stop\"         a list of names is quoted, or the option is repeated";

/// A provider and the parameters to enable it with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EnableRequest {
    /// Name of the provider, or its GUID in braces.
    pub(crate) name: String,
    pub(crate) guid: Guid,
    /// Events with any of these bits; 0 means all.
    pub(crate) keywords: u64,
    /// Events with all of these bits.
    pub(crate) all_keywords: u64,
    /// Highest level; 0 means all.
    pub(crate) level: u8,
    /// The bits `EVENT_ENABLE_PROPERTY_…`.
    pub(crate) property: u32,
    /// The `SourceId` of the enable; null if none.
    pub(crate) source: Guid,
    pub(crate) filters: EnableFilters,
}

impl EnableRequest {
    /// Returns whether events are recorded with call stacks.
    pub(crate) fn has_stacks(&self) -> bool {
        self.property & EVENT_ENABLE_PROPERTY_STACK_TRACE != 0
    }

    /// Returns the name if a daemon can store it; otherwise, and for a provider given by GUID, an
    /// empty text.
    pub(crate) fn storable_name(&self) -> &str {
        let is_name = self.name.parse::<Guid>().is_err()
            && self.name.encode_utf16().count() <= MAX_PROVIDER_NAME_UNITS
            && !self.name.contains(char::is_control);
        if is_name { &self.name } else { "" }
    }

    /// Restricts the request to process trees. A provider of the kernel is left unchanged: a session
    /// restricts its kernel events itself.
    pub(crate) fn set_trees(&mut self, roots: &[u32]) {
        if !self.is_of_kernel() {
            self.filters.trees = roots.to_vec();
        }
    }

    /// Returns whether the provider is a part of the kernel.
    pub(crate) fn is_of_kernel(&self) -> bool {
        is_system_provider(&self.guid) || kernel_provider_name(&self.guid).is_some()
    }

    /// Returns the call that enables the provider in a session. `pids` and the pids of the filters
    /// limit the enable to these processes; without pids, it covers all processes.
    pub(crate) fn build_enable<'s>(&self, session: &'s Session, pids: &[u32]) -> Enable<'s> {
        let provider = ProviderId::from(self.guid).with_name(self.storable_name());
        self.add_parameters(session.enable(provider), pids)
    }

    /// Adds the parameters to a call, limited like [`build_enable`](Self::build_enable).
    pub(crate) fn add_parameters<'s>(&self, call: Enable<'s>, pids: &[u32]) -> Enable<'s> {
        let call = call
            .level(Level::from_int(self.level))
            .keywords(Keywords::new(self.keywords))
            .all_keywords(Keywords::new(self.all_keywords))
            .properties(EnableProperties::new(self.property))
            .source(self.source);
        self.encode_filters(pids).into_iter().fold(call, Enable::filter)
    }

    /// Returns the encoded filters, limited like [`build_enable`](Self::build_enable).
    pub(crate) fn encode_filters(&self, pids: &[u32]) -> Vec<Filter> {
        let mut filters = self.filters.clone();
        filters.pids.extend(pids);
        filters.pids.sort_unstable();
        filters.pids.dedup();
        filters.encode()
    }

    /// Returns whether this request enables an event, as far as the event's data shows.
    pub(crate) fn enables_event(&self, record: &Record<'_>) -> bool {
        let descriptor = record.descriptor();
        let has_level = self.level == 0 || descriptor.level <= self.level;
        let any = if self.keywords == 0 { u64::MAX } else { self.keywords };
        let has_keywords = match descriptor.keyword {
            0 => self.property & EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 == 0,
            bits => bits & any != 0 && bits & self.all_keywords == self.all_keywords,
        };
        let pids = &self.filters.pids;
        let has_process = pids.is_empty() || pids.contains(&record.process_id());
        (record.provider() == self.guid || self.matches_provider_name(record))
            && has_level
            && has_keywords
            && has_process
            && self.enables_event_id(record, descriptor.id)
    }

    /// Returns whether the event's provider has the name of this request. The provider's GUID may
    /// differ from the hash of the name.
    pub(crate) fn matches_provider_name(&self, record: &Record<'_>) -> bool {
        if !self.is_hashed() {
            return false;
        }
        let traits = record.items().data_of(ExtType::PROV_TRAITS);
        let traits = traits.and_then(|traits| Traits::parse(traits).ok());
        let name = traits.and_then(|traits| std::str::from_utf8(traits.name).ok()).unwrap_or_default();
        if self.is_pattern() { name_pattern::is_match(&self.name, name) } else { self.guid.is_hash_of(name) }
    }

    /// Returns whether the request enables all providers whose names match a pattern.
    pub(crate) fn is_pattern(&self) -> bool {
        self.is_hashed() && name_pattern::is_pattern(&self.name)
    }

    /// Returns whether [`enables_event`](Self::enables_event) checks all filters. It does not check
    /// event names, payloads and schematized filters, and events contain no program, package or
    /// container.
    pub(crate) fn can_check_all_filters(&self) -> bool {
        let EnableFilters { names, exes, packages, apps, containers, payload, schematized, .. } =
            &self.filters;
        let is_plain = names.is_none() && payload.is_empty() && schematized.is_empty();
        is_plain && [exes, packages, apps, containers].iter().all(|list| list.is_empty())
    }

    /// Returns whether the filter by event id accepts an event. Event ids do not apply to
    /// TraceLogging events.
    fn enables_event_id(&self, record: &Record<'_>, id: u16) -> bool {
        let is_accepted = |ids: &filters::InclusionList<u16>| ids.list.contains(&id) == ids.includes;
        self.filters.ids.as_ref().is_none_or(is_accepted)
            || record.items().data_of(ExtType::EVENT_SCHEMA_TL).is_some()
    }
}

/// The providers in one argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderList(pub(crate) Vec<ParsedProvider>);

/// Parses providers separated by `+`, `,` or `;`.
pub(crate) fn parse_providers(text: &str) -> Result<ProviderList, String> {
    provider::parse_providers(text).map(ProviderList).map_err(|error| error.to_string())
}

/// Returns the option names of enable properties; bits without a name are left out.
pub(crate) fn property_names(property: u32) -> Vec<&'static str> {
    option::PROPERTY_OPTIONS.iter().filter(|(_, bit)| property & bit != 0).map(|(name, _)| *name).collect()
}

/// Parses one provider, without manifests.
pub(crate) fn parse_provider(text: &str) -> Result<EnableRequest, String> {
    let providers = provider::parse_providers(text).map_err(|error| error.to_string())?;
    let [provider] = &providers[..] else {
        return Err("expected one provider; a name with '+', ',' or ';' must be quoted".to_owned());
    };
    provider.resolve(&ManifestNames::default()).map_err(|error| error.to_string())
}

/// The reason why a provider file cannot be used.
pub(crate) enum ProviderFileError {
    /// The file cannot be read.
    Unreadable(anyhow::Error),
    /// The content has an error.
    Invalid(String),
}

/// Reads the providers of a file, one per line.
pub(crate) fn read_provider_file(
    path: &Path,
    names: &ManifestNames,
) -> Result<Vec<EnableRequest>, ProviderFileError> {
    let mut requests = Vec::new();
    for (number, line) in file::read_lines(path).map_err(ProviderFileError::Unreadable)? {
        let to_error = |error| ProviderFileError::Invalid(format!("{}:{number}: {error}", path.display()));
        for provider in provider::parse_providers(&line).map_err(to_error)? {
            requests.push(provider.resolve(names).map_err(to_error)?);
        }
    }
    if requests.is_empty() {
        return Err(ProviderFileError::Invalid(format!("{} contains no provider", path.display())));
    }
    Ok(requests)
}
