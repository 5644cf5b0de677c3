//! A job scheduler. Ann has done the work and is paused just before she writes its result;
//! Ben does the job again. Her late result is refused by the database, and the customer is
//! charged once. See `docs/systems/job-scheduler.md`.
//!
//! ```sh
//! ringfence dev                              # in another terminal, or any cluster:
//! export RINGFENCE_ENDPOINTS=10.0.0.1:7411
//! DATABASE_URL=postgres://postgres@localhost/scratch cargo run --example scheduler
//! ```

mod play;
mod provider;

use std::time::Duration;

use play::{Actor, Told, client, holds, orders, scene};
use ringfence::client::{Guard, Session};
use ringfence::fence::{FenceError, postgres};
use tokio_postgres::{Client, NoTls};

const TTL: Duration = Duration::from_secs(2);

/// The epoch is the token of the grant under which a result was written.
const TABLES: &str = "
    CREATE SCHEMA IF NOT EXISTS scheduler;
    CREATE TABLE IF NOT EXISTS scheduler.jobs (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        customer text NOT NULL,
        amount_cents bigint NOT NULL
    );
    CREATE TABLE IF NOT EXISTS scheduler.results (
        job bigint PRIMARY KEY REFERENCES scheduler.jobs,
        epoch bigint NOT NULL,
        worker text NOT NULL,
        receipt text NOT NULL
    )";
const NEW_JOB: &str = "
    INSERT INTO scheduler.jobs (customer, amount_cents) VALUES ('carol', 1999) RETURNING id";
const WRITE: &str = "
    INSERT INTO scheduler.results (job, epoch, worker, receipt) VALUES ($1, $2, $3, $4)
    ON CONFLICT (job) DO UPDATE
    SET epoch = EXCLUDED.epoch, worker = EXCLUDED.worker, receipt = EXCLUDED.receipt";

#[tokio::main]
async fn main() -> Told<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["bank"] => provider::serve().await,
        [name, job, provider, database] => {
            let worker = Worker {
                name,
                job: job.parse()?,
                provider,
                session: client()?.session(TTL).purpose(*name).await?,
                database: connect(database).await?,
            };
            worker.run().await
        }
        _ => story().await,
    }
}

async fn story() -> Told<()> {
    let url = std::env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL")?;
    let database = connect(&url).await?;
    postgres::install(&database).await?;
    database.batch_execute(TABLES).await?;
    let job: i64 = database.query_one(NEW_JOB, &[]).await?.get(0);
    let number = job.to_string();
    let mut bank = Actor::start("bank", &[])?;
    let listens = bank.expect("listens at ").await?;
    let provider = listens.trim_start_matches("listens at ");
    let worker = [number.as_str(), provider, &url];

    scene("Ann takes the job, and charges the customer.");
    let mut ann = Actor::start("ann", &worker)?;
    ann.ask("take", "holds").await?;
    ann.ask("charge", "charged 1999 cents").await?;

    scene("She has looked whether she holds the job, and is paused before she writes the result.");
    ann.ask("write", "ready").await?;
    ann.pause().await?;

    scene("Her lease ends. Ben gets the job, and raises the fence before he begins.");
    let mut ben = Actor::start("ben", &worker)?;
    let epoch = token(&ben.ask("take", "holds").await?)?;

    scene("He cannot know how far she came. The same job makes the same key: no second charge.");
    ben.ask("charge", "was charged before").await?;
    ben.ask("write", "ready").await?;
    ben.ask("go", "written").await?;

    scene("Ann wakes up with her result in hand. The database refuses it.");
    ann.go_on().await?;
    ann.ask("go", "refused").await?;

    scene("The provider checks no tokens: it would charge for her again. The key prevents it.");
    ann.ask("charge", "was charged before").await?;
    let charged = provider::charges(provider).await?;
    println!("  Charged so far: {charged:?}");

    scene("With the token in the key, each owner would have charged once more:");
    ann.ask("charge by token", "charged 1999 cents").await?;
    ben.ask("charge by token", "charged 1999 cents").await?;

    scene("Ben gives the job back. Whoever comes for it later finds it done.");
    ben.ask("give back", "given back").await?;
    let mut cem = Actor::start("cem", &worker)?;
    cem.ask("take", "finds it done").await?;

    let results = "SELECT epoch, worker, receipt FROM scheduler.results WHERE job = $1";
    let result = database.query_one(results, &[&job]).await?;
    let result: (i64, String, String) = (result.get(0), result.get(1), result.get(2));
    println!("In the database: (epoch, worker, receipt) = {result:?}");
    if charged.len() != 1 || result != (epoch, "ben".to_owned(), "receipt 1".to_owned()) {
        return Err("that is not what was to be written".into());
    }
    Ok(())
}

/// The last word of what a worker said.
fn token(said: &str) -> Told<i64> {
    Ok(said.rsplit(' ').next().ok_or("no token was named")?.parse()?)
}

/// One that does jobs, in a process of its own.
struct Worker<'a> {
    name: &'a str,
    job: i64,
    provider: &'a str,
    session: Session,
    database: Client,
}

impl Worker<'_> {
    async fn run(mut self) -> Told<()> {
        let mut orders = orders();
        let mut held: Option<Guard> = None;
        let mut receipt = String::new();
        while let Some(order) = orders.next_line().await? {
            if order == "take" {
                held = self.take().await?;
                continue;
            }
            if order == "give back" {
                held.take().ok_or("no job to give back")?.release().await?;
                println!("given back");
                continue;
            }
            let guard = held.as_ref().ok_or("no job to work on")?;
            match order.as_str() {
                // The key is made of what is paid for. It must not be made of who pays.
                "charge" => receipt = self.charge(&format!("job/{}/charge", self.job)).await?,
                "charge by token" => drop(self.charge(&format!("charge/{}", guard.token())).await?),
                _ if !holds(guard).await => println!("holds it no more"),
                _ => {
                    // Nothing that is done between this look and the write can help: the
                    // pause may come after it. What helps is the fence inside the write.
                    println!("ready");
                    orders.next_line().await?;
                    match write(&mut self.database, guard, self.job, self.name, &receipt).await {
                        Ok(()) => println!("written, with epoch {}", guard.token()),
                        Err(refused) => println!("refused: {refused}"),
                    }
                }
            }
        }
        Ok(())
    }

    /// Strict handoff: when this returns, no earlier owner's result will be written. So it is
    /// now that a look whether there is one already tells; then there is nothing to hold.
    async fn take(&mut self) -> Told<Option<Guard>> {
        let name = format!("job/{}", self.job);
        let results = postgres::Target::new(std::env::var("DATABASE_URL")?.parse()?);
        let guard = self.session.acquire_strict(name, &[&results]).await?;
        let done = "SELECT epoch FROM scheduler.results WHERE job = $1";
        if let Some(done) = self.database.query_opt(done, &[&self.job]).await? {
            println!("finds it done, with epoch {}", done.get::<_, i64>(0));
            guard.release().await?;
            return Ok(None);
        }
        println!("holds {} with token {}", guard.resource(), guard.token());
        Ok(Some(guard))
    }

    /// The amount is read from the job as well: the provider refuses a key that comes with
    /// another amount than the first time.
    async fn charge(&self, key: &str) -> Told<String> {
        let jobs = "SELECT customer, amount_cents FROM scheduler.jobs WHERE id = $1";
        let job = self.database.query_one(jobs, &[&self.job]).await?;
        let (customer, cents): (String, i64) = (job.get(0), job.get(1));
        let what = format!("customer={customer}&amount_cents={cents}");
        let (receipt, new) = provider::charge(self.provider, key, &what).await?;
        if new {
            println!("charged {cents} cents: {receipt}");
        } else {
            println!("was charged before: {receipt}");
        }
        Ok(receipt)
    }
}

/// The check and the result are one transaction, and it may hold the mark for a ttl at most.
async fn write(
    database: &mut Client,
    guard: &Guard,
    job: i64,
    worker: &str,
    receipt: &str,
) -> Result<(), FenceError> {
    let transaction = postgres::begin(database, guard.fence(), TTL).await?;
    let epoch = guard.token().get().cast_signed();
    transaction.execute(WRITE, &[&job, &epoch, &worker, &receipt]).await?;
    Ok(transaction.commit().await?)
}

async fn connect(url: &str) -> Told<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .map_err(|error| format!("cannot reach the database: {error}"))?;
    tokio::spawn(async move {
        // What ends a connection is told by the next statement.
        let _ = connection.await;
    });
    Ok(client)
}
