//! Renewals: many sessions over few streams, each message as soon as the one before it
//! is answered.

use std::time::Duration;

use anyhow::Context;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use super::load::{self, Client, Record, Span};
use super::raw::{RawSession, connect};
use super::target::Target;
use super::times::Percentiles;
use crate::clock::Moment;
use crate::wire::v1;
use crate::wire::v1::renewal_answer::Result as Told;
use crate::wire::v1::sessions_client::SessionsClient;

/// Longer than any run.
const TTL: Duration = Duration::from_secs(600);
/// Renewals in one message: what a node takes at most.
const RENEWALS_MAX: usize = 1_024;

/// How many.
#[derive(Debug, Clone, Copy)]
pub struct Asked {
    /// Sessions.
    pub sessions: u32,
    /// Streams that they share.
    pub streams: u32,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Renewals {
    /// Sessions.
    pub sessions: u32,
    /// Streams.
    pub streams: u32,
    /// Renewals that were acknowledged.
    pub per_second: f64,
    /// From the sending of a message to the answer to each renewal in it.
    pub renewal: Percentiles,
    /// Renewals that one round of the leader confirmed, on average.
    pub per_round: f64,
    /// Log entries for each renewal: none, but for what a new term sees first.
    pub entries_per_renewal: f64,
    /// Processor time of all nodes for each renewal, microseconds.
    pub processor_us_per_renewal: f64,
}

struct Stream {
    sessions: Vec<RawSession>,
    sequence: u64,
    requests: mpsc::Sender<v1::KeepAliveRequest>,
    answers: Streaming<v1::KeepAliveResponse>,
}

impl Stream {
    async fn open(address: &str, sessions: u32) -> anyhow::Result<Self> {
        let channel = connect(address).await?;
        let mut opened = Vec::new();
        for _ in 0..sessions {
            opened.push(RawSession::open(&channel, TTL).await?);
        }
        let (requests, stream) = mpsc::channel(64);
        let stream = ReceiverStream::new(stream);
        let answers = SessionsClient::new(channel).keep_alive(stream).await?.into_inner();
        Ok(Self { sessions: opened, sequence: 0, requests, answers })
    }
}

impl Client for Stream {
    async fn step(&mut self, record: &mut Record) -> anyhow::Result<()> {
        self.sequence += 1;
        let began = Moment::now();
        for sessions in self.sessions.chunks(RENEWALS_MAX) {
            let renewals = sessions.iter().map(|session| session.renewal(self.sequence));
            let message = v1::KeepAliveRequest { renewals: renewals.collect() };
            self.requests.send(message).await.context("the stream has ended")?;
        }
        let mut open = self.sessions.len();
        while open > 0 {
            let message = self.answers.message().await?.context("the stream has ended")?;
            for answer in &message.answers {
                match &answer.result {
                    Some(Told::Renewed(_)) => {}
                    other => anyhow::bail!("a renewal was answered with {other:?}"),
                }
            }
            record.steps(began, message.answers.len() as u64);
            open = open.saturating_sub(message.answers.len());
        }
        Ok(())
    }
}

/// Measures.
///
/// # Errors
/// A session is not renewed.
pub async fn run(target: &mut Target, asked: Asked, span: Span) -> anyhow::Result<Renewals> {
    let Asked { sessions, streams } = asked;
    let leader = target.leader().await?.leader;
    let shares = (0..streams).map(|n| sessions / streams + u32::from(n < sessions % streams));
    let opening = shares.filter(|share| *share > 0).map(|share| Stream::open(&leader, share));
    let clients = futures::future::try_join_all(opening).await?;
    let what = format!("renewals, {sessions} sessions over {streams} streams");
    let load = load::run(target, what, clients, span).await?;
    Ok(Renewals {
        sessions,
        streams,
        per_second: load.rate(),
        renewal: load.steps.percentiles(),
        per_round: load.steps.count() as f64 / load.done.leader_rounds.max(1) as f64,
        entries_per_renewal: load.per_step(load.done.leader_entries),
        processor_us_per_renewal: load.processor_us_per_step(),
    })
}
