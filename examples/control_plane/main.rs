//! Two databases, of which an election makes one the primary. The agent that keeps the
//! primary's lease is cut off; the database goes on serving those who are connected to it,
//! as it must be expected to. From the moment on in which its successor has raised the
//! fence at the storage, through which all commits go, no write of the old one is accepted.
//! What it could still write before that is counted.
//!
//! ```sh
//! ringfence dev                              # in another terminal, or any cluster:
//! export RINGFENCE_ENDPOINTS=10.0.0.1:7411
//! DATABASE_URL="host=/tmp/pg user=postgres" cargo run --example control_plane
//! ```
//!
//! The page: docs/systems/control-plane.md.

mod agent;
mod database;
#[path = "../play/postgres.rs"]
mod destination;
mod line;
#[path = "../play/mod.rs"]
mod play;
mod storage;
mod traffic;

use std::time::Duration;

use line::Line;
use play::{Actor, Told, client, scene};
use ringfence::client::Observer;
use ringfence::locks::{Note, Token};
use storage::Row;

/// Of the agents' sessions, and as long as a commit may hold the mark.
const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Told<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [] => story().await,
        [_, "database", file] => database::run(file).await,
        [name, "agent", election, database] => agent::run(name, election, database).await,
        [_, "proxy", election] => traffic::proxy(election).await,
        [name, "client", server] => traffic::client(name, server).await,
        _ => Err("this program takes no arguments".into()),
    }
}

async fn story() -> Told<()> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path().to_str().ok_or("a folder with a strange name")?;
    let [file_a, file_b] = ["a", "b"].map(|name| format!("{folder}/{name}.db"));
    let election = destination::of_this_run("example/control-plane")?;
    let storage = storage::prepare().await?;
    let mut observer = client()?.observe(&election);

    scene("Database a is made the primary. The proxy leads clients to it, with its epoch.");
    let (_a, address_a) = listening("a", &["database", &file_a]).await?;
    let (_b, address_b) = listening("b", &["database", &file_b]).await?;
    let (mut proxy, address) = listening("proxy", &["proxy", &election]).await?;
    let mut agent_a = Actor::start("agent-a", &["agent", &election, &address_a])?;
    agent_a.expect("is elected").await?;
    let first = leads(&mut agent_a, &mut observer).await?;
    led_to(&mut proxy, &address_a, first).await?;
    let mut agent_b = Actor::start("agent-b", &["agent", &election, &address_b])?;
    agent_b.expect("stands for election").await?;

    scene("Two clients write: one through the proxy, one over its own connection to a.");
    let mut shop = Actor::start("shop", &["client", &address])?;
    let mut batch = Actor::start("batch", &["client", &address_a])?;
    shop.ask("acknowledged 5", "5 more").await?;
    batch.ask("acknowledged 5", "5 more").await?;

    scene("The agent of a is cut off from everything. Database a goes on serving.");
    agent_a.pause().await?;

    scene("The lease of a runs out: b is elected. Until it raises the fence, a is not stopped.");
    agent_b.expect("is elected").await?;
    batch.ask("acknowledged 5", "5 more").await?;

    scene("Agent b raises the fence, and b leads. Whatever a writes, the storage refuses.");
    let second = leads(&mut agent_b, &mut observer).await?;
    batch.ask("refused 5", "5 more refused: stale fence").await?;
    led_to(&mut proxy, &address_b, second).await?;
    shop.ask("acknowledged 5", "5 more").await?;
    println!("{}", storage::window(&storage, first, second).await?);

    scene("The agent of a is back. It learns that it has lost, and has a stand down.");
    agent_a.go_on().await?;
    agent_a.expect("leads no more").await?;
    agent_a.expect("stands for election").await?;
    batch.ask("refused 1", "1 more refused: not the primary").await?;

    scene("An administrator asks b to hand over: it ends the write under way, then resigns.");
    let note = Note::new("alice", "b gets a new disk")?;
    let token = Token::new(second)?;
    client()?.ask_release(&election, token, Duration::from_secs(10), note).await?;
    agent_b.expect("resigns").await?;
    agent_a.expect("is elected").await?;
    let third = leads(&mut agent_a, &mut observer).await?;
    led_to(&mut proxy, &address_a, third).await?;
    shop.ask("acknowledged 5", "5 more").await?;
    batch.ask("acknowledged 5", "5 more").await?;
    println!("{}", storage::window(&storage, second, third).await?);

    scene("A proxy that slept since the first epoch leads to a, which is the primary of another.");
    let answer = Line::to(&address_a).await?.ask(&format!("write late 1 {first}")).await?;
    println!("  late    {answer}");
    if answer != format!("refused: this is the primary of epoch {third}") {
        return Err("it was not refused".into());
    }

    scene("The clients stop.");
    let told = [("shop", stopped(&mut shop).await?), ("batch", stopped(&mut batch).await?)];
    check(&storage::journal(&storage).await?, &told, [&file_a, &file_b])
}

/// Starts a process that serves, and tells where.
async fn listening(name: &'static str, arguments: &[&str]) -> Told<(Actor, String)> {
    let mut actor = Actor::start(name, arguments)?;
    let said = actor.expect("listens at ").await?;
    Ok((actor, said.trim_start_matches("listens at ").to_owned()))
}

/// Lets an elected agent go on to the lead; its epoch, when everybody can see it.
async fn leads(agent: &mut Actor, observer: &mut Observer) -> Told<u64> {
    agent.ask("go on", "leads with token").await?;
    loop {
        if let Some(leader) = observer.next().await? {
            return Ok(leader.token.get());
        }
    }
}

/// Waits until the proxy leads there.
async fn led_to(proxy: &mut Actor, address: &str, epoch: u64) -> Told<()> {
    let expected = format!("leads to {address}, epoch {epoch}");
    while proxy.hear().await? != expected {}
    Ok(())
}

/// How many writes of a client were acknowledged in all: 1 to this number.
async fn stopped(client: &mut Actor) -> Told<i64> {
    let said = client.ask("stop", "stops: ").await?;
    let number = said.split(' ').nth(1).ok_or("no number")?;
    Ok(number.parse()?)
}

/// What was acknowledged is in the journal once, no epoch follows on a later one, and both
/// databases' own stores hold what the journal holds, up to where each was the primary.
fn check(journal: &[Row], told: &[(&str, i64)], files: [&str; 2]) -> Told<()> {
    for (client, acknowledged) in told {
        let mut numbers: Vec<i64> =
            journal.iter().filter(|row| row.1 == *client).map(|row| row.2).collect();
        numbers.sort_unstable();
        if !numbers.into_iter().eq(1..=*acknowledged) {
            return Err(format!("{client} was not told what is in the journal").into());
        }
    }
    if !journal.is_sorted_by_key(|row| row.3) {
        return Err("an old epoch wrote after a new one".into());
    }
    let places: Vec<i64> = journal.iter().map(|row| row.0).collect();
    let [a, b] = [database::places(files[0])?, database::places(files[1])?];
    if a != places || !places.starts_with(&b) || b.is_empty() {
        return Err("a database holds what the journal does not, or lacks what it does".into());
    }
    println!("In the storage: {} writes, no epoch after a later one", journal.len());
    Ok(())
}
