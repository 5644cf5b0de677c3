//! A resource in hand: the command runs, the warden is told of every renewal, signals
//! are passed on.

use std::ffi::OsString;
use std::future::pending;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::process::Child;

use super::errand::LEAVE_WITHIN;
use super::exit::{Exit, Failure};
use super::output::shown;
use super::signals::Signals;
use super::terminal::Lent;
use super::warden::{Event, Warden};
use super::words::wall_clock;
use super::{child, say, view};
use crate::client::{Asked, ClientError, Guard, Loss, State};
use crate::clock::BootMoment;

/// The grace if none is given, unless a fifth of the ttl is shorter.
const GRACE_DEFAULT: Duration = Duration::from_secs(2);
/// How much before the client's own deadline SIGKILL is sent, for it may take effect
/// late. Or a fiftieth of the ttl, if that is more.
const MARGIN_MIN: Duration = Duration::from_millis(20);
/// How often the deadline is looked at: a twentieth of the ttl, within these.
const PULSE_MIN: Duration = Duration::from_millis(20);
const PULSE_MAX: Duration = Duration::from_secs(1);

/// The times that follow from a ttl.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    ttl: Duration,
    /// Between SIGTERM and SIGKILL.
    pub grace: Duration,
    margin: Duration,
    pulse: Duration,
}

impl Pace {
    /// Renewals leave at a third of the ttl: with a grace of half of it, each has a
    /// sixth to be acknowledged before the command is told to end.
    ///
    /// # Errors
    /// [`Exit::Usage`] for a longer grace.
    pub fn of(ttl: Duration, grace: Option<Duration>) -> Result<Self, Failure> {
        let grace = grace.unwrap_or_else(|| GRACE_DEFAULT.min(ttl / 5));
        if grace > ttl / 2 {
            let half = humantime::format_duration(ttl / 2);
            let message = format!("--grace must be at most half of the ttl: {half}");
            return Err(Failure::new(Exit::Usage, message));
        }
        let margin = (ttl / 50).max(MARGIN_MIN);
        Ok(Self { ttl, grace, margin, pulse: (ttl / 20).clamp(PULSE_MIN, PULSE_MAX) })
    }
}

/// What `lock` has in hand while the command runs.
pub struct Held {
    /// What people call it.
    pub title: String,
    /// Its times.
    pub pace: Pace,
    /// How long giving back may take.
    pub timeout: Duration,
    /// The grant.
    pub guard: Guard,
    /// Ends the command if need be.
    pub warden: Warden,
    /// What to pass on.
    pub signals: Signals,
    /// What the command is sent when somebody wants the grant.
    pub on_ask: Option<Signal>,
}

impl Held {
    /// Runs the command and gives the resource back.
    ///
    /// # Errors
    /// What kept the command from being started.
    pub async fn run(mut self, line: &[OsString], endpoints: &[String]) -> Result<Exit, Failure> {
        let (mut command, lent) = match self.start(line, endpoints).await {
            Ok(started) => started,
            Err(failure) => {
                let _ = self.guard.release_within(LEAVE_WITHIN).await;
                return Err(failure);
            }
        };
        let (exit, stopped) = self.attend(&mut command).await?;
        drop(lent);
        if stopped {
            // Whatever the command left of its group: it goes before anybody is told.
            self.warden.group().signal(Signal::SIGKILL);
            let _ = self.guard.release_within(LEAVE_WITHIN).await;
            return Ok(Exit::Lost);
        }
        Ok(self.give_back(exit).await)
    }

    async fn start(
        &mut self,
        line: &[OsString],
        endpoints: &[String],
    ) -> Result<(Child, Option<Lent>), Failure> {
        let safe_for = self.safe_for().await?;
        let kill_at = BootMoment::now().plus(safe_for);
        let session = self.guard.session().0;
        let mut variables = of_grant(&self.guard);
        variables.extend(
            [
                ("RINGFENCE_SESSION", session.to_string()),
                ("RINGFENCE_TTL_MS", self.pace.ttl.as_millis().to_string()),
                ("RINGFENCE_SAFE_UNTIL_BOOTTIME_NS", kill_at.as_nanos().to_string()),
                ("RINGFENCE_SAFE_UNTIL", wall_clock(safe_for)),
                ("RINGFENCE_ENDPOINTS", endpoints.join(",")),
            ]
            .map(|(name, value)| (name, Some(value))),
        );
        self.warden.renewed(kill_at).await;
        let group = self.warden.group();
        let lent = Lent::to(group);
        Ok((child::start(line, variables, group, lent.is_some())?, lent))
    }

    /// For how long the command may run from now on, as soon as that is more than the
    /// grace: a grant may come at the very end of a lease.
    async fn safe_for(&self) -> Result<Duration, Failure> {
        let safe_for = async {
            loop {
                if let State::Lost(loss) = self.guard.state() {
                    return Err(Failure::new(Exit::Lost, lost(loss)));
                }
                let left = self.guard.valid_for().saturating_sub(self.pace.margin);
                if left > self.pace.grace {
                    return Ok(left);
                }
                tokio::time::sleep(self.pace.pulse).await;
            }
        };
        let silent = |_| Failure::new(Exit::Unreachable, "granted, but renewals are not answered");
        tokio::time::timeout(self.timeout, safe_for).await.map_err(silent)?
    }

    /// Until the command has ended. True if that was not its own wish.
    async fn attend(&mut self, command: &mut Child) -> Result<(Exit, bool), Failure> {
        let (mut lost, mut stopped, mut gone) = (false, false, false);
        loop {
            let event = async { if gone { pending().await } else { self.warden.event().await } };
            let over = async { if lost { pending().await } else { self.guard.lost().await } };
            tokio::select! {
                biased;
                status = command.wait() => {
                    let unheard = self.warden.dismiss().await;
                    return Ok((Exit::of(status?), stopped || unheard));
                }
                event = event => {
                    stopped |= matches!(event, Event::Terminated | Event::Killed);
                    gone = event == Event::Gone;
                    if gone {
                        // Nobody is left to end the command in time.
                        self.warden.group().signal(Signal::SIGKILL);
                    }
                    self.explain(event, stopped);
                }
                signal = self.signals.next() => self.warden.group().signal(signal),
                _ = over => {
                    lost = true;
                    self.warden.lost().await;
                }
                asked = self.guard.handover_asked() => self.hand_over(&asked),
                () = tokio::time::sleep(self.pace.pulse) => {}
            }
            self.pass_renewals_on().await;
        }
    }

    /// Somebody wants the grant: the command is told as it was agreed. It stays held until
    /// the command has ended.
    fn hand_over(&self, asked: &Asked) {
        let within = humantime::format_duration(asked.within);
        let until = wall_clock(asked.within);
        let (actor, reason) = (shown(&asked.actor), shown(&asked.reason));
        let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
        let then = match self.on_ask {
            Some(signal) => format!("{signal} is sent to the command"),
            None => "the command goes on, for there is no --on-ask".to_owned(),
        };
        let title = &self.title;
        say(&format!("{title}: {actor} asks for it within {within}, until {until}{why}; {then}"));
        if let Some(signal) = self.on_ask {
            self.warden.group().signal(signal);
        }
    }

    async fn pass_renewals_on(&mut self) {
        // Read in this order, the sum is never late.
        let now = BootMoment::now();
        let kill_at = now.plus(self.guard.valid_for()).minus(self.pace.margin);
        self.warden.renewed(kill_at).await;
    }

    fn explain(&self, event: Event, stopped: bool) {
        let (name, grace) = (&self.title, humantime::format_duration(self.pace.grace));
        match event {
            Event::Terminated => {
                let why = match self.guard.state() {
                    State::Lost(loss) => lost(loss),
                    State::Held | State::Suspended => {
                        "the authority does not answer and the lease runs out"
                    }
                };
                say(&format!("{name}: {why}; SIGTERM is sent, SIGKILL follows in {grace}"));
            }
            Event::Killed => say(&format!("{name}: time is up, SIGKILL is sent")),
            Event::Gone if !stopped => say(&format!("{name}: the warden is gone, SIGKILL is sent")),
            Event::Gone | Event::Ready => {}
        }
    }

    /// After a command that ended by itself.
    async fn give_back(self, exit: Exit) -> Exit {
        let (name, ttl) = (&self.title, humantime::format_duration(self.pace.ttl));
        match self.guard.release_within(self.timeout).await {
            Ok(()) => exit,
            Err(
                error @ (ClientError::Lost { .. }
                | ClientError::SessionExpired
                | ClientError::SessionClosed),
            ) => {
                let code = exit.code();
                say(&format!(
                    "{name}: {error}; the command had not ended before, its code is {code}"
                ));
                Exit::Lost
            }
            Err(error) => {
                say(&format!("{name} is not released: {error}; it is free {ttl} from now at most"));
                exit
            }
        }
    }
}

/// The variables that tell a command what it holds. `None` for one that it must not
/// inherit from a command around it.
fn of_grant(guard: &Guard) -> Vec<(&'static str, Option<String>)> {
    let first = guard.fence();
    let fences: Vec<_> = guard.fences().iter().map(view::Fence::from).collect();
    let names: Vec<_> = fences.iter().map(|fence| fence.resource.clone()).collect();
    let json = serde_json::to_string(&fences).expect("fences are numbers and text");
    vec![
        ("RINGFENCE_TOKEN", Some(first.token.to_string())),
        ("RINGFENCE_FLOOR", Some(first.floor.to_string())),
        ("RINGFENCE_SLOT", first.slot.map(|slot| slot.to_string())),
        ("RINGFENCE_NAME", Some(first.resource.to_string())),
        ("RINGFENCE_NAMES", Some(names.join("\n"))),
        ("RINGFENCE_FENCES", Some(json)),
        ("RINGFENCE_CLUSTER", Some(first.cluster.to_string())),
    ]
}

const fn lost(loss: Loss) -> &'static str {
    match loss {
        Loss::SessionExpired => "the authority has ended the session",
        Loss::GrantEnded => "the authority has ended the grant",
        Loss::SessionClosed | Loss::OtherProcess => "the session is closed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grace_is_two_seconds_or_a_fifth_and_never_more_than_half_of_the_ttl() {
        let grace = |ttl, grace| Pace::of(ttl, grace).map(|pace| pace.grace).ok();
        let s = Duration::from_secs;
        assert_eq!(grace(s(60), None), Some(s(2)));
        assert_eq!(grace(s(5), None), Some(s(1)));
        assert_eq!(grace(s(10), Some(s(5))), Some(s(5)));
        assert_eq!(grace(s(10), Some(s(6))), None);
    }
}
