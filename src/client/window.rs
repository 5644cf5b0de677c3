//! The request ids of one session: which are outstanding and which answers the
//! authority need not keep any longer. Section 5 of the contract. Pure.

use std::collections::BTreeSet;

use crate::locks::{ANSWERED_MAX, RequestId};

/// What a request says about the others of its session. Drawn anew for every
/// attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// The request's own id.
    pub id: RequestId,
    /// The lowest id that is outstanding; at most `id`.
    pub oldest: RequestId,
    /// Up to [`ANSWERED_MAX`] ids above `oldest` that are settled.
    pub answered: Vec<RequestId>,
}

/// The ids of one session.
#[derive(Debug)]
pub(super) struct RequestWindow {
    next: RequestId,
    /// Begun, and their answers are still awaited.
    outstanding: BTreeSet<RequestId>,
    /// Settled, above the lowest outstanding one, and perhaps not yet told to the
    /// authority.
    untold: BTreeSet<RequestId>,
}

impl RequestWindow {
    /// Nothing was asked yet.
    pub fn new() -> Self {
        Self { next: RequestId::FIRST, outstanding: BTreeSet::new(), untold: BTreeSet::new() }
    }

    /// Begins a request. Its id is outstanding until [`RequestWindow::settle`].
    pub fn begin(&mut self) -> RequestId {
        let id = self.next;
        self.next = id.next();
        self.outstanding.insert(id);
        id
    }

    /// What the next attempt of an outstanding request says.
    pub fn header(&self, id: RequestId) -> Header {
        let oldest = self.oldest().min(id);
        let answered = self.untold.iter().copied().take(ANSWERED_MAX).collect();
        Header { id, oldest, answered }
    }

    /// The authority has taken in what this header said.
    pub fn told(&mut self, header: &Header) {
        for id in &header.answered {
            self.untold.remove(id);
        }
    }

    /// Nobody awaits this id's answer any longer.
    pub fn settle(&mut self, id: RequestId) {
        if !self.outstanding.remove(&id) {
            return;
        }
        self.untold.insert(id);
        let oldest = self.oldest();
        self.untold.retain(|&settled| settled > oldest);
    }

    /// Whether the id's answer is awaited.
    pub fn is_outstanding(&self, id: RequestId) -> bool {
        self.outstanding.contains(&id)
    }

    fn oldest(&self) -> RequestId {
        self.outstanding.first().copied().unwrap_or(self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(id: u64) -> RequestId {
        RequestId::new(id).expect("a good id")
    }

    #[test]
    fn ids_increase_and_the_oldest_outstanding_one_is_named() {
        let mut window = RequestWindow::new();
        assert_eq!((window.begin(), window.begin(), window.begin()), (id(1), id(2), id(3)));
        assert_eq!(window.header(id(3)).oldest, id(1));
        window.settle(id(1));
        assert_eq!(window.header(id(3)), Header { id: id(3), oldest: id(2), answered: vec![] });
        assert!(window.is_outstanding(id(2)) && !window.is_outstanding(id(1)));
    }

    #[test]
    fn answers_above_a_long_wait_are_named_until_the_authority_knows() {
        let mut window = RequestWindow::new();
        let wait = window.begin();
        for _ in 0..3 {
            let done = window.begin();
            window.settle(done);
        }
        let last = window.begin();
        let header = window.header(last);
        assert_eq!((header.oldest, &header.answered[..]), (wait, &[id(2), id(3), id(4)][..]));
        window.told(&header);
        assert_eq!(window.header(last).answered, []);
        window.settle(last);
        let next = window.begin();
        assert_eq!(window.header(next).answered, [last]);
    }

    #[test]
    fn at_most_sixty_four_are_named_at_once_and_none_is_forgotten() {
        let mut window = RequestWindow::new();
        window.begin();
        for _ in 0..100 {
            let done = window.begin();
            window.settle(done);
        }
        let last = window.begin();
        let first = window.header(last);
        assert_eq!(first.answered.len(), ANSWERED_MAX);
        window.told(&first);
        assert_eq!(window.header(last).answered.len(), 100 - ANSWERED_MAX);
    }

    #[test]
    fn what_lies_below_the_oldest_outstanding_one_is_not_named() {
        let mut window = RequestWindow::new();
        let (first, second, third) = (window.begin(), window.begin(), window.begin());
        window.settle(second);
        window.settle(first);
        assert_eq!(window.header(third), Header { id: third, oldest: third, answered: vec![] });
        window.settle(third);
        window.settle(third);
        let fourth = window.begin();
        assert_eq!(window.header(fourth).oldest, fourth);
    }
}
