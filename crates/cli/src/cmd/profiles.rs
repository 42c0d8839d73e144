//! `weir profiles`: lists and explains profiles.

use anyhow::Result;

use crate::cli::ProfilesArgs;
use crate::exit::{self, CommandOutcome};
use crate::output::print_text;
use crate::profiles::{self, Profile};
use crate::text::{escape, escape_path, format_number, format_table, quote_for_shell};

/// Exit status if a file of a profile is invalid; the other profiles are listed.
const INVALID_FILE: u8 = 1;

pub(super) fn run(options: &ProfilesArgs) -> Result<CommandOutcome> {
    if let Some(name) = &options.name {
        print_text(&format_profile(&profiles::find(name, false)?))?;
        return Ok(CommandOutcome::Fine);
    }
    let list = profiles::list();
    print_text(&format_list(&list.profiles))?;
    list.errors.iter().for_each(exit::print_error);
    Ok(if list.errors.is_empty() { CommandOutcome::Fine } else { CommandOutcome::Status(INVALID_FILE) })
}

fn format_list(profiles: &[Profile]) -> String {
    let mut rows = vec![["Profile".to_owned(), "Records".to_owned()]];
    rows.extend(profiles.iter().map(|profile| [escape(&profile.name), escape(&profile.description)]));
    let folder = profiles::user_folder().map_or_else(String::new, |folder| {
        format!("\nYour own profiles: {}/NAME.toml (weir profiles --help)\n", escape_path(&folder))
    });
    format!("{}{folder}", format_table(&rows, &[false, false]))
}

fn format_profile(profile: &Profile) -> String {
    let name = escape(&profile.name);
    let mut page = format!("{name}: {}\n", escape(&profile.description));
    if let Some(file) = &profile.file {
        page.push_str(&format!("  file       {}\n", escape_path(file)));
    }
    let mut options = String::new();
    for provider in &profile.providers {
        page.push_str(&format!("  provider   {}\n", escape(provider)));
        options.push_str(&format!(" -p {}", quote_for_shell(provider)));
    }
    if !profile.kernel.is_empty() {
        let optional = if profile.is_kernel_optional { " (left out where not permitted)" } else { "" };
        page.push_str(&format!("  kernel     {}{optional}\n", escape(&profile.kernel)));
        options.push_str(&format!(" --kernel {}", quote_for_shell(&profile.kernel)));
    }
    if !profile.stacks.is_empty() {
        page.push_str(&format!("  stacks     {}\n", escape(&profile.stacks)));
        options.push_str(&format!(" --stacks {}", quote_for_shell(&profile.stacks)));
    }
    if let Some(buffers) = profile.buffers {
        let place =
            if buffers.is_in_memory { "in memory, written at the end" } else { "written to the file" };
        let format_size =
            |kib: u64| if kib == 0 { "default".to_owned() } else { format!("{} KiB", format_number(kib)) };
        let (each, total) = (format_size(buffers.buffer_kib.into()), format_size(buffers.total_kib));
        page.push_str(&format!("  buffers    {each} each, {total} in total, {place}\n"));
        if let Some(memory) = buffers.memory() {
            options.push_str(&format!(" --flight {}K", memory.kib()));
        }
    }
    for note in &profile.notes {
        page.push_str(&format!("  left out   {}\n", escape(note)));
    }
    let events = profiles::resolve(std::slice::from_ref(&profile.name), false).ok();
    match events.and_then(|events| events.kernel) {
        Some(kernel) if kernel.has_wakeups() => {
            page.push_str("Without CAP_PERFMON: no wakeups, and call stacks of samples only\n");
        }
        Some(kernel) if kernel.has_switches() => {
            page.push_str("Without CAP_PERFMON: call stacks of samples only\n");
        }
        _ => {}
    }
    let command = quote_for_shell(&profile.name);
    page.push_str(&format!("The same with options: weir record{options} -- CMD\n"));
    page.push_str(&format!("Use it: weir record --profile {command} -- CMD\n"));
    page
}
