//! A worker of the demo: what an application is, with the public client and the
//! destination's fence. It does as it is told, line by line, so that the story can stop
//! it wherever it likes.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::role::{Answer, Order};
use super::store::{self, Row, Store};
use crate::cli::connect::{Connection, some_time};
use crate::cli::exit::{Exit, Failure};
use crate::client::{Guard, Loss, Session, State};
use crate::fence::FenceError;

/// Work as the demo says; started by it
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Who it is
    #[arg(long)]
    name: String,
    /// What it writes to
    #[arg(long)]
    destination: String,
    /// Its lease
    #[arg(long, value_parser = some_time)]
    ttl: Duration,
}

struct Worker {
    name: String,
    session: Session,
    destination: Box<dyn Store>,
    guard: Option<Guard>,
}

/// Works until nobody tells it anything any more.
///
/// # Errors
/// It has no session, or no destination.
pub async fn run(to: &Connection, args: Args) -> Result<Exit, Failure> {
    let destination = store::open(&args.destination).await?;
    let session = to.client()?.session(args.ttl).purpose("demo").await?;
    let mut worker = Worker { name: args.name, session, destination, guard: None };
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = orders.next_line().await? {
        let order = serde_json::from_str(&line).context("the demo is of another version")?;
        let answer = worker.follow(order).await;
        let answer = answer.unwrap_or_else(|error| Answer::Failed(format!("{error:#}")));
        let line = serde_json::to_string(&answer).map_err(std::io::Error::from)?;
        writeln!(std::io::stdout(), "{line}")?;
    }
    Ok(Exit::Done)
}

impl Worker {
    async fn follow(&mut self, order: Order) -> anyhow::Result<Answer> {
        if let Order::Take(resource) = order {
            let guard = self.session.acquire(resource).await?;
            let token = guard.token().get();
            self.guard = Some(guard);
            return Ok(Answer::Granted(token));
        }
        let guard = self.guard.as_ref().context("nothing was taken yet")?;
        match order {
            Order::Take(_) => unreachable!("handled above"),
            Order::Raise => Ok(written(self.destination.raise(guard.fence()).await)?),
            Order::Publish(result) => {
                let row = row(&self.name, guard, result);
                Ok(written(self.destination.publish(guard.fence(), &row).await)?)
            }
            Order::PublishUnguarded(result) => {
                let row = row(&self.name, guard, result);
                self.destination.publish_unguarded(guard.resource().as_str(), &row).await?;
                Ok(Answer::Done)
            }
            Order::Look => Ok(look(guard)),
            Order::AwaitLoss => {
                guard.lost().await;
                Ok(look(guard))
            }
        }
    }
}

fn row(name: &str, guard: &Guard, result: String) -> Row {
    Row { worker: name.to_owned(), token: guard.token().get(), result }
}

/// The destination's refusal is an answer; what else it says is an error.
fn written(outcome: Result<(), FenceError>) -> Result<Answer, FenceError> {
    match outcome {
        Ok(()) => Ok(Answer::Done),
        Err(refusal @ FenceError::Stale { mark, .. }) => {
            Ok(Answer::Refused { message: refusal.to_string(), mark: mark.get() })
        }
        Err(other) => Err(other),
    }
}

fn look(guard: &Guard) -> Answer {
    let valid_for = guard.valid_for();
    let state = match guard.state() {
        State::Held => format!("held, for {:.2} s at least", valid_for.as_secs_f64()),
        State::Suspended => "suspended: its own deadline has passed".to_owned(),
        State::Lost(loss) => {
            let how = match loss {
                Loss::SessionExpired => "the authority ended the session",
                Loss::SessionClosed => "the session was closed",
                Loss::GrantEnded => "the authority ended the grant",
                Loss::OtherProcess => "it belongs to another process",
            };
            format!("lost: {how}")
        }
    };
    let valid_for_ms = u64::try_from(valid_for.as_millis()).unwrap_or(u64::MAX);
    Answer::Guard { state, valid_for_ms }
}
