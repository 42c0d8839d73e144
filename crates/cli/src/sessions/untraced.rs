//! Notes and warnings about providers and processes that are not traced.
//!
//! A provider that no process has registered is not an error, because its program may start later.
//! A wrong name looks the same, so the commands print a note.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anstream::eprintln;
use anyhow::Result;
use traceweir::consumer::TraceFile;
use traceweir::controller::Controller;
use traceweir::session::ProviderInfo;
use traceweir::{Error, Guid, SessionId, Status};
use traceweir_analysis::processes;
use traceweir_format::etl::Trace;
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::event::{ExtType, class};
use traceweir_format::tracelogging::Traits;

use super::{by_name, is_system_daemon};
use crate::grammar::EnableRequest;
use crate::text::{escape, format_count, suggest_names};

/// How long a daemon that was just started may take to find the running processes.
const REGISTRATION_TIMEOUT: Duration = Duration::from_millis(400);
const PROVIDERS_HINT: &str = "weir providers lists the registered ones";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Prints a note for each provider that no process has registered so far, and for each name that
/// several providers have. Warns about registered providers that the caller may not enable.
pub(crate) fn note_unseen_providers(controller: &mut Controller, requests: &[EnableRequest]) -> Result<()> {
    let started = Instant::now();
    let is_missing = |seen: &BTreeSet<Guid>, request: &EnableRequest| !is_registered(seen, request);
    let (providers, seen) = loop {
        let providers = controller.providers()?;
        let seen = registered_guids(&providers);
        if started.elapsed() >= REGISTRATION_TIMEOUT
            || !requests.iter().any(|request| is_missing(&seen, request))
        {
            break (providers, seen);
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    for request in requests.iter().filter(|request| is_missing(&seen, request)) {
        match by_name::find_forbidden_guid(&providers, request) {
            Some(guid) => eprintln!(
                "warning: provider {} has the GUID {{{guid}}}, which you have no right to enable (TRACELOG_GUID_ENABLE)",
                escape(&request.name)
            ),
            None => {
                let question = suggest_provider(&providers, request)
                    .map_or_else(|| ";".to_owned(), |question| format!(". {question}"));
                let name = escape(&request.name);
                match request.name.contains('*') {
                    true => eprintln!(
                        "no running process has registered a provider {name}: those that programs register later are enabled; {PROVIDERS_HINT}"
                    ),
                    false => eprintln!(
                        "no running process has registered provider {name}: it is enabled as soon as one does{question} {PROVIDERS_HINT}"
                    ),
                }
            }
        }
    }
    by_name::note_same_names(&providers, requests);
    Ok(())
}

/// Returns the question whether another registered provider is meant; `None` if no name is similar,
/// or if the provider was given by its GUID.
fn suggest_provider(providers: &[ProviderInfo], request: &EnableRequest) -> Option<String> {
    let registered = providers.iter().filter(|provider| !provider.pids.is_empty());
    let names = registered.map(|provider| provider.name.as_str()).filter(|name| !name.is_empty());
    if request.is_hashed() { suggest_names(&request.name, names) } else { None }
}

/// Returns whether a provider was registered, or is the kernel's, which needs no process.
fn is_registered(seen: &BTreeSet<Guid>, request: &EnableRequest) -> bool {
    seen.contains(&request.guid) || request.is_of_kernel()
}

fn unregistered_message(request: &EnableRequest) -> String {
    format!("no process has registered provider {}", escape(&request.name))
}

/// Prints a note for each filter that may match nothing. This is not an error, because a
/// matching program may start later, but a wrong filter would look the same.
pub(crate) fn note_filters_without_match(requests: &[EnableRequest]) {
    for request in requests {
        let (name, filters) = (escape(&request.name), &request.filters);
        let is_exclusion = filters.ids.as_ref().is_some_and(|ids| !ids.includes);
        let ids = if is_exclusion { "not-ids" } else { "ids" };
        let options = [(ids, filters.ids.is_some()), ("stack-ids", !filters.stack_ids.is_empty())];
        for (option, _) in options.iter().filter(|(_, is_used)| *is_used && request.is_hashed()) {
            let replacement = option.replace("ids", "names");
            eprintln!(
                "note: @{option} does not apply to TraceLogging events, which have names and no ids: if {name} writes such events, \
                 use @{replacement}"
            );
        }
        for pid in filters.pids.iter().filter(|pid| !processes::exists(**pid)) {
            eprintln!(
                "warning: there is no process {pid}, and a later process with this pid does not match: @pid excludes all other processes of {name}"
            );
        }
        if !filters.exes.is_empty() && !filters.exes.iter().any(|exe| processes::is_program_running(exe)) {
            let names = escape(&filters.exes.join(" or "));
            eprintln!(
                "note: no program called {names} is running; @exe compares file names, and also matches programs that start later"
            );
        }
    }
}

/// Warns about processes that are left out because they run in a container other than the
/// daemon's; returns whether any process is left out.
pub(crate) fn warn_of_left_out_processes(
    controller: &mut Controller,
    session: SessionId,
    requests: &[EnableRequest],
) -> Result<bool> {
    let providers = controller.providers()?;
    let mut has_left_out = false;
    for request in requests {
        let is_group = request.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
        let provider =
            providers.iter().find(|provider| provider.guid == request.guid && provider.is_group == is_group);
        let enable =
            provider.and_then(|provider| provider.sessions.iter().find(|enable| enable.session == session));
        let Some(left_out) = enable.map(|enable| enable.left_out).filter(|left_out| *left_out > 0) else {
            continue;
        };
        has_left_out = true;
        let (name, processes) = (escape(&request.name), format_count(left_out.into(), "process"));
        eprintln!(
            "warning: not traced: {processes} with provider {name}, in a container other than the daemon's (by control group or PID \
             namespace); {name}@silos includes all containers, {name}@container=ID one of them"
        );
    }
    Ok(has_left_out)
}

/// Queries the GUIDs of providers that processes have registered.
pub(crate) fn query_registered_guids(controller: &mut Controller) -> Result<BTreeSet<Guid>> {
    Ok(registered_guids(&controller.providers()?))
}

/// Returns the GUIDs of registered providers, and the hashes of the names that enable them.
pub(crate) fn registered_guids(providers: &[ProviderInfo]) -> BTreeSet<Guid> {
    providers.iter().filter(|provider| !provider.pids.is_empty()).flat_map(by_name::enable_guids).collect()
}

/// Warns about providers that were never registered and have no event in the file. The processes of
/// a recorded command have ended, so `weir providers` does not list theirs.
pub(crate) fn warn_of_missing_providers(
    requests: &[EnableRequest],
    seen: &BTreeSet<Guid>,
    file: &Path,
    has_command: bool,
) {
    let hint =
        if has_command { "without -p, weir record shows the providers of CMD" } else { PROVIDERS_HINT };
    let mut missing: Vec<&EnableRequest> =
        requests.iter().filter(|request| !is_registered(seen, request)).collect();
    if missing.is_empty() {
        return;
    }
    // A process that started and ended between two polls may have written events.
    let Ok(trace) =
        File::open(file).map_err(anyhow::Error::new).and_then(|f| Ok(Trace::open(TraceFile::from(f))?))
    else {
        return;
    };
    let mut events = trace.events();
    while !missing.is_empty() {
        let Ok(Some(record)) = events.next() else { break };
        missing.retain(|request| !may_come_from(&record, request));
    }
    for request in missing {
        eprintln!("warning: {}; {hint}", unregistered_message(request));
    }
}

/// Returns whether the requested provider may have written an event, by the event's GUIDs and
/// traits.
fn may_come_from(record: &Record<'_>, request: &EnableRequest) -> bool {
    let provider = record.provider();
    match record.family() {
        // Classic events contain their class and messages the GUID of their text, but not the
        // provider that was enabled.
        Family::Full | Family::Instance | Family::Message => provider != class::EVENT_TRACE,
        _ if request.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0 => {
            let traits = record.items().data_of(ExtType::PROV_TRAITS);
            traits.and_then(|traits| Traits::parse(traits).ok()?.group()) == Some(request.guid)
        }
        _ => {
            // Events that are decoded by another GUID also carry the GUID of their provider.
            let control = record.items().data_of(ExtType::CONTROL_GUID);
            provider == request.guid
                || control == Some(&request.guid.to_bytes()[..])
                || request.matches_provider_name(record)
        }
    }
}

/// Fails if a process belongs to another user, unless the daemon serves all users or only its kernel
/// events are recorded, by root.
pub(crate) fn check_owners(controller: &Controller, requests: &[EnableRequest], pids: &[u32]) -> Result<()> {
    let own_uid = rustix::process::geteuid().as_raw();
    let has_programs = requests.iter().any(|request| !request.is_of_kernel());
    if is_system_daemon(controller) || own_uid == 0 && !has_programs {
        return Ok(());
    }
    for pid in pids {
        if let Ok(uid) = std::fs::metadata(format!("/proc/{pid}")).map(|m| m.uid())
            && uid != own_uid
        {
            let reason = format!(
                "process {pid} belongs to another user (uid {uid}), and this daemon serves only your own programs; \
                 the system's daemon (--system) serves those of all users"
            );
            return Err(Error::refused(Status::ERROR_ACCESS_DENIED, reason).into());
        }
    }
    Ok(())
}

/// Warns about processes that have registered none of the providers.
pub(crate) fn warn_of_unregistered(
    controller: &mut Controller,
    requests: &[EnableRequest],
    pids: &[u32],
) -> Result<()> {
    let program_requests: Vec<&EnableRequest> =
        requests.iter().filter(|request| !request.is_of_kernel()).collect();
    let started = Instant::now();
    let mut missing: Vec<u32> = pids.to_vec();
    while !missing.is_empty() && !program_requests.is_empty() {
        let providers = controller.providers()?;
        let is_requested = |provider: &ProviderInfo| {
            requests.iter().any(|request| by_name::enable_guids(provider).contains(&request.guid))
        };
        missing.retain(|pid| {
            !providers.iter().any(|provider| is_requested(provider) && provider.pids.contains(pid))
        });
        if started.elapsed() >= REGISTRATION_TIMEOUT {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    for pid in missing {
        match std::fs::metadata(format!("/proc/{pid}")) {
            Ok(_) if program_requests.is_empty() => {}
            Ok(_) => {
                let names: Vec<_> = program_requests.iter().map(|request| escape(&request.name)).collect();
                eprintln!("warning: process {pid} has not registered {} so far", names.join(" or "));
            }
            Err(_) => eprintln!("warning: there is no process {pid}"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use traceweir_format::header::classic::ClassicHeader;
    use traceweir_format::header::event::EventHeader;
    use traceweir_format::header::extended::Item;
    use traceweir_format::tracelogging::TraitsBuilder;

    use super::*;

    const PROVIDER: Guid = Guid::from_u128(1);
    const GROUP: Guid = Guid::from_u128(2);
    const OTHER: Guid = Guid::from_u128(3);

    fn request_for(guid: Guid, property: u32) -> EnableRequest {
        EnableRequest {
            guid,
            property,
            ..crate::grammar::parse_provider("Some.Name").expect("the name must parse")
        }
    }

    fn encode_event(items: &[Item<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = EventHeader { provider: PROVIDER, items, ..EventHeader::default() };
        header.encode(b"", &mut bytes).expect("an empty payload must fit into the record");
        bytes
    }

    fn encode_classic_event(class: Guid) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = ClassicHeader {
            pointer_size: 8,
            opcode: 1,
            level: 4,
            version: 0,
            thread_id: 1,
            process_id: 1,
            time: 1,
            class,
            cpu_times: (0, 0),
            instance: None,
        };
        header.encode(b"", &mut bytes).expect("an empty payload must fit into the record");
        bytes
    }

    #[test]
    fn provider_matches_by_guid_group_control_guid_and_name() {
        let traits =
            TraitsBuilder::new("member").group(&GROUP).finish().expect("the traits must fit").to_vec();
        let group_event = encode_event(&[Item { kind: ExtType::PROV_TRAITS, data: &traits }]);
        let traits = TraitsBuilder::new("SOME.NAME").finish().expect("the traits must fit").to_vec();
        let named_event = encode_event(&[Item { kind: ExtType::PROV_TRAITS, data: &traits }]);
        let controlled_event = encode_event(&[Item { kind: ExtType::CONTROL_GUID, data: &OTHER.to_bytes() }]);
        let group = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        for (bytes, guid, property, is_match) in [
            (&encode_event(&[]), PROVIDER, 0, true),
            (&encode_event(&[]), OTHER, 0, false),
            (&encode_event(&[]), GROUP, group, false),
            (&group_event, GROUP, group, true),
            (&group_event, OTHER, group, false),
            (&group_event, GROUP, 0, false),
            (&group_event, PROVIDER, 0, true),
            (&controlled_event, OTHER, 0, true),
            (&named_event, Guid::from_provider_name("Some.Name"), 0, true),
            (&group_event, Guid::from_provider_name("Some.Name"), 0, false),
            (&encode_classic_event(OTHER), PROVIDER, 0, true),
            (&encode_classic_event(class::EVENT_TRACE), PROVIDER, 0, false),
        ] {
            let record = Record::parse(bytes, 0).expect("the encoded record must parse");
            assert_eq!(
                may_come_from(&record, &request_for(guid, property)),
                is_match,
                "{guid} {property:#x}"
            );
        }
    }
}
