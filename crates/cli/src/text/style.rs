//! Colours and width of the terminal, decided once for all commands.
//!
//! ```text
//!   --color always|never ─▶ NO_COLOR ─▶ CLICOLOR_FORCE ─▶ is the output a terminal (not TERM=dumb)?
//! ```

use std::ffi::OsString;
use std::io::IsTerminal;
use std::sync::OnceLock;

use clap::ValueEnum;
use rustix::termios::tcgetwinsize;

/// When output has colours (`--color`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum ColorChoice {
    /// On terminals, unless NO_COLOR is set; everywhere if CLICOLOR_FORCE is set
    #[default]
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The choice on the command line.
static CHOICE: OnceLock<ColorChoice> = OnceLock::new();

/// Width of a terminal that reports none.
const DEFAULT_COLUMNS: usize = 80;

/// Stores the choice on the command line, for standard output and standard error.
pub(crate) fn set_color_choice(choice: ColorChoice) {
    let _ = CHOICE.set(choice);
    let global = match Environment::read().forced_colours(choice) {
        Some(true) => anstream::ColorChoice::Always,
        Some(false) => anstream::ColorChoice::Never,
        None => anstream::ColorChoice::Auto,
    };
    global.write_global();
}

/// The environment variables that decide about colours.
#[derive(Debug, Default)]
struct Environment {
    no_color: Option<OsString>,
    clicolor_force: Option<OsString>,
    term: Option<OsString>,
}

impl Environment {
    fn read() -> Self {
        Self {
            no_color: std::env::var_os("NO_COLOR"),
            clicolor_force: std::env::var_os("CLICOLOR_FORCE"),
            term: std::env::var_os("TERM"),
        }
    }

    /// Returns whether colours are on or off whatever the output is; `None` if that depends on the
    /// output.
    fn forced_colours(&self, choice: ColorChoice) -> Option<bool> {
        match choice {
            ColorChoice::Always => Some(true),
            ColorChoice::Never => Some(false),
            ColorChoice::Auto if self.no_color.as_ref().is_some_and(|value| !value.is_empty()) => Some(false),
            ColorChoice::Auto => {
                let is_forced =
                    self.clicolor_force.as_ref().is_some_and(|value| !value.is_empty() && value != "0");
                is_forced.then_some(true)
            }
        }
    }

    fn allows_colours(&self, choice: ColorChoice, is_terminal: bool) -> bool {
        let is_dumb = self.term.as_ref().is_some_and(|term| term == "dumb");
        self.forced_colours(choice).unwrap_or(is_terminal && !is_dumb)
    }
}

/// Returns whether output may have colours.
pub(crate) fn allows_colours(is_terminal: bool) -> bool {
    Environment::read().allows_colours(CHOICE.get().copied().unwrap_or_default(), is_terminal)
}

/// The meaning of a text, which selects its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// A title or the heading of a table.
    Heading,
    /// A line that separates, or text of little weight.
    Faint,
    Good,
    Warning,
    Bad,
}

impl Paint {
    const fn code(self) -> &'static str {
        match self {
            Self::Heading => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Warning => "\x1b[33m",
            Self::Bad => "\x1b[31m",
        }
    }
}

/// Colours and width of one output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TerminalStyle {
    pub(crate) is_colourful: bool,
    /// The number of columns of a terminal; `None` if the output is not a terminal.
    pub(crate) width: Option<usize>,
}

impl TerminalStyle {
    /// Returns the style of standard output.
    pub(crate) fn for_stdout() -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let width = is_terminal.then(|| {
            let columns = tcgetwinsize(rustix::stdio::stdout()).map_or(0, |size| usize::from(size.ws_col));
            choose_width(columns, std::env::var("COLUMNS").ok().as_deref())
        });
        Self { is_colourful: allows_colours(is_terminal), width }
    }

    /// Wraps a text that begins at the column `indent` at the width of the terminal. The lines after
    /// the first are indented. Text without colours only.
    pub(crate) fn wrap(self, text: &str, indent: usize) -> String {
        super::wrap::wrap(text, indent, self.width)
    }

    /// Returns the text in the colour of its meaning, if there are colours.
    pub(crate) fn paint(self, paint: Paint, text: &str) -> String {
        if self.is_colourful && !text.is_empty() {
            format!("{}{text}\x1b[0m", paint.code())
        } else {
            text.to_owned()
        }
    }
}

/// Returns the width of a terminal: the one that it reports, the one in `COLUMNS`, or the default.
fn choose_width(reported: usize, variable: Option<&str>) -> usize {
    let from_variable = || variable.and_then(|text| text.trim().parse().ok()).filter(|columns| *columns > 0);
    Some(reported).filter(|columns| *columns > 0).or_else(from_variable).unwrap_or(DEFAULT_COLUMNS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(no_color: &str, clicolor_force: &str, term: &str) -> Environment {
        let variable = |text: &str| (text != "unset").then(|| OsString::from(text));
        Environment {
            no_color: variable(no_color),
            clicolor_force: variable(clicolor_force),
            term: variable(term),
        }
    }

    #[test]
    fn option_precedes_no_color_which_precedes_clicolor_force() {
        use ColorChoice::{Always, Auto, Never};
        for (choice, no_color, force, term, on_terminal, piped) in [
            (Auto, "unset", "unset", "xterm", true, false),
            (Auto, "unset", "unset", "dumb", false, false),
            (Auto, "unset", "unset", "unset", true, false),
            (Auto, "1", "unset", "xterm", false, false),
            (Auto, "", "unset", "xterm", true, false),
            (Auto, "unset", "1", "dumb", true, true),
            (Auto, "unset", "0", "xterm", true, false),
            (Auto, "1", "1", "xterm", false, false),
            (Always, "1", "unset", "dumb", true, true),
            (Never, "unset", "1", "xterm", false, false),
        ] {
            let environment = environment(no_color, force, term);
            let colours = [true, false].map(|is_terminal| environment.allows_colours(choice, is_terminal));
            assert_eq!(colours, [on_terminal, piped], "{choice:?} {environment:?}");
        }
    }

    #[test]
    fn width_is_reported_by_the_terminal_or_by_columns() {
        assert_eq!(choose_width(132, Some("60")), 132);
        assert_eq!(choose_width(0, Some("60")), 60);
        assert_eq!(choose_width(0, Some("wide")), DEFAULT_COLUMNS);
        assert_eq!(choose_width(0, None), DEFAULT_COLUMNS);
    }

    #[test]
    fn paint_needs_colours() {
        let style = TerminalStyle { is_colourful: true, width: None };
        assert_eq!(style.paint(Paint::Bad, "no"), "\x1b[31mno\x1b[0m");
        assert_eq!(TerminalStyle::default().paint(Paint::Bad, "no"), "no");
    }
}
