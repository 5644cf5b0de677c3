//! `ringfence revoke`.

use serde::Serialize;

use super::by_hand::{self, Why};
use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::output::{self, Format, shown};
use super::view::Fence;
use crate::client::Client;
use crate::locks::{Note, Token};

/// End exactly one grant, and say what shuts its holder out at destinations
///
/// The grant is named by its token, so that a newer holder is never hit: if the token is
/// not current any more, nothing is done, and the answer says who holds the resource
/// now. A grant on several resources ends whole.
///
/// The holder is told, but may be paused or cut off and write all the same. What stops
/// it is the fence that is printed: raise it at every destination. If there is a next
/// holder, its first write does the same.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence explain job/7                          who holds it, with which token
  ringfence revoke job/7 --token 41 --reason 'web-3 hangs, see ticket 812'
  ringfence revoke job/7 --token 41 --reason … -o json | jq '.fences[0]'

EXIT CODES
   0  ended
  64  usage
  69  unreachable: it may have been done; look before you try again
  77  refused: no grant on the resource has this token, or another reason")]
pub struct Args {
    /// The resource, such as job/7
    name: String,
    /// Token of the grant; `explain` and `get` show it
    #[arg(long)]
    token: u64,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Serialize)]
struct Answer {
    resource: String,
    /// Of the grant that was ended.
    token: u64,
    fences: Vec<Fence>,
}

/// Revokes and prints.
///
/// # Errors
/// As the help has it.
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let (token, note) = (Token::new(args.token)?, args.why.note()?);
    let fences = revoke(&to.client()?, &args.name, token, &note).await?;
    tell(format, args.name, token, fences)?;
    Ok(Exit::Done)
}

/// Ends this grant.
///
/// # Errors
/// [`Exit::Refused`] with the present holder if it is not this one.
pub async fn revoke(
    client: &Client,
    name: &str,
    token: Token,
    note: &Note,
) -> Result<Vec<Fence>, Failure> {
    match client.revoke(name, token, note.clone()).await {
        Ok(fences) => Ok(fences.iter().map(Fence::from).collect()),
        Err(error) => Err(by_hand::refused(client, name, error).await),
    }
}

/// Prints what shuts the holder out.
///
/// # Errors
/// What stdout says.
pub fn tell(
    format: Format,
    resource: String,
    token: Token,
    fences: Vec<Fence>,
) -> Result<(), Failure> {
    let token = token.get();
    match format {
        Format::Json => output::json(&Answer { resource, token, fences }),
        Format::Table => {
            let name = shown(&resource);
            let mut text = format!("the grant on {name} with token {token} has ended\n");
            text += &by_hand::fences_told(&fences);
            output::text(&text)
        }
    }
}
