//! Who leads, as others see it.

use super::backoff::Backoff;
use super::watch::{Seen, Watcher, Watching};
use super::{Client, ClientError};
use crate::clock::Moment;
use crate::locks::{Labels, ResourceName, SessionId, Token};
use crate::wire::v1::{self, EventKind};

/// The leader of an election, as its grant shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    /// The fencing token of its grant.
    pub token: Token,
    /// What it proclaims.
    pub value: Vec<u8>,
    /// Its session.
    pub session: SessionId,
    /// The session's labels: host, pid, purpose.
    pub labels: Labels,
}

/// Tells who leads; see [`Client::observe`].
#[derive(Debug)]
pub struct Observer {
    client: Client,
    name: String,
    watcher: Option<Watcher>,
    /// Not before this is another watch begun.
    begin_at: Moment,
    backoff: Backoff,
    /// As last told; `None` before anything was.
    told: Option<Option<Leader>>,
    /// What was told is so at this log index: events up to it are no news.
    index: u64,
    /// The leader of a state whose last part has not come yet.
    found: Option<Leader>,
    /// Nothing is known yet, or something has happened that must be looked up.
    stale: bool,
}

impl Client {
    /// Observes an election: who leads now, and then every change.
    pub fn observe(&self, name: impl Into<String>) -> Observer {
        Observer {
            client: self.clone(),
            name: name.into(),
            watcher: None,
            begin_at: Moment::now(),
            backoff: Backoff::default(),
            told: None,
            index: 0,
            found: None,
            stale: true,
        }
    }
}

impl Observer {
    /// Who leads: when first asked after a confirmed round, and then whenever the leader or
    /// its proclamation has changed. `None`: nobody leads. Leaders that came and went in the
    /// meantime may be left out; the last one never is. A leader that has not confirmed
    /// a strict handoff does not lead yet.
    ///
    /// It goes on by itself over failures of nodes. Dropping the future loses nothing.
    ///
    /// # Errors
    /// [`ClientError::Unreachable`] when no node could be reached for the client's call
    /// timeout, [`ClientError::Refused`] when none has room for another watch: call again,
    /// the observer goes on. [`ClientError::Invalid`] for a bad name.
    pub async fn next(&mut self) -> Result<Option<Leader>, ClientError> {
        loop {
            if self.stale {
                let now = self.look().await?;
                self.stale = false;
                if let Some(news) = self.news(now) {
                    return Ok(news);
                }
            }
            let seen = match self.watch().await {
                Err(ClientError::Compacted) => continue,
                seen => seen?,
            };
            if let Some(news) = self.see(seen) {
                return Ok(news);
            }
        }
    }

    /// What is seen next. A watch that fails is left for another, whose state tells what
    /// was missed.
    async fn watch(&mut self) -> Result<Seen, ClientError> {
        let watcher = match &mut self.watcher {
            Some(watcher) => watcher,
            none => {
                tokio::time::sleep(self.begin_at.since(Moment::now())).await;
                none.insert(self.client.watch(Watching::resource(self.name.as_str())).or_anew())
            }
        };
        let seen = watcher.next().await;
        if seen.is_ok() {
            self.backoff.reset();
        } else {
            self.watcher = None;
            self.begin_at = Moment::now().plus(self.backoff.pause(rand::random()));
        }
        seen
    }

    fn see(&mut self, seen: Seen) -> Option<Option<Leader>> {
        match seen {
            Seen::State { resources, at, last } => {
                let leader = resources.iter().filter(|view| view.resource == self.name);
                self.found =
                    leader.flat_map(|view| &view.holders).find_map(leader_of).or(self.found.take());
                if !last {
                    return None;
                }
                let found = self.found.take();
                if at.index < self.index {
                    return None;
                }
                self.index = at.index;
                self.news(found)
            }
            Seen::Event(event) => {
                let at = event.at.filter(|at| at.index > self.index)?;
                self.happened(at.index, &event)
            }
            Seen::Progress(_) => None,
        }
    }

    fn happened(&mut self, index: u64, event: &v1::Event) -> Option<Option<Leader>> {
        match event.kind() {
            EventKind::ValueChanged => {
                let leader = self.told.clone().flatten()?;
                if leader.token.get() != event.token {
                    return None;
                }
                // Nothing else happens to a resource in the entry that changes its value.
                self.index = index;
                self.news(Some(Leader { value: event.value.to_vec(), ..leader }))
            }
            // An event does not tell value and labels, and one that ends a grant not who
            // has it next.
            EventKind::Granted | EventKind::Activated | EventKind::Ended => {
                self.stale = true;
                None
            }
            EventKind::Unspecified
            | EventKind::SessionOpened
            | EventKind::SessionEnded
            | EventKind::Queued
            | EventKind::Asked
            | EventKind::LeftQueue
            | EventKind::Reopened
            | EventKind::Frozen
            | EventKind::Thawed
            | EventKind::Resized => None,
        }
    }

    /// Who leads now, after a confirmed round.
    async fn look(&mut self) -> Result<Option<Leader>, ClientError> {
        let resource = ResourceName::new(&self.name)?.as_str().to_owned();
        let answer = self.client.get(&resource).await?;
        self.index = self.index.max(answer.index);
        Ok(answer.resource.iter().flat_map(|view| &view.holders).find_map(leader_of))
    }

    /// What is to be told, if it is not what was told last.
    fn news(&mut self, now: Option<Leader>) -> Option<Option<Leader>> {
        if self.told.as_ref() == Some(&now) {
            return None;
        }
        self.told = Some(now.clone());
        Some(now)
    }
}

/// The grant of a leader: exclusive, and active.
fn leader_of(grant: &v1::Grant) -> Option<Leader> {
    let exclusive = matches!(grant.mode(), v1::Mode::Unspecified | v1::Mode::Exclusive);
    if !exclusive || grant.phase() != v1::Phase::Active {
        return None;
    }
    Some(Leader {
        token: Token::new(grant.token).ok()?,
        value: grant.value.to_vec(),
        session: SessionId(grant.session),
        labels: grant.labels.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::Revision;

    fn state(index: u64, leader: Option<u64>, last: bool) -> Seen {
        let grant =
            |token| v1::Grant { token, phase: v1::Phase::Active.into(), ..v1::Grant::default() };
        let view = v1::ResourceView {
            resource: "db/primary".to_owned(),
            holders: leader.map(grant).into_iter().collect(),
            ..v1::ResourceView::default()
        };
        Seen::State { resources: vec![view], at: Revision { index, ordinal: 0 }, last }
    }

    #[test]
    fn a_leader_of_an_old_state_is_not_taken_for_one_of_the_next() {
        let client = Client::connect(["127.0.0.1:9"]).expect("a good endpoint");
        let mut observer = client.observe("db/primary");
        let told = observer.see(state(10, Some(3), true)).expect("it is news");
        assert_eq!(told.map(|leader| leader.token.get()), Some(3));
        assert_eq!(observer.see(state(5, Some(2), true)), None, "it knows better");
        assert_eq!(observer.see(state(12, None, true)), Some(None));
    }

    #[test]
    fn a_state_from_before_a_proclamation_does_not_take_it_back() {
        let client = Client::connect(["127.0.0.1:9"]).expect("a good endpoint");
        let mut observer = client.observe("db/primary");
        observer.see(state(10, Some(3), true)).expect("it is news");
        let proclaimed = v1::Event {
            at: Some(v1::Revision { index: 15, ordinal: 0 }),
            kind: EventKind::ValueChanged.into(),
            token: 3,
            value: b"new"[..].into(),
            ..v1::Event::default()
        };
        let told = observer.see(Seen::Event(proclaimed)).expect("it is news");
        assert_eq!(told.map(|leader| leader.value), Some(b"new".to_vec()));
        assert_eq!(observer.see(state(12, Some(3), true)), None, "of a node that lags");
    }
}
