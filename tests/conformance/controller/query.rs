//! Rules for QueryAllTraces. `rule.rs` explains the rows.

use traceweir::controller::SessionConfig;
use traceweir::private::PrivateSession;

use crate::helpers::Fixture;
use crate::rule::{Rule, rule};

#[rustfmt::skip]
pub(crate) const RULES: &[Rule] = &[
    rule!("controller 5", D, "all running sessions are listed, each once and as its own query shows it",
        all_sessions_are_listed),
    rule!("controller 5", D, "private sessions are never listed", private_sessions_are_not_listed),
];

fn all_sessions_are_listed(fixture: &Fixture) {
    let sessions: Vec<_> = (0..12).map(|_| fixture.start(&fixture.config())).collect();
    let listed = fixture.connect().query_all().unwrap();
    for session in &sessions {
        let entries: Vec<_> = listed.iter().filter(|entry| entry.id == session.properties.id).collect();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].config, session.properties.config);
    }
    assert_eq!(listed.len(), sessions.len());
}

fn private_sessions_are_not_listed(fixture: &Fixture) {
    let config = SessionConfig { name: "a private session".to_owned(), ..fixture.config() };
    let _private = PrivateSession::start(&config).unwrap();
    let listed = fixture.connect().query_all().unwrap();
    assert!(listed.iter().all(|entry| entry.config.name != config.name));
}
