//! A primary is elected, is paused in the middle of a write, and is replaced. It wakes up
//! and goes on writing, as it must be expected to: the database refuses.
//!
//! ```sh
//! ringfence dev                              # in another terminal, or any cluster:
//! RINGFENCE_ENDPOINTS=10.0.0.1:7411 cargo run --example election
//! ```

mod play;

use std::time::Duration;

use play::{Actor, Told, client, orders, scene};
use ringfence::client::Observer;
use ringfence::fence::sqlite;

const ELECTION: &str = "example/primary";
const TTL: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Told<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next(), arguments.next()) {
        (Some(name), Some(database)) => primary(&name, &database).await,
        _ => story().await,
    }
}

async fn story() -> Told<()> {
    let folder = tempfile::tempdir()?;
    let database = folder.path().join("orders.db");
    let database = database.to_str().ok_or("a folder with a strange name")?;
    let orders = play::database(database)?;
    orders.execute_batch("CREATE TABLE orders (number INTEGER PRIMARY KEY, by TEXT)")?;
    sqlite::install(&orders)?;
    let mut observer = client()?.observe(ELECTION);

    scene("Ann is elected and writes.");
    let mut ann = Actor::start("ann", &[database])?;
    ann.expect("leads").await?;
    leader(&mut observer, Some("ann")).await?;
    let mut ben = Actor::start("ben", &[database])?;
    ann.ask("write 1", "ready").await?;
    ann.ask("go", "written").await?;

    scene("She has looked whether she leads, and is paused just before her next write.");
    ann.ask("write 2", "ready").await?;
    ann.pause().await?;

    scene("Her lease runs out. Ben is elected and writes, which raises the fence.");
    ben.expect("leads").await?;
    leader(&mut observer, Some("ben")).await?;
    ben.ask("write 3", "ready").await?;
    ben.ask("go", "written").await?;

    scene("Ann wakes up with her write in hand. The database refuses it.");
    ann.go_on().await?;
    ann.ask("go", "refused").await?;
    ann.ask("write 4", "leads no more").await?;

    scene("Ben resigns: there is no leader.");
    ben.ask("resign", "resigned").await?;
    leader(&mut observer, None).await?;

    let mut written = orders.prepare("SELECT number, by FROM orders ORDER BY number")?;
    let written = written.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let written: Vec<(i64, String)> = written.collect::<Result<_, _>>()?;
    println!("In the database: {written:?}");
    if written != [(1, "ann".to_owned()), (3, "ben".to_owned())] {
        return Err("that is not what was to be written".into());
    }
    Ok(())
}

/// Waits until the election says so.
async fn leader(observer: &mut Observer, expected: Option<&str>) -> Told<()> {
    loop {
        let leader = observer.next().await?;
        match &leader {
            Some(leader) => println!(
                "  election: {} leads with token {}",
                String::from_utf8_lossy(&leader.value),
                leader.token
            ),
            None => println!("  election: no leader"),
        }
        if leader.as_ref().map(|leader| leader.value.as_ref()) == expected.map(str::as_bytes) {
            return Ok(());
        }
    }
}

/// One that wants to be the primary, in a process of its own.
async fn primary(name: &str, database: &str) -> Told<()> {
    let mut database = play::database(database)?;
    let session = client()?.session(TTL).purpose(name).await?;
    let leadership = session.election(ELECTION).campaign(name).await?;
    println!("leads with token {}", leadership.token());
    let mut orders = orders();
    while let Some(order) = orders.next_line().await? {
        let Some(number) = order.strip_prefix("write ") else { break };
        if !leadership.is_held() {
            println!("leads no more");
            continue;
        }
        // Nothing that is done between this look and the write can help: the pause may
        // come after it. What helps is the fence inside the write.
        println!("ready");
        orders.next_line().await?;
        let sql = "INSERT INTO orders (number, by) VALUES (?1, ?2)";
        let write = sqlite::guarded(&mut database, leadership.fence(), |transaction| {
            transaction.execute(sql, (number, name))
        });
        match write {
            Ok(_) => println!("written, with token {}", leadership.token()),
            Err(refused) => println!("refused: {refused}"),
        }
    }
    leadership.resign().await?;
    println!("resigned");
    Ok(())
}
