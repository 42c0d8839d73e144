//! Features of the machine for tools that report them: the same facts that sessions and rings use.

pub use traceweir_session::cgroup::container;
pub use traceweir_session::info::Machine as Perf;
pub use traceweir_transport::clock::Counter;
pub use traceweir_transport::cpu::{count_in_list, counters};
pub use traceweir_transport::ring::supports_rseq;
