//! `ringfence status`.

use std::collections::BTreeSet;

use serde::Serialize;

use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::health::{Health, Node, Problem};
use super::output::{self, Format, NONE};
use super::view;
use crate::client::{Address, Client};
use crate::wire::v1;

/// Show every node, and say what is wrong and what to do
///
/// Asks the nodes of --endpoints and the members they name, each for itself: it needs
/// no leader and no majority. LAG is how many log entries a node has yet to apply.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence status
  ringfence status -o json | jq '.leader'
  until ringfence status >/dev/null 2>&1; do sleep 1; done      wait until all is well

EXIT CODES
   0  all nodes answer and all is well
   1  something is wrong: the last lines say what, and what to do
  69  no node answers")]
pub struct Args {}

#[derive(Debug, Serialize)]
struct Answer<'a> {
    healthy: bool,
    cluster_id: String,
    leader: Option<Leader<'a>>,
    /// Highest token issued so far, as the best informed node knows it.
    token: u64,
    sessions: u64,
    grants: u64,
    waits: u64,
    problems: &'a [Problem],
    nodes: Vec<Row<'a>>,
}

#[derive(Debug, Serialize)]
struct Leader<'a> {
    node_id: u64,
    address: &'a str,
    term: u64,
    quorum_ack_age_ms: u64,
}

#[derive(Debug, Default, Serialize)]
struct Row<'a> {
    address: &'a str,
    reachable: bool,
    /// Why it is not reachable.
    error: Option<&'a str>,
    node_id: u64,
    role: &'a str,
    voter: bool,
    version: &'a str,
    term: u64,
    leader_id: u64,
    committed: u64,
    applied: u64,
    last_log: u64,
    lag: u64,
    purged: u64,
    state_hash: String,
    state_hash_index: u64,
}

/// Asks all nodes and prints.
///
/// # Errors
/// [`Exit::Usage`] for an endpoint that is none.
pub async fn run(to: &Connection, format: Format, _args: Args) -> Result<Exit, Failure> {
    let client = to.client()?;
    let nodes = ask(&client).await;
    let health = Health::of(&nodes);
    let problems = health.problems();
    let answer = answer(&nodes, &health, &problems);
    match format {
        Format::Json => output::json(&answer)?,
        Format::Table => output::text(&table(&answer))?,
    }
    Ok(match (nodes.iter().any(|node| node.answer.is_ok()), problems.is_empty()) {
        (false, _) => Exit::Unreachable,
        (true, false) => Exit::No,
        (true, true) => Exit::Done,
    })
}

/// Asks the nodes that were named, and then the members they name.
async fn ask(client: &Client) -> Vec<Node> {
    let mut nodes: Vec<Node> = client.status().await.into_iter().map(node).collect();
    let answers = || nodes.iter().filter_map(|node| node.answer.as_ref().ok());
    let answered: BTreeSet<u64> = answers().map(|status| status.node_id).collect();
    let members = answers().flat_map(|status| &status.members);
    let others: BTreeSet<Address> = members
        .filter(|member| !answered.contains(&member.node_id))
        .filter_map(|member| Address::parse(&member.address).ok())
        .filter(|address| nodes.iter().all(|node| node.address != address.as_str()))
        .collect();
    let asked = others.into_iter().map(|address| async move {
        let answer = client.status_of(&address).await;
        node((address, answer))
    });
    nodes.extend(futures::future::join_all(asked).await);
    nodes.sort_by_key(|node| {
        (node.answer.as_ref().map_or(u64::MAX, |s| s.node_id), node.address.clone())
    });
    nodes
}

fn node(
    (address, answer): (Address, Result<v1::StatusResponse, crate::client::ClientError>),
) -> Node {
    let answer = answer.map_err(|error| error.to_string());
    Node { address: address.to_string(), answer }
}

fn answer<'a>(nodes: &'a [Node], health: &Health<'a>, problems: &'a [Problem]) -> Answer<'a> {
    let answers = || nodes.iter().filter_map(|node| node.answer.as_ref().ok());
    let leader = health.leader();
    let best = leader.or_else(|| answers().max_by_key(|status| status.applied));
    let address = |id| {
        let is_it = |node: &&Node| node.answer.as_ref().is_ok_and(|status| status.node_id == id);
        nodes.iter().find(is_it).map_or("", |node| node.address.as_str())
    };
    Answer {
        healthy: problems.is_empty(),
        cluster_id: best.map(|status| view::cluster(&status.cluster_id)).unwrap_or_default(),
        leader: leader.map(|status| Leader {
            node_id: status.node_id,
            address: address(status.node_id),
            term: status.term,
            quorum_ack_age_ms: status.quorum_ack_age_ms,
        }),
        token: best.map_or(0, |status| status.token),
        sessions: best.map_or(0, |status| status.sessions),
        grants: best.map_or(0, |status| status.grants),
        waits: best.map_or(0, |status| status.waits),
        problems,
        nodes: nodes.iter().map(|node| row(node, health)).collect(),
    }
}

fn row<'a>(node: &'a Node, health: &Health<'a>) -> Row<'a> {
    let address = node.address.as_str();
    let status = match &node.answer {
        Ok(status) => status,
        Err(error) => return Row { address, error: Some(error), ..Row::default() },
    };
    Row {
        address,
        reachable: true,
        error: None,
        node_id: status.node_id,
        role: &status.role,
        voter: health.is_voter(status.node_id),
        version: &status.version,
        term: status.term,
        leader_id: status.leader_id,
        committed: status.committed,
        applied: status.applied,
        last_log: status.last_log,
        lag: health.lag(status),
        purged: status.purged,
        state_hash: status.state_hash.iter().map(|byte| format!("{byte:02x}")).collect(),
        state_hash_index: status.state_hash_index,
    }
}

fn table(answer: &Answer<'_>) -> String {
    let rows = answer.nodes.iter().map(|node| {
        let or_none = |n: u64| if n == 0 { NONE.to_owned() } else { n.to_string() };
        if !node.reachable {
            let mut row = vec![NONE.to_owned(), node.address.to_owned(), "no answer".to_owned()];
            row.extend(std::iter::repeat_n(NONE.to_owned(), 6));
            return row;
        }
        vec![
            or_none(node.node_id),
            node.address.to_owned(),
            node.role.to_owned(),
            (if node.voter { "yes" } else { "no" }).to_owned(),
            or_none(node.term),
            or_none(node.leader_id),
            node.applied.to_string(),
            node.lag.to_string(),
            node.version.to_owned(),
        ]
    });
    let header =
        ["NODE", "ADDRESS", "ROLE", "VOTER", "TERM", "LEADER", "APPLIED", "LAG", "VERSION"];
    let mut text = output::table(&header, rows);
    if !answer.cluster_id.is_empty() {
        text += &format!(
            "cluster {}: {} sessions, {} grants, {} waits, highest token {}\n",
            answer.cluster_id, answer.sessions, answer.grants, answer.waits, answer.token
        );
    }
    if answer.healthy {
        text += "all is well\n";
    }
    for problem in answer.problems {
        text += &format!("problem: {} -> {}\n", output::shown(&problem.what), problem.advice);
    }
    text
}
