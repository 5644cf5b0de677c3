//! PostgreSQL.

use tokio_postgres::{Client, NoTls};

use super::{Call, HOLD, Row, Store, Table};
use crate::fence::{FenceError, postgres};
use crate::locks::{Fence, ResourceName, Token};

pub struct Database(Client);

impl Database {
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                eprintln!("PostgreSQL: {error}");
            }
        });
        Ok(Self(client))
    }
}

impl Store for Database {
    fn set_up(&mut self) -> Call<'_, ()> {
        Box::pin(async {
            postgres::install(&self.0).await?;
            let tables = Table::Guarded.create() + &Table::Unguarded.create();
            Ok(self.0.batch_execute(&tables).await?)
        })
    }

    fn raise<'a>(&'a mut self, fence: &'a Fence) -> Call<'a, (), FenceError> {
        Box::pin(postgres::raise(&mut self.0, fence, HOLD))
    }

    fn publish<'a>(&'a mut self, fence: &'a Fence, row: &'a Row) -> Call<'a, (), FenceError> {
        Box::pin(async move {
            let (put, job) = (Table::Guarded.put(), fence.resource.as_str());
            let transaction = postgres::begin(&mut self.0, fence, HOLD).await?;
            let token = row.token.cast_signed();
            transaction.execute(&put, &[&job, &row.worker, &token, &row.result]).await?;
            Ok(transaction.commit().await?)
        })
    }

    fn publish_unguarded<'a>(&'a mut self, job: &'a str, row: &'a Row) -> Call<'a, ()> {
        Box::pin(async move {
            let (put, token) = (Table::Unguarded.put(), row.token.cast_signed());
            self.0.execute(&put, &[&job, &row.worker, &token, &row.result]).await?;
            Ok(())
        })
    }

    fn row<'a>(&'a mut self, table: Table, job: &'a str) -> Call<'a, Option<Row>> {
        Box::pin(async move {
            let found = self.0.query_opt(&table.get("$1"), &[&job]).await?;
            let row = |row: &tokio_postgres::Row| {
                anyhow::Ok(Row::of((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))
            };
            found.as_ref().map(row).transpose()
        })
    }

    fn mark<'a>(&'a mut self, resource: &'a ResourceName) -> Call<'a, Option<Token>, FenceError> {
        Box::pin(postgres::mark(&self.0, resource, None))
    }
}
