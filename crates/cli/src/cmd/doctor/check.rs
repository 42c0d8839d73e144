//! The result of one check, with advice and the needs that it blocks.

use crate::cli::Need;

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckState {
    /// The feature is available.
    Fine,
    /// The feature is partly available.
    Limited,
    /// The feature is not available, or not to this user.
    Missing,
}

impl CheckState {
    /// Returns the name in the output.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// The subject of a check, independent of its result.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckSubject {
    /// Short name, the same in every release.
    pub(super) name: &'static str,
    /// The features that need the subject.
    pub(super) purpose: &'static str,
    /// The features that work without the subject.
    pub(super) without: &'static str,
}

/// Commands that fix a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// Command whose effect lasts until the next boot, or for one run.
    pub(super) now: String,
    /// Command with a permanent effect; `None` if the effect of `now` is permanent.
    pub(super) lasting: Option<String>,
}

impl Advice {
    /// Returns advice with one command, whose effect is permanent.
    pub(super) fn with_command(now: impl Into<String>) -> Option<Self> {
        Some(Self { now: now.into(), lasting: None })
    }

    /// Returns advice with a command for now and a command with a permanent effect.
    pub(super) fn with_commands(now: impl Into<String>, lasting: impl Into<String>) -> Option<Self> {
        Some(Self { now: now.into(), lasting: Some(lasting.into()) })
    }

    /// Returns advice to change a kernel setting.
    pub(super) fn to_set_sysctl(name: &str, value: impl std::fmt::Display) -> Option<Self> {
        Self::with_commands(
            format!("sudo sysctl {name}={value}"),
            format!("echo '{name} = {value}' | sudo tee -a /etc/sysctl.d/60-traceweir.conf"),
        )
    }
}

/// The result of one check.
#[derive(Clone, Debug)]
pub(super) struct DoctorCheck {
    pub(super) subject: CheckSubject,
    pub(super) state: CheckState,
    /// The finding. It may contain names that other users chose, so printing code must escape it.
    pub(super) found: String,
    pub(super) advice: Option<Advice>,
    /// Needs that this result blocks.
    pub(super) blocks: Vec<Need>,
}

impl CheckSubject {
    /// Returns a passed check.
    pub(super) fn passed(self, found: impl Into<String>) -> DoctorCheck {
        self.build_check(CheckState::Fine, found)
    }

    /// Returns a check that found limits.
    pub(super) fn limited(self, found: impl Into<String>) -> DoctorCheck {
        self.build_check(CheckState::Limited, found)
    }

    /// Returns a failed check.
    pub(super) fn missing(self, found: impl Into<String>) -> DoctorCheck {
        self.build_check(CheckState::Missing, found)
    }

    fn build_check(self, state: CheckState, found: impl Into<String>) -> DoctorCheck {
        DoctorCheck { subject: self, state, found: found.into(), advice: None, blocks: Vec::new() }
    }
}

impl DoctorCheck {
    pub(super) fn with_advice(mut self, advice: Option<Advice>) -> Self {
        self.advice = advice;
        self
    }

    /// Adds the needs that the result blocks.
    pub(super) fn with_blocked_needs(mut self, needs: &[Need]) -> Self {
        self.blocks.extend_from_slice(needs);
        self
    }
}

/// Returns the names of the checks that block a need.
pub(super) fn blocking_checks(checks: &[DoctorCheck], need: Need) -> impl Iterator<Item = &'static str> {
    checks.iter().filter(move |check| check.blocks.contains(&need)).map(|check| check.subject.name)
}
