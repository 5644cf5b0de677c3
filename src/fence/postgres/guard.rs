//! A trigger that lets no statement change a table unless the fence was checked: the net
//! under an application that forgets to.

use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};

use super::super::error::FenceError;
use super::from_call;

/// Guards a table: from now on no statement inserts, changes or deletes a row of it, buggy or
/// stale, unless a fence of the row's resource was checked in the same transaction. (I8)
/// [`FenceError::Unchecked`] is what it gets otherwise. Guarding again changes the terms.
///
/// `resource` says which resource a row belongs to: text, and columns in braces, as in
/// `job/{id}`. Text alone makes one resource of the whole table. A row that moves from one
/// resource to another needs both.
///
/// `epoch` names a `bigint` column that the trigger keeps at the resource's mark, which is the
/// token of the exclusive grant that was checked, so that readers see which tenure has written
/// a row; it is added where it is missing. A statement that writes another epoch itself is refused, except
/// 0 and `NULL`, which stand for none.
///
/// A row whose template has no value is refused. Columns of a template are integers, `numeric`,
/// `boolean`, `uuid`, text or enumerations, and not generated.
///
/// What it does not stop: the owner of the table and superusers, who can take the guard off or
/// switch triggers off; replication, which applies what was checked elsewhere; a trigger whose
/// name comes after `~ringfence_guard` and changes the row once more. `TRUNCATE` is refused,
/// also of the partitions that are there; for those that are added later, guard again. Tables
/// that others inherit from cannot be guarded. Rows that are there already are left as they are.
///
/// For the owner of both the table and the schema `ringfence`.
///
/// # Errors
/// [`FenceError::SchemaMissing`]; and what PostgreSQL says, such as of a table or a column
/// that is not there.
pub async fn guard_table(
    client: &Client,
    table: &str,
    resource: &str,
    epoch: Option<&str>,
) -> Result<(), FenceError> {
    let parameters: [(&(dyn ToSql + Sync), Type); 3] =
        [(&table, Type::TEXT), (&resource, Type::TEXT), (&epoch, Type::TEXT)];
    let call = "SELECT ringfence.guard_table($1::regclass, $2, $3::name)";
    client.query_typed(call, &parameters).await.map(drop).map_err(from_call)
}

/// Takes the guard off again; does nothing where there is none. The epoch column stays.
///
/// # Errors
/// As [`guard_table`].
pub async fn unguard_table(client: &Client, table: &str) -> Result<(), FenceError> {
    let call = "SELECT ringfence.unguard_table($1::regclass)";
    client.query_typed(call, &[(&table, Type::TEXT)]).await.map(drop).map_err(from_call)
}
