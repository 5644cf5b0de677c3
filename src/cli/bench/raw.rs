//! Sessions without the client library, where it does more than is measured: it renews
//! when it must, not as fast as it can, and gives back what is dropped.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use tonic::transport::{Channel, Endpoint};

use crate::wire::v1;
use crate::wire::v1::locks_client::LocksClient;
use crate::wire::v1::sessions_client::SessionsClient;

/// A session, by its two names.
#[derive(Debug, Clone)]
pub struct RawSession {
    /// Its owner.
    pub owner: Bytes,
    /// Its id.
    pub id: u64,
    requests: u64,
}

/// A connection of its own.
///
/// # Errors
/// The node cannot be reached.
pub async fn connect(address: &str) -> anyhow::Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    endpoint.connect().await.with_context(|| format!("connect to {address}"))
}

impl RawSession {
    /// Opens one.
    ///
    /// # Errors
    /// What the node says.
    pub async fn open(channel: &Channel, ttl: Duration) -> anyhow::Result<Self> {
        let owner = Bytes::copy_from_slice(&rand::random::<[u8; 16]>());
        let ttl_ms = u64::try_from(ttl.as_millis())?;
        let labels = [("purpose".to_owned(), "bench".to_owned())].into();
        let message = v1::OpenSessionRequest { owner_id: owner.clone(), ttl_ms, labels };
        let opened = SessionsClient::new(channel.clone()).open(message).await?;
        Ok(Self { owner, id: opened.into_inner().session, requests: 0 })
    }

    /// Takes a resource, and keeps it.
    ///
    /// # Errors
    /// What the node says.
    pub async fn hold(&mut self, channel: &Channel, resource: String) -> anyhow::Result<()> {
        let header = Some(self.header());
        let mode = v1::Mode::Exclusive.into();
        let message = v1::AcquireRequest { header, resource, mode, ..Default::default() };
        LocksClient::new(channel.clone()).acquire(message).await?;
        Ok(())
    }

    /// Takes a resource and gives it back.
    ///
    /// # Errors
    /// What the node says.
    pub async fn use_once(&mut self, channel: &Channel, resource: String) -> anyhow::Result<()> {
        let mut locks = LocksClient::new(channel.clone());
        let (header, mode) = (Some(self.header()), v1::Mode::Exclusive.into());
        let name = resource.clone();
        let message = v1::AcquireRequest { header, resource, mode, ..Default::default() };
        let granted = locks.acquire(message).await?.into_inner().grant;
        let token = granted.context("a grant in the answer")?.token;
        let header = Some(self.header());
        locks.release(v1::ReleaseRequest { header, resource: name, token }).await?;
        Ok(())
    }

    /// Of a new request; the answers of all before it are here.
    fn header(&mut self) -> v1::RequestHeader {
        self.requests += 1;
        v1::RequestHeader {
            owner_id: self.owner.clone(),
            session: self.id,
            request_id: self.requests,
            oldest_outstanding: self.requests,
            answered: Vec::new(),
        }
    }

    /// A renewal.
    pub fn renewal(&self, sequence: u64) -> v1::Renewal {
        v1::Renewal { owner_id: self.owner.clone(), session: self.id, sequence }
    }
}
