//! Which node to ask next. Pure.

use std::fmt;
use std::sync::Arc;

use http::uri::Authority;

use crate::locks::Invalid;

/// How many nodes are remembered.
pub(super) const NODES_MAX: usize = 64;

/// Where a node is reached: `host:port`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(Arc<str>);

impl Address {
    /// Reads `host:port` or `http://host:port`.
    ///
    /// # Errors
    /// `endpoint` of another form.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refused = Invalid { field: "endpoint", bound: "host:port or http://host:port" };
        let text = text.trim();
        let text = text.strip_prefix("http://").unwrap_or(text);
        let text = text.strip_suffix('/').unwrap_or(text);
        let authority: Authority = text.parse().map_err(|_| refused.clone())?;
        let port = authority.port_u16().unwrap_or(0);
        if port == 0 || authority.host().is_empty() || text.contains('@') {
            return Err(refused);
        }
        Ok(Self(text.into()))
    }

    /// `host:port`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The nodes that are known, and which one is thought to lead.
#[derive(Debug)]
pub(super) struct Directory {
    nodes: Vec<Address>,
    /// How many of them the application named; they are never forgotten.
    named: usize,
    leader: Option<Address>,
}

impl Directory {
    /// The nodes that the application named.
    pub fn new(named: Vec<Address>) -> Self {
        Self { named: named.len(), nodes: named, leader: None }
    }

    /// All that are known.
    pub fn nodes(&self) -> &[Address] {
        &self.nodes
    }

    /// This node leads: it said so, or another one did.
    pub fn leads(&mut self, node: &Address) {
        if !self.nodes.contains(node) {
            if self.nodes.len() >= NODES_MAX.max(self.named + 1) {
                self.nodes.remove(self.named);
            }
            self.nodes.push(node.clone());
        }
        self.leader = Some(node.clone());
    }

    /// This node does not lead, or cannot be reached.
    pub fn leads_not(&mut self, node: &Address) {
        if self.leader.as_ref() == Some(node) {
            self.leader = None;
        }
    }
}

/// The way of one call through the nodes. Each is asked at most once a round, so
/// that hints that point at each other end.
#[derive(Debug, Default)]
pub(super) struct Walk {
    visited: Vec<Address>,
    hint: Option<Address>,
    rounds: u32,
    /// Where the round begins when nobody is thought to lead.
    start: usize,
}

impl Walk {
    /// `start` spreads the clients over the nodes.
    pub fn new(start: usize) -> Self {
        Self { start, ..Self::default() }
    }

    /// Where to go now; `None` when all were asked in this round.
    pub fn next(&mut self, directory: &Directory) -> Option<Address> {
        let nodes = directory.nodes();
        let around = (0..nodes.len()).map(|i| &nodes[self.start.wrapping_add(i) % nodes.len()]);
        let order = self.hint.iter().chain(directory.leader.iter()).chain(around);
        let next = order.into_iter().find(|node| !self.visited.contains(node)).cloned();
        self.hint = None;
        self.visited.extend(next.clone());
        next
    }

    /// The node that was asked last names this one.
    pub fn hint(&mut self, node: Address) {
        self.hint = Some(node);
    }

    /// Ask the node that was asked last once more.
    pub fn stay(&mut self) {
        self.hint = self.visited.pop();
    }

    /// This node was of no use: it is not asked in this round.
    pub fn avoid(&mut self, node: Address) {
        if !self.visited.contains(&node) {
            self.visited.push(node);
        }
    }

    /// Begins another round.
    pub fn again(&mut self) {
        self.visited.clear();
        self.rounds = self.rounds.saturating_add(1);
        self.start = self.start.wrapping_add(1);
    }

    /// How often all nodes were asked in vain.
    pub fn rounds(&self) -> u32 {
        self.rounds
    }

    /// In the first round nodes are asked not to forward, so that the client
    /// learns who leads; from then on any way through is welcome.
    pub fn may_forward(&self) -> bool {
        self.rounds > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Address {
        Address::parse(&format!("{name}:1")).expect("a good address")
    }

    fn abc() -> Directory {
        Directory::new(vec![node("a"), node("b"), node("c")])
    }

    #[test]
    fn addresses_are_host_and_port_with_or_without_scheme() {
        for good in ["127.0.0.1:7301", "http://localhost:7301/", " [::1]:7301 "] {
            assert!(Address::parse(good).is_ok(), "{good}");
        }
        let bad = ["", "host", "host:", ":1", "host:0", "host:70000", "https://h:1", "h/x:1"];
        for bad in bad {
            assert_eq!(Address::parse(bad).map_err(|e| e.field), Err("endpoint"), "{bad}");
        }
    }

    #[test]
    fn the_leader_is_asked_first_and_then_every_other_node_once() {
        let mut directory = abc();
        directory.leads(&node("c"));
        let mut walk = Walk::new(1);
        let order: Vec<_> = std::iter::from_fn(|| walk.next(&directory)).collect();
        assert_eq!(order, [node("c"), node("b"), node("a")]);
        walk.again();
        assert!(walk.may_forward());
        assert_eq!(walk.next(&directory), Some(node("c")));
    }

    #[test]
    fn hints_are_followed_and_a_loop_of_hints_ends() {
        let directory = abc();
        let mut walk = Walk::new(0);
        assert_eq!(walk.next(&directory), Some(node("a")));
        walk.hint(node("c"));
        assert_eq!(walk.next(&directory), Some(node("c")));
        walk.hint(node("a"));
        assert_eq!(walk.next(&directory), Some(node("b")));
        walk.hint(node("c"));
        assert_eq!(walk.next(&directory), None);
    }

    #[test]
    fn a_node_that_is_only_overloaded_is_asked_again() {
        let directory = abc();
        let mut walk = Walk::new(0);
        assert_eq!(walk.next(&directory), Some(node("a")));
        walk.stay();
        assert_eq!(walk.next(&directory), Some(node("a")));
        assert_eq!(walk.next(&directory), Some(node("b")));
    }

    #[test]
    fn a_node_that_a_hint_named_is_remembered_within_bounds() {
        let mut directory = abc();
        for i in 0..NODES_MAX {
            directory.leads(&node(&format!("n{i}")));
        }
        assert_eq!(directory.nodes().len(), NODES_MAX);
        assert_eq!(directory.nodes()[..3], [node("a"), node("b"), node("c")]);
        directory.leads_not(&node("n63"));
        assert_eq!(Walk::new(0).next(&directory), Some(node("a")));
    }
}
