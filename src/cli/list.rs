//! `ringfence list`.

use serde::Serialize;

use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::output::{self, Format};
use super::view::Resource;
use super::words;
use crate::wire::v1;

/// How many are asked for at once.
const PAGE: u32 = 1_000;

/// List what is held, waited for or kept closed, in order of the names
///
/// Each page of 1,000 is linearizable by itself; between pages the world goes on. Of
/// several holders the one with the lowest token is shown, of waiters their number;
/// `get` shows all. STATE `closed` is a lock delay that runs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence list                     everything
  ringfence list job/                names that begin with job/
  ringfence list --stale             from any node's memory, also when there is no leader
  ringfence list -o json | jq -r '.resources[] | select(.waiting > 0) | .resource'")]
pub struct Args {
    /// Only names that begin so
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,
    /// Take the answer from one node's memory: it may be old, but needs no majority
    #[arg(long)]
    stale: bool,
}

#[derive(Debug, Default, Serialize)]
struct Answer {
    resources: Vec<Resource>,
    /// The applied revision that the last page speaks of.
    index: u64,
    /// Whether any of it may be old.
    stale: bool,
}

/// Asks for all pages and prints.
///
/// # Errors
/// [`Exit::Unreachable`].
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let client = to.client()?;
    let mut answer = Answer::default();
    let mut after = String::new();
    loop {
        let (prefix, stale) = (args.prefix.clone(), args.stale);
        let page = client.list(v1::ListRequest { prefix, after, limit: PAGE, stale }).await?;
        answer.index = page.index;
        answer.stale |= page.stale;
        let last = page.resources.last().map(|resource| resource.resource.clone());
        answer.resources.extend(page.resources.into_iter().map(Resource::from));
        match last {
            Some(last) if page.more => after = last,
            Some(_) | None => break,
        }
    }
    match format {
        Format::Json => output::json(&answer)?,
        Format::Table => output::text(&table(&answer, &args.prefix))?,
    }
    Ok(Exit::Done)
}

fn table(answer: &Answer, prefix: &str) -> String {
    if answer.resources.is_empty() {
        let shown = output::shown(prefix);
        let under = if prefix.is_empty() { String::new() } else { format!(" under {shown}") };
        return format!("nothing is held or waited for{under}\n");
    }
    let rows = answer.resources.iter().map(|resource| {
        let holder = resource.holders.first();
        let token = holder.map_or_else(|| output::NONE.to_owned(), |held| held.token.to_string());
        let none = words::who(&std::collections::BTreeMap::new());
        let who = holder.map_or(none, |held| words::who(&held.labels));
        let waiting = resource.waiting.to_string();
        let mut row = vec![resource.resource.clone(), words::state(resource), token, waiting];
        row.extend(who);
        row
    });
    let header = [&["NAME", "STATE", "TOKEN", "WAITING"], words::WHO.as_slice()].concat();
    output::table(&header, rows)
}
