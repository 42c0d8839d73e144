//! `weir providers`: lists providers, their processes and the sessions that enable them. Prints one
//! page for each match of an exact name or GUID, otherwise a table; with `--json`, one object per
//! line.

mod page;

use std::collections::BTreeMap;
use std::fmt::Write;

use anstream::eprintln;
use anyhow::Result;
use traceweir::session::{ProviderEnable, ProviderInfo, SessionSummary};
use traceweir::{Guid, SessionId};

use crate::cli::ListProvidersArgs;
use crate::exit::CommandOutcome;
use crate::grammar::property_names;
use crate::output::print_text;
use crate::sessions;
use crate::text::{
    JsonObject, escape, format_count, format_table, join_lines, json_array, matches_pattern, suggest_names,
};

/// Maximum number of pids of a provider in the table; pages and JSON contain all.
const MAX_SHOWN_PIDS: usize = 8;

pub(super) fn run(options: &ListProvidersArgs) -> Result<CommandOutcome> {
    let Some(mut controller) = sessions::find_daemon(options.daemon_choice)? else {
        let message = "no daemon is running, so no provider is known; weir start, weir record and weir watch start one, \
                    which then finds running programs";
        eprintln!("{}", sessions::no_daemon_message(options.daemon_choice, message));
        return Ok(CommandOutcome::Fine);
    };
    let sessions = controller.sessions()?;
    let mut providers = sessions::remove_duplicate_listings(controller.providers()?);
    let mut suggestion = None;
    if let Some(pattern) = &options.pattern {
        suggestion = suggest_names(pattern, providers.iter().filter_map(sessions::provider_name));
        providers.retain(|provider| matches_provider(provider, pattern));
    }
    let names = session_names(&sessions);
    let text = if options.json {
        join_lines(providers.iter().map(|provider| format_provider_json(provider, &names)))
    } else if let Some(exact_pattern) =
        options.pattern.as_deref().filter(|pattern| is_exact(pattern) && !providers.is_empty())
    {
        let pages: Vec<_> =
            providers.iter().map(|provider| page::format_page(provider, &names, exact_pattern)).collect();
        pages.join("\n")
    } else if let Some(pattern) = options.pattern.as_deref().filter(|_| providers.is_empty()) {
        let question = suggestion.map_or_else(String::new, |question| format!(". {question}"));
        eprintln!("no registered or enabled provider matches {}{question}", escape(pattern));
        String::new()
    } else {
        format_provider_table(&providers, &names)
    };
    print_text(&text)?;
    Ok(CommandOutcome::Fine)
}

/// Returns whether a pattern is a name or GUID, without wildcards.
fn is_exact(pattern: &str) -> bool {
    !pattern.contains(['*', '?'])
}

/// Returns whether a pattern matches the name, or is the GUID of the provider or of one of its
/// groups.
fn matches_provider(provider: &ProviderInfo, pattern: &str) -> bool {
    match pattern.trim_start_matches('#').parse::<Guid>() {
        Ok(guid) => provider.guid == guid || provider.groups.contains(&guid),
        Err(_) => match sessions::provider_name(provider) {
            Some(name) => matches_pattern(&pattern.to_lowercase(), &name.to_lowercase()),
            // The provider was enabled before its registration, so its name is not known yet.
            None => provider.guid.is_hash_of(pattern),
        },
    }
}

fn session_names(sessions: &[SessionSummary]) -> BTreeMap<SessionId, &str> {
    sessions.iter().map(|session| (session.id, session.name.as_str())).collect()
}

fn format_provider_table(providers: &[ProviderInfo], names: &BTreeMap<SessionId, &str>) -> String {
    if providers.is_empty() {
        eprintln!("no provider is registered or enabled");
        return String::new();
    }
    const HEADINGS: [&str; 6] = ["Provider", "GUID", "Kind", "Groups", "Processes", "Enabled by"];
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(providers.iter().map(|provider| {
        let mut pids: Vec<_> = provider.pids.iter().take(MAX_SHOWN_PIDS).map(ToString::to_string).collect();
        if provider.pids.len() > MAX_SHOWN_PIDS {
            pids.push(format!("and {} more", provider.pids.len().saturating_sub(MAX_SHOWN_PIDS)));
        }
        let enabling_sessions: Vec<_> = format_enabling_sessions(provider, names).collect();
        let groups: Vec<_> = provider.groups.iter().map(|group| format!("{{{group}}}")).collect();
        let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
        [
            or_dash(sessions::provider_name(provider).map_or_else(String::new, escape)),
            format!("{{{}}}", provider.guid),
            sessions::provider_kind(provider).to_owned(),
            or_dash(groups.join(" ")),
            or_dash(pids.join(" ")),
            or_dash(enabling_sessions.join(", ")),
        ]
    }));
    format_table(&rows, &[false; 6])
}

/// Formats each session that enables a provider, with level, keywords and filters.
fn format_enabling_sessions(
    provider: &ProviderInfo,
    names: &BTreeMap<SessionId, &str>,
) -> impl Iterator<Item = String> {
    let format_named = |enable: &ProviderEnable| {
        let id = enable.session;
        let name = names.get(&id).map_or_else(|| format!("{:#x}", id.number()), |name| escape(name));
        format!("{name}:{}", format_enable(enable))
    };
    // Private sessions are not in the list of names.
    let format_private =
        |enable: &ProviderEnable| format!("private {:#x}:{}", enable.session.number(), format_enable(enable));
    provider.sessions.iter().map(format_named).chain(provider.private_sessions.iter().map(format_private))
}

/// Formats an enable like the provider argument of the command line, with additions for what that
/// argument cannot express.
fn format_enable(enable: &ProviderEnable) -> String {
    let (level, any, all) = (enable.level.as_int(), enable.keywords.bits(), enable.all_keywords.bits());
    let mut text = if any == 0 { "all".to_owned() } else { format!("{any:#x}") };
    if all != 0 {
        let _ = write!(text, " and all of {all:#x}");
    }
    if level != 0 {
        let _ = write!(text, ":{level}");
    }
    for property in property_names(enable.properties.bits()) {
        let _ = write!(text, "@{property}");
    }
    let filter_texts: Vec<_> = enable.filters.iter().map(sessions::format_filter).collect();
    for filter in filter_texts.iter().flatten() {
        let _ = write!(text, "@{filter}");
    }
    if filter_texts.contains(&None) {
        text.push_str(" filtered");
    }
    if !filter_texts.is_empty() {
        let _ = write!(text, ", {} traced", format_count(enable.traced.into(), "process"));
    }
    text
}

fn format_provider_json(provider: &ProviderInfo, names: &BTreeMap<SessionId, &str>) -> String {
    let sessions = provider.sessions.iter().chain(&provider.private_sessions).map(|enable| {
        let mut object = JsonObject::new();
        object.optional("name", names.get(&enable.session).copied()).number("id", enable.session.number());
        sessions::put_enable(&mut object, enable);
        object.finish()
    });
    let groups = provider.groups.iter().map(|group| format!("\"{group}\""));
    let mut object = JsonObject::new();
    object
        .text("guid", &provider.guid.to_string())
        .optional("name", sessions::provider_name(provider))
        .text("kind", sessions::provider_kind(provider))
        .raw("groups", &json_array(groups))
        .raw("pids", &json_array(provider.pids.iter().map(ToString::to_string)))
        .raw("sessions", &json_array(sessions));
    object.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use traceweir::session::Filter;
    use traceweir::{EnableProperties, Keywords, Level};
    use traceweir_format::spec::enable::{
        EVENT_ENABLE_PROPERTY_SID, EVENT_ENABLE_PROPERTY_STACK_TRACE, EVENT_FILTER_TYPE_EVENT_ID,
    };

    fn event_id_filter(data: Vec<u8>) -> Filter {
        Filter::from_parts(EVENT_FILTER_TYPE_EVENT_ID, data)
    }

    fn enable_by(session: u64, level: u8, any: u64, all: u64) -> ProviderEnable {
        let mut enable = ProviderEnable::default();
        enable.session = SessionId::new(session);
        enable.level = Level::from_int(level);
        enable.keywords = Keywords::new(any);
        enable.all_keywords = Keywords::new(all);
        enable
    }

    fn sample_provider() -> ProviderInfo {
        let mut provider = ProviderInfo::default();
        provider.guid = Guid::from_u128(1);
        provider.name = "MyCompany.App".to_owned();
        provider.pids = (1..=10).collect();
        provider.sessions = vec![enable_by(5, 4, 1, 0), enable_by(6, 0, 0, 0)];
        provider.groups = vec![Guid::from_u128(9)];
        provider
    }

    #[test]
    fn enables_are_formatted_like_provider_arguments() {
        assert_eq!(format_enable(&enable_by(5, 0, 0, 0)), "all");
        assert_eq!(format_enable(&enable_by(5, 4, 0, 0)), "all:4");
        assert_eq!(format_enable(&enable_by(5, 0, 0x10, 0)), "0x10");
        assert_eq!(format_enable(&enable_by(5, 3, 1, 6)), "0x1 and all of 0x6:3");
        let mut with_filter = enable_by(5, 4, 0, 0);
        with_filter.properties =
            EnableProperties::new(EVENT_ENABLE_PROPERTY_SID | EVENT_ENABLE_PROPERTY_STACK_TRACE);
        // Bytes of the filter: 1 (include), 0 (reserved), then as 16-bit numbers the count 1 and
        // the id 7.
        with_filter.filters = vec![event_id_filter(vec![1, 0, 1, 0, 7, 0])];
        assert_eq!(format_enable(&with_filter), "all:4@sid@stack@ids=7, 0 processes traced");
        let mut with_invalid_filter = enable_by(5, 4, 0, 0);
        (with_invalid_filter.filters, with_invalid_filter.traced) = (vec![event_id_filter(vec![])], 1);
        assert_eq!(format_enable(&with_invalid_filter), "all:4 filtered, 1 process traced");
    }

    #[test]
    fn pattern_matches_names_guids_and_group_members() {
        let provider = sample_provider();
        for (pattern, is_match) in [
            ("mycompany.*", true),
            ("MyCompany.App", true),
            ("MyCompany", false),
            ("{00000000-0000-0000-0000-000000000001}", true),
            ("#00000000-0000-0000-0000-000000000009", true),
            ("{00000000-0000-0000-0000-000000000002}", false),
        ] {
            assert_eq!(matches_provider(&provider, pattern), is_match, "{pattern}");
        }
    }

    #[test]
    fn table_has_expected_layout() {
        let mut group = ProviderInfo::default();
        (group.guid, group.is_group) = (Guid::from_u128(9), true);
        let names = BTreeMap::from([(SessionId::new(5), "Morning")]);
        let expected = "\
Provider       GUID                                    Kind    Groups                                  Processes                   Enabled by
---------------------------------------------------------------------------------------------------------------------------------------------------------
MyCompany.App  {00000000-0000-0000-0000-000000000001}  modern  {00000000-0000-0000-0000-000000000009}  1 2 3 4 5 6 7 8 and 2 more  Morning:0x1:4, 0x6:all
-              {00000000-0000-0000-0000-000000000009}  group   -                                       -                           -
";
        assert_eq!(format_provider_table(&[sample_provider(), group], &names), expected);
    }

    #[test]
    fn json_fields_are_documented() {
        let object =
            format_provider_json(&sample_provider(), &BTreeMap::from([(SessionId::new(5), "Morning")]));
        let object: serde_json::Value = serde_json::from_str(&object).unwrap();
        let documented = include_str!("../../../../docs/cli-json.md");
        for name in
            object.as_object().unwrap().keys().chain(object["sessions"][0].as_object().unwrap().keys())
        {
            assert!(documented.contains(&format!("| `{name}` |")), "{name} is not documented");
        }
        assert_eq!(object["groups"][0], "00000000-0000-0000-0000-000000000009");
        assert_eq!(object["sessions"][1]["name"], serde_json::Value::Null);
    }
}
