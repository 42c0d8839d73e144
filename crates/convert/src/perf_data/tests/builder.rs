//! Builds recordings: the layouts are written down here once more, so that they check the reader.

/// Ids of the events of a recording.
const PROFILE_EVENT: u64 = 11;
pub(super) const SWITCH_EVENT: u64 = 12;
pub(super) const TICK_EVENT: u64 = 13;
/// Ids of the formats of the two tracepoints.
const SWITCH_FORMAT: u64 = 310;
const TICK_FORMAT: u64 = 400;

/// IP, TID, TIME, CALLCHAIN, CPU, PERIOD, RAW, IDENTIFIER.
const SAMPLE_TYPE: u64 = 1 | 2 | 4 | 1 << 5 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 16;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const FREQUENCY: u64 = 1 << 10;

const FORMATS: [&str; 2] = [
    "name: sched_switch\nID: 310\nformat:\n\
     \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
     \tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n\
     \tfield:int prev_prio;\toffset:12;\tsize:4;\tsigned:1;\n\
     \tfield:long prev_state;\toffset:16;\tsize:8;\tsigned:1;\n\
     \tfield:pid_t next_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
     \tfield:int next_prio;\toffset:28;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n",
    "name: tick\nID: 400\nformat:\n\
     \tfield:u64 count;\toffset:8;\tsize:8;\tsigned:0;\n\
     \tfield:__data_loc char[] label;\toffset:16;\tsize:4;\tsigned:0;\n\nprint fmt: \"\"\n",
];

/// Appends words.
pub(super) trait Words {
    fn word(&mut self, word: u64) -> &mut Self;

    fn pair(&mut self, low: u32, high: u32) -> &mut Self {
        self.word(u64::from(low) | u64::from(high) << 32)
    }
}

impl Words for Vec<u8> {
    fn word(&mut self, word: u64) -> &mut Self {
        self.extend(word.to_le_bytes());
        self
    }
}

fn padded(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Returns the attribute of an event: 64 bytes.
fn attr(kind: u32, config: u64, period: u64, flags: u64) -> Vec<u8> {
    let mut attr = Vec::new();
    attr.pair(kind, 64).word(config).word(period).word(SAMPLE_TYPE).word(0).word(flags | SAMPLE_ID_ALL);
    attr.resize(64, 0);
    attr
}

/// Returns the attributes of the events, with their ids.
fn attrs() -> [(Vec<u8>, u64); 3] {
    [
        // The clock of the processor, a thousand times a second.
        (attr(1, 0, 1000, FREQUENCY), PROFILE_EVENT),
        (attr(2, SWITCH_FORMAT, 1, 0), SWITCH_EVENT),
        (attr(2, TICK_FORMAT, 1, 0), TICK_EVENT),
    ]
}

fn tracing_data() -> Vec<u8> {
    let mut data = b"\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0".to_vec();
    for name in ["header_page\0", "header_event\0"] {
        data.extend(name.as_bytes());
        data.word(0);
    }
    data.extend(0_u32.to_le_bytes());
    data.extend(2_u32.to_le_bytes());
    for (system, format) in ["sched\0", "test\0"].into_iter().zip(FORMATS) {
        data.extend(system.as_bytes());
        data.extend(1_u32.to_le_bytes());
        data.word(format.len() as u64);
        data.extend(format.as_bytes());
    }
    data
}

fn record(kind: u32, misc: u16, body: &[u8]) -> Vec<u8> {
    let mut record = kind.to_le_bytes().to_vec();
    record.extend(misc.to_le_bytes());
    record.extend(u16::try_from(body.len() + 8).unwrap().to_le_bytes());
    record.extend(body);
    record
}

/// A recording that is being built.
#[derive(Clone)]
pub(super) struct Recording {
    records: Vec<u8>,
    build_ids: Vec<u8>,
    /// The period of the samples that follow.
    pub(super) period: u64,
}

impl Recording {
    pub(super) fn new() -> Self {
        Self { records: Vec::new(), build_ids: Vec::new(), period: 1000 }
    }

    /// Adds a record without the words that end the records of the kernel.
    pub(super) fn raw(&mut self, kind: u32, misc: u16, body: &[u8]) {
        self.records.extend(record(kind, misc, body));
    }

    /// Adds a record that ends with process, thread, time, processor and id. Time 0 stands for the
    /// state before the recording.
    fn sideband(&mut self, kind: u32, misc: u16, time: u64, body: &[u8]) {
        let mut body = body.to_vec();
        let id = if time == 0 { 0 } else { PROFILE_EVENT };
        body.pair(1, 1).word(time).pair(0, 0).word(id);
        self.raw(kind, misc, &body);
    }

    pub(super) fn comm(&mut self, time: u64, pid: u32, tid: u32, name: &str, is_exec: bool) {
        let mut body = Vec::new();
        body.pair(pid, tid).extend(padded(name));
        self.sideband(3, if is_exec { 1 << 13 } else { 0 }, time, &body);
    }

    fn mmap2(&mut self, misc: u16, time: u64, pid: u32, range: (u64, u64), offset: u64, name: &str) {
        let mut body = Vec::new();
        body.pair(pid, pid).word(range.0).word(range.1).word(offset).word(0).word(0).word(0);
        // PROT_READ and PROT_EXEC.
        body.pair(5, 2).extend(padded(name));
        self.sideband(10, misc, time, &body);
    }

    pub(super) fn mapping(&mut self, time: u64, pid: u32, start: u64, length: u64, offset: u64, name: &str) {
        self.mmap2(2, time, pid, (start, length), offset, name);
    }

    pub(super) fn kernel_mapping(&mut self, start: u64, length: u64, name: &str) {
        self.mmap2(1, 0, u32::MAX, (start, length), start, name);
    }

    /// Adds the start of a process whose only thread has its id.
    pub(super) fn fork(&mut self, time: u64, parent: u32, pid: u32) {
        let mut body = Vec::new();
        body.pair(pid, parent).pair(pid, parent).word(time);
        self.sideband(7, 0, time, &body);
    }

    pub(super) fn exit(&mut self, time: u64, pid: u32, tid: u32) {
        let mut body = Vec::new();
        body.pair(pid, 1).pair(tid, 1).word(time);
        self.sideband(4, 0, time, &body);
    }

    pub(super) fn lost(&mut self, time: u64, count: u64) {
        let mut body = Vec::new();
        body.word(PROFILE_EVENT).word(count);
        self.sideband(2, 0, time, &body);
    }

    /// Adds a number of lost samples. perf writes those of the whole recording with time 0.
    pub(super) fn lost_samples(&mut self, misc: u16, time: u64, count: u64) {
        let mut body = Vec::new();
        body.word(count);
        self.sideband(13, misc, time, &body);
    }

    pub(super) fn round(&mut self) {
        self.raw(68, 0, &[]);
    }

    /// Adds a sample of an event, on a processor, in a process and thread.
    fn any_sample(
        &mut self,
        event: u64,
        time: u64,
        (cpu, pid, tid): (u32, u32, u32),
        ip: u64,
        chain: &[u64],
        raw: &[u8],
    ) {
        let mut body = Vec::new();
        body.word(event).word(ip).pair(pid, tid).word(time).pair(cpu, 0).word(self.period);
        body.word(chain.len() as u64);
        for frame in chain {
            body.word(*frame);
        }
        // The size and the data together are a multiple of eight bytes.
        let size = (raw.len() + 4).next_multiple_of(8) - 4;
        body.extend(u32::try_from(size).unwrap().to_le_bytes());
        body.extend(raw);
        body.resize(body.len() + size - raw.len(), 0);
        self.raw(9, 2, &body);
    }

    pub(super) fn sample(&mut self, time: u64, cpu: u32, pid: u32, tid: u32, ip: u64, chain: &[u64]) {
        self.any_sample(PROFILE_EVENT, time, (cpu, pid, tid), ip, chain, &[]);
    }

    /// Adds a switch from a thread, which is alone in its process, in this state.
    pub(super) fn switch(&mut self, time: u64, cpu: u32, (old, state): (u32, u64), new: u32, chain: &[u64]) {
        let mut raw = Vec::new();
        raw.word(0).pair(old, 120).word(state).pair(new, 120);
        let pid = if old == 201 { 200 } else { old };
        self.any_sample(SWITCH_EVENT, time, (cpu, pid, old), 0, chain, &raw);
    }

    pub(super) fn tick(&mut self, time: u64, cpu: u32, pid: u32, tid: u32, count: u64, label: &str) {
        let mut raw = Vec::new();
        raw.word(0).word(count).extend((24 | (label.len() as u32 + 1) << 16).to_le_bytes());
        raw.resize(24, 0);
        raw.extend(label.as_bytes());
        raw.push(0);
        self.any_sample(TICK_EVENT, time, (cpu, pid, tid), 0, &[], &raw);
    }

    pub(super) fn build_id(&mut self, name: &str, id: &[u8; 20]) {
        let mut body = 100_u32.to_le_bytes().to_vec();
        body.extend(id);
        body.extend([20, 0, 0, 0]);
        body.extend(padded(name));
        self.build_ids.extend(record(67, 1 << 15 | 2, &body));
    }

    /// Returns the recording as a file.
    pub(super) fn finish(&self) -> Vec<u8> {
        let attrs = attrs();
        let (attrs_at, ids_at) = (104_u64, 104 + 80 * attrs.len() as u64);
        let data_at = ids_at + 8 * attrs.len() as u64;
        let mut file = b"PERFILE2".to_vec();
        file.word(104).word(80).word(attrs_at).word(80 * attrs.len() as u64);
        file.word(data_at).word(self.records.len() as u64).word(0).word(0);
        // Tracing data, build ids, name of the machine.
        file.word(1 << 1 | 1 << 2 | 1 << 3).word(0).word(0).word(0);
        for (index, (attr, _)) in (0_u64..).zip(&attrs) {
            file.extend(attr);
            file.word(ids_at + 8 * index).word(8);
        }
        for (_, id) in &attrs {
            file.word(*id);
        }
        file.extend(&self.records);
        let mut host = 8_u32.to_le_bytes().to_vec();
        host.extend(b"machine\0");
        let features = [tracing_data(), self.build_ids.clone(), host];
        let mut at = file.len() as u64 + 16 * features.len() as u64;
        for feature in &features {
            file.word(at).word(feature.len() as u64);
            at += feature.len() as u64;
        }
        file.extend(features.concat());
        file
    }

    /// Returns the recording as written to a pipe.
    pub(super) fn finish_pipe(&self) -> Vec<u8> {
        let mut file = b"PERFILE2".to_vec();
        file.word(16);
        for (attr, id) in attrs() {
            file.extend(record(64, 0, &[attr, id.to_le_bytes().to_vec()].concat()));
        }
        let mut host = Vec::new();
        host.word(3).extend(8_u32.to_le_bytes());
        host.extend(b"machine\0");
        file.extend(record(80, 0, &host));
        let mut data = tracing_data();
        data.resize(data.len().next_multiple_of(8), 0);
        file.extend(record(66, 0, &u32::try_from(data.len()).unwrap().to_le_bytes()));
        file.extend(data);
        file.extend(&self.records);
        file.extend(&self.build_ids);
        file
    }
}
