//! The published schema of speedscope files, written by hand, and a validator for it.

use serde_json::Value;

/// The schema of a value.
pub(super) enum Rule {
    Text,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    Number,
    /// An integer, at least 0.
    Index,
    List(&'static Rule),
    /// An object with these members: name, whether it is required, schema. Other members are
    /// errors.
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

/// Validates a value. The error says what is wrong, and where.
pub(super) fn validate(value: &Value, rule: &Rule, path: &str) -> Result<(), String> {
    let is = |is_valid: bool, what: &str| {
        if is_valid { Ok(()) } else { Err(format!("{path} is not {what}: {value}")) }
    };
    match rule {
        Rule::Text => is(value.is_string(), "a text"),
        Rule::OneOf(texts) => {
            is(value.as_str().is_some_and(|text| texts.contains(&text)), "one of those texts")
        }
        Rule::Number => is(value.is_number(), "a number"),
        Rule::Index => is(value.is_u64(), "an index"),
        Rule::List(element) => {
            let list = value.as_array().ok_or_else(|| format!("{path} is no list"))?;
            list.iter()
                .enumerate()
                .try_for_each(|(index, item)| validate(item, element, &format!("{path}[{index}]")))
        }
        Rule::Object(members) => {
            let object = value.as_object().ok_or_else(|| format!("{path} is no object"))?;
            if let Some(other) = object.keys().find(|key| !members.iter().any(|(name, ..)| name == key)) {
                return Err(format!("{path} has a member {other}"));
            }
            members.iter().try_for_each(|(name, must, rule)| match object.get(*name) {
                Some(member) => validate(member, rule, &format!("{path}.{name}")),
                None if *must => Err(format!("{path} has no {name}")),
                None => Ok(()),
            })
        }
    }
}

#[test]
fn validator_accepts_valid_and_rejects_invalid_files() {
    let good = serde_json::json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": {"frames": [{"name": "a"}]},
        "profiles": [{"type": "sampled", "name": "p", "unit": "none", "startValue": 0, "endValue": 1, "samples": [[0]], "weights": [1]}],
    });
    assert_eq!(validate(&good, &FILE, "file"), Ok(()));
    for (pointer, wrong) in [
        ("/shared/frames/0/name", serde_json::json!(1)),
        ("/profiles/0/unit", serde_json::json!("hours")),
        ("/profiles/0/samples/0/0", serde_json::json!(-1)),
        ("/profiles/0/weights", serde_json::json!({})),
    ] {
        let mut bad = good.clone();
        *bad.pointer_mut(pointer).unwrap() = wrong;
        assert!(validate(&bad, &FILE, "file").is_err(), "{pointer}");
    }
}
