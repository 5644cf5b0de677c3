//! `ringfence explain`.

use serde::Serialize;

use super::connect::Connection;
use super::events::{self, Event};
use super::exit::{Exit, Failure};
use super::output::{self, Format, shown};
use super::queue;
use super::view::{Grant, Resource, Revision};
use super::words::{self, lasting, quoted};
use crate::wire::v1;

/// How many holders are told one by one.
const HOLDERS_TOLD_MAX: usize = 20;

/// Say in words who holds a resource and why it is not free, and what can be done
///
/// First who holds it or what keeps it closed, and when that ends by itself; then who
/// waits, in order; then the last things that happened to it, as far back as the
/// answering node remembers; last the command that an administrator would take next.
/// Times are those of the leader's clock.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence explain job/7
  ringfence explain job/7 -o json | jq '.leases[0].ends_in_ms'")]
pub struct Args {
    /// The resource, such as job/7
    name: String,
}

#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    resource: Resource,
    /// For each holder, in the same order.
    leases: Vec<Lease>,
    /// Oldest first.
    events: Vec<Event>,
    /// Events before this revision are no longer kept by that node.
    events_since: Option<Revision>,
    /// The applied revision that this speaks of.
    index: u64,
}

#[derive(Debug, Serialize)]
struct Lease {
    session: u64,
    ttl_ms: u64,
    /// 0 if its time is up and its end is under way.
    ends_in_ms: u64,
    /// 0 unless the grant is in phase barrier.
    barrier_left_ms: u64,
}

/// Asks and prints.
///
/// # Errors
/// [`Exit::Usage`] for a bad name, [`Exit::Unreachable`].
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let told = to.client()?.explain(&args.name).await?;
    match format {
        Format::Json => output::json(&answer(&args.name, told))?,
        Format::Table => output::text(&text(&args.name, told))?,
    }
    Ok(Exit::Done)
}

fn answer(name: &str, told: v1::ExplainResponse) -> Answer {
    Answer {
        resource: resource(name, told.resource, &told.closures_left_ms),
        leases: told.leases.iter().map(Lease::from).collect(),
        events: told.events.into_iter().map(Event::from).collect(),
        events_since: told.events_since.map(Revision::from),
        index: told.index,
    }
}

impl From<&v1::HolderLease> for Lease {
    fn from(lease: &v1::HolderLease) -> Self {
        Self {
            session: lease.session,
            ttl_ms: lease.ttl_ms,
            ends_in_ms: lease.ends_in_ms,
            barrier_left_ms: lease.barrier_left_ms,
        }
    }
}

fn resource(name: &str, view: Option<v1::ResourceView>, left_ms: &[u64]) -> Resource {
    let mut resource = Resource::from(view.unwrap_or_default());
    // Of a resource that nobody holds or waits for the authority keeps no record.
    name.clone_into(&mut resource.resource);
    for (closure, left) in resource.closures.iter_mut().zip(left_ms) {
        closure.left_ms = Some(*left);
    }
    resource
}

/// All of it in words.
fn text(name: &str, told: v1::ExplainResponse) -> String {
    let events: Vec<_> = told.events.iter().map(events::line).collect();
    let since = told.events_since.map(Revision::from);
    let leases: Vec<_> = told.leases.iter().map(Lease::from).collect();
    let resource = resource(name, told.resource, &told.closures_left_ms);
    let mut text = why(&resource, &leases);
    if resource.waiting > 0 {
        text += &format!("\n{} waiting, the first one is next:\n", resource.waiting);
        text += &queue::table(&resource);
    }
    if events.is_empty() {
        text += &format!("\nnothing happened to it since {}\n", words::at(since));
    } else {
        text += "\nwhat happened last:\n";
        text += &events.iter().map(|event| format!("  {event}\n")).collect::<String>();
    }
    match advice(&resource) {
        Some(advice) => format!("{text}\n{advice}\n"),
        None => text,
    }
}

/// Who holds it, or what keeps it closed; a line each.
fn why(resource: &Resource, leases: &[Lease]) -> String {
    let name = shown(&resource.resource);
    let mut text = String::new();
    if let Some(frozen) = &resource.frozen {
        text += &format!("{name} is {}\n", words::frozen(frozen));
    }
    for (grant, at) in resource.holders.iter().zip(0..).take(HOLDERS_TOLD_MAX) {
        text += &held(grant, leases.get(at), &resource.resource);
    }
    let more = resource.holders.len().saturating_sub(HOLDERS_TOLD_MAX);
    if more > 0 {
        text += &format!("{name} is held by {more} more; see `ringfence get {}`\n", quoted(&name));
    }
    for closure in &resource.closures {
        text += &format!("{name} is {}\n", words::closure(closure));
    }
    if !text.is_empty() {
        return text;
    }
    match resource.waiters.first() {
        Some(first) if !first.set.is_empty() => format!(
            "nobody holds {name}; it is kept for the first waiter, session s{}, who waits for {} too\n",
            first.session,
            words::others(&first.set, &resource.resource)
        ),
        Some(_) => format!("nobody holds {name}; the first waiter is about to get it\n"),
        None => format!("{name} is free: nobody holds it or waits for it\n"),
    }
}

/// One grant: who, how, since when, and when it ends by itself.
fn held(grant: &Grant, lease: Option<&Lease>, name: &str) -> String {
    let (shown_name, owner) = (shown(name), words::owner(&grant.labels, grant.session));
    let mode = match grant.slot {
        Some(slot) => format!("slot {slot} of {}", grant.slots),
        None => grant.mode.to_owned(),
    };
    let (token, phase, since) = (grant.token, grant.phase, words::at(grant.granted_at));
    let ends = match lease.map(|lease| lease.ends_in_ms) {
        None => String::new(),
        Some(0) => "; its lease is over and its end is under way".to_owned(),
        Some(left) => format!("; its lease ends in {} unless renewed", lasting(left)),
    };
    let mut text = format!(
        "{shown_name} is held by {owner} with token {token}, {mode}, {phase}, since revision \
         {since}{ends}\n"
    );
    if let Some(lease) = lease.filter(|_| phase == "barrier") {
        let left = lasting(lease.barrier_left_ms);
        text +=
            &format!("  in phase barrier: not confirmed yet, ends in {left} unless confirmed\n");
    }
    if let Some(started) = grant.labels.get(words::STARTED) {
        let started = shown(started);
        text += &format!("  started {started} by the clock of its own machine\n");
    }
    if !grant.set.is_empty() {
        text +=
            &format!("  together with {}: they end together\n", words::others(&grant.set, name));
    }
    if let Some(asked) = &grant.asked {
        text += &format!("  {}\n", words::asked(asked));
    }
    if let Some(value) = grant.value.told() {
        text += &format!("  it shows {}\n", shown(&value));
    }
    if grant.lock_delay_ms > 0 {
        let delay = lasting(grant.lock_delay_ms);
        text += &format!("  after its expiry or revoke {shown_name} stays closed for {delay}\n");
    }
    text
}

/// What an administrator would do next.
fn advice(resource: &Resource) -> Option<String> {
    let name = quoted(&resource.resource);
    if let Some(frozen) = &resource.frozen {
        return Some(format!(
            "to open it:      ringfence thaw {name} --token {} --reason …",
            frozen.token
        ));
    }
    let token = resource.holders.first()?.token;
    Some(format!(
        "to ask for it:   ringfence ask {name} --token {token} --within 30s --reason …\n\
         to end it:       ringfence revoke {name} --token {token} --reason …"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> v1::Grant {
        v1::Grant {
            token: 41,
            floor: 41,
            mode: v1::Mode::Exclusive.into(),
            phase: v1::Phase::Active.into(),
            session: 12,
            granted_at: Some(v1::Revision { index: 77, ordinal: 0 }),
            labels: [("host", "web-3"), ("pid", "9")].map(|(k, v)| (k.into(), v.into())).into(),
            ..v1::Grant::default()
        }
    }

    fn note() -> Option<v1::Note> {
        Some(v1::Note { actor: "alice".to_owned(), reason: "cutover".to_owned() })
    }

    fn told(resource: v1::ResourceView, left_ms: u64) -> v1::ExplainResponse {
        let lease = v1::HolderLease {
            session: 12,
            ttl_ms: 10_000,
            ends_in_ms: left_ms,
            barrier_left_ms: 12_000,
        };
        v1::ExplainResponse {
            leases: vec![lease; resource.holders.len()],
            closures_left_ms: vec![3_100; resource.closures.len()],
            resource: Some(resource),
            events_since: Some(v1::Revision { index: 1, ordinal: 0 }),
            ..v1::ExplainResponse::default()
        }
    }

    #[test]
    fn a_holder_is_told_with_token_phase_lease_and_what_to_do() {
        let held = v1::ResourceView { holders: vec![grant()], ..v1::ResourceView::default() };
        let want = "\
job/7 is held by host web-3 pid 9 (session s12) with token 41, exclusive, active, since revision \
                    77.0; its lease ends in 8.2 s unless renewed

nothing happened to it since 1.0

to ask for it:   ringfence ask job/7 --token 41 --within 30s --reason …
to end it:       ringfence revoke job/7 --token 41 --reason …
";
        assert_eq!(text("job/7", told(held.clone(), 8_200)), want);
        let over = text("job/7", told(held, 0));
        assert!(over.contains("; its lease is over and its end is under way\n"), "{over}");
    }

    #[test]
    fn what_else_a_grant_has_is_told_in_a_line_each() {
        let asked = v1::Asked {
            at: Some(v1::Revision { index: 80, ordinal: 0 }),
            within_ms: 30_000,
            note: note(),
        };
        let grant = v1::Grant {
            phase: v1::Phase::Barrier.into(),
            set: vec!["a".to_owned(), "job/7".to_owned()],
            asked: Some(asked),
            value: b"db-2".to_vec().into(),
            lock_delay_ms: 5_000,
            ..grant()
        };
        let view = v1::ResourceView { holders: vec![grant], ..v1::ResourceView::default() };
        let text = text("job/7", told(view, 8_200));
        let lines: Vec<_> = text.lines().skip(1).take(5).collect();
        let want = [
            "  in phase barrier: not confirmed yet, ends in 12 s unless confirmed",
            "  together with a: they end together",
            "  alice asked for it at 80.0, within 30 s: cutover",
            "  it shows db-2",
            "  after its expiry or revoke job/7 stays closed for 5 s",
        ];
        assert_eq!(lines, want);
    }

    #[test]
    fn what_is_free_frozen_or_closed_is_told_so() {
        let free = text("job/7", told(v1::ResourceView::default(), 0));
        assert!(free.starts_with("job/7 is free: nobody holds it or waits for it\n"), "{free}");
        let since = Some(v1::Revision { index: 80, ordinal: 1 });
        let frozen = Some(v1::Frozen { token: 42, since, note: note() });
        let told_frozen =
            text("job 7", told(v1::ResourceView { frozen, ..v1::ResourceView::default() }, 0));
        let want = "job 7 is frozen by alice since 80.1 with token 42: cutover\n";
        assert!(told_frozen.starts_with(want), "{told_frozen}");
        let advice = "to open it:      ringfence thaw 'job 7' --token 42 --reason …\n";
        assert!(told_frozen.ends_with(advice), "{told_frozen}");
        let closure = v1::Closure { token: 40, delay_ms: 5_000, since, ..v1::Closure::default() };
        let view = v1::ResourceView { closures: vec![closure], ..v1::ResourceView::default() };
        let closed = text("job/7", told(view, 0));
        let want = "job/7 is closed for another 3.1 s by the lock delay after token 40\n";
        assert!(closed.starts_with(want), "{closed}");
    }

    #[test]
    fn a_resource_kept_for_a_set_at_the_head_says_so() {
        let set = ["a", "b"].map(str::to_owned).to_vec();
        let waiter = v1::Waiter { session: 5, set, ..v1::Waiter::default() };
        let waiters = vec![waiter];
        let view = v1::ResourceView { waiters, waiting: 1, ..v1::ResourceView::default() };
        let text = text("a", told(view, 0));
        let want =
            "nobody holds a; it is kept for the first waiter, session s5, who waits for b too\n";
        assert!(text.starts_with(want), "{text}");
        assert!(text.contains("\n1 waiting, the first one is next:\nPLACE   MODE"), "{text}");
    }
}
