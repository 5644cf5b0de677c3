//! MariaDB.

use mysql_async::prelude::Queryable;
use mysql_async::{Conn, Opts};

use super::{Call, HOLD, Row, Store, Table};
use crate::fence::{FenceError, mysql};
use crate::locks::{Fence, ResourceName, Token};

pub struct Database(Conn);

impl Database {
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        Ok(Self(Conn::new(Opts::from_url(url)?).await?))
    }
}

/// `REPLACE` would do too; this is what an application writes.
fn put(table: Table) -> String {
    let name = table.name();
    format!(
        "INSERT INTO {name} (job, worker, token, result) VALUES (?, ?, ?, ?) \
         ON DUPLICATE KEY UPDATE worker = VALUES(worker), token = VALUES(token), \
         result = VALUES(result)"
    )
}

impl Store for Database {
    fn set_up(&mut self) -> Call<'_, ()> {
        Box::pin(async {
            mysql::install(&mut self.0).await?;
            for table in [Table::Guarded, Table::Unguarded] {
                self.0.query_drop(table.create()).await?;
            }
            Ok(())
        })
    }

    fn raise<'a>(&'a mut self, fence: &'a Fence) -> Call<'a, (), FenceError> {
        Box::pin(mysql::raise(&mut self.0, std::slice::from_ref(fence), HOLD))
    }

    fn publish<'a>(&'a mut self, fence: &'a Fence, row: &'a Row) -> Call<'a, (), FenceError> {
        Box::pin(async move {
            let job = fence.resource.as_str();
            let mut transaction =
                mysql::begin(&mut self.0, std::slice::from_ref(fence), HOLD).await?;
            let values = (job, &row.worker, row.token, &row.result);
            transaction.exec_drop(put(Table::Guarded), values).await?;
            Ok(transaction.commit().await?)
        })
    }

    fn publish_unguarded<'a>(&'a mut self, job: &'a str, row: &'a Row) -> Call<'a, ()> {
        Box::pin(async move {
            let values = (job, &row.worker, row.token, &row.result);
            Ok(self.0.exec_drop(put(Table::Unguarded), values).await?)
        })
    }

    fn row<'a>(&'a mut self, table: Table, job: &'a str) -> Call<'a, Option<Row>> {
        Box::pin(async move { Ok(self.0.exec_first(table.get("?"), (job,)).await?.map(Row::of)) })
    }

    fn mark<'a>(&'a mut self, resource: &'a ResourceName) -> Call<'a, Option<Token>, FenceError> {
        Box::pin(mysql::mark(&mut self.0, resource, None))
    }
}
