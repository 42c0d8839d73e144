//! The rings as two parties use them: records in, the same records out, nothing lost that is not counted.

mod bytes;
mod close;
mod fork;
mod hostile;
mod kill;
mod naive;
mod pages;
mod signals;
mod straight;
mod support;
mod threads;
mod wake;
