//! EventEnabled and EventProviderEnabled.

use traceweir::Provider;
use traceweir::controller::EnableParams;

use crate::rule::{Rule, rule};
use crate::stage::{Stage, new_provider, wants};

pub(crate) const RULES: &[Rule] = &[
    rule!("provider 5", D, "nobody listens: never enabled", nobody_listens),
    rule!("provider 5", D, "the published formula on the combined values", the_formula_on_combined_values),
    rule!("provider 5", H, "a level of 0 counts as 255", level_0_is_all),
    rule!(
        "provider 5",
        P,
        "with IGNORE_KEYWORD_0 on every session a keyword of 0 is not enabled; on one of two it is",
        keyword_0
    ),
    rule!("provider 5", D, "never says no to an event that a session would take", never_too_strict),
];

fn nobody_listens(_stage: &Stage) {
    let provider = Provider::register(new_provider(), None).unwrap();
    assert!(
        [0, 1, 255].iter().all(|level| !provider.enabled(*level, 0) && !provider.enabled(*level, u64::MAX))
    );
}

fn the_formula_on_combined_values(stage: &Stage) {
    let (_one, provider, guid) = stage.listened(&wants(3, 1, 0b1100));
    let two = stage.start(&stage.config());
    stage.enable(&two, guid, &wants(5, 2, 0b0110));
    let (level, any, all) = (5, 0b11, 0b0100);
    for ev_level in [0, 3, 4, 5, 6, 255] {
        for keyword in [0, 1, 2, 4, 5, 6, 7, 12, u64::MAX] {
            let want = ev_level <= level && (keyword == 0 || keyword & any != 0 && keyword & all == all);
            assert_eq!(provider.enabled(ev_level, keyword), want, "{ev_level} {keyword:#b}");
        }
    }
}

fn level_0_is_all(stage: &Stage) {
    let (_session, provider, _guid) = stage.listened(&wants(0, 0, 0));
    assert!(provider.enabled(255, 1) && provider.enabled(0, 0));
}

fn keyword_0(stage: &Stage) {
    let strict = EnableParams { property: 0x10, ..EnableParams::default() };
    let (_one, provider, guid) = stage.listened(&strict);
    assert!(!provider.enabled(4, 0) && provider.enabled(4, 1));
    let two = stage.start(&stage.config());
    stage.enable(&two, guid, &EnableParams::default());
    assert!(provider.enabled(4, 0));
    stage.enable(&two, guid, &strict);
    assert!(!provider.enabled(4, 0));
}

fn never_too_strict(stage: &Stage) {
    let wishes = [wants(2, 1, 1), wants(4, 0, 8), wants(1, 6, 2)];
    let (_one, provider, guid) = stage.listened(&wishes[0]);
    let (two, three) = (stage.start(&stage.config()), stage.start(&stage.config()));
    stage.enable(&two, guid, &wishes[1]);
    stage.enable(&three, guid, &wishes[2]);
    for wish in wishes {
        let any = if wish.match_any == 0 { u64::MAX } else { wish.match_any };
        for keyword in 1..16 {
            if keyword & any != 0 && keyword & wish.match_all == wish.match_all {
                assert!(provider.enabled(wish.level, keyword), "{wish:?} {keyword:#b}");
            }
        }
    }
}
