//! What administrators do by hand. Section 8 of the contract.

use std::ops::Range;
use std::time::Duration;

use tonic::{Response, Status};

use super::fate::{Failure, Fate, Plan};
use super::network::Target;
use super::operations::revision;
use super::session::millis;
use super::{Client, ClientError};
use crate::locks::{Fence, Invalid, Note, ResourceName, Revision, Token};
use crate::wire::reason::Reason;
use crate::wire::v1;
use crate::wire::v1::admin_client::AdminClient;

/// What came of a change of the number of slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resized {
    /// The number in force.
    pub slots: u32,
    /// Of the change; names no grant.
    pub token: Token,
    /// One for each slot that is no more: raise it at the destinations once the slot is
    /// empty. Up to 1,024; the rest of `range` differ in the number of the slot only.
    pub removed: Vec<Fence>,
    /// The slots that are no more; empty if there are as many as before, or more.
    pub range: Range<u32>,
}

/// Each is recorded as an event with who, when and why.
///
/// None of these calls belongs to a session, so none has a request id: an attempt that
/// may have taken effect is not made again. It ends with
/// [`ClientError::OutcomeUnknown`]; look ([`Client::get`], [`Client::explain`]) before
/// you ask again.
impl Client {
    /// Ends exactly the grant that is named (of a set: the whole set), never a newer
    /// one. Says with which fences its holder is shut out at destinations: one for each
    /// resource, with its slot if it had one. One of several shared holders cannot be
    /// shut out alone.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] if the token is of no live grant on the resource;
    /// [`ClientError::OutcomeUnknown`], [`ClientError::Unreachable`],
    /// [`ClientError::Invalid`].
    pub async fn revoke(
        &self,
        resource: &str,
        token: Token,
        note: Note,
    ) -> Result<Vec<Fence>, ClientError> {
        let message = v1::RevokeRequest {
            resource: checked(resource)?,
            token: token.get(),
            note: Some(wire(note)),
        };
        let answer = self.administer(no_grant(resource, token), |target| {
            let message = message.clone();
            async move { admin(&target).revoke(target.request(message)).await }
        });
        fences(answer.await?.fences)
    }

    /// Ends all grants on a resource and keeps it closed until it is thawed. Says with
    /// which fence every earlier holder is shut out at destinations, slots included;
    /// its token names the freeze.
    ///
    /// # Errors
    /// [`ClientError::Frozen`] if it is frozen already;
    /// [`ClientError::OutcomeUnknown`], [`ClientError::Unreachable`],
    /// [`ClientError::Invalid`].
    pub async fn freeze(&self, resource: &str, note: Note) -> Result<Fence, ClientError> {
        let message = v1::FreezeRequest { resource: checked(resource)?, note: Some(wire(note)) };
        let answer = self.administer(String::new(), |target| {
            let message = message.clone();
            async move { admin(&target).freeze(target.request(message)).await }
        });
        let fence = answer.await?.fence.ok_or(ClientError::Malformed { field: "fence" })?;
        let malformed = |Invalid { field, .. }| ClientError::Malformed { field };
        Fence::try_from(fence).map_err(malformed)
    }

    /// Opens what exactly the freeze of this token keeps closed. Says when.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] if no such freeze keeps the resource closed;
    /// [`ClientError::OutcomeUnknown`], [`ClientError::Unreachable`],
    /// [`ClientError::Invalid`].
    pub async fn thaw(
        &self,
        resource: &str,
        token: Token,
        note: Note,
    ) -> Result<Revision, ClientError> {
        let message = v1::ThawRequest {
            resource: checked(resource)?,
            token: token.get(),
            note: Some(wire(note)),
        };
        let none = format!("token {token} names no freeze of {resource}");
        let answer = self.administer(none, |target| {
            let message = message.clone();
            async move { admin(&target).thaw(target.request(message)).await }
        });
        Ok(answer.await?.thawed_at.map(revision).unwrap_or_default())
    }

    /// Changes the number of slots of a resource in use, 1 to 65,536. Fewer take effect
    /// as holders leave.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] if nobody holds or awaits a slot of it;
    /// [`ClientError::OutcomeUnknown`], [`ClientError::Unreachable`],
    /// [`ClientError::Invalid`].
    pub async fn resize(
        &self,
        resource: &str,
        slots: u32,
        note: Note,
    ) -> Result<Resized, ClientError> {
        let note = Some(wire(note));
        let message = v1::ResizeRequest { resource: checked(resource)?, slots, note };
        let none = format!("nobody holds or awaits a slot of {resource}");
        let answer = self.administer(none, |target| {
            let message = message.clone();
            async move { admin(&target).resize(target.request(message)).await }
        });
        let answer = answer.await?;
        let malformed = |Invalid { field, .. }| ClientError::Malformed { field };
        Ok(Resized {
            slots: answer.slots,
            token: Token::new(answer.token).map_err(malformed)?,
            removed: fences(answer.removed)?,
            range: answer.removed_from..answer.removed_to,
        })
    }

    /// Asks the holder of exactly this grant to give it back within this time, 1 ms to
    /// a day. Its guard is told ([`Guard::handover_asked`](super::Guard)); nothing ends
    /// by itself when the time is over. Says when it was asked.
    ///
    /// # Errors
    /// [`ClientError::NotFound`] if the token is of no live grant on the resource;
    /// [`ClientError::OutcomeUnknown`], [`ClientError::Unreachable`],
    /// [`ClientError::Invalid`].
    pub async fn ask_release(
        &self,
        resource: &str,
        token: Token,
        within: Duration,
        note: Note,
    ) -> Result<Revision, ClientError> {
        let message = v1::AskReleaseRequest {
            resource: checked(resource)?,
            token: token.get(),
            within_ms: millis("within_ms", within)?.0,
            note: Some(wire(note)),
        };
        let answer = self.administer(no_grant(resource, token), |target| {
            let message = message.clone();
            async move { admin(&target).ask_release(target.request(message)).await }
        });
        Ok(answer.await?.asked_at.map(revision).unwrap_or_default())
    }

    /// `none` says what is missing if the authority finds nothing.
    async fn administer<T, A>(
        &self,
        none: String,
        attempt: impl FnMut(Target) -> A,
    ) -> Result<T, ClientError>
    where
        A: Future<Output = Result<Response<T>, Status>>,
    {
        let network = &self.shared.network;
        let mut fate = Fate::default();
        let answer = network.call(Plan::once(&network.settings), &mut fate, attempt).await;
        answer.map_err(|failure| match failure {
            Failure::Refused(told) if told.reason == Some(Reason::NotHeld) => {
                ClientError::NotFound { what: none }
            }
            Failure::Refused(told) => ClientError::refused(told, false),
            Failure::OutOfTime => fate.unseen(),
        })
    }
}

fn no_grant(resource: &str, token: Token) -> String {
    format!("token {token} is of no live grant on {resource}: it has ended, or was never there")
}

fn checked(resource: &str) -> Result<String, Invalid> {
    ResourceName::new(resource).map(|name| name.as_str().to_owned())
}

fn wire(note: Note) -> v1::Note {
    v1::Note { actor: note.actor, reason: note.reason }
}

fn fences(wire: Vec<v1::Fence>) -> Result<Vec<Fence>, ClientError> {
    let fences = wire.into_iter().map(Fence::try_from).collect::<Result<_, Invalid>>();
    fences.map_err(|Invalid { field, .. }| ClientError::Malformed { field })
}

fn admin(target: &Target) -> AdminClient<tonic::transport::Channel> {
    AdminClient::new(target.channel.clone())
}
