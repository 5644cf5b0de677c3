//! Section 4, `DEADLOCK`: every session that waits for nothing gives up what it holds,
//! grants go by the rules as far as they go, and again. What still waits then would
//! never be granted. Freezes and lock delays are taken to end.

use ringfence::locks::{Mode, Refusal, ResourceName, SessionId, WaitId};

use super::{Naive, Waiting};

/// Who holds what and who waits for what, and nothing else.
#[derive(Clone)]
struct Play {
    holds: Vec<(SessionId, ResourceName, Mode)>,
    /// In the order in which they were queued.
    waits: Vec<(WaitId, Vec<ResourceName>, Mode)>,
    /// Numbers of slots that are in force.
    slots: Vec<(ResourceName, u32)>,
}

impl Naive {
    /// Lets it wait, if it would ever be granted.
    pub fn may_wait(&mut self, waiting: Waiting) -> Result<(), Refusal> {
        let session = waiting.wait.session;
        let has_nothing = self.grants.iter().all(|g| g.wait.session != session)
            && self.waits.iter().all(|w| w.wait.session != session);
        let id = waiting.wait;
        let before = self.stuck();
        self.waits.push(waiting);
        let after = self.stuck();
        let alone = after.contains(&id);
        if alone && !has_nothing {
            self.waits.pop();
            return Err(Refusal::Deadlock { cycle: Vec::new() });
        }
        assert!(!alone || !before.is_empty(), "nobody waits for one that has nothing");
        let others = after.into_iter().filter(|wait| *wait != id);
        let stalled: Vec<_> = others.filter(|wait| !before.contains(wait)).collect();
        assert!(stalled.is_empty(), "an accepted wait stalled {stalled:?}");
        Ok(())
    }

    /// Waits that would never be granted.
    pub fn stuck(&self) -> Vec<WaitId> {
        let held = self
            .grants
            .iter()
            .flat_map(|g| g.names.iter().map(|name| (g.wait.session, name.clone(), g.mode)));
        let waits = self.waits.iter().map(|w| (w.wait, w.names.clone(), w.mode));
        let slots = self.resizes.iter().map(|r| (r.name.clone(), r.slots));
        let (holds, waits, slots) = (held.collect(), waits.collect(), slots.collect());
        let mut play = Play { holds, waits, slots };
        loop {
            play.settle();
            let waits = |session: &SessionId| play.waits.iter().any(|w| w.0.session == *session);
            let before = play.holds.len();
            let remain: Vec<_> = play.holds.iter().filter(|hold| waits(&hold.0)).cloned().collect();
            if remain.len() == before {
                return play.waits.into_iter().map(|w| w.0).collect();
            }
            play.holds = remain;
        }
    }
}

impl Play {
    fn settle(&mut self) {
        while let Some(place) = (0..self.waits.len()).find(|place| self.is_grantable(*place)) {
            let (wait, names, mode) = self.waits.remove(place);
            self.holds.extend(names.into_iter().map(|name| (wait.session, name, mode)));
        }
    }

    fn is_grantable(&self, place: usize) -> bool {
        let (_, names, mode) = &self.waits[place];
        names.iter().all(|name| {
            let heads = self.waits[..place].iter().all(|earlier| !earlier.1.contains(name));
            heads && self.admits(name, *mode)
        })
    }

    fn admits(&self, name: &ResourceName, mode: Mode) -> bool {
        let held: Vec<_> = self.holds.iter().filter(|h| h.1 == *name).map(|h| h.2).collect();
        if held.is_empty() {
            return true;
        }
        match mode {
            Mode::Exclusive => false,
            Mode::Shared => held.iter().all(|other| *other == Mode::Shared),
            Mode::Slots { of } => {
                let in_force = self.slots.iter().find(|(resized, _)| resized == name);
                let slots = in_force.map_or(of, |(_, slots)| *slots);
                held.iter().all(|other| matches!(other, Mode::Slots { .. }))
                    && held.len() < slots as usize
            }
        }
    }
}
