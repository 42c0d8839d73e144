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
use traceweir::controller::{Controller, Scope};
use traceweir::session::ProviderInfo;
use traceweir::{Error, Guid, SessionId, Status};
use traceweir_daemon::RuntimeDir;
use traceweir_format::etl::Trace;
use traceweir_format::header::{Family, Record};
use traceweir_format::spec::enable::EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
use traceweir_format::spec::event::{ExtType, class};
use traceweir_format::spec::system::is_system_provider;
use traceweir_format::tracelogging::Traits;

use super::by_name;
use crate::grammar::EnableRequest;
use crate::processes;
use crate::text::{counted, plain};

/// How long a daemon that was just started may take to find the running processes.
const REGISTRATION_TIMEOUT: Duration = Duration::from_millis(400);
const HINT: &str = "weir providers lists the registered ones";
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Prints which of these providers no process has registered so far.
pub(crate) fn note_unseen_providers(controller: &mut Controller, wanted: &[EnableRequest]) -> Result<()> {
    let started = Instant::now();
    let is_missing = |seen: &BTreeSet<Guid>, wanted: &EnableRequest| !is_registered(seen, wanted);
    let (providers, seen) = loop {
        let providers = controller.providers()?;
        let seen = registered_in(&providers);
        if started.elapsed() >= REGISTRATION_TIMEOUT || !wanted.iter().any(|w| is_missing(&seen, w)) {
            break (providers, seen);
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    for wanted in wanted.iter().filter(|w| is_missing(&seen, w)) {
        match by_name::forbidden(&providers, wanted) {
            Some(guid) => eprintln!(
                "warning: provider {} has the GUID {{{guid}}}, which you have no right to enable (TRACELOG_GUID_ENABLE)",
                plain(&wanted.name)
            ),
            None => eprintln!("{} yet; {HINT}", unseen(wanted)),
        }
    }
    by_name::note_same_names(&providers, wanted);
    Ok(())
}

/// Returns whether a provider was registered, or needs no process: the kernel is always there.
fn is_registered(seen: &BTreeSet<Guid>, wanted: &EnableRequest) -> bool {
    seen.contains(&wanted.guid) || is_system_provider(&wanted.guid)
}

fn unseen(wanted: &EnableRequest) -> String {
    format!("no process with provider {} has been seen", plain(&wanted.name))
}

/// Prints which filters currently match nothing. That is not an error, because programs come and
/// go, but a mistake would look the same.
pub(crate) fn note_idle_filters(wanted: &[EnableRequest]) {
    for wanted in wanted {
        let (name, filters) = (plain(&wanted.name), &wanted.filters);
        let excludes = filters.ids.as_ref().is_some_and(|ids| !ids.includes);
        let ids = if excludes { "not-ids" } else { "ids" };
        let options = [(ids, filters.ids.is_some()), ("stack-ids", !filters.stack_ids.is_empty())];
        for (option, _) in options.iter().filter(|(_, is_used)| *is_used && wanted.is_hashed()) {
            let instead = option.replace("ids", "names");
            eprintln!(
                "note: @{option} does not apply to TraceLogging events, which have names and no ids: if {name} writes such events, \
                 use @{instead}"
            );
        }
        for pid in filters.pids.iter().filter(|pid| !processes::exists(**pid)) {
            eprintln!(
                "note: there is no process {pid}, and a later process with this pid does not match: @pid excludes all other processes of {name}"
            );
        }
        if !filters.exes.is_empty() && !filters.exes.iter().any(|exe| processes::runs(exe)) {
            let names = plain(&filters.exes.join(" or "));
            eprintln!(
                "note: no program called {names} is running; @exe compares file names, and also matches programs that start later"
            );
        }
    }
}

/// Warns about processes that are left out because they run in another container than the daemon;
/// returns whether there are any.
pub(crate) fn warn_of_left_out_processes(
    controller: &mut Controller,
    session: SessionId,
    wanted: &[EnableRequest],
) -> Result<bool> {
    let providers = controller.providers()?;
    let mut is_any = false;
    for wanted in wanted {
        let is_group = wanted.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0;
        let entry = providers.iter().find(|p| p.guid == wanted.guid && p.is_group == is_group);
        let enable = entry.and_then(|p| p.sessions.iter().find(|enable| enable.session == session));
        let Some(left_out) = enable.map(|enable| enable.left_out).filter(|left_out| *left_out > 0) else {
            continue;
        };
        is_any = true;
        let (name, processes) = (plain(&wanted.name), counted(left_out.into(), "process"));
        eprintln!(
            "warning: not traced: {processes} with provider {name}, in another container than the daemon (by control group or PID \
             namespace); {name}@silos includes all containers, {name}@container=ID one of them"
        );
    }
    Ok(is_any)
}

/// Returns the providers that processes have registered.
pub(crate) fn registered_providers(controller: &mut Controller) -> Result<BTreeSet<Guid>> {
    Ok(registered_in(&controller.providers()?))
}

/// Returns those of these providers that processes have registered, also under the names that
/// sessions enable them by.
pub(crate) fn registered_in(providers: &[ProviderInfo]) -> BTreeSet<Guid> {
    providers.iter().filter(|p| !p.pids.is_empty()).flat_map(by_name::enabled_as).collect()
}

/// Warns about providers that were never registered and have no event in the file.
pub(crate) fn warn_of_unheard_providers(wanted: &[EnableRequest], seen: &BTreeSet<Guid>, file: &Path) {
    let mut missing: Vec<&EnableRequest> = wanted.iter().filter(|w| !is_registered(seen, w)).collect();
    if missing.is_empty() {
        return;
    }
    // A process that came and went between two polls has left its events.
    let Ok(trace) =
        File::open(file).map_err(anyhow::Error::new).and_then(|f| Ok(Trace::open(TraceFile::from(f))?))
    else {
        return;
    };
    let mut events = trace.events();
    while !missing.is_empty() {
        let Ok(Some(record)) = events.next() else { break };
        missing.retain(|wanted| !may_come_from(&record, wanted));
    }
    for wanted in missing {
        eprintln!("warning: {}; {HINT}", unseen(wanted));
    }
}

/// Returns whether an event may be from a provider, by the GUIDs and traits in it.
fn may_come_from(record: &Record<'_>, wanted: &EnableRequest) -> bool {
    let provider = record.provider();
    match record.family() {
        // Classic events contain their class and messages the GUID of their text, but not the
        // provider that was enabled.
        Family::Full | Family::Instance | Family::Message => provider != class::EVENT_TRACE,
        _ if wanted.property & EVENT_ENABLE_PROPERTY_PROVIDER_GROUP != 0 => {
            let traits = record.items().data_of(ExtType::PROV_TRAITS);
            traits.and_then(|traits| Traits::parse(traits).ok()?.group()) == Some(wanted.guid)
        }
        _ => {
            // Events that are decoded by another GUID also carry the GUID of their provider.
            let control = record.items().data_of(ExtType::CONTROL_GUID);
            provider == wanted.guid
                || control == Some(&wanted.guid.to_bytes()[..])
                || wanted.is_name_of(record)
        }
    }
}

/// Warns about processes that have none of the providers. A process of another user is an error,
/// unless the daemon serves all users.
pub(crate) fn check_pids(controller: &mut Controller, wanted: &[EnableRequest], pids: &[u32]) -> Result<()> {
    let started = Instant::now();
    let mut missing: Vec<u32> = pids.to_vec();
    while !missing.is_empty() {
        let providers = controller.providers()?;
        let is_wanted = |p: &ProviderInfo| wanted.iter().any(|w| by_name::enabled_as(p).contains(&w.guid));
        missing.retain(|pid| !providers.iter().any(|p| is_wanted(p) && p.pids.contains(pid)));
        if started.elapsed() >= REGISTRATION_TIMEOUT {
            break;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    let is_system_daemon =
        RuntimeDir::for_scope(Scope::System).is_ok_and(|dir| dir.control_socket() == controller.socket());
    let own = rustix::process::geteuid().as_raw();
    for pid in missing {
        match std::fs::metadata(format!("/proc/{pid}")).map(|m| m.uid()) {
            Ok(owner) if owner != own && !is_system_daemon => {
                let reason = format!(
                    "process {pid} belongs to another user (uid {owner}), and this daemon serves only your own programs; \
                     the system's daemon (--system) serves those of all users"
                );
                return Err(Error::refused(Status::ERROR_ACCESS_DENIED, reason).into());
            }
            Ok(_) => {
                let programs = wanted.iter().filter(|w| !is_system_provider(&w.guid));
                let names: Vec<_> = programs.map(|w| plain(&w.name)).collect();
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

    fn wanted(guid: Guid, property: u32) -> EnableRequest {
        EnableRequest { guid, property, ..crate::grammar::parse_provider("Some.Name").expect("a name") }
    }

    fn event(items: &[Item<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let header = EventHeader { provider: PROVIDER, items, ..EventHeader::default() };
        header.encode(b"", &mut bytes).expect("it fits");
        bytes
    }

    fn classic(class: Guid) -> Vec<u8> {
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
        header.encode(b"", &mut bytes).expect("it fits");
        bytes
    }

    #[test]
    fn provider_matches_by_guid_group_control_guid_and_name() {
        let traits = TraitsBuilder::new("member").group(&GROUP).finish().expect("traits").to_vec();
        let of_group = event(&[Item { kind: ExtType::PROV_TRAITS, data: &traits }]);
        let traits = TraitsBuilder::new("SOME.NAME").finish().expect("traits").to_vec();
        let named = event(&[Item { kind: ExtType::PROV_TRAITS, data: &traits }]);
        let controlled = event(&[Item { kind: ExtType::CONTROL_GUID, data: &OTHER.to_bytes() }]);
        let group = EVENT_ENABLE_PROPERTY_PROVIDER_GROUP;
        for (bytes, guid, property, is_one) in [
            (&event(&[]), PROVIDER, 0, true),
            (&event(&[]), OTHER, 0, false),
            (&event(&[]), GROUP, group, false),
            (&of_group, GROUP, group, true),
            (&of_group, OTHER, group, false),
            (&of_group, GROUP, 0, false),
            (&of_group, PROVIDER, 0, true),
            (&controlled, OTHER, 0, true),
            (&named, Guid::from_provider_name("Some.Name"), 0, true),
            (&of_group, Guid::from_provider_name("Some.Name"), 0, false),
            (&classic(OTHER), PROVIDER, 0, true),
            (&classic(class::EVENT_TRACE), PROVIDER, 0, false),
        ] {
            let record = Record::parse(bytes, 0).expect("a record");
            assert_eq!(may_come_from(&record, &wanted(guid, property)), is_one, "{guid} {property:#x}");
        }
    }
}
