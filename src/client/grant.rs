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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::{Millis, Terms};

    const CLUSTER: ClusterId = ClusterId::new([3; 16]);

    fn claim(names: &[&str], mode: Mode, handoff: Handoff) -> Claim {
        let names = names.iter().map(|name| ResourceName::new(name).expect("a good name"));
        Claim::new(names.collect(), mode, Terms { handoff, ..Terms::default() }).expect("good")
    }

    fn fence(resource: &str, slot: Option<u32>) -> v1::Fence {
        let cluster_id = CLUSTER.as_bytes().to_vec().into();
        v1::Fence { cluster_id, resource: resource.to_owned(), slot, token: 7, floor: 7 }
    }

    fn answer(fences: Vec<v1::Fence>, phase: v1::Phase) -> v1::AcquireResponse {
        let granted_at = Some(v1::Revision { index: 9, ordinal: 0 });
        let phase = phase.into();
        let grant = v1::Grant { token: 7, granted_at, phase, ..Default::default() };
        let fence = fences.first().cloned();
        v1::AcquireResponse { grant: Some(grant), fence, fences, queued: None }
    }

    fn refused(claim: &Claim, response: v1::AcquireResponse) -> Option<&'static str> {
        Granted::read(CLUSTER, claim, response).err().map(|invalid| invalid.field)
    }

    #[test]
    fn an_answer_is_taken_only_if_it_grants_what_was_asked_for() {
        use v1::Phase::{Active, Barrier};
        let plain = claim(&["a"], Mode::Exclusive, Handoff::Plain);
        let good = Granted::read(CLUSTER, &plain, answer(vec![fence("a", None)], Active));
        let good = good.expect("it is what was asked for");
        assert_eq!((good.token().get(), good.granted_at, good.fences().len()), (7, 9, 1));
        assert_eq!(refused(&plain, answer(vec![fence("b", None)], Active)), Some("fences"));
        assert_eq!(refused(&plain, answer(vec![fence("a", Some(0))], Active)), Some("slot"));
        assert_eq!(refused(&plain, answer(vec![], Active)), Some("fence"));
        let barrier = answer(vec![fence("a", None)], Barrier);
        assert_eq!(refused(&plain, barrier.clone()), Some("phase"), "it would act too early");
        let strict = Handoff::Strict { barrier: Millis(5) };
        assert_eq!(refused(&claim(&["a"], Mode::Exclusive, strict), barrier), None);
        let slots = claim(&["a"], Mode::Slots { of: 2 }, Handoff::Plain);
        assert_eq!(refused(&slots, answer(vec![fence("a", None)], Active)), Some("slot"));
        let set = claim(&["b", "a"], Mode::Exclusive, Handoff::Plain);
        let both = vec![fence("a", None), fence("b", None)];
        assert_eq!(refused(&set, answer(both.clone(), Active)), None);
        assert_eq!(refused(&set, answer(both[..1].to_vec(), Active)), Some("fences"));
        let other = v1::Fence { token: 8, ..fence("b", None) };
        assert_eq!(refused(&set, answer(vec![fence("a", None), other], Active)), Some("token"));
        let foreign = v1::Fence { cluster_id: vec![4; 16].into(), ..fence("a", None) };
        assert_eq!(refused(&plain, answer(vec![foreign], Active)), Some("cluster_id"));
    }
}
