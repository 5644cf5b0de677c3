//! Who a node is, and where that is kept.

use std::fmt;
use std::io;

use futures::future::BoxFuture;

use crate::locks::ClusterId;

/// A node's number and the random identity of its data folder. Together they are
/// what the membership records: the number alone could come back with a wiped
/// folder and vote twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The number, never given to another node.
    pub node: u64,
    /// Drawn at random when the data folder was made.
    pub incarnation: [u8; 16],
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({})", self.node, Folder(&self.incarnation))
    }
}

/// Shows the first digits of an incarnation, enough to tell two apart.
pub(crate) struct Folder<'a>(pub &'a [u8; 16]);

impl fmt::Display for Folder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = u32::from_be_bytes([self.0[0], self.0[1], self.0[2], self.0[3]]);
        write!(f, "folder {head:08x}")
    }
}

/// The data folder, as far as peers ask about it.
pub trait Home: Send + Sync + 'static {
    /// Whose folder it is.
    fn identity(&self) -> Identity;

    /// The cluster it belongs to; none while it is fresh.
    fn cluster(&self) -> Option<ClusterId>;

    /// Belongs to `cluster` from now on; on disk when it returns. Again for the
    /// same cluster it does nothing.
    ///
    /// # Errors
    /// The disk's; also when it belongs to another cluster already.
    fn adopt_cluster(&self, cluster: ClusterId) -> BoxFuture<'_, io::Result<()>>;
}
