//! Network devices whose far end is a file descriptor of ours.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

use anyhow::{Context, Result};

use super::namespace::Namespace;

/// The device's name in each namespace.
pub const DEVICE: &str = "eth0";

/// Makes the device of a namespace. Reads and writes of the file are whole Ethernet frames and
/// never block; the device goes when the file is closed.
///
/// # Errors
/// There is no `/dev/net/tun`, or the kernel refuses.
pub fn open(namespace: &Namespace) -> Result<File> {
    namespace.within(|| {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open("/dev/net/tun")
            .context("cannot open /dev/net/tun: the kernel needs its tun module (modprobe tun)")?;
        set_interface(&file)?;
        Ok(file)
    })?
}

#[allow(unsafe_code, reason = "an ioctl with a structure of C")]
fn set_interface(file: &File) -> Result<()> {
    // SAFETY: zeroes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(DEVICE.bytes()) {
        *to = libc::c_char::try_from(from).expect("the name is ASCII");
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI;
    request.ifr_ifru.ifru_flags = libc::c_short::try_from(flags).expect("two low flags");
    // SAFETY: the request outlives the call, which only reads and fills it.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    nix::errno::Errno::result(result).context("cannot make a TAP device")?;
    Ok(())
}
