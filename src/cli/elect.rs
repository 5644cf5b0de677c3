//! `ringfence elect`.

use std::ffi::OsString;
use std::time::Duration;

use serde::Serialize;

use super::connect::Connection;
use super::errand::{self, Terms};
use super::exit::{Exit, Failure};
use super::output::{self, Format, shown};
use super::signals::Signals;
use super::view::Value;
use super::waiting::{Fenced, Waiting};
use super::words::{self, wall_clock};
use crate::client::{Client, Leader, Session};
use crate::locks::{Labels, ResourceName};

/// Run a command while leading, or show who leads
///
/// One of all that run `elect NAME` leads; the others wait in order of arrival. The
/// leader's command runs until it ends or the lease does, exactly as under `lock`: with
/// the same environment, the same signals and the same exit codes. Then the next one
/// leads. An old leader that was paused may still believe that it leads: what stops it is
/// its token, which every destination should check.
///
/// --value tells everybody who looks where the leader is found. With --observe this prints
/// who leads, and a line whenever that changes, `no leader` included.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence elect db/primary --value db-2:5432 -- ./serve-as-primary.sh
  ringfence elect db/primary --observe
  ringfence elect db/primary --observe -o json | jq --unbuffered -r '.leader.value // \"none\"'

JSON OF --observe, ONE OBJECT A LINE
  {\"leader\":{\"token\":…,\"value\":…,\"session\":…,\"labels\":{…}}}
  {\"leader\":null}

EXIT CODES
  As those of `lock`. Of --observe: 0 if it was ended by Ctrl-C or its reader has gone.")]
pub struct Args {
    /// The election, such as db/primary: a resource like any other
    name: String,
    #[command(flatten)]
    terms: Terms,
    /// Show who leads instead
    #[arg(long, conflicts_with = "command")]
    observe: bool,
    /// The command, after `--`
    #[arg(last = true, required_unless_present = "observe", value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Serialize)]
struct Line {
    leader: Option<Shown>,
}

#[derive(Debug, Serialize)]
struct Shown {
    token: u64,
    #[serde(flatten)]
    value: Value,
    session: u64,
    labels: Labels,
}

/// Campaigns, runs the command and resigns; or observes.
///
/// # Errors
/// As the help has it.
pub async fn run(to: &Connection, format: Format, args: Args) -> Result<Exit, Failure> {
    let name = ResourceName::new(&args.name)?;
    if args.observe {
        return observe(to, format, &name).await;
    }
    let title = shown(&args.name);
    let campaign = async |client: &Client, session: &Session, fenced: Fenced<'_>| {
        let waiting = Waiting {
            client,
            session,
            names: std::slice::from_ref(&name),
            title: &title,
            wait: args.terms.wait(),
            quiet: args.terms.quiet,
            fenced,
        };
        let election = session.election(name.as_str());
        waiting.on(election.campaign(args.terms.value.as_bytes())).await
    };
    errand::run(to, &args.terms, &args.command, &title, campaign).await
}

async fn observe(to: &Connection, format: Format, name: &ResourceName) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    let mut gone = std::pin::pin!(output::reader_gone());
    let mut observer = to.client()?.observe(name.as_str());
    loop {
        let leader = tokio::select! {
            biased;
            signal = signals.end() => return Ok(Exit::interrupted(signal)),
            () = &mut gone => return Ok(Exit::Done),
            leader = observer.next() => leader.map_err(|e| Failure::from(e).about(name))?,
        };
        let leader = leader.map(Shown::from);
        let read = match format {
            Format::Json => output::json_line(&Line { leader })?,
            Format::Table => output::line(&told(leader.as_ref()))?,
        };
        if !read {
            return Ok(Exit::Done);
        }
    }
}

impl From<Leader> for Shown {
    fn from(leader: Leader) -> Self {
        Self {
            token: leader.token.get(),
            value: Value::of(&leader.value),
            session: leader.session.0,
            labels: leader.labels,
        }
    }
}

fn told(leader: Option<&Shown>) -> String {
    let now = wall_clock(Duration::ZERO);
    let Some(leader) = leader else { return format!("{now}  no leader") };
    let owner = words::owner(&leader.labels, leader.session);
    let value = leader.value.told().map(|value| format!(", shows {}", shown(&value)));
    let value = value.unwrap_or_default();
    format!("{now}  {owner} leads with token {}{value}", leader.token)
}
