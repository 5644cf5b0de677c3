//! Rules that a test may switch off, to show that the simulation would notice.
//!
//! Without the feature `switches` (never in a release) every rule holds and the
//! question costs nothing.

/// A rule whose absence one of the counterexamples of section 12 needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Rule {
    /// A request acts only in the session that it names. (7)
    SessionInRequest,
    /// A request id takes effect at most once. (8)
    OneEffectPerRequest,
    /// A cancel that overtakes its acquire is recorded. (9)
    CancelIsRecorded,
    /// A repeated acquire is answered with its grant only while that is live. (10)
    GrantRecheckedOnRetry,
    /// An expiry spares a session that was seen after the revision it names. (3)
    ExpiryIsConditional,
    /// A repeated open sees the session. (18)
    OpenSees,
    /// A waiter leaves the queue in the entry that ends its session.
    DeadWaitersLeave,
    /// A new term re-bases the sessions of the entry before it, whatever number
    /// that entry's term has. (1)
    RebaseWhateverNumber,
    /// A leader acts only when it has applied the first entry of its term. (2)
    ActAfterFirstEntry,
    /// A session that is marked expiring is not renewed. (4)
    ExpiringIsNotRenewed,
    /// An expiring mark never ends because a proposal timed out. (5)
    ExpiringMarkStays,
    /// A snapshot gives every session its full ttl. (6)
    SnapshotGivesFullTtl,
    /// Time without a confirmed round moves every deadline. (16)
    StallsPostpone,
    /// A stall gives nobody more than its ttl from when it is over.
    StallIsCapped,
    /// A repeated expiry names the revision that the first one named. (19)
    RetryNamesOldRevision,
    /// An expiring mark does not end because a lead was laid down for a while.
    MarksEndWithTerm,
    /// An expiring mark ends with the outcome of an expiry that names its revision.
    OutcomeNamesRevision,
    /// A renewal off the log needs a session seen in the present term.
    RenewalNeedsMark,
    /// A first entry of a term gives time to sessions seen in the last one.
    TermGivesTime,
    /// An entry grants up to 1,024 names to waiters. Without it two: so that some are
    /// left for the next entries in tests too.
    EntriesAreLarge,
    /// Nobody is granted before those who wait.
    QueueIsFifo,
    /// A wait that would never be granted is refused. (14)
    WaitIsChecked,
    /// There are no more holders than slots.
    SlotsAreCounted,
    /// A grant that is not confirmed yet keeps everybody else out.
    BarrierBlocks,
    /// A grant of a strict handoff is not active before it is confirmed.
    BarrierFirst,
    /// A grant that nobody confirmed in time ends.
    UnconfirmedEnds,
    /// A lock delay keeps out who conflicts with the grant that ended.
    DelayCloses,
    /// A frozen resource is granted to nobody.
    FreezeCloses,
    /// A slot's grant raises the mark over all who held the resource before its present
    /// holders, in another mode or with another number of slots. (11) (12)
    FloorOfModeChange,
    /// A grant's floor spares those who share the resource with it.
    FloorIsLowestHolder,
    /// The floor of a revoke spares those who shared the resource. (13)
    RevokeFloorSpares,
    /// A revoke ends exactly the grant that it names, never a newer one.
    RevokeNamesToken,
    /// A renewal tells of every change to the session's grants and waits.
    ChangesAreTold,
}

/// Which rules are switched off.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    #[cfg(feature = "switches")]
    off: u64,
}

impl Switches {
    /// All rules but this one.
    #[cfg(feature = "switches")]
    #[must_use]
    pub const fn without(rule: Rule) -> Self {
        Self { off: 1 << rule as u64 }
    }

    /// Whether the rule is in force.
    #[cfg_attr(
        not(feature = "switches"),
        allow(clippy::unused_self, reason = "without the feature every rule holds")
    )]
    pub(crate) const fn hold(self, rule: Rule) -> bool {
        #[cfg(feature = "switches")]
        return self.off & (1 << rule as u64) == 0;
        #[cfg(not(feature = "switches"))]
        {
            let _ = rule;
            true
        }
    }
}
