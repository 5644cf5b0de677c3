//! What the demo claims, and what was seen.

use std::time::Duration;

use serde::Serialize;

use super::store::Row;
use crate::cli::local::Leader;
use crate::locks::Token;

/// A claim, checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// What must hold.
    pub claim: &'static str,
    /// What was seen.
    pub seen: String,
    /// Whether it held.
    pub ok: bool,
}

/// All that the claims are judged by.
#[derive(Debug)]
pub struct Evidence {
    /// Before the kill.
    pub old: Leader,
    /// After it.
    pub new: Leader,
    /// From the kill to the first sight of the new leader.
    pub elected_after: Duration,
    /// A's token.
    pub token_a: Token,
    /// B's.
    pub token_b: Token,
    /// How long A counted on its lease when it last looked.
    pub a_counted_on: Duration,
    /// From that look to B's grant.
    pub granted_after: Duration,
    /// What the destination answered to A's late write, and the mark it named.
    pub late_write: (String, Option<u64>),
    /// What A's guard said at once when it went on, and in the end.
    pub guard: (String, String),
    /// The protected row in the end.
    pub row: Option<Row>,
    /// The mark in the end.
    pub mark: Option<Token>,
    /// The row without protection in the end.
    pub unguarded: Option<Row>,
}

impl Evidence {
    /// Judges.
    pub fn claims(&self) -> Vec<Claim> {
        let (old, new) = (self.old, self.new);
        let by = |row: &Option<Row>, worker: &str, token: Token| {
            row.as_ref().is_some_and(|row| row.worker == worker && row.token == token.get())
        };
        let seen = |row: &Option<Row>| row.as_ref().map_or("nothing".to_owned(), Row::to_string);
        let (answer, named) = &self.late_write;
        let (at_once, in_the_end) = &self.guard;
        vec![
            Claim {
                claim: "a new leader took over, in a later term",
                seen: format!(
                    "node {} in term {}, node {} in term {} after {} ms",
                    old.node,
                    old.term,
                    new.node,
                    new.term,
                    self.elected_after.as_millis()
                ),
                ok: new.term > old.term && new.node != old.node,
            },
            Claim {
                claim: "B was granted the job only when A's lease was over",
                seen: format!(
                    "A counted on {:.2} s, B came after {:.2} s",
                    self.a_counted_on.as_secs_f64(),
                    self.granted_after.as_secs_f64()
                ),
                ok: self.granted_after >= self.a_counted_on,
            },
            Claim {
                claim: "B's token is greater than A's",
                seen: format!("A {}, B {}", self.token_a, self.token_b),
                ok: self.token_b > self.token_a,
            },
            Claim {
                claim: "the destination refused A's late write, and named the mark",
                seen: answer.clone(),
                ok: *named == Some(self.token_b.get()) && self.mark == Some(self.token_b),
            },
            Claim {
                claim: "A's own guard said that it is not held",
                seen: format!("at once: {at_once}; then: {in_the_end}"),
                ok: !at_once.starts_with("held") && in_the_end.starts_with("lost"),
            },
            Claim {
                claim: "the destination holds B's result and no other",
                seen: seen(&self.row),
                ok: by(&self.row, "B", self.token_b),
            },
            Claim {
                claim: "control: without the fence, the same late write goes through",
                seen: seen(&self.unguarded),
                ok: by(&self.unguarded, "A", self.token_a),
            },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> Token {
        Token::new(number).expect("in bounds")
    }

    fn row(worker: &str, token: u64) -> Option<Row> {
        Some(Row { worker: worker.to_owned(), token, result: "done".to_owned() })
    }

    fn evidence() -> Evidence {
        Evidence {
            old: Leader { node: 1, term: 1 },
            new: Leader { node: 2, term: 2 },
            elected_after: Duration::from_millis(300),
            token_a: token(1),
            token_b: token(2),
            a_counted_on: Duration::from_secs(2),
            granted_after: Duration::from_secs(3),
            late_write: ("stale".to_owned(), Some(2)),
            guard: ("suspended".to_owned(), "lost".to_owned()),
            row: row("B", 2),
            mark: Some(token(2)),
            unguarded: row("A", 1),
        }
    }

    #[test]
    fn each_claim_is_denied_by_its_own_evidence_alone() {
        assert!(evidence().claims().iter().all(|claim| claim.ok));
        let changes: [fn(&mut Evidence); 7] = [
            |e| e.new.term = 1,
            |e| e.granted_after = Duration::from_secs(1),
            |e| e.token_a = token(2),
            |e| e.late_write = ("published".to_owned(), None),
            |e| e.guard.0 = "held for 1.00 s".to_owned(),
            |e| e.row = row("A", 1),
            |e| e.unguarded = row("B", 2),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            let mut evidence = evidence();
            change(&mut evidence);
            let claims = evidence.claims();
            assert!(!claims[at].ok, "{:?}", claims[at]);
        }
    }
}
