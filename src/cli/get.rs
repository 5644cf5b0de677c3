//! `ringfence get`.

use serde::Serialize;

use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::output::{self, Format, shown};
use super::view::{Grant, Resource};
use super::words;

/// Show who holds a resource and who waits for it
///
/// The answer is linearizable: it comes after a majority has confirmed the leader.
/// STARTED is wall-clock time of the holder's machine, for display only. Up to 100
/// waiters are shown, in their order.
///
/// To be told in words, with what happened last and what can be done, use `explain`. To
/// ask in a script whether a token is still good, use `check`.
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
    let name = shown(&resource.resource);
    if resource.is_free() {
        return format!("{name} is free: nobody holds it or waits for it\n");
    }
    let row = |state: String, token: String, session: u64, labels| {
        let mut row = vec![state, token, session.to_string()];
        row.extend(words::who(labels));
        row
    };
    let holders = resource.holders.iter().map(|grant| {
        let state = format!("held ({})", words::share(grant));
        row(state, grant.token.to_string(), grant.session, &grant.labels)
    });
    let waiters = resource.waiters.iter().zip(1..).map(|(waiter, place)| {
        let state = format!("waits #{place} ({})", words::wish(waiter, &resource.resource));
        row(state, output::NONE.to_owned(), waiter.session, &waiter.labels)
    });
    let rows: Vec<_> = holders.chain(waiters).collect();
    let mut text = String::new();
    if !rows.is_empty() {
        let header = [&["STATE", "TOKEN", "SESSION"], words::WHO.as_slice()].concat();
        text = output::table(&header, rows);
    }
    let more = resource.waiting.saturating_sub(resource.waiters.len() as u64);
    if more > 0 {
        text += &format!("and {more} more wait\n");
    }
    let closed = resource.frozen.iter().map(words::frozen);
    for closed in closed.chain(resource.closures.iter().map(words::closure)) {
        text += &format!("{name} is {closed}\n");
    }
    text + &resource
        .holders
        .iter()
        .map(|grant| remarks(grant, &resource.resource))
        .collect::<String>()
}

/// What else there is to say of a grant, a line each.
fn remarks(grant: &Grant, name: &str) -> String {
    let token = grant.token;
    let set = (!grant.set.is_empty())
        .then(|| format!("token {token} holds {} too\n", words::others(&grant.set, name)));
    let value = grant.value.told().map(|value| format!("token {token} shows {}\n", shown(&value)));
    let asked =
        grant.asked.as_ref().map(|asked| format!("token {token}: {}\n", words::asked(asked)));
    [set, value, asked].into_iter().flatten().collect()
}
