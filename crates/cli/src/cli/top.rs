//! Command-line arguments of `weir top`.

use clap::Args;

use super::{DaemonChoice, SchemaArgs};
use crate::grammar::{PROVIDER_SYNTAX, parse_providers};

const TOP_EXAMPLES: &str = "\
Examples:
  weir top                            all providers, in all processes
  weir top MyCompany.App              one provider
  weir top 'MyCompany.*::warning'     some providers, level warning or more severe
  weir top kernel                     processor time, switches, disk and network of processes

Keys: ? shows all of them. Tab shows providers, events, processes, latency, kernel; s sorts,
/ filters, p pauses, e enables a provider, l sets its level, r records, q quits.

A weir that was built without the cargo feature top refuses this command.";

/// The argument that stands for kernel events.
pub(crate) const KERNEL_TARGET: &str = "kernel";

#[derive(Debug, Args)]
#[command(after_help = format!("{TOP_EXAMPLES}\n\n{PROVIDER_SYNTAX}"))]
pub(crate) struct TopArgs {
    /// Provider to enable, or kernel for kernel events of all processes [default: all providers]
    #[arg(value_name = "PROVIDER", value_parser = parse_target)]
    pub(crate) targets: Vec<String>,
    #[command(flatten)]
    pub(crate) daemon_choice: DaemonChoice,
    #[command(flatten)]
    pub(crate) schemas: SchemaArgs,
}

/// Checks the syntax. The providers are resolved when the manifests are loaded.
fn parse_target(text: &str) -> Result<String, String> {
    if text != KERNEL_TARGET {
        parse_providers(text)?;
    }
    Ok(text.to_owned())
}
