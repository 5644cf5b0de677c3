//! The ways to the tasks of the keep-alive. A client has one for each runtime that it has
//! opened sessions in.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::runtime::Id;
use tokio::sync::mpsc;

use super::core::Core;
use super::network::lock;
use super::renewals::Keeper;
use super::route::Address;
use super::state::Loss;
use crate::locks::SessionId;
use crate::wire::v1;

/// What a task is told.
#[derive(Debug)]
pub(super) enum Note {
    /// Renew this session, now and as its ttl asks for.
    Join(Arc<Core>),
    /// It is over.
    Leave(SessionId),
    /// The stream of this number brought answers.
    Answers(u64, Vec<v1::RenewalAnswer>),
    /// A stream ended.
    Broken(Broken),
}

/// How a stream ended.
#[derive(Debug)]
pub(super) struct Broken {
    /// Of the stream.
    pub number: u64,
    /// Whether the node said so; else its connection is of no more use.
    pub told: bool,
    /// Who leads, if it named anybody.
    pub leader: Option<Address>,
}

/// Each task is started when its runtime first needs it, and ends with the client and its
/// sessions, or with the runtime: then its sessions are over too, and those of other
/// runtimes go on.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    notes: Mutex<HashMap<Id, mpsc::UnboundedSender<Note>>>,
}

impl Keepers {
    /// Joins a session, or renews it at once if it has joined before.
    pub fn join(&self, core: &Arc<Core>) {
        let mut all = lock(&self.notes);
        all.retain(|_, notes| !notes.is_closed());
        let start = || {
            let (sender, receiver) = mpsc::unbounded_channel();
            let keeper =
                Keeper::new(Arc::clone(&core.client.network), receiver, sender.downgrade());
            core.spawn(keeper.run());
            sender
        };
        let notes = all.entry(core.runtime.id()).or_insert_with(start);
        let gone = notes.send(Note::Join(Arc::clone(core))).is_err();
        drop(all);
        if gone {
            core.end(Loss::SessionClosed);
        }
    }

    /// The session is over.
    pub fn leave(&self, session: SessionId) {
        for notes in lock(&self.notes).values() {
            let _ = notes.send(Note::Leave(session));
        }
    }
}
