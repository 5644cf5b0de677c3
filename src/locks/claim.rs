//! What is asked for, and on which terms. Sections 4 and 7 of the contract.

use std::fmt;
use std::sync::Arc;

use super::ids::{Invalid, Millis, ResourceName};

/// How many names one claim may hold.
pub const NAMES_PER_CLAIM_MAX: usize = 64;
/// How many slots a resource may have.
pub const SLOTS_MAX: u32 = 65_536;
/// How long a resource may stay closed after a grant's expiry or revoke.
pub const LOCK_DELAY_MAX: Millis = Millis(60_000);
/// How long a grant may stay unconfirmed.
pub const BARRIER_MAX: Millis = Millis(60 * 60 * 1000);
/// How long a grant may stay unconfirmed where nobody has a better idea.
pub const BARRIER_DEFAULT: Millis = Millis(30_000);

/// What is asked for: names in ascending order without repeats, all granted
/// together under one token, or none. Several names are exclusive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// 1 to [`NAMES_PER_CLAIM_MAX`] names.
    pub names: Vec<ResourceName>,
    /// How they are shared.
    pub mode: Mode,
    /// What else is agreed.
    pub terms: Terms,
}

impl Claim {
    /// Puts names in order and checks that they make a claim.
    ///
    /// # Errors
    /// `resources` without a name, with more than [`NAMES_PER_CLAIM_MAX`], or with one
    /// name twice; `mode` if several names are not asked for exclusively, `slots`
    /// outside 1 to [`SLOTS_MAX`]; what [`Terms::check`] refuses.
    pub fn new(mut names: Vec<ResourceName>, mode: Mode, terms: Terms) -> Result<Self, Invalid> {
        if names.is_empty() || names.len() > NAMES_PER_CLAIM_MAX {
            return Err(Invalid { field: "resources", bound: "1 to 64 names" });
        }
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Invalid { field: "resources", bound: "different names" });
        }
        if names.len() > 1 && mode != Mode::Exclusive {
            return Err(Invalid { field: "mode", bound: "exclusive for several resources" });
        }
        if matches!(mode, Mode::Slots { of } if of == 0 || of > SLOTS_MAX) {
            return Err(Invalid { field: "slots", bound: "1 to 65536" });
        }
        terms.check()?;
        Ok(Self { names, mode, terms })
    }
}

/// How a resource is shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// One holder and no other beside it.
    Exclusive,
    /// Many holders, all in this mode.
    Shared,
    /// At most `of` holders, each in a numbered slot of its own.
    Slots {
        /// How many slots there are: 1 to [`SLOTS_MAX`].
        of: u32,
    },
}

impl Mode {
    /// Whether holders of these two modes may not hold one resource together.
    /// (I3) How many slots are taken is another question.
    pub const fn conflicts_with(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) | (Self::Slots { .. }, Self::Slots { .. }) => false,
            (Self::Exclusive | Self::Shared | Self::Slots { .. }, _) => true,
        }
    }

    /// How many slots it names.
    pub const fn slots(self) -> Option<u32> {
        match self {
            Self::Exclusive | Self::Shared => None,
            Self::Slots { of } => Some(of),
        }
    }

    /// One number for rows and hashes; [`Mode::from_code`] reads it.
    pub const fn code(self) -> u32 {
        match self {
            Self::Exclusive => 1,
            Self::Shared => 2,
            Self::Slots { of } => 3 | of << 8,
        }
    }

    /// Reads [`Mode::code`]; `None` for a mode that this version does not know.
    pub const fn from_code(code: u32) -> Option<Self> {
        match (code & 0xff, code >> 8) {
            (1, 0) => Some(Self::Exclusive),
            (2, 0) => Some(Self::Shared),
            (3, of) if of > 0 && of <= SLOTS_MAX => Some(Self::Slots { of }),
            _ => None,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exclusive => f.write_str("exclusive"),
            Self::Shared => f.write_str("shared"),
            Self::Slots { of } => write!(f, "slots({of})"),
        }
    }
}

/// What is agreed with a grant beside its mode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Terms {
    /// After expiry or revoke the resource (of slots: the slot) is closed this long to
    /// new grants of a conflicting mode; at most [`LOCK_DELAY_MAX`].
    pub lock_delay: Millis,
    /// Whether the grant must be confirmed before it is active. Section 7.
    pub handoff: Handoff,
    /// What all may read beside the grant.
    pub value: Value,
}

impl Terms {
    /// Checks the bounds.
    ///
    /// # Errors
    /// `lock_delay_ms` above a minute, `barrier_ms` outside 1 ms to an hour.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.lock_delay > LOCK_DELAY_MAX {
            return Err(Invalid { field: "lock_delay_ms", bound: "0 to 60000" });
        }
        match self.handoff {
            Handoff::Strict { barrier } if barrier.0 == 0 || barrier > BARRIER_MAX => {
                Err(Invalid { field: "barrier_ms", bound: "1 to 3600000" })
            }
            Handoff::Strict { .. } | Handoff::Plain => Ok(()),
        }
    }
}

/// Whether a grant is active at once. Section 7 of the contract.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Handoff {
    /// Active when granted.
    #[default]
    Plain,
    /// In phase *barrier* until its owner has raised the fence at every destination and
    /// confirms. (I9)
    Strict {
        /// How long it may stay unconfirmed; 1 ms to [`BARRIER_MAX`].
        barrier: Millis,
    },
}

impl Handoff {
    /// The phase that a grant begins in.
    pub const fn phase(self) -> Phase {
        match self {
            Self::Plain => Phase::Active,
            Self::Strict { barrier } => Phase::Barrier { deadline: barrier },
        }
    }
}

/// How far a grant has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its owner may write.
    Active,
    /// It keeps everybody else out, but is not current yet.
    Barrier {
        /// How long it may stay so, from when each node applied the grant.
        deadline: Millis,
    },
}

/// What a holder shows to all who read its grant: an address, a progress mark. Cheap
/// to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Value(Option<Arc<[u8]>>);

impl Value {
    /// The longest value, in bytes.
    pub const BYTES_MAX: usize = 4_096;

    /// Checks the length.
    ///
    /// # Errors
    /// `value` of more than 4,096 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, Invalid> {
        if bytes.len() > Self::BYTES_MAX {
            return Err(Invalid { field: "value", bound: "at most 4096 bytes long" });
        }
        Ok(Self((!bytes.is_empty()).then(|| bytes.into())))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self.as_bytes()))
    }
}

/// Who did something by hand, and why. Shown to all, kept with the event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Note {
    /// A person or a program, as the caller names itself.
    pub actor: String,
    /// One sentence.
    pub reason: String,
}

impl Note {
    /// The longest actor, in bytes.
    pub const ACTOR_BYTES_MAX: usize = 128;
    /// The longest reason, in bytes.
    pub const REASON_BYTES_MAX: usize = 512;

    /// Checks both lengths.
    ///
    /// # Errors
    /// `actor` empty or of more than 128 bytes, `reason` of more than 512 bytes, a
    /// control character in either.
    pub fn new(actor: &str, reason: &str) -> Result<Self, Invalid> {
        if actor.is_empty() || actor.len() > Self::ACTOR_BYTES_MAX {
            return Err(Invalid { field: "actor", bound: "1 to 128 bytes long" });
        }
        if reason.len() > Self::REASON_BYTES_MAX {
            return Err(Invalid { field: "reason", bound: "at most 512 bytes long" });
        }
        for (field, text) in [("actor", actor), ("reason", reason)] {
            if text.chars().any(char::is_control) {
                return Err(Invalid { field, bound: "free of control characters" });
            }
        }
        Ok(Self { actor: actor.to_owned(), reason: reason.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<ResourceName> {
        names.iter().map(|name| ResourceName::new(name).expect("a good name")).collect()
    }

    #[test]
    fn a_claim_is_put_in_order_and_checked() {
        let claim = Claim::new(names(&["b", "a"]), Mode::Exclusive, Terms::default());
        assert_eq!(claim.map(|c| c.names), Ok(names(&["a", "b"])));
        let field = |names, mode, terms| Claim::new(names, mode, terms).map_err(|e| e.field);
        let plain = Terms::default;
        assert_eq!(field(names(&[]), Mode::Shared, plain()), Err("resources"));
        assert_eq!(field(names(&["a", "a"]), Mode::Exclusive, plain()), Err("resources"));
        assert_eq!(field(names(&["a", "b"]), Mode::Shared, plain()), Err("mode"));
        assert_eq!(field(names(&["a"]), Mode::Slots { of: 0 }, plain()), Err("slots"));
        let long = Terms { lock_delay: Millis(60_001), ..plain() };
        assert_eq!(field(names(&["a"]), Mode::Shared, long), Err("lock_delay_ms"));
        let handoff = Handoff::Strict { barrier: Millis(0) };
        let never = Terms { handoff, ..plain() };
        assert_eq!(field(names(&["a"]), Mode::Shared, never), Err("barrier_ms"));
    }

    #[test]
    fn a_mode_is_read_back_from_its_code() {
        for mode in
            [Mode::Exclusive, Mode::Shared, Mode::Slots { of: 1 }, Mode::Slots { of: SLOTS_MAX }]
        {
            assert_eq!(Mode::from_code(mode.code()), Some(mode));
        }
        for code in [0, 3, 4, 1 | 1 << 8, 3 | (SLOTS_MAX + 1) << 8] {
            assert_eq!(Mode::from_code(code), None);
        }
    }
}
