//! Tests of a real daemon in a thread, with its own folder and simulated clients.

mod access;
mod autologger;
mod consume;
mod containers;
mod control;
mod enable;
mod groups;
mod hostile;
mod kernel_providers;
mod life;
mod modes;
mod private;
mod provide;
mod system;
mod turns;
mod util;
