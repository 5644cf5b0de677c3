//! `ringfence ask`.

use std::time::Duration;

use serde::Serialize;

use super::by_hand::{self, Why};
use super::connect::{Connection, some_time};
use super::exit::{Exit, Failure};
use super::output::{self, Format, shown};
use super::view::{Fence, Revision};
use super::words::{self, quoted};
use super::{revoke, say};
use crate::client::{Client, Seen, Watching};
use crate::locks::Token;
use crate::wire::v1::{self, EventKind};

/// Ask the holder of exactly one grant to give it back
///
/// Its client is told with its next renewal, a third of its ttl from now at most: `lock`
/// and `elect` say so on their stderr, and send their command the signal of --on-ask. Nothing ends by itself when the time is over. With
/// --revoke-after this waits until the grant has ended, and revokes exactly this grant if
/// the time is over first.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence ask job/7 --token 41 --within 30s --reason 'web-3 is going down'
  ringfence ask job/7 --token 41 --within 30s --reason 'web-3 is going down' --revoke-after

EXIT CODES
   0  asked; with --revoke-after: the grant has ended
  64  usage
  69  unreachable: it may have been done; look before you try again
  77  refused: no grant on the resource has this token, or another reason")]
pub struct Args {
    /// The resource, such as job/7
    name: String,
    /// Token of the grant; `explain` and `get` show it
    #[arg(long)]
    token: u64,
    /// Within which time it should be given back: 1 ms to 24 h
    #[arg(long, value_name = "DURATION", value_parser = some_time)]
    within: Duration,
    /// Wait for it, and revoke the grant when the time is over
    #[arg(long)]
    revoke_after: bool,
    #[command(flatten)]
    why: Why,
}

#[derive(Debug, Serialize)]
struct Answer {
    resource: String,
    token: u64,
    asked_at: Revision,
    /// Whether the grant has ended; `false` if nobody waited for that.
    ended: bool,
    /// What shuts its holder out, if it was revoked.
    fences: Vec<Fence>,
}

/// Asks, waits if it should, and prints.
///
/// # Errors
/// As the help has it.
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let (token, note, client) = (Token::new(args.token)?, args.why.note()?, to.client()?);
    let (name, within) = (&args.name, args.within);
    let asked = client.ask_release(name, token, within, note.clone()).await;
    let asked_at = match asked {
        Ok(at) => Revision::from(at),
        Err(error) => return Err(by_hand::refused(&client, name, error).await),
    };
    let mut answer = Answer {
        resource: name.clone(),
        token: args.token,
        asked_at,
        ended: false,
        fences: vec![],
    };
    if args.revoke_after {
        say(&format!("{}: asked; waiting for its end", shown(name)));
        let end = tokio::time::timeout(within, end_of(&client, name, args.token)).await;
        answer.ended = true;
        match end {
            Ok(ended) => ended?,
            Err(_) => match revoke::revoke(&client, name, token, &note).await {
                Ok(fences) => answer.fences = fences,
                // It was given back at the last moment.
                Err(failure) if failure.exit == Exit::Refused => {}
                Err(failure) => return Err(failure),
            },
        }
    }
    tell(format, answer, within)
}

/// Returns when this grant is no more.
async fn end_of(client: &Client, name: &str, token: u64) -> Result<(), Failure> {
    let about = |error| Failure::from(error).about(shown(name));
    let mut watcher = client.watch(Watching::resource(name));
    let mut held = false;
    loop {
        let over = match watcher.next().await.map_err(about)? {
            Seen::State { resources, last, .. } => {
                // The holders of one resource may come in several parts.
                held |= holds(&resources, token);
                last && !held
            }
            Seen::Event(event) => event.kind() == EventKind::Ended && event.token == token,
            Seen::Progress(_) => false,
        };
        if over {
            return Ok(());
        }
    }
}

fn holds(resources: &[v1::ResourceView], token: u64) -> bool {
    resources.iter().flat_map(|resource| &resource.holders).any(|grant| grant.token == token)
}

fn tell(format: Format, answer: Answer, within: Duration) -> Result<Exit, Failure> {
    if format == Format::Json {
        output::json(&answer)?;
        return Ok(Exit::Done);
    }
    let (name, token) = (shown(&answer.resource), answer.token);
    if !answer.fences.is_empty() {
        say(&format!("{name}: not given back in time"));
        revoke::tell(format, answer.resource, Token::new(token)?, answer.fences)?;
        return Ok(Exit::Done);
    }
    let text = if answer.ended {
        format!("the grant on {name} with token {token} has ended\n")
    } else {
        let (at, within) = (words::at(Some(answer.asked_at)), humantime::format_duration(within));
        let word = quoted(&answer.resource);
        format!(
            "the holder of {name} with token {token} is asked at {at} to give it back within {within}\n\
             to end it then: ringfence revoke {word} --token {token} --reason …\n"
        )
    };
    output::text(&text)?;
    Ok(Exit::Done)
}
