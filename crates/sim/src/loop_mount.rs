//! Real file systems in a file, and real power cuts of them. For root, on Linux.
//!
//! An image file is mounted through a loop device. The power cut is the file system's own: ext4 and
//! XFS have an ioctl for tests of this kind, which shuts the file system down at once, without
//! writing anything more, not even its journal. Mounting it again replays the journal, as after a
//! real cut.
//!
//! The victim dies before the file system is shut down. In the other order a running sync could
//! return without an error after the shutdown, and the victim would acknowledge what is not there.

use crate::{ground::Ground, victim::Orders};
use foxton::Durability;
use std::{
    fmt, fs,
    io::{self, Error},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

/// A kind of file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4.
    Ext4,
    /// XFS.
    Xfs,
}

impl FileSystem {
    fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Xfs => "xfs",
        }
    }

    /// Returns the smallest size of an image, with space for a database of tests.
    fn image_bytes(self) -> u64 {
        match self {
            FileSystem::Ext4 => 64 << 20,
            FileSystem::Xfs => 320 << 20,
        }
    }

    fn make(self, image: &Path) -> io::Result<()> {
        let program = format!("mkfs.{}", self.name());
        let quiet: &[&str] = match self {
            FileSystem::Ext4 => &["-q", "-F"],
            FileSystem::Xfs => &["-q", "-f"],
        };
        run(Command::new(program).args(quiet).arg(image))
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for FileSystem {
    type Err = Error;
    fn from_str(text: &str) -> io::Result<FileSystem> {
        match text {
            "ext4" => Ok(FileSystem::Ext4),
            "xfs" => Ok(FileSystem::Xfs),
            _ => Err(Error::other(format!("{text:?} is neither ext4 nor xfs"))),
        }
    }
}

/// A mounted image of a file system.
#[derive(Debug)]
pub struct Mounted {
    image: PathBuf,
    at: PathBuf,
    is_mounted: bool,
}

impl Mounted {
    /// Makes an image of `bytes` at `image` and mounts it at `at`.
    ///
    /// # Errors
    ///
    /// The obstacle: not being root, a missing program, a kernel without support.
    pub fn new(system: FileSystem, bytes: u64, image: &Path, at: &Path) -> io::Result<Mounted> {
        fs::File::create(image)?.set_len(bytes)?;
        system.make(image)?;
        fs::create_dir_all(at)?;
        let mut mounted = Mounted {
            image: image.to_owned(),
            at: at.to_owned(),
            is_mounted: false,
        };
        mounted.mount()?;
        Ok(mounted)
    }

    /// The same, with the default size for `system`.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn usual(system: FileSystem, image: &Path, at: &Path) -> io::Result<Mounted> {
        Mounted::new(system, system.image_bytes(), image, at)
    }

    /// Mounts it again.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn mount(&mut self) -> io::Result<()> {
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&self.image)
            .arg(&self.at))?;
        self.is_mounted = true;
        Ok(())
    }

    /// Unmounts it.
    ///
    /// # Errors
    ///
    /// If it is in use.
    pub fn unmount(&mut self) -> io::Result<()> {
        run(Command::new("umount").arg(&self.at))?;
        self.is_mounted = false;
        Ok(())
    }

    /// Cuts the power: nothing more is written. The file system is unusable until it is mounted
    /// again.
    ///
    /// # Errors
    ///
    /// If the file system cannot.
    pub fn shut_down(&self) -> io::Result<()> {
        // There is no safe call for it, so another program makes it: _IOR('X', 125, u32), no flush.
        const SCRIPT: &str = "open(my $at, '<', $ARGV[0]) or die \"$!\\n\"; my $no_flush = pack('L', 2); \
                              ioctl($at, 0x8004587D, $no_flush) or die \"$!\\n\"";
        run(Command::new("perl").args(["-e", SCRIPT]).arg(&self.at))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.is_mounted {
            // There is no caller to report an error to.
            let _ = self.unmount();
        }
    }
}

/// A file system in memory of limited size.
#[derive(Debug)]
pub struct InMemory(PathBuf);

impl InMemory {
    /// Mounts one with space for `bytes` at `at`.
    ///
    /// # Errors
    ///
    /// If that cannot be done, for example without being root.
    pub fn new(bytes: u64, at: &Path) -> io::Result<InMemory> {
        fs::create_dir_all(at)?;
        let options = format!("size={bytes}");
        run(Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
            .arg(at))?;
        Ok(InMemory(at.to_owned()))
    }

    /// Returns where it is mounted.
    pub fn at(&self) -> &Path {
        &self.0
    }

    /// Changes its size to `bytes`.
    ///
    /// # Errors
    ///
    /// If that cannot be done.
    pub fn resize(&self, bytes: u64) -> io::Result<()> {
        let options = format!("remount,size={bytes}");
        run(Command::new("mount").args(["-o", &options]).arg(&self.0))
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        // There is no caller to report an error to.
        let _ = run(Command::new("umount").arg(&self.0));
    }
}

/// Runs a program; its output is the error.
fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().display().to_string();
    let told = |what: String| Error::other(format!("{name}: {what}"));
    let output = command.output().map_err(|error| told(error.to_string()))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(told(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

/// Databases on a file system whose power is cut when their process dies.
#[derive(Debug)]
pub struct PowerCut {
    system: FileSystem,
    folder: PathBuf,
    mounted: Option<Mounted>,
}

impl PowerCut {
    /// Puts images into `folder`.
    pub fn new(system: FileSystem, folder: &Path) -> PowerCut {
        PowerCut {
            system,
            folder: folder.to_owned(),
            mounted: None,
        }
    }

    /// Checks whether it can be done here: makes an image in `folder`, cuts its power once and
    /// removes it.
    ///
    /// # Errors
    ///
    /// The obstacle.
    pub fn is_possible(system: FileSystem, folder: &Path) -> io::Result<()> {
        let (image, at) = (folder.join("image"), folder.join("mounted"));
        let mut mounted = Mounted::usual(system, &image, &at)?;
        mounted.shut_down()?;
        mounted.unmount()?;
        fs::remove_file(image)
    }

    fn mounted(&mut self) -> io::Result<&mut Mounted> {
        self.mounted
            .as_mut()
            .ok_or_else(|| Error::other("nothing is mounted"))
    }
}

impl Ground for PowerCut {
    fn prepare(&mut self, orders: &Orders) -> io::Result<()> {
        let at = self.folder.join("mounted");
        let mounted = Mounted::usual(self.system, &self.folder.join("image"), &at)?;
        self.mounted = Some(mounted);
        // The notebook must survive the cut, and so is elsewhere.
        let places = [orders.database(), orders.backups().shelf];
        for (name, place) in ["database", "backups"].into_iter().zip(places) {
            fs::create_dir(at.join(name))?;
            symlink(at.join(name), place)?;
        }
        fs::File::open(&at)?.sync_all()
    }

    fn cut(&mut self) -> io::Result<()> {
        let mounted = self.mounted()?;
        mounted.shut_down()?;
        mounted.unmount()?;
        mounted.mount()
    }

    fn clear(&mut self) -> io::Result<()> {
        self.mounted()?.unmount()?;
        self.mounted = None;
        Ok(())
    }

    fn keeps(&self, durability: Durability) -> bool {
        durability == Durability::Sync
    }
}
