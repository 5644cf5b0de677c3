//! The connections to the nodes. A server lets only so many calls be open on one
//! connection, and acquires stay open while they wait: they have connections of
//! their own, so that they hold up neither each other nor anything else.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};

use super::network::lock;
use super::route::Address;

/// Waits on one connection: half of what servers commonly allow.
const WAITS_MAX: usize = 100;
/// How often an open connection is probed, and how long it may not answer.
const PING_EVERY: Duration = Duration::from_secs(1);
const PING_PATIENCE: Duration = Duration::from_secs(2);

/// What a connection is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lane {
    /// The keep-alive.
    Renewals,
    /// Calls that are answered at once.
    Calls,
    /// Calls that wait; the number tells the connections apart.
    Waits(usize),
}

/// All connections, made when they are first used and again when they broke.
#[derive(Debug, Default)]
pub(super) struct Lanes {
    channels: Mutex<BTreeMap<(Address, Lane), Channel>>,
    waits: Mutex<BTreeSet<usize>>,
}

/// A place on one of the connections for waits.
#[derive(Debug)]
pub(super) struct Place<'a> {
    waits: &'a Mutex<BTreeSet<usize>>,
    number: usize,
}

impl Place<'_> {
    pub fn lane(&self) -> Lane {
        Lane::Waits(self.number / WAITS_MAX)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        lock(self.waits).remove(&self.number);
    }
}

impl Lanes {
    /// The first place that is free.
    pub fn place(&self) -> Place<'_> {
        let mut waits = lock(&self.waits);
        let taken = waits.iter().zip(0..).take_while(|&(&place, i)| place == i).count();
        waits.insert(taken);
        Place { waits: &self.waits, number: taken }
    }

    /// The connection to this node.
    pub fn channel(&self, node: &Address, lane: Lane, within: Duration) -> Channel {
        let connect = || {
            Endpoint::from_shared(format!("http://{node}"))
                .expect("an address was checked to be host and port")
                .connect_timeout(within)
                .tcp_nodelay(true)
                .http2_keep_alive_interval(PING_EVERY)
                .keep_alive_timeout(PING_PATIENCE)
                .connect_lazy()
        };
        lock(&self.channels).entry((node.clone(), lane)).or_insert_with(connect).clone()
    }

    /// The connection broke: the next attempt takes another.
    pub fn broke(&self, node: &Address, lane: Lane) {
        lock(&self.channels).remove(&(node.clone(), lane));
    }

    /// The node is silent: every next attempt takes another connection.
    pub fn stalled(&self, node: &Address) {
        lock(&self.channels).retain(|(at, _), _| at != node);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_fill_one_connection_after_the_other_and_leave_their_place() {
        let lanes = Lanes::default();
        let mut places: Vec<Place<'_>> = (0..250).map(|_| lanes.place()).collect();
        let count = |n| places.iter().filter(|place| place.lane() == Lane::Waits(n)).count();
        assert_eq!((count(0), count(1), count(2)), (100, 100, 50));
        drop(places.remove(42));
        assert_eq!(lanes.place().number, 42);
    }
}
