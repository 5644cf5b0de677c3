//! A scripted authority: the rules behind any number of nodes, each of which can be
//! told to misbehave.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ringfence::locks::{Mode, SessionId, Timer, Token};
use ringfence::wire::reason::{NO_FORWARD, Reason};
use ringfence::wire::v1;
use tokio::sync::watch;
use tonic::Request;

use crate::table::Table;

/// What a node does with calls of a kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Manner {
    /// Answers.
    #[default]
    Well,
    /// Takes effect; the answer is lost with the connection.
    LosesReply,
    /// Takes effect and never answers.
    SwallowsReply,
    /// Takes effect; if the answer does not come at once the connection breaks.
    BreaksOff,
    /// Never answers and takes no effect.
    Silent,
    /// Refuses at the door.
    Refuses(Reason, Vec<(&'static str, String)>),
}

/// One call as a node saw it.
#[derive(Debug, Clone)]
pub struct Seen {
    pub node: usize,
    pub what: &'static str,
    /// 0 if the call is of no session.
    pub session: u64,
    pub id: u64,
    pub oldest: u64,
    pub answered: Vec<u64>,
    pub no_forward: bool,
    /// The whole message, but for what else its session says of itself.
    pub contents: String,
}

/// The table, and a bell that rings whenever it changes.
#[derive(Clone)]
pub struct Authority {
    table: Arc<Mutex<Table>>,
    pub bell: watch::Sender<()>,
}

pub const CLUSTER: [u8; 16] = [3; 16];
pub const FOR_EVER: usize = usize::MAX;

impl Authority {
    pub fn new() -> Self {
        Self { table: Arc::new(Mutex::new(Table::new())), bell: watch::Sender::new(()) }
    }

    pub fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no test panics while it holds the table")
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut Table) -> T) -> T {
        let done = change(&mut self.table());
        self.bell.send_replace(());
        done
    }

    // What the script does.

    /// The next `times` calls of this kind at this node go so.
    pub fn behave(&self, node: usize, what: &'static str, manner: Manner, times: usize) {
        self.change(|t| t.manners.entry((node, what)).or_default().push_back((manner, times)));
    }

    /// From here on calls of this kind go well again.
    pub fn recover(&self, node: usize, what: &'static str) {
        self.change(|t| t.manners.remove(&(node, what)));
    }

    /// Everything goes well from here on.
    pub fn recover_all(&self) {
        self.change(|t| t.manners.clear());
    }

    pub fn end_session(&self, session: u64) {
        self.change(|t| t.end(session));
    }

    /// An administrator ends the first grant on a resource.
    pub fn revoke(&self, resource: &str) {
        self.change(|t| {
            let token = t.holder(resource).expect("it is held").token;
            t.revoke(resource, token);
        });
    }

    /// An administrator ends what this session holds there.
    pub fn revoke_of(&self, resource: &str, session: u64) {
        self.change(|t| {
            let holders = t.holders(resource);
            let theirs = holders.iter().find(|grant| grant.wait.session.0 == session);
            if let Some(token) = theirs.map(|grant| grant.token) {
                t.revoke(resource, token);
            }
        });
    }

    /// Someone else takes the resource.
    pub fn rival(&self, resource: &str) {
        self.rival_in(resource, Mode::Exclusive);
    }

    /// Someone else takes it in this mode.
    pub fn rival_in(&self, resource: &str, mode: Mode) {
        self.change(|t| t.rival_asks(resource, mode)).expect("it is free");
    }

    pub fn rival_if_free(&self, resource: &str) {
        // What it is refused with is nobody's business.
        let _ = self.change(|t| t.rival_asks(resource, Mode::Exclusive));
    }

    /// The rival lets go.
    pub fn free(&self, resource: &str) {
        self.change(|t| t.rival_frees(resource));
    }

    /// A grant to this session that no request of its client awaits.
    pub fn stray_grant(&self, resource: &str, session: u64) {
        self.change(|t| t.stray(resource, session));
    }

    /// The timers of this kind have run out: waits, barriers or lock delays.
    pub fn run_out(&self, which: impl Fn(&Timer) -> bool) {
        use ringfence::locks::Command;
        self.change(|t| {
            let timers: Vec<Timer> = t.locks.timers().map(|(timer, _)| timer).collect();
            for timer in timers.into_iter().filter(which) {
                let command = match timer {
                    Timer::Wait(wait) => Command::ExpireWaits { waits: vec![wait] },
                    Timer::Barrier(token) => Command::ExpireBarriers { tokens: vec![token] },
                    Timer::Closure(token) => Command::EndClosures { tokens: vec![token] },
                    Timer::Settle => Command::Settle,
                };
                t.apply(&command).expect("timers are never refused");
            }
        });
    }

    /// This node keeps no event of what has happened so far.
    pub fn compact(&self, node: usize) {
        self.change(|t| {
            let index = t.locks.position().index;
            t.compacted.insert(node, index);
        });
    }

    /// This node has lost the others; it ends its watches and takes no other.
    pub fn cut_off(&self, node: usize) {
        self.change(|t| t.cut_off.insert(node));
    }

    /// All watches that are open end.
    pub fn cut_watches(&self) {
        self.change(|t| t.cuts += 1);
    }

    // What the test sees.

    pub fn seen(&self, what: &'static str) -> Vec<Seen> {
        self.table().seen.iter().filter(|seen| seen.what == what).cloned().collect()
    }

    /// The clients' sessions.
    pub fn sessions(&self) -> usize {
        self.table().locks.counts().0 - 1
    }

    pub fn owners(&self) -> usize {
        self.table().owners.len()
    }

    pub fn streams(&self) -> usize {
        self.table().streams
    }

    /// The first holder's token.
    pub fn holder(&self, resource: &str) -> Option<u64> {
        self.table().holder(resource).map(|grant| grant.token.get())
    }

    /// All tokens on a resource.
    pub fn holders(&self, resource: &str) -> Vec<u64> {
        self.table().holders(resource).iter().map(|grant| grant.token.get()).collect()
    }

    pub fn value(&self, token: Token) -> Option<Vec<u8>> {
        self.table().locks.grant(token).map(|grant| grant.value.as_bytes().to_vec())
    }

    pub fn waiting(&self, resource: &str) -> usize {
        self.table().waiting(resource)
    }

    /// What this session holds.
    pub fn held_by(&self, session: u64) -> BTreeMap<String, u64> {
        let table = self.table();
        let grants = table.locks.session(SessionId(session)).into_iter().flat_map(|s| s.grants());
        let named = grants.flat_map(|g| g.names.iter().map(|name| (name.to_string(), g.token)));
        named.map(|(name, token)| (name, token.get())).collect()
    }

    /// How many requests of this session wait.
    pub fn waits_of(&self, session: u64) -> usize {
        self.table().locks.session(SessionId(session)).map_or(0, |s| s.waits().len())
    }

    /// What happened on a resource, in order.
    pub fn events_on(&self, resource: &str) -> Vec<v1::Event> {
        let table = self.table();
        let on = |event: &&v1::Event| event.resources.iter().any(|name| name == resource);
        table.events.iter().filter(on).cloned().collect()
    }

    /// Every request id was used for one request only, always with the same contents.
    pub fn assert_no_id_was_used_twice(&self) {
        let mut sent: BTreeMap<(u64, u64), String> = BTreeMap::new();
        for seen in self.table().seen.iter().filter(|seen| seen.oldest > 0) {
            let contents = format!("{} {}", seen.what, seen.contents);
            let first = sent.entry((seen.session, seen.id)).or_insert_with(|| contents.clone());
            assert_eq!(*first, contents);
            assert!(seen.oldest <= seen.id, "{seen:?}");
            assert!(seen.answered.iter().all(|&id| id > seen.oldest), "{seen:?}");
        }
    }

    // What nodes do with every call.

    /// Notes the call and says how it goes.
    pub fn enter(
        &self,
        node: usize,
        what: &'static str,
        header: Option<&v1::RequestHeader>,
        no_forward: bool,
        contents: String,
    ) -> Manner {
        self.change(|t| {
            let header = header.cloned().unwrap_or_default();
            t.seen.push(Seen {
                node,
                what,
                session: header.session,
                id: header.request_id,
                oldest: header.oldest_outstanding,
                answered: header.answered,
                no_forward,
                contents,
            });
            if what == "keep_alive" {
                t.streams += 1;
            }
            t.next_manner(node, what)
        })
    }

    /// How the next call of this kind at this node goes.
    pub fn next_manner(&self, node: usize, what: &'static str) -> Manner {
        self.table().next_manner(node, what)
    }
}

/// Whether the client asked not to be forwarded.
pub fn no_forward<T>(request: &Request<T>) -> bool {
    request.metadata().contains_key(NO_FORWARD)
}

/// Waits for a condition; the test fails if it does not come within 30 s.
pub async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never came: {what}"));
}
