//! A fake daemon that answers `Hello`; the test answers everything else.
#![allow(dead_code)] // Each test program uses a part of this module.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tempfile::TempDir;
use traceweir_transport::message::Message;
use traceweir_transport::runtime::RuntimeDir;
use traceweir_transport::socket::{Connection, Envelope, Listener};

#[path = "../../../../tests/support/wait.rs"]
pub(crate) mod wait;
pub(crate) use wait::{TEST_TIMEOUT, until};

/// Sends the answer to a request.
pub(crate) fn reply(connection: &Connection, request: u32, message: &Message) {
    // The client may have closed the connection already.
    let _ = connection.send(request, message, &[], TEST_TIMEOUT);
}

/// A fake daemon with a temporary runtime directory.
pub(crate) struct FakeDaemon {
    pub(crate) folder: TempDir,
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeDaemon {
    /// Starts a daemon that sends `Welcome` to every client, and calls `answer` for every other
    /// message.
    pub(crate) fn new(answer: impl Fn(&Connection, Envelope) + Send + Sync + 'static) -> Self {
        Self::with_greeting(Message::Welcome { version: 1, daemon: 7 }, answer)
    }

    /// Like [`new`](Self::new), but answers `Hello` with `greeting`.
    pub(crate) fn with_greeting(
        greeting: Message,
        answer: impl Fn(&Connection, Envelope) + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let dir = RuntimeDir::from_path(folder.path());
        let listener = Listener::bind(&dir.control_socket(), 0o600).unwrap();
        let is_stopping = Arc::new(AtomicBool::new(false));
        let (should_stop, answer) = (Arc::clone(&is_stopping), Arc::new(answer));
        let thread = std::thread::spawn(move || {
            let mut conversations = Vec::new();
            while !should_stop.load(Ordering::Relaxed) {
                match listener.accept().unwrap() {
                    Some(connection) => {
                        connection.allow_descriptors().unwrap();
                        let (greeting, answer, should_stop) =
                            (greeting.clone(), Arc::clone(&answer), Arc::clone(&should_stop));
                        let serve = move || serve_connection(&connection, &greeting, &*answer, &should_stop);
                        conversations.push(std::thread::spawn(serve));
                    }
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
            }
            for conversation in conversations {
                // If `answer` panicked, the test fails because it gets no answer.
                let _ = conversation.join();
            }
        });
        Self { folder, is_stopping, thread: Some(thread) }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for FakeDaemon {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn serve_connection(
    connection: &Connection,
    greeting: &Message,
    answer: &impl Fn(&Connection, Envelope),
    should_stop: &AtomicBool,
) {
    while !should_stop.load(Ordering::Relaxed) {
        match connection.receive(Duration::from_millis(20)) {
            Ok(Some(Envelope { request, message: Message::Hello { .. }, .. })) => {
                reply(connection, request, greeting);
            }
            Ok(Some(envelope)) => answer(connection, envelope),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}
