//! The keep-alive: one task renews all sessions that a client has opened in one runtime,
//! over one stream. It lives apart from the application's tasks, so that cancelling them stops no
//! renewal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::backoff::{Backoff, SPREAD, at_least, renew_after};
use super::core::Core;
use super::keepers::{Broken, Note};
use super::lanes::Lane;
use super::network::Network;
use super::operations::revision;
use super::route::{Address, Walk};
use super::state::Loss;
use super::stream::Streams;
use crate::clock::BootMoment;
use crate::locks::SessionId;
use crate::wire::reason::Reason;
use crate::wire::v1::{self, renewal_answer};

/// Renewals in one message.
const RENEWALS_MAX: usize = 1_024;
/// The longest sleep: tokio's clock stands still in suspend, sessions do not.
const SLEEP_MAX: Duration = Duration::from_secs(1);
/// Renewals that are due within this time go out together.
const TOGETHER: Duration = Duration::from_millis(2);
/// How long the refused wait at most before they ask again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// A session that is being renewed.
struct Member {
    core: Arc<Core>,
    due: BootMoment,
}

/// Renews the sessions of one runtime.
pub(super) struct Keeper {
    network: Arc<Network>,
    notes: mpsc::UnboundedReceiver<Note>,
    members: BTreeMap<SessionId, Member>,
    due: BTreeSet<(BootMoment, SessionId)>,
    streams: Streams,
    walk: Walk,
    backoff: Backoff,
    /// Not before this is another stream opened.
    open_at: BootMoment,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // With members only if the runtime is shutting down: nobody renews them any more.
        self.notes.close();
        let joining = std::iter::from_fn(|| self.notes.try_recv().ok());
        let joining = joining.filter_map(|note| match note {
            Note::Join(core) => Some(core),
            Note::Leave(_) | Note::Answers(..) | Note::Broken(_) => None,
        });
        let members = std::mem::take(&mut self.members).into_values();
        for core in members.map(|member| member.core).chain(joining) {
            core.end(Loss::SessionClosed);
        }
    }
}

impl Keeper {
    pub fn new(
        network: Arc<Network>,
        notes: mpsc::UnboundedReceiver<Note>,
        sender: mpsc::WeakUnboundedSender<Note>,
    ) -> Self {
        Self {
            walk: network.walk(),
            network,
            notes,
            members: BTreeMap::new(),
            due: BTreeSet::new(),
            streams: Streams::new(sender),
            backoff: Backoff::default(),
            open_at: BootMoment::default(),
        }
    }

    pub async fn run(mut self) {
        loop {
            let pause = self.wake().since(BootMoment::now()).min(SLEEP_MAX);
            tokio::select! {
                note = self.notes.recv() => match note {
                    Some(note) => self.take(note),
                    None => return,
                },
                () = tokio::time::sleep(pause), if !self.members.is_empty() => {}
            }
            while let Ok(note) = self.notes.try_recv() {
                self.take(note);
            }
            self.turn();
        }
    }

    /// When there is something to do without a note.
    fn wake(&self) -> BootMoment {
        match self.streams.current() {
            None => self.open_at,
            Some(stream) => {
                let due = self.due.first().map(|&(due, _)| due);
                due.into_iter().chain(stream.stalls_at()).min().unwrap_or(self.open_at)
            }
        }
    }

    fn take(&mut self, note: Note) {
        match note {
            Note::Join(core) => self.join(core),
            Note::Leave(session) => self.leave(session),
            Note::Answers(number, answers) => {
                for answer in answers {
                    self.answer(number, answer);
                }
            }
            Note::Broken(Broken { number, told, leader }) => {
                let current = self.streams.current().filter(|stream| stream.number == number);
                if let Some(stream) = current {
                    if !told {
                        // Also when the runtime that it was made in is gone.
                        self.network.broke(&stream.node, Lane::Renewals);
                    }
                    self.move_on(leader);
                }
                self.streams.drop_old(number);
            }
        }
    }

    fn join(&mut self, core: Arc<Core>) {
        let (session, now) = (core.session, BootMoment::now());
        let known = self.members.contains_key(&session);
        let due = if known { now } else { now.plus(renew_after(core.ttl(), rand::random())) };
        if core.check().is_ok() {
            self.leave(session);
            self.members.insert(session, Member { core, due });
            self.due.insert((due, session));
        }
    }

    fn leave(&mut self, session: SessionId) {
        if let Some(member) = self.members.remove(&session) {
            self.due.remove(&(member.due, session));
        }
    }

    /// The shortest ttl among the members; it paces the search for a node.
    fn shortest(&self) -> Duration {
        let ttls = self.members.values().map(|member| member.core.ttl());
        ttls.min().unwrap_or(Duration::MAX)
    }

    fn set_due(&mut self, session: SessionId, due: BootMoment) {
        if let Some(member) = self.members.get_mut(&session) {
            self.due.remove(&(member.due, session));
            member.due = due;
            self.due.insert((due, session));
        }
    }

    /// Opens, leaves and feeds streams as the time asks for.
    fn turn(&mut self) {
        if self.members.is_empty() {
            self.streams.clear();
            return;
        }
        let now = BootMoment::now();
        if let Some(stream) = self.streams.current()
            && stream.stalls_at().is_some_and(|at| at <= now)
        {
            // Its answers still count, should they come.
            self.network.stalled(&stream.node);
            self.move_on(None);
            self.open_at = now;
        }
        if self.streams.current().is_none() && self.open_at <= now {
            self.open(now);
        }
        self.send_due(now);
    }

    fn open(&mut self, now: BootMoment) {
        let Some(node) = self.network.next(&mut self.walk) else {
            self.walk.again();
            let pause = self.backoff.pause(rand::random()).min(self.shortest() / 6);
            self.open_at = now.plus(pause);
            return;
        };
        let target = self.network.target(&node, Lane::Renewals, self.walk.may_forward());
        self.streams.open(node, target);
    }

    fn send_due(&mut self, now: BootMoment) {
        let Some(stream) = self.streams.current_mut() else { return };
        let mut renewals = Vec::new();
        let mut sent = Vec::new();
        for &(_, session) in self.due.range(..=(now.plus(TOGETHER), SessionId(u64::MAX))) {
            let member = &self.members[&session];
            if let Some(renewal) = member.core.renewal(BootMoment::now()) {
                stream.awaits(session, now, member.core.ttl());
                renewals.push(renewal);
            }
            sent.push((session, now.plus(renew_after(member.core.ttl(), rand::random()))));
        }
        let messages = renewals.chunks(RENEWALS_MAX);
        for renewals in messages.map(<[v1::Renewal]>::to_vec) {
            stream.send(v1::KeepAliveRequest { renewals });
        }
        for (session, due) in sent {
            self.set_due(session, due);
        }
    }

    /// Leaves the current stream for another node: the one that was named, or the
    /// next one. What it has not answered is sent again there.
    fn move_on(&mut self, hint: Option<Address>) {
        let now = BootMoment::now();
        let Some((node, unanswered)) = self.streams.retire() else { return };
        self.network.leads_not(&node);
        self.walk.avoid(node);
        self.open_at = now.plus(SPREAD.min(self.shortest() / 20).mul_f64(rand::random()));
        if let Some(hint) = hint {
            self.network.hinted(&mut self.walk, hint);
            self.open_at = now;
        }
        for session in unanswered {
            self.set_due(session, now);
        }
    }

    fn answer(&mut self, number: u64, answer: v1::RenewalAnswer) {
        let session = SessionId(answer.session);
        let now = BootMoment::now();
        let current = self.streams.answered(number, session, now);
        let Some(member) = self.members.get(&session) else { return };
        match answer.result {
            Some(renewal_answer::Result::Renewed(renewed)) => {
                let ttl = Duration::from_millis(renewed.ttl_ms);
                let changed_at = renewed.changed_at.map(revision).unwrap_or_default();
                member.core.renewed(answer.sequence, ttl, changed_at);
                if current {
                    self.well_answered();
                }
            }
            Some(renewal_answer::Result::Refused(refusal)) => {
                self.refused(session, current, &refusal, now);
            }
            None => self.set_due(session, now.plus(ASK_AGAIN)),
        }
    }

    /// The current stream renews: the search for a node is over.
    fn well_answered(&mut self) {
        if let Some(stream) = self.streams.current() {
            self.network.answered(&stream.node, !stream.forwards());
        }
        self.walk = self.network.walk();
        self.backoff.reset();
        self.streams.drop_all_old();
    }

    fn refused(
        &mut self,
        session: SessionId,
        current: bool,
        refusal: &v1::RenewalRefusal,
        now: BootMoment,
    ) {
        let again = now.plus(ASK_AGAIN.mul_f64(rand::random()));
        match Reason::parse(&refusal.reason) {
            Some(Reason::SessionExpired | Reason::SessionUnknown) => {
                if let Some(member) = self.members.get(&session) {
                    Arc::clone(&member.core).end(Loss::SessionExpired);
                }
                self.leave(session);
            }
            Some(Reason::NotLeader) => {
                self.set_due(session, now);
                if current {
                    self.move_on(Address::parse(&refusal.leader).ok());
                }
            }
            Some(Reason::NoQuorum | Reason::OutcomeUnknown) => {
                self.set_due(session, again);
                if current {
                    self.move_on(None);
                }
            }
            Some(Reason::Overloaded | Reason::Restoring) => {
                self.set_due(session, now.plus(at_least(ASK_AGAIN, rand::random())));
            }
            // Not meant for renewals, or newer than this version: nothing is known.
            Some(
                Reason::NotHeld
                | Reason::Busy
                | Reason::AlreadyHeld
                | Reason::AlreadyWaiting
                | Reason::GrantEnded
                | Reason::Cancelled
                | Reason::StaleRequest
                | Reason::WindowFull
                | Reason::WaitTimeout
                | Reason::QueueFull
                | Reason::LimitReached
                | Reason::CapacityMismatch
                | Reason::Deadlock
                | Reason::Frozen
                | Reason::Compacted
                | Reason::InvalidArgument
                | Reason::PermissionDenied,
            )
            | None => self.set_due(session, now.plus(ASK_AGAIN)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Client;
    use crate::client::core::Opened;
    use crate::locks::{ClusterId, OwnerId};

    #[tokio::test]
    async fn the_shortest_ttl_among_the_members_paces_the_search() {
        let client = Client::connect(["127.0.0.1:9"]).expect("a good endpoint");
        let network = Arc::clone(&client.shared.network);
        let (sender, notes) = mpsc::unbounded_channel();
        let mut keeper = Keeper::new(network, notes, sender.downgrade());
        let mut join = |session, ttl| {
            let opened = Opened {
                owner: OwnerId::new([1; 16]),
                session: SessionId(session),
                cluster: ClusterId::new([2; 16]),
                sent: BootMoment::now(),
                ttl: Duration::from_secs(ttl),
            };
            keeper.join(Arc::new(Core::new(Arc::clone(&client.shared), &opened)));
            keeper.shortest()
        };
        assert_eq!(join(1, 9), Duration::from_secs(9));
        assert_eq!(join(2, 3), Duration::from_secs(3));
        assert_eq!(join(3, 6), Duration::from_secs(3));
        keeper.leave(SessionId(2));
        assert_eq!(keeper.shortest(), Duration::from_secs(6));
    }
}
