//! The public API as gRPC services. Each method: convert, propose (or confirm and
//! read), convert.
//!
//! Every call works on every node: one that does not lead forwards it to the leader,
//! once, unless the caller asked not to ([`NO_FORWARD`], which a forwarded call
//! carries itself). Watches and the status are answered by the node that is asked. Access to storage there is none.

mod admin;
mod cluster;
mod keep_alive;
mod locks;
mod node;
mod refusals;
mod route;
mod sessions;
mod watch;

pub use admin::AdminService;
pub use cluster::ClusterService;
pub use locks::LockService;
pub use node::{ADMITTED_MAX, Node, Written, WrittenNow};
pub use sessions::SessionService;
pub use watch::WatchService;

pub use crate::wire::reason::NO_FORWARD;
