//! Data folders whose power can be cut.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::mount::{MsFlags, mount};
use nix::sys::statvfs::{FsFlags, statvfs};

use super::Run;
use super::command::run;
use super::made::{Made, unmount, wait_until};

pub mod damage;

/// Where images lie unless told otherwise: in memory, so that a sync costs 0.2 ms.
pub const IN_MEMORY: &str = "/dev/shm";

/// The least an image may have, in MiB: ext4 wants room for its journal.
pub const MIB_MIN: u64 = 16;

/// The file that [`Volume::fill`] takes the room with.
const FILLER: &str = ".ringfence-filler";

/// The file that is made to see whether one can be.
const TOUCH: &str = ".ringfence-touch";

/// What only a sync makes durable is lost by a cut even minutes after it was written: the
/// journal commits by itself every 600 s only.
const OPTIONS: &str = "commit=600,errors=remount-ro";

/// Of ext4's shutdown: leave the journal as it is.
const NO_LOG_FLUSH: u32 = 2;

#[allow(unsafe_code, reason = "nix makes its ioctls unsafe functions")]
mod ioctl {
    // Takes a u32, though the kernel's name for it says that it gives one.
    nix::ioctl_read!(ext4_shutdown, b'X', 125, u32);
}

/// One node's disk: an ext4 image on a loop device, mounted at a folder of the run.
#[derive(Debug)]
pub struct Volume {
    device: String,
    folder: PathBuf,
    /// Keeps image and mount until nothing uses them.
    _run: Arc<Run>,
}

impl Volume {
    /// Makes and mounts an image of so many MiB, in [`IN_MEMORY`].
    ///
    /// # Errors
    /// As [`Volume::make_in`].
    pub fn make(run_of: &Arc<Run>, name: &str, mib: u64) -> Result<Self> {
        Self::make_in(run_of, name, mib, Path::new(IN_MEMORY))
    }

    /// Makes and mounts an image of so many MiB, which lies under `base`.
    ///
    /// # Errors
    /// Less than [`MIB_MIN`]; no room under `base`; e2fsprogs or the kernel's loop devices are
    /// missing.
    pub fn make_in(run_of: &Arc<Run>, name: &str, mib: u64, base: &Path) -> Result<Self> {
        ensure!(mib >= MIB_MIN, "an image of {mib} MiB is too small: at least {MIB_MIN}");
        let images = base.join(format!("ringfence-jepsen-{}", run_of.id()));
        run_of.record(&Made::Folder { path: images.clone() })?;
        fs::create_dir_all(&images)
            .with_context(|| format!("cannot make a folder under {}", base.display()))?;
        let image = images.join(format!("{name}.img"));
        ensure!(!image.exists(), "two volumes are named {name}");
        run_of.record(&Made::Image { path: image.clone() })?;
        let file = File::create(&image).context("cannot make an image")?;
        file.set_len(mib << 20).context("cannot make an image of this size")?;
        let path = image.to_string_lossy().into_owned();
        // Without a share for root alone, so that a full disk is full for everyone.
        run("mkfs.ext4", &["-q", "-F", "-m", "0", &path])?;
        let device = run("losetup", &["-f", "--show", &path])
            .context("no loop device: the kernel needs its loop module (modprobe loop)")?;
        let folder = run_of.disks().join(name);
        run_of.record(&Made::Mount { path: folder.clone() })?;
        fs::create_dir_all(&folder).context("cannot make a folder to mount at")?;
        let volume = Self { device: device.trim().into(), folder, _run: Arc::clone(run_of) };
        volume.mount()?;
        Ok(volume)
    }

    /// Where it is mounted.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Cuts the power: what no sync has made durable is gone for good. From here on everything
    /// on it fails with EIO, until [`Volume::restore`].
    ///
    /// Kill the node first, or pause it, as a machine without power does nothing more. A node
    /// that goes on sees its disk vanish, and what it answers in that moment may be wrong
    /// without any fault of its own: the kernel may tell a sync that meets the cut that it
    /// succeeded, if another sync has taken its transaction down with it.
    ///
    /// # Errors
    /// The kernel refuses.
    #[allow(unsafe_code, reason = "an ioctl with a pointer")]
    pub fn power_cut(&self) -> Result<()> {
        let root = File::open(&self.folder).context("cannot open the volume")?;
        let mut flags = NO_LOG_FLUSH;
        // SAFETY: the kernel reads four bytes there during the call.
        unsafe { ioctl::ext4_shutdown(root.as_raw_fd(), &raw mut flags) }
            .map(drop)
            .context("ext4 cannot be shut down here")
    }

    /// Mounts it anew: after a power cut, or to end a read-only state that the node caused.
    /// ext4 replays its journal, as after a boot.
    ///
    /// # Errors
    /// A process that still has files open there: it must be killed and reaped before. Or one
    /// whose mount namespace holds the old mount.
    pub fn restore(&self) -> Result<()> {
        unmount(&self.folder)?;
        self.mount()?;
        match File::create(self.folder.join(TOUCH)) {
            // Mounted again while it is still mounted elsewhere, ext4 gives the dead one back.
            Err(error) if error.raw_os_error() == Some(libc::EIO) => bail!(
                "{} is dead although it was mounted again: some process entered a mount \
                 namespace of its own while it was mounted (unshare --mount does), and must end first",
                self.folder.display()
            ),
            Err(_) => Ok(()),
            Ok(_) => fs::remove_file(self.folder.join(TOUCH)).context("cannot remove a file"),
        }
    }

    fn mount(&self) -> Result<()> {
        let (device, folder) = (Some(self.device.as_str()), &self.folder);
        mount(device, folder, Some("ext4"), MsFlags::MS_NOATIME, Some(OPTIONS))
            .with_context(|| format!("cannot mount {} as ext4", self.device))
    }

    /// Bytes that can still be written.
    ///
    /// # Errors
    /// The disk is gone.
    pub fn free_bytes(&self) -> Result<u64> {
        let about = statvfs(&self.folder).context("cannot ask for the volume's room")?;
        Ok(about.blocks_available() * about.fragment_size())
    }

    /// Takes all the room there is: whoever needs more now gets ENOSPC. What files have been
    /// allocated before is still theirs.
    ///
    /// # Errors
    /// The disk is gone or read-only.
    pub fn fill(&self) -> Result<()> {
        let path = self.folder.join(FILLER);
        let mut open = OpenOptions::new();
        let filler = open.create(true).append(true).open(path).context("cannot fill the volume")?;
        let mut step = 1 << 30;
        let mut length = filler.metadata().context("cannot fill the volume")?.len().cast_signed();
        while step >= 1 << 10 {
            match fallocate(&filler, FallocateFlags::empty(), length, step) {
                Ok(()) => length += step,
                Err(Errno::ENOSPC | Errno::EFBIG) => step /= 2,
                Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot fill the volume"),
            }
        }
        Ok(())
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// The disk is gone or read-only.
    pub fn unfill(&self) -> Result<()> {
        match fs::remove_file(self.folder.join(FILLER)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).context("cannot give the volume's room back")
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Makes it read-only, whoever writes there: as when ext4 meets an error of its own. Ended
    /// by [`Volume::restore`] only.
    ///
    /// # Errors
    /// It does not become read-only.
    pub fn read_only(&self) -> Result<()> {
        let remount = MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | MsFlags::MS_NOATIME;
        match mount(None::<&str>, &self.folder, None::<&str>, remount, Some(OPTIONS)) {
            Ok(()) => return Ok(()),
            // Somebody has a file open for writing: ext4 must be made to find an error.
            Err(Errno::EBUSY) => {}
            Err(error) => return Err(error).context("cannot remount the volume read-only"),
        }
        let device = Path::new(&self.device).file_name().unwrap_or_default();
        let trigger = Path::new("/sys/fs/ext4").join(device).join("trigger_fs_error");
        fs::write(&trigger, "1").with_context(|| format!("cannot write {}", trigger.display()))?;
        wait_until("the volume becoming read-only", || Ok(!self.takes_writes()))
    }

    /// Whether a file can be made there.
    #[must_use]
    pub fn takes_writes(&self) -> bool {
        let path = self.folder.join(TOUCH);
        let made = File::create(&path).is_ok();
        let read_only =
            statvfs(&self.folder).is_ok_and(|about| about.flags().contains(FsFlags::ST_RDONLY));
        if made && fs::remove_file(&path).is_err() {
            return false;
        }
        made && !read_only
    }

    /// Fails unless the volume is mounted and takes writes: what a healed disk is.
    ///
    /// # Errors
    /// It is cut, read-only or full.
    pub fn check_healthy(&self) -> Result<()> {
        if !self.takes_writes() {
            bail!("{} takes no writes: restore the volume", self.folder.display());
        }
        Ok(())
    }
}
