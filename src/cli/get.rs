//! `ringfence get`.

use serde::Serialize;

use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::output::{self, Format};
use super::view::{self, Resource};

/// Show who holds a resource and who waits for it
///
/// The answer is linearizable: it comes after a majority has confirmed the leader.
/// STARTED is wall-clock time of the holder's machine, for display only. Up to 100
/// waiters are shown, in their order.
///
/// To ask in a script whether a token is still good, use `check`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence get job/7
  ringfence get job/7 -o json | jq '.holders[0].token'")]
pub struct Args {
    /// The resource, such as job/7
    name: String,
}

#[derive(Debug, Serialize)]
struct Answer {
    #[serde(flatten)]
    resource: Resource,
    /// The applied revision that this speaks of.
    index: u64,
}

/// Asks and prints.
///
/// # Errors
/// [`Exit::Usage`] for a bad name, [`Exit::Unreachable`].
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let answer = to.client()?.get(&args.name).await?;
    let mut resource = Resource::from(answer.resource.unwrap_or_default());
    // Of a resource that nobody holds or waits for the authority keeps no record.
    resource.resource = args.name;
    let answer = Answer { resource, index: answer.index };
    match format {
        Format::Json => output::json(&answer)?,
        Format::Table => output::text(&table(&answer.resource))?,
    }
    Ok(Exit::Done)
}

fn table(resource: &Resource) -> String {
    let shown = output::shown(&resource.resource);
    if resource.holders.is_empty() && resource.waiting == 0 {
        return format!("{shown} is free: nobody holds it or waits for it\n");
    }
    let row = |state: String, token: String, session: u64, labels| {
        let mut row = vec![state, token, session.to_string()];
        row.extend(view::who(labels));
        row
    };
    let holders = resource.holders.iter().map(|grant| {
        row(format!("held ({})", grant.mode), grant.token.to_string(), grant.session, &grant.labels)
    });
    let waiters = resource.waiters.iter().zip(1..).map(|(waiter, place)| {
        let state = format!("waits #{place}");
        row(state, output::NONE.to_owned(), waiter.session, &waiter.labels)
    });
    let mut text = output::table(
        &[&["STATE", "TOKEN", "SESSION"], view::WHO.as_slice()].concat(),
        holders.chain(waiters),
    );
    let more = resource.waiting.saturating_sub(resource.waiters.len() as u64);
    if more > 0 {
        text += &format!("and {more} more wait\n");
    }
    text
}
