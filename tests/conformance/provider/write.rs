//! Writing: codes, payload, strings.

use traceweir::Provider;
use traceweir::controller::EnableParams;

use crate::rule::{Rule, rule};
use crate::stage::{Stage, event, new_provider};

pub(crate) const RULES: &[Rule] = &[
    rule!("provider 4.1", D, "0 when written, or when nobody is listening", writing_to_nobody_is_success),
    rule!("provider 4.1", D, "more than 128 descriptors → 87", a_hundred_and_twenty_eight_blocks),
    rule!("provider 4.2", D, "the payload is the blocks one after the other", blocks_are_joined),
];

fn writing_to_nobody_is_success(_stage: &Stage) {
    let provider = Provider::register(new_provider(), None).unwrap();
    assert_eq!(provider.write(&event(1, 4, 1), &[b"unheard"]), Ok(()));
}

fn a_hundred_and_twenty_eight_blocks(stage: &Stage) {
    let (guid, session) = (new_provider(), stage.start(&stage.config()));
    let provider = Provider::register(guid, None).unwrap();
    stage.enable(&session, guid, &EnableParams::default());
    let write = |blocks| provider.write(&event(1, 4, 1), &vec![&b"x"[..]; blocks]).map_err(|e| e.status().0);
    assert_eq!(write(128), Ok(()));
    assert_eq!(write(129), Err(87));
    assert_eq!(stage.stop(session).len(), 1);
}

fn blocks_are_joined(stage: &Stage) {
    let (guid, session) = (new_provider(), stage.start(&stage.config()));
    let provider = Provider::register(guid, None).unwrap();
    stage.enable(&session, guid, &EnableParams::default());
    provider.write(&event(7, 4, 1), &[b"one", b"", b"two"]).unwrap();
    let seen = stage.stop(session);
    assert_eq!(seen.len(), 1);
    assert_eq!((seen[0].descriptor.id, &seen[0].payload[..]), (7, &b"onetwo"[..]));
}
