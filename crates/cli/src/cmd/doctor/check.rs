//! The result of one check, with advice and the needs that it blocks.

use crate::cli::Need;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// As it should be.
    Fine,
    /// The feature is partly available.
    Limited,
    /// Not available, or not to this user.
    Missing,
}

impl State {
    /// Returns the name in the output.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// What a check examines, whatever its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    /// Short name, the same in every release.
    pub(super) name: &'static str,
    /// What it is needed for.
    pub(super) purpose: &'static str,
    /// What works without it.
    pub(super) without: &'static str,
}

/// Commands that fix a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// Command that lasts until the next boot, or for one run.
    pub(super) now: String,
    /// Command that lasts; `None` if `now` lasts.
    pub(super) lasting: Option<String>,
}

impl Advice {
    /// Returns advice with one command, which lasts.
    pub(super) fn once(now: impl Into<String>) -> Option<Self> {
        Some(Self { now: now.into(), lasting: None })
    }

    /// Returns advice with a command until the next boot and one that lasts.
    pub(super) fn both(now: impl Into<String>, lasting: impl Into<String>) -> Option<Self> {
        Some(Self { now: now.into(), lasting: Some(lasting.into()) })
    }

    /// Returns advice to change a kernel setting.
    pub(super) fn sysctl(name: &str, value: impl std::fmt::Display) -> Option<Self> {
        Self::both(
            format!("sudo sysctl {name}={value}"),
            format!("echo '{name} = {value}' | sudo tee -a /etc/sysctl.d/60-traceweir.conf"),
        )
    }
}

/// The result of one check.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) subject: Subject,
    pub(super) state: State,
    /// What was found. It may quote names that other users chose, so printing code must escape it.
    pub(super) found: String,
    pub(super) advice: Option<Advice>,
    /// Needs that cannot be met because of it.
    pub(super) blocks: Vec<Need>,
}

impl Subject {
    /// Returns a passed check.
    pub(super) fn fine(self, found: impl Into<String>) -> Check {
        self.found(State::Fine, found)
    }

    /// Returns a check that found limits.
    pub(super) fn limited(self, found: impl Into<String>) -> Check {
        self.found(State::Limited, found)
    }

    /// Returns a failed check.
    pub(super) fn missing(self, found: impl Into<String>) -> Check {
        self.found(State::Missing, found)
    }

    fn found(self, state: State, found: impl Into<String>) -> Check {
        Check { subject: self, state, found: found.into(), advice: None, blocks: Vec::new() }
    }
}

impl Check {
    /// Adds advice to the check.
    pub(super) fn advise(mut self, advice: Option<Advice>) -> Self {
        self.advice = advice;
        self
    }

    /// Adds the needs that it blocks.
    pub(super) fn blocking(mut self, needs: &[Need]) -> Self {
        self.blocks.extend_from_slice(needs);
        self
    }
}

/// Returns the names of the checks that block a need.
pub(super) fn blocking_checks(checks: &[Check], need: Need) -> impl Iterator<Item = &'static str> {
    checks.iter().filter(move |check| check.blocks.contains(&need)).map(|check| check.subject.name)
}
