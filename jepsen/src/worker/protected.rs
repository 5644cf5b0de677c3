//! What a client does at the protected destination: raise, read, think, write.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::order::{Answer, Order};
use crate::history::Kind;

/// A connection to the destination.
struct Connection(BufReader<TcpStream>);

impl Connection {
    async fn ask(&mut self, what: &Value) -> Result<Value> {
        let line = format!("{what}\n");
        self.0.get_mut().write_all(line.as_bytes()).await?;
        let mut answer = String::new();
        self.0.read_line(&mut answer).await?;
        serde_json::from_str(&answer).context("the destination broke off")
    }
}

/// The request `op` with the fence of the order.
fn asked(order: &Order, op: &str) -> Value {
    let mut what = order.aside.clone();
    for name in ["resource", "token", "floor", "slot", "session", "element"] {
        if let Some(value) = order.args.get(name) {
            what[name] = value.clone();
        }
    }
    what["op"] = json!(op);
    what
}

/// A read-modify-write under the fence; `raise` stops after the first step. Until the last step
/// is sent, a failure had no effect on the protected data.
pub async fn write(order: &Order) -> Answer {
    let mut sent = false;
    let limit = Duration::from_millis(order.timeout_ms);
    let done = tokio::time::timeout(limit, steps(order, &mut sent)).await;
    match done {
        Ok(Ok(answer)) => answer,
        Ok(Err(error)) => failed(order, sent, format!("connection: {error:#}")),
        Err(_) => failed(order, sent, "timeout".into()),
    }
}

fn failed(order: &Order, sent: bool, error: String) -> Answer {
    let kind = if sent { Kind::Info } else { Kind::Fail };
    Answer::of(order.id, kind, Value::Null, Some(error))
}

async fn steps(order: &Order, sent: &mut bool) -> Result<Answer> {
    let stream = TcpStream::connect(&order.address).await?;
    stream.set_nodelay(true)?;
    let mut connection = Connection(BufReader::new(stream));
    let read = connection.ask(&asked(order, "raise")).await?;
    if read["accepted"] != json!(true) || order.f == "raise" {
        return Ok(told(order, &read));
    }
    let think = order.aside["think_ms"].as_u64().unwrap_or(0);
    tokio::time::sleep(Duration::from_millis(think)).await;
    let mut what = asked(order, "write");
    if order.aside["counts"] == json!(true) {
        what["counter"] = json!(read["counter"].as_u64().unwrap_or(0) + 1);
    }
    *sent = true;
    Ok(told(order, &connection.ask(&what).await?))
}

fn told(order: &Order, answer: &Value) -> Answer {
    if answer["accepted"] == json!(true) {
        return Answer::ok(order.id, json!({}));
    }
    let reason = answer["reason"].as_str().unwrap_or("REFUSED").to_owned();
    Answer::of(order.id, Kind::Fail, Value::Null, Some(reason))
}
