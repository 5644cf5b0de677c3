//! Why a resource is held or closed, who waits in which order, and what happened to
//! it last.

use tonic::Status;

use crate::api::node::Node;
use crate::api::refusals::invalid;
use crate::authority::State;
use crate::feed::names_of;
use crate::leases::{Leases, Moment};
use crate::locks::{GrantRow, LockTable, ResourceName, Revision, Timer};
use crate::wire::events::event_out;
use crate::wire::v1;
use crate::wire::views::{CLOSURES_LISTED_MAX, Listed, resource_out, revision_out};

/// How many events are told.
const EVENTS_LISTED_MAX: usize = 64;
/// How many events are read under one lock.
const EVENTS_PER_READ: usize = 1_024;

pub(super) async fn explain(
    node: &Node,
    request: v1::ExplainRequest,
) -> Result<v1::ExplainResponse, Status> {
    let name = ResourceName::new(&request.resource).map_err(|e| invalid(&e))?;
    node.confirm().await?;
    let explained = explained(&node.authority.lock(), &name, Moment::now());
    let (events, since) = last_events(node, &name, explained.index).await;
    Ok(v1::ExplainResponse { events, events_since: Some(revision_out(since)), ..explained })
}

/// All but the events.
fn explained(state: &State, name: &ResourceName, now: Moment) -> v1::ExplainResponse {
    let (table, leases) = (&state.table, &state.leases);
    let index = table.position().index;
    let Some(view) = table.resource(name) else {
        let resource = v1::ResourceView { resource: name.to_string(), ..Default::default() };
        return v1::ExplainResponse { resource: Some(resource), index, ..Default::default() };
    };
    let left = |token| left_ms(leases.timer(Timer::Closure(token)), now);
    let resource = resource_out(table, &view, Listed::ALONE);
    let holders = view.holders().take(resource.holders.len());
    let closures = view.closures().take(CLOSURES_LISTED_MAX);
    v1::ExplainResponse {
        leases: holders.map(|grant| lease(table, leases, grant, now)).collect(),
        closures_left_ms: closures.map(|closure| left(closure.token)).collect(),
        resource: Some(resource),
        index,
        ..Default::default()
    }
}

fn lease(table: &LockTable, leases: &Leases, grant: &GrantRow, now: Moment) -> v1::HolderLease {
    let session = grant.wait.session;
    v1::HolderLease {
        session: session.0,
        ttl_ms: table.session(session).map_or(0, |view| view.row.ttl.0),
        ends_in_ms: left_ms(leases.deadline(session), now),
        barrier_left_ms: left_ms(leases.timer(Timer::Barrier(grant.token)), now),
    }
}

/// Rounded up: 0 only if the time is up.
fn left_ms(until: Option<Moment>, now: Moment) -> u64 {
    let left = until.map_or(0, |until| until.since(now).as_micros().div_ceil(1_000));
    u64::try_from(left).unwrap_or(u64::MAX)
}

/// The last events of a resource up to an index, oldest first, and after which
/// revision all are kept. Looks through a piece at a time, apart from the lock.
async fn last_events(node: &Node, name: &ResourceName, index: u64) -> (Vec<v1::Event>, Revision) {
    let mut found = Vec::new();
    let mut before = index + 1;
    loop {
        let (entries, since) = {
            let state = node.authority.lock();
            (state.feed.before(before, EVENTS_PER_READ), state.feed.since())
        };
        let events = entries.iter().flat_map(|entry| entry.events.iter().rev());
        let of_it = events.filter(|event| names_of(event).contains(name));
        found.extend(of_it.take(EVENTS_LISTED_MAX - found.len()).map(event_out));
        match entries.last() {
            Some(oldest) if found.len() < EVENTS_LISTED_MAX => before = oldest.index(),
            Some(_) | None => {
                found.reverse();
                return (found, since);
            }
        }
        tokio::task::yield_now().await;
    }
}
