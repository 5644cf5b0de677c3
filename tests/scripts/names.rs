//! What sessions are called: an owner's first one as the owner, its next ones with
//! strokes (`a`, `a'`, `a''`).

use std::collections::BTreeMap;

use ringfence::locks::{OwnerId, RequestId, SessionId};

/// Everybody who opened a session so far.
#[derive(Default)]
pub struct Names {
    by_name: BTreeMap<String, Actor>,
    by_session: BTreeMap<SessionId, String>,
}

/// Whoever a command speaks for.
#[derive(Clone, Copy)]
pub struct Actor {
    pub session: SessionId,
    /// The id of its next request.
    pub next: RequestId,
}

impl Names {
    /// An owner's credential: its name, in 16 bytes.
    pub fn owner(name: &str) -> OwnerId {
        let mut bits = [0; 16];
        for (bit, byte) in bits.iter_mut().zip(name.trim_end_matches('\'').bytes()) {
            *bit = byte;
        }
        OwnerId::new(bits)
    }

    /// Takes in that an owner's session was opened.
    pub fn opened(&mut self, owner: &str, session: SessionId) {
        let mut name = owner.trim_end_matches('\'').to_owned();
        while self.by_name.contains_key(&name) {
            name.push('\'');
        }
        self.by_session.insert(session, name.clone());
        self.by_name.insert(name, Actor { session, next: RequestId::FIRST });
    }

    /// What a session is called.
    pub fn of(&self, session: SessionId) -> String {
        self.by_session.get(&session).cloned().unwrap_or_else(|| session.to_string())
    }

    /// Who is called so.
    pub fn actor(&self, name: &str) -> Result<Actor, String> {
        self.by_name.get(name).copied().ok_or_else(|| format!("nobody is called {name}"))
    }

    /// Takes in that an id was used.
    pub fn used(&mut self, name: &str, id: RequestId) {
        if let Some(actor) = self.by_name.get_mut(name) {
            actor.next = actor.next.max(id.next());
        }
    }
}
