//! Those who write, and the proxy that leads them to the primary.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, watch};

use crate::line::{self, Line};
use crate::play::{self, Told, orders};

/// Between two writes of a client.
const PACE: Duration = Duration::from_millis(20);

/// The primary as the election shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Route {
    address: String,
    epoch: u64,
}

struct Proxy {
    route: watch::Receiver<Option<Route>>,
    /// To the database that was led to last.
    line: Mutex<Option<(Route, Line)>>,
}

pub async fn proxy(election: &str) -> Told<()> {
    let (routes, route) = watch::channel(None);
    let mut observer = play::client()?.observe(election);
    tokio::spawn(async move {
        loop {
            // It goes on by itself over failures: the last route stays until it is known
            // to be wrong, for the fence does not depend on it.
            let Ok(leader) = observer.next().await else { continue };
            let route = leader.map(|leader| Route {
                address: String::from_utf8_lossy(&leader.value).into_owned(),
                epoch: leader.token.get(),
            });
            match &route {
                Some(Route { address, epoch }) => println!("leads to {address}, epoch {epoch}"),
                None => println!("leads nowhere"),
            }
            routes.send_replace(route);
        }
    });
    let proxy = Arc::new(Proxy { route, line: Mutex::new(None) });
    line::serve(move |asked| {
        let proxy = Arc::clone(&proxy);
        async move { proxy.pass(&asked).await.unwrap_or_else(|error| format!("unknown: {error}")) }
    })
    .await
}

impl Proxy {
    /// Passes a line on to the primary, with its epoch.
    async fn pass(&self, asked: &str) -> io::Result<String> {
        let route = self.route.borrow().clone();
        let Some(route) = route else { return Ok("refused: nobody leads".to_owned()) };
        let mut kept = self.line.lock().await;
        // What fails is not kept.
        let mut line = match kept.take().filter(|(to, _)| *to == route) {
            Some((_, line)) => line,
            None => Line::to(&route.address).await?,
        };
        let answer = line.ask(&format!("{asked} {}", route.epoch)).await?;
        *kept = Some((route, line));
        Ok(answer)
    }
}

/// Writes 1, 2, 3 and so on, each again and again until it is acknowledged. Orders are
/// `acknowledged 5` and `refused 5`, which are answered when that has happened, and `stop`.
pub async fn client(name: &str, server: &str) -> Told<()> {
    let mut line = Line::to(server).await?;
    let mut orders = orders();
    let (mut acknowledged, mut refused) = (0, 0);
    let mut awaited: Option<(String, u32, u32)> = None;
    loop {
        tokio::select! {
            order = orders.next_line() => {
                let order = order?.unwrap_or_default();
                let Some((what, count)) = order.split_once(' ') else { break };
                awaited = Some((what.to_owned(), count.parse()?, 0));
            }
            () = tokio::time::sleep(PACE) => {
                let answer = line.ask(&format!("write {name} {}", acknowledged + 1)).await?;
                if answer == "acknowledged" { acknowledged += 1 } else { refused += 1 }
                let Some((what, count, seen)) = &mut awaited else { continue };
                *seen += u32::from(answer.starts_with(what.as_str()));
                if seen == count {
                    println!("{count} more {answer}");
                    awaited = None;
                }
            }
        }
    }
    println!("stops: {acknowledged} acknowledged, {refused} refused");
    Ok(())
}
