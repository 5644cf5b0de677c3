//! Rows that are not those of one table at one time.

use std::collections::BTreeMap;

use ringfence::locks::{
    Claim, Command, Done, FrozenRow, Header, LockTable, Millis, Mode, Note, OwnerId, RequestId,
    ResourceName, Row, SessionId, Switches, Terms, Token, Wait,
};

use crate::checked::Checked;
use crate::world::bootstrap;

/// Two sessions; one holds a and b, the other waits for a.
fn rows() -> Vec<Row> {
    let mut table = Checked::new(Switches::default());
    table.apply(Some(Command::Bootstrap(bootstrap(0))));
    for (owner, names) in [(1, vec!["a", "b"]), (2, vec!["a"])] {
        let owner = OwnerId::new([owner; 16]);
        let (ttl, labels) = (Millis(2_000), BTreeMap::new());
        let opened = table.apply(Some(Command::OpenSession { owner, ttl, labels }));
        let Ok(Done::Opened { session, .. }) = opened.outcome else { panic!("{opened:?}") };
        let (id, answered) = (RequestId::FIRST, Vec::new());
        let header = Header { owner, session, id, oldest_outstanding: id, answered };
        let names = names.into_iter().map(|n| ResourceName::new(n).expect("a good name"));
        let claim = Claim::new(names.collect(), Mode::Exclusive, Terms::default());
        let claim = claim.expect("a good claim");
        let wait = Wait::UpTo(Millis(1_000));
        table.apply(Some(Command::Acquire { header, claim, wait }));
    }
    table.rows().values().cloned().collect()
}

#[test]
fn without_a_row_that_others_need_the_rows_are_refused() {
    let rows = rows();
    assert_eq!(rows.len(), 8, "{rows:?}");
    let mut needed = 0;
    for missing in 0..rows.len() {
        let mut others = rows.clone();
        let row = others.remove(missing);
        let loaded = LockTable::from_rows(others);
        match row {
            Row::Meta(_) | Row::Session(_) | Row::Window(_) => {
                needed += 1;
                assert!(loaded.is_err(), "was accepted without {row:?}");
            }
            // Without these it is the table of another time, whole in itself.
            Row::Outcome(_)
            | Row::Grant(_)
            | Row::Wait(_)
            | Row::Closure(_)
            | Row::Frozen(_)
            | Row::Resized(_) => {
                let loaded = loaded.expect("nothing names this row");
                assert!(loaded.check().is_empty() || matches!(row, Row::Grant(_)));
            }
        }
    }
    assert_eq!(needed, 5);
}

#[test]
fn rows_that_stand_in_each_others_place_are_refused() {
    type Change = fn(&mut Row);
    let cases: [(&str, Change); 3] = [
        ("two sessions of the owner", |row| {
            if let Row::Session(row) = row {
                row.owner = OwnerId::new([1; 16]);
            }
        }),
        ("token 3 is above the counter", |row| {
            if let Row::Grant(row) = row {
                row.token = Token::new(3).expect("a good token");
            }
        }),
        ("two places of one session on a", |row| {
            if let Row::Grant(row) = row {
                row.wait.session.0 = 4;
            }
        }),
    ];
    for (reason, change) in cases {
        let mut rows = rows();
        rows.iter_mut().for_each(change);
        let refused = LockTable::from_rows(rows).map(|_| ()).expect_err(reason);
        assert!(refused.to_string().contains(reason), "{refused}");
    }
}

/// One session holds a slot that an administrator added, a freeze stands, and a lock delay
/// runs.
fn rows_of_administration() -> Vec<Row> {
    let mut table = Checked::new(Switches::default());
    table.apply(Some(Command::Bootstrap(bootstrap(0))));
    let owner = OwnerId::new([1; 16]);
    let (ttl, labels) = (Millis(2_000), BTreeMap::new());
    table.apply(Some(Command::OpenSession { owner, ttl, labels }));
    let name = |name| ResourceName::new(name).expect("a good name");
    let mut acquire = |id, resource, mode| {
        let id = RequestId::new(id).expect("1 or more");
        let (session, oldest_outstanding) = (SessionId(2), RequestId::FIRST);
        let header = Header { owner, session, id, oldest_outstanding, answered: Vec::new() };
        let terms = Terms { lock_delay: Millis(700), ..Terms::default() };
        let claim = Claim::new(vec![name(resource)], mode, terms).expect("a good claim");
        table.apply(Some(Command::Acquire { header, claim, wait: Wait::Try }));
    };
    acquire(1, "slots", Mode::Slots { of: 2 });
    acquire(2, "closed", Mode::Exclusive);
    let note = || Note::new("ops", "a reason").expect("a good note");
    let (slots, token) = (name("slots"), Token::new(2).expect("a good token"));
    table.apply(Some(Command::Resize { resource: slots, slots: 3, note: note() }));
    table.apply(Some(Command::Revoke { resource: name("closed"), token, note: note() }));
    table.apply(Some(Command::Freeze { resource: name("frozen"), note: note() }));
    table.check().expect("a whole table");
    table.rows().values().cloned().collect()
}

#[test]
fn rows_of_administration_that_do_not_fit_are_refused() {
    let rows = rows_of_administration();
    assert!(LockTable::from_rows(rows.clone()).is_ok());
    let mut refused = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let mut others = rows.clone();
        match &mut others[n] {
            Row::Closure(row) => row.token = Token::new(99).expect("a good token"),
            Row::Frozen(row) => row.token = Token::new(98).expect("a good token"),
            // Nobody uses the slots of another resource.
            Row::Resized(row) => row.name = ResourceName::new("other").expect("a good name"),
            Row::Meta(_) | Row::Session(_) | Row::Window(_) | Row::Outcome(_) => continue,
            Row::Grant(_) | Row::Wait(_) => continue,
        }
        let reason = LockTable::from_rows(others).map(|_| ()).expect_err("it does not fit");
        refused.push((row.key(), reason.to_string()));
    }
    let reasons: Vec<_> = refused.iter().map(|(_, reason)| reason.as_str()).collect();
    assert_eq!(
        reasons,
        [
            "the stored rows do not fit together: token 99 is above the counter",
            "the stored rows do not fit together: token 98 is above the counter",
            "the stored rows do not fit together: a number of slots of other, which has none",
        ]
    );
    // A second freeze of one resource.
    let mut twice = rows;
    let Some(Row::Frozen(row)) = twice.iter().find(|row| matches!(row, Row::Frozen(_))).cloned()
    else {
        panic!("a freeze stands")
    };
    twice.push(Row::Frozen(FrozenRow { token: Token::new(1).expect("a good token"), ..row }));
    let reason = LockTable::from_rows(twice).map(|_| ()).expect_err("two freezes");
    assert!(reason.to_string().contains("two freezes of frozen"), "{reason}");
}
