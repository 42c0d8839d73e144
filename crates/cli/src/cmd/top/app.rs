//! The loop of the screen: draws, waits for messages, and carries out what the user requests.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use anstream::eprintln;
use anyhow::{Context, Result, bail};
use ratatui::layout::Rect;
use rustix::process::{Signal, getpid, kill_current_process_group, kill_process};
use traceweir::Error;
use traceweir_format::time::FileTime;

use super::events::{EventTables, lock};
use super::feed::{Feed, FeedContext, FeedKind, Message, Outcome, disable, kernel_selection};
use super::history::{HISTORY_SECONDS, Second};
use super::kernel::KernelTables;
use super::notes::NoteCapture;
use super::page::{Page, PageRequest, PageSource, Tab};
use super::requests::{add_request, change_level, find_level};
use super::state::{Action, LevelTarget, ScreenState};
use super::terminal::{self, ScreenTerminal, TerminalGuard};
use super::view::{self, Screen, Totals};
use crate::cli::{KERNEL_TARGET, KernelEvents};
use crate::cmd::record::BackgroundRecording;
use crate::exit::{CommandOutcome, format_error};
use crate::grammar::{EnableRequest, StackSelection, parse_provider};
use crate::sessions::{self, SessionEnd};
use crate::text::{allows_colours, escape, escape_path};

/// The age of the second that is shown: its events have arrived by then.
const SHOWN_AGE_SECONDS: i64 = 2;
/// When the screen is drawn in each second.
const DRAW_OFFSET: Duration = Duration::from_millis(150);
/// The most messages that are handled before the screen is drawn.
const MAX_MESSAGES_PER_DRAW: usize = 64;
/// A message of more bytes is not extended.
const MAX_MESSAGE_BYTES: usize = 100;
/// How long the end waits for a request that is under way.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_secs(2);

/// What a paused screen shows.
struct Snapshot {
    events: EventTables,
    kernel: KernelTables,
    second: Second,
}

/// What to do after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    Wait,
    Draw,
    /// Draw on a terminal whose content is unknown.
    DrawAll,
    Quit,
}

/// The running command.
pub(super) struct App {
    context: FeedContext,
    /// The enables of the session of providers.
    requests: Vec<EnableRequest>,
    event_tables: Arc<Mutex<EventTables>>,
    kernel_tables: Arc<Mutex<KernelTables>>,
    events: Option<Feed>,
    kernel: Option<Feed>,
    /// Lost events of providers and of the kernel.
    lost: [u64; 2],
    recording: Option<(Box<BackgroundRecording>, Instant)>,
    /// The request that a thread carries out.
    activity: Option<&'static str>,
    snapshot: Option<Box<Snapshot>>,
    state: ScreenState,
    page: Page,
    /// Why a feed ended before the user quit.
    ended: Option<Result<()>>,
}

impl App {
    /// Starts the sessions.
    pub(super) fn start(
        context: FeedContext,
        requests: Vec<EnableRequest>,
        has_kernel: bool,
    ) -> Result<Self> {
        let now = FileTime::now();
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        let event_tables = Arc::new(Mutex::new(EventTables::new(now)));
        let kernel_tables = Arc::new(Mutex::new(KernelTables::new(now, processors)));
        let kernel =
            has_kernel.then(|| Feed::start_kernel(&context, Arc::clone(&kernel_tables))).transpose()?;
        let events = (!requests.is_empty())
            .then(|| Feed::start_events(&context, &requests, Arc::clone(&event_tables)))
            .transpose()?;
        let tab = if events.is_some() { Tab::Providers } else { Tab::Kernel };
        Ok(Self {
            context,
            requests,
            event_tables,
            kernel_tables,
            events,
            kernel,
            lost: [0; 2],
            recording: None,
            activity: None,
            snapshot: None,
            state: ScreenState::new(tab),
            page: Page::default(),
            ended: None,
        })
    }

    /// Shows the screen until the user quits or a session ends.
    pub(super) fn run_screen(&mut self, incoming: &Receiver<Message>) -> Result<()> {
        let mut notes = NoteCapture::start().context("cannot redirect standard error")?;
        let (guard, mut screen) = TerminalGuard::enter(notes.original()?)?;
        terminal::watch_input(&self.context.messages)?;
        let mut flow = Flow::DrawAll;
        while flow != Flow::Quit {
            if let Some(note) = notes.poll() {
                self.add_note(note);
            }
            self.draw(&mut screen, flow == Flow::DrawAll).context("cannot write to the terminal")?;
            flow = self.handle_messages(incoming);
        }
        // The notes are printed below the restored screen.
        drop(guard);
        Ok(())
    }

    /// Shows a note of another part of weir, after the result of the request that printed it.
    fn add_note(&mut self, note: String) {
        let message = self.state.message.take().filter(|message| message.len() <= MAX_MESSAGE_BYTES);
        self.state.message = Some(message.map_or(note.clone(), |message| format!("{message}; {note}")));
    }

    /// Handles messages until the screen is to be drawn.
    fn handle_messages(&mut self, incoming: &Receiver<Message>) -> Flow {
        let deadline = Instant::now() + until_next_draw(FileTime::now());
        let mut flow = Flow::Wait;
        for _ in 0..MAX_MESSAGES_PER_DRAW {
            // Once there is something to draw, only messages that have arrived are handled.
            let timeout = match flow {
                Flow::Wait => deadline.saturating_duration_since(Instant::now()),
                _ => Duration::ZERO,
            };
            let message = match incoming.recv_timeout(timeout) {
                Ok(message) => message,
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            };
            // The next key is for the screen that this one leads to.
            let is_key = matches!(message, Message::Key(_));
            let next = self.handle(message);
            flow = match (flow, next) {
                (_, Flow::Quit) => return Flow::Quit,
                (Flow::DrawAll, _) | (_, Flow::DrawAll) => Flow::DrawAll,
                (Flow::Draw, _) | (_, Flow::Draw) => Flow::Draw,
                (Flow::Wait | Flow::Quit, Flow::Wait) => Flow::Wait,
            };
            if is_key {
                break;
            }
        }
        if flow == Flow::Wait { Flow::Draw } else { flow }
    }

    fn handle(&mut self, message: Message) -> Flow {
        match message {
            Message::Key(key) => match self.state.press(key, &self.page) {
                Some(action) => self.carry_out(action),
                None => Flow::Draw,
            },
            Message::Resized => Flow::Draw,
            Message::Quit => Flow::Quit,
            Message::Suspend => suspend(),
            Message::Continue => {
                // The shell may have changed the settings of the terminal meanwhile.
                terminal::leave();
                resume()
            }
            Message::FeedEnded(kind, result) => {
                // The status of the session that ended tells the reason.
                let is_current = match kind {
                    FeedKind::Events => self.events.is_some(),
                    FeedKind::Kernel => self.kernel.is_some(),
                };
                if is_current {
                    self.ended = Some(result);
                }
                if is_current { Flow::Quit } else { Flow::Wait }
            }
            Message::Lost(kind, lost) => {
                self.lost[kind as usize] = lost;
                Flow::Wait
            }
            Message::Done(result) => {
                self.activity = None;
                self.accept(*result);
                Flow::Draw
            }
        }
    }

    fn carry_out(&mut self, action: Action) -> Flow {
        match action {
            Action::Quit => return Flow::Quit,
            Action::Redraw => return Flow::DrawAll,
            // The whole job stops, as by Ctrl-Z in other programs. The signal comes back as a message.
            Action::Suspend => {
                let _ = kill_current_process_group(Signal::TSTP);
            }
            Action::TogglePause => self.toggle_pause(),
            Action::StartKernel => self.start_kernel(),
            Action::Enable(text) => self.enable(&text),
            Action::SetLevel(target, level) => self.set_level(target, level),
            Action::ToggleRecording => self.toggle_recording(),
        }
        Flow::Draw
    }

    fn toggle_pause(&mut self) {
        let second = shown_second();
        self.snapshot = self.state.is_paused.then(|| {
            let (events, kernel) = (lock(&self.event_tables).clone(), lock(&self.kernel_tables).clone());
            Box::new(Snapshot { events, kernel, second })
        });
    }

    /// Carries out a request in a thread, so that the screen stays alive.
    fn spawn(&mut self, activity: &'static str, work: impl FnOnce() -> Result<Outcome> + Send + 'static) {
        let messages = self.context.messages.clone();
        let run = move || drop(messages.send(Message::Done(Box::new(work()))));
        match thread::Builder::new().name("request".to_owned()).spawn(run) {
            Ok(_) => self.activity = Some(activity),
            Err(error) => self.state.message = Some(format!("cannot start a thread: {error}")),
        }
    }

    /// Returns whether a request is under way, and tells the user that another one must wait.
    fn is_busy(&mut self) -> bool {
        if let Some(activity) = self.activity {
            self.state.message = Some(format!("weir is still {activity}"));
        }
        self.activity.is_some()
    }

    fn start_kernel(&mut self) {
        if self.kernel.is_some() || self.activity.is_some() {
            return;
        }
        let (context, tables) = (self.context.clone(), Arc::clone(&self.kernel_tables));
        self.spawn("starting kernel events", move || {
            Feed::start_kernel(&context, tables).map(Outcome::FeedStarted)
        });
    }

    fn enable(&mut self, text: &str) {
        if self.is_busy() {
            return;
        }
        if text == KERNEL_TARGET {
            return self.start_kernel();
        }
        let request = match parse_provider(text) {
            Ok(request) => request,
            Err(reason) => {
                let first_line = reason.lines().next().unwrap_or_default();
                self.state.message = Some(escape(first_line));
                return;
            }
        };
        let Some(feed) = &self.events else {
            let (context, tables) = (self.context.clone(), Arc::clone(&self.event_tables));
            self.requests = vec![request.clone()];
            return self.spawn("starting a session", move || {
                Feed::start_events(&context, &[request], tables).map(Outcome::FeedStarted)
            });
        };
        let (session, mut requests) = (feed.session(), self.requests.clone());
        self.spawn("enabling", move || {
            session.with(|session| {
                session.enable(std::slice::from_ref(&request))?;
                sessions::note_unseen_providers(session.controller(), std::slice::from_ref(&request))
            })?;
            let done = format!("enabled {}", escape(&request.name));
            add_request(&mut requests, request);
            Ok(Outcome::Enabled(requests, done))
        });
    }

    fn set_level(&mut self, target: LevelTarget, level: u8) {
        if self.is_busy() {
            return;
        }
        let Some(feed) = &self.events else { return };
        let (session, requests) = (feed.session(), self.requests.clone());
        self.spawn("setting the level", move || {
            let change = session.with(|session| {
                let registered = session.controller().providers()?;
                let change = change_level(&requests, &target, level, &registered)?;
                // The new enables come first, so that no event between the two is left out.
                session.enable(&change.enable)?;
                disable(session, &change.disable)?;
                Ok(change)
            })?;
            let name = target.name.map_or_else(|| target.provider.to_string(), |name| name.to_string());
            let done = match (&change.disable[..], change.enable.len()) {
                ([replaced, ..], 2..) => {
                    format!("set the level of {name}; {} is replaced by registered providers", replaced.name)
                }
                _ => format!("set the level of {name}"),
            };
            Ok(Outcome::Enabled(change.requests, escape(&done)))
        });
    }

    fn toggle_recording(&mut self) {
        if self.is_busy() {
            return;
        }
        if let Some((recording, _)) = self.recording.take() {
            return self
                .spawn("ending the recording", move || recording.stop().map(|()| Outcome::RecordingEnded));
        }
        let requests = if self.events.is_some() { self.requests.clone() } else { Vec::new() };
        let (has_kernel, daemon_choice) = (self.kernel.is_some(), self.context.daemon_choice);
        self.spawn("starting a recording", move || {
            let kernel = has_kernel.then(kernel_selection).transpose()?;
            let stacks = kernel.is_some().then_some(StackSelection::None);
            let kernel = KernelEvents { kernel, stacks, ..KernelEvents::default() };
            let recording = BackgroundRecording::start(requests, kernel, daemon_choice)?;
            Ok(Outcome::RecordingStarted(Box::new(recording)))
        });
    }

    /// Takes over the result of a request.
    fn accept(&mut self, result: Result<Outcome>) {
        let message = match result {
            Ok(Outcome::FeedStarted(feed)) => {
                let slot = match feed.kind {
                    FeedKind::Events => &mut self.events,
                    FeedKind::Kernel => &mut self.kernel,
                };
                *slot = Some(feed);
                return;
            }
            Ok(Outcome::Enabled(requests, message)) => {
                self.requests = requests;
                message
            }
            Ok(Outcome::RecordingStarted(recording)) => {
                let message = format!("recording to {}; r ends it", escape_path(recording.file()));
                self.recording = Some((recording, Instant::now()));
                message
            }
            // The summary of the file follows as a note.
            Ok(Outcome::RecordingEnded) => "recording ended".to_owned(),
            Err(error) => {
                if self.events.is_none() {
                    // The session of these requests did not start.
                    self.requests.clear();
                }
                format_error(&error).replace('\n', " ")
            }
        };
        self.state.message = Some(message);
    }

    /// Draws the screen, with `is_all` also what has not changed since it was drawn last.
    fn draw(&mut self, screen: &mut ScreenTerminal, is_all: bool) -> std::io::Result<()> {
        let size = screen.size()?;
        let area = Rect::new(0, 0, size.width, size.height);
        if is_all {
            // `Terminal::clear` would ask the terminal for its cursor, and the thread that reads keys
            // would get the answer.
            screen.resize(area)?;
        }
        let totals = self.build_page(view::table_height(area));
        let is_colourful = allows_colours(true);
        let shown = Screen { state: &self.state, page: &self.page, totals: &totals, is_colourful };
        screen.draw(|frame| view::draw(frame, &shown)).map(drop)
    }

    /// Builds the lines of the table, and returns the totals.
    fn build_page(&mut self, height: usize) -> Totals {
        let now = FileTime::now();
        let mut events = lock(&self.event_tables);
        events.set_now(now);
        let mut kernel = lock(&self.kernel_tables);
        kernel.set_now(now);
        let snapshot = self.snapshot.as_deref();
        let (events, kernel): (&EventTables, &KernelTables) =
            snapshot.map_or((&*events, &*kernel), |snapshot| (&snapshot.events, &snapshot.kernel));
        let second = snapshot.map_or_else(shown_second, |snapshot| snapshot.second);
        let tab = self.state.tab;
        let order = self.state.tab_state().order;
        let filter = self.state.filter.clone();
        let requests = &self.requests;
        let request = PageRequest {
            tab,
            order,
            filter: &filter,
            height,
            history: HISTORY_SECONDS,
            second,
            find_level: &|provider, name| find_level(requests, provider, name),
        };
        let source = PageSource {
            events: self.events.is_some().then_some(events),
            kernel: self.kernel.is_some().then_some(kernel),
        };
        self.page = Page::build(source, &request, &mut self.state.tab_state_mut().selection);
        let mut history = events.total.amounts_until(second, HISTORY_SECONDS);
        let kernel_history = kernel.total.amounts_until(second, HISTORY_SECONDS);
        history.iter_mut().zip(kernel_history).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        Totals {
            rate: history.last().copied().unwrap_or(0),
            history,
            lost: self.lost.iter().sum(),
            enabled: self.requests.len(),
            has_kernel: self.kernel.is_some(),
            cpu_percent: self.kernel.is_some().then(|| kernel.cpu_percent(second)),
            recording: self
                .recording
                .as_ref()
                .map(|(recording, started)| (escape_path(recording.file()), started.elapsed().as_secs())),
            activity: self.activity,
        }
    }

    /// Ends the recording and the sessions, and reports losses.
    pub(super) fn finish(
        mut self,
        shown: Result<()>,
        incoming: &Receiver<Message>,
    ) -> Result<CommandOutcome> {
        let deadline = Instant::now() + LAST_REQUEST_TIMEOUT;
        while self.activity.is_some() {
            match incoming.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(message @ Message::Done(_)) => {
                    self.handle(message);
                }
                Ok(_) => {}
                // The daemon stops the sessions of a request that is still under way.
                Err(_) => break,
            }
        }
        let recorded = self.recording.take().map(|(recording, _)| recording.stop()).transpose();
        let mut outcome = CommandOutcome::Fine;
        for feed in [self.events.take(), self.kernel.take()].into_iter().flatten() {
            outcome = outcome.max(report_end(feed.stop()?)?);
        }
        shown?;
        recorded?;
        match self.ended {
            Some(Err(error)) if !is_disconnect(&error) => Err(error),
            _ => Ok(outcome),
        }
    }
}

fn is_disconnect(error: &anyhow::Error) -> bool {
    error.chain().any(|e| e.downcast_ref::<Error>().is_some_and(sessions::is_disconnect))
}

/// Reports how a session ended, unless this program stopped it, and what it lost.
fn report_end(end: Option<SessionEnd>) -> Result<CommandOutcome> {
    match end {
        None => Ok(CommandOutcome::Fine),
        Some(SessionEnd::ByUs(summary)) => Ok(sessions::report_losses(&summary, true)),
        Some(SessionEnd::BeforeStop(summary)) => {
            match summary.end_status {
                None => eprintln!("the session was stopped by another process"),
                Some(_) => eprintln!("{}", sessions::describe_end(&summary)),
            }
            Ok(sessions::report_losses(&summary, true))
        }
        Some(SessionEnd::WithDaemon(socket)) => {
            bail!("the daemon at {} has ended, and the session with it", escape_path(&socket))
        }
    }
}

/// Restores the terminal and stops this process until it is continued.
fn suspend() -> Flow {
    terminal::leave();
    let _ = kill_process(getpid(), Signal::STOP);
    resume()
}

/// Takes the terminal over again.
fn resume() -> Flow {
    // If the terminal is gone, drawing fails next.
    let _ = terminal::enter();
    Flow::DrawAll
}

/// Returns the second whose rates are shown now.
fn shown_second() -> Second {
    Second::of_time(FileTime::now()).minus(SHOWN_AGE_SECONDS)
}

/// Returns the time until the screen is drawn next: once a second, when the second before is
/// complete.
fn until_next_draw(now: FileTime) -> Duration {
    let into_second = Duration::from_nanos(now.0.rem_euclid(10_000_000).unsigned_abs().saturating_mul(100));
    let second = Duration::from_secs(1);
    DRAW_OFFSET
        .checked_sub(into_second)
        .filter(|left| !left.is_zero())
        .unwrap_or(DRAW_OFFSET + second - into_second)
}
