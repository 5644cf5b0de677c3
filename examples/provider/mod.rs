//! A payment provider as they are out there: it has never heard of locks or tokens, and it
//! honours `Idempotency-Key`. A process of its own that speaks HTTP, with its books in memory.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::play::Told;

/// Serves until its process ends.
pub async fn serve() -> Told<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listens at {}", listener.local_addr()?);
    let books = Arc::new(Books::default());
    loop {
        let (mut stream, _) = listener.accept().await?;
        let books = Arc::clone(&books);
        tokio::spawn(async move {
            // Whoever hangs up in the middle of a request has asked for nothing.
            let Ok(request) = Message::read(&mut stream).await else { return };
            let (status, answer) = books.answer(&request);
            let _ = write(&mut stream, &format!("HTTP/1.1 {status}"), None, &answer).await;
        });
    }
}

/// Asks for a charge under an idempotency key. The receipt, and whether it is new: another
/// call with this key may have been charged before.
pub async fn charge(provider: &str, key: &str, what: &str) -> Told<(String, bool)> {
    let answer = call(provider, "POST /charges HTTP/1.1", Some(key), what).await?;
    match answer.start.split(' ').nth(1) {
        Some("201") => Ok((answer.body, true)),
        Some("200") => Ok((answer.body, false)),
        _ => Err(format!("not charged: {} {}", answer.start, answer.body).into()),
    }
}

/// All that was charged, a line each.
pub async fn charges(provider: &str) -> Told<Vec<String>> {
    let answer = call(provider, "GET /charges HTTP/1.1", None, "").await?;
    Ok(answer.body.lines().map(str::to_owned).collect())
}

async fn call(provider: &str, start: &str, key: Option<&str>, body: &str) -> Told<Message> {
    let mut stream = TcpStream::connect(provider).await?;
    write(&mut stream, start, key, body).await?;
    Message::read(&mut stream).await
}

/// Key and contents of each charge, in their order.
#[derive(Default)]
struct Books(Mutex<Vec<(String, String)>>);

impl Books {
    fn answer(&self, request: &Message) -> (&'static str, String) {
        // The look for the key and the charge are one step here, too.
        let mut charges = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if request.start.starts_with("GET ") {
            let lines = charges.iter().map(|(key, what)| format!("{key}: {what}\n"));
            return ("200 OK", lines.collect());
        }
        let Some(key) = &request.key else {
            return ("400 Bad Request", "Idempotency-Key is missing".to_owned());
        };
        let receipt = |number: usize| format!("receipt {}", number + 1);
        match charges.iter().position(|(charged, _)| charged == key) {
            Some(number) if charges[number].1 == request.body => ("200 OK", receipt(number)),
            Some(_) => ("422 Unprocessable Content", "the key was for something else".to_owned()),
            None => {
                charges.push((key.clone(), request.body.clone()));
                ("201 Created", receipt(charges.len() - 1))
            }
        }
    }
}

/// As much of a request, or of an answer, as is looked at here.
struct Message {
    start: String,
    key: Option<String>,
    body: String,
}

impl Message {
    async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Told<Self> {
        // What a caller outside this example sends must not fill the memory.
        let mut lines = BufReader::new(stream.take(64 * 1024)).lines();
        let start = lines.next_line().await?.ok_or("nothing came")?;
        let (mut key, mut length) = (None, 0);
        while let Some(line) = lines.next_line().await?.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or("a header without a colon")?;
            match name.to_ascii_lowercase().as_str() {
                "idempotency-key" => key = Some(value.trim().to_owned()),
                "content-length" => length = value.trim().parse()?,
                _ => {}
            }
        }
        let mut body = String::new();
        lines.into_inner().take(length).read_to_string(&mut body).await?;
        Ok(Self { start, key, body })
    }
}

async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    start: &str,
    key: Option<&str>,
    body: &str,
) -> Told<()> {
    let key = key.map_or_else(String::new, |key| format!("Idempotency-Key: {key}\r\n"));
    let head = format!(
        "{start}\r\nHost: provider\r\nConnection: close\r\n{key}Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + body).as_bytes()).await?;
    Ok(stream.flush().await?)
}
