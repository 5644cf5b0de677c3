//! The destination's side, on the real stores. [I8]

#[cfg(feature = "file")]
mod file;
#[cfg(all(feature = "grpc", feature = "sqlite", feature = "postgres"))]
mod grpc;
#[cfg(all(feature = "http", feature = "sqlite", feature = "postgres"))]
mod http;
#[cfg(feature = "mysql")]
#[path = "../support/mariadb.rs"]
mod mariadb_server;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "object-store")]
mod object;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
#[path = "../support/postgres.rs"]
mod postgres_server;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
#[path = "../support/redis.rs"]
mod redis_server;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod rule;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "file", feature = "rocksdb"))]
mod steps;
#[cfg_attr(
    not(all(feature = "sqlite", feature = "postgres", feature = "mysql")),
    allow(dead_code, reason = "each rung uses what its stores need")
)]
mod stories;
#[cfg(feature = "client")]
#[cfg_attr(
    not(all(feature = "sqlite", feature = "postgres", feature = "mysql", feature = "redis")),
    allow(dead_code, reason = "each rung uses what its stores need")
)]
mod vectors;
