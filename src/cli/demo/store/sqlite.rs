//! A file.

use anyhow::Context;
use rusqlite::{Connection, OptionalExtension, params};

use super::{Call, HOLD, Row, Store, Table};
use crate::fence::{FenceError, sqlite};
use crate::locks::{Fence, ResourceName, Token};

pub struct File(Connection);

impl File {
    pub fn open(path: &str) -> anyhow::Result<Self> {
        let connection = Connection::open(path).with_context(|| format!("open {path}"))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.busy_timeout(HOLD)?;
        Ok(Self(connection))
    }
}

impl Store for File {
    fn set_up(&mut self) -> Call<'_, ()> {
        Box::pin(async move {
            sqlite::install(&self.0)?;
            self.0.execute_batch(&(Table::Guarded.create() + &Table::Unguarded.create()))?;
            Ok(())
        })
    }

    fn raise<'a>(&'a mut self, fence: &'a Fence) -> Call<'a, (), FenceError> {
        Box::pin(async move { sqlite::raise(&mut self.0, fence) })
    }

    fn publish<'a>(&'a mut self, fence: &'a Fence, row: &'a Row) -> Call<'a, (), FenceError> {
        let (put, job) = (Table::Guarded.put(), fence.resource.as_str());
        Box::pin(async move {
            sqlite::guarded(&mut self.0, fence, |transaction| {
                let row = params![job, row.worker, row.token.cast_signed(), row.result];
                transaction.execute(&put, row).map(drop)
            })
        })
    }

    fn publish_unguarded<'a>(&'a mut self, job: &'a str, row: &'a Row) -> Call<'a, ()> {
        Box::pin(async move {
            let values = params![job, row.worker, row.token.cast_signed(), row.result];
            self.0.execute(&Table::Unguarded.put(), values)?;
            Ok(())
        })
    }

    fn row<'a>(&'a mut self, table: Table, job: &'a str) -> Call<'a, Option<Row>> {
        Box::pin(async move {
            let found = self.0.query_row(&table.get("$1"), [job], |row| {
                Ok(Row::of((row.get(0)?, row.get(1)?, row.get(2)?)))
            });
            Ok(found.optional()?)
        })
    }

    fn mark<'a>(&'a mut self, resource: &'a ResourceName) -> Call<'a, Option<Token>, FenceError> {
        Box::pin(async move { sqlite::mark(&self.0, resource, None) })
    }
}
