//! `ringfence queue`.

use serde::Serialize;

use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::output::{self, Format};
use super::view::{Resource, Waiter};
use super::words;

/// Show who waits for a resource, in order
///
/// There is one order over all modes, that of arrival: nobody overtakes. A run of
/// shared waiters at the head is granted together; one that waits for several
/// resources is granted when it heads all their queues and all of them are free. The
/// first 100 are shown. STARTED is wall-clock time of the waiter's machine, for
/// display only.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence queue job/7
  ringfence queue job/7 -o json | jq '.waiters[0].labels.host'")]
pub struct Args {
    /// The resource, such as job/7
    name: String,
}

#[derive(Debug, Serialize)]
struct Place {
    /// 1 is the next one.
    place: u64,
    #[serde(flatten)]
    waiter: Waiter,
}

#[derive(Debug, Serialize)]
struct Answer {
    resource: String,
    /// How many wait in all.
    waiting: u64,
    waiters: Vec<Place>,
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
    match format {
        Format::Table => output::text(&text(&resource))?,
        Format::Json => {
            let waiters = resource.waiters.into_iter().zip(1..);
            output::json(&Answer {
                resource: resource.resource,
                waiting: resource.waiting,
                waiters: waiters.map(|(waiter, place)| Place { place, waiter }).collect(),
                index: answer.index,
            })?;
        }
    }
    Ok(Exit::Done)
}

fn text(resource: &Resource) -> String {
    if resource.waiting == 0 {
        let name = output::shown(&resource.resource);
        let why = words::obstacle(resource).unwrap_or_else(|| "free".to_owned());
        return format!("nobody waits for {name}: it is {why}\n");
    }
    table(resource)
}

/// The waiters in their order, and how many more there are.
pub fn table(resource: &Resource) -> String {
    let rows = resource.waiters.iter().zip(1_u64..).map(|(waiter, place)| {
        let wish = words::wish(waiter, &resource.resource);
        let mut row = vec![place.to_string(), wish, waiter.session.to_string()];
        row.extend(words::who(&waiter.labels));
        row
    });
    let header = [&["PLACE", "MODE", "SESSION"], words::WHO.as_slice()].concat();
    let mut text = output::table(&header, rows);
    let more = resource.waiting.saturating_sub(resource.waiters.len() as u64);
    if more > 0 {
        text += &format!("and {more} more wait\n");
    }
    text
}
