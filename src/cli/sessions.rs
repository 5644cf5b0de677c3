//! `ringfence sessions`.

use std::time::Duration;

use serde::Serialize;

use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::output::{self, Format};
use super::words;
use crate::locks::Labels;
use crate::wire::v1;

/// How many are asked for at once.
const PAGE: u32 = 1_000;

/// List the live sessions: who has a lease, and how much it holds
///
/// A session is an owner's lease: it lives for its ttl after its last renewal, and
/// all it holds and waits for ends with it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence sessions
  ringfence sessions -o json | jq '.sessions[] | select(.labels.host == \"web-3\")'")]
pub struct Args {}

#[derive(Debug, Serialize)]
struct Session {
    session: u64,
    ttl_ms: u64,
    grants: u32,
    waits: u32,
    labels: Labels,
}

#[derive(Debug, Default, Serialize)]
struct Answer {
    sessions: Vec<Session>,
    /// The applied revision that the last page speaks of.
    index: u64,
}

/// Asks for all pages and prints.
///
/// # Errors
/// [`Exit::Unreachable`].
pub async fn run(to: &Connection, format: Format, _args: Args) -> Result<Exit, Failure> {
    let client = to.client()?;
    let mut answer = Answer::default();
    let mut after = 0;
    loop {
        let page = client.sessions(v1::ListSessionsRequest { after, limit: PAGE }).await?;
        answer.index = page.index;
        let more = page.more;
        answer.sessions.extend(page.sessions.into_iter().map(|view| Session {
            session: view.session,
            ttl_ms: view.ttl_ms,
            grants: view.grants,
            waits: view.waits,
            labels: view.labels,
        }));
        match answer.sessions.last() {
            Some(last) if more && last.session > after => after = last.session,
            Some(_) | None => break,
        }
    }
    match format {
        Format::Json => output::json(&answer)?,
        Format::Table => output::text(&table(&answer))?,
    }
    Ok(Exit::Done)
}

fn table(answer: &Answer) -> String {
    if answer.sessions.is_empty() {
        return "no session is live\n".to_owned();
    }
    let rows = answer.sessions.iter().map(|session| {
        let ttl = humantime::format_duration(Duration::from_millis(session.ttl_ms));
        let mut row = vec![session.session.to_string(), ttl.to_string()];
        row.extend([session.grants.to_string(), session.waits.to_string()]);
        row.extend(words::who(&session.labels));
        row
    });
    output::table(&[&["SESSION", "TTL", "GRANTS", "WAITS"], words::WHO.as_slice()].concat(), rows)
}
