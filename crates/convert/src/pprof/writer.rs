//! Writes and compresses a profile.

use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::tables::{EMPTY, LineKey, LocationKey, MAX_LOCATIONS, Numbered, OTHER_ID, OwnTexts};
use super::{DEFAULT_INTERVAL_NS, Profile, Values, field};
use crate::activity::{ActivityTables, NodeIndex, ThreadIndex};
use crate::protobuf::Message;

/// Bytes of the output to collect before they are compressed.
const OUTPUT_BYTES: usize = 1 << 16;

impl Profile {
    /// Writes the profile.
    pub(super) fn write(mut self, tables: &ActivityTables, end_ns: i64, out: &mut dyn Write) -> Result<()> {
        let mut writer =
            ProfileWriter { out: GzEncoder::new(out, Compression::default()), message: Message::default() };
        let OwnTexts { samples, count, cpu, off_cpu, nanoseconds, comment, .. } = self.own;
        let mut types = Vec::new();
        let has_waits = self.has_waits;
        if self.has_samples {
            types.extend([(samples, count), (cpu, nanoseconds)]);
        }
        if has_waits {
            types.push((off_cpu, nanoseconds));
        }
        for (kind, unit) in &types {
            writer.message.put_message(field::SAMPLE_TYPE, |message| put_value_type(message, *kind, *unit));
        }
        let mut rows: Vec<((NodeIndex, Option<ThreadIndex>), Values)> = self.rows.drain().collect();
        rows.sort_unstable_by_key(|(key, _)| *key);
        for ((node, thread), values) in rows {
            let labels = self.labels(tables, thread);
            let Self { stacks, has_samples, .. } = &self;
            writer.message.put_message(field::SAMPLE, |message| {
                message.put_packed(field::SAMPLE_LOCATION_ID, stacks.frames(node).map(u64::from));
                let cpu_values = [values.samples, values.cpu_ns];
                let cpu_values = cpu_values.into_iter().filter(|_| *has_samples);
                let values = cpu_values.chain(has_waits.then_some(values.off_cpu_ns));
                message.put_packed(field::SAMPLE_VALUE, values);
                for (key, value) in &labels {
                    message.put_message(field::SAMPLE_LABEL, |message| {
                        message.put_u64(field::LABEL_KEY, (*key).into());
                        match value {
                            LabelValue::Text(text) => message.put_u64(field::LABEL_TEXT, (*text).into()),
                            LabelValue::Number(number) => message.put_u64(field::LABEL_NUMBER, *number),
                        };
                    });
                }
            });
            writer.write_if_full()?;
        }
        self.write_mappings(tables, &mut writer)?;
        self.write_locations(&mut writer)?;
        for (text, _) in self.texts.numbered.take() {
            writer.message.put_text(field::STRING_TABLE, &text);
            writer.write_if_full()?;
        }
        writer.message.put_i64(field::TIME_NANOS, tables.start_unix_ns());
        writer.message.put_i64(field::DURATION_NANOS, end_ns);
        writer.message.put_message(field::PERIOD_TYPE, |message| put_value_type(message, cpu, nanoseconds));
        writer.message.put_u64(field::PERIOD, self.interval_ns.unwrap_or(DEFAULT_INTERVAL_NS));
        writer.message.put_u64(field::COMMENT, comment.into());
        writer.write()?;
        writer.out.finish()?;
        Ok(())
    }

    /// Returns the labels of a thread and its process, with the numbers of their keys.
    fn labels(&mut self, tables: &ActivityTables, thread: Option<ThreadIndex>) -> Vec<(u32, LabelValue)> {
        let mut labels = Vec::new();
        let Some((index, thread)) = thread.and_then(|index| Some((index, tables.lives.thread(index)?)))
        else {
            return labels;
        };
        let (pid, tid) = tables.output_ids(Some(index));
        let process = thread.process.and_then(|process| tables.lives.process(process));
        let names = [
            (self.own.process, process.and_then(|process| process.name.as_ref())),
            (self.own.thread, thread.name.as_ref()),
        ];
        for (key, name) in names {
            // Readers take a label with an empty text for the number 0.
            let text = name.and_then(|name| self.texts.find_or_add(name)).filter(|text| *text != EMPTY);
            labels.extend(text.map(|text| (key, LabelValue::Text(text))));
        }
        for (key, id) in [(self.own.pid, pid), (self.own.tid, tid)] {
            labels.extend(id.map(|id| (key, LabelValue::Number(id.into()))));
        }
        labels
    }

    fn write_mappings(&mut self, tables: &ActivityTables, writer: &mut ProfileWriter<'_>) -> Result<()> {
        for (id, mapping) in (1_u64..).zip(tables.stacks.mappings()) {
            let file = self.texts.find_or_add(&mapping.path).unwrap_or(EMPTY);
            let build_id = self.texts.find_or_add(&Arc::from(mapping.build_id.as_str())).unwrap_or(EMPTY);
            writer.message.put_message(field::MAPPING, |message| {
                message.put_u64(field::ID, id).put_u64(field::MAPPING_START, mapping.base);
                message.put_u64(field::MAPPING_LIMIT, mapping.base.saturating_add(mapping.size));
                message
                    .put_u64(field::MAPPING_FILE, file.into())
                    .put_u64(field::MAPPING_BUILD_ID, build_id.into());
                // Names are final: a reader does not search for symbols.
                for has in [
                    field::MAPPING_HAS_FUNCTIONS,
                    field::MAPPING_HAS_FILE_NAMES,
                    field::MAPPING_HAS_LINES,
                    field::MAPPING_HAS_INLINED,
                ] {
                    message.put_u64(has, 1);
                }
            });
            writer.write_if_full()?;
        }
        Ok(())
    }

    fn write_locations(&mut self, writer: &mut ProfileWriter<'_>) -> Result<()> {
        let other = LineKey { name: self.own.other, file: EMPTY, line: 0 };
        let mut functions: Numbered<(u32, u32)> = Numbered::new(OTHER_ID.saturating_add(1), MAX_LOCATIONS);
        let other_location = LocationKey { address: 0, mapping: None, lines: vec![other] };
        for (location, id) in std::iter::once((other_location, OTHER_ID)).chain(self.locations.take()) {
            writer.message.put_message(field::LOCATION, |message| {
                message.put_u64(field::ID, id.into());
                if let Some(mapping) = location.mapping {
                    message.put_u64(field::LOCATION_MAPPING, u64::from(mapping.0).saturating_add(1));
                }
                message.put_u64(field::LOCATION_ADDRESS, location.address);
                for line in &location.lines {
                    let function =
                        if id == OTHER_ID { None } else { functions.find_or_add((line.name, line.file)) };
                    message.put_message(field::LOCATION_LINE, |message| {
                        message.put_u64(field::LINE_FUNCTION, function.unwrap_or(OTHER_ID).into());
                        if line.line > 0 {
                            message.put_u64(field::LINE_NUMBER, line.line.into());
                        }
                    });
                }
            });
            writer.write_if_full()?;
        }
        let other_function = ((other.name, other.file), OTHER_ID);
        for ((name, file), id) in std::iter::once(other_function).chain(functions.take()) {
            writer.message.put_message(field::FUNCTION, |message| {
                message.put_u64(field::ID, id.into()).put_u64(field::FUNCTION_NAME, name.into());
                message.put_u64(field::FUNCTION_SYSTEM_NAME, name.into());
                message.put_u64(field::FUNCTION_FILE, file.into());
            });
            writer.write_if_full()?;
        }
        Ok(())
    }
}

/// The value of a label.
enum LabelValue {
    /// Number of the text.
    Text(u32),
    Number(u64),
}

fn put_value_type(message: &mut Message, kind: u32, unit: u32) {
    message.put_u64(field::VALUE_TYPE, kind.into()).put_u64(field::VALUE_UNIT, unit.into());
}

/// Writes and compresses the fields of a profile.
struct ProfileWriter<'o> {
    out: GzEncoder<&'o mut dyn Write>,
    message: Message,
}

impl ProfileWriter<'_> {
    fn write_if_full(&mut self) -> Result<()> {
        if self.message.bytes().len() >= OUTPUT_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<()> {
        self.out.write_all(self.message.bytes())?;
        self.message.clear();
        Ok(())
    }
}
