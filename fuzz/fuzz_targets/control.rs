//! Fuzzes control messages, which another process may send over a socket.
#![no_main]

use libfuzzer_sys::fuzz_target;
use traceweir_fuzz as _;
use traceweir_transport::Error;
use traceweir_transport::message::{MAX_MESSAGE_BYTES, Message};

fuzz_target!(|data: &[u8]| {
    match Message::decode(data) {
        Ok((request, message)) => {
            assert!(data.len() <= MAX_MESSAGE_BYTES);
            let mut again = Vec::new();
            message.encode(request, &mut again).expect("what was received can be sent");
            assert_eq!(again, data, "a message has one form");
        }
        Err(Error::Message(_) | Error::Unexpected(_)) => {}
        Err(other) => panic!("not an error of a decoder: {other}"),
    }
});
