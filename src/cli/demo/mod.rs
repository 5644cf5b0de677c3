//! `ringfence demo`: the one thing that a lock alone cannot do, on real parts.

mod claims;
mod role;
mod server;
mod store;
mod story;
mod telling;
pub mod worker;

use std::path::Path;
use std::time::Duration;

use super::connect::some_time;
use super::exit::{Exit, Failure};
use super::local::{Folder, Nodes};
use super::output::Format;
use super::signals::Signals;
use server::Server;
use story::Story;
use telling::Telling;

/// See a paused worker's late write refused, on real parts
///
/// Starts three nodes and two workers, each a process of its own, and a database that
/// both workers write to. Worker A takes job/7 and is stopped with SIGSTOP just before
/// it writes; the leader is killed with SIGKILL; A's lease runs out; worker B gets the
/// job, under a greater token, and publishes. Then A is continued and writes. Each step
/// is one line; a table of claims closes the run.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence demo
  DEST=postgres ringfence demo     a real PostgreSQL, started in a temporary folder
  DEST=mariadb ringfence demo      a real MariaDB
  DEST=redis ringfence demo        a real Redis, with appendfsync always

EXIT CODES
    0  every claim held
    1  one did not, or the demo could not be run
  128+n  ended by signal n; nothing is left running")]
pub struct Args {
    /// What the workers write to
    #[arg(long, env = "DEST", value_enum, default_value_t = Dest::Sqlite)]
    dest: Dest,
    /// How long A's lease lives without a renewal
    #[arg(long, value_name = "DURATION", value_parser = some_time, default_value = "3s")]
    ttl: Duration,
    /// Port of the first node; the others take the next ones [default: free ones]
    #[arg(long)]
    port: Option<u16>,
}

/// What is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Dest {
    /// A file, in WAL mode and with every commit synced
    Sqlite,
    /// A server of its own, from the system's packages
    Postgres,
    /// Likewise
    Mariadb,
    /// Likewise, with an append-only file that is synced at every write
    Redis,
}

impl Dest {
    /// Starts it; what it is called, and where it is.
    async fn start(self, folder: &Path) -> anyhow::Result<(Option<Server>, String, &'static str)> {
        let home = folder.join("server");
        let (server, told) = match self {
            Self::Sqlite => {
                let url = format!("sqlite:{}", folder.join("results.db").display());
                return Ok((None, url, "a SQLite file, WAL, synchronous=FULL"));
            }
            Self::Postgres => (server::postgres(&home).await?, "a PostgreSQL server of its own"),
            Self::Mariadb => (server::mariadb(&home).await?, "a MariaDB server of its own"),
            Self::Redis => (server::redis(&home).await?, "a Redis of its own, appendfsync always"),
        };
        let url = server.url().to_owned();
        Ok((Some(server), url, told))
    }
}

/// Tells the story.
///
/// # Errors
/// What kept it from being told.
pub async fn run(format: Format, args: Args) -> Result<Exit, Failure> {
    let mut signals = Signals::listen()?;
    tokio::select! {
        told = tell(format, args) => Ok(told?),
        // What was started is stopped by now: all of it was the other future's.
        signal = signals.end() => Ok(Exit::signalled(signal as i32)),
    }
}

async fn tell(format: Format, args: Args) -> anyhow::Result<Exit> {
    let mut telling = Telling::new(format);
    // Removed last: what is declared later is dropped before.
    let folder = Folder::create("demo")?;
    let (_server, url, destination) = args.dest.start(folder.path()).await?;
    let mut store = store::open(&url).await?;
    store.set_up().await?;
    let mut nodes = Nodes::start(folder.path(), 3, args.port)?;
    let at = nodes.endpoints().join(", ");
    telling.step(None, None, &format!("three nodes start at {at}"));
    telling.step(None, None, &format!("the destination is {destination}"));
    let claims = Story::begin(&mut telling, &mut nodes, &mut *store, &folder, &url, args.ttl)
        .await?
        .play()
        .await?;
    let held = claims.iter().all(|claim| claim.ok);
    telling.close(claims)?;
    Ok(if held { Exit::Done } else { Exit::No })
}
