//! What the pages of `docs/` say, on real servers: every SQL block of "Do you need a lock at
//! all?", and every claim of the page on locks in Redis.

mod links;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres_server;
#[cfg(feature = "redis")]
#[allow(dead_code, reason = "the pages cut, and never heal")]
#[path = "../cluster/proxy.rs"]
mod proxy;
#[cfg(feature = "redis")]
mod redis_locks;
#[cfg(feature = "redis")]
#[path = "../support/redis.rs"]
mod redis_server;
#[cfg(feature = "postgres")]
mod sql;
