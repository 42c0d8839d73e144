//! Tests of rings from both sides: records that the writing side publishes arrive unchanged at the
//! reading side, and every lost record is counted.

mod bytes;
mod close;
mod fork;
mod hostile;
mod kill;
mod model;
mod pages;
mod signals;
mod straight;
mod support;
mod threads;
mod wake;
