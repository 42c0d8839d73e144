//! `weir top`: live rates by provider, event and process, latencies, and kernel events.
//!
//! ```text
//!   live session ──feed──▶ events, kernel: tables ──page──▶ lines ──view──▶ terminal
//!   keys, signals, losses ──Message──▶ app: the loop ──state──▶ actions
//! ```
//!
//! | File | Contents |
//! |---|---|
//! | `history`, `table`, `names` | amounts by second; rows with a limit; names for the screen |
//! | `events`, `kernel` | the counts, without a terminal |
//! | `page`, `view` | the lines of a table; the screen |
//! | `state`, `requests` | what the user has chosen; the enables of the session |
//! | `feed` | sessions, the threads that read them, and what threads report |
//! | `terminal`, `notes` | the terminal and its state before; standard error meanwhile |
//! | `app` | the loop |

mod app;
mod events;
mod feed;
mod history;
mod kernel;
mod names;
mod notes;
mod page;
mod requests;
mod state;
mod table;
mod terminal;
mod view;

use std::io::IsTerminal;
use std::sync::mpsc::channel;

use anyhow::{Result, anyhow, bail};

use crate::cli::{KERNEL_TARGET, ProviderArgs, TopArgs};
use crate::exit::CommandOutcome;
use crate::grammar::{EnableRequest, parse_provider, parse_providers};

pub(super) fn run(options: &TopArgs) -> Result<CommandOutcome> {
    let has_kernel = options.targets.iter().any(|target| target == KERNEL_TARGET);
    let requests = resolve_requests(options, has_kernel)?;
    if !std::io::stdout().is_terminal() {
        bail!("weir top needs a terminal; weir watch prints events to pipes and files");
    }
    let (messages, incoming) = channel();
    let context = feed::FeedContext {
        daemon_choice: options.daemon_choice,
        schemas: options.schemas.files(),
        messages,
    };
    let mut app = app::App::start(context, requests, has_kernel)?;
    let shown = app.run_screen(&incoming);
    app.finish(shown, &incoming)
}

/// Returns the providers to enable: those that are named, or all if nothing is named.
fn resolve_requests(options: &TopArgs, has_kernel: bool) -> Result<Vec<EnableRequest>> {
    let to_error = |reason: String| anyhow!("{reason}");
    let names = options.targets.iter().filter(|target| *target != KERNEL_TARGET);
    let provider = names.map(|name| parse_providers(name)).collect::<Result<_, _>>().map_err(to_error)?;
    let providers = ProviderArgs { provider, provider_file: Vec::new() };
    let mut requests = Vec::new();
    for request in providers.resolve(&options.schemas.manifest)? {
        requests::add_request(&mut requests, request);
    }
    if requests.is_empty() && !has_kernel {
        requests.push(parse_provider("*").map_err(to_error)?);
    }
    Ok(requests)
}
