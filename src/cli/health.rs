//! What is wrong with a cluster and what to do, from what its nodes say. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::wire::v1;

/// A leader that has heard no majority for so long grants nothing.
const QUORUM_AGE_MAX_MS: u64 = 2_000;
/// How far behind the log a node may be without being worth a line.
const LAG_MAX: u64 = 1_000;

/// One node: where it was asked, and what it said.
#[derive(Debug, Clone)]
pub struct Node {
    pub address: String,
    pub answer: Result<v1::StatusResponse, String>,
}

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// What, in half a sentence.
    pub what: String,
    /// What to do about it.
    pub advice: String,
}

fn problem(what: impl Into<String>, advice: impl Into<String>) -> Problem {
    Problem { what: what.into(), advice: advice.into() }
}

/// The nodes' common picture.
#[derive(Debug)]
pub struct Health<'a> {
    nodes: &'a [Node],
    /// The members, as the best informed node knows them.
    members: &'a [v1::Member],
}

impl<'a> Health<'a> {
    /// Of these nodes.
    pub fn of(nodes: &'a [Node]) -> Self {
        let answers = nodes.iter().filter_map(|node| node.answer.as_ref().ok());
        let best = answers.max_by_key(|s| (s.term, s.role == "leader", s.applied));
        Self { nodes, members: best.map_or(&[], |status| &status.members) }
    }

    fn answers(&self) -> impl Iterator<Item = &'a v1::StatusResponse> {
        self.nodes.iter().filter_map(|node| node.answer.as_ref().ok())
    }

    fn has_answered(&self, node: u64) -> bool {
        self.answers().any(|status| status.node_id == node)
    }

    /// Who leads: of several that think so, the one of the highest term.
    pub fn leader(&self) -> Option<&'a v1::StatusResponse> {
        let leading = self.answers().filter(|status| status.role == "leader");
        leading.max_by_key(|status| status.term)
    }

    /// Whether this node votes, as the best informed node knows it.
    pub fn is_voter(&self, node: u64) -> bool {
        self.members.iter().any(|member| member.node_id == node && member.voter)
    }

    /// How many entries a node is behind the longest log.
    pub fn lag(&self, status: &v1::StatusResponse) -> u64 {
        let ends = self.answers().map(|s| s.last_log.max(s.committed).max(s.applied));
        ends.max().unwrap_or(0).saturating_sub(status.applied)
    }

    /// What is wrong, the worst first.
    pub fn problems(&self) -> Vec<Problem> {
        if self.answers().next().is_none() {
            let addresses: Vec<&str> = self.nodes.iter().map(|n| n.address.as_str()).collect();
            let what = format!("no node answers at {}", addresses.join(", "));
            return vec![problem(what, "start the nodes, or name others with --endpoints")];
        }
        let mut problems = vec![];
        problems.extend(self.several_clusters());
        problems.extend(self.different_states());
        problems.extend(self.nobody_leads());
        problems.extend(self.silent_members());
        problems.extend(self.ailing_nodes());
        problems
    }

    fn several_clusters(&self) -> Option<Problem> {
        let ids: BTreeSet<&[u8]> = self.answers().map(|status| &status.cluster_id[..]).collect();
        (ids.iter().filter(|id| !id.is_empty()).count() > 1).then(|| {
            let what = "the nodes belong to different clusters";
            problem(what, "name the nodes of one cluster with --endpoints")
        })
    }

    fn different_states(&self) -> Option<Problem> {
        let mut hashes = BTreeMap::new();
        let told = self.answers().filter(|status| !status.state_hash.is_empty());
        told.filter_map(|status| {
            let at = (&status.cluster_id, status.state_hash_index);
            let first = *hashes.entry(at).or_insert(status);
            (first.state_hash != status.state_hash).then(|| {
                let (a, b, at) = (first.node_id, status.node_id, status.state_hash_index);
                let what = format!("nodes {a} and {b} differ in their state at index {at}");
                problem(what, "stop the one that differs from the majority and replace it")
            })
        })
        .next()
    }

    fn nobody_leads(&self) -> Option<Problem> {
        if let Some(leader) = self.leader() {
            let age = leader.quorum_ack_age_ms;
            return (age > QUORUM_AGE_MAX_MS).then(|| {
                let node = leader.node_id;
                let what = format!("leader {node} has not heard a majority for {age} ms");
                problem(what, "nothing is granted till then: check the network between the nodes")
            });
        }
        let voters: Vec<&v1::Member> = self.members.iter().filter(|m| m.voter).collect();
        if voters.is_empty() {
            let what = "the cluster has not been formed";
            return Some(problem(what, "start all nodes of --members; the first start needs them"));
        }
        let (up, down): (Vec<&v1::Member>, Vec<&v1::Member>) =
            voters.iter().partition(|member| self.has_answered(member.node_id));
        let (up, needed, all) = (up.len(), voters.len() / 2 + 1, voters.len());
        Some(if up < needed {
            let what = format!("no majority: {up} of {all} voters answer, {needed} are needed");
            problem(what, format!("nothing is granted till then: start {}", named(&down)))
        } else {
            let advice = "an election takes a second or two: look again; then check the network";
            problem(format!("no leader, though {up} of {all} voters answer"), advice)
        })
    }

    fn silent_members(&self) -> Option<Problem> {
        let silent: Vec<&v1::Member> =
            self.members.iter().filter(|member| !self.has_answered(member.node_id)).collect();
        if silent.is_empty() || self.leader().is_none() {
            return None;
        }
        let voters = self.members.iter().filter(|member| member.voter);
        let (all, up) = voters.fold((0, 0), |(all, up), member| {
            (all + 1, up + usize::from(self.has_answered(member.node_id)))
        });
        let spare = up - (all / 2 + 1).min(up);
        let answer = if silent.len() == 1 { "does not answer" } else { "do not answer" };
        let what = format!("{} {answer}", named(&silent));
        let advice = format!("start or reach it: {spare} more may fail before nothing is granted");
        Some(problem(what, advice))
    }

    fn ailing_nodes(&self) -> impl Iterator<Item = Problem> {
        self.answers().filter_map(|status| {
            let (node, lag) = (status.node_id, self.lag(status));
            match status.role.as_str() {
                "stopped" => {
                    let what = format!("node {node} has stopped taking part");
                    Some(problem(what, "see its log, and restart it"))
                }
                "starting" => {
                    let what = format!("node {node} is starting");
                    Some(problem(what, "look again when it has loaded its state"))
                }
                _ if lag > LAG_MAX => {
                    let what = format!("node {node} is {lag} entries behind");
                    Some(problem(what, "it is catching up: look again; then check its disk"))
                }
                _ => None,
            }
        })
    }
}

/// `node 2 (10.0.0.2:7411) and node 3 (10.0.0.3:7411)`.
fn named(members: &[&v1::Member]) -> String {
    let names = members.iter().map(|m| format!("node {} ({})", m.node_id, m.address));
    names.collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(node_id: u64) -> v1::Member {
        let address = format!("h{node_id}:7411");
        v1::Member { node_id, address, voter: true, ..v1::Member::default() }
    }

    fn node(node_id: u64, role: &str) -> Node {
        let status = v1::StatusResponse {
            cluster_id: vec![3; 16].into(),
            node_id,
            role: role.to_owned(),
            term: 7,
            last_log: 5_000,
            applied: 5_000,
            members: vec![member(1), member(2), member(3)],
            ..v1::StatusResponse::default()
        };
        Node { address: format!("h{node_id}:7411"), answer: Ok(status) }
    }

    fn silent(node_id: u64) -> Node {
        Node { address: format!("h{node_id}:7411"), answer: Err("refused".to_owned()) }
    }

    fn told(nodes: &[Node]) -> Vec<String> {
        let told = |p: Problem| format!("{}: {}", p.what, p.advice);
        Health::of(nodes).problems().into_iter().map(told).collect()
    }

    #[test]
    fn a_cluster_that_is_well_has_no_problem() {
        assert_eq!(told(&[node(1, "leader"), node(2, "follower"), node(3, "follower")]), [""; 0]);
    }

    #[test]
    fn a_node_that_is_down_is_named_with_what_the_cluster_still_stands() {
        let told = told(&[node(1, "leader"), node(2, "follower"), silent(3)]);
        let want = "node 3 (h3:7411) does not answer: start or reach it: 0 more may fail before \
                    nothing is granted";
        assert_eq!(told, [want]);
    }

    #[test]
    fn without_a_majority_the_missing_voters_are_to_be_started() {
        let want = "no majority: 1 of 3 voters answer, 2 are needed: nothing is granted till \
                    then: start node 2 (h2:7411) and node 3 (h3:7411)";
        assert_eq!(told(&[node(1, "candidate"), silent(2), silent(3)]), [want]);
    }

    #[test]
    fn no_leader_among_a_majority_is_an_election() {
        let told = told(&[node(1, "candidate"), node(2, "follower"), silent(3)]);
        assert!(told[0].starts_with("no leader, though 2 of 3 voters answer"), "{told:?}");
    }

    #[test]
    fn nobody_at_all_says_where_was_asked() {
        let told = told(&[silent(1), silent(2)]);
        assert!(told[0].starts_with("no node answers at h1:7411, h2:7411"), "{told:?}");
    }

    #[test]
    fn a_leader_that_is_cut_off_a_foreign_node_and_another_state_are_told() {
        let change = |number, role, change: fn(&mut v1::StatusResponse)| {
            let mut node = node(number, role);
            node.answer.as_mut().map(change).expect("it answers");
            node
        };
        let fine = || node(2, "follower");
        let alone = change(1, "leader", |status| status.quorum_ack_age_ms = 3_200);
        assert!(told(&[alone, fine(), node(3, "follower")])[0].contains("3200 ms"));
        let foreign = change(3, "follower", |status| status.cluster_id = vec![4; 16].into());
        assert!(told(&[node(1, "leader"), fine(), foreign])[0].contains("different clusters"));
        let hashed = |n, role, hash: u8| {
            let mut node = node(n, role);
            if let Ok(status) = &mut node.answer {
                (status.state_hash, status.state_hash_index) = (vec![hash; 16].into(), 9);
            }
            node
        };
        let told =
            told(&[hashed(1, "leader", 1), hashed(2, "follower", 1), hashed(3, "learner", 2)]);
        assert!(told[0].starts_with("nodes 1 and 3 differ in their state at index 9"), "{told:?}");
    }

    #[test]
    fn a_node_far_behind_is_told_and_one_a_little_behind_is_not() {
        let behind = |applied| {
            let mut node = node(2, "follower");
            if let Ok(status) = &mut node.answer {
                status.applied = applied;
            }
            [self::node(1, "leader"), node, self::node(3, "follower")]
        };
        assert_eq!(told(&behind(4_000)), [""; 0]);
        assert!(told(&behind(3_999))[0].starts_with("node 2 is 1001 entries behind"));
    }
}
