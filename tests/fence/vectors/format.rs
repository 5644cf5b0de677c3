//! The format of docs/fence-vectors.json.

use ringfence::fence::{Fence, FenceError};
use ringfence::locks::{ClusterId, Invalid, ResourceName, Token};
use serde::Deserialize;

use super::Client;
use crate::stories::AUTHORITY;

/// The whole file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vectors {
    format: u32,
    #[serde(rename = "spec")]
    _spec: String,
    cluster: String,
    pub cases: Vec<Case>,
    pub concurrent: Vec<Concurrent>,
    pub crash: Vec<Crash>,
}

impl Vectors {
    /// Reads the file of this repository.
    pub fn read() -> Self {
        let text = include_str!("../../../docs/fence-vectors.json");
        let vectors: Self = serde_json::from_str(text).expect("the file is in its format");
        assert_eq!((vectors.format, &*vectors.cluster), (1, &*AUTHORITY.to_string()));
        assert!(vectors.cases.len() > 20 && vectors.concurrent.len() > 2);
        vectors
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    #[serde(rename = "why")]
    _why: String,
    pub steps: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    Write,
    Raise,
    ReadMark,
    Adopt,
}

#[derive(Debug, Deserialize)]
pub struct Step {
    pub op: Op,
    #[serde(flatten)]
    pub offer: Offer,
    pub verdict: Option<Verdict>,
    pub marks: Option<Vec<Mark>>,
    pub mark: Option<u64>,
    pub from: Option<String>,
    pub to: Option<String>,
}

/// One fence, or those of a set; as found, for it may be malformed.
#[derive(Debug, Deserialize)]
pub struct Offer {
    set: Option<Vec<Written>>,
    resource: Option<String>,
    slot: Option<i64>,
    token: Option<i64>,
    floor: Option<i64>,
    cluster: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    resource: String,
    slot: Option<i64>,
    token: i64,
    floor: i64,
    cluster: Option<String>,
}

impl Offer {
    /// The fences in the order of their resources' names.
    pub fn fences(&self) -> Result<Vec<Fence>, Invalid> {
        let alone = || Written {
            resource: self.resource.clone().expect("a fence names its resource"),
            slot: self.slot,
            token: self.token.expect("a fence has a token"),
            floor: self.floor.expect("a fence has a floor"),
            cluster: self.cluster.clone(),
        };
        let written = self.set.clone().unwrap_or_else(|| vec![alone()]);
        let mut fences: Vec<_> = written.iter().map(Written::fence).collect::<Result<_, _>>()?;
        fences.sort_by(|one, other| one.resource.cmp(&other.resource));
        Ok(fences)
    }

    /// The mark that `read_mark` asks for.
    pub fn asked(&self) -> Mark {
        let slot = self.slot.map(|slot| slot.try_into().expect("it is a slot"));
        Mark { resource: self.resource.clone().expect("it is asked for one"), slot, mark: None }
    }
}

impl Written {
    fn fence(&self) -> Result<Fence, Invalid> {
        let number = |number: i64| Token::new(u64::try_from(number).unwrap_or(0));
        let bound = "0 to 2^32 - 1";
        let slot = |slot: i64| slot.try_into().map_err(|_| Invalid { field: "slot", bound });
        Ok(Fence {
            cluster: self.cluster.as_deref().map_or(Ok(AUTHORITY), ClusterId::from_hex)?,
            resource: ResourceName::new(&self.resource)?,
            slot: self.slot.map(slot).transpose()?,
            token: number(self.token)?,
            floor: number(self.floor)?,
        })
    }
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Accept,
    BadInput,
    Stale { resource: String, slot: Option<u32>, mark: u64 },
    Foreign { resource: String, known: String },
}

impl Verdict {
    /// The refusal's.
    pub fn of(refused: FenceError) -> Self {
        match refused {
            FenceError::Stale { resource, mark, slot, .. } => {
                Self::Stale { resource: resource.as_str().to_owned(), slot, mark: mark.get() }
            }
            FenceError::FloorAboveToken { .. } => Self::BadInput,
            FenceError::ForeignCluster { resource, known, .. } => {
                let resource = resource.as_str().to_owned();
                Self::Foreign { resource, known: known.to_string() }
            }
            other => panic!("{other}"),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mark {
    resource: String,
    slot: Option<u32>,
    pub mark: Option<u64>,
}

impl Mark {
    /// What the store has there.
    pub async fn kept(&self, client: &mut impl Client) -> Option<u64> {
        let Ok(resource) = ResourceName::new(&self.resource) else { return None };
        client.mark(&resource, self.slot).await.map(Token::get)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Concurrent {
    pub name: String,
    #[serde(rename = "why")]
    _why: String,
    pub accepted_at_least: usize,
    pub refused_at_least: usize,
    pub marks: Vec<Mark>,
    pub writers: Vec<Vec<Offer>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    pub name: String,
    #[serde(rename = "why")]
    _why: String,
    pub before: Vec<Step>,
    pub last: Step,
    pub answered: bool,
    pub may_be: Vec<State>,
}

impl Crash {
    /// What the write with this number puts into the ledger.
    pub fn line(&self, number: usize) -> String {
        format!("{}/{number}", self.name)
    }

    /// The number of the write that has put this line into the ledger.
    pub fn number(&self, line: &str) -> Option<usize> {
        line.strip_prefix(&self.name)?.strip_prefix('/')?.parse().ok()
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    pub writes: Vec<usize>,
    pub marks: Vec<Mark>,
}
