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
            let mut encoded = Vec::new();
            message.encode(request, &mut encoded).expect("a received message can be encoded");
            assert_eq!(encoded, data, "a message must have one encoding");
        }
        Err(Error::Message(_) | Error::Unexpected(_)) => {}
        Err(error) => panic!("the decoder must not return this error: {error}"),
    }
});
