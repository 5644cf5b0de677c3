//! `ringfence fence`.

pub(super) mod store;

use std::time::Duration;

use clap::Subcommand;
use serde::{Deserialize, Serialize};

use super::connect::some_time;
use super::exit::{Exit, Failure};
use super::output::{self, Format, shown};
use crate::client::HandoffError;
use crate::fence::{Fence, FenceError, mysql, postgres, sqlite};
use crate::locks::{ClusterId, Invalid, ResourceName, Token};
use store::Store;

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
    /// MySQL and MariaDB: run it as a user that may create tables and procedures; its
    /// head says how to call ringfence_check_fence.
    ///
    /// SQLite: run it once on the file that holds what is protected. The library
    /// (feature sqlite) does the check.
    #[command(after_long_help = "\
EXAMPLES
  ringfence fence sql | psql mydb
  ringfence fence sql --mysql | mysql mydb
  ringfence fence sql --sqlite | sqlite3 my.db

In a transaction on PostgreSQL, with the environment that `ringfence lock` gives:
  BEGIN;
  SELECT ringfence.check_fence('$RINGFENCE_CLUSTER', '$RINGFENCE_NAME', NULL,
                               $RINGFENCE_TOKEN, $RINGFENCE_FLOOR);
  UPDATE …;
  COMMIT;")]
    Sql {
        /// For MySQL and MariaDB instead of PostgreSQL
        #[arg(long, conflicts_with = "sqlite")]
        mysql: bool,
        /// For SQLite instead of PostgreSQL
        #[arg(long)]
        sqlite: bool,
    },
    /// Set up the marks in a store
    ///
    /// Running it again changes nothing; marks of a newer version are left alone.
    #[command(after_long_help = "\
EXAMPLES
  ringfence fence install postgres://admin@db.example/orders
  ringfence fence install mysql://admin:secret@db.example/orders
  ringfence fence install sqlite:/var/lib/orders/orders.db
  ringfence fence install redis://cache.example/0 --tag orders")]
    Install {
        #[command(flatten)]
        at: At,
    },
    /// Shut earlier owners out of a store, now: a fence without a write
    ///
    /// When it ends with 0, no write with a token below the mark is applied there any more; writes
    /// that were past their check are waited for. Safe to repeat.
    ///
    /// Without NAME it raises the fences of the grant that `ringfence lock` runs this
    /// command under, all of them.
    #[command(after_long_help = "\
EXAMPLES
  ringfence lock job/7 -- sh -c 'ringfence fence raise \"$DB\" && ./report.sh'
  ringfence fence raise sqlite:orders.db job/7 --token 41 --cluster 0123…cdef

EXIT CODES
   0  raised
   1  stale: a later owner has been here, and its mark is printed
  64  usage
  69  not known: the store is unreachable, or an earlier owner is still inside it
  77  refused: another authority's marks, no marks installed, a newer version, or
      settings of the store under which a mark could fall")]
    Raise {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        fence: Raised,
        /// For how long to wait for writes that are past their check
        #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = some_time)]
        wait: Duration,
    },
    /// Let no statement change a table unless a fence was checked
    ///
    /// A trigger refuses every INSERT, UPDATE and DELETE of a row, by whomever, unless
    /// ringfence.check_fence was called for the row's resource in the same transaction: the
    /// net under an application that forgets it somewhere. TRUNCATE is refused. Running it
    /// again changes the terms. PostgreSQL only, as the owner of the table.
    #[command(after_long_help = "\
EXAMPLES
  ringfence fence guard-table postgres://admin@db/orders job --resource 'job/{id}'
  ringfence fence guard-table postgres://admin@db/orders job --resource 'job/{id}' --epoch epoch
  ringfence fence guard-table postgres://admin@db/orders audit.entry --resource orders
  ringfence fence guard-table postgres://admin@db/orders job --off")]
    GuardTable(Guard),
    /// Show the mark of a resource in a store
    #[command(after_long_help = "\
EXAMPLES
  ringfence fence show postgres://app@db.example/orders job/7
  ringfence fence show sqlite:orders.db screens --slot 2")]
    Show {
        #[command(flatten)]
        at: At,
        /// The resource, such as job/7
        name: String,
        /// The slot, instead of the resource itself
        #[arg(long)]
        slot: Option<u32>,
    },
}

/// What a guarded table is asked of.
#[derive(Debug, clap::Args)]
struct Guard {
    /// postgres://…
    #[arg(value_name = "STORE", value_parser = store::parsed)]
    store: Store,
    /// The table, with its schema if it is not found without
    table: String,
    /// Which resource a row belongs to: text, with columns in braces
    #[arg(long, required_unless_present = "off")]
    resource: Option<String>,
    /// A bigint column that always holds the resource's mark at the last write, which is the
    /// token of an exclusive grant; it is added if it is not there
    #[arg(long, value_name = "COLUMN")]
    epoch: Option<String>,
    /// Take the guard off again
    #[arg(long, conflicts_with_all = ["resource", "epoch"])]
    off: bool,
}

#[derive(Debug, clap::Args)]
struct At {
    /// postgres://…, mysql://…, redis://…, redis+unix:///path or sqlite:path
    #[arg(value_name = "STORE", value_parser = store::parsed)]
    store: Store,
    /// Redis: the hash tag that the marks share with what they protect
    #[arg(long, default_value = "fence")]
    tag: String,
}

#[derive(Debug, clap::Args)]
struct Raised {
    /// The resource, such as job/7
    #[arg(requires = "token", requires = "cluster")]
    name: Option<String>,
    /// The fencing token: 1 to 2^53 - 1
    #[arg(long, requires = "name")]
    token: Option<u64>,
    /// What the resource's mark is raised to, if not to the token
    #[arg(long, requires = "name")]
    floor: Option<u64>,
    /// The slot
    #[arg(long, requires = "name")]
    slot: Option<u32>,
    /// Id of the authority: 32 hexadecimal digits
    #[arg(long, requires = "name")]
    cluster: Option<String>,
}

/// What `lock` tells its command in `RINGFENCE_FENCES`.
#[derive(Debug, Deserialize)]
struct Told {
    cluster: String,
    resource: String,
    slot: Option<u32>,
    token: u64,
    floor: u64,
}

#[derive(Debug, Serialize)]
struct Shown {
    resource: String,
    slot: Option<u32>,
    mark: Option<u64>,
}

/// Prints, or asks the store.
///
/// # Errors
/// [`Exit::Usage`]; [`Exit::No`] for a stale fence, [`Exit::Refused`] for one that is
/// refused otherwise, [`Exit::Unreachable`] where the store gave no answer; what stdout
/// says.
pub async fn run(format: Format, args: Args) -> Result<Exit, Failure> {
    match args.what {
        What::Sql { mysql: true, .. } => output::text(mysql::SCHEMA_SQL)?,
        What::Sql { sqlite: true, .. } => {
            output::text(&format!("BEGIN IMMEDIATE;{}\nCOMMIT;\n", sqlite::SCHEMA_SQL))?;
        }
        What::Sql { .. } => output::text(postgres::SCHEMA_SQL)?,
        What::Install { at } => {
            if let Some(warning) = store::install(&at.store, &at.tag).await? {
                super::say(&warning);
            }
        }
        What::Raise { at, fence, wait } => {
            store::raise(&at.store, &at.tag, &fence.fences()?, wait).await?;
        }
        What::GuardTable(Guard { store, table, resource, epoch, off: _ }) => {
            let terms = resource.as_deref().map(|resource| (resource, epoch.as_deref()));
            store::guard(&store, &table, terms).await?;
        }
        What::Show { at, name, slot } => {
            let resource = ResourceName::new(&name)?;
            let mark = store::mark(&at.store, &at.tag, &resource, slot).await?;
            let mark = mark.map(Token::get);
            match format {
                Format::Json => output::json(&Shown { resource: name, slot, mark })?,
                Format::Table => {
                    let of = slot.map_or_else(String::new, |slot| format!(" slot {slot}"));
                    let mark = mark.map_or_else(|| "none".to_owned(), |mark| mark.to_string());
                    output::text(&format!("{}{of}: {mark}\n", shown(&name)))?;
                }
            }
        }
    }
    Ok(Exit::Done)
}

impl Raised {
    /// In the order of the resources' names.
    fn fences(self) -> Result<Vec<Fence>, Failure> {
        let told = match (self.name, self.token, self.cluster) {
            (Some(resource), Some(token), Some(cluster)) => {
                let floor = self.floor.unwrap_or(token);
                vec![Told { cluster, resource, slot: self.slot, token, floor }]
            }
            _ => of_the_grant()?,
        };
        let mut fences: Vec<Fence> = told.iter().map(Told::fence).collect::<Result<_, _>>()?;
        fences.sort_by(|one, other| one.resource.cmp(&other.resource));
        Ok(fences)
    }
}

fn of_the_grant() -> Result<Vec<Told>, Failure> {
    let usage = |told: &str| Failure::new(Exit::Usage, told);
    let json = std::env::var("RINGFENCE_FENCES").map_err(|_| {
        usage("name a resource, or run this under `ringfence lock`, which sets RINGFENCE_FENCES")
    })?;
    let told: Vec<Told> = serde_json::from_str(&json)
        .map_err(|error| usage(&format!("RINGFENCE_FENCES is not what `lock` sets: {error}")))?;
    if told.is_empty() {
        return Err(usage("RINGFENCE_FENCES holds no fence"));
    }
    Ok(told)
}

impl Told {
    fn fence(&self) -> Result<Fence, Invalid> {
        let floor = Invalid { field: "floor", bound: "1 to the token" };
        Ok(Fence {
            cluster: ClusterId::from_hex(&self.cluster)?,
            resource: ResourceName::new(&self.resource)?,
            slot: self.slot,
            token: Token::new(self.token)?,
            floor: Token::new(self.floor).map_err(|_| floor)?,
        })
    }
}

/// Before the command of `lock` has started: its codes are others than those of `raise`.
impl From<HandoffError> for Failure {
    fn from(failed: HandoffError) -> Self {
        let message = shown(&failed.to_string());
        match failed {
            HandoffError::Authority(error) => error.into(),
            HandoffError::Ended { .. } => Self::new(Exit::Unreachable, message),
            HandoffError::NotRaised { error, .. } => match Self::from(error).exit {
                Exit::No => Self::new(Exit::Refused, message),
                exit => Self::new(exit, message),
            },
        }
    }
}

impl From<FenceError> for Failure {
    fn from(error: FenceError) -> Self {
        let exit = match &error {
            FenceError::Stale { .. } => Exit::No,
            FenceError::FloorAboveToken { .. } => Exit::Usage,
            FenceError::ForeignCluster { .. }
            | FenceError::NoTransaction
            | FenceError::Unchecked { .. }
            | FenceError::NotDurable { .. }
            | FenceError::SchemaMissing
            | FenceError::SchemaNewer { .. }
            | FenceError::Set => Exit::Refused,
            FenceError::Store(said) if store::refuses(&**said) => Exit::Refused,
            FenceError::Busy(_) | FenceError::Conflict(_) | FenceError::Store(_) => {
                Exit::Unreachable
            }
        };
        Self::new(exit, shown(&error.to_string()))
    }
}
