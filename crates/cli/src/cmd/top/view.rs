//! Draws the screen: a line of totals, their history, the tabs, the table, and a line for keys,
//! messages and typed text.
//!
//! ```text
//!   weir top  12,345 events/s  0 lost                          PAUSED
//!   ▁▂▃▅▇█▇▅▃▂▁
//!   1 Providers  2 Events  3 Processes  4 Latency  5 Kernel     filter: shop
//!   PROVIDER                          LEVEL   EVENTS/S       EVENTS  LAST 20 S
//!   Contoso.Shop                        all     12,345    1,234,567  ▁▂▃▅▇█▇▅▃▂▁
//!   q quit  ? help  …
//! ```

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::history::HISTORY_SECONDS;
use super::page::{Line, Page, Tab};
use super::state::{Prompt, PromptKind, ScreenState};
use crate::text::{escape, format_count, format_number};

/// The least columns of names, for which histories give way.
const MIN_NAME_COLUMNS: u16 = 30;
/// The least columns of a history.
const MIN_HISTORY_COLUMNS: u16 = 8;
/// Lines above and below the table, without the history of the totals.
const FIXED_LINES: u16 = 4;
/// A screen of at least this many lines has a higher history of the totals.
const TALL_LINES: u16 = 40;
const BARS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
const HINT: &str = "q quit  ? help  Tab next  s sort  / filter  p pause  e enable  l level  r record";
const HELP: &[&str] = &[
    "1-5, Tab, ← →    providers, events, processes, latency, kernel",
    "↑ ↓, j k         select a line; PgUp PgDn Home End",
    "s, S             sort by the next column; reverse the order",
    "/                show only names with this text (* and ? are wildcards)",
    "Esc              end the filter",
    "p, Space         pause the screen; events are counted on",
    "e                enable a provider: NAME[:KEYWORDS[:LEVEL]][@OPTION…]",
    "l                set the level of the selected provider",
    "r                record what is shown to weir-DATE-TIME.etl; r again ends it",
    "Ctrl-Z, Ctrl-L   suspend weir; draw the screen again",
    "q, Ctrl-C        quit",
    "",
    "EVENTS/S is the rate of the last second. LATENCY is the time from a start",
    "event to its stop event, in the last 15 to 30 seconds.",
    "A level of weir top does not change what other sessions record.",
];

/// Counts of the whole screen.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    /// Events of the last second.
    pub(super) rate: u64,
    /// Events by second, the oldest first.
    pub(super) history: Vec<u64>,
    /// Events that the sessions lost, or that weir did not read in time.
    pub(super) lost: u64,
    /// Number of enabled providers and patterns.
    pub(super) enabled: usize,
    pub(super) has_kernel: bool,
    /// How much of the time of all processors was used, if kernel events show it.
    pub(super) cpu_percent: Option<f64>,
    /// The file and the seconds of the recording, if there is one.
    pub(super) recording: Option<(String, u64)>,
    /// What weir is doing for the user, if that takes a while.
    pub(super) activity: Option<&'static str>,
}

/// Everything on the screen.
pub(super) struct Screen<'s> {
    pub(super) state: &'s ScreenState,
    pub(super) page: &'s Page,
    pub(super) totals: &'s Totals,
    pub(super) is_colourful: bool,
}

/// The lines of a screen of a given height.
struct Regions {
    history: Rect,
    tabs: Rect,
    heading: Rect,
    table: Rect,
    last: Rect,
}

impl Regions {
    fn of_area(area: Rect) -> Self {
        let history_lines = if area.height >= TALL_LINES { 4 } else { 1 };
        let line = |y: u16, height: u16| Rect { x: 0, y, width: area.width, height }.intersection(area);
        let table_lines = area.height.saturating_sub(FIXED_LINES).saturating_sub(history_lines);
        Self {
            history: line(1, history_lines),
            tabs: line(1 + history_lines, 1),
            heading: line(2 + history_lines, 1),
            table: line(3 + history_lines, table_lines),
            last: line(area.height.saturating_sub(1), 1),
        }
    }
}

/// Returns the number of lines of the table on a screen of this size.
pub(super) fn table_height(area: Rect) -> usize {
    Regions::of_area(area).table.height.into()
}

/// Draws the screen.
pub(super) fn draw(frame: &mut Frame<'_>, screen: &Screen<'_>) {
    let area = frame.area();
    let regions = Regions::of_area(area);
    let painter = Painter { is_colourful: screen.is_colourful };
    let buffer = frame.buffer_mut();
    painter.draw_totals(buffer, area, screen);
    painter.draw_history(buffer, regions.history, &screen.totals.history);
    painter.draw_tabs(buffer, regions.tabs, screen.state);
    painter.draw_table(buffer, &regions, screen);
    painter.draw_last_line(buffer, regions.last, screen);
    if screen.state.shows_help {
        painter.draw_help(buffer, area);
    }
    if let Some(prompt) = &screen.state.prompt {
        let typed = prompt_text(prompt).width() as u16;
        frame.set_cursor_position((typed.min(area.width.saturating_sub(1)), regions.last.y));
    }
}

/// Draws parts of the screen. Without colours, only bold, dim and reversed text differ.
struct Painter {
    is_colourful: bool,
}

impl Painter {
    fn colour(&self, colour: Color) -> Style {
        if self.is_colourful { Style::new().fg(colour) } else { Style::new() }
    }

    fn draw_totals(&self, buffer: &mut Buffer, area: Rect, screen: &Screen<'_>) {
        let Totals { rate, lost, enabled, has_kernel, cpu_percent, recording, activity, .. } = screen.totals;
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut x = put(buffer, area, Position::new(0, 0), "weir top", bold);
        let mut add = |text: &str, style: Style| {
            x = put(buffer, area, Position::new(x.saturating_add(2), 0), text, style);
        };
        add(&format!("{} events/s", format_number(*rate)), self.colour(Color::Cyan).patch(bold));
        let lost_style = if *lost == 0 { Style::new() } else { self.colour(Color::Red).patch(bold) };
        add(&format!("{} lost", format_number(*lost)), lost_style);
        let kernel = if *has_kernel { " and kernel" } else { "" };
        add(&format!("{}{kernel}", format_count(*enabled as u64, "enable")), Style::new());
        if let Some(percent) = cpu_percent {
            add(&format!("CPU {percent:.0} %"), Style::new());
        }
        if screen.state.is_paused {
            add("PAUSED", self.colour(Color::Yellow).patch(bold));
        }
        if let Some(activity) = activity {
            add(&format!("{activity} …"), self.colour(Color::Yellow));
        }
        if let Some((file, seconds)) = recording {
            add(&format!("recording {seconds} s {file}"), self.colour(Color::Red));
        }
    }

    /// Draws amounts as bars, the newest at the right end.
    fn draw_history(&self, buffer: &mut Buffer, area: Rect, amounts: &[u64]) {
        let most = amounts.iter().copied().max().unwrap_or(0).max(1);
        let style = self.colour(Color::Green);
        let steps = u64::from(area.height).saturating_mul(8);
        let shown = amounts.len().min(area.width.into());
        for (column, amount) in amounts.iter().skip(amounts.len() - shown).enumerate() {
            let filled = filled_steps(*amount, most, steps);
            for row in 0..area.height {
                // The lowest row is filled first.
                let below = u64::from(area.height - 1 - row) * 8;
                let bar = bar_of(filled.saturating_sub(below));
                put(buffer, area, Position::new(column as u16, row), bar, style);
            }
        }
        // The width of a minute is less than that of the screen, so there is room for the scale.
        let text = format!("max {}/s in the last minute", format_number(if most == 1 { 0 } else { most }));
        let x = (shown as u16).saturating_add(2);
        if usize::from(x) + text.len() <= area.width.into() {
            put(buffer, area, Position::new(x, area.height.saturating_sub(1)), &text, self.dim());
        }
    }

    fn dim(&self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    fn draw_tabs(&self, buffer: &mut Buffer, area: Rect, state: &ScreenState) {
        let mut x = 0;
        for (index, tab) in Tab::ALL.into_iter().enumerate() {
            let is_shown = tab == state.tab;
            let style = if is_shown { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
            x = put(buffer, area, Position::new(x, 0), &format!(" {} {} ", index + 1, tab.title()), style);
        }
        if !state.filter.is_empty() {
            let text = format!("filter: {}", escape(&state.filter));
            put(buffer, area, Position::new(x.saturating_add(2), 0), &text, self.colour(Color::Yellow));
        }
    }

    fn draw_table(&self, buffer: &mut Buffer, regions: &Regions, screen: &Screen<'_>) {
        let (state, page) = (screen.state, screen.page);
        let columns = TableColumns::fit(state.tab, regions.heading.width);
        let heading = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        buffer.set_style(regions.heading, heading);
        let order = state.tab_state().order;
        let mark = |column: usize| match (order.column == column, order.is_reversed) {
            (false, _) => "",
            (true, false) => "▼",
            (true, true) => "▲",
        };
        let name_title = format!("{}{}", state.tab.name_title(), mark(0));
        put(buffer, regions.heading, Position::new(0, 0), &name_title, heading);
        for (index, (column, x)) in state.tab.columns().iter().zip(&columns.numbers).enumerate() {
            let title = format!("{}{}", column.title, mark(index + 1));
            put_right(buffer, regions.heading, Position::new(*x, 0), column.width, &title, heading);
        }
        if let Some((x, width)) = columns.history {
            put(buffer, regions.heading, Position::new(x, 0), &format!("LAST {width} S"), heading);
        }
        for (row, line) in page.lines.iter().enumerate() {
            let y = row as u16;
            if y >= regions.table.height {
                break;
            }
            self.draw_line(buffer, regions.table, y, line, state.tab, &columns);
            if row == page.selected {
                let selected = Rect { y: regions.table.y + y, height: 1, ..regions.table };
                buffer.set_style(selected, Style::new().add_modifier(Modifier::REVERSED));
            }
        }
        if page.lines.is_empty() {
            put(buffer, regions.table, Position::new(0, 0), empty_text(screen), self.dim());
        }
    }

    fn draw_line(
        &self,
        buffer: &mut Buffer,
        area: Rect,
        y: u16,
        line: &Line,
        tab: Tab,
        columns: &TableColumns,
    ) {
        let name = shorten(&line.full_name(), columns.name.into());
        put(buffer, area, Position::new(0, y), &name, Style::new());
        for ((column, x), value) in tab.columns().iter().zip(&columns.numbers).zip(line.values) {
            put_right(
                buffer,
                area,
                Position::new(*x, y),
                column.width,
                &(column.format)(value),
                Style::new(),
            );
        }
        if let Some((x, width)) = columns.history {
            let newest = line.history.len().saturating_sub(width.into());
            let text = sparkline(line.history.get(newest..).unwrap_or_default());
            put(buffer, area, Position::new(x, y), &text, self.colour(Color::Green));
        }
    }

    fn draw_last_line(&self, buffer: &mut Buffer, area: Rect, screen: &Screen<'_>) {
        let state = screen.state;
        let (text, style) = match (&state.prompt, &state.message) {
            (Some(prompt), _) => (prompt_text(prompt), Style::new().add_modifier(Modifier::BOLD)),
            (None, Some(message)) => (message.clone(), self.colour(Color::Yellow)),
            (None, None) => (HINT.to_owned(), self.dim()),
        };
        // The end of a long text is where the user types.
        let text = match &state.prompt {
            Some(_) => last_columns(&text, usize::from(area.width).saturating_sub(1)),
            None => shorten(&text, area.width.into()),
        };
        put(buffer, area, Position::new(0, 0), &text, style);
        let position = format!(
            "{}-{} of {}",
            screen.page.first + 1,
            screen.page.first + screen.page.lines.len(),
            screen.page.kept
        );
        let is_cut = screen.page.lines.len() < screen.page.kept;
        let x = area.width.saturating_sub(position.len() as u16);
        if is_cut && text.width() + 2 <= x.into() {
            put(buffer, area, Position::new(x, 0), &position, self.dim());
        }
    }

    fn draw_help(&self, buffer: &mut Buffer, area: Rect) {
        let width = HELP.iter().map(|line| line.width()).max().unwrap_or(0) as u16 + 4;
        let height = HELP.len() as u16 + 2;
        let (x, y) = (area.width.saturating_sub(width) / 2, area.height.saturating_sub(height) / 2);
        let window = Rect { x, y, width, height }.intersection(area);
        for y in window.top()..window.bottom() {
            put(
                buffer,
                window,
                Position::new(0, y - window.y),
                &" ".repeat(window.width.into()),
                Style::reset(),
            );
        }
        buffer.set_style(window, Style::new().add_modifier(Modifier::REVERSED));
        for (row, line) in HELP.iter().enumerate() {
            put(
                buffer,
                window,
                Position::new(2, row as u16 + 1),
                line,
                Style::new().add_modifier(Modifier::REVERSED),
            );
        }
    }
}

/// Returns the text of the table without lines.
fn empty_text(screen: &Screen<'_>) -> &'static str {
    match screen.state.tab {
        _ if !screen.state.filter.is_empty() => "no name matches the filter; Esc ends it",
        Tab::Kernel if screen.totals.has_kernel => "no kernel events yet",
        Tab::Kernel => "no kernel events",
        _ if screen.totals.enabled == 0 => "no provider is enabled; e enables one",
        Tab::Latency => "no start event has had its stop event yet",
        _ => "no events yet",
    }
}

fn prompt_text(prompt: &Prompt) -> String {
    let text = escape(&prompt.text);
    match &prompt.kind {
        PromptKind::Filter => format!("filter: {text}"),
        PromptKind::Enable => format!("enable provider: {text}"),
        PromptKind::Level(target) => {
            let name = target.name.as_deref().unwrap_or("this provider");
            format!("level of {name} (1 to 5, error, warning, info …; all): {text}")
        }
    }
}

/// The columns of a table of a given width. Numbers are at the positions of their first column.
struct TableColumns {
    name: u16,
    numbers: Vec<u16>,
    /// Position and width of the histories, if they have room.
    history: Option<(u16, u16)>,
}

impl TableColumns {
    fn fit(tab: Tab, width: u16) -> Self {
        let numbers: u16 = tab.columns().iter().map(|column| column.width.saturating_add(1)).sum();
        let free = width.saturating_sub(numbers).saturating_sub(1);
        let most = free.saturating_sub(MIN_NAME_COLUMNS).min(HISTORY_SECONDS as u16);
        let history = if most < MIN_HISTORY_COLUMNS { 0 } else { most };
        let gap = if history == 0 { 0 } else { 1 };
        let name = width.saturating_sub(numbers).saturating_sub(history).saturating_sub(gap);
        let mut x = name;
        let mut starts = Vec::new();
        for column in tab.columns() {
            x = x.saturating_add(1);
            starts.push(x);
            x = x.saturating_add(column.width);
        }
        Self { name, numbers: starts, history: (history > 0).then_some((x.saturating_add(1), history)) }
    }
}

/// Writes a text at a position in an area, cut at the end of the area. Returns the column after it.
fn put(buffer: &mut Buffer, area: Rect, at: Position, text: &str, style: Style) -> u16 {
    let Position { x, y } = at;
    if x >= area.width || y >= area.height {
        return x;
    }
    let columns = usize::from(area.width - x);
    let (end, _) = buffer.set_stringn(area.x + x, area.y + y, text, columns, style);
    end.saturating_sub(area.x)
}

/// Writes a text that ends at the end of a column.
fn put_right(buffer: &mut Buffer, area: Rect, at: Position, width: u16, text: &str, style: Style) {
    let text = shorten(text, width.into());
    let padding = usize::from(width).saturating_sub(text.width()) as u16;
    put(buffer, area, Position { x: at.x.saturating_add(padding), ..at }, &text, style);
}

/// Shortens a text to this many columns; a text that is cut ends with `…`.
fn shorten(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let kept = text.chars().take_while(|c| {
        used += c.width().unwrap_or(0);
        used <= columns
    });
    let mut short: String = kept.collect();
    if columns > 0 {
        short.push('…');
    }
    short
}

/// Returns the end of a text that fits into this many columns.
fn last_columns(text: &str, columns: usize) -> String {
    let mut used = 0;
    let kept = text.char_indices().rev().take_while(|(_, c)| {
        used += c.width().unwrap_or(0);
        used <= columns
    });
    let start = kept.last().map_or(text.len(), |(index, _)| index);
    text.get(start..).unwrap_or_default().to_owned()
}

/// Returns how many of `steps` an amount fills. Amounts other than 0 fill at least one.
fn filled_steps(amount: u64, most: u64, steps: u64) -> u64 {
    let filled = u128::from(amount) * u128::from(steps) / u128::from(most.max(1));
    u64::try_from(filled).unwrap_or(steps).max(u64::from(amount > 0)).min(steps)
}

fn bar_of(steps: u64) -> &'static str {
    BARS.get(usize::try_from(steps).unwrap_or(BARS.len())).copied().unwrap_or("█")
}

fn sparkline(amounts: &[u64]) -> String {
    let most = amounts.iter().copied().max().unwrap_or(0);
    amounts.iter().map(|amount| bar_of(filled_steps(*amount, most, 8))).collect()
}

#[cfg(test)]
mod tests;
