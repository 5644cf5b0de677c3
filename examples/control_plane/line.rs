//! How the processes speak: one line asks, one line answers.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::play::{Told, orders};

/// A connection.
pub struct Line {
    to: OwnedWriteHalf,
    from: Lines<BufReader<OwnedReadHalf>>,
}

impl Line {
    pub async fn to(address: &str) -> io::Result<Self> {
        Ok(Self::over(TcpStream::connect(address).await?))
    }

    fn over(stream: TcpStream) -> Self {
        let (from, to) = stream.into_split();
        Self { to, from: BufReader::new(from).lines() }
    }

    pub async fn ask(&mut self, line: &str) -> io::Result<String> {
        self.tell(line).await?;
        self.from.next_line().await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    async fn tell(&mut self, line: &str) -> io::Result<()> {
        self.to.write_all(format!("{line}\n").as_bytes()).await
    }
}

/// Answers all who connect, until this process is given an order.
pub async fn serve<A, F>(answer: A) -> Told<()>
where
    A: Fn(String) -> F + Clone + Send + 'static,
    F: Future<Output = String> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listens at {}", listener.local_addr()?);
    let mut orders = orders();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let line = Line::over(accepted?.0);
                tokio::spawn(converse(line, answer.clone()));
            }
            ordered = orders.next_line() => return Ok(ordered.map(drop)?),
        }
    }
}

/// Ends with the connection.
async fn converse<A, F>(mut line: Line, answer: A) -> io::Result<()>
where
    A: Fn(String) -> F,
    F: Future<Output = String>,
{
    while let Some(asked) = line.from.next_line().await? {
        line.tell(&answer(asked).await).await?;
    }
    Ok(())
}
