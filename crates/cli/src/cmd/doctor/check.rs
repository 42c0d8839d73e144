//! One thing that was looked at, and what it comes to.

use crate::cli::Need;

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// As it should be.
    Fine,
    /// There, and not all of it.
    Limited,
    /// Not there, or not for this user.
    Missing,
}

impl State {
    /// As it is shown.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Fine => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }
}

/// What is looked at, whatever comes of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject {
    /// Short, and the same in every version.
    pub(super) name: &'static str,
    /// What it is for.
    pub(super) purpose: &'static str,
    /// What works where it is not there.
    pub(super) without: &'static str,
}

/// What to type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Advice {
    /// Until the next boot, or for this one run.
    pub(super) now: String,
    /// For good; `None` where the same command lasts.
    pub(super) lasting: Option<String>,
}

impl Advice {
    /// A command that lasts by itself.
    pub(super) fn once(now: impl Into<String>) -> Option<Self> {
        Some(Self { now: now.into(), lasting: None })
    }

    /// One until the next boot, and one for good.
    pub(super) fn both(now: impl Into<String>, lasting: impl Into<String>) -> Option<Self> {
        Some(Self { now: now.into(), lasting: Some(lasting.into()) })
    }

    /// A setting of the kernel.
    pub(super) fn sysctl(name: &str, value: impl std::fmt::Display) -> Option<Self> {
        Self::both(
            format!("sudo sysctl {name}={value}"),
            format!("echo '{name} = {value}' | sudo tee -a /etc/sysctl.d/60-traceweir.conf"),
        )
    }
}

/// What came of a look.
#[derive(Clone, Debug)]
pub(super) struct Check {
    pub(super) subject: Subject,
    pub(super) state: State,
    /// What is so. It may quote names that strangers chose: whoever prints it takes care of that.
    pub(super) found: String,
    pub(super) advice: Option<Advice>,
    /// What cannot be done because of it.
    pub(super) blocks: Vec<Need>,
}

impl Subject {
    /// It is as it should be.
    pub(super) fn fine(self, found: impl Into<String>) -> Check {
        self.found(State::Fine, found)
    }

    /// Not all of it is there.
    pub(super) fn limited(self, found: impl Into<String>) -> Check {
        self.found(State::Limited, found)
    }

    /// It is not there.
    pub(super) fn missing(self, found: impl Into<String>) -> Check {
        self.found(State::Missing, found)
    }

    fn found(self, state: State, found: impl Into<String>) -> Check {
        Check { subject: self, state, found: found.into(), advice: None, blocks: Vec::new() }
    }
}

impl Check {
    /// With what to type.
    pub(super) fn advise(mut self, advice: Option<Advice>) -> Self {
        self.advice = advice;
        self
    }

    /// With what cannot be done.
    pub(super) fn blocking(mut self, needs: &[Need]) -> Self {
        self.blocks.extend_from_slice(needs);
        self
    }
}

/// The checks that keep from something.
pub(super) fn in_the_way(checks: &[Check], need: Need) -> impl Iterator<Item = &'static str> {
    checks.iter().filter(move |it| it.blocks.contains(&need)).map(|it| it.subject.name)
}
