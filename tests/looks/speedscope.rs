//! The published schema of speedscope's files, written down by hand, and a judge that holds a file to it.

use serde_json::Value;

/// What a value has to be.
pub(super) enum Rule {
    Text,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    Number,
    /// A whole number from 0 on.
    Index,
    List(&'static Rule),
    /// Members: name, whether it must be there, what it is. Others may not be there.
    Object(&'static [(&'static str, bool, Rule)]),
}

const FRAME: Rule = Rule::Object(&[
    ("name", true, Rule::Text),
    ("file", false, Rule::Text),
    ("line", false, Rule::Number),
    ("col", false, Rule::Number),
]);

const UNITS: &[&str] = &["none", "nanoseconds", "microseconds", "milliseconds", "seconds", "bytes"];

const SAMPLED: Rule = Rule::Object(&[
    ("type", true, Rule::OneOf(&["sampled"])),
    ("name", true, Rule::Text),
    ("unit", true, Rule::OneOf(UNITS)),
    ("startValue", true, Rule::Number),
    ("endValue", true, Rule::Number),
    ("samples", true, Rule::List(&Rule::List(&Rule::Index))),
    ("weights", true, Rule::List(&Rule::Number)),
]);

/// A file with sampled profiles.
pub(super) const FILE: Rule = Rule::Object(&[
    ("$schema", true, Rule::OneOf(&["https://www.speedscope.app/file-format-schema.json"])),
    ("shared", true, Rule::Object(&[("frames", true, Rule::List(&FRAME))])),
    ("profiles", true, Rule::List(&SAMPLED)),
    ("name", false, Rule::Text),
    ("activeProfileIndex", false, Rule::Index),
    ("exporter", false, Rule::Text),
]);

/// What is wrong with a value, and where.
pub(super) fn judge(value: &Value, rule: &Rule, place: &str) -> Result<(), String> {
    let is = |it: bool, what: &str| if it { Ok(()) } else { Err(format!("{place} is not {what}: {value}")) };
    match rule {
        Rule::Text => is(value.is_string(), "a text"),
        Rule::OneOf(texts) => is(value.as_str().is_some_and(|it| texts.contains(&it)), "one of those texts"),
        Rule::Number => is(value.is_number(), "a number"),
        Rule::Index => is(value.is_u64(), "an index"),
        Rule::List(of) => {
            let list = value.as_array().ok_or_else(|| format!("{place} is no list"))?;
            list.iter().enumerate().try_for_each(|(at, it)| judge(it, of, &format!("{place}[{at}]")))
        }
        Rule::Object(members) => {
            let object = value.as_object().ok_or_else(|| format!("{place} is no object"))?;
            if let Some(other) = object.keys().find(|key| !members.iter().any(|(name, ..)| name == key)) {
                return Err(format!("{place} has a member {other}"));
            }
            members.iter().try_for_each(|(name, must, rule)| match object.get(*name) {
                Some(it) => judge(it, rule, &format!("{place}.{name}")),
                None if *must => Err(format!("{place} has no {name}")),
                None => Ok(()),
            })
        }
    }
}

#[test]
fn the_judge_tells_right_from_wrong() {
    let good = serde_json::json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": "a"}]},
        "profiles": [{"type": "sampled", "name": "p", "unit": "none", "startValue": 0, "endValue": 1, "samples": [[0]], "weights": [1]}],
    });
    assert_eq!(judge(&good, &FILE, "file"), Ok(()));
    for (pointer, wrong) in [
        ("/shared/frames/0/name", serde_json::json!(1)),
        ("/profiles/0/unit", serde_json::json!("hours")),
        ("/profiles/0/samples/0/0", serde_json::json!(-1)),
        ("/profiles/0/weights", serde_json::json!({})),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = wrong;
        assert!(judge(&bad, &FILE, "file").is_err(), "{pointer}");
    }
}
