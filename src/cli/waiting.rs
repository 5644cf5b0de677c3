//! Somebody waits in a queue, and is told for whom and for how many.

use std::fmt::Display;
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::exit::{Exit, Failure};
use super::say;
use super::view::Resource;
use super::words;
use crate::client::{Acquire, Client, ClientError, Guard, Hold, Session};
use crate::locks::ResourceName;

/// How long one waits before one is told for whom, and how long finding that out may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often one is told afterwards, if the place has changed.
const NEWS_EVERY: Duration = Duration::from_secs(30);
/// Nobody has told yet.
const UNKNOWN: u64 = u64::MAX;

/// How many stand before a wait, once the authority has said so.
#[derive(Debug, Clone)]
struct Ahead(Arc<AtomicU64>);

impl Default for Ahead {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(UNKNOWN)))
    }
}

impl Ahead {
    /// The authority says.
    fn tell(&self, ahead: u64) {
        self.0.store(ahead, Ordering::Relaxed);
    }

    fn get(&self) -> Option<u64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|ahead| *ahead != UNKNOWN)
    }
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
}

impl Waiting<'_> {
    /// Waits for the answer, and tells people on stderr while it takes long.
    ///
    /// # Errors
    /// [`Exit::NotAcquired`] with who is in the way; what else the authority says.
    pub async fn on<G: Hold>(&self, asked: Acquire<G>) -> Result<Guard, Failure> {
        let ahead = Ahead::default();
        let queued = ahead.clone();
        let asked = asked.on_queued(move |ahead| queued.tell(ahead));
        let asked = match self.wait {
            Some(wait) => asked.wait(wait),
            None => asked,
        };
        let mut asked = asked.into_future();
        let told = async {
            if !self.quiet {
                self.tell(&ahead).await;
            }
            std::future::pending::<()>().await;
        };
        let answer = tokio::select! {
            biased;
            answer = &mut asked => answer,
            () = told => unreachable!("telling never ends"),
        };
        match answer {
            Ok(granted) => Ok(granted.into()),
            Err(error @ (ClientError::Busy { .. } | ClientError::Timeout { .. })) => {
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
            Err(error) => Err(Failure::from(error).about(self.title)),
        }
    }

    /// Tells for whom one waits and in which place, and again when the place changes.
    async fn tell(&self, queued: &Ahead) {
        tokio::time::sleep(PATIENCE).await;
        let mut ahead = queued.get();
        let why = match self.obstacle().await {
            Some((_, why)) if self.names.len() == 1 => format!(": {why}"),
            Some((name, why)) => format!(": {name} is {why}"),
            None => String::new(),
        };
        say(&format!("waiting for {}{why}{}", self.title, before(ahead)));
        loop {
            tokio::time::sleep(NEWS_EVERY).await;
            let now = self.place().await;
            if now.is_some() && now != ahead {
                ahead = now;
                say(&format!("waiting for {}{}", self.title, before(ahead)));
            }
        }
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
