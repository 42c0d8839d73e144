//! What `weir record` records, in which processes and to which file.

use std::path::{Path, PathBuf};

use anstream::eprintln;
use anyhow::Result;
use traceweir::session::{ProcessTree, SessionSummary};
use traceweir::{Error, Status};
use traceweir_format::kernel::providers::kernel_provider_name;
use traceweir_format::time::FileTime;

use crate::cli::{self, KernelEvents, RecordArgs};
use crate::existing_output;
use crate::grammar::{EnableRequest, KernelSelection};
use crate::profiles::{self, DEFAULT_PROFILE};
use crate::recordings;
use crate::sessions::{self, SessionPlan, StartedSession};
use crate::text::{format_count, format_number};

/// Sets the options of buffers that profiles ask for and the command line does not give. Errors of
/// profiles are reported when their events are resolved.
pub(in crate::cmd) fn apply_profile_buffers(options: &mut RecordArgs) {
    let prefers_memory = options.flight.is_some();
    profiles::print_notes(&options.profile, prefers_memory);
    let events = profiles::resolve(&options.profile, prefers_memory);
    let Some(buffers) = events.ok().and_then(|events| events.buffers) else { return };
    let shape = &mut options.shape;
    let has_destination = options.flight.is_some() || shape.mode_bits() != 0 || shape.max_size.is_some();
    match buffers.memory().filter(|_| !has_destination) {
        Some(memory) => {
            options.flight = Some(memory);
            shape.buffer_size = shape.buffer_size.or(Some(buffers.buffer_kib).filter(|kib| *kib != 0));
        }
        None if options.flight.is_none() => buffers.fill_in(shape),
        None => {}
    }
}

/// The events to record.
pub(super) struct RecordedEvents {
    pub(super) requests: Vec<EnableRequest>,
    /// The requests that the user named with `-p`; warnings are about these.
    pub(super) named_requests: Vec<EnableRequest>,
    kernel: KernelEvents,
    /// Whether the recording does without kernel events if the machine refuses them.
    is_kernel_optional: bool,
}

impl RecordedEvents {
    /// Resolves providers, kernel events and profiles. Options that name nothing to record end the
    /// program with a usage error.
    pub(super) fn resolve(options: &RecordArgs) -> Result<Self> {
        cli::check_pid_count(&options.pid);
        let mut named_requests = options.providers.resolve(&options.manifest)?;
        let has_choice =
            !named_requests.is_empty() || options.kernel.kernel.is_some() || !options.profile.is_empty();
        let has_scope = options.all || !options.pid.is_empty() || !options.command.is_empty();
        if !has_choice && !has_scope {
            cli::exit_with_conflict(
                "name a program (-- CMD), processes (--pid PID), providers (--provider NAME) or kernel events (--kernel cpu); -a records the whole machine",
            );
        }
        let profile = match has_choice {
            true => profiles::resolve(&options.profile, options.flight.is_some())?,
            false => profiles::resolve(&[DEFAULT_PROFILE.to_owned()], false)?,
        };
        let mut kernel = options.kernel.clone();
        kernel.add(profile.kernel.filter(|_| !options.no_kernel));
        if kernel.kernel.is_some() {
            kernel.stacks = kernel.stacks.or(profile.stacks);
        }
        kernel.check_used();
        let is_kernel_optional = profile.is_kernel_optional && options.kernel.kernel.is_none();
        let roots = tree_roots(options);
        let mut requests = named_requests.clone();
        requests.extend(profile.providers);
        for request in requests.iter_mut().chain(&mut named_requests) {
            request.set_trees(&roots);
        }
        let events = Self { requests, named_requests, kernel, is_kernel_optional };
        if events.requests.is_empty() && events.kernel.kernel.is_none() {
            cli::exit_with_conflict("--no-kernel leaves nothing to record: name providers with -p");
        }
        events.check_kernel_providers(options);
        events.warn_of_missing_images();
        Ok(events)
    }

    /// Warns if stacks are recorded without the images that name their functions.
    fn warn_of_missing_images(&self) {
        let records_images = self.kernel.kernel.as_ref().is_some_and(KernelSelection::has_images);
        if !records_images && self.requests.iter().any(EnableRequest::has_stacks) {
            eprintln!(
                "warning: the stacks will have addresses without names: --kernel image_load records the files of code"
            );
        }
    }

    /// Warns if `--pid` is given with manifest providers of the kernel, whose events always
    /// cover the whole machine. If nothing else is recorded, that is a usage error.
    fn check_kernel_providers(&self, options: &RecordArgs) {
        let covers_machine = |request: &EnableRequest| kernel_provider_name(&request.guid).is_some();
        if options.pid.is_empty() || !self.requests.iter().any(covers_machine) {
            return;
        }
        if self.kernel.kernel.is_none() && self.requests.iter().all(covers_machine) {
            cli::exit_with_conflict(
                "--pid does not apply to providers of the kernel: their events cover the whole machine. Record groups of kernel events instead \
                 (weir record --kernel cpu --pid PID), or filter afterwards: weir dump FILE --pid PID",
            );
        }
        eprintln!(
            "warning: --pid does not apply to providers of the kernel; their events cover the whole machine"
        );
    }

    /// Starts the session and enables the providers. Returns the reason if kernel events are left
    /// out.
    pub(super) fn start(
        &self,
        options: &RecordArgs,
        mut plan: SessionPlan,
    ) -> Result<(StartedSession, SessionSummary, Option<String>)> {
        plan.kernel_scope = kernel_scope(options);
        let choice = options.daemon_choice;
        let started = StartedSession::start_with_kernel(choice, &mut plan, &self.kernel, &self.requests);
        let (session, summary, refusal) = match started {
            Err(error) if self.may_leave_out_kernel(&error) => {
                let (session, summary) = StartedSession::start_with_kernel(
                    choice,
                    &mut plan,
                    &KernelEvents::default(),
                    &self.requests,
                )?;
                (session, summary, Some(error.root_cause().to_string()))
            }
            started => {
                let (session, summary) = started?;
                (session, summary, None)
            }
        };
        session.enable(&self.requests)?;
        sessions::note_literal_percent_d(&plan);
        Ok((session, summary, refusal))
    }

    /// Returns whether the recording does without kernel events after this error.
    fn may_leave_out_kernel(&self, error: &anyhow::Error) -> bool {
        let refusals = [
            Status::ERROR_PRIVILEGE_NOT_HELD,
            Status::ERROR_ACCESS_DENIED,
            Status::ERROR_NOT_SUPPORTED,
            Status::ERROR_NO_SYSTEM_RESOURCES,
        ];
        self.is_kernel_optional
            && self.kernel.kernel.is_some()
            && error.downcast_ref::<Error>().is_some_and(|error| refusals.contains(&error.status()))
    }
}

/// Returns the processes whose trees are recorded; empty for the whole machine. A command is started
/// by this process, which adopts its orphans.
pub(super) fn tree_roots(options: &RecordArgs) -> Vec<u32> {
    if options.all {
        Vec::new()
    } else if options.command.is_empty() {
        options.pid.clone()
    } else {
        vec![std::process::id()]
    }
}

/// Returns the process trees that kernel events are restricted to; empty for the whole machine. This
/// process itself is not recorded.
fn kernel_scope(options: &RecordArgs) -> Vec<ProcessTree> {
    let to_tree = |root: u32| match options.command.is_empty() {
        true => ProcessTree::new(root),
        false => ProcessTree::descendants_of(root),
    };
    tree_roots(options).into_iter().map(to_tree).collect()
}

/// Returns the settings of the session, and the file that is written.
pub(super) fn build_plan(options: &RecordArgs) -> Result<(SessionPlan, PathBuf)> {
    let file = match &options.output {
        Some(file) => file.clone(),
        None => recordings::find_new_name(Path::new(""), FileTime::now())?,
    };
    let name = format!("weir-record-{}", std::process::id());
    let mut plan = sessions::build_plan(&name, Some(&file), &options.shape)?;
    // The daemon finalises the file however this process ends.
    plan.stop_on_drop = true;
    plan.force = options.force;
    // Otherwise, events are collected and counted once a second.
    plan.low_latency |= options.stop_after.is_some();
    if let Some(size) = options.flight {
        existing_output::check_trace(&file, options.force)?;
        plan.keep_in_memory(size);
        let kib = u64::from(plan.minimum_buffers) * u64::from(plan.buffer_kib);
        if kib > size.kib() {
            eprintln!(
                "note: the events in memory use {} KiB: {} of {} KiB",
                format_number(kib),
                format_count(plan.minimum_buffers.into(), "buffer"),
                format_number(plan.buffer_kib.into())
            );
        }
    }
    Ok((plan, file))
}
