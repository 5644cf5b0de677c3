//! `ringfence resize`.

use serde::Serialize;

use super::by_hand::{self, Why};
use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::output::{self, Format, shown};
use super::view::Fence;

/// Change how many slots a resource in use has
///
/// More are granted to waiters at once. Fewer take effect as holders leave: the slots
/// that are no more are not granted again, and once one is empty the fence that is
/// printed for it shuts its last holder out. From now on all who ask must name the new
/// number (`lock --slots N`); others are refused with CAPACITY_MISMATCH. When nobody
/// holds or awaits a slot any more, the number is forgotten.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence resize licence/cad --slots 8 --reason 'two more seats'

EXIT CODES
   0  resized
  64  usage
  69  unreachable: it may have been done; look before you try again
  77  refused: nobody holds or awaits a slot of it, or another reason")]
pub struct Args {
    /// The resource, such as job/7
    name: String,
    /// How many slots: 1 to 65,536
    #[arg(long, value_name = "N")]
    slots: u32,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Serialize)]
struct Answer {
    resource: String,
    slots: u32,
    /// Of the change; names no grant.
    token: u64,
    /// One for each slot that is no more: up to 1,024, the rest differ in the number of
    /// the slot only.
    removed: Vec<Fence>,
    /// The slots that are no more: from this one,
    removed_from: u32,
    /// to before this one.
    removed_to: u32,
}

/// Resizes and prints.
///
/// # Errors
/// As the help has it.
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let (client, note) = (to.client()?, args.why.note()?);
    let answer = match client.resize(&args.name, args.slots, note).await {
        Ok(answer) => answer,
        Err(error) => return Err(by_hand::refused(&client, &args.name, error).await),
    };
    let answer = Answer {
        resource: args.name,
        slots: answer.slots,
        token: answer.token.get(),
        removed: answer.removed.iter().map(Fence::from).collect(),
        removed_from: answer.range.start,
        removed_to: answer.range.end,
    };
    match format {
        Format::Json => output::json(&answer)?,
        Format::Table => output::text(&text(&answer))?,
    }
    Ok(Exit::Done)
}

fn text(answer: &Answer) -> String {
    let (name, slots) = (shown(&answer.resource), answer.slots);
    let mut text = format!("the number of slots of {name} is {slots}\n");
    if !answer.removed.is_empty() {
        let (from, last) = (answer.removed_from, answer.removed_to.saturating_sub(1));
        text += &format!("no more granted: slots {from} to {last}; when one is empty:\n");
        text += &by_hand::fences_told(&answer.removed);
    }
    text
}
