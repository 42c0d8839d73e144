//! Skeleton: the lazy link to the daemons (provider side).
