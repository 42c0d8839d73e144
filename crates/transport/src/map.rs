//! Memory that two parties share: created, sealed, mapped, bounds-checked, given back.

