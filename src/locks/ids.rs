//! One noun, one type. Two numbers that mean different things never meet in
//! one signature, and a value of these types has been checked once, at the
//! edge, and is valid from there on.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

/// A value from outside does not fit its type: names the field and the bound.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Invalid {
    /// The field, as the public API calls it.
    pub field: &'static str,
    /// What would have been accepted.
    pub bound: &'static str,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} must be {}", self.field, self.bound)
    }
}

impl std::error::Error for Invalid {}

/// The credential of one client process or unit of work: 128 random bits, drawn
/// anew after start or fork, never stored and never shown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerId([u8; 16]);

impl OwnerId {
    /// Takes the random bits.
    pub const fn new(bits: [u8; 16]) -> Self {
        Self(bits)
    }

    /// Reads 16 bytes.
    ///
    /// # Errors
    /// `owner_id` of another length.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Invalid> {
        let bound = "16 random bytes";
        bytes.try_into().map(Self).map_err(|_| Invalid { field: "owner_id", bound })
    }

    /// The bits, to be sent to the authority and nowhere else.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnerId(secret)")
    }
}

/// The random identity of an authority. A destination may remember it and
/// refuse another authority's fences.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId([u8; 16]);

impl ClusterId {
    /// Takes the random bits.
    pub const fn new(bits: [u8; 16]) -> Self {
        Self(bits)
    }

    /// Reads 16 bytes.
    ///
    /// # Errors
    /// `cluster_id` of another length.
    pub fn from_slice(bytes: &[u8]) -> Result<Self, Invalid> {
        let bound = "16 bytes";
        bytes.try_into().map(Self).map_err(|_| Invalid { field: "cluster_id", bound })
    }

    /// Reads 32 hexadecimal digits, as [`fmt::Display`] writes them.
    ///
    /// # Errors
    /// `cluster_id` of another form.
    pub fn from_hex(text: &str) -> Result<Self, Invalid> {
        let refused = Invalid { field: "cluster_id", bound: "32 hexadecimal digits" };
        if text.len() != 32 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(refused);
        }
        u128::from_str_radix(text, 16).map(|n| Self(n.to_be_bytes())).map_err(|_| refused)
    }

    /// The 16 bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

/// A session: the Raft log index of the entry that opened it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.0)
    }
}

/// The idempotency key of one operation of one session; increases within it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(NonZeroU64);

impl RequestId {
    /// The first id of a session.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// Checks the bound: 1 or more.
    ///
    /// # Errors
    /// `request_id` of 0.
    pub fn new(id: u64) -> Result<Self, Invalid> {
        let refused = Invalid { field: "request_id", bound: "1 or more" };
        NonZeroU64::new(id).map(Self).ok_or(refused)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The id after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A fencing token: a whole number in 1..=2^53 - 1, so that SQL BIGINT, JSON,
/// JavaScript and Lua hold it exactly. Assigned in the same log entry as the
/// grant it belongs to. (I1)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(NonZeroU64);

impl Token {
    /// The largest token.
    pub const MAX: u64 = (1 << 53) - 1;

    /// Checks the bounds.
    ///
    /// # Errors
    /// `token` outside 1..=2^53 - 1.
    pub fn new(token: u64) -> Result<Self, Invalid> {
        let refused = Invalid { field: "token", bound: "1 to 2^53 - 1" };
        NonZeroU64::new(token).filter(|t| t.get() <= Self::MAX).map(Self).ok_or(refused)
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A Raft term.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(pub u64);

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When something happened: a Raft log index and a place inside that entry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision {
    /// Raft log index.
    pub index: u64,
    /// Place inside the entry, from 0.
    pub ordinal: u32,
}

impl Revision {
    /// After all that the entry at `index` brought about.
    pub const fn end_of(index: u64) -> Self {
        Self { index, ordinal: u32::MAX }
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.index, self.ordinal)
    }
}

/// Where an entry stands in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The term of the leader that appended it.
    pub term: Term,
    /// Its index.
    pub index: u64,
}

/// The name of a protected resource: 1 to 512 bytes of UTF-8 without control
/// characters, `/`-separated by custom (`job/7`). Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ResourceName(Arc<str>);

impl ResourceName {
    /// The longest name, in bytes.
    pub const BYTES_MAX: usize = 512;

    /// Checks length and characters.
    ///
    /// # Errors
    /// `resource` empty, longer than 512 bytes, or with a control character.
    pub fn new(name: &str) -> Result<Self, Invalid> {
        if name.is_empty() || name.len() > Self::BYTES_MAX {
            return Err(Invalid { field: "resource", bound: "1 to 512 bytes long" });
        }
        if name.chars().any(char::is_control) {
            return Err(Invalid { field: "resource", bound: "free of control characters" });
        }
        Ok(Self(name.into()))
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A length of time in whole milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// As a standard duration.
    pub const fn duration(self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0)
    }
}

/// What travels with a protected write: the destination accepts it if and only
/// if `token >= mark`, and then raises the mark to `floor`. Section 6 of the
/// contract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The authority that issued the token.
    pub cluster: ClusterId,
    /// The protected resource.
    pub resource: ResourceName,
    /// The numbered slot, for slotted resources. It stands beside the name and
    /// is never part of it.
    pub slot: Option<u32>,
    /// The grant's fencing token.
    pub token: Token,
    /// What the resource's mark is raised to; never above `token`.
    pub floor: Token,
}
