//! StartTrace: errors in their order.

use traceweir::Guid;

use crate::rule::{NotHere, Rule, not_here, rule};
use crate::stage::{Stage, unique};

pub(crate) const RULES: &[Rule] = &[
    rule!("controller 3.2 #6", D, "a name longer than 1,024 units, terminator included → 87", long_names_are_refused),
    rule!("controller 3.2 #11", O, "the name of a running session, in any case → 183", a_name_is_taken_in_any_case),
    rule!("controller 3.2 #11", D, "the GUID of a running session → 183", a_guid_is_taken),
];

pub(crate) const NOT_HERE: &[NotHere] = &[not_here!(
    "controller 3.2 #1",
    O,
    "Props, Id or name NULL → 87",
    "there are no null pointers in the Rust interface; the C façade tests it"
)];

fn long_names_are_refused(stage: &Stage) {
    let mut config = stage.config();
    config.name = "n".repeat(1023);
    assert_eq!(stage.refused(&config), 0);
    config.name.push('n');
    assert_eq!(stage.refused(&config), 87);
}

fn a_name_is_taken_in_any_case(stage: &Stage) {
    let mut config = stage.config();
    config.name = format!("Rule Of Names {}", unique());
    let _running = stage.start(&config);
    config.name = config.name.to_uppercase();
    config.log_file = Some(stage.path());
    assert_eq!(stage.refused(&config), 183);
}

fn a_guid_is_taken(stage: &Stage) {
    let mut config = stage.config();
    config.guid = Guid::from_u128(0x1234_0000 + u128::from(unique()));
    let _running = stage.start(&config);
    let other = traceweir::controller::SessionConfig { guid: config.guid, ..stage.config() };
    assert_eq!(stage.refused(&other), 183);
}
