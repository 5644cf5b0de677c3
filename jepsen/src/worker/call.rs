//! One attempt of one call at one node, and what its answer says.

use std::cell::RefCell;
use std::collections::HashMap;
use std::time::Duration;

use ringfence::wire::reason::{Speaks, Told, key};
use ringfence::wire::v1;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::library::{self, Library};
use super::order::{Answer, Order};
use super::protected;
use crate::history::Kind;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_millis(700);
/// How often an idle connection is tried, and how long it may be silent then.
const ALIVE: Duration = Duration::from_secs(1);

/// The connections of a client process.
#[derive(Default)]
pub struct Calls {
    channels: RefCell<HashMap<String, Channel>>,
    library: Library,
}

/// Results, and the log index that they speak of.
type Done = (Value, Option<u64>);

impl Calls {
    /// Does one order.
    pub async fn obey(&self, order: &Order) -> Answer {
        if let Some(handle) = library::handle(order) {
            return self.library.obey(order, handle).await;
        }
        if matches!(order.f.as_str(), "write" | "raise") {
            return protected::write(order).await;
        }
        let channel = match self.channel(&order.address).await {
            Ok(channel) => channel,
            Err(error) => {
                let error = Some(format!("connect: {error}"));
                return Answer::of(order.id, Kind::Fail, Value::Null, error);
            }
        };
        let limit = Duration::from_millis(order.timeout_ms);
        match tokio::time::timeout(limit, Box::pin(call(channel, order))).await {
            Ok(Ok((value, log_index))) => {
                Answer { log_index, aside: cluster(&value), ..Answer::ok(order.id, plain(value)) }
            }
            Ok(Err(status)) => self.refused(order, &status),
            Err(_) => Answer::of(order.id, Kind::Info, Value::Null, Some("timeout".into())),
        }
    }

    async fn channel(&self, address: &str) -> Result<Channel, tonic::transport::Error> {
        if let Some(channel) = self.channels.borrow().get(address) {
            return Ok(channel.clone());
        }
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(ALIVE)
            .keep_alive_timeout(ALIVE)
            .keep_alive_while_idle(true)
            .tcp_nodelay(true)
            .connect()
            .await?;
        self.channels.borrow_mut().insert(address.to_owned(), channel.clone());
        Ok(channel)
    }

    /// A refusal of ours says whether the attempt can have had an effect; anything else says
    /// nothing, and its connection is not used again.
    fn refused(&self, order: &Order, status: &Status) -> Answer {
        let Some(told) = Told::of(status) else {
            self.channels.borrow_mut().remove(&order.address);
            let error = format!("transport: {}", status.message());
            return Answer::of(order.id, Kind::Info, Value::Null, Some(error));
        };
        let kind = match told.reason.map(ringfence::wire::Reason::speaks) {
            Some(Speaks::ForTheId | Speaks::ForTheAttempt) => Kind::Fail,
            Some(Speaks::ForNothing) | None => Kind::Info,
        };
        let told_token = told.number(key::TOKEN);
        let leader = json!({"leader": told.text(key::LEADER), "message": told.message});
        let answer = Answer::of(order.id, kind, Value::Null, Some(told.word));
        Answer { told_token, aside: leader, ..answer }
    }
}

/// The cluster's id, which the history does not need.
fn cluster(value: &Value) -> Value {
    json!({"cluster_id": value.get("cluster_id"), "frozen": value.get("frozen")})
}

fn plain(mut value: Value) -> Value {
    if let Some(fields) = value.as_object_mut() {
        fields.remove("cluster_id");
        fields.remove("frozen");
    }
    value
}

async fn call(channel: Channel, order: &Order) -> Result<Done, Status> {
    match order.f.as_str() {
        "open" | "renew" | "close" | "set_ttl" => session(channel, order).await,
        "acquire" => acquire(channel, order).await,
        "confirm" | "release" | "set_value" | "cancel" => of_grant(channel, order).await,
        "get" | "check_token" => read(channel, order).await,
        "revoke" | "freeze" | "thaw" => by_hand(channel, order).await,
        other => Err(Status::internal(format!("no operation is called {other}"))),
    }
}

fn number(order: &Order, name: &str) -> u64 {
    order.args.get(name).and_then(Value::as_u64).unwrap_or(0)
}

fn small(order: &Order, name: &str) -> u32 {
    u32::try_from(number(order, name)).unwrap_or(u32::MAX)
}

fn text(order: &Order, name: &str) -> String {
    order.args.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn flag(order: &Order, name: &str) -> bool {
    order.args.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn owner(order: &Order) -> Vec<u8> {
    let text = order.aside.get("owner").and_then(Value::as_str).unwrap_or_default();
    unhex(text)
}

/// Bytes from hexadecimal digits.
pub fn unhex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits.filter_map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
}

/// Hexadecimal digits of bytes.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn header(order: &Order) -> Option<v1::RequestHeader> {
    let request = number(order, "request");
    let oldest = order.aside.get("oldest").and_then(Value::as_u64).unwrap_or(request);
    Some(v1::RequestHeader {
        owner_id: owner(order).into(),
        session: number(order, "session"),
        request_id: request,
        oldest_outstanding: oldest.min(request),
        answered: Vec::new(),
    })
}

async fn session(channel: Channel, order: &Order) -> Result<Done, Status> {
    let mut client = v1::sessions_client::SessionsClient::new(channel);
    match order.f.as_str() {
        "open" => {
            let ttl_ms = number(order, "ttl_ms");
            let request = v1::OpenSessionRequest {
                owner_id: owner(order).into(),
                ttl_ms,
                ..v1::OpenSessionRequest::default()
            };
            let answer = client.open(request).await?.into_inner();
            let (session, ttl_ms) = (answer.session, answer.ttl_ms);
            let cluster = hex(&answer.cluster_id);
            Ok((json!({"session": session, "ttl_ms": ttl_ms, "cluster_id": cluster}), None))
        }
        "set_ttl" => {
            let ttl_ms = number(order, "ttl_ms");
            let request = v1::SetTtlRequest { header: header(order), ttl_ms };
            let answer = client.set_ttl(request).await?.into_inner();
            Ok((json!({"ttl_ms": answer.ttl_ms}), None))
        }
        "close" => {
            let session = number(order, "session");
            let request = v1::CloseSessionRequest { owner_id: owner(order).into(), session };
            client.close(request).await?;
            Ok((json!({}), None))
        }
        _ => renew(client, order).await,
    }
}

/// One renewal over a stream of its own, which stays open until it is answered.
async fn renew(
    mut client: v1::sessions_client::SessionsClient<Channel>,
    order: &Order,
) -> Result<Done, Status> {
    let renewal = v1::Renewal {
        owner_id: owner(order).into(),
        session: number(order, "session"),
        sequence: order.id,
    };
    let (send, receive) = tokio::sync::mpsc::channel(1);
    let message = v1::KeepAliveRequest { renewals: vec![renewal] };
    send.try_send(message).map_err(|_| Status::internal("a new channel is full"))?;
    let stream = tokio_stream::wrappers::ReceiverStream::new(receive);
    let mut answers = client.keep_alive(Request::new(stream)).await?.into_inner();
    let answer = answers.message().await?;
    drop(send);
    let answer = answer.and_then(|answer| answer.answers.into_iter().next());
    let answer = answer.ok_or_else(|| Status::unknown("the stream ended"))?;
    match answer.result {
        Some(v1::renewal_answer::Result::Renewed(renewed)) => {
            Ok((json!({"ttl_ms": renewed.ttl_ms}), None))
        }
        Some(v1::renewal_answer::Result::Refused(refused)) => {
            match ringfence::wire::Reason::parse(&refused.reason) {
                Some(reason) => Err(reason.status(refused.message, [])),
                None => Err(Status::unknown(refused.message)),
            }
        }
        None => Err(Status::unknown("an answer without a result")),
    }
}

async fn acquire(channel: Channel, order: &Order) -> Result<Done, Status> {
    let mode = match text(order, "mode").as_str() {
        "shared" => v1::Mode::Shared,
        "slots" => v1::Mode::Slots,
        _ => v1::Mode::Exclusive,
    };
    let more = order.args.get("more").and_then(Value::as_array).into_iter().flatten();
    let request = v1::AcquireRequest {
        header: header(order),
        resource: text(order, "resource"),
        mode: mode.into(),
        wait_ms: number(order, "wait_ms"),
        slots: small(order, "slots"),
        more: more.filter_map(Value::as_str).map(str::to_owned).collect(),
        barrier_ms: number(order, "barrier_ms"),
        answer_queued: order.aside.get("queue") == Some(&json!(true)),
        ..v1::AcquireRequest::default()
    };
    let answer = v1::locks_client::LocksClient::new(channel).acquire(request).await?.into_inner();
    if let Some(place) = answer.queued {
        return Ok((json!({"queued_ahead": place.ahead}), None));
    }
    let (Some(grant), Some(fence)) = (answer.grant, answer.fence) else {
        return Err(Status::unknown("a grant without a fence"));
    };
    let mut value = json!({"token": grant.token, "floor": fence.floor});
    if let Some(slot) = grant.slot {
        value["slot"] = json!(slot);
    }
    Ok((value, grant.granted_at.map(|at| at.index)))
}

async fn of_grant(channel: Channel, order: &Order) -> Result<Done, Status> {
    let mut client = v1::locks_client::LocksClient::new(channel);
    let (header, resource, token) =
        (header(order), text(order, "resource"), number(order, "token"));
    match order.f.as_str() {
        "confirm" => {
            let request = v1::ConfirmRequest { header, resource, token };
            let answer = client.confirm(request).await?.into_inner();
            Ok((json!({}), answer.confirmed_at.map(|at| at.index)))
        }
        "release" => {
            let request = v1::ReleaseRequest { header, resource, token };
            let answer = client.release(request).await?.into_inner();
            Ok((json!({}), answer.released_at.map(|at| at.index)))
        }
        "set_value" => {
            let value = b"shown".to_vec().into();
            let request = v1::SetValueRequest { header, resource, token, value };
            let answer = client.set_value(request).await?.into_inner();
            Ok((json!({}), answer.changed_at.map(|at| at.index)))
        }
        _ => {
            let request = v1::CancelRequest { header, target: number(order, "target") };
            let answer = client.cancel(request).await?.into_inner();
            let granted = answer.grant.map(|grant| (grant.token, grant.resource));
            let value =
                granted.map_or(json!({}), |(token, of)| json!({"granted": token, "of": of}));
            Ok((value, None))
        }
    }
}

fn holder(grant: &v1::Grant) -> Value {
    let mode = match grant.mode() {
        v1::Mode::Shared => "shared",
        v1::Mode::Slots => "slots",
        v1::Mode::Exclusive | v1::Mode::Unspecified => "exclusive",
    };
    let barrier = grant.phase() == v1::Phase::Barrier;
    let phase = if barrier { "barrier" } else { "active" };
    let mut shown = json!({"token": grant.token, "mode": mode, "phase": phase});
    if let Some(slot) = grant.slot {
        shown["slot"] = json!(slot);
    }
    shown
}

async fn read(channel: Channel, order: &Order) -> Result<Done, Status> {
    let mut client = v1::locks_client::LocksClient::new(channel);
    if order.f == "check_token" {
        let request = v1::CheckTokenRequest {
            resource: text(order, "resource"),
            token: number(order, "token"),
        };
        let answer = client.check_token(request).await?.into_inner();
        let mut value = answer.grant.as_ref().map_or(json!({}), holder);
        value["current"] = json!(answer.current);
        value["token"] = order.args["token"].clone();
        return Ok((value, Some(answer.index)));
    }
    let request = v1::GetRequest { resource: text(order, "resource"), stale: flag(order, "stale") };
    let answer = client.get(request).await?.into_inner();
    let holders = answer.resource.iter().flat_map(|view| &view.holders).map(holder);
    let frozen = answer.resource.as_ref().and_then(|view| view.frozen.as_ref());
    let frozen = frozen.map(|frozen| frozen.token);
    let value = json!({"holders": holders.collect::<Vec<_>>(), "frozen": frozen});
    Ok((value, Some(answer.index)))
}

async fn by_hand(channel: Channel, order: &Order) -> Result<Done, Status> {
    let mut client = v1::admin_client::AdminClient::new(channel);
    let resource = text(order, "resource");
    let token = number(order, "token");
    let note = Some(v1::Note { actor: "jepsen".into(), reason: "a test".into() });
    match order.f.as_str() {
        "revoke" => {
            let request = v1::RevokeRequest { resource, token, note };
            let answer = client.revoke(request).await?.into_inner();
            let by = answer.fences.first().map(|fence| fence.token);
            Ok((json!({"by": by}), None))
        }
        "freeze" => {
            let request = v1::FreezeRequest { resource, note };
            let answer = client.freeze(request).await?.into_inner();
            Ok((json!({"by": answer.fence.map(|fence| fence.token)}), None))
        }
        _ => {
            let request = v1::ThawRequest { resource, token, note };
            let answer = client.thaw(request).await?.into_inner();
            Ok((json!({}), answer.thawed_at.map(|at| at.index)))
        }
    }
}
