//! Controllers, consumers, classic providers, provider groups, information classes and relogging,
//! as programs use them; and the list of the public API.
//!
//! Providers find daemons by the environment of their process. So a test with both runs in a
//! separate process: this program, started again with the name of the test.

mod classic;
mod consumer_clock;
mod consumer_daemon;
mod consumer_fed;
mod consumer_files;
mod consumer_live;
mod controller;
mod controller_daemon;
mod groups;
mod info_daemon;
mod info_responder;
#[path = "../../../../tests/support/machine.rs"]
mod machine;
mod public_api;
#[path = "../support/recording.rs"]
mod recording;
mod relog;
mod sessions;
#[path = "../../../../tests/support/skip.rs"]
mod skip;
#[path = "../support/fake_daemon.rs"]
mod support;
#[path = "../support/daemon.rs"]
mod support_daemon;

#[test]
#[ignore = "run by other tests, as a daemon in a separate process"]
fn daemon_role() {
    support_daemon::run_daemon_role();
}
