//! `weir access`: shows and changes access lists of sessions, providers and groups.
//!
//! Users name an object; its list is stored by GUID. A session gets a new GUID at each start,
//! unless the user chose a GUID. Therefore, a right granted by session name lasts only as long as
//! the session runs.

mod accounts;

use std::collections::BTreeMap;
use std::fmt::Write;

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use traceweir::Guid;
use traceweir::controller::Controller;
use traceweir::controller::access::{
    Ace, AceKind, DEFAULT_TRACE_SECURITY, Rights, SecurityDescriptor, SecurityOperation, Sid,
};

use crate::cli::{
    AccessArgs, AccessEntryArgs, AccessListArgs, AccessRemoveArgs, AccessShowArgs, AccessVerb, DaemonChoice,
};
use crate::exit::CommandOutcome;
use crate::grammar::parse_provider;
use crate::output::print_text;
use crate::sessions;
use crate::text::{JsonObject, escape, json_array};

/// Rights that apply only to sessions.
const SESSION_RIGHTS: Rights = Rights(
    Rights::WMIGUID_QUERY.0
        | Rights::TRACELOG_CREATE_REALTIME.0
        | Rights::TRACELOG_CREATE_ONDISK.0
        | Rights::TRACELOG_LOG_EVENT.0
        | Rights::TRACELOG_ACCESS_REALTIME.0,
);
/// Rights that apply only to providers and groups.
const PROVIDER_RIGHTS: Rights = Rights(
    Rights::TRACELOG_GUID_ENABLE.0 | Rights::TRACELOG_REGISTER_GUIDS.0 | Rights::TRACELOG_JOIN_GROUP.0,
);

pub(super) fn run(options: &AccessArgs) -> Result<CommandOutcome> {
    match &options.verb {
        AccessVerb::List(options) => list(options),
        AccessVerb::Show(options) => show(options),
        AccessVerb::Grant(options) => add_entries(options, true),
        AccessVerb::Deny(options) => add_entries(options, false),
        AccessVerb::Remove(options) => remove(options),
    }
}

/// An object with an access list.
struct AccessObject {
    guid: Guid,
    /// Kind and name for people; empty if only the GUID is known.
    name: String,
}

impl AccessObject {
    fn format_label(&self) -> String {
        if self.name.is_empty() {
            format!("{{{}}}", self.guid)
        } else {
            format!("{} {{{}}}", self.name, self.guid)
        }
    }
}

/// Finds the object that `text` names: the default, a GUID, a running session, or else a provider.
/// With rights that only sessions have, a name means a session (`*NAME` still means a provider).
/// With rights that only providers have, it means a provider. Otherwise sessions are searched
/// first.
fn find_object(controller: &mut Controller, text: &str, rights: Rights) -> Result<AccessObject> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(AccessObject { guid: DEFAULT_TRACE_SECURITY, name: "the default".to_owned() });
    }
    if let Ok(guid) = text.trim_start_matches('#').parse() {
        return Ok(AccessObject { guid, name: String::new() });
    }
    let has_session_rights = rights.intersects(SESSION_RIGHTS);
    let has_provider_rights = rights.intersects(PROVIDER_RIGHTS);
    if has_session_rights || !has_provider_rights {
        let folded = text.to_lowercase();
        let session =
            controller.sessions()?.into_iter().find(|session| session.name.to_lowercase() == folded);
        if let Some(session) = session {
            return Ok(AccessObject { guid: session.guid, name: format!("session {}", escape(text)) });
        }
    }
    if has_session_rights && !has_provider_rights && !text.starts_with('*') {
        let name = escape(text);
        bail!(
            "no session {name} is running, and these rights apply to sessions: start it first, or give its id \
             (default: all sessions without a list of their own)"
        );
    }
    let provider = parse_provider(text).map_err(anyhow::Error::msg)?;
    Ok(AccessObject { guid: provider.guid, name: format!("provider {}", escape(&provider.name)) })
}

/// Connects to the daemon whose lists are to be changed, and starts it if needed.
fn connect_to_change(daemon_choice: DaemonChoice) -> Result<Controller> {
    let controller = sessions::find_or_start_daemon(daemon_choice)?;
    if !sessions::is_system_daemon(&controller) {
        eprintln!(
            "note: this is not the system's daemon; it serves only its own user and root, for whom lists have no effect"
        );
    }
    Ok(controller)
}

/// Runs `weir access grant` and `deny`.
fn add_entries(options: &AccessEntryArgs, is_grant: bool) -> Result<CommandOutcome> {
    let sids = accounts::resolve_sids(&options.users, &options.groups, options.everyone)?;
    let rights = options.rights.iter().fold(Rights::NONE, |all, right| all | *right);
    let mut controller = connect_to_change(options.daemon_choice())?;
    let object = find_object(&mut controller, &options.object, rights)?;
    let verb = if is_grant { "granted" } else { "denied" };
    for (number, sid) in sids.iter().enumerate() {
        let is_replacement = options.only && number == 0;
        let operation =
            if is_replacement { SecurityOperation::SET_DACL } else { SecurityOperation::ADD_DACL };
        controller
            .set_access(object.guid, operation, sid, rights, is_grant)
            .with_context(|| format!("cannot change the access list of {}", object.format_label()))?;
        eprintln!(
            "{}: {verb} {} to {}",
            object.format_label(),
            format_rights(rights),
            accounts::format_sid(sid)
        );
    }
    if is_grant {
        let list = controller.access(object.guid)?;
        for sid in &sids {
            warn_if_denied(&list, sid, rights);
        }
    }
    Ok(CommandOutcome::Fine)
}

/// Warns if an entry for `sid` or for everyone denies a right that was just granted.
fn warn_if_denied(list: &SecurityDescriptor, sid: &Sid, rights: Rights) {
    let entries = list.dacl.iter().flat_map(|dacl| &dacl.entries);
    for entry in entries.filter(|e| e.kind == AceKind::Deny && e.rights.intersects(rights)) {
        if entry.sid == *sid || entry.sid == Sid::EVERYONE {
            let (principal, names) = (accounts::format_sid(&entry.sid), format_rights(entry.rights & rights));
            eprintln!(
                "warning: an entry of the list denies {names} to {principal} and overrides the grant (weir access show; weir access remove clears the list)"
            );
        }
    }
}

fn remove(options: &AccessRemoveArgs) -> Result<CommandOutcome> {
    let mut controller = connect_to_change(options.daemon_choice)?;
    let object = find_object(&mut controller, &options.object, Rights::NONE)?;
    let had_own_list = controller.access_lists()?.contains(&object.guid);
    controller
        .remove_access(object.guid)
        .with_context(|| format!("cannot remove the list of {}", object.format_label()))?;
    let message = match (had_own_list, object.guid == DEFAULT_TRACE_SECURITY) {
        (false, _) => "had no list of its own",
        (true, true) => "the built-in list applies again",
        (true, false) => "the default applies again",
    };
    eprintln!("{}: {message}", object.format_label());
    Ok(CommandOutcome::Fine)
}

/// Connects to a running daemon; prints a message if none runs.
fn connect_to_query(daemon_choice: DaemonChoice) -> Result<Option<Controller>> {
    let controller = sessions::find_daemon(daemon_choice)?;
    if controller.is_none() {
        eprintln!("no daemon is running (weir daemon --system or its service starts the system's)");
    }
    Ok(controller)
}

fn list(options: &AccessListArgs) -> Result<CommandOutcome> {
    let Some(mut controller) = connect_to_query(options.daemon_choice)? else {
        return Ok(CommandOutcome::Fine);
    };
    let objects = controller.access_lists()?;
    let names = names_by_guid(&mut controller)?;
    let mut text = String::new();
    for guid in &objects {
        let name = names.get(guid).map(String::as_str);
        if options.json {
            let mut object = JsonObject::new();
            object.text("guid", &guid.to_string()).optional("name", name);
            text += &(object.finish() + "\n");
        } else {
            let _ = writeln!(text, "{guid}  {}", name.unwrap_or("-"));
        }
    }
    if objects.is_empty() {
        eprintln!("nothing has a list of its own: weir access show default shows the list that applies");
    }
    print_text(&text)?;
    Ok(CommandOutcome::Fine)
}

pub(super) fn format_sid(sid: &Sid) -> String {
    accounts::format_sid(sid)
}

/// Returns names of the running sessions and known providers by GUID.
fn names_by_guid(controller: &mut Controller) -> Result<BTreeMap<Guid, String>> {
    let mut names = BTreeMap::from([(DEFAULT_TRACE_SECURITY, "default".to_owned())]);
    for provider in controller.providers()?.into_iter().filter(|p| !p.name.is_empty()) {
        names.insert(provider.guid, format!("provider {}", escape(&provider.name)));
    }
    for session in controller.sessions()? {
        names.insert(session.guid, format!("session {}", escape(&session.name)));
    }
    Ok(names)
}

/// Returns whether a session or provider has this GUID, or it is the GUID of the default list.
fn is_known(controller: &mut Controller, guid: Guid) -> Result<bool> {
    let is_provider = controller.providers()?.iter().any(|provider| provider.guid == guid);
    Ok(is_provider || names_by_guid(controller)?.contains_key(&guid))
}

fn show(options: &AccessShowArgs) -> Result<CommandOutcome> {
    let Some(mut controller) = connect_to_query(options.daemon_choice)? else {
        return Ok(CommandOutcome::Fine);
    };
    let object = find_object(&mut controller, &options.object, Rights::NONE)?;
    let list = controller.access(object.guid)?;
    let has_own_list = controller.access_lists()?.contains(&object.guid);
    if !has_own_list && !is_known(&mut controller, object.guid)? {
        eprintln!(
            "note: nothing is stored for {}, and this daemon has neither a session nor a provider of that name; this is the \
             default, which would apply to it",
            escape(&options.object)
        );
    }
    let text = match options.json {
        true => format_json(&object, &list, has_own_list) + "\n",
        false => format_page(&object, &list, has_own_list),
    };
    print_text(&text)?;
    Ok(CommandOutcome::Fine)
}

fn list_entries(list: &SecurityDescriptor) -> impl Iterator<Item = &Ace> {
    list.dacl.iter().chain(&list.sacl).flat_map(|acl| &acl.entries)
}

const fn kind_name(kind: AceKind) -> &'static str {
    match kind {
        AceKind::Allow => "allow",
        AceKind::Deny => "deny",
        AceKind::Audit => "audit",
    }
}

fn format_page(object: &AccessObject, list: &SecurityDescriptor, has_own_list: bool) -> String {
    let origin = match (has_own_list, object.guid == DEFAULT_TRACE_SECURITY) {
        (true, _) => "its own list",
        (false, true) => "the built-in list",
        (false, false) => "no list of its own: the default applies",
    };
    let mut text = format!("{}: {origin}\n", object.format_label());
    let names: Vec<String> = list_entries(list).map(|entry| accounts::format_sid(&entry.sid)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (entry, name) in list_entries(list).zip(&names) {
        let _ =
            writeln!(text, "  {:<5}  {name:<width$}  {}", kind_name(entry.kind), format_rights(entry.rights));
    }
    if names.is_empty() {
        text += "  only root and the daemon's user have access\n";
    }
    text
}

fn format_json(object: &AccessObject, list: &SecurityDescriptor, has_own_list: bool) -> String {
    let entries = list_entries(list).map(|entry| {
        let mut out = JsonObject::new();
        out.text("kind", kind_name(entry.kind)).text("sid", &entry.sid.to_string());
        out.text("who", &accounts::format_sid(&entry.sid)).mask("rights", entry.rights.0);
        out.text("names", &entry.rights.to_string());
        out.finish()
    });
    let mut out = JsonObject::new();
    out.text("guid", &object.guid.to_string())
        .optional("name", Some(object.name.as_str()).filter(|name| !name.is_empty()))
        .raw("own", if has_own_list { "true" } else { "false" })
        .raw("entries", &json_array(entries));
    out.finish()
}

/// Formats rights with the names that the command line accepts.
fn format_rights(rights: Rights) -> String {
    if rights.contains(Rights::WMIGUID_ALL_ACCESS) {
        return "all".to_owned();
    }
    let mut words = Vec::new();
    let mut unnamed = rights;
    for (right, _, short) in Rights::NAMED {
        if rights.contains(right) {
            words.push(short.to_owned());
            unnamed = unnamed.without(right);
        }
    }
    if !unnamed.is_empty() || words.is_empty() {
        words.push(format!("{:#x}", unnamed.0));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_print_as_the_command_line_accepts_them() {
        assert_eq!(
            format_rights(Rights::TRACELOG_REGISTER_GUIDS | Rights::TRACELOG_JOIN_GROUP),
            "register join-group"
        );
        assert_eq!(format_rights(Rights(0x4000_0081)), "query enable 0x40000000");
        assert_eq!(format_rights(Rights::WMIGUID_ALL_ACCESS), "all");
        assert_eq!(format_rights(Rights::NONE), "0x0");
    }
}
