use super::super::page::{Line, LineKey};
use super::*;

fn key(code: KeyCode) -> KeyEvent {
    KeyEvent::new(code, KeyModifiers::NONE)
}

fn control(c: char) -> KeyEvent {
    KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL)
}

/// Presses the keys of a text and returns the last action.
fn type_text(state: &mut ScreenState, text: &str) -> Option<Action> {
    text.chars().map(|c| state.press(key(KeyCode::Char(c)), &Page::default())).last().flatten()
}

fn press(state: &mut ScreenState, code: KeyCode) -> Option<Action> {
    state.press(key(code), &Page::default())
}

#[test]
fn keys_request_actions() {
    let mut state = ScreenState::new(Tab::Providers);
    for (pressed, action) in [
        (key(KeyCode::Char('q')), Some(Action::Quit)),
        (control('c'), Some(Action::Quit)),
        (control('z'), Some(Action::Suspend)),
        (control('l'), Some(Action::Redraw)),
        (control('q'), None),
        (key(KeyCode::Char('r')), Some(Action::ToggleRecording)),
        (key(KeyCode::Char('p')), Some(Action::TogglePause)),
        (key(KeyCode::Char('5')), Some(Action::StartKernel)),
        (key(KeyCode::Char('x')), None),
    ] {
        assert_eq!(state.press(pressed, &Page::default()), action, "{pressed:?}");
    }
    assert!(state.is_paused);
    let release = KeyEvent::new_with_kind(KeyCode::Char('q'), KeyModifiers::NONE, KeyEventKind::Release);
    assert_eq!(state.press(release, &Page::default()), None);
}

#[test]
fn tabs_follow_each_other_in_both_directions() {
    let mut state = ScreenState::new(Tab::Providers);
    for tab in [Tab::Events, Tab::Processes, Tab::Latency, Tab::Kernel, Tab::Providers] {
        press(&mut state, KeyCode::Tab);
        assert_eq!(state.tab, tab);
    }
    press(&mut state, KeyCode::BackTab);
    assert_eq!(state.tab, Tab::Kernel);
    type_text(&mut state, "3");
    assert_eq!(state.tab, Tab::Processes);
}

#[test]
fn every_tab_has_its_own_order_and_selection() {
    let mut state = ScreenState::new(Tab::Providers);
    type_text(&mut state, "sS");
    press(&mut state, KeyCode::Down);
    assert_eq!(state.tab_state().order, SortOrder { column: 3, is_reversed: true });
    type_text(&mut state, "s");
    assert_eq!(state.tab_state().order, SortOrder { column: 0, is_reversed: false });
    type_text(&mut state, "2");
    assert_eq!(state.tab_state().order, Tab::Events.default_order());
    assert_eq!(state.tab_state().selection, Selection::default());
    type_text(&mut state, "1");
    assert_eq!(state.tab_state().selection.index, 1);
    press(&mut state, KeyCode::End);
    press(&mut state, KeyCode::PageDown);
    press(&mut state, KeyCode::Home);
    press(&mut state, KeyCode::Up);
    assert_eq!(state.tab_state().selection.index, 0);
}

#[test]
fn filter_applies_while_it_is_typed_and_escape_ends_it() {
    let mut state = ScreenState::new(Tab::Providers);
    type_text(&mut state, "/shq");
    press(&mut state, KeyCode::Backspace);
    assert_eq!(state.filter, "sh");
    press(&mut state, KeyCode::Enter);
    assert_eq!((state.filter.as_str(), &state.prompt), ("sh", &None));
    type_text(&mut state, "/op");
    assert_eq!(state.filter, "shop", "the prompt begins with the earlier filter");
    state.press(control('u'), &Page::default());
    assert_eq!(state.filter, "");
    type_text(&mut state, "cafe");
    press(&mut state, KeyCode::Enter);
    press(&mut state, KeyCode::Esc);
    assert_eq!(state.filter, "");
    // Keys of the prompt are text, and the text has a limit.
    type_text(&mut state, "/q\u{1b}\u{7f}");
    assert_eq!(state.filter, "q");
    type_text(&mut state, &"x".repeat(10_000));
    assert_eq!(state.filter.len(), MAX_TYPED_CHARS);
    assert_eq!(state.press(control('c'), &Page::default()), Some(Action::Quit));
}

#[test]
fn provider_is_enabled_by_its_typed_name() {
    let mut state = ScreenState::new(Tab::Providers);
    type_text(&mut state, "e A.B::3 ");
    assert_eq!(press(&mut state, KeyCode::Enter), Some(Action::Enable("A.B::3".to_owned())));
    type_text(&mut state, "e");
    assert_eq!(press(&mut state, KeyCode::Enter), None, "without a name, nothing is enabled");
    type_text(&mut state, "eq");
    assert_eq!((press(&mut state, KeyCode::Esc), &state.prompt), (None, &None));
}

#[test]
fn level_is_set_for_the_provider_of_the_selected_line() {
    let provider = Guid::from_u128(5);
    let line = |key: LineKey| Line {
        key,
        name: "Brew".into(),
        provider_name: Some("Shop".into()),
        values: [0.0; 7],
        history: Vec::new(),
    };
    let lines = vec![line(LineKey::Process(1)), line(LineKey::Provider(provider))];
    let mut page = Page { lines, selected: 1, first: 0, kept: 2 };
    let mut state = ScreenState::new(Tab::Providers);
    let mut set_level = |page: &Page, text: &str| {
        state.press(key(KeyCode::Char('l')), page);
        type_text(&mut state, text);
        let action = press(&mut state, KeyCode::Enter);
        (action, state.message.take())
    };
    let target = LevelTarget { provider, name: Some("Shop".into()) };
    assert_eq!(set_level(&page, "warning"), (Some(Action::SetLevel(target.clone(), 3)), None));
    assert_eq!(set_level(&page, "all"), (Some(Action::SetLevel(target, 0)), None));
    let (action, message) = set_level(&page, "loud");
    assert!(action.is_none() && message.is_some());
    page.selected = 0;
    state.press(key(KeyCode::Char('l')), &page);
    assert!(state.prompt.is_none() && state.message.is_some(), "a process has no level");
    assert_eq!(press(&mut state, KeyCode::Char('l')), None, "an empty page has no line");
}

#[test]
fn any_key_closes_the_help_and_does_nothing_else() {
    let mut state = ScreenState::new(Tab::Providers);
    type_text(&mut state, "?");
    assert!(state.shows_help);
    assert_eq!(type_text(&mut state, "q"), None);
    assert!(!state.shows_help);
}
