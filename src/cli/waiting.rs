//! Somebody waits in a queue, and is told for whom and for how many.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::exit::{Exit, Failure};
use super::say;
use super::view::Resource;
use super::words;
use crate::client::{Acquire, Client, ClientError, Guard, HandoffError, Hold, Session};
use crate::clock::Moment;
use crate::fence::FenceTarget;
use crate::locks::{ResourceName, Token};

/// How long one waits before one is told for whom, and how long finding that out may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often one is told afterwards, if the place has changed.
const NEWS_EVERY: Duration = Duration::from_secs(30);
/// Nobody has told yet.
const UNKNOWN: u64 = u64::MAX;

/// A number, once the authority has said it: how many stand before a wait, or the token of
/// the grant that ended it.
#[derive(Debug, Clone)]
struct Heard(Arc<AtomicU64>);

impl Default for Heard {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(UNKNOWN)))
    }
}

impl Heard {
    /// The authority says.
    fn tell(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|number| *number != UNKNOWN)
    }
}

/// What is raised between the grant and the command.
#[derive(Clone, Copy)]
pub struct Fenced<'a> {
    /// The stores; often none.
    pub targets: &'a [Box<dyn FenceTarget>],
    /// How long they may take.
    pub within: Duration,
}

/// One wait, for these resources.
pub struct Waiting<'a> {
    /// Whom to ask who is in the way.
    pub client: &'a Client,
    /// Who waits.
    pub session: &'a Session,
    /// For what.
    pub names: &'a [ResourceName],
    /// What people call it.
    pub title: &'a str,
    /// How long it waits, if that has a bound.
    pub wait: Option<Duration>,
    /// Whether people are told of waiting.
    pub quiet: bool,
    /// What is raised after the wait.
    pub fenced: Fenced<'a>,
}

impl Waiting<'_> {
    /// Waits for the answer, and tells people on stderr while it takes long.
    ///
    /// # Errors
    /// [`Exit::NotAcquired`] with who is in the way; what else the authority says.
    pub async fn on<G: Hold>(&self, asked: Acquire<G>) -> Result<Guard, Failure> {
        let (ahead, granted) = (Heard::default(), Heard::default());
        let queued = ahead.clone();
        let asked = asked.on_queued(move |ahead| queued.tell(ahead));
        let asked = match self.wait {
            Some(wait) => asked.wait(wait),
            None => asked,
        };
        let mut asked = std::pin::pin!(self.raised(asked, granted.clone()));
        let told = async {
            if !self.quiet {
                self.tell(&ahead, &granted).await;
            }
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            biased;
            answer = &mut asked => answer,
            () = told => unreachable!("telling never ends"),
        };
        let error = match answer {
            Ok(granted) => return Ok(granted.into()),
            Err(HandoffError::Authority(error)) => error,
            Err(failed) => return Err(Failure::from(failed).about(self.title)),
        };
        if !matches!(error, ClientError::Busy { .. } | ClientError::Timeout { .. }) {
            return Err(Failure::from(error).about(self.title));
        }
        let why = match self.obstacle().await {
            Some((name, why)) => format!("{name} is {why}"),
            None => format!("{}: {error}", self.title),
        };
        let wait = self.wait.filter(|wait| !wait.is_zero());
        let waited = wait.map_or_else(String::new, |wait| {
            format!(", not granted in {}", humantime::format_duration(wait))
        });
        Err(Failure::new(Exit::NotAcquired, format!("{why}{waited}")))
    }

    /// The grant; with its fence raised everywhere, if that was asked for.
    async fn raised<G: Hold>(&self, asked: Acquire<G>, granted: Heard) -> Result<G, HandoffError> {
        let Fenced { targets, within } = self.fenced;
        if targets.is_empty() {
            return Ok(asked.await?);
        }
        let targets: Vec<&dyn FenceTarget> = targets.iter().map(AsRef::as_ref).collect();
        let told = move |token: Token| granted.tell(token.get());
        asked.raising(&targets).barrier(within).on_granted(told).await
    }

    /// Tells for whom one waits and in which place, and again when the place changes; and
    /// that the grant is there, where that is not the end.
    async fn tell(&self, queued: &Heard, granted: &Heard) {
        tokio::time::sleep(PATIENCE).await;
        if let Some(token) = granted.get() {
            return self.tell_of_raising(token);
        }
        let mut ahead = queued.get();
        let why = match self.obstacle().await {
            Some((_, why)) if self.names.len() == 1 => format!(": {why}"),
            Some((name, why)) => format!(": {name} is {why}"),
            None => String::new(),
        };
        say(&format!("waiting for {}{why}{}", self.title, before(ahead)));
        let mut asked_at = Moment::now();
        loop {
            tokio::time::sleep(PATIENCE).await;
            if let Some(token) = granted.get() {
                return self.tell_of_raising(token);
            }
            if Moment::now().since(asked_at) < NEWS_EVERY {
                continue;
            }
            asked_at = Moment::now();
            let now = self.place().await;
            if now.is_some() && now != ahead {
                ahead = now;
                say(&format!("waiting for {}{}", self.title, before(ahead)));
            }
        }
    }

    fn tell_of_raising(&self, token: u64) {
        let names = self.fenced.targets.iter().map(|target| target.name());
        let (title, names) = (self.title, names.collect::<Vec<_>>().join(", "));
        say(&format!("{title}: token {token} is granted, and is raised at {names}"));
    }

    /// Which of the resources is in the way and why, if that can be had quickly.
    async fn obstacle(&self) -> Option<(&ResourceName, String)> {
        let found = async {
            for name in self.names {
                let answer = self.client.get(name.as_str()).await.ok()?;
                let resource = Resource::from(answer.resource?);
                if let Some(why) = words::obstacle(&resource) {
                    return Some((name, format!("{why}; {} waiting", resource.waiting)));
                }
            }
            None
        };
        tokio::time::timeout(PATIENCE, found).await.ok()?
    }

    /// How many stand before this wait in the longest of its queues, if that can be had
    /// quickly and is shown.
    async fn place(&self) -> Option<u64> {
        let found = async {
            let mut ahead = None;
            for name in self.names {
                let resource = self.client.get(name.as_str()).await.ok()?.resource?;
                let own = self.session.id().0;
                let place = resource.waiters.iter().zip(0..).find(|(w, _)| w.session == own);
                ahead = ahead.max(place.map(|(_, place)| place));
            }
            ahead
        };
        tokio::time::timeout(PATIENCE, found).await.ok()?
    }
}

fn before(ahead: Option<u64>) -> impl Display {
    match ahead {
        None => String::new(),
        Some(0) => ", next in the queue".to_owned(),
        Some(ahead) => format!(", {ahead} ahead in the queue"),
    }
}
