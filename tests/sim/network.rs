//! What travels, between nodes and between clients and nodes.

use std::rc::Rc;

use ringfence::locks::{
    Command, GrantRow, Millis, Outcome, OwnerId, RequestId, ResourceName, Revision, Row, SessionId,
    Token,
};

use crate::log::LogEntry;
use crate::time::Micros;

/// Between nodes, or from a client to a node.
#[derive(Clone)]
pub enum Message {
    Append(Append),
    Ack(Ack),
    Snapshot(Rc<Snapshot>),
    Request(Rc<Request>),
}

/// A leader's entries behind a place that the follower is believed to have; without
/// entries it is a heartbeat.
#[derive(Clone)]
pub struct Append {
    pub from: usize,
    pub term: u64,
    pub after: usize,
    /// Term of the entry at `after`; 0 if there is none.
    pub after_term: u64,
    pub entries: Vec<Rc<LogEntry>>,
    pub committed: usize,
    /// The round that an answer confirms.
    pub round: u64,
}

#[derive(Clone)]
pub struct Ack {
    pub from: usize,
    /// What the follower has promised: higher than the leader's, the leader is
    /// deposed.
    pub term: u64,
    pub matched: Option<usize>,
    /// Where to go on from when nothing matched.
    pub hint: usize,
    pub round: u64,
}

/// The rows of a table, and the log that led there.
pub struct Snapshot {
    pub from: usize,
    pub term: u64,
    pub rows: Vec<Row>,
    pub log: Vec<Rc<LogEntry>>,
    pub round: u64,
}

/// What a client asks.
pub struct Request {
    pub client: usize,
    pub tag: Tag,
    pub ask: Ask,
    /// True time before the request was first sent. For the checkers: nodes never
    /// look at it.
    pub first_sent: Micros,
    /// A follower has forwarded it: nobody forwards twice.
    pub forwarded: bool,
}

/// Which of its requests an answer is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    Open(u64),
    Renew(SessionId, u64),
    Close(SessionId),
    Op(SessionId, RequestId),
    Check(u64),
    /// Of the administrator.
    Administer(u64),
}

#[derive(Clone)]
pub enum Ask {
    /// A plain renewal: it carries no ttl.
    Renew {
        owner: OwnerId,
        session: SessionId,
    },
    /// Whether that grant is live and active now.
    CheckToken {
        resource: ResourceName,
        token: Token,
    },
    Command(Command),
}

/// An answer on its way to a client.
#[derive(Clone)]
pub struct Reply {
    pub from: usize,
    pub tag: Tag,
    pub first_sent: Micros,
    pub answer: Answer,
}

/// A session's grants, and which of them somebody has asked for.
#[derive(Debug)]
pub struct Read {
    /// The entry that it speaks of.
    pub at: u64,
    /// The last change to the session's grants and waits.
    pub changed_at: Revision,
    pub grants: Vec<(Token, bool)>,
}

#[derive(Clone, Debug)]
pub enum Answer {
    /// Not appended here; perhaps there.
    NotLeader(Option<usize>),
    /// Appended or not, effective or not: nobody knows.
    Unknown,
    /// With what the client reads when it sees that its grants have changed.
    Renewed(Millis, Rc<Read>),
    /// With all that fences need.
    Granted(Rc<GrantRow>),
    /// To a check of a token.
    Current(bool),
    /// By the rules: from the log, or after a confirmed round.
    Outcome(Outcome),
}
