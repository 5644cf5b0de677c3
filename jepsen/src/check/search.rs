//! A search for a linearization, after Wing and Gong, with the memo of Lowe.
//!
//! It knows nothing of locks: a [`Model`] says which call may come next in which state. Calls
//! without a return may come at any time after their beginning, or never. The search gives up
//! after a number of steps, and then the answer is unknown.

use std::collections::HashSet;
use std::hash::Hash;

/// A call as the search sees it.
#[derive(Clone, Debug)]
pub struct Step<C> {
    /// What was called, with its result.
    pub call: C,
    /// When it began.
    pub inv: u64,
    /// When it returned; none if it may take effect later, or never.
    pub ret: Option<u64>,
}

/// What a lawful history does.
pub trait Model {
    /// A call with its result.
    type Call;
    /// What must be remembered of the calls so far.
    type State: Clone + Eq + Hash;

    /// Before any call.
    fn init(&self) -> Self::State;

    /// The state after this call, or none if it cannot come next.
    fn step(&self, state: &Self::State, step: &Step<Self::Call>) -> Option<Self::State>;

    /// To which units a call belongs: a lawful history is lawful without all calls of a unit too.
    fn units(&self, call: &Self::Call) -> Vec<u64>;
}

/// What the search found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// An order in which all that returned, and some of the rest, are lawful: places in the
    /// history.
    Order(Vec<usize>),
    /// There is none. The longest that was found, and what could not be placed after it though
    /// it had to be.
    Nothing {
        /// Places in the history.
        longest: Vec<usize>,
        /// Place of the call that returned first among those that are not in it.
        stuck: usize,
    },
    /// Too many steps.
    Unknown,
}

/// Looks for a linearization of `calls` in at most `steps_max` steps.
pub fn search<M: Model>(model: &M, calls: &[Step<M::Call>], steps_max: u64) -> Found {
    let mut search = Search::new(model, calls);
    for _ in 0..steps_max {
        if search.missing == 0 {
            return Found::Order(search.order());
        }
        if !search.advance() {
            return search.nothing();
        }
    }
    Found::Unknown
}

/// The beginnings and returns in order of time, as a list from which what is placed is taken out.
/// Entry 0 is before all, the last one after all.
struct Search<'a, M: Model> {
    model: &'a M,
    calls: &'a [Step<M::Call>],
    /// Of each entry its call and whether it begins there.
    entries: Vec<(usize, bool)>,
    next: Vec<usize>,
    before: Vec<usize>,
    /// Of each call the entry of its return; 0 if it has none.
    returns: Vec<usize>,
    placed: Vec<u64>,
    seen: HashSet<(Box<[u64]>, M::State)>,
    /// Entries that were taken, with the state before.
    taken: Vec<(usize, M::State)>,
    state: M::State,
    at: usize,
    /// Calls that returned and are not placed yet.
    missing: usize,
    longest: Vec<usize>,
    stuck: usize,
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, calls: &'a [Step<M::Call>]) -> Self {
        let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(calls.len() * 2);
        for (place, step) in calls.iter().enumerate() {
            events.push((step.inv, false, place));
            events.extend(step.ret.map(|ret| (ret, true, place)));
        }
        // At one instant beginnings come first: what touches may be concurrent.
        events.sort_unstable();
        let mut entries = vec![(0, false)];
        let mut returns = vec![0; calls.len()];
        for (_, is_return, place) in events {
            if is_return {
                returns[place] = entries.len();
            }
            entries.push((place, !is_return));
        }
        let count = entries.len();
        Search {
            model,
            calls,
            entries,
            next: (1..=count + 1).collect(),
            before: (0..=count).map(|entry| entry.saturating_sub(1)).collect(),
            returns,
            placed: vec![0; calls.len().div_ceil(64)],
            seen: HashSet::new(),
            taken: Vec::new(),
            state: model.init(),
            at: 1,
            missing: calls.iter().filter(|step| step.ret.is_some()).count(),
            longest: Vec::new(),
            stuck: 0,
        }
    }

    /// One step. False if there is nothing left to try.
    fn advance(&mut self) -> bool {
        let begins = self.entries.get(self.at).filter(|entry| entry.1).map(|entry| entry.0);
        match begins {
            Some(place) => {
                if !self.take(place) {
                    self.at = self.next[self.at];
                }
                true
            }
            None => self.back(),
        }
    }

    /// Places the call that begins here, if it may come next and that was not tried before.
    fn take(&mut self, place: usize) -> bool {
        let Some(state) = self.model.step(&self.state, &self.calls[place]) else { return false };
        let mut placed: Box<[u64]> = self.placed.as_slice().into();
        placed[place / 64] |= 1 << (place % 64);
        if !self.seen.insert((placed, state.clone())) {
            return false;
        }
        self.placed[place / 64] |= 1 << (place % 64);
        self.taken.push((self.at, std::mem::replace(&mut self.state, state)));
        self.unlink(self.at);
        if self.returns[place] != 0 {
            self.unlink(self.returns[place]);
            self.missing -= 1;
        }
        self.at = self.next[0];
        true
    }

    /// A return was met, or the end: what returns here must have come before. Takes the last
    /// placed call back.
    fn back(&mut self) -> bool {
        if self.longest.is_empty() || self.taken.len() > self.longest.len() {
            self.longest = self.order();
            self.stuck = self.entries.get(self.at).map_or(0, |entry| entry.0);
        }
        let Some((entry, state)) = self.taken.pop() else { return false };
        let place = self.entries[entry].0;
        self.state = state;
        self.placed[place / 64] &= !(1 << (place % 64));
        if self.returns[place] != 0 {
            self.link(self.returns[place]);
            self.missing += 1;
        }
        self.link(entry);
        self.at = self.next[entry];
        true
    }

    fn unlink(&mut self, entry: usize) {
        let (before, next) = (self.before[entry], self.next[entry]);
        self.next[before] = next;
        self.before[next] = before;
    }

    fn link(&mut self, entry: usize) {
        let (before, next) = (self.before[entry], self.next[entry]);
        self.next[before] = entry;
        self.before[next] = entry;
    }

    fn order(&self) -> Vec<usize> {
        self.taken.iter().map(|(entry, _)| self.entries[*entry].0).collect()
    }

    fn nothing(self) -> Found {
        Found::Nothing { longest: self.longest, stuck: self.stuck }
    }
}

/// Makes an unlawful history short: the shortest unlawful beginning, and of that only the units
/// without which it would be lawful. Gives places in `calls`; what it finds within the steps is
/// unlawful, if not the shortest.
pub fn shrink<M: Model>(model: &M, calls: &[Step<M::Call>], steps_max: u64) -> Vec<usize>
where
    M::Call: Clone,
{
    let unlawful = |places: &[usize], until: Option<u64>| {
        let some: Vec<Step<M::Call>> =
            places.iter().map(|place| cut(&calls[*place], until)).collect();
        matches!(search(model, &some, steps_max), Found::Nothing { .. })
    };
    let all: Vec<usize> = (0..calls.len()).collect();
    let begun = |until: u64| -> Vec<usize> {
        all.iter().copied().filter(|place| calls[*place].inv <= until).collect()
    };
    let mut returns: Vec<u64> = calls.iter().filter_map(|step| step.ret).collect();
    returns.sort_unstable();
    // A beginning of a lawful history is lawful, so the first unlawful one can be halved out.
    let first = returns.partition_point(|until| !unlawful(&begun(*until), Some(*until)));
    let until = returns.get(first).copied();
    let mut kept = until.map_or(all.clone(), begun);
    let mut units: Vec<u64> = kept.iter().flat_map(|p| model.units(&calls[*p].call)).collect();
    units.sort_unstable();
    units.dedup();
    for unit in units {
        let without: Vec<usize> = kept
            .iter()
            .copied()
            .filter(|place| !model.units(&calls[*place].call).contains(&unit))
            .collect();
        if unlawful(&without, until) {
            kept = without;
        }
    }
    kept
}

/// The call as it was known at `until`: what returns later has not returned.
fn cut<C: Clone>(step: &Step<C>, until: Option<u64>) -> Step<C> {
    let ret = step.ret.filter(|ret| until.is_none_or(|until| *ret <= until));
    Step { call: step.call.clone(), inv: step.inv, ret }
}

#[cfg(test)]
mod tests;
