//! A program that records the events of its own classic provider: classic events, and messages with
//! sequence numbers.
//!
//! ```text
//!   cargo run --example classic_messages -- /tmp/classic.etl && weir dump /tmp/classic.etl
//! ```

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use traceweir::classic::{self, Event, INVALID_LOGGER};
use traceweir::{Guid, Keywords, Level, LogFileMode, Session, Status};
use traceweir_format::header::message::{
    TRACE_MESSAGE_GUID, TRACE_MESSAGE_SEQUENCE, TRACE_MESSAGE_SYSTEMINFO, TRACE_MESSAGE_TIMESTAMP,
};

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args_os().nth(1).ok_or("usage: classic_messages FILE")?;
    let control = Guid::from_provider_name("Example-Classic");
    let class = Guid::from_provider_name("Example-Classic-Transfer");
    let session = Session::builder("classic")
        .log_file(file)
        .mode(LogFileMode::USE_LOCAL_SEQUENCE)
        .in_process()
        .start()?;
    session.enable(control).level(Level::Informational).keywords(Keywords::new(1)).apply()?;

    let logger = Arc::new(AtomicU64::new(INVALID_LOGGER));
    let logger_in_callback = Arc::clone(&logger);
    let registration = classic::register(
        control,
        &[class],
        Box::new(move |notice| {
            logger_in_callback.store(notice.logger, Ordering::Relaxed);
            Status::ERROR_SUCCESS
        }),
    )?;
    let logger = logger.load(Ordering::Relaxed);
    println!("level {}, flags {:#x}", classic::enable_level(logger)?, classic::enable_flags(logger)?);
    for kind in [1, 2] {
        classic::trace(logger, &Event { class, kind, level: 4, ..Event::default() }, &[b"block 7\0"])?;
    }
    let flags =
        TRACE_MESSAGE_SEQUENCE | TRACE_MESSAGE_GUID | TRACE_MESSAGE_TIMESTAMP | TRACE_MESSAGE_SYSTEMINFO;
    for number in 10..13 {
        classic::trace_message(logger, flags.into(), &class, number, &[&7u32.to_le_bytes(), b"disk\0"])?;
    }
    drop(registration);
    println!("{} events", session.stop()?.events);
    Ok(())
}
