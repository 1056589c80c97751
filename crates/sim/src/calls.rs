//! Faults at system calls: a process is killed at its k-th call of a kind, or the call fails.
//!
//! `strace` runs the victim. It sees every call of one kind on one kind of file, and lets k - 1 of
//! them pass in each thread. Then it kills the process before the call is made, or makes the call
//! fail, once or from then on. So every moment just before and just after a change of the directory
//! is tested, which random kills do not ensure, and errors arrive where real ones do.
//!
//! A victim runs a fixed number of transactions and ends by itself. The directory that it leaves is
//! compared as after any kill ([`crate::kill`]). A victim that was killed is started again on what
//! it left, and killed once more, mostly while it recovers. After an error the victim must
//! continue, where that is right, or report what failed and end.
//!
//! Calls are counted per thread, and the machine schedules the threads. So the call, the file and k
//! of a failing case are known, but not what the other threads did at that moment.

use crate::{
    ground::Firm,
    kill::{self, Any, Summary},
    ledger::{Expectations, mix},
    victim::{Honesty, Orders, REFUSED},
};
use std::{
    fmt, fs,
    io::{self, Error, ErrorKind},
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

/// Kind of file that a call concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A segment of the log.
    Log,
    /// A layer: rows of a checkpoint.
    Layer,
    /// The manifest, which names the layers.
    Manifest,
    /// The directory of these files; calls that open, rename or remove a file name it.
    Directory,
    /// The superblock, and the file that locks the directory.
    Head,
    /// The parent of the directory.
    Folder,
}

/// Fault at the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blow {
    /// The victim is killed.
    Kill,
    /// The call fails.
    Fail {
        /// The error.
        error: &'static str,
        /// True if every later call fails, too.
        ever: bool,
    },
}

/// A fault, and the calls at which it happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// The fault.
    pub blow: Blow,
    /// Name of the system call.
    pub call: &'static str,
    /// Kind of file.
    pub place: Place,
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Aim { blow, call, place } = self;
        match blow {
            Blow::Kill => write!(f, "killed at {call}")?,
            Blow::Fail { error, ever: false } => write!(f, "{error} once from {call}")?,
            Blow::Fail { error, ever: true } => write!(f, "{error} for ever from {call}")?,
        }
        write!(f, " of {place:?}")
    }
}

/// Calls by which a database changes its directory, and the errors that each may return.
const CHANGES: [(&str, Place, &[&str]); 18] = [
    ("mkdir", Place::Folder, &["EIO", "ENOSPC"]),
    ("fsync", Place::Folder, &["EIO"]),
    ("openat", Place::Directory, &["EIO", "ENOSPC", "EMFILE"]),
    ("renameat", Place::Directory, &["EIO", "ENOSPC"]),
    ("unlinkat", Place::Directory, &["EIO"]),
    ("fsync", Place::Directory, &["EIO", "ENOSPC"]),
    ("ftruncate", Place::Head, &["EIO"]),
    ("pwrite64", Place::Head, &["EIO", "ENOSPC"]),
    ("fdatasync", Place::Head, &["EIO", "ENOSPC"]),
    ("fallocate", Place::Log, &["EIO", "ENOSPC"]),
    ("pwrite64", Place::Log, &["EIO", "ENOSPC"]),
    ("fdatasync", Place::Log, &["EIO", "ENOSPC"]),
    ("ftruncate", Place::Log, &["EIO"]),
    ("pwrite64", Place::Layer, &["EIO", "ENOSPC"]),
    ("fdatasync", Place::Layer, &["EIO", "ENOSPC"]),
    ("ftruncate", Place::Manifest, &["EIO"]),
    ("pwrite64", Place::Manifest, &["EIO", "ENOSPC"]),
    ("fdatasync", Place::Manifest, &["EIO", "ENOSPC"]),
];

/// Calls that read. A kill there is like a kill at the change before.
const READS: [(&str, Place); 4] = [
    ("getdents64", Place::Directory),
    ("pread64", Place::Head),
    ("pread64", Place::Log),
    ("pread64", Place::Manifest),
];

/// Returns every kind of call with every fault that is tested there.
pub fn aims() -> Vec<Aim> {
    let kill = |&(call, place, _)| Aim {
        blow: Blow::Kill,
        call,
        place,
    };
    let fail = |call, place, error| {
        [false, true].map(|ever| Aim {
            blow: Blow::Fail { error, ever },
            call,
            place,
        })
    };
    let kills = CHANGES.iter().map(kill);
    let changes = CHANGES.iter().flat_map(|&(call, place, errors)| {
        errors
            .iter()
            .flat_map(move |&error| fail(call, place, error))
    });
    let reads = READS
        .iter()
        .flat_map(|&(call, place)| fail(call, place, "EIO"));
    kills.chain(changes).chain(reads).collect()
}

/// How a victim ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It was killed at the call.
    Killed,
    /// The call failed; the victim reported it and ended.
    Refused,
    /// The call failed, and the victim did everything that it had to do.
    WentOn,
    /// The victim ended without making that many such calls.
    Missed,
}

/// A case with a wrong result.
#[derive(Debug)]
pub struct Failure {
    /// The fault.
    pub aim: Aim,
    /// Number of the call, from 1.
    pub nth: u64,
    /// Seed of the transactions and options.
    pub seed: u64,
    /// Description of the wrong result.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            aim,
            nth,
            seed,
            what,
        } = self;
        write!(f, "{aim}, call {nth}, seed {seed}: {what}")
    }
}

impl std::error::Error for Failure {}

/// Checks whether calls can be traced here.
///
/// # Errors
///
/// [`ErrorKind::NotFound`] if there is no `strace` or no `timeout`; another if tracing is not
/// allowed.
pub fn is_possible() -> io::Result<()> {
    for program in ["strace", "timeout"] {
        let mut try_it = Command::new(program);
        try_it.arg("--version").stdout(Stdio::null());
        try_it
            .status()
            .map_err(|error| Error::new(error.kind(), format!("{program}: {error}")))?;
    }
    let output = traced(["--trace=none"]).arg("true").output()?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::PermissionDenied,
            format!("strace: {}", told(&output)),
        )),
    }
}

/// Runs cases: the folder, the load and the victim's command.
#[derive(Debug)]
pub struct Rig<V> {
    /// An existing, empty folder.
    pub folder: PathBuf,
    /// Clients of each victim.
    pub clients: u32,
    /// Transactions of each client.
    pub each: u64,
    /// Whether the victims record the truth.
    pub honesty: Honesty,
    /// Makes the command that gets the orders, and must run [`crate::victim::carry_out`] with them.
    pub victim: V,
}

/// Longer than any case takes.
const PATIENCE: Duration = Duration::from_secs(60);

impl<V: Fn() -> Command> Rig<V> {
    /// Runs a victim with a fault at its `nth` call of `aim`, and inspects what it left. The
    /// database stays in the folder if the result is wrong.
    ///
    /// # Errors
    ///
    /// If the result is wrong.
    pub fn play(
        &self,
        aim: Aim,
        nth: u64,
        seed: u64,
        summary: &mut Summary,
    ) -> Result<End, Failure> {
        let orders = Orders {
            folder: self.folder.join("case"),
            seed,
            clients: self.clients,
            each: self.each,
            honesty: self.honesty,
            backups: None,
            is_paged: false,
        };
        self.lives(&orders, (aim, nth), summary)
            .and_then(|end| {
                fs::remove_dir_all(&orders.folder)?;
                Ok(end)
            })
            .map_err(|fault| Failure {
                aim,
                nth,
                seed,
                what: fault.to_string(),
            })
    }

    fn lives(
        &self,
        orders: &Orders,
        (aim, nth): (Aim, u64),
        summary: &mut Summary,
    ) -> Result<End, Any> {
        fs::create_dir_all(&orders.folder)?;
        let mut expected = Expectations::default();
        let end = self.life(orders, (aim, nth), (&mut expected, summary))?;
        if end == End::Killed {
            // Recovery makes few calls.
            let again = 1 + mix(orders.seed ^ nth) % 4;
            self.life(orders, (aim, again), (&mut expected, summary))?;
        }
        Ok(end)
    }

    fn life(
        &self,
        orders: &Orders,
        (aim, nth): (Aim, u64),
        known: (&mut Expectations, &mut Summary),
    ) -> Result<End, Any> {
        let before = kill::slots(orders)?;
        let end = self.strike(orders, aim, nth)?;
        kill::look(orders, &before, &Firm, known)?;
        Ok(end)
    }

    /// Starts a victim under `strace`, and waits for its end.
    fn strike(&self, orders: &Orders, aim: Aim, nth: u64) -> Result<End, Any> {
        let notes = orders.folder.join("calls");
        let victim = (self.victim)();
        let mut command = traced(arguments(aim, nth, orders));
        command.arg("--output").arg(&notes).arg("--");
        command.arg(victim.get_program()).args(victim.get_args());
        orders.give(&mut command);
        let start = Instant::now();
        let output = command.stdin(Stdio::null()).output()?;
        if start.elapsed() >= PATIENCE {
            return Err("the victim did not end in time".into());
        }
        // Lines that threads write at the same time are not always text.
        let notes = fs::read(notes)?;
        let was_hit = notes
            .windows(b"(INJECTED)".len())
            .any(|words| words == b"(INJECTED)");
        match (aim.blow, output.status.signal(), output.status.code()) {
            (Blow::Kill, Some(9), _) => Ok(End::Killed),
            (Blow::Fail { .. }, _, Some(REFUSED)) if was_hit => Ok(End::Refused),
            (Blow::Fail { .. }, _, Some(0)) if was_hit => Ok(End::WentOn),
            (_, _, Some(0)) => Ok(End::Missed),
            _ => Err(format!("the victim: {}: {}", output.status, told(&output)).into()),
        }
    }
}

/// Returns the `strace` command with its first arguments; it is ended if it takes too long.
fn traced(first: impl IntoIterator<Item = impl AsRef<std::ffi::OsStr>>) -> Command {
    let mut command = Command::new("timeout");
    let patience = PATIENCE.as_secs().to_string();
    command.args(["--signal=KILL", &patience, "strace", "--follow-forks"]);
    command.arg("--quiet=all").args(first).stdin(Stdio::null());
    command
}

/// Returns the arguments that tell `strace` where to inject the fault.
fn arguments(aim: Aim, nth: u64, orders: &Orders) -> Vec<String> {
    let Aim { blow, call, place } = aim;
    let what = match blow {
        Blow::Kill => format!("signal=KILL:when={nth}"),
        Blow::Fail { error, ever } => {
            format!("error={error}:when={nth}{}", if ever { "+" } else { "" })
        }
    };
    let paths = paths(place, orders).into_iter();
    // Other calls are not stopped at then. Not for a kill, because strace 6.1 would lose the
    // signal.
    let quick = (blow != Blow::Kill).then(|| "--seccomp-bpf".to_owned());
    [format!("--trace={call}"), format!("--inject={call}:{what}")]
        .into_iter()
        .chain(quick)
        .chain(paths.map(|path| format!("--trace-path={}", path.display())))
        .collect()
}

/// Returns the files of a kind, including those that do not exist yet.
fn paths(place: Place, orders: &Orders) -> Vec<PathBuf> {
    // Segments of `Options::tiny` hold this many bytes of log; layers are numbered upwards.
    const SEGMENT: u64 = 60 << 10;
    const SEGMENTS: u64 = 12;
    const LAYERS: u64 = 60;
    let directory = orders.database();
    let named = |names: &[&str]| names.iter().map(|name| directory.join(name)).collect();
    let numbered = |kind: &str, count: u64, step: u64| {
        let name = |number: u64| format!("{kind}-{:016x}", number * step);
        (0..count).map(|n| directory.join(name(n))).collect()
    };
    match place {
        Place::Log => numbered("log", SEGMENTS, SEGMENT),
        Place::Layer => numbered("layer", LAYERS, 1),
        Place::Manifest => named(&["checkpoint", "checkpoint.new"]),
        Place::Head => named(&["foxton", "foxton.new", "lock"]),
        Place::Folder => vec![orders.folder.clone(), directory],
        Place::Directory => vec![directory],
    }
}

fn told(output: &Output) -> String {
    let lines = String::from_utf8_lossy(&output.stderr);
    lines.lines().last().unwrap_or_default().to_owned()
}

/// Creates a folder for a rig in `parent`, or in the system's temporary folder. Other files in
/// `parent` stay.
///
/// # Errors
///
/// If it cannot be created.
pub fn folder(parent: Option<PathBuf>) -> io::Result<PathBuf> {
    let name = format!("foxton-calls-{}", std::process::id());
    let folder = parent.unwrap_or_else(std::env::temp_dir).join(name);
    fs::create_dir_all(&folder)?;
    Path::canonicalize(&folder)
}
