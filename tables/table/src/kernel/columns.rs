//! The columns of kernel tables. Columns of the same name have the same type in all tables.

use arrow_schema::{DataType, Field};

use super::KernelTable;
use crate::column::{list_type, name_type, time_type};

/// Defines the columns by their names and types.
macro_rules! kernel_columns {
    ($($column:ident $name:literal $data_type:expr;)*) => {
        /// A column of a kernel table.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(super) enum KernelColumn {
            $($column,)*
        }

        impl KernelColumn {
            /// All columns.
            pub(super) const ALL: &'static [Self] = &[$(Self::$column,)*];

            fn name(self) -> &'static str {
                match self {
                    $(Self::$column => $name,)*
                }
            }

            fn data_type(self) -> DataType {
                match self {
                    $(Self::$column => $data_type,)*
                }
            }
        }
    };
}

kernel_columns! {
    AbsentNs "absent_ns" DataType::UInt64;
    Address "address" DataType::UInt64;
    Base "base" DataType::UInt64;
    Bytes "bytes" DataType::UInt64;
    Checksum "checksum" DataType::UInt32;
    CommandLine "command_line" DataType::Utf8;
    Cpu "cpu" DataType::UInt16;
    Disk "disk" DataType::UInt32;
    DurationNs "duration_ns" DataType::UInt64;
    End "end" time_type();
    ExitStatus "exit_status" DataType::UInt32;
    File "file" name_type();
    Functions "functions" list_type(DataType::Utf8);
    Host "host" name_type();
    IntervalNs "interval_ns" DataType::UInt64;
    IsIdle "is_idle" DataType::Boolean;
    Kind "kind" name_type();
    LocalAddress "local_address" name_type();
    LocalPort "local_port" DataType::UInt16;
    Name "name" name_type();
    NewProcess "new_process" name_type();
    NewProcessId "new_process_id" DataType::UInt32;
    NewThreadId "new_thread_id" DataType::UInt32;
    OldProcess "old_process" name_type();
    OldProcessId "old_process_id" DataType::UInt32;
    OldState "old_state" DataType::UInt8;
    OldThreadId "old_thread_id" DataType::UInt32;
    OldWaitReason "old_wait_reason" DataType::UInt8;
    Operation "operation" name_type();
    ParentProcessId "parent_process_id" DataType::UInt32;
    Process "process" name_type();
    ProcessId "process_id" DataType::UInt32;
    Protocol "protocol" name_type();
    RanNs "ran_ns" DataType::UInt64;
    ReadyNs "ready_ns" DataType::UInt64;
    RemoteAddress "remote_address" name_type();
    RemotePort "remote_port" DataType::UInt16;
    SessionId "session_id" DataType::UInt32;
    Size "size" DataType::UInt64;
    Stack "stack" list_type(DataType::UInt64);
    StackThreadId "stack_thread_id" DataType::UInt32;
    Start "start" time_type();
    StartAddress "start_address" DataType::UInt64;
    ThreadId "thread_id" DataType::UInt32;
    ThreadName "thread_name" name_type();
    Time "time" time_type();
    TimeDateStamp "time_date_stamp" DataType::UInt32;
    UserSid "user_sid" name_type();
    Weight "weight" DataType::UInt64;
}

impl KernelColumn {
    pub(super) fn field(self) -> Field {
        Field::new(self.name(), self.data_type(), true)
    }
}

/// A set of columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KernelColumnSet(u64);

impl KernelColumnSet {
    pub(super) fn new(columns: &[KernelColumn]) -> Self {
        Self(columns.iter().fold(0, |bits, column| bits | 1 << *column as u8))
    }

    pub(super) const fn contains(self, column: KernelColumn) -> bool {
        self.0 & 1 << column as u8 != 0
    }

    pub(super) const fn without(self, column: KernelColumn) -> Self {
        Self(self.0 & !(1 << column as u8))
    }
}

/// The position of each column in a row.
#[derive(Clone, Debug)]
pub(super) struct ColumnPositions(Vec<Option<usize>>);

impl ColumnPositions {
    pub(super) fn new(columns: &[KernelColumn]) -> Self {
        Self(KernelColumn::ALL.iter().map(|all| columns.iter().position(|column| column == all)).collect())
    }

    /// Returns the position of a column; `None` for a column that the rows do not have.
    pub(super) fn get(&self, column: KernelColumn) -> Option<usize> {
        self.0.get(column as usize).copied().flatten()
    }
}

impl KernelTable {
    /// Returns the columns of the table.
    pub(super) const fn columns(self) -> &'static [KernelColumn] {
        use KernelColumn as C;
        match self {
            Self::Processes => &[
                C::Time,
                C::ProcessId,
                C::ParentProcessId,
                C::Process,
                C::CommandLine,
                C::UserSid,
                C::SessionId,
                C::Start,
                C::End,
                C::DurationNs,
                C::ExitStatus,
            ],
            Self::Threads => &[
                C::Time,
                C::ThreadId,
                C::ProcessId,
                C::Process,
                C::Name,
                C::StartAddress,
                C::Start,
                C::End,
                C::DurationNs,
            ],
            Self::Images => &[
                C::Time,
                C::ProcessId,
                C::Process,
                C::File,
                C::Base,
                C::Size,
                C::Checksum,
                C::TimeDateStamp,
                C::Start,
                C::End,
                C::DurationNs,
            ],
            Self::Switches => &[
                C::Time,
                C::Cpu,
                C::OldProcessId,
                C::OldProcess,
                C::OldThreadId,
                C::OldState,
                C::OldWaitReason,
                C::RanNs,
                C::NewProcessId,
                C::NewProcess,
                C::NewThreadId,
                C::AbsentNs,
                C::ReadyNs,
                C::StackThreadId,
                C::Stack,
                C::Functions,
            ],
            Self::Samples => &[
                C::Time,
                C::Cpu,
                C::ProcessId,
                C::Process,
                C::ThreadId,
                C::ThreadName,
                C::Address,
                C::Weight,
                C::IsIdle,
                C::IntervalNs,
                C::Stack,
                C::Functions,
            ],
            Self::DiskIo => &[
                C::Time,
                C::Disk,
                C::Operation,
                C::Bytes,
                C::Start,
                C::DurationNs,
                C::ProcessId,
                C::Process,
                C::ThreadId,
                C::File,
                C::Stack,
                C::Functions,
            ],
            Self::Network => &[
                C::Time,
                C::Cpu,
                C::Protocol,
                C::Kind,
                C::Bytes,
                C::ProcessId,
                C::Process,
                C::LocalAddress,
                C::LocalPort,
                C::RemoteAddress,
                C::RemotePort,
                C::Stack,
                C::Functions,
            ],
        }
    }
}
