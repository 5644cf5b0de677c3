//! The faults that the toy can be given.

use clap::ValueEnum;

/// One seeded bug of the toy. Each stands for one of the product's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mutant {
    /// Each leader counts tokens by itself.
    TokenLocalCounter,
    /// The counter of tokens does not survive a restart.
    TokenInMemoryOnly,
    /// A node that leads no more answers renewals.
    RenewWithoutLeadership,
    /// A node that leads no more answers reads.
    ReadWithoutQuorum,
    /// A node forgets its vote in a power cut and votes again.
    VoteNotSynced,
    /// What was acknowledged last is gone after a power cut.
    LogNotSynced,
    /// A node's log comes back shorter after a flipped byte.
    RecoveryRollsBack,
    /// A release by anyone ends the grant.
    ReleaseWithoutOwnership,
    /// A release ends what its session holds now, whatever token it names.
    ReleaseIgnoresToken,
    /// A repeated request is a new one.
    NoRequestDedup,
    /// The last waiter is granted first.
    Lifo,
    /// The second waiter is granted first.
    SkipHead,
    /// Waiters whose session is over stay in the queue.
    GrantToExpiredWaiter,
    /// Sessions end after nine tenths of their ttl.
    ExpiryEarly,
    /// A step of the wall clock ends sessions.
    ExpiryByWallClock,
    /// A node's clock enters its state.
    ClockInApply,
    /// Deadlines shrink over a restart.
    DeadlineOverRestart,
    /// One shared holder that leaves takes the others along.
    SharedCountedOnce,
    /// One holder more than slots.
    SlotsOffByOne,
    /// A restore goes on with the tokens of its backup.
    RestoreWithoutFloor,
    /// A snapshot lacks the outcomes of requests.
    SnapshotDropsDedup,
    /// A strict handoff is confirmed without a raise.
    HandoffWithoutRaise,
    /// A barrier is shown as active.
    BarrierShownActive,
    /// The destination accepts every token.
    DestinationCheckOff,
}
