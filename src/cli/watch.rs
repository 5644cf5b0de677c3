//! `ringfence watch`.

use std::time::Duration;

use serde::Serialize;

use super::connect::Connection;
use super::events::{self, Event};
use super::exit::{Exit, Failure};
use super::output::{self, Format, shown};
use super::say;
use super::signals::Signals;
use super::view::{self, Resource};
use super::words::{self, wall_clock};
use crate::client::{Client, ClientError, Seen, Watcher, Watching};
use crate::locks::Revision;

/// Show what is so, and then everything that happens, as it happens
///
/// First a line for each resource that is held, waited for or closed, then a line for
/// each event, in the order of the log, without gaps, through any change of nodes. Each
/// line begins with the time at which this machine heard of it, for display only; what
/// counts is the revision after it. Ends at Ctrl-C, or when its reader has gone.
///
/// A watch goes on from the revision that it is given with --from, without the state
/// before. Nodes keep events for a while only: when those that it needs are gone, it ends
/// and says COMPACTED. Then watch anew, without --from: the state comes first.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence watch job/7
  ringfence watch --prefix job/
  ringfence watch --all                           the audit feed, sessions included
  ringfence watch --all --from 77.1               what happened after revision 77.1
  ringfence watch job/7 -o json | jq -c 'select(.kind == \"granted\") | .token'

JSON, ONE OBJECT A LINE
  {\"type\":\"state\",\"at\":…,\"last\":…,\"resources\":[…]}   one or more, `last` says so
  {\"type\":\"event\",\"at\":{\"index\":77,\"ordinal\":1},\"kind\":\"granted\",…}
  {\"type\":\"progress\",\"at\":…}                       nothing of it happened up to here

EXIT CODES
   0  ended by Ctrl-C, or its reader has gone
  64  usage
  69  unreachable: no node answered within --timeout
  77  refused: COMPACTED, or another reason")]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct Args {
    /// One resource, such as job/7
    #[arg(group = "what")]
    name: Option<String>,
    /// All resources whose names begin so
    #[arg(long, group = "what", value_name = "PREFIX")]
    prefix: Option<String>,
    /// Everything
    #[arg(long, group = "what")]
    all: bool,
    /// Only what happened after this revision, as an earlier watch on the same told it
    #[arg(long, value_name = "INDEX[.ORDINAL]", value_parser = revision)]
    from: Option<Revision>,
}

/// Reads a revision, `77.1`, or the end of an entry, `77`.
fn revision(text: &str) -> Result<Revision, String> {
    let read = |index: &str, ordinal: Option<&str>| {
        let ordinal = ordinal.map_or(Ok(u32::MAX), str::parse);
        Some(Revision { index: index.parse().ok()?, ordinal: ordinal.ok()? })
    };
    let parsed = match text.split_once('.') {
        Some((index, ordinal)) => read(index, Some(ordinal)),
        None => read(text, None),
    };
    let good = parsed.filter(|at| at.index > 0);
    good.ok_or_else(|| "must be a revision, such as 77.1, or a log index".to_owned())
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    State { at: view::Revision, last: bool, resources: Vec<Resource> },
    Event(Box<Event>),
    Progress { at: view::Revision },
}

/// Watches until there is a reason to end.
///
/// # Errors
/// As the help has it.
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let mut watcher = args.watcher(&to.client()?);
    let mut gone = std::pin::pin!(output::reader_gone());
    let mut last = args.from;
    loop {
        let seen = tokio::select! {
            biased;
            signal = signals.end() => {
                resume_hint(last);
                return Ok(Exit::interrupted(signal));
            }
            () = &mut gone => return Ok(Exit::Done),
            seen = watcher.next() => seen.map_err(|error| ended(error, last))?,
        };
        last = moved_on(last, &seen);
        let read = match format {
            Format::Json => output::json_line(&line(seen))?,
            Format::Table => told(seen)?,
        };
        if !read {
            return Ok(Exit::Done);
        }
    }
}

impl Args {
    fn watcher(&self, client: &Client) -> Watcher {
        let what = match (&self.name, &self.prefix) {
            (Some(name), _) => Watching::resource(name),
            (None, Some(prefix)) => Watching::prefix(prefix),
            (None, None) => Watching::everything(),
        };
        let watch = client.watch(what);
        match self.from {
            Some(from) => watch.resume_after(from),
            None => watch,
        }
    }
}

/// Where the watch can go on from after this. Before the last part of a state there is no
/// such revision, whatever happens between its parts.
fn moved_on(from: Option<Revision>, seen: &Seen) -> Option<Revision> {
    match seen {
        Seen::State { at, last: true, .. } => Some(*at),
        Seen::State { last: false, .. } => from,
        Seen::Event(event) => {
            let at = event.at.as_ref().map(|at| Revision { index: at.index, ordinal: at.ordinal });
            from.and(at).or(from)
        }
        Seen::Progress(at) => from.and(Some(*at)),
    }
}

fn resume_hint(last: Option<Revision>) {
    if let Some(at) = last.map(named) {
        say(&format!("ended after revision {at}; to go on from there: --from {at}"));
    }
}

/// As --from reads it.
fn named(at: Revision) -> String {
    words::at(Some(at.into()))
}

/// Why the watch is over, and what to do.
fn ended(error: ClientError, last: Option<Revision>) -> Failure {
    if error == ClientError::Compacted {
        let after = last.map_or_else(String::new, |at| format!(" after revision {}", named(at)));
        let message = format!(
            "COMPACTED: the events{after} are no longer kept, so some were missed. Watch anew, \
             without --from: the state comes first, then all that follows"
        );
        return Failure::new(Exit::Refused, message);
    }
    resume_hint(last);
    Failure::from(error)
}

fn line(seen: Seen) -> Line {
    match seen {
        Seen::State { resources, at, last } => {
            let resources = resources.into_iter().map(Resource::from).collect();
            Line::State { at: at.into(), last, resources }
        }
        Seen::Event(event) => Line::Event(Box::new(Event::from(event))),
        Seen::Progress(at) => Line::Progress { at: at.into() },
    }
}

/// Tells people. False if nobody reads any more.
fn told(seen: Seen) -> Result<bool, Failure> {
    let now = wall_clock(Duration::ZERO);
    match seen {
        Seen::State { resources, at, last } => {
            let at = named(at);
            for resource in resources.into_iter().map(Resource::from) {
                if !output::line(&format!("{now}  {at}  {}", state(&resource)))? {
                    return Ok(false);
                }
            }
            if last {
                say(&format!("that is the state at {at}; what happens from here on follows"));
            }
            Ok(true)
        }
        Seen::Event(event) => output::line(&format!("{now}  {}", events::line(&event))),
        Seen::Progress(_) => Ok(true),
    }
}

/// A resource as it was when the watch began.
fn state(resource: &Resource) -> String {
    let name = shown(&resource.resource);
    let is = match (words::obstacle(resource), resource.holders.first()) {
        (Some(obstacle), Some(grant)) => format!("{obstacle} ({})", words::share(grant)),
        (Some(obstacle), None) => obstacle,
        (None, _) if resource.waiting > 0 => "held by nobody".to_owned(),
        (None, _) => "free".to_owned(),
    };
    format!("{name}  is {is}; {} waiting", resource.waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::v1;

    #[test]
    fn a_watch_can_go_on_from_the_end_of_a_state_and_not_from_between_its_parts() {
        let revision = |index| Revision { index, ordinal: 0 };
        let state = |index, last| Seen::State { resources: vec![], at: revision(index), last };
        let event = |index| {
            let at = Some(v1::Revision { index, ordinal: 0 });
            Seen::Event(v1::Event { at, ..v1::Event::default() })
        };
        let parts =
            [state(5, false), event(6), state(7, true), event(8), Seen::Progress(revision(9))];
        let mut last = None;
        let from: Vec<_> = parts
            .iter()
            .map(|seen| {
                last = moved_on(last, seen);
                last.map(|at| at.index)
            })
            .collect();
        assert_eq!(from, [None, None, Some(7), Some(8), Some(9)]);
        assert_eq!(moved_on(Some(revision(3)), &event(4)), Some(revision(4)));
    }

    #[test]
    fn a_revision_is_an_index_and_an_ordinal() {
        assert_eq!(revision("77.1"), Ok(Revision { index: 77, ordinal: 1 }));
        assert_eq!(revision("77"), Ok(Revision { index: 77, ordinal: u32::MAX }));
        for bad in ["0", "0.0", "77.", ".1", "77.1.2", "-1.0", ""] {
            assert!(revision(bad).is_err(), "{bad}");
        }
    }
}
