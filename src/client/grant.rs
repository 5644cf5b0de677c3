//! A grant on its way from the authority to the application.

use std::sync::Arc;

use super::core::Core;
use super::handover::Asked;
use super::state::State;
use crate::clock::BootMoment;
use crate::locks::{Claim, ClusterId, Fence, Handoff, Invalid, Mode, ResourceName, Token};
use crate::wire::v1;

/// What was granted.
#[derive(Debug, Clone)]
pub(super) struct Granted {
    /// At least one; one for each resource, in the order of their names.
    fences: Vec<Fence>,
    pub mode: Mode,
    /// Log index.
    pub granted_at: u64,
    /// That it was asked back already.
    pub asked: Option<Asked>,
}

impl Granted {
    /// Reads the answer to an acquire of this claim.
    ///
    /// # Errors
    /// The field that is not what was asked for.
    pub fn read(
        cluster: ClusterId,
        claim: &Claim,
        response: v1::AcquireResponse,
    ) -> Result<Self, Invalid> {
        let missing = |field| Invalid { field, bound: "present" };
        let grant = response.grant.ok_or_else(|| missing("grant"))?;
        let at = grant.granted_at.ok_or_else(|| missing("granted_at"))?;
        let fences = match claim.names.len() {
            1 => vec![response.fence.ok_or_else(|| missing("fence"))?],
            _ => response.fences,
        };
        let fences: Vec<Fence> =
            fences.into_iter().map(Fence::try_from).collect::<Result<_, _>>()?;
        if !fences.iter().map(|fence| &fence.resource).eq(&claim.names) {
            return Err(Invalid { field: "fences", bound: "on what was asked for" });
        }
        for fence in &fences {
            if fence.cluster != cluster {
                return Err(Invalid { field: "cluster_id", bound: "that of the session" });
            }
            if fence.token.get() != grant.token {
                return Err(Invalid { field: "token", bound: "that of the grant" });
            }
            if fence.slot.is_some() != claim.mode.slots().is_some() {
                return Err(Invalid { field: "slot", bound: "present for slots only" });
            }
        }
        if grant.phase() == v1::Phase::Barrier && claim.terms.handoff == Handoff::Plain {
            return Err(Invalid { field: "phase", bound: "active for a plain grant" });
        }
        Ok(Self {
            fences,
            mode: claim.mode,
            granted_at: at.index,
            asked: grant.asked.map(Asked::from),
        })
    }

    pub fn token(&self) -> Token {
        self.fences[0].token
    }

    /// One for each resource, in the order of their names; at least one.
    pub fn fences(&self) -> &[Fence] {
        &self.fences
    }

    pub fn names(&self) -> impl ExactSizeIterator<Item = &ResourceName> {
        self.fences.iter().map(|fence| &fence.resource)
    }
}

/// A grant on its way to the application, and then in its hands: wherever it is
/// dropped, it is given back.
#[derive(Debug)]
pub(super) struct Claimed {
    pub core: Arc<Core>,
    pub grant: Granted,
    armed: bool,
}

impl Claimed {
    pub fn new(core: Arc<Core>, grant: Granted) -> Self {
        Self { core, grant, armed: true }
    }

    /// The caller gives it back itself.
    pub fn disarm(mut self) {
        self.armed = false;
    }

    pub fn state(&self) -> State {
        self.core.state(Some(self.grant.token()), BootMoment::now())
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // Nothing is left of a lost one, and a fork's copy is not its own to give.
        if self.armed && !matches!(self.state(), State::Lost(_)) {
            self.core.give_back(self.grant.names().cloned().collect(), self.grant.token());
        }
    }
}
