//! What the scripted authority answers: each call is a command to the rules, or a look
//! at them.

use ringfence::locks::{
    Administered, Command, Done, Fence, GrantRow, OwnerId, Phase, Refusal, RequestId, ResourceName,
    SessionId, Token, Value, WaitId,
};
use ringfence::wire::api::{
    claim_in, header_in, labels_in, note_in, session_in, slots_in, token_in, within_in,
};
use ringfence::wire::reason::Reason;
use ringfence::wire::v1::{self, renewal_answer};
use ringfence::wire::views::{Listed, fences_out, grant_out, resource_out, revision_out};
use tonic::Status;

use crate::authority::{Authority, CLUSTER, Seen};
use crate::table::{Table, bad, name, refused};

type Answer<T> = Result<T, Status>;

impl Authority {
    fn propose(&self, command: &Command) -> Answer<Done> {
        self.change(|t| t.apply(command)).map_err(|refusal| refused(&refusal))
    }

    // Sessions.

    pub fn open(&self, request: &v1::OpenSessionRequest) -> Answer<v1::OpenSessionResponse> {
        let owner = OwnerId::from_slice(&request.owner_id).map_err(|e| bad(&e))?;
        let labels = labels_in(request.labels.clone()).map_err(|e| bad(&e))?;
        let ttl = ringfence::locks::Millis(request.ttl_ms);
        self.change(|t| t.owners.insert(request.owner_id.to_vec()));
        match self.propose(&Command::OpenSession { owner, ttl, labels })? {
            Done::Opened { session, ttl, created } => {
                let (ttl_ms, cluster_id) = (ttl.0, CLUSTER.to_vec().into());
                Ok(v1::OpenSessionResponse { session: session.0, ttl_ms, cluster_id, created })
            }
            other => panic!("{other:?}"),
        }
    }

    /// Answers a renewal, and notes it under the session's id.
    pub fn renew(&self, node: usize, renewal: &v1::Renewal) -> renewal_answer::Result {
        let mut table = self.table();
        table.seen.push(Seen {
            node,
            what: "renew",
            session: renewal.session,
            id: renewal.session,
            oldest: 0,
            answered: vec![],
            no_forward: false,
            contents: String::new(),
        });
        let Some(session) = table.locks.session(SessionId(renewal.session)) else {
            let (message, leader) = (String::new(), String::new());
            let reason = Reason::SessionExpired.as_str().to_owned();
            return renewal_answer::Result::Refused(v1::RenewalRefusal { reason, message, leader });
        };
        let changed_at = Some(revision_out(session.changed_at));
        let ttl_ms = session.row.ttl.0;
        renewal_answer::Result::Renewed(v1::Renewed { ttl_ms, changed_at })
    }

    pub fn close(&self, request: &v1::CloseSessionRequest) -> Answer<v1::CloseSessionResponse> {
        let owner = OwnerId::from_slice(&request.owner_id).map_err(|e| bad(&e))?;
        let session = session_in(request.session).map_err(|e| bad(&e))?;
        self.propose(&Command::CloseSession { owner, session })?;
        Ok(v1::CloseSessionResponse {})
    }

    pub fn set_ttl(&self, request: &v1::SetTtlRequest) -> Answer<v1::SetTtlResponse> {
        let header = header_in(request.header.clone()).map_err(|e| bad(&e))?;
        let ttl = ringfence::locks::Millis(request.ttl_ms);
        match self.propose(&Command::SetTtl { header, ttl })? {
            Done::TtlSet { ttl } => Ok(v1::SetTtlResponse { ttl_ms: ttl.0 }),
            other => panic!("{other:?}"),
        }
    }

    // Grants.

    /// Applies an acquire, and answers at once if it has not to wait, or asks for that.
    /// `None` is the start of a wait.
    pub fn begin_acquire(
        &self,
        request: &v1::AcquireRequest,
    ) -> Answer<Option<v1::AcquireResponse>> {
        let (claim, wait) = claim_in(request).map_err(|e| bad(&e))?;
        let header = header_in(request.header.clone()).map_err(|e| bad(&e))?;
        match self.propose(&Command::Acquire { header, claim, wait })? {
            Done::Queued { ahead } if request.answer_queued => {
                let queued = Some(v1::QueuePlace { ahead });
                Ok(Some(v1::AcquireResponse { queued, ..Default::default() }))
            }
            Done::Queued { .. } => Ok(None),
            Done::Granted { token } => granted(&self.table(), token).map(Some),
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the acquire is no longer queued.
    pub async fn end_acquire(
        &self,
        header: Option<&v1::RequestHeader>,
    ) -> Answer<v1::AcquireResponse> {
        let header = header_in(header.cloned()).map_err(|e| bad(&e))?;
        let id = WaitId { session: header.session, request: header.id };
        let mut bell = self.bell.subscribe();
        loop {
            let outcome = self.table().outcome(id);
            match outcome {
                Some(Ok(Done::Granted { token })) => return granted(&self.table(), token),
                Some(Ok(other)) => panic!("{other:?}"),
                Some(Err(refusal)) => return Err(refused(&refusal)),
                None => bell.changed().await.expect("the authority holds the bell"),
            }
        }
    }

    pub fn cancel(&self, request: &v1::CancelRequest) -> Answer<v1::CancelResponse> {
        let header = header_in(request.header.clone()).map_err(|e| bad(&e))?;
        let target = RequestId::new(request.target).map_err(|e| bad(&e))?;
        match self.propose(&Command::Cancel { header, target })? {
            Done::CancelledTarget => Ok(v1::CancelResponse { grant: None }),
            Done::Granted { token } => {
                let table = self.table();
                let grant = live(&table, token)?;
                let grant = grant_out(&table.locks, grant, &grant.names[0]);
                Ok(v1::CancelResponse { grant: Some(grant) })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn release(&self, request: &v1::ReleaseRequest) -> Answer<v1::ReleaseResponse> {
        let header = header_in(request.header.clone()).map_err(|e| bad(&e))?;
        let resource = ResourceName::new(&request.resource).map_err(|e| bad(&e))?;
        let token = token_in(request.token).map_err(|e| bad(&e))?;
        match self.propose(&Command::Release { header, resource, token })? {
            Done::Released { at } => {
                Ok(v1::ReleaseResponse { released_at: Some(revision_out(at)) })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn confirm(&self, request: &v1::ConfirmRequest) -> Answer<v1::ConfirmResponse> {
        let header = header_in(request.header.clone()).map_err(|e| bad(&e))?;
        let resource = ResourceName::new(&request.resource).map_err(|e| bad(&e))?;
        let token = token_in(request.token).map_err(|e| bad(&e))?;
        match self.propose(&Command::Confirm { header, resource, token })? {
            Done::Confirmed { at } => {
                Ok(v1::ConfirmResponse { confirmed_at: Some(revision_out(at)) })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn set_value(&self, request: &v1::SetValueRequest) -> Answer<v1::SetValueResponse> {
        let header = header_in(request.header.clone()).map_err(|e| bad(&e))?;
        let resource = ResourceName::new(&request.resource).map_err(|e| bad(&e))?;
        let token = token_in(request.token).map_err(|e| bad(&e))?;
        let value = Value::new(&request.value).map_err(|e| bad(&e))?;
        match self.propose(&Command::SetValue { header, resource, token, value })? {
            Done::ValueSet { at } => {
                Ok(v1::SetValueResponse { changed_at: Some(revision_out(at)) })
            }
            other => panic!("{other:?}"),
        }
    }

    // Questions.

    pub fn held(&self, request: &v1::HeldRequest) -> Answer<v1::HeldResponse> {
        let table = self.table();
        let owner = OwnerId::from_slice(&request.owner_id).map_err(|e| bad(&e))?;
        let view = table.locks.owned_session(owner, SessionId(request.session));
        let view = view.ok_or_else(|| refused(&Refusal::SessionExpired))?;
        let of = |grant: &GrantRow| {
            let names = grant.names.clone();
            let grant = grant.clone();
            names.into_iter().map(move |name| (grant.clone(), name))
        };
        let grants = view.grants().flat_map(of);
        Ok(v1::HeldResponse {
            grants: grants.map(|(grant, name)| grant_out(&table.locks, &grant, &name)).collect(),
            waits: view.waits().map(|wait| wait.wait.request.get()).collect(),
            changed_at: Some(revision_out(view.changed_at)),
            index: table.locks.position().index,
        })
    }

    pub fn get(&self, request: &v1::GetRequest) -> v1::GetResponse {
        let table = self.table();
        let index = table.locks.position().index;
        let resource = Some(table.view(&request.resource));
        v1::GetResponse { resource, index, stale: request.stale }
    }

    pub fn check_token(&self, request: &v1::CheckTokenRequest) -> v1::CheckTokenResponse {
        let table = self.table();
        let resource = name(&request.resource);
        let token = Token::new(request.token).expect("a good token");
        let grant = table.locks.live_grant_on(&resource, token);
        let grant = grant.filter(|grant| grant.phase == Phase::Active);
        let grant = grant.map(|grant| grant_out(&table.locks, grant, &resource));
        let index = table.locks.position().index;
        v1::CheckTokenResponse { current: grant.is_some(), grant, index }
    }

    pub fn explain(&self, request: &v1::ExplainRequest) -> v1::ExplainResponse {
        let resource = Some(self.table().view(&request.resource));
        let events = self.events_on(&request.resource);
        v1::ExplainResponse { resource, events, ..Default::default() }
    }

    // What administrators do.

    pub fn administer(&self, command: &Command) -> Answer<Administered> {
        match self.propose(command)? {
            Done::Administered(done) => Ok(done),
            other => panic!("{other:?}"),
        }
    }

    pub fn revoke_grant(&self, request: &v1::RevokeRequest) -> Answer<v1::RevokeResponse> {
        let resource = ResourceName::new(&request.resource).map_err(|e| bad(&e))?;
        let token = token_in(request.token).map_err(|e| bad(&e))?;
        let note = note_in(request.note.clone()).map_err(|e| bad(&e))?;
        match self.administer(&Command::Revoke { resource, token, note })? {
            Administered::Revoked { names, slot, token, floor } => {
                let fences = names.into_iter().map(|resource| fence(resource, slot, token, floor));
                Ok(v1::RevokeResponse { fences: fences.collect() })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn freeze(&self, request: &v1::FreezeRequest) -> Answer<v1::FreezeResponse> {
        let resource = ResourceName::new(&request.resource).map_err(|e| bad(&e))?;
        let note = note_in(request.note.clone()).map_err(|e| bad(&e))?;
        match self.administer(&Command::Freeze { resource: resource.clone(), note })? {
            Administered::Frozen { token } => {
                Ok(v1::FreezeResponse { fence: Some(fence(resource, None, token, token)) })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn thaw(&self, request: &v1::ThawRequest) -> Answer<v1::ThawResponse> {
        let resource = ResourceName::new(&request.resource).map_err(|e| bad(&e))?;
        let token = token_in(request.token).map_err(|e| bad(&e))?;
        let note = note_in(request.note.clone()).map_err(|e| bad(&e))?;
        match self.administer(&Command::Thaw { resource, token, note })? {
            Administered::Thawed { at } => {
                Ok(v1::ThawResponse { thawed_at: Some(revision_out(at)) })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn resize(&self, request: &v1::ResizeRequest) -> Answer<v1::ResizeResponse> {
        let resource = ResourceName::new(&request.resource).map_err(|e| bad(&e))?;
        let slots = slots_in(request.slots).map_err(|e| bad(&e))?;
        let note = note_in(request.note.clone()).map_err(|e| bad(&e))?;
        match self.administer(&Command::Resize { resource: resource.clone(), slots, note })? {
            Administered::Resized { slots, token, floor, removed } => {
                let of = |slot| fence(resource.clone(), Some(slot), token, floor);
                Ok(v1::ResizeResponse {
                    slots,
                    token: token.get(),
                    removed: removed.clone().map(of).collect(),
                    removed_from: removed.start,
                    removed_to: removed.end,
                })
            }
            other => panic!("{other:?}"),
        }
    }

    pub fn ask_release(&self, request: &v1::AskReleaseRequest) -> Answer<v1::AskReleaseResponse> {
        let resource = ResourceName::new(&request.resource).map_err(|e| bad(&e))?;
        let token = token_in(request.token).map_err(|e| bad(&e))?;
        let within = within_in(request.within_ms).map_err(|e| bad(&e))?;
        let note = note_in(request.note.clone()).map_err(|e| bad(&e))?;
        match self.administer(&Command::AskRelease { resource, token, within, note })? {
            Administered::Asked { at } => {
                Ok(v1::AskReleaseResponse { asked_at: Some(revision_out(at)) })
            }
            other => panic!("{other:?}"),
        }
    }
}

impl Table {
    pub fn view(&self, resource: &str) -> v1::ResourceView {
        match self.locks.resource(&name(resource)) {
            Some(view) => resource_out(&self.locks, &view, Listed::ALONE),
            None => v1::ResourceView { resource: resource.to_owned(), ..Default::default() },
        }
    }
}

fn live(table: &Table, token: Token) -> Answer<&GrantRow> {
    table.locks.grant(token).ok_or_else(|| refused(&Refusal::GrantEnded { token }))
}

fn granted(table: &Table, token: Token) -> Answer<v1::AcquireResponse> {
    let grant = live(table, token)?;
    let fences = fences_out(&table.locks, grant);
    Ok(v1::AcquireResponse {
        grant: Some(grant_out(&table.locks, grant, &grant.names[0])),
        fence: fences.first().cloned(),
        fences: if grant.names.len() > 1 { fences } else { Vec::new() },
        queued: None,
    })
}

fn fence(resource: ResourceName, slot: Option<u32>, token: Token, floor: Token) -> v1::Fence {
    let cluster = ringfence::locks::ClusterId::new(CLUSTER);
    (&Fence { cluster, resource, slot, token, floor }).into()
}
