//! What links do to what passes them.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use ringfence_jepsen::means::Run;
use ringfence_jepsen::means::net::{Counts, Host, Network, Rule};
use ringfence_jepsen::means::process::{Process, Spec};

use super::{MS, shell, start, until};

fn network(names: &[&str]) -> (Network, Arc<Run>) {
    let (run, _) = start();
    (Network::make(&run, names, 7).unwrap(), run)
}

fn socket(host: &Host) -> UdpSocket {
    let socket = host.namespace.within(|| UdpSocket::bind((host.address, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(MS(500))).unwrap();
    // Room for all that a test sends: only the switch is to lose anything.
    set_option(&socket, libc::SO_RCVBUFFORCE, 8 << 20);
    socket
}

/// Sends numbered datagrams of 400 bytes from one host to another, and returns them as they
/// arrive, until none does for half a second.
fn sent(network: &Network, from: &str, to: &str, numbers: u32) -> Vec<Vec<u8>> {
    let (sender, receiver) =
        (socket(network.host(from).unwrap()), socket(network.host(to).unwrap()));
    let to = receiver.local_addr().unwrap();
    let mut arrived = Vec::new();
    let take = |arrived: &mut Vec<Vec<u8>>| {
        let mut buffer = [0; 500];
        let length = receiver.recv(&mut buffer).ok()?;
        arrived.push(buffer[..length].to_vec());
        Some(())
    };
    // With a checksum the receiver would drop what the switch has corrupted.
    set_option(&sender, libc::SO_NO_CHECK, 1);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            for number in 0..numbers {
                sender.send_to(&datagram(number), to).unwrap();
                // No more at once than a device has room for.
                if number % 50 == 49 {
                    thread::sleep(MS(2));
                }
            }
        });
        while take(&mut arrived).is_some() || !sending.is_finished() {}
    });
    arrived
}

fn datagram(number: u32) -> Vec<u8> {
    let mut bytes = vec![0x55; 400];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number(datagram: &[u8]) -> u32 {
    u32::from_be_bytes(datagram[..4].try_into().unwrap())
}

#[allow(unsafe_code, reason = "socket options that std does not have")]
fn set_option(socket: &UdpSocket, option: libc::c_int, value: libc::c_int) {
    let length = libc::socklen_t::try_from(size_of_val(&value)).unwrap();
    // SAFETY: the value is read during the call.
    let result = unsafe {
        let value = (&raw const value).cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, value, length)
    };
    assert_eq!(result, 0);
}

#[test]
fn without_rules_all_arrives_once_and_in_order() {
    let (network, _run) = network(&["n1", "n2", "n3"]);
    for (from, to) in [("n1", "n2"), ("n2", "n1"), ("n3", "n1")] {
        let arrived = sent(&network, from, to, 500);
        let expected: Vec<Vec<u8>> = (0..500).map(datagram).collect();
        assert!(arrived == expected, "{from} to {to}: {} arrived", arrived.len());
        let counts = network.counts(from, to).unwrap();
        assert_eq!(counts, Counts { entered: 500, delivered: 500, ..Counts::default() });
    }
}

#[test]
fn a_cut_acts_one_way_and_until_it_heals() {
    let (network, _run) = network(&["n1", "n2", "n3"]);
    network.set("n1", "n2", Rule::cut()).unwrap();
    assert_eq!(sent(&network, "n1", "n2", 20).len(), 0);
    assert_eq!(sent(&network, "n2", "n1", 20).len(), 20);
    assert_eq!(sent(&network, "n1", "n3", 20).len(), 20);
    assert!(network.counts("n1", "n2").unwrap().cut >= 20);
    assert_eq!(network.counts("n2", "n1").unwrap().cut, 0);
    network.heal();
    assert_eq!(network.rule("n1", "n2").unwrap(), Rule::default());
    assert_eq!(sent(&network, "n1", "n2", 20).len(), 20);
}

#[test]
fn a_partition_parts_two_sides_and_no_one_within_them() {
    let (network, _run) = network(&["n1", "n2", "n3"]);
    network.set_between(&["n1"], &["n2", "n3"], Rule::cut()).unwrap();
    for (from, to, arrive) in [("n1", "n2", 0), ("n3", "n1", 0), ("n2", "n3", 5), ("n3", "n2", 5)] {
        assert_eq!(sent(&network, from, to, 5).len(), arrive, "{from} to {to}");
    }
    let error = network.set("n1", "n9", Rule::cut()).unwrap_err().to_string();
    assert!(error.contains("n9"), "{error}");
}

#[test]
fn a_cut_also_swallows_what_is_on_its_way() {
    let (network, _run) = network(&["n1", "n2"]);
    network.set("n1", "n2", Rule::delay(MS(300))).unwrap();
    let (sender, receiver) =
        (socket(network.host("n1").unwrap()), socket(network.host("n2").unwrap()));
    sender.send_to(b"late", receiver.local_addr().unwrap()).unwrap();
    until("it is on its way", || network.counts("n1", "n2").unwrap().delayed == 1);
    network.set("n1", "n2", Rule::cut()).unwrap();
    until("it is swallowed", || network.counts("n1", "n2").unwrap().cut == 1);
    network.heal();
    assert!(receiver.recv(&mut [0; 8]).is_err());
}

#[test]
fn delay_and_jitter_lie_within_their_bounds() {
    let (network, _run) = network(&["n1", "n2"]);
    let (sender, receiver) =
        (socket(network.host("n1").unwrap()), socket(network.host("n2").unwrap()));
    let to = receiver.local_addr().unwrap();
    network.set("n1", "n2", Rule { delay: MS(20), jitter: MS(10), ..Rule::default() }).unwrap();
    let mut took: Vec<Duration> = (0..20)
        .map(|_| {
            let start = Instant::now();
            sender.send_to(b"x", to).unwrap();
            receiver.recv(&mut [0; 8]).unwrap();
            start.elapsed()
        })
        .collect();
    took.sort();
    assert!(took[0] >= MS(20), "{took:?}");
    // Single ones may be late on a busy machine.
    assert!(took[10] < MS(100), "{took:?}");
    assert!(network.counts("n1", "n2").unwrap().delayed >= 20);
    assert_eq!(network.counts("n2", "n1").unwrap().delayed, 0);
}

#[test]
fn losses_are_as_many_as_the_rule_says_and_as_counted() {
    let (network, _run) = network(&["n1", "n2"]);
    network.set("n1", "n2", Rule::loss(0.3)).unwrap();
    let arrived = sent(&network, "n1", "n2", 1_000).len() as u64;
    let counts = network.counts("n1", "n2").unwrap();
    assert!((600..800).contains(&arrived), "{arrived}");
    assert_eq!(counts.entered - counts.lost, counts.delivered);
    assert!(counts.lost >= 1_000 - arrived, "{arrived} {counts:?}");
}

#[test]
fn duplicates_arrive_twice_and_corruption_flips_one_bit() {
    let (network, _run) = network(&["n1", "n2"]);
    network.set("n1", "n2", Rule { duplicate: 0.5, ..Rule::default() }).unwrap();
    let arrived = sent(&network, "n1", "n2", 200);
    let counts = network.counts("n1", "n2").unwrap();
    assert!((250..350).contains(&arrived.len()), "{}", arrived.len());
    assert_eq!(counts.delivered, counts.entered + counts.duplicated);
    let twice = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count();
    assert!(twice >= 50, "{twice}");

    network.set("n1", "n2", Rule { corrupt: 1.0, ..Rule::default() }).unwrap();
    let arrived = sent(&network, "n1", "n2", 200);
    // A flip in the IP or UDP header costs the datagram.
    assert!(arrived.len() > 150, "{}", arrived.len());
    let flips = |bytes: &[u8]| -> u32 {
        let clean = (0..200).map(datagram);
        let differ = |clean: Vec<u8>| {
            clean.iter().zip(bytes).map(|(one, two)| (one ^ two).count_ones()).sum()
        };
        clean.map(differ).min().unwrap()
    };
    let flipped = arrived.iter().filter(|bytes| flips(bytes) == 1).count();
    assert!(flipped > 150, "{flipped} of {}", arrived.len());
    assert!(network.counts("n1", "n2").unwrap().corrupted >= 200);
}

#[test]
fn what_is_held_back_is_overtaken() {
    let (network, _run) = network(&["n1", "n2"]);
    network.set("n1", "n2", Rule { reorder: 0.1, hold: MS(20), ..Rule::default() }).unwrap();
    let arrived = sent(&network, "n1", "n2", 500);
    let counts = network.counts("n1", "n2").unwrap();
    assert_eq!(arrived.len(), 500);
    let backwards = arrived.windows(2).filter(|two| number(&two[1]) < number(&two[0])).count();
    assert!(backwards > 0, "all in order");
    assert!(counts.reordered > 20 && counts.overtaken > 20, "{counts:?}");
}

#[test]
fn a_connection_survives_a_bad_link_and_rules_that_change_under_it() {
    const BYTES: usize = 1 << 20;
    let (network, _run) = network(&["n1", "n2"]);
    let (client, server) = (network.host("n1").unwrap(), network.host("n2").unwrap());
    let listener = server.namespace.within(|| TcpListener::bind((server.address, 0))).unwrap();
    let listener = listener.unwrap();
    let to = listener.local_addr().unwrap();
    let mut stream = client.namespace.within(|| TcpStream::connect(to)).unwrap().unwrap();
    let (mut taken, _) = listener.accept().unwrap();
    let bad = Rule { loss: 0.02, duplicate: 0.02, jitter: MS(2), corrupt: 0.02, ..Rule::default() };
    network.set_between(&["n1"], &["n2"], bad).unwrap();
    let sent: Vec<u8> = (0..=u8::MAX).cycle().take(BYTES).collect();
    let arrived = thread::scope(|scope| {
        scope.spawn(|| {
            stream.write_all(&sent[..BYTES / 2]).unwrap();
            network.set_between(&["n1"], &["n2"], Rule::cut()).unwrap();
            thread::sleep(MS(100));
            network.set_between(&["n1"], &["n2"], bad).unwrap();
            stream.write_all(&sent[BYTES / 2..]).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
        });
        taken.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let mut arrived = Vec::new();
        taken.read_to_end(&mut arrived).unwrap();
        arrived
    });
    assert!(arrived == sent, "{} of {BYTES} bytes, or others", arrived.len());
    let counts = network.counts("n1", "n2").unwrap();
    assert!(counts.lost > 0 && counts.corrupted > 0 && counts.overtaken > 0, "{counts:?}");
}

#[test]
fn a_process_enters_the_network_of_its_host_and_keeps_the_mounts() {
    let (network, run) = network(&["n1"]);
    let namespace = &network.host("n1").unwrap().namespace;
    let spec = Spec { namespace: Some(namespace), ..shell(&run, "in", "sleep 1000") };
    let process = Process::start(&run, spec).unwrap();
    let of = |pid: &str, kind: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap();
    let pid = process.pid().to_string();
    let inside = namespace.within(|| of("thread-self", "net")).unwrap();
    assert_eq!(of(&pid, "net"), inside);
    assert_ne!(of(&pid, "net"), of("self", "net"));
    assert_eq!(of(&pid, "mnt"), of("self", "mnt"));
}
