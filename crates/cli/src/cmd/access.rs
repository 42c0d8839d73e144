//! `weir access`: who may do what with sessions, providers and groups.
//!
//! An object is named as people know it; its list is kept by GUID. A session has another GUID each time it starts, unless it was given one, so
//! what is granted by a session's name is granted for as long as it runs.

mod people;

use std::collections::BTreeMap;
use std::fmt::Write;

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use traceweir::Guid;
use traceweir::controller::Controller;
use traceweir::controller::access::{
    Ace, AceKind, DEFAULT_TRACE_SECURITY, Rights, SecurityDescriptor, SecurityOperation, Sid,
};
use traceweir_daemon::{RuntimeDir, Scope};

use crate::cli::{Access, AccessEntry, AccessList, AccessRemove, AccessShow, AccessVerb, Whose};
use crate::exit::Outcome;
use crate::export::{Object, array, plain};
use crate::grammar::parse_provider;
use crate::output::Output;
use crate::sessions;

/// Rights that mean something on a session, and on nothing else.
const OF_SESSIONS: Rights = Rights(
    Rights::WMIGUID_QUERY.0
        | Rights::TRACELOG_CREATE_REALTIME.0
        | Rights::TRACELOG_CREATE_ONDISK.0
        | Rights::TRACELOG_LOG_EVENT.0
        | Rights::TRACELOG_ACCESS_REALTIME.0,
);
/// Rights that mean something on a provider or group, and on nothing else.
const OF_PROVIDERS: Rights = Rights(
    Rights::TRACELOG_GUID_ENABLE.0 | Rights::TRACELOG_REGISTER_GUIDS.0 | Rights::TRACELOG_JOIN_GROUP.0,
);

/// Runs the command.
pub(super) fn run(options: &Access) -> Result<Outcome> {
    match &options.verb {
        AccessVerb::List(options) => list(options),
        AccessVerb::Show(options) => show(options),
        AccessVerb::Grant(options) => enter(options, true),
        AccessVerb::Deny(options) => enter(options, false),
        AccessVerb::Remove(options) => remove(options),
    }
}

/// Something that has a list, as it was found.
struct Thing {
    guid: Guid,
    /// What it is, for people.
    name: String,
}

impl Thing {
    fn told(&self) -> String {
        if self.name.is_empty() {
            format!("{{{}}}", self.guid)
        } else {
            format!("{} {{{}}}", self.name, self.guid)
        }
    }
}

/// What is meant by a name, given the rights that it is about.
fn find_object(controller: &mut Controller, text: &str, rights: Rights) -> Result<Thing> {
    if text.eq_ignore_ascii_case("default") {
        return Ok(Thing { guid: DEFAULT_TRACE_SECURITY, name: "the default".to_owned() });
    }
    if let Ok(guid) = text.trim_start_matches('#').parse() {
        return Ok(Thing { guid, name: String::new() });
    }
    let (for_session, for_provider) = (rights.intersects(OF_SESSIONS), rights.intersects(OF_PROVIDERS));
    if for_session || !for_provider {
        let folded = text.to_lowercase();
        let session = controller.query_all()?.into_iter().find(|it| it.config.name.to_lowercase() == folded);
        if let Some(session) = session {
            return Ok(Thing { guid: session.config.guid, name: format!("session {}", plain(text)) });
        }
    }
    if for_session && !for_provider && !text.starts_with('*') {
        let name = plain(text);
        bail!(
            "no session {name} runs, and these rights are about sessions: start it first, or name its id \
             (default: all sessions without a list of their own)"
        );
    }
    let provider = parse_provider(text).map_err(anyhow::Error::msg)?;
    Ok(Thing { guid: provider.guid, name: format!("provider {}", plain(&provider.name)) })
}

/// A daemon whose lists are to be changed.
fn to_change(whose: Whose) -> Result<Controller> {
    let controller = sessions::find_or_start(whose)?;
    let serves_all =
        RuntimeDir::of(Scope::System).is_ok_and(|dir| dir.control_socket() == controller.socket());
    if !serves_all {
        eprintln!(
            "note: this is not the system's daemon; it lets in nobody but its own user and root, who may do all whatever lists say"
        );
    }
    Ok(controller)
}

/// Runs `weir access grant` and `deny`.
fn enter(options: &AccessEntry, allow: bool) -> Result<Outcome> {
    let people = people::sids(&options.users, &options.groups, options.everyone)?;
    let rights = options.rights.iter().fold(Rights::NONE, |all, right| all | *right);
    let mut controller = to_change(options.whose())?;
    let object = find_object(&mut controller, &options.object, rights)?;
    let verb = if allow { "granted" } else { "denied" };
    for (number, sid) in people.iter().enumerate() {
        let alone = options.only && number == 0;
        let operation = if alone { SecurityOperation::SET_DACL } else { SecurityOperation::ADD_DACL };
        controller
            .set_access(object.guid, operation, sid, rights, allow)
            .with_context(|| format!("cannot change who may do what with {}", object.told()))?;
        eprintln!("{}: {verb} {} to {}", object.told(), typed(rights), people::name(sid));
    }
    if allow {
        let list = controller.access(object.guid)?;
        for sid in &people {
            tell_denied(&list, sid, rights);
        }
    }
    Ok(Outcome::Fine)
}

/// What was granted may be denied by an entry that was there before.
fn tell_denied(list: &SecurityDescriptor, sid: &Sid, rights: Rights) {
    let entries = list.dacl.iter().flat_map(|dacl| &dacl.entries);
    for entry in entries.filter(|e| e.kind == AceKind::Deny && e.rights.intersects(rights)) {
        if entry.sid == *sid || entry.sid == Sid::EVERYONE {
            let (who, what) = (people::name(&entry.sid), typed(entry.rights & rights));
            eprintln!(
                "warning: {what} is denied to {who} by an entry that goes before (weir access show; remove begins anew)"
            );
        }
    }
}

/// Runs `weir access remove`.
fn remove(options: &AccessRemove) -> Result<Outcome> {
    let mut controller = to_change(options.whose)?;
    let object = find_object(&mut controller, &options.object, Rights::NONE)?;
    let had_one = controller.access_lists()?.contains(&object.guid);
    controller
        .remove_access(object.guid)
        .with_context(|| format!("cannot remove the list of {}", object.told()))?;
    let now = match (had_one, object.guid == DEFAULT_TRACE_SECURITY) {
        (false, _) => "had no list of its own",
        (true, true) => "the built-in list holds again",
        (true, false) => "the default holds again",
    };
    eprintln!("{}: {now}", object.told());
    Ok(Outcome::Fine)
}

/// A daemon to be asked; without one nothing is known.
fn to_ask(whose: Whose) -> Result<Option<Controller>> {
    let found = sessions::find(whose)?;
    if found.is_none() {
        eprintln!(
            "no daemon is running that could be asked (weir daemon --system, or its service, is the system's)"
        );
    }
    Ok(found)
}

/// Runs `weir access list`.
fn list(options: &AccessList) -> Result<Outcome> {
    let Some(mut controller) = to_ask(options.whose)? else { return Ok(Outcome::Fine) };
    let objects = controller.access_lists()?;
    let names = names(&mut controller)?;
    let mut text = String::new();
    for guid in &objects {
        let name = names.get(guid).map(String::as_str);
        if options.json {
            let mut object = Object::new();
            object.text("guid", &guid.to_string()).optional("name", name);
            text += &(object.finish() + "\n");
        } else {
            let _ = writeln!(text, "{guid}  {}", name.unwrap_or("-"));
        }
    }
    if objects.is_empty() {
        eprintln!("nothing has a list of its own: weir access show default tells what holds");
    }
    print(&text)
}

/// Who it is, for people.
pub(super) fn name_of(sid: &Sid) -> String {
    people::name(sid)
}

/// What is known by GUID: sessions that run, providers that are there.
fn names(controller: &mut Controller) -> Result<BTreeMap<Guid, String>> {
    let mut names = BTreeMap::from([(DEFAULT_TRACE_SECURITY, "default".to_owned())]);
    for provider in controller.providers()?.into_iter().filter(|p| !p.name.is_empty()) {
        names.insert(provider.provider, format!("provider {}", plain(&provider.name)));
    }
    for session in controller.query_all()? {
        names.insert(session.config.guid, format!("session {}", plain(&session.config.name)));
    }
    Ok(names)
}

/// Whether something is there that has this id, or is the default.
fn is_known(controller: &mut Controller, guid: Guid) -> Result<bool> {
    let is_provider = controller.providers()?.iter().any(|provider| provider.provider == guid);
    Ok(is_provider || names(controller)?.contains_key(&guid))
}

/// Runs `weir access show`.
fn show(options: &AccessShow) -> Result<Outcome> {
    let Some(mut controller) = to_ask(options.whose)? else { return Ok(Outcome::Fine) };
    let object = find_object(&mut controller, &options.object, Rights::NONE)?;
    let list = controller.access(object.guid)?;
    let is_own = controller.access_lists()?.contains(&object.guid);
    if !is_own && !is_known(&mut controller, object.guid)? {
        eprintln!(
            "note: nothing is stored for {}, and neither a session nor a provider of this daemon is known by that; what is shown is the \
             default, which would hold for it",
            plain(&options.object)
        );
    }
    print(&if options.json { json(&object, &list, is_own) + "\n" } else { page(&object, &list, is_own) })
}

fn print(text: &str) -> Result<Outcome> {
    let mut output = Output::open(None)?;
    output.buffer().extend_from_slice(text.as_bytes());
    output.flush()?;
    Ok(Outcome::Fine)
}

fn entries(list: &SecurityDescriptor) -> impl Iterator<Item = &Ace> {
    list.dacl.iter().chain(&list.sacl).flat_map(|acl| &acl.entries)
}

const fn word(kind: AceKind) -> &'static str {
    match kind {
        AceKind::Allow => "allow",
        AceKind::Deny => "deny",
        AceKind::Audit => "audit",
    }
}

fn page(object: &Thing, list: &SecurityDescriptor, is_own: bool) -> String {
    let whose = match (is_own, object.guid == DEFAULT_TRACE_SECURITY) {
        (true, _) => "its own list",
        (false, true) => "the built-in list",
        (false, false) => "no list of its own: the default holds",
    };
    let mut text = format!("{}: {whose}\n", object.told());
    let names: Vec<String> = entries(list).map(|entry| people::name(&entry.sid)).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    for (entry, name) in entries(list).zip(&names) {
        let _ = writeln!(text, "  {:<5}  {name:<width$}  {}", word(entry.kind), typed(entry.rights));
    }
    if names.is_empty() {
        text += "  nobody but root and the daemon's user may do anything\n";
    }
    text
}

fn json(object: &Thing, list: &SecurityDescriptor, is_own: bool) -> String {
    let entries = entries(list).map(|entry| {
        let mut out = Object::new();
        out.text("kind", word(entry.kind)).text("sid", &entry.sid.to_string());
        out.text("who", &people::name(&entry.sid)).mask("rights", entry.rights.0);
        out.text("names", &entry.rights.to_string());
        out.finish()
    });
    let mut out = Object::new();
    out.text("guid", &object.guid.to_string())
        .optional("name", Some(object.name.as_str()).filter(|name| !name.is_empty()))
        .raw("own", if is_own { "true" } else { "false" })
        .raw("entries", &array(entries));
    out.finish()
}

/// Rights as they are typed.
fn typed(rights: Rights) -> String {
    if rights.contains(Rights::WMIGUID_ALL_ACCESS) {
        return "all".to_owned();
    }
    let (mut words, mut rest) = (Vec::new(), rights);
    for (right, _, short) in Rights::NAMED {
        if rights.contains(right) {
            words.push(short.to_owned());
            rest = rest.without(right);
        }
    }
    if !rest.is_empty() || words.is_empty() {
        words.push(format!("{:#x}", rest.0));
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_told_as_they_are_typed() {
        assert_eq!(typed(Rights(0x1800)), "register join-group");
        assert_eq!(typed(Rights(0x4000_0081)), "query enable 0x40000000");
        assert_eq!(typed(Rights::WMIGUID_ALL_ACCESS), "all");
        assert_eq!(typed(Rights::NONE), "0x0");
    }
}
