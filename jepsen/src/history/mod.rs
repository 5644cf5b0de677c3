//! What happened in a run, as it was seen from outside.
//!
//! Two events make an operation: its invocation, and its completion, which says `ok`, `fail`
//! (it certainly had no effect) or `info` (nobody knows, and it may still take effect later).
//! [`Journal`] writes events to `history.jsonl` as they happen and keeps the rules of histories;
//! [`read`] reads them back under the same rules; [`pairs`] joins the two events of each
//! operation. `edn` and `text` write the forms that other checkers and people read.

pub mod edn;
pub mod journal;
pub mod op;
pub mod pair;
pub mod rules;
pub mod text;

pub use journal::{Completion, Journal, read};
pub use op::{Kind, Op, Process};
pub use pair::{Call, pairs};
