//! The result of one check, with advice and the needs (`weir doctor --need`) that it blocks.

use crate::cli::Need;

/// The availability that a check found.
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
    /// What the subject is for, or how it affects tracing.
    pub(super) purpose: &'static str,
    /// What still works without the subject.
    pub(super) works_without: &'static str,
}

/// Steps that the user can take after a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// Command or instruction. If there is a `lasting_step`, the effect of this step is temporary:
    /// it ends at the next boot, or with the program that the command starts.
    pub(super) step: String,
    /// Command or instruction with a permanent effect.
    pub(super) lasting_step: Option<String>,
}

impl Advice {
    /// Returns advice without a separate step for a permanent effect, as an `Option` for
    /// [`DoctorCheck::with_advice`].
    pub(super) fn with_step(step: impl Into<String>) -> Option<Self> {
        Some(Self { step: step.into(), lasting_step: None })
    }

    /// Returns advice with a temporary and a permanent step.
    pub(super) fn with_steps(step: impl Into<String>, lasting_step: impl Into<String>) -> Option<Self> {
        Some(Self { step: step.into(), lasting_step: Some(lasting_step.into()) })
    }

    /// Returns advice to change a kernel setting.
    pub(super) fn to_set_sysctl(name: &str, value: impl std::fmt::Display) -> Option<Self> {
        Self::with_steps(
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
    pub(super) blocked_needs: Vec<Need>,
}

impl CheckSubject {
    pub(super) fn passed(self, found: impl Into<String>) -> DoctorCheck {
        self.build_check(CheckState::Fine, found)
    }

    /// Returns a check of a feature that is only partly available.
    pub(super) fn limited(self, found: impl Into<String>) -> DoctorCheck {
        self.build_check(CheckState::Limited, found)
    }

    /// Returns a failed check.
    pub(super) fn missing(self, found: impl Into<String>) -> DoctorCheck {
        self.build_check(CheckState::Missing, found)
    }

    fn build_check(self, state: CheckState, found: impl Into<String>) -> DoctorCheck {
        DoctorCheck { subject: self, state, found: found.into(), advice: None, blocked_needs: Vec::new() }
    }
}

impl DoctorCheck {
    pub(super) fn with_advice(mut self, advice: Option<Advice>) -> Self {
        self.advice = advice;
        self
    }

    /// Adds the needs that the result blocks.
    pub(super) fn with_blocked_needs(mut self, needs: &[Need]) -> Self {
        self.blocked_needs.extend_from_slice(needs);
        self
    }
}

/// Returns the names of the checks that block a need.
pub(super) fn blocking_checks(checks: &[DoctorCheck], need: Need) -> impl Iterator<Item = &'static str> {
    checks.iter().filter(move |check| check.blocked_needs.contains(&need)).map(|check| check.subject.name)
}
