//! [I9] The strict acquire returns only after every destination it named has durably
//! raised its marks.
//!
//! Strict handoff is not built yet: there is no phase *barrier* to watch. Its check
//! comes with it, in this file.
