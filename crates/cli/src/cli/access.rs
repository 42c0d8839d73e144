//! Command-line arguments of `weir access`.

use clap::{ArgGroup, Args, Subcommand};
use traceweir::controller::access::Rights;

use super::daemon_choice::{DAEMON_HEADING, DaemonChoice};

const ACCESS_HELP: &str = "\
OBJECT is one of
  App                    a running session, by name; if no session has the name, the provider
  MyCompany.App          a provider, by name (*MyCompany.App: never a session) or id
  {b3864c38-…}           a session, provider or group, by id
  default                everything without a list of its own

RIGHT is one of                                   on
  query            see a session                  the session
  create-realtime  run a live session             the session
  create-file      run a session with a file      the session
  log              write to a secure session      the session
  consume          watch a live session           the session
  enable           enable the provider            the provider
  register         register as the provider       the provider
  join-group       join the group                 the group
  kernel-logger    record kernel events           9e814aad-3204-11d2-9a82-006008a86939
  change-access    change this list               the object
  all              all of these
or a number (0x80), or the published name (TRACELOG_GUID_ENABLE).

Examples:
  weir access show default                                  show the list that applies by default
  weir access grant MyCompany.App --user anna enable        let anna enable this provider
  weir access grant default --group dev query consume create-realtime
                                                            let the group run and watch live sessions
  weir access grant MyCompany.App --group app register --only
                                                            let no other user register this provider
  weir access deny App --user bert consume                  deny bert, whatever groups he is in
  weir access remove MyCompany.App                          return to the default list

Lists bind unprivileged users of the system's daemon. Root and the user that the daemon runs as may always do everything. Your \
own daemon accepts no other users, so lists have no effect there.";

/// Arguments of `weir access`.
#[derive(Debug, Args)]
#[command(after_long_help = ACCESS_HELP, after_help = "weir access --help lists objects and rights, with examples")]
pub(crate) struct AccessArgs {
    #[command(subcommand)]
    pub(crate) verb: AccessVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccessVerb {
    /// List the objects that have an access list of their own
    List(AccessListArgs),
    /// Show the access list that applies to an object
    Show(AccessShowArgs),
    /// Grant rights on an object to users or groups
    #[command(after_long_help = ACCESS_HELP)]
    Grant(AccessEntryArgs),
    /// Deny rights on an object; a denial overrides every grant
    #[command(after_long_help = ACCESS_HELP)]
    Deny(AccessEntryArgs),
    /// Remove the access list of an object, so that the default applies again
    Remove(AccessRemoveArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AccessListArgs {
    /// Print one JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

#[derive(Debug, Args)]
pub(crate) struct AccessShowArgs {
    /// Session, provider or group, by name or id; default: the list for all others
    pub(crate) object: String,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("who").required(true).multiple(true).args(["users", "groups", "everyone"]))]
pub(crate) struct AccessEntryArgs {
    /// Session, provider or group, by name or id; default: the list for all others
    pub(crate) object: String,
    /// Rights: query, create-realtime, create-file, enable, log, consume, register, join-group,
    /// kernel-logger, change-access, all, or a number
    #[arg(required = true, value_name = "RIGHT", value_parser = parse_right)]
    pub(crate) rights: Vec<Rights>,
    /// User, by name or number; may be repeated
    #[arg(long = "user", value_name = "NAME|UID")]
    pub(crate) users: Vec<String>,
    /// Members of this group, by name or number; may be repeated
    #[arg(long = "group", value_name = "NAME|GID")]
    pub(crate) groups: Vec<String>,
    /// All users
    #[arg(long)]
    pub(crate) everyone: bool,
    /// Replace the whole list instead of adding to it
    #[arg(long)]
    pub(crate) only: bool,
    /// Use the system's daemon [default for root, and for other users if it
    /// runs and admits them; otherwise your own daemon]
    #[arg(long, help_heading = DAEMON_HEADING)]
    pub(crate) system: bool,
}

impl AccessEntryArgs {
    /// Returns which daemon to use; `--user` names a user account here, not a daemon.
    pub(crate) fn daemon_choice(&self) -> DaemonChoice {
        DaemonChoice { system: self.system, user: false }
    }
}

#[derive(Debug, Args)]
pub(crate) struct AccessRemoveArgs {
    /// Session, provider or group, by name or id; default: return to the built-in list for all
    /// others
    pub(crate) object: String,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

/// Parses a right: short name, published name, or number.
fn parse_right(text: &str) -> Result<Rights, String> {
    if text.eq_ignore_ascii_case("all") {
        return Ok(Rights::WMIGUID_ALL_ACCESS);
    }
    let is_text = |name: &str| name.eq_ignore_ascii_case(text);
    if let Some((right, ..)) = Rights::NAMED.iter().find(|(_, name, short)| is_text(name) || is_text(short)) {
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
            "a right is one of {}, all, or a number such as 0x80 (known bits: {all:#x})",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_parse_from_short_name_published_name_and_number() {
        for text in ["enable", "Enable", "TRACELOG_GUID_ENABLE", "tracelog_guid_enable", "0x80", "128"] {
            assert_eq!(parse_right(text), Ok(Rights::TRACELOG_GUID_ENABLE), "{text}");
        }
        assert_eq!(parse_right("all"), Ok(Rights::WMIGUID_ALL_ACCESS));
        for text in ["", "0", "0x80000000", "0x2080", "0x", "enables", "0x100000000", "-1"] {
            assert!(parse_right(text).unwrap_err().contains("create-realtime"), "{text}");
        }
    }
}
