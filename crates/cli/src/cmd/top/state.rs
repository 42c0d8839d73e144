//! What the user has chosen, and how keys change it.
//!
//! ```text
//!   key ──▶ ScreenState::press ──▶ changed state, and an Action that the loop carries out
//! ```

use std::sync::Arc;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use traceweir_format::Guid;

use super::page::{Page, Selection, SortOrder, Tab};
use crate::text::parse_level;

/// The most characters of a typed text.
const MAX_TYPED_CHARS: usize = 256;
/// Lines that Page Up and Page Down move by.
const PAGE_LINES: isize = 10;

/// What the loop does for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Quit,
    /// Stops the process, as Ctrl-Z does in a shell.
    Suspend,
    /// Draws the whole screen again.
    Redraw,
    /// Enables a provider, given in the syntax of the command line.
    Enable(String),
    /// Enables a provider with another level.
    SetLevel(LevelTarget, u8),
    /// Starts or ends a recording.
    ToggleRecording,
    /// Starts kernel events.
    StartKernel,
    /// Begins or ends a pause.
    TogglePause,
}

/// The provider that gets another level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LevelTarget {
    pub(super) provider: Guid,
    pub(super) name: Option<Arc<str>>,
}

/// A text that the user types in the last line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) kind: PromptKind,
    pub(super) text: String,
}

/// What the typed text is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PromptKind {
    Filter,
    Enable,
    Level(LevelTarget),
}

/// The state of one tab.
#[derive(Clone, Debug)]
pub(super) struct TabState {
    pub(super) order: SortOrder,
    pub(super) selection: Selection,
}

/// What the user has chosen.
#[derive(Debug)]
pub(super) struct ScreenState {
    pub(super) tab: Tab,
    tabs: [TabState; Tab::ALL.len()],
    pub(super) filter: String,
    pub(super) prompt: Option<Prompt>,
    pub(super) shows_help: bool,
    pub(super) is_paused: bool,
    /// The last message for the user.
    pub(super) message: Option<String>,
}

impl ScreenState {
    pub(super) fn new(tab: Tab) -> Self {
        let tabs =
            Tab::ALL.map(|tab| TabState { order: tab.default_order(), selection: Selection::default() });
        Self {
            tab,
            tabs,
            filter: String::new(),
            prompt: None,
            shows_help: false,
            is_paused: false,
            message: None,
        }
    }

    /// Returns the state of the tab that is shown.
    pub(super) fn tab_state(&self) -> &TabState {
        // The index of a tab is below the number of tabs.
        &self.tabs[self.tab.index()]
    }

    pub(super) fn tab_state_mut(&mut self) -> &mut TabState {
        &mut self.tabs[self.tab.index()]
    }

    /// Handles a key. `page` is what the user saw when pressing it.
    pub(super) fn press(&mut self, key: KeyEvent, page: &Page) -> Option<Action> {
        if key.kind == KeyEventKind::Release {
            return None;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Some(Action::Quit),
                KeyCode::Char('z') => return Some(Action::Suspend),
                KeyCode::Char('l') => return Some(Action::Redraw),
                KeyCode::Char('u') if self.prompt.is_some() => {}
                _ => return None,
            }
        }
        self.message = None;
        if self.prompt.is_some() {
            return self.type_in_prompt(key);
        }
        if self.shows_help {
            // Any key closes the help, and has no other effect.
            self.shows_help = false;
            return None;
        }
        self.press_command(key.code, page)
    }

    fn press_command(&mut self, code: KeyCode, page: &Page) -> Option<Action> {
        match code {
            KeyCode::Char('q') => return Some(Action::Quit),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => self.shows_help = true,
            KeyCode::Tab | KeyCode::Right => return self.show_tab(self.tab.index().saturating_add(1)),
            KeyCode::BackTab | KeyCode::Left => {
                return self.show_tab(self.tab.index().saturating_add(Tab::ALL.len() - 1));
            }
            KeyCode::Char(digit @ '1'..='5') => {
                return self.show_tab(digit as usize - '1' as usize);
            }
            KeyCode::Up | KeyCode::Char('k') => self.move_selection(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_selection(1),
            KeyCode::PageUp => self.move_selection(-PAGE_LINES),
            KeyCode::PageDown => self.move_selection(PAGE_LINES),
            KeyCode::Home | KeyCode::Char('g') => self.tab_state_mut().selection = Selection::default(),
            KeyCode::End | KeyCode::Char('G') => self.move_selection(isize::MAX),
            KeyCode::Char('s') => self.sort_by_next_column(),
            KeyCode::Char('S') => {
                let order = &mut self.tab_state_mut().order;
                order.is_reversed = !order.is_reversed;
            }
            KeyCode::Char('/') => {
                self.prompt = Some(Prompt { kind: PromptKind::Filter, text: self.filter.clone() });
            }
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('p' | ' ') => {
                self.is_paused = !self.is_paused;
                return Some(Action::TogglePause);
            }
            KeyCode::Char('e') => {
                self.prompt = Some(Prompt { kind: PromptKind::Enable, text: String::new() });
            }
            KeyCode::Char('l') => self.open_level_prompt(page),
            KeyCode::Char('r') => return Some(Action::ToggleRecording),
            _ => {}
        }
        None
    }

    fn show_tab(&mut self, index: usize) -> Option<Action> {
        self.tab = Tab::ALL[index % Tab::ALL.len()];
        (self.tab == Tab::Kernel).then_some(Action::StartKernel)
    }

    fn move_selection(&mut self, lines: isize) {
        let selection = &mut self.tab_state_mut().selection;
        selection.index = selection.index.saturating_add_signed(lines);
        (selection.key, selection.is_pinned) = (None, true);
    }

    fn sort_by_next_column(&mut self) {
        let columns = self.tab.columns().len().saturating_add(1);
        let order = &mut self.tab_state_mut().order;
        *order = SortOrder { column: order.column.saturating_add(1) % columns, is_reversed: false };
    }

    fn open_level_prompt(&mut self, page: &Page) {
        let line = page.lines.get(page.selected);
        let Some((line, provider)) = line.and_then(|line| Some((line, line.key.provider()?))) else {
            self.message = Some("select a provider or an event to set the level of its provider".to_owned());
            return;
        };
        let target = LevelTarget { provider, name: line.provider_name.clone() };
        self.prompt = Some(Prompt { kind: PromptKind::Level(target), text: String::new() });
    }

    fn type_in_prompt(&mut self, key: KeyEvent) -> Option<Action> {
        let prompt = self.prompt.as_mut()?;
        match key.code {
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => prompt.text.clear(),
            KeyCode::Char(c) if !c.is_control() && prompt.text.chars().count() < MAX_TYPED_CHARS => {
                prompt.text.push(c);
            }
            KeyCode::Backspace => {
                prompt.text.pop();
            }
            KeyCode::Esc => {
                if self.prompt.take().is_some_and(|prompt| prompt.kind == PromptKind::Filter) {
                    self.filter.clear();
                }
                return None;
            }
            KeyCode::Enter => return self.finish_prompt(),
            _ => {}
        }
        if let Some(Prompt { kind: PromptKind::Filter, text }) = &self.prompt {
            self.filter.clone_from(text);
        }
        None
    }

    fn finish_prompt(&mut self) -> Option<Action> {
        let Prompt { kind, text } = self.prompt.take()?;
        let text = text.trim();
        match kind {
            PromptKind::Filter => None,
            PromptKind::Enable if text.is_empty() => None,
            PromptKind::Enable => Some(Action::Enable(text.to_owned())),
            PromptKind::Level(_) if text.is_empty() => None,
            PromptKind::Level(target) if text == "all" => Some(Action::SetLevel(target, 0)),
            PromptKind::Level(target) => match parse_level(text) {
                Ok(level) => Some(Action::SetLevel(target, level)),
                Err(reason) => {
                    self.message = Some(reason);
                    None
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
