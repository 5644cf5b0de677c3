//! A network whose links can be cut or frozen one by one. Every node is reached
//! through its own door; who knocks is told by the source address 127.0.7.<node>.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What a link does with bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Link {
    #[default]
    Open,
    /// Connections are closed, and new ones too.
    Cut,
    /// A half-open peer: connections stay as they are and carry nothing, for good;
    /// new ones are accepted and carry nothing until the link is open again.
    Frozen,
}

/// Each link, and how often it was frozen.
type Links = BTreeMap<(u64, u64), (Link, u64)>;

#[derive(Clone)]
pub struct Net {
    links: Arc<watch::Sender<Links>>,
    behind: Arc<Mutex<BTreeMap<u64, SocketAddr>>>,
}

/// The address that a node calls from.
pub fn source(node: u64) -> IpAddr {
    Ipv4Addr::new(127, 0, 7, u8::try_from(node).expect("small")).into()
}

impl Net {
    pub fn new() -> Self {
        Self { links: Arc::new(watch::Sender::default()), behind: Arc::default() }
    }

    /// Opens a node's door; answers its address.
    pub async fn door(&self, node: u64) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let net = self.clone();
        tokio::spawn(async move {
            while let Ok((inbound, from)) = listener.accept().await {
                let IpAddr::V4(ip) = from.ip() else { continue };
                let pair = (u64::from(ip.octets()[3]), node);
                tokio::spawn(net.clone().carry(inbound, pair));
            }
        });
        address
    }

    /// Where the node's server really listens.
    pub fn stands_behind(&self, node: u64, address: SocketAddr) {
        self.behind.lock().insert(node, address);
    }

    pub fn set(&self, from: u64, to: u64, link: Link) {
        self.links.send_modify(|links| {
            let now = links.entry((from, to)).or_default();
            now.0 = link;
            now.1 += u64::from(link == Link::Frozen);
        });
    }

    /// Sets all links of a node, both ways.
    pub fn set_all(&self, node: u64, others: impl IntoIterator<Item = u64>, link: Link) {
        for other in others.into_iter().filter(|o| *o != node) {
            self.set(node, other, link);
            self.set(other, node, link);
        }
    }

    async fn carry(self, inbound: TcpStream, pair: (u64, u64)) {
        let mut links = self.links.subscribe();
        let thawed = links.wait_for(|links| state(links, pair).0 != Link::Frozen).await;
        let (link, born) = state(&thawed.expect("the network lives"), pair);
        let Some(to) = self.behind.lock().get(&pair.1).copied() else { return };
        if link == Link::Cut {
            return;
        }
        let Ok(outbound) = TcpStream::connect(to).await else { return };
        inbound.set_nodelay(true).expect("a socket");
        outbound.set_nodelay(true).expect("a socket");
        let (a, b) = (inbound.into_split(), outbound.into_split());
        let alive = Life { links: links.clone(), pair, born };
        tokio::select! {
            _ = copy(a.0, b.1, alive.clone()) => {}
            _ = copy(b.0, a.1, alive) => {}
            _ = links.wait_for(|links| state(links, pair).0 == Link::Cut) => {}
        }
    }
}

fn state(links: &Links, pair: (u64, u64)) -> (Link, u64) {
    links.get(&pair).copied().unwrap_or_default()
}

/// A connection carries bytes until its link is first frozen.
#[derive(Clone)]
struct Life {
    links: watch::Receiver<Links>,
    pair: (u64, u64),
    born: u64,
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, life: Life) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let n = from.read(&mut buffer).await?;
        if state(&life.links.borrow(), life.pair).1 != life.born {
            std::future::pending::<()>().await;
        }
        if n == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..n]).await?;
    }
}
