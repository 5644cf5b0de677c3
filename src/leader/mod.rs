//! What a leader does besides replicating: renewals, expiry and the ends
//! of timers. Section 3 of the contract.
//!
//! One task a node; it follows the leadership and runs one `term` at a time. All
//! it knows is volatile and ends with the term: marks, renewals in flight and calls
//! that wait get an answer then, never a guess.

mod proposals;
mod renewals;
mod term;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};

use crate::authority::Authority;
use crate::raft::{Leadership, Replica};

pub use renewals::{Renew, RenewalAnswer, Renewals};

/// How many renewals may wait for the leader task. Beyond, they are refused at once
/// with `OVERLOADED`.
pub const RENEWALS_MAX: usize = 262_144;
/// How many sessions one `ExpireSessions` or `MarkSeen` entry names.
pub const SESSIONS_PER_ENTRY_MAX: usize = 1_024;
/// How many grants and waits the sessions of one `ExpireSessions` entry have together,
/// unless it names a single session.
pub const PLACES_PER_ENTRY_MAX: usize = 10_000;
/// How many timers the entries that end them name at once.
pub const TIMERS_PER_ENTRY_MAX: usize = 1_024;

/// Starts the leader task; it ends when the last [`Renewals`] is dropped.
///
/// `heartbeat` is how often a leader confirms its leadership at least.
pub fn start(replica: Replica, authority: Arc<Authority>, heartbeat: Duration) -> Renewals {
    let (send, receive) = mpsc::channel(RENEWALS_MAX);
    tokio::spawn(follow_leadership(replica, authority, heartbeat, receive));
    Renewals::new(send)
}

async fn follow_leadership(
    replica: Replica,
    authority: Arc<Authority>,
    heartbeat: Duration,
    mut renewals: mpsc::Receiver<Renew>,
) {
    let mut leadership = replica.leadership();
    loop {
        let now = leadership.borrow_and_update().clone();
        if now.here {
            term::Lead::new(&replica, &authority, heartbeat, now.term)
                .run(&mut renewals, &mut leadership)
                .await;
            // Nobody is left to lead for, or nothing is left to follow.
            if renewals.is_closed() || leadership.has_changed().is_err() {
                return;
            }
            continue;
        }
        tokio::select! {
            biased;
            changed = leadership.changed() => {
                if changed.is_err() {
                    return;
                }
                // Calls of a term that was over before this task heard of it.
                if !leadership.borrow().here {
                    authority.doubt();
                }
            }
            renewal = renewals.recv() => match renewal {
                Some(renewal) => renewal.answer(RenewalAnswer::NotLeading),
                None => return,
            },
        }
    }
}

/// Whether the node still leads that term, as far as it knows.
fn still_leads(leadership: &watch::Receiver<Leadership>, term: crate::locks::Term) -> bool {
    let now = leadership.borrow();
    now.here && now.term == term
}
