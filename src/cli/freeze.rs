//! `ringfence freeze` and `ringfence thaw`.

use serde::Serialize;

use super::by_hand::{self, Why};
use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::output::{self, Format, shown};
use super::view::{Fence, Revision};
use super::words::{self, quoted};
use crate::locks::Token;

/// End all grants on a resource and keep it closed until it is thawed
///
/// The cutover tool: nobody holds it, nobody gets it. Who waits alone keeps its place;
/// who waits for several resources is refused with FROZEN, and so is a try. The fence
/// that is printed shuts every earlier holder out, slots included: raise it at every
/// destination. Its token is what `thaw` takes.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence freeze db/primary --reason 'move to db-2'
  ringfence freeze db/primary --reason 'move to db-2' -o json | jq .fence.token

EXIT CODES
   0  frozen
  64  usage
  69  unreachable: it may have been done; look before you try again
  77  refused: frozen already, or another reason")]
pub struct FreezeArgs {
    /// The resource, such as job/7
    name: String,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Serialize)]
struct Frozen {
    resource: String,
    fence: Fence,
}

/// Freezes and prints.
///
/// # Errors
/// As the help has it.
pub async fn freeze(to: &Connection, format: Format, args: FreezeArgs) -> Result<Exit, Failure> {
    let (client, note) = (to.client()?, args.why.note()?);
    let fence = match client.freeze(&args.name, note).await {
        Ok(fence) => Fence::from(&fence),
        Err(error) => return Err(by_hand::refused(&client, &args.name, error).await),
    };
    match format {
        Format::Json => output::json(&Frozen { resource: args.name, fence })?,
        Format::Table => {
            let (name, token) = (shown(&args.name), fence.token);
            let fences = by_hand::fences_told(&[fence]);
            let thaw = format!("ringfence thaw {} --token {token} --reason …", quoted(&args.name));
            output::text(&format!("{name} is frozen\n{fences}To open it again: {thaw}\n"))?;
        }
    }
    Ok(Exit::Done)
}

/// Open what exactly one freeze keeps closed
///
/// The freeze is named by its token, so that a later one is not undone by mistake. The
/// first waiter is granted the resource at once.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence explain db/primary                     who froze it, with which token
  ringfence thaw db/primary --token 42 --reason 'db-2 is up'

EXIT CODES
   0  thawed
  64  usage
  69  unreachable: it may have been done; look before you try again
  77  refused: no freeze of the resource has this token, or another reason")]
pub struct ThawArgs {
    /// The resource, such as job/7
    name: String,
    /// Token of the freeze; `explain` and `get` show it
    #[arg(long)]
    token: u64,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Serialize)]
struct Thawed {
    resource: String,
    /// Of the freeze that is over.
    token: u64,
    thawed_at: Revision,
}

/// Thaws and prints.
///
/// # Errors
/// As the help has it.
pub async fn thaw(to: &Connection, format: Format, args: ThawArgs) -> Result<Exit, Failure> {
    let (token, note, client) = (Token::new(args.token)?, args.why.note()?, to.client()?);
    let thawed_at = match client.thaw(&args.name, token, note).await {
        Ok(at) => Revision::from(at),
        Err(error) => return Err(by_hand::refused(&client, &args.name, error).await),
    };
    match format {
        Format::Json => {
            output::json(&Thawed { resource: args.name, token: args.token, thawed_at })?;
        }
        Format::Table => {
            let (name, at) = (shown(&args.name), words::at(Some(thawed_at)));
            output::text(&format!("{name} is open again since {at}\n"))?;
        }
    }
    Ok(Exit::Done)
}
