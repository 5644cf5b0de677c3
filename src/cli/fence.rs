//! `ringfence fence`.

use clap::Subcommand;

use super::exit::{Exit, Failure};
use super::output;
use crate::fence::{postgres, sqlite};

/// What a destination needs to refuse a stale owner
///
/// The destination keeps a high-water mark per resource. In the same transaction as
/// the write it compares: a token below the mark is refused, any other raises the
/// mark. That is what protects the data when an owner was paused past its lease;
/// the lock alone cannot.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the SQL that sets up the marks
    ///
    /// PostgreSQL: run it as a role that may create a schema; running it again
    /// changes nothing. Then call ringfence.check_fence(cluster, resource, slot,
    /// token, floor) in each writing transaction, before the write.
    ///
    /// SQLite: run it once on the file that holds what is protected. The library
    /// (feature sqlite) does the check.
    #[command(after_long_help = "\
EXAMPLES
  ringfence fence sql | psql mydb
  ringfence fence sql --sqlite | sqlite3 my.db

In a transaction on PostgreSQL, with the environment that `ringfence lock` gives:
  BEGIN;
  SELECT ringfence.check_fence('$RINGFENCE_CLUSTER', '$RINGFENCE_NAME', NULL,
                               $RINGFENCE_TOKEN, $RINGFENCE_FLOOR);
  UPDATE …;
  COMMIT;")]
    Sql {
        /// For SQLite instead of PostgreSQL
        #[arg(long)]
        sqlite: bool,
    },
}

/// Prints.
///
/// # Errors
/// What stdout says.
pub fn run(args: &Args) -> Result<Exit, Failure> {
    match args.what {
        What::Sql { sqlite: false } => output::text(postgres::SCHEMA_SQL)?,
        What::Sql { sqlite: true } => {
            output::text(&format!("BEGIN IMMEDIATE;{}\nCOMMIT;\n", sqlite::SCHEMA_SQL))?;
        }
    }
    Ok(Exit::Done)
}
