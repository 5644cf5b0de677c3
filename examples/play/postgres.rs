//! What the examples on PostgreSQL share: the server in `DATABASE_URL`, and in it a schema
//! of the example's own, made anew by each run and left there to be looked at.

use std::time::{SystemTime, UNIX_EPOCH};

use ringfence::fence::postgres;
use tokio_postgres::{Client, NoTls};

use crate::play::Told;

/// A connection on which the example's tables need no schema before their names. (The
/// marks are in a schema of their own.)
pub async fn connect(schema: &str) -> Told<Client> {
    let url = std::env::var("DATABASE_URL");
    let url = url.map_err(|_| "set DATABASE_URL, as in \"host=/tmp/pg user=postgres\"")?;
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await?;
    // It ends with the client; what failed is seen there.
    tokio::spawn(async move { drop(connection.await) });
    client.batch_execute(&format!("SET search_path TO {schema}")).await?;
    Ok(client)
}

/// As [`connect`], after the tables and the schema of the marks have been set up.
pub async fn prepare(schema: &str, tables: &str) -> Told<Client> {
    let client = connect(schema).await?;
    let anew = format!("DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema};");
    client.batch_execute(&format!("{anew} {tables}")).await?;
    postgres::install(&client).await?;
    Ok(client)
}

/// A resource for this run alone: the marks of an earlier one, which may have been under
/// another authority, say nothing about it.
pub fn of_this_run(name: &str) -> Told<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(format!("{name}/{}", now.as_millis()))
}
