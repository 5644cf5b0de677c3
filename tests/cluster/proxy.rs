//! A network that can be cut: one TCP proxy in front of one node.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Passes on what comes, as long as the gate is open. What is held back while it is
/// shut arrives later, as TCP sends again what a network has dropped: nobody is told.
pub struct Proxy {
    address: String,
    gate: watch::Sender<Gate>,
    accepting: JoinHandle<()>,
}

#[derive(Clone, Copy)]
struct Gate {
    to_server: bool,
    to_client: bool,
    /// Connections of an earlier generation are closed.
    generation: u64,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Proxy {
    /// Stands in front of the server at this address.
    pub async fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound").to_string();
        let (gate, gated) =
            watch::channel(Gate { to_server: true, to_client: true, generation: 0 });
        let accepting = tokio::spawn(accept(listener, server.to_owned(), gated));
        Self { address, gate, accepting }
    }

    /// Where clients connect.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Nothing passes in either direction.
    pub fn go_dark(&self) {
        self.gate.send_modify(|gate| (gate.to_server, gate.to_client) = (false, false));
    }

    /// Requests pass, replies do not.
    pub fn hold_replies(&self) {
        self.gate.send_modify(|gate| (gate.to_server, gate.to_client) = (true, false));
    }

    /// All passes, also what was held back on connections that were not cut.
    pub fn heal(&self) {
        self.gate.send_modify(|gate| (gate.to_server, gate.to_client) = (true, true));
    }

    /// Closes every connection; what was held back on them is lost.
    pub fn cut(&self) {
        self.gate.send_modify(|gate| gate.generation += 1);
    }
}

async fn accept(listener: TcpListener, server: String, gate: watch::Receiver<Gate>) {
    while let Ok((client, _)) = listener.accept().await {
        tokio::spawn(pass(client, server.clone(), gate.clone()));
    }
}

async fn pass(client: TcpStream, server: String, gate: watch::Receiver<Gate>) {
    // A server that is down closes the client's connection too.
    let Ok(server) = TcpStream::connect(server).await else { return };
    let _delayed = (client.set_nodelay(true), server.set_nodelay(true));
    let ((from_client, to_client), (from_server, to_server)) =
        (client.into_split(), server.into_split());
    let generation = gate.borrow().generation;
    let mut cut = gate.clone();
    tokio::select! {
        () = copy(from_client, to_server, gate.clone(), |gate| gate.to_server) => {}
        () = copy(from_server, to_client, gate, |gate| gate.to_client) => {}
        _ = cut.wait_for(|gate| gate.generation != generation) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut gate: watch::Receiver<Gate>,
    open: fn(&Gate) -> bool,
) {
    let mut bytes = vec![0; 16 << 10];
    loop {
        let Ok(read @ 1..) = from.read(&mut bytes).await else { return };
        if gate.wait_for(open).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}
