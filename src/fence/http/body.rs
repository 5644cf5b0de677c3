//! The body of an answer, which keeps the marks held until it is at its end.

use std::error::Error;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use crate::fence::hold::Held;

type BoxError = Box<dyn Error + Send + Sync>;

/// A body of the layer's own or of the service behind it. A service may still write while
/// its body is sent: the marks are held until it has ended or is dropped, and past the
/// bound it is cut off with an error.
pub struct Body<B> {
    state: State<B>,
}

enum State<B> {
    Own { bytes: Option<Bytes>, trailers: Option<HeaderMap> },
    Served { body: Pin<Box<B>>, hold: Option<Hold> },
    Over,
}

/// What is kept while a request is served. It ends after what it protects: see the order
/// of the fields wherever it stands beside that.
pub(super) struct Hold {
    held: Box<dyn Held>,
    bound: Option<Pin<Box<Sleep>>>,
}

impl Hold {
    pub(super) fn new(held: impl Held, bound: Option<Sleep>) -> Self {
        Self { held: Box::new(held), bound: bound.map(Box::pin) }
    }

    /// Ready when what it protects has to stop: its time is up, or the store let go.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.held.poll_lost(cx).is_ready() {
            return Poll::Ready(());
        }
        match &mut self.bound {
            Some(bound) => bound.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl<B: http_body::Body> Body<B> {
    pub(super) fn own(bytes: Bytes, trailers: Option<HeaderMap>) -> Self {
        let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
        Self { state: State::Own { bytes, trailers } }
    }

    pub(super) fn served(body: B, hold: Option<Hold>) -> Self {
        // Of an empty body nobody asks for a frame.
        let hold = hold.filter(|_| !body.is_end_stream());
        Self { state: State::Served { body: Box::pin(body), hold } }
    }
}

impl<B> http_body::Body for Body<B>
where
    B: http_body::Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let (body, hold) = match &mut self.state {
            State::Over => return Poll::Ready(None),
            State::Own { bytes, trailers } => {
                let frame = bytes.take().map(Frame::data);
                let frame = frame.or_else(|| trailers.take().map(Frame::trailers));
                return Poll::Ready(frame.map(Ok));
            }
            State::Served { body, hold } => (body, hold),
        };
        if hold.as_mut().is_some_and(|hold| hold.poll_over(cx).is_ready()) {
            // Drops the body before the hold.
            self.state = State::Over;
            return Poll::Ready(Some(Err("cut off while it held the mark".into())));
        }
        let Poll::Ready(frame) = body.as_mut().poll_frame(cx) else { return Poll::Pending };
        match frame {
            Some(Ok(frame)) => {
                if body.is_end_stream() {
                    *hold = None;
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.state = State::Over;
                Poll::Ready(Some(Err(error.into())))
            }
            None => {
                self.state = State::Over;
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.state {
            State::Over => true,
            State::Own { bytes, trailers } => bytes.is_none() && trailers.is_none(),
            State::Served { body, hold: _ } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.state {
            State::Over => SizeHint::with_exact(0),
            State::Own { bytes, trailers: _ } => {
                let length = bytes.as_ref().map_or(0, Bytes::len);
                SizeHint::with_exact(u64::try_from(length).expect("a length fits into 64 bits"))
            }
            State::Served { body, hold: _ } => body.size_hint(),
        }
    }
}
