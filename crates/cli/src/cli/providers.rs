//! Providers as typed, and the flags of the verbs that are about them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgGroup, Args};

use super::number::pid;
use super::{Whose, invalid};
use crate::filter::parse_duration;
use crate::grammar::{
    GRAMMAR, Known, Mask, Mistake, Several, Severity, Unusable, Wanted, parse_keywords, parse_providers,
    parse_severity, read_file,
};

/// Providers that a verb is given.
#[derive(Debug, Default, Args)]
pub(crate) struct Providers {
    /// This provider, in every process that has it; may be repeated, and may be a list
    #[arg(short, long, value_name = "PROVIDER", value_parser = parse_providers)]
    pub(crate) provider: Vec<Several>,
    /// The providers of a file, one a line (-pf FILE, as logman has it); # begins a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) provider_file: Vec<PathBuf>,
}

impl Providers {
    /// What is wanted, with the names that these manifests give; what is wrong ends the program.
    pub(crate) fn wanted(&self, manifests: &[PathBuf]) -> Result<Vec<Wanted>> {
        wanted(&self.provider, &self.provider_file, &Known::load(manifests)?)
    }
}

fn wanted(typed: &[Several], files: &[PathBuf], known: &Known) -> Result<Vec<Wanted>> {
    let mut all = Vec::new();
    for spelled in typed.iter().flat_map(|Several(list)| list) {
        all.push(spelled.resolve(known).unwrap_or_else(|mistake| invalid(&mistake.to_string())));
    }
    for file in files {
        match read_file(file, known) {
            Ok(wanted) => all.extend(wanted),
            Err(Unusable::Wrong(why)) => invalid(&why),
            Err(Unusable::Unread(error)) => return Err(error),
        }
    }
    Ok(all)
}

/// The arguments, with `-pf` as logman users write it in the spelling that is understood.
pub(crate) fn with_long_flags(
    arguments: impl Iterator<Item = std::ffi::OsString>,
) -> impl Iterator<Item = std::ffi::OsString> {
    let (mut is_ours, mut is_text) = (true, false);
    arguments.map(move |argument| {
        // What follows belongs to the command that is run.
        is_ours &= argument != "--";
        let is_meant = is_ours && !is_text && argument == "-pf";
        // The one flag whose value may look like a flag.
        is_text = argument == "--grep";
        if is_meant { "--provider-file".into() } else { argument }
    })
}

const AFTER_ENABLE: &str = "\
Examples:
  weir enable App MyCompany.App                         everything, in every process that has it
  weir enable App MyCompany.App:0x10:warning            these keywords, this level or more severe
  weir enable App MyCompany.App --level 3 --any 0x10    the same
  weir enable App MyCompany.App --manifest app.man --keywords 'Net|Disk'
                                                        the same by name
  weir enable App MyCompany.App --pid 1234              in one process
  weir enable App 'MyCompany.App@ids=1,2-5@stack'       some events, with call stacks
  weir enable App -pf providers.txt                     all that a file lists";

#[derive(Debug, Args)]
#[command(
    after_help = GRAMMAR,
    after_long_help = format!("{AFTER_ENABLE}\n\n{GRAMMAR}"),
    override_usage = "weir enable [OPTIONS] <NAME> <PROVIDER>...",
    group = ArgGroup::new("enabled").required(true).multiple(true).args(["named", "provider", "provider_file"]),
)]
pub(crate) struct Enable {
    /// Only events of this level or more severe: 0 to 255, critical, error, warning, info, verbose, or a name of --manifest [default: all]
    #[arg(long, value_parser = parse_severity)]
    pub(crate) level: Option<Severity>,
    /// Only events with any of these keywords: bits (0x10), or names of --manifest (Net|Disk) [default: all]
    #[arg(long, visible_alias = "any", value_name = "KEYWORDS", value_parser = parse_keywords)]
    pub(crate) keywords: Option<Mask>,
    /// Only events with all of these keywords
    #[arg(long, value_name = "KEYWORDS", value_parser = parse_keywords)]
    pub(crate) all: Option<Mask>,
    /// Only in these processes
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = pid)]
    pub(crate) pid: Vec<u32>,
    // The last, for its last heading goes on.
    #[command(flatten)]
    pub(crate) which: Which,
}

impl Enable {
    /// What is wanted; flags go before what the providers say themselves.
    pub(crate) fn wanted(&self, known: &Known) -> Result<Vec<Wanted>> {
        let mut all = self.which.wanted(known)?;
        for wanted in &mut all {
            self.overrule(wanted, known).unwrap_or_else(|mistake| invalid(&mistake.to_string()));
        }
        Ok(all)
    }

    fn overrule(&self, wanted: &mut Wanted, known: &Known) -> Result<(), Mistake> {
        let mask = |mask: &Mask| known.mask(wanted.guid, mask);
        let any = self.keywords.as_ref().map(mask).transpose()?;
        let all = self.all.as_ref().map(mask).transpose()?;
        let level = self.level.as_ref().map(|level| known.severity(wanted.guid, level)).transpose()?;
        wanted.level = level.unwrap_or(wanted.level);
        wanted.keywords = any.unwrap_or(wanted.keywords);
        wanted.all = all.unwrap_or(wanted.all);
        Ok(())
    }
}

const AFTER_DISABLE: &str = "\
Examples:
  weir disable App MyCompany.App           its events go to the session no more
  weir disable App -p A,B -p C             several at once";

/// Which providers of a session; what is wanted of them has been said before, or does not matter.
#[derive(Debug, Args)]
#[command(
    after_help = GRAMMAR,
    after_long_help = format!("{AFTER_DISABLE}\n\n{GRAMMAR}"),
    override_usage = "weir disable [OPTIONS] <NAME> <PROVIDER>...",
    group = ArgGroup::new("disabled").required(true).multiple(true).args(["named", "provider", "provider_file"]),
)]
pub(crate) struct Disable {
    #[command(flatten)]
    pub(crate) which: Which,
}

const AFTER_CAPTURE: &str = "\
Examples:
  weir capture-state App -p MyCompany.App       it writes what it has open and configured, as events
  weir capture-state App MyCompany.App::info    level and keywords tell it how much

A provider need not have anything to say.";

#[derive(Debug, Args)]
#[command(
    after_help = GRAMMAR,
    after_long_help = format!("{AFTER_CAPTURE}\n\n{GRAMMAR}"),
    override_usage = "weir capture-state [OPTIONS] <NAME> <PROVIDER>...",
    group = ArgGroup::new("asked").required(true).multiple(true).args(["named", "provider", "provider_file"]),
)]
pub(crate) struct CaptureState {
    #[command(flatten)]
    pub(crate) which: Which,
}

/// Providers in a session.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// The session, by name
    pub(crate) name: String,
    /// The provider; -p PROVIDER does the same
    #[arg(value_name = "PROVIDER", value_parser = parse_providers)]
    pub(crate) named: Vec<Several>,
    #[command(flatten)]
    pub(crate) providers: Providers,
    /// Manifest (XML), or PE or ELF file with a compiled one, or a folder of them: names of providers and keywords
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifest: Vec<PathBuf>,
    /// Wait so long for the processes to take it up: 2s, 500ms; 0s: do not wait
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// What came of it as one JSON object; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

impl Which {
    /// What is wanted, by what is known of names.
    pub(crate) fn wanted(&self, known: &Known) -> Result<Vec<Wanted>> {
        let mut all = wanted(&self.named, &[], known)?;
        all.extend(wanted(&self.providers.provider, &self.providers.provider_file, known)?);
        Ok(all)
    }
}

const AFTER_PROVIDERS: &str = "\
Examples:
  weir providers                     all that running programs have registered, or sessions have enabled
  weir providers MyCompany.App       one: its processes with user and program, and who enables it
  weir providers 'MyCompany.*'       by name (* and ? as wildcards), or by GUID
  weir providers --json | jq -r 'select(.pids != []).name'";

#[derive(Debug, Args)]
#[command(after_help = AFTER_PROVIDERS)]
pub(crate) struct ListProviders {
    /// Only those of this name (without regard to case, * and ? as wildcards) or GUID
    pub(crate) pattern: Option<String>,
    /// One JSON object a line; docs/cli-json.md has the names
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) whose: Whose,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flag_of_logman_is_understood_where_it_is_one() {
        for (typed, understood) in [
            ("weir record -pf a.txt -o x", "weir record --provider-file a.txt -o x"),
            ("weir record -p f -o x", "weir record -p f -o x"),
            ("weir watch App --grep -pf -pf a", "weir watch App --grep -pf --provider-file a"),
            ("weir record -o x -- ./app -pf", "weir record -o x -- ./app -pf"),
        ] {
            let words = with_long_flags(typed.split(' ').map(Into::into));
            let words: Vec<_> = words.map(|word| word.into_string().unwrap()).collect();
            assert_eq!(words.join(" "), understood);
        }
    }
}
