//! The command line. It uses the public API only, as any client does; `serve` and
//! `dev` start nodes, `bench` and `demo` drive them.

mod ask;
mod bench;
mod by_hand;
mod check;
mod child;
mod completions;
mod connect;
mod countdown;
mod demo;
mod dev;
mod elect;
mod errand;
mod events;
mod exit;
mod explain;
mod fence;
mod freeze;
mod get;
mod health;
mod held;
mod list;
mod local;
mod lock;
mod output;
mod queue;
mod resize;
mod revoke;
mod serve;
mod sessions;
mod signals;
mod status;
mod terminal;
mod version;
mod view;
mod waiting;
mod warden;
mod watch;
mod words;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tokio::runtime::{Builder, Runtime};

use connect::Connection;
use exit::{Exit, Failure};
use output::Format;

/// Locks with fencing tokens, from a cluster that survives the loss of a minority
///
/// A lock is granted to one owner at a time, for as long as the owner renews its
/// lease. Each grant carries a fencing token, greater than every token before it:
/// send it along with every write, and let the destination refuse a lower one. That
/// is what stops an owner that was paused and wakes up too late; the lock alone
/// cannot.
#[derive(Debug, Parser)]
#[command(name = "ringfence", version, after_help = EXAMPLES, after_long_help = LONG)]
#[command(arg_required_else_help = true, max_term_width = 100)]
struct Cli {
    /// How to print answers; messages for people go to stderr either way
    #[arg(short, long, global = true, env = "RINGFENCE_OUTPUT", value_enum)]
    #[arg(default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    connection: Connection,
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
EXAMPLES
  ringfence dev                                  a cluster in one process, to try things
  ringfence lock job/7 -- ./nightly-report.sh    run a command while holding job/7
  ringfence explain job/7                        who holds it and why, who waits, what to do
  ringfence watch --all                          what happens, as it happens
  ringfence status                               is the cluster well, and if not, what to do";

const LONG: &str = "\
EXAMPLES
  ringfence dev                                  a cluster in one process, to try things
  ringfence lock job/7 -- ./nightly-report.sh    run a command while holding job/7
  ringfence explain job/7                        who holds it and why, who waits, what to do
  ringfence watch --all                          what happens, as it happens
  ringfence status                               is the cluster well, and if not, what to do

EXIT CODES
    0  done
    1  the answer is no: `check` says stale, `status` found something wrong; or a
       node that could not be started or go on
   64  usage: an option or a value is wrong
   69  unreachable: no answer from the authority within --timeout
   70  the answer, or this machine, makes no sense: please report it
   75  not acquired: busy, or not granted in time
   76  lost: the lease ended, or could not be kept, while the command ran
   77  refused for another reason, which is printed: FROZEN, DEADLOCK,
       CAPACITY_MISMATCH, COMPACTED, a token that is no longer current, …
  126  the command of `lock` cannot be run
  127  the command of `lock` is not found
  Otherwise `lock` passes on the exit code of its command, 128+n if signal n ended it.";

#[derive(Debug, Subcommand)]
enum Command {
    Lock(lock::Args),
    Elect(elect::Args),
    Explain(explain::Args),
    Get(get::Args),
    Queue(queue::Args),
    List(list::Args),
    Watch(watch::Args),
    Check(check::Args),
    Sessions(sessions::Args),
    Ask(ask::Args),
    Revoke(revoke::Args),
    Freeze(freeze::FreezeArgs),
    Thaw(freeze::ThawArgs),
    Resize(resize::Args),
    Status(status::Args),
    Serve(serve::Args),
    Dev(dev::Args),
    Demo(demo::Args),
    Bench(bench::Args),
    Fence(fence::Args),
    Completions(completions::Args),
    Version(version::Args),
    #[command(hide = true)]
    Warden(warden::Args),
    #[command(hide = true)]
    DemoWorker(demo::worker::Args),
}

/// Runs the command that the process was started with, and says how it ended: see
/// `ringfence --help` for the codes.
pub fn main() -> ExitCode {
    let parsed = command().try_get_matches().and_then(|given| Cli::from_arg_matches(&given));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(told) => {
            // Help and version are asked for; all else is a mistake.
            let exit = if told.use_stderr() { Exit::Usage } else { Exit::Done };
            // Nobody is left to tell when the terminal is gone.
            let _ = told.print();
            return exit.into();
        }
    };
    match cli.run() {
        Ok(exit) => exit.into(),
        Err(failure) => {
            say(&failure.message);
            failure.exit.into()
        }
    }
}

/// The command line as it is parsed and as it is told: where an option that all
/// commands take means nothing, the help is silent about it.
fn command() -> clap::Command {
    let command = Cli::command();
    let global = command.get_arguments().filter(|option| option.is_global_set());
    let hidden: Vec<clap::Arg> = global.map(|option| option.clone().hide(true)).collect();
    LOCAL.iter().fold(command, |command, name| {
        command.mut_subcommand(name, |command| command.args(&hidden))
    })
}

/// Commands that ask no authority and print no answer.
const LOCAL: [&str; 5] = ["serve", "dev", "demo", "fence", "completions"];

impl Cli {
    fn run(self) -> Result<Exit, Failure> {
        let (to, format) = (&self.connection, self.output);
        match self.command {
            Command::Lock(args) => block_on(lock::run(to, args)),
            Command::Elect(args) => block_on(elect::run(to, format, args)),
            Command::Explain(args) => block_on(explain::run(to, format, args)),
            Command::Get(args) => block_on(get::run(to, format, args)),
            Command::Queue(args) => block_on(queue::run(to, format, args)),
            Command::List(args) => block_on(list::run(to, format, args)),
            Command::Watch(args) => block_on(watch::run(to, format, args)),
            Command::Check(args) => block_on(check::run(to, format, args)),
            Command::Sessions(args) => block_on(sessions::run(to, format, args)),
            Command::Ask(args) => block_on(ask::run(to, format, args)),
            Command::Revoke(args) => block_on(revoke::run(to, format, args)),
            Command::Freeze(args) => block_on(freeze::freeze(to, format, args)),
            Command::Thaw(args) => block_on(freeze::thaw(to, format, args)),
            Command::Resize(args) => block_on(resize::run(to, format, args)),
            Command::Status(args) => block_on(status::run(to, format, args)),
            Command::Serve(args) => {
                end_at_any_panic();
                block_on(async { Ok(serve::run(args).await?) })
            }
            Command::Dev(args) => {
                end_at_any_panic();
                block_on(async { Ok(dev::run(args).await?) })
            }
            Command::Demo(args) => block_on(demo::run(format, args)),
            Command::Bench(args) => block_on(bench::run(to, format, args)),
            Command::Fence(args) => block_on(fence::run(format, args)),
            Command::Completions(args) => completions::run(&args),
            Command::Version(args) => version::run(format, &args),
            Command::Warden(args) => warden::run(&args),
            Command::DemoWorker(args) => block_on(demo::worker::run(to, args)),
        }
    }
}

/// Runs on this thread, which must be the first: a command that `lock` starts dies
/// with the thread that started it. What the client does in the background has
/// threads of its own, so that a stalled stderr stops no renewal.
fn block_on<T>(task: impl Future<Output = Result<T, Failure>>) -> Result<Exit, Failure>
where
    Exit: From<T>,
{
    let runtime: Runtime = Builder::new_multi_thread().enable_all().build()?;
    let ended = runtime.block_on(task);
    runtime.shutdown_background();
    ended.map(Exit::from)
}

/// A node one of whose tasks is gone would go on leading and answer nothing: it ends,
/// and others lead. What it has acknowledged is on disk.
fn end_at_any_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        std::process::abort();
    }));
}

/// Tells people something, in one line.
fn say(message: &str) {
    use std::io::Write;
    // Nobody is left to tell when the terminal is gone.
    // In one piece: what a command writes there must not come into the midst of it.
    let line = format!("ringfence: {message}\n");
    let _ = std::io::stderr().write_all(line.as_bytes());
}
