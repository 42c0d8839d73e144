//! Which tracepoints the kinds of kernel events are made of.
//!
//! Samples, page faults, threads, processes and images of one's own processes come as records of perf events, without any tracepoint. A tracepoint that a kernel does not have
//! takes its kind away, and no other.

/// A kind of kernel events, and its tracepoints as `SYSTEM/NAME`.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) tracepoints: &'static [&'static str],
}

pub(super) const FAMILIES: [Family; 9] = [
    Family {
        name: "processes and threads",
        tracepoints: &[
            "sched/sched_process_fork",
            "sched/sched_process_exec",
            "sched/sched_process_exit",
            "task/task_newtask",
            "task/task_rename",
        ],
    },
    Family {
        name: "context switches and ready threads",
        tracepoints: &["sched/sched_switch", "sched/sched_wakeup", "sched/sched_wakeup_new"],
    },
    Family { name: "priorities", tracepoints: &["sched/sched_pi_setprio"] },
    Family {
        name: "interrupts and deferred calls",
        tracepoints: &[
            "irq/irq_handler_entry",
            "irq/irq_handler_exit",
            "irq/softirq_entry",
            "irq/softirq_exit",
        ],
    },
    Family {
        name: "system calls and file I/O",
        tracepoints: &["raw_syscalls/sys_enter", "raw_syscalls/sys_exit"],
    },
    Family {
        name: "page faults",
        tracepoints: &["exceptions/page_fault_user", "exceptions/page_fault_kernel"],
    },
    Family { name: "disk I/O", tracepoints: &["block/block_rq_issue", "block/block_rq_complete"] },
    Family {
        name: "TCP and UDP",
        tracepoints: &[
            "sock/inet_sock_set_state",
            "sock/sock_send_length",
            "sock/sock_recv_length",
            "tcp/tcp_retransmit_skb",
            "udp/udp_fail_queue_rcv_skb",
        ],
    },
    Family { name: "file locks", tracepoints: &["filelock/posix_lock_inode", "filelock/flock_lock_inode"] },
];

/// Tracepoints of all kinds.
pub(super) fn tracepoints() -> impl Iterator<Item = &'static str> {
    FAMILIES.iter().flat_map(|it| it.tracepoints.iter().copied())
}
