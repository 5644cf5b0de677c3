//! What a run exercised. A campaign that did not exercise something proves nothing
//! about it, so each has a stated minimum per thousand seeds.

macro_rules! counts {
    ($($name:ident $least:literal $what:literal,)*) => {
        /// Something worth counting.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Count { $(#[doc = $what] $name,)* }

        const ALL: &[(Count, u64, &str)] = &[$((Count::$name, $least, $what),)*];
    };
}

// Name, the least number per thousand seeds, what it counts.
counts! {
    Leaders 1000 "leaders elected",
    SkippedTerms 500 "terms that nobody led",
    DeposedUnaware 300 "leaders that did not know of their successor's term when it began",
    Restarts 200 "nodes restarted from rows",
    Snapshots 500 "snapshots installed",
    Pauses 300 "nodes paused",
    Cuts 500 "partitions",
    LostProposals 1000 "entries of a deposed leader overwritten",
    LateCommits 50 "entries of an earlier term committed by a later leader",
    Entries 50_000 "entries committed",
    RenewalsOffLog 20_000 "renewals acknowledged off the log",
    RenewalsMarked 1000 "renewals acknowledged by a MarkSeen",
    MarkSeen 1000 "MarkSeen entries",
    Rebased 3000 "sessions given time by the first entry of a term",
    Reopened 1000 "live sessions opened again",
    TtlChanged 1000 "changes of a ttl",
    TtlLowered 500 "of them to a shorter one",
    RoundsConfirmed 50_000 "rounds confirmed",
    LaidDown 200 "leads laid down and taken up again in the same term",
    RoundsLost 200 "rounds that ended with the term",
    Stalls 100 "stalls that moved every deadline",
    Marked 1000 "sessions marked expiring",
    Expired 1000 "sessions expired",
    Spared 50 "marked sessions that an expiry spared",
    HeldRenewals 50 "renewals that waited for the outcome of an expiry",
    ExpiryRetried 50 "expiries proposed again",
    Granted 3000 "grants at once",
    GrantedWaiting 3000 "grants to waiters",
    GrantedShared 500 "shared grants",
    GrantedSlots 500 "grants of slots",
    GrantedSets 500 "grants of several names",
    GrantedBeside 500 "grants beside other holders",
    GrantedStrict 500 "grants of a strict handoff",
    Confirmed 300 "of them confirmed",
    Unconfirmed 100 "of them ended unconfirmed",
    HandedOver 300 "strict acquires that returned",
    Released 5000 "grants released",
    Revoked 300 "grants revoked",
    RevokedOfMany 50 "of them beside others that went on",
    StaleRevokes 300 "revokes and thaws that named a stale token",
    Frozen 300 "freezes",
    EndedByFreeze 100 "grants ended by them",
    SetsFrozen 20 "waiting sets answered by them",
    FrozenRefused 100 "acquires refused by them",
    Thawed 300 "thaws",
    Resized 100 "changes of a number of slots",
    Mismatches 100 "acquires that named another number of slots",
    Asked 300 "holders asked for their grant",
    AskedReleased 50 "of them gave it back",
    ValuesSet 300 "values changed",
    Reopenings 300 "lock delays that ran out",
    Deadlocks 20 "waits refused as a deadlock",
    Settles 0 "entries for what an earlier one left to grant",
    TakenNoticed 200 "grants that a renewal showed to be gone",
    ChecksCurrent 300 "tokens told to be current",
    ChecksNotCurrent 300 "tokens told not to be current",
    WaitsExpired 500 "waits that timed out",
    WaitersEnded 500 "waiters whose session ended",
    Cancelled 2000 "acquires cancelled",
    CancelOvertook 500 "cancels that came before their acquire",
    RepeatsAnswered 1000 "requests answered as before",
    Stale 1000 "late copies of settled and forgotten requests",
    LateOfEnded 1000 "late requests of a session that had ended",
    StaleReleases 500 "releases without effect",
    Forged 500 "renewals of somebody else's session",
    Writes 20_000 "writes accepted",
    WritesRefused 2000 "stale writes refused by the destination",
    WritesLate 2000 "writes that arrived after their session had ended",
    WritesBeside 1000 "writes accepted while others hold too",
    Raises 1000 "raises accepted",
    RaisesWaited 20 "raises that waited for a write past its check",
    RaisesRefused 20 "stale raises refused",
    FencesRaised 300 "raises of administrators accepted",
    AllFree 100 "runs at whose end everything was free",
    Suspended 1000 "times that a client's own deadline passed",
    ClientsDead 1000 "owners that died with a session",
}

/// How often each of them happened.
#[derive(Clone)]
pub struct Counts([u64; ALL.len()]);

impl Default for Counts {
    fn default() -> Self {
        Self([0; ALL.len()])
    }
}

impl Counts {
    pub fn add(&mut self, what: Count) {
        self.many(what, 1);
    }

    pub fn many(&mut self, what: Count, n: u64) {
        self.0[what as usize] += n;
    }

    pub fn of(&self, what: Count) -> u64 {
        self.0[what as usize]
    }

    pub fn join(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// A table of all, one a line.
    pub fn table(&self) -> String {
        let line = |&(count, _, what): &_| format!("{:>12}  {what}\n", self.of(count));
        ALL.iter().map(line).collect()
    }

    /// What stayed below its minimum in a campaign of so many seeds.
    pub fn too_few(&self, seeds: u64) -> Vec<String> {
        let few = ALL.iter().filter(|(count, least, _)| self.of(*count) * 1000 < least * seeds);
        few.map(|(count, least, what)| {
            format!("{what}: {} in {seeds} seeds, expected {least} per thousand", self.of(*count))
        })
        .collect()
    }
}
