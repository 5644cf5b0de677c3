//! What the leader's shell orders of its node.

use std::rc::Rc;
use std::time::Duration;

use ringfence::leases::Moment;
use ringfence::locks::{Command, Overdue, SessionId};

use crate::counts::Count;
use crate::network::{Answer, Request};

/// A renewal that has arrived.
#[derive(Clone)]
pub struct Arrived {
    pub request: Rc<Request>,
    pub session: SessionId,
    pub at: Moment,
}

/// Why an entry was proposed, and so what its outcome is for.
#[derive(Clone)]
pub enum Purpose {
    Answer(Rc<Request>),
    /// A `MarkSeen` by its number.
    Marking(u64),
    /// The leader's own; whoever applies it knows what it says.
    Own,
}

/// What the node is to do for its shell.
pub enum Order {
    Propose(Command, Purpose),
    Answer(Rc<Request>, Answer),
    /// For the checkers: an answered renewal, and what it was.
    Renewed(Arrived, How),
    /// For the checkers: marked by a round that began then.
    Marked {
        overdue: Overdue,
        began: Moment,
        unserved: bool,
    },
    /// For the checkers: a stall that ended then moved all deadlines by this.
    Stalled {
        by: Duration,
        until: Moment,
    },
    Count(Count),
}

/// How a renewal was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    OffLog,
    Marked,
}
