//! Calls that wait in a queue of the rules, and the entries that end what runs by time.

use std::collections::BTreeMap;
use std::rc::Rc;

use ringfence::locks::{
    Command, Done, Effects, Happened, LockTable, Outcome, Timer, Token, WaitId,
};

use crate::network::{Answer, Request};
use crate::orders::Order;

/// Calls of one leader that wait for a grant.
#[derive(Default)]
pub struct Calls(BTreeMap<WaitId, Vec<Rc<Request>>>);

impl Calls {
    /// Answers a call, unless it waits.
    pub fn settle(
        &mut self,
        request: Rc<Request>,
        command: Option<&Command>,
        outcome: &Outcome,
        table: &LockTable,
    ) -> Option<Order> {
        if let (Ok(Done::Queued { .. }), Some(Command::Acquire { header, .. })) = (outcome, command)
        {
            let wait = WaitId { session: header.session, request: header.id };
            self.0.entry(wait).or_default().push(request);
            return None;
        }
        let answer = match outcome {
            Ok(Done::Granted { token }) => granted(table, *token),
            told => Answer::Outcome(told.clone()),
        };
        Some(Order::Answer(request, answer))
    }

    /// Calls that waited in a queue are told how it ended.
    pub fn wake(&mut self, effects: &Effects, table: &LockTable, orders: &mut Vec<Order>) {
        for event in &effects.events {
            let (wait, answer) = match &event.what {
                Happened::Granted { wait, grant, .. } if self.0.contains_key(wait) => {
                    (wait, granted(table, grant.token))
                }
                Happened::LeftQueue { wait, cause, .. } => {
                    (wait, Answer::Outcome(Err(cause.refusal())))
                }
                Happened::Opened { .. }
                | Happened::Ended { .. }
                | Happened::Queued { .. }
                | Happened::Granted { .. }
                | Happened::Activated { .. }
                | Happened::ValueChanged { .. }
                | Happened::Asked { .. }
                | Happened::GrantEnded { .. }
                | Happened::Reopened { .. }
                | Happened::Frozen { .. }
                | Happened::Thawed { .. }
                | Happened::Resized { .. } => continue,
            };
            for request in self.0.remove(wait).unwrap_or_default() {
                orders.push(Order::Answer(request, answer.clone()));
            }
        }
    }

    /// All calls, for their leader is none any more.
    pub fn drain(&mut self) -> impl Iterator<Item = Rc<Request>> + use<> {
        std::mem::take(&mut self.0).into_values().flatten()
    }
}

/// What a client is told of its grant: with all that its fences need.
fn granted(table: &LockTable, token: Token) -> Answer {
    match table.grant(token) {
        Some(grant) => Answer::Granted(Rc::new(grant.clone())),
        None => Answer::Outcome(Ok(Done::Granted { token })),
    }
}

/// The entries that end these timers: one of each kind.
pub fn ends_of(timers: &[Timer]) -> impl Iterator<Item = Command> + use<> {
    let (mut waits, mut barriers, mut closures) = (Vec::new(), Vec::new(), Vec::new());
    let mut settle = None;
    for timer in timers {
        match *timer {
            Timer::Wait(wait) => waits.push(wait),
            Timer::Barrier(token) => barriers.push(token),
            Timer::Closure(token) => closures.push(token),
            Timer::Settle => settle = Some(Command::Settle),
        }
    }
    let waits = (!waits.is_empty()).then_some(Command::ExpireWaits { waits });
    let barriers = (!barriers.is_empty()).then_some(Command::ExpireBarriers { tokens: barriers });
    let closures = (!closures.is_empty()).then_some(Command::EndClosures { tokens: closures });
    [waits, barriers, closures, settle].into_iter().flatten()
}
