//! The state and events of a watch, cut into messages that every client accepts.

use std::sync::Arc;

use prost::Message;

use crate::authority::State;
use crate::feed::{EntryEvents, Topic};
use crate::locks::{Event, ResourceName, ResourceView, Revision};
use crate::wire::events::event_out;
use crate::wire::v1;
use crate::wire::v1::watch_response::Part;
use crate::wire::views::{Listed, resource_out, revision_out};

/// How many resources are read under one lock.
const RESOURCES_PER_PART_MAX: usize = 256;
/// About how many bytes of the state are read under one lock, unless one resource is
/// larger.
const PART_BYTES: usize = 256 << 10;
/// The largest message of the state, about: clients accept 4 MiB if they set nothing.
const STATE_BYTES_MAX: usize = 1 << 20;
/// How many events one message holds.
const EVENTS_MAX: usize = 256;
/// About how many bytes of events: this much may be buffered for each watcher that does
/// not read.
const EVENTS_BYTES: usize = 64 << 10;

/// A piece of the state, as read under one lock.
pub(super) struct Piece {
    pub resources: Vec<v1::ResourceView>,
    /// The last name in it.
    pub to: Option<ResourceName>,
    /// Whether nothing follows.
    pub last: bool,
}

/// Reads the next piece of the state, after a name.
pub(super) fn piece(state: &State, topic: &Topic, after: Option<&ResourceName>) -> Piece {
    let table = &state.table;
    let prefix = match topic {
        Topic::Resource(name) => {
            let view = table.resource(name);
            let view =
                view.map(|view| resource_out(table, &view, Listed::ALONE.with_all_holders()));
            return Piece { resources: view.into_iter().collect(), to: None, last: true };
        }
        Topic::Prefix(prefix) => prefix.as_str(),
        Topic::Everything => "",
    };
    let mut piece = Piece { resources: Vec::new(), to: None, last: false };
    let mut bytes = 0;
    let mut found = table.resources_with_prefix(prefix, after);
    while piece.resources.len() < RESOURCES_PER_PART_MAX && bytes < PART_BYTES {
        let Some(view) = found.next() else {
            piece.last = true;
            return piece;
        };
        let resource = resource_out(table, &view, Listed::AMONG_MANY.with_all_holders());
        bytes += resource.encoded_len();
        piece.resources.push(resource);
        piece.to = Some(view.name.clone());
    }
    piece.last = found.next().map(|view: ResourceView<'_>| view.name).is_none();
    piece
}

/// The piece as messages of the same revision: a resource with very many holders is
/// spread over several.
pub(super) fn of_state(piece: Piece, at: Revision) -> Vec<v1::WatchResponse> {
    let mut messages = vec![Vec::new()];
    let mut room = STATE_BYTES_MAX;
    for view in piece.resources.into_iter().flat_map(spread) {
        let bytes = view.encoded_len();
        if bytes > room && room < STATE_BYTES_MAX {
            messages.push(Vec::new());
            room = STATE_BYTES_MAX;
        }
        room = room.saturating_sub(bytes);
        messages.last_mut().expect("there is one from the start").push(view);
    }
    let end = messages.len() - 1;
    let state = |(number, resources)| {
        let last = piece.last && number == end;
        of_part(Part::State(v1::State { resources, at: Some(revision_out(at)), last }))
    };
    messages.into_iter().enumerate().map(state).collect()
}

/// The events among these that are asked for, as messages.
pub(super) fn of_events(
    entries: &[Arc<EntryEvents>],
    asked: impl Fn(&Event) -> bool,
) -> Vec<v1::WatchResponse> {
    let mut messages = Vec::new();
    let (mut events, mut bytes) = (Vec::new(), 0);
    for event in entries.iter().flat_map(|entry| &entry.events).filter(|event| asked(event)) {
        let event = event_out(event);
        let more = event.encoded_len();
        if !events.is_empty() && (events.len() >= EVENTS_MAX || bytes + more > EVENTS_BYTES) {
            messages
                .push(of_part(Part::Events(v1::Events { events: std::mem::take(&mut events) })));
            bytes = 0;
        }
        bytes += more;
        events.push(event);
    }
    if !events.is_empty() {
        messages.push(of_part(Part::Events(v1::Events { events })));
    }
    messages
}

/// That nothing happened up to here.
pub(super) const fn of_progress(to: Revision) -> v1::WatchResponse {
    of_part(Part::Progress(revision_out(to)))
}

const fn of_part(part: Part) -> v1::WatchResponse {
    v1::WatchResponse { part: Some(part) }
}

/// A view as several of the same resource, each with as many holders as fit a message.
fn spread(mut view: v1::ResourceView) -> Vec<v1::ResourceView> {
    if view.encoded_len() <= STATE_BYTES_MAX {
        return vec![view];
    }
    let holders = std::mem::take(&mut view.holders);
    let rest = v1::ResourceView { resource: view.resource.clone(), ..Default::default() };
    let mut room = STATE_BYTES_MAX.saturating_sub(view.encoded_len());
    let mut views = vec![view];
    for holder in holders {
        let bytes = holder.encoded_len();
        if bytes > room {
            views.push(rest.clone());
            room = STATE_BYTES_MAX;
        }
        room = room.saturating_sub(bytes);
        views.last_mut().expect("there is one from the start").holders.push(holder);
    }
    views
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(holders: u64, value: usize) -> v1::ResourceView {
        let grant = |token| v1::Grant { token, value: vec![7; value].into(), ..Default::default() };
        v1::ResourceView {
            resource: "a".into(),
            holders: (1..=holders).map(grant).collect(),
            waiting: 3,
            ..Default::default()
        }
    }

    #[test]
    fn a_resource_with_very_many_holders_is_spread_over_messages_and_none_is_lost() {
        let resources = vec![held(1, 10), held(2_000, 4_000), held(1, 10)];
        let piece = Piece { resources, to: None, last: true };
        let messages = of_state(piece, Revision::end_of(7));
        assert!(messages.len() > 7, "{}", messages.len());
        let mut tokens = Vec::new();
        for (number, message) in messages.iter().enumerate() {
            assert!(message.encoded_len() < 2 * STATE_BYTES_MAX, "{}", message.encoded_len());
            let Some(Part::State(state)) = &message.part else { panic!("{message:?}") };
            assert_eq!(state.last, number == messages.len() - 1);
            let views = state.resources.iter();
            tokens.extend(views.flat_map(|view| view.holders.iter().map(|grant| grant.token)));
        }
        let all: Vec<u64> = [1].into_iter().chain(1..=2_000).chain([1]).collect();
        assert_eq!(tokens, all);
    }

    #[test]
    fn an_empty_state_is_one_message() {
        let piece = Piece { resources: Vec::new(), to: None, last: true };
        let messages = of_state(piece, Revision::end_of(7));
        let [v1::WatchResponse { part: Some(Part::State(state)) }] = &messages[..] else {
            panic!("{messages:?}")
        };
        assert!(state.last && state.resources.is_empty());
        assert_eq!(state.at, Some(v1::Revision { index: 7, ordinal: u32::MAX }));
    }
}
