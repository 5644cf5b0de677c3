//! What the pages point to is there.
