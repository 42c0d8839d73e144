//! The flags of `weir access`, as typed.

use clap::{ArgGroup, Args, Subcommand};
use traceweir::controller::access::Rights;

use super::Whose;
use super::sessions::DAEMON;

const AFTER_ACCESS: &str = "\
OBJECT is one of
  App                    a session that runs, by its name; where none has it, the provider of that name
  MyCompany.App          a provider, by its name (*MyCompany.App: never a session) or id
  {b3864c38-…}           a session, provider or group, by its id
  default                all that have no list of their own

RIGHT is one of                                   on
  query            see a session                  the session
  create-realtime  run a session that is live     the session
  create-file      run a session with a file      the session
  log              write to a secure session      the session
  consume          watch a live session           the session
  enable           enable the provider            the provider
  register         be the provider                the provider
  join-group       belong to the group            the group
  change-access    change this list               the object
  all              all of these
or a number (0x80), or its published name (TRACELOG_GUID_ENABLE).

Examples:
  weir access show default                                  who may do what where nothing else is said
  weir access grant MyCompany.App --user anna enable        anna may enable this provider
  weir access grant default --group dev query consume create-realtime
                                                            the group may run and watch live sessions
  weir access grant MyCompany.App --group app register --only
                                                            nobody else may be this provider
  weir access deny App --user bert consume                  bert may not, whatever groups he is in
  weir access remove MyCompany.App                          the default holds again

Lists bind guests of the system's daemon. Root and the user that the daemon runs as may always do all; your own daemon lets in \
nobody else, so there a list changes nothing.";

/// Who may do what.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_ACCESS, after_help = "weir access --help tells of objects and rights, with examples")]
pub(crate) struct Access {
    #[command(subcommand)]
    pub(crate) verb: AccessVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessVerb {
    /// Show what has a list of its own
    List(AccessList),
    /// Show the list that holds for an object
    Show(AccessShow),
    /// Grant rights
    #[command(after_long_help = AFTER_ACCESS)]
    Grant(AccessEntry),
    /// Deny rights; what is denied stays so, whatever else is granted
    #[command(after_long_help = AFTER_ACCESS)]
    Deny(AccessEntry),
    /// Remove the list of an object: the default holds again
    Remove(AccessRemove),
}

#[derive(Debug, Args)]
pub(crate) struct AccessList {
    /// One JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Args)]
pub(crate) struct AccessShow {
    /// Session, provider or group, by name or id; default: what holds for all others
    pub(crate) object: String,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("who").required(true).multiple(true).args(["users", "groups", "everyone"]))]
pub(crate) struct AccessEntry {
    /// Session, provider or group, by name or id; default: what holds for all others
    pub(crate) object: String,
    /// Rights: query, create-realtime, create-file, enable, log, consume, register, join-group, change-access, all, or a number
    #[arg(required = true, value_name = "RIGHT", value_parser = parse_right)]
    pub(crate) rights: Vec<Rights>,
    /// This user, by name or number; may be repeated
    #[arg(long = "user", value_name = "NAME|UID")]
    pub(crate) users: Vec<String>,
    /// Members of this group, by name or number; may be repeated
    #[arg(long = "group", value_name = "NAME|GID")]
    pub(crate) groups: Vec<String>,
    /// Everyone
    #[arg(long)]
    pub(crate) everyone: bool,
    /// Instead of all that the list says, not besides it
    #[arg(long)]
    pub(crate) only: bool,
    /// The lists of the system's daemon [default for root, and where it runs and permits; else your own]
    #[arg(long, help_heading = DAEMON)]
    pub(crate) system: bool,
}

impl AccessEntry {
    /// Which daemon; `--user` names people here.
    pub(crate) fn whose(&self) -> Whose {
        Whose { system: self.system, user: false }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AccessRemove {
    /// Session, provider or group, by name or id; default: the built-in list holds for all others again
    pub(crate) object: String,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

/// A right, as typed.
fn parse_right(text: &str) -> Result<Rights, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(Rights::WMIGUID_ALL_ACCESS);
    }
    let is_meant = |name: &str| name.eq_ignore_ascii_case(text);
    if let Some((right, ..)) = Rights::NAMED.iter().find(|(_, name, short)| is_meant(name) || is_meant(short))
    {
        return Ok(*right);
    }
    let number = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let is_known = |rights: &Rights| *rights != Rights::NONE && Rights::WMIGUID_ALL_ACCESS.contains(*rights);
    number.map(Rights).filter(is_known).ok_or_else(|| {
        let names: Vec<_> = Rights::NAMED.iter().map(|(.., short)| *short).collect();
        let all = Rights::WMIGUID_ALL_ACCESS.0;
        format!(
            "a right is one of {}, all, or a number like 0x80 of bits that mean something ({all:#x})",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_typed_by_short_and_published_name_and_number() {
        for text in ["enable", "Enable", "TRACELOG_GUID_ENABLE", "tracelog_guid_enable", "0x80", "128"] {
            assert_eq!(parse_right(text), Ok(Rights::TRACELOG_GUID_ENABLE), "{text}");
        }
        assert_eq!(parse_right("all"), Ok(Rights::WMIGUID_ALL_ACCESS));
        for text in ["", "0", "0x80000000", "0x2080", "0x", "enables", "0x100000000", "-1"] {
            assert!(parse_right(text).unwrap_err().contains("create-realtime"), "{text}");
        }
    }
}
