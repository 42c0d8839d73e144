//! Tests of rings as two processes use them: the same records come out, and nothing is lost without
//! being counted.

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
