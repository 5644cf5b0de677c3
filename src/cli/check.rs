//! `ringfence check`.

use serde::Serialize;

use super::connect::Connection;
use super::exit::{Exit, Failure};
use super::output::{self, Format};
use super::view::Grant;
use super::words;
use crate::locks::Token;

/// Ask whether a token is current: exit code 0 if so, 1 if it is stale
///
/// For destinations that can keep no mark of their own. It narrows the window, it
/// does not close it: the answer may be old when you act on it. A destination that
/// compares tokens in the same transaction as the write closes it; see `ringfence
/// fence --help`.
///
/// A grant in phase barrier, of a strict handoff that is not confirmed yet, is not
/// current.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence check job/7 41 && ./publish.sh
  ringfence check \"$RINGFENCE_NAME\" \"$RINGFENCE_TOKEN\"    in a command under `lock`

EXIT CODES
   0  current: the grant is live and active now
   1  stale: it has ended, or never was
  64  usage    69  unreachable    77  refused")]
pub struct Args {
    /// The resource, such as job/7
    name: String,
    /// The fencing token: 1 to 2^53 - 1
    token: u64,
}

#[derive(Debug, Serialize)]
struct Answer {
    resource: String,
    token: u64,
    current: bool,
    grant: Option<Grant>,
    /// The applied revision that this speaks of.
    index: u64,
}

/// Asks, prints, and answers with the exit code.
///
/// # Errors
/// [`Exit::Usage`] for a bad name or token, [`Exit::Unreachable`].
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let answer = to.client()?.check_token(&args.name, Token::new(args.token)?).await?;
    let answer = Answer {
        resource: args.name,
        token: args.token,
        current: answer.current,
        grant: answer.grant.map(Grant::from),
        index: answer.index,
    };
    match format {
        Format::Json => output::json(&answer)?,
        Format::Table => {
            let state = if answer.current { "current" } else { "stale" };
            let name = output::shown(&answer.resource);
            let share = answer.grant.as_ref().map(words::share).filter(|how| how != "exclusive");
            let how = share.map(|how| format!(" ({how})")).unwrap_or_default();
            output::text(&format!("token {} of {name} is {state}{how}\n", answer.token))?;
        }
    }
    Ok(if answer.current { Exit::Done } else { Exit::No })
}
