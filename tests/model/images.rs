//! Rows that are not those of one table at one time.

use std::collections::BTreeMap;

use ringfence::locks::{
    Claim, Command, Done, Header, LockTable, Millis, Mode, OwnerId, RequestId, ResourceName, Row,
    Switches, Terms, Token, Wait,
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
