//! Where the socket of an observed database is, for both ends.
//!
//! Beside the database: `observe.sock` in its directory. Where that cannot be, because the directory
//! takes no sockets or its path is too long for one, it is in a directory of the user's own,
//! `/tmp/foxton-UID`, under a name made from the path. Whoever looks tries both.
//!
//! # Invariants
//!
//! * I1  A socket can be opened by its user alone, from its first moment: it gets its mode (0600)
//!   after it has its name and before it listens.
//! * I2  Nothing is removed but a socket at which nobody listens.
//! * I3  A directory under `/tmp` is used only if it is the user's own and nobody else's to enter.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// The name of the socket in the directory of the database.
pub const SOCKET_FILE: &str = "observe.sock";

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// A socket that listens, and its place.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
    /// Device and inode: to take away no other socket than this.
    identity: (u64, u64),
}

impl ListeningSocket {
    /// Takes the socket's name away, if it still is this socket's.
    pub(crate) fn remove(&self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // If it stays, the next one finds that nobody listens (I2).
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A socket in the directory of a database, or at the place that stands in for it.
pub(crate) fn bind_beside(directory: &Path) -> io::Result<ListeningSocket> {
    bind(&directory.join(SOCKET_FILE)).or_else(|error| match elsewhere(directory) {
        Ok(path) if is_no_place(&error) => {
            own_directory(path.parent().expect("a file in a directory"), true)?;
            bind(&path)
        }
        _ => Err(error),
    })
}

/// A socket at `path`.
pub(crate) fn bind(path: &Path) -> io::Result<ListeningSocket> {
    remove_stale(path)?;
    let (directory, name) = split(path)?;
    let socket = new_socket()?;
    rustix::net::bind(&socket, &address(&directory, path, name)?)?;
    let guard = identity(path).inspect_err(|_| _ = fs::remove_file(path))?;
    let bound = ListeningSocket {
        listener: UnixListener::from(socket),
        path: path.to_owned(),
        identity: guard,
    };
    let listening = fs::set_permissions(path, fs::Permissions::from_mode(0o600))
        .and_then(|()| Ok(rustix::net::listen(&bound.listener, BACKLOG)?)) // I1
        .and_then(|()| bound.listener.set_nonblocking(true));
    listening.inspect_err(|_| bound.remove())?;
    Ok(bound)
}

/// Connects to the socket of the database in the directory `place`, or to the socket `place`. The stream
/// waits no longer than `patience` for anything; connecting is refused as `WouldBlock` after that time.
pub(crate) fn connect(place: &Path, patience: Duration) -> io::Result<UnixStream> {
    if !fs::metadata(place)?.is_dir() {
        return connect_to(place, Some(patience));
    }
    connect_to(&place.join(SOCKET_FILE), Some(patience)).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            let path = elsewhere(place)?;
            own_directory(path.parent().expect("a file in a directory"), false)?;
            connect_to(&path, Some(patience))
        }
        _ => Err(error),
    })
}

/// Where more than [`BACKLOG`] wait to be accepted, connecting waits, too: so long, or not at all.
fn connect_to(path: &Path, patience: Option<Duration>) -> io::Result<UnixStream> {
    let (directory, name) = split(path)?;
    let stream = UnixStream::from(new_socket()?);
    stream.set_read_timeout(patience)?;
    stream.set_write_timeout(patience)?;
    stream.set_nonblocking(patience.is_none())?;
    let address = address(&directory, path, name)?;
    rustix::io::retry_on_intr(|| rustix::net::connect(&stream, &address))?;
    Ok(stream)
}

/// Takes away a socket at which nobody listens (I2).
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            let what = format!("{} is there already and is no socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        Ok(_) => {}
    }
    let answered = match connect_to(path, None) {
        Ok(_) => true,
        // Others wait to be let in, so somebody is there.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => false,
        Err(error) => return Err(error),
    };
    if !answered {
        return fs::remove_file(path);
    }
    let what = format!("somebody answers at {} already", path.display());
    Err(io::Error::new(io::ErrorKind::AddrInUse, what))
}

/// The directory of `path`, open, and the rest.
fn split(path: &Path) -> io::Result<(OwnedFd, &Path)> {
    let name = path.file_name().map(Path::new);
    let name = name.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok((rustix::fs::open(parent, flags, Mode::empty())?, name))
}

/// The address of a socket. A path that is too long for one is taken through the open directory,
/// where the system can do that.
fn address(directory: &OwnedFd, path: &Path, name: &Path) -> io::Result<SocketAddrUnix> {
    use std::os::fd::AsRawFd;
    let short = || {
        let through = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string());
        let usable = cfg!(target_os = "linux") && through.exists();
        usable.then(|| through.join(name))
    };
    match (SocketAddrUnix::new(path), short()) {
        (Err(rustix::io::Errno::NAMETOOLONG), Some(short)) => Ok(SocketAddrUnix::new(short)?),
        (address, _) => Ok(address?),
    }
}

fn new_socket() -> io::Result<OwnedFd> {
    #[cfg(target_os = "linux")]
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    #[cfg(not(target_os = "linux"))]
    let socket = {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        socket
    };
    Ok(socket)
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

/// Whether a socket cannot be in that directory at all, so that another place is worth a try.
fn is_no_place(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    // `bind` says EPERM where a file system has no sockets, which is a kind of PermissionDenied.
    let kinds = [
        PermissionDenied,
        ReadOnlyFilesystem,
        Unsupported,
        InvalidFilename,
    ];
    kinds.contains(&error.kind())
}

/// The place that stands in for `observe.sock` in `directory`.
fn elsewhere(directory: &Path) -> io::Result<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let whole = fs::canonicalize(directory)?;
    let user = rustix::process::geteuid().as_raw();
    // FNV-1a: both ends must agree, whatever they were built with.
    let hash = whole.as_os_str().as_bytes().iter();
    let hash = hash.fold(0xcbf2_9ce4_8422_2325u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    Ok(PathBuf::from(format!(
        "/tmp/foxton-{user}/{hash:016x}.sock"
    )))
}

/// Makes sure that `directory` is the user's own (I3), making it if it is to be made.
fn own_directory(directory: &Path, make: bool) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    if make {
        let made = fs::DirBuilder::new().mode(0o700).create(directory);
        made.or_else(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => Ok(()),
            _ => Err(error),
        })?;
    }
    let found = fs::symlink_metadata(directory)?;
    let user = rustix::process::geteuid().as_raw();
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    let what = format!("{} is not this user's alone", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// Whether the other end is the same user, or the superuser, as far as the system tells.
pub(crate) fn is_our_own(stream: &UnixStream) -> bool {
    #[cfg(target_os = "linux")]
    {
        let other = rustix::net::sockopt::socket_peercred(stream);
        let user = rustix::process::geteuid();
        other.is_ok_and(|other| other.uid == user || other.uid.is_root())
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = stream;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// A directory that goes when the test ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("foxton-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_socket_is_its_users_alone_and_goes_when_it_is_closed() {
        let scratch = Scratch::new("place-mode");
        let bound = bind_beside(&scratch.0).unwrap();
        let mode = fs::metadata(&bound.path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(is_our_own(&connect(&scratch.0, PATIENCE).unwrap()));
        bound.remove();
        assert!(!bound.path.exists());
    }

    #[test]
    fn what_a_killed_process_left_is_replaced_and_what_is_in_use_is_not() {
        let scratch = Scratch::new("place-stale");
        let path = scratch.0.join(SOCKET_FILE);
        drop(UnixListener::bind(&path).unwrap());
        let bound = bind_beside(&scratch.0).unwrap();
        let refused = bind_beside(&scratch.0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
        connect(&scratch.0, PATIENCE).unwrap();
        drop(bound);
    }

    #[test]
    fn a_place_where_many_wait_to_be_let_in_is_in_use_and_has_room_once_somebody_is() {
        let scratch = Scratch::new("place-full");
        let bound = bind_beside(&scratch.0).unwrap();
        let mut waiting = Vec::new();
        while let Ok(stream) = connect_to(&bound.path, None) {
            waiting.push(stream);
        }
        let refused = bind_beside(&scratch.0).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse, "{refused}");
        let in_vain = connect(&scratch.0, Duration::from_millis(20)).unwrap_err();
        assert_eq!(in_vain.kind(), io::ErrorKind::WouldBlock, "{in_vain}");
        std::thread::scope(|scope| {
            scope.spawn(|| connect(&scratch.0, PATIENCE).expect("there is room in time"));
            // A connection that waits is only let in when one before it was.
            std::thread::yield_now();
            bound.listener.accept().expect("many wait");
        });
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let scratch = Scratch::new("place-file");
        let path = scratch.0.join(SOCKET_FILE);
        fs::write(&path, "mine").unwrap();
        assert!(bind_beside(&scratch.0).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"mine");
    }

    #[test]
    fn a_path_too_long_for_a_socket_works_all_the_same() {
        let scratch = Scratch::new("place-long");
        let deep = scratch.0.join("d".repeat(100)).join("e".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let bound = bind_beside(&deep).unwrap();
        connect(&deep, PATIENCE).unwrap();
        bound.remove();
        assert!(connect(&deep, PATIENCE).is_err());
    }

    #[test]
    fn where_there_can_be_no_socket_one_elsewhere_is_found_by_the_directory() {
        let scratch = Scratch::new("place-elsewhere");
        let path = elsewhere(&scratch.0).unwrap();
        own_directory(path.parent().unwrap(), true).unwrap();
        let bound = bind(&path).unwrap();
        connect(&scratch.0, PATIENCE).unwrap();
        bound.remove();
        assert_eq!(
            connect(&scratch.0, PATIENCE).unwrap_err().kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn a_directory_that_others_may_enter_or_that_is_a_link_is_not_used() {
        let scratch = Scratch::new("place-own");
        let (open, link) = (scratch.0.join("open"), scratch.0.join("link"));
        own_directory(&open, true).unwrap();
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert!(own_directory(&link, true).is_err());
        fs::set_permissions(&open, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(own_directory(&open, true).is_err());
    }

    #[test]
    fn another_socket_in_the_same_place_is_not_removed() {
        let scratch = Scratch::new("place-other");
        let bound = bind_beside(&scratch.0).unwrap();
        fs::remove_file(&bound.path).unwrap();
        let other = UnixListener::bind(&bound.path).unwrap();
        bound.remove();
        assert!(bound.path.exists());
        drop(other);
    }
}
