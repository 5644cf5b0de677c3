//! A command under a grant: what `lock` and `elect` have in common. A session is opened,
//! the grant awaited, the command run, and all is given back.

use std::ffi::OsString;
use std::future::IntoFuture;
use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::connect::{Connection, any_time, some_time};
use super::exit::{Exit, Failure};
use super::fence::store::{self, Store};
use super::held::{Held, Pace};
use super::say;
use super::signals::Signals;
use super::waiting::Fenced;
use super::warden::Warden;
use super::words::{self, STARTED};
use crate::client::{Client, Guard, OpenSession, Session};
use crate::fence::FenceTarget;
use crate::locks::Mode;

/// How long leaving may take when nobody is known to listen.
pub(super) const LEAVE_WITHIN: Duration = Duration::from_secs(1);

/// How the command is run.
#[derive(Debug, clap::Args)]
pub struct Terms {
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
    /// Shut earlier owners out of this store before the command starts, as `ringfence fence
    /// raise` does: postgres://…, mysql://…, redis://…, redis+unix:///path
    /// or sqlite:path. May be given
    /// several times. If one fails, the resource is given back and the command not run
    #[arg(long, value_name = "STORE", value_parser = store::parsed)]
    fence: Vec<Store>,
    /// How long the stores may take: they wait for writes that are under way there; at most 1h
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = some_time)]
    fence_wait: Duration,
    /// Redis: the hash tag that the marks share with what they protect
    #[arg(long, value_name = "TAG", default_value = "fence")]
    fence_tag: String,
    /// Signal for the command when the holder is asked to hand over (`ringfence ask`), such
    /// as TERM, so that it can end in time [default: none, the command goes on]
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    on_ask: Option<Signal>,
    /// Shown to all who look: up to 4,096 bytes
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub value: String,
    /// Tell operators something; `host`, `pid`, `purpose` and `started` are set. Up to 16
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    labels: Vec<(String, String)>,
    /// Say only what went wrong
    #[arg(short, long)]
    pub quiet: bool,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("must be KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Reads a signal, with or without `SIG`.
fn signal(text: &str) -> Result<Signal, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("SIG").unwrap_or(&name);
    Signal::from_str(&format!("SIG{name}"))
        .map_err(|_| "must be a signal, such as TERM, INT or USR1".to_owned())
}

impl Terms {
    /// How long to stand in the queue: zero for not at all, `None` for as long as the
    /// authority lets one.
    pub fn wait(&self) -> Option<Duration> {
        if self.only_try { Some(Duration::ZERO) } else { self.wait }
    }

    /// What is raised before the command starts.
    fn targets(&self) -> Result<Vec<Box<dyn FenceTarget>>, Failure> {
        self.fence.iter().map(|store| store::target(store, &self.fence_tag)).collect()
    }

    fn session(&self, client: &Client, command: &[OsString]) -> OpenSession {
        let program = command.first().map(Path::new);
        // Not its arguments: they may hold secrets, and anybody reads labels.
        let purpose = program.and_then(|program| program.file_name()).unwrap_or_default();
        let labels = [
            ("purpose".to_owned(), purpose.to_string_lossy().into_owned()),
            (STARTED.to_owned(), words::wall_clock(Duration::ZERO)),
        ];
        let labels = labels.into_iter().chain(self.labels.iter().cloned());
        labels.fold(client.session(self.ttl), |session, (key, value)| session.label(key, value))
    }
}

/// Runs the command under the grant that `acquire` comes back with; `title` is what people
/// call it.
///
/// # Errors
/// As the help of `lock` has it.
pub async fn run(
    to: &Connection,
    terms: &Terms,
    command: &[OsString],
    title: &str,
    acquire: impl AsyncFnOnce(&Client, &Session, Fenced<'_>) -> Result<Guard, Failure>,
) -> Result<Exit, Failure> {
    let targets = terms.targets()?;
    let fenced = Fenced { targets: &targets, within: terms.fence_wait };
    let pace = Pace::of(terms.ttl, terms.grace)?;
    let mut signals = Signals::listen()?;
    let client = to.client()?;
    let opening = terms.session(&client, command).deadline(to.timeout).into_future();
    let opening = async { opening.await.map_err(Failure::from) };
    let (warden, session) = tokio::select! {
        biased;
        signal = signals.end() => return Ok(Exit::signalled(signal as i32)),
        both = async { tokio::try_join!(Warden::start(pace.grace), opening) } => both?,
    };
    let asked = tokio::select! {
        biased;
        signal = signals.end() => Ok(Err(Exit::signalled(signal as i32))),
        guard = acquire(&client, &session, fenced) => guard.map(Ok),
    };
    let ended = match asked {
        Ok(Ok(guard)) => {
            if !terms.quiet {
                let (token, share) = (guard.token(), share(&guard));
                let are = if guard.fences().len() > 1 { "are" } else { "is" };
                say(&format!("{title} {are} held with token {token}{share}"));
            }
            let (title, on_ask) = (title.to_owned(), terms.on_ask);
            let held = Held { title, pace, timeout: to.timeout, guard, warden, signals, on_ask };
            held.run(command, &to.endpoints).await
        }
        Ok(Err(interrupted)) => Ok(interrupted),
        Err(failure) => Err(failure),
    };
    // All is given back by now, or nobody listens: this ends waits that were given up.
    let _ = session.close_within(LEAVE_WITHIN).await;
    ended
}

/// How it is shared, where it is not held alone.
fn share(guard: &Guard) -> String {
    match (guard.mode(), guard.fence().slot) {
        (Mode::Slots { of }, Some(slot)) => format!(" (slot {slot} of {of})"),
        (Mode::Shared, _) => " (shared)".to_owned(),
        (Mode::Exclusive | Mode::Slots { .. }, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_named_as_people_name_them() {
        assert_eq!(
            ["TERM", "sigusr1", "Int"].map(signal),
            [Ok(Signal::SIGTERM), Ok(Signal::SIGUSR1), Ok(Signal::SIGINT)]
        );
        assert!(signal("15").is_err() && signal("").is_err());
    }
}
