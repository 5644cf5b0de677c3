//! The storage through which all commits go: PostgreSQL, with the fence.

use ringfence::fence::{Fence, FenceError, postgres};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

use crate::play::Told;
use crate::{TTL, destination};

const SCHEMA: &str = "example_control_plane";

/// A commit holds the mark from its check to its end, so `seq` is the order of commits.
const TABLES: &str = "
    CREATE TABLE journal (
        seq BIGSERIAL PRIMARY KEY,
        client TEXT NOT NULL,
        number BIGINT NOT NULL,
        epoch BIGINT NOT NULL,
        at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
        UNIQUE (client, number));
    CREATE TABLE handoff (
        epoch BIGINT PRIMARY KEY,
        elected TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
        raised TIMESTAMPTZ,
        last BIGINT)";

pub async fn prepare() -> Told<Client> {
    destination::prepare(SCHEMA, TABLES).await
}

pub async fn connect() -> Told<Client> {
    destination::connect(SCHEMA).await
}

/// Commits a client's write, unless a later primary has been here; its place in the
/// journal. A write that is there already, since its answer was lost, keeps its place.
pub async fn commit(
    storage: &mut Client,
    fence: &Fence,
    client: &str,
    number: i64,
) -> Result<i64, FenceError> {
    let sql = "INSERT INTO journal (client, number, epoch) VALUES ($1, $2, $3)
               ON CONFLICT (client, number) DO UPDATE SET number = EXCLUDED.number
               RETURNING seq";
    let epoch = fence.token.get().cast_signed();
    let transaction = postgres::begin(storage, fence, TTL).await?;
    let row = transaction
        .query_typed_one(sql, &[(&client, Type::TEXT), (&number, Type::INT8), (&epoch, Type::INT8)])
        .await?;
    transaction.commit().await?;
    Ok(row.try_get(0)?)
}

/// Every write, in the order of commits: place, client, number, epoch.
pub async fn journal(storage: &Client) -> Result<Vec<Row>, tokio_postgres::Error> {
    let sql = "SELECT seq, client, number, epoch FROM journal ORDER BY seq";
    let rows = storage.query_typed(sql, &[]).await?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect())
}

pub type Row = (i64, String, i64, i64);

/// Notes when an agent knew that it was elected: the lease before had ended.
pub async fn elected(storage: &Client, epoch: u64) -> Result<(), tokio_postgres::Error> {
    let sql = "INSERT INTO handoff (epoch) VALUES ($1)";
    storage.execute_typed(sql, &[(&epoch.cast_signed(), Type::INT8)]).await.map(drop)
}

/// Raises the fence, and notes where the history of the primaries before ends.
pub async fn raise(storage: &mut Client, fence: &Fence) -> Result<(), FenceError> {
    postgres::raise(storage, fence, TTL).await?;
    let sql = "UPDATE handoff SET raised = clock_timestamp(),
                   last = (SELECT coalesce(max(seq), 0) FROM journal)
               WHERE epoch = $1";
    let epoch = fence.token.get().cast_signed();
    storage.execute_typed(sql, &[(&epoch, Type::INT8)]).await?;
    Ok(())
}

/// What the primary of epoch `old` wrote though its lease was over: before the primary of
/// epoch `new` had raised the fence, and after that.
pub async fn window(storage: &Client, old: u64, new: u64) -> Told<String> {
    let sql = "SELECT (extract(epoch FROM raised - elected) * 1000)::bigint,
                   count(seq) FILTER (WHERE at >= elected AND seq <= last),
                   count(seq) FILTER (WHERE seq > last)
               FROM handoff LEFT JOIN journal ON journal.epoch = $1
               WHERE handoff.epoch = $2 GROUP BY raised, elected";
    let epochs = [old.cast_signed(), new.cast_signed()];
    let epochs = [(&epochs[0] as _, Type::INT8), (&epochs[1] as _, Type::INT8)];
    let row = storage.query_typed_one(sql, &epochs).await?;
    let (ms, inside, after): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
    if after != 0 {
        return Err(format!("{after} writes of epoch {old} after the raise").into());
    }
    Ok(format!(
        "  window: {ms} ms from the end of epoch {old} to the raise of epoch {new}: \
         {inside} writes of epoch {old} accepted in it, 0 after it"
    ))
}
