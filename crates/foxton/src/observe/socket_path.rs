//! Path of the socket of an observed database, for server and client.
//!
//! The socket is `observe.sock` in the database's directory. If the directory cannot hold sockets,
//! or its path is too long for one, the socket is in a private directory of the user,
//! `/tmp/foxton-UID`. Its name there is derived from the path. A client tries both.
//!
//! # Invariants
//!
//! * I1  Only its user can open a socket, from the first moment: it gets its mode (0600) after it
//!   has its name and before it listens.
//! * I2  Only a socket without a listener is removed.
//! * I3  A directory under `/tmp` is used only if it belongs to the user and no other user can
//!   enter it.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};

/// Name of the socket in the directory of the database.
pub const SOCKET_FILE: &str = "observe.sock";

/// Number of connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// A listening socket and its path.
#[derive(Debug)]
pub(crate) struct ListeningSocket {
    pub(crate) listener: UnixListener,
    pub(crate) path: PathBuf,
    /// Device and inode, so that no other socket is removed.
    identity: (u64, u64),
}

impl ListeningSocket {
    /// Removes the socket's file, if it is still this socket's.
    pub(crate) fn remove(&self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            // If the file stays, the next server finds that it has no listener (I2).
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Binds a socket in the directory of a database, or at its alternative path.
pub(crate) fn bind_beside(directory: &Path) -> io::Result<ListeningSocket> {
    bind(&directory.join(SOCKET_FILE)).or_else(|error| match elsewhere(directory) {
        Ok(path) if is_no_place(&error) => {
            own_directory(path.parent().expect("a file in a directory"), true)?;
            bind(&path)
        }
        _ => Err(error),
    })
}

/// Binds a socket at `path`.
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

/// Connects to the socket of the database in the directory `place`, or to the socket `place`. Each
/// operation on the stream waits at most `patience`; connecting then fails with `WouldBlock`.
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

/// Connects to the socket at `path`. If more than [`BACKLOG`] connections wait to be accepted, it
/// waits at most `patience`, or not at all.
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

/// Removes a socket without a listener (I2).
fn remove_stale(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            let what = format!("{} exists and is not a socket", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, what));
        }
        Ok(_) => {}
    }
    let answered = match connect_to(path, None) {
        Ok(_) => true,
        // Connections wait to be accepted, so there is a listener.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => false,
        Err(error) => return Err(error),
    };
    if !answered {
        return fs::remove_file(path);
    }
    let what = format!("a process already listens at {}", path.display());
    Err(io::Error::new(io::ErrorKind::AddrInUse, what))
}

/// Returns the directory of `path`, opened, and the file name.
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

/// Returns the address of a socket. If the path is too long, it uses the opened directory, where
/// the system allows that.
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

/// True if the directory cannot hold a socket at all, so that another place is worth trying.
fn is_no_place(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidFilename, PermissionDenied, ReadOnlyFilesystem, Unsupported};
    // `bind` returns EPERM where a file system has no sockets, which is a kind of PermissionDenied.
    let kinds = [
        PermissionDenied,
        ReadOnlyFilesystem,
        Unsupported,
        InvalidFilename,
    ];
    kinds.contains(&error.kind())
}

/// Returns the alternative path for `observe.sock` in `directory`.
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

/// Verifies that `directory` belongs to the user alone (I3), creating it first if `make` is set.
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
    let what = format!("{} does not belong to this user alone", directory.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
}

/// True if the peer is the same user or the superuser, as far as the system tells.
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

    /// A directory that is removed when the test ends.
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
    fn a_socket_belongs_to_its_user_and_is_removed_on_close() {
        let scratch = Scratch::new("place-mode");
        let bound = bind_beside(&scratch.0).unwrap();
        let mode = fs::metadata(&bound.path).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(is_our_own(&connect(&scratch.0, PATIENCE).unwrap()));
        bound.remove();
        assert!(!bound.path.exists());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
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
    fn a_socket_with_a_full_backlog_is_in_use_and_accepts_again_later() {
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
            // A waiting connection is accepted only after an earlier one was.
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
