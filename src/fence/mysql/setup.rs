//! Tables and procedures: set up, and brought up to date.

use mysql_async::Conn;
use mysql_async::prelude::Queryable;

use super::ready;
use crate::fence::error::FenceError;

/// The version that [`SCHEMA_SQL`] sets up: what callers and procedures say to each other.
pub const SCHEMA_VERSION: u32 = 1;

/// What [`install`] runs and `ringfence fence sql --mysql` prints, for the clients `mysql`
/// and `mariadb`. Everything begins with `ringfence_`, in the connection's database.
pub const SCHEMA_SQL: &str = include_str!("../mysql.sql");

/// How new the procedures in [`SCHEMA_SQL`] are: it grows with every change to one.
const EDITION: u32 = 2;

/// The comment of the procedure that comes last; none before the second edition.
const COMMENT: &str = "SELECT routine_comment FROM information_schema.routines
    WHERE routine_schema = DATABASE() AND routine_name = 'ringfence_ready'";

/// Sets up the marks in the connection's database, or brings their procedures up to date.
/// Does nothing where they are already, of this release or a later one. Marks stay, and
/// writers go on.
///
/// On MariaDB a procedure is replaced in one step, and the rights to call it stay. On
/// MySQL it is dropped first: until they are there again a check is
/// [`FenceError::SchemaMissing`], and the application has to be granted its rights anew.
///
/// # Errors
/// [`FenceError::SchemaNewer`]; [`FenceError::NotDurable`]; and what the server says, as
/// when the user may not create a procedure.
pub async fn install(conn: &mut Conn) -> Result<(), FenceError> {
    if current(conn).await? {
        return Ok(());
    }
    // One at a time: on MySQL another one would find what this one has dropped. Whoever
    // waits in vain goes on; the lock is not what a mark relies on.
    conn.query_drop("DO GET_LOCK('ringfence_install', 60)").await?;
    let installed = unless_current(conn).await;
    conn.query_drop("DO RELEASE_LOCK('ringfence_install')").await?;
    installed?;
    ready(conn).await
}

async fn unless_current(conn: &mut Conn) -> Result<(), FenceError> {
    if current(conn).await? {
        return Ok(());
    }
    let (_, statements) = SCHEMA_SQL.split_once("DELIMITER $$").expect("the file says so");
    for statement in statements.split("$$").map(str::trim) {
        if !statement.is_empty() && statement != "DELIMITER ;" {
            conn.query_drop(statement).await?;
        }
    }
    Ok(())
}

/// Whether there is nothing to do.
async fn current(conn: &mut Conn) -> Result<bool, FenceError> {
    match ready(conn).await {
        Ok(()) => {}
        Err(FenceError::SchemaMissing) => return Ok(false),
        Err(other) => return Err(other),
    }
    let comment: Option<String> = conn.query_first(COMMENT).await?;
    let edition = comment.as_deref().and_then(|comment| comment.strip_prefix("edition "));
    Ok(edition.and_then(|number| number.parse::<u32>().ok()).is_some_and(|it| it >= EDITION))
}
