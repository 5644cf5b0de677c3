//! The agent beside a database: it stands for election, and tells the database.

use std::time::Duration;

use ringfence::client::ClientError;

use crate::line::Line;
use crate::play::{Told, client, orders};
use crate::{TTL, storage};

const BARRIER: Duration = Duration::from_secs(30);

pub async fn run(name: &str, election: &str, database: &str) -> Told<()> {
    let (mut storage, mut line) = (storage::connect().await?, Line::to(database).await?);
    let mut orders = orders();
    loop {
        // A session that has expired is over for good.
        let session = client()?.session(TTL).purpose(name).await?;
        let campaign = session.election(election).campaign(database);
        let campaign = campaign.on_queued(|_| println!("stands for election")).strict(BARRIER);
        let elected = campaign.await?;
        let token = elected.token();
        storage::elected(&storage, token.get()).await?;
        println!("is elected with token {token}");
        // Here the story makes it slow.
        if orders.next_line().await?.is_none() {
            return Ok(());
        }
        // Strict: nobody is led to the database before no earlier primary can write.
        for fence in elected.fences() {
            storage::raise(&mut storage, fence).await?;
        }
        let leadership = elected.confirm().await.map_err(ClientError::from)?;
        let fence = leadership.fence();
        let lead = format!("lead {} {token} {}", fence.cluster, fence.resource);
        let answer = line.ask(&lead).await?;
        println!("leads with token {token}: the database {answer}");
        tokio::select! {
            loss = leadership.lost() => {
                let answer = line.ask("stand-down").await?;
                println!("leads no more ({loss:?}): the database {answer}");
            }
            asked = leadership.handover_asked() => {
                // Answered when the write under way is at its end.
                let answer = line.ask("stand-down").await?;
                println!("resigns, as {} asks ({}): the database {answer}", asked.actor, asked.reason);
                leadership.resign().await?;
            }
            ordered = orders.next_line() => return Ok(ordered.map(drop)?),
        }
    }
}
