//! What clients, the leader, administrators and the network do, as abstract steps.

use proptest::prelude::*;

/// One step. Numbers choose among what there is.
#[derive(Debug, Clone)]
pub enum Step {
    Open {
        owner: u8,
        ttl: u8,
    },
    Close {
        who: Who,
    },
    SetTtl {
        who: Who,
        ttl: u8,
        how: How,
    },
    Acquire {
        who: Who,
        names: u8,
        terms: u8,
        waits: bool,
        how: How,
    },
    Cancel {
        who: Who,
        target: u8,
        how: How,
    },
    /// What a holder does with a grant.
    Hold {
        who: Who,
        which: u8,
        act: Act,
        how: How,
    },
    /// What an administrator does.
    Administer {
        act: Administers,
        which: u8,
    },
    /// Many requests that are refused, each under the next id but so many.
    Burst {
        who: Who,
        count: u16,
        gap: u8,
    },
    /// A copy of an earlier request, or a late one for the first time.
    Arrive {
        which: u16,
    },
    MarkSeen {
        which: Vec<u8>,
    },
    Expire {
        which: Vec<u8>,
        late: u8,
    },
    ExpireWaits {
        which: Vec<u8>,
    },
    ExpireBarriers {
        which: Vec<u8>,
    },
    EndClosures {
        which: Vec<u8>,
    },
    Settle,
    Blank,
    Term {
        up: u8,
    },
    Bootstrap,
    Restart,
}

/// What a holder does.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    Release,
    Confirm,
    SetValue,
}

/// What an administrator does.
#[derive(Debug, Clone, Copy)]
pub enum Administers {
    Revoke,
    Freeze,
    Thaw,
    Resize,
    Ask,
}

/// Which client.
#[derive(Debug, Clone)]
pub struct Who {
    /// Counted from the youngest session.
    pub back: u8,
    pub says: Says,
}

/// Whether the client tells the truth of itself.
#[derive(Debug, Clone, Copy)]
pub enum Says {
    Truth,
    OtherOwner,
    Ahead,
}

/// The header.
#[derive(Debug, Clone)]
pub struct How {
    pub id: Id,
    /// `oldest_outstanding` is so far below the id.
    pub outstanding: u8,
    /// Answered ids, so far from the next id.
    pub answered: Vec<u8>,
    /// It is not delivered now.
    pub late: bool,
}

#[derive(Debug, Clone, Copy)]
pub enum Id {
    Next,
    Gap(u8),
    Used(u8),
}

/// Any step but bursts.
pub fn step() -> impl Strategy<Value = Step> {
    let some = || prop::collection::vec(any::<u8>(), 0..3);
    prop_oneof![
        8 => (0..6_u8, any::<u8>()).prop_map(|(owner, ttl)| Step::Open { owner, ttl }),
        1 => who().prop_map(|who| Step::Close { who }),
        3 => (who(), any::<u8>(), how()).prop_map(|(who, ttl, how)| Step::SetTtl { who, ttl, how }),
        50 => (who(), any::<u8>(), any::<u8>(), prop::bool::weighted(0.75), how())
            .prop_map(|(who, names, terms, waits, how)| Step::Acquire {
                who,
                names,
                terms,
                waits,
                how
            }),
        10 => (who(), any::<u8>(), how())
            .prop_map(|(who, target, how)| Step::Cancel { who, target, how }),
        30 => (who(), any::<u8>(), act(), how())
            .prop_map(|(who, which, act, how)| Step::Hold { who, which, act, how }),
        7 => (administers(), any::<u8>())
            .prop_map(|(act, which)| Step::Administer { act, which }),
        16 => any::<u16>().prop_map(|which| Step::Arrive { which }),
        2 => some().prop_map(|which| Step::MarkSeen { which }),
        2 => (some(), prop_oneof![3 => Just(0), 1 => 1..4_u8])
            .prop_map(|(which, late)| Step::Expire { which, late }),
        8 => some().prop_map(|which| Step::ExpireWaits { which }),
        2 => some().prop_map(|which| Step::ExpireBarriers { which }),
        4 => some().prop_map(|which| Step::EndClosures { which }),
        1 => Just(Step::Settle),
        1 => Just(Step::Blank),
        1 => (1..3_u8).prop_map(|up| Step::Term { up }),
        1 => Just(Step::Bootstrap),
        3 => Just(Step::Restart),
    ]
}

/// Claims that wait, and holders that leave: so that sessions get in each other's way.
pub fn step_entangled() -> impl Strategy<Value = Step> {
    let how = || Just(How { id: Id::Next, outstanding: 2, answered: Vec::new(), late: false });
    let who = || (0..6_u8).prop_map(|back| Who { back, says: Says::Truth });
    // Mostly any one of the names, else a set.
    let names =
        prop_oneof![4 => (0..4_u8).prop_map(|n| 2 + 3 * n), 1 => (0..16_u8).prop_map(|n| 3 * n)];
    prop_oneof![
        3 => (0..5_u8).prop_map(|owner| Step::Open { owner, ttl: 0 }),
        1 => who().prop_map(|who| Step::Close { who }),
        40 => (who(), names, 0..8_u8, prop::bool::weighted(0.95), how()).prop_map(
            |(who, names, terms, waits, how)| Step::Acquire { who, names, terms, waits, how }
        ),
        8 => (who(), any::<u8>(), how())
            .prop_map(|(who, which, how)| Step::Hold { who, which, act: Act::Release, how }),
        2 => any::<u8>().prop_map(|which| Step::ExpireWaits { which: vec![which] }),
        3 => any::<u8>().prop_map(|which| Step::Administer { act: Administers::Resize, which }),
        1 => Just(Step::Restart),
    ]
}

/// Any step, every fifth a burst.
pub fn step_or_burst() -> impl Strategy<Value = Step> {
    let burst = (who(), 1..700_u16, 0..2_u8);
    let burst = burst.prop_map(|(who, count, gap)| Step::Burst { who, count, gap });
    prop_oneof![4 => step(), 1 => burst]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![6 => Just(Act::Release), 2 => Just(Act::Confirm), 1 => Just(Act::SetValue)]
}

fn administers() -> impl Strategy<Value = Administers> {
    prop_oneof![
        2 => Just(Administers::Revoke),
        1 => Just(Administers::Freeze),
        4 => Just(Administers::Thaw),
        3 => Just(Administers::Resize),
        1 => Just(Administers::Ask),
    ]
}

fn who() -> impl Strategy<Value = Who> {
    let says = prop_oneof![
        18 => Just(Says::Truth),
        1 => Just(Says::OtherOwner),
        1 => Just(Says::Ahead),
    ];
    let back = prop_oneof![9 => 0..5_u8, 1 => any::<u8>()];
    (back, says).prop_map(|(back, says)| Who { back, says })
}

fn how() -> impl Strategy<Value = How> {
    let id = prop_oneof![
        30 => Just(Id::Next),
        1 => (1..3_u8).prop_map(Id::Gap),
        3 => any::<u8>().prop_map(Id::Used),
    ];
    let outstanding = prop_oneof![20 => Just(255), 1 => 0..2_u8, 4 => 2..10_u8];
    let answered = prop_oneof![6 => Just(Vec::new()), 1 => prop::collection::vec(0..10_u8, 1..4)];
    let late = prop_oneof![12 => Just(false), 1 => Just(true)];
    (id, outstanding, answered, late).prop_map(|(id, outstanding, answered, late)| How {
        id,
        outstanding,
        answered,
        late,
    })
}
