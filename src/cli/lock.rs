//! `ringfence lock`: a command that runs while its lease lasts.

use std::ffi::OsString;
use std::future::IntoFuture;
use std::path::Path;
use std::time::Duration;

use super::connect::{Connection, any_time, some_time};
use super::exit::{Exit, Failure};
use super::held::{Held, Pace};
use super::say;
use super::signals::Signals;
use super::view::{self, STARTED};
use super::warden::Warden;
use crate::client::{Client, ClientError, Guard, OpenSession, Session};
use crate::locks::ResourceName;

/// How long one waits before one is told for whom.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long leaving may take when nobody is known to listen.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// Run a command while holding a resource
///
/// Opens a session, waits until the resource is granted, runs the command, and gives
/// the resource back when the command has ended. The command finds its fencing token
/// in its environment: it should send it along with every write, for no lock can stop
/// a process that was paused past its lease. Only the destination can.
///
/// The lease is renewed while the command runs. If the authority does not acknowledge
/// renewals, the command gets SIGTERM in time, and SIGKILL after --grace, all of it
/// before the authority could grant the resource anew. If the authority says that the
/// grant has ended, it gets SIGTERM at once. Then `lock` exits with 76.
///
/// The command is a process group of its own, and has the terminal if `lock` has it.
/// INT, TERM, HUP, QUIT, USR1, USR2 and WINCH are passed on to the group; Ctrl-Z does
/// not stop it. The group dies with `lock`, also when that is killed. What the command
/// leaves in the background when it ends by itself goes on, without the lock.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  ringfence lock job/7 -- ./nightly-report.sh
  ringfence lock --try job/7 -- ./nightly-report.sh      not at all if it is held
  ringfence lock --wait 5m --ttl 30s db/migrate -- ./migrate.sh
  ringfence lock job/7 -- sh -c 'psql -v token=$RINGFENCE_TOKEN -f publish.sql'

ENVIRONMENT OF THE COMMAND
  RINGFENCE_TOKEN      fencing token: send it with every write
  RINGFENCE_FLOOR      what the destination's mark is raised to
  RINGFENCE_NAME       the resource
  RINGFENCE_CLUSTER    id of the authority, 32 hexadecimal digits
  RINGFENCE_SESSION    id of the session
  RINGFENCE_TTL_MS     its ttl
  RINGFENCE_SAFE_UNTIL_BOOTTIME_NS
                       until when the command may run if no renewal is acknowledged
                       from its start on, in nanoseconds of CLOCK_BOOTTIME (the first
                       number of /proc/uptime, in seconds). Renewals move it on while
                       the command runs; the variable stays as it is
  RINGFENCE_SAFE_UNTIL the same as wall-clock time in UTC, for display only
  RINGFENCE_ENDPOINTS  where the authority is, for ringfence in the command

EXIT CODES
  The command's own; 128+n if signal n ended it, or `lock` before there was one.
   64  usage: an option or a value is wrong
   69  unreachable: no answer from the authority within --timeout
   70  the answer, or this machine, makes no sense: please report it
   75  not acquired: busy, or not granted in time
   76  lost: the lease ended, or could not be kept, while the command ran
   77  refused for another reason, which is printed
  126  the command cannot be run
  127  the command is not found")]
pub struct Args {
    /// What to hold, such as job/7: 1 to 512 bytes, no control characters
    name: String,
    /// How long the lease lives after its last renewal. Others wait that long when this
    /// machine dies; take three times what the network and a change of leader may take
    #[arg(long, env = "RINGFENCE_TTL", default_value = "10s", value_name = "DURATION")]
    #[arg(value_parser = some_time)]
    ttl: Duration,
    /// How long to wait in the queue, 24h at most [default: 24h]
    #[arg(long, value_name = "DURATION", value_parser = any_time, conflicts_with = "only_try")]
    wait: Option<Duration>,
    /// Do not wait
    #[arg(long = "try")]
    only_try: bool,
    /// Time between SIGTERM and SIGKILL when the lease runs out; at most half of the ttl
    /// [default: 2s, or a fifth of the ttl if that is shorter]
    #[arg(long, value_name = "DURATION", value_parser = any_time)]
    grace: Option<Duration>,
    /// Tell operators something; `host`, `pid`, `purpose` and `started` are set. Up to 16
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Say only what went wrong
    #[arg(short, long)]
    quiet: bool,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Acquires, runs the command, releases.
///
/// # Errors
/// As the help has it.
pub async fn run(to: &Connection, args: Args) -> Result<Exit, Failure> {
    let name = ResourceName::new(&args.name)?;
    let pace = Pace::of(args.ttl, args.grace)?;
    let mut signals = Signals::listen()?;
    let client = to.client()?;
    let opening = args.session(&client).deadline(to.timeout).into_future();
    let opening = async { opening.await.map_err(Failure::from) };
    let (warden, session) = tokio::select! {
        biased;
        signal = signals.end() => return Ok(Exit::signalled(signal as i32)),
        both = async { tokio::try_join!(Warden::start(pace.grace), opening) } => both?,
    };
    let asked = tokio::select! {
        biased;
        signal = signals.end() => Ok(Err(Exit::signalled(signal as i32))),
        guard = acquire(&client, &session, &name, &args) => guard.map(Ok),
    };
    let ended = match asked {
        Ok(Ok(guard)) => {
            if !args.quiet {
                say(&format!("{name} is held with token {}", guard.token()));
            }
            let held = Held { name: &name, pace, timeout: to.timeout, guard, warden, signals };
            held.run(&args.command, &to.endpoints).await
        }
        Ok(Err(interrupted)) => Ok(interrupted),
        Err(failure) => Err(failure),
    };
    // All is given back by now, or nobody listens: this ends waits that were given up.
    let _ = session.close_within(LEAVE_WITHIN).await;
    ended
}

impl Args {
    fn session(&self, client: &Client) -> OpenSession {
        let program = self.command.first().map(Path::new);
        // Not its arguments: they may hold secrets, and anybody reads labels.
        let purpose = program.and_then(|program| program.file_name()).unwrap_or_default();
        let labels = [
            ("purpose".to_owned(), purpose.to_string_lossy().into_owned()),
            (STARTED.to_owned(), view::wall_clock(Duration::ZERO)),
        ];
        let labels = labels.into_iter().chain(self.labels.iter().cloned());
        labels.fold(client.session(self.ttl), |session, (key, value)| session.label(key, value))
    }
}

async fn acquire(
    client: &Client,
    session: &Session,
    name: &ResourceName,
    args: &Args,
) -> Result<Guard, Failure> {
    let asked = match args.wait {
        _ if args.only_try => session.try_acquire(name.as_str()),
        Some(wait) => session.acquire(name.as_str()).wait(wait),
        None => session.acquire(name.as_str()),
    };
    let mut asked = asked.into_future();
    let answer = match tokio::time::timeout(PATIENCE, &mut asked).await {
        Ok(answer) => answer,
        Err(_) => {
            if !args.quiet
                && let Some(why) = occupied(client, name).await
            {
                say(&format!("waiting for {name}: {why}"));
            }
            asked.await
        }
    };
    match answer {
        Ok(guard) => Ok(guard),
        Err(error @ (ClientError::Busy { .. } | ClientError::Timeout { .. })) => {
            let why = occupied(client, name).await.unwrap_or_else(|| error.to_string());
            let waited =
                args.wait.filter(|wait| !wait.is_zero()).map_or_else(String::new, |wait| {
                    format!(", not granted in {}", humantime::format_duration(wait))
                });
            Err(Failure::new(Exit::NotAcquired, format!("{name} is {why}{waited}")))
        }
        Err(error) => Err(Failure::from(error).about(name)),
    }
}

/// Who is in the way, if that can be had quickly.
async fn occupied(client: &Client, name: &ResourceName) -> Option<String> {
    let answer = tokio::time::timeout(PATIENCE, client.get(name.as_str())).await.ok()?.ok()?;
    let resource = answer.resource?;
    let holder = view::holder(resource.holders.first()?);
    Some(format!("{holder}; {} waiting", resource.waiting))
}
