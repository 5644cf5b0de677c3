//! The state and events of a watch, cut into messages that every client accepts.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;

use crate::authority::State;
use crate::feed::{EntryEvents, Topic};
use crate::locks::{Event, LockTable, ResourceName, ResourceView, Revision};
use crate::wire::events::event_out;
use crate::wire::v1;
use crate::wire::v1::watch_response::Part;
use crate::wire::views::{Listed, grant_out, resource_out, revision_out};

/// How many resources are read under one lock.
const RESOURCES_PER_PART_MAX: usize = 256;
/// About how many bytes of the state are read under one lock, and sent in one message:
/// clients accept 4 MiB if they set nothing.
const PART_BYTES: usize = 256 << 10;
/// How many events one message holds.
const EVENTS_MAX: usize = 256;
/// About how many bytes of events: this much may be buffered for each watcher that does
/// not read.
const EVENTS_BYTES: usize = 64 << 10;

/// A piece of the state, as read under one lock.
pub(super) struct Piece {
    pub resources: Vec<v1::ResourceView>,
    /// Up to where it is told then; `None` if that is all.
    pub next: Option<Told>,
}

/// Up to where the state is told.
#[derive(Debug, Clone)]
pub(super) struct Told {
    /// The last name.
    pub name: ResourceName,
    /// Of its holders, these are to be told yet.
    rest: Option<Holders>,
}

/// Holders of one resource, by token. Whoever was granted it after its first part is
/// not among them: that is told as an event.
#[derive(Debug, Clone, Copy)]
struct Holders {
    after: u64,
    to: u64,
}

/// Reads the next piece of the state.
pub(super) fn piece(state: &State, topic: &Topic, told: Option<&Told>) -> Piece {
    let table = &state.table;
    let mut resources = Vec::new();
    let mut bytes = 0;
    if let Some(Told { name, rest: Some(rest) }) = told
        && let Some(view) = table.resource(name)
    {
        let (resource, rest) = more_holders(table, &view, *rest);
        bytes = resource.encoded_len();
        resources.push(resource);
        if rest.is_some() {
            return Piece { resources, next: Some(Told { name: name.clone(), rest }) };
        }
    }
    let listed = match topic {
        Topic::Resource(_) => Listed::ALONE,
        Topic::Prefix(_) | Topic::Everything => Listed::AMONG_MANY,
    };
    let mut last = told.map(|told| &told.name);
    for view in views(table, topic, last) {
        if resources.len() >= RESOURCES_PER_PART_MAX || bytes >= PART_BYTES {
            let name = last.cloned().expect("what takes the room has a name");
            return Piece { resources, next: Some(Told { name, rest: None }) };
        }
        let listed = listed.with_holders_of(PART_BYTES - bytes);
        let resource = resource_out(table, &view, listed);
        let (told, after) = (resource.holders.len(), resource.holders.last().map(|one| one.token));
        bytes += resource.encoded_len();
        resources.push(resource);
        last = Some(view.name);
        if told < view.holding() {
            let rest = Holders { after: after.unwrap_or(0), to: table.token() };
            let next = Told { name: view.name.clone(), rest: Some(rest) };
            return Piece { resources, next: Some(next) };
        }
    }
    Piece { resources, next: None }
}

/// What is watched of the state, after a name.
fn views<'t>(
    table: &'t LockTable,
    topic: &'t Topic,
    after: Option<&'t ResourceName>,
) -> Box<dyn Iterator<Item = ResourceView<'t>> + 't> {
    match topic {
        Topic::Resource(name) => match after {
            Some(_) => Box::new(std::iter::empty()),
            None => Box::new(table.resource(name).into_iter()),
        },
        Topic::Prefix(prefix) => Box::new(table.resources_with_prefix(prefix, after)),
        Topic::Everything => Box::new(table.resources_with_prefix("", after)),
    }
}

/// Those of the holders that fit, under the name of their resource, and what is left.
fn more_holders(
    table: &LockTable,
    view: &ResourceView<'_>,
    Holders { mut after, to }: Holders,
) -> (v1::ResourceView, Option<Holders>) {
    let mut more = v1::ResourceView { resource: view.name.to_string(), ..Default::default() };
    let mut room = PART_BYTES;
    for grant in view.holders_between(after, to) {
        if room == 0 {
            return (more, Some(Holders { after, to }));
        }
        let holder = grant_out(table, grant, view.name);
        room = room.saturating_sub(holder.encoded_len());
        after = holder.token;
        more.holders.push(holder);
    }
    (more, None)
}

/// The piece as a message.
pub(super) fn of_state(piece: Piece, at: Revision) -> v1::WatchResponse {
    let (resources, last) = (piece.resources, piece.next.is_none());
    of_part(Part::State(v1::State { resources, at: Some(revision_out(at)), last }))
}

/// Those of the events asked for that fit into one message, if any.
pub(super) struct Fitting {
    pub message: Option<v1::WatchResponse>,
    /// The last event in it, and the entry that has the first one that did not fit.
    pub cut: Option<(Revision, usize)>,
}

/// The first of these events that are asked for.
pub(super) fn of_events(entries: &[Arc<EntryEvents>], asked: impl Fn(&Event) -> bool) -> Fitting {
    let (mut events, mut bytes, mut told) = (Vec::new(), 0, Revision::default());
    let mut cut = None;
    'full: for (number, entry) in entries.iter().enumerate() {
        for event in entry.events.iter().filter(|event| asked(event)) {
            let out = event_out(event);
            let more = out.encoded_len();
            if !events.is_empty() && (events.len() >= EVENTS_MAX || bytes + more > EVENTS_BYTES) {
                cut = Some((told, number));
                break 'full;
            }
            (bytes, told) = (bytes + more, event.at);
            events.push(out);
        }
    }
    let message = (!events.is_empty()).then(|| of_part(Part::Events(v1::Events { events })));
    Fitting { message, cut }
}

/// That nothing happened up to here.
pub(super) const fn of_progress(to: Revision) -> v1::WatchResponse {
    of_part(Part::Progress(revision_out(to)))
}

const fn of_part(part: Part) -> v1::WatchResponse {
    v1::WatchResponse { part: Some(part), cluster_id: Bytes::new() }
}
