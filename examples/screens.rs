//! Two screens an account. A third device has to wait for one; it gets the number of the
//! device that fell asleep, and the player refuses the sleeper from then on. The other
//! screen plays on.
//!
//! ```sh
//! ringfence dev                              # in another terminal, or any cluster:
//! RINGFENCE_ENDPOINTS=10.0.0.1:7411 cargo run --example screens
//! ```

mod play;

use std::time::Duration;

use play::{Actor, Told, client, orders, scene};
use ringfence::client::{ClientError, Session, SlotGuard};
use ringfence::fence::sqlite;
use rusqlite::Connection;

const ACCOUNT: &str = "example/screens/ann";
const SCREENS: u32 = 2;
const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Told<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(name), Some(player)) => device(&name, &player).await,
        _ => story().await,
    }
}

async fn story() -> Told<()> {
    let folder = tempfile::tempdir()?;
    let player = folder.path().join("player.db");
    let player = player.to_str().ok_or("a folder with a strange name")?;
    let played = play::database(player)?;
    played.execute_batch("CREATE TABLE played (minute INTEGER, device TEXT, slot INTEGER)")?;
    sqlite::install(&played)?;

    scene("The account has two screens: the television and the phone take them.");
    let mut television = Actor::start("tv", &[player])?;
    television.ask("take", "has screen 0").await?;
    television.ask("play 1", "ready").await?;
    television.ask("go", "plays").await?;
    let mut phone = Actor::start("phone", &[player])?;
    phone.ask("take", "has screen 1").await?;
    phone.ask("play 1", "ready").await?;
    phone.ask("go", "plays").await?;

    scene("The tablet finds none free, and waits.");
    let mut tablet = Actor::start("tablet", &[player])?;
    tablet.ask("try", "no screen is free").await?;
    tablet.tell("take").await?;

    scene("The phone falls asleep in the middle of asking for minute 2.");
    phone.ask("play 2", "ready").await?;
    phone.pause().await?;

    scene("Its lease runs out: the tablet gets its screen.");
    tablet.expect("has screen 1").await?;
    tablet.ask("play 1", "ready").await?;
    tablet.ask("go", "plays").await?;

    scene("The phone wakes up and goes on asking: refused. The television is not disturbed.");
    phone.go_on().await?;
    phone.ask("go", "refused").await?;
    television.ask("play 2", "ready").await?;
    television.ask("go", "plays").await?;

    let mut rows = played.prepare("SELECT device, minute, slot FROM played ORDER BY rowid")?;
    let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let rows: Vec<(String, i64, u32)> = rows.collect::<Result<_, _>>()?;
    println!("Played: {rows:?}");
    let expected = [("tv", 1, 0), ("phone", 1, 1), ("tablet", 1, 1), ("tv", 2, 0)];
    if !rows.iter().map(|(device, minute, slot)| (device.as_str(), *minute, *slot)).eq(expected) {
        return Err("that is not what was to be played".into());
    }
    Ok(())
}

/// A device of the account, in a process of its own.
async fn device(name: &str, player: &str) -> Told<()> {
    let mut player = play::database(player)?;
    let session = client()?.session(TTL).purpose(name).await?;
    let mut screen = None;
    let mut orders = orders();
    while let Some(order) = orders.next_line().await? {
        match order.split_once(' ').unwrap_or((&order, "")) {
            ("take", _) => screen = take(&session, None).await?,
            ("try", _) => screen = take(&session, Some(Duration::ZERO)).await?,
            (_, minute) => {
                println!("ready");
                orders.next_line().await?;
                let screen = screen.as_ref().ok_or("no screen to play on")?;
                play(&mut player, screen, name, minute);
            }
        }
    }
    Ok(())
}

async fn take(session: &Session, wait: Option<Duration>) -> Told<Option<SlotGuard>> {
    let mut screen = session.acquire_slot(ACCOUNT, SCREENS);
    if let Some(wait) = wait {
        screen = screen.wait(wait);
    }
    match screen.await {
        Ok(screen) => {
            println!("has screen {}, with token {}", screen.slot(), screen.token());
            Ok(Some(screen))
        }
        Err(ClientError::Busy { .. }) => {
            println!("no screen is free");
            Ok(None)
        }
        Err(other) => Err(other.into()),
    }
}

/// What the player does with a request for a minute: the check and the record of it are
/// one transaction.
fn play(player: &mut Connection, screen: &SlotGuard, device: &str, minute: &str) {
    let sql = "INSERT INTO played (minute, device, slot) VALUES (?1, ?2, ?3)";
    let write = sqlite::guarded(player, screen.fence(), |transaction| {
        transaction.execute(sql, (minute, device, screen.slot()))
    });
    match write {
        Ok(_) => println!("plays minute {minute}"),
        Err(refused) => println!("refused: {refused}"),
    }
}
