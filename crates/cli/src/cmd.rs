//! The subcommands of `weir`, one file each, with two exceptions: `control` contains the commands
//! that send one request about a session, and `enable` those that send requests to its providers.

mod access;
mod ask;
mod autologger;
mod cc;
mod check;
mod command_result;
mod completions;
mod control;
mod convert;
mod daemon;
mod demo;
mod doctor;
mod dump;
mod enable;
mod error;
mod flame;
mod info;
mod list;
mod man;
mod mark;
mod mc;
mod profiles;
mod providers;
mod record;
mod relog;
mod repair;
mod report;
mod shims;
mod sql;
mod start;
mod stats;
mod view;
mod watch;

use anyhow::Result;

use crate::cli::{Cli, Command};
use crate::exit::CommandOutcome;
use crate::recordings;

/// Runs the subcommand.
pub(crate) fn run(cli: Cli) -> Result<CommandOutcome> {
    match cli.command {
        Command::Record(mut options) => {
            record::apply_profile_buffers(&mut options);
            record::run(&options)
        }
        Command::Profiles(options) => profiles::run(&options),
        Command::Watch(options) => watch::run(&options),
        Command::Start(options) => command_result::print_result(options.json, start::run(&options)),
        Command::Stop(options) => command_result::print_result(options.json, control::stop(&options)),
        Command::Query(options) => control::query(&options),
        Command::List(options) => list::run(&options),
        Command::Providers(options) => providers::run(&options),
        Command::Enable(options) => {
            command_result::print_result(options.targets.json, enable::enable(&options))
        }
        Command::Disable(options) => {
            command_result::print_result(options.targets.json, enable::disable(&options.targets))
        }
        Command::CaptureState(options) => {
            let targets = &options.targets;
            let result = enable::capture_state(targets, |names| targets.resolve(names));
            command_result::print_result(targets.json, result)
        }
        Command::Update(options) => command_result::print_result(options.json, control::update(&options)),
        Command::Flush(options) => command_result::print_result(options.json, control::flush(&options)),
        Command::Increment(options) => {
            let target = control::SessionTarget { name: &options.name, daemon_choice: options.daemon_choice };
            command_result::print_result(options.json, control::switch_to_next_file(target))
        }
        Command::ConvertToRealtime(options) => {
            let target = control::SessionTarget { name: &options.name, daemon_choice: options.daemon_choice };
            command_result::print_result(options.json, control::convert_to_real_time(target))
        }
        Command::Mark(options) => mark::run(&options),
        Command::Access(options) => access::run(&options),
        Command::Ask(options) => ask::run(&options),
        Command::Info(mut options) => {
            recordings::choose_newest_if_empty(&mut options.files);
            info::run(&options)
        }
        Command::Dump(mut options) => {
            recordings::choose_newest_if_empty(&mut options.files);
            dump::run(&options)
        }
        Command::Convert(mut options) => {
            recordings::choose_newest_if_empty(&mut options.files);
            convert::run(&options)
        }
        Command::Stats(mut options) => {
            recordings::choose_newest_if_empty(&mut options.files);
            stats::run(&options)
        }
        Command::Report(mut options) => {
            recordings::choose_newest_if_empty(options.files_mut());
            report::run(*options)
        }
        Command::Flame(mut options) => {
            recordings::choose_newest_if_empty(&mut options.selection.files);
            flame::run(&options)
        }
        Command::View(mut options) => {
            recordings::choose_newest_if_empty(&mut options.files);
            view::run(&options)
        }
        Command::Sql(options) => sql::run(&options),
        Command::Check(options) => check::run(&options),
        Command::Repair(options) => repair::run(&options),
        Command::Relog(options) => {
            recordings::warn_of_repeated(&options.files.files);
            relog::run(&options)
        }
        Command::Mc(options) => mc::run(&options),
        Command::Cc(options) => cc::run(&options),
        Command::Error(options) => error::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Shims(options) => shims::run(&options),
        Command::Demo(options) => demo::run(&options),
        Command::DemoShop(options) => demo::run_shop(&options),
        Command::Autologger(options) => autologger::run(&options.verb),
        Command::Daemon(options) => daemon::run(&options),
        Command::Completions(options) => completions::run(&options),
        Command::Man(options) => man::run(&options),
    }
}
