//! The formats of files.

/// The format of the files of a dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFormat {
    /// Apache Parquet.
    Parquet,
    /// The file format of Arrow IPC, which is also Feather version 2.
    Arrow,
    /// The stream format of Arrow IPC; only for single files.
    ArrowStream,
}

impl FileFormat {
    /// Returns the extension of files.
    #[must_use]
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Parquet => "parquet",
            Self::Arrow => "arrow",
            Self::ArrowStream => "arrows",
        }
    }
}
