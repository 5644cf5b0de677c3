//! Redis: a hash for each job, in the hash slot of the marks.

use redis::aio::MultiplexedConnection;
use redis::{Cmd, cmd};

use super::{Call, Row, Store, Table};
use crate::fence::FenceError;
use crate::fence::redis::{Marks, Write};
use crate::locks::{Fence, ResourceName, Token};

const TAG: &str = "demo";

pub struct Server {
    connection: MultiplexedConnection,
    marks: Marks,
}

impl Server {
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let client = redis::Client::open(url)?;
        let connection = client.get_multiplexed_async_connection().await?;
        Ok(Self { connection, marks: Marks::new(TAG)? })
    }
}

fn key(table: Table, job: &str) -> String {
    format!("{}:{{{TAG}}}:{job}", table.name())
}

fn put(key: &str, row: &Row) -> Cmd {
    let mut put = cmd("HSET");
    put.arg(key).arg("worker").arg(&row.worker);
    put.arg("token").arg(row.token).arg("result").arg(&row.result);
    put
}

impl Store for Server {
    fn set_up(&mut self) -> Call<'_, ()> {
        Box::pin(async { Ok(self.marks.install(&mut self.connection).await?) })
    }

    fn raise<'a>(&'a mut self, fence: &'a Fence) -> Call<'a, (), FenceError> {
        Box::pin(self.marks.raise(&mut self.connection, std::slice::from_ref(fence)))
    }

    fn publish<'a>(&'a mut self, fence: &'a Fence, row: &'a Row) -> Call<'a, (), FenceError> {
        Box::pin(async move {
            let key = key(Table::Guarded, fence.resource.as_str());
            let write = Write::commands(&[put(&key, row)]).key(&key);
            let fences = std::slice::from_ref(fence);
            let _: Vec<u64> = self.marks.guarded(&mut self.connection, fences, &write).await?;
            Ok(())
        })
    }

    fn publish_unguarded<'a>(&'a mut self, job: &'a str, row: &'a Row) -> Call<'a, ()> {
        Box::pin(async move {
            let put = put(&key(Table::Unguarded, job), row);
            Ok(put.exec_async(&mut self.connection).await?)
        })
    }

    fn row<'a>(&'a mut self, table: Table, job: &'a str) -> Call<'a, Option<Row>> {
        Box::pin(async move {
            let mut get = cmd("HMGET");
            get.arg(key(table, job)).arg("worker").arg("token").arg("result");
            let found: (Option<String>, Option<u64>, Option<String>) =
                get.query_async(&mut self.connection).await?;
            let (Some(worker), Some(token), Some(result)) = found else { return Ok(None) };
            Ok(Some(Row { worker, token, result }))
        })
    }

    fn mark<'a>(&'a mut self, resource: &'a ResourceName) -> Call<'a, Option<Token>, FenceError> {
        Box::pin(self.marks.mark(&mut self.connection, resource, None))
    }
}
