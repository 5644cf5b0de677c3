//! What a client process does through the client library: sessions that renew themselves, and
//! guards that tell by arithmetic whether they are held.
//!
//! The library retries, renews and gives back by itself, so the history shows less of it than of
//! plain calls: no renewals, and requests only by numbers that the harness made up. What it
//! promises is asked as `held`: an operation of the session that succeeds while the guard says so.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use ringfence::client::{Client, ClientError, Guard, Session};
use serde_json::{Value, json};

use super::hex;
use super::order::{Answer, Order};
use crate::history::Kind;

/// What one session of the library has.
#[derive(Default)]
struct Kept {
    session: Option<Rc<Session>>,
    guard: Option<Guard>,
}

/// The sessions of a client process, by the handles that the harness gave.
#[derive(Default)]
pub struct Library {
    kept: RefCell<HashMap<u64, Kept>>,
}

/// The handle of an order that is for the library.
#[must_use]
pub fn handle(order: &Order) -> Option<u64> {
    order.aside.get("library").and_then(Value::as_u64)
}

impl Library {
    /// Does one order.
    pub async fn obey(&self, order: &Order, handle: u64) -> Answer {
        let done = match order.f.as_str() {
            "open" => self.open(order, handle).await,
            "acquire" => self.acquire(order, handle).await,
            "held" => return self.held(order, handle),
            "release" => {
                let guard = self.kept.borrow_mut().get_mut(&handle).and_then(|k| k.guard.take());
                let Some(guard) = guard else { return gone(order) };
                guard.release_within(limit(order)).await.map(|()| Answer::ok(order.id, json!({})))
            }
            _ => {
                let kept = self.kept.borrow_mut().remove(&handle);
                let session = kept.and_then(|kept| kept.session);
                let Some(session) = session.and_then(|session| Rc::try_unwrap(session).ok()) else {
                    return gone(order);
                };
                session.close_within(limit(order)).await.map(|()| Answer::ok(order.id, json!({})))
            }
        };
        done.unwrap_or_else(|error| refused(order, &error))
    }

    async fn open(&self, order: &Order, handle: u64) -> Result<Answer, ClientError> {
        let nodes = order.aside["nodes"].as_array().into_iter().flatten();
        let client = Client::connect(nodes.filter_map(Value::as_str))?;
        let ttl = Duration::from_millis(order.args["ttl_ms"].as_u64().unwrap_or(0));
        let session = client.session(ttl).deadline(limit(order)).await?;
        let ttl_ms = u64::try_from(session.ttl().as_millis()).unwrap_or(u64::MAX);
        let value = json!({"session": session.id().0, "ttl_ms": ttl_ms});
        let aside = json!({"cluster_id": hex(session.cluster().as_bytes())});
        let kept = Kept { session: Some(Rc::new(session)), guard: None };
        self.kept.borrow_mut().insert(handle, kept);
        Ok(Answer { aside, ..Answer::ok(order.id, value) })
    }

    async fn acquire(&self, order: &Order, handle: u64) -> Result<Answer, ClientError> {
        let session = self.kept.borrow().get(&handle).and_then(|kept| kept.session.clone());
        let Some(session) = session else { return Ok(gone(order)) };
        let resource = order.args["resource"].as_str().unwrap_or_default();
        let wait = Duration::from_millis(order.args["wait_ms"].as_u64().unwrap_or(0));
        let guard = session.acquire(resource).wait(wait).deadline(limit(order)).await?;
        let fence = guard.fence();
        let value = json!({"token": fence.token.get(), "floor": fence.floor.get()});
        if let Some(kept) = self.kept.borrow_mut().get_mut(&handle) {
            kept.guard = Some(guard);
        }
        Ok(Answer::ok(order.id, value))
    }

    fn held(&self, order: &Order, handle: u64) -> Answer {
        let kept = self.kept.borrow();
        let Some(guard) = kept.get(&handle).and_then(|kept| kept.guard.as_ref()) else {
            return gone(order);
        };
        if guard.is_held() {
            return Answer::ok(order.id, json!({}));
        }
        let state = format!("{:?}", guard.state());
        Answer::of(order.id, Kind::Fail, Value::Null, Some(state))
    }
}

fn limit(order: &Order) -> Duration {
    Duration::from_millis(order.timeout_ms)
}

/// The process was started anew since.
fn gone(order: &Order) -> Answer {
    Answer::of(order.id, Kind::Fail, Value::Null, Some("no-such-handle".into()))
}

fn refused(order: &Order, error: &ClientError) -> Answer {
    let kind = if error.outcome_unknown() { Kind::Info } else { Kind::Fail };
    let word = match error {
        ClientError::SessionExpired => "SESSION_EXPIRED".to_owned(),
        ClientError::Lost { .. } => "NOT_HELD".to_owned(),
        ClientError::Busy { .. } => "BUSY".to_owned(),
        ClientError::GrantEnded { .. } => "GRANT_ENDED".to_owned(),
        ClientError::Timeout { outcome_unknown: false } => "WAIT_TIMEOUT".to_owned(),
        other => format!("library: {other}"),
    };
    Answer::of(order.id, kind, Value::Null, Some(word))
}
