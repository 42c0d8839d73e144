//! Command-line arguments that name providers, and those of the commands that act on providers.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgGroup, Args};

use super::number::parse_pid;
use super::{DaemonChoice, exit_with_invalid_value};
use crate::grammar::{
    ArgumentError, EnableRequest, KeywordMask, LevelOption, ManifestNames, PROVIDER_SYNTAX,
    ProviderFileError, ProviderList, parse_keywords, parse_level_option, parse_providers, read_provider_file,
};
use crate::text::parse_duration;

/// Providers given with `-p` and `--provider-file`.
#[derive(Debug, Default, Args)]
pub(crate) struct ProviderArgs {
    /// Provider to enable, in every process that registers it; may be repeated, and may be a list
    /// separated by commas
    #[arg(short, long, value_name = "PROVIDER", value_parser = parse_providers)]
    pub(crate) provider: Vec<ProviderList>,
    /// File with providers, one per line (also -pf FILE, as in logman); # begins a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) provider_file: Vec<PathBuf>,
}

impl ProviderArgs {
    /// Resolves the providers with the names that these manifests define. An invalid argument ends
    /// the program with a usage error.
    pub(crate) fn resolve(&self, manifests: &[PathBuf]) -> Result<Vec<EnableRequest>> {
        resolve_providers(&self.provider, &self.provider_file, &ManifestNames::load(manifests)?)
    }
}

fn resolve_providers(
    typed: &[ProviderList],
    files: &[PathBuf],
    names: &ManifestNames,
) -> Result<Vec<EnableRequest>> {
    let mut requests = Vec::new();
    for provider in typed.iter().flat_map(|ProviderList(list)| list) {
        requests.push(
            provider.resolve(names).unwrap_or_else(|error| exit_with_invalid_value(&error.to_string())),
        );
    }
    for file in files {
        match read_provider_file(file, names) {
            Ok(from_file) => requests.extend(from_file),
            Err(ProviderFileError::Invalid(reason)) => exit_with_invalid_value(&reason),
            Err(ProviderFileError::Unreadable(error)) => return Err(error),
        }
    }
    Ok(requests)
}

/// Returns the arguments with logman's `-pf` replaced with `--provider-file`.
pub(crate) fn expand_logman_flags(
    arguments: impl Iterator<Item = std::ffi::OsString>,
) -> impl Iterator<Item = std::ffi::OsString> {
    let mut is_weir_argument = true;
    let mut is_grep_text = false;
    arguments.map(move |argument| {
        // Arguments after `--` belong to the command that is run.
        is_weir_argument &= argument != "--";
        let is_provider_file = is_weir_argument && !is_grep_text && argument == "-pf";
        // Of the options whose value may begin with a hyphen, only `--grep` can have the value
        // `-pf`: the others take times.
        is_grep_text = argument == "--grep";
        if is_provider_file { "--provider-file".into() } else { argument }
    })
}

const AFTER_ENABLE: &str = "\
Examples:
  weir enable App MyCompany.App                         all events, in every process
  weir enable App MyCompany.App:0x10:warning            these keywords, this level or more severe
  weir enable App MyCompany.App --level 3 --any 0x10    the same with options
  weir enable App MyCompany.App --manifest app.man --keywords 'Net|Disk'
                                                        keywords by name, all levels
  weir enable App MyCompany.App --pid 1234              in one process only
  weir enable App 'MyCompany.App@ids=1,2-5@stack'       some events, with call stacks
  weir enable App -pf providers.txt                     every provider that a file lists
  weir enable App MyCompany.App --capture-state         ask it to write its state as events";

#[derive(Debug, Args)]
#[command(
    after_help = PROVIDER_SYNTAX,
    after_long_help = format!("{AFTER_ENABLE}\n\n{PROVIDER_SYNTAX}"),
    override_usage = "weir enable [OPTIONS] <NAME> <PROVIDER>...",
    group = ArgGroup::new("enabled")
        .required(true)
        .multiple(true)
        .args(["positional_providers", "provider", "provider_file"]),
)]
pub(crate) struct EnableArgs {
    /// Enable only events of this level or more severe: 0 to 255, critical, error, warning, info,
    /// verbose, or a name of --manifest [default: all]
    #[arg(long, value_parser = parse_level_option)]
    pub(crate) level: Option<LevelOption>,
    /// Enable only events with any of these keywords: bits (0x10), or names of --manifest
    /// (Net|Disk) [default: all]
    #[arg(long, visible_alias = "any", value_name = "KEYWORDS", value_parser = parse_keywords)]
    pub(crate) keywords: Option<KeywordMask>,
    /// Enable only events with all of these keywords
    #[arg(long, value_name = "KEYWORDS", value_parser = parse_keywords)]
    pub(crate) all: Option<KeywordMask>,
    /// Enable the provider only in these processes; separated by commas, may be repeated
    #[arg(long, value_name = "PID", value_delimiter = ',', value_parser = parse_pid)]
    pub(crate) pid: Vec<u32>,
    /// Change nothing; ask the providers to write their current state as events (a rundown). Level
    /// and keywords limit how much they write; a provider may have no state
    #[arg(long, conflicts_with = "pid")]
    pub(crate) capture_state: bool,
    // Flattened last, because its help heading also applies to arguments that follow.
    #[command(flatten)]
    pub(crate) targets: SessionProviderArgs,
}

impl EnableArgs {
    /// Resolves the providers. Options override the level and keywords of a provider argument.
    pub(crate) fn resolve(&self, names: &ManifestNames) -> Result<Vec<EnableRequest>> {
        let mut requests = self.targets.resolve(names)?;
        for request in &mut requests {
            self.override_level_and_keywords(request, names)
                .unwrap_or_else(|error| exit_with_invalid_value(&error.to_string()));
        }
        Ok(requests)
    }

    fn override_level_and_keywords(
        &self,
        request: &mut EnableRequest,
        names: &ManifestNames,
    ) -> Result<(), ArgumentError> {
        let resolve_mask = |mask: &KeywordMask| names.resolve_mask(request.guid, mask);
        let any = self.keywords.as_ref().map(resolve_mask).transpose()?;
        let all = self.all.as_ref().map(resolve_mask).transpose()?;
        let level =
            self.level.as_ref().map(|level| names.resolve_level_option(request.guid, level)).transpose()?;
        request.level = level.unwrap_or(request.level);
        request.keywords = any.unwrap_or(request.keywords);
        request.all_keywords = all.unwrap_or(request.all_keywords);
        Ok(())
    }
}

const AFTER_DISABLE: &str = "\
Examples:
  weir disable App MyCompany.App           stop recording its events in the session
  weir disable App -p A,B -p C             disable several providers at once";

/// Arguments of `weir disable`, which ignores level, keywords and options of its providers.
#[derive(Debug, Args)]
#[command(
    after_help = PROVIDER_SYNTAX,
    after_long_help = format!("{AFTER_DISABLE}\n\n{PROVIDER_SYNTAX}"),
    override_usage = "weir disable [OPTIONS] <NAME> <PROVIDER>...",
    group = ArgGroup::new("disabled")
        .required(true)
        .multiple(true)
        .args(["positional_providers", "provider", "provider_file"]),
)]
pub(crate) struct DisableArgs {
    #[command(flatten)]
    pub(crate) targets: SessionProviderArgs,
}

const AFTER_CAPTURE: &str = "\
Examples:
  weir capture-state App -p MyCompany.App       ask the provider to write its state as events
  weir capture-state App MyCompany.App::info    level and keywords limit how much it writes

A provider may have no state to write.";

#[derive(Debug, Args)]
#[command(
    after_help = PROVIDER_SYNTAX,
    after_long_help = format!("{AFTER_CAPTURE}\n\n{PROVIDER_SYNTAX}"),
    override_usage = "weir capture-state [OPTIONS] <NAME> <PROVIDER>...",
    group = ArgGroup::new("asked")
        .required(true)
        .multiple(true)
        .args(["positional_providers", "provider", "provider_file"]),
)]
pub(crate) struct CaptureStateArgs {
    #[command(flatten)]
    pub(crate) targets: SessionProviderArgs,
}

/// A session, providers, and how long to wait for the processes.
#[derive(Debug, Args)]
pub(crate) struct SessionProviderArgs {
    /// Name of the session
    pub(crate) name: String,
    /// Provider, as with -p
    #[arg(value_name = "PROVIDER", value_parser = parse_providers)]
    pub(crate) positional_providers: Vec<ProviderList>,
    #[command(flatten)]
    pub(crate) providers: ProviderArgs,
    /// Instrumentation manifest (XML), a PE or ELF file with a compiled one, or a folder of these:
    /// defines names of providers and keywords
    #[arg(long, value_name = "FILE|DIR")]
    pub(crate) manifest: Vec<PathBuf>,
    /// Wait this long for the processes to apply the change: 2s, 500ms; 0s: do not wait
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub(crate) timeout: Duration,
    /// Print the result as one JSON object; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

impl SessionProviderArgs {
    /// Resolves the providers with the names that manifests define.
    pub(crate) fn resolve(&self, names: &ManifestNames) -> Result<Vec<EnableRequest>> {
        let mut requests = resolve_providers(&self.positional_providers, &[], names)?;
        requests.extend(resolve_providers(&self.providers.provider, &self.providers.provider_file, names)?);
        Ok(requests)
    }
}

const AFTER_PROVIDERS: &str = "\
Examples:
  weir providers                     list what running programs registered or sessions enabled
  weir providers MyCompany.App       show one: its processes, and the sessions that enable it
  weir providers 'MyCompany.*'       filter by name (wildcards * and ?), or by GUID
  weir providers --json | jq -r 'select(.pids != []).name'";

#[derive(Debug, Args)]
#[command(after_help = AFTER_PROVIDERS)]
pub(crate) struct ListProvidersArgs {
    /// Show only providers of this name (case-insensitive, wildcards * and ?) or GUID
    pub(crate) pattern: Option<String>,
    /// Print one JSON object per line; docs/cli-json.md lists the fields
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pf_of_logman_is_replaced_only_where_it_is_an_option() {
        for (typed, expanded) in [
            ("weir record -pf a.txt -o x", "weir record --provider-file a.txt -o x"),
            ("weir record -p f -o x", "weir record -p f -o x"),
            ("weir watch App --grep -pf -pf a", "weir watch App --grep -pf --provider-file a"),
            ("weir record -o x -- ./app -pf", "weir record -o x -- ./app -pf"),
        ] {
            let words = expand_logman_flags(typed.split(' ').map(Into::into));
            let words: Vec<_> = words.map(|word| word.into_string().unwrap()).collect();
            assert_eq!(words.join(" "), expanded);
        }
    }
}
