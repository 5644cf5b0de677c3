//! `ringfence lock`: a command that runs while its lease lasts.

use std::ffi::OsString;
use std::time::Duration;

use super::connect::{Connection, any_time};
use super::errand::{self, Terms};
use super::exit::{Exit, Failure};
use super::waiting::{Fenced, Waiting};
use super::words;
use crate::client::{Acquire, Client, Guard, Hold, Session};
use crate::locks::ResourceName;

/// Run a command while holding a resource, or several
///
/// Opens a session, waits until the resource is granted, runs the command, and gives
/// the resource back when the command has ended. The command finds its fencing token
/// in its environment: it should send it along with every write, for no lock can stop
/// a process that was paused past its lease. Only the destination can.
///
/// Several names are granted together under one token, or none of them: no order of
/// names deadlocks. With --shared many hold the resource at once, all of them shared; with
/// --slots N at most N do, each in a numbered slot. All who wait stand in one queue, in
/// order of arrival; for whom and in which place is said on stderr.
///
/// The lease is renewed while the command runs. If the authority does not acknowledge
/// renewals, the command gets SIGTERM in time, and SIGKILL after --grace, all of it
/// before the authority could grant the resource anew. If the authority says that the
/// grant has ended, it gets SIGTERM at once. Then `lock` exits with 76.
///
/// With --fence the earlier owners are shut out of a store before the command starts: none of
/// them writes there any more once it runs, also not one that wakes up late. The command's
/// own writes must still be checked there, against those who come after it.
///
/// The holder may be asked to hand over (`ringfence ask`): who, why and until when is said
/// on stderr, and the command gets the signal of --on-ask. The resource stays held until
/// the command has ended.
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
  ringfence lock account/1 account/2 -- ./transfer.sh    both at once, or none
  ringfence lock --shared catalogue -- ./export.sh
  ringfence lock --slots 3 licence/cad -- ./render.sh    three at a time
  ringfence lock --on-ask TERM job/7 -- ./nightly-report.sh
  ringfence lock --fence postgres://app@db/orders job/7 -- ./nightly-report.sh

ENVIRONMENT OF THE COMMAND
  RINGFENCE_TOKEN      fencing token: send it with every write
  RINGFENCE_FLOOR      what the destination's mark is raised to
  RINGFENCE_SLOT       number of the slot, from 0; with --slots only
  RINGFENCE_NAME       the resource, or the first of several in the order of names
  RINGFENCE_NAMES      all of them, one a line
  RINGFENCE_FENCES     what to send with writes to each, as a JSON list of objects:
                       cluster, resource, slot, token, floor
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
   69  unreachable: no answer from the authority within --timeout, or from a store of
       --fence within --fence-wait
   70  the answer, or this machine, makes no sense: please report it
   75  not acquired: busy, or not granted in time
   76  lost: the lease ended, or could not be kept, while the command ran
   77  refused for another reason, which is printed: FROZEN, DEADLOCK,
       CAPACITY_MISMATCH (--slots differs from that of the others), …; by a store of
       --fence: no marks installed there, another authority's marks, a later owner's, …
  126  the command cannot be run
  127  the command is not found")]
pub struct Args {
    /// What to hold, such as job/7: 1 to 512 bytes, no control characters; up to 64
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Hold it with others that ask so, and never beside one that does not
    #[arg(long, conflicts_with = "slots")]
    shared: bool,
    /// Hold one of so many slots: 1 to 65,536. All users of it name the same number
    #[arg(long, value_name = "N")]
    slots: Option<u32>,
    /// How long it stays closed after expiry or revoke, at most 1m: for destinations that
    /// cannot check tokens
    #[arg(long, value_name = "DURATION", value_parser = any_time, default_value = "0s")]
    lock_delay: Duration,
    #[command(flatten)]
    terms: Terms,
    /// The command, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Acquires, runs the command, releases.
///
/// # Errors
/// As the help has it.
pub async fn run(to: &Connection, args: Args) -> Result<Exit, Failure> {
    let names: Vec<_> =
        args.names.iter().map(|name| ResourceName::new(name)).collect::<Result<_, _>>()?;
    if names.len() > 1 && (args.shared || args.slots.is_some()) {
        let option = if args.shared { "--shared" } else { "--slots" };
        let message = format!("{option} goes with one NAME: several are held alone");
        return Err(Failure::new(Exit::Usage, message));
    }
    let title = words::names(&args.names);
    let acquire = async |client: &Client, session: &Session, fenced: Fenced<'_>| {
        let (wait, quiet) = (args.terms.wait(), args.terms.quiet);
        let (names, title) = (&names[..], &title[..]);
        let waiting = Waiting { client, session, names, title, wait, quiet, fenced };
        acquire(&waiting, &args).await
    };
    errand::run(to, &args.terms, &args.command, &title, acquire).await
}

async fn acquire(waiting: &Waiting<'_>, args: &Args) -> Result<Guard, Failure> {
    let session = waiting.session;
    match (waiting.names, args.slots) {
        ([name], Some(slots)) => {
            take(session.acquire_slot(name.as_str(), slots), waiting, args).await
        }
        ([name], None) if args.shared => {
            take(session.acquire_shared(name.as_str()), waiting, args).await
        }
        ([name], None) => take(session.acquire(name.as_str()), waiting, args).await,
        (several, _) => {
            let names = several.iter().map(ResourceName::as_str);
            take(session.acquire_all(names), waiting, args).await
        }
    }
}

/// The terms are the same in every mode.
async fn take<G: Hold>(
    asked: Acquire<G>,
    waiting: &Waiting<'_>,
    args: &Args,
) -> Result<Guard, Failure> {
    let value = args.terms.value.as_bytes();
    waiting.on(asked.lock_delay(args.lock_delay).value(value)).await
}
