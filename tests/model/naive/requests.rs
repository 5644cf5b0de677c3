//! Section 5: what is kept of requests, and when one takes effect.

use ringfence::locks::{Done, Header, Outcome, Refusal, RequestId, SessionId, WINDOW_MAX, WaitId};

use super::{Answer, Naive, Session};

impl Naive {
    /// Ids that are finished without an answer, as ranges.
    pub fn ranges(session: &Session) -> Vec<(RequestId, RequestId)> {
        let mut ids = session.answered.clone();
        ids.sort();
        let mut ranges: Vec<(RequestId, RequestId)> = Vec::new();
        for id in ids {
            match ranges.last_mut() {
                Some((_, last)) if last.next() == id => *last = id,
                _ => ranges.push((id, id)),
            }
        }
        ranges
    }

    /// Section 5.
    pub fn request(
        &mut self,
        header: &Header,
        contents: String,
        run: impl FnOnce(&mut Self) -> Outcome,
    ) -> Outcome {
        self.is_live(header.owner, header.session)?;
        self.take_in(header);
        let id = WaitId { session: header.session, request: header.id };
        if let Some(waiting) = self.waits.iter().find(|w| w.wait == id) {
            if waiting.contents != contents {
                return Err(Refusal::RequestChanged);
            }
            return Ok(Done::Queued { ahead: self.ahead(waiting) });
        }
        if self.is_forgotten(id) {
            return Err(Refusal::StaleRequest);
        }
        let answers = &self.of(header.session).answers;
        if let Some(answer) = answers.iter().find(|a| a.id == header.id).cloned() {
            if answer.contents.is_some_and(|known| known != contents) {
                return Err(Refusal::RequestChanged);
            }
            return self.as_of_now(answer.outcome);
        }
        if self.kept(header.session) + 1 > WINDOW_MAX {
            return Err(Refusal::WindowFull);
        }
        let outcome = run(self);
        if !matches!(outcome, Ok(Done::Queued { .. }) | Err(Refusal::WindowFull)) {
            self.answer(id, Some(contents), outcome.clone());
        }
        outcome
    }

    /// What a request says of others.
    fn take_in(&mut self, header: &Header) {
        let session = header.session;
        let own: Vec<_> = self.waits.iter().filter(|w| w.wait.session == session).collect();
        let own: Vec<RequestId> = own.into_iter().map(|w| w.wait.request).collect();
        let state = self.of(session);
        state.floor = state.floor.max(header.oldest_outstanding);
        let floor = state.floor;
        state.answers.retain(|a| a.id >= floor);
        state.answered.retain(|id| *id >= floor);
        for id in &header.answered {
            let state = self.of(session);
            let settled = *id < floor || state.answered.contains(id);
            if settled || *id == header.id || own.contains(id) {
                continue;
            }
            // Where there is no room, only what takes the place of an answer is noted; also of
            // ids that would lengthen a range.
            if self.kept(session) >= WINDOW_MAX
                && self.of(session).answers.iter().all(|a| a.id != *id)
            {
                continue;
            }
            let state = self.of(session);
            state.answers.retain(|a| a.id != *id);
            state.answered.push(*id);
        }
    }

    pub fn kept(&self, session: SessionId) -> usize {
        let state = self.sessions.iter().find(|s| s.id == session).expect("asked of live ones");
        let waits = self.waits.iter().filter(|w| w.wait.session == session).count();
        state.answers.len() + Self::ranges(state).len() + waits
    }

    pub fn is_forgotten(&self, id: WaitId) -> bool {
        let state = self.sessions.iter().find(|s| s.id == id.session);
        state.is_none_or(|s| id.request < s.floor || s.answered.contains(&id.request))
    }

    pub fn answer(&mut self, id: WaitId, contents: Option<String>, outcome: Outcome) {
        if !self.is_forgotten(id) {
            let answers = &mut self.of(id.session).answers;
            answers.retain(|a| a.id != id.request);
            answers.push(Answer { id: id.request, contents, outcome });
        }
    }

    pub fn as_of_now(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Ok(Done::Granted { token }) if self.grants.iter().all(|g| g.token != token) => {
                Err(Refusal::GrantEnded { token })
            }
            other => other,
        }
    }
}
