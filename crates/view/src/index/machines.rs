//! The machines that traces come from. Ids of processes and threads, and numbers of processors, are
//! only comparable within a machine.

use traceweir_format::logfile::LogFileHeader;

use super::store::{Put, Reader};

/// Boot times of one machine differ this much when its clock is adjusted, in units of 100 ns.
const MAX_BOOT_TIME_DIFFERENCE: u64 = 20_000_000;
const MAX_MACHINES: usize = 1 << 12;
const MAX_NAME_CHARS: usize = 200;

/// The machine of each trace.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    /// The name of the first trace of each machine.
    names: Vec<String>,
    /// The machine of each trace.
    by_file: Vec<u16>,
}

impl Machines {
    /// Finds out which traces come from the same machine, without a restart in between.
    pub(crate) fn from_traces<'t>(traces: impl Iterator<Item = (&'t str, &'t LogFileHeader)>) -> Self {
        let mut machines = Self::default();
        let mut first_headers: Vec<&LogFileHeader> = Vec::new();
        for (name, header) in traces {
            let known = first_headers.iter().position(|first| are_of_one_machine(first, header));
            let machine = known.unwrap_or_else(|| {
                first_headers.push(header);
                machines.names.push(name.chars().take(MAX_NAME_CHARS).collect());
                first_headers.len() - 1
            });
            machines.by_file.push(u16::try_from(machine).unwrap_or(u16::MAX));
        }
        machines
    }

    /// Returns the machine of a trace.
    pub(crate) fn of_file(&self, file: usize) -> u16 {
        self.by_file.get(file).copied().unwrap_or(0)
    }

    /// Returns the number of traces; 0 of a session that weir follows.
    pub(crate) fn traces(&self) -> usize {
        self.by_file.len()
    }

    /// Returns what distinguishes a machine from others for people; `None` if there is only one.
    pub(crate) fn name(&self, machine: u16) -> Option<&str> {
        self.names.get(usize::from(machine)).filter(|_| self.names.len() > 1).map(String::as_str)
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.put_varint(self.names.len() as u64);
        self.names.iter().for_each(|name| out.put_text(name));
        out.put_varint(self.by_file.len() as u64);
        self.by_file.iter().for_each(|machine| out.put_varint((*machine).into()));
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut machines = Self::default();
        for _ in 0..reader.count_up_to(MAX_MACHINES)? {
            machines.names.push(reader.text()?.to_owned());
        }
        for _ in 0..reader.count_up_to(MAX_MACHINES)? {
            machines.by_file.push(reader.u16()?);
        }
        Some(machines)
    }
}

fn are_of_one_machine(a: &LogFileHeader, b: &LogFileHeader) -> bool {
    let version = |header: &LogFileHeader| {
        let [major, minor, ..] = header.versions;
        (major, minor, header.provider_version)
    };
    version(a) == version(b) && a.boot_time.0.abs_diff(b.boot_time.0) <= MAX_BOOT_TIME_DIFFERENCE
}

#[cfg(test)]
mod tests {
    use traceweir_format::time::FileTime;

    use super::*;

    #[test]
    fn traces_of_one_boot_are_of_one_machine() {
        let header = |boot_time| LogFileHeader { boot_time: FileTime(boot_time), ..LogFileHeader::default() };
        let headers = [header(1 << 60), header((1 << 60) + 10), header(1 << 59)];
        let machines = Machines::from_traces(["a", "b", "c"].into_iter().zip(&headers));
        assert_eq!([0, 1, 2].map(|file| machines.of_file(file)), [0, 0, 1]);
        assert_eq!((machines.name(0), machines.name(1)), (Some("a"), Some("c")));
    }
}
