//! What the machine is and offers, for those who tell people about it: the facts that sessions and rings go by themselves.

pub use traceweir_session::cgroup::container;
pub use traceweir_session::info::Machine as Perf;
pub use traceweir_transport::clock::Counter;
pub use traceweir_transport::cpu::{count_of, counters};
pub use traceweir_transport::ring::is_restartable;
