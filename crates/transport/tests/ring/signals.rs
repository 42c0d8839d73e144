//! Tests a signal handler that interrupts a write and writes a record itself.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;

use traceweir_transport::ring::{Outlet, Ticket};

use crate::support::{self, RecordMark};

static OUTLET: Outlet = Outlet::new();
static TICKET: AtomicU64 = AtomicU64::new(0);
static NUMBER: AtomicU64 = AtomicU64::new(0);
static REFUSED: AtomicU64 = AtomicU64::new(0);

const HANDLER_WRITER: u32 = 1000;

extern "C" fn on_signal(_: libc::c_int) {
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let ticket = Ticket(TICKET.load(Ordering::Relaxed));
    if RecordMark::new(HANDLER_WRITER, number, 300).write(&OUTLET, ticket).is_err() {
        REFUSED.fetch_add(1, Ordering::Relaxed);
    }
}

fn install_handler() {
    // SAFETY: the handler does only what a signal handler may; the structure is valid when zeroed.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(libc::sigaction(libc::SIGUSR2, &action, std::ptr::null_mut()), 0);
    }
}

#[test]
fn handler_that_interrupts_a_write_can_write() {
    install_handler();
    for clock in support::WRITER_CLOCKS {
        let params = support::region_params(clock, 1 << 16);
        let (mut reader, ticket) = support::open_region(&OUTLET, &params);
        TICKET.store(ticket.0, Ordering::Relaxed);
        NUMBER.store(0, Ordering::Relaxed);
        REFUSED.store(0, Ordering::Relaxed);
        let stop: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let (id_sender, ids) = mpsc::channel();
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let id_sender = id_sender.clone();
                thread::spawn(move || {
                    id_sender.send(rustix::thread::gettid()).unwrap();
                    let (mut number, mut refused) = (0, 0u64);
                    while !stop.load(Ordering::Relaxed) {
                        refused +=
                            u64::from(RecordMark::new(writer, number, 300).write(&OUTLET, ticket).is_err());
                        number += 1;
                    }
                    (number, refused)
                })
            })
            .collect();
        let threads: Vec<_> = ids.iter().take(2).collect();
        let (mut seen, mut stamps, mut by_handler) = (HashSet::new(), Vec::new(), 0);
        let mut take = |reader: &mut _| {
            support::drain_region(reader, &mut stamps, |mark| {
                assert!(seen.insert((mark.writer, mark.number)), "{mark:?} came twice");
                by_handler += u64::from(mark.writer == HANDLER_WRITER);
            });
        };
        for _ in 0..1500 {
            for thread in &threads {
                // SAFETY: a signal for which there is a handler is sent to a thread that was not
                // joined yet.
                let sent = unsafe {
                    libc::syscall(
                        libc::SYS_tgkill,
                        libc::getpid(),
                        thread.as_raw_nonzero().get(),
                        libc::SIGUSR2,
                    )
                };
                assert_eq!(sent, 0);
            }
            take(&mut reader);
        }
        stop.store(true, Ordering::Relaxed);
        let results = writers.into_iter().map(|writer| writer.join().unwrap());
        let (offered, refused) = results.fold((0, 0), |(offered_sum, refused_sum), (offered, refused)| {
            (offered_sum + offered, refused_sum + refused)
        });
        take(&mut reader);
        let (signals, handler_refused) = (NUMBER.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed));
        assert!(signals > 0 && by_handler > 0, "{signals} signals, {by_handler} records of the handler");
        assert_eq!(reader.lost(), refused + handler_refused);
        assert_eq!(seen.len() as u64 + refused + handler_refused, offered + signals);
        assert!(OUTLET.close());
    }
}
