//! A node's settings: defaults, then a TOML file, then what the caller sets. Every
//! error names the setting and its bound.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use crate::api::ADMITTED_MAX;
use crate::feed::{FeedLimits, WATCHERS_MAX};
use crate::locks::{Limits, Millis, Token};
use crate::raft::Timing;

/// Where a node listens if nothing is said.
pub const LISTEN_DEFAULT: &str = "127.0.0.1:7411";

/// Settings as they are written: in a file, in the environment, as flags. What is
/// unset falls back to the layer below.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Layer {
    /// This node's number: 1 or more, never given to another node.
    pub node_id: Option<u64>,
    /// Address to listen at, for clients and peers.
    pub listen: Option<String>,
    /// Address that others reach this node at; default: its entry in `members`.
    pub advertise: Option<String>,
    /// All members of the cluster, the same on every node.
    pub members: Option<BTreeMap<String, String>>,
    /// The data folder.
    pub data: Option<PathBuf>,
    /// How often the leader is heard: 10 ms to 10 s.
    pub heartbeat_ms: Option<u64>,
    /// How long a leader may be silent before an election: `election_ms` to twice it.
    pub election_ms: Option<u64>,
    /// Shortest session ttl.
    pub ttl_min_ms: Option<u64>,
    /// Longest session ttl.
    pub ttl_max_ms: Option<u64>,
    /// A new authority issues only tokens above it.
    pub token_floor: Option<u64>,
    /// How many requests may be under way on this node.
    pub admitted_max: Option<usize>,
    /// How many of the last events this node keeps for watches.
    pub events_max: Option<usize>,
    /// How many bytes of them, about.
    pub events_bytes_max: Option<usize>,
    /// How many may watch on this node.
    pub watchers_max: Option<usize>,
}

/// Settings that fit together.
#[derive(Debug, Clone)]
pub struct NodeConfig {
    /// This node's number.
    pub node_id: u64,
    /// Address to listen at.
    pub listen: String,
    /// All members, this node included: number to address.
    pub members: BTreeMap<u64, String>,
    /// The data folder.
    pub data: PathBuf,
    /// Times of the consensus.
    pub timing: Timing,
    /// What a new authority is bootstrapped with.
    pub limits: Limits,
    /// A new authority issues only tokens above it; 0 for none.
    pub token_floor: u64,
    /// How many requests may be under way on this node; beyond, `OVERLOADED`.
    pub admitted_max: usize,
    /// How much of what happened is kept for watches; beyond, the oldest goes.
    pub feed: FeedLimits,
    /// How many may watch on this node; beyond, `LIMIT_REACHED`.
    pub watchers_max: usize,
}

/// A setting that cannot be.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file could not be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value of another type.
    #[error("configuration file {}: {source}", path.display())]
    Malformed {
        /// Which.
        path: PathBuf,
        /// Where and why.
        source: Box<toml::de::Error>,
    },
    /// A setting is missing.
    #[error("{0} is not set: give it as a flag, in the environment or in the configuration file")]
    Missing(&'static str),
    /// A setting is out of its bounds.
    #[error("{field} must be {bound}, not {found}")]
    OutOfBounds {
        /// Which.
        field: &'static str,
        /// What would do.
        bound: String,
        /// What is set.
        found: String,
    },
}

impl Layer {
    /// Reads a TOML file. Unknown keys are refused: a misspelt setting is not silently
    /// the default.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        toml::from_str(&text).map_err(|source| ConfigError::Malformed {
            path: path.to_owned(),
            source: Box::new(source),
        })
    }

    /// These settings, and those of `below` where nothing is set here.
    #[must_use]
    pub fn over(self, below: Self) -> Self {
        Self {
            node_id: self.node_id.or(below.node_id),
            listen: self.listen.or(below.listen),
            advertise: self.advertise.or(below.advertise),
            members: self.members.or(below.members),
            data: self.data.or(below.data),
            heartbeat_ms: self.heartbeat_ms.or(below.heartbeat_ms),
            election_ms: self.election_ms.or(below.election_ms),
            ttl_min_ms: self.ttl_min_ms.or(below.ttl_min_ms),
            ttl_max_ms: self.ttl_max_ms.or(below.ttl_max_ms),
            token_floor: self.token_floor.or(below.token_floor),
            admitted_max: self.admitted_max.or(below.admitted_max),
            events_max: self.events_max.or(below.events_max),
            events_bytes_max: self.events_bytes_max.or(below.events_bytes_max),
            watchers_max: self.watchers_max.or(below.watchers_max),
        }
    }

    /// Fills in the defaults and checks that all fits together.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn resolve(self) -> Result<NodeConfig, ConfigError> {
        let timing = self.timing()?;
        let limits = self.limits()?;
        let feed = self.feed()?;
        let node_id = self.node_id.ok_or(ConfigError::Missing("node-id"))?;
        if node_id == 0 {
            return Err(out_of_bounds("node-id", "1 or more", &node_id));
        }
        let token_floor = self.token_floor.unwrap_or(0);
        if token_floor >= Token::MAX {
            return Err(out_of_bounds("token-floor", "0 to 2^53 - 2", &token_floor));
        }
        let admitted_max = up_to_a_million("admitted-max", self.admitted_max, ADMITTED_MAX)?;
        let watchers_max = up_to_a_million("watchers-max", self.watchers_max, WATCHERS_MAX)?;
        let listen = self.listen.unwrap_or_else(|| LISTEN_DEFAULT.to_owned());
        let mut members = members_in(self.members.unwrap_or_default())?;
        if let Some(advertise) = self.advertise {
            members.insert(node_id, advertise);
        }
        if members.is_empty() {
            members.insert(node_id, listen.clone());
        }
        if !members.contains_key(&node_id) {
            let bound = format!("a list that names this node, {node_id}");
            let listed = members.keys().map(u64::to_string).collect::<Vec<_>>().join(", ");
            return Err(out_of_bounds("members", &bound, &listed));
        }
        let data = self.data.ok_or(ConfigError::Missing("data"))?;
        Ok(NodeConfig {
            node_id,
            listen,
            members,
            data,
            timing,
            limits,
            token_floor,
            admitted_max,
            feed,
            watchers_max,
        })
    }

    fn feed(&self) -> Result<FeedLimits, ConfigError> {
        let default = FeedLimits::default();
        let events = self.events_max.unwrap_or(default.events);
        if !(1..=10_000_000).contains(&events) {
            return Err(out_of_bounds("events-max", "1 to 10000000", &events));
        }
        let bytes = self.events_bytes_max.unwrap_or(default.bytes);
        if !(1_024..=4_294_967_296).contains(&bytes) {
            return Err(out_of_bounds("events-bytes-max", "1024 to 4294967296", &bytes));
        }
        Ok(FeedLimits { events, bytes })
    }

    fn timing(&self) -> Result<Timing, ConfigError> {
        let default = Timing::default();
        let heartbeat = self.heartbeat_ms.map_or(default.heartbeat, Duration::from_millis);
        let election = self.election_ms.map_or(default.election_min, Duration::from_millis);
        let bounds = Duration::from_millis(10)..=Duration::from_secs(10);
        if !bounds.contains(&heartbeat) {
            return Err(out_of_bounds("heartbeat-ms", "10 to 10000", &heartbeat.as_millis()));
        }
        if election < heartbeat * 3 || election > Duration::from_secs(60) {
            let bound = format!("three heartbeats ({}) to 60000", (heartbeat * 3).as_millis());
            return Err(out_of_bounds("election-ms", &bound, &election.as_millis()));
        }
        Ok(Timing { heartbeat, election_min: election, election_max: election * 2, ..default })
    }

    fn limits(&self) -> Result<Limits, ConfigError> {
        let default = Limits::default();
        let ttl_min = self.ttl_min_ms.map_or(default.ttl_min, Millis);
        let ttl_max = self.ttl_max_ms.map_or(default.ttl_max, Millis);
        if ttl_min.0 < 100 {
            return Err(out_of_bounds("ttl-min-ms", "100 or more", &ttl_min.0));
        }
        if ttl_max < ttl_min {
            let bound = format!("ttl-min-ms ({}) or more", ttl_min.0);
            return Err(out_of_bounds("ttl-max-ms", &bound, &ttl_max.0));
        }
        Ok(Limits { ttl_min, ttl_max, ..default })
    }
}

/// Reads `1=host:port,2=host:port`.
///
/// # Errors
/// `members` in another form.
pub fn parse_members(text: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let pairs = text.split(',').map(|pair| {
        let (id, address) = pair.split_once('=')?;
        Some((id.trim().to_owned(), address.trim().to_owned()))
    });
    let bound = "a list like 1=host:port,2=host:port,3=host:port";
    pairs.collect::<Option<_>>().ok_or_else(|| out_of_bounds("members", bound, &text))
}

fn members_in(listed: BTreeMap<String, String>) -> Result<BTreeMap<u64, String>, ConfigError> {
    let mut members = BTreeMap::new();
    for (id, address) in listed {
        let number = id.parse::<u64>().ok().filter(|n| *n > 0);
        let bound = "numbers from 1, each with host:port";
        let number = number.ok_or_else(|| out_of_bounds("members", bound, &id))?;
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
        if port.is_none_or(|port| port == 0) {
            return Err(out_of_bounds("members", bound, &address));
        }
        if members.values().any(|other| *other == address) {
            return Err(out_of_bounds("members", "addresses that differ", &address));
        }
        members.insert(number, address);
    }
    Ok(members)
}

fn up_to_a_million(
    field: &'static str,
    set: Option<usize>,
    default: usize,
) -> Result<usize, ConfigError> {
    let number = set.unwrap_or(default);
    if !(1..=1_000_000).contains(&number) {
        return Err(out_of_bounds(field, "1 to 1000000", &number));
    }
    Ok(number)
}

fn out_of_bounds(field: &'static str, bound: &str, found: &impl std::fmt::Display) -> ConfigError {
    ConfigError::OutOfBounds { field, bound: bound.to_owned(), found: found.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(toml: &str) -> String {
        let layer = toml::from_str::<Layer>(toml);
        match layer.map(Layer::resolve) {
            Ok(Ok(_)) => "accepted".into(),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn an_unknown_key_is_refused_by_name() {
        assert!(told("node_id = 1").contains("unknown field `node_id`"));
    }

    #[test]
    fn each_bound_names_its_setting() {
        let base = "node-id = 1\ndata = '/tmp/x'\n";
        assert_eq!(told(base), "accepted");
        assert!(told("data = '/tmp/x'").starts_with("node-id is not set"));
        assert!(told("node-id = 1").starts_with("data is not set"));
        let with = |line: &str| told(&format!("{base}{line}"));
        assert!(with("heartbeat-ms = 5").starts_with("heartbeat-ms must be 10 to 10000"));
        assert!(
            with("election-ms = 200").starts_with("election-ms must be three heartbeats (300)")
        );
        assert!(with("ttl-min-ms = 20").starts_with("ttl-min-ms must be 100 or more"));
        assert!(with("ttl-max-ms = 400").starts_with("ttl-max-ms must be ttl-min-ms (500)"));
        assert!(with("members = { 2 = 'a:1' }").contains("names this node, 1, not 2"));
        assert!(with("members = { 1 = 'a' }").starts_with("members must be numbers from 1"));
        assert!(with("members = { 1 = 'a:1', 2 = 'a:1' }").contains("addresses that differ"));
        assert!(with("token-floor = 9007199254740991").starts_with("token-floor must be"));
        assert!(with("admitted-max = 0").starts_with("admitted-max must be 1 to 1000000"));
        assert!(with("watchers-max = 0").starts_with("watchers-max must be 1 to 1000000"));
        assert!(with("events-max = 0").starts_with("events-max must be 1 to 10000000"));
        assert!(with("events-bytes-max = 9").starts_with("events-bytes-max must be 1024"));
    }

    #[test]
    fn a_layer_above_wins() {
        let above = Layer { node_id: Some(2), ..Layer::default() };
        let below = Layer { node_id: Some(1), heartbeat_ms: Some(50), ..Layer::default() };
        let merged = above.over(below);
        assert_eq!((merged.node_id, merged.heartbeat_ms), (Some(2), Some(50)));
    }

    #[test]
    fn members_are_read_from_one_line() {
        let read = parse_members("1=a:1, 2=b:2").expect("well-formed");
        assert_eq!(read.get("2").map(String::as_str), Some("b:2"));
        assert!(parse_members("1:a").is_err());
    }
}
