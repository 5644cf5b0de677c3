//! Idempotency: an (owner, session, request id) takes effect at most once. (I6)
//! Section 5 of the contract.

use super::command::Header;
use super::effect::{Done, Outcome, Refusal};
use super::entry::Entry;
use super::ids::{OwnerId, RequestId, SessionId};
use super::rows::RowKey;
use super::session::Finished;
use super::switches::Rule;

impl Entry<'_> {
    /// Runs a request of a session once, or answers as it was answered before. `run`
    /// gets the session that it acts in, and finds room for the one outcome it leaves.
    ///
    /// The refusals at the door (session gone, window full, other contents, stale)
    /// speak for this attempt only and leave no outcome.
    pub(super) fn request(
        &mut self,
        header: &Header,
        fingerprint: u64,
        run: impl FnOnce(&mut Self, SessionId) -> Outcome,
    ) -> Outcome {
        self.owned(header.owner, header.session)?;
        let session = self.acting_session(header.owner, header.session);
        self.settle_window(session, header);
        if self.table.holds(Rule::OneEffectPerRequest)
            && let Some(answer) = self.answer_again(session, header.id, fingerprint)
        {
            return answer;
        }
        self.room_for(session, 1)?;
        let outcome = run(self, session);
        if !matches!(outcome, Ok(Done::Queued { .. }) | Err(Refusal::WindowFull)) {
            self.record(session, header.id, Some(fingerprint), outcome.clone());
        }
        outcome
    }

    /// Whether the session may keep so many more outcomes.
    pub(super) fn room_for(&self, session: SessionId, outcomes: usize) -> Result<(), Refusal> {
        let room = self.table.sessions[&session].window_room();
        if room < outcomes { Err(Refusal::WindowFull) } else { Ok(()) }
    }

    /// Keeps the outcome of a finished request for as long as it may be asked for.
    pub(super) fn record(
        &mut self,
        session: SessionId,
        id: RequestId,
        fingerprint: Option<u64>,
        outcome: Outcome,
    ) {
        let live = self.table.sessions.get(&session);
        if live.is_none_or(|s| s.window.is_forgotten(id)) {
            return; // the client has said that it no longer asks
        }
        self.touch(RowKey::Outcome(session, id));
        let finished = Finished { fingerprint, outcome };
        self.session(session).window.outcomes.insert(id, finished);
    }

    /// The session that the request acts in: the one it names.
    pub(super) fn acting_session(&self, owner: OwnerId, named: SessionId) -> SessionId {
        if self.table.holds(Rule::SessionInRequest) { named } else { self.table.owners[&owner] }
    }

    /// Takes in what the client says of its other requests. The floor never falls.
    fn settle_window(&mut self, session: SessionId, header: &Header) {
        let window = &self.table.sessions[&session].window;
        let news = header.oldest_outstanding > window.floor
            || header.answered.iter().any(|id| !window.is_forgotten(*id));
        if !news {
            return;
        }
        self.touch(RowKey::Window(session));
        let outcomes = &self.table.sessions[&session].window.outcomes;
        let below = outcomes.range(..header.oldest_outstanding).map(|(id, _)| *id);
        let named = header.answered.iter().copied().filter(|id| outcomes.contains_key(id));
        for id in below.chain(named).collect::<Vec<_>>() {
            self.touch(RowKey::Outcome(session, id));
        }
        let live = self.session(session);
        live.window.raise_floor(header.oldest_outstanding);
        for id in &header.answered {
            // Without room only what takes an outcome's place is noted: ranges are
            // bounded too.
            let fits = live.window.outcomes.contains_key(id) || live.window_room() > 0;
            if fits && !live.waits.contains(id) && *id != header.id {
                live.window.answered(*id);
            }
        }
    }

    /// The answer, if this id has one or waits for one.
    fn answer_again(&self, session: SessionId, id: RequestId, fingerprint: u64) -> Option<Outcome> {
        let live = &self.table.sessions[&session];
        if let Some(ahead) = self.queued_again(session, id, fingerprint) {
            return Some(ahead);
        }
        if live.window.is_forgotten(id) {
            return Some(Err(Refusal::StaleRequest));
        }
        let finished = live.window.outcomes.get(&id)?;
        if finished.fingerprint.is_some_and(|known| known != fingerprint) {
            return Some(Err(Refusal::RequestChanged));
        }
        Some(self.table.current(&finished.outcome))
    }

    fn queued_again(
        &self,
        session: SessionId,
        request: RequestId,
        fingerprint: u64,
    ) -> Option<Outcome> {
        let wait = self.table.waits.get(&super::WaitId { session, request })?;
        if wait.fingerprint != fingerprint {
            return Some(Err(Refusal::RequestChanged));
        }
        Some(Ok(Done::Queued { ahead: self.table.ahead_of(wait) }))
    }
}
