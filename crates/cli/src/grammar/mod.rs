//! How providers are named on the command line, and what is wanted of them.
//!
//! ```text
//!   PROVIDERS =  PROVIDER { ("+" | "," | ";") PROVIDER }
//!   PROVIDER  =  id [ ":" keywords [ ":" level ] ] { "@" option }
//!             |  id blanks keywords [ blanks level [ blanks name ] ] { "@" option }    the columns of logman; a name behind a GUID only
//!   id        =  NAME            that of a manifest at hand, else that of a provider which the session enables by this name, else the hash of the
//!                                name, as EventSource and TraceLogging make it, and all GUIDs that are registered under the name; of
//!                                several words where a colon follows, or in quotes
//!             |  *NAME           the same without manifests
//!             |  {GUID} | GUID | #GUID
//!   keywords  =  term { "|" term } | "(" term { "," term } ")"; empty: all
//!   term      =  0x… | decimal | name of a keyword
//!   level     =  0 to 255, critical, error, warning, info, verbose and short forms, name of a level; empty: all
//!   option    =  word [ "=" value ]                                          see `option`
//! ```
//!
//! ```text
//!   text ──spelling, option──▶ Spelled ──known: names of manifests──▶ Wanted ──filters──▶ EnableParams
//!                                                                       └──print──▶ text that parses to the same
//! ```
//!
//! 1. Quotes take the meaning from everything between them; behind a backslash the next character is plain. A list in quotes is separated by
//!    commas or semicolons.
//! 2. Behind an option that takes numbers a comma goes on with the list while numbers follow. Behind one that takes names it is an error: it could
//!    mean either, and neither guess would show.
//! 3. A mistake is told with its place.

mod file;
mod filters;
mod kernel;
mod known;
mod mistake;
mod option;
mod payload;
mod print;
mod scan;
mod spelling;
#[cfg(test)]
mod tests;

use std::path::Path;

use traceweir::Guid;
use traceweir::controller::{EnableParams, MAX_PROVIDER_NAME};
use traceweir_format::header::Record;
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0;
use traceweir_format::spec::event::ExtType;
use traceweir_format::tracelogging::Traits;

pub(crate) use filters::Filters;
pub(crate) use kernel::{
    Kernel, Stacks, absent_groups, default_stacks, event_names, group_names, parse_kernel, parse_stacks,
};
pub(crate) use known::Known;
pub(crate) use mistake::Mistake;
pub(crate) use spelling::Spelled;

/// Keyword bits as typed; names are looked up later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask {
    text: String,
    bits: spelling::Bits,
}

/// A level as typed; a name is looked up later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Severity {
    text: String,
    level: spelling::Level,
}

/// Keywords of a flag: bits, names, or both with | between them.
pub(crate) fn parse_keywords(text: &str) -> Result<Mask, String> {
    let bits = spelling::only_bits(text).map_err(|mistake| mistake.to_string())?;
    Ok(Mask { text: text.to_owned(), bits })
}

/// The level of a flag: a number, or a name.
pub(crate) fn parse_severity(text: &str) -> Result<Severity, String> {
    let level = spelling::only_level(text).map_err(|mistake| mistake.to_string())?;
    Ok(Severity { text: text.to_owned(), level })
}

/// The grammar, for help pages.
pub(crate) const GRAMMAR: &str = "\
PROVIDER is NAME[:KEYWORDS[:LEVEL]][@OPTION…]; several are joined by + , or ;
  MyCompany.App               by name: that of a manifest, else all registered under it
  *MyCompany.App              by name without manifests
  {b3864c38-…}, #b3864c38-…   by id
  \"My App\", My App:0x10       a name with blanks stands in quotes, or a colon follows it
  MyCompany.App:0x10          only events with any of these keyword bits; 0 or nothing: all
  MyCompany.App:Net|Disk      keywords by name, with --manifest FILE
  MyCompany.App:0x10:warning  and of this level or more severe: 0 to 255, or critical, error,
                              warning, info, verbose, or as a manifest has it
  MyCompany.App@ids=1,2-5     only these events; not-ids, and names, not-names for TraceLogging
  MyCompany.App@exe=app       only in these programs; pid, package, app, container
  MyCompany.App@stack         with call stacks; stack-ids, stack-names, stack-level choose which
  @sid @tsid @key @start-key @event-key @container      more about who wrote the event
  @level= @any= @all= @ignore-keyword-0 @group @source=GUID
  MyCompany.App@payload=\"5: Port == 443\"    only where the fields say so, with --manifest FILE; the event by id or
                              name, and == != < <= > >= % in contains, not in, not contains, joined by and, or or
  @schematized=ID:HEX         what only the provider itself understands
  @names=\"Start,Stop\"         a list of names stands in quotes, or the option is repeated";

/// A provider and what is wanted of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Its name, or its id in braces.
    pub(crate) name: String,
    pub(crate) guid: Guid,
    /// Any of these bits; 0: all.
    pub(crate) keywords: u64,
    /// All of these bits.
    pub(crate) all: u64,
    /// Highest level; 0: all.
    pub(crate) level: u8,
    /// `EVENT_ENABLE_PROPERTY_…`.
    pub(crate) property: u32,
    /// Who asks; null: nobody in particular.
    pub(crate) source: Guid,
    pub(crate) filters: Filters,
}

impl Wanted {
    /// What it is called, where it has a name that a daemon remembers; empty: it was named by its id.
    pub(crate) fn called(&self) -> &str {
        let is_told = self.name.parse::<Guid>().is_err()
            && self.name.encode_utf16().count() <= MAX_PROVIDER_NAME
            && !self.name.contains(char::is_control);
        if is_told { &self.name } else { "" }
    }

    /// What an enable call is given; only these processes, where any are named here or were typed.
    pub(crate) fn params(&self, pids: &[u32]) -> EnableParams {
        let mut filters = self.filters.clone();
        filters.pids.extend(pids);
        filters.pids.sort_unstable();
        filters.pids.dedup();
        EnableParams {
            level: self.level,
            match_any: self.keywords,
            match_all: self.all,
            property: self.property,
            source: self.source,
            filters: filters.encode(),
        }
    }

    /// Whether an event is one that an enable call like this would have let through, as far as the event itself tells.
    pub(crate) fn covers(&self, record: &Record<'_>) -> bool {
        let d = record.descriptor();
        let level = self.level == 0 || d.level <= self.level;
        let any = if self.keywords == 0 { u64::MAX } else { self.keywords };
        let keywords = match d.keyword {
            0 => self.property & EVENT_ENABLE_PROPERTY_IGNORE_KEYWORD_0 == 0,
            bits => bits & any != 0 && bits & self.all == self.all,
        };
        let pids = &self.filters.pids;
        let process = pids.is_empty() || pids.contains(&record.process_id());
        (record.provider() == self.guid || self.is_name_of(record))
            && level
            && keywords
            && process
            && self.covers_id(record, d.id)
    }

    /// Whether the event's provider has the name that was typed, and perhaps a GUID other than its hash.
    pub(crate) fn is_name_of(&self, record: &Record<'_>) -> bool {
        let traits = record.items().data_of(ExtType::PROV_TRAITS);
        let Some(traits) = traits.filter(|_| self.is_hashed()).and_then(|it| Traits::parse(it).ok()) else {
            return false;
        };
        std::str::from_utf8(traits.name).is_ok_and(|name| self.guid.is_hash_of(name))
    }

    /// Whether [`covers`](Self::covers) can tell: an event does not say which program, package or container it came from.
    pub(crate) fn is_told_by_events(&self) -> bool {
        let Filters { names, exes, packages, apps, containers, payload, schematized, .. } = &self.filters;
        let is_plain = names.is_none() && payload.is_empty() && schematized.is_empty();
        is_plain && [exes, packages, apps, containers].iter().all(|list| list.is_empty())
    }

    /// Ids say nothing about events that describe themselves.
    fn covers_id(&self, record: &Record<'_>, id: u16) -> bool {
        let is_chosen = |ids: &filters::Choice<u16>| ids.list.contains(&id) == ids.is_in;
        self.filters.ids.as_ref().is_none_or(is_chosen)
            || record.items().data_of(ExtType::EVENT_SCHEMA_TL).is_some()
    }
}

/// Providers that one argument names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Several(pub(crate) Vec<Spelled>);

/// Providers as typed, separated by `+`, `,` or `;`.
pub(crate) fn parse_providers(text: &str) -> Result<Several, String> {
    spelling::providers(text).map(Several).map_err(|mistake| mistake.to_string())
}

/// The words for properties of an enable; a bit that has none is left out.
pub(crate) fn property_names(property: u32) -> Vec<&'static str> {
    option::FLAGS.iter().filter(|(_, bit)| property & bit != 0).map(|(name, _)| *name).collect()
}

/// One provider as typed, without the help of manifests.
pub(crate) fn parse_provider(text: &str) -> Result<Wanted, String> {
    let all = spelling::providers(text).map_err(|mistake| mistake.to_string())?;
    let [one] = &all[..] else {
        return Err("expected one provider; a name that holds + , or ; stands in quotes".to_owned());
    };
    one.resolve(&Known::default()).map_err(|mistake| mistake.to_string())
}

/// Why a file of providers cannot be used.
pub(crate) enum Unusable {
    /// It cannot be read.
    Unread(anyhow::Error),
    /// What it says is wrong.
    Wrong(String),
}

/// The providers of a file, one a line.
pub(crate) fn read_file(path: &Path, known: &Known) -> Result<Vec<Wanted>, Unusable> {
    let mut all = Vec::new();
    for (number, line) in file::lines(path).map_err(Unusable::Unread)? {
        let wrong = |mistake| Unusable::Wrong(format!("{}:{number}: {mistake}", path.display()));
        for spelled in spelling::providers(&line).map_err(wrong)? {
            all.push(spelled.resolve(known).map_err(wrong)?);
        }
    }
    if all.is_empty() {
        return Err(Unusable::Wrong(format!("{} names no provider", path.display())));
    }
    Ok(all)
}
