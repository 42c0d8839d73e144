//! The tracepoints that each kind of kernel event is made of.
//!
//! A session that records only a user's own processes needs none of them for samples, page faults,
//! context switches, threads, processes and images: perf itself has records of these. A missing
//! tracepoint disables only its own kind.

/// A kind of kernel event, and its tracepoints as `SYSTEM/NAME`.
pub(super) struct TracepointFamily {
    pub(super) name: &'static str,
    pub(super) tracepoints: &'static [&'static str],
}

pub(super) const FAMILIES: [TracepointFamily; 9] = [
    TracepointFamily {
        name: "processes and threads",
        tracepoints: &[
            "sched/sched_process_fork",
            "sched/sched_process_exec",
            "sched/sched_process_exit",
            "task/task_newtask",
            "task/task_rename",
        ],
    },
    TracepointFamily {
        name: "context switches and ready threads",
        tracepoints: &["sched/sched_switch", "sched/sched_wakeup", "sched/sched_wakeup_new"],
    },
    TracepointFamily { name: "priorities", tracepoints: &["sched/sched_pi_setprio"] },
    TracepointFamily {
        name: "interrupts and deferred calls",
        tracepoints: &[
            "irq/irq_handler_entry",
            "irq/irq_handler_exit",
            "irq/softirq_entry",
            "irq/softirq_exit",
        ],
    },
    TracepointFamily {
        name: "system calls and file I/O",
        tracepoints: &["raw_syscalls/sys_enter", "raw_syscalls/sys_exit"],
    },
    TracepointFamily {
        name: "page faults",
        tracepoints: &["exceptions/page_fault_user", "exceptions/page_fault_kernel"],
    },
    TracepointFamily { name: "disk I/O", tracepoints: &["block/block_rq_issue", "block/block_rq_complete"] },
    TracepointFamily {
        name: "TCP and UDP",
        tracepoints: &[
            "sock/inet_sock_set_state",
            "sock/sock_send_length",
            "sock/sock_recv_length",
            "tcp/tcp_retransmit_skb",
            "udp/udp_fail_queue_rcv_skb",
        ],
    },
    TracepointFamily {
        name: "file locks",
        tracepoints: &["filelock/posix_lock_inode", "filelock/flock_lock_inode"],
    },
];

/// Returns the tracepoints of all kinds.
pub(super) fn tracepoints() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|family| family.tracepoints.iter().copied())
}
