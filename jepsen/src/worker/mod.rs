//! A client process: does on the wire what it is ordered to, one attempt each, and says how it
//! ended. It keeps no state of its own but connections: whoever orders keeps sessions, requests
//! and retries. So a pause or a kill of this process hits what a client has under way.

mod call;
pub mod client;
mod library;
mod order;
mod protected;

use std::io::Write as _;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader};

pub use call::{hex, unhex};
pub use order::{Answer, Order};

/// Does the orders on standard input, all at once, until it ends.
///
/// # Errors
/// Standard input or output is broken.
pub fn serve() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let calls = std::rc::Rc::new(call::Calls::default());
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        tokio::task::LocalSet::new()
            .run_until(async {
                while let Some(line) = lines.next_line().await.context("standard input broke")? {
                    let order: Order = serde_json::from_str(&line).context("no order")?;
                    let calls = std::rc::Rc::clone(&calls);
                    tokio::task::spawn_local(async move {
                        let answer = calls.obey(&order).await;
                        say(&answer);
                    });
                }
                anyhow::Ok(())
            })
            .await
    })
}

/// Whoever cannot be told is gone, and this process with it.
fn say(answer: &Answer) {
    let mut line = serde_json::to_vec(answer).expect("an answer is JSON");
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    if out.write_all(&line).and_then(|()| out.flush()).is_err() {
        std::process::exit(1);
    }
}
